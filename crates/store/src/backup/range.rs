//! Ranges: adjacent items of an archive, each with a digest, by which an incremental backup finds what has changed.
//!
//! A range begins at a [`Position`] and has all items up to the next range. The *index* of an archive has an entry for each range, in order. Two
//! archives of one store have many equal ranges, whatever changed between them; an increment has the items of the others.
//!
//! The digest of a range covers its items, but of a chunk in a blob file the checksums of its blocks instead of its bytes: so a chunk that has not
//! changed need not be read. The digest of a state covers all entries of its index.

use crc_fast::{CrcAlgorithm, Digest};
use model::{ContentId, Result, limits};

use super::archive::damage_error;
use super::item::{self, Item};

/// A range ends with the item that brings it to this number of bytes.
pub(super) const RANGE_BYTES: usize = 8 << 10;
/// Most bytes of a range: one more item than [`RANGE_BYTES`], of which a row is the longest.
pub(super) const MAX_RANGE_BYTES: u64 = 6 << 20;
/// Most bytes of a position: a table, and the key of a row.
const MAX_POSITION: usize = 1 + limits::ROW_KEY;

/// Where an item is in an archive. Positions order as the items do.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position(Vec<u8>);

impl Position {
    /// The position of a chunk of a content; that of the content itself is the one of its first chunk.
    pub(super) fn chunk(id: ContentId, index: u64) -> Self {
        let mut bytes = Vec::with_capacity(1 + 16 + 8);
        bytes.push(b'c');
        bytes.extend_from_slice(&id.0.to_be_bytes());
        bytes.extend_from_slice(&index.to_be_bytes());
        Self(bytes)
    }

    pub(super) fn row(key: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(1 + key.len());
        bytes.push(b'r');
        bytes.extend_from_slice(key);
        Self(bytes)
    }
}

/// An entry of the index of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeEntry {
    pub(super) start: Position,
    /// Bytes of its items in an archive.
    pub(super) len: u64,
    pub(super) digest: u64,
}

/// The digest of items.
pub(super) struct RangeDigest {
    digest: Digest,
    len: u64,
    scratch: Vec<u8>,
}

impl Default for RangeDigest {
    fn default() -> Self {
        Self { digest: Digest::new(CrcAlgorithm::Crc64Nvme), len: 0, scratch: Vec::new() }
    }
}

impl RangeDigest {
    /// Bytes of the items.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Adds items that are no chunks in blob files, by their encodings. Many at a time cost less.
    pub(super) fn add_encoded(&mut self, encoded: &[u8]) {
        if !encoded.is_empty() {
            self.digest.update(encoded);
            self.len += encoded.len() as u64;
        }
    }

    /// Adds a chunk in a blob file, by the checksums of its blocks.
    pub(super) fn add_extent(&mut self, index: u64, (file, offset): (u32, u64), blocks: impl Iterator<Item = u32>) {
        self.scratch.clear();
        self.scratch.extend_from_slice(&index.to_le_bytes());
        self.scratch.extend_from_slice(&file.to_le_bytes());
        self.scratch.extend_from_slice(&offset.to_le_bytes());
        blocks.for_each(|crc| self.scratch.extend_from_slice(&crc.to_le_bytes()));
        self.digest.update(&self.scratch);
        self.len += item::EXTENT_BYTES as u64;
    }

    /// Ends a range that began at `start`. `None` if it has no items.
    pub(super) fn end(&mut self, start: Position) -> Option<RangeEntry> {
        if self.len == 0 {
            return None;
        }
        let entry = RangeEntry { start, len: self.len, digest: self.digest.finalize() };
        self.digest.reset();
        self.len = 0;
        Some(entry)
    }
}

/// The digest of a state: that of all entries of its index.
pub(super) struct StateDigest(Digest);

impl Default for StateDigest {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc64Nvme))
    }
}

impl StateDigest {
    pub(super) fn add(&mut self, entry: &RangeEntry) {
        self.0.update(&(entry.start.0.len() as u64).to_le_bytes());
        self.0.update(&entry.start.0);
        self.0.update(&entry.len.to_le_bytes());
        self.0.update(&entry.digest.to_le_bytes());
    }

    pub(super) fn value(&self) -> u64 {
        self.0.finalize()
    }
}

/// Appends the encoding of an entry that follows one with the position `last` in the same piece of an index; at its beginning `last` is empty.
pub(super) fn encode_entry(out: &mut Vec<u8>, last: &Position, entry: &RangeEntry) {
    let (last, start) = (&last.0, &entry.start.0);
    let shared = last.iter().zip(start).take_while(|(a, b)| a == b).count();
    // Both are at most `MAX_POSITION`, which 16 bits can hold.
    out.extend_from_slice(&(shared as u16).to_le_bytes());
    out.extend_from_slice(&((start.len() - shared) as u16).to_le_bytes());
    out.extend_from_slice(&start[shared..]);
    out.extend_from_slice(&(entry.len as u32).to_le_bytes());
    out.extend_from_slice(&entry.digest.to_le_bytes());
}

/// The entries of a piece of an index.
pub(super) struct Entries<'a> {
    rest: &'a [u8],
    last: Position,
}

impl<'a> Entries<'a> {
    pub(super) fn new(piece: &'a [u8]) -> Self {
        Self { rest: piece, last: Position::default() }
    }

    /// The next entry; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<RangeEntry>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let entry = self.decode().filter(|entry| entry.start > self.last);
        let entry = entry.ok_or_else(|| damage_error("an entry of its index is not valid"))?;
        self.last.clone_from(&entry.start);
        Ok(Some(entry))
    }

    fn decode(&mut self) -> Option<RangeEntry> {
        let shared = usize::from(u16::from_le_bytes(self.array()?));
        let len = usize::from(u16::from_le_bytes(self.array()?));
        let mut start = self.last.0.get(..shared)?.to_vec();
        start.extend_from_slice(self.take(len)?);
        let (len, digest) = (u64::from(u32::from_le_bytes(self.array()?)), u64::from_le_bytes(self.array()?));
        let is_valid = (1..=MAX_POSITION).contains(&start.len()) && (1..=MAX_RANGE_BYTES).contains(&len);
        is_valid.then_some(RangeEntry { start: Position(start), len, digest })
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
}

/// Where an item begins; `None` for one that is in no range.
pub(super) fn position_of(item: &Item<'_>, content: ContentId) -> Option<Position> {
    match item {
        Item::Content { id, .. } => Some(Position::chunk(*id, 0)),
        Item::Bytes { index, .. } | Item::Extent { index, .. } => Some(Position::chunk(content, *index)),
        Item::Row { key, .. } => Some(Position::row(key)),
        Item::Incarnation { .. }
        | Item::RangeEnd { .. }
        | Item::Same { .. }
        | Item::Replaced { .. }
        | Item::Cleared { .. }
        | Item::RemovedContent { .. }
        | Item::RemovedRow { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn positions_order_as_items_do() {
        let order = [
            Position::chunk(ContentId(1), 0),
            Position::chunk(ContentId(1), 1),
            Position::chunk(ContentId(1), 256),
            Position::chunk(ContentId(2), 0),
            Position::chunk(ContentId(1 << 100), 0),
            Position::row(b""),
            Position::row(b"a"),
            Position::row(b"a\0"),
            Position::row(b"b"),
        ];
        assert!(order.is_sorted_by(|a, b| a < b));
    }

    proptest! {
        #[test]
        fn entries_read_back_as_they_were_written(
            keys in proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 0..40), 1..30),
            len in 1..MAX_RANGE_BYTES,
        ) {
            let entries: Vec<_> = keys.iter().map(|key| RangeEntry { start: Position::row(key), len, digest: len * 7 }).collect();
            let (mut piece, mut last) = (Vec::new(), Position::default());
            for entry in &entries {
                encode_entry(&mut piece, &last, entry);
                last = entry.start.clone();
            }
            let (mut read, mut found) = (Entries::new(&piece), Vec::new());
            while let Some(entry) = read.next().unwrap() {
                found.push(entry);
            }
            prop_assert_eq!(&found, &entries);
            for cut in 1..piece.len().min(40) {
                let mut read = Entries::new(&piece[..piece.len() - cut]);
                let mut count = 0;
                let end = loop {
                    match read.next() {
                        Ok(Some(_)) => count += 1,
                        end => break end,
                    }
                };
                prop_assert!(end.is_err() || count < entries.len());
            }
        }

        #[test]
        fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut entries = Entries::new(&bytes);
            while let Ok(Some(_)) = entries.next() {}
        }
    }
}
