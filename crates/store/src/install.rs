//! Installing: moving the frozen buffer into the B-tree in one sorted, durable batch, and what follows from it: freeing
//! log segments, removing content that nobody has any more, and giving its storage back.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use hashbrown::HashSet;
use model::{ErrorKind, Result};

use crate::core::{Core, Durable};
use crate::engine::{EngineError, EngineRow, GiveUp};
use crate::entry::Step;
use crate::error::{self, Explain, corrupt_row};
use crate::key::{self, DataId, Key, table};
use crate::layers::{At, Layers};
use crate::mob::{Mob, Row, Seq};
use crate::patch::Patch;
use crate::row::{self, CHUNK, ExtentUse, RowError};
use crate::view::View;

/// How long changes stay in the buffer although it is not full.
const REST: Duration = Duration::from_secs(2);
/// How soon a failed installation is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// Chunks that one background transaction removes.
const RECLAIM: u64 = 2048;
/// Extents freed in one go.
const PUNCH: usize = 4096;

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
        let _one_at_a_time = self.installing.lock();
        let view = self.view.load_full();
        let (Some(frozen), Some(durable)) = (&view.frozen, &self.durable) else { return Ok(false) };
        if frozen.last() > self.visible() {
            return Ok(false);
        }
        let began = Instant::now();
        let punched = std::mem::take(&mut self.housekeeping.lock().punched);
        let mut batch = Batch { core: self, frozen, freed: Vec::new(), failed: None, rows: 0 };
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
        let last = self.visible();
        self.housekeeping.lock().freed.extend(freed.into_iter().map(|(file, offset, len)| (last, file, offset, len)));
        durable.log.free(frozen.last()).map_err(|e| error::io("freeing a log segment", e))?;
        self.counters.installed(rows, began.elapsed());
        Ok(true)
    }

    /// Freezes and installs everything that is durable now.
    pub(crate) fn install_all(&self) -> Result<()> {
        if self.durable.is_none() {
            return Ok(());
        }
        self.install_with_retry()?;
        {
            let mut writer = self.writer.lock();
            let view = self.view.load();
            if view.frozen.is_none() && !view.active.is_empty() {
                self.freeze(&mut writer, &view);
            }
        }
        while self.view.load().frozen.is_some() {
            if !self.options.threads {
                self.force()?;
            }
            if !self.install_with_retry()? {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.resume_queue();
        Ok(())
    }

    fn install_with_retry(&self) -> Result<bool> {
        let installed = self.install();
        let full = matches!(&installed, Err(error) if error.kind() == ErrorKind::Full);
        self.disk_full.store(full, Ordering::Relaxed);
        installed
    }

    /// The installer's life.
    pub(crate) fn run_installer(&self) {
        let mut next_rest = Instant::now() + REST;
        loop {
            {
                let mut chores = self.housekeeping.lock();
                let waiting = self.view.load().frozen.is_some();
                if chores.closing {
                    return;
                }
                let busy = waiting || self.reclaiming.load(Ordering::Acquire);
                let pause = if busy { Duration::from_millis(1) } else { REST };
                self.chores.wait_for(&mut chores, pause);
                if chores.closing {
                    return;
                }
            }
            if self.durable.is_some() && Instant::now() >= next_rest {
                next_rest = Instant::now() + REST;
                let mut writer = self.writer.lock();
                let view = self.view.load();
                if view.frozen.is_none() && !view.active.is_empty() {
                    self.freeze(&mut writer, &view);
                }
            }
            if let Err(error) = self.install_with_retry() {
                tracing::error!(%error, "cannot install changes; trying again");
                self.resume_queue();
                std::thread::sleep(RETRY);
                continue;
            }
            self.resume_queue();
            if let Err(error) = self.chores() {
                tracing::warn!(%error, "housekeeping failed; trying again");
            }
        }
    }

    /// What can be done beside installing.
    pub(crate) fn chores(&self) -> Result<()> {
        let Some(durable) = &self.durable else { return self.reclaim() };
        if let Err(error) = durable.log.keep_spare() {
            tracing::warn!(%error, "cannot prepare a log segment");
        }
        self.reclaim()?;
        self.punch(durable)?;
        if !self.housekeeping.lock().swept {
            self.sweep(durable)?;
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
            let mut left = RECLAIM;
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
    fn punch(&self, durable: &Durable) -> Result<()> {
        let oldest = self.snapshots.oldest().unwrap_or(Seq::MAX);
        let ready: Vec<_> = {
            let mut chores = self.housekeeping.lock();
            let mut ready = Vec::new();
            chores.freed.retain(|freed| {
                let take = freed.0 < oldest && ready.len() < PUNCH;
                if take {
                    ready.push(*freed);
                }
                !take
            });
            ready
        };
        let mut ready: Vec<_> =
            ready.into_iter().map(|(_, file, from, len)| (file, from, from + u64::from(len))).collect();
        ready.sort_unstable();
        // A large object's chunks lie side by side: one call gives back a whole run of them.
        let runs = ready.chunk_by(|(file, _, end), (next, from, _)| file == next && end == from);
        for run in runs {
            let [(file, from, _), ..] = *run else { continue };
            let to = run.last().map_or(from, |(_, _, to)| *to);
            durable.files.punch(file, from, to - from).map_err(|e| error::io("freeing chunks", e))?;
        }
        let freed = ready.iter().map(|(file, from, _)| Key::freed(*file, *from));
        self.housekeeping.lock().punched.extend(freed);
        let files: HashSet<u32> = ready.iter().map(|(file, ..)| *file).collect();
        files.into_iter().try_for_each(|file| self.remove_if_empty(durable, file))
    }

    /// Removes a blob file in which no extent is left.
    fn remove_if_empty(&self, durable: &Durable, file: u32) -> Result<()> {
        let prefix = Key::extents_of(file);
        let mut used = self.housekeeping.lock().freed.iter().any(|(_, freed, ..)| *freed == file);
        used |= file >= durable.files.first();
        if !used {
            self.read_state(|layers| {
                layers.scan(&prefix, &prefix.prefix_end(), &mut |_, _| {
                    used = true;
                    ControlFlow::Break(())
                })
            })?;
        }
        if !used {
            durable.files.remove(file).map_err(|e| error::io("removing a blob file", e))?;
        }
        Ok(())
    }

    /// Gives back what earlier openings of the store left in blob files and no extent names.
    fn sweep(&self, durable: &Durable) -> Result<()> {
        let earlier = durable.files.earlier().map_err(|e| error::io("listing the blob files", e))?;
        for (file, len) in earlier {
            let mut extents = Vec::new();
            let prefix = Key::extents_of(file);
            self.read_state(|layers| {
                extents.clear();
                layers.scan(&prefix, &prefix.prefix_end(), &mut |key, found| {
                    let used = found.value().and_then(|row| ExtentUse::decode(row).ok());
                    extents.extend(key::extent_of(key).zip(used).map(|((_, at), used)| (at, at + u64::from(used.len))));
                    ControlFlow::Continue(())
                })
            })?;
            let mut at = 0;
            for (from, to) in extents.into_iter().chain([(len, len)]) {
                if at < from {
                    durable.files.punch(file, at, from - at).map_err(|e| error::io("freeing a chunk", e))?;
                }
                at = at.max(to);
            }
            self.remove_if_empty(durable, file)?;
        }
        Ok(())
    }

    /// Takes up the extents whose storage an earlier opening did not come to give back.
    pub(crate) fn adopt_freed(&self) -> Result<()> {
        let (from, to) = (Key::table(table::FREED), Key::table(table::FREED).prefix_end());
        let mut freed = Vec::new();
        let mut show = |key: &[u8], value: &[u8]| {
            let len = value.try_into().map(u32::from_be_bytes);
            freed.extend(key::extent_of(key).zip(len.ok()).map(|((file, offset), len)| (0, file, offset, len)));
            ControlFlow::Continue(())
        };
        let mut result = Ok(());
        self.engine.read(&mut |engine| result = engine.range(&from, &to, &mut show)).explain()?;
        result.explain()?;
        self.housekeeping.lock().freed.extend(freed);
        Ok(())
    }

    /// Whether there is nothing to remove or give back, and whether something given back is not noted yet.
    #[cfg(test)]
    pub(crate) fn rest(&self) -> (bool, bool) {
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
        self.chores.notify_all();
    }
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
struct Batch<'a> {
    core: &'a Core,
    frozen: &'a Mob,
    /// File, offset and length of each extent that lost its last user.
    freed: Vec<(u32, u64, u32)>,
    failed: Option<model::Error>,
    rows: usize,
}

impl Batch<'_> {
    fn write(&mut self, punched: &[Key]) -> Result<()> {
        let core = self.core;
        let installed = (Key::system("installed"), Some(Bytes::copy_from_slice(&self.frozen.last().to_be_bytes())));
        let mut result = Ok(());
        core.engine
            .read(&mut |engine| {
                let empty = Mob::new();
                let layers = Layers {
                    changes: None,
                    active: self.frozen,
                    frozen: Some(&empty),
                    at: At::Seq(Seq::MAX),
                    engine,
                    files: core.files(),
                };
                let own = [installed.clone()].into_iter().chain(punched.iter().map(|key| (key.clone(), None)));
                let keys = Vec::new().into_iter();
                let rows = Rows { batch: self, layers, keys, from: Some(Key::table(0)), freed: Vec::new() };
                result = core.engine.write(&mut rows.chain(own.map(Ok)));
            })
            .explain()?;
        match (result, self.failed.take()) {
            (Err(EngineError::GivenUp), Some(error)) => Err(error),
            (result, _) => result.explain(),
        }
    }
}

/// Goes through the buffer in the order of the keys; the rows of freed extents are added where they arise.
struct Rows<'a, 'b> {
    batch: &'a mut Batch<'b>,
    layers: Layers<'a>,
    keys: std::vec::IntoIter<Key>,
    from: Option<Key>,
    /// Rows that remember freed extents.
    freed: Vec<EngineRow>,
}

impl Iterator for Rows<'_, '_> {
    type Item = Result<EngineRow, GiveUp>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.freed.pop() {
                return Some(Ok(row));
            }
            if let Some(key) = self.keys.next() {
                match self.row(&key) {
                    Ok(Some(value)) => {
                        self.batch.rows += 1;
                        return Some(Ok((key, value)));
                    }
                    Ok(None) => continue,
                    Err(error) => {
                        self.batch.failed = Some(error);
                        return Some(Err(GiveUp));
                    }
                }
            }
            let from = self.from.take()?;
            let keys = self.batch.frozen.keys(&from, &[u8::MAX; 40], 1024);
            self.from = keys.last().map(Key::successor);
            self.keys = keys.into_iter();
        }
    }
}

impl Rows<'_, '_> {
    /// What the B-tree gets for a key: `None` if nothing, `Some(None)` to remove it.
    fn row(&mut self, key: &Key) -> Result<Option<Option<Bytes>>> {
        let Some(row) = self.batch.frozen.get(key, || Seq::MAX) else { return Ok(None) };
        Ok(Some(match row {
            Row::Value(value) => Some(value),
            Row::Patch(patch) => Some(self.merge(key, &patch)?),
            Row::Gone => {
                self.free_extent(key);
                None
            }
        }))
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
        self.layers.fill_patched(key, patch, &mut chunk)?;
        let len = chunk.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        let mut row = BytesMut::with_capacity(patch.head.len() + row::inline_len(len));
        row.extend_from_slice(&patch.head);
        row::put_inline(&mut row, &chunk[..len]);
        if row.is_empty() && Key::table_of(key) == table::OBJECT {
            return Err(corrupt_row("an object in the buffer", RowError::Short));
        }
        Ok(row.freeze())
    }
}
