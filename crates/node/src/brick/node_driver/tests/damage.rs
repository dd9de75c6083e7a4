//! A damaged row costs what needs it, and nothing else (K4).

use model::planted_bug::assert_noticed;
use model::{Entry, EntryKey, Kind};
use protocol::entries::{collection_guard, entry_guard, unbound_key, unique_entry};
use protocol::locks::LockMode;
use protocol::page_cache::FetchReply;
use protocol::validate::ReadVersion;

use super::*;
use crate::brick::entry_rows::{entry_key, totals_key};

/// A name in a directory that has one name.
fn entry(name: &str) -> Entry {
    Entry { collection: directory(), key: EntryKey::name(name).unwrap() }
}

fn directory() -> Oid {
    oid(ClassId::NONE, 5)
}

fn target() -> Oid {
    oid(ClassId::NONE, 8)
}

fn put(oid: Oid, object: Object) -> Part<Object> {
    Part { writes: [(oid, ObjectState::Value(object))].into(), ..Part::default() }
}

fn bind(name: &str) -> Part<Object> {
    Part { entries: [(entry(name), Some(target()))].into(), ..Part::default() }
}

/// A node with a person, a directory with a name, and rows that are not valid any more.
fn world_with_damage(damaged: &[Vec<u8>]) -> World {
    let mut world = World::with_index();
    world.put(PERSON, 1, 20);
    for part in [put(directory(), Object::collection(Kind::Directory)), bind("known")] {
        assert!(world.commit_part(part));
    }
    // What was read or written before is not looked up.
    let world = world.reopen();
    let mut changes = RowChanges::new();
    damaged.iter().for_each(|key| changes.put(key, "damaged".into()));
    world.store.commit_rows(changes).unwrap();
    world
}

/// Something that no damaged row is needed for.
fn is_served(world: &mut World) -> bool {
    world.commit_part(put(Oid::new(ClassId::NONE, PageId { number: 99, ..page(0) }, 1), Object::blob("else".into())))
}

fn deferred(world: &World) -> Vec<ErrorKind> {
    let kind = |message: &Message| if let Message::Deferred { kind, .. } = message { Some(*kind) } else { None };
    world.sent.iter().filter_map(kind).collect()
}

#[test]
fn transaction_that_needs_a_damaged_row_is_refused_and_the_node_goes_on() {
    let head = |oid: Oid| rows::head_key(oid.page()).to_vec();
    let person = oid(PERSON, 1);
    let cases = [
        ("the object that it replaces", rows::object_key(page(1), 1).to_vec(), put(person, super::person(PERSON, 21))),
        ("the head of a page", head(person), put(oid(PERSON, 4), super::person(PERSON, 30))),
        ("a guard of its class", head(guards::of_class(SPACE, NODE, PERSON)), put(person, super::person(PERSON, 21))),
        ("the totals of a collection", totals_key(directory()).to_vec(), bind("new")),
        ("the entry that it replaces", entry_key(directory(), &entry("known").key).to_vec(), bind("known")),
        ("the guard of a key", head(entry_guard(&entry("known"))), bind("known")),
        ("the guard of a collection", head(collection_guard(directory())), bind("new")),
        (
            "the totals of a collection that it deletes",
            totals_key(directory()).to_vec(),
            Part { writes: [(directory(), ObjectState::Absent)].into(), ..Part::default() },
        ),
    ];
    for (what, key, part) in cases {
        let bugs: &[Bug] = match what {
            "the entry that it replaces" | "the guard of a key" => &[Bug::GuardsReadLate],
            "the object that it replaces" => &[Bug::DamageEndsNode],
            _ => &[],
        };
        let check = || {
            let mut world = world_with_damage(std::slice::from_ref(&key));
            assert!(!world.commit_part(part.clone()), "{what}");
            assert_eq!(deferred(&world), [ErrorKind::Corrupt], "{what}");
            assert!(world.driver.failure().is_none() && is_served(&mut world), "{what}");
        };
        if bugs.is_empty() { check() } else { assert_noticed(bugs, check) }
    }
}

#[test]
fn holder_that_fetches_a_damaged_page_hears_why_it_gets_none() {
    assert_noticed(&[Bug::DamageEndsNode], || {
        let mut world = world_with_damage(&[rows::object_key(page(1), 1).to_vec()]);
        let holder = HolderId(1);
        world.driver.handle_up(&(), holder, renew(&world), world.now).unwrap();
        for (number, page) in (1..).zip([page(1), page(2)]) {
            world
                .driver
                .handle_up(&(), holder, Up::Fetch { page, fetch: FetchId(number), have: None }, world.now)
                .unwrap();
            world.carry_out();
        }
        let fetched = |message: &Message| match message {
            Message::Down { message: Down::Fetched { fetch, reply, .. }, .. } => Some((fetch.0, reply.clone())),
            _ => None,
        };
        let fetched: Vec<_> = world.sent.iter().filter_map(fetched).collect();
        assert!(matches!(&fetched[..], [(1, FetchReply::Damaged(_)), (2, FetchReply::Page(_))]), "{fetched:?}");
        assert!(world.driver.failure().is_none() && is_served(&mut world));
    });
}

#[test]
fn lock_of_a_damaged_object_is_refused() {
    assert_noticed(&[Bug::DamageEndsNode], || {
        let mut world = world_with_damage(&[rows::object_key(page(1), 1).to_vec()]);
        let txn = world.next_txn();
        world.ask(Request::Lock { txn, first: txn, oid: oid(PERSON, 1), mode: LockMode::Shared });
        world.answer_all();
        assert_eq!(deferred(&world), [ErrorKind::Corrupt]);
        assert!(world.driver.failure().is_none() && is_served(&mut world));
    });
}

#[test]
fn read_from_a_page_whose_version_is_damaged_is_not_current() {
    let newest = Version { moves: 9, position: 1 << 40 };
    let reads = || vec![Read { oid: oid(PERSON, 1), seen: ReadVersion::At(newest) }];
    assert_noticed(&[Bug::DamageIsConflict], || {
        let mut world = world_with_damage(&[rows::head_key(page(1)).to_vec()]);
        let txn = world.next_txn();
        world.ask(Request::Check { txn, reads: reads().into(), at: HlcTimestamp::at(world.now) });
        let answers = world.answer_all();
        assert!(matches!(answers[..], [Answer::Checked { verdict: Err(_), .. }]), "{answers:?}");
        let write = put(Oid::new(ClassId::NONE, PageId { number: 98, ..page(0) }, 1), Object::blob("else".into()));
        assert!(!world.commit_part(Part { reads: reads().into(), ..write }));
        assert_eq!(deferred(&world), [ErrorKind::Corrupt; 2]);
        assert!(world.driver.failure().is_none() && is_served(&mut world));
    });
}

#[test]
fn unique_value_whose_row_is_damaged_is_not_bound_however_often_it_is_tried() {
    const BY_NUMBER: u32 = 9;
    let bound = unique_entry(SPACE, &[NODE], BY_NUMBER, &key(33)).unwrap();
    let mut world = world_with_damage(&[entry_key(bound.collection, &bound.key).to_vec()]);
    world.set_indexes(&[by_age(BY_AGE), IndexSpec { unique: true, ..by_age(BY_NUMBER) }]);
    world.settle();
    let new = oid(PERSON, 4);
    let reads = [unique_question(SPACE, NODE, BY_NUMBER), unbound_key(bound.collection, &bound.key)];
    let writes = [(new, ObjectState::Value(person(PERSON, 33)))].into();
    let part = Part { reads: reads.into(), writes, entries: [(bound, Some(new))].into(), ..Part::default() };
    let txn = world.next_txn();
    for _ in 0..2 {
        world.ask(Request::Commit { txn, part: part.clone() });
        let answers = world.answer_all();
        assert!(matches!(answers[..], [Answer::Refused { .. }]), "{answers:?}");
        assert!(world.driver.failure().is_none() && is_served(&mut world));
    }
    assert_eq!(deferred(&world), [ErrorKind::Corrupt]);
}

#[test]
fn index_over_a_damaged_object_is_completed_when_the_object_was_written_again() {
    assert_noticed(&[Bug::DamageEndsNode, Bug::IndexWaitsForDamaged], || {
        let damaged = rows::object_key(page(1), 1).to_vec();
        let mut world = world_with_damage(std::slice::from_ref(&damaged));
        world.set_indexes(&[by_age(BY_AGE), by_age(8), IndexSpec { classes: vec![STUDENT], ..by_age(9) }]);
        for _ in 0..20 {
            world.answer_all();
            world.poll();
        }
        let is_complete = |index| {
            let (done, total) =
                world.driver.index_progress(IndexId { node: NODE, space: SPACE, index }).unwrap().unwrap();
            done == total
        };
        assert_eq!([8, 9].map(is_complete), [false, true], "only the index over the damaged object waits");
        assert!(world.driver.failure().is_none() && is_served(&mut world));
        assert_ne!(world.driver.index.due(), Ms::MAX, "it is not complete");
        let mut changes = RowChanges::new();
        changes.put(&damaged, super::rows::encode_object(&person(PERSON, 20)));
        world.store.commit_rows(changes).unwrap();
        world.now += 60_000;
        world.settle();
    });
}
