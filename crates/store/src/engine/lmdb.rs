//! The engine on LMDB: one B-tree in one file, read from its memory map.
//!
//! LMDB never overwrites a page that a reader may see, so it needs no recovery: after a crash it opens in the state of
//! the last durable batch.
//!
//! The map is as long as LMDB's meta page says, whatever the length of the file, and reading beyond the end of the file
//! would kill the process. So a truncated file is refused when it is opened. LMDB does not write pages that a batch
//! allocates and frees again, so the file could end before the last page that LMDB counts. This engine extends the file
//! before each commit of a batch and truncates it to the counted pages afterwards.

mod residency;

use std::convert::Infallible;
use std::fs;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use heed::types::Bytes as Raw;
use heed::{CommitOrAbort, Database, Env, EnvOpenOptions, MdbError, RoTxn, WithoutTls};
use parking_lot::Mutex;

use super::{BatchAborted, Engine, EngineError, EnginePin, EngineRead, EngineResult, EngineRow, RowVisitor};
use residency::ResidencyProbe;

/// Address space reserved for the map. This is only an upper bound: the file grows with its rows.
const MAP_SIZE: usize = 1 << 40;
/// Maximum number of concurrent reads, including snapshots.
const MAX_READERS: u32 = 4096;

/// LMDB's file in the engine's directory.
const FILE: &str = "data.mdb";
/// Pages that a batch may take in addition to those of its rows: the list of free pages, and new roots.
const BATCH_PAGES: u64 = 1 << 12;
/// Pages that a row may take in addition to those of its value: the path to its leaf, with a split of each page.
const ROW_PAGES: u64 = 16;

/// Read transactions kept for the next read.
const READER_SLOTS: usize = 64;

/// The LMDB engine.
///
/// Beginning a read transaction costs as much as a look-up. So a read transaction is kept for the next read of its
/// thread until the next batch is written; until then it shows the newest state.
pub(crate) struct LmdbEngine {
    reader_slots: Box<[ReaderSlot]>,
    /// Batches written so far.
    batches: AtomicU64,
    env: Env<WithoutTls>,
    rows: Database<'static, Raw, Raw>,
    file: DataFile,
    residency: ResidencyProbe,
}

/// The mapped file.
struct DataFile {
    path: PathBuf,
    file: fs::File,
    page_size: u64,
}

/// Why the file was refused.
#[derive(Debug, thiserror::Error)]
#[error("{path} was truncated: it has {found} bytes and needs {needed}")]
struct TruncatedFile {
    path: String,
    found: u64,
    needed: u64,
}

/// A kept read transaction. Each thread has a slot with its own cache lines.
#[repr(align(128))]
struct ReaderSlot(Mutex<Option<CachedRead>>);

struct CachedRead {
    /// The number of batches before the transaction began.
    batches: u64,
    read: LmdbRead<'static>,
}

struct LmdbRead<'a> {
    txn: RoTxn<'a, WithoutTls>,
    rows: Database<'static, Raw, Raw>,
}

/// A read transaction may move between threads but is used by one at a time.
struct LmdbPin(Mutex<LmdbRead<'static>>);

impl LmdbEngine {
    /// Opens the engine in `dir`, which must exist.
    ///
    /// The caller holds the store's lock: no other process may have the directory open.
    pub(crate) fn open(dir: &Path) -> EngineResult<Self> {
        crate::disk::create_private_dir(dir).map_err(io_error)?;
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(MAP_SIZE).max_readers(MAX_READERS);
        // SAFETY: the map is a file in our own directory, and the store's lock prevents other processes from opening
        // it.
        let env = unsafe { options.open(dir) }.map_err(heed_error)?;
        env.clear_stale_readers().map_err(heed_error)?;
        let txn = env.write_txn().map_err(heed_error)?;
        let created = env.create_databases_and_commit(txn, |opener, txn| {
            opener.create_database(txn, None).map(CommitOrAbort::<_, Infallible>::Commit)
        });
        let CommitOrAbort::Commit(rows) = created.map_err(heed_error)?;
        let file = DataFile::open(dir, &env, rows)?;
        file.check(&env)?;
        let residency = ResidencyProbe::open(&file.path, file.page_size).map_err(io_error)?;
        // LMDB forces its file but not the name of the file.
        fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error)?;
        let parked = (0..READER_SLOTS).map(|_| ReaderSlot(Mutex::new(None))).collect();
        Ok(Self { reader_slots: parked, batches: AtomicU64::new(0), env, rows, file, residency })
    }
}

impl LmdbEngine {
    fn begin(&self) -> EngineResult<LmdbRead<'static>> {
        let txn = self.env.clone().static_read_txn().map_err(heed_error)?;
        Ok(LmdbRead { txn, rows: self.rows })
    }
}

impl DataFile {
    fn open(dir: &Path, env: &Env<WithoutTls>, rows: Database<'static, Raw, Raw>) -> EngineResult<Self> {
        let path = dir.join(FILE);
        let file = fs::OpenOptions::new().write(true).open(&path).map_err(io_error)?;
        let txn = env.read_txn().map_err(heed_error)?;
        // From the meta page; no other page is read.
        let page_size = rows.stat(&txn).map_err(heed_error)?.page_size.into();
        Ok(Self { path, file, page_size })
    }

    fn len(&self) -> EngineResult<u64> {
        self.file.metadata().map(|meta| meta.len()).map_err(io_error)
    }

    /// Bytes up to the last page of the newest batch.
    fn used_len(&self, env: &Env<WithoutTls>) -> u64 {
        (env.info().last_page_number as u64 + 1) * self.page_size
    }

    /// Refuses a file that is shorter than its meta page requires.
    fn check(&self, env: &Env<WithoutTls>) -> EngineResult<()> {
        let (found, needed) = (self.len()?, self.used_len(env));
        if found < needed {
            let path = self.path.display().to_string();
            return Err(EngineError::Damaged(Box::new(TruncatedFile { path, found, needed })));
        }
        Ok(())
    }

    /// Extends the file for a batch that takes up to `pages` pages. Allocates no disk space.
    fn lengthen(&self, env: &Env<WithoutTls>, pages: u64) -> EngineResult<()> {
        let wanted = self.used_len(env).saturating_add(pages.saturating_mul(self.page_size));
        if self.len()? < wanted { self.file.set_len(wanted).map_err(io_error) } else { Ok(()) }
    }

    /// Truncates the file after the last counted page. No reader reads there.
    fn trim(&self, env: &Env<WithoutTls>) -> EngineResult<()> {
        self.file.set_len(self.used_len(env)).map_err(io_error)
    }
}

/// The next slot for a thread's read transaction.
static NEXT_READER_SLOT: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    static READER_SLOT: usize = NEXT_READER_SLOT.fetch_add(1, Ordering::Relaxed);
}

fn io_error(error: io::Error) -> EngineError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => EngineError::Full(Box::new(error)),
        _ => EngineError::Failed(Box::new(error)),
    }
}

fn heed_error(error: heed::Error) -> EngineError {
    use MdbError::{Corrupted, Invalid, MapFull, PageNotFound, VersionMismatch};
    match &error {
        heed::Error::Io(e) if matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
            EngineError::Full(Box::new(error))
        }
        heed::Error::Mdb(MapFull) => EngineError::Full(Box::new(error)),
        heed::Error::Mdb(Invalid | Corrupted | PageNotFound | VersionMismatch) => EngineError::Damaged(Box::new(error)),
        _ => EngineError::Failed(Box::new(error)),
    }
}

impl EngineRead for LmdbRead<'_> {
    fn get<'a>(&'a self, key: &[u8]) -> EngineResult<Option<&'a [u8]>> {
        self.rows.get(&self.txn, key).map_err(heed_error)
    }

    fn range(&self, from: &[u8], to: &[u8], show: &mut RowVisitor<'_>) -> EngineResult<()> {
        if from >= to {
            return Ok(());
        }
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        for row in self.rows.range(&self.txn, &bounds).map_err(heed_error)? {
            let (key, value) = row.map_err(heed_error)?;
            if show(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn range_back(&self, from: &[u8], to: &[u8], show: &mut RowVisitor<'_>) -> EngineResult<()> {
        if from >= to {
            return Ok(());
        }
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        for row in self.rows.rev_range(&self.txn, &bounds).map_err(heed_error)? {
            let (key, value) = row.map_err(heed_error)?;
            if show(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl EnginePin for LmdbPin {
    fn read(&self, read: &mut dyn FnMut(&dyn EngineRead)) {
        read(&*self.0.lock());
    }
}

impl Engine for LmdbEngine {
    fn read(&self, read: &mut dyn FnMut(&dyn EngineRead)) -> EngineResult<()> {
        let place = READER_SLOT.with(|place| *place) % READER_SLOTS;
        let Some(mut parked) = self.reader_slots[place].0.try_lock() else {
            let txn = self.env.read_txn().map_err(heed_error)?;
            read(&LmdbRead { txn, rows: self.rows });
            return Ok(());
        };
        let batches = self.batches.load(Ordering::Acquire);
        let usable = parked.take().filter(|parked| parked.batches == batches);
        let mine = match usable {
            Some(mine) => mine,
            None => CachedRead { batches, read: self.begin()? },
        };
        read(&mine.read);
        // A batch that was written meanwhile did not clear this slot. An old state must not stay pinned.
        if self.batches.load(Ordering::Acquire) == batches {
            *parked = Some(mine);
        }
        Ok(())
    }

    fn pin(&self) -> EngineResult<Box<dyn EnginePin>> {
        Ok(Box::new(LmdbPin(Mutex::new(self.begin()?))))
    }

    fn write(&self, rows: &mut dyn Iterator<Item = Result<EngineRow, BatchAborted>>) -> EngineResult<()> {
        let mut txn = self.env.write_txn().map_err(heed_error)?;
        let mut pages = BATCH_PAGES;
        for row in rows {
            let (key, value) = row.map_err(|BatchAborted| EngineError::Aborted)?;
            pages += ROW_PAGES + value.as_ref().map_or(0, |value| value.len() as u64 / self.file.page_size);
            match value {
                Some(value) => self.rows.put(&mut txn, &key, &value).map_err(heed_error)?,
                None => {
                    self.rows.delete(&mut txn, &key).map_err(heed_error)?;
                }
            }
        }
        self.file.lengthen(&self.env, pages)?;
        txn.commit().map_err(heed_error)?;
        if let Err(error) = self.file.trim(&self.env) {
            tracing::warn!(%error, "cannot truncate the B-tree's file; it stays longer than needed");
        }
        self.residency.follow();
        self.batches.fetch_add(1, Ordering::AcqRel);
        for place in &self.reader_slots {
            if let Some(mut parked) = place.0.try_lock() {
                *parked = None;
            }
        }
        Ok(())
    }

    fn is_resident(&self, from: &[u8], to: &[u8]) -> bool {
        self.residency.is_resident(from, to)
    }

    fn size(&self) -> u64 {
        self.file.used_len(&self.env)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::key::Key;

    fn puts(numbers: std::ops::Range<u32>, size: usize) -> Vec<Result<EngineRow, BatchAborted>> {
        let value = bytes::Bytes::from(vec![7; size]);
        numbers.map(|n| Ok((Key::from(&n.to_be_bytes()[..]), Some(value.clone())))).collect()
    }

    fn removals(numbers: std::ops::Range<u32>) -> impl Iterator<Item = Result<EngineRow, BatchAborted>> {
        numbers.map(|n| Ok((Key::from(&n.to_be_bytes()[..]), None)))
    }

    #[test]
    fn a_truncated_file_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        LmdbEngine::open(dir.path()).unwrap().write(&mut puts(0..3000, 100).into_iter()).unwrap();
        let path = dir.path().join(FILE);
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        let whole = file.metadata().unwrap().len();
        assert!(LmdbEngine::open(dir.path()).is_ok());
        for len in [whole - 1, whole / 2, 2 * 4096, 4096 + 1, 1] {
            file.set_len(len).unwrap();
            let refused = LmdbEngine::open(dir.path()).err().unwrap();
            assert!(matches!(refused, EngineError::Damaged(_)), "{len} of {whole} bytes: {refused:?}");
            if len >= 2 * 4096 {
                let text = std::error::Error::source(&refused).unwrap().to_string();
                assert_eq!(text, format!("{} was truncated: it has {len} bytes and needs {whole}", path.display()));
            }
        }
    }

    #[test]
    fn a_batch_that_frees_pages_leaves_a_file_as_long_as_its_meta_page_requires() {
        let dir = tempfile::tempdir().unwrap();
        let engine = LmdbEngine::open(dir.path()).unwrap();
        let length_is_right = || assert_eq!(engine.file.len().unwrap(), engine.file.used_len(&engine.env));
        engine.write(&mut puts(0..3000, 100).into_iter()).unwrap();
        length_is_right();
        engine.write(&mut removals(500..2500)).unwrap();
        length_is_right();
        // The pages that a batch frees are reused by the next batch but one.
        engine.write(&mut puts(0..1, 100).into_iter()).unwrap();
        engine.write(&mut puts(0..1, 100).into_iter()).unwrap();
        // The large value goes to the end of the file and is removed again.
        let large = puts(5000..5001, 1 << 20).into_iter();
        engine.write(&mut puts(0..2, 100).into_iter().chain(large).chain(removals(5000..5001))).unwrap();
        length_is_right();
        drop(engine);
        assert!(LmdbEngine::open(dir.path()).is_ok());
    }

    #[test]
    fn a_batch_takes_no_more_pages_than_the_file_was_extended_by() {
        let dir = tempfile::tempdir().unwrap();
        let engine = LmdbEngine::open(dir.path()).unwrap();
        for size in [1, 2000, 2100, 70_000] {
            let before = engine.file.used_len(&engine.env) / engine.file.page_size;
            let value = bytes::Bytes::from(vec![size as u8; size]);
            // Distant keys, so that each row splits its own leaf.
            let rows = (0..2000_u32).map(|n| n.wrapping_mul(2_654_435_761) ^ size as u32);
            let mut rows = rows.map(|n| Ok((Key::from(&n.to_be_bytes()[..]), Some(value.clone()))));
            engine.write(&mut rows).unwrap();
            let taken = engine.file.used_len(&engine.env) / engine.file.page_size - before;
            let room = BATCH_PAGES + 2000 * (ROW_PAGES + size as u64 / engine.file.page_size);
            assert!(taken < room, "{taken} pages for 2000 rows of {size} bytes; room for {room}");
        }
    }
}
