//! Bricks on disk, and a peer server before them.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use client::{Client, ConnectOptions};
use model::{ContentId, NodeId, SpaceId};
use node::cluster_view::{ClusterView, SpaceView};
use node::node_placement::{BrickId, NodePlacement, PlacementSnapshot};
use node::{Brick, Config, PeerServer};
use store::{Options, Store};
use tempfile::TempDir;

pub(crate) struct World {
    view: Arc<ClusterView>,
    bricks: Vec<Brick>,
    stores: Vec<Store>,
    peer: PeerServer,
    dir: TempDir,
}

fn config() -> Config {
    Config { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, ..Config::default() }
}

impl World {
    /// A cluster with a logical node at each brick.
    pub(crate) async fn start(bricks: u32) -> Self {
        let numbers = AtomicU64::new(100);
        let view = ClusterView::new(move |count| {
            let first = numbers.fetch_add(count, Ordering::Relaxed);
            Box::pin(async move { Ok(first) })
        });
        let nodes = (1..=bricks).map(NodeId).collect();
        view.set_spaces([SpaceView { id: SpaceId(1), name: "main".to_owned(), nodes }]);
        let dir = tempfile::tempdir().unwrap();
        let (mut started, mut stores, mut map) = (Vec::new(), Vec::new(), PlacementSnapshot::default());
        for number in 1..=bricks {
            let store = Store::open(&dir.path().join(number.to_string()), Options::default()).unwrap();
            let brick = Brick::start_in(view.clone(), BrickId(number), store.clone(), config()).await.unwrap();
            map.bricks.insert(BrickId(number), brick.addresses()[0].clone());
            map.nodes.insert(NodeId(number), NodePlacement { brick: BrickId(number), epoch: 1, moves: 0 });
            started.push(brick);
            stores.push(store);
        }
        view.placement.set(map);
        let peer = PeerServer::start(view.clone(), 1, config()).await.unwrap();
        Self { view, bricks: started, stores, peer, dir }
    }

    pub(crate) fn url(&self) -> String {
        format!("mortar://{}/main", self.peer.addresses()[0])
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.url()).await.unwrap()
    }

    /// How many contents the first brick has.
    pub(crate) fn contents(&self) -> usize {
        let (from, to) = ContentId::range_of(NodeId(1));
        self.stores[0].contents(from, to, 1_000).unwrap().len()
    }

    /// Waits until the first brick has no unfinished upload.
    pub(crate) async fn wait_until_no_uploads(&self) {
        while self.stores[0].status().uploads > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// A client whose calls fail after this time.
    pub(crate) async fn client_with_timeout(&self, timeout: Duration) -> Client {
        let mut options = ConnectOptions::default();
        options.timeout = timeout;
        Client::connect_with(&self.url(), options).await.unwrap()
    }

    /// Ends the first brick.
    pub(crate) async fn stop_brick(&mut self) {
        let brick = self.bricks.remove(0);
        brick.shutdown().await.unwrap();
        drop(self.stores.remove(0));
    }

    /// Starts the first brick again on its directory.
    pub(crate) async fn start_brick(&mut self) {
        let store = Store::open(&self.dir.path().join("1"), Options::default()).unwrap();
        let brick = Brick::start_in(self.view.clone(), BrickId(1), store.clone(), config()).await.unwrap();
        let mut map = (*self.view.placement.snapshot()).clone();
        map.bricks.insert(BrickId(1), brick.addresses()[0].clone());
        self.view.placement.set(map);
        self.bricks.insert(0, brick);
        self.stores.insert(0, store);
    }

    pub(crate) async fn end(self) {
        self.peer.shutdown().await.unwrap();
        for brick in self.bricks {
            brick.shutdown().await.unwrap();
        }
    }
}

/// Runs a test, which fails if it hangs.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(120), test).await.expect("the test hangs") });
}

/// Bytes of a pseudo-random pattern.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
