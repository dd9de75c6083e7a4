//! Where new objects go: pages in which no other client creates objects.
//!
//! A page that is being filled is *leased* to one transaction at a time. So the objects that a transaction creates stay
//! together, and a transaction that is not committed leaves no gaps: it returns its pages as they were.
//!
//! All that a transaction creates without a hint goes to one logical node, its *home*: so it has one participant. Clients begin at
//! different logical nodes. A client goes on to the next one after a transaction that has filled a page.
//!
//! A client that is closed returns the pages that have room, and the next one fills them: objects of short-lived clients share pages.
//!
//! [`PageAllocator`] decides, without I/O; [`PageSource`] reserves page numbers for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{ClassId, Error, ErrorKind, NodeId, Oid, PageId, Result, SpaceId, checksum};
use protocol::ident::ClientId;
use tracing::warn;
use wire::cluster::{PAGE_SLOTS, Reserve, ReservedPages};
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;

use super::client_core::{Core, unexpected_answer_error};
use crate::plant::{Bug, planted};

/// Page numbers that are reserved at a time.
const RESERVED_PAGES: u32 = 256;
/// Bytes of objects that share a page.
pub(super) const PAGE_BYTES: usize = 8 << 10;
/// What an object takes in its page beside its data, in bytes.
const OVERHEAD: usize = 24;
/// A page with less room than this counts as filled, in bytes.
const FULL_PAGE_ROOM: usize = PAGE_BYTES / 8;
/// Maximum pages of a logical node that are kept to be filled further.
const MAX_OPEN_PAGES: usize = 16;

/// A page that is being filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenPage {
    page: PageId,
    /// The next free slot.
    slot: u16,
    bytes: usize,
}

impl OpenPage {
    pub(super) fn page(&self) -> PageId {
        self.page
    }

    /// Whether an object of `len` bytes fits. The first one does, whatever its size.
    pub(super) fn fits(&self, len: usize) -> bool {
        self.slot < PAGE_SLOTS && (self.bytes == 0 || self.bytes + len + OVERHEAD <= PAGE_BYTES)
    }

    /// The identifier of a new object of `len` bytes.
    ///
    /// # Panics
    /// If the page has no free slot: the object would share its slot with one placed near it.
    pub(super) fn place(&mut self, class: ClassId, len: usize) -> Oid {
        assert!(self.slot < PAGE_SLOTS, "page {:?} is full", self.page);
        let oid = Oid::new(class, self.page, self.slot);
        (self.slot, self.bytes) = (self.slot + 1, self.bytes + len + OVERHEAD);
        oid
    }

    /// The page, for another client.
    fn range(self) -> ReservedPages {
        let room = PAGE_BYTES.saturating_sub(self.bytes) as u32;
        let slot = if planted(Bug::ReturnedSlotsForgotten) { 0 } else { self.slot };
        ReservedPages { first: self.page.number, pages: 1, slot, room }
    }
}

/// What an allocator has for a new object.
#[derive(Debug, PartialEq, Eq)]
enum Lease {
    Page(OpenPage),
    /// Page numbers of the logical node have to be reserved.
    NeedsNumbers,
}

/// The pages that a client fills, and the page numbers that are reserved for it.
#[derive(Debug, Default)]
struct PageAllocator {
    open: BTreeMap<NodeId, Vec<OpenPage>>,
    reserved: BTreeMap<NodeId, Range<u64>>,
    /// The position, among the space's logical nodes, of the home of the next transaction.
    current: usize,
    /// Whether a page of the current logical node has been filled.
    is_filled: bool,
    /// Logical nodes that cannot be served because their rows are damaged. Each is tried again when all others have been filled.
    damaged: BTreeSet<NodeId>,
}

impl PageAllocator {
    /// The home of a transaction: an available logical node, if there is one.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the space has no logical nodes.
    fn home(&mut self, nodes: &[NodeId], unavailable: &BTreeSet<NodeId>) -> Result<NodeId> {
        let count = nodes.len().max(1);
        let first = self.current % count + usize::from(std::mem::take(&mut self.is_filled));
        let mut next = nodes.iter().cycle().skip(first % count).take(count);
        let is_available = |node: &NodeId| !unavailable.contains(node) && !self.damaged.contains(node);
        let chosen = first + next.position(is_available).unwrap_or(0);
        self.current = chosen % count;
        if chosen >= count {
            self.damaged.clear();
        }
        nodes.get(self.current).copied().ok_or_else(no_nodes_error)
    }

    /// Another home, in place of a damaged logical node; `None` if all have been tried.
    ///
    /// # Errors
    /// As [`PageAllocator::home`].
    fn home_instead(
        &mut self,
        nodes: &[NodeId],
        damaged: NodeId,
        unavailable: &BTreeSet<NodeId>,
    ) -> Result<Option<NodeId>> {
        self.damaged.insert(damaged);
        let other = self.home(nodes, unavailable)?;
        Ok(Some(other).filter(|other| !self.damaged.contains(other)))
    }

    /// A page of a logical node with room for an object of `len` bytes. No other transaction fills the page until it is
    /// [released](PageAllocator::release).
    fn lease(&mut self, space: SpaceId, node: NodeId, len: usize) -> Lease {
        let page = self.take_open(node, len).or_else(|| self.take_new(space, node));
        page.map_or(Lease::NeedsNumbers, Lease::Page)
    }

    /// Takes the fullest open page in which an object fits.
    fn take_open(&mut self, node: NodeId, len: usize) -> Option<OpenPage> {
        let pages = self.open.get_mut(&node)?;
        let fitting = pages.iter().enumerate().filter(|(_, page)| page.fits(len));
        let (at, _) = fitting.max_by_key(|(_, page)| page.bytes)?;
        Some(pages.swap_remove(at))
    }

    /// Takes an empty page, if a page number is reserved.
    fn take_new(&mut self, space: SpaceId, node: NodeId) -> Option<OpenPage> {
        let reserved = self.reserved.get_mut(&node)?;
        let number = if planted(Bug::PageNumberReused) { reserved.clone().next() } else { reserved.next() }?;
        Some(OpenPage { page: PageId { space, node, number }, slot: 0, bytes: 0 })
    }

    /// Pages are reserved for this client. An earlier client may have created objects in the first one.
    ///
    /// # Panics
    /// If the client still has reserved pages of the logical node: these would replace them.
    fn add_reserved(&mut self, space: SpaceId, node: NodeId, range: ReservedPages) {
        let mut numbers = range.first..range.end();
        if range.slot > 0 {
            numbers.start += 1;
            // It is not empty, whatever room the earlier client has said that it has.
            let bytes = PAGE_BYTES.saturating_sub(range.room as usize).max(1);
            let page = PageId { space, node, number: range.first };
            self.open.entry(node).or_default().push(OpenPage { page, slot: range.slot, bytes });
        }
        let before = self.reserved.insert(node, numbers);
        assert!(before.is_none_or(|unused| unused.is_empty()), "pages of {node:?} are lost");
    }

    /// Takes all pages that no transaction fills and that have room.
    fn take_all(&mut self) -> BTreeMap<NodeId, Vec<ReservedPages>> {
        let mut ranges: BTreeMap<NodeId, Vec<ReservedPages>> = BTreeMap::new();
        for (node, pages) in std::mem::take(&mut self.open) {
            let with_room = pages.into_iter().filter(|page| page.fits(FULL_PAGE_ROOM));
            ranges.entry(node).or_default().extend(with_room.map(OpenPage::range));
        }
        for (node, unused) in std::mem::take(&mut self.reserved).into_iter().filter(|(_, unused)| !unused.is_empty()) {
            let pages = (unused.end - unused.start) as u32;
            ranges.entry(node).or_default().push(ReservedPages::empty(unused.start, pages));
        }
        ranges
    }

    /// Returns a page. What was placed in it stays; another transaction may fill it further.
    ///
    /// If the page is open already, the server has reserved it twice. Then both are given up: two transactions would create objects in the
    /// same slots.
    fn release(&mut self, page: OpenPage) {
        let pages = self.open.entry(page.page.node).or_default();
        if let Some(at) = pages.iter().position(|other| other.page == page.page)
            && !planted(Bug::PageNumberReused)
        {
            warn!(page = ?page.page, "the server has reserved a page twice: it is filled no further");
            pages.swap_remove(at);
            return;
        }
        pages.push(page);
        self.is_filled |= !page.fits(FULL_PAGE_ROOM);
        if pages.len() > MAX_OPEN_PAGES {
            pages.sort_unstable_by_key(|page| page.bytes);
            pages.pop();
        }
    }
}

/// Leases pages, and reserves page numbers when they run out.
#[derive(Debug)]
pub(super) struct PageSource {
    allocator: Mutex<PageAllocator>,
    /// Held during a reservation, so that there is one at a time for each logical node. Reservations at other nodes continue, because the
    /// brick of one node may be unreachable.
    reserving: Mutex<HashMap<NodeId, Arc<tokio::sync::Mutex<()>>>>,
}

impl PageSource {
    /// A source for a client. Clients with different numbers begin at different logical nodes, about as many at each.
    pub(super) fn new(client: ClientId) -> Self {
        let current = checksum::mix(client.0) as usize;
        let allocator = PageAllocator { current, ..PageAllocator::default() };
        Self { allocator: Mutex::new(allocator), reserving: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, PageAllocator> {
        // No operation of the allocator leaves it inconsistent.
        self.allocator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leases a page of a logical node with room for an object of `len` bytes.
    pub(super) async fn lease(&self, core: &Core, node: NodeId, len: usize) -> Result<OpenPage> {
        if let Lease::Page(page) = self.lock().lease(core.space, node, len) {
            return Ok(page);
        }
        let reserving = {
            let mut reserving = self.reserving.lock().unwrap_or_else(PoisonError::into_inner);
            reserving.entry(node).or_default().clone()
        };
        let _one_at_a_time = reserving.lock().await;
        if let Some(page) = self.lock().take_new(core.space, node) {
            return Ok(page);
        }
        let room = u32::try_from(len + OVERHEAD).unwrap_or(u32::MAX);
        let reserve = Reserve { space: core.space, node, pages: RESERVED_PAGES, room };
        let (Response::Reserved(answer), _) = core.ask(Request::Reserve(reserve.into())).await? else {
            return Err(unexpected_answer_error());
        };
        let range = ReservedPages::try_from(answer)?;
        let mut allocator = self.lock();
        allocator.add_reserved(core.space, node, range);
        match allocator.lease(core.space, node, len) {
            Lease::Page(page) => Ok(page),
            Lease::NeedsNumbers => {
                Err(Error::new(ErrorKind::Internal, format!("the page of {range:?} has no room for {len} bytes")))
            }
        }
    }

    /// Ends the use of all pages that no transaction fills. Returns what other clients can fill.
    pub(super) fn take_all(&self, core: &Core) -> Vec<proto::ReturnPages> {
        let returned = self.lock().take_all().into_iter().filter(|(_, ranges)| !ranges.is_empty());
        let space = u32::from(core.space.0);
        let message = |(node, ranges): (NodeId, Vec<ReservedPages>)| proto::ReturnPages {
            space,
            node: node.0,
            ranges: ranges.into_iter().map(proto::Reserved::from).collect(),
        };
        returned.map(message).collect()
    }

    /// The logical node where the next transaction or upload without a hint puts all that it creates. None of `unavailable` is chosen if
    /// there are others.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the space has none.
    pub(super) fn home(&self, core: &Core, unavailable: &BTreeSet<NodeId>) -> Result<NodeId> {
        self.lock().home(&core.nodes, unavailable)
    }

    /// Another home in place of one where nothing can be created because its rows are damaged, which is what `error` says.
    ///
    /// # Errors
    /// `error`, if it says something else or there is no other home.
    pub(super) fn home_instead(
        &self,
        core: &Core,
        home: NodeId,
        unavailable: &BTreeSet<NodeId>,
        error: Error,
    ) -> Result<NodeId> {
        if error.kind() != ErrorKind::Corrupt {
            return Err(error);
        }
        self.lock().home_instead(&core.nodes, home, unavailable)?.ok_or(error)
    }

    /// Returns a page; see [`PageAllocator::release`].
    fn release(&self, page: OpenPage) {
        self.lock().release(page);
    }

    /// Identifiers for new objects at a logical node, each given by its class and its bytes of data. They share pages as far as they
    /// fit.
    pub(super) async fn place(&self, core: &Core, node: NodeId, objects: &[(ClassId, usize)]) -> Result<Vec<Oid>> {
        let mut placed = Vec::with_capacity(objects.len());
        let mut filling: Option<OpenPage> = None;
        for (class, len) in objects {
            let mut page = match filling.take() {
                Some(page) if page.fits(*len) => page,
                full => {
                    full.into_iter().for_each(|page| self.release(page));
                    self.lease(core, node, *len).await?
                }
            };
            placed.push(page.place(*class, *len));
            filling = Some(page);
        }
        filling.into_iter().for_each(|page| self.release(page));
        Ok(placed)
    }
}

fn no_nodes_error() -> Error {
    Error::new(ErrorKind::Unavailable, "the space has no logical nodes yet: nothing can be created in it")
}

/// The pages that a transaction fills.
#[derive(Debug, Default)]
pub(super) struct PageLease {
    /// The home of the transaction, once it has created something without a hint.
    pub(super) home: Option<NodeId>,
    /// The page of each logical node.
    filling: HashMap<NodeId, OpenPage>,
    /// All pages, as they were leased.
    original: Vec<OpenPage>,
    /// Pages that were filled, and followed by another one.
    full: Vec<OpenPage>,
}

impl PageLease {
    /// The page of a logical node, if an object of `len` bytes fits.
    pub(super) fn open_page(&mut self, node: NodeId, len: usize) -> Option<&mut OpenPage> {
        self.filling.get_mut(&node).filter(|page| page.fits(len))
    }

    /// This page, if it is leased and an object of `len` bytes fits.
    pub(super) fn open_page_at(&mut self, page: PageId, len: usize) -> Option<&mut OpenPage> {
        self.filling.values_mut().find(|open| open.page() == page && open.fits(len))
    }

    /// Adds a page, in place of the one before at its logical node, which is full.
    pub(super) fn add(&mut self, page: OpenPage) {
        self.original.push(page);
        self.full.extend(self.filling.insert(page.page.node, page));
    }

    /// Takes the pages to return: as they are, or as they were leased if nothing that was placed in them will ever exist.
    fn take_pages(&mut self, is_unused: bool) -> Vec<OpenPage> {
        let filled = std::mem::take(&mut self.filling).into_values().chain(std::mem::take(&mut self.full));
        let original = std::mem::take(&mut self.original);
        if is_unused || planted(Bug::LeasedPageReused) { original } else { filled.collect() }
    }

    /// Returns all pages.
    pub(super) fn release(&mut self, source: &PageSource, is_unused: bool) {
        self.take_pages(is_unused).into_iter().for_each(|page| source.release(page));
    }
}

#[cfg(test)]
mod tests;
