use std::collections::BTreeMap;
use std::sync::Arc;

use model::planted_bug::plant;
use model::{ClassId, Oid, PageId, SpaceId};
use protocol::brick::LockedObject;
use protocol::commit::{Part, Writes};
use protocol::ident::{ClientId, HlcTimestamp, Version};
use protocol::locks::LockMode;
use protocol::page_cache::{FetchId, ObjectState};
use protocol::update_digest::UpdateDigest;

use super::*;
use crate::cluster_view::SpaceView;

const NODE: NodeId = NodeId(3);
const PAGE: PageId = PageId { space: SpaceId(1), node: NODE, number: 7 };
const BITS: u32 = 20;
const NOW: Ms = 1_000_000;

type Driver = RedirectorDriver<u8, u64>;

/// A member of space 1 at an address, with a number.
fn member_with_number(address: u8, number: u64, may_write: bool) -> Member<u8> {
    let space = SpaceView { id: SpaceId(1), name: "main".to_owned(), nodes: vec![NODE] };
    Member::new(PeerClient::with_all_permissions(address, Arc::new(space), ClientId(number)), may_write)
}

/// Member 5 at address 1, member 6 at address 2.
fn member(address: u8, may_write: bool) -> Member<u8> {
    member_with_number(address, u64::from(address) + 4, may_write)
}

fn holder(client: u64) -> HolderId {
    HolderId(client << BITS)
}

fn txn(client: u64) -> TxnId {
    TxnId { start: HlcTimestamp::at(NOW), client: ClientId(client) }
}

fn renew() -> Up<u64> {
    let (wanted_ms, subscribe, height) = (10_000, false, 0);
    Up::Renew { asked: NOW, wanted_ms, open: true, sync: 1, subscribe, height, replaces: None }
}

fn writes(page: PageId) -> Writes<u64> {
    [(Oid::new(ClassId::NONE, page, 1), ObjectState::Value(5))].into()
}

fn commit(page: PageId) -> Call<u64> {
    let part = Part { writes: writes(page), ..Part::default() };
    Call::Commit { parts: [(page.node, part)].into(), creates: false }
}

/// A redirector with a session above.
fn connected_driver() -> Driver {
    let mut driver = Driver::new(9, BITS);
    driver.upstream_connected(NOW);
    driver
}

/// Opens the session of a member, and answers the redirector's questions.
fn open(driver: &mut Driver, member: &mut Member<u8>, client: u64) {
    driver.member_up(member, (NODE, holder(client)), renew(), NOW).unwrap();
    for _ in 0..3 {
        let asked: Vec<_> = driver.outputs().collect();
        for output in asked {
            if let Output::Up { node, holder, message: Up::Renew { asked, wanted_ms, sync, .. } } = output {
                driver.upstream_down(node, holder, Down::Leased { asked, lease_ms: wanted_ms, sync }, NOW);
            }
        }
    }
    assert!(driver.cache_node().tree(NODE).unwrap().directory().knows(holder(client)));
}

#[test]
fn member_uses_its_number_once_it_opens_a_session() {
    let (mut driver, mut member) = (connected_driver(), member(1, true));
    assert!(!member.uses_number());
    open(&mut driver, &mut member, 5);
    assert!(member.uses_number());
}

#[test]
fn call_goes_on_the_connection_of_its_member_and_its_reply_to_the_member() {
    let (mut driver, mut one, mut other) = (connected_driver(), member(1, true), member(2, true));
    driver.member_call(&mut one, txn(5), commit(PAGE), NOW).unwrap();
    driver.member_call(&mut other, txn(6), commit(PAGE), NOW).unwrap();
    let from = |output: Output<u8, u64>| match output {
        Output::Call { from, txn, .. } => (from, txn),
        other => panic!("{other:?}"),
    };
    assert_eq!(driver.outputs().map(from).collect::<Vec<_>>(), [(1, txn(5)), (2, txn(6))]);
    let reply = || Reply::Ended(protocol::commit::coordinator::CommitReply::Refused(Refusal::TooOld));
    driver.member_reply(txn(6), reply());
    assert!(matches!(driver.outputs().collect::<Vec<_>>()[..], [Output::Reply { to: 2, .. }]));
    // A call that has ended has no further reply.
    driver.member_reply(txn(6), reply());
    assert_eq!(driver.outputs().count(), 0);
    let _planted = plant(Bug::ReplyDropped);
    driver.member_reply(txn(5), reply());
    assert_eq!(driver.outputs().count(), 0);
}

#[test]
fn member_uses_its_own_sessions_and_transactions_only() {
    let mut driver = connected_driver();
    let (mut one, mut other) = (member(1, true), member_with_number(2, 5, true));
    open(&mut driver, &mut one, 5);
    for lie in [holder(6), holder(9)] {
        assert_eq!(driver.member_up(&mut one, (NODE, lie), renew(), NOW).unwrap_err().kind(), ErrorKind::Denied);
    }
    let lie = |driver: &mut Driver, by: &mut Member<u8>| driver.member_call(by, txn(6), commit(PAGE), NOW);
    assert_eq!(lie(&mut driver, &mut one).unwrap_err().kind(), ErrorKind::Denied);
    let foreign = Up::Write { write: txn(6), writes: writes(PAGE) };
    assert!(driver.member_up(&mut one, (NODE, holder(5)), foreign, NOW).is_err());
    // One that connects again takes its number over.
    driver.outputs().for_each(drop);
    open(&mut driver, &mut other, 5);
    let _planted = plant(Bug::MemberUsesOthersTransaction);
    assert!(lie(&mut driver, &mut one).is_ok());
}

#[test]
fn later_connection_of_a_member_ends_its_earlier_one() {
    let (mut driver, mut before, mut after) = (connected_driver(), member(1, true), member_with_number(2, 5, true));
    open(&mut driver, &mut before, 5);
    driver.member_up(&mut after, (NODE, holder(5)), renew(), NOW).unwrap();
    let out: Vec<_> = driver.outputs().collect();
    assert!(out.contains(&Output::Disconnect(1)), "{out:?}");
    // What comes for it goes to the later one.
    driver.member_disconnected(&before, NOW);
    let deferred = |driver: &mut Driver| {
        driver.upstream_deferred(NODE, txn(5), ErrorKind::Unavailable, "later".to_owned());
        driver.outputs().find_map(|output| if let Output::Deferred { to, .. } = output { Some(to) } else { None })
    };
    assert_eq!(deferred(&mut driver), Some(2));
    let _planted = plant(Bug::DeferredToNone);
    assert_eq!(deferred(&mut driver), None);
}

/// Redirector 8 is below, at address 2, and has a connection in the name of its member 5, at address 1, if the member has called.
#[test]
fn redirector_below_hears_why_the_write_of_its_member_is_deferred() {
    for (bug, calls, hears) in [
        (None, false, Some(2)),
        (None, true, Some(2)),
        (Some(Bug::DeferredToMember), false, None),
        (Some(Bug::DeferredToMember), true, Some(1)),
    ] {
        let _planted = bug.map(plant);
        let (mut driver, mut one) = (connected_driver(), member(1, true));
        let mut below = member_with_number(2, 8, true);
        below.client = below.client.as_redirector();
        open(&mut driver, &mut below, 8);
        if calls {
            driver.member_call(&mut one, txn(5), commit(PAGE), NOW).unwrap();
        }
        let write = TxnId { start: HlcTimestamp::at(NOW + 1), client: ClientId(5) };
        let message = Up::Write { write, writes: writes(PAGE) };
        driver.member_up(&mut below, (NODE, holder(8)), message, NOW).unwrap();
        driver.outputs().for_each(drop);
        driver.upstream_deferred(NODE, write, ErrorKind::Denied, "read-only".to_owned());
        let told = driver.outputs().find_map(|out| if let Output::Deferred { to, .. } = out { Some(to) } else { None });
        assert_eq!(told, hears, "{bug:?}, after a call: {calls}");
    }
}

#[test]
fn pages_and_logical_nodes_of_other_spaces_are_refused() {
    let (mut driver, mut one) = (connected_driver(), member(1, true));
    open(&mut driver, &mut one, 5);
    let (elsewhere, unknown) = (PageId { space: SpaceId(2), ..PAGE }, PageId { node: NodeId(4), ..PAGE });
    for page in [elsewhere, unknown] {
        let fetch = Up::Fetch { page, fetch: FetchId(1), have: None };
        assert!(driver.member_up(&mut one, (page.node, holder(5)), fetch, NOW).is_err());
        assert!(driver.member_call(&mut one, txn(5), commit(page), NOW).is_err());
    }
    let _planted = plant(Bug::MemberCallUnchecked);
    assert!(driver.member_call(&mut one, txn(5), commit(elsewhere), NOW).is_ok());
}

#[test]
fn calls_beyond_limits_are_refused() {
    let (mut driver, mut one) = (connected_driver(), member(1, true));
    let late = TxnId { start: HlcTimestamp::at(NOW + 3_600_000), client: ClientId(5) };
    assert_eq!(driver.member_call(&mut one, late, commit(PAGE), NOW).unwrap_err().kind(), ErrorKind::Invalid);
    let _planted = plant(Bug::MemberCallTooLarge);
    assert!(driver.member_call(&mut one, late, commit(PAGE), NOW).is_ok());
}

/// Whether a write is forwarded, and whether the member hears that it has ended.
fn write(driver: &mut Driver, by: &mut Member<u8>, client: u64) -> (bool, bool) {
    driver.outputs().for_each(drop);
    let write = Up::Write { write: txn(client), writes: writes(PAGE) };
    driver.member_up(by, (NODE, holder(client)), write, NOW).unwrap();
    let out: Vec<_> = driver.outputs().collect();
    let is_forwarded = out.iter().any(|output| matches!(output, Output::Up { message: Up::Write { .. }, .. }));
    let is_ended = out.iter().any(|output| {
        matches!(output, Output::Down { message: Down::Written { result: Err(Refusal::TooOld), .. }, .. })
    });
    let reasons = out.iter().filter(|output| matches!(output, Output::Deferred { kind: ErrorKind::Denied, .. }));
    assert_eq!(reasons.count(), usize::from(!is_forwarded));
    (is_forwarded, is_ended)
}

#[test]
fn write_of_a_member_that_may_only_read_is_denied() {
    let (mut driver, mut writer, mut reader) = (connected_driver(), member(1, true), member(2, false));
    open(&mut driver, &mut writer, 5);
    open(&mut driver, &mut reader, 6);
    assert_eq!(write(&mut driver, &mut writer, 5), (true, false));
    assert_eq!(write(&mut driver, &mut reader, 6), (false, true));
    {
        let _planted = plant(Bug::DeniedWriteHangs);
        assert_eq!(write(&mut driver, &mut reader, 6), (false, false));
    }
    let _planted = plant(Bug::MemberWriteUnchecked);
    assert_eq!(write(&mut driver, &mut reader, 6), (true, false));
}

/// The holder that is asked for a page that two members have and one wants.
fn asked_helper(driver: &mut Driver, wants: &mut Member<u8>, client: u64) -> Option<HolderId> {
    driver.outputs().for_each(drop);
    let fetch = Up::Fetch { page: PAGE, fetch: FetchId(1), have: None };
    driver.member_up(wants, (NODE, holder(client)), fetch, NOW).unwrap();
    driver.outputs().find_map(|output| match output {
        Output::Down { holder, message: Down::Help { .. }, .. } => Some(holder),
        _ => None,
    })
}

#[test]
fn member_that_has_left_is_not_asked_for_help() {
    for (bug, helper) in [(None, None), (Some(Bug::MemberNotForgotten), Some(holder(5)))] {
        let _planted = bug.map(plant);
        let (mut driver, mut one, mut other) = (connected_driver(), member(1, true), member(2, true));
        open(&mut driver, &mut one, 5);
        open(&mut driver, &mut other, 6);
        let fetch = Up::Fetch { page: PAGE, fetch: FetchId(1), have: None };
        driver.member_up(&mut one, (NODE, holder(5)), fetch, NOW).unwrap();
        let above = driver.outputs().find_map(|output| match output {
            Output::Up { holder, message: Up::Fetch { fetch, .. }, .. } => Some((holder, fetch)),
            _ => None,
        });
        let (session, fetch) = above.unwrap();
        let image = protocol::page_cache::PageImage {
            version: protocol::ident::Version::ZERO,
            timestamp: HlcTimestamp::ZERO,
            objects: BTreeMap::new(),
        };
        let reply = protocol::page_cache::FetchReply::Page(image);
        driver.upstream_down(NODE, session, Down::Fetched { page: PAGE, fetch, reply }, NOW);
        driver.member_disconnected(&one, NOW);
        // A message to a connection that has ended is lost, but the machine must not have sent it.
        let asked = asked_helper(&mut driver, &mut other, 6);
        let waits = driver.cache_node().check_invariants();
        assert_eq!((asked, waits), (helper, Ok(())), "{bug:?}");
    }
}

#[test]
fn sessions_of_members_end_with_the_connection_to_the_server_above() {
    for (bug, ended) in [(None, true), (Some(Bug::UpstreamLossIgnored), false)] {
        let _planted = bug.map(plant);
        let (mut driver, mut one) = (connected_driver(), member(1, true));
        open(&mut driver, &mut one, 5);
        driver.upstream_disconnected(NOW);
        let out: Vec<_> = driver.outputs().collect();
        let is_closed = |output: &Output<u8, u64>| matches!(output, Output::Down { to: 1, message: Down::Closed, .. });
        assert_eq!(out.iter().any(is_closed), ended, "{bug:?}: {out:?}");
    }
}

/// Whether the new state in a member's commit is sent to another member when an invalidation names the commit.
fn is_update_sent(may_write: bool) -> bool {
    let (mut driver, mut writer, mut reader) = (connected_driver(), member(1, may_write), member(2, true));
    open(&mut driver, &mut writer, 5);
    open(&mut driver, &mut reader, 6);
    let fetch = Up::Fetch { page: PAGE, fetch: FetchId(1), have: None };
    driver.member_up(&mut reader, (NODE, holder(6)), fetch, NOW).unwrap();
    driver.member_call(&mut writer, txn(5), commit(PAGE), NOW).unwrap();
    driver.outputs().for_each(drop);
    let session = driver.cache_node().tree(NODE).unwrap().upstream().holder();
    let (previous, version) = (protocol::ident::Version::ZERO, protocol::ident::Version { moves: 0, position: 1 });
    let digest = UpdateDigest::of(&writes(PAGE).into_iter().map(|(oid, state)| (oid.slot(), state)).collect());
    let message = protocol::page_cache::Invalidation {
        page: PAGE,
        slots: [1].into(),
        previous,
        version,
        timestamp: txn(5).start,
        txn: txn(5),
        digest: Some(digest),
    };
    driver.upstream_down(NODE, session, Down::Invalidate { message, contents: None }, NOW);
    let sent = driver.outputs().find_map(|output| match output {
        Output::Down { to: 2, message: Down::Invalidate { contents, .. }, .. } => Some(contents.is_some()),
        _ => None,
    });
    sent.unwrap()
}

#[test]
fn commit_of_a_member_that_may_only_read_updates_no_other_member() {
    assert!(is_update_sent(true));
    assert!(!is_update_sent(false));
    let _planted = plant(Bug::ReaderUpdates);
    assert!(is_update_sent(false));
}

#[test]
fn repeated_call_is_marked_until_it_is_answered() {
    let (mut driver, mut one) = (connected_driver(), member(1, true));
    let mut call = |driver: &mut Driver| {
        driver.member_call(&mut one, txn(5), commit(PAGE), NOW).unwrap();
        driver.outputs().find_map(|it| if let Output::Call { is_repeated, .. } = it { Some(is_repeated) } else { None })
    };
    assert_eq!((call(&mut driver), call(&mut driver)), (Some(false), Some(true)));
    let reply = Reply::Ended(protocol::commit::coordinator::CommitReply::Refused(Refusal::TooOld));
    driver.member_reply(txn(5), reply);
    driver.outputs().for_each(drop);
    assert_eq!(call(&mut driver), Some(false));
}

#[test]
fn locks_and_their_renewals_are_no_repetitions() {
    let slot = |slot| Oid::new(ClassId::NONE, PAGE, slot);
    let lock = |of: u16| Call::Lock { first: txn(5), oid: slot(of), mode: LockMode::Shared };
    let locked = || {
        let object = LockedObject { oid: slot(1), mode: LockMode::Shared, version: Version::ZERO, value: None };
        Reply::Locked(object)
    };
    let (mut driver, mut one) = (connected_driver(), member(1, true));
    let mut is_repeated = |driver: &mut Driver, call: Call<u64>| {
        driver.member_call(&mut one, txn(5), call, NOW).unwrap();
        driver.outputs().find_map(|it| if let Output::Call { is_repeated, .. } = it { Some(is_repeated) } else { None })
    };
    for call in [lock(1), lock(1), lock(2)] {
        assert_eq!(is_repeated(&mut driver, call), Some(false));
    }
    driver.member_reply(txn(5), locked());
    driver.outputs().for_each(drop);
    // Locks are renewed until the transaction has ended.
    for (call, expected) in [(commit(PAGE), false), (lock(1), false), (commit(PAGE), true)] {
        assert_eq!(is_repeated(&mut driver, call), Some(expected));
    }
    driver.member_reply(txn(5), locked());
    driver.outputs().for_each(drop);
    let nodes = || vec![NODE];
    let resolve = Call::Resolve { participants: nodes(), patched: Vec::new() };
    for (call, expected) in [(commit(PAGE), true), (resolve, false), (Call::Release { participants: nodes() }, false)] {
        assert_eq!(is_repeated(&mut driver, call), Some(expected));
    }
}

#[test]
fn messages_to_a_member_that_has_connected_again_go_to_its_later_connection() {
    use crate::peer::plant::Bug as SharedBug;
    for (bug, expected) in [(None, 2), (Some(SharedBug::SessionKeepsConnection), 1)] {
        let _planted = bug.map(plant);
        let (mut driver, mut before, mut after) = (connected_driver(), member(1, true), member_with_number(2, 5, true));
        open(&mut driver, &mut before, 5);
        driver.member_up(&mut after, (NODE, holder(5)), renew(), NOW).unwrap();
        assert_eq!(driver.below.holder(holder(5)), Some(&expected), "{bug:?}");
    }
}
