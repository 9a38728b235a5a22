//! The node's state, what the operator wants of it, and what keeps it from taking new work.

use vk_hub_proto::CommandId;
use vk_hub_proto::client::Envelope;
use vk_hub_proto::dispatch::RefusalReason;
use vk_hub_proto::node_session::{
    Acquisition, CommandOp, CommandOutcome, DesiredState, Drain, NodeState,
};

use crate::NodeCore;
use crate::core::Out;
use crate::io::{Effect, OperatorOp, Record, Standing, Status};
use crate::ledger::Resource;

/// Why new work is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: RefusalReason,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(reason: RefusalReason, message: impl Into<String>) -> Refusal {
        Refusal {
            reason,
            message: message.into(),
        }
    }

    /// The ledger cannot grant it.
    pub(crate) fn short(short: Resource) -> Refusal {
        let message = match short {
            Resource::Memory => "not enough memory is free of reservations and jobs",
            Resource::Disk => "not enough disk is free of reservations and jobs",
        };
        Refusal::new(short.into(), message)
    }
}

impl NodeCore {
    /// The node's state. The operator's quarantine covers all others; a drain shows again after it.
    #[must_use]
    pub fn state(&self) -> NodeState {
        if self.standing.quarantined {
            NodeState::Quarantined
        } else if !self.standing.draining {
            NodeState::Ready
        } else if !self.ledger.is_empty() || self.unfinished > 0 {
            NodeState::Draining
        } else if self.standing.maintenance {
            NodeState::Maintenance
        } else {
            NodeState::Drained
        }
    }

    /// Whether a renewal extends: not while the node empties itself (DISP-83), and not while a
    /// start could not be journaled.
    pub(crate) fn extends_leases(&self) -> bool {
        self.state() == NodeState::Ready && self.store_failed.is_none() && !self.interrupting
    }

    /// Whether this node takes new work of this size at all, the ledger aside (DISP-31 to
    /// DISP-33, PLACE-11, PLACE-15, PLACE-16).
    pub(crate) fn check_new_work(&self, envelope: Envelope) -> Result<(), Refusal> {
        self.check_ready()?;
        if let Some(runner) = &self.own_runner {
            return Err(Refusal::new(RefusalReason::Runner, runner.clone()));
        }
        self.check_caps()?;
        let most = self.config.sizes.max_cpus;
        if envelope.cpus > most {
            let message = format!("this node gives a job at most {most} CPUs");
            return Err(Refusal::new(RefusalReason::Cpus, message));
        }
        Ok(())
    }

    fn check_ready(&self) -> Result<(), Refusal> {
        let not_ready = |message: String| Err(Refusal::new(RefusalReason::NotReady, message));
        if let Some(why) = &self.store_failed {
            return not_ready(format!("the node's journal cannot be written: {why}"));
        }
        if self.interrupting {
            return not_ready("the host is stopping".to_owned());
        }
        let state = match self.state() {
            NodeState::Ready => match self.acquisition() {
                Acquisition::Run => return Ok(()),
                Acquisition::Stop => "told to take no new work",
            },
            NodeState::Quarantined => "quarantined",
            NodeState::Maintenance => "in maintenance",
            NodeState::Drained => "drained",
            _ => "draining",
        };
        not_ready(format!("the node is {state}"))
    }

    /// The hub's ceiling first, then the node's own limit.
    fn check_caps(&self) -> Result<(), Refusal> {
        let placed = self.unfinished + self.leases.len();
        let reaches = |cap: Option<u32>| {
            cap.filter(|cap| placed >= usize::try_from(*cap).unwrap_or(usize::MAX))
        };
        if let Some(cap) = reaches(self.ceiling()) {
            let message = format!("{placed} jobs and reservations reach the ceiling of {cap}");
            return Err(Refusal::new(RefusalReason::Ceiling, message));
        }
        let own = self.config.max_concurrency;
        let most = u32::try_from(self.config.max_entries).unwrap_or(u32::MAX);
        if let Some(cap) = reaches(Some(own.unwrap_or(most).min(most))) {
            let message = format!("{placed} jobs and reservations reach the node's limit of {cap}");
            return Err(Refusal::new(RefusalReason::Concurrency, message));
        }
        Ok(())
    }

    fn ceiling(&self) -> Option<u32> {
        self.desired.and_then(|desired| desired.ceiling)
    }

    fn acquisition(&self) -> Acquisition {
        self.desired.map_or(Acquisition::Run, |d| d.acquisition)
    }

    /// Applies the desired state, each generation once. Running jobs above a lowered ceiling carry
    /// on (PLACE-12).
    pub(crate) fn desired(&mut self, desired: DesiredState, out: &mut Out) {
        let known = |applied: DesiredState| applied.generation == desired.generation;
        if self.desired.is_some_and(known) || self.store_failed.is_some() {
            return;
        }
        self.desired = Some(desired);
        out.record(Record::Desired(desired));
    }

    /// Does a command once, and answers it as often as it comes.
    pub(crate) fn command(&mut self, id: CommandId, op: &CommandOp, expired: bool, out: &mut Out) {
        let outcome = match self.commands.get(&id) {
            Some(outcome) => outcome.clone(),
            None => self.new_command(id, op, expired, out),
        };
        if let Some(session) = &self.session {
            out.effect(Effect::SendAck {
                session: session.number,
                id,
                outcome,
            });
        }
    }

    /// What came of a command, where it is one of the last; none where nothing of it was kept, as
    /// while the journal cannot be written.
    #[must_use]
    pub fn outcome(&self, id: CommandId) -> Option<&CommandOutcome> {
        self.commands.get(&id)
    }

    pub(crate) fn new_command(
        &mut self,
        id: CommandId,
        op: &CommandOp,
        expired: bool,
        out: &mut Out,
    ) -> CommandOutcome {
        if let Some(why) = &self.store_failed {
            let reason = format!("the node's journal cannot be written: {why}");
            return CommandOutcome::Refused { reason };
        }
        let before = self.standing;
        let outcome = if expired {
            CommandOutcome::Expired
        } else {
            self.stand(after(before, op))
        };
        self.keep_command(id, outcome.clone(), out);
        if self.standing.quarantined && !before.quarantined {
            self.release_all(out);
        }
        outcome
    }

    /// Does what an operator on this host wants.
    pub(crate) fn operator(&mut self, id: CommandId, op: OperatorOp, out: &mut Out) {
        if self.store_failed.is_some() {
            return;
        }
        let outcome = self.stand(after_operator(self.standing, op));
        self.keep_command(id, outcome, out);
    }

    fn stand(&mut self, standing: Result<Standing, &'static str>) -> CommandOutcome {
        match standing {
            Ok(standing) => {
                self.standing = standing;
                CommandOutcome::Done
            }
            Err(reason) => CommandOutcome::Refused {
                reason: reason.to_owned(),
            },
        }
    }

    fn keep_command(&mut self, id: CommandId, outcome: CommandOutcome, out: &mut Out) {
        self.commands.add(id, outcome.clone());
        out.record(Record::Commanded {
            id,
            outcome,
            standing: self.standing,
        });
    }

    /// What a report says of this core.
    #[must_use]
    pub fn status(&self) -> Status {
        let drain = self.standing.draining.then(|| Drain {
            runner_stopped: true,
            ledger_empty: self.ledger.is_empty(),
            active_jobs: u32::try_from(self.unfinished).unwrap_or(u32::MAX),
        });
        Status {
            state: self.state(),
            acquisition: self.acquisition(),
            applied: self.desired,
            drain,
            own_runner: self.own_runner.clone(),
            ceiling: self.ceiling(),
            store_failed: self.store_failed.clone(),
        }
    }

    /// Reports what changed since the session's last report.
    pub(crate) fn report_changes(&mut self, out: &mut Out) {
        let Some(session) = &self.session else {
            return;
        };
        let status = self.status();
        if self.reported.as_ref() != Some(&status) {
            out.effect(Effect::SendReport {
                session: session.number,
                status: Box::new(status.clone()),
            });
            self.reported = Some(status);
        }
    }
}

const QUARANTINED: &str = "the node is quarantined: release it first";

/// The operator's states after what one on this host wants.
const fn after_operator(standing: Standing, op: OperatorOp) -> Result<Standing, &'static str> {
    if standing.quarantined {
        return Err(QUARANTINED);
    }
    Ok(Standing {
        draining: !matches!(op, OperatorOp::Undrain),
        // A drain is less: it does not end what another operator began.
        maintenance: match op {
            OperatorOp::Drain => standing.maintenance,
            OperatorOp::Maintain => true,
            OperatorOp::Undrain => false,
        },
        ..standing
    })
}

/// The operator's states after a command of the hub's.
fn after(standing: Standing, op: &CommandOp) -> Result<Standing, &'static str> {
    let drain = |draining: bool| match standing.quarantined {
        true => Err(QUARANTINED),
        false if !draining && standing.maintenance => {
            Err("the node is in maintenance: end it on its host, by vk node undrain")
        }
        false => Ok(Standing {
            draining,
            ..standing
        }),
    };
    let quarantined = |quarantined| Standing {
        quarantined,
        ..standing
    };
    match op {
        CommandOp::Drain => drain(true),
        CommandOp::Undrain => drain(false),
        CommandOp::Quarantine => Ok(quarantined(true)),
        CommandOp::Release => Ok(quarantined(false)),
        CommandOp::Update { .. } => Err("this node cannot update itself"),
        CommandOp::Reset { .. } => Err("this node cannot reset itself"),
        CommandOp::Tools { .. } => Err("this node cannot install tools"),
        CommandOp::Other => Err("this node does not know the command"),
    }
}
