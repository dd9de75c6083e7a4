//! The configuration of a server.

use std::net::SocketAddr;
use std::time::Duration;

use wire::link::Limits;
use wire::transport::{Address, tls};

use super::{ConnectionLimits, IoRuntimes};
use crate::auth::{ClusterCredentials, Secret};
use crate::brick::{LocalBrick, STAGING_LEASE_MS, ScrubSettings};

/// A listener that only clients of this process reach, and the secret that they show.
#[derive(Clone, Debug)]
pub struct OwnClients {
    name: String,
    secret: Secret,
}

impl OwnClients {
    /// A listener with a name and a secret that are random.
    pub(crate) fn generate() -> Self {
        Self { name: format!("own-clients-{:032x}", rand::random::<u128>()), secret: Secret::generate() }
    }

    /// The name of the listener within the process.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What its clients give as the password.
    pub(crate) fn password(&self) -> String {
        self.secret.primary()
    }

    /// Whether a caller has shown the secret.
    pub(crate) fn matches(&self, password: &str) -> bool {
        !password.is_empty() && self.secret.matches(password)
    }
}

/// The configuration of a server. The defaults suit one machine.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses to listen at.
    pub listen: Vec<Address>,
    /// Certificate and key, for addresses with TLS.
    pub tls: Option<tls::Server>,
    /// What the processes of the cluster authenticate each other by.
    pub cluster_credentials: ClusterCredentials,
    /// The address for `/metrics` and `/health` by HTTP; `None`: no HTTP.
    pub http: Option<SocketAddr>,
    /// Whether addresses that other machines can reach are allowed without TLS or users.
    pub insecure: bool,
    /// Threads that serve connections: by default one for every two processors. The other processors are for the
    /// threads of the store and for clients on the same machine: on two processors, two such threads and a client
    /// displace each other and serve less than one thread does.
    pub threads: usize,
    /// The threads of other servers of this process, if it shares theirs instead.
    pub io_runtimes: Option<IoRuntimes>,
    /// Whether others in this process reach its TCP addresses without the network.
    pub is_reached_in_process: bool,
    /// The bricks of this process: a peer server reports their problems as its own, and the sums of their metrics.
    pub local_bricks: Vec<LocalBrick>,
    /// Where clients of this process connect that are trusted as the process itself is: those that work on jobs.
    pub own_clients: Option<OwnClients>,
    /// Connections at a time: in all, of one user, from one address, half-open, and the reserve for administrators.
    pub connections: ConnectionLimits,
    /// The limits of each connection.
    pub limits: Limits,
    /// Bytes of unfinished frames of all connections. Beyond it the connection with the oldest unfinished frame is closed.
    pub unfinished_input_bytes: usize,
    /// Bytes that all connections have not sent yet. Beyond it the connection is closed that has taken little for longest.
    pub unsent_output_bytes: usize,
    /// Bytes of objects that a peer server keeps in memory: by default a part of the machine's.
    pub cache_bytes: usize,
    /// How long an upload lasts at a brick after its last bytes, and staged bytes without a transaction that names them.
    pub upload_lease: Duration,
    /// How a brick scrubs itself.
    pub scrub: ScrubSettings,
    /// How long a client may take for TLS negotiation and authentication.
    pub handshake_timeout: Duration,
    /// How long a shutdown waits until all requests are answered.
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
            io_runtimes: None,
            is_reached_in_process: false,
            local_bricks: Vec::new(),
            own_clients: None,
            connections: ConnectionLimits::default(),
            limits: Limits::default(),
            unfinished_input_bytes: 512 << 20,
            unsent_output_bytes: 1 << 30,
            cache_bytes: cache_bytes(),
            upload_lease: Duration::from_millis(STAGING_LEASE_MS),
            scrub: ScrubSettings::default(),
            handshake_timeout: Duration::from_secs(10),
            shutdown_timeout: Duration::from_secs(10),
        }
    }
}

impl Config {
    /// How many I/O threads a server has.
    pub(crate) fn thread_count(&self) -> usize {
        self.io_runtimes.as_ref().map_or(self.threads, |runtimes| runtimes.len()).max(1)
    }
}

/// The cache of a peer server that suits this machine: a sixty-fourth (2^-6) of its memory.
fn cache_bytes() -> usize {
    store::share_of_memory(store::machine_memory(), 6, (64 << 20, 4 << 30))
}

/// The number of threads that suits this machine. More than 16 would wait for the lock of the store's writers.
fn io_threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (processors / 2).clamp(1, 16)
}
