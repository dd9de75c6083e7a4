//! Tests that every implementation of [`MetaStore`] must pass.
//!
//! A [`Subject`] provides empty catalogues; [`run`] runs all tests on it and panics at the first failure. The
//! catalogues of a subject can be parts of one that others use at the same time, so no test relies on consecutive
//! revisions.

#![allow(clippy::unwrap_used, reason = "this is a test, in a place where tests of other crates find it")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::{
    Expect, Key, KeyChange, MetaEntry, MetaSessionId, MetaSnapshot, MetaStore, Pending, Prefix, Revision, Watch,
    WatchBatch, WatchEvent, WriteOutcome,
};

mod sessions;
mod watches;
mod writes;

/// An implementation to test.
pub trait Subject: Send + Sync {
    /// Creates an empty catalogue.
    fn create_empty(&self) -> Pending<'_, Arc<dyn MetaStore>>;

    /// Discards the history up to a revision of a catalogue from [`Subject::create_empty`].
    fn forget<'a>(&'a self, store: &'a Arc<dyn MetaStore>, up_to: Revision) -> Pending<'a, ()>;

    /// The shortest time to live that sessions get.
    fn shortest_ttl(&self) -> Duration;
}

/// Time limit of one test.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

macro_rules! run_each {
    ($subject:expr, $($module:ident: $($test:ident),+;)+) => {
        $($({
            eprintln!("  {}", stringify!($test));
            let store = $subject.create_empty().await.unwrap();
            let test = $module::$test($subject, store);
            tokio::time::timeout(TEST_TIMEOUT, test).await.expect(concat!(stringify!($test), " does not end"));
        })+)+
    };
}

/// Runs all tests.
///
/// # Panics
/// If one fails.
pub async fn run(subject: &dyn Subject) {
    run_each!(subject,
        writes: what_is_written_is_read_with_its_revision, a_read_gives_its_prefix_in_order,
                a_write_expects_revisions_and_absence, a_write_happens_whole_or_not_at_all,
                what_is_removed_can_be_expected_absent, only_changes_make_revisions, what_is_too_large_is_refused,
                much_is_read_whole, what_is_given_up_leaves_the_store_in_order;
        watches: a_watch_gives_each_write_once_and_whole, a_watch_begins_where_it_is_told_to,
                 a_watch_does_not_lose_what_it_is_interrupted_at, a_watch_says_when_history_is_gone,
                 a_watch_sees_large_writes;
        sessions: an_ended_session_takes_its_keys_along, a_session_lives_as_long_as_it_is_kept,
                  keys_change_their_session, ended_sessions_take_no_keys;
        writes: counters_add_up;
    );
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn prefix(text: &str) -> Prefix {
    Prefix::new(text).unwrap()
}

fn put(text: &str, value: &'static str) -> KeyChange {
    KeyChange::put(key(text), value)
}

/// Makes a write that must not conflict.
async fn write(store: &Arc<dyn MetaStore>, expects: Vec<Expect>, changes: Vec<KeyChange>) -> Revision {
    match store.write(expects, changes).await.unwrap() {
        WriteOutcome::Done(revision) => revision,
        WriteOutcome::Conflict => panic!("a write conflicts"),
    }
}

fn entry(value: &'static str, revision: Revision) -> MetaEntry {
    MetaEntry { value: Bytes::from_static(value.as_bytes()), revision, session: None }
}

/// The entries as text: `a=1 b=2`.
fn show(state: &MetaSnapshot) -> String {
    let entries = state.entries.iter().map(|(key, entry)| format!("{key}={}", String::from_utf8_lossy(&entry.value)));
    entries.collect::<Vec<_>>().join(" ")
}

/// The changes as text: `a=1 b-`.
fn show_batch(batch: &WatchBatch) -> String {
    let mut changes: Vec<String> = batch
        .changes
        .iter()
        .map(|changed| match &changed.entry {
            Some(entry) => format!("{}={}", changed.key, String::from_utf8_lossy(&entry.value)),
            None => format!("{}-", changed.key),
        })
        .collect();
    changes.sort();
    changes.join(" ")
}

async fn next(watch: &mut Box<dyn Watch>) -> WatchBatch {
    match watch.next().await.unwrap() {
        WatchEvent::Changed(batch) => batch,
        WatchEvent::Compacted => panic!("the history was discarded"),
    }
}

fn attach(text: &str, value: &'static str, session: MetaSessionId) -> KeyChange {
    KeyChange::attach(key(text), value, session)
}
