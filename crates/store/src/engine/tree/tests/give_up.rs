//! Rows on damaged pages are given up: they are absent, and everything else is as it was.

use super::page::Value;
use super::*;
use crate::engine::damaged_ranges::{DamagedRanges, WithoutRows};

/// Damages some pages of a tree, of any level and also values, changes rows beside them, and gives them up.
pub(super) fn give_up_damaged_pages(seed: u64) {
    let mut world = World::with_room(seed, 160);
    let mut random = StdRng::seed_from_u64(seed);
    world.work(3, 400, 1500);
    let state = world.engine.state.load_full();
    let mut pages = Vec::new();
    pages_below(&world, state.root.unwrap(), &mut pages);
    for _ in 0..random.random_range(1..6) {
        let page = pages[random.random_range(0..pages.len())];
        world.disk.damage(NAME, page as usize * PAGE + random.random_range(0..PAGE), |bytes| bytes[0] ^= 1);
    }
    world.reopen();
    let keys: Vec<Vec<u8>> = world.rows.keys().cloned().collect();
    if random.random_bool(0.5) {
        // Some damaged pages become incomplete ones.
        let mut change = || {
            let key = Key::from(&keys[random.random_range(0..keys.len())][..]);
            (key, random.random_bool(0.5).then(|| Bytes::from_static(b"changed")))
        };
        let changes: Vec<EngineRow> = (0..30).map(|_| change()).collect();
        world.write(changes);
    }
    let (mut ranges, mut parts, mut kept) = (DamagedRanges::default(), Vec::new(), BTreeMap::new());
    let mut observe = |checked: Checked<'_>| {
        match checked {
            Checked::Damage(damage) => {
                let range = damage.range.unwrap();
                parts.push((Key::from(&range.from[..]), damage.page));
                ranges.add(range);
            }
            Checked::Kept(key, value) => drop(kept.insert(Key::from(key), Bytes::copy_from_slice(value))),
            Checked::Bytes(_) | Checked::UpTo(_) => {}
        }
        ControlFlow::Continue(())
    };
    world.engine.read(&mut |read| assert!(read.check(&mut observe).is_continue())).unwrap();
    let without = WithoutRows { engine: &world.engine, ranges: &ranges, kept: &kept };
    let predicted = rows_of(&without, &[], &[0xff; 30]);
    for _ in 0..20 {
        let mut bound = || keys[random.random_range(0..keys.len())].clone();
        let (from, to) = (bound(), bound());
        let expected: Rows = predicted
            .iter()
            .filter(|(key, _)| **key >= from && **key < to)
            .map(|(key, row)| (key.clone(), row.clone()))
            .collect();
        assert_eq!(rows_of(&without, &from, &to), expected, "seed {seed}");
    }
    let added = &keys[random.random_range(0..keys.len())];
    let rows: [EngineRow; 1] = [(Key::from(&added[..]), Some(Bytes::from_static(b"added")))];
    world.engine.give_up(&parts, &mut rows.into_iter().map(Ok)).unwrap();
    world.rows.retain(|key, _| {
        let behind = [&key[..], &[0]].concat();
        ranges.within(key, &behind).next().is_none() || kept.contains_key(&key[..])
    });
    assert_eq!(predicted, world.rows, "seed {seed}: a reader of the rows that are left sees the same before");
    world.rows.insert(added.clone(), b"added".to_vec());
    assert_eq!(damage(&world.engine), [], "seed {seed}");
    assert_eq!(all_rows(&world.engine).unwrap(), world.rows, "seed {seed}");
    world.reopen();
    world.engine.reclaim_space().unwrap();
    world.work(2, 200, 1500);
    world.reopen();
    assert_eq!(damage(&world.engine), [], "seed {seed}");
    assert_eq!(all_rows(&world.engine).unwrap(), world.rows, "seed {seed}");
}

fn rows_of(engine: &dyn Engine, from: &[u8], to: &[u8]) -> Rows {
    let mut rows = Rows::new();
    let mut show = |key: &[u8], value: &[u8]| {
        rows.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    };
    engine.range(from, to, &mut show).unwrap();
    rows
}

/// A page, those below it, and those of values.
pub(super) fn pages_below(world: &World, (at, level): (PageRef, u8), pages: &mut Vec<u64>) {
    let state = world.engine.state.load_full();
    pages.push(at.page);
    let node = world.engine.file.node(at, level, state.pages).unwrap();
    for index in 0..node.count() {
        match level {
            0 => {
                if let Value::Outside(run, _) = node.row(index).unwrap().1 {
                    pages.push(run.page);
                }
            }
            _ => pages_below(world, (node.child(index).unwrap().1, level - 1), pages),
        }
    }
}

#[test]
fn rows_on_damaged_pages_are_absent_when_they_are_given_up() {
    (0..80).for_each(give_up_damaged_pages);
}
