//! What must hold of a history, one file for each demand. Every checker is a function of the history alone (and of what
//! it is told in addition): no run is needed, and none is repeated.
//!
//! | module | demands | watches |
//! | --- | --- | --- |
//! | [`strict_serializability`] | transactions happen one by one, in the order of real time | V1–V4, C1–C4, P1–P4, W1 |
//! | [`snapshot`] | group snapshots fit into that order, and are not too old | V4, G1–G3 |
//! | [`pram`] | a client's single writes are seen by everyone in the order it made them | N1, D2–D4 |
//! | [`exactly_once`] | what was done was done once, and all of it | C1, C3 |
//! | [`acknowledged`] | what was acknowledged is there in the end | L1, C1, C4 |
//! | [`bank`] | whoever reads all accounts reads the same total | V1–V4, C1, P1 |
//!
//! They are sound: what they report is wrong, whatever happened that the history does not tell. And they report a
//! [`Violation`] that can be followed without the history at hand.

pub mod acknowledged;
pub mod bank;
pub mod exactly_once;
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
