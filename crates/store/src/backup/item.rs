//! The items of an archive and their encoding. All numbers are little-endian.

use model::{Kind, Oid, PageId, SpaceId, limits};

use crate::rows::row::{CHUNK, PageUsage};

/// One item of an archive. Chunks, attributes and members belong to the object before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    /// A space.
    Space { id: SpaceId, name: &'a str },
    /// An object or a content; its chunks, attributes and members follow.
    Object { oid: Oid, kind: Kind, size: u64, version: u64, modified_us: i64 },
    /// A chunk with its bytes. Bytes after its end are zeros.
    Bytes { index: u64, bytes: &'a [u8] },
    /// A whole chunk in a blob file. The first user has the bytes; later users only name the position.
    Extent { index: u64, file: u32, offset: u64, crc: u32, bytes: Option<&'a [u8]> },
    /// An attribute.
    Attribute { key: &'a [u8], value: &'a [u8] },
    /// A member of a collection.
    Member { oid: Oid },
    /// A name.
    Name { space: SpaceId, path: &'a str, oid: Oid },
    /// The usage of a page.
    Page { page: PageId, usage: PageUsage },
    /// The lowest page number of a space that was never used.
    NextPage { space: SpaceId, number: u64 },
    /// How often the store was opened.
    Incarnation { times: u32 },
    /// A row of the store's user.
    Row { key: &'a [u8], value: &'a [u8] },
}

/// The codes of the items. They never change.
mod code {
    pub(super) const SPACE: u8 = 1;
    pub(super) const OBJECT: u8 = 2;
    pub(super) const BYTES: u8 = 3;
    pub(super) const EXTENT: u8 = 4;
    pub(super) const SHARED: u8 = 5;
    pub(super) const ATTRIBUTE: u8 = 6;
    pub(super) const MEMBER: u8 = 7;
    pub(super) const NAME: u8 = 8;
    pub(super) const PAGE: u8 = 9;
    pub(super) const NEXT_PAGE: u8 = 10;
    pub(super) const INCARNATION: u8 = 11;
    pub(super) const ROW: u8 = 12;
}

/// Why bytes are not a valid item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ItemError {
    #[error("an item in it ends too early")]
    Short,
    #[error("it has an item of kind {0}, which this version does not know")]
    Kind(u8),
    #[error("a number, length or text in it is not valid")]
    Value,
}

/// Appends the encoding of an item.
pub(crate) fn encode(out: &mut Vec<u8>, item: &Item<'_>) {
    match item {
        Item::Space { id, name } => {
            out.push(code::SPACE);
            out.extend_from_slice(&id.0.to_le_bytes());
            out.push(name.len() as u8);
            out.extend_from_slice(name.as_bytes());
        }
        Item::Object { oid, kind, size, version, modified_us } => {
            out.push(code::OBJECT);
            out.extend_from_slice(&oid.to_bytes());
            out.push(*kind as u8);
            out.extend_from_slice(&size.to_le_bytes());
            out.extend_from_slice(&version.to_le_bytes());
            out.extend_from_slice(&modified_us.to_le_bytes());
        }
        Item::Bytes { index, bytes } => {
            out.push(code::BYTES);
            out.extend_from_slice(&index.to_le_bytes());
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        }
        Item::Extent { index, file, offset, crc, bytes } => {
            out.push(if bytes.is_some() { code::EXTENT } else { code::SHARED });
            out.extend_from_slice(&index.to_le_bytes());
            out.extend_from_slice(&file.to_le_bytes());
            out.extend_from_slice(&offset.to_le_bytes());
            out.extend_from_slice(&crc.to_le_bytes());
            out.extend_from_slice(bytes.unwrap_or_default());
        }
        Item::Attribute { key, value } => {
            out.push(code::ATTRIBUTE);
            out.push(key.len() as u8);
            out.extend_from_slice(key);
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            out.extend_from_slice(value);
        }
        Item::Member { oid } => {
            out.push(code::MEMBER);
            out.extend_from_slice(&oid.to_bytes());
        }
        Item::Name { space, path, oid } => {
            out.push(code::NAME);
            out.extend_from_slice(&space.0.to_le_bytes());
            out.extend_from_slice(&(path.len() as u16).to_le_bytes());
            out.extend_from_slice(path.as_bytes());
            out.extend_from_slice(&oid.to_bytes());
        }
        Item::Page { page, usage: room } => {
            out.push(code::PAGE);
            out.extend_from_slice(&page.space.0.to_le_bytes());
            out.extend_from_slice(&page.node.0.to_le_bytes());
            out.extend_from_slice(&page.number.to_le_bytes());
            out.extend_from_slice(&room.encode());
        }
        Item::NextPage { space, number } => {
            out.push(code::NEXT_PAGE);
            out.extend_from_slice(&space.0.to_le_bytes());
            out.extend_from_slice(&number.to_le_bytes());
        }
        Item::Incarnation { times } => {
            out.push(code::INCARNATION);
            out.extend_from_slice(&times.to_le_bytes());
        }
        Item::Row { key, value } => {
            out.push(code::ROW);
            out.extend_from_slice(&(key.len() as u16).to_le_bytes());
            out.extend_from_slice(key);
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            out.extend_from_slice(value);
        }
    }
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

    fn text(&mut self, len: usize, limit: usize) -> Result<&'a str, ItemError> {
        let text = std::str::from_utf8(self.take(len)?).map_err(|_| ItemError::Value)?;
        if text.is_empty() || len > limit || text.contains('\0') { Err(ItemError::Value) } else { Ok(text) }
    }

    fn space(&mut self) -> Result<SpaceId, ItemError> {
        let space = SpaceId(self.u16()?);
        if space > SpaceId::MAX { Err(ItemError::Value) } else { Ok(space) }
    }

    /// The identifier of a stored object, which is not temporary.
    fn oid(&mut self) -> Result<Oid, ItemError> {
        let oid = Oid::from_bytes(self.array()?);
        if oid.is_temporary() { Err(ItemError::Value) } else { Ok(oid) }
    }

    fn page(&mut self) -> Result<PageId, ItemError> {
        let page = PageId { space: self.space()?, node: model::NodeId(self.u32()?), number: self.u64()? };
        let fits = page.node <= model::NodeId::MAX && page.number <= PageId::MAX_NUMBER;
        if fits { Ok(page) } else { Err(ItemError::Value) }
    }

    /// The next item; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Item<'a>>, ItemError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        Ok(Some(match self.byte()? {
            code::SPACE => {
                let (id, len) = (self.space()?, self.byte()?);
                Item::Space { id, name: self.text(len.into(), limits::SPACE_NAME)? }
            }
            code::OBJECT => Item::Object {
                oid: Oid::from_bytes(self.array()?),
                kind: Kind::from_code(self.byte()?).ok_or(ItemError::Value)?,
                size: self.u64()?,
                version: self.u64()?,
                modified_us: self.u64()? as i64,
            },
            code::BYTES => {
                let (index, len) = (self.u64()?, self.u32()? as usize);
                if len == 0 || len > CHUNK {
                    return Err(ItemError::Value);
                }
                Item::Bytes { index, bytes: self.take(len)? }
            }
            code::EXTENT => self.extent(true)?,
            code::SHARED => self.extent(false)?,
            code::ATTRIBUTE => {
                let len = usize::from(self.byte()?);
                let (key, len) = (self.take(len)?, self.u32()? as usize);
                if key.is_empty() || len > limits::ATTRIBUTE_VALUE {
                    return Err(ItemError::Value);
                }
                Item::Attribute { key, value: self.take(len)? }
            }
            code::MEMBER => Item::Member { oid: self.oid()? },
            code::NAME => {
                let (space, len) = (self.space()?, self.u16()?);
                Item::Name { space, path: self.text(len.into(), limits::NAME)?, oid: self.oid()? }
            }
            code::PAGE => Item::Page {
                page: self.page()?,
                usage: PageUsage::decode(self.take(6)?).map_err(|_| ItemError::Value)?,
            },
            code::NEXT_PAGE => Item::NextPage { space: self.space()?, number: self.u64()? },
            code::INCARNATION => Item::Incarnation { times: self.u32()? },
            code::ROW => {
                let len = usize::from(self.u16()?);
                if !(1..=limits::ROW_KEY).contains(&len) {
                    return Err(ItemError::Value);
                }
                let (key, len) = (self.take(len)?, self.u32()? as usize);
                if len > limits::ROW_VALUE {
                    return Err(ItemError::Value);
                }
                Item::Row { key, value: self.take(len)? }
            }
            other => return Err(ItemError::Kind(other)),
        }))
    }

    fn extent(&mut self, with_bytes: bool) -> Result<Item<'a>, ItemError> {
        let (index, file, offset, crc) = (self.u64()?, self.u32()?, self.u64()?, self.u32()?);
        let bytes = if with_bytes { Some(self.take(CHUNK)?) } else { None };
        if crate::content::chunk_set::is_chunk_position(file, offset) {
            Ok(Item::Extent { index, file, offset, crc, bytes })
        } else {
            Err(ItemError::Value)
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{ClassId, NodeId};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_item_round_trips_and_truncated_items_are_refused() {
        let page = PageId { space: SpaceId(1), node: NodeId(0), number: 5 };
        let oid = Oid::new(ClassId(3), page, 9);
        let chunk = [7; CHUNK];
        let items = [
            Item::Space { id: SpaceId(1), name: "main" },
            Item::Object { oid, kind: Kind::Blob, size: 1, version: 2, modified_us: -3 },
            Item::Bytes { index: 0, bytes: b"abc" },
            Item::Extent { index: 4, file: 1, offset: 65_536, crc: 5, bytes: Some(&chunk) },
            Item::Extent { index: 4, file: 1, offset: 65_536, crc: 5, bytes: None },
            Item::Attribute { key: b"k", value: b"" },
            Item::Member { oid },
            Item::Name { space: SpaceId(1), path: "/é", oid },
            Item::Page { page, usage: PageUsage { next_slot: 3, used: 99 } },
            Item::NextPage { space: SpaceId(2), number: 6 },
            Item::Incarnation { times: 7 },
            Item::Row { key: &[0xff; limits::ROW_KEY], value: b"v" },
            Item::Row { key: b"k", value: b"" },
        ];
        for item in items {
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

    proptest! {
        #[test]
        fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut items = Items(&bytes);
            while let Ok(Some(_)) = items.next() {}
        }
    }
}
