//! Whole clusters from seeds: nothing is found wrong, and a seed is the same run each time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use sim::plan::Topology;
use sim::run::run;
use sim::workload::{Choice, Faults, Workload, plan};

/// Seeds that are run.
const SEEDS: u64 = 300;
/// Of so many seeds one is run twice.
const REPEATED: u64 = 4;

/// A run in which clocks drift for so long that a peer server would refuse its clients, if the drift had no limit.
#[test]
fn clocks_that_drift_for_long_do_not_disconnect_clients() {
    let choice = Choice::of(Topology::Peer, Workload::Hot, Faults::Crashes);
    let report = run(plan(174, choice), None, false);
    assert_eq!(report.wrong, None);
}

#[test]
#[allow(clippy::print_stderr, reason = "how much was run is worth knowing")]
fn nothing_is_found_wrong_and_a_seed_is_the_same_each_time() {
    let seeds = std::env::var("MORTAR_SEEDS").map_or(SEEDS, |seeds| seeds.parse().unwrap());
    let (next, events, succeeded) = (AtomicU64::new(0), AtomicU64::new(0), AtomicUsize::new(0));
    let turned_away = AtomicU64::new(0);
    let run_some = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return;
            }
            let run = || run(plan(seed, Choice::default()), None, false);
            let first = run();
            if let Some(wrong) = first.wrong {
                panic!("seed {seed}: {wrong}");
            }
            if seed % REPEATED == 0 {
                assert_eq!(first.digest(), run().digest(), "seed {seed} is not the same each time");
            }
            events.fetch_add(first.count.events, Ordering::Relaxed);
            succeeded.fetch_add(first.success_count(), Ordering::Relaxed);
            turned_away.fetch_add(first.count.turned_away, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(run_some);
        }
    });
    let (events, succeeded) = (events.into_inner(), succeeded.into_inner());
    let turned_away = turned_away.into_inner();
    eprintln!(
        "{seeds} seeds: {events} events, {succeeded} operations ended well, {turned_away} calls were turned away"
    );
    assert!(turned_away > seeds / 10, "bricks that fail are hardly ever waited for by too many");
    assert!(succeeded as u64 > seeds * 50, "{succeeded} operations are too few to mean anything");
}
