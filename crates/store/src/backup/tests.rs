use std::cell::Cell;
use std::fs::Permissions;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use model::planted_bug::assert_noticed;
use model::{ContentId, ErrorKind};

use super::archive::{ArchiveHeader, ArchiveKind, ArchiveSink, ArchiveWriter};
use super::item;
use super::item::tests::ITEMS;
use crate::plant::RecoveryBug;
use crate::tests::world::{SimulatedStore, memory_store, on_every_store, real_store, small_options};
use crate::tests::{
    check_corpus, commit, content, create, delete, ids, new_id, pattern, replace, take, truncate, upload, write, zero,
};
use crate::{Amount, Options, RestoreTarget, RowChanges, Store, damaged_content};

mod changes;
pub(crate) mod increments;

const CHUNK: usize = 64 << 10;

/// All contents and rows of a store as text.
pub(super) fn everything(store: &Store) -> Vec<String> {
    let snapshot = store.snapshot().unwrap();
    let mut all = Vec::new();
    for id in snapshot.contents(ContentId(0), ContentId(u128::MAX), 10_000).unwrap() {
        let (size, bytes) =
            (snapshot.content_size(id).unwrap().unwrap(), snapshot.read_content(id, 0, 1 << 24).unwrap());
        all.push(format!("content {id} {size} {:08x}", crate::checksum::crc32c(&bytes)));
    }
    let rows = snapshot.rows(&[], &[0xff; 401], |key, value| {
        all.push(format!("row {key:x?} {:08x}", crate::checksum::crc32c(value)));
        ControlFlow::Continue(())
    });
    rows.unwrap();
    all
}

/// Fills a store with contents of every form and four rows; `settle` moves changes to the B-tree. Returns the contents.
pub(crate) fn populate(store: &Store, settle: &dyn Fn()) -> Vec<ContentId> {
    let sizes = [0, 1, 5000, CHUNK - 1, CHUNK, 3 * CHUNK, 5 * CHUNK + 77, 4 * CHUNK];
    let mut all: Vec<ContentId> = sizes.iter().map(|len| content(store, pattern(*len, 1))).collect();
    settle();
    commit(store, [write(all[5], 70_000, "patched")]);
    settle();
    commit(store, [write(all[6], 10, "patched"), write(all[1], 400_000, "sparse")]);
    commit(store, [zero(all[7], CHUNK, 2 * CHUNK), truncate(all[6], 3 * CHUNK + 5)]);
    all.extend([ContentId(0), ContentId(u128::MAX - 1)]);
    commit(store, [create(ContentId(0), "least"), create(ContentId(u128::MAX - 1), pattern(CHUNK + 1, 8))]);
    // Deleted and unfinished bytes are not in a backup.
    let deleted = content(store, pattern(4 * CHUNK, 5));
    commit(store, [delete(deleted)]);
    upload(store, &pattern(300 * CHUNK, 6));
    let (id, done) = (new_id(), upload(store, &pattern(3 * CHUNK + 9, 7)));
    commit(store, [take(id, done)]);
    all.push(id);
    let mut rows = RowChanges::new();
    for (key, len) in [(&b"a"[..], 0), (b"b", 100), (b"deleted", 5), (&[0xff; 400], 5 << 20), (b"large", 70_000)] {
        rows.put(key, pattern(len, 9));
    }
    store.commit_rows(rows).unwrap();
    let mut rows = RowChanges::new();
    rows.remove(b"deleted");
    store.commit_rows(rows).unwrap();
    all
}

fn archive(store: &Store) -> Vec<u8> {
    let mut archive = Vec::new();
    store.backup(&mut archive, &()).unwrap();
    archive
}

pub(super) fn options() -> Options {
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
        let before = everything(store);
        let mut archive = Vec::new();
        let summary = store.backup(&mut archive, &()).unwrap();
        assert_eq!((summary.contents, summary.rows, summary.archive_bytes), (11, 4, archive.len() as u64));
        let dir = tempfile::tempdir().unwrap();
        let restored = restore(dir.path(), &archive).unwrap();
        assert_eq!(everything(&restored), before);
        // It continues after the position of the archive.
        assert!(commit(&restored, [create(new_id(), "x")]) > summary.version);
        assert!(restored.status().incarnation > store.status().incarnation);
        let changed = everything(&restored);
        restored.close().unwrap();
        assert_eq!(everything(&Store::open(dir.path(), options()).unwrap()), changed);
    });
}

#[test]
fn log_of_a_restored_store_begins_with_a_short_segment_and_goes_on_with_others() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(&memory_store());
    let (place, options) = (dir.path().join("restored"), Options { threads: true, ..Options::default() });
    Store::restore(&place, &mut &archive[..], options.clone(), &()).unwrap();
    let first = place.join("log/0000000000000001.seg").metadata().unwrap().len();
    assert!(first < options.segment_bytes / 4, "{first} bytes");
    let store = Store::open(&place, options.clone()).unwrap();
    for part in 0..3 {
        let mut rows = RowChanges::new();
        rows.put(&[part], pattern(first as usize, part));
        store.commit_rows(rows).unwrap();
    }
    let before = everything(&store);
    store.close().unwrap();
    assert_eq!(everything(&Store::open(&place, options).unwrap()), before);
}

#[test]
fn a_restored_store_backs_up_to_the_same_contents_and_can_be_changed() {
    let dir = tempfile::tempdir().unwrap();
    let store = real_store(&dir.path().join("first"));
    let all = populate(&store, &|| store.install().unwrap());
    let first = archive(&store);
    let restored = restore(&dir.path().join("second"), &first).unwrap();
    let second = archive(&restored);
    assert_eq!(everything(&restore(&dir.path().join("third"), &second).unwrap()), everything(&store));
    for id in all {
        commit(&restored, [delete(id)]);
    }
    restored.install().unwrap();
    assert_eq!(ids(&restored), []);
}

#[test]
fn each_chunk_is_in_the_archive_once_and_keeps_its_position() {
    let dir = tempfile::tempdir().unwrap();
    let store = real_store(&dir.path().join("first"));
    let all: Vec<ContentId> = (0..5).map(|seed| content(&store, pattern(2 * CHUNK, seed))).collect();
    commit(&store, [delete(all[0]), truncate(all[1], CHUNK)]);
    let mut bytes = Vec::new();
    let summary = store.backup(&mut bytes, &()).unwrap();
    assert_eq!(summary.content_bytes, 7 * CHUNK as u64);
    assert!((7 * CHUNK..8 * CHUNK).contains(&bytes.len()), "{} bytes", bytes.len());
    let restored = restore(&dir.path().join("second"), &bytes).unwrap();
    // Positions keep the gaps of chunks that were freed.
    assert_eq!(restored.status().blob_bytes, 10 * CHUNK as u64);
    // New chunks come into another file.
    let new = content(&restored, pattern(2 * CHUNK, 9));
    assert_eq!(restored.status().blob_bytes, 12 * CHUNK as u64);
    for (id, seed, len) in [(all[1], 1, CHUNK), (all[2], 2, 2 * CHUNK), (all[4], 4, 2 * CHUNK), (new, 9, 2 * CHUNK)] {
        assert_eq!(restored.read_content(id, 0, 1 << 20).unwrap(), pattern(len, seed));
    }
    assert!(restored.scrub(&()).unwrap().is_clean());
}

#[test]
fn writers_continue_while_a_backup_archives_one_state() {
    let dir = tempfile::tempdir().unwrap();
    let store = real_store(&dir.path().join("first"));
    let all: Vec<ContentId> = (0..5).map(|_| content(&store, pattern(2 * CHUNK, 0))).collect();
    let round = Cell::new(0);
    // Every content is changed after each chunk that was copied.
    let busy = |_: Amount| {
        round.set(round.get() + 1);
        for id in &all {
            commit(&store, replace(*id, pattern(2 * CHUNK, round.get())));
        }
        store.install().unwrap();
        ControlFlow::Continue(())
    };
    let mut archive = Vec::new();
    store.backup(&mut archive, &busy).unwrap();
    assert!(round.get() > 5);
    let restored = restore(&dir.path().join("second"), &archive).unwrap();
    for id in all {
        assert_eq!(restored.read_content(id, 0, 1 << 20).unwrap(), pattern(2 * CHUNK, 0));
    }
}

#[test]
fn an_archive_that_was_cut_anywhere_is_refused_and_leaves_nothing() {
    let store = memory_store();
    for i in 0..40 {
        let mut changes = RowChanges::new();
        changes.put(&[i], pattern(100, i));
        changes.content(create(new_id(), pattern(20_000, i)));
        store.commit_rows(changes).unwrap();
    }
    let archive = archive(&store);
    let dir = tempfile::tempdir().unwrap();
    for len in (0..archive.len()).step_by(archive.len() / 25).chain([archive.len() - 1]) {
        let error = restore(dir.path(), &archive[..len]).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{len}: {error}");
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(left.is_empty(), "{left:?}");
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
    content(&simulated.store, pattern(CHUNK + 100, 3));
    let mut row = RowChanges::new();
    row.put(b"row", "value".into());
    simulated.store.commit_rows(row).unwrap();
    let archive = archive(&simulated.store);
    let disk = || std::sync::Arc::new(crate::disk::sim::SimDisk::new()) as std::sync::Arc<dyn crate::disk::Disk>;
    let engine = crate::engine::memory::MemoryEngine::default;
    let restore = |bytes: &[u8]| {
        super::restore::restore_on(&disk(), &engine(), [1; 16], &small_options(), (vec![Box::new(bytes)], 0), &())
    };
    restore(&archive).unwrap();
    let bits = (0..archive.len() * 8).step_by(4999).chain(0..69 * 8).chain((archive.len() - 80) * 8..archive.len() * 8);
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
                content(&store, pattern(20_000, i * seed));
            }
            store
        })
        .collect();
    let (a, b) = (archive(&stores[0]), archive(&stores[1]));
    let parts = |bytes: &[u8]| {
        let mut parts = vec![bytes[..49].to_vec()];
        let mut at = 49;
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
fn a_damaged_content_stops_the_backup_by_name() {
    let simulated = SimulatedStore::new();
    content(&simulated.store, pattern(2 * CHUNK, 1));
    let id = content(&simulated.store, pattern(2 * CHUNK, 2));
    let file = crate::content::blob_file::file_name(1);
    simulated.disk.damage(&file, 4096 + 3 * CHUNK + 5000, |bytes| bytes[0] ^= 1);
    let error = simulated.store.backup(&mut Vec::new(), &()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains(&format!("content {id} is damaged")), "{error}");
    assert!(error.message().contains("69632..73728"), "{error}");
    assert_eq!(damaged_content(&error), Some(id));
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
    content(&store, pattern(3 * CHUNK, 1));
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
    content(&store, pattern(3 * CHUNK, 1));
    let stop = |_: Amount| ControlFlow::Break(());
    let error = store.backup(&mut Vec::new(), &stop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let dir = tempfile::tempdir().unwrap();
    let error = Store::restore(dir.path(), &mut &archive(&store)[..], options(), &stop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    restore(dir.path(), &archive(&store)).unwrap();
}

#[test]
fn a_failed_restore_removes_the_directory_only_if_it_has_made_it() {
    let archive = archive(&memory_store());
    let (dir, parent) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let new = parent.path().join("a/b");
    for place in [&new, dir.path()] {
        let failed = restore(place, &archive[..archive.len() - 1]);
        assert_eq!(failed.err().unwrap().kind(), ErrorKind::Corrupt);
        drop(RestoreTarget::begin(place, &options()).unwrap());
    }
    assert!(!new.exists() && dir.path().exists());
    // What another process has put there stays.
    let target = RestoreTarget::begin(&new, &options()).unwrap();
    std::fs::write(new.join("other"), "").unwrap();
    drop(target);
    assert!(new.join("other").exists());
}

#[test]
fn a_failed_restore_leaves_the_mode_of_an_empty_directory_and_a_complete_one_makes_it_private() {
    let archive = archive(&memory_store());
    let dir = tempfile::tempdir().unwrap();
    let mode = || std::fs::metadata(dir.path()).unwrap().permissions().mode() & 0o7777;
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    restore(dir.path(), &archive[..archive.len() - 1]).err().unwrap();
    assert_eq!(mode(), 0o755);
    let target = RestoreTarget::begin(dir.path(), &options()).unwrap();
    assert_eq!(mode(), 0o700);
    drop(target);
    assert_eq!(mode(), 0o755);
    restore(dir.path(), &archive).unwrap();
    assert_eq!(mode(), 0o700);
}

#[test]
fn a_file_is_no_directory_to_restore_into() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    for place in [&file, &file.join("below")] {
        let error = restore(place, &archive(&memory_store())).err().unwrap();
        assert!(error.kind() == ErrorKind::Invalid && error.message().contains("is not a directory"), "{error}");
    }
}

#[test]
fn other_bytes_and_archives_of_other_formats_are_refused_with_different_errors() {
    let dir = tempfile::tempdir().unwrap();
    let error = restore(dir.path(), &[b'x'; 100]).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let mut newer = archive(&memory_store());
    newer[8] = 9;
    for (archive, format) in [(&newer[..], 9), (FORMAT_1, 1), (FORMAT_2, 2), (FORMAT_3, 3)] {
        let error = restore(dir.path(), archive).err().unwrap();
        let expected = format!("the archive has format {format}; this version reads format 4");
        assert!(error.kind() == ErrorKind::Unsupported && error.message().starts_with(&expected), "{error}");
    }
}

#[test]
fn a_writer_that_fails_ends_the_backup() {
    struct Full;
    impl ArchiveSink for Full {
        fn write(&mut self, _: Vec<u8>, _: u32) -> io::Result<Vec<u8>> {
            Err(io::ErrorKind::StorageFull.into())
        }
    }
    assert_eq!(memory_store().backup(&mut Full, &()).unwrap_err().kind(), ErrorKind::Full);
}

#[test]
fn the_inputs_for_fuzzing_are_archives_of_this_format() {
    let header = ArchiveHeader { store: [7; 16], version: 9, time_us: -1, kind: ArchiveKind::Full };
    let mut whole = Vec::new();
    let mut writer = ArchiveWriter::begin(&mut whole, &header).unwrap();
    let (mut inputs, mut id) = (Vec::new(), ContentId(0));
    for (name, item) in &ITEMS {
        if let item::Item::Content { id: of, .. } = item {
            id = *of;
        }
        let position = || super::range::position_of(item, id).unwrap();
        match item {
            item::Item::Incarnation { .. } => writer.write_outside(item).unwrap(),
            item::Item::Extent { bytes, .. } => {
                writer.write_extent(item, crate::rows::row::block_checksums(bytes), position).unwrap();
            }
            _ => writer.write_item(item, position).unwrap(),
        }
        let mut bytes = Vec::new();
        item::encode(&mut bytes, item);
        inputs.push(((*name).to_owned(), bytes));
    }
    writer.end(0).unwrap();
    let engine = crate::engine::memory::MemoryEngine::default();
    let disk = std::sync::Arc::new(crate::disk::sim::SimDisk::new()) as std::sync::Arc<dyn crate::disk::Disk>;
    let archives: Vec<Box<dyn io::Read>> = vec![Box::new(&whole[..])];
    let summary = super::restore::restore_on(&disk, &engine, [1; 16], &options(), (archives, 0), &()).unwrap();
    assert_eq!((summary.version, summary.contents, summary.rows), (9, 1, 2));
    inputs.push(("whole".to_owned(), whole));
    check_corpus("archive", &inputs);
}

/// Archives that were written before the first release: of objects, and of objects and rows.
const FORMAT_1: &[u8] = include_bytes!("fixtures/format-1.archive");
const FORMAT_2: &[u8] = include_bytes!("fixtures/format-2.archive");
const FORMAT_3: &[u8] = include_bytes!("fixtures/format-3.archive");
/// An archive of contents and rows, and what it has.
const FORMAT_4: &[u8] = include_bytes!("fixtures/format-4.archive");
const FORMAT_4_CONTENTS: &str = include_str!("fixtures/format-4.contents");

#[test]
fn an_archive_of_a_store_that_was_opened_too_often_to_open_it_again_is_refused() {
    let header = ArchiveHeader { store: [7; 16], version: 9, time_us: -1, kind: ArchiveKind::Full };
    for (times, is_possible) in [(u32::MAX, false), ((1 << 31) - 1, false), ((1 << 31) - 2, true), (0, true)] {
        let mut whole = Vec::new();
        let mut writer = ArchiveWriter::begin(&mut whole, &header).unwrap();
        writer.write_outside(&item::Item::Incarnation { times }).unwrap();
        writer.end(0).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let restored = restore(&dir.path().join("restored"), &whole).map(drop);
        let expected = if is_possible { Ok(()) } else { Err(ErrorKind::Corrupt) };
        assert_eq!(restored.map_err(|error| error.kind()), expected, "{times}");
    }
}

#[test]
fn archives_of_this_format_stay_readable() {
    let dir = tempfile::tempdir().unwrap();
    let store = restore(dir.path(), FORMAT_4).unwrap();
    assert_eq!(everything(&store).join("\n"), FORMAT_4_CONTENTS.trim_end());
    assert_eq!(store.status().blob_bytes, CHUNK as u64, "the whole chunk");
    assert!(store.scrub(&()).unwrap().is_clean());
}

/// Writes the fixture of this format. Run it only when the format changes.
#[test]
#[ignore = "it writes a fixture"]
fn write_the_fixture_of_this_format() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), options()).unwrap();
    let mut changes = RowChanges::new();
    for (key, len) in [(&b"a"[..], 0), (b"b", 100), (&[0xff; 400], 3000)] {
        changes.put(key, pattern(len, 9));
    }
    for (id, len) in [(1, 0), (7, 5000), (1 << 90, CHUNK + 77), (u128::MAX - 1, 100)] {
        changes.content(create(ContentId(id), pattern(len, id as u8)));
    }
    changes.content(write(ContentId(7), 3 * CHUNK, "sparse"));
    store.commit_rows(changes).unwrap();
    let fixtures = Path::new("src/backup/fixtures");
    std::fs::write(fixtures.join("format-4.archive"), archive(&store)).unwrap();
    std::fs::write(fixtures.join("format-4.contents"), everything(&store).join("\n") + "\n").unwrap();
}
