//! The object store and redirects: another host, which no token may reach.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::lab::Lab;
use crate::raw::{Answer, try_call};

/// Another host of a lab: its address and its URL.
fn other_host(lab: &Lab) -> (SocketAddr, String) {
    let said = lab.admin(&json!({"cmd": "listen", "as": "elsewhere", "addr": "127.0.0.1:0"}));
    let addr = said["addr"].as_str().unwrap().parse().unwrap();
    (addr, said["url"].as_str().unwrap().to_owned())
}

/// An archive of an ended job, and a running one that depends on it: id and token.
fn archive(lab: &Lab, content: &str) -> (u64, String) {
    let ids = lab.trigger(&json!({"stages": ["a", "b"], "jobs": [
        {"name": "one", "stage": "a", "script": ["x"], "artifacts": {"paths": ["p"]}},
        {"name": "two", "stage": "b", "script": ["x"]}]}));
    let one = lab.take();
    let token = one["token"].as_str().unwrap();
    let form = format!(
        "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.zip\"\r\n\r\n\
         {content}\r\n--B--\r\n"
    );
    let headers = [
        ("JOB-TOKEN", token),
        ("Content-Type", "multipart/form-data; boundary=B"),
    ];
    let path = format!("/api/v4/jobs/{}/artifacts", ids[0]);
    assert_eq!(lab.call("POST", &path, &headers, form).status, 201);
    lab.finish(ids[0], token, "success");
    let two = lab.take();
    (ids[0], two["token"].as_str().unwrap().to_owned())
}

fn download(lab: &Lab, id: u64, token: &str, direct: bool) -> Answer {
    let path = format!("/api/v4/jobs/{id}/artifacts?direct_download={direct}");
    lab.call("GET", &path, &[("JOB-TOKEN", token)], "")
}

/// Host and path of a `Location`.
fn place(location: &str) -> (SocketAddr, String) {
    let rest = location.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_at(rest.find('/').unwrap());
    (host.parse().unwrap(), path.to_owned())
}

#[test]
fn a_direct_download_is_sent_to_the_store_with_a_link_that_needs_no_token() {
    let lab = Lab::start();
    let (id, token) = archive(&lab, "content");
    lab.admin(&json!({"cmd": "set", "direct_download": true}));
    assert_eq!(
        download(&lab, id, &token, true).status,
        500,
        "no store listens"
    );
    let (addr, _) = other_host(&lab);
    assert_eq!(
        download(&lab, id, &token, false).text(),
        "content",
        "it did not ask"
    );
    let sent = download(&lab, id, &token, true);
    assert_eq!((sent.status, sent.body.len()), (302, 0));
    let (host, path) = place(sent.header("Location").unwrap());
    assert_eq!(host, addr);
    let got = try_call(host, "GET", &path, &[], b"").unwrap();
    assert_eq!((got.status, got.text().as_str()), (200, "content"));
    let seen = lab.admin(&json!({"cmd": "elsewhere"}))["requests"].clone();
    assert_eq!(seen[0]["method"], "GET");
    let refused = |path: &str| try_call(host, "GET", path, &[], b"").unwrap().status;
    assert_eq!(refused(&path.replace("signature=", "signature=0")), 403);
    assert_eq!(refused("/artifacts/nothing"), 403);
    lab.admin(&json!({"cmd": "advance", "secs": 600}));
    assert_eq!(refused(&path), 403, "too old");
    let (kinds, _): (Vec<_>, Vec<()>) = lab.broken().into_iter().map(|kind| (kind, ())).unzip();
    assert!(
        !kinds.contains(&"secret_to_foreign_host".to_owned()),
        "{kinds:?}"
    );
}

#[test]
fn a_token_that_goes_along_is_told_wherever_it_stands() {
    let lab = Lab::with(
        &[],
        Some("[DEPLOY]\nvalue = 's3cret-value'\nmasked = true\n"),
    );
    let (id, token) = lab.running();
    lab.patch(id, &token, "0-0", "x");
    let (host, _) = other_host(&lab);
    let basic = format!(
        "Basic {}",
        STANDARD.encode(format!("gitlab-ci-token:{token}"))
    );
    let bearer = format!("Bearer {}", lab.token);
    let query = format!("/x?token={token}");
    type Row<'a> = (&'a str, Vec<(&'a str, &'a str)>, &'a str, usize);
    let rows: Vec<Row<'_>> = vec![
        ("/plain", vec![("X-Other", "value")], "a body", 0),
        ("/header", vec![("JOB-TOKEN", &token)], "", 1),
        ("/basic", vec![("Authorization", &basic)], "", 1),
        ("/bearer", vec![("Authorization", &bearer)], "", 1),
        (&query, vec![], "", 1),
        ("/body", vec![], &token, 1),
        ("/masked", vec![("X-Value", "a s3cret-value b")], "", 1),
    ];
    let mut all = 0;
    for (path, headers, body, more) in rows {
        try_call(host, "POST", path, &headers, body.as_bytes()).unwrap();
        all += more;
        let broken = lab.broken();
        let told = broken
            .iter()
            .filter(|kind| *kind == "secret_to_foreign_host");
        assert_eq!(told.count(), all, "{path}");
    }
    let shown = lab.admin(&json!({"cmd": "invariants"})).to_string();
    assert!(
        !shown.contains(&token) && !shown.contains("s3cret-value"),
        "by name only"
    );
    let seen = lab.admin(&json!({"cmd": "elsewhere"})).to_string();
    assert!(!seen.contains(&token), "{seen}");
}

#[test]
fn a_redirect_names_the_other_host_with_path_and_query_and_stores_nothing() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    let (_, url) = other_host(&lab);
    let redirect = |action: Value, on: &str| {
        lab.admin(&json!({"cmd": "inject", "on": on, "action": {"redirect": action}}));
    };
    redirect(json!({}), "upload");
    let path = format!("/api/v4/jobs/{id}/artifacts?artifact_type=archive");
    let sent = lab.call("POST", &path, &[("JOB-TOKEN", token.as_str())], "");
    assert_eq!(
        (sent.status, sent.header("Location")),
        (307, Some(format!("{url}{path}").as_str()))
    );
    redirect(
        json!({"status": 308, "to": "http://gitlab.example.com/"}),
        "update",
    );
    let sent = lab.finish(id, &token, "success");
    let want = format!("http://gitlab.example.com/api/v4/jobs/{id}");
    assert_eq!(
        (sent.status, sent.header("Location")),
        (308, Some(want.as_str()))
    );
    assert_eq!(lab.status(id), "running");
    assert_eq!(lab.job(id)["artifacts"], json!([]));
}
