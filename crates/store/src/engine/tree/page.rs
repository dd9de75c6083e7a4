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

use std::borrow::Cow;

use super::super::EngineResult;
use super::damage::PageDamage;
use super::meta::put_ref;
use crate::plant::{TreeBug, planted};

/// Bytes in a page.
pub(super) const PAGE: usize = 4096;
const HEAD: usize = 8;
/// Bytes for the entries of a page with their places.
pub(super) const ROOM: usize = PAGE - HEAD;
const PLACE: usize = 2;
const LEAF_HEAD: usize = 6;
const BRANCH_HEAD: usize = 2 + REF;
/// Bytes of a reference.
const REF: usize = 12;
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
    PLACE + BRANCH_HEAD.max(LEAF_HEAD + REF) + key.len() <= room / 2
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

    /// All bytes of the page.
    pub(super) fn bytes(&self) -> &'a [u8; PAGE] {
        self.bytes
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether rows in the range of this leaf are lost.
    pub(super) fn is_incomplete(&self) -> bool {
        self.bytes[4] & INCOMPLETE != 0 && !planted(TreeBug::LostRowsAreAbsent)
    }

    fn structure_error<T>(&self) -> EngineResult<T> {
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
        self.entry(index).and_then(read_row).map_or_else(|| self.structure_error(), |(key, value, _)| Ok((key, value)))
    }

    /// As [`Node::row`], with all bytes of the row.
    #[inline]
    pub(super) fn row_with_bytes(&self, index: usize) -> EngineResult<(&'a [u8], Value<'a>, &'a [u8])> {
        let read = || {
            let entry = self.entry(index)?;
            let (key, value, len) = read_row(entry)?;
            Some((key, value, entry.get(..len)?))
        };
        read().map_or_else(|| self.structure_error(), Ok)
    }

    /// A child of a branch, and the smallest key that it may have, which is not known here for the first child.
    pub(super) fn child(&self, index: usize) -> EngineResult<(&'a [u8], PageRef)> {
        let read = || {
            let entry = self.entry(index)?;
            let page = u64::from_le_bytes(*entry.get(2..)?.first_chunk()?);
            let crc = u32::from_le_bytes(*entry.get(10..)?.first_chunk()?);
            Some((self.branch_key(index)?, PageRef { page, crc }))
        };
        read().map_or_else(|| self.structure_error(), Ok)
    }

    /// The number of rows of a leaf with keys below `key`, and whether the next one has this key.
    pub(super) fn find(&self, key: &[u8]) -> EngineResult<(usize, bool)> {
        let (mut low, mut high, mut found) = (0, self.count, false);
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.leaf_key(middle) {
                None => return self.structure_error(),
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
                None => return self.structure_error(),
                Some(at) if at <= key => low = middle + 1,
                Some(_) => high = middle,
            }
        }
        Ok(low - 1)
    }
}

/// Key and value of the row at the beginning of some bytes, and its length.
#[inline]
fn read_row(entry: &[u8]) -> Option<(&[u8], Value<'_>, usize)> {
    let len = usize::from(u16::from_le_bytes(*entry.first_chunk()?));
    let value = u32::from_le_bytes(*entry.get(2..)?.first_chunk()?);
    let (key, rest) = entry.get(LEAF_HEAD..)?.split_at_checked(len)?;
    let (value, value_len) = match value {
        ABSENT => (Value::Absent, 0),
        len if len & IS_OUTSIDE != 0 => {
            let page = u64::from_le_bytes(*rest.first_chunk()?);
            let crc = u32::from_le_bytes(*rest.get(8..)?.first_chunk()?);
            (Value::Outside(PageRef { page, crc }, (len & !IS_OUTSIDE) as usize), REF)
        }
        len => (Value::Inline(rest.get(..len as usize)?), len as usize),
    };
    Some((key, value, LEAF_HEAD + len + value_len))
}

/// A value of an entry that is being written.
#[derive(Clone, Copy, Debug)]
pub(super) enum NewValue<'a> {
    Inline(&'a [u8]),
    Outside(PageRef, usize),
    Absent,
    Child(PageRef),
}

impl<'a> From<Value<'a>> for NewValue<'a> {
    fn from(value: Value<'a>) -> Self {
        match value {
            Value::Inline(bytes) => Self::Inline(bytes),
            Value::Outside(run, len) => Self::Outside(run, len),
            Value::Absent => Self::Absent,
        }
    }
}

impl NewValue<'_> {
    /// Bytes that a page needs for an entry with this value, with the place.
    #[inline]
    pub(super) fn size_with(&self, key: &[u8]) -> usize {
        PLACE + self.len_with(key)
    }

    #[inline]
    fn len_with(&self, key: &[u8]) -> usize {
        key.len()
            + match self {
                Self::Inline(bytes) => LEAF_HEAD + bytes.len(),
                Self::Outside(..) => LEAF_HEAD + REF,
                Self::Absent => LEAF_HEAD,
                Self::Child(_) => BRANCH_HEAD,
            }
    }
}

/// An entry of a leaf or of a branch that is being written. It refers to the copy of the page from which it comes, or to the batch.
#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    pub(super) key: Cow<'a, [u8]>,
    pub(super) value: NewValue<'a>,
}

impl Entry<'_> {
    /// Bytes that a page needs at most, with the place.
    #[inline]
    pub(super) fn size(&self) -> usize {
        self.value.size_with(&self.key)
    }
}

/// A page that is being written. Its entries come in the order of their keys, and fit into it.
pub(super) struct NewPage<'a> {
    bytes: &'a mut [u8; PAGE],
    count: usize,
    /// Where the last entry begins.
    end: usize,
}

impl<'a> NewPage<'a> {
    pub(super) fn begin(bytes: &'a mut [u8; PAGE], level: u8, is_incomplete: bool) -> Self {
        let kind = if level == 0 { LEAF } else { BRANCH };
        bytes[..HEAD].copy_from_slice(&[kind, level, 0, 0, if is_incomplete { INCOMPLETE } else { 0 }, 0, 0, 0]);
        Self { bytes, count: 0, end: PAGE }
    }

    /// Bytes of the entries with their places.
    #[inline]
    pub(super) fn size(&self) -> usize {
        self.count * PLACE + PAGE - self.end
    }

    /// The place of the next entry.
    #[inline]
    fn add(&mut self, len: usize) -> &mut [u8] {
        let (place, before) = (HEAD + self.count * PLACE, self.end);
        self.end -= len;
        self.count += 1;
        self.bytes[place..place + PLACE].copy_from_slice(&(self.end as u16).to_le_bytes());
        &mut self.bytes[self.end..before]
    }

    /// Adds an entry of another page.
    #[inline]
    pub(super) fn copy(&mut self, entry: &[u8]) {
        self.add(entry.len()).copy_from_slice(entry);
    }

    #[inline]
    pub(super) fn push(&mut self, key: &[u8], value: NewValue<'_>) {
        let out = self.add(value.len_with(key));
        let (key_len, out) = out.split_at_mut(2);
        key_len.copy_from_slice(&(key.len() as u16).to_le_bytes());
        if let NewValue::Child(child) = value {
            put_ref(&mut out[..REF], child);
            out[REF..].copy_from_slice(key);
            return;
        }
        let (value_len, out) = out.split_at_mut(4);
        let (key_out, out) = out.split_at_mut(key.len());
        key_out.copy_from_slice(key);
        let len = match value {
            NewValue::Inline(bytes) => {
                out.copy_from_slice(bytes);
                bytes.len() as u32
            }
            NewValue::Outside(run, len) => {
                put_ref(out, run);
                len as u32 | IS_OUTSIDE
            }
            NewValue::Absent | NewValue::Child(_) => ABSENT,
        };
        value_len.copy_from_slice(&len.to_le_bytes());
    }

    /// Completes the page.
    pub(super) fn end(self) {
        self.bytes[2..4].copy_from_slice(&(self.count as u16).to_le_bytes());
        self.bytes[HEAD + self.count * PLACE..self.end].fill(0);
    }
}

/// Encodes a page. The entries fit into it.
pub(super) fn encode(level: u8, is_incomplete: bool, entries: &[Entry<'_>], out: &mut [u8; PAGE]) {
    let mut page = NewPage::begin(out, level, is_incomplete);
    for (index, entry) in entries.iter().enumerate() {
        let key = if level > 0 && index == 0 { &[] } else { &entry.key[..] };
        page.push(key, entry.value);
    }
    page.end();
}
