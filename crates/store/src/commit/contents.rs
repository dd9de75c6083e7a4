//! Contents: bytes of any size under identifiers that the user of the store chooses, changed together with rows.
//!
//! The identifier of a content is used once: a content that was deleted is not created again.

use bytes::Bytes;
use model::{ContentId, Result, UploadId, limits};

use crate::error::too_large;

/// A change of a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentChange {
    /// Creates a content with these bytes.
    Create {
        /// An identifier that was never used.
        id: ContentId,
        /// The bytes.
        data: Bytes,
    },
    /// Creates a content from a finished upload, which ends.
    CreateFromUpload {
        /// An identifier that was never used.
        id: ContentId,
        /// The upload.
        upload: UploadId,
    },
    /// Writes bytes at an offset. A gap behind the old end reads as zeros.
    Write {
        /// The content.
        id: ContentId,
        /// Offset in bytes.
        offset: u64,
        /// The bytes.
        data: Bytes,
    },
    /// Cuts a content, or extends it with zeros.
    Truncate {
        /// The content.
        id: ContentId,
        /// Its new size in bytes.
        size: u64,
    },
    /// Sets a range to zeros and frees its storage. The size does not change.
    Zero {
        /// The content.
        id: ContentId,
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// As [`ContentChange::Truncate`], of a content that is created if it does not exist.
    Resize {
        /// The content.
        id: ContentId,
        /// Its new size in bytes.
        size: u64,
    },
    /// Deletes a content, if it exists. Chunks that a snapshot needs are freed after it.
    Delete {
        /// The content.
        id: ContentId,
    },
}

impl ContentChange {
    /// Bytes that the change carries.
    pub(crate) fn data_len(&self) -> usize {
        match self {
            Self::Create { data, .. } | Self::Write { data, .. } => data.len(),
            _ => 0,
        }
    }

    /// Checks the sizes.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`](model::ErrorKind::TooLarge) beyond [`limits::BLOB`].
    pub(crate) fn check(&self) -> Result<()> {
        let end = match self {
            Self::Write { offset, data, .. } => offset.saturating_add(data.len() as u64),
            Self::Truncate { size, .. } | Self::Resize { size, .. } => *size,
            Self::Create { .. } | Self::CreateFromUpload { .. } | Self::Zero { .. } | Self::Delete { .. } => 0,
        };
        if end > limits::BLOB { Err(too_large("a content", end, limits::BLOB)) } else { Ok(()) }
    }
}
