//! A store on a simulated machine, for simulations and tests of users of a [`Store`].
//!
//! A [`SimStore`] runs the same code as a store in a directory: log, recovery, buffer and installation. Only the file
//! system and the B-tree are in memory, and there are no threads: nothing becomes durable and nothing is installed
//! until the caller requests it. After a crash, a [`DiskImage`] contains every forced byte, the B-tree, and a random
//! part of the unforced data. A store can be opened from it.
//!
//! 1. Equal calls in equal order give equal results and equal bytes. No clock is read, except for the durations in
//!    [`Status`](crate::Status).
//! 2. The callbacks of [`Store::submit_rows`] run inside [`SimStore::force`], in the order of the log. Exceptions: requests
//!    refused because the store is closed, and all calls of `Store` that wait ([`Store::commit_rows`], [`Store::install`]);
//!    these force the log themselves.

use std::fmt;
use std::io::Read;
use std::ops::ControlFlow;
use std::sync::Arc;

use model::Result;
use parking_lot::Mutex;

use crate::backup::restore::restore_on;
use crate::change_tracking::ChangeTracker;
use crate::disk::Disk;
use crate::disk::sim::SimDisk;
use crate::engine::Engine;
use crate::engine::memory::MemoryEngine;
use crate::engine::sim::{DamagedPage, EngineFaults, SimEngine};
use crate::log::recover::OnDamage;
use crate::open::open_on;
use crate::options::Options;
use crate::roll_forward::{RollForward, check_changes};
use crate::rows::key::{Key, table};
use crate::rows::key_range::KeyRange;
use crate::store::Store;

/// Rows of a damaged page, at most.
const MAX_DAMAGED_ROWS: usize = 40;
/// The identity of every simulated store.
const STORE_ID: [u8; 16] = [7; 16];

/// The durable state of a machine that is not running. The default is an empty disk.
#[derive(Default)]
pub struct DiskImage {
    files: SimDisk,
    tree: MemoryEngine,
    damage: Option<Arc<DamagedPage>>,
}

impl Clone for DiskImage {
    /// A copy that shares no mutable state.
    fn clone(&self) -> Self {
        Self { files: self.files.image(), tree: self.tree.image(), damage: self.damage.clone() }
    }
}

impl fmt::Debug for DiskImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskImage").field("digest", &format_args!("{:08x}", self.digest())).finish()
    }
}

impl DiskImage {
    /// The disk of a store that is restored from a chain of archives, and rolled forward by archives of changes.
    ///
    /// # Errors
    /// As [`Store::restore_chain`] and [`RollForward::apply`].
    pub fn restore(chain: &[Vec<u8>], changes: &[Vec<u8>], options: Options) -> Result<Self> {
        let position = match changes.last() {
            Some(last) => check_changes(&mut &last[..])?,
            None => 0,
        };
        let image = Self::default();
        let disk: Arc<dyn Disk> = Arc::new(image.files.clone());
        let archives = chain.iter().map(|archive| Box::new(&archive[..]) as Box<dyn Read + '_>).collect();
        restore_on(&disk, &image.tree, STORE_ID, &options, (archives, position), &())?;
        if changes.is_empty() {
            return Ok(image);
        }
        let machine = SimStore::open(image, options)?;
        let store = machine.store();
        let mut forward = RollForward::begin(&store);
        changes.iter().try_for_each(|archive| forward.apply(&mut &archive[..]))?;
        forward.finish()?;
        Ok(machine.crash(0))
    }

    /// Makes a [damaged](SimStore::damage) page of the B-tree whole again.
    pub fn heal(&mut self) {
        self.damage = None;
    }

    /// A checksum of all files and all rows of the B-tree. Equal images have equal checksums.
    #[must_use]
    pub fn digest(&self) -> u32 {
        self.tree.digest(self.files.digest())
    }
}

/// A store on a simulated machine, driven by its caller.
pub struct SimStore {
    files: SimDisk,
    tree: MemoryEngine,
    faults: Arc<Mutex<EngineFaults>>,
    store: Store,
}

impl SimStore {
    /// Opens the store on a disk, or creates it on an empty one, and recovers the log. Changes the disk and forces the
    /// record of the opening.
    ///
    /// `options.threads` is ignored.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open(disk: DiskImage, options: Options) -> Result<Self> {
        let options = Options { threads: false, ..options };
        let DiskImage { files, tree, damage } = disk;
        let faults = Arc::new(Mutex::new(EngineFaults { damage, ..EngineFaults::default() }));
        let engine = SimEngine { memory: tree.clone(), disk: files.clone(), faults: Arc::clone(&faults) };
        let core = open_on(Arc::new(files.clone()), Box::new(engine), STORE_ID, options, OnDamage::Refuse)?;
        Ok(Self { files, tree, faults, store: Store::start(core)? })
    }

    /// A handle to the store.
    #[must_use]
    pub fn store(&self) -> Store {
        self.store.clone()
    }

    /// Begins to note what changes. Between two forces everything that was applied is durable, so the tracker need not wait for a force as that of
    /// [`Store::track_changes`] does.
    #[must_use]
    pub fn track_changes(&self) -> ChangeTracker {
        self.store.core().begin_tracking()
    }

    /// Whether [`SimStore::force`] has work: transactions to apply, records to write, or replies to send.
    ///
    /// False if changes only wait for room in the buffer; then [`SimStore::is_install_wanted`] is true.
    #[must_use]
    pub fn is_force_wanted(&self) -> bool {
        self.store.core().is_force_wanted()
    }

    /// Applies what was submitted, writes it to the log, forces the log, makes it visible, and runs the callbacks.
    ///
    /// # Errors
    /// The error of the callbacks: nothing of what was not durable is stored. After an error other than
    /// [`model::ErrorKind::Full`] the store accepts no changes until it is opened again.
    pub fn force(&self) -> Result<()> {
        self.store.force()
    }

    /// Logs the marker that a store writes when it is idle. The marker says that everything before it was forced, so
    /// recovery can distinguish a torn tail from damage. It takes a position of the log. Does nothing if the last
    /// record is a marker or if [`SimStore::force`] has work.
    ///
    /// # Errors
    /// As [`SimStore::force`].
    pub fn force_marker(&self) -> Result<()> {
        let core = self.store.core();
        if core.is_force_wanted() {
            return Ok(());
        }
        core.write_marker(&mut core.pipeline.writer.lock());
        core.force()
    }

    /// Whether logged changes wait for room in the buffer or for installation because the buffer is half full.
    #[must_use]
    pub fn is_install_wanted(&self) -> bool {
        self.store.core().state.view.load().frozen.is_some()
    }

    /// Moves logged changes to the B-tree, frees log segments, and removes unused chunks.
    ///
    /// Installs one buffer: the frozen one, or else the active one. Does nothing while the buffer has unforced changes.
    /// Never forces the log and never runs a callback.
    ///
    /// # Errors
    /// [`model::ErrorKind::Full`] without room, [`model::ErrorKind::Io`] after [`SimStore::stop_after`]. Nothing is
    /// lost, and the call may be repeated.
    pub fn install(&self) -> Result<()> {
        let core = self.store.core();
        core.freeze_if_idle();
        core.install_and_record()?;
        core.do_housekeeping()
    }

    /// The number of changes of the disk so far: writes, forces, changes of names, and batches of the B-tree.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.files.steps()
    }

    /// Lets `steps` more changes of the disk succeed and every later one fail, so the machine stops in the middle of an
    /// operation. Later replies of the store do not matter; [`SimStore::crash`] returns the disk.
    pub fn stop_after(&self, steps: usize) {
        self.files.stop_after(steps);
    }

    /// Limits the growth of the files and of the B-tree to `bytes` each; `None` removes the limit.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.files.set_free_bytes(bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)));
        self.faults.lock().room = bytes.map(|bytes| self.tree.size().saturating_add(bytes));
    }

    /// Damages a page of the B-tree: some rows of the store's user cannot be read from now on, apart from those that the buffer has or
    /// gets. `seed` determines which. The page is whole again after [`SimStore::heal`]. Says whether there were rows.
    pub fn damage(&self, seed: u64) -> bool {
        let Some(range) = self.some_rows(seed) else { return false };
        self.faults.lock().damage = Some(Arc::new(DamagedPage::new(range)));
        true
    }

    /// Makes the damaged page of the B-tree whole again.
    pub fn heal(&self) {
        self.faults.lock().damage = None;
    }

    /// Calls `look` as if no page was damaged: for what watches a simulation and takes no part in it.
    pub fn ignoring_damage<T>(&self, look: impl FnOnce() -> T) -> T {
        let damage = self.faults.lock().damage.take();
        let seen = look();
        self.faults.lock().damage = damage;
        seen
    }

    /// A range with some rows of the store's user, as many as a page may have.
    fn some_rows(&self, seed: u64) -> Option<KeyRange> {
        let (first, behind) = (Key::table(table::ROW), Key::table(table::ROW).prefix_end());
        let mut keys = Vec::new();
        let scanned = self.tree.range(&first, &behind, &mut |key, _| {
            keys.push(key.to_vec());
            ControlFlow::Continue(())
        });
        scanned.ok()?;
        let from = usize::try_from(seed).unwrap_or(usize::MAX) % keys.len().max(1);
        let to = keys.get(from + 1 + (seed >> 32) as usize % MAX_DAMAGED_ROWS).map(Vec::as_slice);
        Some(KeyRange::new(keys.get(from)?, Some(to.unwrap_or(&behind))))
    }

    /// Stops the machine and returns a possible state of its disk after a power failure at this moment.
    ///
    /// The image has everything that was forced. Of the rest it has all, nothing, or a random part: single sectors of
    /// writes, and a prefix of the changes of each directory. `seed` determines the part.
    #[must_use]
    pub fn crash(&self, seed: u64) -> DiskImage {
        let damage = self.faults.lock().damage.clone();
        let image = DiskImage { files: self.files.crash(seed), tree: self.tree.image(), damage };
        self.files.stop_after(0);
        image
    }
}

#[cfg(test)]
mod tests;
