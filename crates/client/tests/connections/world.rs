//! A cluster in this process, and a proxy that can stop forwarding.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::{Client, ConnectOptions};
use model::{NodeId, SpaceId};
use node::cluster_view::{ClusterView, SpaceView};
use node::node_placement::{BrickId, NodePlacement, PlacementSnapshot};
use node::{Brick, Config, PeerServer};
use store::{Options, Store};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) struct World {
    bricks: Vec<Brick>,
    peers: Vec<PeerServer>,
}

fn config() -> Config {
    Config { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, ..Config::default() }
}

impl World {
    /// Starts a cluster in memory with a logical node at each brick.
    pub(crate) async fn start(bricks: u32, peers: u64) -> Self {
        let numbers = AtomicU64::new(100);
        let view = ClusterView::new(move |count| {
            let first = numbers.fetch_add(count, Ordering::Relaxed);
            Box::pin(async move { Ok(first) })
        });
        let nodes: Vec<NodeId> = (1..=bricks).map(NodeId).collect();
        view.set_spaces([SpaceView { id: SpaceId(1), name: "main".to_owned(), nodes }]);
        let mut world = Self { bricks: Vec::new(), peers: Vec::new() };
        let mut map = PlacementSnapshot::default();
        for number in 1..=bricks {
            let store = Store::in_memory(Options::default()).unwrap();
            let brick = Brick::start_in(Arc::clone(&view), BrickId(number), store, config()).await.unwrap();
            map.bricks.insert(BrickId(number), brick.addresses()[0].clone());
            map.nodes.insert(NodeId(number), NodePlacement { brick: BrickId(number), epoch: 1, moves: 0 });
            world.bricks.push(brick);
        }
        view.placement.set(map);
        for number in 1..=peers {
            world.peers.push(PeerServer::start(Arc::clone(&view), number, config()).await.unwrap());
        }
        world
    }

    /// The address of the peer server with this index.
    pub(crate) fn host(&self, peer: usize) -> String {
        self.peers[peer].addresses()[0].to_string()
    }

    pub(crate) fn url(&self) -> String {
        url(&[self.host(0)])
    }

    pub(crate) async fn client_with(&self, options: ConnectOptions) -> Client {
        Client::connect_with(&self.url(), options).await.unwrap()
    }

    pub(crate) async fn end(self) {
        for peer in self.peers {
            peer.shutdown().await.unwrap();
        }
        for brick in self.bricks {
            brick.shutdown().await.unwrap();
        }
    }
}

pub(crate) fn url(hosts: &[String]) -> String {
    format!("mortar://{}/main", hosts.join(","))
}

/// Forwards connections to a server until it is stalled: then it accepts and keeps connections, and forwards nothing.
pub(crate) struct Proxy {
    host: String,
    stalled: watch::Sender<bool>,
    accepted: Arc<AtomicU64>,
    open: watch::Sender<u64>,
}

impl Proxy {
    pub(crate) async fn start(target: String, stalled: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let stalled = watch::Sender::new(stalled);
        let watched = stalled.subscribe();
        let accepted = Arc::new(AtomicU64::new(0));
        let open = watch::Sender::new(0);
        let (counted, counted_open) = (accepted.clone(), open.clone());
        tokio::spawn(async move {
            while let Ok((mut inner, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                counted_open.send_modify(|open| *open += 1);
                let (target, mut watched, counted_open) = (target.clone(), watched.clone(), counted_open.clone());
                tokio::spawn(async move {
                    let mut outer = TcpStream::connect(target).await.unwrap();
                    tokio::select! {
                        biased;
                        () = async { drop(watched.wait_for(|stalled| *stalled).await) } => std::future::pending().await,
                        _ = copy_bidirectional(&mut inner, &mut outer) => {}
                    }
                    counted_open.send_modify(|open| *open -= 1);
                });
            }
        });
        Self { host, stalled, accepted, open }
    }

    pub(crate) fn host(&self) -> String {
        self.host.clone()
    }

    /// How many connections it has accepted.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Waits until all connections have ended.
    pub(crate) async fn wait_until_unused(&self) {
        self.open.subscribe().wait_for(|open| *open == 0).await.unwrap();
    }

    pub(crate) fn stall(&self) {
        self.stalled.send_replace(true);
    }
}
