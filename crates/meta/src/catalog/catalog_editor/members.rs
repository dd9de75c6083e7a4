//! Operations on bricks and peer servers.

use crate::{MetaSessionId, Prefix};

use super::{CatalogEditor, Edited, Result, edit, require};
use crate::catalog::entry::Path;
use crate::catalog::error::CatalogError;
use crate::catalog::ident::{BrickId, PeerId, StartNumber};
use crate::catalog::member::{BrickRecord, Liveness, PeerRecord, Storage};
use crate::catalog::names;
use crate::catalog::placement::PlacementRange;
use crate::limits;

const BRICK: &str = "brick";
const PEER: &str = "peer server";

impl CatalogEditor {
    /// Adds a brick with a new store, under a number that no brick had before. The store keeps the number.
    ///
    /// # Errors
    /// [`CatalogError::Invalid`] for its addresses, [`CatalogError::TooMany`].
    pub async fn add_brick(&self, addresses: &[String], storage: Storage) -> Result<Edited<BrickRecord>> {
        names::check_addresses(addresses)?;
        edit!(self, |draft| {
            let bricks = draft.scan::<BrickRecord>(Prefix::new("bricks/")?).await?;
            check_member_limit("bricks", bricks.len())?;
            let id = draft.reserve_numbers("bricks", 1, u32::MAX.into()).await?;
            // It is at most `u32::MAX`.
            let brick = BrickRecord { id: BrickId(id as u32), addresses: addresses.to_vec(), storage, leaving: false };
            draft.put(&Path::Brick(brick.id), &brick)?;
            brick
        })
    }

    /// Sets the addresses of a brick.
    ///
    /// # Errors
    /// [`CatalogError::Missing`], [`CatalogError::Invalid`].
    pub async fn set_brick_addresses(&self, id: BrickId, addresses: &[String]) -> Result<Edited<BrickRecord>> {
        names::check_addresses(addresses)?;
        self.change_brick(id, |brick| brick.addresses = addresses.to_vec()).await
    }

    /// Removes the addresses of a brick, until it is started and has new ones.
    ///
    /// # Errors
    /// [`CatalogError::Missing`].
    pub async fn remove_brick_addresses(&self, id: BrickId) -> Result<Edited<BrickRecord>> {
        self.change_brick(id, |brick| brick.addresses.clear()).await
    }

    /// Sets whether a brick is being drained.
    ///
    /// # Errors
    /// [`CatalogError::Missing`].
    pub async fn set_brick_draining(&self, id: BrickId, leaving: bool) -> Result<Edited<BrickRecord>> {
        self.change_brick(id, |brick| brick.leaving = leaving).await
    }

    async fn change_brick(&self, id: BrickId, change: impl Fn(&mut BrickRecord)) -> Result<Edited<BrickRecord>> {
        edit!(self, |draft| {
            let mut brick: BrickRecord = require(draft.get(&Path::Brick(id)).await?, BRICK, id)?;
            change(&mut brick);
            draft.put(&Path::Brick(id), &brick)?;
            brick
        })
    }

    /// Removes a brick from the cluster and returns its last record.
    ///
    /// A brick that serves no logical node has no state that others need: transactions name logical nodes as participants, not
    /// bricks, and the state of a node (prepared records, outcomes, marks, bounds, leases) is durable at its new brick before a
    /// move ends.
    ///
    /// # Errors
    /// [`CatalogError::InUse`] if it serves logical nodes, if some move to it, or if it is alive.
    pub async fn remove_brick(&self, id: BrickId) -> Result<Edited<BrickRecord>> {
        edit!(self, |draft| {
            let brick = require(draft.get::<BrickRecord>(&Path::Brick(id)).await?, BRICK, id)?;
            let in_use = |by: String, remedy| CatalogError::InUse { what: BRICK, name: id.to_string(), by, remedy };
            // From here until the draft is written, no logical node can be assigned to the brick.
            draft.touch(&Path::PlacementMap).await?;
            let sheets = draft.scan::<PlacementRange>(Prefix::new("placement/")?).await?;
            let nodes = || sheets.iter().flat_map(|(_, sheet)| &sheet.nodes);
            let count = |count: usize| format!("{count} logical node{}", if count == 1 { "" } else { "s" });
            match nodes().filter(|placed| placed.brick == id).count() {
                0 => {}
                served => {
                    let by = format!("{} that it serves", count(served));
                    return Err(in_use(by, "drain it with `mortar remap --drain` first, while it is alive"));
                }
            }
            match nodes().filter(|placed| placed.destination() == id).count() {
                0 => {}
                coming => {
                    let by = format!("{} that {} to it", count(coming), if coming == 1 { "moves" } else { "move" });
                    return Err(in_use(by, "cancel the moves with `mortar remap --cancel` first"));
                }
            }
            check_not_alive(BRICK, id.0, draft.get(&Path::AliveBrick(id)).await?)?;
            draft.remove(&Path::Brick(id))?;
            draft.remove(&Path::Opening(id))?;
            brick
        })
    }

    /// Adds a peer server.
    ///
    /// # Errors
    /// As for [`add_brick`](Self::add_brick).
    pub async fn add_peer(&self, addresses: &[String]) -> Result<Edited<PeerRecord>> {
        edit!(self, |draft| {
            let peers = draft.scan::<PeerRecord>(Prefix::new("peers/")?).await?;
            check_member_limit("peer servers", peers.len())?;
            let id = draft.reserve_numbers("peers", 1, u32::MAX.into()).await?;
            // It is at most `u32::MAX`.
            let peer = PeerRecord { id: PeerId(id as u32), addresses: addresses.to_vec() };
            draft.put(&Path::Peer(peer.id), &peer)?;
            peer
        })
    }

    /// Sets the addresses of a peer server.
    ///
    /// # Errors
    /// [`CatalogError::Missing`], [`CatalogError::Invalid`].
    pub async fn set_peer_addresses(&self, id: PeerId, addresses: &[String]) -> Result<Edited<PeerRecord>> {
        edit!(self, |draft| {
            let mut peer: PeerRecord = require(draft.get(&Path::Peer(id)).await?, PEER, id)?;
            peer.addresses = addresses.to_vec();
            draft.put(&Path::Peer(id), &peer)?;
            peer
        })
    }

    /// Removes a peer server from the cluster and returns its last record. It has no durable state; its clients use other peer
    /// servers.
    ///
    /// # Errors
    /// [`CatalogError::InUse`] if it is alive.
    pub async fn remove_peer(&self, id: PeerId) -> Result<Edited<PeerRecord>> {
        edit!(self, |draft| {
            let peer = require(draft.get::<PeerRecord>(&Path::Peer(id)).await?, PEER, id)?;
            check_not_alive(PEER, id.0, draft.get(&Path::AlivePeer(id)).await?)?;
            draft.remove(&Path::Peer(id))?;
            peer
        })
    }

    /// Announces that a brick is alive, for as long as the session lasts.
    ///
    /// # Errors
    /// [`CatalogError::Superseded`] if a later start of it is announced; [`CatalogError::Missing`]; with
    /// [`CatalogError::Store`] and the kind `NotFound` if the session has ended.
    pub async fn announce_brick(&self, id: BrickId, start: StartNumber, session: MetaSessionId) -> Result<Edited<()>> {
        self.announce_brick_as(id, &Liveness::of(start), session).await
    }

    /// The same of a brick that may refuse to serve.
    ///
    /// # Errors
    /// As for [`announce_brick`](Self::announce_brick).
    pub async fn announce_brick_as(
        &self,
        id: BrickId,
        liveness: &Liveness,
        session: MetaSessionId,
    ) -> Result<Edited<()>> {
        edit!(self, |draft| {
            require(draft.get::<BrickRecord>(&Path::Brick(id)).await?, BRICK, id)?;
            let path = Path::AliveBrick(id);
            check_start(BRICK, id.0, liveness.start, draft.get(&path).await?)?;
            draft.attach(&path, liveness, session)?;
        })
    }

    /// Announces that a peer server is alive, for as long as the session lasts.
    ///
    /// # Errors
    /// As for [`announce_brick`](Self::announce_brick).
    pub async fn announce_peer(&self, id: PeerId, start: StartNumber, session: MetaSessionId) -> Result<Edited<()>> {
        edit!(self, |draft| {
            require(draft.get::<PeerRecord>(&Path::Peer(id)).await?, PEER, id)?;
            let path = Path::AlivePeer(id);
            check_start(PEER, id.0, start, draft.get(&path).await?)?;
            draft.attach(&path, &Liveness::of(start), session)?;
        })
    }
}

fn check_member_limit(what: &'static str, count: usize) -> Result<()> {
    if count >= limits::MEMBERS {
        return Err(CatalogError::TooMany { what, limit: limits::MEMBERS as u64 });
    }
    Ok(())
}

/// A live server must keep its entry.
fn check_not_alive(what: &'static str, id: u32, alive: Option<Liveness>) -> Result<()> {
    let Some(_) = alive else { return Ok(()) };
    let (name, by) = (id.to_string(), "its own process".to_owned());
    let remedy = "stop it first; a process that was killed still counts as alive for some seconds";
    Err(CatalogError::InUse { what, name, by, remedy })
}

fn check_start(what: &'static str, id: u32, start: StartNumber, alive: Option<Liveness>) -> Result<()> {
    match alive {
        Some(Liveness { start: newer, .. }) if newer > start => {
            Err(CatalogError::Superseded { what, id, start: start.0, newer: newer.0 })
        }
        _ => Ok(()),
    }
}
