//! Staging: turns changes of contents into steps for the log. Writes whole chunks to a blob file, so that their bytes do
//! not go through the log.

use bytes::Bytes;
use model::{ContentId, Result, UploadId};

use super::Core;
use super::contents::ContentChange;
use crate::content::blob_file::BlobFiles;
use crate::content::upload::Upload;
use crate::log::entry::{StagedContent, Step};
use crate::rows::key::DataId;
use crate::rows::row::{CHUNK, Extent};

/// Steps, and what was staged for them. Without a call of [`StagedSteps::take_parts`] the chunks are freed and the taken
/// uploads released.
pub(super) struct StagedSteps<'a> {
    pub(super) steps: Vec<Step>,
    extents: Vec<Extent>,
    /// Uploads whose chunks are not garbage until this is dropped.
    taken_uploads: Vec<DataId>,
    files: Option<&'a BlobFiles>,
    core: &'a Core,
}

impl Drop for StagedSteps<'_> {
    fn drop(&mut self) {
        if let Some(files) = self.files {
            files.discard(&self.extents);
        }
        self.core.uploads.release(&self.taken_uploads);
    }
}

impl<'a> StagedSteps<'a> {
    /// One step, for which nothing is staged.
    pub(super) fn new(core: &'a Core, step: Step) -> Self {
        let (steps, extents, taken_uploads) = (vec![step], Vec::new(), Vec::new());
        Self { steps, extents, taken_uploads, files: core.state.files(), core }
    }

    /// The steps, chunks and uploads. The caller becomes responsible for them.
    pub(super) fn take_parts(&mut self) -> (Vec<Step>, Vec<Extent>, Vec<DataId>) {
        let uploads = std::mem::take(&mut self.taken_uploads);
        (std::mem::take(&mut self.steps), std::mem::take(&mut self.extents), uploads)
    }

    /// Adds the steps of a change of a content.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](model::ErrorKind::NotFound) if there is no such upload; [`ErrorKind::Io`](model::ErrorKind::Io) or
    /// [`ErrorKind::Full`](model::ErrorKind::Full) if chunks cannot be staged.
    pub(super) fn add(&mut self, change: ContentChange) -> Result<()> {
        let step = match change {
            ContentChange::Create { id, data } => Step::CreateContent { id, content: self.stage(data)? },
            ContentChange::CreateFromUpload { id, upload } => return self.add_upload(id, upload),
            ContentChange::Write { id, offset, data } => return self.add_write(id, offset, data),
            ContentChange::Truncate { id, size } => Step::Truncate { id, size },
            ContentChange::Zero { id, offset, len } => Step::Zero { id, offset, len },
            ContentChange::Resize { id, size } => Step::Resize { id, size },
            ContentChange::Delete { id } => Step::Delete { id },
        };
        self.steps.push(step);
        Ok(())
    }

    /// Stages the whole chunks at the beginning of `data`.
    fn stage(&mut self, mut data: Bytes) -> Result<StagedContent> {
        let whole = data.len() / CHUNK * CHUNK;
        let extents = match self.files {
            Some(files) if whole > 0 => files.append(&data.split_to(whole))?,
            _ => Vec::new(),
        };
        self.extents.extend_from_slice(&extents);
        Ok(StagedContent { extents, bytes: data })
    }

    /// Splits a write into the bytes before its first whole chunk, the whole chunks, and the bytes after them.
    fn add_write(&mut self, id: ContentId, offset: u64, mut data: Bytes) -> Result<()> {
        let before = (offset.next_multiple_of(CHUNK as u64) - offset) as usize;
        if self.files.is_none() || data.len() < before + CHUNK {
            self.steps.push(Step::Write { id, offset, bytes: data });
            return Ok(());
        }
        let head = data.split_to(before);
        let StagedContent { extents, bytes } = self.stage(data)?;
        let index = (offset + before as u64) / CHUNK as u64;
        let behind = (index + extents.len() as u64) * CHUNK as u64;
        if !head.is_empty() {
            self.steps.push(Step::Write { id, offset, bytes: head });
        }
        self.steps.push(Step::WriteChunks { id, index, extents });
        if !bytes.is_empty() {
            self.steps.push(Step::Write { id, offset: behind, bytes });
        }
        Ok(())
    }

    /// Makes a content of an upload, which ends. Chunks that are not logged yet are logged with it, so this does not
    /// wait.
    fn add_upload(&mut self, id: ContentId, upload: UploadId) -> Result<()> {
        let taken = self.core.uploads.take(upload)?;
        self.taken_uploads.push(DataId(upload.0));
        let finished = taken.with(self.files, Upload::finish)?;
        let (index, unlogged) = finished.unlogged;
        self.extents.extend(finished.first.iter().chain(&unlogged).cloned());
        if !unlogged.is_empty() {
            self.steps.push(Step::Stage { data: finished.data, index, extents: unlogged });
        }
        self.steps.push(match finished.first {
            Some(first) => {
                Step::TakeUpload { id, data: finished.data, size: finished.size, first, tail: finished.tail }
            }
            None => Step::CreateContent { id, content: StagedContent { extents: Vec::new(), bytes: finished.tail } },
        });
        Ok(())
    }
}
