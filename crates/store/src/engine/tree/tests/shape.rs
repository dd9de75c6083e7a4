//! The shape of the tree: joins and divisions of pages on all levels. Small pages make high trees of a few thousand rows.

use std::ops::RangeInclusive;

use super::*;

fn key(number: u32) -> Key {
    Key::from(&number.to_be_bytes()[..])
}

fn put(number: u32, len: usize) -> (Key, Option<Bytes>) {
    (key(number), Some(Bytes::from(vec![number as u8; len])))
}

/// The keys of the root's children, without the first.
fn root_keys(world: &World) -> Vec<u32> {
    let state = world.engine.state.load_full();
    let (root, level) = state.root.unwrap();
    assert_eq!(level, 2, "root, branches, leaves");
    let node = world.engine.file.node(root, level, state.pages).unwrap();
    (1..node.count()).map(|at| u32::from_be_bytes(node.child(at).unwrap().0.try_into().unwrap())).collect()
}

/// A tree of three levels whose third branch lost all its rows, so that the fourth branch stands for its range; the smallest keys of
/// the third and of the fourth.
fn emptied_branch() -> (World, u32, u32) {
    let mut world = World::new(11);
    world.write((0..5000).map(|number| put(number * 10, 1000)).collect());
    let firsts = root_keys(&world);
    let (third, fourth) = (firsts[1], firsts[2]);
    world.write((third..fourth).step_by(10).map(|number| (key(number), None)).collect());
    world.check();
    (world, third, fourth)
}

#[test]
pub(super) fn a_row_before_the_first_child_of_a_branch_is_found_after_a_join_with_the_branch_before() {
    let (mut world, third, fourth) = emptied_branch();
    world.write(vec![put(third + 1, 1000)]);
    // Changes both branches: they are joined and divided again.
    world.write(vec![put(third - 10, 1000), put(fourth + 4000, 1000)]);
    let key = key(third + 1);
    world.engine.read(&mut |read| assert!(read.get(&key).unwrap().is_some(), "an undamaged row is absent")).unwrap();
    world.check();
}

#[test]
fn many_rows_before_the_first_child_of_a_branch_are_not_taken_for_damage() {
    let (mut world, third, fourth) = emptied_branch();
    world.write((0..40).map(|number| put(third + 1 + number, 1000)).collect());
    world.write(vec![put(third - 10, 1000), put(fourth + 4000, 1000)]);
    for number in 0..20 {
        let before = put(third - 20 - number * 100, 1000);
        world.write(vec![before, put(third + 100 + number, 1000), put(fourth + 10 + number * 100, 1000)]);
    }
    world.check();
}

/// Keys of the random tests.
const KEYS: u32 = 60_000;

/// Random changes of ranges, with the removed ranges that later batches fill again.
struct Gaps(Vec<RangeInclusive<u32>>);

impl Gaps {
    fn batch(&mut self, world: &mut World) -> Vec<(Key, Option<Bytes>)> {
        let mut batch = Vec::new();
        for _ in 0..world.random.random_range(1..5) {
            match world.random.random_range(0..10) {
                0..3 => add_scattered(world, &mut batch),
                3..6 => self.remove(world, &mut batch),
                6..9 => self.fill(world, &mut batch),
                _ => dense(world, &mut batch),
            }
        }
        batch
    }

    /// Removes all rows of a range.
    fn remove(&mut self, world: &mut World, batch: &mut Vec<(Key, Option<Bytes>)>) {
        let first = world.random.random_range(0..KEYS);
        let len = 1 << world.random.random_range(0..14);
        let gap = first..=first.saturating_add(world.random.random_range(0..len)).min(KEYS);
        let (from, to) = (gap.start().to_be_bytes().to_vec(), gap.end().to_be_bytes().to_vec());
        batch.extend(world.rows.range(from..=to).map(|(key, _)| (Key::from(&key[..]), None)));
        self.0.push(gap);
    }

    /// Writes a few rows at the beginning of a gap, at its end, or anywhere in it.
    fn fill(&mut self, world: &mut World, batch: &mut Vec<(Key, Option<Bytes>)>) {
        if self.0.is_empty() {
            return;
        }
        let gap = self.0[world.random.random_range(0..self.0.len())].clone();
        let (first, last) = (*gap.start(), *gap.end());
        let kind = world.random.random_range(0..3);
        for number in 0..world.random.random_range(1..30) {
            let at = match kind {
                0 => (first + number).min(last),
                1 => last.saturating_sub(number).max(first),
                _ => world.random.random_range(gap.clone()),
            };
            batch.push(put(at, random_len(world)));
        }
    }
}

/// Most values are in their leaf, some on pages of their own.
fn random_len(world: &mut World) -> usize {
    match world.random.random_range(0..60) {
        0 => world.random.random_range(0..9000),
        _ => world.random.random_range(0..16),
    }
}

fn add_scattered(world: &mut World, batch: &mut Vec<(Key, Option<Bytes>)>) {
    for _ in 0..world.random.random_range(1..80) {
        let number = world.random.random_range(0..KEYS);
        let is_put = world.random.random_bool(0.6);
        batch.push(if is_put { put(number, random_len(world)) } else { (key(number), None) });
    }
}

fn dense(world: &mut World, batch: &mut Vec<(Key, Option<Bytes>)>) {
    let first = world.random.random_range(0..KEYS - 2000);
    let step = world.random.random_range(1..8);
    for number in (first..first + 2000).step_by(step) {
        batch.push(put(number, random_len(world)));
    }
}

impl World {
    /// Compares look-ups and scans in both directions with the rows that the tree should have.
    fn check_reads(&mut self) {
        let mut ranges = vec![(vec![], vec![0xff; 5])];
        for _ in 0..20 {
            let [a, b] = [0; 2].map(|_| self.random.random_range(0..KEYS).to_be_bytes().to_vec());
            ranges.push((a.clone().min(b.clone()), a.max(b)));
        }
        let absent: Vec<Key> = (0..200).map(|_| key(self.random.random_range(0..KEYS + 10))).collect();
        let rows = &self.rows;
        let compare = |read: &dyn EngineRead| {
            for (key, value) in rows {
                assert_eq!(read.get(key).unwrap(), Some(&value[..]), "row {key:?}");
            }
            for key in &absent {
                assert_eq!(read.get(key).unwrap(), rows.get(&key[..]).map(|value| &value[..]));
            }
            for (from, to) in &ranges {
                let (mut found, mut back) = (Vec::new(), Vec::new());
                let show = |found: &mut Vec<Vec<u8>>, key: &[u8]| {
                    found.push(key.to_vec());
                    ControlFlow::Continue(())
                };
                read.range(from, to, &mut |key, _| show(&mut found, key)).unwrap();
                read.range_back(from, to, &mut |key, _| show(&mut back, key)).unwrap();
                let expected = || rows.range(from.clone()..to.clone()).map(|(key, _)| key);
                assert!(expected().eq(&found), "rows from {from:?} to {to:?}");
                assert!(expected().rev().eq(&back), "rows from {to:?} back to {from:?}");
            }
        };
        self.engine.read(&mut |read| compare(read)).unwrap();
        self.check();
    }

    fn levels(&self) -> usize {
        self.engine.state.load().root.map_or(0, |(_, level)| usize::from(level) + 1)
    }
}

/// Changes ranges of a high tree; returns its levels.
pub(super) fn change_ranges(seed: u64, batches: u32) -> usize {
    let mut highest = 0;
    let mut world = World::with_room(seed, [80, 128, 200, 300][seed as usize % 4]);
    let mut gaps = Gaps(Vec::new());
    world.write((0..3000).map(|number| put(number * 20, 8)).collect());
    for batch in 0..batches {
        let changes = gaps.batch(&mut world);
        world.write(changes);
        highest = highest.max(world.levels());
        world.check_reads();
        if batch % 10 == 9 {
            world.reopen();
        }
    }
    highest
}

#[test]
fn ranges_that_are_removed_and_filled_again_leave_every_row_of_a_high_tree_readable() {
    let highest = crash::seeds(6).map(|seed| change_ranges(seed, 25)).max();
    assert!(highest >= Some(5), "{highest:?} levels");
}
