//! Sends requests to the other side.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use model::{Error, ErrorKind, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::Answer;
use super::direct_sink::DirectSink;
use super::mailbox::{Item, Mailbox};
use super::responder::DeferredResponder;
use crate::direct::{Delivery, DeliveryScope, SentRequest};
use crate::frame::{Frame, Raw};
use crate::proto::request::Request;

/// Bytes that one permit of the budget stands for. A call without bytes takes one permit.
const BUDGET_UNIT: usize = 4 << 10;
/// Bytes of unread answers of one stream from which on the connection is not read.
pub(super) const MAX_STREAM_AHEAD: usize = 4 << 20;

/// The receiver of an answer.
pub(super) enum AnswerSink {
    /// One answer.
    One(oneshot::Sender<Result<Answer>>, OwnedSemaphorePermit),
    /// One answer, passed to this handler on the connection's task.
    Callback(AnswerHandler),
    /// Any number of them.
    Many(AnswerSender),
}

/// Handles an answer on the connection's task. If it is dropped before, it is called with an error.
pub(super) struct AnswerHandler(Option<AnswerAction>);

enum AnswerAction {
    Call(Box<dyn FnOnce(Result<Answer>) + Send>),
    /// Forward the answer to the client whose request was forwarded.
    Forward(DeferredResponder),
}

impl AnswerHandler {
    pub(super) fn handle(mut self, answer: Result<Answer>) {
        self.deliver(answer);
    }

    /// Forwards a frame unchanged, if the answer is only to be forwarded.
    pub(super) fn try_forward(&mut self, frame: &Frame<'_>) -> bool {
        // A large frame has its own buffer, which need not be copied.
        let is_copied = matches!(frame.raw, Raw::Borrowed(_));
        let passes = self
            .0
            .take_if(|then| is_copied && matches!(then, AnswerAction::Forward(deferred) if deferred.is_to_frame()));
        let Some(AnswerAction::Forward(deferred)) = passes else { return false };
        deferred.forward_frame(frame);
        true
    }

    fn deliver(&mut self, answer: Result<Answer>) {
        match self.0.take() {
            Some(AnswerAction::Call(then)) => then(answer),
            Some(AnswerAction::Forward(deferred)) => deferred.forward_answer(answer),
            None => {}
        }
    }
}

impl Drop for AnswerHandler {
    fn drop(&mut self) {
        // The error is made only for a handler that has not been called.
        if self.0.is_some() {
            self.deliver(Err(connection_ended()));
        }
    }
}

/// The driver's end of a stream of answers.
#[derive(Clone)]
pub(super) struct AnswerSender {
    answers: mpsc::UnboundedSender<Result<Answer>>,
    unread_bytes: Arc<AtomicUsize>,
}

impl AnswerSender {
    /// Passes an answer to the reader; `true` if the reader has fallen behind. It signals when it has caught up.
    pub(super) fn send(&self, answer: Result<Answer>) -> bool {
        let len = answer.as_ref().map_or(0, |answer| answer.raw.len());
        let before = self.unread_bytes.fetch_add(len, Ordering::AcqRel);
        self.answers.send(answer).is_ok() && before + len > MAX_STREAM_AHEAD
    }
}

impl AnswerSink {
    /// Ends the wait with an error.
    pub(super) fn fail(self, error: Error) {
        match self {
            // The caller may have stopped waiting.
            Self::One(asker, _) => drop(asker.send(Err(error))),
            Self::Callback(then) => then.handle(Err(error)),
            Self::Many(stream) => drop(stream.send(Err(error))),
        }
    }
}

/// Sends calls on a connection. Clones share the connection and the budget.
#[derive(Clone, Debug)]
pub struct Caller {
    mailbox: Arc<Mailbox>,
    budget: Arc<Semaphore>,
    units: u32,
}

pub(super) fn connection_ended() -> Error {
    Error::new(ErrorKind::Unavailable, "the connection has ended")
}

impl Caller {
    /// Calls through `mailbox`, with at most `budget` bytes unanswered.
    #[must_use]
    pub fn new(mailbox: Arc<Mailbox>, budget: usize) -> Self {
        let units = u32::try_from(budget / BUDGET_UNIT).unwrap_or(u32::MAX).clamp(1, u32::MAX >> 3);
        Self { mailbox, budget: Arc::new(Semaphore::new(units as usize)), units }
    }

    /// Sends a request once the unanswered ones leave room for it. Fails if the connection has ended; then nothing was sent.
    pub async fn begin(&self, request: Request, raw: Vec<Bytes>) -> Result<Pending> {
        let bytes: usize = raw.iter().map(Bytes::len).sum();
        let units = u32::try_from(1 + bytes / BUDGET_UNIT).unwrap_or(u32::MAX).min(self.units);
        let permit = self.budget.clone().acquire_many_owned(units).await.map_err(|_| connection_ended())?;
        let (asker, answer) = oneshot::channel();
        if let Some(way) = self.mailbox.direct_way(&request) {
            // This thread handles the request before it waits.
            let _delivery = DeliveryScope::enter();
            let sink = DirectSink::to_task(asker, permit);
            return match way.send(Delivery::Request(SentRequest { request, raw, sink })) {
                true => Ok(Pending { answer }),
                false => Err(connection_ended()),
            };
        }
        let call = Item::Call { request, raw, asker: AnswerSink::One(asker, permit) };
        self.mailbox.push(call).map_err(|_| connection_ended())?;
        Ok(Pending { answer })
    }

    /// Sends a request and has `then` called with the answer on the connection's task, so `then` must be quick. Not bounded by the
    /// budget: for requests made on behalf of others, which have bounds of their own.
    ///
    /// The bytes of the answer are not checked. Their checksum comes with them, and their user [checks](Answer::check) it.
    pub fn ask(&self, request: Request, then: impl FnOnce(Result<Answer>) + Send + 'static) {
        self.ask_with(request, Vec::new(), AnswerAction::Call(Box::new(then)));
    }

    /// Forwards a request of another connection, and the answer back. A small answer is forwarded in the same bytes. The original
    /// caller checks them.
    pub fn forward(&self, request: Request, raw: Vec<Bytes>, deferred: DeferredResponder) {
        if let Some(way) = self.mailbox.direct_way(&request) {
            let sink = DirectSink::to_request(deferred);
            // If the connection has ended, the sink was dropped, and has said so.
            way.send(Delivery::Request(SentRequest { request, raw, sink }));
            return;
        }
        self.ask_with(request, raw, AnswerAction::Forward(deferred));
    }

    fn ask_with(&self, request: Request, raw: Vec<Bytes>, then: AnswerAction) {
        let asker = AnswerSink::Callback(AnswerHandler(Some(then)));
        // If the connection has ended, the handler was called with an error when it was dropped.
        let _ = self.mailbox.push(Item::Call { request, raw, asker });
    }

    /// Sends a request and waits for the answer.
    ///
    /// Fails with the error of the other side; with [`ErrorKind::Unavailable`] if the connection has ended and the request was
    /// never sent; with [`ErrorKind::Unknown`] if it ended between request and answer.
    pub async fn call(&self, request: Request, raw: Vec<Bytes>) -> Result<Answer> {
        self.begin(request, raw).await?.answer().await
    }

    /// Sends a request with any number of answers. Meant for a connection of its own: while the reader of the answers is behind, the
    /// connection is not read.
    pub fn stream(&self, request: Request) -> Result<AnswerStream> {
        let (sender, answers) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let asker = AnswerSink::Many(AnswerSender { answers: sender, unread_bytes: waiting.clone() });
        self.mailbox.push(Item::Call { request, raw: Vec::new(), asker }).map_err(|_| connection_ended())?;
        Ok(AnswerStream { answers, unread_bytes: waiting, mailbox: self.mailbox.clone() })
    }

    /// Sends a one-way request: see [`Mailbox::send_one_way`].
    pub fn send_one_way(&self, request: Request) {
        self.mailbox.send_one_way(request, Vec::new());
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.mailbox.is_closed()
    }

    /// Ends the connection.
    pub fn hang_up(&self) {
        self.mailbox.hang_up();
    }
}

/// A call in flight. If it is dropped, the answer is discarded when it arrives.
#[derive(Debug)]
pub struct Pending {
    answer: oneshot::Receiver<Result<Answer>>,
}

impl Pending {
    /// Waits for the answer; see [`Caller::call`]. May be cancelled and called again.
    pub async fn answer(&mut self) -> Result<Answer> {
        (&mut self.answer).await.unwrap_or_else(|_| Err(answer_lost()))
    }
}

pub(super) fn answer_lost() -> Error {
    Error::new(ErrorKind::Unknown, "the connection broke before the answer arrived")
}

/// The answers of one request, in order.
#[derive(Debug)]
pub struct AnswerStream {
    answers: mpsc::UnboundedReceiver<Result<Answer>>,
    unread_bytes: Arc<AtomicUsize>,
    mailbox: Arc<Mailbox>,
}

impl AnswerStream {
    /// Waits for the next answer. Its message tells whether it is the last one.
    pub async fn next(&mut self) -> Result<Answer> {
        let answer = self.answers.recv().await.unwrap_or_else(|| Err(answer_lost()))?;
        let len = answer.raw.len();
        let before = self.unread_bytes.fetch_sub(len, Ordering::AcqRel);
        if before > MAX_STREAM_AHEAD && before - len <= MAX_STREAM_AHEAD {
            let _ = self.mailbox.push(Item::Resume);
        }
        Ok(answer)
    }
}

impl Drop for AnswerStream {
    fn drop(&mut self) {
        // The reader, for which reading may be paused, is gone. No answer pauses it after `close`. What the driver has counted before is not
        // asked for: it may have counted an answer and not have passed it on.
        self.answers.close();
        let _ = self.mailbox.push(Item::Resume);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto;
    use crate::proto::response::Response;

    #[test]
    fn stream_whose_reader_has_gone_does_not_pause_its_connection() {
        let mailbox = Arc::new(Mailbox::default());
        let caller = Caller::new(mailbox.clone(), 1 << 20);
        let stream = caller.stream(Request::Ping(proto::Ping {})).unwrap();
        let mut items = Vec::new();
        mailbox.take(&mut items);
        let Some(Item::Call { asker: AnswerSink::Many(sender), .. }) = items.pop() else { panic!("it is a stream") };
        let answer = |bytes: usize| {
            let response = Response::Done(proto::Done {});
            Ok(Answer { response, raw: vec![0; bytes].into(), checksum: None })
        };
        assert!(!sender.send(answer(1_000)));
        // The driver passes an answer on at any moment of this.
        drop(stream);
        assert!(!sender.send(answer(2 * MAX_STREAM_AHEAD)), "nobody reads it");
        mailbox.take(&mut items);
        assert!(matches!(items[..], [Item::Resume]), "an answer may have paused reading just before");
    }
}
