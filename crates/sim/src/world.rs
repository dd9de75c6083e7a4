//! A cluster in one thread: its processes, network, disks and clocks, and one event queue.
//!
//! The processes are the machines of [`protocol`], composed as in a real cluster. This module does what a machine
//! cannot: it carries messages, forces logs, advances time, and crashes processes.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use model::{NodeId, Object, PageId};
use node::drivers::brick::{BrickSettings, PageRead, SimulatedDisk};
use node::node_placement::{BrickId, PlacementSnapshot};
use protocol::brick::{Brick, PendingRead};
use protocol::cache_node::CacheNode;
use protocol::commit::participant::ParticipantSettings;
use protocol::ident::{HolderId, TxnId};
use protocol::page_cache::PageImage;
use protocol::placement::GroupMap;
use protocol::placement::decider::PersistedNode;
use protocol::redirect::Helpers;

use crate::history::History;
use crate::object::Content;
use crate::plan::{Action, BALANCE, Cluster, Demand, DiskWork, Key, Plan, ProcessName, RING_SLOTS, Topology};

mod actions;
mod appends;
mod brick;
mod cache_node;
mod catalog;
mod client;
mod clock;
mod cuts;
mod directories;
mod disk;
mod driven_brick;
mod group_member;
mod meta;
mod net;
mod oracle;
mod peer;
mod query;
mod redirector;
mod root;
mod schema;
mod wall_clocks;

use appends::ReportedAppend;
use catalog::PlacementCatalog;
use client::ClientProcess;
use clock::LocalClock;
pub(crate) use cuts::FIRST_CUT;
use cuts::{AdminProcess, CutRead};
use disk::{Disk, Page};
use driven_brick::DrivenBrick;
use group_member::{GroupLog, GroupMemberProcess};
use meta::MetaProcess;
use net::{Datagram, LinkId, Net, Pid};
use oracle::Oracle;
pub use oracle::RunFailure;
use peer::PeerProcess;
use redirector::RedirectorProcess;
use schema::SpaceSchema;
use wall_clocks::{ClockComparison, ClockMessage, WallClock};

/// How far clocks may differ, in milliseconds.
const SKEW_MS: u64 = 5_000;
/// The maximum time until a process notices a lost connection, in milliseconds.
const NOTICE_MS: u64 = 100;
/// The backlog limit of a gateway in bytes: some transactions.
const GATEWAY_LIMIT_BYTES: usize = 2 << 10;
/// The maximum delay before a process reconnects, in milliseconds.
const RECONNECT_MS: u64 = 300;

/// The machine of a process.
enum ProcessMachine {
    /// A brick with the driver that ships.
    Driven(Box<DrivenBrick>),
    /// A brick without it.
    Brick(Box<BrickProcess>),
    GroupMember(Box<GroupMemberProcess>),
    Meta(Box<MetaProcess>),
    /// The meta-server of a cluster whose logical nodes move between bricks: see [`PlacementCatalog`].
    Catalog,
    /// A peer server of clusters whose logical nodes are served by groups, which nothing drives yet.
    CacheNode(Box<CacheNode<Pid, Object>>),
    Peer(Box<PeerProcess>),
    Redirector(Box<RedirectorProcess>),
    Client(Box<ClientProcess>),
    Admin(Box<AdminProcess>),
}

/// A brick with its disk.
struct BrickProcess {
    brick: Brick<Pid, Object>,
    disk: Disk,
}

/// A connection to an upper process.
struct Uplink {
    /// The logical node whose tree it carries; `None`: all.
    node: Option<NodeId>,
    /// The brick, if it is that of a peer server.
    brick: Option<BrickId>,
    /// The possible upper processes, and the chosen one.
    choices: Vec<Pid>,
    chosen: usize,
    link: Option<LinkId>,
}

struct Process {
    place: ProcessName,
    machine: Option<ProcessMachine>,
    /// The disk of a brick that is down.
    disk: Option<Disk>,
    driven_disk: Option<SimulatedDisk>,
    logs: BTreeMap<NodeId, GroupLog>,
    /// Its map of replica groups or its placement map, and when it last fetched it.
    map: GroupMap,
    map_fetched: u64,
    placement: Arc<PlacementSnapshot>,
    placement_version: u64,
    /// The number of the classes and indexes that it knows.
    schema: usize,
    /// The number of its starts.
    incarnation: u64,
    clock: LocalClock,
    wall: WallClock,
    uplinks: Vec<Uplink>,
    frozen_until: u64,
    /// Its next wake-up.
    wake: u64,
    force_ms: u64,
}

/// An event.
#[derive(Clone, Debug)]
enum Event {
    Deliver(LinkId, bool),
    Datagram(Pid, Pid, Rc<Datagram>),
    Wake(Pid, u64),
    Forced(Pid, u64),
    /// A brick handles the requests that have arrived.
    Arrived(Pid, u64),
    /// The driver of a brick hears what has become of rows.
    Written(Pid, u64),
    /// A process hears of classes and indexes, or has asked for the newest ones.
    Schema(Pid, u64, usize),
    SchemaRefreshed(Pid, u64),
    Broken(Pid, u64, LinkId),
    Connect(Pid, u64, usize),
    /// The same, after an attempt to connect to a process that was down.
    Reconnect(Pid, u64, usize),
    Resume(Pid, u64),
    Timer(Pid, u64),
    /// About the clock of a process.
    Clock(Pid, u64, Rc<ClockMessage>),
    Read(Pid, u64, PendingRead),
    PageRead(Pid, u64, PendingRead, Rc<PageImage<Object>>),
    /// A brick reads a page for a logical node that was not in memory.
    ColdRead(Pid, u64, NodeId, PageRead),
    /// The driver of the logical node gets the page.
    ColdPageRead(Pid, u64, NodeId, PageRead, Rc<model::Result<PageImage<Object>>>),
    Act(usize),
}

/// An event with its time; of events at one time, the one that was scheduled first comes first.
struct Scheduled {
    at: u64,
    number: u64,
    event: Event,
}

impl Ord for Scheduled {
    /// The earliest is the largest: a heap gives the largest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

/// Counters of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCounters {
    /// Delivered messages, completed forces and wake-ups.
    pub events: u64,
    /// The simulated time in milliseconds.
    pub simulated_ms: u64,
    /// Calls that gateways rejected because of their backlog.
    pub turned_away: u64,
    /// Cuts from which clusters were restored.
    pub cuts: u64,
}

/// The cluster. Made from a plan, it runs to its end in [`World::run`].
pub struct World {
    plan: Plan,
    now: u64,
    processes: Vec<Process>,
    /// The process of each member number; every start of a process has another number.
    members: BTreeMap<u64, Pid>,
    last_member: u64,
    /// The brick of each logical node, if no group serves it.
    serving: BTreeMap<NodeId, Pid>,
    placement: PlacementCatalog,
    /// The durable state of the meta-server, if groups serve nodes; and the number of roots so far.
    kept: BTreeMap<NodeId, PersistedNode>,
    last_root: u64,
    /// The classes and indexes of sets, and the number of the last query.
    schema: SpaceSchema,
    last_query: u64,
    net: Net,
    queue: BinaryHeap<Scheduled>,
    last_event: u64,
    /// The number of messages and forces under way, and of actions with a time.
    busy: usize,
    planned: usize,
    /// Held messages, by sender and receiver.
    parked: BTreeMap<(Pid, Pid), VecDeque<Event>>,
    /// Events of stalled disks.
    stalled: BTreeMap<(Pid, DiskWork), Vec<Event>>,
    history: History,
    /// Appends of which clients were told the offsets.
    appends: Vec<ReportedAppend>,
    /// What clusters had that were restored from cuts.
    cuts: Vec<CutRead>,
    last_operation: u64,
    oracle: Oracle,
    count: RunCounters,
    /// The meta-server that compares clocks, if clocks are set.
    comparison: Option<ClockComparison>,
    /// Actions that wait for earlier ones to complete.
    waiting: VecDeque<usize>,
    healing: bool,
    trace: Option<Vec<String>>,
}

impl World {
    /// A cluster at the start of its run.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let mut world = Self::empty(plan);
        world.oracle.solo = world.plan.demand == Demand::Solo;
        world.build();
        world
    }

    /// A cluster without processes.
    fn empty(plan: Plan) -> Self {
        Self {
            now: 0,
            processes: Vec::new(),
            members: BTreeMap::new(),
            last_member: 0,
            serving: BTreeMap::new(),
            placement: PlacementCatalog::new(&plan.cluster),
            kept: BTreeMap::new(),
            last_root: 0,
            schema: SpaceSchema::new(&plan),
            last_query: 0,
            net: Net::new(plan.seed, plan.noise),
            queue: BinaryHeap::new(),
            last_event: 0,
            busy: 0,
            planned: 0,
            parked: BTreeMap::new(),
            stalled: BTreeMap::new(),
            history: History::default(),
            appends: Vec::new(),
            cuts: Vec::new(),
            last_operation: 0,
            oracle: Oracle::default(),
            count: RunCounters::default(),
            comparison: ClockComparison::of(&plan),
            waiting: VecDeque::new(),
            healing: false,
            trace: None,
            plan,
        }
    }

    /// Records a transcript.
    pub fn trace(&mut self) {
        self.trace = Some(Vec::new());
    }

    fn note(&mut self, text: impl FnOnce(&Self) -> String) {
        if self.trace.is_some() {
            let line = format!("{:>6} {}", self.now, text(self));
            self.trace.iter_mut().for_each(|lines| lines.push(line.clone()));
        }
    }

    // ------------------------------------------------------------------------------------------ building

    fn build(&mut self) {
        let Cluster { topology, bricks, peers, redirectors, clients, .. } = self.plan.cluster;
        for number in 1..=bricks {
            let pid = self.add(ProcessName::Brick(number), Vec::new());
            let nodes = (1..=bricks as u32).filter(|node| self.plan.cluster.first_brick(*node) == number);
            let nodes: Vec<NodeId> = nodes.map(NodeId).collect();
            let pages = nodes.iter().flat_map(|node| self.first_pages(*node)).collect();
            self.oracle.begin(&pages);
            if self.is_driven() {
                match DrivenBrick::disk(&pages) {
                    Ok(disk) => self.processes[pid].driven_disk = Some(disk),
                    Err(error) => self.oracle.report(format!("L1: the disk of brick {number} cannot be made: {error}")),
                }
            } else {
                self.processes[pid].disk = Some(Disk::new(pages));
            }
            self.serving.extend(nodes.into_iter().map(|node| (node, pid)));
        }
        if self.has_groups() || self.has_catalog() {
            self.add(ProcessName::Meta, Vec::new());
        }
        let mut peer_pids = Vec::new();
        for number in 1..=peers {
            let uplinks = self.peer_uplinks();
            peer_pids.push(self.add(ProcessName::Peer(number), uplinks));
        }
        let mut redirector_pids = Vec::new();
        for number in 1..=redirectors {
            let uplink = Self::uplink(&peer_pids, number);
            redirector_pids.push(self.add(ProcessName::Redirector(number), vec![uplink]));
        }
        for number in 1..=clients {
            let way = match topology {
                Topology::Mixed => number % 3,
                Topology::Direct => 0,
                Topology::Peer | Topology::Site | Topology::Replicated => 1,
                Topology::Group => 2,
            };
            let uplinks = match way {
                0 => self.brick_uplinks(),
                1 => vec![Self::uplink(&peer_pids, number)],
                _ => vec![Self::uplink(&redirector_pids, number)],
            };
            self.add(ProcessName::Client(number), uplinks);
        }
        if self.plan.has_cuts() {
            self.add(ProcessName::Admin, Vec::new());
        }
        for (at, action) in self.plan.actions.clone() {
            if let (Some(0), Action::SetClock(..)) = (at, &action) {
                self.act(&action);
            }
        }
        for pid in 0..self.processes.len() {
            self.start(pid);
        }
        for index in 0..self.plan.actions.len() {
            match self.plan.actions[index].0 {
                Some(at) => self.push(at, Event::Act(index)),
                None => self.waiting.push_back(index),
            }
        }
    }

    fn first_pages(&self, node: NodeId) -> BTreeMap<PageId, Page> {
        let slots = match self.plan.demand {
            Demand::Bank(accounts) => accounts,
            Demand::Ring => RING_SLOTS,
            Demand::None | Demand::Solo => return BTreeMap::new(),
        };
        let (nodes, mine) = (self.plan.cluster.bricks as i64, i64::from(node.0) - 1);
        let (each, is_ring) = (i64::from(slots), self.plan.demand == Demand::Ring);
        let next = |slot: u16| (mine * each + i64::from(slot) + 1) % (nodes * each);
        let object = |slot: u16| Content::Number(if is_ring { next(slot) } else { BALANCE }).encode();
        let objects = (0..slots).map(|slot| (slot, object(slot))).collect();
        let page = Key { node: node.0, page: 1, slot: 0 }.page();
        BTreeMap::from([(page, Page { objects: Rc::new(objects), ..Page::default() })])
    }

    fn add(&mut self, place: ProcessName, uplinks: Vec<Uplink>) -> Pid {
        let force_ms = self.plan.noise.force_ms;
        let clock = LocalClock::default();
        let process = Process {
            place,
            machine: None,
            disk: None,
            driven_disk: None,
            logs: BTreeMap::new(),
            map: GroupMap::default(),
            map_fetched: 0,
            placement: Arc::default(),
            placement_version: 0,
            schema: 0,
            incarnation: 0,
            clock,
            wall: WallClock::default(),
            uplinks,
            frozen_until: 0,
            wake: u64::MAX,
            force_ms,
        };
        self.processes.push(process);
        self.processes.len() - 1
    }

    fn brick_uplinks(&self) -> Vec<Uplink> {
        let uplink = |(node, pid): (&NodeId, &Pid)| Uplink { node: Some(*node), ..Self::uplink(&[*pid], 0) };
        self.serving.iter().map(uplink).collect()
    }

    /// The uplinks of a peer server: one to each brick, or one for each logical node if groups serve them.
    fn peer_uplinks(&self) -> Vec<Uplink> {
        if self.has_groups() {
            return self.brick_uplinks();
        }
        let brick = |place| if let ProcessName::Brick(number) = place { Some(BrickId(number as u32)) } else { None };
        let bricks = self.processes.iter().enumerate();
        let bricks = bricks.filter_map(|(pid, process)| Some((pid, brick(process.place)?)));
        bricks.map(|(pid, brick)| Uplink { brick: Some(brick), ..Self::uplink(&[pid], 0) }).collect()
    }

    /// An uplink to one of several processes; the number selects the first choice.
    fn uplink(choices: &[Pid], number: usize) -> Uplink {
        let chosen = number % choices.len().max(1);
        Uplink { node: None, brick: None, choices: choices.to_vec(), chosen, link: None }
    }

    fn pid(&self, place: ProcessName) -> Option<Pid> {
        self.processes.iter().position(|process| process.place == place)
    }

    /// Starts or restarts a process.
    fn start(&mut self, pid: Pid) {
        self.last_member += 1;
        let member = self.last_member;
        self.members.insert(member, pid);
        let first_holder = HolderId(member << 24);
        let shown = self.local_time(pid);
        let Cluster { topology, window, snapshots, rows_at_once: applies_at_once, cold_reads, .. } = self.plan.cluster;
        let (has_groups, is_driven, meta) = (self.has_groups(), self.is_driven(), self.meta(shown));
        let process = &mut self.processes[pid];
        process.incarnation += 1;
        process.wake = u64::MAX;
        process.map = GroupMap::default();
        let role = match process.place {
            ProcessName::Meta if !has_groups => ProcessMachine::Catalog,
            ProcessName::Admin => ProcessMachine::Admin(Box::default()),
            ProcessName::Meta => ProcessMachine::Meta(Box::new(meta)),
            ProcessName::Brick(number) if has_groups => {
                let logs = std::mem::take(&mut process.logs);
                ProcessMachine::GroupMember(Box::new(GroupMemberProcess::new(number, process.incarnation, logs)))
            }
            ProcessName::Brick(number) if is_driven => {
                let disk = process.driven_disk.take().unwrap_or_default();
                let (brick, first_job) = (BrickId(number as u32), member << 32);
                let cold_reads = cold_reads.then(|| member.wrapping_mul(self.plan.seed | 1));
                let settings =
                    BrickSettings { brick, first_job, skew_ms: SKEW_MS, window, applies_at_once, cold_reads };
                match DrivenBrick::open(disk, settings) {
                    Ok(driven) => ProcessMachine::Driven(Box::new(driven)),
                    Err(error) => {
                        return self.oracle.report(format!("L1: brick {number} cannot be started: {error}"));
                    }
                }
            }
            ProcessName::Brick(number) => {
                let mut disk = process.disk.take().unwrap_or_default();
                let node = NodeId(number as u32);
                let settings = ParticipantSettings { node, moves: disk.moves, skew_ms: SKEW_MS, window_limit: window };
                let again = process.incarnation > 1;
                let (brick, found) = match again {
                    true => disk.recover(settings, shown),
                    false => (Brick::new(settings), Vec::new()),
                };
                found.into_iter().for_each(|found| self.oracle.record_recovered(found));
                ProcessMachine::Brick(Box::new(BrickProcess { brick, disk }))
            }
            ProcessName::Peer(_) if !has_groups => {
                let helpers = if topology == Topology::Site { Helpers::All } else { Helpers::None };
                let nodes = self.serving.keys().copied();
                ProcessMachine::Peer(Box::new(PeerProcess::new(member, nodes, helpers, shown)))
            }
            ProcessName::Peer(_) => {
                let helpers = if topology == Topology::Site { Helpers::All } else { Helpers::None };
                let peer = CacheNode::peer_server(first_holder, helpers, SKEW_MS).with_limit(GATEWAY_LIMIT_BYTES);
                ProcessMachine::CacheNode(Box::new(peer))
            }
            ProcessName::Redirector(_) => {
                let nodes = self.serving.keys().copied();
                ProcessMachine::Redirector(Box::new(RedirectorProcess::new(member, nodes)))
            }
            ProcessName::Client(_) => {
                let is_direct = process.uplinks.iter().any(|uplink| uplink.node.is_some());
                ProcessMachine::Client(Box::new(ClientProcess::new(member, first_holder, is_direct, snapshots)))
            }
        };
        process.machine = Some(role);
        for uplink in 0..self.processes[pid].uplinks.len() {
            let life = self.processes[pid].incarnation;
            self.push(self.now, Event::Connect(pid, life, uplink));
        }
        self.note(|world| format!("{} starts", world.name(pid)));
        self.begin_comparing(pid);
        self.drain_process(pid);
        if is_driven {
            self.apply_newest_schema(pid);
            self.begin_placement(pid);
        }
    }

    /// A gateway has rejected a call. The simulator treats it as lost, and does not inform the client.
    fn turn_away(&mut self, pid: Pid, txn: TxnId, node: NodeId) {
        self.count.turned_away += 1;
        self.note(|world| format!("{} takes no more for {}: {txn:?}", world.name(pid), node.0));
    }

    fn name(&self, pid: Pid) -> String {
        self.processes[pid].place.to_string()
    }

    /// Whether replica groups serve the logical nodes.
    fn has_groups(&self) -> bool {
        self.plan.replicas() > 0
    }

    /// The time of a process's clock.
    fn local_time(&self, pid: Pid) -> u64 {
        self.processes[pid].clock.show(self.now)
    }

    // ------------------------------------------------------------------------------------------ what happens

    fn push(&mut self, at: u64, event: Event) {
        self.last_event += 1;
        self.busy += usize::from(event.is_under_way());
        self.planned += usize::from(matches!(event, Event::Act(_)));
        self.queue.push(Scheduled { at: at.max(self.now), number: self.last_event, event });
    }

    /// Runs all actions, heals all faults, runs until everything has ended, and checks the result.
    ///
    /// # Errors
    /// The first failure.
    pub fn run(&mut self) -> Result<(), RunFailure> {
        loop {
            if self.planned > 0 || self.busy > 0 && !self.waiting.is_empty() {
                self.step()?;
            } else if let Some(index) = self.waiting.pop_front() {
                let action = self.plan.actions[index].1.clone();
                match action {
                    Action::Wait(ms) => self.run_until(self.now + ms)?,
                    action => self.act(&action),
                }
            } else {
                break;
            }
        }
        self.heal();
        self.quiesce()?;
        self.judge()
    }

    fn run_until(&mut self, time: u64) -> Result<(), RunFailure> {
        while self.queue.peek().is_some_and(|next| next.at <= time) {
            self.step()?;
        }
        self.now = time;
        Ok(())
    }

    /// Handles the next event.
    fn step(&mut self) -> Result<(), RunFailure> {
        let Some(Scheduled { at, event, .. }) = self.queue.pop() else { return Ok(()) };
        self.busy -= usize::from(event.is_under_way());
        self.planned -= usize::from(matches!(event, Event::Act(_)));
        self.now = at;
        if let Some(pid) = self.frozen_process(&event) {
            let later = self.processes[pid].frozen_until;
            self.push(later, event);
            return Ok(());
        }
        if let Some(pair) = self.held_pair(&event) {
            self.parked.entry(pair).or_default().push_back(event);
            return Ok(());
        }
        if let Some(stalled) = event.work().and_then(|work| self.stalled.get_mut(&work)) {
            stalled.push(event);
            return Ok(());
        }
        self.handle_event(event);
        self.oracle.result()
    }

    /// The frozen process that would have to handle the event.
    fn frozen_process(&self, event: &Event) -> Option<Pid> {
        let pid = match event {
            Event::Deliver(link, up) => {
                let link = &self.net.links[*link];
                if *up { link.upper } else { link.lower }
            }
            Event::Datagram(_, to, _) => *to,
            Event::Wake(pid, _)
            | Event::Broken(pid, ..)
            | Event::Connect(pid, ..)
            | Event::Reconnect(pid, ..)
            | Event::Resume(pid, _)
            | Event::Arrived(pid, _)
            | Event::Written(pid, _)
            | Event::Schema(pid, ..)
            | Event::SchemaRefreshed(pid, _)
            | Event::Timer(pid, _)
            | Event::Clock(pid, ..)
            | Event::Read(pid, ..)
            | Event::PageRead(pid, ..)
            | Event::ColdRead(pid, ..)
            | Event::ColdPageRead(pid, ..) => *pid,
            Event::Forced(..) | Event::Act(_) => return None,
        };
        (self.processes[pid].frozen_until > self.now).then_some(pid)
    }

    fn held_pair(&self, event: &Event) -> Option<(Pid, Pid)> {
        let pair = match event {
            Event::Deliver(link, up) => {
                let link = &self.net.links[*link];
                if *up { (link.lower, link.upper) } else { (link.upper, link.lower) }
            }
            Event::Datagram(from, to, _) => (*from, *to),
            _ => return None,
        };
        self.net.held.contains(&pair).then_some(pair)
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Deliver(link, up) => {
                self.count.events += 1;
                self.deliver(link, up);
            }
            Event::Datagram(from, to, message) => {
                self.count.events += 1;
                self.handle_datagram(from, to, &message);
            }
            Event::Wake(pid, at) => {
                if self.processes[pid].wake == at {
                    self.processes[pid].wake = u64::MAX;
                    self.count.events += 1;
                    self.wake(pid);
                }
            }
            Event::Forced(pid, life) => {
                self.count.events += 1;
                self.handle_forced(pid, life);
            }
            Event::Arrived(pid, life) => self.handle_arrived(pid, life),
            Event::Written(pid, life) => self.handle_driven_written(pid, life),
            Event::Schema(pid, life, number) => self.handle_schema(pid, life, number),
            Event::SchemaRefreshed(pid, life) => self.handle_schema_refreshed(pid, life),
            Event::Broken(pid, life, link) => self.handle_broken(pid, life, link),
            Event::Connect(pid, life, uplink) | Event::Reconnect(pid, life, uplink) => self.connect(pid, life, uplink),
            Event::Read(pid, life, ticket) => {
                self.count.events += 1;
                self.read_page(pid, life, ticket);
            }
            Event::ColdRead(pid, life, node, read) => {
                self.count.events += 1;
                self.read_cold_page(pid, life, node, read);
            }
            Event::ColdPageRead(pid, life, node, read, found) => {
                self.complete_cold_read(pid, life, (node, read), &found);
            }
            Event::PageRead(pid, life, ticket, fetched) => self.complete_read(pid, life, ticket, &fetched),
            Event::Resume(pid, life) | Event::Timer(pid, life) => {
                if self.processes[pid].incarnation == life {
                    self.resume(pid);
                }
            }
            Event::Clock(pid, life, message) => self.handle_clock(pid, life, &message),
            Event::Act(index) => {
                let action = self.plan.actions[index].1.clone();
                self.act(&action);
            }
        }
    }

    /// A deadline of a process has passed.
    fn wake(&mut self, pid: Pid) {
        let now = self.local_time(pid);
        match &mut self.processes[pid].machine {
            Some(ProcessMachine::Brick(process)) => {
                process.brick.poll(now);
            }
            Some(ProcessMachine::Driven(driven)) => {
                driven.cuts.poll(now);
                driven.brick.poll(now);
            }
            Some(ProcessMachine::GroupMember(host)) => host.poll(now),
            Some(ProcessMachine::Meta(meta)) => meta.poll(now),
            Some(ProcessMachine::CacheNode(middle)) => middle.poll(now),
            Some(ProcessMachine::Redirector(redirector)) => redirector.driver.poll(now),
            Some(ProcessMachine::Peer(peer)) => {
                peer.driver.poll(now);
                self.poll_queries(pid);
            }
            Some(ProcessMachine::Client(client)) => client.poll(now),
            Some(ProcessMachine::Admin(admin)) => admin.poll(now),
            Some(ProcessMachine::Catalog) | None => return,
        }
        self.drain_process(pid);
    }

    /// Carries out the outputs of a process, and schedules its next wake-up.
    fn drain_process(&mut self, pid: Pid) {
        match &self.processes[pid].machine {
            Some(ProcessMachine::Driven(_)) => self.drain_driven(pid),
            Some(ProcessMachine::Brick(_)) => self.drain_brick(pid),
            Some(ProcessMachine::GroupMember(_)) => self.drain_group_member(pid),
            Some(ProcessMachine::Meta(_)) => self.drain_meta(pid),
            Some(ProcessMachine::CacheNode(_)) => self.drain_cache_node(pid),
            Some(ProcessMachine::Peer(_)) => self.drain_peer(pid),
            Some(ProcessMachine::Redirector(_)) => self.drain_redirector(pid),
            Some(ProcessMachine::Client(_)) => self.drain_client(pid),
            Some(ProcessMachine::Admin(_)) => self.drain_admin(pid),
            Some(ProcessMachine::Catalog) | None => return,
        }
        let process = &self.processes[pid];
        let deadline = match &process.machine {
            Some(ProcessMachine::Driven(driven)) => Some(driven.brick.deadline().min(driven.cuts.deadline())),
            Some(ProcessMachine::Brick(process)) => Some(process.brick.deadline()),
            Some(ProcessMachine::GroupMember(host)) => Some(host.deadline()),
            Some(ProcessMachine::Meta(meta)) => meta.deadline(process.clock.show(self.now)),
            Some(ProcessMachine::CacheNode(middle)) => middle.deadline(),
            Some(ProcessMachine::Redirector(redirector)) => redirector.driver.deadline(),
            Some(ProcessMachine::Peer(peer)) => {
                let by_clock = peer.queries.values().map(|query| query.deadlines().0);
                let by_run = peer.queries.values().filter_map(|query| query.deadlines().1);
                let by_run = by_run.map(|at| process.clock.show(at) + 1);
                by_clock.chain(by_run).chain(peer.driver.deadline()).min()
            }
            Some(ProcessMachine::Client(client)) => client.deadline(),
            Some(ProcessMachine::Admin(admin)) => admin.deadline(),
            Some(ProcessMachine::Catalog) | None => None,
        };
        let Some(deadline) = deadline else { return };
        let at = process.clock.time_at(deadline).max(self.now + 1);
        if at < process.wake {
            self.processes[pid].wake = at;
            self.push(at, Event::Wake(pid, at));
        }
    }

    // ------------------------------------------------------------------------------------------ looking

    /// What clients did and saw.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The counters of the run.
    #[must_use]
    pub fn count(&self) -> RunCounters {
        RunCounters { simulated_ms: self.now, ..self.count }
    }

    /// The transcript, if it was recorded.
    #[must_use]
    pub fn transcript(&self) -> &[String] {
        self.trace.as_deref().unwrap_or_default()
    }
}

impl Event {
    /// The disk operation that this event completes.
    fn work(&self) -> Option<(Pid, DiskWork)> {
        match self {
            Self::Forced(pid, _) => Some((*pid, DiskWork::Forces)),
            Self::PageRead(pid, ..) | Self::ColdPageRead(pid, ..) => Some((*pid, DiskWork::Reads)),
            _ => None,
        }
    }

    /// Whether the event is part of an operation under way.
    fn is_under_way(&self) -> bool {
        matches!(
            self,
            Self::Deliver(..)
                | Self::Datagram(..)
                | Self::Forced(..)
                | Self::Arrived(..)
                | Self::Written(..)
                | Self::Schema(..)
                | Self::SchemaRefreshed(..)
                | Self::Broken(..)
                | Self::Connect(..)
                | Self::Resume(..)
                | Self::Read(..)
                | Self::PageRead(..)
                | Self::ColdRead(..)
                | Self::ColdPageRead(..)
        )
    }
}
