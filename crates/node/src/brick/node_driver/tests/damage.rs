//! A damaged row costs what needs it, and nothing else (K4).

use model::planted_bug::assert_noticed;
use model::{Entry, EntryKey, Kind};
use protocol::entries::{collection_guard, entry_guard, unbound_key, unique_entry};
use protocol::locks::LockMode;
use protocol::page_cache::FetchReply;
use protocol::validate::ReadVersion;
use wire::cluster::encode_record;

use super::*;
use crate::brick::entries;
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

fn deferral_kinds(world: &World) -> Vec<ErrorKind> {
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
            assert_eq!(deferral_kinds(&world), [ErrorKind::Corrupt], "{what}");
            assert!(world.driver.failure().is_none() && is_served(&mut world), "{what}");
        };
        if bugs.is_empty() { check() } else { assert_noticed(bugs, check) }
    }
}

/// What is known of transactions decides what may be committed, so a logical node is not opened without all of it.
#[test]
fn logical_node_with_a_damaged_row_of_transactions_is_not_opened() {
    let mut world = world_with_damage(&[]);
    assert!(is_served(&mut world));
    let store = world.reopen().store;
    let [txn, later] = [7, 8].map(|number| TxnId { start: HlcTimestamp(number), client: ClientId(number) });
    let (participants, part) = (vec![NODE], Part::default());
    let record = Record::<Object>::Prepared { txn: later, participants, part, proposal: HlcTimestamp(9) };
    let mut changes = RowChanges::new();
    changes.put(&rows::txn_key(NODE, later, 0), encode_record(&record, Version { moves: 0, position: 1 }));
    store.commit_rows(changes).unwrap();
    let keys = [
        rows::txn_key(NODE, txn, 0).to_vec(),
        rows::mark_key(NODE, txn.client).to_vec(),
        rows::bound_key(NODE).to_vec(),
        rows::horizon_key(NODE).to_vec(),
    ];
    for (at, key) in keys.iter().enumerate() {
        let before = store.row(key).unwrap();
        let write = |row: Option<bytes::Bytes>| {
            let mut changes = RowChanges::new();
            match row {
                Some(row) => changes.put(key, row),
                None => changes.remove(key),
            }
            store.commit_rows(changes).unwrap();
        };
        let recovered = || recover_records(NODE, &RowReader::new(store.clone()), |_, _, _| {});
        recovered().unwrap();
        write(Some("no record".into()));
        assert!(recovered().is_err(), "row {at}");
        write(before);
    }
}

type StoredRow = (Vec<u8>, bytes::Bytes);

/// The rows of a prepared transaction that writes an object, under the key of another one or its own.
fn prepared_rows(txn: u64, key: u64, piece: u16) -> StoredRow {
    let [txn, key] = [txn, key].map(|number| TxnId { start: HlcTimestamp(number), client: ClientId(number) });
    let part = put(oid(PERSON, 1), person(PERSON, 30));
    let record = Record::Prepared { txn, participants: vec![NODE, NodeId(8)], part, proposal: HlcTimestamp(9) };
    (rows::txn_key(NODE, key, piece).to_vec(), encode_record(&record, Version { moves: 0, position: 1 }))
}

#[test]
fn logical_node_whose_rows_contradict_each_other_is_not_opened() {
    let largest = || rows::encode_number(u64::MAX);
    let cases: [(&str, Vec<StoredRow>, bool); 8] = [
        ("one prepared transaction", vec![prepared_rows(7, 7, 0)], true),
        ("two that write the same object", vec![prepared_rows(7, 7, 0), prepared_rows(8, 8, 0)], false),
        ("the record of another transaction", vec![prepared_rows(7, 8, 0)], false),
        ("no first piece", vec![prepared_rows(7, 7, 1)], false),
        ("a missing piece", vec![prepared_rows(7, 7, 0), prepared_rows(7, 7, 2)], false),
        (
            "a position above the limit",
            vec![(rows::limit_key(NODE).to_vec(), rows::encode_number(0)), prepared_rows(7, 7, 0)],
            false,
        ),
        ("a record that cannot be decoded", vec![(prepared_rows(7, 7, 0).0, "damaged".into())], false),
        ("a limit of positions", vec![(rows::limit_key(NODE).to_vec(), largest())], false),
    ];
    for (what, rows, opens) in cases {
        let store = world_with_damage(&[]).reopen().store;
        let mut changes = RowChanges::new();
        rows.into_iter().for_each(|(key, row)| changes.put(&key, row));
        store.commit_rows(changes).unwrap();
        match World::try_open(store) {
            Ok(_) => assert!(opens, "{what}"),
            Err(error) => assert!(!opens && error.kind() == ErrorKind::Corrupt, "{what}: {error}"),
        }
    }
}

#[test]
fn page_whose_head_is_later_than_all_records_is_damaged() {
    let mut world = world_with_damage(&[]);
    let head = |position| rows::Head { version: Version { moves: 0, position }, timestamp: HlcTimestamp::ZERO };
    for ahead in [1, 1 << 62] {
        let position = world.driver.writer.last_position() + ahead;
        write(&world, &rows::head_key(page(4)), head(position).encode());
        let seen = deferral_kinds(&world).len();
        assert!(!world.commit_part(put(oid(PERSON, 4), person(PERSON, 30))), "{position}");
        assert_eq!(deferral_kinds(&world)[seen..], [ErrorKind::Corrupt], "{position}");
        assert!(world.driver.failure().is_none() && is_served(&mut world), "{position}");
    }
    let last = world.driver.writer.last_position();
    write(&world, &rows::head_key(page(4)), head(last).encode());
    assert!(world.commit_part(put(oid(PERSON, 4), person(PERSON, 30))));
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
fn lock_of_a_damaged_object_is_refused_once_and_ends_its_transaction() {
    assert_noticed(&[Bug::DamageEndsNode, Bug::RefusedLockHeld], || {
        let mut world = world_with_damage(&[rows::object_key(page(1), 1).to_vec()]);
        world.put(PERSON, 2, 30);
        let txn = world.next_txn();
        let lock = |slot| Request::Lock { txn, first: txn, oid: oid(PERSON, slot), mode: LockMode::Exclusive };
        world.ask(lock(2));
        assert!(matches!(world.answer_all()[..], [Answer::Locked { .. }]));
        let refused = [Answer::Refused { txn, why: Refusal::Aborted }];
        for _ in 0..2 {
            world.ask(lock(1));
            assert_eq!(world.answer_all(), refused);
        }
        assert_eq!(deferral_kinds(&world), [ErrorKind::Corrupt]);
        assert!(world.driver.failure().is_none() && is_served(&mut world));
        world.put(PERSON, 2, 31);
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
        assert_eq!(deferral_kinds(&world), [ErrorKind::Corrupt; 2]);
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
    assert_eq!(deferral_kinds(&world), [ErrorKind::Corrupt]);
}

/// The row is not valid any more. Returns what it was.
fn damage(world: &World, key: &[u8]) -> bytes::Bytes {
    let before = world.store.get(key).unwrap().unwrap();
    write(world, key, "damaged".into());
    before
}

fn write(world: &World, key: &[u8], row: bytes::Bytes) {
    let mut changes = RowChanges::new();
    changes.put(key, row);
    world.store.commit_rows(changes).unwrap();
}

/// A transaction of several participants changes a person, makes another one, and binds a name. It is prepared, and decided when a row is damaged.
fn check_outcome_over_damage(what: &str, key: &[u8], is_reopened: bool) {
    let mut world = world_with_damage(&[]);
    let writes = [(1, 21), (2, 30)].map(|(slot, age)| (oid(PERSON, slot), ObjectState::Value(person(PERSON, age))));
    let part = Part { writes: writes.into(), ..bind("known") };
    let txn = world.next_txn();
    world.ask(Request::Prepare { txn, participants: vec![NODE, NodeId(8)], part });
    let answers = world.answer_all();
    let [Answer::Prepared { proposal, .. }] = answers[..] else { panic!("{what}: {answers:?}") };
    let before = damage(&world, key);
    if is_reopened {
        world = world.reopen();
    }
    let decide = Request::Decide { txn, outcome: Outcome::Committed(proposal) };
    for _ in 0..2 {
        world.ask(decide.clone());
        assert_eq!(world.answer_all(), [], "{what}: it is not acknowledged");
    }
    assert!(world.driver.failure().is_none() && is_served(&mut world), "{what}");
    assert!(world.driver.health_problem().is_some_and(|problem| problem.contains("damaged")), "{what}");
    // Who needs an object that is not damaged, and that it holds, hears why, too.
    assert!(!world.commit_part(put(oid(PERSON, 2), person(PERSON, 31))), "{what}");
    let lock = world.next_txn();
    world.ask(Request::Lock { txn: lock, first: lock, oid: oid(PERSON, 2), mode: LockMode::Shared });
    assert_eq!(world.answer_all(), [Answer::Refused { txn: lock, why: Refusal::Aborted }], "{what}");
    assert_eq!(deferral_kinds(&world), [ErrorKind::Corrupt; 2], "{what}");
    assert!(world.driver.undecidable_write(oid(PERSON, 2)).is_some(), "{what}");
    assert!(world.driver.undecidable_write(oid(PERSON, 4)).is_none(), "{what}");

    write(&world, key, before);
    world.now += 1_000;
    world.ask(decide);
    let answers = world.answer_all();
    assert!(matches!(answers[..], [Answer::Ended { outcome: Outcome::Committed(_), .. }]), "{what}: {answers:?}");
    assert_eq!(world.driver.health_problem(), None, "{what}");
    let ages = [1, 2].map(|slot| age(&rows::read_object(&world.store, page(slot), slot).unwrap().unwrap()));
    assert_eq!(ages, [21, 30], "{what}");
    let mut entries = world.entries(BY_AGE);
    entries.sort();
    assert_eq!(entries, [(super::key(21), 1), (super::key(30), 2)], "{what}");
}

#[test]
fn outcome_that_replaces_a_damaged_row_waits_for_it_and_the_node_goes_on() {
    let cases = [
        ("the object that it replaces", rows::object_key(page(1), 1).to_vec(), false),
        ("the head of a page", rows::head_key(page(1)).to_vec(), false),
        ("the totals of a collection", totals_key(directory()).to_vec(), true),
        ("the entry that it replaces", entry_key(directory(), &entry("known").key).to_vec(), true),
        ("the guard of a key", rows::head_key(entry_guard(&entry("known")).page()).to_vec(), false),
    ];
    for (what, key, is_also_read_later) in cases {
        assert_noticed(&[Bug::DamageEndsNode], || {
            check_outcome_over_damage(what, &key, true);
            if is_also_read_later {
                check_outcome_over_damage(what, &key, false);
            }
        });
    }
}

#[test]
fn object_that_is_damaged_after_it_was_read_for_a_prepared_transaction_is_replaced() {
    let mut world = world_with_damage(&[]);
    world.begin(Vec::new(), [(oid(PERSON, 1), ObjectState::Value(person(PERSON, 21)))].into(), false);
    world.answer_all();
    damage(&world, &rows::object_key(page(1), 1));
    world.decide(true);
    world.answer_all();
    assert!(world.driver.failure().is_none() && is_served(&mut world));
    assert_eq!(world.entries(BY_AGE), [(super::key(21), 1)]);
}

#[test]
fn head_that_is_known_when_a_transaction_is_taken_in_is_not_read_for_its_record() {
    let mut world = World::with_store(Store::in_memory(Options::default()).unwrap());
    let blob = |number, slot| {
        let object = ObjectState::Value(Object::blob("x".into()));
        (Oid::new(ClassId::NONE, PageId { number, ..page(0) }, slot), object)
    };
    let part = |writes: &[(u64, u16)]| {
        let writes = writes.iter().map(|(number, slot)| blob(*number, *slot)).collect();
        Part { writes, ..Part::default() }
    };
    assert!(world.commit_part(part(&[(50, 1)])));
    damage(&world, &rows::head_key(PageId { number: 50, ..page(0) }));
    // More pages than are remembered.
    assert!(world.commit_part(part(&[(50, 2), (51, 1), (52, 1), (53, 1), (54, 1)])));
    assert!(world.driver.failure().is_none() && is_served(&mut world));
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
        let due = world.driver.index.due();
        assert!(due > world.now && due != Ms::MAX, "it is tried again later: at {due}, now it is {}", world.now);
        let mut changes = RowChanges::new();
        changes.put(&damaged, super::rows::encode_object(&person(PERSON, 20)));
        world.store.commit_rows(changes).unwrap();
        world.now += 60_000;
        world.settle();
    });
}

#[test]
fn listing_of_objects_passes_over_damaged_ones_and_tells_them() {
    let mut world = world_with_damage(&[]);
    // The directory is in slot 5.
    for slot in [2, 3, 4, 6, 7] {
        assert!(world.commit_part(put(oid(PERSON, slot), person(PERSON, 20))));
    }
    [2, 3, 7].iter().for_each(|slot| drop(damage(&world, &rows::object_key(oid(PERSON, *slot).page(), *slot))));
    let (mut listed, mut told, mut next) = (Vec::new(), 0, Some((0, 0)));
    while let Some(from) = next {
        let wanted = wire::cluster::ListNodeObjects { space: SPACE, node: NODE, from, limit: 2 };
        let found = rows::list_objects(&world.store.snapshot().unwrap(), &wanted).unwrap();
        told += usize::from(found.damage.is_some_and(|damage| damage.contains("damaged")));
        listed.extend(found.objects.into_iter().map(|object| object.oid).filter(|oid| oid.class() == PERSON));
        next = found.next;
    }
    assert_eq!(listed, [6, 1, 4].map(|slot| oid(PERSON, slot)));
    assert!((1..=3).contains(&told), "{told}");
}

#[test]
fn listing_of_names_passes_over_damaged_ones_only_if_it_is_told_to() {
    let mut world = world_with_damage(&[]);
    for name in ["a", "b", "c", "d", "e"] {
        assert!(world.commit_part(bind(name)));
    }
    let (prefix, limit) = (bytes::Bytes::new(), 2);
    let wanted = |after: Option<&str>, passes_damage| wire::cluster::ListEntries {
        collection: directory(),
        after: after.map(|name| EntryKey::name(name).unwrap()),
        prefix: prefix.clone(),
        limit,
        reverse: false,
        kinds: true,
        passes_damage,
    };
    let names = |list: &wire::cluster::EntryList| {
        list.entries.iter().filter_map(|entry| entry.key.to_name()).collect::<String>()
    };
    for name in ["b", "d"] {
        damage(&world, &entry_key(directory(), &entry(name).key));
    }
    let damaged = entries::list(&world.store, &wanted(None, false)).unwrap_err();
    assert_eq!(damaged.kind(), ErrorKind::Corrupt);
    let first = entries::list(&world.store, &wanted(None, true)).unwrap();
    assert_eq!((names(&first), first.more, first.count, first.guards.len()), ("ac".to_owned(), true, 6, 1));
    assert!(first.damage.is_some());
    let second = entries::list(&world.store, &wanted(Some("c"), true)).unwrap();
    assert_eq!((names(&second), second.damage.is_some()), ("eknown".to_owned(), true));
    // Without the number of entries, too.
    damage(&world, &totals_key(directory()));
    let uncounted = entries::list(&world.store, &wanted(Some("e"), true)).unwrap();
    assert_eq!((names(&uncounted), uncounted.more, uncounted.count), ("known".to_owned(), false, 0));
    assert!(uncounted.damage.is_some());
}
