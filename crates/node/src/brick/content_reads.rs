//! Reads of ranges of a blob's bytes.

use bytes::Bytes;
use model::{Object, Result};
use store::Snapshot;
use wire::cluster::{ReadContent, is_expected};

use super::page_rows as rows;

/// What a read of a range found.
pub(crate) struct FoundRange {
    /// The object, unless its content is in the expected state.
    pub(crate) object: Option<Object>,
    /// The bytes, if they were read.
    pub(crate) bytes: Option<RangeBytes>,
}

/// The bytes of a range.
pub(crate) enum RangeBytes {
    /// In memory.
    Bytes(Bytes),
    /// Where they are stored.
    Pieces(store::Pieces),
}

/// Bytes up to which a range is read into memory, at once if they are in the system's; more is sent from where it is stored.
pub(crate) const MAX_COPIED: u32 = 64 << 10;

/// Reads a range in one state of the store.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn read_range(state: &Snapshot, read: &ReadContent) -> Result<FoundRange> {
    let ReadContent { oid, offset, length, expected } = *read;
    let object = rows::read_object(state, oid.page(), oid.slot())?.filter(|object| object.class == oid.class());
    let content = object.as_ref().and_then(Object::content);
    if !is_expected(expected, content) {
        return Ok(FoundRange { object, bytes: None });
    }
    let bytes = match (&object, content) {
        (None, _) => None,
        // The object has all its bytes, and it is in the answer: the client cannot expect a state of it.
        (Some(_), None) => Some(RangeBytes::Bytes(Bytes::new())),
        (Some(_), Some(content)) => {
            let len = u64::from(length).min(content.size.saturating_sub(offset));
            Some(match length {
                0..=MAX_COPIED => RangeBytes::Bytes(state.read_content(content.id, offset, len)?),
                _ => RangeBytes::Pieces(state.content_pieces(content.id, offset, len)?),
            })
        }
    };
    Ok(FoundRange { object: object.filter(|_| expected.is_none()), bytes })
}
