//! What the partners of a logical node tell of transactions that it has lost (K3).
//!
//! A brick whose directory went back in time, or whose log was repaired, may have lost votes and outcomes. Its partners have them until all
//! participants have acknowledged the outcome and the client has heard it, or the horizon passes (C3). They are compared before the loss is accepted:
//! afterwards the raised horizon makes every lost transaction too old, which decides nothing.
//!
//! | at the logical node | at the partner | is |
//! | --- | --- | --- |
//! | unknown | committed | a lost part |
//! | unknown | prepared | a lost vote: its client may have heard that it is committed (C1) |
//! | prepared | ended | completed when the logical node asks |
//! | prepared | forgotten at all partners | a lost outcome: it is aborted here, and may be committed there |
//! | ended | the opposite | mixed |
//!
//! A partner that has prepared a transaction, or was never asked to, shows that no outcome was acknowledged by all: then the partners decide it as after every
//! restart (C1, C2). What the logical node has itself forgotten was acknowledged by all, and is not lost: its horizon, and the marks of its clients, say so.

use std::collections::{BTreeMap, BTreeSet};

use model::NodeId;

use super::client_mark::ClientMark;
use super::{Outcome, Record};
use crate::ident::{ClientId, HlcTimestamp, TxnId};
use crate::plant::{Bug, planted};

/// What a logical node knows of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownState {
    /// Nothing, and it is not too old: it was never prepared here.
    Unknown,
    /// It is prepared, and not decided.
    Prepared,
    /// It has ended.
    Ended(Outcome),
    /// Nothing any more: it is too old.
    Forgotten,
}

/// What a partner tells of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartnerState {
    /// The transaction.
    pub txn: TxnId,
    /// The partner.
    pub node: NodeId,
    /// What it knows.
    pub state: KnownState,
    /// The participants of the transaction, if it knows them.
    pub participants: Vec<NodeId>,
}

/// What has become of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// It is committed at the partner, and unknown here.
    PartLost(HlcTimestamp),
    /// It is prepared at the partner, and unknown here.
    VoteLost,
    /// It is prepared here and has this outcome at the partner.
    Completes(Outcome),
    /// It is prepared here, and the partner has forgotten the outcome.
    OutcomeLost,
    /// It has ended here, and has the opposite outcome, which is this one, at the partner.
    Mixed(Outcome),
}

/// A transaction of which a logical node and a partner know different things.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Discrepancy {
    /// The transaction.
    pub txn: TxnId,
    /// The logical node that has lost records.
    pub node: NodeId,
    /// The partner.
    pub partner: NodeId,
    /// What has become of it.
    pub finding: Finding,
}

/// All that a logical node knows of transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownTransactions {
    states: BTreeMap<TxnId, (KnownState, Vec<NodeId>)>,
    horizon: HlcTimestamp,
    marks: BTreeMap<ClientId, ClientMark>,
}

impl KnownTransactions {
    /// Adds a durable record or row, in any order.
    pub fn add<T>(&mut self, record: Record<T>) {
        let (txn, state, participants) = match record {
            Record::Prepared { txn, participants, .. } => (txn, KnownState::Prepared, participants),
            Record::Decided { txn, outcome, participants, .. } | Record::Ended { txn, outcome, participants, .. } => {
                (txn, KnownState::Ended(outcome), participants)
            }
            Record::Committed { txn, timestamp, .. } => {
                (txn, KnownState::Ended(Outcome::Committed(timestamp)), Vec::new())
            }
            Record::Marked { txn } => (txn, KnownState::Ended(Outcome::Aborted), Vec::new()),
            Record::Horizon(horizon) => return self.horizon = self.horizon.max(horizon),
            Record::Heard { client, mark } => return drop(self.marks.insert(client, mark)),
            Record::Bound(_) => return,
        };
        self.states.insert(txn, (state, participants));
    }

    /// What is known of a transaction.
    #[must_use]
    pub fn state(&self, txn: TxnId) -> KnownState {
        if let Some((state, _)) = self.states.get(&txn) {
            return *state;
        }
        let is_heard = self.marks.get(&txn.client).is_some_and(|mark| mark.has_heard(txn.start));
        if txn.start <= self.horizon || is_heard { KnownState::Forgotten } else { KnownState::Unknown }
    }

    /// The transactions that are prepared, and their participants.
    pub fn prepared(&self) -> impl Iterator<Item = (TxnId, &[NodeId])> {
        let prepared = self.states.iter().filter(|(_, (state, _))| *state == KnownState::Prepared);
        prepared.map(|(txn, (_, participants))| (*txn, &participants[..]))
    }

    /// What this logical node tells others: the transactions in which one of `nodes` takes part, as far as it knows them, and those of `asked`.
    #[must_use]
    pub fn tell(&self, node: NodeId, nodes: &BTreeSet<NodeId>, asked: &BTreeSet<TxnId>) -> Vec<PartnerState> {
        let concerned = |participants: &[NodeId]| participants.iter().any(|participant| nodes.contains(participant));
        let known =
            self.states.iter().filter(|(txn, (_, participants))| concerned(participants) || asked.contains(txn));
        let known = known.map(|(txn, (state, participants))| PartnerState {
            txn: *txn,
            node,
            state: *state,
            participants: participants.clone(),
        });
        let unknown = asked.iter().filter(|txn| !self.states.contains_key(txn));
        let unknown =
            unknown.map(|txn| PartnerState { txn: *txn, node, state: self.state(*txn), participants: Vec::new() });
        known.chain(unknown).collect()
    }
}

/// Compares what the logical nodes of a brick know with what their partners at other bricks tell.
#[must_use]
pub fn compare(own: &BTreeMap<NodeId, KnownTransactions>, told: &[PartnerState]) -> Vec<Discrepancy> {
    let mut found = BTreeSet::new();
    // Where each is prepared, and with which participants.
    let mut prepared = BTreeMap::<TxnId, Vec<(NodeId, &[NodeId])>>::new();
    for (node, known) in own {
        let of_node = known.prepared();
        of_node.for_each(|(txn, participants)| prepared.entry(txn).or_default().push((*node, participants)));
    }
    // Transactions that partners decide as after every restart.
    let mut decided = BTreeSet::new();
    for partner in told.iter().filter(|partner| !own.contains_key(&partner.node)) {
        let prepared = prepared.get(&partner.txn).into_iter().flatten();
        let prepared = prepared.filter(|(_, participants)| participants.contains(&partner.node)).map(|(node, _)| node);
        let nodes: BTreeSet<NodeId> = partner.participants.iter().chain(prepared).copied().collect();
        for (node, known) in nodes.iter().filter_map(|node| Some((*node, own.get(node)?))) {
            if let Some(finding) = finding(known.state(partner.txn), partner.state) {
                found.insert(Discrepancy { txn: partner.txn, node, partner: partner.node, finding });
            }
            if partner.state != KnownState::Forgotten {
                decided.insert(partner.txn);
            }
        }
    }
    let is_lost = |one: &Discrepancy| one.finding != Finding::OutcomeLost || !decided.contains(&one.txn);
    found.into_iter().filter(is_lost).collect()
}

fn finding(own: KnownState, partner: KnownState) -> Option<Finding> {
    use KnownState::{Ended, Forgotten, Prepared, Unknown};
    match (own, partner) {
        (Unknown, _) if planted(Bug::LostPartsIgnored) => None,
        (Unknown, Ended(Outcome::Committed(at))) => Some(Finding::PartLost(at)),
        (Unknown, Prepared) => Some(Finding::VoteLost),
        (Prepared, Ended(outcome)) => Some(Finding::Completes(outcome)),
        (Prepared, Forgotten) => Some(Finding::OutcomeLost),
        (Ended(own), Ended(other)) if (own == Outcome::Aborted) != (other == Outcome::Aborted) => {
            Some(Finding::Mixed(other))
        }
        (Forgotten, _) if planted(Bug::ForgottenIsLost) => Some(Finding::VoteLost),
        // An aborted transaction that is unknown here has no part that could be lost. One that is prepared there and ended here is completed there.
        (Unknown, Ended(Outcome::Aborted) | Forgotten | Unknown)
        | (Prepared, Prepared | Unknown)
        | (Ended(_) | Forgotten, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use model::planted_bug::assert_noticed;

    use super::*;
    use crate::commit::{AppendOffsets, Part};

    const OWN: NodeId = NodeId(1);
    const PARTNER: NodeId = NodeId(2);
    const OTHER: NodeId = NodeId(3);
    const COMMITTED: Outcome = Outcome::Committed(HlcTimestamp(90));

    fn txn(start: u64) -> TxnId {
        TxnId { start: HlcTimestamp(start), client: ClientId(7) }
    }

    fn prepared(start: u64, participants: &[NodeId]) -> Record<()> {
        let (part, proposal) = (Part::default(), HlcTimestamp(start + 1));
        Record::Prepared { txn: txn(start), participants: participants.to_vec(), part, proposal }
    }

    fn ended(start: u64, outcome: Outcome, participants: &[NodeId]) -> Record<()> {
        Record::Ended {
            txn: txn(start),
            outcome,
            version: None,
            offsets: AppendOffsets::new(),
            participants: participants.to_vec(),
            acknowledged: true,
        }
    }

    fn known(records: impl IntoIterator<Item = Record<()>>) -> KnownTransactions {
        let mut known = KnownTransactions::default();
        records.into_iter().for_each(|record| known.add(record));
        known
    }

    /// Compares as the processes do: the brick asks for its logical nodes and for what it has prepared.
    fn found(own: KnownTransactions, partners: &[(NodeId, KnownTransactions)]) -> Vec<(u64, NodeId, Finding)> {
        let asked = own.prepared().map(|(txn, _)| txn).collect();
        let tell = |(node, known): &(NodeId, KnownTransactions)| known.tell(*node, &[OWN].into(), &asked);
        let told: Vec<PartnerState> = partners.iter().flat_map(tell).collect();
        let found = compare(&[(OWN, own)].into(), &told);
        found.into_iter().map(|one| (one.txn.start.0, one.partner, one.finding)).collect()
    }

    fn lost_parts_and_votes_are_found() {
        let both = [OWN, PARTNER];
        let partner = known([
            ended(1, COMMITTED, &both),
            prepared(2, &both),
            ended(3, Outcome::Aborted, &both),
            ended(4, COMMITTED, &[PARTNER, OTHER]),
            prepared(5, &[PARTNER, OTHER]),
            ended(6, COMMITTED, &both),
        ]);
        let own = known([ended(6, COMMITTED, &both)]);
        let expected = [(1, PARTNER, Finding::PartLost(HlcTimestamp(90))), (2, PARTNER, Finding::VoteLost)];
        assert_eq!(found(own, &[(PARTNER, partner)]), expected);
    }

    fn what_all_have_acknowledged_is_not_lost() {
        let both = [OWN, PARTNER];
        let partner = known([ended(1, COMMITTED, &both), ended(5, COMMITTED, &both), ended(9, COMMITTED, &both)]);
        let mark = ClientMark::new(HlcTimestamp(6), Vec::new()).unwrap();
        let own = known([Record::Horizon(HlcTimestamp(3)), Record::Heard { client: ClientId(7), mark }]);
        assert_eq!(found(own, &[(PARTNER, partner)]), [(9, PARTNER, Finding::PartLost(HlcTimestamp(90)))]);
    }

    #[test]
    fn what_a_node_has_lost_is_found_and_what_it_has_forgotten_is_not() {
        lost_parts_and_votes_are_found();
        what_all_have_acknowledged_is_not_lost();
        assert_noticed(&[Bug::LostPartsIgnored], lost_parts_and_votes_are_found);
        assert_noticed(&[Bug::ForgottenIsLost], what_all_have_acknowledged_is_not_lost);
    }

    #[test]
    fn prepared_transactions_are_completed_if_a_partner_knows_their_outcome() {
        let all = [OWN, PARTNER, OTHER];
        let own = known((1..=6).map(|start| prepared(start, &all)));
        let partner = known([
            ended(1, COMMITTED, &all),
            ended(2, Outcome::Aborted, &all),
            Record::Marked { txn: txn(3) },
            prepared(4, &all),
            Record::Horizon(HlcTimestamp(5)),
        ]);
        // The partner knows nothing of the last one, and refuses it when it is asked.
        let other = known([ended(1, COMMITTED, &all), Record::Horizon(HlcTimestamp(1)), ended(5, COMMITTED, &all)]);
        let expected = [
            (1, PARTNER, Finding::Completes(COMMITTED)),
            (1, OTHER, Finding::Completes(COMMITTED)),
            (2, PARTNER, Finding::Completes(Outcome::Aborted)),
            (3, PARTNER, Finding::Completes(Outcome::Aborted)),
            (5, OTHER, Finding::Completes(COMMITTED)),
        ];
        assert_eq!(found(own.clone(), &[(PARTNER, partner.clone()), (OTHER, other)]), expected);
        let forgetful = known([Record::Horizon(HlcTimestamp(9))]);
        let lost = found(own, &[(PARTNER, partner), (OTHER, forgetful)]);
        let lost: Vec<(u64, NodeId)> =
            lost.iter().filter(|one| one.2 == Finding::OutcomeLost).map(|one| (one.0, one.1)).collect();
        // The fourth one was never acknowledged by all, or the partner would not have it prepared.
        assert_eq!(lost, [(5, PARTNER), (5, OTHER)]);
    }

    #[test]
    fn opposite_outcomes_are_found() {
        let both = [OWN, PARTNER];
        let own = known([
            ended(1, Outcome::Aborted, &both),
            ended(2, COMMITTED, &both),
            Record::Marked { txn: txn(3) },
            ended(4, COMMITTED, &both),
        ]);
        let partner = known([
            ended(1, COMMITTED, &both),
            ended(2, Outcome::Aborted, &both),
            ended(3, COMMITTED, &both),
            ended(4, COMMITTED, &both),
        ]);
        let expected = [
            (1, PARTNER, Finding::Mixed(COMMITTED)),
            (2, PARTNER, Finding::Mixed(Outcome::Aborted)),
            (3, PARTNER, Finding::Mixed(COMMITTED)),
        ];
        assert_eq!(found(own, &[(PARTNER, partner)]), expected);
    }
}
