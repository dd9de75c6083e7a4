//! Many threads on one store: writers, readers, snapshots and the store's own threads, with a buffer that is always
//! full.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use parking_lot::Mutex;

use super::audit::audit;
use super::world::{SimulatedStore, small_options};
use super::*;
use crate::RowChanges;
use crate::disk::sim::SimDisk;
use crate::engine::memory::MemoryEngine;
use crate::read::rows;
use crate::read::{Piece, Readable};

const CHUNK: usize = 64 << 10;

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

/// Objects that every transaction changes together.
struct Group {
    /// A blob whose chunks all begin with the stamp.
    blob: Oid,
    record: Oid,
    attributes: Oid,
    /// A collection with `record` or `attributes` as its member, by the stamp's parity; the name is bound likewise.
    collection: Oid,
}

impl Group {
    fn create(store: &Store) -> Self {
        let mut ops = vec![
            create(0, Kind::Blob, vec![0; 3 * CHUNK + 100]),
            create(1, Kind::Record, vec![0; 8]),
            create(2, Kind::Blob, ""),
            create(3, Kind::Collection, ""),
        ];
        ops.push(Op::SetAttribute { oid: temporary(2), key: "stamp".into(), value: vec![0; 8].into() });
        ops.push(Op::Add { collection: temporary(3), member: temporary(1) });
        ops.push(Op::Bind { name: name("stamp"), oid: temporary(1) });
        let created = commit(store, ops).created;
        Self { blob: created[0], record: created[1], attributes: created[2], collection: created[3] }
    }

    fn stamp_ops(&self, stamp: u64) -> Vec<Op> {
        let data = Bytes::copy_from_slice(&stamp.to_be_bytes());
        let members = [self.record, self.attributes];
        let (new, old) = (members[(stamp % 2) as usize], members[(stamp % 2 + 1) as usize % 2]);
        let mut ops = vec![
            Op::Remove { collection: self.collection, member: old },
            Op::Add { collection: self.collection, member: new },
            Op::Bind { name: name("stamp"), oid: new },
            Op::Put { oid: self.record, data: data.clone() },
            Op::SetAttribute { oid: self.attributes, key: "stamp".into(), value: data.clone() },
        ];
        if stamp.is_multiple_of(7) {
            // Replaces all chunks, in a blob file.
            let mut whole = vec![0; 3 * CHUNK + 100];
            whole.chunks_mut(CHUNK).for_each(|chunk| chunk[..8].copy_from_slice(&data));
            ops.push(Op::Put { oid: self.blob, data: whole.into() });
        } else {
            let writes = (0..4).map(|i| Op::Write { oid: self.blob, offset: i * CHUNK as u64, data: data.clone() });
            ops.extend(writes);
        }
        ops
    }

    /// The stamp of all objects, read from one state.
    fn read(&self, snapshot: &crate::Snapshot) -> u64 {
        let number = |bytes: Bytes| u64::from_be_bytes(bytes[..8].try_into().unwrap());
        let stamp = number(snapshot.read(self.record, 0, 8).unwrap());
        for chunk in 0..4 {
            assert_eq!(number(snapshot.read(self.blob, chunk * CHUNK as u64, 8).unwrap()), stamp, "chunk {chunk}");
        }
        assert_eq!(number(snapshot.attribute(self.attributes, b"stamp").unwrap().unwrap()), stamp);
        let member = [self.record, self.attributes][(stamp % 2) as usize];
        assert_eq!(snapshot.members(self.collection, None, 10).unwrap(), [member]);
        assert_eq!(snapshot.resolve(&name("stamp")).unwrap(), Some(member));
        assert_eq!(snapshot.collections_of(member, None, 10).unwrap(), [self.collection]);
        let version = snapshot.stat(self.blob).unwrap().unwrap().version;
        assert_eq!(snapshot.stat(self.record).unwrap().unwrap().version, version);
        stamp
    }

    /// Reads one blob from the newest state: its chunks agree.
    fn read_newest(&self, store: &Store) {
        let whole = store.read(self.blob, 0, 1 << 20).unwrap();
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
fn objects_that_change_together_are_visible_together_and_never_go_back() {
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
                let mut last = 0;
                while !done.0.load(Ordering::Relaxed) {
                    group.read_newest(store);
                    let version = store.stat(group.record).unwrap().unwrap().version;
                    assert!(version >= last, "{version} after {last}");
                    last = version;
                }
            });
            let writers: Vec<_> = (0..16u64)
                .map(|thread| {
                    let (group, newest) = (&group, &newest);
                    threads.spawn(move || {
                        for i in 0..30 {
                            let version = commit(store, group.stamp_ops(i * 16 + thread)).version;
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
fn appends_of_many_threads_are_all_there_and_whole() {
    on_every_store(|store| {
        let oid = blob(store, "");
        std::thread::scope(|threads| {
            for thread in 1..=8u8 {
                threads.spawn(move || {
                    for _ in 0..6 {
                        let data = Bytes::from(vec![thread; CHUNK]);
                        commit(store, [Op::Append { oid, data }]);
                    }
                });
            }
        });
        let mut counts = [0; 9];
        for i in 0..48 {
            let chunk = store.read(oid, i * CHUNK as u64, CHUNK as u64).unwrap();
            assert!(chunk.len() == CHUNK && chunk.iter().all(|b| *b == chunk[0]));
            counts[usize::from(chunk[0])] += 1;
        }
        assert_eq!(counts, [0, 6, 6, 6, 6, 6, 6, 6, 6]);
        audit(store);
    });
}

#[test]
fn uploads_replace_content_while_it_is_read_and_the_old_content_is_freed() {
    on_every_store(|store| {
        let (oid, done) = (blob(store, vec![0; 4 * CHUNK]), AtomicBool::new(false));
        std::thread::scope(|threads| {
            let done = SetOnDrop(&done);
            for reader in 0..3 {
                let done = done.0;
                threads.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        if reader == 0 {
                            let whole = store.read(oid, 0, 1 << 20).unwrap();
                            assert!(whole.iter().all(|b| *b == whole[0]));
                            continue;
                        }
                        for piece in store.pieces(oid, 0, u64::MAX).unwrap().pieces {
                            if let Piece::File { file, offset, len, crc32c } = piece {
                                let mut bytes = vec![0; len as usize];
                                std::os::unix::fs::FileExt::read_exact_at(&*file, &mut bytes, offset).unwrap();
                                assert_eq!(crate::checksum::crc32c(&bytes), crc32c, "freed while it was read");
                            }
                        }
                    }
                });
            }
            let writers: Vec<_> = (0..4u8)
                .map(|thread| {
                    threads.spawn(move || {
                        for i in 0..12u8 {
                            let stamp = thread * 12 + i + 1;
                            let upload = store.begin_upload().unwrap();
                            let len = CHUNK * (2 + usize::from(i) % 3) + usize::from(i);
                            for piece in vec![stamp; len].chunks(100_000) {
                                store.upload(upload, Bytes::copy_from_slice(piece)).unwrap();
                            }
                            if i % 5 == 4 {
                                store.abort_upload(upload);
                            } else {
                                commit(store, [Op::PutUpload { oid, upload }]);
                            }
                            let _ = store.core().do_housekeeping();
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
                    store.submit(Transaction { ops: vec![create(0, Kind::Blob, "x")] }, |_| {});
                    store.force().unwrap();
                }
            });
        }
    });
    store.force().unwrap();
    for seed in 0..5 {
        let count = world.crash(seed).unwrap().store.objects(MAIN, None, 10_000).unwrap().len();
        assert_eq!(count, 800);
    }
}

#[test]
fn closing_under_writers_loses_nothing_acknowledged_and_replies_to_all() {
    for round in 0..10u64 {
        let world = SimulatedStore::open_with(SimDisk::new(), MemoryEngine::default(), busy_options()).unwrap();
        let store = &world.store;
        let kept: Vec<Oid> = std::thread::scope(|threads| {
            let writers: Vec<_> = (0..8)
                .map(|_| {
                    threads.spawn(|| {
                        let mut kept = Vec::new();
                        loop {
                            let ops = vec![create(0, Kind::Blob, pattern(5000, 1))];
                            match store.commit(Transaction { ops }) {
                                Ok(Outcome::Committed(committed)) => kept.extend(committed.created),
                                Ok(Outcome::Conflict(conflict)) => panic!("{conflict:?}"),
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
        assert_eq!(reopened.store.objects(MAIN, None, 10_000).unwrap().len(), kept.len());
        for oid in kept {
            assert_eq!(reopened.store.read(oid, 0, 5000).unwrap(), pattern(5000, 1));
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
