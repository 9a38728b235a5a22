//! Nothing is done before what it rests on is kept: a step that keeps something waits for its runner's
//! state file, and so does everything of its core after it. Many steps share one write.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use vk_gitlab_core::acquire;
use vk_gitlab_core::job;
use vk_gitlab_core::state_file;
use vk_hub_proto::RelayId;
use vk_step::Variant as _;

use super::calls::{Event, Written};
use super::daemon::{Daemon, Effect};
use super::effects::Effects;
use super::runner::{JobEdge, RunnerEdge};
use super::step::{Owner, Step};
use crate::state::{StateError, Stored, replace};

/// How long after a failed write a state file is tried again.
const WRITE_AGAIN: Duration = Duration::from_secs(5);

/// A state file that is to be written.
struct File {
    index: usize,
    stored: Stored,
    unknown: BTreeMap<String, Value>,
    jobs: Vec<Arc<str>>,
}

impl File {
    fn text(&self, relay: RelayId) -> Result<String, String> {
        let jobs = self.jobs.iter().map(|job| &**job);
        let text = state_file::assemble(relay, jobs, &self.unknown);
        text.map_err(|error| chain(&error))
    }
}

/// Writes files in one go; which runners' could not be written, and why: it is their own affair.
fn write_all(files: &[File], relay: RelayId) -> BTreeMap<usize, String> {
    let mut failed = BTreeMap::new();
    let mut texts = Vec::new();
    for file in files {
        match file.text(relay) {
            Ok(text) => texts.push((file, text)),
            Err(why) => {
                failed.insert(file.index, why);
            }
        }
    }
    let pairs: Vec<_> = texts
        .iter()
        .map(|(file, text)| (&file.stored, text.as_str()))
        .collect();
    match replace(&pairs) {
        Ok(some) => {
            let of_runner = |(at, error): (usize, StateError)| {
                let (file, _) = texts.get(at)?;
                Some((file.index, chain(&error)))
            };
            failed.extend(some.into_iter().filter_map(of_runner));
        }
        Err(error) => failed.extend(texts.iter().map(|(file, _)| (file.index, chain(&error)))),
    }
    failed
}

impl Daemon {
    pub(super) fn gather(&mut self, step: Step) {
        let (effects, records) = step.split();
        effects
            .into_iter()
            .chain([records])
            .for_each(|step| self.gather_one(step));
    }

    fn gather_one(&mut self, step: Step) {
        if step.kept.is_none() && step.effects.is_empty() {
            return;
        }
        let mut earlier = self.writing.iter().flatten().chain(&self.gathering);
        let waits = step.kept.is_some() || earlier.any(|earlier| step.comes_after(earlier));
        if !waits {
            return self.go_on_with(step);
        }
        if step.is_patient() {
            let until = Instant::now() + step.patience();
            let before = self.patient_until.unwrap_or(until);
            self.patient_until = Some(before.min(until));
        }
        self.gathering.push_back(step);
    }

    /// A step that waits for no write.
    fn go_on_with(&mut self, step: Step) {
        self.boundary(&step, false);
        self.boundary(&step, true);
        self.release(step);
    }

    /// Goes on with the steps that waited only for what is kept by now.
    fn release_free(&mut self) {
        let mut at = 0;
        while let Some(step) = self.gathering.get(at) {
            let mut earlier = self.gathering.iter().take(at);
            if step.kept.is_some() || earlier.any(|earlier| step.comes_after(earlier)) {
                at += 1;
            } else if let Some(step) = self.gathering.remove(at) {
                // What comes of it is gathered behind those that still wait.
                self.go_on_with(step);
            }
        }
    }

    /// When what was gathered is to be written, where something was and nothing is being written.
    pub(super) fn write_due(&self) -> Option<Instant> {
        if self.writing.is_some() || self.gathering.is_empty() {
            return None;
        }
        let paced = self.pace.due();
        match self.patient_until {
            Some(until) if !self.is_stopping() && self.gathering.iter().all(Step::is_patient) => {
                Some(paced.max(until))
            }
            _ => Some(paced),
        }
    }

    fn boundary(&self, step: &Step, synced: bool) {
        let (acquire, of_job) = (self.kill.of("acquire"), self.kill.of("job"));
        let nothing: [job::Record; 0] = [];
        for effect in &step.effects {
            match (effect, synced) {
                (Effect::Acquire(_, effect), false) => acquire.before(&nothing, [effect]),
                (Effect::Acquire(_, effect), true) => acquire.synced(&nothing, [effect]),
                (Effect::Job(_, effect), false) => of_job.before(&nothing, [effect]),
                (Effect::Job(_, effect), true) => of_job.synced(&nothing, [effect]),
            }
        }
        let nothing: [&job::Effect; 0] = [];
        match synced {
            false => of_job.before(&step.records, nothing),
            true => of_job.synced(&step.records, nothing),
        }
    }

    /// Writes what was gathered, once that is due.
    pub(super) fn flush(&mut self) {
        if self.write_due().is_some_and(|due| due <= Instant::now()) {
            self.write_gathered();
        }
    }

    /// Writes what was gathered, where there is something.
    pub(super) fn write_gathered(&mut self) -> bool {
        self.patient_until = None;
        let steps = std::mem::take(&mut self.gathering);
        if steps.is_empty() {
            return false;
        }
        steps.iter().for_each(|step| self.boundary(step, false));
        let runners = steps.iter().filter_map(|step| step.kept);
        let runners: BTreeSet<usize> = runners.map(|(runner, _)| runner).collect();
        self.writing = Some(steps);
        self.write(runners);
        true
    }

    fn write(&mut self, runners: BTreeSet<usize>) {
        self.pace.begins(Instant::now());
        let (mut files, mut unrendered) = (Vec::new(), BTreeMap::new());
        for index in runners.iter().copied() {
            match self.render(index) {
                Some(Ok(file)) => files.push(file),
                Some(Err(why)) => {
                    unrendered.insert(index, why);
                }
                None => {}
            }
        }
        let (events, relay) = (self.events.clone(), self.relay);
        tokio::task::spawn_blocking(move || {
            let mut failed = write_all(&files, relay);
            failed.append(&mut unrendered);
            // The loop ended meanwhile.
            let _ = events.send(Event::Written(Written { runners, failed }));
        });
    }

    /// What a runner's file is to hold. Only what has changed is rendered.
    fn render(&mut self, index: usize) -> Option<Result<File, String>> {
        let runner = self.runners.get(index)?;
        let (stored, unknown) = (runner.stored.clone(), runner.unknown.clone());
        let jobs = self.jobs.values_mut().filter(|job| job.runner == index);
        let jobs: Result<Vec<_>, String> = jobs.filter_map(JobEdge::rendered).collect();
        Some(jobs.map(|jobs| File {
            index,
            stored,
            unknown,
            jobs,
        }))
    }

    /// Goes on with what waited for a write. Of jobs whose file could not be written nothing happens
    /// that waited, and each is told; it is nothing to the jobs of other runners (STATE-22).
    pub(super) fn written(&mut self, written: &Written) {
        let Written { runners, failed } = written;
        let lost = self.lost(failed);
        for (key, why) in lost {
            let kept = self.jobs.get(&key).is_some_and(|job| job.kept);
            self.job_input(key, job::Input::StoreFailed { why, kept });
        }
        // One by one: what comes of a step waits for those of its core behind it.
        while let Some(step) = self.writing.as_mut().and_then(VecDeque::pop_front) {
            self.boundary(&step, true);
            self.mark_kept(&step);
            self.release(step);
        }
        self.writing = None;
        for index in runners {
            match failed.get(index) {
                Some(why) => self.store_failed(*index, why),
                None => self.store_works(*index),
            }
        }
        self.release_free();
    }

    /// Jobs with something to keep that could not be kept, and why. Their steps are taken away, those
    /// too that were gathered meanwhile: each core says anew what it keeps and does.
    fn lost(&mut self, failed: &BTreeMap<usize, String>) -> BTreeMap<u64, String> {
        let Some(steps) = self.writing.as_mut().filter(|_| !failed.is_empty()) else {
            return BTreeMap::new();
        };
        let kept = steps.iter().filter_map(|step| step.kept);
        let lost: BTreeMap<u64, String> = kept
            .filter_map(|(runner, key)| Some((key, failed.get(&runner)?.clone())))
            .collect();
        let stays = |step: &Step| match step.owner {
            Owner::Job(key) => !lost.contains_key(&key),
            Owner::Runner(_) => true,
        };
        steps.retain(stays);
        self.gathering.retain(stays);
        lost
    }

    fn mark_kept(&mut self, step: &Step) {
        if let Some((_, key)) = step.kept
            && let Some(job) = self.jobs.get_mut(&key)
        {
            job.kept = true;
        }
    }

    fn store_works(&mut self, index: usize) {
        let recovered = self
            .runners
            .get_mut(index)
            .is_some_and(|runner| std::mem::replace(&mut runner.store_failed, false));
        if recovered {
            self.acquire_input(index, acquire::Input::StoreWorks);
        }
    }

    fn store_failed(&mut self, index: usize, why: &str) {
        let Some(runner) = self.runners.get_mut(index) else {
            return;
        };
        tracing::error!(
            runner = runner.config.name,
            why,
            "a state file could not be written"
        );
        runner.store_failed = true;
        self.write_again_later(index);
        let why = why.to_owned();
        self.acquire_input(index, acquire::Input::StoreFailed { why });
    }

    /// A runner that takes no jobs, and has none, would never learn that it could be written again.
    fn write_again_later(&mut self, index: usize) {
        if !self.writing_again.insert(index) {
            return;
        }
        let events = self.events.clone();
        tokio::spawn(async move {
            tokio::time::sleep(WRITE_AGAIN).await;
            // The loop ended meanwhile.
            let _ = events.send(Event::WriteAgain(index));
        });
    }

    pub(super) fn write_again(&mut self, index: usize) {
        self.writing_again.remove(&index);
        let failed = |runner: &RunnerEdge| runner.store_failed;
        if !self.runners.get(index).is_some_and(failed) {
            return;
        }
        if self.writing.is_some() {
            return self.write_again_later(index);
        }
        self.writing = Some(VecDeque::new());
        self.write(BTreeSet::from([index]));
    }

    fn release(&mut self, mut step: Step) {
        if self.ending {
            // GitLab has handed it over, and no file holds it yet: that is kept. The rest is begun by
            // the daemon's next life.
            let handed_over = |effect: &Effect| {
                matches!(effect, Effect::Acquire(_, acquire::Effect::TakeJob { .. }))
            };
            step.effects.retain(handed_over);
            if step.effects.is_empty() {
                return;
            }
        }
        let (acquire, of_job) = (self.kill.of("acquire"), self.kill.of("job"));
        if step.effects.is_empty() {
            of_job.after_records(&step.records);
        }
        for (number, effect) in step.effects.into_iter().enumerate() {
            match effect {
                Effect::Acquire(index, effect) => {
                    let released = effect.variant();
                    Effects(self).acquire(index, effect);
                    acquire.after_effect(released);
                }
                Effect::Job(key, effect) => {
                    let released = effect.variant();
                    Effects(self).job(key, effect);
                    of_job.after_effect(released);
                }
            }
            if number == 0 {
                of_job.after_records(&step.records);
            }
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
