//! Faults on purpose: what to do to which of the calls that come.

use std::sync::Mutex;

use serde::{Deserialize, Serialize};

/// Most faults waiting at once.
const MAX_PLANS: usize = 1_000;

/// The calls that a fault can hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Target {
    /// `POST /jobs/request`.
    Request,
    /// `PUT /jobs/:id`.
    Update,
    /// `PATCH /jobs/:id/trace`.
    Trace,
}

/// What happens to a call.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    /// This status instead, nothing applied.
    Status(u16),
    /// The connection is closed, nothing applied.
    Drop,
    /// Applied, then the connection is closed without an answer.
    LoseAnswer,
    /// Applied, then answered so many milliseconds later; at most a minute.
    DelayMs(u64),
    /// Applied, and only half of the answer's body is sent.
    Truncate,
}

/// A fault to come.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    /// Which calls.
    pub(super) on: Target,
    /// What happens.
    pub(super) action: Action,
    /// How many calls are hit.
    #[serde(default = "one")]
    pub(super) count: u32,
    /// Every how many calls; 1 is each.
    #[serde(default = "one")]
    pub(super) every: u32,
    /// `Retry-After` of a status, in seconds.
    #[serde(default)]
    pub(super) retry_after: Option<u32>,
    /// Calls seen so far.
    #[serde(skip)]
    seen: u32,
}

fn one() -> u32 {
    1
}

/// The faults that wait for their calls.
#[derive(Debug, Default)]
pub(super) struct Faults {
    plans: Mutex<Vec<Plan>>,
}

impl Faults {
    /// Adds a fault. Whether there was room, and the fault can ever hit.
    pub(super) fn plan(&self, plan: Plan) -> bool {
        let Ok(mut plans) = self.plans.lock() else {
            return false;
        };
        let sound = plan.count > 0 && plan.every > 0 && plans.len() < MAX_PLANS;
        let sound = sound && !matches!(plan.action, Action::Status(code) if !valid(code));
        if sound {
            plans.push(plan);
        }
        sound
    }

    /// The fault of a call that has just come, if it has one.
    pub(super) fn draw(&self, target: Target) -> Option<Plan> {
        let mut plans = self.plans.lock().ok()?;
        let at = plans.iter().position(|plan| plan.on == target)?;
        let plan = plans.get_mut(at)?;
        plan.seen += 1;
        if plan.seen % plan.every != 0 {
            return None;
        }
        plan.count -= 1;
        let drawn = plan.clone();
        if plan.count == 0 {
            plans.remove(at);
        }
        Some(drawn)
    }
}

fn valid(code: u16) -> bool {
    (200..600).contains(&code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_call_is_hit_until_the_count_is_used_up() {
        let faults = Faults::default();
        let plan = r#"{"on":"trace","action":{"status":500},"count":2,"every":2}"#;
        assert!(faults.plan(serde_json::from_str(plan).unwrap()));
        let hits: Vec<bool> = (0..6)
            .map(|_| faults.draw(Target::Trace).is_some())
            .collect();
        assert_eq!(hits, [false, true, false, true, false, false]);
        assert!(faults.draw(Target::Request).is_none());
    }
}
