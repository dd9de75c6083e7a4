use model::{ClassId, SpaceId};

use super::*;
use crate::ident::Version;
use crate::page_cache::{FetchReply as Page, Invalidation, PageImage};

const NODE: NodeId = NodeId(3);
const PAGE: PageId = PageId { space: SpaceId(1), node: NODE, number: 7 };
const CONNECTION: HolderId = HolderId(100);

fn oid(slot: u16) -> Oid {
    Oid::new(ClassId::NONE, PAGE, slot)
}

/// A client that is connected, and has a page with one object.
fn session() -> Session<u64> {
    let mut session = Session::new(ClientId(1), CONNECTION, 50);
    session.connect(None, 1_000);
    assert_eq!(session.get(oid(1), 1_000), Lookup::Miss);
    lease(&mut session, CONNECTION, 1_000);
    assert_eq!(session.get(oid(1), 1_000), Lookup::Miss);
    let objects = [(1, 10)].into();
    let fetched = PageImage { version: Version { moves: 0, position: 4 }, timestamp: HlcTimestamp::at(4), objects };
    session.handle_down(
        NODE,
        CONNECTION,
        Down::Fetched { page: PAGE, fetch: FetchId(1), reply: Page::Page(fetched) },
        1_000,
    );
    session.outputs().for_each(drop);
    session
}

fn lease(session: &mut Session<u64>, holder: HolderId, now: Ms) {
    session.handle_down(NODE, holder, Down::Leased { asked: now, lease_ms: 10_000, sync: 1 }, now);
}

fn outputs(session: &mut Session<u64>) -> Vec<Output<u64>> {
    session.outputs().collect()
}

fn calls(session: &mut Session<u64>) -> Vec<(TxnId, Call<u64>)> {
    let outputs = session.outputs();
    outputs.filter_map(|output| if let Output::Call(txn, call) = output { Some((txn, call)) } else { None }).collect()
}

#[test]
fn what_is_at_hand_is_seen_and_nothing_else_fetched() {
    let mut session = session();
    let version = Version { moves: 0, position: 4 };
    assert_eq!(session.peek(oid(1), 1_001), Lookup::Value(&10));
    let as_of = AsOf { version, seen: ReadVersion::At(version), timestamp: HlcTimestamp::at(4) };
    assert_eq!(session.peek_versioned(oid(1), 1_001), (Lookup::Value(&10), as_of));
    assert_eq!(session.peek(oid(2), 1_001), Lookup::Absent);
    let other = Oid::new(ClassId::NONE, PageId { number: 8, ..PAGE }, 1);
    assert_eq!(session.peek(other, 1_001), Lookup::Miss);
    assert_eq!(session.peek(oid(1), 1_000 + 10_000), Lookup::Miss, "the lease has run out");
    assert_eq!(outputs(&mut session), []);
    session.put(oid(1), ObjectState::Value(11), 1, 1_002);
    assert_eq!(session.peek(oid(1), 1_002), Lookup::Value(&11));
    assert_eq!(session.peek_versioned(oid(1), 1_002).0, Lookup::Value(&11));
}

#[test]
fn what_cannot_be_written_is_not_dropped_in_silence() {
    let mut session = session();
    let value = || ObjectState::Value(1);
    let snapshot = session.begin(Level::Snapshot, 1_001);
    assert_eq!(session.write(snapshot, oid(1), value()), Err(WriteError::ReadOnly));
    let locks = session.begin(Level::Locks { first: None }, 1_002);
    assert_eq!(session.write(locks, oid(7), value()), Ok(()), "a new object has a place of its own");
    session.abort(locks);
    assert_eq!(session.write(locks, oid(7), value()), Err(WriteError::NotRunning));
    let optimistic = session.begin(Level::Optimistic, 1_003);
    assert_eq!(session.write(optimistic, oid(1), value()), Ok(()));
    session.commit(optimistic, 1_003);
    assert_eq!(session.write(optimistic, oid(2), value()), Err(WriteError::NotRunning), "it is being committed");
    let never = TxnId { start: HlcTimestamp::at(7), client: ClientId(1) };
    assert_eq!(session.write(never, oid(1), value()), Err(WriteError::NotRunning));
}

#[test]
fn a_snapshot_ends_once() {
    let mut session = session();
    let txn = session.begin(Level::Snapshot, 1_001);
    assert_eq!(session.read(txn, oid(1), 1_001), Lookup::Value(&10));
    session.commit(txn, 1_001);
    session.commit(txn, 1_001);
    assert_eq!(outputs(&mut session), [], "nothing is closed yet");
    session.handle_down(NODE, CONNECTION, Down::Close { at: HlcTimestamp::at(900) }, 1_002);
    assert_eq!(outputs(&mut session), [Output::Ended(txn, TxnOutcome::Committed(HlcTimestamp::at(900)))]);
    session.handle_down(NODE, CONNECTION, Down::Close { at: HlcTimestamp::at(950) }, 1_003);
    assert_eq!(outputs(&mut session), []);
}

/// What was written in a transaction that is given up is not taken for what the brick says of it later.
#[test]
fn what_is_given_up_while_it_commits_leaves_nothing_behind() {
    let mut session = session();
    let txn = session.begin(Level::Optimistic, 1_001);
    assert_eq!(session.write(txn, oid(1), ObjectState::Value(11)), Ok(()));
    session.commit(txn, 1_001);
    session.abort(txn);
    let (previous, version) = (Version { moves: 0, position: 4 }, Version { moves: 0, position: 5 });
    let message =
        Invalidation { page: PAGE, slots: [1].into(), previous, version, timestamp: HlcTimestamp::at(5), txn };
    session.handle_down(NODE, CONNECTION, Down::Invalidate { message, contents: None }, 1_002);
    assert_eq!(session.cache().lookup(oid(1)), Lookup::Miss, "its update is forgotten");
}

#[test]
fn a_stale_copy_is_evicted() {
    let mut session = session();
    session.disconnect(None, 2_000);
    session.connect(None, 2_000);
    session.outputs().for_each(drop);
    let holder = session.holder(NODE).unwrap();
    lease(&mut session, holder, 2_000);
    let [Output::Up(_, _, Up::Fetch { fetch, have: Some(_), .. })] = outputs(&mut session)[..] else {
        panic!("its copy is to be validated")
    };
    session.handle_down(NODE, holder, Down::Fetched { page: PAGE, fetch, reply: Page::Stale }, 2_001);
    assert_eq!(outputs(&mut session), [Output::Up(NODE, holder, Up::Evict { page: PAGE, fetch })]);
    session.evict(PAGE);
    assert_eq!(outputs(&mut session), [], "it has said so");
}

#[test]
fn what_was_evicted_while_it_was_validated_is_evicted_above() {
    let mut session = session();
    session.disconnect(None, 2_000);
    session.connect(None, 2_000);
    let holder = session.holder(NODE).unwrap();
    lease(&mut session, holder, 2_000);
    session.evict(PAGE);
    session.outputs().for_each(drop);
    session.handle_down(NODE, holder, Down::Fetched { page: PAGE, fetch: FetchId(2), reply: Page::Current }, 2_001);
    assert_eq!(outputs(&mut session), [Output::Up(NODE, holder, Up::Evict { page: PAGE, fetch: FetchId(2) })]);
}

/// Its peer server is gone, and it is connected to another: the call is repeated there at once, and again until it is answered.
#[test]
fn a_commit_goes_on_at_another_peer_server_by_itself() {
    let mut session = session();
    let txn = session.begin(Level::Optimistic, 1_001);
    assert_eq!(session.read(txn, oid(1), 1_001), Lookup::Value(&10));
    assert_eq!(session.write(txn, oid(1), ObjectState::Value(11)), Ok(()));
    session.commit(txn, 1_001);
    let first = calls(&mut session);
    assert!(matches!(first[..], [(_, Call::Commit { .. })]));
    session.disconnect(None, 1_100);
    session.connect(None, 1_200);
    assert_eq!(calls(&mut session), first, "the same call, of the same transaction (C3)");
    session.poll(1_200 + REPEAT_MS);
    assert_eq!(calls(&mut session), first);
    session.handle_reply(txn, Reply::Ended(coordinator::CommitReply::Committed(HlcTimestamp::at(1_050))));
    assert_eq!(outputs(&mut session), [Output::Ended(txn, TxnOutcome::Committed(HlcTimestamp::at(1_050)))]);
}

/// Who does not want to wait any longer asks how it has ended; that goes on at another peer server too.
#[test]
fn who_wants_to_know_the_outcome_asks_until_it_is_known() {
    let mut session = session();
    let txn = session.begin(Level::Optimistic, 1_001);
    assert_eq!(session.write(txn, oid(1), ObjectState::Value(11)), Ok(()));
    session.commit(txn, 1_001);
    session.outputs().for_each(drop);
    session.resolve(txn, 1_002);
    let asked = [(txn, Call::Resolve { participants: vec![NODE] })];
    assert_eq!(calls(&mut session), asked);
    session.disconnect(None, 1_100);
    session.connect(None, 1_200);
    assert_eq!(calls(&mut session), asked);
    session.handle_reply(txn, Reply::Ended(coordinator::CommitReply::Refused(Refusal::TooOld)));
    assert_eq!(outputs(&mut session), [Output::Ended(txn, TxnOutcome::Unknown)]);
}

#[test]
fn what_is_touched_goes_with_the_commit_and_is_not_read() {
    let mut session = session();
    let txn = session.begin(Level::Optimistic, 1_001);
    assert_eq!(session.touch(txn, oid(9), 1_001), Ok(true));
    session.commit(txn, 1_001);
    let part = Part { touches: [oid(9)].into(), ..Part::default() };
    assert_eq!(calls(&mut session), [(txn, Call::Commit { parts: [(NODE, part)].into(), creates: false })]);
    assert_eq!(session.touch(txn, oid(8), 1_001), Err(WriteError::NotRunning));
    let snapshot = session.begin(Level::Snapshot, 1_002);
    assert_eq!(session.touch(snapshot, oid(9), 1_002), Err(WriteError::ReadOnly));
}

#[test]
fn a_datastore_transaction_locks_what_it_touches() {
    let mut session = session();
    let txn = session.begin(Level::Locks { first: None }, 1_001);
    assert_eq!(session.touch(txn, oid(9), 1_001), Ok(false));
    let lock = Call::Lock { first: txn, oid: oid(9), mode: LockMode::Touch };
    assert_eq!(calls(&mut session), [(txn, lock)]);
    let version = Version { moves: 0, position: 4 };
    session.handle_reply(txn, Reply::Locked(LockedObject { oid: oid(9), mode: LockMode::Touch, version, value: None }));
    assert_eq!(session.touch(txn, oid(9), 1_002), Ok(true));
    session.commit(txn, 1_002);
    let part = Part { touches: [oid(9)].into(), ..Part::default() };
    assert_eq!(calls(&mut session), [(txn, Call::Commit { parts: [(NODE, part)].into(), creates: false })]);
}

/// Found by the simulator: a brick that restarted had lost the lock, and somebody had written the object since. The second lock
/// brought a newer state, and the commit passed for one that had seen the older.
#[test]
fn what_was_read_under_a_lock_counts_as_it_was_read_first() {
    let mut session = session();
    let txn = session.begin(Level::Locks { first: None }, 1_001);
    let lock = |mode, position, value| {
        Reply::Locked(LockedObject { oid: oid(1), mode, version: Version { moves: 0, position }, value })
    };
    assert_eq!(session.read(txn, oid(1), 1_001), Lookup::Miss);
    session.handle_reply(txn, lock(LockMode::Shared, 4, Some(10)));
    assert_eq!(session.read_for(txn, oid(1), LockMode::Exclusive, 1_002), Lookup::Miss);
    session.handle_reply(txn, lock(LockMode::Exclusive, 6, Some(11)));
    assert_eq!(session.read_for(txn, oid(1), LockMode::Exclusive, 1_003), Lookup::Value(&10));
    assert_eq!(session.write(txn, oid(1), ObjectState::Value(12)), Ok(()));
    session.outputs().for_each(drop);
    session.commit(txn, 1_003);
    let [(_, Call::Commit { parts, .. })] = &calls(&mut session)[..] else { panic!("it is committed") };
    assert_eq!(parts[&NODE].reads, [Read { oid: oid(1), seen: ReadVersion::At(Version { moves: 0, position: 4 }) }]);
}

/// A brick that has moved knows nothing of a guard that was locked to be read: it grants to touch it, and no more.
#[test]
fn what_was_read_and_is_touched_after_its_lock_was_lost_still_counts_as_read() {
    let mut session = session();
    let txn = session.begin(Level::Locks { first: None }, 1_001);
    let lock = |mode, position| {
        Reply::Locked(LockedObject { oid: oid(1), mode, version: Version { moves: 0, position }, value: None })
    };
    assert_eq!(session.read(txn, oid(1), 1_001), Lookup::Miss);
    session.handle_reply(txn, lock(LockMode::Shared, 4));
    assert_eq!(session.touch(txn, oid(1), 1_002), Ok(false));
    session.handle_reply(txn, lock(LockMode::Touch, 6));
    assert_eq!(session.touch(txn, oid(1), 1_003), Ok(true));
    session.outputs().for_each(drop);
    session.commit(txn, 1_003);
    let [(_, Call::Commit { parts, .. })] = &calls(&mut session)[..] else { panic!("it is committed") };
    assert_eq!(parts[&NODE].reads, [Read { oid: oid(1), seen: ReadVersion::At(Version { moves: 0, position: 4 }) }]);
    assert_eq!(parts[&NODE].touches, [oid(1)].into());
}

/// A guard as somebody else has read it for the client.
fn guard() -> Read {
    let page = PageId { number: PageId::MAX_NUMBER, ..PAGE };
    Read { oid: Oid::new(ClassId::NONE, page, 3), seen: ReadVersion::At(Version { moves: 0, position: 9 }) }
}

#[test]
fn what_others_have_read_for_a_transaction_is_validated_with_what_it_writes() {
    for level in [Level::Optimistic, Level::Locks { first: None }] {
        let mut session = session();
        let txn = session.begin(level, 1_001);
        assert_eq!(session.rely_on(txn, [guard()], HlcTimestamp::at(5_000)), Ok(()));
        assert_eq!(session.write(txn, oid(7), ObjectState::Value(1)), Ok(()));
        session.commit(txn, 1_001);
        let calls = calls(&mut session);
        let [(_, Call::Commit { parts, .. })] = calls.as_slice() else { panic!("{calls:?}") };
        assert!(parts[&NODE].reads.contains(&guard()), "{level:?}: {parts:?}");
    }
}

#[test]
fn a_transaction_that_only_relies_on_others_reads_is_checked_at_their_time_or_later() {
    let mut session = session();
    let txn = session.begin(Level::Optimistic, 1_001);
    assert_eq!(session.rely_on(txn, [guard()], HlcTimestamp::at(5_000)), Ok(()));
    assert_eq!(session.rely_on(txn, [], HlcTimestamp::at(4_000)), Ok(()));
    session.commit(txn, 1_001);
    let reads = [(NODE, vec![guard()])].into();
    assert_eq!(calls(&mut session), [(txn, Call::Check { reads, seen: HlcTimestamp::at(5_000) })]);
    assert_eq!(session.rely_on(txn, [guard()], HlcTimestamp::ZERO), Err(WriteError::NotRunning), "it is being checked");
}

#[test]
fn a_snapshot_relies_on_nothing_of_which_it_does_not_know_the_time() {
    let mut session = session();
    let txn = session.begin(Level::Snapshot, 1_001);
    assert_eq!(session.rely_on(txn, [guard()], HlcTimestamp::ZERO), Err(WriteError::ReadOnly));
    session.abort(txn);
    assert_eq!(session.rely_on(txn, [guard()], HlcTimestamp::ZERO), Err(WriteError::NotRunning));
}
