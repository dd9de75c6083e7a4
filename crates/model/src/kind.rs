//! The kinds of objects.

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Bytes: ranged read and write, append, truncate.
    Blob = 1,
    /// A header that indexes fields, then the fields; read and replaced as a whole.
    Record = 2,
    /// A set of members, ordered by identifier.
    Collection = 3,
    /// A directory: names of objects, ordered by their bytes.
    Directory = 4,
}

impl Kind {
    /// The kind with this code.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Blob),
            2 => Some(Self::Record),
            3 => Some(Self::Collection),
            4 => Some(Self::Directory),
            _ => None,
        }
    }

    /// The kind's name in listings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blob => "blob",
            Self::Record => "record",
            Self::Collection => "collection",
            Self::Directory => "directory",
        }
    }
}
