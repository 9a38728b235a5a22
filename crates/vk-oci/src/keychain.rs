//! Credentials for registries, found by where an image is.

use std::fmt;

use zeroize::Zeroizing;

use crate::reference::Reference;

/// Credentials at most.
const CREDENTIALS_MAX: usize = 256;

/// A secret that is never shown.
#[derive(Clone)]
pub struct Password(Zeroizing<String>);

impl Password {
    /// Takes a secret in.
    pub fn new(secret: String) -> Self {
        Self(Zeroizing::new(secret))
    }

    /// The secret itself, to be sent or masked.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[MASKED]")
    }
}

/// Who one is at a registry.
#[derive(Clone, Debug)]
pub struct Credential {
    /// The user's or token's name.
    pub username: String,
    /// Its secret.
    pub password: Password,
}

/// Credentials by registry, or by registry and a path in it: the longest path wins, and of two for
/// the same path the one added first.
#[derive(Clone, Debug, Default)]
pub struct Keychain {
    entries: Vec<(String, Entry)>,
}

/// A credential and how it is shown.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) credential: Credential,
    /// The password is a token of the Distribution form: it goes to the registry as it is, and no
    /// token service is asked for another.
    pub(crate) is_token: bool,
}

impl Keychain {
    /// Adds a credential for `place`: `host[:port][/path]`, with or without `http(s)://` before it
    /// and `/v1/` or `/v2/` after it, as Docker's configuration and GitLab write it. Beyond 256
    /// credentials it is left out.
    pub fn add(&mut self, place: &str, credential: Credential) {
        let is_token = false;
        let entry = Entry {
            credential,
            is_token,
        };
        self.insert(place, entry);
    }

    /// As [`Keychain::add`], for a password that is a token of the Distribution form, made for this
    /// registry: it is its own proof there, and no token service gets it.
    pub fn add_token(&mut self, place: &str, credential: Credential) {
        let is_token = true;
        let entry = Entry {
            credential,
            is_token,
        };
        self.insert(place, entry);
    }

    fn insert(&mut self, place: &str, entry: Entry) {
        let place = place.trim();
        let place = place
            .strip_prefix("https://")
            .or(place.strip_prefix("http://"))
            .unwrap_or(place);
        let place = place.trim_end_matches('/');
        let place = place
            .strip_suffix("/v1")
            .or(place.strip_suffix("/v2"))
            .unwrap_or(place);
        let (host, path) = place.split_once('/').unwrap_or((place, ""));
        let host = match host.to_ascii_lowercase() {
            host if matches!(host.as_str(), "index.docker.io" | "registry-1.docker.io") => {
                "docker.io".into()
            }
            host => host,
        };
        if self.entries.len() < CREDENTIALS_MAX && !host.is_empty() {
            let place = if path.is_empty() {
                host
            } else {
                format!("{host}/{path}")
            };
            self.entries.push((place, entry));
        }
    }

    /// Takes all of another keychain's credentials, after one's own.
    pub fn extend(&mut self, other: Self) {
        let room = CREDENTIALS_MAX.saturating_sub(self.entries.len());
        self.entries.extend(other.entries.into_iter().take(room));
    }

    /// The credential for an image.
    pub fn find(&self, reference: &Reference) -> Option<&Credential> {
        self.entry(reference).map(|entry| &entry.credential)
    }

    pub(crate) fn entry(&self, reference: &Reference) -> Option<&Entry> {
        let name = reference.name();
        let covers = |place: &str| {
            name.strip_prefix(place)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mut best: Option<&(String, Entry)> = None;
        for entry in self.entries.iter().filter(|(place, _)| covers(place)) {
            if best.is_none_or(|(place, _)| entry.0.len() > place.len()) {
                best = Some(entry);
            }
        }
        best.map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(username: &str) -> Credential {
        Credential {
            username: username.into(),
            password: Password::new("s3cret".into()),
        }
    }

    fn found(keychain: &Keychain, image: &str) -> Option<String> {
        keychain
            .find(&image.parse().unwrap())
            .map(|credential| credential.username.clone())
    }

    /// CRED-08
    #[test]
    fn the_longest_path_wins_then_the_first() {
        let mut keychain = Keychain::default();
        keychain.add("registry.example.com", credential("host"));
        keychain.add("https://Registry.example.com/group/", credential("group"));
        keychain.add("registry.example.com", credential("late"));
        keychain.add("https://index.docker.io/v1/", credential("hub"));
        assert_eq!(
            found(&keychain, "registry.example.com/a").as_deref(),
            Some("host")
        );
        assert_eq!(
            found(&keychain, "registry.example.com/group/a").as_deref(),
            Some("group")
        );
        assert_eq!(
            found(&keychain, "registry.example.com/grouped/a").as_deref(),
            Some("host")
        );
        assert_eq!(found(&keychain, "debian").as_deref(), Some("hub"));
        assert_eq!(found(&keychain, "registry.example.com:5000/a"), None);
        assert_eq!(found(&keychain, "registry.example.com.evil.net/a"), None);
    }

    #[test]
    fn a_password_cannot_be_printed() {
        assert!(!format!("{:?}", credential("user")).contains("s3cret"));
    }
}
