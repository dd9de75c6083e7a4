//! What a repair gave up: a system row, and a list of ranges of keys of the B-tree, one row each.

use bytes::{BufMut, Bytes, BytesMut};

use super::key::{Key, table};

/// Rows `from <= key < to` that may be lost; all from `from` on if `to` is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LostPart {
    pub(crate) from: Vec<u8>,
    pub(crate) to: Option<Vec<u8>>,
}

impl LostPart {
    /// Everything: the list itself cannot be read.
    pub(crate) const ALL: Self = Self { from: Vec::new(), to: None };

    /// Its part with keys of a table.
    pub(crate) fn of_table(&self, table: u8) -> Option<Self> {
        let (first, behind) = (Key::table(table), Key::table(table).prefix_end());
        if self.from[..] >= behind[..] || self.to.as_deref().is_some_and(|to| to <= &first[..]) {
            return None;
        }
        let from = self.from.clone().max(first.to_vec());
        let to = self.to.clone().map_or_else(|| behind.to_vec(), |to| to.min(behind.to_vec()));
        Some(Self { from, to: Some(to) })
    }

    /// Whether it has rows of contents.
    pub(crate) fn concerns_contents(&self) -> bool {
        let tables = [table::CONTENT, table::CHUNK, table::EXTENT, table::FREED, table::GARBAGE];
        tables.into_iter().any(|table| self.of_table(table).is_some())
    }

    /// Whether there is an end, the length of `from`, `from`, and the end.
    pub(crate) fn encode(&self) -> Bytes {
        let mut row = BytesMut::new();
        row.put_u8(u8::from(self.to.is_some()));
        row.put_u16(self.from.len() as u16);
        row.put_slice(&self.from);
        row.put_slice(self.to.as_deref().unwrap_or_default());
        row.freeze()
    }

    /// The part in a row; everything, if the row is not valid.
    pub(crate) fn decode(row: &[u8]) -> Self {
        let decode = || {
            let ([has_end, l0, l1], rest) = row.split_first_chunk()?;
            let (from, to) = rest.split_at_checked(usize::from(u16::from_be_bytes([*l0, *l1])))?;
            let to = match has_end {
                0 if to.is_empty() => None,
                1 => Some(to.to_vec()),
                _ => return None,
            };
            Some(Self { from: from.to_vec(), to })
        };
        decode().unwrap_or(Self::ALL)
    }
}

/// The system row about a loss that was not accepted yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LossMark {
    /// The last transaction that a repair of the log kept, if it gave up those behind it.
    pub(crate) kept: Option<u64>,
    /// Whether there is a list of lost rows.
    pub(crate) has_list: bool,
}

impl LossMark {
    /// The row; `None` if there is nothing to say.
    pub(crate) fn encode(self) -> Option<Bytes> {
        let Self { kept, has_list } = self;
        let mut row = BytesMut::new();
        row.put_u64(kept.unwrap_or(u64::MAX));
        if has_list {
            row.put_u8(1);
        }
        (has_list || kept.is_some()).then(|| row.freeze())
    }

    /// What a row says. One that is not valid is no reason to forget a loss.
    pub(crate) fn decode(row: Option<&[u8]>) -> Self {
        let Some(row) = row else { return Self::default() };
        let kept = row.first_chunk().map_or(0, |kept| u64::from_be_bytes(*kept));
        Self { kept: Some(kept).filter(|kept| *kept < u64::MAX), has_list: row.len() != 8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(from: &str, to: Option<&str>) -> LostPart {
        LostPart { from: from.into(), to: to.map(Into::into) }
    }

    #[test]
    fn parts_come_back_and_what_is_no_part_is_everything() {
        for one in [part("abc", Some("abd")), part("abc", None), LostPart::ALL, part("", Some("x"))] {
            assert_eq!(LostPart::decode(&one.encode()), one);
        }
        for row in [&b""[..], b"\x01", b"\x02\0\x01ab", b"\x01\0\x09ab", b"\0\0\x01ab"] {
            assert_eq!(LostPart::decode(row), LostPart::ALL, "{row:?}");
        }
    }

    #[test]
    fn marks_come_back() {
        for kept in [None, Some(0), Some(7)] {
            for has_list in [false, true] {
                let mark = LossMark { kept, has_list };
                assert_eq!(LossMark::decode(mark.encode().as_deref()), mark);
            }
        }
        // That of builds which kept no list.
        assert_eq!(LossMark::decode(Some(&7_u64.to_be_bytes())), LossMark { kept: Some(7), has_list: false });
    }

    #[test]
    fn parts_of_tables_are_cut_at_their_ends() {
        let rows = |part: LostPart| part.of_table(table::ROW);
        assert_eq!(rows(LostPart::ALL), Some(part("k", Some("l"))));
        assert_eq!(rows(part("ka", Some("kb"))), Some(part("ka", Some("kb"))));
        assert_eq!(rows(part("gx", Some("kb"))), Some(part("k", Some("kb"))));
        assert_eq!(rows(part("gx", Some("k"))), None);
        assert_eq!(rows(part("l", None)), None);
        assert!(part("gx", Some("ka")).concerns_contents() && !part("ka", Some("lb")).concerns_contents());
    }
}
