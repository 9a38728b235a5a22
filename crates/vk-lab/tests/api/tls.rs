//! The server with TLS, and a certificate that changes while it serves.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::json;

use crate::lab::Lab;
use crate::raw::{Answer, parse};

/// A certificate of its own for 127.0.0.1, written into a lab's directory.
fn certificate(lab: &Lab, name: &str) -> (CertificateDer<'static>, PathBuf, PathBuf) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".into()]).unwrap();
    let cert = lab.dir.path().join(format!("{name}.crt"));
    let key = lab.dir.path().join(format!("{name}.key"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (made.cert.der().clone(), cert, key)
}

/// A call over TLS by a client that trusts one certificate.
fn secure_call(
    addr: SocketAddr,
    trusted: &CertificateDer<'static>,
    head: &str,
) -> Result<Answer, String> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = rustls::StreamOwned::new(client, TcpStream::connect(addr).unwrap());
    let sent = stream.write_all(
        format!("{head}\r\nHost: lab\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").as_bytes(),
    );
    sent.map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    // A server need not say goodbye.
    let _ = stream.read_to_end(&mut bytes);
    parse(&bytes).ok_or_else(|| "no answer".into())
}

#[test]
fn a_certificate_is_changed_while_it_serves_and_a_wrong_one_changes_nothing() {
    let lab = Lab::start();
    let (first, cert, key) = certificate(&lab, "first");
    let (second, other_cert, other_key) = certificate(&lab, "second");
    let listen = |addr: &str, cert: &PathBuf, key: &PathBuf| {
        lab.try_admin(
            &json!({"cmd": "listen", "as": "https", "addr": addr, "cert": cert, "key": key}),
        )
    };
    let said = listen("127.0.0.1:0", &cert, &key);
    let text = said["addr"].as_str().unwrap().to_owned();
    let addr: SocketAddr = text.parse().unwrap();
    assert_eq!(said["url"], format!("https://{text}"));
    let status =
        |trusted| secure_call(addr, trusted, "GET /api/v4/nope HTTP/1.1").map(|a| a.status);
    assert_eq!(status(&first), Ok(404));
    assert!(status(&second).is_err(), "not that one");
    let wrong = listen(&text, &cert, &other_key);
    assert_eq!(wrong["error"]["code"], "failed", "{wrong}");
    assert_eq!(status(&first), Ok(404));
    assert_eq!(listen(&text, &other_cert, &other_key)["changed"], true);
    assert_eq!(status(&second), Ok(404));
    assert!(status(&first).is_err());
    let missing = listen("127.0.0.1:0", &lab.dir.path().join("nope"), &key);
    assert!(
        missing["error"]["message"]
            .as_str()
            .unwrap()
            .contains("cannot read"),
        "{missing}"
    );
}

#[test]
fn a_redirect_may_lead_from_https_to_http() {
    let lab = Lab::start();
    let (trusted, cert, key) = certificate(&lab, "one");
    let said = lab.admin(
        &json!({"cmd": "listen", "as": "https", "addr": "127.0.0.1:0", "cert": cert, "key": key}),
    );
    let addr: SocketAddr = said["addr"].as_str().unwrap().parse().unwrap();
    let to = format!("http://{}", lab.addr);
    lab.admin(&json!({"cmd": "inject", "on": "upload", "action": {"redirect": {"to": to}}}));
    let answer = secure_call(addr, &trusted, "POST /api/v4/jobs/1/artifacts?a=b HTTP/1.1").unwrap();
    let want = format!("{to}/api/v4/jobs/1/artifacts?a=b");
    assert_eq!(
        (answer.status, answer.header("Location")),
        (307, Some(want.as_str()))
    );
}
