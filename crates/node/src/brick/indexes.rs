//! What a logical node knows of indexes: what is to be kept, how far it is, and which guards a change touches.
//!
//! 1. From when a logical node knows of an index every change keeps it. What was there before is entered in portions
//!    ([`super::node_driver`]); then the index is *complete* for a class, which a mark says that is written behind its entries.
//! 2. That begins when all is decided and durable that came before the node knew: such transactions have touched no guards of
//!    the index, and have made no entries.
//! 3. While objects are entered, what changes meanwhile is passed over if it is not to be seen yet: its entries come with the
//!    change.
//! 4. All that is known is in rows, fields and classes too, so a node that is opened keeps its indexes before it has heard of any.
//! 5. Nobody writes values that are to be unique who has not asked who has them: a transaction that has relies on a guard of theirs,
//!    so of two that write the same values only one commits.
//! 6. Guards of an index that was dropped are not touched any more, so whoever relies on one conflicts. Numbers of indexes are never
//!    given twice.
//! 7. Objects are taken only of classes that are known here, and what changes one touches the guards of the classes above its own
//!    too. So who has looked through a class meets whoever adds to it, be it an object of a class that came later.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use meta::catalog::{Index, IndexState, ResolvedClass, Schema};
use model::{ClassId, FieldNumber, Kind, NodeId, Object, Oid, PageId, RecordRef, Result, SpaceId};
use protocol::commit::Part;
use protocol::ident::TxnId;
use protocol::page_cache::ObjectState;
use protocol::validate::Read;
use query::key::{IndexEntry, first_component};
use store::RowChanges;

use super::guards;
use super::index_rows::{self as rows, IndexId, Mark};
use super::page_rows::Rows;
use super::plant::{Bug, planted};
use super::recent_pages::ObjectReader;
use crate::cluster_view::needs_definition;

/// Changed objects that are remembered before those are forgotten that can be seen.
const MAX_RECENT: usize = 10_000;

/// An index, as far as entries of it are made.
#[derive(Debug)]
pub(crate) struct MaintainedIndex {
    pub(crate) id: IndexId,
    pub(crate) fields: Vec<FieldNumber>,
    /// Whether no two objects may have the same values, and whether queries use it; as far as the catalogue is known.
    unique: bool,
    ready: bool,
}

impl MaintainedIndex {
    /// Where an object stands, if it can be read as a record.
    fn entry(&self, object: &Object) -> Option<IndexEntry> {
        let record = (object.kind == Kind::Record).then(|| RecordRef::new(&object.data).ok())??;
        IndexEntry::of(&record, &self.fields).ok()
    }
}

/// An index that there is to be.
#[derive(Clone, Debug)]
pub(crate) struct IndexSpec {
    pub(crate) index: u32,
    pub(crate) fields: Vec<FieldNumber>,
    pub(crate) unique: bool,
    pub(crate) ready: bool,
    /// Whose objects it has.
    pub(crate) classes: Vec<ClassId>,
}

impl IndexSpec {
    /// The indexes of a schema.
    pub(crate) fn of(schema: &Schema) -> Vec<Self> {
        let wanted = |index: &Arc<Index>| Self {
            index: index.id.0,
            fields: index.fields.iter().take(query::limits::KEY_FIELDS).copied().collect(),
            unique: index.unique,
            ready: index.state == IndexState::Ready,
            classes: schema.family(index.class).map(|shape| shape.class().id).collect(),
        };
        schema.indexes().map(wanted).collect()
    }
}

/// How far the objects of a class are in an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum IndexStage {
    /// Until a position is durable, and these transactions are decided.
    Waiting(u64, BTreeSet<TxnId>),
    /// All up to this place are.
    Entering(Option<(u64, u16)>),
    /// All are.
    Complete,
}

/// An index and the classes whose objects are in it.
#[derive(Debug)]
struct TrackedIndex {
    index: Arc<MaintainedIndex>,
    classes: BTreeMap<ClassId, IndexStage>,
}

/// Entries of an object: the index and the key.
type Entries = Vec<(IndexId, Vec<u8>)>;

/// Why a transaction is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteRejection {
    /// An object is written in the place of one of another class, or as one of another class than its identifier's, or two are
    /// written in one place.
    WrongClass(Oid),
    /// The object's class is not known here: not yet, or there is none.
    UnknownClass(Oid),
    /// An object gets values that are to be unique, and the transaction has not asked who has them.
    UniquenessUnchecked(Oid, IndexId),
}

/// What a write replaces, and what stands in its place.
#[derive(Debug, Default)]
pub(crate) struct Replaced {
    pub(crate) before: Option<ClassId>,
    pub(crate) old: Entries,
    pub(crate) new: Entries,
}

/// What the writes of a transaction replace, by their places.
#[derive(Debug, Default)]
pub(crate) struct ReplacedObjects {
    /// Of which knowledge of indexes.
    generation: u64,
    places: Vec<((PageId, u16), Replaced)>,
    rejection: Option<WriteRejection>,
}

impl ReplacedObjects {
    /// What is wrong with them, if anything is.
    pub(crate) fn rejection(&self) -> Option<WriteRejection> {
        self.rejection
    }

    /// What a write replaces, if it is known.
    pub(crate) fn take(&mut self, page: PageId, slot: u16) -> Option<Replaced> {
        let at = self.places.binary_search_by_key(&(page, slot), |(place, _)| *place).ok()?;
        self.places.get_mut(at).map(|(_, replaced)| std::mem::take(replaced))
    }

    /// How many entries are changed, and the bytes of their keys.
    pub(crate) fn entries(&self) -> (usize, usize) {
        let entries = self.places.iter().flat_map(|(_, replaced)| replaced.old.iter().chain(&replaced.new));
        entries.fold((0, 0), |(count, bytes), (_, key)| (count + 1, bytes + key.len()))
    }
}

/// What there is to be done.
pub(crate) enum IndexTask {
    /// Objects of a class are to be entered, from behind a place.
    Enter(Arc<MaintainedIndex>, ClassId, Option<(u64, u16)>),
    /// Entries are to be removed.
    Remove(IndexId),
}

/// The indexes of a logical node.
#[derive(Debug, Default)]
pub(crate) struct Indexes {
    tracked: BTreeMap<IndexId, TrackedIndex>,
    /// The same, by class.
    by_class: HashMap<(SpaceId, ClassId), Vec<Arc<MaintainedIndex>>>,
    /// What is being removed, once so many flushed rows are durable: entries were made by those.
    removing: BTreeMap<IndexId, u64>,
    /// Counts what has become known.
    generation: u64,
    /// What is to be followed when there is nothing in the way any more.
    postponed_specs: Option<Vec<IndexSpec>>,
    /// Whether some index is not complete.
    is_incomplete: bool,
    /// Objects that have changed since, by the position of the last change.
    recent: HashMap<(PageId, u16), u64>,
}

impl Indexes {
    /// What the rows of a logical node say. These transactions are prepared.
    ///
    /// # Errors
    /// If rows cannot be read.
    pub(crate) fn open(reader: &impl Rows, node: NodeId, prepared: &BTreeSet<TxnId>) -> Result<Self> {
        let mut indexes = Self::default();
        let (from, to) = rows::marks_range(node);
        let mut found = Vec::new();
        reader.each(&from, &to, |key, row| {
            let mark = rows::parse_mark(node, key).and_then(|(id, class)| Ok((id, class, Mark::decode(id, row)?)));
            found.push(mark);
            std::ops::ControlFlow::Continue(())
        })?;
        for mark in found {
            let (id, class, mark) = mark?;
            let (fields, stage) = match mark {
                Mark::Building(fields) if planted(Bug::BuildingTakenForComplete) => (fields, IndexStage::Complete),
                Mark::Building(fields) => (fields, IndexStage::Waiting(0, prepared.clone())),
                Mark::Complete(fields) => (fields, IndexStage::Complete),
                Mark::Removing => {
                    indexes.removing.insert(id, 0);
                    continue;
                }
            };
            let kept = || TrackedIndex {
                index: Arc::new(MaintainedIndex { id, fields, unique: false, ready: false }),
                classes: BTreeMap::new(),
            };
            indexes.tracked.entry(id).or_insert_with(kept).classes.insert(class, stage);
        }
        indexes.rebuild_by_class();
        Ok(indexes)
    }

    /// Whether changes touch the guards of an index: not any more once it was dropped.
    pub(crate) fn is_tracked(&self, id: IndexId) -> bool {
        self.tracked.contains_key(&id)
    }

    /// Whether there is something to be done.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_incomplete || !self.removing.is_empty()
    }

    fn update_is_incomplete(&mut self) {
        let mut stages = self.tracked.values().flat_map(|known| known.classes.values());
        self.is_incomplete = stages.any(|stage| *stage != IndexStage::Complete);
        if !self.is_incomplete {
            self.recent.clear();
        }
    }

    /// Something has become known: keeps what is by class in step with it.
    fn rebuild_by_class(&mut self) {
        self.generation += 1;
        self.by_class.clear();
        for (id, known) in &self.tracked {
            for class in known.classes.keys() {
                self.by_class.entry((id.space, *class)).or_default().push(known.index.clone());
            }
        }
        self.update_is_incomplete();
    }

    // ------------------------------------------------------------------------------------------ what there is to be

    /// These are the classes and indexes of the node's space now. What is new is kept from here on, in rows too; all of before
    /// is durable when `last` is and these transactions are decided. So many rows were `flushed` before.
    pub(crate) fn set_specs(
        &mut self,
        (node, space): (NodeId, SpaceId),
        wanted: &[IndexSpec],
        (last, flushed, prepared): (u64, u64, &BTreeSet<TxnId>),
        changes: &mut RowChanges,
    ) {
        self.postponed_specs = None;
        let (mut stays, mut changed) = (BTreeSet::new(), false);
        for IndexSpec { index, fields, unique, ready, classes } in wanted {
            let id = IndexId { node, space, index: *index };
            // Old entries are in the way of new ones.
            if self.removing.contains_key(&id) {
                self.postponed_specs = Some(wanted.to_vec());
                continue;
            }
            stays.insert(id);
            let kept = || Arc::new(MaintainedIndex { id, fields: fields.clone(), unique: *unique, ready: *ready });
            let known =
                self.tracked.entry(id).or_insert_with(|| TrackedIndex { index: kept(), classes: BTreeMap::new() });
            if (known.index.unique, known.index.ready) != (*unique, *ready) {
                known.index = kept();
                changed = true;
            }
            for class in classes.iter().copied() {
                if !known.classes.contains_key(&class) {
                    changes.put(&rows::mark_key(id, class), Mark::Building(known.index.fields.clone()).encode());
                    known.classes.insert(class, IndexStage::Waiting(last, prepared.clone()));
                    changed = true;
                }
            }
        }
        let gone: Vec<IndexId> = self.tracked.keys().filter(|id| !stays.contains(id)).copied().collect();
        for id in gone {
            let classes = self.tracked.remove(&id).map(|known| known.classes).unwrap_or_default();
            classes.keys().for_each(|class| changes.remove(&rows::mark_key(id, *class)));
            changes.put(&rows::mark_key(id, ClassId::NONE), Mark::Removing.encode());
            self.removing.insert(id, flushed);
            changed = true;
        }
        if changed {
            self.rebuild_by_class();
        }
    }

    // ------------------------------------------------------------------------------------------ what changes

    /// What a write replaces.
    ///
    /// # Errors
    /// If what is there cannot be read.
    pub(super) fn compute_replaced(
        &self,
        objects: ObjectReader<'_>,
        page: PageId,
        slot: u16,
        content: &ObjectState<Object>,
    ) -> Result<Replaced> {
        let before = objects.read(page, slot)?;
        let old = before.as_ref().map(|object| self.entries(page.space, object)).unwrap_or_default();
        let new = match content {
            ObjectState::Value(object) => self.entries(page.space, object),
            ObjectState::Absent => Entries::new(),
        };
        Ok(Replaced { before: before.map(|object| object.class), old, new })
    }

    fn entries(&self, space: SpaceId, object: &Object) -> Entries {
        if object.class == ClassId::NONE {
            return Entries::new();
        }
        let kept = self.by_class.get(&(space, object.class)).into_iter().flatten();
        kept.filter_map(|kept| Some((kept.id, kept.entry(object)?.key))).collect()
    }

    /// The index whose values are to be unique that an object gets, if whoever writes it has not asked who has them: then it relies on
    /// the question, and on a guard of theirs in the index, or, as long as queries do not use it, on that of the class.
    fn find_unchecked_unique(&self, oid: Oid, object: &Object, old: &Entries, reads: &[Read]) -> Option<IndexId> {
        let (space, node) = (oid.page().space, oid.page().node);
        let all = self.by_class.get(&(space, object.class))?;
        let relies_on = |guard: Oid| reads.iter().any(|read| read.oid == guard);
        let is_asked = |kept: &MaintainedIndex, entry: &IndexEntry| {
            let IndexId { index, .. } = kept.id;
            let first = first_component(&entry.key).unwrap_or(&entry.key);
            relies_on(guards::of_question(space, node, index))
                && (relies_on(guards::of_bucket(space, node, index, first))
                    || relies_on(guards::of_index(space, node, index))
                    || !kept.ready && relies_on(guards::of_class(space, node, object.class)))
        };
        let not_asked = all.iter().filter(|kept| kept.unique).find(|kept| {
            let entry = kept.entry(object).filter(|entry| !entry.has_null);
            entry.is_some_and(|entry| {
                let is_kept = old.iter().any(|(id, key)| *id == kept.id && *key == entry.key);
                !is_kept && !is_asked(kept, &entry) && !planted(Bug::UniquenessUnchecked)
            })
        });
        not_asked.map(|kept| kept.id)
    }

    /// What the writes of a transaction replace, and the guards that it touches by that. Without a schema there are no classes above
    /// others.
    ///
    /// # Errors
    /// If what is there cannot be read.
    pub(super) fn compute_touches(
        &self,
        objects: ObjectReader<'_>,
        schema: Option<&Schema>,
        part: &Part<Object>,
    ) -> Result<(ReplacedObjects, BTreeSet<Oid>)> {
        let Part { reads, writes, .. } = part;
        let mut touches = BTreeSet::new();
        let (mut places, mut wrong) = (Vec::with_capacity(writes.len()), None);
        for (oid, content) in writes {
            let (page, slot) = (oid.page(), oid.slot());
            let replaced = self.compute_replaced(objects, page, slot, content)?;
            let after = if let ObjectState::Value(object) = content { Some(object.class) } else { None };
            let classes = [replaced.before, after].into_iter().flatten();
            let is_known =
                |class| !needs_definition(class) || schema.is_none_or(|schema| schema.class(class).is_some());
            if classes.clone().any(|class| class != oid.class()) {
                wrong = Some(WriteRejection::WrongClass(*oid));
            } else if !is_known(oid.class()) {
                wrong = Some(WriteRejection::UnknownClass(*oid));
            } else if let ObjectState::Value(object) = content
                && let Some(index) = self.find_unchecked_unique(*oid, object, &replaced.old, reads)
            {
                wrong = Some(WriteRejection::UniquenessUnchecked(*oid, index));
            }
            for class in classes.filter(|class| *class != ClassId::NONE) {
                let above = schema.and_then(|schema| schema.class(class)).map_or(&[][..], ResolvedClass::lineage);
                let all = above.iter().copied().chain([class]).filter(|_| !planted(Bug::ClassNotTouched));
                touches.extend(all.map(|class| guards::of_class(page.space, page.node, class)));
            }
            let old = replaced.old.iter().filter(|_| !planted(Bug::OldEntriesNotTouched));
            for (id, key) in old.chain(&replaced.new) {
                touches.insert(guards::of_index(page.space, page.node, id.index));
                let first = first_component(key).unwrap_or(key);
                if !planted(Bug::BucketNotTouched) {
                    touches.insert(guards::of_bucket(page.space, page.node, id.index, first));
                }
            }
            places.push(((page, slot), replaced));
        }
        places.sort_by_key(|(place, _)| *place);
        // Of two objects in one place only one is there in the end, and not under both classes.
        let twice = places.array_windows().find(|[(one, _), (other, _)]| one == other);
        if let Some([((page, slot), _), _]) = twice {
            wrong = Some(WriteRejection::WrongClass(Oid::new(ClassId::NONE, *page, *slot)));
        }
        Ok((ReplacedObjects { generation: self.generation, places, rejection: wrong }, touches))
    }

    /// Whether what was looked at is all that there is to know.
    pub(crate) fn is_current(&self, looked: &ReplacedObjects) -> bool {
        looked.generation == self.generation
    }

    /// An object changes by the record at this position: its entries do.
    pub(crate) fn change_entries(
        &mut self,
        position: u64,
        (page, slot): (PageId, u16),
        replaced: &Replaced,
        changes: &mut RowChanges,
    ) {
        let is_gone = |entry: &&(IndexId, Vec<u8>)| !replaced.new.contains(entry) && !planted(Bug::OldEntriesKept);
        for (id, key) in replaced.old.iter().filter(is_gone) {
            changes.remove(&rows::entry_key(*id, key, page, slot));
        }
        for (id, key) in &replaced.new {
            // What stays is there, unless it has still to be entered.
            if self.is_incomplete || !replaced.old.iter().any(|old| old.0 == *id && old.1 == *key) {
                changes.put(&rows::entry_key(*id, key, page, slot), Default::default());
            }
        }
        if self.is_incomplete {
            self.recent.insert((page, slot), position);
        }
    }

    // ------------------------------------------------------------------------------------------ what is to be done

    /// The next thing to be done, if all is durable up to a position, and so many flushed rows, and these transactions are prepared.
    /// Nothing is entered unless there is room.
    pub(crate) fn next_task(
        &mut self,
        (durable, durable_count): (u64, u64),
        prepared: &BTreeSet<TxnId>,
        has_room: bool,
    ) -> Option<IndexTask> {
        if self.recent.len() > MAX_RECENT {
            self.recent.retain(|_, position| *position > durable);
        }
        for known in self.tracked.values_mut() {
            for (class, stage) in &mut known.classes {
                if let IndexStage::Waiting(position, txns) = stage {
                    txns.retain(|txn| prepared.contains(txn) && !planted(Bug::EntersBeforeDecided));
                    if *position <= durable && txns.is_empty() {
                        *stage = IndexStage::Entering(None);
                    }
                }
                if let IndexStage::Entering(after) = stage
                    && has_room
                {
                    return Some(IndexTask::Enter(known.index.clone(), *class, *after));
                }
            }
        }
        let is_due =
            |(_, flushed): &(&IndexId, &u64)| **flushed <= durable_count || planted(Bug::RemovalOvertakesEntries);
        self.removing.iter().find(is_due).map(|(id, _)| IndexTask::Remove(*id))
    }

    /// Enters an object, unless a change does that is not to be seen yet: that is, not up to `durable`, up to which there is
    /// all of before the index was known.
    pub(crate) fn enter_object(
        &self,
        kept: &MaintainedIndex,
        place: (PageId, u16),
        object: &Object,
        durable: u64,
        changes: &mut RowChanges,
    ) {
        if self.recent.get(&place).is_none_or(|position| *position <= durable)
            && let Some(entry) = kept.entry(object)
        {
            changes.put(&rows::entry_key(kept.id, &entry.key, place.0, place.1), Default::default());
        }
    }

    /// All objects of a class are entered up to a place, or without one all there are.
    pub(crate) fn set_entered(
        &mut self,
        id: IndexId,
        class: ClassId,
        upto: Option<(u64, u16)>,
        changes: &mut RowChanges,
    ) {
        let Some(known) = self.tracked.get_mut(&id) else { return };
        let stage = match upto {
            Some(place) => IndexStage::Entering(Some(place)),
            None => {
                changes.put(&rows::mark_key(id, class), Mark::Complete(known.index.fields.clone()).encode());
                IndexStage::Complete
            }
        };
        known.classes.insert(class, stage);
        if upto.is_none() {
            self.update_is_incomplete();
        }
    }

    /// Nothing of an index is left. Returns what can be followed now.
    pub(crate) fn finish_removal(&mut self, id: IndexId, changes: &mut RowChanges) -> Option<Vec<IndexSpec>> {
        changes.remove(&rows::mark_key(id, ClassId::NONE));
        self.removing.remove(&id);
        self.postponed_specs.take()
    }

    /// How far an index is, as a part of page numbers below `free`: done and all; `None` if it is not known.
    pub(crate) fn progress(&self, id: IndexId, free: u64) -> Option<(u64, u64)> {
        let classes = &self.tracked.get(&id)?.classes;
        let done = classes.values().map(|stage| match stage {
            IndexStage::Waiting(..) | IndexStage::Entering(None) => 0,
            IndexStage::Entering(Some((page, _))) => (*page).min(free),
            IndexStage::Complete => free,
        });
        Some((done.sum(), free * classes.len() as u64))
    }
}
