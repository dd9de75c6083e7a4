//! Whole histories of many clients and several participants, checked from outside: what is committed is committed
//! everywhere, once, and in an order that explains all that was read.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

mod brick;
mod cached;
mod check;
mod direct;
mod rows;

/// Runs a history from each of many seeds; it returns how many transactions committed, of which there must be enough to
/// mean anything.
#[allow(clippy::print_stderr, reason = "how much was run is worth knowing")]
fn run_all(run: impl Fn(u64) -> usize) {
    let seeds = std::env::var("MORTAR_SEEDS").map_or(300, |seeds| seeds.parse().expect("a number of seeds"));
    let committed: usize = (0..seeds).map(run).sum();
    eprintln!("{seeds} seeds: {committed} transactions committed");
    assert!(committed as u64 > seeds * 10, "{committed} committed: too few to mean anything");
}
