//! Pages that are damaged after they were checked, as a page that was evicted from the system's cache and read again may be.

use super::super::file::FORGET_CALLS;
use super::*;

/// A tree all of whose pages were checked, and a leaf of it.
fn checked_tree(seed: u64) -> (World, u64) {
    let mut world = World::new(seed);
    world.work(3, 1000, 5000);
    world.check();
    let state = world.engine.state.load_full();
    let (mut at, mut level) = state.root.unwrap();
    while level > 0 {
        at = world.engine.file.node(at, level, state.pages).unwrap().child(1).unwrap().1;
        level -= 1;
    }
    (world, at.page)
}

impl World {
    /// Changes a byte of a value of each row of a leaf, under the eyes of the readers; returns the keys of these rows.
    fn spoil(&self, page: u64) -> Vec<Vec<u8>> {
        let mut bytes = self.page(page);
        let node = page::Node::parse(&bytes, page, 0).unwrap();
        let (mut keys, mut places) = (Vec::new(), Vec::new());
        for index in 0..node.count() {
            if let (key, page::Value::Inline(value @ [_, ..])) = node.row(index).unwrap() {
                keys.push(key.to_vec());
                places.push(value.as_ptr() as usize - bytes.as_ptr() as usize);
            }
        }
        for place in places {
            bytes[place] ^= 1;
        }
        self.set_page(page, &bytes);
        assert!(keys.len() > 2);
        keys
    }

    /// The number of rows that cannot be read. All others are right.
    fn unreadable(&self) -> usize {
        let mut unreadable = 0;
        let mut read_all = |read: &dyn EngineRead| {
            for (key, value) in &self.rows {
                match read.get(key) {
                    Ok(found) => assert_eq!(found, Some(&value[..]), "row {key:?}"),
                    Err(EngineError::Damaged(_)) => unreadable += 1,
                    Err(other) => panic!("{other}"),
                }
            }
        };
        self.engine.read(&mut |read| read_all(read)).unwrap();
        unreadable
    }
}

#[test]
fn a_change_in_a_leaf_that_was_damaged_after_its_check_gives_the_damage_no_new_checksum() {
    let (mut world, leaf) = checked_tree(21);
    let keys = world.spoil(leaf);
    world.write(vec![(Key::from(&keys[0][..]), Some(Bytes::from_static(b"changed")))]);
    assert!(world.unreadable() >= keys.len() - 1);
    world.reopen();
    assert!(world.unreadable() >= keys.len() - 1);
}

#[test]
fn what_a_scrub_finds_damaged_is_not_read_any_more() {
    let (world, leaf) = checked_tree(22);
    let keys = world.spoil(leaf);
    assert_eq!(damage(&world.engine).len(), 1);
    assert!(world.unreadable() >= keys.len());
}

#[test]
fn a_leaf_that_was_damaged_after_its_check_is_noticed_when_checks_were_forgotten() {
    let (world, leaf) = checked_tree(23);
    let keys = world.spoil(leaf);
    (0..FORGET_CALLS).for_each(|_| world.engine.forget_some_checks());
    assert!(world.unreadable() >= keys.len());
}

#[test]
fn all_checks_are_forgotten_after_some_calls_and_not_at_once() {
    let (world, _) = checked_tree(24);
    let pages = world.engine.state.load().pages;
    let checked = || (0..pages).filter(|page| world.engine.file.is_checked(*page)).count();
    let before = checked();
    world.engine.forget_some_checks();
    assert!((1..=before).contains(&checked()), "{before} pages, then {}", checked());
    (1..FORGET_CALLS).for_each(|_| world.engine.forget_some_checks());
    assert_eq!(checked(), 0);
}
