//! Forces by threads that wait for their own changes.
//!
//! The committer forces what other threads submit. A thread that has nothing to do before its change is durable can do that itself: then
//! nothing waits for the committer to wake up, nor for this thread to hear of it.
//!
//! 1. One batch is forced at a time, whoever forces it: `Pipeline::force_lock`. If the committer forces one already, it takes what the
//!    thread has submitted next.
//! 2. The replies of a batch are sent before those of the next one: `Pipeline::reply_lock`.
//! 3. The committer is not woken for what the thread forces. It still writes the marker behind the last frames, and looks for room for
//!    transactions that wait.
//! 4. Only a thread that seems to be alone forces: the last batch had no more transactions than it has submitted. The batches of a committer
//!    that wakes up are larger, and leave a processor to threads that have work.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Core;

thread_local! {
    static SCOPE: ThreadScope = ThreadScope::default();
}

#[derive(Default)]
struct ThreadScope {
    is_entered: Cell<bool>,
    /// The store to which the thread has submitted changes. Only the first, if there are several.
    submitted_to: RefCell<Option<Arc<Core>>>,
    /// How many transactions these are.
    submitted: Cell<usize>,
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
        self.end().is_some_and(|(core, submitted)| core.force_or_wake(submitted))
    }

    /// Ends the scope. Returns the store to which the thread has submitted changes, and the number of these transactions.
    fn end(&self) -> Option<(Arc<Core>, usize)> {
        if !self.is_outermost {
            return None;
        }
        SCOPE.with(|scope| {
            scope.is_entered.set(false);
            Some((scope.submitted_to.take()?, scope.submitted.take()))
        })
    }
}

impl Drop for ForceScope {
    /// Without [`ForceScope::force`], the committer forces what was submitted.
    fn drop(&mut self) {
        if let Some((core, _)) = self.end() {
            core.pipeline.queue.wake();
        }
    }
}

/// The thread is about to submit transactions to a store.
pub(crate) fn note_submission(core: &Arc<Core>, transactions: usize) {
    SCOPE.with(|scope| {
        if scope.is_entered.get() && core.is_durable() {
            scope.submitted_to.borrow_mut().get_or_insert_with(|| core.clone());
            scope.submitted.set(scope.submitted.get() + transactions);
        }
    });
}

/// Whether this thread forces what it submits to a store.
pub(super) fn is_forced_by_this_thread(core: &Core) -> bool {
    SCOPE.with(|scope| scope.submitted_to.borrow().as_ref().is_some_and(|noted| std::ptr::eq(&**noted, core)))
}

impl Core {
    /// Forces what is queued, for a thread that has submitted so many transactions; if it is not alone, the committer does. Says whether this
    /// thread has forced it.
    fn force_or_wake(&self, submitted: usize) -> bool {
        let is_alone = self.pipeline.last_batch.load(Ordering::Relaxed) <= submitted;
        let Some(spare) = is_alone.then(|| self.pipeline.force_lock.try_lock()).flatten() else {
            self.pipeline.queue.wake();
            return false;
        };
        // The submitters of failed transactions have the error.
        let _ = self.force_locked(spare);
        let has_backlog = !self.pipeline.writer.lock().pending.backlog.is_empty();
        self.pipeline.queue.look_again(has_backlog);
        true
    }
}
