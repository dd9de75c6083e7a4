//! Answers a request, at once or later.

use std::slice;
use std::sync::Arc;

use bytes::Bytes;
use model::checksum::crc32c;
use model::{Error, ErrorKind, Result};

use super::Answer;
use super::caller::answer_lost;
use super::direct_sink::DirectSink;
use super::driver::Load;
use super::mailbox::{Body, Item, Mailbox};
use crate::frame::{Flags, Frame};
use crate::outbox::{Outbox, Piece, PieceGuard};
use crate::proto;
use crate::proto::response::Response;

/// Answers one request. If it is dropped unused, it answers with an internal error.
#[derive(Debug)]
pub struct Responder<'a> {
    /// `None` once it was answered.
    route: Option<Route<'a>>,
    mailbox: &'a Arc<Mailbox>,
    /// Set if the connection is to end, with the reason.
    close_reason: &'a mut Option<String>,
}

/// The way of an answer.
#[derive(Debug)]
enum Route<'a> {
    Frame(FrameRoute<'a>),
    Direct(DirectSink),
}

/// The way of an answer that is a frame.
#[derive(Debug)]
pub(super) struct FrameRoute<'a> {
    pub(super) id: u32,
    pub(super) one_way: bool,
    /// Bytes of the request in memory, and of the contents that it asks for.
    pub(super) cost: usize,
    pub(super) outbox: &'a mut Outbox,
    pub(super) load: &'a mut Load,
}

pub(super) fn message(response: Response) -> proto::Response {
    proto::Response { response: Some(response) }
}

pub(super) fn failure(error: &Error) -> Response {
    Response::Error(error.into())
}

impl<'a> Responder<'a> {
    /// Answers a request that was read from the connection of `mailbox`.
    pub(super) fn to_frame(
        route: FrameRoute<'a>,
        mailbox: &'a Arc<Mailbox>,
        close_reason: &'a mut Option<String>,
    ) -> Self {
        Self { route: Some(Route::Frame(route)), mailbox, close_reason }
    }

    /// Answers a request that came as a value.
    pub(super) fn to_sink(sink: DirectSink, mailbox: &'a Arc<Mailbox>, close_reason: &'a mut Option<String>) -> Self {
        Self { route: Some(Route::Direct(sink)), mailbox, close_reason }
    }

    /// Whether the request expects no answer. An answer is then dropped.
    #[must_use]
    pub fn is_one_way(&self) -> bool {
        matches!(&self.route, Some(Route::Frame(frame)) if frame.one_way)
    }

    /// Answers with a message.
    pub fn send(self, response: Response) {
        self.send_checked(response, &[], 0);
    }

    /// Answers with a message and bytes, which are copied.
    pub fn send_slice(self, response: Response, raw: &[u8]) {
        self.finish(
            response,
            |to, response| to.outbox.push_slice(Flags::RESPONSE, to.id, response, raw, crc32c(raw)),
            || Body::Bytes(vec![Bytes::copy_from_slice(raw)]),
        );
    }

    /// The same for bytes with a known checksum, which the other side checks.
    pub fn send_checked(self, response: Response, raw: &[u8], checksum: u32) {
        self.finish(
            response,
            |to, response| to.outbox.push_slice(Flags::RESPONSE, to.id, response, raw, checksum),
            || Body::Checked(Bytes::copy_from_slice(raw), checksum),
        );
    }

    /// The same for bytes that are copied only if they are few.
    pub fn send_shared(self, response: Response, raw: Bytes, checksum: u32) {
        self.finish(
            response,
            |to, response| to.outbox.push_checked(Flags::RESPONSE, to.id, response, slice::from_ref(&raw), checksum),
            || Body::Checked(raw.clone(), checksum),
        );
    }

    /// Answers with a message and by the way that the request came.
    fn finish(
        mut self,
        response: Response,
        to_frame: impl FnOnce(FrameRoute<'_>, &proto::Response),
        body: impl FnOnce() -> Body,
    ) {
        match self.route.take() {
            Some(Route::Frame(frame)) if !frame.one_way => to_frame(frame, &message(response)),
            Some(Route::Direct(sink)) => sink.answer(self.mailbox, response, body()),
            _ => {}
        }
    }

    /// Answers with an error. If the request is one-way, the connection ends, as by [`refuse`](Self::refuse).
    pub fn fail(self, error: &Error) {
        if self.is_one_way() {
            return self.refuse(error);
        }
        self.send(failure(error));
    }

    /// Ends the connection and sends the reason: the request breaks the protocol. Requests behind it may depend on it and are not
    /// read.
    pub fn refuse(mut self, error: &Error) {
        self.route = None;
        *self.close_reason = Some(error.to_string());
    }

    /// Defers the answer: the request counts as unanswered until the result is used, on any thread.
    #[must_use]
    pub fn defer(mut self) -> DeferredResponder {
        let route = self.route.take().map(|route| match route {
            Route::Direct(sink) => DeferredRoute::Direct(sink),
            Route::Frame(FrameRoute { id, one_way, cost, load, .. }) => {
                load.requests += 1;
                load.bytes += cost;
                DeferredRoute::Frame { id, one_way, cost }
            }
        });
        DeferredResponder { route, mailbox: self.mailbox.clone() }
    }
}

impl Drop for Responder<'_> {
    fn drop(&mut self) {
        match self.route.take() {
            Some(Route::Frame(FrameRoute { id, one_way: false, outbox, .. })) => {
                outbox.push_slice(Flags::RESPONSE, id, &message(failure(&dropped_request_error())), &[], 0);
            }
            Some(Route::Direct(sink)) => sink.fail(dropped_request_error()),
            _ => {}
        }
    }
}

fn dropped_request_error() -> Error {
    Error::new(ErrorKind::Internal, "the request was dropped without an answer")
}

/// Answers one request later. If it is dropped unused, it answers with an internal error.
#[derive(Debug)]
pub struct DeferredResponder {
    /// `None` once it was answered.
    route: Option<DeferredRoute>,
    mailbox: Arc<Mailbox>,
}

#[derive(Debug)]
enum DeferredRoute {
    Frame { id: u32, one_way: bool, cost: usize },
    Direct(DirectSink),
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

    /// Forwards the answer of another process or role, with the checksum that it came with.
    pub fn forward_answer(mut self, answer: Result<Answer>) {
        match answer {
            Ok(Answer { response, raw, checksum: Some(checksum) }) => {
                self.finish(response, Body::Checked(raw, checksum));
            }
            Ok(Answer { response, raw, checksum: None }) => self.finish(response, Body::Bytes(vec![raw])),
            Err(error) => self.fail(&error),
        }
    }

    /// Whether nobody gets the answer any more, because the connection of the request has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match &self.route {
            Some(DeferredRoute::Direct(sink)) => sink.is_closed(),
            _ => self.mailbox.is_closed(),
        }
    }

    /// Whether the answer becomes a frame.
    pub(super) fn is_to_frame(&self) -> bool {
        matches!(self.route, Some(DeferredRoute::Frame { .. }))
    }

    /// Forwards an answer as the frame that has just come, which is copied as it is, [if it becomes one](Self::is_to_frame).
    pub(super) fn forward_frame(mut self, frame: &Frame<'_>) {
        match self.route.take_if(|route| matches!(route, DeferredRoute::Frame { one_way: false, .. })) {
            Some(DeferredRoute::Frame { id, cost, .. }) => self.mailbox.forward_frame(id, cost, frame),
            _ => self.finish(Response::Done(proto::Done {}), Body::Bytes(Vec::new())),
        }
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
        let Some(DeferredRoute::Frame { id, .. }) = self.route else {
            // A request with several answers is sent as a frame (`link::is_direct_kind`).
            unreachable!("a request that came as a value has one answer");
        };
        self.mailbox.push_blocking(Item::More { id, response, raw, bytes }, bytes)
    }

    fn finish(&mut self, response: Response, raw: Body) {
        let item = match self.route.take() {
            Some(DeferredRoute::Direct(sink)) => return sink.answer(&self.mailbox, response, raw),
            Some(DeferredRoute::Frame { one_way: true, cost, .. }) => Item::Finished { cost },
            Some(DeferredRoute::Frame { id, cost, .. }) => Item::Last { id, cost, response, raw },
            None => return,
        };
        // If the connection has ended, the answer is dropped.
        let _ = self.mailbox.push(item);
    }
}

impl Drop for DeferredResponder {
    fn drop(&mut self) {
        match self.route.take_if(|route| matches!(route, DeferredRoute::Direct(_))) {
            // What answers has ended with its connection, as that of a server that stops.
            Some(DeferredRoute::Direct(sink)) if self.mailbox.is_closed() => sink.fail(answer_lost()),
            Some(DeferredRoute::Direct(sink)) => sink.fail(dropped_request_error()),
            _ => self.finish(failure(&dropped_request_error()), Body::Bytes(Vec::new())),
        }
    }
}
