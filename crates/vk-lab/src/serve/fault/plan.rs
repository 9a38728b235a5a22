//! A fault to come: which calls it means, how often it hits, and what it does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Most headers that one fault changes.
const MAX_HEADERS: usize = 32;

/// The calls that a fault can hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::serve) enum Target {
    /// `POST /jobs/request`.
    Request,
    /// `PUT /jobs/:id`.
    Update,
    /// `PATCH /jobs/:id/trace`.
    Trace,
    /// `POST /jobs/:id/artifacts`.
    Upload,
    /// `GET /jobs/:id/artifacts`.
    Download,
    /// `POST /runners/verify`.
    Verify,
    /// The other calls about runners.
    Runner,
    /// Every call of the API.
    Any,
    /// Git and LFS.
    Git,
    /// The container registry, the dependency proxy and their tokens.
    Registry,
}

/// When it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::serve) enum When {
    /// Before anything of the call is looked at: nothing is read or applied.
    Before,
    /// After all of its body was read: nothing is applied.
    Body,
    /// After it was applied, in place of the answer.
    After,
}

/// What happens to a call.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::serve) enum Action {
    /// This status instead.
    Status(u16),
    /// The connection is closed without an answer.
    Drop,
    /// `drop` with `when: after`: applied, and nobody hears of it.
    LoseAnswer,
    /// So many milliseconds later; at most a minute. Unless `when` says otherwise after it was
    /// applied.
    DelayMs(u64),
    /// Only half of the answer's body is sent.
    Truncate,
    /// Nothing is read or sent for so many milliseconds (at most ten minutes), then the connection
    /// is closed.
    StallMs(u64),
    /// The answer's body comes in eight parts, so many milliseconds apart (at most ten seconds).
    TrickleMs(u64),
    /// Sent to another place, as proxies do: the path and query stay.
    Redirect {
        /// 307 unless another is given.
        #[serde(default = "temporary")]
        status: u16,
        /// `http://host:port` or `https://host:port`; the other host of `listen` when left out.
        #[serde(default)]
        to: Option<String>,
    },
    /// Headers of the answer are set; null takes one away.
    Headers(BTreeMap<String, Option<String>>),
    /// The answer's body is this one, its status stays.
    Body(String),
    /// The job is cancelled.
    Cancel {
        /// At once.
        #[serde(default)]
        force: bool,
    },
    /// The stored trace is lost from `keep` bytes on, or its last `tail` bytes.
    ForgetTrace {
        /// What stays.
        #[serde(default)]
        keep: usize,
        /// What is lost; `keep` does not count then.
        #[serde(default)]
        tail: Option<usize>,
    },
}

fn temporary() -> u16 {
    307
}

/// A fault to come.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(in crate::serve) struct Plan {
    /// Which calls.
    pub(in crate::serve) on: Target,
    /// What happens.
    pub(in crate::serve) action: Action,
    /// When; left out, when that action usually does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::serve) when: Option<When>,
    /// Only calls for this job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job: Option<u64>,
    /// Calls that are let through first.
    #[serde(default)]
    skip: u32,
    /// Every how many calls; 1 is each.
    #[serde(default = "one")]
    every: u32,
    /// The chance of each of those, above 0 and up to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chance: Option<f64>,
    /// What the chances are drawn from.
    #[serde(default)]
    seed: u64,
    /// How many calls are hit: 1, or any number with `chance`, `for_secs` or `forever`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    count: Option<u32>,
    /// Any number of calls.
    #[serde(default)]
    forever: bool,
    /// For so many seconds of the server's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    for_secs: Option<u64>,
    /// `Retry-After` of a status, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::serve) retry_after: Option<u32>,
    #[serde(skip)]
    state: State,
}

/// How far a plan has come.
#[derive(Debug, Clone, Default)]
struct State {
    seen: u64,
    hit: u64,
    until_ms: Option<u64>,
    random: u64,
}

fn one() -> u32 {
    1
}

impl Plan {
    /// Checks it and begins.
    pub(super) fn begin(&mut self, now: u64) -> Result<(), String> {
        self.check()?;
        let endless = self.forever || self.chance.is_some() || self.for_secs.is_some();
        if self.count.is_none() && !endless {
            self.count = Some(1);
        }
        self.state = State {
            until_ms: self
                .for_secs
                .map(|secs| now.saturating_add(secs.saturating_mul(1_000))),
            random: self.start(),
            ..State::default()
        };
        Ok(())
    }

    /// Where its numbers start: at another place for each plan, or those of one seed would hit one
    /// call after the other. FNV-1a of what the plan says, the seed with it.
    fn start(&self) -> u64 {
        let text = serde_json::to_string(self).unwrap_or_default();
        text.bytes().fold(0xCBF2_9CE4_8422_2325, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        })
    }

    fn check(&self) -> Result<(), String> {
        if self.count == Some(0) || self.every == 0 {
            return Err("count and every must be above 0".into());
        }
        if self
            .chance
            .is_some_and(|chance| !(chance > 0.0 && chance <= 1.0))
        {
            return Err("chance must be above 0 and at most 1".into());
        }
        let status = match self.action {
            Action::Status(code) | Action::Redirect { status: code, .. } => code,
            _ => 200,
        };
        if !(200..600).contains(&status) {
            return Err(format!("status {status} is none: 200 to 599 are"));
        }
        self.check_headers()?;
        let of_answer = matches!(
            self.action,
            Action::Truncate
                | Action::TrickleMs(_)
                | Action::Headers(_)
                | Action::Body(_)
                | Action::LoseAnswer
        );
        if of_answer && self.when.is_some_and(|when| when != When::After) {
            return Err(
                "truncate, trickle_ms, headers, body and lose_answer happen to an answer: \
                        when can only be \"after\""
                    .into(),
            );
        }
        self.check_target()
    }

    fn check_headers(&self) -> Result<(), String> {
        let Action::Headers(headers) = &self.action else {
            return Ok(());
        };
        let sound = |(name, value): (&String, &Option<String>)| {
            let value = value.as_deref().unwrap_or_default();
            hyper::header::HeaderName::from_bytes(name.as_bytes()).is_ok()
                && hyper::header::HeaderValue::from_str(value).is_ok()
        };
        if headers.len() > MAX_HEADERS || !headers.iter().all(sound) {
            return Err(format!(
                "a header is none, or there are more than {MAX_HEADERS}"
            ));
        }
        Ok(())
    }

    fn check_target(&self) -> Result<(), String> {
        let of_job = matches!(
            self.action,
            Action::Cancel { .. } | Action::ForgetTrace { .. }
        );
        let has_job = matches!(
            self.on,
            Target::Update | Target::Trace | Target::Upload | Target::Download
        );
        if of_job && !has_job {
            return Err(
                "cancel and forget_trace need a call of a job: update, trace, upload or \
                        download"
                    .into(),
            );
        }
        let reads_body = !matches!(self.on, Target::Git | Target::Registry | Target::Download);
        if !reads_body && self.when == Some(When::Body) {
            return Err(
                "git, registry and download calls are not hit after their body; use before or after".into(),
            );
        }
        Ok(())
    }

    /// When it happens.
    pub(super) fn moment(&self) -> When {
        self.when.unwrap_or(match self.action {
            Action::Status(_)
            | Action::Drop
            | Action::StallMs(_)
            | Action::Redirect { .. }
            | Action::Cancel { .. }
            | Action::ForgetTrace { .. } => When::Before,
            Action::LoseAnswer
            | Action::DelayMs(_)
            | Action::Truncate
            | Action::TrickleMs(_)
            | Action::Headers(_)
            | Action::Body(_) => When::After,
        })
    }

    /// Whether what was applied never becomes known to the caller.
    pub(super) fn loses_answer(&self) -> bool {
        let ends = matches!(
            self.action,
            Action::Status(_) | Action::Drop | Action::StallMs(_) | Action::Redirect { .. }
        );
        matches!(
            self.action,
            Action::LoseAnswer | Action::Truncate | Action::Body(_)
        ) || (ends && self.moment() == When::After)
    }

    /// Whether it leads to a place that it does not name.
    pub(in crate::serve) fn needs_other_host(&self) -> bool {
        matches!(&self.action, Action::Redirect { to: None, .. })
    }

    /// Whether it is meant for such a call.
    pub(super) fn means(&self, target: Target, job: Option<u64>) -> bool {
        let is_api = !matches!(target, Target::Git | Target::Registry);
        let any = self.on == Target::Any && is_api;
        (any || self.on == target) && self.job.is_none_or(|id| Some(id) == job)
    }

    /// Counts a call that it is meant for. Whether it hits.
    pub(super) fn hits(&mut self) -> bool {
        let at = self.state.seen;
        self.state.seen += 1;
        let Some(past) = at.checked_sub(u64::from(self.skip)) else {
            return false;
        };
        if (past + 1) % u64::from(self.every) != 0 {
            return false;
        }
        if let Some(chance) = self.chance
            && self.random() >= chance
        {
            return false;
        }
        self.state.hit += 1;
        true
    }

    /// The next number of the plan's own, from 0 up to 1 (SplitMix64).
    fn random(&mut self) -> f64 {
        self.state.random = self.state.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        let high = u32::try_from(z >> 32).unwrap_or(u32::MAX);
        f64::from(high) / (f64::from(u32::MAX) + 1.0)
    }

    /// Whether it hits nothing any more.
    pub(super) fn is_over(&self, now: u64) -> bool {
        let used = self
            .count
            .is_some_and(|count| self.state.hit >= u64::from(count));
        used || self.state.until_ms.is_some_and(|until| now >= until)
    }

    /// Calls seen and hit.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.state.seen, self.state.hit)
    }
}
