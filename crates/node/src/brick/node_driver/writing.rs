//! What comes out of the machine of a logical node becomes rows of the store.

use bytes::Bytes;
use model::{ClassId, Object, PageId, Result};
use protocol::commit::{Change, Record};
use protocol::ident::{TxnId, Version};
use protocol::lease::Ms;
use protocol::page_cache::ObjectState;
use wire::cluster::encode_record;

use super::{NodeDriver, PIECE, POSITION_BATCH, REMOVE_BATCH, SubmittedRows, rows};
use crate::brick::indexes::{Replaced, ReplacedObjects};
use crate::brick::node_inbox::NodeTask;
use crate::brick::page_rows::Head;
use crate::brick::recent_pages::ObjectReader;

impl NodeDriver {
    pub(super) fn append(&mut self, position: u64, record: Record<Object>) -> Result<()> {
        self.last_position = position;
        if position > self.position_limit {
            self.position_limit = position + POSITION_BATCH;
            self.rows.put(&rows::limit_key(self.node), rows::encode_number(self.position_limit));
        }
        let at = Version { moves: self.moves, position };
        if let Some(txn) = record.txn() {
            let looked = self.take_replaced(txn, matches!(record, Record::Prepared { .. }));
            if let Some(change) = record.change() {
                self.write_change(at, change, looked)?;
            }
        }
        let record = record.into_row(at);
        let row = encode_record(&record, at);
        match (&record, record.txn()) {
            (_, Some(txn)) => self.write_txn_record(txn, &row),
            (Record::Horizon(_), None) => self.rows.put(&rows::horizon_key(self.node), row),
            (_, None) => self.rows.put(&rows::bound_key(self.node), row),
        }
        Ok(())
    }

    /// Writes down what is known of a transaction, in as many rows as it takes; in none, if nothing is.
    fn write_txn_record(&mut self, txn: TxnId, record: &Bytes) {
        let pieces = record.len().div_ceil(PIECE) as u16;
        for piece in 0..pieces {
            let from = usize::from(piece) * PIECE;
            let row = record.slice(from..record.len().min(from + PIECE));
            self.rows.put(&rows::txn_key(self.node, txn, piece), row);
        }
        let before = self.pieces.remove(&txn).unwrap_or(1);
        (pieces..before).for_each(|piece| self.rows.remove(&rows::txn_key(self.node, txn, piece)));
        if pieces > 1 {
            self.pieces.insert(txn, pieces);
        }
    }

    fn write_change(&mut self, at: Version, change: Change<Object>, mut looked: ReplacedObjects) -> Result<()> {
        let timestamp = change.timestamp;
        // A page that was only touched has another version too.
        for (page, (_, contents)) in change.pages() {
            let before = match self.recent.newest_head(page) {
                Some(newest) => newest,
                None => rows::read_head(&self.store, page)?,
            };
            let newest = Head { version: at, timestamp: before.timestamp.max(timestamp) };
            self.recent.begin_change(page, before, newest);
            self.rows.put(&rows::head_key(page), newest.encode());
            for (slot, content) in contents {
                let objects = ObjectReader { store: &self.store, recent: &self.recent };
                let replaced = match looked.take(page, slot) {
                    Some(replaced) => replaced,
                    None => self.indexes.compute_replaced(objects, page, slot, &content)?,
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
        let before = replaced.before;
        let class = match &content {
            ObjectState::Value(object) => Some(object.class),
            ObjectState::Absent => None,
        };
        // Objects without a class are in no set.
        let [was, is] = [before, class].map(|class| class.filter(|class| *class != ClassId::NONE));
        if let Some(class) = was.filter(|_| was != is) {
            self.rows.remove(&rows::extent_key(class, page, slot));
        }
        if let Some(class) = is.filter(|_| was != is) {
            self.rows.put(&rows::extent_key(class, page, slot), Bytes::new());
        }
        if was.or(is).is_some() {
            self.indexes.change_entries(position, (page, slot), replaced, &mut self.rows);
        }
        match content {
            ObjectState::Value(object) => self.rows.put(&rows::object_key(page, slot), rows::encode_object(&object)),
            ObjectState::Absent => self.rows.remove(&rows::object_key(page, slot)),
        }
    }

    /// Hands what is to be written to the store, behind all before. Says whether more may have come out of the machine.
    pub(super) fn flush(&mut self, now: Ms) -> bool {
        if self.rows.is_empty() {
            return false;
        }
        let rows = std::mem::replace(&mut self.rows, self.sequence.changes());
        let sent = SubmittedRows { position: self.last_position, rows };
        if self.full_error.is_some() {
            self.deferred.push_back(sent);
            return false;
        }
        self.submit(sent, now)
    }

    /// Hands the rows of new records to the store. Says whether more may have come out of the machine.
    pub(super) fn send_rows(&mut self, now: Ms) -> bool {
        if self.sent_position == self.last_position {
            return false;
        }
        self.sent_position = self.last_position;
        // A few at a time: there may be more than changes can have.
        for txn in self.forgotten_txns.drain(..self.forgotten_txns.len().min(REMOVE_BATCH)).collect::<Vec<_>>() {
            self.write_txn_record(txn, &Bytes::new());
        }
        if self.rows.is_empty() {
            // Records that need no rows are as durable as those before them.
            match self.deferred.back_mut().or(self.in_flight.back_mut()) {
                Some(sent) => sent.position = self.last_position,
                None => self.handle_durable(self.last_position, now),
            }
            return true;
        }
        self.flush(now)
    }

    /// Gives rows to the store. Says whether more may have come out of the machine.
    pub(super) fn submit(&mut self, sent: SubmittedRows, now: Ms) -> bool {
        let rows = sent.rows.clone().in_sequence(&self.sequence);
        let position = sent.position;
        self.in_flight.push_back(sent);
        if self.in_memory {
            match self.store.commit_rows(rows.needed()) {
                Ok(_) => {
                    let sent = self.in_flight.pop_back();
                    sent.iter().for_each(|sent| self.record_changes(&sent.rows));
                    self.full_error = None;
                    self.handle_durable(position, now);
                }
                Err(error) => self.handle_refused(error, now),
            }
            return true;
        }
        let (chores, node, life) = (self.inbox.clone(), self.node, self.incarnation);
        self.store.submit_rows(rows, move |result| {
            chores.add(NodeTask::Written { node, life, result: result.map(drop) });
        });
        false
    }

    /// Tries again what the store has refused.
    pub(super) fn retry_deferred(&mut self, now: Ms) {
        if self.retry_at.is_some_and(|again| again <= now) {
            self.retry_at = None;
            // One alone shows whether there is room.
            if let Some(sent) = self.deferred.pop_front() {
                self.submit(sent, now);
            }
        }
    }

    /// There is room again: all that was held goes.
    pub(super) fn submit_deferred(&mut self, now: Ms) -> bool {
        if self.full_error.is_some() || self.deferred.is_empty() {
            return false;
        }
        let mut more = false;
        while self.full_error.is_none()
            && let Some(sent) = self.deferred.pop_front()
        {
            more |= self.submit(sent, now);
        }
        more
    }
}
