//! The items of an archive and their encoding. All numbers are little-endian.

use model::{ContentId, limits};

use crate::rows::key::next_opening;
use crate::rows::row::{CHUNK, is_chunk_position};

/// One item of an archive. Chunks belong to the content before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    /// How often the store was opened.
    Incarnation { times: u32 },
    /// A content; its chunks follow.
    Content { id: ContentId, size: u64 },
    /// A chunk with its bytes. Bytes after its end are zeros.
    Bytes { index: u64, bytes: &'a [u8] },
    /// A whole chunk in a blob file, with its position there.
    Extent { index: u64, file: u32, offset: u64, crc: u32, bytes: &'a [u8] },
    /// A row of the store's user.
    Row { key: &'a [u8], value: &'a [u8] },
    /// The items since the last one of these are a range with this digest (`range`).
    RangeEnd { digest: u64 },
    /// The next ranges of the base are unchanged. Only increments have it.
    Same { ranges: u64 },
    /// The next ranges of the base do not exist any more; what has replaced them comes next, or came before. Only increments have it.
    Replaced { ranges: u64 },
    /// The chunks `from..to` are zeros, except those that follow. Only archives of changes have it, and the next two.
    Cleared { from: u64, to: u64 },
    /// The content does not exist any more.
    RemovedContent { id: ContentId },
    /// The row does not exist any more.
    RemovedRow { key: &'a [u8] },
}

/// Bytes of a chunk in a blob file in an archive.
pub(crate) const EXTENT_BYTES: usize = 1 + 8 + 4 + 8 + 4 + CHUNK;

/// The codes of the items. They never change.
mod code {
    pub(super) const INCARNATION: u8 = 1;
    pub(super) const CONTENT: u8 = 2;
    pub(super) const BYTES: u8 = 3;
    pub(super) const EXTENT: u8 = 4;
    pub(super) const ROW: u8 = 5;
    pub(super) const RANGE_END: u8 = 6;
    pub(super) const SAME: u8 = 7;
    pub(super) const REPLACED: u8 = 8;
    pub(super) const CLEARED: u8 = 9;
    pub(super) const REMOVED_CONTENT: u8 = 10;
    pub(super) const REMOVED_ROW: u8 = 11;
}

/// Why bytes are not a valid item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ItemError {
    #[error("an item in it ends too early")]
    Short,
    #[error("it has an item of kind {0}, which this version does not know")]
    Kind(u8),
    #[error("a number or length in it is not valid")]
    Value,
}

/// Appends the encoding of an item.
pub(crate) fn encode(out: &mut Vec<u8>, item: &Item<'_>) {
    match item {
        Item::Incarnation { times } => {
            out.push(code::INCARNATION);
            out.extend_from_slice(&times.to_le_bytes());
        }
        Item::Content { id, size } => {
            out.push(code::CONTENT);
            out.extend_from_slice(&id.0.to_be_bytes());
            out.extend_from_slice(&size.to_le_bytes());
        }
        Item::Bytes { index, bytes } => {
            out.push(code::BYTES);
            out.extend_from_slice(&index.to_le_bytes());
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        }
        Item::Extent { index, file, offset, crc, bytes } => {
            out.push(code::EXTENT);
            out.extend_from_slice(&index.to_le_bytes());
            out.extend_from_slice(&file.to_le_bytes());
            out.extend_from_slice(&offset.to_le_bytes());
            out.extend_from_slice(&crc.to_le_bytes());
            out.extend_from_slice(bytes);
        }
        Item::Row { key, value } => {
            out.push(code::ROW);
            out.extend_from_slice(&(key.len() as u16).to_le_bytes());
            out.extend_from_slice(key);
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            out.extend_from_slice(value);
        }
        Item::RangeEnd { digest } => put_number(out, code::RANGE_END, *digest),
        Item::Same { ranges } => put_number(out, code::SAME, *ranges),
        Item::Replaced { ranges } => put_number(out, code::REPLACED, *ranges),
        Item::Cleared { from, to } => {
            put_number(out, code::CLEARED, *from);
            out.extend_from_slice(&to.to_le_bytes());
        }
        Item::RemovedContent { id } => {
            out.push(code::REMOVED_CONTENT);
            out.extend_from_slice(&id.0.to_be_bytes());
        }
        Item::RemovedRow { key } => {
            out.push(code::REMOVED_ROW);
            out.extend_from_slice(&(key.len() as u16).to_le_bytes());
            out.extend_from_slice(key);
        }
    }
}

fn put_number(out: &mut Vec<u8>, code: u8, number: u64) {
    out.push(code);
    out.extend_from_slice(&number.to_le_bytes());
}

/// Decodes items from the front of bytes.
pub(crate) struct Items<'a>(pub(crate) &'a [u8]);

impl<'a> Items<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], ItemError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(ItemError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ItemError> {
        self.take(N)?.try_into().map_err(|_| ItemError::Short)
    }

    fn byte(&mut self) -> Result<u8, ItemError> {
        Ok(self.array::<1>()?[0])
    }

    fn u16(&mut self) -> Result<u16, ItemError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, ItemError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, ItemError> {
        self.array().map(u64::from_le_bytes)
    }

    /// The next item; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Item<'a>>, ItemError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        Ok(Some(match self.byte()? {
            code::INCARNATION => self.incarnation()?,
            code::CONTENT => Item::Content { id: ContentId(u128::from_be_bytes(self.array()?)), size: self.u64()? },
            code::BYTES => {
                let (index, len) = (self.u64()?, self.u32()? as usize);
                if len == 0 || len > CHUNK {
                    return Err(ItemError::Value);
                }
                Item::Bytes { index, bytes: self.take(len)? }
            }
            code::EXTENT => self.extent()?,
            code::ROW => {
                let (key, len) = (self.key()?, self.u32()? as usize);
                if len > limits::ROW_VALUE {
                    return Err(ItemError::Value);
                }
                Item::Row { key, value: self.take(len)? }
            }
            code::RANGE_END => Item::RangeEnd { digest: self.u64()? },
            code::SAME => Item::Same { ranges: self.count()? },
            code::REPLACED => Item::Replaced { ranges: self.count()? },
            code::CLEARED => Item::Cleared { from: self.u64()?, to: self.u64()? },
            code::REMOVED_CONTENT => Item::RemovedContent { id: ContentId(u128::from_be_bytes(self.array()?)) },
            code::REMOVED_ROW => Item::RemovedRow { key: self.key()? },
            other => return Err(ItemError::Kind(other)),
        }))
    }

    /// The key of a row.
    fn key(&mut self) -> Result<&'a [u8], ItemError> {
        let len = usize::from(self.u16()?);
        if (1..=limits::ROW_KEY).contains(&len) { self.take(len) } else { Err(ItemError::Value) }
    }

    fn count(&mut self) -> Result<u64, ItemError> {
        self.u64().and_then(|count| if count > 0 { Ok(count) } else { Err(ItemError::Value) })
    }

    /// A count of openings of a store that can be opened again.
    fn incarnation(&mut self) -> Result<Item<'a>, ItemError> {
        let times = self.u32()?;
        next_opening(times).map(|_| Item::Incarnation { times }).ok_or(ItemError::Value)
    }

    fn extent(&mut self) -> Result<Item<'a>, ItemError> {
        let (index, file, offset, crc) = (self.u64()?, self.u32()?, self.u64()?, self.u32()?);
        let bytes = self.take(CHUNK)?;
        if is_chunk_position(file, offset) {
            Ok(Item::Extent { index, file, offset, crc, bytes })
        } else {
            Err(ItemError::Value)
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An item of each kind, in an order in which an archive may have them.
    pub(in crate::backup) const ITEMS: [(&str, Item<'static>); 6] = [
        ("opened", Item::Incarnation { times: 7 }),
        ("content", Item::Content { id: ContentId(u128::MAX - 5), size: 65_536 + 3 }),
        ("extent", Item::Extent { index: 0, file: 1, offset: 65_536, crc: 0xf0a3_3f35, bytes: &[7; CHUNK] }),
        ("bytes", Item::Bytes { index: 1, bytes: b"abc" }),
        ("row", Item::Row { key: b"k", value: b"" }),
        ("long-row", Item::Row { key: &[0xff; limits::ROW_KEY], value: b"v" }),
    ];

    #[test]
    fn every_item_round_trips_and_truncated_items_are_refused() {
        for (_, item) in ITEMS {
            let mut bytes = Vec::new();
            encode(&mut bytes, &item);
            let mut found = Items(&bytes);
            assert_eq!(found.next(), Ok(Some(item)));
            assert_eq!(found.next(), Ok(None));
            for len in 1..bytes.len().min(100) {
                assert_eq!(Items(&bytes[..len]).next(), Err(ItemError::Short));
            }
        }
    }

    #[test]
    fn items_of_changes_round_trip() {
        for item in [
            Item::Cleared { from: 1, to: u64::MAX },
            Item::RemovedContent { id: ContentId(7) },
            Item::RemovedRow { key: b"k" },
        ] {
            let mut bytes = Vec::new();
            encode(&mut bytes, &item);
            let mut found = Items(&bytes);
            assert_eq!((found.next(), found.next()), (Ok(Some(item)), Ok(None)));
            assert_eq!(Items(&bytes[..bytes.len() - 1]).next(), Err(ItemError::Short));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut items = Items(&bytes);
            while let Ok(Some(_)) = items.next() {}
        }
    }
}
