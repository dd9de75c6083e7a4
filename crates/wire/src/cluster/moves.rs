//! Moving a logical node from brick to brick: the rows that it consists of.

use bytes::Bytes;
use model::{Error, NodeId, Result, limits};

use super::ids;
use crate::convert::invalid;
use crate::frame::Raw;
use crate::proto::moves as proto;

/// Rows in one answer.
pub const MAX_COPIED_ROWS: usize = 16_384;

/// Rows of a logical node that are wanted for the brick that it moves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyRows {
    /// The logical node.
    pub node: NodeId,
    /// The brick that it moves to.
    pub to: u32,
    /// Which attempt to copy it.
    pub attempt: u64,
    /// Which question of the attempt, from 1 on; one that is asked again has another number.
    pub number: u64,
    /// To which one the last answer came; 0 before there was one.
    pub last_answered: u64,
    /// Rows from this key on, besides those that have changed; with `None` only the latter.
    pub from: Option<Bytes>,
}

/// Rows as they are now, to be taken over in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopiedRows {
    /// Keys and values; a row without value is gone.
    pub rows: Vec<(Bytes, Option<Bytes>)>,
    /// Where the rows go on that were asked for, if they do.
    pub next: Option<Bytes>,
    /// How many rows have changed and are still to be told.
    pub changed: u64,
    /// The epoch as of which the node is sealed, if that was all.
    pub sealed: Option<u64>,
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
        if from.as_ref().is_some_and(|from| from.len() > limits::ROW_KEY) {
            return Err(invalid("rows are wanted from a key on that is longer than keys are".to_owned()));
        }
        Ok(Self { node: ids::node(node)?, to, attempt, number, last_answered: got, from })
    }
}

impl CopiedRows {
    /// The message, and its raw part.
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

    /// What was answered.
    ///
    /// # Errors
    /// If lengths do not add up, or something is larger than it may be.
    pub fn from_proto(copied: proto::CopiedRows, raw: Raw<'_>) -> Result<Self> {
        let proto::CopiedRows { keys, values, next, changed, sealed } = copied;
        if keys.len() != values.len() || keys.len() > MAX_COPIED_ROWS {
            return Err(invalid(format!(
                "{} keys and {} values of rows: the limit is {MAX_COPIED_ROWS}",
                keys.len(),
                values.len()
            )));
        }
        let (mut rows, mut at) = (Vec::with_capacity(keys.len()), 0);
        let mut take = |length: usize, most: usize| {
            let end = at + length;
            if length > most || end > raw.len() {
                return Err(invalid(format!("{length} bytes of a row at {at} of {}; the limit is {most}", raw.len())));
            }
            Ok(raw.slice(std::mem::replace(&mut at, end)..end))
        };
        for (key, value) in keys.into_iter().zip(values) {
            let key = take(key as usize, limits::ROW_KEY)?;
            let value = value.checked_sub(1).map(|length| take(length as usize, limits::ROW_VALUE)).transpose()?;
            rows.push((key, value));
        }
        if at != raw.len() {
            return Err(invalid(format!("{} bytes behind the rows that were copied", raw.len() - at)));
        }
        Ok(Self { rows, next, changed, sealed })
    }
}
