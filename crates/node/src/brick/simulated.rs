//! A brick for simulations of clusters: the drivers of its logical nodes and their manager on a simulated store, without threads,
//! clocks and sockets.
//!
//! [`SimulatedBrick`] does what [`Nodes`](super::nodes::Nodes) does in a process, and with the same code ([`super::routing`]): it carries
//! out the outputs of its drivers and passes messages between its own logical nodes. It also carries out the outputs of the manager in order.
//! Everything else is an output of its own. It differs in the store alone: rows wait until the caller forces them, and a crash loses or
//! tears what was not forced. A store that [applies rows at once](BrickSettings::applies_at_once) forces them at once instead.
//!
//! It also reports what no process knows: each change of a page, with its contents, once it is durable ([`BrickOutput::Stored`]).

mod effects;
mod managing;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use meta::catalog::Schema;
use model::{Error, ErrorKind, NodeId, Object, PageId, Result, SpaceId};
use protocol::clock::ClusterTime;
use protocol::commit::{Change, Request};
use protocol::ident::{HlcTimestamp, HolderId, TxnId, Version};
use protocol::lease::Ms;
use protocol::page_cache::PageImage;
use protocol::plant::{Bug as ProtocolBug, planted as planted_in_protocol};
use store::sim::{DiskImage, SimStore};
use store::{BaseIndex, ChangeTracker, Options, RowChanges};
use wire::cluster::{
    EntriesOf, EntryList, ListEntries, ListEntriesOf, LookUp, LookedUp, Message, ReadContent, Scan, Scanned,
};

use super::consistency::{NodeCheck, Place, Problem};
use super::content_reads::{RangeBytes, read_range};
use super::entries;
use super::node_driver::{Life, NodeDriver, PageRead};
use super::node_manager::{Finished, JobId, ManagerSettings, MoveLimits, NodeManager};
use super::page_rows as rows;
use super::routing::{self, Effects, HeldNode, LocalNodes, NodeEvent, carry_out, handle_event};
use super::row_reader::RowReader;
use super::scan::scan;
use crate::node_placement::{BrickId, PlacementSnapshot};
use effects::SimulatedEffects;
pub use managing::RemoteWork;
use protocol::validate::WindowLimits;

/// Bytes of the buffer and of a segment of the log: small, so that both are filled and reused.
const MOB_BYTES: usize = 256 << 10;
const SEGMENT_BYTES: u64 = 64 << 10;

fn options() -> Options {
    Options { mob_bytes: MOB_BYTES, segment_bytes: SEGMENT_BYTES, ..Options::default() }
}

/// Changes that were written and are not known to be durable: those of each logical node, in order. Logical nodes are independent of each
/// other: the store may refuse rows of one for lack of room and take later rows of another.
type AppendedChanges = BTreeMap<NodeId, VecDeque<(Version, Change<Object>)>>;

/// What is left of a brick that is not running: its disk, and the changes that it wrote and did not report as durable.
#[derive(Clone, Default)]
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
            changes.put(&rows::head_key(*page), rows::Head::default().encode());
            for (slot, object) in objects {
                changes.put(&rows::object_key(*page, *slot), rows::encode_object(object));
            }
        }
        if !pages.is_empty() {
            machine.store().commit_rows(changes)?;
        }
        Ok(Self { image: machine.crash(0), appended: AppendedChanges::new() })
    }

    /// The disk of a brick that is restored from a chain of archives and rolled forward by archives of changes: see [`SimulatedBrick::archive`] and
    /// [`SimulatedBrick::changes_since`].
    ///
    /// # Errors
    /// If an archive is damaged, or not the base of the next one.
    pub fn restore(chain: &[Vec<u8>], changes: &[Vec<u8>]) -> Result<Self> {
        Ok(Self { image: DiskImage::restore(chain, changes, options())?, appended: AppendedChanges::new() })
    }

    /// Makes a [damaged](SimulatedBrick::damage) page of the B-tree whole again.
    pub fn heal(&mut self) {
        self.image.heal();
    }
}

/// The index of an archive.
struct IndexPieces(VecDeque<Bytes>);

impl IndexPieces {
    fn of(mut archive: &[u8]) -> Result<Self> {
        let mut pieces = VecDeque::new();
        store::read_archive_index(&mut archive, &mut |piece| {
            pieces.push_back(Bytes::copy_from_slice(piece));
            Ok(())
        })?;
        Ok(Self(pieces))
    }
}

impl BaseIndex for IndexPieces {
    fn next_piece(&mut self) -> Result<Option<Bytes>> {
        Ok(self.0.pop_front())
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
    /// How many changes validation remembers (V3).
    pub windows: WindowLimits,
    /// Whether the store applies the rows of logical nodes at once, as that of a brick in memory does. They are durable then.
    pub applies_at_once: bool,
    /// Decides which pages are [read later](BrickOutput::Read), as if they were not in memory; `None` if all are read at once.
    pub cold_reads: Option<u64>,
    /// Whether transactions over several of its logical nodes commit in one phase (C5), as they do in a process; else they are prepared.
    pub commits_in_one_phase: bool,
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
    /// Read a page with [`SimulatedBrick::page`], at any time, and call [`SimulatedBrick::handle_page_read`] at any time after that.
    Read {
        /// The logical node.
        node: NodeId,
        /// Which page, and for whom.
        read: PageRead,
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

/// What the store has done with rows.
type Written = (Submitter, Result<()>);

/// Rows that the store does not have yet, as one change.
struct UnforcedRows {
    submitters: Vec<Submitter>,
    rows: RowChanges,
}

/// The driver of a logical node, and the epoch under which it is served.
struct ServedNode<C> {
    epoch: u64,
    driver: NodeDriver<C>,
}

impl<C> ServedNode<C> {
    fn as_held_node(&mut self) -> HeldNode<'_, C> {
        HeldNode { epoch: self.epoch, driver: &mut self.driver }
    }
}

/// A brick on a simulated store.
pub struct SimulatedBrick<C> {
    settings: BrickSettings,
    manager: NodeManager,
    served: BTreeMap<NodeId, ServedNode<C>>,
    /// Logical nodes that were closed and have rows in flight.
    closing: BTreeMap<NodeId, ServedNode<C>>,
    openings: u64,
    schemas: BTreeMap<SpaceId, Arc<Schema>>,
    time: ClusterTime,
    /// Of a backup that follows the brick from its start on.
    tracker: ChangeTracker,
    effects: SimulatedEffects<C>,
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
            settings,
            manager,
            served: BTreeMap::new(),
            closing: BTreeMap::new(),
            openings: 0,
            schemas: BTreeMap::new(),
            time: ClusterTime::default(),
            tracker: machine.track_changes(),
            effects: SimulatedEffects::new(machine, appended, settings),
        };
        brick.effects.report_durable()?;
        // The others are lost.
        brick.effects.appended.clear();
        Ok(brick)
    }

    /// Takes what is to be done next.
    pub fn next_output(&mut self) -> Option<BrickOutput<C>> {
        self.effects.out.pop_front()
    }

    // -------------------------------------------------------------------------------------------- inputs

    /// From now on, this is the time of the cluster (L2).
    pub fn set_time(&mut self, time: ClusterTime) {
        self.time = time;
        self.served.values_mut().for_each(|served| served.driver.set_time(time));
    }

    /// The largest bound of what was promised or closed at a logical node (V4).
    #[must_use]
    pub fn bound(&self) -> HlcTimestamp {
        self.served.values().map(|served| served.driver.bound()).max().unwrap_or_default()
    }

    /// The largest timestamp that a logical node has seen.
    #[must_use]
    pub fn clock(&self) -> HlcTimestamp {
        self.served.values().map(|served| served.driver.clock()).max().unwrap_or_default()
    }

    /// Applies a placement map.
    pub fn follow_map(&mut self, map: Arc<PlacementSnapshot>, now: Ms) {
        self.effects.now = now;
        self.manager.follow_map(map, now);
        self.carry_out_managed();
    }

    /// Handles messages of coordinators at other processes, or of holders, that arrive together on a connection.
    ///
    /// # Errors
    /// If no process that follows the rules sends one of them.
    pub fn handle_messages(&mut self, from: &C, messages: impl Iterator<Item = Message>, now: Ms) -> Result<()> {
        self.effects.now = now;
        let handled = routing::handle_messages(self, from, messages);
        self.handle_events();
        handled
    }

    /// Handles a message with which another brick answers one of the logical nodes here.
    ///
    /// # Errors
    /// If a brick does not send such a message to others.
    pub fn handle_brick_message(&mut self, message: &Message, now: Ms) -> Result<()> {
        self.effects.now = now;
        let handled = routing::handle_brick_message(self, message);
        self.handle_events();
        handled
    }

    /// The catalogue was asked for the classes of a space that a driver lacked, and the answer was applied with
    /// [`SimulatedBrick::set_schema`].
    pub fn handle_schema_refreshed(&mut self, space: SpaceId, now: Ms) {
        self.act_at_each(now, |driver| driver.on_schema_refreshed(space));
    }

    /// A page was read some time ago: see [`BrickOutput::Read`].
    pub fn handle_page_read(&mut self, node: NodeId, read: PageRead, found: Result<PageImage<Object>>, now: Ms) {
        self.effects.now = now;
        self.effects.add_event(NodeEvent::PageRead { node, read, found });
        self.handle_events();
    }

    /// A space has these classes and indexes now.
    pub fn set_schema(&mut self, space: SpaceId, schema: &Arc<Schema>, now: Ms) {
        self.act_at_each(now, |driver| driver.set_schema(space, schema, now));
        self.schemas.insert(space, schema.clone());
    }

    /// Does what it is time for.
    pub fn poll(&mut self, now: Ms) {
        self.act_at_each(now, |driver| {
            if driver.deadline() <= now {
                driver.poll(now);
            }
        });
        if self.manager.deadline() <= now {
            self.manager.poll(now);
            self.carry_out_managed();
        }
    }

    /// Calls `act` with the driver of each logical node, and carries out what it wants done.
    fn act_at_each(&mut self, now: Ms, mut act: impl FnMut(&mut NodeDriver<C>)) {
        self.effects.now = now;
        self.each_served(|one, effects| {
            act(one.driver);
            carry_out(std::slice::from_mut(one), effects);
        });
        self.handle_events();
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
        self.effects.unforced.len()
    }

    /// Makes the oldest submissions durable, or has them refused. The drivers hear of it by [`SimulatedBrick::handle_written`].
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn force(&mut self, count: usize) -> Result<()> {
        self.effects.submit_oldest(count);
        self.effects.force()
    }

    /// Tells the drivers and the manager what has become of their rows.
    pub fn handle_written(&mut self, now: Ms) {
        self.effects.now = now;
        for (submitter, result) in self.effects.take_written() {
            match submitter {
                Submitter::Driver { node, life } => self.effects.add_event(NodeEvent::Written { node, life, result }),
                Submitter::Write(job) => self.manager.finish(job, Finished::Written(result), now),
                Submitter::Remove(job, count) => {
                    self.manager.finish(job, Finished::Removed(result.map(|()| count)), now)
                }
            }
        }
        self.handle_events();
        self.carry_out_managed();
    }

    /// An archive of what is durable; with a base, of what has changed since.
    ///
    /// # Errors
    /// If the store or the base cannot be read.
    pub fn archive(&self, base: Option<&[u8]>) -> Result<Vec<u8>> {
        let (mut archive, snapshot) = (Vec::new(), self.effects.machine.store().snapshot()?);
        match base {
            None => snapshot.backup(&mut archive, &())?,
            Some(base) => snapshot.backup_increment(&mut IndexPieces::of(base)?, &mut archive, &())?,
        };
        Ok(archive)
    }

    /// The position of the log up to which everything is durable.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.effects.machine.store().position()
    }

    /// An archive of what has changed since a position; `None` if that was before the brick was started.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn changes_since(&self, position: u64) -> Result<Option<Vec<u8>>> {
        let (mut archive, snapshot) = (Vec::new(), self.effects.machine.store().snapshot()?);
        let Some(changes) = self.tracker.changes_since(position) else { return Ok(None) };
        snapshot.backup_changes(&changes, &mut archive, &())?;
        Ok(Some(archive))
    }

    /// Moves what is durable from the log to the B-tree, if there is room.
    ///
    /// # Errors
    /// If the disk has failed.
    pub fn install(&mut self) -> Result<()> {
        match self.effects.machine.install() {
            Err(error) if error.kind() != ErrorKind::Full => Err(error),
            _ => Ok(()),
        }
    }

    /// Lets the disk take only this number of bytes more; `None` removes the limit.
    pub fn set_room(&mut self, bytes: Option<u64>) {
        self.effects.machine.set_room(bytes);
    }

    /// Damages a page of the B-tree: its rows cannot be read any more, apart from those that are written after this. `seed` determines which page.
    /// Says whether there were rows.
    ///
    /// # Errors
    /// As [`SimulatedBrick::install`].
    pub fn damage(&mut self, seed: u64) -> Result<bool> {
        // What is not installed is in the buffer, which damage does not reach.
        self.install()?;
        Ok(self.effects.machine.damage(seed))
    }

    /// Makes the damaged page whole again.
    pub fn heal(&mut self) {
        self.effects.machine.heal();
    }

    /// Ends the brick by a power failure. Returns what is found on its disk.
    #[must_use]
    pub fn crash(self, image: CrashImage) -> SimulatedDisk {
        self.effects.crash(image)
    }

    /// Handles events, and those that they bring.
    fn handle_events(&mut self) {
        while !self.effects.events.is_empty() {
            let mut events = std::mem::take(&mut self.effects.events).into_iter().peekable();
            while let Some(event) = events.next() {
                handle_event(self, event, &mut events);
            }
        }
        // Rows may be refused at once, by a store that applies them at once.
        for node in std::mem::take(&mut self.effects.lost) {
            self.manager.reopen(node);
            self.carry_out_managed();
        }
    }

    // -------------------------------------------------------------------------------------------- looking

    /// A page as the store shows it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn page(&self, page: PageId) -> Result<PageImage<Object>> {
        rows::read_page(&RowReader::new(self.effects.machine.store()), page)
    }

    /// The version of a page in the store, even if it is damaged.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn version(&self, page: PageId) -> Result<Version> {
        effects::stored_version(&self.effects.machine, page)
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
        let found = read_range(&self.effects.machine.store().snapshot()?, read)?;
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
        let mut scanned = scan(&self.effects.machine.store(), wanted)?;
        if served.driver.has_unlisted_classes(wanted) {
            return Ok(Scanned { has_stale_classes: true, ..Scanned::default() });
        }
        // What was found was committed before.
        scanned.seen = served.driver.clock();
        Ok(scanned)
    }

    fn served_node(&self, node: NodeId) -> Result<&ServedNode<C>> {
        let unserved = || Error::new(ErrorKind::Unavailable, "the logical node is not served here");
        self.served.get(&node).ok_or_else(unserved)
    }

    /// Follows keys from a collection, as the brick does for a peer server.
    ///
    /// # Errors
    /// As the brick.
    pub fn look_up(&self, wanted: &LookUp) -> Result<LookedUp> {
        let served = self.served_node(wanted.node())?;
        let found = entries::look_up(&self.effects.machine.store(), wanted)?;
        served.driver.check_look_up(wanted.collection)?;
        Ok(LookedUp { seen: served.driver.clock(), ..found })
    }

    /// Lists entries of a collection, as the brick does for a peer server.
    ///
    /// # Errors
    /// As the brick.
    pub fn list_entries(&self, wanted: &ListEntries) -> Result<EntryList> {
        let served = self.served_node(wanted.node())?;
        let found = entries::list(&self.effects.machine.store(), wanted)?;
        Ok(EntryList { seen: served.driver.clock(), ..found })
    }

    /// Lists the entries that have a target, as the brick does for a peer server.
    ///
    /// # Errors
    /// As the brick.
    pub fn list_entries_of(&self, wanted: &ListEntriesOf) -> Result<EntriesOf> {
        self.served_node(wanted.node)?;
        entries::list_of(&self.effects.machine.store(), wanted)
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
        self.served.values().find_map(|served| served.driver.machine().prepared_txns().next())
    }

    /// The transactions that hold or wait for locks at the logical nodes and are not prepared.
    pub fn locking_txns(&self) -> impl Iterator<Item = TxnId> {
        self.served.values().flat_map(|served| served.driver.machine().locking_txns())
    }

    /// Checks that the rows of each logical node that is served agree with each other. Not checked is whether pages were reserved, and
    /// whether objects of entries exist: workloads use pages of their own choice, and bind names of objects that they delete.
    ///
    /// # Errors
    /// What contradicts what, and where.
    pub fn check_rows(&self) -> std::result::Result<(), String> {
        let store = self.effects.machine.store();
        for node in self.served.keys().copied() {
            let (check, mut found) =
                (NodeCheck { store: &store, node, is_unique: &|_, _| false, reads_contents: true }, Vec::new());
            let checked = check.run(Place::first(), |portion| {
                found.extend(portion.problems);
                ControlFlow::Continue(())
            });
            checked.map_err(|error| error.to_string())?;
            let is_wrong = |problem: &&Problem| {
                let is_free = matches!(problem, Problem::PageNotReserved { .. } | Problem::TargetMissing { .. });
                !is_free && !matches!(problem, Problem::CollectionMissing { .. })
            };
            if let Some(problem) = found.iter().find(is_wrong) {
                return Err(format!("{} at logical node {node}, {:?}: {problem}", problem.kind(), problem.object()));
            }
        }
        Ok(())
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

impl<C: Clone> LocalNodes for SimulatedBrick<C> {
    type Connection = C;
    type Effects = SimulatedEffects<C>;

    fn check_current(&self) -> Result<()> {
        match self.time.is_trusted || planted_in_protocol(ProtocolBug::ServesOutsideSkew) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Unavailable, "the clock of the brick is wrong")),
        }
    }

    fn with_served<T>(
        &mut self,
        nodes: &[NodeId],
        act: impl FnOnce(&mut [HeldNode<'_, C>], &mut Self::Effects) -> T,
    ) -> T {
        let served = self.served.iter_mut().filter(|(node, _)| nodes.contains(node));
        let mut all: Vec<HeldNode<'_, C>> = served.map(|(_, one)| one.as_held_node()).collect();
        act(&mut all, &mut self.effects)
    }

    fn each_served(&mut self, mut act: impl FnMut(&mut HeldNode<'_, C>, &mut Self::Effects)) {
        let sound = self.served.values_mut().filter(|one| one.driver.failure().is_none());
        sound.for_each(|one| act(&mut one.as_held_node(), &mut self.effects));
    }

    fn with_writing(&mut self, node: NodeId, act: impl FnOnce(&mut HeldNode<'_, C>, &mut Self::Effects)) {
        if let Some(one) = self.closing.get_mut(&node).or_else(|| self.served.get_mut(&node)) {
            act(&mut one.as_held_node(), &mut self.effects);
        }
    }
}

impl<C> fmt::Debug for SimulatedBrick<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<&NodeId> = self.served.keys().collect();
        f.debug_struct("SimulatedBrick").field("nodes", &nodes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
