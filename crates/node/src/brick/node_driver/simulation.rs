//! Simulates a brick with two logical nodes from a seed: the shipped drivers over a simulated store, in one thread.
//!
//! A run does random things: transactions of one and of both nodes that read objects, scan extents and indexes, insert unique values,
//! look up, list and change entries of collections, and write; indexes that come and go; reservations; forces, installations, a disk that is full for a while, and crashes that lose or tear
//! what was not forced, also in the middle of a force; and, in runs of their own, a [page](damage) that cannot be read for a while. Messages are lost, repeated and reordered. Then everything is healed, and
//! [`history`] judges what was seen:
//!
//! - V1, V2, V4, G: in the order of commit timestamps, each committed transaction has read and scanned what those before it wrote.
//! - L1, C3: what was committed is there after crashes, what was not is not, and each transaction is applied once.
//! - S: contents have the bytes that were committed; each is that of one object, or staged, and a staged one is freed after its lease.
//! - collections have the entries that were committed, also from their targets, and count them.
//! - extents and indexes have the objects that there are; unique values are unique; page numbers are handed out once.
//!
//! Every mistake that can be planted in the driver must be noticed ([`planted`]).

mod cloning;
mod collections;
mod damage;
mod history;
mod planted;
mod workload;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use model::{ContentId, NodeId, Object, Result, SpaceId};
use protocol::commit::{Answer, Request};
use protocol::ident::HlcTimestamp;
use protocol::lease::Ms;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use store::sim::{DiskImage, SimStore};
use store::{Options, Store};
use wire::cluster::Message;

use super::staging::STAGING_LEASE_MS;
use super::{DriverOutput, Life, NodeDriver, OpenSettings, Requester, Reservation};
use crate::brick::consistency::{NodeCheck, Place, Problem};
use crate::brick::indexes::IndexSpec;
use crate::brick::page_rows::{self as rows, Rows};
use crate::brick::row_reader::RowReader;
use damage::Damage;
use history::History;
use workload::RunningTxn;

const SPACE: SpaceId = SpaceId(1);
const NODES: [NodeId; 2] = [NodeId(3), NodeId(4)];
const SKEW_MS: u64 = 5_000;
/// How long everything may take to end when nothing fails any more.
const MAX_QUIESCE_ROUNDS: u32 = 3_000;

/// The runs of the suite.
const SEEDS: std::ops::Range<u64> = 0..60;

/// Why a run is not correct.
type Violation = String;
type Checked = std::result::Result<(), Violation>;

/// A message under way. `from` is the logical node that asks, if it is not a coordinator.
#[derive(Clone, Debug)]
enum Packet {
    Request { from: Option<NodeId>, to: NodeId, seen: HlcTimestamp, request: Request<Object> },
    Answer { from: NodeId, to: Option<NodeId>, answer: Answer },
}

/// What the store has done with rows.
#[derive(Debug)]
enum Written {
    Rows { node: NodeId, life: Life, result: Result<()> },
    Reservation { node: NodeId, first: u64, pages: u64, result: Result<()> },
    Staged { id: ContentId, bytes: Bytes, is_durable: bool },
}

/// The brick and its clients.
struct World {
    rng: StdRng,
    now: Ms,
    machine: SimStore,
    /// The results of this start of the machine that were not handled yet.
    written: Arc<Mutex<Vec<Written>>>,
    openings: u64,
    drivers: BTreeMap<NodeId, NodeDriver<()>>,
    packets: Vec<Packet>,
    running: Vec<RunningTxn>,
    /// Contents that were staged, with their bytes.
    staged: Vec<(ContentId, Bytes)>,
    transactions: u64,
    specs: Vec<IndexSpec>,
    /// The number of the last index that has come.
    indexes: u32,
    is_full: bool,
    crashes: u32,
    damage: Damage,
    history: History,
}

fn options() -> Options {
    Options { mob_bytes: 64 << 10, segment_bytes: 16 << 10, ..Options::default() }
}

impl World {
    fn new(seed: u64) -> std::result::Result<Self, Violation> {
        let machine = SimStore::open(DiskImage::default(), options()).map_err(|error| error.to_string())?;
        let mut world = Self {
            rng: StdRng::seed_from_u64(seed),
            now: 1_000_000,
            machine,
            written: Arc::default(),
            openings: 0,
            drivers: BTreeMap::new(),
            packets: Vec::new(),
            running: Vec::new(),
            staged: Vec::new(),
            transactions: 0,
            specs: workload::specs(None),
            indexes: 100,
            is_full: false,
            crashes: 0,
            damage: Damage::default(),
            history: History::default(),
        };
        world.open_drivers()?;
        Ok(world)
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn reader(&self) -> RowReader {
        RowReader::new(self.machine.store())
    }

    fn open_drivers(&mut self) -> Checked {
        for node in NODES {
            self.open_driver(node).map_err(|error| format!("node {node} cannot be opened: {error}"))?;
        }
        Ok(())
    }

    fn open_driver(&mut self, node: NodeId) -> Result<()> {
        let rows = NodeDriver::<()>::opening_rows(node, &self.reader())?;
        let is_new = rows.is_some();
        if let Some(rows) = rows {
            self.machine.store().commit_rows(rows)?;
        }
        self.openings += 1;
        let settings = OpenSettings {
            node,
            moves: 0,
            skew_ms: SKEW_MS,
            windows: super::WINDOWS,
            portion: super::PortionLimits::SMALL,
            upload_lease_ms: STAGING_LEASE_MS,
            opening: self.openings,
            is_new,
        };
        let mut driver = NodeDriver::open(settings, self.reader(), Arc::default(), self.now)?;
        driver.set_indexes(SPACE, &self.specs, self.now);
        self.drivers.insert(node, driver);
        self.carry_out(node);
        Ok(())
    }

    /// Does what a driver wants done.
    fn carry_out(&mut self, node: NodeId) {
        let Some(driver) = self.drivers.get_mut(&node) else { return };
        while let Some(output) = driver.next_output() {
            match output {
                DriverOutput::SubmitRows { life, rows } => {
                    let written = self.written.clone();
                    self.machine.store().submit_rows(rows, move |result| {
                        written.lock().unwrap().push(Written::Rows { node, life, result: result.map(drop) });
                    });
                }
                DriverOutput::Send((), Message::Answer { node, answer, .. }) => {
                    self.packets.push(Packet::Answer { from: node, to: None, answer });
                }
                DriverOutput::Answer { to, answer } => {
                    self.packets.push(Packet::Answer { from: node, to: Some(to), answer });
                }
                DriverOutput::Ask { node: to, seen, request } => {
                    self.packets.push(Packet::Request { from: Some(node), to, seen, request });
                }
                DriverOutput::Send((), Message::Deferred { txn, why, .. }) => self.history.add_deferred(txn, why),
                // A coordinator asks again by itself.
                DriverOutput::Send(..) | DriverOutput::Deferred { .. } | DriverOutput::RefreshSchema { .. } => {}
                // There are no holders.
                DriverOutput::ReadPage(_) => {}
                DriverOutput::Reopen => panic!("L1: no rows of a one-phase commit were submitted"),
                DriverOutput::AbortUpload(upload) => self.machine.store().abort_upload(upload),
                #[cfg(any(test, feature = "sim"))]
                DriverOutput::Appended { .. } => {}
            }
        }
    }

    /// Does something with a driver, and what it wants done.
    fn act(&mut self, node: NodeId, act: impl FnOnce(&mut NodeDriver<()>, Ms)) -> Checked {
        let now = self.now;
        let Some(driver) = self.drivers.get_mut(&node) else { return Ok(()) };
        act(driver, now);
        driver.machine.check_invariants().map_err(|why| format!("node {node}: {why}"))?;
        if let Some(why) = driver.failure() {
            return Err(format!("node {node} cannot be served: {why}"));
        }
        self.carry_out(node);
        Ok(())
    }

    // -------------------------------------------------------------------------------------------- what happens

    /// One random thing.
    fn step(&mut self) -> Checked {
        self.now += self.rng.random_range(0..15);
        self.change_damage();
        match self.rng.random_range(0..100) {
            0..18 if self.running.len() < 8 => self.begin_txn()?,
            0..50 => self.deliver_any()?,
            50..70 => self.force()?,
            70..73 => drop(self.machine.install()),
            73..88 => self.poll()?,
            88..90 => self.reserve()?,
            90..91 => self.upload()?,
            91..94 => self.change_indexes()?,
            94..96 => self.change_room(),
            96..97 => self.squeeze()?,
            97..98 => self.crash()?,
            98..99 => self.upload()?,
            _ if self.chance(5) => self.now += STAGING_LEASE_MS,
            _ => self.now += 250,
        }
        Ok(())
    }

    fn deliver_any(&mut self) -> Checked {
        if self.packets.is_empty() {
            return Ok(());
        }
        let at = self.rng.random_range(0..self.packets.len());
        let packet = self.packets.swap_remove(at);
        if self.chance(8) {
            self.packets.push(packet.clone());
        }
        if self.chance(4) {
            return Ok(());
        }
        self.deliver(packet)
    }

    fn deliver(&mut self, packet: Packet) -> Checked {
        match packet {
            Packet::Request { from, to, seen, request } => {
                let from = from.map_or(Requester::Remote(()), Requester::Node);
                let new = match &request {
                    Request::Prepare { txn, .. } | Request::Commit { txn, .. } => Some(*txn),
                    _ => None,
                };
                let mut taken_without_room = false;
                self.act(to, |driver, now| {
                    let new = new.filter(|txn| driver.writer.full_error().is_some() && !driver.machine.knows(*txn));
                    driver.handle_request(from, request, seen, now).expect("coordinators follow the rules");
                    taken_without_room = new.is_some_and(|txn| driver.machine.knows(txn));
                })?;
                if taken_without_room {
                    return Err(format!("node {to} takes a transaction in though the store takes no rows"));
                }
                Ok(())
            }
            Packet::Answer { from, to: Some(to), answer } => {
                self.act(to, |driver, now| driver.handle_answer(from, answer, now))
            }
            Packet::Answer { from, to: None, answer } => self.answer_txn(from, answer),
        }
    }

    /// Forces the store, and handles what it has done now or later.
    fn force(&mut self) -> Checked {
        while self.machine.is_install_wanted() && !self.is_full && self.machine.install().is_ok() {}
        // A store without room says so to those who have submitted rows.
        drop(self.machine.force());
        if self.chance(70) { self.handle_written() } else { Ok(()) }
    }

    fn handle_written(&mut self) -> Checked {
        let written = std::mem::take(&mut *self.written.lock().unwrap());
        for written in written {
            match written {
                Written::Rows { node, life, result } => {
                    self.act(node, |driver, now| driver.handle_written(life, result, now))?;
                }
                Written::Staged { id, bytes, is_durable } => {
                    if is_durable {
                        self.staged.push((id, bytes));
                    }
                    self.act(id.node(), |driver, now| driver.complete_upload(id, is_durable, now))?;
                }
                Written::Reservation { node, first, pages, result } => {
                    if result.is_ok() {
                        self.history.add_reservation(node, first, pages)?;
                    }
                    self.act(node, |driver, _| driver.finish_reservation())?;
                }
            }
        }
        Ok(())
    }

    fn poll(&mut self) -> Checked {
        for node in NODES {
            self.act(node, |driver, now| {
                if driver.deadline() <= now {
                    driver.poll(now);
                }
            })?;
        }
        self.poll_txns();
        Ok(())
    }

    fn reserve(&mut self) -> Checked {
        let node = NODES[self.rng.random_range(0..2)];
        for _ in 0..self.rng.random_range(1..3) {
            let pages = self.rng.random_range(1..5);
            let Some(driver) = self.drivers.get_mut(&node) else { return Ok(()) };
            let Reservation { first, rows } = match driver.reserve(SPACE, pages) {
                Ok(reserved) => reserved,
                Err(error) => return self.excuse_damage(Err(error.to_string())),
            };
            let written = self.written.clone();
            self.machine.store().submit_rows(rows, move |result| {
                let result = result.map(drop);
                written.lock().unwrap().push(Written::Reservation { node, first, pages, result });
            });
        }
        Ok(())
    }

    /// One more index, or one less.
    fn change_indexes(&mut self) -> Checked {
        let another = if self.another_index().is_some() { None } else { Some(self.indexes + 1) };
        self.indexes += u32::from(another.is_some());
        self.specs = workload::specs(another);
        let specs = self.specs.clone();
        NODES.into_iter().try_for_each(|node| self.act(node, |driver, now| driver.set_indexes(SPACE, &specs, now)))
    }

    /// The index that comes and goes, if it is there.
    fn another_index(&self) -> Option<u32> {
        self.specs.iter().map(|spec| spec.index).find(|index| *index == self.indexes)
    }

    fn change_room(&mut self) {
        self.is_full = !self.is_full;
        let room = self.rng.random_range(0..20_000);
        self.machine.set_room(self.is_full.then_some(room));
    }

    /// The disk is full until it has refused something, and has room again before the drivers hear of that.
    fn squeeze(&mut self) -> Checked {
        self.machine.set_room(Some(0));
        let is_refused = |written: &Written| matches!(written, Written::Rows { result: Err(_), .. });
        for _ in 0..30 {
            self.begin_txn()?;
            while let Some(packet) = self.packets.pop() {
                self.deliver(packet)?;
            }
            drop(self.machine.force());
            if self.written.lock().unwrap().iter().any(is_refused) {
                break;
            }
            self.handle_written()?;
        }
        self.machine.set_room(None);
        self.is_full = false;
        for _ in 0..2 {
            self.begin_txn()?;
            while let Some(packet) = self.packets.pop() {
                self.deliver(packet)?;
            }
            drop(self.machine.install());
            drop(self.machine.force());
        }
        self.handle_written()
    }

    /// The power fails, perhaps in the middle of a force, and the brick is started again; perhaps it fails again soon.
    fn crash(&mut self) -> Checked {
        loop {
            if self.chance(50) {
                self.machine.stop_after(self.rng.random_range(0..4));
                drop(self.machine.force());
            }
            self.drivers.clear();
            self.crashes += 1;
            let mut image = self.machine.crash(self.rng.random());
            image.heal();
            // What the store says from now on is for nobody.
            self.written = Arc::default();
            self.damage.is_present = false;
            self.machine = SimStore::open(image, options()).map_err(|error| format!("the store is lost: {error}"))?;
            self.is_full = false;
            self.open_drivers()?;
            if self.chance(70) {
                return Ok(());
            }
            if self.chance(50) {
                self.force()?;
            }
        }
    }

    // -------------------------------------------------------------------------------------------- the end

    /// Heals everything, and waits until all has ended.
    fn quiesce(&mut self) -> Checked {
        self.machine.set_room(None);
        self.is_full = false;
        self.heal_damage();
        // An index over damaged objects is tried again after a minute only.
        let rounds = if self.damage.is_enabled { 2 * MAX_QUIESCE_ROUNDS } else { MAX_QUIESCE_ROUNDS };
        for _ in 0..rounds {
            self.now += 20;
            for packet in std::mem::take(&mut self.packets) {
                self.deliver(packet)?;
            }
            self.force()?;
            self.handle_written()?;
            self.poll()?;
            let is_idle = |driver: &NodeDriver<()>| {
                driver.writer.in_flight_count() == 0
                    && driver.writer.retry_at().is_none()
                    && driver.index.due() == Ms::MAX
            };
            let is_over = self.running.is_empty() && self.packets.is_empty();
            if is_over && !self.machine.is_force_wanted() && self.drivers.values().all(is_idle) {
                return Ok(());
            }
        }
        let open: Vec<_> = self.running.iter().map(|one| one.txn).collect();
        Err(format!("it never ends: transactions {open:?}, {} messages", self.packets.len()))
    }

    /// What was staged and not used is freed when its lease ends.
    fn judge_that_leases_end(&mut self) -> Checked {
        self.now += STAGING_LEASE_MS;
        self.quiesce()?;
        self.judge()?;
        for node in NODES {
            let (from, to) = rows::staged_range(node);
            let mut is_staged = false;
            let found = self.reader().each(&from, &to, |_, _| {
                is_staged = true;
                ControlFlow::Break(())
            });
            found.map_err(|error| error.to_string())?;
            if is_staged {
                return Err(format!("S: a content of node {node} is staged for ever"));
            }
        }
        Ok(())
    }

    /// The rows of each logical node agree with each other.
    fn judge_rows(&self) -> Checked {
        let store = self.machine.store();
        NODES.into_iter().try_for_each(|node| judge_node_rows(&store, node))
    }

    fn run(seed: u64, steps: u32) -> std::result::Result<Self, Violation> {
        Self::new(seed)?.run_on(steps)
    }

    fn run_on(mut self, steps: u32) -> std::result::Result<Self, Violation> {
        for step in 0..steps {
            self.step()?;
            if step % 50 == 49 && !self.damage.is_present {
                self.judge_rows()?;
            }
        }
        self.quiesce()?;
        self.judge_rows()?;
        self.judge()?;
        // All of it again, as it is found after a restart.
        self.crash()?;
        self.quiesce()?;
        self.judge()?;
        self.judge_that_leases_end()?;
        Ok(self)
    }
}

/// The rows of a logical node agree with each other. Pages are used without having been reserved here, and entries lead to objects that were
/// never written.
fn judge_node_rows(store: &Store, node: NodeId) -> Checked {
    let mut found = Vec::new();
    let check = NodeCheck { store, node, is_unique: &|_, _| false, reads_contents: true };
    let checked = check.run(Place::first(), |portion| {
        found.extend(portion.problems);
        ControlFlow::Continue(())
    });
    checked.map_err(|error| error.to_string())?;
    found.retain(|problem| {
        !matches!(
            problem,
            Problem::PageNotReserved { .. } | Problem::TargetMissing { .. } | Problem::CollectionMissing { .. }
        )
    });
    match found.first() {
        Some(problem) => Err(format!("node {node}: {} of {:?}: {problem}", problem.kind(), problem.object())),
        None => Ok(()),
    }
}

#[test]
fn brick_keeps_its_promises_whatever_happens() {
    let (mut committed, mut refused) = (0, 0);
    for seed in SEEDS {
        let world = World::run(seed, 500).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        committed += world.history.committed_count();
        refused += world.history.refused_count();
    }
    assert!(committed > 500 && refused > 50, "{committed} were committed and {refused} refused: too few to mean much");
}

#[test]
fn equal_seeds_give_equal_runs() {
    let digest = |seed| {
        let world = World::run(seed, 400).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        (world.now, world.history.committed_count(), world.machine.crash(1).digest())
    };
    assert_eq!(digest(7), digest(7));
    assert_ne!(digest(7), digest(8));
}
