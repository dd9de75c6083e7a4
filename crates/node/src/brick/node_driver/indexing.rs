//! Where the driver of a logical node meets its indexes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use meta::catalog::Schema;
use model::{Error, ErrorKind, Oid, Result, SpaceId};
use protocol::entries::index_of_values;
use protocol::ident::TxnId;
use protocol::lease::Ms;
use protocol::read_list::ReadList;
use protocol::validate::{NO_STATE, Read};
use tracing::warn;
use wire::cluster::Scan;

use super::NodeDriver;
use super::build_paces::BuildPace;
use crate::brick::consistency::is_damage;
use crate::brick::guards;
use crate::brick::index_rows::IndexId;
use crate::brick::indexes::{IndexSpec, IndexTask, ReplacedObjects};
use crate::brick::plant::{Bug, planted};

/// Submissions with the store beyond which no portion of an index is done.
const MAX_IN_FLIGHT: usize = 256;

impl<C: Clone> NodeDriver<C> {
    /// The catalogue was asked for classes of a space, and those that it has are known here.
    pub(crate) fn on_schema_refreshed(&mut self, space: SpaceId) {
        self.admission.count_schema_refresh(space);
    }

    /// What a transaction replaces that has a record now, if it is known; nothing is known if indexes have come or gone since.
    pub(super) fn take_replaced(&mut self, txn: TxnId, is_prepared: bool) -> ReplacedObjects {
        let replaced = self.admission.take_replaced(txn, is_prepared);
        let is_current = self.index.indexes.is_current(&replaced) || planted(Bug::OutdatedReplacedUsed);
        if is_current { replaced } else { ReplacedObjects::default() }
    }

    /// Makes reads of guards conflict whose index was dropped: changes do not touch them any more, and a scan that relies on one may
    /// have missed some. Index numbers are never given twice.
    pub(super) fn distrust_dropped_indexes(&self, reads: &mut ReadList) {
        let is_dropped = |oid: Oid| {
            let (node, space) = (self.node, oid.page().space);
            guards::index_guarded_by(oid).is_some_and(|index| {
                !self.index.indexes.is_tracked(IndexId { node, space, index }) && !planted(Bug::DroppedIndexTrusted)
            })
        };
        // Most pages have no guards, so most transactions are looked at page by page.
        if reads.pages().any(guards::has_guards_of_index) && reads.iter().any(|read| is_dropped(read.oid)) {
            let distrust = |read: Read| if is_dropped(read.oid) { Read { seen: NO_STATE, ..read } } else { read };
            *reads = reads.iter().map(distrust).collect();
        }
    }

    /// Checks that the values of a unique index may be looked up here: before the index is known, not all are bound, and after it was
    /// dropped they are removed.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub(crate) fn check_look_up(&self, collection: Oid) -> Result<()> {
        let (space, node) = (collection.space(), self.node);
        match index_of_values(collection) {
            Some(index) if !self.index.indexes.is_tracked(IndexId { node, space, index }) => {
                let what = format!("unique index {index} does not exist in this brick's copy of the catalogue");
                Err(Error::new(ErrorKind::NotFound, what))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn prepared_txns(&self) -> BTreeSet<TxnId> {
        self.machine.prepared_txns().collect()
    }

    /// The space of the node has these classes and indexes.
    pub(crate) fn set_schema(&mut self, space: SpaceId, schema: &Arc<Schema>, now: Ms) {
        if self.index.set_schema(schema) {
            self.set_indexes(space, &IndexSpec::of(schema), now);
        }
    }

    /// Indexes of its space are to be built at these paces; those that are missing as fast as possible.
    pub(crate) fn set_index_paces(&mut self, paces: &BTreeMap<u32, BuildPace>, now: Ms) {
        self.index.paces.set(paces, now);
    }

    /// Whether there are classes below one that is asked for which the scan does not name, and objects of which may be here. It must be
    /// asked after the scan has its state: what is in that state was taken in before, when its class was known (rule 7 of
    /// [`Indexes`](crate::brick::indexes::Indexes)).
    pub(crate) fn has_unlisted_classes(&self, scan: &Scan) -> bool {
        let (Some(family), Some(schema)) = (scan.family, self.index.schema()) else { return false };
        schema.family(family).any(|shape| !scan.classes.contains(&shape.class().id))
    }

    /// The space of the node has these indexes.
    pub(crate) fn set_indexes(&mut self, space: SpaceId, specs: &[IndexSpec], now: Ms) {
        if self.failed.is_some() {
            return;
        }
        let (prepared, last, flushed) =
            (self.prepared_txns(), self.writer.last_position(), self.writer.flushed_count());
        self.index.set_specs(space, specs, (last, flushed, &prepared), self.writer.rows(), now);
        self.writer.flush_rows();
        self.poll_indexes(now);
        self.process_outputs(true, now);
    }

    /// Does a portion of what is to be done about indexes, if it is time.
    pub(super) fn poll_indexes(&mut self, now: Ms) {
        if self.index.due() > now || self.failed.is_some() {
            return;
        }
        let is_late = self.writer.full_error().is_some() || self.writer.in_flight_count() > MAX_IN_FLIGHT;
        let (prepared, has_room) = (self.prepared_txns(), !self.reader.is_memory_full());
        if !is_late {
            let flushed = self.writer.flushed_count();
            self.index.indexes.remove_dropped(flushed, &prepared, self.writer.rows());
        }
        let durable = self.writer.durable_position();
        let task = if is_late {
            None
        } else {
            self.index.next_task((durable, self.writer.durable_count()), &prepared, has_room, now)
        };
        // What was removed is read until that is durable.
        let has_entered = matches!(task, Some(IndexTask::Enter(..)));
        let done = task.as_ref().map(|task| self.index.run_task(task, &self.reader, durable, self.writer.rows(), now));
        let specs = match done.transpose() {
            Ok(specs) => specs.flatten(),
            Err(error) if is_damage(&error) && !planted(Bug::DamageEndsNode) => {
                warn!(node = %self.node, %error, "an index cannot be completed: it is tried again in a minute");
                match task {
                    Some(task) if !planted(Bug::IndexWaitsForDamaged) => self.index.postpone(&task, now),
                    _ => {}
                }
                None
            }
            Err(error) => return self.fail(error),
        };
        self.writer.flush_rows();
        if let Some((space, specs)) = specs {
            let (prepared, last, flushed) =
                (self.prepared_txns(), self.writer.last_position(), self.writer.flushed_count());
            self.index.set_specs(space, &specs, (last, flushed, &prepared), self.writer.rows(), now);
            self.writer.flush_rows();
        }
        self.index.schedule(has_entered, now);
        self.process_outputs(true, now);
    }

    /// How far an index is: done and all, of a number that means nothing else; `None` if it is not known here.
    ///
    /// # Errors
    /// If rows cannot be read.
    pub(crate) fn index_progress(&self, id: IndexId) -> Result<Option<(u64, u64)>> {
        let free = self.pages.next_page(id.space, &self.reader)?;
        Ok(self.index.indexes.progress(id, free.max(1)))
    }
}
