//! A disk that cannot read, write or force.

use super::*;
use crate::engine::FAILED_READS;

#[test]
fn one_header_that_cannot_be_read_is_no_reason_to_refuse_the_other() {
    let mut world = World::new(31);
    world.work(3, 50, 100);
    let newest = world.engine.state.load().batch;
    for (page, expected) in [(meta_place(newest), newest - 1), (meta_place(newest + 1), newest)] {
        world.disk.set_unreadable(NAME, &[page]);
        assert_eq!(read_meta(&world.engine.file, &ID).unwrap().0.batch, expected);
    }
    world.disk.set_unreadable(NAME, &META_PLACES);
    assert!(matches!(read_meta(&world.engine.file, &ID), Err(EngineError::Damaged(_))));
}

#[test]
fn a_part_of_the_map_of_used_pages_that_cannot_be_read_counts_as_used() {
    let mut world = World::new(32);
    world.work(3, 500, 1000);
    let section = world.engine.writer.lock().space.sections[0].unwrap();
    world.disk.set_unreadable(NAME, &[section.page]);
    let (meta, _) = read_meta(&world.engine.file, &ID).unwrap();
    let (mut space, mut damage) = (Space::new(meta.pages, meta.index), Vec::new());
    load_space(&world.engine.file, &mut space, meta.pages, &mut |what| damage.push(what));
    assert!(damage.len() == 1 && damage[0].contains("map of used pages"), "{damage:?}");
    assert!(space.used_pages().eq(0..meta.pages));
}

#[test]
pub(super) fn a_page_that_cannot_be_read_stops_batches_for_a_while_and_then_counts_as_damaged() {
    let mut world = World::new(33);
    world.work(3, 1000, 5000);
    let state = world.engine.state.load_full();
    let (mut at, mut level) = state.root.unwrap();
    while level > 0 {
        at = world.engine.file.node(at, level, state.pages).unwrap().child(1).unwrap().1;
        level -= 1;
    }
    let leaf = world.engine.file.node(at, 0, state.pages).unwrap();
    let keys: Vec<_> = (0..leaf.count()).map(|index| leaf.row(index).unwrap().0.to_vec()).collect();
    let changed = Bytes::from_static(b"changed");
    let write =
        |world: &World| world.engine.write(&mut [Ok((Key::from(&keys[0][..]), Some(changed.clone())))].into_iter());
    world.disk.set_unreadable(NAME, &[at.page]);
    for _ in 0..FAILED_READS {
        assert!(matches!(write(&world), Err(EngineError::Failed(_))));
    }
    world.disk.set_unreadable(NAME, &[]);
    world.check();
    world.disk.set_unreadable(NAME, &[at.page]);
    write(&world).unwrap();
    for key in world.rows.keys() {
        let expected = if *key == keys[0] { &changed[..] } else { &world.rows[key][..] };
        let compare = |read: &dyn EngineRead| match read.get(key) {
            Err(EngineError::Damaged(_)) => assert!(keys[1..].contains(key)),
            found => assert_eq!(found.unwrap(), Some(expected)),
        };
        world.engine.read(&mut |read| compare(read)).unwrap();
    }
    assert_eq!(damage(&world.engine).len(), 1);
    assert!(world.engine.writer.lock().space.used_pages().any(|page| page == at.page), "it is not overwritten");
}
