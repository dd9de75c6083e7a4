//! Runs a plan, with or without a planted bug, and returns a report.

use std::cell::RefCell;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use crate::bug::Bug;
use crate::counters::RunCounters;
use crate::plan::Plan;
use crate::world::{RunFailure, World};
use check::history::{History, Outcome};

/// The report of a run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// The failure, if there was one.
    pub wrong: Option<RunFailure>,
    /// What clients did and saw.
    pub history: History,
    /// The counters.
    pub count: RunCounters,
    /// The transcript, if it was recorded.
    pub transcript: Vec<String>,
}

impl RunReport {
    /// The number of successful operations: a run without any proves nothing.
    #[must_use]
    pub fn success_count(&self) -> usize {
        self.history.operations.iter().filter(|operation| operation.outcome == Outcome::Ok).count()
    }

    /// A hash of the run: identical runs have the same digest.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let mut text = Vec::new();
        // Writing into memory does not fail.
        let _ = self.history.write(&mut text);
        (text, self.count.events, self.count.simulated_ms).hash(&mut hasher);
        self.wrong.as_ref().map(ToString::to_string).hash(&mut hasher);
        hasher.finish()
    }
}

thread_local! {
    /// The message of this thread's last panic during a run.
    static PANICKED: RefCell<Option<String>> = const { RefCell::new(None) };
    static RUNNING: RefCell<bool> = const { RefCell::new(false) };
}

/// Runs a plan. A failed assertion of a machine is a failure of the run.
#[must_use]
pub fn run(plan: Plan, bug: Option<Bug>, trace: bool) -> RunReport {
    capture_panics();
    let _planted = bug.map(Bug::plant);
    let mut world = World::new(plan);
    if trace {
        world.trace();
    }
    RUNNING.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(|| world.run()));
    RUNNING.set(false);
    let wrong = match result {
        Ok(Ok(())) => None,
        Ok(Err(wrong)) => Some(wrong),
        Err(_) => Some(RunFailure::Rule(PANICKED.take().unwrap_or_default())),
    };
    let (history, transcript) = (world.history().clone(), world.transcript().to_vec());
    RunReport { wrong, history, count: world.count(), transcript }
}

/// Collects panic messages for the report instead of printing them.
fn capture_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if RUNNING.with_borrow(|running| *running) {
                PANICKED.set(Some(info.to_string()));
            } else {
                before(info);
            }
        }));
    });
}
