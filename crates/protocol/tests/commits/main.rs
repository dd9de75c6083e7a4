//! Whole histories of many clients and several participants, checked from outside: what is committed is committed
//! everywhere, once, and in an order that explains all that was read.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

mod brick;
mod cached;
mod check;
mod direct;

/// How many seeds each test runs.
fn seeds() -> u64 {
    std::env::var("MORTAR_SEEDS").map_or(300, |seeds| seeds.parse().expect("a number of seeds"))
}
