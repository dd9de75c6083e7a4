//! Disks that fail while the machine runs: with errors, with damage, and by being full.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use super::audit::audit;
use super::reference_model::{ChangeGenerator, Model, compare_all, model_of};
use super::world::{SimulatedStore, memory_store, small_options};
use super::*;
use model::planted_bug::assert_noticed;

use crate::disk::Disk;
use crate::disk::sim::SimDisk;
use crate::engine::FAILED_READS;
use crate::engine::memory::MemoryEngine;
use crate::log::frame;
use crate::plant::{FaultBug, RecoveryBug};
use crate::{RowChanges, RowSequence};
use model::limits;

const CHUNK: usize = 64 << 10;

fn tiny_store() -> SimulatedStore {
    let options = Options { mob_bytes: 128 << 10, segment_bytes: 16 << 10, ..small_options() };
    SimulatedStore::open_with(SimDisk::new(), MemoryEngine::default(), options).unwrap()
}

/// Commits until the disk fails; returns the state that was acknowledged by then, and the state with the change of which
/// nothing is known.
fn work_until_it_fails(world: &SimulatedStore, seed: u64) -> (Model, Option<Model>) {
    let (store, mut maker) = (&world.store, ChangeGenerator::new(seed));
    (maker.contents, maker.scale) = (6, 8);
    let (mut model, mut uncertain) = (Model::default(), None);
    for round in 0..1000 {
        let change = maker.change(&model);
        let (sender, outcome) = mpsc::channel();
        change.submit(store, move |result| sender.send(result).unwrap_or_default());
        let mut worked = store.force();
        let outcome = loop {
            match outcome.try_recv() {
                Ok(outcome) => break Some(outcome),
                // The transaction waits for room.
                Err(_) if worked.is_ok() => worked = store.install().and_then(|()| store.force()),
                // The disk has failed; the reply comes when the store is closed.
                Err(_) => break None,
            }
        };
        match outcome {
            Some(Ok(_)) => model = model.apply(&change, &maker.uploads).unwrap(),
            Some(Err(error)) if error.kind() == ErrorKind::Unknown => {
                uncertain = Some(model.apply(&change, &maker.uploads).unwrap());
                break;
            }
            Some(Err(_)) => {}
            None => {
                uncertain = model.apply(&change, &maker.uploads).ok();
                break;
            }
        }
        if worked.is_ok() && round % 5 == 4 {
            worked = store.install();
        }
        if worked.is_err() {
            break;
        }
        if round % 7 == 6 && world.core().do_housekeeping().is_err() {
            break;
        }
    }
    (model, uncertain)
}

#[test]
fn a_failing_disk_does_not_stop_reads_and_loses_nothing_acknowledged() {
    for seed in 0..150 {
        let world = tiny_store();
        world.disk.stop_after(seed as usize * 2);
        let (model, uncertain) = work_until_it_fails(&world, seed);
        compare_all(&world.store, &model);
        let reopened = world.crash(seed).unwrap();
        audit(&reopened.store);
        // The last transaction may be committed.
        let found = model_of(&reopened.store);
        assert!(found == model || uncertain.is_some_and(|model| found == model), "seed {seed}");
        content(&reopened.store, "and so on");
    }
}

/// A store with batches of one to three frames in its log and a marker after them.
fn store_with_log() -> SimulatedStore {
    let options = Options { segment_bytes: 8 << 10, ..small_options() };
    let world = SimulatedStore::open_with(SimDisk::new(), MemoryEngine::default(), options).unwrap();
    for i in 0..30u8 {
        for _ in 0..=i % 3 {
            submit(&world.store, [create(new_id(), pattern(300, i))]);
        }
        world.store.force().unwrap();
    }
    let core = world.core();
    core.write_marker(&mut core.pipeline.writer.lock());
    core.force().unwrap();
    world
}

#[test]
fn damage_to_any_page_of_the_log_is_cut_at_the_tail_or_refused_by_name() {
    const PAGE: usize = 512;
    let world = store_with_log();
    let all = ids(&world.store);
    let (mut refused, mut cut) = (0, 0);
    for segment in world.disk.list("log").unwrap() {
        let name = format!("log/{segment}");
        for page in 0..world.disk.bytes(&name).len() / PAGE {
            for zeroed in [false, true] {
                let disk = world.disk.image();
                disk.damage(&name, page * PAGE, |bytes| match zeroed {
                    true => bytes[..PAGE].fill(0),
                    false => bytes[PAGE / 2] ^= 0x40,
                });
                // The forced positions that readable frames mention.
                let segments = disk.list("log").unwrap();
                let bytes: Vec<_> = segments.iter().map(|name| disk.bytes(&format!("log/{name}"))).collect();
                let frames = bytes.iter().flat_map(|bytes| frame::scan(bytes, &[7; 16]));
                let forced = frames.map(|(_, header)| header.forced).max().unwrap();
                match SimulatedStore::open(disk, world.engine.image()) {
                    Ok(reopened) => {
                        let version = reopened.store.status().version - 1;
                        assert!(version >= forced, "{name}, page {page}: {version} of {forced}");
                        let kept = ids(&reopened.store);
                        assert_eq!(kept[..], all[..kept.len()]);
                        cut += usize::from(kept.len() < all.len());
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Corrupt);
                        let message = error.message();
                        assert!(message.contains(".seg") || message.contains("log/tail"), "{message}");
                        refused += 1;
                    }
                }
            }
        }
    }
    assert!(refused > 30, "{refused} were refused");
    assert_eq!(cut, 0, "nothing acknowledged is cut");
}

#[test]
fn a_log_without_room_refuses_writes_and_recovers_with_room() {
    let world = SimulatedStore::new();
    let store = &world.store;
    let id = content(store, "before");
    world.disk.set_free_bytes(Some(1000));
    let mut refused = 0;
    for i in 0..20 {
        let result = store.commit_rows(of_contents(replace(id, pattern(10_000, i))));
        let expected = match result {
            Ok(_) => pattern(10_000, i),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                refused += 1;
                continue;
            }
        };
        assert_eq!(bytes(store, id), expected);
    }
    assert!(refused > 0);
    let kept = bytes(store, id);
    assert_eq!(bytes(&world.crash(1).unwrap().store, id), kept);
    world.disk.set_free_bytes(None);
    commit(store, [write(id, kept.len(), "and after")]);
    let expected = [&kept[..], b"and after"].concat();
    assert_eq!(bytes(store, id), expected);
    let world = world.crash(2).unwrap();
    assert_eq!(bytes(&world.store, id), expected);
    audit(&world.store);
}

#[test]
fn a_batch_that_does_not_fit_is_refused_as_a_whole() {
    let world = SimulatedStore::new();
    let id = content(&world.store, "before");
    world.disk.set_free_bytes(Some(1000));
    let (sender, outcomes) = mpsc::channel();
    for i in 0..10 {
        let (change, sender) = (of_contents([write(id, i * 10_000, pattern(10_000, 1))]), sender.clone());
        world.store.submit_rows(change, move |result| sender.send(result.map_err(|e| e.kind())).unwrap());
    }
    assert_eq!(world.store.force().unwrap_err().kind(), ErrorKind::Full);
    drop(sender);
    let outcomes: Vec<_> = outcomes.iter().collect();
    assert!(outcomes.iter().all(|outcome| *outcome == Err(ErrorKind::Full)) && outcomes.len() == 10, "{outcomes:?}");
    assert_eq!(world.store.read_content(id, 0, 100).unwrap(), "before");
    world.disk.set_free_bytes(None);
    commit(&world.store, [write(id, 6, "!")]);
    assert_eq!(world.crash(1).unwrap().store.read_content(id, 0, 100).unwrap(), "before!");
}

#[test]
fn the_applied_changes_of_a_sequence_are_a_prefix_whatever_fails() {
    let (sent, found) = (Cell::new(0u8), RefCell::new(Vec::new()));
    let submit = |store: &Store, sequence: &RowSequence, len: usize| {
        let (mut changes, (sender, told)) = (sequence.changes(), mpsc::channel());
        changes.put(&[sent.replace(sent.get() + 1)], pattern(len, 1));
        store.submit_rows(changes, move |result| sender.send(result.map_err(|e| e.kind())).unwrap());
        found.borrow_mut().push(told);
    };
    let outcomes = || found.take().iter().map(|told| told.try_recv().unwrap().err()).collect::<Vec<_>>();
    let rows = |store: &Store| {
        let mut keys = Vec::new();
        let visit = |key: &[u8], _: &[u8]| {
            keys.push(key[0]);
            ControlFlow::Continue(())
        };
        store.rows(&[], &[0xff; 2], visit).unwrap();
        keys
    };
    let (full, behind, wrong) = (Some(ErrorKind::Full), Some(ErrorKind::Unavailable), Some(ErrorKind::TooLarge));
    // A force fails: everything applied is rolled back, and later changes of the sequence are refused even if they fit.
    let world = SimulatedStore::new();
    let (store, sequence, other) = (&world.store, RowSequence::new(), RowSequence::new());
    submit(store, &sequence, 1);
    store.force().unwrap();
    world.disk.set_free_bytes(Some(1000));
    submit(store, &sequence, 100_000);
    submit(store, &sequence, 1);
    assert_eq!(store.force().unwrap_err().kind(), ErrorKind::Full);
    submit(store, &sequence, 1);
    submit(store, &other, 1);
    store.force().unwrap();
    assert_eq!(outcomes(), [None, full, full, behind, None]);
    assert_eq!((sequence.is_broken(), other.is_broken()), (true, false));
    assert_eq!(rows(store), [0, 4]);
    assert_eq!(rows(&world.crash(1).unwrap().store), [0, 4]);
    // Invalid changes, in order.
    for store in [store, &memory_store()] {
        let sequence = RowSequence::new();
        [1, limits::ROW_VALUE + 1, 1].into_iter().for_each(|len| submit(store, &sequence, len));
        assert!(store.status().in_memory || found.borrow().iter().all(|told| told.try_recv().is_err()));
        store.force().unwrap();
        assert_eq!(outcomes(), [None, wrong, behind]);
    }
    // A full store in memory.
    let store = Store::in_memory(Options { memory_bytes: 1 << 20, ..small_options() }).unwrap();
    let sequence = RowSequence::new();
    sent.set(0);
    [600_000, 600_000, 1].into_iter().for_each(|len| submit(&store, &sequence, len));
    let mut away = RowChanges::new();
    away.remove(&[0]);
    store.commit_rows(away).unwrap();
    submit(&store, &sequence, 1);
    submit(&store, &other, 1);
    assert_eq!(outcomes(), [None, None, full, behind, None]);
    assert_eq!(rows(&store), [1, 4]);
}

#[test]
fn a_write_without_room_in_a_blob_file_is_refused_and_leaves_nothing() {
    let world = SimulatedStore::new();
    let id = content(&world.store, pattern(2 * CHUNK, 1));
    world.disk.set_free_bytes(Some(CHUNK));
    let (kind, message) = refusal(&world.store, replace(id, pattern(8 * CHUNK, 2)));
    assert_eq!(kind, ErrorKind::Full, "{message}");
    assert_eq!(bytes(&world.store, id), pattern(2 * CHUNK, 1));
    world.disk.set_free_bytes(None);
    commit(&world.store, replace(id, pattern(8 * CHUNK, 3)));
    world.run_housekeeping();
    audit(&world.store);
    super::audit::check_leaks(&world);
}

#[test]
fn a_transaction_without_room_in_the_log_leaves_no_chunks() {
    assert_noticed(&[FaultBug::RolledBackChunksKept], || {
        let world = SimulatedStore::new();
        let id = content(&world.store, "");
        // The first segment of the log is nearly full.
        content(&world.store, pattern(60_000, 3));
        // Room for the chunks, but not for another segment.
        world.disk.set_free_bytes(Some(3 * CHUNK + 1000));
        let write = write(id, 10 * CHUNK, pattern(60_000, 2));
        let refused = refusal(&world.store, [create(new_id(), pattern(3 * CHUNK, 1)), write]);
        assert_eq!(refused.0, ErrorKind::Full, "{}", refused.1);
        world.disk.set_free_bytes(None);
        world.run_housekeeping();
        super::audit::check_leaks(&world);
    });
}

#[test]
fn a_store_goes_on_after_its_disk_failed_to_make_a_segment() {
    let world = SimulatedStore::new();
    // The first segment of the log is nearly full.
    let id = content(&world.store, pattern(60_000, 3));
    world.disk.fail_change(2, std::io::ErrorKind::Other);
    let (kind, message) = refusal(&world.store, [write(id, 0, pattern(50_000, 4))]);
    assert!(world.disk.has_failed() && kind == ErrorKind::Io && message.contains("nothing was changed"), "{message}");
    assert_eq!(bytes(&world.store, id), pattern(60_000, 3));
    commit(&world.store, [write(id, 0, pattern(60_000, 5))]);
    assert_eq!(bytes(&world.crash(1).unwrap().store, id), pattern(60_000, 5));
}

#[test]
fn a_store_whose_log_has_failed_accepts_nothing_more() {
    assert_noticed(&[FaultBug::LogFailureForgotten], || {
        let world = SimulatedStore::new();
        // The write of the frame succeeds, and its force fails.
        world.disk.stop_after(1);
        assert_eq!(refusal(&world.store, [create(new_id(), "lost")]).0, ErrorKind::Unknown);
        world.disk.stop_after(usize::MAX);
        assert_eq!(refusal(&world.store, [create(new_id(), "later")]).0, ErrorKind::Io);
    });
}

#[test]
fn rows_of_freed_chunks_are_removed_even_if_a_batch_fails_meanwhile() {
    assert_noticed(&[FaultBug::PunchedRowsForgotten], || {
        let world = SimulatedStore::new();
        let id = content(&world.store, pattern(3 * CHUNK, 1));
        world.store.install().unwrap();
        commit(&world.store, [delete(id)]);
        for _ in 0..3 {
            world.store.install().unwrap();
            world.core().do_housekeeping().unwrap();
            world.store.force().unwrap();
        }
        content(&world.store, "to be installed");
        world.faults.lock().broken = true;
        assert!(world.store.install().is_err());
        world.faults.lock().broken = false;
        world.run_housekeeping();
        super::audit::check_leaks(&world);
    });
}

#[test]
fn a_full_store_in_memory_that_accepts_any_change_is_noticed() {
    assert_noticed(&[FaultBug::FullMemoryIgnored], a_full_store_in_memory_takes_no_more_until_something_is_deleted);
}

#[test]
fn a_full_b_tree_refuses_writes_once_the_buffer_is_full_and_recovers_with_room() {
    let options = Options { threads: true, mob_bytes: 256 << 10, ..small_options() };
    let world = SimulatedStore::open_with(SimDisk::new(), MemoryEngine::default(), options).unwrap();
    world.faults.lock().room = Some(1000);
    let mut kept = Vec::new();
    let error = loop {
        let id = new_id();
        match world.store.commit_rows(of_contents([create(id, pattern(9000, 1))])) {
            Ok(_) => kept.push(id),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert!(world.store.status().disk_full);
    let check = |store: &Store| {
        for id in &kept {
            assert_eq!(bytes(store, *id), pattern(9000, 1));
        }
    };
    check(&world.store);
    check(&world.crash(1).unwrap().store);
    world.faults.lock().room = None;
    while let Err(error) = world.store.commit_rows(of_contents([create(new_id(), "on")])) {
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        std::thread::yield_now();
    }
    check(&world.store);
    audit(&world.store);
}

/// A small mounted file system, if this process may mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(bytes: usize) -> Result<Self, String> {
        let dir = tempfile::tempdir().unwrap();
        let options = format!("size={bytes}");
        let mut mount = std::process::Command::new("mount");
        match mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(dir.path()).output() {
            Ok(output) if output.status.success() => Ok(Self(dir)),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
#[allow(clippy::print_stderr)]
fn a_full_real_disk_refuses_writes_and_recovers_with_room() {
    let disk = match SmallDisk::mount(8 << 20) {
        Ok(disk) => disk,
        Err(error) => return eprintln!("skipped: cannot mount a small file system: {}", error.trim()),
    };
    let (dir, ballast) = (disk.0.path().join("store"), disk.0.path().join("ballast"));
    std::fs::write(&ballast, vec![1; 3 << 20]).unwrap();
    let options = || Options { threads: true, mob_bytes: 512 << 10, segment_bytes: 128 << 10, ..small_options() };
    let store = Store::open(&dir, options()).unwrap();
    let full = AtomicBool::new(false);
    let kept: Vec<(ContentId, usize)> = std::thread::scope(|threads| {
        let write = |thread: usize| {
            let (store, full) = (&store, &full);
            move || {
                let mut kept = Vec::new();
                for i in 0.. {
                    let len = [700, 9000, CHUNK, 2 * CHUNK + 5][(i + thread) % 4];
                    let id = new_id();
                    match store.commit_rows(of_contents([create(id, pattern(len, 1))])) {
                        Ok(_) => kept.push((id, len)),
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                            full.store(true, Ordering::Relaxed);
                        }
                    }
                    if full.load(Ordering::Relaxed) && i > 50 {
                        return kept;
                    }
                    assert!(i < 100_000, "the disk never became full");
                }
                kept
            }
        };
        let writers: Vec<_> = (0..4).map(|thread| threads.spawn(write(thread))).collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    let check = |store: &Store| {
        for (id, len) in &kept {
            assert!(bytes(store, *id) == pattern(*len, 1), "{id}, {len} bytes");
        }
    };
    check(&store);
    std::fs::remove_file(&ballast).unwrap();
    let mut tries = 0;
    while let Err(error) = store.commit_rows(of_contents([create(new_id(), pattern(9000, 2))])) {
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        tries += 1;
        assert!(tries < 1000, "{error}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    check(&store);
    store.close().unwrap();
    let store = Store::open(&dir, options()).unwrap();
    check(&store);
    audit(&store);
}

/// Regression: a full store in memory refused everything, even deletions.
#[test]
fn a_full_store_in_memory_takes_no_more_until_something_is_deleted() {
    let store = Store::in_memory(crate::Options { memory_bytes: 1 << 20, ..small_options() }).unwrap();
    let create_one = |id: ContentId| store.commit_rows(of_contents([create(id, pattern(100_000, 1))])).map(|_| id);
    let all: Vec<ContentId> = (0..100).map_while(|_| create_one(new_id()).ok()).collect();
    assert!((8..=12).contains(&all.len()), "{} contents of 100 kB", all.len());
    assert_eq!(create_one(new_id()).unwrap_err().kind(), ErrorKind::Full);
    for id in &all {
        assert_eq!(bytes(&store, *id).len(), 100_000);
    }
    // Chunks after the first are removed in the background.
    commit(&store, [delete(all[0]), delete(all[1]), delete(all[2])]);
    store.core().do_housekeeping().unwrap();
    create_one(new_id()).unwrap();
}

/// Regression: what was deleted or replaced while a snapshot existed was never freed.
#[test]
fn a_store_in_memory_frees_what_only_a_snapshot_saw() {
    let store = memory_store();
    let replaced = content(&store, pattern(20_000, 0));
    let before = store.status().mob_bytes;
    for round in 0..20 {
        let deleted: Vec<ContentId> = (0..10).map(|i| content(&store, pattern(20_000, i))).collect();
        let snapshot = store.snapshot().unwrap();
        commit(&store, replace(replaced, pattern(20_000, round)));
        for id in &deleted {
            commit(&store, [delete(*id)]);
            assert!(snapshot.read_content(*id, 0, 10).is_ok());
        }
        drop(snapshot);
        store.core().do_housekeeping().unwrap();
    }
    let grown = store.status().mob_bytes.saturating_sub(before);
    assert!(grown < 1_000, "{grown} bytes more");
}

#[test]
fn unreadable_blocks_of_a_chunk_are_given_up_after_a_minute_and_the_others_stay() {
    assert_noticed(&[FaultBug::UnreadableChunkStops], || {
        let world = SimulatedStore::new();
        let before = pattern(3 * CHUNK, 1);
        let id = content(&world.store, before.clone());
        world.run_housekeeping();
        let file = "blobs/00000001.blob";
        // The header is one page.
        let in_second_chunk = 1 + (CHUNK as u64 + 8 * 4096) / 4096;
        world.disk.set_unreadable(file, &[in_second_chunk]);
        commit(&world.store, [write(id, CHUNK + 5, "new")]);
        for _ in 0..FAILED_READS {
            assert_eq!(world.store.install().unwrap_err().kind(), ErrorKind::Io);
        }
        world.store.install().unwrap();
        let read = |at: usize, len: u64| world.store.read_content(id, at as u64, len);
        let mut expected = before[CHUNK..CHUNK + 100].to_vec();
        expected[5..8].copy_from_slice(b"new");
        assert_eq!(read(CHUNK, 100).unwrap(), expected);
        assert_eq!(read(CHUNK + 8 * 4096, 10).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(read(2 * CHUNK, 10).unwrap(), before[2 * CHUNK..2 * CHUNK + 10]);
        content(&world.store, "later");
        world.store.install().unwrap();
    });
}

#[test]
fn blob_file_whose_header_cannot_be_read_costs_no_opening() {
    let world = SimulatedStore::new();
    let id = content(&world.store, pattern(3 * CHUNK, 1));
    world.run_housekeeping();
    let crashed = world.crash(1).unwrap();
    crashed.disk.set_unreadable("blobs/00000001.blob", &[0]);
    let again = SimulatedStore::open(crashed.disk.clone(), crashed.engine.clone()).unwrap();
    assert_eq!(bytes(&again.store, id), pattern(3 * CHUNK, 1));
}

/// Regression: the file was created again, and the extents of two contents were the same.
#[test]
fn number_of_a_missing_blob_file_that_only_the_log_names_is_not_used_again() {
    assert_noticed(&[RecoveryBug::LoggedNumbersReused], || {
        let world = SimulatedStore::new();
        let lost = content(&world.store, pattern(2 * CHUNK, 1));
        let disk = world.disk.crash(1);
        disk.remove("blobs/00000001.blob").unwrap();
        let world = SimulatedStore::open(disk, world.engine.image()).unwrap();
        let kept = content(&world.store, pattern(2 * CHUNK, 2));
        assert!(world.store.read_content(lost, 0, 10).is_err());
        commit(&world.store, [delete(lost)]);
        world.run_housekeeping();
        assert_eq!(bytes(&world.store, kept), pattern(2 * CHUNK, 2));
    });
}

#[test]
fn one_user_has_at_most_half_of_the_unfinished_uploads() {
    assert_noticed(&[FaultBug::UploadsOfOneUser], || {
        let store = Store::in_memory(Options { uploads: 8, ..Options::default() }).unwrap();
        let mut uploads: Vec<_> = (0..4).map(|_| store.begin_upload_of("eve").unwrap()).collect();
        let error = store.begin_upload_of("eve").unwrap_err();
        assert!(error.kind() == ErrorKind::Full && error.message().contains("4 uploads of this user"), "{error}");
        store.abort_upload(uploads.pop().unwrap());
        uploads.push(store.begin_upload_of("eve").unwrap());
        (0..2).for_each(|_| _ = store.begin_upload_of("ann").unwrap());
        (0..2).for_each(|_| _ = store.begin_upload().unwrap());
        assert!(store.begin_upload_of("bob").unwrap_err().message().starts_with("8 uploads are unfinished"));
    });
}

#[test]
fn uploads_share_the_room_of_a_store_in_memory() {
    assert_noticed(&[FaultBug::UploadsCountedAlone], || {
        let store = Store::in_memory(Options { memory_bytes: 1 << 20, ..Options::default() }).unwrap();
        let part = pattern(300 << 10, 1);
        let uploads: Vec<_> = (0..3).map(|_| store.begin_upload().unwrap()).collect();
        uploads.iter().for_each(|id| store.upload(*id, part.clone()).unwrap());
        let one_more = store.begin_upload().unwrap();
        assert_eq!(store.upload(one_more, part.clone()).unwrap_err().kind(), ErrorKind::Full);
        store.abort_upload(uploads[0]);
        store.upload(one_more, part.clone()).unwrap();
    });
}
