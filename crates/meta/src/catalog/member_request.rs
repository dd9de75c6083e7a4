//! What is asked from outside about bricks and peer servers, as one type that travels as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::error::CatalogError;
use super::ident::{BrickId, PeerId};
use super::member::{BrickRecord, PeerRecord, Storage};
use super::{Catalog, CatalogEditor};
use crate::Revision;

/// What somebody wants to know of the bricks and peer servers of a cluster, or to have changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberRequest {
    /// Which there are.
    List,
    /// Take a brick out of the cluster that has nothing and does not live.
    RemoveBrick {
        /// The brick.
        brick: BrickId,
    },
    /// Take a peer server out of the cluster that does not live.
    RemovePeer {
        /// The peer server.
        peer: PeerId,
    },
}

/// Bricks and peer servers: all of them, or the one that was removed, as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAnswer {
    /// Bricks by number.
    #[serde(default)]
    pub bricks: Vec<BrickEntry>,
    /// Peer servers by number.
    #[serde(default)]
    pub peers: Vec<PeerEntry>,
}

/// A brick of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrickEntry {
    /// Its number.
    pub brick: BrickId,
    /// Where it listens, or did, the best first.
    pub addresses: Vec<String>,
    /// Where it keeps objects.
    pub storage: Storage,
    /// Whether it lives.
    pub alive: bool,
    /// Whether it gets no logical nodes any more.
    pub leaving: bool,
    /// How many logical nodes it serves; those that move away are among them until they are gone.
    pub nodes: u64,
    /// How many move to it.
    pub coming: u64,
}

/// A peer server of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerEntry {
    /// Its number.
    pub peer: PeerId,
    /// Where it listens, or did, the best first.
    pub addresses: Vec<String>,
    /// Whether it lives.
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
        let entry = |brick: &BrickRecord, alive| BrickEntry {
            brick: brick.id,
            addresses: brick.addresses.clone(),
            storage: brick.storage,
            alive,
            leaving: brick.leaving,
            nodes: count(&served, brick.id),
            coming: count(&coming, brick.id),
        };
        self.bricks().map(|(brick, alive)| entry(brick, alive.is_some())).collect()
    }

    fn peer_entries(&self) -> Vec<PeerEntry> {
        let entry = |peer: &PeerRecord, alive| PeerEntry { peer: peer.id, addresses: peer.addresses.clone(), alive };
        self.peers().map(|(peer, alive)| entry(peer, alive.is_some())).collect()
    }
}

impl CatalogEditor {
    /// Does what is asked for. If something was changed, the answer says as of which revision.
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
                let gone = BrickEntry { brick: id, addresses, storage, alive: false, leaving, nodes: 0, coming: 0 };
                Ok((MemberAnswer { bricks: vec![gone], peers: Vec::new() }, Some(removed.revision)))
            }
            MemberRequest::RemovePeer { peer } => {
                let removed = self.remove_peer(peer).await?;
                let PeerRecord { id, addresses } = removed.value;
                let gone = PeerEntry { peer: id, addresses, alive: false };
                Ok((MemberAnswer { bricks: Vec::new(), peers: vec![gone] }, Some(removed.revision)))
            }
        }
    }
}
