//! What joining leaves on disk: `key.pk8`, `ca.pem`, `enrollment.json` (ENR-05, ENR-16).

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vk_hub_proto::hex::Hex;
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
    /// The public half of the key, so that no file of another enrolment is taken for this one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    public_key: Option<Hex<32>>,
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

    /// The key to join with: that of an attempt that was cut short, or a new one. It is kept before
    /// the hub hears of it, so that a join whose answer is lost can be made again with its token.
    ///
    /// # Errors
    /// A file could not be read or written, or there is no randomness.
    pub fn joining_key(&self) -> Result<Key, EnrolmentError> {
        file::private_dir(&self.0)?;
        // One that cannot be read is as good as none.
        if let Ok(Some(key)) = Key::load(&self.joining()) {
            return Ok(key);
        }
        let key = Key::generate()?;
        key.save(&self.joining())?;
        Ok(key)
    }

    /// Keeps an enrolment: the key first, what names it last (ENR-16). Whenever this is cut short,
    /// the directory holds the enrolment of before or this one, whole.
    ///
    /// # Errors
    /// A file could not be written.
    pub fn save<Id: Member>(&self, enrolment: &Enrolment<Id>) -> Result<(), EnrolmentError> {
        self.save_up_to(enrolment, usize::MAX)
    }

    /// The first steps of keeping an enrolment. Key and CA are written beside those in force, which
    /// `enrollment.json` then puts in force; only after that do they take the others' places.
    fn save_up_to<Id: Member>(
        &self,
        enrolment: &Enrolment<Id>,
        steps: usize,
    ) -> Result<(), EnrolmentError> {
        let id = |field| (Id::FIELD == field).then(|| enrolment.id.to_string());
        let on_disk = OnDisk {
            hub: enrolment.hub.to_string(),
            relay_id: id(RelayId::FIELD),
            node_id: id(NodeId::FIELD),
            ca: enrolment.ca_pem.is_some(),
            public_key: Some(enrolment.key.public()),
        };
        let damaged = |why: serde_json::Error| self.damaged(&self.enrolment(), why.to_string());
        let json = serde_json::to_vec_pretty(&on_disk).map_err(damaged)?;
        let (key, ca) = (next(&self.key()), next(&self.ca()));
        let all: [&dyn Fn() -> Result<(), EnrolmentError>; 9] = [
            &|| Ok(file::private_dir(&self.0)?),
            // An earlier one that was put in force and cut short then.
            &|| self.take_next_ca(),
            &|| self.take_next_key(),
            &|| Ok(file::remove(&ca)?),
            &|| Ok(enrolment.key.save(&key)?),
            &|| match &enrolment.ca_pem {
                Some(pem) => Ok(file::write(&ca, pem)?),
                None => Ok(()),
            },
            &|| Ok(file::write(&self.enrolment(), &json)?),
            &|| self.take_next_ca(),
            &|| {
                self.take_next_key()?;
                Ok(file::remove(&self.joining())?)
            },
        ];
        all.into_iter().take(steps).try_for_each(|step| step())
    }

    /// Whether the key beside the one in its place is the one in force.
    fn is_next_in_force(&self) -> Result<bool, EnrolmentError> {
        let json = file::read(&self.enrolment())?;
        // What cannot be read names no key.
        let on_disk = json.and_then(|json| serde_json::from_slice::<OnDisk>(&json).ok());
        let Some(named) = on_disk.and_then(|on_disk| on_disk.public_key) else {
            return Ok(false);
        };
        let is_named = |path: &Path| {
            let key = Key::load(path).ok().flatten();
            key.is_some_and(|key| key.public() == named)
        };
        Ok(!is_named(&self.key()) && is_named(&next(&self.key())))
    }

    fn take_next_ca(&self) -> Result<(), EnrolmentError> {
        let beside = next(&self.ca());
        if self.is_next_in_force()? && beside.exists() {
            file::rename(&beside, &self.ca())?;
        }
        Ok(())
    }

    fn take_next_key(&self) -> Result<(), EnrolmentError> {
        if self.is_next_in_force()? {
            file::rename(&next(&self.key()), &self.key())?;
        }
        Ok(())
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
        let (mut key_path, mut ca) = (self.key(), self.ca());
        if self.is_next_in_force()? {
            key_path = next(&key_path);
            ca = Some(next(&ca)).filter(|ca| ca.exists()).unwrap_or(ca);
        }
        let key = Key::load(&key_path)?
            .ok_or_else(|| self.damaged(&key_path, "it is missing".to_owned()))?;
        if on_disk
            .public_key
            .is_some_and(|named| named != key.public())
        {
            return Err(self.damaged(&key_path, "it is another enrolment's".to_owned()));
        }
        let ca_pem = match on_disk.ca {
            true => Some(
                file::read(&ca)?.ok_or_else(|| self.damaged(&ca, "it is missing".to_owned()))?,
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
        let (ca, key) = (self.ca(), self.key());
        let beside = [next(&ca), next(&key), self.joining()];
        for path in [self.enrolment(), ca, key].iter().chain(&beside) {
            file::remove(path)?;
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

    /// The key of a join that has had no answer.
    fn joining(&self) -> PathBuf {
        self.0.join("joining.pk8")
    }

    fn enrolment(&self) -> PathBuf {
        self.0.join("enrollment.json")
    }
}

/// Where a file's successor waits.
fn next(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".next");
    path.with_file_name(name)
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

    fn same(one: &Enrolment<RelayId>, other: &Enrolment<RelayId>) -> bool {
        one.id == other.id
            && one.hub == other.hub
            && one.ca_pem == other.ca_pem
            && one.key.public() == other.key.public()
    }

    /// ENR-09, ENR-16
    #[test]
    fn an_enrolment_that_is_replaced_is_the_old_one_or_the_new_one_wherever_that_is_cut_short() {
        let other = |id: u8, ca: Option<&[u8]>| Enrolment {
            id: RelayId::from_bytes([id; 16]),
            ca_pem: ca.map(<[u8]>::to_vec),
            ..enrolment()
        };
        for (ca_before, ca_after) in [
            (Some(&b"old"[..]), Some(&b"new"[..])),
            (None, Some(&b"new"[..])),
            (Some(&b"old"[..]), None),
        ] {
            let (mut old, mut new) = (0, 0);
            for cut in 0..=9 {
                let dir = tempfile::tempdir().unwrap();
                let directory = Directory::at(dir.path().join("hub"));
                let before = other(1, ca_before);
                directory.save(&before).unwrap();
                let after = other(2, ca_after);
                directory.save_up_to(&after, cut).unwrap();
                let read = directory.load().unwrap().unwrap();
                assert!(same(&read, &before) || same(&read, &after), "{cut}");
                old += u32::from(same(&read, &before));
                new += u32::from(same(&read, &after));
                // And once more upon that, cut short anywhere.
                for again in 0..=9 {
                    let last = other(3, ca_before);
                    directory.save_up_to(&last, again).unwrap();
                    let found = directory.load().unwrap().unwrap();
                    let whole = [&before, &after, &last].iter().any(|one| same(&found, one));
                    assert!(whole || found.id == last.id, "{cut} {again}");
                    assert_eq!(
                        found.ca_pem,
                        if found.id == after.id {
                            after.ca_pem.clone()
                        } else {
                            before.ca_pem.clone()
                        }
                    );
                }
                directory.remove().unwrap();
                let left = std::fs::read_dir(dir.path().join("hub")).unwrap();
                assert_eq!(left.count(), 0);
            }
            assert!(old >= 5 && new >= 3, "{old} {new}");
        }
    }

    #[test]
    fn a_key_of_another_enrolment_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::at(dir.path().join("hub"));
        directory.save(&enrolment()).unwrap();
        Key::generate().unwrap().save(&directory.key()).unwrap();
        let error = directory.load::<RelayId>().unwrap_err().to_string();
        assert!(error.contains("another enrolment"), "{error}");
    }

    #[test]
    fn a_join_that_was_cut_short_is_made_again_with_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::at(dir.path().join("hub"));
        let key = directory.joining_key().unwrap();
        assert_eq!(directory.joining_key().unwrap().public(), key.public());
        let kept = Enrolment { key, ..enrolment() };
        directory.save(&kept).unwrap();
        let fresh = directory.joining_key().unwrap();
        assert_ne!(
            fresh.public(),
            kept.key.public(),
            "that one has an enrolment"
        );
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
