//! `DOCKER_AUTH_CONFIG`: registries' credentials in the form of Docker's own configuration.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use vk_image::{Credential, Password};

/// Bytes at most; Docker's own files have a few hundred.
const BYTES_MAX: usize = 1 << 20;

/// The part of it that says who one is.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Document {
    auths: BTreeMap<String, Auth>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Auth {
    auth: String,
    username: String,
    password: String,
}

/// What it gives.
#[derive(Debug, Default)]
pub(super) struct AuthConfig {
    /// By registry, or registry and path.
    pub(super) credentials: Vec<(String, Credential)>,
    /// What of it is of no use here, and what to do. No value of it is named.
    pub(super) warnings: Vec<String>,
}

/// Reads it. What is wrong with one registry's entry leaves the others alone.
pub(super) fn read(text: &str) -> AuthConfig {
    let mut config = AuthConfig::default();
    if text.trim().is_empty() {
        return config;
    }
    let document = match serde_json::from_str::<Document>(text) {
        Ok(document) if text.len() <= BYTES_MAX => document,
        _ => {
            let line = "DOCKER_AUTH_CONFIG is not JSON such as {\"auths\": {\"registry.example.com\": \
                        {\"auth\": \"…\"}}}, and was not used";
            config.warnings.push(line.to_owned());
            return config;
        }
    };
    let helpers = document.cred_helpers.into_values();
    let helpers = helpers.chain(std::iter::once(document.creds_store));
    for helper in helpers.filter(|name| !name.is_empty()) {
        config.warnings.push(format!(
            "DOCKER_AUTH_CONFIG names the credential helper {helper:?}: this node runs none, give the \
             registry's credential under \"auths\""
        ));
    }
    for (place, auth) in document.auths {
        match credential(&auth) {
            Some(credential) => config.credentials.push((place, credential)),
            None => config.warnings.push(format!(
                "DOCKER_AUTH_CONFIG has no username and password for {place:?}"
            )),
        }
    }
    config
}

/// `auth` is `user:password` in base64, and wins over the two.
fn credential(auth: &Auth) -> Option<Credential> {
    let (username, password) = if auth.auth.is_empty() {
        (auth.username.clone(), auth.password.clone())
    } else {
        let both = STANDARD.decode(auth.auth.trim()).ok()?;
        let both = String::from_utf8(both).ok()?;
        let (username, password) = both.split_once(':')?;
        // Some of Docker's own end so.
        (
            username.to_owned(),
            password.trim_end_matches('\0').to_owned(),
        )
    };
    (!username.is_empty() && !password.is_empty()).then(|| Credential {
        username,
        password: Password::new(password),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<(String, String, String)> {
        let all = read(text).credentials.into_iter();
        let shown = |(place, of): (String, Credential)| {
            (place, of.username, of.password.reveal().to_owned())
        };
        all.map(shown).collect()
    }

    #[test]
    fn credentials_are_read_in_both_forms() {
        let text = r#"{"auths": {
            "a.example.com": {"auth": "dXNlcjpwYXNzOndvcmQ="},
            "b.example.com/g": {"username": "me", "password": "mine", "email": "me@example.com"},
            "c.example.com": {"auth": "dXNlcjpwYXNz", "username": "other", "password": "one"}},
            "HttpHeaders": {"User-Agent": "x"}}"#;
        let row = |place: &str, user: &str, password: &str| {
            (place.to_owned(), user.to_owned(), password.to_owned())
        };
        let expected = [
            row("a.example.com", "user", "pass:word"),
            row("b.example.com/g", "me", "mine"),
            row("c.example.com", "user", "pass"),
        ];
        assert_eq!(of(text), expected);
        assert_eq!(read(text).warnings, Vec::<String>::new());
    }

    #[test]
    fn what_is_of_no_use_is_said_without_its_value() {
        for (text, said) in [
            ("no s3cret json", "is not JSON"),
            (r#"{"auths": ["s3cret"]}"#, "is not JSON"),
            (
                r#"{"auths": {"r.example.com": {"auth": "s3cret!"}}}"#,
                "r.example.com",
            ),
            (
                r#"{"auths": {"r.example.com": {"auth": "czNjcmV0"}}}"#,
                "r.example.com",
            ),
            (
                r#"{"auths": {"r.example.com": {"username": "s3cret"}}}"#,
                "r.example.com",
            ),
            (
                r#"{"credHelpers": {"r.example.com": "ecr-login"}}"#,
                "ecr-login",
            ),
            (r#"{"credsStore": "desktop"}"#, "desktop"),
        ] {
            let config = read(text);
            assert_eq!(config.credentials.len(), 0, "{text}");
            let [warning] = config.warnings.as_slice() else {
                panic!("{text}: {:?}", config.warnings);
            };
            assert!(
                warning.contains(said) && !warning.contains("s3cret"),
                "{warning}"
            );
        }
        for nothing in ["", "  ", "{}"] {
            assert_eq!(read(nothing).warnings, Vec::<String>::new());
        }
    }

    #[test]
    fn one_bad_entry_leaves_the_others() {
        let text = r#"{"auths": {"a.example.com": {}, "b.example.com": {"auth": "dTpw"}}}"#;
        assert_eq!(of(text).len(), 1);
        assert_eq!(read(text).warnings.len(), 1);
    }
}
