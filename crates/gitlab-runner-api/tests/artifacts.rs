//! Artifacts to and from a server that answers as it is told.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

#[path = "support/answers.rs"]
mod answers;

use std::path::PathBuf;

use answers::{Request, Server, ok, redirect, status};
use gitlab_runner_api::BaseUrl;
use gitlab_runner_api::artifacts::{
    ArtifactClient, Download, DownloadError, Downloaded, Tried, Upload, UploadEnd,
};
use vk_hub_proto::Secret;

struct Sent {
    end: UploadEnd,
    tries: Vec<Tried>,
    requests: Vec<Request>,
}

async fn upload(server: &Server) -> Sent {
    let dir = tempfile_dir();
    let file = dir.join("archive");
    std::fs::write(&file, b"PK-content").unwrap();
    let token = Secret::from("job-token");
    let upload = Upload {
        job: 7,
        token: &token,
        file: &file,
        file_name: "a \"b\".zip",
        format: "zip",
        artifact_type: "archive",
        expire_in: "1 week",
    };
    let mut tries = Vec::new();
    let end = server
        .client()
        .upload(&upload, |tried| tries.push(tried.clone()))
        .await;
    std::fs::remove_dir_all(dir).unwrap();
    Sent {
        end,
        tries,
        requests: server.requests(),
    }
}

fn tempfile_dir() -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("vk-artifacts-{}-{number}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    dir
}

/// ART-04, ART-05, ART-20
#[tokio::test]
async fn an_upload_is_one_part_named_file_with_its_query() {
    let server = Server::new(&[&status("201 Created")]);
    let sent = upload(&server).await;
    assert_eq!(sent.end, UploadEnd::Uploaded);
    let [request] = sent.requests.as_slice() else {
        panic!("{:?}", sent.requests)
    };
    assert_eq!(
        request.line,
        "POST /api/v4/jobs/7/artifacts?artifact_format=zip&artifact_type=archive&expire_in=1+week \
         HTTP/1.1"
    );
    assert_eq!(request.header("job-token"), Some("job-token"));
    let kind = request.header("content-type").unwrap();
    let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
    let expected = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; \
         filename=\"a \\\"b\\\".zip\"\r\nContent-Type: application/octet-stream\r\n\r\nPK-content\
         \r\n--{boundary}--\r\n"
    );
    assert_eq!(String::from_utf8(request.body.clone()).unwrap(), expected);
}

/// ART-18
#[tokio::test]
async fn a_second_try_sends_the_same_bytes() {
    let server = Server::new(&[&status("500 Oops"), &status("201 Created")]);
    let sent = upload(&server).await;
    assert_eq!(sent.end, UploadEnd::Uploaded);
    assert_eq!(
        sent.tries
            .iter()
            .map(|t| (t.status, t.again))
            .collect::<Vec<_>>(),
        [(Some(500), true), (Some(201), false)]
    );
    assert_eq!(sent.requests[0].body, sent.requests[1].body);
}

/// ART-07
#[tokio::test]
async fn too_large_is_final() {
    let sent = upload(&Server::new(&[&status("413 Large")])).await;
    assert_eq!((sent.end, sent.requests.len()), (UploadEnd::TooLarge, 1));
}

/// ART-21
#[tokio::test]
async fn forbidden_is_final() {
    let sent = upload(&Server::new(&[&status("403 Forbidden")])).await;
    let UploadEnd::Failed(why) = sent.end else {
        panic!()
    };
    assert!(why.contains("403"), "{why}");
    assert_eq!(sent.requests.len(), 1);
}

/// ART-08
#[tokio::test]
async fn an_unavailable_server_is_asked_again_when_it_says() {
    // By itself it would wait a second, and more each time.
    let busy = |secs| status(&format!("503 Busy\r\nRetry-After: {secs}"));
    let began = std::time::Instant::now();
    let sent = upload(&Server::new(&[&busy(3), &status("201 Created")])).await;
    assert_eq!((sent.end, sent.requests.len()), (UploadEnd::Uploaded, 2));
    assert!(began.elapsed() >= std::time::Duration::from_secs(3));
    let now = busy(0);
    let sent = upload(&Server::new(&[&now, &now, &now, &status("201 Created")])).await;
    assert_eq!((sent.end, sent.requests.len()), (UploadEnd::Uploaded, 4));
}

/// ART-19
#[tokio::test]
async fn only_201_is_success() {
    let body = "400 Bad Request\r\nContent-Length: 24\r\nConnection: close\r\n\r\n\
                {\"message\":\"bad digest\"}";
    let sent = upload(&Server::new(&[body])).await;
    assert_eq!(
        sent.end,
        UploadEnd::Failed("400 Bad Request (bad digest)".to_owned())
    );
    assert_eq!(sent.requests.len(), 1);
}

/// ART-06, ART-10
#[tokio::test]
async fn a_307_is_followed_and_the_token_stays_at_gitlabs_own_origin() {
    let other = Server::new(&[&status("201 Created")]);
    let to = format!("{}/elsewhere?x=1", other.base);
    let server = Server::new(&[&redirect(307, "/moved"), &redirect(307, &to)]);
    let sent = upload(&server).await;
    assert_eq!(sent.end, UploadEnd::Uploaded);
    assert_eq!(sent.requests[1].line, "POST /moved HTTP/1.1");
    assert_eq!(sent.requests[1].header("job-token"), Some("job-token"));
    let [elsewhere] = other
        .requests()
        .try_into()
        .unwrap_or_else(|all| panic!("{all:?}"));
    let elsewhere: Request = elsewhere;
    assert_eq!(elsewhere.line, "POST /elsewhere?x=1 HTTP/1.1");
    assert_eq!(elsewhere.header("job-token"), None);
    assert_eq!(elsewhere.body, sent.requests[0].body);
}

async fn download(server: &Server) -> (Result<Downloaded, DownloadError>, Option<String>) {
    let dir = tempfile_dir();
    let to = dir.join("archive");
    let token = Secret::from("token-of-the-other");
    let download = Download {
        job: 5,
        token: &token,
        to: &to,
        bytes_max: 10,
    };
    let done = server.client().download(&download).await;
    let content = std::fs::read_to_string(&to).ok();
    std::fs::remove_dir_all(dir).unwrap();
    (done, content)
}

/// ART-11, ART-22
#[tokio::test]
async fn a_download_follows_to_storage_without_the_token() {
    let storage = Server::new(&[&ok("PK-1")]);
    let server = Server::new(&[&redirect(302, &format!("{}/blob?sig=1", storage.base))]);
    let (done, content) = download(&server).await;
    assert_eq!(done.unwrap().bytes, 4);
    assert_eq!(content.as_deref(), Some("PK-1"));
    let asked = &server.requests()[0];
    assert_eq!(
        asked.line,
        "GET /api/v4/jobs/5/artifacts?direct_download=true HTTP/1.1"
    );
    assert_eq!(asked.header("job-token"), Some("token-of-the-other"));
    assert_eq!(storage.requests()[0].header("job-token"), None);
}

/// ART-23
#[tokio::test]
async fn an_unauthorized_download_is_tried_again() {
    let server = Server::new(&[&status("401 No"), &status("401 No"), &ok("PK-2")]);
    let (done, _) = download(&server).await;
    assert_eq!(done.unwrap().bytes, 4);
    assert_eq!(
        server.requests()[1].line,
        "GET /api/v4/jobs/5/artifacts HTTP/1.1"
    );
    let server = Server::new(&[&status("401 No")]);
    assert_eq!(download(&server).await.0.unwrap_err().status, Some(401));
    assert_eq!(server.requests().len(), 3);
}

/// ART-17
#[tokio::test]
async fn a_forbidden_or_missing_archive_is_final() {
    for code in [403, 404] {
        let server = Server::new(&[&status(&format!("{code} No"))]);
        assert_eq!(download(&server).await.0.unwrap_err().status, Some(code));
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn more_than_the_cap_is_not_taken() {
    let server = Server::new(&[&ok("12345678901")]);
    let error = download(&server).await.0.unwrap_err();
    assert!(error.message.contains("more than 10 bytes"), "{error}");
}

/// Tells the test's second process from its first.
const BARE: &str = "VK_TEST_BARE";

/// A host without certificates of authorities, as a small container is.
#[test]
fn only_artifacts_of_an_https_gitlab_need_the_hosts_certificates() {
    if std::env::var_os(BARE).is_none() {
        let dir = tempfile_dir();
        let empty = dir.join("none.pem");
        std::fs::write(&empty, "").unwrap();
        let mut bare = std::process::Command::new(std::env::current_exe().unwrap());
        let name = "only_artifacts_of_an_https_gitlab_need_the_hosts_certificates";
        bare.args(["--exact", name]).env(BARE, "1");
        bare.env("SSL_CERT_FILE", &empty);
        bare.env("SSL_CERT_DIR", dir.join("nowhere"));
        let ran = bare.output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let client = |url: &str| ArtifactClient::new(url.parse::<BaseUrl>().unwrap(), None, "1.0");
    assert!(client("http://gitlab.example.com").is_ok());
    let error = client("https://gitlab.example.com")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("install the package ca-certificates"),
        "{error}"
    );
}
