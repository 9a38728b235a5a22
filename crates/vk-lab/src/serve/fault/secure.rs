//! The server once more with TLS, with certificates that can be changed while it serves.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ServerConfig;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Most listeners with TLS.
const MAX_LISTENERS: usize = 16;

/// What one listener shows whoever connects next.
type Current = Arc<Mutex<Arc<ServerConfig>>>;

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub(in crate::serve) enum SecureError {
    #[error("cannot read {path}: {source}; give PEM files")]
    Pem {
        path: String,
        source: rustls::pki_types::pem::Error,
    },
    #[error("certificate and key cannot be used: {0}; do they belong together?")]
    Pair(#[from] rustls::Error),
    #[error("cannot listen on {addr}: {source}; choose another address")]
    Listen {
        addr: SocketAddr,
        source: std::io::Error,
    },
    #[error("there are {MAX_LISTENERS} listeners already")]
    TooMany,
}

/// Listeners with TLS, by address.
#[derive(Debug, Default)]
pub(in crate::serve) struct Secure {
    listeners: Mutex<BTreeMap<SocketAddr, Current>>,
}

/// A listener that waits to be served.
pub(in crate::serve) struct Opened {
    pub(in crate::serve) listener: TcpListener,
    pub(in crate::serve) addr: SocketAddr,
    current: Current,
}

impl Opened {
    /// Who takes the next connection: with the certificate of the moment.
    pub(in crate::serve) fn acceptor(&self) -> Option<TlsAcceptor> {
        let config = self.current.lock().ok()?;
        Some(TlsAcceptor::from(Arc::clone(&config)))
    }
}

impl Secure {
    /// Listens on `addr`, or changes the certificate of the listener that is there.
    ///
    /// # Errors
    ///
    /// Why not; then what was there serves on.
    pub(in crate::serve) async fn open(
        &self,
        addr: SocketAddr,
        cert: &Path,
        key: &Path,
    ) -> Result<Option<Opened>, SecureError> {
        let config = Arc::new(config(cert, key)?);
        if let Ok(listeners) = self.listeners.lock() {
            if let Some(Ok(mut current)) = listeners.get(&addr).map(|current| current.lock()) {
                *current = config;
                return Ok(None);
            }
            if listeners.len() >= MAX_LISTENERS {
                return Err(SecureError::TooMany);
            }
        }
        let failed = |source| SecureError::Listen { addr, source };
        let listener = TcpListener::bind(addr).await.map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        let current = Arc::new(Mutex::new(config));
        if let Ok(mut listeners) = self.listeners.lock() {
            listeners.insert(addr, Arc::clone(&current));
        }
        Ok(Some(Opened {
            listener,
            addr,
            current,
        }))
    }
}

fn config(cert: &Path, key: &Path) -> Result<ServerConfig, SecureError> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |source| SecureError::Pem { path, source }
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(cert)
        .map_err(failed(cert))?
        .collect();
    let chain = chain.map_err(failed(cert))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(failed(key))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(config)
}
