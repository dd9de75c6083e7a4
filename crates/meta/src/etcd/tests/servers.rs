//! Members of etcd on their own ports. They end with the test.

use std::fs::File;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::api::Base64;
use super::super::http::EtcdMember;
use super::*;

/// Members of one etcd.
pub(super) struct Servers {
    dir: TempDir,
    members: Vec<Server>,
}

struct Server {
    client: u16,
    peer: u16,
    process: Option<Child>,
}

impl Drop for Servers {
    fn drop(&mut self) {
        for at in 0..self.members.len() {
            self.kill(at);
        }
    }
}

impl Servers {
    /// Starts this many members, and waits until they serve.
    pub(super) async fn start(count: usize) -> Self {
        // The listeners are held until all ports are chosen, so that the ports differ.
        let held: Vec<TcpListener> = (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let ports: Vec<u16> = held.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        drop(held);
        let members = ports.chunks(2).map(|ports| Server { client: ports[0], peer: ports[1], process: None }).collect();
        let mut servers = Self { dir: tempfile::tempdir().unwrap(), members };
        for at in 0..count {
            servers.run(at);
        }
        let store = Etcd::new(&EtcdConfig { operation_timeout: Duration::from_secs(60), ..servers.config() }).unwrap();
        if let Err(error) = store.read(Prefix::all()).await {
            panic!("etcd does not start: {error}\n{}", servers.log(0));
        }
        servers
    }

    /// Starts a member, for the first time or again.
    pub(super) fn run(&mut self, at: usize) {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let peers: Vec<String> =
            self.members.iter().enumerate().map(|(at, member)| format!("m{at}={}", url(member.peer))).collect();
        let token = self.members[0].peer.to_string();
        let member = &mut self.members[at];
        let log = File::options().create(true).append(true).open(self.dir.path().join(format!("m{at}.log"))).unwrap();
        let mut command = Command::new("etcd");
        command
            .args(["--name", &format!("m{at}"), "--data-dir"])
            .arg(self.dir.path().join(format!("m{at}")))
            .args(["--listen-client-urls", &url(member.client), "--advertise-client-urls", &url(member.client)])
            .args(["--listen-peer-urls", &url(member.peer), "--initial-advertise-peer-urls", &url(member.peer)])
            .args(["--initial-cluster", &peers.join(","), "--initial-cluster-token", &token])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        // PATH is the only variable that it needs.
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        member.process = Some(command.spawn().unwrap_or_else(|error| {
            panic!("etcd cannot be started ({error}): run script/setup, which installs Debian's etcd-server")
        }));
    }

    pub(super) fn kill(&mut self, at: usize) {
        if let Some(mut process) = self.members[at].process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Sends a signal to a member, such as to stop or continue it.
    pub(super) fn signal(&self, at: usize, signal: Signal) {
        let process = self.members[at].process.as_ref().unwrap();
        kill_process(Pid::from_child(process), signal).unwrap();
    }

    pub(super) fn address(&self, at: usize) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.members[at].client).into()
    }

    pub(super) fn urls(&self) -> Vec<String> {
        (0..self.members.len()).map(|at| format!("http://{}", self.address(at))).collect()
    }

    pub(super) fn config(&self) -> EtcdConfig {
        EtcdConfig::new(self.urls())
    }

    fn log(&self, at: usize) -> String {
        let log = std::fs::read_to_string(self.dir.path().join(format!("m{at}.log"))).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(20).collect();
        last.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    async fn post(&self, at: usize, path: &str, request: Value) -> Option<Value> {
        let member = EtcdMember::new(&self.urls()[at]).unwrap();
        let answer = member.call(path, Bytes::from(request.to_string()), None, Duration::from_secs(5)).await;
        answer.ok().map(|answer| serde_json::from_slice(&answer).unwrap())
    }

    async fn post_ok(&self, path: &str, request: Value) -> Value {
        self.post(0, path, request).await.unwrap_or_else(|| panic!("{path} fails"))
    }

    /// Index of the leader.
    pub(super) async fn leader(&self) -> usize {
        loop {
            for (at, member) in self.members.iter().enumerate() {
                if member.process.is_none() {
                    continue;
                }
                let Some(status) = self.post(at, "/v3/maintenance/status", json!({})).await else { continue };
                if status["leader"].is_string() && status["leader"] == status["header"]["member_id"] {
                    return at;
                }
            }
            time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(super) async fn compact(&self, up_to: Revision) -> Result<()> {
        self.post_ok("/v3/kv/compaction", json!({ "revision": up_to.0.to_string() })).await;
        Ok(())
    }

    pub(super) async fn put(&self, key: &[u8]) {
        self.post_ok("/v3/kv/put", json!({ "key": Base64(key.to_vec()) })).await;
    }

    pub(super) async fn revoke_all_leases(&self) {
        let leases = self.post_ok("/v3/lease/leases", json!({})).await;
        for lease in leases["leases"].as_array().unwrap() {
            self.post_ok("/v3/lease/revoke", json!({ "ID": lease["ID"] })).await;
        }
    }

    pub(super) async fn require_password(&self, user: &str, password: &str) {
        self.post_ok("/v3/auth/user/add", json!({ "name": user, "password": password })).await;
        self.post_ok("/v3/auth/role/add", json!({ "name": "root" })).await;
        self.post_ok("/v3/auth/user/grant", json!({ "user": user, "role": "root" })).await;
        self.post_ok("/v3/auth/enable", json!({})).await;
    }
}
