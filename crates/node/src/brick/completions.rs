//! How durable commits come back from the store's thread.
//!
//! One force makes many commits durable, of many connections. The store's thread only appends them to a list here and
//! wakes the I/O thread once; that thread hands them to their connections, which is no work for the kernel.

use std::future::poll_fn;
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Instant;

use model::{Outcome, Result};
use wire::link::DeferredResponder;

use super::service::decided;
use crate::server::ThreadCounters;

/// A commit that is decided.
pub(crate) struct Completion {
    pub(crate) deferred: DeferredResponder,
    pub(crate) result: Result<Outcome>,
    pub(crate) begun: Instant,
}

/// Commits that are decided and not answered. As many at most as requests may be unanswered.
#[derive(Default)]
pub(crate) struct Completions {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    list: Vec<Completion>,
    /// Set while the list is empty and the I/O thread waits.
    waker: Option<Waker>,
}

impl Completions {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        // The data is consistent between statements, so a poisoned lock is harmless.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, completion: Completion) {
        let mut inner = self.lock();
        inner.list.push(completion);
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Answers whatever is decided, for ever.
    pub(crate) async fn run(&self, metrics: &ThreadCounters) {
        let mut list = Vec::new();
        poll_fn(|context| {
            let mut inner = self.lock();
            if inner.list.is_empty() {
                inner.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            std::mem::swap(&mut inner.list, &mut list);
            drop(inner);
            for Completion { deferred, result, begun } in list.drain(..) {
                metrics.record_commit(begun.elapsed(), &result);
                let (response, raw) = decided(result);
                deferred.send(response, if raw.is_empty() { Vec::new() } else { vec![raw] });
            }
            // More of the same force may be on its way: a look costs less than to be woken for each.
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        })
        .await;
    }
}
