//! Housekeeping after installing: removes chunks that no content uses, frees their storage, and sweeps the blob files of
//! earlier openings.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use model::Result;
use parking_lot::MutexGuard;

use super::{Core, DurableFiles};
use crate::engine::{Engine, EngineRow};
use crate::error::{self, IntoModelResult};
use crate::log::entry::Step;
use crate::plant::{ContentBug, FaultBug, planted};
use crate::read::layers::Layers;
use crate::rows::key::{self, DataId, Key, table};
use crate::rows::mob::Seq;
use crate::rows::row::{CHUNK, is_blob_file, is_chunk_position};

/// Chunks that one background transaction removes.
const RECLAIM_CHUNKS: u64 = 2048;
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
        self.reclaim()?;
        self.punch_freed(durable)?;
        if !self.installer.housekeeping.lock().swept {
            self.sweep_blob_files(durable)?;
            self.installer.housekeeping.lock().swept = true;
        }
        Ok(())
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
        let mut garbage = Vec::new();
        let prefix = Key::table(table::GARBAGE);
        let mut steps = Vec::new();
        self.state.read_state(|layers| {
            garbage.clear();
            steps.clear();
            layers.scan(&prefix, &prefix.prefix_end(), &mut |key, _| {
                garbage.extend(key::data_of(key).filter(|data| !self.uploads.uses(*data)));
                if garbage.len() < 16 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            let mut left = RECLAIM_CHUNKS;
            for data in &garbage {
                steps.extend(reclaim_step(layers, *data, &mut left)?);
            }
            Ok(())
        })?;
        if !steps.is_empty() {
            self.submit_steps(steps, &self.installer.reclaiming);
        }
        Ok(())
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
        if self.needed_offsets(&installing, file)?.is_empty() || planted(FaultBug::UsedFileRemoved) {
            durable.files.remove(file).map_err(|e| error::io("removing a blob file", e))?;
        }
        durable.files.force_file(file).map_err(|e| error::io("freeing chunks", e))
    }

    /// The offsets in a blob file of an earlier opening that a reader may still read.
    ///
    /// These are extents with a row in the B-tree; extents with any row in the buffer, even a removal, because the
    /// extent may still be in the B-tree, beneath a patch or in a snapshot; and extents that wait to be freed. Nothing
    /// is installed meanwhile, so none is missed while it moves from one place to another.
    fn needed_offsets(&self, _installing: &MutexGuard<'_, ()>, file: u32) -> Result<BTreeSet<u64>> {
        let prefix = Key::extents_of(file);
        let (from, to) = (&prefix[..], &prefix.prefix_end()[..]);
        let view = self.state.view.load_full();
        let mut needed = BTreeSet::new();
        let mobs = [Some(&view.active), view.frozen.as_ref()].into_iter().flatten();
        for mob in mobs.filter(|_| !planted(ContentBug::SweepIgnoresBuffer)) {
            let mut keys = Vec::new();
            mob.keys(from, to, usize::MAX, &mut keys);
            needed.extend(keys.iter().filter_map(|key| key::extent_of(key)).map(|(_, offset)| offset));
        }
        self.state.read_engine(|engine| {
            let mut show = |key: &[u8], _: &[u8]| {
                needed.extend(key::extent_of(key).map(|(_, offset)| offset));
                ControlFlow::Continue(())
            };
            engine.range(from, to, &mut show).into_model_result()
        })?;
        let housekeeping = self.installer.housekeeping.lock();
        needed.extend(housekeeping.freed.iter().filter(|freed| freed.1 == file).map(|freed| freed.2));
        Ok(needed)
    }

    /// Frees what earlier openings left in blob files and no extent names, and records that these files were swept.
    fn sweep_blob_files(&self, durable: DurableFiles<'_>) -> Result<()> {
        let swept = last_swept_file(&*self.state.engine)?;
        let earlier = durable.files.earlier_files(swept).map_err(|e| error::io("listing the blob files", e))?;
        if earlier.is_empty() {
            return Ok(());
        }
        for (file, len) in earlier {
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
            durable.files.force_file(file).map_err(|e| error::io("freeing a chunk", e))?;
        }
        let last = durable.files.first().saturating_sub(1);
        let row = (Key::system(key::SWEPT), Some(Bytes::copy_from_slice(&last.to_be_bytes())));
        self.write_to_tree(vec![row])
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
    layers.scan(&prefix, &prefix.prefix_end(), &mut |key, _| {
        let Some(index) = key::index_of(key) else {
            return ControlFlow::Continue(());
        };
        if *left == 0 {
            more = true;
            return ControlFlow::Break(());
        }
        *left -= 1;
        first.get_or_insert(index);
        behind = index.saturating_add(1);
        ControlFlow::Continue(())
    })?;
    Ok(Some(Step::Reclaim { data, from: first.unwrap_or(0), to: behind, done: !more }))
}
