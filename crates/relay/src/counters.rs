//! What has crossed a link.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// What a relay has forwarded since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Time since the start.
    pub seconds: f64,
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections that are open now.
    pub open_connections: u64,
    /// Connections that ended because the target did not accept them.
    pub failed_connections: u64,
    /// Whether the link is cut now.
    pub cut: bool,
    /// From the clients to the target.
    pub upstream: Traffic,
    /// From the target to the clients.
    pub downstream: Traffic,
    /// The last failure to accept or to connect.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_failure: Option<String>,
}

/// What has left the link in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes that were delivered.
    pub bytes: u64,
    /// Chunks that were delivered.
    pub chunks: u64,
    /// Losses: how often a chunk had to be sent again.
    pub losses: u64,
}

/// Counts the traffic of a direction.
#[derive(Debug, Default)]
pub(crate) struct TrafficCounter {
    bytes: AtomicU64,
    chunks: AtomicU64,
    losses: AtomicU64,
}

impl TrafficCounter {
    pub(crate) fn count_delivered(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.chunks.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_losses(&self, losses: u32) {
        self.losses.fetch_add(u64::from(losses), Ordering::Relaxed);
    }

    pub(crate) fn traffic(&self) -> Traffic {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic { bytes: load(&self.bytes), chunks: load(&self.chunks), losses: load(&self.losses) }
    }
}
