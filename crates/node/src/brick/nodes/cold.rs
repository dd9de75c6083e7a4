//! Reads that would wait for the disk: other threads carry them out, see [`ColdReads`](crate::brick::cold_reads::ColdReads).
//!
//! | read | what becomes of it |
//! | --- | --- |
//! | a page that a holder fetches | it is read by another thread, which brings it to the driver as an event |
//! | the newest state of an object | it is read and sent by another thread |
//! | a short range of a blob's bytes | it is read and sent by a thread of the runtime that may block, as longer ones always are |
//! | up to 64 entries of a collection | they are read by a thread of the runtime that may block, as more entries always are |
//! | the entry of a key | it is read by another thread, as the entries of several keys are |
//! | what a request of a coordinator reads | another thread reads the rows first and then handles the request. Requests have no order |
//!
//! A thread that handles something locks the logical node as any other thread, with the rows in memory.

use std::collections::BTreeSet;
use std::iter;
use std::sync::Arc;

use model::{EntryKey, Error, ErrorKind, NodeId, Object, Oid, PageId, Result};
use protocol::commit::{Part, Request};
use protocol::entries::{collection_guard, key_guard};
use protocol::validate::Footprint;
use tokio::sync::oneshot;
use tracing::warn;
use wire::cluster::{ListEntries, Message, ReadContent};
use wire::driving::{DeliveryScope, PeerHandle};

use super::Nodes;
use crate::brick::entries::listed_range;
use crate::brick::entry_rows::entry_key;
use crate::brick::node_driver::PageRead;
use crate::brick::page_rows::{self as rows, Key, StoredObject};
use crate::brick::routing::{self, NodeEvent};

/// Rows of a request that are looked for in memory, at most.
const MAX_PROBED: usize = 64;

impl Nodes {
    /// Whether the newest state of an object cannot be read without waiting for the disk.
    pub(crate) fn is_cold(&self, oid: Oid) -> bool {
        self.cold_reads.would_wait(|| self.is_row_resident(oid.page(), &rows::object_key(oid.page(), oid.slot())))
    }

    /// Whether a range of a blob's bytes cannot be read without waiting for the disk.
    pub(crate) fn is_range_cold(&self, read: &ReadContent) -> bool {
        let (page, slot) = (read.oid.page(), read.oid.slot());
        self.cold_reads.would_wait(|| {
            // An error is reported by the read.
            self.is_row_resident(page, &rows::object_key(page, slot)) && self.is_range_resident(read).unwrap_or(true)
        })
    }

    fn is_range_resident(&self, read: &ReadContent) -> Result<bool> {
        let content = match read.expected {
            Some((content, _)) => Some(content),
            None => {
                let object = rows::read_object(&self.store, read.oid.page(), read.oid.slot())?;
                object.and_then(|object| object.content().map(|content| content.id))
            }
        };
        match content {
            Some(content) => self.store.is_content_resident(content, read.offset, u64::from(read.length)),
            None => Ok(true),
        }
    }

    /// Whether the entry of a key, or the version of its guard, cannot be read without waiting for the disk.
    pub(crate) fn is_entry_cold(&self, collection: Oid, key: &EntryKey) -> bool {
        let page = key_guard(collection, key).page();
        let is_resident = |row: &Key| self.is_row_resident(page, row);
        self.cold_reads.would_wait(|| is_resident(&entry_key(collection, key)) && is_resident(&rows::head_key(page)))
    }

    /// Whether entries of a collection, or the version of its guard, cannot be read without waiting for the disk.
    pub(crate) fn is_listing_cold(&self, wanted: &ListEntries) -> bool {
        let page = collection_guard(wanted.collection).page();
        let (from, to) = listed_range(wanted);
        self.cold_reads.would_wait(|| {
            self.is_row_resident(page, &rows::head_key(page)) && self.store.are_rows_resident(&from, &to)
        })
    }

    /// Reads the newest state of an object as [`Nodes::read_latest`] does, on another thread if that would wait for the disk.
    ///
    /// # Errors
    /// As there; [`ErrorKind::Unavailable`] if the brick ends.
    pub(crate) async fn read_latest_later<T: Send + 'static>(
        self: &Arc<Self>,
        oid: Oid,
        show: impl FnMut(Option<StoredObject<'_>>) -> T + Send + 'static,
    ) -> Result<Option<T>> {
        let place = if self.is_cold(oid) { self.cold_reads.place(0) } else { None };
        let Some(place) = place else { return self.read_latest(oid, show) };
        let (done, read) = oneshot::channel();
        let nodes = self.clone();
        place.run(move || drop(done.send(nodes.read_latest(oid, show))));
        read.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, "the brick ends")))
    }

    /// Begins to read a page for a logical node, if that would wait for the disk. Says whether it does.
    pub(super) fn defer_page_read(&self, node: NodeId, read: PageRead) -> bool {
        if !self.cold_reads.would_wait(|| self.is_page_resident(read.page())) {
            return false;
        }
        let Some(place) = self.cold_reads.place(0) else { return false };
        let nodes = self.this.clone();
        place.run(move || {
            let Some(nodes) = nodes.upgrade() else { return };
            let found = rows::read_page(&nodes.store, read.page());
            let _delivery = DeliveryScope::enter();
            let event = NodeEvent::PageRead { node, read, found };
            routing::handle_event(&mut &*nodes, event, &mut iter::empty().peekable());
        });
        true
    }

    /// Has another thread handle a request whose rows are not in memory. Returns the message if it is to be handled here.
    pub(super) fn defer_cold_request(&self, from: &PeerHandle, message: Message) -> Option<Message> {
        if !self.cold_reads.is_probing() {
            return Some(message);
        }
        let Message::Ask { request, .. } = &message else { return Some(message) };
        let read = rows_read_by(request);
        let is_resident = || read.iter().take(MAX_PROBED).all(|(page, key)| self.is_row_resident(*page, key));
        if read.is_empty() || !self.cold_reads.would_wait(is_resident) {
            return Some(message);
        }
        let bytes = message.memory_size() + size_of_val(&read[..]);
        let Some(place) = self.cold_reads.place(bytes) else { return Some(message) };
        let (nodes, from) = (self.this.clone(), from.clone());
        place.run(move || {
            let Some(nodes) = nodes.upgrade() else { return };
            for (_, key) in read {
                // An error is reported when the request is handled.
                drop(nodes.store.row_with(&key, |_| ()));
            }
            let _delivery = DeliveryScope::enter();
            if let Err(error) = routing::handle_messages(&mut &*nodes, &from, iter::once(message)) {
                warn!(%error, "a connection is closed because a message on it cannot be handled");
                from.hang_up();
            }
        });
        None
    }

    fn is_row_resident(&self, page: PageId, key: &Key) -> bool {
        !self.is_evicted(page) && self.store.is_row_resident(key)
    }

    fn is_page_resident(&self, page: PageId) -> bool {
        !self.is_evicted(page) && rows::is_page_resident(&self.store, page)
    }

    /// Whether a test has evicted the page.
    #[cfg(test)]
    fn is_evicted(&self, page: PageId) -> bool {
        self.cold_reads.simulated.is_cold(page)
    }

    #[cfg(not(test))]
    fn is_evicted(&self, _: PageId) -> bool {
        false
    }
}

/// The rows of the store that a logical node reads when it handles a request, with their pages.
fn rows_read_by(request: &Request<Object>) -> Vec<(PageId, Key)> {
    match request {
        Request::Prepare { part, .. } | Request::Commit { part, .. } => rows_read_for(part),
        Request::Check { reads, .. } => heads_of(reads.pages()).collect(),
        Request::Lock { oid, .. } => heads_of([oid.page()]).chain([object_row(*oid)]).collect(),
        Request::Joint { requests, .. } => requests.values().flat_map(rows_read_by).collect(),
        Request::Decide { .. } | Request::Ask { .. } | Request::Forget { .. } | Request::Heard { .. } => Vec::new(),
    }
}

/// The heads of all pages, and what the writes replace.
fn rows_read_for(part: &Part<Object>) -> Vec<(PageId, Key)> {
    let Footprint { reads, writes, patches, touches } = part.footprint();
    let held = reads.into_iter().chain(writes).chain(patches).chain(touches);
    let heads = heads_of(held.map(Oid::page));
    let objects = part.writes.keys().copied().map(object_row);
    let entries = part.entries.keys().map(|entry| (entry.collection.page(), entry_key(entry.collection, &entry.key)));
    heads.chain(objects).chain(entries).collect()
}

fn heads_of(pages: impl IntoIterator<Item = PageId>) -> impl Iterator<Item = (PageId, Key)> {
    let pages: BTreeSet<PageId> = pages.into_iter().collect();
    pages.into_iter().map(|page| (page, rows::head_key(page)))
}

fn object_row(oid: Oid) -> (PageId, Key) {
    (oid.page(), rows::object_key(oid.page(), oid.slot()))
}
