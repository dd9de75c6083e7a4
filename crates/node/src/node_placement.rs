//! Where logical nodes are served.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use model::NodeId;
use tokio::sync::watch;
use wire::transport::Address;

/// A brick, by the number that the catalogue gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BrickId(pub u32);

/// Who serves a logical node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePlacement {
    /// The brick.
    pub brick: BrickId,
    /// Since which epoch. Requests carry it, and are refused by whoever serves the node as of another one.
    pub epoch: u64,
    /// How often the node has moved.
    pub moves: u32,
}

/// A move of a logical node that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The brick that serves it, or did until it was sealed.
    pub from: BrickId,
    /// The brick that it moves to.
    pub to: BrickId,
    /// The epoch since which nobody serves it, if it is sealed.
    pub sealed: Option<u64>,
}

/// The placement map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementSnapshot {
    /// Where each brick listens.
    pub bricks: BTreeMap<BrickId, Address>,
    /// Who serves each logical node.
    pub nodes: BTreeMap<NodeId, NodePlacement>,
    /// The moves that are under way.
    pub moving: BTreeMap<NodeId, Transfer>,
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
    /// There is a newer map.
    pub fn set(&self, map: PlacementSnapshot) {
        self.map.store(Arc::new(map));
        self.changed.send_replace(());
    }

    /// The map.
    #[must_use]
    pub fn snapshot(&self) -> Arc<PlacementSnapshot> {
        self.map.load_full()
    }

    /// Who serves a logical node, if anybody does.
    #[must_use]
    pub fn of(&self, node: NodeId) -> Option<NodePlacement> {
        self.map.load().nodes.get(&node).copied()
    }

    /// Sees changes from now on.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}
