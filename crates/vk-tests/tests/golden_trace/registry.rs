//! Debian's `docker-registry`, for caches.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

/// One that serves a directory of its own until dropped.
pub(crate) struct Registry {
    child: Child,
    host: String,
    _dir: tempfile::TempDir,
}

impl Registry {
    /// Starts the staged one, where it finds a port that is free.
    pub(crate) fn start(root: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = "version: 0.1\nlog: {level: info}\nstorage: {filesystem: \
                      {rootdirectory: data}}\nhttp: {addr: \"127.0.0.1:0\"}\n";
        std::fs::write(dir.path().join("config.yml"), config).unwrap();
        let program = root.join("bin/docker-registry");
        assert!(
            program.exists(),
            "docker-registry is missing: apt-get install docker-registry"
        );
        let mut child = Command::new(program)
            .args(["serve", "config.yml"])
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let host = address(&mut child);
        Self {
            child,
            host,
            _dir: dir,
        }
    }

    /// Its address and port.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
    told.unwrap_or_else(|| panic!("docker-registry does not listen"))
}
