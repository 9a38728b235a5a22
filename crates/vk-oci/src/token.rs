//! Tokens by the Distribution token flow: from a realm, for one repository, to pull or to push.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use reqwest::Url;
use reqwest::header::HeaderValue;
use serde::Deserialize;

use crate::keychain::Password;
use crate::reference::Reference;

/// Bytes of a token service's answer.
pub(crate) const ANSWER_BYTES: u64 = 64 << 10;
/// Tokens kept.
const TOKENS_MAX: usize = 256;

/// What proves a request's right, ready to send.
#[derive(Clone, Debug)]
pub(crate) enum Authorization {
    Bearer(Password),
    Basic {
        username: String,
        password: Password,
    },
}

impl Authorization {
    /// The header, marked as a secret; `None` for text that no header can have.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        use base64::prelude::{BASE64_STANDARD, Engine};
        let text = match self {
            Self::Bearer(token) => format!("Bearer {}", token.reveal()),
            Self::Basic { username, password } => {
                let pair = zeroize::Zeroizing::new(format!("{username}:{}", password.reveal()));
                format!("Basic {}", BASE64_STANDARD.encode(pair.as_bytes()))
            }
        };
        let text = zeroize::Zeroizing::new(text);
        let mut value = HeaderValue::from_str(&text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// What is to be done in a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rights {
    Pull,
    Push,
}

impl Rights {
    const fn scope(self) -> &'static str {
        match self {
            Rights::Pull => "pull",
            Rights::Push => "pull,push",
        }
    }
}

type Key = (String, Rights);

/// What was right for a repository last time.
#[derive(Default)]
pub(crate) struct Tokens(Mutex<BTreeMap<Key, Authorization>>);

impl Tokens {
    pub(crate) fn get(&self, image: &Reference, rights: Rights) -> Option<Authorization> {
        self.lock().get(&(image.name(), rights)).cloned()
    }

    pub(crate) fn put(&self, image: &Reference, rights: Rights, authorization: Authorization) {
        let mut tokens = self.lock();
        if tokens.len() >= TOKENS_MAX {
            tokens.clear();
        }
        tokens.insert((image.name(), rights), authorization);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, Authorization>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the token for one repository is: never for more than what is to be done there, whatever the
/// challenge asks.
pub(crate) fn token_url(
    mut realm: Url,
    service: Option<&str>,
    image: &Reference,
    rights: Rights,
) -> Url {
    let scope = format!("repository:{}:{}", image.repository(), rights.scope());
    {
        let mut query = realm.query_pairs_mut();
        if let Some(service) = service {
            query.append_pair("service", service);
        }
        query.append_pair("scope", &scope);
    }
    realm
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
}

/// The token in a token service's answer.
pub(crate) fn parse(bytes: &[u8]) -> Option<Password> {
    let answer: Answer = serde_json::from_slice(bytes).ok()?;
    let token = answer.token.or(answer.access_token)?;
    let is_plain = |byte: u8| byte.is_ascii_graphic();
    (!token.is_empty() && token.bytes().all(is_plain)).then(|| Password::new(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_asked_for_this_repository_and_what_is_done_there_alone() {
        let image = "example.com/a/b:1".parse().unwrap();
        for (rights, scope) in [(Rights::Pull, "pull"), (Rights::Push, "pull%2Cpush")] {
            let realm = Url::parse("https://auth.example.com/jwt?x=1").unwrap();
            let asked = "https://auth.example.com/jwt?x=1&service=the+registry";
            assert_eq!(
                token_url(realm, Some("the registry"), &image, rights).as_str(),
                format!("{asked}&scope=repository%3Aa%2Fb%3A{scope}")
            );
        }
    }

    #[test]
    fn both_spellings_of_a_token_are_read_and_nothing_else() {
        let token = |text: &str| parse(text.as_bytes()).map(|token| token.reveal().to_owned());
        assert_eq!(
            token(r#"{"token":"abc","expires_in":60}"#).as_deref(),
            Some("abc")
        );
        assert_eq!(token(r#"{"access_token":"abc"}"#).as_deref(), Some("abc"));
        for bad in [
            r#"{"token":""}"#,
            r#"{"token":"a\r\nX: y"}"#,
            "{}",
            "[]",
            "x",
        ] {
            assert_eq!(token(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_header_is_marked_as_secret() {
        let bearer = Authorization::Bearer(Password::new("t0ken".into()));
        assert!(bearer.header().unwrap().is_sensitive());
        assert!(!format!("{bearer:?}").contains("t0ken"));
    }
}
