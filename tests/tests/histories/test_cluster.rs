//! The cluster for histories: processes, each with a relay in front of it, that can be killed, stopped and restarted.

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
use wire::proto::moves;

use crate::relay::{NetworkConditions, Relay, RelayThread};

/// Size of a small disk in bytes.
const SMALL_DISK_BYTES: u64 = 48 << 20;
/// The group of the redirectors.
pub(crate) const GROUP: &str = "site";
/// The exit code of a command that may be repeated.
const EXIT_UNAVAILABLE: i32 = 5;
/// How often a condition is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A server of the cluster, numbered from 1 in each role. The order is that of the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServerId {
    Meta,
    Brick(u64),
    Peer(u64),
    Redirector(u64),
}

/// A cluster of processes.
pub(crate) struct TestCluster {
    dir: TempDir,
    relays: BTreeMap<ServerId, Relay>,
    /// Servers with their own file system.
    disks: BTreeMap<ServerId, SmallDisk>,
    children: BTreeMap<ServerId, Child>,
    relay_thread: RelayThread,
    /// Threads of each process that serve connections. A peer server has a shard for each.
    io_threads: u16,
}

impl TestCluster {
    /// Starts a cluster with a space that has one logical node at each brick, and peer servers of one shard, which have one connection to
    /// each brick.
    pub(crate) async fn start(bricks: u64, peers: u64) -> Self {
        Self::start_with((bricks, peers, 0), false, 1).await.unwrap()
    }

    /// Starts a cluster of bricks, peer servers with several shards, and redirectors of one group, with bricks on small disks if
    /// requested.
    ///
    /// # Errors
    /// If small disks are not available.
    pub(crate) async fn start_on(counts: (u64, u64, u64), small_disks: bool) -> Result<Self, String> {
        Self::start_with(counts, small_disks, 2).await
    }

    async fn start_with(
        (bricks, peers, redirectors): (u64, u64, u64),
        small_disks: bool,
        io_threads: u16,
    ) -> Result<Self, String> {
        let dir = tempfile::Builder::new().prefix("mortar-histories-").tempdir().unwrap();
        let thread = RelayThread::start();
        let servers = (1..=bricks).map(ServerId::Brick).chain((1..=peers).map(ServerId::Peer));
        let servers = servers.chain((1..=redirectors).map(ServerId::Redirector));
        let relays = [ServerId::Meta].into_iter().chain(servers).map(|server| (server, thread.add())).collect();
        let mut disks = BTreeMap::new();
        for brick in (1..=bricks).map(ServerId::Brick).filter(|_| small_disks) {
            disks.insert(brick, SmallDisk::mount(&dir.path().join(format!("{}.disk", brick.name())))?);
        }
        let mut ground = Self { dir, relays, disks, children: BTreeMap::new(), relay_thread: thread, io_threads };
        let all = ground.servers();
        let (first, peers) =
            all.split_at(all.partition_point(|server| matches!(server, ServerId::Meta | ServerId::Brick(_))));
        for server in first {
            // One after the other, so that logical nodes have the numbers of their bricks.
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
                // On a very busy machine the entries of bricks expire.
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

    /// Sets the failure policy of the space to `fail_stop`.
    pub(crate) fn set_fail_stop(&self) {
        let meta = format!("mortar://{}", self.relay(ServerId::Meta).address);
        run(&mut mortar(&["--server", &meta, "space", "set", "main", "--policy", "fail_stop"])).ok();
    }

    fn file(&self, server: ServerId, what: &str) -> PathBuf {
        self.dir.path().join(format!("{}.{what}", server.name()))
    }

    /// The directory of a server.
    pub(crate) fn directory(&self, server: ServerId) -> PathBuf {
        match self.disks.get(&server) {
            Some(disk) => disk.0.join(server.name()),
            None => self.dir.path().join(server.name()),
        }
    }

    /// Fills the small disk of a server.
    pub(crate) fn fill(&self, server: ServerId) {
        if let Some(disk) = self.disks.get(&server) {
            disk.fill();
        }
    }

    /// Frees space on the small disk of a server.
    pub(crate) fn make_room(&self, server: ServerId) {
        if let Some(disk) = self.disks.get(&server) {
            disk.make_room();
        }
    }

    /// All servers of the cluster.
    pub(crate) fn servers(&self) -> Vec<ServerId> {
        self.relays.keys().copied().collect()
    }

    fn peer_hosts(&self) -> Vec<String> {
        let peers = self.relays.iter().filter(|(server, _)| matches!(server, ServerId::Peer(_)));
        peers.map(|(_, relay)| relay.address.to_string()).collect()
    }

    /// The URL for clients. `first` is the peer server that they try first. With redirectors, one client of four goes direct.
    pub(crate) fn url(&self, first: u64) -> String {
        let mut hosts = self.peer_hosts();
        let count = hosts.len();
        hosts.rotate_left(first as usize % count);
        let has_redirectors = self.relays.keys().any(|server| matches!(server, ServerId::Redirector(_)));
        let group = if has_redirectors && first % 4 != 3 { format!("?group={GROUP}") } else { String::new() };
        format!("mortar://{}/main{group}", hosts.join(","))
    }

    /// Another relay to a running server, for one client.
    pub(crate) fn private_relay(&self, server: ServerId) -> Relay {
        let relay = self.relay_thread.add();
        relay.target().set_address(read_address(&self.file(server, "ready")).unwrap());
        relay
    }

    /// The relay in front of a server.
    pub(crate) fn relay(&self, server: ServerId) -> &Relay {
        &self.relays[&server]
    }

    fn command(&self, server: ServerId) -> Command {
        let role = server.name();
        let role = role.split('-').next().unwrap();
        let threads = self.io_threads.to_string();
        let mut command =
            mortar(&["node", "--json", "--role", role, "--listen", "127.0.0.1:0", "--io-threads", &threads]);
        if matches!(server, ServerId::Meta | ServerId::Brick(_)) {
            command.arg("--data").arg(self.directory(server));
        }
        if let ServerId::Redirector(_) = server {
            command.args(["--group", GROUP]);
            for host in self.peer_hosts() {
                command.args(["--upstream", &format!("mortar://{host}")]);
            }
        } else if server != ServerId::Meta {
            command.args(["--meta", &format!("mortar://{}", self.relay(ServerId::Meta).address)]);
        }
        if server != ServerId::Meta {
            command.args(["--advertise", &self.relay(server).address.to_string()]);
        }
        command
    }

    /// Starts a server and does not wait. A server that needs another one waits for it.
    pub(crate) fn launch(&mut self, server: ServerId) {
        if self.children.contains_key(&server) {
            return;
        }
        let ready = self.file(server, "ready");
        let log = File::options().create(true).append(true).open(self.file(server, "log")).unwrap();
        let mut command = self.command(server);
        command.stdin(Stdio::null()).stdout(File::create(&ready).unwrap()).stderr(log);
        self.children.insert(server, spawn(command).unwrap());
        let target = self.relay(server).target();
        tokio::spawn(async move {
            let until = Instant::now() + TEST_TIMEOUT;
            while Instant::now() < until {
                if let Some(address) = read_address(&ready) {
                    return target.set_address(address);
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        });
    }

    /// Waits until a server reports that it is ready.
    pub(crate) async fn wait_ready(&mut self, server: ServerId) -> Result<(), String> {
        let (ready, until) = (self.file(server, "ready"), Instant::now() + TEST_TIMEOUT);
        let address = loop {
            if let Some(address) = read_address(&ready) {
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

    /// Kills a server.
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

    /// Stops or continues a running server.
    pub(crate) fn signal(&self, server: ServerId, signal: Signal) {
        if let Some(child) = self.children.get(&server) {
            send(child, signal);
        }
    }

    /// Copies the directory of a server that is not running. Returns the path of the copy.
    pub(crate) fn copy(&self, server: ServerId) -> PathBuf {
        let (from, to) = (self.directory(server), self.file(server, "copy"));
        assert!(!self.children.contains_key(&server) && !to.exists(), "{server:?} cannot be copied now");
        copy_tree(&from, &to);
        to
    }

    /// Replaces the directory of a server that is not running by a copy.
    pub(crate) fn roll_back(&self, server: ServerId, copy: &Path) {
        assert!(!self.children.contains_key(&server), "{server:?} runs");
        fs::remove_dir_all(self.directory(server)).unwrap();
        fs::rename(copy, self.directory(server)).unwrap();
    }

    /// Accepts that a brick, which does not run, lost changes. The meta-server must run.
    pub(crate) fn accept_loss(&self, brick: ServerId) {
        let (config, data) = (self.file(brick, "toml"), self.directory(brick));
        let settings = format!("role = \"brick\"\ndata = {data:?}\nmeta = [{:?}]\n", self.meta_url());
        fs::write(&config, settings).unwrap();
        run(mortar(&["brick", "accept-loss", "--yes", "--config"]).arg(config)).ok();
    }

    /// Requests moves of logical nodes from the meta-server. Fails silently if it is unreachable or the nodes are moving already.
    pub(crate) fn ask_to_move(&self, request: moves::r#move::Request) {
        let url = self.meta_url();
        tokio::spawn(async move {
            if let Ok(client) = client::AdminClient::connect_with(&url, cluster_scope_options()).await {
                drop(client.move_nodes(moves::Move { request: Some(request) }).await);
            }
        });
    }

    /// Waits until no logical node moves. Returns the sum of the move counts.
    pub(crate) async fn wait_moves_done(&self) -> Result<u64, String> {
        let until = Instant::now() + TEST_TIMEOUT;
        let failed = |error: client::Error| format!("the placement map cannot be read: {error}");
        let client =
            client::AdminClient::connect_with(&self.meta_url(), cluster_scope_options()).await.map_err(failed)?;
        loop {
            let show = moves::r#move::Request::Show(moves::Show::default());
            let moved = client.move_nodes(moves::Move { request: Some(show) }).await.map_err(failed)?;
            if moved.nodes.iter().all(|node| node.to.is_none()) {
                return Ok(moved.nodes.iter().map(|node| u64::from(node.moves)).sum());
            }
            if Instant::now() > until {
                return Err(format!("moves do not end after the recovery: {moved:?}"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn meta_url(&self) -> String {
        format!("mortar://{}", self.relay(ServerId::Meta).address)
    }

    /// Ends all faults; one server may stay dead.
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

    /// Servers that have ended unexpectedly.
    pub(crate) fn exited_servers(&mut self) -> Vec<String> {
        let mut ended = Vec::new();
        for (server, child) in &mut self.children {
            if let Some(status) = child.try_wait().unwrap() {
                ended.push(format!("{server:?} has ended unexpectedly: {status}"));
            }
        }
        ended
    }

    /// The directory of the cluster.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        for child in self.children.values_mut() {
            // A process that has ended cannot be killed, and need not be.
            let _ = child.kill();
            let _ = child.wait();
        }
        // Before the directory that contains them.
        self.disks.clear();
    }
}

/// A small file system.
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
        // Until not a single byte fits.
        for len in [1 << 20, 4 << 10, 1] {
            let bytes = vec![1; len];
            while ballast.write(&bytes).is_ok_and(|written| written > 0) {}
        }
    }

    fn make_room(&self) {
        // A disk that is not full has no ballast file.
        let _ = fs::remove_file(self.0.join("ballast"));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, because a process may still have files open.
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

/// The connect options for requests about the whole cluster.
fn cluster_scope_options() -> client::AdminOptions {
    let mut options = client::AdminOptions::default();
    options.spaceless = true;
    options
}

/// The address in the ready file of a server, if it was written.
fn read_address(ready: &Path) -> Option<SocketAddr> {
    let text = fs::read_to_string(ready).ok()?;
    let report: serde_json::Value = serde_json::from_str(text.trim()).ok()?;
    report["addresses"][0].as_str()?.parse().ok()
}

impl ServerId {
    /// The name of its directory.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Meta => "meta".to_owned(),
            Self::Brick(number) => format!("brick-{number}"),
            Self::Redirector(number) => format!("redirector-{number}"),
            Self::Peer(number) => format!("peer-{number}"),
        }
    }
}
