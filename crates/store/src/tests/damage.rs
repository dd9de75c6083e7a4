//! Random damage of the files of a store, at rest or while it is open. A damaged store is refused by name, or each read gives the truth or an
//! error, a scrub names what cannot be read, and changes go on. Pages of the B-tree are damaged below an open one elsewhere
//! (`engine/tree/tests/fuzz.rs`).
//!
//! `MORTAR_DAMAGE_ROUNDS` sets the number of damaged stores, `MORTAR_DAMAGE_SEED` the first seed.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::identity::copy_tree;
use super::world::small_options;
use super::*;

const ROUNDS: u64 = 120;
const BLOCK: usize = 4096;

/// What a store has.
#[derive(Clone, Default)]
struct Truth {
    rows: BTreeMap<Vec<u8>, Bytes>,
    contents: BTreeMap<ContentId, Bytes>,
    /// The keys of the rows that are only in the log, in the order of their changes.
    logged: Vec<Vec<u8>>,
}

/// A sound store, an older copy of it, and what it has.
struct World {
    sound: tempfile::TempDir,
    older: tempfile::TempDir,
    truth: Truth,
}

/// What became of the damaged stores.
#[derive(Debug, Default)]
struct Outcomes {
    refused: u32,
    errors: u32,
    equal: u32,
    /// Stores without the last changes, because the record of the log's end was damaged together with the end.
    cut: u32,
}

fn put(store: &Store, truth: &mut Truth, random: &mut StdRng, is_logged: bool) {
    try_put(store, truth, random, is_logged).unwrap();
}

/// Changes some rows. If that fails, it returns their keys: whether they were changed may be unknown.
fn try_put(store: &Store, truth: &mut Truth, random: &mut StdRng, is_logged: bool) -> Result<(), Vec<Vec<u8>>> {
    let before = truth.clone();
    let (mut changes, mut keys) = (RowChanges::new(), Vec::new());
    for _ in 0..random.random_range(1..12) {
        let number: u32 = random.random_range(0..400);
        let key = number.wrapping_mul(2_654_435_761).to_be_bytes().to_vec();
        if is_logged && truth.logged.contains(&key) {
            continue;
        }
        keys.push(key.clone());
        let len =
            if random.random_bool(0.05) { random.random_range(2000..30_000) } else { random.random_range(0..900) };
        if random.random_bool(0.85) {
            let value = pattern(len, random.random());
            changes.put(&key, value.clone());
            truth.rows.insert(key.clone(), value);
        } else {
            changes.remove(&key);
            truth.rows.remove(&key);
        }
        if is_logged {
            truth.logged.push(key);
        }
    }
    store.commit_rows(changes).map(drop).map_err(|error| {
        // If there is no spare for another segment, nothing was changed.
        assert!([ErrorKind::Unknown, ErrorKind::Io].contains(&error.kind()), "{error}");
        *truth = before;
        keys
    })
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let (sound, older) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut truth = Truth::default();
        for age in 0..2 {
            let store = Store::open(sound.path(), small_options()).unwrap();
            for round in 0..30 {
                put(&store, &mut truth, &mut random, false);
                if round % 10 == 3 {
                    let (id, data) = (new_id(), pattern(random.random_range(1000..200_000), round));
                    commit(&store, [create(id, data.clone())]);
                    truth.contents.insert(id, data);
                }
                if round % 6 == 5 {
                    store.install().unwrap();
                    store.core().do_housekeeping().unwrap();
                    store.force().unwrap();
                }
            }
            store.install().unwrap();
            if age == 0 {
                drop(store);
                copy_tree(sound.path(), older.path());
                continue;
            }
            (0..10).for_each(|_| put(&store, &mut truth, &mut random, true));
        }
        Self { sound, older, truth }
    }
}

/// The files of a store whose damage matters, relative to its directory.
fn files(dir: &Path) -> Vec<String> {
    let mut names = vec!["STORE".to_owned()];
    for part in ["tree", "log", "blobs"] {
        let entries = fs::read_dir(dir.join(part)).unwrap();
        names.extend(entries.map(|entry| format!("{part}/{}", entry.unwrap().file_name().to_str().unwrap())));
    }
    names.sort();
    names
}

/// Damages one file; returns its name and what was done.
fn mutate_any(world: &World, dir: &Path, random: &mut StdRng) -> (String, &'static str) {
    let names = files(dir);
    // The B-tree has the most ways to be damaged.
    let name = if random.random_bool(0.5) { "tree/rows" } else { &names[random.random_range(0..names.len())] };
    mutate(world, dir, name, random)
}

fn mutate(world: &World, dir: &Path, name: &str, random: &mut StdRng) -> (String, &'static str) {
    let path = dir.join(name);
    let Ok(mut bytes) = fs::read(&path) else { return (name.to_owned(), "removed before") };
    let older = fs::read(world.older.path().join(name)).unwrap_or_default();
    let at = |random: &mut StdRng, len: usize| random.random_range(0..len.max(1));
    let block = |random: &mut StdRng, len: usize| random.random_range(0..(len / BLOCK).max(1)) * BLOCK;
    let len = bytes.len();
    let what = match random.random_range(0..11) {
        0 if len > 0 => {
            for _ in 0..random.random_range(1..4) {
                let at = at(random, len);
                bytes[at] ^= 1 << random.random_range(0..8);
            }
            "flipped bits"
        }
        1 if len > 0 => {
            let from = at(random, len);
            let to = (from + random.random_range(1..64)).min(len);
            bytes[from..to].fill_with(|| random.random());
            "random bytes"
        }
        2 if len > 0 => {
            let from = at(random, len) / 512 * 512;
            bytes[from..(from + 512).min(len)].fill(0);
            "a zeroed sector"
        }
        3 if len > 0 => {
            let from = block(random, len);
            bytes[from..(from + BLOCK).min(len)].fill(0);
            "a zeroed page"
        }
        4 if len >= 2 * BLOCK => {
            let (a, b) = (block(random, len), block(random, len));
            for offset in 0..BLOCK {
                bytes.swap(a + offset, b + offset);
            }
            "swapped pages"
        }
        5 if len >= 2 * BLOCK => {
            let (from, to) = (block(random, len), block(random, len));
            bytes.copy_within(from..from + BLOCK, to);
            "a page in a wrong place"
        }
        6 | 7 if older.len().min(len) >= BLOCK => {
            let from = block(random, len.min(older.len()));
            bytes[from..from + BLOCK].copy_from_slice(&older[from..from + BLOCK]);
            "an older page"
        }
        8 => {
            bytes.truncate(at(random, len));
            "a truncated file"
        }
        9 if !older.is_empty() => {
            bytes = older;
            "an older file"
        }
        10 => {
            fs::remove_file(&path).unwrap();
            return (name.to_owned(), "a removed file");
        }
        _ => {
            bytes.extend_from_slice(&[0xa5; 700]);
            "a longer file"
        }
    };
    fs::write(&path, bytes).unwrap();
    (name.to_owned(), what)
}

/// Compares all that can be read with the truth; returns how many reads failed. `is_missing` decides whether a wrong answer is one
/// without the last changes.
fn read_all(store: &Store, truth: &Truth, is_missing: &mut dyn FnMut(&[u8]) -> bool) -> u32 {
    let mut failed = 0;
    for number in 0..400_u32 {
        let key = number.wrapping_mul(2_654_435_761).to_be_bytes();
        match store.row(&key) {
            Ok(found) if found.as_ref() == truth.rows.get(&key[..]) => {}
            Ok(found) => assert!(is_missing(&key), "row {key:x?}: {:?} bytes", found.map(|found| found.len())),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                failed += 1;
            }
        }
    }
    for (id, data) in &truth.contents {
        match store.read_content(*id, 0, 1 << 20) {
            Ok(found) => assert_eq!(found, data, "content {id}"),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io), "{error}");
                failed += 1;
            }
        }
    }
    let mut found = BTreeMap::new();
    let scanned = store.rows(&[0], &[0xff; 9], |key, value| {
        found.insert(key.to_vec(), Bytes::copy_from_slice(value));
        ControlFlow::Continue(())
    });
    match scanned {
        Ok(()) => {
            let keys = found.keys().chain(truth.rows.keys());
            for key in keys.filter(|key| found.get(*key) != truth.rows.get(*key)) {
                assert!(is_missing(key), "row {key:x?} of a scan");
            }
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            failed += 1;
        }
    }
    failed
}

/// Damages a copy of the store, and reads, scrubs, changes and opens it again.
fn round(world: &World, seed: u64, outcomes: &mut Outcomes) {
    let mut random = StdRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    copy_tree(world.sound.path(), dir.path());
    let mut damaged = Vec::new();
    for _ in 0..[1, 1, 1, 2, 4][random.random_range(0..5)] {
        if files(dir.path()).len() > 2 {
            damaged.push(mutate_any(world, dir.path(), &mut random));
        }
    }
    // A failure shows it.
    println!("seed {seed}: {damaged:?}");
    let report = Store::repair(dir.path(), false, &[], small_options(), &());
    let store = match Store::open(dir.path(), small_options()) {
        Ok(store) => store,
        Err(error) => {
            assert!(report.map_or(true, |report| !report.is_sound()), "a repair finds nothing: {error}");
            let names = ["log", "tree", "B-tree", "blobs/", "STORE", "content "];
            assert!(names.iter().any(|name| error.message().contains(name)), "the error names nothing: {error}");
            outcomes.refused += 1;
            return;
        }
    };
    let mut truth = world.truth.clone();
    // Only a damaged record can hide that the last frames are gone.
    let may_be_cut = damaged.iter().any(|(name, _)| name == "log/tail") && damaged.len() > 1;
    let mut missing = Vec::new();
    let failed = read_all(&store, &truth, &mut |key| {
        missing.push(key.to_vec());
        may_be_cut && truth.logged.iter().any(|logged| logged == key)
    });
    let scrub = store.scrub(&()).unwrap();
    match store.backup(&mut Vec::new(), &()) {
        Ok(_) => assert_eq!(failed, 0, "a backup without what cannot be read: {damaged:?}"),
        Err(error) => {
            assert!(!scrub.is_clean(), "{error}: {damaged:?}");
            assert!(
                error.message().contains("the archive is not complete") || error.kind() != ErrorKind::Corrupt,
                "{error}"
            );
        }
    }
    assert!(failed == 0 || !scrub.is_clean(), "the scrub finds nothing: {damaged:?}");
    if !missing.is_empty() {
        let kept = truth.logged.iter().position(|key| missing.contains(key)).unwrap_or(0);
        assert!(kept < truth.logged.len(), "only the last changes are missing");
        outcomes.cut += 1;
        return;
    }
    match failed {
        0 => outcomes.equal += 1,
        _ => outcomes.errors += 1,
    }
    // Changes go on, also next to the damage.
    for _ in 0..6 {
        let mut changed = truth.clone();
        put(&store, &mut changed, &mut random, false);
        truth = changed;
    }
    store.install().unwrap();
    read_all(&store, &truth, &mut |_| false);
    drop(store);
    let store = Store::open(dir.path(), small_options()).unwrap();
    read_all(&store, &truth, &mut |_| false);
}

/// Damages files of a store that is open, other than its B-tree; reads, scrubs and changes it, and opens it again.
fn round_while_open(world: &World, seed: u64, outcomes: &mut Outcomes) {
    let mut random = StdRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    copy_tree(world.sound.path(), dir.path());
    let store = Store::open(dir.path(), small_options()).unwrap();
    let mut truth = world.truth.clone();
    let change = |truth: &mut Truth, random: &mut StdRng| {
        (0..random.random_range(0..4)).try_for_each(|_| try_put(&store, truth, random, true))?;
        if random.random_bool(0.3) {
            store.install().unwrap();
            truth.logged.clear();
        }
        Ok(())
    };
    change(&mut truth, &mut random).unwrap();
    let mut damaged = Vec::new();
    for _ in 0..random.random_range(1..4) {
        let names: Vec<String> = files(dir.path()).into_iter().filter(|name| name != "tree/rows").collect();
        damaged.push(mutate(world, dir.path(), &names[random.random_range(0..names.len())], &mut random));
    }
    println!("seed {seed}, while it is open: {damaged:?}");
    let failed = read_all(&store, &truth, &mut |_| false);
    let scrub = store.scrub(&()).unwrap();
    assert!(failed == 0 || !scrub.is_clean(), "the scrub finds nothing: {damaged:?}");
    // The log ends when a file that it needs is gone.
    let unknown: Vec<Vec<u8>> = change(&mut truth, &mut random).err().unwrap_or_default();
    assert_eq!(read_all(&store, &truth, &mut |_| false), failed, "{damaged:?}");
    drop(store);
    let store = match Store::open(dir.path(), small_options()) {
        Ok(store) => store,
        Err(error) => {
            let names = ["log", "tree", "B-tree", "blobs/", "STORE", "content "];
            assert!(names.iter().any(|name| error.message().contains(name)), "the error names nothing: {error}");
            outcomes.refused += 1;
            return;
        }
    };
    // Only a damaged record can hide that the last frames are gone.
    let may_be_cut = damaged.iter().any(|(name, _)| name == "log/tail") && damaged.len() > 1;
    let mut is_cut = false;
    let failed = read_all(&store, &truth, &mut |key| {
        let is_unknown = unknown.iter().any(|unknown| unknown == key);
        is_cut |= !is_unknown;
        is_unknown || may_be_cut && truth.logged.iter().any(|logged| logged == key)
    });
    match failed {
        _ if is_cut => outcomes.cut += 1,
        0 => outcomes.equal += 1,
        _ => outcomes.errors += 1,
    }
}

#[test]
fn damage_of_any_file_is_refused_by_name_or_costs_only_what_it_hits() {
    check_rounds(round);
}

#[test]
fn damage_of_any_file_below_an_open_store_is_found_and_costs_only_what_it_hits() {
    check_rounds(round_while_open);
}

fn check_rounds(round: fn(&World, u64, &mut Outcomes)) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let rounds = number("MORTAR_DAMAGE_ROUNDS").unwrap_or(ROUNDS);
    let first = number("MORTAR_DAMAGE_SEED").unwrap_or(0);
    let (mut outcomes, mut failures) = (Outcomes::default(), Vec::new());
    let mut world = World::new(first);
    for seed in first..first + rounds {
        if seed % 500 == 499 {
            world = World::new(seed);
        }
        let run = std::panic::AssertUnwindSafe(|| round(&world, seed, &mut outcomes));
        if std::panic::catch_unwind(run).is_err() {
            failures.push(seed);
        }
    }
    println!("{rounds} damaged stores: {outcomes:?}");
    assert!(
        failures.is_empty(),
        "MORTAR_DAMAGE_SEED={first}: {} failures, with the seeds {failures:?}",
        failures.len()
    );
    let Outcomes { refused, errors, equal, .. } = outcomes;
    assert!(refused > 0 && errors > 0 && equal > 0, "{outcomes:?}");
}
