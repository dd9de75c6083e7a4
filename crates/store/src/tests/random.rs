//! Random changes of contents and rows on every kind of store, compared with the [`Model`] throughout.

use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};

use model::planted_bug::{PlantedBug, is_noticed};
use parking_lot::Mutex;
use tempfile::TempDir;

use super::audit::{audit, check_leaks};
use super::reference_model::{Change, ChangeGenerator, Model, compare, compare_all};
use super::world::{SimulatedStore, memory_store, real_store, run_housekeeping, small_options};
use super::*;
use crate::Snapshot;
use crate::disk::sim::SimDisk;
use crate::engine::memory::MemoryEngine;
use crate::plant::ChangeBug;
use rand::RngExt;

/// A store and its environment.
enum StoreUnderTest {
    Memory(Store),
    Simulated(SimulatedStore),
    Real(Store, TempDir),
}

impl StoreUnderTest {
    fn store(&self) -> &Store {
        match self {
            Self::Memory(store) | Self::Real(store, _) => store,
            Self::Simulated(world) => &world.store,
        }
    }

    fn reopen(self, seed: u64) -> Self {
        match self {
            Self::Memory(store) => Self::Memory(store),
            Self::Simulated(world) => Self::Simulated(world.crash(seed).unwrap()),
            Self::Real(store, dir) => {
                store.close().unwrap();
                Self::Real(real_store(dir.path()), dir)
            }
        }
    }
}

/// A run of random changes.
struct Run {
    tested: StoreUnderTest,
    model: Model,
    maker: ChangeGenerator,
    snapshots: Vec<(Snapshot, Model)>,
}

impl Run {
    fn new(kept: StoreUnderTest, seed: u64) -> Self {
        Self { tested: kept, model: Model::default(), maker: ChangeGenerator::new(seed), snapshots: Vec::new() }
    }

    fn upload(&mut self) {
        let store = self.tested.store();
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

    /// Submits a few changes, checks that none is visible before it is durable, and applies them to the model.
    fn step(&mut self) {
        let many = self.maker.random.random_range(1..4);
        let changes: Vec<Change> = (0..many).map(|_| self.maker.change(&self.model)).collect();
        let before = self.tested.store().status().version;
        let (sender, outcomes) = mpsc::channel();
        for (i, change) in changes.iter().enumerate() {
            let sender = sender.clone();
            // The receiver is gone if the run has failed.
            change.submit(self.tested.store(), move |outcome| drop(sender.send((i, outcome))));
        }
        drop(sender);
        if let StoreUnderTest::Simulated(world) = &self.tested {
            assert_eq!(world.store.status().version, before);
            compare_all(&world.store, &self.model);
            world.store.force().unwrap();
        }
        let mut found: Vec<_> = outcomes.try_iter().collect();
        while found.len() < changes.len() {
            match &self.tested {
                StoreUnderTest::Simulated(world) => {
                    // Some changes wait for room.
                    world.store.install().unwrap();
                    world.store.force().unwrap();
                    found.extend(outcomes.try_iter());
                }
                _ => found.extend(outcomes.recv()),
            }
        }
        let outcomes = found;
        if self.tested.store().core().is_durable() {
            assert!(outcomes.is_sorted_by_key(|(i, _)| *i), "replies come in the order of the submissions");
        }
        assert_eq!(outcomes.len(), changes.len());
        for ((_, outcome), change) in outcomes.into_iter().zip(changes) {
            self.check_outcome(&change, outcome);
        }
    }

    fn check_outcome(&mut self, change: &Change, outcome: model::Result<u64>) {
        let expected = self.model.apply(change, &self.maker.uploads);
        let (found, refused) = (outcome.map_err(|error| error.kind()).err(), expected.as_ref().err().copied());
        assert_eq!(found, refused, "{:#?}", change.brief());
        if let Ok(model) = expected {
            self.model = model;
        }
        for upload in change.uploads() {
            // A change ends its uploads whatever its outcome, unless it is refused before they are taken.
            self.maker.uploads.remove(&upload);
            self.tested.store().abort_upload(upload);
        }
    }

    /// Background work and faults between the changes.
    fn disturb(&mut self, seed: u64) {
        let core = self.tested.store().core();
        match self.maker.random.random_range(0..24) {
            0..3 => drop(core.install().unwrap()),
            3..6 => self.tested.store().install().unwrap(),
            6..9 if core.is_durable() => {
                let mut writer = core.pipeline.writer.lock();
                core.apply_queued(&mut writer);
                let view = core.state.view.load();
                if view.frozen.is_none() && !view.active.is_empty() {
                    core.freeze(&mut writer, &view);
                }
            }
            9..13 => core.do_housekeeping().unwrap(),
            13..17 => self.snapshots.push((self.tested.store().snapshot().unwrap(), self.model.clone())),
            17..19 => drop(self.snapshots.pop()),
            19..21 => self.upload(),
            21 => {
                self.snapshots.clear();
                self.maker.uploads.clear();
                let kept = std::mem::replace(&mut self.tested, StoreUnderTest::Memory(memory_store()));
                let in_memory = matches!(kept, StoreUnderTest::Memory(_));
                self.tested = kept.reopen(seed);
                if in_memory {
                    // The uploads did not end.
                    self.tested.store().core().uploads.forget();
                }
            }
            _ => {}
        }
    }

    fn check(&mut self, seed: u64) {
        compare(self.tested.store(), &self.model, seed);
        for (snapshot, model) in &self.snapshots {
            compare(snapshot, model, seed);
        }
        audit(self.tested.store());
    }

    fn run(mut self, steps: u64) {
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
            self.tested.store().abort_upload(upload.0);
        }
        if let StoreUnderTest::Simulated(world) = &self.tested {
            world.run_housekeeping();
            check_leaks(world);
        } else if !self.tested.store().core().is_durable() {
            run_housekeeping(self.tested.store());
        }
        self.check(0);
    }
}

/// The number of runs, multiplied by `MORTAR_RANDOM_RUNS`.
fn runs(few: u64) -> u64 {
    few * std::env::var("MORTAR_RANDOM_RUNS").map_or(1, |times| times.parse().expect("a factor"))
}

/// Runs with several seeds and prints the seed that fails.
fn each_seed(few: u64, run: impl Fn(u64)) {
    for seed in 0..runs(few) {
        let seed = std::env::var("MORTAR_RANDOM_SEED").map_or(seed, |seed| seed.parse().expect("a seed"));
        let failed = Arc::new(Mutex::new(Some(seed)));
        let guard = SeedReporter(Arc::clone(&failed));
        run(seed);
        *failed.lock() = None;
        drop(guard);
    }
}

struct SeedReporter(Arc<Mutex<Option<u64>>>);

impl Drop for SeedReporter {
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        if let Some(seed) = *self.0.lock() {
            eprintln!("to run it again: MORTAR_RANDOM_SEED={seed}");
        }
    }
}

#[test]
fn a_store_in_memory_is_the_model() {
    each_seed(12, |seed| Run::new(StoreUnderTest::Memory(memory_store()), seed).run(60));
}

#[test]
fn a_store_on_a_simulated_disk_is_the_model() {
    each_seed(40, run_simulated);
}

fn run_simulated(seed: u64) {
    // From a buffer that is always full to one that never fills.
    let options = crate::Options { mob_bytes: 64 << 10 << (seed % 8), segment_bytes: 16 << 10, ..small_options() };
    let world = SimulatedStore::open_with(SimDisk::new(), MemoryEngine::default(), options);
    Run::new(StoreUnderTest::Simulated(world.unwrap()), seed).run(60);
}

#[test]
fn every_planted_bug_in_changes_is_noticed() {
    let is_missed = |bug: &&ChangeBug| {
        let directed = is_noticed(**bug, many_buffered_rows_are_read_backwards);
        !directed && !is_noticed(**bug, || (0..40).for_each(run_simulated))
    };
    let missed: Vec<_> = ChangeBug::ALL.iter().filter(is_missed).collect();
    assert!(missed.is_empty(), "{missed:?} were noticed neither in 40 runs nor by a directed test");
}

#[test]
fn many_buffered_rows_are_read_backwards() {
    let world = SimulatedStore::new();
    let mut rows = crate::RowChanges::new();
    (0..1000_u16).for_each(|key| rows.put(&key.to_be_bytes(), Bytes::new()));
    world.store.commit_rows(rows).unwrap();
    let mut keys = Vec::new();
    let visit = |key: &[u8], _: &[u8]| {
        keys.push(u16::from_be_bytes(key.try_into().unwrap()));
        ControlFlow::Continue(())
    };
    world.store.rows_back(&[], &[0xff], visit).unwrap();
    assert_eq!(keys, (0..1000).rev().collect::<Vec<_>>());
}

#[test]
fn a_store_in_a_directory_is_the_model() {
    each_seed(4, |seed| {
        let dir = tempfile::tempdir().unwrap();
        Run::new(StoreUnderTest::Real(real_store(dir.path()), dir), seed).run(40);
    });
}
