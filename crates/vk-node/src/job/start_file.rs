//! `start.json`: the hub's start message, and when it came if that matters.
//!
//! A registry token's life is told in seconds from the message's arrival, since clocks differ. The
//! job's process may begin much later, after a restart of the daemon: so the file has the moment of
//! the arrival, by a clock that no one sets.

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use vk_hub_proto::Secret;
use vk_hub_proto::dispatch::{HubJobMessage, RegistryGrant};
use vk_hub_proto::job::{CiJob, JobSpec};

use super::death::boot_id;

/// A token's life as it is believed at most: no clock counts further than it.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// When something happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moment {
    /// In which start of the host; empty where that cannot be told.
    boot: String,
    /// Since that start, by a clock that nobody sets and that goes on while the host sleeps.
    boot_ms: u64,
    /// By the world's clock, for another start of the host.
    unix_ms: u64,
}

impl Moment {
    /// This one.
    pub(crate) fn now() -> Moment {
        let since = clock_gettime(ClockId::Boottime);
        let secs = u64::try_from(since.tv_sec).unwrap_or_default();
        let ms = u64::try_from(since.tv_nsec / 1_000_000).unwrap_or_default();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_ms = unix.map_or(0, |unix| unix.as_millis());
        Moment {
            boot: boot_id(),
            boot_ms: secs.saturating_mul(1000).saturating_add(ms),
            unix_ms: u64::try_from(unix_ms).unwrap_or(u64::MAX),
        }
    }

    /// How long ago it was; none where a clock says that it is yet to come.
    fn until(&self, now: &Moment) -> Option<Duration> {
        let is_same = !self.boot.is_empty() && self.boot == now.boot;
        let ms = match is_same {
            true => now.boot_ms.checked_sub(self.boot_ms),
            false => now.unix_ms.checked_sub(self.unix_ms),
        };
        ms.map(Duration::from_millis)
    }
}

#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    message: &'a HubJobMessage,
    #[serde(skip_serializing_if = "Option::is_none")]
    received: Option<Moment>,
}

#[derive(Deserialize)]
struct Read {
    #[serde(flatten)]
    message: HubJobMessage,
    #[serde(default)]
    received: Option<Moment>,
}

/// What is to be written of a start message that came at this moment; none where it cannot be
/// written.
pub(crate) fn write(message: &HubJobMessage, received: &Moment) -> Option<Vec<u8>> {
    let has_token = matches!(
        message,
        HubJobMessage::Start {
            registry: Some(_),
            ..
        }
    );
    let written = Written {
        message,
        received: has_token.then(|| received.clone()),
    };
    serde_json::to_vec(&written).ok()
}

/// A job as it was started, with its secrets.
#[derive(Debug)]
pub struct Started {
    /// The job.
    pub spec: Box<CiJob>,
    /// The registry token that came with it.
    pub registry: Option<RegistryToken>,
}

/// A job's registry token (REG-01).
#[derive(Clone)]
pub struct RegistryToken {
    /// The registry it is for: scheme, host and port.
    pub url: String,
    /// Who it is for, where a registry asks for a name.
    pub username: String,
    /// The token.
    pub token: Secret,
    /// Until when it may be used.
    pub expires_at: Instant,
    /// The repository of the job's caches (CACHE-10).
    pub cache_repository: Option<String>,
}

impl fmt::Debug for RegistryToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryToken")
            .field("url", &self.url)
            .field("cache_repository", &self.cache_repository)
            .finish_non_exhaustive()
    }
}

impl RegistryToken {
    fn of(grant: RegistryGrant, received: Option<&Moment>, now: &Moment) -> RegistryToken {
        let life = Duration::from_secs(grant.expires_in_secs).min(LONGEST);
        // Where nobody knows how old it is, it is too old.
        let age = received.and_then(|received| received.until(now));
        let left = age.map_or(Duration::ZERO, |age| life.saturating_sub(age));
        let moment = Instant::now();
        RegistryToken {
            url: grant.url,
            username: grant.username,
            token: grant.token,
            expires_at: moment.checked_add(left).unwrap_or(moment),
            cache_repository: grant.cache_repository,
        }
    }
}

/// Reads it; none where it holds no start message.
pub(crate) fn read(json: &[u8], now: &Moment) -> Option<Started> {
    let read: Read = serde_json::from_slice(json).ok()?;
    let HubJobMessage::Start { spec, registry, .. } = read.message else {
        return None;
    };
    let JobSpec::GitlabCi(spec) = spec;
    let token = |grant: Box<RegistryGrant>| RegistryToken::of(*grant, read.received.as_ref(), now);
    Some(Started {
        spec,
        registry: registry.map(token),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUB: &str = include_str!("../../../vk-hub-proto/tests/golden/start_with_registry.json");
    const TOKEN: &str = "e30.e30.c2ln";

    fn message() -> HubJobMessage {
        let json = HUB.replacen("\"type\":\"job\",", "", 1);
        serde_json::from_str(&json).unwrap()
    }

    fn moment(boot: &str, boot_ms: u64, unix_ms: u64) -> Moment {
        Moment {
            boot: boot.to_owned(),
            boot_ms,
            unix_ms,
        }
    }

    /// What of the token's 7800 seconds is left, to the second.
    fn left(received: &Moment, now: &Moment) -> u64 {
        let file = write(&message(), received).unwrap();
        let token = read(&file, now).unwrap().registry.unwrap();
        assert_eq!(token.token.expose(), TOKEN);
        let left = token.expires_at.saturating_duration_since(Instant::now());
        // What passed since then rounds up again.
        (left + Duration::from_millis(999)).as_secs()
    }

    /// REG-03, CACHE-13
    #[test]
    fn a_journaled_tokens_life_goes_on_counting_through_restarts_of_daemon_and_host() {
        let received = moment("a", 5_000, 1_900_000_000_000);
        assert_eq!(left(&received, &received), 7_800);
        // The daemon was away; what the world's clock says meanwhile is nothing.
        assert_eq!(left(&received, &moment("a", 65_000, 0)), 7_740);
        assert_eq!(left(&received, &moment("a", 7_805_000, 0)), 0);
        assert_eq!(left(&received, &moment("a", 4_999, 0)), 0);
        // The host was: there is no other clock.
        assert_eq!(left(&received, &moment("b", 0, 1_900_000_100_000)), 7_700);
        assert_eq!(left(&received, &moment("b", 9_000, 1_899_999_999_999)), 0);
        let unknown = moment("", 5_000, 1_900_000_000_000);
        assert_eq!(left(&unknown, &moment("", 0, 1_900_000_100_000)), 7_700);
        // A file without the moment.
        let bare = serde_json::to_vec(&message()).unwrap();
        let token = read(&bare, &received).unwrap().registry.unwrap();
        assert!(token.expires_at <= Instant::now());
    }

    #[test]
    fn the_clocks_of_two_processes_are_one() {
        let (one, other) = (Moment::now(), Moment::now());
        assert!(
            one.until(&other).unwrap() < Duration::from_secs(60),
            "{one:?} {other:?}"
        );
        assert!(one.boot_ms > 0 && one.unix_ms > 0);
    }

    /// DISP-41: what releases without registry tokens wrote is what is written without one.
    #[test]
    fn a_start_without_a_token_is_kept_as_it_came() {
        let mut message = message();
        let HubJobMessage::Start { registry, .. } = &mut message else {
            panic!("a start")
        };
        *registry = None;
        let file = write(&message, &Moment::now()).unwrap();
        assert_eq!(file, serde_json::to_vec(&message).unwrap());
        assert!(read(&file, &Moment::now()).unwrap().registry.is_none());
        // And with one, a release that knows none reads the job.
        let with = write(&self::message(), &Moment::now()).unwrap();
        let read: HubJobMessage = serde_json::from_slice(&with).unwrap();
        assert_eq!(read, self::message());
    }

    /// CRED-14
    #[test]
    fn a_token_is_not_shown() {
        let file = write(&message(), &Moment::now()).unwrap();
        let shown = format!("{:?}", read(&file, &Moment::now()).unwrap().registry);
        assert!(
            shown.contains("ci-cache") && !shown.contains("c2ln"),
            "{shown}"
        );
    }
}
