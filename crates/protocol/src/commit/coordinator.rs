//! A coordinator: it drives a transaction to its outcome at all participants.
//!
//! The peer server that received the commit is a coordinator, and so is any node that finishes the transaction for
//! another one; only the first question differs: *prepare* or *what do you know?* (C2). A coordinator keeps no durable
//! state: the records of the participants determine the outcome, which is the same for all coordinators of a
//! transaction.
//!
//! One participant that has ended the transaction tells its outcome, but not the offsets of the appends at the others. If the
//! client has [appended](Coordinator::with_appends) there, its answer waits until they have told them.
//!
//! The answer that a transaction is too old decides nothing (C3): either this participant never prepared it, or all
//! participants have acknowledged the outcome. The participants that are asked afterwards show which.
//!
//! All participants have the same outcome (C1), unless one has lost records that were durable. Then the coordinator knows of a
//! [mixed outcome](MixedOutcome), and tells no participant that all have acknowledged it.
//!
//! ```text
//!   asking ──▶ decided: the client is answered, once ──▶ all have acknowledged: forgotten
//! ```

use std::collections::{BTreeMap, BTreeSet};

use model::{NodeId, Oid};

use super::{Answer, AppendOffsets, Outcome, Part, Refusal, Request, patched_nodes};
use crate::ident::{HlcTimestamp, TxnId};
use crate::lease::Ms;
use crate::plant::{Bug, planted};

/// How long the coordinator waits for an answer before it repeats a question, besides the time in which the parts are sent, in
/// milliseconds.
const REPEAT_MS: u64 = 200;

/// An output of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<T> {
    /// Send this to a participant. It may be [joined](super::joint) with requests to other ones.
    Send(NodeId, Request<T>),
    /// Send this to a participant that may have it already, or whose brick has not passed it on.
    Repeat(NodeId, Request<T>),
    /// Tell the client.
    Reply(CommitReply),
}

/// What a client hears of a transaction that has committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitReceipt {
    /// When it committed.
    pub timestamp: HlcTimestamp,
    /// Where it has appended.
    pub offsets: AppendOffsets,
}

impl CommitReceipt {
    /// The offset at which the first append of the transaction to a blob has put its bytes; `None` if it has not appended to it.
    #[must_use]
    pub fn offset(&self, blob: Oid) -> Option<u64> {
        self.offsets.get(&blob).copied()
    }
}

impl From<HlcTimestamp> for CommitReceipt {
    /// The receipt of a transaction that has appended to nothing.
    fn from(timestamp: HlcTimestamp) -> Self {
        Self { timestamp, offsets: AppendOffsets::new() }
    }
}

/// The answer to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a transaction that was refused has changed nothing"]
pub enum CommitReply {
    /// The transaction committed.
    Committed(CommitReceipt),
    /// It did not commit and never will; but if it is [too old](Refusal::TooOld), its outcome is unknown.
    Refused(Refusal),
}

/// Two participants that have opposite outcomes of one transaction: one of them has lost its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MixedOutcome {
    /// Where it is committed.
    pub committed: NodeId,
    /// Where it is aborted.
    pub aborted: NodeId,
}

/// The state of a participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParticipantStage {
    Asked,
    Prepared(HlcTimestamp),
    /// The participant knows nothing, and the transaction is too old for this to decide anything.
    TooOld,
    /// The participant has acknowledged an outcome.
    Done,
}

/// The coordinator of one transaction. `T` is an object.
#[derive(Clone, Debug)]
pub struct Coordinator<T> {
    txn: TxnId,
    /// The part of each participant; empty when only the outcome is resolved.
    parts: BTreeMap<NodeId, Part<T>>,
    stages: BTreeMap<NodeId, ParticipantStage>,
    outcome: Option<Outcome>,
    /// A participant that has told that the transaction is committed, and one that it is aborted.
    committed_at: Option<NodeId>,
    aborted_at: Option<NodeId>,
    /// The offsets of appends that participants have told.
    offsets: AppendOffsets,
    /// Participants that have not told them, and for which the client waits.
    offsets_open: BTreeSet<NodeId>,
    /// The answer to the client, once sent.
    reply: Option<CommitReply>,
    /// The number of restarts of the questions; only answers of this round count.
    round: u32,
    repeat: Ms,
    /// How long it may take to send the parts.
    transfer: Ms,
    /// When single participants are asked again before.
    soon: BTreeMap<NodeId, Ms>,
}

impl<T: Clone> Coordinator<T> {
    /// Commits a transaction.
    ///
    /// # Panics
    /// If it has no participants (C1).
    pub fn commit(txn: TxnId, parts: BTreeMap<NodeId, Part<T>>, now: Ms, out: &mut Vec<Output<T>>) -> Self {
        assert!(!parts.is_empty(), "C1: {txn:?} has no participant");
        let participants: Vec<NodeId> = parts.keys().copied().collect();
        let patched = patched_nodes(&parts);
        Self::begin(txn, participants, parts, now, out).with_appends(patched)
    }

    fn begin(
        txn: TxnId,
        participants: impl IntoIterator<Item = NodeId>,
        parts: BTreeMap<NodeId, Part<T>>,
        now: Ms,
        out: &mut Vec<Output<T>>,
    ) -> Self {
        let stages = participants.into_iter().map(|node| (node, ParticipantStage::Asked)).collect();
        let mut coordinator = Self {
            txn,
            parts,
            stages,
            outcome: None,
            committed_at: None,
            aborted_at: None,
            offsets: AppendOffsets::new(),
            offsets_open: BTreeSet::new(),
            reply: None,
            round: 0,
            repeat: now,
            transfer: 0,
            soon: BTreeMap::new(),
        };
        coordinator.ask(now, out);
        coordinator
    }

    /// The same, whose parts take up to this time to be sent to all participants one after the other. They are not sent again before.
    #[must_use]
    pub fn with_transfer(mut self, transfer: Ms) -> Self {
        self.transfer = transfer;
        self.repeat += transfer;
        self
    }

    /// The same, whose client has appended at these participants: it is not answered before they have told the offsets, unless they
    /// have forgotten the transaction.
    #[must_use]
    pub fn with_appends(mut self, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        self.offsets_open = nodes.into_iter().filter(|node| self.stages.contains_key(node)).collect();
        self
    }

    /// Finishes a transaction of another coordinator, or resolves its outcome.
    pub fn finish(
        txn: TxnId,
        participants: impl IntoIterator<Item = NodeId>,
        now: Ms,
        out: &mut Vec<Output<T>>,
    ) -> Self {
        Self::begin(txn, participants, BTreeMap::new(), now, out)
    }

    /// Handles the answer of a participant.
    pub fn handle_answer(&mut self, node: NodeId, answer: Answer, now: Ms, out: &mut Vec<Output<T>>) {
        let Some(stage) = self.stages.get_mut(&node) else { return };
        if let Answer::Concluded { txn, reply } = answer {
            return if txn == self.txn {
                self.conclude(reply, out)
            };
        }
        match answer {
            Answer::Prepared { txn, proposal, participants, round, offsets }
                if txn == self.txn && (round == self.round || planted(Bug::AnyRound)) =>
            {
                self.offsets_open.remove(&node);
                self.offsets.extend(offsets);
                // A repeated question gets the same answer; a participant that is done answers that it has ended.
                if *stage == ParticipantStage::Asked {
                    *stage = ParticipantStage::Prepared(proposal);
                }
                self.ask_unnamed(&participants, now, out);
                match (self.outcome, self.verdict()) {
                    (Some(outcome), _) => out.push(Output::Repeat(node, Request::Decide { txn, outcome })),
                    (None, Some(outcome)) => self.decide(outcome, Refusal::Aborted, now, out),
                    (None, None) => {}
                }
            }
            Answer::Ended { txn, outcome, offsets, .. } if txn == self.txn => {
                *stage = ParticipantStage::Done;
                self.offsets_open.remove(&node);
                self.offsets.extend(offsets);
                match outcome {
                    Outcome::Committed(_) => self.committed_at = Some(node),
                    Outcome::Aborted => self.aborted_at = Some(node),
                }
                self.decide(outcome, Refusal::Aborted, now, out);
            }
            // A participant that has ended the transaction may have forgotten it since.
            Answer::Refused { why: Refusal::TooOld, .. } if *stage == ParticipantStage::Done => {}
            Answer::Refused { txn, why: Refusal::TooOld } if txn == self.txn => self.handle_too_old(node, now, out),
            Answer::Refused { txn, why } if txn == self.txn => {
                *stage = ParticipantStage::Done;
                self.aborted_at = Some(node);
                self.decide(Outcome::Aborted, why, now, out);
            }
            _ => {}
        }
        self.reply_if_complete(out);
        if self.is_done() && self.stages.len() > 1 && self.mixed_outcome().is_none() {
            let txn = self.txn;
            out.extend(self.stages.keys().map(|node| Output::Send(*node, Request::Forget { txn })));
        }
    }

    /// Asks the participants that the client has not named: all have a vote (C1).
    fn ask_unnamed(&mut self, participants: &[NodeId], now: Ms, out: &mut Vec<Output<T>>) {
        let unnamed: Vec<NodeId> =
            participants.iter().copied().filter(|node| !self.stages.contains_key(node)).collect();
        if unnamed.is_empty() || self.outcome.is_some() || planted(Bug::UnnamedNotAsked) {
            return;
        }
        // What was sent is not sent again: those that have not prepared it by now do not.
        self.parts.clear();
        self.stages.extend(unnamed.into_iter().map(|node| (node, ParticipantStage::Asked)));
        self.ask(now, out);
    }

    /// A participant coordinates the transaction, and has decided it: it informs the others, and lets them forget (C5).
    fn conclude(&mut self, reply: CommitReply, out: &mut Vec<Output<T>>) {
        if self.reply.is_some() {
            // This coordinator has decided, too, and informs the participants itself.
            return;
        }
        self.parts.clear();
        self.stages.values_mut().for_each(|stage| *stage = ParticipantStage::Done);
        (self.outcome, self.reply) = (outcome_of(&reply), Some(reply.clone()));
        out.push(Output::Reply(reply));
    }

    /// The outcome, if the answers determine it.
    fn verdict(&self) -> Option<Outcome> {
        let proposals = self.stages.values().filter_map(|stage| stage.proposal());
        let largest = if planted(Bug::FirstProposal) { proposals.min() } else { proposals.max() }?;
        let mut stages = self.stages.values();
        if planted(Bug::OneVoteForAll) || stages.all(|stage| stage.proposal().is_some()) {
            return Some(Outcome::Committed(largest));
        }
        // It is prepared at some participants, and too old at others. If all had acknowledged an outcome, it would not
        // be prepared anywhere.
        let answered = self.stages.values().all(|stage| *stage != ParticipantStage::Asked);
        (answered && self.stages.values().any(|stage| *stage == ParticipantStage::TooOld)).then_some(Outcome::Aborted)
    }

    /// A participant answers that the transaction is too old. Earlier answers no longer count: the others are asked
    /// again.
    fn handle_too_old(&mut self, node: NodeId, now: Ms, out: &mut Vec<Output<T>>) {
        self.offsets_open.remove(&node);
        if self.outcome.is_some() {
            self.stages.insert(node, ParticipantStage::Done);
            return;
        }
        // Answers of the previous round may still arrive and are ignored. What was prepared for this coordinator is
        // known at its participant, or never was.
        self.round += 1;
        self.parts.clear();
        for stage in self.stages.values_mut().filter(|stage| stage.proposal().is_some()) {
            *stage = ParticipantStage::Asked;
        }
        self.stages.insert(node, ParticipantStage::TooOld);
        if self.stages.values().all(|stage| *stage == ParticipantStage::TooOld) {
            // The outcome is lost.
            self.stages.values_mut().for_each(|stage| *stage = ParticipantStage::Done);
            return self.reply_with(CommitReply::Refused(Refusal::TooOld), out);
        }
        self.ask(now, out);
    }

    /// The outcome is known: the client and the remaining participants are informed. `why` is the reason if it is aborted.
    fn decide(&mut self, outcome: Outcome, why: Refusal, now: Ms, out: &mut Vec<Output<T>>) {
        if self.outcome.is_some() {
            // Another answer contains the same outcome, or the outcome is mixed.
            return;
        }
        self.outcome = Some(outcome);
        self.parts.clear();
        match outcome {
            Outcome::Committed(_) => self.reply_if_complete(out),
            Outcome::Aborted => self.reply_with(CommitReply::Refused(why), out),
        }
        self.ask(now, out);
    }

    /// Tells the client that the transaction has committed, once the offsets are known for which it waits.
    fn reply_if_complete(&mut self, out: &mut Vec<Output<T>>) {
        if let Some(Outcome::Committed(timestamp)) = self.outcome
            && self.reply.is_none()
            && (self.offsets_open.is_empty() || planted(Bug::OffsetsNotAwaited))
        {
            let offsets = std::mem::take(&mut self.offsets);
            self.reply_with(CommitReply::Committed(CommitReceipt { timestamp, offsets }), out);
        }
    }

    fn reply_with(&mut self, reply: CommitReply, out: &mut Vec<Output<T>>) {
        assert!(self.reply.is_none(), "C3: the client of {:?} is answered twice", self.txn);
        self.reply = Some(reply.clone());
        out.push(Output::Reply(reply));
    }

    /// The client has abandoned the commit, or only asks for the outcome: no further participant is prepared. The
    /// transaction commits if all have prepared it, otherwise never (C2).
    pub fn give_up(&mut self, now: Ms, out: &mut Vec<Output<T>>) {
        if self.has_parts() {
            assert!(self.outcome.is_none(), "C2: {:?} is decided and still has parts to prepare", self.txn);
            self.parts.clear();
            if planted(Bug::GivenUpIsAborted) {
                return self.decide(Outcome::Aborted, Refusal::Aborted, now, out);
            }
            self.ask(now, out);
        }
    }

    /// The participants that have opposite outcomes, if there are some.
    #[must_use]
    pub fn mixed_outcome(&self) -> Option<MixedOutcome> {
        let aborted = self.aborted_at.filter(|_| !planted(Bug::MixedOutcomeIgnored))?;
        let is_committed = matches!(self.outcome, Some(Outcome::Committed(_)));
        // All have prepared it, if none has told that it is committed.
        let voter = || self.stages.keys().copied().find(|node| is_committed && *node != aborted);
        Some(MixedOutcome { committed: self.committed_at.or_else(voter)?, aborted })
    }

    /// Whether it keeps parts to prepare.
    #[must_use]
    pub fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Repeats unanswered questions that are due.
    pub fn poll(&mut self, now: Ms, out: &mut Vec<Output<T>>) {
        let soon: Vec<NodeId> = self.soon.extract_if(.., |_, at| *at <= now).map(|(node, _)| node).collect();
        if now < self.repeat || self.is_done() {
            soon.into_iter().for_each(|node| self.retry_now(node, out));
            return;
        }
        self.soon.clear();
        self.repeat = self.repeat_at(now);
        out.extend(self.unanswered_participants().map(|node| Output::Repeat(node, self.question(node))));
    }

    /// Asks all participants that have not answered the question that is to be asked now.
    fn ask(&mut self, now: Ms, out: &mut Vec<Output<T>>) {
        self.repeat = self.repeat_at(now);
        out.extend(self.unanswered_participants().map(|node| Output::Send(node, self.question(node))));
    }

    /// The question to a participant was not sent, or has to be asked again: it is, as if sending it took no time.
    pub fn ask_again_soon(&mut self, node: NodeId, now: Ms) {
        if self.stages.get(&node).is_some_and(|stage| self.is_unanswered(*stage)) {
            self.soon.insert(node, now + REPEAT_MS);
        }
    }

    /// How long it may take to send the parts.
    #[must_use]
    pub fn transfer(&self) -> Ms {
        self.transfer
    }

    /// When questions that are sent now are repeated.
    fn repeat_at(&self, now: Ms) -> Ms {
        now + REPEAT_MS + if self.has_parts() { self.transfer } else { 0 }
    }

    /// Repeats an unanswered question to a participant that is reachable again.
    pub fn retry_now(&self, node: NodeId, out: &mut Vec<Output<T>>) {
        if self.stages.get(&node).is_some_and(|stage| self.is_unanswered(*stage)) {
            out.push(Output::Repeat(node, self.question(node)));
        }
    }

    /// Participants with an unanswered question.
    pub fn unanswered_participants(&self) -> impl Iterator<Item = NodeId> {
        let stages = self.stages.iter().filter(|(_, stage)| self.is_unanswered(**stage));
        stages.map(|(node, _)| *node)
    }

    fn is_over(&self, stage: ParticipantStage) -> bool {
        stage == ParticipantStage::Done || self.outcome.is_some() && stage == ParticipantStage::TooOld
    }

    fn is_unanswered(&self, stage: ParticipantStage) -> bool {
        match self.outcome {
            None => stage == ParticipantStage::Asked,
            Some(_) => !self.is_over(stage),
        }
    }

    fn question(&self, node: NodeId) -> Request<T> {
        let txn = self.txn;
        match (self.outcome, self.parts.get(&node)) {
            (Some(outcome), _) => Request::Decide { txn, outcome },
            (None, Some(part)) if self.parts.len() == 1 => {
                assert!(self.stages.len() == 1, "C1: {txn:?} commits at one of {} participants", self.stages.len());
                Request::Commit { txn, part: part.clone() }
            }
            (None, Some(part)) => {
                let participants = self.parts.keys().copied().collect();
                Request::Prepare { txn, participants, part: part.clone() }
            }
            (None, None) => Request::Ask { txn, round: self.round },
        }
    }

    /// Whether a logical node takes part in the transaction.
    #[must_use]
    pub fn involves(&self, node: NodeId) -> bool {
        self.stages.contains_key(&node)
    }

    /// When [`Coordinator::poll`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Ms> {
        (!self.is_done()).then(|| self.soon.values().copied().fold(self.repeat, Ms::min))
    }

    /// Whether every participant has acknowledged the outcome.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.stages.values().all(|stage| self.is_over(*stage))
    }

    /// The transaction.
    #[must_use]
    pub fn txn(&self) -> TxnId {
        self.txn
    }

    /// The answer to the client, once sent.
    #[must_use]
    pub fn reply(&self) -> Option<&CommitReply> {
        self.reply.as_ref()
    }

    /// The outcome, once known.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }
}

fn outcome_of(reply: &CommitReply) -> Option<Outcome> {
    match reply {
        CommitReply::Committed(receipt) => Some(Outcome::Committed(receipt.timestamp)),
        CommitReply::Refused(Refusal::TooOld) => None,
        CommitReply::Refused(_) => Some(Outcome::Aborted),
    }
}

impl ParticipantStage {
    fn proposal(self) -> Option<HlcTimestamp> {
        if let Self::Prepared(proposal) = self { Some(proposal) } else { None }
    }
}

#[cfg(test)]
mod tests;
