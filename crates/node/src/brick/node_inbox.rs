//! What the threads of a brick leave to the task that looks after its logical nodes.

use std::sync::{Mutex, PoisonError};

use model::{NodeId, Object, Result, SpaceId};
use protocol::commit::{Answer, Request};
use protocol::ident::HlcTimestamp;
use protocol::lease::Ms;

use wire::driving::DeadlineTimer;

use super::node_driver::Life;

/// Something to be done.
pub(crate) enum NodeTask {
    /// The store has made the oldest submitted rows of a logical node durable, or has refused them.
    Written { node: NodeId, life: Life, result: Result<()> },
    /// The store has done with the rows of a reservation of a logical node.
    Reserved { node: NodeId },
    /// A logical node asks another one.
    Ask { from: NodeId, node: NodeId, seen: HlcTimestamp, request: Request<Object> },
    /// A logical node answers another one of this brick.
    Answer { to: NodeId, node: NodeId, answer: Answer },
    /// Somebody knows a class that is not known here: there may be news in the catalogue.
    RefreshSchema { space: SpaceId },
}

/// What is to be done, in order, and when there is more.
#[derive(Default)]
pub(crate) struct NodeInbox {
    tasks: Mutex<Vec<NodeTask>>,
    pub(crate) timer: DeadlineTimer,
}

impl NodeInbox {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<NodeTask>> {
        // A list that is whole between any two statements: a panic elsewhere spoils nothing.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds something.
    pub(crate) fn add(&self, chore: NodeTask) {
        let is_first = {
            let mut list = self.lock();
            list.push(chore);
            list.len() == 1
        };
        if is_first {
            self.timer.wake();
        }
    }

    /// Moves all to `list`, which is empty.
    pub(crate) fn take(&self, list: &mut Vec<NodeTask>) {
        std::mem::swap(&mut *self.lock(), list);
    }

    /// A logical node has something to do at `at`.
    pub(crate) fn wake_at(&self, at: Ms) {
        self.timer.set(at);
    }
}
