use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vk_step::Variant;

use crate::{At, AtError, Boundary};

/// Counts boundaries and dies at the one that was asked for.
#[derive(Clone, Debug, Default)]
pub struct KillPoints {
    at: Option<Arc<(At, AtomicU64)>>,
}

impl KillPoints {
    /// The moment that `VK_KILL_AT` names; none where it is not set.
    ///
    /// # Errors
    /// It names none.
    pub fn from_env() -> Result<KillPoints, AtError> {
        match std::env::var("VK_KILL_AT") {
            Ok(text) => Ok(KillPoints::at(text.parse()?)),
            Err(_) => Ok(KillPoints::default()),
        }
    }

    fn at(at: At) -> KillPoints {
        KillPoints {
            at: Some(Arc::new((at, AtomicU64::new(0)))),
        }
    }

    /// A step is about to be written.
    pub fn before<R: Variant, E: Variant>(&self, records: &[R], effects: &[E]) {
        self.step(Boundary::Before, records, effects);
    }

    /// A step is durable and none of its effects is released.
    pub fn synced<R: Variant, E: Variant>(&self, records: &[R], effects: &[E]) {
        self.step(Boundary::Synced, records, effects);
    }

    /// An effect was released.
    pub fn after_effect<E: Variant>(&self, effect: &E) {
        self.reached(Boundary::After, effect.variant());
    }

    /// The first effect of a step with these records was released, or there was none to release.
    pub fn after_records<R: Variant>(&self, records: &[R]) {
        records
            .iter()
            .for_each(|record| self.reached(Boundary::After, record.variant()));
    }

    fn step<R: Variant, E: Variant>(&self, boundary: Boundary, records: &[R], effects: &[E]) {
        let records = records.iter().map(Variant::variant);
        let effects = effects.iter().map(Variant::variant);
        records
            .chain(effects)
            .for_each(|variant| self.reached(boundary, variant));
    }

    fn reached(&self, boundary: Boundary, variant: &str) {
        if self.is_due(boundary, variant) {
            // As `kill -9` would: no destructor, no flush, no goodbye.
            let own = rustix::process::getpid();
            let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        }
    }

    fn is_due(&self, boundary: Boundary, variant: &str) -> bool {
        let Some(kill) = &self.at else { return false };
        let (at, count) = kill.as_ref();
        if at.boundary != boundary || at.variant != variant {
            return false;
        }
        count.fetch_add(1, Ordering::Relaxed) + 1 == at.nth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_time_of_the_named_boundary_is_due_and_no_other() {
        let kill = KillPoints::at("Start:after:2".parse().unwrap());
        assert!(!kill.is_due(Boundary::Synced, "Start"));
        assert!(!kill.is_due(Boundary::After, "Stop"));
        assert!(!kill.is_due(Boundary::After, "Start"));
        assert!(kill.is_due(Boundary::After, "Start"));
        assert!(!kill.is_due(Boundary::After, "Start"));
    }
}
