//! The session with the hub: report, then `held`, then everything else (DISP-15).

use vk_hub_proto::dispatch::{HeldJob, HeldReservation, NodeJobMessage};
use vk_hub_proto::node_session::JOBS;

use crate::NodeCore;
use crate::core::Out;
use crate::output::Link;
use crate::timers::Timer;

/// A session that was opened and not lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    /// The edge's number of it.
    pub(crate) number: u64,
    version: u32,
    /// `held` went out: jobs and results may be spoken of.
    pub(crate) held: bool,
}

impl Session {
    /// Whether it knows job messages (DISP-02).
    pub(crate) fn has_jobs(self) -> bool {
        self.version >= JOBS
    }
}

impl NodeCore {
    pub(crate) fn session_opened(&mut self, session: u64, version: u32, out: &mut Out) {
        self.session_lost();
        self.session = Some(Session {
            number: session,
            version,
            held: false,
        });
        self.report_changes(out);
        self.hold_if_found(out);
    }

    /// Nothing sent is known to have arrived: the hub's next ack says from where to go on
    /// (DISP-49). Jobs run on (FAIL-22).
    pub(crate) fn session_lost(&mut self) {
        self.session = None;
        self.reported = None;
        for (id, job) in &mut self.jobs {
            job.output.link = Link::Unlinked;
            self.timers.clear(Timer::Repeat(*id));
        }
    }

    /// Says what the node holds, once a session, as soon as every job's process was found or
    /// missed.
    pub(crate) fn hold_if_found(&mut self, out: &mut Out) {
        let due = |s: &Session| s.has_jobs() && !s.held;
        if self.finding > 0 || !self.session.as_ref().is_some_and(due) {
            return;
        }
        let now = self.now;
        let reservations = self
            .leases
            .iter()
            .map(|(reservation, lease)| HeldReservation {
                reservation: *reservation,
                envelope: lease.envelope,
                remaining_secs: lease.remaining_secs(now),
            })
            .collect();
        let jobs = self
            .jobs
            .iter()
            .map(|(id, job)| HeldJob {
                job: *id,
                state: job.state(),
                output_len: job.output.len,
                finished: job.result.is_some(),
            })
            .collect();
        self.send(NodeJobMessage::Held { reservations, jobs }, out);
        for job in self.jobs.values_mut() {
            job.output.link = Link::Awaiting;
        }
        if let Some(session) = &mut self.session {
            session.held = true;
        }
    }
}
