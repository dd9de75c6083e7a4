//! Entries: the payloads of log frames. An entry is a list of steps that are applied together. Replaying the steps on the
//! state before them gives the same rows again.
//!
//! The steps contain every decision that was made when they were submitted, such as the positions of staged chunks. So a
//! later version may decide differently and still replay them.

use bytes::Bytes;
use model::ContentId;

use crate::rows::changes::RowChange;
use crate::rows::key::DataId;
use crate::rows::row::Extent;

mod codec;

pub(crate) use codec::{decode, encode};

/// The bytes of a content: staged chunks, then the bytes after them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StagedContent {
    pub(crate) extents: Vec<Extent>,
    pub(crate) bytes: Bytes,
}

/// One step of a change, as it is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Creates a content.
    CreateContent { id: ContentId, content: StagedContent },
    /// Creates a content from an upload: a first chunk, further chunks that are logged as [`Step::Stage`] before, and a
    /// tail.
    TakeUpload { id: ContentId, data: DataId, size: u64, first: Extent, tail: Bytes },
    /// Writes bytes at an offset of a content.
    Write { id: ContentId, offset: u64, bytes: Bytes },
    /// Writes whole chunks from chunk `index` on.
    WriteChunks { id: ContentId, index: u64, extents: Vec<Extent> },
    /// Cuts a content, or extends it with zeros.
    Truncate { id: ContentId, size: u64 },
    /// Sets a range of a content to zeros.
    Zero { id: ContentId, offset: u64, len: u64 },
    /// As [`Step::Truncate`], of a content that is created if it does not exist.
    Resize { id: ContentId, size: u64 },
    /// Deletes a content, if it exists.
    Delete { id: ContentId },
    /// Chunks of an unfinished upload, from chunk `index` on.
    Stage { data: DataId, index: u64, extents: Vec<Extent> },
    /// Removes the chunks `from..to` that no content uses; `done` if those are all.
    Reclaim { data: DataId, from: u64, to: u64, done: bool },
    /// The store was opened, for the `incarnation`-th time.
    Open { incarnation: u32 },
    /// Rows of the store's user, in key order.
    Rows(Vec<RowChange>),
}

impl Step {
    /// Whether the step frees more than it adds, so that it is allowed in a full store.
    pub(crate) fn frees(&self) -> bool {
        match self {
            Self::Rows(changes) => changes.iter().all(RowChange::is_removal),
            Self::Truncate { .. } | Self::Delete { .. } | Self::Reclaim { .. } => true,
            _ => false,
        }
    }
}
