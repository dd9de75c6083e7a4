//! The first member's view of another member, or of a copying brick.

use super::message::LogId;
use crate::placement::Incarnation;

/// The known state of a peer in one epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// The log that its messages describe.
    pub(super) log: LogId,
    /// The last common position of its log and the first member's, when it is known.
    pub(super) common: Option<u64>,
    /// Whether it must copy the state: it followed, and the first member's log has been trimmed beyond its end.
    pub(super) behind: bool,
    /// The durable position that it has reported.
    pub(super) acknowledged: u64,
    /// The position up to which records were sent to it.
    pub(super) sent: u64,
    /// The position up to which it knows that all members hold the log.
    pub(super) durable: Option<u64>,
}

impl Peer {
    /// A peer of this start, or of a later one, that has not sent a message yet.
    pub(super) fn new(life: Incarnation) -> Self {
        let log = LogId { incarnation: life, copies: 0 };
        Self { log, common: None, behind: false, acknowledged: 0, sent: 0, durable: None }
    }

    /// A peer whose log equals the first member's up to this position.
    pub(super) fn with(log: LogId, common: u64) -> Self {
        Self { log, common: Some(common), behind: false, acknowledged: 0, sent: common, durable: None }
    }

    /// Whether a report about a log is new: it is another log than before, or nothing was known about it.
    pub(super) fn is_new(&self, log: LogId, is_member: bool) -> bool {
        let may_be = !is_member || log.incarnation == self.log.incarnation;
        may_be && (log > self.log || (log == self.log && self.common.is_none()))
    }

    /// Whether messages to it are due, as far as its state is known.
    pub(super) fn lacks(&self, end: u64, news: Option<u64>) -> bool {
        self.behind || self.common.is_some() && (self.acknowledged < end || self.durable != news)
    }
}
