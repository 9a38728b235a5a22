//! The machine: inputs change what is known, and what is known says what is to be done.

use std::mem;

use vk_step::{Core, Now, OpenError, Variant};

use super::close::Cancel;
use super::follow::View;
use super::gitlab::GitLab;
use super::hub_calls::{HubCall, Urgency};
use super::relay::Relay;
use super::store::Store;
use super::submit::Submission;
use super::trace::Trace;
use super::{CallId, Config, Effect, Input, JobRecord, Note, Record, SafePoint, Step};
use crate::{HubFailure, Spread};

/// Carries one job to its end.
#[derive(Clone, Debug)]
pub struct Job {
    pub(super) config: Config,
    opened: Now,
    pub(super) record: Option<JobRecord>,
    pub(super) spread: Spread,
    calls: u64,
    pub(super) submission: Submission,
    pub(super) view: View,
    pub(super) cancel: Cancel,
    pub(super) settle: HubCall,
    pub(super) gitlab: GitLab,
    pub(super) trace: Trace,
    pub(super) suffix_call: Option<CallId>,
    pub(super) relay: Relay,
    /// Done: the edge drops the core.
    removed: bool,
    pub(super) store: Store,
    pub(super) over_told: bool,
    deadline: Option<Now>,
}

impl Core for Job {
    type Config = Config;
    type Input = Input;
    type Record = Record;
    type Effect = Effect;

    fn open(
        config: Config,
        now: Now,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<(Job, Vec<Effect>), OpenError> {
        let mut job = None;
        let mut any = false;
        for (at, record) in records.into_iter().enumerate() {
            any = true;
            let variant = record.variant();
            job = JobRecord::add(job, record).map_err(|why| OpenError { at, variant, why })?;
        }
        let mut core = Job::empty(config, now);
        let mut step = Step::none();
        if let Some(job) = job {
            step.effect(Effect::Note(Note::Resumed));
            core.resume(now, job, &mut step);
            // What there is to do may need records, which opening cannot hand out: it is done at
            // the deadline, which is now.
            core.deadline = Some(now);
        } else if any {
            core.removed = true;
            step.effect(Effect::Removed);
        }
        Ok((core, step.effects))
    }

    fn handle(&mut self, now: Now, input: Input) -> Step {
        let mut step = Step::none();
        self.take(now, input, &mut step);
        self.advance(now, &mut step);
        step
    }

    fn next_deadline(&self) -> Option<Now> {
        self.deadline
    }

    fn timeout() -> Input {
        Input::Timeout
    }
}

impl Job {
    fn empty(config: Config, now: Now) -> Job {
        Job {
            opened: now,
            record: None,
            spread: Spread::new(config.seed),
            calls: 0,
            submission: Submission::new(now, config.place_within_secs, false),
            view: View::new(now),
            cancel: Cancel::new(now),
            settle: HubCall::new(now),
            gitlab: GitLab::new(now, false),
            trace: Trace::new(now, SafePoint::default()),
            suffix_call: None,
            relay: Relay::default(),
            removed: false,
            store: Store::default(),
            over_told: false,
            deadline: None,
            config,
        }
    }

    /// The job as it stands: for its token, its preamble and its suffix; none before it was taken
    /// and after it was removed.
    #[must_use]
    pub fn record(&self) -> Option<&JobRecord> {
        self.record.as_ref()
    }

    /// The job as the state file is to hold it: the sum of the records handed out. None where it is
    /// not to hold it, a job that could not be kept among them (STATE-22).
    #[must_use]
    pub fn kept(&self) -> Option<&JobRecord> {
        self.record.as_ref().filter(|_| self.store.keeps())
    }

    /// How many bytes of the trace GitLab has, as far as is known.
    #[must_use]
    pub const fn trace_offset(&self) -> u64 {
        self.trace.gitlab
    }

    /// Starts anew from what is kept: nothing of what was under way is believed (STATE-04). Of a
    /// committed job GitLab is asked first how it stands (STATE-25).
    pub(super) fn resume(&mut self, now: Now, job: JobRecord, step: &mut Step) {
        self.submission = Submission::new(now, job.taken.place_within_secs, true);
        self.view = View::new(now);
        self.cancel = Cancel::new(now);
        self.settle = HubCall::new(now);
        self.gitlab = GitLab::new(now, job.committed && !job.is_over());
        self.trace = Trace::resumed(now, &job);
        self.suffix_call = None;
        self.over_told = self.over_told || job.is_over();
        self.record = Some(job);
        if self.record.as_ref().is_some_and(|job| job.refused) {
            self.release_reservation(step);
        }
    }

    fn take(&mut self, now: Now, input: Input, step: &mut Step) {
        let is_heard = matches!(
            input,
            Input::StoreFailed { .. } | Input::RelayRemoved { .. }
        );
        if self.store.is_waiting() && !is_heard {
            // Nothing is promised before the records are written. That the relay was removed is said
            // once, and no record holds it.
            return;
        }
        match input {
            Input::Timeout => {}
            Input::Take {
                job,
                placement,
                reservation,
            } => self.take_job(now, *job, placement, reservation, step),
            Input::SubmitAnswer(call, answer) => self.submit_answered(now, call, answer, step),
            Input::ViewAnswer(call, answer) => self.view_answered(now, call, answer, step),
            Input::FetchAnswer(call, answer) => self.fetch_answered(now, call, answer, step),
            Input::SumAnswer(call, crc) => self.summed(now, call, crc, step),
            Input::CancelAnswer(call, answer) => self.cancel_answered(now, call, answer, step),
            Input::SettleAnswer(call, answer) => self.settle_answered(now, call, answer, step),
            Input::SuffixAnswer(call, text) => self.suffix_answered(call, text, step),
            Input::UpdateAnswer(call, answer) => self.update_answered(now, call, &answer, step),
            Input::PatchAnswer { call, answer, crc } => {
                self.patch_answered(now, call, &answer, crc, step);
            }
            Input::RelayRemoved { why } => self.relay.removed = Some(why),
            Input::NotHeld(call) => self.not_held(now, call),
            Input::StoreFailed { why, kept } => self.store_failed(now, why, kept, step),
        }
    }

    /// Derives everything that is to be done.
    fn advance(&mut self, now: Now, step: &mut Step) {
        if !self.advance_store(now, step) {
            self.deadline = self.store.deadline();
            return;
        }
        self.advance_submission(now, step);
        self.advance_view(now, step);
        self.advance_relay(step);
        self.advance_end(now, step);
        self.advance_suffix(step);
        self.advance_trace(now, step);
        self.advance_gitlab(now, step);
        self.advance_cancel(now, step);
        self.advance_settle(now, step);
        self.tell_over(step);
        self.deadline = self.deadlines(now);
    }

    /// Has the closing lines stamped (GL-26).
    fn advance_suffix(&mut self, step: &mut Step) {
        let Some(job) = self.record.as_ref().filter(|job| !job.is_over()) else {
            return;
        };
        let lines = match &job.ended {
            Some(ended) if job.suffix.is_none() && !ended.lines.is_empty() => ended.lines.clone(),
            _ => return,
        };
        if self.suffix_call.is_some() {
            return;
        }
        let timestamps = job.taken.timestamps;
        let call = self.next_call();
        self.suffix_call = Some(call);
        step.effect(Effect::RenderSuffix {
            call,
            lines,
            timestamps,
        });
    }

    fn suffix_answered(&mut self, call: CallId, text: String, step: &mut Step) {
        if self.suffix_call == Some(call) {
            self.suffix_call = None;
            self.keep(Record::Suffix { text }, step);
        }
    }

    fn tell_over(&mut self, step: &mut Step) {
        let over = match &self.record {
            Some(job) => job.is_over(),
            None => return,
        };
        if over && !mem::replace(&mut self.over_told, true) {
            step.effect(Effect::Over);
        }
    }

    /// Keeps a record, and what it changes.
    pub(super) fn keep(&mut self, record: Record, step: &mut Step) {
        if matches!(record, Record::Removed) {
            // The slot is free before the core is gone.
            self.tell_over(step);
            self.removed = true;
        }
        match JobRecord::add(self.record.take(), record.clone()) {
            Ok(job) => self.record = job,
            // No path of this machine makes a record that does not fit; it would be lost here.
            Err(_) => return,
        }
        if self.store.keeps() {
            step.record(record);
        }
    }

    /// Wall-clock seconds since 1970.
    pub(super) fn wall(&self, now: Now) -> u64 {
        self.config
            .wall
            .saturating_add(now.since(self.opened).as_secs())
    }

    /// Whether hub and GitLab are done with the job.
    pub(super) const fn is_removed(&self) -> bool {
        self.removed
    }

    pub(super) fn next_call(&mut self) -> CallId {
        self.calls = self.calls.saturating_add(1);
        CallId(self.calls)
    }

    /// Whether GitLab still waits for what the hub is asked.
    pub(super) fn urgency(&self) -> Urgency {
        match self.record.as_ref().is_some_and(super::JobRecord::is_over) {
            true => Urgency::Leftover,
            false => Urgency::Awaited,
        }
    }

    pub(super) fn note_hub(&mut self, what: &'static str, failure: HubFailure, step: &mut Step) {
        self.relay.heard(&failure);
        step.effect(Effect::Note(Note::Hub { what, failure }));
    }

    /// Every moment at which something may become due; those that have passed wait for an input.
    fn deadlines(&self, now: Now) -> Option<Now> {
        self.record.as_ref()?;
        let all = self
            .submission_deadlines()
            .into_iter()
            .chain([self.view_deadline()])
            .chain(self.close_deadlines())
            .chain(self.trace_deadlines())
            .chain(self.gitlab_deadlines());
        all.flatten().filter(|at| *at > now).min()
    }
}
