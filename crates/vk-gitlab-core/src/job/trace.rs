//! The trace: which bytes GitLab has, which it gets next, and their checksum (GL-72, GL-74).
//!
//! The trace is the preamble, the hub's output and the suffix, in this order and nothing else. Two
//! places in it move: where GitLab is (`gitlab`), and how far the checksum reaches (`sum`). They
//! are the same but after a restart, when GitLab may be ahead, and when GitLab lost bytes it had,
//! when it is behind. Bytes never change, so the checksum is never taken back.

use std::time::Duration;

use vk_hub_proto::client::ErrorCode;
use vk_hub_proto::limit::{OUTPUT_ANSWER_BYTES, WAIT_SECS};
use vk_step::Now;

use super::hub_calls::HubCall;
use super::machine::Job;
use super::{CallId, Effect, JobRecord, Note, OutputRead, Record, SafePoint, Span, Step};
use crate::HubFailure;

/// Bytes of one patch and of one read at most (GL-18).
const PATCH_BYTES: u64 = OUTPUT_ANSWER_BYTES as u64;
/// A checksum is kept at most so often (STATE-23).
const KEPT_EVERY: Duration = Duration::from_secs(10);
/// Reads that bring nothing are not made closer together than this.
const APART: Duration = Duration::from_secs(1);

/// Where the trace stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trace {
    /// GitLab's next offset, as it was last said or may be supposed.
    pub(super) gitlab: u64,
    /// How far the checksum reaches.
    pub(super) sum: SafePoint,
    kept_at: Option<Now>,
    fetch: HubCall,
    fetch_from: u64,
    sum_call: Option<(CallId, u64)>,
    /// The bytes of the hub's output that the edge holds: first and how many.
    pub(super) read: Option<(u64, u64)>,
    /// Bytes of the hub's output in all; none while there may be more.
    pub(super) whole: Option<u64>,
    /// Nobody said so: the output cannot be read, and GitLab may have more of it than is known.
    pub(super) supposed: bool,
    /// When the next patch may go out.
    pub(super) patch_at: Now,
    /// Answers in a row that put GitLab elsewhere than it was thought.
    pub(super) mismatches: u32,
    /// Bytes that GitLab has were never seen by this life and cannot be read any more.
    pub(super) unknown: bool,
    /// GitLab has not said where it is: it only said, with a 412, that it misses something.
    pub(super) guessed: bool,
    /// Where GitLab said last that it is; none once it was sent more.
    pub(super) said: Option<u64>,
    /// The most output that GitLab may have: what it said once, and what it was sent.
    pub(super) most: u64,
    /// It is asked, for nothing that stands at that place can be brought.
    pub(super) asks: bool,
    /// It began with closing lines and no place of theirs, as an earlier version keeps it.
    pub(super) older: bool,
    /// GitLab may have closing lines, or some of them.
    closed: bool,
}

/// What the trace needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Bytes of the hub's output.
    Fetch { offset: u64 },
    /// These bytes summed: GitLab has them already.
    Sum(Span),
    /// These bytes patched.
    Patch(Span),
    /// The closing lines, which are not rendered yet.
    Suffix,
    /// Nothing: GitLab has all of it.
    Whole,
}

impl Trace {
    pub(super) fn new(now: Now, point: SafePoint) -> Trace {
        Trace {
            gitlab: point.offset,
            sum: point,
            kept_at: None,
            fetch: HubCall::new(now),
            fetch_from: 0,
            sum_call: None,
            read: None,
            whole: None,
            supposed: false,
            patch_at: now,
            mismatches: 0,
            unknown: false,
            guessed: false,
            said: None,
            most: point.offset,
            asks: false,
            older: false,
            closed: false,
        }
    }

    /// Where the trace of a job that is kept so stands.
    pub(super) fn resumed(now: Now, job: &JobRecord) -> Trace {
        let preamble = size(job.preamble());
        Trace {
            whole: job.closing.map(|at| at.offset.saturating_sub(preamble)),
            supposed: job.closing.is_some_and(|at| at.supposed),
            older: job.closing.is_none() && job.suffix.is_some(),
            closed: job.closing.is_some(),
            ..Trace::new(now, job.patched)
        }
    }

    /// GitLab misses something of the trace: it is sent from its beginning, unless GitLab says where
    /// it is (GL-33, GL-70).
    pub(super) fn begin_again(&mut self, at: Now) {
        self.gitlab = 0;
        self.guessed = true;
        self.said = None;
        self.patch_at = at;
    }

    /// GitLab said where it is.
    fn is_at(&mut self, gitlab: u64) {
        self.gitlab = gitlab;
        self.guessed = false;
        self.said = Some(gitlab);
        self.most = self.most.max(gitlab);
        self.asks = false;
    }

    /// The trace's checksum and size, where all of it is known.
    pub(super) fn checksum(&self) -> Option<SafePoint> {
        (!self.unknown).then_some(self.sum)
    }

    /// The job is finished: an open read is answered at once, so nothing waits any more.
    pub(super) fn finished(&mut self, now: Now) {
        self.patch_at = self.patch_at.min(now);
    }

    /// What comes next. A job that ends without having run has no output but the daemon's lines.
    pub(super) fn piece(&self, job: &JobRecord) -> Piece {
        let whole = match has_no_output(job) {
            true => Some(self.whole.unwrap_or(0)),
            false => self.whole,
        };
        let summing = self.sum.offset < self.gitlab;
        let (at, limit) = if summing {
            (self.sum.offset, self.gitlab - self.sum.offset)
        } else if self.gitlab < self.sum.offset {
            (self.gitlab, self.sum.offset - self.gitlab)
        } else {
            (self.gitlab, PATCH_BYTES)
        };
        let limit = limit.min(PATCH_BYTES);
        match self.place(job, whole, at) {
            Place::Bytes(span) if summing => Piece::Sum(cut(span, limit)),
            Place::Bytes(span) => Piece::Patch(cut(span, limit)),
            Place::NotRead(offset) => Piece::Fetch { offset },
            Place::NoSuffix => Piece::Suffix,
            Place::End => Piece::Whole,
        }
    }

    /// What stands at this place of the trace.
    fn place(&self, job: &JobRecord, whole: Option<u64>, at: u64) -> Place {
        let preamble = size(job.preamble());
        if at < preamble {
            return Place::Bytes(Span::Preamble {
                from: at,
                len: preamble - at,
            });
        }
        let at = at - preamble;
        let Some(past) = whole.and_then(|whole| at.checked_sub(whole)) else {
            return self.output(at);
        };
        let lines = job.ended.as_ref().map_or(0, |ended| ended.lines.len());
        if job.ended.is_none() || (lines > 0 && job.suffix.is_none()) {
            return Place::NoSuffix;
        }
        let suffix = size(job.suffix());
        if past < suffix {
            Place::Bytes(Span::Suffix {
                from: past,
                len: suffix - past,
            })
        } else {
            Place::End
        }
    }

    fn output(&self, at: u64) -> Place {
        let held = self.read.and_then(|(from, len)| {
            let skipped = at.checked_sub(from)?;
            len.checked_sub(skipped).filter(|left| *left > 0)
        });
        match held {
            Some(len) => Place::Bytes(Span::Output { from: at, len }),
            None => Place::NotRead(at),
        }
    }
}

enum Place {
    Bytes(Span),
    NotRead(u64),
    NoSuffix,
    End,
}

impl Job {
    /// Reads and sums what is needed; patches are the GitLab side's to send.
    pub(super) fn advance_trace(&mut self, now: Now, step: &mut Step) {
        let Some(job) = self.record.as_ref().filter(|job| !job.is_over()) else {
            return;
        };
        if !self.traces(job) {
            return;
        }
        match self.trace.piece(job) {
            Piece::Fetch { offset } if !self.trace.asks => self.fetch(now, offset, step),
            Piece::Sum(Span::Suffix { .. }) if self.has_more_than_closing() => {
                // No line went out yet: it is output that the hub lost.
                self.output_reaches(self.trace.gitlab);
                self.trace.supposed = true;
                self.keep_where_it_closes(step);
            }
            Piece::Sum(span) if self.trace.sum_call.is_none() => {
                let call = self.next_call();
                self.trace.sum_call = Some((call, span.len()));
                let crc = self.trace.sum.crc;
                step.effect(Effect::Sum { call, span, crc });
            }
            Piece::Patch(Span::Suffix { .. }) => self.keep_where_it_closes(step),
            Piece::Whole => self.ends_here(step),
            Piece::Fetch { .. } | Piece::Sum(_) | Piece::Patch(_) | Piece::Suffix => {}
        }
    }

    /// Whether the trace is being written: GitLab knows that the job runs, or has ended without
    /// having run.
    pub(super) fn traces(&self, job: &JobRecord) -> bool {
        (job.committed && !self.gitlab.asks_first()) || (job.ended.is_some() && !job.committed)
    }

    fn fetch(&mut self, now: Now, offset: u64, step: &mut Step) {
        let summing = self.trace.sum.offset < self.trace.gitlab;
        let due = self.trace.fetch.is_due(now) && (summing || now >= self.trace.patch_at);
        let hub_job = self.record.as_ref().and_then(|job| job.hub_job);
        let (Some(hub_job), true) = (hub_job, due) else {
            return;
        };
        let call = self.next_call();
        self.trace.fetch.goes_out(call, now);
        self.trace.fetch_from = offset;
        self.trace.read = None;
        step.effect(Effect::Fetch {
            call,
            hub_job,
            offset,
            max_bytes: PATCH_BYTES,
            wait_secs: WAIT_SECS,
        });
    }

    /// Takes what a read brought.
    pub(super) fn fetch_answered(
        &mut self,
        now: Now,
        call: CallId,
        answer: Result<OutputRead, HubFailure>,
        step: &mut Step,
    ) {
        let Some(sent) = self.trace.fetch.answered(call) else {
            return;
        };
        if answer.is_ok() {
            self.relay.answered();
        }
        match answer {
            Ok(read) if self.closes_somewhere() => self.read_again(now, sent, read),
            Ok(read) => {
                let from = self.trace.fetch_from;
                let next = if read.len > 0 || read.complete {
                    now
                } else {
                    sent.after(APART)
                };
                self.trace.fetch.succeed(next);
                self.trace.read = (read.len > 0).then_some((from, read.len));
                if read.complete {
                    self.output_ends(from + read.len);
                } else if self.view.is_over() && self.closes_behind(read.total, from) {
                    self.trace.whole = Some(read.total);
                } else if self.view.is_over() && read.total < from {
                    // The hub came back with less than it had.
                    self.output_is_gone();
                }
            }
            Err(failure) if failure.code == Some(ErrorCode::NotFound) => {
                // Settled or forgotten.
                self.output_is_gone();
                step.effect(Effect::Note(Note::LostByHub));
            }
            Err(failure) => {
                let urgency = self.urgency();
                self.trace
                    .fetch
                    .fail(now, &failure, urgency, &mut self.spread);
                self.note_hub("output", failure, step);
                if self.relay.lost().is_some() {
                    self.output_is_gone();
                }
            }
        }
    }

    /// A read is answered after all that was made before the output was supposed to end, or because
    /// GitLab lost some of it. Where it ends stays: the closing lines stand there.
    fn read_again(&mut self, now: Now, sent: Now, read: OutputRead) {
        let from = self.trace.fetch_from;
        let room = self
            .trace
            .whole
            .map_or(0, |whole| whole.saturating_sub(from));
        let len = read.len.min(room);
        self.trace.read = (len > 0).then_some((from, len));
        let next = if len > 0 { now } else { sent.after(APART) };
        self.trace.fetch.succeed(next);
        let needed = Piece::Fetch { offset: from };
        let mut job = self.record.iter();
        if job.any(|job| self.trace.piece(job) == needed) {
            self.output_is_gone();
        }
    }

    /// The edge does not hold what it was to sum or patch.
    pub(super) fn not_held(&mut self, now: Now, call: CallId) {
        let sums = self.trace.sum_call.is_some_and(|(out, _)| out == call);
        if sums {
            self.trace.sum_call = None;
        }
        if sums || self.patch_taken_back(call) {
            self.trace.read = None;
            self.trace.fetch.succeed(now.after(APART));
            self.trace.patch_at = now.after(APART);
        }
    }

    /// Takes a checksum over bytes that GitLab had already.
    pub(super) fn summed(&mut self, now: Now, call: CallId, crc: u32, step: &mut Step) {
        let Some((_, len)) = self.trace.sum_call.filter(|(out, _)| *out == call) else {
            return;
        };
        self.trace.sum_call = None;
        let offset = self.trace.sum.offset + len;
        self.sum_reaches(now, SafePoint { offset, crc }, step);
    }

    /// GitLab took a patch.
    pub(super) fn patched(
        &mut self,
        now: Now,
        offset: u64,
        len: u64,
        crc: Option<u32>,
        step: &mut Step,
    ) {
        self.trace.mismatches = 0;
        self.trace.is_at(offset + len);
        let preamble = self.record.as_ref().map_or(0, |job| size(job.preamble()));
        let output = self.trace.whole.map(|whole| preamble + whole);
        self.trace.closed |= output.is_some_and(|end| offset + len > end);
        if let (Some(crc), true) = (crc, offset == self.trace.sum.offset) {
            let offset = offset + len;
            self.sum_reaches(now, SafePoint { offset, crc }, step);
        }
    }

    fn sum_reaches(&mut self, now: Now, point: SafePoint, step: &mut Step) {
        self.trace.sum = point;
        let due = self
            .trace
            .kept_at
            .is_none_or(|kept| now.since(kept) >= KEPT_EVERY);
        if due && !self.trace.unknown {
            self.trace.kept_at = Some(now);
            self.keep(Record::Patched(point), step);
        }
    }

    /// A patch was answered with 416: GitLab has so many bytes (GL-21, GL-50).
    pub(super) fn elsewhere(&mut self, gitlab: u64, step: &mut Step) {
        self.trace.mismatches = self.trace.mismatches.saturating_add(1);
        if gitlab < self.trace.gitlab && gitlab < self.trace.sum.offset {
            step.effect(Effect::Note(Note::TraceBehind {
                gitlab,
                acknowledged: self.trace.sum.offset,
            }));
        }
        self.trace.is_at(gitlab);
        if self.has_more_than_known(gitlab) {
            self.output_reaches(gitlab);
        }
    }

    /// What GitLab has is output of the job, to its end.
    fn output_reaches(&mut self, gitlab: u64) {
        let preamble = self.record.as_ref().map_or(0, |job| size(job.preamble()));
        self.trace.whole = Some(gitlab.saturating_sub(preamble));
        self.trace.sum.offset = gitlab;
        self.trace.unknown = true;
    }

    /// Whether GitLab has bytes between the preamble and where the closing lines were to stand, or
    /// after that, which are not the closing lines: these go out whole, in one patch. They are output
    /// of the job that nothing here knows of any more, and the closing lines come behind it.
    fn has_more_than_known(&self, gitlab: u64) -> bool {
        let Some(job) = &self.record else {
            return false;
        };
        if !self.trace.supposed && !has_no_output(job) {
            return false;
        }
        self.is_beyond_closing(job, gitlab)
    }

    /// The same where the hub said that its output ends there, and no closing line was summed.
    fn has_more_than_closing(&self) -> bool {
        let mut job = self.record.iter();
        !self.trace.closed && job.any(|job| self.is_beyond_closing(job, self.trace.gitlab))
    }

    fn is_beyond_closing(&self, job: &JobRecord, gitlab: u64) -> bool {
        let closing = size(job.preamble()) + self.trace.whole.unwrap_or(0);
        let with_them = closing + size(job.suffix());
        let exact = job
            .closing
            .is_some_and(|at| at.exact && at.offset == closing);
        let is_part_of_them = gitlab == with_them || exact && gitlab < with_them;
        gitlab > closing && gitlab > self.trace.sum.offset && !is_part_of_them
    }

    /// All of the trace is summed; a GitLab that says to have more has what is not ours (GL-50).
    fn ends_here(&mut self, step: &mut Step) {
        if self.trace.gitlab > self.trace.sum.offset {
            step.effect(Effect::Note(Note::TraceAhead {
                gitlab: self.trace.gitlab,
                ours: self.trace.sum.offset,
            }));
            self.trace.gitlab = self.trace.sum.offset;
        }
    }

    /// When a read is due.
    pub(super) fn trace_deadlines(&self) -> [Option<Now>; 2] {
        [self.trace.fetch.due(), Some(self.trace.patch_at)]
    }
}

fn cut(span: Span, limit: u64) -> Span {
    match span {
        Span::Preamble { from, len } => Span::Preamble {
            from,
            len: len.min(limit),
        },
        Span::Output { from, len } => Span::Output {
            from,
            len: len.min(limit),
        },
        Span::Suffix { from, len } => Span::Suffix {
            from,
            len: len.min(limit),
        },
    }
}

/// Whether a job has nothing but the daemon's lines in its trace, as far as is known.
pub(super) fn has_no_output(job: &JobRecord) -> bool {
    let never_ran = job.ended.is_some() && !job.committed;
    job.hub_job.is_none() || job.abandoned || never_ran
}

/// A text's length in bytes.
pub(super) fn size(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}
