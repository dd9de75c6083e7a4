//! Members of etcd on their own ports. They end with the test.

use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use wire::transport::tls;

use super::super::api::Base64;
use super::super::http::EtcdMember;
use super::*;

/// Members of one etcd.
pub(super) struct Servers {
    dir: TempDir,
    members: Vec<Server>,
    tls: Option<MemberTls>,
    /// The user `root` and the file with its password, once users are required.
    root: Option<EtcdUser>,
}

/// How members speak TLS to their clients.
#[derive(Clone)]
pub(super) struct MemberTls {
    /// Their certificate and its key.
    pub(super) identity: tls::Identity,
    /// The authority whose client certificates they require.
    pub(super) client_ca: Option<PathBuf>,
    /// How the tests reach them.
    pub(super) client: tls::Client,
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
        Self::start_with(count, None).await
    }

    /// The same over TLS.
    pub(super) async fn start_with(count: usize, tls: Option<MemberTls>) -> Self {
        let mut servers = Self::prepare(count, tls);
        for at in 0..count {
            servers.run(at);
        }
        let store = Etcd::new(&EtcdConfig { operation_timeout: Duration::from_secs(60), ..servers.config() }).unwrap();
        if let Err(error) = store.read(Prefix::all()).await {
            panic!("etcd does not start: {error}\n{}", servers.log(0));
        }
        servers
    }

    /// Members that are not started yet.
    pub(super) fn prepare(count: usize, tls: Option<MemberTls>) -> Self {
        // The listeners are held until all ports are chosen, so that the ports differ.
        let held: Vec<TcpListener> = (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let ports: Vec<u16> = held.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        drop(held);
        let members = ports.chunks(2).map(|ports| Server { client: ports[0], peer: ports[1], process: None }).collect();
        Self { dir: tempfile::tempdir().unwrap(), members, tls, root: None }
    }

    /// Waits until a member accepts connections.
    pub(super) async fn wait_listening(&self, at: usize) {
        while tokio::net::TcpStream::connect(self.address(at)).await.is_err() {
            time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Starts a member, for the first time or again.
    pub(super) fn run(&mut self, at: usize) {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let client_url = format!("{}://127.0.0.1:{}", self.scheme(), self.members[at].client);
        let peers: Vec<String> =
            self.members.iter().enumerate().map(|(at, member)| format!("m{at}={}", url(member.peer))).collect();
        let token = self.members[0].peer.to_string();
        let member = &mut self.members[at];
        let log = File::options().create(true).append(true).open(self.dir.path().join(format!("m{at}.log"))).unwrap();
        let mut command = Command::new("etcd");
        command
            .args(["--name", &format!("m{at}"), "--data-dir"])
            .arg(self.dir.path().join(format!("m{at}")))
            .args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url])
            .args(["--listen-peer-urls", &url(member.peer), "--initial-advertise-peer-urls", &url(member.peer)])
            .args(["--initial-cluster", &peers.join(","), "--initial-cluster-token", &token])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        if let Some(tls) = &self.tls {
            command.arg("--cert-file").arg(&tls.identity.certificate).arg("--key-file").arg(&tls.identity.key);
            if let Some(ca) = &tls.client_ca {
                command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(ca);
            }
        }
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
        (0..self.members.len()).map(|at| format!("{}://{}", self.scheme(), self.address(at))).collect()
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    pub(super) fn config(&self) -> EtcdConfig {
        EtcdConfig { tls: self.tls_client().cloned(), user: self.root.clone(), ..EtcdConfig::new(self.urls()) }
    }

    fn tls_client(&self) -> Option<&tls::Client> {
        self.tls.as_ref().map(|tls| &tls.client)
    }

    fn log(&self, at: usize) -> String {
        let log = std::fs::read_to_string(self.dir.path().join(format!("m{at}.log"))).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(20).collect();
        last.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    async fn post(&self, at: usize, path: &str, request: Value) -> Option<Value> {
        let member = EtcdMember::new(&self.urls()[at], self.tls_client()).unwrap();
        let mut token = None;
        if let Some(root) = &self.root {
            let login = json!({ "name": root.name, "password": root.password().unwrap() }).to_string();
            let answer = member.call("/v3/auth/authenticate", login.into(), None, Duration::from_secs(5)).await.ok()?;
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            token = Some(answer["token"].as_str().unwrap().parse().unwrap());
        }
        let answer = member.call(path, Bytes::from(request.to_string()), token.as_ref(), Duration::from_secs(5)).await;
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

    /// Requires users from now on: `root`, with this password.
    pub(super) async fn require_users(&mut self, password: &str) {
        self.post_ok("/v3/auth/user/add", json!({ "name": "root", "password": password })).await;
        self.post_ok("/v3/auth/role/add", json!({ "name": "root" })).await;
        self.post_ok("/v3/auth/user/grant", json!({ "user": "root", "role": "root" })).await;
        self.post_ok("/v3/auth/enable", json!({})).await;
        self.root = Some(self.user_with("root", password));
    }

    /// A user, as a client names it, with a file that has this password.
    pub(super) fn user_with(&self, name: &str, password: &str) -> EtcdUser {
        let password_file = self.dir.path().join(format!("{name}-{password}"));
        let mut file =
            File::options().create(true).write(true).truncate(true).mode(0o600).open(&password_file).unwrap();
        writeln!(file, "{password}").unwrap();
        EtcdUser { name: name.to_owned(), password_file }
    }

    /// Adds a user whose only permission is to read and write the keys with a prefix.
    pub(super) async fn add_user(&self, name: &str, password: &str, prefix: &str) -> EtcdUser {
        let mut end = prefix.as_bytes().to_vec();
        *end.last_mut().unwrap() += 1;
        let (key, range_end) = (Base64(prefix.as_bytes().to_vec()), Base64(end));
        let permission = json!({ "permType": "READWRITE", "key": key, "range_end": range_end });
        self.post_ok("/v3/auth/user/add", json!({ "name": name, "password": password })).await;
        self.post_ok("/v3/auth/role/add", json!({ "name": name })).await;
        self.post_ok("/v3/auth/role/grant", json!({ "name": name, "perm": permission })).await;
        self.post_ok("/v3/auth/user/grant", json!({ "user": name, "role": name })).await;
        self.user_with(name, password)
    }

    pub(super) async fn change_password(&self, name: &str, password: &str) {
        self.post_ok("/v3/auth/user/changepw", json!({ "name": name, "password": password })).await;
    }
}
