//! Requests about the placement of logical nodes, as a type that is sent as JSON.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::NodeId;
use serde::Serialize;

use super::error::CatalogError;
use super::ident::BrickId;
use super::member::{BrickRecord, Liveness};
use super::placement::{MovePhase, NodePlacement, PlannedMove};
use super::{Catalog, CatalogEditor};
use crate::Revision;
use crate::plant::{Bug, planted};

/// A request about the placement of logical nodes, which are given by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveRequest {
    /// Show the placement of these nodes, or of all if the list is empty.
    Show {
        /// The logical nodes.
        nodes: Vec<u32>,
    },
    /// Move logical nodes to a brick.
    To {
        /// The logical nodes.
        nodes: Vec<u32>,
        /// The brick.
        brick: BrickId,
        /// Only report the moves.
        dry_run: bool,
    },
    /// Spread each space evenly over the live bricks that are not being drained.
    Spread {
        /// Only this space.
        space: Option<String>,
        /// Only report the moves.
        dry_run: bool,
    },
    /// Move all nodes away from a brick, which gets no new ones.
    Drain {
        /// The brick.
        brick: BrickId,
        /// Only report the moves.
        dry_run: bool,
    },
    /// Cancel moves.
    Cancel {
        /// Only those of these nodes, unless the list is empty.
        nodes: Vec<u32>,
        /// Only those away from this brick, which can then get nodes again.
        drain: Option<BrickId>,
    },
}

/// The answer to a [`MoveRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MoveAnswer {
    /// The nodes that were asked for, or that move.
    pub nodes: Vec<NodeState>,
    /// All bricks, if all nodes were asked for.
    pub bricks: Vec<BrickState>,
}

/// A brick.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BrickState {
    /// Its number.
    pub brick: BrickId,
    /// Its first address.
    pub address: String,
    /// Whether it is alive.
    pub alive: bool,
    /// Whether it is being drained.
    pub leaving: bool,
}

/// The placement of a logical node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeState {
    /// Its number.
    pub node: u32,
    /// Its space.
    pub space: String,
    /// The brick that serves it.
    pub brick: BrickId,
    /// The number of its moves so far.
    pub moves: u32,
    /// The brick that it moves to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<BrickId>,
    /// The phase of the move, if it has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<MovePhase>,
    /// The state of its last move, if the new brick was asked and knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrival: Option<MoveInState>,
}

/// The state of a move, as the new brick reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MoveInState {
    /// Copied rows.
    pub rows: u64,
    /// Bytes of these rows.
    pub bytes: u64,
    /// How long no brick served the node, in microseconds, if the move is finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_us: Option<u64>,
    /// Why the move does not proceed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl Catalog {
    fn node_state(&self, node: NodeId, placed: &NodePlacement) -> NodeState {
        NodeState {
            node: node.0,
            space: self.space_of(node).map(|space| space.name.clone()).unwrap_or_default(),
            brick: placed.brick,
            moves: placed.moves,
            to: placed.moving.map(|moving| moving.to),
            phase: placed.moving.map(|moving| moving.phase),
            arrival: None,
        }
    }

    /// The state of these logical nodes, or of all if the list is empty.
    fn node_states(&self, nodes: &[u32]) -> Result<Vec<NodeState>, CatalogError> {
        if nodes.is_empty() {
            return Ok(self.placement_map().nodes().map(|(node, placed)| self.node_state(node, placed)).collect());
        }
        nodes.iter().map(|node| Ok(self.node_state(NodeId(*node), self.require_placement(*node)?))).collect()
    }

    fn brick_states(&self) -> Vec<BrickState> {
        let state = |(brick, alive): (&Arc<BrickRecord>, Option<&Liveness>)| BrickState {
            brick: brick.id,
            address: brick.addresses.first().cloned().unwrap_or_default(),
            alive: alive.is_some(),
            leaving: brick.leaving,
        };
        self.bricks().map(state).collect()
    }

    fn require_placement(&self, node: u32) -> Result<&NodePlacement, CatalogError> {
        self.node_placement(NodeId(node)).ok_or_else(|| CatalogError::missing("logical node", format!("{node:x}")))
    }

    fn check_serving(&self, what: &'static str, brick: BrickId) -> Result<(), CatalogError> {
        let member = self.brick(brick).ok_or_else(|| CatalogError::missing("brick", brick))?;
        match &member.alive {
            Some(alive) if alive.serves() => Ok(()),
            Some(Liveness { refused, .. }) => {
                let why = refused.as_deref().unwrap_or_default();
                Err(CatalogError::invalid(what, brick, format!("it does not serve: {why}")))
            }
            None => Err(CatalogError::invalid(what, brick, "it is not alive: start it, then try again")),
        }
    }

    /// The moves of those of these logical nodes that are not at a brick and do not move to it.
    fn moves_to(&self, nodes: &[u32], to: BrickId) -> Result<Vec<PlannedMove>, CatalogError> {
        self.check_serving("the brick that logical nodes move to", to)?;
        if self.brick(to).and_then(|member| member.entry.as_ref()).is_some_and(|brick| brick.leaving) {
            return Err(CatalogError::brick_draining(to));
        }
        let mut moves = Vec::new();
        for node in BTreeSet::from_iter(nodes) {
            let placed = self.require_placement(*node)?;
            match placed.moving {
                Some(moving) if moving.to != to => {
                    let state = format!("moving to brick {}", moving.to);
                    return Err(CatalogError::WrongMoveState {
                        node: *node,
                        state,
                        remedy: "wait until it has moved, or cancel the move",
                    });
                }
                None if placed.brick != to => {
                    self.check_serving("the brick that logical nodes leave", placed.brick)?;
                    moves.push(PlannedMove { node: NodeId(*node), from: placed.brick, to });
                }
                _ => {}
            }
        }
        Ok(moves)
    }

    /// The moves from bricks that serve that spread spaces evenly over these.
    fn moves_to_spread(&self, space: Option<&str>) -> Result<Vec<PlannedMove>, CatalogError> {
        if let Some(name) = space.filter(|name| self.space(name).is_none()) {
            return Err(CatalogError::missing("space", name));
        }
        let mut moves = self.spread();
        moves.retain(|one| {
            let is_meant = space.is_none_or(|name| self.space_of(one.node).is_some_and(|space| space.name == name));
            is_meant && self.check_serving("", one.from).is_ok()
        });
        Ok(moves)
    }

    /// The moves that empty a brick.
    fn moves_to_drain(&self, brick: BrickId) -> Result<Vec<PlannedMove>, CatalogError> {
        self.check_serving("the brick to drain", brick)?;
        let moves = self.spread_without(brick);
        let stays = self
            .placement_map()
            .nodes()
            .find(|(node, placed)| placed.destination() == brick && !moves.iter().any(|one| one.node == *node));
        match stays {
            None => Ok(moves),
            Some((node, placed)) if placed.moving.is_some() => {
                let (node, state) = (node.0, format!("moving to brick {brick}"));
                Err(CatalogError::WrongMoveState { node, state, remedy: "wait until it has moved, or cancel the move" })
            }
            Some((node, _)) => {
                let storage = self.space_of(node).map_or("", |space| space.storage.adverb());
                let by = format!("logical nodes that are kept {storage}, which no other brick can serve");
                let remedy = "start another brick with this storage, or cancel the drain of one \
                              (`mortar remap --cancel --drain BRICK`)";
                Err(CatalogError::InUse { what: "brick", name: brick.to_string(), by, remedy })
            }
        }
    }

    /// The nodes whose moves are to be cancelled.
    fn moves_to_cancel(&self, nodes: &[u32], drain: Option<BrickId>) -> Result<Vec<NodeId>, CatalogError> {
        nodes.iter().try_for_each(|node| self.require_placement(*node).map(drop))?;
        let is_meant = |node: NodeId, placed: &NodePlacement| {
            let is_named = nodes.is_empty() || nodes.contains(&node.0);
            is_named && placed.moving.is_some() && drain.is_none_or(|brick| placed.brick == brick)
        };
        Ok(self
            .placement_map()
            .nodes()
            .filter(|(node, placed)| is_meant(*node, placed))
            .map(|(node, _)| node)
            .collect())
    }
}

impl CatalogEditor {
    /// Executes a request, based on `catalog`. Returns the revision of the last change, if there was one.
    ///
    /// # Errors
    /// Those of the operation. Some of several moves may have begun by then.
    pub async fn handle_move_request(
        &self,
        catalog: &Catalog,
        request: MoveRequest,
    ) -> Result<(MoveAnswer, Option<Revision>), CatalogError> {
        let (moves, dry_run, nodes) = match request {
            MoveRequest::Show { nodes } => {
                let bricks = if nodes.is_empty() { catalog.brick_states() } else { Vec::new() };
                return Ok((MoveAnswer { nodes: catalog.node_states(&nodes)?, bricks }, None));
            }
            MoveRequest::Cancel { nodes, drain } => return self.cancel_moves(catalog, &nodes, drain).await,
            MoveRequest::To { nodes, brick, dry_run } => (catalog.moves_to(&nodes, brick)?, dry_run, nodes),
            MoveRequest::Spread { space, dry_run } => (catalog.moves_to_spread(space.as_deref())?, dry_run, Vec::new()),
            MoveRequest::Drain { brick, dry_run } => {
                let moves = catalog.moves_to_drain(brick)?;
                if !dry_run && !planted(Bug::DrainNotRecorded) {
                    self.set_brick_draining(brick, true).await?;
                }
                (moves, dry_run, Vec::new())
            }
        };
        let mut revision = None;
        if !dry_run {
            for one in &moves {
                revision = Some(self.begin_move(one.node, one.to).await?.revision);
            }
        }
        // The caller also waits for nodes that are moving already.
        let on_their_way = nodes.iter().map(|node| Ok((NodeId(*node), catalog.require_placement(*node)?)));
        let on_their_way: Vec<_> = on_their_way.collect::<Result<_, CatalogError>>()?;
        let moving = on_their_way.into_iter().filter(|(_, placed)| placed.moving.is_some());
        let mut states: Vec<_> = moving.map(|(node, placed)| catalog.node_state(node, placed)).collect();
        for one in moves {
            let before = catalog.require_placement(one.node.0)?;
            states.push(NodeState { to: Some(one.to), ..catalog.node_state(one.node, before) });
        }
        Ok((MoveAnswer { nodes: states, bricks: Vec::new() }, revision))
    }

    async fn cancel_moves(
        &self,
        catalog: &Catalog,
        nodes: &[u32],
        drain: Option<BrickId>,
    ) -> Result<(MoveAnswer, Option<Revision>), CatalogError> {
        let cancelled = catalog.moves_to_cancel(nodes, drain)?;
        let (mut states, mut revision) = (Vec::new(), None);
        if let Some(brick) = drain {
            revision = Some(self.set_brick_draining(brick, false).await?.revision);
        }
        for node in cancelled {
            match self.cancel_move(node).await {
                Ok(edited) => {
                    revision = Some(edited.revision);
                    states.push(catalog.node_state(node, &edited.value));
                }
                // The move was finished in the meantime.
                Err(CatalogError::WrongMoveState { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((MoveAnswer { nodes: states, bricks: Vec::new() }, revision))
    }
}
