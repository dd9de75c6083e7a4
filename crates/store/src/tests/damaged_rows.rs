//! Pages of the B-tree with rows of contents that cannot be read.

use std::sync::Arc;

use super::world::SimulatedStore;
use super::*;
use crate::KeyRange;
use crate::engine::sim::DamagedPage;
use crate::read::Readable;
use crate::rows::key::{DataId, Key};

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
