//! Another member, or one who copies, as the first member sees it.

use super::message::LogId;
use crate::placement::Incarnation;

/// What is known of one of them, in one epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// The log that it speaks of.
    pub(super) log: LogId,
    /// Where what it may lack begins, once it has said so.
    pub(super) common: Option<u64>,
    /// It followed, and the log has been trimmed beyond what it has: it must copy the state.
    pub(super) behind: bool,
    /// What it holds durably, as it has said.
    pub(super) acknowledged: u64,
    /// What was sent to it.
    pub(super) sent: u64,
    /// What it knows to be held by all.
    pub(super) durable: Option<u64>,
}

impl Peer {
    /// One of this life, or of any later one, that has said nothing yet.
    pub(super) fn unknown(life: Incarnation) -> Self {
        let log = LogId { incarnation: life, copies: 0 };
        Self { log, common: None, behind: false, acknowledged: 0, sent: 0, durable: None }
    }

    /// Its log has this in common with the first member's.
    pub(super) fn with(log: LogId, common: u64) -> Self {
        Self { log, common: Some(common), behind: false, acknowledged: 0, sent: common, durable: None }
    }

    /// Whether what it says of a log is news: it is another one than before, or nothing was known.
    pub(super) fn is_new(&self, log: LogId, is_member: bool) -> bool {
        let may_be = !is_member || log.incarnation == self.log.incarnation;
        may_be && (log > self.log || (log == self.log && self.common.is_none()))
    }

    /// Whether it has still to be told something, as far as it has spoken.
    pub(super) fn lacks(&self, end: u64, news: Option<u64>) -> bool {
        self.behind || self.common.is_some() && (self.acknowledged < end || self.durable != news)
    }
}
