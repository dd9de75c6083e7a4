//! Bugs that can be planted in blob files, uploads, backup, restore and scrub. Each test passes without a bug and fails
//! with each of those that it names; together they name all.

use std::sync::Arc;

use model::planted_bug::{PlantedBug, assert_noticed};

use super::audit::{audit, check_leaks};
use super::world::{SimulatedStore, small_options};
use super::*;
use crate::backup::restore::restore_on;
use crate::content::blob_file::file_name;
use crate::disk::Disk;
use crate::disk::sim::SimDisk;
use crate::engine::Engine;
use crate::engine::memory::MemoryEngine;
use crate::plant::ContentBug;
use crate::rows::key::Key;
use crate::rows::row::ExtentUse;

const CHUNK: usize = 64 << 10;

/// The bugs that the tests of this file and of `blob_file` name.
const NAMED: [&[ContentBug]; 8] =
    [&COMMITTED, &[ContentBug::FailedFileReused], &READ, &SHARED, &SWEPT, &UPLOADED, &RESTORED, &SCRUBBED];

const COMMITTED: [ContentBug; 2] = [ContentBug::ChunksNotForced, ContentBug::BlobNameNotForced];
const READ: [ContentBug; 1] = [ContentBug::ChunkNotChecked];
const SHARED: [ContentBug; 2] = [ContentBug::SharedChunkFreed, ContentBug::ChunkFreedUnderReader];
const SWEPT: [ContentBug; 2] = [ContentBug::SweepIgnoresBuffer, ContentBug::FreedChunksForgotten];
const UPLOADED: [ContentBug; 4] = [
    ContentBug::UploadIsGarbage,
    ContentBug::UploadTakesLateBytes,
    ContentBug::FailedUploadContinues,
    ContentBug::AbortedUploadKept,
];
const RESTORED: [ContentBug; 5] = [
    ContentBug::PatchesNotBackedUp,
    ContentBug::CutArchiveRestored,
    ContentBug::RestoredChunksNotForced,
    ContentBug::RestoredUsersNotCounted,
    ContentBug::RestoredPagesReused,
];
const SCRUBBED: [ContentBug; 2] = [ContentBug::ScrubTrustsChunks, ContentBug::ScrubTrustsUserCounts];

#[test]
fn every_bug_of_the_list_is_named_by_a_test() {
    let unnamed: Vec<_> = ContentBug::ALL.iter().filter(|bug| !NAMED.iter().any(|bugs| bugs.contains(bug))).collect();
    assert!(unnamed.is_empty(), "no test names {unnamed:?}");
}

fn content(store: &Store, oid: Oid) -> Bytes {
    store.read(oid, 0, 8 << 20).unwrap()
}

#[test]
fn acknowledged_chunks_survive_a_crash() {
    assert_noticed(&COMMITTED, || {
        let world = SimulatedStore::new();
        let oid = blob(&world.store, pattern(3 * CHUNK, 1));
        for seed in 0..8 {
            assert_eq!(content(&world.crash(seed).unwrap().store, oid), pattern(3 * CHUNK, 1));
        }
    });
}

#[test]
fn damaged_chunks_are_not_read() {
    assert_noticed(&READ, || {
        let world = SimulatedStore::new();
        let oid = blob(&world.store, pattern(2 * CHUNK, 1));
        world.disk.damage(&file_name(1), CHUNK + 100, |bytes| bytes[0] ^= 1);
        for (offset, len) in [(0, 2 * CHUNK), (CHUNK, CHUNK), (CHUNK + 50, 100)] {
            let read = world.store.read(oid, offset as u64, len as u64);
            assert_eq!(read.unwrap_err().kind(), ErrorKind::Corrupt, "{len} bytes from {offset}");
        }
    });
}

#[test]
fn chunks_stay_as_long_as_an_object_or_a_snapshot_shows_them() {
    assert_noticed(&SHARED, || {
        let world = SimulatedStore::new();
        let (oid, clone) = (blob(&world.store, pattern(3 * CHUNK, 1)), blob(&world.store, ""));
        commit(&world.store, [Op::Clone { from: oid, to: clone }]);
        let snapshot = world.store.snapshot().unwrap();
        let keep_house = || {
            for _ in 0..3 {
                world.store.install().unwrap();
                world.core().do_housekeeping().unwrap();
                world.store.force().unwrap();
            }
        };
        commit(&world.store, [Op::Delete { oid }]);
        keep_house();
        audit(&world.store);
        assert_eq!(content(&world.store, clone), pattern(3 * CHUNK, 1));
        commit(&world.store, [Op::Delete { oid: clone }]);
        keep_house();
        assert_eq!(snapshot.read(oid, 0, 1 << 20).unwrap(), pattern(3 * CHUNK, 1));
        drop(snapshot);
        world.run_housekeeping();
        check_leaks(&world);
    });
}

#[test]
fn a_restarted_store_keeps_what_is_used_and_frees_the_rest() {
    assert_noticed(&SWEPT, || {
        let world = SimulatedStore::new();
        let oid = blob(&world.store, pattern(3 * CHUNK, 1));
        // The chunks are named in the log only when the files of the first opening are swept.
        let world = world.crash(1).unwrap();
        world.core().do_housekeeping().unwrap();
        assert_eq!(content(&world.store, oid), pattern(3 * CHUNK, 1));
        world.run_housekeeping();
        commit(&world.store, [Op::Delete { oid }]);
        // The removal is installed, and the machine stops before the storage is freed.
        for _ in 0..3 {
            world.store.install().unwrap();
            world.core().reclaim().unwrap();
            world.store.force().unwrap();
        }
        let world = world.crash(2).unwrap();
        world.run_housekeeping();
        check_leaks(&world);
    });
}

fn upload(store: &Store, len: usize) -> model::UploadId {
    let upload = store.begin_upload().unwrap();
    store.upload(upload, pattern(len, 1)).unwrap();
    upload
}

#[test]
fn uploads_are_whole_or_nothing() {
    assert_noticed(&UPLOADED, || {
        let world = SimulatedStore::new();
        let store = &world.store;
        let oid = blob(store, "");
        // Enough chunks that some are logged before the transaction.
        let id = upload(store, 300 * CHUNK);
        store.install().unwrap();
        world.core().do_housekeeping().unwrap();
        store.force().unwrap();
        let late = world.core().uploads.find(id).unwrap();
        commit(store, [Op::PutUpload { oid, upload: id }]);
        assert!(
            world.core().add_to_upload(&late, pattern(300 * CHUNK, 2)).is_err(),
            "bytes after the upload was taken"
        );
        let stored: Vec<u8> = (0..3).flat_map(|i| store.read(oid, i * (8 << 20), 8 << 20).unwrap()).collect();
        assert!(stored == pattern(300 * CHUNK, 1), "the content of an upload is as it was sent");
        audit(store);

        let id = upload(store, 200 * CHUNK);
        blob(store, pattern(60_000, 1));
        world.disk.set_free_bytes(Some(100 * CHUNK));
        assert_eq!(store.upload(id, pattern(100 * CHUNK, 2)).unwrap_err().kind(), ErrorKind::Full);
        world.disk.set_free_bytes(None);
        assert!(store.upload(id, pattern(CHUNK, 3)).is_err(), "an upload without a part of its bytes");

        let id = upload(store, 3 * CHUNK);
        store.abort_upload(id);
        world.run_housekeeping();
        check_leaks(&world);
    });
}

/// Objects of which some share chunks and one has a change that is not installed, and the archive of their store.
fn archived() -> (Vec<(Oid, Bytes)>, Vec<u8>) {
    let world = SimulatedStore::new();
    let oids =
        [blob(&world.store, pattern(6 * CHUNK, 1)), blob(&world.store, ""), blob(&world.store, pattern(99_000, 2))];
    commit(&world.store, [Op::Clone { from: oids[0], to: oids[1] }]);
    world.store.install().unwrap();
    commit(&world.store, [Op::Write { oid: oids[2], offset: 70_000, data: "changed".into() }]);
    let mut archive = Vec::new();
    world.store.backup(&mut archive, &()).unwrap();
    (oids.map(|oid| (oid, content(&world.store, oid))).to_vec(), archive)
}

/// The store of an archive after a power failure right after the restore.
fn restored(mut archive: &[u8], seed: u64) -> model::Result<SimulatedStore> {
    let (disk, engine) = (SimDisk::new(), MemoryEngine::default());
    let on: Arc<dyn Disk> = Arc::new(disk.clone());
    restore_on(&on, &engine, [7; 16], &small_options(), &mut archive, &())?;
    SimulatedStore::open(disk.crash(seed), engine.image())
}

#[test]
fn a_restored_store_is_the_one_of_the_backup() {
    assert_noticed(&RESTORED, || {
        let (objects, archive) = archived();
        for seed in 0..8 {
            let world = restored(&archive, seed).unwrap();
            for (oid, bytes) in &objects {
                assert!(content(&world.store, *oid) == *bytes, "{oid} is as it was");
            }
            audit(&world.store);
            assert_eq!(world.store.scrub(&()).unwrap().damage, []);
            let fresh = blob(&world.store, "new");
            assert!(objects.iter().all(|(oid, _)| oid.page() != fresh.page() || oid.slot() != fresh.slot()));
        }
        // Every length at which a part ends.
        let mut at = 48;
        while at < archive.len() {
            assert!(restored(&archive[..at], 0).is_err(), "{at} of {} bytes are restored", archive.len());
            at += 20 + u32::from_le_bytes(archive[at..at + 4].try_into().unwrap()) as usize;
        }
    });
}

#[test]
fn a_scrub_finds_damaged_chunks_and_wrong_counts() {
    assert_noticed(&SCRUBBED, || {
        let world = SimulatedStore::new();
        blob(&world.store, pattern(2 * CHUNK, 1));
        world.store.install().unwrap();
        let row = ExtentUse { len: CHUNK as u32, users: 2 }.encode();
        let count = (Key::extent(1, 0), Some(Bytes::copy_from_slice(&row)));
        world.engine.write(&mut [Ok(count)].into_iter()).unwrap();
        assert_eq!(world.store.scrub(&()).unwrap().damaged, 1);
        world.disk.damage(&file_name(1), CHUNK + 100, |bytes| bytes[0] ^= 1);
        assert_eq!(world.store.scrub(&()).unwrap().damaged, 2);
    });
}
