//! Whole histories of many clients and several participants, checked from outside: a transaction commits at all its
//! participants, once, and some serial order of all transactions explains every read.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod brick;
mod cached;
mod check;
mod direct;
mod rows;

/// Runs a history from each of many seeds. `run` returns the number of committed transactions, whose sum must be large
/// enough for a meaningful test.
#[allow(clippy::print_stderr, reason = "the amount of work is reported")]
fn run_all(run: impl Fn(u64) -> usize) {
    let seeds = std::env::var("MORTAR_SEEDS").map_or(300, |seeds| seeds.parse().expect("a number of seeds"));
    let committed: usize = (0..seeds).map(run).sum();
    eprintln!("{seeds} seeds: {committed} transactions committed");
    assert!(committed as u64 > seeds * 10, "{committed} committed: too few for a meaningful test");
}
