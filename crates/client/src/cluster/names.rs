//! Names: paths in a space that are bound to objects.
//!
//! A name is a record whose logical node and page follow from a hash of its path; its page number is one that is never reserved.
//! So a name is found without a look-up, and two transactions that bind the same path conflict. Paths with equal hashes share
//! a page, in successive slots.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use model::{ClassId, Comparison, Error, ErrorKind, FieldNumber, Filter, NodeId, Object, Oid, PageId, RecordBuilder};
use model::{RecordRef, Result, SpaceId, ValueRef, checksum, limits};

use super::core::Core;
use super::scan_results::ScanResults;

/// The class of names.
pub(super) const CLASS: ClassId = ClassId::MAX;
const PATH: FieldNumber = FieldNumber(1);
const TARGET: FieldNumber = FieldNumber(2);
/// The first page number for names; smaller ones are reserved for other objects.
const FIRST_COMPUTED_PAGE: u64 = (PageId::MAX_NUMBER >> 1) + 1;
/// Maximum names with equal hashes.
pub(super) const COLLISION_SLOTS: u16 = 4;

/// The first slot in which a name may be.
pub(super) fn first_slot(space: SpaceId, nodes: &[NodeId], path: &str) -> Result<Oid> {
    if path.is_empty() || path.len() > limits::NAME || path.contains('\0') {
        let what = format!("a name has 1 to {} bytes, none of them zero: {:.80?}", limits::NAME, path);
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    let hash = checksum::crc64(path.as_bytes());
    let count = nodes.len() as u64;
    let nowhere = || Error::new(ErrorKind::Unavailable, "the space has no logical nodes yet");
    let index = (hash >> 48).checked_rem(count).ok_or_else(nowhere)?;
    let node = *nodes.get(index as usize).ok_or_else(nowhere)?;
    let number = FIRST_COMPUTED_PAGE | hash & (FIRST_COMPUTED_PAGE - 1);
    Ok(Oid::new(CLASS, PageId { space, node, number }, 0))
}

/// The record of a name.
pub(super) fn encode(path: &str, target: Oid) -> Result<Object> {
    let mut record = RecordBuilder::new();
    record.set(PATH, path)?.set(TARGET, ValueRef::Reference(target))?;
    Ok(Object::record(CLASS, record.build()?))
}

/// The path and the target in the record of a name.
pub(super) fn decode(data: &Bytes) -> Result<(&str, Oid)> {
    let record = RecordRef::new(data)?;
    match (record.field(PATH)?, record.field(TARGET)?) {
        (Some(ValueRef::String(path)), Some(ValueRef::Reference(target))) => Ok((path, target)),
        _ => Err(Error::new(ErrorKind::Corrupt, "the record of a name has no path or no target")),
    }
}

/// Maximum names, and maximum bytes of their paths, in memory at a time.
const MAX_PORTION: usize = 65_536;
const MAX_PORTION_BYTES: usize = 16 << 20;

/// The names of a space in order, in portions: [`Cluster::names`](super::Cluster::names).
///
/// Names are not stored in order, because their places follow from hashes. So each portion scans all names that are left and keeps
/// the first ones: one scan for up to 65,536 names.
#[derive(Debug)]
pub struct Names {
    core: Arc<Core>,
    prefix: String,
    /// Only names after this one.
    after: Option<String>,
    portion_size: usize,
    is_over: bool,
}

impl Names {
    pub(super) fn new(core: Arc<Core>, prefix: &str) -> Self {
        Self { core, prefix: prefix.to_owned(), after: None, portion_size: MAX_PORTION, is_over: false }
    }

    /// Begins after this name, whether or not it exists.
    #[must_use]
    pub fn after(mut self, path: &str) -> Self {
        self.after = Some(path.to_owned());
        self
    }

    /// Sets the maximum number of names in a portion. Each portion takes a scan.
    #[must_use]
    pub fn portion_size(mut self, names: usize) -> Self {
        self.portion_size = names.clamp(1, MAX_PORTION);
        self
    }

    /// The next names with the objects that they are bound to; `None` at the end.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if a brick cannot be reached in time, [`ErrorKind::Stopped`] if the space is stopped. A listing
    /// never omits names silently.
    pub async fn next(&mut self) -> Result<Option<Vec<(String, Oid)>>> {
        if self.is_over {
            return Ok(None);
        }
        let mut first =
            SmallestNames { names: BTreeMap::new(), bytes: 0, limit: self.portion_size, is_truncated: false };
        let mut found = ScanResults::new(self.core.clone(), [CLASS].into(), self.filter());
        while let Some(objects) = found.next().await? {
            for (_, object) in objects {
                let (path, target) = decode(&object.data)?;
                first.insert(path, target);
            }
        }
        self.is_over = !first.is_truncated;
        let Some((last, _)) = first.names.last_key_value() else { return Ok(None) };
        self.after = Some(last.clone());
        Ok(Some(first.names.into_iter().collect()))
    }

    /// The filter that bricks apply.
    fn filter(&self) -> Option<Filter> {
        let prefix = Some(&self.prefix).filter(|prefix| !prefix.is_empty());
        let prefix = prefix.map(|prefix| Filter::StartsWith(PATH, prefix.clone()));
        let after = self.after.as_deref().map(|after| Filter::compare(PATH, Comparison::Greater, after));
        let both: Vec<Filter> = prefix.into_iter().chain(after).collect();
        Some(both).filter(|both| !both.is_empty()).map(Filter::And)
    }
}

/// The first names of those found so far.
struct SmallestNames {
    names: BTreeMap<String, Oid>,
    bytes: usize,
    limit: usize,
    /// Whether later names were dropped.
    is_truncated: bool,
}

impl SmallestNames {
    fn insert(&mut self, path: &str, target: Oid) {
        // Once names were dropped, later ones are dropped, too.
        if self.is_truncated && self.names.last_key_value().is_some_and(|(last, _)| path > last.as_str()) {
            return;
        }
        if self.names.insert(path.to_owned(), target).is_none() {
            self.bytes += path.len();
        }
        while self.names.len() > self.limit || self.names.len() > 1 && self.bytes > MAX_PORTION_BYTES {
            let Some((last, _)) = self.names.pop_last() else { return };
            self.bytes -= last.len();
            self.is_truncated = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_from_one_byte_to_the_limit() {
        let place = |path: &str| first_slot(SpaceId(1), &[NodeId(1)], path).map_err(|error| error.kind());
        assert!(place("a").is_ok() && place(&"a".repeat(limits::NAME)).is_ok());
        for path in ["", "a\0b", &"a".repeat(limits::NAME + 1)] {
            assert_eq!(place(path), Err(ErrorKind::Invalid));
        }
    }

    #[test]
    fn first_names_are_kept_in_order() {
        let target = Oid::new(CLASS, PageId { space: SpaceId(1), node: NodeId(1), number: 1 }, 1);
        let mut first = SmallestNames { names: BTreeMap::new(), bytes: 0, limit: 3, is_truncated: false };
        let kept = |first: &SmallestNames| first.names.keys().cloned().collect::<Vec<_>>().join(" ");
        for path in ["d", "a", "d", "b"] {
            first.insert(path, target);
        }
        assert_eq!((kept(&first).as_str(), first.is_truncated, first.bytes), ("a b d", false, 3));
        for path in ["e", "c", "z", "aa"] {
            first.insert(path, target);
        }
        assert_eq!((kept(&first).as_str(), first.is_truncated, first.bytes), ("a aa b", true, 4));
        // The bytes of the paths are bounded, too.
        let mut first =
            SmallestNames { names: BTreeMap::new(), bytes: MAX_PORTION_BYTES, limit: 3, is_truncated: false };
        first.insert("a", target);
        first.insert("b", target);
        assert_eq!((kept(&first).as_str(), first.is_truncated), ("a", true));
    }
}
