//! Why a pull failed, said so that one can act on it.

use std::io;

use crate::digest::Digest;
use crate::manifest::ManifestError;

/// What went wrong at or with a registry.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// 404.
    #[error(
        "no image {image} at its registry (manifest unknown): check name and tag, and that the image was pushed"
    )]
    NotFound {
        /// The image.
        image: String,
    },
    /// 401 or 403, with the credentials there were.
    #[error("access to {image} denied by {by}, {}: {message}", if *.with_credential { "with credentials" } else { "asked without credentials; a private image needs some, and some registries deny what does not exist" })]
    Denied {
        /// The image.
        image: String,
        /// The registry, or its token service.
        by: String,
        /// Whether a credential was sent.
        with_credential: bool,
        /// What the other side says.
        message: String,
    },
    /// 429, after waiting as asked.
    #[error(
        "{registry} refuses {image} for now (too many requests): wait, use credentials, or import the image"
    )]
    RateLimited {
        /// The image.
        image: String,
        /// Where.
        registry: String,
    },
    /// No connection, a broken one, or one that is silent.
    #[error("{at} cannot be reached for {image}")]
    Unreachable {
        /// The image.
        image: String,
        /// Host and port.
        at: String,
        /// Why.
        source: reqwest::Error,
    },
    /// An answer nobody should give.
    #[error("{at} answers {status} for {image}: {message}")]
    Answer {
        /// The image.
        image: String,
        /// Host and port.
        at: String,
        /// The HTTP status.
        status: u16,
        /// What the other side says.
        message: String,
    },
    /// Content that is not what its digest says.
    #[error("{image}: the registry sent a content that is not {wanted} but {found}")]
    Digest {
        /// The image.
        image: String,
        /// Asked for.
        wanted: Digest,
        /// Received.
        found: Digest,
    },
    /// A content longer or shorter than announced, or above a limit.
    #[error("{image}: the registry sent {what}")]
    Size {
        /// The image.
        image: String,
        /// What is wrong with the size.
        what: String,
    },
    /// A place that is not gone to.
    #[error("{image}: {what}")]
    Refused {
        /// The image.
        image: String,
        /// What would have been done, and what allows it.
        what: String,
    },
    /// A place on this host or its link, which only a job names.
    #[error(
        "{image} is not asked for: {at} is {address}, an address of the node or of its link, and the node's owner names it nowhere. Where it speaks plain HTTP, add \"{at}\" to [registry] insecure (--insecure of vk job run); else add \"{at}/**\" to [executor] allowed_images, and \"**\" beside it where that was empty, since it allows nothing else"
    )]
    Near {
        /// The image.
        image: String,
        /// Host and port.
        at: String,
        /// The address.
        address: std::net::IpAddr,
    },
    /// A document that cannot be used.
    #[error("{image} cannot be used")]
    Document {
        /// The image.
        image: String,
        /// Why.
        source: ManifestError,
    },
    /// Nothing for this platform.
    #[error("{image} has nothing for {wanted}, only for {}", .available.join(", "))]
    Platform {
        /// The image.
        image: String,
        /// Asked for.
        wanted: String,
        /// What there is.
        available: Vec<String>,
    },
    /// Our own side.
    #[error("storing a part of {image} failed")]
    Local {
        /// The image.
        image: String,
        /// Why.
        source: io::Error,
    },
    /// A client that could not be set up.
    #[error("setting up the registry client failed: {what}")]
    Setup {
        /// Why.
        what: String,
    },
}

/// The kind of a failed pull, for whoever decides what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The image is not there.
    Missing,
    /// It is not for us.
    Access,
    /// The registry or the way to it fails; another try may help.
    Transient,
    /// What the registry sends cannot be used.
    Content,
    /// This host's settings or disk.
    Local,
}

impl Error {
    /// Its kind.
    pub fn failure(&self) -> Failure {
        match self {
            Self::NotFound { .. } => Failure::Missing,
            Self::Denied { .. } => Failure::Access,
            Self::RateLimited { .. } | Self::Unreachable { .. } => Failure::Transient,
            Self::Answer { status, .. } if *status >= 500 || *status == 408 => Failure::Transient,
            Self::Answer { .. }
            | Self::Digest { .. }
            | Self::Size { .. }
            | Self::Document { .. }
            | Self::Platform { .. } => Failure::Content,
            Self::Refused { .. } | Self::Near { .. } | Self::Local { .. } | Self::Setup { .. } => {
                Failure::Local
            }
        }
    }
}

/// A foreign text as it may be shown: one line, escaped, at most 200 characters.
pub(crate) fn shown(text: &str) -> String {
    let line: String = text.trim().chars().take(200).collect();
    line.escape_debug().to_string()
}
