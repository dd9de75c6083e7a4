//! What is written of outcomes that everybody has heard of.

use protocol::commit::client_mark::ClientMark;
use wire::cluster::decode_record;

use super::*;

/// Whether a row says who has still to acknowledge how a transaction has ended.
fn is_open(store: &Store, txn: TxnId) -> bool {
    let row = store.row(&rows::txn_key(NODE, txn, 0)).unwrap().unwrap();
    match decode_record(&row).unwrap().1 {
        Record::Ended { acknowledged, .. } => !acknowledged,
        other => panic!("{other:?}"),
    }
}

/// A transaction that has ended here.
fn ended(world: &mut World) -> TxnId {
    let writes: Writes<Object> = [(oid(ClassId::NONE, 1), ObjectState::Value(Object::blob("x".into())))].into();
    let txn = world.begin(Vec::new(), writes, false);
    world.answer_all();
    world.decide(true);
    world.answer_all();
    assert!(is_open(&world.store, txn));
    txn
}

fn forget(world: &mut World, txn: TxnId) {
    world.ask(Request::Forget { txn });
    world.answer_all();
}

#[test]
fn marks_go_to_the_store_with_what_somebody_waits_for() {
    let mut world = World::with_store(Store::in_memory(Options::default()).unwrap());
    let first = ended(&mut world);
    forget(&mut world, first);
    ended(&mut world);
    let mark = ClientMark::new(first.start.next(), Vec::new()).unwrap();
    let keys = [rows::txn_key(NODE, first, 0).to_vec(), rows::mark_key(NODE, first.client).to_vec()];
    let stored = |world: &World| keys.each_ref().map(|key| world.store.row(key).unwrap().is_some());

    world.ask(Request::Heard { txn: first, mark });
    world.answer_all();
    assert_eq!(stored(&world), [true, false]);
    ended(&mut world);
    assert_eq!(stored(&world), [false, true]);
}

#[test]
fn acknowledgements_go_to_the_store_with_what_somebody_waits_for_or_when_it_is_time() {
    let mut world = World::with_store(Store::in_memory(Options::default()).unwrap());
    let first = ended(&mut world);
    forget(&mut world, first);
    assert!(is_open(&world.store, first));
    let second = ended(&mut world);
    assert!(!is_open(&world.store, first));

    forget(&mut world, second);
    assert!(is_open(&world.store, second));

    let third = ended(&mut world);
    forget(&mut world, third);
    assert!(is_open(&world.store, third));
    world.poll();
    assert!(!is_open(&world.store, third));

    let many: Vec<TxnId> = (0..ROW_BATCH).map(|_| ended(&mut world)).collect();
    many.iter().for_each(|txn| forget(&mut world, *txn));
    // Rows of the limit of positions are among those that were many.
    let open = many.iter().filter(|txn| is_open(&world.store, **txn)).count();
    assert!(open < ROW_BATCH / 2, "{open} of {ROW_BATCH} were not submitted");

    let last = ended(&mut world);
    forget(&mut world, last);
    let mut world = world.reopen();
    assert!(is_open(&world.store, last), "it is lost");
    let asked =
        |event: NodeEvent| matches!(event, NodeEvent::Ask { request: Request::Ask { txn, .. }, .. } if txn == last);
    let is_asked = (0..100).any(|_| {
        world.now += 5_000;
        world.driver.poll(world.now);
        world.carry_out();
        world.inbox.take_events().into_iter().any(asked)
    });
    assert!(is_asked, "and found out again");
}
