use model::planted_bug::plant;
use model::{ClassId, Oid, PageId, SpaceId};

use super::*;
use crate::commit::{Part, Writes};
use crate::ident::{ClientId, Version};
use crate::page_cache::{FetchId, FetchReply as Page, Invalidation, ObjectState, PageImage};
use crate::plant::Bug;
use crate::update_digest::UpdateDigest;

mod members;

const NODE: NodeId = NodeId(3);
const PAGE: PageId = PageId { space: SpaceId(1), node: NODE, number: 7 };
const ABOVE: HolderId = HolderId(1_000);
const BELOW: HolderId = HolderId(7);

fn txn(ms: u64) -> TxnId {
    TxnId { start: HlcTimestamp::at(ms), client: ClientId(1) }
}

/// A cache node with a session above, a session below, and a holder of a page.
fn node(helpers: Helpers) -> CacheNode<u8, u64> {
    let mut node = CacheNode::peer_server(ABOVE, helpers, 50);
    let (wanted_ms, subscribe, height) = (10_000, false, 0);
    let renew = Up::Renew { asked: 1_000, wanted_ms, open: true, sync: 1, subscribe, height, replaces: None };
    node.handle_up(NODE, BELOW, renew, 1_000).unwrap();
    for sync in [1, 2] {
        node.handle_down(NODE, ABOVE, Down::Leased { asked: 1_000, lease_ms: 10_000, sync }, 1_000);
    }
    node.handle_up(NODE, BELOW, Up::Fetch { page: PAGE, fetch: FetchId(1), have: None }, 1_000).unwrap();
    assert!(node.tree(NODE).unwrap().directory().holders(PAGE).eq([BELOW]));
    node.outputs().clear();
    node
}

fn write(slot: u16) -> Writes<u64> {
    [(Oid::new(ClassId::NONE, PAGE, slot), ObjectState::Value(5))].into()
}

/// The digest that a brick states of these writes.
fn digest_of(writes: Writes<u64>) -> UpdateDigest {
    UpdateDigest::of(&writes.into_iter().map(|(oid, state)| (oid.slot(), state)).collect())
}

/// Whether the node sends the new states to its holders when this transaction changes the page.
fn sends_update(node: &mut CacheNode<u8, u64>, txn: TxnId) -> bool {
    let (previous, version) = (Version::ZERO, Version { moves: 0, position: txn.start.ms() });
    let digest = Some(digest_of(write(1)));
    let message = Invalidation { page: PAGE, slots: [1].into(), previous, version, timestamp: txn.start, txn, digest };
    node.outputs().clear();
    node.handle_down(NODE, ABOVE, Down::Invalidate { message, contents: None }, 1_001);
    let sent = node.outputs().into_iter().find_map(|output| match output {
        Output::Down(_, BELOW, Down::Invalidate { contents, .. }) => Some(contents.is_some()),
        _ => None,
    });
    sent.unwrap()
}

#[test]
fn updates_are_retained_only_if_holders_help_each_other() {
    for (helpers, are_retained) in [(Helpers::All, true), (Helpers::None, false)] {
        let mut node = node(helpers);
        node.handle_up(NODE, BELOW, Up::Write { write: txn(1), writes: write(1) }, 1_000).unwrap();
        assert_eq!(sends_update(&mut node, txn(1)), are_retained, "a write outside of transactions: {helpers:?}");
        let part = Part { writes: write(1), ..Part::default() };
        node.handle_call(1, txn(2), Call::Commit { parts: [(NODE, part)].into(), creates: false }, 1_000).unwrap();
        assert_eq!(sends_update(&mut node, txn(2)), are_retained, "a commit: {helpers:?}");
    }
}

/// If the node forwarded such a message, the brick would disconnect the node with all its clients.
#[test]
fn page_of_another_node_is_rejected() {
    let mut node = node(Helpers::None);
    let page = PageId { node: NodeId(4), ..PAGE };
    let writes: Writes<u64> = [(Oid::new(ClassId::NONE, page, 1), ObjectState::Value(5))].into();
    for lie in [
        Up::Fetch { page, fetch: FetchId(2), have: None },
        Up::Acknowledge { page, version: Version::ZERO },
        Up::Evict { page, fetch: FetchId(1) },
        Up::Helped { page, help: FetchId(1), copy: None },
        Up::Write { write: txn(1), writes: writes.clone() },
    ] {
        assert_eq!(node.handle_up(NODE, BELOW, lie, 1_000), Err(Rejected::Foreign(page)));
    }
    let part = Part { writes, ..Part::default() };
    let lie = Call::Commit { parts: [(NODE, part)].into(), creates: false };
    assert!(matches!(node.handle_call(1, txn(1), lie, 1_000), Err(Rejected::Elsewhere(_))));
    assert_eq!(node.outputs(), []);
}

/// Takes the messages to the node above.
fn take_sent_up(node: &mut CacheNode<u8, u64>) -> Vec<Up<u64>> {
    let outputs = node.outputs().into_iter();
    outputs.filter_map(|output| if let Output::Up(_, _, message) = output { Some(message) } else { None }).collect()
}

/// Advances the time, polls the node at its deadlines, and grants the leases that it requests. Returns its messages
/// to the node above.
fn advance_time(node: &mut CacheNode<u8, u64>, to: Ms) -> Vec<Up<u64>> {
    let mut messages = Vec::new();
    while let Some(at) = node.deadline().filter(|at| *at <= to) {
        node.poll(at);
        for message in take_sent_up(node) {
            if let Up::Renew { asked, sync, .. } = message {
                let session = node.tree(NODE).unwrap().upstream().holder();
                node.handle_down(NODE, session, Down::Leased { asked, lease_ms: 10_000, sync }, at);
            }
            messages.push(message);
        }
        node.check_invariants().unwrap();
        assert!(node.deadline().is_none_or(|next| next > at));
    }
    messages
}

#[test]
fn unused_tree_renews_no_lease_until_it_is_used_again() {
    let mut node = node(Helpers::None);
    let fetched = PageImage { version: Version::ZERO, timestamp: HlcTimestamp::ZERO, objects: BTreeMap::new() };
    let fetched = Down::Fetched { page: PAGE, fetch: FetchId(1), reply: Page::Page(fetched) };
    node.handle_down(NODE, ABOVE, fetched, 1_001);
    let messages = advance_time(&mut node, 200_000);
    // The lease is renewed until the holder has expired; then the page is evicted.
    assert!(matches!(messages[..], [.., Up::Evict { .. }]), "{messages:?}");
    assert_eq!((node.deadline(), advance_time(&mut node, 900_000)), (None, Vec::new()));
    let (wanted_ms, subscribe, height) = (10_000, false, 0);
    let renew = Up::Renew { asked: 900_000, wanted_ms, open: true, sync: 1, subscribe, height, replaces: None };
    node.handle_up(NODE, HolderId(8), renew, 900_000).unwrap();
    assert!(matches!(take_sent_up(&mut node)[..], [Up::Renew { open: true, .. }]));
}

#[test]
fn fetch_starts_again_above_the_message_limit() {
    let mut node = node(Helpers::All);
    let many = crate::page_cache::MESSAGES_LIMIT_BYTES / crate::page_cache::message_bytes::<u64>(None) + 1;
    for position in 1..=many as u64 {
        let (previous, version) = (Version { moves: 0, position: position - 1 }, Version { moves: 0, position });
        let message = Invalidation {
            page: PAGE,
            slots: [1].into(),
            previous,
            version,
            timestamp: txn(1).start,
            txn: txn(1),
            digest: None,
        };
        node.handle_down(NODE, ABOVE, Down::Invalidate { message, contents: None }, 1_001);
    }
    let again = take_sent_up(&mut node);
    assert!(matches!(again[..], [Up::Fetch { fetch: FetchId(2), .. }]), "{again:?}");
    // A holder that joins the fetch receives no earlier messages.
    node.handle_up(NODE, BELOW, Up::Fetch { page: PAGE, fetch: FetchId(9), have: None }, 1_002).unwrap();
    assert_eq!(node.outputs(), []);
}

// ---------------------------------------------------------------------------------------- helpers that lie

const OTHER: PageId = PageId { number: 8, ..PAGE };

fn image(value: u64) -> PageImage<u64> {
    PageImage { version: Version::ZERO, timestamp: HlcTimestamp::ZERO, objects: [(1, value)].into() }
}

/// Opens a session below.
fn open(node: &mut CacheNode<u8, u64>, holder: HolderId, now: Ms) {
    let (wanted_ms, subscribe, height) = (10_000, false, 0);
    let renew = Up::Renew { asked: now, wanted_ms, open: true, sync: 1, subscribe, height, replaces: None };
    node.handle_up(NODE, holder, renew, now).unwrap();
    for message in take_sent_up(node) {
        if let Up::Renew { asked, sync, .. } = message {
            node.handle_down(NODE, ABOVE, Down::Leased { asked, lease_ms: 10_000, sync }, now);
        }
    }
}

/// A holder fetches a page. Returns who is asked to help, and the number of that; or the number of the fetch above.
fn fetch(
    node: &mut CacheNode<u8, u64>,
    holder: HolderId,
    page: PageId,
    now: Ms,
) -> Result<(HolderId, FetchId), FetchId> {
    node.outputs().clear();
    node.handle_up(NODE, holder, Up::Fetch { page, fetch: FetchId(5), have: None }, now).unwrap();
    fetch_source(node)
}

fn fetch_source(node: &mut CacheNode<u8, u64>) -> Result<(HolderId, FetchId), FetchId> {
    let asked = node.outputs().into_iter().find_map(|output| match output {
        Output::Down(_, helper, Down::Help { help, .. }) => Some(Ok((helper, help))),
        Output::Up(_, _, Up::Fetch { fetch, .. }) => Some(Err(fetch)),
        _ => None,
    });
    asked.unwrap()
}

/// A node below which a holder has two pages, which are the object 5, and another holder none.
fn group() -> CacheNode<u8, u64> {
    let mut node = node(Helpers::All);
    node.handle_down(NODE, ABOVE, Down::Fetched { page: PAGE, fetch: FetchId(1), reply: Page::Page(image(5)) }, 1_001);
    let above = fetch(&mut node, BELOW, OTHER, 1_001).unwrap_err();
    node.handle_down(NODE, ABOVE, Down::Fetched { page: OTHER, fetch: above, reply: Page::Page(image(5)) }, 1_001);
    open(&mut node, HolderId(8), 1_002);
    node
}

/// The pages that a holder is sent.
fn pages_sent(node: &mut CacheNode<u8, u64>, to: HolderId) -> Vec<PageImage<u64>> {
    let sent = node.outputs().into_iter().filter_map(|output| match output {
        Output::Down(_, holder, Down::Fetched { reply: Page::Page(image), .. }) if holder == to => Some(image),
        _ => None,
    });
    sent.collect()
}

#[test]
fn forged_copy_reaches_no_other_holder_and_its_giver_is_not_asked_again() {
    for bug in [None, Some(Bug::ForgedCopyTaken), Some(Bug::ForgerAskedAgain)] {
        let _planted = bug.map(plant);
        let mut node = group();
        let (helper, help) = fetch(&mut node, HolderId(8), PAGE, 1_003).unwrap();
        assert_eq!(helper, BELOW);
        let forged = Up::Helped { page: PAGE, help, copy: Some(image(6)) };
        node.handle_up(NODE, BELOW, forged, 1_004).unwrap();
        if bug == Some(Bug::ForgedCopyTaken) {
            assert_eq!(pages_sent(&mut node, HolderId(8)), [image(6)]);
            continue;
        }
        // The page comes from the node above.
        let above = fetch_source(&mut node).unwrap_err();
        node.handle_down(NODE, ABOVE, Down::Fetched { page: PAGE, fetch: above, reply: Page::Page(image(5)) }, 1_005);
        assert_eq!(pages_sent(&mut node, HolderId(8)), [image(5)]);
        assert_eq!((node.counts().forged, node.counts().helped), (1, 0));
        let is_asked_again = fetch(&mut node, HolderId(8), OTHER, 1_006).is_ok();
        assert_eq!(is_asked_again, bug == Some(Bug::ForgerAskedAgain));
    }
}

/// The update of a commit that passed comes from a redirector above, which has proven it.
#[test]
fn update_from_above_is_passed_on_and_ends_the_retained_one() {
    for bug in [None, Some(Bug::RetainedBesideUpdate), Some(Bug::UpdateFromAboveIgnored)] {
        let _planted = bug.map(plant);
        let mut node = node(Helpers::All);
        let part = Part { writes: write(1), ..Part::default() };
        node.handle_call(1, txn(2), Call::Commit { parts: [(NODE, part)].into(), creates: false }, 1_003).unwrap();
        node.outputs().clear();
        let (previous, version) = (Version::ZERO, Version { moves: 0, position: 2 });
        let timestamp = txn(2).start;
        let message =
            Invalidation { page: PAGE, slots: [1].into(), previous, version, timestamp, txn: txn(2), digest: None };
        let contents = Some([(1, ObjectState::Value(7))].into());
        node.handle_down(NODE, ABOVE, Down::Invalidate { message, contents: contents.clone() }, 1_004);
        let sent = node.outputs().into_iter().find_map(|output| match output {
            Output::Down(_, BELOW, Down::Invalidate { contents, .. }) => Some(contents),
            _ => None,
        });
        assert_eq!(sent.unwrap() == contents, bug != Some(Bug::UpdateFromAboveIgnored));
        assert_eq!(sends_update(&mut node, txn(2)), bug == Some(Bug::RetainedBesideUpdate), "the retained update");
    }
}

/// A member has sent one commit with different contents here and to another server, and the brick has applied the other ones.
#[test]
fn update_that_the_brick_has_not_applied_reaches_no_holder() {
    for bug in [None, Some(Bug::UpdateNotCompared)] {
        let _planted = bug.map(plant);
        let mut node = node(Helpers::All);
        let writes = [(Oid::new(ClassId::NONE, PAGE, 1), ObjectState::Value(6))].into();
        let part = Part { writes, ..Part::default() };
        node.handle_call(1, txn(2), Call::Commit { parts: [(NODE, part)].into(), creates: false }, 1_003).unwrap();
        assert_eq!(sends_update(&mut node, txn(2)), bug.is_some());
        assert_eq!(node.counts().forged, u64::from(bug.is_none()));
        assert!(!sends_update(&mut node, txn(2)), "the update was dropped");
    }
}

#[test]
fn holder_that_does_not_help_in_time_is_not_asked_for_a_while() {
    for bug in [None, Some(Bug::LateHelperAsked)] {
        let _planted = bug.map(plant);
        let mut node = group();
        let begun = 1_003;
        fetch(&mut node, HolderId(8), PAGE, begun).unwrap();
        let late = node.deadline().unwrap();
        node.poll(late);
        let above = fetch_source(&mut node).unwrap_err();
        node.handle_down(NODE, ABOVE, Down::Fetched { page: PAGE, fetch: above, reply: Page::Page(image(5)) }, late);
        assert_eq!(fetch(&mut node, HolderId(8), OTHER, late).is_ok(), bug.is_some());
    }
}

#[test]
fn honest_copy_is_given_on_after_changes_too() {
    for (bug, forged) in [(None, 0), (Some(Bug::StatesNotNoted), 1)] {
        let _planted = bug.map(plant);
        let mut node = group();
        // Another commit of a member changes the page: its new state passes, and then its invalidation.
        let writes: Writes<u64> = [(Oid::new(ClassId::NONE, PAGE, 1), ObjectState::Value(6))].into();
        let digest = Some(digest_of(writes.clone()));
        let part = Part { writes, ..Part::default() };
        node.handle_call(1, txn(2), Call::Commit { parts: [(NODE, part)].into(), creates: false }, 1_003).unwrap();
        let (previous, version) = (Version::ZERO, Version { moves: 0, position: 9 });
        let message = Invalidation {
            page: PAGE,
            slots: [1].into(),
            previous,
            version,
            timestamp: txn(2).start,
            txn: txn(2),
            digest,
        };
        node.handle_down(NODE, ABOVE, Down::Invalidate { message, contents: None }, 1_004);
        let (helper, help) = fetch(&mut node, HolderId(8), PAGE, 1_005).unwrap();
        let copy = PageImage { version, timestamp: txn(2).start, objects: [(1, 6)].into() };
        node.handle_up(NODE, helper, Up::Helped { page: PAGE, help, copy: Some(copy.clone()) }, 1_006).unwrap();
        assert_eq!(node.counts().forged, forged);
        if bug.is_none() {
            assert_eq!(pages_sent(&mut node, HolderId(8)), [copy]);
        }
    }
}

/// The page that is under way may be older than an update that others were sent meanwhile.
#[test]
fn holder_that_joins_a_fetch_receives_the_updates_that_were_sent_since_it_began() {
    for (bug, expected) in [(None, 1), (Some(Bug::UpdateNotBuffered), 0)] {
        let _planted = bug.map(plant);
        let mut node = node(Helpers::All);
        open(&mut node, HolderId(8), 1_002);
        // The fetch of the first holder is under way when a commit that has passed is proven.
        assert!(sends_update_of(&mut node, txn(2)));
        node.handle_up(NODE, HolderId(8), Up::Fetch { page: PAGE, fetch: FetchId(6), have: None }, 1_003).unwrap();
        let updates = node.outputs().into_iter().filter(|output| {
            matches!(output, Output::Down(_, HolderId(8), Down::Invalidate { contents: Some(_), .. }))
        });
        assert_eq!(updates.count(), expected);
    }
}

/// A commit passes, and its invalidation comes. Whether the holder is sent the new state.
fn sends_update_of(node: &mut CacheNode<u8, u64>, txn: TxnId) -> bool {
    let part = Part { writes: write(1), ..Part::default() };
    node.handle_call(1, txn, Call::Commit { parts: [(NODE, part)].into(), creates: false }, 1_002).unwrap();
    sends_update(node, txn)
}

/// A member that guesses the number of a request must not keep another one from its page.
#[test]
fn answer_of_a_holder_that_was_not_asked_is_ignored() {
    for bug in [None, Some(Bug::AnyHelper)] {
        let _planted = bug.map(plant);
        let mut node = group();
        open(&mut node, HolderId(9), 1_002);
        let (helper, help) = fetch(&mut node, HolderId(8), PAGE, 1_003).unwrap();
        assert_eq!(helper, BELOW);
        node.handle_up(NODE, HolderId(9), Up::Helped { page: PAGE, help, copy: None }, 1_004).unwrap();
        // The holder that was asked is asked again, under another number, and its answer does not count.
        node.handle_up(NODE, BELOW, Up::Helped { page: PAGE, help, copy: Some(image(5)) }, 1_005).unwrap();
        let sent = pages_sent(&mut node, HolderId(8));
        assert_eq!(sent, if bug.is_none() { vec![image(5)] } else { Vec::new() });
    }
}

#[test]
fn holder_that_gives_another_version_is_not_asked_for_a_while() {
    for bug in [None, Some(Bug::OtherVersionForgiven)] {
        let _planted = bug.map(plant);
        let mut node = group();
        let (_, help) = fetch(&mut node, HolderId(8), PAGE, 1_003).unwrap();
        let other = PageImage { version: Version { moves: 0, position: 9 }, ..image(5) };
        node.handle_up(NODE, BELOW, Up::Helped { page: PAGE, help, copy: Some(other) }, 1_004).unwrap();
        let above = fetch_source(&mut node).unwrap_err();
        node.handle_down(NODE, ABOVE, Down::Fetched { page: PAGE, fetch: above, reply: Page::Page(image(5)) }, 1_005);
        assert_eq!(pages_sent(&mut node, HolderId(8)), [image(5)]);
        assert_eq!((node.counts().forged, node.counts().helped), (0, 0));
        assert_eq!(fetch(&mut node, HolderId(8), OTHER, 1_006).is_ok(), bug.is_some());
    }
}

#[test]
fn one_client_waits_for_a_bounded_number_of_transactions_and_keeps_no_other_from_waiting() {
    let mut node: CacheNode<u8, u64> = CacheNode::redirector(HolderId(9));
    let (at, first) = (NodeId(1), 10);
    let of = |client: u64, start: u64| TxnId { start: HlcTimestamp::at(first + start), client: ClientId(client) };
    let resolve = || Call::Resolve { participants: vec![at], patched: Vec::new() };
    let most = callers::MAX_OF_CLIENT as u64;
    let mut call = |txn: TxnId| node.handle_call(txn.client.0 as u8, txn, resolve(), 0).unwrap();
    for start in 0..most {
        assert!(matches!(call(of(1, start)), Some(Output::Call(..))));
    }
    assert_eq!(call(of(1, most)), Some(Output::Busy(1, of(1, most), CallLimit::Client(at))));
    assert!(matches!(call(of(1, 3)), Some(Output::Call(..))), "a repetition");
    assert!(matches!(call(of(2, most)), Some(Output::Call(..))), "another client");
    let release = Call::Release { participants: vec![at] };
    node.handle_call(1, of(1, 5), release, 0).unwrap();
    let mut call = |txn: TxnId| node.handle_call(txn.client.0 as u8, txn, resolve(), 0).unwrap();
    assert!(matches!(call(of(1, most)), Some(Output::Call(..))), "one has ended");
    node.handle_disconnected(&1, |_, _| false, 0);
    let reply = || Reply::Checked(Ok(HlcTimestamp::ZERO));
    assert_eq!(node.handle_reply(of(1, 3), reply()), None);
    assert_eq!(node.handle_reply(of(2, most), reply()), Some(Output::Reply(2, of(2, most), reply())));
}
