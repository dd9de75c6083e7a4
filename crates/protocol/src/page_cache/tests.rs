use model::planted_bug::is_noticed;
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

/// The invalidation for the transaction that changed `previous` to `version`.
fn message(previous: u64, version: u64, slots: &[u16]) -> Invalidation {
    Invalidation {
        page: PAGE,
        slots: slots.iter().copied().collect(),
        previous: at(previous),
        version: at(version),
        timestamp: HlcTimestamp::at(version),
        txn: txn(version),
        digest: None,
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
    cache.finish(ME).unwrap().reads.iter().map(|read| (read.oid.slot(), read.seen)).collect()
}

#[test]
fn consecutive_message_advances_the_copy_and_unchanged_reads() {
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
fn message_about_a_read_object_dooms_the_transaction() {
    let mut cache = cache();
    cache.begin(ME);
    cache.read(ME, oid(1));
    let _ = cache.invalidate(message(4, 5, &[1]), Some(values(&[1], 5)));
    assert_eq!(cache.conflicting_object(ME), Some(oid(1)));
    assert_eq!(cache.finish(ME), Err(Some(oid(1))));
}

/// BuddyCache, figure 5.
#[test]
fn copy_is_independent_of_message_order() {
    let mut cache = cache();
    let _ = cache.invalidate(message(5, 6, &[2]), Some(values(&[2], 6)));
    assert_eq!((cache.version(PAGE), cache.lookup(oid(2))), (Some(at(4)), Lookup::Value(&6)));
    cache.begin(ME);
    cache.read(ME, oid(1));
    cache.read(ME, oid(2));
    assert_eq!(cache.complete_page(PAGE), None, "object 2 is newer than the version of the copy");
    let _ = cache.invalidate(message(4, 5, &[3]), None);
    assert_eq!((cache.version(PAGE), cache.lookup(oid(3))), (Some(at(6)), Lookup::Miss));
    assert_eq!(reads(&mut cache), [(1, ReadVersion::At(at(6))), (2, ReadVersion::At(at(6)))]);
    cache.check_invariants().unwrap();
}

#[test]
fn older_message_does_not_undo_a_newer_one() {
    let mut cache = cache();
    let _ = cache.invalidate(message(5, 6, &[2]), Some(values(&[2], 6)));
    let _ = cache.invalidate(message(4, 5, &[2]), Some(values(&[2], 5)));
    assert_eq!((cache.version(PAGE), cache.lookup(oid(2))), (Some(at(6)), Lookup::Value(&6)));
}

/// ATTACK: a reply that crossed an invalidation once installed an outdated state.
#[test]
fn messages_during_a_fetch_are_applied_to_its_reply() {
    let mut cache = PageCache::default();
    let (id, _) = cache.fetch(PAGE).unwrap();
    assert_eq!(cache.fetch(PAGE), None, "a fetch is pending");
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
fn new_copy_does_not_raise_reads_of_the_previous_copy() {
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
fn own_write_is_visible_to_others_after_the_commit() {
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
    // The invalidation of the own write removes its entry and gives the read its version.
    let _ = cache.invalidate(Invalidation { txn: ME, ..message(4, 5, &[1]) }, None);
    assert_eq!((cache.version(PAGE), cache.lookup(oid(1))), (Some(at(5)), Lookup::Value(&77)));
    let finished = cache.finish(txn(2000)).unwrap();
    assert_eq!(finished.reads, [Read { oid: oid(1), seen: ReadVersion::At(at(5)) }].into());
}

#[test]
fn aborted_transaction_changes_nothing() {
    let mut cache = cache();
    cache.begin(ME);
    cache.write(ME, oid(1), ObjectState::Absent);
    cache.finish(ME).unwrap();
    cache.handle_outcome(ME, None);
    assert_eq!(cache.lookup(oid(1)), Lookup::Value(&4));
}

/// ATTACK: an own write once replaced a newer state.
#[test]
fn own_write_does_not_replace_a_newer_state() {
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

/// A client that changes an object in one transaction after the other hears of the first one while the second one commits. Once that kept the second
/// one's write out of the copy, and the third one conflicted with it.
#[test]
fn message_of_a_change_that_was_read_does_not_replace_the_write_that_followed() {
    let mut cache = cache();
    let (first, second) = (ME, txn(1001));
    for (transaction, value) in [(first, 77), (second, 78)] {
        cache.begin(transaction);
        cache.read(transaction, oid(1));
        cache.write(transaction, oid(1), ObjectState::Value(value));
        cache.finish(transaction).unwrap();
        if transaction == first {
            cache.handle_outcome(first, Some(HlcTimestamp::at(5)));
        }
    }
    let mut later = cache.clone();
    let _ = cache.invalidate(Invalidation { txn: first, ..message(4, 5, &[1]) }, None);
    cache.handle_outcome(second, Some(HlcTimestamp::at(6)));
    assert_eq!((cache.version(PAGE), cache.lookup(oid(1))), (Some(at(5)), Lookup::Value(&78)));
    assert_eq!(cache.lookup_versioned(oid(1)).1.seen, ReadVersion::Written(second));
    let _ = cache.invalidate(Invalidation { txn: second, ..message(5, 6, &[1]) }, None);
    assert_eq!(cache.complete_page(PAGE), Some(page(6, &[(1, 78), (2, 4), (3, 4)])));
    // Another transaction has followed before the outcome is known.
    for (writer, version) in [(first, 5), (second, 6), (txn(7), 7)] {
        let change = Invalidation { txn: writer, ..message(version - 1, version, &[1]) };
        let _ = later.invalidate(change, Some(values(&[1], version)));
    }
    later.handle_outcome(second, Some(HlcTimestamp::at(6)));
    assert_eq!(later.complete_page(PAGE), Some(page(7, &[(1, 7), (2, 4), (3, 4)])));
}

/// A full brick may treat such a deletion as a read and send no invalidation.
#[test]
fn deleting_an_absent_object_keeps_its_version() {
    let mut cache = cache();
    cache.begin(ME);
    assert!(cache.write(ME, oid(1), ObjectState::Absent) && cache.write(ME, oid(9), ObjectState::Absent));
    cache.finish(ME).unwrap();
    cache.handle_outcome(ME, Some(HlcTimestamp::at(5)));
    let next = txn(1001);
    cache.begin(next);
    assert_eq!(cache.read(next, oid(1)), Lookup::Absent);
    assert_eq!(cache.read(next, oid(9)), Lookup::Absent);
    let seen: Vec<ReadVersion> = cache.finish(next).unwrap().reads.iter().map(|read| read.seen).collect();
    assert_eq!(seen, [ReadVersion::Written(ME), ReadVersion::At(at(4))]);
}

#[test]
fn message_about_an_own_transaction_proves_its_commit() {
    let mut cache = cache();
    cache.begin(ME);
    cache.write(ME, oid(1), ObjectState::Value(77));
    cache.finish(ME).unwrap();
    let _ = cache.invalidate(Invalidation { txn: ME, ..message(4, 5, &[1]) }, None);
    assert_eq!((cache.version(PAGE), cache.lookup(oid(1))), (Some(at(5)), Lookup::Value(&77)));
    cache.handle_outcome(ME, Some(HlcTimestamp::at(9)));
    assert_eq!(cache.complete_page(PAGE), Some(page(5, &[(1, 77), (2, 4), (3, 4)])));
}

/// A client that commits new objects 1 and 2, of value 77, while it fetches their page, and the fetch.
fn creating() -> (PageCache<u64>, FetchId) {
    let mut cache = PageCache::default();
    let (id, _) = cache.fetch(PAGE).unwrap();
    cache.begin(ME);
    for slot in [1, 2] {
        cache.write(ME, oid(slot), ObjectState::Value(77));
    }
    cache.finish(ME).unwrap();
    (cache, id)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    /// The answer to the fetch, with the page as it was before the commit.
    Page,
    /// The message about the commit.
    Message,
    /// The outcome of the commit.
    Outcome,
}

fn created_objects_are_at_hand_whatever_arrives_first() {
    use Arrival::{Message, Outcome, Page};
    let orders = [
        [Page, Message, Outcome],
        [Page, Outcome, Message],
        [Message, Page, Outcome],
        [Message, Outcome, Page],
        [Outcome, Page, Message],
        [Outcome, Message, Page],
    ];
    for order in orders {
        let (mut cache, id) = creating();
        for (count, arrival) in (1..).zip(order) {
            match arrival {
                Page => assert!(cache.handle_fetched(PAGE, id, FetchReply::Page(page(0, &[])))),
                Message => {
                    let own = Invalidation { txn: ME, ..message(0, 5, &[1, 2]) };
                    assert_eq!(cache.invalidate(own, None), at(5));
                }
                Outcome => cache.handle_outcome(ME, Some(HlcTimestamp::at(5))),
            }
            let is_known = order[..count].contains(&Message) || order[..count].contains(&Outcome);
            if is_known && order[..count].contains(&Page) {
                assert_eq!(cache.lookup(oid(1)), Lookup::Value(&77), "{order:?}, {count}");
            }
        }
        assert_eq!(cache.complete_page(PAGE), Some(page(5, &[(1, 77), (2, 77)])), "{order:?}");
        assert!(cache.committing.is_empty());
    }
}

fn newer_state_is_not_replaced_by_what_a_client_has_created() {
    // The page was read after the commit, and after a change by another client; the outcome is known before that, or later.
    for is_told_first in [true, false] {
        let (mut cache, id) = creating();
        let newer = FetchReply::Page(page(6, &[(1, 6), (2, 77)]));
        if is_told_first {
            cache.handle_outcome(ME, Some(HlcTimestamp::at(5)));
            assert!(cache.handle_fetched(PAGE, id, newer));
        } else {
            assert!(cache.handle_fetched(PAGE, id, newer));
            cache.handle_outcome(ME, Some(HlcTimestamp::at(5)));
        }
        assert_eq!(
            cache.lookup(oid(1)),
            Lookup::Miss,
            "it may be older than the commit: a later timestamp proves nothing"
        );
    }
    // Another client's change of an object of this number comes first: it is not the client's own.
    let (mut cache, id) = creating();
    assert_eq!(cache.invalidate(message(0, 4, &[1]), None), at(4));
    assert!(cache.handle_fetched(PAGE, id, FetchReply::Page(page(0, &[]))));
    assert_eq!(cache.lookup(oid(1)), Lookup::Miss);
}

#[test]
fn objects_that_a_client_creates_are_its_own_copies() {
    created_objects_are_at_hand_whatever_arrives_first();
    newer_state_is_not_replaced_by_what_a_client_has_created();
    for bug in [Bug::OwnUpdateMistaken, Bug::OwnWriteInFetched] {
        assert!(is_noticed(bug, newer_state_is_not_replaced_by_what_a_client_has_created), "{bug:?}");
    }
    assert!(is_noticed(Bug::OwnOutcomeForgotten, created_objects_are_at_hand_whatever_arrives_first));
}

/// While the page is fetched once more, because another object in it is invalid, the copy at hand has what was committed.
#[test]
fn created_objects_are_in_the_copy_at_hand_during_another_fetch() {
    let (mut cache, id) = creating();
    assert!(cache.handle_fetched(PAGE, id, FetchReply::Page(page(2, &[(9, 2)]))));
    let _ = cache.invalidate(message(2, 3, &[9]), None);
    let (again, _) = cache.fetch(PAGE).unwrap();
    cache.handle_outcome(ME, Some(HlcTimestamp::at(5)));
    assert_eq!((cache.lookup(oid(1)), cache.lookup(oid(9))), (Lookup::Value(&77), Lookup::Miss));
    let mut stale = cache.clone();
    assert!(stale.handle_fetched(PAGE, again, FetchReply::Stale));
    assert!(cache.handle_fetched(PAGE, again, FetchReply::Page(page(3, &[(9, 3)]))));
    for cache in [cache, stale] {
        assert_eq!((cache.lookup(oid(1)), cache.committing.len()), (Lookup::Value(&77), 0));
    }
}

/// The brick may send no message about such a deletion, which would end an entry of the vcache.
#[test]
fn deletion_of_nothing_in_a_page_that_is_fetched_leaves_no_entry() {
    let mut cache = PageCache::default();
    let (id, _) = cache.fetch(PAGE).unwrap();
    cache.begin(ME);
    cache.write(ME, oid(1), ObjectState::Absent);
    cache.finish(ME).unwrap();
    cache.handle_outcome(ME, Some(HlcTimestamp::at(5)));
    assert!(cache.handle_fetched(PAGE, id, FetchReply::Page(page(0, &[]))));
    assert_eq!(cache.complete_page(PAGE), Some(page(0, &[])));
}

#[test]
fn only_pages_of_whole_objects_are_to_be_fetched() {
    let mut cache = cache();
    let at = |number: u64| Oid::new(ClassId::NONE, PageId { number, ..PAGE }, 1);
    cache.begin(ME);
    let states = [ObjectState::Value(1), ObjectState::Absent, ObjectState::Changed(1), ObjectState::Value(1)];
    for (number, state) in [10, 11, 12, PAGE.number].into_iter().zip(states) {
        cache.write(ME, at(number), state);
    }
    let of_second_class = Oid::new(ClassId(5), PageId { number: 10, ..PAGE }, 2);
    cache.write(ME, of_second_class, ObjectState::Value(1));
    assert_eq!(cache.missing_written_pages(ME), [PageId { number: 10, ..PAGE }]);
    cache.fetch(PageId { number: 10, ..PAGE }).unwrap();
    assert_eq!(cache.missing_written_pages(ME), []);
}

/// A client whose session ends does not wait for the page any more.
#[test]
fn created_objects_are_forgotten_with_the_fetch_of_their_page() {
    let (mut cache, id) = creating();
    cache.handle_outcome(ME, Some(HlcTimestamp::at(5)));
    cache.suspend(PAGE.node);
    assert!(cache.committing.is_empty() && !cache.handle_fetched(PAGE, id, FetchReply::Page(page(0, &[]))));
    let (mut cache, id) = creating();
    cache.handle_outcome(ME, None);
    assert!(cache.handle_fetched(PAGE, id, FetchReply::Page(page(0, &[]))));
    assert_eq!((cache.lookup(oid(1)), cache.committing.len()), (Lookup::Absent, 0), "it was refused");
}

/// A change of a page: its slots, whether its message contains the new values, and the delay of the message.
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

/// The state of the page after each change.
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

    /// Every valid object equals the state of the page at the version that is reported for it (P1, V1).
    #[test]
    fn valid_objects_are_correct_for_any_message_order(
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
            // A reply contains the page as of the time when it was read, which is not before the fetch was sent.
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
                let ReadVersion::At(version) = seen else { panic!("no transaction has written") };
                prop_assert_eq!(state(version).get(&slot), Some(value), "slot {} at {:?}", slot, version);
            }
            if let Some(whole) = cache.complete_page(PAGE) {
                prop_assert_eq!(&whole.objects, state(whole.version));
            }
        }
        // When all messages have arrived, the copy has the last version.
        let last = cache.version(PAGE);
        prop_assert!(last.is_none_or(|version| version == at(changes.len() as u64)), "{:?}", last);
    }
}

/// Found by the simulator: the version of a read was lower than a version that the client had acknowledged.
#[test]
fn read_keeps_rising_when_its_page_is_fetched_again() {
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
fn reply_is_dropped_above_the_message_limit() {
    let mut cache: PageCache<u64> = PageCache::default();
    let (id, _) = cache.fetch(PAGE).unwrap();
    let many = (MESSAGES_LIMIT_BYTES / message_bytes::<u64>(None)) as u64 + 1;
    for version in 1..=many {
        cache.invalidate(message(version - 1, version, &[1]), None);
    }
    assert!(cache.handle_fetched(PAGE, id, FetchReply::Page(page(0, &[(1, 4)]))), "the fetch is pending");
    assert_eq!((cache.version(PAGE), cache.lookup(oid(1))), (None, Lookup::Miss));
    fetch(&mut cache, many, &[(1, 5)]);
    assert_eq!(cache.lookup(oid(1)), Lookup::Value(&5));
}

/// A guard has no content, but a copy that is older than its last touch does not reflect the members of its set.
#[test]
fn touched_guard_is_a_hole_until_its_page_is_fetched_again() {
    let mut cache = cache();
    cache.begin(ME);
    assert_eq!(cache.read(ME, oid(9)), Lookup::Absent);
    // The same holds if the message contains new states of other objects.
    cache.invalidate(message(4, 5, &[1, 9]), Some(values(&[1], 7)));
    assert_eq!(cache.conflicting_object(ME), Some(oid(9)));
    assert_eq!((cache.lookup(oid(9)), cache.complete_page(PAGE)), (Lookup::Miss, None));
    fetch(&mut cache, 5, &[(1, 7)]);
    assert_eq!(cache.lookup(oid(9)), Lookup::Absent);
}

/// The value that is derived from an object, if a transaction that begins now reads it.
fn read_derived_value(cache: &mut PageCache<u64>, slot: u16) -> Option<u64> {
    cache.begin(ME);
    let derived = cache.read_derived(ME, oid(slot)).1.and_then(|derived| derived.value.downcast_ref::<u64>().copied());
    assert_eq!(cache.read_count(ME), usize::from(matches!(cache.lookup(oid(slot)), Lookup::Value(_) | Lookup::Absent)));
    cache.abort(ME);
    derived
}

/// A cache as above, with a value derived from each object.
fn cache_with_derived() -> PageCache<u64> {
    let mut cache = cache();
    for slot in 1..=3 {
        let value = DerivedValue { value: Arc::new(u64::from(slot)), bytes: 10 };
        assert_eq!(cache.attach(oid(slot), |value| *value == 4, value), Some(10 * usize::from(slot)));
    }
    cache
}

#[test]
fn derived_value_ends_with_the_state_of_its_object() {
    let mut cache = cache_with_derived();
    assert_eq!([1, 2, 3].map(|slot| read_derived_value(&mut cache, slot)), [Some(1), Some(2), Some(3)]);
    // An invalidation, and an update, which is out of order.
    cache.invalidate(message(4, 5, &[1]), None);
    cache.invalidate(message(6, 7, &[2]), Some(values(&[2], 7)));
    assert_eq!([1, 2, 3].map(|slot| read_derived_value(&mut cache, slot)), [None, None, Some(3)]);
    assert_eq!(cache.derived_bytes(PAGE), 10);
    let value = || DerivedValue { value: Arc::new(9_u64), bytes: 10 };
    assert_eq!(cache.attach(oid(1), |_| true, value()), None, "the object is invalid");
    assert_eq!(cache.attach(oid(2), |value| *value == 4, value()), None, "the value is of the former state");
    assert_eq!(cache.attach(oid(9), |_| true, value()), None, "there is no such object");
    // Another copy has no values.
    fetch(&mut cache, 7, &[(1, 7), (2, 7), (3, 4)]);
    assert_eq!(read_derived_value(&mut cache, 3), None);
    assert_eq!(cache.derived_bytes(PAGE), 0);
}

#[test]
fn derived_value_of_an_object_ends_with_an_own_write_of_it() {
    let mut cache = cache_with_derived();
    cache.begin(txn(900));
    assert!(cache.write(txn(900), oid(1), ObjectState::Value(9)));
    assert!(cache.read_derived(txn(900), oid(1)).1.is_none(), "a transaction sees its own write");
    assert_eq!(read_derived_value(&mut cache, 1), Some(1), "others see it after the commit");
    cache.finish(txn(900)).unwrap();
    cache.handle_outcome(txn(900), Some(HlcTimestamp::at(5)));
    assert_eq!([1, 2].map(|slot| read_derived_value(&mut cache, slot)), [None, Some(2)]);
}

#[test]
fn derived_values_return_with_a_copy_that_is_still_current() {
    let mut cache = cache_with_derived();
    cache.suspend(PAGE.node);
    assert_eq!(read_derived_value(&mut cache, 1), None);
    let (id, _) = cache.fetch(PAGE).unwrap();
    assert!(cache.handle_fetched(PAGE, id, FetchReply::Current));
    assert_eq!(read_derived_value(&mut cache, 1), Some(1));
    cache.drop_derived(PAGE);
    assert_eq!((read_derived_value(&mut cache, 1), cache.derived_bytes(PAGE)), (None, 0));
    assert!(matches!(cache.lookup(oid(1)), Lookup::Value(4)));
}
