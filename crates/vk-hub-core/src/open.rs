//! The machine built from what was kept.

use std::collections::{BTreeMap, BTreeSet};

use vk_step::{Now, OpenError, Variant};

use crate::approvals::Approvals;
use crate::class::Classes;
use crate::clock::Clock;
use crate::fleet::Fleet;
use crate::history::History;
use crate::job::Phase;
use crate::memory::{Grants, Memory};
use crate::output::Output;
use crate::timers::{Timer, Timers};
use crate::{Config, Effect, Record};

impl Fleet {
    pub(crate) fn open_from(
        config: &Config,
        now: Now,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<(Fleet, Vec<Effect>), OpenError> {
        let mut fleet = Fleet::empty(config, now);
        let mut kept = (0, 0);
        for (at, record) in records.into_iter().enumerate() {
            if let Record::Clock {
                served_ms,
                revisions_below,
            } = record
            {
                kept = (kept.0.max(served_ms), kept.1.max(revisions_below));
            }
            fleet.apply(&record).map_err(|why| OpenError {
                at,
                variant: record.variant(),
                why,
            })?;
        }
        let window = config.settings.redial_window;
        fleet.clock = Clock::new(now, window, config.wall_secs, kept);
        let retained = fleet.resume(now, &config.outputs);
        Ok((fleet, vec![Effect::RetainOutputs { jobs: retained }]))
    }

    fn empty(config: &Config, now: Now) -> Fleet {
        Fleet {
            settings: config.settings.clone(),
            clock: Clock::new(now, config.settings.redial_window, config.wall_secs, (0, 0)),
            timers: Timers::default(),
            nodes: BTreeMap::new(),
            sessions: BTreeMap::new(),
            classes: Classes::default(),
            reservations: BTreeMap::new(),
            seeks: BTreeMap::new(),
            grants: Grants::default(),
            jobs: BTreeMap::new(),
            unfinished: 0,
            history: History::default(),
            memory: Memory::default(),
            waits: BTreeMap::new(),
            relays: BTreeMap::new(),
            relay_sessions: BTreeMap::new(),
            approvals: Approvals::default(),
            next_turn: 0,
            stirred: BTreeSet::new(),
            woken: BTreeSet::new(),
            moved: BTreeSet::new(),
            changed: BTreeSet::new(),
            stopped: None,
        }
    }

    /// What follows from kept state: lengths, deadlines, and which outputs are still wanted.
    fn resume(
        &mut self,
        now: Now,
        outputs: &BTreeMap<vk_hub_proto::JobId, u64>,
    ) -> Vec<vk_hub_proto::JobId> {
        // A revision given like any other: the first step sets its block aside, so that no answer
        // shows it before a later life is bound to begin above it.
        let revision = match self.jobs.is_empty() {
            true => 0,
            false => self.clock.next_revision(),
        };
        let base_ms = self.clock.served_ms(now);
        let mut retained = Vec::new();
        let mut running = Vec::new();
        let mut unsettled = Vec::new();
        for (id, job) in &mut self.jobs {
            job.moves_to(revision);
            // What is known of before is no more than that.
            job.turned.1 = revision;
            let durable = outputs.get(id).copied().unwrap_or(0);
            job.output = Output::new(job.summary.limit_bytes, durable);
            if !job.settled {
                retained.push(*id);
            }
            match &job.phase {
                Phase::Queued => {}
                Phase::Finished { result, at_ms, .. } => {
                    job.output.close(result.output_len);
                    if !job.settled {
                        unsettled.push((*id, *at_ms));
                    }
                }
                Phase::Starting { node, at_ms } | Phase::Running { node, at_ms, .. } => {
                    if let Some(node) = self.nodes.get_mut(node) {
                        node.jobs.insert(*id);
                        running.push((*id, *at_ms));
                    }
                }
            }
        }
        for (id, at_ms) in running {
            self.watch_timeout(id, at_ms);
        }
        for (id, ended_ms) in unsettled {
            self.watch_unsettled(id, ended_ms);
        }
        self.resume_silence(now, base_ms);
        if self.unfinished > 0 {
            self.timers.set(Timer::Restart, now);
            self.arm_clock(now);
        }
        if self.history.beyond(self.settings.job_history).is_some() {
            self.timers.set(Timer::History, now);
        }
        self.arm_forgetting();
        retained
    }

    /// No node is in touch: those that were when the hub went down are silent from now on, the
    /// others go on being so. Nothing of the hub's own downtime counts (FAIL-30).
    fn resume_silence(&mut self, now: Now, base_ms: u64) {
        let limit = self.silence_limit();
        let patience = limit.saturating_add(self.settings.job_lost_after);
        for (id, node) in &mut self.nodes {
            let since_ms = *node.silent_ms.get_or_insert(base_ms);
            if !node.jobs.is_empty() {
                let lost_ms = since_ms.saturating_add(crate::session::millis(patience));
                let at = self.clock.moment(lost_ms).max(now);
                self.timers.set(Timer::Lost(*id), at);
            }
        }
    }
}
