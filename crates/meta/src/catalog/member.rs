//! Bricks and peer servers, and which of them are alive.

use model::limits;
use serde::{Deserialize, Serialize};

use super::entry::Record;
use super::error::CatalogError;
use super::ident::{BrickId, PeerId, StartNumber};
use super::names;
use crate::opening::{OpeningHistory, OpeningRecord};
use crate::plant::{Bug, planted};

/// Bytes of the longest refusal that is kept.
pub(super) const MAX_REFUSAL: usize = 1000;

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
    /// Its addresses, `host:port` or `unix:/path`, the best first. None of a brick that was not started since the cluster was restored.
    pub addresses: Vec<String>,
    /// The kind of its storage.
    pub storage: Storage,
    /// Whether it is being drained: it gets no logical nodes, and those that it has are to move away.
    #[serde(default)]
    pub leaving: bool,
}

/// What the catalogue knows of the openings of a brick's store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrickOpening {
    /// The last openings, and a position that its log has reached.
    #[serde(flatten)]
    pub record: OpeningRecord,
    /// Why its process refused to serve at its last start; `None` once it has opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A peer server of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerRecord {
    /// Its number.
    pub id: PeerId,
    /// Its addresses, the best first.
    pub addresses: Vec<String>,
}

/// A server of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerId {
    /// A brick.
    Brick(BrickId),
    /// A peer server.
    Peer(PeerId),
}

impl std::fmt::Display for ServerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Brick(id) => write!(f, "brick {id}"),
            Self::Peer(id) => write!(f, "peer server {id}"),
        }
    }
}

/// The entry of a live brick or peer server. It is removed when the session of its process ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Liveness {
    /// The number of its start.
    pub start: StartNumber,
    /// Why it serves nothing now, although it is alive: its clock is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl Liveness {
    /// The entry of a server that serves.
    #[must_use]
    pub fn of(start: StartNumber) -> Self {
        Self { start, refused: None }
    }

    /// Whether the server serves, and so can get logical nodes.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.refused.is_none() || planted(Bug::RefusedBrickAssigned)
    }
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
        if self.addresses.is_empty() { Ok(()) } else { names::check_addresses(&self.addresses) }
    }
}

fn check_refusal(refused: Option<&String>) -> Result<(), CatalogError> {
    match refused {
        Some(why) if why.len() > MAX_REFUSAL => {
            Err(CatalogError::invalid("the refusal of a brick", why, format!("it has at most {MAX_REFUSAL} bytes")))
        }
        _ => Ok(()),
    }
}

impl Record for BrickOpening {
    fn check(&self) -> Result<(), CatalogError> {
        let OpeningRecord { base, claimed, .. } = self.record;
        if let Some(opening) = [base, claimed].into_iter().flatten().find(|known| known.number > limits::COUNT) {
            return Err(CatalogError::invalid("the number of an opening", opening.number, "nothing counts so far"));
        }
        check_refusal(self.refused.as_ref())
    }
}

impl Record for OpeningHistory {
    fn check(&self) -> Result<(), CatalogError> {
        match self.is_valid() {
            true => Ok(()),
            false => Err(CatalogError::invalid(
                "the openings of the catalogue",
                "a list",
                "numbers and revisions rise, up to 2^62",
            )),
        }
    }
}

impl Record for PeerRecord {
    fn check(&self) -> Result<(), CatalogError> {
        names::check_addresses(&self.addresses)
    }
}

impl Record for Liveness {
    fn check(&self) -> Result<(), CatalogError> {
        check_refusal(self.refused.as_ref())
    }
}

impl Record for Counter {
    fn check(&self) -> Result<(), CatalogError> {
        match self.next <= limits::COUNT {
            true => Ok(()),
            false => Err(CatalogError::invalid("a counter", self.next, "nothing counts so far")),
        }
    }
}
