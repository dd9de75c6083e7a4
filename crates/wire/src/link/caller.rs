//! Asking the other side.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use model::{Error, ErrorKind, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::Answer;
use super::mailbox::{Item, Mailbox};
use super::responder::DeferredResponder;
use crate::frame::{Frame, Raw};
use crate::proto::request::Request;

/// What a call weighs besides its bytes, and what one permit of the budget stands for.
const BUDGET_UNIT: usize = 4 << 10;
/// Bytes of answers of one stream that wait for their reader before the connection is read no further.
pub(super) const MAX_STREAM_AHEAD: usize = 4 << 20;

/// Who waits for an answer.
pub(super) enum AnswerSink {
    /// One answer.
    One(oneshot::Sender<Result<Answer>>, OwnedSemaphorePermit),
    /// One answer, which this takes where it arrives.
    Callback(AnswerHandler),
    /// Any number of them.
    Many(AnswerSender),
}

/// What takes an answer where it arrives. Dropped before, it takes the error that there is none.
pub(super) struct AnswerHandler(Option<AnswerAction>);

enum AnswerAction {
    Call(Box<dyn FnOnce(Result<Answer>) + Send>),
    /// Whoever has asked somebody else.
    Forward(DeferredResponder),
}

impl AnswerHandler {
    pub(super) fn handle(mut self, answer: Result<Answer>) {
        self.deliver(answer);
    }

    /// Passes on a frame as it came, if that is all that is to be done with it.
    pub(super) fn try_forward(&mut self, frame: &Frame<'_>) -> bool {
        // A large one has a buffer of its own, which need not be copied.
        let is_copied = matches!(frame.raw, Raw::Borrowed(_));
        let passes = self.0.take_if(|then| is_copied && matches!(then, AnswerAction::Forward(_)));
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
        self.deliver(Err(connection_ended()));
    }
}

/// The driver's end of a stream of answers.
#[derive(Clone)]
pub(super) struct AnswerSender {
    answers: mpsc::UnboundedSender<Result<Answer>>,
    unread_bytes: Arc<AtomicUsize>,
}

impl AnswerSender {
    /// Hands an answer over; `true` if the reader has fallen behind, and will say when it has caught up.
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
            // Whoever asked may have gone.
            Self::One(asker, _) => drop(asker.send(Err(error))),
            Self::Callback(then) => then.handle(Err(error)),
            Self::Many(stream) => drop(stream.send(Err(error))),
        }
    }
}

/// Puts calls on a connection; clones share it.
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

    /// Sends a request, once the unanswered ones leave room for it. Fails if the connection has ended; nothing was sent
    /// then.
    pub async fn begin(&self, request: Request, raw: Vec<Bytes>) -> Result<Pending> {
        let bytes: usize = raw.iter().map(Bytes::len).sum();
        let units = u32::try_from(1 + bytes / BUDGET_UNIT).unwrap_or(u32::MAX).min(self.units);
        let permit = self.budget.clone().acquire_many_owned(units).await.map_err(|_| connection_ended())?;
        let (asker, answer) = oneshot::channel();
        let call = Item::Call { request, raw, asker: AnswerSink::One(asker, permit) };
        self.mailbox.push(call).map_err(|_| connection_ended())?;
        Ok(Pending { answer })
    }

    /// Asks, and has `then` take the answer on the task that drives the connection: so it must be quick. For whoever
    /// passes on what others ask, and is bounded by what they may ask.
    ///
    /// The bytes of the answer are not checked: their checksum is passed on with them, and whoever uses them
    /// [checks](Answer::check) it.
    pub fn ask(&self, request: Request, then: impl FnOnce(Result<Answer>) + Send + 'static) {
        self.ask_with(request, AnswerAction::Call(Box::new(then)));
    }

    /// Passes on what somebody has asked this side, and the answer back: in the same bytes, as far as they are few. Whoever has
    /// asked checks them.
    pub fn forward(&self, request: Request, deferred: DeferredResponder) {
        self.ask_with(request, AnswerAction::Forward(deferred));
    }

    fn ask_with(&self, request: Request, then: AnswerAction) {
        let asker = AnswerSink::Callback(AnswerHandler(Some(then)));
        // If the connection has ended, it was told so when it was dropped.
        let _ = self.mailbox.push(Item::Call { request, raw: Vec::new(), asker });
    }

    /// Asks, and waits for the answer.
    ///
    /// Fails as the other side says; as [`ErrorKind::Unavailable`] if the connection has ended and the request was
    /// never sent; as [`ErrorKind::Unknown`] if it ended between request and answer.
    pub async fn call(&self, request: Request, raw: Vec<Bytes>) -> Result<Answer> {
        self.begin(request, raw).await?.answer().await
    }

    /// Asks for answers that come one by one. Meant for a connection that has nothing else to do: while their reader is
    /// behind, the connection is not read.
    pub fn stream(&self, request: Request) -> Result<AnswerStream> {
        let (sender, answers) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let asker = AnswerSink::Many(AnswerSender { answers: sender, unread_bytes: waiting.clone() });
        self.mailbox.push(Item::Call { request, raw: Vec::new(), asker }).map_err(|_| connection_ended())?;
        Ok(AnswerStream { answers, unread_bytes: waiting, mailbox: self.mailbox.clone() })
    }

    /// Sends a request that wants no answer: see [`Mailbox::send_one_way`].
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

/// A call on its way. Dropped, the answer is thrown away when it comes.
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
    Error::new(ErrorKind::Unknown, "the connection broke before the answer came")
}

/// Answers that come one by one.
#[derive(Debug)]
pub struct AnswerStream {
    answers: mpsc::UnboundedReceiver<Result<Answer>>,
    unread_bytes: Arc<AtomicUsize>,
    mailbox: Arc<Mailbox>,
}

impl AnswerStream {
    /// Waits for the next answer. The last one is told by its message.
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
        // Nobody is behind any more.
        if self.unread_bytes.load(Ordering::Acquire) > MAX_STREAM_AHEAD {
            let _ = self.mailbox.push(Item::Resume);
        }
    }
}
