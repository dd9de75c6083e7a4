//! Bricks and peer servers, and which of them are alive.

use serde::{Deserialize, Serialize};

use super::entry::Record;
use super::error::CatalogError;
use super::ident::{BrickId, PeerId, StartNumber};
use super::names;

/// The kind of a brick's storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Storage {
    /// On its disk.
    Durable,
    /// In its memory: objects are lost when it ends.
    Memory,
}

/// A brick of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrickRecord {
    /// Its number.
    pub id: BrickId,
    /// Its addresses, `host:port` or `unix:/path`, the best first.
    pub addresses: Vec<String>,
    /// The kind of its storage.
    pub storage: Storage,
    /// Whether it is being drained: it gets no logical nodes, and those that it has are to move away.
    #[serde(default)]
    pub leaving: bool,
}

/// A peer server of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerRecord {
    /// Its number.
    pub id: PeerId,
    /// Its addresses, the best first.
    pub addresses: Vec<String>,
}

/// The entry of a live brick or peer server. It is removed when the session of its process ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Liveness {
    /// The number of its start.
    pub start: StartNumber,
}

/// A counter of reserved numbers, or of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counter {
    /// The next number; of changes, their number so far.
    pub(super) next: u64,
}

impl Storage {
    /// In words: "durably", "in memory".
    #[must_use]
    pub const fn adverb(self) -> &'static str {
        match self {
            Self::Durable => "durably",
            Self::Memory => "in memory",
        }
    }
}

impl Record for BrickRecord {
    fn check(&self) -> Result<(), CatalogError> {
        names::check_addresses(&self.addresses)
    }
}

impl Record for PeerRecord {
    fn check(&self) -> Result<(), CatalogError> {
        names::check_addresses(&self.addresses)
    }
}

impl Record for Liveness {
    fn check(&self) -> Result<(), CatalogError> {
        Ok(())
    }
}

impl Record for Counter {
    fn check(&self) -> Result<(), CatalogError> {
        Ok(())
    }
}
