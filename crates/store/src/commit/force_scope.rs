//! Forces by threads that wait for their own changes.
//!
//! The committer forces what other threads submit. A thread that has nothing to do before its change is durable can do that itself: then
//! it does not wait for the committer to wake up, nor for its own wake-up by the committer.
//!
//! 1. The thread that holds `Pipeline::force_lock` forces a batch, the committer or another one. If the committer holds it, its next batch has
//!    what this thread has submitted.
//! 2. The replies of a batch are sent before those of the next one: `Pipeline::reply_lock`.
//! 3. The committer is not woken for what this thread forces. It still writes the marker behind the last frames, and looks for room for
//!    transactions that wait.
//! 4. A thread forces only if it seems to be alone: the last batch had no more transactions than it has submitted. The batches of a committer
//!    that wakes up are larger, and leave a processor to threads that have work.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Core;
use crate::plant::{ForceBug, planted};

thread_local! {
    static SCOPE: ThreadScope = ThreadScope::default();
}

#[derive(Default)]
struct ThreadScope {
    is_entered: Cell<bool>,
    submitted: RefCell<Option<Submitted>>,
}

/// Transactions that a thread has submitted to a durable store. If it submits to several in a scope, the committers of the others force.
struct Submitted {
    to: Arc<Core>,
    transactions: usize,
}

/// While it exists, the thread forces what it submits to a durable store by [`ForceScope::force`], and the committer is not woken for that.
///
/// Enter it without locks that the receivers of replies need: they are called by this thread.
#[derive(Debug)]
#[must_use = "what was submitted is forced at its end"]
pub struct ForceScope {
    /// Whether this is the outermost scope of the thread. Others do nothing.
    is_outermost: bool,
    of_thread: PhantomData<*const ()>,
}

impl ForceScope {
    /// Begins a scope of this thread.
    pub fn enter() -> Self {
        let is_outermost = SCOPE.with(|scope| !scope.is_entered.replace(true));
        Self { is_outermost, of_thread: PhantomData }
    }

    /// Ends the scope, and forces what the thread has submitted to a store in it, unless other threads use the store, too. Says whether it has:
    /// then the replies have been sent.
    #[must_use]
    pub fn force(self) -> bool {
        self.end().is_some_and(|Submitted { to, transactions }| to.force_or_wake(transactions))
    }

    /// Ends the scope, and takes what was submitted in it.
    fn end(&self) -> Option<Submitted> {
        if !self.is_outermost {
            return None;
        }
        SCOPE.with(|scope| {
            scope.is_entered.set(false);
            scope.submitted.take()
        })
    }
}

impl Drop for ForceScope {
    /// Without [`ForceScope::force`], the committer forces what was submitted.
    fn drop(&mut self) {
        if let Some(Submitted { to, .. }) = self.end() {
            to.wake_committer();
        }
    }
}

/// The thread is about to submit transactions to a store.
pub(crate) fn note_submission(core: &Arc<Core>, transactions: usize) {
    SCOPE.with(|scope| {
        if !scope.is_entered.get() || !core.is_durable() {
            return;
        }
        let mut noted = scope.submitted.borrow_mut();
        let submitted = noted.get_or_insert_with(|| Submitted { to: core.clone(), transactions: 0 });
        if Arc::ptr_eq(&submitted.to, core) {
            submitted.transactions += transactions;
        }
    });
}

/// Whether this thread forces what it submits to a store.
pub(super) fn is_forced_by_this_thread(core: &Core) -> bool {
    SCOPE.with(|scope| scope.submitted.borrow().as_ref().is_some_and(|noted| std::ptr::eq(&*noted.to, core)))
}

impl Core {
    /// Forces what is queued, for a thread that has submitted so many transactions; if it is not alone, the committer does. Says whether this
    /// thread has forced it.
    fn force_or_wake(&self, submitted: usize) -> bool {
        let is_alone =
            self.pipeline.last_batch.load(Ordering::Relaxed) <= submitted || planted(ForceBug::OthersIgnored);
        let Some(spare) = is_alone.then(|| self.pipeline.force_lock.try_lock()).flatten() else {
            self.wake_committer();
            return false;
        };
        // The submitters of failed transactions have the error.
        let _ = self.force_locked(spare);
        if !planted(ForceBug::MarkerForgotten) {
            self.pipeline.queue.look_again();
        }
        true
    }
}
