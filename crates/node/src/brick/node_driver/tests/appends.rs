//! The offsets of appends: the first answer and each repeated one have the same (C3).

use bytes::Bytes;
use model::planted_bug::assert_noticed;
use model::{ContentOp, ContentPatch};

use super::*;

fn blob(slot: u16) -> Oid {
    oid(ClassId::NONE, slot)
}

fn append(bytes: &Bytes) -> ContentOp {
    ContentOp::Append { data: bytes.clone() }
}

fn patch(oid: Oid, ops: Vec<ContentOp>) -> Part<Object> {
    Part { writes: [(oid, ObjectState::Changed(ContentPatch::new(ops).encode()))].into(), ..Part::default() }
}

/// A logical node whose first blob has these bytes.
fn world_with(bytes: Vec<u8>) -> World {
    let mut world = World::with_store(Store::in_memory(Options::default()).unwrap());
    world.commit(&[], blob(1), ObjectState::Value(Object::blob(bytes.into())));
    world
}

/// The offset in the answer to a request about the first blob, if the transaction is prepared or committed.
fn offset(world: &mut World, request: Request<Object>) -> Option<u64> {
    let txn = request.txn();
    world.ask(request);
    let answer = world.answer_all().into_iter().find(|answer| answer.txn() == txn);
    match answer? {
        Answer::Prepared { offsets, .. } => offsets.get(&blob(1)).copied(),
        Answer::Ended { outcome: Outcome::Committed(_), offsets, .. } => offsets.get(&blob(1)).copied(),
        _ => None,
    }
}

#[test]
fn repeated_append_returns_the_first_offset_also_after_a_restart() {
    // In the page, and in a content.
    for size in [5, 100_000] {
        let mut world = world_with(vec![1; size]);
        let txn = world.next_txn();
        let commit = || Request::Commit { txn, part: patch(blob(1), vec![append(&"line".into())]) };
        assert_eq!(offset(&mut world, commit()), Some(size as u64));
        let other = world.next_txn();
        let later = Request::Commit { txn: other, part: patch(blob(1), vec![append(&"more".into())]) };
        assert_eq!(offset(&mut world, later), Some(size as u64 + 4));
        assert_eq!(offset(&mut world, commit()), Some(size as u64), "the blob is longer now");
        let mut world = world.reopen();
        assert_eq!(offset(&mut world, commit()), Some(size as u64));
        assert_eq!(offset(&mut world, Request::Ask { txn, round: 0 }), Some(size as u64));
    }
}

#[test]
fn prepared_append_keeps_its_offset_over_restarts_until_its_outcome() {
    let mut world = world_with(vec![1; 5]);
    let txn = world.next_txn();
    let participants = vec![NODE, NodeId(8)];
    let part = patch(blob(1), vec![ContentOp::Truncate { size: 3 }, append(&"line".into()), append(&"more".into())]);
    let prepare = Request::Prepare { txn, participants, part };
    assert_eq!(offset(&mut world, prepare.clone()), Some(3));
    let other = world.next_txn();
    let rival = Request::Commit { txn: other, part: patch(blob(1), vec![append(&"x".into())]) };
    assert_eq!(offset(&mut world, rival), None, "the prepared one may abort");
    let mut world = world.reopen();
    assert_eq!(offset(&mut world, prepare.clone()), Some(3));
    let at = world.driver.clock();
    let decide = || Request::Decide { txn, outcome: Outcome::Committed(at) };
    assert_eq!(offset(&mut world, decide()), Some(3));
    let mut world = world.reopen();
    for request in [decide(), prepare, Request::Ask { txn, round: 0 }] {
        assert_eq!(offset(&mut world, request), Some(3));
    }
    let stored = rows::read_object(&world.store, page(1), 1).unwrap().unwrap();
    assert_eq!(stored.data, [&[1; 3][..], b"linemore"].concat());
}

#[test]
fn appends_that_are_not_durable_yet_follow_each_other() {
    let mut world = world_with(vec![1; 5]);
    let txns: Vec<TxnId> = (0..3).map(|_| world.next_txn()).collect();
    for txn in &txns {
        let commit = Request::Commit { txn: *txn, part: patch(blob(1), vec![append(&"line".into())]) };
        // Its rows are submitted with those of the others.
        world.driver.handle_request(Requester::Node(NodeId(9)), commit, HlcTimestamp::ZERO, world.now).unwrap();
    }
    world.carry_out();
    let told = |answer| match answer {
        Answer::Ended { txn, offsets, .. } => (txn, offsets.get(&blob(1)).copied()),
        other => panic!("{other:?}"),
    };
    let told: Vec<_> = world.answer_all().into_iter().map(told).collect();
    assert_eq!(told, [(txns[0], Some(5)), (txns[1], Some(9)), (txns[2], Some(13))]);
}

#[test]
fn transaction_without_appends_has_no_offsets() {
    let mut world = world_with(vec![1; 5]);
    let txn = world.next_txn();
    let part = patch(blob(1), vec![ContentOp::Write { offset: 1, data: "x".into() }]);
    world.ask(Request::Commit { txn, part });
    let answers = world.answer_all();
    assert!(matches!(&answers[..], [Answer::Ended { offsets, .. }] if offsets.is_empty()), "{answers:?}");
}

#[test]
fn wrong_offsets_are_noticed() {
    assert_noticed(&[Bug::DurableAppendOffset], appends_that_are_not_durable_yet_follow_each_other);
}

#[test]
fn lost_offsets_are_noticed() {
    let bug = &[protocol::plant::Bug::OffsetsForgotten];
    assert_noticed(bug, repeated_append_returns_the_first_offset_also_after_a_restart);
    assert_noticed(bug, prepared_append_keeps_its_offset_over_restarts_until_its_outcome);
}
