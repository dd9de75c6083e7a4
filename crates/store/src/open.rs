//! Opening a store: builds a [`Core`] with the newest durable state from the directory, the B-tree and the log.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use model::{Error, ErrorKind, Result};

use crate::commit::Core;
use crate::commit::apply::Applier;
use crate::commit::housekeeping;
use crate::commit::writer::WriterState;
use crate::content::blob_file::{self, BlobFiles};
use crate::directory;
use crate::disk::{Disk, RealDisk};
use crate::engine::Engine;
use crate::engine::memory::MemoryEngine;
use crate::engine::tree::{self, TreeEngine};
use crate::error::{self, IntoModelResult};
use crate::log::entry::{self, Step};
use crate::log::frame::StoreId;
use crate::log::recover::{self, OnDamage, Salvaged};
use crate::log::{Log, LogError};
use crate::options::Options;
use crate::plant::{RecoveryBug, planted};
use crate::read::layers::{Layers, ReadPosition};
use crate::read::state::ReadState;
use crate::read::view::View;
use crate::rows::key::{self, Key, extent_of, table};
use crate::rows::lost::LossMark;
use crate::rows::mob::{LogPosition, Mob, Row, Seq};
use crate::rows::row::is_blob_file;

mod lost_contents;

pub(crate) use lost_contents::{loss_mark, lost_ranges};

pub(crate) fn in_memory(options: Options) -> Result<Core> {
    let state = ReadState::new(Box::new(MemoryEngine::default()), None, View::new(Mob::for_memory_store()), 0);
    let core = Core::new(options, [0; 16], state, None, WriterState::resume_at(1, 0));
    initialize(&core)?;
    Ok(core)
}

pub(crate) fn open(dir: &Path, options: Options) -> Result<Core> {
    // First, because the permissions of a directory with other contents do not matter.
    directory::check_no_other_contents(dir)?;
    directory::prepare_directory(dir, options.allow_loose_permissions)?;
    let lock = directory::lock(dir)?;
    open_locked(dir, lock, options, OnDamage::Refuse)
}

/// Opens the store in a directory that the caller has locked.
pub(crate) fn open_locked(dir: &Path, lock: File, options: Options, on_damage: OnDamage) -> Result<Core> {
    let id = directory::load_or_create_identity(dir)?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(dir));
    let engine = TreeEngine::open(&*disk, &id).into_model_result()?;
    let mut core = open_on(disk, Box::new(engine), id, options, on_damage)?;
    core.directory_lock = Some(lock);
    Ok(core)
}

/// Opens a store on any disk and engine.
pub(crate) fn open_on(
    disk: Arc<dyn Disk>,
    engine: Box<dyn Engine>,
    id: StoreId,
    options: Options,
    on_damage: OnDamage,
) -> Result<Core> {
    // Opening the log may remove segments, because what they have is in the B-tree.
    engine.make_durable().into_model_result()?;
    let installed = installed_position(&*engine)?;
    let mut files = blob_files(&disk, &*engine, &id)?;
    let view = View::new(Mob::new());
    let mut salvaged = None;
    let (log, last, crc) = match installed {
        None => {
            check_new(&*disk, &id)?;
            clear_log(&*disk).map_err(|e| error::io("clearing an unfinished log", e))?;
            let log = Log::create(disk, id, options.segment_bytes, 1, 0).into_model_result()?;
            let position = Bytes::copy_from_slice(&LogPosition::default().to_row());
            let row = (Key::system(key::INSTALLED), Some(position));
            engine.write(&mut [Ok(row)].into_iter()).into_model_result()?;
            (log, 0, 0)
        }
        Some(installed) => {
            let mut replay = |seq, payload: &[u8]| replay(&view, &*engine, &files, seq, payload);
            let found = recover::open(&disk, id, options.segment_bytes, installed, on_damage, &mut replay)
                .into_model_result()?;
            tracing::info!(installed = installed.seq, last = found.last, cut = found.cut, "recovered the log");
            salvaged = found.salvaged;
            (found.log, found.last, found.crc)
        }
    };
    files.skip_used(last_logged_blob_file(&view.active));
    if let Err(error) = files.prepare() {
        tracing::warn!(%error, "cannot create a blob file; the first large content will retry");
    }
    let writer = WriterState::resume_at(last + 1, crc);
    let state = ReadState::new(engine, Some(files), view, last);
    let core = Core::new(options, id, state, Some(log), writer);
    if on_damage == OnDamage::Salvage {
        core.give_up_unreadable();
    }
    // Before anything else is installed: the batch that says up to where the log is installed says that the rest is lost, too.
    if let Some(salvaged) = salvaged {
        resume_after_loss(&core, salvaged, last)?;
    }
    lost_contents::mend(&core)?;
    core.load_freed_extents()?;
    warn_of_missing_blob_files(&core);
    initialize(&core)?;
    Ok(core)
}

/// Logs which blob files with chunks of contents are missing. The other contents are served.
fn warn_of_missing_blob_files(core: &Core) {
    let mut missing = Vec::new();
    let listed = core.state.read_state(|layers| {
        let Some(files) = layers.files else { return Ok(()) };
        missing.clear();
        let (mut next, end) = (Some(0), Key::table(table::EXTENT).prefix_end());
        // One look-up for each file instead of one for each chunk.
        while let Some(from) = next.take() {
            let mut file = None;
            layers.scan(&Key::extent(from, 0), &end, &mut |key, _| {
                file = extent_of(key).map(|(file, _)| file);
                ControlFlow::Break(())
            })?;
            missing.extend(file.filter(|file| !files.exists(*file)));
            next = file.and_then(|file| file.checked_add(1));
        }
        Ok(())
    });
    if let Err(error) = listed {
        tracing::warn!(%error, "the store does not say which blob files it uses");
    }
    for file in missing {
        tracing::warn!(
            file = blob_file::file_name(file),
            "a blob file is missing: contents in it cannot be read; `mortar scrub` names them"
        );
    }
}

pub(crate) fn blob_files(disk: &Arc<dyn Disk>, engine: &dyn Engine, id: &StoreId) -> Result<BlobFiles> {
    let used = last_blob_file(engine)?;
    BlobFiles::open(Arc::clone(disk), *id, used)
}

/// The highest number of a blob file that the B-tree mentions, as far as it can be read. The newest file is never removed, so the files
/// themselves tell when the B-tree cannot.
fn last_blob_file(engine: &dyn Engine) -> Result<u32> {
    // All numbers up to this one were assigned, even if their files are gone.
    let swept = housekeeping::last_swept_file(engine)?;
    let mut last = swept;
    for (behind, end) in [
        ((|file| Key::extent(file, 0)) as fn(u32) -> Key, Key::table(table::EXTENT).prefix_end()),
        (|file| Key::freed_extent(file, 0), Key::table(table::FREED).prefix_end()),
    ] {
        let mut file = Some(swept);
        // One look-up for each file instead of one for each chunk.
        while let Some(next) = file.and_then(|file: u32| file.checked_add(1)) {
            let from = behind(next);
            file = None;
            let mut show = |key: &[u8], _: &[u8]| {
                file = extent_of(key).map(|(file, _)| file).filter(|file| is_blob_file(*file));
                ControlFlow::Break(())
            };
            if let Err(error) = engine.range(&from, &end, &mut show) {
                tracing::warn!(error = error.cause(), "the B-tree does not say which blob files it uses");
            }
            last = last.max(file.unwrap_or(0));
        }
    }
    Ok(last)
}

/// The highest number of a blob file in what was replayed of the log.
fn last_logged_blob_file(replayed: &Mob) -> u32 {
    let mut last = Vec::new();
    replayed.keys_back(&Key::extent(0, 0), &Key::table(table::EXTENT).prefix_end(), 1, &mut last);
    last.first().and_then(|key| extent_of(key)).map_or(0, |(file, _)| file)
}

/// Checks that a store whose B-tree has no position was never completely created, so that nothing was committed.
pub(crate) fn check_new(disk: &dyn Disk, id: &StoreId) -> Result<()> {
    // The first blob file is made when the B-tree has a position.
    let has_blob_files = blob_file::exist(disk).map_err(|e| error::io("listing the blob files", e))?;
    let is_used = has_blob_files || recover::is_used(disk, id).into_model_result()?;
    if is_used && !planted(RecoveryBug::UsedStoreTakenForNew) {
        let message = format!(
            "the B-tree is missing or empty ({}), but the store has had transactions: put the directory back, or \
             restore from a backup",
            tree::NAME
        );
        return Err(Error::new(ErrorKind::Corrupt, message));
    }
    Ok(())
}

/// Counts the opening, and logs the first opening of a new store.
fn initialize(core: &Core) -> Result<()> {
    let before = core.state.read_state(|layers| {
        let found = layers.find(&Key::system(key::INCARNATION))?;
        let row = found.value().and_then(|row| row.try_into().ok());
        Ok(row.map(u32::from_be_bytes))
    })?;
    let opened = before.unwrap_or(0);
    let incarnation = key::next_opening(opened).ok_or_else(|| {
        let message = format!(
            "the B-tree says that the store was opened {opened} times, which no store is: it is damaged; restore from a \
             backup"
        );
        Error::new(ErrorKind::Corrupt, message)
    })?;
    core.incarnation.store(incarnation, std::sync::atomic::Ordering::Relaxed);
    match before {
        Some(_) => Ok(()),
        None => core.initialize(vec![Step::Open { incarnation }]),
    }
}

/// Lets a store with losses continue at position `last`. Installs this in one batch together with everything that was
/// salvaged.
fn resume_after_loss(core: &Core, salvaged: Salvaged, last: Seq) -> Result<()> {
    let view = core.state.view.load_full();
    let mark = LossMark { kept: Some(salvaged.kept), ..loss_mark(&*core.state.engine)? };
    view.active.insert(Key::system(key::SALVAGED), last, mark.encode().map_or(Row::Tombstone, Row::Value), last);
    // Swept files may contain chunks that only lost transactions named, so they are swept again.
    if !planted(RecoveryBug::LostChunksKept) {
        view.active.insert(Key::system(key::SWEPT), last, Row::Tombstone, last);
    }
    core.install_all()
}

/// Replays a logged transaction.
pub(crate) fn replay(
    view: &View,
    engine: &dyn Engine,
    files: &BlobFiles,
    seq: Seq,
    payload: &[u8],
) -> Result<(), LogError> {
    let failed = |reason: String| LogError::Replay { seq, reason };
    let steps = entry::decode(Bytes::copy_from_slice(payload)).map_err(|e| failed(e.to_string()))?;
    let mut applied = None;
    let read = engine.read(&mut |engine| {
        let (active, frozen, at) = (&*view.active, None, ReadPosition::Seq(Seq::MAX));
        let below = Layers { changes: None, active, frozen, at, engine, files: Some(files) };
        applied = Some(Applier::run(below, seq, &steps));
    });
    read.map_err(|e| failed(e.to_string()))?;
    let changes = applied.ok_or_else(|| failed("the B-tree was not read".to_owned()))?;
    // No reader needs an older version during recovery.
    view.active.insert_all(changes.map_err(|e| failed(e.to_string()))?, seq, seq);
    Ok(())
}

/// The position up to which everything is in the B-tree; `None` if the creation of the store did not complete.
pub(crate) fn installed_position(engine: &dyn Engine) -> Result<Option<LogPosition>> {
    let Some(row) = engine.get(&Key::system(key::INSTALLED)).into_model_result()? else { return Ok(None) };
    let position = LogPosition::from_row(&row).ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, "the installed position in the B-tree is damaged; restore from a backup")
    })?;
    Ok(Some(position))
}

/// Removes the log of an interrupted creation. Nothing in it was acknowledged.
fn clear_log(disk: &dyn Disk) -> io::Result<()> {
    disk.make_dir(crate::log::DIR)?;
    for name in disk.list(crate::log::DIR)? {
        disk.remove(&format!("{}/{name}", crate::log::DIR))?;
    }
    Ok(())
}

/// Whether the payload of a frame is a valid entry; applies the entry to an empty store. For fuzzing.
///
/// # Panics
/// If an entry differs from what its encoding decodes to.
#[must_use]
pub fn check_log_payload(payload: &[u8]) -> bool {
    let Ok(steps) = entry::decode(Bytes::copy_from_slice(payload)) else { return false };
    let mut again = Vec::new();
    entry::encode(&mut again, &steps);
    assert_eq!(entry::decode(again.into()).as_ref(), Ok(&steps), "an entry decodes to itself");
    let (view, engine) = (View::new(Mob::new()), MemoryEngine::default());
    // The results of the read and of the steps do not matter here.
    let _ = engine.read(&mut |engine| {
        let (active, at) = (&*view.active, ReadPosition::Seq(Seq::MAX));
        let below = Layers { changes: None, active, frozen: None, at, engine, files: None };
        let _ = Applier::run(below, 1, &steps);
    });
    true
}
