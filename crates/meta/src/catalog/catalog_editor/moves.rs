//! Moves of logical nodes between bricks (M1).
//!
//! The steps are those of [`NodePlacement`].

use model::NodeId;

use super::spaces::read_placement_map;
use super::{CatalogEditor, Edited, Result, edit, require};
use crate::catalog::entry::Path;
use crate::catalog::error::CatalogError;
use crate::catalog::ident::{BrickId, Epoch};
use crate::catalog::member::BrickRecord;
use crate::catalog::placement::{MoveStateError, NodePlacement, PlacementRange};

impl CatalogEditor {
    /// Begins a move of a logical node: the new brick starts to copy.
    ///
    /// # Errors
    /// [`CatalogError::WrongMoveState`] if it is moving, or is at that brick; [`CatalogError::Missing`];
    /// [`CatalogError::Invalid`] if the brick is being drained, or has another kind of storage than the current one.
    pub async fn begin_move(&self, node: NodeId, to: BrickId) -> Result<Edited<NodePlacement>> {
        self.change_placement(node, Some(to), |placed, _| placed.begin_move(to)).await
    }

    /// Seals a logical node that moves to this brick: the old brick accepts no new requests and hands the node over.
    ///
    /// # Errors
    /// [`CatalogError::WrongMoveState`] if it does not move there; [`CatalogError::Missing`].
    pub async fn seal(&self, node: NodeId, to: BrickId) -> Result<Edited<NodePlacement>> {
        self.change_placement(node, None, |placed, epoch| placed.seal(to, epoch)).await
    }

    /// Reverts a seal: the old brick serves again while the new one continues to copy.
    ///
    /// # Errors
    /// [`CatalogError::WrongMoveState`] if the node is not sealed as of this epoch; [`CatalogError::Missing`].
    pub async fn unseal(&self, node: NodeId, sealed: Epoch) -> Result<Edited<NodePlacement>> {
        self.change_placement(node, None, |placed, epoch| placed.unseal(sealed, epoch)).await
    }

    /// Finishes a move: the new brick has the whole state as of the seal, and serves.
    ///
    /// # Errors
    /// [`CatalogError::WrongMoveState`] if the node is not sealed as of this epoch; [`CatalogError::Missing`].
    pub async fn finish_move(&self, node: NodeId, sealed: Epoch) -> Result<Edited<NodePlacement>> {
        self.change_placement(node, None, |placed, epoch| placed.finish_move(sealed, epoch)).await
    }

    /// Cancels a move: the old brick serves as before, and what it has handed over is ignored.
    ///
    /// # Errors
    /// [`CatalogError::WrongMoveState`] if it does not move; [`CatalogError::Missing`].
    pub async fn cancel_move(&self, node: NodeId) -> Result<Edited<NodePlacement>> {
        self.change_placement(node, None, |placed, epoch| placed.cancel_move(epoch)).await
    }

    /// Counts a move of a logical node whose brick lost changes: copies of its pages with earlier versions are not current any more.
    ///
    /// # Errors
    /// [`CatalogError::WrongMoveState`] if it moves, or is served by another brick; [`CatalogError::Missing`].
    pub async fn count_loss(&self, node: NodeId, brick: BrickId) -> Result<Edited<NodePlacement>> {
        self.change_placement(node, None, |placed, epoch| placed.count_loss(brick, epoch)).await
    }

    async fn change_placement(
        &self,
        node: NodeId,
        to: Option<BrickId>,
        change: impl Fn(&mut NodePlacement, Epoch) -> std::result::Result<(), MoveStateError>,
    ) -> Result<Edited<NodePlacement>> {
        let name = &format!("{:x}", node.0);
        let wrong = |MoveStateError { state, remedy }| {
            let state = state.to_owned();
            CatalogError::WrongMoveState { node: node.0, state, remedy }
        };
        edit!(self, |draft| {
            let epoch = Epoch(draft.touch(&Path::PlacementMap).await?);
            let (space, part) = require(read_placement_map(&draft).await?.range_of(node), "logical node", name)?;
            let path = Path::PlacementRange(space, part);
            let mut sheet: PlacementRange = require(draft.get(&path).await?, "logical node", name)?;
            let index = node.0.checked_sub(sheet.first.0).map(|index| index as usize);
            let placed = require(index.and_then(|index| sheet.nodes.get_mut(index)), "logical node", name)?;
            if let Some(to) = to {
                let new: BrickRecord = require(draft.get(&Path::Brick(to)).await?, "brick", to)?;
                if new.leaving {
                    return Err(CatalogError::brick_draining(to));
                }
                let old: Option<BrickRecord> = draft.get(&Path::Brick(placed.brick)).await?;
                if old.is_some_and(|old| old.storage != new.storage) {
                    let why = format!("it keeps objects {}, unlike the node's", new.storage.adverb());
                    return Err(CatalogError::invalid("the new brick of a logical node", to, why));
                }
            }
            change(placed, epoch).map_err(wrong)?;
            let placed = placed.clone();
            draft.put(&path, &sheet)?;
            placed
        })
    }
}
