//! How a server is run.

use std::net::SocketAddr;
use std::time::Duration;

use wire::link::Limits;
use wire::transport::{Address, tls};

use super::ConnectionLimits;
use crate::auth::ClusterCredentials;

/// How a server is run; the defaults suit one machine.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen for clients.
    pub listen: Vec<Address>,
    /// What addresses that speak TLS need.
    pub tls: Option<tls::Server>,
    /// What this process and others of its cluster know each other by.
    pub cluster_credentials: ClusterCredentials,
    /// Where to answer `/metrics` and `/health` by HTTP, if anywhere.
    pub http: Option<SocketAddr>,
    /// Whether to listen where other machines can reach it, although others can listen, or nobody has to say who they are.
    pub insecure: bool,
    /// Threads that serve connections: by default one for every two processors. The others are for the threads of the
    /// store, and, on a machine that they share, for those who ask: on two processors, two such threads and a client
    /// take each other's place, and serve less than one.
    pub threads: usize,
    /// Connections at a time: in all, of one user, from one address, half-open, and the reserve for administrators.
    pub connections: ConnectionLimits,
    /// What bounds each connection.
    pub limits: Limits,
    /// Bytes of frames of all connections that have begun to arrive and are not whole. Beyond it the connection with the oldest
    /// such frame is closed.
    pub unfinished_input_bytes: usize,
    /// How long a client may take to say who it is.
    pub handshake_timeout: Duration,
    /// How long a snapshot may rest unused before it is given up.
    pub snapshot_idle: Duration,
    /// Snapshots that one connection may hold.
    pub max_snapshots: usize,
    /// How long a shutdown waits for what was asked to be answered.
    pub shutdown_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            tls: None,
            cluster_credentials: ClusterCredentials::default(),
            http: None,
            insecure: false,
            threads: io_threads(),
            connections: ConnectionLimits::default(),
            limits: Limits::default(),
            unfinished_input_bytes: 256 << 20,
            handshake_timeout: Duration::from_secs(10),
            snapshot_idle: Duration::from_secs(60),
            max_snapshots: 64,
            shutdown_timeout: Duration::from_secs(10),
        }
    }
}

/// The number of threads that suits this machine; beyond some they queue for the lock of the store's writers.
fn io_threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (processors / 2).clamp(1, 16)
}
