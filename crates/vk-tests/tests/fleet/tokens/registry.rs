//! Debian's `docker-registry`, as it is.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::program::eventually;

/// `user:s3cret` as bcrypt.
const PASSWORDS: &str = "user:$2b$04$h54FiLFTU62EuOqiqgR4Oe/wU.3vFbnxqoZ6FDu1n7Zm9IfHpuK9K";

/// One, until dropped.
pub(super) struct Registry {
    child: Child,
    dir: tempfile::TempDir,
    /// Where it listens.
    pub(super) host: String,
}

impl Registry {
    /// One that believes tokens alone, signed by a key with a certificate of these (PEM).
    pub(super) fn of_tokens(root: &Path, certificate: &str) -> Registry {
        let auth = "token: {realm: \"http://127.0.0.1:9/none\", service: registry, issuer: hub, \
                    rootcertbundle: trusted}";
        Registry::start(root, auth, certificate)
    }

    /// One that knows `user` by the password `s3cret`.
    pub(super) fn of_passwords(root: &Path) -> Registry {
        Registry::start(root, "htpasswd: {realm: test, path: trusted}", PASSWORDS)
    }

    fn start(root: &Path, auth: &str, trusted: &str) -> Registry {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        fs::write(at.join("trusted"), trusted).unwrap();
        let config = format!(
            "version: 0.1\nlog: {{level: info}}\nstorage: {{filesystem: {{rootdirectory: data}}}}\n\
             http: {{addr: \"127.0.0.1:0\"}}\nauth: {{{auth}}}\n"
        );
        fs::write(at.join("registry.yml"), config).unwrap();
        let log = |name: &str| File::create(at.join(name)).unwrap();
        let child = Command::new(root.join("bin/docker-registry"))
            .args(["serve", "registry.yml"])
            .current_dir(at)
            .stdin(Stdio::null())
            .stdout(log("asked"))
            .stderr(log("log"))
            .spawn()
            .unwrap();
        let host = eventually("docker-registry listens", || {
            let log = fs::read_to_string(at.join("log")).unwrap();
            let (_, rest) = log.split_once("listening on ")?;
            let end = rest.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | ':')))?;
            Some(rest[..end].to_owned())
        });
        Registry { child, dir, host }
    }

    /// Every request so far: `METHOD path status`, without what is behind the path's `?`.
    pub(super) fn asked(&self) -> Vec<String> {
        let log = fs::read_to_string(self.dir.path().join("asked")).unwrap();
        let asked = log.lines().map(|line| {
            let mut parts = line.split('"').skip(1);
            let (request, status) = (parts.next().unwrap(), parts.next().unwrap());
            let mut words = request.split(' ');
            let (method, path) = (words.next().unwrap(), words.next().unwrap());
            let path = path.split('?').next().unwrap();
            let status = status.split_whitespace().next().unwrap();
            format!("{method} {path} {status}")
        });
        asked.collect()
    }

    /// Asks by a token; the answer's status.
    pub(super) fn answers(&self, method: &str, path: &str, token: &str) -> String {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        let host = &self.host;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\
             accept: application/vnd.oci.image.manifest.v1+json\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A key and its certificate in files of a directory, and the certificate's text.
pub(super) fn key_pair(dir: &Path) -> (PathBuf, PathBuf, String) {
    use std::os::unix::fs::OpenOptionsExt as _;
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["hub".to_owned()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap().pem();
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        file.unwrap().write_all(text.as_bytes()).unwrap();
        path
    };
    let (key, file) = (
        write("r.key", &key.serialize_pem()),
        write("r.pem", &certificate),
    );
    (key, file, certificate)
}
