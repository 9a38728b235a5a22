//! Steps of the cores on their way to the disk, and which waits for which.

use std::time::Duration;

use vk_gitlab_core::job;

use super::daemon::Effect;

/// Which core a step is of: the steps of one core come in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Runner(usize),
    Job(u64),
}

/// A step that waits for its runner's file.
pub(super) struct Step {
    pub(super) owner: Owner,
    /// Whose records it has: the runner, and the job.
    pub(super) kept: Option<(usize, u64)>,
    pub(super) records: Vec<job::Record>,
    pub(super) effects: Vec<Effect>,
}

/// Whether a daemon that died before this was kept learns it again, and nothing it did meanwhile was
/// wrong: the hub answers a submission that is repeated with the job it has (STATE-05), and GitLab
/// says how far the trace is (STATE-04). That a job is committed is kept before any output of it goes
/// to GitLab, and so is its submission with it: a daemon that died between the two, and whose hub is
/// away or refuses it when it is back, would take output that GitLab has for its own closing lines.
const fn is_learnt_again(record: &job::Record) -> bool {
    matches!(
        record,
        job::Record::Submitted { .. } | job::Record::Patched(_)
    )
}

impl Step {
    /// Whether it only keeps what would be learnt again: nothing waits for that, and it waits for a
    /// write that is made anyway.
    pub(super) fn is_patient(&self) -> bool {
        let nothing_waits = self.effects.is_empty() && !self.records.is_empty();
        nothing_waits && self.records.iter().all(is_learnt_again)
    }

    /// How long it may wait for that: a submission no longer than it takes for the job's spec to be
    /// dropped from the disk soon (STATE-18), how far a trace is until a restart would read much anew.
    pub(super) fn patience(&self) -> Duration {
        let patched = |record: &job::Record| matches!(record, job::Record::Patched(_));
        match self.records.iter().all(patched) {
            true => Duration::from_secs(5),
            false => Duration::from_secs(1),
        }
    }

    /// What is done and what is kept of it, where the one need not wait for the other.
    pub(super) fn split(self) -> (Option<Step>, Step) {
        if self.effects.is_empty() || !self.records.iter().all(is_learnt_again) {
            return (None, self);
        }
        let effects = Step {
            kept: None,
            records: Vec::new(),
            ..self
        };
        let records = Step {
            owner: effects.owner,
            kept: self.kept,
            records: self.records,
            effects: Vec::new(),
        };
        (Some(effects), records)
    }

    /// Whether it keeps that its runner was handed a job over.
    fn takes(&self) -> Option<usize> {
        let (runner, _) = self.kept?;
        let mut records = self.records.iter();
        let taken = records.any(|record| matches!(record, job::Record::Taken(_)));
        taken.then_some(runner)
    }

    /// Whether it waits for that one: a core's steps keep their order, and a runner does nothing more
    /// before the job that it was handed over is kept.
    pub(super) fn comes_after(&self, earlier: &Step) -> bool {
        let taking = || earlier.takes().map(Owner::Runner) == Some(self.owner);
        !earlier.is_patient() && (self.owner == earlier.owner || taking())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(owner: Owner, records: Vec<job::Record>) -> Step {
        let kept = (!records.is_empty()).then_some((0, 1));
        let effects = vec![Effect::Job(1, job::Effect::Over)];
        Step {
            owner,
            kept,
            records,
            effects,
        }
    }

    fn removed() -> Vec<job::Record> {
        vec![job::Record::Removed]
    }

    #[test]
    fn steps_of_one_core_keep_their_order_and_those_of_others_wait_for_nothing() {
        let of_one = step(Owner::Job(1), removed());
        assert!(step(Owner::Job(1), Vec::new()).comes_after(&of_one));
        assert!(!step(Owner::Job(2), Vec::new()).comes_after(&of_one));
        assert!(!step(Owner::Runner(0), Vec::new()).comes_after(&of_one));
    }

    /// FLOW-13
    #[test]
    fn a_runner_does_nothing_more_before_the_job_it_was_handed_is_kept() {
        let text = serde_json::json!({ "relay": "01".repeat(16), "jobs": [{ "gitlab_job": 5,
            "job_token": "t", "request_id": "02".repeat(16), "phase": "submitted",
            "hub_job": "03".repeat(16), "place_within_secs": 300, "timestamps": true, "placement": {
                "pool": "default", "envelope": { "mem_mib": 1, "cpus": 1, "disk_bytes": 1 } } }] });
        let relay = vk_hub_proto::RelayId::from_bytes([1; 16]);
        let file = vk_gitlab_core::state_file::parse(&text.to_string(), relay).unwrap();
        let records = file
            .jobs
            .into_iter()
            .flat_map(|job| job.records())
            .collect();
        let taking = step(Owner::Job(1), records);
        assert!(step(Owner::Runner(0), Vec::new()).comes_after(&taking));
        assert!(!step(Owner::Runner(1), Vec::new()).comes_after(&taking));
    }

    #[test]
    fn only_what_would_be_learnt_again_is_done_before_it_is_kept() {
        let submitted = job::Record::Submitted {
            hub_job: vk_hub_proto::JobId::from_bytes([3; 16]),
        };
        let (effects, records) = step(Owner::Job(1), vec![submitted.clone()]).split();
        let effects = effects.expect("what is to be done");
        assert!(effects.kept.is_none() && effects.effects.len() == 1);
        assert!(records.is_patient() && records.kept.is_some());
        assert!(!effects.comes_after(&records));
        for strict in [
            removed(),
            vec![job::Record::Committed],
            vec![submitted, job::Record::Removed],
            vec![job::Record::Reported { delivered: true }],
        ] {
            let (effects, records) = step(Owner::Job(1), strict).split();
            assert!(effects.is_none() && !records.is_patient());
            assert_eq!(records.effects.len(), 1);
        }
    }
}
