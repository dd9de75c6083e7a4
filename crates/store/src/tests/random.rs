//! Random transactions on every kind of store, held against the [`Model`] all the time.

use std::sync::{Arc, mpsc};

use model::Outcome;
use parking_lot::Mutex;
use tempfile::TempDir;

use super::audit::{audit, leaks};
use super::plain::{Change, Maker, Model, agree, compare, compare_contents, refused};
use super::world::{Simulated, memory, real, settle, small};
use super::*;
use crate::Snapshot;
use crate::disk::sim::SimDisk;
use crate::engine::memory::MemoryEngine;
use crate::read::Reading;
use rand::RngExt;

/// A store of some kind with what belongs to it.
enum Kept {
    Memory(Store),
    Simulated(Simulated),
    Real(Store, TempDir),
}

impl Kept {
    fn store(&self) -> &Store {
        match self {
            Self::Memory(store) | Self::Real(store, _) => store,
            Self::Simulated(world) => &world.store,
        }
    }

    fn reopened(self, seed: u64) -> Self {
        match self {
            Self::Memory(store) => Self::Memory(store),
            Self::Simulated(world) => Self::Simulated(world.crash(seed).unwrap()),
            Self::Real(store, dir) => {
                store.close().unwrap();
                Self::Real(real(dir.path()), dir)
            }
        }
    }
}

/// A run of random transactions.
struct Run {
    kept: Kept,
    model: Model,
    maker: Maker,
    snapshots: Vec<(Snapshot, Model)>,
}

impl Run {
    fn new(kept: Kept, seed: u64) -> Self {
        Self { kept, model: Model::default(), maker: Maker::new(seed), snapshots: Vec::new() }
    }

    fn upload(&mut self) {
        let store = self.kept.store();
        let id = store.begin_upload().unwrap();
        let data = self.maker.data();
        let piece = self.maker.random.random_range(1..100_000);
        for piece in data.chunks(piece) {
            store.upload(id, Bytes::copy_from_slice(piece)).unwrap();
        }
        if self.maker.random.random_range(0..8) == 0 {
            store.abort_upload(id);
        } else {
            self.maker.uploads.insert(id, data);
        }
    }

    /// Submits a few transactions, looks that none is seen before it is durable, and follows them in the model.
    fn step(&mut self) {
        let many = self.maker.random.random_range(1..4);
        let changes: Vec<Change> = (0..many).map(|_| self.maker.change(&self.model)).collect();
        let before = self.kept.store().status().version;
        let (sender, outcomes) = mpsc::channel();
        for (i, change) in changes.iter().enumerate() {
            let sender = sender.clone();
            change.submit(self.kept.store(), move |outcome| sender.send((i, outcome)).unwrap());
        }
        drop(sender);
        if let Kept::Simulated(world) = &self.kept {
            // Chunks of an upload are logged, and forced, before the transaction that takes it.
            if world.store.status().version == before {
                compare_contents(&world.store, &self.model);
            }
            world.store.force().unwrap();
        }
        let mut found: Vec<_> = outcomes.try_iter().collect();
        while found.len() < changes.len() {
            match &self.kept {
                Kept::Simulated(world) => {
                    // Some wait for room.
                    world.store.install().unwrap();
                    world.store.force().unwrap();
                    found.extend(outcomes.try_iter());
                }
                _ => found.extend(outcomes.recv()),
            }
        }
        let mut outcomes = found;
        // Refusals may overtake each other, as what is wrong in itself need not wait.
        outcomes.sort_by_key(|(i, _)| *i);
        assert_eq!(outcomes.len(), changes.len());
        for ((_, outcome), change) in outcomes.into_iter().zip(changes) {
            self.follow(&change, outcome);
        }
    }

    fn follow(&mut self, change: &Change, outcome: model::Result<Outcome>) {
        let (version, created) = match &outcome {
            Ok(Outcome::Committed(committed)) => (committed.version, committed.created.clone()),
            _ => (0, Vec::new()),
        };
        let expected = self.model.after(change, version, &created, &self.maker.uploads);
        let found = refused(&outcome);
        assert!(agree(&found, &expected), "{found:?}, not {:?}, from {:#?}", expected.err(), change.brief());
        if let Ok(model) = expected {
            let gone = self.model.things.keys().filter(|oid| !model.things.contains_key(oid));
            self.maker.gone.extend(gone);
            self.model = model;
        }
        for upload in change.uploads() {
            // A transaction ends its uploads, however it ends itself; one that is not looked at stays.
            self.maker.uploads.remove(&upload);
            self.kept.store().abort_upload(upload);
        }
    }

    /// What happens beside the transactions.
    fn disturb(&mut self, seed: u64) {
        let core = self.kept.store().core();
        match self.maker.random.random_range(0..24) {
            0..3 => drop(core.install().unwrap()),
            3..6 => self.kept.store().install().unwrap(),
            6..9 if core.durable.is_some() => {
                let mut writer = core.writer.lock();
                core.gather(&mut writer);
                let view = core.view.load();
                if view.frozen.is_none() && !view.active.is_empty() {
                    core.freeze(&mut writer, &view);
                }
            }
            9..13 => core.chores().unwrap(),
            13..17 => self.snapshots.push((self.kept.store().snapshot().unwrap(), self.model.clone())),
            17..19 => drop(self.snapshots.pop()),
            19..21 => self.upload(),
            21 => {
                self.snapshots.clear();
                self.maker.uploads.clear();
                let kept = std::mem::replace(&mut self.kept, Kept::Memory(memory()));
                let in_memory = matches!(kept, Kept::Memory(_));
                self.kept = kept.reopened(seed);
                if in_memory {
                    // Nothing ended the uploads.
                    self.kept.store().core().uploads.lock().clear();
                }
            }
            _ => {}
        }
    }

    fn check(&mut self, seed: u64) {
        compare(self.kept.store(), &self.model, seed);
        for (snapshot, model) in &self.snapshots {
            compare(snapshot, model, seed);
        }
        audit(self.kept.store());
    }

    fn go(mut self, steps: u64) {
        for seed in 0..steps {
            self.step();
            self.disturb(seed);
            if seed % 8 == 7 {
                self.check(seed);
            }
        }
        self.check(0);
        self.snapshots.clear();
        for upload in self.maker.uploads.drain() {
            self.kept.store().abort_upload(upload.0);
        }
        if let Kept::Simulated(world) = &self.kept {
            world.settle();
            leaks(world);
        } else if self.kept.store().core().durable.is_none() {
            settle(self.kept.store());
        }
        self.check(0);
    }
}

/// Runs that `MORTAR_RANDOM_RUNS` multiplies.
fn runs(few: u64) -> u64 {
    few * std::env::var("MORTAR_RANDOM_RUNS").map_or(1, |times| times.parse().expect("a factor"))
}

/// Says which seed failed.
fn each_seed(few: u64, run: impl Fn(u64)) {
    for seed in 0..runs(few) {
        let seed = std::env::var("MORTAR_RANDOM_SEED").map_or(seed, |seed| seed.parse().expect("a seed"));
        let failed = Arc::new(Mutex::new(Some(seed)));
        let guard = Seed(Arc::clone(&failed));
        run(seed);
        *failed.lock() = None;
        drop(guard);
    }
}

struct Seed(Arc<Mutex<Option<u64>>>);

impl Drop for Seed {
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        if let Some(seed) = *self.0.lock() {
            eprintln!("to run it again: MORTAR_RANDOM_SEED={seed}");
        }
    }
}

#[test]
fn a_store_in_memory_is_the_model() {
    each_seed(12, |seed| Run::new(Kept::Memory(memory()), seed).go(60));
}

#[test]
fn a_store_on_a_simulated_disk_is_the_model() {
    each_seed(40, |seed| {
        // From a buffer that is always full to one that never is.
        let options = crate::Options { mob_bytes: 64 << 10 << (seed % 8), segment_bytes: 16 << 10, ..small() };
        let world = Simulated::open_with(SimDisk::new(), MemoryEngine::default(), options);
        Run::new(Kept::Simulated(world.unwrap()), seed).go(60);
    });
}

#[test]
fn a_store_in_a_directory_is_the_model() {
    each_seed(4, |seed| {
        let dir = tempfile::tempdir().unwrap();
        Run::new(Kept::Real(real(dir.path()), dir), seed).go(40);
    });
}
