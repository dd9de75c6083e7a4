use model::planted_bug::assert_noticed;
use model::{ClassId, NodeId, PageId, SpaceId};
use proptest::prelude::*;

use super::LockMode::{Exclusive, Patch, Shared, Touch};
use super::*;
use crate::ident::{ClientId, HlcTimestamp};

fn oid(slot: u16) -> Oid {
    Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node: NodeId(0), number: 7 }, slot)
}

fn txn(number: u64) -> TxnId {
    TxnId { start: HlcTimestamp::at(number), client: ClientId(number) }
}

fn ask(locks: &mut Locks, number: u64, slot: u16, mode: LockMode) -> LockResult {
    let asked = locks.request(txn(number), txn(number), oid(slot), mode);
    locks.check_invariants().unwrap();
    asked
}

fn waits(wound: &[u64]) -> LockResult {
    LockResult::Waits { wound: wound.iter().map(|number| txn(*number)).collect() }
}

#[test]
fn younger_transaction_waits_for_an_older_one() {
    let mut locks = Locks::default();
    assert_eq!(ask(&mut locks, 1, 1, Exclusive), LockResult::Granted);
    assert_eq!(ask(&mut locks, 2, 1, Shared), waits(&[]));
    assert_eq!(locks.release(txn(1)), [(txn(2), oid(1))]);
    assert!(locks.holds(txn(2), oid(1), Shared));
}

#[test]
fn older_transaction_wounds_younger_ones_unless_they_are_prepared() {
    let mut locks = Locks::default();
    for number in [5, 6, 7] {
        assert_eq!(ask(&mut locks, number, 1, Shared), LockResult::Granted);
    }
    locks.prepare(txn(6));
    assert_eq!(ask(&mut locks, 1, 1, Exclusive), waits(&[5, 7]));
    assert_eq!(locks.release(txn(5)), []);
    assert_eq!(locks.release(txn(7)), []);
    assert_eq!(locks.release(txn(6)), [(txn(1), oid(1))]);
    assert_eq!(locks.release(txn(1)), []);
    assert!(locks.is_empty());
}

#[test]
fn waiting_request_bars_later_prepares() {
    let mut locks = Locks::default();
    assert_eq!(locks.take(txn(9), oid(1), Shared), []);
    locks.prepare(txn(9));
    assert_eq!(locks.blocker(txn(10), oid(1), Shared), None);
    assert_eq!(ask(&mut locks, 1, 1, Exclusive), waits(&[]));
    assert_eq!(locks.blocker(txn(10), oid(1), Shared), Some(txn(1)));
    assert_eq!(ask(&mut locks, 2, 1, Shared), waits(&[]), "a later reader waits, too");
    assert_eq!(locks.release(txn(9)), [(txn(1), oid(1))]);
}

#[test]
fn prepare_of_an_older_transaction_passes_younger_ones_unless_they_are_prepared() {
    let mut locks = Locks::default();
    for number in [1, 5, 6, 9] {
        assert_eq!(ask(&mut locks, number, 1, Shared), LockResult::Granted);
    }
    assert_eq!(ask(&mut locks, 7, 1, Exclusive), waits(&[9]));
    assert_eq!(locks.blocker(txn(5), oid(1), Exclusive), Some(txn(1)), "it is older");
    assert_eq!(locks.blocker(txn(10), oid(1), Exclusive), Some(txn(1)), "it has no age: it is optimistic");
    assert_eq!(locks.release(txn(1)), []);
    locks.prepare(txn(6));
    assert_eq!(locks.blocker(txn(5), oid(1), Exclusive), Some(txn(6)), "it is prepared");
    assert_eq!(locks.release(txn(6)), []);
    assert_eq!(locks.blocker(txn(5), oid(1), Exclusive), None);
    assert_eq!(locks.take(txn(5), oid(1), Exclusive), [txn(9)]);
    locks.prepare(txn(5));
    assert_eq!(locks.release(txn(9)), [], "the waiter keeps waiting");
    locks.check_invariants().unwrap();
    assert_eq!(locks.release(txn(5)), [(txn(7), oid(1))]);
}

/// Found by the simulator: a transaction lost its lock for reading a set in a restart of the brick, and touched the set again.
#[test]
fn touched_object_may_have_changed() {
    let version = |position| crate::ident::Version { moves: 0, position };
    let mut locks = Locks::default();
    for (number, mode) in [(1, Touch), (2, Touch), (3, Shared)] {
        let slot = if mode == Touch { 1 } else { 2 };
        assert_eq!(locks.request(txn(number), txn(number), oid(slot), mode), LockResult::Granted);
    }
    locks.note_change(oid(1).page(), version(7));
    assert!(!locks.is_unchanged_since(txn(1), oid(1), version(7)), "the other one may have changed it");
    assert!(locks.is_unchanged_since(txn(3), oid(2), version(7)));
}

#[test]
fn lock_upgrade_waits_for_other_readers() {
    let mut locks = Locks::default();
    ask(&mut locks, 1, 1, Shared);
    ask(&mut locks, 2, 1, Shared);
    assert_eq!(ask(&mut locks, 1, 1, Exclusive), waits(&[2]));
    assert_eq!(locks.release(txn(2)), [(txn(1), oid(1))]);
    assert!(locks.holds(txn(1), oid(1), Exclusive));
    assert_eq!(ask(&mut locks, 1, 1, Shared), LockResult::Granted);
}

#[test]
fn retry_has_the_age_of_the_first_attempt() {
    let mut locks = Locks::default();
    ask(&mut locks, 5, 1, Exclusive);
    assert_eq!(locks.request(txn(8), txn(3), oid(1), Exclusive), waits(&[5]));
    assert_eq!(locks.release(txn(5)), [(txn(8), oid(1))]);
}

#[test]
#[should_panic(expected = "V2")]
fn taking_a_held_object_panics() {
    let mut locks = Locks::default();
    assert_eq!(locks.take(txn(1), oid(1), Shared), []);
    assert_eq!(locks.take(txn(2), oid(1), Exclusive), []);
}

proptest! {
    /// Transactions lock objects one after another, are wounded and start again. All of them end.
    #[test]
    fn all_transactions_end(wants in proptest::collection::vec(proptest::collection::vec((0..4_u16, any::<bool>()), 1..5), 1..8)) {
        let mut locks = Locks::default();
        // The current attempt of each, the number of its requests so far, and whether it waits.
        let mut tries: Vec<(u64, usize, bool)> = (0..wants.len() as u64).map(|first| (first, 0, false)).collect();
        let mut left: Vec<usize> = (0..wants.len()).collect();
        let mut next = 100;
        for _ in 0..2000 {
            let mut progress = Vec::new();
            for index in left.clone() {
                let (current, asked, waiting) = tries[index];
                if waiting {
                    continue;
                }
                if asked == wants[index].len() {
                    progress.extend(locks.release(txn(current)));
                    left.retain(|other| *other != index);
                    continue;
                }
                let (slot, write) = wants[index][asked];
                let mode = if write { Exclusive } else { Shared };
                let outcome = locks.request(txn(current), txn(index as u64), oid(slot), mode);
                tries[index] = (current, asked + 1, outcome != LockResult::Granted);
                if let LockResult::Waits { wound } = outcome {
                    for wounded in wound {
                        progress.extend(locks.release(wounded));
                        let victim = tries.iter().position(|(current, ..)| txn(*current) == wounded).unwrap();
                        prop_assert!(victim > index, "{} is older than {}", victim, index);
                        tries[victim] = (next, 0, false);
                        next += 1;
                    }
                }
                prop_assert_eq!(locks.check_invariants(), Ok(()));
            }
            for (granted, _) in progress {
                if let Some(entry) = tries.iter_mut().find(|(current, ..)| txn(*current) == granted) {
                    entry.2 = false;
                }
            }
            if left.is_empty() {
                break;
            }
        }
        prop_assert!(left.is_empty(), "{:?} never ended", left);
        prop_assert!(locks.is_empty());
    }
}

#[test]
fn touches_are_compatible_with_each_other_but_not_with_reads() {
    let mut locks = Locks::default();
    assert_eq!(locks.take(txn(1), oid(1), Touch), []);
    assert_eq!(locks.blocker(txn(2), oid(1), Touch), None);
    assert_eq!(locks.blocker(txn(2), oid(1), Shared), Some(txn(1)));
    assert_eq!(locks.blocker(txn(2), oid(1), Exclusive), Some(txn(1)));
    assert_eq!(locks.take(txn(3), oid(2), Shared), []);
    assert_eq!(locks.blocker(txn(2), oid(2), Touch), Some(txn(3)));
    // A transaction that holds a touch lock and requests a read lock waits for the other touch locks.
    assert_eq!(ask(&mut locks, 5, 3, Touch), LockResult::Granted);
    assert_eq!(ask(&mut locks, 6, 3, Touch), LockResult::Granted);
    assert_eq!(ask(&mut locks, 5, 3, Shared), waits(&[6]));
    assert_eq!(locks.release(txn(6)), [(txn(5), oid(3))]);
    assert_eq!(locks.held_mode(txn(5), oid(3)), Some(Exclusive));
}

/// Found by the indexes of bricks: two transactions that each created an object of another class in one free slot both
/// committed.
#[test]
fn objects_of_different_classes_in_one_slot_conflict() {
    let mut locks = Locks::default();
    let of_class = |class| Oid::new(ClassId(class), oid(1).page(), oid(1).slot());
    assert_eq!(locks.take(txn(1), of_class(5), LockMode::Exclusive), []);
    assert_eq!(locks.blocker(txn(2), of_class(6), LockMode::Exclusive), Some(txn(1)));
    assert_eq!(locks.blocker(txn(2), of_class(0), LockMode::Shared), Some(txn(1)));
    assert!(locks.holds(txn(1), of_class(7), LockMode::Shared));
    // The grant names the object that was requested.
    assert!(matches!(locks.request(txn(2), txn(2), of_class(6), LockMode::Shared), LockResult::Waits { .. }));
    assert_eq!(locks.release(txn(1)), [(txn(2), of_class(6))]);
    locks.check_invariants().unwrap();
}

/// V2: changes of a part of a blob follow one another in the log; a prepared one may abort, so it bars the next.
#[test]
fn patches_bar_each_other_until_they_are_logged() {
    let mut locks = Locks::default();
    let commit = |locks: &mut Locks, number| {
        assert_eq!(locks.blocker(txn(number), oid(1), Patch), None);
        assert_eq!(locks.take(txn(number), oid(1), Patch), []);
        locks.prepare(txn(number));
    };
    commit(&mut locks, 1);
    assert_eq!(locks.blocker(txn(2), oid(1), Patch), Some(txn(1)));
    locks.set_logged(txn(1));
    commit(&mut locks, 2);
    locks.check_invariants().unwrap();
    assert_eq!(locks.blocker(txn(3), oid(1), Patch), Some(txn(2)));
    locks.set_logged(txn(2));
    for mode in [Shared, Exclusive, Touch] {
        assert_eq!(locks.blocker(txn(3), oid(1), mode), Some(txn(1)), "{mode:?}");
    }
    // A transaction that waits for the blob bars later changes (W1), and gets it when those before are durable.
    assert_eq!(ask(&mut locks, 4, 1, Exclusive), waits(&[]));
    assert_eq!(locks.blocker(txn(5), oid(1), Patch), Some(txn(4)));
    assert_eq!(locks.release(txn(1)), []);
    assert_eq!(locks.release(txn(2)), [(txn(4), oid(1))]);
    locks.release(txn(4));
    assert!(locks.is_empty() && locks.prepared.is_empty());
}

/// A release finds the requests of a transaction by its age.
#[test]
fn age_of_a_transaction_is_that_of_its_first_request() {
    assert_noticed(&[Bug::AgeChanged], || {
        let mut locks = Locks::default();
        assert_eq!(locks.take(txn(9), oid(1), Exclusive), []);
        locks.prepare(txn(9));
        for first in [4, 2, 3] {
            assert_eq!(locks.request(txn(5), txn(first), oid(1), Shared), waits(&[]));
            locks.check_invariants().unwrap();
        }
        assert_eq!(locks.release(txn(5)), []);
        locks.check_invariants().unwrap();
        assert_eq!(locks.release(txn(9)), [], "the released request is not granted");
        assert_eq!(ask(&mut locks, 6, 1, Exclusive), LockResult::Granted);
    });
}
