//! Bricks and peer servers: which there are, and which of them live.

use serde::{Deserialize, Serialize};

use super::entry::Record;
use super::error::CatalogError;
use super::ident::{BrickId, PeerId, StartNumber};
use super::names;

/// Where a brick keeps objects, and so how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Storage {
    /// On its disk.
    Durable,
    /// In its memory, until it ends.
    Memory,
}

/// A brick of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrickRecord {
    /// Its number.
    pub id: BrickId,
    /// Where it listens: `host:port` or `unix:/path`, the best first.
    pub addresses: Vec<String>,
    /// Where it keeps objects.
    pub storage: Storage,
    /// Whether it shall get no logical nodes any more, and those that it has shall move away.
    #[serde(default)]
    pub leaving: bool,
}

/// A peer server of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerRecord {
    /// Its number.
    pub id: PeerId,
    /// Where it listens, the best first.
    pub addresses: Vec<String>,
}

/// That a brick or a peer server lives. The entry vanishes with the session of its process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Liveness {
    /// Which start of it this is.
    pub start: StartNumber,
}

/// A counter: of numbers that are handed out, or of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counter {
    /// The next number; for changes, how many there were.
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
