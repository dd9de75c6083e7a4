//! Writes rows of clones: see [`space_clone`](crate::brick::space_clone).

use std::mem;

use model::{Error, ErrorKind, NodeId, Result};
use protocol::cut::CutNumber;
use store::Snapshot;
use wire::cluster::CloneRows;
use wire::proto::moves::ClonedRows;

use super::{NodeTask, Nodes};
use crate::brick::node_manager::{COMPLETE_CLONE, INCOMPLETE_COPY, MoveLimits, NodeManager};
use crate::brick::plant::{Bug, planted};
use crate::brick::space_clone::{Portion, make_portion};

impl Nodes {
    /// Makes rows of a clone from the part of a cut, as many as one change of the store may have. Returns when they are durable.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the logical node is not of the space; as [`NodeManager::begin_clone_step`]; those of the store.
    pub(crate) fn clone_rows(&self, asked: &CloneRows, part: &Snapshot) -> Result<ClonedRows> {
        self.check_current()?;
        let foreign = || Error::new(ErrorKind::Invalid, format!("logical node {:x} is not of the space", asked.node.0));
        let (target, is_first) = (asked.map.node(asked.node).ok_or_else(foreign)?, asked.from.is_none());
        self.lock_manager()?.begin_clone_step(target, CutNumber(asked.cut), is_first)?;
        let written = self.write_clone(asked, target, part);
        let is_complete = written.as_ref().is_ok_and(|portion| portion.next.is_none());
        self.lock_manager()?.end_clone_step(target, is_complete, self.time.now());
        self.inbox.add(NodeTask::ManagerChanged);
        let Portion { next, objects, .. } = written?;
        Ok(ClonedRows { next: next.map(|next| next.to_vec().into()), objects })
    }

    fn write_clone(&self, asked: &CloneRows, target: NodeId, part: &Snapshot) -> Result<Portion> {
        if asked.from.is_none() {
            self.begin_clone(target)?;
        }
        let mut portion = make_portion(part, asked, MoveLimits::SERVING)?;
        let mut changes = mem::take(&mut portion.changes);
        if portion.next.is_none() {
            changes.append(NodeManager::seal_rows(target, COMPLETE_CLONE));
        }
        self.store.commit_rows(changes)?;
        Ok(portion)
    }

    /// Marks the logical node as incomplete, and removes what an earlier attempt has left of it.
    fn begin_clone(&self, target: NodeId) -> Result<()> {
        self.store.commit_rows(NodeManager::seal_rows(target, INCOMPLETE_COPY))?;
        while !planted(Bug::EarlierCloneKept) && self.remove_rows(target)? > 0 {}
        Ok(())
    }
}
