//! Effects that are a message of a session.

use vk_hub_proto::dispatch::HubJobMessage;
use vk_hub_proto::node_session::HubMessage;
use vk_hub_proto::relay_session::HubRelayMessage;

use crate::{Effect, SessionHandle};

impl Effect {
    /// The session and the message for it, of an effect that is one. A start's message holds the
    /// job's secrets; its registry token is yet to be put in.
    #[must_use]
    pub fn message(&self) -> Option<(SessionHandle, HubMessage)> {
        let (session, message) = match self {
            Effect::Desired { session, desired } => {
                return Some((*session, HubMessage::Desired(*desired)));
            }
            Effect::Close {
                session,
                code,
                reason,
            } => {
                let message = HubMessage::Refused {
                    code: *code,
                    reason: reason.clone(),
                };
                return Some((*session, message));
            }
            Effect::Offer {
                session,
                reservation,
                envelope,
                lease_secs,
            } => {
                let message = HubJobMessage::Offer {
                    reservation: *reservation,
                    envelope: *envelope,
                    lease_secs: *lease_secs,
                };
                (session, message)
            }
            Effect::Renew {
                session,
                reservation,
                lease_secs,
            } => {
                let message = HubJobMessage::Renew {
                    reservation: *reservation,
                    lease_secs: *lease_secs,
                };
                (session, message)
            }
            Effect::Release {
                session,
                reservation,
            } => {
                let reservation = *reservation;
                (session, HubJobMessage::Release { reservation })
            }
            Effect::Start {
                session,
                job,
                reservation,
                envelope,
                spec,
                token: _,
            } => {
                let message = HubJobMessage::Start {
                    job: *job,
                    reservation: *reservation,
                    envelope: *envelope,
                    spec: (**spec).clone(),
                    registry: None,
                };
                (session, message)
            }
            Effect::OutputAck {
                session,
                job,
                offset,
            } => {
                let message = HubJobMessage::OutputAck {
                    job: *job,
                    offset: *offset,
                };
                (session, message)
            }
            Effect::Cancel { session, job, mode } => {
                let message = HubJobMessage::Cancel {
                    job: *job,
                    mode: *mode,
                };
                (session, message)
            }
            Effect::Recorded { session, job } => (session, HubJobMessage::Recorded { job: *job }),
            Effect::Answer { .. }
            | Effect::StoreOutput { .. }
            | Effect::DropOutput { .. }
            | Effect::RetainOutputs { .. }
            | Effect::Server { .. }
            | Effect::CloseRelay { .. }
            | Effect::Stopped { .. } => return None,
        };
        Some((*session, HubMessage::Job(message)))
    }

    /// [`Effect::message`] of a relay's session.
    #[must_use]
    pub fn relay_message(&self) -> Option<(SessionHandle, HubRelayMessage)> {
        match self {
            Effect::Server {
                session,
                status,
                message,
            } => {
                let message = HubRelayMessage::Server {
                    status: *status,
                    message: message.clone(),
                };
                Some((*session, message))
            }
            Effect::CloseRelay {
                session,
                code,
                reason,
            } => {
                let message = HubRelayMessage::Refused {
                    code: *code,
                    reason: reason.clone(),
                };
                Some((*session, message))
            }
            _ => None,
        }
    }
}
