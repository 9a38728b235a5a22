//! A client of registries: requests, retries, redirects, and what an image is made of.

mod authorize;
mod request;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::Method;

use crate::answer::{self, BodyError};
use crate::config::ImageConfig;
use crate::digest::Digest;
use crate::error::Error;
use crate::keychain::Keychain;
use crate::manifest::{Document, Manifest, ManifestError, limits};
use crate::near::{Elsewhere, Near};
use crate::origin::Origins;
use crate::platform::Platform;
use crate::reference::Reference;
use crate::token::Tokens;
pub(crate) use request::{Ask, Payload, is_transient, retry_after};

/// Documents we can use, in the order we like them.
const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.docker.distribution.manifest.v2+json";

/// How registries are spoken to.
#[derive(Clone, Debug)]
pub struct Config {
    /// Credentials.
    pub keychain: Keychain,
    /// Registries (`host[:port]`) that may be spoken to in plain HTTP; no credential is sent there.
    /// Loopback needs no mention.
    pub insecure: BTreeSet<String>,
    /// Which registries at addresses of this host and its link are spoken to, token services and
    /// places that others send us to included.
    pub near: Near,
    /// Certificates of further authorities, PEM.
    pub authorities: Vec<Vec<u8>>,
    /// Tries of one request when the registry or the way to it fails.
    pub attempts: u32,
    /// The wait after the first failure; it doubles with each.
    pub back_off: Duration,
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// How long a connection may be silent. The answer to an upload comes after all of it was sent:
    /// who pushes much needs more than who pulls.
    pub idle_timeout: Duration,
    /// How long one request may take, its content included; none leaves that to the line.
    pub request_timeout: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            keychain: Keychain::default(),
            insecure: BTreeSet::new(),
            near: Near::All,
            authorities: Vec::new(),
            attempts: 4,
            back_off: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            request_timeout: None,
        }
    }
}

/// An image found at its registry.
#[derive(Clone, Debug)]
pub struct Image {
    /// As it was asked for.
    pub reference: Reference,
    /// What the reference points to: an index or the manifest itself.
    pub named: Digest,
    /// The manifest's digest: the image's identity.
    pub digest: Digest,
    /// The manifest.
    pub manifest: Manifest,
    /// The configuration.
    pub config: ImageConfig,
    /// The configuration as the registry sent it.
    pub config_bytes: Vec<u8>,
}

/// Fetches from registries.
pub struct Client {
    /// Set up with the first request: reading a host's certificate authorities takes longer than all
    /// else that a job whose image is here needs of it.
    connectors: OnceLock<Connectors>,
    pub(crate) origins: Origins,
    pub(crate) config: Config,
    pub(crate) tokens: Tokens,
}

/// What requests travel by.
struct Connectors {
    http: reqwest::Client,
    /// For loopback.
    local: reqwest::Client,
    /// For whatever is not named, where not everything near is gone to.
    elsewhere: Option<reqwest::Client>,
    /// Whether anybody's certificate can be verified: a host may have no authorities.
    verifies: bool,
}

impl Connectors {
    fn new(config: &Config) -> Result<Self, Error> {
        let (http, verifies) = connector(config, reqwest::Client::builder)?;
        // As Go does: a proxy of the environment is no way to this host itself.
        let (local, _) = connector(config, || reqwest::Client::builder().no_proxy())?;
        let elsewhere = match &config.near {
            // Where a proxy decides the way, it is asked, wherever it is.
            Near::Named(_) if !has_proxy() => {
                let builder = || reqwest::Client::builder().dns_resolver(Arc::new(Elsewhere));
                Some(connector(config, builder)?.0)
            }
            _ => None,
        };
        Ok(Self {
            http,
            local,
            elsewhere,
            verifies,
        })
    }
}

impl Client {
    /// Sets a client up. The host's certificate authorities are read with the first request, those of
    /// `config` at once.
    ///
    /// # Errors
    /// Authorities that cannot be read.
    pub fn new(config: Config) -> Result<Self, Error> {
        let connectors = OnceLock::new();
        if !config.authorities.is_empty() {
            let made = Connectors::new(&config)?;
            connectors.get_or_init(|| made);
        }
        let origins = Origins {
            insecure: config.insecure.clone(),
        };
        Ok(Self {
            connectors,
            origins,
            config,
            tokens: Tokens::default(),
        })
    }

    fn connectors(&self) -> Result<&Connectors, Error> {
        if let Some(made) = self.connectors.get() {
            return Ok(made);
        }
        let made = Connectors::new(&self.config)?;
        Ok(self.connectors.get_or_init(|| made))
    }

    /// What a reference points to now, without fetching it where the registry says it in a header.
    ///
    /// # Errors
    /// An image that is not there or not for us, a registry that fails.
    pub async fn digest_of(&self, image: &Reference) -> Result<Digest, Error> {
        if let Some(digest) = image.digest() {
            return Ok(digest);
        }
        let path = manifest_path(image);
        let ask = Ask {
            method: Method::HEAD,
            ..Ask::manifest(&path, ACCEPT)
        };
        let response = self.send(image, &ask).await?;
        match said_digest(&response) {
            Some(digest) => Ok(digest),
            None => self
                .document(image, &manifest_path(image), None)
                .await
                .map(|(digest, _)| digest),
        }
    }

    /// Finds an image for a platform: through an index where there is one, down to its manifest and
    /// configuration. Everything is checked against its digest.
    ///
    /// # Errors
    /// An image that is not there, not for us, not for this platform or not usable; a registry that
    /// fails.
    pub async fn resolve(&self, image: &Reference, wanted: &Platform) -> Result<Image, Error> {
        let (named, mut document) = self
            .document(image, &manifest_path(image), image.digest())
            .await?;
        let mut digest = named;
        // An index may hold indexes, but not without end.
        for _ in 0..3 {
            let index = match document {
                Document::Manifest(manifest) => {
                    let found = self.with_config(image, named, digest, manifest).await?;
                    return for_platform(found, wanted);
                }
                Document::Index(index) => index,
            };
            let Some(entry) = index.choose(wanted) else {
                let available = index.platforms();
                return Err(Error::Platform {
                    image: image.familiar(),
                    wanted: wanted.to_string(),
                    available,
                });
            };
            digest = entry.digest;
            let path = format!("manifests/{digest}");
            (_, document) = self.document(image, &path, Some(digest)).await?;
        }
        Err(Error::Document {
            image: image.familiar(),
            source: ManifestError::Kind,
        })
    }

    async fn with_config(
        &self,
        image: &Reference,
        named: Digest,
        digest: Digest,
        manifest: Manifest,
    ) -> Result<Image, Error> {
        let wanted = manifest.config.digest;
        let path = format!("blobs/{wanted}");
        let bytes = self
            .small(image, &Ask::blob(&path, 0), limits::CONFIG_BYTES)
            .await?;
        check(image, wanted, &bytes)?;
        let unusable = |source| Error::Document {
            image: image.familiar(),
            source,
        };
        let config = ImageConfig::parse(&bytes).map_err(unusable)?;
        config.check_layers(&manifest).map_err(unusable)?;
        Ok(Image {
            reference: image.clone(),
            named,
            digest,
            manifest,
            config,
            config_bytes: bytes,
        })
    }

    /// A manifest or index, its digest checked where one was asked for.
    async fn document(
        &self,
        image: &Reference,
        path: &str,
        wanted: Option<Digest>,
    ) -> Result<(Digest, Document), Error> {
        let bytes = self
            .small(image, &Ask::manifest(path, ACCEPT), limits::MANIFEST_BYTES)
            .await?;
        let digest = match wanted {
            Some(wanted) => {
                check(image, wanted, &bytes)?;
                wanted
            }
            None => Digest::of(&bytes),
        };
        let document = Document::parse(&bytes).map_err(|source| Error::Document {
            image: image.familiar(),
            source,
        })?;
        Ok((digest, document))
    }

    /// A body that fits in memory. A connection that breaks within it is tried again.
    async fn small(&self, image: &Reference, ask: &Ask<'_>, limit: u64) -> Result<Vec<u8>, Error> {
        let (bytes, _) = self.small_with_digest(image, ask, limit).await?;
        Ok(bytes)
    }

    /// The same, and the digest that the registry says it has.
    pub(crate) async fn small_with_digest(
        &self,
        image: &Reference,
        ask: &Ask<'_>,
        limit: u64,
    ) -> Result<(Vec<u8>, Option<Digest>), Error> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut response = self.send(image, ask).await?;
            match answer::body(&mut response, limit).await {
                Ok(bytes) => return Ok((bytes, said_digest(&response))),
                Err(BodyError::TooLong) => {
                    let what = format!("a document of more than {limit} bytes");
                    return Err(Error::Size {
                        image: image.familiar(),
                        what,
                    });
                }
                Err(BodyError::Broken(source)) if attempt >= self.config.attempts => {
                    return Err(request::unreachable(image, response.url(), source));
                }
                Err(BodyError::Broken(_)) => self.back_off(attempt, None).await,
            }
        }
    }
}

/// What a registry says that a manifest hashes to.
fn said_digest(response: &reqwest::Response) -> Option<Digest> {
    let header = response.headers().get("docker-content-digest")?;
    header.to_str().ok()?.parse().ok()
}

/// A manifest behind no index says in its configuration what it is for.
fn for_platform(found: Image, wanted: &Platform) -> Result<Image, Error> {
    let said = &found.config.platform;
    if said.os.is_empty() || said.serves(wanted) {
        return Ok(found);
    }
    let (image, available) = (found.reference.familiar(), vec![said.to_string()]);
    Err(Error::Platform {
        image,
        wanted: wanted.to_string(),
        available,
    })
}

/// A connection's maker, and whether it can verify certificates. Without authorities on the host there
/// is one all the same: registries in plain HTTP need none, nor does an image that is here.
fn connector(
    config: &Config,
    builder: impl Fn() -> reqwest::ClientBuilder,
) -> Result<(reqwest::Client, bool), Error> {
    let setup = |error: reqwest::Error| Error::Setup {
        what: error.to_string(),
    };
    let mut authorities = Vec::new();
    for pem in &config.authorities {
        authorities.extend(reqwest::Certificate::from_pem_bundle(pem).map_err(setup)?);
    }
    let builder = || {
        builder()
            .user_agent(concat!("vk/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .connect_timeout(config.connect_timeout)
            .read_timeout(config.idle_timeout)
    };
    let verifying = match authorities.is_empty() {
        true => builder(),
        false => builder().tls_certs_merge(authorities),
    };
    let error = match verifying.build() {
        Ok(client) => return Ok((client, true)),
        Err(error) => error,
    };
    match builder().tls_certs_only([]).build() {
        Ok(client) => Ok((client, false)),
        Err(_) => Err(setup(error)),
    }
}

/// Whether the environment names a proxy; where to go without one is none.
fn has_proxy() -> bool {
    let names = ["http_proxy", "https_proxy", "all_proxy"];
    names.iter().any(|name| {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|proxy| !proxy.is_empty());
        is_set(name) || is_set(&name.to_uppercase())
    })
}

fn manifest_path(image: &Reference) -> String {
    match image.digest() {
        Some(digest) => format!("manifests/{digest}"),
        None => format!("manifests/{}", image.tag().unwrap_or("latest")),
    }
}

fn check(image: &Reference, wanted: Digest, bytes: &[u8]) -> Result<(), Error> {
    let found = Digest::of(bytes);
    if found == wanted {
        return Ok(());
    }
    Err(Error::Digest {
        image: image.familiar(),
        wanted,
        found,
    })
}
