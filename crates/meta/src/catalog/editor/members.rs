//! Bricks and peer servers.

use crate::{Prefix, SessionId};

use super::{Edited, Editor, Result, edit, found};
use crate::catalog::error::CatalogError;
use crate::catalog::ident::{BrickId, PeerId, StartNumber};
use crate::catalog::limits;
use crate::catalog::member::{Alive, Brick, Peer, Storage};
use crate::catalog::path::Path;
use crate::catalog::placement::Sheet;

const BRICK: &str = "brick";
const PEER: &str = "peer server";

impl Editor {
    /// Enters a new brick, whose store is new too. It gets a number that no brick had before; its store keeps it.
    ///
    /// # Errors
    /// [`CatalogError::Invalid`] for its addresses, [`CatalogError::TooMany`].
    pub async fn add_brick(&self, addresses: &[String], storage: Storage) -> Result<Edited<Brick>> {
        edit!(self, |draft| {
            let bricks = draft.scan::<Brick>(Prefix::new("bricks/")?).await?;
            check_count("bricks", bricks.len())?;
            let id = draft.number("bricks", 1, u32::MAX.into()).await?;
            // It is at most `u32::MAX`.
            let brick = Brick { id: BrickId(id as u32), addresses: addresses.to_vec(), storage, leaving: false };
            draft.put(&Path::Brick(brick.id), &brick)?;
            brick
        })
    }

    /// Says where a brick listens from now on.
    ///
    /// # Errors
    /// [`CatalogError::Missing`], [`CatalogError::Invalid`].
    pub async fn set_brick_addresses(&self, id: BrickId, addresses: &[String]) -> Result<Edited<Brick>> {
        self.change_brick(id, |brick| brick.addresses = addresses.to_vec()).await
    }

    /// Says whether a brick shall be emptied.
    ///
    /// # Errors
    /// [`CatalogError::Missing`].
    pub async fn set_brick_leaving(&self, id: BrickId, leaving: bool) -> Result<Edited<Brick>> {
        self.change_brick(id, |brick| brick.leaving = leaving).await
    }

    async fn change_brick(&self, id: BrickId, change: impl Fn(&mut Brick)) -> Result<Edited<Brick>> {
        edit!(self, |draft| {
            let mut brick: Brick = found(draft.get(&Path::Brick(id)).await?, BRICK, id)?;
            change(&mut brick);
            draft.put(&Path::Brick(id), &brick)?;
            brick
        })
    }

    /// Takes a brick out of the cluster.
    ///
    /// # Errors
    /// [`CatalogError::InUse`] if it serves logical nodes, or is to, or lives.
    pub async fn remove_brick(&self, id: BrickId) -> Result<Edited<()>> {
        edit!(self, |draft| {
            found(draft.get::<Brick>(&Path::Brick(id)).await?, BRICK, id)?;
            let in_use = |by: String, remedy| CatalogError::InUse { what: BRICK, name: id.to_string(), by, remedy };
            if draft.get::<Alive>(&Path::AliveBrick(id)).await?.is_some() {
                return Err(in_use("its own process".to_owned(), "end that first"));
            }
            draft.touch(&Path::Map).await?;
            let sheets = draft.scan::<Sheet>(Prefix::new("placement/")?).await?;
            let nodes = sheets.iter().flat_map(|(_, sheet)| &sheet.nodes);
            let served = nodes.filter(|placed| placed.brick == id || placed.destination() == id).count();
            if served > 0 {
                return Err(in_use(format!("{served} logical nodes"), "move them to other bricks first"));
            }
            draft.remove(&Path::Brick(id))?;
        })
    }

    /// Enters a new peer server.
    ///
    /// # Errors
    /// As for [`add_brick`](Self::add_brick).
    pub async fn add_peer(&self, addresses: &[String]) -> Result<Edited<Peer>> {
        edit!(self, |draft| {
            let peers = draft.scan::<Peer>(Prefix::new("peers/")?).await?;
            check_count("peer servers", peers.len())?;
            let id = draft.number("peers", 1, u32::MAX.into()).await?;
            // It is at most `u32::MAX`.
            let peer = Peer { id: PeerId(id as u32), addresses: addresses.to_vec() };
            draft.put(&Path::Peer(peer.id), &peer)?;
            peer
        })
    }

    /// Says where a peer server listens from now on.
    ///
    /// # Errors
    /// [`CatalogError::Missing`], [`CatalogError::Invalid`].
    pub async fn set_peer_addresses(&self, id: PeerId, addresses: &[String]) -> Result<Edited<Peer>> {
        edit!(self, |draft| {
            let mut peer: Peer = found(draft.get(&Path::Peer(id)).await?, PEER, id)?;
            peer.addresses = addresses.to_vec();
            draft.put(&Path::Peer(id), &peer)?;
            peer
        })
    }

    /// Takes a peer server out of the cluster.
    ///
    /// # Errors
    /// [`CatalogError::InUse`] if it lives.
    pub async fn remove_peer(&self, id: PeerId) -> Result<Edited<()>> {
        edit!(self, |draft| {
            found(draft.get::<Peer>(&Path::Peer(id)).await?, PEER, id)?;
            if draft.get::<Alive>(&Path::AlivePeer(id)).await?.is_some() {
                let (name, by) = (id.to_string(), "its own process".to_owned());
                return Err(CatalogError::InUse { what: PEER, name, by, remedy: "end that first" });
            }
            draft.remove(&Path::Peer(id))?;
        })
    }

    /// Says that a brick lives, as long as this session does.
    ///
    /// # Errors
    /// [`CatalogError::Superseded`] if a later start of it has said so; [`CatalogError::Missing`]; with
    /// [`CatalogError::Store`] and the kind `NotFound` if the session has ended.
    pub async fn announce_brick(&self, id: BrickId, start: StartNumber, session: SessionId) -> Result<Edited<()>> {
        edit!(self, |draft| {
            found(draft.get::<Brick>(&Path::Brick(id)).await?, BRICK, id)?;
            let path = Path::AliveBrick(id);
            check_start(BRICK, id.0, start, draft.get(&path).await?)?;
            draft.attach(&path, &Alive { start }, session)?;
        })
    }

    /// Says that a peer server lives, as long as this session does.
    ///
    /// # Errors
    /// As for [`announce_brick`](Self::announce_brick).
    pub async fn announce_peer(&self, id: PeerId, start: StartNumber, session: SessionId) -> Result<Edited<()>> {
        edit!(self, |draft| {
            found(draft.get::<Peer>(&Path::Peer(id)).await?, PEER, id)?;
            let path = Path::AlivePeer(id);
            check_start(PEER, id.0, start, draft.get(&path).await?)?;
            draft.attach(&path, &Alive { start }, session)?;
        })
    }
}

fn check_count(what: &'static str, count: usize) -> Result<()> {
    if count >= limits::MEMBERS {
        return Err(CatalogError::TooMany { what, limit: limits::MEMBERS as u64 });
    }
    Ok(())
}

fn check_start(what: &'static str, id: u32, start: StartNumber, alive: Option<Alive>) -> Result<()> {
    match alive {
        Some(Alive { start: newer }) if newer > start => {
            Err(CatalogError::Superseded { what, id, start: start.0, newer: newer.0 })
        }
        _ => Ok(()),
    }
}
