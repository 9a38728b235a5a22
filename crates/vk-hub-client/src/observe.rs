//! Telling somebody of every signed request: for metrics.

use std::fmt;
use std::sync::Arc;

/// What a signed request asks the hub for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Asked {
    /// `POST /v1/capacity`.
    Capacity,
    /// `POST /v1/reservations`.
    Reserve,
    /// `POST /v1/reservations/<id>/renew`.
    Renew,
    /// `DELETE /v1/reservations/<id>`.
    Release,
    /// `POST /v1/jobs`.
    Submit,
    /// `GET /v1/jobs/<id>`.
    View,
    /// `GET /v1/jobs/<id>/output`.
    Output,
    /// `POST /v1/jobs/<id>/cancel`.
    Cancel,
    /// `POST /v1/jobs/<id>/settle`.
    Settle,
}

impl Asked {
    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Asked::Capacity => "capacity",
            Asked::Reserve => "reserve",
            Asked::Renew => "renew",
            Asked::Release => "release",
            Asked::Submit => "submit",
            Asked::View => "view",
            Asked::Output => "output",
            Asked::Cancel => "cancel",
            Asked::Settle => "settle",
        }
    }
}

/// Who is told of every signed request, once it is over: what it asked for, and the answer's status,
/// none where no whole answer came.
#[derive(Clone)]
pub struct Observer(Arc<dyn Fn(Asked, Option<u16>) + Send + Sync>);

impl Observer {
    /// One that does this with what it is told.
    pub fn new(told: impl Fn(Asked, Option<u16>) + Send + Sync + 'static) -> Observer {
        Observer(Arc::new(told))
    }

    pub(crate) fn over(&self, asked: Asked, status: Option<u16>) {
        (self.0)(asked, status);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}
