//! Watches.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time;

use super::{Subject, key, next, prefix, put, show_batch, write};
use crate::{KeyChange, MetaStore, Prefix, WatchEvent, limits};

pub(super) async fn a_watch_gives_each_write_once_and_whole(_: &dyn Subject, store: Arc<dyn MetaStore>) {
    let start = store.read(Prefix::all()).await.unwrap().revision;
    let mut all = store.watch(Prefix::all(), start).await.unwrap();
    let mut some = store.watch(prefix("a/"), start).await.unwrap();
    let mut revisions = Vec::new();
    for changes in [
        vec![put("a/1", "x"), put("b", "x"), put("a/2", "x")],
        vec![put("b", "y")],
        vec![put("a/1", "y"), KeyChange::remove(key("a/2"))],
    ] {
        revisions.push(write(&store, vec![], changes).await);
    }
    for (revision, expected) in revisions.iter().zip(["a/1=x a/2=x b=x", "b=y", "a/1=y a/2-"]) {
        let batch = next(&mut all).await;
        assert_eq!((batch.revision, show_batch(&batch).as_str()), (*revision, expected));
        let put = batch.changes.iter().filter_map(|changed| changed.entry.as_ref());
        assert!(put.into_iter().all(|entry| entry.revision == *revision));
    }
    for (revision, expected) in [(revisions[0], "a/1=x a/2=x"), (revisions[2], "a/1=y a/2-")] {
        let batch = next(&mut some).await;
        assert_eq!((batch.revision, show_batch(&batch).as_str()), (revision, expected));
    }
    assert!(time::timeout(Duration::from_millis(50), some.next()).await.is_err(), "a change was reported twice");
}

pub(super) async fn a_watch_begins_where_it_is_told_to(_: &dyn Subject, store: Arc<dyn MetaStore>) {
    let first = write(&store, vec![], vec![put("a", "1")]).await;
    let second = write(&store, vec![], vec![put("a", "2")]).await;
    write(&store, vec![], vec![put("a", "3")]).await;
    let mut watch = store.watch(Prefix::all(), first).await.unwrap();
    assert_eq!(show_batch(&next(&mut watch).await), "a=2");
    assert_eq!(show_batch(&next(&mut watch).await), "a=3");
    let mut watch = store.watch(Prefix::all(), second).await.unwrap();
    assert_eq!(show_batch(&next(&mut watch).await), "a=3");
}

pub(super) async fn a_watch_does_not_lose_what_it_is_interrupted_at(_: &dyn Subject, store: Arc<dyn MetaStore>) {
    const WRITES: usize = 60;
    let start = store.read(Prefix::all()).await.unwrap().revision;
    let mut watch = store.watch(Prefix::all(), start).await.unwrap();
    let writer = store.clone();
    let writing = tokio::spawn(async move {
        let mut revisions = Vec::new();
        for _ in 0..WRITES {
            revisions.push(write(&writer, vec![], vec![put("a", "x")]).await);
        }
        revisions
    });
    let mut seen = Vec::new();
    while seen.len() < WRITES {
        // Most of these futures are dropped before they end.
        if let Ok(watched) = time::timeout(Duration::from_micros(200), watch.next()).await {
            match watched.unwrap() {
                WatchEvent::Changed(batch) => seen.push(batch.revision),
                WatchEvent::Compacted => panic!("the history was discarded"),
            }
        }
    }
    assert_eq!(seen, writing.await.unwrap());
}

pub(super) async fn a_watch_says_when_history_is_gone(subject: &dyn Subject, store: Arc<dyn MetaStore>) {
    let first = write(&store, vec![], vec![put("a", "1")]).await;
    let second = write(&store, vec![], vec![put("a", "2")]).await;
    let third = write(&store, vec![], vec![put("a", "3")]).await;
    subject.forget(&store, third).await.unwrap();
    let mut watch = store.watch(Prefix::all(), first).await.unwrap();
    assert_eq!(watch.next().await.unwrap(), WatchEvent::Compacted);
    assert_eq!(watch.next().await.unwrap(), WatchEvent::Compacted);
    let mut watch = store.watch(prefix("other"), first).await.unwrap();
    assert_eq!(watch.next().await.unwrap(), WatchEvent::Compacted);
    assert!(second < third);
    let mut watch = store.watch(Prefix::all(), third).await.unwrap();
    write(&store, vec![], vec![put("a", "4")]).await;
    assert_eq!(show_batch(&next(&mut watch).await), "a=4");
    assert_eq!(super::show(&store.read(Prefix::all()).await.unwrap()), "a=4");
}

pub(super) async fn a_watch_sees_large_writes(_: &dyn Subject, store: Arc<dyn MetaStore>) {
    let start = store.read(Prefix::all()).await.unwrap().revision;
    let mut from_now = store.watch(Prefix::all(), start).await.unwrap();
    let large = Bytes::from(vec![7; limits::VALUE]);
    for number in 0..8 {
        let changes = vec![KeyChange::put(key(&format!("large/{number}")), large.clone()), put("small", "1")];
        write(&store, vec![], changes).await;
    }
    let mut from_then = store.watch(Prefix::all(), start).await.unwrap();
    for number in 0..8 {
        let batch = next(&mut from_then).await;
        assert_eq!(batch, next(&mut from_now).await);
        let value =
            |name: &str| batch.changes.iter().find(|one| one.key == key(name)).and_then(|one| one.entry.clone());
        assert_eq!(value(&format!("large/{number}")).unwrap().value, large);
        assert_eq!(value("small").unwrap().value, "1");
        assert_eq!(batch.changes.len(), 2);
    }
}
