//! A cluster of real processes with the released `mortar`, for one benchmark.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use client::{Client, CommitOutcome, IsolationLevel, PlacementHint, Transaction};
use model::{ClassId, NodeId, Object, Oid};
use tempfile::TempDir;

use crate::Result;
use crate::load::{self, Data};
use crate::mortar::server::{binary, runtime};
use crate::process::{Address, Server};
use crate::run::Run;

/// Objects of one transaction while a cluster is filled.
const FILL_BATCH: usize = 64;

/// Where bricks keep objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    InMemory,
    OnDisk,
}

/// A running cluster with the space `main`. Dropping it stops all processes.
pub(super) struct RunningCluster {
    // In the order in which they must end.
    pub(super) peers: Vec<(Server, Address)>,
    pub(super) bricks: Vec<(Server, Address)>,
    meta: Server,
    _directory: TempDir,
}

impl RunningCluster {
    /// Starts a meta-server and these numbers of bricks and peer servers.
    pub(super) fn start(run: &Run, bricks: usize, peers: usize, keeps: Storage) -> Result<Self> {
        let directory = run.directory("cluster")?;
        let path = std::path::absolute(directory.path())?;
        let start = |name: &str, role: &str, arguments: &[&str]| {
            let address = Address::free_tcp()?;
            let mut command = Command::new(binary()?);
            command.args(["--json", "node", "--role", role, "--listen", &address.to_string()]).args(arguments);
            command.current_dir(&path);
            let log = path.join(format!("{name}.log"));
            let server = Server::start(name, &mut command, &log, std::slice::from_ref(&address))?;
            wait_ready(&log)?;
            Ok::<_, crate::BoxedError>((server, address))
        };
        let (meta, meta_at) = start("meta", "meta", &["--memory"])?;
        let meta_url = format!("mortar://{meta_at}");
        let mut started = Vec::new();
        for number in 1..=bricks {
            let (name, data) = (format!("brick-{number}"), format!("data-{number}"));
            let keeps: &[&str] = if keeps == Storage::InMemory { &["--memory"] } else { &["--data", &data] };
            started.push(start(&name, "brick", &[&["--meta", &meta_url], keeps].concat())?);
        }
        let bricks = started;
        make_space(&meta_url)?;
        let peers = (1..=peers)
            .map(|number| start(&format!("peer-{number}"), "peer", &["--meta", &meta_url]))
            .collect::<Result<Vec<_>>>()?;
        let running = Self { peers, bricks, meta, _directory: directory };
        running.wait_writable()?;
        Ok(running)
    }

    /// Waits until every logical node accepts new objects.
    fn wait_writable(&self) -> Result<()> {
        runtime()?.block_on(async {
            let mut tries = 0;
            loop {
                let tried = async {
                    let cluster = self.connect().await?;
                    for node in cluster.nodes() {
                        let transaction = cluster.begin(IsolationLevel::Optimistic);
                        transaction.create_object(
                            ClassId::NONE,
                            Object::blob(Bytes::new()),
                            PlacementHint::At(*node),
                        )?;
                        commit(&transaction).await?;
                    }
                    Ok::<_, crate::BoxedError>(())
                };
                match tried.await {
                    Ok(()) => return Ok(()),
                    Err(error) if tries == 100 => return Err(error),
                    Err(_) => tries += 1,
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
    }

    /// A client of the first peer server.
    pub(super) async fn connect(&self) -> Result<Client> {
        self.connect_to(0).await
    }

    /// A client of a peer server, numbered modulo their count.
    pub(super) async fn connect_to(&self, peer: usize) -> Result<Client> {
        let (_, address) = &self.peers[peer % self.peers.len()];
        Ok(Client::connect(&format!("mortar://{address}/main")).await?)
    }

    /// The addresses of the peer servers.
    pub(super) fn peers(&self) -> Vec<Address> {
        self.peers.iter().map(|(_, address)| address.clone()).collect()
    }

    /// The addresses of the bricks.
    pub(super) fn bricks(&self) -> Vec<Address> {
        self.bricks.iter().map(|(_, address)| address.clone()).collect()
    }

    /// The processor time of all processes.
    pub(super) fn cpu(&self) -> Result<Duration> {
        let servers = self.peers.iter().chain(&self.bricks).map(|(server, _)| server).chain([&self.meta]);
        servers.map(Server::cpu).sum()
    }

    /// Creates an object for each key's value, spread over all logical nodes.
    pub(super) fn fill(&self, data: &Data) -> Result<Vec<Oid>> {
        runtime()?.block_on(async {
            let cluster = self.connect().await?;
            let nodes = cluster.nodes().to_vec();
            let most = ((1 << 20) / data.size()).clamp(1, FILL_BATCH);
            let mut oids = Vec::with_capacity(data.keys());
            for (turn, first) in (0..data.keys()).step_by(most).enumerate() {
                let (transaction, node) = (cluster.begin(IsolationLevel::Optimistic), nodes[turn % nodes.len()]);
                let made = (first..(first + most).min(data.keys()))
                    .map(|key| {
                        let object = Object::blob(Bytes::copy_from_slice(data.value(key)));
                        Ok(transaction.create_object(ClassId::NONE, object, PlacementHint::At(node))?)
                    })
                    .collect::<Result<Vec<Oid>>>()?;
                commit(&transaction).await?;
                for oid in made {
                    oids.push(transaction.real_oid(oid).ok_or("a created object has no identifier")?);
                }
            }
            Ok(oids)
        })
    }

    /// The logical nodes of each brick.
    pub(super) fn nodes(&self) -> Result<Vec<Vec<NodeId>>> {
        let nodes =
            runtime()?.block_on(async { Ok::<_, crate::BoxedError>(self.connect().await?.nodes().to_vec()) })?;
        let of = |(_, address): &(Server, Address)| load::mortar::nodes_served_by(address, &nodes);
        self.bricks.iter().map(of).collect()
    }
}

/// Commits a transaction that must not conflict.
pub(super) async fn commit(transaction: &Transaction) -> Result<()> {
    match transaction.commit().await? {
        CommitOutcome::Committed(_) => Ok(()),
        other => Err(format!("a transaction without concurrent ones ended with {other:?}").into()),
    }
}

/// Creates the space `main`, spread over all bricks.
fn make_space(meta: &str) -> Result<()> {
    let made = Command::new(binary()?).args(["--server", meta, "space", "create", "main"]).output()?;
    if made.status.success() {
        return Ok(());
    }
    Err(format!("cannot create a space: {}", String::from_utf8_lossy(&made.stderr)).into())
}

/// Waits until a process has reported that it is a member of the cluster.
fn wait_ready(log: &Path) -> Result<()> {
    for _ in 0..200 {
        if fs::read_to_string(log)?.contains("{\"role\":") {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(format!("a process is not ready after ten seconds:\n{}", fs::read_to_string(log)?).into())
}
