//! Reservations as a bystander sees them: what "no job without a live reservation" is checked by.

use std::collections::BTreeMap;

use vk_hub_proto::ReservationId;

/// How a reservation stands on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It lasts until this virtual moment.
    Until(u64),
    /// A fault took it: its node was killed, or the hub that knew it was.
    LostByFault,
    /// Node and daemon ended it themselves.
    Over,
}

/// All reservations that a node ever accepted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leases(BTreeMap<ReservationId, (usize, Standing)>);

impl Leases {
    /// A node accepted or extended it.
    pub(crate) fn granted(&mut self, reservation: ReservationId, node: usize, until_ms: u64) {
        self.0
            .insert(reservation, (node, Standing::Until(until_ms)));
    }

    /// A node let it go: its lease ran out, it was given back, or a job started on it.
    pub(crate) fn over(&mut self, reservation: ReservationId) {
        if let Some((_, standing)) = self.0.get_mut(&reservation)
            && matches!(standing, Standing::Until(_))
        {
            *standing = Standing::Over;
        }
    }

    /// A node was killed and remembers none of its reservations.
    pub(crate) fn node_killed(&mut self, node: usize) {
        self.lost(|of| of == node);
    }

    /// The hub was killed, or out of touch: it will have nodes release what it does not know.
    pub(crate) fn hub_lost(&mut self) {
        self.lost(|_| true);
    }

    fn lost(&mut self, of: impl Fn(usize) -> bool) {
        for (node, standing) in self.0.values_mut() {
            if of(*node) && matches!(standing, Standing::Until(_)) {
                *standing = Standing::LostByFault;
            }
        }
    }

    /// How one stands; none where no node ever accepted it.
    #[must_use]
    pub(crate) fn of(&self, reservation: ReservationId) -> Option<Standing> {
        self.0.get(&reservation).map(|(_, standing)| *standing)
    }
}
