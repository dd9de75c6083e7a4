//! Where new objects go: pages that nobody else creates objects in.

use std::collections::HashMap;

use model::{ClassId, Error, ErrorKind, NodeId, Oid, PageId, Result};
use tokio::sync::Mutex;
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;

use super::core::Core;

/// Pages that are reserved at a time.
const PAGES: u32 = 256;
/// Bytes of objects that share a page.
pub(super) const PAGE: usize = 8 << 10;
/// What an object takes in its page beside its data.
const OVERHEAD: usize = 24;
/// Objects that share a page, however small.
pub(super) const SLOTS: u16 = 512;

/// A page that is being filled.
#[derive(Clone, Copy, Debug)]
struct Room {
    page: PageId,
    slot: u16,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Inner {
    rooms: HashMap<NodeId, Room>,
    reserved: HashMap<NodeId, std::ops::Range<u64>>,
    /// Where objects go that may go anywhere.
    current: usize,
}

/// The pages that this client fills. Held over a reservation, so that there is one at a time.
#[derive(Debug, Default)]
pub(super) struct Rooms(Mutex<Inner>);

impl Rooms {
    /// Identifiers for new objects, which share pages as far as they fit: each with its class and its bytes of data. At one
    /// logical node, if that is said.
    pub(super) async fn place(
        &self,
        core: &Core,
        node: Option<NodeId>,
        objects: &[(ClassId, usize)],
    ) -> Result<Vec<Oid>> {
        let mut inner = self.0.lock().await;
        let mut placed = Vec::with_capacity(objects.len());
        for (class, len) in objects {
            let at = match node {
                Some(node) => node,
                None => *core.nodes.get(inner.current % core.nodes.len().max(1)).ok_or_else(nowhere)?,
            };
            let bytes = len + OVERHEAD;
            let is_full = |room: &Room| room.bytes > 0 && room.bytes + bytes > PAGE || room.slot == SLOTS;
            if inner.rooms.get(&at).is_none_or(is_full) {
                if node.is_none() && inner.rooms.contains_key(&at) {
                    inner.current += 1;
                }
                let page = PageId { space: core.space, node: at, number: inner.next(core, at).await? };
                inner.rooms.insert(at, Room { page, slot: 0, bytes: 0 });
            }
            let room = inner.rooms.get_mut(&at).ok_or_else(nowhere)?;
            placed.push(Oid::new(*class, room.page, room.slot));
            (room.slot, room.bytes) = (room.slot + 1, room.bytes + bytes);
        }
        Ok(placed)
    }
}

impl Inner {
    /// The number of a page that nobody uses.
    async fn next(&mut self, core: &Core, node: NodeId) -> Result<u64> {
        if let Some(number) = self.reserved.get_mut(&node).and_then(Iterator::next) {
            return Ok(number);
        }
        let reserve = proto::Reserve { space: u32::from(core.space.0), node: node.0, pages: PAGES };
        let (response, _) = core.ask(Request::Reserve(reserve)).await?;
        let Response::Reserved(reserved) = response else {
            return Err(Error::new(ErrorKind::Internal, "the answer to a reservation is something else"));
        };
        let end = reserved.first.checked_add(u64::from(PAGES)).filter(|end| *end <= PageId::MAX_NUMBER);
        let end = end.ok_or_else(|| Error::new(ErrorKind::Internal, "pages were reserved that cannot be"))?;
        let mut range = reserved.first..end;
        let number = range.next().ok_or_else(nowhere)?;
        self.reserved.insert(node, range);
        Ok(number)
    }
}

fn nowhere() -> Error {
    Error::new(ErrorKind::Unavailable, "the space has no logical nodes yet: nothing can be created in it")
}
