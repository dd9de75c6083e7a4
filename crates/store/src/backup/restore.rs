//! Restoring: creates a store from an archive.
//!
//! Rows and the records of extents are created from the items; chunks keep their positions in blob files. The
//! last step turns the directory into a store, after the trailer was verified and everything is durable. Until then the
//! directory contains the file `RESTORING`, which describes its state, and no `STORE`.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use bytes::{BufMut, Bytes, BytesMut};
use hashbrown::HashMap;
use model::{ContentId, Error, ErrorKind, Result, limits};

use super::BackupSummary;
use super::archive::{ArchiveCounts, damage_error};
use super::chain::Chain;
use super::item::{Item, Items};
use crate::checksum::crc32c;
use crate::content::blob_file;
use crate::content::chunk_set::ChunkSet;
use crate::directory::{self, DirectoryContents, RESTORING};
use crate::disk::{self, Disk, DiskFile, RealDisk};
use crate::engine::tree::TreeEngine;
use crate::engine::{Engine, EngineRow};
use crate::error::{self, IntoModelResult, invalid};
use crate::log::Log;
use crate::log::frame::StoreId;
use crate::options::Options;
use crate::plant::{ContentBug, planted};
use crate::progress::{self, Amount, Progress};
use crate::rows::key::hex;
use crate::rows::key::{self, DataId, Key};
use crate::rows::mob::{LogPosition, SEQ_END, Seq};
use crate::rows::row::{self, CHUNK, ContentHead, Extent, block_checksums, put_extent, put_inline};

/// Rows are written in batches of about this many bytes or rows.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_ROWS: usize = 8_192;
/// Batches that wait for the B-tree.
const WAITING_BATCHES: usize = 1;
/// Maximum number of open blob files.
const OPEN_FILES: usize = 64;
/// Maximum bytes in the first segment of the log, which is written with zeros, and read when the store is opened. Later ones are as the store's
/// options say.
const FIRST_SEGMENT_BYTES: u64 = 1 << 20;

/// Restores a chain of archives, the full one first, into a directory. The log of the store continues after the position of the last one, and after
/// `position`.
pub(crate) fn restore(
    dir: &Path,
    (archives, position): (Vec<Box<dyn Read + '_>>, Seq),
    options: &Options,
    progress: &dyn Progress,
) -> Result<BackupSummary> {
    let fail = |e: io::Error| error::io(&format!("restoring to {}", dir.display()), e);
    let mut directory = RestoreDirectory::begin(dir, options)?;
    let path = dir.join(RESTORING);
    let restored = restore_into(dir, (archives, position), options, progress);
    if restored.is_err()
        // The directory was empty before.
        && let Err(error) = remove_parts(dir, [directory::TREE_DIR, blob_file::DIR, crate::log::DIR])
    {
        // The mark stays: what is left is no store.
        tracing::warn!(%error, "what was restored cannot be removed again");
        return restored;
    }
    let remove = || {
        fs::remove_file(&path)?;
        File::open(dir)?.sync_all()
    };
    let removed = remove().map_err(fail);
    let summary = restored?;
    directory.keep();
    removed?;
    Ok(summary)
}

/// Removes directories that a restore has made.
fn remove_parts(dir: &Path, parts: impl IntoIterator<Item = impl AsRef<Path>>) -> io::Result<()> {
    for part in parts {
        match fs::remove_dir_all(dir.join(part)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The directory of a restore, which is locked. If it is empty when this is dropped, and was not to be [kept](RestoreDirectory::keep), it is removed if
/// the restore has made it, and otherwise has the permissions again that it had before.
struct RestoreDirectory {
    dir: PathBuf,
    _lock: File,
    is_new: bool,
    permissions_before: Option<Permissions>,
}

impl RestoreDirectory {
    /// Locks and marks a directory that is empty or does not exist.
    fn begin(dir: &Path, options: &Options) -> Result<Self> {
        let is_new = disk::create_private_dir(dir).map_err(|error| cannot_create(dir, error))?;
        // No lock file is left in a directory of other files. Whether another process uses the directory is known when it is locked.
        let contents = DirectoryContents::of(dir)?;
        if matches!(contents, DirectoryContents::Other(_)) {
            check_empty(dir, contents)?;
        }
        let lock = directory::lock(dir).inspect_err(|error| {
            // The lock of another process stays.
            if is_new && error.kind() != ErrorKind::Unavailable {
                remove_if_empty(dir);
            }
        })?;
        let mut begun = Self { dir: dir.to_owned(), _lock: lock, is_new, permissions_before: None };
        check_empty(dir, DirectoryContents::of(dir)?)?;
        let found =
            fs::metadata(dir).map_err(|e| error::io(&format!("reading the permissions of {}", dir.display()), e))?;
        begun.permissions_before = Some(found.permissions());
        directory::prepare_directory(dir, options.allow_loose_permissions)?;
        write_mark(dir).map_err(|error| {
            let _ = fs::remove_file(dir.join(RESTORING));
            error::io(&format!("restoring to {}", dir.display()), error)
        })?;
        Ok(begun)
    }

    /// Leaves the directory as it is from now on: what was restored stays.
    fn keep(&mut self) {
        self.is_new = false;
        self.permissions_before = None;
    }
}

impl Drop for RestoreDirectory {
    fn drop(&mut self) {
        if self.is_new {
            remove_if_empty(&self.dir);
        } else if let Some(before) = self.permissions_before.take()
            && DirectoryContents::of(&self.dir).is_ok_and(|found| found == DirectoryContents::Empty)
        {
            let _ = fs::remove_file(self.dir.join(directory::LOCK_FILE));
            // If that fails, the directory is more private than before.
            let _ = fs::set_permissions(&self.dir, before);
        }
    }
}

/// Removes a directory with nothing but a lock. If that fails, the directory stays and can be restored into.
fn remove_if_empty(dir: &Path) {
    if DirectoryContents::of(dir).is_ok_and(|found| found == DirectoryContents::Empty) {
        let _ = fs::remove_file(dir.join(directory::LOCK_FILE));
        let _ = fs::remove_dir(dir);
    }
}

fn cannot_create(dir: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            let dir = dir.display();
            invalid(format!("{dir} is not a directory, or is below a file; restore into a new directory"))
        }
        _ => error::io(&format!("restoring to {}", dir.display()), error),
    }
}

/// A directory into which several stores are restored, one of which becomes the store of the directory itself. Nothing in it can be opened by a
/// server before [`RestoreTarget::finish`]; without that, the directory is empty again when this is dropped and has its former permissions, or it is removed if the
/// restore has made it.
pub struct RestoreTarget {
    dir: PathBuf,
    directory: RestoreDirectory,
    /// The directories in it, by their names.
    made: Vec<String>,
    is_finished: bool,
}

impl RestoreTarget {
    /// Locks and marks a directory that is empty or does not exist.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](model::ErrorKind::Invalid) if it is not empty; [`ErrorKind::Unavailable`](model::ErrorKind::Unavailable) if a
    /// process uses it; those of the file system.
    pub fn begin(dir: &Path, options: &Options) -> Result<Self> {
        let directory = RestoreDirectory::begin(dir, options)?;
        Ok(Self { dir: dir.to_owned(), directory, made: Vec::new(), is_finished: false })
    }

    /// The place for the store with this name.
    pub fn place(&mut self, name: &str) -> PathBuf {
        self.made.push(name.to_owned());
        self.dir.join(name)
    }

    /// Makes the store with this name that of the directory itself, and removes the mark. All stores must be closed.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn finish(mut self, first: &str) -> Result<()> {
        // From the first rename on, the mark says that a restore was interrupted, until the identity says that the store is whole.
        self.is_finished = true;
        self.directory.keep();
        let from = self.dir.join(first);
        let fail = |e: io::Error| error::io(&format!("restoring to {}", self.dir.display()), e);
        let take_in = || {
            for part in [directory::TREE_DIR, blob_file::DIR, crate::log::DIR] {
                if from.join(part).exists() {
                    fs::rename(from.join(part), self.dir.join(part))?;
                }
            }
            File::open(&self.dir)?.sync_all()?;
            // The identity makes it a store.
            fs::rename(from.join(directory::IDENTITY_FILE), self.dir.join(directory::IDENTITY_FILE))?;
            fs::remove_dir_all(&from)?;
            fs::remove_file(self.dir.join(RESTORING))?;
            File::open(&self.dir)?.sync_all()
        };
        take_in().map_err(fail)
    }
}

impl Drop for RestoreTarget {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        // What cannot be removed stays marked as an interrupted restore.
        if remove_parts(&self.dir, &self.made).is_ok() {
            let _ = fs::remove_file(self.dir.join(RESTORING));
        }
    }
}

/// Writes the file that says that a restore is running.
fn write_mark(dir: &Path) -> io::Result<()> {
    let mut mark = disk::private_file().create(true).truncate(true).open(dir.join(RESTORING))?;
    writeln!(
        mark,
        "A backup is being restored here. This directory is no store before that has ended.\n\
         If no restore is running, it was interrupted: remove the directory and restore again."
    )?;
    mark.sync_all()?;
    File::open(dir)?.sync_all()
}

fn restore_into(
    dir: &Path,
    archives: (Vec<Box<dyn Read + '_>>, Seq),
    options: &Options,
    progress: &dyn Progress,
) -> Result<BackupSummary> {
    let fail = |e: io::Error| error::io(&format!("restoring to {}", dir.display()), e);
    // A new identity: the history of this store differs from that of the archived one from here on.
    let id = directory::new_identity().map_err(fail)?;
    let summary = {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(dir));
        let engine = TreeEngine::open(&*disk, &id).into_model_result()?;
        restore_on(&disk, &engine, id, options, archives, progress)?
    };
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(fail)?;
    directory::write_identity(dir, &id).map_err(fail)?;
    Ok(summary)
}

fn check_empty(dir: &Path, contents: DirectoryContents) -> Result<()> {
    let name = match contents {
        DirectoryContents::Missing | DirectoryContents::Empty => return Ok(()),
        DirectoryContents::InterruptedRestore => return Err(directory::interrupted_error(dir)),
        DirectoryContents::Store => directory::IDENTITY_FILE.to_owned(),
        DirectoryContents::Other(name) => name,
    };
    let dir = dir.display();
    Err(invalid(format!("{dir} is not empty: it contains {name:?}; restore into a new directory")))
}

/// Restores a chain of archives onto an empty disk and engine. Everything is durable when this returns.
pub(crate) fn restore_on(
    disk: &Arc<dyn Disk>,
    engine: &dyn Engine,
    id: StoreId,
    options: &Options,
    (archives, position): (Vec<Box<dyn Read + '_>>, Seq),
    progress: &dyn Progress,
) -> Result<BackupSummary> {
    let mut chain = Chain::begin(archives)?;
    let header = chain.header();
    let position = position.max(header.version);
    if position >= SEQ_END - 1 {
        return Err(damage_error(format!("its header has the impossible position {position}")));
    }
    let mut blobs = RestoredBlobFiles::new(Arc::clone(disk), id).map_err(blob_file_error)?;
    let mut counts = ArchiveCounts::default();
    with_loader(engine, |batches| {
        let mut restore = Restore::new(batches, &mut blobs, header.version);
        let mut range = Vec::new();
        while chain.next_range(&mut range)?.is_some() {
            let mut items = Items(&range);
            while let Some(item) = items.next().map_err(damage_error)? {
                counts.count(&item);
                restore.item(&item)?;
            }
            let amount = Amount { items: counts.items(), bytes: chain.bytes_read(), total_bytes: 0 };
            progress::report(progress, "restore", amount)?;
        }
        restore.end(chain.open_count())
    })?;
    if !planted(ContentBug::RestoredChunksNotForced) {
        blobs.force().map_err(blob_file_error)?;
    }
    let segment_bytes = options.segment_bytes.min(FIRST_SEGMENT_BYTES);
    Log::create(Arc::clone(disk), id, segment_bytes, position + 1, 0).into_model_result()?;
    let installed = LogPosition { seq: position, crc: 0 };
    let installed = (Key::system(key::INSTALLED), Some(Bytes::copy_from_slice(&installed.to_row())));
    // Makes the rows before it durable, too.
    engine.write(&mut std::iter::once(Ok(installed))).into_model_result()?;
    Ok(BackupSummary::new(&header, &counts, chain.bytes_read()))
}

/// Rows for the B-tree.
type RowBatch = Vec<EngineRow>;

/// Runs `produce`, whose batches a thread of its own loads into the B-tree meanwhile.
fn with_loader(engine: &dyn Engine, produce: impl FnOnce(SyncSender<RowBatch>) -> Result<()>) -> Result<()> {
    thread::scope(|scope| {
        let (batches, queue) = sync_channel::<RowBatch>(WAITING_BATCHES);
        let load = move || {
            let mut load = |rows: RowBatch| engine.load(&mut rows.into_iter().map(Ok)).into_model_result();
            queue.into_iter().try_for_each(&mut load)
        };
        let loader = thread::Builder::new().name("mortar-load".to_owned()).spawn_scoped(scope, load);
        let loader = loader.map_err(|e| error::io("starting a thread", e))?;
        let produced = produce(batches);
        let loaded = loader.join().unwrap_or_else(|_| Err(loader_has_ended()));
        // If loading fails, batches are not taken any more: its error is the cause.
        loaded.and(produced)
    })
}

fn loader_has_ended() -> Error {
    Error::new(ErrorKind::Internal, "the thread that loads the B-tree has ended early")
}

fn blob_file_error(error: io::Error) -> Error {
    error::io("a blob file", error)
}

/// The content whose chunks follow.
struct ContentInProgress {
    id: ContentId,
    head: ContentHead,
    /// The row of the content: the head, then the first chunk.
    row: BytesMut,
    next_chunk: u64,
}

struct Restore<'a> {
    batches: SyncSender<RowBatch>,
    blobs: &'a mut RestoredBlobFiles,
    version: u64,
    rows: RowBatch,
    row_bytes: usize,
    content: Option<ContentInProgress>,
    last_content: Option<ContentId>,
    /// The last row of the store's user.
    last_row: Option<Key>,
    content_count: u64,
}

impl<'a> Restore<'a> {
    fn new(batches: SyncSender<RowBatch>, blobs: &'a mut RestoredBlobFiles, version: u64) -> Self {
        Self {
            batches,
            blobs,
            version,
            rows: Vec::new(),
            row_bytes: 0,
            content: None,
            last_content: None,
            last_row: None,
            content_count: 0,
        }
    }

    fn item(&mut self, item: &Item<'_>) -> Result<()> {
        match item {
            Item::Incarnation { .. }
            | Item::RangeEnd { .. }
            | Item::Same { .. }
            | Item::Replaced { .. }
            | Item::Cleared { .. }
            | Item::RemovedContent { .. }
            | Item::RemovedRow { .. } => Err(damage_error("an item that is in no range")),
            Item::Content { id, size } => self.begin_content(*id, *size),
            Item::Bytes { index, bytes } => self.chunk(*index, |row| put_inline(row, bytes)),
            Item::Extent { index, file, offset, crc, bytes } => {
                let extent = self.blobs.write_chunk(*file, *offset, *crc, bytes)?;
                if !planted(ContentBug::RestoredChunksNotUsed) {
                    let len = Bytes::copy_from_slice(&row::encode_extent_len(extent.len));
                    self.put(Key::extent(extent.file, extent.offset), len)?;
                }
                self.chunk(*index, |row| put_extent(row, &extent))
            }
            Item::Row { key, value } => {
                self.end_content()?;
                let key = Key::row(key);
                if self.last_row.as_ref().is_some_and(|last| *last >= key) {
                    return Err(damage_error(format!("row {} is out of order", hex(&key[1..]))));
                }
                self.last_row = Some(key.clone());
                let row = row::seal(&key, value);
                self.put(key, row)
            }
        }
    }

    fn put(&mut self, key: Key, row: Bytes) -> Result<()> {
        self.row_bytes += key.len() + row.len();
        self.rows.push((key, Some(row)));
        if self.row_bytes >= BATCH_BYTES || self.rows.len() >= BATCH_ROWS { self.load() } else { Ok(()) }
    }

    fn load(&mut self) -> Result<()> {
        self.row_bytes = 0;
        self.batches.send(std::mem::take(&mut self.rows)).map_err(|_| loader_has_ended())
    }

    /// All items were shown; the store had been opened so often.
    fn end(mut self, opened: Option<u32>) -> Result<()> {
        self.end_content()?;
        let times = opened.ok_or_else(|| damage_error("it does not contain the count of openings"))?;
        self.put(Key::system(key::INCARNATION), Bytes::copy_from_slice(&times.to_be_bytes()))?;
        self.load()
    }

    fn begin_content(&mut self, id: ContentId, size: u64) -> Result<()> {
        self.end_content()?;
        if self.last_content.is_some_and(|last| last >= id) {
            return Err(damage_error(format!("content {id} is out of order")));
        }
        if size > limits::BLOB {
            return Err(damage_error(format!("content {id} has {size} bytes")));
        }
        // A store has created fewer contents than this before the next position, so later contents get other numbers.
        self.content_count += 1;
        if self.content_count > self.version << 16 {
            return Err(damage_error(format!("it has more contents than are possible at position {}", self.version)));
        }
        self.last_content = Some(id);
        let head = ContentHead { size, data: DataId(self.content_count) };
        let row = BytesMut::from(&head.encode(id)[..]);
        self.content = Some(ContentInProgress { id, head, row, next_chunk: 0 });
        Ok(())
    }

    fn end_content(&mut self) -> Result<()> {
        match self.content.take() {
            Some(content) => self.put(Key::content(content.id), content.row.freeze()),
            None => Ok(()),
        }
    }

    fn chunk(&mut self, index: u64, encode: impl FnOnce(&mut BytesMut)) -> Result<()> {
        let content = self.content.as_mut().ok_or_else(|| damage_error("a chunk comes before its content"))?;
        if index < content.next_chunk || index >= content.head.size.div_ceil(CHUNK as u64) {
            return Err(damage_error(format!("chunk {index} of content {} is out of order", content.id)));
        }
        content.next_chunk = index + 1;
        if index == 0 {
            encode(&mut content.row);
            return Ok(());
        }
        let key = Key::chunk(content.head.data, index);
        let mut row = BytesMut::new();
        encode(&mut row);
        self.put(key, row.freeze())
    }
}

/// The blob files of the new store.
struct RestoredBlobFiles {
    disk: Arc<dyn Disk>,
    store: StoreId,
    open_files: HashMap<u32, Arc<dyn DiskFile>>,
    written_chunks: ChunkSet,
}

impl RestoredBlobFiles {
    fn new(disk: Arc<dyn Disk>, store: StoreId) -> io::Result<Self> {
        disk.make_dir(blob_file::DIR)?;
        Ok(Self { disk, store, open_files: HashMap::new(), written_chunks: ChunkSet::default() })
    }

    /// Writes a chunk at its position.
    fn write_chunk(&mut self, file: u32, offset: u64, crc: u32, bytes: &[u8]) -> Result<Extent> {
        if self.written_chunks.contains(file, offset) {
            return Err(damage_error("two chunks have the same position"));
        }
        if crc32c(bytes) != crc {
            return Err(damage_error("the checksum of a chunk does not match"));
        }
        self.write(file, offset, bytes).map_err(blob_file_error)?;
        self.written_chunks.insert(file, offset);
        let mut blocks = BytesMut::with_capacity(CHUNK / row::BLOCK * 4);
        block_checksums(bytes).for_each(|crc| blocks.put_u32_le(crc));
        Ok(Extent { file, offset, len: CHUNK as u32, crc, blocks: blocks.freeze() })
    }

    fn write(&mut self, number: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let file = self.file(number)?;
        let at = blob_file::position_in_file(offset);
        file.write_at(at, bytes)?;
        file.begin_write_back(at, bytes.len() as u64);
        Ok(())
    }

    fn file(&mut self, number: u32) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(file) = self.open_files.get(&number) {
            return Ok(Arc::clone(file));
        }
        let name = blob_file::file_name(number);
        let file = match self.written_chunks.has_file(number) {
            true => self.disk.open(&name)?,
            false => blob_file::create(&*self.disk, &self.store, number)?,
        };
        if self.open_files.len() >= OPEN_FILES {
            for (_, file) in self.open_files.drain() {
                file.force()?;
            }
        }
        self.open_files.insert(number, Arc::clone(&file));
        Ok(file)
    }

    /// Makes all chunks durable.
    fn force(&mut self) -> io::Result<()> {
        for (_, file) in self.open_files.drain() {
            file.force()?;
        }
        self.disk.force_names(blob_file::DIR)
    }
}
