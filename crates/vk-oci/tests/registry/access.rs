//! Credentials, tokens, redirects, refusals.

use std::sync::atomic::{AtomicUsize, Ordering};

use std::collections::BTreeSet;

use vk_oci::{Client, Config, Error, Failure, Keychain, Near, Reference};

use crate::server::{Reply, Server};
use crate::{Served, client, client_with, config, credential, image, platform};

const TOKEN: &str = "Bearer t0ken";

/// A registry with a token service of its own.
fn guarded(served: Served) -> Server {
    Server::with_origin(move |origin| {
        move |request: &crate::Request| {
            if request.path.starts_with("/token") {
                return Reply::ok(br#"{"token":"t0ken"}"#);
            }
            match request.header("authorization") {
                Some(TOKEN) => served.answer(request),
                _ => Reply::challenge(&format!("{origin}/token")),
            }
        }
    })
}

#[tokio::test]
async fn an_anonymous_token_is_fetched_once_and_only_for_pulling() {
    let server = guarded(Served::new());
    let client = client();
    client.resolve(&image(&server), &platform()).await.unwrap();
    client.digest_of(&image(&server)).await.unwrap();
    let asked = server.requests();
    let tokens: Vec<_> = asked
        .iter()
        .filter(|request| request.path.starts_with("/token"))
        .collect();
    assert_eq!(tokens.len(), 1);
    assert_eq!(
        tokens[0].path,
        "/token?service=here&scope=repository%3Aa%2Fb%3Apull"
    );
    assert_eq!(tokens[0].header("authorization"), None);
}

/// CRED-08
#[tokio::test]
async fn a_credential_goes_to_the_token_service_and_the_token_to_the_registry() {
    let server = guarded(Served::new());
    client_with(&server, "user", "s3cret")
        .resolve(&image(&server), &platform())
        .await
        .unwrap();
    for request in server.requests() {
        let basic = request.header("authorization") == Some("Basic dXNlcjpzM2NyZXQ=");
        assert_eq!(basic, request.path.starts_with("/token"), "{request:?}");
    }
}

/// CRED-08
#[tokio::test]
async fn a_registry_that_asks_for_a_password_gets_it() {
    let served = Served::new();
    let server = Server::new(move |request| match request.header("authorization") {
        Some("Basic dXNlcjpzM2NyZXQ=") => served.answer(request),
        _ => Reply::status(401).header("www-authenticate", "Basic realm=\"r\""),
    });
    client_with(&server, "user", "s3cret")
        .resolve(&image(&server), &platform())
        .await
        .unwrap();
    let first = &server.requests()[0];
    assert_eq!(
        first.header("authorization"),
        None,
        "not before it is asked for"
    );
    let error = client()
        .resolve(&image(&server), &platform())
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::Denied {
                with_credential: false,
                ..
            }
        ),
        "{error}"
    );
    let error = client_with(&server, "user", "wrong")
        .resolve(&image(&server), &platform())
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::Denied {
                with_credential: true,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn an_expired_token_is_replaced() {
    let served = Served::new();
    let count = AtomicUsize::new(0);
    let server = Server::with_origin(move |origin| {
        move |request: &crate::Request| {
            if request.path.starts_with("/token") {
                let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                return Reply::ok(format!(r#"{{"token":"t{number}"}}"#).as_bytes());
            }
            let current = format!("Bearer t{}", count.load(Ordering::SeqCst));
            // The first token is good for the manifest only.
            let expired = current == "Bearer t1" && request.path.contains("/blobs/");
            match request.header("authorization") {
                Some(sent) if sent == current && !expired => served.answer(request),
                _ => Reply::challenge(&format!("{origin}/token")),
            }
        }
    });
    client()
        .resolve(&image(&server), &platform())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_redirect_carries_no_authorization_to_another_origin() {
    let served = Served::new();
    let elsewhere = Server::new({
        let served = Served::new();
        move |request| served.answer(request)
    });
    let target = elsewhere.url("");
    let server = Server::with_origin(move |origin| {
        move |request: &crate::Request| {
            if request.path.starts_with("/token") {
                return Reply::ok(br#"{"token":"t0ken"}"#);
            }
            match request.header("authorization") {
                Some(TOKEN) if request.path.contains("/blobs/") => {
                    Reply::redirect(&format!("{target}{}", request.path))
                }
                Some(TOKEN) => served.answer(request),
                _ => Reply::challenge(&format!("{origin}/token")),
            }
        }
    });
    client_with(&server, "user", "s3cret")
        .resolve(&image(&server), &platform())
        .await
        .unwrap();
    let asked = elsewhere.requests();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].header("authorization"), None);
}

#[tokio::test]
async fn a_redirect_within_the_origin_keeps_its_authorization() {
    let served = Served::new();
    let server = Server::with_origin(move |origin| {
        move |request: &crate::Request| {
            if request.path.starts_with("/token") {
                return Reply::ok(br#"{"token":"t0ken"}"#);
            }
            match request.header("authorization") {
                Some(TOKEN) if request.path.ends_with("/1") => {
                    Reply::redirect(&format!("/v2/a/b/manifests/{}", served.digest()))
                }
                Some(TOKEN) => served.answer(request),
                _ => Reply::challenge(&format!("{origin}/token")),
            }
        }
    });
    client()
        .resolve(&image(&server), &platform())
        .await
        .unwrap();
}

#[tokio::test]
async fn redirects_that_lead_abroad_in_plain_or_round_and_round_are_refused() {
    for target in [
        "http://registry.invalid/x",
        "http://169.254.169.254/latest/meta-data",
        "file:///etc/passwd",
        "/v2/a/b/manifests/1",
    ] {
        let server = Server::new(move |_| Reply::redirect(target));
        let error = client()
            .resolve(&image(&server), &platform())
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{target}: {error}");
    }
}

#[tokio::test]
async fn a_token_service_abroad_in_plain_http_gets_nothing() {
    let server = Server::new(|_| Reply::challenge("http://auth.invalid/token"));
    for client in [client(), client_with(&server, "user", "s3cret")] {
        let error = client
            .resolve(&image(&server), &platform())
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_registry_named_insecure_is_spoken_to_but_gets_no_password() {
    let served = Served::new();
    let server = Server::new(move |request| match request.header("authorization") {
        None if request.path.ends_with("/private") => {
            Reply::status(401).header("www-authenticate", "Basic realm=\"r\"")
        }
        _ => served.answer(request),
    });
    // The unspecified address reaches this host, yet is no loopback address.
    let host = server.host().replace("127.0.0.1", "0.0.0.0");
    let mut keychain = Keychain::default();
    keychain.add(&host, credential("user", "s3cret"));
    let config = Config {
        keychain,
        insecure: [host.clone()].into(),
        ..config()
    };
    let client = Client::new(config).unwrap();
    client
        .resolve(&format!("{host}/a/b:1").parse().unwrap(), &platform())
        .await
        .unwrap();
    let private = format!("{host}/a/b:private").parse().unwrap();
    let error = client.resolve(&private, &platform()).await.unwrap_err();
    assert!(error.to_string().contains("plain http"), "{error}");
    assert!(
        server
            .requests()
            .iter()
            .all(|request| request.header("authorization").is_none())
    );
}

#[tokio::test]
async fn a_token_service_in_plain_http_gets_no_password_either() {
    let served = Served::new();
    let server = Server::with_origin(move |origin| {
        let realm = format!("{}/token", origin.replace("127.0.0.1", "0.0.0.0"));
        move |request: &crate::Request| {
            if request.path.starts_with("/token") {
                return Reply::ok(br#"{"token":"t0ken"}"#);
            }
            match request.header("authorization") {
                Some(TOKEN) => served.answer(request),
                _ => Reply::challenge(&realm),
            }
        }
    });
    let host = server.host().replace("127.0.0.1", "0.0.0.0");
    let image = format!("{host}/a/b:1").parse().unwrap();
    let mut keychain = Keychain::default();
    keychain.add(&host, credential("user", "s3cret"));
    let insecure = || [host.clone()].into();
    let open = Client::new(Config {
        insecure: insecure(),
        ..config()
    })
    .unwrap();
    open.resolve(&image, &platform()).await.unwrap();
    let asked = server.requests().len();
    let with_password = Client::new(Config {
        keychain,
        insecure: insecure(),
        ..config()
    })
    .unwrap();
    let error = with_password
        .resolve(&image, &platform())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("plain http"), "{error}");
    let later = server.requests().split_off(asked);
    assert!(
        later
            .iter()
            .all(|request| request.header("authorization").is_none()),
        "{later:?}"
    );
}

/// FAIL-33
#[tokio::test]
async fn missing_denied_limited_and_unreachable_are_told_apart() {
    let status = |status: u16, body: &'static str| {
        Server::new(move |_| {
            Reply::status(status)
                .header("retry-after", "0")
                .body(body.as_bytes())
        })
    };
    for (server, failure, text) in [
        (status(404, "{}"), Failure::Missing, "manifest unknown"),
        (
            status(
                401,
                r#"{"errors":[{"code":"UNAUTHORIZED","message":"no"}]}"#,
            ),
            Failure::Access,
            "no (UNAUTHORIZED)",
        ),
        (status(403, ""), Failure::Access, "denied"),
        (status(429, ""), Failure::Transient, "too many requests"),
        (
            status(500, "<html>\x1b[31m"),
            Failure::Transient,
            r"<html>\u{1b}[31m",
        ),
        (status(418, ""), Failure::Content, "418"),
    ] {
        let error = client()
            .resolve(&image(&server), &platform())
            .await
            .unwrap_err();
        assert_eq!(error.failure(), failure, "{error}");
        assert!(error.to_string().contains(text), "{error}");
        let tries = if failure == Failure::Transient { 3 } else { 1 };
        assert_eq!(server.requests().len(), tries, "{error}");
    }
    // Bound, so that nobody else listens there.
    let bound = tokio::net::TcpSocket::new_v4().unwrap();
    bound.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let gone = bound.local_addr().unwrap();
    let error = client()
        .resolve(&format!("{gone}/a/b").parse().unwrap(), &platform())
        .await
        .unwrap_err();
    assert_eq!(error.failure(), Failure::Transient, "{error}");
    assert!(error.to_string().contains(&gone.to_string()), "{error}");
}

#[tokio::test]
async fn a_registry_that_recovers_is_asked_again() {
    let served = Served::new();
    let count = AtomicUsize::new(0);
    let server = Server::new(move |request| match count.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::status(503),
        1 => Reply::status(429).header("retry-after", "0"),
        _ => served.answer(request),
    });
    client()
        .resolve(&image(&server), &platform())
        .await
        .unwrap();
}

/// Set in a process that has no certificates of authorities, as a small container has none.
const BARE: &str = "VK_OCI_TEST_BARE";

#[tokio::test]
async fn only_https_needs_the_hosts_certificates() {
    if std::env::var_os(BARE).is_none() {
        let dir = tempfile::tempdir().unwrap();
        let empty = dir.path().join("empty");
        std::fs::write(&empty, "").unwrap();
        let mut bare = std::process::Command::new(std::env::current_exe().unwrap());
        bare.args(["--exact", "access::only_https_needs_the_hosts_certificates"]);
        bare.env("SSL_CERT_FILE", &empty).env(BARE, "1");
        bare.env("SSL_CERT_DIR", dir.path().join("nowhere"));
        let ran = bare.output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let served = Served::new();
    let server = Server::new(move |request: &crate::Request| served.answer(request));
    let client = client();
    client.resolve(&image(&server), &platform()).await.unwrap();
    let far = "registry.invalid/a:1".parse().unwrap();
    let error = client.digest_of(&far).await.unwrap_err();
    let said = error.to_string();
    assert!(said.contains("registry.invalid"), "{said}");
    assert!(
        said.contains("install the package ca-certificates"),
        "{said}"
    );
    assert_eq!(error.failure(), Failure::Local);
}

/// A job's word alone brings no request to a server of the host itself, by whatever name.
#[tokio::test]
async fn what_is_near_is_asked_where_it_is_named_alone() {
    let server = Server::new({
        let served = Served::new();
        move |request: &crate::Request| served.answer(request)
    });
    let host = server.host();
    let port = host.rsplit_once(':').unwrap().1.to_owned();
    let client = |named: &[&str]| {
        let named = named.iter().map(|one| (*one).to_owned());
        Client::new(Config {
            near: Near::Named(named.collect()),
            insecure: BTreeSet::from([
                format!("ip6-localhost:{port}"),
                format!("a.localhost:{port}"),
            ]),
            ..config()
        })
        .unwrap()
    };
    // Names of the host's own as systems have them; one that is not known here is not reached either.
    let by_name = [
        format!("ip6-localhost:{port}"),
        format!("a.localhost:{port}"),
    ];
    let by_number = [
        host.clone(),
        format!("localhost:{port}"),
        format!("[::1]:{port}"),
    ];
    for at in by_number {
        let image: Reference = format!("{at}/a/b").parse().unwrap();
        let error = client(&[]).digest_of(&image).await.unwrap_err();
        assert!(matches!(error, Error::Near { .. }), "{at}: {error:?}");
        assert!(error.to_string().contains("[registry] insecure"), "{error}");
    }
    for at in by_name {
        let image: Reference = format!("{at}/a/b").parse().unwrap();
        let error = client(&[]).digest_of(&image).await.unwrap_err();
        let is_refused = matches!(error, Error::Near { .. } | Error::Unreachable { .. });
        assert!(is_refused, "{at}: {error:?}");
    }
    assert!(server.requests().is_empty());
    let named = client(&[&host]);
    named.digest_of(&image(&server)).await.unwrap();
    assert!(!server.requests().is_empty());
}
