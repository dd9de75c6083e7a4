//! Results of the store, and messages between logical nodes of the brick: one thread at a time handles them, in order.
//!
//! That is the committer for the results of a force with few changes, so that no other thread has to wake up for them, and otherwise
//! the task of the logical nodes.

use std::iter::Peekable;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{MutexGuard, PoisonError};

use model::NodeId;
use store::RowReply;
use tracing::error;
use wire::cluster::Message;
use wire::driving::DeliveryScope;

use super::{Driver, Nodes, handle_local_request};
use crate::brick::node_driver::Life;
use crate::brick::node_inbox::NodeEvent;

/// Changes in a force whose results the committer handles itself. Waking another thread for them takes longer.
const MAX_REPLIES_BY_COMMITTER: usize = 32;
/// Rounds in which a thread handles events that the events before have brought.
const MAX_ROUNDS: usize = 16;

impl Nodes {
    /// Tells a driver what has become of its rows.
    pub(super) fn on_written(&self, node: NodeId, life: Life) -> RowReply {
        let inbox = self.inbox.clone();
        Box::new(move |result| inbox.add_event(NodeEvent::Written { node, life, result: result.map(drop) }))
    }

    /// The store has forced changes. The committer handles the results of a few, and goes on with the next force if there are many.
    pub(super) fn on_replies(&self, replies: usize) {
        let _delivery = DeliveryScope::enter();
        match self.handling.try_lock() {
            // What follows when a logical node is closed is for the task.
            Ok(handling) if replies <= MAX_REPLIES_BY_COMMITTER && self.lock_closing().is_empty() => {
                self.handle_events(&handling);
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
                let node = event.handled_by();
                // The thread may be the committer, which a mistake of one logical node must not end.
                if catch_unwind(AssertUnwindSafe(|| self.handle_event(event, &mut events))).is_err() {
                    error!(%node, "a logical node has panicked while it handled an event, and is not served any more");
                }
            }
        }
        self.inbox.end_events();
    }

    /// Handles an event, and the results of the store behind it that concern the same logical node. Needs no runtime, which the
    /// committer does not have.
    fn handle_event(&self, event: NodeEvent, following: &mut Peekable<impl Iterator<Item = NodeEvent>>) {
        let now = self.time.now();
        match event {
            NodeEvent::Written { node, life, result } => self.with_any_driver(node, |driver| {
                driver.handle_written(life, result, now);
                while let Some(NodeEvent::Written { life, result, .. }) =
                    following.next_if(|next| next.is_written_at(node))
                {
                    driver.handle_written(life, result, now);
                }
            }),
            NodeEvent::Answer { to, node, answer } => {
                self.act_at(to, |driver| driver.handle_answer(node, answer, now));
            }
            NodeEvent::Deferred { to, message } => self.act_at(to, |driver| driver.handle_deferred(&message)),
            NodeEvent::Ask { from, node, seen, request } => match self.served(node) {
                Some(served) => self.act(&served, |driver| handle_local_request(driver, from, (seen, request), now)),
                None => {
                    let Some(place) = self.cluster_view.placement.of(node) else { return };
                    if let Some(brick) = self.brick_links.handle_to(place.brick) {
                        brick.send(Message::Ask { node, epoch: place.epoch, seen, request });
                    }
                }
            },
        }
    }

    /// Calls `act` with the driver of a logical node, if that is served here.
    fn act_at(&self, node: NodeId, act: impl FnOnce(&mut Driver)) {
        if let Some(served) = self.served(node) {
            self.act(&served, act);
        }
    }
}
