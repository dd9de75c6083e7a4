//! The messages between members of a group.
//!
//! Links may lose, repeat and reorder messages. So each message names its epoch, and the log and process that it is
//! about. A message of another epoch, or about another log, is ignored.

use super::log::LogPoint;
use crate::placement::{Epoch, Incarnation};

/// The identifier of a brick's log. It changes at each restart, which may lose the end of the log, and with each copy,
/// which replaces the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogId {
    /// The start of the brick.
    pub incarnation: Incarnation,
    /// The number of copies since then.
    pub copies: u32,
}

/// A message between members of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<R> {
    /// To the first member: describes the sender's log. Repeated until it is answered.
    Hello {
        /// The epoch of the sender.
        epoch: Epoch,
        /// The sender's log.
        log: LogId,
        /// The last point of each epoch in this log.
        runs: Vec<LogPoint>,
    },
    /// From the first member: records, or only the durable position.
    Append {
        /// The epoch of the sender; the records may be older.
        epoch: Epoch,
        /// The receiver's log.
        log: LogId,
        /// The point of the record before the first one.
        previous: LogPoint,
        /// Records, each with the epoch in which it was appended.
        records: Vec<(Epoch, R)>,
        /// The position up to which all members hold the log; `None` while the epoch has not started.
        durable: Option<u64>,
    },
    /// From the first member: its log does not contain the missing records any more, so the receiver must copy the
    /// state.
    Copy {
        /// The epoch of the sender.
        epoch: Epoch,
        /// The receiver's log.
        log: LogId,
        /// The position at which the first member's log begins.
        base: u64,
    },
    /// To the first member: the durable position of the sender.
    Appended {
        /// The epoch of the sender.
        epoch: Epoch,
        /// The sender's log.
        log: LogId,
        /// The durable position.
        position: u64,
        /// The position up to which the sender knows that all members hold the log.
        durable: Option<u64>,
    },
}
