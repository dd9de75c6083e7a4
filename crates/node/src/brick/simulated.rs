//! A brick for simulations of clusters: the drivers of its logical nodes and their manager on a simulated store, without threads,
//! clocks and sockets.
//!
//! [`SimulatedBrick`] does what [`Nodes`](super::nodes::Nodes) does in a process: it carries out the outputs of its drivers and of the
//! manager in order, and passes messages between its own logical nodes. Everything else is an output of its own. It differs in the store alone: rows wait
//! until the caller forces them, and a crash loses or tears what was not forced.
//!
//! It also reports what no process knows: each change of a page, with its contents, once it is durable ([`BrickOutput::Stored`]).

mod managing;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use meta::catalog::Schema;
use model::{Error, ErrorKind, NodeId, Object, PageId, Result, SpaceId, ValueRef};
use parking_lot::Mutex;
use protocol::commit::{Answer, Change, Rejected, Request};
use protocol::ident::{HlcTimestamp, HolderId, TxnId, Version};
use protocol::lease::Ms;
use protocol::page_cache::PageImage;
use protocol::tree::Up;
use protocol::validate::{Read, ReadVersion};
use query::key::IndexEntry;
use store::sim::{DiskImage, SimStore};
use store::{Options, RowChanges};
use wire::cluster::{
    EntriesOf, EntryList, IndexRange, ListEntries, ListEntriesOf, LookUp, LookedUp, Message, ReadContent, Scan, Scanned,
};

use super::content_reads::{RangeBytes, read_range};
use super::entries;
use super::guards;
use super::node_driver::{DriverOutput, Life, NodeDriver, Requester};
use super::node_manager::{Finished, JobId, ManagerSettings, MoveLimits, NodeManager, refuse_epoch};
use super::page_rows as rows;
use super::row_reader::RowReader;
use super::scan::scan;
use crate::node_placement::{BrickId, PlacementSnapshot};
pub use managing::RemoteWork;

/// Bytes of the buffer and of a segment of the log: small, so that both are filled and reused.
const MOB_BYTES: usize = 256 << 10;
const SEGMENT_BYTES: u64 = 64 << 10;
/// How many operations of the disk a torn force does at most.
const MAX_TORN_STEPS: u64 = 4;

fn options() -> Options {
    Options { mob_bytes: MOB_BYTES, segment_bytes: SEGMENT_BYTES, ..Options::default() }
}

/// Changes that were written and are not known to be durable: those of each logical node, in order. Logical nodes are independent of each
/// other: the store may refuse rows of one for lack of room and take later rows of another.
type AppendedChanges = BTreeMap<NodeId, VecDeque<(Version, Change<Object>)>>;

/// What is left of a brick that is not running: its disk, and the changes that it wrote and did not report as durable.
#[derive(Default)]
pub struct SimulatedDisk {
    image: DiskImage,
    appended: AppendedChanges,
}

impl SimulatedDisk {
    /// A disk that has these objects from the start, in pages without a version.
    ///
    /// # Errors
    /// If the store takes no rows.
    pub fn with_objects(pages: &BTreeMap<PageId, BTreeMap<u16, Object>>) -> Result<Self> {
        let machine = SimStore::open(DiskImage::default(), options())?;
        let mut changes = RowChanges::new();
        for (page, objects) in pages {
            for (slot, object) in objects {
                changes.put(&rows::object_key(*page, *slot), rows::encode_object(object));
            }
        }
        if !pages.is_empty() {
            machine.store().commit_rows(changes)?;
        }
        Ok(Self { image: machine.crash(0), appended: AppendedChanges::new() })
    }
}

impl fmt::Debug for SimulatedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedDisk").field("image", &self.image).finish_non_exhaustive()
    }
}

/// How a simulated brick is opened.
#[derive(Clone, Copy, Debug)]
pub struct BrickSettings {
    /// Its number.
    pub brick: BrickId,
    /// The numbers of its jobs follow this one: no earlier start had them.
    pub first_job: u64,
    /// How far the clocks of machines may differ, in milliseconds.
    pub skew_ms: u64,
    /// The maximum number of entries in the window of a page (V3).
    pub window: usize,
}

/// What the disk has after a crash of the rows that were not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashImage {
    /// This number of submissions becomes durable, and the brick does not hear of it.
    pub kept: usize,
    /// The force of the next submissions is under way: sectors of it may be on the disk.
    pub is_torn: bool,
    /// Decides which sectors.
    pub seed: u64,
}

/// Something that a simulated brick wants done, or reports, in this order. `C` is a connection.
#[derive(Debug)]
pub enum BrickOutput<C> {
    /// Send a message.
    Send(C, Message),
    /// Ask a logical node of another brick.
    Ask {
        /// The logical node.
        node: NodeId,
        /// The largest time that the asking node knows (L1).
        seen: HlcTimestamp,
        /// The request.
        request: Request<Object>,
    },
    /// Ask the catalogue for new classes of a space, and call [`SimulatedBrick::handle_schema_refreshed`].
    RefreshSchema {
        /// The space.
        space: SpaceId,
    },
    /// Do this with other processes, and report its end with `handle_copied`, `handle_edited` or `handle_refreshed`.
    Work {
        /// The work.
        job: JobId,
        /// The logical node.
        node: NodeId,
        /// What is to be done.
        work: RemoteWork,
    },
    /// A change is durable. It is reported before any message that shows it.
    Stored {
        /// The version of its pages.
        version: Version,
        /// The change.
        change: Change<Object>,
    },
}

/// Who has submitted rows.
#[derive(Clone, Copy)]
enum Submitter {
    /// The driver of a logical node.
    Driver { node: NodeId, life: Life },
    /// The manager, for work that writes rows.
    Write(JobId),
    /// The manager, for work that removes this number of rows.
    Remove(JobId, usize),
}

/// Rows that the store does not have yet.
struct UnforcedSubmission {
    submitter: Submitter,
    rows: RowChanges,
}

/// What the store has done with rows.
struct Written {
    submitter: Submitter,
    result: Result<()>,
}

/// The driver of a logical node, and the epoch under which it is served.
struct ServedNode<C> {
    epoch: u64,
    driver: NodeDriver<C>,
}

/// A message between logical nodes of the brick.
enum Local {
    Ask { from: NodeId, to: NodeId, seen: HlcTimestamp, request: Request<Object> },
    Answer { from: NodeId, to: NodeId, answer: Answer },
    Deferred { to: NodeId, message: Message },
}

/// A brick on a simulated store.
pub struct SimulatedBrick<C> {
    machine: SimStore,
    settings: BrickSettings,
    written: Arc<Mutex<Vec<Written>>>,
    manager: NodeManager,
    served: BTreeMap<NodeId, ServedNode<C>>,
    /// Drivers that were closed and have rows in flight.
    closing: BTreeMap<NodeId, NodeDriver<C>>,
    openings: u64,
    schemas: BTreeMap<SpaceId, Arc<Schema>>,
    unforced: VecDeque<UnforcedSubmission>,
    appended: AppendedChanges,
    local: VecDeque<Local>,
    out: VecDeque<BrickOutput<C>>,
}

impl<C: Clone> SimulatedBrick<C> {
    /// Opens the store on a disk. No logical node is served until there is a map.
    ///
    /// # Errors
    /// If the store cannot be opened or read: it has lost what was durable.
    pub fn open(disk: SimulatedDisk, settings: BrickSettings) -> Result<Self> {
        let SimulatedDisk { image, appended } = disk;
        let machine = SimStore::open(image, options())?;
        let BrickSettings { brick, first_job, .. } = settings;
        let manager = NodeManager::new(
            ManagerSettings { brick, first_job, limits: MoveLimits::SMALL },
            RowReader::new(machine.store()),
        )?;
        let mut brick = Self {
            machine,
            settings,
            written: Arc::default(),
            manager,
            served: BTreeMap::new(),
            closing: BTreeMap::new(),
            openings: 0,
            schemas: BTreeMap::new(),
            unforced: VecDeque::new(),
            appended,
            local: VecDeque::new(),
            out: VecDeque::new(),
        };
        brick.report_durable()?;
        // The others are lost.
        brick.appended.clear();
        Ok(brick)
    }

    /// Takes what is to be done next.
    pub fn next_output(&mut self) -> Option<BrickOutput<C>> {
        self.out.pop_front()
    }

    // -------------------------------------------------------------------------------------------- inputs

    /// Applies a placement map.
    pub fn follow_map(&mut self, map: Arc<PlacementSnapshot>, now: Ms) {
        self.manager.follow_map(map, now);
        self.carry_out_managed(now);
    }

    /// The driver of a logical node that is served under this epoch. Otherwise the requester hears that it is not.
    fn admit(&mut self, (node, epoch): (NodeId, u64), from: &C) -> Option<&mut NodeDriver<C>> {
        if let Some(refusal) = refuse_epoch(node, self.served.get(&node).map(|served| served.epoch), epoch) {
            self.out.push_back(BrickOutput::Send(from.clone(), refusal));
            return None;
        }
        self.served.get_mut(&node).map(|served| &mut served.driver)
    }

    /// Handles a request of a coordinator at another process, which has this epoch of the logical node in its map.
    ///
    /// # Errors
    /// If no coordinator that follows the rules sends it.
    pub fn handle_request(
        &mut self,
        (node, epoch): (NodeId, u64),
        from: C,
        request: Request<Object>,
        seen: HlcTimestamp,
        now: Ms,
    ) -> std::result::Result<(), Rejected> {
        let Some(driver) = self.admit((node, epoch), &from) else { return Ok(()) };
        let handled = driver.handle_request(Requester::Remote(from), request, seen, now);
        self.carry_out(node, now);
        handled
    }

    /// Handles a message of a holder, which has this epoch of the logical node in its map.
    ///
    /// # Errors
    /// If no holder that follows the rules sends it.
    pub fn handle_up(
        &mut self,
        (node, epoch): (NodeId, u64),
        connection: &C,
        holder: HolderId,
        message: Up<Object>,
        now: Ms,
    ) -> std::result::Result<(), Rejected> {
        let Some(driver) = self.admit((node, epoch), connection) else { return Ok(()) };
        let handled = driver.handle_up(connection, holder, message, now);
        self.carry_out(node, now);
        handled
    }

    /// Handles the answer of a logical node of another brick. The nodes that have asked know the transaction.
    pub fn handle_answer(&mut self, from: NodeId, answer: &Answer, now: Ms) {
        for node in self.nodes() {
            if let Some(driver) = self.driver_mut(node) {
                driver.handle_answer(from, answer.clone(), now);
            }
            self.carry_out(node, now);
        }
    }

    /// A logical node of another brick does not take its part of a transaction in, with the message that says so. The node that has
    /// passed the part on knows the transaction.
    pub fn handle_deferred(&mut self, message: &Message, now: Ms) {
        for node in self.nodes() {
            if let Some(driver) = self.driver_mut(node) {
                driver.handle_deferred(message);
            }
            self.carry_out(node, now);
        }
    }

    /// The catalogue was asked for the classes that a driver lacked, and the answer was applied with
    /// [`SimulatedBrick::set_schema`].
    pub fn handle_schema_refreshed(&mut self, now: Ms) {
        for node in self.nodes() {
            if let Some(driver) = self.driver_mut(node) {
                driver.on_schema_refreshed();
            }
            self.carry_out(node, now);
        }
    }

    /// A space has these classes and indexes now.
    pub fn set_schema(&mut self, space: SpaceId, schema: &Arc<Schema>, now: Ms) {
        for node in self.nodes() {
            if let Some(driver) = self.driver_mut(node) {
                driver.set_schema(space, schema, now);
            }
            self.carry_out(node, now);
        }
        self.schemas.insert(space, schema.clone());
    }

    /// Does what it is time for.
    pub fn poll(&mut self, now: Ms) {
        for node in self.nodes() {
            if let Some(driver) = self.driver_mut(node).filter(|driver| driver.deadline() <= now) {
                driver.poll(now);
            }
            self.carry_out(node, now);
        }
        if self.manager.deadline() <= now {
            self.manager.poll(now);
            self.carry_out_managed(now);
        }
    }

    /// When [`SimulatedBrick::poll`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Ms {
        let drivers = self.served.values().map(|served| served.driver.deadline());
        drivers.chain([self.manager.deadline()]).min().unwrap_or(Ms::MAX)
    }

    // -------------------------------------------------------------------------------------------- the disk

    /// How many submissions are not durable.
    #[must_use]
    pub fn unforced_count(&self) -> usize {
        self.unforced.len()
    }

    /// Makes the oldest submissions durable, or has them refused. The drivers hear of it by [`SimulatedBrick::handle_written`].
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn force(&mut self, count: usize) -> Result<()> {
        self.submit(count);
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

    fn submit(&mut self, count: usize) {
        for UnforcedSubmission { submitter, rows } in self.unforced.drain(..count.min(self.unforced.len())) {
            let written = self.written.clone();
            self.machine.store().submit_rows(rows, move |result| {
                written.lock().push(Written { submitter, result: result.map(drop) });
            });
        }
    }

    /// Tells the drivers and the manager what has become of their rows.
    pub fn handle_written(&mut self, now: Ms) {
        let written = std::mem::take(&mut *self.written.lock());
        for Written { submitter, result } in written {
            match submitter {
                Submitter::Driver { node, life } => {
                    if let Some(driver) = self.closing.get_mut(&node) {
                        driver.handle_written(life, result, now);
                    } else if let Some(driver) = self.driver_mut(node) {
                        driver.handle_written(life, result, now);
                    }
                    self.carry_out(node, now);
                }
                Submitter::Write(job) => self.manager.finish(job, Finished::Written(result), now),
                Submitter::Remove(job, count) => {
                    self.manager.finish(job, Finished::Removed(result.map(|()| count)), now)
                }
            }
            self.carry_out_managed(now);
        }
    }

    /// Moves what is durable from the log to the B-tree, if there is room.
    ///
    /// # Errors
    /// If the disk has failed.
    pub fn install(&mut self) -> Result<()> {
        match self.machine.install() {
            Err(error) if error.kind() != ErrorKind::Full => Err(error),
            _ => Ok(()),
        }
    }

    /// Lets the disk take only this number of bytes more; `None` removes the limit.
    pub fn set_room(&mut self, bytes: Option<u64>) {
        self.machine.set_room(bytes);
    }

    /// Ends the brick by a power failure. Returns what is found on its disk.
    #[must_use]
    pub fn crash(mut self, CrashImage { kept, is_torn, seed }: CrashImage) -> SimulatedDisk {
        if kept > 0 {
            self.submit(kept);
            drop(self.machine.force());
        }
        if is_torn && !self.unforced.is_empty() {
            self.submit(usize::MAX);
            self.machine.stop_after((seed % MAX_TORN_STEPS) as usize);
            drop(self.machine.force());
        }
        SimulatedDisk { image: self.machine.crash(seed), appended: self.appended }
    }

    /// Reports the changes that the store has, those of each logical node in their order.
    fn report_durable(&mut self) -> Result<()> {
        let reader = RowReader::new(self.machine.store());
        for appended in self.appended.values_mut() {
            while let Some((version, change)) = appended.front() {
                if let Some(page) = change.any_page()
                    && rows::read_head(&reader, page)?.version < *version
                {
                    break;
                }
                let Some((version, change)) = appended.pop_front() else { break };
                self.out.push_back(BrickOutput::Stored { version, change });
            }
        }
        Ok(())
    }

    // -------------------------------------------------------------------------------------------- outputs

    fn nodes(&self) -> Vec<NodeId> {
        self.served.keys().copied().collect()
    }

    fn driver_mut(&mut self, node: NodeId) -> Option<&mut NodeDriver<C>> {
        self.served.get_mut(&node).map(|served| &mut served.driver)
    }

    /// Does what a driver wants done, and what comes of it at the other nodes of the brick.
    fn carry_out(&mut self, node: NodeId, now: Ms) {
        self.take_outputs(node);
        while let Some(local) = self.local.pop_front() {
            let (to, driver) = match &local {
                Local::Ask { to, .. } | Local::Answer { to, .. } | Local::Deferred { to, .. } => {
                    (*to, self.driver_mut(*to))
                }
            };
            let Some(driver) = driver else { continue };
            match local {
                Local::Ask { from, seen, request, .. } => {
                    let handled = driver.handle_request(Requester::Node(from), request, seen, now);
                    assert!(handled.is_ok(), "C2: logical node {from} breaks the rules: {handled:?}");
                }
                Local::Answer { from, answer, .. } => driver.handle_answer(from, answer, now),
                Local::Deferred { message, .. } => driver.handle_deferred(&message),
            }
            self.take_outputs(to);
        }
    }

    fn take_outputs(&mut self, node: NodeId) {
        loop {
            let Some(output) = self.driver_mut(node).and_then(NodeDriver::next_output) else { return };
            match output {
                DriverOutput::AbortUpload(upload) => self.machine.store().abort_upload(upload),
                DriverOutput::SubmitRows { life, rows } => {
                    let submitter = Submitter::Driver { node, life };
                    self.unforced.push_back(UnforcedSubmission { submitter, rows });
                }
                DriverOutput::Send(to, message) => self.out.push_back(BrickOutput::Send(to, message)),
                DriverOutput::Ask { node: to, seen, request } if self.served.contains_key(&to) => {
                    self.local.push_back(Local::Ask { from: node, to, seen, request });
                }
                DriverOutput::Ask { node, seen, request } => {
                    self.out.push_back(BrickOutput::Ask { node, seen, request });
                }
                DriverOutput::Answer { to, answer } => self.local.push_back(Local::Answer { from: node, to, answer }),
                DriverOutput::Deferred { to, message } => self.local.push_back(Local::Deferred { to, message }),
                DriverOutput::RefreshSchema { space } => self.out.push_back(BrickOutput::RefreshSchema { space }),
                DriverOutput::Appended { version, change } => {
                    self.appended.entry(node).or_default().push_back((version, change));
                }
            }
        }
    }

    // -------------------------------------------------------------------------------------------- looking

    /// A page as the store shows it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn page(&self, page: PageId) -> Result<PageImage<Object>> {
        rows::read_page(&RowReader::new(self.machine.store()), page)
    }

    /// The version of a page as the store shows it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn version(&self, page: PageId) -> Result<Version> {
        Ok(rows::read_head(&RowReader::new(self.machine.store()), page)?.version)
    }

    /// The manager of logical nodes, for tests.
    #[cfg(test)]
    pub(crate) fn manager(&self) -> &NodeManager {
        &self.manager
    }

    /// The epoch under which a logical node is served here, if it is.
    #[must_use]
    pub fn served_epoch(&self, node: NodeId) -> Option<u64> {
        self.served.get(&node).map(|served| served.epoch)
    }

    /// Reads a range of a blob's bytes, as the brick does for a peer server; `None` if its content is not in the expected state.
    ///
    /// # Errors
    /// As the brick.
    pub fn read_content(&self, read: &ReadContent) -> Result<Option<Bytes>> {
        let unserved = || Error::new(ErrorKind::Unavailable, "the logical node is not served here");
        self.served.get(&read.oid.page().node).ok_or_else(unserved)?;
        let found = read_range(&self.machine.store().snapshot()?, read)?;
        Ok(match found.bytes {
            Some(RangeBytes::Bytes(bytes)) => Some(bytes),
            Some(RangeBytes::Pieces(_)) | None => None,
        })
    }

    /// Looks through extents or an index, as the brick does for a peer server.
    ///
    /// # Errors
    /// As the brick: [`ErrorKind::NotFound`](model::ErrorKind::NotFound) for an index that is not known,
    /// [`ErrorKind::Unavailable`](model::ErrorKind::Unavailable) for one that does not have all objects yet.
    pub fn scan(&self, wanted: &Scan) -> Result<Scanned> {
        let unserved = || Error::new(ErrorKind::Unavailable, "the logical node is not served here");
        let served = self.served.get(&wanted.node).ok_or_else(unserved)?;
        let mut scanned = scan(&self.machine.store(), wanted)?;
        if served.driver.has_unlisted_classes(wanted) {
            return Ok(Scanned { has_stale_classes: true, ..Scanned::default() });
        }
        // What was found was committed before.
        scanned.seen = served.driver.clock();
        Ok(scanned)
    }

    fn served(&self, node: NodeId) -> Result<&ServedNode<C>> {
        let unserved = || Error::new(ErrorKind::Unavailable, "the logical node is not served here");
        self.served.get(&node).ok_or_else(unserved)
    }

    /// Follows keys from a collection, as the brick does for a peer server.
    ///
    /// # Errors
    /// As the brick.
    pub fn look_up(&self, wanted: &LookUp) -> Result<LookedUp> {
        let served = self.served(wanted.node())?;
        let found = entries::look_up(&self.machine.store(), wanted)?;
        Ok(LookedUp { seen: served.driver.clock(), ..found })
    }

    /// Lists entries of a collection, as the brick does for a peer server.
    ///
    /// # Errors
    /// As the brick.
    pub fn list_entries(&self, wanted: &ListEntries) -> Result<EntryList> {
        let served = self.served(wanted.node())?;
        let found = entries::list(&self.machine.store(), wanted)?;
        Ok(EntryList { seen: served.driver.clock(), ..found })
    }

    /// Lists the entries that have a target, as the brick does for a peer server.
    ///
    /// # Errors
    /// As the brick.
    pub fn list_entries_of(&self, wanted: &ListEntriesOf) -> Result<EntriesOf> {
        self.served(wanted.node)?;
        entries::list_of(&self.machine.store(), wanted)
    }

    /// Whether a holder is in the directory of a page.
    #[must_use]
    pub fn is_listed(&self, page: PageId, holder: HolderId) -> bool {
        let served = self.served.get(&page.node);
        served.is_some_and(|served| served.driver.machine().directory().holders(page).any(|one| one == holder))
    }

    /// A transaction that is prepared at one of the logical nodes.
    #[must_use]
    pub fn any_prepared(&self) -> Option<TxnId> {
        self.served.values().find_map(|served| served.driver.machine().prepared().next())
    }

    /// Checks what must always hold of the logical nodes.
    ///
    /// # Errors
    /// The rule that does not hold, and where.
    pub fn check_invariants(&mut self) -> std::result::Result<(), String> {
        for (node, ServedNode { driver, .. }) in &mut self.served {
            driver.check_invariants()?;
            if let Some(why) = driver.failure() {
                return Err(format!("L1: logical node {node} cannot be served: {why}"));
            }
        }
        Ok(())
    }
}

/// The range of an index whose entries have this number as their first field.
#[must_use]
pub fn equal_range(index: u32, value: i64) -> IndexRange {
    let from = IndexEntry::new(&[ValueRef::Int64(value)]).key;
    let mut to = from.clone();
    to.push(0xff);
    IndexRange { index, from: from.into(), to: to.into(), reverse: false }
}

/// What a transaction relies on that has asked who has a value of a unique index.
#[must_use]
pub fn unique_question(space: SpaceId, node: NodeId, index: u32) -> Read {
    Read { oid: guards::of_question(space, node, index), seen: ReadVersion::At(Version::ZERO) }
}

impl<C> fmt::Debug for SimulatedBrick<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<&NodeId> = self.served.keys().collect();
        f.debug_struct("SimulatedBrick").field("nodes", &nodes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
