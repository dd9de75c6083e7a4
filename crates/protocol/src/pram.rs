//! The order of a client's writes outside of transactions (rule N1).
//!
//! These writes are *PRAM consistent* (Lipton and Sandberg 1988; compare the access without transactions of TODS,
//! section 4.5): every client sees the writes of one client in its order, and the client itself sees them at once.
//!
//! ```text
//!   put x, y at node 1 ── one message ──▶ written ──▶ settled: every holder knows ──▶ put z at node 2 is sent
//! ```
//!
//! Writes to one node are sent in one message: no client sees one without the earlier ones. The next write to *another*
//! node waits until all are settled. The client may continue when its write is durable, so the wait overlaps with its
//! own work. It reads its pending writes from here. A client that continues earlier may read other objects in states
//! older than those that its own write will have replaced.

use std::collections::{BTreeMap, VecDeque};

use model::{NodeId, Oid};

use crate::commit::Writes;
use crate::ident::TxnId;
use crate::page_cache::ObjectState;
use crate::plant::{Bug, planted};

/// Writes that are sent together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteBatch<T> {
    /// The logical node of all objects.
    pub node: NodeId,
    /// The new states.
    pub writes: Writes<T>,
    /// The client's numbers of these writes.
    pub numbers: Vec<u64>,
}

/// The unsettled writes of one client. `T` is an object.
#[derive(Clone, Debug)]
pub struct Pram<T> {
    queue: VecDeque<WriteBatch<T>>,
    /// The batch that may not have arrived.
    sent: Option<(TxnId, WriteBatch<T>)>,
    /// Whether that batch was sent again.
    is_sent_again: bool,
    /// Durable batches that are not settled; all of one node.
    written: BTreeMap<TxnId, WriteBatch<T>>,
}

impl<T> Default for Pram<T> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), sent: None, is_sent_again: false, written: BTreeMap::new() }
    }
}

impl<T: Clone> Pram<T> {
    /// Writes an object. `number` is returned when the write is durable.
    pub fn put(&mut self, oid: Oid, content: ObjectState<T>, number: u64) {
        let node = oid.page().node;
        match self.queue.back_mut().filter(|batch| batch.node == node) {
            Some(batch) => {
                batch.writes.insert(oid, content);
                batch.numbers.push(number);
            }
            None => self.queue.push_back(WriteBatch { node, writes: [(oid, content)].into(), numbers: vec![number] }),
        }
    }

    /// The client's pending write of an object, which is newer than any copy.
    #[must_use]
    pub fn lookup(&self, oid: Oid) -> Option<&ObjectState<T>> {
        let newest_first = self.queue.iter().rev().chain(self.sent.iter().map(|(_, batch)| batch));
        newest_first.filter_map(|batch| batch.writes.get(&oid)).next()
    }

    /// The batch to send now under this number, if any: the previous one is durable, and all batches of other nodes are
    /// settled.
    pub fn send(&mut self, write: TxnId) -> Option<&WriteBatch<T>> {
        let next = self.queue.front()?.node;
        let elsewhere = self.written.values().any(|batch| batch.node != next);
        if self.sent.is_some() || elsewhere && !planted(Bug::NextWriteAtOnce) {
            return None;
        }
        let last = self.written.last_key_value().map(|(last, _)| *last);
        assert!(last < Some(write), "N1: write {write:?} is sent after {last:?}");
        let batch = self.queue.pop_front()?;
        (self.sent, self.is_sent_again) = (Some((write, batch)), false);
        self.sent.as_ref().map(|(_, batch)| batch)
    }

    /// The unsettled batches of a node, in order, to send again in a new session. A repeated batch is written once and
    /// reported as settled again.
    pub fn unsettled_batches_at(&self, node: NodeId) -> impl Iterator<Item = (TxnId, &WriteBatch<T>)> {
        let sent = self.sent.iter().map(|(write, batch)| (*write, batch));
        let written = self.written.iter().map(|(write, batch)| (*write, batch));
        written.chain(sent).filter(move |(_, batch)| batch.node == node)
    }

    /// Records that all unsettled batches of a node are sent again.
    pub fn note_sent_again(&mut self, node: NodeId) {
        self.is_sent_again |= self.sent.as_ref().is_some_and(|(_, batch)| batch.node == node);
    }

    /// Whether this batch was sent again, and is not known to be durable: what becomes of the repeated message does not say what has become of
    /// the first.
    #[must_use]
    pub fn is_sent_again(&self, write: TxnId) -> bool {
        self.is_sent_again && self.sent.as_ref().is_some_and(|(sent, _)| *sent == write)
    }

    /// Records that a batch is durable. Returns the client's numbers the first time.
    pub fn handle_written(&mut self, write: TxnId) -> Vec<u64> {
        let Some((_, mut batch)) = self.sent.take_if(|(sent, _)| *sent == write) else { return Vec::new() };
        let numbers = std::mem::take(&mut batch.numbers);
        if planted(Bug::LastWriteSettles) {
            self.written.clear();
        }
        let other = self.written.values().find(|other| other.node != batch.node).map(|other| other.node);
        assert!(
            other.is_none() || planted(Bug::NextWriteAtOnce),
            "N1: a write to {:?} is durable before all writes to {other:?} are settled",
            batch.node
        );
        self.written.insert(write, batch);
        numbers
    }

    /// Handles a batch that was refused because of a conflict. It is retried under another number, before all others.
    pub fn handle_refused(&mut self, write: TxnId) {
        if let Some((_, batch)) = self.sent.take_if(|(sent, _)| *sent == write) {
            self.queue.push_front(batch);
        }
    }

    /// Records that a batch is settled, hence also durable. Returns the client's numbers if the batch was not known to
    /// be durable. (This happens if the batch was sent again and this answers the first message.)
    pub fn handle_settled(&mut self, write: TxnId) -> Vec<u64> {
        let numbers = self.handle_written(write);
        self.written.remove(&write);
        numbers
    }

    /// Whether all writes are durable and settled.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.queue.is_empty() && self.sent.is_none() && self.written.is_empty()
    }

    /// The numbers of the batches that are not settled.
    pub fn unsettled_batches(&self) -> impl Iterator<Item = TxnId> {
        self.written.keys().copied().chain(self.sent.iter().map(|(write, _)| *write))
    }

    /// The node of the next batch.
    #[must_use]
    pub fn next_node(&self) -> Option<NodeId> {
        self.queue.front().map(|batch| batch.node)
    }
}

#[cfg(test)]
mod tests {
    use model::{ClassId, PageId, SpaceId};

    use super::*;
    use crate::ident::{ClientId, HlcTimestamp};

    fn oid(node: u32, slot: u16) -> Oid {
        Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node: NodeId(node), number: 1 }, slot)
    }

    fn write(number: u64) -> TxnId {
        TxnId { start: HlcTimestamp::at(number), client: ClientId(1) }
    }

    #[test]
    fn write_to_another_node_waits_until_the_last_is_settled() {
        let mut pram = Pram::default();
        pram.put(oid(1, 1), ObjectState::Value(10), 0);
        pram.put(oid(2, 1), ObjectState::Value(20), 1);
        assert_eq!(pram.send(write(1)).unwrap().node, NodeId(1));
        assert_eq!(pram.send(write(2)), None, "the first write is not durable");
        assert_eq!(pram.handle_written(write(1)), [0]);
        assert_eq!(pram.send(write(2)), None, "the first write is not settled");
        pram.handle_settled(write(1));
        assert_eq!(pram.send(write(2)).unwrap().node, NodeId(2));
    }

    #[test]
    fn writes_to_one_node_are_sent_together_without_waiting() {
        let mut pram = Pram::default();
        pram.put(oid(1, 1), ObjectState::Value(10), 0);
        pram.send(write(1));
        pram.put(oid(1, 1), ObjectState::Value(11), 1);
        pram.put(oid(1, 2), ObjectState::Value(12), 2);
        assert_eq!(pram.lookup(oid(1, 1)), Some(&ObjectState::Value(11)));
        pram.handle_written(write(1));
        assert_eq!(pram.send(write(2)).unwrap().writes.len(), 2);
        assert_eq!(pram.handle_written(write(2)), [1, 2]);
        assert_eq!(pram.lookup(oid(1, 1)), None, "durable writes are in the cache");
    }

    #[test]
    fn write_to_another_node_waits_for_all_earlier_writes() {
        let mut pram = Pram::default();
        for (number, slot) in [(1, 1), (2, 2)] {
            pram.put(oid(1, slot), ObjectState::Value(10), number);
            pram.send(write(number));
            pram.handle_written(write(number));
        }
        pram.put(oid(2, 1), ObjectState::Value(20), 3);
        pram.handle_settled(write(2));
        assert_eq!(pram.send(write(3)), None, "the first write is not settled");
        pram.handle_settled(write(1));
        assert!(pram.send(write(3)).is_some());
    }

    #[test]
    fn batch_is_sent_again_in_a_new_session_of_its_node() {
        let mut pram = Pram::default();
        pram.put(oid(1, 1), ObjectState::Value(10), 0);
        pram.send(write(1)).unwrap();
        pram.note_sent_again(NodeId(2));
        assert!(!pram.is_sent_again(write(1)));
        pram.note_sent_again(NodeId(1));
        assert!(pram.is_sent_again(write(1)) && !pram.is_sent_again(write(2)));
        pram.handle_settled(write(1));
        pram.put(oid(1, 1), ObjectState::Value(11), 1);
        pram.send(write(2)).unwrap();
        assert!(!pram.is_sent_again(write(2)), "the next batch was sent once");
    }

    /// Found by the simulator: a client that had sent a batch again waited for ever.
    #[test]
    fn settled_write_is_durable() {
        let mut pram = Pram::default();
        pram.put(oid(1, 1), ObjectState::Value(10), 7);
        pram.send(write(1));
        assert_eq!(pram.handle_settled(write(1)), [7]);
        assert_eq!(pram.handle_written(write(1)), []);
        assert!(pram.is_settled());
    }

    #[test]
    fn refused_write_is_retried_before_later_writes() {
        let mut pram = Pram::default();
        pram.put(oid(1, 1), ObjectState::Value(10), 0);
        pram.send(write(1));
        pram.put(oid(1, 1), ObjectState::Value(11), 1);
        pram.handle_refused(write(1));
        assert_eq!(pram.send(write(2)).unwrap().writes[&oid(1, 1)], ObjectState::Value(10));
        assert_eq!(pram.lookup(oid(1, 1)), Some(&ObjectState::Value(11)));
        assert!(pram.unsettled_batches_at(NodeId(1)).count() == 1 && pram.unsettled_batches_at(NodeId(2)).count() == 0);
    }
}
