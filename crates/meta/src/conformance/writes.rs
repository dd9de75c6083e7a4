//! Reads and writes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use model::ErrorKind;

use super::{Subject, entry, key, prefix, put, show, write};
use crate::{Expect, Key, KeyChange, MetaStore, Prefix, Revision, WriteOutcome, limits};

pub(super) async fn what_is_written_is_read_with_its_revision(_: &dyn Subject, store: Arc<dyn MetaStore>) {
    let empty = store.read(Prefix::all()).await.unwrap();
    assert!(empty.entries.is_empty());
    let first = write(&store, vec![], vec![put("a", "1"), put("b", "2")]).await;
    let second = write(&store, vec![], vec![put("b", "3")]).await;
    assert!(empty.revision < first && first < second);
    let state = store.read(Prefix::all()).await.unwrap();
    assert!(state.revision >= second);
    assert_eq!(state.entries, [(key("a"), entry("1", first)), (key("b"), entry("3", second))]);
    assert_eq!(state.entry(&key("b")), Some(&entry("3", second)));
    let got = store.get(vec![key("c"), key("b"), key("a")]).await.unwrap();
    assert_eq!(got.entries, state.entries);
    assert!(store.get(vec![]).await.unwrap().entries.is_empty());
    let binary = Bytes::from((0..=255).collect::<Vec<u8>>());
    write(&store, vec![], vec![KeyChange::put(key("binary"), binary.clone()), put("empty", "")]).await;
    let state = store.read(Prefix::all()).await.unwrap();
    assert_eq!(state.entry(&key("binary")).unwrap().value, binary);
    assert_eq!(state.entry(&key("empty")).unwrap().value, Bytes::new());
}

pub(super) async fn a_read_gives_its_prefix_in_order(_: &dyn Subject, store: Arc<dyn MetaStore>) {
    let changes = ["a/", "a/ö", "a/z", "a", "b", "a0", "a/\u{10ffff}", "a.", "c/\u{10ffff}", "d"];
    write(&store, vec![], changes.map(|name| put(name, "")).to_vec()).await;
    for (begin, expected) in [
        ("a/", "a/= a/z= a/ö= a/\u{10ffff}="),
        ("a/\u{10ffff}", "a/\u{10ffff}="),
        ("b", "b="),
        ("c/\u{10ffff}", "c/\u{10ffff}="),
        ("bb", ""),
        ("", "a= a.= a/= a/z= a/ö= a/\u{10ffff}= a0= b= c/\u{10ffff}= d="),
    ] {
        assert_eq!(show(&store.read(prefix(begin)).await.unwrap()), expected, "{begin:?}");
    }
}

pub(super) async fn a_write_expects_revisions_and_absence(_: &dyn Subject, store: Arc<dyn MetaStore>) {
    let (a, b) = (|| key("a"), || key("b"));
    let first = write(&store, vec![Expect::absent(a())], vec![put("a", "1")]).await;
    for expects in [
        vec![Expect::absent(a())],
        vec![Expect::at(b(), first)],
        vec![Expect::at(a(), Revision(first.0 - 1))],
        vec![Expect::at(a(), Revision(first.0 + 1))],
        vec![Expect::at(a(), first), Expect::at(b(), first)],
    ] {
        let written = store.write(expects.clone(), vec![put("a", "2"), put("b", "2")]).await.unwrap();
        assert_eq!(written, WriteOutcome::Conflict, "{expects:?}");
    }
    assert_eq!(show(&store.read(Prefix::all()).await.unwrap()), "a=1");
    write(&store, vec![Expect::at(a(), first), Expect::absent(b())], vec![put("c", "3")]).await;
    assert_eq!(show(&store.read(Prefix::all()).await.unwrap()), "a=1 c=3");
}

pub(super) async fn a_write_happens_whole_or_not_at_all(_: &dyn Subject, store: Arc<dyn MetaStore>) {
    let keys: Vec<Key> = (0..limits::CHANGES).map(|number| key(&format!("key/{number:03}"))).collect();
    let all = |value: &'static str| keys.iter().map(|key| KeyChange::put(key.clone(), value)).collect::<Vec<_>>();
    let absent = keys.iter().map(|key| Expect::absent(key.clone())).collect();
    let first = write(&store, absent, all("1")).await;
    let state = store.get(keys.clone()).await.unwrap();
    assert_eq!(state.entries.len(), keys.len());
    assert!(state.entries.iter().all(|(_, entry)| entry.revision == first));
    let expects = keys.iter().map(|key| Expect::at(key.clone(), first)).collect::<Vec<_>>();
    write(&store, vec![], vec![KeyChange::remove(keys[57].clone())]).await;
    assert_eq!(store.write(expects, all("2")).await.unwrap(), WriteOutcome::Conflict);
    let state = store.read(prefix("key/")).await.unwrap();
    assert!(state.entries.iter().all(|(_, entry)| entry.value == "1"));
    assert_eq!(state.entries.len(), keys.len() - 1);
}

pub(super) async fn what_is_removed_can_be_expected_absent(_: &dyn Subject, store: Arc<dyn MetaStore>) {
    let first = write(&store, vec![], vec![put("a", "1")]).await;
    let gone = write(&store, vec![Expect::at(key("a"), first)], vec![KeyChange::remove(key("a")), put("b", "1")]).await;
    assert!(gone > first);
    assert_eq!(show(&store.read(Prefix::all()).await.unwrap()), "b=1");
    let again = write(&store, vec![Expect::absent(key("a"))], vec![put("a", "2")]).await;
    assert!(again > gone);
    assert_eq!(store.get(vec![key("a")]).await.unwrap().entries, [(key("a"), entry("2", again))]);
}

pub(super) async fn only_changes_make_revisions(_: &dyn Subject, store: Arc<dyn MetaStore>) {
    let first = write(&store, vec![], vec![put("a", "1")]).await;
    let mut watch = store.watch(Prefix::all(), first).await.unwrap();
    assert!(write(&store, vec![Expect::at(key("a"), first)], vec![]).await >= first);
    assert!(write(&store, vec![], vec![KeyChange::remove(key("b"))]).await >= first);
    assert_eq!(store.write(vec![Expect::absent(key("a"))], vec![]).await.unwrap(), WriteOutcome::Conflict);
    let last = write(&store, vec![], vec![put("c", "1")]).await;
    assert_eq!(super::next(&mut watch).await.revision, last);
}

pub(super) async fn what_is_too_large_is_refused(_: &dyn Subject, store: Arc<dyn MetaStore>) {
    let largest = Bytes::from(vec![b'x'; limits::VALUE]);
    let over = Bytes::from(vec![b'x'; limits::VALUE + 1]);
    write(&store, vec![], vec![KeyChange::put(key(&"k".repeat(limits::KEY)), largest.clone())]).await;
    let state = store.read(Prefix::all()).await.unwrap();
    assert_eq!(state.entries[0].1.value, largest);

    let kind = |changes| async { store.write(vec![], changes).await.unwrap_err().kind() };
    assert_eq!(kind(vec![KeyChange::put(key("a"), over)]).await, ErrorKind::TooLarge);
    let both = vec![KeyChange::put(key("a"), largest.clone()), KeyChange::put(key("b"), largest.clone())];
    assert_eq!(kind(both).await, ErrorKind::TooLarge);
    let many = |count: usize| (0..count).map(|number| put(&number.to_string(), "")).collect::<Vec<_>>();
    assert_eq!(kind(many(limits::CHANGES + 1)).await, ErrorKind::TooLarge);
    assert_eq!(kind(vec![put("a", "1"), KeyChange::remove(key("a"))]).await, ErrorKind::Invalid);
    let expects = (0..=limits::EXPECTS).map(|number| Expect::absent(key(&number.to_string()))).collect();
    assert_eq!(store.write(expects, vec![]).await.unwrap_err().kind(), ErrorKind::TooLarge);
    let keys = (0..=limits::CHANGES).map(|number| key(&number.to_string())).collect();
    assert_eq!(store.get(keys).await.unwrap_err().kind(), ErrorKind::TooLarge);
    let twice = vec![Expect::absent(key("a")), Expect::absent(key("a"))];
    assert_eq!(store.write(twice, vec![]).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(store.read(Prefix::all()).await.unwrap().entries.len(), 1);
}

pub(super) async fn much_is_read_whole(_: &dyn Subject, store: Arc<dyn MetaStore>) {
    let large = Bytes::from(vec![0xa5; limits::VALUE]);
    for number in 0..6 {
        write(&store, vec![], vec![KeyChange::put(key(&format!("large/{number}")), large.clone())]).await;
    }
    for hundred in 0..12 {
        let small = (0..limits::CHANGES).map(|number| put(&format!("small/{hundred:02}{number:03}"), "s"));
        write(&store, vec![], small.collect()).await;
    }
    let state = store.read(Prefix::all()).await.unwrap();
    assert_eq!(state.entries.len(), 6 + 12 * limits::CHANGES);
    assert!(state.entries.is_sorted_by(|(a, _), (b, _)| a < b));
    assert!(state.entries[..6].iter().all(|(_, entry)| entry.value == large));
    let got = store.get((0..6).map(|number| key(&format!("large/{number}"))).collect()).await.unwrap();
    assert_eq!(got.entries, state.entries[..6]);
}

pub(super) async fn what_is_given_up_leaves_the_store_in_order(_: &dyn Subject, store: Arc<dyn MetaStore>) {
    // Each is dropped at another time: some before they are sent, some before their answer has arrived.
    for micros in [0, 1, 10, 100, 300, 1000, 3000] {
        let write = store.write(vec![], vec![put("a", "dropped"), put("b", "dropped")]);
        let _ = tokio::time::timeout(Duration::from_micros(micros), write).await;
    }
    write(&store, vec![], vec![put("c", "1")]).await;
    let state = store.read(Prefix::all()).await.unwrap();
    let values: Vec<_> = ["a", "b"].map(|name| state.entry(&key(name)).map(|entry| entry.revision)).into();
    assert_eq!(values[0], values[1]);
}

/// Increments a counter by compare-and-set, with any number of attempts. For tests.
pub(super) async fn increment(store: &Arc<dyn MetaStore>, name: &str) {
    loop {
        let state = store.get(vec![key(name)]).await.unwrap();
        let entry = state.entry(&key(name));
        let count: u64 = entry.map_or(0, |entry| str::from_utf8(&entry.value).unwrap().parse().unwrap());
        let expect = Expect { key: key(name), revision: entry.map(|entry| entry.revision) };
        let change = KeyChange::put(key(name), (count + 1).to_string());
        if let WriteOutcome::Done(_) = store.write(vec![expect], vec![change]).await.unwrap() {
            return;
        }
    }
}

pub(super) async fn counters_add_up(_: &dyn Subject, store: Arc<dyn MetaStore>) {
    const TASKS: usize = 4;
    const EACH: usize = 15;
    let count = || {
        let store = store.clone();
        tokio::spawn(async move {
            for _ in 0..EACH {
                increment(&store, "counter").await;
            }
        })
    };
    for task in (0..TASKS).map(|_| count()).collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let state = store.get(vec![key("counter")]).await.unwrap();
    assert_eq!(state.entries[0].1.value, (TASKS * EACH).to_string());
}
