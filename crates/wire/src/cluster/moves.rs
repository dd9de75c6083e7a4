//! Rows of logical nodes that move between bricks, or are cloned.

use bytes::Bytes;
use model::{Error, NodeId, Result, SpaceId, SpaceMap, SpaceNodes, limits};

use super::ids;
use crate::convert::invalid;
use crate::frame::Raw;
use crate::proto::moves as proto;

/// Most rows in one answer.
pub const MAX_COPIED_ROWS: usize = 16_384;

/// A request for rows of a logical node, from the brick that it moves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyRows {
    /// The logical node.
    pub node: NodeId,
    /// The brick that it moves to.
    pub to: u32,
    /// The number of the attempt.
    pub attempt: u64,
    /// The number of the request in the attempt, from 1 on. A repeated request gets a new number.
    pub number: u64,
    /// The number of the last request whose answer has arrived; 0 if there is none.
    pub last_answered: u64,
    /// Send rows from this key on, besides those that have changed; `None`: only the latter.
    pub from: Option<Bytes>,
}

/// Current rows, to be applied in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopiedRows {
    /// Keys and values; `None` if the row was removed.
    pub rows: Vec<(Bytes, Option<Bytes>)>,
    /// The key to continue from, if rows are left.
    pub next: Option<Bytes>,
    /// Number of changed rows that were not sent yet.
    pub changed: u64,
    /// The epoch of the seal, if these are the last rows.
    pub sealed: Option<u64>,
}

/// A request to make rows of a clone of a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneRows {
    /// The number of the cut, of which the brick has a part.
    pub cut: u64,
    /// The logical node that is cloned.
    pub node: NodeId,
    /// The space and its clone.
    pub map: SpaceMap,
    /// The key at which the last answer has ended; `None` at the beginning.
    pub from: Option<Bytes>,
    /// Most objects to make now; at least 1.
    pub most_objects: u64,
}

impl From<CloneRows> for proto::CloneRows {
    fn from(clone: CloneRows) -> Self {
        let CloneRows { cut, node, map, from, most_objects } = clone;
        let (source, target) = (map.source(), map.target());
        Self {
            cut,
            node: node.0,
            space: source.space.0.into(),
            first_node: source.first_node.0,
            nodes: map.nodes(),
            new_space: target.space.0.into(),
            new_first_node: target.first_node.0,
            from,
            most_objects,
        }
    }
}

impl TryFrom<proto::CloneRows> for CloneRows {
    type Error = Error;

    fn try_from(clone: proto::CloneRows) -> Result<Self> {
        let proto::CloneRows { cut, node, space, first_node, nodes, new_space, new_first_node, from, most_objects } =
            clone;
        let place = |space: u32, node| {
            let space = u16::try_from(space).map_err(|_| invalid(format!("{space} is no number of a space")))?;
            Ok::<_, Error>(SpaceNodes { space: SpaceId(space), first_node: ids::node(node)? })
        };
        let map = SpaceMap::new(place(space, first_node)?, place(new_space, new_first_node)?, nodes)?;
        check_key(from.as_ref())?;
        let node = ids::node(node)?;
        if map.node(node).is_none() {
            return Err(invalid(format!("logical node {:x} is not of the space that is cloned", node.0)));
        }
        Ok(Self { cut, node, map, from, most_objects: most_objects.max(1) })
    }
}

/// Checks a key at which rows begin.
fn check_key(from: Option<&Bytes>) -> Result<()> {
    match from {
        Some(from) if from.len() > limits::ROW_KEY => {
            Err(invalid("a request for rows begins at a key that is longer than keys can be".to_owned()))
        }
        _ => Ok(()),
    }
}

impl From<CopyRows> for proto::CopyRows {
    fn from(copy: CopyRows) -> Self {
        let CopyRows { node, to, attempt, number, last_answered: got, from } = copy;
        Self { node: node.0, to, attempt, number, last_answered: got, from }
    }
}

impl TryFrom<proto::CopyRows> for CopyRows {
    type Error = Error;

    fn try_from(copy: proto::CopyRows) -> Result<Self> {
        let proto::CopyRows { node, to, attempt, number, last_answered: got, from } = copy;
        check_key(from.as_ref())?;
        Ok(Self { node: ids::node(node)?, to, attempt, number, last_answered: got, from })
    }
}

impl CopiedRows {
    /// Encodes the answer and its raw part.
    #[must_use]
    pub fn into_proto(self) -> (proto::CopiedRows, Vec<Bytes>) {
        let Self { rows, next, changed, sealed } = self;
        let (mut keys, mut values, mut raw) = (Vec::new(), Vec::new(), Vec::with_capacity(2 * rows.len()));
        for (key, value) in rows {
            keys.push(key.len() as u32);
            values.push(value.as_ref().map_or(0, |value| value.len() as u32 + 1));
            raw.push(key);
            raw.extend(value.filter(|value| !value.is_empty()));
        }
        (proto::CopiedRows { keys, values, next, changed, sealed }, raw)
    }

    /// Decodes an answer and its raw part.
    ///
    /// # Errors
    /// If lengths do not add up, or a limit is exceeded.
    pub fn from_proto(copied: proto::CopiedRows, raw: Raw<'_>) -> Result<Self> {
        let proto::CopiedRows { keys, values, next, changed, sealed } = copied;
        if keys.len() != values.len() || keys.len() > MAX_COPIED_ROWS {
            return Err(invalid(format!(
                "an answer has {} keys and {} values of rows; it may have {MAX_COPIED_ROWS}",
                keys.len(),
                values.len()
            )));
        }
        let (mut rows, mut at) = (Vec::with_capacity(keys.len()), 0);
        let mut take = |length: usize, most: usize| {
            let end = at + length;
            if length > most || end > raw.len() {
                return Err(invalid(format!(
                    "a row has {length} bytes at offset {at} of {}; the limit is {most}",
                    raw.len()
                )));
            }
            Ok(raw.slice(std::mem::replace(&mut at, end)..end))
        };
        for (key, value) in keys.into_iter().zip(values) {
            let key = take(key as usize, limits::ROW_KEY)?;
            let value = value.checked_sub(1).map(|length| take(length as usize, limits::ROW_VALUE)).transpose()?;
            rows.push((key, value));
        }
        if at != raw.len() {
            return Err(invalid(format!("{} bytes follow the last copied row", raw.len() - at)));
        }
        if let Some(epoch) = sealed.filter(|epoch| *epoch > limits::COUNT) {
            return Err(invalid(format!("a copy is sealed for epoch {epoch}; the largest is {}", limits::COUNT)));
        }
        Ok(Self { rows, next, changed, sealed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_that_is_sealed_for_an_impossible_epoch_is_refused() {
        let copied = |sealed| proto::CopiedRows { sealed: Some(sealed), ..proto::CopiedRows::default() };
        let decode = |sealed| CopiedRows::from_proto(copied(sealed), Raw::Borrowed(&[]));
        assert_eq!(decode(limits::COUNT).unwrap().sealed, Some(limits::COUNT));
        for sealed in [limits::COUNT + 1, u64::MAX] {
            assert_eq!(decode(sealed).unwrap_err().kind(), model::ErrorKind::Invalid, "{sealed}");
        }
    }
}
