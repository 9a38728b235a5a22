//! The listener's TLS, and the CA that `init` makes.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// TLS that cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file failed.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A file holds something else.
    #[error("{} holds no {what} in PEM", path.display())]
    NoPem {
        /// Which.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },
    /// Certificate and key do not make a server.
    #[error("certificate and key cannot be used")]
    Unusable(#[source] rustls::Error),
    /// A certificate could not be made.
    #[error("no certificate can be made")]
    Make(#[source] rcgen::Error),
    /// There is one already.
    #[error("{} is there already: this hub has been set up", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
}

/// The files of a CA and its server certificate.
#[derive(Clone, Debug)]
pub struct Files {
    /// The CA's certificate.
    pub ca: PathBuf,
    /// The CA's key.
    pub ca_key: PathBuf,
    /// The server's certificate, with the CA's behind it.
    pub cert: PathBuf,
    /// The server's key.
    pub key: PathBuf,
}

impl Files {
    /// Those below a data directory.
    #[must_use]
    pub fn below(data_dir: &Path) -> Files {
        let tls = data_dir.join("tls");
        Files {
            ca: tls.join("ca.pem"),
            ca_key: tls.join("ca.key"),
            cert: tls.join("server.pem"),
            key: tls.join("server.key"),
        }
    }

    /// Makes a CA and a certificate for these names.
    ///
    /// # Errors
    /// They are there already, or a file cannot be written.
    pub fn make(&self, names: Vec<String>) -> Result<(), TlsError> {
        if self.ca.exists() {
            return Err(TlsError::Exists {
                path: self.ca.clone(),
            });
        }
        let ca_key = KeyPair::generate().map_err(TlsError::Make)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = named("vk-hub CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca = params.self_signed(&ca_key).map_err(TlsError::Make)?;
        let issuer = Issuer::from_params(&params, &ca_key);
        let key = KeyPair::generate().map_err(TlsError::Make)?;
        let mut server = CertificateParams::new(names).map_err(TlsError::Make)?;
        server.distinguished_name = named("vk-hub");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let server = server.signed_by(&key, &issuer).map_err(TlsError::Make)?;
        if let Some(directory) = self.ca.parent() {
            private_dir(directory)?;
        }
        write(&self.ca_key, &ca_key.serialize_pem())?;
        write(&self.key, &key.serialize_pem())?;
        write(&self.cert, &format!("{}{}", server.pem(), ca.pem()))?;
        // Last: its presence says that all of them are there.
        write(&self.ca, &ca.pem())
    }
}

/// The server's TLS 1.3 configuration.
///
/// # Errors
/// A file cannot be read or used.
pub fn server(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = certificates(cert)?;
    let secret = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|_| TlsError::NoPem {
        path: key.to_owned(),
        what: "private key",
    })?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(TlsError::Unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(TlsError::Unusable)?;
    Ok(Arc::new(config))
}

/// SHA-256 of the key of the last certificate in a chain: the CA's (ENR-14).
///
/// # Errors
/// The file cannot be read or holds no certificate.
pub fn ca_key_sha256(cert: &Path) -> Result<[u8; 32], TlsError> {
    let no_pem = || TlsError::NoPem {
        path: cert.to_owned(),
        what: "certificate",
    };
    let chain = certificates(cert)?;
    vk_hub_client::spki_sha256(chain.last().ok_or_else(no_pem)?).ok_or_else(no_pem)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let no_pem = || TlsError::NoPem {
        path: path.to_owned(),
        what: "certificate",
    };
    let pem = read(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    chain
        .ok()
        .filter(|chain| !chain.is_empty())
        .ok_or_else(no_pem)
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// Makes a directory of mode 0700, and those above it, where they are missing.
///
/// # Errors
/// It cannot be made.
pub fn private_dir(path: &Path) -> Result<(), TlsError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| TlsError::File {
            action: "create",
            path: path.to_owned(),
            source,
        })
}

fn write(path: &Path, text: &str) -> Result<(), TlsError> {
    use std::io::Write as _;
    let fail = |source| TlsError::File {
        action: "write",
        path: path.to_owned(),
        source,
    };
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .map_err(fail)?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(fail)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::File {
        action: "read",
        path: path.to_owned(),
        source,
    })
}
