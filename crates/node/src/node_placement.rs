//! Where logical nodes are served.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use meta::catalog::{self, MovePhase};
use model::NodeId;
use tokio::sync::watch;
use wire::transport::Address;

/// A brick, by the number that the catalogue gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BrickId(pub u32);

/// The brick that serves a logical node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePlacement {
    /// The brick.
    pub brick: BrickId,
    /// The epoch since which it does. Requests carry it, and a brick refuses those of another epoch.
    pub epoch: u64,
    /// How often the node has moved; part of the versions of its pages.
    pub moves: u32,
}

/// A move of a logical node that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The brick that serves it, or did until it was sealed.
    pub from: BrickId,
    /// The brick that it moves to.
    pub to: BrickId,
    /// The epoch since which no brick serves it, if it is sealed.
    pub sealed: Option<u64>,
}

/// The placement map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementSnapshot {
    /// Where each brick listens.
    pub bricks: BTreeMap<BrickId, Address>,
    /// Which brick serves each logical node. A node that is sealed for a move is not here.
    pub nodes: BTreeMap<NodeId, NodePlacement>,
    /// The moves that have not ended.
    pub moving: BTreeMap<NodeId, Transfer>,
    /// The logical nodes of removed spaces: the first of each, and how many there are.
    pub removed: BTreeMap<NodeId, u32>,
}

impl PlacementSnapshot {
    /// Whether a logical node belonged to a space that was removed.
    #[must_use]
    pub fn is_removed(&self, node: NodeId) -> bool {
        let Some((first, count)) = self.removed.range(..=node).next_back() else { return false };
        node.0 - first.0 < *count
    }

    /// The logical nodes of removed spaces.
    pub fn removed_nodes(&self) -> impl Iterator<Item = NodeId> {
        self.removed.iter().flat_map(|(first, count)| (0..*count).map(|index| NodeId(first.0 + index)))
    }

    /// Adds a logical node as the catalogue has it.
    pub fn add(&mut self, node: NodeId, placed: &catalog::NodePlacement) {
        let (brick, epoch) = (BrickId(placed.brick.0), placed.epoch.0);
        let is_sealed = placed.moving.is_some_and(|moving| moving.phase == MovePhase::Sealed);
        if let Some(moving) = placed.moving {
            let (to, sealed) = (BrickId(moving.to.0), is_sealed.then_some(epoch));
            self.moving.insert(node, Transfer { from: brick, to, sealed });
        }
        // Between two bricks, none serves it.
        if !is_sealed {
            self.nodes.insert(node, NodePlacement { brick, epoch, moves: placed.moves });
        }
    }
}

/// The newest placement map that this process knows.
#[derive(Debug)]
pub struct CurrentPlacement {
    map: ArcSwap<PlacementSnapshot>,
    changed: watch::Sender<()>,
}

impl Default for CurrentPlacement {
    fn default() -> Self {
        Self { map: ArcSwap::default(), changed: watch::channel(()).0 }
    }
}

impl CurrentPlacement {
    /// Replaces the map by a newer one.
    pub fn set(&self, map: PlacementSnapshot) {
        self.map.store(Arc::new(map));
        self.changed.send_replace(());
    }

    /// The map.
    #[must_use]
    pub fn snapshot(&self) -> Arc<PlacementSnapshot> {
        self.map.load_full()
    }

    /// The brick that serves a logical node, if one does.
    #[must_use]
    pub fn of(&self, node: NodeId) -> Option<NodePlacement> {
        self.map.load().nodes.get(&node).copied()
    }

    /// These logical nodes by the brick that serves them. Those that none serves now are left out.
    #[must_use]
    pub fn by_brick(&self, nodes: impl IntoIterator<Item = NodeId>) -> BTreeMap<BrickId, Vec<NodeId>> {
        let map = self.map.load();
        let mut by_brick: BTreeMap<BrickId, Vec<NodeId>> = BTreeMap::new();
        for node in nodes {
            if let Some(place) = map.nodes.get(&node) {
                by_brick.entry(place.brick).or_default().push(node);
            }
        }
        by_brick
    }

    /// Notifies of changes from now on.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}
