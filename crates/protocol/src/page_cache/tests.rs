use model::{ClassId, NodeId, SpaceId};
use proptest::prelude::*;

use super::*;
use crate::ident::ClientId;

const PAGE: PageId = PageId { space: SpaceId(1), node: NodeId(0), number: 7 };
const ME: TxnId = txn(1000);

const fn txn(number: u64) -> TxnId {
    TxnId { start: HlcTimestamp::at(number), client: ClientId(1) }
}

fn oid(slot: u16) -> Oid {
    Oid::new(ClassId::NONE, PAGE, slot)
}

fn at(position: u64) -> Version {
    Version { moves: 0, position }
}

/// The message of the transaction that made `version` out of `previous`.
fn message(previous: u64, version: u64, slots: &[u16]) -> Invalidation {
    Invalidation {
        page: PAGE,
        slots: slots.iter().copied().collect(),
        previous: at(previous),
        version: at(version),
        timestamp: HlcTimestamp::at(version),
        txn: txn(version),
    }
}

fn values(slots: &[u16], value: u64) -> SlotStates<u64> {
    slots.iter().map(|slot| (*slot, ObjectState::Value(value))).collect()
}

/// A cache with the page at version 4, where objects 1 to 3 have the value 4.
fn cache() -> PageCache<u64> {
    let mut cache = PageCache::default();
    fetch(&mut cache, 4, &[(1, 4), (2, 4), (3, 4)]);
    cache
}

fn fetch(cache: &mut PageCache<u64>, version: u64, objects: &[(u16, u64)]) {
    let (id, _) = cache.fetch(PAGE).unwrap();
    assert!(cache.handle_fetched(PAGE, id, FetchReply::Page(page(version, objects))));
}

fn page(version: u64, objects: &[(u16, u64)]) -> PageImage<u64> {
    let objects = objects.iter().copied().collect();
    PageImage { version: at(version), timestamp: HlcTimestamp::at(version), objects }
}

fn reads(cache: &mut PageCache<u64>) -> Vec<(u16, ReadVersion)> {
    cache.finish(ME).unwrap().reads.into_iter().map(|read| (read.oid.slot(), read.seen)).collect()
}

#[test]
fn a_chained_message_advances_the_copy_and_the_reads_that_it_does_not_name() {
    let mut cache = cache();
    cache.begin(ME);
    assert_eq!(cache.read(ME, oid(1)), Lookup::Value(&4));
    let _ = cache.invalidate(message(4, 5, &[2]), None);
    assert_eq!(cache.version(PAGE), Some(at(5)));
    assert_eq!(cache.lookup(oid(2)), Lookup::Miss);
    assert_eq!(reads(&mut cache), [(1, ReadVersion::At(at(5)))]);
}

/// ATTACK: the version of a read was once taken at the commit.
#[test]
fn a_message_that_names_what_was_read_dooms_the_transaction() {
    let mut cache = cache();
    cache.begin(ME);
    cache.read(ME, oid(1));
    let _ = cache.invalidate(message(4, 5, &[1]), Some(values(&[1], 5)));
    assert_eq!(cache.doomed(ME), Some(oid(1)));
    assert_eq!(cache.finish(ME), Err(Some(oid(1))));
}

/// BuddyCache, figure 5.
#[test]
fn messages_in_any_order_end_in_the_same_copy() {
    let mut cache = cache();
    let _ = cache.invalidate(message(5, 6, &[2]), Some(values(&[2], 6)));
    assert_eq!((cache.version(PAGE), cache.lookup(oid(2))), (Some(at(4)), Lookup::Value(&6)));
    cache.begin(ME);
    cache.read(ME, oid(1));
    cache.read(ME, oid(2));
    assert_eq!(cache.complete_page(PAGE), None, "another client would take object 2 for older than it is");
    let _ = cache.invalidate(message(4, 5, &[3]), None);
    assert_eq!((cache.version(PAGE), cache.lookup(oid(3))), (Some(at(6)), Lookup::Miss));
    assert_eq!(reads(&mut cache), [(1, ReadVersion::At(at(6))), (2, ReadVersion::At(at(6)))]);
    cache.check_invariants().unwrap();
}

#[test]
fn an_older_message_does_not_undo_a_newer_one() {
    let mut cache = cache();
    let _ = cache.invalidate(message(5, 6, &[2]), Some(values(&[2], 6)));
    let _ = cache.invalidate(message(4, 5, &[2]), Some(values(&[2], 5)));
    assert_eq!((cache.version(PAGE), cache.lookup(oid(2))), (Some(at(6)), Lookup::Value(&6)));
}

/// ATTACK: a crossing reply once installed what an invalidation had already made old.
#[test]
fn what_comes_while_a_fetch_is_out_is_applied_to_its_reply() {
    let mut cache = PageCache::default();
    let (id, _) = cache.fetch(PAGE).unwrap();
    assert_eq!(cache.fetch(PAGE), None, "one fetch is out");
    let _ = cache.invalidate(message(5, 6, &[2]), None);
    assert!(
        !cache.handle_fetched(PAGE, FetchId(99), FetchReply::Page(page(5, &[(1, 5)]))),
        "the reply to another fetch"
    );
    assert!(cache.handle_fetched(PAGE, id, FetchReply::Page(page(5, &[(1, 5), (2, 5)]))));
    assert_eq!((cache.version(PAGE), cache.lookup(oid(2))), (Some(at(6)), Lookup::Miss));
    assert_eq!(cache.lookup(oid(1)), Lookup::Value(&5));
}

#[test]
fn another_copy_raises_no_read_of_the_one_before() {
    let mut cache = cache();
    cache.begin(ME);
    cache.read(ME, oid(1));
    cache.evict(PAGE);
    fetch(&mut cache, 8, &[(1, 4), (2, 8)]);
    cache.read(ME, oid(2));
    let _ = cache.invalidate(message(8, 9, &[3]), None);
    assert_eq!(reads(&mut cache), [(1, ReadVersion::At(at(4))), (2, ReadVersion::At(at(9)))]);
}

#[test]
fn an_own_write_is_seen_by_others_only_when_it_is_committed() {
    let mut cache = cache();
    cache.begin(ME);
    cache.write(ME, oid(1), ObjectState::Value(77));
    assert_eq!(cache.read(ME, oid(1)), Lookup::Value(&77));
    assert_eq!(cache.lookup(oid(1)), Lookup::Value(&4));
    cache.finish(ME).unwrap();
    cache.handle_outcome(ME, Some(HlcTimestamp::at(9)));
    assert_eq!(cache.lookup(oid(1)), Lookup::Value(&77));
    cache.begin(txn(2000));
    cache.read(txn(2000), oid(1));
    // Its message ends the entry; the read is at that version then.
    let _ = cache.invalidate(Invalidation { txn: ME, ..message(4, 5, &[1]) }, None);
    assert_eq!((cache.version(PAGE), cache.lookup(oid(1))), (Some(at(5)), Lookup::Value(&77)));
    let finished = cache.finish(txn(2000)).unwrap();
    assert_eq!(finished.reads, [Read { oid: oid(1), seen: ReadVersion::At(at(5)) }]);
}

#[test]
fn an_aborted_transaction_leaves_nothing() {
    let mut cache = cache();
    cache.begin(ME);
    cache.write(ME, oid(1), ObjectState::Absent);
    cache.finish(ME).unwrap();
    cache.handle_outcome(ME, None);
    assert_eq!(cache.lookup(oid(1)), Lookup::Value(&4));
}

/// ATTACK: an own write was once installed blind.
#[test]
fn an_own_write_is_not_put_over_another_copy_or_a_newer_change() {
    let mut cache = cache();
    cache.begin(ME);
    cache.write(ME, oid(1), ObjectState::Value(77));
    cache.finish(ME).unwrap();
    let mut refetched = cache.clone();
    refetched.evict(PAGE);
    fetch(&mut refetched, 9, &[(1, 9)]);
    refetched.handle_outcome(ME, Some(HlcTimestamp::at(9)));
    assert_eq!(refetched.lookup(oid(1)), Lookup::Value(&9));
    let _ = cache.invalidate(message(8, 9, &[1]), Some(values(&[1], 9)));
    cache.handle_outcome(ME, Some(HlcTimestamp::at(9)));
    assert_eq!(cache.lookup(oid(1)), Lookup::Value(&9));
}

/// A brick without room may take it as a read, and then no message ever said that something was written.
#[test]
fn what_is_deleted_where_nothing_is_stays_as_it_was_in_the_copy() {
    let mut cache = cache();
    cache.begin(ME);
    assert!(cache.write(ME, oid(1), ObjectState::Absent) && cache.write(ME, oid(9), ObjectState::Absent));
    cache.finish(ME).unwrap();
    cache.handle_outcome(ME, Some(HlcTimestamp::at(5)));
    let next = txn(1001);
    cache.begin(next);
    assert_eq!(cache.read(next, oid(1)), Lookup::Absent);
    assert_eq!(cache.read(next, oid(9)), Lookup::Absent);
    let seen = cache.finish(next).unwrap().reads.into_iter().map(|read| read.seen);
    assert_eq!(seen.collect::<Vec<_>>(), [ReadVersion::Written(ME), ReadVersion::At(at(4))]);
}

#[test]
fn the_message_of_an_own_transaction_proves_that_it_has_committed() {
    let mut cache = cache();
    cache.begin(ME);
    cache.write(ME, oid(1), ObjectState::Value(77));
    cache.finish(ME).unwrap();
    let _ = cache.invalidate(Invalidation { txn: ME, ..message(4, 5, &[1]) }, None);
    assert_eq!((cache.version(PAGE), cache.lookup(oid(1))), (Some(at(5)), Lookup::Value(&77)));
    cache.handle_outcome(ME, Some(HlcTimestamp::at(9)));
    assert_eq!(cache.complete_page(PAGE), Some(page(5, &[(1, 77), (2, 4), (3, 4)])));
}

/// What happens to a page, and how its news come: each change with its slots, whether its message brings the values, and
/// how long it is on its way.
#[derive(Clone, Debug)]
struct Change {
    slots: Vec<u16>,
    with_values: bool,
    deletes: bool,
    delay: usize,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let slots = proptest::collection::vec(0..5_u16, 1..4);
    let change = (slots, any::<bool>(), proptest::bool::weighted(0.2), 0..6_usize)
        .prop_map(|(slots, with_values, deletes, delay)| Change { slots, with_values, deletes, delay });
    proptest::collection::vec(change, 1..30)
}

/// The state of the page after each change: the oracle.
fn history(changes: &[Change]) -> Vec<BTreeMap<u16, u64>> {
    let mut states = vec![BTreeMap::new()];
    for (version, change) in (1..).zip(changes) {
        let mut state = states[states.len() - 1].clone();
        for slot in &change.slots {
            if change.deletes {
                state.remove(slot)
            } else {
                state.insert(*slot, version)
            };
        }
        states.push(state);
    }
    states
}

fn news(version: u64, change: &Change) -> (Invalidation, Option<SlotStates<u64>>) {
    let content = if change.deletes { ObjectState::Absent } else { ObjectState::Value(version) };
    let contents = change.slots.iter().map(|slot| (*slot, content)).collect();
    (message(version - 1, version, &change.slots), change.with_values.then_some(contents))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// P1, against a list of all states that the page ever had; and what V1 will be told is true.
    #[test]
    fn what_is_valid_is_right_whatever_the_order(
        changes in changes(),
        fetches in proptest::collection::vec((0..30_usize, 0..4_usize), 1..5),
    ) {
        let states = history(&changes);
        let state = |version: Version| &states[version.position as usize];
        let mut cache = PageCache::default();
        let mut under_way: Vec<(usize, u64)> = (1..).zip(&changes).map(|(v, c)| (v as usize + c.delay, v)).collect();
        under_way.sort_unstable();
        let mut replies: Vec<(usize, FetchId, u64)> = Vec::new();
        for now in 0..40 {
            // A reply shows the page as it was when it was read, which is not before the fetch was sent.
            while let Some(at) = replies.iter().position(|(due, ..)| *due <= now) {
                let (_, id, version) = replies.remove(at);
                let objects = states[version as usize].clone();
                let fetched = PageImage { version: self::at(version), timestamp: HlcTimestamp::at(version), objects };
                prop_assert!(cache.handle_fetched(PAGE, id, FetchReply::Page(fetched)));
            }
            if let Some((_, takes)) = fetches.iter().find(|(when, _)| *when == now)
                && let Some((id, _)) = cache.fetch(PAGE)
            {
                replies.push((now + takes, id, now.min(changes.len()) as u64));
            }
            let arrived: Vec<u64> = under_way.iter().filter(|(due, _)| *due == now).map(|(_, v)| *v).collect();
            for version in arrived {
                let (message, contents) = news(version, &changes[version as usize - 1]);
                let heard = cache.invalidate(message, contents);
                prop_assert!(cache.version(PAGE).is_none_or(|version| version == heard));
                prop_assert_eq!(cache.check_invariants(), Ok(()));
            }
            for (slot, value, seen) in cache.valid_objects(PAGE) {
                let ReadVersion::At(version) = seen else { panic!("nothing was written") };
                prop_assert_eq!(state(version).get(&slot), Some(value), "slot {} at {:?}", slot, version);
            }
            if let Some(whole) = cache.complete_page(PAGE) {
                prop_assert_eq!(&whole.objects, state(whole.version));
            }
        }
        // Once all news have come, the copy is at the last version.
        let last = cache.version(PAGE);
        prop_assert!(last.is_none_or(|version| version == at(changes.len() as u64)), "{:?}", last);
    }
}

/// Found by the simulator: a client fell behind its own acknowledgements.
#[test]
fn a_read_goes_on_rising_when_its_page_is_fetched_again() {
    let mut cache = cache();
    let _ = cache.invalidate(message(4, 5, &[1]), None);
    cache.begin(ME);
    assert_eq!(cache.read(ME, oid(2)), Lookup::Value(&4));
    assert_eq!(cache.read(ME, oid(1)), Lookup::Miss);
    let (id, _) = cache.fetch(PAGE).unwrap();
    let _ = cache.invalidate(message(5, 6, &[3]), None);
    assert!(cache.handle_fetched(PAGE, id, FetchReply::Page(page(5, &[(1, 5), (2, 4), (3, 4)]))));
    assert_eq!(cache.read(ME, oid(1)), Lookup::Value(&5));
    let _ = cache.invalidate(message(6, 7, &[3]), None);
    assert_eq!(reads(&mut cache), [(1, ReadVersion::At(at(7))), (2, ReadVersion::At(at(7)))]);
}

#[test]
fn what_a_fetch_brings_is_not_taken_if_too_much_has_come_meanwhile() {
    let mut cache: PageCache<u64> = PageCache::default();
    let (id, _) = cache.fetch(PAGE).unwrap();
    let many = (MESSAGES_LIMIT_BYTES / message_bytes::<u64>(None)) as u64 + 1;
    for version in 1..=many {
        cache.invalidate(message(version - 1, version, &[1]), None);
    }
    assert!(cache.handle_fetched(PAGE, id, FetchReply::Page(page(0, &[(1, 4)]))), "it was waited for");
    assert_eq!((cache.version(PAGE), cache.lookup(oid(1))), (None, Lookup::Miss));
    fetch(&mut cache, many, &[(1, 5)]);
    assert_eq!(cache.lookup(oid(1)), Lookup::Value(&5));
}

/// A guard has no content, but a copy that is older than its last touch does not know what belongs to its set.
#[test]
fn a_guard_that_was_touched_is_a_hole_until_its_page_is_fetched_again() {
    let mut cache = cache();
    cache.begin(ME);
    assert_eq!(cache.read(ME, oid(9)), Lookup::Absent);
    // Also if new states of other objects come along.
    cache.invalidate(message(4, 5, &[1, 9]), Some(values(&[1], 7)));
    assert_eq!(cache.doomed(ME), Some(oid(9)));
    assert_eq!((cache.lookup(oid(9)), cache.complete_page(PAGE)), (Lookup::Miss, None));
    fetch(&mut cache, 5, &[(1, 7)]);
    assert_eq!(cache.lookup(oid(9)), Lookup::Absent);
}
