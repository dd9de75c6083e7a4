//! Damages pages of every kind, one at a time, and reads, writes, checks and opens the tree.
//!
//! 1. With their checksums, a damaged page is never believed: each answer is right, or an error that names the page.
//! 2. Without the comparison of checksums, the readers and the writer see the damaged bytes. Their answers do not matter then, but none
//!    of them panics, runs forever or leaves the file.
//!
//! `MORTAR_TREE_FUZZ` sets the number of damaged pages, `MORTAR_TREE_SEED` the first seed.

use model::planted_bug::plant;

use super::*;
use crate::plant::TreeBug;

/// What is on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Meta,
    Index,
    Section,
    Branch,
    Leaf,
    Value,
}

/// A page of the tree, the first page of the run to which it belongs, and a key that is read through it.
struct Place {
    page: u64,
    first: u64,
    kind: Kind,
    key: Vec<u8>,
}

/// A sound tree on a disk, and an older state of the file.
struct Fuzz {
    world: World,
    sound: Vec<u8>,
    older: Vec<u8>,
    older_rows: Rows,
    places: Vec<Place>,
    random: StdRng,
    is_checked: bool,
}

const ROOM: usize = 120;

impl Fuzz {
    fn new(seed: u64, is_checked: bool) -> Self {
        let mut world = World::with_room(seed, ROOM);
        world.work(2, 60, 200);
        let (older, older_rows) = (world.bytes(), world.rows.clone());
        world.work(1, 40, 200);
        let state = world.engine.state.load_full();
        let mut places = Vec::new();
        let mut add = |page, kind| places.push(Place { page, first: page, kind, key: Vec::new() });
        META_PLACES.iter().for_each(|page| add(*page, Kind::Meta));
        state.index.iter().for_each(|at| add(at.page, Kind::Index));
        world.engine.writer.lock().space.sections.iter().flatten().for_each(|at| add(at.page, Kind::Section));
        let (root, level) = state.root.unwrap();
        places_below(&world, (root, level), &[], &mut places);
        let kinds: BTreeSet<Kind> = places.iter().map(|place| place.kind).collect();
        assert!(kinds.len() == 6 && level >= 2, "{kinds:?}, {level}");
        let sound = world.bytes();
        Self { world, sound, older, older_rows, places, random: StdRng::seed_from_u64(seed), is_checked }
    }

    /// Other bytes for a page.
    fn mutate(&mut self, page: u64) -> [u8; PAGE] {
        let at = page as usize * PAGE;
        let mut bytes = [0; PAGE];
        bytes.copy_from_slice(&self.sound[at..at + PAGE]);
        let random = &mut self.random;
        while bytes[..] == self.sound[at..at + PAGE] {
            match random.random_range(0..10) {
                0..3 => {
                    for _ in 0..random.random_range(1..5) {
                        bytes[random.random_range(0..PAGE)] ^= 1 << random.random_range(0..8);
                    }
                }
                3 => {
                    let from = random.random_range(0..PAGE);
                    let to = (from + random.random_range(1..200)).min(PAGE);
                    bytes[from..to].fill_with(|| random.random());
                }
                4 => {
                    let from = random.random_range(0..8) * 512;
                    bytes[from..from + 512].fill([0, 0xff][random.random_range(0..2)]);
                }
                5 => {
                    let other = random.random_range(0..self.sound.len() / PAGE) * PAGE;
                    bytes.copy_from_slice(&self.sound[other..other + PAGE]);
                }
                6 if at + PAGE <= self.older.len() => bytes.copy_from_slice(&self.older[at..at + PAGE]),
                // A number of the head, of a place or of an entry.
                _ => {
                    let end = [8, 64, PAGE - 4][random.random_range(0..3)];
                    let near = random.random_range(0..end);
                    let numbers = [0, 1, 2, 0x7fff, 0x8000, 0xffff, 4095, 4096, random.random()];
                    let number = numbers[random.random_range(0..numbers.len())];
                    bytes[near..near + 2].copy_from_slice(&u16::to_le_bytes(number));
                }
            }
        }
        bytes
    }

    /// Damages a page, and works with the tree.
    fn round(&mut self) {
        let number = self.random.random_range(0..self.places.len());
        let (page, kind) = (self.places[number].page, self.places[number].kind);
        let bytes = self.mutate(page);
        match kind {
            Kind::Meta | Kind::Index | Kind::Section => self.open_and_write(number, &bytes),
            Kind::Branch | Kind::Leaf | Kind::Value if self.random.random_range(0..60) == 0 => {
                self.open_and_write(number, &bytes);
            }
            Kind::Branch | Kind::Leaf | Kind::Value => {
                self.world.disk.set_bytes(NAME, page as usize * PAGE, &bytes);
                self.forget_checks();
                self.read(number);
                self.world.disk.set_bytes(NAME, page as usize * PAGE, &self.sound[page as usize * PAGE..][..PAGE]);
            }
        }
    }

    fn forget_checks(&mut self) {
        let faults = self.random.random();
        self.world.engine.file.forget_some_checks(self.sound.len() as u64 / PAGE as u64, faults);
    }

    /// Whether an error is one of this page.
    fn check_error(&self, error: &EngineError, number: usize) {
        let place = &self.places[number];
        let text = error.cause();
        let is_named = text.contains(&format!("page {} ", place.page))
            || text.contains(&format!("value at byte {} ", place.first * PAGE as u64));
        assert!(!self.is_checked || is_named, "{text}: {:?} {}", place.kind, place.page);
        assert!(matches!(error, EngineError::Damaged(_)), "{error:?}");
    }

    fn read(&mut self, number: usize) {
        let key = self.places[number].key.clone();
        let operation = self.random.random_range(0..40);
        let (mut to, is_back) = (key.clone(), operation % 2 == 0);
        to.extend([0xff; 2]);
        let from = if operation < 10 { vec![] } else { key[..2].to_vec() };
        let random_key = self.random.random_range(0..200_u32).wrapping_mul(2_654_435_761).to_be_bytes();
        let this = &*self;
        let rows = &this.world.rows;
        this.world
            .engine
            .read(&mut |read| {
                for key in [&key[..], &random_key] {
                    match read.get(key) {
                        Ok(found) if this.is_checked => assert_eq!(found, rows.get(key).map(|value| &value[..])),
                        Ok(_) => {}
                        Err(error) => this.check_error(&error, number),
                    }
                }
                if operation == 39 {
                    let mut left = 10_000;
                    let mut observe = |checked: Checked<'_>| {
                        if let (Checked::Damage(damage), true) = (checked, this.is_checked) {
                            this.check_error(&EngineError::Damaged(damage.what.into()), number);
                        }
                        left -= 1;
                        if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                    };
                    let _ = read.check(&mut observe);
                }
                if operation >= 24 {
                    return;
                }
                let mut found = Vec::new();
                let mut show = |key: &[u8], value: &[u8]| {
                    found.push((key.to_vec(), value.to_vec()));
                    if found.len() < 5000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                };
                let scanned =
                    if is_back { read.range_back(&from, &to, &mut show) } else { read.range(&from, &to, &mut show) };
                if let Err(error) = &scanned {
                    this.check_error(error, number);
                }
                if this.is_checked {
                    let mut expected: Vec<_> =
                        rows.range(from.clone()..to.clone()).map(|(key, value)| (key.clone(), value.clone())).collect();
                    if is_back {
                        expected.reverse();
                    }
                    let is_right = expected.starts_with(&found) && (scanned.is_err() || found.len() == expected.len());
                    assert!(is_right, "a scan shows the right rows up to the damage");
                }
            })
            .unwrap();
    }

    /// Opens a copy of the damaged file, changes it, and opens it again.
    fn open_and_write(&mut self, number: usize, bytes: &[u8; PAGE]) {
        let disk = SimDisk::with_file(NAME, &self.sound);
        disk.set_bytes(NAME, self.places[number].page as usize * PAGE, bytes);
        let engine = match TreeEngine::open(&disk, &ID) {
            Ok(engine) => TreeEngine { room: ROOM, ..engine },
            Err(error) => {
                assert_eq!(self.places[number].kind, Kind::Meta, "{error}");
                return;
            }
        };
        engine.make_durable().unwrap();
        let has_fallen_back = engine.state.load().batch < self.world.engine.state.load().batch;
        assert!(!has_fallen_back || self.places[number].kind == Kind::Meta);
        let mut rows = if has_fallen_back { self.older_rows.clone() } else { self.world.rows.clone() };
        if has_fallen_back && self.is_checked {
            // Pages of the older state may have been used again: these rows are errors.
            self.compare(&engine, &rows, None);
        }
        for _ in 0..2 {
            let mut batch = self.world.random_batch(6, 200);
            let near = Key::from(&self.places[number].key[..]);
            batch.push((near, Some(Bytes::from_static(b"near"))));
            match engine.write(&mut batch.clone().into_iter().map(Ok)) {
                Ok(()) => {}
                Err(_) if !self.is_checked => return,
                Err(error) => panic!("{error:?}"),
            }
            for (key, value) in batch.into_iter().filter(|(key, _)| !key.is_empty()) {
                match value {
                    Some(value) => drop(rows.insert(key.to_vec(), value.to_vec())),
                    None => drop(rows.remove(&key[..])),
                }
            }
            if self.is_checked {
                self.compare(&engine, &rows, (!has_fallen_back).then_some(number));
            }
        }
        let _ = engine.reclaim_space();
        drop(engine);
        match TreeEngine::open(&disk, &ID) {
            Ok(engine) if self.is_checked => self.compare(&engine, &rows, (!has_fallen_back).then_some(number)),
            Ok(_) => {}
            Err(error) => assert!(!self.is_checked, "{error}"),
        }
    }

    /// Each row is right, or an error; one of this page or of the leaf that has replaced it.
    fn compare(&self, engine: &TreeEngine, rows: &Rows, number: Option<usize>) {
        let compare = |read: &dyn EngineRead| {
            for key in (0..200_u32).map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes()) {
                match (read.get(&key), number) {
                    (Ok(found), _) => assert_eq!(found, rows.get(&key[..]).map(|value| &value[..])),
                    (Err(error), Some(number)) if !error.cause().contains("replaces a damaged one") => {
                        self.check_error(&error, number);
                    }
                    (Err(error), _) => assert!(matches!(error, EngineError::Damaged(_)), "{error:?}"),
                }
            }
        };
        engine.read(&mut |read| compare(read)).unwrap();
    }
}

/// Adds the pages from one on down, all of whose keys begin at `first`.
fn places_below(world: &World, (at, level): (PageRef, u8), first: &[u8], places: &mut Vec<Place>) {
    let state = world.engine.state.load_full();
    let node = world.engine.file.node(at, level, state.pages).unwrap();
    let kind = if level == 0 { Kind::Leaf } else { Kind::Branch };
    let mut key = first.to_vec();
    for index in 0..node.count() {
        if level > 0 {
            let (own, child) = node.child(index).unwrap();
            let begin = if index == 0 { first } else { own };
            places_below(world, (child, level - 1), begin, places);
            continue;
        }
        let (row, value) = node.row(index).unwrap();
        key = row.to_vec();
        if let page::Value::Outside(run, len) = value {
            places.extend((run.page..run.page + page::pages_of(len)).map(|page| Place {
                page,
                first: run.page,
                kind: Kind::Value,
                key: row.to_vec(),
            }));
        }
    }
    key.resize(4, 0);
    places.push(Place { page: at.page, first: at.page, kind, key });
}

/// Damages this number of pages, one after the other, and checks every answer.
pub(super) fn damage_pages(seed: u64, rounds: u64) {
    run(seed, rounds, true);
}

fn run(seed: u64, rounds: u64, is_checked: bool) {
    for part in 0..rounds.div_ceil(5000) {
        let mut fuzz = Fuzz::new(seed + part, is_checked);
        let _planted = (!is_checked).then(|| plant(TreeBug::ReferenceNotChecked));
        (0..5000.min(rounds - part * 5000)).for_each(|_| fuzz.round());
    }
}

fn rounds() -> (u64, u64) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    (number("MORTAR_TREE_SEED").unwrap_or(0), number("MORTAR_TREE_FUZZ").unwrap_or(50_000))
}

#[test]
fn a_damaged_page_of_any_kind_is_an_error_that_names_it_or_makes_no_difference() {
    let (seed, rounds) = rounds();
    run(seed, rounds, true);
}

#[test]
fn bytes_with_a_valid_checksum_cause_no_panic_and_no_endless_walk() {
    let (seed, rounds) = rounds();
    run(seed, rounds, false);
}

/// The writer would never come to the end of such a row, and would fill the disk.
#[test]
pub(super) fn a_leaf_whose_row_is_larger_than_a_page_takes_counts_as_damaged() {
    let mut world = World::new(41);
    world.write(vec![(Key::from(&b"row"[..]), Some(Bytes::from_static(b"value")))]);
    let state = world.engine.state.load_full();
    let (mut root, level) = state.root.unwrap();
    assert_eq!(level, 0);
    // One row, which begins in the list of places: its place is 8, and so is the size of its key.
    let mut bytes = [b'k'; PAGE];
    bytes[..8].copy_from_slice(&[1, 0, 1, 0, 0, 0, 0, 0]);
    bytes[8..10].copy_from_slice(&8_u16.to_le_bytes());
    bytes[10..14].copy_from_slice(&4074_u32.to_le_bytes());
    world.set_page(root.page, &bytes);
    root.crc = world.engine.file.checksum(root.page, &bytes);
    let meta = TreeState {
        batch: state.batch,
        pages: state.pages,
        root: Some((root, 0)),
        system: SystemRows::default(),
        index: state.index.clone(),
    };
    world.set_page(meta_place(state.batch), &meta.encode(&ID)[..]);
    world.reopen();
    let row: &[u8] = b"other";
    world.engine.write(&mut [Ok((Key::from(row), Some(Bytes::from_static(b"value"))))].into_iter()).unwrap();
    let compare = |read: &dyn EngineRead| {
        assert_eq!(read.get(row).unwrap(), Some(&b"value"[..]));
        assert!(matches!(read.get(b"kkkkkkkk"), Err(EngineError::Damaged(_))));
    };
    world.engine.read(&mut |read| compare(read)).unwrap();
    assert!(world.engine.size() < 40 * PAGE as u64, "{} bytes", world.engine.size());
}
