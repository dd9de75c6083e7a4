//! The histories detect every planted bug of replica groups within a limited number of seeds, except a few bugs that
//! tests beside the code detect.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use model::planted_bug::{PlantedBug, plant};
use protocol::plant::Bug;

use crate::world;

/// The maximum number of seeds for each bug.
const SEEDS: u64 = 3_000;
/// Bugs that need an improbable sequence of faults. Unit tests detect them: see `replica` and `placement::member`.
const DIRECTED: [Bug; 3] = [Bug::AckOfAnyEpoch, Bug::LeaseOfLifeBefore, Bug::TellsWithoutLease];

thread_local! {
    /// The message of the last panic of this thread while a bug is planted in it.
    static PANIC_MESSAGE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps the panic messages of histories instead of printing them.
fn capture_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let is_kept =
                PANIC_MESSAGE.with_borrow_mut(|kept| kept.as_mut().map(|kept| *kept = info.to_string()).is_some());
            if !is_kept {
                before(info);
            }
        }));
    });
}

/// Runs the history of a seed with a planted bug. Returns the panic message if the history fails.
fn failure_with(bug: Bug, seed: u64) -> Option<String> {
    PANIC_MESSAGE.set(Some(String::new()));
    let _planted = plant(bug);
    let result = panic::catch_unwind(AssertUnwindSafe(|| world::run(seed)));
    let message = PANIC_MESSAGE.take();
    result.is_err().then(|| message.unwrap_or_default())
}

#[test]
#[allow(clippy::print_stderr, reason = "the number of seeds is reported")]
fn every_planted_bug_of_groups_is_detected() {
    capture_panics();
    let only = std::env::var("MORTAR_BUG").ok();
    let bugs = Bug::ALL.iter().copied().filter(|bug| bug.is_of_groups() && !DIRECTED.contains(bug));
    let bugs: Vec<Bug> = bugs.filter(|bug| only.as_ref().is_none_or(|only| format!("{bug:?}") == *only)).collect();
    let mut missed = Vec::new();
    for bug in bugs {
        match (0..SEEDS).find_map(|seed| Some((seed, failure_with(bug, seed)?))) {
            Some((seed, message)) => {
                let line = message.lines().nth(1).unwrap_or_default();
                eprintln!("{bug:?}: seed {seed}: {}", line.chars().take(110).collect::<String>());
            }
            None => {
                eprintln!("{bug:?}: MISSED");
                missed.push(bug);
            }
        }
    }
    assert!(missed.is_empty(), "no history detected {missed:?}");
}
