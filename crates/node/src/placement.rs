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
pub struct Place {
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
pub struct Map {
    /// Where each brick listens.
    pub bricks: BTreeMap<BrickId, Address>,
    /// Who serves each logical node.
    pub nodes: BTreeMap<NodeId, Place>,
    /// The moves that are under way.
    pub moving: BTreeMap<NodeId, Transfer>,
}

/// The newest placement map that this process knows.
#[derive(Debug)]
pub struct Placement {
    map: ArcSwap<Map>,
    changed: watch::Sender<()>,
}

impl Default for Placement {
    fn default() -> Self {
        Self { map: ArcSwap::default(), changed: watch::channel(()).0 }
    }
}

impl Placement {
    /// There is a newer map.
    pub fn set(&self, map: Map) {
        self.map.store(Arc::new(map));
        self.changed.send_replace(());
    }

    /// The map.
    #[must_use]
    pub fn map(&self) -> Arc<Map> {
        self.map.load_full()
    }

    /// Who serves a logical node, if anybody does.
    #[must_use]
    pub fn of(&self, node: NodeId) -> Option<Place> {
        self.map.load().nodes.get(&node).copied()
    }

    /// Sees changes from now on.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}
