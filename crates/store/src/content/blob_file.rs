//! Blob files: append-only files of whole chunks.
//!
//! The thread that submits a chunk writes it. The committer forces the files once for a whole batch, before the log
//! contains a record that names the chunks. Chunks that no record names any more are punched out, and files without
//! chunks are removed, except the newest. Each opening of the store starts a new file, so that a sweep can find unnamed
//! chunks of earlier openings. The file is created during opening, so no transaction waits until its name is durable.
//!
//! ```text
//! file  +------------+---------+----------+-------+-----------------+---------+---------+-----
//!       | "mortblob" |  store  |  number  |  crc  | zeros to 4096   |  chunk  |  chunk  |  …
//!       |     8      |   16    |    4     |   4   |                 |         |         |
//!       +------------+---------+----------+-------+-----------------+---------+---------+-----
//! ```
//!
//! Offsets in the rest of the store count from the first chunk. A file of another store or with another number is refused.
//! A header that is not valid is only reported: chunks have checksums of their own, and a power failure may leave a file
//! without a header that has no chunk yet.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{BufMut, BytesMut};
use hashbrown::{HashMap, HashSet};
use model::{Error, ErrorKind, Result};
use parking_lot::{Mutex, MutexGuard, RwLock};
use smallvec::SmallVec;

use crate::checksum::crc32c;
use crate::disk::{Disk, DiskFile};
use crate::error;
use crate::log::frame::StoreId;
use crate::plant::{ContentBug, FaultBug, RecoveryBug, planted};
use crate::rows::row::{BLOCK, CHUNK, Extent, RowError, block_checksums, check_blocks, is_blob_file};

/// The directory of the blob files.
pub(crate) const DIR: &str = "blobs";
/// The length at which a file is followed by the next.
const FILE_LEN: u64 = 1 << 30;
/// Bytes before the first chunk.
const HEADER: u64 = 4096;
const HEADER_LEN: usize = 32;
const MAGIC: &[u8; 8] = b"mortblob";

pub(crate) struct BlobFiles {
    disk: Arc<dyn Disk>,
    store: StoreId,
    append_state: Mutex<AppendState>,
    /// Held while names are forced: no chunk of a new file is durable before.
    names_lock: Mutex<()>,
    open: RwLock<HashMap<u32, Arc<dyn DiskFile>>>,
    /// The first file of this opening.
    first: u32,
    /// Bytes of the chunks of all files, including holes.
    bytes: AtomicU64,
}

struct AppendState {
    current: Option<(u32, u64)>,
    next: u32,
    /// Files written to since the store was opened.
    written: HashSet<u32>,
    /// Files of which a force failed. The operating system discards data that it could not write and reports that once,
    /// so unforced data in these files can never be reported as durable.
    failed: HashSet<u32>,
    new_names: bool,
}

/// Maximum number of chunks in one read, so that they stay in the processor's cache until their checksums are verified.
const MAX_RUN_CHUNKS: usize = 8;
/// Files kept open for reading.
const OPEN_FILES: usize = 256;

pub(crate) fn file_name(file: u32) -> String {
    format!("{DIR}/{file:08x}.blob")
}

/// Where an offset is in its file.
pub(crate) fn position_in_file(offset: u64) -> u64 {
    HEADER + offset
}

/// The number in the name of a blob file; `None` for other names.
fn number_in(name: &str) -> Option<u32> {
    let number = u32::from_str_radix(name.strip_suffix(".blob")?, 16).ok().filter(|number| is_blob_file(*number))?;
    (file_name(number).strip_prefix(DIR)?.strip_prefix('/')? == name).then_some(number)
}

/// Creates a file without chunks, or takes one that an opening without large content has left. Its header is durable with its first chunk.
///
/// # Errors
/// If there is a file with chunks, or if no file can have this number.
pub(crate) fn create(disk: &dyn Disk, store: &StoreId, number: u32) -> io::Result<Arc<dyn DiskFile>> {
    if !is_blob_file(number) {
        return Err(no_number_left(number));
    }
    let name = file_name(number);
    let file = match disk.create_new(&name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => disk.open(&name)?,
        created => created?,
    };
    if file.len()? > HEADER {
        let what = format!("{name} has chunks, where a new file was to be created: restart the server");
        return Err(io::Error::other(what));
    }
    let mut header = [0; HEADER as usize];
    header[..HEADER_LEN].copy_from_slice(&encode_header(store, number));
    file.write_at(0, &header)?;
    Ok(file)
}

fn no_number_left(number: u32) -> io::Error {
    let last = file_name(number.saturating_sub(1));
    io::Error::other(format!(
        "no number for another file is left after {last}: if that is not a file of this store, move it away and restart the server; otherwise \
         restore from a backup"
    ))
}

fn encode_header(store: &StoreId, number: u32) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..8].copy_from_slice(MAGIC);
    header[8..24].copy_from_slice(store);
    header[24..28].copy_from_slice(&number.to_le_bytes());
    let crc = crc32c(&header[..28]);
    header[28..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// What is wrong with the header of a blob file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeaderFault {
    /// It is not valid.
    Damaged,
    OtherStore,
    /// The file has another number.
    OtherNumber(u32),
}

impl HeaderFault {
    fn describe(self, number: u32) -> String {
        let name = file_name(number);
        match self {
            Self::Damaged => format!("the header of {name} is damaged"),
            Self::OtherStore => format!("{name} belongs to another store"),
            Self::OtherNumber(other) => format!("{name} is the blob file {}", file_name(other)),
        }
    }
}

fn header_fault(file: &dyn DiskFile, store: &StoreId, number: u32) -> io::Result<Option<HeaderFault>> {
    let mut header = [0; HEADER_LEN];
    match file.read_at(0, &mut header) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(Some(HeaderFault::Damaged)),
        read => read?,
    }
    if header == encode_header(store, number) {
        return Ok(None);
    }
    let (mut other, mut word) = (*store, [0; 4]);
    other.copy_from_slice(&header[8..24]);
    word.copy_from_slice(&header[24..28]);
    let found = u32::from_le_bytes(word);
    Ok(Some(match header == encode_header(&other, found) {
        false => HeaderFault::Damaged,
        true if other != *store => HeaderFault::OtherStore,
        true => HeaderFault::OtherNumber(found),
    }))
}

/// Refuses files of another store and files with another number.
fn check_headers(disk: &dyn Disk, store: &StoreId, numbers: &[u32]) -> Result<()> {
    for number in numbers {
        let file = disk.open(&file_name(*number)).map_err(|e| error::io("opening the blob files", e))?;
        let fault = header_fault(&*file, store, *number).unwrap_or_else(|error| {
            // It costs what is in that place, as a damaged header does, and not the whole store.
            tracing::warn!(%error, file = file_name(*number), "the header of a blob file cannot be read");
            Some(HeaderFault::Damaged)
        });
        match fault {
            Some(fault) if fault != HeaderFault::Damaged && !planted(RecoveryBug::BlobsOfAnyStore) => {
                let what = fault.describe(*number);
                let message = format!("{what}: put back the file of this store, or restore from a backup");
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
            _ => {}
        }
    }
    Ok(())
}

impl BlobFiles {
    /// Opens the blob files. The B-tree contains file numbers up to `used`: a new file gets a higher number, even if
    /// those files are gone. [`BlobFiles::skip_used`] is called with those that the log has, before the first chunk.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] naming a file that belongs to another store or has another number.
    pub(crate) fn open(disk: Arc<dyn Disk>, store: StoreId, used: u32) -> Result<Self> {
        let fail = |e| error::io("opening the blob files", e);
        disk.make_dir(DIR).map_err(fail)?;
        let numbers = numbers(&*disk).map_err(fail)?;
        check_headers(&*disk, &store, &numbers)?;
        let mut bytes = 0;
        for number in &numbers {
            bytes += disk.open(&file_name(*number)).and_then(|file| chunk_bytes(&*file)).map_err(fail)?;
        }
        let last = numbers.last().copied().unwrap_or(0);
        Self::open_checked(disk, store, last, used, bytes).map_err(fail)
    }

    fn open_checked(disk: Arc<dyn Disk>, store: StoreId, last: u32, used: u32, bytes: u64) -> io::Result<Self> {
        // A file without chunks, left by an opening without large content, is created again.
        let unused = last > used && disk.open(&file_name(last))?.len()? <= HEADER;
        // Both are numbers of files, or 0.
        let first = if unused { last } else { last.max(used).saturating_add(1) };
        let state = AppendState {
            current: None,
            next: first,
            written: HashSet::new(),
            failed: HashSet::new(),
            new_names: false,
        };
        let (append_state, names_lock, open) = (Mutex::new(state), Mutex::new(()), RwLock::new(HashMap::new()));
        Ok(Self { disk, store, append_state, names_lock, open, first, bytes: AtomicU64::new(bytes) })
    }

    /// Gives no new file a number up to `used`, even if those files are gone.
    pub(crate) fn skip_used(&mut self, used: u32) {
        if used >= self.first && !planted(RecoveryBug::LoggedNumbersReused) {
            self.first = used.saturating_add(1);
            self.append_state.get_mut().next = self.first;
        }
    }

    /// Creates the file for the first chunks of this opening, and makes its name durable.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        self.current_or_new_file(&mut self.append_state.lock(), 0)?;
        self.force_names(&self.names_lock.lock())
    }

    /// Appends whole chunks and starts writing them to disk. They are durable after [`BlobFiles::force`].
    pub(crate) fn append(&self, chunks: &[u8]) -> Result<Vec<Extent>> {
        debug_assert!(chunks.len().is_multiple_of(CHUNK));
        let (number, offset) = self.reserve(chunks.len() as u64).map_err(|e| error::io("a blob file", e))?;
        let mut extents = Vec::with_capacity(chunks.len() / CHUNK);
        for (i, chunk) in chunks.chunks_exact(CHUNK).enumerate() {
            let mut blocks = BytesMut::with_capacity(CHUNK / BLOCK * 4);
            block_checksums(chunk).for_each(|crc| blocks.put_u32_le(crc));
            let offset = offset + (i * CHUNK) as u64;
            // A second pass over cached bytes is faster than combining the checksums of the blocks.
            let whole = crc32c(chunk);
            extents.push(Extent { file: number, offset, len: CHUNK as u32, crc: whole, blocks: blocks.freeze() });
        }
        let write = || {
            let file = self.file(number)?;
            let at = position_in_file(offset);
            file.write_at(at, chunks)?;
            file.begin_write_back(at, chunks.len() as u64);
            Ok(())
        };
        write().map_err(|e| {
            self.discard(&extents);
            error::io("a blob file", e)
        })?;
        Ok(extents)
    }

    fn reserve(&self, len: u64) -> io::Result<(u32, u64)> {
        let mut state = self.append_state.lock();
        let (number, offset) = self.current_or_new_file(&mut state, FILE_LEN)?;
        state.current = Some((number, offset + len));
        state.written.insert(number);
        self.bytes.fetch_add(len, Ordering::Relaxed);
        Ok((number, offset))
    }

    /// The current file and its length; a new file if there is none or if it is longer than `limit`.
    fn current_or_new_file(&self, state: &mut AppendState, limit: u64) -> io::Result<(u32, u64)> {
        match state.current {
            Some(current) if current.1 <= limit => Ok(current),
            _ => {
                let number = state.next;
                let file = create(&*self.disk, &self.store, number)?;
                self.open.write().insert(number, file);
                state.next = number.saturating_add(1);
                state.new_names = true;
                state.current = Some((number, 0));
                Ok((number, 0))
            }
        }
    }

    /// Makes the extents durable: one force for each file that contains some of them.
    ///
    /// Only one thread at a time may call this. After an error, data written to the file since its last force is lost.
    pub(crate) fn force<'a>(&self, extents: impl Iterator<Item = &'a Extent>) -> io::Result<()> {
        let mut files: SmallVec<[u32; 4]> = SmallVec::new();
        for extent in extents {
            if !files.contains(&extent.file) {
                files.push(extent.file);
            }
        }
        if files.is_empty() || planted(ContentBug::ChunksNotForced) {
            return Ok(());
        }
        {
            let state = self.append_state.lock();
            if let Some(file) = files.iter().find(|file| state.failed.contains(*file)) {
                return Err(io::Error::other(format!(
                    "{} could not be forced earlier; restart the server",
                    file_name(*file)
                )));
            }
            files.retain(|file| state.written.contains(file));
        }
        self.force_names(&self.names_lock.lock())?;
        for number in files {
            self.file(number)?.force().inspect_err(|_| {
                if planted(ContentBug::FailedFileReused) {
                    return;
                }
                let mut state = self.append_state.lock();
                state.failed.insert(number);
                state.current = state.current.filter(|(current, _)| *current != number);
            })?;
        }
        Ok(())
    }

    /// Makes the names of new files durable.
    fn force_names(&self, _names: &MutexGuard<'_, ()>) -> io::Result<()> {
        if std::mem::take(&mut self.append_state.lock().new_names) {
            if planted(ContentBug::BlobNameNotForced) {
                return Ok(());
            }
            self.disk.force_names(DIR).inspect_err(|_| self.append_state.lock().new_names = true)?;
        }
        Ok(())
    }

    fn file(&self, number: u32) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(file) = self.open.read().get(&number) {
            return Ok(Arc::clone(file));
        }
        let file = self.disk.open(&file_name(number))?;
        let mut open = self.open.write();
        if open.len() >= OPEN_FILES {
            open.clear();
        }
        open.insert(number, Arc::clone(&file));
        Ok(file)
    }

    fn file_of(&self, extent: &Extent) -> Result<Arc<dyn DiskFile>, ReadError> {
        self.file(extent.file).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => RowError::NoFile(extent.file).into(),
            _ => error.into(),
        })
    }

    /// Whether bytes of an extent can probably be read without waiting for the disk.
    pub(crate) fn is_in_memory(&self, extent: &Extent, from: u64, len: u64) -> bool {
        // A file that cannot be opened is an error of the read that follows.
        self.file(extent.file).map_or(true, |file| file.is_in_memory(position_in_file(extent.offset) + from, len))
    }

    /// Reads the extent's bytes from `from` on into `out` and verifies them. `at` is the offset of the extent in its
    /// content.
    pub(crate) fn read(&self, extent: &Extent, from: usize, out: &mut [u8], at: u64) -> Result<(), ReadError> {
        let to = from + out.len();
        if to > extent.len as usize {
            return Err(RowError::File.into());
        }
        let first = from / BLOCK;
        let aligned = (first * BLOCK, to.next_multiple_of(BLOCK).min(extent.len as usize));
        let file = self.file_of(extent)?;
        if aligned == (from, to) {
            file.read_at(position_in_file(extent.offset) + from as u64, out)?;
            verify_blocks(extent, first, out, at)?;
        } else {
            let mut blocks = vec![0; aligned.1 - aligned.0];
            file.read_at(position_in_file(extent.offset) + aligned.0 as u64, &mut blocks)?;
            verify_blocks(extent, first, &blocks, at)?;
            out.copy_from_slice(&blocks[from - aligned.0..to - aligned.0]);
        }
        Ok(())
    }

    /// Reads whole chunks into `out` and verifies them. `at` is the offset of the first in its content.
    ///
    /// Adjacent chunks are read with one call.
    pub(crate) fn read_runs(&self, extents: &[Extent], out: &mut [u8], at: u64) -> Result<(), ReadError> {
        if out.len() != extents.len() * CHUNK || extents.iter().any(|extent| extent.len as usize != CHUNK) {
            return Err(RowError::File.into());
        }
        let (mut at, mut rest) = (at, out);
        let mut len = 1;
        let mut goes_on = |before: &Extent, extent: &Extent| {
            len = if is_adjacent(before, extent) && len < MAX_RUN_CHUNKS { len + 1 } else { 1 };
            len > 1
        };
        for side_by_side in extents.chunk_by(|before, extent| goes_on(before, extent)) {
            let (piece, behind) = rest.split_at_mut(side_by_side.len() * CHUNK);
            self.read_run(side_by_side, piece, at)?;
            at += piece.len() as u64;
            rest = behind;
        }
        Ok(())
    }

    fn read_run(&self, run: &[Extent], out: &mut [u8], at: u64) -> Result<(), ReadError> {
        let Some(first) = run.first() else { return Ok(()) };
        self.file_of(first)?.read_at(position_in_file(first.offset), out)?;
        for ((extent, chunk), at) in run.iter().zip(out.chunks_exact(CHUNK)).zip((at..).step_by(CHUNK)) {
            // One checksum of the chunk is faster than those of its blocks, which locate the damage.
            if crc32c(chunk) != extent.crc {
                verify_blocks(extent, 0, chunk, at)?;
            }
        }
        Ok(())
    }

    /// The operating system's file of an extent, for sending it without copying.
    pub(crate) fn system_file(&self, extent: &Extent) -> io::Result<Option<Arc<std::fs::File>>> {
        Ok(self.file(extent.file)?.system_file().cloned())
    }

    /// Frees the storage of extents that no record names.
    pub(crate) fn discard(&self, extents: &[Extent]) {
        for extent in extents {
            if let Err(error) = self.punch_hole(extent.file, extent.offset, u64::from(extent.len)) {
                tracing::warn!(file = extent.file, offset = extent.offset, %error, "cannot free a chunk; a sweep will");
            }
        }
    }

    pub(crate) fn punch_hole(&self, file: u32, offset: u64, len: u64) -> io::Result<()> {
        match self.file(file).and_then(|file| file.punch_hole(position_in_file(offset), len)) {
            // Some file systems do not support holes; the storage is freed with the file.
            Err(e) if e.kind() == io::ErrorKind::Unsupported => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Removes a file without extents durably, unless it may still grow.
    ///
    /// The newest file is kept: its number determines the next one, which must be new.
    pub(crate) fn remove(&self, number: u32) -> io::Result<()> {
        let names = self.names_lock.lock();
        if number.saturating_add(1) >= self.append_state.lock().next {
            return Ok(());
        }
        self.force_names(&names)?;
        let len = self.file(number).and_then(|file| chunk_bytes(&*file)).unwrap_or(0);
        self.open.write().remove(&number);
        match self.disk.remove(&file_name(number)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => {
                other?;
                self.bytes.fetch_sub(len.min(self.bytes.load(Ordering::Relaxed)), Ordering::Relaxed);
                self.disk.force_names(DIR)
            }
        }
    }

    /// Makes the freeing of parts of a file durable.
    pub(crate) fn force_file(&self, number: u32) -> io::Result<()> {
        match self.file(number).and_then(|file| file.force()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// The files of earlier openings with numbers above `swept`, and their lengths.
    pub(crate) fn earlier_files(&self, swept: u32) -> io::Result<Vec<(u32, u64)>> {
        let files = numbers(&*self.disk)?.into_iter().filter(|number| *number < self.first && *number > swept);
        files.map(|number| Ok((number, chunk_bytes(&*self.file(number)?)?))).collect()
    }

    /// The first file of this opening: this file and later ones may still grow.
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    /// Whether a file exists.
    pub(crate) fn exists(&self, number: u32) -> bool {
        !self.file(number).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Bytes of the chunks of all blob files, including holes. This does not wait for a disk.
    pub(crate) fn size(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Calls `report` with each file whose header is not valid: its number, and what is wrong.
    pub(crate) fn check_headers(&self, report: &mut dyn FnMut(u32, String)) -> io::Result<()> {
        for number in numbers(&*self.disk)? {
            match self.disk.open(&file_name(number)).and_then(|file| header_fault(&*file, &self.store, number)) {
                Ok(Some(fault)) => report(number, fault.describe(number)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => report(number, format!("{} cannot be read: {e}", file_name(number))),
                Ok(None) => {}
            }
        }
        Ok(())
    }

    /// Files that are open here and have no name any more, although this store has not removed them; and whether each may still grow. Such a file is
    /// gone with the process.
    pub(crate) fn unlinked(&self) -> io::Result<Vec<(u32, bool)>> {
        // While this is locked, the store removes no file. A file has a name before it is among the open ones.
        let _names = self.names_lock.lock();
        let open: Vec<u32> = self.open.read().keys().copied().collect();
        let (listed, next) = (numbers(&*self.disk)?, self.append_state.lock().next);
        let gone = open.into_iter().filter(|number| listed.binary_search(number).is_err());
        Ok(gone.map(|number| (number, number.saturating_add(1) >= next)).collect())
    }
}

/// Bytes of the chunks in a file, including holes.
fn chunk_bytes(file: &dyn DiskFile) -> io::Result<u64> {
    Ok(file.len()?.saturating_sub(HEADER))
}

/// Checks the blocks of an extent from block `first` on. `at` is where the extent begins in its content.
fn verify_blocks(extent: &Extent, first: usize, bytes: &[u8], at: u64) -> Result<(), RowError> {
    if planted(ContentBug::ChunkNotChecked) {
        return Ok(());
    }
    check_blocks(&extent.blocks, first, bytes, at)
}

/// Whether an extent directly follows another.
fn is_adjacent(before: &Extent, extent: &Extent) -> bool {
    (before.file == extent.file || planted(FaultBug::RunsCrossFiles))
        && before.offset + u64::from(before.len) == extent.offset
}

/// Whether there are any.
pub(crate) fn exist(disk: &dyn Disk) -> io::Result<bool> {
    match numbers(disk) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        found => found.map(|found| !found.is_empty()),
    }
}

/// The numbers of the blob files, in order. Other files in the directory are left alone.
fn numbers(disk: &dyn Disk) -> io::Result<Vec<u32>> {
    let mut numbers: Vec<u32> = disk.list(DIR)?.iter().filter_map(|name| number_in(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Why an extent cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Row(#[from] RowError),
    #[error("its blob file cannot be read: {0}")]
    Io(io::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Row(RowError::File),
            _ => Self::Io(error),
        }
    }
}

#[cfg(test)]
mod tests;
