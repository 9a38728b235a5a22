//! How much a file may grow.

use crate::Position;
use crate::faults::Faults;
use crate::limit::{MAX_DEPTH, MAX_NODES, MAX_SCALAR_BYTES};
use crate::yaml::Size;

/// What has been copied so far.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    nodes: usize,
    bytes: usize,
    spent: bool,
}

impl Budget {
    /// Counts a copy; false when it is one too many. The first of these is a fault.
    pub(crate) fn take(&mut self, size: Size, at: Position, faults: &mut Faults) -> bool {
        self.nodes = self.nodes.saturating_add(size.nodes);
        self.bytes = self.bytes.saturating_add(size.bytes);
        let fits = self.nodes <= MAX_NODES && self.bytes <= MAX_SCALAR_BYTES;
        if fits && size.depth <= MAX_DEPTH {
            return true;
        }
        if !std::mem::replace(&mut self.spent, true) {
            let what = format!(
                "with all that is extended and referenced written out there are more than \
                 {MAX_NODES} values, {MAX_SCALAR_BYTES} bytes of text or {MAX_DEPTH} levels"
            );
            faults.add(at, what, "extend and reference smaller parts");
        }
        false
    }
}
