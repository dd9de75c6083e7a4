//! Entries of collections at one logical node.

use bytes::Bytes;
use model::planted_bug::assert_noticed;
use model::{Entry, EntryKey, Kind, limits};
use protocol::entries::{unique_entry, unique_question};
use wire::cluster::{EntryList, ListEntries, ListEntriesOf, LookUp};

use super::*;
use crate::brick::entries;
use crate::brick::entry_rows::Totals;

/// The place of a collection.
fn collection() -> Oid {
    oid(ClassId::NONE, 1)
}

fn entry(name: &str) -> Entry {
    Entry { collection: collection(), key: EntryKey::name(name).unwrap() }
}

fn names(names: &[&str]) -> Part<Object> {
    let target = |name: &&str| (entry(name), Some(oid(ClassId::NONE, 2)));
    Part { entries: names.iter().map(target).collect(), ..Part::default() }
}

fn write(content: ObjectState<Object>) -> Part<Object> {
    Part { writes: [(collection(), content)].into(), ..Part::default() }
}

impl World {
    /// Commits a part, and says whether it was committed.
    pub(super) fn commit_part(&mut self, part: Part<Object>) -> bool {
        let txn = self.next_txn();
        self.ask(Request::Commit { txn, part });
        self.open.insert(txn, Writes::new());
        let answers = self.answer_all();
        let answer = answers.into_iter().find(|answer| answer.txn() == txn).expect("it is answered");
        matches!(answer, Answer::Ended { outcome: Outcome::Committed(_), .. })
    }

    fn list(&self, wanted: ListEntries) -> EntryList {
        entries::list(&self.store, &wanted).unwrap()
    }

    /// The names that are listed, and the number of entries.
    fn names(&self, after: Option<&str>, prefix: &'static str, limit: u32, reverse: bool) -> (String, u64) {
        let after = after.map(|name| EntryKey::name(name).unwrap());
        let prefix = Bytes::from_static(prefix.as_bytes());
        let list = self.list(ListEntries { limit, reverse, kinds: false, ..listing(after, prefix) });
        let names: Vec<&str> = list.entries.iter().filter_map(|entry| entry.key.to_name()).collect();
        (names.join(" "), list.count)
    }
}

/// A listing of the names behind `after` that begin with `prefix`, with the kinds of their objects.
fn listing(after: Option<EntryKey>, prefix: Bytes) -> ListEntries {
    let (limit, reverse) = (10, false);
    ListEntries { collection: collection(), after, prefix, limit, reverse, kinds: true, passes_damage: false }
}

#[test]
fn of_two_that_bind_the_same_unique_value_one_conflicts() {
    const BY_NUMBER: u32 = 9;
    let mut world = World::with_index();
    world.set_indexes(&[IndexSpec { unique: true, ..by_age(BY_NUMBER) }]);
    let bound = unique_entry(SPACE, &[NODE], BY_NUMBER, &key(20)).unwrap();
    let look_up = |world: &World| {
        let wanted = LookUp { collection: bound.collection, keys: vec![bound.key.clone()] };
        entries::look_up(&world.store, &wanted).unwrap()
    };
    let free = look_up(&world);
    assert!(free.targets.is_empty());
    let part = |slot, guards: &[Read]| Part {
        reads: guards.iter().copied().chain([unique_question(SPACE, NODE, BY_NUMBER)]).collect(),
        writes: [(oid(PERSON, slot), ObjectState::Value(person(PERSON, 20)))].into(),
        entries: [(bound.clone(), Some(oid(PERSON, slot)))].into(),
        ..Part::default()
    };
    assert!(world.commit_part(part(1, &free.guards)));
    assert!(!world.commit_part(part(2, &free.guards)), "it has looked up before the other one has bound the value");
    let taken = look_up(&world);
    assert_eq!(taken.targets, [oid(PERSON, 1)]);
    // It is not listed, and not found from the object.
    assert_eq!(Totals::read(&world.store.snapshot().unwrap(), bound.collection).unwrap(), Totals::default());
    let wanted = ListEntriesOf { node: NODE, target: oid(PERSON, 1), after: None, limit: 10 };
    assert!(entries::list_of(&world.store, &wanted).unwrap().entries.is_empty());
    // With the index its values go.
    world.set_indexes(&[]);
    for _ in 0..20 {
        world.poll();
    }
    assert!(look_up(&world).targets.is_empty());
}

fn with_names() -> World {
    let mut world = World::with_store(Store::in_memory(Options::default()).unwrap());
    assert!(world.commit_part(write(ObjectState::Value(Object::collection(Kind::Directory)))));
    assert!(world.commit_part(names(&["b", "a", "ab", "c"])));
    world
}

#[test]
fn entries_are_listed_by_ranges_in_both_directions() {
    let world = with_names();
    let listed = |after, prefix, limit, reverse| world.names(after, prefix, limit, reverse).0;
    assert_eq!(listed(None, "", 10, false), "a ab b c");
    assert_eq!(listed(None, "", 2, false), "a ab");
    assert_eq!(listed(Some("a"), "", 2, false), "ab b");
    assert_eq!(listed(Some("aa"), "a", 10, false), "ab");
    assert_eq!(listed(Some("x"), "", 10, false), "");
    assert_eq!(listed(None, "", 10, true), "c b ab a");
    assert_eq!(listed(Some("b"), "", 1, true), "ab");
    assert_eq!(listed(Some("a"), "b", 10, true), "");
    assert_eq!(world.names(None, "", 0, false), (String::new(), 4));
}

#[test]
fn entries_of_a_target_are_listed_in_portions() {
    let world = with_names();
    let (node, target) = (NODE, oid(ClassId::NONE, 2));
    let (mut found, mut after) = (Vec::new(), None);
    for (count, more) in [(3, true), (1, false)] {
        let listed = entries::list_of(&world.store, &ListEntriesOf { node, target, after, limit: 3 }).unwrap();
        assert_eq!((listed.entries.len(), listed.more), (count, more));
        after = listed.entries.last().cloned();
        found.extend(listed.entries);
    }
    assert_eq!(found, ["a", "ab", "b", "c"].map(entry));
}

/// An answer is given when the changes of what it shows are settled.
#[test]
fn entries_that_an_answer_has_read_are_known() {
    let world = with_names();
    let wanted = |name: &str| LookUp { collection: collection(), keys: vec![entry(name).key, entry("below").key] };
    for (name, read, is_read) in [("a", "a", true), ("a", "b", false), ("none", "none", true), ("none", "below", false)]
    {
        let found = entries::look_up(&world.store, &wanted(name)).unwrap();
        let unsettled = [entry(read)].into();
        assert_eq!(entries::looks_up_any(&wanted(name), &found, &unsettled), is_read, "{read} by a look-up of {name}");
    }
    let found = entries::look_up(&world.store, &wanted("a")).unwrap();
    let below = Entry { collection: oid(ClassId::NONE, 2), ..entry("below") };
    assert!(entries::looks_up_any(&wanted("a"), &found, &[below.clone()].into()), "a key of the target");
    assert!(entries::has_any(collection(), &[entry("x")].into()));
    assert!(!entries::has_any(collection(), &[below].into()) && !entries::has_any(collection(), &[].into()));
}

#[test]
fn collection_is_deleted_only_when_it_is_empty() {
    let deleted = || {
        let mut world = with_names();
        let refused = write(ObjectState::Absent);
        assert!(!world.commit_part(refused), "it has entries");
        let removed = names(&["a", "ab", "b", "c"]).entries.into_keys().map(|entry| (entry, None)).collect();
        assert!(world.commit_part(Part { entries: removed, ..write(ObjectState::Absent) }));
        // Its place may be that of another collection later.
        assert_eq!(Totals::read(&world.driver.reader, collection()).unwrap(), Totals::default());
        assert!(world.commit_part(write(ObjectState::Value(Object::collection(Kind::Directory)))));
        assert!(world.commit_part(names(&["new"])));
        assert_eq!(world.names(None, "", 10, false), ("new".to_owned(), 1));
    };
    assert_noticed(&[Bug::FullCollectionDeleted, Bug::TotalsKept], deleted);
}

/// Who has listed a collection, emptied it, and deletes it, may try again when another one has added an entry since. Who has not listed it has
/// made a mistake.
#[test]
fn deletion_of_a_collection_that_was_filled_after_it_was_listed_conflicts() {
    let mut world = with_names();
    let listed = world.list(listing(None, Bytes::new())).guards;
    assert!(world.commit_part(names(&["later"])));
    let removed = names(&["a", "ab", "b", "c"]).entries.into_keys().map(|entry| (entry, None)).collect();
    let deletion = Part { entries: removed, ..write(ObjectState::Absent) };
    let refusal = |world: &mut World, reads: Vec<Read>| {
        world.sent.clear();
        assert!(!world.commit_part(Part { reads: reads.into_iter().collect(), ..deletion.clone() }));
        let deferred = world.sent.iter().filter_map(|message| match message {
            Message::Deferred { kind, .. } => Some(*kind),
            _ => None,
        });
        deferred.last()
    };
    assert_eq!(refusal(&mut world, Vec::new()), Some(ErrorKind::Invalid));
    assert_ne!(refusal(&mut world, listed), Some(ErrorKind::Invalid));
}

#[test]
fn collection_is_replaced_by_one_of_its_kind_only() {
    let kept = || {
        let mut world = World::with_store(Store::in_memory(Options::default()).unwrap());
        let [directory, set] = [Kind::Directory, Kind::Collection].map(Object::collection);
        let blob = Object::blob("x".into());
        for (first, others) in [(&directory, [&set, &blob]), (&set, [&directory, &blob]), (&blob, [&set, &directory])] {
            assert!(world.commit_part(write(ObjectState::Value(first.clone()))));
            for other in others {
                assert!(!world.commit_part(write(ObjectState::Value(other.clone()))), "{first:?}, {other:?}");
            }
            assert!(world.commit_part(write(ObjectState::Value(first.clone()))));
            assert!(world.commit_part(write(ObjectState::Absent)));
        }
    };
    assert_noticed(&[Bug::CollectionReplaced], kept);
}

#[test]
fn transaction_changes_a_bounded_number_of_entries() {
    let bounded = || {
        let mut world = with_names();
        let many = (0..limits::OPERATIONS / 4 + 1)
            .map(|number| (entry(&number.to_string()), Some(oid(ClassId::NONE, 2))))
            .collect();
        assert!(!world.commit_part(Part { entries: many, ..Part::default() }));
    };
    assert_noticed(&[Bug::EntriesUnbounded], bounded);
    // The rows of fewer entries with long keys have too many bytes for one batch.
    let bounded = || {
        let mut world = with_names();
        let long = |number| entry(&format!("{number:0>255}"));
        let many = |count| (0..count).map(|number| (long(number), Some(oid(ClassId::NONE, 2)))).collect();
        assert!(!world.commit_part(Part { entries: many(67_000), ..Part::default() }));
        assert!(world.commit_part(Part { entries: many(60_000), ..Part::default() }));
    };
    assert_noticed(&[Bug::EntriesUnbounded], bounded);
}

#[test]
fn one_transaction_may_write_many_objects_and_enter_many_names() {
    let mut world = with_names();
    let blob = |slot| (oid(ClassId::NONE, slot), ObjectState::Value(Object::blob("x".into())));
    let name = |number: u32| (entry(&number.to_string()), Some(oid(ClassId::NONE, 2)));
    let (writes, entries) = ((100..400).map(blob).collect(), (0..300).map(name).collect());
    assert!(world.commit_part(Part { writes, entries, ..Part::default() }));
}

#[test]
fn entries_move_with_their_logical_node() {
    let moved = || {
        let entry = entry("a");
        let rows = [
            crate::brick::entry_rows::totals_key(collection()),
            crate::brick::entry_rows::entry_key(collection(), &entry.key),
            crate::brick::entry_rows::reverse_key(collection(), &entry),
        ];
        for row in rows {
            assert!(super::rows::belongs_to(NODE, &row) && !super::rows::belongs_to(NodeId(4), &row));
            assert!(super::rows::ranges(NODE).any(|(from, to)| from <= row && row < to));
        }
    };
    assert_noticed(&[Bug::EntriesNotMoved], moved);
}

#[test]
fn entries_of_prepared_transactions_are_kept_over_a_restart() {
    let mut world = with_names();
    let txn = world.next_txn();
    world.ask(Request::Prepare { txn, participants: vec![NODE, NodeId(8)], part: names(&["late"]) });
    world.open.insert(txn, Writes::new());
    world.answer_all();
    let (at, _) = world.prepared[&txn].clone();
    let mut world = world.reopen();
    assert!(!world.commit_part(names(&["late"])), "its key is held");
    assert_eq!(world.driver.unsettled_entries(|_| true), [entry("late")].into());
    assert!(world.driver.unsettled_entries(|entry| entry.collection != collection()).is_empty());
    assert!(world.driver.is_entry_unsettled(&entry("late")) && !world.driver.is_entry_unsettled(&entry("a")));
    world.ask(Request::Decide { txn, outcome: Outcome::Committed(at) });
    world.answer_all();
    assert!(world.driver.unsettled_entries(|_| true).is_empty());
    assert_eq!(world.names(None, "l", 10, false), ("late".to_owned(), 5));
}

#[test]
fn look_up_ends_at_a_collection_of_another_logical_node() {
    let mut world = with_names();
    let [near, far] = [NODE, NodeId(4)].map(|node| Oid::new(ClassId::NONE, PageId { node, ..page(2) }, 2));
    let target = |(name, oid): (&str, Oid)| (entry(name), Some(oid));
    let entries = [("near", near), ("far", far)].map(target).into();
    assert!(world.commit_part(Part { entries, ..Part::default() }));
    for (name, oid, guards) in [("near", near, 2), ("far", far, 1)] {
        let wanted = LookUp { collection: collection(), keys: vec![entry(name).key, entry("below").key] };
        let found = entries::look_up(&world.store, &wanted).unwrap();
        assert_eq!((found.targets, found.guards.len()), (vec![oid], guards), "{name}");
    }
}

#[test]
fn listing_has_the_kinds_of_objects_at_the_logical_node_of_the_collection() {
    let mut world = with_names();
    let [near, far] = [NODE, NodeId(4)].map(|node| Oid::new(ClassId::NONE, PageId { node, ..page(2) }, 2));
    let writes = [(near, ObjectState::Value(Object::blob("x".into())))].into();
    let entries = [(entry("far"), Some(far)), (entry("near"), Some(near))].into();
    assert!(world.commit_part(Part { writes, entries, ..Part::default() }));
    let list = world.list(listing(Some(EntryKey::name("c").unwrap()), Bytes::new()));
    let kinds: Vec<_> = list.entries.iter().map(|entry| (entry.target, entry.kind)).collect();
    assert_eq!(kinds, [(far, None), (near, Some(Kind::Blob))]);
}
