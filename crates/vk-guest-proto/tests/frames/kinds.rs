//! Every kind of frame, with anything in it.

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

fn set_up() -> impl Strategy<Value = SetUp> {
    let paths = || vec(bytes(), 0..4);
    (
        option::of(text()),
        any::<Option<u64>>(),
        (volume(), volume()),
        (paths(), paths(), bytes()),
    )
        .prop_map(
            |(hostname, unix_ns, (image, writable), (open, look, read))| SetUp {
                hostname,
                unix_ns,
                root: MountRoot { image, writable },
                open,
                look,
                read,
            },
        )
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
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
        set_up().prop_map(|plan| Op::SetUp { plan }),
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
        (
            vec(option::of(file_info()), 0..=MAX_STAT_PATHS),
            option::of(bytes())
        )
            .prop_map(|(files, content)| Answer::SetUp { files, content }),
    ]
}

pub(crate) fn control_to_host() -> impl Strategy<Value = ControlToHost> {
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

pub(crate) fn control_end() -> impl Strategy<Value = ControlToHost> {
    prop_oneof![
        Just(ControlToHost::Bye),
        failure().prop_map(|failure| ControlToHost::Fault { failure }),
    ]
}

pub(crate) fn stream_to_agent() -> impl Strategy<Value = StreamToAgent> {
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

pub(crate) fn stream_to_host() -> impl Strategy<Value = StreamToHost> {
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

pub(crate) fn stream_end() -> impl Strategy<Value = StreamToHost> {
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

fn stdin() -> impl Strategy<Value = Stdin> {
    prop_oneof![
        Just(Stdin::Null),
        Just(Stdin::Stream),
        opaque().prop_map(|content| Stdin::File { content }),
    ]
}

pub(crate) fn request() -> impl Strategy<Value = Request> {
    let variable = (bytes(), opaque()).prop_map(|(name, value)| EnvVar { name, value });
    // Longer than some frames; byte by byte, a million of them would take a day.
    let large =
        (bytes(), 0..8000_usize).prop_map(|(bytes, times)| Opaque::from(bytes.repeat(times)));
    let argv = vec(prop_oneof![40 => opaque(), 1 => large], 0..4);
    let exec = (
        argv,
        vec(variable, 0..8),
        (bytes(), vec(bytes(), 0..4)),
        (bytes(), stdin()),
        any::<(u32, u32, [bool; 2])>(),
    )
        .prop_map(
            |(argv, env, (cwd, directories), (user, stdin), (umask, drain_ms, flags))| {
                let [merge_output, kill_leftovers] = flags;
                let exec = Exec {
                    argv,
                    env,
                    cwd,
                    directories,
                    user,
                    umask,
                    stdin,
                    merge_output,
                    kill_leftovers,
                    drain_ms,
                };
                Request::Exec { exec }
            },
        );
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
