//! A real registry on loopback, and a real client to push to it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::make::{self, Image};

/// A program, or `None` with the reason printed. A whole test run must have them all.
fn program(name: &str, package: &str) -> Option<PathBuf> {
    let root = std::env::var_os("VK_TEST_ROOT").map(PathBuf::from);
    let staged = root.iter().map(|root| root.join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/usr/sbin"].map(PathBuf::from);
    let mut places = staged.chain(std::env::split_paths(&path)).chain(usual);
    let found = places.find_map(|dir| Some(dir.join(name)).filter(|path| path.exists()));
    assert!(
        found.is_some() || root.is_none(),
        "{name} is missing: apt-get install {package}"
    );
    if found.is_none() {
        println!("skipped: no {name} here (package {package})");
    }
    found
}

/// `docker-registry`, serving a directory of its own until dropped.
pub(crate) struct Registry {
    child: Child,
    pub(crate) host: String,
    skopeo: PathBuf,
    dir: tempfile::TempDir,
    credentials: Option<&'static str>,
}

/// `user:s3cret` as bcrypt.
const PASSWORDS: &str = "user:$2b$04$h54FiLFTU62EuOqiqgR4Oe/wU.3vFbnxqoZ6FDu1n7Zm9IfHpuK9K";

impl Registry {
    /// Open to all.
    pub(crate) fn open() -> Option<Self> {
        Self::start("", None)
    }

    /// Closed to all but `user` with `s3cret`.
    pub(crate) fn closed() -> Option<Self> {
        Self::start(
            "auth: {htpasswd: {realm: test, path: passwords}}\n",
            Some("user:s3cret"),
        )
    }

    fn start(more: &str, credentials: Option<&'static str>) -> Option<Self> {
        let (registry, skopeo) = (
            program("docker-registry", "docker-registry")?,
            program("skopeo", "skopeo")?,
        );
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("passwords"), PASSWORDS).unwrap();
        // A free port may be taken before the registry has it: then another one.
        for _ in 0..8 {
            let host = TcpListener::bind("127.0.0.1:0")
                .unwrap()
                .local_addr()
                .unwrap()
                .to_string();
            let config = format!(
                "version: 0.1\nlog: {{level: info}}\nstorage: {{filesystem: {{rootdirectory: data}}}}\nhttp: {{addr: \"{host}\"}}\n{more}"
            );
            fs::write(dir.path().join("config.yml"), config).unwrap();
            let mut child = Command::new(&registry)
                .args(["serve", "config.yml"])
                .current_dir(dir.path())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            if listens(&mut child) {
                return Some(Self {
                    child,
                    host,
                    skopeo,
                    dir,
                    credentials,
                });
            }
            child.wait().unwrap();
        }
        panic!("docker-registry does not start");
    }

    /// Pushes an image with `skopeo`; `format` is `oci` or `v2s2`.
    pub(crate) fn push(&self, image: &Image, name: &str, format: &str) {
        let layout = self.dir.path().join("layout");
        let _ = fs::remove_dir_all(&layout);
        for (file, bytes) in make::layout(&make::index(&[image.entry("")]), &[image]) {
            let path = layout.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        let mut command = Command::new(&self.skopeo);
        command.args([
            "--insecure-policy",
            "copy",
            "--dest-tls-verify=false",
            "--format",
            format,
        ]);
        if let Some(credentials) = self.credentials {
            command.args(["--dest-creds", credentials]);
        }
        command.arg(format!("oci:{}", layout.display()));
        run(
            command.arg(format!("docker://{}/{name}", self.host)),
            self.dir.path(),
        );
    }

    /// Stops serving.
    pub(crate) fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Reads the log to the line that says so; the rest is read on and thrown away.
fn listens(child: &mut Child) -> bool {
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let listens = lines
        .by_ref()
        .map_while(Result::ok)
        .any(|line| line.contains("listening on"));
    std::thread::spawn(move || lines.count());
    listens
}

fn run(command: &mut Command, home: &Path) {
    let output = command
        .env("HOME", home)
        .env("XDG_RUNTIME_DIR", home)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
