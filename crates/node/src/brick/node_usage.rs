//! What the objects of a logical node take: how many they are, and their bytes.
//!
//! One row a logical node has both. It is written in the batch of rows that changes the objects, so no crash parts the two, and it moves
//! with the node. [`super::scrub`] counts the objects and compares.

use std::ops::{Add, AddAssign, SubAssign};

use bytes::{BufMut, Bytes, BytesMut};
use model::{Error, ErrorKind, NodeId, Result};

use super::page_rows::{Rows, usage_key};

/// Bytes of the row.
const ROW: usize = 8 + 8;

/// Objects and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeUsage {
    /// The number of objects, collections included.
    pub(crate) objects: u64,
    /// Bytes of objects and of their attributes: see [`model::Object::total_size`].
    pub(crate) bytes: u64,
}

impl NodeUsage {
    /// Reads what a logical node has; nothing if it never had an object.
    ///
    /// # Errors
    /// If the row cannot be read; [`ErrorKind::Corrupt`] if it has another length.
    pub(crate) fn read(rows: &impl Rows, node: NodeId) -> Result<Self> {
        let usage = rows.get_with(&usage_key(node), |row| Self::decode(node, row))?;
        usage.unwrap_or(Ok(Self::default()))
    }

    /// The value of the row.
    pub(crate) fn encode(self) -> Bytes {
        let mut row = BytesMut::with_capacity(ROW);
        row.put_u64(self.objects);
        row.put_u64(self.bytes);
        row.freeze()
    }

    /// The usage in the row of a logical node.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the row has another length.
    pub(crate) fn decode(node: NodeId, row: &[u8]) -> Result<Self> {
        let parts = row.split_first_chunk::<8>().and_then(|(objects, bytes)| Some((objects, bytes.try_into().ok()?)));
        let Some((objects, bytes)) = parts else {
            let what = format!("the row that counts the objects of logical node {:x} is damaged", node.0);
            return Err(Error::new(ErrorKind::Corrupt, what));
        };
        Ok(Self { objects: u64::from_be_bytes(*objects), bytes: u64::from_be_bytes(bytes) })
    }

    /// Counts an object of this size.
    pub(crate) fn count(&mut self, size: u64) {
        *self += Self { objects: 1, bytes: size };
    }

    /// Counts an object of this size no more.
    pub(crate) fn uncount(&mut self, size: u64) {
        *self -= Self { objects: 1, bytes: size };
    }
}

/// What of the rows of a logical node was durable at some time: a state of the store that is taken afterwards has all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DurableCounts {
    /// The number with which the node was opened.
    pub(crate) opening: u64,
    /// How many batches of its rows were durable.
    pub(crate) batches: u64,
}

impl Add for NodeUsage {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl SubAssign for NodeUsage {
    fn sub_assign(&mut self, other: Self) {
        self.objects = self.objects.saturating_sub(other.objects);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }
}

impl AddAssign for NodeUsage {
    fn add_assign(&mut self, other: Self) {
        self.objects = self.objects.saturating_add(other.objects);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}
