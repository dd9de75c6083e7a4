//! Uploads on their way through the log: staged chunks are logged in groups, and a transaction takes the finished content.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use model::{Error, ErrorKind, Oid, Result, UploadId};
use parking_lot::Mutex;

use super::Core;
use crate::content::upload::{FinishedUpload, Upload};
use crate::log::entry::{StagedContent, Step};
use crate::plant::{ContentBug, planted};
use crate::rows::key::DataId;
use crate::rows::row::Extent;

/// An upload that a transaction takes.
pub(super) struct TakenUpload {
    /// Chunks that are to be logged with the transaction, and the index of the first.
    pub(super) unlogged: Option<(u64, Vec<Extent>)>,
    pub(super) finished: FinishedUpload,
}

impl FinishedUpload {
    /// The steps that make this the content of `oid`.
    pub(super) fn into_steps(self, oid: Oid) -> Vec<Step> {
        match self.first {
            // The empty write fails unless the object is a blob.
            None => vec![
                Step::Write { oid, offset: 0, bytes: Bytes::new() },
                Step::Put { oid, content: StagedContent { extents: Vec::new(), bytes: self.tail } },
            ],
            Some(first) => {
                vec![Step::PutStaged { oid, data: self.data, size: self.size, first, tail: self.tail }]
            }
        }
    }
}

impl Core {
    pub(crate) fn begin_upload(&self) -> Result<UploadId> {
        // The identifier has the number of the opening, which no later opening may have.
        self.log_opening()?;
        self.uploads.begin(self.options.uploads, self.incarnation.load(Ordering::Relaxed))
    }

    /// Adds bytes to an upload.
    pub(crate) fn upload(&self, id: UploadId, data: Bytes) -> Result<()> {
        self.add_to_upload(&*self.uploads.find(id)?, data)
    }

    pub(crate) fn add_to_upload(&self, upload: &Mutex<Upload>, data: Bytes) -> Result<()> {
        let mut upload = upload.lock();
        upload.check_can_add(data.len())?;
        let Some(files) = self.state.files() else {
            let used = self.state.view.load().active.bytes() + upload.bytes_in_memory();
            if used + data.len() > self.options.memory_bytes {
                return Err(Error::new(
                    ErrorKind::Full,
                    "the store in memory has no room for this upload: delete objects, or restart it with a higher limit",
                ));
            }
            upload.add_in_memory(&data);
            return Ok(());
        };
        let mut added = upload.stage(files, data);
        if added.is_ok() && upload.is_logging_due() {
            added = self.log_upload(&mut upload);
        }
        if added.is_err() && !planted(ContentBug::FailedUploadContinues) {
            // The upload may have a part of the bytes, so the caller cannot continue it.
            upload.end(Some(files));
            let id = upload.id();
            drop(upload);
            self.uploads.remove(id);
        }
        added
    }

    /// Logs the chunks that an upload has staged since the last time.
    fn log_upload(&self, upload: &mut Upload) -> Result<()> {
        let (index, extents) = upload.take_unlogged();
        if extents.is_empty() {
            return Ok(());
        }
        self.commit_steps(vec![Step::Stage { data: upload.data(), index, extents: extents.clone() }], extents)
    }

    /// Takes an upload for a transaction: all but its first chunk and its tail are logged.
    pub(super) fn finish_upload(&self, id: UploadId) -> Result<FinishedUpload> {
        let upload = self.uploads.take(id)?;
        let mut upload = upload.lock();
        match upload.check_open().and_then(|()| self.log_upload(&mut upload)) {
            Ok(()) => Ok(upload.finish()),
            Err(error) => {
                self.uploads.release(&[upload.data()]);
                upload.end(self.state.files());
                Err(error)
            }
        }
    }

    /// Takes an upload for changes of contents, without waiting: its last chunks are still to be logged. The caller releases the
    /// content whose number comes first, whatever the result.
    pub(super) fn take_upload(&self, id: UploadId) -> Result<(DataId, Result<TakenUpload>)> {
        let upload = self.uploads.take(id)?;
        let mut upload = upload.lock();
        let taken = upload.check_open().map(|()| {
            let (index, extents) = upload.take_unlogged();
            let unlogged = Some((index, extents)).filter(|(_, extents)| !extents.is_empty());
            TakenUpload { unlogged, finished: upload.finish() }
        });
        Ok((upload.data(), taken))
    }

    pub(crate) fn abort_upload(&self, id: UploadId) {
        if let Some(upload) = self.uploads.remove(id) {
            upload.lock().end(self.state.files());
        }
    }
}
