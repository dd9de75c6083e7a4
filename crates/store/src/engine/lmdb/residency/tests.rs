//! The walk finds the pages that LMDB would read; pages that are not in memory are noticed.

use std::collections::BTreeSet;
use std::fs;

use super::*;
use crate::engine::lmdb::{FILE, LmdbEngine};
use crate::engine::{Engine, EngineRow};
use crate::rows::key::Key;

const ROWS: u32 = 20_000;

fn key(number: u32) -> [u8; 5] {
    let [a, b, c, d] = number.to_be_bytes();
    [7, a, b, c, d]
}

fn size(number: u32) -> usize {
    if number.is_multiple_of(1_000) { 10_000 } else { 100 }
}

fn fill(engine: &LmdbEngine) {
    let row = |number| -> EngineRow { (Key::from(&key(number)[..]), Some(vec![3; size(number)].into())) };
    engine.write(&mut (0..ROWS).map(|number| Ok(row(number)))).unwrap();
}

/// The leaves that a walk would visit, read with waiting, and the first and the last page of each value.
fn visited(probe: &ResidencyProbe, from: &[u8], to: &[u8]) -> (BTreeSet<Vec<u8>>, Vec<[u64; 2]>) {
    let (mut leaves, mut page) = (BTreeSet::new(), vec![0; probe.page_size]);
    let root = probe.root.load(Ordering::Acquire);
    let mut walk = Walk { from, to, pages: vec![root], values: Vec::new() };
    while let Some(number) = walk.pages.pop() {
        probe.file.read_exact_at(&mut page, number * probe.page_size as u64).unwrap();
        walk.visit(number, &page).unwrap();
        if u16_at(&page, PAGE_FLAGS) == Some(LEAF) {
            leaves.insert(page.clone());
        }
    }
    (leaves, walk.values.as_chunks().0.to_vec())
}

#[test]
fn a_walk_visits_the_leaf_and_the_value_of_each_row() {
    let dir = tempfile::tempdir().unwrap();
    let engine = LmdbEngine::open(dir.path()).unwrap();
    assert!(engine.is_resident(&key(1), &key(1)), "there are no rows");
    fill(&engine);
    for number in (0..ROWS).step_by(97).chain((0..ROWS).step_by(1_000)) {
        let (leaves, values) = visited(&engine.residency, &key(number), &key(number));
        assert_eq!(leaves.len(), 1);
        let has_key = |leaf: &Vec<u8>| leaf.windows(5).any(|part| part == key(number));
        assert!(leaves.iter().all(has_key), "row {number} is on another leaf");
        let pages: Vec<u64> = values.iter().map(|[first, last]| last - first + 1).collect();
        let expected = if size(number) > 2_000 { vec![10_016_u64.div_ceil(engine.file.page_size)] } else { Vec::new() };
        assert!(pages == expected || size(number) < 2_000 && values.is_empty(), "row {number}: {pages:?}");
    }
    let (leaves, values) = visited(&engine.residency, &key(1_990), &key(3_010));
    assert!(leaves.len() > 20 && values.len() == 2, "{} leaves, {values:?}", leaves.len());
}

#[test]
fn rows_are_resident_once_they_were_read_and_not_when_they_were_evicted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    {
        let engine = LmdbEngine::open(dir.path()).unwrap();
        fill(&engine);
        assert!((0..ROWS).step_by(997).all(|number| engine.is_resident(&key(number), &key(number))));
        assert!(engine.is_resident(&key(0), &key(ROWS)), "the rows are on too many pages");
    }
    // No one has mapped the file, so the system evicts its pages, where the file system supports that.
    let file = fs::File::open(&path).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    let probe = ResidencyProbe::open(&path, 4096).unwrap();
    let mut byte = [0];
    let read = preadv2(&file, &mut [IoSliceMut::new(&mut byte)], 400 * 4096, ReadWriteFlags::NOWAIT);
    if read == Err(Errno::AGAIN) {
        assert!(!probe.is_resident(&key(9_001), &key(9_001)));
    }
    let mut whole = vec![0; fs::metadata(&path).unwrap().len() as usize];
    file.read_exact_at(&mut whole, 0).unwrap();
    assert!(probe.is_resident(&key(9_001), &key(9_001)));
}

#[test]
fn a_walk_over_damaged_pages_ends() {
    let dir = tempfile::tempdir().unwrap();
    let engine = LmdbEngine::open(dir.path()).unwrap();
    fill(&engine);
    let probe = &engine.residency;
    let mut page = vec![0; probe.page_size];
    probe.file.read_exact_at(&mut page, probe.root.load(Ordering::Acquire) * probe.page_size as u64).unwrap();
    for at in 0..page.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut damaged = page.clone();
            damaged[at] = value;
            let mut walk = Walk { from: &key(5), to: &key(500), pages: Vec::new(), values: Vec::new() };
            let _ = walk.visit(u64_at(&page, 0).unwrap(), &damaged);
        }
    }
    // Any number of a root is followed at most for a while.
    for root in [0, 1, 2, 77, u64::MAX - 1, u64::MAX / 2] {
        probe.root.store(root, Ordering::Release);
        let _ = probe.is_resident(&key(5), &key(500));
    }
}
