use std::cell::Cell;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use bytes::Bytes;
use model::planted_bug::assert_noticed;
use model::{ErrorKind, Kind, Name, Oid, Op, SpaceId};

use crate::plant::RecoveryBug;
use crate::tests::world::{SimulatedStore, memory_store, on_every_store, real_store, small_options};
use crate::tests::{blob, commit, create, name, pattern, temporary};
use crate::{Amount, Options, RowChanges, Store};

const CHUNK: usize = 64 << 10;

/// The whole contents of a store as text.
pub(crate) fn contents(store: &Store) -> Vec<String> {
    let snapshot = store.snapshot().unwrap();
    let mut all = Vec::new();
    for (space, called) in snapshot.spaces().unwrap() {
        all.push(format!("space {} {called}", space.0));
        for (path, oid) in snapshot.names(space, "", None, 10_000).unwrap() {
            all.push(format!("{path} is {oid}"));
        }
        for stat in snapshot.objects(space, None, 10_000).unwrap() {
            let oid = stat.oid;
            all.push(format!("{stat:?}"));
            all.push(format!("{:?}", snapshot.attributes(oid, None, 10_000).unwrap()));
            all.push(format!("{:?}", snapshot.names_of(oid).unwrap()));
            all.push(format!("{:?}", snapshot.collections_of(oid, None, 10_000).unwrap()));
            all.push(match stat.kind {
                Kind::Collection => format!("{:?}", snapshot.members(oid, None, 10_000).unwrap()),
                _ => format!("{:08x}", crate::checksum::crc32c(&snapshot.read(oid, 0, 1 << 24).unwrap())),
            });
        }
    }
    let rows = snapshot.rows(&[], &[0xff; 401], |key, value| {
        all.push(format!("row {key:x?} {:08x}", crate::checksum::crc32c(value)));
        ControlFlow::Continue(())
    });
    rows.unwrap();
    all
}

/// Fills a store with every kind of data; `settle` moves changes to the B-tree.
pub(crate) fn populate(store: &Store, settle: &dyn Fn()) -> Vec<Oid> {
    let other = store.create_space("other-one").unwrap();
    let sizes = [0, 1, 5000, CHUNK - 1, CHUNK, 3 * CHUNK, 5 * CHUNK + 77];
    let mut oids: Vec<Oid> = sizes.iter().map(|len| blob(store, pattern(*len, 1))).collect();
    settle();
    // Shared whole chunks, some of them overwritten.
    for from in oids.clone() {
        let to = blob(store, "to be replaced");
        commit(store, [Op::Clone { from, to }]);
        oids.push(to);
    }
    commit(store, [Op::Write { oid: oids[5], offset: 70_000, data: "patched".into() }]);
    settle();
    commit(store, [Op::Write { oid: oids[6], offset: 10, data: "patched".into() }]);
    commit(store, [Op::Write { oid: oids[1], offset: 400_000, data: "sparse".into() }]);
    commit(store, [Op::Zero { oid: oids[12], offset: CHUNK as u64, len: 2 * CHUNK as u64 }]);
    commit(store, [Op::Truncate { oid: oids[6], size: 3 * CHUNK as u64 + 5 }]);
    // Attributes, collections, names, a record, another space.
    let made = commit(store, [create(0, Kind::Collection, ""), create(1, Kind::Collection, ""), record()]).created;
    for (i, oid) in oids.iter().enumerate() {
        let key = Bytes::from(format!("number {i}"));
        let set = Op::SetAttribute { oid: *oid, key, value: pattern(i * 1000, 3) };
        commit(store, [set, Op::Add { collection: made[i % 2], member: *oid }, bind(&format!("/dir/é{i}"), *oid)]);
    }
    commit(store, [Op::Add { collection: made[0], member: made[1] }, bind("/second name", oids[0])]);
    let there = Oid::temporary(other, model::ClassId::NONE, 0);
    let create = Op::Create { oid: there, kind: Kind::Blob, data: pattern(CHUNK * 2, 8), near: None };
    let named = Op::Bind { name: Name { space: other, path: "same name".into() }, oid: there };
    oids.extend(commit(store, [create, named]).created);
    // Deleted and uncommitted content is not in a backup.
    let deleted = blob(store, pattern(4 * CHUNK, 5));
    commit(store, [Op::Delete { oid: deleted }]);
    let upload = store.begin_upload().unwrap();
    store.upload(upload, pattern(300 * CHUNK, 6)).unwrap();
    let done = store.begin_upload().unwrap();
    store.upload(done, pattern(3 * CHUNK + 9, 7)).unwrap();
    commit(store, [Op::PutUpload { oid: oids[0], upload: done }]);
    let mut rows = RowChanges::new();
    for (key, len) in [(&b"a"[..], 0), (b"b", 100), (b"deleted", 5), (&[0xff; 400], 5 << 20), (b"large", 70_000)] {
        rows.put(key, pattern(len, 9));
    }
    store.commit_rows(rows).unwrap();
    let mut rows = RowChanges::new();
    rows.remove(b"deleted");
    store.commit_rows(rows).unwrap();
    oids.extend(made);
    oids
}

fn record() -> Op {
    Op::Create { oid: temporary(2), kind: Kind::Record, data: "fields".into(), near: None }
}

fn bind(path: &str, oid: Oid) -> Op {
    Op::Bind { name: name(path), oid }
}

fn archive(store: &Store) -> Vec<u8> {
    let mut archive = Vec::new();
    store.backup(&mut archive, &()).unwrap();
    archive
}

fn options() -> Options {
    Options { threads: true, ..small_options() }
}

fn restore(dir: &Path, mut archive: &[u8]) -> model::Result<Store> {
    Store::restore(dir, &mut archive, options(), &())?;
    Store::open(dir, options())
}

#[test]
fn a_restored_store_is_the_one_that_was_backed_up() {
    on_every_store(|store, settle| {
        populate(store, settle);
        let before = contents(store);
        let mut archive = Vec::new();
        // The store may continue meanwhile, because it removes deleted content.
        let last = store.backup(&mut archive, &()).unwrap().version;
        let dir = tempfile::tempdir().unwrap();
        let restored = restore(dir.path(), &archive).unwrap();
        assert_eq!(contents(&restored), before);
        // Both continue alike: with the same pages and slots, and no version twice.
        let (a, b) = (commit(store, [create(0, Kind::Blob, "x")]), commit(&restored, [create(0, Kind::Blob, "x")]));
        assert_eq!(a.created, b.created);
        assert!(b.version > last);
        restored.close().unwrap();
        let again = Store::open(dir.path(), options()).unwrap();
        assert_eq!(again.spaces().unwrap(), store.spaces().unwrap());
    });
}

#[test]
fn a_restored_store_backs_up_to_the_same_contents_and_can_be_changed() {
    let dir = tempfile::tempdir().unwrap();
    let store = real_store(&dir.path().join("first"));
    let oids = populate(&store, &|| store.install().unwrap());
    let first = archive(&store);
    let restored = restore(&dir.path().join("second"), &first).unwrap();
    let second = archive(&restored);
    assert_eq!(contents(&restore(&dir.path().join("third"), &second).unwrap()), contents(&store));
    for oid in oids {
        commit(&restored, [Op::Delete { oid }]);
    }
    restored.install().unwrap();
    assert!(restored.objects(SpaceId(1), None, 10).unwrap().is_empty());
}

#[test]
fn shared_chunks_go_into_the_archive_once_and_stay_shared() {
    let dir = tempfile::tempdir().unwrap();
    let store = real_store(&dir.path().join("first"));
    let from = blob(&store, pattern(8 * CHUNK, 1));
    let clones: Vec<Oid> = (0..9).map(|_| blob(&store, "")).collect();
    for to in &clones {
        commit(&store, [Op::Clone { from, to: *to }]);
    }
    let mut bytes = Vec::new();
    let summary = store.backup(&mut bytes, &()).unwrap();
    assert_eq!(summary.content_bytes, 80 * CHUNK as u64);
    assert!(bytes.len() < 9 * CHUNK, "{} bytes", bytes.len());
    assert_eq!(summary.archive_bytes, bytes.len() as u64);
    let dir = dir.path().join("second");
    let restored = restore(&dir, &bytes).unwrap();
    assert_eq!(restored.status().blob_bytes, 8 * CHUNK as u64);
    // Deleting one of them does not affect the others.
    commit(&restored, [Op::Delete { oid: from }]);
    restored.install().unwrap();
    drop(restored);
    let restored = Store::open(&dir, options()).unwrap();
    for oid in &clones {
        assert_eq!(restored.read(*oid, 0, 1 << 20).unwrap(), pattern(8 * CHUNK, 1));
    }
}

#[test]
fn writers_continue_while_a_backup_archives_one_state() {
    let dir = tempfile::tempdir().unwrap();
    let store = real_store(&dir.path().join("first"));
    let oids: Vec<Oid> = (0..5).map(|_| blob(&store, pattern(2 * CHUNK, 0))).collect();
    let round = Cell::new(0);
    // Every object is changed after each chunk that was copied.
    let busy = |_: Amount| {
        round.set(round.get() + 1);
        for oid in &oids {
            commit(&store, [Op::Put { oid: *oid, data: pattern(2 * CHUNK, round.get()) }]);
        }
        store.install().unwrap();
        ControlFlow::Continue(())
    };
    let mut archive = Vec::new();
    store.backup(&mut archive, &busy).unwrap();
    assert!(round.get() > 5);
    let restored = restore(&dir.path().join("second"), &archive).unwrap();
    for oid in oids {
        assert_eq!(restored.read(oid, 0, 1 << 20).unwrap(), pattern(2 * CHUNK, 0));
    }
}

#[test]
fn an_archive_that_was_cut_anywhere_is_refused_and_leaves_nothing() {
    let store = memory_store();
    for i in 0..40 {
        commit(&store, [create(0, Kind::Blob, pattern(20_000, i)), bind(&format!("{i}"), temporary(0))]);
    }
    let archive = archive(&store);
    let dir = tempfile::tempdir().unwrap();
    for len in (0..archive.len()).step_by(archive.len() / 25).chain([archive.len() - 1]) {
        let error = restore(dir.path(), &archive[..len]).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{len}: {error}");
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["LOCK"]);
    }
    restore(dir.path(), &archive).unwrap();
}

#[test]
fn bytes_after_an_archive_are_refused() {
    let archive = archive(&memory_store());
    let dir = tempfile::tempdir().unwrap();
    for more in [&archive[..], b"\n"] {
        let error = restore(dir.path(), &[&archive, more].concat()).err().unwrap();
        assert!(error.message().contains("more bytes follow after its end"), "{error}");
    }
}

#[test]
fn every_flipped_bit_of_an_archive_is_noticed() {
    let simulated = SimulatedStore::new();
    let oid = blob(&simulated.store, pattern(CHUNK + 100, 3));
    commit(&simulated.store, [bind("name", oid)]);
    let archive = archive(&simulated.store);
    let disk = || std::sync::Arc::new(crate::disk::sim::SimDisk::new()) as std::sync::Arc<dyn crate::disk::Disk>;
    let engine = crate::engine::memory::MemoryEngine::default;
    let restore =
        |mut bytes: &[u8]| super::restore::restore_on(&disk(), &engine(), [1; 16], &small_options(), &mut bytes, &());
    restore(&archive).unwrap();
    let bits = (0..archive.len() * 8).step_by(4999).chain(0..68 * 8).chain((archive.len() - 80) * 8..archive.len() * 8);
    for bit in bits {
        let mut bytes = archive.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(restore(&bytes).is_err(), "bit {bit}");
    }
}

#[test]
fn parts_in_another_order_or_from_another_archive_are_refused() {
    let stores: Vec<Store> = [1, 2]
        .into_iter()
        .map(|seed| {
            let store = memory_store();
            for i in 0..80 {
                commit(&store, [create(0, Kind::Blob, pattern(20_000, i * seed))]);
            }
            store
        })
        .collect();
    let (a, b) = (archive(&stores[0]), archive(&stores[1]));
    let parts = |bytes: &[u8]| {
        let mut parts = vec![bytes[..48].to_vec()];
        let mut at = 48;
        while at < bytes.len() {
            let len = 20 + u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
            parts.push(bytes[at..at + len].to_vec());
            at += len;
        }
        parts
    };
    let (a, b) = (parts(&a), parts(&b));
    assert!(a.len() > 5);
    let dir = tempfile::tempdir().unwrap();
    let mut swapped = a.clone();
    swapped.swap(2, 3);
    let mut missing = a.clone();
    missing.remove(3);
    let mut foreign = a.clone();
    foreign[2] = b[2].clone();
    for wrong in [swapped, missing, foreign] {
        assert_eq!(restore(dir.path(), &wrong.concat()).err().unwrap().kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn a_damaged_object_stops_the_backup_by_name() {
    let simulated = SimulatedStore::new();
    blob(&simulated.store, pattern(2 * CHUNK, 1));
    let oid = blob(&simulated.store, pattern(2 * CHUNK, 2));
    let file = crate::content::blob_file::file_name(1);
    simulated.disk.damage(&file, 3 * CHUNK + 5000, |bytes| bytes[0] ^= 1);
    let error = simulated.store.backup(&mut Vec::new(), &()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains(&oid.to_string()), "{error}");
    assert!(error.message().contains("69632..73728"), "{error}");
}

#[test]
fn only_an_empty_directory_is_restored_into() {
    let archive = archive(&memory_store());
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("precious"), "data").unwrap();
    let error = restore(dir.path(), &archive).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("precious"), "{error}");
    let inner = dir.path().join("new/one");
    let store = restore(&inner, &archive).unwrap();
    assert_eq!(restore(&inner, &archive).err().unwrap().kind(), ErrorKind::Unavailable);
    drop(store);
    assert_eq!(restore(&inner, &archive).err().unwrap().kind(), ErrorKind::Invalid);
    assert_eq!(std::fs::read(dir.path().join("precious")).unwrap(), b"data");
}

#[test]
fn an_interrupted_restore_is_recognized() {
    let store = memory_store();
    blob(&store, pattern(3 * CHUNK, 1));
    let archive = archive(&store);
    let dir = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    // The remains of a crash during a restore.
    let keep = |_: Amount| {
        std::fs::copy(dir.path().join(crate::directory::RESTORING), copy.path().join(crate::directory::RESTORING))
            .unwrap();
        std::fs::create_dir_all(copy.path().join("tree")).unwrap();
        ControlFlow::Continue(())
    };
    Store::restore(dir.path(), &mut &archive[..], options(), &keep).unwrap();
    for error in [Store::open(copy.path(), options()).err(), restore(copy.path(), &archive).err()] {
        let error = error.unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.message().contains("interrupted"), "{error}");
    }
    assert!(!dir.path().join(crate::directory::RESTORING).exists());
}

#[test]
fn a_store_in_the_directory_of_an_interrupted_restore_is_noticed() {
    assert_noticed(&[RecoveryBug::InterruptedRestoreOpened], an_interrupted_restore_is_recognized);
}

#[test]
fn a_stopped_job_leaves_nothing_behind() {
    let store = memory_store();
    blob(&store, pattern(3 * CHUNK, 1));
    let stop = |_: Amount| ControlFlow::Break(());
    let error = store.backup(&mut Vec::new(), &stop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let dir = tempfile::tempdir().unwrap();
    let error = Store::restore(dir.path(), &mut &archive(&store)[..], options(), &stop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    restore(dir.path(), &archive(&store)).unwrap();
}

#[test]
fn other_bytes_and_newer_archives_are_refused_with_different_errors() {
    let dir = tempfile::tempdir().unwrap();
    let error = restore(dir.path(), &[b'x'; 100]).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let mut newer = archive(&memory_store());
    newer[8] = 9;
    assert_eq!(restore(dir.path(), &newer).err().unwrap().kind(), ErrorKind::Unsupported);
}

#[test]
fn a_writer_that_fails_ends_the_backup() {
    struct Full;
    impl io::Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    assert_eq!(memory_store().backup(&mut Full, &()).unwrap_err().kind(), ErrorKind::Full);
}

/// An archive written by version 0.1.0, and its contents.
const FORMAT_1: &[u8] = include_bytes!("fixtures/format-1.archive");
const FORMAT_1_CONTENTS: &str = include_str!("fixtures/format-1.contents");
/// An archive with rows.
const FORMAT_2: &[u8] = include_bytes!("fixtures/format-2.archive");
const FORMAT_2_CONTENTS: &str = include_str!("fixtures/format-2.contents");

#[test]
fn archives_of_every_format_stay_readable() {
    for (archive, expected) in [(FORMAT_1, FORMAT_1_CONTENTS), (FORMAT_2, FORMAT_2_CONTENTS)] {
        let dir = tempfile::tempdir().unwrap();
        let store = restore(dir.path(), archive).unwrap();
        assert_eq!(contents(&store).join("\n"), expected.trim_end());
        assert_eq!(store.status().blob_bytes, CHUNK as u64, "the shared chunk is there once");
        assert!(store.scrub(&()).unwrap().is_clean());
    }
}
