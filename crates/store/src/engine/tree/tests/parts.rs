//! A check in parts finds what a check of the whole tree finds, whatever page is damaged.

use super::give_up::pages_below;
use super::*;
use crate::scrub::check_tree;

/// The damage that is found in parts of about this many bytes, and the number of parts.
fn damage_in_parts(engine: &TreeEngine, most_bytes: u64) -> (Vec<String>, usize) {
    let (mut found, mut from, mut parts) = (Vec::new(), Vec::new(), 0);
    loop {
        let part = check_tree(engine, &from, most_bytes).unwrap();
        found.extend(part.damage);
        parts += 1;
        match part.next {
            Some(next) => {
                assert!(next > from, "it goes on");
                from = next;
            }
            None => return (found, parts),
        }
    }
}

#[test]
fn each_kind_of_page_is_read_once_by_a_check_in_parts() {
    let mut world = World::with_room(3, 160);
    world.work(3, 400, 1500);
    let state = world.engine.state.load_full();
    let root = state.root.unwrap();
    assert!(root.1 >= 2, "there are inner pages below the root");
    let mut pages = Vec::new();
    pages_below(&world, root, &mut pages);
    let section = world.engine.writer.lock().space.sections[0].unwrap();
    pages.extend([meta_place(state.batch), state.index[0].page, section.page]);
    let few = 20 * PAGE as u64;
    let (found, parts) = damage_in_parts(&world.engine, few);
    assert!(found.is_empty() && parts > 10, "{found:?} in {parts} parts");
    for page in pages {
        let bytes = world.page(page);
        let mut damaged = bytes;
        damaged[..100].iter_mut().for_each(|byte| *byte ^= 0x55);
        world.set_page(page, &damaged);
        let whole: Vec<String> = damage(&world.engine).iter().map(ToString::to_string).collect();
        assert_eq!(whole.len(), 1, "page {page}: {whole:?}");
        for most_bytes in [1, few, u64::MAX] {
            assert_eq!(damage_in_parts(&world.engine, most_bytes).0, whole, "page {page}");
        }
        world.set_page(page, &bytes);
    }
}

#[test]
fn a_check_in_parts_goes_on_while_the_tree_changes() {
    let mut world = World::with_room(5, 160);
    world.work(3, 400, 1500);
    let (mut from, mut parts) = (Vec::new(), 0);
    while let Some(next) = check_tree(&world.engine, &from, 10 * PAGE as u64).unwrap().next {
        assert!(next > from);
        (from, parts) = (next, parts + 1);
        world.work(1, 50, 1500);
    }
    assert!(parts > 10, "{parts} parts");
}
