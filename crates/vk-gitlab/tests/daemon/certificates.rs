//! A GitLab behind TLS of its own, which may want certificates of those who come.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::gitlab::VERIFY;
use crate::log::Log;
use crate::world::{Running, World};

/// A CA, and what it signs.
struct Authority {
    pem: String,
    acceptor: TlsAcceptor,
    /// A client's certificate and key, PEM.
    client: (String, String),
}

/// A CA and a GitLab that shows its certificate; clients need one of theirs, or may do without.
fn authority(demanding: bool) -> Authority {
    let ca_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = params.self_signed(&ca_key).unwrap();
    let issuer = Issuer::new(params, ca_key);
    let signed = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (leaf.signed_by(&key, &issuer).unwrap(), key)
    };
    let mut roots = RootCertStore::empty();
    roots.add(ca.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let clients =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let clients = match demanding {
        true => clients.build().unwrap(),
        false => clients.allow_unauthenticated().build().unwrap(),
    };
    let (leaf, key) = signed("127.0.0.1");
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(
            vec![leaf.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let (leaf, key) = signed("client");
    Authority {
        pem: ca.pem(),
        acceptor: TlsAcceptor::from(Arc::new(config)),
        client: (leaf.pem(), key.serialize_pem()),
    }
}

async fn world(authority: &Authority) -> World {
    let world = World::with(Some(authority.acceptor.clone())).await;
    for (name, text) in [
        ("ca.pem", &authority.pem),
        ("cert.pem", &authority.client.0),
        ("key.pem", &authority.client.1),
    ] {
        std::fs::write(world.path(name), text).unwrap();
        let closed = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(world.path(name), closed).unwrap();
    }
    world
}

const CA: &str = "tls_ca_file = 'ca.pem'\n";
const CLIENT: &str = "tls_cert_file = 'cert.pem'\ntls_key_file = 'key.pem'\n";

async fn end(daemon: Running) {
    daemon.stop().await;
    daemon.stop().await;
    daemon.ended().await;
}

/// CFG-08
#[tokio::test]
async fn a_gitlab_of_a_private_ca_is_spoken_to_and_jobs_get_that_ca() {
    let authority = authority(false);
    let world = world(&authority).await;
    world.add_to_configuration(CA);
    world.queue(1);
    let daemon = world.start();
    world.running(1).await;
    world.hub.look(|state| {
        let job = state.jobs.values().next().unwrap();
        assert_eq!(job.submission["spec"]["server_ca_pem"], authority.pem);
    });
    end(daemon).await;
}

/// CFG-16
#[tokio::test]
async fn a_gitlab_that_demands_certificates_fails_jobs_at_once_and_no_node_sees_ours() {
    let authority = authority(true);
    let world = world(&authority).await;
    world.add_to_configuration(&format!("{CA}{CLIENT}"));
    let (log, _guard) = Log::start();
    world.queue(1);
    let daemon = world.start();
    world.over(1).await;
    world.gitlab.look(|state| {
        assert_eq!(state.count(VERIFY), 1, "the bare one came to nothing");
        let end = state.states[&1].last().unwrap();
        assert_eq!(end["state"], "failed");
        let trace = String::from_utf8_lossy(&state.traces[&1]);
        assert!(trace.contains("client certificate"), "{trace}");
    });
    world.hub.look(|state| assert!(state.jobs.is_empty()));
    assert_eq!(log.lines(&["ERROR", "client certificate", "ci"]).len(), 1);
    end(daemon).await;
}

/// CFG-16
#[tokio::test]
async fn a_certificate_that_gitlab_does_not_demand_stays_with_the_daemon() {
    let authority = authority(false);
    let world = world(&authority).await;
    world.add_to_configuration(&format!("{CA}{CLIENT}"));
    world.queue(1);
    let daemon = world.start();
    world.running(1).await;
    world.hub.look(|state| {
        let submission = state.jobs.values().next().unwrap().submission.to_string();
        for secret in [&authority.client.0, &authority.client.1] {
            let line = secret.lines().nth(1).unwrap();
            assert!(!submission.contains(line));
        }
    });
    end(daemon).await;
}

/// CFG-08, ADM-13
#[tokio::test]
async fn a_ca_file_with_other_content_takes_effect_with_the_reload() {
    let (authority, other) = (authority(false), authority(false));
    let world = world(&authority).await;
    std::fs::write(world.path("ca.pem"), &other.pem).unwrap();
    world.add_to_configuration(CA);
    world.queue(1);
    let mut daemon = world.start();
    std::fs::write(world.path("ca.pem"), &authority.pem).unwrap();
    let word = daemon.operator.reload();
    daemon.say(word).await;
    world.running(1).await;
    world.hub.look(|state| {
        let job = state.jobs.values().next().unwrap();
        assert_eq!(job.submission["spec"]["server_ca_pem"], authority.pem);
    });
    end(daemon).await;
}
