use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use model::{ContentId, ErrorKind};

use crate::backup::tests::populate;
use crate::content::blob_file;
use crate::engine::Engine;
use crate::rows::key::{DataId, Key};
use crate::rows::row;
use crate::tests::world::{SimulatedStore, memory_store, on_every_store, real_store};
use crate::tests::{commit, content, create, delete, new_id, of_contents, pattern, take, truncate, upload, write};
use crate::{Amount, Options, RowChanges, ScrubReport, Store};

const CHUNK: usize = 64 << 10;

fn scrub(store: &Store) -> ScrubReport {
    store.scrub(&()).unwrap()
}

fn damage(store: &Store) -> Vec<String> {
    scrub(store).damage.iter().map(ToString::to_string).collect()
}

#[test]
fn a_sound_store_is_clean_and_everything_is_counted() {
    on_every_store(|store, settle| {
        let all = populate(store, settle);
        let before = store.status().version;
        let report = scrub(store);
        assert_eq!(report.damage, []);
        assert_eq!((report.contents, report.rows), (all.len() as u64, 4));
        assert!(report.bytes > 5 << 20, "{} bytes", report.bytes);
        // A marker may be logged at any time.
        assert!((before..=store.status().version).contains(&report.version));
        settle();
        assert!(scrub(store).is_clean());
        for id in all {
            commit(store, [delete(id)]);
        }
        assert_eq!((scrub(store).damage, scrub(store).contents), (vec![], 0));
        settle();
        assert!(scrub(store).is_clean());
    });
}

/// A small store, all of it in the B-tree.
struct World {
    simulated: SimulatedStore,
    /// Three chunks in the first blob file.
    large: ContentId,
    /// Two chunks there, and a tail.
    other: ContentId,
}

impl World {
    fn new() -> Self {
        let simulated = SimulatedStore::new();
        let store = &simulated.store;
        let (large, other) = (content(store, pattern(3 * CHUNK, 1)), content(store, pattern(2 * CHUNK + 5000, 2)));
        let mut row = RowChanges::new();
        row.put(b"row", "value".into());
        store.commit_rows(row).unwrap();
        store.install().unwrap();
        assert_eq!(scrub(store).damage, []);
        Self { simulated, large, other }
    }

    fn row(&self, key: &Key) -> Vec<u8> {
        let mut row = None;
        self.simulated.engine.read(&mut |engine| row = engine.get(key).unwrap().map(<[u8]>::to_vec)).unwrap();
        row.unwrap()
    }

    fn set(&self, key: &Key, row: Option<Bytes>) {
        self.simulated.engine.write(&mut [Ok((key.clone(), row))].into_iter()).unwrap();
    }

    fn flip(&self, key: &Key, at: usize) {
        let mut row = self.row(key);
        row[at] ^= 1;
        self.set(key, Some(row.into()));
    }

    /// The number under which the chunks of a content are stored.
    fn data(&self, id: ContentId) -> DataId {
        row::ContentHead::decode(id, &self.row(&Key::content(id))).unwrap().data
    }

    fn damage(&self) -> Vec<String> {
        damage(&self.simulated.store)
    }
}

#[test]
fn damaged_bytes_are_reported_by_content_and_range_and_the_rest_is_checked() {
    let world = World::new();
    for at in [9000, 2 * CHUNK + 100, 4 * CHUNK + 100] {
        let at = blob_file::position_in_file(at as u64) as usize;
        world.simulated.disk.damage(&blob_file::file_name(1), at, |bytes| bytes[0] ^= 1);
    }
    let (large, other) = (world.large, world.other);
    // The tail, after its checksums.
    world.flip(&Key::chunk(world.data(other), 2), 5 + 2 * 4 + 4096);
    let expected = [
        format!("content {large}: the checksum of its bytes 8192..12288 does not match"),
        format!("content {large}: the checksum of its bytes 131072..135168 does not match"),
        format!("content {other}: the checksum of its bytes 65536..69632 does not match"),
        format!("content {other}: the checksum of its bytes 135168..136072 does not match"),
    ];
    assert_eq!(world.damage(), expected);
    let report = scrub(&world.simulated.store);
    assert_eq!((report.contents, report.rows, report.damaged), (2, 1, 4));
}

#[test]
fn a_missing_blob_file_is_reported_for_each_chunk() {
    use crate::disk::Disk;
    let world = World::new();
    world.simulated.disk.remove(&blob_file::file_name(1)).unwrap();
    world.simulated.disk.force_names(blob_file::DIR).unwrap();
    // Another opening does not have the file open.
    let store = world.simulated.crash(1).unwrap().store;
    let report = scrub(&store);
    assert_eq!(report.damaged, 5);
    assert!(report.damage.iter().all(|d| d.what == "its blob file 00000001.blob is missing"), "{report:?}");
}

#[test]
fn a_blob_file_that_is_removed_while_it_is_open_is_reported_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("store"), Options::default()).unwrap();
    content(&store, pattern(3 * CHUNK, 1));
    store.install().unwrap();
    assert_eq!(scrub(&store).damage, []);
    let file = dir.path().join("store").join(blob_file::file_name(1));
    let kept = dir.path().join("kept");
    std::fs::rename(&file, &kept).unwrap();
    let report = scrub(&store);
    assert_eq!((report.damaged, report.damage.len()), (1, 1), "{report:?}");
    assert!(report.damage[0].what.contains("blobs/00000001.blob was removed"), "{report:?}");
    std::fs::rename(&kept, &file).unwrap();
    assert_eq!(scrub(&store).damage, []);
}

#[test]
fn a_damaged_head_is_reported_once() {
    let world = World::new();
    world.flip(&Key::content(world.large), 5);
    let large = world.large;
    assert_eq!(world.damage(), [format!("content {large}: the checksum of its head does not match")]);
}

#[test]
fn a_head_under_the_key_of_another_content_is_reported() {
    let world = World::new();
    world.set(&Key::content(world.large), Some(world.row(&Key::content(world.other)).into()));
    let large = world.large;
    let head = format!("content {large}: the checksum of its head does not match");
    assert!(world.damage().contains(&head), "{:#?}", world.damage());
}

#[test]
fn damaged_values_of_rows_are_reported() {
    let world = World::new();
    world.flip(&Key::row(b"row"), 0);
    assert_eq!(world.damage(), ["row 726f77: the checksum of its value does not match"]);
}

#[test]
fn chunks_without_their_content_are_reported() {
    let world = World::new();
    world.set(&Key::content(world.large), None);
    let file = blob_file::file_name(1);
    assert_eq!(
        world.damage(),
        [
            "there are 4 chunks, and 2 of them belong to some content".to_owned(),
            format!("the chunk at byte 0 of {file}: it is recorded as used, and no content uses it"),
        ]
    );
}

#[test]
fn chunks_beyond_the_end_of_a_content_are_reported() {
    let world = World::new();
    let (other, data) = (world.other, world.data(world.other));
    let mut chunk = bytes::BytesMut::new();
    row::put_inline(&mut chunk, b"beyond");
    world.set(&Key::chunk(data, 3), Some(chunk.freeze()));
    assert_eq!(world.damage(), [format!("content {other}: chunk 3 is beyond its end")]);
}

#[test]
fn wrong_records_of_chunks_are_reported() {
    let world = World::new();
    let chunk = |index: usize| Key::extent(1, (index * CHUNK) as u64);
    let len = |len: usize| Some(Bytes::copy_from_slice(&row::encode_extent_len(len as u32)));
    world.set(&chunk(1), len(4096));
    world.set(&chunk(2), None);
    world.set(&chunk(9), len(CHUNK));
    world.set(&Key::freed_extent(1, 0), Some(Bytes::from_static(&[0, 1, 0, 0])));
    // The second chunk of one content is that of the other.
    let (from, to) = (Key::chunk(world.data(world.large), 1), Key::chunk(world.data(world.other), 1));
    world.set(&to, Some(world.row(&from).into()));
    let file = blob_file::file_name(1);
    let at = |index: usize| format!("the chunk at byte {} of {file}", index * CHUNK);
    assert_eq!(
        world.damage(),
        [
            format!("{} is used twice", at(1)),
            format!("{}: its record says 4096 bytes", at(1)),
            format!("{}: it is recorded as used, and no content uses it", at(4)),
            format!("{}: it is recorded as used, and no content uses it", at(9)),
            format!("{} is used and not recorded", at(2)),
            format!("{} is in use, and freed", at(0)),
        ]
    );
}

#[test]
fn keys_and_rows_of_the_wrong_length_are_reported_without_panics() {
    let world = World::new();
    for table in *b"ockxdgs" {
        for len in 0..40 {
            let mut key = vec![table];
            key.resize(1 + len, 0xff);
            world.set(&Key::from(&key[..]), Some(Bytes::copy_from_slice(&[7; 3])));
        }
    }
    assert!(world.damage().len() > 100);
    world.set(&Key::content(world.large), Some(Bytes::from_static(b"short")));
    world.set(&Key::content(world.other), Some(Bytes::copy_from_slice(&world.row(&Key::content(world.other))[..23])));
    let damage = world.damage();
    for id in [world.large, world.other] {
        assert!(damage.contains(&format!("content {id}: its row is too short")), "{damage:#?}");
    }
}

#[test]
fn the_list_of_damage_is_bounded_and_all_damage_is_counted() {
    let world = World::new();
    for i in 0..1500u16 {
        let key = Key::row(&i.to_be_bytes());
        let mut row = row::seal(&key, b"value").to_vec();
        row[0] ^= 1;
        world.set(&key, Some(row.into()));
    }
    let report = scrub(&world.simulated.store);
    assert_eq!((report.damage.len(), report.damaged), (1000, 1500));
}

#[test]
fn a_scrub_can_be_stopped_and_reports_its_progress() {
    let store = memory_store();
    for _ in 0..10 {
        content(&store, pattern(10_000, 1));
    }
    let stop = |amount: Amount| if amount.items < 5 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
    let error = store.scrub(&stop).unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Unavailable, "the scrub was stopped"));
}

#[test]
fn concurrent_writes_are_not_reported_as_damage() {
    let dir = tempfile::tempdir().unwrap();
    let store = real_store(dir.path());
    let writing = AtomicUsize::new(3);
    std::thread::scope(|threads| {
        for seed in 0..3u8 {
            let (store, writing) = (&store, &writing);
            threads.spawn(move || {
                (0..60).for_each(|_| change(store, seed));
                writing.fetch_sub(1, Ordering::Relaxed);
            });
        }
        while writing.load(Ordering::Relaxed) > 0 {
            assert_eq!(scrub(&store).damage, []);
        }
    });
    drop(store);
    assert_eq!(scrub(&real_store(dir.path())).damage, []);
}

/// Creates, overwrites and deletes contents.
fn change(store: &Store, seed: u8) {
    let (one, other) = (content(store, pattern(2 * CHUNK + 7, seed)), new_id());
    commit(store, [write(one, 66_000, "over"), create(other, "x")]);
    let third = new_id();
    let upload = upload(store, &pattern(2 * CHUNK + 9, seed));
    commit(store, [take(third, upload), truncate(one, 70_000)]);
    let mut changes = of_contents([delete(one), write(third, CHUNK, pattern(CHUNK, 9))]);
    changes.put(&[seed], pattern(1000, seed));
    store.commit_rows(changes).unwrap();
    commit(store, [delete(third), delete(other)]);
}

/// One damaged page of the B-tree, inner pages too, is one damage; all rows outside of its range are still read and scrubbed.
#[test]
fn a_damaged_page_of_the_tree_is_named_and_costs_the_rows_in_its_range() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), crate::tests::world::small_options()).unwrap();
    // Long keys, so that there are inner pages besides the root.
    let key = |row: u32| [&row.to_be_bytes()[..], &[7; 300]].concat();
    let mut changes = RowChanges::new();
    (0..800).for_each(|row| changes.put(&key(row), pattern(150, row as u8)));
    store.commit_rows(changes).unwrap();
    content(&store, pattern(3 * CHUNK, 1));
    store.install().unwrap();
    drop(store);
    let path = dir.path().join("tree/rows");
    let sound = std::fs::read(&path).unwrap();
    let (mut refused, mut most_lost) = (0, 0);
    for page in (17..sound.len() / 4096).step_by(3) {
        for zeroed in [false, true] {
            let mut bytes = sound.clone();
            match zeroed {
                true => bytes[page * 4096..(page + 1) * 4096].fill(0),
                false => bytes[page * 4096 + 2..page * 4096 + 4].iter_mut().for_each(|byte| *byte ^= 0x21),
            }
            std::fs::write(&path, bytes).unwrap();
            let store = match Store::open(dir.path(), crate::tests::world::small_options()) {
                Ok(store) => store,
                Err(error) => {
                    assert!(error.message().contains(&format!("page {page} at byte")), "{error}");
                    refused += 1;
                    continue;
                }
            };
            let report = scrub(&store);
            assert!(report.damaged <= 1, "page {page}: {:#?}", report.damage);
            let lost = (0..800).filter(|row| store.row(&key(*row)).is_err()).count() as u64;
            assert_eq!(report.rows + lost, 800, "page {page}: the scrub reads all rows that can be read");
            if let Some(damage) = report.damage.first() {
                assert!(
                    damage.what.contains(&format!("page {page} ")) && damage.what.contains("tree/rows"),
                    "{damage}"
                );
            }
            most_lost = most_lost.max(lost);
        }
    }
    assert!((20..300).contains(&most_lost), "{most_lost} rows were lost with one page");
    assert!(refused < 10, "{refused} were refused");
}
