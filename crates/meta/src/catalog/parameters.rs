//! The parameters that all processes of a cluster share.

use serde::{Deserialize, Serialize};

use super::entry::Record;
use super::error::CatalogError;

/// The format of the catalogue that this program reads and writes.
pub const FORMAT: u32 = 1;

/// What all processes of a cluster have to agree on. A process reads the parameters when it starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameters {
    /// The format of the catalogue.
    pub format: u32,
    /// The number of the cluster: 32 hexadecimal digits. A process refuses to join a cluster of another number.
    pub cluster: String,
    /// How long a process counts as alive without renewing its session, in milliseconds: 1,000 to 60,000.
    pub session_ttl_ms: u64,
}

impl Parameters {
    /// The defaults for a new cluster.
    #[must_use]
    pub fn generate() -> Self {
        let cluster = format!("{:032x}", rand::random::<u128>());
        Self { format: FORMAT, cluster, session_ttl_ms: 5_000 }
    }
}

impl Record for Parameters {
    fn check(&self) -> Result<(), CatalogError> {
        if self.format != FORMAT {
            return Err(CatalogError::Newer { found: self.format, known: FORMAT });
        }
        if self.cluster.len() != 32 || !self.cluster.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(CatalogError::invalid(
                "the number of a cluster",
                &self.cluster,
                "it must have 32 hexadecimal digits",
            ));
        }
        if !(1_000..=60_000).contains(&self.session_ttl_ms) {
            let what = "the time to live of sessions";
            return Err(CatalogError::invalid(what, self.session_ttl_ms, "it must be 1000 to 60000 milliseconds"));
        }
        Ok(())
    }
}
