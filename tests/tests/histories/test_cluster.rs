//! The cluster that histories are made on: processes, each with a relay before it, that can be killed, stopped and started.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mortar_tests::{TEST_TIMEOUT, mortar, run, send, spawn};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::relay::{NetworkConditions, Relay, RelayThread};

/// Bytes of a small disk.
const SMALL_DISK_BYTES: u64 = 48 << 20;
/// How a command ends that may be tried again.
const EXIT_UNAVAILABLE: i32 = 5;
/// How often a wait looks again.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A server of the cluster; the first has number 1. In the order in which they are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServerId {
    Meta,
    Brick(u64),
    Peer(u64),
}

/// A cluster of processes.
pub(crate) struct TestCluster {
    dir: TempDir,
    relays: BTreeMap<ServerId, Relay>,
    /// Those that have a file system of their own.
    disks: BTreeMap<ServerId, SmallDisk>,
    children: BTreeMap<ServerId, Child>,
    relay_thread: RelayThread,
}

impl TestCluster {
    /// Starts a cluster with a space that has a logical node at each brick.
    pub(crate) async fn start(bricks: u64, peers: u64) -> Self {
        Self::start_on(bricks, peers, false).await.unwrap()
    }

    /// The same with bricks on small disks.
    ///
    /// # Errors
    /// If there are none here.
    pub(crate) async fn start_on(bricks: u64, peers: u64, small_disks: bool) -> Result<Self, String> {
        let dir = tempfile::Builder::new().prefix("mortar-histories-").tempdir().unwrap();
        let thread = RelayThread::start();
        let servers = (1..=bricks).map(ServerId::Brick).chain((1..=peers).map(ServerId::Peer));
        let relays = [ServerId::Meta].into_iter().chain(servers).map(|server| (server, thread.add())).collect();
        let mut disks = BTreeMap::new();
        for brick in (1..=bricks).map(ServerId::Brick).filter(|_| small_disks) {
            disks.insert(brick, SmallDisk::mount(&dir.path().join(format!("{}.disk", brick.name())))?);
        }
        let mut ground = Self { dir, relays, disks, children: BTreeMap::new(), relay_thread: thread };
        let all = ground.servers();
        let (first, peers) = all.split_at(all.partition_point(|server| !matches!(server, ServerId::Peer(_))));
        for server in first {
            // One after the other: so the logical nodes are where their numbers say.
            ground.launch(*server);
            ground.wait_ready(*server).await.unwrap();
        }
        let nodes = bricks.to_string();
        let meta = format!("mortar://{}", ground.relay(ServerId::Meta).address);
        let until = Instant::now() + TEST_TIMEOUT;
        loop {
            let create = ["--server", &meta, "space", "create", "main", "--nodes", &nodes, "--policy", "continue"];
            let created = run(&mut mortar(&create));
            match created.code {
                0 => break,
                // On a machine that is very busy, bricks do not say in time that they live.
                EXIT_UNAVAILABLE if Instant::now() < until => tokio::time::sleep(POLL_INTERVAL).await,
                _ => panic!("{}", created.stderr),
            }
        }
        peers.iter().for_each(|peer| ground.launch(*peer));
        for peer in peers {
            ground.wait_ready(*peer).await.unwrap();
        }
        Ok(ground)
    }

    /// Has everything refused while a brick is away.
    pub(crate) fn set_fail_stop(&self) {
        let meta = format!("mortar://{}", self.relay(ServerId::Meta).address);
        run(&mut mortar(&["--server", &meta, "space", "set", "main", "--policy", "fail_stop"])).ok();
    }

    fn file(&self, server: ServerId, what: &str) -> PathBuf {
        self.dir.path().join(format!("{}.{what}", server.name()))
    }

    /// What is of a server on disk.
    pub(crate) fn directory(&self, server: ServerId) -> PathBuf {
        match self.disks.get(&server) {
            Some(disk) => disk.0.join(server.name()),
            None => self.dir.path().join(server.name()),
        }
    }

    /// Fills the disk of a server that has a small one.
    pub(crate) fn fill(&self, server: ServerId) {
        if let Some(disk) = self.disks.get(&server) {
            disk.fill();
        }
    }

    /// Makes room on the disk of a server again.
    pub(crate) fn make_room(&self, server: ServerId) {
        if let Some(disk) = self.disks.get(&server) {
            disk.make_room();
        }
    }

    /// All servers that there should be.
    pub(crate) fn servers(&self) -> Vec<ServerId> {
        self.relays.keys().copied().collect()
    }

    /// Where clients connect; a number says with which peer server they begin.
    pub(crate) fn url(&self, first: u64) -> String {
        let peers = self.relays.iter().filter(|(server, _)| matches!(server, ServerId::Peer(_)));
        let mut hosts: Vec<String> = peers.map(|(_, relay)| relay.address.to_string()).collect();
        let count = hosts.len();
        hosts.rotate_left(first as usize % count);
        format!("mortar://{}/main", hosts.join(","))
    }

    /// Another way to a server that runs, which nobody else takes.
    pub(crate) fn private_relay(&self, server: ServerId) -> Relay {
        let relay = self.relay_thread.add();
        relay.target().set_address(read_address(&self.file(server, "said")).unwrap());
        relay
    }

    /// What stands before a server.
    pub(crate) fn relay(&self, server: ServerId) -> &Relay {
        &self.relays[&server]
    }

    fn command(&self, server: ServerId) -> Command {
        let role = server.name();
        let role = role.split('-').next().unwrap();
        let mut command = mortar(&["node", "--json", "--role", role, "--listen", "127.0.0.1:0"]);
        if !matches!(server, ServerId::Peer(_)) {
            command.arg("--data").arg(self.directory(server));
        }
        if server != ServerId::Meta {
            let meta = format!("mortar://{}", self.relay(ServerId::Meta).address);
            command.args(["--meta", &meta, "--advertise", &self.relay(server).address.to_string()]);
        }
        command
    }

    /// Starts a server that does not run, and goes on: one that needs another waits for it.
    pub(crate) fn launch(&mut self, server: ServerId) {
        if self.children.contains_key(&server) {
            return;
        }
        let said = self.file(server, "said");
        let log = File::options().create(true).append(true).open(self.file(server, "log")).unwrap();
        let mut command = self.command(server);
        command.stdin(Stdio::null()).stdout(File::create(&said).unwrap()).stderr(log);
        self.children.insert(server, spawn(command).unwrap());
        let target = self.relay(server).target();
        tokio::spawn(async move {
            let until = Instant::now() + TEST_TIMEOUT;
            while Instant::now() < until {
                if let Some(address) = read_address(&said) {
                    return target.set_address(address);
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        });
    }

    /// Waits until a server that was launched answers, as far as it says so itself.
    pub(crate) async fn wait_ready(&mut self, server: ServerId) -> Result<(), String> {
        let (said, until) = (self.file(server, "said"), Instant::now() + TEST_TIMEOUT);
        let address = loop {
            if let Some(address) = read_address(&said) {
                break address;
            }
            let status = self.children.get_mut(&server).unwrap().try_wait().unwrap();
            if let Some(status) = status {
                return Err(format!("{server:?} cannot be started: {status}"));
            }
            if Instant::now() > until {
                return Err(format!("{server:?} was started and is not ready"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        };
        self.relay(server).target().set_address(address);
        Ok(())
    }

    /// Ends a server, wherever it is.
    pub(crate) fn kill(&mut self, server: ServerId) {
        if let Some(mut child) = self.children.remove(&server) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Ends all servers.
    pub(crate) fn kill_all(&mut self) {
        let mut children = std::mem::take(&mut self.children);
        children.values_mut().for_each(|child| child.kill().unwrap());
        for child in children.values_mut() {
            child.wait().unwrap();
        }
    }

    /// Stops a server that runs, or lets it go on.
    pub(crate) fn signal(&self, server: ServerId, signal: Signal) {
        if let Some(child) = self.children.get(&server) {
            send(child, signal);
        }
    }

    /// Copies what a server that does not run has on disk, and returns where the copy is.
    pub(crate) fn copy(&self, server: ServerId) -> PathBuf {
        let (from, to) = (self.directory(server), self.file(server, "copy"));
        assert!(!self.children.contains_key(&server) && !to.exists(), "{server:?} cannot be copied now");
        copy_tree(&from, &to);
        to
    }

    /// Puts a copy in the place of what a server that does not run has on disk.
    pub(crate) fn roll_back(&self, server: ServerId, copy: &Path) {
        assert!(!self.children.contains_key(&server), "{server:?} runs");
        fs::remove_dir_all(self.directory(server)).unwrap();
        fs::rename(copy, self.directory(server)).unwrap();
    }

    /// Asks the meta-server to have logical nodes moved, or not to. It may be away, and they may be moving already.
    pub(crate) fn ask_to_move(&self, request: String) {
        let url = self.meta_url();
        tokio::spawn(async move {
            if let Ok(client) = client::Client::connect_with(&url, cluster_scope_options()).await {
                drop(client.move_nodes(request.into_bytes()).await);
            }
        });
    }

    /// Waits until no logical node moves any more. Returns how often all have moved.
    pub(crate) async fn wait_moves_done(&self) -> Result<u64, String> {
        let until = Instant::now() + TEST_TIMEOUT;
        let failed = |error: client::Error| format!("where logical nodes are cannot be asked: {error}");
        let client = client::Client::connect_with(&self.meta_url(), cluster_scope_options()).await.map_err(failed)?;
        loop {
            let answer = client.move_nodes(br#"{"show":{"nodes":[]}}"#.to_vec()).await.map_err(failed)?;
            let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
            let nodes = answer["nodes"].as_array().unwrap();
            if nodes.iter().all(|node| node["to"].is_null()) {
                return Ok(nodes.iter().map(|node| node["moves"].as_u64().unwrap()).sum());
            }
            if Instant::now() > until {
                return Err(format!("moves do not end when all is well: {answer}"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn meta_url(&self) -> String {
        format!("mortar://{}", self.relay(ServerId::Meta).address)
    }

    /// Makes everything well; one server may stay away.
    pub(crate) async fn heal(&mut self, lost: Option<ServerId>) -> Result<(), String> {
        let servers = self.servers().into_iter().filter(|server| Some(*server) != lost);
        for server in servers.clone() {
            self.relay(server).set_conditions(NetworkConditions::default());
            self.make_room(server);
            self.signal(server, Signal::CONT);
            self.launch(server);
        }
        for server in servers {
            self.wait_ready(server).await?;
        }
        Ok(())
    }

    /// Servers that have ended by themselves.
    pub(crate) fn exited_servers(&mut self) -> Vec<String> {
        let mut ended = Vec::new();
        for (server, child) in &mut self.children {
            if let Some(status) = child.try_wait().unwrap() {
                ended.push(format!("{server:?} has ended by itself: {status}"));
            }
        }
        ended
    }

    /// Where all of it is.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        for child in self.children.values_mut() {
            // One that has ended already cannot be killed, and need not.
            let _ = child.kill();
            let _ = child.wait();
        }
        // Before the directory that they are in.
        self.disks.clear();
    }
}

/// A file system of its own, with little room.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Result<Self, String> {
        fs::create_dir(at).unwrap();
        let mut mount = Command::new("mount");
        match mount.args(["-t", "tmpfs", "-o", &format!("size={SMALL_DISK_BYTES}"), "tmpfs"]).arg(at).output() {
            Ok(output) if output.status.success() => Ok(Self(at.to_owned())),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn fill(&self) {
        let mut ballast = File::options().create(true).append(true).open(self.0.join("ballast")).unwrap();
        // Until there is no room for one byte more.
        for len in [1 << 20, 4 << 10, 1] {
            let bytes = vec![1; len];
            while ballast.write(&bytes).is_ok_and(|written| written > 0) {}
        }
    }

    fn make_room(&self) {
        // One that is not full has none.
        let _ = fs::remove_file(self.0.join("ballast"));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // What a process still holds open goes when it ends.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    // A server refuses a data directory that others can enter.
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), &to).unwrap();
        }
    }
}

/// How to connect for what concerns the whole cluster.
fn cluster_scope_options() -> client::ConnectOptions {
    let mut options = client::ConnectOptions::default();
    options.spaceless = true;
    options
}

/// Where a server listens, if it has said so.
fn read_address(said: &Path) -> Option<SocketAddr> {
    let said = fs::read_to_string(said).ok()?;
    let ready: serde_json::Value = serde_json::from_str(said.trim()).ok()?;
    ready["addresses"][0].as_str()?.parse().ok()
}

impl ServerId {
    /// A name that a file can have.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Meta => "meta".to_owned(),
            Self::Brick(number) => format!("brick-{number}"),
            Self::Peer(number) => format!("peer-{number}"),
        }
    }
}
