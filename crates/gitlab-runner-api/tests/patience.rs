//! How long answers are waited for, on a clock that the test moves.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gitlab_runner_api::response::JobRequestOutcome;
use gitlab_runner_api::{
    Client, Endpoint, Identity, Info, Observer, StateUpdate, TlsFiles, UpdateState, VerifyOutcome,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

fn client(listener: &TcpListener) -> Client {
    let url = format!("http://{}", listener.local_addr().unwrap());
    let identity = Identity {
        token: "glrt-t1_abcdefghijkl".into(),
        system_id: "r_abcdefghijkl".to_owned(),
        info: Info::new("0.1.0", "abcd1234"),
    };
    Client::new(url.parse().unwrap(), identity, &TlsFiles::default()).unwrap()
}

/// Reads a request off a new connection.
async fn accept(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"}") {
        assert!(stream.read_buf(&mut seen).await.unwrap() > 0);
    }
    stream
}

/// ADM-11
#[tokio::test]
async fn a_job_request_is_given_up_after_sixty_seconds_however_it_hangs() {
    let half = "HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\n{\"id\": 5,";
    for said in ["", half] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = client(&listener);
        let asking = tokio::spawn(async move { client.request_job(None).await });
        let mut stream = accept(&listener).await;
        stream.write_all(said.as_bytes()).await.unwrap();
        // Nothing more comes: from here on time passes as fast as nobody does anything.
        tokio::time::pause();
        let from = Instant::now();
        let outcome = asking.await.unwrap();
        let JobRequestOutcome::None(outcome) = outcome else {
            panic!("an answer: {outcome:?}")
        };
        let waited = from.elapsed();
        assert!(outcome.sent && outcome.status.is_none(), "{outcome:?}");
        let around = Duration::from_secs(58)..=Duration::from_secs(61);
        assert!(around.contains(&waited), "{waited:?}");
        tokio::time::resume();
    }
}

#[tokio::test]
async fn every_answer_is_told_those_that_are_tried_again_too() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let observer = Observer::new(move |endpoint, status| {
        tell.lock().unwrap().push((endpoint, status));
    });
    let client = client(&listener).with_observer(observer);
    let asking = tokio::spawn(async move { client.verify().await });
    for status in ["429 Too Many Requests", "403 Forbidden"] {
        let mut stream = accept(&listener).await;
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
    assert_eq!(asking.await.unwrap(), VerifyOutcome::Refused);
    let expected = [(Endpoint::Verify, Some(429)), (Endpoint::Verify, Some(403))];
    assert_eq!(*told.lock().unwrap(), expected);
}

/// Tells GitLab that a job runs.
fn updating(client: Client) -> tokio::task::JoinHandle<gitlab_runner_api::Outcome> {
    let update = StateUpdate {
        state: UpdateState::Running,
        output: None,
    };
    tokio::spawn(async move { client.update_job(5, &"glcbt-5".into(), &update).await })
}

/// GL-64
#[tokio::test]
async fn a_server_that_stays_unwell_is_asked_five_times_and_its_last_answer_is_handed_on() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut asking = updating(client(&listener));
    for time in 1..=5 {
        let mut stream = tokio::select! {
            stream = accept(&listener) => stream,
            outcome = &mut asking => panic!("given up before try {time}: {outcome:?}"),
        };
        let body = format!("{{\"message\":\"no {time}\"}}");
        let status = if time == 5 { "502 Bad" } else { "503 Busy" };
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
    let outcome = tokio::select! {
        outcome = asking => outcome.unwrap(),
        _ = listener.accept() => panic!("a sixth try"),
    };
    assert_eq!(outcome.status, Some(502));
    assert_eq!(outcome.message, "no 5");
}

/// GL-64
#[tokio::test]
async fn a_connection_that_breaks_is_not_made_again_below_the_request() {
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf";
    for said in ["", half] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let asking = updating(client(&listener));
        let mut stream = accept(&listener).await;
        stream.write_all(said.as_bytes()).await.unwrap();
        drop(stream);
        let outcome = tokio::select! {
            outcome = asking => outcome.unwrap(),
            _ = listener.accept() => panic!("it was tried again"),
        };
        assert_eq!((outcome.status, outcome.sent), (None, true), "{outcome:?}");
    }
}
