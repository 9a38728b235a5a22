use proptest::prelude::*;

use super::*;

fn amount(mem_mib: u64) -> Amount {
    Amount {
        mem_mib,
        disk_bytes: 0,
    }
}

fn ledger(mem_mib: u64) -> Ledger {
    Ledger::new(Budgets {
        mem_mib: Some(mem_mib),
        disk_bytes: Some(100),
    })
}

fn job(n: u8) -> JobId {
    JobId::from_bytes([n; 16])
}

fn reservation(n: u8) -> ReservationId {
    ReservationId::from_bytes([n; 16])
}

/// ADM-08, ADM-09
#[test]
fn a_reservation_counts_while_it_lasts_and_names_what_is_short() {
    let mut ledger = ledger(10);
    assert_eq!(ledger.admit(amount(10)), Ok(()));
    ledger.reserve(reservation(1), amount(7));
    assert_eq!(ledger.granted(), amount(7));
    assert_eq!(ledger.admit(amount(4)), Err(Resource::Memory));
    assert_eq!(ledger.admit(amount(3)), Ok(()));
    let disk = Amount {
        mem_mib: 1,
        disk_bytes: 101,
    };
    assert_eq!(ledger.admit(disk), Err(Resource::Disk));
    ledger.release(reservation(1));
    assert_eq!(ledger.admit(amount(10)), Ok(()));
    assert!(ledger.is_empty());
}

/// ADM-16
#[test]
fn a_job_that_needs_less_gives_the_rest_back() {
    let mut ledger = ledger(10);
    assert_eq!(ledger.enter(job(1), amount(8), amount(3)), amount(3));
    assert_eq!(ledger.granted(), amount(3));
    assert!(!ledger.waits(job(1)));
}

/// ADM-17, ADM-35
#[test]
fn a_job_that_needs_more_waits_and_nothing_new_overtakes_it() {
    let mut ledger = ledger(10);
    ledger.enter(job(1), amount(6), amount(6));
    ledger.enter(job(2), amount(2), amount(5));
    assert_eq!((ledger.granted(), ledger.asked()), (amount(8), amount(11)));
    ledger.enter(job(3), amount(1), amount(2));
    assert!(ledger.waits(job(2)) && ledger.waits(job(3)));
    assert_eq!(ledger.counts(), (1, 2));
    // There would be room for one more MiB, which is all that job 3 needs, but job 2 is first.
    assert_eq!(ledger.next_to_grant(), None);
    assert_eq!(ledger.admit(amount(1)), Err(Resource::Memory));
    ledger.leave(job(1));
    assert_eq!(ledger.next_to_grant(), Some(job(2)));
    ledger.grant(job(2));
    assert_eq!(ledger.next_to_grant(), Some(job(3)));
    ledger.grant(job(3));
    assert_eq!(ledger.granted(), amount(7));
    assert_eq!(ledger.admit(amount(3)), Ok(()));
}

#[test]
fn without_a_budget_only_disk_is_bounded() {
    let mut ledger = Ledger::new(Budgets {
        mem_mib: None,
        disk_bytes: Some(100),
    });
    assert_eq!(ledger.admit(amount(u64::MAX)), Ok(()));
    let full = Amount {
        mem_mib: 1,
        disk_bytes: 100,
    };
    ledger.reserve(reservation(1), full);
    assert_eq!(ledger.admit(full), Err(Resource::Disk));
    assert_eq!(ledger.admit(amount(1)), Ok(()));
    ledger.enter(job(1), amount(1), full);
    assert_eq!(ledger.admit(amount(1)), Err(Resource::Disk));
    assert_eq!(ledger.short_of(job(1)), Some(Resource::Disk));
}

#[test]
fn what_no_ledger_could_grant_is_known_at_once() {
    let ledger = ledger(10);
    assert_eq!(ledger.never_fits(amount(10)), None);
    assert_eq!(ledger.never_fits(amount(11)), Some(Resource::Memory));
}

proptest! {
    /// ADM-09
    #[test]
    fn the_sum_is_that_of_the_entries(steps in proptest::collection::vec((0..6u8, 0..4u8, 0..9u64), 0..60)) {
        let mut ledger = ledger(20);
        for (what, who, much) in steps {
            match what {
                0 => if ledger.admit(amount(much)).is_ok() {
                    ledger.reserve(reservation(who), amount(much));
                },
                1 => ledger.release(reservation(who)),
                2 => { ledger.enter(job(who), Amount::default(), amount(much)); }
                3 => ledger.leave(job(who)),
                _ => if let Some(next) = ledger.next_to_grant() {
                    ledger.grant(next);
                },
            }
            let sum = ledger.reservations.values().copied()
                .chain(ledger.jobs.values().map(|e| e.granted))
                .fold(Amount::default(), Amount::plus);
            prop_assert_eq!(sum, ledger.granted());
            prop_assert!(ledger.granted().mem_mib <= 20);
            let waiting = ledger.jobs.values().filter(|e| e.granted != e.asked).count();
            prop_assert_eq!(waiting, ledger.waiting.len());
        }
    }
}
