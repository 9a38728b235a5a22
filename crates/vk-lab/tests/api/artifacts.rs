//! Sections 2.9 and 2.10: artifacts.

use std::io::Write as _;

use serde_json::json;

use crate::lab::{Lab, hello};
use crate::raw::{Answer, receive, send};

fn part(name: &str, filename: Option<&str>, content: &[u8]) -> Vec<u8> {
    let file = filename
        .map(|name| format!("; filename=\"{name}\""))
        .unwrap_or_default();
    let mut bytes = format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n")
        .into_bytes();
    bytes.extend_from_slice(content);
    bytes.extend_from_slice(b"\r\n");
    bytes
}

fn form(parts: &[Vec<u8>]) -> Vec<u8> {
    [parts.concat().as_slice(), b"--B--\r\n"].concat()
}

fn upload(lab: &Lab, id: u64, token: &str, query: &str, body: &[u8]) -> Answer {
    let headers = [
        ("JOB-TOKEN", token),
        ("Content-Type", "multipart/form-data; boundary=B"),
    ];
    lab.call(
        "POST",
        &format!("/api/v4/jobs/{id}/artifacts?{query}"),
        &headers,
        body,
    )
}

fn file(content: &[u8]) -> Vec<u8> {
    form(&[part("file", Some("artifacts.zip"), content)])
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(text).unwrap();
    writer.finish().unwrap()
}

#[test]
fn every_answer_to_an_upload_is_the_pages() {
    let lab = Lab::start();
    lab.admin(&json!({"cmd": "set", "artifact_limit": 1_000}));
    let (id, token) = lab.running();
    let zip = "artifact_type=archive&artifact_format=zip";
    let two = form(&[part("file", Some("a"), b"1"), part("file", Some("b"), b"2")]);
    let cut = file(b"abc");
    let rows: Vec<(&str, &str, Vec<u8>, u16)> = vec![
        ("no file", zip, form(&[part("x", None, b"1")]), 400),
        (
            "another field",
            zip,
            form(&[part("other", Some("a"), b"1")]),
            500,
        ),
        ("two files", zip, two, 500),
        ("cut short", zip, cut[..cut.len() - 6].to_vec(), 400),
        ("too large", zip, file(&[b'a'; 1_001]), 413),
        (
            "wrong format",
            "artifact_type=junit&artifact_format=zip",
            file(b"a"),
            400,
        ),
        (
            "wrong format",
            "artifact_type=archive&artifact_format=raw",
            file(b"a"),
            400,
        ),
        (
            "unknown type",
            "artifact_type=nope&artifact_format=zip",
            file(b"a"),
            400,
        ),
        ("first", zip, file(b"abc"), 201),
        ("the same again", "", file(b"abc"), 201),
        ("another", zip, file(b"abd"), 400),
        (
            "a report",
            "artifact_type=junit&artifact_format=gzip",
            file(&gzip(b"<x/>")),
            201,
        ),
        (
            "raw",
            "artifact_type=sast&artifact_format=raw",
            file(b"{}"),
            201,
        ),
        (
            "dotenv",
            "artifact_type=dotenv&artifact_format=gzip",
            file(&gzip(b"no line")),
            400,
        ),
        (
            "dotenv",
            "artifact_type=dotenv&artifact_format=gzip",
            file(&gzip(b"A=1")),
            201,
        ),
    ];
    for (what, query, body, status) in rows {
        let answer = upload(&lab, id, &token, query, &body);
        assert_eq!(answer.status, status, "{what}: {}", answer.text());
        if status == 201 {
            assert_eq!(answer.text(), "201");
        }
    }
    let kept = lab.job(id)["artifacts"].as_array().unwrap().len();
    assert_eq!(kept, 4);
    let files = std::fs::read_dir(lab.dir.path().join("state/artifacts"))
        .unwrap()
        .count();
    assert_eq!(files, kept, "what was refused does not lie about");
}

#[test]
fn type_and_format_may_be_fields_of_the_form() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    let body = form(&[
        part("artifact_type", None, b"sast"),
        part("artifact_format", None, b"raw"),
        part("file", Some("gl.json"), b"{}"),
    ]);
    assert_eq!(upload(&lab, id, &token, "", &body).status, 201);
    assert_eq!(lab.job(id)["artifacts"][0]["type"], "sast");
}

#[test]
fn an_upload_is_authenticated_at_its_start_and_at_its_end() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    assert_eq!(upload(&lab, id, "glcbt-wrong", "", &file(b"a")).status, 403);
    let no_boundary = lab.call(
        "POST",
        &format!("/api/v4/jobs/{id}/artifacts"),
        &[
            ("JOB-TOKEN", token.as_str()),
            ("Content-Type", "application/json"),
        ],
        "{}",
    );
    assert_eq!(no_boundary.status, 400);
    let body = file(b"abc");
    let length = body.len().to_string();
    let headers = [
        ("JOB-TOKEN", token.as_str()),
        ("Content-Type", "multipart/form-data; boundary=B"),
        ("Content-Length", length.as_str()),
        ("Expect", "100-continue"),
    ];
    let path = format!("/api/v4/jobs/{id}/artifacts");
    let mut stream = send(lab.addr, "POST", &path, &headers, b"");
    // The body is asked for once the first authentication stands.
    let mut go_on = [0_u8; 25];
    std::io::Read::read_exact(&mut stream, &mut go_on).unwrap();
    lab.admin(&json!({"cmd": "cancel", "job": id, "force": true}));
    stream.write_all(&body).unwrap();
    let answer = receive(&mut stream).unwrap();
    assert_eq!(
        (answer.status, answer.header("Job-Status")),
        (403, Some("canceled"))
    );
}

#[test]
fn an_upload_goes_on_while_canceling_and_is_405_where_artifacts_are_off() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    lab.admin(&json!({"cmd": "cancel", "job": id}));
    assert_eq!(upload(&lab, id, &token, "", &file(b"a")).status, 201);
    lab.admin(&json!({"cmd": "set", "artifacts_enabled": false}));
    assert_eq!(upload(&lab, id, &token, "", &file(b"a")).status, 405);
}

#[test]
fn an_archive_comes_down_for_a_running_job_only() {
    let lab = Lab::start();
    let ids = lab.trigger(&json!({"stages": ["a", "b"], "jobs": [
        {"name": "one", "stage": "a", "script": ["x"], "artifacts": {"paths": ["p"]}},
        {"name": "none", "stage": "a", "script": ["x"]},
        {"name": "two", "stage": "b", "script": ["x"]}]}));
    let one = lab.take();
    let none = lab.take();
    let content: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let token = one["token"].as_str().unwrap();
    assert_eq!(upload(&lab, ids[0], token, "", &file(&content)).status, 201);
    lab.finish(ids[0], token, "success");
    lab.finish(ids[1], none["token"].as_str().unwrap(), "success");
    let two = lab.take();
    let artifacts = json!({"filename": "artifacts.zip", "size": content.len()});
    assert_eq!(two["dependencies"][0]["artifacts_file"], artifacts);
    assert!(two["dependencies"][1].get("artifacts_file").is_none());
    let own = two["token"].as_str().unwrap();
    let get = |id: u64, token: &str| {
        let path = format!("/api/v4/jobs/{id}/artifacts?direct_download=true");
        lab.call("GET", &path, &[("JOB-TOKEN", token)], "")
    };
    let answer = get(ids[0], own);
    assert_eq!(answer.status, 200);
    let want = Some("attachment; filename=\"artifacts.zip\"");
    assert_eq!(answer.header("Content-Disposition"), want);
    assert_eq!(answer.header("Content-Transfer-Encoding"), Some("binary"));
    assert!(answer.body == content, "{} bytes came", answer.body.len());
    let rows = [
        (ids[1], own, 404),
        (9_999, own, 403),
        (ids[0], "x", 401),
        (ids[0], token, 401),
    ];
    for (id, token, status) in rows {
        assert_eq!(get(id, token).status, status);
    }
}

#[test]
fn dependencies_are_those_named_or_none() {
    let lab = Lab::start();
    let ids = lab.trigger(&json!({"stages": ["a", "b"], "jobs": [
        {"name": "one", "stage": "a", "script": ["x"]},
        {"name": "two", "stage": "a", "script": ["x"]},
        {"name": "p", "stage": "b", "script": ["x"], "dependencies": ["two"]},
        {"name": "q", "stage": "b", "script": ["x"], "dependencies": []}]}));
    for _ in 0..2 {
        let job = lab.take();
        let id = job["id"].as_u64().unwrap();
        lab.finish(id, job["token"].as_str().unwrap(), "success");
    }
    assert_eq!(lab.take()["dependencies"][0]["id"], ids[1]);
    assert_eq!(lab.take()["dependencies"], json!([]));
    lab.trigger(&hello());
}
