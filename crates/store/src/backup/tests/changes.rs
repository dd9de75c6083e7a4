use std::io::Read;
use std::path::Path;

use model::planted_bug::{PlantedBug, assert_noticed};
use model::{ContentId, ErrorKind};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::increments::{change, fill, put_row, remove_row};
use super::{everything, options, populate};
use crate::backup::archive::check_archive;
use crate::plant::TrackingBug;
use crate::tests::world::{SimulatedStore, real_store};
use crate::tests::{commit, content, create, delete, new_id, pattern, truncate, write, zero};
use crate::{ChangeTracker, ContentChange, RollForward, RowChanges, Snapshot, Store, check_changes};

const CHUNK: usize = 64 << 10;

/// The planted bugs that tests of this file notice.
const NAMED: [&[TrackingBug]; 3] = [&BEGUN, &FULL, &NOTED];
const BEGUN: [TrackingBug; 1] = [TrackingBug::BeginsBeforeForce];
const FULL: [TrackingBug; 1] = [TrackingBug::ForgetsWhenFull];
const NOTED: [TrackingBug; 6] = [
    TrackingBug::LaterChangesForgotten,
    TrackingBug::RemovalsNotNoted,
    TrackingBug::DeletedChunksNotNoted,
    TrackingBug::TruncatedTailNotNoted,
    TrackingBug::ChunksNotCleared,
    TrackingBug::RemovalsNotApplied,
];

#[test]
fn every_bug_of_tracking_is_named() {
    let unnamed: Vec<_> = TrackingBug::ALL.iter().filter(|bug| !NAMED.iter().any(|bugs| bugs.contains(bug))).collect();
    assert!(unnamed.is_empty(), "no test names {unnamed:?}");
}

fn full(snapshot: &Snapshot) -> Vec<u8> {
    let mut archive = Vec::new();
    snapshot.backup(&mut archive, &()).unwrap();
    archive
}

/// The archive of changes since the position of the state that was backed up before.
fn changes(tracker: &ChangeTracker, before: u64, snapshot: &Snapshot) -> Vec<u8> {
    let mut archive = Vec::new();
    let changes = tracker.changes_since(before).unwrap();
    snapshot.backup_changes(&changes, &mut archive, &()).unwrap();
    archive
}

/// Restores an archive and rolls the store forward.
fn restore_and_roll_forward(dir: &Path, base: &[u8], later: &[Vec<u8>]) -> model::Result<Store> {
    let positions = later.iter().map(|archive| check_changes(&mut &archive[..])).collect::<model::Result<Vec<_>>>()?;
    let position = positions.last().copied().unwrap_or(0);
    let archives: Vec<Box<dyn Read + '_>> = vec![Box::new(base)];
    Store::restore_chain(dir, archives, position, options(), &())?;
    let store = Store::open(dir, options())?;
    let mut rolled = RollForward::begin(&store);
    for archive in later {
        rolled.apply(&mut &archive[..])?;
    }
    rolled.finish()?;
    assert!(store.position() >= position, "positions go on");
    Ok(store)
}

#[test]
fn a_store_that_is_rolled_forward_has_the_state_of_each_moment() {
    for seed in 0..6 {
        let mut random = StdRng::seed_from_u64(seed);
        let dir = tempfile::tempdir().unwrap();
        let store = real_store(&dir.path().join("first"));
        let mut contents = populate(&store, &|| store.install().unwrap());
        fill(&store);
        let tracker = store.track_changes().unwrap();
        let (hold, mut before) = store.hold().unwrap();
        drop(hold);
        let base = full(&before);
        let mut later = Vec::new();
        for moment in 0..5 {
            change(&store, &mut contents, &mut random);
            if random.random() {
                store.install().unwrap();
            }
            // Changes that the moment may have or not.
            for number in 0..20_u8 {
                let mut rows = RowChanges::new();
                rows.put(&[number % 7], pattern(number.into(), moment));
                store.submit_rows(rows, |_| ());
            }
            let (hold, now) = store.hold().unwrap();
            drop(hold);
            put_row(&store, b"after the moment", pattern(10, moment));
            later.push(changes(&tracker, before.version(), &now));
            before = now;
            let exact = dir.path().join(format!("exact-{moment}"));
            let expected = everything(&restore_and_roll_forward(&exact, &full(&before), &[]).unwrap());
            let rolled = restore_and_roll_forward(&dir.path().join(format!("rolled-{moment}")), &base, &later).unwrap();
            assert_eq!(everything(&rolled), expected, "seed {seed}, moment {moment}");
            assert!(rolled.scrub(&()).unwrap().is_clean());
        }
    }
}

/// Contents with changes of each kind, and rows that are changed, removed and new.
fn change_all(store: &Store, all: &[ContentId]) {
    commit(store, [truncate(all[5], CHUNK + 10)]);
    commit(store, [truncate(all[5], 3 * CHUNK)]);
    commit(store, [write(all[6], 2 * CHUNK + 5, "changed")]);
    commit(store, [zero(all[4], 0, CHUNK)]);
    commit(store, [delete(all[3])]);
    // A content that is made again.
    commit(store, [delete(all[7])]);
    commit(store, [ContentChange::Resize { id: all[7], size: 3 * CHUNK as u64 }, write(all[7], 2 * CHUNK, "again")]);
    commit(store, [create(new_id(), pattern(2 * CHUNK, 40))]);
    put_row(store, &3_u32.to_be_bytes(), pattern(9_000, 41));
    remove_row(store, &4_u32.to_be_bytes());
    put_row(store, b"new", "x".into());
    put_row(store, b"gone again", "x".into());
    remove_row(store, b"gone again");
}

#[test]
fn each_kind_of_change_is_noted_and_applied() {
    assert_noticed(&NOTED, || {
        let world = SimulatedStore::new();
        let all = populate(&world.store, &|| ());
        fill(&world.store);
        let tracker = world.store.track_changes().unwrap();
        let first = world.store.snapshot().unwrap();
        put_row(&world.store, b"between", "x".into());
        let second = world.store.snapshot().unwrap();
        change_all(&world.store, &all);
        // What was changed after the second state is known when the changes up to it were read.
        let later = vec![changes(&tracker, first.version(), &second)];
        let third = world.store.snapshot().unwrap();
        let later = [later, vec![changes(&tracker, second.version(), &third)]].concat();
        assert!(later[1].len() < 5 * CHUNK, "{} bytes", later[1].len());
        let dir = tempfile::tempdir().unwrap();
        let rolled = restore_and_roll_forward(dir.path(), &full(&first), &later).unwrap();
        assert_eq!(everything(&rolled), everything(&world.store));
    });
}

#[test]
fn what_was_applied_before_a_tracker_is_durable_when_it_begins() {
    assert_noticed(&BEGUN, || {
        let world = SimulatedStore::new();
        let mut rows = RowChanges::new();
        rows.put(b"early", "x".into());
        world.store.submit_rows(rows, |_| ());
        let core = world.store.core();
        core.apply_queued(&mut core.pipeline.writer.lock());
        let tracker = world.store.track_changes().unwrap();
        let first = world.store.snapshot().unwrap();
        world.store.force().unwrap();
        put_row(&world.store, b"late", "x".into());
        let later = changes(&tracker, first.version(), &world.store.snapshot().unwrap());
        let dir = tempfile::tempdir().unwrap();
        let rolled = restore_and_roll_forward(dir.path(), &full(&first), &[later]).unwrap();
        assert_eq!(everything(&rolled), everything(&world.store));
    });
}

#[test]
fn a_tracker_without_room_says_that_it_does_not_know() {
    assert_noticed(&FULL, || {
        let world = SimulatedStore::new();
        let tracker = world.store.track_changes().unwrap();
        tracker.set_max_bytes(10_000);
        let before = world.store.position();
        for number in 0..50_u8 {
            put_row(&world.store, &[number], "x".into());
        }
        assert_eq!(tracker.changes_since(before).map(|changes| changes.rows.len()), Some(50));
        // A place counts once.
        for number in 0..200_u8 {
            put_row(&world.store, &[number % 50], "y".into());
        }
        let before = world.store.position();
        assert!(tracker.changes_since(before).unwrap().rows.is_empty());
        for number in 0..200_u8 {
            put_row(&world.store, &[number], "x".into());
        }
        assert_eq!(tracker.changes_since(before), None);
    });
}

#[test]
fn changes_before_the_beginning_of_a_tracker_are_not_known() {
    let world = SimulatedStore::new();
    put_row(&world.store, b"a", "x".into());
    let before = world.store.position();
    put_row(&world.store, b"b", "x".into());
    let tracker = world.store.track_changes().unwrap();
    assert_eq!(tracker.changes_since(before), None);
    assert!(tracker.changes_since(world.store.position()).is_some());
}

#[test]
fn a_store_in_memory_is_not_tracked() {
    let store = crate::tests::world::memory_store();
    assert_eq!(store.track_changes().err().unwrap().kind(), ErrorKind::Unsupported);
}

#[test]
fn a_large_change_of_a_content_is_noted_as_one() {
    let world = SimulatedStore::new();
    let id = content(&world.store, "x");
    let tracker = world.store.track_changes().unwrap();
    let before = world.store.position();
    commit(&world.store, [write(id, 1 << 40, "far"), zero(id, 10, 1 << 40)]);
    let noted = tracker.changes_since(before).unwrap();
    assert_eq!(noted.contents[&id].ranges(1 << 25).first(), Some(&(0..1 << 25)));
    let mut archive = Vec::new();
    world.store.snapshot().unwrap().backup_changes(&noted, &mut archive, &()).unwrap();
    assert!(archive.len() < 1_000, "{} bytes", archive.len());
}

/// A base, and an archive of changes.
fn make_archives() -> (Vec<u8>, Vec<u8>) {
    let world = SimulatedStore::new();
    let all = populate(&world.store, &|| ());
    let tracker = world.store.track_changes().unwrap();
    let first = world.store.snapshot().unwrap();
    commit(&world.store, [truncate(all[5], 10), write(all[6], 5, "changed"), delete(all[0])]);
    put_row(&world.store, b"new", "x".into());
    remove_row(&world.store, b"a");
    (full(&first), changes(&tracker, first.version(), &world.store.snapshot().unwrap()))
}

#[test]
fn damaged_truncated_and_other_archives_are_refused() {
    let (base, later) = make_archives();
    assert!(check_changes(&mut &later[..]).is_ok() && check_archive(&base));
    for len in (0..later.len()).step_by(later.len() / 50) {
        assert_eq!(check_changes(&mut &later[..len]).unwrap_err().kind(), ErrorKind::Corrupt, "{len} bytes");
    }
    for bit in (0..later.len() * 8).step_by(later.len() / 50) {
        let mut damaged = later.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(check_changes(&mut &damaged[..]).is_err(), "bit {bit}");
    }
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(check_changes(&mut &base[..]).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(restore_and_roll_forward(dir.path(), &later, &[]).err().unwrap().kind(), ErrorKind::Invalid);
}
