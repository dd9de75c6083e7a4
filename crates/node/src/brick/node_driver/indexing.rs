//! Keeps the indexes of a logical node: says what changes touch, and enters what was there before an index was known, in
//! portions.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use meta::catalog::Schema;
use model::{ClassId, ErrorKind, NodeId, Object, Oid, PageId, Result, SpaceId, limits};
use protocol::commit::Part;
use protocol::ident::TxnId;
use protocol::lease::Ms;
use tracing::info;
use wire::cluster::Scan;

use super::{DeferredTransaction, NodeDriver, rows};
use crate::brick::index_rows::{self, IndexId};
use crate::brick::indexes::{IndexSpec, IndexTask, Indexes, MaintainedIndex, ReplacedObjects, WriteRejection};
use crate::brick::node_inbox::NodeTask;
use crate::brick::recent_pages::ObjectReader;

/// Objects, bytes of them, and entries that are looked at with the logical node locked.
const MAX_OBJECTS: usize = if cfg!(test) { 3 } else { 500 };
const MAX_BYTES: usize = 1 << 20;
const MAX_ENTRIES: usize = 2000;
/// How long others are let go before, between two portions and when there is nothing to be done yet, in milliseconds.
const PAUSE_MS: Ms = 1;
const RETRY_DELAY_MS: Ms = 50;
/// What is with the store: with more, portions wait.
const MAX_IN_FLIGHT: usize = 256;
/// Bytes of keys of entries that one transaction may change.
const MAX_KEY_BYTES: usize = limits::TRANSACTION - limits::CLUSTER_TRANSACTION - (2 << 20);
/// Transactions that are remembered as they bring objects of classes that are not known.
const MAX_UNKNOWN: usize = 4_096;
/// Rows of an object without its entries: itself, the head of its page, its places in two extents.
const ROWS_PER_OBJECT: usize = 4;

impl NodeDriver {
    /// Says what a transaction touches; whoever has brought it cannot, nor need it. Returns why it is not taken, if it is not.
    pub(super) fn compute_touches(
        &mut self,
        txn: TxnId,
        part: &mut Part<Object>,
    ) -> std::result::Result<(), DeferredTransaction> {
        let objects = ObjectReader { store: &self.store, recent: &self.recent };
        let (looked, touches) =
            self.indexes.compute_touches(objects, self.schema.as_deref(), part).map_err(|error| {
                let held = DeferredTransaction { kind: error.kind(), why: error.message().to_owned() };
                self.fail(error);
                held
            })?;
        if let Some(wrong) = looked.rejection() {
            return Err(match wrong {
                WriteRejection::WrongClass(oid) => {
                    let why = "names another class than that of the object in its place: nothing was written";
                    DeferredTransaction { kind: ErrorKind::Invalid, why: format!("{oid} {why}") }
                }
                WriteRejection::UnknownClass(oid) => self.defer_unknown_class(txn, oid),
                WriteRejection::UniquenessUnchecked(oid, index) => {
                    let why = "are to be unique, and the transaction has not asked who has them";
                    DeferredTransaction {
                        kind: ErrorKind::Unsupported,
                        why: format!("values of {oid} in {index} {why}"),
                    }
                }
            });
        }
        let (entries, bytes) = looked.entries();
        if entries + ROWS_PER_OBJECT * part.writes.len() + touches.len() >= limits::OPERATIONS || bytes > MAX_KEY_BYTES
        {
            let why = format!("the transaction changes {entries} entries of indexes, of {bytes} bytes: part it");
            return Err(DeferredTransaction { kind: ErrorKind::TooLarge, why });
        }
        part.touches = touches;
        self.replaced = Some((txn, looked));
        Ok(())
    }

    /// What whoever brings an object of a class is told that is not known here: to bring it again, as the class may be new, and the
    /// catalogue is asked; or, if it was since the object came first, that there is no such class.
    fn defer_unknown_class(&mut self, txn: TxnId, oid: Oid) -> DeferredTransaction {
        let class = oid.class().0;
        if self.unknown_class_txns.len() >= MAX_UNKNOWN {
            self.unknown_class_txns.clear();
        }
        let first = *self.unknown_class_txns.entry(txn).or_insert(self.schema_refreshes);
        // The first answer may be to a question from before.
        if self.schema_refreshes >= first + 2 {
            self.unknown_class_txns.remove(&txn);
            let why = format!("there is no class {class}, of which {oid} is to be: define it first");
            return DeferredTransaction { kind: ErrorKind::Invalid, why };
        }
        self.inbox.add(NodeTask::RefreshSchema { space: oid.space() });
        let why = format!("the brick does not know class {class} of {oid} yet: try again");
        DeferredTransaction { kind: ErrorKind::Unavailable, why }
    }

    /// The catalogue was asked for classes, and what it has is known here.
    pub(crate) fn on_schema_refreshed(&mut self) {
        self.schema_refreshes += 1;
    }

    /// What a transaction replaces that has a record now, if that is known. If it is prepared, it is needed later.
    pub(super) fn take_replaced(&mut self, txn: TxnId, is_prepared: bool) -> ReplacedObjects {
        let looked = self.replaced.take_if(|(of, _)| *of == txn).map(|(_, looked)| looked);
        if is_prepared {
            if let Some(looked) = looked {
                self.replaced_by_prepared.insert(txn, looked);
            }
            return ReplacedObjects::default();
        }
        let looked = looked.or_else(|| self.replaced_by_prepared.remove(&txn)).unwrap_or_default();
        if self.indexes.is_current(&looked) { looked } else { ReplacedObjects::default() }
    }

    fn prepared_txns(&self) -> BTreeSet<TxnId> {
        self.machine.prepared().collect()
    }

    /// Finds the indexes in the rows of the store.
    pub(super) fn open_indexes(&mut self, now: Ms) -> Result<()> {
        self.indexes = Indexes::open(&self.store, self.node, &self.prepared_txns())?;
        self.index_due = if self.indexes.is_busy() { now } else { Ms::MAX };
        Ok(())
    }

    /// These are the classes and indexes of the node's space.
    pub(crate) fn set_schema(&mut self, space: SpaceId, schema: &Arc<Schema>, now: Ms) {
        if self.schema.as_ref().is_none_or(|followed| !Arc::ptr_eq(followed, schema)) {
            self.schema = Some(schema.clone());
            self.set_indexes(space, &IndexSpec::of(schema), now);
        }
    }

    /// Whether there are classes below one that is asked for which the scan does not name, and objects of which may be here. It is
    /// asked when the scan has its state: what is in that was taken before, when its class was known (rule 6 of [`Indexes`]).
    pub(crate) fn has_unlisted_classes(&self, scan: &Scan) -> bool {
        let (Some(family), Some(schema)) = (scan.family, &self.schema) else { return false };
        schema.family(family).any(|shape| !scan.classes.contains(&shape.class().id))
    }

    /// These are the indexes of the node's space.
    pub(crate) fn set_indexes(&mut self, space: SpaceId, wanted: &[IndexSpec], now: Ms) {
        if self.failed.is_some() {
            return;
        }
        let prepared = self.prepared_txns();
        self.indexes.set_specs((self.node, space), wanted, (self.last_position, &prepared), &mut self.rows);
        self.flush(now);
        if self.indexes.is_busy() {
            self.index_due = now;
            self.poll_indexes(now);
        }
        self.process_awaited_outputs(now);
    }

    /// Does a portion of what is to be done, if it is time.
    pub(super) fn poll_indexes(&mut self, now: Ms) {
        if self.index_due > now || self.failed.is_some() {
            return;
        }
        let is_late = self.full_error.is_some() || self.in_flight.len() > MAX_IN_FLIGHT;
        let (prepared, has_room) = (self.prepared_txns(), !self.is_memory_full());
        let task = if is_late { None } else { self.indexes.next_task(self.durable_position, &prepared, has_room) };
        // What was removed is seen until that is durable.
        let is_waiting = !matches!(task, Some(IndexTask::Enter(..)));
        let done = match task {
            None => Ok(()),
            Some(IndexTask::Enter(kept, class, after)) => self.enter_objects(&kept, class, after),
            Some(IndexTask::Remove(id)) => self.remove_entries(id, now),
        };
        if let Err(error) = done {
            return self.fail(error);
        }
        self.flush(now);
        self.index_due = match self.indexes.is_busy() {
            false => Ms::MAX,
            true => now + if is_waiting { RETRY_DELAY_MS } else { PAUSE_MS },
        };
        self.process_awaited_outputs(now);
    }

    /// Enters some objects of a class.
    fn enter_objects(&mut self, kept: &MaintainedIndex, class: ClassId, after: Option<(u64, u16)>) -> Result<()> {
        let IndexId { node, space, .. } = kept.id;
        let page = |number| PageId { space, node, number };
        let (from, to) = rows::extent_range(node, space, class, after);
        let mut places = Vec::new();
        let mut damaged = Ok(());
        self.store.rows(&from, &to, |key, _| {
            match rows::extent_place(key) {
                Ok(place) => places.push(place),
                Err(error) => damaged = Err(error),
            }
            if places.len() < MAX_OBJECTS && damaged.is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        damaged?;
        let (mut bytes, mut upto) = (0, None);
        let is_all = places.len() < MAX_OBJECTS;
        let last = places.last().copied();
        for (number, slot) in places {
            if bytes >= MAX_BYTES {
                break;
            }
            // It may have gone since, or be another one, with a change that makes its entries.
            if let Some(object) = rows::read_object(&self.store, page(number), slot)?.filter(|one| one.class == class) {
                bytes += object.data.len();
                self.indexes.enter_object(kept, (page(number), slot), &object, self.durable_position, &mut self.rows);
            }
            upto = Some((number, slot));
        }
        if is_all && upto == last {
            let (index, class) = (kept.id.index, class.0);
            info!(%node, index, class, "all objects of a class are in an index");
            upto = None;
        }
        self.indexes.set_entered(kept.id, class, upto, &mut self.rows);
        Ok(())
    }

    /// Removes some entries of an index that there is no more.
    fn remove_entries(&mut self, id: IndexId, now: Ms) -> Result<()> {
        let from = index_rows::bound(id, &[]);
        let to = index_rows::bound(id, &[0xff]);
        let mut count = 0;
        let changes = &mut self.rows;
        self.store.rows(&from, &to, |key, _| {
            changes.remove(key);
            count += 1;
            if count < MAX_ENTRIES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if count == 0
            && let Some(wanted) = self.indexes.finish_removal(id, &mut self.rows)
        {
            self.flush(now);
            self.set_indexes(id.space, &wanted, now);
        }
        Ok(())
    }

    /// How far an index is: done and all, of a number that means nothing else.
    ///
    /// # Errors
    /// If rows cannot be read.
    pub(crate) fn index_progress(&self, id: IndexId) -> Result<Option<(u64, u64)>> {
        let free = match self.next_page.get(&id.space) {
            Some(free) => *free,
            None => rows::read_number(&self.store, &rows::free_key(self.node, id.space))?,
        };
        Ok(self.indexes.progress(id, free.max(1)))
    }

    /// The logical node.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }
}
