//! Carries out the outputs of the manager of logical nodes.

use std::sync::Arc;

use model::{NodeId, Result};
use protocol::lease::Ms;
use wire::cluster::{CopiedRows, CopyRows};

use super::{BrickOutput, BrickSettings, ServedNode, SimulatedBrick, Submitter, UnforcedSubmission};
use crate::brick::changed_rows::ChangedRows;
use crate::brick::node_driver::{NodeDriver, OpenSettings, PortionLimits, STAGING_LEASE_MS};
use crate::brick::node_manager::{
    CopySource, EditResult, Finished, JobId, ManagerOutput, MoveLimits, PlacementEdit, RowCopy, Work, rows_to_remove,
};
use crate::brick::row_reader::RowReader;
use crate::node_placement::{BrickId, NodePlacement};

/// Work for which a brick needs other processes.
#[derive(Clone, Debug)]
pub enum RemoteWork {
    /// Ask a brick for rows.
    Copy {
        /// The brick.
        from: BrickId,
        /// The request.
        asked: CopyRows,
    },
    /// Change the placement of the logical node in the catalogue. The map with that change is applied first.
    Edit(PlacementEdit),
    /// Apply the map that the catalogue has now.
    RefreshMap,
}

impl<C: Clone> SimulatedBrick<C> {
    pub(super) fn carry_out_managed(&mut self, now: Ms) {
        loop {
            for (node, mut driver) in self.closing.extract_if(.., |_, driver| driver.is_closed()) {
                // Its other rows were refused, or waited for room: they are never durable.
                self.appended.remove(&node);
                self.manager.handle_closed(node, driver.take_changes(), now);
            }
            let outputs = self.manager.take_outputs();
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                match output {
                    ManagerOutput::Open { node, place } => {
                        let opened = self.open_driver(node, place, now);
                        self.manager.handle_opened(node, opened, now);
                    }
                    ManagerOutput::Close { node } => {
                        if let Some(ServedNode { mut driver, .. }) = self.served.remove(&node) {
                            let uploads = driver.close();
                            uploads.into_iter().for_each(|upload| self.machine.store().abort_upload(upload));
                            self.closing.insert(node, driver);
                        }
                    }
                    ManagerOutput::StopTracking { node } => {
                        if let Some(driver) = self.driver_mut(node) {
                            driver.stop_tracking();
                        }
                    }
                    ManagerOutput::Run { job, node, work } => self.begin_job(job, node, work, now),
                }
            }
        }
    }

    fn open_driver(&mut self, node: NodeId, NodePlacement { epoch, moves, .. }: NodePlacement, now: Ms) -> Result<()> {
        let reader = RowReader::new(self.machine.store());
        let opening_rows = NodeDriver::<C>::opening_rows(node, &reader)?;
        let is_new = opening_rows.is_some();
        if let Some(rows) = opening_rows {
            self.machine.store().commit_rows(rows)?;
        }
        self.openings += 1;
        let BrickSettings { skew_ms, window, .. } = self.settings;
        let settings = OpenSettings {
            node,
            moves,
            skew_ms,
            window,
            portion: PortionLimits::SMALL,
            upload_lease_ms: STAGING_LEASE_MS,
            opening: self.openings,
            is_new,
        };
        let mut driver = NodeDriver::open(settings, reader, Arc::default(), now)?;
        for (space, schema) in &self.schemas {
            driver.set_schema(*space, schema, now);
        }
        self.served.insert(node, ServedNode { epoch, driver });
        self.carry_out(node, now);
        Ok(())
    }

    fn begin_job(&mut self, job: JobId, node: NodeId, work: Work, now: Ms) {
        let work = match work {
            Work::Write(rows) => {
                return self.unforced.push_back(UnforcedSubmission { submitter: Submitter::Write(job), rows });
            }
            Work::Remove => match rows_to_remove(&self.machine.store(), node, MoveLimits::SMALL.removed_rows) {
                Ok(rows) if !rows.is_empty() => {
                    let submitter = Submitter::Remove(job, rows.len());
                    return self.unforced.push_back(UnforcedSubmission { submitter, rows });
                }
                nothing => return self.manager.finish(job, Finished::Removed(nothing.map(|_| 0)), now),
            },
            Work::Copy { from, asked } => RemoteWork::Copy { from, asked },
            Work::Edit(edit) => RemoteWork::Edit(edit),
            Work::RefreshMap => RemoteWork::RefreshMap,
        };
        self.out.push_back(BrickOutput::Work { job, node, work });
    }

    /// A brick has answered a request for rows.
    pub fn handle_copied(&mut self, job: JobId, copied: Result<CopiedRows>, now: Ms) {
        self.manager.finish(job, Finished::Copied(copied), now);
        self.carry_out_managed(now);
    }

    /// The catalogue has answered an edit.
    pub fn handle_edited(&mut self, job: JobId, edited: EditResult, now: Ms) {
        self.manager.finish(job, Finished::Edited(Ok(edited)), now);
        self.carry_out_managed(now);
    }

    /// The map that the catalogue has now was applied.
    pub fn handle_refreshed(&mut self, job: JobId, now: Ms) {
        self.manager.finish(job, Finished::Refreshed(Ok(())), now);
        self.carry_out_managed(now);
    }

    /// Rows of a logical node, for the brick that it moves to.
    ///
    /// # Errors
    /// As the brick that ships.
    pub fn copy_rows(&mut self, asked: &CopyRows, now: Ms) -> Result<CopiedRows> {
        let mut copy = self.with_changed_rows(asked, now, |changed, sealed| {
            RowCopy::begin(asked, sealed, changed, MoveLimits::SMALL)
        })?;
        copy.read(&self.machine.store().snapshot()?)?;
        self.with_changed_rows(asked, now, |changed, sealed| copy.end(changed, sealed))
    }

    fn with_changed_rows<T>(
        &mut self,
        asked: &CopyRows,
        now: Ms,
        act: impl FnOnce(&mut ChangedRows, Option<u64>) -> Result<T>,
    ) -> Result<T> {
        match self.manager.copy_source(asked, now)? {
            CopySource::Sealed { epoch, changed_rows } => act(changed_rows, Some(epoch)),
            CopySource::Served => {
                let unserved = || model::Error::new(model::ErrorKind::Unavailable, "the logical node is not served");
                let served = self.served.get_mut(&asked.node).ok_or_else(unserved)?;
                act(served.driver.changes_for_attempt(asked.attempt, asked.last_answered)?, None)
            }
        }
    }
}
