//! Carries out the outputs of the manager of logical nodes: opens and closes drivers, writes and copies rows, edits the catalogue.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use meta::catalog::{BrickId as CatalogBrick, CatalogError, Epoch};
use model::{Error, ErrorKind, NodeId, Result};
use protocol::lease::Ms;
use tracing::error;
use wire::cluster::{CopiedRows, CopyRows};
use wire::frame::Raw;
use wire::link::Answer;
use wire::proto::moves;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::tasks;

use super::{NodeTask, Nodes, ServedNode};
use crate::blocking;
use crate::brick::changed_rows::ChangedRows;
use crate::brick::node_manager::{
    CopySource, EditResult, Finished, JobId, ManagerOutput, MoveLimits, NodeManager, PlacementEdit, RowCopy, Work,
    rows_to_remove,
};
use crate::node_placement::BrickId;

impl Nodes {
    /// Calls `act` with the manager of logical nodes, and carries out its outputs. One task at a time does so.
    pub(super) fn manage(self: &Arc<Self>, act: impl FnOnce(&mut NodeManager, Ms)) {
        let now = self.time.now();
        let acted = self.lock_manager().map(|mut manager| act(&mut manager, now));
        if let Err(error) = acted.and_then(|()| self.carry_out_managed()) {
            error!(%error, "the placement map cannot be applied");
        }
    }

    fn carry_out_managed(self: &Arc<Self>) -> Result<()> {
        loop {
            let outputs = {
                let mut manager = self.lock_manager()?;
                if !Arc::ptr_eq(manager.damaged(), &self.damaged.load()) {
                    self.damaged.store(manager.damaged().clone());
                }
                manager.take_outputs()
            };
            if outputs.is_empty() {
                return Ok(());
            }
            let before = self.served.load_full();
            let (mut after, mut opened) = ((*before).clone(), Vec::new());
            let mut jobs = Vec::new();
            for output in outputs {
                match output {
                    ManagerOutput::Open { node, place } => {
                        let result = self.open(node, place).map(|served| drop(after.insert(node, Arc::new(served))));
                        // It is tried again several times a second.
                        if let Err(error) = &result
                            && let Some(suppressed) = self.unserved_log.admit()
                        {
                            error!(%node, %error, suppressed, "a logical node cannot be served");
                        }
                        opened.push((node, result));
                    }
                    ManagerOutput::Close { node } => {
                        if let Some(served) = after.remove(&node) {
                            self.abort_in_store(served.close());
                            self.lock_closing().insert(node, served);
                        }
                    }
                    ManagerOutput::StopTracking { node } => {
                        if let Some(Ok(mut driver)) = after.get(&node).map(|served| served.lock()) {
                            driver.stop_tracking();
                        }
                    }
                    ManagerOutput::Run { job, node, work } => jobs.push((job, node, work)),
                }
            }
            // Requests see the change before anything rests on it.
            self.served.store(Arc::new(after));
            for served in opened.iter().filter_map(|(node, _)| self.served_node(*node)) {
                // The time may have changed since it was opened.
                self.act(&served, |driver| driver.set_time(self.cluster_view.clock.cluster_time()));
            }
            let now = self.time.now();
            {
                let mut manager = self.lock_manager()?;
                opened.into_iter().for_each(|(node, result)| manager.handle_opened(node, result, now));
                self.report_closed(&mut manager, now);
            }
            jobs.into_iter().for_each(|(job, node, work)| self.begin_job(job, node, work));
        }
    }

    /// Tells the manager which closing drivers have no rows in flight any more.
    fn report_closed(&self, manager: &mut NodeManager, now: Ms) {
        let closed: BTreeMap<NodeId, Arc<ServedNode>> =
            self.lock_closing().extract_if(.., |_, served| served.is_closed()).collect();
        for (node, served) in closed {
            manager.handle_closed(node, served.take_changes(), now);
        }
    }

    /// Rows of a closing driver were written.
    pub(super) fn check_closing(self: &Arc<Self>) {
        if self.lock_closing().values().any(|served| served.is_closed()) {
            self.manage(|manager, now| self.report_closed(manager, now));
        }
    }

    /// The manager of logical nodes hears that work has ended.
    pub(super) fn end_job(self: &Arc<Self>, job: JobId, finished: Finished) {
        if matches!(finished, Finished::Edited(Ok(EditResult::Done)) | Finished::Refreshed(Ok(()))) {
            // What follows needs the map with that change.
            self.follow_map();
        }
        self.manage(|manager, now| manager.finish(job, finished, now));
    }

    // -------------------------------------------------------------------------------------------- jobs

    fn begin_job(self: &Arc<Self>, job: JobId, node: NodeId, work: Work) {
        if let Work::Write(rows) = work {
            let inbox = self.inbox.clone();
            return self.store.submit_rows(rows, move |result| {
                inbox.add(NodeTask::JobEnded { job, finished: Finished::Written(result.map(drop)) });
            });
        }
        let nodes = self.clone();
        tasks::spawn(async move {
            let finished = nodes.run_job(node, work).await;
            nodes.inbox.add(NodeTask::JobEnded { job, finished });
        });
    }

    async fn run_job(self: &Arc<Self>, node: NodeId, work: Work) -> Finished {
        match work {
            Work::Write(rows) => Finished::Written(self.store.commit_rows(rows).map(drop)),
            Work::Remove => {
                let nodes = self.clone();
                Finished::Removed(blocking::wait(move || nodes.remove_rows(node)).await)
            }
            Work::Copy { from, asked } => Finished::Copied(self.request_rows(from, asked).await),
            Work::Edit(edit) => Finished::Edited(self.edit_placement(node, edit).await),
            Work::RefreshMap => Finished::Refreshed(self.cluster_view.refresh_placement().await),
        }
    }

    /// Removes some rows of a logical node. Returns their number.
    pub(super) fn remove_rows(&self, node: NodeId) -> Result<usize> {
        let removed = rows_to_remove(&self.store, node, MoveLimits::SERVING.removed_rows)?;
        let count = removed.len();
        if count > 0 {
            self.store.commit_rows(removed)?;
        }
        Ok(count)
    }

    /// Sends one request for rows to another brick.
    async fn request_rows(&self, from: BrickId, asked: CopyRows) -> Result<CopiedRows> {
        match self.brick_links.call(from, Request::CopyRows(asked.into())).await? {
            Answer { response: Response::CopiedRows(copied), raw, .. } => {
                CopiedRows::from_proto(copied, Raw::Owned(raw))
            }
            _ => Err(Error::new(ErrorKind::Internal, "brick answered a request for rows with another message")),
        }
    }

    /// Changes the placement of a logical node in the catalogue, and waits for the map with that change.
    async fn edit_placement(&self, node: NodeId, edit: PlacementEdit) -> Result<EditResult> {
        let editor = self.cluster_view.editor()?;
        let edited = match edit {
            PlacementEdit::Seal { to } => editor.seal(node, CatalogBrick(to.0)).await,
            PlacementEdit::Unseal { epoch } => editor.unseal(node, Epoch(epoch)).await,
            PlacementEdit::Finish { epoch } => editor.finish_move(node, Epoch(epoch)).await,
        };
        match edited {
            Ok(edited) => self.cluster_view.wait_for_revision(edited.revision).await.map(|()| EditResult::Done),
            Err(CatalogError::WrongMoveState { .. }) => Ok(EditResult::WrongState),
            Err(error) => Err(error.into()),
        }
    }

    // -------------------------------------------------------------------------------------------- moves

    /// Rows of a logical node, for the brick that it moves to.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the node does not move to that brick, or the copy has to begin again;
    /// [`ErrorKind::Unavailable`] if the node is being sealed, or cannot be read now.
    pub(crate) fn copy_rows(&self, asked: &CopyRows) -> Result<CopiedRows> {
        let mut copy = self
            .with_changed_rows(asked, |changed, sealed| RowCopy::begin(asked, sealed, changed, MoveLimits::SERVING))?;
        copy.read(&self.store.snapshot()?)?;
        self.with_changed_rows(asked, |changed, sealed| copy.end(changed, sealed))
    }

    /// Calls `act` with the changed rows of a logical node that is being copied, and with the epoch of its seal.
    fn with_changed_rows<T>(
        &self,
        asked: &CopyRows,
        act: impl FnOnce(&mut ChangedRows, Option<u64>) -> Result<T>,
    ) -> Result<T> {
        let mut manager = self.lock_manager()?;
        match manager.copy_source(asked, self.time.now())? {
            CopySource::Sealed { epoch, changed_rows } => act(changed_rows, Some(epoch)),
            CopySource::Served => self.with_driver(asked.node, |driver| {
                act(driver.changes_for_attempt(asked.attempt, asked.last_answered)?, None)
            }),
        }
    }

    /// The progress of the moves of these logical nodes to here, where it is known.
    pub(crate) fn move_ins(&self, nodes: &[NodeId]) -> Result<moves::MoveIns> {
        let manager = self.lock_manager()?;
        let known = nodes.iter().filter_map(|node| Some((node.0, manager.progress(*node)?)));
        let move_ins = known.map(|(node, progress)| moves::MoveIn {
            node,
            rows: progress.rows,
            bytes: progress.bytes,
            pause_us: progress.pause_ms.map(|pause| Duration::from_millis(pause).as_micros() as u64),
            problem: progress.last_error.clone().unwrap_or_default(),
        });
        Ok(moves::MoveIns { move_ins: move_ins.collect() })
    }
}
