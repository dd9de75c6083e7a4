//! Messages and requests between the two ends of a connection within a process: passed as values, and handled on the thread that sends
//! them.
//!
//! A [`DirectQueue`] is one direction of such a connection. It keeps the order in which messages were sent. One thread at a time takes
//! messages from it, so the receiver gets them in that order, whichever threads send and take. The same holds for requests.
//!
//! Senders hold the lock of their machine, and the receiver needs that of its own. So a message is never handled where it is sent: the
//! queue is noted for the [`DeliveryScope`] of the thread, which hands over what was sent once all locks are released. Outside of a scope,
//! the task of the receiving connection is woken for that.
//!
//! Answers pass through no queue. The service gives the answer to the [`DirectSink`] of the request. The sink wakes the task that waits for
//! it; the sink of a forwarded request answers the original request.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use bytes::Bytes;

use crate::cluster::Message;
use crate::link::DirectSink;
use crate::proto::request::Request;

/// Messages that one scope hands over before it leaves the rest to the tasks of connections: a thread that brings work of its own
/// is not kept with the work of others for long.
const MAX_HANDED_OVER: usize = 256;
/// Messages that a receiver gets at once, and locks its machine for.
const MAX_BATCH: usize = 32;
/// Messages in a queue beyond which the connection ends. The receiver has stopped.
const MAX_QUEUED: usize = 1 << 16;

/// A message on its way.
#[derive(Debug)]
pub(crate) struct SentMessage {
    pub(crate) message: Message,
    /// The position up to which the log of the sender, a brick, is forced.
    pub(crate) forced: Option<u64>,
}

/// A request on its way.
#[derive(Debug)]
pub(crate) struct SentRequest {
    pub(crate) request: Request,
    pub(crate) raw: Vec<Bytes>,
    pub(crate) sink: DirectSink,
}

/// What is on its way to the other end.
#[derive(Debug)]
pub(crate) enum Delivery {
    Message(SentMessage),
    Request(SentRequest),
}

/// The end of a connection that gets the messages of a queue.
pub(crate) trait Receiver: Send + Sync {
    /// Handles messages, in order, and requests, in order.
    fn receive(&self, deliveries: Vec<Delivery>);

    /// Has the task of the connection [take](DirectQueue::take_turn) the messages.
    fn wake(&self);

    /// Ends the connection: it does not keep up.
    fn handle_overrun(&self);
}

/// The messages of one direction.
#[derive(Default)]
pub(crate) struct DirectQueue(Mutex<State>);

#[derive(Default)]
struct State {
    messages: VecDeque<Delivery>,
    /// `None` before the receiver exists, and after it has ended.
    receiver: Option<Arc<dyn Receiver>>,
    consumer: Consumer,
    /// Whether the receiver has ended or is about to: it gets no more messages.
    is_closed: bool,
}

/// What consumes the messages of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Consumer {
    /// No thread and no task: the queue is empty.
    #[default]
    None,
    /// A thread.
    Thread,
    /// The task of the receiving connection, which is woken.
    Task,
}

impl std::fmt::Debug for DirectQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirectQueue").field("queued", &self.lock().messages.len()).finish_non_exhaustive()
    }
}

impl DirectQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent between statements, so a poisoned lock is harmless.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message; `false` if the receiver has ended.
    pub(crate) fn send(self: &Arc<Self>, delivery: Delivery) -> bool {
        let mut state = self.lock();
        if state.is_closed {
            return false;
        }
        if state.messages.len() >= MAX_QUEUED {
            let receiver = state.receiver.clone();
            drop(state);
            receiver.inspect(|receiver| receiver.handle_overrun());
            return false;
        }
        state.messages.push_back(delivery);
        if state.consumer != Consumer::None || state.receiver.is_none() {
            return true;
        }
        state.consumer = if DeliveryScope::note(self) { Consumer::Thread } else { Consumer::Task };
        let woken = state.receiver.clone().filter(|_| state.consumer == Consumer::Task);
        drop(state);
        woken.inspect(|receiver| receiver.wake());
        true
    }

    /// Sets the receiver. It is woken if there are messages already.
    pub(crate) fn open(&self, receiver: Arc<dyn Receiver>) {
        let mut state = self.lock();
        assert!(state.receiver.is_none(), "a direction of a connection has one receiver");
        state.receiver = Some(receiver.clone());
        let has_messages = !state.messages.is_empty();
        if has_messages {
            state.consumer = Consumer::Task;
        }
        drop(state);
        if has_messages {
            receiver.wake();
        }
    }

    /// Passes messages to the receiver until none is left, or `left` has become 0, which each message lowers; then the task of the
    /// receiver is woken for the rest. Only the consumer calls this.
    fn hand_over(&self, left: &mut usize) {
        loop {
            let mut state = self.lock();
            let Some(receiver) = state.receiver.clone() else { return };
            if *left == 0 && !state.is_closed && !state.messages.is_empty() {
                state.consumer = Consumer::Task;
                drop(state);
                return receiver.wake();
            }
            if state.messages.is_empty() {
                state.consumer = Consumer::None;
                let ended = state.is_closed.then(|| state.receiver.take());
                drop(state);
                return drop(ended);
            }
            // A closed queue is emptied, whatever is left.
            let at_most = if *left == 0 { MAX_BATCH } else { MAX_BATCH.min(*left) };
            let count = state.messages.len().min(at_most);
            let batch = state.messages.drain(..count).collect();
            drop(state);
            *left = left.saturating_sub(count);
            receiver.receive(batch);
        }
    }

    /// Passes some messages to the receiver, for its task, which was woken for that.
    pub(crate) fn take_turn(&self) {
        let mut left = MAX_HANDED_OVER;
        self.hand_over(&mut left);
    }

    /// The receiver ends in good order: it gets the messages that were sent before, and none after.
    pub(crate) fn finish(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        // A thread takes all of them. The task has ended.
        if state.consumer != Consumer::Thread {
            state.consumer = Consumer::Thread;
            drop(state);
            self.hand_over(&mut 0);
        }
    }

    /// The receiver ends: all messages are lost.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let lost = (std::mem::take(&mut state.messages), state.receiver.take());
        drop(state);
        drop(lost);
    }
}

thread_local! {
    static SCOPE: ThreadScope = ThreadScope::default();
}

/// What a thread is to hand over.
#[derive(Default)]
struct ThreadScope {
    /// Number of scopes within each other.
    depth: Cell<usize>,
    noted: RefCell<VecDeque<Arc<DirectQueue>>>,
}

/// Hands over what this thread sends within the process, when it ends. Enter it before locks are taken, so that they are released by then.
///
/// Within another scope it does nothing: the outer one hands over.
#[derive(Debug)]
#[must_use = "messages are handed over when it is dropped"]
pub struct DeliveryScope(PhantomData<*const ()>);

impl ThreadScope {
    /// The queue that was noted first. Handing it over notes others, so the list is not borrowed meanwhile.
    fn take_noted(&self) -> Option<Arc<DirectQueue>> {
        self.noted.borrow_mut().pop_front()
    }
}

impl DeliveryScope {
    /// Begins a scope of this thread.
    pub fn enter() -> Self {
        SCOPE.with(|scope| scope.depth.set(scope.depth.get() + 1));
        Self(PhantomData)
    }

    /// Notes a claimed queue; `false` outside of scopes.
    fn note(queue: &Arc<DirectQueue>) -> bool {
        SCOPE.with(|scope| {
            let is_within = scope.depth.get() > 0;
            if is_within {
                scope.noted.borrow_mut().push_back(queue.clone());
            }
            is_within
        })
    }
}

impl Drop for DeliveryScope {
    fn drop(&mut self) {
        SCOPE.with(|scope| {
            if scope.depth.get() == 1 {
                let mut left = if thread::panicking() { 0 } else { MAX_HANDED_OVER };
                // What is handled sends more, which this notes, too.
                while let Some(queue) = scope.take_noted() {
                    queue.hand_over(&mut left);
                }
            }
            scope.depth.set(scope.depth.get() - 1);
        });
    }
}

#[cfg(test)]
mod tests;
