//! The keys of the B-tree: a table, then what the table is ordered by.
//!
//! ```text
//! 'o' content                 head and first chunk of a content     'x' file offset         extent of a blob file
//! 'c' data index              a further chunk of a content          'd' file offset         extent to be freed
//! 'k' ...                     a row of the store's user,            'g' data                bytes to be removed
//!                             with the user's key                   's' ...                 system rows
//! 'l' number                  a range of rows that a repair gave up
//! ```
//!
//! All numbers are big-endian, so keys order as their parts do.

use std::fmt::Write as _;

use model::ContentId;
use smallvec::SmallVec;

/// Keys of up to this many bytes are stored inline, including those of contents and chunks.
const INLINE_LEN: usize = 24;

/// A key of the B-tree.
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Key(SmallVec<[u8; INLINE_LEN]>);

/// The bytes of a content, apart from its first chunk. The number is never used again, so deleting a content of any size
/// is one small change, and the chunks are removed in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DataId(pub(crate) u64);

/// The first byte of a key.
pub(crate) mod table {
    pub(crate) const CONTENT: u8 = b'o';
    pub(crate) const CHUNK: u8 = b'c';
    pub(crate) const EXTENT: u8 = b'x';
    pub(crate) const FREED: u8 = b'd';
    pub(crate) const GARBAGE: u8 = b'g';
    pub(crate) const SYSTEM: u8 = b's';
    pub(crate) const ROW: u8 = b'k';
    pub(crate) const LOST: u8 = b'l';
}

/// The system row with the last frame of the log that is in the B-tree.
pub(crate) const INSTALLED: &str = "installed";
/// The system row that counts the openings.
pub(crate) const INCARNATION: &str = "incarnation";
/// The system row with the number of the last blob file that was swept.
pub(crate) const SWEPT: &str = "swept";
/// The system row with the last position that a repair kept.
pub(crate) const SALVAGED: &str = "salvaged";
/// Counts of openings are below this: the identifier of an upload has 31 bits for them.
const OPENINGS: u32 = 1 << 31;
/// All system rows.
pub(crate) const SYSTEM_ROWS: [&str; 4] = [INSTALLED, INCARNATION, SWEPT, SALVAGED];
/// Maximum bytes of the value of a system row.
pub(crate) const SYSTEM_VALUE: usize = 15;

/// Whether a store can have been opened so often.
pub(crate) fn is_opening(count: u32) -> bool {
    count < OPENINGS
}

/// The count of openings after one more, if a store can be opened again.
pub(crate) fn next_opening(before: u32) -> Option<u32> {
    before.checked_add(1).filter(|count| is_opening(*count))
}

/// Which of the [`SYSTEM_ROWS`] has this key.
pub(crate) fn system_row(key: &[u8]) -> Option<usize> {
    let name = key.strip_prefix(&[table::SYSTEM])?;
    SYSTEM_ROWS.iter().position(|row| row.as_bytes() == name)
}

/// Maximum number of bytes of a key in an error message.
const MAX_KEY_BYTES_SHOWN: usize = 64;

/// A key in hexadecimal for messages, shortened if it is long.
pub(crate) fn hex(key: &[u8]) -> String {
    let mut text = String::with_capacity(2 * key.len().min(MAX_KEY_BYTES_SHOWN) + 3);
    for byte in &key[..key.len().min(MAX_KEY_BYTES_SHOWN)] {
        let _ = write!(text, "{byte:02x}");
    }
    if key.len() > MAX_KEY_BYTES_SHOWN {
        text.push_str("...");
    }
    text
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

    pub(crate) fn content(id: ContentId) -> Self {
        let mut bytes = [table::CONTENT; CONTENT_LEN];
        bytes[1..].copy_from_slice(&id.0.to_be_bytes());
        Self(SmallVec::from_slice(&bytes))
    }

    pub(crate) fn chunk(data: DataId, index: u64) -> Self {
        Self::concat(&[&[table::CHUNK], &data.0.to_be_bytes(), &index.to_be_bytes()])
    }

    pub(crate) fn extent(file: u32, offset: u64) -> Self {
        Self::concat(&[&[table::EXTENT], &file.to_be_bytes(), &offset.to_be_bytes()])
    }

    pub(crate) fn extents_of(file: u32) -> Self {
        Self::concat(&[&[table::EXTENT], &file.to_be_bytes()])
    }

    pub(crate) fn freed_extent(file: u32, offset: u64) -> Self {
        Self::concat(&[&[table::FREED], &file.to_be_bytes(), &offset.to_be_bytes()])
    }

    pub(crate) fn garbage(data: DataId) -> Self {
        Self::concat(&[&[table::GARBAGE], &data.0.to_be_bytes()])
    }

    pub(crate) fn chunks_of(data: DataId) -> Self {
        Self::concat(&[&[table::CHUNK], &data.0.to_be_bytes()])
    }

    pub(crate) fn lost_range(number: u32) -> Self {
        Self::concat(&[&[table::LOST], &number.to_be_bytes()])
    }

    pub(crate) fn system(name: &str) -> Self {
        Self::concat(&[&[table::SYSTEM], name.as_bytes()])
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

/// Bytes of the key of a content.
const CONTENT_LEN: usize = 1 + 16;

/// The content in the key of a content.
pub(crate) fn content_of(key: &[u8]) -> Option<ContentId> {
    let key: &[u8; CONTENT_LEN] = key.try_into().ok()?;
    key.last_chunk().copied().map(u128::from_be_bytes).map(ContentId)
}

/// File and offset in the key of an extent or freed extent.
pub(crate) fn extent_of(key: &[u8]) -> Option<(u32, u64)> {
    let file = u32::from_be_bytes(key.get(1..5)?.try_into().ok()?);
    let offset = u64::from_be_bytes(key.get(5..13)?.try_into().ok()?);
    (key.len() == 13).then_some((file, offset))
}

/// The number in the key of a chunk or of bytes to be removed.
pub(crate) fn data_of(key: &[u8]) -> Option<DataId> {
    Some(DataId(u64::from_be_bytes(key.get(1..9)?.try_into().ok()?)))
}

/// The index in the key of a chunk.
pub(crate) fn index_of(key: &[u8]) -> Option<u64> {
    key.get(9..).and_then(|index| index.try_into().ok()).map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_keys_are_shortened_in_messages() {
        assert_eq!(hex(&[0xab; MAX_KEY_BYTES_SHOWN]), "ab".repeat(MAX_KEY_BYTES_SHOWN));
        assert_eq!(hex(&[0xab; MAX_KEY_BYTES_SHOWN + 1]), "ab".repeat(MAX_KEY_BYTES_SHOWN) + "...");
    }

    #[test]
    fn prefix_end_is_above_every_key_with_the_prefix() {
        let prefix = Key::row(&[0xff; 3]);
        assert!(prefix.prefix_end() > Key::row(&[0xff; 40]));
        assert_eq!(&*prefix.prefix_end(), b"l");
    }

    #[test]
    fn keys_order_as_their_parts() {
        let data = DataId(7);
        assert!(Key::chunk(data, 255) < Key::chunk(data, 256));
        assert!(Key::chunk(data, u64::MAX) < Key::chunk(DataId(8), 0));
        assert!(Key::extent(1, u64::MAX) < Key::extent(2, 0));
        assert!(Key::content(ContentId(255)) < Key::content(ContentId(256)));
    }

    #[test]
    fn keys_name_their_parts() {
        let id = ContentId(u128::MAX - 1);
        assert_eq!(content_of(&Key::content(id)), Some(id));
        assert_eq!(content_of(&Key::content(id).successor()), None);
        assert_eq!(extent_of(&Key::extent(3, 9)), Some((3, 9)));
        let chunk = Key::chunk(DataId(5), 6);
        assert_eq!((data_of(&chunk), index_of(&chunk)), (Some(DataId(5)), Some(6)));
        assert_eq!((data_of(b"short"), index_of(&chunk[..16])), (None, None));
    }
}
