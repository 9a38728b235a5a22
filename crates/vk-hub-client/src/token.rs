//! The enrolment token: one string that also says which CA to trust.

use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use vk_hub_proto::Secret;

/// `<secret>.<base64url SHA-256 of the CA's key>` (ENR-14).
#[derive(Clone, Debug)]
pub struct EnrolmentToken {
    whole: Secret,
    ca_key_sha256: [u8; 32],
}

/// A text that is no enrolment token; it is not repeated, since it may be one in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is no enrolment token: it must be the one line that `vk-hub token create` printed, \
     <secret>.<hash of the hub's CA key>"
)]
pub struct NoToken;

impl EnrolmentToken {
    /// The token as the hub wants it back.
    #[must_use]
    pub const fn secret(&self) -> &Secret {
        &self.whole
    }

    /// SHA-256 of the SubjectPublicKeyInfo of the CA that this token's hub has.
    #[must_use]
    pub const fn ca_key_sha256(&self) -> &[u8; 32] {
        &self.ca_key_sha256
    }
}

impl FromStr for EnrolmentToken {
    type Err = NoToken;

    fn from_str(text: &str) -> Result<EnrolmentToken, NoToken> {
        let text = text.trim();
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let (secret, hash) = text.split_once('.').ok_or(NoToken)?;
        if secret.is_empty() || text.len() > 512 || !text.bytes().all(allowed) {
            return Err(NoToken);
        }
        let hash = URL_SAFE_NO_PAD.decode(hash).map_err(|_| NoToken)?;
        let ca_key_sha256 = hash.try_into().map_err(|_| NoToken)?;
        Ok(EnrolmentToken {
            whole: Secret::from(text),
            ca_key_sha256,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ENR-14
    #[test]
    fn a_token_is_a_secret_and_the_hash_of_the_cas_key() {
        let hash = URL_SAFE_NO_PAD.encode([7; 32]);
        let token: EnrolmentToken = format!(" s3cret.{hash}\n").parse().unwrap();
        assert_eq!(token.ca_key_sha256(), &[7; 32]);
        assert_eq!(token.secret().expose(), format!("s3cret.{hash}"));
        assert!(!format!("{token:?}").contains("s3cret"));
        for bad in [
            "",
            "s3cret",
            "s3cret.",
            ".x",
            "s3cret.AAAA",
            &format!("s 3.{hash}"),
        ] {
            let error = bad.parse::<EnrolmentToken>().unwrap_err();
            assert!(!error.to_string().contains("s3cret"));
        }
    }
}
