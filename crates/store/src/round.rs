//! How threads wait together for the end of the round that their transactions are in.
//!
//! Who ends a round wakes one of them, and that one wakes the others: so the committer, who has more urgent things to do
//! than to wake sixty threads, spends on a round what it spends on one of them.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Threads that wait for the same end, which comes when this is dropped: so it comes in any case.
#[derive(Default)]
pub(crate) struct Round(Option<Arc<End>>);

/// The end of a round, to wait for.
#[derive(Default)]
pub(crate) struct End {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Waiting,
    /// One thread is woken.
    Reached,
    /// It has woken the others.
    Told,
}

impl Round {
    pub(crate) fn join(&mut self) -> Arc<End> {
        Arc::clone(self.0.get_or_insert_default())
    }

    /// The round, if anybody has joined it; the next one begins.
    pub(crate) fn take(&mut self) -> Option<Self> {
        self.0.take().map(|end| Self(Some(end)))
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            *lock(&end.state) = State::Reached;
            end.changed.notify_one();
        }
    }
}

impl End {
    pub(crate) fn wait(&self) {
        let mut state = lock(&self.state);
        while *state == State::Waiting {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if std::mem::replace(&mut *state, State::Told) == State::Reached {
            drop(state);
            self.changed.notify_all();
        }
    }
}

fn lock(mutex: &Mutex<State>) -> MutexGuard<'_, State> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_of_a_round_go_on_when_it_ends() {
        let mut round = Round::default();
        let waiting: Vec<_> = (0..3).map(|_| round.join()).map(|end| std::thread::spawn(move || end.wait())).collect();
        drop(round);
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
