//! An image by a pull policy: from the store, or from its registry into it.

mod fetch;
mod waiting;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use vk_oci::{Client, Platform, Reference};

use crate::error::Error;
use crate::names::Named;
use crate::store::{Lease, Store};

pub use waiting::Patience;

/// When the registry is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    /// Each time; what is here already is not fetched again, and of what was imported under the name
    /// no registry is asked.
    Always,
    /// Where the image is not here.
    IfNotPresent,
    /// Never.
    Never,
}

impl fmt::Display for PullPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Always => "always",
            Self::IfNotPresent => "if-not-present",
            Self::Never => "never",
        })
    }
}

impl FromStr for PullPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "always" => Ok(Self::Always),
            "if-not-present" => Ok(Self::IfNotPresent),
            "never" => Ok(Self::Never),
            _ => Err("a pull policy is always, if-not-present or never".into()),
        }
    }
}

/// What is being done, to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// The registry is being asked.
    Pulling {
        /// For this image.
        image: String,
    },
    /// The registry has not answered so far.
    Waiting {
        /// Its host and port.
        registry: String,
        /// How long it was waited for.
        waited: Duration,
        /// After how long in all another policy is tried, and which; none where nothing but the
        /// registry has the image.
        then: Option<(Duration, PullPolicy)>,
    },
    /// Bytes of the layers so far.
    Fetched {
        /// Received.
        bytes: u64,
        /// Of all layers.
        of: u64,
    },
    /// The disk image is being built from the layers.
    Building {
        /// How many.
        layers: usize,
    },
    /// A policy failed and the next one is tried.
    NextPolicy {
        /// The one that failed.
        failed: PullPolicy,
        /// Why.
        why: String,
        /// The next.
        next: PullPolicy,
    },
}

/// An image at hand.
#[derive(Debug)]
pub struct Outcome {
    /// It stays while this is held.
    pub lease: Lease,
    /// Whether it was fetched just now.
    pub fetched: bool,
    /// Whether an import gave it its name.
    pub imported: bool,
    /// The policy that gave it.
    pub policy: PullPolicy,
}

/// Gets images into a store.
#[derive(Clone)]
pub struct Puller {
    store: Store,
    client: Arc<Client>,
    platform: Platform,
    /// Whether a registry is asked for names that an import gave, too.
    past_imports: bool,
    patience: Patience,
}

impl Puller {
    /// For images of one platform.
    pub fn new(store: Store, client: Client, platform: Platform) -> Self {
        Self {
            store,
            client: Arc::new(client),
            platform,
            past_imports: false,
            patience: Patience::default(),
        }
    }

    /// Waits for registries otherwise.
    #[must_use]
    pub fn patience(self, patience: Patience) -> Self {
        Self { patience, ..self }
    }

    /// Asks registries for imported names, too: whoever asks by hand means the registry's.
    #[must_use]
    pub fn past_imports(self) -> Self {
        Self {
            past_imports: true,
            ..self
        }
    }

    /// Gets an image by the first of the policies that can give it. `progress` is called now and then.
    ///
    /// # Errors
    /// The last policy's error: no such image, a registry that denies or fails, content that cannot
    /// be used, a full disk.
    pub async fn get(
        &self,
        image: &Reference,
        policies: &[PullPolicy],
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<Outcome, Error> {
        let mut left = policies.iter().copied().peekable();
        while let Some(policy) = left.next() {
            let error = match self.by(image, policy, left.clone(), progress).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            };
            let Some(next) = left.peek().copied() else {
                return Err(error);
            };
            let why = with_causes(&error);
            progress(Progress::NextPolicy {
                failed: policy,
                why,
                next,
            });
        }
        Err(Error::NoSuchImage {
            name: image.familiar(),
        })
    }

    async fn by(
        &self,
        image: &Reference,
        policy: PullPolicy,
        mut later: impl Iterator<Item = PullPolicy>,
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<Outcome, Error> {
        let outcome = |lease, fetched| Outcome {
            lease,
            fetched,
            imported: false,
            policy,
        };
        let imported = |named: &Named| named.registry_digest.is_none();
        if !self.past_imports
            && let Some(lease) = self.here(image, imported)?
        {
            // The operator said what the name means here; a registry may not even have it.
            return Ok(Outcome {
                imported: true,
                ..outcome(lease, false)
            });
        }
        // Nobody waits long for a registry to name what is here and will do.
        let fallback = match self.here(image, |_| true)? {
            Some(_) => later.find(|policy| *policy != PullPolicy::Always),
            None => None,
        };
        let patience = self.patience;
        let here = match policy {
            PullPolicy::Always => {
                progress(Progress::Pulling {
                    image: image.familiar(),
                });
                let asking = self.client.digest_of(image);
                let answer = patience.answer(image, fallback, progress, asking);
                let current = answer.await?;
                self.here(image, |named| named.registry_digest == Some(current))?
            }
            PullPolicy::IfNotPresent | PullPolicy::Never => self.here(image, |_| true)?,
        };
        if let Some(lease) = here {
            return Ok(outcome(lease, false));
        }
        if policy == PullPolicy::Never {
            return Err(Error::NoSuchImage {
                name: image.familiar(),
            });
        }
        if policy == PullPolicy::IfNotPresent {
            progress(Progress::Pulling {
                image: image.familiar(),
            });
        }
        let asking = self.client.resolve(image, &self.platform);
        let answer = patience.answer(image, fallback, progress, asking);
        let found = answer.await?;
        let named = Named {
            digest: found.digest,
            registry_digest: Some(found.named),
        };
        if let Some(lease) = self.store.name(image.clone(), named)? {
            return Ok(outcome(lease, false));
        }
        let lease = self.fetch(found, progress).await?;
        Ok(outcome(lease, true))
    }

    /// The image of this name if it is here, for this platform, and as wanted.
    fn here(
        &self,
        image: &Reference,
        wanted: impl Fn(&Named) -> bool,
    ) -> Result<Option<Lease>, Error> {
        if self.store.named(image)?.filter(wanted).is_none() {
            return Ok(None);
        }
        match self.store.lease(&image.to_string()) {
            Ok(lease) => {
                Ok(Some(lease).filter(|lease| lease.record().platform.serves(&self.platform)))
            }
            Err(Error::NoSuchImage { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
