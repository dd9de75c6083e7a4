use model::{ClassId, Entry, EntryKey, NodeId, SpaceId};
use proptest::prelude::*;

use super::*;
use crate::entries::entry_guard;
use crate::ident::{ClientId, HlcTimestamp};

const PAGE: PageId = PageId { space: SpaceId(1), node: NodeId(0), number: 7 };

fn oid(slot: u16) -> Oid {
    Oid::new(ClassId::NONE, PAGE, slot)
}

fn at(position: u64) -> Version {
    Version { moves: 0, position }
}

/// Acknowledged changes are retired at once.
fn without_retention(page: usize) -> WindowLimits {
    WindowLimits { page, retained: 0 }
}

/// The page is stored at this version.
fn stored_versions(position: u64) -> BTreeMap<PageId, Version> {
    [(PAGE, at(position))].into()
}

fn txn(number: u64) -> TxnId {
    TxnId { start: HlcTimestamp::at(number), client: ClientId(number) }
}

fn reads(slots: &[(u16, u64)]) -> ReadList {
    slots.iter().map(|(slot, position)| Read { oid: oid(*slot), seen: ReadVersion::At(at(*position)) }).collect()
}

fn footprint(reads: &[u16], writes: &[u16]) -> Footprint {
    let oids = |slots: &[u16]| slots.iter().map(|slot| oid(*slot)).collect();
    Footprint { reads: oids(reads), writes: oids(writes), ..Footprint::default() }
}

/// A validator of a page that was stored at version 4, with these changes since: position, then slots.
fn changed_validator(changes: &[(u64, &[u16])]) -> Validator {
    let mut validator = Validator::new(without_retention(100));
    let mut before = at(4);
    for (position, slots) in changes {
        let found = validator.apply(PAGE, slots.iter().copied(), at(*position), txn(*position), &stored_versions(4));
        assert_eq!(found, before, "an invalidation contains the previous version");
        before = at(*position);
    }
    validator.check_invariants().unwrap();
    validator
}

fn check(validator: &Validator, seen: &[(u16, u64)], writes: &[u16]) -> Result<(), ValidationConflict> {
    validator.check(txn(99), &reads(seen), &footprint(&[], writes), &stored_versions(4))
}

fn stale(slot: u16, position: u64) -> Result<(), ValidationConflict> {
    Err(ValidationConflict { oid: oid(slot), cause: Cause::Stale(at(position)) })
}

fn held_conflict(slot: u16, by: u64) -> Result<(), ValidationConflict> {
    Err(ValidationConflict { oid: oid(slot), cause: Cause::Held(txn(by)) })
}

#[test]
fn locked_read_stays_current_when_the_floor_rises() {
    let mut validator = changed_validator(&[(5, &[2])]);
    validator.acknowledge(PAGE, at(5));
    // Transaction 99 has read slot 1 at the version at which it locked it, and slot 3 at an earlier version.
    for slot in [1, 3] {
        assert_eq!(
            validator.locks().request(txn(99), txn(99), oid(slot), LockMode::Shared),
            crate::locks::LockResult::Granted
        );
    }
    for position in [6, 7] {
        validator.apply(PAGE, [2], at(position), txn(position), &stored_versions(5));
        validator.acknowledge(PAGE, at(position));
        validator.check_invariants().unwrap();
        assert_eq!(
            validator.check(txn(99), &reads(&[(1, 5)]), &footprint(&[], &[]), &stored_versions(position)),
            Ok(())
        );
        let early = validator.check(txn(99), &reads(&[(3, 4)]), &footprint(&[], &[]), &stored_versions(position));
        assert_eq!(early, stale(3, position));
        let other = validator.check(txn(98), &reads(&[(1, 5)]), &footprint(&[], &[]), &stored_versions(position));
        assert_eq!(other, stale(1, position));
    }
    validator.locks().release(txn(99));
    let released = validator.check(txn(99), &reads(&[(1, 5)]), &footprint(&[], &[]), &stored_versions(7));
    assert_eq!(released, stale(1, 7));
}

#[test]
fn unchanged_page_is_validated_against_its_stored_version() {
    let validator = Validator::new(without_retention(10));
    assert_eq!(check(&validator, &[(1, 4)], &[]), Ok(()));
    assert_eq!(check(&validator, &[(1, 3)], &[]), stale(1, 4));
}

#[test]
fn change_of_one_object_does_not_invalidate_reads_of_another() {
    let validator = changed_validator(&[(7, &[2]), (9, &[5])]);
    assert_eq!(check(&validator, &[(3, 4), (2, 7), (2, 8), (5, 9)], &[]), Ok(()));
    assert_eq!(check(&validator, &[(2, 6)], &[]), stale(2, 7));
    assert_eq!(check(&validator, &[(5, 8)], &[]), stale(5, 9));
}

#[test]
fn acknowledged_changes_are_retired_in_version_order() {
    let mut validator = changed_validator(&[(7, &[2]), (9, &[5])]);
    validator.acknowledge(PAGE, at(8));
    validator.check_invariants().unwrap();
    assert_eq!(validator.entries(), 1);
    // The floor is the version of the retired change, not the acknowledged version.
    assert_eq!(check(&validator, &[(3, 7), (5, 9)], &[]), Ok(()));
    assert_eq!(check(&validator, &[(3, 6)], &[]), stale(3, 7));
    assert_eq!(check(&validator, &[(5, 8)], &[]), stale(5, 9));
}

/// A query reads at the brick and holds no copy that an invalidation could advance.
#[test]
fn acknowledged_changes_are_retained_while_there_is_room() {
    let mut validator = Validator::new(WindowLimits { page: 100, retained: 2 });
    for (position, slot) in [(5, 1), (6, 2), (7, 1)] {
        validator.apply(PAGE, [slot], at(position), txn(position), &stored_versions(4));
        validator.acknowledge(PAGE, at(position));
        validator.check_invariants().unwrap();
    }
    // There was room for two of three: the floor is the first, although the object has changed again.
    assert_eq!(check(&validator, &[(3, 5), (2, 6), (1, 7)], &[]), Ok(()));
    assert_eq!(check(&validator, &[(2, 5)], &[]), stale(2, 6));
    assert_eq!(check(&validator, &[(1, 6)], &[]), stale(1, 7));
    // Another page makes the room that its changes need.
    let other = PageId { number: 8, ..PAGE };
    validator.apply(other, [1, 2], at(8), txn(8), &at(4));
    validator.acknowledge(other, at(8));
    validator.check_invariants().unwrap();
    assert_eq!((validator.version(PAGE), validator.version(other)), (None, Some(at(8))));
    // More than there is room for is retired at once.
    validator.apply(other, [3, 4, 5], at(9), txn(9), &at(4));
    validator.acknowledge(other, at(9));
    assert_eq!(validator.version(other), None);
    validator.check_invariants().unwrap();
}

#[test]
fn later_change_of_a_slot_keeps_the_floor_low() {
    let mut validator = changed_validator(&[(7, &[2]), (9, &[2])]);
    validator.acknowledge(PAGE, at(7));
    assert_eq!(check(&validator, &[(3, 4)], &[]), Ok(()));
    assert_eq!(check(&validator, &[(2, 8)], &[]), stale(2, 9));
}

#[test]
fn full_window_raises_the_floor() {
    let mut validator = Validator::new(without_retention(3));
    for position in 5..20 {
        validator.apply(PAGE, [position as u16], at(position), txn(position), &stored_versions(4));
        validator.check_invariants().unwrap();
    }
    assert_eq!(validator.entries(), 3);
    assert_eq!(check(&validator, &[(1, 16)], &[]), Ok(()));
    assert_eq!(check(&validator, &[(1, 15)], &[]), stale(1, 16));
    // A record that changes more slots than the window can hold leaves the window empty.
    validator.apply(PAGE, 0..9, at(20), txn(20), &stored_versions(4));
    assert_eq!((validator.entries(), check(&validator, &[(50, 19)], &[])), (0, stale(50, 20)));
}

#[test]
fn held_objects_can_be_neither_read_nor_overwritten() {
    let mut validator = changed_validator(&[]);
    assert_eq!(validator.hold(txn(1), &footprint(&[1], &[2])), BTreeSet::new());
    validator.check_invariants().unwrap();
    assert_eq!(check(&validator, &[(1, 4)], &[]), Ok(()));
    assert_eq!(check(&validator, &[(2, 4)], &[]), held_conflict(2, 1));
    assert_eq!(check(&validator, &[], &[1]), held_conflict(1, 1));
    assert_eq!(check(&validator, &[], &[2]), held_conflict(2, 1));
    // A repeated prepare does not conflict with itself.
    assert_eq!(validator.check(txn(1), &reads(&[(1, 4)]), &footprint(&[], &[2]), &stored_versions(4)), Ok(()));
    assert_eq!(validator.locks().release(txn(1)), []);
    assert_eq!(check(&validator, &[(2, 4)], &[1, 2]), Ok(()));
    assert!(validator.locks().is_empty());
    validator.check_invariants().unwrap();
}

#[test]
fn own_write_is_current_until_overwritten_or_retired() {
    let own_of = |validator: &Validator, position: u64| {
        let read = Read { oid: oid(2), seen: ReadVersion::Written(txn(7)) };
        validator.check(txn(99), &[read].into(), &Footprint::default(), &stored_versions(position))
    };
    let own = |validator: &Validator| own_of(validator, 4);
    let mut validator = changed_validator(&[(7, &[2])]);
    assert_eq!(own(&validator), Ok(()));
    assert_eq!(own(&changed_validator(&[(7, &[2]), (8, &[2])])), stale(2, 8));
    assert_eq!(own(&changed_validator(&[])), stale(2, 4));
    validator.acknowledge(PAGE, at(7));
    assert_eq!(own_of(&validator, 7), stale(2, 7));
    assert_eq!(validator.version(PAGE), None, "the page has no window any more");
}

#[test]
#[should_panic(expected = "L1")]
fn record_out_of_order_panics() {
    let mut validator = changed_validator(&[(7, &[2])]);
    validator.apply(PAGE, [3], at(6), txn(6), &stored_versions(4));
}

#[derive(Clone, Debug)]
enum Step {
    Change(Vec<u16>),
    Retire(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let change = proptest::collection::vec(0..6_u16, 1..4).prop_map(Step::Change);
    let retire = (0..60_u64).prop_map(Step::Retire);
    proptest::collection::vec(prop_oneof![3 => change, 1 => retire], 1..40)
}

/// Readers of a guard hold no copy, so its touches wait for no acknowledgement.
#[test]
fn touches_stay_in_the_window_after_retirement() {
    let mut validator = changed_validator(&[(6, &[1]), (7, &[2])]);
    validator.keep_in_window(PAGE, [1]);
    validator.acknowledge(PAGE, at(7));
    validator.check_invariants().unwrap();
    // The change of the other slot is retired, and the floor is its version.
    assert_eq!(check(&validator, &[(1, 6)], &[]), Ok(()));
    assert_eq!(check(&validator, &[(1, 5)], &[]), stale(1, 6));
    assert_eq!(check(&validator, &[(2, 6)], &[]), stale(2, 7));
    assert_eq!(check(&validator, &[(3, 6)], &[]), stale(3, 7));
    // The limit of the window includes touches.
    for position in 8..=150 {
        validator.apply(PAGE, [position as u16 + 1], at(position), txn(1), &stored_versions(4));
        validator.keep_in_window(PAGE, [position as u16 + 1]);
        validator.check_invariants().unwrap();
    }
    assert_eq!(check(&validator, &[(151, 150)], &[]), Ok(()));
    assert!(check(&validator, &[(1, 6)], &[]).is_err());
}

/// An object of class 1 or 2 in one of three pages, the last of which has guards.
fn any_oid() -> impl Strategy<Value = Oid> {
    (0..3_usize, 1..3_u32, 0..4_u16).prop_map(|(page, class, slot)| {
        let guards = entry_guard(&Entry { collection: oid(9), key: EntryKey::new(b"key".to_vec()).unwrap() }).page();
        Oid::new(ClassId(class), [PAGE, PageId { number: 8, ..PAGE }, guards][page], slot)
    })
}

fn any_read() -> impl Strategy<Value = Read> {
    let seen = prop_oneof![
        6 => (3..9_u64).prop_map(|position| ReadVersion::At(at(position))),
        1 => (5..9_u64).prop_map(|number| ReadVersion::Written(txn(number)))
    ];
    (any_oid(), seen).prop_map(|(oid, seen)| Read { oid, seen })
}

proptest! {
    /// Reads of a run are not looked at one by one if their page is idle.
    #[test]
    fn list_is_checked_as_each_of_its_reads(
        changes in proptest::collection::vec(any_oid(), 0..4),
        writes in proptest::collection::btree_set(any_oid(), 0..2),
        locked in proptest::option::of(any_oid()),
        reads in proptest::collection::vec(any_read(), 0..12),
    ) {
        let mut validator = Validator::new(without_retention(100));
        for (position, changed) in (5..).zip(changes) {
            validator.apply(changed.page(), [changed.slot()], at(position), txn(position), &at(4));
        }
        let _ = validator.hold(txn(50), &Footprint { writes, ..Footprint::default() });
        if let Some(locked) = locked {
            let _ = validator.locks().request(txn(60), txn(60), locked, LockMode::Exclusive);
        }
        let check = |reads: ReadList| validator.check(txn(99), &reads, &Footprint::default(), &at(4));
        let one_by_one = reads.iter().try_for_each(|read| check([*read].into()));
        prop_assert_eq!(check(reads.into()), one_by_one);
    }

    /// A read passes only if it is current. It fails only if it is outdated, older than a retired version, or if the
    /// window has exceeded its limit.
    #[test]
    fn validation_agrees_with_the_list_of_all_changes(steps in steps(), limit in 1..9_usize) {
        let mut validator = Validator::new(without_retention(limit));
        let (mut last, mut position, mut asked, mut trimmed) = ([4; 6], 4, 4, false);
        for step in steps {
            match step {
                Step::Change(slots) => {
                    position += 2;
                    slots.iter().for_each(|slot| last[usize::from(*slot)] = position);
                    let before = validator.entries();
                    validator.apply(PAGE, slots.iter().copied(), at(position), txn(position), &stored_versions(position - 2));
                    trimmed |= validator.entries() < before || before + slots.len() > limit;
                }
                Step::Retire(version) => {
                    validator.acknowledge(PAGE, at(version));
                    asked = asked.max(version.min(position));
                }
            }
            prop_assert_eq!(validator.check_invariants(), Ok(()));
            for (slot, changed) in (0..).zip(last) {
                for seen in changed.saturating_sub(3)..=position {
                    let read = Read { oid: oid(slot), seen: ReadVersion::At(at(seen)) };
                    let verdict = validator.check(txn(99), &[read].into(), &Footprint::default(), &stored_versions(position));
                    let passes = verdict.is_ok();
                    prop_assert!(!passes || seen >= changed, "slot {} read at {} has changed at {}", slot, seen, changed);
                    let must_pass = seen >= changed && seen >= asked && !trimmed;
                    prop_assert!(passes || !must_pass, "slot {} read at {} has changed at {}", slot, seen, changed);
                }
            }
        }
    }
}
