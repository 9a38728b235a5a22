//! GitLab's key in the report, from a TLS connection on.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use gitlab_runner_api::{Client, Identity, Info, Leaf, TlsFiles, VerifyOutcome};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PublicKeyData as _};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use vk_hub_proto::hex::Hex;
use vk_hub_proto::relay_session::RelayMessage;

use crate::hub::Hub;
use crate::{Daemon, about};

/// A CA, and its file.
struct Ca {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
}

impl Ca {
    fn new(dir: &Path) -> Ca {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let file = dir.join("ca.pem");
        std::fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
        let issuer = Issuer::new(params, key);
        Ca { issuer, file }
    }

    /// A GitLab under a fresh key, which takes one token; its port, and the key's hash.
    fn gitlab(&self) -> (u16, [u8; 32]) {
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
        let leaf = leaf.signed_by(&key, &self.issuer).unwrap();
        let hash = digest(&SHA256, &key.subject_public_key_info());
        let secret = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], secret)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (tcp, _) = listener.accept().unwrap();
            let tls = ServerConnection::new(Arc::new(config)).unwrap();
            let mut stream = StreamOwned::new(tls, tcp);
            let mut request = Vec::new();
            let mut bytes = [0; 4096];
            while !request.ends_with(b"}") {
                let read = stream.read(&mut bytes).unwrap();
                request.extend_from_slice(&bytes[..read]);
            }
            let answer =
                "HTTP/1.1 200 OK\r\ncontent-length: 8\r\nconnection: close\r\n\r\n{\"id\":1}";
            stream.write_all(answer.as_bytes()).unwrap();
            stream.flush().unwrap();
        });
        (port, hash.as_ref().try_into().unwrap())
    }

    async fn verify(&self, port: u16, leaf: &Leaf) {
        let identity = Identity {
            token: "glrt-t1_abcdefghijkl".into(),
            system_id: "r_abcdefghijkl".into(),
            info: Info::new("1.0", "test"),
        };
        let tls = TlsFiles {
            ca: Some(self.file.clone()),
            client: None,
        };
        let base = format!("https://127.0.0.1:{port}").parse().unwrap();
        let client = Client::new(base, identity, &tls).unwrap();
        let verified = client.with_leaf(leaf.clone()).verify().await;
        assert!(matches!(verified, VerifyOutcome::Taken(_)), "{verified:?}");
    }
}

/// SESS-04, SESS-28
#[tokio::test]
async fn a_report_waits_for_gitlabs_key_and_a_renewed_key_is_reported_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::new(dir.path());
    let leaf = Leaf::default();
    let hub = Hub::start().await;
    let mut daemon = Daemon::with(&hub, about(leaf.watch(), true));
    let mut session = daemon.while_(hub.session(300)).await;
    let first = daemon.while_(session.hears()).await;
    assert!(
        matches!(first, RelayMessage::Heartbeat { .. }),
        "a server without its key would be another one: {first:?}"
    );
    let mut seen = Vec::new();
    for _ in 0..2 {
        let (port, hash) = ca.gitlab();
        ca.verify(port, &leaf).await;
        let report = daemon.while_(session.report()).await;
        assert_eq!(report.server.spki_sha256, Some(Hex(hash)));
        seen.push(hash);
    }
    assert_ne!(seen[0], seen[1]);
}
