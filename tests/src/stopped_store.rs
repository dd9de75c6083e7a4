//! Stores of servers that were stopped: tests look into them, and damage them.

use std::ops::ControlFlow;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use model::ErrorKind;
use store::{Options, RowChanges, Store};

use crate::TEST_TIMEOUT;

/// Opens the store in the directory of a brick that was stopped. A process that another test has just forked has a copy of the lock until it
/// executes its program.
///
/// # Panics
/// If it cannot be opened.
#[must_use]
pub fn open_store(directory: &Path) -> Store {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        match Store::open(directory, Options::default()) {
            Err(error) if error.kind() == ErrorKind::Unavailable && Instant::now() < until => {
                thread::sleep(Duration::from_millis(20));
            }
            store => return store.expect("the store of a stopped brick"),
        }
    }
}

/// Removes the first row from a key on whose key is wanted, among those with the same first byte, from the store in this directory.
///
/// # Panics
/// If there is none.
pub fn remove_row(directory: &Path, from: &[u8], is_wanted: impl Fn(&[u8]) -> bool) {
    let store = open_store(directory);
    let to = [from[0] + 1];
    let mut found = None;
    let find = |key: &[u8], _: &[u8]| {
        found = Some(key.to_vec()).filter(|key| is_wanted(key));
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    store.rows(from, &to, find).expect("rows that can be read");
    let mut changes = RowChanges::new();
    changes.remove(&found.expect("a wanted row"));
    store.commit_rows(changes).expect("a store that can be changed");
    store.close().expect("a store that can be closed");
}
