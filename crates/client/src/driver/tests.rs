//! Each duty of the driver, by its inputs and outputs; and that a test notices the planted bug against it.

use std::collections::BTreeSet;

use bytes::Bytes;
use model::{FailurePolicy, SpaceId, Timestamp};
use protocol::brick::LockedObject;
use protocol::commit::Refusal;
use protocol::commit::coordinator::CommitReply;
use protocol::gateway::{Call, Reply};
use protocol::ident::{ClientId, Version};
use protocol::locks::LockMode;
use protocol::page_cache::{DerivedValue, FetchId, FetchReply, Invalidation, PageImage};
use protocol::session::FetchLimits;
use protocol::tree::Down;
use protocol::validate::ReadVersion;
use wire::cluster::BrickStatus;

use super::*;
use model::planted_bug::is_noticed;

mod derived_values;
mod harness;

use derived_values::derived_values_count_in_the_limit_of_the_cache;
use harness::{Harness, committed_reply, refused_reply};

const NODE: NodeId = NodeId(3);
const TIMEOUT_MS: Ms = 30_000;

fn page(number: u64) -> PageId {
    PageId { space: SpaceId(1), node: NODE, number }
}

fn oid(slot: u16) -> Oid {
    Oid::new(ClassId::NONE, page(7), slot)
}

fn blob(content: &'static str) -> Object {
    Object::blob(Bytes::from_static(content.as_bytes()))
}

fn version(position: u64) -> Version {
    Version { moves: 0, position }
}

fn each_call_gets_its_own_object() {
    let mut harness = Harness::new();
    let calls = [1, 2, 3].map(|slot| harness.driver.start(ClientCall::Get(oid(slot)), harness.now));
    harness.pump();
    assert_eq!(calls.map(|call| harness.object(call)), [Some(blob("one")), Some(blob("two")), None]);
    assert_eq!(harness.fetches, 1, "one page is fetched once");
}

fn doomed_transaction_ends() {
    let mut harness = Harness::new();
    harness.start(ClientCall::Get(oid(1)));
    let txn = harness.driver.begin(Level::Optimistic, harness.now);
    assert_eq!(harness.read(txn, 1).unwrap(), Some(Some(blob("one"))));
    harness.down(NODE, HolderId(100), Down::Invalidate { message: change(page(7), 1, 5), contents: None });
    assert_eq!(harness.read(txn, 2).unwrap_err().kind(), ErrorKind::Conflict);
}

/// The message about a change by another client, to a page at version 4.
fn change(page: PageId, slot: u16, position: u64) -> Invalidation {
    Invalidation {
        page,
        slots: [slot].into(),
        previous: version(4),
        version: version(position),
        timestamp: HlcTimestamp::at(position),
        txn: TxnId { start: HlcTimestamp::at(position), client: ClientId(2) },
        digest: None,
    }
}

/// A change of a page that creates an object of this many bytes.
fn add_object(harness: &mut Harness, page: PageId, bytes: usize) {
    let message = change(page, 3, 5);
    let contents = Some([(3, ObjectState::Value(Object::blob(vec![7; bytes].into())))].into());
    harness.down(NODE, HolderId(100), Down::Invalidate { message, contents });
    harness.pump();
}

/// A new page is empty when it is fetched; the message about the commit that fills it brings its objects.
fn objects_that_a_change_adds_to_a_copy_count() {
    const BYTES: usize = 10_000;
    let mut harness = Harness::new();
    harness.start(ClientCall::Get(oid(1)));
    let before = harness.driver.cached_bytes();
    add_object(&mut harness, page(7), BYTES);
    assert!(harness.driver.cached_bytes() >= before + BYTES, "{} and {before}", harness.driver.cached_bytes());
}

/// A read waits for the fetch of a page, which waits for another fetch, when the copy of the page, without the object, is evicted.
fn read_whose_page_is_evicted_before_it_is_fetched_goes_on() {
    const BYTES: usize = 10_000;
    let limits = FetchLimits { node: 1, total: 1, least: 0 };
    let mut harness = Harness::with_limits(BYTES, limits);
    let in_page = |number: u64| Oid::new(ClassId::NONE, page(number), 1);
    for number in [7, 9] {
        harness.start(ClientCall::Get(in_page(number)));
    }
    change_first(&mut harness, "new", 5);
    harness.serves = false;
    harness.start(ClientCall::Get(in_page(8)));
    let waits = harness.start(ClientCall::Get(oid(1)));
    add_object(&mut harness, page(9), BYTES);
    assert_eq!(harness.driver.session().cache().version(page(7)), None, "it was evicted");
    harness.serves = true;
    let (holder, page, fetch) = harness.fetched.take().unwrap();
    let image = PageImage { version: version(4), timestamp: HlcTimestamp::at(4), objects: harness.objects.clone() };
    harness.down(NODE, holder, Down::Fetched { page, fetch, reply: FetchReply::Page(image) });
    harness.pump();
    assert!(matches!(harness.finished.get(&waits), Some(Ok(CallResult::Object(Some(_))))), "{:?}", harness.finished);
}

/// Another client changes the first object.
fn change_first(harness: &mut Harness, content: &'static str, position: u64) {
    harness.objects.insert(1, blob(content));
    let message = change(page(7), 1, position);
    harness.down(NODE, HolderId(100), Down::Invalidate { message, contents: None });
    harness.pump();
}

fn change_of_a_watched_object_is_noticed() {
    let mut harness = Harness::new();
    let changed = harness.start(ClientCall::Change(oid(1), Some(blob("one"))));
    let other = harness.start(ClientCall::Change(oid(2), Some(blob("two"))));
    harness.advance(10 * TIMEOUT_MS);
    assert!(harness.finished.is_empty(), "it has no timeout");
    change_first(&mut harness, "new", 5);
    assert_eq!(harness.object(changed), Some(blob("new")));
    assert!(!harness.finished.contains_key(&other), "an object beside it has changed");
}

fn read_of_a_damaged_page_fails_with_the_reason() {
    let mut harness = Harness::new();
    harness.damage = Some("its row is damaged".to_owned());
    let call = harness.start(ClientCall::Get(oid(1)));
    assert_eq!(harness.kind(call), Some(ErrorKind::Corrupt));
    let again = harness.start(ClientCall::Get(oid(1)));
    assert_eq!(harness.object(again), Some(blob("one")), "it was written again");
}

fn what_needs_a_damaged_logical_node_fails_with_the_reason() {
    let mut harness = Harness::new();
    harness.serves = false;
    let waiting = [ClientCall::Get(oid(1)), ClientCall::Change(oid(2), None)].map(|call| harness.start(call));
    let elsewhere = Oid::new(ClassId::NONE, PageId { node: NodeId(NODE.0 + 1), ..page(7) }, 1);
    let other = harness.start(ClientCall::Get(elsewhere));
    harness.damaged_status(Some("its row is damaged"));
    for call in waiting {
        assert_eq!(harness.kind(call), Some(ErrorKind::Corrupt));
    }
    assert!(!harness.finished.contains_key(&other), "its logical node is served");
    let later = harness.start(ClientCall::Get(oid(2)));
    assert_eq!(harness.kind(later), Some(ErrorKind::Corrupt));
    for (nodes, expected) in
        [(vec![elsewhere.page().node, NODE], Some(ErrorKind::Corrupt)), (vec![elsewhere.page().node], None)]
    {
        let needed = harness.start(ClientCall::Reachable(nodes));
        assert_eq!(harness.kind(needed), expected, "a commit that needs the damaged node is not sent");
    }
    let write = harness.start(ClientCall::Put(oid(2), ObjectState::Value(blob("new"))));
    assert_eq!((harness.kind(write), harness.writes.len()), (Some(ErrorKind::Corrupt), 0), "it is not sent");
    // What another peer server says is not known yet.
    harness.disconnect();
    harness.connect();
    let unknown = harness.start(ClientCall::Get(oid(2)));
    assert!(!harness.finished.contains_key(&unknown), "it is waited for");
    harness.damaged_status(None);
    let again = harness.start(ClientCall::Get(oid(2)));
    assert!(!harness.finished.contains_key(&again), "it is waited for");
}

fn watched_object_is_fetched_again_after_its_page_was_evicted() {
    let mut harness = Harness::with_cache(1);
    let call = harness.start(ClientCall::Change(oid(1), Some(blob("one"))));
    // Another page takes the room, and no message tells of the change.
    harness.start(ClientCall::Get(Oid::new(ClassId::NONE, page(8), 1)));
    harness.objects.insert(1, blob("new"));
    let fetches = harness.fetches;
    harness.advance(WATCH_RETRY_MS - 1);
    assert_eq!(harness.fetches, fetches, "it is polled at a rate");
    harness.advance(1);
    assert_eq!(harness.object(call), Some(blob("new")));
}

fn write_that_is_under_way_when_the_connection_ends_is_reported() {
    let mut harness = Harness::new();
    harness.start(ClientCall::Get(oid(1)));
    let call = harness.start(ClientCall::Put(oid(1), ObjectState::Value(blob("new"))));
    let (_, write) = harness.writes[0];
    harness.disconnect();
    harness.now += 1;
    harness.connect();
    let (holder, again) = *harness.writes.last().unwrap();
    assert_eq!((harness.writes.len(), again), (2, write), "it is repeated under its number");
    harness.down(NODE, holder, Down::Written { write, result: Ok(HlcTimestamp::at(9)) });
    harness.pump();
    assert!(matches!(harness.finished.get(&call), Some(Ok(CallResult::Written))), "{:?}", harness.finished);
}

fn outcome_is_that_of_the_transaction() {
    let mut harness = Harness::new();
    let ((first, one), (second, other)) = (harness.commit(1), harness.commit(2));
    harness.reply(second, committed_reply(9));
    assert_eq!(harness.outcome(other), CommitOutcome::Committed(HlcTimestamp::at(9).into()));
    assert!(!harness.finished.contains_key(&one));
    harness.reply(first, refused_reply(Refusal::Aborted));
    assert_eq!(harness.outcome(one), CommitOutcome::Conflict(ConflictReason::Aborted));
}

fn outcome_that_no_participant_knows_is_unknown() {
    let mut harness = Harness::new();
    let (txn, call) = harness.commit(1);
    harness.reply(txn, refused_reply(Refusal::TooOld));
    assert_eq!(harness.outcome(call), CommitOutcome::Unknown(txn));
}

fn stopped_space_refuses_at_once() {
    let mut harness = Harness::new();
    harness.serves = false;
    let (read, put) = (ClientCall::Get(oid(1)), ClientCall::Put(oid(1), ObjectState::Absent));
    let (read, put) = (harness.start(read), harness.start(put));
    let (txn, commit) = harness.commit(2);
    harness.status(false);
    assert_eq!(harness.kind(read), Some(ErrorKind::Stopped));
    assert_eq!(harness.driver.get(oid(1), harness.now).unwrap_err().kind(), ErrorKind::Stopped);
    // What was sent may still be done: it is waited for briefly.
    assert!(!harness.finished.contains_key(&put) && !harness.finished.contains_key(&commit));
    harness.advance(SHORT_WAIT_MS);
    assert_eq!((harness.kind(put), harness.kind(commit)), (Some(ErrorKind::Unknown), Some(ErrorKind::Unknown)));
    let resolves = |(of, call): &(TxnId, Call<Object>)| *of == txn && matches!(call, Call::Resolve { .. });
    assert!(harness.calls.iter().any(resolves), "the commit is given up");
    harness.status(true);
    harness.serves = true;
    assert!(harness.driver.get(oid(1), harness.now).is_ok());
}

fn refusal_for_good_is_reported_with_its_reason() {
    let mut harness = Harness::new();
    let (txn, call) = harness.commit(1);
    harness.defer(txn, ErrorKind::Denied);
    assert!(!harness.finished.contains_key(&call), "it may have been committed before");
    harness.reply(txn, refused_reply(Refusal::Aborted));
    assert_eq!(harness.kind(call), Some(ErrorKind::Denied));
}

fn refusal_is_that_of_the_write() {
    let mut harness = Harness::new();
    harness.start(ClientCall::Get(oid(1)));
    let call = harness.start(ClientCall::Put(oid(1), ObjectState::Value(blob("new"))));
    let (holder, write) = harness.writes[0];
    let (other, _) = harness.commit(2);
    harness.defer(other, ErrorKind::Denied);
    harness.down(NODE, holder, Down::Written { write, result: Err(Refusal::TooOld) });
    harness.pump();
    assert_eq!(harness.kind(call), Some(ErrorKind::Unknown));
    let call = harness.start(ClientCall::Put(oid(1), ObjectState::Value(blob("new"))));
    let (holder, write) = *harness.writes.last().unwrap();
    harness.defer(write, ErrorKind::Denied);
    harness.down(NODE, holder, Down::Written { write, result: Err(Refusal::TooOld) });
    harness.pump();
    assert_eq!(harness.kind(call), Some(ErrorKind::Denied));
}

/// A write to a logical node that is away, or of a caller that is gone, delays no others and is not kept.
#[test]
fn write_that_was_not_sent_when_its_call_ends_is_not_written() {
    let mut harness = Harness::new();
    harness.start(ClientCall::Get(oid(1)));
    let elsewhere = Oid::new(ClassId::NONE, PageId { node: NodeId(NODE.0 + 1), ..page(7) }, 1);
    let sent = harness.put(oid(1));
    let waiting = harness.put(elsewhere);
    let gone = harness.put(oid(2));
    harness.driver.cancel(gone, harness.now);
    harness.advance(TIMEOUT_MS - 1);
    let last = harness.put(oid(3));
    harness.advance(1);
    assert_eq!((harness.kind(sent), harness.kind(waiting)), (Some(ErrorKind::Unknown), Some(ErrorKind::Unavailable)));
    harness.answer_write(None);
    assert_eq!(harness.written, [[oid(1)], [oid(3)]], "the logical node is the same");
    let stopped = harness.put(elsewhere);
    harness.status(false);
    harness.advance(SHORT_WAIT_MS);
    assert_eq!((harness.kind(last), harness.kind(stopped)), (Some(ErrorKind::Unknown), Some(ErrorKind::Stopped)));
}

#[test]
fn refusal_of_one_of_several_writes_is_not_that_of_the_others() {
    let mut harness = Harness::new();
    harness.start(ClientCall::Get(oid(1)));
    harness.put(oid(1));
    let calls = [2, 3, 4].map(|slot| harness.put(oid(slot)));
    harness.answer_write(None);
    assert_eq!(harness.written.last().unwrap(), &[oid(2), oid(3), oid(4)]);
    harness.answer_write(Some(ErrorKind::Invalid));
    assert_eq!(harness.written.last().unwrap(), &[oid(2)]);
    harness.answer_write(None);
    assert_eq!(harness.written.last().unwrap(), &[oid(3), oid(4)]);
    harness.answer_write(Some(ErrorKind::Invalid));
    assert_eq!(harness.written.last().unwrap(), &[oid(3)]);
    harness.answer_write(Some(ErrorKind::Invalid));
    assert_eq!(harness.written.last().unwrap(), &[oid(4)]);
    harness.answer_write(None);
    assert_eq!(harness.kind(calls[1]), Some(ErrorKind::Invalid));
    for call in [calls[0], calls[2]] {
        assert!(matches!(harness.finished[&call], Ok(CallResult::Written)), "{:?}", harness.finished);
    }
    // A client that may not write may write none of them.
    let calls = [1, 2, 3].map(|slot| harness.put(oid(slot)));
    harness.answer_write(None);
    harness.answer_write(Some(ErrorKind::Denied));
    assert_eq!(calls.map(|call| harness.kind(call)), [None, Some(ErrorKind::Denied), Some(ErrorKind::Denied)]);
}

#[test]
fn transaction_that_has_only_read_has_no_unknown_outcome() {
    let mut harness = Harness::new();
    harness.start(ClientCall::Get(oid(1)));
    let commit = |harness: &mut Harness| {
        let txn = harness.driver.begin(Level::Optimistic, harness.now);
        assert_eq!(harness.read(txn, 1).unwrap(), Some(Some(blob("one"))));
        (txn, harness.start(ClientCall::Commit(txn, Vec::new())))
    };
    let (gone, call) = commit(&mut harness);
    harness.driver.cancel(call, harness.now);
    let (deferred, refused) = commit(&mut harness);
    harness.defer(deferred, ErrorKind::Full);
    let (txn, call) = commit(&mut harness);
    harness.advance(TIMEOUT_MS);
    assert_eq!((harness.kind(call), harness.kind(refused)), (Some(ErrorKind::Unavailable), Some(ErrorKind::Full)));
    for txn in [gone, deferred, txn] {
        assert!(!harness.driver.session().is_running(txn), "its check is repeated for ever");
    }
}

#[test]
fn reasons_of_refusals_are_kept_only_with_what_is_refused() {
    let mut harness = Harness::new();
    harness.defer(TxnId { start: HlcTimestamp::at(5), client: ClientId(1) }, ErrorKind::Denied);
    assert!(harness.driver.deferred.is_empty(), "nothing has this number");
    for _ in 0..=MAX_OUTCOMES {
        let (txn, call) = harness.commit(1);
        harness.driver.cancel(call, harness.now);
        harness.defer(txn, ErrorKind::Denied);
        harness.reply(txn, refused_reply(Refusal::Aborted));
    }
    assert_eq!((harness.driver.outcomes.len(), harness.driver.deferred.len()), (MAX_OUTCOMES, MAX_OUTCOMES));
    let outcomes: Vec<TxnId> = harness.driver.outcomes.keys().copied().collect();
    for txn in outcomes {
        harness.start(ClientCall::Resolve(txn));
    }
    assert!(harness.driver.deferred.is_empty());
}

fn denied_write_that_was_sent_before_may_have_been_written() {
    let mut harness = Harness::new();
    harness.start(ClientCall::Get(oid(1)));
    let call = harness.start(ClientCall::Put(oid(1), ObjectState::Value(blob("new"))));
    harness.disconnect();
    harness.connect();
    let [(_, first), (holder, again)] = harness.writes[..] else { panic!("it was sent twice: {:?}", harness.writes) };
    assert_eq!(first, again);
    harness.defer(again, ErrorKind::Denied);
    harness.down(NODE, holder, Down::Written { write: again, result: Err(Refusal::TooOld) });
    harness.pump();
    assert_eq!(harness.kind(call), Some(ErrorKind::Unknown));
}

fn commit_whose_caller_has_gone_is_given_up() {
    let mut harness = Harness::new();
    let (txn, call) = harness.commit(1);
    harness.calls.clear();
    harness.driver.cancel(call, harness.now);
    harness.pump();
    assert_eq!(harness.calls, [(txn, Call::Resolve { participants: vec![NODE], patched: vec![] })]);
    harness.reply(txn, committed_reply(9));
    assert!(harness.finished.is_empty(), "a cancelled call does not finish");
}

fn unanswered_call_fails_in_time() {
    let mut harness = Harness::new();
    harness.serves = false;
    let read = harness.start(ClientCall::Get(oid(1)));
    let request = harness.start(ClientCall::Request(vec![NODE]));
    let (txn, commit) = harness.commit(2);
    assert!(harness.driver.deadline().is_some_and(|at| at <= 1_000 + TIMEOUT_MS));
    harness.advance(TIMEOUT_MS - 1);
    assert!(harness.finished.is_empty());
    harness.advance(1);
    assert_eq!(
        (harness.kind(read), harness.kind(request)),
        (Some(ErrorKind::Unavailable), Some(ErrorKind::Unavailable))
    );
    assert_eq!(harness.outcome(commit), CommitOutcome::Unknown(txn));
}

fn request_is_repeated_after_its_connection_has_ended() {
    let mut harness = Harness::new();
    let call = harness.start(ClientCall::Request(Vec::new()));
    assert_eq!(harness.requests, [call]);
    harness.disconnect();
    harness.driver.handle_failed(call, Error::new(ErrorKind::Unknown, "the connection broke"), harness.now);
    harness.advance(REQUEST_RETRY_MS);
    assert_eq!(harness.requests.len(), 1, "there is no connection");
    harness.connect();
    assert_eq!(harness.requests, [call, call]);
    harness.driver.handle_failed(call, Error::new(ErrorKind::NotFound, "no such class"), harness.now);
    harness.pump();
    assert_eq!(harness.kind(call), Some(ErrorKind::NotFound), "what the peer server refuses is not repeated");
}

fn request_is_not_sent_again_while_its_answer_is_outstanding() {
    let mut harness = Harness::new();
    let call = harness.start(ClientCall::Request(Vec::new()));
    harness.connect();
    assert_eq!(harness.requests, [call]);
    harness.driver.handle_answered(call);
    harness.advance(TIMEOUT_MS);
    assert!(harness.finished.is_empty(), "the caller has the answer");
}

fn outcome_is_kept_for_who_asks_later() {
    let mut harness = Harness::new();
    let (txn, call) = harness.commit(1);
    harness.driver.cancel(call, harness.now);
    harness.reply(txn, committed_reply(9));
    let call = harness.start(ClientCall::Resolve(txn));
    assert_eq!(harness.outcome(call), CommitOutcome::Committed(HlcTimestamp::at(9).into()));
    let again = harness.start(ClientCall::Resolve(txn));
    harness.pump();
    assert_eq!(harness.kind(again), Some(ErrorKind::Invalid), "it is not waited for");
}

fn object_of_another_class_is_not_the_one_that_is_read() {
    let mut harness = Harness::new();
    let other = Oid::new(ClassId(5), page(7), 1);
    let call = harness.start(ClientCall::Get(other));
    assert_eq!(harness.object(call), None);
}

fn cache_stays_within_its_bound() {
    let mut harness = Harness::with_cache(40 * OVERHEAD);
    for number in 0..100 {
        harness.start(ClientCall::Get(Oid::new(ClassId::NONE, page(number), 1)));
    }
    assert!(harness.driver.session().cache().copies().count() < 40);
}

fn status_of_the_space_is_asked_of_each_peer_server() {
    let mut harness = Harness::new();
    harness.disconnect();
    harness.connect();
    assert_eq!(harness.watches, 2);
}

fn closed_client_releases_its_locks_and_ends_its_calls() {
    let mut harness = Harness::new();
    let txn = harness.driver.begin(Level::Locks { first: None }, harness.now);
    let (level, mode) = (IsolationLevel::Locks, LockMode::Exclusive);
    let read = harness.start(ClientCall::Read(ReadRequest { txn, level, oid: oid(1), mode }));
    let locked = LockedObject { oid: oid(1), mode, version: version(4), value: Some(blob("one")) };
    harness.reply(txn, Reply::Locked(locked));
    assert_eq!(harness.object(read), Some(blob("one")));
    let waits = harness.start(ClientCall::Read(ReadRequest { txn, level, oid: oid(2), mode }));
    harness.calls.clear();
    harness.driver.close();
    harness.pump();
    assert_eq!(harness.calls, [(txn, Call::Release { participants: vec![NODE] })]);
    assert_eq!(harness.kind(waits), Some(ErrorKind::Invalid));
    let late = harness.start(ClientCall::Get(oid(1)));
    assert_eq!(harness.kind(late), Some(ErrorKind::Invalid));
}

fn read_goes_on_when_its_session_opens() {
    let mut harness = Harness::new();
    // No session is open yet: the page is fetched once the lease has come.
    let call = harness.start(ClientCall::Get(oid(2)));
    assert_eq!(harness.object(call), Some(blob("two")));
}

fn client_that_is_not_admitted_fails_at_once() {
    let mut harness = Harness::new();
    harness.disconnect();
    harness.serves = false;
    let (read, request) = (ClientCall::Get(oid(1)), ClientCall::Request(Vec::new()));
    let (read, request) = (harness.start(read), harness.start(request));
    harness.driver.handle_refused(&Error::new(ErrorKind::Denied, "the user was removed"), harness.now);
    harness.pump();
    assert_eq!((harness.kind(read), harness.kind(request)), (Some(ErrorKind::Denied), Some(ErrorKind::Denied)));
    assert_eq!(harness.events, [Event::Refused { why: "the user was removed".to_owned() }]);
    harness.connect();
    assert!(harness.driver.check_serving().is_ok());
}

#[test]
fn request_that_expires_names_its_last_failure_unless_a_brick_is_unreachable() {
    for (nodes, is_reachable, is_named) in
        [(vec![], true, true), (vec![], false, true), (vec![NODE], true, true), (vec![NODE], false, false)]
    {
        let mut harness = Harness::new();
        harness.status(is_reachable);
        let call = harness.start(ClientCall::Request(nodes));
        harness.driver.handle_failed(call, Error::new(ErrorKind::Unavailable, "the brick is starting"), harness.now);
        harness.advance(TIMEOUT_MS);
        let error = harness.finished.remove(&call).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        assert_eq!(cause.as_deref(), is_named.then_some("the brick is starting"));
    }
}

#[test]
fn driver_is_polled_when_the_session_or_a_call_needs_it_first() {
    let mut harness = Harness::new();
    harness.start(ClientCall::Get(oid(1)));
    let of_session = harness.driver.deadline().expect("leases are renewed");
    harness.start(ClientCall::Request(Vec::new()));
    let of_call = harness.now + TIMEOUT_MS;
    assert!(of_session != of_call);
    assert_eq!(harness.driver.deadline(), Some(of_session.min(of_call)));
}

#[test]
fn damage_that_an_earlier_fetch_has_found_fails_no_call_of_now() {
    let mut harness = Harness::new();
    harness.serves = false;
    let call = harness.start(ClientCall::Get(oid(1)));
    let (holder, page, fetch) = harness.fetched.unwrap();
    harness.disconnect();
    harness.connect();
    harness.advance(1_000);
    let (new_holder, _, new_fetch) = harness.fetched.unwrap();
    assert!(new_holder != holder && new_fetch != fetch, "it is fetched again");
    let damaged = |fetch| Down::Fetched { page, fetch, reply: FetchReply::Damaged("its row is damaged".to_owned()) };
    for (holder, fetch) in [(holder, fetch), (new_holder, fetch)] {
        harness.down(NODE, holder, damaged(fetch));
        harness.pump();
        assert!(!harness.finished.contains_key(&call));
    }
    harness.down(NODE, new_holder, damaged(new_fetch));
    harness.pump();
    assert_eq!(harness.kind(call), Some(ErrorKind::Corrupt));
}

fn lock_whose_read_has_ended_leaves_its_place_to_another() {
    let mut harness = Harness::new();
    let txn = harness.driver.begin(Level::Locks { first: None }, harness.now);
    let (level, mode) = (IsolationLevel::Locks, LockMode::Exclusive);
    let read = |slot| ClientCall::Read(ReadRequest { txn, level, oid: oid(slot), mode });
    let reads: Vec<CallId> = (1..=64).map(|slot| harness.start(read(slot))).collect();
    let again = harness.start(read(2));
    harness.driver.cancel(reads[0], harness.now);
    harness.driver.cancel(reads[1], harness.now);
    harness.calls.clear();
    harness.start(read(65));
    harness.start(read(66));
    let requested: Vec<Oid> = locks(&harness);
    assert_eq!(requested, [oid(65)], "another read waits for the second lock");
    // Those that are not granted in time leave their places, too.
    harness.advance(TIMEOUT_MS);
    assert_eq!(harness.kind(again), Some(ErrorKind::Unavailable));
    harness.calls.clear();
    for slot in 101..=164 {
        harness.start(read(slot));
    }
    assert_eq!(locks(&harness).len(), 64);
}

/// The objects whose locks were requested.
fn locks(harness: &Harness) -> Vec<Oid> {
    let lock = |(_, call): &(TxnId, Call<Object>)| match call {
        Call::Lock { oid, .. } => Some(*oid),
        _ => None,
    };
    harness.calls.iter().filter_map(lock).collect()
}

macro_rules! duties {
    ($($test:ident notices $bug:ident)*) => {
        $(mod $test {
            #[test]
            fn holds() {
                super::$test();
            }

            #[test]
            fn is_tested() {
                assert!(super::is_noticed(super::Bug::$bug, super::$test), "{:?}", super::Bug::$bug);
            }
        })*
    };
}

duties! {
    each_call_gets_its_own_object notices AnswerToWrongCall
    doomed_transaction_ends notices DoomedGoesOn
    write_that_is_under_way_when_the_connection_ends_is_reported notices WriteLostOverReconnect
    outcome_is_that_of_the_transaction notices WrongTryBelieved
    outcome_that_no_participant_knows_is_unknown notices UnknownIsConflict
    stopped_space_refuses_at_once notices StoppedSpaceServes
    refusal_for_good_is_reported_with_its_reason notices RefusalIsConflict
    refusal_is_that_of_the_write notices RefusalOfAnotherWrite
    denied_write_that_was_sent_before_may_have_been_written notices DeniedIsNotWritten
    commit_whose_caller_has_gone_is_given_up notices CancelKeepsCommit
    lock_whose_read_has_ended_leaves_its_place_to_another notices EndedReadWaits
    unanswered_call_fails_in_time notices DeadlineIgnored
    request_is_repeated_after_its_connection_has_ended notices RequestNotRepeated
    request_is_not_sent_again_while_its_answer_is_outstanding notices RequestSentTwice
    outcome_is_kept_for_who_asks_later notices OutcomeNotKept
    object_of_another_class_is_not_the_one_that_is_read notices ClassIgnored
    cache_stays_within_its_bound notices NothingEvicted
    objects_that_a_change_adds_to_a_copy_count notices GrowthNotCounted
    read_whose_page_is_evicted_before_it_is_fetched_goes_on notices EvictedPageNotFetched
    status_of_the_space_is_asked_of_each_peer_server notices StatusNotWatched
    closed_client_releases_its_locks_and_ends_its_calls notices LocksKeptAtClose
    read_goes_on_when_its_session_opens notices LeaseNewsIgnored
    client_that_is_not_admitted_fails_at_once notices DeniedWaits
    change_of_a_watched_object_is_noticed notices ChangeNotNoticed
    watched_object_is_fetched_again_after_its_page_was_evicted notices EvictedPageNotWatched
    read_of_a_damaged_page_fails_with_the_reason notices DamagedPageFetchedAgain
    what_needs_a_damaged_logical_node_fails_with_the_reason notices DamagedNodeAwaited
    derived_values_count_in_the_limit_of_the_cache notices DerivedValuesFree
}

#[test]
fn watch_notices_what_has_changed_before_it_begins_and_while_the_connection_was_lost() {
    let mut harness = Harness::new();
    let before = harness.start(ClientCall::Change(oid(1), Some(blob("zero"))));
    assert_eq!(harness.object(before), Some(blob("one")));
    let call = harness.start(ClientCall::Change(oid(1), Some(blob("one"))));
    harness.disconnect();
    harness.objects.remove(&1);
    harness.now += 1;
    harness.connect();
    assert!(matches!(harness.finished.get(&call), Some(Ok(CallResult::Object(None)))), "{:?}", harness.finished);
}

#[test]
fn commit_that_a_brick_has_deferred_is_resolved_before_it_fails() {
    let mut harness = Harness::new();
    let ((full, one), (silent, other)) = (harness.commit(1), harness.commit(2));
    harness.defer(full, ErrorKind::Full);
    harness.defer(silent, ErrorKind::Unavailable);
    harness.advance(TIMEOUT_MS);
    assert!(harness.finished.is_empty(), "both are given up, and their outcomes are waited for briefly");
    harness.reply(full, refused_reply(Refusal::Aborted));
    assert_eq!(harness.kind(one), Some(ErrorKind::Full), "it was not committed and never will be");
    harness.advance(SHORT_WAIT_MS);
    assert_eq!(harness.kind(other), Some(ErrorKind::Unknown));
}

#[test]
fn commit_that_had_to_wait_for_room_ends_with_its_outcome() {
    let mut harness = Harness::new();
    let (txn, call) = harness.commit(1);
    harness.defer(txn, ErrorKind::Full);
    harness.reply(txn, refused_reply(Refusal::Aborted));
    assert_eq!(harness.outcome(call), CommitOutcome::Conflict(ConflictReason::Aborted));
}

#[test]
fn refused_commit_whose_outcome_is_forgotten_is_unknown() {
    let mut harness = Harness::new();
    let (txn, call) = harness.commit(1);
    harness.defer(txn, ErrorKind::Denied);
    harness.reply(txn, refused_reply(Refusal::TooOld));
    assert_eq!(harness.outcome(call), CommitOutcome::Unknown(txn), "it may have been committed before");
}

#[test]
fn outcome_that_a_brick_cannot_tell_yet_is_reported_with_the_reason() {
    for (kind, expected) in [(ErrorKind::Full, Some("reason")), (ErrorKind::Denied, None)] {
        let mut harness = Harness::new();
        let (txn, commit) = harness.commit(1);
        harness.driver.cancel(commit, harness.now);
        let call = harness.start(ClientCall::Resolve(txn));
        harness.defer(txn, kind);
        harness.advance(TIMEOUT_MS);
        match expected {
            Some(reason) => {
                let error = harness.finished.remove(&call).unwrap().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unknown);
                assert!(error.message().contains(reason), "{error}");
            }
            None => assert_eq!(harness.outcome(call), CommitOutcome::Unknown(txn)),
        }
    }
}

#[test]
fn lock_that_is_waited_for_fails_when_its_transaction_ends() {
    for aborts in [true, false] {
        let mut harness = Harness::new();
        let txn = harness.driver.begin(Level::Locks { first: None }, harness.now);
        let (level, mode) = (IsolationLevel::Locks, LockMode::Exclusive);
        let read = harness.start(ClientCall::Read(ReadRequest { txn, level, oid: oid(1), mode }));
        if aborts {
            harness.driver.abort(txn);
            harness.pump();
            assert_eq!(harness.kind(read), Some(ErrorKind::Invalid));
        } else {
            harness.reply(txn, refused_reply(Refusal::Aborted));
            assert_eq!(harness.kind(read), Some(ErrorKind::Conflict));
        }
    }
}

#[test]
fn query_and_touch_of_a_transaction_that_has_lost_its_locks_fail_with_its_conflict() {
    let mut harness = Harness::new();
    let txn = harness.driver.begin(Level::Locks { first: None }, harness.now);
    harness.reply(txn, refused_reply(Refusal::Aborted));
    let read = Read { oid: oid(1), seen: ReadVersion::At(version(4)) };
    let relied = harness.driver.rely_on(txn, vec![read], HlcTimestamp::ZERO).unwrap_err();
    let touched = harness.driver.touch(txn, oid(1), harness.now).unwrap_err();
    for error in [relied, touched] {
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.message().contains("aborted in favor of another"), "{error}");
    }
}

#[test]
fn read_of_a_transaction_that_was_aborted_meanwhile_fails_at_once() {
    for level in [Level::Optimistic, Level::Locks { first: None }] {
        let mut harness = Harness::new();
        let txn = harness.driver.begin(level, harness.now);
        harness.driver.abort(txn);
        assert_eq!(harness.read(txn, 1).unwrap_err().kind(), ErrorKind::Invalid);
        let read = ReadRequest { txn, level: IsolationLevel::Optimistic, oid: oid(1), mode: LockMode::Shared };
        let call = harness.start(ClientCall::Read(read));
        assert_eq!(harness.kind(call), Some(ErrorKind::Invalid));
    }
}

#[test]
fn calls_have_numbers_of_their_own() {
    let mut harness = Harness::new();
    let ids: BTreeSet<CallId> = (0..50).map(|_| harness.start(ClientCall::Get(oid(1)))).collect();
    assert_eq!((ids.len(), harness.finished.len()), (50, 50));
}
