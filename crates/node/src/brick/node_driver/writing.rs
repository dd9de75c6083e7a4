//! Turns the records of the machine of a logical node into rows.

use bytes::Bytes;
use model::{ClassId, Object, PageId, Result};
use protocol::commit::{Change, Record};
use protocol::ident::Version;
use protocol::page_cache::ObjectState;
use wire::cluster::encode_record;

#[cfg(any(test, feature = "sim"))]
use super::DriverOutput;
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
    pub(super) fn append(&mut self, position: u64, record: Record<Object>) -> Result<()> {
        self.writer.begin_record(position);
        let at = Version { moves: self.moves, position };
        if let Some(txn) = record.txn() {
            let replaced = self.take_replaced(txn, matches!(record, Record::Prepared { .. }));
            if let Some(change) = record.change() {
                #[cfg(any(test, feature = "sim"))]
                self.out.push_back(DriverOutput::Appended { version: at, change: change.clone() });
                self.write_change(at, change, replaced)?;
            }
        }
        let record = record.into_row(at);
        let row = encode_record(&record, at);
        let changes = self.writer.rows();
        match (&record, record.txn()) {
            (_, Some(txn)) => self.txn_rows.write(txn, &row, changes),
            (Record::Horizon(_), None) => changes.put(&rows::horizon_key(self.node), row),
            (_, None) => changes.put(&rows::bound_key(self.node), row),
        }
        Ok(())
    }

    fn write_change(&mut self, at: Version, change: Change<Object>, mut known: ReplacedObjects) -> Result<()> {
        let timestamp = change.timestamp;
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
                self.recent.mark_written(page, slot);
                self.write_object(at.position, (page, slot), content, &replaced);
            }
        }
        Ok(())
    }

    fn write_object(
        &mut self,
        position: u64,
        (page, slot): (PageId, u16),
        content: ObjectState<Object>,
        replaced: &Replaced,
    ) {
        let class = match &content {
            ObjectState::Value(object) => Some(object.class),
            ObjectState::Absent => None,
        };
        let changes = self.writer.rows();
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
        match content {
            ObjectState::Value(object) => changes.put(&rows::object_key(page, slot), rows::encode_object(&object)),
            ObjectState::Absent => changes.remove(&rows::object_key(page, slot)),
        }
    }
}
