//! The relay's session and the operator: in some fleets jobs are asked for only by the hub's word,
//! which changes, is lost with a session, or comes late.

use vk_hub_core::{FromRelay, Input, OperatorRequest, ServerNumber, SessionHandle};
use vk_hub_proto::hex::Hex;
use vk_hub_proto::relay_session::{RelayReport, RelayServer, ServerStatus};

use crate::event::Event;
use crate::fault::Fault;
use crate::world::World;

/// Keys that GitLab's certificate has had.
const KEYS: u32 = 2;

/// The daemon's end of its session, and what it heard.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    session: Option<u64>,
    /// The last word this life of the daemon heard.
    heard: Option<ServerStatus>,
    /// Messages of a session arrive in order.
    after: u64,
    /// GitLab's certificate was renewed.
    renewed: bool,
}

impl World {
    /// Whether this fleet's operator approves servers.
    pub(crate) const fn asks(&self) -> bool {
        self.seed.is_multiple_of(3)
    }

    /// The daemon is up: it dials, and the operator comes to work.
    pub(crate) fn relay_start(&mut self) {
        if self.asks() {
            self.relay.heard = None;
            self.queue.add(self.now, Event::RelayDial(self.daemon.life));
        }
    }

    /// What happens to approvals while the run lasts.
    pub(crate) fn schedule_approvals(&mut self) {
        if self.asks() {
            self.queue.add(self.rng.between(1, 5000), Event::Decide);
            for _ in 0..self.plan.cuts {
                let at = self.rng.between(2000, self.plan.busy_ms.max(2000));
                self.queue.add(at, Event::RelayCut);
            }
        }
    }

    /// The daemon dials; it comes back later where that fails.
    pub(crate) fn relay_dial(&mut self, life: u32) {
        if life != self.daemon.life || !self.daemon.is_up() || self.relay.session.is_some() {
            return;
        }
        if self.hub.core.is_none() {
            let at = self.now + self.rng.between(1000, 5000);
            return self.queue.add(at, Event::RelayDial(life));
        }
        self.next_session += 1;
        let number = self.next_session;
        self.relay.session = Some(number);
        self.trace(|| format!("the daemon's session {number} is open"));
        self.relay.after = self.now;
        let session = SessionHandle(number);
        let vk_hub_core::Principal::Relay(relay) = self.relay();
        self.hub_input(Input::RelayOpened { session, relay }, None);
        self.relay_reports(number);
    }

    fn relay_reports(&mut self, number: u64) {
        let key = if self.relay.renewed { 2 } else { 1 };
        let report = RelayReport {
            version: "1.0".into(),
            host: "daemon".into(),
            system_id: "r_0123456789ab".into(),
            concurrent: 4,
            server: RelayServer {
                url: "https://gitlab.example.com".into(),
                spki_sha256: Some(Hex([key; 32])),
            },
            runners: Vec::new(),
        };
        let session = SessionHandle(number);
        let message = FromRelay::Report(Box::new(report));
        self.hub_input(Input::Relay { session, message }, None);
    }

    /// The hub says how the server stands.
    pub(crate) fn hub_says_server(&mut self, session: u64, status: ServerStatus) {
        if self.relay.session == Some(session) {
            self.relay.after = self.relay.after.max(self.now) + self.rng.between(1, 200);
            let at = self.relay.after;
            self.queue.add(at, Event::ServerAtDaemon(session, status));
        }
    }

    pub(crate) fn server_at_daemon(&mut self, session: u64, status: ServerStatus) {
        if self.relay.session == Some(session) && self.daemon.is_up() {
            self.relay.heard = Some(status);
            self.trace(|| format!("the daemon hears that its server is {status:?}"));
            self.acquire_input(vk_gitlab_core::acquire::Input::Server(status));
        }
    }

    /// The session is over for the daemon, which dials again; the hub learns of it some time. The
    /// last word stays in force (SESS-22).
    pub(crate) fn relay_broken(&mut self) {
        let Some(session) = self.relay.session.take() else {
            return;
        };
        self.trace(|| format!("the daemon's session {session} is over"));
        let (gone, dial) = (self.rng.between(0, 15_000), self.rng.between(500, 60_000));
        self.queue.add(self.now + gone, Event::RelayGone(session));
        let life = self.daemon.life;
        self.queue.add(self.now + dial, Event::RelayDial(life));
    }

    /// The hub closed a session: where it is the daemon's own, that dials again.
    pub(crate) fn relay_closed(&mut self, session: u64) {
        if self.relay.session == Some(session) {
            self.relay_broken();
        }
    }

    pub(crate) fn relay_cut(&mut self) {
        self.faults.count(Fault::RelayCut);
        self.relay.renewed = self.rng.one_in(3);
        self.relay_broken();
    }

    pub(crate) fn relay_gone(&mut self, session: u64) {
        let session = SessionHandle(session);
        self.hub_input(Input::SessionClosed { session }, None);
    }

    /// The operator approves, or now and then rejects, what has been reported.
    pub(crate) fn decide(&mut self) {
        // A rejection is a fault of a kind: what nobody asks for may be cancelled before it runs.
        let calm = self.plan.cuts == 0 || self.now > self.plan.busy_ms;
        let approved = calm || !self.rng.one_in(3);
        if !approved {
            self.faults.count(Fault::ServerRejected);
        }
        for server in 1..=KEYS {
            let to = self.hub_handle();
            let request = OperatorRequest::DecideServer {
                server: ServerNumber(server),
                approved,
                all_projects: Some(true),
            };
            self.hub_input(Input::Operator { to, request }, None);
        }
        let at = self.now + self.rng.between(5000, 40_000);
        self.queue.add(at, Event::Decide);
    }

    /// No job request by a daemon that did not hear that its server is approved.
    pub(crate) fn check_approved(&mut self) {
        let heard = self.relay.heard;
        if self.asks() && heard != Some(ServerStatus::Approved) {
            self.violation(format!("a job request while the server is {heard:?}"));
        }
    }
}
