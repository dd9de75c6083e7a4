//! What the threads of a brick leave for the task that drives its logical nodes, or for each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use model::{ContentId, NodeId, Result, SpaceId};
use protocol::lease::Ms;

use wire::driving::DeadlineTimer;

use super::node_manager::{Finished, JobId};
use super::routing::NodeEvent;

/// Answers the client that has finished an upload, with the size of its content.
pub(crate) type UploadAnswer = Box<dyn FnOnce(Result<u64>) + Send>;

/// What the task of the logical nodes does, within its runtime.
pub(crate) enum NodeTask {
    /// The store has written or refused the rows of a reservation.
    Reserved { node: NodeId },
    /// The store has made the rows of a finished upload durable, or has refused them. The client is answered when the logical node knows:
    /// its transaction may name the content then.
    Staged { id: ContentId, size: Result<u64>, answer: UploadAnswer },
    /// A message names a class that is not known here, so the schema may be outdated.
    RefreshSchema { space: SpaceId },
    /// The driver of a logical node has lost what it knew.
    Reopen { node: NodeId },
    /// The driver of a logical node has failed because rows are damaged.
    Damaged { node: NodeId, damage: Arc<str> },
    /// The manager of logical nodes may want something done.
    ManagerChanged,
    /// Work of the manager of logical nodes has ended.
    JobEnded { job: JobId, finished: Finished },
}

/// The tasks, in order, and the time of the next deadline.
#[derive(Default)]
pub(crate) struct NodeInbox {
    tasks: Mutex<Vec<NodeTask>>,
    events: Mutex<Vec<NodeEvent>>,
    /// Whether a thread handles events now, and looks for more before it ends.
    is_handling: AtomicBool,
    pub(crate) timer: DeadlineTimer,
}

impl NodeInbox {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<NodeTask>> {
        // The data is consistent between statements, so a poisoned lock is harmless.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a task.
    pub(crate) fn add(&self, task: NodeTask) {
        let is_first = {
            let mut list = self.lock();
            list.push(task);
            list.len() == 1
        };
        if is_first {
            self.timer.wake();
        }
    }

    /// Adds an event, in the order of the results of the store.
    pub(crate) fn add_event(&self, event: NodeEvent) {
        let is_handled = is_handled_by_bringer(&event);
        self.lock_events().push(event);
        if !is_handled && !self.is_handling.load(Ordering::SeqCst) {
            self.timer.wake();
        }
    }

    /// A thread begins to handle events.
    pub(crate) fn begin_events(&self) {
        self.is_handling.store(true, Ordering::SeqCst);
    }

    /// The thread has ended. What it has left, or has come since it looked, is for the task.
    pub(crate) fn end_events(&self) {
        self.is_handling.store(false, Ordering::SeqCst);
        if !self.lock_events().is_empty() {
            self.timer.wake();
        }
    }

    /// The events that are not handled.
    pub(crate) fn take_events(&self) -> Vec<NodeEvent> {
        std::mem::take(&mut *self.lock_events())
    }

    fn lock_events(&self) -> std::sync::MutexGuard<'_, Vec<NodeEvent>> {
        // The data is consistent between statements, so a poisoned lock is harmless.
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves all tasks to `list`, which must be empty.
    pub(crate) fn take(&self, list: &mut Vec<NodeTask>) {
        std::mem::swap(&mut *self.lock(), list);
    }

    /// Wakes the task at time `at` for the deadline of a logical node.
    pub(crate) fn wake_at(&self, at: Ms) {
        self.timer.set(at);
    }
}

/// Whether the thread that brings an event handles it soon, as the committer does after the replies to a force. Another thread brings a
/// refusal.
fn is_handled_by_bringer(event: &NodeEvent) -> bool {
    matches!(event, NodeEvent::Written { result: Ok(()), .. })
}
