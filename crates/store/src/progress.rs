//! How long jobs (backup, restore, scrub) tell how far they are, and how they are stopped.

use std::ops::ControlFlow;

use model::{Error, ErrorKind, Result};

/// How far a job has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Objects done.
    pub objects: u64,
    /// Bytes done, as the job counts them.
    pub bytes: u64,
    /// About how many bytes there are in all; 0 if that is not known. The end may come before or behind it.
    pub total_bytes: u64,
}

/// Is told how far a job has come, and may end it.
///
/// The thread that does the job calls it after every object and every chunk, so it should be quick: keep the numbers and
/// show them elsewhere, or look at the clock before doing more.
pub trait Progress {
    /// The job has come so far; [`ControlFlow::Break`] ends it with an error.
    fn report(&self, amount: Amount) -> ControlFlow<()>;
}

/// Nobody looks, and the job goes on to its end.
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

/// Tells how far `job` has come; an error if it is to end.
pub(crate) fn report(progress: &dyn Progress, job: &str, amount: Amount) -> Result<()> {
    match progress.report(amount) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => {
            Err(Error::new(ErrorKind::Unavailable, format!("the {job} was stopped before its end")))
        }
    }
}
