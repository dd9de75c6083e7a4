//! What a scrub says of a logical node that the driver has written, and of the same one with wrong rows.

use bytes::Bytes;
use model::planted_bug::{PlantedBug, assert_noticed};
use model::{ContentId, ContentOrigin, ContentRef, Entry, EntryKey, Kind};
use protocol::entries::unique_entry;
use store::ContentChange;
use wire::cluster::encode_record;

use super::*;
use crate::brick::consistency::plant::Bug as CheckBug;
use crate::brick::consistency::{NodeCheck, Place, Problem, Remedy};
use crate::brick::entry_rows::{self, Totals};
use crate::brick::node_driver::Repaired;

const BY_NUMBER: u32 = 9;
const COLLECTION: u16 = 40;
const BLOB: u16 = 41;
const ROWS: u16 = 8;

fn is_unique(_: SpaceId, index: u32) -> bool {
    index == BY_NUMBER
}

fn collection() -> Oid {
    oid(ClassId::NONE, COLLECTION)
}

fn entry(name: &str) -> Entry {
    Entry { collection: collection(), key: EntryKey::name(name).unwrap() }
}

/// All problems of the logical node.
fn problems(store: &Store) -> Vec<Problem> {
    let mut all = Vec::new();
    let check = NodeCheck { store, node: NODE, is_unique: &is_unique, reads_contents: true };
    check
        .run(Place::first(), |portion| {
            all.extend(portion.problems);
            ControlFlow::Continue(())
        })
        .unwrap();
    all
}

fn kinds(store: &Store) -> Vec<&'static str> {
    problems(store).iter().map(Problem::kind).collect()
}

/// A logical node with every kind of rows: records in two indexes, one of them unique, a directory with more names than a portion has
/// rows, blobs with contents, a staged content, a prepared transaction, an outcome, the mark of a client.
fn with_everything() -> World {
    let mut world = World::with_index();
    let reserved = world.driver.reserve(SPACE, 10).unwrap();
    world.store.commit_rows(reserved.rows).unwrap();
    world.driver.finish_reservation();
    world.set_indexes(&[by_age(BY_AGE), by_age(BY_NUMBER)]);
    world.settle();
    (0..ROWS).for_each(|slot| world.put(if slot % 2 == 0 { PERSON } else { STUDENT }, slot, i64::from(slot)));
    let write = |oid, content| Part { writes: [(oid, content)].into(), ..Part::default() };
    assert!(world.commit_part(write(collection(), ObjectState::Value(Object::collection(Kind::Directory)))));
    let content = world.stage(b"a content of more than ten bytes");
    let named = Object::blob_with_content(ContentRef { id: content, size: 32, generation: 0 });
    assert!(world.is_committed(oid(ClassId::NONE, BLOB), ObjectState::Value(named)));
    let names = ["a", "b", "c", "d", "e", "f", "g"].map(|name| (entry(name), Some(oid(ClassId::NONE, BLOB))));
    assert!(world.commit_part(Part { entries: names.into(), ..Part::default() }));
    let bound = unique_entry(SPACE, &[NODE], BY_NUMBER, &key(3)).unwrap();
    assert!(world.commit_part(Part { entries: [(bound, Some(oid(STUDENT, 3)))].into(), ..Part::default() }));
    world.stage(b"not used yet");
    let prepared = world.stage(b"used by a prepared transaction");
    let named = Object::blob_with_content(ContentRef { id: prepared, size: 30, generation: 0 });
    world.prepare(oid(ClassId::NONE, 42), ObjectState::Value(named));
    let mark = ClientMark::new(HlcTimestamp(5), vec![]).unwrap();
    let client = ClientId(1);
    let heard = encode_record(&Record::<Object>::Heard { client, mark }, Version { moves: 0, position: 1 });
    commit(&world.store, |changes| changes.put(&rows::mark_key(NODE, client), heard));
    world
}

fn commit(store: &Store, change: impl FnOnce(&mut RowChanges)) {
    let mut changes = RowChanges::new();
    change(&mut changes);
    store.commit_rows(changes).unwrap();
}

fn blob_row(store: &Store) -> (Oid, ContentRef) {
    let oid = oid(ClassId::NONE, BLOB);
    let object = rows::read_object(store, oid.page(), oid.slot()).unwrap().unwrap();
    (oid, object.content().unwrap())
}

fn put_blob(changes: &mut RowChanges, oid: Oid, content: ContentRef) {
    let object = Object::blob_with_content(content);
    changes.put(&rows::object_key(oid.page(), oid.slot()), rows::encode_object(&object));
}

fn foreign(node: NodeId) -> ContentId {
    ContentId::new(SPACE, node, 0, ContentOrigin::Record, 77)
}

fn staged_content(store: &Store) -> ContentId {
    let (from, to) = rows::staged_range(NODE);
    let mut found = None;
    store
        .rows(&from, &to, |key, row| {
            found = Some(rows::parse_staged(key, row).unwrap().0);
            ControlFlow::Break(())
        })
        .unwrap();
    found.unwrap()
}

/// The record of a transaction that has ended.
fn outcome(world: &World) -> Bytes {
    let (from, to) = rows::txn_range(NODE);
    let mut found = None;
    world
        .store
        .rows(&from, &to, |key, row| {
            let (txn, _) = rows::parse_txn(key).unwrap();
            if !world.prepared.contains_key(&txn) {
                found = Some(Bytes::copy_from_slice(row));
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    found.unwrap()
}

/// A wrong change of the rows.
type Damage = fn(&World, &mut RowChanges);

/// A wrong change of the rows of each kind of problem, with what must be found: that, and nothing else.
const DAMAGES: &[(&[&str], Damage)] = &[
    (&["row_damaged"], |_, changes| changes.put(&rows::object_key(page(0), 0)[..14], Bytes::new())),
    (&["row_damaged"], |_, changes| changes.put(&rows::head_key(page(0)), "short".into())),
    (&["object_damaged"], |_, changes| {
        changes.put(&rows::object_key(page(0), 30), "short".into());
    }),
    (&["object_damaged"], |_, changes| {
        // Extents and indexes lead to it.
        changes.put(&rows::object_key(page(2), 2), "short".into());
    }),
    (&["object_damaged"], |_, changes| {
        // A directory with entries: it is damaged, not missing.
        changes.put(&rows::object_key(collection().page(), COLLECTION), "short".into());
    }),
    (&["head_missing", "head_missing", "head_missing"], |_, changes| {
        // The page of the slots 0, 3 and 6, and of the prepared transaction.
        changes.remove(&rows::head_key(page(0)));
    }),
    (&["head_missing"; 4], |_, changes| {
        // The page of the slots 1, 4, 7 and of the directory: a portion begins with rows of the page before.
        changes.remove(&rows::head_key(page(1)));
    }),
    (&["position_not_reserved"], |_, changes| {
        let version = Version { moves: 0, position: 1 << 50 };
        changes.put(&rows::head_key(page(0)), rows::Head { version, timestamp: HlcTimestamp(1) }.encode());
    }),
    (&["page_not_reserved"; 10], |_, changes| changes.put(&rows::free_key(NODE, SPACE), rows::encode_number(1))),
    (&["content_missing"], |world, changes| {
        changes.content(ContentChange::Delete { id: blob_row(&world.store).1.id });
    }),
    (&["content_size"], |world, changes| {
        let (oid, content) = blob_row(&world.store);
        put_blob(changes, oid, ContentRef { size: 33, ..content });
    }),
    (&["content_foreign"], |_, changes| {
        let content = ContentRef { id: foreign(NodeId(4)), size: 3, generation: 0 };
        changes.content(ContentChange::Create { id: content.id, data: "abc".into() });
        put_blob(changes, oid(ClassId::NONE, BLOB + 3), content);
    }),
    (&["content_shared"], |world, changes| {
        put_blob(changes, oid(ClassId::NONE, BLOB + 3), blob_row(&world.store).1);
    }),
    (&["content_unnamed"], |_, changes| {
        changes.content(ContentChange::Create { id: foreign(NODE), data: "abc".into() });
    }),
    (&["extent_missing"], |_, changes| changes.remove(&rows::extent_key(PERSON, page(2), 2))),
    (&["extent_stray"], |_, changes| changes.put(&rows::extent_key(STUDENT, page(2), 2), Bytes::new())),
    (&["extent_stray"], |_, changes| changes.put(&rows::extent_key(PERSON, page(2), 99), Bytes::new())),
    (&["index_entry_missing"], |_, changes| {
        changes.remove(&index_rows::entry_key(index(BY_AGE), &key(2), page(2), 2));
    }),
    (&["index_entry_stray"], |_, changes| {
        changes.put(&index_rows::entry_key(index(BY_AGE), &key(99), page(2), 2), Bytes::new());
    }),
    (&["index_unknown"], |_, changes| {
        changes.put(&index_rows::entry_key(index(77), &key(2), page(2), 2), Bytes::new());
    }),
    (&["values_twice"], |_, changes| add_person(changes, 5)),
    (&["count_wrong"], |_, changes| {
        let wrong = Totals { count: 8, modified: HlcTimestamp(1) };
        changes.put(&entry_rows::totals_key(collection()), wrong.encode());
    }),
    (&["collection_missing"], |_, changes| {
        changes.remove(&rows::object_key(collection().page(), COLLECTION));
    }),
    (&["reverse_missing"], |_, changes| {
        changes.remove(&entry_rows::reverse_key(oid(ClassId::NONE, BLOB), &entry("c")));
    }),
    (&["entry_missing"], |_, changes| {
        changes.put(&entry_rows::reverse_key(oid(ClassId::NONE, BLOB), &entry("none")), Bytes::new());
    }),
    (&["reverse_stray"], |_, changes| {
        changes.put(&entry_rows::reverse_key(oid(PERSON, 2), &entry("c")), Bytes::new());
    }),
    (&["reverse_missing", "reverse_stray"], |_, changes| {
        changes.put(&entry_rows::entry_key(collection(), &entry("c").key), entry_rows::encode_target(oid(PERSON, 2)));
    }),
    (&["target_missing"], |_, changes| {
        let (gone, first) = (oid(PERSON, 97), entry("a"));
        changes.put(&entry_rows::entry_key(collection(), &first.key), entry_rows::encode_target(gone));
        changes.remove(&entry_rows::reverse_key(oid(ClassId::NONE, BLOB), &first));
        changes.put(&entry_rows::reverse_key(gone, &first), Bytes::new());
    }),
    (&["staged_missing"], |world, changes| {
        changes.content(ContentChange::Delete { id: staged_content(&world.store) });
    }),
    (&["staged_size"], |world, changes| {
        changes.put(&rows::staged_key(staged_content(&world.store)), rows::encode_number(99));
    }),
    (&["transaction_contradictory"], |world, changes| {
        let other = TxnId { start: HlcTimestamp(7), client: ClientId(7) };
        changes.put(&rows::txn_key(NODE, other, 0), outcome(world));
    }),
    (&["transaction_contradictory"], |_, changes| {
        let other = TxnId { start: HlcTimestamp(7), client: ClientId(7) };
        changes.put(&rows::txn_key(NODE, other, 3), "piece".into());
    }),
    (&["transaction_contradictory"], |_, changes| {
        let other = TxnId { start: HlcTimestamp(7), client: ClientId(7) };
        changes.put(&rows::txn_key(NODE, other, 0), "no record".into());
    }),
    (&["transaction_contradictory"; 2], |_, changes| {
        let other = TxnId { start: HlcTimestamp(7), client: ClientId(7) };
        // The record ends with its first piece, and the last one is left over.
        changes.put(&rows::txn_key(NODE, other, 0), "first".into());
        changes.put(&rows::txn_key(NODE, other, 2), "third".into());
    }),
    (&["transaction_contradictory"], |_, changes| {
        // Prepared at other logical nodes.
        put_prepared(changes, vec![NodeId(8), NodeId(9)], Part::default());
    }),
    (&["transaction_contradictory"], |_, changes| {
        let writes = [(oid(ClassId::NONE, 42), ObjectState::Absent)].into();
        put_prepared(changes, vec![NODE, NodeId(8)], Part { writes, ..Part::default() });
    }),
    (&["transaction_contradictory"], |_, changes| {
        let other = Oid::new(ClassId::NONE, PageId { node: NodeId(8), ..page(0) }, 45);
        let writes = [(other, ObjectState::Absent)].into();
        put_prepared(changes, vec![NODE, NodeId(8)], Part { writes, ..Part::default() });
    }),
    (&["transaction_contradictory"], |_, changes| {
        let content = ContentRef { id: foreign(NODE), size: 3, generation: 0 };
        let writes = [(oid(ClassId::NONE, 45), ObjectState::Value(Object::blob_with_content(content)))].into();
        put_prepared(changes, vec![NODE, NodeId(8)], Part { writes, ..Part::default() });
    }),
    (&["mark_contradictory"], |world, changes| {
        let row = world.store.row(&rows::mark_key(NODE, ClientId(1))).unwrap().unwrap();
        changes.put(&rows::mark_key(NODE, ClientId(2)), row);
    }),
];

fn index(index: u32) -> IndexId {
    IndexId { node: NODE, space: SPACE, index }
}

/// A person of an age that another one has, with all rows.
fn add_person(changes: &mut RowChanges, age: i64) {
    let slot = 50;
    changes.put(&rows::object_key(page(slot), slot), rows::encode_object(&person(PERSON, age)));
    changes.put(&rows::extent_key(PERSON, page(slot), slot), Bytes::new());
    [BY_AGE, BY_NUMBER].into_iter().for_each(|number| {
        changes.put(&index_rows::entry_key(index(number), &key(age), page(slot), slot), Bytes::new());
    });
}

fn put_prepared(changes: &mut RowChanges, participants: Vec<NodeId>, part: Part<Object>) {
    let txn = TxnId { start: HlcTimestamp(u64::MAX >> 2), client: ClientId(7) };
    let record = Record::Prepared { txn, participants, part, proposal: HlcTimestamp(9) };
    let row = encode_record(&record, Version { moves: 0, position: 2 });
    changes.put(&rows::txn_key(NODE, txn, 0), row);
}

#[test]
fn what_the_driver_writes_is_consistent() {
    let world = with_everything();
    assert_eq!(problems(&world.store), []);
}

#[test]
fn each_kind_of_wrong_row_is_found_and_nothing_else() {
    for (at, (expected, damage)) in DAMAGES.iter().enumerate() {
        let world = with_everything();
        commit(&world.store, |changes| damage(&world, changes));
        assert_eq!(kinds(&world.store), *expected, "damage {at}: {:?}", problems(&world.store));
    }
}

#[test]
fn check_continues_behind_any_portion() {
    let world = with_everything();
    commit(&world.store, |changes| add_person(changes, 5));
    commit(&world.store, |changes| changes.put(&rows::extent_key(PERSON, page(2), 99), Bytes::new()));
    let check = NodeCheck { store: &world.store, node: NODE, is_unique: &is_unique, reads_contents: true };
    let (mut found, mut place, mut portions) = (Vec::new(), Some(Place::first()), 0);
    while let Some(known) = &place {
        let from = Place::decode(&known.encode());
        check
            .run(from.clone(), |portion| {
                found.extend(portion.problems);
                place = portion.next;
                // A walk of objects for contents begins again.
                if place.as_ref() == Some(&from) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
            .unwrap();
        portions += 1;
    }
    assert!(portions > 20, "{portions}");
    assert_eq!(found, problems(&world.store));
}

/// A content of several portions.
#[test]
fn large_content_is_read_once_in_portions() {
    let mut world = with_everything();
    let id = world.stage(&[7; 32]);
    commit(&world.store, |changes| {
        let data = vec![7; 2_500_000].into();
        changes.content(ContentChange::Write { id, offset: 0, data });
        changes.put(&rows::staged_key(id), rows::encode_number(2_500_000));
    });
    let check = NodeCheck { store: &world.store, node: NODE, is_unique: &is_unique, reads_contents: true };
    let (mut read, mut portions) = (0, 0);
    check
        .run(Place::first(), |portion| {
            assert_eq!(portion.problems, []);
            read += portion.bytes;
            portions += 1;
            if portions < 1_000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .unwrap();
    assert!((2_500_000..2_600_000).contains(&read), "{read} bytes in {portions} portions");
}

#[test]
fn object_of_a_content_is_found_among_all_objects_if_there_is_one() {
    let world = with_everything();
    let check = NodeCheck { store: &world.store, node: NODE, is_unique: &is_unique, reads_contents: true };
    let (oid, content) = blob_row(&world.store);
    assert_eq!(check.find_owner(content.id).unwrap(), Some(oid));
    assert_eq!(check.find_owner(staged_content(&world.store)).unwrap(), None);
}

#[test]
fn repair_puts_right_what_can_be_and_nothing_else() {
    for (at, (_, damage)) in DAMAGES.iter().enumerate() {
        let mut world = with_everything();
        commit(&world.store, |changes| damage(&world, changes));
        for problem in problems(&world.store) {
            let is_by_driver = matches!(problem.remedy(), Remedy::Lossless | Remedy::Loses)
                && !matches!(problem, Problem::PageNotReserved { .. });
            let repaired = world.driver.repair(&problem, world.now).unwrap();
            world.carry_out();
            let expected = if is_by_driver { Repaired::Done } else { Repaired::Impossible };
            assert_eq!(repaired, expected, "damage {at}: {problem:?}");
            if is_by_driver {
                assert!(!problems(&world.store).contains(&problem), "damage {at}: {problem:?}");
                let again = world.driver.repair(&problem, world.now).unwrap();
                assert_eq!(again, Repaired::NotNeeded, "damage {at}: {problem:?}");
            }
        }
    }
}

#[test]
fn rows_with_changes_on_their_way_are_not_repaired() {
    let mut world = with_everything();
    commit(&world.store, |changes| changes.remove(&rows::extent_key(PERSON, page(2), 2)));
    let problem = Problem::ExtentMissing { oid: oid(PERSON, 2) };
    assert_eq!(problems(&world.store), std::slice::from_ref(&problem));
    let txn = world.next_txn();
    let writes = [(oid(PERSON, 2), ObjectState::Absent)].into();
    let request = Request::Commit { txn, part: Part { writes, ..Part::default() } };
    world.driver.handle_request(Requester::Node(NodeId(9)), request, HlcTimestamp::ZERO, world.now).unwrap();
    // The rows are handed over with the outputs, which are not carried out yet.
    assert_eq!(world.driver.repair(&problem, world.now).unwrap(), Repaired::Busy);
    world.carry_out();
    world.answers();
    assert_eq!(world.driver.repair(&problem, world.now).unwrap(), Repaired::NotNeeded);
    assert_eq!(problems(&world.store), []);
}

#[test]
fn changes_right_after_the_repair_of_a_count_continue_from_it() {
    let mut world = with_everything();
    let directories = [43, 44].map(|slot| oid(ClassId::NONE, slot));
    let directory = |oid| (oid, ObjectState::Value(Object::collection(Kind::Directory)));
    assert!(world.commit_part(Part { writes: directories.map(directory).into(), ..Part::default() }));
    let wrong = Totals { count: 8, modified: HlcTimestamp(1) };
    commit(&world.store, |changes| changes.put(&entry_rows::totals_key(collection()), wrong.encode()));
    let problem = problems(&world.store).pop().unwrap();
    assert_eq!(problem.kind(), "count_wrong");
    assert_eq!(world.driver.repair(&problem, world.now).unwrap(), Repaired::Done);
    // The repair is not durable when other collections change, so that totals are forgotten, and then this one.
    for changed in [&directories[..], &[collection()]] {
        let key = EntryKey::name("new").unwrap();
        let new =
            |collection: &Oid| (Entry { collection: *collection, key: key.clone() }, Some(oid(ClassId::NONE, BLOB)));
        let part = Part { entries: changed.iter().map(new).collect(), ..Part::default() };
        let request = Request::Commit { txn: world.next_txn(), part };
        world.driver.handle_request(Requester::Node(NodeId(9)), request, HlcTimestamp::ZERO, world.now).unwrap();
    }
    world.carry_out();
    world.answers();
    assert_eq!(problems(&world.store), []);
}

#[test]
fn mistakes_in_the_checks_are_noticed() {
    let all = || {
        rows_with_changes_on_their_way_are_not_repaired();
        what_the_driver_writes_is_consistent();
        index_that_is_built_is_not_complete();
        each_kind_of_wrong_row_is_found_and_nothing_else();
    };
    assert_noticed(CheckBug::ALL, all);
}

#[test]
fn index_that_is_built_is_not_complete() {
    let mut world = World::with_store(Store::in_memory(Options::default()).unwrap());
    (0..ROWS).for_each(|slot| world.put(PERSON, slot, i64::from(slot)));
    world.set_indexes(&[by_age(BY_AGE)]);
    let not_reserved = |problem: &Problem| matches!(problem, Problem::PageNotReserved { .. });
    let found: Vec<Problem> = problems(&world.store).into_iter().filter(|one| !not_reserved(one)).collect();
    assert_eq!(found, []);
}
