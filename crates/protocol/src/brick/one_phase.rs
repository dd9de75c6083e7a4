//! One-phase commits at a logical node (C5): see [`Participant::commit_one_phase`](crate::commit::participant::Participant::commit_one_phase).
//!
//! The driver of the brick has all logical nodes of a joint request at hand. It [checks](Brick::check_one_phase) all parts, takes the
//! [proposals](Brick::propose) one after the other, and [commits](Brick::commit_one_phase) at the last of them, which all [learn](Brick::learn). If one node does not take
//! its part in, the joint request is handled as it is.

use std::hash::Hash;

use super::{Brick, Requester};
use crate::clock::ClockSkewError;
use crate::commit::coordinator::CommitReply;
use crate::commit::{Part, Request};
use crate::ident::{HlcTimestamp, TxnId};
use crate::lease::Ms;
use crate::validate::{Footprint, PageVersions};

impl<A: Clone, T: Clone + Hash> Brick<A, T> {
    /// What a transaction that is to be prepared holds here if it commits in one phase. `None` if it does not: it is known here, or this
    /// node coordinates it, or it conflicts. `versions` must have the [pages to look up](Brick::pages_to_look_up).
    #[must_use]
    pub fn check_one_phase(&self, request: &Request<T>, versions: &dyn PageVersions) -> Option<Footprint> {
        match request {
            Request::Prepare { txn, part, .. } if !self.finishing.contains_key(txn) => {
                self.participant.check_one_phase(*txn, part, versions)
            }
            _ => None,
        }
    }

    /// A time at which a transaction may commit here, later than `at`: see `Participant::propose`.
    ///
    /// # Errors
    /// If `at` is further ahead than clocks may differ.
    pub fn propose(&mut self, at: HlcTimestamp, now: Ms) -> Result<HlcTimestamp, ClockSkewError> {
        self.participant.propose(at, now)
    }

    /// Learns the time of a one-phase commit, which is the last proposal.
    ///
    /// # Errors
    /// If it is further ahead than clocks may differ.
    pub fn learn(&mut self, at: HlcTimestamp, now: Ms) -> Result<(), ClockSkewError> {
        self.participant.learn(at, now)
    }

    /// Commits a transaction that was [checked](Brick::check_one_phase), at a time that is not before the proposal of any participant. The
    /// driver makes the records of all participants durable together. One of them tells the coordinator how the transaction has ended.
    pub fn commit_one_phase(
        &mut self,
        part: (TxnId, Part<T>),
        footprint: &Footprint,
        timestamp: HlcTimestamp,
        conclude: Option<(A, CommitReply)>,
        now: Ms,
    ) {
        let conclude = conclude.map(|(to, reply)| (Requester::Coordinator(to), reply));
        self.participant.commit_one_phase(part, footprint, timestamp, conclude);
        self.drain(now);
    }
}

#[cfg(test)]
mod tests;
