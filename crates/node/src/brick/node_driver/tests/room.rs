//! What a full store in memory still takes.

use model::{Entry, EntryKey, Kind};

use super::*;

/// Fills a store in memory with something else.
fn fill(store: &Store) {
    for number in 0_u32.. {
        if store.is_memory_full() {
            return;
        }
        let mut rows = RowChanges::new();
        rows.put(&[b"other".as_slice(), &number.to_be_bytes()].concat(), vec![0; 64 << 10].into());
        // The first that has no room is told so.
        let _ = store.commit_rows(rows);
    }
}

fn with_little_room() -> World {
    World::with_store(Store::in_memory(Options { memory_bytes: 8 << 20, ..Options::default() }).unwrap())
}

#[test]
fn what_was_taken_is_answered_again_when_there_is_no_room_any_more() {
    let mut world = with_little_room();
    let part = |slot| {
        let writes = [(oid(ClassId::NONE, slot), ObjectState::Value(Object::blob("something".into())))].into();
        Part { writes, ..Part::default() }
    };
    let (prepared, committed) = (world.next_txn(), world.next_txn());
    let prepare = Request::Prepare { txn: prepared, participants: vec![NODE, NodeId(8)], part: part(1) };
    let commit = Request::Commit { txn: committed, part: part(2) };
    for request in [&prepare, &commit] {
        world.ask(request.clone());
    }
    let first = world.answer_all();
    assert!(matches!(first[..], [Answer::Prepared { .. }, Answer::Ended { .. }]), "{first:?}");
    fill(&world.store);
    for request in [prepare, commit] {
        world.ask(request);
    }
    assert_eq!(world.answer_all(), first);
    let txn = world.next_txn();
    world.ask(Request::Commit { txn, part: part(3) });
    assert_eq!(world.answer_all(), [], "what comes for the first time is held");
}

#[test]
fn lease_that_ends_while_the_store_has_no_room_is_not_waited_for() {
    let mut world = World::with_index();
    world.stage(b"bytes");
    let txn = world.next_txn();
    let writes = [(oid(ClassId::NONE, 1), ObjectState::Value(Object::blob("something".into())))].into();
    let request = Request::Commit { txn, part: Part { writes, ..Part::default() } };
    world.driver.handle_request(Requester::Node(NodeId(9)), request, HlcTimestamp::ZERO, world.now).unwrap();
    let mut refused = None;
    while let Some(output) = world.driver.next_output() {
        if let DriverOutput::SubmitRows { life, rows } = output {
            refused = Some(rows);
            world.driver.handle_written(life, Err(Error::new(ErrorKind::Full, "the disk is full")), world.now);
        }
    }
    assert!(refused.is_some() && world.driver.health_problem().is_some());
    world.now += 2 * super::super::STAGING_LEASE_MS;
    world.driver.poll(world.now);
    // Rows are submitted again to see whether there is room, and are refused again.
    while let Some(output) = world.driver.next_output() {
        if let DriverOutput::SubmitRows { life, .. } = output {
            world.driver.handle_written(life, Err(Error::new(ErrorKind::Full, "the disk is full")), world.now);
        }
    }
    assert!(world.driver.deadline() > world.now, "nothing can be done at once");
    while world.driver.health_problem().is_some() {
        world.now = world.driver.deadline();
        world.driver.poll(world.now);
        world.carry_out();
    }
    world.poll();
    assert_eq!(world.driver.staged_bytes(), 0, "there is room again: the lease has ended");
}

#[test]
fn to_delete_what_is_not_there_needs_no_room() {
    let mut world = with_little_room();
    let place = |number| Oid::new(ClassId::NONE, PageId { number, ..page(0) }, 1);
    // An aborted transaction was about to create most of them.
    let creates = (1_000..1_100).map(|number| (place(number), ObjectState::Value(Object::blob("new".into()))));
    world.begin(Vec::new(), creates.collect(), false);
    world.answer_all();
    world.decide(false);
    world.answer_all();
    // Somebody is about to create one of them, which nobody sees yet.
    let creates = [(place(7), ObjectState::Value(Object::blob("new".into())))].into();
    world.begin(Vec::new(), creates, false);
    world.answer_all();
    fill(&world.store);
    let heads = |world: &World| {
        (1_000..1_100)
            .filter(|number| rows::read_head(&world.store, place(*number).page()).unwrap().version != Version::ZERO)
            .count()
    };
    for number in 1_000..1_100 {
        let answer = world.commit(&[], place(number), ObjectState::Absent);
        assert!(matches!(answer, Answer::Ended { outcome: Outcome::Committed(_), .. }), "{answer:?}");
    }
    assert_eq!(heads(&world), 0);
    let answer = world.commit(&[], place(7), ObjectState::Absent);
    assert!(is_refused_for(&answer, place(7)), "{answer:?}");
    world.decide(true);
    world.answer_all();
    assert!(matches!(world.commit(&[], place(7), ObjectState::Absent), Answer::Ended { .. }));
    assert_eq!(rows::read_object(&world.store, place(7).page(), 1).unwrap(), None);
}

#[test]
fn full_store_takes_no_change_that_needs_more_room_than_it_frees() {
    let mut world = with_little_room();
    let place = |number| Oid::new(ClassId::NONE, PageId { number, ..page(0) }, 1);
    let blob = || ObjectState::Value(Object::blob("something".into()));
    assert!(matches!(world.commit(&[], place(7), blob()), Answer::Ended { .. }));
    assert_eq!(world.driver.health_problem(), None);
    fill(&world.store);
    let problem = world.driver.health_problem().expect("the store is full");
    assert!(problem.contains("takes no changes"), "{problem}");
    // The object moves to a page of its own, which needs a head.
    let txn = world.next_txn();
    let writes: Writes<Object> = [(place(7), ObjectState::Absent), (place(8), blob())].into();
    world.ask(Request::Commit { txn, part: Part { writes, ..Part::default() } });
    assert_eq!(world.answer_all(), []);
    // To replace an object by one of the same size, or to delete it, needs no more room.
    for content in [blob(), ObjectState::Absent] {
        let answer = world.commit(&[], place(7), content);
        assert!(matches!(answer, Answer::Ended { outcome: Outcome::Committed(_), .. }), "{answer:?}");
    }
}

#[test]
fn full_store_takes_names_that_are_not_longer_than_those_they_replace() {
    let mut world = with_little_room();
    let collection = oid(ClassId::NONE, 1);
    let entry = |name: &str| Entry { collection, key: EntryKey::name(name).unwrap() };
    let (long, short, target) = ("l".repeat(200), "short", Some(oid(ClassId::NONE, 2)));
    let writes = [(collection, ObjectState::Value(Object::collection(Kind::Directory)))].into();
    let txn = world.next_txn();
    let entries = [(entry(short), target)].into();
    world.ask(Request::Commit { txn, part: Part { writes, entries, ..Part::default() } });
    assert!(matches!(world.answer_all()[..], [Answer::Ended { .. }]));
    fill(&world.store);
    let mut rename = |from: &str, to: &str| {
        let txn = world.next_txn();
        let entries = [(entry(from), None), (entry(to), target)].into();
        world.ask(Request::Commit { txn, part: Part { entries, ..Part::default() } });
        !world.answer_all().is_empty()
    };
    assert!(!rename(short, &long), "it needs room");
    assert!(rename(short, "s"));
}
