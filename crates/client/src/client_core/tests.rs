//! What becomes of calls whose callers have gone, and of those of a machine that has panicked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use model::{ClassId, PageId};
use protocol::ident::{ClientId, HolderId};

use super::*;

/// A client that is not connected.
fn core() -> Arc<Core> {
    let session = Session::new(ClientId(1), HolderId(100), 50);
    let space = (SpaceId(1), vec![NodeId(1)]);
    Core::new(session, space, MonotonicClock::of_process(), ConnectOptions::default())
}

fn oid(number: u64) -> Oid {
    Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node: NodeId(1), number }, 1)
}

fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn calls_of_a_machine_that_has_panicked_end() {
    let core = core();
    let mut waiting = pin!(core.get(oid(1)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    let panicked = catch_unwind(AssertUnwindSafe(|| core.with_state(|_, _| panic!("an invariant is violated"))));
    assert!(panicked.is_err());
    assert_eq!(core.lock().map(drop).unwrap_err().kind(), ErrorKind::Internal);
    core.close();
    let Poll::Ready(ended) = waiting.as_mut().poll(&mut context) else { panic!("it waits for ever") };
    assert!(ended.is_err());
}

#[test]
fn calls_that_nobody_waits_for_are_cancelled() {
    let core = core();
    let oids = [1, 2, 3].map(oid);
    // Only the first of them is polled.
    assert!(poll_once(core.fetch_all(&oids)).is_pending());
    let (has_calls, waiters) = core.with_state(|state, _| (state.driver.has_calls(), state.waiters.len())).unwrap();
    assert!(!has_calls && waiters == 0, "{waiters} are left");
}
