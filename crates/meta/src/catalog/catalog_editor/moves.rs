//! Moves of logical nodes between bricks (M1).
//!
//! ```text
//!               begin_move               seal                 finish_move
//!   served ───────────────▶ copying ───────────────▶ sealed ───────────────▶ served elsewhere
//!      ▲                     │    ▲                    │ │
//!      │      cancel_move    │    └────── unseal ──────┘ │
//!      └─────────────────────┴───────── cancel_move ─────┘
//! ```
//!
//! Requests are admitted by the epoch of their logical node. The epoch changes when a node is sealed, unsealed, or served by another
//! brick; copying does not change it. The epoch also identifies a seal: a move can be finished only with the epoch of the current
//! seal, so a hand-over that belongs to an earlier seal is refused.

use model::NodeId;

use super::spaces::read_placement_map;
use super::{CatalogEditor, Edited, Result, edit, require};
use crate::catalog::entry::Path;
use crate::catalog::error::CatalogError;
use crate::catalog::ident::{BrickId, Epoch};
use crate::catalog::member::BrickRecord;
use crate::catalog::placement::{ActiveMove, MovePhase, NodePlacement, PlacementRange};
use crate::plant::{Bug, planted};

impl CatalogEditor {
    /// Begins a move of a logical node: the new brick starts to copy.
    ///
    /// # Errors
    /// [`CatalogError::WrongMoveState`] if it is moving, or is at that brick; [`CatalogError::Missing`];
    /// [`CatalogError::Invalid`] if the brick is being drained, or has another kind of storage than the current one.
    pub async fn begin_move(&self, node: NodeId, to: BrickId) -> Result<Edited<NodePlacement>> {
        self.change_placement(node, Some(to), |placed, _, state| match placed.moving {
            None if placed.brick != to => {
                placed.moving = Some(ActiveMove { to, phase: MovePhase::Copying });
                Ok(())
            }
            None => Err(state("at that brick already", "there is nothing to do")),
            Some(_) => Err(state("moving already", "wait until it has moved, or cancel the move")),
        })
        .await
    }

    /// Seals a logical node that moves to this brick: the old brick accepts no new requests and hands the node over.
    ///
    /// # Errors
    /// [`CatalogError::WrongMoveState`] if it does not move there; [`CatalogError::Missing`].
    pub async fn seal(&self, node: NodeId, to: BrickId) -> Result<Edited<NodePlacement>> {
        self.change_placement(node, None, |placed, epoch, state| match &mut placed.moving {
            Some(moving) if moving.to == to && moving.phase == MovePhase::Copying => {
                moving.phase = MovePhase::Sealed;
                if !planted(Bug::SealKeepsEpoch) {
                    placed.epoch = epoch;
                }
                Ok(())
            }
            Some(moving) if moving.to == to => Err(state("sealed already", "there is nothing to do")),
            _ => Err(state("not moving to that brick", "begin a move first")),
        })
        .await
    }

    /// Reverts a seal: the old brick serves again while the new one continues to copy.
    ///
    /// # Errors
    /// [`CatalogError::WrongMoveState`] if the node is not sealed as of this epoch; [`CatalogError::Missing`].
    pub async fn unseal(&self, node: NodeId, sealed: Epoch) -> Result<Edited<NodePlacement>> {
        self.change_placement(node, None, |placed, epoch, state| match &mut placed.moving {
            Some(moving) if moving.phase == MovePhase::Sealed && placed.epoch == sealed => {
                moving.phase = MovePhase::Copying;
                placed.epoch = epoch;
                Ok(())
            }
            _ => Err(state("not sealed under that epoch", "there is nothing to do")),
        })
        .await
    }

    /// Finishes a move: the new brick has the whole state as of the seal, and serves.
    ///
    /// # Errors
    /// [`CatalogError::WrongMoveState`] if the node is not sealed as of this epoch; [`CatalogError::Missing`].
    pub async fn finish_move(&self, node: NodeId, sealed: Epoch) -> Result<Edited<NodePlacement>> {
        self.change_placement(node, None, |placed, epoch, state| match placed.moving {
            Some(ActiveMove { to, phase: MovePhase::Sealed })
                if placed.epoch == sealed || planted(Bug::StaleSealFinishes) =>
            {
                placed.brick = to;
                placed.moving = None;
                let more = if planted(Bug::MoveNotCounted) { 0 } else { 1 };
                placed.moves = placed
                    .moves
                    .checked_add(more)
                    .ok_or_else(|| state("out of move numbers", "copy its objects into another space"))?;
                placed.epoch = epoch;
                Ok(())
            }
            _ => Err(state("not sealed under that epoch", "seal it first")),
        })
        .await
    }

    /// Cancels a move: the old brick serves as before, and what it has handed over is ignored.
    ///
    /// # Errors
    /// [`CatalogError::WrongMoveState`] if it does not move; [`CatalogError::Missing`].
    pub async fn cancel_move(&self, node: NodeId) -> Result<Edited<NodePlacement>> {
        self.change_placement(node, None, |placed, epoch, state| match placed.moving.take() {
            Some(ActiveMove { phase: MovePhase::Copying, .. }) => Ok(()),
            Some(ActiveMove { phase: MovePhase::Sealed, .. }) => {
                placed.epoch = epoch;
                Ok(())
            }
            None => Err(state("not moving", "there is nothing to do")),
        })
        .await
    }

    async fn change_placement(
        &self,
        node: NodeId,
        to: Option<BrickId>,
        change: impl Fn(&mut NodePlacement, Epoch, &dyn Fn(&str, &'static str) -> CatalogError) -> Result<()>,
    ) -> Result<Edited<NodePlacement>> {
        let name = &format!("{:x}", node.0);
        let state =
            |state: &str, remedy| CatalogError::WrongMoveState { node: node.0, state: state.to_owned(), remedy };
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
            change(placed, epoch, &state)?;
            let placed = placed.clone();
            draft.put(&path, &sheet)?;
            placed
        })
    }
}
