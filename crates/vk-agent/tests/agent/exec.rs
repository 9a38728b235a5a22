//! Commands.

use std::path::Path;
use std::time::Instant;

use vk_guest_proto::*;

use crate::host::{Host, LIMIT, Stream, exec, hear, path, send_all, sh};

fn run(host: &mut Host, exec: Exec) -> crate::host::Heard {
    host.run(&Request::Exec { exec }, b"")
}

fn end_of(script: &str) -> ExecEnd {
    run(&mut Host::start(), sh(script)).end().clone()
}

#[test]
fn stdout_and_stderr_come_apart_and_the_exit_code_is_exact() {
    let heard = run(&mut Host::start(), sh("echo out; echo err >&2; exit 3"));
    assert_eq!(
        (heard.text(), heard.err.as_slice()),
        ("out\n", b"err\n".as_slice())
    );
    assert_eq!(heard.end().status, ExitStatus::Code { code: 3 });
    assert_eq!((heard.end().cut, heard.end().leftovers), (false, 0));
    assert!(heard.end().max_rss_kib.unwrap() > 0);
}

#[test]
fn merged_output_keeps_the_order_of_both() {
    let script = "i=0; while [ $i -lt 200 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done";
    let heard = run(
        &mut Host::start(),
        Exec {
            merge_output: true,
            ..sh(script)
        },
    );
    let expected: String = (0..200).map(|i| format!("o{i}\ne{i}\n")).collect();
    assert_eq!(heard.text(), expected);
    assert!(heard.err.is_empty());
}

#[test]
fn a_signal_is_told_as_one() {
    let end = end_of("kill -KILL $$");
    assert_eq!(end.status, ExitStatus::Signal { signal: 9 });
    assert_eq!(end.status.shell_code(), 137);
    // A shell that reports its child's signal exits with a code.
    assert_eq!(
        end_of("sh -c 'kill -SEGV $$'; exit $?").status,
        ExitStatus::Code { code: 139 }
    );
}

/// Its own doing (`kill -9 -1` does it too), and no failure of the agent's.
#[test]
fn a_command_that_kills_what_watches_it_is_told_as_killed() {
    // As scripts come: what is fed is fed to a command that has begun.
    let fed = Exec {
        stdin: Stdin::Stream,
        ..exec(&["sh"])
    };
    let script = b"echo before; sleep 300 & kill -KILL $PPID; sleep 300\n";
    let heard = Host::start().run(&Request::Exec { exec: fed }, script);
    assert_eq!(heard.text(), "before\n");
    assert_eq!(heard.end().status, ExitStatus::Signal { signal: 9 });
    // Some of these are faster than the watcher is at saying that they began.
    for _ in 0..10 {
        let at_once = Exec {
            drain_ms: 0,
            ..sh("kill -KILL $PPID; sleep 300")
        };
        let end = run(&mut Host::start(), at_once).end().clone();
        assert_eq!(end.status, ExitStatus::Signal { signal: 9 });
    }
}

#[test]
fn stdin_feeds_any_bytes_and_ends() {
    let input: Vec<u8> = (0..400 * 1024_u32)
        .map(|i| i.to_le_bytes()[0] ^ i.to_le_bytes()[1])
        .collect();
    let cat = Exec {
        stdin: Stdin::Stream,
        ..exec(&["cat"])
    };
    let heard = Host::start().run(&Request::Exec { exec: cat }, &input);
    assert_eq!(heard.out, input);
}

#[test]
fn a_file_as_stdin_is_read_from_its_begin_and_in_blocks() {
    let content: Opaque = (0..400 * 1024_u32)
        .map(|i| i.to_le_bytes()[0] ^ i.to_le_bytes()[1])
        .collect::<Vec<u8>>()
        .into();
    let cat = Exec {
        stdin: Stdin::File {
            content: content.clone(),
        },
        ..exec(&["cat"])
    };
    let heard = Host::start().run(&Request::Exec { exec: cat }, b"");
    assert_eq!(heard.out, content.into_inner());
    // What a shell does not read of a pipe in blocks stays for those it starts.
    let script = b"head -c 4; exit 3\nleft".as_slice().into();
    let shell = Exec {
        stdin: Stdin::File { content: script },
        ..exec(&["bash"])
    };
    let heard = Host::start().run(&Request::Exec { exec: shell }, b"");
    assert_eq!(
        (heard.text(), heard.end().status),
        ("left", ExitStatus::Code { code: 3 })
    );
}

#[test]
fn without_stdin_a_command_reads_nothing() {
    let heard = Host::start().run(
        &Request::Exec {
            exec: exec(&["cat"]),
        },
        b"ignored",
    );
    assert_eq!(
        (heard.out.len(), heard.end().status),
        (0, ExitStatus::Code { code: 0 })
    );
}

#[test]
fn a_command_that_does_not_read_its_stdin_ends_all_the_same() {
    let exec = Exec {
        stdin: Stdin::Stream,
        ..exec(&["true"])
    };
    let heard = Host::start().run(&Request::Exec { exec }, &vec![b'x'; 4 << 20]);
    assert_eq!(heard.end().status, ExitStatus::Code { code: 0 });
}

#[test]
fn a_command_that_closed_its_stdin_lets_the_host_finish_sending() {
    let mut host = Host::start();
    let script = "exec <&-; echo ready; while ! test -e go; do sleep 0.02; done";
    let exec = Exec {
        stdin: Stdin::Stream,
        ..exec_in(&host, script)
    };
    let (_, mut stream) = host.open(&Request::Exec { exec });
    until_ready(&mut stream);
    for _ in 0..64 {
        let bytes = vec![b'x'; limits::MAX_CHUNK].into();
        stream.send(&StreamToAgent::Data { bytes });
    }
    std::fs::write(host.dir.path().join("go"), "").unwrap();
    let status = hear(&mut stream).end().status;
    assert_eq!(status, ExitStatus::Code { code: 0 });
}

/// STAGE-35
#[test]
fn the_environment_is_exactly_as_given() {
    let big = vec![b'v'; 100 * 1024];
    let env = [
        (&b"PATH"[..], &b"/usr/bin:/bin"[..]),
        (b"BYTES", b"a\xff\xfe\nb"),
        (b"BIG", &big),
        (b"EMPTY", b""),
        (b"not-a-shell-name", b"1"),
    ];
    let env: Vec<EnvVar> = env
        .iter()
        .map(|(name, value)| EnvVar {
            name: name.to_vec(),
            value: (*value).into(),
        })
        .collect();
    let expected: Vec<u8> = env
        .iter()
        .flat_map(|variable| [&variable.name[..], b"=", &variable.value[..], b"\0"].concat())
        .collect();
    let exec = Exec {
        env,
        ..exec(&["cat", "/proc/self/environ"])
    };
    assert_eq!(run(&mut Host::start(), exec).out, expected);
}

/// STAGE-35
#[test]
fn a_variable_over_the_kernels_bound_is_refused_by_name_and_passes_on_stdin() {
    let mut host = Host::start();
    let value = vec![b'v'; 400 * 1024];
    let env = vec![EnvVar {
        name: b"HUGE".to_vec(),
        value: value.clone().into(),
    }];
    let heard = run(
        &mut host,
        Exec {
            env,
            ..exec(&["true"])
        },
    );
    assert_eq!(heard.failure().code, FailureCode::TooLarge);
    assert!(
        heard.failure().message.contains("HUGE"),
        "{}",
        heard.failure()
    );
    let script = [
        b"HUGE='".as_slice(),
        &value,
        b"'\nprintf %s \"$HUGE\" | wc -c\n",
    ]
    .concat();
    let exec = Exec {
        stdin: Stdin::Stream,
        ..exec(&["sh"])
    };
    let heard = host.run(&Request::Exec { exec }, &script);
    assert_eq!(heard.text().trim(), "409600");
}

#[test]
fn what_cannot_start_says_why() {
    let mut host = Host::start();
    for (exec, code, said) in [
        (
            exec(&["no-such-program"]),
            FailureCode::NotFound,
            "no-such-program",
        ),
        (exec(&["/no/such"]), FailureCode::NotFound, "/no/such"),
        (
            exec(&["/etc/passwd"]),
            FailureCode::NotExecutable,
            "/etc/passwd",
        ),
        (
            Exec {
                cwd: b"/no/dir".to_vec(),
                ..exec(&["true"])
            },
            FailureCode::NotFound,
            "/no/dir",
        ),
        (
            Exec {
                user: b"no-one".to_vec(),
                ..exec(&["true"])
            },
            FailureCode::UnknownUser,
            "no-one",
        ),
    ] {
        let heard = run(&mut host, exec);
        assert_eq!(heard.failure().code, code, "{}", heard.failure());
        assert!(
            heard.failure().message.contains(said),
            "{}",
            heard.failure()
        );
    }
}

#[test]
fn directories_are_made_where_asked() {
    let mut host = Host::start();
    let dir = host.dir.path().join("builds/g/p");
    let beside = host.dir.path().join("builds/g/p.tmp");
    let exec = Exec {
        cwd: path(&dir),
        directories: vec![path(&dir), path(&beside), path(&beside)],
        ..exec(&["pwd"])
    };
    let heard = run(&mut host, exec);
    assert_eq!(Path::new(heard.text().trim()), dir);
    assert!(beside.is_dir());
}

#[test]
fn umask_and_signals_are_as_a_program_may_expect() {
    let exec = Exec {
        umask: 0o027,
        ..sh("umask; grep -E 'Sig(Blk|Ign)' /proc/self/status")
    };
    let heard = run(&mut Host::start(), exec);
    assert_eq!(
        heard.text(),
        "0027\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n",
        "a pipeline in a script relies on SIGPIPE"
    );
}

#[test]
fn a_command_inherits_no_descriptor_but_its_three() {
    // Its starter left one open, too.
    let mut host = Host::start_as(|agent| {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "exec 9</dev/null; exec \"$0\" \"$@\""]);
        command.arg(agent.get_program()).args(agent.get_args());
        command
    });
    let heard = run(&mut host, exec(&["ls", "/proc/self/fd"]));
    // The fourth is the directory that ls reads.
    assert_eq!(heard.text(), "0\n1\n2\n3\n");
}

#[test]
fn commands_run_side_by_side() {
    let mut host = Host::start();
    let cat = Request::Exec {
        exec: Exec {
            stdin: Stdin::Stream,
            ..exec(&["cat"])
        },
    };
    let (_, mut first) = host.open(&cat);
    let (_, mut second) = host.open(&cat);
    send_all(&second.conn, b"second");
    assert_eq!(hear(&mut second).text(), "second");
    send_all(&first.conn, b"first");
    assert_eq!(hear(&mut first).text(), "first");
}

/// Reads until the command has said a line of its own.
fn until_ready(stream: &mut Stream<StreamToHost>) {
    loop {
        if let StreamToHost::Data { bytes, .. } = stream.frame() {
            assert_eq!(&bytes[..], b"ready\n");
            return;
        }
    }
}

#[test]
fn a_signal_reaches_the_command_alone_or_its_whole_tree() {
    let mut host = Host::start();
    let script = "trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 0.05; done";
    let (number, mut stream) = host.open(&Request::Exec { exec: sh(script) });
    until_ready(&mut stream);
    let op = Op::Signal {
        stream: number,
        signal: 10,
        scope: Scope::Leader,
    };
    assert_eq!(host.call(op), Answer::Done);
    let heard = hear(&mut stream);
    assert_eq!(heard.end().status, ExitStatus::Code { code: 5 });
    let op = Op::Signal {
        stream: number,
        signal: 10,
        scope: Scope::Tree,
    };
    let Answer::Failed { failure } = host.call(op) else {
        panic!("a command that ended")
    };
    assert_eq!(failure.code, FailureCode::NotFound);
}

/// A process that left its parent, its session and its group.
pub(crate) const ESCAPE: &str =
    "setsid sh -c '(setsid sleep 1000 >/dev/null 2>&1 & echo $! >pid) & wait'";

pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// Waits until it is dead: its output ends a moment before it does.
fn until_dead(pid: &str) {
    let end = Instant::now() + LIMIT;
    while is_alive(pid) {
        assert!(Instant::now() < end, "process {pid} got no SIGKILL");
        std::thread::yield_now();
    }
}

pub(crate) fn exec_in(host: &Host, script: &str) -> Exec {
    Exec {
        cwd: path(host.dir.path()),
        ..sh(script)
    }
}

pub(crate) fn escaped_pid(host: &Host) -> String {
    let file = host.dir.path().join("pid");
    let end = Instant::now() + LIMIT;
    while Instant::now() < end {
        let pid = std::fs::read_to_string(&file).unwrap_or_default();
        if pid.ends_with('\n') {
            return pid.trim().to_owned();
        }
        std::thread::yield_now();
    }
    panic!("no daemon came up");
}

#[test]
fn a_daemon_that_escaped_every_session_is_killed_when_its_command_ends() {
    let mut host = Host::start();
    let heard = {
        let exec = exec_in(&host, ESCAPE);
        run(&mut host, exec)
    };
    let pid = escaped_pid(&host);
    assert_eq!(heard.end().status, ExitStatus::Code { code: 0 });
    assert!(!is_alive(&pid), "process {pid} outlived its command");
    assert!(heard.end().leftovers >= 1);
}

#[test]
fn a_daemon_lives_on_where_asked_and_its_output_is_cut_after_the_drain_time() {
    let mut host = Host::start();
    let script = "echo one; (sleep 1000 & echo $! >pid)";
    let exec = Exec {
        kill_leftovers: false,
        drain_ms: 50,
        ..exec_in(&host, script)
    };
    let heard = run(&mut host, exec);
    assert_eq!(
        (heard.text(), heard.end().cut, heard.end().leftovers),
        ("one\n", true, 1)
    );
    let pid = escaped_pid(&host);
    assert!(is_alive(&pid));
    assert!(
        std::process::Command::new("kill")
            .arg(&pid)
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn output_that_is_there_at_the_end_is_never_cut() {
    let exec = Exec {
        drain_ms: 0,
        ..sh("yes | head -c 60000; echo end >&2")
    };
    let heard = run(&mut Host::start(), exec);
    assert_eq!(
        (heard.out.len(), heard.err.as_slice(), heard.end().cut),
        (60000, &b"end\n"[..], false)
    );
}

#[test]
fn a_kill_asks_first_and_then_forces_the_whole_tree() {
    let mut host = Host::start();
    // The shell obeys SIGTERM; its child does not.
    let script = "trap 'echo term; exit 1' TERM
        sh -c \"trap '' TERM; echo \\$\\$ >pid; echo ready; while :; do sleep 0.05; done\" & wait";
    let exec = Exec {
        kill_leftovers: false,
        drain_ms: 20_000,
        ..exec_in(&host, script)
    };
    let (number, mut stream) = host.open(&Request::Exec { exec });
    until_ready(&mut stream);
    let pid = escaped_pid(&host);
    assert_eq!(
        host.call(Op::Kill {
            stream: number,
            grace_ms: 300
        }),
        Answer::Done
    );
    let heard = hear(&mut stream);
    assert_eq!(
        (heard.text(), heard.end().status),
        ("term\n", ExitStatus::Code { code: 1 })
    );
    // Had it lived, its output would have been cut.
    assert!(!heard.end().cut);
    until_dead(&pid);
}

#[test]
fn a_kill_without_grace_is_immediate_though_nobody_reads_the_output() {
    let mut host = Host::start();
    let (number, mut stream) = host.open(&Request::Exec {
        exec: exec(&["yes"]),
    });
    assert!(matches!(stream.frame(), StreamToHost::Started { .. }));
    assert_eq!(
        host.call(Op::Kill {
            stream: number,
            grace_ms: 0
        }),
        Answer::Done
    );
    assert_eq!(
        hear(&mut stream).end().status,
        ExitStatus::Signal { signal: 9 }
    );
}

#[test]
fn a_host_that_closes_the_stream_gives_the_command_up() {
    let mut host = Host::start();
    let exec = exec_in(&host, &format!("{ESCAPE}; echo ready; sleep 1000"));
    let (number, mut stream) = host.open(&Request::Exec { exec });
    until_ready(&mut stream);
    let pid = escaped_pid(&host);
    assert!(is_alive(&pid));
    drop(stream);
    until_dead(&pid);
    let op = Op::Signal {
        stream: number,
        signal: 15,
        scope: Scope::Leader,
    };
    assert!(matches!(host.call(op), Answer::Failed { .. }));
}

#[test]
fn nothing_is_left_to_reap() {
    let mut host = Host::start();
    for _ in 0..5 {
        let exec = exec_in(&host, ESCAPE);
        run(&mut host, exec);
    }
    let agent = host.agent.id();
    let children =
        || std::fs::read_to_string(format!("/proc/{agent}/task/{agent}/children")).unwrap();
    let end = Instant::now() + LIMIT;
    while !children().is_empty() {
        assert!(Instant::now() < end, "unreaped: {}", children());
        std::thread::yield_now();
    }
}
