//! The tree: its space, crashes, and damage of any page.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::super::{Checked, TreeDamage};
use super::*;
use crate::disk::sim::SimDisk;
use crate::rows::key::Key;

mod cache;
mod changes;
mod crash;
mod faults;
mod fuzz;
mod give_up;
mod opening;
mod parts;
mod planted;
mod shape;
mod space;

const ID: TreeId = [7; 16];

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A tree and the rows that it should have.
struct World {
    disk: SimDisk,
    engine: TreeEngine,
    rows: Rows,
    random: StdRng,
    /// Bytes of entries that a new page takes.
    room: usize,
}

fn all_rows(engine: &TreeEngine) -> EngineResult<Rows> {
    let mut rows = Rows::new();
    let mut result = Ok(());
    engine.read(&mut |read| {
        result = read.range(&[], &[0xff; 30], &mut |key, value| {
            rows.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        });
    })?;
    result.map(|()| rows)
}

fn damage(engine: &TreeEngine) -> Vec<TreeDamage> {
    let mut found = Vec::new();
    let mut observe = |checked: Checked<'_>| {
        if let Checked::Damage(damage) = checked {
            found.push(damage);
        }
        ControlFlow::Continue(())
    };
    engine.read(&mut |read| assert!(read.check(&mut observe).is_continue())).unwrap();
    found
}

impl World {
    fn new(seed: u64) -> Self {
        Self::with_room(seed, ROOM)
    }

    fn with_room(seed: u64, room: usize) -> Self {
        let disk = SimDisk::new();
        let engine = TreeEngine { room, ..TreeEngine::open(&disk, &ID).unwrap() };
        Self { disk, engine, rows: Rows::new(), random: StdRng::seed_from_u64(seed), room }
    }

    fn bytes(&self) -> Vec<u8> {
        self.disk.bytes(NAME)
    }

    fn page(&self, page: u64) -> [u8; PAGE] {
        let mut bytes = [0; PAGE];
        self.engine.file.read_at(&mut bytes, page * PAGE as u64).unwrap();
        bytes
    }

    /// Changes a page, as a failing disk would, under the eyes of the readers.
    fn set_page(&self, page: u64, bytes: &[u8]) {
        self.disk.damage(NAME, page as usize * PAGE, |out| out[..bytes.len()].copy_from_slice(bytes));
    }

    fn reopen(&mut self) {
        self.engine = TreeEngine { room: self.room, ..TreeEngine::open(&self.disk, &ID).unwrap() };
    }

    fn random_batch(&mut self, changes: usize, keys: u32) -> Vec<(Key, Option<Bytes>)> {
        let mut batch = Vec::new();
        for _ in 0..changes {
            let number: u32 = self.random.random_range(0..keys);
            let key = number.wrapping_mul(2_654_435_761).to_be_bytes();
            let len = match self.random.random_range(0..20) {
                0 => self.random.random_range(2000..70_000),
                1..4 => self.random.random_range(0..2100),
                _ => self.random.random_range(0..200),
            };
            let value = self.random.random_bool(0.7).then(|| Bytes::from(vec![self.random.random::<u8>(); len]));
            batch.push((Key::from(&key[..]), value));
        }
        batch
    }

    fn write(&mut self, batch: Vec<(Key, Option<Bytes>)>) {
        for (key, value) in &batch {
            match value {
                Some(value) => self.rows.insert(key.to_vec(), value.to_vec()),
                None => self.rows.remove(&key[..]),
            };
        }
        self.engine.write(&mut batch.into_iter().map(Ok)).unwrap();
    }

    fn work(&mut self, batches: usize, changes: usize, keys: u32) {
        for _ in 0..batches {
            let batch = self.random_batch(changes, keys);
            self.write(batch);
        }
    }

    /// Checks rows and structure, and that the map of used pages has exactly the pages of the newest state.
    fn check(&self) {
        assert_eq!(all_rows(&self.engine).unwrap(), self.rows);
        assert_eq!(damage(&self.engine), []);
        let state = self.engine.state.load_full();
        let mut pages = BTreeSet::from_iter(0..HEADER_PAGES);
        if let Some((root, level)) = state.root {
            self.pages_below(root, level, &mut pages);
        }
        let writer = self.engine.writer.lock();
        let map = writer.space.sections.iter().flatten().chain(&writer.space.index).map(|at| at.page);
        for page in map {
            assert!(pages.insert(page), "page {page} is used twice");
        }
        assert!(pages.into_iter().eq(writer.space.used_pages()), "the map of used pages is right");
    }

    fn pages_below(&self, at: PageRef, level: u8, pages: &mut BTreeSet<u64>) {
        assert!(pages.insert(at.page), "page {} is used twice", at.page);
        let state = self.engine.state.load_full();
        let node = self.engine.file.node(at, level, state.pages).unwrap();
        for index in 0..node.count() {
            if level > 0 {
                self.pages_below(node.child(index).unwrap().1, level - 1, pages);
            } else if let page::Value::Outside(run, len) = node.row(index).unwrap().1 {
                assert!((run.page..run.page + page::pages_of(len)).all(|page| pages.insert(page)));
            }
        }
    }
}

#[test]
fn random_batches_leave_the_rows_the_order_and_the_space_right() {
    for seed in 0..4 {
        let mut world = World::new(seed);
        for round in 0..9 {
            let (changes, keys) = (world.random.random_range(1..400), [50, 3000][seed as usize % 2]);
            world.work(4, changes, keys);
            if round % 3 == 2 {
                world.reopen();
            }
            world.check();
        }
    }
}

#[test]
fn a_tree_without_rows_has_no_pages_and_grows_again() {
    let mut world = World::new(1);
    world.work(3, 2000, 100_000);
    let keys: Vec<_> = world.rows.keys().cloned().collect();
    world.write(keys.into_iter().map(|key| (Key::from(&key[..]), None)).collect());
    assert!(world.rows.is_empty() && world.engine.state.load().root.is_none());
    world.check();
    world.work(1, 10, 100);
    world.reopen();
    world.check();
}

#[test]
fn space_is_used_again_but_not_under_a_reader() {
    let mut world = World::new(2);
    world.work(2, 3000, 10_000);
    let pinned = world.rows.clone();
    let pin = world.engine.pin().unwrap();
    world.work(20, 500, 10_000);
    let mut seen = Rows::new();
    pin.read(&mut |read| {
        let mut show = |key: &[u8], value: &[u8]| {
            seen.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        };
        read.range(&[], &[0xff; 30], &mut show).unwrap();
    });
    assert_eq!(seen, pinned);
    drop(pin);
    world.work(20, 500, 10_000);
    let before = world.engine.size();
    world.work(60, 500, 10_000);
    assert!(world.engine.size() < before * 3 / 2, "{} after {before} bytes", world.engine.size());
    world.check();
}

#[test]
fn ascending_rows_fill_their_pages_and_sparse_pages_are_joined() {
    let mut world = World::new(3);
    for batch in 0..40_u32 {
        let rows =
            (0..500).map(|n| (Key::from(&(batch * 500 + n).to_be_bytes()[..]), Some(Bytes::from_static(&[7; 90]))));
        world.write(rows.collect());
    }
    let used = |world: &World| world.engine.writer.lock().space.used_pages().count();
    // 106 bytes a row.
    let least = 20_000 * 102 / PAGE;
    assert!(used(&world) < least * 5 / 4, "{} pages of at least {least}", used(&world));
    let gone = world.rows.keys().filter(|key| key[3] % 16 != 0).cloned().collect::<Vec<_>>();
    for keys in gone.chunks(1000) {
        world.write(keys.iter().map(|key| (Key::from(&key[..]), None)).collect());
    }
    assert!(used(&world) < least / 2, "{} pages of at least {}", used(&world), least / 16);
    world.check();
}

#[test]
fn a_batch_that_fails_leaves_rows_and_space_as_they_were() {
    let mut world = World::new(4);
    world.work(3, 1000, 5000);
    for _ in 0..5 {
        let batch = world.random_batch(500, 5000);
        let mut failing = batch.into_iter().map(Ok).chain([Err(BatchAborted)]);
        assert!(matches!(world.engine.write(&mut failing), Err(EngineError::Aborted)));
        world.check();
    }
    world.work(3, 1000, 5000);
    world.check();
}

#[test]
fn a_batch_that_panics_leaves_rows_and_space_as_they_were() {
    let mut world = World::new(14);
    world.work(3, 1000, 5000);
    for _ in 0..3 {
        let batch = world.random_batch(500, 5000);
        let mut left = 400;
        let mut panicking = batch.into_iter().map(|row| {
            left -= 1;
            assert!(left > 0, "a panic that the test asked for");
            Ok(row)
        });
        let write = std::panic::AssertUnwindSafe(|| world.engine.write(&mut panicking));
        assert!(std::panic::catch_unwind(write).is_err());
        world.work(1, 20, 5000);
        world.check();
        world.reopen();
        world.check();
    }
}

/// A power failure may leave any part of the pages of a batch, as long as the meta page is not written, and a part of the meta page.
#[test]
fn a_crash_within_a_batch_leaves_the_state_before_or_after_it() {
    let mut world = World::new(5);
    world.work(6, 800, 3000);
    let mut outcomes = BTreeSet::new();
    for _ in 0..30 {
        let (before, old_rows) = (world.bytes(), world.rows.clone());
        let changes = world.random.random_range(1..300);
        world.work(1, changes, 3000);
        let after = world.bytes();
        let mut torn = before.clone();
        torn.resize(after.len(), 0);
        let kept = world.random.random_range(0.0..=1.0);
        let header = meta_place(world.engine.state.load().batch) as usize;
        let is_meta_written = world.random.random_bool(0.5);
        for at in (0..after.len()).step_by(512) {
            let is_meta = at / PAGE == header;
            let is_data = at / PAGE >= HEADER_PAGES as usize;
            // All data is forced before the meta page is written.
            let is_kept = if is_meta_written { is_data } else { is_data && world.random.random_bool(kept) };
            if is_kept || (is_meta && is_meta_written && world.random.random_bool(0.8)) {
                torn[at..at + 512].copy_from_slice(&after[at..at + 512]);
            }
        }
        let crashed = TreeEngine::open(&SimDisk::with_file(NAME, &torn), &ID).unwrap();
        let found = all_rows(&crashed).unwrap();
        let is_new = found == world.rows && found != old_rows;
        assert!(is_new || found == old_rows, "a state between");
        assert_eq!(damage(&crashed), []);
        outcomes.insert((is_meta_written, is_new));
    }
    assert_eq!(outcomes, BTreeSet::from([(false, false), (true, false), (true, true)]));
}

#[test]
fn a_truncated_file_and_files_without_a_header_of_the_store_are_refused_by_name() {
    let mut world = World::new(6);
    world.work(3, 1000, 5000);
    let whole = world.bytes();
    let refusal = |bytes: &[u8], id: &TreeId| match TreeEngine::open(&SimDisk::with_file(NAME, bytes), id) {
        Err(EngineError::Damaged(damage)) => damage.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened"),
    };
    let needed = world.engine.size();
    for len in [needed as usize - 1, needed as usize / 2, 17 * PAGE + 1] {
        let expected = format!("{NAME} was truncated: it has {len} bytes and needs {needed}");
        assert_eq!(refusal(&whole[..len], &ID), expected);
    }
    for len in [0, 1, PAGE - 1] {
        assert_eq!(refusal(&whole[..len], &ID), format!("{NAME} has no valid header"));
    }
    let mut zeroed = whole.clone();
    zeroed[..17 * PAGE].fill(0);
    assert_eq!(refusal(&zeroed, &ID), format!("{NAME} has no valid header"));
    assert!(refusal(&whole, &[8; 16]).contains("belongs to another store"));
}

/// Each page is damaged in several ways. Every read then gives the right answer or an error, and most rows stay readable.
#[test]
fn a_damaged_page_costs_what_is_on_it() {
    let mut world = World::new(7);
    world.work(4, 600, 1500);
    let older = world.bytes();
    world.work(3, 100, 1500);
    world.check();
    let whole = world.bytes();
    let mut used: Vec<u64> = world.engine.writer.lock().space.used_pages().collect();
    // The meta pages, and some others.
    used.retain(|page| META_PLACES.contains(page) || *page >= HEADER_PAGES && world.random.random_bool(0.04));
    let root = world.engine.state.load().root.unwrap().0.page;
    let mut most_lost = 0;
    for page in used {
        for kind in 0..5 {
            let mut bytes = whole.clone();
            let at = page as usize * PAGE;
            match kind {
                0 => bytes[at..at + PAGE].fill(0),
                1 => bytes[at + world.random.random_range(0..PAGE)] ^= 1 << world.random.random_range(0..8),
                2 => bytes[at..at + 512].fill(0xff),
                3 => bytes.copy_within((root as usize) * PAGE..(root as usize + 1) * PAGE, at),
                _ if at + PAGE > older.len() => continue,
                _ => bytes[at..at + PAGE].copy_from_slice(&older[at..at + PAGE]),
            }
            let is_damaged = bytes != whole;
            let lost = lost_rows(&bytes, &world);
            if page >= HEADER_PAGES && page != root {
                most_lost = most_lost.max(lost);
                assert!(is_damaged || lost == 0);
            }
        }
    }
    assert!(most_lost > 0 && most_lost < world.rows.len() / 4, "{most_lost} of {} rows", world.rows.len());
}

/// Opens a damaged file and reads every row; returns how many cannot be read.
fn lost_rows(bytes: &[u8], world: &World) -> usize {
    let engine = match TreeEngine::open(&SimDisk::with_file(NAME, bytes), &ID) {
        Ok(engine) => engine,
        Err(error) => panic!("one meta page is left: {error}"),
    };
    // An older meta page is left: the log has what is missing.
    if engine.state.load().batch < world.engine.state.load().batch {
        return 0;
    }
    let mut lost = 0;
    engine
        .read(&mut |read| {
            for (key, value) in &world.rows {
                match read.get(key) {
                    Ok(found) => assert_eq!(found, Some(&value[..])),
                    Err(EngineError::Damaged(_)) => lost += 1,
                    Err(other) => panic!("{other}"),
                }
            }
        })
        .unwrap();
    let damage = damage(&engine);
    if lost > 0 {
        assert!(all_rows(&engine).is_err(), "a scan does not omit rows");
        let in_ranges =
            |key: &[u8]| damage.iter().filter_map(|one| one.range.as_ref()).any(|range| range.contains(key));
        assert!(world.rows.keys().filter(|key| in_ranges(key)).count() >= lost, "the check names the ranges");
    } else {
        assert_eq!(all_rows(&engine).unwrap(), world.rows);
    }
    lost
}

#[test]
fn changes_in_a_damaged_page_are_kept_and_its_other_rows_stay_lost() {
    for level in [0, 1] {
        let mut world = World::new(8);
        world.work(3, 3000, 30_000);
        let state = world.engine.state.load_full();
        let (mut at, mut below) = state.root.unwrap();
        while below > level {
            at = world.engine.file.node(at, below, state.pages).unwrap().child(1).unwrap().1;
            below -= 1;
        }
        world.disk.damage(NAME, at.page as usize * PAGE + 100, |bytes| bytes[0] ^= 1);
        world.reopen();
        let lost = damage(&world.engine).pop().unwrap().range.unwrap();
        let inside: Vec<_> = world.rows.keys().filter(|key| lost.contains(key)).cloned().collect();
        let outside: Vec<_> = world.rows.keys().filter(|key| !lost.contains(key)).cloned().collect();
        assert!(inside.len() > 3 && outside.len() > 100);
        let changed = Bytes::from_static(b"changed");
        world.write(vec![
            (Key::from(&inside[0][..]), Some(changed.clone())),
            (Key::from(&inside[1][..]), None),
            (Key::from(&outside[0][..]), Some(changed.clone())),
        ]);
        for round in 0..3 {
            world
                .engine
                .read(&mut |read| {
                    for key in [&inside[0], &outside[0]] {
                        assert_eq!(read.get(key).unwrap(), Some(&changed[..]));
                    }
                    assert_eq!(read.get(&inside[1]).unwrap(), None, "removed");
                    for key in &inside[2..] {
                        assert!(matches!(read.get(key), Err(EngineError::Damaged(_))), "lost");
                    }
                    for key in &outside {
                        assert_eq!(read.get(key).unwrap(), Some(&world.rows[key][..]));
                    }
                })
                .unwrap();
            assert_eq!(damage(&world.engine).len(), 1, "level {level}, round {round}");
            assert!(all_rows(&world.engine).is_err());
            world.reopen();
            let again = vec![(Key::from(&inside[0][..]), Some(changed.clone()))];
            world.write(again);
        }
    }
}

#[test]
fn a_damaged_map_of_used_pages_overwrites_nothing() {
    let mut world = World::new(9);
    world.work(4, 1500, 4000);
    let section = world.engine.writer.lock().space.sections[0].unwrap();
    world.set_page(section.page, &[0; PAGE]);
    world.reopen();
    assert!(damage(&world.engine)[0].what.contains("map of used pages"));
    world.work(10, 300, 4000);
    assert_eq!(all_rows(&world.engine).unwrap(), world.rows);
    world.reopen();
    assert_eq!(damage(&world.engine), []);
}

#[test]
fn a_scan_back_to_the_first_key_of_a_damaged_leaf_does_not_need_the_leaf() {
    let mut world = World::new(16);
    world.work(3, 1000, 5000);
    let state = world.engine.state.load_full();
    let (mut at, mut level) = state.root.unwrap();
    while level > 1 {
        at = world.engine.file.node(at, level, state.pages).unwrap().child(0).unwrap().1;
        level -= 1;
    }
    let (to, leaf) = world.engine.file.node(at, 1, state.pages).unwrap().child(1).unwrap();
    let to = to.to_vec();
    world.set_page(leaf.page, &[0; PAGE]);
    world.reopen();
    let mut found = Vec::new();
    let mut show = |key: &[u8], _: &[u8]| {
        found.push(key.to_vec());
        ControlFlow::Continue(())
    };
    world.engine.read(&mut |read| read.range_back(&[], &to, &mut show).unwrap()).unwrap();
    assert!(!found.is_empty() && world.rows.range(..to).map(|(key, _)| key).rev().eq(&found));
}

#[test]
fn a_scrub_reads_the_header_and_the_map_of_used_pages_too() {
    let mut world = World::new(15);
    world.work(3, 300, 1000);
    let state = world.engine.state.load_full();
    let section = world.engine.writer.lock().space.sections[0].unwrap();
    for page in [meta_place(state.batch), state.index[0].page, section.page] {
        let bytes = world.page(page);
        world.set_page(page, &[0; 512]);
        let found = damage(&world.engine);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].what.contains(&format!("page {page}")) && found[0].range.is_none(), "{found:?}");
        world.set_page(page, &bytes);
        world.check();
    }
}

#[test]
fn a_row_is_resident_after_it_was_read_and_any_page_may_be_damaged() {
    let mut world = World::new(10);
    world.work(4, 1500, 4000);
    for key in world.rows.keys() {
        assert!(world.engine.is_resident(key, key));
    }
    let whole = world.bytes();
    for page in (HEADER_PAGES as usize..whole.len() / PAGE).step_by(17) {
        let mut bytes = whole.clone();
        bytes[page * PAGE..(page + 1) * PAGE].fill_with(|| world.random.random());
        world.disk = SimDisk::with_file(NAME, &bytes);
        world.reopen();
        // The answer does not matter.
        let _ = world.engine.is_resident(&[], &[0xff; 4]);
    }
}
