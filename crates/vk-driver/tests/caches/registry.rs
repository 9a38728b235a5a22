//! Debian's `docker-registry`, and a door before it that counts and may fail.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

/// What becomes of a request at the door.
pub(crate) enum Rule {
    Pass,
    /// Answered so, without the registry.
    Status(u16),
    /// Half of it passes, or of its answer where it has no body; then nothing more.
    Half(Told),
}

/// Hears when half has passed, and when the client is gone.
pub(crate) type Told = tokio::sync::mpsc::UnboundedSender<&'static str>;

type Rules = Arc<dyn Fn(&str) -> Rule + Send + Sync>;

/// A registry, serving a directory of its own until dropped.
pub(crate) struct Registry {
    child: Child,
    /// Where jobs find it: the door.
    pub(crate) host: String,
    asked: Arc<Mutex<Vec<String>>>,
    rules: Arc<Mutex<Rules>>,
    _dir: tempfile::TempDir,
}

impl Registry {
    /// Open to all; `None`, said aloud, where the program is not there.
    pub(crate) fn open() -> Option<Registry> {
        Registry::start(|_| String::new())
    }

    /// With more of a configuration, which may name files of a directory it is given.
    pub(crate) fn start(more: impl FnOnce(&std::path::Path) -> String) -> Option<Registry> {
        let program = program()?;
        let dir = tempfile::tempdir().unwrap();
        let more = more(dir.path());
        let config = format!(
            "version: 0.1\nlog: {{level: info}}\n\
             storage: {{filesystem: {{rootdirectory: data}}, delete: {{enabled: true}}}}\n\
             http: {{addr: \"127.0.0.1:0\"}}\n{more}"
        );
        fs::write(dir.path().join("config.yml"), config).unwrap();
        let mut child = Command::new(program)
            .args(["serve", "config.yml"])
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let behind = address(&mut child);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let pass: Rules = Arc::new(|_| Rule::Pass);
        let rules = Arc::new(Mutex::new(pass));
        let host = door(behind, Arc::clone(&asked), Arc::clone(&rules));
        Some(Registry {
            child,
            host,
            asked,
            rules,
            _dir: dir,
        })
    }

    /// From now on requests (`METHOD /path`) are treated so.
    pub(crate) fn rule(&self, rule: impl Fn(&str) -> Rule + Send + Sync + 'static) {
        *self.rules.lock().unwrap() = Arc::new(rule);
    }

    /// What was asked since the last time, without what is after the `?`.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> Option<PathBuf> {
    let root = std::env::var_os("VK_TEST_ROOT").map(PathBuf::from);
    let staged = root.iter().map(|root| root.join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/usr/sbin"].map(PathBuf::from);
    let mut places = staged.chain(std::env::split_paths(&path)).chain(usual);
    let found = places.find_map(|dir| Some(dir.join("docker-registry")).filter(|at| at.exists()));
    assert!(
        found.is_some() || root.is_none(),
        "docker-registry is missing: apt-get install docker-registry"
    );
    if found.is_none() {
        println!("skipped: no docker-registry here");
    }
    found
}

/// Where it listens, by its log; the rest of which is read on and thrown away.
fn address(child: &mut Child) -> String {
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let told = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let (_, rest) = line.split_once("listening on ")?;
        let end = rest.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | ':')));
        Some(rest[..end.unwrap_or(rest.len())].to_owned())
    });
    thread::spawn(move || lines.count());
    told.expect("docker-registry listens")
}

/// Passes each request on by a connection of its own.
fn door(behind: String, asked: Arc<Mutex<Vec<String>>>, rules: Arc<Mutex<Rules>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (behind, asked, rules) = (behind.clone(), Arc::clone(&asked), Arc::clone(&rules));
            thread::spawn(move || {
                // A client that goes away is a client that has gone away.
                let _ = pass(&stream, &behind, &asked, &rules);
            });
        }
    });
    host
}

fn pass(
    client: &TcpStream,
    behind: &str,
    asked: &Mutex<Vec<String>>,
    rules: &Mutex<Rules>,
) -> std::io::Result<()> {
    let mut from = BufReader::new(client.try_clone()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if from.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let line = format!("{method} {}", path.split('?').next().unwrap());
    asked.lock().unwrap().push(line.clone());
    let rule = Arc::clone(&*rules.lock().unwrap());
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<u64>().unwrap())
    });
    let mut half = None;
    match rule(&line) {
        Rule::Pass => {}
        Rule::Half(told) => half = Some(told),
        Rule::Status(status) => {
            std::io::copy(&mut from.take(length.unwrap_or(0)), &mut std::io::sink())?;
            let answer =
                format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            (&*client).write_all(answer.as_bytes())?;
            return client.shutdown(Shutdown::Write);
        }
    }
    let mut registry = TcpStream::connect(behind)?;
    let first = head.find("\r\n").unwrap() + 2;
    let (request, headers) = head.split_at(first);
    registry.write_all(format!("{request}connection: close\r\n{headers}").as_bytes())?;
    if let Some(told) = half {
        match length {
            Some(length) if length > 0 => {
                std::io::copy(&mut from.by_ref().take(length / 2), &mut registry)?;
            }
            _ => {
                let mut answer = Vec::new();
                registry.read_to_end(&mut answer)?;
                (&*client).write_all(&answer[..answer.len() / 2])?;
            }
        }
        // The test may be over.
        let _ = told.send("half");
        let gone = std::io::copy(&mut from, &mut std::io::sink());
        let _ = told.send("gone");
        return gone.map(|_| ());
    }
    std::io::copy(&mut from.take(length.unwrap_or(0)), &mut registry)?;
    std::io::copy(&mut registry, &mut &*client)?;
    client.shutdown(Shutdown::Write)
}
