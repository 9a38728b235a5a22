//! Whom to trust: TLS 1.3, one CA, nobody else.

use std::sync::{Arc, Mutex};

use aws_lc_rs::digest;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// What a program trusts the hub by.
#[derive(Clone, Debug)]
pub enum Trust {
    /// These certificates, PEM: the CA kept at joining, or the one `--ca` named (ENR-03).
    Pem(Vec<u8>),
    /// Exactly the CA whose key has this hash, as the enrolment token says (ENR-20). The hub sends
    /// that CA in its chain.
    KeyHash([u8; 32]),
}

/// TLS that could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The CA file holds no certificate.
    #[error("the CA file holds no certificate in PEM")]
    NoCertificate,
    /// The certificates cannot serve as roots.
    #[error("the CA's certificate cannot be used")]
    BadCertificate(#[source] Error),
    /// The verifier could not be built.
    #[error("no verifier can be built from the CA's certificate")]
    NoVerifier(#[source] rustls::client::VerifierBuilderError),
    /// TLS 1.3 is missing.
    #[error("TLS 1.3 is not available")]
    NoTls13(#[source] Error),
}

/// SHA-256 of the SubjectPublicKeyInfo of a certificate in DER; none where that does not parse.
#[must_use]
pub fn spki_sha256(certificate: &[u8]) -> Option<[u8; 32]> {
    let certificate = CertificateDer::from(certificate);
    let parsed = webpki::EndEntityCert::try_from(&certificate).ok()?;
    let hash = digest::digest(&digest::SHA256, parsed.subject_public_key_info().as_ref());
    hash.as_ref().try_into().ok()
}

/// The configuration, and the place where a CA found by its hash is left.
pub(crate) fn client(trust: &Trust) -> Result<(Arc<ClientConfig>, FoundCa), TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let found = FoundCa::default();
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(TlsError::NoTls13)?;
    let config = match trust {
        Trust::Pem(pem) => {
            let verifier = verifier(&roots(pem)?, &provider)?;
            builder.with_webpki_verifier(verifier)
        }
        Trust::KeyHash(hash) => {
            let verifier = ByKeyHash {
                hash: *hash,
                provider: Arc::clone(&provider),
                found: found.clone(),
            };
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
        }
    };
    Ok((Arc::new(config.with_no_client_auth()), found))
}

fn roots(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(TlsError::NoCertificate),
    }
}

fn verifier(
    roots: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root.clone()).map_err(TlsError::BadCertificate)?;
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider))
        .build()
        .map_err(TlsError::NoVerifier)
}

/// The CA that a connection was verified against, when only its key's hash was known before.
#[derive(Clone, Debug, Default)]
pub(crate) struct FoundCa(Arc<Mutex<Option<CertificateDer<'static>>>>);

impl FoundCa {
    fn set(&self, certificate: CertificateDer<'static>) {
        *self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(certificate);
    }

    /// The certificate as PEM.
    pub(crate) fn pem(&self) -> Option<String> {
        use base64::Engine as _;
        let found = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let text = base64::engine::general_purpose::STANDARD.encode(found.as_ref()?);
        let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
        for line in text.as_bytes().chunks(64) {
            pem.extend(line.iter().copied().map(char::from));
            pem.push('\n');
        }
        pem.push_str("-----END CERTIFICATE-----\n");
        Some(pem)
    }
}

/// Verifies a chain against the one certificate in it whose key has the token's hash.
#[derive(Debug)]
struct ByKeyHash {
    hash: [u8; 32],
    provider: Arc<CryptoProvider>,
    found: FoundCa,
}

impl ServerCertVerifier for ByKeyHash {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let of_the_token = |one: &&CertificateDer<'_>| spki_sha256(one) == Some(self.hash);
        let ca = intermediates
            .iter()
            .find(of_the_token)
            .ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?
            .clone()
            .into_owned();
        let verifier = verifier(std::slice::from_ref(&ca), &self.provider)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let verified =
            verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp, now)?;
        self.found.set(ca);
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General(
            "TLS 1.2 is not spoken with a hub".to_owned(),
        ))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
