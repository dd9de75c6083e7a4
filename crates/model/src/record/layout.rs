//! The table of contents of records, lists, sets and maps, and its possible flaws.
//!
//! A table is read in place. [`Table::parse`] checks its frame, at a cost that does not depend on the number of
//! entries. Each access checks the offsets that it uses. So bytes of any origin can be read safely.

use thiserror::Error;

use crate::{Error, ErrorKind, ValueRef};

/// A flaw of an encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum EncodingError {
    #[error("it is empty")]
    Empty,
    #[error("its version {0} is not known here; this program reads version {VERSION}", VERSION = super::VERSION)]
    Version(u8),
    #[error("it has {bytes} bytes; {limit} are allowed", limit = crate::limits::RECORD)]
    Size { bytes: usize },
    #[error("the header of a table is incomplete or has unknown bits")]
    Header,
    #[error("the offsets of a table do not match its bytes")]
    Offsets,
    #[error("the header of a table is wider than necessary")]
    Width,
    #[error("field numbers, the members of a set or the keys of a map are out of order")]
    Order,
    #[error("a key of a map has no value")]
    OddMap,
    #[error("a value has the unknown tag {0:#04x}")]
    Tag(u8),
    #[error("a value of tag {0:#04x} is not correctly encoded")]
    Value(u8),
    #[error("a text is not UTF-8")]
    Utf8,
    #[error("lists, sets and maps are nested more than {limit} deep", limit = crate::limits::NESTING)]
    Nesting,
}

impl EncodingError {
    /// The error for bytes from storage.
    #[cold]
    pub(crate) fn into_corrupt(self) -> Error {
        self.with_kind(ErrorKind::Corrupt)
    }

    /// The error for bytes from a writer.
    #[cold]
    pub(crate) fn into_invalid(self) -> Error {
        self.with_kind(ErrorKind::Invalid)
    }

    fn with_kind(self, kind: ErrorKind) -> Error {
        let kind = match self {
            Self::Version(_) => ErrorKind::Unsupported,
            Self::Size { .. } if kind == ErrorKind::Invalid => ErrorKind::TooLarge,
            _ => kind,
        };
        Error::new(kind, format!("a record is malformed: {self}"))
    }
}

/// The width of the numbers in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    One = 1,
    Two = 2,
    Four = 4,
}

impl Width {
    /// The smallest width for `largest`.
    pub(crate) const fn of(largest: u32) -> Self {
        match largest {
            0..=0xff => Self::One,
            0x100..=0xffff => Self::Two,
            _ => Self::Four,
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Four => 3,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::One),
            2 => Some(Self::Two),
            3 => Some(Self::Four),
            _ => None,
        }
    }

    const fn bytes(self) -> usize {
        self as usize
    }

    /// The `index`-th number of those that start at `at`.
    #[inline]
    fn read(self, bytes: &[u8], at: usize, index: usize) -> Option<u32> {
        let bytes = bytes.get(at + index * self.bytes()..)?;
        Some(match self {
            Self::One => u32::from(*bytes.first()?),
            Self::Two => u32::from(u16::from_be_bytes(*bytes.first_chunk()?)),
            Self::Four => u32::from_be_bytes(*bytes.first_chunk()?),
        })
    }

    fn write(self, number: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&number.to_be_bytes()[4 - self.bytes()..]);
    }
}

/// Contiguous entries and a header with their ends; the entries of a record are numbered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'a> {
    bytes: &'a [u8],
    count: u32,
    /// `None` if the entries are not numbered.
    numbers: Option<Width>,
    ends: Width,
}

/// Bytes before the count.
const SHAPE_LEN: usize = 1;
const ENDS_MASK: u8 = 0b11;
const NUMBERS_SHIFT: u8 = 2;

impl<'a> Table<'a> {
    /// Parses a table: checks that its header is complete and that its last entry ends at the end of the bytes.
    #[inline]
    pub(crate) fn parse(bytes: &'a [u8], numbered: bool) -> Result<Self, EncodingError> {
        let Some(&shape) = bytes.first() else {
            return Ok(Self { bytes, count: 0, numbers: None, ends: Width::One });
        };
        let ends = Width::from_code(shape & ENDS_MASK).ok_or(EncodingError::Header)?;
        let numbers = Width::from_code(shape >> NUMBERS_SHIFT);
        if numbers.is_some() != numbered || (numbers.is_none() && shape >> NUMBERS_SHIFT != 0) {
            return Err(EncodingError::Header);
        }
        let count = ends.read(bytes, SHAPE_LEN, 0).ok_or(EncodingError::Header)?;
        let table = Self { bytes, count, numbers, ends };
        let values = bytes.len().checked_sub(table.values_at()).ok_or(EncodingError::Header)?;
        match table.end(table.len().checked_sub(1).ok_or(EncodingError::Header)?) {
            Some(end) if end == values => Ok(table),
            _ => Err(EncodingError::Offsets),
        }
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.count as usize
    }

    /// The encoded table.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes of an entry, at least one.
    #[inline]
    fn entry(&self, index: usize) -> Result<&'a [u8], EncodingError> {
        let start = match index.checked_sub(1) {
            Some(before) => self.end(before),
            None => Some(0),
        };
        let (Some(start), Some(end)) = (start, self.end(index)) else { return Err(EncodingError::Offsets) };
        let at = self.values_at();
        match self.bytes.get(at + start..at + end) {
            Some(entry) if !entry.is_empty() => Ok(entry),
            _ => Err(EncodingError::Offsets),
        }
    }

    /// The value of an entry.
    #[inline]
    pub(crate) fn value(&self, index: usize) -> Result<ValueRef<'a>, EncodingError> {
        ValueRef::parse(self.entry(index)?)
    }

    /// The number of an entry.
    #[inline]
    pub(crate) fn number(&self, index: usize) -> Option<u32> {
        self.numbers?.read(self.bytes, self.numbers_at(), index)
    }

    /// The position of the entry with this number.
    #[inline]
    pub(crate) fn find(&self, number: u32) -> Option<usize> {
        // Most classes number their fields from 0, and most records have all of them.
        let guess = number as usize;
        if guess < self.len() && self.number(guess)? == number {
            return Some(guess);
        }
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            let found = self.number(middle)?;
            if found == number {
                return Some(middle);
            } else if found < number {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        None
    }

    /// Whether the header is the only valid one for these entries.
    pub(crate) fn check(&self) -> Result<(), EncodingError> {
        if self.count == 0 {
            return Ok(());
        }
        let last = self.len() - 1;
        let narrowest =
            |width: Width, largest: u32| if width == Width::of(largest) { Ok(()) } else { Err(EncodingError::Width) };
        narrowest(self.ends, u32::try_from(self.end(last).unwrap_or(0)).map_err(|_| EncodingError::Offsets)?)?;
        if let Some(width) = self.numbers {
            narrowest(width, self.number(last).unwrap_or(0))?;
            if (1..self.len()).any(|index| self.number(index - 1) >= self.number(index)) {
                return Err(EncodingError::Order);
            }
        }
        Ok(())
    }

    /// The end of an entry, relative to the start of the first.
    #[inline]
    fn end(&self, index: usize) -> Option<usize> {
        if index >= self.len() {
            return None;
        }
        self.ends.read(self.bytes, self.ends_at(), index).map(|end| end as usize)
    }

    #[inline]
    fn numbers_at(&self) -> usize {
        SHAPE_LEN + self.ends.bytes()
    }

    #[inline]
    fn ends_at(&self) -> usize {
        self.numbers_at() + self.len() * self.numbers.map_or(0, Width::bytes)
    }

    #[inline]
    fn values_at(&self) -> usize {
        if self.count == 0 { 0 } else { self.ends_at() + self.len() * self.ends.bytes() }
    }
}

/// Writes the header of a table whose entries end at `ends`; `numbers` is empty if they are not numbered.
pub(crate) fn write_header(numbers: &[u32], ends: &[u32], out: &mut Vec<u8>) {
    let Some(&last) = ends.last() else { return };
    let ends_width = Width::of(last);
    let numbers_width = numbers.last().copied().map(Width::of);
    out.push(ends_width.code() | numbers_width.map_or(0, Width::code) << NUMBERS_SHIFT);
    // Every entry has at least one byte, so the count fits if the last end fits.
    ends_width.write(ends.len() as u32, out);
    for &number in numbers {
        numbers_width.unwrap_or(Width::Four).write(number, out);
    }
    for &end in ends {
        ends_width.write(end, out);
    }
}
