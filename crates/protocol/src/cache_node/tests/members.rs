//! What a redirector does with the fetches, copies, updates and evictions of its members, and that each planted bug in it shows.

use crate::commit::Refusal;

use super::*;

const FIRST: HolderId = BELOW;
const SECOND: HolderId = HolderId(8);
const THIRD: HolderId = HolderId(9);

/// Calls a function without a bug, and with it: what it returns must be true only without it.
fn assert_noticed(bug: Bug, holds: impl Fn() -> bool) {
    assert!(holds(), "without a bug");
    let _planted = plant(bug);
    assert!(!holds(), "{bug:?} makes no difference");
}

/// The message about a change of slot 1 of the page.
fn change(previous: u64, version: u64, txn: TxnId, digest: Option<UpdateDigest>) -> Down<u64> {
    let (previous, version) = (Version { moves: 0, position: previous }, Version { moves: 0, position: version });
    let message = Invalidation { page: PAGE, slots: [1].into(), previous, version, timestamp: txn.start, txn, digest };
    Down::Invalidate { message, contents: None }
}

/// The holders that are sent a message of this kind.
fn told(node: &mut CacheNode<u8, u64>, is_it: impl Fn(&Down<u64>) -> bool) -> Vec<HolderId> {
    let outputs = node.outputs().into_iter();
    let told = outputs.filter_map(|output| match output {
        Output::Down(_, holder, message) if is_it(&message) => Some(holder),
        _ => None,
    });
    told.collect()
}

fn is_update(message: &Down<u64>) -> bool {
    matches!(message, Down::Invalidate { contents: Some(_), .. })
}

fn is_page(message: &Down<u64>) -> bool {
    matches!(message, Down::Fetched { reply: Page::Page(_), .. })
}

/// A commit with these writes passes, and the message about it comes with this digest. The holders that are sent the update.
fn updated(
    node: &mut CacheNode<u8, u64>,
    writes: Writes<u64>,
    creates: bool,
    digest: Option<UpdateDigest>,
) -> Vec<HolderId> {
    let part = Part { writes, ..Part::default() };
    node.handle_call(1, txn(2), Call::Commit { parts: [(NODE, part)].into(), creates }, 1_003).unwrap();
    node.outputs().clear();
    node.handle_down(NODE, ABOVE, change(0, 5, txn(2), digest), 1_004);
    told(node, is_update)
}

#[test]
fn copy_is_compared_with_the_page_from_above() {
    assert_noticed(Bug::PageNotNoted, || {
        let mut node = group();
        let (helper, help) = fetch(&mut node, SECOND, PAGE, 1_003).unwrap();
        node.handle_up(NODE, helper, Up::Helped { page: PAGE, help, copy: Some(image(5)) }, 1_004).unwrap();
        told(&mut node, is_page) == [SECOND]
    });
}

#[test]
fn holder_that_has_helped_least_is_asked() {
    assert_noticed(Bug::LoadNotSpread, || {
        let mut node = group();
        let (helper, help) = fetch(&mut node, SECOND, PAGE, 1_003).unwrap();
        node.handle_up(NODE, helper, Up::Helped { page: PAGE, help, copy: Some(image(5)) }, 1_004).unwrap();
        open(&mut node, THIRD, 1_005);
        fetch(&mut node, THIRD, PAGE, 1_006).unwrap().0 == SECOND
    });
}

#[test]
fn concurrent_misses_are_one_fetch_above() {
    assert_noticed(Bug::MissNotJoined, || {
        let mut node = node(Helpers::All);
        open(&mut node, SECOND, 1_001);
        node.handle_up(NODE, SECOND, Up::Fetch { page: PAGE, fetch: FetchId(5), have: None }, 1_002).unwrap();
        take_sent_up(&mut node).is_empty()
    });
}

#[test]
fn all_that_wait_for_a_page_get_it() {
    assert_noticed(Bug::OnlyFirstAnswered, || {
        let mut node = node(Helpers::All);
        open(&mut node, SECOND, 1_001);
        node.handle_up(NODE, SECOND, Up::Fetch { page: PAGE, fetch: FetchId(5), have: None }, 1_002).unwrap();
        let fetched = Down::Fetched { page: PAGE, fetch: FetchId(1), reply: Page::Page(image(5)) };
        node.handle_down(NODE, ABOVE, fetched, 1_003);
        told(&mut node, is_page) == [FIRST, SECOND]
    });
}

/// The fetch starts again when too many messages were kept for those who join it: they do not get these messages any more.
#[test]
fn page_of_an_earlier_fetch_is_dropped() {
    assert_noticed(Bug::AnyPageFromAbove, || {
        let mut node = node(Helpers::All);
        let many = crate::page_cache::MESSAGES_LIMIT_BYTES / crate::page_cache::message_bytes::<u64>(None) + 1;
        for position in 1..=many as u64 {
            node.handle_down(NODE, ABOVE, change(position - 1, position, txn(1), None), 1_001);
        }
        let fetched = |fetch| Down::Fetched { page: PAGE, fetch: FetchId(fetch), reply: Page::Page(image(5)) };
        node.handle_down(NODE, ABOVE, fetched(1), 1_002);
        let earlier = told(&mut node, is_page);
        node.handle_down(NODE, ABOVE, fetched(2), 1_003);
        earlier.is_empty() && told(&mut node, is_page) == [FIRST]
    });
}

#[test]
fn fetch_goes_up_at_once_when_its_helper_is_gone() {
    assert_noticed(Bug::GoneHelperAwaited, || {
        let mut node = group();
        fetch(&mut node, SECOND, PAGE, 1_003).unwrap();
        node.handle_disconnected(&0, |_, holder| holder == FIRST, 1_004);
        matches!(take_sent_up(&mut node)[..], [Up::Fetch { page: PAGE, .. }])
    });
}

#[test]
fn holder_that_is_gone_waits_for_no_page() {
    assert_noticed(Bug::GoneWaiterKept, || {
        let mut node = node(Helpers::All);
        open(&mut node, SECOND, 1_001);
        node.handle_up(NODE, SECOND, Up::Fetch { page: PAGE, fetch: FetchId(5), have: None }, 1_002).unwrap();
        node.handle_disconnected(&0, |_, holder| holder == SECOND, 1_003);
        let fetched = Down::Fetched { page: PAGE, fetch: FetchId(1), reply: Page::Page(image(5)) };
        node.handle_down(NODE, ABOVE, fetched, 1_004);
        told(&mut node, is_page) == [FIRST]
    });
}

#[test]
fn pages_that_do_not_exist_count_after_their_holder_is_gone_and_those_that_it_waits_for_do_not() {
    let mut node = node(Helpers::None);
    open(&mut node, SECOND, 1_001);
    let absent = PageId { number: 99, ..PAGE };
    node.handle_up(NODE, FIRST, Up::Fetch { page: absent, fetch: FetchId(5), have: None }, 1_002).unwrap();
    let fetched = Down::Fetched { page: absent, fetch: FetchId(2), reply: Page::Page(image(0)) };
    node.handle_down(NODE, ABOVE, fetched, 1_003);
    node.handle_up(NODE, SECOND, Up::Fetch { page: absent, fetch: FetchId(6), have: None }, 1_004).unwrap();
    assert_eq!(node.unconfirmed_pages(&(FIRST..=FIRST)), 2, "one that it waits for, and one that does not exist");
    node.handle_disconnected(&0, |_, holder| holder == FIRST, 1_005);
    assert_eq!([FIRST, SECOND].map(|holder| node.unconfirmed_pages(&(holder..=holder))), [1, 1]);
}

#[test]
fn session_that_is_replaced_is_not_listed() {
    assert_noticed(Bug::ReplacedHolderKept, || {
        let mut node = group();
        let (wanted_ms, subscribe, height, replaces) = (10_000, false, 0, Some(FIRST));
        let renew = Up::Renew { asked: 1_003, wanted_ms, open: true, sync: 1, subscribe, height, replaces };
        node.handle_up(NODE, THIRD, renew, 1_003).unwrap();
        node.tree(NODE).unwrap().directory().holders(PAGE).next().is_none()
    });
}

#[test]
fn update_needs_a_digest() {
    assert_noticed(Bug::UpdateWithoutProof, || {
        let mut node = group();
        updated(&mut node, write(1), false, None).is_empty()
    });
}

/// What was not there is not in the message: the brick has not changed it.
#[test]
fn deletion_of_nothing_is_no_part_of_an_update() {
    assert_noticed(Bug::DeletionOfNothingKept, || {
        let mut node = group();
        let mut writes = write(1);
        writes.insert(Oid::new(ClassId::NONE, PAGE, 2), ObjectState::Absent);
        updated(&mut node, writes, false, Some(digest_of(write(1)))) == [FIRST] && node.counts().forged == 0
    });
}

#[test]
fn commit_that_creates_objects_is_not_retained() {
    assert_noticed(Bug::CreationRetained, || {
        let mut node = group();
        updated(&mut node, write(1), true, Some(digest_of(write(1)))).is_empty()
    });
}

#[test]
fn update_of_a_refused_commit_is_forgotten() {
    assert_noticed(Bug::RefusedUpdateKept, || {
        let mut node = group();
        let part = Part { writes: write(1), ..Part::default() };
        node.handle_call(1, txn(2), Call::Commit { parts: [(NODE, part)].into(), creates: false }, 1_003).unwrap();
        node.handle_reply(txn(2), Reply::Ended(coordinator::CommitReply::Refused(Refusal::TooOld)));
        !sends_update(&mut node, txn(2))
    });
}

#[test]
fn update_goes_to_those_that_have_the_page() {
    assert_noticed(Bug::UpdateToUnlisted, || {
        let mut node = group();
        updated(&mut node, write(1), false, Some(digest_of(write(1)))) == [FIRST]
    });
}

#[test]
fn writer_is_sent_its_update() {
    assert_noticed(Bug::WriterNotTold, || {
        let mut node = group();
        node.handle_up(NODE, FIRST, Up::Write { write: txn(2), writes: write(1) }, 1_003).unwrap();
        node.outputs().clear();
        node.handle_down(NODE, ABOVE, change(0, 5, txn(2), Some(digest_of(write(1)))), 1_004);
        told(&mut node, is_update) == [FIRST]
    });
}

#[test]
fn redirector_below_a_brick_says_that_it_is_one() {
    assert_noticed(Bug::LevelNotReported, || {
        let mut node: CacheNode<u8, u64> = CacheNode::peer_server(ABOVE, Helpers::All, 50);
        let (wanted_ms, subscribe, height) = (10_000, false, 0);
        let renew = Up::Renew { asked: 1_000, wanted_ms, open: true, sync: 1, subscribe, height, replaces: None };
        node.handle_up(NODE, BELOW, renew, 1_000).unwrap();
        matches!(take_sent_up(&mut node)[..], [Up::Renew { height: 2, .. }])
    });
}

#[test]
fn page_is_evicted_above_when_the_last_holder_has_evicted_it() {
    let is_reported = |holders: usize, bug: Option<Bug>| {
        let mut node = group();
        if holders > 1 {
            let (helper, help) = fetch(&mut node, SECOND, PAGE, 1_003).unwrap();
            node.handle_up(NODE, helper, Up::Helped { page: PAGE, help, copy: Some(image(5)) }, 1_004).unwrap();
        }
        node.outputs().clear();
        let _planted = bug.map(plant);
        node.handle_up(NODE, FIRST, Up::Evict { page: PAGE, fetch: FetchId(1) }, 1_005).unwrap();
        matches!(take_sent_up(&mut node)[..], [Up::Evict { page: PAGE, .. }])
    };
    assert!(is_reported(1, None) && !is_reported(2, None));
    assert!(!is_reported(1, Some(Bug::EvictionNotReported)) && is_reported(2, Some(Bug::EvictedForAll)));
}

#[test]
fn acknowledgement_waits_for_holders_that_join_the_fetch() {
    assert_noticed(Bug::JoinerNotAwaited, || {
        let mut node = node(Helpers::All);
        open(&mut node, SECOND, 1_001);
        node.handle_down(NODE, ABOVE, change(0, 5, txn(2), None), 1_002);
        node.handle_up(NODE, SECOND, Up::Fetch { page: PAGE, fetch: FetchId(5), have: None }, 1_003).unwrap();
        node.outputs().clear();
        let acknowledge = Up::Acknowledge { page: PAGE, version: Version { moves: 0, position: 5 } };
        node.handle_up(NODE, FIRST, acknowledge.clone(), 1_004).unwrap();
        let first = take_sent_up(&mut node);
        node.handle_up(NODE, SECOND, acknowledge.clone(), 1_005).unwrap();
        first.is_empty() && take_sent_up(&mut node) == [acknowledge]
    });
}

#[test]
fn closed_timestamps_are_passed_on_to_subscribers() {
    assert_noticed(Bug::CloseNotForwarded, || {
        let mut node = node(Helpers::All);
        let (wanted_ms, subscribe, height) = (10_000, true, 0);
        let renew = Up::Renew { asked: 1_001, wanted_ms, open: false, sync: 0, subscribe, height, replaces: None };
        node.handle_up(NODE, FIRST, renew, 1_001).unwrap();
        node.outputs().clear();
        node.handle_down(NODE, ABOVE, Down::Close { at: HlcTimestamp::at(900) }, 1_002);
        told(&mut node, |message| matches!(message, Down::Close { .. })) == [FIRST]
    });
}
