//! Bricks: the driver that ships around a logical node, on a simulated store.
//!
//! Members of replica groups, and the bricks of scenarios with `bare`, are machines without the driver: see [`super::brick`].

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use model::{ClassId, Error, ErrorKind, NodeId, Object, Oid, PageId, RecordRef};
use node::drivers::brick::{BrickOutput, BrickSettings, CrashImage, PageRead, SimulatedBrick, SimulatedDisk};
use protocol::commit::Request;
use protocol::cut::{CutNumber, CutParticipant, Run};
use protocol::ident::{HlcTimestamp, Version};
use protocol::page_cache::PageImage;
use protocol::tree::Down;
use query::key::IndexEntry;
use wire::cluster::{IndexRange, Message, ReadContent, Scan, Scanned};

use super::cuts::CutPart;
use super::disk::{Objects, Page};
use super::event::Event;
use super::net::{Datagram, LinkId, Pid};
use super::process::ProcessMachine;
use super::schema::SetIndex;
use super::{RunFailure, World};
use crate::object::whole_index;
use crate::plan::{Key, ProcessName, SPACE};

/// The longest time between the end of a force and the moment when the driver hears of it, in milliseconds.
const MAX_REPORT_DELAY_MS: u64 = 3;
/// How long a brick is busy at most before it handles a request, in milliseconds.
const MAX_BUSY_MS: u64 = 3;
/// The longest time until a page that is not in memory is read, and until the driver has it, in milliseconds.
const MAX_COLD_MS: u64 = 8;
/// Entries in an answer of a scan: few, so that a scan takes several.
const SCAN_LIMIT: u32 = 3;

/// Where a brick sends messages: to a process, and over the connection if it is that of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BrickClient {
    pid: Pid,
    link: Option<LinkId>,
}

/// A brick.
pub(super) struct DrivenBrick {
    pub(super) brick: SimulatedBrick<BrickClient>,
    /// The number of submissions that the force under way makes durable.
    forcing: Option<usize>,
    /// Messages that have arrived while the brick was busy, and their senders. It handles them together.
    arrived: Vec<(BrickClient, Message)>,
    /// When its log is held for a cut, who asked for that, and the part of the last cut.
    pub(super) cuts: CutParticipant,
    pub(super) asked_cut: Option<(Pid, CutNumber)>,
    pub(super) part: Option<CutPart>,
}

impl DrivenBrick {
    /// Starts a brick on a disk.
    ///
    /// # Errors
    /// If the store has lost what was durable.
    pub(super) fn open(disk: SimulatedDisk, settings: BrickSettings) -> model::Result<Self> {
        let cuts = CutParticipant::new(Run(settings.first_job));
        let brick = SimulatedBrick::open(disk, settings)?;
        Ok(Self { brick, forcing: None, arrived: Vec::new(), cuts, asked_cut: None, part: None })
    }

    /// Whether no force is under way.
    pub(super) fn is_still(&self) -> bool {
        self.forcing.is_none()
    }

    /// A disk with the initial pages of a run.
    ///
    /// # Errors
    /// If the store takes no rows.
    pub(super) fn disk(pages: &BTreeMap<PageId, Page>) -> model::Result<SimulatedDisk> {
        let objects = pages.iter().map(|(page, state)| (*page, (*state.objects).clone()));
        SimulatedDisk::with_objects(&objects.collect())
    }

    /// The version of a page; that of a page without changes if it cannot be read, which then differs from the oracle's.
    pub(super) fn version(&self, page: PageId) -> Version {
        self.brick.version(page).unwrap_or_default()
    }

    /// The objects of a page; none if it cannot be read, which then differs from the oracle's.
    pub(super) fn objects(&self, page: PageId) -> Objects {
        Rc::new(self.brick.page(page).map(|image| image.objects).unwrap_or_default())
    }

    /// Power fails: the first `kept` submissions are durable. If there are such, the force of the next ones is torn.
    pub(super) fn crash(self, kept: usize, seed: u64) -> SimulatedDisk {
        self.brick.crash(CrashImage { kept, is_torn: kept > 0, seed })
    }
}

impl World {
    fn driven_brick_mut(&mut self, pid: Pid) -> Option<&mut DrivenBrick> {
        match &mut self.processes[pid].machine {
            Some(ProcessMachine::Driven(driven)) => Some(driven),
            _ => None,
        }
    }

    /// Calls a function with a brick that is up and has a driver.
    pub(super) fn with_driven(&mut self, pid: Pid, act: impl FnOnce(&mut DrivenBrick, u64)) {
        let now = self.local_time(pid);
        if let Some(driven) = self.driven_brick_mut(pid) {
            act(driven, now);
        }
    }

    /// The brick at which a logical node is placed, if it is up and has a driver.
    pub(super) fn driven_brick(&self, node: NodeId) -> Option<&DrivenBrick> {
        match &self.processes[*self.serving.get(&node)?].machine {
            Some(ProcessMachine::Driven(driven)) => Some(driven),
            _ => None,
        }
    }

    /// A coordinator asks. The brick may be busy for a while; it handles the messages together that have arrived then.
    pub(super) fn handle_driven_ask(&mut self, (from, pid): (Pid, Pid), message: Message) {
        if let Message::Ask { node, request, .. } = &message {
            self.oracle.record_request(*node, request);
        }
        let Some(driven) = self.driven_brick_mut(pid) else { return };
        driven.arrived.push((BrickClient { pid: from, link: None }, message));
        if driven.arrived.len() > 1 {
            return;
        }
        let (_, slowest) = self.net.noise.delay_ms;
        match self.net.chance(pid, (0, MAX_BUSY_MS.min(slowest - slowest.min(1)))) {
            0 => self.handle_waiting(pid),
            busy => self.push(self.now + busy, Event::Arrived(pid, self.processes[pid].incarnation)),
        }
    }

    /// A holder says something. It does not overtake what it has asked before.
    pub(super) fn handle_driven_up(&mut self, (from, link, pid): (Pid, LinkId, Pid), message: Message) {
        let Some(driven) = self.driven_brick_mut(pid) else { return };
        driven.arrived.push((BrickClient { pid: from, link: Some(link) }, message));
        if driven.arrived.len() == 1 {
            self.handle_waiting(pid);
        }
    }

    /// A brick is not busy any more.
    pub(super) fn handle_arrived(&mut self, pid: Pid, life: u64) {
        if self.processes[pid].incarnation == life {
            self.handle_waiting(pid);
            self.drain_process(pid);
        }
    }

    /// Handles the messages that have arrived, those of each sender together and in their order.
    fn handle_waiting(&mut self, pid: Pid) {
        let now = self.local_time(pid);
        let Some(driven) = self.driven_brick_mut(pid) else { return };
        let mut arrived = std::mem::take(&mut driven.arrived);
        arrived.sort_by_key(|(from, _)| from.pid);
        let mut all = Vec::new();
        let mut arrived = arrived.into_iter().peekable();
        while let Some((from, message)) = arrived.next() {
            let behind = std::iter::from_fn(|| Some(arrived.next_if(|(next, _)| *next == from)?.1));
            let together: Vec<Message> = std::iter::once(message).chain(behind).collect();
            all.push((from.pid, driven.brick.handle_messages(&from, together.into_iter(), now)));
        }
        all.into_iter().for_each(|(from, handled)| self.expect_served((from, pid), handled));
    }

    /// A force has ended. The driver hears of it soon; meanwhile the store shows what has become durable.
    pub(super) fn handle_driven_forced(&mut self, pid: Pid) {
        let Some(driven) = self.driven_brick_mut(pid) else { return };
        let Some(count) = driven.forcing.take() else { return };
        if let Err(error) = driven.brick.force(count) {
            self.oracle.report(format!("L1: {} cannot be read: {error}", self.processes[pid].place));
        }
        self.take_asked_part(pid);
        let (_, slowest) = self.net.noise.delay_ms;
        let late = self.net.chance(pid, (0, MAX_REPORT_DELAY_MS.min(slowest - slowest.min(1))));
        let life = self.processes[pid].incarnation;
        self.push(self.now + late, Event::Written(pid, life));
        self.drain_process(pid);
    }

    /// A driver hears what has become of its rows.
    pub(super) fn handle_driven_written(&mut self, pid: Pid, life: u64) {
        if self.processes[pid].incarnation != life {
            return;
        }
        let now = self.local_time(pid);
        if let Some(driven) = self.driven_brick_mut(pid) {
            driven.brick.handle_written(now);
        }
        self.drain_process(pid);
    }

    /// A thread of a brick reads a page that was not in memory. Its driver gets the page later.
    pub(super) fn read_cold_page(&mut self, pid: Pid, life: u64, node: NodeId, read: PageRead) {
        if self.processes[pid].incarnation != life {
            return;
        }
        let Some(driven) = self.driven_brick_mut(pid) else { return };
        let found = Rc::new(driven.brick.page(read.page()));
        let late = self.net.chance(pid, (0, MAX_COLD_MS));
        self.push(self.now + late, Event::ColdPageRead(pid, life, node, read, found));
    }

    /// The driver of a logical node gets a page that was read some time ago.
    pub(super) fn complete_cold_read(
        &mut self,
        pid: Pid,
        life: u64,
        (node, read): (NodeId, PageRead),
        found: &model::Result<PageImage<Object>>,
    ) {
        if self.processes[pid].incarnation != life {
            return;
        }
        let now = self.local_time(pid);
        if let Some(driven) = self.driven_brick_mut(pid) {
            let found = found.as_ref().cloned().map_err(|error| Error::new(error.kind(), error.message()));
            driven.brick.handle_page_read(node, read, found, now);
        }
        self.drain_process(pid);
    }

    /// Moves what is durable from the log to the B-tree.
    pub(super) fn install_driven(&mut self, pid: Pid) {
        let Some(driven) = self.driven_brick_mut(pid) else { return };
        if let Err(error) = driven.brick.install() {
            self.oracle.report(format!("L1: {} cannot install: {error}", self.processes[pid].place));
        }
    }

    /// The disk of a brick takes only this number of bytes more.
    pub(super) fn set_room(&mut self, number: usize, bytes: Option<u64>) {
        if let Some(pid) = self.pid(ProcessName::Brick(number)) {
            self.set_room_of(pid, bytes);
        }
    }

    pub(super) fn set_room_of(&mut self, pid: Pid, bytes: Option<u64>) {
        if let Some(driven) = self.driven_brick_mut(pid) {
            driven.brick.set_room(bytes);
        }
    }

    /// A page of the B-tree of a brick is damaged, or whole again. A brick that could not be started can be then.
    pub(super) fn set_damage(&mut self, number: usize, seed: Option<u64>) {
        let Some(pid) = self.pid(ProcessName::Brick(number)) else { return };
        match seed {
            Some(seed) => self.damage_brick(pid, number, seed),
            None => {
                self.heal_damage_of(pid);
                if std::mem::take(&mut self.processes[pid].is_refused) {
                    self.restart(ProcessName::Brick(number));
                }
            }
        }
    }

    fn damage_brick(&mut self, pid: Pid, number: usize, seed: u64) {
        let Some(driven) = self.driven_brick_mut(pid) else { return };
        match driven.brick.damage(seed) {
            Ok(true) => {
                self.count.damaged += 1;
                self.rejections.note_damage(number, self.now);
            }
            Ok(false) => {}
            Err(error) => self.oracle.report(format!("L1: {} cannot install: {error}", self.processes[pid].place)),
        }
    }

    /// Whether a page of the B-tree of this process is damaged.
    pub(super) fn is_damaged_brick(&self, pid: Pid) -> bool {
        matches!(self.processes[pid].place, ProcessName::Brick(number) if self.rejections.is_damaged(number))
    }

    pub(super) fn heal_damage_of(&mut self, pid: Pid) {
        if let Some(disk) = &mut self.processes[pid].driven_disk {
            disk.heal();
        }
        if let Some(driven) = self.driven_brick_mut(pid) {
            driven.brick.heal();
        }
    }

    pub(super) fn drain_driven(&mut self, pid: Pid) {
        self.refresh_placement(pid);
        while let Some(output) = self.driven_brick_mut(pid).and_then(|driven| driven.brick.next_output()) {
            match output {
                BrickOutput::Stored { version, change } => {
                    self.check_permitted_change(&change);
                    self.oracle.record_stored(version, change);
                }
                BrickOutput::Ask { node, seen, request } => self.ask_other_brick(pid, node, request, seen),
                BrickOutput::Read { node, read } => {
                    let late = self.net.chance(pid, (0, MAX_COLD_MS));
                    let life = self.processes[pid].incarnation;
                    self.push(self.now + late, Event::ColdRead(pid, life, node, read));
                }
                BrickOutput::RefreshSchema { .. } => self.refresh_schema(pid),
                BrickOutput::Work { job, node, work } => self.begin_remote_work(pid, job, node, work),
                BrickOutput::Send(to, message) => self.send_from_brick(pid, to, message),
            }
        }
        let (now, force_ms) = (self.now, self.processes[pid].force_ms);
        let Some(driven) = self.driven_brick_mut(pid) else { return };
        let invariants = driven.brick.check_invariants();
        let unforced = driven.brick.unforced_count();
        // A store that holds for a cut forces nothing.
        let begins = driven.forcing.is_none() && unforced > 0 && !driven.cuts.is_holding();
        if begins {
            driven.forcing = Some(unforced);
            let life = self.processes[pid].incarnation;
            self.push(now + force_ms, Event::Forced(pid, life));
        }
        self.oracle.expect_invariants(invariants);
        self.check_one_server(pid);
        self.check_time(pid);
    }

    /// Sends a question of a logical node to the brick that serves another one, by the map of its own brick.
    fn ask_other_brick(&mut self, pid: Pid, node: NodeId, request: Request<Object>, seen: HlcTimestamp) {
        let Some(place) = self.processes[pid].placement.nodes.get(&node).copied() else { return };
        if let Some(to) = self.brick_pid(place.brick) {
            let message = Message::Ask { node, epoch: place.epoch, seen, request };
            self.send_datagram(pid, to, Datagram::Cluster(message));
        }
    }

    fn send_from_brick(&mut self, pid: Pid, to: BrickClient, message: Message) {
        match (&message, to.link) {
            (Message::Down { message: down, .. }, Some(link)) => {
                match down {
                    Down::Settled { write } => self.check_settled(*write),
                    Down::Invalidate { message, .. } => self.oracle.check_invalidation(message),
                    _ => {}
                }
                if self.net.links[link].alive {
                    let at = self.net.put(link, false, message, self.now);
                    self.push(at, Event::Deliver(link, false));
                }
            }
            (Message::Answer { node, answer, .. }, _) => {
                self.check_refusal(*node, answer);
                self.check_vote(pid, answer);
                self.send_datagram(pid, to.pid, Datagram::Cluster(message));
            }
            _ => self.send_datagram(pid, to.pid, Datagram::Cluster(message)),
        }
    }

    /// All members of a set, from the brick that has them, with what a transaction relies on that has read them. `None` if the brick is down. By its number, a query uses the extent or one of the indexes in one of the directions, if
    /// that has all members.
    pub(super) fn scan_set(&self, guard: Key, number: u64) -> Option<Scanned> {
        let node = guard.page().node;
        let brick = &self.driven_brick(node)?.brick;
        let class = guard.set_class();
        let indexes = self.schema.indexes_of(class);
        let classes: Vec<ClassId> = self.schema.family(class).collect();
        let range = indexes.get((number % 4) as usize).map(|index| whole_index(*index, number % 8 < 4));
        // Not all members may be in the index yet.
        let indexed = range.and_then(|range| scan_all(brick, node, &classes, Some(range)));
        indexed.or_else(|| scan_all(brick, node, &classes, None))
    }

    /// Reads the bytes of a content at the brick that serves it; `None` if it is in another state.
    ///
    /// # Errors
    /// If the brick is down, or does not serve the logical node.
    pub(super) fn read_at_brick(&self, read: &ReadContent) -> model::Result<Option<Bytes>> {
        let down = || Error::new(ErrorKind::Unavailable, "the brick is down");
        self.driven_brick(read.oid.page().node).ok_or_else(down)?.brick.read_content(read)
    }

    /// An object with its bytes, wherever they are.
    pub(super) fn with_bytes(&self, key: Key, object: Object) -> Object {
        let Some(content) = object.content() else { return object };
        let expected = Some((content.id, content.generation));
        let read = ReadContent { oid: key.oid(), offset: 0, length: content.size as u32, expected };
        match self.read_at_brick(&read) {
            Ok(Some(bytes)) => object.with_data(bytes),
            // The checkers miss what was in it.
            Ok(None) | Err(_) => object.with_data(Bytes::new()),
        }
    }

    /// The extent and every index of every class of a node have the objects that there are.
    pub(super) fn check_sets(&self, node: NodeId) -> Result<(), RunFailure> {
        let Some(driven) = self.driven_brick(node) else { return Ok(()) };
        let mut expected: BTreeMap<ClassId, BTreeSet<Oid>> = BTreeMap::new();
        for page in self.oracle.pages_of(node) {
            for (slot, object) in self.oracle.newest(page).into_iter().flat_map(|objects| objects.iter()) {
                let oid = Oid::new(object.class, page, *slot);
                expected.entry(object.class).or_default().insert(oid);
            }
        }
        for spec in self.schema.indexes() {
            let class = spec.class;
            let classes: Vec<ClassId> = self.schema.family(class).collect();
            let expected: BTreeSet<Oid> =
                classes.iter().filter_map(|class| expected.get(class)).flatten().copied().collect();
            for range in [None, Some(whole_index(spec.index, false))] {
                let index = range.as_ref().map(|range| range.index);
                let Some(scanned) = scan_all(&driven.brick, node, &classes, range) else {
                    return Err(RunFailure::Rule(format!("I: index {} of {node:?} is never complete", spec.index)));
                };
                let count = scanned.found.len();
                let found: BTreeSet<Oid> = scanned.found.into_iter().map(|(oid, ..)| oid).collect();
                if found != expected || count != expected.len() {
                    return Err(RunFailure::Rule(format!(
                        "I: index {index:?} of class {} at {node:?} has {found:?}, and there is {expected:?}",
                        class.0
                    )));
                }
                if index.is_some() {
                    self.check_keys(&driven.brick, node, *spec, &classes)?;
                }
            }
        }
        self.check_dropped_indexes(&driven.brick, node)
    }
}

impl World {
    /// No brick has an index that there is no more (T3).
    fn check_dropped_indexes(&self, brick: &SimulatedBrick<BrickClient>, node: NodeId) -> Result<(), RunFailure> {
        let has = |spec: &&SetIndex| {
            let classes: Vec<ClassId> = self.schema.family(spec.class).collect();
            scan_all(brick, node, &classes, Some(whole_index(spec.index, false))).is_some()
        };
        match self.schema.dropped_indexes().iter().find(has) {
            Some(spec) => {
                let what = format!("T3: index {} was removed, and logical node {} has it", spec.index, node.0);
                Err(RunFailure::Rule(what))
            }
            None => Ok(()),
        }
    }

    /// Every object is in an index under the values that it has (T3).
    fn check_keys(
        &self,
        brick: &SimulatedBrick<BrickClient>,
        node: NodeId,
        spec: SetIndex,
        classes: &[ClassId],
    ) -> Result<(), RunFailure> {
        for page in self.oracle.pages_of(node) {
            let objects = self.oracle.newest(page).into_iter().flat_map(|objects| objects.iter());
            for (slot, object) in objects.filter(|(_, object)| classes.contains(&object.class)) {
                let oid = Oid::new(object.class, page, *slot);
                let entry = RecordRef::new(&object.data).and_then(|record| IndexEntry::of(&record, &[spec.field]));
                let Ok(IndexEntry { key, .. }) = entry else { continue };
                let to = [&key[..], &[0xff]].concat().into();
                let range = IndexRange { index: spec.index, from: key.into(), to, reverse: false };
                let found = scan_all(brick, node, classes, Some(range)).unwrap_or_default().found;
                if !found.iter().any(|(one, ..)| *one == oid) {
                    let what = format!("T3: index {} does not have {oid} under the value that it has", spec.index);
                    return Err(RunFailure::Rule(what));
                }
            }
        }
        Ok(())
    }
}

/// Scans an extent or a range of an index, answer after answer. `None` if the index does not have all objects, or is not known.
pub(super) fn scan_all(
    brick: &SimulatedBrick<BrickClient>,
    node: NodeId,
    classes: &[ClassId],
    range: Option<IndexRange>,
) -> Option<Scanned> {
    let mut wanted = Scan {
        space: SPACE,
        node,
        epoch: 0,
        classes: classes.iter().copied().collect(),
        range,
        after: None,
        limit: SCAN_LIMIT,
        filter: None,
        count: false,
        family: None,
    };
    let mut all = Scanned::default();
    loop {
        let scanned = brick.scan(&wanted).ok()?;
        all.found.extend(scanned.found);
        all.guards.extend(scanned.guards);
        all.seen = scanned.seen.max(all.seen);
        wanted.after = scanned.next;
        if wanted.after.is_none() {
            return Some(all);
        }
    }
}
