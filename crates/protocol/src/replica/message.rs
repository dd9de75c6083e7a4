//! What members of a group say to each other.
//!
//! Links may lose, repeat and reorder. So each message says in which epoch it was said and about which log of which process:
//! in another epoch, and about another log, it says nothing.

use super::log::LogPoint;
use crate::placement::{Epoch, Incarnation};

/// A log of a brick: another after each restart, which may have lost its end, and after each copy, which replaces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogId {
    /// Whose.
    pub incarnation: Incarnation,
    /// After how many copies.
    pub copies: u32,
}

/// What members of a group say to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<R> {
    /// To the first member: this is what I have. Repeated until something comes.
    Hello {
        /// The epoch in which it is said.
        epoch: Epoch,
        /// Whose log it is about.
        log: LogId,
        /// The last point of each epoch in its log.
        runs: Vec<LogPoint>,
    },
    /// From the first member: records, or only news.
    Append {
        /// The epoch in which it is said; the records may be older.
        epoch: Epoch,
        /// For whose log it is.
        log: LogId,
        /// The record before.
        previous: LogPoint,
        /// Records, each with the epoch in which it was appended.
        records: Vec<(Epoch, R)>,
        /// What all members hold; `None` while the epoch has not started.
        durable: Option<u64>,
    },
    /// From the first member: what you lack is not in my log any more. Copy the state.
    Copy {
        /// The epoch in which it is said.
        epoch: Epoch,
        /// For whose log it is.
        log: LogId,
        /// Where the first member's log begins.
        base: u64,
    },
    /// To the first member: I hold this durably.
    Appended {
        /// The epoch in which it is said.
        epoch: Epoch,
        /// Whose log it is about.
        log: LogId,
        /// Up to where.
        position: u64,
        /// What is known there to be held by all.
        durable: Option<u64>,
    },
}
