use model::{ClassId, SpaceId};

use super::calls::LOCKS_AT_ONCE;
use super::*;
use crate::commit::client_mark::ClientMark;
use crate::commit::coordinator;
use crate::gateway::Reply;
use crate::ident::Version;
use crate::page_cache::{FetchReply as Page, Invalidation, PageImage};

const NODE: NodeId = NodeId(3);
const PAGE: PageId = PageId { space: SpaceId(1), node: NODE, number: 7 };
const CONNECTION: HolderId = HolderId(100);

fn oid(slot: u16) -> Oid {
    Oid::new(ClassId::NONE, PAGE, slot)
}

/// A connected client that has a copy of a page with one object.
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
    let call = |output| match output {
        Output::Call(txn, call) | Output::Repeat(txn, call) => Some((txn, call)),
        _ => None,
    };
    session.outputs().filter_map(call).collect()
}

#[test]
fn peek_returns_cached_objects_and_fetches_nothing() {
    let mut session = session();
    let version = Version { moves: 0, position: 4 };
    assert_eq!(session.peek(oid(1), 1_001), Lookup::Value(&10));
    let as_of = AsOf { version, seen: ReadVersion::At(version), timestamp: HlcTimestamp::at(4) };
    assert_eq!(session.peek_versioned(oid(1), 1_001), (Lookup::Value(&10), as_of));
    assert_eq!(session.peek(oid(2), 1_001), Lookup::Absent);
    let other = Oid::new(ClassId::NONE, PageId { number: 8, ..PAGE }, 1);
    assert_eq!(session.peek(other, 1_001), Lookup::Miss);
    assert_eq!(session.peek(oid(1), 1_000 + 10_000), Lookup::Miss, "the lease has ended");
    assert_eq!(outputs(&mut session), []);
    session.put(oid(1), ObjectState::Value(11), 1, 1_002);
    assert_eq!(session.peek(oid(1), 1_002), Lookup::Value(&11));
    assert_eq!(session.peek_versioned(oid(1), 1_002).0, Lookup::Value(&11));
}

/// A client that has read back what it had created fetches the next new pages when it commits.
#[test]
fn new_pages_are_fetched_at_the_commit_once_one_was_read_back() {
    let mut session = session();
    let new = |number: u64| Oid::new(ClassId::NONE, PageId { number, ..PAGE }, 0);
    let create = |session: &mut Session<u64>, number: u64| {
        let txn = session.begin(Level::Optimistic, 1_000 + number);
        session.write(txn, new(number), ObjectState::Value(1)).unwrap();
        session.commit(txn, 1_000 + number);
        let fetched = outputs(session).into_iter().filter_map(|output| match output {
            Output::Up(_, _, Up::Fetch { page, .. }) => Some(page.number),
            _ => None,
        });
        fetched.collect::<Vec<_>>()
    };
    assert_eq!(create(&mut session, 20), []);
    assert_eq!(create(&mut session, 21), []);
    assert_eq!(session.get(new(20), 1_030), Lookup::Miss);
    session.outputs().for_each(drop);
    assert_eq!(create(&mut session, 22), [22]);
    assert_eq!(create(&mut session, 22), [], "it is being fetched");
    let txn = session.begin(Level::Optimistic, 1_031);
    session.write(txn, new(23), ObjectState::Value(1)).unwrap();
    session.abort(txn);
    assert_eq!(outputs(&mut session), [], "nothing was created");
}

#[test]
fn impossible_writes_return_errors() {
    let mut session = session();
    let value = || ObjectState::Value(1);
    let snapshot = session.begin(Level::Snapshot, 1_001);
    assert_eq!(session.write(snapshot, oid(1), value()), Err(WriteError::ReadOnly));
    let locks = session.begin(Level::Locks { first: None }, 1_002);
    assert_eq!(session.write(locks, oid(7), value()), Ok(()), "a new object needs no lock");
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
fn snapshot_ends_once() {
    let mut session = session();
    let txn = session.begin(Level::Snapshot, 1_001);
    assert_eq!(session.read(txn, oid(1), 1_001), Lookup::Value(&10));
    session.commit(txn, 1_001);
    session.commit(txn, 1_001);
    assert_eq!(outputs(&mut session), [], "nothing is closed yet");
    session.handle_down(NODE, CONNECTION, Down::Close { at: HlcTimestamp::at(900) }, 1_002);
    assert_eq!(outputs(&mut session), [Output::Ended(txn, TxnOutcome::Committed(HlcTimestamp::at(900).into()))]);
    session.handle_down(NODE, CONNECTION, Down::Close { at: HlcTimestamp::at(950) }, 1_003);
    assert_eq!(outputs(&mut session), []);
}

/// A later invalidation of the transaction does not install the write.
#[test]
fn abandoned_commit_leaves_no_update() {
    let mut session = session();
    let txn = session.begin(Level::Optimistic, 1_001);
    assert_eq!(session.write(txn, oid(1), ObjectState::Value(11)), Ok(()));
    session.commit(txn, 1_001);
    session.abort(txn);
    let (previous, version) = (Version { moves: 0, position: 4 }, Version { moves: 0, position: 5 });
    let message = Invalidation {
        page: PAGE,
        slots: [1].into(),
        previous,
        version,
        timestamp: HlcTimestamp::at(5),
        txn,
        digest: None,
    };
    session.handle_down(NODE, CONNECTION, Down::Invalidate { message, contents: None }, 1_002);
    assert_eq!(session.cache().lookup(oid(1)), Lookup::Miss, "its update is forgotten");
}

#[test]
fn stale_copy_is_evicted() {
    let mut session = session();
    session.disconnect(None, 2_000);
    session.connect(None, 2_000);
    session.outputs().for_each(drop);
    let holder = session.holder(NODE).unwrap();
    lease(&mut session, holder, 2_000);
    let [Output::Up(_, _, Up::Fetch { fetch, have: Some(_), .. })] = outputs(&mut session)[..] else {
        panic!("the copy must be validated")
    };
    session.handle_down(NODE, holder, Down::Fetched { page: PAGE, fetch, reply: Page::Stale }, 2_001);
    assert_eq!(outputs(&mut session), [Output::Up(NODE, holder, Up::Evict { page: PAGE, fetch })]);
    session.evict(PAGE);
    assert_eq!(outputs(&mut session), [], "the eviction was reported before");
}

#[test]
fn eviction_during_validation_is_reported() {
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

/// After the connection to another peer server, the call is repeated at once, and then until it is answered.
#[test]
fn commit_continues_at_another_peer_server() {
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
    let [(of, call)] = &first[..] else { unreachable!() };
    let repeated = Output::Repeat(*of, call.clone());
    assert!(outputs(&mut session).contains(&repeated), "it may still be on its way");
    session.handle_reply(txn, Reply::Ended(coordinator::CommitReply::Committed(HlcTimestamp::at(1_050).into())));
    assert_eq!(outputs(&mut session), [Output::Ended(txn, TxnOutcome::Committed(HlcTimestamp::at(1_050).into()))]);
}

/// The question is also repeated at another peer server.
#[test]
fn resolving_an_outcome_is_repeated_until_it_is_known() {
    let mut session = session();
    let txn = session.begin(Level::Optimistic, 1_001);
    assert_eq!(session.write(txn, oid(1), ObjectState::Value(11)), Ok(()));
    session.commit(txn, 1_001);
    session.outputs().for_each(drop);
    session.resolve(txn, 1_002);
    let asked = [(txn, Call::Resolve { participants: vec![NODE], patched: Vec::new() })];
    assert_eq!(calls(&mut session), asked);
    session.disconnect(None, 1_100);
    session.connect(None, 1_200);
    assert_eq!(calls(&mut session), asked);
    session.handle_reply(txn, Reply::Ended(coordinator::CommitReply::Refused(Refusal::TooOld)));
    assert_eq!(outputs(&mut session), [Output::Ended(txn, TxnOutcome::Unknown)]);
}

/// The offsets of its appends are part of the outcome.
#[test]
fn client_that_resolves_an_outcome_names_where_it_has_changed_parts_of_objects() {
    let mut session = session();
    let txn = session.begin(Level::Optimistic, 1_001);
    let elsewhere = Oid::new(ClassId::NONE, PageId { node: NodeId(4), ..PAGE }, 1);
    assert_eq!(session.write(txn, oid(1), ObjectState::Changed(1)), Ok(()));
    assert_eq!(session.write(txn, elsewhere, ObjectState::Value(2)), Ok(()));
    session.commit(txn, 1_001);
    session.outputs().for_each(drop);
    session.resolve(txn, 1_002);
    let resolve = Call::Resolve { participants: vec![NODE, NodeId(4)], patched: vec![NODE] };
    assert_eq!(calls(&mut session), [(txn, resolve)]);
    let receipt = CommitReceipt { timestamp: HlcTimestamp::at(1_005), offsets: [(oid(1), 40)].into() };
    session.handle_reply(txn, Reply::Ended(coordinator::CommitReply::Committed(receipt.clone())));
    assert_eq!(outputs(&mut session), [Output::Ended(txn, TxnOutcome::Committed(receipt))]);
}

#[test]
fn participants_are_told_what_the_client_has_heard_except_what_is_open() {
    let mut session = session().with_heard_batch(2);
    let txns = [1_001, 1_002, 1_003, 1_004].map(|now| session.begin(Level::Optimistic, now));
    for (txn, slot) in txns.into_iter().zip(1..) {
        assert_eq!(session.write(txn, oid(slot), ObjectState::Value(11)), Ok(()));
    }
    for txn in [txns[0], txns[2], txns[3]] {
        session.commit(txn, 1_005);
    }
    let reply = |session: &mut Session<u64>, txn, reply| {
        calls(session);
        session.handle_reply(txn, Reply::Ended(reply));
        calls(session)
    };
    let committed = coordinator::CommitReply::Committed(HlcTimestamp::at(1_005).into());
    assert_eq!(reply(&mut session, txns[0], committed.clone()), [], "one outcome at a time is not worth a message");
    let open = vec![txns[1].start, txns[2].start];
    let mark = ClientMark::new(session.clock.last().next(), open).unwrap();
    let refused = coordinator::CommitReply::Refused(Refusal::Aborted);
    assert_eq!(reply(&mut session, txns[3], refused), [(txns[3], Call::Heard { nodes: vec![NODE], mark })]);
    assert_eq!(reply(&mut session, txns[2], committed), []);
    let check = session.begin(Level::Optimistic, 1_006);
    assert_eq!(session.read(check, oid(9), 1_006), Lookup::Absent);
    session.commit(check, 1_006);
    session.handle_reply(check, Reply::Checked(Ok(HlcTimestamp::at(1_006))));
    assert!(
        !calls(&mut session).iter().any(|(_, call)| matches!(call, Call::Heard { .. })),
        "checks leave no outcomes"
    );
}

#[test]
fn touches_are_sent_with_the_commit() {
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
fn datastore_transaction_locks_touched_guards() {
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

fn shared_lock(slot: u16, value: u64) -> Reply<u64> {
    let version = Version { moves: 0, position: 4 };
    Reply::Locked(LockedObject { oid: oid(slot), mode: LockMode::Shared, version, value: Some(value) })
}

#[test]
fn answer_to_another_lock_is_noticed() {
    let waits = datastore_transaction_waits_for_several_locks_and_requests_each_once;
    assert!(model::planted_bug::is_noticed(Bug::AnyLockGranted, waits));
}

#[test]
fn datastore_transaction_waits_for_several_locks_and_requests_each_once() {
    let mut session = session();
    let txn = session.begin(Level::Locks { first: None }, 1_001);
    for _ in 0..3 {
        (1..=3).for_each(|slot| assert_eq!(session.read(txn, oid(slot), 1_001), Lookup::Miss));
    }
    let lock = |slot| (txn, Call::Lock { first: txn, oid: oid(slot), mode: LockMode::Shared });
    assert_eq!(calls(&mut session), [lock(1), lock(2), lock(3)]);
    session.handle_reply(txn, shared_lock(3, 30));
    assert_eq!(session.read(txn, oid(3), 1_002), Lookup::Value(&30));
    assert_eq!(session.read(txn, oid(2), 1_002), Lookup::Miss);
    session.handle_reply(txn, shared_lock(2, 20));
    assert_eq!(session.read(txn, oid(2), 1_003), Lookup::Value(&20));
    assert_eq!(calls(&mut session), []);
    // The one that is left is repeated, and sent again over a new connection.
    session.poll(1_001 + REPEAT_MS);
    let repeated = calls(&mut session);
    assert_eq!(repeated.iter().filter(|call| **call == lock(1)).count(), 1, "{repeated:?}");
    session.connect(None, 3_000);
    assert_eq!(calls(&mut session).last(), Some(&lock(1)));
    // A commit ends the waiting: an answer that comes later changes nothing.
    session.commit(txn, 3_001);
    session.outputs().for_each(drop);
    session.handle_reply(txn, shared_lock(1, 10));
    session.poll(3_001 + REPEAT_MS);
    let locks = calls(&mut session).into_iter().filter(|call| *call == lock(1)).count();
    assert_eq!(locks, 0);
}

#[test]
fn locks_that_a_transaction_waits_for_are_bounded() {
    let mut session = session();
    let txn = session.begin(Level::Locks { first: None }, 1_001);
    let wanted = 1..=u16::try_from(LOCKS_AT_ONCE).unwrap() + 1;
    wanted.clone().for_each(|slot| assert_eq!(session.read(txn, oid(slot), 1_001), Lookup::Miss));
    assert_eq!(calls(&mut session).len(), LOCKS_AT_ONCE);
    session.handle_reply(txn, shared_lock(1, 10));
    wanted.skip(1).for_each(|slot| assert_eq!(session.read(txn, oid(slot), 1_002), Lookup::Miss));
    assert_eq!(calls(&mut session).len(), 1);
}

/// Found by the simulator: a restarted brick had lost the lock, and another transaction had written the object since.
/// The second lock returned a newer state, and the commit passed although the transaction had read the older one.
#[test]
fn lock_upgrade_keeps_the_version_of_the_first_read() {
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
    let [(_, Call::Commit { parts, .. })] = &calls(&mut session)[..] else { panic!("no commit was sent") };
    assert_eq!(
        parts[&NODE].reads,
        [Read { oid: oid(1), seen: ReadVersion::At(Version { moves: 0, position: 4 }) }].into()
    );
}

/// After a move, the new brick does not know the read lock of a guard, and grants only the touch lock.
#[test]
fn read_of_a_guard_is_kept_when_its_lock_is_lost() {
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
    let [(_, Call::Commit { parts, .. })] = &calls(&mut session)[..] else { panic!("no commit was sent") };
    assert_eq!(
        parts[&NODE].reads,
        [Read { oid: oid(1), seen: ReadVersion::At(Version { moves: 0, position: 4 }) }].into()
    );
    assert_eq!(parts[&NODE].touches, [oid(1)].into());
}

/// A read of a guard by a peer server on behalf of the client.
fn guard() -> Read {
    let page = PageId { number: PageId::MAX_NUMBER, ..PAGE };
    Read { oid: Oid::new(ClassId::NONE, page, 3), seen: ReadVersion::At(Version { moves: 0, position: 9 }) }
}

#[test]
fn reads_of_others_are_validated_with_the_writes() {
    for level in [Level::Optimistic, Level::Locks { first: None }] {
        let mut session = session();
        let txn = session.begin(level, 1_001);
        assert_eq!(session.rely_on(txn, [guard()], HlcTimestamp::at(5_000)), Ok(()));
        assert_eq!(session.write(txn, oid(7), ObjectState::Value(1)), Ok(()));
        session.commit(txn, 1_001);
        let calls = calls(&mut session);
        let [(_, Call::Commit { parts, .. })] = calls.as_slice() else { panic!("{calls:?}") };
        assert!(parts[&NODE].reads.contains(guard().oid), "{level:?}: {parts:?}");
    }
}

#[test]
fn read_only_check_is_not_before_reads_of_others() {
    let mut session = session();
    let txn = session.begin(Level::Optimistic, 1_001);
    assert_eq!(session.rely_on(txn, [guard()], HlcTimestamp::at(5_000)), Ok(()));
    assert_eq!(session.rely_on(txn, [], HlcTimestamp::at(4_000)), Ok(()));
    session.commit(txn, 1_001);
    let reads = [(NODE, [guard()].into())].into();
    assert_eq!(calls(&mut session), [(txn, Call::Check { reads, seen: HlcTimestamp::at(5_000) })]);
    assert_eq!(session.rely_on(txn, [guard()], HlcTimestamp::ZERO), Err(WriteError::NotRunning), "it is being checked");
}

#[test]
fn snapshot_relies_on_no_reads_of_others() {
    let mut session = session();
    let txn = session.begin(Level::Snapshot, 1_001);
    assert_eq!(session.rely_on(txn, [guard()], HlcTimestamp::ZERO), Err(WriteError::ReadOnly));
    session.abort(txn);
    assert_eq!(session.rely_on(txn, [guard()], HlcTimestamp::ZERO), Err(WriteError::NotRunning));
}

/// A connected client with these limits, and sessions for two logical nodes.
fn session_with_limits(limits: FetchLimits) -> Session<u64> {
    let mut session = Session::new(ClientId(1), CONNECTION, 50).with_fetch_limits(limits);
    session.connect(None, 1_000);
    for node in [NODE, NodeId(4)] {
        assert_eq!(session.get(numbered(node, 0), 1_000), Lookup::Miss);
        let leased = Down::Leased { asked: 1_000, lease_ms: 10_000, sync: 1 };
        session.handle_down(node, CONNECTION, leased, 1_000);
    }
    session.outputs().for_each(drop);
    session
}

fn numbered(node: NodeId, number: u64) -> Oid {
    Oid::new(ClassId::NONE, PageId { node, number, ..PAGE }, 1)
}

/// The pages that a client fetches: their logical nodes and numbers, and the numbers of the fetches.
fn fetched(session: &mut Session<u64>) -> Vec<(u32, u64, FetchId)> {
    let fetch = |output| match output {
        Output::Up(_, _, Up::Fetch { page, fetch, .. }) => Some((page.node.0, page.number, fetch)),
        _ => None,
    };
    session.outputs().filter_map(fetch).collect()
}

#[test]
fn pages_wait_until_earlier_fetches_are_answered() {
    let mut session = session_with_limits(FetchLimits { node: 2, total: 3, least: 1 });
    let other = NodeId(4);
    let wanted = [(NODE, 1), (NODE, 2), (NODE, 3), (NODE, 4), (other, 1), (other, 2)];
    // A read that is tried again does not take another place.
    for (node, number) in wanted.into_iter().chain(wanted) {
        assert_eq!(session.get(numbered(node, number), 1_000), Lookup::Miss);
    }
    let first = fetched(&mut session);
    assert_eq!(first.iter().map(|(node, number, _)| (*node, *number)).collect::<Vec<_>>(), [(3, 1), (3, 2), (4, 1)]);
    let (mut under_way, mut order) = (first, Vec::new());
    while !under_way.is_empty() {
        let (node, number, fetch) = under_way.remove(0);
        let node = NodeId(node);
        let image = PageImage { version: Version::ZERO, timestamp: HlcTimestamp::ZERO, objects: [(1, number)].into() };
        let page = PageId { node, number, ..PAGE };
        session.handle_down(node, CONNECTION, Down::Fetched { page, fetch, reply: Page::Page(image) }, 1_000);
        let next = fetched(&mut session);
        order.extend(next.iter().map(|(node, number, _)| (*node, *number)));
        under_way.extend(next);
    }
    assert_eq!(order, [(3, 3), (4, 2), (3, 4)], "logical nodes take turns");
    for (node, number) in wanted {
        assert_eq!(session.get(numbered(node, number), 1_000), Lookup::Value(&number));
    }
    assert_eq!(fetched(&mut session), []);
}

#[test]
fn logical_node_that_does_not_answer_holds_up_no_fetches_at_others() {
    let mut session = session_with_limits(FetchLimits { node: 2, total: 2, least: 1 });
    for number in 1..=5 {
        assert_eq!(session.get(numbered(NODE, number), 1_000), Lookup::Miss);
    }
    assert_eq!(session.get(numbered(NodeId(4), 1), 1_000), Lookup::Miss);
    let pages: Vec<_> = fetched(&mut session).into_iter().map(|(node, number, _)| (node, number)).collect();
    assert_eq!(pages, [(3, 1), (3, 2), (4, 1)]);
}

#[test]
fn fetches_of_a_session_that_has_ended_leave_their_places_to_others() {
    let mut session = session_with_limits(FetchLimits { node: 2, total: 2, least: 0 });
    for (node, number) in [(NODE, 1), (NODE, 2), (NODE, 3), (NodeId(4), 1), (NodeId(4), 2)] {
        assert_eq!(session.get(numbered(node, number), 1_000), Lookup::Miss);
    }
    fetched(&mut session);
    session.handle_down(NODE, CONNECTION, Down::Closed, 1_000);
    let pages: Vec<_> = fetched(&mut session).into_iter().map(|(node, number, _)| (node, number)).collect();
    assert_eq!(pages, [(4, 1), (4, 2)]);
}

#[test]
fn object_that_was_invalidated_is_fetched_when_there_is_room() {
    let mut session = session().with_fetch_limits(FetchLimits { node: 1, total: 1, least: 0 });
    let (version, page) = (|position| Version { moves: 0, position }, PageId { number: 8, ..PAGE });
    let message = Invalidation {
        page: PAGE,
        slots: [1].into(),
        previous: version(4),
        version: version(5),
        timestamp: HlcTimestamp::at(5),
        txn: TxnId { start: HlcTimestamp::at(5), client: ClientId(2) },
        digest: None,
    };
    session.handle_down(NODE, CONNECTION, Down::Invalidate { message, contents: None }, 1_000);
    for page in [page, PAGE] {
        assert_eq!(session.get(Oid::new(ClassId::NONE, page, 1), 1_000), Lookup::Miss);
    }
    let first = fetched(&mut session);
    assert_eq!(first.iter().map(|(_, number, _)| *number).collect::<Vec<_>>(), [8]);
    // The page has a copy, in which the object is missing.
    session.handle_down(NODE, CONNECTION, Down::Fetched { page, fetch: first[0].2, reply: Page::Stale }, 1_000);
    assert_eq!(fetched(&mut session).iter().map(|(_, number, _)| *number).collect::<Vec<_>>(), [7]);
}

#[test]
fn evicted_page_does_not_wait_to_be_fetched() {
    let mut session = session_with_limits(FetchLimits { node: 1, total: 1, least: 0 });
    for number in 1..=3 {
        assert_eq!(session.get(numbered(NODE, number), 1_000), Lookup::Miss);
    }
    let first = fetched(&mut session);
    session.evict(PageId { number: 2, ..PAGE });
    let page = PageId { number: 1, ..PAGE };
    session.handle_down(NODE, CONNECTION, Down::Fetched { page, fetch: first[0].2, reply: Page::Stale }, 1_000);
    assert_eq!(fetched(&mut session).iter().map(|(_, number, _)| *number).collect::<Vec<_>>(), [3]);
}
