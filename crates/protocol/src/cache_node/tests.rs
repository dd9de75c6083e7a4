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

/// A node whose sessions are open, above and below, with a holder of a page.
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

/// The new states that those below are told when this transaction changes the page.
fn sends_update(node: &mut CacheNode<u8, u64>, txn: TxnId) -> bool {
    let (previous, version) = (Version::ZERO, Version { moves: 0, position: txn.start.ms() });
    let message = Invalidation { page: PAGE, slots: [1].into(), previous, version, timestamp: txn.start, txn };
    node.outputs().clear();
    node.handle_down(NODE, ABOVE, Down::Invalidate { message, contents: None }, 1_001);
    let told = node.outputs().into_iter().find_map(|output| match output {
        Output::Down(_, BELOW, Down::Invalidate { contents, .. }) => Some(contents.is_some()),
        _ => None,
    });
    told.unwrap()
}

#[test]
fn updates_are_retained_only_where_those_below_help_each_other() {
    for (helpers, are_retained) in [(Helpers::All, true), (Helpers::None, false)] {
        let mut node = node(helpers);
        node.handle_up(NODE, BELOW, Up::Write { write: txn(1), writes: write(1) }, 1_000).unwrap();
        assert_eq!(sends_update(&mut node, txn(1)), are_retained, "a write outside of transactions: {helpers:?}");
        let part = Part { writes: write(1), ..Part::default() };
        node.handle_call(1, txn(2), Call::Commit { parts: [(NODE, part)].into(), creates: false }, 1_000).unwrap();
        assert_eq!(sends_update(&mut node, txn(2)), are_retained, "a commit: {helpers:?}");
    }
}

/// Passed on, it would be this node that is disconnected by the brick, with all its clients.
#[test]
fn a_page_of_another_node_is_rejected_here() {
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

/// What the node above is told.
fn take_sent_up(node: &mut CacheNode<u8, u64>) -> Vec<Up<u64>> {
    let outputs = node.outputs().into_iter();
    outputs.filter_map(|output| if let Output::Up(_, _, message) = output { Some(message) } else { None }).collect()
}

/// Time passes: it is woken when it says, and gets the leases that it asks for.
fn advance_time(node: &mut CacheNode<u8, u64>, to: Ms) -> Vec<Up<u64>> {
    let mut told = Vec::new();
    while let Some(at) = node.deadline().filter(|at| *at <= to) {
        node.poll(at);
        for message in take_sent_up(node) {
            if let Up::Renew { asked, sync, .. } = message {
                let session = node.tree(NODE).unwrap().upstream().holder();
                node.handle_down(NODE, session, Down::Leased { asked, lease_ms: 10_000, sync }, at);
            }
            told.push(message);
        }
        node.check_invariants().unwrap();
        assert!(node.deadline().is_none_or(|next| next > at));
    }
    told
}

#[test]
fn a_tree_that_nobody_uses_renews_nothing_and_comes_back() {
    let mut node = node(Helpers::None);
    let fetched = PageImage { version: Version::ZERO, timestamp: HlcTimestamp::ZERO, objects: BTreeMap::new() };
    let fetched = Down::Fetched { page: PAGE, fetch: FetchId(1), reply: Page::Page(fetched) };
    node.handle_down(NODE, ABOVE, fetched, 1_001);
    let told = advance_time(&mut node, 200_000);
    // The page is given back when its holder has expired; until then its lease is renewed.
    assert!(matches!(told[..], [.., Up::Evict { .. }]), "{told:?}");
    assert_eq!((node.deadline(), advance_time(&mut node, 900_000)), (None, Vec::new()));
    let (wanted_ms, subscribe, height) = (10_000, false, 0);
    let renew = Up::Renew { asked: 900_000, wanted_ms, open: true, sync: 1, subscribe, height, replaces: None };
    node.handle_up(NODE, HolderId(8), renew, 900_000).unwrap();
    assert!(matches!(take_sent_up(&mut node)[..], [Up::Renew { open: true, .. }]));
}

#[test]
fn a_fetch_during_which_too_much_is_told_is_begun_anew() {
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
    // Whoever joins it hears of what comes from now on.
    node.handle_up(NODE, BELOW, Up::Fetch { page: PAGE, fetch: FetchId(9), have: None }, 1_002).unwrap();
    assert_eq!(node.outputs(), []);
}
