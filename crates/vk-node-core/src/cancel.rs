//! Cancels of the hub's, and jobs it gave up.

use vk_hub_proto::JobId;
use vk_hub_proto::client::CancelMode;
use vk_hub_proto::dispatch::{NodeJobMessage, RefusalReason, RunState};

use crate::NodeCore;
use crate::core::Out;
use crate::io::{Effect, Record};
use crate::jobs::{Cancel, Process};
use crate::output::Link;

impl NodeCore {
    /// Stops a job. An immediate cancel that comes where an ack was due says that the hub gave the
    /// job up (DISP-76).
    pub(crate) fn cancel(&mut self, id: JobId, mode: CancelMode, out: &mut Out) {
        let Some(job) = self.jobs.get_mut(&id) else {
            let state = RunState::Refused {
                reason: RefusalReason::Invalid,
                message: Some("this node does not hold the job".to_owned()),
            };
            return self.send(NodeJobMessage::Job { job: id, state }, out);
        };
        if job.output.link == Link::Awaiting && mode == CancelMode::Immediate {
            job.output.link = Link::Disowned;
        }
        if job.process != Process::Over {
            let kept = self.store_failed.is_none();
            if job.cancel.is_none_or(|cancel| cancel.mode < mode) {
                if kept {
                    out.record(Record::Cancelled { job: id, mode });
                }
                job.cancel = Some(Cancel { mode, kept });
            }
            let how = job.cancel.map(|cancel| cancel.mode.into());
            if let (Process::Alive, Some(how)) = (&job.process, how) {
                out.effect(Effect::Stop { job: id, how });
            }
        }
        let state = job.state();
        self.send(NodeJobMessage::Job { job: id, state }, out);
        self.close_if_known(id, out);
        self.send_result(id, out);
    }
}
