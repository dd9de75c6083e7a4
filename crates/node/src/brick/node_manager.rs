//! Decides which logical nodes a brick serves, and moves them between bricks.
//!
//! ```text
//!  placement map ──▶ ┌─────────────┐ ──▶ Open, Close, StopTracking   to the drivers of the nodes
//!  opened, closed ─▶ │ NodeManager │ ──▶ Run(work)                   to the store, the other brick, the catalogue
//!  end of work ────▶ └─────────────┘
//! ```
//!
//! A logical node of this brick is served, closing, being sealed, or sealed; see [`Residency`]. A node that is not here may move in
//! ([`MoveIn`]), or have rows left that are removed. The manager is a machine: it does no I/O and reads no clock, and it reads the
//! store only. The process around it ([`super::nodes::Nodes`]) and the simulated one carry out its outputs.
//!
//! **M1**, for moves between bricks:
//!
//! 1. The seal of a node is a row with an epoch. The node is not served here by any map up to that epoch, so a restarted brick with
//!    an old map does not serve a node that it has handed over.
//! 2. An answer marks its rows as the last ones only after the seal is durable, which it becomes only when no rows of the node are
//!    in flight: the old brick refuses before the new one accepts.
//! 3. While rows are copied to here, the seal marks the copy as incomplete. The mark is durable before the first row is written. The
//!    last rows replace it by the epoch of the old brick's seal, so a brick that serves by a later map has all rows.
//! 4. The catalogue ends a move only under the epoch of the seal that came with the last rows.
//! 5. After any failure, a new attempt begins from the start. If the new brick is silent, the old one unseals the node and serves it
//!    again; rows that were sent under the old seal do not count then.
//! 6. Rows of a node that another brick serves are removed once a map later than the seal says so. Those of a node whose space was
//!    removed are removed by any map that says so, because its number is never given again.

mod attempt;
mod cloning;
mod job;
mod move_in;
mod move_out;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use model::{Error, ErrorKind, NodeId, Result};
use protocol::lease::Ms;
use store::RowChanges;
use tracing::{info, warn};
use wire::cluster::{CopyRows, Message, damaged_node_error, describe_damage};

use super::changed_rows::ChangedRows;
use super::page_rows as rows;
use super::plant::{Bug, planted};
use super::row_reader::RowReader;
use crate::node_placement::{NodePlacement, PlacementSnapshot, Transfer};
pub(crate) use cloning::COMPLETE_CLONE;
use cloning::CloneState;
pub use job::{EditResult, JobId, PlacementEdit};
pub(crate) use job::{Finished, ManagerOutput, ManagerSettings, MoveLimits, Work};
use move_in::{MoveIn, Removal};
pub(crate) use move_in::{MoveProgress, rows_to_remove};
use move_out::SealedNode;
pub(crate) use move_out::{CopySource, RowCopy, begin_attempt};

/// An epoch that no map has: the copy of the node is incomplete.
pub(crate) const INCOMPLETE_COPY: u64 = u64::MAX;

/// Logical nodes that are copied to here at the same time, and those whose rows are removed; others wait.
const MAX_CONCURRENT: usize = 2;
/// Pause before a map that could not be applied in full is applied again, in milliseconds.
const RETRY_DELAY_MS: Ms = 200;
/// Time limit of work that other processes take part in, in milliseconds.
const REMOTE_TIMEOUT_MS: Ms = 5_000;
/// How long the new brick may be silent before a sealed node is unsealed, in milliseconds.
const ABANDONED_AFTER_MS: Ms = 10_000;
/// Most moves whose progress is remembered.
const MAX_REMEMBERED: usize = 4_096;

/// What this brick is for a logical node that it serves or has served.
///
/// ```text
///             another epoch             no rows in flight              the seal is durable
///   Served ─────────────────▶ Closing ───────────────────▶ Sealing ───────────────────────▶ Sealed
///      ▲                         │ not sealed by the map       │                               │
///      └─────────────────────────┴───────── unsealed ──────────┴───────────────────────────────┘
/// ```
#[derive(Debug)]
enum Residency {
    /// It is served under this epoch.
    Served { epoch: u64 },
    /// It accepts nothing, and has rows in flight.
    Closing,
    /// Its seal is being written, or has to be.
    Sealing { epoch: u64, changed_rows: Option<ChangedRows>, job: Option<JobId> },
    /// It hands over.
    Sealed(SealedNode),
}

/// Work on a logical node that is not served here.
#[derive(Debug)]
enum Task {
    MoveIn(MoveIn),
    Removal(Removal),
}

impl Task {
    /// When it continues by itself.
    fn deadline(&self) -> Option<Ms> {
        match self {
            Self::MoveIn(move_in) => move_in.deadline(),
            Self::Removal(removal) => removal.deadline(),
        }
    }
}

/// What is done when a job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Seal { epoch: u64 },
    Task,
    Unseal,
}

/// Work under way.
#[derive(Clone, Copy, Debug)]
struct Job {
    node: NodeId,
    purpose: Purpose,
    began: Ms,
    /// It writes the store: it ends for certain, and nothing else may be done with the node until then.
    is_writing: bool,
}

/// Logical nodes that cannot be served because their rows are damaged, with what is damaged.
pub(crate) type DamagedNodes = BTreeMap<NodeId, Arc<str>>;

/// The manager of the logical nodes of a brick.
pub(crate) struct NodeManager {
    settings: ManagerSettings,
    reader: RowReader,
    map: Arc<PlacementSnapshot>,
    residents: BTreeMap<NodeId, Residency>,
    tasks: BTreeMap<NodeId, Task>,
    jobs: BTreeMap<JobId, Job>,
    last_job: u64,
    /// The seals of nodes that may have rows here and are not served here.
    leftovers: BTreeMap<NodeId, u64>,
    /// Nodes of removed spaces that have no rows here.
    emptied: BTreeSet<NodeId>,
    /// Logical nodes of clones, whose rows are made here.
    clones: BTreeMap<NodeId, CloneState>,
    progress: BTreeMap<NodeId, MoveProgress>,
    /// Logical nodes that are placed here and cannot be opened because their rows are damaged, with what is damaged.
    damaged: Arc<DamagedNodes>,
    /// Why the map could not be applied in full, and when that is tried again.
    problem: Option<Error>,
    retry_at: Option<Ms>,
    out: VecDeque<ManagerOutput>,
}

impl NodeManager {
    /// The manager of a brick that has just started.
    ///
    /// # Errors
    /// If the seals cannot be read.
    pub(crate) fn new(settings: ManagerSettings, reader: RowReader) -> Result<Self> {
        let leftovers = rows::read_seals(&reader)?.into_iter().collect();
        Ok(Self {
            last_job: settings.first_job,
            settings,
            reader,
            map: Arc::default(),
            residents: BTreeMap::new(),
            tasks: BTreeMap::new(),
            jobs: BTreeMap::new(),
            leftovers,
            emptied: BTreeSet::new(),
            clones: BTreeMap::new(),
            progress: BTreeMap::new(),
            damaged: Arc::default(),
            problem: None,
            retry_at: None,
            out: VecDeque::new(),
        })
    }

    /// Takes the outputs, in order. Each is carried out before the next ones are taken.
    pub(crate) fn take_outputs(&mut self) -> VecDeque<ManagerOutput> {
        std::mem::take(&mut self.out)
    }

    // -------------------------------------------------------------------------------------------- the map

    /// Applies a placement map.
    pub(crate) fn follow_map(&mut self, map: Arc<PlacementSnapshot>, now: Ms) {
        self.map = map.clone();
        let brick = self.settings.brick;
        self.forget_damage(|node| map.nodes.get(&node).is_none_or(|place| place.brick != brick));
        self.update(now);
    }

    /// Does what the map requires and can be done now.
    fn update(&mut self, now: Ms) {
        (self.problem, self.retry_at) = (None, None);
        self.close_outdated();
        self.forget_unsealed();
        self.forget_ended_clones();
        self.find_rows_of_removed(now);
        self.open_wanted(now);
        self.seal_wanted(now);
        self.drop_cancelled_tasks();
        self.begin_tasks(now);
    }

    fn place_here(&self, node: NodeId) -> Option<NodePlacement> {
        self.map.nodes.get(&node).copied().filter(|place| place.brick == self.settings.brick)
    }

    fn transfer(&self, node: NodeId) -> Option<Transfer> {
        self.map.moving.get(&node).copied()
    }

    /// The epoch of the seal by which the map has the node handed over by this brick.
    fn wanted_seal(&self, node: NodeId) -> Option<u64> {
        self.transfer(node).filter(|one| one.from == self.settings.brick)?.sealed
    }

    /// Closes the nodes that are served under another epoch than that of the map.
    fn close_outdated(&mut self) {
        let served: Vec<(NodeId, u64)> = self.served_nodes().collect();
        for (node, epoch) in served {
            if self.place_here(node).is_none_or(|place| place.epoch != epoch) {
                info!(%node, epoch, "closing a logical node");
                self.residents.insert(node, Residency::Closing);
                self.out.push_back(ManagerOutput::Close { node });
            } else if !self.map.moving.contains_key(&node) {
                self.out.push_back(ManagerOutput::StopTracking { node });
            }
        }
    }

    /// The nodes that are served, with their epochs.
    pub(crate) fn served_nodes(&self) -> impl Iterator<Item = (NodeId, u64)> {
        self.residents.iter().filter_map(|(node, residency)| match residency {
            Residency::Served { epoch } => Some((*node, *epoch)),
            _ => None,
        })
    }

    /// Forgets the seals that the map does not have any more.
    fn forget_unsealed(&mut self) {
        let sealing = |residency: &Residency| matches!(residency, Residency::Sealing { .. } | Residency::Sealed(_));
        let nodes: Vec<NodeId> =
            self.residents.iter().filter(|(_, residency)| sealing(residency)).map(|(node, _)| *node).collect();
        for node in nodes {
            if self.wanted_seal(node).is_none() {
                self.residents.remove(&node);
            }
        }
    }

    /// Finds the rows of nodes whose space was removed, also if this brick was away when that happened.
    fn find_rows_of_removed(&mut self, now: Ms) {
        let map = self.map.clone();
        for node in map.removed_nodes() {
            let is_known = self.emptied.contains(&node) || self.leftovers.contains_key(&node);
            // What is being written now is looked at when it is durable.
            if is_known || self.residents.contains_key(&node) || self.is_being_written(node) {
                continue;
            }
            match rows_to_remove(&self.reader, node, 1) {
                Ok(rows) if rows.is_empty() => drop(self.emptied.insert(node)),
                Ok(_) => drop(self.leftovers.insert(node, INCOMPLETE_COPY)),
                Err(error) => self.fail(error, now),
            }
        }
    }

    fn open_wanted(&mut self, now: Ms) {
        let (map, brick) = (self.map.clone(), self.settings.brick);
        for (node, place) in map.nodes.iter().filter(|(_, place)| place.brick == brick) {
            if self.residents.contains_key(node) || self.is_being_written(*node) {
                continue;
            }
            match self.check_seal(*node, place.epoch) {
                Ok(()) => {
                    self.residents.insert(*node, Residency::Served { epoch: place.epoch });
                    self.out.push_back(ManagerOutput::Open { node: *node, place: *place });
                }
                Err(error) => self.fail(error, now),
            }
        }
    }

    /// Checks that the rows of a node may be served by a map of this epoch (M1.1, M1.3).
    fn check_seal(&self, node: NodeId, epoch: u64) -> Result<()> {
        if self.seal_of(node)? < epoch || planted(Bug::ServedUnsealed) {
            return Ok(());
        }
        let what = format!(
            "logical node {:x} was moved to another brick, or its copy is incomplete: the map of epoch {epoch} is too old",
            node.0
        );
        Err(Error::new(ErrorKind::Unavailable, what))
    }

    /// The epoch of the seal of a node; 0 if there is none.
    fn seal_of(&self, node: NodeId) -> Result<u64> {
        rows::read_number(&self.reader, &rows::seal_key(node))
    }

    fn fail(&mut self, error: Error, now: Ms) {
        self.problem.get_or_insert(error);
        self.retry_at = Some(now + RETRY_DELAY_MS);
    }

    /// The logical nodes that cannot be opened because their rows are damaged.
    pub(crate) fn damaged(&self) -> &Arc<DamagedNodes> {
        &self.damaged
    }

    /// A logical node cannot be served because its rows are damaged.
    pub(crate) fn note_damage(&mut self, node: NodeId, damage: Arc<str>) {
        if self.place_here(node).is_some()
            && self.damaged.get(&node) != Some(&damage)
            && !planted(Bug::DamagedNodeNotNoted)
        {
            Arc::make_mut(&mut self.damaged).insert(node, damage);
        }
    }

    fn forget_damage(&mut self, is_forgotten: impl Fn(NodeId) -> bool) {
        if self.damaged.keys().any(|node| is_forgotten(*node)) {
            Arc::make_mut(&mut self.damaged).retain(|node, _| !is_forgotten(*node));
        }
    }

    /// Why some logical nodes are not served or sealed as the map has it; `None` if all are.
    pub(crate) fn problem(&self) -> Option<&Error> {
        self.problem.as_ref()
    }

    // -------------------------------------------------------------------------------------------- drivers

    /// The driver of a node was opened, or could not be.
    pub(crate) fn handle_opened(&mut self, node: NodeId, opened: Result<()>, now: Ms) {
        match opened {
            Ok(()) => {
                self.forget_damage(|damaged| damaged == node);
                self.end_move_in(node, now);
            }
            Err(error) => {
                self.residents.remove(&node);
                match error.kind() {
                    ErrorKind::Corrupt => self.note_damage(node, describe_damage(&error)),
                    _ => self.forget_damage(|damaged| damaged == node),
                }
                self.note_error(node, &error);
                self.fail(error, now);
            }
        }
    }

    /// A driver was closed, and none of its rows are in flight. `changed_rows` are those that have changed since another brick
    /// began to copy it.
    pub(crate) fn handle_closed(&mut self, node: NodeId, changed_rows: Option<ChangedRows>, now: Ms) {
        self.residents.remove(&node);
        if let Some(epoch) = self.wanted_seal(node) {
            self.residents.insert(node, Residency::Sealing { epoch, changed_rows, job: None });
        }
        self.update(now);
    }

    /// Rows of a node were refused that cannot be submitted again: its driver is closed, and opened again with what is stored.
    pub(crate) fn reopen(&mut self, node: NodeId) {
        if let Some(residency @ Residency::Served { .. }) = self.residents.get_mut(&node) {
            *residency = Residency::Closing;
            self.out.push_back(ManagerOutput::Close { node });
        }
    }

    // -------------------------------------------------------------------------------------------- seals

    /// Seals the nodes that the map has sealed, and that are not closing.
    fn seal_wanted(&mut self, now: Ms) {
        let map = self.map.clone();
        for node in map.moving.keys() {
            let Some(epoch) = self.wanted_seal(*node) else { continue };
            let changed_rows = match self.residents.remove(node) {
                Some(Residency::Sealed(sealed)) if sealed.epoch != epoch => sealed.changed_rows,
                Some(Residency::Sealing { changed_rows, job: None, .. }) => changed_rows,
                None => None,
                Some(busy) => {
                    self.residents.insert(*node, busy);
                    continue;
                }
            };
            match self.seal_of(*node) {
                // The map is older than the seal: it is ignored.
                Ok(before) if before > epoch => continue,
                Ok(_) => {}
                Err(error) => self.fail(error, now),
            }
            let rows = if planted(Bug::SealNotWritten) { RowChanges::new() } else { Self::seal_rows(*node, epoch) };
            let job = self.run(*node, Purpose::Seal { epoch }, Work::Write(rows), now);
            self.residents.insert(*node, Residency::Sealing { epoch, changed_rows, job: Some(job) });
        }
    }

    /// The rows of a seal. They are written even if the store is full, because moving nodes away frees space.
    pub(crate) fn seal_rows(node: NodeId, epoch: u64) -> RowChanges {
        let mut seal = RowChanges::new();
        seal.put(&rows::seal_key(node), rows::encode_number(epoch));
        seal.mark_needed()
    }

    fn handle_seal_written(&mut self, (node, epoch): (NodeId, u64), id: JobId, written: Result<()>, now: Ms) {
        let resident = self.residents.get_mut(&node);
        if let Err(error) = written {
            if let Some(Residency::Sealing { job, .. }) = resident {
                job.take_if(|job| *job == id);
            }
            return self.fail(error, now);
        }
        self.leftovers.insert(node, epoch);
        match resident {
            Some(Residency::Sealing { job, changed_rows, .. }) if *job == Some(id) => {
                info!(%node, epoch, "sealed a logical node that moves to another brick");
                let sealed = SealedNode { epoch, changed_rows: changed_rows.take(), asked_at: now };
                self.residents.insert(node, Residency::Sealed(sealed));
            }
            // It was unsealed meanwhile. The seal does no harm, because the map has a later epoch.
            _ => {}
        }
        self.update(now);
    }

    /// Unseals nodes whose new brick is silent (M1.5).
    fn unseal_abandoned(&mut self, now: Ms) {
        let mut abandoned = Vec::new();
        for (node, residency) in &mut self.residents {
            if let Residency::Sealed(sealed) = residency
                && sealed.asked_at + ABANDONED_AFTER_MS <= now
            {
                sealed.asked_at = now;
                abandoned.push((*node, sealed.epoch));
            }
        }
        for (node, epoch) in abandoned {
            warn!(%node, "the new brick of a sealed logical node is silent: unsealing the node");
            self.run(node, Purpose::Unseal, Work::Edit(PlacementEdit::Unseal { epoch }), now);
        }
    }

    /// Where the changed rows of a node are that another brick copies.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the node does not move to that brick, or the copy has to begin again;
    /// [`ErrorKind::Unavailable`] if the node is being sealed.
    pub(crate) fn copy_source(&mut self, asked: &CopyRows, now: Ms) -> Result<CopySource<'_>> {
        let CopyRows { node, to, attempt, last_answered, .. } = *asked;
        let transfer = self.transfer(node).filter(|one| one.from == self.settings.brick && one.to.0 == to);
        if transfer.is_none() {
            let what = format!("logical node {:x} does not move from here to brick {to}", node.0);
            return Err(Error::new(ErrorKind::NotFound, what));
        }
        match self.residents.get_mut(&node) {
            Some(Residency::Served { .. }) => Ok(CopySource::Served),
            Some(Residency::Sealed(sealed)) => {
                sealed.asked_at = now;
                let changed_rows = begin_attempt(&mut sealed.changed_rows, attempt, last_answered)?;
                Ok(CopySource::Sealed { epoch: sealed.epoch, changed_rows })
            }
            Some(Residency::Sealing { epoch, changed_rows, .. }) if planted(Bug::LastRowsBeforeSeal) => {
                let changed_rows = begin_attempt(changed_rows, attempt, last_answered)?;
                Ok(CopySource::Sealed { epoch: *epoch, changed_rows })
            }
            None if let Some(damage) = self.damaged.get(&node) => Err(damaged_node_error(node, damage)),
            Some(Residency::Closing | Residency::Sealing { .. }) | None => {
                let what = format!("logical node {:x} is being sealed: ask again", node.0);
                Err(Error::new(ErrorKind::Unavailable, what))
            }
        }
    }

    // -------------------------------------------------------------------------------------------- jobs

    fn run(&mut self, node: NodeId, purpose: Purpose, work: Work, now: Ms) -> JobId {
        self.last_job = self.last_job.wrapping_add(1);
        let id = JobId(self.last_job);
        let is_writing = matches!(work, Work::Write(_) | Work::Remove);
        self.jobs.insert(id, Job { node, purpose, began: now, is_writing });
        self.out.push_back(ManagerOutput::Run { job: id, node, work });
        id
    }

    /// Work has ended. Work that was given up is ignored.
    pub(crate) fn finish(&mut self, id: JobId, finished: Finished, now: Ms) {
        let Some(Job { node, purpose, began, .. }) = self.jobs.remove(&id) else { return };
        match (purpose, finished) {
            (Purpose::Seal { epoch }, Finished::Written(written)) => {
                self.handle_seal_written((node, epoch), id, written, now)
            }
            (Purpose::Unseal, finished) => info!(%node, ?finished, "a silent brick's logical node was unsealed"),
            (Purpose::Task, finished) => self.continue_task(node, id, finished, (began, now)),
            (Purpose::Seal { .. }, finished) => panic!("M1: {finished:?} does not end the writing of a seal"),
        }
    }

    /// Whether rows of a node are being written or removed.
    fn is_being_written(&self, node: NodeId) -> bool {
        let is_cloned = self.clones.get(&node).is_some_and(|clone| clone.is_writing);
        is_cloned || self.jobs.values().any(|job| job.node == node && job.is_writing && job.purpose == Purpose::Task)
    }

    /// Does what it is time for.
    pub(crate) fn poll(&mut self, now: Ms) {
        self.give_up_late_jobs(now);
        self.unseal_abandoned(now);
        self.poll_tasks(now);
        if self.retry_at.is_some_and(|at| at <= now) {
            self.update(now);
        }
    }

    fn give_up_late_jobs(&mut self, now: Ms) {
        let is_late = |job: &Job| !job.is_writing && job.began + REMOTE_TIMEOUT_MS <= now;
        let late: Vec<JobId> = self.jobs.iter().filter(|(_, job)| is_late(job)).map(|(id, _)| *id).collect();
        for id in late {
            self.finish(id, Finished::TimedOut, now);
        }
    }

    /// When [`NodeManager::poll`] has something to do.
    pub(crate) fn deadline(&self) -> Ms {
        let jobs = self.jobs.values().filter(|job| !job.is_writing).map(|job| job.began + REMOTE_TIMEOUT_MS);
        let sealed = self.residents.values().filter_map(|residency| match residency {
            Residency::Sealed(sealed) => Some(sealed.asked_at + ABANDONED_AFTER_MS),
            _ => None,
        });
        let tasks = self.tasks.values().filter_map(Task::deadline);
        jobs.chain(sealed).chain(tasks).chain(self.retry_at).min().unwrap_or(Ms::MAX)
    }
}

/// The refusal of a request for a node that is served under another epoch, or not at all; `None` if the request is admitted. `damage` is
/// asked for what is damaged at a node that is not served.
pub(crate) fn refuse_epoch(
    node: NodeId,
    served: Option<u64>,
    asked: u64,
    damage: impl FnOnce() -> Option<Arc<str>>,
) -> Option<Message> {
    let is_admitted = served == Some(asked) || served.is_some() && planted(Bug::OtherEpochServed);
    let damage = if served.is_none() && !is_admitted { damage() } else { None };
    (!is_admitted).then_some(Message::NotServedHere { node, epoch: served.unwrap_or(0), damage })
}

#[cfg(test)]
mod tests;
