//! What one node holds, as the hub knows it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use vk_hub_proto::client::Envelope;
use vk_hub_proto::{JobId, ReservationId};
use vk_step::Now;

/// A node may have composed its heartbeat this long before it went out: what it accepted in that
/// time counts as not in it.
const COMPOSING: Duration = Duration::from_secs(1);

/// A reservation or job on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holding {
    Reservation(ReservationId),
    Job(JobId),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// None for a job the hub knows nothing of.
    envelope: Option<Envelope>,
    /// When the node took it; none while it has not answered.
    since: Option<Now>,
}

/// A node's reservations and unfinished jobs, those given up included (DISP-80), and which of them
/// its last heartbeat cannot show (ADM-02).
#[derive(Debug, Default)]
pub(crate) struct Book {
    entries: BTreeMap<Holding, Entry>,
    unseen: BTreeSet<Holding>,
    cpus: u64,
}

impl Book {
    /// Something sent to the node and not answered yet.
    pub(crate) fn ask(&mut self, what: Holding, envelope: Envelope) {
        self.put(what, Some(envelope), None);
        self.unseen.insert(what);
    }

    /// The node took what it was asked.
    pub(crate) fn took(&mut self, what: Holding, now: Now) {
        if let Some(entry) = self.entries.get_mut(&what) {
            entry.since.get_or_insert(now);
        }
    }

    /// Something the node held before this session's first heartbeat.
    pub(crate) fn held(&mut self, what: Holding, envelope: Option<Envelope>) {
        self.put(what, envelope, Some(Now::ZERO));
    }

    /// A job starts on a reservation: one entry stays one (PLACE-45).
    pub(crate) fn start_on(&mut self, reservation: ReservationId, job: JobId, envelope: Envelope) {
        let from = Holding::Reservation(reservation);
        let seen = !self.unseen.contains(&from);
        let since = self.entries.get(&from).and_then(|entry| entry.since);
        self.drop(from);
        self.put(Holding::Job(job), Some(envelope), since);
        if !seen {
            self.unseen.insert(Holding::Job(job));
        }
    }

    /// It is no longer there.
    pub(crate) fn drop(&mut self, what: Holding) {
        self.unseen.remove(&what);
        if let Some(entry) = self.entries.remove(&what) {
            self.cpus = self.cpus.saturating_sub(cpus(&entry));
        }
    }

    /// A heartbeat arrived: it shows what the node took well before.
    pub(crate) fn heartbeat(&mut self, at: Now) {
        let entries = &self.entries;
        self.unseen.retain(|what| {
            entries
                .get(what)
                .is_some_and(|entry| entry.since.is_none_or(|since| since.after(COMPOSING) > at))
        });
    }

    /// Nothing is known any more.
    pub(crate) fn clear(&mut self) {
        *self = Book::default();
    }

    /// Whether it is there.
    pub(crate) fn has(&self, what: Holding) -> bool {
        self.entries.contains_key(&what)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Their virtual CPUs.
    pub(crate) const fn cpus(&self) -> u64 {
        self.cpus
    }

    /// Memory in MiB and disk in bytes that the last heartbeat does not show.
    pub(crate) fn unseen(&self) -> (u64, u64) {
        self.unseen
            .iter()
            .filter_map(|what| self.entries.get(what)?.envelope)
            .fold((0, 0), |(mem, disk): (u64, u64), one| {
                (
                    mem.saturating_add(one.mem_mib),
                    disk.saturating_add(one.disk_bytes),
                )
            })
    }

    fn put(&mut self, what: Holding, envelope: Option<Envelope>, since: Option<Now>) {
        self.drop(what);
        let entry = Entry { envelope, since };
        self.cpus = self.cpus.saturating_add(cpus(&entry));
        self.entries.insert(what, entry);
    }
}

fn cpus(entry: &Entry) -> u64 {
    entry.envelope.map_or(0, |one| u64::from(one.cpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENVELOPE: Envelope = Envelope {
        mem_mib: 10,
        cpus: 2,
        disk_bytes: 7,
    };

    fn reservation(n: u8) -> Holding {
        Holding::Reservation(ReservationId::from_bytes([n; 16]))
    }

    /// ADM-02
    #[test]
    fn a_heartbeat_shows_what_was_taken_before_it_and_nothing_else() {
        let mut book = Book::default();
        book.ask(reservation(1), ENVELOPE);
        book.ask(reservation(2), ENVELOPE);
        book.ask(reservation(3), ENVELOPE);
        book.took(reservation(1), Now::from_millis(1_000));
        book.took(reservation(2), Now::from_millis(4_500));
        assert_eq!(book.unseen(), (30, 21));
        book.heartbeat(Now::from_millis(5_000));
        assert_eq!(book.unseen(), (20, 14), "too fresh, and not answered");
        book.heartbeat(Now::from_millis(10_000));
        assert_eq!(book.unseen(), (10, 7), "not answered");
        assert_eq!((book.count(), book.cpus()), (3, 6));
        book.drop(reservation(3));
        book.drop(reservation(3));
        assert_eq!((book.unseen(), book.count(), book.cpus()), ((0, 0), 2, 4));
    }

    /// PLACE-45
    #[test]
    fn a_start_on_a_reservation_is_no_second_entry() {
        let mut book = Book::default();
        let id = ReservationId::from_bytes([1; 16]);
        let job = JobId::from_bytes([2; 16]);
        book.ask(Holding::Reservation(id), ENVELOPE);
        book.took(Holding::Reservation(id), Now::from_millis(1));
        book.heartbeat(Now::from_millis(9_000));
        book.start_on(id, job, ENVELOPE);
        assert_eq!((book.count(), book.cpus(), book.unseen()), (1, 2, (0, 0)));
        assert!(book.has(Holding::Job(job)) && !book.has(Holding::Reservation(id)));
    }
}
