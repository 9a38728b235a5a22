//! The control stream.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;

use vk_guest_proto::*;

use crate::exec::{ESCAPE, escaped_pid, exec_in, is_alive};
use crate::host::{Host, exec, path};

#[test]
fn the_agent_says_what_it_is() {
    let host = Host::start();
    assert_eq!(host.hello.mode, Mode::Process);
    assert!(host.hello.memory_kib > 0 && host.hello.cpus > 0 && host.hello.uptime_ms > 0);
    assert_eq!(host.hello.agent_version, env!("CARGO_PKG_VERSION"));
    assert!(!host.hello.kernel_release.is_empty());
    assert!(
        !host.dir.path().join("secret").exists(),
        "the secret is removed once it is read"
    );
}

#[test]
fn requests_are_answered_and_the_end_is_a_frame() {
    let mut host = Host::start();
    assert_eq!(host.call(Op::Ping), Answer::Done);
    assert_eq!(host.call(Op::Sync), Answer::Done);
    assert!(matches!(host.call(Op::Usage), Answer::Usage { .. }));
    assert_eq!(host.call(Op::PowerOff), Answer::Done);
    assert_eq!(host.control.next(), Ok(Some(ControlToHost::Bye)));
    host.hang_up();
    assert!(host.agent.wait().unwrap().success());
}

fn set_up(hostname: Option<&str>, unix_ns: Option<u64>) -> Op {
    let memory = |max_bytes| Volume::Memory { max_bytes };
    let plan = SetUp {
        hostname: hostname.map(str::to_owned),
        unix_ns,
        root: MountRoot {
            image: memory(1 << 20),
            writable: memory(1 << 20),
        },
        open: Vec::new(),
        look: Vec::new(),
        read: Vec::new(),
    };
    Op::SetUp { plan }
}

#[test]
fn what_a_process_cannot_do_is_refused() {
    let mut host = Host::start();
    let serial = b"x".to_vec();
    let disk = Volume::Disk {
        serial,
        format: DiskFormat::Erofs,
    };
    let tree = MountTree {
        volume: disk,
        at: b"/x".to_vec(),
        access: TreeAccess::ReadOnly,
    };
    for (op, code) in [
        (set_up(Some("x"), None), FailureCode::Unsupported),
        (set_up(None, Some(1)), FailureCode::Unsupported),
        (Op::MountTree { plan: tree }, FailureCode::Invalid),
        (
            Op::Kill {
                stream: 77,
                grace_ms: 0,
            },
            FailureCode::NotFound,
        ),
        (
            Op::Signal {
                stream: 77,
                signal: 15,
                scope: Scope::Tree,
            },
            FailureCode::NotFound,
        ),
        (
            Op::Signal {
                stream: 77,
                signal: 0,
                scope: Scope::Tree,
            },
            FailureCode::Invalid,
        ),
        (
            Op::Open {
                stream: 0,
                purpose: Purpose::Exec,
            },
            FailureCode::Invalid,
        ),
        (
            Op::Open {
                stream: 5,
                purpose: Purpose::Control,
            },
            FailureCode::Invalid,
        ),
    ] {
        let shown = format!("{op:?}");
        let Answer::Failed { failure } = host.call(op) else {
            panic!("{shown} was done")
        };
        assert_eq!(failure.code, code, "{shown}: {failure}");
    }
}

#[test]
fn paths_are_looked_at_in_one_go() {
    let mut host = Host::start();
    let dir = host.dir.path().to_owned();
    std::fs::write(dir.join("file"), "four").unwrap();
    std::os::unix::fs::symlink("file", dir.join("link")).unwrap();
    std::os::unix::fs::symlink("nowhere", dir.join("dangling")).unwrap();
    let paths: Vec<Vec<u8>> = ["file", "link", "dangling", ".", "none", "file/x"]
        .map(|name| path(&dir.join(name)))
        .to_vec();
    let mut ask = |follow| match host.call(Op::Stat {
        paths: paths.clone(),
        follow,
    }) {
        Answer::Stats { files } => files,
        other => panic!("{other:?}"),
    };
    let kinds = |files: &[Option<FileInfo>]| {
        files
            .iter()
            .map(|file| file.as_ref().map(|file| file.kind))
            .collect::<Vec<_>>()
    };
    let (file, directory) = (Some(FileKind::File), Some(FileKind::Directory));
    assert_eq!(kinds(&ask(true)), [file, file, None, directory, None, None]);
    let files = ask(false);
    let link = Some(FileKind::Symlink);
    assert_eq!(kinds(&files), [file, link, link, directory, None, None]);
    assert_eq!(files[0].as_ref().unwrap().size, 4);
    assert_eq!(&files[1].as_ref().unwrap().target[..], b"file");
}

#[test]
fn a_host_that_goes_takes_the_agent_and_its_commands_along() {
    let mut host = Host::start();
    let request = Request::Exec {
        exec: exec(&["sleep", "1000"]),
    };
    let (_, mut stream) = host.open(&request);
    let StreamToHost::Started { pid } = stream.frame() else {
        panic!("not started")
    };
    let daemon = Exec {
        kill_leftovers: false,
        ..exec_in(&host, ESCAPE)
    };
    host.run(&Request::Exec { exec: daemon }, b"").end();
    let daemon = escaped_pid(&host);
    assert!(is_alive(&daemon), "it may outlive its command");
    host.hang_up();
    assert!(host.agent.wait().unwrap().success());
    assert!(!is_alive(&pid.to_string()) && !is_alive(&daemon));
}

#[test]
fn a_frame_that_cannot_be_read_ends_the_agent() {
    let mut host = Host::start();
    use std::io::Write;
    host.control.conn.write_all(&[0xff; 8]).unwrap();
    let status = host.agent.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(0), None));
    let _ = host.control.conn.read(&mut [0]);
}

#[test]
fn a_stream_for_another_purpose_than_its_request_is_refused() {
    let mut host = Host::start();
    let (_, mut stream) = host.open_bare(Purpose::TarOut);
    for frame in (Request::Exec {
        exec: exec(&["true"]),
    })
    .to_frames()
    .unwrap()
    {
        stream.send(&frame);
    }
    assert_eq!(
        crate::host::hear(&mut stream).failure().code,
        FailureCode::Protocol
    );
    let (_, mut stream) = host.open_bare(Purpose::Exec);
    stream.send(&StreamToAgent::End);
    assert_eq!(
        crate::host::hear(&mut stream).failure().code,
        FailureCode::Protocol
    );
}

#[test]
fn streams_are_bounded() {
    let mut host = Host::start();
    let open: Vec<_> = (0..64).map(|_| host.open_bare(Purpose::Exec)).collect();
    let Answer::Failed { failure } = host.call(Op::Open {
        stream: 999,
        purpose: Purpose::Exec,
    }) else {
        panic!("a 65th stream")
    };
    assert_eq!(failure.code, FailureCode::TooLarge);
    drop(open);
}
