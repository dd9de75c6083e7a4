//! The keys of the B-tree: a table, then what the table is ordered by.
//!
//! ```text
//! 'o' oid                     object: head and first chunk          'n' space path          name -> oid
//! 'c' data index              a further chunk of a blob             'p' space node page     room in a page
//! 'a' oid key                 attribute                             'x' file offset         extent of a blob file
//! 'm' collection member       membership                            'd' file offset         extent to be freed
//! 'r' oid 'm' collection      back reference of a membership        'g' data                content to be removed
//! 'r' oid 'n' path            back reference of a name              's' ...                 system rows
//! 'k' ...                     a row of the store's user, with the user's key
//! ```
//!
//! Contents of the store's user are in the table of objects, under their identifiers with the highest bit set: no object has such an
//! identifier.
//!
//! All numbers are big-endian, so keys order as their parts do.

use model::{ContentId, NodeId, Oid, PageId, SpaceId};
use smallvec::SmallVec;

/// Keys of up to this many bytes are stored inline, including those of objects and chunks.
const INLINE_LEN: usize = 24;

/// A key of the B-tree.
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Key(SmallVec<[u8; INLINE_LEN]>);

/// The content of one blob or record, apart from its first chunk. Each replacement of the whole content has a new
/// number, so replacing or deleting content of any size is one small change, and the old rows are removed in the
/// background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DataId(pub(crate) u64);

/// The first byte of a key.
pub(crate) mod table {
    pub(crate) const OBJECT: u8 = b'o';
    pub(crate) const CHUNK: u8 = b'c';
    pub(crate) const ATTRIBUTE: u8 = b'a';
    pub(crate) const MEMBER: u8 = b'm';
    pub(crate) const BACK_REFERENCE: u8 = b'r';
    pub(crate) const NAME: u8 = b'n';
    pub(crate) const PAGE: u8 = b'p';
    pub(crate) const EXTENT: u8 = b'x';
    pub(crate) const FREED: u8 = b'd';
    pub(crate) const GARBAGE: u8 = b'g';
    pub(crate) const SYSTEM: u8 = b's';
    pub(crate) const ROW: u8 = b'k';
}

impl Clone for Key {
    /// Copies the inline array as a whole, which is faster than copying byte by byte.
    fn clone(&self) -> Self {
        Self(SmallVec::from_slice(&self.0))
    }
}

impl std::ops::Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::borrow::Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }
}

impl Key {
    fn concat(parts: &[&[u8]]) -> Self {
        let mut bytes = SmallVec::new();
        for part in parts {
            bytes.extend_from_slice(part);
        }
        Self(bytes)
    }

    pub(crate) fn object(oid: Oid) -> Self {
        let mut bytes = [table::OBJECT; 1 + Oid::LEN];
        bytes[1..].copy_from_slice(&oid.to_bytes());
        Self(SmallVec::from_slice(&bytes))
    }

    pub(crate) fn chunk(data: DataId, index: u64) -> Self {
        Self::concat(&[&[table::CHUNK], &data.0.to_be_bytes(), &index.to_be_bytes()])
    }

    pub(crate) fn attribute(oid: Oid, key: &[u8]) -> Self {
        Self::concat(&[&[table::ATTRIBUTE], &oid.to_bytes(), key])
    }

    pub(crate) fn member(collection: Oid, member: Oid) -> Self {
        Self::concat(&[&[table::MEMBER], &collection.to_bytes(), &member.to_bytes()])
    }

    pub(crate) fn members(collection: Oid) -> Self {
        Self::concat(&[&[table::MEMBER], &collection.to_bytes()])
    }

    pub(crate) fn back_references(oid: Oid) -> Self {
        Self::concat(&[&[table::BACK_REFERENCE], &oid.to_bytes()])
    }

    pub(crate) fn back_members(oid: Oid) -> Self {
        Self::concat(&[&[table::BACK_REFERENCE], &oid.to_bytes(), b"m"])
    }

    pub(crate) fn back_names(oid: Oid) -> Self {
        Self::concat(&[&[table::BACK_REFERENCE], &oid.to_bytes(), b"n"])
    }

    pub(crate) fn back_member(oid: Oid, collection: Oid) -> Self {
        Self::concat(&[&[table::BACK_REFERENCE], &oid.to_bytes(), b"m", &collection.to_bytes()])
    }

    pub(crate) fn back_name(oid: Oid, path: &str) -> Self {
        Self::concat(&[&[table::BACK_REFERENCE], &oid.to_bytes(), b"n", path.as_bytes()])
    }

    pub(crate) fn name(space: SpaceId, path: &str) -> Self {
        Self::concat(&[&[table::NAME], &space.0.to_be_bytes(), path.as_bytes()])
    }

    pub(crate) fn page(page: PageId) -> Self {
        Self::concat(&[
            &[table::PAGE],
            &page.space.0.to_be_bytes(),
            &page.node.0.to_be_bytes(),
            &page.number.to_be_bytes(),
        ])
    }

    pub(crate) fn extent(file: u32, offset: u64) -> Self {
        Self::concat(&[&[table::EXTENT], &file.to_be_bytes(), &offset.to_be_bytes()])
    }

    pub(crate) fn extents_of(file: u32) -> Self {
        Self::concat(&[&[table::EXTENT], &file.to_be_bytes()])
    }

    pub(crate) fn freed(file: u32, offset: u64) -> Self {
        Self::concat(&[&[table::FREED], &file.to_be_bytes(), &offset.to_be_bytes()])
    }

    pub(crate) fn garbage(data: DataId) -> Self {
        Self::concat(&[&[table::GARBAGE], &data.0.to_be_bytes()])
    }

    pub(crate) fn chunks_of(data: DataId) -> Self {
        Self::concat(&[&[table::CHUNK], &data.0.to_be_bytes()])
    }

    pub(crate) fn system(name: &str) -> Self {
        Self::concat(&[&[table::SYSTEM], name.as_bytes()])
    }

    pub(crate) fn space(name: &str) -> Self {
        Self::concat(&[&[table::SYSTEM], b"space:", name.as_bytes()])
    }

    pub(crate) fn next_page(space: SpaceId) -> Self {
        Self::concat(&[&[table::SYSTEM], b"page:", &space.0.to_be_bytes()])
    }

    pub(crate) fn row(key: &[u8]) -> Self {
        let mut bytes = [table::ROW; INLINE_LEN];
        match bytes.get_mut(1..=key.len()) {
            Some(rest) => {
                rest.copy_from_slice(key);
                Self(SmallVec::from_buf_and_len(bytes, 1 + key.len()))
            }
            None => Self::concat(&[&[table::ROW], key]),
        }
    }

    pub(crate) fn table(table: u8) -> Self {
        Self::concat(&[&[table]])
    }

    /// The table of a key. Keys are never empty.
    pub(crate) fn table_of(key: &[u8]) -> u8 {
        key.first().copied().unwrap_or(0)
    }

    /// The smallest key above all keys with this prefix.
    pub(crate) fn prefix_end(&self) -> Self {
        let mut bytes = self.clone().0;
        while let Some(last) = bytes.last_mut() {
            if *last < u8::MAX {
                *last += 1;
                return Self(bytes);
            }
            bytes.pop();
        }
        Self(SmallVec::from_slice(&[u8::MAX; 40]))
    }

    /// The smallest key above this one.
    pub(crate) fn successor(&self) -> Self {
        let mut bytes = self.clone().0;
        bytes.push(0);
        Self(bytes)
    }
}

/// The highest bit of the identifiers under which contents are stored.
const CONTENT: u128 = 1 << 127;

/// The identifier of a content in the table of objects.
pub(crate) fn content_key(id: ContentId) -> Oid {
    Oid::from_bytes((id.0 | CONTENT).to_be_bytes())
}

/// The content that is stored under this identifier, if it is that of a content.
pub(crate) fn content_of(oid: Oid) -> Option<ContentId> {
    oid.is_temporary().then(|| ContentId(oid.to_u128() & !CONTENT))
}

/// The object identifier at offset `at` of a key, if the key is long enough.
pub(crate) fn oid_at(key: &[u8], at: usize) -> Option<Oid> {
    Some(Oid::from_bytes(key.get(at..at + Oid::LEN)?.try_into().ok()?))
}

/// File and offset in the key of an extent or freed extent.
pub(crate) fn extent_of(key: &[u8]) -> Option<(u32, u64)> {
    let file = u32::from_be_bytes(key.get(1..5)?.try_into().ok()?);
    let offset = u64::from_be_bytes(key.get(5..13)?.try_into().ok()?);
    (key.len() == 13).then_some((file, offset))
}

/// The content number in the key of a chunk or of unused content.
pub(crate) fn data_of(key: &[u8]) -> Option<DataId> {
    Some(DataId(u64::from_be_bytes(key.get(1..9)?.try_into().ok()?)))
}

/// The page in the key of a page.
pub(crate) fn page_of(key: &[u8]) -> Option<PageId> {
    let key: &[u8; 15] = key.try_into().ok()?;
    let part = |from: usize, to: usize| key[from..to].iter().fold(0, |n: u64, b| n << 8 | u64::from(*b));
    Some(PageId { space: SpaceId(part(1, 3) as u16), node: NodeId(part(3, 7) as u32), number: part(7, 15) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_end_is_above_every_key_with_the_prefix() {
        let oid = Oid::from_bytes([0xff; 16]);
        let prefix = Key::back_references(oid);
        assert!(prefix.prefix_end() > Key::back_name(oid, "\u{10ffff}"));
        assert_eq!(&*prefix.prefix_end(), b"s");
    }

    #[test]
    fn keys_order_as_their_parts() {
        let data = DataId(7);
        assert!(Key::chunk(data, 255) < Key::chunk(data, 256));
        assert!(Key::chunk(data, u64::MAX) < Key::chunk(DataId(8), 0));
        assert!(Key::extent(1, u64::MAX) < Key::extent(2, 0));
        assert_eq!(extent_of(&Key::extent(3, 9)), Some((3, 9)));
    }

    #[test]
    fn keys_of_pages_name_them() {
        let page = PageId { space: SpaceId(0x0102), node: NodeId(0x0304_0506), number: 0x0708_090a_0b0c_0d0e };
        assert_eq!(page_of(&Key::page(page)), Some(page));
        assert_eq!(page_of(b"short"), None);
    }
}
