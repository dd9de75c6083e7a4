//! Turns the records of the machine of a logical node into rows.

use bytes::Bytes;
use model::{ClassId, ContentId, ContentOrigin, Error, ErrorKind, Object, Oid, PageId, Result};
use protocol::commit::{Change, Outcome, Record};
use protocol::ident::Version;
use protocol::lease::Ms;
use protocol::page_cache::ObjectState;
use wire::cluster::encode_record;

#[cfg(any(test, feature = "sim"))]
use super::DriverOutput;
use super::contents::plan_write;
use super::{NodeDriver, rows};
use crate::brick::indexes::{Replaced, ReplacedObjects};
use crate::brick::page_rows::Head;
use crate::brick::plant::{Bug, planted};
use crate::brick::recent_pages::ObjectReader;

impl<C: Clone> NodeDriver<C> {
    /// Makes the rows of a record.
    ///
    /// # Errors
    /// If what it replaces cannot be read.
    pub(super) fn append(&mut self, position: u64, record: Record<Object>, now: Ms) -> Result<()> {
        self.writer.begin_record(position);
        let at = Version { moves: self.moves, position };
        if let Some(txn) = record.txn() {
            let replaced = self.take_replaced(txn, matches!(record, Record::Prepared { .. }));
            self.follow_staged(&record, now);
            if let Some(change) = record.change() {
                let (change, changed_blobs) = self.resolve_contents(at, change, &replaced)?;
                #[cfg(any(test, feature = "sim"))]
                self.out.push_back(DriverOutput::Appended { version: at, change: change.clone() });
                self.write_change(at, change, replaced, &changed_blobs)?;
            }
        }
        let record = record.into_row(at);
        let row = encode_record(&record, at);
        let changes = self.writer.rows();
        match (&record, record.txn()) {
            (_, Some(txn)) => self.txn_rows.write(txn, &row, changes),
            (Record::Heard { client, .. }, None) => self.txn_rows.write_mark(*client, row, changes),
            (Record::Horizon(_), None) => changes.put(&rows::horizon_key(self.node), row),
            (_, None) => changes.put(&rows::bound_key(self.node), row),
        }
        Ok(())
    }

    /// Makes the rows of a change. It changes a part of each of `changed_blobs`, which are sorted. Each is noted only when what it replaces
    /// is known, because that may be computed from the state before.
    fn write_change(
        &mut self,
        at: Version,
        change: Change<Object>,
        mut known: ReplacedObjects,
        changed_blobs: &[Oid],
    ) -> Result<()> {
        let (timestamp, usage_before) = (change.timestamp, self.usage);
        let durable = self.writer.durable_position();
        self.entries.write(&change.entries, (at.position, timestamp), durable, &self.reader, self.writer.rows())?;
        // A page that was only touched has another version too.
        for (page, (_, contents)) in change.pages() {
            let before = match self.recent.newest_head(page).filter(|_| !planted(Bug::NewestHeadForgotten)) {
                Some(newest) => newest,
                None => rows::read_head(&self.reader, page)?,
            };
            let newest = Head { version: at, timestamp: before.timestamp.max(timestamp) };
            self.recent.begin_change(page, before, newest);
            self.writer.rows().put(&rows::head_key(page), newest.encode());
            for (slot, content) in contents {
                let objects = ObjectReader { reader: &self.reader, recent: &self.recent };
                let replaced = match known.take(page, slot) {
                    Some(replaced) => replaced,
                    None => self.index.indexes.compute_replaced(objects, page, slot, &content)?,
                };
                let object = if let ObjectState::Value(object) = &content { Some(object) } else { None };
                let is_changed = changed_blobs.binary_search(&Oid::new(ClassId::NONE, page, slot)).is_ok();
                match object.filter(|_| is_changed) {
                    Some(blob) => self.recent.mark_changed(page, slot, at.position, blob.clone()),
                    None => self.recent.mark_written(page, slot),
                }
                self.write_object(at.position, (page, slot), object, &replaced);
            }
        }
        let written = if planted(Bug::UsageWrittenLate) { usage_before } else { self.usage };
        if self.usage != usage_before {
            self.writer.rows().put(&rows::usage_key(self.node), written.encode());
        }
        Ok(())
    }

    fn write_object(
        &mut self,
        position: u64,
        (page, slot): (PageId, u16),
        object: Option<&Object>,
        replaced: &Replaced,
    ) {
        let class = object.map(|object| object.class);
        if replaced.before.is_some() && !planted(Bug::UsageOfReplacedKept) {
            self.usage.uncount(replaced.size_before);
        }
        if let Some(object) = object {
            self.usage.count(object.total_size());
        }
        let changes = self.writer.rows();
        if replaced.removes_collection && !planted(Bug::TotalsKept) {
            let collection = Oid::new(ClassId::NONE, page, slot);
            self.entries.remove_totals(collection, position, changes);
        }
        // Objects without a class are in no extent.
        let [was, is] = [replaced.before, class].map(|class| class.filter(|class| *class != ClassId::NONE));
        if let Some(class) = was.filter(|_| was != is && !planted(Bug::ExtentKeepsRemoved)) {
            changes.remove(&rows::extent_key(class, page, slot));
        }
        if let Some(class) = is.filter(|_| was != is) {
            changes.put(&rows::extent_key(class, page, slot), Bytes::new());
        }
        if was.or(is).is_some() {
            self.index.indexes.change_entries(position, (page, slot), replaced, changes);
        }
        match object {
            Some(object) => changes.put(&rows::object_key(page, slot), rows::encode_object(object)),
            None => changes.remove(&rows::object_key(page, slot)),
        }
    }

    /// Changes the contents of blobs as their writes want it, and turns the writes into the new states of the blobs. Also returns the blobs
    /// of which the change writes a part, sorted.
    fn resolve_contents(
        &mut self,
        at: Version,
        mut change: Change<Object>,
        known: &ReplacedObjects,
    ) -> Result<(Change<Object>, Vec<Oid>)> {
        let (txn, mut made, mut changed) = (change.txn, 0_u64, Vec::new());
        for (oid, written) in change.writes.iter_mut().filter(|(oid, _)| oid.class() == ClassId::NONE) {
            let objects = ObjectReader { reader: &self.reader, recent: &self.recent };
            let read;
            let before = match known.replaced_object(*oid) {
                Some(replaced) => replaced.blob.as_ref(),
                None => {
                    read = objects.read(oid.page(), oid.slot())?;
                    read.as_ref()
                }
            };
            let next_id = || {
                // Fits 16 bits: admission bounds it.
                made += 1;
                ContentId::new(oid.space(), self.node, at.moves, ContentOrigin::Record, at.position << 16 | made)
            };
            let staged_size = |id| self.staging.size(id, txn);
            if let ObjectState::Changed(_) = written {
                changed.push(*oid);
            }
            let plan = plan_write(
                (*oid, at.moves),
                before,
                std::mem::replace(written, ObjectState::Absent),
                staged_size,
                next_id,
            );
            let plan = plan.map_err(|why| {
                let what = format!("a change of the content of {oid} was taken in and cannot be made: {why:?}");
                Error::new(ErrorKind::Internal, what)
            })?;
            let changes = self.writer.rows();
            plan.changes.into_iter().for_each(|one| changes.content(one));
            if let Some(id) = plan.staged {
                self.staging.commit(id, changes);
            }
            *written = plan.object.map_or(ObjectState::Absent, ObjectState::Value);
        }
        Ok((change, changed))
    }

    /// Notes what a record means for staged contents before their objects are written.
    fn follow_staged(&mut self, record: &Record<Object>, now: Ms) {
        match record {
            Record::Prepared { txn, part, .. } => {
                named_contents(part.writes.values()).for_each(|id| self.staging.prepare(id, *txn));
            }
            Record::Decided { txn, outcome: Outcome::Aborted, .. } => self.staging.release(*txn, now),
            _ => {}
        }
    }
}

/// The contents that written heads name.
pub(crate) fn named_contents<'a>(
    writes: impl IntoIterator<Item = &'a ObjectState<Object>>,
) -> impl Iterator<Item = ContentId> {
    writes.into_iter().filter_map(|written| match written {
        ObjectState::Value(object) => object.content().map(|content| content.id),
        ObjectState::Absent | ObjectState::Changed(_) => None,
    })
}
