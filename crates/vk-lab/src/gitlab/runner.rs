//! Runners and their managers.

use std::collections::{BTreeMap, VecDeque};

use serde::Deserialize;
use serde_json::Value;

use super::limits::Bucket;
use super::token::{self, Secret};

/// Most managers kept of one runner.
pub(super) const MAX_MANAGERS: usize = 10_000;
/// How long a runner is online after its last contact.
pub(super) const ONLINE_MS: u64 = 2 * 3_600_000;
/// How long a queue value is kept.
const VALUE_MS: u64 = 3_600_000;
/// 204s whose time is remembered.
pub(super) const RECENT: usize = 64;
/// Contacts whose time is remembered.
const CONTACTS: usize = 256;

/// What a runner says about itself; unknown fields are ignored.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Info {
    /// Its program's name.
    #[serde(default)]
    pub name: Option<String>,
    /// Its version.
    #[serde(default)]
    pub version: Option<String>,
    /// Its executor.
    #[serde(default)]
    pub executor: Option<String>,
    /// What it can do.
    #[serde(default)]
    pub features: BTreeMap<String, Value>,
}

impl Info {
    /// Whether the runner said that it has this feature.
    pub fn has(&self, feature: &str) -> bool {
        self.features
            .get(feature)
            .and_then(Value::as_bool)
            .unwrap_or(false)
    }
}

/// One process (or fleet) under a runner's token.
#[derive(Debug, Clone, Default)]
pub struct Manager {
    /// What it last said of itself.
    pub info: Info,
    /// Its last contact.
    pub contacted_ms: u64,
    /// When it was in contact, the last 256 times.
    pub contacts: VecDeque<u64>,
    /// The longest time between two contacts, in milliseconds.
    pub longest_silence_ms: u64,
}

/// A runner: a token, what it may run, and its managers by `system_id`.
#[derive(Debug, Clone)]
pub struct Runner {
    /// Its id.
    pub id: u64,
    /// Its authentication token.
    pub token: Secret,
    /// When the token expires.
    pub token_expires_ms: Option<u64>,
    /// Gets no job while set.
    pub paused: bool,
    /// Its tags.
    pub tags: Vec<String>,
    /// Whether it takes jobs without tags.
    pub run_untagged: bool,
    /// Takes jobs of protected refs only; the stand-in's refs are not protected.
    pub ref_protected: bool,
    /// Longest timeout of its jobs, in seconds.
    pub maximum_timeout_secs: Option<u64>,
    /// Its queue value: compared for equality only.
    pub queue_value: String,
    /// Its managers.
    pub managers: BTreeMap<String, Manager>,
    /// Job requests that came.
    pub requests: u64,
    /// Those of them that were answered 204.
    pub empty_answers: u64,
    /// When the last of those were.
    pub(super) recent_empty: VecDeque<u64>,
    value_ms: u64,
    pub(super) requests_rate: Bucket,
}

impl Runner {
    pub(super) fn new(id: u64, tags: Vec<String>) -> Self {
        Self {
            id,
            token: token::fresh("glrt-"),
            token_expires_ms: None,
            paused: false,
            tags,
            run_untagged: true,
            ref_protected: false,
            maximum_timeout_secs: None,
            queue_value: token::random_text(),
            managers: BTreeMap::new(),
            requests: 0,
            empty_answers: 0,
            recent_empty: VecDeque::new(),
            value_ms: 0,
            requests_rate: Bucket::default(),
        }
    }

    /// A new queue value, as of `now`; 0 where its age begins with its next use.
    pub(super) fn renew_value(&mut self, now: u64) {
        self.queue_value = token::random_text();
        self.value_ms = now;
    }

    /// The queue value; one that is too old was forgotten and is made anew.
    pub(super) fn value(&mut self, now: u64) -> String {
        if self.value_ms == 0 {
            self.value_ms = now;
        }
        if self.is_stale(now) {
            self.renew_value(now);
        }
        self.queue_value.clone()
    }

    /// Whether its queue value was forgotten since it was made.
    pub(super) fn is_stale(&self, now: u64) -> bool {
        self.value_ms != 0 && now.saturating_sub(self.value_ms) >= VALUE_MS
    }

    /// Notes that it was answered 204.
    pub(super) fn answered_empty(&mut self, now: u64) {
        self.empty_answers += 1;
        self.recent_empty.push_back(now);
        if self.recent_empty.len() > RECENT {
            self.recent_empty.pop_front();
        }
    }

    pub(super) fn matches(&self, tags: &[String]) -> bool {
        if self.ref_protected {
            return false;
        }
        if tags.is_empty() {
            self.run_untagged
        } else {
            tags.iter().all(|t| self.tags.contains(t))
        }
    }

    pub(super) fn online(&self, now: u64) -> bool {
        let latest = self
            .managers
            .values()
            .map(|manager| manager.contacted_ms)
            .max();
        latest.is_some_and(|at| now.saturating_sub(at) <= ONLINE_MS)
    }

    /// Notes a contact; a manager beyond the bound takes the place of the one silent longest.
    pub(super) fn contact(&mut self, system_id: &str, info: Option<&Info>, now: u64) {
        if self.managers.len() >= MAX_MANAGERS && !self.managers.contains_key(system_id) {
            let oldest = self
                .managers
                .iter()
                .min_by_key(|(_, manager)| manager.contacted_ms);
            if let Some(name) = oldest.map(|(name, _)| name.clone()) {
                self.managers.remove(&name);
            }
        }
        let manager = self.managers.entry(system_id.to_owned()).or_default();
        if manager.contacted_ms > 0 {
            let silent = now.saturating_sub(manager.contacted_ms);
            manager.longest_silence_ms = manager.longest_silence_ms.max(silent);
        }
        manager.contacted_ms = now;
        manager.contacts.push_back(now);
        if manager.contacts.len() > CONTACTS {
            manager.contacts.pop_front();
        }
        if let Some(info) = info {
            manager.info = info.clone();
        }
    }
}
