//! Where the transactions of all threads gather for the committer.
//!
//! The lock here is one that nobody is handed while he sleeps: on a busy machine, whoever got it so would keep all others
//! waiting until he runs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Job;
use super::round::{Round, RoundEnd};

/// Transactions on their way to be applied, and the committer, who waits for them.
#[derive(Default)]
pub(crate) struct CommitQueue {
    state: Mutex<QueueState>,
    work: Condvar,
    /// Whether the committer waits for work.
    is_waiting: AtomicBool,
}

#[derive(Default)]
struct QueueState {
    jobs: Vec<Job>,
    /// Those who wait for some of them in their own threads.
    round: Round,
    /// Whether some were taken out and applied that no force has taken up yet.
    unforced: bool,
    closing: bool,
}

impl QueueState {
    /// Whether there is nothing to apply and nothing to force.
    fn is_idle(&self) -> bool {
        self.jobs.is_empty() && !self.unforced
    }
}

/// What the committer finds when it has rested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitOutcome {
    /// There may be something to do.
    Woken,
    /// Nothing came for so long.
    Idle,
    /// Nothing more will come.
    Closing,
}

impl CommitQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a transaction in, or gives it back if the store closes.
    pub(crate) fn push(&self, job: Job) -> Result<(), Job> {
        let mut waiting = self.lock();
        if waiting.closing {
            return Err(job);
        }
        waiting.jobs.push(job);
        Ok(())
    }

    /// The same for who waits until it is answered.
    pub(crate) fn push_and_join(&self, job: Job) -> Result<Arc<RoundEnd>, Job> {
        let mut waiting = self.lock();
        if waiting.closing {
            return Err(job);
        }
        waiting.jobs.push(job);
        Ok(waiting.round.join())
    }

    /// Wakes the committer if it rests.
    pub(crate) fn wake(&self) {
        if self.is_waiting.load(Ordering::Relaxed) && self.is_waiting.swap(false, Ordering::Relaxed) {
            self.work.notify_one();
        }
    }

    /// Moves what was taken in to `jobs`, to be applied; somebody has to force it later.
    pub(crate) fn drain(&self, jobs: &mut VecDeque<Job>) {
        let mut waiting = self.lock();
        waiting.unforced |= !waiting.jobs.is_empty();
        jobs.extend(waiting.jobs.drain(..));
    }

    /// The same for who forces it now. With the round of all that was taken in since the last one: they are woken
    /// together, however many times transactions were taken meanwhile.
    pub(crate) fn take_round(&self, jobs: &mut VecDeque<Job>) -> Option<Round> {
        let mut waiting = self.lock();
        waiting.unforced = false;
        jobs.extend(waiting.jobs.drain(..));
        waiting.round.take()
    }

    /// Whether there is something to apply, or something applied that no force has taken up.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn has_work(&self) -> bool {
        !self.lock().is_idle()
    }

    /// Waits, at most for so long, unless there is something to do.
    pub(crate) fn wait(&self, at_most: Option<Duration>) -> WaitOutcome {
        let mut waiting = self.lock();
        if waiting.is_idle() && !waiting.closing {
            // Set with the lock held: whoever adds something later sees it.
            self.is_waiting.store(true, Ordering::Relaxed);
            waiting = match at_most {
                Some(limit) => self.work.wait_timeout(waiting, limit).unwrap_or_else(PoisonError::into_inner).0,
                None => self.work.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            };
        }
        let called = !self.is_waiting.swap(false, Ordering::Relaxed);
        match *waiting {
            QueueState { closing: true, .. } => WaitOutcome::Closing,
            ref waiting if called || !waiting.is_idle() => WaitOutcome::Woken,
            _ => WaitOutcome::Idle,
        }
    }

    /// Takes nothing in from now on, and tells the committer.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.is_waiting.store(false, Ordering::Relaxed);
        self.work.notify_all();
    }
}
