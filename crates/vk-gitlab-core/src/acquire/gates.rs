//! What stands between a runner and GitLab, apart from room.

use vk_hub_proto::relay_session::ServerStatus;
use vk_step::Now;

use super::Session;

/// Whether a request may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// Yes.
    Open,
    /// Not before this moment.
    Until(Now),
    /// No, and nobody knows until when.
    Shut,
}

/// What the session, the state file and the operator say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gates {
    session: Session,
    server: Option<ServerStatus>,
    relay_refused: bool,
    pub(super) store_failed: bool,
    pub(super) draining: bool,
}

impl Gates {
    pub(super) const fn new(session: Session) -> Gates {
        Gates {
            session,
            server: None,
            relay_refused: false,
            store_failed: false,
            draining: false,
        }
    }

    /// The session told how the server stands.
    pub(super) fn server(&mut self, status: ServerStatus) {
        self.server = Some(status);
    }

    /// The hub refused the relay for good (SESS-14).
    pub(super) fn relay_refused(&mut self) {
        self.relay_refused = true;
    }

    /// Whether an operator lets the runner ask (SESS-09 to SESS-14).
    pub(super) fn approved(&self) -> bool {
        let status = match self.session {
            Session::NotNeeded => true,
            Session::Required => self.server == Some(ServerStatus::Approved),
        };
        status && !self.relay_refused
    }

    /// Whether nothing but pauses and room keeps it from asking.
    pub(super) fn are_open(&self) -> bool {
        self.approved() && !self.store_failed && !self.draining
    }
}
