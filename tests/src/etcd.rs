//! Members of etcd as processes.

use std::fs::{self, File};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use crate::node_process::free_port;
use crate::{POLL_INTERVAL, TEST_TIMEOUT, spawn};

/// The members of an etcd, in a directory of a test. Dropping it kills them.
pub struct EtcdMembers {
    dir: PathBuf,
    members: Vec<Member>,
}

struct Member {
    client: u16,
    peer: u16,
    child: Option<Child>,
}

impl EtcdMembers {
    /// Starts this many members, and waits until they accept connections.
    ///
    /// # Panics
    /// If they do not within [`TEST_TIMEOUT`].
    #[must_use]
    pub fn start(dir: &Path, count: usize) -> Self {
        let members = (0..count).map(|_| Member { client: free_port(), peer: free_port(), child: None }).collect();
        let mut all = Self { dir: dir.to_owned(), members };
        (0..count).for_each(|at| all.run(at));
        (0..count).for_each(|at| all.wait_listening(at));
        all
    }

    /// Starts a member, for the first time or again.
    ///
    /// # Panics
    /// If it runs, or cannot be started.
    pub fn run(&mut self, at: usize) {
        assert!(self.members[at].child.is_none(), "member {at} runs");
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let named = |(at, member): (usize, &Member)| format!("m{at}={}", url(member.peer));
        let cluster: Vec<String> = self.members.iter().enumerate().map(named).collect();
        let Member { client, peer, .. } = self.members[at];
        let log = self.dir.join(format!("etcd-{at}.log"));
        let log = File::options().create(true).append(true).open(log).expect("a log");
        let mut command = Command::new("etcd");
        command.args(["--name", &format!("m{at}"), "--data-dir"]).arg(self.dir.join(format!("etcd-{at}")));
        command.args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)]);
        command.args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)]);
        command.args([
            "--initial-cluster",
            &cluster.join(","),
            "--heartbeat-interval",
            "50",
            "--election-timeout",
            "500",
        ]);
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        let started = spawn(command);
        self.members[at].child = Some(started.expect("etcd starts: script/setup installs it"));
    }

    fn wait_listening(&self, at: usize) {
        let until = Instant::now() + TEST_TIMEOUT;
        while TcpStream::connect(("127.0.0.1", self.members[at].client)).is_err() {
            let log = || fs::read_to_string(self.dir.join(format!("etcd-{at}.log"))).unwrap_or_default();
            assert!(Instant::now() < until, "etcd does not start:\n{}", log());
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Kills a member.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill(&mut self, at: usize) {
        let mut child = self.members[at].child.take().expect("the member runs");
        child.kill().expect("a child can be killed");
        child.wait().expect("a killed child ends");
    }

    /// The addresses of the members, as URLs.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| format!("http://127.0.0.1:{}", member.client)).collect()
    }
}

impl Drop for EtcdMembers {
    fn drop(&mut self) {
        for at in 0..self.members.len() {
            if self.members[at].child.is_some() {
                self.kill(at);
            }
        }
    }
}
