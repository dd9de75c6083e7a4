//! Installing: moves the frozen buffer into the B-tree in one sorted, durable batch, then frees log segments.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use model::{ErrorKind, Result};
use parking_lot::{Condvar, Mutex};

use super::Core;
use super::housekeeping::Housekeeping;
use crate::engine::{BatchAborted, EngineError, EngineRow, FAILED_READS};
use crate::error::{self, IntoModelResult, corrupt_row};
use crate::plant::{Bug, FaultBug, planted};
use crate::read::layers::{Layers, ReadPosition};
use crate::read::view::View;
use crate::rows::key::{self, Key, table};
use crate::rows::mob::{Mob, Row, Seq};
use crate::rows::patch::Patch;
use crate::rows::row::{self, BLOCK, CHUNK, RowError};

/// How long changes stay in a buffer that is not full.
const INSTALL_INTERVAL: Duration = Duration::from_secs(2);
/// The `nice` value of the installer's thread.
const NICE: i32 = 10;
/// The delay before a failed installation is retried.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// What the installer shares with the threads that commit.
///
/// 1. One frozen buffer is installed at a time, under `install_lock`.
/// 2. While `install_lock` is held, no row moves from the buffer to the B-tree.
/// 3. `disk_full` and `failure` describe the last installation; both are clear after a success.
pub(crate) struct Installer {
    pub(super) install_lock: Mutex<()>,
    pub(super) housekeeping: Mutex<Housekeeping>,
    wakeup: Condvar,
    /// An installed and emptied buffer for the next freeze.
    spare_mob: Mutex<Option<Mob>>,
    disk_full: AtomicBool,
    failure: Mutex<Option<String>>,
    /// Batches that failed, one after the other, because a chunk could not be read.
    failed_reads: AtomicU32,
    /// Whether a background removal is under way.
    pub(super) reclaiming: Arc<AtomicBool>,
}

impl Installer {
    pub(crate) fn new() -> Self {
        Self {
            install_lock: Mutex::new(()),
            housekeeping: Mutex::default(),
            wakeup: Condvar::new(),
            spare_mob: Mutex::new(None),
            disk_full: AtomicBool::new(false),
            failure: Mutex::new(None),
            failed_reads: AtomicU32::new(0),
            reclaiming: Arc::default(),
        }
    }

    /// Whether the last installation found the disk full.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.disk_full.load(Ordering::Relaxed)
    }

    /// Why the last installation failed, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// An empty buffer.
    pub(crate) fn take_spare_mob(&self) -> Mob {
        self.spare_mob.lock().take().unwrap_or_else(Mob::new)
    }

    /// Wakes the installer, even if it is about to wait.
    pub(crate) fn wake(&self) {
        let _housekeeping = self.housekeeping.lock();
        self.wakeup.notify_one();
    }

    /// Wakes the installer if it already waits; otherwise the installer continues after its interval.
    pub(crate) fn try_wake(&self) {
        self.wakeup.notify_one();
    }

    /// Ends the installer's thread.
    pub(crate) fn close(&self) {
        self.housekeeping.lock().closing = true;
        self.wakeup.notify_all();
    }
}

impl Core {
    /// Installs the frozen buffer, if there is one and all of it is durable.
    pub(crate) fn install(&self) -> Result<bool> {
        let _one_at_a_time = self.installer.install_lock.lock();
        let view = self.state.view.load_full();
        let (Some(frozen), Some(durable)) = (view.frozen.clone(), self.durable()) else { return Ok(false) };
        drop(view);
        if frozen.end().seq > self.state.visible_seq() {
            return Ok(false);
        }
        let began = Instant::now();
        let punched = std::mem::take(&mut self.installer.housekeeping.lock().punched);
        let mut batch = InstallBatch { core: self, frozen: &frozen, freed: Vec::new(), failed: None, rows: 0 };
        if let Err(error) = batch.write(&punched) {
            if !planted(FaultBug::PunchedRowsForgotten) {
                self.installer.housekeeping.lock().punched.extend(punched);
            }
            return Err(error);
        }
        let (rows, freed) = (batch.rows, batch.freed);
        self.installer.failed_reads.store(0, Ordering::Relaxed);
        {
            let _writer = self.pipeline.writer.lock();
            let active = Arc::clone(&self.state.view.load().active);
            self.state.view.store(Arc::new(View { active, frozen: None }));
        }
        // Readers that began before this line may still read freed extents.
        let last = self.state.visible_seq();
        self.installer
            .housekeeping
            .lock()
            .freed
            .extend(freed.into_iter().map(|(file, offset, len)| (last, file, offset, len)));
        durable.log.free(frozen.end().seq).map_err(|e| error::io("freeing a log segment", e))?;
        self.counters.record_install(rows, began.elapsed());
        // A buffer that a reader still holds is freed with that reader, and one that a large transaction has filled is not kept.
        if frozen.bytes() <= self.options.mob_bytes
            && let Ok(mut frozen) = Arc::try_unwrap(frozen)
        {
            frozen.clear();
            *self.installer.spare_mob.lock() = Some(frozen);
        }
        Ok(true)
    }

    /// Lets the next batch count what it cannot read as damaged.
    pub(crate) fn give_up_unreadable(&self) {
        self.installer.failed_reads.store(FAILED_READS, Ordering::Relaxed);
    }

    /// Freezes and installs everything that is durable now.
    pub(crate) fn install_all(&self) -> Result<()> {
        if !self.is_durable() {
            return Ok(());
        }
        self.install_and_record()?;
        self.freeze_if_idle();
        while self.state.view.load().frozen.is_some() {
            if !self.options.threads {
                self.force()?;
            }
            if !self.install_and_record()? {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.pipeline.queue.wake();
        Ok(())
    }

    /// Freezes the buffer unless one is frozen already.
    pub(crate) fn freeze_if_idle(&self) {
        let mut writer = self.pipeline.writer.lock();
        let view = self.state.view.load();
        if view.frozen.is_none() && !view.active.is_empty() {
            self.freeze(&mut writer, &view);
        }
    }

    /// Installs the frozen buffer and records the result, which determines whether changes are refused.
    pub(crate) fn install_and_record(&self) -> Result<bool> {
        let installed = self.install();
        let full = matches!(&installed, Err(error) if error.kind() == ErrorKind::Full);
        if full || !planted(Bug::FullDiskStays) {
            self.installer.disk_full.store(full, Ordering::Relaxed);
        }
        *self.installer.failure.lock() = installed.as_ref().err().map(ToString::to_string);
        installed
    }

    /// The loop of the installer's thread.
    pub(crate) fn run_installer(&self) {
        // Installing has lower priority than transactions, which wait for room if it falls behind. Without permission
        // to change its priority, the thread keeps the default one.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
        let mut next_rest = Instant::now() + INSTALL_INTERVAL;
        loop {
            {
                let mut housekeeping = self.installer.housekeeping.lock();
                let waiting = self.state.view.load().frozen.is_some();
                if housekeeping.closing {
                    return;
                }
                let busy = waiting || self.installer.reclaiming.load(Ordering::Acquire);
                let pause = if busy { Duration::from_millis(1) } else { INSTALL_INTERVAL };
                self.installer.wakeup.wait_for(&mut housekeeping, pause);
                if housekeeping.closing {
                    return;
                }
            }
            if self.is_durable() && Instant::now() >= next_rest {
                next_rest = Instant::now() + INSTALL_INTERVAL;
                self.state.engine.forget_some_checks();
                let mut writer = self.pipeline.writer.lock();
                let view = self.state.view.load();
                if view.frozen.is_none() && !view.active.is_empty() {
                    self.freeze(&mut writer, &view);
                } else if view.active.is_empty() {
                    *self.installer.spare_mob.lock() = None;
                }
            }
            if let Err(error) = self.install_and_record() {
                tracing::error!(%error, "cannot install changes; retrying");
                self.pipeline.queue.wake();
                std::thread::sleep(RETRY_DELAY);
                continue;
            }
            self.pipeline.queue.wake();
            if let Err(error) = self.do_housekeeping() {
                tracing::warn!(%error, "housekeeping failed; retrying");
            }
        }
    }
}

/// The rows of a frozen buffer during an installation.
struct InstallBatch<'a> {
    core: &'a Core,
    frozen: &'a Mob,
    /// File, offset and length of each extent that no chunk uses any more.
    freed: Vec<(u32, u64, u32)>,
    failed: Option<model::Error>,
    rows: usize,
}

impl InstallBatch<'_> {
    fn write(&mut self, punched: &[Key]) -> Result<()> {
        let core = self.core;
        let mut end = self.frozen.end();
        end.seq += Seq::from(planted(Bug::InstalledTooHigh));
        let installed = (Key::system(key::INSTALLED), Some(Bytes::copy_from_slice(&end.to_row())));
        let mut result = Ok(());
        core.state
            .engine
            .read(&mut |engine| {
                let empty = Mob::new();
                let layers = Layers {
                    changes: None,
                    active: self.frozen,
                    frozen: Some(&empty),
                    at: ReadPosition::Seq(Seq::MAX),
                    engine,
                    files: core.state.files(),
                };
                let own = [installed.clone()].into_iter().chain(punched.iter().map(|key| (key.clone(), None)));
                let rows = self.frozen.newest_rows().into_iter();
                let rows = InstallRows { batch: self, layers, rows, freed: Vec::new() };
                result = core.state.engine.write(&mut rows.chain(own.map(Ok)));
            })
            .into_model_result()?;
        match (result, self.failed.take()) {
            (Err(EngineError::Aborted), Some(error)) => Err(error),
            (result, _) => result.into_model_result(),
        }
    }
}

/// Iterates over the buffer in key order; rows for freed extents are inserted where they arise.
struct InstallRows<'a, 'b> {
    batch: &'a mut InstallBatch<'b>,
    layers: Layers<'a>,
    rows: std::vec::IntoIter<(Key, Row)>,
    /// Rows that record freed extents.
    freed: Vec<EngineRow>,
}

impl Iterator for InstallRows<'_, '_> {
    type Item = Result<EngineRow, BatchAborted>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(row) = self.freed.pop() {
            return Some(Ok(row));
        }
        let is_lost = |row: &Row| planted(Bug::RemovalNotInstalled) && matches!(row, Row::Tombstone);
        let (key, row) = self.rows.find(|(_, row)| !is_lost(row))?;
        match self.row(&key, row) {
            Ok(value) => {
                self.batch.rows += 1;
                Some(Ok((key, value)))
            }
            Err(error) => {
                self.batch.failed = Some(error);
                Some(Err(BatchAborted))
            }
        }
    }
}

impl InstallRows<'_, '_> {
    /// The row for the B-tree; `None` removes it.
    fn row(&mut self, key: &Key, row: Row) -> Result<Option<Bytes>> {
        Ok(match row {
            Row::Value(value) => Some(value),
            Row::Shared(value, checksum) => Some(row::seal_with_checksum(&value, checksum)),
            Row::Patch(patch) => Some(self.merge(key, &patch)?),
            Row::Tombstone => {
                self.free_extent(key);
                None
            }
        })
    }

    /// Records an extent that no chunk uses until its storage is freed.
    fn free_extent(&mut self, key: &Key) {
        if let (table::EXTENT, Some((file, offset))) = (Key::table_of(key), key::extent_of(key)) {
            let len = CHUNK as u32;
            self.batch.freed.push((file, offset, len));
            if !planted(FaultBug::FreedExtentNotRecorded) {
                self.freed.push((Key::freed_extent(file, offset), Some(Bytes::copy_from_slice(&len.to_be_bytes()))));
            }
        }
    }

    /// A patched chunk merged with its base.
    fn merge(&self, key: &Key, patch: &Patch) -> Result<Bytes> {
        let mut chunk = vec![0; CHUNK];
        let mut damaged = Vec::new();
        let failed_reads = &self.batch.core.installer.failed_reads;
        let is_given_up =
            failed_reads.load(Ordering::Relaxed) >= FAILED_READS && !planted(FaultBug::UnreadableChunkStops);
        let is_damage = |error: &model::Error| match error.kind() {
            ErrorKind::Io => is_given_up,
            kind => kind == ErrorKind::Corrupt,
        };
        match self.layers.fill_patched(key, patch, 0, &mut chunk) {
            Err(error) if is_damage(&error) => {
                tracing::error!(%error, "installing the undamaged blocks of a chunk");
                for (i, block) in chunk.chunks_mut(BLOCK).enumerate() {
                    match self.layers.fill_patched(key, patch, i * BLOCK, block) {
                        Err(error) if is_damage(&error) => damaged.push(i),
                        filled => filled?,
                    }
                }
            }
            Err(error) => {
                failed_reads.fetch_add(u32::from(error.kind() == ErrorKind::Io), Ordering::Relaxed);
                return Err(error);
            }
            Ok(()) => {}
        }
        let mut len = chunk.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        if let Some(last) = damaged.last() {
            len = len.max((last + 1) * BLOCK);
        }
        let mut row = BytesMut::with_capacity(patch.head.len() + row::inline_len(len));
        row.extend_from_slice(&patch.head);
        row::put_inline(&mut row, &chunk[..len]);
        for block in damaged.into_iter().filter(|_| !planted(FaultBug::DamagedBlocksLost)) {
            row::mark_damaged(&mut row[patch.head.len()..], block);
        }
        if row.is_empty() && Key::table_of(key) == table::CONTENT {
            return Err(corrupt_row("a content in the buffer", RowError::Short));
        }
        Ok(row.freeze())
    }
}
