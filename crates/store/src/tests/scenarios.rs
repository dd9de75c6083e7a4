//! Regression tests: schedules that broke the store once, or nearly did.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::audit::{audit, check_leaks};
use super::world::{SimulatedStore, run_housekeeping, small_options};
use super::*;
use model::planted_bug::assert_noticed;

use crate::disk::sim::SimDisk;
use crate::disk::{Disk, DiskFile};
use crate::engine::memory::MemoryEngine;
use crate::log::entry::Step;
use crate::log::recover::OnDamage;
use crate::open::open_on;
use crate::plant::FaultBug;
use crate::read::Piece;
use crate::rows::key::DataId;

const CHUNK: usize = 64 << 10;
/// How long a test waits for something that must not happen. A shorter wait can only miss a bug.
const A_MOMENT: Duration = Duration::from_millis(200);
/// How long a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// Regression: a sweep freed an extent that only the log still needed, beneath a small write.
#[test]
fn a_sweep_keeps_the_extent_beneath_a_write_that_is_only_logged() {
    let world = SimulatedStore::new();
    let id = content(&world.store, pattern(2 * CHUNK, 1));
    world.run_housekeeping();
    commit(&world.store, [write(id, CHUNK + 10, "later")]);
    let mut expected = pattern(2 * CHUNK, 1).to_vec();
    expected[CHUNK + 10..CHUNK + 15].copy_from_slice(b"later");
    let world = world.crash(1).unwrap();
    world.core().do_housekeeping().unwrap();
    assert_eq!(bytes(&world.store, id), expected);
    world.run_housekeeping();
    assert_eq!(bytes(&world.store, id), expected);
    audit(&world.store);
    check_leaks(&world);
}

/// Others compare the positions of a log, so starts of an old copy may not raise them.
#[test]
fn opening_leaves_the_log_as_it_was_until_the_first_change() {
    let mut world = SimulatedStore::new();
    let id = content(&world.store, "kept");
    commit(&world.store, [delete(id)]);
    let position = world.store.position();
    for _ in 0..3 {
        world = world.crash(1).unwrap();
        let core = world.core();
        core.do_housekeeping().unwrap();
        core.write_marker(&mut core.pipeline.writer.lock());
        core.force().unwrap();
        assert_eq!((world.store.position(), world.store.status().incarnation), (position, 2));
    }
    world.store.log_opening().unwrap();
    let logged = world.store.position();
    world.store.log_opening().unwrap();
    assert!(logged > position && world.store.position() == logged, "it is logged once");
    let world = world.crash(1).unwrap();
    let upload = world.store.begin_upload().unwrap();
    assert!(world.store.position() > logged && world.store.status().incarnation == 3);
    let world = world.crash(1).unwrap();
    assert_ne!(world.store.begin_upload().unwrap(), upload, "an identifier is not given twice");
}

/// A B-tree ahead of the log could neither be rolled back nor given a position after a power failure.
#[test]
fn nothing_is_installed_before_it_is_durable() {
    let world = SimulatedStore::new();
    world.run_housekeeping();
    let (core, before) = (world.core(), world.store.status().version);
    submit(&world.store, [create(new_id(), "early")]);
    {
        let mut writer = core.pipeline.writer.lock();
        core.apply_queued(&mut writer);
        core.freeze(&mut writer, &core.state.view.load());
    }
    assert!(!core.install().unwrap());
    assert_eq!(world.crash(1).unwrap().store.status().version, before, "an opening changes nothing");
    core.force().unwrap();
    assert!(core.install().unwrap());
    let found = world.crash(1).unwrap();
    assert_eq!(ids(&found.store).len(), 1);
}

/// Regression: a file was removed with its last chunk, although a snapshot could still read that chunk.
#[test]
fn a_blob_file_stays_while_a_snapshot_sees_its_last_chunk() {
    let world = SimulatedStore::new();
    let (a, b) = (content(&world.store, pattern(CHUNK, 1)), content(&world.store, pattern(CHUNK, 2)));
    world.run_housekeeping();
    let world = world.crash(1).unwrap();
    content(&world.store, pattern(CHUNK, 3));
    commit(&world.store, [delete(a)]);
    world.store.install().unwrap();
    content(&world.store, "so that the snapshot is later");
    let snapshot = world.store.snapshot().unwrap();
    commit(&world.store, [delete(b)]);
    world.core().do_housekeeping().unwrap();
    assert_eq!(snapshot.read_content(b, 0, 1 << 20).unwrap(), pattern(CHUNK, 2));
    drop(snapshot);
    world.run_housekeeping();
    check_leaks(&world);
}

/// Regression: a new file got the number of a removed one, and extents of the old file were freed in it.
#[test]
fn the_number_of_a_removed_blob_file_is_not_used_again() {
    let world = SimulatedStore::new();
    let a = content(&world.store, pattern(CHUNK, 1));
    world.run_housekeeping();
    let world = world.crash(1).unwrap();
    commit(&world.store, [delete(a)]);
    world.store.install().unwrap();
    content(&world.store, "so that no reader is as old as the deletion");
    world.core().do_housekeeping().unwrap();
    let world = world.crash(1).unwrap();
    let b = content(&world.store, pattern(CHUNK, 2));
    world.run_housekeeping();
    assert_eq!(bytes(&world.store, b), pattern(CHUNK, 2));
    check_leaks(&world);
}

/// Regression: pieces pinned the newest state instead of the one from which they were read.
#[test]
fn pieces_outlive_the_snapshot_that_they_were_read_from() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), small_options()).unwrap();
    let id = content(&store, pattern(CHUNK, 1));
    let snapshot = store.snapshot().unwrap();
    commit(&store, [delete(id)]);
    store.install().unwrap();
    content(&store, "later");
    content(&store, "later still");
    let pieces = snapshot.content_pieces(id, 0, CHUNK as u64).unwrap();
    drop(snapshot);
    content(&store, "and later");
    store.install().unwrap();
    store.core().do_housekeeping().unwrap();
    let Piece::File { file, offset, len, crc32c } = &pieces.pieces[0] else { panic!("{:?}", pieces.pieces) };
    let mut found = vec![0; *len as usize];
    std::os::unix::fs::FileExt::read_exact_at(&**file, &mut found, *offset).unwrap();
    assert_eq!(crate::checksum::crc32c(&found), *crc32c);
    drop(pieces);
    run_housekeeping(&store);
}

/// Regression: an upload was taken for garbage between leaving one list and entering the other.
#[test]
fn an_upload_is_always_in_a_list_while_it_is_finished() {
    let world = SimulatedStore::new();
    let store = &world.store;
    let upload = upload(store, &pattern(CHUNK, 1));
    std::thread::scope(|scope| {
        let finishing = world.core().uploads.lock_finishing();
        let commit = scope.spawn(|| commit(store, [take(new_id(), upload)]));
        std::thread::sleep(A_MOMENT);
        let listed = world.core().uploads.is_unfinished(upload);
        drop(finishing);
        commit.join().unwrap();
        assert!(listed);
    });
}

/// Regression: uploads that became plain bytes, or whose transaction failed later, stayed in the list of those being
/// taken.
#[test]
fn every_upload_that_a_transaction_takes_ends_with_it() {
    let world = SimulatedStore::new();
    let store = &world.store;
    for (len, twice) in [(10, false), (3 * CHUNK, false), (10, true), (3 * CHUNK, true)] {
        let upload = upload(store, &pattern(len, 1));
        let mut changes = vec![take(new_id(), upload)];
        if twice {
            changes.push(take(new_id(), upload));
            assert_eq!(refusal(store, changes).0, ErrorKind::NotFound);
        } else {
            commit(store, changes);
        }
        assert!(world.core().uploads.lock_finishing().is_empty(), "{len} bytes");
    }
    // Refused when it is applied, not when it is staged.
    for len in [10, 3 * CHUNK, 300 * CHUNK] {
        let taken = take(new_id(), upload(store, &pattern(len, 1)));
        assert_eq!(refusal(store, [taken, truncate(new_id(), 0)]).0, ErrorKind::NotFound);
        assert!(world.core().uploads.lock_finishing().is_empty(), "{len} bytes, after a refusal");
    }
    world.run_housekeeping();
    audit(store);
    check_leaks(&world);
}

/// Regression: an upload that had met a full disk could be finished without the chunks of the failed call.
#[test]
fn an_upload_that_failed_is_never_finished_with_a_hole() {
    let world = SimulatedStore::new();
    let store = &world.store;
    let upload = upload(store, &pattern(200 * CHUNK, 1));
    // The chunks fit, but the record that names them does not.
    content(store, pattern(60_000, 1));
    world.disk.set_free_bytes(Some(100 * CHUNK));
    assert_eq!(store.upload(upload, pattern(100 * CHUNK, 2)).unwrap_err().kind(), ErrorKind::Full);
    world.disk.set_free_bytes(None);
    assert_eq!(store.upload(upload, pattern(CHUNK, 3)).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(refusal(store, [take(new_id(), upload)]).0, ErrorKind::NotFound);
    world.run_housekeeping();
    audit(store);
    check_leaks(&world);
}

/// Regression: a call that had found its upload before a transaction took it logged its chunks afterwards, into a content.
/// They were then removed as garbage.
#[test]
fn bytes_that_come_after_an_upload_was_taken_are_refused() {
    let world = SimulatedStore::new();
    let store = &world.store;
    let (id, upload) = (new_id(), upload(store, &pattern(3 * CHUNK, 1)));
    let late = world.core().uploads.find(upload).unwrap();
    commit(store, [take(id, upload)]);
    let refused = world.core().add_to_upload(&late, pattern(300 * CHUNK, 2));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotFound);
    world.run_housekeeping();
    assert_eq!(bytes(store, id), pattern(3 * CHUNK, 1));
    audit(store);
    check_leaks(&world);
}

/// Regression: an abort waited for a thread that added bytes and waited for a force, and the receiver of the replies to that force waited for the
/// thread that aborted.
#[test]
fn abort_of_an_upload_does_not_wait_for_a_force() {
    let world = SimulatedStore::new();
    let (store, upload) = (&world.store, world.store.begin_upload().unwrap());
    let late = world.core().uploads.find(upload).unwrap();
    std::thread::scope(|scope| {
        let (hold, _) = store.hold().unwrap();
        // So many chunks are logged before the call ends.
        let adding = scope.spawn(move || store.upload(upload, pattern(300 * CHUNK, 1)));
        while !world.core().is_force_wanted() {
            std::thread::yield_now();
        }
        let (sender, aborted) = mpsc::channel();
        scope.spawn(move || {
            store.abort_upload(upload);
            // The receiver may be gone.
            sender.send(()).ok()
        });
        let aborted = aborted.recv_timeout(PATIENCE);
        drop(hold);
        adding.join().unwrap().unwrap();
        assert!(aborted.is_ok(), "the abort has waited");
    });
    assert_eq!(store.upload_size(upload).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(world.core().add_to_upload(&late, pattern(CHUNK, 2)).unwrap_err().kind(), ErrorKind::NotFound);
    world.run_housekeeping();
    audit(store);
    check_leaks(&world);
}

/// Regression: writers that waited for room when the store was closed waited forever.
#[test]
fn closing_refuses_transactions_that_wait_for_room() {
    let options = crate::Options { threads: true, mob_bytes: 64 << 10, ..small_options() };
    let world = SimulatedStore::open_with(SimDisk::new(), MemoryEngine::default(), options).unwrap();
    world.faults.lock().broken = true;
    let (sender, answers) = mpsc::channel();
    for _ in 0..20 {
        let sender = sender.clone();
        let change = of_contents([create(new_id(), pattern(10_000, 1))]);
        world.store.submit_rows(change, move |result| sender.send(result.is_ok()).unwrap());
    }
    drop(sender);
    assert!(world.store.clone().close().is_err(), "not everything could be installed");
    let answers: Vec<bool> = answers.iter().collect();
    assert_eq!(answers.len(), 20);
    assert!(answers.contains(&true) && answers.contains(&false), "{answers:?}");
    let kept = ids(&world.crash(1).unwrap().store).len();
    assert_eq!(kept, answers.iter().filter(|ok| **ok).count());
}

/// Regression: one damaged chunk beneath a small write stopped all installations.
#[test]
fn a_damaged_chunk_beneath_a_write_does_not_stop_the_installer() {
    let world = SimulatedStore::new();
    let id = content(&world.store, pattern(CHUNK, 1));
    commit(&world.store, [write(id, 10, "ten")]);
    let other = content(&world.store, "other");
    world.disk.damage("blobs/00000001.blob", 4096 + 20_000, |bytes| bytes[0] ^= 1);
    world.store.install().unwrap();
    assert_eq!(bytes(&world.store, other), b"other");
    // Damaged blocks stay damaged; the others can be read.
    assert_eq!(world.store.read_content(id, 0, 1 << 20).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(world.store.read_content(id, 20_000, 1).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(world.store.read_content(id, 10, 3).unwrap(), "ten");
    assert_eq!(world.store.read_content(id, 40_000, 9).unwrap(), pattern(CHUNK, 1).slice(40_000..40_009));
}

/// Logs five transactions, freezes, logs five more and forces all ten in one batch; installs the first five.
fn half_installed() -> SimulatedStore {
    let world = SimulatedStore::new();
    world.run_housekeeping();
    for i in 0..10 {
        if i == 5 {
            let core = world.core();
            let mut writer = core.pipeline.writer.lock();
            core.apply_queued(&mut writer);
            core.freeze(&mut writer, &core.state.view.load());
        }
        submit(&world.store, [create(new_id(), pattern(600, i))]);
    }
    world.store.force().unwrap();
    assert!(world.core().install().unwrap());
    world
}

/// Regression: damage to an installed frame ended the log there, without the acknowledged frames after it.
#[test]
fn damage_to_an_installed_frame_does_not_hide_the_frames_behind_it() {
    let world = half_installed();
    let log = world.disk.bytes("log/0000000000000001.seg");
    let at = log.windows(600).position(|bytes| bytes == pattern(600, 3)).unwrap();
    world.disk.damage("log/0000000000000001.seg", at, |bytes| bytes[0] ^= 1);
    let error = world.crash(1).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

/// Regression: a log that was cut before the installed position continued there, with frames that did not follow each
/// other.
#[test]
fn a_log_that_ends_before_the_installed_position_continues_after_a_repair() {
    let world = half_installed();
    let log = world.disk.bytes("log/0000000000000001.seg");
    let at = log.windows(600).position(|bytes| bytes == pattern(600, 3)).unwrap();
    world.store.install().unwrap();
    world.disk.damage("log/0000000000000001.seg", at, |bytes| bytes.fill(0));
    let (disk, engine) = (world.disk.crash(1), world.engine.image());
    drop(world);
    let error = SimulatedStore::open(disk.clone(), engine.clone()).err().unwrap();
    assert!(error.kind() == ErrorKind::Corrupt && error.message().contains("frame"), "{error}");
    let boxed = Box::new(engine.clone());
    let core = crate::open::open_on(Arc::new(disk.clone()), boxed, [7; 16], small_options(), OnDamage::Salvage);
    let store = Store::start(core.unwrap()).unwrap();
    assert_eq!(ids(&store).len(), 10);
    content(&store, "new");
    drop(store);
    assert_eq!(ids(&SimulatedStore::open(disk.crash(2), engine).unwrap().store).len(), 11);
}

/// A disk on which forcing the names of blob files fails during opening, and later takes as long as the test wants.
#[derive(Clone)]
struct SlowDisk {
    disk: SimDisk,
    opened: Arc<AtomicBool>,
    busy: Arc<AtomicBool>,
    let_go: Arc<AtomicBool>,
}

impl Disk for SlowDisk {
    fn make_dir(&self, name: &str) -> std::io::Result<()> {
        self.disk.make_dir(name)
    }

    fn open(&self, name: &str) -> std::io::Result<Arc<dyn DiskFile>> {
        self.disk.open(name)
    }

    fn create(&self, name: &str) -> std::io::Result<Arc<dyn DiskFile>> {
        self.disk.create(name)
    }

    fn create_new(&self, name: &str) -> std::io::Result<Arc<dyn DiskFile>> {
        self.disk.create_new(name)
    }

    fn rename(&self, from: &str, to: &str) -> std::io::Result<()> {
        self.disk.rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> std::io::Result<()> {
        self.disk.rename_new(from, to)
    }

    fn remove(&self, name: &str) -> std::io::Result<()> {
        self.disk.remove(name)
    }

    fn list(&self, dir: &str) -> std::io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn force_names(&self, dir: &str) -> std::io::Result<()> {
        if dir == "blobs" && !self.opened.load(Ordering::Acquire) {
            return Err(std::io::Error::other("not yet"));
        }
        while dir == "blobs" && !self.let_go.load(Ordering::Acquire) {
            self.busy.store(true, Ordering::Release);
            std::thread::yield_now();
        }
        self.disk.force_names(dir)
    }
}

/// Regression: a writer relied on a name that another writer was about to force.
#[test]
fn a_commit_waits_until_the_name_of_its_blob_file_is_forced() {
    let disk = SimDisk::new();
    let slow = SlowDisk { disk: disk.clone(), opened: Arc::default(), busy: Arc::default(), let_go: Arc::default() };
    let engine = MemoryEngine::default();
    let core =
        open_on(Arc::new(slow.clone()), Box::new(engine.clone()), [7; 16], small_options(), OnDamage::Refuse).unwrap();
    slow.opened.store(true, Ordering::Release);
    let store = Store::start(core).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| content(&store, pattern(CHUNK, 1)));
        while !slow.busy.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let (sender, second) = mpsc::channel();
        let store = &store;
        // The receiver may be gone.
        scope.spawn(move || sender.send(content(store, pattern(CHUNK, 2))).ok());
        let acknowledged = second.recv_timeout(A_MOMENT);
        let crashed: Vec<_> = (0..8).map(|seed| (disk.crash(seed), engine.image())).collect();
        slow.let_go.store(true, Ordering::Release);
        if let Ok(id) = acknowledged {
            for (disk, engine) in crashed {
                let world = SimulatedStore::open(disk, engine).unwrap();
                assert_eq!(bytes(&world.store, id), pattern(CHUNK, 2));
            }
        }
    });
}

/// Regression: a removal of garbage that was prepared before an upload got its last chunk left that chunk forever.
#[test]
fn a_late_removal_of_garbage_leaves_nothing() {
    let world = SimulatedStore::new();
    let (id, upload) = (new_id(), upload(&world.store, &pattern(2 * CHUNK + 5, 1)));
    commit(&world.store, [take(id, upload)]);
    commit(&world.store, [delete(id)]);
    let late = Step::Reclaim { data: DataId(upload.0), from: 1, to: 2, done: true };
    world.core().commit_steps(vec![late], Vec::new()).unwrap();
    audit(&world.store);
    world.run_housekeeping();
    check_leaks(&world);
}

/// Chunks are written when a change is submitted, and used when it is applied.
#[test]
fn writes_that_wait_for_room_are_all_applied_in_order() {
    let world = SimulatedStore::new();
    let id = content(&world.store, "");
    let (sender, answers) = mpsc::channel();
    let mut expected = Vec::new();
    // The first few fill the buffer.
    for i in 0..30 {
        let data = pattern(if i % 2 == 0 { 60_000 } else { CHUNK + 1 }, i);
        let at = expected.len();
        expected.extend_from_slice(&data);
        let sender = sender.clone();
        let change = of_contents([write(id, at, pattern(data.len(), 99)), write(id, at, data)]);
        world.store.submit_rows(change, move |result| sender.send(result.is_ok()).unwrap());
    }
    drop(sender);
    assert!(world.store.status().waits == 0 && answers.try_recv().is_err());
    let mut all = Vec::new();
    while all.len() < 30 {
        world.store.force().unwrap();
        world.store.install().unwrap();
        all.extend(answers.try_iter());
    }
    assert!(all.iter().all(|ok| *ok), "{all:?}");
    assert!(world.store.status().waits > 0, "no write had to wait");
    assert!(bytes(&world.store, id) == expected);
    world.run_housekeeping();
    audit(&world.store);
    check_leaks(&world);
}

/// Regression: a buffer of transactions without changes had no position. When it was installed because the log had
/// grown, the B-tree recorded position 0, and log segments were missing at the next opening.
#[test]
fn transactions_without_changes_free_log_segments_and_nothing_else() {
    let mut world = SimulatedStore::new();
    let id = content(&world.store, "content");
    world.store.install().unwrap();
    for round in 0..2 {
        let nothing = zero(id, 0, 0);
        for _ in 0..40 {
            commit(&world.store, vec![nothing.clone(); 2000]);
            world.core().install().unwrap();
        }
        let logged = world.store.status().log_bytes;
        assert!(logged <= 8 * small_options().segment_bytes, "{logged} bytes of log");
        assert_eq!(bytes(&world.store, id), b"content");
        world = world.crash(round).unwrap();
        assert_eq!(bytes(&world.store, id), b"content");
        world.store.commit_rows(crate::RowChanges::new()).unwrap();
        world.store.install().unwrap();
    }
}

#[test]
fn planted_bugs_of_these_scenarios_are_noticed() {
    assert_noticed(&[FaultBug::DamagedBlocksLost], a_damaged_chunk_beneath_a_write_does_not_stop_the_installer);
    assert_noticed(&[FaultBug::LateRemovalKeepsChunks], a_late_removal_of_garbage_leaves_nothing);
    assert_noticed(&[FaultBug::RefusedUploadKept], every_upload_that_a_transaction_takes_ends_with_it);
}
