//! Numbers in names of files, in rows and in archives that no store assigns: each is ignored or refused by name, and nothing is lost.

use std::fs::File;

use super::world::{SimulatedStore, memory_store, small_options};
use super::*;
use crate::engine::Engine;
use crate::rows::key::{self, Key};
use crate::rows::mob::{LogPosition, SEQ_END};

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
