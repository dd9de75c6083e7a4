//! Uploads: bytes that arrive in pieces and become a content in one change, whatever their number.
//!
//! Whole chunks go to a blob file as they arrive. `commit::upload` logs them in groups as belonging to the upload, so
//! memory stays bounded. An upload ends when a change takes it, when it is aborted, or with the process. Chunks that it
//! has staged and no content uses are then removed in the background.
//!
//! 1. Chunks of an upload that is unfinished, or that a change is taking, are not garbage: at every moment at least one of
//!    the two sets has the upload.
//! 2. `finishing` is locked before `unfinished`.
//! 3. An upload that has ended takes no more bytes.
//! 4. A thread that adds bytes may hold the lock of the upload until the log is forced. So an abort does not wait for the lock: the receiver of
//!    the replies to that force may wait for the thread that aborts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use bytes::{Bytes, BytesMut};
use hashbrown::{HashMap, HashSet};
use model::{Error, ErrorKind, Result, UploadId, limits};
use parking_lot::Mutex;

use crate::content::blob_file::BlobFiles;
use crate::error::too_large;
use crate::plant::{ContentBug, FaultBug, planted};
use crate::rows::key::DataId;
use crate::rows::row::{CHUNK, Extent};

/// Whole chunks that an upload keeps in memory before they are logged.
const MAX_UNLOGGED: usize = 256;

/// The uploads of a store.
pub(crate) struct Uploads {
    unfinished: Mutex<HashMap<UploadId, UnfinishedUpload>>,
    /// Uploads that a change is taking.
    finishing: Mutex<HashSet<DataId>>,
    next: AtomicU64,
    /// Bytes that uploads have in a store in memory.
    memory_bytes: Arc<AtomicUsize>,
}

/// The bytes of an upload in a store in memory, as a part of those of all uploads.
struct MemoryShare {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// An upload that counts as unfinished.
struct UnfinishedUpload {
    /// Whose it is.
    user: Option<Arc<str>>,
    upload: Arc<SharedUpload>,
}

/// An upload, for the threads that use it.
pub(crate) struct SharedUpload {
    upload: Mutex<Upload>,
    /// Whether it was aborted. Then the next thread that has the lock ends it, at the latest the one that has it now.
    is_aborted: AtomicBool,
}

impl SharedUpload {
    /// Calls `act` with the upload, when no other thread uses it.
    pub(crate) fn with<T>(&self, files: Option<&BlobFiles>, act: impl FnOnce(&mut Upload) -> T) -> T {
        let mut upload = self.upload.lock();
        if self.is_aborted.load(Ordering::Relaxed) {
            upload.end(files);
        }
        let done = act(&mut upload);
        drop(upload);
        self.end_if_aborted(files);
        done
    }

    /// Ends the upload, and frees the chunks that no log entry names: now, or when the thread that uses it has done that (rule 4).
    pub(crate) fn abort(&self, files: Option<&BlobFiles>) {
        self.is_aborted.store(true, Ordering::Relaxed);
        self.end_if_aborted(files);
    }

    fn end_if_aborted(&self, files: Option<&BlobFiles>) {
        // Of a thread that aborts and one that unlocks at the same time, one sees what the other has done.
        fence(Ordering::SeqCst);
        if self.is_aborted.load(Ordering::Relaxed)
            && let Some(mut upload) = self.upload.try_lock()
        {
            upload.end(files);
        }
    }
}

/// An upload in progress.
pub(crate) struct Upload {
    data: DataId,
    /// Whether a change has taken it, it was aborted, or a call failed. Later bytes would be lost.
    ended: bool,
    /// Whether it takes no more bytes, and waits for a change that takes it.
    sealed: bool,
    /// The first chunk, which will be in the row of the content.
    first: Option<Extent>,
    /// Chunks after the first that are logged.
    logged: u64,
    /// Chunks after those that are not.
    unlogged: Vec<Extent>,
    /// Bytes after the last whole chunk; in memory, all bytes.
    tail: BytesMut,
    memory: MemoryShare,
}

/// An upload that a change takes.
pub(crate) struct FinishedUpload {
    pub(crate) data: DataId,
    pub(crate) first: Option<Extent>,
    pub(crate) size: u64,
    pub(crate) tail: Bytes,
    /// Chunks after the first that are not logged, and the index of the first of them.
    pub(crate) unlogged: (u64, Vec<Extent>),
}

fn unknown_upload_error(id: UploadId) -> Error {
    let message = format!("there is no upload {}: it has ended, or the server was restarted; begin another", id.0);
    Error::new(ErrorKind::NotFound, message)
}

impl Uploads {
    pub(crate) fn new() -> Self {
        let (unfinished, finishing) = (Mutex::default(), Mutex::default());
        Self { unfinished, finishing, next: AtomicU64::new(1), memory_bytes: Arc::default() }
    }

    /// Begins an upload, unless `limit` uploads are unfinished, or half as many of its user. Its number contains the store's `incarnation`.
    pub(crate) fn begin(&self, limit: usize, incarnation: u32, user: Option<Arc<str>>) -> Result<UploadId> {
        let full = |count: usize, whose: &str| {
            let message = format!("{count} uploads{whose} are unfinished, which is the limit: finish or abort some");
            Err(Error::new(ErrorKind::Full, message))
        };
        let mut unfinished = self.unfinished.lock();
        if unfinished.len() >= limit {
            return full(limit, "");
        }
        let of_user = |user: &Arc<str>| unfinished.values().filter(|other| other.user.as_ref() == Some(user)).count();
        if user.as_ref().is_some_and(|user| of_user(user) >= limit.div_ceil(2)) && !planted(FaultBug::UploadsOfOneUser)
        {
            return full(limit.div_ceil(2), " of this user");
        }
        // The highest bit keeps these apart from the numbers of contents that are created with their bytes.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let id = UploadId(1 << 63 | u64::from(incarnation) << 32 | number);
        let upload = Mutex::new(Upload::new(DataId(id.0), &self.memory_bytes));
        let upload = Arc::new(SharedUpload { upload, is_aborted: AtomicBool::new(false) });
        unfinished.insert(id, UnfinishedUpload { user, upload });
        Ok(id)
    }

    pub(crate) fn find(&self, id: UploadId) -> Result<Arc<SharedUpload>> {
        self.unfinished.lock().get(&id).map(|found| found.upload.clone()).ok_or_else(|| unknown_upload_error(id))
    }

    /// Removes an upload from the unfinished ones.
    pub(crate) fn remove(&self, id: UploadId) -> Option<Arc<SharedUpload>> {
        self.unfinished.lock().remove(&id).map(|removed| removed.upload)
    }

    /// Moves an upload from the unfinished ones to those that a change is taking (rule 1). The change ends that with
    /// [`Uploads::release`].
    pub(crate) fn take(&self, id: UploadId) -> Result<Arc<SharedUpload>> {
        let mut finishing = self.finishing.lock();
        let upload = self.remove(id).ok_or_else(|| unknown_upload_error(id))?;
        finishing.insert(DataId(id.0));
        Ok(upload)
    }

    /// Ends the taking of uploads by a change that was applied or refused.
    pub(crate) fn release(&self, taken: &[DataId]) {
        if !taken.is_empty() {
            self.finishing.lock().retain(|data| !taken.contains(data));
        }
    }

    /// Whether an unfinished upload, or a change that takes one, may still use chunks with this number.
    pub(crate) fn uses(&self, data: DataId) -> bool {
        if planted(ContentBug::UploadIsGarbage) {
            return false;
        }
        let finishing = self.finishing.lock();
        finishing.contains(&data) || self.unfinished.lock().contains_key(&UploadId(data.0))
    }

    /// How many uploads are unfinished.
    pub(crate) fn unfinished_count(&self) -> usize {
        self.unfinished.lock().len()
    }

    #[cfg(test)]
    pub(crate) fn is_unfinished(&self, id: UploadId) -> bool {
        self.unfinished.lock().contains_key(&id)
    }

    #[cfg(test)]
    pub(crate) fn lock_finishing(&self) -> parking_lot::MutexGuard<'_, HashSet<DataId>> {
        self.finishing.lock()
    }

    /// Forgets all unfinished uploads, as a restart does.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        self.unfinished.lock().clear();
    }
}

impl Upload {
    fn new(data: DataId, all: &Arc<AtomicUsize>) -> Self {
        let memory = MemoryShare { all: Arc::clone(all), bytes: 0 };
        let (unlogged, tail) = (Vec::new(), BytesMut::new());
        Self { data, ended: false, sealed: false, first: None, logged: 0, unlogged, tail, memory }
    }

    pub(crate) fn data(&self) -> DataId {
        self.data
    }

    pub(crate) fn id(&self) -> UploadId {
        UploadId(self.data.0)
    }

    /// The bytes that have come.
    pub(crate) fn size(&self) -> u64 {
        let chunks = u64::from(self.first.is_some()) + self.logged + self.unlogged.len() as u64;
        chunks * CHUNK as u64 + self.tail.len() as u64
    }

    /// Checks that the upload has not ended (rule 3) and may grow by `len` bytes.
    pub(crate) fn check_can_add(&self, len: usize) -> Result<()> {
        if (self.ended || self.sealed) && !planted(ContentBug::UploadTakesLateBytes) {
            return Err(unknown_upload_error(self.id()));
        }
        let size = self.size() + len as u64;
        if size > limits::BLOB { Err(too_large("an upload", size, limits::BLOB)) } else { Ok(()) }
    }

    /// Adds bytes in memory, if all uploads then have at most `limit` there. Returns whether they have.
    pub(crate) fn add_in_memory(&mut self, data: &[u8], limit: usize) -> bool {
        let MemoryShare { all, bytes } = &mut self.memory;
        let before = all.fetch_add(data.len(), Ordering::Relaxed);
        let before = if planted(FaultBug::UploadsCountedAlone) { *bytes } else { before };
        if before + data.len() > limit {
            all.fetch_sub(data.len(), Ordering::Relaxed);
            return false;
        }
        *bytes += data.len();
        self.tail.extend_from_slice(data);
        true
    }

    /// Adds bytes: whole chunks to a blob file, the rest in memory. After an error the upload may have a part of them.
    pub(crate) fn stage(&mut self, files: &BlobFiles, mut data: Bytes) -> Result<()> {
        if !self.tail.is_empty() {
            let missing = data.split_to((CHUNK - self.tail.len()).min(data.len()));
            self.tail.extend_from_slice(&missing);
            if self.tail.len() == CHUNK {
                let chunk = self.tail.split();
                self.add_staged(files.append(&chunk)?);
            }
        }
        let whole = data.len() / CHUNK * CHUNK;
        if whole > 0 {
            self.add_staged(files.append(&data.split_to(whole))?);
        }
        self.tail.extend_from_slice(&data);
        Ok(())
    }

    fn add_staged(&mut self, extents: Vec<Extent>) {
        let mut extents = extents.into_iter();
        if self.first.is_none() {
            self.first = extents.next();
        }
        self.unlogged.extend(extents);
    }

    /// Whether enough chunks are unlogged that they should be logged.
    pub(crate) fn is_logging_due(&self) -> bool {
        self.unlogged.len() >= MAX_UNLOGGED
    }

    /// The chunks that are not logged, which the caller logs, and the index of the first.
    pub(crate) fn take_unlogged(&mut self) -> (u64, Vec<Extent>) {
        let index = 1 + self.logged;
        let extents = std::mem::take(&mut self.unlogged);
        self.logged += extents.len() as u64;
        (index, extents)
    }

    /// Ends the upload for a change that takes it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it has ended.
    pub(crate) fn finish(&mut self) -> Result<FinishedUpload> {
        self.check_open()?;
        self.ended = true;
        let (size, unlogged) = (self.size(), self.take_unlogged());
        Ok(FinishedUpload {
            data: self.data,
            first: self.first.take(),
            size,
            tail: self.tail.split().freeze(),
            unlogged,
        })
    }

    /// Takes no more bytes; returns the size.
    pub(crate) fn seal(&mut self) -> Result<u64> {
        self.check_open()?;
        self.sealed = true;
        Ok(self.size())
    }

    /// Whether it has not ended.
    fn check_open(&self) -> Result<()> {
        if self.ended { Err(unknown_upload_error(self.id())) } else { Ok(()) }
    }

    /// Ends the upload and frees the chunks that no log entry names.
    pub(crate) fn end(&mut self, files: Option<&BlobFiles>) {
        self.ended = true;
        if let Some(files) = files.filter(|_| !planted(ContentBug::AbortedUploadKept)) {
            files.discard(&std::mem::take(&mut self.unlogged));
            files.discard(self.first.take().as_slice());
        }
    }
}
