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

fn bytes(store: &Store, oid: Oid) -> Bytes {
    store.read(oid, 0, 1 << 20).unwrap()
}

/// Regression: a sweep freed an extent that only the log still needed, beneath a small write.
#[test]
fn a_sweep_keeps_the_extent_beneath_a_write_that_is_only_logged() {
    let world = SimulatedStore::new();
    let oid = blob(&world.store, pattern(2 * CHUNK, 1));
    world.run_housekeeping();
    commit(&world.store, [Op::Write { oid, offset: CHUNK as u64 + 10, data: "later".into() }]);
    let mut expected = pattern(2 * CHUNK, 1).to_vec();
    expected[CHUNK + 10..CHUNK + 15].copy_from_slice(b"later");
    let world = world.crash(1).unwrap();
    world.core().do_housekeeping().unwrap();
    assert_eq!(bytes(&world.store, oid), expected);
    world.run_housekeeping();
    assert_eq!(bytes(&world.store, oid), expected);
    audit(&world.store);
    check_leaks(&world);
}

/// Others compare the positions of a log, so starts of an old copy may not raise them.
#[test]
fn opening_leaves_the_log_as_it_was_until_the_first_change() {
    let mut world = SimulatedStore::new();
    let oid = commit(&world.store, [create(0, Kind::Blob, "kept")]).created[0];
    commit(&world.store, [Op::Delete { oid }]);
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
    world.store.submit(Transaction { ops: vec![create(0, Kind::Blob, "early")] }, |_| {});
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
    assert_eq!(found.store.objects(MAIN, None, 10).unwrap().len(), 1);
}

/// Regression: a file was removed with its last object, although a snapshot could still read that object.
#[test]
fn a_blob_file_stays_while_a_snapshot_sees_its_last_object() {
    let world = SimulatedStore::new();
    let (a, b) = (blob(&world.store, pattern(CHUNK, 1)), blob(&world.store, pattern(CHUNK, 2)));
    world.run_housekeeping();
    let world = world.crash(1).unwrap();
    blob(&world.store, pattern(CHUNK, 3));
    commit(&world.store, [Op::Delete { oid: a }]);
    world.store.install().unwrap();
    blob(&world.store, "so that the snapshot is later");
    let snapshot = world.store.snapshot().unwrap();
    commit(&world.store, [Op::Delete { oid: b }]);
    world.core().do_housekeeping().unwrap();
    assert_eq!(snapshot.read(b, 0, 1 << 20).unwrap(), pattern(CHUNK, 2));
    drop(snapshot);
    world.run_housekeeping();
    check_leaks(&world);
}

/// Regression: a new file got the number of a removed one, and extents of the old file were freed in it.
#[test]
fn the_number_of_a_removed_blob_file_is_not_used_again() {
    let world = SimulatedStore::new();
    let a = blob(&world.store, pattern(CHUNK, 1));
    world.run_housekeeping();
    let world = world.crash(1).unwrap();
    commit(&world.store, [Op::Delete { oid: a }]);
    world.store.install().unwrap();
    blob(&world.store, "so that no reader is as old as the deletion");
    world.core().do_housekeeping().unwrap();
    let world = world.crash(1).unwrap();
    let b = blob(&world.store, pattern(CHUNK, 2));
    world.run_housekeeping();
    assert_eq!(bytes(&world.store, b), pattern(CHUNK, 2));
    check_leaks(&world);
}

/// Regression: pieces pinned the newest state instead of the one from which they were read.
#[test]
fn pieces_outlive_the_snapshot_that_they_were_read_from() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), small_options()).unwrap();
    let oid = blob(&store, pattern(CHUNK, 1));
    let snapshot = store.snapshot().unwrap();
    commit(&store, [Op::Delete { oid }]);
    store.install().unwrap();
    blob(&store, "later");
    blob(&store, "later still");
    let pieces = snapshot.pieces(oid, 0, CHUNK as u64).unwrap();
    drop(snapshot);
    blob(&store, "and later");
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
    let upload = store.begin_upload().unwrap();
    store.upload(upload, pattern(CHUNK, 1)).unwrap();
    let oid = blob(store, "");
    std::thread::scope(|scope| {
        let finishing = world.core().uploads.lock_finishing();
        let commit = scope.spawn(|| commit(store, [Op::PutUpload { oid, upload }]));
        std::thread::sleep(A_MOMENT);
        let listed = world.core().uploads.is_unfinished(upload);
        drop(finishing);
        commit.join().unwrap();
        assert!(listed);
    });
}

/// Regression: uploads that became plain content, or whose transaction failed later, stayed in the list of those being
/// taken.
#[test]
fn every_upload_that_a_transaction_takes_ends_with_it() {
    let world = SimulatedStore::new();
    let store = &world.store;
    let oid = blob(store, "");
    for (len, missing) in [(10, false), (3 * CHUNK, false), (10, true), (3 * CHUNK, true)] {
        let upload = store.begin_upload().unwrap();
        store.upload(upload, pattern(len, 1)).unwrap();
        let mut ops = vec![Op::PutUpload { oid, upload }];
        if missing {
            ops.push(Op::PutUpload { oid, upload });
            assert_eq!(refusal(store, ops).0, ErrorKind::NotFound);
        } else {
            commit(store, ops);
        }
        assert!(world.core().uploads.lock_finishing().is_empty(), "{len} bytes");
    }
    // Refused when it is applied, not when it is staged.
    let upload = store.begin_upload().unwrap();
    store.upload(upload, pattern(3 * CHUNK, 1)).unwrap();
    let missing = Oid::from_bytes([0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(refusal(store, [Op::PutUpload { oid, upload }, Op::Delete { oid: missing }]).0, ErrorKind::NotFound);
    assert!(world.core().uploads.lock_finishing().is_empty(), "after a refusal");
    world.run_housekeeping();
    audit(store);
    check_leaks(&world);
}

/// Regression: an upload that had met a full disk could be finished without the chunks of the failed call.
#[test]
fn an_upload_that_failed_is_never_finished_with_a_hole() {
    let world = SimulatedStore::new();
    let store = &world.store;
    let oid = blob(store, "");
    let upload = store.begin_upload().unwrap();
    store.upload(upload, pattern(200 * CHUNK, 1)).unwrap();
    // The chunks fit, but the record that names them does not.
    blob(store, pattern(60_000, 1));
    world.disk.set_free_bytes(Some(100 * CHUNK));
    assert_eq!(store.upload(upload, pattern(100 * CHUNK, 2)).unwrap_err().kind(), ErrorKind::Full);
    world.disk.set_free_bytes(None);
    assert_eq!(store.upload(upload, pattern(CHUNK, 3)).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(refusal(store, [Op::PutUpload { oid, upload }]).0, ErrorKind::NotFound);
    world.run_housekeeping();
    audit(store);
    check_leaks(&world);
}

/// Regression: a call that had found its upload before a transaction took it logged its chunks afterwards, into content
/// of an object. They were then removed as garbage.
#[test]
fn bytes_that_come_after_an_upload_was_taken_are_refused() {
    let world = SimulatedStore::new();
    let store = &world.store;
    let oid = blob(store, "");
    let id = store.begin_upload().unwrap();
    store.upload(id, pattern(3 * CHUNK, 1)).unwrap();
    let late = world.core().uploads.find(id).unwrap();
    commit(store, [Op::PutUpload { oid, upload: id }]);
    let refused = world.core().add_to_upload(&late, pattern(300 * CHUNK, 2));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotFound);
    world.run_housekeeping();
    assert_eq!(bytes(store, oid), pattern(3 * CHUNK, 1));
    audit(store);
    check_leaks(&world);
}

/// Regression: a transaction whose append was staged again looked for its upload a second time and failed.
#[test]
fn an_upload_and_an_append_whose_end_moves_fit_into_one_transaction() {
    let world = SimulatedStore::new();
    let store = &world.store;
    let (a, b) = (blob(store, ""), blob(store, ""));
    let upload = store.begin_upload().unwrap();
    store.upload(upload, pattern(3 * CHUNK, 1)).unwrap();
    let ops = [
        Op::PutUpload { oid: a, upload },
        Op::Write { oid: b, offset: 0, data: "x".into() },
        Op::Append { oid: b, data: pattern(CHUNK, 2) },
    ];
    commit(store, ops);
    assert_eq!(bytes(store, a), pattern(3 * CHUNK, 1));
    assert_eq!(bytes(store, b).slice(1..), pattern(CHUNK, 2));
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
        let transaction = Transaction { ops: vec![create(0, Kind::Blob, pattern(10_000, 1))] };
        world.store.submit(transaction, move |result| sender.send(result.is_ok()).unwrap());
    }
    drop(sender);
    assert!(world.store.clone().close().is_err(), "not everything could be installed");
    let answers: Vec<bool> = answers.iter().collect();
    assert_eq!(answers.len(), 20);
    assert!(answers.contains(&true) && answers.contains(&false), "{answers:?}");
    let kept = world.crash(1).unwrap().store.objects(MAIN, None, 100).unwrap().len();
    assert_eq!(kept, answers.iter().filter(|ok| **ok).count());
}

/// Regression: one damaged chunk beneath a small write stopped all installations.
#[test]
fn a_damaged_chunk_beneath_a_write_does_not_stop_the_installer() {
    let world = SimulatedStore::new();
    let oid = blob(&world.store, pattern(CHUNK, 1));
    commit(&world.store, [Op::Write { oid, offset: 10, data: "ten".into() }]);
    let other = blob(&world.store, "other");
    world.disk.damage("blobs/00000001.blob", 20_000, |bytes| bytes[0] ^= 1);
    world.store.install().unwrap();
    assert_eq!(bytes(&world.store, other), "other");
    // Damaged blocks stay damaged; the others can be read.
    assert_eq!(world.store.read(oid, 0, 1 << 20).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(world.store.read(oid, 20_000, 1).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(world.store.read(oid, 10, 3).unwrap(), "ten");
    assert_eq!(world.store.read(oid, 40_000, 9).unwrap(), pattern(CHUNK, 1).slice(40_000..40_009));
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
        world.store.submit(Transaction { ops: vec![create(0, Kind::Blob, pattern(600, i))] }, |_| {});
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
fn a_log_that_ends_before_the_installed_position_can_continue() {
    let world = half_installed();
    let log = world.disk.bytes("log/0000000000000001.seg");
    let at = log.windows(600).position(|bytes| bytes == pattern(600, 3)).unwrap();
    world.store.install().unwrap();
    world.disk.damage("log/0000000000000001.seg", at, |bytes| bytes.fill(0));
    let world = world.crash(1).unwrap();
    assert_eq!(world.store.objects(MAIN, None, 100).unwrap().len(), 10);
    blob(&world.store, "new");
    let world = world.crash(2).unwrap();
    assert_eq!(world.store.objects(MAIN, None, 100).unwrap().len(), 11);
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

    fn rename(&self, from: &str, to: &str) -> std::io::Result<()> {
        self.disk.rename(from, to)
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
        scope.spawn(|| blob(&store, pattern(CHUNK, 1)));
        while !slow.busy.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let (sender, second) = mpsc::channel();
        let store = &store;
        // The receiver may be gone.
        scope.spawn(move || sender.send(blob(store, pattern(CHUNK, 2))).ok());
        let acknowledged = second.recv_timeout(A_MOMENT);
        let crashed: Vec<_> = (0..8).map(|seed| (disk.crash(seed), engine.image())).collect();
        slow.let_go.store(true, Ordering::Release);
        if let Ok(oid) = acknowledged {
            for (disk, engine) in crashed {
                let world = SimulatedStore::open(disk, engine).unwrap();
                assert_eq!(world.store.read(oid, 0, 1 << 20).unwrap(), pattern(CHUNK, 2));
            }
        }
    });
}

/// Regression: creating an object near one that does not exist used up the page numbers of the space.
#[test]
fn a_neighbour_of_a_new_object_that_does_not_exist_is_ignored() {
    let world = SimulatedStore::new();
    let near = "1.0.0.fffffffffffe.0".parse().unwrap();
    let ops = [Op::Create { oid: temporary(0), kind: Kind::Blob, data: "a".into(), near: Some(near) }];
    let first = commit(&world.store, ops).created[0];
    assert_eq!(blob(&world.store, "b").page(), first.page());
}

/// Regression: a replaced record could exceed the limit.
#[test]
fn a_record_stays_within_its_limit_when_it_is_replaced() {
    let world = SimulatedStore::new();
    let oid = commit(&world.store, [create(0, Kind::Record, "small")]).created[0];
    let data = Bytes::from(vec![0; model::limits::RECORD + 1]);
    assert_eq!(refusal(&world.store, [Op::Put { oid, data }]).0, ErrorKind::TooLarge);
}

/// Regression: a small upload could become the content of a record.
#[test]
fn no_upload_becomes_the_content_of_a_record() {
    for len in [10, 2 * CHUNK] {
        let world = SimulatedStore::new();
        let oid = commit(&world.store, [create(0, Kind::Record, "record")]).created[0];
        let upload = world.store.begin_upload().unwrap();
        world.store.upload(upload, pattern(len, 1)).unwrap();
        assert_eq!(refusal(&world.store, [Op::PutUpload { oid, upload }]).0, ErrorKind::Invalid, "{len} bytes");
    }
}

/// Regression: a removal of garbage that was prepared before an upload got its last chunk left that chunk forever.
#[test]
fn a_late_removal_of_garbage_leaves_nothing() {
    let world = SimulatedStore::new();
    let oid = blob(&world.store, "");
    let upload = world.store.begin_upload().unwrap();
    world.store.upload(upload, pattern(2 * CHUNK + 5, 1)).unwrap();
    commit(&world.store, [Op::PutUpload { oid, upload }]);
    commit(&world.store, [Op::Put { oid, data: "other".into() }]);
    let late = Step::Reclaim { data: DataId(upload.0), from: 1, to: 2, done: true };
    world.core().commit_steps(vec![late], Vec::new()).unwrap();
    audit(&world.store);
    world.run_housekeeping();
    check_leaks(&world);
}

/// Regression: an append that waited for room failed when the end of its blob moved meanwhile.
#[test]
fn an_append_that_waits_for_room_finds_the_end_of_its_blob() {
    let world = SimulatedStore::new();
    let oid = blob(&world.store, "");
    let (sender, answers) = mpsc::channel();
    let mut expected = Vec::new();
    // The first few fill the buffer.
    for i in 0..30 {
        let data = pattern(if i % 2 == 0 { 60_000 } else { CHUNK }, i);
        expected.extend_from_slice(&data);
        // The end of the blob becomes one at which chunks can be staged.
        let fill = expected.len().next_multiple_of(CHUNK) - expected.len();
        expected.resize(expected.len() + fill, 0);
        let sender = sender.clone();
        let ops = vec![Op::Append { oid, data }, Op::Append { oid, data: vec![0; fill].into() }];
        world.store.submit(Transaction { ops }, move |result| sender.send(result.is_ok()).unwrap());
    }
    drop(sender);
    let mut all = Vec::new();
    while all.len() < 30 {
        world.store.force().unwrap();
        world.store.install().unwrap();
        all.extend(answers.try_iter());
    }
    assert!(all.iter().all(|ok| *ok), "{all:?}");
    let found: Vec<u8> = (0..expected.len().div_ceil(1 << 20))
        .flat_map(|i| world.store.read(oid, (i << 20) as u64, 1 << 20).unwrap())
        .collect();
    assert!(found == expected);
    world.run_housekeeping();
    audit(&world.store);
    check_leaks(&world);
}

#[test]
fn chunks_beside_an_append_whose_end_has_moved_are_durable() {
    let content = pattern(2 * CHUNK, 7);
    for seed in 0..20 {
        let world = SimulatedStore::new();
        let (appended, other) = (blob(&world.store, ""), blob(&world.store, ""));
        let (sender, answers) = mpsc::channel();
        let submit = |ops| {
            let sender = sender.clone();
            world.store.submit(Transaction { ops }, move |result| sender.send(result.is_ok()).unwrap());
        };
        // Has no chunks of its own, and moves the end for which those of the next transaction were staged.
        submit(vec![Op::Append { oid: appended, data: pattern(1_000, 1) }]);
        let append = Op::Append { oid: appended, data: pattern(CHUNK, 2) };
        submit(vec![append, Op::Put { oid: other, data: content.clone() }]);
        world.store.force().unwrap();
        assert_eq!(answers.try_iter().collect::<Vec<_>>(), [true, true]);
        let after = world.crash(seed).unwrap();
        assert!(after.store.read(other, 0, content.len() as u64).unwrap()[..] == content[..], "seed {seed}");
    }
}

/// Regression: cloning read every possible chunk of a blob instead of the existing ones.
#[test]
fn cloning_a_blob_of_gaps_does_not_read_every_chunk() {
    let world = SimulatedStore::new();
    let (a, b) = (blob(&world.store, "a"), blob(&world.store, ""));
    let size = model::limits::BLOB;
    commit(&world.store, [Op::Truncate { oid: a, size }, Op::Write { oid: a, offset: size - 3, data: "end".into() }]);
    commit(&world.store, [Op::Clone { from: a, to: b }]);
    world.run_housekeeping();
    commit(&world.store, [Op::Zero { oid: a, offset: 0, len: u64::MAX }]);
    assert_eq!(world.store.stat(b).unwrap().unwrap().size, size);
    assert_eq!(world.store.read(b, 0, 3).unwrap()[..], *b"a\0\0");
    assert_eq!(world.store.read(b, size - 4, 10).unwrap()[..], *b"\0end");
    assert_eq!(world.store.read(a, size - 4, 10).unwrap()[..], [0; 4]);
    audit(&world.store);
}

/// Regression: a buffer of transactions without changes had no position. When it was installed because the log had
/// grown, the B-tree recorded position 0, and log segments were missing at the next opening.
#[test]
fn transactions_without_changes_free_log_segments_and_nothing_else() {
    let mut world = SimulatedStore::new();
    let oid = blob(&world.store, "content");
    world.store.install().unwrap();
    for round in 0..2 {
        let version = world.store.stat(oid).unwrap().unwrap().version;
        let expect = Op::Expect { oid, version: Some(version) };
        for _ in 0..40 {
            commit(&world.store, vec![expect.clone(); 2000]);
            world.core().install().unwrap();
        }
        let logged = world.store.status().log_bytes;
        assert!(logged <= 8 * small_options().segment_bytes, "{logged} bytes of log");
        assert_eq!(bytes(&world.store, oid), "content");
        world = world.crash(round).unwrap();
        assert_eq!(bytes(&world.store, oid), "content");
        world.store.commit_rows(crate::RowChanges::new()).unwrap();
        world.store.install().unwrap();
    }
}

#[test]
fn planted_bugs_of_these_scenarios_are_noticed() {
    assert_noticed(&[FaultBug::DamagedBlocksLost], a_damaged_chunk_beneath_a_write_does_not_stop_the_installer);
    assert_noticed(&[FaultBug::LateRemovalKeepsChunks], a_late_removal_of_garbage_leaves_nothing);
    assert_noticed(&[FaultBug::RefusedUploadKept], every_upload_that_a_transaction_takes_ends_with_it);
    assert_noticed(&[FaultBug::MovedChunksKept], an_append_that_waits_for_room_finds_the_end_of_its_blob);
}
