//! Pages of the B-tree with rows of contents that cannot be read, below changes of contents and below housekeeping.

use std::ops::Range;
use std::sync::Arc;

use super::audit::{audit, check_leaks};
use super::world::SimulatedStore;
use super::*;
use crate::KeyRange;
use crate::commit::housekeeping::last_swept_file;
use crate::content::blob_file::{file_name, position_in_file};
use crate::engine::sim::DamagedPage;
use crate::read::Readable;
use crate::read::layers::Layers;
use crate::rows::key::{self, DataId, Key, table};

const CHUNK: usize = 64 << 10;

/// Damages a page of the B-tree with the rows `from <= key < to`.
fn damage_rows(world: &SimulatedStore, from: &Key, to: &Key) {
    world.faults.lock().damage = Some(Arc::new(DamagedPage::new(KeyRange::new(from, Some(to)))));
}

fn data_of(store: &Store, id: ContentId) -> DataId {
    store.read_state(|layers| Ok(layers.content(id)?.unwrap().head.data)).unwrap()
}

/// A content of ten chunks, of which the B-tree cannot read the rows of two, or its head.
fn damaged_content(is_head: bool) -> (SimulatedStore, ContentId) {
    let world = SimulatedStore::new();
    let id = content(&world.store, pattern(10 * CHUNK, 1));
    world.store.install().unwrap();
    let data = data_of(&world.store, id);
    let (from, to) = match is_head {
        false => (Key::chunk(data, 4), Key::chunk(data, 6)),
        true => (Key::content(id), Key::content(id).successor()),
    };
    damage_rows(&world, &from, &to);
    (world, id)
}

/// Regression: only the rows of the first and the last chunk were looked at. A change that was taken in then ended what builds on the store.
#[test]
fn changes_are_changeable_exactly_if_they_can_be_applied_beside_damage() {
    let large = || pattern(5 * CHUNK, 2);
    let resize = |id, size: usize| ContentChange::Resize { id, size: size as u64 };
    let all = |id| {
        [
            vec![write(id, 5, "x")],
            vec![write(id, 2 * CHUNK - 1, "xx")],
            vec![write(id, 3 * CHUNK - 1, "xx")],
            vec![write(id, 4 * CHUNK - 1, "xx")],
            vec![write(id, 5 * CHUNK + 1, "x")],
            vec![write(id, 6 * CHUNK, "x")],
            vec![write(id, 2 * CHUNK + 9, large())],
            vec![write(id, 6 * CHUNK, large())],
            vec![write(id, 20 * CHUNK, "x")],
            vec![write(id, 4 * CHUNK, "")],
            vec![truncate(id, 0)],
            vec![truncate(id, 3 * CHUNK)],
            vec![truncate(id, 3 * CHUNK + 1)],
            vec![truncate(id, 5 * CHUNK)],
            vec![truncate(id, 6 * CHUNK)],
            vec![truncate(id, 8 * CHUNK + 5)],
            vec![truncate(id, 10 * CHUNK)],
            vec![truncate(id, 12 * CHUNK)],
            vec![truncate(id, 0), write(id, 0, large())],
            vec![zero(id, 0, CHUNK)],
            vec![zero(id, CHUNK, 3 * CHUNK)],
            vec![zero(id, 3 * CHUNK, 3 * CHUNK)],
            vec![zero(id, 5, 9 * CHUNK)],
            vec![zero(id, 6 * CHUNK, 100 * CHUNK)],
            vec![zero(id, 10 * CHUNK, CHUNK)],
            vec![write(id, 6 * CHUNK, large()), zero(id, 7 * CHUNK, CHUNK)],
            vec![resize(id, 7 * CHUNK)],
            vec![resize(id, 2 * CHUNK)],
            vec![delete(id)],
        ]
    };
    for is_head in [false, true] {
        let mut counts = [0, 0];
        for which in 0..all(ContentId(1)).len() {
            let (world, id) = damaged_content(is_head);
            let changes = all(id)[which].clone();
            let checked = world.store.check_changeable(&changes).map_err(|error| error.kind());
            let committed =
                world.store.commit_rows(of_contents(changes.clone())).map(drop).map_err(|error| error.kind());
            assert_eq!(checked, committed, "{changes:?}, is_head {is_head}");
            counts[usize::from(checked.is_err())] += 1;
        }
        assert!(counts[1] >= 9 && (is_head || counts[0] >= 9), "{counts:?}");
    }
}

/// Some rounds of all background work, which reports no error.
fn keep_house(world: &SimulatedStore) {
    for _ in 0..10 {
        world.store.install().unwrap();
        world.core().do_housekeeping().unwrap();
        world.store.force().unwrap();
    }
}

/// The numbers of the chunks that are to be removed.
fn garbage(store: &Store) -> Vec<DataId> {
    let (prefix, mut found) = (Key::table(table::GARBAGE), Vec::new());
    let list = |layers: &Layers<'_>| {
        found.clear();
        layers.for_each_row(&prefix, |key, _| {
            found.extend(key::data_of(key));
            Ok(())
        })
    };
    store.read_state(list).unwrap();
    found
}

/// Regression: one row of a removed content that could not be read stopped all reuse of space.
#[test]
fn removed_contents_are_freed_beside_those_whose_rows_cannot_be_read() {
    let world = SimulatedStore::new();
    let all: Vec<_> = (0..30).map(|number| content(&world.store, pattern(2 * CHUNK, number))).collect();
    let kept = content(&world.store, pattern(2 * CHUNK, 99));
    world.store.install().unwrap();
    let data: Vec<_> = all.iter().map(|id| data_of(&world.store, *id)).collect();
    // More than are removed together.
    damage_rows(&world, &Key::chunks_of(data[2]), &Key::chunks_of(data[22]));
    commit(&world.store, all.iter().map(|id| delete(*id)));
    keep_house(&world);
    assert_eq!(garbage(&world.store), data[2..22]);
    assert!(!world.core().has_extents_to_free(), "freed extents wait for nothing");
    // A start tries again.
    let world = world.crash(1).unwrap();
    assert_eq!(bytes(&world.store, kept), pattern(2 * CHUNK, 99));
    world.store.log_opening().unwrap();
    world.run_housekeeping();
    audit(&world.store);
    check_leaks(&world);
}

/// Regression: chunks of such a file were freed again for ever, and the sweep of the files of earlier openings began again for ever.
#[test]
fn space_is_freed_beside_a_blob_file_whose_records_cannot_be_read() {
    let world = SimulatedStore::new();
    let (kept, gone) = (content(&world.store, pattern(2 * CHUNK, 1)), content(&world.store, pattern(2 * CHUNK, 2)));
    let world = world.crash(1).unwrap();
    let later = content(&world.store, pattern(2 * CHUNK, 3));
    upload(&world.store, &pattern(3 * CHUNK, 4));
    world.store.install().unwrap();
    let world = world.crash_of_process();
    damage_rows(&world, &Key::extent(1, 0), &Key::extent(1, 1));
    commit(&world.store, [delete(gone)]);
    keep_house(&world);
    let in_file = |number: u32, chunks: Range<usize>| {
        let bytes = world.disk.bytes(&file_name(number)).split_off(position_in_file(0) as usize);
        bytes.chunks(CHUNK).skip(chunks.start).take(chunks.len()).all(|chunk| chunk.iter().any(|byte| *byte != 0))
    };
    assert!(in_file(1, 0..2) && in_file(2, 0..2), "what is used stays");
    assert!((2..4).all(|chunk| !in_file(1, chunk..chunk + 1)), "the chunks of the deleted content are freed");
    assert!((2..5).all(|chunk| !in_file(2, chunk..chunk + 1)), "the chunks of the upload are swept");
    assert!(!world.core().has_extents_to_free(), "freed extents wait for nothing");
    assert_eq!(last_swept_file(&*world.core().state.engine).unwrap(), 0, "the next opening sweeps the first file");
    let world = world.crash(3).unwrap();
    content(&world.store, "changed");
    world.run_housekeeping();
    assert_eq!([kept, later].map(|id| bytes(&world.store, id)), [1, 3].map(|seed| pattern(2 * CHUNK, seed).to_vec()));
    audit(&world.store);
    check_leaks(&world);
}
