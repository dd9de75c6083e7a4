//! The placement map: which brick serves each logical node. Also computes even placements.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{ContentId, NodeId, SpaceId};
use serde::{Deserialize, Serialize};

use super::entry::Record;
use super::error::CatalogError;
use super::ident::{self, BrickId, Epoch};
use crate::limits;
use crate::plant::{Bug, planted};

/// Logical nodes in one range of the map.
pub(super) const NODES_PER_RANGE: u32 = 64;
/// The default minimum of logical nodes of a space.
const MIN_NODES: u32 = 8;
/// The default number of logical nodes for each brick.
const NODES_PER_BRICK: u32 = 4;

/// The placement of up to 64 consecutive logical nodes of a space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementRange {
    /// The first node.
    #[serde(with = "ident::node")]
    pub first: NodeId,
    /// The placement of each node, in order.
    pub nodes: Vec<NodePlacement>,
}

/// The placement of a logical node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePlacement {
    /// The brick that serves it.
    pub brick: BrickId,
    /// The epoch since which the node is served there, or sealed. Requests are admitted by it. Copying does not change it.
    pub epoch: Epoch,
    /// The number of moves so far, which is part of the versions of its pages.
    pub moves: u32,
    /// The current move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving: Option<ActiveMove>,
}

/// A move from the brick that serves a logical node to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveMove {
    /// The brick that will serve the node.
    pub to: BrickId,
    /// The phase of the move.
    pub phase: MovePhase,
}

/// The phase of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MovePhase {
    /// The new brick copies while the old one serves.
    Copying,
    /// The old brick accepts no requests and hands the node over; no brick serves it.
    Sealed,
}

/// A move that would spread a space more evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlannedMove {
    /// The logical node.
    pub node: NodeId,
    /// The brick that serves it.
    pub from: BrickId,
    /// The brick that is to serve it.
    pub to: BrickId,
}

impl Record for PlacementRange {
    fn check(&self) -> Result<(), CatalogError> {
        let count = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let fits = self.first.0.checked_add(count).is_some_and(|end| end <= NodeId::MAX.0);
        if !(1..=NODES_PER_RANGE).contains(&count) || !fits {
            return Err(CatalogError::invalid(
                "a range of the placement map",
                self.first.0,
                format!("it has 1 to {NODES_PER_RANGE} nodes"),
            ));
        }
        if let Some(node) = self.nodes.iter().find(|node| node.moves > ContentId::MAX_MOVES) {
            let what = format!("a node has moved {} times, and can {} times", node.moves, ContentId::MAX_MOVES);
            return Err(CatalogError::invalid("a range of the placement map", self.first.0, what));
        }
        Ok(())
    }
}

/// The default number of logical nodes of a space that is created with this number of live bricks. It suffices for several times
/// as many bricks. It is a power of two, so the nodes can be spread evenly over every smaller power of two.
#[must_use]
pub fn default_nodes(bricks: usize) -> u32 {
    let bricks = u32::try_from(bricks).unwrap_or(u32::MAX);
    bricks.saturating_mul(NODES_PER_BRICK).clamp(MIN_NODES, limits::NODES).next_power_of_two().min(limits::NODES)
}

/// Assigns new logical nodes to bricks. The numbers of nodes differ by at most one; bricks that serve fewer nodes so far get more.
/// Consecutive nodes go to different bricks. Empty if there are no bricks.
pub(super) fn assign(nodes: u32, bricks: &BTreeSet<BrickId>, load: &BTreeMap<BrickId, usize>) -> Vec<BrickId> {
    let mut order: Vec<BrickId> = bricks.iter().copied().collect();
    order.sort_by_key(|brick| {
        (if planted(Bug::LoadIgnored) { 0 } else { load.get(brick).copied().unwrap_or(0) }, *brick)
    });
    order.iter().copied().cycle().take(if order.is_empty() { 0 } else { nodes as usize }).collect()
}

/// A greater number of moves, if the identifiers of contents have room for it.
fn more_moves(moves: u32, more: u32) -> Option<u32> {
    moves.checked_add(more).filter(|moves| *moves <= ContentId::MAX_MOVES)
}

/// The smallest set of moves after which the numbers of a space's logical nodes at these bricks differ by at most one. All nodes
/// at other bricks move. `load` is the total number of nodes at each brick; it decides which bricks get one more, and is updated
/// for the next space.
#[must_use]
pub fn spread(
    served: &BTreeMap<BrickId, Vec<NodeId>>,
    bricks: &BTreeSet<BrickId>,
    load: &mut BTreeMap<BrickId, usize>,
) -> Vec<PlannedMove> {
    if bricks.is_empty() {
        return Vec::new();
    }
    let nodes: usize = served.values().map(Vec::len).sum();
    let (each, more) = (nodes / bricks.len(), nodes % bricks.len());
    // Bricks above their share keep the remainder, so that fewest nodes move; then those with the lowest load.
    let count = |brick: &BrickId| served.get(brick).map_or(0, Vec::len);
    let mut order: Vec<BrickId> = bricks.iter().copied().collect();
    order.sort_by_key(|brick| (count(brick) <= each, load.get(brick).copied().unwrap_or(0), *brick));
    let target: BTreeMap<BrickId, usize> =
        order.iter().enumerate().map(|(at, brick)| (*brick, each + usize::from(at < more))).collect();

    let mut wanting: Vec<(BrickId, usize)> = Vec::new();
    for brick in &order {
        wanting.push((*brick, target[brick].saturating_sub(count(brick))));
    }
    let mut moves = Vec::new();
    let mut wanting = wanting.into_iter().flat_map(|(brick, count)| std::iter::repeat_n(brick, count));
    for (from, nodes) in served {
        let kept = target.get(from).copied().unwrap_or(0);
        for node in nodes.iter().skip(kept) {
            let Some(to) = wanting.next() else { break };
            if let Some(load) = load.get_mut(from) {
                *load = load.saturating_sub(1);
            }
            *load.entry(to).or_default() += 1;
            moves.push(PlannedMove { node: *node, from: *from, to });
        }
    }
    moves
}

/// The placement map.
#[derive(Clone, Debug, Default)]
pub struct PlacementMap {
    pub(super) epoch: Epoch,
    /// By the first node of each.
    pub(super) ranges: BTreeMap<u32, (SpaceId, u32, Arc<PlacementRange>)>,
}

impl PlacementMap {
    /// The epoch of the last change in it.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The placement of a logical node.
    #[must_use]
    pub fn lookup(&self, node: NodeId) -> Option<&NodePlacement> {
        let (first, (_, _, sheet)) = self.ranges.range(..=node.0).next_back()?;
        sheet.nodes.get((node.0 - first) as usize)
    }

    /// The space of a logical node, and the number of the range that contains it.
    #[must_use]
    pub(super) fn range_of(&self, node: NodeId) -> Option<(SpaceId, u32)> {
        self.lookup(node)?;
        let (_, (space, part, _)) = self.ranges.range(..=node.0).next_back()?;
        Some((*space, *part))
    }

    /// All logical nodes, by ascending number.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &NodePlacement)> {
        self.ranges.values().flat_map(|(_, _, sheet)| {
            sheet.nodes.iter().enumerate().map(|(at, placed)| (NodeId(sheet.first.0 + at as u32), placed))
        })
    }

    /// The number of logical nodes at each brick, with moving nodes counted at their destination.
    #[must_use]
    pub fn load(&self) -> BTreeMap<BrickId, usize> {
        let mut load = BTreeMap::new();
        for (_, placed) in self.nodes() {
            *load.entry(placed.destination()).or_default() += 1;
        }
        load
    }
}

/// Why a move cannot go the next step: the state of the node, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveStateError {
    /// The state of the node.
    pub state: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

type Step = std::result::Result<(), MoveStateError>;

fn wrong(state: &'static str, remedy: &'static str) -> Step {
    Err(MoveStateError { state, remedy })
}

/// The steps of a move (M1). Requests are admitted by the epoch of their node, so it changes when the node is sealed, unsealed, or
/// served by another brick; copying does not change it. `epoch` is the epoch of the change.
///
/// ```text
///               begin_move               seal                 finish_move
///   served ───────────────▶ copying ───────────────▶ sealed ───────────────▶ served elsewhere
///      ▲                     │    ▲                    │ │
///      │      cancel_move    │    └────── unseal ──────┘ │
///      └─────────────────────┴───────── cancel_move ─────┘
/// ```
impl NodePlacement {
    /// The brick that serves the node when its move is finished.
    #[must_use]
    pub fn destination(&self) -> BrickId {
        self.moving.map_or(self.brick, |moving| moving.to)
    }

    /// The new brick starts to copy.
    ///
    /// # Errors
    /// If the node is moving, or is at that brick.
    pub fn begin_move(&mut self, to: BrickId) -> Step {
        match self.moving {
            None if self.brick != to => {
                self.moving = Some(ActiveMove { to, phase: MovePhase::Copying });
                Ok(())
            }
            None => wrong("at that brick already", "there is nothing to do"),
            Some(_) => wrong("moving already", "wait until it has moved, or cancel the move"),
        }
    }

    /// The old brick accepts no new requests and hands the node over to this brick.
    ///
    /// # Errors
    /// If the node does not move there, or is sealed.
    pub fn seal(&mut self, to: BrickId, epoch: Epoch) -> Step {
        match &mut self.moving {
            Some(moving) if moving.to == to && moving.phase == MovePhase::Copying => {
                moving.phase = MovePhase::Sealed;
                if !planted(Bug::SealKeepsEpoch) {
                    self.epoch = epoch;
                }
                Ok(())
            }
            Some(moving) if moving.to == to => wrong("sealed already", "there is nothing to do"),
            _ => wrong("not moving to that brick", "begin a move first"),
        }
    }

    /// The old brick serves again while the new one continues to copy.
    ///
    /// # Errors
    /// If the node is not sealed as of epoch `sealed`.
    pub fn unseal(&mut self, sealed: Epoch, epoch: Epoch) -> Step {
        match &mut self.moving {
            Some(moving) if moving.phase == MovePhase::Sealed && self.epoch == sealed => {
                moving.phase = MovePhase::Copying;
                self.epoch = epoch;
                Ok(())
            }
            _ => wrong("not sealed under that epoch", "there is nothing to do"),
        }
    }

    /// The new brick has the whole state as of the seal, and serves. A hand-over that belongs to an earlier seal does not count.
    ///
    /// # Errors
    /// If the node is not sealed as of epoch `sealed`, or has moved too often.
    pub fn finish_move(&mut self, sealed: Epoch, epoch: Epoch) -> Step {
        match self.moving {
            Some(ActiveMove { to, phase: MovePhase::Sealed })
                if self.epoch == sealed || planted(Bug::StaleSealFinishes) =>
            {
                let more = if planted(Bug::MoveNotCounted) { 0 } else { 1 };
                let Some(moves) = more_moves(self.moves, more) else {
                    return wrong("out of move numbers", "copy its objects into another space");
                };
                *self = Self { brick: to, epoch, moves, moving: None };
                Ok(())
            }
            _ => wrong("not sealed under that epoch", "seal it first"),
        }
    }

    /// The brick lost changes: its copies elsewhere do not count any more.
    ///
    /// # Errors
    /// If the node moves, or is served by another brick.
    pub fn count_loss(&mut self, brick: BrickId, epoch: Epoch) -> Step {
        if self.brick != brick || self.moving.is_some() {
            return wrong("moving, or served by another brick", "end the move first");
        }
        let Some(moves) = more_moves(self.moves, 1) else {
            return wrong("out of move numbers", "copy its objects into another space");
        };
        (self.moves, self.epoch) = (moves, epoch);
        Ok(())
    }

    /// The old brick serves as before, and what it has handed over is ignored.
    ///
    /// # Errors
    /// If the node does not move.
    pub fn cancel_move(&mut self, epoch: Epoch) -> Step {
        match self.moving.take() {
            Some(ActiveMove { phase: MovePhase::Copying, .. }) => Ok(()),
            Some(ActiveMove { phase: MovePhase::Sealed, .. }) => {
                self.epoch = epoch;
                Ok(())
            }
            None => wrong("not moving", "there is nothing to do"),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn bricks(ids: impl IntoIterator<Item = u32>) -> BTreeSet<BrickId> {
        ids.into_iter().map(BrickId).collect()
    }

    fn served_nodes(counts: &[(u32, u32)]) -> BTreeMap<BrickId, Vec<NodeId>> {
        let mut next = 0;
        let mut take = |count: u32| {
            next += count;
            (next - count..next).map(NodeId).collect()
        };
        counts.iter().map(|(brick, count)| (BrickId(*brick), take(*count))).collect()
    }

    fn counts_after(mut served: BTreeMap<BrickId, Vec<NodeId>>, moves: &[PlannedMove]) -> Vec<(u32, usize)> {
        for one in moves {
            let from = served.get_mut(&one.from).unwrap();
            assert!(from.contains(&one.node), "{one:?}");
            from.retain(|node| *node != one.node);
            served.entry(one.to).or_default().push(one.node);
        }
        served.iter().map(|(brick, nodes)| (brick.0, nodes.len())).collect()
    }

    #[test]
    fn default_number_of_nodes_is_a_power_of_two_above_the_number_of_bricks() {
        let counts: Vec<u32> = [0, 1, 2, 3, 4, 5, 64, 1 << 20, usize::MAX].into_iter().map(default_nodes).collect();
        assert_eq!(counts, [8, 8, 8, 16, 16, 32, 256, 4096, 4096]);
    }

    #[test]
    pub(crate) fn new_nodes_go_round_and_begin_where_there_is_least() {
        let load = [(BrickId(1), 5), (BrickId(2), 3)].into();
        let assigned: Vec<u32> = assign(8, &bricks([1, 2, 3]), &load).iter().map(|brick| brick.0).collect();
        assert_eq!(assigned, [3, 2, 1, 3, 2, 1, 3, 2]);
        assert!(assign(8, &bricks([]), &load).is_empty());
    }

    #[test]
    fn spreading_moves_as_few_nodes_as_possible() {
        for (counts, alive, expected, moved) in [
            (&[(1, 4), (2, 4)][..], &[1, 2][..], &[(1, 4), (2, 4)][..], 0),
            (&[(1, 4), (2, 4)], &[1, 2, 3, 4], &[(1, 2), (2, 2), (3, 2), (4, 2)], 4),
            (&[(1, 3), (2, 5)], &[1, 2, 3], &[(1, 3), (2, 3), (3, 2)], 2),
            (&[(1, 5), (2, 3)], &[2, 3], &[(1, 0), (2, 4), (3, 4)], 5),
            (&[(1, 1)], &[1, 2, 3], &[(1, 1)], 0),
            (&[(1, 2)], &[], &[(1, 2)], 0),
        ] {
            let served = served_nodes(counts);
            let mut load = served.iter().map(|(brick, nodes)| (*brick, nodes.len())).collect();
            let moves = spread(&served, &bricks(alive.iter().copied()), &mut load);
            assert_eq!(moves.len(), moved, "{counts:?} over {alive:?}");
            assert_eq!(counts_after(served, &moves), expected, "{counts:?} over {alive:?}");
        }
    }

    #[test]
    fn remaining_nodes_go_to_the_bricks_with_the_lowest_load() {
        let served = served_nodes(&[(1, 7)]);
        let mut load = [(BrickId(1), 7), (BrickId(2), 90), (BrickId(3), 4)].into();
        let moves = spread(&served, &bricks([1, 2, 3]), &mut load);
        assert_eq!(counts_after(served, &moves), [(1, 3), (2, 2), (3, 2)]);
        let served = served_nodes(&[(9, 7)]);
        let moves = spread(&served, &bricks([1, 2, 3]), &mut [(BrickId(1), 50), (BrickId(2), 90)].into());
        assert_eq!(counts_after(served, &moves), [(1, 2), (2, 2), (3, 3), (9, 0)]);
    }
}
