//! What the objects of a logical node take is counted with their changes.

use model::planted_bug::assert_noticed;

use super::*;
use crate::brick::node_usage::DurableCounts;

impl World {
    /// What the objects take that there must be.
    fn expected_usage(&self) -> NodeUsage {
        let mut usage = NodeUsage::default();
        self.model.values().for_each(|object| usage.count(object.total_size()));
        usage
    }

    pub(super) fn check_usage(&self) {
        assert_eq!(NodeUsage::read(&self.store, NODE).unwrap(), self.expected_usage());
        assert_eq!(self.driver.usage(), self.expected_usage());
    }
}

fn blob(text: &'static str) -> ObjectState<Object> {
    ObjectState::Value(Object::blob(text.into()))
}

#[test]
fn objects_are_counted_when_they_come_change_and_go() {
    let mut world = World::with_index();
    world.check_usage();
    let mut named = Object::blob("12345".into());
    named.set_attribute("colour".into(), Some("red".into()));
    world.commit(&[], oid(ClassId::NONE, 1), ObjectState::Value(named));
    world.check_usage();
    assert_eq!(world.driver.usage(), NodeUsage { objects: 1, bytes: 5 + 6 + 3 }, "attributes count");
    world.put(PERSON, 2, 30);
    world.commit(&[], oid(ClassId::NONE, 1), blob("123"));
    world.check_usage();
    world.commit(&[], oid(PERSON, 2), ObjectState::Absent);
    world.commit(&[], oid(ClassId::NONE, 5), ObjectState::Absent);
    world.check_usage();
    assert_eq!(world.driver.usage(), NodeUsage { objects: 1, bytes: 3 });
    let world = world.reopen();
    world.check_usage();
}

#[test]
fn prepared_objects_are_counted_when_they_are_committed() {
    let mut world = World::with_index();
    for commits in [false, true] {
        world.begin(Vec::new(), [(oid(ClassId::NONE, 1), blob("12345"))].into(), false);
        world.answer_all();
        assert_eq!(world.driver.usage(), NodeUsage::default());
        world = world.reopen();
        world.decide(commits);
        world.answer_all();
        world.check_usage();
    }
    assert_eq!(world.driver.usage(), NodeUsage { objects: 1, bytes: 5 });
}

#[test]
fn wrong_count_is_corrected_by_what_was_found() {
    let mut world = World::with_index();
    world.commit(&[], oid(ClassId::NONE, 1), blob("12345"));
    let counted = NodeUsage { objects: 4, bytes: 1 };
    let mut wrong = RowChanges::new();
    wrong.put(&rows::usage_key(NODE), counted.encode());
    world.store.commit_rows(wrong).unwrap();
    let mut world = world.reopen();
    let (found, before) = (world.expected_usage(), world.driver.durable_counts());
    // Something is written between the look at the store and the correction.
    world.commit(&[], oid(ClassId::NONE, 2), blob("123"));
    world.driver.correct_usage(before, (counted, found), world.now).unwrap();
    world.carry_out();
    world.answer_all();
    world.check_usage();
    // Another scrub has found the same.
    assert!(world.driver.correct_usage(before, (counted, found), world.now).is_err());
    world.check_usage();
    // This one would count a state after the correction.
    let (right, before) = (world.expected_usage(), world.driver.durable_counts());
    world.driver.correct_usage(before, (right, right), world.now).unwrap();
    // While that is not durable, a state may lack it.
    assert_eq!(world.driver.durable_counts(), before);
    assert!(world.driver.correct_usage(before, (counted, found), world.now).is_err());
    world.carry_out();
    world.answer_all();
    world.check_usage();
    let earlier = DurableCounts { opening: 0, ..world.driver.durable_counts() };
    assert!(world.driver.correct_usage(earlier, (counted, found), world.now).is_err());
    world.check_usage();
}

fn check_row_moves() {
    let row = rows::usage_key(NODE);
    assert!(rows::belongs_to(NODE, &row) && !rows::belongs_to(NodeId(4), &row));
    assert!(rows::ranges(NODE).any(|(from, to)| from <= row && row < to));
}

#[test]
fn count_moves_with_the_logical_node() {
    check_row_moves();
    assert_noticed(&[Bug::UsageNotMoved], check_row_moves);
}
