//! The pages of the tree.
//!
//! ```text
//! page   +--------+---------+---------+---------+-------+-----------------+----------------------------+
//!        |  kind  |  level  |  count  |  flags  | zeros |  place × count  |   entries, in any order    |
//!        |   1    |    1    |    2    |    1    |   3   |     2 each      |                            |
//!        +--------+---------+---------+---------+-------+-----------------+----------------------------+
//!
//! leaf   +-----------+-------------+-------+-----------------------------------------------+
//!        |  key len  |  value len  |  key  |  value; or page 8, crc 4 of a value outside   |
//!        |     2     |      4      |       |                                               |
//!        +-----------+-------------+-------+-----------------------------------------------+
//!
//! branch +-----------+--------+-------+-------+
//!        |  key len  |  page  |  crc  |  key  |     a child, and the smallest key that it may have; the first child has no key here:
//!        |     2     |   8    |   4   |       |     its keys begin with those of the page, which the parent knows
//!        +-----------+--------+-------+-------+
//! ```
//!
//! 1. A page has no checksum of itself. A reference to a page has the page's checksum, so an older copy of a page is noticed, too.
//! 2. Every number of a page is checked before it is used, even if the checksum of the page matches.
//! 3. The level of a child is one less than that of its parent, so every descent ends.

use super::super::EngineResult;
use super::damage::PageDamage;
use crate::plant::{TreeBug, planted};

/// Bytes in a page.
pub(super) const PAGE: usize = 4096;
const HEAD: usize = 8;
/// Bytes for the entries of a page with their places.
pub(super) const ROOM: usize = PAGE - HEAD;
const PLACE: usize = 2;
const LEAF_HEAD: usize = 6;
const BRANCH_HEAD: usize = 14;
/// Bytes in a leaf for a value outside of it.
const OUTSIDE: usize = 12;
/// Maximum level of a page. A tree of this height would have more pages than a file can.
pub(super) const MAX_LEVEL: u8 = 40;

const LEAF: u8 = 1;
const BRANCH: u8 = 2;
/// The leaf replaces a damaged part of the tree: rows in its range that it does not have are lost.
const INCOMPLETE: u8 = 1;
/// The value is outside of the page.
const IS_OUTSIDE: u32 = 1 << 31;
/// There is no row with this key, although others in the range of the leaf are lost.
const ABSENT: u32 = u32::MAX;
/// Maximum bytes of a value.
pub(super) const MAX_VALUE: usize = (1 << 31) - 2;

/// A page or a run of pages, and its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRef {
    pub(super) page: u64,
    pub(super) crc: u32,
}

/// A value in a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Inline(&'a [u8]),
    /// The first page of a run, and the number of bytes.
    Outside(PageRef, usize),
    Absent,
}

/// Pages that a value of this size takes.
pub(super) fn pages_of(len: usize) -> u64 {
    len.div_ceil(PAGE) as u64
}

/// Whether a row is stored in its leaf as a whole, if a page has this room for entries: at least two fit into a page.
pub(super) fn fits_inline(key: usize, value: usize, room: usize) -> bool {
    PLACE + LEAF_HEAD + key + value <= room / 2
}

/// Whether a key fits into every page with this room for entries.
pub(super) fn is_valid_key(key: &[u8], room: usize) -> bool {
    PLACE + BRANCH_HEAD.max(LEAF_HEAD + OUTSIDE) + key.len() <= room / 2
}

/// A page that is being read.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    bytes: &'a [u8; PAGE],
    number: u64,
    count: usize,
}

impl<'a> Node<'a> {
    /// Interprets a page that should have this level.
    pub(super) fn parse(bytes: &'a [u8; PAGE], number: u64, level: u8) -> EngineResult<Self> {
        let kind = if level == 0 { LEAF } else { BRANCH };
        let count = usize::from(u16::from_le_bytes([bytes[2], bytes[3]]));
        let is_valid = bytes[0] == kind && bytes[1] == level && count * PLACE <= ROOM && (count > 0 || level == 0);
        if is_valid { Ok(Self { bytes, number, count }) } else { Err(PageDamage::structure(number)) }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether rows in the range of this leaf are lost.
    pub(super) fn is_incomplete(&self) -> bool {
        self.bytes[4] & INCOMPLETE != 0 && !planted(TreeBug::LostRowsAreAbsent)
    }

    fn damaged<T>(&self) -> EngineResult<T> {
        Err(PageDamage::structure(self.number))
    }

    /// The bytes of an entry to the end of the page.
    #[inline]
    fn entry(&self, index: usize) -> Option<&'a [u8]> {
        let place = self.bytes.get(HEAD + index * PLACE..)?.first_chunk::<PLACE>()?;
        self.bytes.get(usize::from(u16::from_le_bytes(*place))..)
    }

    #[inline]
    fn leaf_key(&self, index: usize) -> Option<&'a [u8]> {
        let entry = self.entry(index)?;
        let len = u16::from_le_bytes(*entry.first_chunk()?);
        entry.get(LEAF_HEAD..LEAF_HEAD + usize::from(len))
    }

    #[inline]
    fn branch_key(&self, index: usize) -> Option<&'a [u8]> {
        let entry = self.entry(index)?;
        let len = u16::from_le_bytes(*entry.first_chunk()?);
        entry.get(BRANCH_HEAD..BRANCH_HEAD + usize::from(len))
    }

    /// Key and value of a row of a leaf.
    pub(super) fn row(&self, index: usize) -> EngineResult<(&'a [u8], Value<'a>)> {
        let read = || {
            let entry = self.entry(index)?;
            let len = u16::from_le_bytes(*entry.first_chunk()?);
            let value = u32::from_le_bytes(*entry.get(2..)?.first_chunk()?);
            let (key, rest) = entry.get(LEAF_HEAD..)?.split_at_checked(usize::from(len))?;
            let value = match value {
                ABSENT => Value::Absent,
                len if len & IS_OUTSIDE != 0 => {
                    let page = u64::from_le_bytes(*rest.first_chunk()?);
                    let crc = u32::from_le_bytes(*rest.get(8..)?.first_chunk()?);
                    Value::Outside(PageRef { page, crc }, (len & !IS_OUTSIDE) as usize)
                }
                len => Value::Inline(rest.get(..len as usize)?),
            };
            Some((key, value))
        };
        read().map_or_else(|| self.damaged(), Ok)
    }

    /// A child of a branch, and the smallest key that it may have, which is not known here for the first child.
    pub(super) fn child(&self, index: usize) -> EngineResult<(&'a [u8], PageRef)> {
        let read = || {
            let entry = self.entry(index)?;
            let page = u64::from_le_bytes(*entry.get(2..)?.first_chunk()?);
            let crc = u32::from_le_bytes(*entry.get(10..)?.first_chunk()?);
            Some((self.branch_key(index)?, PageRef { page, crc }))
        };
        read().map_or_else(|| self.damaged(), Ok)
    }

    /// The number of rows of a leaf with keys below `key`, and whether the next one has this key.
    pub(super) fn find(&self, key: &[u8]) -> EngineResult<(usize, bool)> {
        let (mut low, mut high, mut found) = (0, self.count, false);
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.leaf_key(middle) {
                None => return self.damaged(),
                Some(at) if at < key => low = middle + 1,
                Some(at) => (high, found) = (middle, found || at == key),
            }
        }
        Ok((low, found))
    }

    /// The child in whose range `key` is. The first child has all keys below the second one's.
    pub(super) fn child_of(&self, key: &[u8]) -> EngineResult<usize> {
        let (mut low, mut high) = (1, self.count);
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.branch_key(middle) {
                None => return self.damaged(),
                Some(at) if at <= key => low = middle + 1,
                Some(_) => high = middle,
            }
        }
        Ok(low - 1)
    }
}

/// A value of an entry that is being written.
#[derive(Clone, Debug)]
pub(super) enum NewValue {
    Inline(bytes::Bytes),
    Outside(PageRef, usize),
    Absent,
    Child(PageRef),
}

/// An entry of a leaf or of a branch that is being written.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: Box<[u8]>,
    pub(super) value: NewValue,
}

impl Entry {
    /// Bytes that a page needs at most, with the place.
    pub(super) fn size(&self) -> usize {
        self.size_with(&self.key)
    }

    /// Bytes that a page needs if it has this key for the entry.
    pub(super) fn size_with(&self, key: &[u8]) -> usize {
        PLACE
            + key.len()
            + match &self.value {
                NewValue::Inline(bytes) => LEAF_HEAD + bytes.len(),
                NewValue::Outside(..) => LEAF_HEAD + OUTSIDE,
                NewValue::Absent => LEAF_HEAD,
                NewValue::Child(_) => BRANCH_HEAD,
            }
    }

    fn write(&self, key: &[u8], out: &mut [u8]) {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&(key.len() as u16).to_le_bytes());
        let put_ref = |put: &mut dyn FnMut(&[u8]), at: PageRef| {
            put(&at.page.to_le_bytes());
            put(&at.crc.to_le_bytes());
        };
        match &self.value {
            NewValue::Child(child) => {
                put_ref(&mut put, *child);
                put(key);
            }
            NewValue::Inline(bytes) => {
                put(&(bytes.len() as u32).to_le_bytes());
                put(key);
                put(bytes);
            }
            NewValue::Outside(run, len) => {
                put(&(*len as u32 | IS_OUTSIDE).to_le_bytes());
                put(key);
                put_ref(&mut put, *run);
            }
            NewValue::Absent => {
                put(&ABSENT.to_le_bytes());
                put(key);
            }
        }
    }
}

/// Encodes a page. The entries fit into it.
pub(super) fn encode(level: u8, is_incomplete: bool, entries: &[Entry]) -> Box<[u8; PAGE]> {
    let mut page = Box::new([0; PAGE]);
    page[0] = if level == 0 { LEAF } else { BRANCH };
    page[1] = level;
    page[2..4].copy_from_slice(&(entries.len() as u16).to_le_bytes());
    page[4] = if is_incomplete { INCOMPLETE } else { 0 };
    let mut end = PAGE;
    for (index, entry) in entries.iter().enumerate() {
        let place = HEAD + index * PLACE;
        let key = if level > 0 && index == 0 { &[] } else { &entry.key[..] };
        end -= entry.size_with(key) - PLACE;
        page[place..place + PLACE].copy_from_slice(&(end as u16).to_le_bytes());
        entry.write(key, &mut page[end..]);
    }
    page
}
