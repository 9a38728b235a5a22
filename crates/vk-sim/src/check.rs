//! What must hold at every step and at the end (design, section 8).

use vk_gitlab_core::WithoutReservation;
use vk_gitlab_core::job::{GitLabAnswer, JobStatus};
use vk_hub_core::Record;
use vk_hub_proto::client::JobView;
use vk_hub_proto::job::FailureClass;
use vk_hub_proto::{JobId, ReservationId};

use crate::call::GitLabAsk;
use crate::daemon::PLACE_WITHIN_SECS;
use crate::gitlab::State;
use crate::host::Directory;
use crate::lease::Standing;
use crate::script::{SECRET, Script};
use crate::world::World;

/// Milliseconds within which a job that waits for room has it, or ends: what is asked for, and the
/// moments that writing takes.
const MOST_WAIT: u64 = PLACE_WITHIN_SECS as u64 * 1000 + 1000;
/// It does not end before.
const LEAST_WAIT: u64 = PLACE_WITHIN_SECS as u64 * 1000 - 1000;
/// Violations kept of one run.
const MOST: usize = 20;

impl World {
    pub(crate) fn violation(&mut self, what: impl AsRef<str>) {
        if self.violations.len() < MOST {
            self.violations
                .push(format!("at {} ms: {}", self.now, what.as_ref()));
        }
    }

    /// No secret in any record of hub or node.
    pub(crate) fn check_record<R: serde::Serialize>(&mut self, whose: &str, record: &R) {
        match serde_json::to_string(record) {
            Ok(json) if json.contains(SECRET) => {
                self.violation(format!("a secret in a record of the {whose}: {json}"));
            }
            Ok(_) => {}
            Err(error) => self.violation(format!("a record of the {whose} is no JSON: {error}")),
        }
    }

    /// A job runs past its timeout only where its cancel was forgotten: all others end long before.
    pub(crate) fn check_finished(&mut self, record: &Record) {
        if let Record::JobFinished { job, result, .. } = record
            && result.failure == Some(FailureClass::Timeout)
        {
            self.violation(format!(
                "{job} ran past its timeout: its cancel was forgotten"
            ));
        }
    }

    /// A job is sent to a node within the time it may wait for room, or never (ADM-24). What it does
    /// there, and whether it comes there again, is another matter.
    pub(crate) fn check_place(&mut self, job: JobId, node: usize) {
        if !self.hub.placed.insert((job, node)) {
            return;
        }
        // One whose submission is not durable yet has not waited.
        let since = self.hub.waits_since.get(&job).copied();
        let waited = self.now - since.unwrap_or(self.now);
        if waited > MOST_WAIT {
            self.violation(format!("{job} waited {waited} ms for room"));
        }
    }

    /// A job that no node took ends once its time is over, and as one that nobody had room for. One
    /// that was sent to a node ends at the earliest with that node's word, or with that it is lost.
    pub(crate) fn check_wait_ends(&mut self, record: &Record) {
        let Record::JobFinished { job, result, .. } = record else {
            return;
        };
        let since = self.hub.waits_since.remove(job);
        let was_at_node = self.hub.at_node.remove(job);
        if result.failure != Some(FailureClass::NoCapacity) {
            return;
        }
        self.hub.no_room += 1;
        let waited = self.now - since.unwrap_or(self.now);
        let most = if was_at_node { u64::MAX } else { MOST_WAIT };
        if !(LEAST_WAIT..=most).contains(&waited) {
            self.violation(format!(
                "{job} was given up for want of room after {waited} ms"
            ));
        }
    }

    /// No job starts twice, anywhere.
    pub(crate) fn check_begin(&mut self, node: usize, job: JobId, script: Option<Script>) {
        let Some(script) = script else { return };
        let begun = self.begun.entry(script.gitlab_job).or_default();
        begun.push((node, job));
        if begun.len() > 1 {
            let what = format!("job {} started twice: {begun:?}", script.gitlab_job);
            self.violation(what);
        }
    }

    /// No ack of what could still be lost.
    pub(crate) fn check_ack(&mut self, job: JobId, offset: u64) {
        let durable = self
            .hub
            .outputs
            .get(&job)
            .map_or(0, |output| output.durable as u64);
        let kept = self.hub.submitted.contains(&job) && !self.hub.not_kept.contains(&job);
        if kept && offset > durable {
            self.violation(format!(
                "output of {job} acked to {offset}, durable to {durable}"
            ));
        }
    }

    /// Revisions of a job only rise (API-65).
    pub(crate) fn check_view(&mut self, view: &JobView) {
        let last = self.hub.revisions.insert(view.id, view.revision);
        if last.is_some_and(|last| last > view.revision) {
            self.violation(format!(
                "the revision of {} fell from {last:?}: {view:?}",
                view.id
            ));
        }
    }

    /// No job request without a live reservation, or one that a fault took unseen.
    pub(crate) fn check_request(&mut self, reservation: ReservationId) {
        match self.leases.of(reservation) {
            Some(Standing::LostByFault) => {}
            Some(Standing::Until(until)) if until >= self.now + 60_000 => {}
            other => self.violation(format!("a job request under {reservation}: {other:?}")),
        }
    }

    /// No 201 without a live reservation or a recorded loss of it.
    pub(crate) fn check_take(
        &mut self,
        gitlab_job: u64,
        reservation: Result<ReservationId, WithoutReservation>,
    ) {
        self.with_reservation += u64::from(reservation.is_ok());
        self.recorded_losses += u64::from(reservation.is_err());
        let Ok(reservation) = reservation else { return };
        match self.leases.of(reservation) {
            Some(Standing::LostByFault) => {}
            Some(Standing::Until(until)) if until >= self.now => {}
            other => self.violation(format!(
                "job {gitlab_job} taken under {reservation}: {other:?}"
            )),
        }
    }

    /// GitLab's word that a job is over reached this life of the daemon.
    pub(crate) fn note_told_over(&mut self, ask: &GitLabAsk, answer: &GitLabAnswer) {
        let (GitLabAsk::Update(_, _, job, _) | GitLabAsk::Patch { job, .. }) = ask else {
            return;
        };
        let over = matches!(
            answer.job_status,
            Some(JobStatus::Canceled | JobStatus::Failed)
        );
        if over {
            self.told_over.insert(*job, self.daemon.life);
        }
    }

    /// After an abort nothing more is written (GL-39): by this life from GitLab's word on, by any
    /// once it is kept.
    pub(crate) fn check_write(&mut self, gitlab_job: u64) {
        let told = self.told_over.get(&gitlab_job) == Some(&self.daemon.life);
        if told || self.given_up.contains(&gitlab_job) {
            self.violation(format!(
                "job {gitlab_job} is written to after it was given up"
            ));
        }
    }

    pub(crate) fn keep_output(&mut self, job: JobId, directory: &Directory) {
        self.hub_jobs.insert(directory.script.gitlab_job, job);
        self.outputs
            .insert(directory.script.gitlab_job, directory.output.clone());
        if let Some(result) = &directory.result {
            self.results
                .insert(directory.script.gitlab_job, result.clone());
        }
    }

    /// Whether everything has come to rest: nothing more will happen of itself.
    pub(crate) fn is_over(&self) -> bool {
        let kills = self.daemon.kills.left()
            + self.hub.kills.left()
            + self.nodes.iter().map(|node| node.kills.left()).sum::<u32>();
        (kills == 0 || self.pushed >= self.plan.most_jobs)
            && self.pushed >= self.plan.jobs
            && self.daemon.is_up()
            && self.daemon.jobs.is_empty()
            && self.hub.core.is_some()
            && self.hub.submitted.len() == self.hub.settled.len()
            && self
                .nodes
                .iter()
                .all(|node| node.core.is_some() && node.host.jobs.is_empty())
            && self
                .gitlab
                .jobs
                .iter()
                .all(|(number, job)| job.state.is_final() || self.is_orphan(*number))
    }

    /// What a run that does not come to rest still waits for.
    pub(crate) fn unfinished(&self) -> String {
        let jobs = self.gitlab.jobs.iter();
        let open = jobs.filter(|(number, job)| !job.state.is_final() && !self.is_orphan(**number));
        let open: Vec<_> = open.map(|(number, job)| (*number, job.state)).collect();
        let held: Vec<_> = self.nodes.iter().map(|node| node.host.jobs.len()).collect();
        let kills: Vec<_> = self.nodes.iter().map(|node| node.kills.left()).collect();
        format!(
            "GitLab has {open:?} open, the daemon holds {} jobs ({}), the hub {} of {} unsettled, \
             nodes hold {held:?}; kills left {} {} {kills:?}",
            self.daemon.jobs.len(),
            self.daemon.is_up(),
            self.hub.submitted.len() - self.hub.settled.len(),
            self.hub.submitted.len(),
            self.daemon.kills.left(),
            self.hub.kills.left(),
        )
    }

    /// A job GitLab handed out whose record was never durable.
    pub(crate) fn is_orphan(&self, number: u64) -> bool {
        let handed = self
            .gitlab
            .jobs
            .get(&number)
            .is_some_and(|job| job.handed > 0);
        let daemon_died = self
            .handed_to
            .get(&number)
            .is_some_and(|life| *life != self.daemon.life);
        handed
            && !self.taken.contains(&number)
            && (daemon_died || self.answer_lost.contains(&number))
    }

    /// What must hold once everything is at rest.
    pub(crate) fn check_end(&mut self) {
        let complaints = std::mem::take(&mut self.gitlab.complaints);
        for complaint in complaints {
            self.violation(complaint);
        }
        let numbers: Vec<u64> = self.gitlab.jobs.keys().copied().collect();
        for number in numbers {
            self.check_job(number);
        }
        for index in 0..self.nodes.len() {
            self.check_node(index);
        }
        if !self.daemon.store.durable().is_empty() {
            self.violation("the state file still holds jobs");
        }
        for job in self.hub.settled.clone() {
            if self.hub.outputs.contains_key(&job) {
                self.violation(format!("the output of {job} outlived its settling"));
            }
        }
    }

    fn check_node(&mut self, index: usize) {
        let Some(node) = self.nodes.get(index) else {
            return;
        };
        let held = node.core.as_ref().map(|core| core.admission());
        let directories = !node.host.jobs.is_empty();
        if held.is_some_and(|held| held.running + held.waiting > 0 || held.committed_mib > 0) {
            self.violation(format!("node {index} still holds {held:?}"));
        }
        if directories {
            self.violation(format!("node {index} still has directories of jobs"));
        }
    }

    fn check_job(&mut self, number: u64) {
        let Some(job) = self.gitlab.jobs.get(&number).cloned() else {
            return;
        };
        if job.handed > 1 {
            self.violation(format!("job {number} was handed out {} times", job.handed));
        }
        if self.is_orphan(number) {
            self.orphans += 1;
            return;
        }
        if !job.state.is_final() {
            self.violation(format!("job {number} never ended: {:?}", job.state));
            return;
        }
        if job.handed == 0 {
            return;
        }
        if job.forced {
            // The closing lines may have been there, and the final state not yet.
            let suffix = self.suffixes.get(&number).cloned().unwrap_or_default();
            let head = job.trace.strip_suffix(suffix.as_slice());
            self.check_prefix(number, head.unwrap_or(&job.trace));
            return;
        }
        if job.finals != 1 {
            self.violation(format!("job {number} took {} final states", job.finals));
        }
        if !job.forgotten {
            self.check_trace(number, &job.trace);
        }
        self.check_outcome(number, &job.state, job.reason.as_deref(), job.exit_code);
    }

    /// GitLab's trace is preamble, the node's output, suffix, and nothing else.
    fn expected(&self, number: u64) -> Vec<u8> {
        let part = |parts: &std::collections::BTreeMap<u64, Vec<u8>>| {
            parts.get(&number).cloned().unwrap_or_default()
        };
        [
            part(&self.preambles),
            part(&self.outputs),
            part(&self.suffixes),
        ]
        .concat()
    }

    fn check_trace(&mut self, number: u64, trace: &[u8]) {
        let result_lost =
            !self.results.contains_key(&number) && !self.killed_jobs.contains(&number);
        if result_lost || self.lost_by_hub(number) {
            // The hub gave the job up: GitLab has what the hub had.
            return self.check_prefix_then_suffix(number, trace);
        }
        let expected = self.expected(number);
        if trace != expected {
            let same = trace
                .iter()
                .zip(&expected)
                .take_while(|(a, b)| a == b)
                .count();
            let what = format!(
                "the trace of job {number} has {} bytes, {} were expected; they part at {same}",
                trace.len(),
                expected.len()
            );
            self.violation(what);
        }
    }

    /// Whether the hub ended the job without its node.
    fn lost_by_hub(&self, number: u64) -> bool {
        self.hub_jobs
            .get(&number)
            .is_some_and(|job| self.hub.given_up.contains(job))
            || !self.hub_jobs.contains_key(&number)
    }

    fn check_prefix_then_suffix(&mut self, number: u64, trace: &[u8]) {
        let suffix = self.suffixes.get(&number).cloned().unwrap_or_default();
        match trace.strip_suffix(suffix.as_slice()) {
            Some(head) => self.check_prefix(number, head),
            None => self.violation(format!("the trace of lost job {number} lacks its suffix")),
        }
    }

    fn check_prefix(&mut self, number: u64, trace: &[u8]) {
        let preamble = self.preambles.get(&number).cloned().unwrap_or_default();
        let output = self.outputs.get(&number).cloned().unwrap_or_default();
        let whole = [preamble, output].concat();
        if !whole.starts_with(trace) {
            self.violation(format!(
                "the trace of stopped job {number} is not the output's head"
            ));
        }
    }

    fn check_outcome(
        &mut self,
        number: u64,
        state: &State,
        reason: Option<&str>,
        code: Option<i32>,
    ) {
        let Some(result) = self
            .results
            .get(&number)
            .filter(|_| !self.lost_by_hub(number))
        else {
            return;
        };
        let succeeded = result.failure.is_none();
        let agrees = match state {
            State::Success => succeeded,
            State::Failed => !succeeded,
            _ => true,
        };
        let code_agrees = *state != State::Failed || code == result.exit_code;
        if !agrees || !code_agrees {
            let what =
                format!("job {number} is {state:?} {reason:?} {code:?}, its node says {result:?}");
            self.violation(what);
        }
    }
}
