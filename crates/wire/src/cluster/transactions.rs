//! What processes tell each other of transactions before a loss is accepted (K3).

use model::{Error, ErrorKind, NodeId, Result};
use protocol::commit::reconcile::{KnownState, PartnerState};
use protocol::ident::TxnId;

use super::{ids, verdict};
use crate::convert::missing;
use crate::proto::cluster as proto;
use crate::proto::cluster::known_transaction::State;

/// Most transactions that one answer tells. More are said to exist.
const MAX_TOLD: usize = 20_000;
/// Most transactions, and logical nodes, that one question names.
const MAX_ASKED: usize = 100_000;

/// The question for the transactions of these logical nodes, of which these are prepared there.
#[must_use]
pub fn ask_transactions(
    nodes: impl IntoIterator<Item = NodeId>,
    prepared: impl IntoIterator<Item = TxnId>,
) -> proto::AskTransactions {
    proto::AskTransactions {
        nodes: nodes.into_iter().map(|node| node.0).collect(),
        prepared: prepared.into_iter().take(MAX_ASKED).map(Into::into).collect(),
    }
}

/// What a question names.
///
/// # Errors
/// [`ErrorKind::TooLarge`] if it names too much; [`ErrorKind::Invalid`] if an identifier is out of range.
pub fn asked_transactions(asked: proto::AskTransactions) -> Result<(Vec<NodeId>, Vec<TxnId>)> {
    if asked.nodes.len().max(asked.prepared.len()) > MAX_ASKED {
        return Err(Error::new(ErrorKind::TooLarge, "a question for transactions names too many"));
    }
    let nodes = asked.nodes.into_iter().map(ids::node).collect::<Result<_>>()?;
    let prepared = asked.prepared.into_iter().map(|txn| ids::txn(Some(txn))).collect::<Result<_>>()?;
    Ok((nodes, prepared))
}

/// The answer.
#[must_use]
pub fn known_to_proto(known: &[PartnerState]) -> proto::KnownTransactions {
    let nothing = proto::Nothing {};
    let told = known.iter().take(MAX_TOLD).map(|one| proto::KnownTransaction {
        txn: Some(one.txn.into()),
        node: one.node.0,
        state: Some(match one.state {
            KnownState::Unknown => State::Unknown(nothing),
            KnownState::Prepared => State::Prepared(nothing),
            KnownState::Ended(outcome) => State::Ended(verdict::outcome_to_proto(outcome)),
            KnownState::Forgotten => State::Forgotten(nothing),
        }),
        participants: ids::numbers(&one.participants),
    });
    proto::KnownTransactions { transactions: told.collect(), more: known.len() > MAX_TOLD }
}

/// What an answer tells, and whether there is more.
///
/// # Errors
/// [`ErrorKind::Invalid`] if an identifier is out of range, or a state is missing.
pub fn known_from_proto(known: proto::KnownTransactions) -> Result<(Vec<PartnerState>, bool)> {
    let states = known.transactions.into_iter().map(|one| {
        let state = match one.state.ok_or_else(|| missing("state of a transaction"))? {
            State::Unknown(_) => KnownState::Unknown,
            State::Prepared(_) => KnownState::Prepared,
            State::Ended(outcome) => KnownState::Ended(verdict::outcome(Some(outcome))?),
            State::Forgotten(_) => KnownState::Forgotten,
        };
        let participants = ids::nodes(one.participants)?;
        Ok(PartnerState { txn: ids::txn(one.txn)?, node: ids::node(one.node)?, state, participants })
    });
    Ok((states.collect::<Result<_>>()?, known.more))
}

#[cfg(test)]
mod tests {
    use protocol::commit::Outcome;
    use protocol::ident::{ClientId, HlcTimestamp};

    use super::*;

    fn states() -> Vec<PartnerState> {
        let txn = |start| TxnId { start: HlcTimestamp(start), client: ClientId(4) };
        let committed = KnownState::Ended(Outcome::Committed(HlcTimestamp(9)));
        let states = [
            KnownState::Unknown,
            KnownState::Prepared,
            committed,
            KnownState::Ended(Outcome::Aborted),
            KnownState::Forgotten,
        ];
        let participants = vec![NodeId(2), NodeId(3)];
        let state = |(start, state)| PartnerState {
            txn: txn(start as u64 + 1),
            node: NodeId(2),
            state,
            participants: participants.clone(),
        };
        states.into_iter().enumerate().map(state).collect()
    }

    #[test]
    fn questions_and_answers_are_the_same_after_the_wire() {
        let states = states();
        assert_eq!(known_from_proto(known_to_proto(&states)).unwrap(), (states.clone(), false));
        let many = vec![states[0].clone(); MAX_TOLD + 1];
        let (told, more) = known_from_proto(known_to_proto(&many)).unwrap();
        assert!(told.len() == MAX_TOLD && more);
        let (nodes, txns) = (vec![NodeId(2)], vec![states[0].txn]);
        assert_eq!(asked_transactions(ask_transactions(nodes.clone(), txns.clone())).unwrap(), (nodes, txns));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let mut known = known_to_proto(&states());
        known.transactions[0].state = None;
        assert!(known_from_proto(known).is_err());
        let many = proto::AskTransactions { nodes: vec![1; MAX_ASKED + 1], prepared: Vec::new() };
        assert_eq!(asked_transactions(many).unwrap_err().kind(), ErrorKind::TooLarge);
    }
}
