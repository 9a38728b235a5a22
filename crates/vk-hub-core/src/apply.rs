//! What each record means: the only way kept state changes, live and when opened.

use vk_hub_proto::{JobId, NodeId};

use crate::Record;
use crate::fleet::Fleet;
use crate::job::{Job, Phase, Turn};
use crate::memory::Remembered;
use crate::node::Node;
use crate::output::Output;
use crate::request::RequestKey;

impl Fleet {
    /// Takes one record over; what is wrong with it where it cannot stand here.
    pub(crate) fn apply(&mut self, record: &Record) -> Result<(), String> {
        match record {
            // Read when the clock is made, before anything else; for operators alone.
            Record::Clock { .. } | Record::Audited { .. } => Ok(()),
            Record::ServerKnown { .. }
            | Record::ServerDropped { .. }
            | Record::ProjectKnown { .. }
            | Record::ProjectDropped { .. }
            | Record::RelayServer { .. }
            | Record::RelayRemoved { .. } => {
                self.apply_approval(record);
                Ok(())
            }
            Record::NodePools { .. }
            | Record::NodeDesired { .. }
            | Record::NodeRemoved { .. }
            | Record::NodeSilent { .. }
            | Record::NodeHeard { .. } => self.apply_node(record),
            Record::SubmissionRefused { .. } | Record::RequestForgotten { .. } => {
                self.apply_request(record);
                Ok(())
            }
            Record::JobSubmitted { .. } => self.apply_submitted(record),
            Record::JobSettled { .. } | Record::JobForgotten { .. } => self.apply_history(record),
            Record::JobStarting { .. }
            | Record::JobQueued { .. }
            | Record::JobRunning { .. }
            | Record::JobCancel { .. }
            | Record::JobFinished { .. } => self.apply_job(record),
        }
    }

    fn apply_node(&mut self, record: &Record) -> Result<(), String> {
        match record {
            Record::NodePools { node, pools } => {
                let pools: std::collections::BTreeSet<_> = pools.iter().cloned().collect();
                match self.nodes.get_mut(node) {
                    Some(known) => known.pools = pools,
                    None => {
                        self.nodes.insert(*node, Node::new(pools));
                    }
                }
            }
            Record::NodeDesired { node, desired } => self.kept_node(*node)?.desired = *desired,
            Record::NodeRemoved { node } => {
                self.kept_node(*node)?;
                self.nodes.remove(node);
            }
            Record::NodeSilent { node, since_ms } => {
                let node = self.kept_node(*node)?;
                node.silent_ms = Some(*since_ms);
                node.silence_kept = true;
            }
            Record::NodeHeard { node } => {
                let node = self.kept_node(*node)?;
                node.silent_ms = None;
                node.silence_kept = false;
            }
            _ => {}
        }
        Ok(())
    }

    fn apply_request(&mut self, record: &Record) {
        match record {
            Record::SubmissionRefused {
                owner,
                request,
                digest,
                refusal,
                at_ms,
            } => {
                let key = RequestKey {
                    owner: *owner,
                    request: *request,
                };
                let outcome = Remembered::Refused(refusal.clone());
                self.memory.put(key, *digest, outcome, *at_ms);
            }
            Record::RequestForgotten { owner, request } => self.memory.forget(RequestKey {
                owner: *owner,
                request: *request,
            }),
            _ => {}
        }
    }

    fn apply_submitted(&mut self, record: &Record) -> Result<(), String> {
        let Record::JobSubmitted {
            job,
            owner,
            request,
            digest,
            revision,
            at_ms,
            placement,
            summary,
        } = record
        else {
            return Ok(());
        };
        let made_by = RequestKey {
            owner: *owner,
            request: *request,
        };
        let made = Job {
            made_by,
            digest: *digest,
            first_revision: *revision,
            at_ms: *at_ms,
            placement: placement.clone(),
            output: Output::new(summary.limit_bytes, 0),
            summary: summary.clone(),
            phase: Phase::Queued,
            cancel: None,
            settled: false,
            revision: *revision,
            turned: (Turn::default(), *revision),
            viewers: Default::default(),
            readers: Default::default(),
            placing: None,
        };
        if self.jobs.contains_key(job) {
            return Err(format!("job {job} was submitted before"));
        }
        self.jobs.insert(*job, made);
        self.unfinished += 1;
        self.memory
            .put(made_by, *digest, Remembered::Job(*job), *at_ms);
        Ok(())
    }

    fn apply_job(&mut self, record: &Record) -> Result<(), String> {
        match record {
            Record::JobStarting { job, node, at_ms } => {
                let phase = Phase::Starting {
                    node: *node,
                    at_ms: *at_ms,
                };
                self.set_phase(*job, phase)
            }
            Record::JobQueued { job } => self.set_phase(*job, Phase::Queued),
            Record::JobRunning {
                job,
                node,
                at_ms,
                stage,
            } => {
                let phase = Phase::Running {
                    node: *node,
                    at_ms: *at_ms,
                    stage: stage.clone(),
                };
                self.set_phase(*job, phase)
            }
            Record::JobFinished {
                job,
                node,
                stage,
                result,
                by_node,
                at_ms,
            } => {
                let phase = Phase::Finished {
                    node: *node,
                    stage: stage.clone(),
                    result: result.clone(),
                    by_node: *by_node,
                    at_ms: *at_ms,
                };
                self.set_phase(*job, phase)
            }
            Record::JobCancel { job, mode } => {
                self.kept_job(*job)?.cancel = Some(*mode);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn apply_history(&mut self, record: &Record) -> Result<(), String> {
        match record {
            Record::JobSettled { job } => {
                let kept = self.kept_job(*job)?;
                if !kept.phase.is_finished() {
                    return Err(format!("job {job} was settled before it ended"));
                }
                kept.settled = true;
                self.history.push(*job);
            }
            Record::JobForgotten {
                job,
                owner,
                request,
                digest,
                at_ms,
            } => {
                // Where only the rows not replaced are read, the job's own are gone already.
                if let Some(known) = self.jobs.get(job)
                    && !known.settled
                {
                    return Err(format!("job {job} was forgotten before it was settled"));
                }
                self.jobs.remove(job);
                self.history.remove(*job);
                let key = RequestKey {
                    owner: *owner,
                    request: *request,
                };
                self.memory.put(key, *digest, Remembered::Forgotten, *at_ms);
            }
            _ => {}
        }
        Ok(())
    }

    /// Moves a job on, and with it the lists of what is on which node.
    fn set_phase(&mut self, job: JobId, phase: Phase) -> Result<(), String> {
        let kept = self.kept_job(job)?;
        if kept.phase.is_finished() {
            return Err(format!("job {job} had ended"));
        }
        let before = kept.phase.node();
        let after = phase.node();
        let ended = phase.is_finished();
        kept.phase = phase;
        if let Some(node) = before.and_then(|node| self.nodes.get_mut(&node)) {
            node.jobs.remove(&job);
        }
        if ended {
            self.unfinished = self.unfinished.saturating_sub(1);
        } else if let Some(node) = after.and_then(|node| self.nodes.get_mut(&node)) {
            // Where rows were replaced in place, the node may come later: see `open`.
            node.jobs.insert(job);
        }
        Ok(())
    }

    fn kept_node(&mut self, node: NodeId) -> Result<&mut Node, String> {
        self.nodes
            .get_mut(&node)
            .ok_or_else(|| format!("node {node} is not there"))
    }

    fn kept_job(&mut self, job: JobId) -> Result<&mut Job, String> {
        self.jobs
            .get_mut(&job)
            .ok_or_else(|| format!("job {job} is not there"))
    }
}
