//! A program beside its owner: its walls, and what of the owner's it has all the same.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;
use vk_vm::confine::{Place, UNWALLED, Walled, needed_by};

use crate::support::{eventually, is_gone, named, status, test_root, tree};

/// Where programs run beside their owner: `view` to be mounted on, `work` to write to, `key` unseen.
struct Beside {
    vk: PathBuf,
    dir: TempDir,
    walled: Walled,
}

impl Beside {
    async fn new() -> Option<Beside> {
        let root = test_root("confinement")?;
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("view")).unwrap();
        fs::create_dir(path("work")).unwrap();
        fs::write(path("key"), "secret").unwrap();
        let mut places = Vec::new();
        for program in ["/bin/sh", "/bin/cat"] {
            let real = fs::canonicalize(program).unwrap();
            places.extend(needed_by(&real, &[]).await.unwrap());
            places.push(Place::read(program));
        }
        places.push(Place::write(path("work")));
        let walled = Walled {
            at: path("view"),
            places,
            directory: path("work"),
            network: false,
            file_max: 1 << 20,
            memory_max: None,
        };
        let vk = root.join("bin/vk");
        Some(Beside { vk, dir, walled })
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new(&self.vk);
        command
            .args(["guest", "confine", "beside"])
            .arg(serde_json::to_string(&self.walled).unwrap())
            .args(["/bin/sh", "-c", script])
            .env_clear()
            .env("OF_OWNER", "it is")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, script: &str) -> Output {
        self.command(script).output().unwrap()
    }

    /// A shell that waits for a line, and its number.
    async fn waits(&self) -> (Child, u32) {
        let mut command = self.command("echo up > up; read line");
        let child = command.process_group(0).spawn().unwrap();
        let up = self.dir.path().join("work/up");
        eventually("the shell runs", || up.exists()).await;
        let shell = named(child.id(), "sh");
        (child, shell[0])
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn a_program_beside_its_owner_has_no_rights_and_no_network_unless_it_is_for_that() {
    let Some(mut beside) = Beside::new().await else {
        return;
    };
    for network in [false, true] {
        beside.walled.network = network;
        let (mut child, shell) = beside.waits().await;
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(status(shell, set).unwrap(), "0".repeat(16), "{set}");
        }
        assert_eq!(status(shell, "NoNewPrivs").unwrap(), "1");
        assert_eq!(status(shell, "Seccomp").unwrap(), "2");
        let limits = fs::read_to_string(format!("/proc/{shell}/limits")).unwrap();
        let limit = |name: &str| {
            let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
            let values = line.strip_prefix(name).unwrap().split_whitespace();
            values.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(limit("Max core file size")[..2], ["0", "0"]);
        assert_eq!(limit("Max file size")[..2], ["1048576", "1048576"]);
        for kind in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
            let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap();
            let same = of(&shell.to_string()) == of("self");
            assert_eq!(same, kind == "net" && network, "{kind} with {network}");
        }
        child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        fs::remove_file(beside.dir.path().join("work/up")).unwrap();
    }
}

#[tokio::test]
async fn a_program_beside_its_owner_sees_its_places_alone_and_has_the_owners_streams() {
    let Some(beside) = Beside::new().await else {
        return;
    };
    let dir = beside.dir.path().display().to_string();
    let host = [
        "/etc/passwd",
        "/proc/self",
        "/sys",
        "/dev/null",
        "/root",
        "/home",
        "/var",
        "/tmp",
    ];
    // Names on the way to the test's own directory are there; nothing else of them is.
    let hidden = host
        .into_iter()
        .filter(|path| !beside.dir.path().starts_with(path));
    let hidden = hidden.collect::<Vec<_>>().join(" ");
    let script = format!(
        "read line; echo \"got $line, $OF_OWNER\"
         echo written > {dir}/work/new && echo wrote
         for path in {dir}/key {hidden}; do [ -e $path ] && echo \"sees $path\"; done
         echo complaint >&2; exit 7"
    );
    let mut child = beside.command(&script).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"a line\n").unwrap();
    let ran = child.wait_with_output().unwrap();
    assert_eq!(text(&ran.stdout), "got a line, it is\nwrote\n");
    assert_eq!(text(&ran.stderr), "complaint\n");
    assert_eq!(ran.status.code(), Some(7));
    let written = fs::read_to_string(Path::new(&dir).join("work/new"));
    assert_eq!(written.unwrap(), "written\n");
}

#[tokio::test]
async fn a_signal_that_ends_a_program_beside_its_owner_is_said() {
    let Some(mut beside) = Beside::new().await else {
        return;
    };
    // What a shell that is the first of its PID namespace would not hear.
    let ran = beside.run("kill -PIPE $$; echo deaf");
    assert_eq!(ran.status.code(), Some(128 + 13));
    assert_eq!(text(&ran.stderr), "/bin/sh ended by signal 13\n");
    assert!(ran.stdout.is_empty());
    beside.walled.file_max = 3;
    let ran = beside.run("exec cat > file <<end\nmore\nend\n");
    assert!(text(&ran.stderr).contains("signal 25"), "{ran:?}");
    assert!(ran.status.code() == Some(128 + 25), "{ran:?}");
}

#[tokio::test]
async fn a_limit_of_the_owners_that_is_lower_stays() {
    let Some(beside) = Beside::new().await else {
        return;
    };
    let inner = beside.command("ulimit -f; ulimit -H -f");
    let mut limited = Command::new("/bin/sh");
    limited.args(["-c", "ulimit -f 7; exec \"$0\" \"$@\""]);
    limited.arg(inner.get_program()).args(inner.get_args());
    let ran = limited.env_clear().output().unwrap();
    assert_eq!(text(&ran.stdout), "7\n7\n", "{ran:?}");
}

#[tokio::test]
async fn a_program_without_its_walls_does_not_run() {
    let Some(mut beside) = Beside::new().await else {
        return;
    };
    beside.walled.places.push(Place::read("/not/there"));
    let ran = beside.run("echo ran");
    assert_eq!(ran.status.code(), Some(UNWALLED.into()));
    assert!(text(&ran.stderr).contains("/not/there"), "{ran:?}");
    assert!(ran.stdout.is_empty());
}

#[tokio::test]
async fn a_program_beside_its_owner_ends_with_its_group_or_with_the_first_process() {
    let Some(beside) = Beside::new().await else {
        return;
    };
    for by_group in [true, false] {
        let (mut child, shell) = beside.waits().await;
        let all = tree(child.id());
        assert_eq!(all.len(), 3, "the stage, the first process and the shell");
        assert!(all.contains(&shell));
        // By its environment each is found, whatever namespaces it is in.
        for pid in &all {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap();
            let mut entries = environ.split(|byte| *byte == 0);
            assert!(entries.any(|entry| entry == b"OF_OWNER=it is"), "{pid}");
        }
        let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        if by_group {
            rustix::process::kill_process_group(pid, rustix::process::Signal::KILL).unwrap();
        } else {
            child.kill().unwrap();
        }
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        eventually("all are gone", || all.iter().all(|pid| is_gone(*pid))).await;
        fs::remove_file(beside.dir.path().join("work/up")).unwrap();
    }
}
