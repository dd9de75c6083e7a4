//! Requests about bricks and peer servers, as a type that is sent as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use super::error::CatalogError;
use super::ident::{BrickId, PeerId};
use super::member::{BrickRecord, Liveness, PeerRecord, Storage};
use super::{Catalog, CatalogEditor};
use crate::Revision;

/// A request about the bricks and peer servers of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberRequest {
    /// List them.
    List,
    /// Remove a brick that serves no logical node and is not alive.
    RemoveBrick {
        /// The brick.
        brick: BrickId,
    },
    /// Remove a peer server that is not alive.
    RemovePeer {
        /// The peer server.
        peer: PeerId,
    },
}

/// All bricks and peer servers, or the last state of the one that was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberAnswer {
    /// Bricks by number.
    pub bricks: Vec<BrickEntry>,
    /// Peer servers by number.
    pub peers: Vec<PeerEntry>,
}

/// A brick of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BrickEntry {
    /// Its number.
    pub brick: BrickId,
    /// Its addresses, the best first. None of a brick that was not started since the cluster was restored.
    pub addresses: Vec<String>,
    /// The kind of its storage.
    pub storage: Storage,
    /// Whether it is alive.
    pub alive: bool,
    /// Whether it is being drained.
    pub leaving: bool,
    /// The number of logical nodes that it serves, including those that are moving away.
    pub nodes: u64,
    /// The number of logical nodes that move to it.
    pub coming: u64,
    /// Why its process refuses to serve, or did so at its last start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A peer server of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeerEntry {
    /// Its number.
    pub peer: PeerId,
    /// Its addresses, the best first.
    pub addresses: Vec<String>,
    /// Whether it is alive.
    pub alive: bool,
}

impl Catalog {
    fn brick_entries(&self) -> Vec<BrickEntry> {
        let (mut served, mut coming) = (BTreeMap::<BrickId, u64>::new(), BTreeMap::<BrickId, u64>::new());
        for (_, placed) in self.placement_map().nodes() {
            *served.entry(placed.brick).or_default() += 1;
            if let Some(moving) = placed.moving {
                *coming.entry(moving.to).or_default() += 1;
            }
        }
        let count = |of: &BTreeMap<BrickId, u64>, brick| of.get(&brick).copied().unwrap_or(0);
        let refusal = |brick: BrickId| self.opening(brick).and_then(|opening| opening.refused.clone());
        let entry = |brick: &BrickRecord, alive: Option<&Liveness>| BrickEntry {
            brick: brick.id,
            addresses: brick.addresses.clone(),
            storage: brick.storage,
            alive: alive.is_some(),
            leaving: brick.leaving,
            nodes: count(&served, brick.id),
            coming: count(&coming, brick.id),
            refused: alive.and_then(|alive| alive.refused.clone()).or_else(|| refusal(brick.id)),
        };
        self.bricks().map(|(brick, alive)| entry(brick, alive)).collect()
    }

    fn peer_entries(&self) -> Vec<PeerEntry> {
        let entry = |peer: &PeerRecord, alive| PeerEntry { peer: peer.id, addresses: peer.addresses.clone(), alive };
        self.peers().map(|(peer, alive)| entry(peer, alive.is_some())).collect()
    }
}

impl CatalogEditor {
    /// Executes a request. Returns the revision of the change, if there was one.
    ///
    /// # Errors
    /// Those of the operation.
    pub async fn handle_member_request(
        &self,
        catalog: &Catalog,
        request: MemberRequest,
    ) -> Result<(MemberAnswer, Option<Revision>), CatalogError> {
        match request {
            MemberRequest::List => {
                let (bricks, peers) = (catalog.brick_entries(), catalog.peer_entries());
                Ok((MemberAnswer { bricks, peers }, None))
            }
            MemberRequest::RemoveBrick { brick } => {
                let removed = self.remove_brick(brick).await?;
                let BrickRecord { id, addresses, storage, leaving } = removed.value;
                let (alive, nodes, coming, refused) = (false, 0, 0, None);
                let removed_brick =
                    BrickEntry { brick: id, addresses, storage, alive, leaving, nodes, coming, refused };
                Ok((MemberAnswer { bricks: vec![removed_brick], peers: Vec::new() }, Some(removed.revision)))
            }
            MemberRequest::RemovePeer { peer } => {
                let removed = self.remove_peer(peer).await?;
                let PeerRecord { id, addresses } = removed.value;
                let removed_peer = PeerEntry { peer: id, addresses, alive: false };
                Ok((MemberAnswer { bricks: Vec::new(), peers: vec![removed_peer] }, Some(removed.revision)))
            }
        }
    }
}
