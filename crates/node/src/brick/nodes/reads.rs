//! Reads of the newest durable state: of objects, of extents and indexes, of collections; and how far indexes are built.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use model::{Entry, Error, ErrorKind, NodeId, Oid, Result};
use protocol::lease::Ms;
use tokio::time::{self, Instant};
use wire::cluster::{
    BuildIndex, EntriesOf, EntryList, ListEntries, ListEntriesOf, ListNodeObjects, LookUp, LookedUp, NodeObjects, Scan,
    Scanned,
};

use super::Nodes;
use crate::blocking;
use crate::brick::entries;
use crate::brick::index_rows::{self, IndexId, Mark};
use crate::brick::page_rows::{self as rows, StoredObject};
use crate::brick::scan::scan;

/// How long a request to build an index waits for its completion, and how often it checks.
const INDEX_WAIT_MS: Ms = 500;
const INDEX_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How long a look-up or a listing waits for transactions that change what it reads.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
pub(super) const SETTLE_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause between two attempts: each takes the lock of the logical node.
const MAX_SETTLE_PAUSE: Duration = Duration::from_millis(32);
/// Keys that are followed on the thread that gets the request.
const FOLLOWED_AT_ONCE: usize = 16;
/// Entries that are listed on that thread.
const LISTED_AT_ONCE: u32 = 64;

impl Nodes {
    /// Whether an object has to be [waited for](Self::wait_settled) before it is read.
    pub(crate) fn is_unsettled(&self, oid: Oid) -> bool {
        self.served.load().get(&oid.page().node).is_some_and(|served| served.is_unsettled(oid))
    }

    /// Waits until no transaction over several logical nodes, of which the client may have heard that it is committed, has yet to change
    /// an object here.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if that takes long; [`ErrorKind::Corrupt`] if such a transaction cannot be written, because rows are damaged.
    pub(crate) async fn wait_settled(&self, oid: Oid) -> Result<()> {
        let (until, mut pause) = (Instant::now() + SETTLE_TIMEOUT, SETTLE_PAUSE);
        while self.is_unsettled(oid) {
            if let Some(damage) = self.require_served(oid.page().node)?.lock()?.undecidable_write(oid) {
                return Err(damage);
            }
            if Instant::now() >= until {
                return Err(unsettled_error());
            }
            time::sleep(pause).await;
            pause = (2 * pause).min(MAX_SETTLE_PAUSE);
        }
        Ok(())
    }

    /// Calls `show` with the newest durable state of an object, in place; with `None` if there is no such object. Returns `None` if
    /// that has to be [waited for](Self::wait_settled).
    ///
    /// # Errors
    /// If its logical node is not served here, or it cannot be read.
    pub(crate) fn read_latest<T>(
        &self,
        oid: Oid,
        mut show: impl FnMut(Option<StoredObject<'_>>) -> T,
    ) -> Result<Option<T>> {
        let node = oid.page().node;
        let all = self.served.load();
        let served = all.get(&node).ok_or_else(|| self.not_served(node))?;
        if served.is_unsettled(oid) {
            return Ok(None);
        }
        // If the node has moved away in the meantime, its rows may have been removed.
        let is_right = || {
            let now = self.served.load();
            Arc::ptr_eq(&now, &all) || now.get(&node).is_some_and(|now| Arc::ptr_eq(now, served))
        };
        let shown = rows::show_object(&self.store, oid, |stored| is_right().then(|| show(stored)))?;
        shown.map(Some).ok_or_else(|| self.not_served(node))
    }

    /// Scans extents or an index: see [`scan`].
    ///
    /// # Errors
    /// If the logical node is not served here, or rows cannot be read.
    pub(crate) fn scan(&self, wanted: &Scan) -> Result<Scanned> {
        let served = self.require_served(wanted.node)?;
        let mut scanned = scan(&self.store, wanted)?;
        let driver = served.lock()?;
        if driver.has_unlisted_classes(wanted) {
            return Ok(Scanned { has_stale_classes: true, ..Scanned::default() });
        }
        // All objects found were committed before this time.
        scanned.seen = driver.clock();
        Ok(scanned)
    }

    /// Follows keys from a collection: see [`entries::look_up`].
    ///
    /// # Errors
    /// If the logical node is not served here, or rows cannot be read; [`ErrorKind::Unavailable`] if a change of an entry is not
    /// decided for long.
    pub(crate) async fn look_up(self: Arc<Self>, wanted: LookUp) -> Result<LookedUp> {
        let (node, keys): (_, BTreeSet<_>) = (wanted.node(), wanted.keys.iter().cloned().collect());
        let is_wanted = move |entry: &Entry| keys.contains(&entry.key);
        self.read_settled(node, is_wanted, move |nodes, unsettled| nodes.look_up_settled(&wanted, unsettled)).await
    }

    /// Follows keys on the calling thread. Returns `None` if there are many, or if it would wait: for the disk, or for a change that is not
    /// decided.
    ///
    /// # Errors
    /// As [`Nodes::look_up`].
    pub(crate) fn look_up_now(&self, wanted: &LookUp) -> Result<Option<LookedUp>> {
        match &wanted.keys[..] {
            [key] if !self.is_entry_cold(wanted.collection, key) => self.cold_reads.measure(|| {
                let entry = Entry { collection: wanted.collection, key: key.clone() };
                let is_unsettled = self.require_served(wanted.node())?.lock()?.is_entry_unsettled(&entry);
                if is_unsettled { Ok(None) } else { self.look_up_settled(wanted, &BTreeSet::new()) }
            }),
            // Where the rows of the second key are, only the first one tells.
            [_, _, ..] if wanted.keys.len() <= FOLLOWED_AT_ONCE && !self.cold_reads.is_probing() => {
                self.cold_reads.measure(|| {
                    let is_wanted = |entry: &Entry| wanted.keys.contains(&entry.key);
                    let unsettled = self.require_served(wanted.node())?.lock()?.unsettled_entries(is_wanted);
                    self.look_up_settled(wanted, &unsettled)
                })
            }
            _ => Ok(None),
        }
    }

    /// Follows keys, unless one of their entries was not settled before.
    fn look_up_settled(&self, wanted: &LookUp, unsettled: &BTreeSet<Entry>) -> Result<Option<LookedUp>> {
        let found = entries::look_up(&self.store, wanted)?;
        if entries::looks_up_any(wanted, &found, unsettled) {
            return Ok(None);
        }
        let served = self.require_served(wanted.node())?;
        let driver = served.lock()?;
        driver.check_look_up(wanted.collection)?;
        // All changes that were read were committed before this time.
        Ok(Some(LookedUp { seen: driver.clock(), ..found }))
    }

    /// Lists entries of a collection: see [`entries::list`].
    ///
    /// # Errors
    /// As [`Nodes::look_up`].
    pub(crate) async fn list_entries(self: Arc<Self>, wanted: ListEntries) -> Result<EntryList> {
        let (node, collection) = (wanted.node(), wanted.collection);
        let is_wanted = move |entry: &Entry| entry.collection == collection;
        self.read_settled(node, is_wanted, move |nodes, unsettled| nodes.list_settled(&wanted, unsettled)).await
    }

    /// Lists entries on the calling thread. Returns `None` if there are many, or if it would wait: for the disk, or for a change that is not
    /// decided.
    ///
    /// # Errors
    /// As [`Nodes::look_up`].
    pub(crate) fn list_entries_now(&self, wanted: &ListEntries) -> Result<Option<EntryList>> {
        if self.is_listing_cold(wanted) {
            return Ok(None);
        }
        self.cold_reads.measure(|| {
            let is_wanted = |entry: &Entry| entry.collection == wanted.collection;
            let unsettled = self.require_served(wanted.node())?.lock()?.unsettled_entries(is_wanted);
            let few = ListEntries { limit: wanted.limit.min(LISTED_AT_ONCE), ..wanted.clone() };
            let found = self.list_settled(&few, &unsettled)?;
            Ok(found.filter(|found| few.limit == wanted.limit || !found.more))
        })
    }

    /// Lists entries, unless one of the collection was not settled before.
    fn list_settled(&self, wanted: &ListEntries, unsettled: &BTreeSet<Entry>) -> Result<Option<EntryList>> {
        if entries::has_any(wanted.collection, unsettled) {
            return Ok(None);
        }
        let found = entries::list(&self.store, wanted)?;
        let seen = self.require_served(wanted.node())?.lock()?.clock();
        Ok(Some(EntryList { seen, ..found }))
    }

    /// Reads on a thread that may block, again and again until `read` returns something. It is given those entries of the logical node
    /// that were not settled before and that `is_wanted` accepts.
    async fn read_settled<T: Send + 'static>(
        self: Arc<Self>,
        node: NodeId,
        is_wanted: impl Fn(&Entry) -> bool + Send + Sync + 'static,
        read: impl Fn(&Self, &BTreeSet<Entry>) -> Result<Option<T>> + Send + Sync + 'static,
    ) -> Result<T> {
        let (read, until) = (Arc::new((is_wanted, read)), Instant::now() + SETTLE_TIMEOUT);
        let mut pause = SETTLE_PAUSE;
        loop {
            let (nodes, read) = (self.clone(), read.clone());
            let job = move || {
                let (is_wanted, read) = &*read;
                let unsettled = nodes.require_served(node)?.lock()?.unsettled_entries(is_wanted);
                read(&nodes, &unsettled)
            };
            if let Some(found) = blocking::wait(job).await? {
                return Ok(found);
            }
            if Instant::now() >= until {
                return Err(unsettled_error());
            }
            time::sleep(pause).await;
            pause = (2 * pause).min(MAX_SETTLE_PAUSE);
        }
    }

    /// Lists objects: see [`rows::list_objects`].
    ///
    /// # Errors
    /// As [`Nodes::look_up`].
    pub(crate) fn list_objects(&self, wanted: &ListNodeObjects) -> Result<NodeObjects> {
        let served = self.require_served(wanted.node)?;
        let found = rows::list_objects(&self.store.snapshot()?, wanted)?;
        served.lock().map(|_| found)
    }

    /// Lists the entries that have a target: see [`entries::list_of`].
    ///
    /// # Errors
    /// As [`Nodes::look_up`].
    pub(crate) fn list_entries_of(&self, wanted: &ListEntriesOf) -> Result<EntriesOf> {
        let served = self.require_served(wanted.node)?;
        let found = entries::list_of(&self.store, wanted)?;
        served.lock().map(|_| found)
    }

    /// Progress of an index as (done, total); `None` if it is complete for all its classes in the local catalogue.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the index is not in the local catalogue.
    pub(crate) fn index_progress(&self, wanted: &BuildIndex) -> Result<Option<(u64, u64)>> {
        let BuildIndex { space, node, index } = *wanted;
        let (progress, id) = (self.report_index(wanted)?, IndexId { node, space, index });
        let marks = index_rows::read_marks(&self.store, id)?;
        let is_complete = !marks.is_empty() && marks.iter().all(|(_, mark)| matches!(mark, Mark::Complete(_)));
        Ok((!is_complete).then_some(progress))
    }

    /// Progress of an index as (done, total), also if it is complete.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the index is not in the local catalogue.
    pub(crate) fn report_index(&self, wanted: &BuildIndex) -> Result<(u64, u64)> {
        let BuildIndex { space, node, index } = *wanted;
        let id = IndexId { node, space, index };
        let unknown =
            || Error::new(ErrorKind::NotFound, format!("{id} does not exist in this brick's copy of the catalogue"));
        self.require_served(node)?.lock()?.index_progress(id)?.ok_or_else(unknown)
    }

    /// Waits up to [`INDEX_WAIT_MS`] for an index to become complete. Returns its progress if it is not.
    ///
    /// # Errors
    /// As [`Nodes::index_progress`].
    pub(crate) async fn build_index(&self, wanted: BuildIndex) -> Result<Option<(u64, u64)>> {
        let until = self.time.now() + INDEX_WAIT_MS;
        loop {
            let progress = self.index_progress(&wanted);
            if matches!(progress, Ok(None)) || self.time.now() >= until {
                return progress;
            }
            time::sleep(INDEX_POLL_INTERVAL).await;
        }
    }
}

fn unsettled_error() -> Error {
    let what = "a transaction that changes what was asked for is not decided: a brick or peer server is away";
    Error::new(ErrorKind::Unavailable, what)
}
