//! gitlab-runner's own tables of artifact transfers (MIT; see NOTICE), said anew with their values.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

#[path = "support/answers.rs"]
#[allow(dead_code, reason = "another test's, of which a part is used")]
mod answers;

use std::path::Path;

use answers::{Request, Server, ok, redirect, status};
use gitlab_runner_api::artifacts::{Download, DownloadError, Tried, Upload, UploadEnd};
use vk_hub_proto::Secret;

/// A directory that goes with the test.
struct Dir(std::path::PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let name = format!("vk-tables-{}-{name}", std::process::id());
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

/// One upload: what is sent, what is answered, what is expected of it.
struct Row {
    content: &'static str,
    format: &'static str,
    kind: &'static str,
    answers: Vec<String>,
    end: UploadEnd,
    says: &'static str,
}

impl Row {
    fn new(content: &'static str, answer: &str, end: UploadEnd, says: &'static str) -> Row {
        Row {
            content,
            format: "",
            kind: "",
            answers: vec![status(answer)],
            end,
            says,
        }
    }
}

fn failed(why: &str) -> UploadEnd {
    UploadEnd::Failed(why.to_owned())
}

fn json(head: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{head}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
}

/// The rows of the table, with the values it has.
fn rows() -> Vec<Row> {
    let created = || UploadEnd::Uploaded;
    let busy = status("503 Service Unavailable\r\nRetry-After: 1");
    let of = |content, format, kind| Row {
        format,
        kind,
        ..Row::new(content, "201 Created", created(), "201 Created")
    };
    vec![
        Row::new("content", "201 Created", created(), "201 Created"),
        Row::new(
            "too-large",
            "413 Request Entity Too Large",
            UploadEnd::TooLarge,
            "413 Payload Too Large",
        ),
        of("zip", "zip", ""),
        of("gzip", "gzip", ""),
        of("junit", "gzip", "junit"),
        Row::new(
            "forbidden",
            "403 Forbidden",
            failed("403 Forbidden"),
            "403 Forbidden",
        ),
        Row {
            answers: vec![busy],
            ..Row::new(
                "service-unavailable",
                "",
                failed("503 Service Unavailable"),
                "503 Service Unavailable",
            )
        },
        Row {
            answers: vec![json(
                "400 Bad Request",
                "{\"message\":\"duplicate variables\"}",
            )],
            ..Row::new(
                "bad-request",
                "",
                failed("400 Bad Request (duplicate variables)"),
                "400 Bad Request (duplicate variables)",
            )
        },
        Row {
            answers: vec![json("400 Bad Request", "not JSON response")],
            ..Row::new(
                "bad-request-not-json",
                "",
                failed("400 Bad Request"),
                "400 Bad Request",
            )
        },
        Row {
            answers: vec![redirect(307, "new-location"), status("201 Created")],
            ..Row::new("redirect", "", created(), "201 Created")
        },
    ]
}

async fn upload(server: &Server, row: &Row, file: &Path) -> (UploadEnd, Vec<Tried>) {
    let token = Secret::from("token");
    let upload = Upload {
        job: 10,
        token: &token,
        file,
        file_name: "archive",
        format: row.format,
        artifact_type: row.kind,
        expire_in: "",
    };
    let mut tries = Vec::new();
    let client = server.client();
    let end = client
        .upload(&upload, |tried| tries.push(tried.clone()))
        .await;
    (end, tries)
}

/// What is the same of every upload, whatever the answer.
fn check_handler(request: &Request, row: &Row) {
    assert_eq!(request.header("job-token"), Some("token"));
    let body = String::from_utf8(request.body.clone()).unwrap();
    assert_eq!(body.matches("Content-Disposition").count(), 1, "{body}");
    assert!(body.contains("form-data; name=\"file\"; filename=\"archive\""));
    assert!(
        body.contains(&format!("\r\n\r\n{}\r\n--", row.content)),
        "{body}"
    );
    let query = match (row.format, row.kind) {
        ("", "") => String::new(),
        (format, "") => format!("?artifact_format={format}"),
        (format, kind) => format!("?artifact_format={format}&artifact_type={kind}"),
    };
    let line = format!("POST /api/v4/jobs/10/artifacts{query} HTTP/1.1");
    assert_eq!(request.line, line);
}

/// PORT-30, PORT-31
#[tokio::test]
async fn uploads_end_as_the_table_says() {
    let dir = Dir::new("uploads");
    // One waits for seconds: all at a time.
    let all = rows();
    let ended = all.iter().map(|row| ends_as_it_says(&dir, row));
    futures_util::future::join_all(ended).await;
}

async fn ends_as_it_says(dir: &Dir, row: &Row) {
    let file = dir.0.join(row.content);
    std::fs::write(&file, row.content).unwrap();
    let answers: Vec<&str> = row.answers.iter().map(String::as_str).collect();
    let server = Server::new(&answers);
    let (end, tries) = upload(&server, row, &file).await;
    assert_eq!(end, row.end, "{}", row.content);
    let last = tries.last().unwrap();
    assert_eq!(last.message, row.says, "{}", row.content);
    let requests = server.requests();
    check_handler(&requests[0], row);
    let expected = match row.content {
        "service-unavailable" => 6,
        "redirect" => 2,
        _ => 1,
    };
    assert_eq!(requests.len(), expected, "{}", row.content);
    if row.content == "redirect" {
        let to = "POST /api/v4/jobs/10/new-location HTTP/1.1";
        assert_eq!(requests[1].line, to);
        assert_eq!(requests[1].body, requests[0].body);
    }
}

/// PORT-31
#[tokio::test]
async fn a_file_that_is_missing_is_never_asked_for() {
    let server = Server::new(&[&status("201 Created")]);
    let row = Row::new("x", "", UploadEnd::Uploaded, "");
    let (end, _) = upload(&server, &row, Path::new("/no/such/file")).await;
    let UploadEnd::Failed(why) = end else {
        panic!("{end:?}")
    };
    assert!(why.contains("/no/such/file"), "{why}");
    assert!(server.requests().is_empty());
}

async fn download(server: &Server, job: u64, token: &str) -> Result<String, DownloadError> {
    let dir = Dir::new(&format!("download-{job}-{token}"));
    let to = dir.0.join("archive");
    let token = Secret::from(token);
    let download = Download {
        job,
        token: &token,
        to: &to,
        bytes_max: 1000,
    };
    server.client().download(&download).await?;
    Ok(std::fs::read_to_string(&to).unwrap())
}

fn xml(kind: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "403 Forbidden\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
}

/// PORT-32
#[tokio::test]
async fn downloads_end_as_the_table_says() {
    // Straight from storage, or from GitLab itself.
    let server = Server::new(&[
        &redirect(307, "/direct-download"),
        &ok("Artifact: direct_download=true"),
    ]);
    let content = download(&server, 10, "token").await.unwrap();
    assert_eq!(content, "Artifact: direct_download=true");
    let requests = server.requests();
    let direct = "GET /api/v4/jobs/10/artifacts?direct_download=true HTTP/1.1";
    assert_eq!(requests[0].line, direct);
    assert_eq!(requests[1].line, "GET /direct-download HTTP/1.1");
    let server = Server::new(&[&ok("Artifact: direct_download=missing")]);
    let content = download(&server, 10, "token").await.unwrap();
    assert_eq!(content, "Artifact: direct_download=missing");

    let policy = "<Error><Code>SecurityPolicyViolated</Code><Message>Request violates VPC Service \
                  Controls</Message></Error>";
    let violated = "403 Forbidden (SecurityPolicyViolated: Request violates VPC Service Controls)";
    for (job, token, answer, code, says, asked) in [
        (
            10,
            "invalid-token",
            status("403 Forbidden"),
            403,
            "403 Forbidden",
            1,
        ),
        (
            10,
            "unauthorized-token",
            status("401 Unauthorized"),
            401,
            "401 Unauthorized",
            3,
        ),
        (
            11,
            "token",
            status("404 Not Found"),
            404,
            "404 Not Found",
            1,
        ),
        (
            10,
            "storage",
            xml("application/xml", policy),
            403,
            violated,
            1,
        ),
        (
            10,
            "storage-json",
            json("403 Forbidden", "{\"message\":\"not allowed\"}"),
            403,
            "403 Forbidden (not allowed)",
            1,
        ),
        (
            10,
            "storage-bad-xml",
            xml("application/xml", "This is not XML"),
            403,
            "403 Forbidden",
            1,
        ),
        (
            10,
            "storage-no-code",
            xml("text/xml", "<Test>Hello</Test>"),
            403,
            "403 Forbidden",
            1,
        ),
    ] {
        let server = Server::new(&[&answer]);
        let error = download(&server, job, token).await.unwrap_err();
        assert_eq!(
            (error.status, error.message.as_str()),
            (Some(code), says),
            "{token}"
        );
        let requests = server.requests();
        assert_eq!(requests.len(), asked, "{token}");
        assert_eq!(requests[0].header("job-token"), Some(token));
        let path = format!("GET /api/v4/jobs/{job}/artifacts?direct_download=true HTTP/1.1");
        assert_eq!(requests[0].line, path);
        if asked > 1 {
            let path = format!("GET /api/v4/jobs/{job}/artifacts HTTP/1.1");
            assert_eq!(requests[1].line, path);
        }
    }
}
