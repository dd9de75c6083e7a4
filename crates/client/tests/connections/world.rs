//! A cluster in this process, a proxy that can stop forwarding, and a slow link.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use client::{Client, ConnectOptions};
use model::{NodeId, SpaceId};
use node::cluster_view::{ClusterView, SpaceView};
use node::node_placement::{BrickId, NodePlacement, PlacementSnapshot};
use node::{Brick, Config, PeerServer};
use store::{Options, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

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
    pub(crate) fn accepted_count(&self) -> u64 {
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

/// Forwards connections to a server at a limited rate, and counts the bytes that come from clients.
pub(crate) struct SlowLink {
    host: String,
    forwarded: Arc<AtomicU64>,
}

impl SlowLink {
    /// Bytes that are forwarded at once, and that the system keeps for the link, about.
    const BUFFER: usize = 64 << 10;

    /// A link that takes `rate` bytes a second from each client.
    pub(crate) async fn start(target: String, rate: usize) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        // Accepted sockets inherit it.
        socket.set_recv_buffer_size(Self::BUFFER as u32).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(8).unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let forwarded = Arc::new(AtomicU64::new(0));
        let counted = forwarded.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (target, counted) = (target.clone(), counted.clone());
                tokio::spawn(async move {
                    let server = TcpStream::connect(target).await.unwrap();
                    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                        (client.into_split(), server.into_split());
                    let upward = async {
                        let (mut buffer, mut next) = (vec![0; Self::BUFFER], Instant::now());
                        loop {
                            let Ok(length @ 1..) = from_client.read(&mut buffer).await else { return };
                            counted.fetch_add(length as u64, Ordering::Relaxed);
                            next = next.max(Instant::now()) + Duration::from_secs_f64(length as f64 / rate as f64);
                            sleep_until(next).await;
                            if to_server.write_all(&buffer[..length]).await.is_err() {
                                return;
                            }
                        }
                    };
                    tokio::select! {
                        () = upward => {}
                        _ = copy(&mut from_server, &mut to_client) => {}
                    }
                });
            }
        });
        Self { host, forwarded }
    }

    pub(crate) fn host(&self) -> String {
        self.host.clone()
    }

    /// Bytes that came from clients.
    pub(crate) fn forwarded_bytes(&self) -> u64 {
        self.forwarded.load(Ordering::Relaxed)
    }
}
