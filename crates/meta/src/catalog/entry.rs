//! Entries of the catalogue as JSON: written, read and checked in one place.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::CatalogError;
use crate::Key;

/// Something that is the value of a key.
pub(super) trait Record: Serialize + DeserializeOwned {
    /// Checks what its type does not: sizes, names, ranges.
    fn check(&self) -> Result<(), CatalogError>;
}

/// The bytes of a record, which are checked first: nothing is written that cannot be read.
pub(super) fn encode<T: Record>(record: &T) -> Result<Bytes, CatalogError> {
    record.check()?;
    let unwritable = |error: serde_json::Error| {
        model::Error::new(model::ErrorKind::Internal, "an entry of the catalogue cannot be written").caused_by(error)
    };
    Ok(serde_json::to_vec(record).map_err(unwritable)?.into())
}

/// The record that bytes hold.
pub(super) fn decode<T: Record>(key: &Key, bytes: &[u8]) -> Result<T, CatalogError> {
    let damaged = |why: String| CatalogError::Damaged { key: key.to_string(), why };
    let record: T = serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
    match record.check() {
        Ok(()) => Ok(record),
        Err(newer @ CatalogError::Newer { .. }) => Err(newer),
        Err(error) => Err(damaged(error.to_string())),
    }
}
