//! Bounds how many passwords are checked at a time, and in which order.
//!
//! A check takes 19 MiB and some tens of milliseconds of a processor, and any client can cause one. So few run at a time, few
//! wait, and known clients ([`login_throttle`](super::login_throttle)) go first: a storm of logins delays them by the checks
//! that already run.

use std::collections::VecDeque;
use std::sync::Arc;

use model::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use wire::transport::ConnectionSource;

use crate::plant::{Bug, planted};

/// Checks for known clients that may wait.
const MAX_KNOWN: usize = 1024;
/// Checks for others that may wait: at some tens of milliseconds each, the last one is done within a few seconds.
const MAX_UNKNOWN: usize = 64;
/// Of those, from one address.
const MAX_UNKNOWN_OF_SOURCE: usize = 16;

/// The checks that run and those that wait.
#[derive(Debug)]
pub(super) struct LoginQueue {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    known: VecDeque<Waiter>,
    unknown: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    source: ConnectionSource,
    permit: oneshot::Sender<CheckPermit>,
}

/// Allows one check, until it is dropped. Without a queue it allows nothing any more.
#[derive(Debug)]
pub(super) struct CheckPermit(Option<Arc<LoginQueue>>);

impl LoginQueue {
    /// A queue that runs at most `at_once` checks at a time.
    pub(super) fn new(at_once: usize) -> Arc<Self> {
        let (known, unknown) = (VecDeque::new(), VecDeque::new());
        Arc::new(Self { state: Mutex::new(State { free: at_once.max(1), known, unknown }) })
    }

    /// Waits until a check may run.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if too many wait already.
    pub(super) async fn acquire(self: &Arc<Self>, source: ConnectionSource, is_known: bool) -> Result<CheckPermit> {
        let waiting = {
            let mut state = self.state.lock();
            if state.free > 0 {
                state.free -= 1;
                return Ok(CheckPermit(Some(self.clone())));
            }
            state.enqueue(source, is_known)?
        };
        waiting.await.map_err(|_| busy())
    }
}

fn busy() -> Error {
    Error::new(ErrorKind::Unavailable, "the server is busy with other logins: try again in a few seconds")
}

impl State {
    fn enqueue(&mut self, source: ConnectionSource, is_known: bool) -> Result<oneshot::Receiver<CheckPermit>> {
        let queue = if is_known { &mut self.known } else { &mut self.unknown };
        // Clients that have disconnected take no place.
        queue.retain(|waiter| !waiter.permit.is_closed());
        let of_source = || queue.iter().filter(|waiter| waiter.source == source).count();
        let is_full = match is_known {
            true => queue.len() >= MAX_KNOWN,
            false => {
                queue.len() >= MAX_UNKNOWN
                    || source != ConnectionSource::Loopback && of_source() >= MAX_UNKNOWN_OF_SOURCE
            }
        };
        if is_full && !planted(Bug::LoginQueueUnbounded) {
            return Err(busy());
        }
        let (permit, waiting) = oneshot::channel();
        queue.push_back(Waiter { source, permit });
        Ok(waiting)
    }

    fn next(&mut self) -> Option<Waiter> {
        if planted(Bug::UnknownClientsFirst) {
            return self.unknown.pop_front().or_else(|| self.known.pop_front());
        }
        self.known.pop_front().or_else(|| self.unknown.pop_front())
    }
}

impl Drop for CheckPermit {
    fn drop(&mut self) {
        let Some(queue) = self.0.take() else { return };
        let mut state = queue.state.lock();
        while let Some(waiter) = state.next() {
            match waiter.permit.send(Self(Some(queue.clone()))) {
                Ok(()) => return,
                // The client has gone away. The permit is emptied: when it is dropped, it must not take the lock again.
                Err(mut permit) => drop(permit.0.take()),
            }
        }
        state.free += 1;
    }
}

#[cfg(test)]
mod tests {
    use model::planted_bug::assert_noticed;
    use std::net::IpAddr;

    use tokio::task::JoinSet;

    use super::*;

    fn source(number: u32) -> ConnectionSource {
        ConnectionSource::Network(IpAddr::from(number.to_be_bytes()))
    }

    /// Lets all tasks that can go on do so.
    async fn settle() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(test);
    }

    async fn known_clients_go_first() {
        let queue = LoginQueue::new(1);
        let running = queue.acquire(source(0), false).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        for (number, is_known) in [(1, false), (2, false), (3, true), (4, false), (5, true)] {
            let (queue, order) = (queue.clone(), order.clone());
            tasks.spawn(async move {
                let permit = queue.acquire(source(number), is_known).await.unwrap();
                order.lock().push(number);
                drop(permit);
            });
            settle().await;
        }
        assert!(order.lock().is_empty(), "one runs at a time");
        drop(running);
        tasks.join_all().await;
        assert_eq!(*order.lock(), [3, 5, 1, 2, 4]);
        assert_eq!(queue.state.lock().free, 1);
    }

    async fn checks_beyond_the_limit_of_waiting_ones_are_refused() {
        let queue = LoginQueue::new(1);
        let running = queue.acquire(source(0), false).await.unwrap();
        let mut tasks = JoinSet::new();
        let mut refused = 0;
        for number in 0..200 {
            let queue = queue.clone();
            let task = tasks.spawn(async move { queue.acquire(source(number), false).await });
            settle().await;
            refused += usize::from(task.is_finished());
        }
        assert_eq!(refused, 200 - MAX_UNKNOWN);
        let error = queue.acquire(source(1_000), false).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("busy"), "{error}");
        let known = tokio::spawn({
            let queue = queue.clone();
            async move { queue.acquire(source(1_000), true).await.is_ok() }
        });
        settle().await;
        drop(running);
        assert!(known.await.unwrap(), "known clients have a queue of their own");
    }

    #[test]
    fn one_address_does_not_fill_the_queue() {
        run(async {
            let queue = LoginQueue::new(1);
            let _running = queue.acquire(source(0), false).await.unwrap();
            let mut tasks = JoinSet::new();
            for _ in 0..100 {
                let queue = queue.clone();
                tasks.spawn(async move { queue.acquire(source(1), false).await });
            }
            settle().await;
            assert_eq!(queue.state.lock().unknown.len(), MAX_UNKNOWN_OF_SOURCE);
        });
    }

    #[test]
    fn clients_that_have_gone_away_are_passed_over() {
        run(async {
            let queue = LoginQueue::new(1);
            let running = queue.acquire(source(0), false).await.unwrap();
            let mut tasks = JoinSet::new();
            for number in 1..10 {
                let queue = queue.clone();
                tasks.spawn(async move { queue.acquire(source(number), false).await.is_ok() });
            }
            settle().await;
            tasks.shutdown().await;
            drop(running);
            queue.acquire(source(0), false).await.unwrap();
            assert_eq!(queue.state.lock().free, 1);
        });
    }

    /// Tests, each with the mistake that it notices.
    const DIRECTED: [(Bug, fn()); 2] = [
        (Bug::UnknownClientsFirst, || run(known_clients_go_first())),
        (Bug::LoginQueueUnbounded, || run(checks_beyond_the_limit_of_waiting_ones_are_refused())),
    ];

    #[test]
    fn planted_bugs_are_noticed() {
        for (bug, test) in DIRECTED {
            assert_noticed(&[bug], test);
        }
    }
}
