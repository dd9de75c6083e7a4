//! Numbers in names of files, in rows and in archives that no store assigns: each is ignored or refused by name, and nothing is lost.

use std::fs::File;

use super::world::{SimulatedStore, memory_store, small_options};
use super::*;
use crate::content::blob_file::DIR;
use crate::disk::Disk;
use crate::engine::Engine;
use crate::rows::key::{self, Key};
use crate::rows::mob::{LogPosition, SEQ_END};
use crate::rows::row;

const CHUNK: usize = 64 << 10;

/// A store with a content in a blob file, which is in the B-tree.
fn world_with_content() -> (SimulatedStore, ContentId) {
    let world = SimulatedStore::new();
    let id = content(&world.store, pattern(3 * CHUNK, 1));
    world.store.install().unwrap();
    (world, id)
}

/// Writes a row to the B-tree of a store, which is opened again.
fn reopen_with_row(world: &SimulatedStore, key: Key, row: &[u8]) -> model::Result<SimulatedStore> {
    let engine = world.engine.image();
    engine.write(&mut [Ok((key, Some(Bytes::copy_from_slice(row))))].into_iter()).unwrap();
    SimulatedStore::open(world.disk.image(), engine)
}

/// Checks that a store has the content of [`world_with_content`], takes others, and keeps all of them, also after further openings.
fn check_goes_on(mut world: SimulatedStore, id: ContentId) {
    let mut all = vec![(id, 1)];
    for seed in 2..5 {
        all.push((content(&world.store, pattern(3 * CHUNK, seed)), seed));
        world.run_housekeeping();
        for (id, seed) in &all {
            assert_eq!(bytes(&world.store, *id), pattern(3 * CHUNK, *seed), "content {seed}");
        }
        world = world.crash(u64::from(seed)).unwrap();
    }
}

#[test]
fn files_that_are_not_named_as_blob_files_are_ignored() {
    let (world, id) = world_with_content();
    let strange = ["ffffffff.blob", "80000000.blob", "00000000.blob", "1.blob", "+0000001.blob", "0000000A.blob"];
    for name in strange {
        world.disk.create(&format!("{DIR}/{name}")).unwrap().write_at(0, &[9; 2 * CHUNK]).unwrap();
    }
    let world = world.crash_of_process();
    let disk = world.disk.clone();
    check_goes_on(world, id);
    for name in strange {
        assert_eq!(disk.bytes(&format!("{DIR}/{name}")), [9; 2 * CHUNK], "{name}");
    }
}

#[test]
fn a_blob_file_with_the_last_number_only_refuses_large_contents_until_it_is_gone() {
    let (world, id) = world_with_content();
    let last = "blobs/7fffffff.blob";
    world.disk.create(last).unwrap().write_at(0, &[9; 2 * CHUNK]).unwrap();
    let world = world.crash_of_process();
    assert_eq!(bytes(&world.store, id), pattern(3 * CHUNK, 1));
    content(&world.store, "small");
    let (kind, message) = refusal(&world.store, [create(new_id(), pattern(3 * CHUNK, 2))]);
    assert!(kind == ErrorKind::Io && message.contains(last), "{message}");
    world.disk.remove(last).unwrap();
    check_goes_on(world.crash_of_process(), id);
}

#[test]
fn a_number_of_a_swept_file_that_no_file_can_have_says_nothing() {
    for swept in [u32::MAX, 1 << 31] {
        let (world, id) = world_with_content();
        let again = reopen_with_row(&world, Key::system(key::SWEPT), &swept.to_be_bytes()).unwrap();
        check_goes_on(again, id);
    }
}

#[test]
fn a_record_of_an_extent_where_no_chunk_can_be_frees_nothing_else() {
    let len = row::encode_extent_len(CHUNK as u32);
    for offset in [u64::MAX, u64::MAX - CHUNK as u64 + 1, 1 << 63, 1 << 32] {
        for file in [1, u32::MAX] {
            let (world, id) = world_with_content();
            check_goes_on(reopen_with_row(&world, Key::extent(file, offset), &len).unwrap(), id);
            let freed = Key::freed_extent(file, offset);
            check_goes_on(reopen_with_row(&world, freed, &(CHUNK as u32).to_be_bytes()).unwrap(), id);
        }
    }
    // The first chunk is not in use, and the next ones are.
    let (world, id) = world_with_content();
    let other = content(&world.store, pattern(3 * CHUNK, 1));
    commit(&world.store, [delete(id)]);
    world.run_housekeeping();
    check_goes_on(reopen_with_row(&world, Key::freed_extent(1, 0), &u32::MAX.to_be_bytes()).unwrap(), other);
}

#[test]
fn a_count_of_openings_that_no_store_reaches_is_refused() {
    for times in [u32::MAX, (1 << 31) - 1] {
        let (world, _) = world_with_content();
        let error = reopen_with_row(&world, Key::system(key::INCARNATION), &times.to_be_bytes()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.message().contains(&times.to_string()), "{error}");
    }
}

#[test]
fn an_installed_position_that_no_store_reaches_is_refused() {
    for seq in [u64::MAX, SEQ_END] {
        let (world, _) = world_with_content();
        let row = LogPosition { seq, crc: 0 }.to_row();
        let error = reopen_with_row(&world, Key::system(key::INSTALLED), &row).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}

#[test]
fn a_store_at_its_last_position_refuses_changes_and_keeps_those_before() {
    let mut archive = Vec::new();
    memory_store().backup(&mut archive, &()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    Store::restore_chain(dir.path(), vec![Box::new(&archive[..])], SEQ_END - 4, small_options(), &()).unwrap();
    let store = Store::open(dir.path(), small_options()).unwrap();
    let committed: Vec<_> = (0..5).map(|seed| (new_id(), seed)).collect();
    let mut refused = 0;
    let committed = committed.into_iter().filter(|(id, seed)| {
        let changed = store.commit_rows(of_contents([create(*id, pattern(100, *seed))]));
        refused += usize::from(changed.as_ref().is_err_and(|error| error.kind() == ErrorKind::Corrupt));
        changed.is_ok()
    });
    let committed: Vec<_> = committed.collect();
    assert!(!committed.is_empty() && refused == 5 - committed.len(), "{refused} refused");
    drop(store);
    let store = Store::open(dir.path(), small_options()).unwrap();
    for (id, seed) in committed {
        assert_eq!(bytes(&store, id), pattern(100, seed));
    }
}

#[test]
fn a_row_that_is_too_long_is_reported_and_no_backup_has_it() {
    let (world, _) = world_with_content();
    let (long, value) = (vec![b'k'; limits::ROW_KEY + 1], vec![7; limits::ROW_VALUE + (2 << 20)]);
    for (key, value) in [(&b"k"[..], &value[..]), (&long, b"value")] {
        let key = Key::row(key);
        let again = reopen_with_row(&world, key.clone(), &row::seal(&key, value)).unwrap();
        let error = again.store.backup(&mut Vec::new(), &()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.message().contains("row 6b"), "{error}");
    }
}

#[test]
fn a_file_too_long_for_a_segment_is_refused_by_name_and_set_aside_whole() {
    let dir = tempfile::tempdir().unwrap();
    let put = |store: &Store, key: &[u8]| {
        let mut changes = RowChanges::new();
        changes.put(key, pattern(1000, 1));
        store.commit_rows(changes).unwrap();
    };
    let store = Store::open(dir.path(), small_options()).unwrap();
    put(&store, b"before");
    drop(store);
    let (name, len) = ("log/00000000000000ff.seg", 1 << 40);
    File::create(dir.path().join(name)).unwrap().set_len(len).unwrap();
    let error = Store::open(dir.path(), small_options()).err().unwrap();
    assert!(error.kind() == ErrorKind::Corrupt && error.message().contains(name), "{error}");
    let report = Store::repair(dir.path(), false, &[], small_options(), &()).unwrap();
    assert!(report.damage.unwrap().contains(name));
    assert_eq!(dir.path().join(name).metadata().unwrap().len(), len, "nothing is changed");
    let report = Store::repair(dir.path(), true, &[], small_options(), &()).unwrap();
    let aside = report.set_aside.unwrap().join("00000000000000ff.seg");
    assert_eq!(aside.metadata().unwrap().len(), len);
    let store = Store::open(dir.path(), small_options()).unwrap();
    put(&store, b"after");
    for key in [&b"before"[..], b"after"] {
        assert_eq!(store.row(key).unwrap(), Some(pattern(1000, 1)));
    }
}
