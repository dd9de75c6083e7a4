//! A store on a simulated machine, for simulations and tests of what is built on a [`Store`].
//!
//! A [`SimStore`] is the same code as a store in a directory: log, recovery, buffer and installation. Only the file
//! system and the B-tree are in memory, and there are no threads: nothing becomes durable, and nothing is installed,
//! until the caller says so. After a crash, a [`DiskImage`] has every forced byte, the B-tree, and a random part of what
//! was not forced; a store is opened from it again.
//!
//! 1. Equal calls in equal order give equal results and equal bytes. No clock is read, except for the durations in
//!    [`Status`](crate::Status).
//! 2. The callbacks of [`Store::submit_rows`] and [`Store::submit`] run inside [`SimStore::force`], in the order of the
//!    log. Exceptions: requests refused because the store is closed, and all calls of `Store` that wait
//!    ([`Store::commit_rows`], [`Store::commit`], [`Store::install`], [`Store::create_space`]); these force the log
//!    themselves.

use std::fmt;
use std::sync::Arc;

use model::Result;
use parking_lot::Mutex;

use crate::disk::sim::SimDisk;
use crate::engine::Engine;
use crate::engine::memory::MemoryEngine;
use crate::engine::sim::{EngineFaults, SimEngine};
use crate::log::recover::OnDamage;
use crate::open::open_on;
use crate::options::Options;
use crate::store::Store;

/// The identity of every simulated store.
const STORE_ID: [u8; 16] = [7; 16];

/// The durable state of a machine that is not running. The default is an empty disk.
#[derive(Default)]
pub struct DiskImage {
    files: SimDisk,
    tree: MemoryEngine,
}

impl Clone for DiskImage {
    /// A copy that shares nothing that can change.
    fn clone(&self) -> Self {
        Self { files: self.files.image(), tree: self.tree.image() }
    }
}

impl fmt::Debug for DiskImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskImage").field("digest", &format_args!("{:08x}", self.digest())).finish()
    }
}

impl DiskImage {
    /// A checksum of all files and all rows of the B-tree: equal for images that are equal.
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
    /// Opens the store on a disk, or creates it on an empty one; recovers what the log has. This changes the disk, and
    /// forces the record of the opening.
    ///
    /// `options.threads` does not matter. Changes have the time `options.fixed_time_us`, or 0.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open(disk: DiskImage, options: Options) -> Result<Self> {
        let fixed_time_us = Some(options.fixed_time_us.unwrap_or(0));
        let options = Options { threads: false, fixed_time_us, ..options };
        let DiskImage { files, tree } = disk;
        let faults = Arc::new(Mutex::new(EngineFaults::default()));
        let engine = SimEngine { memory: tree.clone(), disk: files.clone(), faults: Arc::clone(&faults) };
        let core = open_on(Arc::new(files.clone()), Box::new(engine), STORE_ID, options, OnDamage::Refuse)?;
        Ok(Self { files, tree, faults, store: Store::start(core)? })
    }

    /// A handle to the store.
    #[must_use]
    pub fn store(&self) -> Store {
        self.store.clone()
    }

    /// Whether [`SimStore::force`] has something to do: to apply what was submitted, to write records, or to reply.
    ///
    /// False for changes that only wait for room in the buffer; then [`SimStore::is_install_wanted`] is true.
    #[must_use]
    pub fn is_force_wanted(&self) -> bool {
        self.store.core().is_force_wanted()
    }

    /// Applies what was submitted, writes it to the log, forces the log, makes it visible, and runs the callbacks.
    ///
    /// # Errors
    /// What the callbacks got, too: of all that was not durable, nothing is there. After an error other than
    /// [`model::ErrorKind::Full`] the store takes no more changes until it is opened again.
    pub fn force(&self) -> Result<()> {
        self.store.force()
    }

    /// Logs the record that a store writes when no change comes for a while. It says that all before it were forced, so
    /// recovery can tell a torn tail from damage. It takes a position of the log. Does nothing if it is there already or
    /// if something waits to be forced.
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

    /// Moves logged changes to the B-tree and does what follows: frees log segments, removes unused content.
    ///
    /// Installs one buffer: the one that is waiting, or else the current one. Does nothing while the buffer has changes
    /// that are not forced. Never forces the log and never runs a callback.
    ///
    /// # Errors
    /// [`model::ErrorKind::Full`] without room, [`model::ErrorKind::Io`] after [`SimStore::stop_after`]. Nothing is lost;
    /// it can be tried again.
    pub fn install(&self) -> Result<()> {
        let core = self.store.core();
        core.freeze_if_idle();
        core.install_and_record()?;
        core.do_housekeeping()
    }

    /// How many changes of the disk were made: writes, forces, changes of names, and batches of the B-tree.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.files.steps()
    }

    /// Lets `steps` more changes of the disk happen and every later one fail: the machine stops in the middle of what it
    /// does. What the store replies from then on is of no interest; [`SimStore::crash`] gives the disk.
    pub fn stop_after(&self, steps: usize) {
        self.files.stop_after(steps);
    }

    /// Lets the files and the B-tree each grow by at most `bytes`; `None` removes the limit.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.files.set_free_bytes(bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)));
        self.faults.lock().room = bytes.map(|bytes| self.tree.size().saturating_add(bytes));
    }

    /// Stops the machine and returns what is found on its disk after a power failure at this moment.
    ///
    /// It has everything that was forced. Of the rest it has all, nothing, or a random part: single sectors of writes,
    /// and the first few changes of each directory. `seed` decides; another seed gives another possible disk.
    #[must_use]
    pub fn crash(&self, seed: u64) -> DiskImage {
        let image = DiskImage { files: self.files.crash(seed), tree: self.tree.image() };
        self.files.stop_after(0);
        image
    }
}

#[cfg(test)]
mod tests;
