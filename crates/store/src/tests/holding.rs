//! A store that is held for a cut.

use std::sync::mpsc;
use std::time::Duration;

use model::planted_bug::{PlantedBug, assert_noticed};

use super::world::real_store;
use super::*;
use crate::plant::CutBug;

/// Long enough for a force.
const A_WHILE: Duration = Duration::from_millis(200);

fn submit(store: &Store, key: &[u8]) -> mpsc::Receiver<model::Result<u64>> {
    let (done, result) = mpsc::channel();
    let mut rows = RowChanges::new();
    rows.put(key, "x".into());
    store.submit_rows(rows, move |position| drop(done.send(position)));
    result
}

#[test]
fn nothing_becomes_durable_or_visible_while_a_store_is_held() {
    assert_noticed(&[CutBug::LogNotHeld], || {
        let dir = tempfile::tempdir().unwrap();
        let store = real_store(dir.path());
        submit(&store, b"before").recv().unwrap().unwrap();
        let (hold, snapshot) = store.hold().unwrap();
        let (position, later) = (store.position(), submit(&store, b"later"));
        assert!(later.recv_timeout(A_WHILE).is_err(), "a change was answered");
        assert_eq!((store.position(), store.row(b"later").unwrap()), (position, None));
        assert_eq!(snapshot.version(), position);
        drop(hold);
        later.recv().unwrap().unwrap();
        assert_eq!((snapshot.row(b"later").unwrap(), snapshot.row(b"before").unwrap().is_some()), (None, true));
    });
}

#[test]
fn every_bug_of_holding_is_named() {
    assert_eq!(CutBug::ALL, [CutBug::LogNotHeld]);
}
