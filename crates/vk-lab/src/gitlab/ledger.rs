//! What a run broke: the list that must be empty at its end.

use std::collections::BTreeMap;

use serde::Serialize;

use super::update::Update;

/// Most entries kept; more are only counted.
const MAX_ENTRIES: usize = 10_000;

/// Which promise was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Handed out, heard of, and never ended by its runner.
    NeverFinished,
    /// Handed out, and never heard of.
    Orphan,
    /// One job in two answers.
    HandedOutTwice,
    /// The trace is shorter than expected, or lacks something.
    BytesMissing,
    /// The trace is not what was expected.
    BytesChanged,
    /// A masked value or a token stands in a trace.
    SecretInTrace,
    /// GitLab itself had to overwrite a token that the runner sent.
    MaskedInPlace,
    /// A call after the end that is not the allowed retry.
    CallAfterEnd,
    /// The checksum of the final update is not that of the stored trace.
    ChecksumMismatch,
    /// The size of the final update is not that of the stored trace.
    SizeMismatch,
    /// The runner gave up a job request before its answer.
    AbortedJobRequest,
    /// A masked value or a token stands in an uploaded file.
    SecretInUpload,
    /// A masked value or a token was sent to another host.
    SecretToForeignHost,
    /// A rate limit was passed.
    RateExceeded,
    /// The runner was told of a cancel and took longer than it may.
    CancelTooSlow,
}

/// One broken promise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Broken {
    /// Which.
    pub kind: Kind,
    /// The job it concerns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
    /// What was seen.
    pub detail: String,
    /// It follows from a fault that was asked for: the answer that handed the job out was lost.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub injected: bool,
}

/// What has been broken so far.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    entries: Vec<Broken>,
    /// Entries beyond the bound.
    pub left_out: u64,
}

impl Ledger {
    /// Notes one.
    pub fn note(&mut self, kind: Kind, job: Option<u64>, detail: impl Into<String>) {
        if self.entries.len() < MAX_ENTRIES {
            self.entries.push(Broken {
                kind,
                job,
                detail: detail.into(),
                injected: false,
            });
        } else {
            self.left_out += 1;
        }
    }

    /// Those that were seen as they happened.
    pub fn seen(&self) -> &[Broken] {
        &self.entries
    }
}

/// What a job's log is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expectation {
    /// Exactly these bytes.
    Exactly(Vec<u8>),
    /// These parts, in this order.
    Contains(Vec<String>),
}

impl Expectation {
    /// Compares a stored trace.
    pub fn judge(&self, trace: &[u8]) -> Option<(Kind, String)> {
        match self {
            Self::Exactly(want) => judge_exact(want, trace),
            Self::Contains(parts) => judge_parts(parts, trace),
        }
    }
}

fn judge_exact(want: &[u8], trace: &[u8]) -> Option<(Kind, String)> {
    let same = want.iter().zip(trace).take_while(|(a, b)| a == b).count();
    if same < want.len().min(trace.len()) || trace.len() > want.len() {
        let text = format!(
            "stored trace differs from byte {same} on ({} bytes)",
            trace.len()
        );
        return Some((Kind::BytesChanged, text));
    }
    let text = format!(
        "{} of {} expected bytes are stored",
        trace.len(),
        want.len()
    );
    (trace.len() < want.len()).then_some((Kind::BytesMissing, text))
}

fn judge_parts(parts: &[String], trace: &[u8]) -> Option<(Kind, String)> {
    let mut rest = trace;
    for part in parts {
        let Some(at) = memchr::memmem::find(rest, part.as_bytes()) else {
            return Some((
                Kind::BytesMissing,
                format!("{part:?} is not in the trace, in order"),
            ));
        };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    None
}

/// Who makes a call: the daemon's and the transfers' ends are learnt apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// Updates and trace patches.
    Control,
    /// Artifacts.
    Transfer,
}

/// What ended a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// This final update was answered 200.
    Final(Update),
    /// It was answered 403. A final update may still be tried, once.
    Refused { final_tried: bool },
}

/// The calls of one job.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    /// How often the job was handed out.
    pub handed_out: u32,
    /// Calls of any kind.
    pub count: u64,
    /// When each `Job-Status` was first answered, in ms since the Unix epoch; answers that a fault
    /// loses do not count.
    pub told_ms: BTreeMap<String, u64>,
    control_end: Option<(u64, End)>,
    transfer_end: Option<(u64, End)>,
}

impl Calls {
    fn end(&mut self, channel: Channel) -> &mut Option<(u64, End)> {
        match channel {
            Channel::Control => &mut self.control_end,
            Channel::Transfer => &mut self.transfer_end,
        }
    }

    /// Notes a call that began as number `begun` of all calls. Whether it was allowed.
    pub fn call(&mut self, channel: Channel, begun: u64, update: Option<&Update>) -> bool {
        self.count += 1;
        match self.end(channel) {
            Some((ended, end)) if begun > *ended => allowed(end, update),
            _ => true,
        }
    }

    /// Notes the answer that ended a channel, after call number `now` had begun.
    pub fn ended(&mut self, channel: Channel, now: u64, accepted: Option<&Update>) {
        let end = self.end(channel);
        match (accepted, &end) {
            (Some(update), _) => *end = Some((now, End::Final(update.clone()))),
            (None, None) => *end = Some((now, End::Refused { final_tried: false })),
            // The retry of a lost final 200 learns what became of it; then that is that.
            (None, Some((_, End::Final(_)))) => {
                *end = Some((now, End::Refused { final_tried: true }));
            }
            (None, Some((_, End::Refused { .. }))) => {}
        }
    }
}

fn allowed(end: &mut End, update: Option<&Update>) -> bool {
    match (end, update) {
        (End::Final(taken), Some(update)) => taken == update,
        (End::Refused { final_tried }, Some(update)) if update.is_final() => {
            !std::mem::replace(final_tried, true)
        }
        _ => false,
    }
}
