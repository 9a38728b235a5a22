//! The client API: signed requests to the fleet.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;
use serde::Serialize;
use serde::de::DeserializeOwned;
use vk_hub_core::{Answer, Digest, Principal, Request};
use vk_hub_proto::client::{
    CancelRequest, CapacityRequest, ErrorCode, JobSubmission, RenewRequest, ReservationRequest,
};
use vk_hub_proto::hex::Hex;
use vk_hub_proto::{JobId, ReservationId};

use super::answer::{HttpAnswer, of_reply, refused};
use super::listener::Context;
use super::routes::{Route, number};

/// Why a request never reached the fleet.
type Refused = Box<HttpAnswer>;

/// Asks the fleet on a relay's behalf.
pub(crate) async fn ask(
    context: &Context,
    by: Principal,
    route: Route,
    query: &str,
    body: &[u8],
) -> HttpAnswer {
    if route == Route::Clients {
        let why = "POST /v1/clients is for API keys; a relay says what it is in its session";
        return refused(ErrorCode::Forbidden, why);
    }
    let request = match request(route, query, body) {
        Ok(request) => request,
        Err(answer) => return *answer,
    };
    let first_of = match &request {
        Request::Capacity(asked) if asked.after.is_none() => Some(asked.placement.pool.clone()),
        _ => None,
    };
    match context.fleet.request(by, request).await {
        Ok(reply) => {
            if let (Some(pool), Answer::Capacity(found)) = (&first_of, &reply.answer)
                && found.no_nodes
            {
                tracing::warn!(%pool, ?by, "a runner asks for room, and no node is in this pool");
            }
            of_reply(reply)
        }
        Err(_) => refused(
            ErrorCode::Unavailable,
            "the hub could not answer: it is stopping, or its log says why",
        ),
    }
}

fn request(route: Route, query: &str, body: &[u8]) -> Result<Request, Refused> {
    Ok(match route {
        Route::Capacity => Request::Capacity(parse::<CapacityRequest>(body)?),
        Route::Reserve => {
            let request: ReservationRequest = parse(body)?;
            let digest = canonical(&request)?;
            let fresh = ReservationId::from_bytes(drawn()?);
            Request::Reserve {
                request,
                digest,
                fresh,
            }
        }
        Route::Renew(reservation) => Request::Renew {
            reservation,
            request: parse::<RenewRequest>(body)?,
        },
        Route::Release(reservation) => Request::Release { reservation },
        Route::Submit => submit(body)?,
        Route::View(job) if asked(query, "turns")? == Some(1_u8) => Request::Turn {
            job,
            after: asked(query, "after")?,
            wait_secs: asked(query, "wait")?.unwrap_or(0),
        },
        Route::View(job) => Request::View {
            job,
            after: asked(query, "after")?,
            wait_secs: asked(query, "wait")?.unwrap_or(0),
        },
        Route::Output(job) => Request::Output {
            job,
            offset: asked(query, "offset")?.unwrap_or(0),
            wait_secs: asked(query, "wait")?.unwrap_or(0),
        },
        Route::Cancel(job) => Request::Cancel {
            job,
            mode: parse::<CancelRequest>(body)?.mode,
        },
        Route::Settle(job) => Request::Settle { job },
        Route::Enrol
        | Route::EnrolGitLab
        | Route::NodeSession
        | Route::RelaySession
        | Route::Clients => return Err(Box::new(refused(ErrorCode::NotFound, "no such request"))),
    })
}

fn submit(body: &[u8]) -> Result<Request, Refused> {
    let submission: JobSubmission = parse(body)?;
    let spec_bytes = serde_json::to_vec(&submission.spec).map_or(usize::MAX, |json| json.len());
    let digest = canonical(&submission)?;
    let fresh = JobId::from_bytes(drawn()?);
    Ok(Request::Submit {
        submission: Box::new(submission),
        digest,
        spec_bytes,
        fresh,
    })
}

/// The body as JSON (ERR-03). The error of a reader may repeat a secret: line and column are told.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let why = format!("the body is not what this request takes: line {line}, column {column}");
        Box::new(refused(ErrorCode::Invalid, why))
    })
}

fn asked<T: std::str::FromStr>(query: &str, name: &str) -> Result<Option<T>, Refused> {
    number(query, name).map_err(|why| Box::new(refused(ErrorCode::Invalid, why)))
}

/// SHA-256 of the body serialized again after parsing (API-58).
fn canonical<T: Serialize>(body: &T) -> Result<Digest, Refused> {
    let internal = |_| {
        Box::new(refused(
            ErrorCode::Internal,
            "the body cannot be serialized",
        ))
    };
    let bytes = serde_json::to_vec(body).map_err(internal)?;
    Ok(Hex(digest(&SHA256, &bytes)
        .as_ref()
        .try_into()
        .unwrap_or([0; 32])))
}

fn drawn() -> Result<[u8; 16], Refused> {
    let mut bytes = [0; 16];
    match rand::fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(_) => Err(Box::new(refused(
            ErrorCode::Internal,
            "the system gave no randomness",
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_held_for_any_change_or_for_turns_alone() {
        let job = JobId::from_bytes([9; 16]);
        let read = |query: &str| request(Route::View(job), query, b"").ok();
        let (after, wait_secs) = (Some(4), 60);
        let view = Request::View {
            job,
            after,
            wait_secs,
        };
        let turn = Request::Turn {
            job,
            after,
            wait_secs,
        };
        assert_eq!(read("after=4&wait=60"), Some(view.clone()));
        assert_eq!(read("after=4&wait=60&turns=0"), Some(view));
        assert_eq!(read("after=4&wait=60&turns=1"), Some(turn));
        assert_eq!(read("turns=yes"), None);
    }
}
