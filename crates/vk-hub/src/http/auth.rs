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
