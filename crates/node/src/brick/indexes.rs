//! The indexes of a logical node: which are maintained, how complete they are, and which guards a change touches.
//!
//! 1. Every change updates an index from the moment when the logical node knows the index. Earlier objects are entered in portions
//!    ([`super::node_driver`]); then the index is *complete* for a class, which a mark records that is written after the entries.
//! 2. Entering begins when everything from before that moment is decided and durable: such transactions have touched no guards of
//!    the index and have made no entries.
//! 3. Entering skips objects whose last change is not durable yet: the change makes their entries.
//! 4. Indexes, their fields and their classes are kept in rows, so a restarted node maintains its indexes before it has read the
//!    catalogue.
//! 5. A transaction that gives an object values of a unique index must say that it binds them ([`protocol::entries::unique_entry`]). Of two
//!    transactions that bind the same values, one conflicts.
//! 6. Guards of a dropped index are not touched any more, so a transaction that relies on one conflicts. One that was prepared before may
//!    still commit: until all of these are decided, changes touch the guards and update the entries of the index. Numbers of indexes are
//!    never reused.
//! 7. Objects of unknown classes are refused. A change touches the guards of the superclasses too, so a scan of a class
//!    conflicts with a change of any subclass, even of one that was defined after the scan.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use meta::catalog::{Index, ResolvedClass, Schema};
use model::{ClassId, FieldNumber, Kind, NodeId, Object, Oid, PageId, RecordRef, Result, SpaceId};
use protocol::commit::Part;
use protocol::entries::unique_question;
use protocol::ident::TxnId;
use protocol::page_cache::ObjectState;
use protocol::read_list::ReadList;
use query::key::{IndexEntry, first_component};
use store::RowChanges;

use super::guards;
use super::index_rows::{self as rows, IndexId, Mark};
use super::page_rows::Rows;
use super::plant::{Bug, planted};
use super::recent_pages::ObjectReader;
use crate::cluster_view::needs_definition;

/// Number of changed objects that are remembered before durable ones are forgotten.
const MAX_RECENT: usize = 10_000;

/// An index that changes update.
#[derive(Debug)]
pub(crate) struct MaintainedIndex {
    pub(crate) id: IndexId,
    pub(crate) fields: Vec<FieldNumber>,
    /// Whether values are unique, by the local catalogue.
    unique: bool,
}

impl MaintainedIndex {
    /// The entry of an object; `None` if it is not a record that can be read.
    fn entry(&self, object: &Object) -> Option<IndexEntry> {
        entry_of(object, &self.fields)
    }
}

/// The entry of an object in an index of these fields; `None` if it is not a record that can be read.
pub(crate) fn entry_of(object: &Object, fields: &[FieldNumber]) -> Option<IndexEntry> {
    let record = (object.kind == Kind::Record).then(|| RecordRef::new(&object.data).ok())??;
    IndexEntry::of(&record, fields).ok()
}

/// An index of the catalogue.
#[derive(Clone, Debug)]
pub(crate) struct IndexSpec {
    pub(crate) index: u32,
    pub(crate) fields: Vec<FieldNumber>,
    pub(crate) unique: bool,
    /// The classes whose objects it contains.
    pub(crate) classes: Vec<ClassId>,
}

impl IndexSpec {
    /// The indexes of a schema.
    pub(crate) fn of(schema: &Schema) -> Vec<Self> {
        let wanted = |index: &Arc<Index>| Self {
            index: index.id.0,
            fields: index.fields.iter().take(query::limits::KEY_FIELDS).copied().collect(),
            unique: index.unique,
            classes: schema.family(index.class).map(|shape| shape.class().id).collect(),
        };
        schema.indexes().map(wanted).collect()
    }
}

/// How far the objects of a class have been entered in an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum IndexStage {
    /// Entering begins when this position is durable and these transactions are decided.
    Waiting(u64, BTreeSet<TxnId>),
    /// The objects up to this place have been entered.
    Entering(Option<(u64, u16)>),
    /// All objects have been entered.
    Complete,
}

/// An index and the state of each of its classes.
#[derive(Debug)]
struct TrackedIndex {
    index: Arc<MaintainedIndex>,
    classes: BTreeMap<ClassId, IndexStage>,
    /// If it was dropped: the transactions that were prepared then and may be so still.
    dropped: Option<BTreeSet<TxnId>>,
}

/// Entries of an object: the index and the key.
type Entries = Vec<(IndexId, Vec<u8>)>;

/// Why the writes of a transaction are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteRejection {
    /// An object replaces one of another class, or its class differs from that of its identifier, or two objects are written in
    /// the same place.
    WrongClass(Oid),
    /// An object of another kind replaces a collection, or a collection replaces an object of another kind.
    WrongKind(Oid),
    /// The class of the object is not in the local catalogue.
    UnknownClass(Oid),
    /// An object gets values of a unique index, and the transaction does not say that it binds them.
    UniquenessUnchecked(Oid, IndexId),
}

/// The class and entries of the object that a write replaces, and the entries of the new object.
#[derive(Debug, Default)]
pub(crate) struct Replaced {
    pub(crate) before: Option<ClassId>,
    /// Bytes of the object and of its attributes.
    pub(crate) size_before: u64,
    /// The object itself, if it is a blob.
    pub(crate) blob: Option<Object>,
    /// The kind of the object, if it is a collection.
    collection: Option<Kind>,
    /// Whether it is a collection, and is deleted.
    pub(crate) removes_collection: bool,
    pub(crate) old: Entries,
    pub(crate) new: Entries,
}

impl Replaced {
    /// Whether a collection replaces an object of another kind, or the reverse: names and entries would belong to something else.
    fn is_of_other_kind(&self, object: &Object) -> bool {
        let after = Some(object.kind).filter(|_| object.is_collection());
        self.before.is_some() && self.collection != after
    }
}

/// What the writes of a transaction replace, by place.
#[derive(Debug, Default)]
pub(crate) struct ReplacedObjects {
    /// The generation of [`Indexes`] for which this was computed.
    generation: u64,
    places: Vec<((PageId, u16), Replaced)>,
    rejection: Option<WriteRejection>,
}

impl ReplacedObjects {
    /// Why the writes are refused; `None` if they are not.
    pub(crate) fn rejection(&self) -> Option<WriteRejection> {
        self.rejection
    }

    /// What the write of an object replaces, if it was computed.
    pub(crate) fn replaced_object(&self, oid: Oid) -> Option<&Replaced> {
        let at = self.places.binary_search_by_key(&(oid.page(), oid.slot()), |(place, _)| *place).ok()?;
        self.places.get(at).map(|(_, replaced)| replaced)
    }

    /// Takes what a write replaces, if it was computed.
    pub(crate) fn take(&mut self, page: PageId, slot: u16) -> Option<Replaced> {
        let at = self.places.binary_search_by_key(&(page, slot), |(place, _)| *place).ok()?;
        self.places.get_mut(at).map(|(_, replaced)| std::mem::take(replaced))
    }

    /// The collections that are deleted.
    pub(crate) fn removed_collections(&self) -> impl Iterator<Item = Oid> {
        let removed = self.places.iter().filter(|(_, replaced)| replaced.removes_collection);
        removed.map(|((page, slot), _)| Oid::new(ClassId::NONE, *page, *slot))
    }

    /// Number of entries that change, and the bytes of their keys.
    pub(crate) fn entries(&self) -> (usize, usize) {
        let entries = self.places.iter().flat_map(|(_, replaced)| replaced.old.iter().chain(&replaced.new));
        entries.fold((0, 0), |(count, bytes), (_, key)| (count + 1, bytes + key.len()))
    }
}

/// The next step of maintenance.
pub(crate) enum IndexTask {
    /// Enter objects of a class, after a place.
    Enter(Arc<MaintainedIndex>, ClassId, Option<(u64, u16)>),
    /// Remove all entries of an index.
    Remove(IndexId),
}

impl IndexTask {
    /// The number of the index.
    pub(crate) fn index(&self) -> u32 {
        match self {
            Self::Enter(index, ..) => index.id.index,
            Self::Remove(id) => id.index,
        }
    }
}

/// The indexes of a logical node.
#[derive(Debug, Default)]
pub(crate) struct Indexes {
    tracked: BTreeMap<IndexId, TrackedIndex>,
    /// The indexes of each class.
    by_class: HashMap<(SpaceId, ClassId), Vec<Arc<MaintainedIndex>>>,
    /// Dropped indexes. Their entries are removed when this many flushed rows are durable, because these may still add entries.
    removing: BTreeMap<IndexId, u64>,
    /// Counts changes of the known indexes.
    generation: u64,
    /// Indexes of the catalogue that can be adopted only when a removal has ended.
    postponed_specs: Option<Vec<IndexSpec>>,
    /// Whether an index is not complete.
    is_incomplete: bool,
    /// Objects that have changed while an index was incomplete, with the position of the last change.
    recent: HashMap<(PageId, u16), u64>,
}

impl Indexes {
    /// Reads the indexes of a logical node from its rows. `prepared` are the prepared transactions.
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
                index: Arc::new(MaintainedIndex { id, fields, unique: false }),
                classes: BTreeMap::new(),
                dropped: None,
            };
            indexes.tracked.entry(id).or_insert_with(kept).classes.insert(class, stage);
        }
        indexes.rebuild_by_class();
        Ok(indexes)
    }

    /// Whether a transaction may rely on guards of an index: it was not dropped.
    pub(crate) fn is_tracked(&self, id: IndexId) -> bool {
        self.tracked.get(&id).is_some_and(|known| known.dropped.is_none())
    }

    /// Whether maintenance has work to do.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_incomplete || !self.removing.is_empty() || self.is_dropping()
    }

    fn is_dropping(&self) -> bool {
        self.tracked.values().any(|known| known.dropped.is_some())
    }

    fn update_is_incomplete(&mut self) {
        let mut stages = self.tracked.values().flat_map(|known| known.classes.values());
        self.is_incomplete = stages.any(|stage| *stage != IndexStage::Complete);
        if !self.is_incomplete {
            self.recent.clear();
        }
    }

    /// Updates the table by class after a change.
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

    // ------------------------------------------------------------------------------------------ definitions

    /// Adopts the classes and indexes that the node's space has now, and records them in rows. Everything from before is decided
    /// when the position `last` is durable and the transactions `prepared` are decided. `flushed` is the number of rows flushed
    /// before.
    pub(crate) fn set_specs(
        &mut self,
        (node, space): (NodeId, SpaceId),
        wanted: &[IndexSpec],
        (last, flushed, prepared): (u64, u64, &BTreeSet<TxnId>),
        changes: &mut RowChanges,
    ) {
        self.postponed_specs = None;
        let (mut stays, mut changed) = (BTreeSet::new(), false);
        for IndexSpec { index, fields, unique, classes } in wanted {
            let id = IndexId { node, space, index: *index };
            // The entries of a dropped index with the same number must be removed first.
            let is_dropped = self.tracked.get(&id).is_some_and(|known| known.dropped.is_some());
            if is_dropped || self.removing.contains_key(&id) {
                self.postponed_specs = Some(wanted.to_vec());
                continue;
            }
            stays.insert(id);
            let kept = || Arc::new(MaintainedIndex { id, fields: fields.clone(), unique: *unique });
            let known = self.tracked.entry(id).or_insert_with(|| TrackedIndex {
                index: kept(),
                classes: BTreeMap::new(),
                dropped: None,
            });
            if known.index.unique != *unique {
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
        let is_gone = |id: &IndexId| !stays.contains(id) && !planted(Bug::DroppedIndexKept);
        for (id, known) in self.tracked.iter_mut().filter(|(id, known)| is_gone(id) && known.dropped.is_none()) {
            let fields = known.index.fields.clone();
            known.index = Arc::new(MaintainedIndex { id: *id, fields, unique: false });
            known.dropped = Some(if planted(Bug::DroppedAtOnce) { BTreeSet::new() } else { prepared.clone() });
            changed = true;
        }
        if changed {
            self.rebuild_by_class();
        }
        self.remove_dropped(flushed, prepared, changes);
    }

    /// Removes the dropped indexes on whose guards no transaction relies any more: those that were prepared when they were dropped are
    /// decided. `flushed` and `prepared` are as for [`Indexes::set_specs`].
    pub(crate) fn remove_dropped(&mut self, flushed: u64, prepared: &BTreeSet<TxnId>, changes: &mut RowChanges) {
        if !self.is_dropping() {
            return;
        }
        let is_over = |_: &IndexId, known: &mut TrackedIndex| {
            known.dropped.as_mut().is_some_and(|txns| {
                txns.retain(|txn| prepared.contains(txn));
                txns.is_empty()
            })
        };
        let over: Vec<_> = self.tracked.extract_if(.., is_over).collect();
        for (id, TrackedIndex { classes, .. }) in &over {
            classes.keys().for_each(|class| changes.remove(&rows::mark_key(*id, *class)));
            changes.put(&rows::mark_key(*id, ClassId::NONE), Mark::Removing.encode());
            self.removing.insert(*id, flushed);
        }
        if !over.is_empty() {
            self.rebuild_by_class();
        }
    }

    // ------------------------------------------------------------------------------------------ changes

    /// Computes what a write replaces.
    ///
    /// # Errors
    /// If the old object cannot be read.
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
            ObjectState::Absent | ObjectState::Changed(_) => Entries::new(),
        };
        let collection = before.as_ref().filter(|object| object.is_collection()).map(|object| object.kind);
        let removes_collection = collection.is_some() && matches!(content, ObjectState::Absent);
        let class = before.as_ref().map(|object| object.class);
        let size_before = before.as_ref().map_or(0, Object::total_size);
        let blob = before.filter(|object| object.kind == Kind::Blob);
        Ok(Replaced { before: class, size_before, blob, collection, removes_collection, old, new })
    }

    fn entries(&self, space: SpaceId, object: &Object) -> Entries {
        if object.class == ClassId::NONE {
            return Entries::new();
        }
        let kept = self.by_class.get(&(space, object.class)).into_iter().flatten();
        kept.filter_map(|kept| Some((kept.id, kept.entry(object)?.key))).collect()
    }

    /// The unique index whose values `object` gains and the transaction does not bind. One that binds them has read the question.
    fn find_unchecked_unique(&self, oid: Oid, object: &Object, old: &Entries, reads: &ReadList) -> Option<IndexId> {
        let (space, node) = (oid.page().space, oid.page().node);
        let all = self.by_class.get(&(space, object.class))?;
        let is_bound = |kept: &MaintainedIndex| {
            let question = unique_question(space, node, kept.id.index).oid;
            reads.contains(question) || planted(Bug::UniquenessUnchecked)
        };
        let unbound = all.iter().filter(|kept| kept.unique).find(|kept| {
            let entry = kept.entry(object).filter(|entry| !entry.has_null);
            let is_kept = |entry: IndexEntry| old.iter().any(|(id, key)| *id == kept.id && *key == entry.key);
            entry.is_some_and(|entry| !is_kept(entry)) && !is_bound(kept)
        });
        unbound.map(|kept| kept.id)
    }

    /// Computes what the writes of a transaction replace, and the guards that they touch. Without a schema no class has
    /// superclasses.
    ///
    /// # Errors
    /// If an old object cannot be read.
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
            let after = match content {
                ObjectState::Value(object) | ObjectState::Changed(object) => Some(object.class),
                ObjectState::Absent => None,
            };
            let classes = [replaced.before, after].into_iter().flatten();
            let is_known =
                |class| !needs_definition(class) || schema.is_none_or(|schema| schema.class(class).is_some());
            if classes.clone().any(|class| class != oid.class()) {
                wrong = Some(WriteRejection::WrongClass(*oid));
            } else if let ObjectState::Value(object) = content
                && replaced.is_of_other_kind(object)
                && !planted(Bug::CollectionReplaced)
            {
                wrong = Some(WriteRejection::WrongKind(*oid));
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
        // Only one of two objects in the same place would exist in the end, and not under both classes.
        let twice = places.array_windows().find(|[(one, _), (other, _)]| one == other);
        if let Some([((page, slot), _), _]) = twice {
            wrong = Some(WriteRejection::WrongClass(Oid::new(ClassId::NONE, *page, *slot)));
        }
        Ok((ReplacedObjects { generation: self.generation, places, rejection: wrong }, touches))
    }

    /// Whether `looked` was computed for the indexes of now.
    pub(crate) fn is_current(&self, looked: &ReplacedObjects) -> bool {
        looked.generation == self.generation
    }

    /// Updates the entries of an object that the record at `position` changes.
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
            // An entry that stays exists already, unless the index is being built.
            if self.is_incomplete || !replaced.old.iter().any(|old| old.0 == *id && old.1 == *key) {
                changes.put(&rows::entry_key(*id, key, page, slot), Default::default());
            }
        }
        if self.is_incomplete {
            self.recent.insert((page, slot), position);
        }
    }

    // ------------------------------------------------------------------------------------------ maintenance

    /// The next task when positions up to `durable` and `durable_count` flushed rows are durable and `prepared` are the prepared
    /// transactions. Nothing is done about indexes for which `is_due` says no, and objects are entered into those for which `may_enter` allows it.
    pub(crate) fn next_task(
        &mut self,
        (durable, durable_count): (u64, u64),
        prepared: &BTreeSet<TxnId>,
        is_due: &dyn Fn(u32) -> bool,
        may_enter: &mut dyn FnMut(u32) -> bool,
    ) -> Option<IndexTask> {
        if self.recent.len() > MAX_RECENT {
            self.recent.retain(|_, position| *position > durable);
        }
        for known in self.tracked.values_mut().filter(|known| known.dropped.is_none()) {
            for (class, stage) in &mut known.classes {
                if let IndexStage::Waiting(position, txns) = stage {
                    txns.retain(|txn| prepared.contains(txn) && !planted(Bug::EntersBeforeDecided));
                    if *position <= durable && txns.is_empty() {
                        *stage = IndexStage::Entering(None);
                    }
                }
                let index = known.index.id.index;
                if let IndexStage::Entering(after) = stage
                    && is_due(index)
                    && may_enter(index)
                {
                    return Some(IndexTask::Enter(known.index.clone(), *class, *after));
                }
            }
        }
        let is_durable = |flushed: u64| flushed <= durable_count || planted(Bug::RemovalOvertakesEntries);
        let mut removing = self.removing.iter().filter(|(id, flushed)| is_durable(**flushed) && is_due(id.index));
        removing.next().map(|(id, _)| IndexTask::Remove(*id))
    }

    /// Enters an object, unless its last change is not durable yet: that change makes the entry.
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
            && !(entry.has_null && planted(Bug::LackingNotEntered))
        {
            changes.put(&rows::entry_key(kept.id, &entry.key, place.0, place.1), Default::default());
        }
    }

    /// Records that the objects of a class are entered up to a place, or completely if there is none.
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

    /// Records that all entries of a dropped index are removed. Returns the indexes that can be adopted now.
    pub(crate) fn finish_removal(&mut self, id: IndexId, changes: &mut RowChanges) -> Option<Vec<IndexSpec>> {
        changes.remove(&rows::mark_key(id, ClassId::NONE));
        self.removing.remove(&id);
        self.postponed_specs.take()
    }

    /// Progress of an index as (done, total) in page numbers below `free`; `None` if it is not known.
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
