//! Where new objects go: pages that nobody else creates objects in.
//!
//! A page that is being filled is *lent* to one transaction at a time, so what a transaction creates stays together, and
//! what it did not commit leaves no holes: it gives the page back as it was.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{ClassId, Error, ErrorKind, NodeId, Oid, PageId, Result};
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;

use super::core::Core;

/// Pages that are reserved at a time.
const RESERVED_PAGES: u32 = 256;
/// Bytes of objects that share a page.
pub(super) const PAGE_BYTES: usize = 8 << 10;
/// What an object takes in its page beside its data.
const OVERHEAD: usize = 24;
/// Objects that share a page, however small.
pub(super) const PAGE_SLOTS: u16 = 512;
/// Pages of a logical node that are kept to be filled further.
const MAX_OPEN_PAGES: usize = 16;

/// A page that is being filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenPage {
    page: PageId,
    slot: u16,
    bytes: usize,
}

impl OpenPage {
    pub(super) fn page(&self) -> PageId {
        self.page
    }

    /// Whether an object of so many bytes fits. The first one does, whatever its size.
    pub(super) fn fits(&self, len: usize) -> bool {
        self.slot < PAGE_SLOTS && (self.bytes == 0 || self.bytes + len + OVERHEAD <= PAGE_BYTES)
    }

    /// The identifier of a new object, which fits.
    pub(super) fn place(&mut self, class: ClassId, len: usize) -> Oid {
        let oid = Oid::new(class, self.page, self.slot);
        (self.slot, self.bytes) = (self.slot + 1, self.bytes + len + OVERHEAD);
        oid
    }
}

#[derive(Debug, Default)]
struct OpenPages {
    pages: HashMap<NodeId, Vec<OpenPage>>,
    /// Where objects go that may go anywhere.
    current: usize,
}

impl OpenPages {
    /// Goes on to a logical node that is not among these, if there is one.
    fn skip_nodes(&mut self, nodes: &[NodeId], away: &BTreeSet<NodeId>) {
        let count = nodes.len().max(1);
        let mut next = nodes.iter().cycle().skip(self.current % count).take(count);
        self.current += next.position(|node| !away.contains(node)).unwrap_or(0);
    }

    /// Takes the fullest room in which an object fits.
    fn take(&mut self, node: NodeId, len: usize) -> Option<OpenPage> {
        let rooms = self.pages.get_mut(&node)?;
        let fitting = rooms.iter().enumerate().filter(|(_, room)| room.fits(len));
        let (at, _) = fitting.max_by_key(|(_, room)| room.bytes)?;
        Some(rooms.swap_remove(at))
    }
}

/// The pages that this client fills.
#[derive(Debug, Default)]
pub(super) struct PageAllocator {
    open_pages: Mutex<OpenPages>,
    reserved: Mutex<HashMap<NodeId, Arc<Reserved>>>,
}

/// Page numbers of a logical node that are reserved. Held over a reservation, so that there is one at a time; others go on
/// meanwhile, as the brick of this one may be away.
type Reserved = tokio::sync::Mutex<Range<u64>>;

impl PageAllocator {
    fn lock_open_pages(&self) -> MutexGuard<'_, OpenPages> {
        // Whoever panicked has left it whole.
        self.open_pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page with room for an object of so many bytes, at one logical node if that is said. Nobody else fills it until it
    /// is given back. What may go anywhere does not go where nobody can be reached now.
    pub(super) async fn lease(&self, core: &Core, node: Option<NodeId>, len: usize) -> Result<OpenPage> {
        let away = core.lock()?.monitor.unreachable_nodes();
        let node = {
            let mut open = self.lock_open_pages();
            open.skip_nodes(&core.nodes, &away);
            let current = |open: &OpenPages| core.nodes.get(open.current % core.nodes.len().max(1)).copied();
            let mut at = node.or_else(|| current(&open)).ok_or_else(no_nodes_error)?;
            if let Some(room) = open.take(at, len) {
                return Ok(room);
            }
            // Those that are there are full: the next objects go to the next logical node.
            if node.is_none() && open.pages.get(&at).is_some_and(|rooms| !rooms.is_empty()) {
                open.current += 1;
                open.skip_nodes(&core.nodes, &away);
                at = current(&open).ok_or_else(no_nodes_error)?;
                if let Some(room) = open.take(at, len) {
                    return Ok(room);
                }
            }
            at
        };
        let page = PageId { space: core.space, node, number: self.next_page_number(core, node).await? };
        Ok(OpenPage { page, slot: 0, bytes: 0 })
    }

    /// Gives a page back: what was placed in it stays, others may fill it further.
    pub(super) fn release(&self, room: OpenPage) {
        let mut open = self.lock_open_pages();
        let rooms = open.pages.entry(room.page.node).or_default();
        rooms.push(room);
        if rooms.len() > MAX_OPEN_PAGES {
            rooms.sort_unstable_by_key(|room| room.bytes);
            rooms.pop();
        }
    }

    /// Identifiers for new objects, which share pages as far as they fit: each with its class and its bytes of data. At one
    /// logical node, if that is said.
    pub(super) async fn place(
        &self,
        core: &Core,
        node: Option<NodeId>,
        objects: &[(ClassId, usize)],
    ) -> Result<Vec<Oid>> {
        let mut placed = Vec::with_capacity(objects.len());
        let mut filling: Option<OpenPage> = None;
        for (class, len) in objects {
            let mut room = match filling.take() {
                Some(room) if room.fits(*len) => room,
                full => {
                    full.into_iter().for_each(|room| self.release(room));
                    self.lease(core, node, *len).await?
                }
            };
            placed.push(room.place(*class, *len));
            filling = Some(room);
        }
        filling.into_iter().for_each(|room| self.release(room));
        Ok(placed)
    }

    /// The number of a page that nobody uses.
    async fn next_page_number(&self, core: &Core, node: NodeId) -> Result<u64> {
        let reserved = {
            // As for those that are open.
            let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
            reserved.entry(node).or_default().clone()
        };
        let mut reserved = reserved.lock().await;
        if let Some(number) = reserved.next() {
            return Ok(number);
        }
        let reserve = proto::Reserve { space: u32::from(core.space.0), node: node.0, pages: RESERVED_PAGES };
        let (Response::Reserved(answer), _) = core.ask(Request::Reserve(reserve)).await? else {
            return Err(Error::new(ErrorKind::Internal, "the answer to a reservation is something else"));
        };
        let end = answer.first.checked_add(u64::from(RESERVED_PAGES)).filter(|end| *end <= PageId::MAX_NUMBER);
        let end = end.ok_or_else(|| Error::new(ErrorKind::Internal, "pages were reserved that cannot be"))?;
        *reserved = answer.first..end;
        reserved.next().ok_or_else(no_nodes_error)
    }
}

fn no_nodes_error() -> Error {
    Error::new(ErrorKind::Unavailable, "the space has no logical nodes yet: nothing can be created in it")
}

/// Pages that a transaction fills, and how it got them.
#[derive(Debug, Default)]
pub(super) struct PageLease {
    /// The page of each hint: at one logical node, or anywhere.
    filling: HashMap<Option<NodeId>, OpenPage>,
    original: Vec<OpenPage>,
}

impl PageLease {
    /// The page that new objects of a hint go to, if one of so many bytes fits.
    pub(super) fn open_page(&mut self, node: Option<NodeId>, len: usize) -> Option<&mut OpenPage> {
        self.filling.get_mut(&node).filter(|room| room.fits(len))
    }

    /// The room whose page this is.
    pub(super) fn open_page_at(&mut self, page: PageId, len: usize) -> Option<&mut OpenPage> {
        self.filling.values_mut().find(|room| room.page() == page && room.fits(len))
    }

    /// A page was lent for a hint. The one before is full.
    pub(super) fn add(&mut self, node: Option<NodeId>, room: OpenPage) {
        self.original.push(room);
        self.filling.insert(node, room);
    }

    /// Gives all back; as they were, if nothing that was placed in them will ever be.
    pub(super) fn release(&mut self, rooms: &PageAllocator, is_empty: bool) {
        let filled = std::mem::take(&mut self.filling).into_values();
        let as_lent = std::mem::take(&mut self.original);
        match is_empty {
            true => as_lent.into_iter().for_each(|room| rooms.release(room)),
            false => filled.for_each(|room| rooms.release(room)),
        }
    }
}
