//! Tasks that the threads of a brick leave for the task that drives its logical nodes.

use std::sync::{Mutex, PoisonError};

use model::{ContentId, NodeId, Object, Result, SpaceId};
use protocol::commit::{Answer, Request};
use protocol::ident::HlcTimestamp;
use protocol::lease::Ms;

use wire::driving::DeadlineTimer;

use super::node_driver::Life;
use super::node_manager::{Finished, JobId};

/// The store has made the oldest submitted rows of a logical node durable, or has refused them.
pub(crate) struct Written {
    pub(crate) node: NodeId,
    pub(crate) life: Life,
    pub(crate) result: Result<()>,
}

/// A task.
pub(crate) enum NodeTask {
    /// The store has written or refused the rows of a reservation.
    Reserved { node: NodeId },
    /// The store has made the rows of a finished upload durable, or has refused them.
    Staged { id: ContentId, is_durable: bool },
    /// A logical node sends a request to another one.
    Ask { from: NodeId, node: NodeId, seen: HlcTimestamp, request: Request<Object> },
    /// A logical node answers another one of this brick.
    Answer { to: NodeId, node: NodeId, answer: Answer },
    /// A message names a class that is not known here, so the schema may be outdated.
    RefreshSchema { space: SpaceId },
    /// Work of the manager of logical nodes has ended.
    JobEnded { job: JobId, finished: Finished },
}

/// The tasks, in order, and the time of the next deadline.
#[derive(Default)]
pub(crate) struct NodeInbox {
    tasks: Mutex<Vec<NodeTask>>,
    written: Mutex<Vec<Written>>,
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

    /// Adds a result of the store, in the order of its results. Its committer [sees to them](super::nodes::Nodes::on_replies) after a force;
    /// another thread, which refuses changes, wakes the task.
    pub(crate) fn add_written(&self, written: Written) {
        let is_refused = written.result.is_err();
        self.lock_written().push(written);
        if is_refused {
            self.timer.wake();
        }
    }

    /// The results of the store that are not handled.
    pub(crate) fn take_written(&self) -> Vec<Written> {
        std::mem::take(&mut *self.lock_written())
    }

    fn lock_written(&self) -> std::sync::MutexGuard<'_, Vec<Written>> {
        // The data is consistent between statements, so a poisoned lock is harmless.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
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
