//! Faults on purpose: which of the calls that come are hit, and what stands ready around them.
//!
//! `docs/vk-lab-faults.md` shows each with an example.

mod act;
mod elsewhere;
mod plan;
mod secure;
mod tear;

use std::sync::Mutex;

use serde_json::{Value, json};

pub(super) use act::{Fate, Outcome};
pub(super) use elsewhere::answer as elsewhere;
pub(super) use plan::{Plan, Target};
pub(super) use secure::Opened;

use elsewhere::Elsewhere;
use secure::Secure;
use tear::Tear;

/// Most faults waiting at once.
const MAX_PLANS: usize = 1_000;

/// The faults that wait for their calls, and what they need.
#[derive(Debug, Default)]
pub(super) struct Faults {
    plans: Mutex<Vec<Plan>>,
    /// Tears all connections down.
    pub(super) tear: Tear,
    /// Listeners with TLS.
    pub(super) secure: Secure,
    /// The other host.
    pub(super) elsewhere: Elsewhere,
}

impl Faults {
    /// Adds a fault; it begins at `now`.
    ///
    /// # Errors
    ///
    /// Why it can never hit.
    pub(super) fn plan(&self, mut plan: Plan, now: u64) -> Result<(), String> {
        plan.begin(now)?;
        let Ok(mut plans) = self.plans.lock() else {
            return Err("the list of faults is broken; start the stand-in again".into());
        };
        plans.retain(|plan| !plan.is_over(now));
        if plans.len() >= MAX_PLANS {
            return Err(format!("{MAX_PLANS} faults wait already; clear some"));
        }
        plans.push(plan);
        Ok(())
    }

    /// The fault of a call that has just come, if it has one: the first that hits.
    pub(super) fn draw(&self, target: Target, job: Option<u64>, now: u64) -> Option<Plan> {
        let mut plans = self.plans.lock().ok()?;
        plans.retain(|plan| !plan.is_over(now));
        let meant = plans.iter_mut().filter(|plan| plan.means(target, job));
        for plan in meant {
            if plan.hits() {
                return Some(plan.clone());
            }
        }
        None
    }

    /// Forgets all faults; how many there were.
    pub(super) fn clear(&self) -> usize {
        let Ok(mut plans) = self.plans.lock() else {
            return 0;
        };
        std::mem::take(&mut *plans).len()
    }

    /// The faults that still wait, with what they saw and hit.
    pub(super) fn shown(&self, now: u64) -> Vec<Value> {
        let Ok(plans) = self.plans.lock() else {
            return Vec::new();
        };
        let waiting = plans.iter().filter(|plan| !plan.is_over(now));
        waiting
            .map(|plan| {
                let (seen, hit) = plan.counts();
                json!({"fault": plan, "seen": seen, "hit": hit})
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Plan {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn every_second_call_is_hit_until_the_count_is_used_up() {
        let faults = Faults::default();
        let every = r#"{"on":"trace","action":{"status":500},"count":2,"every":2}"#;
        faults.plan(plan(every), 0).unwrap();
        let hits: Vec<bool> = (0..6)
            .map(|_| faults.draw(Target::Trace, None, 0).is_some())
            .collect();
        assert_eq!(hits, [false, true, false, true, false, false]);
        assert!(faults.draw(Target::Request, None, 0).is_none());
    }

    #[test]
    fn a_fault_that_does_not_hit_leaves_the_call_to_the_next() {
        let faults = Faults::default();
        let second = r#"{"on":"any","action":{"status":500},"skip":1}"#;
        faults.plan(plan(second), 0).unwrap();
        let of_job = r#"{"on":"trace","action":{"status":502},"job":7,"forever":true}"#;
        faults.plan(plan(of_job), 0).unwrap();
        let hit = |job| faults.draw(Target::Trace, Some(job), 0).map(|p| p.action);
        use plan::Action::Status;
        assert_eq!(hit(8), None);
        assert_eq!(hit(7), Some(Status(500)));
        assert_eq!((hit(7), hit(8)), (Some(Status(502)), None));
        assert_eq!(faults.clear(), 1);
        assert_eq!(
            faults.draw(Target::Trace, Some(7), 0).map(|p| p.action),
            None
        );
    }

    #[test]
    fn a_chance_hits_its_share_and_the_same_calls_with_the_same_seed() {
        let draws = |seed: u64| -> Vec<bool> {
            let faults = Faults::default();
            let text = format!(r#"{{"on":"any","action":"drop","chance":0.05,"seed":{seed}}}"#);
            faults.plan(plan(&text), 0).unwrap();
            let call = |_| faults.draw(Target::Update, None, 0).is_some();
            (0..20_000).map(call).collect()
        };
        let (one, other) = (draws(1), draws(2));
        assert_eq!(one, draws(1));
        assert_ne!(one, other);
        for hits in [one, other] {
            let share = hits.iter().filter(|hit| **hit).count();
            assert!((800..1_200).contains(&share), "{share} of 20000");
        }
    }

    #[test]
    fn faults_of_one_seed_hit_apart() {
        let draws = |seed: u64| -> Vec<bool> {
            let faults = Faults::default();
            for action in [r#"{"status":503}"#, r#"{"status":429}"#, r#""drop""#] {
                let chance = r#""chance":0.02"#;
                let text = format!(r#"{{"on":"any","action":{action},{chance},"seed":{seed}}}"#);
                faults.plan(plan(&text), 0).unwrap();
            }
            let call = |_| faults.draw(Target::Update, None, 0).is_some();
            (0..1_000).map(call).collect()
        };
        let follows = |hits: Vec<bool>| {
            let first = hits.iter().position(|hit| *hit);
            first.is_some_and(|at| hits.get(at + 1) == Some(&true))
        };
        let both = (0..200).filter(|seed| follows(draws(*seed))).count();
        assert!(
            both < 40,
            "the call after the first that is hit is hit {both} times of 200"
        );
    }

    #[test]
    fn a_storm_ends_by_the_clock() {
        let faults = Faults::default();
        let storm = r#"{"on":"any","action":{"status":503},"for_secs":10}"#;
        faults.plan(plan(storm), 5_000).unwrap();
        let hit = |now| faults.draw(Target::Verify, None, now).is_some();
        assert!(hit(5_000) && hit(14_999) && !hit(15_000));
        assert!(faults.shown(15_000).is_empty());
    }

    #[test]
    fn what_can_never_hit_is_refused_with_the_reason() {
        let rows = [
            (r#"{"on":"any","action":"drop","count":0}"#, "count"),
            (r#"{"on":"any","action":"drop","every":0}"#, "every"),
            (r#"{"on":"any","action":{"status":99}}"#, "status"),
            (r#"{"on":"any","action":"drop","chance":1.5}"#, "chance"),
            (r#"{"on":"any","action":"drop","chance":0}"#, "chance"),
            (
                r#"{"on":"any","action":"truncate","when":"before"}"#,
                "truncate",
            ),
            (r#"{"on":"any","action":{"cancel":{}}}"#, "job"),
            (
                r#"{"on":"git","action":{"status":500},"when":"body"}"#,
                "git",
            ),
            (
                r#"{"on":"any","action":{"headers":{"Bad Name":"x"}}}"#,
                "header",
            ),
        ];
        for (text, part) in rows {
            let refused = Faults::default().plan(plan(text), 0).unwrap_err();
            assert!(refused.contains(part), "{refused} does not name {part}");
        }
    }
}
