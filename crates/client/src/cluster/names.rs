//! Names: paths in a space that are bound to objects.
//!
//! A name is a record at a place that its path tells: the logical node and the page come from a hash of it, among the page
//! numbers that are never reserved. So it is an object like others, found without a look-up, and two who bind the same
//! path meet in validation. Paths whose hashes are the same share a page, in slots one after the other.

use bytes::Bytes;
use model::{ClassId, Error, ErrorKind, FieldNumber, NodeId, Object, Oid, PageId, RecordBuilder, RecordRef, Result};
use model::{SpaceId, ValueRef, checksum, limits};

/// The class of names.
pub(super) const CLASS: ClassId = ClassId::MAX;
const PATH: FieldNumber = FieldNumber(1);
const TARGET: FieldNumber = FieldNumber(2);
/// The first page number that is computed, not reserved.
const COMPUTED: u64 = (PageId::MAX_NUMBER >> 1) + 1;
/// Names whose hashes may be the same.
pub(super) const SLOTS: u16 = 4;

/// Where a name is: the first of its slots.
pub(super) fn place(space: SpaceId, nodes: &[NodeId], path: &str) -> Result<Oid> {
    if path.is_empty() || path.len() > limits::NAME || path.contains('\0') {
        let what = format!("a name has 1 to {} bytes, none of them zero: {:.80?}", limits::NAME, path);
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    let hash = checksum::crc64(path.as_bytes());
    let count = nodes.len() as u64;
    let nowhere = || Error::new(ErrorKind::Unavailable, "the space has no logical nodes yet");
    let index = (hash >> 48).checked_rem(count).ok_or_else(nowhere)?;
    let node = *nodes.get(index as usize).ok_or_else(nowhere)?;
    let number = COMPUTED | hash & (COMPUTED - 1);
    Ok(Oid::new(CLASS, PageId { space, node, number }, 0))
}

/// The record of a name.
pub(super) fn encode(path: &str, target: Oid) -> Result<Object> {
    let mut record = RecordBuilder::new();
    record.set(PATH, path)?.set(TARGET, ValueRef::Reference(target))?;
    Ok(Object::record(CLASS, record.build()?))
}

/// What a record of a name says: its path and its target.
pub(super) fn decode(data: &Bytes) -> Result<(&str, Oid)> {
    let record = RecordRef::new(data)?;
    match (record.field(PATH)?, record.field(TARGET)?) {
        (Some(ValueRef::String(path)), Some(ValueRef::Reference(target))) => Ok((path, target)),
        _ => Err(Error::new(ErrorKind::Corrupt, "a name has no path, or no target")),
    }
}
