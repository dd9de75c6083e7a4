//! Scans of indexes, and indexes that are built and dropped.

use model::planted_bug::assert_noticed;

use super::*;

#[test]
fn ranges_come_in_order_either_way_from_a_place_on_filtered_and_counted() {
    let mut world = World::with_index();
    for slot in 0..40 {
        world.put(if slot % 2 == 0 { PERSON } else { STUDENT }, slot, i64::from(slot * 7 % 10));
    }
    let mut expected = world.expected_index();
    for limit in [1, 7, 100] {
        assert_eq!(world.ages(BY_AGE, false, limit), expected);
    }
    expected.reverse();
    assert_eq!(world.ages(BY_AGE, true, 3), expected);
    let within = world.scan(scan_request(Some(ages(3, Some(6), true)))).unwrap();
    assert_eq!(
        within.found.iter().map(|(_, _, object)| age(object)).collect::<Vec<_>>(),
        [[5; 4], [4; 4], [3; 4]].concat()
    );
    let students = world.scan(Scan { classes: [STUDENT].into(), ..scan_request(Some(ages(3, None, false))) }).unwrap();
    assert!(students.found.iter().all(|(oid, _, object)| oid.class() == STUDENT && age(object) == 3));
    assert_eq!((students.found.len(), students.examined), (4, 4));
    let operand = Operand::new(Value::Int64(5)).unwrap();
    let filter = Some(Filter::compare(AGE, Comparison::Greater, operand));
    let filtered = world.scan(Scan { filter, ..scan_request(Some(ages(3, Some(8), false))) }).unwrap();
    assert_eq!((filtered.count, filtered.examined), (8, 20));
    let counted = world.scan(Scan { count: true, ..scan_request(Some(ages(0, Some(6), false))) }).unwrap();
    assert_eq!((counted.count, counted.found.len(), counted.examined), (24, 0, 0));
    let counted = world.scan(Scan { count: true, ..scan_request(None) }).unwrap();
    assert_eq!((counted.count, counted.next), (40, None));
    // Guards come with the first answer only.
    let after = Some(ScanPosition { key: key(3).into(), oid: oid(PERSON, 0) });
    assert_eq!(world.scan(Scan { after, ..scan_request(Some(everything(BY_AGE))) }).unwrap().guards, []);
}

#[test]
fn answer_of_a_scan_is_limited_by_its_bytes() {
    let mut world = World::with_index();
    let mut record = RecordBuilder::new();
    record.set(NAME, "x".repeat(300_000).as_str()).unwrap().set(AGE, 20_i64).unwrap();
    let large = Object::record(PERSON, record.build().unwrap());
    for slot in 0..6 {
        let answer = world.commit(&[], oid(PERSON, slot), ObjectState::Value(large.clone()));
        assert!(matches!(answer, Answer::Ended { .. }), "{answer:?}");
    }
    let found = |world: &World| {
        let scanned = world.scan(Scan { limit: 100, ..scan_request(None) }).unwrap();
        (scanned.found.len(), scanned.next.is_some())
    };
    assert_eq!(found(&world), (4, true));
    // Attributes are sent, too.
    for slot in 0..6 {
        let mut small = person(PERSON, 20);
        small.set_attribute("note".into(), Some(vec![7; 600_000].into()));
        world.commit(&[], oid(PERSON, slot), ObjectState::Value(small));
    }
    assert_eq!(found(&world), (2, true));
}

#[test]
fn index_that_is_not_there_or_not_whole_or_damaged_is_refused_by_name() {
    let mut world = World::with_index();
    let refusal = |world: &World, index| {
        let error = world.scan(scan_request(Some(everything(index)))).unwrap_err();
        (error.kind(), error.message().to_owned())
    };
    let (kind, words) = refusal(&world, 8);
    assert!(kind == ErrorKind::NotFound && words.contains("index 8 of space 1 at logical node 3"), "{words}");
    // Something is prepared that the node has not entered in the index.
    let writes: Writes<Object> = [(oid(PERSON, 1), ObjectState::Value(person(PERSON, 20)))].into();
    world.begin(Vec::new(), writes, false);
    world.answer_all();
    world.set_indexes(&[by_age(BY_AGE), by_age(8)]);
    world.poll();
    let (kind, words) = refusal(&world, 8);
    assert!(kind == ErrorKind::Unavailable && words.contains("is not complete for class 1"), "{words}");
    assert!(world.driver.index_progress(IndexId { node: NODE, space: SPACE, index: 8 }).unwrap().is_some());
    world.decide(true);
    world.settle();
    assert_eq!(world.ages(8, false, 10), [(20, 1)]);
    let mut gone = RowChanges::new();
    gone.remove(&rows::object_key(page(1), 1));
    world.store.commit_rows(gone).unwrap();
    let (kind, words) = refusal(&world, 8);
    assert!(kind == ErrorKind::Corrupt && words.contains("an entry names an object that does not exist"), "{words}");
    let error = world.scan(scan_request(None)).unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.message().contains("extent of class 1"), "{error}");
}

#[test]
fn removed_index_leaves_nothing() {
    assert_noticed(&[Bug::DroppedIndexKept], check_removed_index);
}

fn check_removed_index() {
    let mut world = World::with_index();
    (0..20).for_each(|slot| world.put(PERSON, slot, i64::from(slot)));
    world.set_indexes(&[]);
    assert_eq!(world.scan(scan_request(Some(everything(BY_AGE)))).unwrap_err().kind(), ErrorKind::NotFound);
    let mut world = world.reopen();
    world.settle();
    assert_eq!(world.entries(BY_AGE), []);
    let mut marks = 0;
    let (from, to) = index_rows::marks_range(NODE);
    let count = |_: &[u8], _: &[u8]| {
        marks += 1;
        ControlFlow::Continue(())
    };
    world.store.rows(&from, &to, count).unwrap();
    assert_eq!(marks, 0);
}

#[test]
fn index_is_built_in_portions_with_pauses() {
    let mut world = World::with_store(Store::in_memory(Options::default()).unwrap());
    (0..40).for_each(|slot| world.put(PERSON, slot, i64::from(slot)));
    world.set_indexes(&[by_age(BY_AGE)]);
    let entered = world.entries(BY_AGE).len();
    for _ in 0..20 {
        world.driver.poll(world.now);
        world.carry_out();
    }
    assert_eq!(world.entries(BY_AGE).len(), entered, "the next portion is not due");
    assert!(entered < 40);
    world.settle();
    assert_eq!(world.entries(BY_AGE).len(), 40);
}

/// How many objects are entered in this time of the test's clock.
fn enter_for(world: &mut World, ms: Ms) -> usize {
    let (before, until) = (world.entries(BY_AGE).len(), world.now + ms);
    while world.now < until {
        world.driver.poll(world.now);
        world.carry_out();
        world.now += 1;
    }
    world.entries(BY_AGE).len() - before
}

#[test]
fn index_is_built_at_the_rate_of_its_job_and_not_while_that_is_paused() {
    let mut world = World::with_store(Store::in_memory(Options::default()).unwrap());
    (0..300).for_each(|slot| world.put(PERSON, slot, i64::from(slot)));
    let pace = |world: &mut World, pace| world.driver.set_index_paces(&[(BY_AGE, pace)].into(), world.now);
    pace(&mut world, BuildPace::Paused);
    world.set_indexes(&[by_age(BY_AGE)]);
    assert_eq!(enter_for(&mut world, 5_000), 0, "it is paused");
    pace(&mut world, BuildPace::Rate(20));
    let entered = enter_for(&mut world, 5_000);
    assert!((80..=120).contains(&entered), "{entered} at 20/s in 5 s");
    pace(&mut world, BuildPace::Paused);
    assert_eq!(enter_for(&mut world, 5_000), 0, "it is paused again");
    // Changes are entered whatever the pace.
    world.put(PERSON, 299, 7);
    assert_eq!(enter_for(&mut world, 100), 0);
    world.driver.set_index_paces(&BTreeMap::new(), world.now);
    enter_for(&mut world, 5_000);
    assert_eq!(world.ages(BY_AGE, false, 1_000), world.expected_index());
}

#[test]
fn index_that_comes_back_before_its_entries_are_removed_is_built_again() {
    let mut world = World::with_index();
    (0..20).for_each(|slot| world.put(PERSON, slot, i64::from(slot)));
    world.set_indexes(&[]);
    world.set_indexes(&[by_age(BY_AGE)]);
    assert_eq!(world.scan(scan_request(Some(everything(BY_AGE)))).unwrap_err().kind(), ErrorKind::NotFound);
    world.settle();
    assert_eq!(world.ages(BY_AGE, false, 10), world.expected_index());
}

#[test]
fn class_that_is_new_below_an_indexed_one_is_in_the_index() {
    let mut world = World::with_store(Store::in_memory(Options::default()).unwrap());
    world.set_indexes(&[IndexSpec { classes: vec![PERSON], ..by_age(BY_AGE) }]);
    world.settle();
    // The writer knows the class; this logical node does not know it yet.
    world.put(STUDENT, 1, 20);
    let error = world.scan(scan_request(Some(everything(BY_AGE)))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    world.set_indexes(&[by_age(BY_AGE)]);
    world.settle();
    assert_eq!(world.ages(BY_AGE, false, 10), [(20, 1)]);
}

/// A field that was added later is missing in older objects.
#[test]
fn object_that_lacks_a_field_is_in_an_index_of_it() {
    assert_noticed(&[Bug::LackingNotEntered], || {
        let mut world = World::with_store(Store::in_memory(Options::default()).unwrap());
        let mut record = RecordBuilder::new();
        record.set(NAME, "Ada").unwrap();
        let older = Object::record(PERSON, record.build().unwrap());
        let answer = world.commit(&[], oid(PERSON, 1), ObjectState::Value(older));
        assert!(matches!(answer, Answer::Ended { .. }), "{answer:?}");
        world.put(PERSON, 2, 20);
        world.set_indexes(&[by_age(BY_AGE)]);
        world.settle();
        assert_eq!(world.entries(BY_AGE).len(), 2);
    });
}

#[test]
fn marks_are_read_as_they_were_written() {
    let id = IndexId { node: NODE, space: SPACE, index: 1 };
    for mark in [Mark::Building(vec![AGE]), Mark::Complete(vec![AGE, NAME]), Mark::Removing] {
        assert_eq!(Mark::decode(id, &mark.encode()).unwrap(), mark);
    }
    for damaged in [&b""[..], &[1], &[2, 0, 0, 0], &[9, 0, 0, 0, 1]] {
        assert_eq!(Mark::decode(id, damaged).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

/// Found by the simulation: guards of an index that was dropped are not touched, so a scan of it that was made before misses what comes.
#[test]
fn scan_of_an_index_that_was_dropped_conflicts() {
    let is_refused = |range| {
        let mut world = World::with_index();
        let guards = world.scan(scan_request(Some(range))).unwrap().guards;
        world.set_indexes(&[]);
        world.put(PERSON, 1, 20);
        let answer = world.commit(&guards, oid(ClassId::NONE, 9), ObjectState::Value(Object::blob("x".into())));
        is_refused_for(&answer, guards[0].oid)
    };
    for range in [everything(BY_AGE), ages(20, None, false)] {
        assert!(is_refused(range.clone()));
        let _planted = plant(Bug::DroppedIndexTrusted);
        assert!(!is_refused(range), "without the rule it is missed");
    }
}

/// Found by the simulation: a transaction had prepared with what it had found in an index when the index was dropped. An object that the
/// index would have had was inserted before the outcome, and no order of the two explained what both had read elsewhere.
#[test]
fn prepared_transaction_that_has_scanned_an_index_keeps_its_guards_when_it_is_dropped() {
    let conflicts = || {
        let mut world = World::with_index();
        let guards = world.scan(scan_request(Some(everything(BY_AGE)))).unwrap().guards;
        let blob = |slot| (oid(ClassId::NONE, slot), ObjectState::Value(Object::blob("x".into())));
        world.begin(guards.to_vec(), [blob(8)].into(), false);
        world.answer_all();
        world.set_indexes(&[]);
        let insert = |world: &mut World| {
            let inserted = world.commit(&[], oid(PERSON, 1), ObjectState::Value(person(PERSON, 20)));
            matches!(inserted, Answer::Ended { outcome: Outcome::Committed(_), .. })
        };
        let is_held = !insert(&mut world);
        let (at, content) = blob(9);
        let other = world.commit(&guards, at, content);
        assert!(is_refused_for(&other, guards[0].oid), "no other transaction relies on the index");
        world.decide(false);
        world.answer_all();
        assert!(insert(&mut world), "the transaction is decided");
        is_held
    };
    assert!(conflicts());
    let _planted = plant(Bug::DroppedAtOnce);
    assert!(!conflicts(), "the bug is noticed");
}
