//! The key by which a peer server recognises the number that another one has given to a client.

use std::fmt;

use blake2::Blake2sMac256;
use blake2::digest::{KeyInit, Mac};
use bytes::Bytes;
use model::SpaceId;
use serde::{Deserialize, Serialize};

use super::entry::Record;
use super::error::CatalogError;

/// Bytes in a key.
const KEY: usize = 32;

/// The key by which all peer servers of a cluster recognise the numbers that they have given to clients. A client shows the token of its
/// number whenever it connects, so no client can use the number of another one, which everybody may learn.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientNumberKey {
    key: [u8; KEY],
}

impl fmt::Debug for ClientNumberKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientNumberKey").finish_non_exhaustive()
    }
}

impl ClientNumberKey {
    /// A random key.
    #[must_use]
    pub fn generate() -> Self {
        Self { key: rand::random() }
    }

    /// The token of a number that is given to a client of this space.
    #[must_use]
    pub fn token(&self, space: SpaceId, number: u64) -> Bytes {
        Bytes::copy_from_slice(&self.mac(space, number).finalize().into_bytes())
    }

    /// Whether this is the token of the number. The time that this takes does not depend on the token.
    #[must_use]
    pub fn matches(&self, space: SpaceId, number: u64, token: &[u8]) -> bool {
        self.mac(space, number).verify_slice(token).is_ok()
    }

    fn mac(&self, space: SpaceId, number: u64) -> Blake2sMac256 {
        let mut mac = Blake2sMac256::new(&self.key.into());
        mac.update(&space.0.to_le_bytes());
        mac.update(&number.to_le_bytes());
        mac
    }
}

impl Record for ClientNumberKey {
    fn check(&self) -> Result<(), CatalogError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_of_one_number_in_one_space_of_one_cluster() {
        let key = ClientNumberKey::generate();
        let token = key.token(SpaceId(1), 7);
        assert!(key.matches(SpaceId(1), 7, &token));
        assert!(!key.matches(SpaceId(1), 8, &token) && !key.matches(SpaceId(2), 7, &token));
        assert!(!key.matches(SpaceId(1), 7, &token[1..]) && !key.matches(SpaceId(1), 7, &[]));
        assert!(!ClientNumberKey::generate().matches(SpaceId(1), 7, &token));
        assert!(!format!("{key:?}").contains(&key.key[0].to_string()));
    }
}
