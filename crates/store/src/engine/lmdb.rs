//! The engine on LMDB: one B-tree in one file, read straight from its memory map.
//!
//! LMDB never overwrites a page that a reader may see, so it needs no recovery: after a crash it opens at once in the
//! state of the last durable batch.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use heed::types::Bytes as Raw;
use heed::{CommitOrAbort, Database, Env, EnvOpenOptions, MdbError, RoTxn, WithoutTls};
use parking_lot::Mutex;

use super::{Engine, EngineError, EnginePin, EngineRead, EngineResult, EngineRow, GiveUp, ShowRow};

/// Address space kept for the map. It is only an upper bound: the file grows as rows come.
const MAP_SIZE: usize = 1 << 40;
/// Reads that may be under way at once, snapshots included.
const MAX_READERS: u32 = 4096;

/// Read transactions that are kept for the next read.
const PARKED: usize = 64;

/// The LMDB engine.
///
/// Beginning a read transaction costs as much as a look-up, so each is parked where the next read of its thread finds
/// it, until a batch is written: the state that it shows is the newest until then.
pub(crate) struct LmdbEngine {
    parked: Box<[Place]>,
    /// Batches written so far.
    batches: AtomicU64,
    env: Env<WithoutTls>,
    rows: Database<'static, Raw, Raw>,
}

/// Where one read transaction is parked, on cache lines of its own: each thread has its place.
#[repr(align(128))]
struct Place(Mutex<Option<Parked>>);

struct Parked {
    /// How many batches had been written before the transaction began.
    batches: u64,
    read: LmdbRead<'static>,
}

struct LmdbRead<'a> {
    txn: RoTxn<'a, WithoutTls>,
    rows: Database<'static, Raw, Raw>,
}

/// A read transaction may move between threads but be used by one at a time.
struct LmdbPin(Mutex<LmdbRead<'static>>);

impl LmdbEngine {
    /// Opens the engine in `dir`, which must exist.
    ///
    /// The caller holds the store's lock: no other process may have the directory open.
    pub(crate) fn open(dir: &Path) -> EngineResult<Self> {
        fs::create_dir_all(dir).map_err(|e| EngineError::Failed(Box::new(e)))?;
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(MAP_SIZE).max_readers(MAX_READERS);
        // SAFETY: the map is a file of our own directory, which the store's lock keeps other processes from opening.
        let env = unsafe { options.open(dir) }.map_err(failed)?;
        env.clear_stale_readers().map_err(failed)?;
        let txn = env.write_txn().map_err(failed)?;
        let created = env.create_databases_and_commit(txn, |opener, txn| {
            opener.create_database(txn, None).map(CommitOrAbort::<_, Infallible>::Commit)
        });
        let CommitOrAbort::Commit(rows) = created.map_err(failed)?;
        // LMDB forces what is in its file, not the file's name.
        fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(|e| EngineError::Failed(Box::new(e)))?;
        let parked = (0..PARKED).map(|_| Place(Mutex::new(None))).collect();
        Ok(Self { parked, batches: AtomicU64::new(0), env, rows })
    }
}

impl LmdbEngine {
    fn begin(&self) -> EngineResult<LmdbRead<'static>> {
        let txn = self.env.clone().static_read_txn().map_err(failed)?;
        Ok(LmdbRead { txn, rows: self.rows })
    }
}

/// Where a thread parks its read transactions.
static NEXT_PLACE: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    static PLACE: usize = NEXT_PLACE.fetch_add(1, Ordering::Relaxed);
}

fn failed(error: heed::Error) -> EngineError {
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
        self.rows.get(&self.txn, key).map_err(failed)
    }

    fn range(&self, from: &[u8], to: &[u8], show: &mut ShowRow<'_>) -> EngineResult<()> {
        if from >= to {
            return Ok(());
        }
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        for row in self.rows.range(&self.txn, &bounds).map_err(failed)? {
            let (key, value) = row.map_err(failed)?;
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
        let place = PLACE.with(|place| *place) % PARKED;
        let Some(mut parked) = self.parked[place].0.try_lock() else {
            let txn = self.env.read_txn().map_err(failed)?;
            read(&LmdbRead { txn, rows: self.rows });
            return Ok(());
        };
        let batches = self.batches.load(Ordering::Acquire);
        let usable = parked.take().filter(|parked| parked.batches == batches);
        let mine = match usable {
            Some(mine) => mine,
            None => Parked { batches, read: self.begin()? },
        };
        read(&mine.read);
        // A batch that was written meanwhile could not clear this place: an old state must not be kept from reuse.
        if self.batches.load(Ordering::Acquire) == batches {
            *parked = Some(mine);
        }
        Ok(())
    }

    fn pin(&self) -> EngineResult<Box<dyn EnginePin>> {
        Ok(Box::new(LmdbPin(Mutex::new(self.begin()?))))
    }

    fn write(&self, rows: &mut dyn Iterator<Item = Result<EngineRow, GiveUp>>) -> EngineResult<()> {
        let mut txn = self.env.write_txn().map_err(failed)?;
        for row in rows {
            let (key, value) = row.map_err(|GiveUp| EngineError::GivenUp)?;
            match value {
                Some(value) => self.rows.put(&mut txn, &key, &value).map_err(failed)?,
                None => {
                    self.rows.delete(&mut txn, &key).map_err(failed)?;
                }
            }
        }
        txn.commit().map_err(failed)?;
        self.batches.fetch_add(1, Ordering::AcqRel);
        for place in &self.parked {
            if let Some(mut parked) = place.0.try_lock() {
                *parked = None;
            }
        }
        Ok(())
    }

    fn size(&self) -> u64 {
        self.env.real_disk_size().unwrap_or(0)
    }
}
