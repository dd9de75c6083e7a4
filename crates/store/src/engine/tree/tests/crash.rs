//! Crashes after every change of the disk, and faults of every read and every change.
//!
//! A history of batches runs once on a simulated disk. After every write, force, growth and rename an image of the disk is kept. Each
//! image then stops in several ways: the process is killed and the disk keeps what the system has, or the power fails and any part of
//! what was not forced is lost. The tree that is opened then has the rows of the last acknowledged batch, or those of the batch that was
//! being written.

use std::sync::atomic::AtomicUsize;

use super::*;

/// Keys of the histories.
const KEYS: u32 = 900;

/// The disk after a change, and the batches that were acknowledged by then.
struct Image {
    disk: SimDisk,
    acknowledged: usize,
}

/// A tree of small pages, what it had after each batch, and the states that readers hold.
struct History {
    world: World,
    states: Vec<Rows>,
    images: Arc<Mutex<Vec<Image>>>,
    acknowledged: Arc<AtomicUsize>,
    pins: Vec<(Box<dyn EnginePin>, Rows)>,
}

/// Scattered changes, dense ranges and removed ranges, which make pages divide and join.
fn changes(world: &mut World) -> Vec<(Key, Option<Bytes>)> {
    let mut batch = Vec::new();
    let key = |number: u32| Key::from(&number.to_be_bytes()[..]);
    for _ in 0..world.random.random_range(1..4) {
        let first = world.random.random_range(0..KEYS);
        let end = (first + world.random.random_range(1..200)).min(KEYS);
        match world.random.random_range(0..5) {
            0 => batch.extend((first..end).map(|number| (key(number), None))),
            1 => batch.extend((first..end).step_by(2).map(|number| (key(number), Some(Bytes::from(vec![7; 9]))))),
            _ => {
                for _ in 0..world.random.random_range(1..20) {
                    let len = match world.random.random_range(0..12) {
                        0 => world.random.random_range(0..14_000),
                        _ => world.random.random_range(0..16),
                    };
                    let value = world.random.random_bool(0.7).then(|| Bytes::from(vec![world.random.random(); len]));
                    batch.push((key(world.random.random_range(0..KEYS)), value));
                }
            }
        }
    }
    batch
}

fn apply(rows: &mut Rows, batch: &[(Key, Option<Bytes>)]) {
    for (key, value) in batch {
        match value {
            Some(value) => drop(rows.insert(key.to_vec(), value.to_vec())),
            None => drop(rows.remove(&key[..])),
        }
    }
}

fn pinned_rows(pin: &dyn EnginePin) -> Rows {
    let mut rows = Rows::new();
    pin.read(&mut |read| {
        let mut show = |key: &[u8], value: &[u8]| {
            rows.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        };
        read.range(&[], &[0xff; 30], &mut show).unwrap();
    });
    rows
}

impl World {
    /// The tree of small pages on a disk, as an opening of a store leaves it.
    fn open_on(disk: SimDisk, room: usize, seed: u64) -> EngineResult<Self> {
        let engine = TreeEngine { room, ..TreeEngine::open(&disk, &ID)? };
        engine.make_durable()?;
        let rows = all_rows(&engine)?;
        Ok(Self { disk, engine, rows, random: StdRng::seed_from_u64(seed), room })
    }
}

impl History {
    fn new(seed: u64) -> Self {
        let (images, acknowledged) = (Arc::<Mutex<Vec<Image>>>::default(), Arc::<AtomicUsize>::default());
        let disk = SimDisk::new();
        let (kept, count) = (Arc::clone(&images), Arc::clone(&acknowledged));
        disk.watch(move |disk| {
            let acknowledged = count.load(Ordering::Relaxed);
            kept.lock().push(Image { disk, acknowledged });
        });
        let world = World::open_on(disk, [80, 128, 200, 300][seed as usize % 4], seed).unwrap();
        Self { world, states: vec![Rows::new()], images, acknowledged, pins: Vec::new() }
    }

    /// Writes a batch, and sometimes aborts one before.
    fn step(&mut self) {
        let world = &mut self.world;
        if world.random.random_bool(0.2) {
            let aborted = changes(world);
            world.disk.fail_change(0, io::ErrorKind::Other);
            assert!(world.engine.write(&mut aborted.into_iter().map(Ok)).is_err());
        }
        let batch = changes(world);
        let mut after = world.rows.clone();
        apply(&mut after, &batch);
        self.states.push(after);
        world.write(batch);
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
        if world.random.random_bool(0.3) {
            self.pins.push((world.engine.pin().unwrap(), world.rows.clone()));
        }
        if self.pins.len() > 3 || world.random.random_bool(0.2) && !self.pins.is_empty() {
            self.pins.remove(world.random.random_range(0..self.pins.len()));
        }
        for (pin, rows) in &self.pins {
            assert_eq!(&pinned_rows(&**pin), rows, "a pinned state does not change");
        }
    }

    /// Stops the machine at each image.
    fn crash_everywhere(&mut self, outcomes: &mut BTreeSet<&'static str>) {
        for (number, image) in std::mem::take(&mut *self.images.lock()).into_iter().enumerate() {
            for kind in 0..4 {
                let seed = number as u64 * 4 + kind;
                let disk = if kind == 0 { image.disk.crash_of_process() } else { image.disk.crash(seed) };
                outcomes.insert(self.reopen(disk, image.acknowledged, seed));
            }
        }
    }

    /// Opens a disk after a crash, and sometimes goes on and crashes again.
    fn reopen(&self, disk: SimDisk, acknowledged: usize, seed: u64) -> &'static str {
        let mut world = World::open_on(disk, self.world.room, seed).unwrap();
        let newest = if acknowledged + 1 < self.states.len() { acknowledged + 1 } else { acknowledged };
        let is_new = world.rows == self.states[newest];
        assert!(is_new || world.rows == self.states[acknowledged], "a state between, after {acknowledged} batches");
        if seed.is_multiple_of(4) {
            let again = World::open_on(world.disk.crash(seed), world.room, seed).unwrap();
            assert!(again.rows == world.rows, "what an opening has shown is durable");
        }
        if seed.is_multiple_of(7) {
            world.check();
            let batch = changes(&mut world);
            world.write(batch);
            let disk = world.disk.crash(seed + 1);
            let again = World::open_on(disk, world.room, seed).unwrap();
            assert_eq!(again.rows, world.rows, "an acknowledged batch is durable");
            again.check();
        }
        if is_new { "new" } else { "old" }
    }
}

/// `MORTAR_TREE_SEEDS` sets the number of seeds, `MORTAR_TREE_SEED` the first.
pub(super) fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = number("MORTAR_TREE_SEED").unwrap_or(0);
    first..first + number("MORTAR_TREE_SEEDS").unwrap_or(usual)
}

pub(super) fn crash_after_every_change(seed: u64, batches: usize) {
    let mut outcomes = BTreeSet::new();
    let mut history = History::new(seed);
    for _ in 0..batches {
        history.step();
        if history.images.lock().len() > 300 {
            history.crash_everywhere(&mut outcomes);
        }
    }
    history.crash_everywhere(&mut outcomes);
    history.world.check();
    assert_eq!(outcomes.len(), 2, "{outcomes:?}");
}

#[test]
fn a_crash_after_any_change_of_the_disk_leaves_the_last_acknowledged_batch_or_the_next_as_a_whole() {
    seeds(4).for_each(|seed| crash_after_every_change(seed, 14));
}

/// Each write, growth and force of a batch fails once. The batch then has no effect and the tree goes on, or the tree refuses further
/// batches until it is opened again, with the state before or after the batch. Nothing acknowledged is lost, even by a crash later.
pub(super) fn fail_every_change(seed: u64) {
    let (mut refused, mut undone) = (0, 0);
    for failing in 0.. {
        let kind = [io::ErrorKind::StorageFull, io::ErrorKind::Other][failing % 2];
        let mut world = World::open_on(SimDisk::new(), [80, 128, 200, 300][seed as usize % 4], seed).unwrap();
        for _ in 0..4 {
            let batch = changes(&mut world);
            world.write(batch);
        }
        let (before, batch) = (world.rows.clone(), changes(&mut world));
        let mut after = before.clone();
        apply(&mut after, &batch);
        world.disk.fail_change(failing, kind);
        let written = world.engine.write(&mut batch.clone().into_iter().map(Ok));
        if !world.disk.has_failed() {
            assert!(written.is_ok() && failing > 3, "{failing} changes");
            break;
        }
        match written {
            Err(EngineError::Full(_)) => assert_eq!(kind, io::ErrorKind::StorageFull),
            Err(EngineError::Failed(_)) => assert_eq!(kind, io::ErrorKind::Other),
            other => panic!("{other:?}"),
        }
        assert_eq!(all_rows(&world.engine).unwrap(), before, "the batch is not visible");
        let is_refused = world.engine.write(&mut batch.clone().into_iter().map(Ok)).is_err();
        let disks = [world.disk.crash(failing as u64), world.disk.crash_of_process()];
        if is_refused {
            refused += 1;
            assert_eq!(all_rows(&world.engine).unwrap(), before, "reads go on");
        } else {
            undone += 1;
            world.rows.clone_from(&after);
            world.check();
        }
        for disk in disks {
            let mut again = World::open_on(disk, world.room, 1).unwrap();
            let is_old = again.rows == before;
            assert!(is_refused && is_old || again.rows == after, "change {failing}: a state between");
            again.check();
            let batch = changes(&mut again);
            again.write(batch);
            let last = World::open_on(again.disk.crash(seed), world.room, 1).unwrap();
            assert_eq!(last.rows, again.rows, "an acknowledged batch is durable");
            last.check();
        }
    }
    assert!(refused == 2 && undone >= 2, "the write and the force of the meta page: {refused}, others {undone}");
}

#[test]
fn a_change_of_the_disk_that_fails_loses_nothing_acknowledged() {
    seeds(6).for_each(fail_every_change);
}

/// Each read of an opening, a scan and a batch fails once.
#[test]
fn a_read_that_fails_is_an_error_and_changes_nothing() {
    let mut failures = 0;
    for seed in seeds(3) {
        let mut world = World::open_on(SimDisk::new(), 128, seed).unwrap();
        for _ in 0..6 {
            let batch = changes(&mut world);
            world.write(batch);
        }
        for failing in 0.. {
            world.reopen();
            world.disk.fail_read(Some(failing));
            let found = all_rows(&world.engine);
            if world.disk.fail_read(None) {
                break;
            }
            assert!(matches!(found, Err(EngineError::Failed(_))), "the scan ends with the error");
            assert_eq!(all_rows(&world.engine).unwrap(), world.rows, "the disk can be read again");
            failures += 1;
        }
        for failing in 0.. {
            let batch = changes(&mut world);
            world.disk.fail_read(Some(failing));
            let written = world.engine.write(&mut batch.clone().into_iter().map(Ok));
            let is_pending = world.disk.fail_read(None);
            match written {
                Ok(()) => apply(&mut world.rows, &batch),
                Err(error) => assert!(!is_pending && matches!(error, EngineError::Failed(_)), "{error}"),
            }
            world.check();
            if is_pending && failing > 40 {
                break;
            }
            failures += usize::from(!is_pending);
        }
    }
    assert!(failures > 20, "{failures}");
}

/// A header that an opening could not read does not count any more, even if it can be read later: the pages of its state may have been
/// used for others.
pub(super) fn header_that_cannot_be_read_for_a_while(seed: u64) {
    let room = 128;
    let mut world = World::open_on(SimDisk::new(), room, seed).unwrap();
    for _ in 0..5 {
        let batch = changes(&mut world);
        world.write(batch);
    }
    let newest = world.engine.state.load().batch;
    world.disk.set_unreadable(NAME, &[meta_place(newest)]);
    let mut older = World::open_on(world.disk.clone(), room, seed).unwrap();
    assert_eq!(older.engine.state.load().batch, newest - 1);
    world.disk.set_unreadable(NAME, &[]);
    let images = Arc::<Mutex<Vec<SimDisk>>>::default();
    let kept = Arc::clone(&images);
    world.disk.watch(move |disk| kept.lock().push(disk));
    let before = older.rows.clone();
    let batch = changes(&mut older);
    older.write(batch);
    for (number, image) in images.lock().iter().enumerate() {
        let found = World::open_on(image.crash(number as u64), room, seed).unwrap();
        assert!(found.rows == before || found.rows == older.rows, "image {number}");
        found.check();
    }
}

#[test]
fn a_header_that_could_not_be_read_at_an_opening_does_not_come_back() {
    seeds(5).for_each(header_that_cannot_be_read_for_a_while);
}
