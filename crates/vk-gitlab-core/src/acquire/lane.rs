//! One of a runner's job requests, from nothing to GitLab's answer.

use vk_hub_proto::RequestId;
use vk_step::Now;

use super::lease::Held;
use crate::{Backoff, WithoutReservation};

/// Where a lane stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Holds nothing; looks for room once `not_before` has come.
    Idle { not_before: Now },
    /// Asks the hub for a reservation.
    Reserving(Reserving),
    /// Holds a reservation under which no request is open.
    Holding(Holding),
    /// Asks for a slot.
    TakingSlot(Held),
    /// Has a request open at GitLab.
    Requesting(Requesting),
}

/// A reservation being asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reserving {
    pub(super) request_id: RequestId,
    /// When this ID was first sent: a lost answer may have granted the lease from there on.
    pub(super) first_sent: Option<Now>,
    pub(super) asked: bool,
    pub(super) next: Now,
    pub(super) backoff: Backoff,
}

/// A reservation between two requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) held: Held,
    /// When the next request may start.
    pub(super) not_before: Now,
    /// Whether it is renewed first (FLOW-12).
    pub(super) renew: bool,
    /// Whether it was renewed since the last request: it is not renewed twice (ADM-19).
    pub(super) renewed: bool,
}

/// A request open at GitLab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Requesting {
    pub(super) cover: Result<Held, WithoutReservation>,
    pub(super) sent: Now,
}

impl Lane {
    /// A lane that may start at once.
    pub(super) const fn idle() -> Lane {
        Lane::Idle {
            not_before: Now::ZERO,
        }
    }

    /// Whether it is on its way to a job: counted against the runner's `limit`.
    pub(super) const fn is_busy(&self) -> bool {
        !matches!(self, Lane::Idle { .. })
    }

    /// The reservation it holds.
    pub(super) fn held_mut(&mut self) -> Option<&mut Held> {
        match self {
            Lane::Holding(holding) => Some(&mut holding.held),
            Lane::TakingSlot(held) => Some(held),
            Lane::Requesting(requesting) => requesting.cover.as_mut().ok(),
            Lane::Idle { .. } | Lane::Reserving(_) => None,
        }
    }

    /// Moments at which something of it may be due.
    pub(super) fn deadlines(&self) -> Vec<Option<Now>> {
        match self {
            Lane::Idle { not_before } => vec![Some(*not_before)],
            Lane::Reserving(reserving) if !reserving.asked => vec![Some(reserving.next)],
            Lane::Reserving(_) | Lane::TakingSlot(_) => Vec::new(),
            Lane::Holding(holding) => vec![
                Some(holding.not_before),
                Some(holding.held.until()),
                holding.held.renewal_due(),
            ],
            Lane::Requesting(requesting) => match &requesting.cover {
                Ok(held) => vec![Some(held.until()), held.renewal_due()],
                Err(_) => Vec::new(),
            },
        }
    }

    /// Whether a request is open.
    pub(super) const fn is_requesting(&self) -> bool {
        matches!(self, Lane::Requesting(_))
    }
}
