//! The walls around a program, looked at from both sides.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "what a test finds otherwise than it must be ends it"
)]

#[path = "confinement/beside.rs"]
mod beside;
mod support;

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use support::{confinement, eventually, is_gone, named, status, test_root, tree};
use vk_vm::confine::{Confines, Exit, Holder, Place, Program, needed_by};

/// A program with a directory of its own: `view` to be mounted on, `work` to write to.
async fn program(path: &str, args: &[&str], also: &[Place], directory: &Path) -> Program {
    let path = fs::canonicalize(path).unwrap();
    let work = directory.join("work");
    let view = directory.join("view");
    fs::create_dir_all(&work).unwrap();
    fs::create_dir_all(&view).unwrap();
    let mut places = needed_by(&path, &[]).await.unwrap();
    places.push(Place::write(&work));
    places.extend_from_slice(also);
    let args = args.iter().map(Into::into).collect();
    Program {
        path,
        args,
        directory: work,
        confines: Confines::View { at: view, places },
        inherits: false,
    }
}

fn output(directory: &Path, name: &str) -> (PathBuf, OwnedFd) {
    let path = directory.join(name);
    let file = File::options()
        .append(true)
        .create(true)
        .open(&path)
        .unwrap();
    (path, file.into())
}

/// Runs a shell script confined; its exit, and what it wrote to stdout and stderr together.
async fn run(root: &Path, directory: &Path, script: &str, also: &[Place]) -> (Exit, String) {
    let holder = Holder::start(&confinement(root)).await.unwrap();
    let program = program("/bin/sh", &["-c", script], also, directory).await;
    let (path, out) = output(directory, "output");
    let launched = holder
        .launch(&program, out.try_clone().unwrap(), out)
        .await
        .unwrap();
    let exit = launched.exit().await;
    holder.end().await.unwrap();
    (exit, fs::read_to_string(path).unwrap())
}

#[tokio::test]
async fn a_confined_program_has_no_rights_and_namespaces_of_its_own() {
    let Some(root) = test_root("confinement") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let holder = Holder::start(&confinement(&root)).await.unwrap();
    let sleeper = program("/bin/sleep", &["1000"], &[], directory.path()).await;
    let (_, out) = output(directory.path(), "output");
    let launched = holder
        .launch(&sleeper, out.try_clone().unwrap(), out)
        .await
        .unwrap();
    eventually("the program runs", || {
        !named(holder.root_pid(), "sleep").is_empty()
    })
    .await;
    let pid = named(holder.root_pid(), "sleep")[0];
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(status(pid, set).unwrap(), "0".repeat(16), "{set}");
    }
    assert_eq!(status(pid, "NoNewPrivs").unwrap(), "1");
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    for kind in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap();
        assert_ne!(of(&pid.to_string()), of("self"), "{kind}");
    }
    let open: Vec<_> = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().collect();
    assert_eq!(open.len(), 3, "only stdin, stdout and stderr are open");
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
    assert!(environment.is_empty(), "{environment:?}");
    holder.kill(&launched).await.unwrap();
    assert_eq!(launched.exit().await, Exit::Signal(9));
    holder.end().await.unwrap();
}

#[tokio::test]
async fn a_confined_program_sees_its_places_and_nothing_else() {
    let Some(root) = test_root("confinement") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("key"), "secret").unwrap();
    fs::create_dir(path("shown")).unwrap();
    fs::write(path("shown/file"), "content").unwrap();
    let script = format!(
        "read line < {dir}/shown/file; echo got $line
         echo written > {dir}/work/new && echo wrote
         echo x > {dir}/shown/file || echo read-only
         echo x > /file || echo root is read-only
         for path in {dir}/key /etc/passwd /proc/self /sys /dev/null /tmp {root}; do
             [ -e $path ] && echo sees $path
         done
         echo in /* ",
        dir = directory.path().display(),
        root = root.display(),
    );
    let (exit, said) = run(
        &root,
        directory.path(),
        &script,
        &[Place::read(path("shown"))],
    )
    .await;
    assert_eq!(exit, Exit::Code(0), "{said}");
    for line in ["got content", "wrote", "read-only", "root is read-only"] {
        assert!(said.lines().any(|of| of == line), "no {line:?} in:\n{said}");
    }
    let seen: Vec<_> = said
        .lines()
        .filter(|line| line.starts_with("sees"))
        .collect();
    // The directory of the test lies in /tmp, so that its name is there; nothing else of it is.
    assert!(
        seen.iter()
            .all(|line| directory.path().starts_with(&line[5..])),
        "{seen:?}"
    );
    assert_eq!(fs::read_to_string(path("work/new")).unwrap(), "written\n");
}

#[tokio::test]
async fn exits_are_told_as_they_were() {
    let Some(root) = test_root("confinement") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let (exit, _) = run(&root, directory.path(), "exit 7", &[]).await;
    assert_eq!(exit, Exit::Code(7));
    let (exit, said) = run(
        &root,
        directory.path(),
        "exit 0",
        &[Place::read("/not/there")],
    )
    .await;
    assert_eq!(exit, Exit::Code(1));
    assert!(said.contains("/not/there"), "{said}");
}

#[tokio::test]
async fn an_owner_that_is_gone_leaves_nothing_running() {
    let Some(root) = test_root("confinement") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let holder = Holder::start(&confinement(&root)).await.unwrap();
    let script = "while :; do :; done | while :; do :; done";
    let shell = program("/bin/sh", &["-c", script], &[], directory.path()).await;
    let (_, out) = output(directory.path(), "output");
    holder
        .launch(&shell, out.try_clone().unwrap(), out)
        .await
        .unwrap();
    let name = shell.path.file_name().unwrap().to_str().unwrap();
    eventually("all run", || named(holder.root_pid(), name).len() == 3).await;
    let all = tree(holder.root_pid());
    assert_eq!(all.len(), 5, "the two stages, the shell and its children");
    drop(holder);
    eventually("all are gone", || all.iter().all(|pid| is_gone(*pid))).await;
}

#[tokio::test]
async fn a_holder_that_is_killed_takes_everything_with_it() {
    let Some(root) = test_root("confinement") else {
        return;
    };
    for victim in 0..2 {
        let directory = tempfile::tempdir().unwrap();
        let holder = Holder::start(&confinement(&root)).await.unwrap();
        let sleeper = program("/bin/sleep", &["1000"], &[], directory.path()).await;
        let (_, out) = output(directory.path(), "output");
        let launched = holder
            .launch(&sleeper, out.try_clone().unwrap(), out)
            .await
            .unwrap();
        eventually("the program runs", || {
            !named(holder.root_pid(), "sleep").is_empty()
        })
        .await;
        let all = tree(holder.root_pid());
        let pid = rustix::process::Pid::from_raw(i32::try_from(all[victim]).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        assert_eq!(launched.exit().await, Exit::WithHolder);
        eventually("all are gone", || all.iter().all(|pid| is_gone(*pid))).await;
        holder.end().await.unwrap();
    }
}

#[tokio::test]
async fn a_confined_program_can_make_no_namespaces_of_its_own() {
    let Some(root) = test_root("confinement") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let holder = Holder::start(&confinement(&root)).await.unwrap();
    // Any user may make a user namespace, and is root in it: that is what makes kernels break.
    let arguments = ["--user", "/nothing/to/run"];
    let unshare = program("/usr/bin/unshare", &arguments, &[], directory.path()).await;
    let (path, out) = output(directory.path(), "output");
    let launched = holder
        .launch(&unshare, out.try_clone().unwrap(), out)
        .await
        .unwrap();
    assert_ne!(launched.exit().await, Exit::Code(0));
    holder.end().await.unwrap();
    let said = fs::read_to_string(path).unwrap();
    assert!(
        said.contains("unshare failed: Operation not permitted"),
        "{said}"
    );
}
