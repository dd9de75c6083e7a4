//! Nothing is written of what is being removed, and emptiness is decided when all is decided and durable.

use meta::catalog::Removals;
use model::planted_bug::assert_noticed;

use super::*;

fn space_removed() -> Removals {
    Removals { space: Some(1), ..Removals::default() }
}

fn class_removed(class: ClassId) -> Removals {
    Removals { space: None, classes: [(class.0, 1)].into() }
}

/// Whether a write is accepted; one that is deferred has no answer.
fn is_accepted(world: &mut World, oid: Oid, content: ObjectState<Object>) -> bool {
    let txn = world.begin(Vec::new(), [(oid, content)].into(), true);
    let is_answered = world.answers().iter().any(|answer| answer.txn() == txn);
    world.open.remove(&txn);
    is_answered
}

impl World {
    fn has_objects(&self, space: SpaceId, class: Option<ClassId>) -> Result<bool> {
        self.driver.object_search(space, class).has_any()
    }
}

fn blob() -> ObjectState<Object> {
    ObjectState::Value(Object::blob("x".into()))
}

fn check_nothing_is_written_in_a_removed_space() {
    let mut world = World::with_index();
    world.driver.set_removals(&space_removed());
    assert!(!is_accepted(&mut world, oid(ClassId::NONE, 1), blob()));
    assert!(world.driver.check_space_stays().is_err());
    world.driver.set_removals(&Removals::default());
    assert!(is_accepted(&mut world, oid(ClassId::NONE, 1), blob()));
    assert!(world.has_objects(SPACE, None).unwrap() && world.driver.check_space_stays().is_ok());
}

#[test]
fn nothing_is_written_in_a_space_that_is_being_removed() {
    check_nothing_is_written_in_a_removed_space();
    assert_noticed(&[Bug::RemovedSpaceWritten], check_nothing_is_written_in_a_removed_space);
}

fn check_no_object_of_a_removed_class_is_written() {
    let mut world = World::with_index();
    world.put(PERSON, 1, 30);
    world.driver.set_removals(&class_removed(PERSON));
    assert!(world.has_objects(SPACE, Some(PERSON)).unwrap());
    assert!(!world.has_objects(SPACE, Some(STUDENT)).unwrap());
    let written = ObjectState::Value(person(PERSON, 3));
    assert!(!is_accepted(&mut world, oid(PERSON, 2), written.clone()));
    let why = world.sent.iter().find_map(|message| match message {
        Message::Deferred { kind: ErrorKind::Unavailable, why, .. } => Some(&**why),
        _ => None,
    });
    assert!(why.unwrap().starts_with("class 1 is being removed"), "{why:?}");
    assert!(!is_accepted(&mut world, oid(PERSON, 1), written.clone()));
    assert!(is_accepted(&mut world, oid(STUDENT, 2), ObjectState::Value(person(STUDENT, 3))), "another class");
    assert!(is_accepted(&mut world, oid(PERSON, 1), ObjectState::Absent), "it is deleted");
    assert!(!world.has_objects(SPACE, Some(PERSON)).unwrap());
    world.driver.set_removals(&Removals::default());
    assert!(is_accepted(&mut world, oid(PERSON, 1), written));
}

#[test]
fn no_object_of_a_class_that_is_being_removed_is_written() {
    check_no_object_of_a_removed_class_is_written();
    assert_noticed(&[Bug::RemovedClassWritten], check_no_object_of_a_removed_class_is_written);
}

fn check_prepared_work_is_waited_for() {
    let mut world = World::with_index();
    world.begin(Vec::new(), [(oid(PERSON, 1), ObjectState::Value(person(PERSON, 3)))].into(), false);
    world.answer_all();
    world.driver.set_removals(&class_removed(PERSON));
    let accepted = world.driver.accepted_work();
    assert!(!world.driver.has_ended(&accepted), "it may be committed");
    world.decide(true);
    world.answer_all();
    assert!(world.driver.has_ended(&accepted) && world.has_objects(SPACE, Some(PERSON)).unwrap());
}

#[test]
fn emptiness_waits_for_prepared_transactions() {
    check_prepared_work_is_waited_for();
    assert_noticed(&[Bug::EmptyBeforeDecided], check_prepared_work_is_waited_for);
}

fn check_undurable_work_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_store(Store::open(dir.path(), Options::default()).unwrap());
    world.begin(Vec::new(), [(oid(PERSON, 1), ObjectState::Value(person(PERSON, 3)))].into(), true);
    let accepted = world.driver.accepted_work();
    // What the store has done is not handled yet.
    assert!(!world.driver.has_ended(&accepted));
    world.answer_all();
    assert!(world.driver.has_ended(&accepted) && world.has_objects(SPACE, Some(PERSON)).unwrap());
}

#[test]
fn emptiness_waits_for_what_is_not_durable() {
    check_undurable_work_is_waited_for();
    assert_noticed(&[Bug::EmptyBeforeDurable], check_undurable_work_is_waited_for);
}

/// A space is not removed with its objects because they are counted wrongly, and pages without objects do not keep it.
#[test]
fn objects_are_looked_for_and_not_counted() {
    let mut world = World::with_index();
    world.put(PERSON, 1, 30);
    let mut wrong = RowChanges::new();
    wrong.put(&rows::usage_key(NODE), NodeUsage::default().encode());
    world.store.commit_rows(wrong).unwrap();
    let mut world = world.reopen();
    assert_eq!(world.driver.usage(), NodeUsage::default());
    assert!(world.has_objects(SPACE, None).unwrap());
    world.commit(&[], oid(PERSON, 1), ObjectState::Absent);
    assert!(!world.has_objects(SPACE, None).unwrap());
    let heads = world.store.row(&rows::head_key(oid(PERSON, 1).page())).unwrap();
    assert!(heads.is_some(), "the page has a head");
}
