//! How a client of a cluster behaves.

use std::time::Duration;

use wire::handshake::Credentials;
use wire::transport::tls;

/// How a client of a cluster behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClusterOptions {
    /// How long one attempt to connect may take, the handshake included.
    pub connect_timeout: Duration,
    /// How long a read, or the outcome of a commit, is waited for.
    pub timeout: Duration,
    /// Bytes of copies that are kept.
    pub cache_bytes: usize,
    /// Closed timestamps are wanted, for [`IsolationLevel::Snapshot`](super::IsolationLevel::Snapshot). They cost a small message each 10 ms
    /// for each logical node that is in use.
    pub snapshots: bool,
    /// How this client names itself in the servers' logs.
    pub agent: String,
    /// What `mortars://` needs: whom to believe, and who this client is.
    pub tls: Option<tls::Client>,
    /// Who this client is, by name and password. Without a name, it is the user of the address.
    pub credentials: Option<Credentials>,
    /// The password may be sent where others can listen.
    pub insecure: bool,
}

impl Default for ClusterOptions {
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
