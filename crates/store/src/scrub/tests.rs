use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use model::{ErrorKind, Kind, Oid, Op, Transaction};

use crate::backup::tests::populate;
use crate::content::blob_file;
use crate::engine::Engine;
use crate::rows::key::Key;
use crate::rows::row::{self, ExtentUse, PageUsage};
use crate::tests::world::{SimulatedStore, memory_store, on_every_store, real_store};
use crate::tests::{blob, commit, create, name, pattern, temporary};
use crate::{Amount, ScrubReport, Store};

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
        let oids = populate(store, settle);
        let before = store.status().version;
        let report = scrub(store);
        assert_eq!(report.damage, []);
        assert_eq!((report.objects, report.names, report.members), (oids.len() as u64, 16, 15));
        assert_eq!(report.attributes, 14);
        // A marker may be logged at any time.
        assert!((before..=store.status().version).contains(&report.version));
        settle();
        assert!(scrub(store).is_clean());
        for oid in oids {
            commit(store, [Op::Delete { oid }]);
        }
        assert!(scrub(store).is_clean());
        settle();
        assert!(scrub(store).is_clean());
    });
}

/// A small store, all of it in the B-tree.
struct World {
    simulated: SimulatedStore,
    /// Three chunks, shared with `clone`.
    blob: Oid,
    clone: Oid,
    collection: Oid,
}

impl World {
    fn new() -> Self {
        let simulated = SimulatedStore::new();
        let store = &simulated.store;
        let (blob, clone) = (blob(store, pattern(3 * CHUNK, 1)), blob(store, "small"));
        let collection = commit(store, [create(0, Kind::Collection, "")]).created[0];
        commit(store, [Op::Clone { from: blob, to: clone }, Op::Bind { name: name("/blob"), oid: blob }]);
        commit(store, [Op::Add { collection, member: blob }, Op::Add { collection, member: clone }]);
        commit(store, [Op::SetAttribute { oid: blob, key: "mode".into(), value: "0644".into() }]);
        store.install().unwrap();
        assert_eq!(scrub(store).damage, []);
        Self { simulated, blob, clone, collection }
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

    fn damage(&self) -> Vec<String> {
        damage(&self.simulated.store)
    }
}

#[test]
fn damaged_bytes_are_reported_by_object_and_name_and_the_rest_is_checked() {
    let world = World::new();
    world.simulated.disk.damage(&blob_file::file_name(1), 2 * CHUNK + 100, |bytes| bytes[0] ^= 1);
    world.simulated.disk.damage(&blob_file::file_name(1), 9000, |bytes| bytes[0] ^= 1);
    let (a, b) = (world.blob, world.clone);
    let mut expected = Vec::new();
    for who in [format!("object {a} (/blob)"), format!("object {b}")] {
        expected.push(format!("{who}: the checksum of its bytes 8192..12288 does not match"));
        expected.push(format!("{who}: the checksum of its bytes 131072..135168 does not match"));
    }
    assert_eq!(world.damage(), expected);
    assert_eq!(scrub(&world.simulated.store).members, 2);
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
    assert_eq!(report.damaged, 6);
    assert!(report.damage.iter().all(|d| d.what == "its blob file is shorter than its extent"), "{report:?}");
}

#[test]
fn a_damaged_head_is_reported_once() {
    let world = World::new();
    world.flip(&Key::object(world.blob), 5);
    let blob = world.blob;
    assert_eq!(world.damage(), [format!("object {blob} (/blob): the checksum of its head does not match")]);
}

#[test]
fn damaged_values_are_reported() {
    let world = World::new();
    world.flip(&Key::attribute(world.blob, b"mode"), 0);
    world.flip(&Key::name(crate::tests::MAIN, "/blob"), 3);
    let blob = world.blob;
    assert_eq!(
        world.damage(),
        [
            format!("object {blob} (/blob): attribute \"mode\": the checksum of its value does not match"),
            "name \"/blob\" of space 1: the checksum of its value does not match".to_owned(),
        ]
    );
}

#[test]
fn references_in_one_direction_only_are_reported() {
    let world = World::new();
    let (blob, clone, collection) = (world.blob, world.clone, world.collection);
    world.set(&Key::back_member(blob, collection), None);
    world.set(&Key::back_name(blob, "/blob"), None);
    world.set(&Key::back_name(clone, "/not bound"), Some(Bytes::new()));
    world.set(&Key::back_member(collection, clone), Some(Bytes::new()));
    assert_eq!(
        world.damage(),
        [
            format!("object {blob}: it has no back reference to collection {collection}"),
            format!("object {blob}: it has no back reference to name \"/blob\" of space 1"),
            format!("object {clone} (/not bound): name \"/not bound\" is not bound to it"),
            format!("object {collection}: collection {clone} does not have it as a member"),
        ]
    );
}

#[test]
fn collections_with_missing_or_additional_members_are_reported() {
    let world = World::new();
    let (blob, collection) = (world.blob, world.collection);
    world.set(&Key::member(collection, blob), None);
    world.set(&Key::member(blob, collection), Some(Bytes::new()));
    assert_eq!(
        world.damage(),
        [
            format!("object {collection}: it has no back reference to collection {blob}"),
            format!("object {blob} (/blob): it has 1 members but is a blob"),
            format!("object {collection}: it has 1 members, but its size is 2"),
            format!("object {blob} (/blob): collection {collection} does not have it as a member"),
        ]
    );
    world.set(&Key::member(collection, world.clone), None);
    assert!(world.damage()[0].ends_with("it should have 2 members and has none"));
}

#[test]
fn rows_without_their_object_are_reported() {
    let world = World::new();
    let blob = world.blob;
    world.set(&Key::object(blob), None);
    let damage = world.damage();
    let has = |what: &str| assert!(damage.iter().any(|d| d.contains(what)), "{what}: {damage:#?}");
    has("it has attributes but does not exist");
    has("is bound to it, but it does not exist");
    has(&format!("its member {blob} does not exist"));
    has("there are 4 chunks, and 2 of them belong to some content");
    has("has 1 users, and its count says 2");
}

#[test]
fn wrong_counts_are_reported() {
    let world = World::new();
    let page = world.blob.page();
    let extent = Key::extent(1, CHUNK as u64);
    world.set(&extent, Some(Bytes::copy_from_slice(&ExtentUse { len: CHUNK as u32, users: 1 }.encode())));
    world.set(&Key::extent(1, 2 * CHUNK as u64), None);
    world.set(&Key::extent(1, 9 * CHUNK as u64), Some(world.row(&Key::extent(1, 0)).into()));
    world.set(&Key::freed(1, 0), Some(Bytes::from_static(&[0, 1, 0, 0])));
    world.set(&Key::page(page), Some(Bytes::copy_from_slice(&PageUsage { next_slot: 0, used: 9 }.encode())));
    let file = blob_file::file_name(1);
    assert_eq!(
        world.damage(),
        [
            "page 1 of space 1 would assign slot 0 again: slot 0 is taken".to_owned(),
            format!("the chunk at byte 65536 of {file} has 2 users, and its count says 1, of 65536 bytes"),
            format!("the chunk at byte 589824 of {file} has 0 users, and its count says 2, of 65536 bytes"),
            format!("the chunk at byte 131072 of {file} is used and not counted"),
            format!("the chunk at byte 0 of {file} is in use, and freed"),
        ]
    );
}

#[test]
fn missing_spaces_and_page_numbers_that_would_be_reused_are_reported() {
    let world = World::new();
    world.set(&Key::space("main"), None);
    world.set(&Key::next_page(crate::tests::MAIN), Some(Bytes::copy_from_slice(&1u64.to_be_bytes())));
    let damage = world.damage();
    assert_eq!(damage.iter().filter(|d| d.contains("there is no space 1")).count(), 3, "{damage:#?}");
    assert!(damage.iter().any(|d| d == "page 1 of space 1 would be assigned again"), "{damage:#?}");
}

#[test]
fn keys_and_rows_of_the_wrong_length_are_reported_without_panics() {
    let world = World::new();
    for table in *b"ocamrnpxdgs" {
        for len in 0..40 {
            let mut key = vec![table];
            key.resize(1 + len, 0xff);
            world.set(&Key::from(&key[..]), Some(Bytes::copy_from_slice(&[7; 3])));
        }
    }
    assert!(world.damage().len() > 100);
    world.set(&Key::object(world.blob), Some(Bytes::from_static(b"short")));
    world.set(&Key::object(world.clone), Some(Bytes::copy_from_slice(&world.row(&Key::object(world.clone))[..40])));
    let damage = world.damage();
    assert!(damage.iter().filter(|d| d.ends_with("its row is too short")).count() >= 2, "{damage:#?}");
}

#[test]
fn the_list_of_damage_is_bounded_and_all_damage_is_counted() {
    let world = World::new();
    for i in 0..1500u16 {
        let key = Key::attribute(world.blob, &i.to_be_bytes());
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
        blob(&store, pattern(10_000, 1));
    }
    let stop = |amount: Amount| if amount.objects < 5 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
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

/// Creates, clones, overwrites and deletes objects.
fn change(store: &Store, seed: u8) {
    let one = blob(store, pattern(2 * CHUNK + 7, seed));
    let made = commit(store, [create(0, Kind::Blob, "x"), create(1, Kind::Collection, "")]).created;
    let path = name(&format!("/{seed}"));
    let ops = [
        Op::Clone { from: one, to: made[0] },
        Op::Add { collection: made[1], member: one },
        Op::Bind { name: path.clone(), oid: one },
    ];
    commit(store, ops);
    commit(store, [Op::Write { oid: one, offset: 66_000, data: "over".into() }]);
    let upload = store.begin_upload().unwrap();
    store.upload(upload, pattern(2 * CHUNK + 9, seed)).unwrap();
    commit(store, [Op::PutUpload { oid: made[0], upload }, Op::Truncate { oid: one, size: 70_000 }]);
    commit(store, [Op::SetAttribute { oid: one, key: "k".into(), value: "v".into() }]);
    commit(store, [Op::Delete { oid: one }]);
    let again = Transaction { ops: vec![Op::Bind { name: path, oid: made[0] }, Op::Delete { oid: made[1] }] };
    let _ = store.commit(again).unwrap();
    let temporary = temporary(0);
    let content = Op::Create { oid: temporary, kind: Kind::Record, data: "r".into(), near: Some(made[0]) };
    commit(store, [content, Op::Delete { oid: made[0] }]);
}
