//! Runs a plan, with or without a planted bug, and says what has come of it.

use std::cell::RefCell;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use protocol::plant::{Bug, plant};

use crate::history::{History, Outcome};
use crate::plan::Plan;
use crate::world::{RunCounters, RunFailure, World};

/// What has come of a run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// What was found wrong, if anything was.
    pub wrong: Option<RunFailure>,
    /// What clients did and saw.
    pub history: History,
    /// How much has happened.
    pub count: RunCounters,
    /// All that happened, if it was to be written down.
    pub transcript: Vec<String>,
}

impl RunReport {
    /// How many operations ended well: a run in which none did means nothing.
    #[must_use]
    pub fn succeeded(&self) -> usize {
        self.history.operations.iter().filter(|operation| operation.outcome == Outcome::Ok).count()
    }

    /// A number that two runs share only if they were the same.
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
    /// What the last panic of this thread said, while a run is going on.
    static PANICKED: RefCell<Option<String>> = const { RefCell::new(None) };
    static RUNNING: RefCell<bool> = const { RefCell::new(false) };
}

/// Runs a plan. A machine that stops because it finds itself contradicted has found something wrong.
#[must_use]
pub fn run(plan: Plan, bug: Option<Bug>, trace: bool) -> RunReport {
    capture_panics();
    plant(bug);
    let mut world = World::new(plan);
    if trace {
        world.trace();
    }
    RUNNING.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(|| world.run()));
    RUNNING.set(false);
    plant(None);
    let wrong = match result {
        Ok(Ok(())) => None,
        Ok(Err(wrong)) => Some(wrong),
        Err(_) => Some(RunFailure::Rule(PANICKED.take().unwrap_or_default())),
    };
    let (history, transcript) = (world.history().clone(), world.transcript().to_vec());
    RunReport { wrong, history, count: world.count(), transcript }
}

/// What a machine says when it stops belongs into the report, and not on the screen.
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
