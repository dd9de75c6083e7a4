//! The queue of transactions from all threads to the committer.
//!
//! Its lock is never handed directly to a sleeping thread (`std::sync::Mutex`, not `parking_lot`): on a busy machine
//! all other threads would wait until that thread runs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Job;
use super::round::{Round, RoundEnd};

/// Transactions that are not applied yet, and the committer's wait for them.
#[derive(Default)]
pub(crate) struct CommitQueue {
    state: Mutex<QueueState>,
    work: Condvar,
    /// Whether the committer waits for transactions.
    is_waiting: AtomicBool,
}

#[derive(Default)]
struct QueueState {
    jobs: Vec<Job>,
    /// The threads that wait for some of the jobs.
    round: Round,
    /// Whether jobs were drained and applied that no force has included.
    unforced: bool,
    /// Whether the committer waits for a limited time.
    is_wait_limited: bool,
    closing: bool,
}

impl QueueState {
    /// Whether there is nothing to apply and nothing to force.
    fn is_idle(&self) -> bool {
        self.jobs.is_empty() && !self.unforced
    }
}

/// Why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitOutcome {
    /// There may be something to do.
    Woken,
    /// Nothing was queued before the time limit.
    Idle,
    /// No further transaction will be queued.
    Closing,
}

impl CommitQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a transaction, or returns it if the store is closing.
    pub(crate) fn push(&self, job: Job) -> Result<(), Box<Job>> {
        let mut state = self.lock();
        if state.closing {
            return Err(Box::new(job));
        }
        state.jobs.push(job);
        Ok(())
    }

    /// Queues transactions that are taken together, or returns them if the store is closing.
    pub(crate) fn push_all(&self, mut jobs: Vec<Job>) -> Result<(), Vec<Job>> {
        let mut state = self.lock();
        if state.closing {
            return Err(jobs);
        }
        state.jobs.append(&mut jobs);
        Ok(())
    }

    /// As [`CommitQueue::push`], for a thread that waits for the reply.
    pub(crate) fn push_and_join(&self, job: Job) -> Result<Arc<RoundEnd>, Box<Job>> {
        let mut state = self.lock();
        if state.closing {
            return Err(Box::new(job));
        }
        state.jobs.push(job);
        Ok(state.round.join())
    }

    /// Wakes the committer if it waits.
    pub(crate) fn wake(&self) {
        if !self.is_waiting.load(Ordering::Relaxed) {
            return;
        }
        // Under the lock: otherwise the committer may have said that it waits, and not begun to. Then it misses the notification, and threads that
        // queue something later do not notify it, because it does not seem to wait.
        let state = self.lock();
        let is_waiting = self.is_waiting.swap(false, Ordering::Relaxed);
        drop(state);
        if is_waiting {
            self.work.notify_one();
        }
    }

    /// Another thread has forced something. The committer must look whether to write a marker, and whether there is room for transactions that
    /// wait. It is woken unless its wait ends by itself soon.
    pub(crate) fn look_again(&self) {
        let mut state = self.lock();
        if !state.is_wait_limited {
            state.unforced = true;
            drop(state);
            self.wake();
        }
    }

    /// Whether the committer waits until it is woken, however long that takes.
    #[cfg(test)]
    pub(crate) fn is_committer_resting(&self) -> bool {
        let state = self.lock();
        self.is_waiting.load(Ordering::Relaxed) && !state.is_wait_limited
    }

    /// Moves the queued transactions to `jobs` for applying. A later force must include them.
    pub(crate) fn drain(&self, jobs: &mut VecDeque<Job>) {
        let mut state = self.lock();
        state.unforced |= !state.jobs.is_empty();
        jobs.extend(state.jobs.drain(..));
    }

    /// As [`CommitQueue::drain`], for a force that follows. Also returns the round of all threads that joined since the
    /// last force: they are woken together, however many drains there were.
    pub(crate) fn take_round(&self, jobs: &mut VecDeque<Job>) -> Option<Round> {
        let mut state = self.lock();
        state.unforced = false;
        jobs.extend(state.jobs.drain(..));
        state.round.take()
    }

    /// Whether a transaction is queued, or applied and not included in a force.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn has_work(&self) -> bool {
        !self.lock().is_idle()
    }

    /// Waits for work, at most for `at_most`.
    pub(crate) fn wait(&self, at_most: Option<Duration>) -> WaitOutcome {
        let mut state = self.lock();
        if state.is_idle() && !state.closing {
            // Set under the lock, so a thread that queues something later sees it.
            self.is_waiting.store(true, Ordering::Relaxed);
            state.is_wait_limited = at_most.is_some();
            state = match at_most {
                Some(limit) => self.work.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0,
                None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        let woken = !self.is_waiting.swap(false, Ordering::Relaxed);
        state.is_wait_limited = false;
        match *state {
            QueueState { closing: true, .. } => WaitOutcome::Closing,
            ref state if woken || !state.is_idle() => WaitOutcome::Woken,
            _ => WaitOutcome::Idle,
        }
    }

    /// Refuses transactions from now on and wakes the committer.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.is_waiting.store(false, Ordering::Relaxed);
        self.work.notify_all();
    }
}
