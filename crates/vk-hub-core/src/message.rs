//! Effects that are a message of a node's session.

use vk_hub_proto::dispatch::HubJobMessage;
use vk_hub_proto::node_session::HubMessage;

use crate::{Effect, SessionHandle};

impl Effect {
    /// The session and the message for it, of an effect that is one. A start's message holds the
    /// job's secrets.
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
            } => {
                let message = HubJobMessage::Start {
                    job: *job,
                    reservation: *reservation,
                    envelope: *envelope,
                    spec: (**spec).clone(),
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
            | Effect::Stopped { .. } => return None,
        };
        Some((*session, HubMessage::Job(message)))
    }
}
