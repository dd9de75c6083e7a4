//! Options of a client of a cluster.

use std::time::Duration;

use wire::handshake::Credentials;
use wire::transport::tls;

/// The longest time limit of a client, a year. A clock may not be able to show the end of a longer one.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(366 * 24 * 3600);

/// Options of a client of a cluster.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// Time limit of one attempt to connect, with the handshake. If a peer server does not answer at once, the client tries the
    /// next one of its URL meanwhile.
    pub connect_timeout: Duration,
    /// Time limit of a call: a read, a query, or the outcome of a commit. A year at most.
    pub timeout: Duration,
    /// Maximum bytes of cached copies, and of the structs that were decoded from them.
    pub cache_bytes: usize,
    /// Whether to receive closed timestamps, which [`IsolationLevel::Snapshot`](super::IsolationLevel::Snapshot) requires. They cost
    /// a small message every 10 ms for each logical node in use.
    pub snapshots: bool,
    /// The name of this client in the servers' logs.
    pub agent: String,
    /// For `mortars://`: the trusted certificates, and the certificate of this client.
    pub tls: Option<tls::Client>,
    /// User name and password. Without a name, the user of the URL is taken.
    pub credentials: Option<Credentials>,
    /// Whether the password may be sent over a connection that is not encrypted.
    pub insecure: bool,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(30),
            cache_bytes: 256 << 20,
            snapshots: false,
            agent: concat!("mortar-client ", env!("CARGO_PKG_VERSION")).to_owned(),
            tls: None,
            credentials: None,
            insecure: false,
        }
    }
}
