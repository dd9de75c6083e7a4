//! Contents: bytes of any size under identifiers that the user of the store chooses, changed together with rows.
//!
//! The identifier of a content is used once: a content that was deleted is not created again.

use std::ops::Range;

use bytes::Bytes;
use model::{ContentId, Result, UploadId, limits};

use crate::error::{no_content, too_large};
use crate::read::layers::Layers;
use crate::rows::row::CHUNK;

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

    /// The content that is changed; `None` if it is created.
    fn changed_content(&self) -> Option<ContentId> {
        match self {
            Self::Create { .. } | Self::CreateFromUpload { .. } => None,
            Self::Write { id, .. }
            | Self::Truncate { id, .. }
            | Self::Zero { id, .. }
            | Self::Resize { id, .. }
            | Self::Delete { id } => Some(*id),
        }
    }

    /// The chunks of a content of `size` bytes whose rows are read when the change is applied (`apply`).
    fn touched_chunks(&self, size: u64) -> Range<u64> {
        let bytes = match self {
            Self::Write { offset, data, .. } => *offset..offset.saturating_add(data.len() as u64),
            Self::Zero { offset, len, .. } => *offset..offset.saturating_add(*len).min(size),
            Self::Truncate { size: after, .. } | Self::Resize { size: after, .. } if !self.replaces_chunks(size) => {
                *after..size
            }
            _ => 0..0,
        };
        if bytes.is_empty() { 0..0 } else { bytes.start / CHUNK as u64..bytes.end.div_ceil(CHUNK as u64) }
    }

    /// Whether the chunks after the first of a content of `size` bytes are left to the background, as those of a deleted content are.
    fn replaces_chunks(&self, size: u64) -> bool {
        matches!(self, Self::Truncate { size: 0, .. } | Self::Resize { size: 0, .. }) && size > CHUNK as u64
    }

    /// The size of a content of `size` bytes after the change.
    fn size_after(&self, size: u64) -> u64 {
        match self {
            Self::Write { offset, data, .. } if !data.is_empty() => size.max(offset.saturating_add(data.len() as u64)),
            Self::Truncate { size: after, .. } | Self::Resize { size: after, .. } => *after,
            _ => size,
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

/// Checks that changes that are applied one after the other find what they build on: the head of each content, with the first chunk, and the rows
/// of all other chunks of which they keep or free something.
///
/// # Errors
/// [`ErrorKind::NotFound`](model::ErrorKind::NotFound) without a content; [`ErrorKind::Corrupt`](model::ErrorKind::Corrupt) if a row cannot be read.
pub(crate) fn check_changeable(layers: &Layers<'_>, changes: &[ContentChange]) -> Result<()> {
    /// What the changes before make of a content.
    struct Changed {
        id: ContentId,
        size: u64,
        has_new_chunks: bool,
    }
    let mut changed: Option<Changed> = None;
    for change in changes {
        let Some(id) = change.changed_content() else { continue };
        let Some((head, _)) = layers.head_and_extent(id)? else {
            match change {
                ContentChange::Resize { .. } | ContentChange::Delete { .. } => continue,
                _ => return Err(no_content(id)),
            }
        };
        let before = changed.take().filter(|before| before.id == id);
        let before = before.unwrap_or(Changed { id, size: head.size, has_new_chunks: false });
        if !before.has_new_chunks {
            layers.check_chunks(id, head.data, change.touched_chunks(before.size))?;
        }
        let has_new_chunks = before.has_new_chunks || change.replaces_chunks(before.size);
        changed = Some(Changed { id, size: change.size_after(before.size), has_new_chunks });
    }
    Ok(())
}
