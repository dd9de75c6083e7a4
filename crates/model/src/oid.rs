//! Object identifiers.
//!
//! An [`Oid`] is physical: it contains the location of its object, so following a reference needs no look-up. The 128
//! bits, from the most significant down (TODS, section 3.1):
//!
//! ```text
//!  127        126..112   111..88    87..64     63..16     15..0
//! +-----------+----------+----------+----------+----------+---------+
//! | temporary |  space   |  class   |   node   |   page   |  slot   |
//! |     1     |    15    |    24    |    24    |    48    |   16    |
//! +-----------+----------+----------+----------+----------+---------+
//! ```
//!
//! Identifiers order as these bits: by space, class, node, page and slot, with all temporary ones last.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The identifier of an object or a collection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid(u128);

/// A name space with its own classes, objects and permissions: 15 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceId(pub u16);

/// A class of records: 24 bits; 0 is "no class".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u32);

/// A logical node: 24 bits. The placement map says which brick serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// The objects of one space and node with the same page number; about 8 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageId {
    /// The space of the page's objects.
    pub space: SpaceId,
    /// The logical node that serves the page.
    pub node: NodeId,
    /// The page's number on that node: 48 bits.
    pub number: u64,
}

impl PageId {
    /// A number with the same order as the parts, for fast comparison in trees of pages.
    const fn sort_key(self) -> u128 {
        (self.space.0 as u128) << 96 | (self.node.0 as u128) << 64 | self.number as u128
    }
}

impl Ord for PageId {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.sort_key().cmp(&other.sort_key())
    }
}

impl PartialOrd for PageId {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl SpaceId {
    /// The largest space.
    pub const MAX: Self = Self((1 << 15) - 1);
}

impl ClassId {
    /// Objects that belong to no class: blobs and collections.
    pub const NONE: Self = Self(0);
    /// The largest class.
    pub const MAX: Self = Self((1 << 24) - 1);
}

/// The hexadecimal form, as in identifiers.
impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl NodeId {
    /// The largest logical node.
    pub const MAX: Self = Self((1 << 24) - 1);
}

impl PageId {
    /// The largest page number.
    pub const MAX_NUMBER: u64 = (1 << 48) - 1;
}

impl Oid {
    /// The smallest identifier; no object has it.
    pub const MIN: Self = Self(0);
    /// The largest identifier; no object has it.
    pub const MAX: Self = Self(u128::MAX);
    /// Bytes of an identifier.
    pub const LEN: usize = 16;

    const TEMPORARY: u128 = 1 << 127;

    /// The identifier of the object at `slot` of `page`.
    ///
    /// # Panics
    /// If a part does not fit its bits. Identifiers from outside are decoded with [`Oid::from_bytes`].
    #[must_use]
    pub fn new(class: ClassId, page: PageId, slot: u16) -> Self {
        assert!(page.space <= SpaceId::MAX, "space {} is over 15 bits", page.space.0);
        assert!(class <= ClassId::MAX, "class {} is over 24 bits", class.0);
        assert!(page.node <= NodeId::MAX, "node {} is over 24 bits", page.node.0);
        assert!(page.number <= PageId::MAX_NUMBER, "page {} is over 48 bits", page.number);
        Self(
            u128::from(page.space.0) << 112
                | u128::from(class.0) << 88
                | u128::from(page.node.0) << 64
                | u128::from(page.number) << 16
                | u128::from(slot),
        )
    }

    /// The `index`-th temporary identifier of a transaction for an object of `class` in `space`.
    ///
    /// # Panics
    /// If `space` or `class` does not fit its bits.
    #[must_use]
    pub fn temporary(space: SpaceId, class: ClassId, index: u64) -> Self {
        assert!(space <= SpaceId::MAX, "space {} is over 15 bits", space.0);
        assert!(class <= ClassId::MAX, "class {} is over 24 bits", class.0);
        Self(Self::TEMPORARY | u128::from(space.0) << 112 | u128::from(class.0) << 88 | u128::from(index))
    }

    /// Whether the identifier is temporary: its object is not committed yet.
    #[must_use]
    pub const fn is_temporary(self) -> bool {
        self.0 & Self::TEMPORARY != 0
    }

    /// The object's space.
    #[must_use]
    pub const fn space(self) -> SpaceId {
        SpaceId((self.0 >> 112) as u16 & SpaceId::MAX.0)
    }

    /// The object's class.
    #[must_use]
    pub const fn class(self) -> ClassId {
        ClassId((self.0 >> 88) as u32 & ClassId::MAX.0)
    }

    /// The object's page.
    #[must_use]
    pub const fn page(self) -> PageId {
        PageId {
            space: self.space(),
            node: NodeId((self.0 >> 64) as u32 & NodeId::MAX.0),
            number: (self.0 >> 16) as u64 & PageId::MAX_NUMBER,
        }
    }

    /// The object's slot in its page.
    #[must_use]
    pub const fn slot(self) -> u16 {
        self.0 as u16
    }

    /// The lowest identifier in `space`.
    #[must_use]
    pub const fn first_of(space: SpaceId) -> Self {
        Self((space.0 as u128) << 112)
    }

    /// The next identifier; `None` after the last.
    #[must_use]
    pub const fn successor(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(next) => Some(Self(next)),
            None => None,
        }
    }

    /// The identifier as 16 big-endian bytes, which have the same order.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The identifier in 16 bytes of [`Oid::to_bytes`]. Every value is valid.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// The identifier as a number with the same order.
    #[must_use]
    pub const fn to_u128(self) -> u128 {
        self.0
    }
}

/// The form `space.class.node.page.slot` in hexadecimal, with `~` before temporary identifiers: `1.0.0.2a.3`.
impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let page = self.page();
        let mark = if self.is_temporary() { "~" } else { "" };
        write!(f, "{mark}{:x}.{:x}.{:x}.{:x}.{:x}", page.space.0, self.class().0, page.node.0, page.number, self.slot())
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Oid({self})")
    }
}

/// Why a text is not an object identifier.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseOidError {
    /// The text does not have five parts.
    #[error("an object identifier has five parts, space.class.node.page.slot; this text has {found}: {text:?}")]
    Parts {
        /// The number of parts.
        found: usize,
        /// The text, shortened if it is long.
        text: String,
    },
    /// A part is not a hexadecimal number.
    #[error("the {part} of an object identifier is a hexadecimal number; this is not: {text:?}")]
    Digits {
        /// The part's name.
        part: &'static str,
        /// The part, shortened if it is long.
        text: String,
    },
    /// A part is too large.
    #[error("the {part} of an object identifier has at most {bits} bits: {text:?} is larger")]
    Range {
        /// The part's name.
        part: &'static str,
        /// The maximum number of bits.
        bits: u32,
        /// The part, shortened if it is long.
        text: String,
    },
}

const PARTS: [(&str, u32); 5] = [("space", 15), ("class", 24), ("node", 24), ("page", 48), ("slot", 16)];

impl FromStr for Oid {
    type Err = ParseOidError;

    fn from_str(text: &str) -> Result<Self, ParseOidError> {
        let (temporary, rest) = match text.strip_prefix('~') {
            Some(rest) => (Self::TEMPORARY, rest),
            None => (0, text),
        };
        let parts: Vec<&str> = rest.split('.').take(PARTS.len() + 1).collect();
        if parts.len() != PARTS.len() {
            return Err(ParseOidError::Parts { found: rest.split('.').count(), text: shorten(text) });
        }
        let mut bits = 0;
        for ((part, width), digits) in PARTS.into_iter().zip(parts) {
            bits = bits << width | u128::from(parse_part(part, width, digits)?);
        }
        Ok(Self(temporary | bits))
    }
}

fn parse_part(part: &'static str, bits: u32, text: &str) -> Result<u64, ParseOidError> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(ParseOidError::Digits { part, text: shorten(text) });
    }
    match u64::from_str_radix(text, 16) {
        Ok(value) if value >> bits == 0 => Ok(value),
        _ => Err(ParseOidError::Range { part, bits, text: shorten(text) }),
    }
}

/// A text from outside, shortened for an error message.
fn shorten(text: &str) -> String {
    /// Longer than any identifier.
    const QUOTED: usize = 64;
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
