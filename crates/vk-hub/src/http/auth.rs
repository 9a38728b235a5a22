//! Who signed a request (AUTH-05 to AUTH-08, AUTH-16 to AUTH-18).

use aws_lc_rs::digest::{SHA256, digest};
use hyper::HeaderMap;
use vk_hub_proto::limit::DOWNLOAD_SKEW_SECS;
use vk_hub_proto::signed::{Channel, ClientRequest, client_request};
use vk_hub_proto::{RelayId, hex};

use crate::members::{Members, is_signed, unix_now};
use crate::store::MemberKind;

/// A request whose headers are in order and whose signature is still to be checked.
pub(crate) struct Claim {
    pub(crate) relay: RelayId,
    key: [u8; 32],
    time: u64,
    signature: [u8; 64],
}

/// Reads the three headers, before the body is (AUTH-18). The error is for the one who asked.
pub(crate) fn claim(headers: &HeaderMap, members: &Members) -> Result<Claim, String> {
    let header = |name: &str| {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => value.to_str().ok(),
            _ => None,
        }
    };
    let relay: RelayId = header("vk-relay")
        .and_then(|text| text.parse().ok())
        .ok_or("vk-relay must be the relay's ID: 32 lowercase hexadecimal digits")?;
    let time = header("vk-time")
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse::<u64>().ok())
        .ok_or("vk-time must be Unix seconds in decimal")?;
    let signature = header("vk-signature")
        .and_then(hex::read)
        .ok_or("vk-signature must be 128 lowercase hexadecimal digits")?;
    let member = members
        .find(MemberKind::GitLab, relay.as_bytes())
        .ok_or_else(|| format!("this hub knows no relay {relay}, or it was removed"))?;
    let now = unix_now();
    if now.abs_diff(time) > DOWNLOAD_SKEW_SECS {
        return Err(format!(
            "vk-time is {time}, this hub's clock says {now}: more than {DOWNLOAD_SKEW_SECS} s apart"
        ));
    }
    Ok(Claim {
        relay,
        key: member.public_key.0,
        time,
        signature,
    })
}

impl Claim {
    /// Whether the relay signed exactly this request on exactly this connection.
    pub(crate) fn holds(&self, method: &str, path: &str, body: &[u8], channel: Channel) -> bool {
        let body_sha256 = digest(&SHA256, body).as_ref().try_into().unwrap_or([0; 32]);
        let message = client_request(&ClientRequest {
            relay: self.relay,
            method,
            path,
            body_sha256: &body_sha256,
            time: self.time,
            channel,
        });
        is_signed(&self.key, &message, &self.signature)
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use vk_hub_proto::hex::Hex;

    use super::*;
    use crate::store::{Member, Sqlite, Store as _};

    const RELAY: [u8; 16] = [0xab; 16];

    fn members(dir: &std::path::Path) -> Members {
        let mut store = Sqlite::open(&dir.join("hub.db")).unwrap();
        store.add_token(&[1; 32], MemberKind::GitLab, 100).unwrap();
        let relay = Member {
            id: RELAY,
            kind: MemberKind::GitLab,
            public_key: Hex([7; 32]),
            hostname: String::new(),
        };
        store.redeem(&[1; 32], 1, &relay).unwrap();
        Members::open(Box::new(store), [0; 32]).unwrap()
    }

    fn headers(relay: &str, time: &str, signature: &str) -> HeaderMap {
        let headers = [
            ("vk-relay", relay),
            ("vk-time", time),
            ("vk-signature", signature),
        ];
        let value = |text: &str| HeaderValue::from_str(text).unwrap();
        headers
            .into_iter()
            .map(|(name, text)| (hyper::header::HeaderName::from_static(name), value(text)))
            .collect()
    }

    /// AUTH-06, AUTH-16
    #[test]
    fn the_three_headers_have_one_spelling_and_the_time_is_at_most_300_s_off() {
        let dir = tempfile::tempdir().unwrap();
        let members = members(dir.path());
        let (relay, signature) = ("ab".repeat(16), "0f".repeat(64));
        let now = unix_now();
        let taken = |relay: &str, time: &str, signature: &str| {
            claim(&headers(relay, time, signature), &members).is_ok()
        };
        // A second may pass under this.
        for (time, good) in [
            (now, true),
            (now - 298, true),
            (now + 300, true),
            (now - 301, false),
            (now + 303, false),
        ] {
            assert_eq!(taken(&relay, &time.to_string(), &signature), good, "{time}");
        }
        let time = now.to_string();
        for (relay, time, signature) in [
            (relay.to_uppercase(), time.clone(), signature.clone()),
            ("cd".repeat(16), time.clone(), signature.clone()),
            (relay.clone(), format!("+{time}"), signature.clone()),
            (relay.clone(), format!("{time}.0"), signature.clone()),
            (relay.clone(), time.clone(), signature.to_uppercase()),
            (relay.clone(), time.clone(), "0f".repeat(63)),
        ] {
            assert!(
                !taken(&relay, &time, &signature),
                "{relay} {time} {signature}"
            );
        }
        let mut twice = headers(&relay, &time, &signature);
        twice.append("vk-time", HeaderValue::from_str(&time).unwrap());
        assert!(claim(&twice, &members).is_err(), "two times");
    }
}
