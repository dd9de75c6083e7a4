//! Logical nodes of clones, whose rows this brick makes from its part of a cut: see [`super::super::space_clone`].

use model::{Error, ErrorKind, NodeId, Result};
use protocol::cut::CutNumber;
use protocol::lease::Ms;
use tracing::info;

use super::{INCOMPLETE_COPY, NodeManager};
use crate::brick::plant::{Bug, planted};

/// The seal of a logical node whose rows are complete. If a map places the node here, this brick serves it; if a map places it at another brick,
/// this brick removes the rows.
pub(crate) const COMPLETE_CLONE: u64 = 0;

/// A logical node of a clone.
#[derive(Clone, Copy, Debug)]
pub(super) struct CloneState {
    /// The cut that all its rows are of.
    cut: CutNumber,
    /// Whether rows are being written.
    pub(super) is_writing: bool,
}

impl NodeManager {
    /// Rows of a logical node of a clone are about to be written: nothing else is done with the node until [`NodeManager::end_clone_step`].
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the node exists, [`ErrorKind::NotFound`] if its space was removed, or the copy has to begin again;
    /// [`ErrorKind::Unavailable`] if rows of it are being written or removed.
    pub(crate) fn begin_clone_step(&mut self, node: NodeId, cut: CutNumber, is_first: bool) -> Result<()> {
        let refuse = |kind, why: &str| Err(Error::new(kind, format!("logical node {:x} of a clone {why}", node.0)));
        let is_placed = self.map.nodes.contains_key(&node) || self.map.moving.contains_key(&node);
        if is_placed || self.residents.contains_key(&node) {
            return refuse(ErrorKind::Invalid, "is complete already");
        }
        if self.map.is_removed(node) {
            return refuse(ErrorKind::NotFound, "is not wanted any more");
        }
        let known = self.clones.get(&node);
        if self.tasks.contains_key(&node) || known.is_some_and(|clone| clone.is_writing) {
            return refuse(ErrorKind::Unavailable, "is being written: ask again");
        }
        let is_of_cut = match known {
            Some(clone) if is_first => clone.cut < cut,
            known => is_first || known.is_some_and(|clone| clone.cut == cut),
        };
        if !is_of_cut && !planted(Bug::EarlierCutContinues) {
            return refuse(ErrorKind::NotFound, "is made from another cut: begin again with a new one");
        }
        self.clones.insert(node, CloneState { cut, is_writing: true });
        self.leftovers.insert(node, INCOMPLETE_COPY);
        Ok(())
    }

    /// Rows of a logical node of a clone were written, or were not. If it is complete, a placement map may have it.
    pub(crate) fn end_clone_step(&mut self, node: NodeId, is_complete: bool, now: Ms) {
        if let Some(clone) = self.clones.get_mut(&node) {
            clone.is_writing = false;
        }
        if is_complete {
            info!(%node, "made a logical node of a clone");
            self.leftovers.insert(node, COMPLETE_CLONE);
        }
        if is_complete || self.map.is_removed(node) {
            self.update(now);
        }
    }

    /// Forgets the clones that are served or removed now.
    pub(super) fn forget_ended_clones(&mut self) {
        let map = self.map.clone();
        self.clones.retain(|node, clone| clone.is_writing || !map.nodes.contains_key(node) && !map.is_removed(*node));
    }
}
