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
//!
//! A message is within the limits of a transaction. A write that is not sent yet can be withdrawn, and is not written then.
//! What a message with several writes is refused for may concern one of them: its halves are sent one after the other, in
//! order, down to the write that is refused.

use std::collections::{BTreeMap, VecDeque};

use model::{NodeId, Oid, limits};

use crate::commit::Writes;
use crate::ident::TxnId;
use crate::memory_size::MemorySize;
use crate::page_cache::ObjectState;
use crate::plant::{Bug, planted};

/// One write of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Put<T> {
    oid: Oid,
    content: ObjectState<T>,
    /// The client's number of it.
    number: u64,
    /// Whether the client does not want it any more. If the message that it was sent with is refused, it is not sent again.
    is_withdrawn: bool,
}

/// Writes that are sent together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteBatch<T> {
    /// The logical node of all objects.
    pub node: NodeId,
    /// The new states.
    pub writes: Writes<T>,
    /// The writes one by one, in order, until they are durable.
    puts: VecDeque<Put<T>>,
    /// The bytes of all of these.
    bytes: usize,
    /// Whether it was sent more than once under one number. What becomes of the last message does not say what has become of the first.
    is_sent_again: bool,
}

impl<T: Clone + MemorySize> WriteBatch<T> {
    fn new(node: NodeId) -> Self {
        Self { node, writes: Writes::new(), puts: VecDeque::new(), bytes: 0, is_sent_again: false }
    }

    fn of(node: NodeId, puts: VecDeque<Put<T>>) -> Self {
        let mut batch = Self::new(node);
        puts.into_iter().for_each(|put| batch.push(put));
        batch
    }

    /// Whether there is room for one more write.
    fn has_room(&self, content: &ObjectState<T>) -> bool {
        self.puts.len() < limits::OBJECTS && self.bytes + content.memory_size() <= limits::TRANSACTION
    }

    fn push(&mut self, put: Put<T>) {
        self.bytes += put.content.memory_size();
        self.writes.insert(put.oid, put.content.clone());
        self.puts.push_back(put);
    }

    /// Removes the write with this number, and shows the one before it of the same object again.
    fn remove(&mut self, number: u64) -> bool {
        let Ok(index) = self.puts.binary_search_by_key(&number, |put| put.number) else { return false };
        let Some(Put { oid, content, .. }) = self.puts.remove(index) else { return false };
        self.bytes -= content.memory_size();
        match self.puts.iter().rev().find(|put| put.oid == oid) {
            Some(last) => self.writes.insert(oid, last.content.clone()),
            None => self.writes.remove(&oid),
        };
        true
    }

    fn remove_withdrawn(&mut self) {
        let withdrawn: Vec<u64> = self.puts.iter().filter(|put| put.is_withdrawn).map(|put| put.number).collect();
        for number in withdrawn {
            self.remove(number);
        }
    }
}

/// The unsettled writes of one client. `T` is an object.
#[derive(Clone, Debug)]
pub struct Pram<T> {
    /// Those that are not sent, in the order of their numbers.
    queue: VecDeque<WriteBatch<T>>,
    /// The batch that may not have arrived.
    sent: Option<(TxnId, WriteBatch<T>)>,
    /// Durable batches that are not settled; all of one node.
    written: BTreeMap<TxnId, WriteBatch<T>>,
}

impl<T> Default for Pram<T> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), sent: None, written: BTreeMap::new() }
    }
}

impl<T: Clone + MemorySize> Pram<T> {
    /// Writes an object. `number`, which is larger than all before, is returned when the write is durable.
    pub fn put(&mut self, oid: Oid, content: ObjectState<T>, number: u64) {
        let node = oid.page().node;
        let is_same =
            |batch: &&mut WriteBatch<T>| batch.node == node && !batch.is_sent_again && batch.has_room(&content);
        let put = |batch: &mut WriteBatch<T>, content| batch.push(Put { oid, content, number, is_withdrawn: false });
        match self.queue.back_mut().filter(is_same) {
            Some(batch) => put(batch, content),
            None => {
                let mut batch = WriteBatch::new(node);
                put(&mut batch, content);
                self.queue.push_back(batch);
            }
        }
    }

    /// Withdraws the write with this number, so that those after it do not wait for it. Returns whether it was not written and never will be:
    /// not if it was sent and may have arrived. Then those after it still wait, because they must not be seen before it.
    pub fn withdraw(&mut self, number: u64) -> bool {
        let sent = self.sent.iter_mut().flat_map(|(_, batch)| &mut batch.puts);
        sent.filter(|put| put.number == number).for_each(|put| put.is_withdrawn = true);
        let Some(index) = self.queue.iter_mut().position(|batch| batch.remove(number)) else { return false };
        let is_sent_again = self.queue.get(index).is_some_and(|batch| batch.is_sent_again);
        self.queue.retain(|batch| !batch.puts.is_empty());
        !is_sent_again
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
        self.sent = Some((write, batch));
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
        if let Some((_, batch)) = self.sent.as_mut().filter(|(_, batch)| batch.node == node) {
            batch.is_sent_again = true;
        }
    }

    /// Whether this batch is sent, and is not known to be durable.
    #[must_use]
    pub fn is_sent(&self, write: TxnId) -> bool {
        self.sent.as_ref().is_some_and(|(sent, _)| *sent == write)
    }

    /// Whether this batch was sent again, and is not known to be durable: what becomes of the repeated message does not say what has become of
    /// the first.
    #[must_use]
    pub fn is_sent_again(&self, write: TxnId) -> bool {
        self.sent.as_ref().is_some_and(|(sent, batch)| *sent == write && batch.is_sent_again)
    }

    /// Records that a batch is durable. Returns the client's numbers the first time.
    pub fn handle_written(&mut self, write: TxnId) -> Vec<u64> {
        let Some((_, mut batch)) = self.sent.take_if(|(sent, _)| *sent == write) else { return Vec::new() };
        let numbers = std::mem::take(&mut batch.puts).into_iter().map(|put| put.number).collect();
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
            self.queue_first(batch);
        }
    }

    /// Handles a batch that was refused for good, and not written. If it has several writes, its halves are sent before all others, under
    /// other numbers: `true` then. Otherwise, and if it may have been written, nothing has changed.
    pub fn halve(&mut self, write: TxnId) -> bool {
        let is_several = |batch: &WriteBatch<T>| batch.puts.len() > 1 && !batch.is_sent_again;
        let Some((_, batch)) = self.sent.take_if(|(sent, batch)| *sent == write && is_several(batch)) else {
            return false;
        };
        let mut puts = batch.puts;
        let second = puts.split_off(puts.len() / 2);
        self.queue_first(WriteBatch::of(batch.node, second));
        self.queue_first(WriteBatch::of(batch.node, puts));
        true
    }

    /// Queues a refused batch in front of all others, without the writes whose calls have ended.
    fn queue_first(&mut self, mut batch: WriteBatch<T>) {
        batch.remove_withdrawn();
        if !batch.puts.is_empty() {
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

    /// An abandoned write to a node that is away does not delay those to other nodes.
    #[test]
    fn withdrawn_write_is_not_sent_and_nothing_waits_for_it() {
        let mut pram = Pram::default();
        for (number, (node, slot)) in [(1, 1), (2, 1), (1, 1), (1, 2), (1, 1)].into_iter().enumerate() {
            pram.put(oid(node, slot), ObjectState::Value(10 + number as u64), number as u64);
        }
        pram.send(write(1));
        assert!(!pram.withdraw(0), "it may have arrived");
        assert_eq!(pram.handle_settled(write(1)), [0]);
        assert!(pram.withdraw(1) && !pram.withdraw(1) && !pram.withdraw(9));
        assert!(pram.withdraw(4));
        assert_eq!(pram.lookup(oid(1, 1)), Some(&ObjectState::Value(12)), "the write before it");
        assert_eq!(pram.send(write(2)).unwrap().node, NodeId(1));
        assert_eq!(pram.handle_settled(write(2)), [2, 3]);
        assert!(pram.is_settled());
    }

    #[test]
    fn write_that_was_sent_again_and_refused_may_have_been_written() {
        let mut pram = Pram::default();
        pram.put(oid(1, 1), ObjectState::Value(10), 0);
        pram.send(write(1));
        pram.note_sent_again(NodeId(1));
        pram.handle_refused(write(1));
        pram.put(oid(1, 2), ObjectState::Value(11), 1);
        assert!(!pram.withdraw(0));
        assert!(pram.withdraw(1), "it was never sent");
        assert!(pram.is_settled());
        // As while a brick is full.
        pram.put(oid(1, 1), ObjectState::Value(12), 2);
        pram.put(oid(1, 2), ObjectState::Value(13), 3);
        pram.send(write(2));
        assert!(!pram.withdraw(2), "it may have arrived");
        pram.handle_refused(write(2));
        assert_eq!(pram.send(write(3)).unwrap().writes.len(), 1);
        assert_eq!(pram.handle_settled(write(3)), [3]);
    }

    #[test]
    fn batch_is_within_the_limits_of_a_transaction() {
        let mut pram = Pram::default();
        let many = limits::OBJECTS as u64 + 1;
        (0..many).for_each(|number| pram.put(oid(1, (number % 9) as u16), ObjectState::Value(number), number));
        assert_eq!(pram.send(write(1)).unwrap().puts.len(), limits::OBJECTS);
        pram.handle_settled(write(1));
        pram.send(write(2));
        assert_eq!(pram.handle_settled(write(2)), [many - 1]);
        let mut pram = Pram::default();
        let large = ObjectState::Value(vec![0_u64; limits::OBJECT / 8]);
        let fit = (limits::TRANSACTION / limits::OBJECT) as u64;
        (0..=fit).for_each(|number| pram.put(oid(1, number as u16), large.clone(), number));
        assert_eq!(pram.send(write(1)).unwrap().writes.len() as u64, fit);
    }

    #[test]
    fn batch_that_is_refused_for_good_is_halved_down_to_the_write_that_is() {
        let mut pram = Pram::default();
        for (number, slot) in [(0, 1), (1, 2), (2, 1), (3, 3), (4, 4)] {
            pram.put(oid(1, slot), ObjectState::Value(10 + number), number);
        }
        pram.put(oid(2, 1), ObjectState::Value(20), 5);
        let (mut done, mut refused) = (Vec::new(), Vec::new());
        for number in 1_u64.. {
            let Some(batch) = pram.send(write(number)) else { break };
            if batch.writes.values().any(|content| *content == ObjectState::Value(12)) && batch.node == NodeId(1) {
                if !pram.halve(write(number)) {
                    refused.extend(pram.handle_settled(write(number)));
                }
            } else {
                done.extend(pram.handle_settled(write(number)));
            }
        }
        assert_eq!((done, refused), (vec![0, 1, 3, 4, 5], vec![2]), "in their order");
        pram.put(oid(1, 1), ObjectState::Value(10), 6);
        pram.put(oid(1, 2), ObjectState::Value(10), 7);
        pram.send(write(100));
        pram.note_sent_again(NodeId(1));
        assert!(!pram.halve(write(100)), "the first message may have been taken");
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
