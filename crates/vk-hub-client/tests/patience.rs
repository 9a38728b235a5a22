//! How long the hub is waited for, on a clock that the test moves, and where it does not lead.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use vk_hub_client::api::{ApiError, Client};
use vk_hub_client::{Dialer, Key, Signer, Trust};
use vk_hub_proto::{JobId, RelayId};

const JOB: JobId = JobId::from_bytes([9; 16]);

/// A hub that the test plays, and a client of it.
async fn hub(scheme: &str) -> (TcpListener, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("{scheme}://{}", listener.local_addr().unwrap());
    let certificate = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let trust = Trust::Pem(certificate.cert.pem().into_bytes());
    let dialer = Dialer::new(url.parse().unwrap(), &trust).unwrap();
    let signer = Signer {
        relay: RelayId::from_bytes([1; 16]),
        key: Key::generate().unwrap(),
    };
    (listener, Client::new(dialer, signer))
}

/// Takes the request that comes next, head and all.
async fn request(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        assert!(stream.read_buf(&mut seen).await.unwrap() > 0);
    }
    stream
}

/// What has passed, but for the moments before the clock stood.
fn assert_waited(from: Instant, secs: u64) {
    let waited = from.elapsed();
    // Until the clock stands still, a busy machine takes its time.
    let around = Duration::from_secs(secs.saturating_sub(8))..=Duration::from_secs(secs + 1);
    assert!(around.contains(&waited), "{waited:?}, not {secs} s");
}

/// API-67
#[tokio::test]
async fn an_answer_may_take_its_wait_and_thirty_seconds_however_it_hangs() {
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"id\":";
    for (wait, said) in [(0, ""), (50, ""), (50, half)] {
        let (listener, client) = hub("http").await;
        let asking = tokio::spawn(async move { client.view(JOB, Some(1), wait).await });
        let mut stream = request(&listener).await;
        stream.write_all(said.as_bytes()).await.unwrap();
        // Nothing more comes: from here on time passes as fast as nobody does anything.
        tokio::time::pause();
        let from = Instant::now();
        let Err(ApiError::Request(error)) = asking.await.unwrap() else {
            panic!("an answer")
        };
        assert_waited(from, u64::from(wait) + 30);
        let within = format!("{} s", wait + 30);
        assert!(error.to_string().contains(&within), "{error}");
        tokio::time::resume();
    }
}

/// API-67
#[tokio::test]
async fn a_connection_is_given_up_after_ten_seconds_whatever_wait_is_asked_for() {
    let (listener, client) = hub("https").await;
    let asking = tokio::spawn(async move { client.view(JOB, None, 60).await });
    // TCP comes about, TLS never.
    let (stream, _) = listener.accept().await.unwrap();
    tokio::time::pause();
    let from = Instant::now();
    let Err(ApiError::Request(error)) = asking.await.unwrap() else {
        panic!("an answer")
    };
    assert_waited(from, 10);
    assert!(error.to_string().contains("within 10 s"), "{error}");
    drop(stream);
}

/// API-67
#[tokio::test]
async fn where_an_answer_leads_elsewhere_nobody_follows() {
    for status in [301, 302, 303, 307, 308] {
        let (listener, client) = hub("http").await;
        let elsewhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        elsewhere.set_nonblocking(true).unwrap();
        let asking = tokio::spawn(async move { client.view(JOB, None, 0).await });
        let mut stream = request(&listener).await;
        let to = elsewhere.local_addr().unwrap();
        let answer = format!(
            "HTTP/1.1 {status} Elsewhere\r\nlocation: http://{to}/v1/jobs/{JOB}\r\n\
             content-length: 0\r\n\r\n"
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
        let answered = asking.await.unwrap();
        let Err(ApiError::Nonsense { status: told, .. }) = answered else {
            panic!("{answered:?}")
        };
        assert_eq!(told, status);
        let came = elsewhere.accept().map_err(|error| error.kind());
        assert_eq!(came.err(), Some(ErrorKind::WouldBlock));
    }
}
