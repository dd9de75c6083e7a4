//! Changes of entries of collections, and the guards that protect them.

use model::planted_bug::assert_noticed;
use model::{Entry, EntryKey};

use super::*;
use crate::entries::{collection_guard, entry_guard, key_guard};

fn entry(key: &str) -> Entry {
    Entry { collection: oid(1), key: EntryKey::name(key).unwrap() }
}

/// A transaction that binds a key.
fn put(key: &str) -> Part<u64> {
    Part { entries: [(entry(key), Some(oid(2)))].into(), ..Part::default() }
}

/// A read of a guard at a position.
fn read(guard: Oid, position: u64) -> Read {
    Read { oid: guard, seen: ReadVersion::At(at(position)) }
}

/// A transaction that has read this at the position 0.
fn reading(guard: Oid) -> Part<u64> {
    Part { reads: [read(guard, 0)].into(), ..Part::default() }
}

fn is_refused(answers: &[Answer]) -> bool {
    matches!(answers.last(), Some(Answer::Refused { why: Refusal::Conflict(_), .. }))
}

#[test]
fn changes_of_different_keys_do_not_conflict() {
    let mut world = World::new();
    let first = proposal(&world.ask_forced(prepare(1, put("a"))));
    let second = proposal(&world.ask_forced(prepare(2, put("b"))));
    world.ask_forced(decide(2, Outcome::Committed(second)));
    world.ask_forced(decide(1, Outcome::Committed(first)));
    assert!(outcome_of(&world.ask_forced(commit(3, put("c")))).1.is_some());
}

#[test]
fn changes_of_one_key_conflict_with_each_other_and_with_look_ups() {
    let conflicts = || {
        let mut world = World::new();
        let proposed = proposal(&world.ask_forced(prepare(1, put("a"))));
        assert!(is_refused(&world.ask_forced(commit(2, put("a")))), "the key is held");
        assert!(is_refused(&world.ask_forced(commit(3, reading(entry_guard(&entry("a")))))));
        world.ask_forced(decide(1, Outcome::Committed(proposed)));
        assert!(is_refused(&world.ask_forced(commit(4, reading(entry_guard(&entry("a")))))), "the key has changed");
        assert!(outcome_of(&world.ask_forced(commit(5, reading(key_guard(oid(1), &entry("b").key))))).1.is_none());
    };
    assert_noticed(&[Bug::KeyGuardNotWritten], conflicts);
}

#[test]
fn listings_conflict_with_changes_of_any_key() {
    let conflicts = || {
        let mut world = World::new();
        let proposed = proposal(&world.ask_forced(prepare(1, put("a"))));
        assert!(is_refused(&world.ask_forced(commit(2, reading(collection_guard(oid(1)))))));
        world.ask_forced(decide(1, Outcome::Committed(proposed)));
        assert!(is_refused(&world.ask_forced(commit(3, reading(collection_guard(oid(1)))))));
        let other = commit(4, reading(collection_guard(oid(3))));
        assert!(outcome_of(&world.ask_forced(other)).1.is_none(), "another collection has not changed");
    };
    assert_noticed(&[Bug::CollectionGuardNotTouched], conflicts);
}

#[test]
fn entries_are_in_the_record_of_the_outcome_also_after_a_restart() {
    let recorded = || {
        let mut world = World::new();
        let proposed = proposal(&world.ask_forced(prepare(1, put("a"))));
        for mut world in [world.clone(), world.restart(1)] {
            assert!(is_refused(&world.ask_forced(commit(2, put("a")))), "C4: the key is held");
            world.ask_forced(decide(1, Outcome::Committed(proposed)));
            let change = world.log.last().and_then(Record::change).expect("the outcome changes something");
            assert_eq!(change.entries, put("a").entries);
        }
    };
    assert_noticed(&[Bug::EntriesNotDecided], recorded);
}

#[test]
fn aborted_changes_of_entries_change_nothing() {
    let mut world = World::new();
    world.ask_forced(prepare(1, put("a")));
    world.ask_forced(decide(1, Outcome::Aborted));
    assert!(world.log.iter().all(|record| record.change().is_none()) && world.changed.is_empty());
    assert!(outcome_of(&world.ask_forced(commit(2, reading(entry_guard(&entry("a")))))).1.is_none());
}

#[test]
fn a_listing_and_a_change_of_one_collection_exclude_others() {
    let mut world = World::new();
    let both = |key: &str| Part { reads: reading(collection_guard(oid(1))).reads, ..put(key) };
    world.ask_forced(prepare(1, both("a")));
    assert!(is_refused(&world.ask_forced(commit(2, put("b")))));
}

#[test]
fn entries_of_another_logical_node_are_rejected() {
    let elsewhere = Oid::new(ClassId::NONE, PageId { node: THERE, ..PAGE }, 1);
    let entry = Entry { collection: elsewhere, ..entry("a") };
    let part = Part { entries: [(entry, None)].into(), ..Part::<u64>::default() };
    let mut world = World::new();
    let handled = world.participant.handle("peer", commit(1, part), HlcTimestamp::ZERO, 1_000, &world.stored);
    assert_eq!(handled, Err(Rejected::Elsewhere(txn(1))));
}
