//! What a registry's challenge is answered with.

use reqwest::Url;

use crate::answer::{self, BodyError};
use crate::challenge::Challenge;
use crate::error::Error;
use crate::origin::{authority, may_carry_secrets};
use crate::reference::Reference;
use crate::token::{self, Authorization, Rights, token_url};

use super::Client;
use super::request::{Ask, is_denial, unreachable};

impl Client {
    /// What a challenge is answered with; `None` where there is nothing to answer it with.
    pub(super) async fn authorize(
        &self,
        image: &Reference,
        asked_by: &Url,
        challenge: Challenge,
        rights: Rights,
    ) -> Result<Option<Authorization>, Error> {
        let entry = self.config.keychain.entry(image);
        let basic = entry.map(|entry| Authorization::Basic {
            username: entry.credential.username.clone(),
            password: entry.credential.password.clone(),
        });
        let token = entry.filter(|entry| entry.is_token);
        let token = token.map(|entry| Authorization::Bearer(entry.credential.password.clone()));
        let refused = |what: String| Error::Refused {
            image: image.familiar(),
            what,
        };
        let plain = |url: &Url| {
            format!(
                "a password would go to {} over plain http: give it https",
                authority(url)
            )
        };
        match challenge {
            Challenge::Basic if basic.is_some() && !may_carry_secrets(asked_by) => {
                Err(refused(plain(asked_by)))
            }
            Challenge::Basic => Ok(basic),
            // The token is the registry's own: whoever it names as its token service has no use
            // for it.
            Challenge::Bearer { .. } if token.is_some() && !may_carry_secrets(asked_by) => {
                Err(refused(plain(asked_by)))
            }
            Challenge::Bearer { .. } if token.is_some() => Ok(token),
            Challenge::Bearer { realm, service } => {
                let at = authority(asked_by);
                let realm = Url::parse(&realm)
                    .map_err(|_| refused(format!("{at} names no usable token service")))?;
                self.origins.may_go(asked_by, &realm).map_err(|why| {
                    refused(format!(
                        "{at} names {} as its token service: {why}",
                        authority(&realm)
                    ))
                })?;
                if basic.is_some() && !may_carry_secrets(&realm) {
                    return Err(refused(plain(&realm)));
                }
                let url = token_url(realm, service.as_deref(), image, rights);
                self.fetch_token(image, url, basic.as_ref()).await.map(Some)
            }
        }
    }

    async fn fetch_token(
        &self,
        image: &Reference,
        url: Url,
        basic: Option<&Authorization>,
    ) -> Result<Authorization, Error> {
        let ask = Ask::blob("", 0);
        let mut response = self.follow(image, &ask, url.clone(), basic).await?;
        let status = response.status();
        if is_denial(status) {
            let by = authority(&url);
            let message = answer::message(response).await;
            return Err(Error::Denied {
                image: image.familiar(),
                by,
                with_credential: basic.is_some(),
                message,
            });
        }
        if !status.is_success() {
            return Err(self.refusal(image, response).await);
        }
        let unusable = |message: &str| Error::Answer {
            image: image.familiar(),
            at: authority(&url),
            status: status.as_u16(),
            message: message.into(),
        };
        let bytes = answer::body(&mut response, token::ANSWER_BYTES)
            .await
            .map_err(|error| match error {
                BodyError::TooLong => unusable("a token answer of more than 64 KiB"),
                BodyError::Broken(source) => unreachable(image, &url, source),
            })?;
        let token = token::parse(&bytes)
            .ok_or_else(|| unusable("no token in the token service's answer"))?;
        Ok(Authorization::Bearer(token))
    }
}
