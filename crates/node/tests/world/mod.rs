//! A peer server with a brick behind it, for tests.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use client::AdminClient;
use meta::catalog::ClientNumberKey;
use model::{NodeId, SpaceId};
use node::cluster_view::{ClusterView, SpaceView};
use node::node_placement::{BrickId, NodePlacement, PlacementSnapshot};
use node::{Brick, Config, PeerServer};
use store::{Options, Store};
use tempfile::TempDir;
use wire::transport::Address;

/// A peer server that listens on TCP and on a Unix socket and serves HTTP, and a brick on disk.
pub(crate) struct World {
    config: Config,
    servers: Option<(Brick, PeerServer)>,
    pub(crate) dir: TempDir,
}

/// A cluster with one space, which has one logical node.
pub(crate) fn view() -> Arc<ClusterView> {
    static NUMBERS: AtomicU64 = AtomicU64::new(100);
    static KEY: LazyLock<ClientNumberKey> = LazyLock::new(ClientNumberKey::generate);
    let view = ClusterView::new(|count| {
        let first = NUMBERS.fetch_add(count, Ordering::Relaxed);
        Box::pin(async move { Ok(first) })
    });
    // Clients stay connected over a restart.
    view.set_client_number_key(KEY.clone());
    view.set_spaces([SpaceView { id: SpaceId(1), name: "main".to_owned(), nodes: vec![NodeId(1)] }]);
    view
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::with(|_| ()).await
    }

    /// With an adjusted configuration of the peer server.
    pub(crate) async fn with(adjust: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config {
            listen: vec![Address::Tcp("127.0.0.1:0".to_owned()), Address::Unix(dir.path().join("socket"))],
            http: Some("127.0.0.1:0".parse().unwrap()),
            ..Config::default()
        };
        adjust(&mut config);
        let mut world = Self { config, servers: None, dir };
        world.restart().await;
        world
    }

    /// Ends the servers if they run, and starts them again.
    pub(crate) async fn restart(&mut self) {
        self.end().await;
        let view = view();
        let store = Store::open(&self.dir.path().join("store"), Options::default()).unwrap();
        let config = Config { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, ..Config::default() };
        let brick = Brick::start_in(view.clone(), BrickId(1), store, config).await.unwrap();
        let mut map = PlacementSnapshot::default();
        map.bricks.insert(BrickId(1), brick.addresses()[0].clone());
        map.nodes.insert(NodeId(1), NodePlacement { brick: BrickId(1), epoch: 1, moves: 0 });
        view.placement.set(map);
        let peer = PeerServer::start(view, 1, self.config.clone()).await.unwrap();
        self.servers = Some((brick, peer));
    }

    pub(crate) async fn end(&mut self) {
        if let Some((brick, peer)) = self.servers.take() {
            peer.shutdown().await.unwrap();
            brick.shutdown().await.unwrap();
        }
    }

    pub(crate) fn tcp(&self) -> String {
        self.servers.as_ref().unwrap().1.addresses()[0].to_string()
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.servers.as_ref().unwrap().1.http().unwrap()
    }

    pub(crate) fn unix(&self) -> String {
        format!("mortar+unix://{}/main", self.dir.path().join("socket").display())
    }

    pub(crate) async fn admin(&self) -> AdminClient {
        AdminClient::connect(&self.unix()).await.unwrap()
    }
}

/// Runs a test, which fails if it hangs.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
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
