//! What was tried, counted.

use std::cell::Cell;
use std::time::Instant;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseResult, TestRunner};

use crate::Plan;

/// A count that goes up as inputs are judged.
#[derive(Debug)]
pub struct Tally {
    plan: Plan,
    began: Instant,
    done: Cell<u64>,
}

impl Tally {
    /// None of `plan` are judged yet.
    pub fn new(plan: Plan) -> Tally {
        Tally {
            plan,
            began: Instant::now(),
            done: Cell::new(0),
        }
    }

    /// So many more are judged.
    pub fn add(&self, judged: u64) {
        self.done.set(self.done.get() + judged);
    }

    /// Tells how many there were, from which seed, in what time. `what` is the test's name.
    ///
    /// # Panics
    ///
    /// Where fewer were judged than were asked for.
    pub fn end(self, what: &str) {
        let Plan { count, seed } = self.plan;
        let done = self.done.get();
        assert!(
            done >= count,
            "{what}: {done} inputs were judged of {count}"
        );
        let millis = self.began.elapsed().as_millis().max(1);
        let rate = u128::from(done) * 1000 / millis;
        let seconds = millis / 1000;
        println!("{what}: {done} inputs from seed {seed} in {seconds} s, {rate} a second");
    }
}

/// Judges inputs drawn from `strategy`; see [`inputs_of`].
///
/// # Panics
///
/// At the first input that is judged wrong, with the smallest one that is.
pub fn inputs<S: Strategy>(few: u64, strategy: S, judge: impl Fn(S::Value) -> TestCaseResult) {
    inputs_of(Plan::asked(few), 1, &strategy, judge);
}

/// Judges so many inputs of `plan` drawn from `strategy`, which gives `each` at once. The calling
/// test's name is what they are told under.
///
/// # Panics
///
/// As [`inputs`], and where fewer were judged than were asked for.
pub fn inputs_of<S: Strategy>(
    plan: Plan,
    each: u64,
    strategy: &S,
    judge: impl Fn(S::Value) -> TestCaseResult,
) {
    let draws = plan.count.div_ceil(each.max(1));
    let config = Config {
        cases: u32::try_from(draws).unwrap_or(u32::MAX),
        rng_seed: RngSeed::Fixed(plan.seed),
        // What a strategy refuses is so many for each, not for all.
        max_local_rejects: u32::MAX,
        max_global_rejects: u32::MAX,
        max_shrink_iters: 4000,
        // Of batches each try takes a while.
        max_shrink_time: 10_000,
        // Nothing is written beside the sources.
        failure_persistence: None,
        ..Config::default()
    };
    let thread = std::thread::current();
    let what = thread.name().unwrap_or("inputs").to_owned();
    let tally = Tally::new(plan);
    let judged = TestRunner::new(config).run(strategy, |input| {
        judge(input)?;
        tally.add(each);
        Ok(())
    });
    if let Err(error) = judged {
        let (done, seed) = (tally.done.get(), plan.seed);
        panic!("{what}: seed {seed}, after {done} inputs: {error}");
    }
    tally.end(&what);
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use proptest::prelude::*;

    use super::*;

    fn drawn(plan: Plan) -> Vec<u64> {
        let seen = RefCell::new(Vec::new());
        inputs_of(plan, 1, &any::<u64>(), |input| {
            seen.borrow_mut().push(input);
            Ok(())
        });
        seen.into_inner()
    }

    #[test]
    fn a_seed_and_a_count_are_the_same_inputs_each_time() {
        let plan = Plan { count: 40, seed: 3 };
        let first = drawn(plan);
        assert_eq!(first.len(), 40);
        assert_eq!(drawn(plan), first);
        assert_ne!(drawn(Plan { seed: 4, ..plan }), first);
    }

    #[test]
    fn what_a_strategy_or_a_judge_refuses_is_not_counted() {
        let judged = Cell::new(0);
        let even = any::<u64>().prop_filter("even", |number| number % 2 == 0);
        let plan = Plan { count: 90, seed: 1 };
        inputs_of(plan, 1, &even, |number| {
            prop_assume!(number % 4 == 0);
            judged.set(judged.get() + 1);
            Ok(())
        });
        assert_eq!(judged.get(), 90);
    }

    #[test]
    fn batches_are_counted_by_what_is_in_them() {
        let draws = Cell::new(0);
        let batch = prop::collection::vec(any::<u8>(), 10);
        let plan = Plan { count: 95, seed: 1 };
        inputs_of(plan, 10, &batch, |_| {
            draws.set(draws.get() + 1);
            Ok(())
        });
        assert_eq!(draws.get(), 10);
    }

    #[test]
    #[should_panic(expected = "seed 1, after")]
    fn one_that_is_judged_wrong_fails_them_all() {
        let plan = Plan {
            count: 500,
            seed: 1,
        };
        inputs_of(plan, 1, &any::<u8>(), |byte| {
            prop_assert!(byte != 200);
            Ok(())
        });
    }

    #[test]
    #[should_panic(expected = "seed 1, after 0 inputs")]
    fn one_that_panics_fails_them_all() {
        let plan = Plan { count: 5, seed: 1 };
        inputs_of(plan, 1, &any::<u8>(), |_| panic!("as a parser might"));
    }

    #[test]
    #[should_panic(expected = "3 inputs were judged of 4")]
    fn too_few_are_none() {
        let tally = Tally::new(Plan { count: 4, seed: 1 });
        tally.add(3);
        tally.end("here");
    }
}
