//! Stores to test: in memory, on a simulated disk, and on the real one.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Options, Store};
use crate::commit::Core;
use crate::disk::sim::SimDisk;
use crate::engine::memory::MemoryEngine;
use crate::engine::sim::{EngineFaults, SimEngine};
use crate::log::entry::Step;
use crate::log::recover::OnDamage;
use crate::open::open_on;

/// A store on a simulated disk. Nothing happens in the background.
pub(crate) struct SimulatedStore {
    pub(crate) disk: SimDisk,
    pub(crate) engine: MemoryEngine,
    pub(crate) faults: Arc<Mutex<EngineFaults>>,
    pub(crate) store: Store,
}

pub(crate) fn small_options() -> Options {
    Options { mob_bytes: 1 << 20, segment_bytes: 64 << 10, threads: false, ..Options::default() }
}

impl SimulatedStore {
    pub(crate) fn new() -> Self {
        Self::open(SimDisk::new(), MemoryEngine::default()).unwrap()
    }

    pub(crate) fn open(disk: SimDisk, engine: MemoryEngine) -> model::Result<Self> {
        Self::open_with(disk, engine, small_options())
    }

    pub(crate) fn open_with(disk: SimDisk, engine: MemoryEngine, options: Options) -> model::Result<Self> {
        let faults = Arc::new(Mutex::new(EngineFaults::default()));
        let boxed = SimEngine { memory: engine.clone(), disk: disk.clone(), faults: Arc::clone(&faults) };
        let core = open_on(Arc::new(disk.clone()), Box::new(boxed), [7; 16], options, OnDamage::Refuse)?;
        Ok(Self { disk, engine, faults, store: Store::start(core)? })
    }

    /// The store after a power failure at this moment.
    pub(crate) fn crash(&self, seed: u64) -> model::Result<Self> {
        Self::open(self.disk.crash(seed), self.engine.image())
    }

    /// The store in a new process after this one was killed.
    pub(crate) fn crash_of_process(&self) -> Self {
        Self::open(self.disk.crash_of_process(), self.engine.image()).unwrap()
    }

    pub(crate) fn core(&self) -> &Core {
        self.store.core()
    }

    /// Does all background work.
    pub(crate) fn run_housekeeping(&self) {
        run_housekeeping(&self.store);
    }
}

/// Installs, removes garbage and frees storage until nothing is left to do. No upload may be unfinished.
pub(crate) fn run_housekeeping(store: &Store) {
    let core = store.core();
    for _ in 0..100 {
        let before = store.status().version;
        store.install().unwrap();
        core.do_housekeeping().unwrap();
        core.force().unwrap();
        let (at_rest, unwritten) = core.housekeeping_state();
        if store.status().version == before && at_rest {
            return;
        }
        if unwritten {
            // Freed extents are recorded with the next change.
            let incarnation = store.status().incarnation as u32;
            core.commit_steps(vec![Step::Open { incarnation }], Vec::new()).unwrap();
        }
    }
    panic!("the store always has background work");
}

pub(crate) fn memory_store() -> Store {
    Store::in_memory(small_options()).unwrap()
}

pub(crate) fn real_store(dir: &Path) -> Store {
    Store::open(dir, Options { threads: true, mob_bytes: 1 << 20, segment_bytes: 256 << 10, ..small_options() })
        .unwrap()
}

/// Runs a test on every kind of store: in memory, with changes in the buffer, and with changes in the B-tree.
pub(crate) fn on_every_store(test: impl Fn(&Store, &dyn Fn())) {
    let store = memory_store();
    test(&store, &|| {});
    let simulated = SimulatedStore::new();
    test(&simulated.store, &|| {});
    let simulated = SimulatedStore::new();
    test(&simulated.store, &|| simulated.store.install().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let store = real_store(dir.path());
    test(&store, &|| store.install().unwrap());
}
