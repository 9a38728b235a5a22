//! Telling somebody what GitLab answers: for metrics.

use std::fmt;
use std::sync::Arc;

/// What of GitLab's API a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// `POST /runners/verify`.
    Verify,
    /// `POST /jobs/request`.
    JobRequest,
    /// `PUT /jobs/:id`.
    JobUpdate,
    /// `PATCH /jobs/:id/trace`.
    Trace,
}

impl Endpoint {
    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Endpoint::Verify => "verify",
            Endpoint::JobRequest => "job_request",
            Endpoint::JobUpdate => "job_update",
            Endpoint::Trace => "trace",
        }
    }
}

/// Who is told of every answer, those that are tried again among them: which endpoint, and the status,
/// none where no whole answer came.
#[derive(Clone)]
pub struct Observer(Arc<dyn Fn(Endpoint, Option<u16>) + Send + Sync>);

impl Observer {
    /// One that does this with what it is told.
    pub fn new(told: impl Fn(Endpoint, Option<u16>) + Send + Sync + 'static) -> Observer {
        Observer(Arc::new(told))
    }

    pub(crate) fn answered(&self, endpoint: Endpoint, status: Option<u16>) {
        (self.0)(endpoint, status);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}
