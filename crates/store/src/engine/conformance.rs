//! The conformance suite. Each test runs on every engine.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::memory::MemoryEngine;
use super::tree::TreeEngine;
use super::{BatchAborted, Engine, EngineError, EngineRead, EngineRow};
use crate::disk::RealDisk;
use crate::rows::key::Key;

/// Runs a test on each engine. The second argument opens the engine again after it was dropped.
fn on_each_engine(test: impl Fn(Box<dyn Engine>, &dyn Fn() -> Box<dyn Engine>)) {
    let memory = MemoryEngine::default();
    test(Box::new(memory.clone()), &|| Box::new(memory.clone()));
    let dir = tempfile::tempdir().unwrap();
    let open = |dir: &Path| Box::new(TreeEngine::open(&RealDisk::new(dir), &[7; 16]).unwrap());
    test(open(dir.path()), &|| open(dir.path()));
}

fn key(name: impl AsRef<[u8]>) -> Key {
    Key::from(name.as_ref())
}

fn write(engine: &dyn Engine, rows: &[(&str, Option<&'static str>)]) {
    let mut rows = rows.iter().map(|(k, v)| Ok((key(k), v.map(|v| Bytes::from_static(v.as_bytes())))));
    engine.write(&mut rows).unwrap();
}

fn rows(read: &dyn EngineRead, from: &str, to: &str) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut show = |key: &[u8], value: &[u8]| {
        rows.push((text(key), text(value)));
        ControlFlow::Continue(())
    };
    read.range(from.as_bytes(), to.as_bytes(), &mut show).unwrap();
    rows
}

fn keys(engine: &dyn Engine, from: &str, to: &str) -> String {
    let mut found = String::new();
    engine.read(&mut |read| found = rows(read, from, to).into_iter().map(|(key, _)| key).collect()).unwrap();
    found
}

fn value(engine: &dyn Engine, name: &str) -> Option<String> {
    let mut found = None;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    engine.read(&mut |read| found = read.get(name.as_bytes()).unwrap().map(text)).unwrap();
    found
}

#[test]
fn loaded_rows_are_shown_at_once_and_kept_by_the_next_batch() {
    on_each_engine(|engine, reopen| {
        let load = |rows: &[(&str, Option<&'static str>)]| {
            let mut rows = rows.iter().map(|(k, v)| Ok((key(k), v.map(|v| Bytes::from_static(v.as_bytes())))));
            engine.load(&mut rows).unwrap();
        };
        load(&[("b", Some("2")), ("a", Some("1"))]);
        load(&[("c", Some("3")), ("b", None), ("d", Some("4")), ("d", Some("5"))]);
        assert_eq!(keys(&*engine, "a", "e"), "acd");
        write(&*engine, &[("e", Some("6"))]);
        drop(engine);
        let engine = reopen();
        assert_eq!(keys(&*engine, "a", "f"), "acde");
        assert_eq!(value(&*engine, "d").as_deref(), Some("5"));
        write(&*engine, &[("f", Some("7"))]);
        assert_eq!(keys(&*engine, "a", "g"), "acdef");
    });
}

#[test]
fn ranges_begin_at_their_first_key_and_end_before_their_last() {
    on_each_engine(|engine, _| {
        write(&*engine, &[("d", Some("4")), ("b", Some("2")), ("c", Some("3")), ("a", Some("1"))]);
        for (from, to, expected) in [
            ("a", "e", "abcd"),
            ("b", "d", "bc"),
            ("aa", "cc", "bc"),
            ("b", "b", ""),
            ("d", "a", ""),
            ("\0", "a", ""),
            ("e", "f", ""),
            ("\0", "\x7f", "abcd"),
        ] {
            assert_eq!(keys(&*engine, from, to), expected, "{from:?}..{to:?}");
        }
        let mut seen = 0;
        let mut stop = |_: &[u8], _: &[u8]| {
            seen += 1;
            if seen == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        engine.read(&mut |read| read.range(b"a", b"e", &mut stop).unwrap()).unwrap();
        assert_eq!(seen, 2);
    });
}

#[test]
fn the_last_row_of_a_key_in_a_batch_counts() {
    on_each_engine(|engine, _| {
        write(&*engine, &[("a", Some("1")), ("b", Some("2")), ("gone", None)]);
        write(
            &*engine,
            &[("b", None), ("c", Some("3")), ("c", Some("33")), ("a", Some("")), ("d", Some("4")), ("d", None)],
        );
        assert_eq!(value(&*engine, "a").as_deref(), Some(""));
        assert_eq!(value(&*engine, "b"), None);
        assert_eq!(value(&*engine, "c").as_deref(), Some("33"));
        assert_eq!(keys(&*engine, "a", "z"), "ac");
    });
}

#[test]
fn an_aborted_batch_leaves_nothing() {
    on_each_engine(|engine, reopen| {
        write(&*engine, &[("a", Some("1")), ("b", Some("2"))]);
        let row = |name: &str, value| Ok((key(name), value));
        let rows =
            [row("a", Some(Bytes::from_static(b"9"))), row("b", None), row("c", Some(Bytes::new())), Err(BatchAborted)];
        assert!(matches!(engine.write(&mut rows.into_iter()), Err(EngineError::Aborted)));
        assert_eq!((value(&*engine, "a").as_deref(), keys(&*engine, "a", "z").as_str()), (Some("1"), "ab"));
        drop(engine);
        assert_eq!(keys(&*reopen(), "a", "z"), "ab");
    });
}

#[test]
fn a_pin_shows_its_state_during_writes_of_any_thread() {
    on_each_engine(|engine, _| {
        let mut pins = Vec::new();
        for i in 0..50u8 {
            write(&*engine, &[("n", None)]);
            let row = (key("n"), Some(Bytes::copy_from_slice(&[b'0' + i])));
            engine.write(&mut [Ok(row)].into_iter()).unwrap();
            pins.push((i, engine.pin().unwrap()));
        }
        std::thread::scope(|threads| {
            for (i, pin) in &pins {
                threads.spawn(move || {
                    pin.read(&mut |read| assert_eq!(read.get(b"n").unwrap(), Some(&[b'0' + i][..])));
                });
            }
        });
        pins.reverse();
        while let Some((i, pin)) = pins.pop() {
            pin.read(&mut |read| assert_eq!(read.get(b"n").unwrap(), Some(&[b'0' + i][..])));
        }
    });
}

#[test]
fn a_read_keeps_its_state_while_its_own_thread_writes() {
    on_each_engine(|engine, _| {
        write(&*engine, &[("a", Some("old"))]);
        for _ in 0..3 {
            engine
                .read(&mut |read| {
                    write(&*engine, &[("a", Some("new")), ("b", Some("new"))]);
                    assert_eq!(read.get(b"a").unwrap(), Some(&b"old"[..]));
                    assert_eq!(rows(read, "a", "z").len(), 1);
                    assert_eq!(value(&*engine, "a").as_deref(), Some("new"), "a read within a read");
                })
                .unwrap();
            assert_eq!(value(&*engine, "b").as_deref(), Some("new"));
            write(&*engine, &[("a", Some("old")), ("b", None)]);
        }
    });
}

#[test]
fn written_rows_survive_reopening() {
    on_each_engine(|engine, reopen| {
        let long = "n".repeat(1042);
        let row: EngineRow = (key(&long), Some(vec![b'v'; 100_000].into()));
        engine.write(&mut [Ok(row)].into_iter()).unwrap();
        write(&*engine, &[("a", Some("1"))]);
        drop(engine);
        let engine = reopen();
        assert_eq!(value(&*engine, "a").as_deref(), Some("1"));
        assert_eq!(value(&*engine, &long).unwrap().len(), 100_000);
        assert!(engine.size() > 100_000);
    });
}

#[test]
fn readers_see_whole_batches_and_never_an_older_one_again() {
    on_each_engine(|engine, _| {
        let (engine, done) = (&*engine, AtomicBool::new(false));
        let number = |read: &dyn EngineRead, name: &str| {
            read.get(name.as_bytes()).unwrap().map_or(0, |value| u64::from_be_bytes(value.try_into().unwrap()))
        };
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    let mut last = 0;
                    while !done.load(Ordering::Relaxed) {
                        engine
                            .read(&mut |read| {
                                let (first, second) = (number(read, "a"), number(read, "z"));
                                assert_eq!(first, second);
                                assert!(first >= last, "{first} after {last}");
                                last = first;
                            })
                            .unwrap();
                    }
                });
            }
            for i in 1..300u64 {
                let row = |name| Ok((key(name), Some(Bytes::copy_from_slice(&i.to_be_bytes()))));
                engine.write(&mut [row("a"), row("z")].into_iter()).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn random_batches_have_the_effect_that_they_have_on_an_ordered_map() {
    on_each_engine(|engine, reopen| {
        let mut random = StdRng::seed_from_u64(1);
        let (mut map, mut engine) = (BTreeMap::new(), Some(engine));
        for round in 0..60 {
            let mut batch = Vec::new();
            for _ in 0..random.random_range(0..40) {
                let name = vec![b'k'; random.random_range(1..4)].into_iter().chain([random.random_range(0..40)]);
                let name: Vec<u8> = name.collect();
                let len = random.random_range(0..3000);
                let value = random.random_bool(0.7).then(|| Bytes::from(vec![round; len]));
                match &value {
                    Some(value) => map.insert(name.clone(), value.to_vec()),
                    None => map.remove(&name),
                };
                batch.push(Ok((key(name), value)));
            }
            let open = engine.take().unwrap();
            open.write(&mut batch.into_iter()).unwrap();
            let mut found = BTreeMap::new();
            let mut show = |key: &[u8], value: &[u8]| {
                found.insert(key.to_vec(), value.to_vec());
                ControlFlow::Continue(())
            };
            open.read(&mut |read| read.range(&[0], &[u8::MAX], &mut show).unwrap()).unwrap();
            assert_eq!(found, map);
            let mut back = Vec::new();
            let mut show = |key: &[u8], _: &[u8]| {
                back.push(key.to_vec());
                ControlFlow::Continue(())
            };
            let (from, to) = (b"k".as_slice(), b"kk\x14".as_slice());
            open.read(&mut |read| read.range_back(from, to, &mut show).unwrap()).unwrap();
            let between = map.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)));
            assert!(between.map(|(key, _)| key).rev().eq(&back));
            engine = Some(open);
            if round % 20 == 19 {
                drop(engine.take());
                engine = Some(reopen());
            }
        }
    });
}
