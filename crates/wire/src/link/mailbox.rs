//! The queue by which other tasks and threads reach the task that drives a connection.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Waker};

use bytes::Bytes;
use prost::Message as _;

use super::caller::AnswerSink;
use super::is_direct_kind;
use crate::cluster::Message;
use crate::direct::{Delivery, DirectQueue, SentMessage};
use crate::frame::{Flags, Frame, Header};
use crate::outbox::{Piece, PieceGuard, encode_frame};
use crate::pool;
use crate::proto;
use crate::proto::request::Request;
use crate::proto::response::Response;

/// The connection has ended, and the item is dropped.
pub(super) struct ConnectionEnded;

/// The raw part of an answer.
pub(super) enum Body {
    Bytes(Vec<Bytes>),
    Pieces(Vec<Piece>, PieceGuard),
    /// With the checksum of the bytes.
    Checked(Bytes, u32),
}

/// Bytes of unsent streamed answers from which on their producer waits.
const MAX_BACKLOG: usize = 4 << 20;
/// Bytes of unsent one-way requests beyond which a connection ends.
pub const MAX_UNSENT_ONE_WAY: usize = 64 << 20;
/// The same for a side that sends transactions: the largest one beside what others may have unsent.
const MAX_UNSENT_TRANSACTIONS: usize = model::limits::TRANSACTION + crate::frame::MAX_MESSAGE + 2 * MAX_UNSENT_ONE_WAY;

/// A task for the driver of a connection.
pub(super) enum Item {
    /// Send a request, and hand its answers to `asker`.
    Call { request: Request, raw: Vec<Bytes>, asker: AnswerSink },
    /// Send a one-way request.
    OneWay { message: proto::Request, raw: Vec<Bytes>, bytes: usize },
    /// Send a message between machines, which takes about this many bytes.
    Message { message: Box<SentMessage>, bytes: usize },
    /// Take messages from the [`DirectQueue`] of this end.
    TakeDirect,
    /// End the connection, and say why: a message of the other side breaks the protocol.
    Refuse(String),
    /// Close: the other side reads one-way requests too slowly.
    Overrun,
    /// Close: the memory for unfinished frames is needed for others.
    InputBudgetExceeded,
    /// Close: the memory for what is unsent is needed for others.
    OutputBudgetExceeded,
    /// Send an answer that others follow.
    More { id: u32, response: Response, raw: Body, bytes: usize },
    /// Send the last answer to a request that was deferred.
    Last { id: u32, cost: usize, response: Response, raw: Body },
    /// Forget a one-way request that was deferred.
    Finished { cost: usize },
    /// Read again: a stream's reader has caught up.
    Resume,
    /// Answer the requests that have arrived, then close.
    Drain,
    /// Close now.
    Close,
}

/// Forwarded answers of other processes: whole frames.
#[derive(Default)]
pub(super) struct ForwardedFrames {
    pub(super) frames: Vec<u8>,
    /// How many requests they answer, and the cost of those.
    pub(super) requests: u32,
    pub(super) cost: usize,
    /// Bytes of raw parts.
    pub(super) raw: u64,
}

/// The queue of the task that drives a connection.
///
/// Its producers are bounded: callers by their budget, answers by the number of requests in flight, one-way requests by
/// [`MAX_UNSENT_ONE_WAY`].
pub struct Mailbox {
    max_unsent_one_way: usize,
    /// Bytes of unsent one-way requests beyond which large ones are held back.
    max_before_large: usize,
    inner: Mutex<Inner>,
    /// Signalled when `backlog` shrinks, and when the connection ends.
    backlog_shrank: Condvar,
    /// Whether there may be items; spares the driver the lock.
    has_items: AtomicBool,
    /// Whether the other side has been active since [`Mailbox::take_activity`].
    has_activity: AtomicBool,
    /// How many times something has arrived.
    reads: AtomicU64,
    /// Whether the connection has something that would be lost if it ended.
    holds_state: AtomicBool,
    /// The way of messages and requests to the other end if that is in this process.
    direct: OnceLock<Arc<DirectQueue>>,
    /// Bytes of raw parts of answers that were passed as values and are not counted.
    uncounted: AtomicU64,
}

#[derive(Default)]
struct Inner {
    items: Vec<Item>,
    forwarded: ForwardedFrames,
    waker: Option<Waker>,
    /// Bytes of streamed answers that were queued and not sent.
    backlog: usize,
    /// Bytes of one-way requests that were queued and not sent.
    unsent_one_way: usize,
    closed: bool,
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").field("filled", &self.has_items).finish_non_exhaustive()
    }
}

impl Default for Mailbox {
    fn default() -> Self {
        Self::with_limits(MAX_UNSENT_ONE_WAY, MAX_UNSENT_ONE_WAY / 2)
    }
}

impl Mailbox {
    /// The queue of a side that sends transactions, of which one may take as much as many other messages.
    #[must_use]
    pub fn for_transactions() -> Self {
        Self::with_limits(MAX_UNSENT_TRANSACTIONS, MAX_UNSENT_ONE_WAY)
    }

    fn with_limits(max_unsent_one_way: usize, max_before_large: usize) -> Self {
        Self {
            max_unsent_one_way,
            max_before_large,
            inner: Mutex::default(),
            backlog_shrank: Condvar::default(),
            has_items: AtomicBool::default(),
            has_activity: AtomicBool::default(),
            reads: AtomicU64::default(),
            holds_state: AtomicBool::default(),
            direct: OnceLock::default(),
            uncounted: AtomicU64::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // The data is consistent between statements, so a poisoned lock is harmless.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an item and wakes the driver.
    pub(super) fn push(&self, item: Item) -> Result<(), ConnectionEnded> {
        self.put(self.lock(), item)
    }

    fn put(&self, mut inner: MutexGuard<'_, Inner>, item: Item) -> Result<(), ConnectionEnded> {
        if inner.closed {
            // Before `item`, whose end may call somebody who uses this mailbox.
            drop(inner);
            return Err(ConnectionEnded);
        }
        inner.items.push(item);
        self.wake(inner);
        Ok(())
    }

    /// Wakes the driver if the queue was empty before.
    fn wake(&self, inner: MutexGuard<'_, Inner>) {
        if inner.items.len() + inner.forwarded.requests as usize > 1 {
            return;
        }
        self.has_items.store(true, Ordering::Release);
        let waker = inner.waker.clone();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Forwards the answer of another process to request `id`, which had this cost, unchanged.
    pub(super) fn forward_frame(&self, id: u32, cost: usize, frame: &Frame<'_>) {
        let mut inner = self.lock();
        // If the connection has ended, the answer is dropped.
        if inner.closed {
            return;
        }
        let (Frame { message, raw_checksum, .. }, raw) = (frame, frame.raw.as_slice());
        let header =
            Header { flags: Flags::RESPONSE, id, message: message.len(), raw: raw.len(), raw_checksum: *raw_checksum };
        let passed = &mut inner.forwarded;
        if passed.frames.capacity() == 0 {
            passed.frames = pool::take();
        }
        encode_frame(&mut passed.frames, header, message, raw);
        passed.requests += 1;
        passed.cost += cost;
        passed.raw += raw.len() as u64;
        self.wake(inner);
    }

    /// Sends a one-way request behind all requests that were queued before, from any thread; `false` if it is lost because the
    /// connection has ended or is about to.
    ///
    /// Never waits: a connection with more than [`MAX_UNSENT_ONE_WAY`] bytes of unsent one-way requests ends, of a side that sends
    /// transactions with more than the largest of them beside that.
    pub fn send_one_way(&self, request: Request, raw: Vec<Bytes>) -> bool {
        let message = proto::Request { request: Some(request) };
        let bytes = message.encoded_len() + raw.iter().map(Bytes::len).sum::<usize>();
        self.put_one_way(bytes, Item::OneWay { message, raw, bytes })
    }

    /// Sends a message between machines, behind all that were sent before, as [`send_one_way`](Self::send_one_way) sends a request. It
    /// may overtake requests that wait until others are answered. To an end in this process it is passed as it is, and may overtake all
    /// requests. A page that is too large for a message is reported as one that cannot be read. A brick says up to where its log is `forced`.
    pub fn send_message(&self, message: Message, forced: Option<u64>) -> bool {
        let mut sent = SentMessage { message, forced };
        if let Some(direct) = self.direct.get() {
            return direct.send(Delivery::Message(sent));
        }
        // One message, such as a page of large objects, may exceed the limit alone; while it is unsent, large ones are held back.
        let most = self.max_unsent_one_way - MAX_UNSENT_ONE_WAY / 2 + 1;
        let mut bytes = sent.message.memory_size().min(most);
        if bytes == most && sent.message.refuse_large_page() {
            bytes = sent.message.memory_size();
        }
        self.put_one_way(bytes, Item::Message { message: Box::new(sent), bytes })
    }

    fn put_one_way(&self, bytes: usize, item: Item) -> bool {
        let mut inner = self.lock();
        if inner.unsent_one_way > self.max_unsent_one_way {
            return false;
        }
        inner.unsent_one_way += bytes;
        let is_accepted = inner.unsent_one_way <= self.max_unsent_one_way;
        let item = if is_accepted { item } else { Item::Overrun };
        self.put(inner, item).is_ok() && is_accepted
    }

    /// The way of a request to the other end, if that is in this process.
    pub(super) fn direct_way(&self, request: &Request) -> Option<&Arc<DirectQueue>> {
        self.direct.get().filter(|_| is_direct_kind(request))
    }

    /// Counts bytes of an answer that was passed as a value.
    pub(super) fn count_direct(&self, bytes: usize) {
        if bytes > 0 {
            self.uncounted.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// The bytes that were counted since the last call.
    pub(super) fn take_direct_bytes(&self) -> u64 {
        match self.uncounted.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.uncounted.swap(0, Ordering::Relaxed),
        }
    }

    /// Sends messages between machines, and requests, this way.
    pub(super) fn set_direct(&self, queue: Arc<DirectQueue>) {
        let is_first = self.direct.set(queue).is_ok();
        assert!(is_first, "a mailbox is that of one connection");
    }

    /// Whether so many bytes of one-way requests are unsent that large ones are held back until the other side has taken some.
    pub(crate) fn is_behind(&self) -> bool {
        self.lock().unsent_one_way > self.max_before_large
    }

    /// Whether one-way requests were queued and not sent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.lock().unsent_one_way > 0
    }

    /// Records that this many bytes of one-way requests were sent.
    pub(super) fn release_one_way(&self, bytes: usize) {
        let mut inner = self.lock();
        // Once the limit is exceeded, it stays exceeded.
        if inner.unsent_one_way <= self.max_unsent_one_way {
            inner.unsent_one_way = inner.unsent_one_way.saturating_sub(bytes);
        }
    }

    /// Adds an item of a stream once most of the items before it are sent; `false` if the connection has ended. Blocks.
    pub(super) fn push_blocking(&self, item: Item, bytes: usize) -> bool {
        let mut inner = self.lock();
        while inner.backlog > MAX_BACKLOG && !inner.closed {
            inner = self.backlog_shrank.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        inner.backlog += bytes;
        drop(inner);
        self.push(item).is_ok()
    }

    /// Records that this many bytes of streams were sent.
    pub(super) fn release_stream(&self, bytes: usize) {
        let mut inner = self.lock();
        inner.backlog = inner.backlog.saturating_sub(bytes);
        drop(inner);
        self.backlog_shrank.notify_all();
    }

    /// Swaps all items into `items`, which is empty, so that both vectors keep their memory. Returns the forwarded frames.
    pub(super) fn take(&self, items: &mut Vec<Item>) -> ForwardedFrames {
        if !self.has_items.load(Ordering::Acquire) {
            return ForwardedFrames::default();
        }
        let mut inner = self.lock();
        std::mem::swap(&mut inner.items, items);
        self.has_items.store(false, Ordering::Relaxed);
        std::mem::take(&mut inner.forwarded)
    }

    /// Registers the task of `context` to be woken by the next item.
    pub(super) fn register(&self, context: &Context<'_>) {
        self.lock().waker = Some(context.waker().clone());
    }

    /// Accepts no more items, and returns those that are left.
    pub(super) fn close(&self) -> Vec<Item> {
        let mut inner = self.lock();
        inner.closed = true;
        inner.waker = None;
        inner.forwarded = ForwardedFrames::default();
        self.backlog_shrank.notify_all();
        std::mem::take(&mut inner.items)
    }

    /// Notes that the other side is active: something has arrived, or it takes bytes for which it had no room.
    pub(super) fn note_activity(&self) {
        self.has_activity.store(true, Ordering::Relaxed);
    }

    /// Notes that something has arrived, and whether the connection has something to lose now.
    pub(super) fn note_received(&self, holds_state: bool) {
        self.note_activity();
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.holds_state.store(holds_state, Ordering::Relaxed);
    }

    /// How many times something has arrived. A connection on which this number stays the same is idle.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Whether requests are unanswered or the service holds state, as of the last read.
    #[must_use]
    pub fn holds_state(&self) -> bool {
        self.holds_state.load(Ordering::Relaxed)
    }

    /// Whether the other side has been active since [`Mailbox::take_activity`]: something has arrived from it, or it has taken bytes
    /// that waited for room.
    #[must_use]
    pub fn has_activity(&self) -> bool {
        self.has_activity.load(Ordering::Relaxed)
    }

    /// Whether the other side has been active since the last call: see [`Mailbox::has_activity`].
    #[must_use]
    pub fn take_activity(&self) -> bool {
        self.has_activity.swap(false, Ordering::Relaxed)
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Has the driver answer the requests that have arrived and then close the connection.
    pub fn drain(&self) {
        let _ = self.push(Item::Drain);
    }

    /// Has the driver close the connection.
    pub fn hang_up(&self) {
        let _ = self.push(Item::Close);
    }
}
