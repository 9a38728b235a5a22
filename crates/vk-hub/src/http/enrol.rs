//! `POST /v1/enroll` and `POST /v1/gitlab/enroll`.

use vk_hub_core::OperatorRequest;
use vk_hub_proto::client::ErrorCode;
use vk_hub_proto::enroll::{EnrollRequest, NodeEnrolled, RelayEnrolled};

use super::answer::{HttpAnswer, json, refused};
use super::listener::Context;
use crate::members::EnrolError;
use crate::store::MemberKind;

/// Enrols a node or relay.
pub(crate) async fn enrol(context: &Context, kind: MemberKind, body: &[u8]) -> HttpAnswer {
    let request: EnrollRequest = match serde_json::from_slice(body) {
        Ok(request) => request,
        // What does not parse may be a token: it is not repeated.
        Err(_) => return refused(ErrorCode::Invalid, "the body is no enrolment request"),
    };
    let members = context.members.clone();
    let enrolled = tokio::task::spawn_blocking(move || members.enrol(kind, &request)).await;
    match enrolled {
        Ok(Ok(member)) if kind == MemberKind::GitLab => json(
            200,
            &RelayEnrolled {
                relay_id: member.relay(),
            },
        ),
        Ok(Ok(member)) => {
            let request = OperatorRequest::AddNode {
                node: member.node(),
                pools: vec![vk_hub_proto::Name::default()],
            };
            match context.fleet.operator(request).await {
                Ok(_) => json(
                    200,
                    &NodeEnrolled {
                        node_id: member.node(),
                    },
                ),
                Err(gone) => refused(ErrorCode::Unavailable, gone.to_string()),
            }
        }
        Ok(Err(error @ (EnrolError::Token(_) | EnrolError::Signature))) => {
            refused(ErrorCode::Unauthorized, error.to_string())
        }
        Ok(Err(error)) => {
            tracing::error!(%error, "an enrolment failed");
            refused(
                ErrorCode::Internal,
                "the hub could not keep the enrolment; its log says why",
            )
        }
        Err(error) => {
            tracing::error!(%error, "an enrolment failed");
            refused(ErrorCode::Internal, "the hub failed; its log says why")
        }
    }
}
