//! The client against a hub of the test's own, over real TLS on loopback.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use vk_hub_client::api::{ApiError, Client, OutputRead};
use vk_hub_client::{Dialer, HubUrl, Key, Signer, Trust, spki_sha256};
use vk_hub_proto::client::ErrorCode;
use vk_hub_proto::signed::{Channel, ClientRequest, EXPORTER_LABEL, client_request};
use vk_hub_proto::{JobId, RelayId, hex};

/// A hub's listener: its CA, and what it speaks.
struct Hub {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    ca: CertificateDer<'static>,
    ca_pem: String,
}

impl Hub {
    async fn listen() -> Hub {
        let ca_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&ca_key).unwrap();
        let issuer = Issuer::new(params, ca_key);
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
        let leaf = leaf.signed_by(&key, &issuer).unwrap();
        let chain = vec![leaf.der().clone(), ca.der().clone()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        Hub {
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            acceptor: TlsAcceptor::from(Arc::new(config)),
            ca: ca.der().clone(),
            ca_pem: ca.pem(),
        }
    }

    fn url(&self) -> HubUrl {
        format!("https://{}", self.listener.local_addr().unwrap())
            .parse()
            .unwrap()
    }

    fn dialer(&self) -> Dialer {
        Dialer::new(self.url(), &Trust::Pem(self.ca_pem.clone().into_bytes())).unwrap()
    }

    async fn accept(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let (tcp, _) = self.listener.accept().await.unwrap();
        self.acceptor.accept(tcp).await
    }
}

fn signer() -> Signer {
    Signer {
        relay: RelayId::from_bytes([0x12; 16]),
        key: Key::generate().unwrap(),
    }
}

/// A request as the hub reads it off the connection.
struct Read {
    head: String,
    body: Vec<u8>,
    exporter: [u8; 32],
}

impl Read {
    async fn from(stream: &mut TlsStream<TcpStream>) -> Read {
        let exporter = stream
            .get_ref()
            .1
            .export_keying_material([0; 32], EXPORTER_LABEL, Some(&[]))
            .unwrap();
        let mut bytes = Vec::new();
        let end = loop {
            let read = stream.read_buf(&mut bytes).await.unwrap();
            assert!(read > 0, "the connection ended in a request");
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end;
            }
        };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut body = bytes.split_off(end + 4);
        let read = Read {
            head,
            body: vec![],
            exporter,
        };
        let length = read
            .header("content-length")
            .map_or(0, |digits| digits.parse().unwrap());
        while body.len() < length {
            stream.read_buf(&mut body).await.unwrap();
        }
        Read { body, ..read }
    }

    fn header(&self, name: &str) -> Option<String> {
        let line = |line: &str| {
            let (key, value) = line.split_once(": ")?;
            (key.eq_ignore_ascii_case(name)).then(|| value.to_owned())
        };
        self.head.lines().find_map(line)
    }

    /// The signature, checked as the hub checks it.
    fn is_signed_by(&self, signer: &Signer) -> bool {
        let mut line = self.head.lines().next().unwrap().split(' ');
        let (method, path) = (line.next().unwrap(), line.next().unwrap());
        let body_sha256: [u8; 32] = digest(&SHA256, &self.body).as_ref().try_into().unwrap();
        let message = client_request(&ClientRequest {
            relay: signer.relay,
            method,
            path,
            body_sha256: &body_sha256,
            time: self.header("vk-time").unwrap().parse().unwrap(),
            channel: Channel::Tls(self.exporter),
        });
        let signature: [u8; 64] = hex::read(&self.header("vk-signature").unwrap()).unwrap();
        let key = UnparsedPublicKey::new(&ED25519, signer.key.public().0);
        self.header("vk-relay").unwrap() == signer.relay.to_string()
            && key.verify(&message, &signature).is_ok()
    }
}

async fn answer(stream: &mut TlsStream<TcpStream>, status: &str, headers: &str, body: &str) {
    let length = body.len();
    let text = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n{body}");
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
}

fn job() -> JobId {
    JobId::from_bytes([9; 16])
}

/// AUTH-02, AUTH-04, AUTH-10, AUTH-11
#[tokio::test]
async fn each_request_is_signed_for_its_own_connection() {
    let hub = Hub::listen().await;
    let client = Client::new(hub.dialer(), signer());
    let mut exporters = Vec::new();
    for _ in 0..2 {
        let serve = async {
            let mut stream = hub.accept().await.unwrap();
            let read = Read::from(&mut stream).await;
            answer(&mut stream, "204 No Content", "", "").await;
            read
        };
        let (settled, read) = tokio::join!(client.settle(job()), serve);
        settled.unwrap();
        assert!(
            read.head
                .starts_with(&format!("POST /v1/jobs/{}/settle HTTP/1.1", job()))
        );
        assert!(read.is_signed_by(client.signer()));
        exporters.push(read.exporter);
    }
    assert_ne!(exporters[0], exporters[1], "a connection each");
}

/// AUTH-09
#[tokio::test]
async fn a_signature_does_not_fit_another_connection() {
    let hub = Hub::listen().await;
    let client = Client::new(hub.dialer(), signer());
    let serve = async {
        let mut stream = hub.accept().await.unwrap();
        let read = Read::from(&mut stream).await;
        answer(&mut stream, "204 No Content", "", "").await;
        read
    };
    let (_, read) = tokio::join!(client.settle(job()), serve);
    let elsewhere = Read {
        exporter: [1; 32],
        ..read
    };
    assert!(!elsewhere.is_signed_by(client.signer()));
}

/// AUTH-01
#[tokio::test]
async fn tls_1_3_alone_is_offered() {
    let hub = Hub::listen().await;
    let dialer = hub.dialer();
    let listen = async {
        let (mut tcp, _) = hub.listener.accept().await.unwrap();
        let mut hello = vec![0; 4096];
        let read = tcp.read(&mut hello).await.unwrap();
        hello.truncate(read);
        hello
    };
    let (dialled, hello) = tokio::join!(dialer.dial(), listen);
    assert!(dialled.is_err());
    // Extension 43, supported_versions: three bytes, of which a list of one version, 0x0304.
    let offered = [0x00, 0x2b, 0x00, 0x03, 0x02, 0x03, 0x04];
    assert!(hello.windows(offered.len()).any(|window| window == offered));
}

/// ENR-20
#[tokio::test]
async fn a_key_hash_trusts_exactly_its_ca_and_learns_it() {
    let hub = Hub::listen().await;
    let hash = spki_sha256(&hub.ca).unwrap();
    let dialer = Dialer::new(hub.url(), &Trust::KeyHash(hash)).unwrap();
    let (dialled, accepted) = tokio::join!(dialer.dial(), hub.accept());
    accepted.unwrap();
    assert!(dialled.is_ok());
    let pem = dialer.found_ca().unwrap();
    let again = Dialer::new(hub.url(), &Trust::Pem(pem.into_bytes())).unwrap();
    let (dialled, _) = tokio::join!(again.dial(), hub.accept());
    assert!(
        dialled.is_ok(),
        "the CA that was learnt serves from then on"
    );

    let other = Hub::listen().await;
    let stranger = Dialer::new(other.url(), &Trust::KeyHash(hash)).unwrap();
    let (dialled, _) = tokio::join!(stranger.dial(), other.accept());
    assert!(dialled.is_err());
    assert!(stranger.found_ca().is_none());
}

/// ENR-03
#[tokio::test]
async fn another_ca_than_the_trusted_one_is_refused() {
    let (hub, other) = (Hub::listen().await, Hub::listen().await);
    let trust = Trust::Pem(other.ca_pem.clone().into_bytes());
    let dialer = Dialer::new(hub.url(), &trust).unwrap();
    let (dialled, accepted) = tokio::join!(dialer.dial(), hub.accept());
    assert!(dialled.is_err() && accepted.is_err());
}

async fn refused(status: &str, headers: &str, body: &str) -> ApiError {
    let hub = Hub::listen().await;
    let client = Client::new(hub.dialer(), signer());
    let serve = async {
        let mut stream = hub.accept().await.unwrap();
        Read::from(&mut stream).await;
        answer(&mut stream, status, headers, body).await;
    };
    let (answered, ()) = tokio::join!(client.settle(job()), serve);
    answered.unwrap_err()
}

/// API-51, API-52, ERR-27, ERR-28, AUTH-20
#[tokio::test]
async fn a_refusal_says_whether_and_when_to_try_again() {
    let body = r#"{"error":"no room","code":"no_capacity","retry_after_secs":700}"#;
    let error = refused("503 Service Unavailable", "", body).await;
    assert_eq!(error.code(), Some(ErrorCode::NoCapacity));
    assert!(error.is_retryable());
    assert_eq!(error.retry_after(), Some(Duration::from_secs(60)), "capped");
    let error = refused("502 Bad Gateway", "", "<html>").await;
    assert!(error.is_retryable());
    let error = refused("408 Request Timeout", "", "").await;
    assert!(!error.is_retryable());
    let date = "date: Sun, 29 Nov 2026 22:00:00 GMT\r\n";
    let body = r#"{"error":"vk-time is off","code":"unauthorized"}"#;
    let error = refused("401 Unauthorized", date, body).await;
    let ApiError::Refused { date, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(date.as_deref(), Some("Sun, 29 Nov 2026 22:00:00 GMT"));
    assert!(!error.is_retryable());
}

/// API-67
#[tokio::test]
async fn a_truncated_body_counts_as_no_answer() {
    let hub = Hub::listen().await;
    let client = Client::new(hub.dialer(), signer());
    let serve = async {
        let mut stream = hub.accept().await.unwrap();
        Read::from(&mut stream).await;
        let head = "HTTP/1.1 200 OK\r\nvk-output-offset: 0\r\nvk-output-length: 5\r\ncontent-length: 5\r\n\r\nab";
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
    };
    let (answered, ()) = tokio::join!(client.output(job(), 0, 0), serve);
    let error = answered.unwrap_err();
    assert!(matches!(error, ApiError::Request(_)), "{error}");
    assert!(error.is_retryable());
}

/// API-37, API-38, API-39
#[tokio::test]
async fn output_comes_with_its_place() {
    let hub = Hub::listen().await;
    let client = Client::new(hub.dialer(), signer());
    let serve = async {
        let mut stream = hub.accept().await.unwrap();
        let read = Read::from(&mut stream).await;
        let headers = "vk-output-offset: 3\r\nvk-output-length: 5\r\nvk-output-complete: true\r\n";
        answer(&mut stream, "200 OK", headers, "de").await;
        let mut stream = hub.accept().await.unwrap();
        Read::from(&mut stream).await;
        answer(
            &mut stream,
            "416 Range Not Satisfiable",
            "vk-output-length: 5\r\n",
            "",
        )
        .await;
        read
    };
    let asking = async {
        (
            client.output(job(), 3, 60).await,
            client.output(job(), 9, 0).await,
        )
    };
    let ((first, second), read) = tokio::join!(asking, serve);
    assert!(
        read.head
            .contains(&format!("GET /v1/jobs/{}/output?offset=3&wait=60 ", job()))
    );
    let OutputRead::Bytes(output) = first.unwrap() else {
        panic!("bytes")
    };
    assert_eq!(
        (output.offset, output.length, output.complete),
        (3, 5, true)
    );
    assert_eq!(&output.bytes[..], b"de");
    assert_eq!(second.unwrap(), OutputRead::PastEnd { length: 5 });
}
