//! The parts of an open store and how they are read together.

use std::cell::Cell;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use hashbrown::{HashMap, HashSet};
use model::{Oid, Result, UploadId};
use parking_lot::{Condvar, Mutex};

use crate::commit::WriterState;
use crate::commit::install::Housekeeping;
use crate::commit::queue::CommitQueue;
use crate::content::blob_file::BlobFiles;
use crate::content::upload::Upload;
use crate::engine::{Engine, EngineRead, EngineResult, RowVisitor};
use crate::error::IntoModelResult;
use crate::log::frame::StoreId;
use crate::log::{FrameBatch, Log};
use crate::options::Options;
use crate::read::layers::{Layers, ReadPosition};
use crate::read::listing_cache::ListingCache;
use crate::read::view::{Pin, PinTable, View};
use crate::rows::key::DataId;
use crate::rows::mob::Mob;
use crate::rows::row::CHUNK;
use crate::status::Counters;

/// An open store, shared by its handles and its threads.
pub(crate) struct Core {
    pub(crate) options: Options,
    pub(crate) dir: Option<PathBuf>,
    /// Keeps other processes out of the directory.
    pub(crate) lock: Option<File>,
    pub(crate) id: StoreId,
    pub(crate) engine: Box<dyn Engine>,
    /// What makes a store durable; a store in memory has none.
    pub(crate) durable: Option<DurableFiles>,
    pub(crate) view: ArcSwap<View>,
    /// A buffer that was installed and emptied, for the next freeze.
    pub(crate) spare_mob: Mutex<Option<Mob>>,
    /// The newest position that is durable and may be seen.
    pub(crate) visible_seq: AtomicU64,
    pub(crate) pins: Arc<PinTable>,
    pub(crate) commit_queue: CommitQueue,
    /// Held while transactions are applied.
    pub(crate) writer: Mutex<WriterState>,
    /// Held while a batch is forced, so that batches follow each other in the log; has buffers for the next but one.
    pub(crate) force_lock: Mutex<FrameBatch>,
    pub(crate) housekeeping: Mutex<Housekeeping>,
    /// Wakes the installer.
    pub(crate) installer_wakeup: Condvar,
    /// Whether the last installation found the disk full.
    pub(crate) disk_full: AtomicBool,
    /// Why the last installation failed, if it did.
    pub(crate) install_failed: Mutex<Option<String>>,
    /// Whether a background removal is under way.
    pub(crate) reclaiming: Arc<AtomicBool>,
    pub(crate) install_lock: Mutex<()>,
    pub(crate) create_space_lock: Mutex<()>,
    pub(crate) uploads: Mutex<HashMap<UploadId, Arc<Mutex<Upload>>>>,
    /// Contents of uploads that a transaction is taking.
    pub(crate) finishing_uploads: Mutex<HashSet<DataId>>,
    pub(crate) next_upload: AtomicU64,
    pub(crate) listing_cache: ListingCache,
    /// How often the store was opened.
    pub(crate) incarnation: AtomicU32,
    pub(crate) counters: Counters,
}

/// Stands in for the B-tree to find out whether a read needs it.
struct EngineProbe(Cell<bool>);

impl EngineRead for EngineProbe {
    fn get<'a>(&'a self, _: &[u8]) -> EngineResult<Option<&'a [u8]>> {
        self.0.set(false);
        Ok(None)
    }

    fn range(&self, _: &[u8], _: &[u8], _: &mut RowVisitor<'_>) -> EngineResult<()> {
        self.0.set(false);
        Ok(())
    }

    fn range_back(&self, _: &[u8], _: &[u8], _: &mut RowVisitor<'_>) -> EngineResult<()> {
        self.0.set(false);
        Ok(())
    }
}

/// The log and the blob files.
pub(crate) struct DurableFiles {
    pub(crate) log: Log,
    pub(crate) files: BlobFiles,
}

impl Core {
    pub(crate) fn files(&self) -> Option<&BlobFiles> {
        self.durable.as_ref().map(|durable| &durable.files)
    }

    /// Reads single rows of the newest durable state: each row by itself, not several against each other.
    pub(crate) fn read_row<T>(&self, mut read: impl FnMut(&Layers<'_>) -> Result<T>) -> Result<T> {
        let view = self.view.load();
        let mut read_on = |engine: &dyn EngineRead| {
            read(&Layers {
                changes: None,
                active: &view.active,
                frozen: view.frozen.as_deref(),
                at: ReadPosition::Newest(&self.visible_seq),
                engine,
                files: self.files(),
            })
        };
        if !view.active.is_empty() || view.frozen.is_some() {
            let untouched = EngineProbe(Cell::new(true));
            let result = read_on(&untouched);
            if untouched.0.get() {
                return result;
            }
        }
        self.read_engine(read_on)
    }

    /// Reads one durable state.
    pub(crate) fn read_state<T>(&self, mut read: impl FnMut(&Layers<'_>) -> Result<T>) -> Result<T> {
        loop {
            let view = self.view.load();
            let done = self.read_engine(|engine| {
                let pin = PinTable::pin(&*self.pins, || self.visible_seq());
                if !self.is_current(&view) {
                    return Ok(None);
                }
                let layers = Layers {
                    changes: None,
                    active: &view.active,
                    frozen: view.frozen.as_deref(),
                    at: ReadPosition::Seq(pin.seq),
                    engine,
                    files: self.files(),
                };
                read(&layers).map(Some)
            })?;
            if let Some(done) = done {
                return Ok(done);
            }
        }
    }

    /// Whether a view is the newest. If it is, and the B-tree's state was taken after it, then all that was durable then
    /// is in the two together, and the B-tree has nothing that is not in them at the position pinned in between.
    pub(crate) fn is_current(&self, view: &Arc<View>) -> bool {
        Arc::ptr_eq(view, &self.view.load())
    }

    pub(crate) fn read_engine<T>(&self, read: impl FnOnce(&dyn EngineRead) -> Result<T>) -> Result<T> {
        let mut read = Some(read);
        let mut result = None;
        self.engine.read(&mut |engine| result = read.take().map(|read| read(engine))).into_model_result()?;
        result.unwrap_or_else(|| Err(model::Error::new(model::ErrorKind::Internal, "the B-tree was not read")))
    }

    /// Where a blob ends, if that is where a chunk begins and `len` more bytes have a whole one.
    pub(crate) fn aligned_end(&self, oid: Oid, len: usize) -> Result<Option<u64>> {
        if len < CHUNK || oid.is_temporary() || self.durable.is_none() {
            return Ok(None);
        }
        let size = self.read_row(|layers| Ok(layers.object(oid)?.map(|object| object.head.size)))?;
        Ok(size.filter(|size| size.is_multiple_of(CHUNK as u64)))
    }

    pub(crate) fn pin(&self) -> Pin<Arc<PinTable>> {
        PinTable::pin(Arc::clone(&self.pins), || self.visible_seq())
    }

    pub(crate) fn visible_seq(&self) -> u64 {
        self.visible_seq.load(Ordering::SeqCst)
    }
}
