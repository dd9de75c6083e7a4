//! Where the transactions of all threads gather for the committer.
//!
//! The lock here is one that nobody is handed while he sleeps: on a busy machine, whoever got it so would keep all others
//! waiting until he runs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::commit::Job;
use crate::round::{End, Round};

/// Transactions on their way to be applied, and the committer, who waits for them.
#[derive(Default)]
pub(crate) struct Intake {
    waiting: Mutex<Waiting>,
    work: Condvar,
    /// Whether the committer waits for work.
    rests: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    jobs: Vec<Job>,
    /// Those who wait for some of them in their own threads.
    round: Round,
    /// Whether some were taken out and applied that no force has taken up yet.
    unforced: bool,
    closing: bool,
}

impl Waiting {
    /// Whether there is nothing to apply and nothing to force.
    fn is_idle(&self) -> bool {
        self.jobs.is_empty() && !self.unforced
    }
}

/// What the committer finds when it has rested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rested {
    /// There may be something to do.
    Called,
    /// Nothing came for so long.
    Idle,
    /// Nothing more will come.
    Closing,
}

impl Intake {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a transaction in, or gives it back if the store closes.
    pub(crate) fn add(&self, job: Job) -> Result<(), Job> {
        let mut waiting = self.lock();
        if waiting.closing {
            return Err(job);
        }
        waiting.jobs.push(job);
        Ok(())
    }

    /// The same for who waits until it is answered.
    pub(crate) fn join(&self, job: Job) -> Result<Arc<End>, Job> {
        let mut waiting = self.lock();
        if waiting.closing {
            return Err(job);
        }
        waiting.jobs.push(job);
        Ok(waiting.round.join())
    }

    /// Wakes the committer if it rests.
    pub(crate) fn call(&self) {
        if self.rests.load(Ordering::Relaxed) && self.rests.swap(false, Ordering::Relaxed) {
            self.work.notify_one();
        }
    }

    /// Moves what was taken in to `jobs`, to be applied; somebody has to force it later.
    pub(crate) fn take(&self, jobs: &mut VecDeque<Job>) {
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

    /// Waits, at most for so long, unless there is something to do.
    pub(crate) fn rest(&self, at_most: Option<Duration>) -> Rested {
        let mut waiting = self.lock();
        if waiting.is_idle() && !waiting.closing {
            // Set with the lock held: whoever adds something later sees it.
            self.rests.store(true, Ordering::Relaxed);
            waiting = match at_most {
                Some(limit) => self.work.wait_timeout(waiting, limit).unwrap_or_else(PoisonError::into_inner).0,
                None => self.work.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            };
        }
        let called = !self.rests.swap(false, Ordering::Relaxed);
        match *waiting {
            Waiting { closing: true, .. } => Rested::Closing,
            ref waiting if called || !waiting.is_idle() => Rested::Called,
            _ => Rested::Idle,
        }
    }

    /// Takes nothing in from now on, and tells the committer.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.rests.store(false, Ordering::Relaxed);
        self.work.notify_all();
    }
}
