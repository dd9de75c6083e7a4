//! Puts rows right that a scrub has found wrong, where what there is tells what they must be.
//!
//! A problem was found in an earlier state of the store. It is looked at again in the newest one, when no change of its rows is on its way;
//! so a change of the rows that is accepted later builds on what is put right.

use std::ops::ControlFlow;

use model::{ClassId, Entry, Oid, PageId, Result};
use protocol::lease::Ms;
use store::{ContentChange, RowChanges};

use super::{NodeDriver, rows};
use crate::brick::consistency::plant::{Bug, planted};
use crate::brick::consistency::{NodeIndexes, Problem};
use crate::brick::content_rows::Contents;
use crate::brick::entry_rows::{self, Totals};
use crate::brick::index_rows::{self, IndexId};
use crate::brick::page_rows::Rows;

/// What came of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repaired {
    /// The rows are right now.
    Done,
    /// They were right already.
    NotNeeded,
    /// A change of these rows is on its way: try again.
    Busy,
    /// What there is does not tell what is right.
    Impossible,
}

impl<C: Clone> NodeDriver<C> {
    /// Puts the rows of a problem right, if it is still there and can be repaired.
    ///
    /// # Errors
    /// If rows cannot be read.
    pub(crate) fn repair(&mut self, problem: &Problem, now: Ms) -> Result<Repaired> {
        if let Problem::MixedOutcome { txn, .. } = problem {
            let was_mixed = self.machine.give_up_mixed_outcome(*txn, now);
            self.process_outputs(true, now);
            return Ok(if was_mixed { Repaired::Done } else { Repaired::NotNeeded });
        }
        let keys = concerned_keys(problem);
        if keys.is_empty() {
            return Ok(Repaired::Impossible);
        }
        if self.writer.has_pending(&keys) && !planted(Bug::RepairsInFlight) {
            return Ok(Repaired::Busy);
        }
        let mut changes = std::mem::take(self.writer.rows());
        let planned = self.plan_repair(problem, &mut changes);
        *self.writer.rows() = changes;
        let repaired = planned?;
        if repaired == Repaired::Done {
            self.writer.flush_rows();
            self.process_outputs(true, now);
        }
        Ok(repaired)
    }

    fn plan_repair(&mut self, problem: &Problem, changes: &mut RowChanges) -> Result<Repaired> {
        match problem {
            Problem::ExtentMissing { oid } | Problem::ExtentStray { oid } => self.repair_extent(*oid, changes),
            Problem::IndexEntryMissing { oid, index } => self.add_index_entry(*oid, *index, changes),
            Problem::IndexEntryStray { index, row, .. } | Problem::IndexUnknown { index, row } => {
                self.remove_index_entry(*index, row, changes)
            }
            Problem::ReverseMissing { entry, target } | Problem::ReverseStray { entry, target } => {
                self.repair_reverse(entry, *target, changes)
            }
            Problem::CountWrong { collection, .. } => self.count_anew(*collection, changes),
            Problem::StagedMissing { content } => {
                let is_marked = self.reader.get(&rows::staged_key(*content))?.is_some();
                if !is_marked || self.reader.content_size(*content)?.is_some() {
                    return Ok(Repaired::NotNeeded);
                }
                changes.remove(&rows::staged_key(*content));
                self.staging.forget(*content);
                Ok(Repaired::Done)
            }
            Problem::ContentUnnamed { content, .. } => {
                let is_staged = self.reader.get(&rows::staged_key(*content))?.is_some();
                if is_staged || self.reader.content_size(*content)?.is_none() {
                    return Ok(Repaired::NotNeeded);
                }
                changes.content(ContentChange::Delete { id: *content });
                Ok(Repaired::Done)
            }
            _ => Ok(Repaired::Impossible),
        }
    }

    /// Counts the entries of a collection. A change of any of them would change the totals, too, so none is on its way.
    fn count_anew(&mut self, collection: Oid, changes: &mut RowChanges) -> Result<Repaired> {
        let (from, to) = entry_rows::entry_range(collection, &[]);
        let mut count = 0;
        self.reader.each(&from, &to, |_, _| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        let totals = Totals::read(&self.reader, collection)?;
        if totals.count == count {
            return Ok(Repaired::NotNeeded);
        }
        self.entries.replace_totals(collection, Totals { count, ..totals }, self.writer.last_position() + 1, changes);
        Ok(Repaired::Done)
    }

    /// An extent has an object if the object has its class.
    fn repair_extent(&self, oid: Oid, changes: &mut RowChanges) -> Result<Repaired> {
        let (page, slot) = (oid.page(), oid.slot());
        let class = self.reader.get_with(&rows::object_key(page, slot), rows::class_in_row)?;
        let row = rows::extent_key(oid.class(), page, slot);
        let (is, must) = (self.reader.get(&row)?.is_some(), class == Some(Some(oid.class())));
        if class == Some(None) || oid.class() == ClassId::NONE {
            return Ok(Repaired::Impossible);
        }
        match (is, must) {
            (false, true) => changes.put(&row, Default::default()),
            (true, false) => changes.remove(&row),
            _ => return Ok(Repaired::NotNeeded),
        }
        Ok(Repaired::Done)
    }

    fn add_index_entry(&self, oid: Oid, index: IndexId, changes: &mut RowChanges) -> Result<Repaired> {
        let indexes = NodeIndexes::read(&self.reader, self.node)?;
        let object = rows::read_object(&self.reader, oid.page(), oid.slot())?;
        let Some(entry) = object.and_then(|object| indexes.entry(index, &object)) else {
            return Ok(Repaired::NotNeeded);
        };
        let row = index_rows::entry_key(index, &entry.key, oid.page(), oid.slot());
        if self.reader.get(&row)?.is_some() {
            return Ok(Repaired::NotNeeded);
        }
        changes.put(&row, Default::default());
        Ok(Repaired::Done)
    }

    fn remove_index_entry(&self, index: IndexId, row: &[u8], changes: &mut RowChanges) -> Result<Repaired> {
        let indexes = NodeIndexes::read(&self.reader, self.node)?;
        let is_new = !indexes.is_known(index) && self.index.indexes.is_tracked(index);
        if is_new || self.reader.get(row)?.is_none() {
            return Ok(Repaired::NotNeeded);
        }
        let (key, number, slot) = index_rows::parse_entry(index, row)?;
        let page = PageId { space: index.space, node: self.node, number };
        let object = rows::read_object(&self.reader, page, slot)?;
        if object.and_then(|object| indexes.entry(index, &object)).is_some_and(|entry| entry.key == key) {
            return Ok(Repaired::NotNeeded);
        }
        changes.remove(row);
        Ok(Repaired::Done)
    }

    fn repair_reverse(&self, entry: &Entry, target: Oid, changes: &mut RowChanges) -> Result<Repaired> {
        let row = entry_rows::reverse_key(target, entry);
        let is = self.reader.get(&row)?.is_some();
        let must = entry_rows::read_target(&self.reader, entry.collection, &entry.key)? == Some(target);
        match (is, must) {
            (false, true) => changes.put(&row, Default::default()),
            (true, false) => changes.remove(&row),
            _ => return Ok(Repaired::NotNeeded),
        }
        Ok(Repaired::Done)
    }
}

/// The rows that a problem is about; none if it cannot be repaired.
fn concerned_keys(problem: &Problem) -> Vec<Vec<u8>> {
    let object = |oid: &Oid| rows::object_key(oid.page(), oid.slot()).to_vec();
    match problem {
        Problem::ExtentMissing { oid } | Problem::ExtentStray { oid } => {
            vec![object(oid), rows::extent_key(oid.class(), oid.page(), oid.slot()).to_vec()]
        }
        Problem::IndexEntryMissing { oid, .. } => vec![object(oid)],
        Problem::IndexEntryStray { page, slot, row, .. } => vec![rows::object_key(*page, *slot).to_vec(), row.clone()],
        Problem::IndexUnknown { row, .. } => vec![row.clone()],
        Problem::ReverseMissing { entry, target } | Problem::ReverseStray { entry, target } => vec![
            entry_rows::entry_key(entry.collection, &entry.key).to_vec(),
            entry_rows::reverse_key(*target, entry).to_vec(),
        ],
        Problem::CountWrong { collection, .. } => vec![entry_rows::totals_key(*collection).to_vec()],
        Problem::StagedMissing { content } => vec![rows::staged_key(*content).to_vec()],
        Problem::ContentUnnamed { content, .. } => vec![rows::staged_key(*content).to_vec()],
        _ => Vec::new(),
    }
}
