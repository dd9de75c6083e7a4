//! A coordinator: whoever brings a transaction to its end at all its participants.
//!
//! The peer server that got the commit is one, and anyone who finishes what another has left is one too: the only
//! difference is the first question, *prepare* or *what do you know?* (C2). It keeps nothing durable: what counts are the
//! participants' records, and any number of coordinators of one transaction come to the same end.
//!
//! A participant that says that the transaction is older than what it remembers has not decided anything (C3): it never
//! prepared it, or all have acknowledged the outcome. Which of the two, those tell that are asked after it.
//!
//! ```text
//!   asking ──▶ decided: the client is answered, once ──▶ all have acknowledged: forgotten
//! ```

use std::collections::BTreeMap;

use model::NodeId;

use super::{Answer, Outcome, Part, Refusal, Request};
use crate::ident::{HlcTimestamp, TxnId};
use crate::lease::Ms;
use crate::plant::{Bug, planted};

/// How long an answer is waited for before the question is repeated.
const REPEAT_MS: u64 = 200;

/// Something that a coordinator wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<T> {
    /// Send this to a participant.
    Send(NodeId, Request<T>),
    /// Tell the client.
    Reply(CommitReply),
}

/// What a client is told of its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a transaction that was refused has changed nothing"]
pub enum CommitReply {
    /// It happened, at this time.
    Committed(HlcTimestamp),
    /// It did not, and will not; but of what is [too old](Refusal::TooOld) nobody knows.
    Refused(Refusal),
}

/// Where a participant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParticipantStage {
    Asked,
    Prepared(HlcTimestamp),
    /// Nothing is known of it there, and it is too old for that to say anything.
    TooOld,
    /// It is over there.
    Done,
}

/// The coordinator of one transaction. `T` is an object.
#[derive(Clone, Debug)]
pub struct Coordinator<T> {
    txn: TxnId,
    /// What each has to prepare; nothing once it is only asked how it has ended.
    parts: BTreeMap<NodeId, Part<T>>,
    stages: BTreeMap<NodeId, ParticipantStage>,
    outcome: Option<Outcome>,
    /// What the client was told.
    reply: Option<CommitReply>,
    /// How often all were asked anew: only answers of this round count.
    round: u32,
    repeat: Ms,
}

impl<T: Clone> Coordinator<T> {
    /// Commits a transaction.
    ///
    /// # Panics
    /// If it has no participants (C1).
    pub fn commit(txn: TxnId, parts: BTreeMap<NodeId, Part<T>>, now: Ms, out: &mut Vec<Output<T>>) -> Self {
        assert!(!parts.is_empty(), "C1: {txn:?} has no participant");
        let stages = parts.keys().map(|node| (*node, ParticipantStage::Asked)).collect();
        let mut coordinator = Self { txn, parts, stages, outcome: None, reply: None, round: 0, repeat: now };
        coordinator.poll(now, out);
        coordinator
    }

    /// Finishes a transaction that another coordinator has left, or finds out how it has ended.
    pub fn finish(
        txn: TxnId,
        participants: impl IntoIterator<Item = NodeId>,
        now: Ms,
        out: &mut Vec<Output<T>>,
    ) -> Self {
        let stages = participants.into_iter().map(|node| (node, ParticipantStage::Asked)).collect();
        let mut coordinator =
            Self { txn, parts: BTreeMap::new(), stages, outcome: None, reply: None, round: 0, repeat: now };
        coordinator.poll(now, out);
        coordinator
    }

    /// A participant has answered.
    pub fn handle_answer(&mut self, node: NodeId, answer: Answer, now: Ms, out: &mut Vec<Output<T>>) {
        let Some(stage) = self.stages.get_mut(&node) else { return };
        match answer {
            Answer::Prepared { txn, proposal, round, .. }
                if txn == self.txn && (round == self.round || planted(Bug::AnyRound)) =>
            {
                // Asked again, it says again what it said before; one that is done says so.
                if *stage == ParticipantStage::Asked {
                    *stage = ParticipantStage::Prepared(proposal);
                }
                match (self.outcome, self.verdict()) {
                    (Some(outcome), _) => out.push(Output::Send(node, Request::Decide { txn, outcome })),
                    (None, Some(outcome)) => self.decide(outcome, reply_of(outcome), now, out),
                    (None, None) => {}
                }
            }
            Answer::Ended { txn, outcome, .. } if txn == self.txn => {
                *stage = ParticipantStage::Done;
                self.decide(outcome, reply_of(outcome), now, out);
            }
            Answer::Refused { txn, why: Refusal::TooOld } if txn == self.txn && *stage != ParticipantStage::Done => {
                self.handle_too_old(node, now, out);
            }
            Answer::Refused { txn, why } if txn == self.txn => {
                *stage = ParticipantStage::Done;
                self.decide(Outcome::Aborted, CommitReply::Refused(why), now, out);
            }
            _ => {}
        }
        if self.is_done() && self.stages.len() > 1 {
            let txn = self.txn;
            out.extend(self.stages.keys().map(|node| Output::Send(*node, Request::Forget { txn })));
        }
    }

    /// How it ends, if that can be told from what is known.
    fn verdict(&self) -> Option<Outcome> {
        let proposals = self.stages.values().filter_map(|stage| stage.proposal());
        let largest = if planted(Bug::FirstProposal) { proposals.min() } else { proposals.max() }?;
        let mut stages = self.stages.values();
        if planted(Bug::OneVoteForAll) || stages.all(|stage| stage.proposal().is_some()) {
            return Some(Outcome::Committed(largest));
        }
        // It is prepared here, and where it is too old it is not any more, or never was. Had all acknowledged an outcome, it
        // would not be prepared here.
        let answered = self.stages.values().all(|stage| *stage != ParticipantStage::Asked);
        (answered && self.stages.values().any(|stage| *stage == ParticipantStage::TooOld)).then_some(Outcome::Aborted)
    }

    /// A participant remembers nothing so old. What others said before counts no more: they are asked again.
    fn handle_too_old(&mut self, node: NodeId, now: Ms, out: &mut Vec<Output<T>>) {
        if self.outcome.is_some() {
            self.stages.insert(node, ParticipantStage::Done);
            return;
        }
        // Answers to what was asked before may still come, and say nothing of now. What was prepared for this coordinator is known
        // there, or it never was.
        self.round += 1;
        self.parts.clear();
        for stage in self.stages.values_mut().filter(|stage| stage.proposal().is_some()) {
            *stage = ParticipantStage::Asked;
        }
        self.stages.insert(node, ParticipantStage::TooOld);
        if self.stages.values().all(|stage| *stage == ParticipantStage::TooOld) {
            // Nobody will ever know.
            self.stages.values_mut().for_each(|stage| *stage = ParticipantStage::Done);
            assert!(self.reply.is_none(), "C3: the client of {:?} is answered twice", self.txn);
            self.reply = Some(CommitReply::Refused(Refusal::TooOld));
            out.push(Output::Reply(CommitReply::Refused(Refusal::TooOld)));
            return;
        }
        self.repeat = now;
        self.poll(now, out);
    }

    /// The outcome is known: the client is told, and everybody who has still to hear of it.
    fn decide(&mut self, outcome: Outcome, reply: CommitReply, now: Ms, out: &mut Vec<Output<T>>) {
        match self.outcome {
            // That of a right participant can only be the same.
            Some(_) => {}
            None => {
                (self.outcome, self.reply) = (Some(outcome), Some(reply));
                self.parts.clear();
                out.push(Output::Reply(reply));
                self.repeat = now;
                self.poll(now, out);
            }
        }
    }

    /// Nobody wants it any more, or only to know how it ends: nothing is prepared for it from now on. It ends as with anyone who finishes
    /// it (C2): committed if all have prepared it, else never.
    pub fn give_up(&mut self, now: Ms, out: &mut Vec<Output<T>>) {
        if self.has_parts() {
            assert!(self.outcome.is_none(), "C2: {:?} is decided, and keeps what is to be prepared", self.txn);
            self.parts.clear();
            if planted(Bug::GivenUpIsAborted) {
                return self.decide(Outcome::Aborted, CommitReply::Refused(Refusal::Aborted), now, out);
            }
            self.repeat = now;
            self.poll(now, out);
        }
    }

    /// Whether it keeps what is to be prepared.
    #[must_use]
    pub fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Asks again those who have not answered, if it is time.
    pub fn poll(&mut self, now: Ms, out: &mut Vec<Output<T>>) {
        if now < self.repeat || self.is_done() {
            return;
        }
        self.repeat = now + REPEAT_MS;
        let waiting = self.stages.iter().filter(|(_, stage)| self.is_unanswered(**stage));
        out.extend(waiting.map(|(node, _)| Output::Send(*node, self.question(*node))));
    }

    /// Asks a participant again that can be reached again, if it has not answered.
    pub fn retry_now(&self, node: NodeId, out: &mut Vec<Output<T>>) {
        if self.stages.get(&node).is_some_and(|stage| self.is_unanswered(*stage)) {
            out.push(Output::Send(node, self.question(node)));
        }
    }

    /// Participants that have not answered what they are asked now.
    pub fn unanswered(&self) -> impl Iterator<Item = NodeId> {
        let stages = self.stages.iter().filter(|(_, stage)| self.is_unanswered(**stage));
        stages.map(|(node, _)| *node)
    }

    /// Participants that have not acknowledged an outcome.
    pub fn unacknowledged(&self) -> impl Iterator<Item = NodeId> {
        let stages = self.stages.iter().filter(|(_, stage)| !self.is_over(**stage));
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

    /// When [`Coordinator::poll`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Ms> {
        (!self.is_done()).then_some(self.repeat)
    }

    /// Whether every participant has acknowledged the outcome: nothing more is to be done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.stages.values().all(|stage| self.is_over(*stage))
    }

    /// The transaction.
    #[must_use]
    pub fn txn(&self) -> TxnId {
        self.txn
    }

    /// What its client was told, once it was.
    #[must_use]
    pub fn reply(&self) -> Option<CommitReply> {
        self.reply
    }

    /// How it has ended, once that is known.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }
}

fn reply_of(outcome: Outcome) -> CommitReply {
    match outcome {
        Outcome::Committed(timestamp) => CommitReply::Committed(timestamp),
        Outcome::Aborted => CommitReply::Refused(Refusal::Aborted),
    }
}

impl ParticipantStage {
    fn proposal(self) -> Option<HlcTimestamp> {
        if let Self::Prepared(proposal) = self { Some(proposal) } else { None }
    }
}

#[cfg(test)]
mod tests;
