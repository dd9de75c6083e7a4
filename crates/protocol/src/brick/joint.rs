//! Joint requests at the first of their logical nodes (C5): see [`crate::commit::joint`].

use std::collections::BTreeMap;
use std::hash::Hash;

use model::NodeId;

use super::{Brick, FINISH_MS, Output};
use crate::clock::ClockSkewError;
use crate::commit::coordinator::{self, CommitReply, Coordinator};
use crate::commit::joint::{CollectedAnswers, whole_parts};
use crate::commit::{Answer, AppendOffsets, Outcome, Part, Refusal, Rejected, Request};
use crate::ident::{HlcTimestamp, TxnId};
use crate::lease::Ms;
use crate::plant::{Bug, planted};

/// A transaction that this node finishes as a coordinator.
#[derive(Clone, Debug)]
pub(super) struct FinishingTxn<A, T> {
    pub(super) coordinator: Coordinator<T>,
    /// Who has asked for the outcome.
    requester: Option<A>,
    /// When a joint request made this node the coordinator (C5); `None` if the former one may be gone (C2).
    joint_since: Option<Ms>,
}

impl<A, T: Clone> FinishingTxn<A, T> {
    /// A transaction whose coordinator may be gone.
    pub(super) fn orphan(coordinator: Coordinator<T>) -> Self {
        Self { coordinator, requester: None, joint_since: None }
    }

    /// Until when the requester waits for the outcome of a joint request. Later it coordinates the transaction itself.
    fn joint_until(&self) -> Option<Ms> {
        let is_undecided = self.coordinator.reply().is_none();
        self.joint_since.filter(|_| is_undecided).map(|since| since + FINISH_MS)
    }

    /// Repeats unanswered questions that are due. Those of an undecided joint request are repeated by its requester, to each node.
    pub(super) fn poll(&mut self, now: Ms, out: &mut Vec<coordinator::Output<T>>) {
        if self.joint_until().is_none() {
            self.coordinator.poll(now, out);
        }
    }

    /// When [`FinishingTxn::poll`] is due.
    pub(super) fn deadline(&self) -> Option<Ms> {
        self.coordinator.deadline().filter(|_| self.joint_until().is_none())
    }
}

impl<A: Clone, T: Clone + Hash> Brick<A, T> {
    /// Passes a joint request on to its logical nodes, of which this is the first.
    ///
    /// # Errors
    /// If the request violates the protocol. Nothing is changed then.
    pub(super) fn handle_joint(
        &mut self,
        from: A,
        request: Request<T>,
        seen: HlcTimestamp,
        now: Ms,
    ) -> Result<(), Rejected> {
        if !request.is_at(self.participant.node()) {
            return Err(Rejected::Elsewhere(request.txn()));
        }
        if !self.participant.may_serve() {
            return Err(Rejected::UntrustedClock);
        }
        let Request::Joint { txn, requests } = request else { return Ok(()) };
        self.participant.learn(seen, now)?;
        requests.values().filter_map(timestamp_of).try_for_each(|at| self.participant.learn(at, now))?;
        match whole_parts(requests) {
            Ok(parts) => self.coordinate(from, txn, parts, now),
            Err(mut requests) => {
                if planted(Bug::OtherBricksNotNamed) {
                    name_only_these(&mut requests);
                }
                if let Some(collected) = CollectedAnswers::begin(from, &requests, now) {
                    self.collecting.insert(txn, collected);
                }
                self.out.extend(requests.into_iter().map(|(node, request)| Output::Ask(node, request)));
            }
        }
        Ok(())
    }

    /// Coordinates a transaction whose participants are all in one joint request. If it does already, the request is a repeated one.
    fn coordinate(&mut self, from: A, txn: TxnId, parts: BTreeMap<NodeId, Part<T>>, now: Ms) {
        if planted(Bug::RepeatedJointRefused) && self.participant.knows(txn) && !self.finishing.contains_key(&txn) {
            let reply = CommitReply::Refused(Refusal::Aborted);
            return self.out.push(Output::Answer(from, Answer::Concluded { txn, reply }));
        }
        let mut out = Vec::new();
        match self.finishing.get_mut(&txn) {
            Some(one) => {
                one.requester = Some(from);
                if let Some(reply) = one.coordinator.reply().cloned() {
                    self.conclude(txn, reply);
                }
            }
            None => {
                let coordinator = Coordinator::commit(txn, parts, now, &mut out);
                let (requester, joint_since) = (Some(from), Some(now));
                self.finishing.insert(txn, FinishingTxn { coordinator, requester, joint_since });
            }
        }
        self.finish(txn, out);
    }

    /// Tells the requester of a joint request how the transaction has ended.
    pub(super) fn conclude(&mut self, txn: TxnId, reply: CommitReply) {
        let Some(requester) = self.finishing.get(&txn).and_then(|one| one.requester.clone()) else { return };
        self.out.push(Output::Answer(requester, Answer::Concluded { txn, reply }));
    }

    /// Adds an answer to those of a joint request, and answers that if it is the last.
    pub(super) fn collect_answer(&mut self, node: NodeId, answer: &Answer) {
        let txn = answer.txn();
        if self.collecting.get_mut(&txn).is_some_and(|collected| collected.add(node, answer))
            && let Some(collected) = self.collecting.remove(&txn)
        {
            let (requester, answer) = collected.into_answer(txn);
            self.out.push(Output::Answer(requester, answer));
        }
    }

    /// The answer of a node, as the coordinator of a joint request takes it: as it is, unless a bug is planted.
    pub(super) fn receive_vote(&mut self, node: NodeId, answer: Answer) -> Answer {
        let txn = answer.txn();
        if self.finishing.get(&txn).is_none_or(|one| one.joint_until().is_none()) {
            return answer;
        }
        match answer {
            Answer::Prepared { proposal, .. } if planted(Bug::ConcludedAtFirstVote) => {
                self.conclude(txn, CommitReply::Committed(proposal.into()));
                answer
            }
            Answer::Prepared { participants, round, offsets, .. }
                if node != self.participant.node() && planted(Bug::OwnProposalCounts) =>
            {
                Answer::Prepared { txn, proposal: HlcTimestamp(1), participants, round, offsets }
            }
            Answer::Refused { why: Refusal::Conflict(_), .. } if planted(Bug::RefusalOverlooked) => {
                let (outcome, offsets) = (Outcome::Committed(self.participant.clock()), AppendOffsets::new());
                Answer::Ended { txn, outcome, version: None, offsets }
            }
            answer => answer,
        }
    }

    /// The clock learns the time of a vote or outcome (L1): this node may tell others of it.
    pub(super) fn learn_from(&mut self, answer: &Answer, now: Ms) -> Result<(), ClockSkewError> {
        match answer {
            Answer::Prepared { proposal: at, .. } | Answer::Ended { outcome: Outcome::Committed(at), .. } => {
                self.participant.learn(*at, now)
            }
            _ => Ok(()),
        }
    }

    /// Drops joint requests that some nodes have not answered for long: their requesters have repeated them to each node. A
    /// transaction that is prepared is finished like others whose coordinator may be gone.
    pub(super) fn drop_unanswered(&mut self, now: Ms) {
        self.collecting.retain(|_, collected| collected.since + FINISH_MS > now);
        self.finishing.retain(|_, one| one.joint_until().is_none_or(|until| until > now));
    }

    /// Who has sent the joint request of a transaction, if it is not done.
    #[must_use]
    pub fn joint_requester(&self, txn: TxnId) -> Option<&A> {
        let coordinated = self.finishing.get(&txn).and_then(|one| one.requester.as_ref());
        coordinated.or_else(|| self.collecting.get(&txn).map(|collected| &collected.requester))
    }
}

/// As if the nodes of one brick were all participants: for a [planted bug](Bug::OtherBricksNotNamed).
fn name_only_these<T>(requests: &mut BTreeMap<NodeId, Request<T>>) {
    let nodes: Vec<NodeId> = requests.keys().copied().collect();
    for request in requests.values_mut() {
        if let Request::Prepare { participants, .. } = request {
            participants.clone_from(&nodes);
        }
    }
}

/// The time in a request that its participant learns.
fn timestamp_of<T>(request: &Request<T>) -> Option<HlcTimestamp> {
    match request {
        Request::Decide { outcome: Outcome::Committed(at), .. } | Request::Check { at, .. } => Some(*at),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
