//! Answers a request, at once or later.

use std::sync::Arc;

use bytes::Bytes;
use model::checksum::crc32c;
use model::{Error, ErrorKind, Result};

use super::Answer;
use super::driver::Load;
use super::mailbox::{Body, Item, Mailbox};
use crate::frame::{Flags, Frame};
use crate::outbox::{Outbox, Piece, PieceGuard};
use crate::proto;
use crate::proto::response::Response;

/// Answers one request. If it is dropped unused, it answers with an internal error.
#[derive(Debug)]
pub struct Responder<'a> {
    pub(super) id: u32,
    pub(super) one_way: bool,
    pub(super) cost: usize,
    pub(super) outbox: &'a mut Outbox,
    pub(super) load: &'a mut Load,
    pub(super) mailbox: &'a Arc<Mailbox>,
    /// Set if the connection is to end, with the reason.
    pub(super) close_reason: &'a mut Option<String>,
    pub(super) done: bool,
}

pub(super) fn message(response: Response) -> proto::Response {
    proto::Response { response: Some(response) }
}

pub(super) fn failure(error: &Error) -> Response {
    Response::Error(error.into())
}

impl Responder<'_> {
    /// Whether the request expects no answer. An answer is then dropped.
    #[must_use]
    pub fn is_one_way(&self) -> bool {
        self.one_way
    }

    /// Answers with a message.
    pub fn send(self, response: Response) {
        self.send_slice(response, &[]);
    }

    /// Answers with a message and bytes, which are copied.
    pub fn send_slice(self, response: Response, raw: &[u8]) {
        self.send_checked(response, raw, crc32c(raw));
    }

    /// The same for bytes with a known checksum, which the other side checks.
    pub fn send_checked(mut self, response: Response, raw: &[u8], checksum: u32) {
        self.done = true;
        if !self.one_way {
            self.outbox.push_slice(Flags::RESPONSE, self.id, &message(response), raw, checksum);
        }
    }

    /// The same for bytes that are copied only if they are few.
    pub fn send_shared(mut self, response: Response, raw: Bytes, checksum: u32) {
        self.done = true;
        if !self.one_way {
            self.outbox.push_checked(Flags::RESPONSE, self.id, &message(response), &[raw], checksum);
        }
    }

    /// Answers with a message and what `pieces` refer to; `guard` keeps that alive until it is sent.
    pub fn send_pieces(mut self, response: Response, pieces: Vec<Piece>, guard: PieceGuard) {
        self.done = true;
        if !self.one_way {
            self.outbox.push_pieces(Flags::RESPONSE, self.id, &message(response), pieces, guard);
        }
    }

    /// Answers with an error. If the request is one-way, the connection ends, as by [`refuse`](Self::refuse).
    pub fn fail(self, error: &Error) {
        if self.one_way {
            return self.refuse(error);
        }
        self.send(failure(error));
    }

    /// Ends the connection and sends the reason: the request breaks the protocol. Requests behind it may depend on it and are not
    /// read.
    pub fn refuse(mut self, error: &Error) {
        self.done = true;
        *self.close_reason = Some(error.to_string());
    }

    /// Defers the answer: the request counts as unanswered until the result is used, on any thread.
    #[must_use]
    pub fn defer(mut self) -> DeferredResponder {
        self.done = true;
        self.load.requests += 1;
        self.load.bytes += self.cost;
        DeferredResponder {
            id: self.id,
            one_way: self.one_way,
            cost: self.cost,
            mailbox: self.mailbox.clone(),
            done: false,
        }
    }
}

impl Drop for Responder<'_> {
    fn drop(&mut self) {
        if !self.done && !self.one_way {
            self.outbox.push_slice(Flags::RESPONSE, self.id, &message(failure(&dropped_unanswered())), &[], 0);
        }
    }
}

fn dropped_unanswered() -> Error {
    Error::new(ErrorKind::Internal, "the request was dropped without an answer")
}

/// Answers one request later. If it is dropped unused, it answers with an internal error.
#[derive(Debug)]
pub struct DeferredResponder {
    id: u32,
    one_way: bool,
    cost: usize,
    mailbox: Arc<Mailbox>,
    done: bool,
}

impl DeferredResponder {
    /// Answers.
    pub fn send(mut self, response: Response, raw: Vec<Bytes>) {
        self.finish(response, Body::Bytes(raw));
    }

    /// Answers without bytes, or with an error.
    pub fn answer(self, answer: Result<Response>) {
        match answer {
            Ok(response) => self.send(response, Vec::new()),
            Err(error) => self.fail(&error),
        }
    }

    /// Forwards the answer of another process, with the checksum that it came with.
    pub fn forward_answer(mut self, answer: Result<Answer>) {
        match answer {
            Ok(Answer { response, raw, checksum }) => self.finish(response, Body::Checked(raw, checksum)),
            Err(error) => self.fail(&error),
        }
    }

    /// The same for a frame that has just come, which is copied as it is.
    pub(super) fn forward_frame(mut self, frame: &Frame<'_>) {
        if self.one_way {
            return self.finish(Response::Done(proto::Done {}), Body::Bytes(Vec::new()));
        }
        self.done = true;
        self.mailbox.forward_frame(self.id, self.cost, frame);
    }

    /// Answers with a message and what `pieces` refer to; `guard` keeps that alive until it is sent.
    pub fn send_pieces(mut self, response: Response, pieces: Vec<Piece>, guard: PieceGuard) {
        self.finish(response, Body::Pieces(pieces, guard));
    }

    /// Answers with an error.
    pub fn fail(mut self, error: &Error) {
        self.finish(failure(error), Body::Bytes(Vec::new()));
    }

    /// Sends an answer that others follow; `false` if the connection has ended. Blocks while several MiB of them wait
    /// to leave, so it is for threads that may.
    pub fn send_more(&self, response: Response, raw: Vec<Bytes>) -> bool {
        let bytes = raw.iter().map(Bytes::len).sum();
        self.push_more(response, Body::Bytes(raw), bytes)
    }

    /// [`DeferredResponder::send_more`] of bytes that have this checksum.
    pub fn send_more_checked(&self, response: Response, raw: Bytes, checksum: u32) -> bool {
        let bytes = raw.len();
        self.push_more(response, Body::Checked(raw, checksum), bytes)
    }

    fn push_more(&self, response: Response, raw: Body, bytes: usize) -> bool {
        self.mailbox.push_blocking(Item::More { id: self.id, response, raw, bytes }, bytes)
    }

    fn finish(&mut self, response: Response, raw: Body) {
        self.done = true;
        let item = if self.one_way {
            Item::Finished { cost: self.cost }
        } else {
            Item::Last { id: self.id, cost: self.cost, response, raw }
        };
        // If the connection has ended, the answer is dropped.
        let _ = self.mailbox.push(item);
    }
}

impl Drop for DeferredResponder {
    fn drop(&mut self) {
        if !self.done {
            self.finish(failure(&dropped_unanswered()), Body::Bytes(Vec::new()));
        }
    }
}
