//! One run and what came of it.

use crate::breakage::Breakage;
use crate::fault::Faults;
use crate::plan::Plan;
use crate::world::World;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed that repeats it.
    pub seed: u64,
    /// What went wrong with the fleet, by kind.
    pub faults: Faults,
    /// Jobs that GitLab had.
    pub jobs: u64,
    /// Jobs lost in the one window in which a job may be lost.
    pub orphans: u64,
    /// Jobs taken under a reservation that was believed to last.
    pub with_reservation: u64,
    /// Jobs taken after a recorded loss of the reservation.
    pub recorded_losses: u64,
    /// Jobs that nobody had room for.
    pub no_room: u64,
    /// Virtual milliseconds it took.
    pub took_ms: u64,
    /// What did not hold; empty in a good run.
    pub violations: Vec<String>,
    /// What happened, where the plan asked for it.
    pub log: Vec<String>,
}

/// Runs a fleet by a seed.
#[must_use]
pub fn run(seed: u64, plan: Plan, breakage: Option<Breakage>) -> Outcome {
    let mut world = World::new(seed, plan, breakage);
    world.run();
    Outcome {
        seed,
        faults: world.faults,
        jobs: world.pushed,
        orphans: world.orphans,
        with_reservation: world.with_reservation,
        recorded_losses: world.recorded_losses,
        no_room: world.hub.no_room,
        took_ms: world.now,
        violations: world.violations,
        log: world.log,
    }
}
