//! What may block: on threads that may.

use model::{Error, ErrorKind, Result};
use wire::tasks;

/// Runs a job on a thread of the runtime that may block.
pub(crate) fn run(job: impl FnOnce() + Send + 'static) {
    drop(tasks::spawn_blocking(job));
}

/// Runs a job on a thread of the runtime that may block, and waits for what it returns.
///
/// # Errors
/// Those of the job; [`ErrorKind::Internal`] if it panicked or the runtime ends.
pub(crate) async fn wait<T: Send + 'static>(job: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let ended = |_| Error::new(ErrorKind::Internal, "work on the store panicked or was cancelled");
    tasks::spawn_blocking(job).await.map_err(ended)?
}
