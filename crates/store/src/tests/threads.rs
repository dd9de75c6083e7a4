//! Many threads on one store: writers, readers, snapshots and the store's own threads, with a buffer that is always
//! full.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use model::planted_bug::assert_noticed;
use parking_lot::Mutex;

use super::audit::audit;
use super::world::{SimulatedStore, small_options};
use super::*;
use crate::ForceScope;
use crate::disk::sim::SimDisk;
use crate::engine::memory::MemoryEngine;
use crate::plant::ForceBug;
use crate::read::rows;
use crate::read::{Piece, Readable};

const CHUNK: usize = 64 << 10;
/// How long a reply may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a reply is awaited that must not come.
const NO_REPLY_WAIT: Duration = Duration::from_secs(1);

fn busy_options() -> Options {
    Options { threads: true, mob_bytes: 256 << 10, segment_bytes: 64 << 10, ..small_options() }
}

/// Runs a test on a store in memory, on a simulated disk and on a real one.
fn on_every_store(test: impl Fn(&Store)) {
    test(&Store::in_memory(busy_options()).unwrap());
    let world = SimulatedStore::open_with(SimDisk::new(), MemoryEngine::default(), busy_options()).unwrap();
    test(&world.store);
    let dir = tempfile::tempdir().unwrap();
    test(&Store::open(dir.path(), busy_options()).unwrap());
}

/// Waits until the committer has nothing to do.
fn wait_for_rest(store: &Store) {
    let deadline = Instant::now() + PATIENCE;
    while !store.core().pipeline.queue.is_committer_resting() {
        assert!(Instant::now() < deadline, "the committer does not rest");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Contents and rows that every transaction changes together.
struct Group {
    /// A content whose chunks all begin with the stamp.
    large: ContentId,
    small: ContentId,
}

impl Group {
    fn create(store: &Store) -> Self {
        let group = Self { large: new_id(), small: new_id() };
        let mut changes = of_contents([create(group.large, vec![0; 3 * CHUNK + 100]), create(group.small, vec![0; 8])]);
        changes.put(b"stamp", vec![0; 8].into());
        changes.put(b"even", vec![0; 8].into());
        store.commit_rows(changes).unwrap();
        group
    }

    fn stamp(&self, stamp: u64) -> RowChanges {
        let data = Bytes::copy_from_slice(&stamp.to_be_bytes());
        let mut changes = of_contents(replace(self.small, data.clone()));
        if stamp.is_multiple_of(7) {
            // Replaces all chunks, in a blob file.
            let mut whole = vec![0; 3 * CHUNK + 100];
            whole.chunks_mut(CHUNK).for_each(|chunk| chunk[..8].copy_from_slice(&data));
            replace(self.large, whole).into_iter().for_each(|change| changes.content(change));
        } else {
            (0..4).for_each(|i| changes.content(write(self.large, i * CHUNK, data.clone())));
        }
        // The row "even" exists while the stamp is even.
        if stamp.is_multiple_of(2) {
            changes.put(b"even", data.clone())
        } else {
            changes.remove(b"even")
        }
        changes.put(b"stamp", data);
        changes
    }

    /// The stamp of all contents and rows, read from one state.
    fn read(&self, snapshot: &crate::Snapshot) -> u64 {
        let number = |bytes: Bytes| u64::from_be_bytes(bytes[..8].try_into().unwrap());
        let stamp = number(snapshot.read_content(self.small, 0, 8).unwrap());
        for chunk in 0..4 {
            let found = number(snapshot.read_content(self.large, chunk * CHUNK as u64, 8).unwrap());
            assert_eq!(found, stamp, "chunk {chunk}");
        }
        assert_eq!(number(snapshot.row(b"stamp").unwrap().unwrap()), stamp);
        let even = snapshot.row(b"even").unwrap().map(number);
        assert_eq!(even, Some(stamp).filter(|stamp| stamp.is_multiple_of(2)));
        stamp
    }

    /// Reads one content from the newest state: its chunks agree.
    fn read_newest(&self, store: &Store) {
        let whole = store.read_content(self.large, 0, 1 << 20).unwrap();
        assert_eq!(whole.len(), 3 * CHUNK + 100);
        assert!(whole.chunks(CHUNK).all(|chunk| chunk[..8] == whole[..8]));
    }
}

/// Stops the readers, even if a writer panics.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn contents_and_rows_that_change_together_are_visible_together_and_never_go_back() {
    on_every_store(|store| {
        let (group, done) = (Group::create(store), AtomicBool::new(false));
        let newest = AtomicU64::new(0);
        std::thread::scope(|threads| {
            let done = SetOnDrop(&done);
            for _ in 0..3 {
                threads.spawn(|| {
                    let (mut last, mut kept) = (0, Vec::new());
                    while !done.0.load(Ordering::Relaxed) {
                        let acknowledged = newest.load(Ordering::SeqCst);
                        let snapshot = store.snapshot().unwrap();
                        assert!(snapshot.version() >= acknowledged, "acknowledged but not in a later snapshot");
                        assert!(snapshot.version() >= last);
                        last = snapshot.version();
                        let stamp = group.read(&snapshot);
                        kept.push((snapshot, stamp));
                        if kept.len() > 5 {
                            let (snapshot, stamp) = kept.remove(0);
                            assert_eq!(group.read(&snapshot), stamp, "a snapshot has changed");
                        }
                    }
                });
            }
            threads.spawn(|| {
                while !done.0.load(Ordering::Relaxed) {
                    group.read_newest(store);
                }
            });
            let writers: Vec<_> = (0..16u64)
                .map(|thread| {
                    let (group, newest) = (&group, &newest);
                    threads.spawn(move || {
                        for i in 0..30 {
                            let version = store.commit_rows(group.stamp(i * 16 + thread)).unwrap();
                            newest.fetch_max(version, Ordering::SeqCst);
                        }
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            drop(done);
        });
        audit(store);
    });
}

#[test]
fn chunks_that_many_threads_write_are_all_there_and_whole() {
    on_every_store(|store| {
        let id = content(store, "");
        std::thread::scope(|threads| {
            for thread in 0..8 {
                threads.spawn(move || {
                    for i in 0..6 {
                        // One chunk in two halves, which go through the log, and one as a whole.
                        let (at, stamp) = ((i * 8 + thread) * CHUNK, (i * 8 + thread) as u8);
                        let half = || vec![stamp; CHUNK / 2];
                        commit(store, [write(id, at, half()), write(id, at + CHUNK / 2, half())]);
                        commit(store, [write(id, (48 + i * 8 + thread) * CHUNK, vec![stamp; CHUNK])]);
                    }
                });
            }
        });
        assert_eq!(store.content_size(id).unwrap(), Some(96 * CHUNK as u64));
        for i in 0..96 {
            let chunk = store.read_content(id, i * CHUNK as u64, CHUNK as u64).unwrap();
            assert!(chunk.len() == CHUNK && chunk.iter().all(|b| *b == (i % 48) as u8), "chunk {i}");
        }
        audit(store);
    });
}

/// The content that a row names.
fn current(row: Bytes) -> ContentId {
    ContentId(u128::from_be_bytes(row[..].try_into().unwrap()))
}

#[test]
fn contents_are_replaced_by_uploads_while_they_are_read_and_the_old_ones_are_freed() {
    on_every_store(|store| {
        let (first, done) = (content(store, vec![0; 4 * CHUNK]), AtomicBool::new(false));
        let named = |id: ContentId| Bytes::copy_from_slice(&id.0.to_be_bytes());
        let mut row = RowChanges::new();
        row.put(b"current", named(first));
        store.commit_rows(row).unwrap();
        let newest = Mutex::new(first);
        std::thread::scope(|threads| {
            let done = SetOnDrop(&done);
            for reader in 0..3 {
                let done = done.0;
                threads.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        let snapshot = store.snapshot().unwrap();
                        let id = current(snapshot.row(b"current").unwrap().unwrap());
                        if reader == 0 {
                            let whole = snapshot.read_content(id, 0, 1 << 20).unwrap();
                            assert!(whole.len() > CHUNK && whole.iter().all(|b| *b == whole[0]));
                            continue;
                        }
                        let pieces = snapshot.content_pieces(id, 0, u64::MAX).unwrap();
                        drop(snapshot);
                        for piece in &pieces.pieces {
                            if let Piece::File { file, offset, len, crc32c } = piece {
                                let mut bytes = vec![0; *len as usize];
                                std::os::unix::fs::FileExt::read_exact_at(&**file, &mut bytes, *offset).unwrap();
                                assert_eq!(crate::checksum::crc32c(&bytes), *crc32c, "freed while it was read");
                            }
                        }
                    }
                });
            }
            let writers: Vec<_> = (0..4u8)
                .map(|thread| {
                    let newest = &newest;
                    threads.spawn(move || {
                        for i in 0..12u8 {
                            let stamp = thread * 12 + i + 1;
                            let len = CHUNK * (2 + usize::from(i) % 3) + usize::from(i);
                            let upload = upload(store, &vec![stamp; len]);
                            if i % 5 == 4 {
                                store.abort_upload(upload);
                            } else {
                                let (id, mut newest) = (new_id(), newest.lock());
                                let mut changes = of_contents([take(id, upload), delete(*newest)]);
                                changes.put(b"current", named(id));
                                store.commit_rows(changes).unwrap();
                                *newest = id;
                            }
                            let _ = store.core().do_housekeeping();
                        }
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            drop(done);
        });
        assert_eq!(ids(store), [*newest.lock()]);
        audit(store);
    });
}

/// Regression: if a caller forced the log concurrently with the committer, batches were taken in one order and written
/// in another.
#[test]
fn batches_follow_each_other_if_several_threads_force() {
    let world = SimulatedStore::open_with(SimDisk::new(), MemoryEngine::default(), busy_options()).unwrap();
    let store = &world.store;
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..200 {
                    submit(store, [create(new_id(), "x")]);
                    store.force().unwrap();
                }
            });
        }
    });
    store.force().unwrap();
    for seed in 0..5 {
        assert_eq!(ids(&world.crash(seed).unwrap().store).len(), 800);
    }
}

#[test]
fn closing_under_writers_loses_nothing_acknowledged_and_replies_to_all() {
    for round in 0..10u64 {
        let world = SimulatedStore::open_with(SimDisk::new(), MemoryEngine::default(), busy_options()).unwrap();
        let store = &world.store;
        let kept: Vec<ContentId> = std::thread::scope(|threads| {
            let writers: Vec<_> = (0..8)
                .map(|_| {
                    threads.spawn(|| {
                        let mut kept = Vec::new();
                        loop {
                            let id = new_id();
                            match store.commit_rows(of_contents([create(id, pattern(5000, 1))])) {
                                Ok(_) => kept.push(id),
                                Err(error) => {
                                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                                    return kept;
                                }
                            }
                        }
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(20 + round));
            store.clone().close().unwrap();
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
        });
        let reopened = world.crash(round).unwrap();
        assert_eq!(ids(&reopened.store).len(), kept.len());
        for id in kept {
            assert_eq!(bytes(&reopened.store, id), pattern(5000, 1));
        }
        audit(&reopened.store);
    }
}

/// The stamp of all rows.
fn stamp_of_rows(this: &impl Readable) -> u64 {
    let (mut stamp, mut found) = (None, Vec::new());
    let visit = |key: &[u8], value: &[u8]| {
        let this = u64::from_be_bytes(*value.first_chunk().unwrap());
        assert_eq!(*stamp.get_or_insert(this), this);
        found.push(key.to_vec());
        ControlFlow::Continue(())
    };
    rows::rows(this, (b"a", b"d"), false, visit).unwrap();
    let stamp = stamp.unwrap();
    assert_eq!(found.len(), if stamp % 2 == 1 { 2 } else { 3 }, "stamp {stamp}: {found:?}");
    stamp
}

#[test]
fn rows_that_change_together_are_visible_together_and_never_go_back() {
    on_every_store(|store| {
        let (keys, done): ([&[u8]; 3], _) = ([b"a", b"b", b"c"], AtomicBool::new(false));
        // The last value is shared, the others are copied; every second change removes "b".
        let changes = |stamp: u64| {
            let mut changes = RowChanges::new();
            for (key, len) in keys.into_iter().zip([8, 1000, CHUNK]) {
                let value: Bytes = stamp.to_be_bytes().iter().cycle().take(len).copied().collect();
                if key == b"b" && stamp % 2 == 1 { changes.remove(key) } else { changes.put(key, value) }
            }
            changes
        };
        store.commit_rows(changes(0)).unwrap();
        let stamps = Mutex::new(1..400);
        std::thread::scope(|threads| {
            let done = SetOnDrop(&done);
            for _ in 0..2 {
                threads.spawn(|| {
                    let mut kept = Vec::new();
                    while !done.0.load(Ordering::Relaxed) {
                        stamp_of_rows(store);
                        let snapshot = store.snapshot().unwrap();
                        let stamp = stamp_of_rows(&snapshot);
                        kept.push((snapshot, stamp));
                        if kept.len() > 5 {
                            let (snapshot, stamp) = kept.remove(0);
                            assert_eq!(stamp_of_rows(&snapshot), stamp);
                        }
                    }
                });
            }
            threads.spawn(|| {
                let mut last = 0;
                while !done.0.load(Ordering::Relaxed) {
                    let stamp = u64::from_be_bytes(store.row(b"a").unwrap().unwrap()[..].try_into().unwrap());
                    assert!(stamp >= last, "{stamp} after {last}");
                    last = stamp;
                }
            });
            let writers: Vec<_> = (0..8)
                .map(|_| {
                    threads.spawn(|| {
                        loop {
                            let (sender, told) = mpsc::channel();
                            // Submitted under a lock, so their order is that of the stamps.
                            {
                                let mut stamps = stamps.lock();
                                let Some(stamp) = stamps.next() else { return };
                                store.submit_rows(changes(stamp), move |result| sender.send(result).unwrap());
                            }
                            told.recv().unwrap().unwrap();
                        }
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            drop(done);
        });
        assert_eq!(stamp_of_rows(store), 399);
    });
}

#[test]
fn changes_that_are_submitted_together_take_one_force() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), busy_options()).unwrap();
    let row = |key: &[u8]| {
        let mut changes = RowChanges::new();
        changes.put(key, Bytes::from_static(b"value"));
        changes
    };
    // The step that says that the store was opened comes before.
    store.commit_rows(row(b"first")).unwrap();
    let (before, (done, results)) = (store.status().forces, mpsc::channel());
    let submit = |key: &[u8]| {
        let done = done.clone();
        (row(key), Box::new(move |result| done.send(result).unwrap()) as crate::RowReply)
    };
    store.submit_rows_together((0..20_u8).map(|key| submit(&[key])).collect());
    let positions: Vec<u64> = results.iter().take(20).map(Result::unwrap).collect();
    assert!(positions.is_sorted(), "each is a change of its own, in order: {positions:?}");
    assert_eq!(store.status().forces - before, 1);
    let closed = store.clone();
    store.close().unwrap();
    closed.submit_rows_together(vec![submit(b"late")]);
    assert!(results.recv().unwrap().is_err(), "a closed store refuses them");
}

/// Submits a row, and returns the thread that replied and the position.
fn submit_row(store: &Store, key: &[u8]) -> mpsc::Receiver<(std::thread::ThreadId, u64)> {
    let (replied, reply) = mpsc::channel();
    let mut changes = RowChanges::new();
    changes.put(key, Bytes::from_static(b"value"));
    store.submit_rows(changes, move |result| replied.send((std::thread::current().id(), result.unwrap())).unwrap());
    reply
}

#[test]
fn thread_in_a_force_scope_forces_what_it_has_submitted() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), busy_options()).unwrap();
    let own = std::thread::current().id();
    let scope = ForceScope::enter();
    let first = submit_row(&store, b"first");
    // A scope within another one leaves all to that.
    assert!(!ForceScope::enter().force());
    assert!(first.try_recv().is_err(), "it was forced before the end of the scope");
    assert!(scope.force());
    let (thread, position) = first.try_recv().unwrap();
    assert_eq!((thread, store.position() >= position), (own, true));
    assert_eq!(store.row(b"first").unwrap().unwrap(), &b"value"[..]);
    // Nothing was submitted.
    assert!(!ForceScope::enter().force());
    // Without a scope, and at the end of one that is not to force, the committer does it.
    let second = submit_row(&store, b"second");
    assert_ne!(second.recv_timeout(PATIENCE).unwrap().0, own);
    let scope = ForceScope::enter();
    let third = submit_row(&store, b"third");
    drop(scope);
    assert_ne!(third.recv_timeout(PATIENCE).unwrap().0, own);
    // A thread that waits within a scope does not wait for itself.
    let scope = ForceScope::enter();
    let fourth = submit_row(&store, b"fourth");
    commit(&store, [create(new_id(), "content")]);
    assert!(fourth.recv_timeout(PATIENCE).is_ok());
    drop(scope);
}

#[test]
fn what_a_thread_forces_while_another_forces_is_left_to_the_committer() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), busy_options()).unwrap();
    std::thread::scope(|threads| {
        let (hold, _) = store.hold().unwrap();
        let forced = threads.spawn(|| {
            let scope = ForceScope::enter();
            let reply = submit_row(&store, b"row");
            (scope.force(), reply)
        });
        let (forced, reply) = forced.join().unwrap();
        assert!(!forced && reply.try_recv().is_err(), "it was forced while the log was held");
        drop(hold);
        assert!(reply.recv_timeout(PATIENCE).is_ok());
    });
}

#[test]
fn thread_that_is_not_alone_leaves_its_changes_to_the_committer() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), busy_options()).unwrap();
    store.log_opening().unwrap();
    let (hold, _) = store.hold().unwrap();
    let batch = [&b"first"[..], b"second"].map(|key| submit_row(&store, key));
    drop(hold);
    for reply in &batch {
        reply.recv_timeout(PATIENCE).unwrap();
    }
    let own = std::thread::current().id();
    let forced = [1, 2].map(|round| {
        // A committer that is busy would force it in any case.
        wait_for_rest(&store);
        let scope = ForceScope::enter();
        let reply = submit_row(&store, &[round]);
        let forced = scope.force();
        assert_eq!(reply.recv_timeout(PATIENCE).unwrap().0 == own, forced);
        forced
    });
    assert!(!forced[0], "the last batch had two transactions");
}

#[test]
fn marker_follows_what_threads_have_forced() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), busy_options()).unwrap();
    for round in 0..3_u8 {
        let pipeline = &store.core().pipeline;
        wait_for_rest(&store);
        assert!(pipeline.writer.lock().has_marker, "no marker was written before round {round}");
        for row in 0..3 {
            let scope = ForceScope::enter();
            let reply = submit_row(&store, &[round, row]);
            // The committer may force meanwhile, because it was woken to look.
            let _ = scope.force();
            assert!(reply.recv_timeout(PATIENCE).is_ok(), "round {round}, row {row}");
            let is_resting = pipeline.queue.is_committer_resting();
            let has_marker = pipeline.writer.lock().has_marker;
            assert!(!is_resting || has_marker, "the committer rests without a marker in round {round} after row {row}");
        }
    }
}

#[test]
fn replies_are_in_the_order_of_the_log_whichever_threads_force() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), busy_options()).unwrap();
    let replied = std::sync::Arc::new(Mutex::new(Vec::new()));
    std::thread::scope(|threads| {
        for thread in 0..4_u8 {
            let (store, replied) = (&store, &replied);
            threads.spawn(move || {
                for row in 0..200_u8 {
                    let (scope, replied) = (ForceScope::enter(), replied.clone());
                    let mut changes = RowChanges::new();
                    changes.put(&[thread, row], Bytes::from_static(b"value"));
                    let (ended, end) = mpsc::channel();
                    store.submit_rows(changes, move |result| {
                        replied.lock().push(result.unwrap());
                        ended.send(()).unwrap();
                    });
                    // Some leave their changes to the committer.
                    if row % 5 == 0 {
                        drop(scope)
                    } else {
                        let _ = scope.force();
                    }
                    end.recv_timeout(PATIENCE).unwrap();
                }
            });
        }
    });
    let replied = replied.lock();
    assert_eq!(replied.len(), 800);
    assert!(replied.is_sorted(), "a later change was answered first");
}

#[test]
fn replies_to_a_batch_precede_those_to_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), busy_options()).unwrap();
    let (ended, end) = mpsc::channel();
    let scope = ForceScope::enter();
    let (writer, mut changes) = (store.clone(), RowChanges::new());
    changes.put(b"first", Bytes::from_static(b"value"));
    store.submit_rows(changes, move |_| {
        // The committer forces it while this thread replies.
        let second = submit_row(&writer, b"second");
        let is_overtaken = second.recv_timeout(NO_REPLY_WAIT).is_ok();
        ended.send((second, is_overtaken)).unwrap();
    });
    assert!(scope.force());
    let (second, is_overtaken) = end.try_recv().unwrap();
    assert!(!is_overtaken, "a later change was answered first");
    second.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn planted_bugs_of_forces_are_noticed() {
    assert_noticed(&[ForceBug::RepliesOvertaken], replies_to_a_batch_precede_those_to_the_next_one);
    assert_noticed(&[ForceBug::MarkerForgotten], marker_follows_what_threads_have_forced);
    assert_noticed(&[ForceBug::OthersIgnored], thread_that_is_not_alone_leaves_its_changes_to_the_committer);
}
