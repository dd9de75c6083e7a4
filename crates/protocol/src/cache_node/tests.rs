use model::{ClassId, Oid, PageId, SpaceId};

use super::*;
use crate::commit::{Part, Writes};
use crate::ident::{ClientId, Version};
use crate::page_cache::{FetchId, FetchReply as Page, Invalidation, ObjectState, PageImage};

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

/// Whether the node sends the new states to its holders when this transaction changes the page.
fn sends_update(node: &mut CacheNode<u8, u64>, txn: TxnId) -> bool {
    let (previous, version) = (Version::ZERO, Version { moves: 0, position: txn.start.ms() });
    let message = Invalidation { page: PAGE, slots: [1].into(), previous, version, timestamp: txn.start, txn };
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
        let message =
            Invalidation { page: PAGE, slots: [1].into(), previous, version, timestamp: txn(1).start, txn: txn(1) };
        node.handle_down(NODE, ABOVE, Down::Invalidate { message, contents: None }, 1_001);
    }
    let again = take_sent_up(&mut node);
    assert!(matches!(again[..], [Up::Fetch { fetch: FetchId(2), .. }]), "{again:?}");
    // A holder that joins the fetch receives no earlier messages.
    node.handle_up(NODE, BELOW, Up::Fetch { page: PAGE, fetch: FetchId(9), have: None }, 1_002).unwrap();
    assert_eq!(node.outputs(), []);
}
