//! Rows of the store's user.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, mpsc};

use super::world::{SimulatedStore, memory_store, on_every_store, real_store};
use super::*;
use crate::RowChanges;
use crate::read::Readable;
use crate::rows::key::Key;

/// Above every key.
const END: &[u8] = &[0xff; limits::ROW_KEY + 1];

fn changes<'a>(changes: impl IntoIterator<Item = (&'a [u8], Option<Bytes>)>) -> RowChanges {
    let mut all = RowChanges::new();
    for (key, value) in changes {
        match value {
            Some(value) => all.put(key, value),
            None => all.remove(key),
        }
    }
    all
}

fn put(store: &Store, key: &[u8], value: impl Into<Bytes>) -> u64 {
    store.commit_rows(changes([(key, Some(value.into()))])).unwrap()
}

fn list_rows(this: &impl Readable, from: &[u8], to: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let [found, mut back] = [false, true].map(|back| {
        let mut found = Vec::new();
        let visit = |key: &[u8], value: &[u8]| {
            found.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        };
        crate::read::rows::rows(this, (from, to), back, visit).unwrap();
        found
    });
    back.reverse();
    assert_eq!(found, back);
    found
}

fn all(this: &impl Readable) -> Vec<(Vec<u8>, Vec<u8>)> {
    list_rows(this, &[], END)
}

fn keys(this: &impl Readable, from: &[u8], to: &[u8]) -> Vec<Vec<u8>> {
    list_rows(this, from, to).into_iter().map(|(key, _)| key).collect()
}

#[test]
fn a_row_is_what_was_last_put() {
    on_every_store(|store, settle| {
        assert_eq!(store.row(b"k").unwrap(), None);
        let first = put(store, b"k", "one");
        settle();
        assert_eq!(store.row(b"k").unwrap().unwrap(), "one");
        assert!(put(store, b"k", "") > first);
        assert_eq!(store.row(b"k").unwrap().unwrap(), "");
        settle();
        assert_eq!(store.row(b"k").unwrap().unwrap(), "");
        store.commit_rows(changes([(&b"k"[..], None), (b"never", None)])).unwrap();
        assert_eq!(store.row(b"k").unwrap(), None);
        settle();
        assert_eq!((store.row(b"k").unwrap(), all(store)), (None, Vec::new()));
    });
}

#[test]
fn rows_of_every_size_come_back() {
    on_every_store(|store, settle| {
        let sizes = [0, 1, 15_000, 20_000, (64 << 10) - 1, 64 << 10, 1 << 20, limits::ROW_VALUE];
        let key = |size: usize| vec![size as u8; 1 + size % limits::ROW_KEY];
        let mut all = RowChanges::new();
        sizes.iter().for_each(|size| all.put(&key(*size), pattern(*size, 1)));
        all.put(&[0xff; limits::ROW_KEY], Bytes::new());
        assert_eq!((all.len(), all.is_empty()), (sizes.len() + 1, false));
        store.commit_rows(all).unwrap();
        for _ in 0..2 {
            for size in sizes {
                assert!(store.row(&key(size)).unwrap().unwrap() == pattern(size, 1), "{size} bytes");
            }
            let mut found: Vec<_> = super::rows::all(store).into_iter().map(|(_, value)| value.len()).collect();
            found.sort_unstable();
            assert_eq!(found, [&[0], &sizes[..]].concat());
            settle();
        }
    });
}

#[test]
fn the_last_of_several_changes_of_a_row_counts() {
    on_every_store(|store, settle| {
        let value = |text: &'static str| Some(Bytes::from(text));
        let (b, a): (&[u8], &[u8]) = (b"b", b"a");
        store.commit_rows(changes([(b, value("1")), (a, None), (b, None), (a, value("2")), (b, value("3"))])).unwrap();
        settle();
        let found = all(store);
        assert_eq!(found, [(b"a".to_vec(), b"2".to_vec()), (b"b".to_vec(), b"3".to_vec())]);
        store.commit_rows(changes([(a, value("4")), (a, None)])).unwrap();
        assert_eq!(keys(store, b"", END), [b"b"]);
    });
}

#[test]
fn ranges_are_in_order_whatever_layer_the_rows_are_in() {
    on_every_store(|store, settle| {
        let key = |n: u32| n.to_be_bytes();
        let put_all = |which: &dyn Fn(u32) -> bool| {
            let mut all = RowChanges::new();
            (0..3000).rev().filter(|n| which(*n)).for_each(|n| all.put(&key(n), key(n).to_vec().into()));
            store.commit_rows(all).unwrap();
        };
        put_all(&|n| n % 3 == 0 || n > 2000);
        settle();
        put_all(&|n| n % 3 == 1 && n < 2500);
        let gone = changes([300, 301, 2999].map(|n| key(n).to_vec()).iter().map(|key| (&key[..], None)));
        store.commit_rows(gone).unwrap();
        let is_there = |n: &u32| (n % 3 < 2 || *n > 2000) && ![300, 301, 2999].contains(n);
        for (from, to) in [(0, 3000), (10, 10), (20, 10), (5, 6), (295, 310), (1999, 2100), (2998, 4000)] {
            let expected: Vec<_> = (from..to.min(3000)).filter(is_there).map(|n| key(n).to_vec()).collect();
            assert_eq!(keys(store, &key(from), &key(to)), expected, "from {from} to {to}");
        }
        let mut seen = 0;
        let rows = store.rows(&key(0), &key(3000), |_, _| {
            seen += 1;
            if seen == 700 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        rows.unwrap();
        assert_eq!(seen, 700);
        let mut last = Vec::new();
        let back = store.rows_back(&key(0), &key(2999), |key, _| {
            last.push(key.to_vec());
            if last.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        back.unwrap();
        assert_eq!(last, [key(2998), key(2997)]);
    });
}

#[test]
fn rows_are_independent_of_contents() {
    on_every_store(|store, settle| {
        let id = content(store, "content");
        put(store, b"\0", "first");
        put(store, b"\xff", "last");
        settle();
        assert_eq!(keys(store, b"", END), [b"\0", b"\xff"]);
        assert_eq!(ids(store), [id]);
    });
}

#[test]
fn rows_over_a_limit_are_refused_by_kind_and_change_nothing() {
    on_every_store(|store, _| {
        let refusal = |changes: RowChanges| {
            let (sender, told) = mpsc::channel();
            store.submit_rows(changes.clone(), move |result| sender.send(result).unwrap());
            let error = store.commit_rows(changes).unwrap_err();
            assert_eq!(told.recv().unwrap().unwrap_err().message(), error.message());
            (error.kind(), error.message().to_owned())
        };
        let small = || Some(Bytes::from("v"));
        let with = |key: &[u8], value| changes([(&b"fine"[..], small()), (key, value)]);
        assert_eq!(refusal(with(b"", None)), (ErrorKind::Invalid, "the key of a row is empty".to_owned()));
        let message = "the key of a row has 401 bytes; the limit is 400".to_owned();
        assert_eq!(refusal(with(&[1; 401], small())), (ErrorKind::TooLarge, message));
        let message = "the value of row 0aff has 5242881 bytes; the limit is 5242880".to_owned();
        assert_eq!(
            refusal(with(b"\x0a\xff", Some(vec![0; 5 * 1024 * 1024 + 1].into()))),
            (ErrorKind::TooLarge, message)
        );
        let mut many = RowChanges::new();
        (0..=limits::OPERATIONS).for_each(|n| many.remove(&n.to_be_bytes()));
        let (kind, message) = refusal(many);
        assert_eq!(kind, ErrorKind::TooLarge);
        assert!(message.starts_with("1048577 rows and contents are changed together"), "{message}");
        let mut large = RowChanges::new();
        let value = Bytes::from(vec![0; limits::ROW_VALUE]);
        (0..65u8).for_each(|n| large.put(&[n], value.clone()));
        let message = "a change of rows and contents has 340787265 bytes; the limit is 335544320".to_owned();
        assert_eq!(refusal(large), (ErrorKind::TooLarge, message));
        assert_eq!(all(store), []);
    });
}

#[test]
fn no_row_is_seen_before_it_is_durable() {
    let world = SimulatedStore::new();
    put(&world.store, b"a", "old");
    let (sender, told) = mpsc::channel();
    let both = changes([(&b"a"[..], Some("new".into())), (b"b", Some("new".into()))]);
    world.store.submit_rows(both, move |result| sender.send(result.unwrap()).unwrap());
    assert_eq!(all(&world.store), [(b"a".to_vec(), b"old".to_vec())]);
    assert!(told.try_recv().is_err());
    world.store.force().unwrap();
    assert_eq!(told.recv().unwrap(), world.store.status().version);
    let both = all(&world.store);
    assert_eq!(both.len(), 2);
    assert_eq!(all(&world.crash(1).unwrap().store), both);
}

#[test]
fn a_snapshot_keeps_its_rows() {
    on_every_store(|store, settle| {
        put(store, b"a", "one");
        put(store, b"b", pattern(100_000, 1));
        settle();
        let (snapshot, before) = (store.snapshot().unwrap(), all(store));
        store.commit_rows(changes([(&b"a"[..], None), (b"b", Some("x".into())), (b"c", Some("y".into()))])).unwrap();
        settle();
        put(store, b"b", "z");
        assert_eq!(all(&snapshot), before);
        assert_eq!((snapshot.row(b"a").unwrap().unwrap(), snapshot.row(b"c").unwrap()), (Bytes::from("one"), None));
        assert_eq!(keys(store, b"", END), [b"b", b"c"]);
    });
}

#[test]
fn a_visitor_of_rows_may_use_the_store() {
    on_every_store(|store, settle| {
        for key in [b"a", b"b"] {
            put(store, key, "value");
        }
        settle();
        put(store, b"c", "value");
        let mut seen = Vec::new();
        let visit = |key: &[u8], value: &[u8]| {
            assert_eq!(store.row(key).unwrap().unwrap(), value);
            store.submit_rows(changes([(key, None), (b"d", Some("new".into()))]), |_| {});
            seen.push(key.to_vec());
            ControlFlow::Continue(())
        };
        store.rows(b"", END, visit).unwrap();
        assert_eq!(seen, [b"a", b"b", b"c"], "one state, whatever is changed meanwhile");
        store.force().unwrap();
        store.commit_rows(RowChanges::new()).unwrap();
        assert_eq!(keys(store, b"", END), [b"d"]);
    });
}

/// The change numbers of each thread in the order of their replies.
type PositionsByThread = Arc<Mutex<Vec<(usize, Vec<u64>)>>>;

#[test]
fn each_thread_gets_its_replies_in_the_order_of_submission_and_of_the_log() {
    let run = |store: &Store| {
        let (told, positions) = (PositionsByThread::default(), Arc::new(Mutex::new(Vec::new())));
        *told.lock().unwrap() = (0..4).map(|thread| (thread, Vec::new())).collect();
        std::thread::scope(|threads| {
            for thread in 0..4usize {
                let (told, positions) = (&told, &positions);
                threads.spawn(move || {
                    for n in 0..500u64 {
                        let (told, positions) = (Arc::clone(told), Arc::clone(positions));
                        let change = changes([(&[thread as u8][..], Some(n.to_be_bytes().to_vec().into()))]);
                        store.submit_rows(change, move |result| {
                            positions.lock().unwrap().push(result.unwrap());
                            told.lock().unwrap()[thread].1.push(n);
                        });
                        if n % 64 == 0 {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        // An empty change comes after everything submitted before.
        store.commit_rows(RowChanges::new()).unwrap();
        for (_, numbers) in &*told.lock().unwrap() {
            assert!(numbers.iter().copied().eq(0..500));
        }
        let positions = std::mem::take(&mut *positions.lock().unwrap());
        (all(store).into_iter().map(|(_, value)| value).collect::<Vec<_>>(), positions)
    };
    let last = vec![499u64.to_be_bytes().to_vec(); 4];
    let dir = tempfile::tempdir().unwrap();
    let (rows, positions) = run(&real_store(dir.path()));
    assert_eq!(rows, last);
    assert!(positions.is_sorted(), "replies come in the order of the log");
    assert_eq!(run(&memory_store()).0, last);
}

#[test]
fn a_damaged_row_is_named_and_other_rows_are_readable() {
    let world = SimulatedStore::new();
    for (key, value) in [(&b"a"[..], "fine"), (b"bad\xff", "value"), (b"c", "fine")] {
        put(&world.store, key, value);
    }
    world.store.install().unwrap();
    let damage = |key: &[u8], value: &[u8]| {
        let row = (Key::row(key), Some(Bytes::copy_from_slice(value)));
        crate::engine::Engine::write(&world.engine, &mut [Ok(row)].into_iter()).unwrap();
    };
    // The bytes of another row, with a checksum for that row's key.
    let mut other = None;
    let key = Key::row(b"c");
    crate::engine::Engine::read(&world.engine, &mut |engine| other = engine.get(&key).unwrap().map(<[u8]>::to_vec))
        .unwrap();
    for wrong in [&b"valuf\0\0\0\0"[..], b"abc", b"", &other.unwrap()] {
        damage(b"bad\xff", wrong);
        let error = world.store.row(b"bad\xff").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.message().contains("row 626164ff is damaged"), "{error}");
        let mut seen = Vec::new();
        let error = world.store.rows(b"", END, |key, _| {
            seen.push(key.to_vec());
            ControlFlow::Continue(())
        });
        assert_eq!((error.unwrap_err().kind(), seen), (ErrorKind::Corrupt, vec![b"a".to_vec()]));
        assert_eq!(world.store.row(b"c").unwrap().unwrap(), "fine");
        let report = world.store.scrub(&()).unwrap();
        assert_eq!((report.rows, report.damaged), (3, 1));
        assert!(report.damage[0].what.starts_with("row 626164ff: "), "{}", report.damage[0]);
        let error = world.store.backup(&mut Vec::new(), &()).unwrap_err();
        assert!(error.message().contains("row 626164ff is damaged"), "{error}");
    }
    put(&world.store, b"bad\xff", "mended");
    assert_eq!(all(&world.store).len(), 3);
    world.store.install().unwrap();
    assert!(world.store.scrub(&()).unwrap().is_clean());
}

#[test]
fn a_store_in_memory_without_room_still_takes_removals() {
    let store = Store::in_memory(Options { memory_bytes: 1 << 20, ..super::world::small_options() }).unwrap();
    let mut many = RowChanges::new();
    (0..20u8).for_each(|n| many.put(&[n], pattern(60_000, n)));
    store.commit_rows(many).unwrap();
    let error = store.commit_rows(changes([(&b"x"[..], Some(pattern(60_100, 1))), (&[1], None)])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    // A change may take no more than it frees, unless it is needed.
    store.commit_rows(changes([(&b"x"[..], Some(pattern(59_000, 1))), (&[1], None)])).unwrap();
    store.commit_rows(changes([(&b"x"[..], Some(pattern(50_000, 1)))])).unwrap();
    let error = store.commit_rows(changes([(&b"x"[..], Some(pattern(59_000, 1)))])).unwrap_err();
    assert_eq!((error.kind(), store.is_memory_full()), (ErrorKind::Full, true));
    store.commit_rows(changes([(&b"z"[..], Some(Bytes::new()))]).mark_needed()).unwrap();
    store.commit_rows(changes([(&[2][..], None), (&[3], None), (&[4], None)])).unwrap();
    assert!(!store.is_memory_full());
    put(&store, b"y", "z");
    assert_eq!(all(&store).len(), 19);
}
