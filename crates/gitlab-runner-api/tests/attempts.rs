//! How long one attempt of a transfer may take, and what follows one that broke: on a clock that the
//! test moves.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use gitlab_runner_api::artifacts::{
    ArtifactClient, Download, DownloadError, Tried, Upload, UploadEnd,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::Instant;
use vk_hub_proto::Secret;

const MIB: usize = 1 << 20;
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// Shorter than any pause that ends a transfer.
const STEP: Duration = Duration::from_secs(280);
/// What a server takes in a step: more than lies on the way, so that the client must have moved.
const BITE: usize = 6 * MIB;

/// Time that goes on when it is told to, and not of itself.
struct Clock {
    /// While this is held, nothing moves time.
    _still: std::sync::mpsc::Sender<()>,
}

impl Clock {
    fn stop() -> Clock {
        let (still, ended) = std::sync::mpsc::channel::<()>();
        // The runtime moves a paused clock only while nothing blocks. A test that failed is waited
        // for no longer.
        tokio::task::spawn_blocking(move || ended.recv_timeout(HOUR / 12));
        tokio::time::pause();
        Clock { _still: still }
    }

    /// Moves time on, and lets everybody see it.
    async fn on(&self, by: Duration) {
        tokio::time::advance(by).await;
        for _ in 0..500 {
            tokio::task::yield_now().await;
        }
    }
}

/// A directory that goes with the test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let name = format!("vk-attempts-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Dir(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn server() -> (TcpListener, ArtifactClient) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(8).unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let client = ArtifactClient::new(base.parse().unwrap(), None, "1.2.3").unwrap();
    (listener, client)
}

/// Uploads a file of zeros; what was tried, and when each try was over. Those are counted as they are.
async fn upload(
    client: &ArtifactClient,
    dir: &Dir,
    size: usize,
    over: &Cell<usize>,
) -> (UploadEnd, Vec<(Tried, Instant)>) {
    let file = dir.0.join("archive");
    let made = std::fs::File::create(&file).unwrap();
    made.set_len(size as u64).unwrap();
    let token = Secret::from("job-token");
    let upload = Upload {
        job: 7,
        token: &token,
        file: &file,
        file_name: "a.zip",
        format: "zip",
        artifact_type: "archive",
        expire_in: "",
    };
    let mut tries = Vec::new();
    let tell = |tried: &Tried| {
        tries.push((tried.clone(), Instant::now()));
        over.set(tries.len());
    };
    let end = client.upload(&upload, tell).await;
    (end, tries)
}

/// The next request: its connection, how much of its body came with its head, and how long that is.
async fn asked(listener: &TcpListener) -> (TcpStream, usize, usize) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut seen = Vec::new();
    let head = loop {
        assert!(stream.read_buf(&mut seen).await.unwrap() > 0);
        if let Some(at) = seen.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let text = String::from_utf8(seen[..head].to_vec()).unwrap();
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.parse().unwrap())
    });
    (stream, seen.len() - head, length.unwrap_or(0))
}

/// Takes so many bytes; false where the client is gone.
async fn take(stream: &mut TcpStream, count: usize) -> bool {
    let mut buffer = vec![0; count];
    stream.read_exact(&mut buffer).await.is_ok()
}

async fn say(stream: &mut TcpStream, head: &str) {
    let answer = format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await.unwrap();
}

/// ART-14
#[tokio::test]
async fn an_upload_that_takes_its_time_is_not_given_up_while_it_goes_on() {
    let dir = Dir::new("slow");
    let (listener, client) = server().await;
    let over = Cell::new(0);
    let slow = async {
        let (mut stream, came, length) = asked(&listener).await;
        let clock = Clock::stop();
        let from = Instant::now();
        let mut left = length - came;
        while left > BITE {
            assert!(take(&mut stream, BITE).await, "after {:?}", from.elapsed());
            left -= BITE;
            clock.on(STEP).await;
        }
        assert!(take(&mut stream, left).await);
        clock.on(STEP).await;
        say(&mut stream, "201 Created\r\ncontent-length: 0").await;
        from.elapsed()
    };
    let ((end, tries), took) = tokio::join!(upload(&client, &dir, 6 * BITE, &over), slow);
    assert_eq!((end, tries.len()), (UploadEnd::Uploaded, 1), "{tries:?}");
    // Longer than any pause may be.
    assert!(took > 25 * MINUTE, "{took:?}");
}

/// More than the waits between tries.
const WAIT: Duration = Duration::from_secs(3);

/// ART-14
#[tokio::test]
async fn an_upload_is_given_up_after_an_hour_however_it_goes_on_and_tried_anew() {
    let dir = Dir::new("hour");
    let (listener, client) = server().await;
    let over = Cell::new(0);
    let trickling = async {
        let mut began = Vec::new();
        let mut clock = None;
        for number in 1..=3 {
            let (mut stream, ..) = asked(&listener).await;
            let clock = clock.get_or_insert_with(Clock::stop);
            began.push(Instant::now());
            while over.get() < number {
                take(&mut stream, BITE).await;
                clock.on(STEP).await;
            }
            clock.on(WAIT).await;
        }
        began
    };
    let ((end, tries), began) = tokio::join!(upload(&client, &dir, 16 * BITE, &over), trickling);
    let UploadEnd::Failed(why) = end else {
        panic!("{end:?}")
    };
    assert!(why.contains("timed out"), "{why}");
    assert_eq!(tries.len(), 3);
    for ((tried, ended), began) in tries.iter().zip(began) {
        let took = ended.duration_since(began);
        assert!((HOUR..=HOUR + STEP).contains(&took), "{took:?}: {tried:?}");
    }
}

/// ART-14
#[tokio::test]
async fn an_upload_stalls_after_five_minutes_and_waits_ten_for_its_answer() {
    // Whether everything is taken, what is said of it, after how many minutes: what lies on the way
    // is taken for a while.
    for (whole, says, minutes) in [
        (false, "nothing was taken for 300 s", 5..=55),
        (true, "no answer came for 600 s", 15..=20),
    ] {
        let dir = Dir::new(says);
        let (listener, client) = server().await;
        let over = Cell::new(0);
        let silent = async {
            let mut began = Vec::new();
            let mut clock = None;
            for number in 1..=3 {
                let (mut stream, came, length) = asked(&listener).await;
                if whole {
                    assert!(take(&mut stream, length - came).await);
                }
                let clock = clock.get_or_insert_with(Clock::stop);
                began.push(Instant::now());
                while over.get() < number {
                    clock.on(MINUTE).await;
                }
                clock.on(WAIT).await;
            }
            began
        };
        let ((end, tries), began) = tokio::join!(upload(&client, &dir, 4 * BITE, &over), silent);
        let UploadEnd::Failed(why) = end else {
            panic!("{end:?}")
        };
        assert!(why.contains(says), "{why}");
        for ((tried, ended), began) in tries.iter().zip(began) {
            let took = ended.duration_since(began).as_secs() / 60;
            assert!(minutes.contains(&took), "{took} min: {tried:?}");
        }
        tokio::time::resume();
    }
}

/// ART-14
#[tokio::test]
async fn a_connection_that_breaks_in_an_upload_is_followed_by_another_try() {
    let dir = Dir::new("broken");
    let (listener, client) = server().await;
    let over = Cell::new(0);
    let breaking = async {
        for _ in 0..2 {
            let (mut stream, ..) = asked(&listener).await;
            assert!(take(&mut stream, MIB).await);
        }
        let (mut stream, came, length) = asked(&listener).await;
        assert!(take(&mut stream, length - came).await);
        say(&mut stream, "201 Created\r\ncontent-length: 0").await;
    };
    let ((end, tries), ()) = tokio::join!(upload(&client, &dir, 24 * MIB, &over), breaking);
    assert_eq!(end, UploadEnd::Uploaded, "{tries:?}");
    let tried: Vec<_> = tries.iter().map(|(t, _)| (t.status, t.again)).collect();
    assert_eq!(tried, [(None, true), (None, true), (Some(201), false)]);
}

/// Downloads at most so much to a file, which is given back, if it is there. Tries that are over are
/// counted as they are.
async fn download(
    client: &ArtifactClient,
    dir: &Dir,
    bytes_max: u64,
    over: &Cell<usize>,
) -> (Result<u64, String>, Option<Vec<u8>>) {
    let to = dir.0.join("archive");
    let token = Secret::from("token-of-the-other");
    let download = Download {
        job: 5,
        token: &token,
        to: &to,
        bytes_max,
    };
    let tell = |_: &DownloadError| over.set(over.get() + 1);
    let done = client.download_telling(&download, tell).await;
    over.set(over.get() + 1);
    let done = done.map(|done| done.bytes).map_err(|error| error.message);
    (done, std::fs::read(to).ok())
}

/// ART-14
#[tokio::test]
async fn a_download_is_given_up_after_an_hour_however_it_goes_on_and_tried_anew() {
    let dir = Dir::new("download");
    let (listener, client) = server().await;
    let over = Cell::new(0);
    let trickling = async {
        let mut took = Vec::new();
        let mut clock = None;
        for number in 1..=3 {
            let (mut stream, ..) = asked(&listener).await;
            let clock = clock.get_or_insert_with(Clock::stop);
            let began = Instant::now();
            say(&mut stream, "200 OK\r\ncontent-length: 100000").await;
            let mut said = 0;
            while over.get() < number {
                // Nobody may be there any more.
                let _ = stream.write_all(b"P").await;
                said += 1;
                let arrived = || std::fs::metadata(dir.0.join("archive")).map_or(0, |it| it.len());
                while over.get() < number && arrived() < said {
                    tokio::task::yield_now().await;
                }
                clock.on(STEP).await;
            }
            took.push(began.elapsed());
            clock.on(WAIT).await;
        }
        took
    };
    let done = download(&client, &dir, 1 << 20, &over);
    let ((done, _), took) = tokio::join!(done, trickling);
    let why = done.unwrap_err();
    assert!(why.contains("timed out"), "{why}");
    for took in took {
        assert!((HOUR..=HOUR + 2 * STEP).contains(&took), "{took:?}");
    }
}

/// ART-14
#[tokio::test]
async fn a_connection_that_breaks_in_a_download_is_followed_by_another_try() {
    let dir = Dir::new("half");
    let (listener, client) = server().await;
    let over = Cell::new(0);
    let breaking = async {
        for said in ["PK-and-mu", "PK", "PK-and-much"] {
            let (mut stream, ..) = asked(&listener).await;
            say(&mut stream, "200 OK\r\ncontent-length: 11").await;
            stream.write_all(said.as_bytes()).await.unwrap();
        }
    };
    let ((done, content), ()) = tokio::join!(download(&client, &dir, 1 << 20, &over), breaking);
    assert_eq!(done, Ok(11));
    assert_eq!(content.as_deref(), Some(&b"PK-and-much"[..]));
}

/// GUEST-07
#[tokio::test]
async fn a_download_over_the_cap_is_not_begun_where_it_says_so_and_ends_at_the_cap_where_not() {
    let says = "the archive has more than 1000 bytes";
    let dir = Dir::new("announced");
    let (listener, client) = server().await;
    let over = Cell::new(0);
    let announcing = async {
        let (mut stream, ..) = asked(&listener).await;
        say(&mut stream, "200 OK\r\ncontent-length: 1001").await;
        // Nothing of it is waited for.
        take(&mut stream, 1).await
    };
    let ((done, content), more) = tokio::join!(download(&client, &dir, 1000, &over), announcing);
    assert_eq!((done, content, more), (Err(says.to_owned()), None, false));

    let dir = Dir::new("endless");
    let (listener, client) = server().await;
    let endless = async {
        let (mut stream, ..) = asked(&listener).await;
        say(&mut stream, "200 OK").await;
        while stream.write_all(&[b'P'; 300]).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    let ((done, content), ()) = tokio::join!(download(&client, &dir, 1000, &over), endless);
    assert_eq!(done, Err(says.to_owned()));
    assert!(content.is_some_and(|bytes| bytes.len() <= 1000));
}
