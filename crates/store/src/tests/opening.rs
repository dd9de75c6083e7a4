//! What an opening needs of the B-tree.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use super::identity::copy_tree;
use super::world::{SimulatedStore, small_options};
use super::*;
use crate::engine::memory::MemoryEngine;
use crate::engine::{BatchAborted, Engine, EngineError, EnginePin, EngineRead, EngineResult, EngineRow};
use crate::log::recover::OnDamage;
use crate::open::open_on;
use crate::read::Readable;
use crate::read::layers::Layers;
use crate::rows::key::{Key, table};

const PAGE: usize = 4096;

/// A B-tree whose state the disk does not take.
struct Unforced(MemoryEngine);

impl Engine for Unforced {
    fn read(&self, read: &mut dyn FnMut(&dyn EngineRead)) -> EngineResult<()> {
        self.0.read(read)
    }

    fn pin(&self) -> EngineResult<Box<dyn EnginePin>> {
        self.0.pin()
    }

    fn make_durable(&self) -> EngineResult<()> {
        Err(EngineError::Failed("the disk does not take it".into()))
    }

    fn write(&self, rows: &mut dyn Iterator<Item = Result<EngineRow, BatchAborted>>) -> EngineResult<()> {
        self.0.write(rows)
    }

    fn size(&self) -> u64 {
        self.0.size()
    }
}

#[test]
fn an_opening_changes_nothing_before_the_state_of_the_tree_is_durable() {
    let world = SimulatedStore::new();
    for number in 0..60_u8 {
        let mut changes = RowChanges::new();
        changes.put(&[number], pattern(5000, number));
        world.store.commit_rows(changes).unwrap();
    }
    let (disk, before) = (world.disk.image(), world.engine.image());
    world.store.install().unwrap();
    let installed = world.engine.image();
    let opened = |engine: &MemoryEngine| {
        let engine = Box::new(Unforced(engine.image()));
        let steps = disk.steps();
        let result = open_on(Arc::new(disk.clone()), engine, [7; 16], small_options(), OnDamage::Refuse);
        assert_eq!(disk.steps(), steps, "nothing is changed");
        result.err().unwrap()
    };
    for engine in [&before, &installed] {
        assert_eq!(opened(engine).kind(), ErrorKind::Io);
    }
    // The log still has what the older state lacks.
    let again = SimulatedStore::open(disk.clone(), before).unwrap();
    for number in 0..60_u8 {
        assert_eq!(again.store.row(&[number]).unwrap(), Some(pattern(5000, number)));
    }
}

fn put(store: &Store, number: u32) {
    let mut changes = RowChanges::new();
    changes.put(&number.wrapping_mul(2_654_435_761).to_be_bytes(), pattern(300, number as u8));
    store.commit_rows(changes).unwrap();
}

/// A store at rest with rows, contents in blob files, and space that is not freed yet.
fn store_at_rest(dir: &Path) {
    let store = Store::open(dir, small_options()).unwrap();
    (0..200).for_each(|number| put(&store, number));
    let contents: Vec<_> = (0..6).map(|_| new_id()).collect();
    for id in &contents {
        commit(&store, [create(*id, pattern(300_000, 1))]);
    }
    store.install().unwrap();
    for id in &contents[..3] {
        commit(&store, [ContentChange::Delete { id: *id }]);
    }
    store.core().do_housekeeping().unwrap();
    store.force().unwrap();
    store.install().unwrap();
    let mut freed = 0;
    let prefix = Key::table(table::FREED);
    let mut count = |layers: &Layers<'_>| {
        layers.scan(&prefix, &prefix.prefix_end(), &mut |_, _| {
            freed += 1;
            ControlFlow::Continue(())
        })
    };
    store.read_row(&mut count).unwrap();
    assert!(freed > 4, "{freed} extents to be freed");
}

#[test]
fn no_damaged_page_of_the_tree_prevents_an_opening_before_or_after_changes_next_to_it() {
    let sound = tempfile::tempdir().unwrap();
    store_at_rest(sound.path());
    let file = fs::read(sound.path().join("tree/rows")).unwrap();
    let is_node = |page: &[u8]| matches!(page[0], 1 | 2) && page[1] < 3 && page[5..8] == [0; 3];
    let nodes: Vec<_> = (17..file.len() / PAGE).filter(|page| is_node(&file[page * PAGE..][..PAGE])).collect();
    assert!(nodes.len() > 20, "{nodes:?}");
    for page in nodes {
        let dir = tempfile::tempdir().unwrap();
        copy_tree(sound.path(), dir.path());
        let mut bytes = file.clone();
        bytes[page * PAGE..][..PAGE].fill(0xa5);
        fs::write(dir.path().join("tree/rows"), bytes).unwrap();
        for round in 0..2 {
            let store = Store::open(dir.path(), small_options())
                .unwrap_or_else(|error| panic!("page {page}, opening {round}: {error}"));
            // A damaged page can prevent that, but nothing else.
            let _ = store.core().do_housekeeping();
            (0..30).for_each(|number| put(&store, number * 7 + round));
            // This needs the page of the newest content.
            let _ = store.commit_rows(of_contents([create(new_id(), pattern(100_000, 2))]));
            store.install().unwrap();
            for number in 0..30 {
                let key = (number * 7 + round).wrapping_mul(2_654_435_761).to_be_bytes();
                assert_eq!(store.row(&key).unwrap(), Some(pattern(300, (number * 7 + round) as u8)));
            }
        }
    }
}
