//! What the manager of logical nodes wants done.

use model::{NodeId, Result};
use store::RowChanges;
use wire::cluster::{CopiedRows, CopyRows};

use crate::node_placement::{BrickId, NodePlacement};

/// How a manager is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ManagerSettings {
    /// The brick.
    pub(crate) brick: BrickId,
    /// The numbers of jobs and attempts follow this one: no earlier start of the brick had them.
    pub(crate) first_job: u64,
    pub(crate) limits: MoveLimits,
}

/// Limits of moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MoveLimits {
    /// Most rows of one answer.
    pub(crate) answer_rows: usize,
    /// Most bytes of one answer; the last row may exceed them.
    pub(crate) answer_bytes: usize,
    /// The node is sealed after an answer that has all remaining rows and at most this many.
    pub(crate) seal_below_rows: usize,
    /// Rows that are removed in one step.
    pub(crate) removed_rows: usize,
}

impl MoveLimits {
    /// The limits of a brick that serves.
    pub(crate) const SERVING: Self =
        Self { answer_rows: 4_096, answer_bytes: 1 << 20, seal_below_rows: 256, removed_rows: 4_096 };
    /// Small limits, so that a simulated move takes many steps, and that the rows that change meanwhile often do not fit one answer.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) const SMALL: Self = Self { answer_rows: 12, answer_bytes: 300, seal_below_rows: 4, removed_rows: 8 };
}

/// Work that was begun: a number of its own, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId(pub(crate) u64);

/// Something that the manager wants done.
#[derive(Debug)]
pub(crate) enum ManagerOutput {
    /// Open the driver of a node and serve it, and report it with `handle_opened` at once.
    Open { node: NodeId, place: NodePlacement },
    /// Close the driver of a node: it serves nothing any more. Report with `handle_closed` when none of its rows are in flight.
    Close { node: NodeId },
    /// The node is not copied any more.
    StopTracking { node: NodeId },
    /// Do the work, and report its end with `finish`.
    Run { job: JobId, node: NodeId, work: Work },
}

/// Work that takes time.
#[derive(Debug)]
pub(crate) enum Work {
    /// Write rows durably.
    Write(RowChanges),
    /// Remove some rows of the node, durably: see [`rows_to_remove`](super::rows_to_remove).
    Remove,
    /// Ask a brick for rows of the node.
    Copy { from: BrickId, asked: CopyRows },
    /// Change the placement of the node in the catalogue, and apply the map with that change.
    Edit(PlacementEdit),
    /// Apply the map that the catalogue has now.
    RefreshMap,
}

/// A change of the placement of a logical node that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementEdit {
    /// Seal the node, which moves to this brick.
    Seal {
        /// The brick.
        to: BrickId,
    },
    /// Unseal the node, which is sealed under this epoch.
    Unseal {
        /// The epoch of the seal.
        epoch: u64,
    },
    /// End the move of the node, which is sealed under this epoch.
    Finish {
        /// The epoch of the seal.
        epoch: u64,
    },
}

/// The result of [`Work`].
#[derive(Debug)]
pub(crate) enum Finished {
    Written(Result<()>),
    /// The number of rows that were removed.
    Removed(Result<usize>),
    Copied(Result<CopiedRows>),
    Edited(Result<EditResult>),
    Refreshed(Result<()>),
    /// Work that other processes take part in has not ended in time; it may still be done.
    TimedOut,
}

/// What the catalogue has done with a [`PlacementEdit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditResult {
    /// The map has the change now.
    Done,
    /// The node is in another state of its move: an earlier try has made the edit and its answer was lost, or something else has
    /// changed the move.
    WrongState,
}
