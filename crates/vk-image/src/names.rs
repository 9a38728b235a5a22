//! Names and what they stand for.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use vk_oci::{Digest, Reference};

use crate::durable;
use crate::error::Error;

/// Names at most.
const NAMES_MAX: usize = 65_536;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Named {
    /// The image.
    pub(crate) digest: Digest,
    /// What the registry's tag pointed to when it was pulled: the image, or an index of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) registry_digest: Option<Digest>,
}

/// `names.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Names {
    version: u32,
    names: BTreeMap<Reference, Named>,
}

impl Names {
    /// A file that is not there is an empty map; one that cannot be read is an error, since a name
    /// forgotten is an image removed.
    pub(crate) fn load(path: &Path) -> Result<Self, Error> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self {
                    version: 1,
                    names: BTreeMap::new(),
                });
            }
            Err(error) => return Err(Error::file("reading", path)(error)),
        };
        let damaged = |what: String| Error::Damaged {
            path: path.to_owned(),
            what,
        };
        let names: Self =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if names.version != 1 {
            return Err(damaged(format!(
                "it has version {}, and only 1 is known",
                names.version
            )));
        }
        Ok(names)
    }

    pub(crate) fn save(&self, path: &Path) -> Result<(), Error> {
        let damaged = |what: String| Error::Damaged {
            path: path.to_owned(),
            what,
        };
        if self.names.len() > NAMES_MAX {
            return Err(damaged(format!("more than {NAMES_MAX} names")));
        }
        let bytes = serde_json::to_vec_pretty(self).map_err(|error| damaged(error.to_string()))?;
        durable::write(path, &bytes)
    }

    pub(crate) fn get(&self, name: &Reference) -> Option<Named> {
        self.names.get(name).copied()
    }

    pub(crate) fn set(&mut self, name: Reference, named: Named) {
        self.names.insert(name, named);
    }

    pub(crate) fn remove(&mut self, name: &Reference) {
        self.names.remove(name);
    }

    /// All names of an image.
    pub(crate) fn of(&self, digest: Digest) -> Vec<Reference> {
        let is_its = |(_, named): &(&Reference, &Named)| named.digest == digest;
        self.names
            .iter()
            .filter(is_its)
            .map(|(name, _)| name.clone())
            .collect()
    }
}
