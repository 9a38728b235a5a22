//! Where the hub's output ends, and the closing lines begin (GL-74).
//!
//! The hub says so as long as it has the output. Where it has not, or says nothing to this relay any
//! more, the output ends with what GitLab has of it. From the moment they may stand in GitLab's trace,
//! the closing lines' place is kept: a restart must not take them for output.

use super::machine::Job;
use super::trace::{has_no_output, size};
use super::{JobRecord, Record, SafePoint, Step};

/// Where the closing lines may stand in GitLab's trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Closing {
    /// Their offset: the length of preamble and output.
    pub offset: u64,
    /// Nobody said that the output ends there: GitLab may have more of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub supposed: bool,
    /// GitLab had said that it is there when they went out for the first time: what it has behind that
    /// are these lines, as many bytes of them as it kept (GL-50).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exact: bool,
}

impl Job {
    /// Whether more of the job's output may come than is known.
    pub(super) fn expects_output(&self) -> bool {
        let expected = |job: &JobRecord| !has_no_output(job);
        self.trace.whole.is_none() && self.record.as_ref().is_some_and(expected)
    }

    /// Whether the place of the closing lines stays as it is, whatever the hub says.
    pub(super) fn closes_somewhere(&self) -> bool {
        let closing = self.record.as_ref().and_then(|job| job.closing);
        self.trace.supposed || closing.is_some()
    }

    fn preamble_len(&self) -> u64 {
        self.record.as_ref().map_or(0, |job| size(job.preamble()))
    }

    /// The closing lines go out: from here on they may stand where they were sent to. Where no output
    /// can ever come, their place is known without a record; a job that no node took may be committed
    /// yet (ERR-32).
    pub(super) fn keep_where_it_closes(&mut self, step: &mut Step) {
        let Some(job) = &self.record else {
            return;
        };
        let output = self.trace.whole.unwrap_or(0);
        let offset = size(job.preamble()).saturating_add(output);
        let before = job.closing.filter(|closing| closing.offset == offset);
        let closing = Closing {
            offset,
            supposed: self.trace.supposed,
            exact: match before {
                Some(closing) => closing.exact,
                // A server that said more before, or may have more of the output, is not known.
                None => self.trace.said == Some(offset) && self.trace.most <= offset,
            },
        };
        let never = job.hub_job.is_none() || job.abandoned;
        let known = never && output == 0 && job.closing.is_none();
        if !known && job.closing != Some(closing) {
            let reaches_behind = job.patched.offset > closing.offset;
            self.trace.whole = Some(output);
            if reaches_behind {
                // It counts bytes that GitLab lost: a restart must not begin behind the lines.
                self.keep(Record::Patched(SafePoint::default()), step);
            }
            self.keep(Record::Closing(closing), step);
        }
    }

    /// The hub said how much output there is in all. What GitLab had beyond that and lost is known to
    /// nobody.
    pub(super) fn output_ends(&mut self, whole: u64) {
        self.trace.whole = Some(whole);
        let end = self.preamble_len().saturating_add(whole);
        if end < self.trace.sum.offset {
            self.trace.sum.offset = end;
            self.trace.unknown = true;
        }
    }

    /// An earlier version kept how far GitLab was behind the closing lines, and not where they stand:
    /// where exactly these are between the hub's output and there, all of the output is before them.
    pub(super) fn closes_behind(&self, total: u64, from: u64) -> bool {
        let suffix = self.record.as_ref().map_or(0, |job| size(job.suffix()));
        self.trace.older && suffix > 0 && total.checked_add(suffix) == Some(from)
    }

    /// What was read of the output is all there will be.
    pub(super) fn output_ends_here(&mut self) {
        let end = self.trace.sum.offset.max(self.trace.gitlab);
        self.trace.unknown |= end > self.trace.sum.offset;
        self.trace.gitlab = end;
        self.trace.sum.offset = end;
        let had = end.saturating_sub(self.preamble_len());
        // Bytes that are held go out yet.
        let held = self.trace.read.map(|(from, len)| (from, from + len));
        let held = held.filter(|(from, to)| *from <= had && had < *to);
        self.trace.whole = Some(held.map_or(had, |(_, to)| to));
        self.trace.supposed = true;
    }

    /// Output that comes next can be had from nobody: the hub lost it, or says nothing to this relay
    /// any more.
    pub(super) fn output_is_gone(&mut self) {
        let (gitlab, ours) = (self.trace.gitlab, self.trace.sum.offset);
        let closing = self.record.as_ref().and_then(|job| job.closing);
        match closing.map(|closing| closing.offset) {
            // Whether GitLab misses it is not known yet.
            _ if self.trace.guessed => self.trace.asks = true,
            _ if gitlab < ours => self.output_ends_where_gitlab_is(),
            // A restart knows no better: GitLab says so if it is not so.
            Some(closing) if gitlab == ours && gitlab < closing => self.gitlab_has_all_to(closing),
            Some(_) => self.gitlab_has_all_to(gitlab),
            None => self.output_ends_here(),
        }
    }

    /// What GitLab has up to here is taken as it is.
    fn gitlab_has_all_to(&mut self, end: u64) {
        self.trace.unknown |= end > self.trace.sum.offset;
        self.trace.gitlab = end;
        self.trace.sum.offset = end;
    }

    /// GitLab lost output that nobody can bring any more: the closing lines come where it is.
    fn output_ends_where_gitlab_is(&mut self) {
        let had = self.trace.gitlab.saturating_sub(self.preamble_len());
        if self.trace.whole.is_some_and(|whole| whole <= had) {
            // No output is missing.
            return;
        }
        self.trace.whole = Some(had);
        self.trace.sum.offset = self.trace.gitlab;
        self.trace.unknown = true;
        self.trace.supposed = true;
    }
}
