//! Operators' calls: asked in a command's process, answered by the actor.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use vk_hub_proto::CommandId;
use vk_hub_proto::node_session::{CommandOutcome, NodeState};
use vk_node_core::Input;
use vk_node_core::io::OperatorOp;

use super::actor::Actor;
use crate::admin::Call;
use crate::metrics::Snapshot;
use crate::view::StatusView;

/// How long a call waits for a change.
const CHANGE: Duration = Duration::from_secs(20);
/// Calls that wait for a change: as many as are taken at once.
const WAITING: usize = 32;

/// What a call is answered.
pub(crate) type Answer = Result<serde_json::Value, String>;
/// Where to.
pub(crate) type Reply = oneshot::Sender<Answer>;

/// A call that waits until the node stands otherwise.
pub(crate) struct Waiting {
    state: NodeState,
    jobs: usize,
    until: Instant,
    reply: Reply,
}

impl Actor {
    /// Answers a call, now or once what it asks for is so. An operator who left needs no answer.
    pub(crate) fn call(&mut self, call: Call, reply: Reply) {
        let value = match call {
            Call::Jobs => serde_json::to_value(self.views.all()),
            Call::Status => serde_json::to_value(self.status()),
            Call::InterruptJobs => {
                self.input(Input::InterruptJobs);
                Ok(serde_json::Value::Null)
            }
            Call::Drain => return self.command(OperatorOp::Drain, reply),
            Call::Maintain => return self.command(OperatorOp::Maintain, reply),
            Call::Undrain => return self.command(OperatorOp::Undrain, reply),
            Call::Change { state, jobs } => {
                let until = Instant::now() + CHANGE;
                if self.changes.len() >= WAITING {
                    // The oldest asks again.
                    let oldest = self.changes.remove(0);
                    let _ = oldest.reply.send(self.stands());
                }
                self.changes.push(Waiting {
                    state,
                    jobs,
                    until,
                    reply,
                });
                return;
            }
        };
        let _ = reply.send(value.map_err(|error| error.to_string()));
    }

    /// Does a command, and answers once it is durable.
    fn command(&mut self, op: OperatorOp, reply: Reply) {
        let mut id = [0; 16];
        if aws_lc_rs::rand::fill(&mut id).is_err() {
            let _ = reply.send(Err("the system gives no randomness".to_owned()));
            return;
        }
        let id = CommandId::from_bytes(id);
        let step = self.handle(Input::Operator { id, op });
        let answer = match self.core.outcome(id) {
            Some(CommandOutcome::Done) => Ok(serde_json::Value::Null),
            Some(CommandOutcome::Refused { reason }) => Err(reason.clone()),
            Some(_) => Err("the command came to nothing".to_owned()),
            None => {
                let why = self.core.status().store_failed.unwrap_or_default();
                Err(format!("the node's journal cannot be written: {why}"))
            }
        };
        if step.records.is_empty() {
            let _ = reply.send(answer);
            self.gather(step.records, step.effects, None);
        } else {
            self.gather_for(step.records, step.effects, (answer, reply));
        }
    }

    /// Answers who waits for a change that came, or has waited long enough.
    pub(crate) fn tell_changes(&mut self) {
        let (state, jobs, now) = (self.core.state(), self.views.present(), Instant::now());
        let is_over =
            |one: &mut Waiting| one.state != state || one.jobs != jobs || one.until <= now;
        for over in self.changes.extract_if(.., is_over).collect::<Vec<_>>() {
            let _ = over.reply.send(self.stands());
        }
    }

    /// When the first of those has waited long enough.
    pub(crate) fn next_change(&self) -> Option<Instant> {
        self.changes.iter().map(|one| one.until).min()
    }

    /// How the node stands, for metrics.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            room: self.core.room(),
            jobs: self.views.by_state(),
            state: Some(self.core.state()),
            connected: self.session.is_some(),
            store_failed: self.core.status().store_failed,
        }
    }

    fn stands(&self) -> Answer {
        serde_json::to_value(self.status()).map_err(|error| error.to_string())
    }

    fn status(&self) -> StatusView {
        let (version, node_id, hub) = self.parts.who.clone();
        StatusView {
            version,
            node_id,
            hub,
            connected: self.session.is_some(),
            state: self.core.state(),
            admission: self.core.admission(),
            store_failed: self.core.status().store_failed,
            jobs: self.views.present(),
        }
    }
}
