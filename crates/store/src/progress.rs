//! Progress of long jobs (backup, restore, scrub), and how to stop them.

use std::ops::ControlFlow;

use model::{Error, ErrorKind, Result};

/// The progress of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Rows and contents processed.
    pub items: u64,
    /// Bytes processed; what counts depends on the job.
    pub bytes: u64,
    /// Estimated bytes in all, 0 if unknown. The job may end below or above it.
    pub total_bytes: u64,
}

/// Receives the progress of a job and may stop it.
///
/// The job's thread calls it after every row, content and chunk, so it should be quick: store the numbers and show them
/// elsewhere, or check the clock before doing more.
pub trait Progress {
    /// Receives the progress. [`ControlFlow::Break`] stops the job with an error.
    fn report(&self, amount: Amount) -> ControlFlow<()>;
}

/// Ignores the progress and never stops the job.
impl Progress for () {
    fn report(&self, _: Amount) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl<F: Fn(Amount) -> ControlFlow<()>> Progress for F {
    fn report(&self, amount: Amount) -> ControlFlow<()> {
        self(amount)
    }
}

/// Reports the progress of `job`; an error if it is stopped.
pub(crate) fn report(progress: &dyn Progress, job: &str, amount: Amount) -> Result<()> {
    match progress.report(amount) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::new(ErrorKind::Unavailable, format!("the {job} was stopped"))),
    }
}
