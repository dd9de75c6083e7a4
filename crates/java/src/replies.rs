//! Replies, and the queue of those that no thread of the Java half waits for.

use std::collections::VecDeque;

use client::ErrorKind;
use model::{Error, Result};
use parking_lot::{Condvar, Mutex};

use crate::message::Writer;

const SUCCESS: u8 = 0;
const FAILURE: u8 = 1;
/// A batch of replies is not made larger than this by a further one, in bytes.
const MAX_BATCH: usize = 4 << 20;

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
    let object = error.object().filter(|_| error.kind() == ErrorKind::Conflict);
    reply.optional(object, Writer::oid);
    reply.into_bytes()
}

/// Replies of started calls, in the order of their ends.
#[derive(Debug, Default)]
pub(crate) struct Completed {
    replies: Mutex<VecDeque<(u64, Vec<u8>)>>,
    is_pending: Condvar,
}

impl Completed {
    pub(crate) fn push(&self, call: u64, reply: Vec<u8>) {
        self.replies.lock().push_back((call, reply));
        self.is_pending.notify_one();
    }

    /// Waits until there are replies, and takes some: a list of calls and replies.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut replies = self.replies.lock();
        while replies.is_empty() {
            self.is_pending.wait(&mut replies);
        }
        let mut size = 0;
        let mut batch = Vec::new();
        while let Some((_, reply)) = replies.front()
            && (batch.is_empty() || size + reply.len() <= MAX_BATCH)
        {
            size += reply.len();
            batch.extend(replies.pop_front());
        }
        drop(replies);
        let mut message = Writer::default();
        message.list(batch, |message, (call, reply)| {
            message.u64(call);
            message.bytes(&reply);
        });
        message.into_bytes()
    }
}
