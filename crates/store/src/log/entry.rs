//! Entries: the payloads of log frames. An entry is one transaction as a list of steps. Replaying the steps on the
//! state before them gives the same rows again.
//!
//! The entry contains every decision that was made when the transaction was applied: the time, the identifiers of
//! created objects, the positions of staged chunks. So a later version may decide differently and still replay it.

use bytes::Bytes;
use model::{Kind, Name, Oid};

use crate::rows::changes::RowChange;
use crate::rows::key::DataId;
use crate::rows::row::Extent;

mod codec;

pub(crate) use codec::{decode, encode};

/// Content: staged chunks, then the bytes after them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StagedContent {
    pub(crate) extents: Vec<Extent>,
    pub(crate) bytes: Bytes,
}

/// One step of a transaction, as it is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Create {
        oid: Oid,
        kind: Kind,
        near: Option<Oid>,
        content: StagedContent,
    },
    Put {
        oid: Oid,
        content: StagedContent,
    },
    /// The content is an upload: a first chunk, further chunks logged earlier as [`Step::Stage`], and a tail.
    PutStaged {
        oid: Oid,
        data: DataId,
        size: u64,
        first: Extent,
        tail: Bytes,
    },
    Write {
        oid: Oid,
        offset: u64,
        bytes: Bytes,
    },
    /// Whole chunks from chunk `index` on.
    WriteChunks {
        oid: Oid,
        index: u64,
        extents: Vec<Extent>,
    },
    /// Content at the end of the blob, which must be `at` if chunks were staged for it.
    Append {
        oid: Oid,
        at: Option<u64>,
        content: StagedContent,
    },
    Truncate {
        oid: Oid,
        size: u64,
    },
    Zero {
        oid: Oid,
        offset: u64,
        len: u64,
    },
    Clone {
        from: Oid,
        to: Oid,
    },
    Delete {
        oid: Oid,
    },
    SetAttribute {
        oid: Oid,
        key: Bytes,
        value: Bytes,
    },
    RemoveAttribute {
        oid: Oid,
        key: Bytes,
    },
    Add {
        collection: Oid,
        member: Oid,
    },
    Remove {
        collection: Oid,
        member: Oid,
    },
    Bind {
        name: Name,
        oid: Oid,
    },
    Unbind {
        name: Name,
    },
    Expect {
        oid: Oid,
        version: Option<u64>,
    },
    ExpectName {
        name: Name,
        oid: Option<Oid>,
    },
    /// Chunks of an unfinished upload, from chunk `index` on.
    Stage {
        data: DataId,
        index: u64,
        extents: Vec<Extent>,
    },
    /// Removes the chunks `from..to` of content that no object uses; `done` if that is all of it.
    Reclaim {
        data: DataId,
        from: u64,
        to: u64,
        done: bool,
    },
    CreateSpace {
        id: u16,
        name: String,
    },
    /// The store was opened, for the `incarnation`-th time.
    Open {
        incarnation: u32,
    },
    /// A content of the store's user.
    CreateContent {
        id: Oid,
        content: StagedContent,
    },
    /// The size of a content, which is created if it does not exist.
    ResizeContent {
        id: Oid,
        size: u64,
    },
    /// Deletes a content, if it exists.
    DeleteContent {
        id: Oid,
    },
    /// Rows of the store's user, in key order.
    Rows(Vec<RowChange>),
}

/// A transaction as it is logged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogEntry {
    /// Microseconds since 1970-01-01T00:00Z.
    pub(crate) time_us: i64,
    /// The identifiers of the created objects, in order.
    pub(crate) created: Vec<Oid>,
    pub(crate) steps: Vec<Step>,
}

impl Step {
    /// Whether the step frees more than it adds, so that it is allowed in a full store.
    pub(crate) fn frees(&self) -> bool {
        if let Self::Rows(changes) = self {
            return changes.iter().all(RowChange::is_removal);
        }
        matches!(
            self,
            Self::Truncate { .. }
                | Self::Delete { .. }
                | Self::DeleteContent { .. }
                | Self::RemoveAttribute { .. }
                | Self::Remove { .. }
                | Self::Unbind { .. }
                | Self::Expect { .. }
                | Self::ExpectName { .. }
                | Self::Reclaim { .. }
        )
    }

    /// The object whose row the step reads before it writes the row.
    pub(crate) fn existing_object(&self) -> Option<Oid> {
        match self {
            Self::Put { oid, .. }
            | Self::PutStaged { oid, .. }
            | Self::Write { oid, .. }
            | Self::WriteChunks { oid, .. }
            | Self::Append { oid, .. }
            | Self::Truncate { oid, .. }
            | Self::Zero { oid, .. }
            | Self::Delete { oid }
            | Self::SetAttribute { oid, .. }
            | Self::RemoveAttribute { oid, .. }
            | Self::Expect { oid, .. } => Some(*oid),
            _ => None,
        }
    }
}
