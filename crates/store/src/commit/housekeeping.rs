//! Housekeeping after installing: removes chunks that no content uses, frees their storage, and sweeps the blob files of
//! earlier openings.
//!
//! What cannot be read costs only the space about which it says something: the rest of the work goes on.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use hashbrown::HashSet;
use model::{ErrorKind, Result};
use parking_lot::MutexGuard;

use super::{Core, DurableFiles};
use crate::content::blob_file::file_name;
use crate::engine::{Engine, EngineRow};
use crate::error::{self, IntoModelResult, corrupt_row};
use crate::log::entry::Step;
use crate::plant::{ContentBug, FaultBug, planted};
use crate::read::layers::Layers;
use crate::rows::key::{self, DataId, Key, table};
use crate::rows::mob::Seq;
use crate::rows::row::{CHUNK, is_blob_file, is_chunk_position};

/// Chunks that one background transaction removes.
const RECLAIM_CHUNKS: u64 = 2048;
/// Removed contents whose chunks one background transaction removes.
const RECLAIMED_TOGETHER: usize = 16;
/// Extents whose storage is freed in one step.
const PUNCH_EXTENTS: usize = 4096;

/// Pending work of the installer.
#[derive(Default)]
pub(crate) struct Housekeeping {
    pub(super) closing: bool,
    /// Freed extents, each with the newest position at which a reader may still read it: position, file, offset,
    /// length.
    pub(super) freed: Vec<(Seq, u32, u64, u32)>,
    /// Rows of extents whose storage was freed; the next batch for the B-tree removes them.
    pub(super) punched: Vec<Key>,
    /// Whether the blob files of earlier openings have been swept.
    swept: bool,
    /// Chunks that no content uses and of which a row cannot be read: the next opening tries to remove them again.
    unreadable: HashSet<DataId>,
}

impl Core {
    /// One step of all housekeeping.
    pub(crate) fn do_housekeeping(&self) -> Result<()> {
        let Some(durable) = self.durable() else {
            self.sweep_memory();
            return self.reclaim();
        };
        if let Err(error) = durable.log.ensure_spare() {
            tracing::warn!(%error, "cannot prepare a log segment");
        }
        let reclaimed = self.reclaim();
        let freed = self.punch_freed(durable);
        let is_swept = self.installer.housekeeping.lock().swept;
        let swept = if is_swept { Ok(()) } else { self.sweep_blob_files(durable) };
        reclaimed.and(freed).and(swept)
    }

    /// Removes a part of the chunks that no content uses.
    ///
    /// Before the first change nothing is removed: see [`Store::log_opening`](crate::Store::log_opening).
    pub(crate) fn reclaim(&self) -> Result<()> {
        if !self.has_changes() {
            return Ok(());
        }
        if self.installer.reclaiming.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut unreadable = self.installer.housekeeping.lock().unreadable.clone();
        let (mut garbage, mut steps, mut found) = (Vec::new(), Vec::new(), Vec::new());
        let prefix = Key::table(table::GARBAGE);
        let listed = self.state.read_state(|layers| {
            garbage.clear();
            steps.clear();
            found.clear();
            let listed = layers.scan(&prefix, &prefix.prefix_end(), &mut |key, _| {
                let is_removable = |data: &DataId| !self.uploads.uses(*data) && !unreadable.contains(data);
                garbage.extend(key::data_of(key).filter(is_removable));
                if garbage.len() < RECLAIMED_TOGETHER { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            let mut left = RECLAIM_CHUNKS;
            for data in &garbage {
                match reclaim_step(layers, *data, &mut left) {
                    Err(error) if error.kind() == ErrorKind::Corrupt => found.push((*data, error)),
                    step => steps.extend(step?),
                }
            }
            Ok(listed)
        })?;
        for (data, error) in found {
            if unreadable.insert(data) {
                tracing::warn!(data = data.0, %error, "the space of a removed content is not freed: a row about it cannot be read");
            }
        }
        self.installer.housekeeping.lock().unreadable = unreadable;
        if !steps.is_empty() {
            self.submit_steps(steps, &self.installer.reclaiming);
        }
        listed
    }

    /// Frees the storage of extents that no reader can read any more.
    fn punch_freed(&self, durable: DurableFiles<'_>) -> Result<()> {
        let pinned = self.state.pins.oldest().filter(|_| !planted(ContentBug::ChunkFreedUnderReader));
        let oldest = pinned.unwrap_or(Seq::MAX);
        let ready: Vec<_> = {
            let mut housekeeping = self.installer.housekeeping.lock();
            let mut ready = Vec::new();
            housekeeping.freed.retain(|freed| {
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
        // The chunks of a large content are adjacent: one call frees a whole run.
        let runs = extents.chunk_by(|(file, _, end), (next, from, _)| file == next && end == from);
        let punch = || {
            for run in runs {
                let [(file, from, _), ..] = *run else { continue };
                let to = run.last().map_or(from, |(_, _, to)| *to);
                durable.files.punch_hole(file, from, to - from).map_err(|e| error::io("freeing chunks", e))?;
            }
            let files: BTreeSet<u32> = extents.iter().map(|(file, ..)| *file).collect();
            // Files of this opening may still grow, and the next opening sweeps all of them.
            files
                .into_iter()
                .filter(|file| *file < durable.files.first())
                .try_for_each(|file| self.sync_punched_file(durable, file))
        };
        if let Err(error) = punch() {
            // Freeing a range twice is harmless.
            if !planted(FaultBug::FailedPunchForgotten) {
                self.installer.housekeeping.lock().freed.extend(ready);
            }
            return Err(error);
        }
        let freed = extents.iter().map(|(file, from, _)| Key::freed_extent(*file, *from));
        self.installer.housekeeping.lock().punched.extend(freed);
        Ok(())
    }

    /// Forces a blob file after a part of it was freed, and removes the file if no extent of it is needed. No later
    /// opening sweeps this file again.
    fn sync_punched_file(&self, durable: DurableFiles<'_>, file: u32) -> Result<()> {
        let installing = self.installer.install_lock.lock();
        let is_needed = self.has_needed_extent(&installing, file).unwrap_or_else(|error| {
            let file = file_name(file);
            tracing::warn!(file, %error, "a blob file stays: the B-tree does not say whether it is used");
            true
        });
        if !is_needed || planted(FaultBug::UsedFileRemoved) {
            durable.files.remove(file).map_err(|e| error::io("removing a blob file", e))?;
        }
        durable.files.force_file(file).map_err(|e| error::io("freeing chunks", e))
    }

    /// Whether there are [`needed_offsets`](Self::needed_offsets). It looks at one of them.
    fn has_needed_extent(&self, installing: &MutexGuard<'_, ()>, file: u32) -> Result<bool> {
        let mut is_needed = false;
        self.for_needed_offsets(installing, file, &mut |_| {
            is_needed = true;
            ControlFlow::Break(())
        })?;
        Ok(is_needed)
    }

    /// The offsets in a blob file of an earlier opening that a reader may still read.
    ///
    /// These are extents with a row in the B-tree; extents with any row in the buffer, even a removal, because the
    /// extent may still be in the B-tree, beneath a patch or in a snapshot; and extents that wait to be freed. Nothing
    /// is installed meanwhile, so none is missed while it moves from one place to another.
    fn needed_offsets(&self, installing: &MutexGuard<'_, ()>, file: u32) -> Result<BTreeSet<u64>> {
        let mut needed = BTreeSet::new();
        self.for_needed_offsets(installing, file, &mut |offset| {
            needed.insert(offset);
            ControlFlow::Continue(())
        })?;
        Ok(needed)
    }

    /// Calls `show` with these offsets until it breaks; with some of them more than once.
    fn for_needed_offsets(
        &self,
        _installing: &MutexGuard<'_, ()>,
        file: u32,
        show: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<()> {
        let prefix = Key::extents_of(file);
        let (from, to) = (&prefix[..], &prefix.prefix_end()[..]);
        let view = self.state.view.load_full();
        let mut offsets = Vec::new();
        let mobs = [Some(&view.active), view.frozen.as_ref()].into_iter().flatten();
        for mob in mobs.filter(|_| !planted(ContentBug::SweepIgnoresBuffer)) {
            let mut keys = Vec::new();
            mob.keys(from, to, usize::MAX, &mut keys);
            offsets.extend(keys.iter().filter_map(|key| key::extent_of(key)).map(|(_, offset)| offset));
        }
        {
            let housekeeping = self.installer.housekeeping.lock();
            offsets.extend(housekeeping.freed.iter().filter(|freed| freed.1 == file).map(|freed| freed.2));
        }
        if offsets.into_iter().try_for_each(&mut *show).is_break() {
            return Ok(());
        }
        self.state.read_engine(|engine| {
            let mut show_row = |key: &[u8], _: &[u8]| match key::extent_of(key) {
                Some((_, offset)) => show(offset),
                None => ControlFlow::Continue(()),
            };
            engine.range(from, to, &mut show_row).into_model_result()
        })
    }

    /// Frees what earlier openings left in blob files and no extent names, and records that these files were swept. The record ends before the
    /// first file of which the B-tree does not say what is used: the next opening sweeps from there on.
    fn sweep_blob_files(&self, durable: DurableFiles<'_>) -> Result<()> {
        let swept = last_swept_file(&*self.state.engine)?;
        let earlier = durable.files.earlier_files(swept).map_err(|e| error::io("listing the blob files", e))?;
        if earlier.is_empty() {
            self.installer.housekeeping.lock().swept = true;
            return Ok(());
        }
        let (mut first_left, mut all) = (durable.files.first(), Ok(()));
        for (file, len) in earlier.into_iter().rev() {
            match self.sweep_blob_file(durable, file, len) {
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    let name = file_name(file);
                    tracing::warn!(file = name, %error, "a blob file is not swept: the B-tree does not say what of it is used");
                    first_left = file;
                }
                done => all = all.and(done),
            }
        }
        all?;
        let last = first_left.saturating_sub(1);
        if last > swept {
            let row = (Key::system(key::SWEPT), Some(Bytes::copy_from_slice(&last.to_be_bytes())));
            self.write_to_tree(vec![row])?;
        }
        self.installer.housekeeping.lock().swept = true;
        Ok(())
    }

    fn sweep_blob_file(&self, durable: DurableFiles<'_>, file: u32, len: u64) -> Result<()> {
        let installing = self.installer.install_lock.lock();
        let needed = self.needed_offsets(&installing, file)?;
        if needed.is_empty() {
            durable.files.remove(file).map_err(|e| error::io("removing a blob file", e))?;
        }
        let mut at = 0;
        // A record of an extent behind the end keeps the file, and nothing in it.
        for from in needed.into_iter().take_while(|from| *from < len).chain([len]) {
            if at < from {
                durable.files.punch_hole(file, at, from - at).map_err(|e| error::io("freeing a chunk", e))?;
            }
            at = from + CHUNK as u64;
        }
        durable.files.force_file(file).map_err(|e| error::io("freeing a chunk", e))
    }

    /// Writes rows of the store itself, which are not in the buffer, to the B-tree.
    pub(crate) fn write_to_tree(&self, rows: Vec<EngineRow>) -> Result<()> {
        let _one_at_a_time = self.installer.install_lock.lock();
        self.state.engine.write(&mut rows.into_iter().map(Ok)).into_model_result()
    }

    /// Loads the extents whose storage earlier openings did not free. If they cannot all be read, none is freed: the space stays in use.
    pub(crate) fn load_freed_extents(&self) -> Result<()> {
        let (from, to) = (Key::table(table::FREED), Key::table(table::FREED).prefix_end());
        let mut freed = Vec::new();
        let mut show = |key: &[u8], value: &[u8]| {
            let len = value.try_into().map(u32::from_be_bytes).ok().filter(|len| *len as usize <= CHUNK);
            let extent = key::extent_of(key).filter(|(file, offset)| is_chunk_position(*file, *offset));
            freed.extend(extent.zip(len).map(|((file, offset), len)| (0, file, offset, len)));
            ControlFlow::Continue(())
        };
        if let Err(error) = self.state.engine.range(&from, &to, &mut show) {
            let error = error.cause();
            tracing::warn!(error, "space of removed contents is not freed: the B-tree does not say where it is");
            return Ok(());
        }
        if !planted(ContentBug::FreedChunksForgotten) {
            self.installer.housekeeping.lock().freed.extend(freed);
        }
        Ok(())
    }

    /// Whether extents wait to be freed.
    #[cfg(test)]
    pub(crate) fn has_extents_to_free(&self) -> bool {
        !self.installer.housekeeping.lock().freed.is_empty()
    }

    /// Whether there is nothing to remove or free, and whether freed extents still have rows.
    #[cfg(test)]
    pub(crate) fn housekeeping_state(&self) -> (bool, bool) {
        let prefix = Key::table(table::GARBAGE);
        let mut garbage = false;
        let scanned = self.state.read_state(|layers| {
            layers.scan(&prefix, &prefix.prefix_end(), &mut |_, _| {
                garbage = true;
                ControlFlow::Break(())
            })
        });
        let housekeeping = self.installer.housekeeping.lock();
        let given_back = housekeeping.freed.is_empty() && housekeeping.punched.is_empty();
        (scanned.is_ok() && !garbage && given_back, !housekeeping.punched.is_empty())
    }
}

/// The number of the last swept blob file. Files up to it contain only named extents and do not grow. A number that no file can have says nothing:
/// all files are swept again.
pub(crate) fn last_swept_file(engine: &dyn Engine) -> Result<u32> {
    let row = engine.get(&Key::system(key::SWEPT)).into_model_result()?;
    let swept = row.and_then(|row| row.try_into().ok()).map(u32::from_be_bytes);
    Ok(swept.filter(|number| is_blob_file(*number)).unwrap_or(0))
}

/// The step that removes the next chunks with a number that no content uses, within the limit of this round.
fn reclaim_step(layers: &Layers<'_>, data: DataId, left: &mut u64) -> Result<Option<Step>> {
    if *left == 0 {
        return Ok(None);
    }
    let prefix = Key::chunks_of(data);
    let (mut first, mut behind, mut more) = (None, 0, false);
    let mut decoded = Ok(());
    layers.scan(&prefix, &prefix.prefix_end(), &mut |key, found| {
        let Some(index) = key::index_of(key) else {
            return ControlFlow::Continue(());
        };
        if *left == 0 {
            more = true;
            return ControlFlow::Break(());
        }
        // The step needs it, and is not applied without it.
        decoded = found.extent(0).map(drop);
        if decoded.is_err() {
            return ControlFlow::Break(());
        }
        *left -= 1;
        first.get_or_insert(index);
        behind = index.saturating_add(1);
        ControlFlow::Continue(())
    })?;
    decoded.map_err(|error| corrupt_row("a chunk", error))?;
    Ok(Some(Step::Reclaim { data, from: first.unwrap_or(0), to: behind, done: !more }))
}
