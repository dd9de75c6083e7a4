//! The object cache of a peer server (TODS, section 5.3): a holder like those below, in the same process.
//!
//! It is a client's machine that only reads, so the rules of coherence are the same ones. Its messages go to and come from
//! the cache node directly.

use std::collections::HashMap;

use bytes::Bytes;
use model::{Error, ErrorKind, NodeId, Object, Oid, PageId, Result};
use protocol::eviction::EvictionPolicy;
use protocol::ident::{ClientId, HlcTimestamp, HolderId};
use protocol::lease::Ms;
use protocol::page_cache::{AsOf, Lookup};
use protocol::session::{Output, Session};
use protocol::tree::{Down, Up};
use protocol::validate::ReadVersion;

use super::SESSION_BITS;
use crate::brick::SKEW_MS;

/// What an object takes in memory beside its data.
const OVERHEAD: usize = 96;
/// How long somebody waits for an object, in milliseconds.
const WAIT_TIMEOUT_MS: Ms = 10_000;

/// What was found.
pub(crate) struct CachedObject {
    /// The object, if there is one.
    pub(super) object: Option<Object>,
    /// Which state of it this is, and a time at or after which that was committed.
    pub(super) seen: ReadVersion,
    pub(super) timestamp: HlcTimestamp,
}

impl CachedObject {
    /// The data of the object; nothing if there is none.
    pub(super) fn data(&self) -> &Bytes {
        static NOTHING: Bytes = Bytes::new();
        self.object.as_ref().map_or(&NOTHING, |object| &object.data)
    }
}

/// Somebody who waits for an object.
struct PendingRead {
    oid: Oid,
    until: Ms,
    then: Box<dyn FnOnce(Result<CachedObject>) + Send>,
}

/// The cache.
pub(super) struct ObjectCache {
    session: Session<Object>,
    residents: EvictionPolicy,
    waiting: HashMap<PageId, Vec<PendingRead>>,
    pub(super) hits: u64,
    pub(super) misses: u64,
}

impl ObjectCache {
    /// A cache of so many bytes. `start` is the number of the process.
    pub(super) fn new(start: u64, bytes: usize, now: Ms) -> Self {
        let mut session = Session::new(ClientId(start), HolderId(start << SESSION_BITS), SKEW_MS);
        session.connect(None, now);
        let (residents, waiting) = (EvictionPolicy::new(bytes), HashMap::new());
        Self { session, residents, waiting, hits: 0, misses: 0 }
    }

    /// An object, if it is at hand; else it is fetched.
    pub(super) fn get(&mut self, oid: Oid, now: Ms) -> Option<CachedObject> {
        self.residents.record_use(oid.page());
        let looked = |object, AsOf { seen, timestamp, .. }| CachedObject { object, seen, timestamp };
        let found = match self.session.peek_versioned(oid, now) {
            (Lookup::Value(object), as_of) => {
                Some(looked(Some(object.clone()).filter(|object| object.class == oid.class()), as_of))
            }
            (Lookup::Absent, as_of) => Some(looked(None, as_of)),
            (Lookup::Miss, _) => {
                // Fetches it.
                let _ = self.session.get(oid, now);
                None
            }
        };
        *(if found.is_some() { &mut self.hits } else { &mut self.misses }) += 1;
        found
    }

    /// Somebody waits for an object that is being fetched.
    pub(super) fn wait(&mut self, oid: Oid, now: Ms, then: Box<dyn FnOnce(Result<CachedObject>) + Send>) {
        self.waiting.entry(oid.page()).or_default().push(PendingRead { oid, until: now + WAIT_TIMEOUT_MS, then });
    }

    /// The cache node says something.
    pub(super) fn handle_down(&mut self, node: NodeId, holder: HolderId, message: Down<Object>, now: Ms) {
        let fetched = if let Down::Fetched { page, .. } = &message { Some(*page) } else { None };
        let is_of_all = matches!(message, Down::Leased { .. } | Down::Closed);
        self.session.handle_down(node, holder, message, now);
        if let Some(page) = fetched {
            self.handle_fetched(page);
            self.retry_pending(page, now);
        }
        if is_of_all {
            let pages: Vec<PageId> = self.waiting.keys().copied().filter(|page| page.node == node).collect();
            pages.into_iter().for_each(|page| self.retry_pending(page, now));
        }
    }

    /// A page has come: others may have to go.
    fn handle_fetched(&mut self, page: PageId) {
        let objects = self.session.cache().valid_objects(page).map(|(_, object, _)| OVERHEAD + object.data.len());
        let bytes = OVERHEAD + objects.sum::<usize>();
        self.residents.insert(page, bytes);
        while let Some(gone) = self.residents.evict(page) {
            self.session.evict(gone);
        }
    }

    /// There may be news of a page for those who wait.
    fn retry_pending(&mut self, page: PageId, now: Ms) {
        for waiting in self.waiting.remove(&page).unwrap_or_default() {
            match self.get(waiting.oid, now) {
                Some(found) => (waiting.then)(Ok(found)),
                None => self.waiting.entry(page).or_default().push(waiting),
            }
        }
    }

    /// What it has to say to the cache node.
    pub(super) fn outputs(&mut self) -> Vec<(NodeId, HolderId, Up<Object>)> {
        let up = |output| match output {
            Output::Up(node, holder, message) => Some((node, holder, message)),
            // It begins no transactions, and writes nothing.
            _ => None,
        };
        self.session.outputs().filter_map(up).collect()
    }

    /// Does what it is time for.
    pub(super) fn poll(&mut self, now: Ms) {
        self.session.poll(now);
        if self.waiting.is_empty() {
            return;
        }
        let mut late = Vec::new();
        self.waiting.retain(|_, waiting| {
            late.extend(waiting.extract_if(.., |one| one.until <= now));
            !waiting.is_empty()
        });
        for waiting in late {
            let what = format!("{} has not come for {WAIT_TIMEOUT_MS} ms: try again", waiting.oid);
            (waiting.then)(Err(Error::new(ErrorKind::Unavailable, what)));
        }
    }

    /// When [`ObjectCache::poll`] has something to do.
    pub(super) fn deadline(&self) -> Ms {
        let waiting = self.waiting.values().flatten().map(|waiting| waiting.until).min();
        self.session.deadline().into_iter().chain(waiting).min().unwrap_or(Ms::MAX)
    }

    /// Bytes of all that it has.
    pub(super) fn bytes(&self) -> usize {
        self.residents.bytes()
    }
}
