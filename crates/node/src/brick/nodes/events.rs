//! Results of the store, and messages between logical nodes of the brick: one thread at a time handles them, in order.
//!
//! That is the thread that forced the log (the committer, or a caller within the process) for the results of a force with few changes, so
//! that no other thread has to wake up for them, and otherwise the task of the logical nodes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{MutexGuard, PoisonError};

use tracing::error;
use wire::driving::DeliveryScope;

use super::Nodes;
use crate::brick::routing::handle_event;

/// Changes in a force whose results the thread handles that forced them. Waking another thread for them takes longer.
const MAX_REPLIES_AT_ONCE: usize = 32;
/// Rounds in which a thread handles events that the events before have brought.
const MAX_ROUNDS: usize = 16;

impl Nodes {
    /// The store has forced changes. This thread handles the results of a few; the task does if there are many, and the next force begins.
    pub(super) fn on_replies(&self, replies: usize) {
        let _delivery = DeliveryScope::enter();
        match self.handling.try_lock() {
            // What follows when a logical node is closed is for the task.
            Ok(handling) if replies <= MAX_REPLIES_AT_ONCE && self.lock_closing().is_empty() => {
                self.handle_events(&handling);
                // One may have been closed meanwhile, and wait for a result that this thread has handled.
                if !self.lock_closing().is_empty() {
                    self.inbox.timer.wake();
                }
            }
            _ => self.inbox.timer.wake(),
        }
    }

    pub(super) fn lock_handling(&self) -> MutexGuard<'_, ()> {
        // There is no data, so a poisoned lock is harmless.
        self.handling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles events, and those that they bring.
    pub(super) fn handle_events(&self, _handling: &MutexGuard<'_, ()>) {
        self.inbox.begin_events();
        for _ in 0..MAX_ROUNDS {
            let events = self.inbox.take_events();
            if events.is_empty() {
                break;
            }
            let mut events = events.into_iter().peekable();
            while let Some(event) = events.next() {
                let node = event.target_node();
                // The thread may be the store's committer, which a mistake of one logical node must not end.
                if catch_unwind(AssertUnwindSafe(|| handle_event(&mut &*self, event, &mut events))).is_err() {
                    error!(%node, "a logical node has panicked while it handled an event, and is not served any more");
                }
            }
        }
        self.inbox.end_events();
    }
}
