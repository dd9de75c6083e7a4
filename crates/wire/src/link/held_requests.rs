//! Holds back requests while as many are unanswered as the other side keeps, so that it goes on reading.
//!
//! A side that has kept as many unanswered requests as it may reads nothing more until some are answered. A message between machines
//! behind them, such as the outcome of a transaction, would wait, although the answers may depend on it. So requests wait here,
//! in their order, and one-way requests behind them; messages between machines overtake both.

use std::collections::{HashMap, VecDeque};

use super::Limits;
use super::mailbox::Item;

/// Requests with fewer bytes count as one only.
const MIN_COUNTED: usize = 4 << 10;

#[derive(Default)]
pub(super) struct HeldRequests {
    held: VecDeque<Item>,
    /// Bytes of unanswered requests, of those that have many.
    large: HashMap<u32, usize>,
    bytes: usize,
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
        self.held.push_back(item);
    }

    /// The next one to be sent, if it may be.
    pub(super) fn next(&mut self, unanswered: usize, limits: &Limits) -> Option<Item> {
        let bytes = match self.held.front()? {
            Item::Call { raw, .. } => raw.iter().map(bytes::Bytes::len).sum(),
            _ => return self.held.pop_front(),
        };
        if self.has_room(unanswered, bytes, limits) { self.held.pop_front() } else { None }
    }

    /// A request was sent.
    pub(super) fn sent(&mut self, id: u32, bytes: usize) {
        if bytes >= MIN_COUNTED {
            self.large.insert(id, bytes);
            self.bytes += bytes;
        }
    }

    /// A request was answered for the last time.
    pub(super) fn answered(&mut self, id: u32) {
        if self.bytes > 0
            && let Some(bytes) = self.large.remove(&id)
        {
            self.bytes -= bytes;
        }
    }

    /// Those that were never sent.
    pub(super) fn take(&mut self) -> VecDeque<Item> {
        std::mem::take(&mut self.held)
    }
}
