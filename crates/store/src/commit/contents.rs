//! Contents: bytes of any size under identifiers that the user of the store chooses, changed together with rows.
//!
//! A content is what a blob of an object is, without attributes, names and memberships. Its identifier is used once. Contents are
//! read with [`Store::read`](crate::Store::read) and its siblings.

use bytes::Bytes;
use model::{ContentId, Error, ErrorKind, Oid, Op, Result, UploadId, limits};

use super::Core;
use super::stage::StagedTransaction;
use crate::error::{invalid, too_large};
use crate::log::entry::{StagedContent, Step};
use crate::rows::key::{content_key, content_of};

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
    /// [`ErrorKind::TooLarge`] beyond [`limits::BLOB`]; [`ErrorKind::Invalid`] for an identifier that no content can have.
    pub(crate) fn check(&self) -> Result<()> {
        let (id, end) = match self {
            Self::Create { id, .. } | Self::CreateFromUpload { id, .. } => (id, 0),
            Self::Write { id, offset, data } => (id, offset.saturating_add(data.len() as u64)),
            Self::Truncate { id, size } | Self::Resize { id, size } => (id, *size),
            Self::Zero { id, .. } | Self::Delete { id } => (id, 0),
        };
        if id.0 >> 127 != 0 {
            return Err(invalid(format!("{id} cannot be the identifier of a content: its first bit is set")));
        }
        if end > limits::BLOB { Err(too_large("a content", end, limits::BLOB)) } else { Ok(()) }
    }
}

impl StagedTransaction<'_> {
    /// Adds the steps of a change of a content.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such upload; [`ErrorKind::Io`] or [`ErrorKind::Full`] if chunks cannot be staged.
    pub(super) fn stage_content_change(&mut self, core: &Core, change: ContentChange) -> Result<()> {
        match change {
            ContentChange::Create { id, data } => {
                let step = Step::CreateContent { id: content_key(id), content: self.stage_content(data)? };
                self.steps.push(step);
            }
            ContentChange::CreateFromUpload { id, upload } => self.stage_upload(core, content_key(id), upload)?,
            ContentChange::Write { id, offset, data } => self.stage_write(content_key(id), offset, data)?,
            ContentChange::Truncate { id, size } => self.steps.push(Step::Truncate { oid: content_key(id), size }),
            ContentChange::Zero { id, offset, len } => {
                self.stage_op(core, Op::Zero { oid: content_key(id), offset, len })?
            }
            ContentChange::Resize { id, size } => self.steps.push(Step::ResizeContent { id: content_key(id), size }),
            ContentChange::Delete { id } => self.steps.push(Step::DeleteContent { id: content_key(id) }),
        }
        Ok(())
    }

    /// Adds the steps that make an upload a content. Chunks that are not logged yet are logged with them, so this does not wait.
    fn stage_upload(&mut self, core: &Core, id: Oid, upload: UploadId) -> Result<()> {
        let (data, taken) = core.take_upload(upload)?;
        self.taken_uploads.push(data);
        let taken = taken?;
        self.extents.extend(taken.unlogged.iter().flat_map(|(_, extents)| extents.iter().cloned()));
        self.extents.extend(taken.finished.unlogged.iter().cloned());
        if let Some((index, extents)) = taken.unlogged {
            self.steps.push(Step::Stage { data, index, extents });
        }
        self.steps.push(Step::CreateContent { id, content: StagedContent::default() });
        self.steps.extend(taken.finished.into_steps(id));
        Ok(())
    }
}

/// The error for a content that exists.
pub(crate) fn content_exists(id: Oid) -> Error {
    let id = content_of(id).map(|id| id.to_string()).unwrap_or_default();
    Error::new(ErrorKind::Exists, format!("there is a content {id} already: identifiers of contents are used once"))
}
