//! What a repair gave up: a system row, and a list of ranges of keys of the B-tree, one row each.

use bytes::{BufMut, Bytes, BytesMut};

use super::key_range::KeyRange;

/// The row of a range of keys whose rows may be lost: whether there is an end, the length of `from`, `from`, and the end.
pub(crate) fn encode_range(range: &KeyRange) -> Bytes {
    let mut row = BytesMut::new();
    row.put_u8(u8::from(range.to.is_some()));
    row.put_u16(range.from.len() as u16);
    row.put_slice(&range.from);
    row.put_slice(range.to.as_deref().unwrap_or_default());
    row.freeze()
}

/// The range in a row; all keys, if the row is not valid.
pub(crate) fn decode_range(row: &[u8]) -> KeyRange {
    let decode = || {
        let ([has_end, l0, l1], rest) = row.split_first_chunk()?;
        let (from, to) = rest.split_at_checked(usize::from(u16::from_be_bytes([*l0, *l1])))?;
        let to = match has_end {
            0 if to.is_empty() => None,
            1 => Some(to),
            _ => return None,
        };
        Some(KeyRange::new(from, to))
    };
    decode().unwrap_or(KeyRange::ALL)
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

    #[test]
    fn ranges_come_back_and_what_is_no_range_is_everything() {
        let range = KeyRange::new;
        for one in [range(b"abc", Some(b"abd")), range(b"abc", None), KeyRange::ALL, range(b"", Some(b"x"))] {
            assert_eq!(decode_range(&encode_range(&one)), one);
        }
        for row in [&b""[..], b"\x01", b"\x02\0\x01ab", b"\x01\0\x09ab", b"\0\0\x01ab"] {
            assert_eq!(decode_range(row), KeyRange::ALL, "{row:?}");
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
}
