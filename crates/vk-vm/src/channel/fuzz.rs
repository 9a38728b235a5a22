//! An agent that has turned against its host: any frames in any order, bent ones too, on any stream, or
//! nothing at all.

use std::cell::Cell;
use std::sync::{Arc, Once};
use std::time::Duration;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use vk_fuzz::inputs;
use vk_guest_proto::{
    Answer, Channel, ControlToAgent, ControlToHost, Decoder, Exec, ExecEnd, ExitStatus, Failure,
    FailureCode, FileIn, FileInfo, FileKind, FileOut, Frame, Hello, Mode, MountRoot, Note,
    NoteCode, Op, Opaque, Opening, Purpose, SECRET_LEN, Secret, SetUp, Stdin, StreamToHost, TarIn,
    TarOut, TransferEnd, Usage, Volume, encode,
};

use super::control::connect;
use super::error::GuestError;
use super::guest::Guest;
use super::listener::Expected;
use crate::death::Lifeline;

/// Everything that is asked here has an end of its own long before.
const PATIENCE: Duration = Duration::from_secs(6 * 3600);
/// What a command may say.
const OUTPUT_MAX: usize = 200;

/// What the agent does where an honest one would answer.
#[derive(Clone, Debug)]
enum Reply {
    /// What an honest one would say.
    Honest,
    Answer(Answer),
    /// An answer to something that nobody asked.
    Astray(u32, Answer),
    Frame(ControlToHost),
    Bytes(Vec<u8>),
    /// No answer.
    Silence,
    Close,
}

/// What the agent does with a stream that it was asked to dial.
#[derive(Clone, Debug)]
struct Dial {
    /// Another number, another purpose, another secret, and how often.
    number: u32,
    purpose: Option<Purpose>,
    is_proven: bool,
    times: usize,
    says: Vec<Said>,
    /// Whether it closes then, or falls silent.
    closes: bool,
}

#[derive(Clone, Debug)]
enum Said {
    Frame(StreamToHost),
    /// The same, a byte of it changed.
    Bent(StreamToHost, usize, u8),
    Bytes(Vec<u8>),
    /// Many notes, or much output.
    Flood(StreamToHost, usize),
}

/// What the host wants.
#[derive(Clone, Copy, Debug)]
enum Want {
    Ping,
    Stat,
    SetUp,
    Usage,
    Run,
    TarIn,
    TarOut,
    Write,
    Read,
    PowerOff,
}

fn failure() -> impl Strategy<Value = Failure> {
    ".{0,9}".prop_map(|message| Failure {
        code: FailureCode::Internal,
        message,
    })
}

fn info() -> FileInfo {
    FileInfo {
        kind: FileKind::Other,
        mode: u32::MAX,
        uid: 0,
        gid: 0,
        size: u64::MAX,
        target: Opaque::from(b"/../x".to_vec()),
    }
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        Just(Answer::Done),
        (0..5_usize).prop_map(|count| Answer::Stats {
            files: vec![Some(info()); count]
        }),
        (0..5_usize).prop_map(|count| Answer::SetUp {
            files: vec![None; count],
            content: None,
        }),
        Just(Answer::Usage {
            usage: Usage {
                cpu_ms: Some(u64::MAX),
                memory_kib: None,
                memory_peak_kib: Some(u64::MAX),
                disk_bytes: Some(u64::MAX),
                oom_kills: None,
            },
        }),
        failure().prop_map(|failure| Answer::Failed { failure }),
    ]
}

fn hello() -> ControlToHost {
    ControlToHost::Hello {
        hello: Hello {
            agent_version: "0".to_owned(),
            mode: Mode::Vm,
            kernel_release: String::new(),
            uptime_ms: u64::MAX,
            memory_kib: u64::MAX,
            cpus: u32::MAX,
        },
    }
}

fn control() -> impl Strategy<Value = ControlToHost> {
    prop_oneof![
        Just(hello()),
        Just(ControlToHost::Bye),
        failure().prop_map(|failure| ControlToHost::Fault { failure }),
        (0..4_u32, answer()).prop_map(|(id, answer)| ControlToHost::Answer { id, answer }),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        8 => Just(Reply::Honest),
        3 => answer().prop_map(Reply::Answer),
        2 => (any::<u32>(), answer()).prop_map(|(id, answer)| Reply::Astray(id, answer)),
        1 => control().prop_map(Reply::Frame),
        1 => prop::collection::vec(any::<u8>(), 1..20).prop_map(Reply::Bytes),
        1 => Just(Reply::Silence),
        1 => Just(Reply::Close),
    ]
}

fn frame() -> impl Strategy<Value = StreamToHost> {
    let channel = prop::sample::select(vec![Channel::Content, Channel::Stdout, Channel::Stderr]);
    let bytes = prop::collection::vec(any::<u8>(), 0..90);
    let status = prop_oneof![
        any::<u8>().prop_map(|code| ExitStatus::Code { code }),
        any::<u8>().prop_map(|signal| ExitStatus::Signal { signal }),
    ];
    prop_oneof![
        2 => any::<u32>().prop_map(|pid| StreamToHost::Started { pid }),
        4 => (channel, bytes).prop_map(|(channel, bytes)| StreamToHost::Data {
            channel,
            bytes: Opaque::from(bytes),
        }),
        1 => any::<u64>().prop_map(|count| StreamToHost::Note {
            note: Note { code: NoteCode::Other, subject: b"../\n".to_vec(), count, text: String::new() },
        }),
        2 => (any::<u64>(), any::<u64>()).prop_map(|(entries, bytes)| StreamToHost::Done {
            end: TransferEnd { entries, bytes },
        }),
        2 => status.prop_map(|status| StreamToHost::Exited {
            end: ExecEnd {
                status,
                cut: true,
                leftovers: u32::MAX,
                oom_kills: u64::MAX,
                cpu_ms: u64::MAX,
                max_rss_kib: Some(u64::MAX),
            },
        }),
        1 => failure().prop_map(|failure| StreamToHost::Failed { failure }),
    ]
}

fn said() -> impl Strategy<Value = Said> {
    prop_oneof![
        12 => frame().prop_map(Said::Frame),
        2 => (frame(), 0..40_usize, any::<u8>()).prop_map(|(frame, at, to)| Said::Bent(frame, at, to)),
        1 => prop::collection::vec(any::<u8>(), 1..20).prop_map(Said::Bytes),
        1 => (frame(), 1..60_usize).prop_map(|(frame, times)| Said::Flood(frame, times)),
    ]
}

fn dial() -> impl Strategy<Value = Dial> {
    let other = prop::option::weighted(0.1, prop::sample::select(Purpose::ALL.to_vec()));
    let number = prop_oneof![8 => Just(0_u32), 1 => any::<u32>()];
    (
        (number, other, prop::bool::weighted(0.95)),
        prop_oneof![8 => Just(1_usize), 1 => 0..3_usize],
        prop::collection::vec(said(), 0..6),
        prop::bool::weighted(0.7),
    )
        .prop_map(|((number, purpose, is_proven), times, says, closes)| Dial {
            number,
            purpose,
            is_proven,
            times,
            says,
            closes,
        })
}

fn want() -> impl Strategy<Value = Want> {
    prop::sample::select(vec![
        Want::Ping,
        Want::Stat,
        Want::SetUp,
        Want::Usage,
        Want::Run,
        Want::Run,
        Want::TarIn,
        Want::TarOut,
        Want::TarOut,
        Want::Write,
        Want::Read,
        Want::PowerOff,
    ])
}

fn bytes_of(frame: &impl Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(frame, &mut bytes).unwrap();
    bytes
}

fn secret(is_right: bool) -> Secret {
    Secret::take(&mut [if is_right { 7 } else { 8 }; SECRET_LEN])
}

/// Dials, and says what it says; what the host says on it is read and thrown away.
async fn dialled(expected: Arc<Expected>, stream: u32, asked: Purpose, dial: Dial) {
    let mut open = Vec::new();
    for _ in 0..dial.times {
        let (mut ours, theirs) = duplex(64 << 10);
        let expected = Arc::clone(&expected);
        let opening = Opening::new(
            secret(dial.is_proven),
            dial.purpose.unwrap_or(asked),
            stream ^ dial.number,
        );
        let opens = tokio::spawn(async move { expected.open(Box::new(theirs)).await });
        let _ = ours.write_all(&opening.encode()).await;
        let _ = opens.await;
        open.push(ours);
    }
    for ours in &mut open {
        for said in &dial.says {
            let bytes = match said {
                Said::Frame(frame) => bytes_of(frame),
                Said::Flood(frame, times) => bytes_of(frame).repeat(*times),
                Said::Bytes(bytes) => bytes.clone(),
                Said::Bent(frame, at, to) => {
                    let mut bytes = bytes_of(frame);
                    bytes.get_mut(*at).into_iter().for_each(|byte| *byte = *to);
                    bytes
                }
            };
            let _ = ours.write_all(&bytes).await;
        }
    }
    if dial.closes {
        return;
    }
    // The rest is read, so that nobody waits for room, and never answered.
    for mut ours in open {
        let mut buffer = [0; 4096];
        while ours.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
    }
}

/// The agent's side of the control stream.
async fn agent(
    mut stream: DuplexStream,
    expected: Arc<Expected>,
    greeting: Reply,
    replies: Vec<Reply>,
    dials: Vec<Dial>,
) {
    let (mut replies, mut dials) = (replies.into_iter(), dials.into_iter());
    let mut streams = JoinSet::new();
    let mut decoder = Decoder::<ControlToAgent>::new();
    let mut id = 0;
    let mut reply = match greeting {
        Reply::Honest | Reply::Answer(_) | Reply::Astray(..) => Reply::Frame(hello()),
        other => other,
    };
    let mut honest = Answer::Done;
    loop {
        let said = match reply {
            Reply::Honest => bytes_of(&ControlToHost::Answer { id, answer: honest }),
            Reply::Answer(answer) => bytes_of(&ControlToHost::Answer { id, answer }),
            Reply::Astray(id, answer) => bytes_of(&ControlToHost::Answer { id, answer }),
            Reply::Frame(frame) => bytes_of(&frame),
            Reply::Bytes(bytes) => bytes,
            Reply::Silence => Vec::new(),
            Reply::Close => return,
        };
        if stream.write_all(&said).await.is_err() {
            return;
        }
        let asked = loop {
            match decoder.next() {
                Ok(Some(ControlToAgent::Request { id, op })) => break (id, op),
                Ok(None) => {}
                // The host spells its own frames right.
                Err(error) => panic!("{error}"),
            }
            match stream.read(decoder.space()).await {
                Ok(read @ 1..) => decoder.filled(read),
                _ => return,
            }
        };
        id = asked.0;
        honest = Answer::Done;
        match asked.1 {
            Op::Open { stream, purpose } => {
                if let Some(dial) = dials.next() {
                    streams.spawn(dialled(Arc::clone(&expected), stream, purpose, dial));
                }
            }
            Op::Stat { paths, .. } => {
                let files = vec![None; paths.len()];
                honest = Answer::Stats { files };
            }
            Op::SetUp { plan } => {
                let (files, content) = (vec![None; plan.look.len()], Some(b"content".to_vec()));
                honest = Answer::SetUp { files, content };
            }
            _ => {}
        }
        reply = replies.next().unwrap_or(Reply::Honest);
    }
}

async fn does(guest: &Guest, want: Want) -> Result<(), GuestError> {
    let bytes = b"content".as_slice();
    match want {
        Want::Ping => guest.ping().await,
        Want::Stat => {
            let files = guest
                .stat(vec![b"/a".to_vec(), b"/b".to_vec()], true)
                .await?;
            assert_eq!(files.len(), 2);
            Ok(())
        }
        Want::SetUp => {
            let memory = |max_bytes| Volume::Memory { max_bytes };
            let plan = SetUp {
                hostname: Some("vm".to_owned()),
                unix_ns: Some(1),
                root: MountRoot {
                    image: memory(1),
                    writable: memory(2),
                },
                open: vec![b"/builds".to_vec()],
                look: vec![b"/a".to_vec(), b"/b".to_vec()],
                read: b"/c".to_vec(),
            };
            let found = guest.set_up(plan).await?;
            assert_eq!(found.files.len(), 2);
            Ok(())
        }
        Want::Usage => guest.usage().await.map(drop),
        Want::PowerOff => guest.power_off(Duration::from_secs(9)).await,
        Want::Run => {
            let exec = Exec {
                argv: vec![Opaque::from(b"true".to_vec())],
                env: vec![],
                cwd: b"/".to_vec(),
                directories: Vec::new(),
                user: vec![],
                umask: 0o22,
                stdin: Stdin::Stream,
                merge_output: false,
                kill_leftovers: true,
                drain_ms: 0,
            };
            let ran = guest
                .run(exec, bytes, OUTPUT_MAX, Duration::from_secs(60))
                .await?;
            assert!(ran.stdout.len() + ran.stderr.len() <= OUTPUT_MAX);
            Ok(())
        }
        Want::TarIn => {
            let (root, owner) = (b"/".to_vec(), vec![]);
            let tar = TarIn {
                root,
                owner,
                max_entries: 9,
                max_bytes: 9,
            };
            guest.tar_in(tar, bytes).await.map(drop)
        }
        Want::TarOut => {
            let tar = TarOut {
                root: b"/".to_vec(),
                paths: vec![],
                exclude: vec![],
                untracked: false,
                list_only: false,
            };
            let mut sink = Vec::new();
            guest.tar_out(tar, &mut sink).await.map(drop)
        }
        Want::Write => {
            let file = FileIn {
                path: b"/a".to_vec(),
                mode: 0o644,
                owner: vec![],
                create_parents: true,
                append: false,
            };
            guest.write_file(file, bytes).await.map(drop)
        }
        Want::Read => {
            let file = FileOut {
                path: b"/a".to_vec(),
                max_bytes: 9,
            };
            let mut sink = Vec::new();
            guest.read_file(file, &mut sink).await.map(drop)
        }
    }
}

thread_local! {
    /// Whether something of this thread panicked, in a task that nobody asks how it ended, too.
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// Has every thread note its panics, once.
fn note_panics() {
    static NOTED: Once = Once::new();
    NOTED.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICKED.with(|panicked| panicked.set(true));
            usual(info);
        }));
    });
}

async fn whole(
    greeting: Reply,
    replies: Vec<Reply>,
    dials: Vec<Dial>,
    wants: Vec<Want>,
) -> Result<(), TestCaseError> {
    // Nobody tells of the VM's end: it lives on, whatever its agent does.
    let (_announce, lifeline) = Lifeline::new();
    let (expected, control) = Expected::new(secret(true));
    let expected = Arc::new(expected);
    let (mut ours, theirs) = duplex(64 << 10);
    let opening = Opening::new(secret(true), Purpose::Control, 0);
    ours.write_all(&opening.encode()).await.unwrap();
    expected.open(Box::new(theirs)).await.unwrap();
    let mut accepted = [0];
    ours.read_exact(&mut accepted).await.unwrap();
    let mut agents = JoinSet::new();
    agents.spawn(agent(ours, Arc::clone(&expected), greeting, replies, dials));
    let (ended, _) = watch::channel(None);
    let control = control.await.unwrap();
    let connected = timeout(PATIENCE, connect(control, &lifeline, ended)).await;
    // The caller bounds how long it waits for a hello.
    if let Ok(Ok((_, control))) = connected {
        let guest = Guest::new(control, expected, lifeline);
        for want in wants {
            let done = timeout(PATIENCE, does(&guest, want)).await;
            prop_assert!(done.is_ok(), "{want:?} has no end");
        }
    }
    agents.shutdown().await;
    prop_assert!(!PANICKED.get(), "a task panicked");
    Ok(())
}

#[test]
fn whatever_an_agent_does_everything_asked_of_it_has_an_end() {
    inputs(
        400,
        (
            prop_oneof![9 => Just(Reply::Honest), 1 => reply()],
            prop::collection::vec(reply(), 0..8),
            prop::collection::vec(dial(), 0..4),
            prop::collection::vec(want(), 1..5),
        ),
        |(greeting, replies, dials, wants)| {
            note_panics();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap();
            runtime.block_on(whole(greeting, replies, dials, wants))?;
            Ok(())
        },
    );
}
