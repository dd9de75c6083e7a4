//! Many who write the same.

use std::sync::Arc;

use super::{Subject, key};
use crate::{Expect, KeyChange, MetaStore, WriteOutcome};

/// Adds one to a counter by compare-and-set, however often it takes. For tests.
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
