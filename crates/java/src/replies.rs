//! Replies, and the queue of those that no thread of the Java half waits for.

use model::{Error, Result};
use parking_lot::Mutex;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::message::Writer;

const SUCCESS: u8 = 0;
const FAILURE: u8 = 1;
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

/// Replies of started calls, in the order of their ends.
#[derive(Debug)]
pub(crate) struct Completed {
    sender: UnboundedSender<(u64, Vec<u8>)>,
    /// One thread takes replies at a time.
    receiver: Mutex<UnboundedReceiver<(u64, Vec<u8>)>>,
}

impl Default for Completed {
    fn default() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self { sender, receiver: Mutex::new(receiver) }
    }
}

impl Completed {
    pub(crate) fn push(&self, call: u64, reply: Vec<u8>) {
        // The receiver lives as long as the sender.
        let _ = self.sender.send((call, reply));
    }

    /// Waits until there are replies, and takes some: a list of calls and replies.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut receiver = self.receiver.lock();
        let mut message = Writer::default();
        let begin = message.begin_list();
        let (mut count, mut next) = (0, receiver.blocking_recv());
        while let Some((call, reply)) = next {
            message.u64(call);
            message.bytes(&reply);
            count += 1;
            next = if message.len() < FULL_BATCH { receiver.try_recv().ok() } else { None };
        }
        message.end_list(begin, count);
        message.into_bytes()
    }
}
