//! Nothing is done before what it rests on is kept: a step that keeps something waits for its runner's
//! state file, and so does everything after it. Many steps share one write.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use vk_gitlab_core::acquire;
use vk_gitlab_core::job;
use vk_gitlab_core::state_file;
use vk_hub_proto::RelayId;
use vk_step::Variant as _;

use super::calls::Event;
use super::daemon::{Daemon, Effect};
use super::effects::Effects;
use super::runner::{JobEdge, RunnerEdge};
use crate::state::Stored;

/// How long after a failed write a state file is tried again.
const WRITE_AGAIN: Duration = Duration::from_secs(5);

/// A step that waits for its runner's file.
pub(super) struct Step {
    /// Whose records it has: the runner, and the job.
    pub(super) kept: Option<(usize, u64)>,
    pub(super) records: Vec<job::Record>,
    pub(super) effects: Vec<Effect>,
}

/// A state file that is to be written.
struct File {
    index: usize,
    stored: Stored,
    unknown: BTreeMap<String, Value>,
    jobs: Vec<Arc<str>>,
}

impl File {
    fn write(self, relay: RelayId) -> Result<(), String> {
        let jobs = self.jobs.iter().map(|job| &**job);
        let text = state_file::assemble(relay, jobs, &self.unknown);
        let text = text.map_err(|error| chain(&error))?;
        self.stored.write(&text).map_err(|error| chain(&error))
    }
}

impl Daemon {
    pub(super) fn gather(&mut self, step: Step) {
        if step.kept.is_none() && step.effects.is_empty() {
            return;
        }
        let waits = self.writing.is_some() || !self.gathering.is_empty() || step.kept.is_some();
        if waits {
            self.gathering.push_back(step);
        } else {
            self.boundary(&step, false);
            self.boundary(&step, true);
            self.release(step);
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

    /// Writes what was gathered, where nothing is being written. Steps that keep nothing and have
    /// nothing before them that does go on at once.
    pub(super) fn flush(&mut self) {
        while self.writing.is_none() && !self.gathering.is_empty() {
            let steps = std::mem::take(&mut self.gathering);
            steps.iter().for_each(|step| self.boundary(step, false));
            let runners: BTreeSet<usize> = steps
                .iter()
                .filter_map(|step| step.kept.map(|(runner, _)| runner))
                .collect();
            self.writing = Some(steps);
            if runners.is_empty() {
                self.written(Ok(runners));
            } else {
                self.write(runners);
            }
        }
    }

    fn write(&mut self, runners: BTreeSet<usize>) {
        let rendered: Result<Vec<_>, (usize, String)> = runners
            .iter()
            .copied()
            .filter_map(|index| Some((index, self.render(index)?)))
            .map(|(index, rendered)| rendered.map_err(|why| (index, why)))
            .collect();
        let (events, relay) = (self.events.clone(), self.relay);
        tokio::task::spawn_blocking(move || {
            let written = rendered.and_then(|files| {
                let write = |file: File| {
                    let index = file.index;
                    file.write(relay).map_err(|why| (index, why))
                };
                files.into_iter().try_for_each(write)
            });
            // The loop ended meanwhile.
            let _ = events.send(Event::Written(written.map(|()| runners)));
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

    pub(super) fn written(&mut self, written: Result<BTreeSet<usize>, (usize, String)>) {
        let steps = self.writing.take().unwrap_or_default();
        match written {
            Ok(runners) => {
                for step in steps {
                    self.boundary(&step, true);
                    self.mark_kept(&step);
                    self.release(step);
                }
                runners
                    .into_iter()
                    .for_each(|index| self.store_works(index));
            }
            Err((index, why)) => self.store_failed(index, &why, steps),
        }
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

    /// Nothing that waited for the write happens; each core is told (STATE-22).
    fn store_failed(&mut self, index: usize, why: &str, steps: VecDeque<Step>) {
        tracing::error!(why, "a state file could not be written");
        let mut told = BTreeSet::new();
        for step in steps {
            match step.kept {
                Some((_, key)) if told.insert(key) => {
                    let kept = self.jobs.get(&key).is_some_and(|job| job.kept);
                    self.job_input(
                        key,
                        job::Input::StoreFailed {
                            why: why.to_owned(),
                            kept,
                        },
                    );
                }
                Some(_) => {}
                None => self.release(step),
            }
        }
        if let Some(runner) = self.runners.get_mut(index) {
            runner.store_failed = true;
        }
        self.write_again_later(index);
        self.acquire_input(
            index,
            acquire::Input::StoreFailed {
                why: why.to_owned(),
            },
        );
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

    fn release(&mut self, step: Step) {
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
