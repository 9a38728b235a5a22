//! The hub's client API, each request once: who calls decides about another try.

use std::time::Duration;

use hyper::Method;
use hyper::body::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use vk_hub_proto::client::{
    CancelRequest, Capacity, CapacityRequest, ClientError, ErrorCode, JobSubmission, JobView,
    RenewRequest, ReservationGrant, ReservationRequest,
};
use vk_hub_proto::{JobId, ReservationId};

use crate::connect::Dialer;
use crate::observe::{Asked, Observer};
use crate::request::{Answer, Outgoing, RequestError, Signer, send};

/// How long an answer may take past the wait that was asked for (API-67).
const PAST_WAIT: Duration = Duration::from_secs(30);

/// A relay's client of one hub.
#[derive(Debug)]
pub struct Client {
    dialer: Dialer,
    signer: Signer,
    observer: Option<Observer>,
}

/// A request that did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// No answer: the hub may or may not have acted.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The hub refused.
    #[error("the hub answered {status}: {}", refusal.error)]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The hub's `date` header, for a refusal that is about clocks (AUTH-20).
        date: Option<String>,
        /// What it said.
        refusal: ClientError,
    },
    /// An answer that is none of the contract's; it counts as no answer.
    #[error("the hub answered {status} with a body that makes no sense: {why}")]
    Nonsense {
        /// The HTTP status.
        status: u16,
        /// What is wrong with it.
        why: String,
    },
}

impl ApiError {
    /// The hub's code; none where there was no sensible answer.
    #[must_use]
    pub const fn code(&self) -> Option<ErrorCode> {
        match self {
            ApiError::Refused { refusal, .. } => Some(refusal.code),
            ApiError::Request(_) | ApiError::Nonsense { .. } => None,
        }
    }

    /// Whether the same request may be sent again (API-50, API-52).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.code().is_none_or(ErrorCode::is_retryable)
    }

    /// When the hub asked to be asked again, at most 60 s (ERR-28).
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            ApiError::Refused { refusal, .. } => refusal
                .retry_after_secs
                .map(|secs| Duration::from_secs(secs.min(60).into())),
            ApiError::Request(_) | ApiError::Nonsense { .. } => None,
        }
    }
}

/// A piece of a job's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Where the first byte stands.
    pub offset: u64,
    /// The output's length so far.
    pub length: u64,
    /// The job has ended and these bytes reach its end.
    pub complete: bool,
    /// The bytes.
    pub bytes: Bytes,
}

/// What a read of the output can say besides failing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputRead {
    /// Bytes, or none within the wait.
    Bytes(Output),
    /// The offset lies past the end (API-39).
    PastEnd {
        /// The output's length.
        length: u64,
    },
}

impl Client {
    /// A client that dials and signs so.
    #[must_use]
    pub const fn new(dialer: Dialer, signer: Signer) -> Client {
        Client {
            dialer,
            signer,
            observer: None,
        }
    }

    /// The same, with somebody who is told of every request.
    #[must_use]
    pub fn with_observer(self, observer: Observer) -> Client {
        Client {
            observer: Some(observer),
            ..self
        }
    }

    /// The way to the hub.
    #[must_use]
    pub const fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// Who signs.
    #[must_use]
    pub const fn signer(&self) -> &Signer {
        &self.signer
    }

    /// Gives up the client, keeping who signs.
    #[must_use]
    pub fn into_signer(self) -> Signer {
        self.signer
    }

    /// `POST /v1/capacity` (API-01).
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn capacity(&self, request: &CapacityRequest) -> Result<Capacity, ApiError> {
        let what = (Asked::Capacity, "/v1/capacity");
        self.post(what, request, 200, request.wait_secs).await
    }

    /// `POST /v1/reservations` (API-02).
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn reserve(
        &self,
        request: &ReservationRequest,
    ) -> Result<ReservationGrant, ApiError> {
        let what = (Asked::Reserve, "/v1/reservations");
        self.post(what, request, 201, request.wait_secs).await
    }

    /// `POST /v1/reservations/<id>/renew` (API-03).
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn renew(
        &self,
        reservation: ReservationId,
        request: RenewRequest,
    ) -> Result<ReservationGrant, ApiError> {
        let path = format!("/v1/reservations/{reservation}/renew");
        self.post((Asked::Renew, &path), &request, 200, 0).await
    }

    /// `DELETE /v1/reservations/<id>` (API-04).
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn release(&self, reservation: ReservationId) -> Result<(), ApiError> {
        let path = format!("/v1/reservations/{reservation}");
        let what = (Asked::Release, path.as_str());
        let answer = self.send(Method::DELETE, what, Vec::new(), 0).await?;
        expect(&answer, 204)
    }

    /// `POST /v1/jobs` (API-05); the body must be the same bytes for the same request ID.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn submit(&self, submission: &JobSubmission) -> Result<JobView, ApiError> {
        let what = (Asked::Submit, "/v1/jobs");
        self.post(what, submission, 201, 0).await
    }

    /// `GET /v1/jobs/<id>` (API-06).
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn view(
        &self,
        job: JobId,
        after: Option<u64>,
        wait_secs: u32,
    ) -> Result<JobView, ApiError> {
        let after = after.map_or_else(String::new, |revision| format!("after={revision}&"));
        let path = format!("/v1/jobs/{job}?{after}wait={wait_secs}");
        let answer = self.get((Asked::View, &path), wait_secs).await?;
        decode(&answer, 200)
    }

    /// The same, which a hub that knows `turns` holds until a node has accepted the job, its cancel has
    /// changed or it has ended, whatever stages it passes through meanwhile; one that does not answers
    /// every change.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn turn(
        &self,
        job: JobId,
        after: Option<u64>,
        wait_secs: u32,
    ) -> Result<JobView, ApiError> {
        let after = after.map_or_else(String::new, |revision| format!("after={revision}&"));
        let path = format!("/v1/jobs/{job}?{after}wait={wait_secs}&turns=1");
        let answer = self.get((Asked::View, &path), wait_secs).await?;
        decode(&answer, 200)
    }

    /// `GET /v1/jobs/<id>/output` (API-07).
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn output(
        &self,
        job: JobId,
        offset: u64,
        wait_secs: u32,
    ) -> Result<OutputRead, ApiError> {
        let path = format!("/v1/jobs/{job}/output?offset={offset}&wait={wait_secs}");
        let answer = self.get((Asked::Output, &path), wait_secs).await?;
        match answer.status {
            200 => Ok(OutputRead::Bytes(Output {
                offset: number(&answer, "vk-output-offset")?,
                length: number(&answer, "vk-output-length")?,
                complete: answer
                    .headers
                    .get("vk-output-complete")
                    .is_some_and(|is| is == "true"),
                bytes: answer.body,
            })),
            416 => Ok(OutputRead::PastEnd {
                length: number(&answer, "vk-output-length")?,
            }),
            _ => Err(refused(&answer)),
        }
    }

    /// `POST /v1/jobs/<id>/cancel` (API-08).
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn cancel(&self, job: JobId, request: CancelRequest) -> Result<JobView, ApiError> {
        let path = format!("/v1/jobs/{job}/cancel");
        self.post((Asked::Cancel, &path), &request, 202, 0).await
    }

    /// `POST /v1/jobs/<id>/settle` (API-09).
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn settle(&self, job: JobId) -> Result<(), ApiError> {
        let path = format!("/v1/jobs/{job}/settle");
        let what = (Asked::Settle, path.as_str());
        let answer = self.send(Method::POST, what, Vec::new(), 0).await?;
        expect(&answer, 204)
    }

    async fn post<B: Serialize + Sync, A: DeserializeOwned>(
        &self,
        what: (Asked, &str),
        body: &B,
        status: u16,
        wait_secs: u32,
    ) -> Result<A, ApiError> {
        let body = serde_json::to_vec(body).map_err(|why| ApiError::Nonsense {
            status: 0,
            why: why.to_string(),
        })?;
        let answer = self.send(Method::POST, what, body, wait_secs).await?;
        decode(&answer, status)
    }

    async fn get(&self, what: (Asked, &str), wait_secs: u32) -> Result<Answer, ApiError> {
        self.send(Method::GET, what, Vec::new(), wait_secs).await
    }

    async fn send(
        &self,
        method: Method,
        (asked, path): (Asked, &str),
        body: Vec<u8>,
        wait_secs: u32,
    ) -> Result<Answer, ApiError> {
        let within = PAST_WAIT + Duration::from_secs(wait_secs.min(60).into());
        let signer = Some(&self.signer);
        let out = Outgoing {
            method,
            path,
            body,
            signer,
            within,
        };
        let answered = send(&self.dialer, out).await;
        if let Some(observer) = &self.observer {
            observer.over(asked, answered.as_ref().ok().map(|answer| answer.status));
        }
        Ok(answered?)
    }
}

fn expect(answer: &Answer, status: u16) -> Result<(), ApiError> {
    if answer.status == status {
        Ok(())
    } else {
        Err(refused(answer))
    }
}

fn decode<A: DeserializeOwned>(answer: &Answer, status: u16) -> Result<A, ApiError> {
    expect(answer, status)?;
    let nonsense = |why: serde_json::Error| ApiError::Nonsense {
        status,
        why: why.to_string(),
    };
    serde_json::from_slice(&answer.body).map_err(nonsense)
}

fn number(answer: &Answer, header: &'static str) -> Result<u64, ApiError> {
    let value = answer
        .headers
        .get(header)
        .and_then(|value| value.to_str().ok());
    value
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| ApiError::Nonsense {
            status: answer.status,
            why: format!("the header {header} is missing or no number"),
        })
}

/// What a refusal says, judged by its status where its body has no code (ERR-27).
pub(crate) fn refusal(answer: &Answer) -> ClientError {
    let by_status = ErrorCode::of_status(answer.status);
    match serde_json::from_slice::<ClientError>(&answer.body) {
        Ok(refusal) if refusal.code != ErrorCode::Other => refusal,
        Ok(refusal) => ClientError {
            code: by_status,
            ..refusal
        },
        Err(_) => ClientError {
            error: format!("HTTP status {} without an explanation", answer.status),
            code: by_status,
            retry_after_secs: None,
            job: None,
        },
    }
}

fn refused(answer: &Answer) -> ApiError {
    let date = answer
        .headers
        .get("date")
        .and_then(|date| date.to_str().ok())
        .map(str::to_owned);
    if answer.status < 400 {
        let why = "no such answer stands in the contract".to_owned();
        return ApiError::Nonsense {
            status: answer.status,
            why,
        };
    }
    ApiError::Refused {
        status: answer.status,
        date,
        refusal: refusal(answer),
    }
}
