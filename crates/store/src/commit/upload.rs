//! Uploads on their way through the log: staged chunks are logged in groups. `stage` makes contents of uploads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use model::{Error, ErrorKind, Result, UploadId};

use super::Core;
use crate::content::upload::{SharedUpload, Upload};
use crate::log::entry::Step;
use crate::plant::{ContentBug, planted};

impl Core {
    pub(crate) fn begin_upload(&self, user: Option<Arc<str>>) -> Result<UploadId> {
        // The identifier has the number of the opening, which no later opening may have.
        self.log_opening()?;
        self.uploads.begin(self.options.uploads, self.incarnation.load(Ordering::Relaxed), user)
    }

    /// Adds bytes to an upload.
    pub(crate) fn upload(&self, id: UploadId, data: Bytes) -> Result<()> {
        self.add_to_upload(&*self.uploads.find(id)?, data)
    }

    pub(crate) fn add_to_upload(&self, upload: &SharedUpload, data: Bytes) -> Result<()> {
        upload.with(self.state.files(), |upload| self.add_bytes(upload, data))
    }

    fn add_bytes(&self, upload: &mut Upload, data: Bytes) -> Result<()> {
        upload.check_can_add(data.len())?;
        let Some(files) = self.state.files() else {
            let limit = self.options.memory_bytes.saturating_sub(self.state.view.load().active.bytes());
            if !upload.add_in_memory(&data, limit) {
                return Err(Error::new(
                    ErrorKind::Full,
                    "the store in memory has no room for this upload: delete contents, or restart it with a higher limit",
                ));
            }
            return Ok(());
        };
        let mut added = upload.stage(files, data);
        if added.is_ok() && upload.is_logging_due() {
            added = self.log_upload(upload);
        }
        if added.is_err() && !planted(ContentBug::FailedUploadContinues) {
            // The upload may have a part of the bytes, so the caller cannot continue it.
            upload.end(Some(files));
            self.uploads.remove(upload.id());
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

    pub(crate) fn upload_size(&self, id: UploadId) -> Result<u64> {
        Ok(self.uploads.find(id)?.with(self.state.files(), |upload| upload.size()))
    }

    pub(crate) fn seal_upload(&self, id: UploadId) -> Result<u64> {
        self.uploads.find(id)?.with(self.state.files(), Upload::seal)
    }

    /// Aborts an upload. It waits neither for a force nor for a thread that adds bytes.
    pub(crate) fn abort_upload(&self, id: UploadId) {
        if let Some(upload) = self.uploads.remove(id) {
            upload.abort(self.state.files());
        }
    }
}
