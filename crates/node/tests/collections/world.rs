//! A cluster in this process: bricks in memory, and a peer server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::Client;
use model::{NodeId, SpaceId};
use node::cluster_view::{ClusterView, SpaceView};
use node::node_placement::{BrickId, NodePlacement, PlacementSnapshot};
use node::{Brick, Config, PeerServer};
use store::{Options, Store};
use wire::transport::Address;

/// Bricks with a logical node each, and a peer server.
pub(crate) struct World {
    cluster_view: Arc<ClusterView>,
    bricks: Vec<Brick>,
    peer: Option<PeerServer>,
}

fn config() -> Config {
    Config { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, ..Config::default() }
}

impl World {
    pub(crate) async fn start(bricks: u32) -> Self {
        let numbers = AtomicU64::new(100);
        let cluster_view = ClusterView::new(move |count| {
            let first = numbers.fetch_add(count, Ordering::Relaxed);
            Box::pin(async move { Ok(first) })
        });
        let nodes: Vec<NodeId> = (1..=bricks).map(NodeId).collect();
        cluster_view.set_spaces([SpaceView { id: SpaceId(1), name: "main".to_owned(), nodes }]);
        let mut world = Self { cluster_view, bricks: Vec::new(), peer: None };
        let mut map = PlacementSnapshot::default();
        for number in 1..=bricks {
            let store = Store::in_memory(Options::default()).unwrap();
            let brick = Brick::start_in(world.cluster_view.clone(), BrickId(number), store, config()).await.unwrap();
            map.bricks.insert(BrickId(number), brick.addresses()[0].clone());
            map.nodes.insert(NodeId(number), NodePlacement { brick: BrickId(number), epoch: 1, moves: 0 });
            world.bricks.push(brick);
        }
        world.cluster_view.placement.set(map);
        world.peer = Some(PeerServer::start(world.cluster_view.clone(), 1, config()).await.unwrap());
        world
    }

    pub(crate) async fn client(&self) -> Client {
        let Some(Address::Tcp(host)) = self.peer.as_ref().map(|peer| peer.addresses()[0].clone()) else {
            panic!("the peer server does not listen on TCP");
        };
        Client::connect(&format!("mortar://{host}/main")).await.unwrap()
    }

    pub(crate) async fn end(self) {
        if let Some(peer) = self.peer {
            peer.shutdown().await.unwrap();
        }
        for brick in self.bricks {
            brick.shutdown().await.unwrap();
        }
    }
}
