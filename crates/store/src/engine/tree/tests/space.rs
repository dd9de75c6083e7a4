//! The map of used pages: runs of free pages, and pages to which nothing refers.

use super::*;

#[test]
fn runs_of_free_pages_are_found_wherever_they_begin_and_are_never_in_use() {
    let mut random = StdRng::seed_from_u64(40);
    for round in 0..60 {
        let mut space = Space::new(HEADER_PAGES, Vec::new());
        let mut taken: Vec<(u64, u64)> = Vec::new();
        let most = [3, 80, 300][round % 3];
        for batch in 1..30 {
            space.begin(batch - 1);
            let before = taken.clone();
            for _ in 0..random.random_range(1..60) {
                if !taken.is_empty() && random.random_bool(0.45) {
                    let (first, len) = taken.swap_remove(random.random_range(0..taken.len()));
                    space.free(first, len);
                }
                let len = if random.random_bool(0.5) { 1 } else { random.random_range(1..=most) };
                let first = space.take(len).unwrap();
                let is_free = |(other, others): &(u64, u64)| first + len <= *other || other + others <= first;
                assert!(first >= HEADER_PAGES && taken.iter().chain(&before).all(is_free), "{first} {len}");
                taken.push((first, len));
            }
            space.commit(batch);
        }
        let used: BTreeSet<u64> = taken.iter().flat_map(|(first, len)| *first..first + len).collect();
        assert!(space.used_pages().filter(|page| *page >= HEADER_PAGES).eq(used));
    }
}

#[test]
fn a_run_that_was_freed_is_used_again_as_a_whole() {
    let mut space = Space::new(HEADER_PAGES, Vec::new());
    space.begin(0);
    let runs: Vec<u64> = (0..50).map(|_| space.take(130).unwrap()).collect();
    space.commit(1);
    space.begin(1);
    runs.iter().for_each(|first| space.free(*first, 130));
    space.commit(2);
    let pages = space.pages();
    space.begin(2);
    for _ in 0..10 {
        space.take(640).unwrap();
    }
    assert_eq!(space.pages(), pages, "the file does not grow");
}

/// Damages a page of a level and changes a row below it, so that all other pages below it leak.
fn leaking_tree(level: u8) -> World {
    let mut world = World::with_room(41, 200);
    world.work(3, 600, 4000);
    let state = world.engine.state.load_full();
    let (mut at, mut below) = state.root.unwrap();
    let mut key = Vec::new();
    while below > level {
        let (first, child) = world.engine.file.node(at, below, state.pages).unwrap().child(1).unwrap();
        (key, at, below) = (first.to_vec(), child, below - 1);
    }
    world.set_page(at.page, &[0xa5; PAGE]);
    world.reopen();
    world.engine.write(&mut [Ok((Key::from(&key[..]), Some(Bytes::from_static(b"new"))))].into_iter()).unwrap();
    world
}

impl World {
    /// The rows that can be read, and the number of the others.
    fn readable(&self) -> (Rows, usize) {
        let (mut found, mut lost) = (Rows::new(), 0);
        let mut read_all = |read: &dyn EngineRead| {
            for key in self.rows.keys() {
                match read.get(key) {
                    Ok(value) => drop(found.insert(key.clone(), value.unwrap_or_default().to_vec())),
                    Err(_) => lost += 1,
                }
            }
        };
        self.engine.read(&mut |read| read_all(read)).unwrap();
        (found, lost)
    }
}

pub(super) fn leaked_pages_come_back() {
    for level in 1..3 {
        let mut world = leaking_tree(level);
        let before = world.readable();
        assert!(before.1 > 0);
        let pin = world.engine.pin().unwrap();
        let freed = world.engine.reclaim_space().unwrap();
        assert!(freed > PAGE as u64, "{freed} bytes below level {level}");
        assert_eq!(world.engine.reclaim_space().unwrap(), 0);
        for _ in 0..6 {
            let batch = world
                .random_batch(300, 4000)
                .into_iter()
                .map(|(key, _)| (Key::from(&[&[0xff], &key[..]].concat()[..]), None));
            world.engine.write(&mut batch.map(Ok)).unwrap();
        }
        assert_eq!(world.readable(), before, "nothing that could be read is lost");
        drop(pin);
        world.reopen();
        assert_eq!(world.readable(), before);
        assert_eq!(world.engine.reclaim_space().unwrap(), 0);
    }
    // A damaged part of the map leaks all that was free in it.
    let mut world = World::new(42);
    world.work(6, 800, 4000);
    let section = world.engine.writer.lock().space.sections[0].unwrap();
    world.set_page(section.page, &[0; PAGE]);
    world.reopen();
    assert!(world.engine.reclaim_space().unwrap() > 0);
    world.check();
    world.reopen();
    world.check();
}

#[test]
fn space_to_which_nothing_refers_after_damage_is_freed() {
    leaked_pages_come_back();
}

#[test]
fn nothing_is_freed_while_a_page_cannot_be_read() {
    let mut world = World::with_room(43, 200);
    world.work(3, 600, 4000);
    let (root, _) = world.engine.state.load().root.unwrap();
    world.disk.set_unreadable(NAME, &[root.page]);
    assert!(matches!(world.engine.reclaim_space(), Err(EngineError::Failed(_))));
    world.disk.set_unreadable(NAME, &[]);
    world.check();
    assert_eq!(world.engine.reclaim_space().unwrap(), 0);
    world.check();
}
