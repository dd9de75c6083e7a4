//! Stores to test: in memory, on a simulated disk, and on the real one.

use std::path::Path;
use std::sync::Arc;

use super::{Options, Store};
use crate::disk::sim::SimDisk;
use crate::engine::memory::MemoryEngine;
use crate::log::recover::OnDamage;
use crate::open::open_on;

/// A store on a simulated disk. Nothing happens in the background.
pub(crate) struct Simulated {
    pub(crate) disk: SimDisk,
    pub(crate) engine: MemoryEngine,
    pub(crate) store: Store,
}

pub(crate) fn small() -> Options {
    Options { mob_bytes: 1 << 20, segment_bytes: 64 << 10, threads: false, ..Options::default() }
}

impl Simulated {
    pub(crate) fn new() -> Self {
        Self::open(SimDisk::new(), MemoryEngine::default()).unwrap()
    }

    pub(crate) fn open(disk: SimDisk, engine: MemoryEngine) -> model::Result<Self> {
        let boxed = Box::new(engine.clone());
        let core = open_on(Arc::new(disk.clone()), boxed, [7; 16], small(), OnDamage::Refuse)?;
        Ok(Self { disk, engine, store: Store::start(core)? })
    }

    /// What is found after the power has failed now.
    pub(crate) fn crash(&self, seed: u64) -> model::Result<Self> {
        Self::open(self.disk.crash(seed), self.engine.image())
    }
}

pub(crate) fn memory() -> Store {
    Store::in_memory(small()).unwrap()
}

pub(crate) fn real(dir: &Path) -> Store {
    Store::open(dir, Options { threads: true, mob_bytes: 1 << 20, segment_bytes: 256 << 10, ..small() }).unwrap()
}

/// Runs a test on every kind of store: in memory, with changes in the buffer, and with changes in the B-tree.
pub(crate) fn everywhere(test: impl Fn(&Store, &dyn Fn())) {
    let store = memory();
    test(&store, &|| {});
    let simulated = Simulated::new();
    test(&simulated.store, &|| {});
    let simulated = Simulated::new();
    test(&simulated.store, &|| simulated.store.install().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let store = real(dir.path());
    test(&store, &|| store.install().unwrap());
}
