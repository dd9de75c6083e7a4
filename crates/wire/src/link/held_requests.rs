//! Holds back requests while as many are unanswered as the other side keeps, so that it goes on reading.
//!
//! A side that has kept as many unanswered requests as it may reads nothing more until some are answered. A message between machines
//! behind them, such as the outcome of a transaction, would wait, although the answers may depend on it. So requests wait here,
//! in their order, and one-way requests behind them; messages between machines overtake both.
//!
//! Requests with large answers wait apart. All answers of a connection are sent one behind the other, so only a few of the large ones are
//! asked for at a time: other answers and messages wait for no more than those.

use std::collections::{HashMap, VecDeque};

use super::mailbox::Item;
use super::{Limits, promised_bytes};

/// Requests with fewer bytes count as one only.
const MIN_COUNTED: usize = 4 << 10;
/// Bytes of large answers that may be asked for at a time. One answer may be larger.
const MAX_PROMISED: usize = 16 << 20;

#[derive(Default)]
pub(super) struct HeldRequests {
    held: VecDeque<Item>,
    /// Those with large answers.
    bulk: VecDeque<Item>,
    /// Bytes of unanswered requests, of those that have many, and of large answers to come.
    large: HashMap<u32, (usize, usize)>,
    bytes: usize,
    promised: usize,
}

impl HeldRequests {
    /// Whether a request of so many bytes may be sent while this many are unanswered. It may be part of what the other side keeps,
    /// which has the same limits: that counts what a request takes in memory.
    fn has_room(&self, unanswered: usize, bytes: usize, limits: &Limits) -> bool {
        unanswered < (limits.max_in_flight / 4 * 3).max(1) as usize
            && (self.bytes == 0 || self.bytes + bytes <= limits.max_in_flight_bytes / 2)
    }

    /// Holds a call or a one-way request back, behind the others.
    pub(super) fn hold(&mut self, item: Item) {
        match &item {
            Item::Call { request, .. } if promised_bytes(request) > 0 => self.bulk.push_back(item),
            _ => self.held.push_back(item),
        }
    }

    /// The next one to be sent, if it may be.
    pub(super) fn next(&mut self, unanswered: usize, limits: &Limits) -> Option<Item> {
        let bytes = match self.held.front() {
            Some(Item::Call { raw, .. }) => raw.iter().map(bytes::Bytes::len).sum(),
            Some(_) => return self.held.pop_front(),
            None => return self.next_bulk(unanswered, limits),
        };
        match self.has_room(unanswered, bytes, limits) {
            true => self.held.pop_front(),
            false => self.next_bulk(unanswered, limits),
        }
    }

    fn next_bulk(&mut self, unanswered: usize, limits: &Limits) -> Option<Item> {
        let Some(Item::Call { request, .. }) = self.bulk.front() else { return None };
        let is_free = self.promised == 0 || self.promised + promised_bytes(request) <= MAX_PROMISED;
        if is_free && self.has_room(unanswered, 0, limits) { self.bulk.pop_front() } else { None }
    }

    /// A request of so many bytes was sent, whose answer has as many bytes as it [promises](promised_bytes).
    pub(super) fn sent(&mut self, id: u32, bytes: usize, promised: usize) {
        let bytes = if bytes >= MIN_COUNTED { bytes } else { 0 };
        if bytes + promised > 0 {
            self.large.insert(id, (bytes, promised));
            self.bytes += bytes;
            self.promised += promised;
        }
    }

    /// A request was answered for the last time.
    pub(super) fn answered(&mut self, id: u32) {
        if self.bytes + self.promised > 0
            && let Some((bytes, promised)) = self.large.remove(&id)
        {
            self.bytes -= bytes;
            self.promised -= promised;
        }
    }

    /// Those that were never sent.
    pub(super) fn take(&mut self) -> VecDeque<Item> {
        self.held.append(&mut self.bulk);
        std::mem::take(&mut self.held)
    }
}
