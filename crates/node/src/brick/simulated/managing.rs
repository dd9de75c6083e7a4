//! Carries out the outputs of the manager of logical nodes.

use std::sync::Arc;

use model::{NodeId, Result};
use protocol::lease::Ms;
use wire::cluster::{CopiedRows, CopyRows};

use super::{BrickOutput, BrickSettings, ServedNode, SimulatedBrick, Submitter, UnforcedRows};
use crate::brick::changed_rows::ChangedRows;
use crate::brick::node_driver::{NodeDriver, OpenSettings, PortionLimits, STAGING_LEASE_MS};
use crate::brick::node_manager::{
    CopySource, EditResult, Finished, JobId, ManagerOutput, MoveLimits, PlacementEdit, RowCopy, Work, rows_to_remove,
};
use crate::brick::routing::{Effects, carry_out};
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
    pub(super) fn carry_out_managed(&mut self) {
        let now = self.effects.now;
        loop {
            for (node, mut one) in self.closing.extract_if(.., |_, one| one.driver.is_closed()) {
                // Its other rows were refused, or waited for room: they are never durable.
                self.effects.appended.remove(&node);
                self.manager.handle_closed(node, one.driver.take_changes(), now);
            }
            self.effects.damaged = self.manager.damaged().clone();
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
                        if let Some(mut one) = self.served.remove(&node) {
                            one.driver.close().into_iter().for_each(|upload| self.effects.abort_upload(upload));
                            self.closing.insert(node, one);
                        }
                    }
                    ManagerOutput::StopTracking { node } => {
                        if let Some(one) = self.served.get_mut(&node) {
                            one.driver.stop_tracking();
                        }
                    }
                    ManagerOutput::Run { job, node, work } => self.begin_job(job, node, work, now),
                }
            }
        }
    }

    fn open_driver(&mut self, node: NodeId, NodePlacement { epoch, moves, .. }: NodePlacement, now: Ms) -> Result<()> {
        let reader = RowReader::new(self.effects.machine.store());
        let opening_rows = NodeDriver::<C>::opening_rows(node, &reader)?;
        let is_new = opening_rows.is_some();
        if let Some(rows) = opening_rows {
            self.effects.machine.store().commit_rows(rows)?;
        }
        self.openings += 1;
        let BrickSettings { skew_ms, windows, .. } = self.settings;
        let settings = OpenSettings {
            node,
            moves,
            skew_ms,
            windows,
            portion: PortionLimits::SMALL,
            upload_lease_ms: STAGING_LEASE_MS,
            opening: self.openings,
            is_new,
        };
        let mut driver = NodeDriver::open(settings, reader, Arc::default(), now)?;
        driver.set_time(self.time);
        for (space, schema) in &self.schemas {
            driver.set_schema(*space, schema, now);
        }
        let mut one = ServedNode { epoch, driver };
        carry_out(&mut [one.as_held_node()], &mut self.effects);
        self.served.insert(node, one);
        self.handle_events();
        Ok(())
    }

    fn begin_job(&mut self, job: JobId, node: NodeId, work: Work, now: Ms) {
        let work = match work {
            Work::Write(rows) => {
                return self.effects.unforced.push_back(UnforcedRows { submitters: vec![Submitter::Write(job)], rows });
            }
            Work::Remove => match rows_to_remove(&self.effects.machine.store(), node, MoveLimits::SMALL.removed_rows) {
                Ok(rows) if !rows.is_empty() => {
                    let submitters = vec![Submitter::Remove(job, rows.len())];
                    return self.effects.unforced.push_back(UnforcedRows { submitters, rows });
                }
                nothing => return self.manager.finish(job, Finished::Removed(nothing.map(|_| 0)), now),
            },
            Work::Copy { from, asked } => RemoteWork::Copy { from, asked },
            Work::Edit(edit) => RemoteWork::Edit(edit),
            Work::RefreshMap => RemoteWork::RefreshMap,
        };
        self.effects.out.push_back(BrickOutput::Work { job, node, work });
    }

    /// A brick has answered a request for rows.
    pub fn handle_copied(&mut self, job: JobId, copied: Result<CopiedRows>, now: Ms) {
        self.effects.now = now;
        self.manager.finish(job, Finished::Copied(copied), now);
        self.carry_out_managed();
    }

    /// The catalogue has answered an edit.
    pub fn handle_edited(&mut self, job: JobId, edited: EditResult, now: Ms) {
        self.effects.now = now;
        self.manager.finish(job, Finished::Edited(Ok(edited)), now);
        self.carry_out_managed();
    }

    /// The map that the catalogue has now was applied.
    pub fn handle_refreshed(&mut self, job: JobId, now: Ms) {
        self.effects.now = now;
        self.manager.finish(job, Finished::Refreshed(Ok(())), now);
        self.carry_out_managed();
    }

    /// Rows of a logical node, for the brick that it moves to.
    ///
    /// # Errors
    /// As the brick that ships.
    pub fn copy_rows(&mut self, asked: &CopyRows, now: Ms) -> Result<CopiedRows> {
        let mut copy = self.with_changed_rows(asked, now, |changed, sealed| {
            RowCopy::begin(asked, sealed, changed, MoveLimits::SMALL)
        })?;
        copy.read(&self.effects.machine.store().snapshot()?)?;
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
