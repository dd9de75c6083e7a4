//! The engine on disk: a B-tree in one file that is written copy on write and read from a memory map.
//!
//! Each reference to a page has the checksum of the page, up to the root's in a meta page. So damage of any byte of any page, an
//! older copy of a page and a page in a wrong place are noticed when the page is first read, and everything else stays readable.
//! A batch writes new pages only, then the meta page: after a crash the tree has the state of the last durable batch.
//!
//! 1. No byte of the file is used without a check of its bounds, even if its checksum matches.
//! 2. A page of a state is not written while that state can be read (`space`).
//! 3. A damaged page in the path of a change does not stop a batch. It is replaced by a leaf that has the changed rows and says that
//!    all others in its range are lost, so reads of these still fail, until a repair gives them up.
//!
//! | module | contains |
//! | --- | --- |
//! | `page`, `meta` | the format |
//! | `file` | the map, and the check of a page when it is first read |
//! | `read` | look-ups, scans, and the check of a whole tree |
//! | `space` | which pages are in use |
//! | `batch` | how a sorted batch becomes new pages |
//! | `changes` | the changed rows, and leaves with them |
//! | `residency` | whether rows are in memory |
//! | `damage` | what can be wrong |

mod batch;
mod changes;
mod damage;
mod file;
mod meta;
mod page;
mod read;
mod residency;
mod space;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::{BatchAborted, Engine, EngineError, EnginePin, EngineRead, EngineResult, EngineRow};
use crate::disk::{self, Disk};
use crate::plant::{TreeBug, planted};
use crate::rows::key::{self, Key};
use batch::Batch;
use damage::FileDamage;
use file::{MAX_PAGES, TreeFile};
use meta::{FoundMeta, SystemRows, TreeState, get_ref};
use page::{MAX_LEVEL, PAGE, PageRef, ROOM};
use read::TreeRead;
use space::Space;

/// The directory of the file in that of the store.
pub(crate) const DIR: &str = "tree";
/// The name of the file.
pub(crate) const NAME: &str = "tree/rows";
/// The file while it is created.
const NEW_NAME: &str = "tree/rows.new";
/// The version of the format.
const FORMAT: u32 = 1;
/// The meta pages. A fault of the disk that hits 64 KiB leaves one of them.
const META_PLACES: [u64; 2] = [0, 16];
/// Pages before those of the tree. Those that are no meta pages are not used.
const HEADER_PAGES: u64 = 17;
/// References to pages of the map of used pages in an index page.
const INDEX_REFS: usize = PAGE / 12;
const _: () =
    assert!((meta::MAX_INDEX * INDEX_REFS) as u64 * space::SECTION_PAGES >= MAX_PAGES, "the map covers all pages");

/// The root and its level; `None` without rows.
type Root = Option<(PageRef, u8)>;

/// The identity of the store to which a tree belongs.
pub(crate) type TreeId = [u8; 16];

/// The engine.
pub(crate) struct TreeEngine {
    file: Arc<TreeFile>,
    id: TreeId,
    state: ArcSwap<TreeState>,
    writer: Mutex<Writer>,
    /// Whether the meta page of the newest state was not valid or could not be read at the opening, so that an older one counts.
    has_fallen_back: AtomicBool,
    /// Bytes of entries that a new page takes.
    room: usize,
}

/// What a batch needs besides the newest state.
struct Writer {
    space: Space,
    /// Earlier states that may still be read, oldest first.
    earlier: VecDeque<(u64, Weak<TreeState>)>,
    /// Whether a meta page is being written or could not be written: then it is unknown which state the file has.
    is_broken: bool,
    /// Batches in a row that failed because a page could not be read.
    failed_reads: u32,
}

/// When a batch becomes durable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Durability {
    /// Before its call returns.
    Now,
    /// With a later batch.
    Later,
}

struct TreePin {
    file: Arc<TreeFile>,
    state: Arc<TreeState>,
}

fn io_error(error: io::Error) -> EngineError {
    if disk::is_full(&error) { EngineError::Full(Box::new(error)) } else { EngineError::Failed(Box::new(error)) }
}

fn damage_error(damage: FileDamage) -> EngineError {
    EngineError::Damaged(Box::new(damage))
}

impl TreeEngine {
    /// Opens the tree of a store, or creates it.
    ///
    /// The caller holds the store's lock: no other process may have the directory open.
    pub(crate) fn open(disk: &dyn Disk, id: &TreeId) -> EngineResult<Self> {
        disk.make_dir(DIR).map_err(io_error)?;
        let file = match TreeFile::open(disk, id) {
            // A file that cannot be looked for is not missing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create(disk, id).and_then(|()| TreeFile::open(disk, id))
            }
            opened => opened,
        };
        let file = file.map_err(io_error)?;
        let (state, has_fallen_back) = read_meta(&file, id)?;
        let (found, needed) = (file.len().map_err(io_error)?, state.pages.saturating_mul(PAGE as u64));
        if found < needed {
            return Err(damage_error(FileDamage::Truncated { found, needed }));
        }
        let mut space = Space::new(state.pages, state.index.clone());
        load_space(&file, &mut space, state.pages, &mut |what| {
            tracing::warn!(what, "free space of the B-tree is not used")
        });
        let writer = Writer { space, earlier: VecDeque::new(), is_broken: false, failed_reads: 0 };
        Ok(Self {
            file: Arc::new(file),
            id: *id,
            state: ArcSwap::from_pointee(state),
            writer: Mutex::new(writer),
            has_fallen_back: AtomicBool::new(has_fallen_back),
            room: ROOM,
        })
    }

    fn read_state<'a>(&'a self, state: &'a TreeState) -> TreeRead<'a> {
        TreeRead { file: &self.file, state }
    }

    /// Writes the pages of a batch, and makes them durable or begins to; returns the new state.
    fn write_pages(
        &self,
        writer: &mut Writer,
        before: &TreeState,
        durability: Durability,
        change: impl FnOnce(&mut Batch<'_>) -> EngineResult<Root>,
    ) -> EngineResult<TreeState> {
        let Writer { space, failed_reads, .. } = writer;
        let mut batch = Batch::new(&self.file, space, before, self.room, failed_reads);
        let root = change(&mut batch)?;
        batch.write_map()?;
        batch.flush()?;
        let system = batch.system;
        let pages = space.pages();
        self.file.grow(pages * PAGE as u64).map_err(io_error)?;
        match durability {
            Durability::Now if planted(TreeBug::HeaderBeforeData) => {}
            Durability::Now => self.file.force().map_err(io_error)?,
            // The disk works while the next batch is made.
            Durability::Later => self.file.begin_write_back(pages * PAGE as u64),
        }
        Ok(TreeState { batch: before.batch + 1, pages, root, system, index: space.index.clone() })
    }

    /// Writes a batch: the pages that `change` makes of the newest state, and the root that it returns.
    fn write_batch(
        &self,
        durability: Durability,
        change: impl FnOnce(&mut Batch<'_>) -> EngineResult<Root>,
    ) -> EngineResult<()> {
        let mut writer = self.writer.lock();
        if writer.is_broken {
            return Err(EngineError::Failed("the B-tree could not be written earlier: restart the server".into()));
        }
        let before = self.state.load_full();
        let oldest = writer.oldest(before.batch);
        writer.space.begin(oldest);
        let state = match self.write_pages(&mut writer, &before, durability, change) {
            Ok(state) => state,
            Err(error) => {
                writer.space.abort();
                return Err(error);
            }
        };
        // Until this is known to have succeeded, the file has this batch or the one before.
        writer.is_broken = !planted(TreeBug::FailedHeaderForgotten);
        if durability == Durability::Now {
            self.write_meta(&state).map_err(io_error)?;
        }
        writer.space.commit(state.batch);
        writer.failed_reads = 0;
        writer.earlier.push_back((before.batch, Arc::downgrade(&before)));
        self.state.store(Arc::new(state));
        writer.is_broken = false;
        Ok(())
    }

    fn write_meta(&self, state: &TreeState) -> io::Result<()> {
        self.file.write_at(&state.encode(&self.id)[..], meta_place(state.batch) * PAGE as u64)?;
        self.file.force()
    }
}

impl Writer {
    /// The oldest batch whose state may still be read.
    fn oldest(&mut self, newest: u64) -> u64 {
        if planted(TreeBug::ReusedUnderReader) {
            return newest;
        }
        self.earlier.retain(|(_, state)| state.strong_count() > 0);
        // The reads of states that are gone come before the writes of their pages.
        fence(Ordering::Acquire);
        self.earlier.front().map_or(newest, |(batch, _)| *batch)
    }
}

/// The page that describes the state after a batch.
fn meta_place(batch: u64) -> u64 {
    META_PLACES[(batch % 2) as usize]
}

/// Creates a tree without rows, durably.
fn create(disk: &dyn Disk, id: &TreeId) -> io::Result<()> {
    let file = disk.create(NEW_NAME)?;
    let empty =
        TreeState { batch: 0, pages: HEADER_PAGES, root: None, system: SystemRows::default(), index: Vec::new() };
    file.write_at(0, &empty.encode(id)[..])?;
    file.grow(HEADER_PAGES * PAGE as u64)?;
    file.force()?;
    disk.rename_new(NEW_NAME, NAME)?;
    if planted(TreeBug::NameNotForced) {
        return Ok(());
    }
    disk.force_names(DIR)
}

/// The meta page of the newest durable batch, and whether the other one is damaged, so that it may have been newer.
fn read_meta(file: &TreeFile, id: &TreeId) -> EngineResult<(TreeState, bool)> {
    let mut newest: Option<TreeState> = None;
    let (mut refusal, mut is_damaged) = (None, false);
    for page in META_PLACES {
        let mut bytes = [0; PAGE];
        match file.read_at(&mut bytes, page * PAGE as u64) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
            Err(error) => {
                tracing::warn!(%error, page, file = NAME, "a header of the B-tree cannot be read");
                is_damaged = true;
                continue;
            }
            Ok(()) => {}
        }
        match TreeState::decode(&bytes, id) {
            FoundMeta::Valid(meta) if is_possible(&meta, page) => {
                let is_newer = |newest: &TreeState| (newest.batch > meta.batch) != planted(TreeBug::OlderHeaderCounts);
                newest = newest.filter(is_newer).or(Some(meta));
            }
            FoundMeta::OtherStore => refusal = Some(FileDamage::OtherStore),
            FoundMeta::OtherFormat(format) => refusal = Some(FileDamage::Format { format, known: FORMAT }),
            FoundMeta::Valid(_) | FoundMeta::Invalid if bytes == [0; PAGE] => {}
            FoundMeta::Valid(_) | FoundMeta::Invalid => {
                tracing::warn!(page, file = NAME, "a header of the B-tree is not valid");
                is_damaged = true;
            }
        }
    }
    match (newest, refusal) {
        (_, Some(refusal)) => Err(damage_error(refusal)),
        (Some(newest), None) => Ok((newest, is_damaged)),
        (None, None) => Err(damage_error(FileDamage::Header)),
    }
}

fn is_possible(meta: &TreeState, page: u64) -> bool {
    meta_place(meta.batch) == page
        && (HEADER_PAGES..=MAX_PAGES).contains(&meta.pages)
        && meta.root.is_none_or(|(_, level)| level <= MAX_LEVEL)
}

/// Reads the map of used pages. A part that cannot be read counts as used.
fn load_space(file: &TreeFile, space: &mut Space, pages: u64, damage: &mut dyn FnMut(String)) {
    let index = space.index.clone();
    // A page of the map that is damaged is not used again: it may be one of the tree.
    read_map(file, &index, pages, &mut |section, at, bits| space.load_section(section, at, bits), damage);
}

/// Reads the pages of the map of used pages: calls `show` with the number, the place and the bits of each section.
fn read_map(
    file: &TreeFile,
    index: &[PageRef],
    pages: u64,
    show: &mut dyn FnMut(usize, PageRef, &[u8; PAGE]),
    damage: &mut dyn FnMut(String),
) {
    let mut read = |at: PageRef| {
        let mut bytes = Box::new([0; PAGE]);
        let found = file.copy(at, pages, &mut bytes).map(|()| bytes);
        found.map_err(|error| damage(format!("the map of used pages of {NAME}: {}", error.cause()))).ok()
    };
    let sections = pages.div_ceil(space::SECTION_PAGES) as usize;
    for (number, at) in index.iter().enumerate() {
        let Some(refs) = read(*at) else { continue };
        let first = number * INDEX_REFS;
        for (section, bytes) in (first..sections).zip(refs.as_chunks::<12>().0) {
            let at = get_ref(bytes);
            if let Some(bits) = read(at) {
                show(section, at, &bits);
            }
        }
    }
}

impl EnginePin for TreePin {
    fn read(&self, read: &mut dyn FnMut(&dyn EngineRead)) {
        read(&TreeRead { file: &self.file, state: &self.state });
    }
}

impl Engine for TreeEngine {
    fn read(&self, read: &mut dyn FnMut(&dyn EngineRead)) -> EngineResult<()> {
        let state = self.state.load();
        read(&self.read_state(&state));
        Ok(())
    }

    fn pin(&self) -> EngineResult<Box<dyn EnginePin>> {
        Ok(Box::new(TreePin { file: Arc::clone(&self.file), state: self.state.load_full() }))
    }

    fn make_durable(&self) -> EngineResult<()> {
        let _writer = self.writer.lock();
        let state = self.state.load();
        if planted(TreeBug::HeaderNotMadeDurable) {
            return Ok(());
        }
        if self.has_fallen_back.load(Ordering::Relaxed) && !planted(TreeBug::DamagedHeaderStays) {
            // The other meta page must not become valid again: the next batches use pages of its state.
            self.file.write_at(&[0; PAGE], meta_place(state.batch + 1) * PAGE as u64).map_err(io_error)?;
        }
        // The same bytes again: the system may take a page that it failed to write for written.
        self.write_meta(&state).map_err(io_error)?;
        self.has_fallen_back.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn write(&self, rows: &mut dyn Iterator<Item = Result<EngineRow, BatchAborted>>) -> EngineResult<()> {
        self.write_batch(Durability::Now, |batch| batch.apply(rows))
    }

    fn load(&self, rows: &mut dyn Iterator<Item = Result<EngineRow, BatchAborted>>) -> EngineResult<()> {
        self.write_batch(Durability::Later, |batch| batch.apply(rows))
    }

    fn give_up(
        &self,
        parts: &[(Key, u64)],
        rows: &mut dyn Iterator<Item = Result<EngineRow, BatchAborted>>,
    ) -> EngineResult<()> {
        // A change of a key leads to its page. System rows are not changed: they are in the meta page, too.
        let leading = |first: &Key| match first.is_empty() || key::system_row(first).is_some() {
            true => first.successor(),
            false => first.clone(),
        };
        let mut rows = parts.iter().map(|(first, _)| Ok((leading(first), None))).chain(rows);
        self.write_batch(Durability::Now, |batch| {
            batch.given_up = parts.iter().map(|(_, page)| *page).collect();
            batch.apply(&mut rows)
        })
    }

    fn reclaim_space(&self) -> EngineResult<u64> {
        let mut reclaimed = 0;
        self.write_batch(Durability::Now, |batch| {
            reclaimed = batch.free_unreachable()?;
            Ok(batch.before.root)
        })?;
        Ok(reclaimed * PAGE as u64)
    }

    fn forget_some_checks(&self) {
        self.file.forget_some_checks(self.state.load().pages, file::waits_for_pages());
    }

    fn is_resident(&self, from: &[u8], to: &[u8]) -> bool {
        residency::is_resident(&self.file, &self.state.load(), from, to)
    }

    fn size(&self) -> u64 {
        self.state.load().pages * PAGE as u64
    }
}
