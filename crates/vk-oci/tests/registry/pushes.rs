//! What is pushed: probes, uploads, manifests, and with what right.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use vk_oci::{Client, Config, Digest, Error, Keychain, Reference};

use crate::server::{Reply, Request, Server};
use crate::{client, client_with, config, credential, image};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Blobs and manifests that were pushed, by their path.
#[derive(Default)]
struct Kept(Mutex<BTreeMap<String, Vec<u8>>>);

impl Kept {
    /// What a registry of the Distribution form answers.
    fn answer(&self, request: &Request) -> Reply {
        let mut kept = self.0.lock().unwrap();
        let method = request.method.as_str();
        match (method, request.path.split_once('?')) {
            ("POST", None) => {
                Reply::status(202).header("location", "/v2/a/b/blobs/uploads/1?_state=x%2By")
            }
            ("PUT", Some((_, query))) => {
                let digest = query
                    .strip_prefix("_state=x%2By&digest=sha256%3A")
                    .expect("the state and the digest");
                let digest = format!("sha256:{digest}");
                if Digest::of(&request.body).to_string() != digest {
                    return Reply::status(400).body(br#"{"errors":[{"code":"DIGEST_INVALID"}]}"#);
                }
                kept.insert(format!("/v2/a/b/blobs/{digest}"), request.body.clone());
                Reply::status(201)
            }
            ("PUT", None) => {
                assert_eq!(request.header("content-type"), Some(MANIFEST));
                kept.insert(request.path.clone(), request.body.clone());
                Reply::status(201)
            }
            _ => match kept.get(&request.path) {
                Some(bytes) => Reply::ok(bytes),
                None => Reply::status(404),
            },
        }
    }
}

fn asked(server: &Server) -> Vec<String> {
    let requests = server.requests();
    let lines = requests
        .iter()
        .map(|request| format!("{} {}", request.method, request.path));
    lines.collect()
}

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

/// CACHE-07
#[tokio::test]
async fn a_blob_that_is_there_costs_one_probe() {
    let kept = Kept::default();
    let server = Server::new(move |request| kept.answer(request));
    let (image, client) = (image(&server), client());
    let content = vec![7; 300_000];
    let digest = Digest::of(&content);
    assert!(!client.has_blob(&image, digest).await.unwrap());
    let blob = file(&content);
    let length = content.len() as u64;
    let pushed = client.push_blob(&image, digest, blob.path(), length).await;
    pushed.unwrap();
    let before = server.requests().len();
    assert!(client.has_blob(&image, digest).await.unwrap());
    assert_eq!(
        asked(&server)[before..],
        [format!("HEAD /v2/a/b/blobs/{digest}")]
    );
    assert_eq!(client.push_small(&image, &content).await.unwrap(), digest);
    assert_eq!(server.requests().len(), before + 2);
}

#[tokio::test]
async fn a_manifest_comes_back_as_it_was_pushed_and_no_longer_than_allowed() {
    let kept = Kept::default();
    let server = Server::new(move |request| kept.answer(request));
    let (image, client) = (image(&server), client());
    let missing = client.manifest(&image, MANIFEST, 100).await.unwrap_err();
    assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
    let pushed = client.push_manifest(&image, MANIFEST, b"{\"a\":1}").await;
    assert_eq!(pushed.unwrap(), Digest::of(b"{\"a\":1}"));
    let found = client.manifest(&image, MANIFEST, 7).await.unwrap();
    assert_eq!(found, b"{\"a\":1}");
    let long = client.manifest(&image, MANIFEST, 6).await.unwrap_err();
    assert!(matches!(long, Error::Size { .. }), "{long}");
}

#[tokio::test]
async fn a_manifest_that_is_not_what_its_registry_says_is_not_taken() {
    let server = Server::new(|_| {
        Reply::ok(b"other").header("docker-content-digest", &Digest::of(b"it").to_string())
    });
    let error = client().manifest(&image(&server), MANIFEST, 100).await;
    assert!(matches!(error, Err(Error::Digest { .. })), "{error:?}");
}

#[tokio::test]
async fn a_broken_upload_begins_again_and_a_refused_one_does_not() {
    for (status, tries, works) in [(500, 2, true), (404, 2, true), (400, 1, false)] {
        let kept = Kept::default();
        let puts = AtomicUsize::new(0);
        let server = Server::new(move |request| {
            if request.method == "PUT" && puts.fetch_add(1, Ordering::SeqCst) == 0 {
                return Reply::status(status);
            }
            kept.answer(request)
        });
        let blob = file(b"content");
        let pushed = client()
            .push_blob(&image(&server), Digest::of(b"content"), blob.path(), 7)
            .await;
        assert_eq!(pushed.is_ok(), works, "{status}: {pushed:?}");
        let posts = asked(&server)
            .iter()
            .filter(|it| it.starts_with("POST"))
            .count();
        assert_eq!(posts, tries, "{status}");
    }
}

#[tokio::test]
async fn a_token_for_pushing_is_asked_for_only_to_push() {
    let kept = Kept::default();
    let server = Server::with_origin(move |origin| {
        move |request: &Request| {
            if let Some((_, scope)) = request.path.split_once("/token?service=here&scope=") {
                let token = scope
                    .replace("repository%3Aa%2Fb%3A", "t-")
                    .replace("%2C", "-");
                return Reply::ok(format!(r#"{{"token":"{token}"}}"#).as_bytes());
            }
            let wanted = match request.method.as_str() {
                "GET" => "Bearer t-pull",
                _ => "Bearer t-pull-push",
            };
            match request.header("authorization") {
                Some(token) if token == wanted => kept.answer(request),
                _ => Reply::challenge(&format!("{origin}/token")),
            }
        }
    });
    let (image, client) = (image(&server), client_with(&server, "user", "s3cret"));
    client.push_manifest(&image, MANIFEST, b"{}").await.unwrap();
    assert_eq!(client.manifest(&image, MANIFEST, 9).await.unwrap(), b"{}");
    let tokens = asked(&server)
        .iter()
        .filter(|it| it.contains("/token"))
        .count();
    assert_eq!(tokens, 2);
}

/// A registry with a token service that must not be asked.
fn with_own_token(server: &Server) -> (Reference, Client) {
    let mut keychain = Keychain::default();
    keychain.add_token(&server.host(), credential("job", "the-jobs-token"));
    let client = Client::new(Config {
        keychain,
        ..config()
    });
    (image(server), client.unwrap())
}

/// CACHE-11
#[tokio::test]
async fn a_ready_token_goes_to_the_registry_as_it_is_and_to_no_token_service() {
    let kept = Kept::default();
    let server = Server::new(move |request| match request.header("authorization") {
        Some("Bearer the-jobs-token") => kept.answer(request),
        _ => Reply::challenge("http://127.0.0.1:1/token"),
    });
    let (image, client) = with_own_token(&server);
    client.push_manifest(&image, MANIFEST, b"{}").await.unwrap();
    assert_eq!(client.manifest(&image, MANIFEST, 9).await.unwrap(), b"{}");
    // One that asks for a password gets the token as one.
    let server = Server::new(|request| match request.header("authorization") {
        Some("Basic am9iOnRoZS1qb2JzLXRva2Vu") => Reply::ok(b"{}"),
        _ => Reply::status(401).header("www-authenticate", "Basic realm=\"r\""),
    });
    let (image, client) = with_own_token(&server);
    assert_eq!(client.manifest(&image, MANIFEST, 9).await.unwrap(), b"{}");
}

#[tokio::test]
async fn an_upload_sent_elsewhere_carries_no_credential_there() {
    let elsewhere = Server::new(|_| Reply::status(201));
    let to = elsewhere.url("/upload?sig=1");
    let server = Server::new(move |request| match request.header("authorization") {
        Some("Basic dXNlcjpzM2NyZXQ=") => Reply::status(202).header("location", &to),
        _ => Reply::status(401).header("www-authenticate", "Basic realm=\"r\""),
    });
    let client = client_with(&server, "user", "s3cret");
    let blob = file(b"content");
    let pushed = client
        .push_blob(&image(&server), Digest::of(b"content"), blob.path(), 7)
        .await;
    pushed.unwrap();
    let there = elsewhere.requests();
    assert_eq!(there.len(), 1);
    assert_eq!(there[0].header("authorization"), None);
    assert!(there[0].path.starts_with("/upload?sig=1&digest=sha256%3A"));
    assert_eq!(there[0].body, b"content");
}

/// CACHE-09
#[tokio::test]
async fn a_request_takes_no_longer_than_it_may() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::new(Config {
        attempts: 1,
        idle_timeout: Duration::from_secs(600),
        request_timeout: Some(Duration::from_millis(200)),
        ..config()
    });
    let image = format!("{}/a/b:1", silent.local_addr().unwrap());
    let began = Instant::now();
    let asked = client
        .unwrap()
        .has_blob(&image.parse().unwrap(), Digest::of(b""))
        .await;
    assert!(matches!(asked, Err(Error::Unreachable { .. })), "{asked:?}");
    assert!(began.elapsed() < Duration::from_secs(120));
}
