//! Uploads of contents, and reads of ranges of them.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use bytes::Bytes;
use model::{ContentId, Error, ErrorKind, NodeId, Result, SpaceId, UploadId};
use store::RowChanges;
use wire::cluster::ReadContent;

use super::{Driver, NodeTask, Nodes, ServedNode};
use crate::brick::content_reads::{FoundRange, read_range};
use crate::brick::node_inbox::UploadAnswer;

/// What is to be done at the end of an upload.
enum Finish<'a> {
    /// Nothing: it is staged, and has this size.
    Staged(u64),
    /// Its rows are with the store. The answer is added before the driver is unlocked.
    Finishing(MutexGuard<'a, Driver>),
    /// Rows are to be submitted before the driver is unlocked.
    Rows(u64, RowChanges, MutexGuard<'a, Driver>),
}

impl Nodes {
    /// Begins an upload for a content of a space at a logical node, of a user, if it has a name.
    ///
    /// # Errors
    /// If the node is not served here; [`ErrorKind::Full`] if too many uploads are unfinished, or too many of this user.
    pub(crate) fn begin_upload(&self, space: SpaceId, node: NodeId, user: &str) -> Result<ContentId> {
        let upload = if user.is_empty() { self.store.begin_upload()? } else { self.store.begin_upload_of(user)? };
        let begun = self.with_driver(node, |driver| {
            driver.check_space_stays()?;
            Ok(driver.begin_upload(space, upload, self.time.now()))
        });
        if begun.is_err() {
            self.store.abort_upload(upload);
        }
        begun
    }

    /// Adds bytes to an upload, behind those that have come before. The last bytes that have come are ignored if they come again, also when the upload
    /// has ended with them: a client that has heard of no answer sends them again. It may block.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such upload;
    /// [`ErrorKind::Invalid`] if bytes are missing; [`ErrorKind::QuotaExceeded`] and the errors of the store, after which the upload
    /// has ended.
    pub(crate) fn add_to_upload(&self, id: ContentId, offset: u64, bytes: Bytes) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64);
        let upload = self.with_driver(id.node(), |driver| match driver.finished_size(id) {
            Some(size) if end == Some(size) => Ok(None),
            _ => driver.receive_upload(id, self.time.now()).map(Some),
        })?;
        let Some(upload) = upload else { return Ok(()) };
        let size = self.store.upload_size(upload)?;
        if end == Some(size) {
            return Ok(());
        }
        if offset != size {
            let what = format!("bytes from {offset} on have come for an upload of {size} bytes: send them in order");
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let end = size + bytes.len() as u64;
        if let Err(error) = self.with_driver(id.node(), |driver| driver.extend_upload(id, end)) {
            if error.kind() == ErrorKind::QuotaExceeded {
                self.abort_upload(id)?;
            }
            return Err(error);
        }
        let added = self.store.upload(upload, bytes);
        if added.is_err() {
            self.abort_upload(id)?;
        }
        added
    }

    /// Ends an upload, and calls `done` with its size when its content is staged durably, so that a transaction can name it. It may block.
    pub(crate) fn finish_upload(&self, id: ContentId, done: impl FnOnce(Result<u64>) + Send + 'static) {
        let Some(served) = self.served_node(id.node()) else { return done(Err(self.not_served(id.node()))) };
        let finished = self.seal_upload(&served, id).and_then(|size| {
            // The node stays locked until the rows are submitted: a node that is closed waits for all that it has with the store.
            let mut driver = served.lock()?;
            // The answer to an earlier request may have been lost.
            if let Some(size) = driver.staged_size(id) {
                return Ok(Finish::Staged(size));
            }
            if driver.finished_size(id).is_some() {
                return Ok(Finish::Finishing(driver));
            }
            Ok(Finish::Rows(size, driver.finish_upload(id, size, self.time.now())?, driver))
        });
        match finished {
            Ok(Finish::Staged(size)) => done(Ok(size)),
            Ok(Finish::Finishing(_driver)) => self.lock_finishing().entry(id).or_default().push(Box::new(done)),
            Ok(Finish::Rows(size, rows, _driver)) => {
                let inbox = self.inbox.clone();
                self.store.submit_rows(rows, move |result| {
                    inbox.add(NodeTask::Staged { id, size: result.map(|_| size), answer: Box::new(done) });
                });
            }
            Err(error) => done(Err(error)),
        }
    }

    /// The store has made the rows of a finished upload durable, or has refused them: answers all clients that have asked.
    pub(super) fn end_upload(self: &Arc<Self>, id: ContentId, size: Result<u64>, answer: UploadAnswer) {
        let now = self.time.now();
        self.act_at_writing(id.node(), |driver| driver.complete_upload(id, size.is_ok(), now));
        self.check_closing();
        // The driver knows that the upload has ended, so no more answers are added.
        for other in self.lock_finishing().remove(&id).unwrap_or_default() {
            let copy = |error: &Error| Error::new(error.kind(), error.message().to_owned());
            other(size.as_ref().map_or_else(|error| Err(copy(error)), |size| Ok(*size)));
        }
        answer(size);
    }

    fn lock_finishing(&self) -> MutexGuard<'_, BTreeMap<ContentId, Vec<UploadAnswer>>> {
        // The data is consistent between statements, so a poisoned lock is harmless.
        self.finishing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the store take no more bytes for an upload, unless it has ended; returns the size.
    fn seal_upload(&self, served: &ServedNode, id: ContentId) -> Result<u64> {
        let upload = {
            let mut driver = served.lock()?;
            if let Some(size) = driver.finished_size(id) {
                return Ok(size);
            }
            driver.receive_upload(id, self.time.now())?
        };
        // Another thread may add bytes to it and wait for a force. The receiver of the replies to that force may wait for the logical node, so this
        // thread does not hold it.
        self.store.seal_upload(upload)
    }

    /// Gives an upload up.
    ///
    /// # Errors
    /// If the logical node is not served here.
    pub(crate) fn abort_upload(&self, id: ContentId) -> Result<()> {
        self.with_driver(id.node(), |driver| {
            driver.abort_upload(id, self.time.now());
            Ok(())
        })
    }

    /// Has the store abort uploads of logical nodes that are not served any more.
    pub(super) fn abort_in_store(&self, uploads: Vec<UploadId>) {
        uploads.into_iter().for_each(|upload| self.store.abort_upload(upload));
    }

    /// Reads a range of the bytes of a blob: its newest durable state. It may block.
    ///
    /// # Errors
    /// If its logical node is not served here, or it cannot be read.
    pub(crate) fn read_content(&self, read: &ReadContent) -> Result<FoundRange> {
        let node = read.oid.page().node;
        let served = self.require_served(node)?;
        let found = read_range(&self.store.snapshot()?, read)?;
        // If the node has moved away in the meantime, its rows may have been removed.
        match self.served_node(node) {
            Some(now) if Arc::ptr_eq(&now, &served) => Ok(found),
            _ => Err(self.not_served(node)),
        }
    }
}
