//! Housekeeping beside installing: removes content that no object uses, returns its storage, and sweeps the blob files of
//! earlier openings.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use model::Result;
use parking_lot::MutexGuard;

use super::{Core, DurableFiles};
use crate::engine::{Engine, EngineRead};
use crate::error::{self, IntoModelResult};
use crate::log::entry::Step;
use crate::plant::{ContentBug, planted};
use crate::read::layers::Layers;
use crate::rows::key::{self, DataId, Key, table};
use crate::rows::mob::Seq;
use crate::rows::row::CHUNK;

/// Chunks that one background transaction removes.
const RECLAIM_CHUNKS: u64 = 2048;
/// Extents freed in one go.
const PUNCH_EXTENTS: usize = 4096;

/// What the installer still has to do.
#[derive(Default)]
pub(crate) struct Housekeeping {
    pub(super) closing: bool,
    /// Extents that were freed, each with the newest position at which a reader may still look at it.
    pub(super) freed: Vec<(Seq, u32, u64, u32)>,
    /// Rows of extents whose storage was given back; they go with the next batch.
    pub(super) punched: Vec<Key>,
    /// Whether the blob files of earlier openings have been swept.
    swept: bool,
}

impl Core {
    /// What can be done beside installing.
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

    /// Removes a part of the content that no object has any more.
    pub(crate) fn reclaim(&self) -> Result<()> {
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

    /// Gives back the storage of freed extents that no reader looks at any more.
    fn punch_freed(&self, durable: DurableFiles<'_>) -> Result<()> {
        let pinned = self.state.pins.oldest().filter(|_| !planted(ContentBug::ChunkFreedUnderReader));
        let oldest = pinned.unwrap_or(Seq::MAX);
        let ready: Vec<_> = {
            let mut chores = self.installer.housekeeping.lock();
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
            self.installer.housekeeping.lock().freed.extend(ready);
            return Err(error);
        }
        let freed = extents.iter().map(|(file, from, _)| Key::freed(*file, *from));
        self.installer.housekeeping.lock().punched.extend(freed);
        Ok(())
    }

    /// Makes durable that something of a blob file was given back, and removes it if nothing of it is needed. No later
    /// opening looks at it again.
    fn sync_punched_file(&self, durable: DurableFiles<'_>, file: u32) -> Result<()> {
        let installing = self.installer.install_lock.lock();
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
        let chores = self.installer.housekeeping.lock();
        needed.extend(chores.freed.iter().filter(|freed| freed.1 == file).map(|freed| freed.2));
        Ok(needed)
    }

    /// Gives back what earlier openings of the store left in blob files and no extent names, and notes that they were
    /// looked at.
    fn sweep_blob_files(&self, durable: DurableFiles<'_>) -> Result<()> {
        let swept = swept_up_to(&*self.state.engine)?;
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
        let _one_at_a_time = self.installer.install_lock.lock();
        self.state.engine.write(&mut [Ok(row)].into_iter()).into_model_result()
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
        self.state.engine.read(&mut |engine| result = engine.range(&from, &to, &mut show)).into_model_result()?;
        result.into_model_result()?;
        if !planted(ContentBug::FreedChunksForgotten) {
            self.installer.housekeeping.lock().freed.extend(freed);
        }
        Ok(())
    }

    /// Whether there is nothing to remove or give back, and whether something given back is not noted yet.
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
        let chores = self.installer.housekeeping.lock();
        let given_back = chores.freed.is_empty() && chores.punched.is_empty();
        (scanned.is_ok() && !garbage && given_back, !chores.punched.is_empty())
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
