//! The agent as the init of namespaces, as the process VMM starts it: roots and trees from
//! directories, joined by overlay. Where this user may not make user namespaces, these tests say so
//! and check nothing.

use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use vk_guest_proto::*;

use crate::archives::{names, tar_out, write};
use crate::host::{Heard, Host, path, sh};

/// `unshare` with what the process VMM unshares.
fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
    ]);
    command
}

fn start() -> Option<Host> {
    let allowed = unshare()
        .arg("true")
        .status()
        .is_ok_and(|status| status.success());
    if !allowed {
        println!("this user may not make namespaces: nothing was tested");
        return None;
    }
    Some(Host::start_as(|agent| {
        let mut command = unshare();
        command.arg(agent.get_program()).args(agent.get_args());
        command
    }))
}

/// An image with this machine's own programs: `/usr` is a tree of its own.
fn image(host: &Host) -> Volume {
    let dir = host.dir.path().join("image");
    for name in ["bin", "sbin", "lib", "lib32", "lib64", "libx32"] {
        if Path::new("/usr").join(name).exists() {
            fs::create_dir_all(&dir).unwrap();
            symlink(format!("usr/{name}"), dir.join(name)).unwrap();
        }
    }
    write(&dir.join("etc/passwd"), b"root:x:0:0:root:/root:/bin/sh\n");
    write(&dir.join("etc/of-the-image"), b"x");
    Volume::Directory { path: path(&dir) }
}

fn mount_root(host: &mut Host) {
    mount_root_on(host, 64 << 20);
}

fn mount_root_on(host: &mut Host, max_bytes: u64) {
    let (image, writable) = (image(host), Volume::Memory { max_bytes });
    let answer = host.call(Op::MountRoot {
        plan: MountRoot { image, writable },
    });
    assert_eq!(answer, Answer::Done);
    mount_tree(host, Path::new("/usr"), "/usr", TreeAccess::ReadOnly);
}

#[test]
fn a_set_up_brings_the_root_its_directories_and_what_is_asked_of_it() {
    let Some(mut host) = start() else { return };
    let image = image(&host);
    let Volume::Directory { path: dir } = &image else {
        panic!()
    };
    let dir = Path::new(std::ffi::OsStr::from_bytes(dir)).to_owned();
    fs::create_dir(dir.join("builds")).unwrap();
    fs::set_permissions(dir.join("builds"), Permissions::from_mode(0o700)).unwrap();
    symlink("of-the-image", dir.join("etc/link")).unwrap();
    let plan = |read: &str| SetUp {
        hostname: None,
        unix_ns: None,
        root: MountRoot {
            image: image.clone(),
            writable: Volume::Memory {
                max_bytes: 64 << 20,
            },
        },
        open: vec![
            b"/builds".to_vec(),
            b"/builds/g".to_vec(),
            b"/builds/g/p".to_vec(),
        ],
        look: vec![
            b"/etc/link".to_vec(),
            b"/nowhere".to_vec(),
            b"/builds/g/p".to_vec(),
        ],
        read: read.as_bytes().to_vec(),
    };
    let plan = Op::SetUp {
        plan: plan("/etc/passwd"),
    };
    let Answer::SetUp { files, content } = host.call(plan) else {
        panic!()
    };
    let kinds: Vec<_> = files
        .iter()
        .map(|file| file.as_ref().map(|file| file.kind))
        .collect();
    assert_eq!(
        kinds,
        [Some(FileKind::File), None, Some(FileKind::Directory)]
    );
    assert_eq!(content.unwrap(), b"root:x:0:0:root:/root:/bin/sh\n");
    mount_tree(&mut host, Path::new("/usr"), "/usr", TreeAccess::ReadOnly);
    let heard = run(&mut host, "stat -c '%a %n' /builds /builds/g /builds/g/p");
    assert_eq!(
        heard.text(),
        "777 /builds\n777 /builds/g\n777 /builds/g/p\n"
    );
}

#[test]
fn a_file_that_a_set_up_cannot_bring_is_left_out() {
    for (size, there) in [
        (limits::MAX_SMALL_FILE, true),
        (limits::MAX_SMALL_FILE + 1, false),
    ] {
        let Some(mut host) = start() else { return };
        let image = image(&host);
        let Volume::Directory { path: dir } = &image else {
            panic!()
        };
        let dir = Path::new(std::ffi::OsStr::from_bytes(dir));
        write(&dir.join("etc/passwd"), &vec![b'x'; size]);
        write(&dir.join("program"), b"");
        let program = Permissions::from_mode(0o755);
        std::fs::set_permissions(dir.join("program"), program).unwrap();
        let plan = SetUp {
            hostname: None,
            unix_ns: None,
            root: MountRoot {
                image,
                writable: Volume::Memory { max_bytes: 8 << 20 },
            },
            open: Vec::new(),
            look: [&b"/etc/passwd"[..], b"/program", b"/etc/passwd"]
                .map(<[u8]>::to_vec)
                .to_vec(),
            read: b"/etc/passwd".to_vec(),
        };
        let Answer::SetUp { content, files } = host.call(Op::SetUp { plan }) else {
            panic!()
        };
        // Nothing is looked at behind the first program.
        let found: Vec<_> = files.iter().map(Option::is_some).collect();
        assert_eq!(found, [true, true, false]);
        assert_eq!(content.map(|content| content.len()), there.then_some(size));
    }
}

fn mount_tree(host: &mut Host, from: &Path, at: &str, access: TreeAccess) {
    let volume = Volume::Directory { path: path(from) };
    let plan = MountTree {
        volume,
        at: at.as_bytes().to_vec(),
        access,
    };
    assert_eq!(host.call(Op::MountTree { plan }), Answer::Done);
}

fn run(host: &mut Host, script: &str) -> Heard {
    host.run(&Request::Exec { exec: sh(script) }, b"")
}

fn sources(host: &Host) -> PathBuf {
    let dir = host.dir.path().join("sources");
    write(&dir.join("dir/file"), b"from the image\n");
    write(&dir.join("gone"), b"x");
    dir
}

#[test]
fn a_job_sees_its_root_and_trees_and_changes_neither() {
    let Some(mut host) = start() else { return };
    mount_root(&mut host);
    let sources = sources(&host);
    mount_tree(&mut host, &sources, "/builds/g/p", TreeAccess::Overlay);
    mount_tree(
        &mut host,
        &sources,
        "/opt/vk-read-only",
        TreeAccess::ReadOnly,
    );
    let heard = run(
        &mut host,
        "cd /builds/g/p && cat dir/file && echo new >dir/file && rm gone && mv dir moved \
         && echo made >/vk-agent-test && cat /opt/vk-read-only/dir/file \
         && ! echo x 2>/dev/null >/opt/vk-read-only/dir/file && cat moved/file",
    );
    let expected = "from the image\nfrom the image\nnew\n";
    assert_eq!(
        (heard.text(), String::from_utf8_lossy(&heard.err)),
        (expected, "".into())
    );
    assert_eq!(heard.end().status, ExitStatus::Code { code: 0 });
    assert_eq!(
        fs::read_to_string(sources.join("dir/file")).unwrap(),
        "from the image\n"
    );
    assert!(sources.join("gone").exists() && !Path::new("/vk-agent-test").exists());
    // GUEST-02: what the job left is what is archived.
    let heard = host.run(
        &Request::TarOut {
            tar: tar_out(Path::new("/builds/g/p"), &["**"], &[]),
        },
        b"",
    );
    assert_eq!(names(&heard.content), ["moved/", "moved/file"]);
    let Answer::Usage { usage } = host.call(Op::Usage) else {
        panic!("no usage")
    };
    assert!(usage.disk_bytes.unwrap() > 0);
}

/// GUEST-02
#[test]
fn an_archive_sees_what_the_job_itself_mounted() {
    let Some(mut host) = start() else { return };
    mount_root(&mut host);
    let heard = run(
        &mut host,
        "mkdir -p /builds/m && mount -t tmpfs none /builds/m && echo x >/builds/m/f",
    );
    assert_eq!(
        heard.end().status,
        ExitStatus::Code { code: 0 },
        "{:?}",
        heard.err
    );
    let heard = host.run(
        &Request::TarOut {
            tar: tar_out(Path::new("/builds"), &["m/f"], &[]),
        },
        b"",
    );
    assert_eq!(names(&heard.content), ["m/f"]);
}

#[test]
fn a_job_has_no_path_to_what_is_around_its_root() {
    let Some(mut host) = start() else { return };
    mount_root(&mut host);
    let around = host.dir.path().to_owned();
    let script = format!(
        "test ! -e {0} && cd / && for i in 1 2 3; do cd ..; done && test ! -e .{0} \
         && test -e etc/of-the-image && cut -d' ' -f5 /proc/self/mountinfo | sort -u",
        around.display()
    );
    let heard = run(&mut host, &script);
    let mounted: Vec<&str> = heard.text().lines().collect();
    assert!(
        mounted.contains(&"/") && mounted.contains(&"/usr"),
        "{mounted:?}"
    );
    let borrowed = ["/", "/usr", "/proc", "/dev", "/sys"];
    for place in mounted {
        let known = borrowed
            .iter()
            .any(|top| place == *top || place.starts_with(&format!("{top}/")));
        assert!(
            known && (place.len() > 1 || place == "/"),
            "{place} is seen by the job"
        );
        assert!(
            !place.starts_with("/tmp") && !place.starts_with("/run"),
            "{place}"
        );
    }
    // Under chroot the kernel would refuse; containers in a job need it.
    assert_eq!(
        run(&mut host, "unshare -Ur echo allowed").text(),
        "allowed\n"
    );
}

#[test]
fn what_every_program_expects_is_there() {
    let Some(mut host) = start() else { return };
    mount_root(&mut host);
    let heard = run(
        &mut host,
        "echo x >/dev/null && test -c /dev/zero && test -d /dev/shm && test -r /proc/self/fd/0 \
         && test -L /dev/stdin && test -e /dev/ptmx && head -c 4 /dev/urandom | wc -c \
         && cat /proc/1/comm",
    );
    assert_eq!(
        heard.text(),
        "4\nvk-agent\n",
        "{}",
        String::from_utf8_lossy(&heard.err)
    );
}

#[test]
fn a_symlink_of_the_image_does_not_lead_a_mount_out_of_it() {
    let Some(mut host) = start() else { return };
    mount_root(&mut host);
    let away = host.dir.path().join("away");
    fs::create_dir(&away).unwrap();
    let heard = run(
        &mut host,
        &format!("mkdir -p {0} && ln -s {0} /vk-link", away.display()),
    );
    assert_eq!(heard.end().status, ExitStatus::Code { code: 0 });
    let sources = sources(&host);
    mount_tree(&mut host, &sources, "/vk-link/p", TreeAccess::Overlay);
    assert!(!away.join("p").exists());
    assert_eq!(run(&mut host, "ls /vk-link/p").text(), "dir\ngone\n");
}

#[test]
fn what_lies_at_a_trees_place_is_seen_beneath_it() {
    let Some(mut host) = start() else { return };
    mount_root(&mut host);
    let heard = run(
        &mut host,
        "mkdir -p /builds/g/p.tmp /builds/dir && echo kept >/builds/g/p.tmp/env \
         && echo hidden >/builds/gone && echo beside >/builds/dir/other",
    );
    assert_eq!(heard.end().status, ExitStatus::Code { code: 0 });
    let sources = sources(&host);
    mount_tree(&mut host, &sources, "/builds", TreeAccess::Overlay);
    let heard = run(
        &mut host,
        "cd /builds && cat g/p.tmp/env gone dir/other dir/file && echo more >>g/p.tmp/env \
         && cat g/p.tmp/env",
    );
    assert_eq!(heard.text(), "kept\nxbeside\nfrom the image\nkept\nmore\n");
}

/// A tree read-only and a difference over it: the image's own files are seen as without the two.
#[test]
fn a_tree_over_one_that_is_shown_hides_nothing_beneath_them() {
    let Some(mut host) = start() else { return };
    mount_root(&mut host);
    let heard = run(
        &mut host,
        "mkdir -p /builds/dir && echo own >/builds/own && echo beside >/builds/dir/other",
    );
    assert_eq!(heard.end().status, ExitStatus::Code { code: 0 });
    let base = sources(&host);
    mount_tree(&mut host, &base, "/builds", TreeAccess::ReadOnly);
    assert_eq!(run(&mut host, "ls /builds").text(), "dir\ngone\n");
    let over = host.dir.path().join("difference");
    write(&over.join("dir/file"), b"changed\n");
    mount_tree(&mut host, &over, "/builds", TreeAccess::Overlay);
    let heard = run(
        &mut host,
        "cd /builds && cat own gone dir/other dir/file && echo more >dir/file && cat dir/file",
    );
    assert_eq!(heard.text(), "own\nxbeside\nchanged\nmore\n");
}

#[test]
fn the_root_is_mounted_once_and_trees_only_after_it() {
    let Some(mut host) = start() else { return };
    let tree = |path: &str| Volume::Directory {
        path: path.as_bytes().to_vec(),
    };
    let plan = MountTree {
        volume: tree("/"),
        at: b"/x".to_vec(),
        access: TreeAccess::ReadOnly,
    };
    let failed = |answer| match answer {
        Answer::Failed { failure } => failure.code,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        failed(host.call(Op::MountTree { plan })),
        FailureCode::Invalid
    );
    let none = MountRoot {
        image: tree("/no/such"),
        writable: Volume::Memory { max_bytes: 1 << 20 },
    };
    assert_eq!(
        failed(host.call(Op::MountRoot { plan: none })),
        FailureCode::NotFound
    );
    mount_root(&mut host);
    let again = MountRoot {
        image: tree("/"),
        writable: Volume::Memory { max_bytes: 1 << 20 },
    };
    assert_eq!(
        failed(host.call(Op::MountRoot { plan: again })),
        FailureCode::Invalid
    );
}

#[test]
fn a_full_disk_is_told_as_one() {
    let Some(mut host) = start() else { return };
    mount_root_on(&mut host, 1 << 20);
    let file = FileIn {
        path: b"/big".to_vec(),
        mode: 0o600,
        owner: vec![],
        create_parents: false,
        append: false,
    };
    let heard = host.run(&Request::FileIn { file }, &vec![1; 4 << 20]);
    assert_eq!(
        heard.failure().code,
        FailureCode::NoSpace,
        "{}",
        heard.failure()
    );
}

#[test]
fn the_end_of_the_agent_is_the_end_of_everything_in_its_namespace() {
    let Some(mut host) = start() else { return };
    let marker = format!("{}", 100_000 + std::process::id());
    let exec = Exec {
        kill_leftovers: false,
        drain_ms: 0,
        ..sh(&format!("setsid sleep {marker} &"))
    };
    let heard = host.run(&Request::Exec { exec }, b"");
    assert_eq!(heard.end().leftovers, 1);
    host.hang_up();
    assert!(host.agent.wait().unwrap().code().is_some());
    let left = Command::new("pgrep")
        .args(["-f", &format!("sleep {marker}")])
        .output();
    if let Ok(left) = left {
        assert_eq!(String::from_utf8_lossy(&left.stdout), "");
    }
}

/// GUEST-04
#[test]
fn an_image_without_any_program_has_archives_all_the_same() {
    let Some(mut host) = start() else { return };
    let dir = host.dir.path().join("nothing");
    fs::create_dir(&dir).unwrap();
    let image = Volume::Directory { path: path(&dir) };
    let writable = Volume::Memory {
        max_bytes: 16 << 20,
    };
    let plan = MountRoot { image, writable };
    assert_eq!(host.call(Op::MountRoot { plan }), Answer::Done);
    let sources = sources(&host);
    mount_tree(&mut host, &sources, "/builds", TreeAccess::Overlay);
    let builds = Path::new("/builds");
    let tar = tar_out(builds, &["dir", "gone"], &[]);
    let out = host.run(&Request::TarOut { tar }, b"");
    assert_eq!(names(&out.content), ["dir/", "dir/file", "gone"]);
    let copy = Path::new("/copy/here");
    let heard = crate::extraction::extract(&mut host, copy, &out.content);
    assert_eq!(heard.done().entries, 3);
    let tar = tar_out(Path::new("/copy"), &["**"], &[]);
    let again = host.run(&Request::TarOut { tar }, b"");
    assert_eq!(
        names(&again.content),
        ["here/", "here/dir/", "here/dir/file", "here/gone"]
    );
}
