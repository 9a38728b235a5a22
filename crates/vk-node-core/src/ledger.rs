//! The admission ledger: who was given how much memory and disk, and who waits for more.
//!
//! A reservation is decided at once and never waits (ADM-08). A job that needs more than it was
//! reserved waits for the rest, first come first served, and nothing new overtakes it (ADM-35).

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use vk_hub_proto::client::Envelope;
use vk_hub_proto::dispatch::RefusalReason;
use vk_hub_proto::{JobId, ReservationId};

use crate::io::Budgets;

/// Memory and disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Memory in MiB.
    pub mem_mib: u64,
    /// Disk in bytes.
    pub disk_bytes: u64,
}

impl Amount {
    fn plus(self, other: Amount) -> Amount {
        Amount {
            mem_mib: self.mem_mib.saturating_add(other.mem_mib),
            disk_bytes: self.disk_bytes.saturating_add(other.disk_bytes),
        }
    }

    fn less(self, other: Amount) -> Amount {
        Amount {
            mem_mib: self.mem_mib.saturating_sub(other.mem_mib),
            disk_bytes: self.disk_bytes.saturating_sub(other.disk_bytes),
        }
    }

    fn at_most(self, other: Amount) -> Amount {
        Amount {
            mem_mib: self.mem_mib.min(other.mem_mib),
            disk_bytes: self.disk_bytes.min(other.disk_bytes),
        }
    }
}

impl From<Envelope> for Amount {
    fn from(envelope: Envelope) -> Amount {
        Amount {
            mem_mib: envelope.mem_mib,
            disk_bytes: envelope.disk_bytes,
        }
    }
}

/// What the ledger grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Memory.
    Memory,
    /// Disk.
    Disk,
}

impl From<Resource> for RefusalReason {
    fn from(short: Resource) -> RefusalReason {
        match short {
            Resource::Memory => RefusalReason::Memory,
            Resource::Disk => RefusalReason::Disk,
        }
    }
}

/// The ledger in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// What may be granted in all.
    pub budgets: Budgets,
    /// What is granted, to reservations and jobs.
    pub granted: Amount,
    /// What they asked for: more than granted where a job waits for the rest.
    pub asked: Amount,
    /// Reservations that are no jobs yet.
    pub reservations: usize,
    /// Jobs that wait for more.
    pub waiting: usize,
}

/// What is held by a reservation or a job: what it has and what it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    granted: Amount,
    asked: Amount,
}

/// The ledger. Sums are kept, never recounted.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    budgets: Budgets,
    granted: Amount,
    reservations: BTreeMap<ReservationId, Amount>,
    jobs: BTreeMap<JobId, Entry>,
    waiting: VecDeque<JobId>,
}

impl Ledger {
    pub(crate) fn new(budgets: Budgets) -> Ledger {
        Ledger {
            budgets,
            ..Ledger::default()
        }
    }

    /// Replaces the budgets; what is granted stays.
    pub(crate) fn set_budgets(&mut self, budgets: Budgets) {
        self.budgets = budgets;
    }

    /// What may be granted in all.
    pub(crate) fn budgets(&self) -> Budgets {
        self.budgets
    }

    /// What is granted, reservations included (ADM-09).
    pub(crate) fn granted(&self) -> Amount {
        self.granted
    }

    /// What reservations and jobs asked for, what they wait for included.
    pub(crate) fn asked(&self) -> Amount {
        let jobs = self.jobs.values().map(|entry| entry.asked);
        let all = self.reservations.values().copied().chain(jobs);
        all.fold(Amount::default(), Amount::plus)
    }

    /// Reservations that are no jobs yet.
    pub(crate) fn reservations(&self) -> usize {
        self.reservations.len()
    }

    /// Reservations and jobs that have something, and jobs among them that wait for more.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let waiting = self.waiting.len();
        let all = self.reservations.len() + self.jobs.len();
        (all - waiting, waiting)
    }

    /// Holds and waits for nothing?
    pub(crate) fn is_empty(&self) -> bool {
        self.reservations.is_empty() && self.jobs.is_empty()
    }

    /// Whether this much more may be granted, or which resource is short.
    fn room_for(&self, more: Amount) -> Result<(), Resource> {
        let after = self.granted.plus(more);
        if more.mem_mib > 0
            && self
                .budgets
                .mem_mib
                .is_some_and(|most| after.mem_mib > most)
        {
            return Err(Resource::Memory);
        }
        let disk = self.budgets.disk_bytes;
        if more.disk_bytes > 0 && disk.is_some_and(|most| after.disk_bytes > most) {
            return Err(Resource::Disk);
        }
        Ok(())
    }

    /// Whether a newcomer may have this much now: never while a job waits (ADM-35).
    pub(crate) fn admit(&self, amount: Amount) -> Result<(), Resource> {
        if self.waiting.is_empty() {
            return self.room_for(amount);
        }
        Err(match self.budgets.mem_mib {
            Some(_) => Resource::Memory,
            None => Resource::Disk,
        })
    }

    /// Whether even an empty ledger could not grant this much.
    pub(crate) fn never_fits(&self, amount: Amount) -> Option<Resource> {
        let over = |asked: u64, budget: Option<u64>| budget.is_some_and(|most| asked > most);
        if over(amount.mem_mib, self.budgets.mem_mib) {
            return Some(Resource::Memory);
        }
        over(amount.disk_bytes, self.budgets.disk_bytes).then_some(Resource::Disk)
    }

    /// Sets aside what [`Ledger::admit`] allowed.
    pub(crate) fn reserve(&mut self, reservation: ReservationId, amount: Amount) {
        self.release(reservation);
        self.granted = self.granted.plus(amount);
        self.reservations.insert(reservation, amount);
    }

    /// Gives a reservation back.
    pub(crate) fn release(&mut self, reservation: ReservationId) {
        if let Some(amount) = self.reservations.remove(&reservation) {
            self.granted = self.granted.less(amount);
        }
    }

    /// Enters a job with what it has already and what it asks for; it waits for what exceeds
    /// that, and what it has beyond its ask is not taken (ADM-16, ADM-17). What it has now is
    /// the answer.
    pub(crate) fn enter(&mut self, job: JobId, has: Amount, asked: Amount) -> Amount {
        self.leave(job);
        let granted = has.at_most(asked);
        self.granted = self.granted.plus(granted);
        self.jobs.insert(job, Entry { granted, asked });
        if granted != asked {
            self.waiting.push_back(job);
        }
        granted
    }

    /// Takes a job out, with all it had.
    pub(crate) fn leave(&mut self, job: JobId) {
        if let Some(entry) = self.jobs.remove(&job) {
            self.granted = self.granted.less(entry.granted);
            if entry.granted != entry.asked {
                self.waiting.retain(|waits| *waits != job);
            }
        }
    }

    /// Whether a job waits for more.
    pub(crate) fn waits(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|e| e.granted != e.asked)
    }

    /// What a waiting job is short of.
    pub(crate) fn short_of(&self, job: JobId) -> Option<Resource> {
        let entry = self.jobs.get(&job)?;
        let rest = entry.asked.less(entry.granted);
        match self.room_for(rest) {
            Err(short) => Some(short),
            // It waits behind another job; name what it still needs.
            Ok(()) if rest.mem_mib > 0 => Some(Resource::Memory),
            Ok(()) if rest.disk_bytes > 0 => Some(Resource::Disk),
            Ok(()) => None,
        }
    }

    /// The job that is first in line, if it can have all it waits for now.
    pub(crate) fn next_to_grant(&self) -> Option<JobId> {
        let job = *self.waiting.front()?;
        let entry = self.jobs.get(&job)?;
        self.room_for(entry.asked.less(entry.granted)).ok()?;
        Some(job)
    }

    /// Gives a job all it asked for, whether there is room or not: the caller asked
    /// [`Ledger::next_to_grant`], or the journal says that it happened.
    pub(crate) fn grant(&mut self, job: JobId) {
        if let Some(entry) = self.jobs.get_mut(&job) {
            self.granted = self.granted.less(entry.granted).plus(entry.asked);
            entry.granted = entry.asked;
            self.waiting.retain(|waits| *waits != job);
        }
    }
}

#[cfg(test)]
mod tests;
