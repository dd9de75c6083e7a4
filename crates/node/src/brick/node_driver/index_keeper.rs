//! Keeps the indexes of a logical node: enters the objects that were there before an index was known, in portions, and removes the
//! entries of indexes that were dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use meta::catalog::Schema;
use model::{ClassId, NodeId, Object, Oid, PageId, Result, SpaceId};
use protocol::commit::Part;
use protocol::entries::unique_values;
use protocol::ident::TxnId;
use protocol::lease::Ms;
use store::RowChanges;
use tracing::info;

use super::build_paces::BuildPaces;
use super::rows;
use crate::brick::entry_rows;
use crate::brick::index_rows::{self, IndexId};
use crate::brick::indexes::{IndexSpec, IndexTask, Indexes, MaintainedIndex, ReplacedObjects};
use crate::brick::page_rows::Rows;
use crate::brick::recent_pages::ObjectReader;

/// Bytes of objects in a portion.
const MAX_BYTES: usize = 1 << 20;
/// The pause after a portion, and after there was nothing to be done yet, in milliseconds.
const PAUSE_MS: Ms = 1;
const RETRY_DELAY_MS: Ms = 50;
/// How long an index waits that needs a damaged row, and the pause while one waits and there is nothing else to be done.
const DAMAGE_RETRY_MS: Ms = 60_000;
const DAMAGED_DELAY_MS: Ms = 1_000;

/// How much is done about an index at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortionLimits {
    /// Objects that are entered.
    pub(crate) objects: usize,
    /// Entries that are removed.
    pub(crate) entries: usize,
}

impl PortionLimits {
    /// The limits of a brick that serves.
    pub(crate) const SERVING: Self = Self { objects: 500, entries: 2_000 };
    /// Small ones, for tests and simulations.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) const SMALL: Self = Self { objects: 3, entries: 5 };
}

/// The indexes of a logical node, and when something is to be done about them.
#[derive(Debug)]
pub(super) struct IndexKeeper {
    node: NodeId,
    pub(super) indexes: Indexes,
    portion: PortionLimits,
    /// When the next portion is due.
    due: Ms,
    /// The schema that the indexes were last made to follow.
    schema: Option<Arc<Schema>>,
    /// How fast indexes are built.
    pub(super) paces: BuildPaces,
    /// Indexes that need damaged rows, and when they are tried again.
    damaged: BTreeMap<u32, Ms>,
}

impl IndexKeeper {
    /// Finds the indexes in the rows of a store. These transactions are prepared.
    ///
    /// # Errors
    /// If rows cannot be read.
    pub(super) fn open(
        node: NodeId,
        portion: PortionLimits,
        reader: &impl Rows,
        prepared: &BTreeSet<TxnId>,
        now: Ms,
    ) -> Result<Self> {
        let indexes = Indexes::open(reader, node, prepared)?;
        let due = if indexes.is_busy() { now } else { Ms::MAX };
        Ok(Self { node, indexes, portion, due, schema: None, paces: BuildPaces::default(), damaged: BTreeMap::new() })
    }

    /// When the next portion is due.
    pub(super) fn due(&self) -> Ms {
        self.due
    }

    /// Follows another schema. Says whether it is another one.
    pub(super) fn set_schema(&mut self, schema: &Arc<Schema>) -> bool {
        let is_new = self.schema.as_ref().is_none_or(|followed| !Arc::ptr_eq(followed, schema));
        if is_new {
            self.schema = Some(schema.clone());
        }
        is_new
    }

    /// The schema that is followed.
    pub(super) fn schema(&self) -> Option<&Schema> {
        self.schema.as_deref()
    }

    /// The space has these indexes now: see [`Indexes::set_specs`].
    pub(super) fn set_specs(
        &mut self,
        space: SpaceId,
        specs: &[IndexSpec],
        before: (u64, u64, &BTreeSet<TxnId>),
        changes: &mut RowChanges,
        now: Ms,
    ) {
        self.indexes.set_specs((self.node, space), specs, before, changes);
        if self.indexes.is_busy() {
            self.due = now;
        }
    }

    /// What the writes of a transaction replace, and the guards that they touch: see [`Indexes::compute_touches`].
    ///
    /// # Errors
    /// If what is there cannot be read.
    pub(super) fn compute_touches(
        &self,
        objects: ObjectReader<'_>,
        part: &Part<Object>,
    ) -> Result<(ReplacedObjects, BTreeSet<Oid>)> {
        self.indexes.compute_touches(objects, self.schema.as_deref(), part)
    }

    /// A task needs a damaged row: its index waits. Others go on.
    pub(super) fn postpone(&mut self, task: &IndexTask, now: Ms) {
        self.damaged.insert(task.index(), now + DAMAGE_RETRY_MS);
    }

    /// A task was done, or there was none: sets when the next portion is due.
    pub(super) fn schedule(&mut self, has_entered: bool, now: Ms) {
        self.due = match self.indexes.is_busy() {
            false => Ms::MAX,
            true if has_entered => now + PAUSE_MS,
            true if self.damaged.is_empty() => now + RETRY_DELAY_MS,
            true => now + DAMAGED_DELAY_MS,
        };
    }

    /// The next task: see [`Indexes::next_task`].
    pub(super) fn next_task(
        &mut self,
        durable: (u64, u64),
        prepared: &BTreeSet<TxnId>,
        has_room: bool,
        now: Ms,
    ) -> Option<IndexTask> {
        let Self { indexes, paces, damaged, .. } = self;
        damaged.retain(|_, retry_at| *retry_at > now);
        indexes.next_task(durable, prepared, &|index| !damaged.contains_key(&index), &mut |index| {
            has_room && paces.may_enter(index, now)
        })
    }

    /// Does a portion of a task. Returns the specs that can be followed once its changes are submitted, if there are such.
    ///
    /// # Errors
    /// If rows cannot be read.
    pub(super) fn run_task(
        &mut self,
        task: &IndexTask,
        reader: &impl Rows,
        durable: u64,
        changes: &mut RowChanges,
        now: Ms,
    ) -> Result<Option<(SpaceId, Vec<IndexSpec>)>> {
        match task {
            IndexTask::Enter(kept, class, after) => {
                let most = self.paces.portion(kept.id.index, self.portion.objects);
                let count = self.enter_objects(kept, *class, (*after, most), reader, durable, changes)?;
                self.paces.take(kept.id.index, count, now);
                Ok(None)
            }
            IndexTask::Remove(id) => Ok(self.remove_entries(*id, reader, changes)?.map(|specs| (id.space, specs))),
        }
    }

    /// Enters some objects of a class, at most as many as given. Returns how many were read.
    fn enter_objects(
        &mut self,
        kept: &MaintainedIndex,
        class: ClassId,
        (after, most): (Option<(u64, u16)>, usize),
        reader: &impl Rows,
        durable: u64,
        changes: &mut RowChanges,
    ) -> Result<usize> {
        let IndexId { node, space, .. } = kept.id;
        let page = |number| PageId { space, node, number };
        let places = Self::read_places(kept.id, class, (after, most), reader)?;
        let mut count = 0;
        let (mut bytes, mut upto) = (0, None);
        let is_all = places.len() < most;
        let last = places.last().copied();
        for (number, slot) in places {
            if bytes >= MAX_BYTES {
                break;
            }
            // It may have been removed or replaced since: that change makes its entries.
            if let Some(object) = rows::read_object(reader, page(number), slot)?.filter(|one| one.class == class) {
                bytes += object.data.len();
                self.indexes.enter_object(kept, (page(number), slot), &object, durable, changes);
            }
            upto = Some((number, slot));
            count += 1;
        }
        if is_all && upto == last {
            let (index, class) = (kept.id.index, class.0);
            info!(%node, index, class, "an index has all objects of a class");
            upto = None;
        }
        self.indexes.set_entered(kept.id, class, upto, changes);
        Ok(count)
    }

    /// The places of the next objects of a class, at most as many as given.
    fn read_places(
        id: IndexId,
        class: ClassId,
        (after, most): (Option<(u64, u16)>, usize),
        reader: &impl Rows,
    ) -> Result<Vec<(u64, u16)>> {
        let (from, to) = rows::extent_range(id.node, id.space, class, after);
        let (mut places, mut damaged) = (Vec::new(), Ok(()));
        reader.each(&from, &to, |key, _| {
            match rows::extent_place(key) {
                Ok(place) => places.push(place),
                Err(error) => damaged = Err(error),
            }
            if places.len() < most && damaged.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        damaged.map(|()| places)
    }

    /// Removes some entries of an index that was dropped, and of its values if it was unique. If there are none, returns the specs that can
    /// be followed now.
    fn remove_entries(
        &mut self,
        id: IndexId,
        reader: &impl Rows,
        changes: &mut RowChanges,
    ) -> Result<Option<Vec<IndexSpec>>> {
        let (first, last) = (index_rows::bound(id, &[]), index_rows::bound(id, &[0xff]));
        let values = entry_rows::entry_range(unique_values(id.space, id.node, id.index), &[]);
        let mut count = 0;
        for (from, to) in [(&first[..], &last[..]), (&values.0[..], &values.1[..])] {
            reader.each(from, to, |key, _| {
                changes.remove(key);
                count += 1;
                if count < self.portion.entries { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
        }
        Ok(if count == 0 { self.indexes.finish_removal(id, changes) } else { None })
    }
}
