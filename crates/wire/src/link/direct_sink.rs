//! The receiver of the answer to a request within the process.

use bytes::{Bytes, BytesMut};
use model::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::Answer;
use super::caller::connection_ended;
use super::mailbox::{Body, Mailbox};
use super::responder::DeferredResponder;
use crate::outbox::read_pieces;
use crate::proto::response::Response;

/// Gets the answer to one request. If it is dropped before, the request was not handled, and it says that the connection has ended.
#[derive(Debug)]
pub(crate) struct DirectSink(Option<Receiver>);

#[derive(Debug)]
enum Receiver {
    /// A task that waits.
    Task(oneshot::Sender<Result<Answer>>, #[expect(dead_code, reason = "held, not read")] OwnedSemaphorePermit),
    /// The request that was forwarded.
    Forwarded(Box<DeferredResponder>),
}

impl DirectSink {
    /// Gives the answer to the task at the other end of `sender`, and returns its permit.
    pub(super) fn to_task(sender: oneshot::Sender<Result<Answer>>, permit: OwnedSemaphorePermit) -> Self {
        Self(Some(Receiver::Task(sender, permit)))
    }

    /// Answers a request of another connection, which was forwarded.
    pub(super) fn to_request(deferred: DeferredResponder) -> Self {
        Self(Some(Receiver::Forwarded(Box::new(deferred))))
    }

    /// Gives it the answer of the end with this mailbox.
    pub(super) fn answer(mut self, mailbox: &Mailbox, response: Response, body: Body) {
        let answer = match response {
            Response::Error(error) => Err(error.into()),
            response => to_answer(response, body),
        };
        mailbox.count_direct(answer.as_ref().map_or(0, |answer| answer.raw.len()));
        self.deliver(answer);
    }

    /// Whether nobody waits for the answer any more.
    pub(super) fn is_closed(&self) -> bool {
        match &self.0 {
            Some(Receiver::Task(sender, _)) => sender.is_closed(),
            Some(Receiver::Forwarded(deferred)) => deferred.is_closed(),
            None => true,
        }
    }

    pub(super) fn fail(mut self, error: Error) {
        self.deliver(Err(error));
    }

    fn deliver(&mut self, answer: Result<Answer>) {
        match self.0.take() {
            // The task may have stopped waiting.
            Some(Receiver::Task(sender, _)) => drop(sender.send(answer.and_then(Answer::check))),
            Some(Receiver::Forwarded(deferred)) => deferred.forward_answer(answer),
            None => {}
        }
    }
}

impl Drop for DirectSink {
    fn drop(&mut self) {
        if self.0.is_some() {
            self.deliver(Err(connection_ended()));
        }
    }
}

/// An answer as its receiver would get it from a connection. Bytes in memory stay where they are.
fn to_answer(response: Response, body: Body) -> Result<Answer> {
    let (raw, checksum) = match body {
        Body::Checked(raw, checksum) => (raw, Some(checksum)),
        Body::Bytes(parts) => (join(parts), None),
        Body::Pieces(pieces, _guard) => {
            let (raw, checksum) = read_pieces(&pieces)?;
            (raw, Some(checksum))
        }
    };
    Ok(Answer { response, raw, checksum })
}

/// The bytes of several parts, one after the other. One part is not copied.
pub(super) fn join(mut parts: Vec<Bytes>) -> Bytes {
    match parts.len() {
        0 => Bytes::new(),
        1 => parts.swap_remove(0),
        _ => {
            let mut joined = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
            parts.iter().for_each(|part| joined.extend_from_slice(part));
            joined.freeze()
        }
    }
}
