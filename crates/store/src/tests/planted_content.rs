//! Bugs that can be planted in blob files, uploads, backup, restore and scrub. Each test passes without a bug and fails
//! with each of those that it names; together they name all.

use std::sync::Arc;

use model::planted_bug::{PlantedBug, assert_noticed};

use super::audit::{audit, check_leaks};
use super::world::{SimulatedStore, small_options};
use super::*;
use crate::backup::restore::restore_on;
use crate::backup::tests::increments::INCREMENTS;
use crate::content::blob_file::file_name;
use crate::disk::Disk;
use crate::disk::sim::SimDisk;
use crate::engine::Engine;
use crate::engine::memory::MemoryEngine;
use crate::plant::ContentBug;
use crate::rows::key::Key;

const CHUNK: usize = 64 << 10;

/// The bugs that the tests of this file and of `blob_file` name.
const NAMED: [&[ContentBug]; 9] =
    [&COMMITTED, &[ContentBug::FailedFileReused], &READ, &FREED, &SWEPT, &UPLOADED, &RESTORED, &INCREMENTS, &SCRUBBED];

const COMMITTED: [ContentBug; 2] = [ContentBug::ChunksNotForced, ContentBug::BlobNameNotForced];
const READ: [ContentBug; 1] = [ContentBug::ChunkNotChecked];
const FREED: [ContentBug; 1] = [ContentBug::ChunkFreedUnderReader];
const SWEPT: [ContentBug; 2] = [ContentBug::SweepIgnoresBuffer, ContentBug::FreedChunksForgotten];
const UPLOADED: [ContentBug; 4] = [
    ContentBug::UploadIsGarbage,
    ContentBug::UploadTakesLateBytes,
    ContentBug::FailedUploadContinues,
    ContentBug::AbortedUploadKept,
];
const RESTORED: [ContentBug; 4] = [
    ContentBug::PatchesNotBackedUp,
    ContentBug::CutArchiveRestored,
    ContentBug::RestoredChunksNotForced,
    ContentBug::RestoredChunksNotUsed,
];
const SCRUBBED: [ContentBug; 2] = [ContentBug::ScrubTrustsChunks, ContentBug::ScrubTrustsExtents];

#[test]
fn every_bug_of_the_list_is_named_by_a_test() {
    let unnamed: Vec<_> = ContentBug::ALL.iter().filter(|bug| !NAMED.iter().any(|bugs| bugs.contains(bug))).collect();
    assert!(unnamed.is_empty(), "no test names {unnamed:?}");
}

#[test]
fn acknowledged_chunks_survive_a_crash() {
    assert_noticed(&COMMITTED, || {
        let world = SimulatedStore::new();
        let id = content(&world.store, pattern(3 * CHUNK, 1));
        for seed in 0..8 {
            assert_eq!(bytes(&world.crash(seed).unwrap().store, id), pattern(3 * CHUNK, 1));
        }
    });
}

#[test]
fn damaged_chunks_are_not_read() {
    assert_noticed(&READ, || {
        let world = SimulatedStore::new();
        let id = content(&world.store, pattern(2 * CHUNK, 1));
        world.disk.damage(&file_name(1), 4096 + CHUNK + 100, |bytes| bytes[0] ^= 1);
        for (offset, len) in [(0, 2 * CHUNK), (CHUNK, CHUNK), (CHUNK + 50, 100)] {
            let read = world.store.read_content(id, offset as u64, len as u64);
            assert_eq!(read.unwrap_err().kind(), ErrorKind::Corrupt, "{len} bytes from {offset}");
        }
    });
}

#[test]
fn chunks_stay_as_long_as_a_content_or_a_snapshot_shows_them() {
    assert_noticed(&FREED, || {
        let world = SimulatedStore::new();
        let (gone, kept) = (content(&world.store, pattern(3 * CHUNK, 1)), content(&world.store, pattern(3 * CHUNK, 2)));
        let snapshot = world.store.snapshot().unwrap();
        commit(&world.store, [delete(gone)]);
        for _ in 0..3 {
            world.store.install().unwrap();
            world.core().do_housekeeping().unwrap();
            world.store.force().unwrap();
        }
        audit(&world.store);
        assert_eq!(bytes(&world.store, kept), pattern(3 * CHUNK, 2));
        assert_eq!(snapshot.read_content(gone, 0, 1 << 20).unwrap(), pattern(3 * CHUNK, 1));
        drop(snapshot);
        world.run_housekeeping();
        check_leaks(&world);
    });
}

#[test]
fn a_restarted_store_keeps_what_is_used_and_frees_the_rest() {
    assert_noticed(&SWEPT, || {
        let world = SimulatedStore::new();
        let id = content(&world.store, pattern(3 * CHUNK, 1));
        // The chunks are named in the log only when the files of the first opening are swept.
        let world = world.crash(1).unwrap();
        world.core().do_housekeeping().unwrap();
        assert_eq!(bytes(&world.store, id), pattern(3 * CHUNK, 1));
        world.run_housekeeping();
        commit(&world.store, [delete(id)]);
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

#[test]
fn uploads_are_whole_or_nothing() {
    assert_noticed(&UPLOADED, || {
        let world = SimulatedStore::new();
        let store = &world.store;
        let id = new_id();
        // Enough chunks that some are logged before the change that takes them.
        let taken = upload(store, &pattern(300 * CHUNK, 1));
        store.install().unwrap();
        world.core().do_housekeeping().unwrap();
        store.force().unwrap();
        let late = world.core().uploads.find(taken).unwrap();
        commit(store, [take(id, taken)]);
        assert!(
            world.core().add_to_upload(&late, pattern(300 * CHUNK, 2)).is_err(),
            "bytes after the upload was taken"
        );
        assert!(bytes(store, id) == pattern(300 * CHUNK, 1), "a content is as it was uploaded");
        audit(store);

        let full = upload(store, &pattern(200 * CHUNK, 1));
        content(store, pattern(60_000, 1));
        world.disk.set_free_bytes(Some(100 * CHUNK));
        assert_eq!(store.upload(full, pattern(100 * CHUNK, 2)).unwrap_err().kind(), ErrorKind::Full);
        world.disk.set_free_bytes(None);
        assert!(store.upload(full, pattern(CHUNK, 3)).is_err(), "an upload without a part of its bytes");

        let aborted = upload(store, &pattern(3 * CHUNK, 1));
        store.abort_upload(aborted);
        world.run_housekeeping();
        check_leaks(&world);
    });
}

/// Contents, of which one has a change that is not installed, and the archive of their store.
fn make_archive() -> (Vec<(ContentId, Vec<u8>)>, Vec<u8>) {
    let world = SimulatedStore::new();
    let all = [content(&world.store, pattern(6 * CHUNK, 1)), content(&world.store, pattern(99_000, 2))];
    world.store.install().unwrap();
    commit(&world.store, [write(all[1], 70_000, "changed")]);
    let mut archive = Vec::new();
    world.store.backup(&mut archive, &()).unwrap();
    (all.map(|id| (id, bytes(&world.store, id))).to_vec(), archive)
}

/// The store of an archive after a power failure right after the restore.
fn restore_and_crash(archive: &[u8], seed: u64) -> model::Result<SimulatedStore> {
    let (disk, engine) = (SimDisk::new(), MemoryEngine::default());
    let on: Arc<dyn Disk> = Arc::new(disk.clone());
    restore_on(&on, &engine, [7; 16], &small_options(), (vec![Box::new(archive)], 0), &())?;
    SimulatedStore::open(disk.crash(seed), engine.image())
}

#[test]
fn a_restored_store_is_the_one_of_the_backup() {
    assert_noticed(&RESTORED, || {
        let (contents, archive) = make_archive();
        for seed in 0..8 {
            let world = restore_and_crash(&archive, seed).unwrap();
            for (id, expected) in &contents {
                assert!(bytes(&world.store, *id) == *expected, "{id} is as it was");
            }
            audit(&world.store);
            assert_eq!(world.store.scrub(&()).unwrap().damage, []);
        }
        // Every length at which a part ends.
        let mut at = 49;
        while at < archive.len() {
            assert!(restore_and_crash(&archive[..at], 0).is_err(), "{at} of {} bytes are restored", archive.len());
            at += 20 + u32::from_le_bytes(archive[at..at + 4].try_into().unwrap()) as usize;
        }
    });
}

#[test]
fn a_scrub_finds_damaged_chunks_and_wrong_records() {
    assert_noticed(&SCRUBBED, || {
        let world = SimulatedStore::new();
        content(&world.store, pattern(2 * CHUNK, 1));
        world.store.install().unwrap();
        let removed = (Key::extent(1, 0), None);
        world.engine.write(&mut [Ok(removed)].into_iter()).unwrap();
        assert_eq!(world.store.scrub(&()).unwrap().damaged, 1);
        let unused = (Key::extent(1, 5 * CHUNK as u64), Some(Bytes::copy_from_slice(&(CHUNK as u32).to_le_bytes())));
        world.engine.write(&mut [Ok(unused)].into_iter()).unwrap();
        assert_eq!(world.store.scrub(&()).unwrap().damaged, 2);
        world.disk.damage(&file_name(1), 4096 + CHUNK + 100, |bytes| bytes[0] ^= 1);
        assert_eq!(world.store.scrub(&()).unwrap().damaged, 3);
    });
}
