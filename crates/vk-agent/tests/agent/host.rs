//! The host's side, blocking, with a time limit on everything.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use vk_guest_proto::*;

/// Longer than anything takes, shorter than a person's patience.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// The agent's program.
pub(crate) fn program() -> PathBuf {
    let root = std::env::var_os("VK_TEST_ROOT").map(|root| Path::new(&root).join("bin/vk-agent"));
    root.filter(|path| path.exists())
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_vk-agent").into())
}

/// A host with one agent.
pub(crate) struct Host {
    listener: UnixListener,
    secret: [u8; SECRET_LEN],
    pub(crate) control: Stream<ControlToHost>,
    pub(crate) hello: Hello,
    pub(crate) agent: Child,
    next_stream: u32,
    next_request: u32,
    pub(crate) dir: TempDir,
}

/// A connection and the agent's frames on it.
pub(crate) struct Stream<F> {
    pub(crate) conn: UnixStream,
    decoder: Decoder<F>,
}

impl<F: Frame> Stream<F> {
    pub(crate) fn new(conn: UnixStream) -> Self {
        conn.set_read_timeout(Some(LIMIT)).unwrap();
        conn.set_write_timeout(Some(LIMIT)).unwrap();
        Self {
            conn,
            decoder: Decoder::new(),
        }
    }

    /// The next frame, or what the connection's end means.
    pub(crate) fn next(&mut self) -> Result<Option<F>, DecodeError> {
        loop {
            if let Some(frame) = self.decoder.next()? {
                return Ok(Some(frame));
            }
            let n = self
                .conn
                .read(self.decoder.space())
                .expect("a frame within the limit");
            if n == 0 {
                return self.decoder.end().map(|()| None);
            }
            self.decoder.filled(n);
        }
    }

    pub(crate) fn frame(&mut self) -> F {
        self.next().unwrap().expect("a frame before the end")
    }

    pub(crate) fn send<G: Frame>(&mut self, frame: &G) {
        let mut bytes = Vec::new();
        encode(frame, &mut bytes).unwrap();
        self.conn.write_all(&bytes).unwrap();
    }
}

/// Everything an exec or a transfer said.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
    pub(crate) content: Vec<u8>,
    pub(crate) notes: Vec<Note>,
    pub(crate) last: Option<StreamToHost>,
}

impl Heard {
    pub(crate) fn end(&self) -> &ExecEnd {
        match &self.last {
            Some(StreamToHost::Exited { end }) => end,
            other => panic!("no exit, but {other:?}"),
        }
    }

    pub(crate) fn failure(&self) -> &Failure {
        match &self.last {
            Some(StreamToHost::Failed { failure }) => failure,
            other => panic!("no failure, but {other:?}"),
        }
    }

    pub(crate) fn done(&self) -> &TransferEnd {
        match &self.last {
            Some(StreamToHost::Done { end }) => end,
            other => panic!("not done, but {other:?}"),
        }
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }
}

impl Host {
    pub(crate) fn start() -> Self {
        Self::start_as(|command| command)
    }

    /// Starts the agent; `wrap` may put another program around it.
    pub(crate) fn start_as(wrap: impl FnOnce(Command) -> Command) -> Self {
        let dir = TempDir::new().unwrap();
        let socket = dir.path().join("host.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let secret = [0x5a; SECRET_LEN];
        std::fs::write(dir.path().join("secret"), secret).unwrap();
        std::fs::create_dir(dir.path().join("state")).unwrap();
        let mut command = Command::new(program());
        command
            .arg("process")
            .arg("--dial")
            .arg(format!("unix:{}", socket.display()));
        command.arg("--secret").arg(dir.path().join("secret"));
        command.arg("--state").arg(dir.path().join("state"));
        let mut command = wrap(command);
        let agent = command.stdin(Stdio::null()).spawn().unwrap();
        let (opening, conn) = accept(&listener, &secret);
        assert_eq!(
            (opening.purpose, opening.stream),
            (Purpose::Control, CONTROL_STREAM)
        );
        let mut control = Stream::new(conn);
        let ControlToHost::Hello { hello } = control.frame() else {
            panic!("no hello")
        };
        let (next_stream, next_request) = (1, 1);
        Self {
            listener,
            secret,
            control,
            hello,
            agent,
            next_stream,
            next_request,
            dir,
        }
    }

    /// Sends a request; its number.
    pub(crate) fn ask(&mut self, op: Op) -> u32 {
        let id = self.next_request;
        self.next_request += 1;
        self.control.send(&ControlToAgent::Request { id, op });
        id
    }

    pub(crate) fn answer(&mut self, to: u32) -> Answer {
        match self.control.frame() {
            ControlToHost::Answer { id, answer } if id == to => answer,
            other => panic!("no answer to {to}, but {other:?}"),
        }
    }

    pub(crate) fn call(&mut self, op: Op) -> Answer {
        let id = self.ask(op);
        self.answer(id)
    }

    pub(crate) fn accept(&self) -> (Opening, UnixStream) {
        accept(&self.listener, &self.secret)
    }

    /// Opens a stream and sends its request; its number too.
    pub(crate) fn open(&mut self, request: &Request) -> (u32, Stream<StreamToHost>) {
        let (number, mut stream) = self.open_bare(request.purpose());
        for frame in request.to_frames().unwrap() {
            stream.send(&frame);
        }
        (number, stream)
    }

    pub(crate) fn open_bare(&mut self, purpose: Purpose) -> (u32, Stream<StreamToHost>) {
        let number = self.next_stream;
        self.next_stream += 1;
        let id = self.ask(Op::Open {
            stream: number,
            purpose,
        });
        let (opening, conn) = self.accept();
        assert_eq!((opening.purpose, opening.stream), (purpose, number));
        assert_eq!(self.answer(id), Answer::Done);
        (number, Stream::new(conn))
    }

    /// Runs a request to its end, with this as its data.
    pub(crate) fn run(&mut self, request: &Request, input: &[u8]) -> Heard {
        let (_, mut stream) = self.open(request);
        send_all(&stream.conn, input);
        hear(&mut stream)
    }
}

/// Sends data and its end from a thread: who only writes, and does not read, may wait for ever.
pub(crate) fn send_all(conn: &UnixStream, input: &[u8]) {
    let mut bytes = Vec::new();
    for chunk in input.chunks(limits::MAX_CHUNK) {
        encode(
            &StreamToAgent::Data {
                bytes: chunk.into(),
            },
            &mut bytes,
        )
        .unwrap();
    }
    encode(&StreamToAgent::End, &mut bytes).unwrap();
    let mut conn = conn.try_clone().unwrap();
    // A command may end before it has read all; then nobody reads the rest.
    std::thread::spawn(move || conn.write_all(&bytes));
}

/// Reads to the frame that ends the stream, and closes.
pub(crate) fn hear(stream: &mut Stream<StreamToHost>) -> Heard {
    let mut heard = Heard::default();
    loop {
        let frame = stream.frame();
        match frame {
            StreamToHost::Started { .. } => {}
            StreamToHost::Data { channel, bytes } => match channel {
                Channel::Stdout => heard.out.extend_from_slice(&bytes),
                Channel::Stderr => heard.err.extend_from_slice(&bytes),
                Channel::Content => heard.content.extend_from_slice(&bytes),
            },
            StreamToHost::Note { note } => heard.notes.push(note),
            last => {
                heard.last = Some(last);
                return heard;
            }
        }
    }
}

fn accept(listener: &UnixListener, secret: &[u8; SECRET_LEN]) -> (Opening, UnixStream) {
    let (mut conn, _) = listener.accept().unwrap();
    conn.set_read_timeout(Some(LIMIT)).unwrap();
    let mut raw = [0; OPENING_LEN];
    conn.read_exact(&mut raw).unwrap();
    let opening = Opening::decode(&raw).unwrap();
    assert_eq!(opening.secret, Secret::take(&mut secret.clone()));
    conn.write_all(&[opening.choose()]).unwrap();
    (opening, conn)
}

/// An agent whose host is gone kills its commands and ends; killed itself, it would leave them.
impl Drop for Host {
    fn drop(&mut self) {
        self.hang_up();
        let end = Instant::now() + LIMIT;
        while Instant::now() < end {
            if matches!(self.agent.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

/// A command with nothing special about it.
pub(crate) fn exec(argv: &[&str]) -> Exec {
    Exec {
        argv: argv
            .iter()
            .map(|arg| Opaque::from(arg.as_bytes()))
            .collect(),
        env: vec![EnvVar {
            name: b"PATH".to_vec(),
            value: b"/usr/bin:/bin"[..].into(),
        }],
        cwd: b"/".to_vec(),
        directories: Vec::new(),
        user: vec![],
        umask: 0o22,
        stdin: Stdin::Null,
        merge_output: false,
        kill_leftovers: true,
        drain_ms: 5000,
    }
}

/// A shell script, fed by its argument.
pub(crate) fn sh(script: &str) -> Exec {
    exec(&["sh", "-c", script])
}

pub(crate) fn path(path: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    path.as_os_str().as_bytes().to_vec()
}

impl Host {
    /// Closes the control stream.
    pub(crate) fn hang_up(&mut self) {
        self.control = Stream::new(UnixStream::pair().unwrap().0);
    }
}
