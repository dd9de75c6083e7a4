//! What comes out of the machine of a logical node becomes rows of the store.

use bytes::Bytes;
use model::{ClassId, Object, PageId, Result};
use protocol::commit::{Change, Record};
use protocol::ident::{TxnId, Version};
use protocol::lease::Ms;
use protocol::page_cache::Content;
use wire::cluster::encode_record;

use super::{DROPPED, Hosted, PIECE, POSITIONS, Sent, rows};
use crate::brick::chores::Chore;
use crate::brick::indexes::{Looked, Replaced};
use crate::brick::page_rows::Head;
use crate::brick::recent::Objects;

impl Hosted {
    pub(super) fn append(&mut self, position: u64, record: Record<Object>) -> Result<()> {
        self.last = position;
        if position > self.limit {
            self.limit = position + POSITIONS;
            self.rows.put(&rows::limit_key(self.node), rows::encode_number(self.limit));
        }
        let at = Version { moves: self.moves, position };
        if let Some(txn) = record.txn() {
            let looked = self.looked_by(txn, matches!(record, Record::Prepared { .. }));
            if let Some(change) = record.change() {
                self.change(at, change, looked)?;
            }
        }
        let record = record.into_row(at);
        let row = encode_record(&record, at);
        match (&record, record.txn()) {
            (_, Some(txn)) => self.know(txn, &row),
            (Record::Horizon(_), None) => self.rows.put(&rows::horizon_key(self.node), row),
            (_, None) => self.rows.put(&rows::bound_key(self.node), row),
        }
        Ok(())
    }

    /// Writes down what is known of a transaction, in as many rows as it takes; in none, if nothing is.
    fn know(&mut self, txn: TxnId, record: &Bytes) {
        let pieces = record.len().div_ceil(PIECE) as u16;
        for piece in 0..pieces {
            let from = usize::from(piece) * PIECE;
            let row = record.slice(from..record.len().min(from + PIECE));
            self.rows.put(&rows::known_key(self.node, txn, piece), row);
        }
        let before = self.pieces.remove(&txn).unwrap_or(1);
        (pieces..before).for_each(|piece| self.rows.remove(&rows::known_key(self.node, txn, piece)));
        if pieces > 1 {
            self.pieces.insert(txn, pieces);
        }
    }

    fn change(&mut self, at: Version, change: Change<Object>, mut looked: Looked) -> Result<()> {
        let timestamp = change.timestamp;
        // A page that was only touched has another version too.
        for (page, (_, contents)) in change.pages() {
            let before = match self.recent.newest(page) {
                Some(newest) => newest,
                None => rows::read_head(&self.store, page)?,
            };
            let newest = Head { version: at, timestamp: before.timestamp.max(timestamp) };
            self.recent.begin(page, before, newest);
            self.rows.put(&rows::head_key(page), newest.encode());
            for (slot, content) in contents {
                let objects = Objects { store: &self.store, recent: &self.recent };
                let replaced = match looked.take(page, slot) {
                    Some(replaced) => replaced,
                    None => self.indexes.look(objects, page, slot, &content)?,
                };
                self.recent.write(page, slot);
                self.put(at.position, (page, slot), content, &replaced);
            }
        }
        Ok(())
    }

    fn put(&mut self, position: u64, (page, slot): (PageId, u16), content: Content<Object>, replaced: &Replaced) {
        let before = replaced.before;
        let class = match &content {
            Content::Value(object) => Some(object.class),
            Content::Absent => None,
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
            self.indexes.change(position, (page, slot), replaced, &mut self.rows);
        }
        match content {
            Content::Value(object) => self.rows.put(&rows::object_key(page, slot), rows::encode_object(&object)),
            Content::Absent => self.rows.remove(&rows::object_key(page, slot)),
        }
    }

    /// Hands what is to be written to the store, behind all before. Says whether more may have come out of the machine.
    pub(super) fn flush(&mut self, now: Ms) -> bool {
        if self.rows.is_empty() {
            return false;
        }
        let rows = std::mem::replace(&mut self.rows, self.sequence.changes());
        let sent = Sent { position: self.last, rows };
        if self.full.is_some() {
            self.held.push_back(sent);
            return false;
        }
        self.submit(sent, now)
    }

    /// Hands the rows of new records to the store. Says whether more may have come out of the machine.
    pub(super) fn send_rows(&mut self, now: Ms) -> bool {
        if self.sent == self.last {
            return false;
        }
        self.sent = self.last;
        // A few at a time: there may be more than changes can have.
        for txn in self.dropped.drain(..self.dropped.len().min(DROPPED)).collect::<Vec<_>>() {
            self.know(txn, &Bytes::new());
        }
        if self.rows.is_empty() {
            // Records that need no rows are as durable as those before them.
            match self.held.back_mut().or(self.under_way.back_mut()) {
                Some(sent) => sent.position = self.last,
                None => self.forced(self.last, now),
            }
            return true;
        }
        self.flush(now)
    }

    /// Gives rows to the store. Says whether more may have come out of the machine.
    pub(super) fn submit(&mut self, sent: Sent, now: Ms) -> bool {
        let rows = sent.rows.clone().in_sequence(&self.sequence);
        let position = sent.position;
        self.under_way.push_back(sent);
        if self.in_memory {
            match self.store.commit_rows(rows.needed()) {
                Ok(_) => {
                    let sent = self.under_way.pop_back();
                    sent.iter().for_each(|sent| self.changed(&sent.rows));
                    self.full = None;
                    self.forced(position, now);
                }
                Err(error) => self.refused(error, now),
            }
            return true;
        }
        let (chores, node, life) = (self.chores.clone(), self.node, self.life);
        self.store.submit_rows(rows, move |result| {
            chores.add(Chore::Written { node, life, result: result.map(drop) });
        });
        false
    }

    /// Tries again what the store has refused.
    pub(super) fn retry(&mut self, now: Ms) {
        if self.again.is_some_and(|again| again <= now) {
            self.again = None;
            // One alone shows whether there is room.
            if let Some(sent) = self.held.pop_front() {
                self.submit(sent, now);
            }
        }
    }

    /// There is room again: all that was held goes.
    pub(super) fn release(&mut self, now: Ms) -> bool {
        if self.full.is_some() || self.held.is_empty() {
            return false;
        }
        let mut more = false;
        while self.full.is_none()
            && let Some(sent) = self.held.pop_front()
        {
            more |= self.submit(sent, now);
        }
        more
    }
}
