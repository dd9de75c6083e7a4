//! The counters of a server.
//!
//! Each I/O thread has counters of its own, which only it writes, so counting is a load and a store. A reader adds the threads
//! up and may see a slightly old value.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::{Outcome, Result};
use wire::proto::request::Request;

/// The kinds of requests, by the code that [`kind`] gives.
pub(crate) const KINDS: [&str; 70] = [
    "ping",
    "commit",
    "get_stat",
    "get",
    "read",
    "get_attribute",
    "list_attributes",
    "list_members",
    "contains",
    "resolve",
    "list_names",
    "list_names_of",
    "list_collections_of",
    "list_objects",
    "open_snapshot",
    "close_snapshot",
    "begin_upload",
    "upload",
    "abort_upload",
    "create_space",
    "list_spaces",
    "get_status",
    "backup",
    "scrub",
    "up",
    "down",
    "call",
    "reply",
    "ask",
    "answer",
    "not_served_here",
    "reserve",
    "read_object",
    "get_numbers",
    "get_space",
    "scan",
    "deferred",
    "meta_get_run",
    "meta_read",
    "meta_get",
    "meta_write",
    "meta_watch",
    "meta_open_session",
    "meta_keep_session",
    "meta_end_session",
    "build_index",
    "describe",
    "query",
    "fetch_rows",
    "end_query",
    "administer",
    "get_schema",
    "define",
    "watch",
    "space_status",
    "set_space",
    "copy_rows",
    "get_move_ins",
    "move",
    "member_request",
    "ask_witness",
    "witnesses",
    "begin_content",
    "write_content",
    "abort_content",
    "read_content",
    "look_up",
    "list_entries",
    "list_entries_of",
    "list_node_objects",
];

/// The place of a request's kind in [`KINDS`].
pub(crate) fn kind_index(request: &Request) -> usize {
    match request {
        Request::Ping(_) => 0,
        Request::Commit(_) => 1,
        Request::GetStat(_) => 2,
        Request::Get(_) => 3,
        Request::Read(_) => 4,
        Request::GetAttribute(_) => 5,
        Request::ListAttributes(_) => 6,
        Request::ListMembers(_) => 7,
        Request::Contains(_) => 8,
        Request::Resolve(_) => 9,
        Request::ListNames(_) => 10,
        Request::ListNamesOf(_) => 11,
        Request::ListCollectionsOf(_) => 12,
        Request::ListObjects(_) => 13,
        Request::OpenSnapshot(_) => 14,
        Request::CloseSnapshot(_) => 15,
        Request::BeginUpload(_) => 16,
        Request::Upload(_) => 17,
        Request::AbortUpload(_) => 18,
        Request::CreateSpace(_) => 19,
        Request::ListSpaces(_) => 20,
        Request::GetStatus(_) => 21,
        Request::Backup(_) => 22,
        Request::Scrub(_) => 23,
        Request::Up(_) => 24,
        Request::Down(_) => 25,
        Request::Call(_) => 26,
        Request::Reply(_) => 27,
        Request::Ask(_) => 28,
        Request::Answer(_) => 29,
        Request::NotServedHere(_) => 30,
        Request::Reserve(_) => 31,
        Request::ReadObject(_) => 32,
        Request::GetNumbers(_) => 33,
        Request::GetSpace(_) => 34,
        Request::Deferred(_) => 36,
        Request::Scan(_) => 35,
        Request::MetaGetRun(_) => 37,
        Request::MetaRead(_) => 38,
        Request::MetaGet(_) => 39,
        Request::MetaWrite(_) => 40,
        Request::MetaWatch(_) => 41,
        Request::MetaOpenSession(_) => 42,
        Request::MetaKeepSession(_) => 43,
        Request::MetaEndSession(_) => 44,
        Request::BuildIndex(_) => 45,
        Request::Describe(_) => 46,
        Request::Query(_) => 47,
        Request::FetchRows(_) => 48,
        Request::EndQuery(_) => 49,
        Request::Administer(_) => 50,
        Request::GetSchema(_) => 51,
        Request::Define(_) => 52,
        Request::Watch(_) => 53,
        Request::SpaceStatus(_) => 54,
        Request::SetSpace(_) => 55,
        Request::CopyRows(_) => 56,
        Request::GetMoveIns(_) => 57,
        Request::Move(_) => 58,
        Request::MemberRequest(_) => 59,
        Request::AskWitness(_) => 60,
        Request::Witnesses(_) => 61,
        Request::BeginContent(_) => 62,
        Request::WriteContent(_) => 63,
        Request::AbortContent(_) => 64,
        Request::ReadContent(_) => 65,
        Request::LookUp(_) => 66,
        Request::ListEntries(_) => 67,
        Request::ListEntriesOf(_) => 68,
        Request::ListNodeObjects(_) => 69,
    }
}

/// Buckets of the commit latency. The upper bound of bucket n is 2^n microseconds; the last bucket has none.
pub(crate) const BUCKETS: usize = 24;

/// A counter that one thread writes and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct ThreadCounter(AtomicU64);

impl ThreadCounter {
    /// Adds to the counter. Only its own thread may call this.
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Requests by kind.
#[derive(Debug)]
pub(crate) struct RequestCounters(pub(crate) [ThreadCounter; KINDS.len()]);

impl Default for RequestCounters {
    fn default() -> Self {
        Self(std::array::from_fn(|_| ThreadCounter::default()))
    }
}

/// What one I/O thread counts.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ThreadCounters {
    pub(crate) requests: RequestCounters,
    /// Bytes of content in requests.
    pub(crate) received: ThreadCounter,
    /// Bytes of content in answers and messages.
    pub(crate) sent: ThreadCounter,
    pub(crate) conflicts: ThreadCounter,
    pub(crate) failures: ThreadCounter,
    pub(crate) latency: [ThreadCounter; BUCKETS],
    pub(crate) latency_us: ThreadCounter,
}

impl ThreadCounters {
    /// Counts a commit that was decided `took` after it arrived.
    pub(crate) fn record_commit(&self, took: Duration, result: &Result<Outcome>) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - us.saturating_sub(1).leading_zeros()) as usize;
        self.latency[bucket.min(BUCKETS - 1)].add(1);
        self.latency_us.add(us);
        match result {
            Ok(Outcome::Committed(_)) => {}
            Ok(Outcome::Conflict(_)) => self.conflicts.add(1),
            Err(_) => self.failures.add(1),
        }
    }
}

/// What a server counts.
#[derive(Debug)]
pub(crate) struct ServerCounters {
    pub(crate) threads: Vec<Arc<ThreadCounters>>,
    pub(crate) accepted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) violations: AtomicU64,
}

impl ServerCounters {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            threads: (0..threads).map(|_| Arc::default()).collect(),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            violations: AtomicU64::new(0),
        }
    }

    /// A counter summed over the threads.
    pub(crate) fn sum(&self, counter: impl Fn(&ThreadCounters) -> &ThreadCounter) -> u64 {
        self.threads.iter().map(|thread| counter(thread).get()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Committed, Error, ErrorKind};

    #[test]
    fn latencies_fall_into_the_bucket_that_bounds_them() {
        let metrics = ThreadCounters::default();
        let done = Ok(Outcome::Committed(Committed { version: 1, created: Vec::new() }));
        for us in [0, 1, 2, 3, 4, 5, 1 << 20, u64::MAX >> 1] {
            metrics.record_commit(Duration::from_micros(us), &done);
        }
        let counts: Vec<u64> = metrics.latency.iter().map(ThreadCounter::get).collect();
        assert_eq!(counts[..4], [2, 1, 2, 1]);
        assert_eq!((counts[20], counts[BUCKETS - 1]), (1, 1));
    }

    #[test]
    fn failures_are_counted_apart_from_conflicts() {
        let metrics = ThreadCounters::default();
        metrics.record_commit(Duration::ZERO, &Err(Error::new(ErrorKind::Full, "no room")));
        assert_eq!((metrics.failures.get(), metrics.conflicts.get()), (1, 0));
    }
}
