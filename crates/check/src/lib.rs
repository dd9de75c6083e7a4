//! Histories of clients, and their checkers, one file for each property. A checker is a function of the [`history`] and its further
//! arguments: it needs no run, simulated or not.
//!
//! | module | demands | watches |
//! | --- | --- | --- |
//! | [`strict_serializability`] | transactions happen one by one, in the order of real time | V1–V4, C1–C4, P1–P4, W1 |
//! | [`snapshot`] | group snapshots fit into that order, and are not too old | V4, G1–G3 |
//! | [`pram`] | every client sees the single writes of a client in its order | N1, D2–D4 |
//! | [`exactly_once`] | every operation took effect exactly once and completely | C1, C3 |
//! | [`acknowledged`] | acknowledged changes are in the final state | L1, C1, C4 |
//! | [`bank`] | every read of all accounts returns the same total | V1–V4, C1, P1 |
//!
//! Checkers are sound: what they report is wrong, whatever the history omits. A reported [`Violation`] is
//! understandable without the history.

pub mod acknowledged;
pub mod bank;
pub mod exactly_once;
pub mod history;
pub mod pram;
pub mod snapshot;
pub mod strict_serializability;

mod graph;
mod lists;
mod time;
mod verdict;

pub use verdict::{Rule, Summary, Violation};

#[cfg(test)]
mod serial;
