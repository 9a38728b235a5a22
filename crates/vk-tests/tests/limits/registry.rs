//! `vk check` finds what keeps a node from keeping caches at its registry.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use vk_tests::port;

use crate::faults::Desk;
use crate::fleet::test_root;

/// `user:s3cret` as bcrypt.
const PASSWORDS: &str = "user:$2b$04$h54FiLFTU62EuOqiqgR4Oe/wU.3vFbnxqoZ6FDu1n7Zm9IfHpuK9K";
/// Closed to all but that user.
const CLOSED: &str = "auth: {htpasswd: {realm: test, path: passwords}}\n";
/// Open to all, for reading.
const READ_ONLY: &str = "# read only\n";
/// An address that is not loopback, in a network of the test's own.
const ELSEWHERE: &str = "192.0.2.1:5000";

/// `docker-registry` until dropped.
struct Registry(Child);

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a registry serves from.
fn lay_out(dir: &Path, addr: &str, tls: &str, more: &str) {
    fs::write(dir.join("passwords"), PASSWORDS).unwrap();
    let config = format!(
        "version: 0.1\nlog: {{level: info}}\nstorage: {{filesystem: {{rootdirectory: data}}}}\n\
         http: {{addr: \"{addr}\"{tls}}}\n{more}"
    );
    let config = match more == READ_ONLY {
        true => config.replace("data}}", "data}, maintenance: {readonly: {enabled: true}}}"),
        false => config,
    };
    fs::write(dir.join("registry.yml"), config).unwrap();
}

/// Starts one, and returns once it listens; its host.
fn start(root: &Path, dir: &Path, more: &str) -> (Registry, String) {
    let host = format!("127.0.0.1:{}", port::free());
    lay_out(dir, &host, "", more);
    let mut child = Command::new(root.join("bin/docker-registry"))
        .args(["serve", "registry.yml"])
        .current_dir(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let listens = lines
        .by_ref()
        .map_while(Result::ok)
        .any(|line| line.contains("listening on "));
    std::thread::spawn(move || lines.count());
    let registry = Registry(child);
    assert!(listens, "docker-registry does not listen");
    (registry, host)
}

fn settings(host: &str, more: &str) -> String {
    format!("[registry]\nrepo = \"{host}/vk/caches\"\n{more}")
}

#[test]
fn a_registry_is_read_and_written_or_what_is_wrong_with_it_is_told() {
    let Some(root) = test_root("vk check") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (registry, host) = start(&root, dir.path(), CLOSED);
    let login = |password: &str| {
        let login = "username = \"user\"\npassword_file = \"password\"\n";
        let desk = Desk::new(&root, &settings(&host, login));
        fs::write(desk.path("password"), password).unwrap();
        desk
    };
    let found = login("s3cret\n").check("registry");
    let read_and_written = format!("{host}/vk/caches is read and written");
    assert_eq!(found.what, read_and_written);
    assert_eq!((found.verdict.as_str(), found.code), ("ok", Some(0)));

    let wrong = login("secret").check("registry");
    wrong.fails("with a credential", "registry.password_file");
    assert!(!wrong.what.contains("secret"), "{}", wrong.what);
    let nobody = Desk::new(&root, &settings(&host, "")).check("registry");
    nobody.fails("without a credential", "set registry.username");
    let jobs_own = settings(&host, "guest_credential = \"job\"\n");
    let found = Desk::new(&root, &jobs_own).check("registry");
    assert_eq!(found.verdict, "ok", "{}", found.what);

    let unreadable = login("");
    fs::remove_file(unreadable.path("password")).unwrap();
    let found = unreadable.check("registry");
    found.fails(
        "cannot read registry.password_file",
        "make the file readable",
    );

    drop(registry);
    let remedy = format!("see that {host} runs");
    login("s3cret")
        .check("registry")
        .fails("cannot be reached", &remedy);
    assert_eq!(Desk::new(&root, "").check("registry").verdict, "skipped");
}

#[test]
fn a_registry_that_may_only_be_read_keeps_no_caches() {
    let Some(root) = test_root("vk check") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (_registry, host) = start(&root, dir.path(), "");
    let found = Desk::new(&root, &settings(&host, "")).check("registry");
    assert_eq!(found.verdict, "ok", "{} {}", found.what, found.remedy);
    let dir = tempfile::tempdir().unwrap();
    let (_registry, host) = start(&root, dir.path(), READ_ONLY);
    let found = Desk::new(&root, &settings(&host, "")).check("registry");
    found.fails("405", "takes artifacts below");
}

#[test]
fn a_registry_elsewhere_needs_tls_and_an_authority_that_is_known() {
    let Some(root) = test_root("vk check") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    certify(dir.path());
    let tls = ", tls: {certificate: leaf.pem, key: key.pem}";
    let ca = format!("ca_file = \"{}\"\n", dir.path().join("ca.pem").display());
    let insecure = format!("insecure = [\"{ELSEWHERE}\"]\n");
    let login = "username = \"user\"\npassword_file = \"password\"\n";
    let check = |tls: &str, more: &str| {
        lay_out(dir.path(), ELSEWHERE, tls, CLOSED);
        let desk = Desk::new(&root, &settings(ELSEWHERE, &format!("{login}{more}")));
        fs::write(desk.path("password"), "s3cret").unwrap();
        desk.check_after(&serve(&root, dir.path()), "registry")
    };
    check(tls, "").fails("certificate", "registry.ca_file");
    let found = check(tls, &ca);
    assert_eq!(found.verdict, "ok", "{} {}", found.what, found.remedy);
    check("", &ca).fails(
        "cannot be reached",
        &format!("insecure = [\"{ELSEWHERE}\"]"),
    );
    check("", &insecure).fails("over plain http", "give it TLS");
}

/// A script that serves at [`ELSEWHERE`] until it ends.
fn serve(root: &Path, dir: &Path) -> String {
    let (registry, dir) = (root.join("bin/docker-registry"), dir.display());
    let (address, port) = ELSEWHERE.split_once(':').unwrap();
    format!(
        "ip link set lo up; ip address add {address}/32 dev lo\n\
         (cd {dir}; exec {} serve registry.yml >registry.log 2>&1) &\n\
         trap 'kill %1; wait' EXIT\n\
         until (exec 3<>/dev/tcp/{address}/{port}) 2>/dev/null; do\n\
         kill -0 %1; sleep 0.05\ndone",
        registry.display()
    )
}

/// An authority, and what it says of [`ELSEWHERE`].
fn certify(dir: &Path) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = params.self_signed(&key).unwrap();
    fs::write(dir.join("ca.pem"), ca.pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let address = ELSEWHERE.split(':').next().unwrap();
    let leaf = CertificateParams::new(vec![address.to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    fs::write(dir.join("leaf.pem"), leaf.pem()).unwrap();
    fs::write(dir.join("key.pem"), key.serialize_pem()).unwrap();
}
