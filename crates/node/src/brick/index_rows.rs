//! The rows of indexes.
//!
//! | key | value |
//! | --- | --- |
//! | `I` node space index key page slot | nothing: an entry |
//! | `D` node space index class | how far the objects of a class have been entered in the index, and its fields |
//! | `D` node space index 0 | the index is being removed |
//!
//! No key of an entry is a prefix of another one, so entries are ordered by key, then by place.

use bytes::{BufMut, Bytes, BytesMut};
use model::{ClassId, Error, ErrorKind, FieldNumber, NodeId, PageId, Result, SpaceId};
use smallvec::SmallVec;

use super::page_rows::{self as rows, Rows};

/// The key of a row; most fit inline.
pub(crate) type Key = SmallVec<[u8; 64]>;

/// Bytes before and after the key of an entry.
const PREFIX: usize = 1 + 4 + 2 + 4;
const PLACE: usize = rows::PAGE_LEN + 2;
/// Bytes of the row of an entry beside its key.
pub(crate) const ENTRY_OVERHEAD: usize = PREFIX + PLACE;

/// An index of a space at a logical node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct IndexId {
    pub(crate) node: NodeId,
    pub(crate) space: SpaceId,
    pub(crate) index: u32,
}

impl std::fmt::Display for IndexId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "index {} of space {} at logical node {:x}", self.index, self.space.0, self.node.0)
    }
}

fn prefix(table: u8, id: IndexId) -> Key {
    let mut key = Key::new();
    key.push(table);
    key.extend_from_slice(&id.node.0.to_be_bytes());
    key.extend_from_slice(&id.space.0.to_be_bytes());
    key.extend_from_slice(&id.index.to_be_bytes());
    key
}

/// The key of the row of an entry.
pub(crate) fn entry_key(id: IndexId, key: &[u8], page: PageId, slot: u16) -> Key {
    let mut row = bound(id, key);
    row.extend_from_slice(&rows::encode_page_number(page.number));
    row.extend_from_slice(&slot.to_be_bytes());
    row
}

/// A lower bound of the rows of all entries with this key or a larger one.
pub(crate) fn bound(id: IndexId, key: &[u8]) -> Key {
    let mut row = prefix(b'I', id);
    row.extend_from_slice(key);
    row
}

/// The key, page number and slot of an entry.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if the row is not an entry.
pub(crate) fn parse_entry(id: IndexId, row: &[u8]) -> Result<(&[u8], u64, u16)> {
    let place = row.get(PREFIX..).and_then(|rest| rest.split_last_chunk::<PLACE>());
    let Some((key, [p0, p1, p2, p3, p4, p5, s0, s1])) = place else {
        return Err(damage_error(id, "an entry has no place"));
    };
    let page = u64::from_be_bytes([0, 0, *p0, *p1, *p2, *p3, *p4, *p5]);
    Ok((key, page, u16::from_be_bytes([*s0, *s1])))
}

/// The index of the row of an entry.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if the row is not an entry.
pub(crate) fn index_of_entry(node: NodeId, row: &[u8]) -> Result<IndexId> {
    match row.get(5..PREFIX) {
        Some(&[s0, s1, i0, i1, i2, i3]) => {
            let (space, index) = (SpaceId(u16::from_be_bytes([s0, s1])), u32::from_be_bytes([i0, i1, i2, i3]));
            Ok(IndexId { node, space, index })
        }
        _ => Err(Error::new(ErrorKind::Corrupt, format!("row {row:02x?} is damaged: it is no entry of an index"))),
    }
}

/// The error for a damaged index.
pub(crate) fn damage_error(id: IndexId, why: &str) -> Error {
    let what = format!("{id} is damaged: {why}; remove the index and create it again");
    Error::new(ErrorKind::Corrupt, what)
}

/// How far the objects of a class have been entered in an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Objects that have changed since the index is known are in it; others may be missing.
    Building(Vec<FieldNumber>),
    /// All objects are in it.
    Complete(Vec<FieldNumber>),
    /// The index is being removed.
    Removing,
}

impl Mark {
    const BUILDING: u8 = 1;
    const COMPLETE: u8 = 2;
    const REMOVING: u8 = 3;

    /// The value of the row of a mark.
    pub(crate) fn encode(&self) -> Bytes {
        let (code, fields) = match self {
            Self::Building(fields) => (Self::BUILDING, &fields[..]),
            Self::Complete(fields) => (Self::COMPLETE, &fields[..]),
            Self::Removing => (Self::REMOVING, &[][..]),
        };
        let mut row = BytesMut::with_capacity(1 + 4 * fields.len());
        row.put_u8(code);
        fields.iter().for_each(|field| row.put_u32(field.0));
        row.freeze()
    }

    /// Decodes the value of a row.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is not a mark.
    pub(crate) fn decode(id: IndexId, row: &[u8]) -> Result<Self> {
        let (code, fields) = row.split_first().ok_or_else(|| damage_error(id, "a mark is empty"))?;
        let (fields, rest) = fields.as_chunks::<4>();
        let fields: Vec<FieldNumber> = fields.iter().map(|field| FieldNumber(u32::from_be_bytes(*field))).collect();
        match *code {
            Self::BUILDING if !fields.is_empty() && rest.is_empty() => Ok(Self::Building(fields)),
            Self::COMPLETE if !fields.is_empty() && rest.is_empty() => Ok(Self::Complete(fields)),
            Self::REMOVING => Ok(Self::Removing),
            _ => Err(damage_error(id, "a mark has an unknown code")),
        }
    }
}

/// The key of the mark of a class; with [`ClassId::NONE`], of the mark of removal.
pub(crate) fn mark_key(id: IndexId, class: ClassId) -> Key {
    let mut row = prefix(b'D', id);
    row.extend_from_slice(&class.0.to_be_bytes());
    row
}

/// The range of the marks of a logical node.
pub(crate) fn marks_range(node: NodeId) -> (Key, Key) {
    let mut from = Key::new();
    from.push(b'D');
    from.extend_from_slice(&node.0.to_be_bytes());
    let mut to = from.clone();
    to.extend_from_slice(&[0xff; 11]);
    (from, to)
}

/// The index and the class of a mark.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if the key is not that of a mark.
pub(crate) fn parse_mark(node: NodeId, row: &[u8]) -> Result<(IndexId, ClassId)> {
    let ids = row.get(5..).and_then(|rest| rest.first_chunk::<10>()).filter(|_| row.len() == 15);
    let Some([s0, s1, i0, i1, i2, i3, c0, c1, c2, c3]) = ids else {
        let what = format!("row {row:02x?} of logical node {:x} is damaged: it is not the mark of an index", node.0);
        return Err(Error::new(ErrorKind::Corrupt, what));
    };
    let space = SpaceId(u16::from_be_bytes([*s0, *s1]));
    let index = u32::from_be_bytes([*i0, *i1, *i2, *i3]);
    Ok((IndexId { node, space, index }, ClassId(u32::from_be_bytes([*c0, *c1, *c2, *c3]))))
}

/// The marks of one index, by class.
///
/// # Errors
/// If one is damaged.
pub(crate) fn read_marks(state: &impl Rows, id: IndexId) -> Result<Vec<(ClassId, Mark)>> {
    let (from, mut to) = (prefix(b'D', id), prefix(b'D', id));
    to.extend_from_slice(&[0xff; 5]);
    let mut found = Vec::new();
    state.each(&from, &to, |key, row| {
        found.push(parse_mark(id.node, key).and_then(|(_, class)| Ok((class, Mark::decode(id, row)?))));
        std::ops::ControlFlow::Continue(())
    })?;
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use model::SpaceId;

    use super::*;

    #[test]
    fn ranges_have_the_rows_of_their_logical_node_and_index_only() {
        let ids = |node| [1, 2, u32::MAX].map(|index| IndexId { node: NodeId(node), space: SpaceId(1), index });
        let contains = |(from, to): &(Key, Key), key: &Key| from <= key && key < to;
        for id in [6, 7, 8].into_iter().flat_map(ids) {
            let marks = [ClassId::NONE, ClassId(1), ClassId::MAX].map(|class| mark_key(id, class));
            for node in [6, 7, 8] {
                let range = marks_range(NodeId(node));
                assert!(marks.iter().all(|mark| contains(&range, mark) == (id.node.0 == node)), "{id} and {node}");
            }
            for (mark, class) in marks.iter().zip([ClassId::NONE, ClassId(1), ClassId::MAX]) {
                assert_eq!(parse_mark(id.node, mark).unwrap(), (id, class));
            }
        }
    }
}
