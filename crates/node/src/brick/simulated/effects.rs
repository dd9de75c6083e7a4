//! What a simulated brick does for its drivers: rows go to the simulated store, and what is for other processes becomes an output.

use std::collections::VecDeque;
use std::sync::Arc;

use model::{NodeId, Object, PageId, Result, SpaceId, UploadId};
use parking_lot::Mutex;
use protocol::commit::{Change, Rejected, Request};
use protocol::ident::{HlcTimestamp, Version};
use protocol::lease::Ms;
use protocol::page_cache::PageImage;
use store::sim::SimStore;
use store::{RowChanges, RowReply};
use wire::cluster::Message;

use super::{AppendedChanges, BrickOutput, BrickSettings, CrashImage, SimulatedDisk, Submitter, UnforcedRows, Written};
use crate::brick::node_driver::PageRead;
use crate::brick::node_manager::DamagedNodes;
use crate::brick::page_rows as rows;
use crate::brick::routing::{Effects, NodeEvent, Submission, Submissions, TWO_PHASES_MS, copy_result};
use crate::brick::row_reader::RowReader;

/// How many operations of the disk a torn force does at most.
const MAX_TORN_STEPS: u64 = 4;

pub(crate) struct SimulatedEffects<C> {
    pub(super) machine: SimStore,
    applies_at_once: bool,
    /// Decides which pages are read later; `None` if none is.
    cold_reads: Option<u64>,
    /// The time of the last input.
    pub(super) now: Ms,
    pub(super) unforced: VecDeque<UnforcedRows>,
    written: Arc<Mutex<Vec<Written>>>,
    pub(super) appended: AppendedChanges,
    /// Until when no transaction is committed in one phase.
    two_phases_until: Ms,
    /// Logical nodes that cannot be opened because they are damaged.
    pub(super) damaged: Arc<DamagedNodes>,
    /// Logical nodes that have to be opened again.
    pub(super) lost: Vec<NodeId>,
    /// Events that are not handled.
    pub(super) events: Vec<NodeEvent>,
    pub(super) out: VecDeque<BrickOutput<C>>,
}

impl<C> SimulatedEffects<C> {
    pub(super) fn new(machine: SimStore, appended: AppendedChanges, settings: BrickSettings) -> Self {
        let BrickSettings { applies_at_once, cold_reads, commits_in_one_phase, .. } = settings;
        Self {
            machine,
            applies_at_once,
            cold_reads,
            now: 0,
            unforced: VecDeque::new(),
            written: Arc::default(),
            appended,
            two_phases_until: if commits_in_one_phase { 0 } else { Ms::MAX },
            damaged: Arc::default(),
            lost: Vec::new(),
            events: Vec::new(),
            out: VecDeque::new(),
        }
    }

    /// Whether the next page is read later: about each second one.
    fn reads_later(&mut self) -> bool {
        let Some(state) = &mut self.cold_reads else { return false };
        // The multiplier is that of Knuth's MMIX generator; its high bits are good.
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *state >> 63 == 1
    }

    /// Submits the oldest rows.
    pub(super) fn submit_oldest(&mut self, count: usize) {
        let oldest = self.unforced.drain(..count.min(self.unforced.len()));
        let submitted = oldest.map(|UnforcedRows { submitters, rows }| {
            let written = self.written.clone();
            let reply = move |result: Result<u64>| {
                written
                    .lock()
                    .extend(submitters.into_iter().map(|submitter| (submitter, copy_result(&result).map(drop))));
            };
            (rows, Box::new(reply) as RowReply)
        });
        self.machine.store().submit_rows_together(submitted.collect());
    }

    /// Forces what was submitted.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(super) fn force(&mut self) -> Result<()> {
        loop {
            // Those who have submitted rows hear of an error.
            let is_forced = self.machine.force().is_ok();
            if !(self.machine.is_install_wanted() && self.machine.install().is_ok()) {
                break;
            }
            if !is_forced || !self.machine.is_force_wanted() {
                break;
            }
        }
        self.report_durable()
    }

    /// What the store has done with rows, in the order of the log.
    pub(super) fn take_written(&mut self) -> Vec<Written> {
        std::mem::take(&mut *self.written.lock())
    }

    /// Reports the changes that the store has, those of each logical node in their order.
    pub(super) fn report_durable(&mut self) -> Result<()> {
        for appended in self.appended.values_mut() {
            while let Some((version, change)) = appended.front() {
                if let Some(page) = change.any_page()
                    && stored_version(&self.machine, page)? < *version
                {
                    break;
                }
                let Some((version, change)) = appended.pop_front() else { break };
                self.out.push_back(BrickOutput::Stored { version, change });
            }
        }
        Ok(())
    }

    /// Power fails.
    pub(super) fn crash(mut self, CrashImage { kept, is_torn, seed }: CrashImage) -> SimulatedDisk {
        if kept > 0 {
            self.submit_oldest(kept);
            drop(self.machine.force());
        }
        if is_torn && !self.unforced.is_empty() {
            self.submit_oldest(usize::MAX);
            self.machine.stop_after((seed % MAX_TORN_STEPS) as usize);
            drop(self.machine.force());
        }
        SimulatedDisk { image: self.machine.crash(seed), appended: self.appended }
    }
}

/// The version of a page in a store, even if it is damaged.
///
/// # Errors
/// If the store cannot be read.
pub(super) fn stored_version(machine: &SimStore, page: PageId) -> Result<Version> {
    machine.ignoring_damage(|| Ok(rows::read_head(&RowReader::new(machine.store()), page)?.version))
}

impl<C: Clone> Effects<C> for SimulatedEffects<C> {
    fn now(&self) -> Ms {
        self.now
    }

    fn send(&mut self, to: &C, message: Message) {
        self.out.push_back(BrickOutput::Send(to.clone(), message));
    }

    fn ask_elsewhere(&mut self, node: NodeId, seen: HlcTimestamp, request: Request<Object>) {
        self.out.push_back(BrickOutput::Ask { node, seen, request });
    }

    fn damage_of(&self, node: NodeId) -> Option<Arc<str>> {
        self.damaged.get(&node).cloned()
    }

    fn applies_at_once(&self) -> bool {
        self.applies_at_once
    }

    fn apply(&mut self, rows: RowChanges) -> Result<()> {
        let applied = Arc::new(Mutex::new(None));
        let result = applied.clone();
        self.machine.store().submit_rows(rows, move |applied| *result.lock() = Some(applied.map(drop)));
        self.force()?;
        let applied = applied.lock().take();
        applied.unwrap_or_else(|| panic!("the store has neither applied nor refused rows"))
    }

    fn submit(&mut self, submissions: Submissions) {
        self.unforced.extend(submissions.into_iter().map(|Submission { node, life, rows }| {
            let submitters = vec![Submitter::Driver { node, life }];
            UnforcedRows { submitters, rows }
        }));
    }

    fn submit_as_one(&mut self, submissions: Submissions) {
        let (mut rows, mut submitters) = (RowChanges::new(), Vec::new());
        for Submission { node, life, rows: added } in submissions {
            rows.append(added);
            submitters.push(Submitter::Driver { node, life });
        }
        self.unforced.push_back(UnforcedRows { submitters, rows });
    }

    fn may_commit_in_one_phase(&self) -> bool {
        self.two_phases_until <= self.now
    }

    fn reopen(&mut self, node: NodeId) {
        self.two_phases_until = self.two_phases_until.max(self.now + TWO_PHASES_MS);
        self.lost.push(node);
    }

    fn read_page(&mut self, node: NodeId, read: PageRead) -> Option<Result<PageImage<Object>>> {
        if self.reads_later() {
            self.out.push_back(BrickOutput::Read { node, read });
            return None;
        }
        Some(rows::read_page(&RowReader::new(self.machine.store()), read.page()))
    }

    fn add_event(&mut self, event: NodeEvent) {
        self.events.push(event);
    }

    fn refresh_schema(&mut self, space: SpaceId) {
        self.out.push_back(BrickOutput::RefreshSchema { space });
    }

    fn abort_upload(&mut self, upload: UploadId) {
        self.machine.store().abort_upload(upload);
    }

    fn report_rejected(&mut self, node: NodeId, why: &Rejected) {
        panic!("C2: logical node {node} rejects the request of another one: {why}");
    }

    fn note_appended(&mut self, node: NodeId, version: Version, change: Change<Object>) {
        self.appended.entry(node).or_default().push_back((version, change));
    }
}
