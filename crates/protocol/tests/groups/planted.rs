//! Every mistake that can be planted in groups is noticed by the histories, within a bounded number of seeds; but a few,
//! which the tests beside the code are there for.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use model::planted_bug::{PlantedBug, plant};
use protocol::plant::Bug;

use crate::world;

/// Seeds that are tried for each mistake at most.
const SEEDS: u64 = 3_000;
/// What takes so many accidents that tests of one input at a time notice it instead: see `replica` and `placement::member`.
const DIRECTED: [Bug; 3] = [Bug::AckOfAnyEpoch, Bug::LeaseOfLifeBefore, Bug::TellsWithoutLease];

thread_local! {
    /// What the last panic of this thread said, while a mistake is planted here.
    static PANIC_MESSAGE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// What histories say when they stop is kept, and not shown.
fn capture_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let is_kept =
                PANIC_MESSAGE.with_borrow_mut(|said| said.as_mut().map(|said| *said = info.to_string()).is_some());
            if !is_kept {
                before(info);
            }
        }));
    });
}

/// What the history of a seed is stopped by, if it is, with a mistake planted.
fn noticed(bug: Bug, seed: u64) -> Option<String> {
    PANIC_MESSAGE.set(Some(String::new()));
    let _planted = plant(bug);
    let result = panic::catch_unwind(AssertUnwindSafe(|| world::run(seed)));
    let said = PANIC_MESSAGE.take();
    result.is_err().then(|| said.unwrap_or_default())
}

#[test]
#[allow(clippy::print_stderr, reason = "how soon each is noticed is worth knowing")]
fn every_planted_bug_of_groups_is_noticed() {
    capture_panics();
    let only = std::env::var("MORTAR_BUG").ok();
    let bugs = Bug::ALL.iter().copied().filter(|bug| bug.is_of_groups() && !DIRECTED.contains(bug));
    let bugs: Vec<Bug> = bugs.filter(|bug| only.as_ref().is_none_or(|only| format!("{bug:?}") == *only)).collect();
    let mut missed = Vec::new();
    for bug in bugs {
        match (0..SEEDS).find_map(|seed| Some((seed, noticed(bug, seed)?))) {
            Some((seed, said)) => {
                let line = said.lines().nth(1).unwrap_or_default();
                eprintln!("{bug:?}: seed {seed}: {}", line.chars().take(110).collect::<String>());
            }
            None => {
                eprintln!("{bug:?}: MISSED");
                missed.push(bug);
            }
        }
    }
    assert!(missed.is_empty(), "nobody noticed {missed:?}");
}
