//! Starts tasks on a runtime of tokio.
//!
//! The compiler generates the code of a task, some thirty functions, for each type of future and for each of tokio's two schedulers. That was
//! a quarter of the functions of `node`. So a task gets a boxed future here, whose type depends on its result only.

use std::pin::Pin;

use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

/// Starts a task on the runtime of the caller.
///
/// # Panics
/// Outside of a runtime.
#[track_caller]
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(boxed(future))
}

/// Starts a task on a runtime.
#[track_caller]
pub fn spawn_on<T: Send + 'static>(
    runtime: &Handle,
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    runtime.spawn(boxed(future))
}

/// Starts a task of a set on the runtime of the caller.
///
/// # Panics
/// Outside of a runtime.
#[track_caller]
pub fn spawn_in<T: Send + 'static>(
    set: &mut JoinSet<T>,
    future: impl Future<Output = T> + Send + 'static,
) -> AbortHandle {
    set.spawn(boxed(future))
}

/// Runs a job on a thread of the caller's runtime that may block.
///
/// # Panics
/// Outside of a runtime.
#[track_caller]
pub fn spawn_blocking<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let job: Box<dyn FnOnce() -> T + Send> = Box::new(job);
    tokio::task::spawn_blocking(job)
}

fn boxed<T>(future: impl Future<Output = T> + Send + 'static) -> Pin<Box<dyn Future<Output = T> + Send>> {
    Box::pin(future)
}
