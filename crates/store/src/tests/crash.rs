//! Crashes at every change of the disk, with every kind of loss that a power failure may cause.
//!
//! A workload runs once. After every change of the disk, and before and after every batch of the B-tree, an image of
//! the machine is kept. Each image then crashes in several ways (see [`SimDisk::crash`]) and is opened again. The
//! reopened store must show exactly the state after some transaction that is not older than the last acknowledged one.
//! Some of the reopened stores crash again while they open, and some become the machine with which the run continues.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::RngExt;

use super::audit::{audit, check_leaks};
use super::reference_model::{Change, ChangeGenerator, Model, compare_all};
use super::world::{SimulatedStore, small_options};
use super::*;
use crate::disk::sim::SimDisk;
use crate::engine::memory::MemoryEngine;

/// The machine between two changes of its disk.
struct Image {
    disk: SimDisk,
    engine: MemoryEngine,
    /// The newest acknowledged version.
    acknowledged: u64,
}

/// A planted bug, to show that the test notices it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PlantedBug {
    Nothing,
    /// The disk forces nothing.
    IgnoreForces,
    /// The installer loses chunks.
    SkipChunks,
    /// The installer loses contents.
    SkipContents,
    /// The installer loses rows.
    SkipRows,
    /// Changes are acknowledged before they are forced.
    AcknowledgeEarly,
}

/// A workload and the images of its machine.
struct Run {
    world: SimulatedStore,
    maker: ChangeGenerator,
    /// The state after each position.
    states: BTreeMap<u64, Model>,
    acknowledged: Arc<AtomicU64>,
    images: Arc<Mutex<Vec<Image>>>,
    bug: PlantedBug,
    points: u64,
}

fn options() -> Options {
    Options { mob_bytes: 128 << 10, segment_bytes: 16 << 10, ..small_options() }
}

fn open(disk: SimDisk, engine: MemoryEngine) -> SimulatedStore {
    SimulatedStore::open_with(disk, engine, options()).unwrap()
}

/// Keeps an image at every change.
fn watch(disk: &SimDisk, engine: &MemoryEngine, acknowledged: &Arc<AtomicU64>) -> Arc<Mutex<Vec<Image>>> {
    let images = Arc::new(Mutex::new(Vec::new()));
    let (kept, engine, acknowledged) = (Arc::clone(&images), engine.clone(), Arc::clone(acknowledged));
    disk.watch(move |disk| {
        let acknowledged = acknowledged.load(Ordering::SeqCst);
        kept.lock().push(Image { disk, engine: engine.image(), acknowledged });
    });
    images
}

impl Run {
    fn new(seed: u64, plant: PlantedBug) -> Self {
        let (disk, engine, acknowledged) = (SimDisk::new(), MemoryEngine::default(), Arc::default());
        let images = watch(&disk, &engine, &acknowledged);
        let mut maker = ChangeGenerator::new(seed);
        (maker.contents, maker.scale) = (6, 8);
        let world = open(disk, engine);
        let states = BTreeMap::from([(0, Model::default())]);
        let mut run = Self { world, maker, states, acknowledged, images, bug: plant, points: 0 };
        run.plant_bug();
        run
    }

    fn plant_bug(&mut self) {
        match self.bug {
            PlantedBug::IgnoreForces => self.world.disk.ignore_forces(),
            PlantedBug::SkipChunks => self.world.faults.lock().skip = Some(vec![crate::rows::key::table::CHUNK]),
            PlantedBug::SkipContents => self.world.faults.lock().skip = Some(vec![crate::rows::key::table::CONTENT]),
            PlantedBug::SkipRows => self.world.faults.lock().skip = Some(vec![crate::rows::key::table::ROW]),
            PlantedBug::Nothing | PlantedBug::AcknowledgeEarly => {}
        }
    }

    fn newest(&self) -> &Model {
        self.states.last_key_value().unwrap().1
    }

    /// Commits a few changes in one batch and does some background work.
    fn step(&mut self) {
        if self.maker.random.random_range(0..4) == 0 {
            let (store, data) = (&self.world.store, self.maker.data());
            let id = store.begin_upload().unwrap();
            store.upload(id, data.clone()).unwrap();
            self.maker.uploads.insert(id, data);
        }
        let model = self.newest().clone();
        let many = self.maker.random.random_range(1..6);
        let (sender, outcomes) = mpsc::channel();
        let mut changes = Vec::new();
        for i in 0..many {
            let change = self.maker.change(&model);
            let (sender, acknowledged) = (sender.clone(), Arc::clone(&self.acknowledged));
            change.submit(&self.world.store, move |outcome| {
                if let Ok(position) = &outcome {
                    acknowledged.fetch_max(*position, Ordering::SeqCst);
                }
                sender.send((i, outcome)).unwrap();
            });
            changes.push(change);
        }
        if self.bug == PlantedBug::AcknowledgeEarly {
            let mut writer = self.world.core().pipeline.writer.lock();
            self.world.core().apply_queued(&mut writer);
            self.acknowledged.store(writer.next_seq - 1, Ordering::SeqCst);
        }
        if self.maker.random.random_range(0..4) == 0 {
            self.freeze();
        }
        let mut found = Vec::new();
        while found.len() < changes.len() {
            self.world.store.force().unwrap();
            found.extend(outcomes.try_iter());
            if found.len() < changes.len() {
                self.world.store.install().unwrap();
                found.extend(outcomes.try_iter());
            }
        }
        self.apply_outcomes(&changes, found);
        self.do_housekeeping();
    }

    /// Applies what was committed to the model, in the order of the positions. Another test checks refusals.
    fn apply_outcomes(&mut self, changes: &[Change], outcomes: Vec<(usize, model::Result<u64>)>) {
        let mut committed = BTreeMap::new();
        for (i, outcome) in outcomes {
            if let Ok(position) = outcome {
                committed.insert(position, &changes[i]);
            }
        }
        for (position, change) in committed {
            let state = self.newest().apply(change, &self.maker.uploads).unwrap();
            self.states.insert(position, state);
        }
        let core = self.world.core();
        self.maker.uploads.retain(|id, _| core.uploads.is_unfinished(*id));
    }

    fn freeze(&self) {
        let core = self.world.core();
        let mut writer = core.pipeline.writer.lock();
        core.apply_queued(&mut writer);
        let view = core.state.view.load();
        if view.frozen.is_none() && !view.active.is_empty() {
            core.freeze(&mut writer, &view);
        }
    }

    fn do_housekeeping(&mut self) {
        match self.maker.random.random_range(0..6) {
            0 => self.freeze(),
            1 | 2 => drop(self.world.core().install().unwrap()),
            3 => {
                self.world.core().do_housekeeping().unwrap();
                self.world.store.force().unwrap();
            }
            _ => {}
        }
    }

    /// Crashes every image kept so far in `ways` ways.
    fn crash(&mut self, ways: u64) {
        let images = std::mem::take(&mut *self.images.lock());
        for (i, image) in images.iter().enumerate() {
            for way in 0..ways {
                let seed = self.points;
                self.points += 1;
                let disk = image.disk.crash(seed);
                let world = self.reopen(disk, &image.engine, image.acknowledged, seed.is_multiple_of(64));
                if seed.is_multiple_of(16) {
                    audit(&world.store);
                }
                if way == 0 && i + 1 == images.len() && seed.is_multiple_of(3) {
                    self.continue_with(world);
                    return;
                }
            }
        }
    }

    /// Opens a crashed disk and checks its contents. With `again`, crashes at every change of the opening, too.
    fn reopen(&mut self, disk: SimDisk, engine: &MemoryEngine, acknowledged: u64, again: bool) -> SimulatedStore {
        let engine = engine.image();
        let told = Arc::new(AtomicU64::new(acknowledged));
        let images = again.then(|| watch(&disk, &engine, &told));
        let world = open(disk, engine);
        let version = self.check_shown_state(&world, acknowledged);
        for image in images.map(|images| std::mem::take(&mut *images.lock())).into_iter().flatten() {
            let world = open(image.disk.crash(self.points), image.engine.image());
            self.points += 1;
            // The next opening finds the same.
            assert_eq!(self.check_shown_state(&world, acknowledged), version);
        }
        world.disk.watch(|_| {});
        world
    }

    /// Panics unless a reopened store shows an allowed state. Returns the version of that state.
    fn check_shown_state(&self, world: &SimulatedStore, acknowledged: u64) -> u64 {
        let version = world.store.status().version;
        assert!(version >= acknowledged, "{acknowledged} was acknowledged, and the log ends at {version}");
        let (_, state) = self.states.range(..=version).next_back().unwrap();
        compare_all(&world.store, state);
        version
    }

    /// Continues the run with a reopened store.
    fn continue_with(&mut self, world: SimulatedStore) {
        let version = world.store.status().version;
        self.states.split_off(&(version + 1));
        self.acknowledged.store(version, Ordering::SeqCst);
        self.maker.uploads.clear();
        self.world = world;
        self.images = watch(&self.world.disk, &self.world.engine, &self.acknowledged);
        self.plant_bug();
    }

    /// Runs all background work and checks that nothing unused is left.
    fn finish(&mut self) {
        for id in std::mem::take(&mut self.maker.uploads).into_keys() {
            self.world.store.abort_upload(id);
        }
        self.world.run_housekeeping();
        audit(&self.world.store);
        check_leaks(&self.world);
        compare_all(&self.world.store, self.newest());
        self.crash(1);
    }
}

/// The seeds of the runs: `few`, or as many as `MORTAR_CRASH_SECONDS` allows.
fn seeds(few: u64) -> impl Iterator<Item = u64> {
    let first = std::env::var("MORTAR_CRASH_SEED").ok().map(|seed| seed.parse().expect("a seed"));
    let seconds = std::env::var("MORTAR_CRASH_SECONDS").ok().map(|seconds| seconds.parse().expect("seconds"));
    let (began, few) = (Instant::now(), if first.is_some() { 1 } else { few });
    (first.unwrap_or(0)..).enumerate().map_while(move |(i, seed)| {
        let go_on = match seconds {
            Some(seconds) => began.elapsed() < Duration::from_secs(seconds),
            None => (i as u64) < few,
        };
        go_on.then_some(seed)
    })
}

/// One run. Prints how to repeat it if it fails. Returns the number of crash points.
#[allow(clippy::print_stderr)]
fn run(seed: u64, plant: PlantedBug) -> std::thread::Result<u64> {
    let run = move || {
        let mut run = Run::new(seed, plant);
        run.crash(2);
        for _ in 0..20 {
            run.step();
            run.crash(2);
        }
        run.finish();
        run.points
    };
    let result = std::panic::catch_unwind(run);
    if result.is_err() {
        eprintln!("to run it again: MORTAR_CRASH_SEED={seed}");
    }
    result
}

#[test]
#[allow(clippy::print_stderr)]
fn acknowledged_transactions_survive_every_crash_and_no_transaction_survives_in_part() {
    let (began, points, runs) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(0));
    let seeds = Mutex::new(seeds(10));
    std::thread::scope(|threads| {
        let work = || {
            while let Some(seed) = { seeds.lock().next() } {
                points.fetch_add(run(seed, PlantedBug::Nothing).unwrap(), Ordering::Relaxed);
                runs.fetch_add(1, Ordering::Relaxed);
            }
        };
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            threads.spawn(work);
        }
    });
    let (points, runs) = (points.into_inner(), runs.into_inner());
    let rate = points as f64 / began.elapsed().as_secs_f64();
    eprintln!("{points} crash points in {runs} runs, {rate:.0} a second");
}

/// Whether some run with a planted bug fails.
fn is_noticed(plant: PlantedBug) -> bool {
    (0..20).any(|seed| run(seed, plant).is_err())
}

#[test]
fn a_disk_that_does_not_force_is_noticed() {
    assert!(is_noticed(PlantedBug::IgnoreForces));
}

#[test]
fn an_installer_that_loses_chunks_is_noticed() {
    assert!(is_noticed(PlantedBug::SkipChunks));
}

#[test]
fn an_installer_that_loses_contents_is_noticed() {
    assert!(is_noticed(PlantedBug::SkipContents));
}

#[test]
fn an_installer_that_loses_rows_is_noticed() {
    assert!(is_noticed(PlantedBug::SkipRows));
}

#[test]
fn an_acknowledgement_before_the_force_is_noticed() {
    assert!(is_noticed(PlantedBug::AcknowledgeEarly));
}
