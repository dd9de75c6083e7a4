//! The task of one connection.
//!
//! The task is woken when there is something to read. It reads and answers, and then lets all other connections that have
//! something to read do the same before it writes, as Redis does. So a busy thread sends the answers of many connections one right
//! after the other, and a client on this machine that waits for them is woken once. A wake costs more than a small request; a
//! second turn of the task costs next to nothing.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::{Future, poll_fn};
use std::iter;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use model::{Error, ErrorKind};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time;
use tracing::warn;

use super::caller::{AnswerSink, answer_lost, connection_ended};
use super::held_requests::HeldRequests;
use super::mailbox::{Body, Item, Mailbox};
use super::memory_budget::{InputCharge, MemoryBudget, OutputCharge};
use super::responder::{FrameRoute, Responder, failure, message};
use super::shared_service::ServiceSlot;
use super::unsent_requests::UnsentRequests;
use super::{Answer, End, Incoming, Limits, Service, promised_bytes};
use crate::cluster::{self, is_message};
use crate::decoded_size::{decode_request, decode_response};
use crate::direct::DeliveryScope;
use crate::frame::{CHECKSUM, Flags, Frame, FrameError, HEADER, MAX_MESSAGE, Raw};
use crate::inbox::{Filled, Inbox, InboxError, Next, SHARED_BUFFER_LEN};
use crate::outbox::Outbox;
use crate::proto;
use crate::proto::request::Request;
use crate::proto::response::Response;
use crate::transport::Stream;

thread_local! {
    /// The buffer into which the connections of this thread read, one at a time.
    static SHARED_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; SHARED_BUFFER_LEN]);
}

/// A request number that is never used: an answer to it states why the other side ends the connection.
const CLOSE_REASON_ID: u32 = u32::MAX;

/// Bytes of answers from which on they are sent at once, without another turn.
const IMMEDIATE_WRITE: usize = 64 << 10;

/// How long the other side has to receive the last bytes of a connection that this side ends.
const LINGER: Duration = Duration::from_secs(1);

/// Receivers of answers of the other side, by request number. This side chooses the numbers.
type PendingAnswers = HashMap<u32, AnswerSink, foldhash::fast::RandomState>;

/// Unanswered requests of the other side.
#[derive(Debug, Default)]
pub(super) struct Load {
    pub(super) requests: u32,
    pub(super) bytes: usize,
}

/// A connection after its handshake.
pub struct Link<S> {
    stream: Stream,
    service: ServiceSlot<S>,
    limits: Limits,
    /// Bytes in the largest frame that the other side accepts.
    their_max_frame: u32,
    mailbox: Arc<Mailbox>,
    inbox: Inbox,
    outbox: Outbox,
    load: Load,
    pending_answers: PendingAnswers,
    held_requests: HeldRequests,
    next_id: u32,
    /// Bytes of streamed answers in the outbox.
    streamed_bytes: usize,
    /// Requests of this side that are not sent yet.
    unsent_requests: UnsentRequests,
    /// Whether reading waits for the reader of a stream.
    is_reading_paused: bool,
    /// Whether answers are ready and are sent in the next turn of the task.
    is_write_deferred: bool,
    /// Ends the connection if the other side accepts no bytes until then.
    write_stall_timer: Option<Pin<Box<time::Sleep>>>,
    /// What the unfinished frame uses of the server's budget.
    input_charge: InputCharge,
    /// What is unsent uses of the server's budget.
    output_charge: OutputCharge,
    /// The number of the unfinished frame, and since when it is waited for.
    unfinished_since: Option<(u64, time::Instant)>,
    frame_timer: Option<Pin<Box<time::Sleep>>>,
    draining: Draining,
    items: Vec<Item>,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Draining {
    No,
    /// Requests that have already arrived are still answered.
    Reading,
    /// Nothing more is read.
    Answering,
}

/// Drives a connection to its end. Then all callers that still wait for an answer get an error.
pub async fn drive<S: Service>(mut link: Link<S>) -> End {
    let end = poll_fn(|context| link.poll(context)).await;
    link.finish(&end);
    if matches!(end, End::Closed | End::Violated(_)) {
        // If the other side has disconnected or is slow, its last bytes are lost.
        let _ = time::timeout(LINGER, link.linger()).await;
    }
    end
}

impl<S> std::fmt::Debug for Link<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("stream", &self.stream).field("load", &self.load).finish_non_exhaustive()
    }
}

impl<S: Service> Link<S> {
    /// A connection whose handshake is done; the other side accepts frames of `their_max_frame` bytes.
    pub fn new(stream: Stream, service: S, limits: Limits, their_max_frame: u32, mailbox: Arc<Mailbox>) -> Self {
        Self {
            service: ServiceSlot::new(service, &stream, &mailbox),
            stream,
            limits,
            their_max_frame,
            mailbox,
            inbox: Inbox::new(limits.max_frame),
            outbox: Outbox::default(),
            load: Load::default(),
            pending_answers: PendingAnswers::default(),
            held_requests: HeldRequests::default(),
            next_id: 0,
            streamed_bytes: 0,
            unsent_requests: UnsentRequests::default(),
            is_reading_paused: false,
            is_write_deferred: false,
            write_stall_timer: None,
            input_charge: InputCharge::default(),
            output_charge: OutputCharge::default(),
            unfinished_since: None,
            frame_timer: None,
            draining: Draining::No,
            items: Vec::new(),
            waker: None,
        }
    }

    /// Counts unfinished frames towards a budget that the connections of a server share.
    #[must_use]
    pub fn with_input_budget(mut self, budget: Arc<MemoryBudget>) -> Self {
        self.input_charge = InputCharge::new(budget);
        self
    }

    /// Counts what is unsent towards a budget that the connections of a server share.
    #[must_use]
    pub fn with_output_budget(mut self, budget: Arc<MemoryBudget>) -> Self {
        self.output_charge = OutputCharge::new(budget);
        self
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<End> {
        let _delivery = DeliveryScope::enter();
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            self.mailbox.register(context);
            self.waker = Some(context.waker().clone());
        }
        loop {
            if let ControlFlow::Break(end) = self.take_items() {
                return Poll::Ready(end);
            }
            let may_read = self.may_read();
            let filled = if may_read { self.poll_read(context) } else { Poll::Pending };
            if let ControlFlow::Break(end) = self.send_held() {
                return Poll::Ready(end);
            }
            let waits = !self.is_write_deferred && !self.outbox.is_empty() && self.outbox.len() < IMMEDIATE_WRITE;
            if waits && matches!(filled, Poll::Ready(Ok(Filled::Some))) {
                self.is_write_deferred = true;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.is_write_deferred = false;
            if let Poll::Ready(end) = self.poll_write(context) {
                return Poll::Ready(end);
            }
            if !may_read && self.may_read() {
                // The write has made room, and no wake-up is registered for reading: try again.
                continue;
            }
            match filled {
                Poll::Ready(Ok(Filled::Some)) => {}
                Poll::Ready(Ok(Filled::End)) => return Poll::Ready(self.end_of_stream()),
                Poll::Ready(Err(InboxError::Io(error))) => return Poll::Ready(End::Broken(error)),
                Poll::Ready(Err(InboxError::Frame(error))) => return Poll::Ready(self.send_close_reason(error)),
                Poll::Pending if self.draining == Draining::Reading => self.draining = Draining::Answering,
                Poll::Pending => return self.poll_frame_deadline(context),
            }
        }
    }

    /// Ready if the other side has begun a frame and not finished it in time. Time in which this side does not read does not
    /// count.
    fn poll_frame_deadline(&mut self, context: &mut Context<'_>) -> Poll<End> {
        let unfinished = self.inbox.unfinished_frame().filter(|_| self.may_read());
        let (Some((number, received)), Some(grace)) = (unfinished, self.limits.frame_grace) else {
            self.unfinished_since = None;
            return Poll::Pending;
        };
        let since = match self.unfinished_since {
            Some((known, since)) if known == number => since,
            _ => time::Instant::now(),
        };
        self.unfinished_since = Some((number, since));
        let earned = Duration::from_secs_f64(received as f64 / f64::from(self.limits.min_frame_rate.max(1)));
        let deadline = since + grace + earned;
        // The timer is reset only when it fires, which is rarer than a frame that is read in parts.
        let timer = self.frame_timer.get_or_insert_with(|| Box::pin(time::sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        while timer.as_mut().poll(context).is_ready() {
            let now = time::Instant::now();
            if now >= deadline {
                let seconds = (now - since).as_secs();
                return Poll::Ready(self.send_close_reason(FrameError::Late { received, seconds }));
            }
            timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }

    /// Sends as much as the other side accepts; ready if that ends the connection.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<End> {
        let raw = self.outbox.take_raw_bytes() + self.mailbox.take_direct_bytes();
        if raw > 0 {
            self.service.with(|service| service.on_sent(raw));
        }
        let before = self.outbox.len();
        let flushed = self.outbox.poll_flush(context, &mut self.stream);
        let sent_one_way = self.unsent_requests.remove_sent(&self.outbox);
        if sent_one_way > 0 {
            self.mailbox.release_one_way(sent_one_way);
        }
        if self.write_stall_timer.is_some() && self.outbox.len() < before {
            self.mailbox.note_activity();
        }
        if !self.output_charge.set(self.outbox.len(), self.outbox.total_sent(), &self.mailbox) {
            return Poll::Ready(End::Unread);
        }
        match flushed {
            Poll::Ready(Err(error)) => return Poll::Ready(End::Broken(error)),
            Poll::Ready(Ok(())) => {
                self.write_stall_timer = None;
                if self.streamed_bytes > 0 {
                    self.mailbox.release_stream(std::mem::take(&mut self.streamed_bytes));
                }
                if self.draining == Draining::Answering && self.load.requests == 0 {
                    return Poll::Ready(End::Closed);
                }
            }
            Poll::Pending => {
                let Some(patience) = self.limits.write_stall else { return Poll::Pending };
                let stall = self.write_stall_timer.get_or_insert_with(|| Box::pin(time::sleep(patience)));
                if self.outbox.len() < before {
                    stall.as_mut().reset(time::Instant::now() + patience);
                }
                if stall.as_mut().poll(context).is_ready() {
                    return Poll::Ready(End::Stalled(patience));
                }
            }
        }
        Poll::Pending
    }

    /// Queues the reason for the end of the connection.
    fn send_close_reason(&mut self, error: FrameError) -> End {
        if !matches!(error, FrameError::ClosedByPeer(_)) {
            let goodbye = failure(&Error::new(ErrorKind::Invalid, error.to_string()));
            self.outbox.push(Flags::RESPONSE, CLOSE_REASON_ID, &message(goodbye), &[]);
        }
        End::Violated(error)
    }

    /// Waits until the last bytes arrive: closing a socket with unread bytes discards what it was sending.
    async fn linger(&mut self) -> std::io::Result<()> {
        // What has arrived of a frame is not waited for: its memory may be the reason for the end.
        self.inbox = Inbox::new(0);
        poll_fn(|context| self.outbox.poll_flush(context, &mut self.stream)).await?;
        self.stream.shutdown().await?;
        let mut ignored = [0; 4096];
        while self.stream.read(&mut ignored).await? > 0 {}
        Ok(())
    }

    fn end_of_stream(&self) -> End {
        if self.inbox.is_between_frames() { End::HungUp } else { End::Broken(std::io::ErrorKind::UnexpectedEof.into()) }
    }

    fn may_read(&self) -> bool {
        !self.is_reading_paused
            && self.draining != Draining::Answering
            && !is_full(&self.load, self.unsent_answer_bytes(), &self.limits, &self.output_charge)
    }

    /// Bytes of answers that are not sent.
    fn unsent_answer_bytes(&self) -> usize {
        self.outbox.len().saturating_sub(self.unsent_requests.bytes())
    }

    /// Processes the items of the mailbox; breaks if one of them ends the connection.
    fn take_items(&mut self) -> ControlFlow<End> {
        let mut items = std::mem::take(&mut self.items);
        let passed = self.mailbox.take(&mut items);
        if passed.requests > 0 {
            self.load.requests -= passed.requests;
            self.load.bytes -= passed.cost;
            self.outbox.push_frames(passed.frames, passed.raw);
        }
        for item in items.drain(..) {
            match item {
                Item::Call { .. } | Item::OneWay { .. } => {
                    self.held_requests.hold(item);
                    self.send_held()?;
                }
                Item::Message { message: sent, bytes } => {
                    let (mut request, raw) = sent.message.encode();
                    if let (Request::Answer(answer), Some(forced)) = (&mut request, sent.forced) {
                        answer.forced = forced;
                    }
                    self.send_one_way(&proto::Request { request: Some(request) }, &raw, bytes)?;
                }
                Item::TakeDirect => self.service.take_direct(),
                Item::Refuse(why) => return ControlFlow::Break(self.send_close_reason(FrameError::Refused(why))),
                Item::More { id, response, raw, bytes } => {
                    self.streamed_bytes += bytes;
                    self.queue_answer(Flags::MORE, id, response, raw);
                }
                Item::Last { id, cost, response, raw } => {
                    self.finish_request(cost);
                    self.queue_answer(Flags::RESPONSE, id, response, raw);
                }
                Item::Finished { cost } => self.finish_request(cost),
                Item::Resume => self.is_reading_paused = false,
                Item::Drain if self.draining == Draining::No => self.draining = Draining::Reading,
                Item::Drain => {}
                Item::Overrun => return ControlFlow::Break(End::Overrun),
                Item::OutputBudgetExceeded => return ControlFlow::Break(End::Unread),
                Item::InputBudgetExceeded => {
                    return ControlFlow::Break(self.send_close_reason(FrameError::NoMemory));
                }
                Item::Close => return ControlFlow::Break(End::Closed),
            }
        }
        self.items = items;
        ControlFlow::Continue(())
    }

    /// Sends the calls and one-way requests that are held back and need not be any more.
    fn send_held(&mut self) -> ControlFlow<End> {
        while let Some(item) = self.held_requests.next(self.pending_answers.len(), &self.limits) {
            match item {
                Item::Call { request, raw, asker } => self.ask(request, raw, asker),
                Item::OneWay { message, raw, bytes } => self.send_one_way(&message, &raw, bytes)?,
                _ => {}
            }
        }
        ControlFlow::Continue(())
    }

    /// Queues a one-way request, which counts as this many `bytes`. Breaks if the other side does not accept it.
    fn send_one_way(&mut self, message: &proto::Request, raw: &[bytes::Bytes], bytes: usize) -> ControlFlow<End> {
        let head = message.encoded_len();
        if head > MAX_MESSAGE {
            return self.skip_too_long(message, (head, bytes));
        }
        let length = head + raw.iter().map(bytes::Bytes::len).sum::<usize>() + HEADER + CHECKSUM;
        let max = self.their_max_frame as usize;
        if length > max {
            return ControlFlow::Break(End::TooLong { length, max });
        }
        let start = self.outbox.total_added();
        self.outbox.push(Flags::ONE_WAY, 0, message, raw);
        self.unsent_requests.push(&self.outbox, start, bytes);
        ControlFlow::Continue(())
    }

    /// Drops a one-way request whose message of so many bytes the other side does not accept. A call, or a request of a transaction, counts as
    /// lost: its sender repeats it until the transaction is given up, and would do so on each new connection if it ended this one. Breaks
    /// if it is anything else, because the requests behind it may depend on it.
    fn skip_too_long(&mut self, message: &proto::Request, (length, bytes): (usize, usize)) -> ControlFlow<End> {
        let (what, txn) = match &message.request {
            Some(Request::Call(call)) => ("call", &call.txn),
            Some(Request::Ask(ask)) => ("request", &ask.txn),
            _ => return ControlFlow::Break(End::TooLong { length, max: MAX_MESSAGE }),
        };
        warn!(length, max = MAX_MESSAGE, ?txn, "a {what} of a transaction is too long for a message, and is not sent");
        self.mailbox.release_one_way(bytes);
        ControlFlow::Continue(())
    }

    fn queue_answer(&mut self, flags: Flags, id: u32, response: Response, raw: Body) {
        let response = message(response);
        match raw {
            Body::Bytes(raw) => self.outbox.push(flags, id, &response, &raw),
            Body::Checked(raw, checksum) => self.outbox.push_checked(flags, id, &response, &[raw], checksum),
            Body::Pieces(pieces, guard) => self.outbox.push_pieces(flags, id, &response, pieces, guard),
        }
    }

    fn finish_request(&mut self, cost: usize) {
        self.load.requests -= 1;
        self.load.bytes -= cost;
    }

    fn ask(&mut self, request: Request, raw: Vec<bytes::Bytes>, asker: AnswerSink) {
        let request = proto::Request { request: Some(request) };
        let length = request.encoded_len() + raw.iter().map(bytes::Bytes::len).sum::<usize>();
        if length + HEADER + CHECKSUM > self.their_max_frame as usize {
            let what = format!("a request has {length} bytes; the other side accepts {}", self.their_max_frame);
            asker.fail(Error::new(ErrorKind::TooLarge, what));
            return;
        }
        let mut id = self.next_id;
        while id == CLOSE_REASON_ID || self.pending_answers.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        self.next_id = id.wrapping_add(1);
        self.pending_answers.insert(id, asker);
        self.held_requests.sent(id, length, request.request.as_ref().map_or(0, promised_bytes));
        let start = self.outbox.total_added();
        self.outbox.push(Flags::REQUEST, id, &request, &raw);
        self.unsent_requests.push(&self.outbox, start, 0);
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<Filled, InboxError>> {
        let Self {
            stream,
            inbox,
            service,
            outbox,
            unsent_requests: own,
            load,
            mailbox,
            pending_answers,
            is_reading_paused: is_stalled,
            limits,
            input_charge,
            output_charge,
            held_requests,
            ..
        } = self;
        let filled = service.with(|service| {
            let filled = SHARED_BUFFER.with_borrow_mut(|shared| {
                inbox.poll_fill(context, stream, shared, |frame| {
                    if frame.flags.is_response() {
                        let (id, is_last) = (frame.id, frame.flags == Flags::RESPONSE);
                        *is_stalled |= deliver_answer(frame, pending_answers)?;
                        if is_last {
                            held_requests.answered(id);
                        }
                    } else {
                        serve(frame, service, outbox, load, mailbox)?;
                    }
                    Ok(
                        if *is_stalled || is_full(load, outbox.len().saturating_sub(own.bytes()), limits, output_charge)
                        {
                            Next::Pause
                        } else {
                            Next::Frame
                        },
                    )
                })
            });
            if let Poll::Ready(Ok(Filled::Some)) = filled {
                mailbox.note_received(load.requests > 0 || service.holds_state());
            }
            filled
        });
        let unfinished = inbox.unfinished_frame().map_or(0, |(_, bytes)| bytes);
        if !input_charge.set(unfinished, mailbox) {
            return Poll::Ready(Err(FrameError::NoMemory.into()));
        }
        filled
    }

    /// Fails all calls that still wait for an answer.
    fn finish(&mut self, end: &End) {
        self.service.finish(end);
        self.fail_calls(end);
    }
}

impl<S> Link<S> {
    fn fail_calls(&mut self, why: &dyn std::fmt::Display) {
        for item in self.held_requests.take().into_iter().chain(self.mailbox.close()) {
            if let Item::Call { asker, .. } = item {
                asker.fail(connection_ended());
            }
        }
        for (_, asker) in self.pending_answers.drain() {
            asker.fail(answer_lost().with_source(why.to_string()));
        }
    }
}

/// One that is dropped before its end, because its task is aborted or panics, takes no more calls either.
impl<S> Drop for Link<S> {
    fn drop(&mut self) {
        self.fail_calls(&"its task has ended");
    }
}

fn is_full(load: &Load, unsent: usize, limits: &Limits, charge: &OutputCharge) -> bool {
    load.requests >= limits.max_in_flight
        || load.bytes >= limits.max_in_flight_bytes
        || unsent >= limits.max_unsent
        || charge.is_pressed(unsent)
}

/// Passes an answer to its caller; returns true if the reader of a stream has fallen behind.
fn deliver_answer(frame: Frame<'_>, pending_answers: &mut PendingAnswers) -> Result<bool, FrameError> {
    if frame.id == CLOSE_REASON_ID {
        let response = decode_response(frame.message)?;
        return match response.response {
            Some(Response::Error(error)) => Err(FrameError::ClosedByPeer(error.message)),
            _ => Err(FrameError::Stray(frame.id)),
        };
    }
    if frame.flags == Flags::RESPONSE
        && let Entry::Occupied(mut asker) = pending_answers.entry(frame.id)
        && let AnswerSink::Callback(then) = asker.get_mut()
        && then.try_forward(&frame)
    {
        asker.remove();
        return Ok(false);
    }
    let response = decode_response(frame.message)?;
    let answer = match response.response {
        Some(Response::Error(error)) => Err(error.into()),
        Some(response) => Ok(Answer { response, raw: frame.raw.to_bytes(), checksum: Some(frame.raw_checksum) }),
        None => Err(Error::new(ErrorKind::Unsupported, "the answer is one that this side does not know: upgrade it")),
    };
    if frame.flags == Flags::MORE {
        return match pending_answers.get(&frame.id) {
            Some(AnswerSink::Many(stream)) => Ok(stream.send(answer.and_then(Answer::check))),
            _ => Err(FrameError::Stray(frame.id)),
        };
    }
    match pending_answers.remove(&frame.id) {
        // The caller may have stopped waiting. The permit of its call is returned in either case.
        Some(AnswerSink::One(asker, _permit)) => drop(asker.send(answer.and_then(Answer::check))),
        Some(AnswerSink::Callback(then)) => then.handle(answer),
        Some(AnswerSink::Many(stream)) => drop(stream.send(answer.and_then(Answer::check))),
        None => return Err(FrameError::Stray(frame.id)),
    }
    Ok(false)
}

fn serve(
    frame: Frame<'_>,
    service: &mut impl Service,
    outbox: &mut Outbox,
    load: &mut Load,
    mailbox: &Arc<Mailbox>,
) -> Result<(), FrameError> {
    let (request, size) = decode_request(frame.message)?;
    let one_way = frame.flags == Flags::ONE_WAY;
    let promised = request.request.as_ref().map_or(0, promised_bytes);
    let (cost, mut refused) = (size + frame.raw.len() + promised, None);
    let route = FrameRoute { id: frame.id, one_way, cost, outbox, load };
    let reply = Responder::to_frame(route, mailbox, &mut refused);
    match request.request {
        _ if one_way && !frame.is_raw_intact() => {
            reply.refuse(&Error::new(ErrorKind::Unavailable, "its bytes were damaged in transit"));
        }
        _ if !frame.is_raw_intact() => {
            let what = "the bytes of the request were damaged in transit: send it again; nothing was changed";
            reply.send(failure(&Error::new(ErrorKind::Unavailable, what)));
        }
        Some(request) if is_message(&request) => match handle_message(request, frame.raw, one_way, service) {
            Ok(()) => drop(reply),
            Err(error) => reply.refuse(&error),
        },
        Some(request) if one_way && !service.accepts_one_way(&request) => {
            reply.refuse(&Error::new(ErrorKind::Invalid, "a request of this kind wants an answer"));
        }
        Some(request) => service.on_request(Incoming { request, raw: frame.raw }, reply),
        None => {
            let what = "the request is one that this server does not know: upgrade it";
            reply.fail(&Error::new(ErrorKind::Unsupported, what));
        }
    }
    refused.map_or(Ok(()), |why| Err(FrameError::Refused(why)))
}

/// Passes a message between machines to the service.
fn handle_message(request: Request, raw: Raw<'_>, one_way: bool, service: &mut impl Service) -> Result<(), Error> {
    if !one_way {
        return Err(Error::new(ErrorKind::Invalid, "a message of this kind wants no answer"));
    }
    service.on_received(raw.len() as u64);
    if let Request::Answer(answer) = &request {
        service.on_forced(answer.forced);
    }
    service.on_messages(iter::once(cluster::Message::decode(request, raw)?))
}
