//! Ranges of keys: of the B-tree, or of the rows of the store's user.

use super::key::{Key, table};

/// The keys `from <= key < to`; all from `from` on if `to` is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key.
    pub from: Vec<u8>,
    /// Behind the last key.
    pub to: Option<Vec<u8>>,
}

impl KeyRange {
    /// All keys.
    pub(crate) const ALL: Self = Self { from: Vec::new(), to: None };

    /// A range with copies of these bounds.
    #[must_use]
    pub fn new(from: &[u8], to: Option<&[u8]>) -> Self {
        Self { from: from.to_vec(), to: to.map(<[u8]>::to_vec) }
    }

    /// The range of one key.
    pub(crate) fn of_key(key: &[u8]) -> Self {
        Self { from: key.to_vec(), to: Some([key, &[0]].concat()) }
    }

    /// Whether it has a key.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.from[..] <= *key && self.to.as_deref().is_none_or(|end| *key < *end)
    }

    /// Whether it has a part of `from <= key < to`.
    #[must_use]
    pub fn overlaps(&self, from: &[u8], to: &[u8]) -> bool {
        self.from[..] < *to && self.to.as_deref().is_none_or(|end| *from < *end)
    }

    /// The part of a range of keys of the B-tree that has the keys of a table. It has an end.
    pub(crate) fn of_table(&self, table: u8) -> Option<Self> {
        let (first, behind) = (Key::table(table), Key::table(table).prefix_end());
        if !self.overlaps(&first, &behind) {
            return None;
        }
        let from = self.from.clone().max(first.to_vec());
        let to = self.to.clone().map_or_else(|| behind.to_vec(), |to| to.min(behind.to_vec()));
        Some(Self { from, to: Some(to) })
    }

    /// The part of a range of keys of the B-tree that has rows of the store's user, as a range of the user's keys.
    pub(crate) fn of_user(&self) -> Option<Self> {
        let Self { from, to } = self.of_table(table::ROW)?;
        // The end of the table is the key of another one.
        let to = to.filter(|to| Key::table_of(to) == table::ROW);
        Some(Self { from: from[1..].to_vec(), to: to.map(|to| to[1..].to_vec()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: &str, to: Option<&str>) -> KeyRange {
        KeyRange::new(from.as_bytes(), to.map(str::as_bytes))
    }

    #[test]
    fn range_of_a_key_has_no_other() {
        let range = KeyRange::of_key(b"ab");
        assert_eq!([&b"aa"[..], b"ab", b"ab\0", b"b"].map(|key| range.contains(key)), [false, true, false, false]);
    }

    #[test]
    fn ranges_of_tables_are_cut_at_their_ends() {
        let rows = |range: KeyRange| range.of_table(table::ROW);
        assert_eq!(rows(KeyRange::ALL), Some(range("k", Some("l"))));
        assert_eq!(rows(range("ka", Some("kb"))), Some(range("ka", Some("kb"))));
        assert_eq!(rows(range("gx", Some("kb"))), Some(range("k", Some("kb"))));
        assert_eq!(rows(range("gx", Some("k"))), None);
        assert_eq!(rows(range("l", None)), None);
    }

    #[test]
    fn ranges_of_the_user_have_the_keys_of_the_user() {
        assert_eq!(KeyRange::ALL.of_user(), Some(KeyRange::ALL));
        assert_eq!(range("ka", Some("kb")).of_user(), Some(range("a", Some("b"))));
        assert_eq!(range("gx", Some("kb")).of_user(), Some(range("", Some("b"))));
        assert_eq!(range("ka", Some("lb")).of_user(), Some(range("a", None)));
        assert_eq!(range("gx", Some("k")).of_user(), None);
    }
}
