//! Uploads: content of any size that comes in pieces and becomes an object's in one transaction.
//!
//! Whole chunks go to a blob file as they come; every so many of them are logged as belonging to the upload, so that
//! memory stays bounded. An upload ends with the transaction that uses it, when it is aborted, or with the process; what
//! it had staged is then removed in the background.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use model::{Error, ErrorKind, Oid, Result, UploadId, limits};
use parking_lot::Mutex;

use crate::content::blob_file::BlobFiles;
use crate::core::Core;
use crate::error::too_large;
use crate::log::entry::{StagedContent, Step};
use crate::rows::key::DataId;
use crate::rows::row::{CHUNK, Extent};

/// Whole chunks that an upload keeps in memory before it logs them.
const MAX_UNLOGGED: usize = 256;

/// Content that is being staged.
pub(crate) struct Upload {
    data: DataId,
    /// Whether a transaction has taken it, or it was aborted, or a call failed: what came then would be lost.
    ended: bool,
    /// The first chunk, which will live in the object's row.
    first: Option<Extent>,
    /// Chunks behind the first that are logged.
    logged: u64,
    /// Chunks behind those that are not.
    unlogged: Vec<Extent>,
    /// Bytes behind the last whole chunk; in memory, all bytes.
    tail: BytesMut,
}

/// An upload that a transaction takes.
pub(crate) struct FinishedUpload {
    pub(crate) data: DataId,
    first: Option<Extent>,
    size: u64,
    tail: Bytes,
    /// Chunks that no log entry names yet.
    pub(crate) unlogged: Vec<Extent>,
}

impl FinishedUpload {
    pub(crate) fn steps(self, oid: Oid) -> Vec<Step> {
        match self.first {
            // Writing nothing is what only a blob lets be done to it.
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

fn unknown_upload(id: UploadId) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no upload {}: it has ended, or the server was restarted", id.0))
}

impl Core {
    pub(crate) fn begin_upload(&self) -> Result<UploadId> {
        let mut uploads = self.uploads.lock();
        if uploads.len() >= self.options.uploads {
            let message = format!("{} uploads are unfinished already; finish or abort some", uploads.len());
            return Err(Error::new(ErrorKind::Full, message));
        }
        // The highest bit keeps these apart from contents that transactions start.
        let number = self.next_upload.fetch_add(1, Ordering::Relaxed);
        let id = UploadId(1 << 63 | u64::from(self.incarnation.load(Ordering::Relaxed)) << 32 | number);
        let upload = Upload {
            data: DataId(id.0),
            ended: false,
            first: None,
            logged: 0,
            unlogged: Vec::new(),
            tail: BytesMut::new(),
        };
        uploads.insert(id, Arc::new(Mutex::new(upload)));
        Ok(id)
    }

    pub(crate) fn find_upload(&self, id: UploadId) -> Result<Arc<Mutex<Upload>>> {
        self.uploads.lock().get(&id).cloned().ok_or_else(|| unknown_upload(id))
    }

    /// Adds bytes to an upload.
    pub(crate) fn upload(&self, id: UploadId, data: Bytes) -> Result<()> {
        self.add_to_upload(&*self.find_upload(id)?, data)
    }

    pub(crate) fn add_to_upload(&self, upload: &Mutex<Upload>, data: Bytes) -> Result<()> {
        let mut upload = upload.lock();
        let id = UploadId(upload.data.0);
        if upload.ended {
            return Err(unknown_upload(id));
        }
        let size = upload.size() + data.len() as u64;
        if size > limits::BLOB {
            return Err(too_large("an upload", size, limits::BLOB));
        }
        let Some(files) = self.files() else {
            if self.view.load().active.bytes() + upload.tail.len() + data.len() > self.options.memory_bytes {
                return Err(Error::new(ErrorKind::Full, "the store in memory has no room for this upload"));
            }
            upload.tail.extend_from_slice(&data);
            return Ok(());
        };
        let added = self.stage_upload(files, &mut upload, data);
        if added.is_err() {
            // A part of the bytes may be in and a part not: nobody can go on from there.
            self.drop_upload(&mut upload);
            drop(upload);
            self.uploads.lock().remove(&id);
        }
        added
    }

    fn stage_upload(&self, files: &BlobFiles, upload: &mut Upload, mut data: Bytes) -> Result<()> {
        if !upload.tail.is_empty() {
            let missing = data.split_to((CHUNK - upload.tail.len()).min(data.len()));
            upload.tail.extend_from_slice(&missing);
            if upload.tail.len() == CHUNK {
                let chunk = upload.tail.split();
                upload.add_staged(files.append(&chunk)?);
            }
        }
        let whole = data.len() / CHUNK * CHUNK;
        if whole > 0 {
            upload.add_staged(files.append(&data.split_to(whole))?);
        }
        upload.tail.extend_from_slice(&data);
        if upload.unlogged.len() >= MAX_UNLOGGED {
            self.log_upload(upload)?;
        }
        Ok(())
    }

    /// Logs the chunks that an upload has staged since the last time.
    fn log_upload(&self, upload: &mut Upload) -> Result<()> {
        let extents = std::mem::take(&mut upload.unlogged);
        if extents.is_empty() {
            return Ok(());
        }
        let index = 1 + upload.logged;
        upload.logged += extents.len() as u64;
        self.commit_steps(vec![Step::Stage { data: upload.data, index, extents: extents.clone() }], extents)
    }

    /// Takes an upload for a transaction: all but its first chunk and its tail is logged.
    pub(crate) fn finish_upload(&self, id: UploadId) -> Result<FinishedUpload> {
        let upload = {
            // Until the transaction is through, the content must not be taken for garbage, not for a moment.
            let mut finishing = self.finishing_uploads.lock();
            let upload = self.uploads.lock().remove(&id).ok_or_else(|| unknown_upload(id))?;
            finishing.insert(DataId(id.0));
            upload
        };
        let mut upload = upload.lock();
        let logged = if upload.ended { Err(unknown_upload(id)) } else { self.log_upload(&mut upload) };
        upload.ended = true;
        if let Err(error) = logged {
            self.finishing_uploads.lock().remove(&upload.data);
            self.drop_upload(&mut upload);
            return Err(error);
        }
        let size = upload.size();
        let first = upload.first.take();
        let unlogged = first.iter().cloned().collect();
        Ok(FinishedUpload { data: upload.data, first, size, tail: upload.tail.split().freeze(), unlogged })
    }

    pub(crate) fn abort_upload(&self, id: UploadId) {
        let upload = self.uploads.lock().remove(&id);
        if let Some(upload) = upload {
            self.drop_upload(&mut upload.lock());
        }
    }

    fn drop_upload(&self, upload: &mut Upload) {
        upload.ended = true;
        if let Some(files) = self.files() {
            files.discard(&std::mem::take(&mut upload.unlogged));
            files.discard(upload.first.take().as_slice());
        }
    }

    /// Whether some unfinished upload may still use this content.
    pub(crate) fn is_uploading(&self, data: DataId) -> bool {
        let finishing = self.finishing_uploads.lock();
        finishing.contains(&data) || self.uploads.lock().contains_key(&UploadId(data.0))
    }
}

impl Upload {
    fn size(&self) -> u64 {
        let chunks = u64::from(self.first.is_some()) + self.logged + self.unlogged.len() as u64;
        chunks * CHUNK as u64 + self.tail.len() as u64
    }

    fn add_staged(&mut self, extents: Vec<Extent>) {
        let mut extents = extents.into_iter();
        if self.first.is_none() {
            self.first = extents.next();
        }
        self.unlogged.extend(extents);
    }
}
