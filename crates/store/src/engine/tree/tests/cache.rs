//! Pages that are damaged after they were checked, as a page that was evicted from the system's cache and read again may be.

use super::super::file::FORGET_CALLS;
use super::*;
use crate::disk::RealDisk;

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

    /// Forgets some checks, when the process had to wait so often for pages of maps.
    fn forget(&self, faults: u64) {
        self.engine.file.forget_some_checks(self.engine.state.load().pages, faults);
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
pub(super) fn a_change_in_a_leaf_that_was_damaged_after_its_check_gives_the_damage_no_new_checksum() {
    let (mut world, leaf) = checked_tree(21);
    let keys = world.spoil(leaf);
    world.write(vec![(Key::from(&keys[0][..]), Some(Bytes::from_static(b"changed")))]);
    assert!(world.unreadable() >= keys.len() - 1);
    world.reopen();
    assert!(world.unreadable() >= keys.len() - 1);
}

#[test]
pub(super) fn what_a_scrub_finds_damaged_is_not_read_any_more() {
    let (world, leaf) = checked_tree(22);
    let keys = world.spoil(leaf);
    assert_eq!(damage(&world.engine).len(), 1);
    assert!(world.unreadable() >= keys.len());
}

#[test]
pub(super) fn a_leaf_that_was_damaged_after_its_check_is_noticed_when_checks_were_forgotten() {
    let (world, leaf) = checked_tree(23);
    let keys = world.spoil(leaf);
    (0..FORGET_CALLS).for_each(|_| world.forget(0));
    assert!(world.unreadable() >= keys.len());
}

#[test]
fn all_checks_are_forgotten_after_some_calls_and_not_at_once() {
    let (world, _) = checked_tree(24);
    // The count of the opening was that of this process.
    world.forget(0);
    world.check();
    let pages = world.engine.state.load().pages;
    let checked = || (0..pages).filter(|page| world.engine.file.is_checked(*page)).count();
    let before = checked();
    world.forget(0);
    assert!((1..=before).contains(&checked()), "{before} pages, then {}", checked());
    (1..FORGET_CALLS).for_each(|_| world.forget(0));
    assert_eq!(checked(), 0);
}

#[test]
fn all_checks_are_forgotten_when_the_process_had_to_wait_for_a_page() {
    let (world, leaf) = checked_tree(25);
    world.forget(7);
    world.check();
    world.forget(7);
    assert!((1..leaf).any(|page| world.engine.file.is_checked(page)), "pages stay checked in memory");
    world.forget(8);
    assert!(!(1..leaf + 1).any(|page| world.engine.file.is_checked(page)));
}

pub(super) fn damage_is_noticed_after_a_wait() {
    let (world, leaf) = checked_tree(26);
    world.forget(7);
    world.check();
    let keys = world.spoil(leaf);
    world.forget(8);
    assert!(world.unreadable() >= keys.len());
}

#[test]
fn damage_of_a_checked_page_is_noticed_after_the_process_had_to_wait_for_a_page() {
    damage_is_noticed_after_a_wait();
}

/// A tree in a real file, all of whose pages were checked.
struct RealTree {
    engine: TreeEngine,
    _dir: tempfile::TempDir,
}

impl RealTree {
    const ROWS: u32 = 400;

    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let engine = TreeEngine::open(&RealDisk::new(dir.path()), &ID).unwrap();
        engine.write(&mut (0..Self::ROWS).map(|number| Ok((Self::key(number), Some(Self::value(number)))))).unwrap();
        let tree = Self { engine, _dir: dir };
        assert_eq!(tree.read_all(), (0, 0));
        tree.engine.forget_some_checks();
        assert_eq!(tree.read_all(), (0, 0));
        tree
    }

    fn key(number: u32) -> Key {
        Key::from(&number.to_be_bytes()[..])
    }

    fn value(number: u32) -> Bytes {
        Bytes::from(vec![number as u8; 1000])
    }

    /// The numbers of wrong rows and of rows that cannot be read.
    fn read_all(&self) -> (u32, u32) {
        let (mut wrong, mut failed) = (0, 0);
        let mut read_all = |read: &dyn EngineRead| {
            for number in 0..Self::ROWS {
                match read.get(&Self::key(number)) {
                    Ok(found) => wrong += u32::from(found != Some(&Self::value(number)[..])),
                    Err(_) => failed += 1,
                }
            }
        };
        self.engine.read(&mut |read| read_all(read)).unwrap();
        (wrong, failed)
    }

    /// Evicts a leaf from the system's cache and changes a byte of it on the disk; returns a key of the leaf, or `None` if the system
    /// does not evict pages here.
    fn evict_and_damage(&self) -> Option<Vec<u8>> {
        let state = self.engine.state.load_full();
        let (root, level) = state.root.unwrap();
        assert_eq!(level, 1);
        let (key, leaf) = self.engine.file.node(root, level, state.pages).unwrap().child(3).unwrap();
        let mut bytes = [0; PAGE];
        self.engine.file.read_at(&mut bytes, leaf.page * PAGE as u64).unwrap();
        bytes[PAGE - 500] ^= 1;
        let is_evicted = self.engine.file.evict(leaf.page, &bytes);
        if !is_evicted {
            eprintln!("the system does not evict pages here: nothing is tested");
        }
        is_evicted.then(|| key.to_vec())
    }
}

#[test]
fn an_evicted_page_that_comes_back_damaged_is_noticed_at_the_next_look() {
    let tree = RealTree::new();
    let before = file::waits_for_pages();
    if tree.evict_and_damage().is_some() {
        // Another test may have made the process wait, but no check is forgotten before the next look.
        assert_eq!(tree.read_all().0, 1, "the row is wrong until the next look");
        assert!(file::waits_for_pages() > before, "the page was read from the disk through the map");
        tree.engine.forget_some_checks();
        let (wrong, failed) = tree.read_all();
        assert!(wrong == 0 && failed >= 1, "{wrong} wrong rows, {failed} that cannot be read");
    }
}

pub(super) fn evicted_page_is_noticed_by_a_thread_that_does_not_wait() {
    let tree = RealTree::new();
    if let Some(key) = tree.evict_and_damage() {
        assert!(!tree.engine.is_resident(&key, &key));
        let (wrong, failed) = tree.read_all();
        assert!(wrong == 0 && failed >= 1, "{wrong} wrong rows, {failed} that cannot be read");
        // The system may have read neighbours of the page ahead.
        let (file, pages) = (&tree.engine.file, tree.engine.state.load().pages);
        file.forget_some_checks(pages, file::waits_for_pages());
        assert!(!(0..pages).any(|page| file.is_checked(page)));
    }
}

#[test]
fn an_evicted_page_that_comes_back_damaged_is_noticed_at_once_by_a_thread_that_does_not_wait() {
    evicted_page_is_noticed_by_a_thread_that_does_not_wait();
}
