//! What joining leaves on disk: `key.pk8`, `ca.pem`, `enrollment.json` (ENR-05, ENR-16).

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vk_hub_proto::{NodeId, RelayId};

use crate::connect::Dialer;
use crate::file::{self, FileError};
use crate::key::{Key, KeyError};
use crate::tls::{TlsError, Trust};
use crate::url::{HubUrl, HubUrlError};

/// The kind of a member, which names its ID in `enrollment.json`.
pub trait Member: Copy + std::fmt::Display + std::str::FromStr {
    /// The key of the ID in the file.
    const FIELD: &'static str;
}

impl Member for RelayId {
    const FIELD: &'static str = "relay_id";
}

impl Member for NodeId {
    const FIELD: &'static str = "node_id";
}

/// An enrolment as it was read.
#[derive(Debug)]
pub struct Enrolment<Id> {
    /// The hub.
    pub hub: HubUrl,
    /// The ID it gave.
    pub id: Id,
    /// The pinned key.
    pub key: Key,
    /// The CA to trust, PEM; none on plain loopback.
    pub ca_pem: Option<Vec<u8>>,
}

/// An enrolment that cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum EnrolmentError {
    /// A file failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The key failed.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The file does not say what it must.
    #[error("{} is damaged ({why}): join again with --replace", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The hub's URL in the file.
    #[error(transparent)]
    Url(#[from] HubUrlError),
    /// The CA cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

#[derive(Serialize, Deserialize)]
struct OnDisk {
    hub: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    relay_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node_id: Option<String>,
    ca: bool,
}

/// The directory of an enrolment, mode 0700.
#[derive(Clone, Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// The directory at `path`, whether or not it is there.
    #[must_use]
    pub const fn at(path: PathBuf) -> Directory {
        Directory(path)
    }

    /// Whether somebody joined here.
    #[must_use]
    pub fn is_enrolled(&self) -> bool {
        self.enrolment().exists()
    }

    /// Keeps an enrolment: the key first, what names it last (ENR-16).
    ///
    /// # Errors
    /// A file could not be written.
    pub fn save<Id: Member>(&self, enrolment: &Enrolment<Id>) -> Result<(), EnrolmentError> {
        file::private_dir(&self.0)?;
        enrolment.key.save(&self.key())?;
        match &enrolment.ca_pem {
            Some(pem) => file::write(&self.ca(), pem)?,
            None => file::remove(&self.ca())?,
        }
        let id = |field| (Id::FIELD == field).then(|| enrolment.id.to_string());
        let on_disk = OnDisk {
            hub: enrolment.hub.to_string(),
            relay_id: id(RelayId::FIELD),
            node_id: id(NodeId::FIELD),
            ca: enrolment.ca_pem.is_some(),
        };
        let damaged = |why: serde_json::Error| self.damaged(&self.enrolment(), why.to_string());
        let json = serde_json::to_vec_pretty(&on_disk).map_err(damaged)?;
        Ok(file::write(&self.enrolment(), &json)?)
    }

    /// Reads the enrolment; none where nobody joined.
    ///
    /// # Errors
    /// A file is missing, unreadable or damaged.
    pub fn load<Id: Member>(&self) -> Result<Option<Enrolment<Id>>, EnrolmentError> {
        let path = self.enrolment();
        let Some(json) = file::read(&path)? else {
            return Ok(None);
        };
        let on_disk: OnDisk =
            serde_json::from_slice(&json).map_err(|why| self.damaged(&path, why.to_string()))?;
        let id = if Id::FIELD == RelayId::FIELD {
            on_disk.relay_id
        } else {
            on_disk.node_id
        };
        let id = id
            .and_then(|id| id.parse().ok())
            .ok_or_else(|| self.damaged(&path, format!("it names no {}", Id::FIELD)))?;
        let key = Key::load(&self.key())?
            .ok_or_else(|| self.damaged(&self.key(), "it is missing".to_owned()))?;
        let ca_pem = match on_disk.ca {
            true => Some(
                file::read(&self.ca())?
                    .ok_or_else(|| self.damaged(&self.ca(), "it is missing".to_owned()))?,
            ),
            false => None,
        };
        Ok(Some(Enrolment {
            hub: on_disk.hub.parse()?,
            id,
            key,
            ca_pem,
        }))
    }

    /// Deletes what joining left (ENR-06), what names it first.
    ///
    /// # Errors
    /// A file could not be removed.
    pub fn remove(&self) -> Result<(), EnrolmentError> {
        for path in [self.enrolment(), self.ca(), self.key()] {
            file::remove(&path)?;
        }
        Ok(())
    }

    fn damaged(&self, path: &Path, why: String) -> EnrolmentError {
        EnrolmentError::Damaged {
            path: path.to_owned(),
            why,
        }
    }

    fn key(&self) -> PathBuf {
        self.0.join("key.pk8")
    }

    fn ca(&self) -> PathBuf {
        self.0.join("ca.pem")
    }

    fn enrolment(&self) -> PathBuf {
        self.0.join("enrollment.json")
    }
}

impl<Id> Enrolment<Id> {
    /// A dialer to the enrolled hub.
    ///
    /// # Errors
    /// The CA cannot be used.
    pub fn dialer(&self) -> Result<Dialer, TlsError> {
        let trust = Trust::Pem(self.ca_pem.clone().unwrap_or_default());
        Dialer::new(self.hub.clone(), &trust)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn enrolment() -> Enrolment<RelayId> {
        Enrolment {
            hub: "https://hub.example.com:8443".parse().unwrap(),
            id: RelayId::from_bytes([3; 16]),
            key: Key::generate().unwrap(),
            ca_pem: Some(b"-----BEGIN CERTIFICATE-----".to_vec()),
        }
    }

    /// ENR-05, ENR-16
    #[test]
    fn an_enrolment_is_kept_in_a_private_directory() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::at(dir.path().join("hub"));
        assert!(directory.load::<RelayId>().unwrap().is_none());
        let kept = enrolment();
        directory.save(&kept).unwrap();
        let mode = |path: &str| {
            dir.path()
                .join(path)
                .metadata()
                .unwrap()
                .permissions()
                .mode()
                & 0o777
        };
        assert_eq!((mode("hub"), mode("hub/key.pk8")), (0o700, 0o600));
        let read = directory.load::<RelayId>().unwrap().unwrap();
        assert_eq!(
            (read.id, read.hub, read.ca_pem),
            (kept.id, kept.hub, kept.ca_pem)
        );
        assert_eq!(read.key.public(), kept.key.public());
        let json = std::fs::read_to_string(dir.path().join("hub/enrollment.json")).unwrap();
        assert!(
            json.contains("\"relay_id\"") && !json.contains("node_id"),
            "{json}"
        );
    }

    /// ENR-06
    #[test]
    fn leaving_deletes_key_ca_and_enrolment() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::at(dir.path().join("hub"));
        directory.save(&enrolment()).unwrap();
        assert!(directory.is_enrolled());
        directory.remove().unwrap();
        assert!(!directory.is_enrolled());
        assert_eq!(
            std::fs::read_dir(dir.path().join("hub")).unwrap().count(),
            0
        );
        directory.remove().unwrap();
    }

    #[test]
    fn a_node_does_not_take_a_relays_enrolment_for_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::at(dir.path().join("hub"));
        directory.save(&enrolment()).unwrap();
        let error = directory.load::<NodeId>().unwrap_err().to_string();
        assert!(
            error.contains("node_id") && error.contains("--replace"),
            "{error}"
        );
    }
}
