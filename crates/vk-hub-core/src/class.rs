//! Placements that somebody asks for: their room, and who waits for it.

use std::collections::{BTreeMap, BTreeSet};

use vk_hub_proto::client::{Capacity, Placement};
use vk_hub_proto::{JobId, Name, NodeId};
use vk_step::Now;

use crate::RequestHandle;
use crate::request::RequestKey;

/// A placement by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassId(u64);

/// A placement by content; labels sorted, each once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    pool: Name,
    labels: Vec<Name>,
    mem_mib: u64,
    cpus: u32,
    disk_bytes: u64,
}

impl Key {
    fn of(placement: &Placement) -> Key {
        let labels: BTreeSet<Name> = placement.labels.iter().cloned().collect();
        Key {
            pool: placement.pool.clone(),
            labels: labels.into_iter().collect(),
            mem_mib: placement.envelope.mem_mib,
            cpus: placement.envelope.cpus,
            disk_bytes: placement.envelope.disk_bytes,
        }
    }
}

/// A node's refusal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) at: Now,
    /// For how many it had room by the hub's count all the same; more is news.
    pub(crate) fits: u32,
}

/// One placement: all that ask for it ask for the same, so what one learns of a node the others
/// know.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) placement: Placement,
    /// Nodes with room for it, and for how many.
    pub(crate) fits: BTreeMap<NodeId, u32>,
    total: u64,
    /// The total that goes with `revision`.
    announced: u64,
    revision: u64,
    /// Held capacity requests.
    pub(crate) polls: BTreeSet<RequestHandle>,
    /// Jobs that wait for a node, oldest first.
    pub(crate) jobs: BTreeSet<(u64, JobId)>,
    /// Reservation requests without an offer under way, oldest first.
    pub(crate) seeks: BTreeSet<(u64, RequestKey)>,
    /// Nodes that refused it lately.
    pub(crate) refused: BTreeMap<NodeId, Refused>,
    used: u64,
}

impl Class {
    /// The answer to a capacity request.
    pub(crate) fn capacity(&self) -> Capacity {
        Capacity {
            revision: self.revision,
            fits: u32::try_from(self.announced).unwrap_or(u32::MAX),
            no_nodes: false,
        }
    }

    /// Sets a node's room; whether it grew.
    pub(crate) fn set_fits(&mut self, node: NodeId, fits: u32) -> bool {
        let before = match fits {
            0 => self.fits.remove(&node).unwrap_or(0),
            _ => self.fits.insert(node, fits).unwrap_or(0),
        };
        self.total = self
            .total
            .saturating_sub(u64::from(before))
            .saturating_add(u64::from(fits));
        if self.refused.get(&node).is_some_and(|one| fits > one.fits) {
            self.refused.remove(&node);
        }
        fits > before
    }

    /// Whether the total differs from the one announced.
    pub(crate) const fn moved(&self) -> bool {
        self.total != self.announced
    }

    /// Announces the total under a new revision.
    pub(crate) const fn announce(&mut self, revision: u64) {
        self.announced = self.total;
        self.revision = revision;
    }

    /// Whether jobs or reservation requests wait for a node.
    pub(crate) fn has_seekers(&self) -> bool {
        !self.jobs.is_empty() || !self.seeks.is_empty()
    }

    fn is_idle(&self) -> bool {
        self.polls.is_empty() && !self.has_seekers()
    }
}

/// All placements that are asked for, or were lately.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    by_id: BTreeMap<ClassId, Class>,
    by_key: BTreeMap<Key, ClassId>,
    by_pool: BTreeMap<Name, BTreeSet<ClassId>>,
    next: u64,
}

impl Classes {
    pub(crate) fn get(&self, id: ClassId) -> Option<&Class> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ClassId) -> Option<&mut Class> {
        self.by_id.get_mut(&id)
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Class> {
        self.by_id.values()
    }

    /// The class of a placement, if there is one; it counts as used.
    pub(crate) fn find(&mut self, placement: &Placement) -> Option<ClassId> {
        let id = *self.by_key.get(&Key::of(placement))?;
        self.next += 1;
        if let Some(class) = self.by_id.get_mut(&id) {
            class.used = self.next;
        }
        Some(id)
    }

    /// A new class, without room so far.
    pub(crate) fn add(&mut self, placement: Placement, revision: u64) -> ClassId {
        self.next += 1;
        let id = ClassId(self.next);
        self.by_key.insert(Key::of(&placement), id);
        let pool = self.by_pool.entry(placement.pool.clone()).or_default();
        pool.insert(id);
        self.by_id.insert(
            id,
            Class {
                placement,
                fits: BTreeMap::new(),
                total: 0,
                announced: 0,
                revision,
                polls: BTreeSet::new(),
                jobs: BTreeSet::new(),
                seeks: BTreeSet::new(),
                refused: BTreeMap::new(),
                used: self.next,
            },
        );
        id
    }

    /// Makes room for one more: forgets the class that was not used for longest and that nobody
    /// waits for, if there are `most` or more; which.
    pub(crate) fn trim(&mut self, most: usize) -> Option<ClassId> {
        if self.by_id.len() < most {
            return None;
        }
        let idle = self.by_id.iter().filter(|(_, class)| class.is_idle());
        let (id, _) = idle.min_by_key(|(_, class)| class.used)?;
        let id = *id;
        let class = self.by_id.remove(&id)?;
        self.by_key.remove(&Key::of(&class.placement));
        if let Some(pool) = self.by_pool.get_mut(&class.placement.pool) {
            pool.remove(&id);
            if pool.is_empty() {
                self.by_pool.remove(&class.placement.pool);
            }
        }
        Some(id)
    }

    /// The classes of a pool.
    pub(crate) fn of_pool(&self, pool: &Name) -> impl Iterator<Item = ClassId> + '_ {
        self.by_pool.get(pool).into_iter().flatten().copied()
    }
}
