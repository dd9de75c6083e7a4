//! The state that readers see: the buffers over the B-tree, the blob files, and a position of the log.
//!
//! 1. Every durable change is in the buffers of the current [`View`] or in the B-tree.
//! 2. `visible_seq` is the position of the last change that is durable. It only rises.
//! 3. The versions that a pinned position shows stay in the buffers until the pin is dropped.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use model::Result;

use crate::content::blob_file::BlobFiles;
use crate::engine::{Engine, EngineRead, EngineResult, RowVisitor};
use crate::error::IntoModelResult;
use crate::read::layers::{Layers, ReadPosition};
use crate::read::view::{Pin, PinTable, View};
use crate::rows::mob::Seq;

/// What a read needs. Commits change it (`commit`).
pub(crate) struct ReadState {
    pub(crate) engine: Box<dyn Engine>,
    /// `None` for a store in memory.
    pub(crate) files: Option<BlobFiles>,
    pub(crate) view: ArcSwap<View>,
    pub(crate) visible_seq: AtomicU64,
    pub(crate) pins: Arc<PinTable>,
}

/// Replaces the B-tree to find out whether a read needs it.
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

impl ReadState {
    pub(crate) fn new(engine: Box<dyn Engine>, files: Option<BlobFiles>, view: View, visible: Seq) -> Self {
        Self {
            engine,
            files,
            view: ArcSwap::from_pointee(view),
            visible_seq: AtomicU64::new(visible),
            pins: Arc::new(PinTable::new()),
        }
    }

    pub(crate) fn files(&self) -> Option<&BlobFiles> {
        self.files.as_ref()
    }

    /// Reads single rows of the newest durable state. Several rows may be of different states.
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

    /// Whether a row can probably be read without waiting for a disk.
    pub(crate) fn is_row_resident(&self, key: &[u8]) -> bool {
        let view = self.view.load();
        let untouched = EngineProbe(Cell::new(true));
        let found = Layers {
            changes: None,
            active: &view.active,
            frozen: view.frozen.as_deref(),
            at: ReadPosition::Newest(&self.visible_seq),
            engine: &untouched,
            files: self.files(),
        }
        .find(key);
        drop(found);
        untouched.0.get() || self.engine.is_resident(key, key)
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

    /// Whether a view is the newest. If it is, and the state of the B-tree was taken after it, then both together
    /// contain everything that was durable then, and the B-tree contains nothing beyond the position that was pinned in
    /// between.
    pub(crate) fn is_current(&self, view: &Arc<View>) -> bool {
        Arc::ptr_eq(view, &self.view.load())
    }

    pub(crate) fn read_engine<T>(&self, read: impl FnOnce(&dyn EngineRead) -> Result<T>) -> Result<T> {
        let mut read = Some(read);
        let mut result = None;
        self.engine.read(&mut |engine| result = read.take().map(|read| read(engine))).into_model_result()?;
        result.unwrap_or_else(|| Err(model::Error::new(model::ErrorKind::Internal, "the B-tree was not read")))
    }

    pub(crate) fn pin(&self) -> Pin<Arc<PinTable>> {
        PinTable::pin(Arc::clone(&self.pins), || self.visible_seq())
    }

    pub(crate) fn visible_seq(&self) -> u64 {
        self.visible_seq.load(Ordering::SeqCst)
    }
}
