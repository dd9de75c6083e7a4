//! What a brick with a loss, and its partners, know of transactions: compared before the loss is accepted (`protocol::commit::reconcile`).

use std::collections::{BTreeMap, BTreeSet};

use meta::catalog::{BrickId, Catalog};
use model::{ErrorKind, NodeId, Result};
use protocol::commit::reconcile::{Discrepancy, KnownTransactions, PartnerState, compare};
use protocol::ident::TxnId;
use store::Store;
use wire::cluster::{ask_transactions, asked_transactions, known_from_proto, known_to_proto};
use wire::proto::cluster;

use crate::brick::recover_records;

/// A brick with a loss, and the partners that have told what they know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partners {
    /// What the logical nodes of the brick know.
    own: BTreeMap<NodeId, KnownTransactions>,
    /// Logical nodes of the brick of which that cannot be read.
    unreadable: Vec<NodeId>,
    told: Vec<PartnerState>,
    /// Whether a partner knows more than it has told.
    is_incomplete: bool,
    /// The bricks of all logical nodes.
    places: BTreeMap<NodeId, BrickId>,
    /// Bricks that have not told.
    silent: BTreeSet<BrickId>,
}

impl Partners {
    /// The brick of a store, of which no partner has told anything yet.
    pub(super) fn of(catalog: &Catalog, store: &Store, brick: BrickId) -> Result<Self> {
        let places: BTreeMap<NodeId, BrickId> =
            catalog.placement_map().nodes().map(|(node, placed)| (node, placed.brick)).collect();
        let silent = places.values().copied().filter(|place| *place != brick).collect();
        let mut partners = Self { places, silent, ..Self::default() };
        let of_brick = partners.places.iter().filter(|(_, place)| **place == brick).map(|(node, _)| *node);
        for node in of_brick.collect::<Vec<_>>() {
            match known_transactions(node, store) {
                Ok(known) => drop(partners.own.insert(node, known)),
                // A repair has given up a part of it.
                Err(error) if error.kind() == ErrorKind::Corrupt => partners.unreadable.push(node),
                Err(error) => return Err(error),
            }
        }
        Ok(partners)
    }

    fn nodes(&self) -> BTreeSet<NodeId> {
        self.own.keys().copied().collect()
    }

    fn prepared(&self) -> BTreeSet<TxnId> {
        self.own.values().flat_map(KnownTransactions::prepared).map(|(txn, _)| txn).collect()
    }

    /// What partners are asked.
    pub(super) fn question(&self) -> cluster::AskTransactions {
        ask_transactions(self.nodes(), self.prepared())
    }

    /// Adds what a brick that runs has answered.
    pub(super) fn add_answer(&mut self, brick: BrickId, answer: cluster::KnownTransactions) -> Result<()> {
        let (told, more) = known_from_proto(answer)?;
        self.told.extend(told);
        self.is_incomplete |= more;
        self.silent.remove(&brick);
        Ok(())
    }

    /// Adds what the store of a brick has that does not run. If it is damaged, what the brick knows is not compared.
    pub(super) fn add_store(&mut self, brick: BrickId, store: &Store) -> Result<()> {
        let (nodes, prepared) = (self.nodes(), self.prepared());
        let mut told = Vec::new();
        for (node, _) in self.places.iter().filter(|(_, place)| **place == brick) {
            match known_transactions(*node, store) {
                Ok(known) => told.extend(known.tell(*node, &nodes, &prepared)),
                Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.told.extend(told);
        self.silent.remove(&brick);
        Ok(())
    }

    /// The transactions of which the brick and its partners know different things, in order.
    #[must_use]
    pub fn discrepancies(&self) -> Vec<Discrepancy> {
        compare(&self.own, &self.told)
    }

    /// The brick of a logical node.
    #[must_use]
    pub fn brick_of(&self, node: NodeId) -> Option<BrickId> {
        self.places.get(&node).copied()
    }

    /// Bricks with logical nodes that were not asked, or have not answered: what they know is not compared.
    #[must_use]
    pub fn silent(&self) -> &BTreeSet<BrickId> {
        &self.silent
    }

    /// Logical nodes of the brick of which it cannot be read what they know.
    #[must_use]
    pub fn unreadable(&self) -> &[NodeId] {
        &self.unreadable
    }

    /// Whether partners know of more transactions than they have told.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }
}

/// What the store has of the transactions of a logical node.
fn known_transactions(node: NodeId, store: &Store) -> Result<KnownTransactions> {
    let mut known = KnownTransactions::default();
    recover_records(node, store, |_, record, _| known.add(record))?;
    Ok(known)
}

/// What these logical nodes of a brick that serves tell.
///
/// # Errors
/// [`ErrorKind::Invalid`] if the question is none; if rows cannot be read.
pub(crate) fn answer(
    asked: cluster::AskTransactions,
    nodes: impl IntoIterator<Item = NodeId>,
    store: &Store,
) -> Result<cluster::KnownTransactions> {
    let (wanted, prepared) = asked_transactions(asked)?;
    let (wanted, prepared) = (wanted.into_iter().collect(), prepared.into_iter().collect());
    let mut told = Vec::new();
    for node in nodes {
        told.extend(known_transactions(node, store)?.tell(node, &wanted, &prepared));
    }
    Ok(known_to_proto(&told))
}
