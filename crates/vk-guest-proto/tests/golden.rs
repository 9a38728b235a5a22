//! Every frame's bytes, pinned. A change here is a change of the protocol.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests fail loudly"
)]

use std::collections::BTreeSet;
use std::fmt::Write as _;

use vk_guest_proto::*;

fn bytes(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

fn opaque(text: &str) -> Opaque {
    Opaque::from(text.as_bytes())
}

fn request(op: Op) -> ControlToAgent {
    ControlToAgent::Request { id: 7, op }
}

fn control_to_agent() -> Vec<(&'static str, ControlToAgent)> {
    let disk = |serial: &str, format| Volume::Disk {
        serial: bytes(serial),
        format,
    };
    vec![
        ("ping", request(Op::Ping)),
        (
            "open",
            request(Op::Open {
                stream: 3,
                purpose: Purpose::TarOut,
            }),
        ),
        (
            "signal",
            request(Op::Signal {
                stream: 3,
                signal: 15,
                scope: Scope::Tree,
            }),
        ),
        (
            "kill",
            request(Op::Kill {
                stream: 3,
                grace_ms: 10_000,
            }),
        ),
        (
            "mount_root",
            request(Op::MountRoot {
                plan: MountRoot {
                    image: disk("root", DiskFormat::Erofs),
                    writable: disk("data", DiskFormat::Ext4),
                },
            }),
        ),
        (
            "mount_root_directories",
            request(Op::MountRoot {
                plan: MountRoot {
                    image: Volume::Directory {
                        path: bytes("/img"),
                    },
                    writable: Volume::Memory { max_bytes: 1 << 30 },
                },
            }),
        ),
        (
            "mount_tree",
            request(Op::MountTree {
                plan: MountTree {
                    volume: disk("src", DiskFormat::Erofs),
                    at: bytes("/builds/g/p"),
                    access: TreeAccess::Overlay,
                },
            }),
        ),
        (
            "stat",
            request(Op::Stat {
                paths: vec![bytes("/bin/bash"), bytes("/bin/sh")],
                follow: true,
            }),
        ),
        (
            "set_up",
            request(Op::SetUp {
                plan: SetUp {
                    hostname: Some("runner".into()),
                    unix_ns: Some(1_800_000_000_000_000_000),
                    root: MountRoot {
                        image: disk("root", DiskFormat::Erofs),
                        writable: disk("data", DiskFormat::Ext4),
                    },
                    open: vec![bytes("/builds"), bytes("/builds/g")],
                    look: vec![bytes("/bin/bash")],
                    read: bytes("/etc/passwd"),
                },
            }),
        ),
        (
            "set_up_process",
            request(Op::SetUp {
                plan: SetUp {
                    hostname: None,
                    unix_ns: None,
                    root: MountRoot {
                        image: Volume::Directory {
                            path: bytes("/img"),
                        },
                        writable: Volume::Memory { max_bytes: 1 << 30 },
                    },
                    open: vec![],
                    look: vec![],
                    read: vec![],
                },
            }),
        ),
        ("usage", request(Op::Usage)),
        ("sync", request(Op::Sync)),
        ("power_off", request(Op::PowerOff)),
    ]
}

fn control_to_host() -> Vec<(&'static str, ControlToHost)> {
    let failure = || Failure::new(FailureCode::NoSpace, "no space left");
    let answer = |answer| ControlToHost::Answer { id: 7, answer };
    let info = FileInfo {
        kind: FileKind::Symlink,
        mode: 0o120_777,
        uid: 1,
        gid: 2,
        size: 4,
        target: opaque("dash"),
    };
    let usage = Usage {
        cpu_ms: Some(1500),
        memory_kib: Some(2),
        memory_peak_kib: Some(3),
        disk_bytes: Some(4),
        oom_kills: None,
    };
    let hello = Hello {
        agent_version: "0.1.0".into(),
        mode: Mode::Process,
        kernel_release: "6.1.0".into(),
        uptime_ms: 870,
        memory_kib: 524_288,
        cpus: 2,
    };
    vec![
        ("hello", ControlToHost::Hello { hello }),
        ("done", answer(Answer::Done)),
        ("failed", answer(Answer::Failed { failure: failure() })),
        (
            "stats",
            answer(Answer::Stats {
                files: vec![None, Some(info.clone())],
            }),
        ),
        (
            "set_up",
            answer(Answer::SetUp {
                files: vec![None, Some(info)],
                content: Some(bytes("root:")),
            }),
        ),
        (
            "set_up_unread",
            answer(Answer::SetUp {
                files: vec![],
                content: None,
            }),
        ),
        ("usage", answer(Answer::Usage { usage })),
        ("fault", ControlToHost::Fault { failure: failure() }),
        ("bye", ControlToHost::Bye),
    ]
}

fn stream_to_agent() -> Vec<(&'static str, StreamToAgent)> {
    vec![
        (
            "request",
            StreamToAgent::Request {
                last: true,
                part: opaque("part"),
            },
        ),
        (
            "data",
            StreamToAgent::Data {
                bytes: Opaque::from(vec![0, 0xff, b'x']),
            },
        ),
        ("end", StreamToAgent::End),
    ]
}

fn stream_to_host() -> Vec<(&'static str, StreamToHost)> {
    let note = Note {
        code: NoteCode::Matched,
        subject: bytes("out/**"),
        count: 3,
        text: String::new(),
    };
    let exited = |status| StreamToHost::Exited {
        end: ExecEnd {
            status,
            cut: false,
            leftovers: 1,
            oom_kills: 2,
            cpu_ms: 30,
            max_rss_kib: Some(4096),
        },
    };
    vec![
        ("started", StreamToHost::Started { pid: 42 }),
        (
            "stdout",
            StreamToHost::Data {
                channel: Channel::Stdout,
                bytes: opaque("hi\n"),
            },
        ),
        (
            "stderr",
            StreamToHost::Data {
                channel: Channel::Stderr,
                bytes: opaque("oh\n"),
            },
        ),
        (
            "content",
            StreamToHost::Data {
                channel: Channel::Content,
                bytes: opaque("tar"),
            },
        ),
        ("note", StreamToHost::Note { note }),
        ("exited", exited(ExitStatus::Code { code: 3 })),
        ("signalled", exited(ExitStatus::Signal { signal: 9 })),
        (
            "done",
            StreamToHost::Done {
                end: TransferEnd {
                    entries: 5,
                    bytes: 6,
                },
            },
        ),
        (
            "failed",
            StreamToHost::Failed {
                failure: Failure::new(FailureCode::NotFound, "no such file"),
            },
        ),
    ]
}

fn requests() -> Vec<(&'static str, Request)> {
    let exec = Exec {
        argv: vec![opaque("bash"), opaque("-l")],
        env: vec![EnvVar {
            name: bytes("CI"),
            value: Opaque::from(vec![b'a', 0xfe]),
        }],
        cwd: bytes("/builds/g/p"),
        directories: vec![bytes("/builds/g/p"), bytes("/builds/g/p.tmp")],
        user: bytes("app:1000"),
        umask: 0o22,
        stdin: Stdin::Stream,
        merge_output: false,
        kill_leftovers: true,
        drain_ms: 2000,
    };
    let of_file = Exec {
        stdin: Stdin::File {
            content: opaque("exit 3\n"),
        },
        ..exec.clone()
    };
    let of_nothing = Exec {
        stdin: Stdin::Null,
        ..exec.clone()
    };
    vec![
        ("exec", Request::Exec { exec }),
        ("exec_file", Request::Exec { exec: of_file }),
        ("exec_null", Request::Exec { exec: of_nothing }),
        (
            "tar_in",
            Request::TarIn {
                tar: TarIn {
                    root: bytes("/builds/g/p"),
                    owner: bytes("0:0"),
                    max_entries: 10,
                    max_bytes: 11,
                },
            },
        ),
        (
            "tar_out",
            Request::TarOut {
                tar: TarOut {
                    root: bytes("/builds/g/p"),
                    paths: vec![bytes("out/**")],
                    exclude: vec![bytes("**/*.o")],
                    untracked: true,
                    list_only: false,
                },
            },
        ),
        (
            "file_in",
            Request::FileIn {
                file: FileIn {
                    path: bytes("/etc/hosts"),
                    mode: 0o644,
                    owner: vec![],
                    create_parents: true,
                    append: false,
                },
            },
        ),
        (
            "file_out",
            Request::FileOut {
                file: FileOut {
                    path: bytes("/etc/passwd"),
                    max_bytes: 65_536,
                },
            },
        ),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
        .collect()
}

/// The golden file that these frames make: a line each, name and bytes.
fn rendered<F: Frame>(frames: &[(&str, F)]) -> String {
    frames.iter().fold(String::new(), |mut out, (name, frame)| {
        let mut wire = Vec::new();
        encode(frame, &mut wire).unwrap();
        let _ = writeln!(out, "{name} {}", hex(&wire));
        out
    })
}

/// The bytes that a byte at `at` may have, by asking the decoder; `make` builds the frame's body.
fn known<F: Frame + std::fmt::Debug>(make: impl Fn(u8) -> Vec<u8>) -> BTreeSet<u8> {
    (0..=255)
        .filter(|kind| {
            let body = make(*kind);
            let mut wire = u32::try_from(body.len()).unwrap().to_le_bytes().to_vec();
            wire.extend(body);
            let mut decoder = Decoder::<F>::new();
            decoder.feed(&wire);
            !matches!(decoder.next(), Err(DecodeError::Unknown { value, .. }) if value == *kind)
        })
        .collect()
}

fn check<F: Frame + std::fmt::Debug + PartialEq>(frames: &[(&str, F)], golden: &str) {
    assert_eq!(rendered(frames), golden, "the bytes on the wire changed");
    for (line, (name, frame)) in golden.lines().zip(frames) {
        let wire = unhex(line.split_once(' ').unwrap().1);
        let mut decoder = Decoder::<F>::new();
        assert_eq!(decoder.feed(&wire), wire.len());
        assert_eq!(decoder.next().unwrap().as_ref(), Some(frame), "{name}");
        assert_eq!(decoder.next(), Ok(None), "{name}");
        assert_eq!(decoder.end().is_ok(), frame.is_final(), "{name}");
    }
    let shown: BTreeSet<u8> = golden
        .lines()
        .map(|line| unhex(line.split_once(' ').unwrap().1)[4])
        .collect();
    assert_eq!(
        shown,
        known::<F>(|kind| vec![kind]),
        "a kind without a golden line"
    );
}

#[test]
fn control_to_agent_is_pinned() {
    let golden = include_str!("golden/control_to_agent.txt");
    check(&control_to_agent(), golden);
    let ops: BTreeSet<u8> = golden
        .lines()
        .map(|line| unhex(line.split_once(' ').unwrap().1)[9])
        .collect();
    let known = known::<ControlToAgent>(|op| vec![0, 7, 0, 0, 0, op]);
    assert_eq!(ops, known, "an operation without a golden line");
}

#[test]
fn control_to_host_is_pinned() {
    check(
        &control_to_host(),
        include_str!("golden/control_to_host.txt"),
    );
}

#[test]
fn stream_to_agent_is_pinned() {
    check(
        &stream_to_agent(),
        include_str!("golden/stream_to_agent.txt"),
    );
}

#[test]
fn stream_to_host_is_pinned() {
    check(&stream_to_host(), include_str!("golden/stream_to_host.txt"));
}

#[test]
fn requests_are_pinned() {
    let mut text = String::new();
    for (name, request) in requests() {
        let frames = request.to_frames().unwrap();
        let [StreamToAgent::Request { last: true, part }] = frames.as_slice() else {
            panic!("{name}: {frames:?}");
        };
        let _ = writeln!(text, "{name} {}", hex(part));
        assert_eq!(
            Assembly::new().push(true, part),
            Ok(Some(request)),
            "{name}"
        );
    }
    assert_eq!(
        text,
        include_str!("golden/request.txt"),
        "the bytes on the wire changed"
    );
}

#[test]
fn the_opening_is_pinned() {
    let secret = Secret::take(&mut std::array::from_fn(|i| u8::try_from(i).unwrap()));
    let opening = Opening::new(secret, Purpose::Exec, 0x0102_0304);
    let text = format!("opening {}\n", hex(&opening.encode()));
    assert_eq!(text, include_str!("golden/opening.txt"));
}
