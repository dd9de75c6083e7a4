//! Installing: moving the frozen buffer into the B-tree in one sorted, durable batch, and what follows from it: freeing
//! log segments, removing content that nobody has any more, and giving its storage back.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use model::{ErrorKind, Result};
use parking_lot::MutexGuard;

use crate::core::{Core, DurableFiles};
use crate::engine::{BatchAborted, Engine, EngineError, EngineRead, EngineRow};
use crate::error::{self, IntoModelResult, corrupt_row};
use crate::log::entry::Step;
use crate::plant::{Bug, planted};
use crate::read::layers::{Layers, ReadPosition};
use crate::read::view::View;
use crate::rows::key::{self, DataId, Key, table};
use crate::rows::mob::{Mob, Row, Seq};
use crate::rows::patch::Patch;
use crate::rows::row::{self, BLOCK, CHUNK, RowError};

/// How long changes stay in the buffer although it is not full.
const INSTALL_INTERVAL: Duration = Duration::from_secs(2);
/// The installer's priority, as of `nice`.
const NICE: i32 = 10;
/// How soon a failed installation is tried again.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Chunks that one background transaction removes.
const RECLAIM_CHUNKS: u64 = 2048;
/// Extents freed in one go.
const PUNCH_EXTENTS: usize = 4096;

/// What the installer still has to do.
#[derive(Default)]
pub(crate) struct Housekeeping {
    closing: bool,
    /// Extents that were freed, each with the newest position at which a reader may still look at it.
    freed: Vec<(Seq, u32, u64, u32)>,
    /// Rows of extents whose storage was given back; they go with the next batch.
    punched: Vec<Key>,
    /// Whether the blob files of earlier openings have been swept.
    swept: bool,
}

impl Core {
    /// Installs the frozen buffer, if there is one and all of it is durable.
    pub(crate) fn install(&self) -> Result<bool> {
        let _one_at_a_time = self.install_lock.lock();
        let view = self.view.load_full();
        let (Some(frozen), Some(durable)) = (view.frozen.clone(), &self.durable) else { return Ok(false) };
        drop(view);
        if frozen.last() > self.visible_seq() {
            return Ok(false);
        }
        let began = Instant::now();
        let punched = std::mem::take(&mut self.housekeeping.lock().punched);
        let mut batch = InstallBatch { core: self, frozen: &frozen, freed: Vec::new(), failed: None, rows: 0 };
        if let Err(error) = batch.write(&punched) {
            self.housekeeping.lock().punched.extend(punched);
            return Err(error);
        }
        let (rows, freed) = (batch.rows, batch.freed);
        {
            let _writer = self.writer.lock();
            let active = Arc::clone(&self.view.load().active);
            self.view.store(Arc::new(View { active, frozen: None }));
        }
        // Readers that began before this line may still look at what was freed.
        let last = self.visible_seq();
        self.housekeeping.lock().freed.extend(freed.into_iter().map(|(file, offset, len)| (last, file, offset, len)));
        durable.log.free(frozen.last()).map_err(|e| error::io("freeing a log segment", e))?;
        self.counters.record_install(rows, began.elapsed());
        // If somebody still reads from it, its memory goes with the last one who does.
        if let Ok(mut frozen) = Arc::try_unwrap(frozen) {
            frozen.clear();
            *self.spare_mob.lock() = Some(frozen);
        }
        Ok(true)
    }

    /// Freezes and installs everything that is durable now.
    pub(crate) fn install_all(&self) -> Result<()> {
        if self.durable.is_none() {
            return Ok(());
        }
        self.install_and_record()?;
        self.freeze_if_idle();
        while self.view.load().frozen.is_some() {
            if !self.options.threads {
                self.force()?;
            }
            if !self.install_and_record()? {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.commit_queue.wake();
        Ok(())
    }

    /// Freezes the buffer unless one is frozen already.
    pub(crate) fn freeze_if_idle(&self) {
        let mut writer = self.writer.lock();
        let view = self.view.load();
        if view.frozen.is_none() && !view.active.is_empty() {
            self.freeze(&mut writer, &view);
        }
    }

    /// Installs the frozen buffer and remembers how it went, which decides whether changes are refused.
    pub(crate) fn install_and_record(&self) -> Result<bool> {
        let installed = self.install();
        let full = matches!(&installed, Err(error) if error.kind() == ErrorKind::Full);
        if full || !planted(Bug::FullDiskStays) {
            self.disk_full.store(full, Ordering::Relaxed);
        }
        *self.install_failed.lock() = installed.as_ref().err().map(ToString::to_string);
        installed
    }

    /// The installer's life.
    pub(crate) fn run_installer(&self) {
        // Installing can wait, transactions cannot; where it waits too long, they wait for room. Without the permission
        // it goes on as everybody else.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
        let mut next_rest = Instant::now() + INSTALL_INTERVAL;
        loop {
            {
                let mut chores = self.housekeeping.lock();
                let waiting = self.view.load().frozen.is_some();
                if chores.closing {
                    return;
                }
                let busy = waiting || self.reclaiming.load(Ordering::Acquire);
                let pause = if busy { Duration::from_millis(1) } else { INSTALL_INTERVAL };
                self.installer_wakeup.wait_for(&mut chores, pause);
                if chores.closing {
                    return;
                }
            }
            if self.durable.is_some() && Instant::now() >= next_rest {
                next_rest = Instant::now() + INSTALL_INTERVAL;
                let mut writer = self.writer.lock();
                let view = self.view.load();
                if view.frozen.is_none() && !view.active.is_empty() {
                    self.freeze(&mut writer, &view);
                } else if view.active.is_empty() {
                    *self.spare_mob.lock() = None;
                }
            }
            if let Err(error) = self.install_and_record() {
                tracing::error!(%error, "cannot install changes; trying again");
                self.commit_queue.wake();
                std::thread::sleep(RETRY_DELAY);
                continue;
            }
            self.commit_queue.wake();
            if let Err(error) = self.do_housekeeping() {
                tracing::warn!(%error, "housekeeping failed; trying again");
            }
        }
    }

    /// What can be done beside installing.
    pub(crate) fn do_housekeeping(&self) -> Result<()> {
        let Some(durable) = &self.durable else {
            self.sweep_memory();
            return self.reclaim();
        };
        if let Err(error) = durable.log.ensure_spare() {
            tracing::warn!(%error, "cannot prepare a log segment");
        }
        self.reclaim()?;
        self.punch_freed(durable)?;
        if !self.housekeeping.lock().swept {
            self.sweep_blob_files(durable)?;
            self.housekeeping.lock().swept = true;
        }
        Ok(())
    }

    /// Removes a part of the content that no object has any more.
    fn reclaim(&self) -> Result<()> {
        if self.reclaiming.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut garbage = Vec::new();
        let prefix = Key::table(table::GARBAGE);
        let mut steps = Vec::new();
        self.read_state(|layers| {
            garbage.clear();
            steps.clear();
            layers.scan(&prefix, &prefix.prefix_end(), &mut |key, _| {
                garbage.extend(key::data_of(key).filter(|data| !self.is_uploading(*data)));
                if garbage.len() < 16 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            let mut left = RECLAIM_CHUNKS;
            for data in &garbage {
                steps.extend(reclaim_step(layers, *data, &mut left)?);
            }
            Ok(())
        })?;
        if !steps.is_empty() {
            self.submit_steps(steps, &self.reclaiming);
        }
        Ok(())
    }

    /// Gives back the storage of freed extents that no reader looks at any more.
    fn punch_freed(&self, durable: &DurableFiles) -> Result<()> {
        let oldest = self.pins.oldest().unwrap_or(Seq::MAX);
        let ready: Vec<_> = {
            let mut chores = self.housekeeping.lock();
            let mut ready = Vec::new();
            chores.freed.retain(|freed| {
                let take = freed.0 < oldest && ready.len() < PUNCH_EXTENTS;
                if take {
                    ready.push(*freed);
                }
                !take
            });
            ready
        };
        let mut extents: Vec<_> =
            ready.iter().map(|(_, file, from, len)| (*file, *from, from + u64::from(*len))).collect();
        extents.sort_unstable();
        // A large object's chunks lie side by side: one call gives back a whole run of them.
        let runs = extents.chunk_by(|(file, _, end), (next, from, _)| file == next && end == from);
        let punch = || {
            for run in runs {
                let [(file, from, _), ..] = *run else { continue };
                let to = run.last().map_or(from, |(_, _, to)| *to);
                durable.files.punch_hole(file, from, to - from).map_err(|e| error::io("freeing chunks", e))?;
            }
            let files: BTreeSet<u32> = extents.iter().map(|(file, ..)| *file).collect();
            // Those of this opening may still grow, and the next opening looks at all of them.
            files
                .into_iter()
                .filter(|file| *file < durable.files.first())
                .try_for_each(|file| self.sync_punched_file(durable, file))
        };
        if let Err(error) = punch() {
            // Giving back twice does no harm.
            self.housekeeping.lock().freed.extend(ready);
            return Err(error);
        }
        let freed = extents.iter().map(|(file, from, _)| Key::freed(*file, *from));
        self.housekeeping.lock().punched.extend(freed);
        Ok(())
    }

    /// Makes durable that something of a blob file was given back, and removes it if nothing of it is needed. No later
    /// opening looks at it again.
    fn sync_punched_file(&self, durable: &DurableFiles, file: u32) -> Result<()> {
        let installing = self.install_lock.lock();
        if self.needed_offsets(&installing, file)?.is_empty() {
            durable.files.remove(file).map_err(|e| error::io("removing a blob file", e))?;
        }
        durable.files.force_file(file).map_err(|e| error::io("freeing chunks", e))
    }

    /// Where in a blob file of an earlier opening something is that anybody may still read.
    ///
    /// Those are extents with a row in the B-tree; those with any row in the buffer, as one that is gone there is still
    /// in the B-tree or beneath a patch, and may be in a snapshot; and those that wait to be given back. Nothing is
    /// installed meanwhile, so none is missed on its way from one to the next.
    fn needed_offsets(&self, _installing: &MutexGuard<'_, ()>, file: u32) -> Result<BTreeSet<u64>> {
        let prefix = Key::extents_of(file);
        let (from, to) = (&prefix[..], &prefix.prefix_end()[..]);
        let view = self.view.load_full();
        let mut needed = BTreeSet::new();
        for mob in [Some(&view.active), view.frozen.as_ref()].into_iter().flatten() {
            let mut keys = Vec::new();
            mob.keys(from, to, usize::MAX, &mut keys);
            needed.extend(keys.iter().filter_map(|key| key::extent_of(key)).map(|(_, offset)| offset));
        }
        self.read_engine(|engine| {
            let mut show = |key: &[u8], _: &[u8]| {
                needed.extend(key::extent_of(key).map(|(_, offset)| offset));
                ControlFlow::Continue(())
            };
            engine.range(from, to, &mut show).into_model_result()
        })?;
        let chores = self.housekeeping.lock();
        needed.extend(chores.freed.iter().filter(|freed| freed.1 == file).map(|freed| freed.2));
        Ok(needed)
    }

    /// Gives back what earlier openings of the store left in blob files and no extent names, and notes that they were
    /// looked at.
    fn sweep_blob_files(&self, durable: &DurableFiles) -> Result<()> {
        let swept = swept_up_to(&*self.engine)?;
        let earlier = durable.files.earlier_files(swept).map_err(|e| error::io("listing the blob files", e))?;
        if earlier.is_empty() {
            return Ok(());
        }
        for (file, len) in earlier {
            let installing = self.install_lock.lock();
            let needed = self.needed_offsets(&installing, file)?;
            if needed.is_empty() {
                durable.files.remove(file).map_err(|e| error::io("removing a blob file", e))?;
            }
            let mut at = 0;
            for from in needed.into_iter().chain([len]) {
                if at < from {
                    durable.files.punch_hole(file, at, from - at).map_err(|e| error::io("freeing a chunk", e))?;
                }
                at = from + CHUNK as u64;
            }
            durable.files.force_file(file).map_err(|e| error::io("freeing a chunk", e))?;
        }
        let last = durable.files.first().saturating_sub(1);
        let row = (Key::system(SWEPT_KEY), Some(Bytes::copy_from_slice(&last.to_be_bytes())));
        let _one_at_a_time = self.install_lock.lock();
        self.engine.write(&mut [Ok(row)].into_iter()).into_model_result()
    }

    /// Takes up the extents whose storage an earlier opening did not come to give back.
    pub(crate) fn load_freed_extents(&self) -> Result<()> {
        let (from, to) = (Key::table(table::FREED), Key::table(table::FREED).prefix_end());
        let mut freed = Vec::new();
        let mut show = |key: &[u8], value: &[u8]| {
            let len = value.try_into().map(u32::from_be_bytes);
            freed.extend(key::extent_of(key).zip(len.ok()).map(|((file, offset), len)| (0, file, offset, len)));
            ControlFlow::Continue(())
        };
        let mut result = Ok(());
        self.engine.read(&mut |engine| result = engine.range(&from, &to, &mut show)).into_model_result()?;
        result.into_model_result()?;
        self.housekeeping.lock().freed.extend(freed);
        Ok(())
    }

    /// Whether there is nothing to remove or give back, and whether something given back is not noted yet.
    #[cfg(test)]
    pub(crate) fn housekeeping_state(&self) -> (bool, bool) {
        let prefix = Key::table(table::GARBAGE);
        let mut garbage = false;
        let scanned = self.read_state(|layers| {
            layers.scan(&prefix, &prefix.prefix_end(), &mut |_, _| {
                garbage = true;
                ControlFlow::Break(())
            })
        });
        let chores = self.housekeeping.lock();
        let given_back = chores.freed.is_empty() && chores.punched.is_empty();
        (scanned.is_ok() && !garbage && given_back, !chores.punched.is_empty())
    }

    pub(crate) fn close_installer(&self) {
        self.housekeeping.lock().closing = true;
        self.installer_wakeup.notify_all();
    }
}

/// The row with the number up to which all blob files were swept.
pub(crate) const SWEPT_KEY: &str = "swept";

/// Up to which number all blob files were swept: what they have is named, and they do not grow.
pub(crate) fn swept_up_to(engine: &dyn Engine) -> Result<u32> {
    let (mut row, key) = (None, Key::system(SWEPT_KEY));
    let mut read =
        |engine: &dyn EngineRead| row = Some(engine.get(&key).map(|row| row.and_then(|row| row.try_into().ok())));
    engine.read(&mut read).into_model_result()?;
    Ok(row.transpose().into_model_result()?.flatten().map_or(0, u32::from_be_bytes))
}

/// The step that removes the next chunks of garbage content, if any may be removed in this round.
fn reclaim_step(layers: &Layers<'_>, data: DataId, left: &mut u64) -> Result<Option<Step>> {
    if *left == 0 {
        return Ok(None);
    }
    let prefix = Key::chunks_of(data);
    let (mut first, mut behind, mut more) = (None, 0, false);
    layers.scan(&prefix, &prefix.prefix_end(), &mut |key, _| {
        let Some(index) = key.get(9..17).and_then(|b| b.try_into().ok()).map(u64::from_be_bytes) else {
            return ControlFlow::Continue(());
        };
        if *left == 0 {
            more = true;
            return ControlFlow::Break(());
        }
        *left -= 1;
        first.get_or_insert(index);
        behind = index + 1;
        ControlFlow::Continue(())
    })?;
    Ok(Some(Step::Reclaim { data, from: first.unwrap_or(0), to: behind, done: !more }))
}

/// The rows of a frozen buffer on their way into the B-tree.
struct InstallBatch<'a> {
    core: &'a Core,
    frozen: &'a Mob,
    /// File, offset and length of each extent that lost its last user.
    freed: Vec<(u32, u64, u32)>,
    failed: Option<model::Error>,
    rows: usize,
}

impl InstallBatch<'_> {
    fn write(&mut self, punched: &[Key]) -> Result<()> {
        let core = self.core;
        let last = self.frozen.last() + Seq::from(planted(Bug::InstalledTooHigh));
        let installed = (Key::system("installed"), Some(Bytes::copy_from_slice(&last.to_be_bytes())));
        let mut result = Ok(());
        core.engine
            .read(&mut |engine| {
                let empty = Mob::new();
                let layers = Layers {
                    changes: None,
                    active: self.frozen,
                    frozen: Some(&empty),
                    at: ReadPosition::Seq(Seq::MAX),
                    engine,
                    files: core.files(),
                };
                let own = [installed.clone()].into_iter().chain(punched.iter().map(|key| (key.clone(), None)));
                let rows = self.frozen.newest_rows().into_iter();
                let rows = InstallRows { batch: self, layers, rows, freed: Vec::new() };
                result = core.engine.write(&mut rows.chain(own.map(Ok)));
            })
            .into_model_result()?;
        match (result, self.failed.take()) {
            (Err(EngineError::Aborted), Some(error)) => Err(error),
            (result, _) => result.into_model_result(),
        }
    }
}

/// Goes through the buffer in the order of the keys; the rows of freed extents are added where they arise.
struct InstallRows<'a, 'b> {
    batch: &'a mut InstallBatch<'b>,
    layers: Layers<'a>,
    rows: std::vec::IntoIter<(Key, Row)>,
    /// Rows that remember freed extents.
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
    /// What the B-tree gets for a row: `None` to remove it.
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

    /// An extent that lost its last user is remembered until its storage is given back.
    fn free_extent(&mut self, key: &Key) {
        if let (table::EXTENT, Some((file, offset))) = (Key::table_of(key), key::extent_of(key)) {
            let len = CHUNK as u32;
            self.batch.freed.push((file, offset, len));
            self.freed.push((Key::freed(file, offset), Some(Bytes::copy_from_slice(&len.to_be_bytes()))));
        }
    }

    /// The row of a patched chunk together with what lies beneath it.
    fn merge(&self, key: &Key, patch: &Patch) -> Result<Bytes> {
        let mut chunk = vec![0; CHUNK];
        let mut damaged = Vec::new();
        match self.layers.fill_patched(key, patch, 0, &mut chunk) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                tracing::error!(%error, "installing what is left of a damaged chunk");
                for (i, block) in chunk.chunks_mut(BLOCK).enumerate() {
                    match self.layers.fill_patched(key, patch, i * BLOCK, block) {
                        Err(error) if error.kind() == ErrorKind::Corrupt => damaged.push(i),
                        filled => filled?,
                    }
                }
            }
            filled => filled?,
        }
        let mut len = chunk.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        if let Some(last) = damaged.last() {
            len = len.max((last + 1) * BLOCK);
        }
        let mut row = BytesMut::with_capacity(patch.head.len() + row::inline_len(len));
        row.extend_from_slice(&patch.head);
        row::put_inline(&mut row, &chunk[..len]);
        for block in damaged {
            row::mark_damaged(&mut row[patch.head.len()..], block);
        }
        if row.is_empty() && Key::table_of(key) == table::OBJECT {
            return Err(corrupt_row("an object in the buffer", RowError::Short));
        }
        Ok(row.freeze())
    }
}
