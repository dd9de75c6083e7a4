//! Replies, and the queue of those that no thread of the Java half waits for.

use std::collections::VecDeque;

use model::{Error, Result};
use parking_lot::Mutex;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::message::Writer;

const SUCCESS: u8 = 0;
const FAILURE: u8 = 1;
/// The whole reply of a call whose own reply does not fit the heap of the virtual machine. `LostReply` of the Java half has the same.
const LOST: &[u8] = &[2];
/// The most bytes of a reply: a message with it is an array of Java.
const MAX_REPLY: usize = i32::MAX as usize - 64;
/// A reply with at most this many bytes is never lost, such as the outcome of a commit: it waits until the heap has room.
const SMALL_REPLY: usize = 4 << 10;
/// A batch of replies with this many bytes takes no further one.
const FULL_BATCH: usize = 4 << 20;

/// Begins the reply of an operation that succeeds.
pub(crate) fn begin_success(reply: &mut Writer) {
    reply.u8(SUCCESS);
}

/// The reply as bytes: what the operation has written, or its error.
pub(crate) fn encode_reply(reply: Result<Vec<u8>>) -> Vec<u8> {
    reply.unwrap_or_else(|error| encode_error(&error))
}

fn encode_error(error: &Error) -> Vec<u8> {
    let mut reply = Writer::default();
    reply.u8(FAILURE);
    reply.u8(error.kind() as u8);
    reply.string(&error.message_with_causes());
    reply.optional(error.object(), Writer::oid);
    reply.into_bytes()
}

/// A reply with the number of its call.
type Reply = (u64, Vec<u8>);

/// Replies of started calls, in the order of their ends.
#[derive(Debug)]
pub(crate) struct Completed {
    sender: UnboundedSender<Reply>,
    /// One thread takes replies at a time.
    queue: Mutex<Queue>,
}

#[derive(Debug)]
struct Queue {
    receiver: UnboundedReceiver<Reply>,
    /// Replies of a batch that could not be copied, which are delivered one by one.
    single: VecDeque<Reply>,
}

impl Default for Completed {
    fn default() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self { sender, queue: Mutex::new(Queue { receiver, single: VecDeque::new() }) }
    }
}

impl Completed {
    pub(crate) fn push(&self, call: u64, reply: Vec<u8>) {
        let reply = if reply.len() > MAX_REPLY { LOST.to_vec() } else { reply };
        // The receiver lives as long as the sender.
        let _ = self.sender.send((call, reply));
    }

    /// Waits until there are replies, and hands some to `copy` as a message: a list of calls and replies. A large reply that
    /// cannot be copied even alone becomes [`LOST`]; the others are not affected.
    ///
    /// # Errors
    /// That of `copy` if it cannot copy even a few bytes. The next call delivers what this one could not.
    pub(crate) fn deliver<T, E>(
        &self,
        mut copy: impl FnMut(&[u8]) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let mut queue = self.queue.lock();
        loop {
            let batch = queue.next_batch();
            match copy(&encode_batch(&batch)) {
                Ok(copied) => return Ok(copied),
                Err(error) => {
                    if !queue.take_back(batch) {
                        return Err(error);
                    }
                }
            }
        }
    }
}

impl Queue {
    /// Waits until there are replies, and takes some.
    fn next_batch(&mut self) -> Vec<Reply> {
        if let Some(reply) = self.single.pop_front() {
            return vec![reply];
        }
        let (mut batch, mut bytes, mut next) = (Vec::new(), 0, self.receiver.blocking_recv());
        while let Some(reply) = next {
            bytes += reply.1.len();
            batch.push(reply);
            next = if bytes < FULL_BATCH { self.receiver.try_recv().ok() } else { None };
        }
        batch
    }

    /// Takes back a batch that could not be copied. Returns whether a smaller one is worth a try.
    fn take_back(&mut self, batch: Vec<Reply>) -> bool {
        match <[Reply; 1]>::try_from(batch) {
            Ok([(call, reply)]) => {
                let is_large = reply.len() > SMALL_REPLY;
                self.single.push_front((call, if is_large { LOST.to_vec() } else { reply }));
                is_large
            }
            // Only an empty queue takes several.
            Err(several) => {
                self.single = several.into();
                true
            }
        }
    }
}

fn encode_batch(batch: &[Reply]) -> Vec<u8> {
    let mut message = Writer::default();
    message.list(batch, |message, (call, reply)| {
        message.u64(*call);
        message.bytes(reply);
    });
    message.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Reader;

    fn pushed(replies: &[(u64, usize)]) -> Completed {
        let completed = Completed::default();
        replies.iter().for_each(|(call, len)| completed.push(*call, vec![0; *len]));
        completed
    }

    /// What a heap with room for messages of `max` bytes gets: calls, with whether the reply is there. `None` if it has no room at all.
    fn deliver(completed: &Completed, max: usize) -> Option<Vec<(u64, bool)>> {
        let copied = completed.deliver(|message| if message.len() > max { Err(()) } else { Ok(message.to_vec()) });
        let mut message = Reader::new(copied.ok()?);
        Some(message.list(|message| Ok((message.u64()?, message.bytes()?.as_ref() != LOST))).unwrap())
    }

    #[test]
    fn reply_that_does_not_fit_the_heap_is_the_only_one_that_is_lost() {
        let completed = pushed(&[(1, 10), (2, 10_000), (3, 20)]);
        let delivered: Vec<_> = (0..3).flat_map(|_| deliver(&completed, 100).unwrap()).collect();
        assert_eq!(delivered, [(1, true), (2, false), (3, true)]);
        completed.push(4, vec![0; 10]);
        assert_eq!(deliver(&completed, 100).unwrap(), [(4, true)]);
    }

    #[test]
    fn replies_wait_while_the_heap_has_no_room() {
        let completed = pushed(&[(1, 10), (2, 10_000)]);
        assert_eq!([deliver(&completed, 0), deliver(&completed, 0)], [None, None]);
        let delivered: Vec<_> = (0..2).flat_map(|_| deliver(&completed, 100_000).unwrap()).collect();
        assert_eq!(delivered, [(1, true), (2, true)]);
    }
}
