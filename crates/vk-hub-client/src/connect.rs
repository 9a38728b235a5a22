//! One connection to the hub, and what its signatures are bound to.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use vk_hub_proto::signed::{Channel, EXPORTER_LABEL};

use crate::tls::{self, FoundCa, TlsError, Trust};
use crate::url::HubUrl;

/// How long a connection may take, TLS included (API-67).
const CONNECT: Duration = Duration::from_secs(10);

/// Both directions of a connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// An open connection.
pub struct Connection {
    /// The bytes.
    pub stream: Box<dyn Stream>,
    /// What signatures on it are bound to.
    pub channel: Channel,
}

/// A connection that did not come about.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No TCP connection.
    #[error("cannot connect to the hub at {to}")]
    Tcp {
        /// Host and port.
        to: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It took too long.
    #[error("the hub at {to} did not answer within {} s", CONNECT.as_secs())]
    TooSlow {
        /// Host and port.
        to: String,
    },
    /// TLS failed: mostly a certificate that the enrolled CA did not sign.
    #[error("no trusted TLS 1.3 connection to the hub at {to}")]
    Tls {
        /// Host and port.
        to: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The connection gave no exporter to sign by.
    #[error("the TLS connection to {to} has no exporter")]
    NoExporter {
        /// Host and port.
        to: String,
    },
    /// The host is no name that a certificate could hold.
    #[error("{host:?} is no name that a certificate can hold")]
    BadName {
        /// The host.
        host: String,
    },
}

/// Opens connections to one hub; sessions of TLS are resumed between them.
#[derive(Clone, Debug)]
pub struct Dialer {
    url: HubUrl,
    tls: Option<Arc<ClientConfig>>,
    found: FoundCa,
}

impl Dialer {
    /// A dialer to `url`, trusting `trust` where the URL is https.
    ///
    /// # Errors
    /// The CA cannot be used.
    pub fn new(url: HubUrl, trust: &Trust) -> Result<Dialer, TlsError> {
        if !url.is_tls() {
            return Ok(Dialer {
                url,
                tls: None,
                found: FoundCa::default(),
            });
        }
        let (config, found) = tls::client(trust)?;
        Ok(Dialer {
            url,
            tls: Some(config),
            found,
        })
    }

    /// Where it dials.
    #[must_use]
    pub const fn url(&self) -> &HubUrl {
        &self.url
    }

    /// The CA found by its key's hash, as PEM, once a connection has been verified against it.
    #[must_use]
    pub fn found_ca(&self) -> Option<String> {
        self.found.pem()
    }

    /// Opens a connection, within 10 s.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn dial(&self) -> Result<Connection, ConnectError> {
        let to = self.url.authority();
        match timeout(CONNECT, self.open(&to)).await {
            Ok(opened) => opened,
            Err(_) => Err(ConnectError::TooSlow { to }),
        }
    }

    async fn open(&self, to: &str) -> Result<Connection, ConnectError> {
        let tcp = TcpStream::connect((self.url.host(), self.url.port()))
            .await
            .and_then(|tcp| tcp.set_nodelay(true).map(|()| tcp))
            .map_err(|source| ConnectError::Tcp {
                to: to.to_owned(),
                source,
            })?;
        let Some(config) = &self.tls else {
            return Ok(Connection {
                stream: Box::new(tcp),
                channel: Channel::Plaintext,
            });
        };
        let name = ServerName::try_from(self.url.host().to_owned()).map_err(|_| {
            ConnectError::BadName {
                host: self.url.host().to_owned(),
            }
        })?;
        let stream = TlsConnector::from(Arc::clone(config))
            .connect(name, tcp)
            .await
            .map_err(|source| ConnectError::Tls {
                to: to.to_owned(),
                source,
            })?;
        let exporter = stream
            .get_ref()
            .1
            .export_keying_material([0; 32], EXPORTER_LABEL, Some(&[]))
            .map_err(|_| ConnectError::NoExporter { to: to.to_owned() })?;
        Ok(Connection {
            stream: Box::new(stream),
            channel: Channel::Tls(exporter),
        })
    }
}
