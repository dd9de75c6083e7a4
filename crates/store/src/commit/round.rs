//! Rounds: threads wait together until the batch with their transactions is forced.
//!
//! The committer wakes one thread of a round, and that thread wakes the others. So ending a round costs the committer
//! one wake-up, even if sixty threads wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

const WAITING: u32 = 0;
/// One thread is woken.
const ONE_WOKEN: u32 = 1;
/// It has woken the others.
const OTHERS_WOKEN: u32 = 2;

/// Threads that wait for the same end. The round ends when this is dropped, also on errors.
#[derive(Default)]
pub(crate) struct Round(Option<Arc<RoundEnd>>);

/// The end of a round. It has no lock, for which threads that are woken together would queue.
#[derive(Default)]
pub(crate) struct RoundEnd(AtomicU32);

impl Round {
    pub(crate) fn join(&mut self) -> Arc<RoundEnd> {
        Arc::clone(self.0.get_or_insert_default())
    }

    /// The round, if a thread has joined it. The next round begins.
    pub(crate) fn take(&mut self) -> Option<Self> {
        self.0.take().map(|end| Self(Some(end)))
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end.0.store(ONE_WOKEN, Ordering::Release);
            wake(&end.0, 1);
        }
    }
}

impl RoundEnd {
    pub(crate) fn wait(&self) {
        while self.0.load(Ordering::Acquire) == WAITING {
            // A spurious wake-up is possible; the loop checks again.
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, WAITING, None);
        }
        if self.0.compare_exchange(ONE_WOKEN, OTHERS_WOKEN, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            wake(&self.0, i32::MAX as u32);
        }
    }
}

/// Wakes at most `most` threads.
fn wake(state: &AtomicU32, most: u32) {
    // Fails only for an invalid address, and a reference is valid.
    let _ = futex::wake(state, futex::Flags::PRIVATE, most);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_of_a_round_wake_when_it_ends() {
        let mut round = Round::default();
        let waiting: Vec<_> = (0..3).map(|_| round.join()).map(|end| std::thread::spawn(move || end.wait())).collect();
        drop(round);
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
