//! Where the driver of a logical node meets the uploads of contents.

use model::{ContentId, Result, SpaceId, UploadId};
use protocol::lease::Ms;
use store::RowChanges;

use super::{DriverOutput, NodeDriver};
use crate::brick::changed_contents;
use crate::brick::page_rows as rows;

impl<C: Clone> NodeDriver<C> {
    /// The store has begun an upload for a content of a space at this node: the identifier of the content.
    pub(crate) fn begin_upload(&mut self, space: SpaceId, upload: UploadId, now: Ms) -> ContentId {
        self.staging.begin(space, upload, now)
    }

    /// More bytes of an upload have come: the upload of the store that takes them.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](model::ErrorKind::NotFound) if there is no such upload, or it has ended.
    pub(crate) fn receive_upload(&mut self, id: ContentId, now: Ms) -> Result<UploadId> {
        self.staging.receive(id, now)
    }

    /// The size of a staged content.
    pub(crate) fn staged_size(&self, id: ContentId) -> Option<u64> {
        self.staging.staged_size(id)
    }

    /// The size of a content whose bytes have all come, whether it is staged already or its rows are with the store.
    pub(crate) fn finished_size(&self, id: ContentId) -> Option<u64> {
        self.staging.finished_size(id)
    }

    /// All `size` bytes of an upload have come, and the store takes no more: the rows that stage its content. They are to be
    /// submitted, and [`NodeDriver::finished_upload`] is to be called once with the result.
    ///
    /// # Errors
    /// As [`NodeDriver::receive_upload`].
    pub(crate) fn finish_upload(&mut self, id: ContentId, size: u64, now: Ms) -> Result<RowChanges> {
        self.staging.finish(id, size, now)
    }

    /// The rows of a finished upload are durable, or were refused.
    pub(crate) fn complete_upload(&mut self, id: ContentId, is_durable: bool, now: Ms) {
        let size = self.staging.complete(id, is_durable, now);
        self.update_quota();
        if let Some(changed) = self.changed_since_copy.as_mut().filter(|_| is_durable) {
            let is_listed = changed_contents::new_content_keys(id, size).iter().all(|key| changed.add(key));
            if !is_listed || !changed.add(&rows::staged_key(id)) {
                self.changed_since_copy = None;
            }
        }
    }

    /// A client gives an upload up.
    pub(crate) fn abort_upload(&mut self, id: ContentId, now: Ms) {
        let upload = self.staging.abort(id, now);
        self.out.extend(upload.map(DriverOutput::AbortUpload));
        self.update_quota();
        self.poll_uploads(now);
    }

    /// Ends uploads and staged contents whose leases have ended.
    pub(super) fn poll_uploads(&mut self, now: Ms) {
        if self.failed.is_some() || self.staging.due() > now || self.writer.full_error().is_some() {
            return;
        }
        let aborted = self.staging.expire(now, self.writer.rows());
        self.out.extend(aborted.into_iter().map(DriverOutput::AbortUpload));
        self.writer.flush_rows();
        self.process_outputs(true, now);
    }
}
