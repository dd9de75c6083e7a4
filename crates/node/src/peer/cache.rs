//! The object cache of a peer server (TODS, section 5.3): a holder like those below it, in the same process.
//!
//! It is a client session that only reads, so the coherence rules are the same (D4, P1 to P3). Its messages go to and come from the
//! cache node directly.

use std::collections::BTreeMap;
use std::hash::Hash;

use bytes::Bytes;
use model::{ClassId, Error, ErrorKind, NodeId, Object, Oid, PageId, Result};
use protocol::eviction::EvictionPolicy;
use protocol::ident::{ClientId, HlcTimestamp, HolderId};
use protocol::lease::Ms;
use protocol::memory_size::MemorySize;
use protocol::page_cache::{AsOf, Lookup};
use protocol::schedule::Schedule;
use protocol::session::{FetchLimits, Output, Session};
use protocol::tree::{Down, Up};
use protocol::validate::ReadVersion;

use super::plant::{Bug, planted};
use crate::brick::SKEW_MS;

/// Bytes that a cached object takes besides its data.
const OVERHEAD_BYTES: usize = 96;
/// How long a read waits for its page, in milliseconds.
const WAIT_TIMEOUT_MS: Ms = 10_000;
/// Fetches under way: the cache reads for the queries of all clients, which are limited themselves, from all bricks.
const FETCH_LIMITS: FetchLimits = FetchLimits { node: 4_096, total: 65_536, least: 256 };

/// What a peer server needs to know of objects.
pub trait CachedContent: Clone + MemorySize + Hash {
    /// Whether this is an object of this class. An identifier with another class names no object.
    fn is_of_class(&self, class: ClassId) -> bool;
}

impl CachedContent for Object {
    fn is_of_class(&self, class: ClassId) -> bool {
        self.class == class
    }
}

/// The state of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedObject<T = Object> {
    /// The object; `None` if it does not exist.
    pub object: Option<T>,
    /// The version of the state.
    pub seen: ReadVersion,
    /// A time at or after which the state was committed.
    pub timestamp: HlcTimestamp,
}

impl CachedObject {
    /// What precedes the data of the object in its encoding, if anything does.
    pub(super) fn encoded_extension(&self) -> Option<Bytes> {
        self.object.as_ref()?.encoded_extension()
    }

    /// The data of the object; empty if it does not exist.
    pub(super) fn data(&self) -> &Bytes {
        static NOTHING: Bytes = Bytes::new();
        self.object.as_ref().map_or(&NOTHING, |object| &object.data)
    }
}

/// A read that waits for its page. `R` is the address of the reader.
struct PendingRead<R> {
    oid: Oid,
    until: Ms,
    reader: R,
}

/// A reader, and what it gets.
pub(super) type FinishedRead<T, R> = (R, Oid, Result<CachedObject<T>>);

/// The cache. `T` is an object, `R` the address of a reader.
pub(super) struct ObjectCache<T, R> {
    session: Session<T>,
    residents: EvictionPolicy,
    waiting: BTreeMap<PageId, Vec<PendingRead<R>>>,
    /// When the first of the reads that wait for a page has waited too long.
    schedule: Schedule<PageId>,
    finished: Vec<FinishedRead<T, R>>,
    pub(super) hits: u64,
    pub(super) misses: u64,
}

impl<T: CachedContent, R> ObjectCache<T, R> {
    /// A cache of `bytes` bytes, whose session begins with this holder.
    pub(super) fn new((client, holder): (ClientId, HolderId), bytes: usize) -> Self {
        let session = Session::new(client, holder, SKEW_MS).with_fetch_limits(FETCH_LIMITS);
        let residents = EvictionPolicy::new(bytes);
        let (waiting, schedule) = (BTreeMap::new(), Schedule::default());
        Self { session, residents, waiting, schedule, finished: Vec::new(), hits: 0, misses: 0 }
    }

    /// An object, if its page is cached and its lease is valid. Counts a hit; [`read`](Self::read) counts misses.
    pub(super) fn get(&mut self, oid: Oid, now: Ms) -> Option<CachedObject<T>> {
        let found = self.look_up(oid, now);
        self.hits += u64::from(found.is_some());
        found
    }

    fn look_up(&mut self, oid: Oid, now: Ms) -> Option<CachedObject<T>> {
        self.residents.record_use(oid.page());
        let checked_at = if planted(Bug::CachedBeyondLease) { 0 } else { now };
        match self.session.peek_versioned(oid, checked_at) {
            (Lookup::Value(object), AsOf { seen, timestamp, .. }) => {
                let object = object.is_of_class(oid.class()).then(|| object.clone());
                Some(CachedObject { object, seen, timestamp })
            }
            (Lookup::Absent, AsOf { seen, timestamp, .. }) => Some(CachedObject { object: None, seen, timestamp }),
            (Lookup::Miss, _) => None,
        }
    }

    /// Fetches the page of an object that was not found.
    fn fetch(&mut self, oid: Oid, now: Ms) {
        // The result is the same miss.
        let _ = self.session.get(oid, now);
    }

    /// Reads an object once its page is here, or gives up after [`WAIT_TIMEOUT_MS`].
    pub(super) fn read(&mut self, oid: Oid, reader: R, now: Ms) {
        match self.get(oid, now) {
            Some(found) => self.finished.push((reader, oid, Ok(found))),
            None => {
                self.misses += 1;
                self.fetch(oid, now);
                let until = now + WAIT_TIMEOUT_MS;
                self.add_pending(PendingRead { oid, until, reader });
            }
        }
    }

    fn add_pending(&mut self, read: PendingRead<R>) {
        let page = read.oid.page();
        let first = self.schedule.at(page).map_or(read.until, |first| first.min(read.until));
        self.schedule.set(page, Some(first));
        self.waiting.entry(page).or_default().push(read);
    }

    fn take_pending(&mut self, page: PageId) -> Vec<PendingRead<R>> {
        self.schedule.set(page, None);
        self.waiting.remove(&page).unwrap_or_default()
    }

    /// Takes the reads that have ended.
    pub(super) fn take_finished(&mut self) -> Vec<FinishedRead<T, R>> {
        std::mem::take(&mut self.finished)
    }

    /// Handles a message of the cache node.
    pub(super) fn handle_down(&mut self, node: NodeId, holder: HolderId, message: Down<T>, now: Ms) {
        let fetched = if let Down::Fetched { page, .. } = &message { Some(*page) } else { None };
        let damage = self.session.damage(&message).map(str::to_owned);
        let concerns_all_pages = matches!(message, Down::Leased { .. } | Down::Closed);
        self.session.handle_down(node, holder, message, now);
        if let Some(page) = fetched {
            if let Some(damage) = damage.filter(|_| !planted(Bug::DamagedReadRepeated)) {
                for read in self.take_pending(page) {
                    self.finished.push((read.reader, read.oid, Err(Error::new(ErrorKind::Corrupt, &*damage))));
                }
            }
            self.make_room_for(page);
            self.retry_pending(page, now);
        }
        if concerns_all_pages {
            let pages: Vec<PageId> = self.waiting.keys().copied().filter(|page| page.node == node).collect();
            pages.into_iter().for_each(|page| self.retry_pending(page, now));
        }
    }

    /// Evicts other pages if the cache is full.
    fn make_room_for(&mut self, page: PageId) {
        let objects =
            self.session.cache().valid_objects(page).map(|(_, object, _)| OVERHEAD_BYTES + object.memory_size());
        let bytes = OVERHEAD_BYTES + objects.sum::<usize>();
        self.residents.insert(page, bytes);
        while let Some(evicted) = self.residents.evict(page) {
            self.session.evict(evicted);
        }
    }

    fn retry_pending(&mut self, page: PageId, now: Ms) {
        for waiting in self.take_pending(page) {
            match self.look_up(waiting.oid, now) {
                Some(found) => self.finished.push((waiting.reader, waiting.oid, Ok(found))),
                None => {
                    self.fetch(waiting.oid, now);
                    self.add_pending(waiting);
                }
            }
        }
    }

    /// Takes the messages for the cache node.
    pub(super) fn outputs(&mut self) -> Vec<(NodeId, HolderId, Up<T>)> {
        let up = |output| match output {
            Output::Up(node, holder, message) => (node, holder, message),
            _ => unreachable!("D1: the object cache has no transactions and writes nothing"),
        };
        self.session.outputs().map(up).collect()
    }

    /// Does what is due.
    pub(super) fn poll(&mut self, now: Ms) {
        self.session.poll(now);
        if planted(Bug::ReadWaitsForever) {
            return;
        }
        for page in self.schedule.due(now) {
            let (late, rest): (Vec<_>, Vec<_>) = self.take_pending(page).into_iter().partition(|one| one.until <= now);
            for late in late {
                let what = format!("{} has not arrived within {WAIT_TIMEOUT_MS} ms: try again", late.oid);
                self.finished.push((late.reader, late.oid, Err(Error::new(ErrorKind::Unavailable, what))));
            }
            rest.into_iter().for_each(|read| self.add_pending(read));
        }
    }

    /// When [`ObjectCache::poll`] has something to do.
    pub(super) fn deadline(&self) -> Ms {
        self.session.deadline().into_iter().chain(self.schedule.first()).min().unwrap_or(Ms::MAX)
    }

    /// Bytes of all cached pages.
    pub(super) fn bytes(&self) -> usize {
        self.residents.bytes()
    }
}

#[cfg(test)]
mod tests {
    use model::SpaceId;

    use super::*;

    fn oid(page: u64, slot: u16) -> Oid {
        Oid::new(ClassId(1), PageId { space: SpaceId(1), node: NodeId(1), number: page }, slot)
    }

    #[test]
    fn each_read_waits_for_its_own_time_and_the_first_one_is_the_deadline() {
        let mut cache: ObjectCache<Object, u32> = ObjectCache::new((ClientId(1), HolderId(1)), 1 << 20);
        for (reader, oid, now) in [(1, oid(1, 1), 100), (2, oid(2, 1), 200), (3, oid(1, 2), 300)] {
            cache.read(oid, reader, now);
        }
        let waits: Vec<Ms> = [100, 200, 300].iter().map(|at| at + WAIT_TIMEOUT_MS).collect();
        assert_eq!(cache.schedule.first(), Some(waits[0]));
        let session = cache.session.deadline().unwrap_or(Ms::MAX);
        assert_eq!(cache.deadline(), session.min(waits[0]));
        for (read, until) in waits.iter().enumerate() {
            cache.poll(until - 1);
            assert!(cache.take_finished().is_empty());
            cache.poll(*until);
            let late: Vec<u32> = cache.take_finished().into_iter().map(|(reader, ..)| reader).collect();
            assert_eq!(late, [read as u32 + 1]);
            assert_eq!(cache.schedule.first(), waits.get(read + 1).copied());
        }
        assert!(cache.waiting.is_empty());
    }
}
