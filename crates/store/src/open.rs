//! Opening: the directory's lock, the store's identity, and bringing back what the log holds.
//!
//! ```text
//! STORE      format and identity        tree/     the B-tree (LMDB)
//! LOCK       held while it is open      log/      segments
//!                                       blobs/    blob files
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use arc_swap::ArcSwap;
use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use model::{Error, ErrorKind, Result};
use parking_lot::{Condvar, Mutex};

use crate::apply::{Applier, ApplyOutcome};
use crate::backup::chunk_set::is_chunk_position;
use crate::backup::restore::{self, RESTORING};
use crate::blob_file::BlobFiles;
use crate::checksum::crc32c;
use crate::commit::WriterState;
use crate::commit_queue::CommitQueue;
use crate::core::{Core, DurableFiles};
use crate::disk::{Disk, RealDisk};
use crate::engine::lmdb::LmdbEngine;
use crate::engine::memory::MemoryEngine;
use crate::engine::{Engine, EngineRead};
use crate::entry::{self, Step};
use crate::error::{self, IntoModelResult, invalid};
use crate::install::{self, Housekeeping};
use crate::key::{Key, extent_of, table};
use crate::layers::{Layers, ReadPosition};
use crate::listing_cache::ListingCache;
use crate::log::frame::StoreId;
use crate::log::recover::{self, OnDamage};
use crate::log::{Log, LogError};
use crate::mob::{Mob, Seq};
use crate::options::Options;
use crate::repair;
use crate::status::Counters;
use crate::view::{PinTable, View};

/// The file with format and identity.
pub(crate) const IDENTITY_FILE: &str = "STORE";
pub(crate) const LOCK_FILE: &str = "LOCK";
pub(crate) const TREE_DIR: &str = "tree";
const PRODUCT: &str = "mortar store ";
const FORMAT: &str = "mortar store 1";
/// The space that every store has.
pub(crate) const MAIN_SPACE: &str = "main";

pub(crate) fn in_memory(options: Options) -> Result<Core> {
    let core = new_core(
        options,
        Box::new(MemoryEngine::default()),
        [0; 16],
        None,
        WriterState::resume_at(1, 0),
        View::new(Mob::for_memory_store()),
        None,
    );
    initialize(&core)?;
    Ok(core)
}

pub(crate) fn open(dir: &Path, options: Options) -> Result<Core> {
    fs::create_dir_all(dir).map_err(|e| error::io(&format!("creating {}", dir.display()), e))?;
    let lock = lock(dir)?;
    open_locked(dir, lock, options, OnDamage::Refuse)
}

/// Opens the store in a directory of which the caller has the lock.
pub(crate) fn open_locked(dir: &Path, lock: File, options: Options, on_damage: OnDamage) -> Result<Core> {
    let id = load_or_create_identity(dir)?;
    let engine = LmdbEngine::open(&dir.join(TREE_DIR)).into_model_result()?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(dir));
    let mut core = open_on(disk, Box::new(engine), id, options, on_damage)?;
    core.dir = Some(dir.to_owned());
    core.lock = Some(lock);
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
    let files = blob_files(&disk, &*engine)?;
    let view = View::new(Mob::new());
    let mut salvaged = None;
    let (log, last, crc) = match installed_seq(&*engine)? {
        None => {
            check_new(&*disk, &id)?;
            clear_log(&*disk).map_err(|e| error::io("clearing an unfinished log", e))?;
            let log = Log::create(disk, id, options.segment_bytes, 1, 0).into_model_result()?;
            let row = (Key::system("installed"), Some(Bytes::from_static(&[0; 8])));
            engine.write(&mut [Ok(row)].into_iter()).into_model_result()?;
            (log, 0, 0)
        }
        Some(installed) => {
            let mut replay = |seq, payload: &[u8]| replay(&view, &*engine, &files, seq, payload);
            let found = recover::open(&disk, id, options.segment_bytes, installed, on_damage, &mut replay)
                .into_model_result()?;
            tracing::info!(installed, last = found.last, cut = found.cut, "recovered the log");
            salvaged = found.salvaged;
            (found.log, found.last.max(installed), found.crc)
        }
    };
    if let Err(error) = files.prepare() {
        tracing::warn!(%error, "cannot make a blob file; the first large content will try again");
    }
    let writer = WriterState::resume_at(last + 1, crc);
    let core = new_core(options, engine, id, Some(DurableFiles { log, files }), writer, view, Some(last));
    core.load_freed_extents()?;
    if let Some(salvaged) = salvaged {
        repair::resume_after_loss(&core, salvaged, last)?;
    }
    initialize(&core)?;
    Ok(core)
}

pub(crate) fn blob_files(disk: &Arc<dyn Disk>, engine: &dyn Engine) -> Result<BlobFiles> {
    let used = last_blob_file(engine)?;
    BlobFiles::open(Arc::clone(disk), used).map_err(|e| error::io("opening the blob files", e))
}

/// The highest number of a blob file in the B-tree.
fn last_blob_file(engine: &dyn Engine) -> Result<u32> {
    // All numbers up to this one were given, whether their files are still there or not.
    let swept = install::swept_up_to(engine)?;
    let mut last = swept;
    for (behind, end) in [
        ((|file| Key::extent(file, 0)) as fn(u32) -> Key, Key::table(table::EXTENT).prefix_end()),
        (|file| Key::freed(file, 0), Key::table(table::FREED).prefix_end()),
    ] {
        let mut file = Some(swept);
        // One look for each file, not one for each chunk.
        while let Some(next) = file.and_then(|file: u32| file.checked_add(1)) {
            let (from, mut result) = (behind(next), Ok(()));
            file = None;
            let mut show = |key: &[u8], _: &[u8]| {
                file = extent_of(key).map(|(file, _)| file).filter(|file| is_chunk_position(*file, 0));
                ControlFlow::Break(())
            };
            engine.read(&mut |engine| result = engine.range(&from, &end, &mut show)).into_model_result()?;
            result.into_model_result()?;
            last = last.max(file.unwrap_or(0));
        }
    }
    Ok(last)
}

/// Without a position in the B-tree, the store was never finished being created: then nothing was ever committed.
pub(crate) fn check_new(disk: &dyn Disk, id: &StoreId) -> Result<()> {
    if recover::is_used(disk, id).into_model_result()? {
        let message = format!(
            "the B-tree is missing or empty ({TREE_DIR}/), and the log has transactions: put the directory back, or restore \
             from a backup"
        );
        return Err(Error::new(ErrorKind::Corrupt, message));
    }
    Ok(())
}

fn new_core(
    options: Options,
    engine: Box<dyn Engine>,
    id: StoreId,
    durable: Option<DurableFiles>,
    writer: WriterState,
    view: View,
    visible: Option<Seq>,
) -> Core {
    Core {
        options,
        dir: None,
        lock: None,
        id,
        engine,
        durable,
        view: ArcSwap::from_pointee(view),
        spare_mob: Mutex::new(None),
        visible_seq: AtomicU64::new(visible.unwrap_or(0)),
        pins: Arc::new(PinTable::new()),
        commit_queue: CommitQueue::default(),
        writer: Mutex::new(writer),
        force_lock: Mutex::default(),
        housekeeping: Mutex::new(Housekeeping::default()),
        installer_wakeup: Condvar::new(),
        disk_full: AtomicBool::new(false),
        install_failed: Mutex::new(None),
        reclaiming: Arc::new(AtomicBool::new(false)),
        install_lock: Mutex::new(()),
        create_space_lock: Mutex::new(()),
        uploads: Mutex::new(HashMap::new()),
        finishing_uploads: Mutex::new(HashSet::new()),
        next_upload: AtomicU64::new(1),
        listing_cache: ListingCache::new(),
        incarnation: AtomicU32::new(0),
        counters: Counters::default(),
    }
}

/// Counts the opening, and makes the first space in a new store.
fn initialize(core: &Core) -> Result<()> {
    let before = core.read_state(|layers| {
        let found = layers.find(&Key::system("incarnation"))?;
        let row = found.value().and_then(|row| row.try_into().ok());
        Ok(row.map(u32::from_be_bytes))
    })?;
    let incarnation = before.unwrap_or(0) + 1;
    let mut steps = vec![Step::Open { incarnation }];
    if before.is_none() {
        steps.push(Step::CreateSpace { id: 1, name: MAIN_SPACE.to_owned() });
    }
    core.incarnation.store(incarnation, std::sync::atomic::Ordering::Relaxed);
    // The threads do not run yet.
    core.submit_steps(steps, &Arc::default());
    core.force()
}

/// Applies a logged transaction again.
pub(crate) fn replay(
    view: &View,
    engine: &dyn Engine,
    files: &BlobFiles,
    seq: Seq,
    payload: &[u8],
) -> Result<(), LogError> {
    let failed = |reason: String| LogError::Replay { seq, reason };
    let entry = entry::decode(Bytes::copy_from_slice(payload)).map_err(|e| failed(e.to_string()))?;
    let mut given = Some(entry.created);
    let mut applied = None;
    let read = engine.read(&mut |engine| {
        let (active, frozen, at) = (&*view.active, None, ReadPosition::Seq(Seq::MAX));
        let below = Layers { changes: None, active, frozen, at, engine, files: Some(files) };
        applied = given.take().map(|given| Applier::run(below, seq, entry.time_us, Some(given), &entry.steps));
    });
    read.map_err(|e| failed(e.to_string()))?;
    match applied {
        Some(Ok(ApplyOutcome::Applied(done))) => {
            // No reader is older than the newest version.
            view.active.insert_all(done.changes, seq, seq);
            Ok(())
        }
        Some(Err(error)) => Err(failed(error.to_string())),
        _ => Err(failed("it was committed, and now meets a conflict".to_owned())),
    }
}

/// Up to which position the B-tree has everything; `None` if the store was never finished being created.
pub(crate) fn installed_seq(engine: &dyn Engine) -> Result<Option<Seq>> {
    let mut row = None;
    let key = Key::system("installed");
    let mut read = |engine: &dyn EngineRead| row = Some(engine.get(&key).map(|row| row.map(<[u8]>::to_vec)));
    engine.read(&mut read).into_model_result()?;
    let Some(row) = row.transpose().into_model_result()?.flatten() else { return Ok(None) };
    let row = row.try_into().map_err(|_| Error::new(ErrorKind::Corrupt, "the B-tree's position is damaged"))?;
    Ok(Some(Seq::from_be_bytes(row)))
}

/// Removes what an interrupted creation left: nothing was ever acknowledged.
fn clear_log(disk: &dyn Disk) -> io::Result<()> {
    disk.make_dir(crate::log::DIR)?;
    for name in disk.list(crate::log::DIR)? {
        disk.remove(&format!("{}/{name}", crate::log::DIR))?;
    }
    Ok(())
}

/// The number of the process that has the store in a directory open, or had it open last.
#[must_use]
pub fn lock_owner(dir: &Path) -> Option<u32> {
    fs::read_to_string(dir.join(LOCK_FILE)).ok()?.trim().parse().ok()
}

/// Takes the directory's lock for as long as the file is open.
pub(crate) fn lock(dir: &Path) -> Result<File> {
    let path = dir.join(LOCK_FILE);
    let fail = |e: io::Error| error::io(&format!("locking {}", dir.display()), e);
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(fail)?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            // Who holds it only helps the message.
            let who = lock_owner(dir).map(|process| format!(", process {process}")).unwrap_or_default();
            let message =
                format!("{} is open in another server{who}; stop that one, or use another directory", dir.display());
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        Err(e) => return Err(fail(e.into())),
    }
    file.set_len(0).and_then(|()| file.rewind()).map_err(fail)?;
    writeln!(file, "{}", std::process::id()).map_err(fail)?;
    Ok(file)
}

/// What the file with the store's identity says.
pub(crate) enum Identity {
    Known(StoreId),
    Missing,
    Damaged,
}

pub(crate) fn read_identity(dir: &Path) -> Result<Identity> {
    let path = dir.join(IDENTITY_FILE);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Identity::Missing),
        Err(e) => return Err(error::io(&format!("reading {}", path.display()), e)),
    };
    let text = String::from_utf8_lossy(&text);
    let first = text.lines().next().unwrap_or_default();
    if first.starts_with(PRODUCT) && first != FORMAT {
        let message =
            format!("{} says {first:?}; this version reads {FORMAT:?}: use the version that wrote it", path.display());
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    Ok(parse_identity(&text).map_or(Identity::Damaged, Identity::Known))
}

/// The store's identity; a new one for an empty directory.
fn load_or_create_identity(dir: &Path) -> Result<StoreId> {
    let lost = |how: &str| {
        let dir = dir.display();
        let message =
            format!("{dir} is a store, but its file {IDENTITY_FILE} is {how}; `mortar repair` can write it again");
        Error::new(ErrorKind::Corrupt, message)
    };
    match read_identity(dir)? {
        Identity::Known(id) => Ok(id),
        Identity::Damaged => Err(lost("damaged")),
        // It is the last thing that a restore writes, and the first that creating a store does.
        Identity::Missing if dir.join(RESTORING).exists() => Err(restore::interrupted_error(dir)),
        Identity::Missing if dir.join(TREE_DIR).exists() && dir.join(crate::log::DIR).exists() => Err(lost("missing")),
        Identity::Missing => create_identity(dir),
    }
}

/// The identity in the text of the file: all of it must be as it was written.
fn parse_identity(text: &str) -> Option<StoreId> {
    let id = text.lines().nth(1)?.strip_prefix("id ")?;
    let id = u128::from_str_radix(id, 16).ok()?.to_be_bytes();
    (identity_text(&id) == text).then_some(id)
}

fn identity_text(id: &StoreId) -> String {
    let text = format!("{FORMAT}\nid {:032x}\n", u128::from_be_bytes(*id));
    let check = crc32c(text.as_bytes());
    format!("{text}check {check:08x}\n")
}

fn create_identity(dir: &Path) -> Result<StoreId> {
    let fail = |e: io::Error| error::io(&format!("creating a store in {}", dir.display()), e);
    for entry in fs::read_dir(dir).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        if name != LOCK_FILE && name != "STORE.new" && name != "lost+found" {
            let (dir, name) = (dir.display(), name.to_string_lossy());
            return Err(invalid(format!(
                "{dir} is no store, and not empty: it has {name:?}; choose another directory"
            )));
        }
    }
    let id = new_identity().map_err(fail)?;
    write_identity(dir, &id).map_err(fail)?;
    Ok(id)
}

/// An identity that no other store has.
pub(crate) fn new_identity() -> io::Result<StoreId> {
    let mut id = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut id)?;
    Ok(id)
}

/// Makes a directory a store.
pub(crate) fn write_identity(dir: &Path, id: &StoreId) -> io::Result<()> {
    let new = dir.join("STORE.new");
    let mut file = File::create(&new)?;
    file.write_all(identity_text(id).as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, dir.join(IDENTITY_FILE))?;
    File::open(dir)?.sync_all()
}
