//! Entries of collections.
//!
//! A collection is an ordered map from keys to objects. With members' identifiers as keys it is a *set*; with names as
//! keys it is a *directory*.

use std::fmt;

use bytes::Bytes;

use crate::{Error, ErrorKind, Oid, Result, limits};

/// The key of an entry: 1 to [`limits::ENTRY_KEY`] bytes. Keys order as their bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryKey(Bytes);

impl EntryKey {
    /// The key with these bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for no bytes, [`ErrorKind::TooLarge`] for more than [`limits::ENTRY_KEY`].
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self> {
        let bytes = bytes.into();
        if bytes.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "the key of an entry of a collection has no bytes"));
        }
        if bytes.len() > limits::ENTRY_KEY {
            let (len, most) = (bytes.len(), limits::ENTRY_KEY);
            let what = format!("the key of an entry of a collection has {len} bytes; it may have {most}");
            return Err(Error::new(ErrorKind::TooLarge, what));
        }
        Ok(Self(bytes))
    }

    /// The key of a member of a set: its identifier, 16 bytes, big-endian.
    #[must_use]
    pub fn member(oid: Oid) -> Self {
        Self(Bytes::copy_from_slice(&oid.to_bytes()))
    }

    /// The key of a name in a directory: one component of a path.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for no bytes, `.`, `..`, a `/` or a zero byte; [`ErrorKind::TooLarge`] for more than
    /// [`limits::ENTRY_KEY`] bytes.
    pub fn name(component: &str) -> Result<Self> {
        if matches!(component, "" | "." | "..") || component.contains(['/', '\0']) {
            let what = format!(
                "{component:.80?} is not a component of a path: it must have bytes, none of them `/` or zero, and must \
                 not be `.` or `..`"
            );
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        Self::new(component.as_bytes().to_vec()).map_err(|error| {
            Error::new(
                error.kind(),
                format!("the component {component:.80?} of a path is too long: {}", error.message()),
            )
        })
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same bytes, shared with the key.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// The name that is the key, if it is UTF-8.
    #[must_use]
    pub fn to_name(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl fmt::Debug for EntryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// The place of an entry: a collection and a key in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// The collection.
    pub collection: Oid,
    /// The key.
    pub key: EntryKey,
}

impl Entry {
    /// A place before all entries of a collection, for ranges of a map.
    #[must_use]
    pub fn before_all(collection: Oid) -> Self {
        Self { collection, key: EntryKey(Bytes::new()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClassId, NodeId, PageId, SpaceId};

    #[test]
    fn keys_have_from_one_byte_to_the_limit() {
        let kind = |len: usize| EntryKey::new(vec![0xff; len]).map(drop).map_err(|error| error.kind());
        assert_eq!((kind(1), kind(limits::ENTRY_KEY)), (Ok(()), Ok(())));
        assert_eq!((kind(0), kind(limits::ENTRY_KEY + 1)), (Err(ErrorKind::Invalid), Err(ErrorKind::TooLarge)));
    }

    #[test]
    fn names_are_single_components() {
        for name in ["a", "...", "a b", "\u{e4}", "-"] {
            assert_eq!(EntryKey::name(name).unwrap().to_name(), Some(name));
        }
        for name in ["", ".", "..", "a/b", "/", "a\0"] {
            assert_eq!(EntryKey::name(name).unwrap_err().kind(), ErrorKind::Invalid, "{name:?}");
        }
        assert_eq!(EntryKey::name(&"a".repeat(256)).unwrap_err().kind(), ErrorKind::TooLarge);
    }

    #[test]
    fn members_are_ordered_as_their_identifiers() {
        let page = |number| PageId { space: SpaceId(1), node: NodeId(1), number };
        let [one, two] = [1, 256].map(|number| Oid::new(ClassId::NONE, page(number), 7));
        assert!(EntryKey::member(one) < EntryKey::member(two));
        assert_eq!(EntryKey::member(two).to_bytes(), two.to_bytes()[..]);
    }
}
