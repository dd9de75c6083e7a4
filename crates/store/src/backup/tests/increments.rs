use std::io::Read;
use std::path::Path;

use bytes::Bytes;
use model::planted_bug::assert_noticed;
use model::{ContentId, ErrorKind, Result};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{everything, options, populate};
use crate::backup::{BaseIndex, read_archive_index};
use crate::plant::ContentBug;
use crate::tests::world::{memory_store, real_store};
use crate::tests::{commit, content, create, delete, new_id, pattern, replace, truncate, write};
use crate::{RowChanges, Store};

const CHUNK: usize = 64 << 10;

/// The planted bugs that the tests of this file notice.
pub(crate) const INCREMENTS: [ContentBug; 4] = [
    ContentBug::ChangedRangesOmitted,
    ContentBug::GoneRangesKept,
    ContentBug::BufferNotCompared,
    ContentBug::BaseNotChecked,
];

/// The pieces of an index, the next one last.
struct Pieces(Vec<Bytes>);

impl BaseIndex for Pieces {
    fn next_piece(&mut self) -> Result<Option<Bytes>> {
        Ok(self.0.pop())
    }
}

fn index_of(mut archive: &[u8]) -> Result<Pieces> {
    let mut pieces = Vec::new();
    read_archive_index(&mut archive, &mut |piece| {
        pieces.push(Bytes::copy_from_slice(piece));
        Ok(())
    })?;
    pieces.reverse();
    Ok(Pieces(pieces))
}

fn full(store: &Store) -> Vec<u8> {
    let mut archive = Vec::new();
    store.backup(&mut archive, &()).unwrap();
    archive
}

fn increment(store: &Store, base: &[u8]) -> Vec<u8> {
    let mut archive = Vec::new();
    let snapshot = store.snapshot().unwrap();
    snapshot.backup_increment(&mut index_of(base).unwrap(), &mut archive, &()).unwrap();
    archive
}

fn restore(dir: &Path, archives: &[impl AsRef<[u8]>]) -> Result<Store> {
    let archives = archives.iter().map(|archive| Box::new(archive.as_ref()) as Box<dyn Read + '_>).collect();
    Store::restore_chain(dir, archives, 0, options(), &())?;
    Store::open(dir, options())
}

pub(super) fn put_row(store: &Store, key: &[u8], value: Bytes) {
    let mut rows = RowChanges::new();
    rows.put(key, value);
    store.commit_rows(rows).unwrap();
}

pub(super) fn remove_row(store: &Store, key: &[u8]) {
    let mut rows = RowChanges::new();
    rows.remove(key);
    store.commit_rows(rows).unwrap();
}

/// Rows of about 100 KiB together, each of 50 to 250 bytes.
pub(super) fn fill(store: &Store) {
    let mut rows = RowChanges::new();
    for number in 0..700_u32 {
        rows.put(&number.to_be_bytes(), pattern(50 + number as usize % 200, number as u8));
    }
    store.commit_rows(rows).unwrap();
}

/// Changes a few rows and contents.
pub(super) fn change(store: &Store, contents: &mut Vec<ContentId>, random: &mut StdRng) {
    for _ in 0..random.random_range(1..8) {
        let number: u32 = random.random_range(0..900);
        match random.random_range(0..3) {
            0 => remove_row(store, &number.to_be_bytes()),
            _ => put_row(store, &number.to_be_bytes(), pattern(random.random_range(0..9_000), random.random())),
        }
    }
    let one = contents[random.random_range(0..contents.len())];
    match random.random_range(0..6) {
        0 => {
            contents.retain(|id| *id != one);
            commit(store, [delete(one)])
        }
        1 => commit(store, [truncate(one, random.random_range(0..3 * CHUNK))]),
        2 => commit(store, [write(one, random.random_range(0..4 * CHUNK), "changed")]),
        3 => commit(store, replace(one, pattern(random.random_range(0..3 * CHUNK), random.random()))),
        _ => {
            contents.push(content(store, pattern(random.random_range(0..3 * CHUNK), random.random())));
            0
        }
    };
}

#[test]
fn each_chain_restores_the_state_of_its_last_archive() {
    for seed in 0..6 {
        let mut random = StdRng::seed_from_u64(seed);
        let dir = tempfile::tempdir().unwrap();
        let mut store = real_store(&dir.path().join("first"));
        let mut contents = populate(&store, &|| store.install().unwrap());
        fill(&store);
        let (mut chain, mut states) = (vec![full(&store)], vec![everything(&store)]);
        for step in 0..4 {
            change(&store, &mut contents, &mut random);
            if random.random() {
                store.install().unwrap();
            }
            if step == 2 {
                store.close().unwrap();
                store = Store::open(&dir.path().join("first"), options()).unwrap();
            }
            chain.push(increment(&store, &chain[step]));
            states.push(everything(&store));
        }
        for (last, state) in states.iter().enumerate() {
            let restored = restore(&dir.path().join(format!("restored-{last}")), &chain[..=last]).unwrap();
            assert_eq!(everything(&restored), *state, "seed {seed}, archive {last}");
            assert!(restored.scrub(&()).unwrap().is_clean());
        }
        // What was restored is a base like any other.
        let restored = restore(&dir.path().join("again"), &chain).unwrap();
        put_row(&restored, b"later", "x".into());
        chain.push(increment(&restored, &chain[4]));
        let again = restore(&dir.path().join("again-2"), &chain).unwrap();
        assert_eq!(everything(&again), everything(&restored));
    }
}

/// A store with rows, an archive of it, changes of each kind, and an increment with them.
fn store_with_increment() -> (Store, Vec<u8>, Vec<u8>) {
    let store = memory_store();
    fill(&store);
    let first = full(&store);
    // As long as before; longer; removed, so that a range at the end is gone; new.
    put_row(&store, &200_u32.to_be_bytes(), pattern(50, 99));
    put_row(&store, &400_u32.to_be_bytes(), pattern(5_000, 98));
    for number in 500..700_u32 {
        remove_row(&store, &number.to_be_bytes());
    }
    put_row(&store, &100_u32.to_be_bytes(), pattern(150, 97));
    let second = increment(&store, &first);
    (store, first, second)
}

#[test]
fn an_increment_has_what_has_changed() {
    assert_noticed(&INCREMENTS[..3], || {
        let (store, first, second) = store_with_increment();
        assert!(second.len() < first.len() / 2, "{} and {} bytes", first.len(), second.len());
        let dir = tempfile::tempdir().unwrap();
        let restored = restore(dir.path(), &[&first, &second]).unwrap();
        assert_eq!(everything(&restored), everything(&store));
    });
}

#[test]
fn an_increment_without_changes_has_only_its_index() {
    let store = memory_store();
    fill(&store);
    let first = full(&store);
    let second = increment(&store, &first);
    assert!(second.len() < first.len() / 50, "{} and {} bytes", first.len(), second.len());
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(everything(&restore(dir.path(), &[&first, &second]).unwrap()), everything(&store));
}

#[test]
fn archives_that_do_not_belong_together_are_refused_and_leave_nothing() {
    assert_noticed(&INCREMENTS[3..], || {
        let (store, first, second) = store_with_increment();
        put_row(&store, b"third", "x".into());
        let third = increment(&store, &second);
        // As the first one, but one row that no increment replaces is another one.
        let other = memory_store();
        fill(&other);
        put_row(&other, &300_u32.to_be_bytes(), pattern(150, 50));
        let foreign = full(&other);
        for wrong in [
            vec![&second],
            vec![&first, &third],
            vec![&first, &third, &second],
            vec![&second, &third],
            vec![&foreign, &second],
            vec![&first, &second, &second],
            vec![&first, &first],
        ] {
            let dir = tempfile::tempdir().unwrap();
            let error = restore(dir.path(), &wrong).err().unwrap();
            assert!(matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Corrupt), "{error}");
            let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert!(left.is_empty(), "{left:?}");
        }
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(everything(&restore(dir.path(), &[&first, &second, &third]).unwrap()), everything(&store));
    });
}

#[test]
fn damaged_and_truncated_increments_are_refused() {
    let store = memory_store();
    fill(&store);
    let first = full(&store);
    put_row(&store, &200_u32.to_be_bytes(), pattern(50, 99));
    let second = increment(&store, &first);
    let dir = tempfile::tempdir().unwrap();
    for len in (0..second.len()).step_by(43) {
        assert!(restore(dir.path(), &[&first[..], &second[..len]]).is_err(), "{len} bytes");
    }
    for bit in (0..second.len() * 8).step_by(89) {
        let mut damaged = second.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(restore(dir.path(), &[&first, &damaged]).is_err(), "bit {bit}");
    }
    // The index of a base that is damaged is not used, either.
    for bit in (0..first.len() * 8).step_by(4_999) {
        let mut damaged = first.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(index_of(&damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn chunks_of_blob_files_that_have_not_changed_are_not_in_an_increment() {
    let dir = tempfile::tempdir().unwrap();
    let store = real_store(&dir.path().join("first"));
    let all: Vec<ContentId> = (0..4).map(|seed| content(&store, pattern(3 * CHUNK, seed))).collect();
    let first = full(&store);
    commit(&store, [write(all[1], CHUNK + 7, "changed")]);
    commit(&store, [delete(all[2])]);
    let new = new_id();
    commit(&store, [create(new, "small")]);
    let second = increment(&store, &first);
    assert!(second.len() < 2 * CHUNK, "{} bytes", second.len());
    let restored = restore(&dir.path().join("second"), &[&first, &second]).unwrap();
    assert_eq!(everything(&restored), everything(&store));
}
