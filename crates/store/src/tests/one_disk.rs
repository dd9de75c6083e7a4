//! A store whose log, blob files and B-tree are on one simulated disk: crashes after every change of the disk, and changes that fail.
//!
//! Segments of the log are freed when their changes are in the B-tree, so the order of the forces of both matters.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use model::planted_bug::is_noticed;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::world::small_options;
use super::*;
use crate::disk::sim::SimDisk;
use crate::engine::tree::TreeEngine;
use crate::error::IntoModelResult;
use crate::log::recover::OnDamage;
use crate::open::open_on;
use crate::plant::TreeBug;

/// What a store has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    rows: BTreeMap<Vec<u8>, Bytes>,
    contents: BTreeMap<ContentId, Bytes>,
}

struct Image {
    disk: SimDisk,
    acknowledged: usize,
}

fn open(disk: &SimDisk) -> model::Result<Store> {
    let options = Options { mob_bytes: 32 << 10, segment_bytes: 8 << 10, ..small_options() };
    let engine = TreeEngine::open(disk, &[7; 16]).into_model_result()?;
    Store::start(open_on(Arc::new(disk.clone()), Box::new(engine), [7; 16], options, OnDamage::Refuse)?)
}

fn state_of(store: &Store) -> State {
    let mut state = State::default();
    let insert = |key: &[u8], value: &[u8]| {
        state.rows.insert(key.to_vec(), Bytes::copy_from_slice(value));
        ControlFlow::Continue(())
    };
    store.rows(&[], &[0xff; 9], insert).unwrap();
    for id in ids(store) {
        state.contents.insert(id, bytes(store, id).into());
    }
    state
}

/// Random changes of a state.
fn change(random: &mut StdRng, state: &State) -> (RowChanges, State) {
    let (mut changes, mut after) = (RowChanges::new(), state.clone());
    for _ in 0..random.random_range(1..12) {
        let key = random.random_range(0..300_u16).to_be_bytes();
        if random.random_bool(0.7) {
            let value = pattern(random.random_range(0..400), random.random());
            changes.put(&key, value.clone());
            after.rows.insert(key.to_vec(), value);
        } else {
            changes.remove(&key);
            after.rows.remove(&key[..]);
        }
    }
    if random.random_bool(0.15) {
        let (id, data) = (new_id(), pattern(random.random_range(0..90_000), random.random()));
        changes.content(create(id, data.clone()));
        after.contents.insert(id, data);
    } else if random.random_bool(0.15)
        && let Some(id) = after.contents.keys().next().copied()
    {
        changes.content(delete(id));
        after.contents.remove(&id);
    }
    (changes, after)
}

/// Works, and crashes after every change of the disk.
fn crash_after_every_change(seed: u64, steps: u64) {
    let (images, acknowledged) = (Arc::<Mutex<Vec<Image>>>::default(), Arc::<AtomicUsize>::default());
    let (kept, count) = (Arc::clone(&images), Arc::clone(&acknowledged));
    let disk = SimDisk::new();
    let (store, mut random) = (open(&disk).unwrap(), StdRng::seed_from_u64(seed));
    disk.watch(move |disk| kept.lock().push(Image { disk, acknowledged: count.load(Ordering::Relaxed) }));
    let mut states = vec![State::default()];
    let mut outcomes = BTreeSet::new();
    for step in 0..steps {
        let (changes, after) = change(&mut random, &states[states.len() - 1]);
        states.push(after);
        store.commit_rows(changes).unwrap();
        acknowledged.fetch_add(1, Ordering::Relaxed);
        if step % 3 == 2 {
            store.install().unwrap();
            store.core().do_housekeeping().unwrap();
        }
        for (number, image) in std::mem::take(&mut *images.lock()).into_iter().enumerate() {
            let seed = seed * 1000 + number as u64;
            let disk = if number % 3 == 0 { image.disk.crash_of_process() } else { image.disk.crash(seed) };
            let reopened = open(&disk).unwrap_or_else(|error| panic!("step {step}, image {number}: {error}"));
            let found = state_of(&reopened);
            let is_old = found == states[image.acknowledged];
            let is_new = states.get(image.acknowledged + 1) == Some(&found);
            assert!(is_old || is_new, "step {step}, image {number}: a state between");
            outcomes.insert(is_new);
            if number % 3 == 0 {
                // Power fails right after the restart of a killed process.
                drop(reopened);
                let again = open(&disk.crash(seed)).unwrap();
                assert!(state_of(&again) == found, "what an opening has shown is durable");
            }
        }
    }
    assert_eq!(outcomes.len(), 2);
    assert!(state_of(&store) == states[states.len() - 1]);
    assert!(store.scrub(&()).unwrap().is_clean());
}

#[test]
fn a_crash_after_any_change_of_the_disk_loses_no_acknowledged_change() {
    (0..4).for_each(|seed| crash_after_every_change(seed, 30));
}

#[test]
fn a_b_tree_that_is_not_durable_when_the_log_is_freed_is_noticed() {
    for bug in [TreeBug::HeaderBeforeData, TreeBug::HeaderNotMadeDurable, TreeBug::OlderHeaderCounts] {
        let is_noticed = (0..6).any(|seed| is_noticed(bug, || crash_after_every_change(seed, 30)));
        assert!(is_noticed, "{bug:?}");
    }
}

/// Each change of the disk during an installation fails once.
#[test]
fn an_installation_that_fails_loses_nothing_and_can_be_repeated_or_needs_a_restart() {
    for failing in 0..40 {
        let kind = [io::ErrorKind::Other, io::ErrorKind::StorageFull][failing % 2];
        let disk = SimDisk::new();
        let (store, mut random, mut state) = (open(&disk).unwrap(), StdRng::seed_from_u64(9), State::default());
        for step in 0..12 {
            let (changes, after) = change(&mut random, &state);
            store.commit_rows(changes).unwrap();
            state = after;
            if step == 6 {
                store.install().unwrap();
            }
        }
        disk.fail_change(failing, kind);
        let installed = store.install();
        let has_failed = disk.has_failed();
        assert!(has_failed || installed.is_ok());
        if let Err(error) = &installed {
            let expected = if kind == io::ErrorKind::Other { ErrorKind::Io } else { ErrorKind::Full };
            assert_eq!(error.kind(), expected, "{error}");
        }
        assert!(state_of(&store) == state, "reads go on");
        let (changes, after) = change(&mut random, &state);
        if store.commit_rows(changes).is_ok() {
            state = after;
        }
        let repeated = store.install();
        assert!(state_of(&store) == state);
        for disk in [disk.crash(failing as u64), disk.crash_of_process()] {
            let reopened = open(&disk).unwrap();
            assert!(state_of(&reopened) == state, "change {failing}");
            reopened.install().unwrap();
            drop(reopened);
            assert!(state_of(&open(&disk.crash(1)).unwrap()) == state);
        }
        if let Err(error) = repeated {
            assert!(error.message().contains("restart the server"), "{error}");
        }
    }
}

/// A damaged leaf: a backup names it, and its rows that are written again can be backed up.
#[test]
fn a_backup_of_a_store_with_a_damaged_page_fails_and_names_the_page() {
    let disk = SimDisk::new();
    let store = open(&disk).unwrap();
    let mut changes = RowChanges::new();
    (0..300_u16).for_each(|number| changes.put(&number.to_be_bytes(), pattern(300, 1)));
    store.commit_rows(changes).unwrap();
    store.install().unwrap();
    assert!(store.backup(&mut Vec::new(), &()).is_ok());
    let sound = disk.bytes("tree/rows");
    drop(store);
    let mut named = 0;
    for page in 17..sound.len() / 4096 {
        let copy = disk.crash_of_process();
        copy.set_bytes("tree/rows", page * 4096 + 4000, &[0xa5; 90]);
        let Ok(store) = open(&copy) else { continue };
        let Err(error) = store.backup(&mut Vec::new(), &()) else { continue };
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let message = error.message();
        let names = [&format!("page {page} "), "it has the keys from", "the archive is not complete"];
        assert!(names.iter().all(|part| message.contains(part)), "{message}");
        named += 1;
    }
    assert!(named > 5, "{named}");
}
