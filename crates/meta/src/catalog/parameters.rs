//! What all processes of a cluster have to agree on.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::entry::Record;
use super::error::CatalogError;

/// The format of the catalogue that this program reads and writes.
pub const FORMAT: u32 = 1;

/// What all processes of a cluster have to agree on. Lengths of time can only be changed while no process runs: each reads
/// them when it starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameters {
    /// The format of the catalogue.
    pub format: u32,
    /// Which cluster this is: 32 hexadecimal digits. Whoever finds another one is in the wrong place.
    pub cluster: String,
    /// How long a brick serves without hearing from the meta-server, in milliseconds: 100 to 60,000 (M1).
    pub brick_lease_ms: u64,
    /// How long copies of pages are used without hearing from above, in milliseconds: 100 to 60,000 (D4).
    pub holder_lease_ms: u64,
    /// How long a process counts as alive without keeping its session, in milliseconds: 1,000 to 60,000.
    pub session_ttl_ms: u64,
    /// How far clocks may differ, in milliseconds: 1 to 60,000 (L1).
    pub skew_ms: u64,
}

impl Parameters {
    /// The defaults for a new cluster.
    #[must_use]
    pub fn generate() -> Self {
        let cluster = format!("{:032x}", rand::random::<u128>());
        Self {
            format: FORMAT,
            cluster,
            brick_lease_ms: 3_000,
            holder_lease_ms: 3_000,
            session_ttl_ms: 5_000,
            skew_ms: 500,
        }
    }
}

impl Record for Parameters {
    fn check(&self) -> Result<(), CatalogError> {
        const LEASE: RangeInclusive<u64> = 100..=60_000;
        if self.format != FORMAT {
            return Err(CatalogError::Newer { found: self.format, known: FORMAT });
        }
        if self.cluster.len() != 32 || !self.cluster.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(CatalogError::invalid(
                "the number of a cluster",
                &self.cluster,
                "it has 32 hexadecimal digits",
            ));
        }
        for (what, ms, range) in [
            ("the lease of bricks", self.brick_lease_ms, LEASE),
            ("the lease of holders", self.holder_lease_ms, LEASE),
            ("the time to live of sessions", self.session_ttl_ms, 1_000..=60_000),
            ("the skew of clocks", self.skew_ms, 1..=60_000),
        ] {
            if !range.contains(&ms) {
                let why = format!("it is {} to {} milliseconds", range.start(), range.end());
                return Err(CatalogError::invalid(what, ms, why));
            }
        }
        Ok(())
    }
}
