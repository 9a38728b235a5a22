//! Whatever may be sent arrives as it was, however the bytes are cut.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use vk_guest_proto::limits::{MAX_CHUNK, MAX_STAT_PATHS};
use vk_guest_proto::*;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..40)
}

fn opaque() -> impl Strategy<Value = Opaque> {
    bytes().prop_map(Opaque::from)
}

fn text() -> impl Strategy<Value = String> {
    ".{0,20}"
}

fn failure() -> impl Strategy<Value = Failure> {
    use FailureCode::*;
    let codes = [
        Internal,
        Invalid,
        NotFound,
        Denied,
        NoSpace,
        TooLarge,
        UnknownUser,
        NotExecutable,
        Unsupported,
        Escapes,
        Io,
        Protocol,
        BadArchive,
    ];
    (prop::sample::select(codes.to_vec()), text())
        .prop_map(|(code, message)| Failure { code, message })
}

fn volume() -> impl Strategy<Value = Volume> {
    let format = prop_oneof![Just(DiskFormat::Erofs), Just(DiskFormat::Ext4)];
    prop_oneof![
        (bytes(), format).prop_map(|(serial, format)| Volume::Disk { serial, format }),
        bytes().prop_map(|path| Volume::Directory { path }),
        any::<u64>().prop_map(|max_bytes| Volume::Memory { max_bytes }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let scope = prop_oneof![Just(Scope::Leader), Just(Scope::Tree)];
    let access = prop_oneof![Just(TreeAccess::ReadOnly), Just(TreeAccess::Overlay)];
    prop_oneof![
        Just(Op::Ping),
        (any::<u32>(), prop::sample::select(Purpose::ALL.to_vec()))
            .prop_map(|(stream, purpose)| Op::Open { stream, purpose }),
        (any::<u32>(), any::<u8>(), scope).prop_map(|(stream, signal, scope)| Op::Signal {
            stream,
            signal,
            scope
        }),
        (any::<u32>(), any::<u32>()).prop_map(|(stream, grace_ms)| Op::Kill { stream, grace_ms }),
        (volume(), volume()).prop_map(|(image, writable)| Op::MountRoot {
            plan: MountRoot { image, writable }
        }),
        (volume(), bytes(), access).prop_map(|(volume, at, access)| Op::MountTree {
            plan: MountTree { volume, at, access }
        }),
        (vec(bytes(), 0..=MAX_STAT_PATHS), any::<bool>())
            .prop_map(|(paths, follow)| Op::Stat { paths, follow }),
        text().prop_map(|name| Op::SetHostname { name }),
        any::<u64>().prop_map(|unix_ns| Op::SetClock { unix_ns }),
        Just(Op::Usage),
        Just(Op::Sync),
        Just(Op::PowerOff),
    ]
}

fn file_info() -> impl Strategy<Value = FileInfo> {
    let kinds = [
        FileKind::Other,
        FileKind::File,
        FileKind::Directory,
        FileKind::Symlink,
    ];
    (
        prop::sample::select(kinds.to_vec()),
        any::<(u32, u32, u32, u64)>(),
        opaque(),
    )
        .prop_map(|(kind, (mode, uid, gid, size), target)| FileInfo {
            kind,
            mode,
            uid,
            gid,
            size,
            target,
        })
}

fn usage() -> impl Strategy<Value = Usage> {
    any::<[Option<u64>; 5]>().prop_map(
        |[cpu_ms, memory_kib, memory_peak_kib, disk_bytes, oom_kills]| Usage {
            cpu_ms,
            memory_kib,
            memory_peak_kib,
            disk_bytes,
            oom_kills,
        },
    )
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        Just(Answer::Done),
        failure().prop_map(|failure| Answer::Failed { failure }),
        vec(option::of(file_info()), 0..=MAX_STAT_PATHS).prop_map(|files| Answer::Stats { files }),
        usage().prop_map(|usage| Answer::Usage { usage }),
    ]
}

fn control_to_host() -> impl Strategy<Value = ControlToHost> {
    let mode = prop_oneof![Just(Mode::Vm), Just(Mode::Process)];
    let hello = (text(), mode, text(), any::<(u64, u64, u32)>()).prop_map(
        |(agent_version, mode, kernel_release, (uptime_ms, memory_kib, cpus))| {
            let hello = Hello {
                agent_version,
                mode,
                kernel_release,
                uptime_ms,
                memory_kib,
                cpus,
            };
            ControlToHost::Hello { hello }
        },
    );
    prop_oneof![
        hello,
        (any::<u32>(), answer()).prop_map(|(id, answer)| ControlToHost::Answer { id, answer }),
    ]
}

fn control_end() -> impl Strategy<Value = ControlToHost> {
    prop_oneof![
        Just(ControlToHost::Bye),
        failure().prop_map(|failure| ControlToHost::Fault { failure }),
    ]
}

fn stream_to_agent() -> impl Strategy<Value = StreamToAgent> {
    prop_oneof![
        (any::<bool>(), opaque()).prop_map(|(last, part)| StreamToAgent::Request { last, part }),
        opaque().prop_map(|bytes| StreamToAgent::Data { bytes }),
        (0..=MAX_CHUNK).prop_map(|n| StreamToAgent::Data {
            bytes: vec![7; n].into()
        }),
    ]
}

fn note() -> impl Strategy<Value = Note> {
    use NoteCode::*;
    let codes = [
        Other,
        Matched,
        NoMatch,
        EmptyPattern,
        PathOutside,
        ExcludeOutside,
        Excluded,
        Untracked,
        UntrackedUnknown,
        FileIgnored,
        InsideGit,
        EntrySkipped,
        FileChanged,
        More,
    ];
    (
        prop::sample::select(codes.to_vec()),
        bytes(),
        any::<u64>(),
        text(),
    )
        .prop_map(|(code, subject, count, text)| Note {
            code,
            subject,
            count,
            text,
        })
}

fn stream_to_host() -> impl Strategy<Value = StreamToHost> {
    let channel = prop_oneof![
        Just(Channel::Content),
        Just(Channel::Stdout),
        Just(Channel::Stderr),
    ];
    prop_oneof![
        any::<u32>().prop_map(|pid| StreamToHost::Started { pid }),
        (channel, opaque()).prop_map(|(channel, bytes)| StreamToHost::Data { channel, bytes }),
        note().prop_map(|note| StreamToHost::Note { note }),
    ]
}

fn stream_end() -> impl Strategy<Value = StreamToHost> {
    let status = prop_oneof![
        any::<u8>().prop_map(|code| ExitStatus::Code { code }),
        any::<u8>().prop_map(|signal| ExitStatus::Signal { signal }),
    ];
    let exited = (status, any::<(bool, u32, u64, u64, Option<u64>)>()).prop_map(
        |(status, (cut, leftovers, oom_kills, cpu_ms, max_rss_kib))| {
            let end = ExecEnd {
                status,
                cut,
                leftovers,
                oom_kills,
                cpu_ms,
                max_rss_kib,
            };
            StreamToHost::Exited { end }
        },
    );
    prop_oneof![
        exited,
        any::<(u64, u64)>().prop_map(|(entries, bytes)| StreamToHost::Done {
            end: TransferEnd { entries, bytes }
        }),
        failure().prop_map(|failure| StreamToHost::Failed { failure }),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let variable = (bytes(), opaque()).prop_map(|(name, value)| EnvVar { name, value });
    let large = vec(any::<u8>(), 0..300_000).prop_map(Opaque::from);
    let argv = vec(prop_oneof![4 => opaque(), 1 => large], 0..4);
    let exec = (
        argv,
        vec(variable, 0..8),
        bytes(),
        bytes(),
        any::<(u32, u32, [bool; 4])>(),
    )
        .prop_map(|(argv, env, cwd, user, (umask, drain_ms, flags))| {
            let [create_cwd, stdin, merge_output, kill_leftovers] = flags;
            let exec = Exec {
                argv,
                env,
                cwd,
                create_cwd,
                user,
                umask,
                stdin,
                merge_output,
                kill_leftovers,
                drain_ms,
            };
            Request::Exec { exec }
        });
    let patterns = || vec(bytes(), 0..5);
    prop_oneof![
        exec,
        (bytes(), bytes(), any::<(u64, u64)>()).prop_map(
            |(root, owner, (max_entries, max_bytes))| Request::TarIn {
                tar: TarIn {
                    root,
                    owner,
                    max_entries,
                    max_bytes
                }
            }
        ),
        (bytes(), patterns(), patterns(), any::<(bool, bool)>()).prop_map(
            |(root, paths, exclude, (untracked, list_only))| Request::TarOut {
                tar: TarOut {
                    root,
                    paths,
                    exclude,
                    untracked,
                    list_only
                }
            }
        ),
        (bytes(), any::<u32>(), bytes(), any::<(bool, bool)>()).prop_map(
            |(path, mode, owner, (create_parents, append))| Request::FileIn {
                file: FileIn {
                    path,
                    mode,
                    owner,
                    create_parents,
                    append
                }
            }
        ),
        (bytes(), any::<u64>()).prop_map(|(path, max_bytes)| Request::FileOut {
            file: FileOut { path, max_bytes }
        }),
    ]
}

/// Sends frames as bytes in pieces of `step`, and takes them out again.
fn arrives<F>(frames: &[F], step: usize) -> Result<(), TestCaseError>
where
    F: Frame + std::fmt::Debug + PartialEq,
{
    let mut wire = Vec::new();
    for frame in frames {
        encode(frame, &mut wire).map_err(|error| TestCaseError::fail(error.to_string()))?;
    }
    let mut decoder = Decoder::<F>::new();
    let mut got = Vec::new();
    for mut piece in wire.chunks(step) {
        while !piece.is_empty() {
            let took = decoder.feed(piece);
            piece = piece.get(took..).unwrap_or_default();
            while let Some(frame) = decoder
                .next()
                .map_err(|error| TestCaseError::fail(error.to_string()))?
            {
                got.push(frame);
            }
        }
    }
    prop_assert_eq!(got.as_slice(), frames);
    prop_assert_eq!(
        decoder.end().is_ok(),
        frames.last().is_some_and(Frame::is_final)
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn control_frames_arrive(
        ops in vec((any::<u32>(), op()), 0..8),
        answers in vec(control_to_host(), 0..8),
        end in control_end(),
        step in 1..5000_usize,
    ) {
        let requests: Vec<_> =
            ops.into_iter().map(|(id, op)| ControlToAgent::Request { id, op }).collect();
        arrives(&requests, step)?;
        arrives(&[answers, vec![end]].concat(), step)?;
    }

    #[test]
    fn stream_frames_arrive(
        sent in vec(stream_to_agent(), 0..8),
        heard in vec(stream_to_host(), 0..8),
        end in stream_end(),
        step in 1..5000_usize,
    ) {
        arrives(&[sent, vec![StreamToAgent::End]].concat(), step)?;
        arrives(&[heard, vec![end]].concat(), step)?;
    }

    #[test]
    fn requests_arrive(request in request()) {
        let frames = request.to_frames().map_err(|e| TestCaseError::fail(e.to_string()))?;
        let mut assembly = Assembly::new();
        let mut got = None;
        for frame in &frames {
            prop_assert!(got.is_none());
            if let StreamToAgent::Request { last, part } = frame {
                got = assembly
                    .push(*last, part)
                    .map_err(|e| TestCaseError::fail(e.to_string()))?;
            }
        }
        prop_assert_eq!(got, Some(request));
    }
}
