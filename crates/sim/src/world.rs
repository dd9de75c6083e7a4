//! A cluster in one thread: its processes, its network, its disks, its clocks, and one queue of what happens next.
//!
//! The processes are the machines of [`protocol`], put together as they are in a real cluster; what is here is what a
//! machine never does by itself: carrying messages, forcing logs, passing time, dying.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::rc::Rc;

use model::{NodeId, PageId};
use protocol::brick::{Brick, Ticket};
use protocol::cache_node::CacheNode;
use protocol::commit::participant::Settings;
use protocol::ident::{HolderId, TxnId};
use protocol::page_cache::Fetched;
use protocol::placement::Map;
use protocol::placement::decider::Kept;
use protocol::redirect::Helpers;
use protocol::weigh::Weigh;

use crate::history::History;
use crate::plan::{Action, BALANCE, Cluster, Demand, Key, Place, Plan, RING_SLOTS, Topology, Work};

mod actions;
mod brick;
mod client;
mod clock;
mod disk;
mod host;
mod meta;
mod middle;
mod net;
mod oracle;

use client::ClientProcess;
use clock::LocalClock;
use disk::{Disk, Page};
use host::{GroupLog, HostProcess, Root};
use meta::MetaProcess;
use net::{LinkId, Net, Pid, Single};
use oracle::Oracle;
pub use oracle::Wrong;

/// How far clocks may differ, in milliseconds.
const SKEW_MS: u64 = 5_000;
/// How long a process needs to notice that a connection is gone, at most, in milliseconds.
const NOTICE_MS: u64 = 100;
/// Bytes of what waits at a gateway for participants that do not answer: some transactions.
const WAITING: usize = 2 << 10;
/// How long it waits before it connects again, at most, in milliseconds.
const RECONNECT_MS: u64 = 300;

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// A list, to which is appended.
    List(Rc<Vec<i64>>),
    /// A number, which is replaced.
    Number(i64),
}

impl Weigh for State {
    fn weight(&self) -> usize {
        match self {
            Self::List(list) => list.weight(),
            Self::Number(_) => 8,
        }
    }
}

/// What runs in a process.
enum Role {
    Brick(Box<BrickProcess>),
    Host(Box<HostProcess>),
    Meta(Box<MetaProcess>),
    Middle(Box<CacheNode<Pid, State>>),
    Client(Box<ClientProcess>),
}

/// A brick with its disk.
struct BrickProcess {
    brick: Brick<Pid, State>,
    disk: Disk,
}

/// A connection upward that a process wants to have.
struct Uplink {
    /// The logical node that it is for, if it is to a brick.
    node: Option<NodeId>,
    /// Where it may go, and where it goes.
    choices: Vec<Pid>,
    chosen: usize,
    link: Option<LinkId>,
}

struct Process {
    place: Place,
    role: Option<Role>,
    /// What a brick that is dead has on its disk.
    disk: Option<Disk>,
    logs: BTreeMap<NodeId, GroupLog>,
    /// Where it believes that logical nodes are served, and when it asked last.
    map: Map,
    mapped: u64,
    /// How often it was started.
    life: u64,
    clock: LocalClock,
    uplinks: Vec<Uplink>,
    frozen_until: u64,
    /// When it is woken next.
    wake: u64,
    force_ms: u64,
}

/// What happens next.
#[derive(Clone, Debug)]
enum Event {
    Deliver(LinkId, bool),
    Single(Pid, Pid, Rc<Single>),
    Wake(Pid, u64),
    Forced(Pid, u64),
    Broken(Pid, u64, LinkId),
    Connect(Pid, u64, usize),
    /// The same, after one to somebody who was dead.
    Reconnect(Pid, u64, usize),
    Resume(Pid, u64),
    Timer(Pid, u64),
    Read(Pid, u64, Ticket),
    HandOver(Pid, u64, Ticket, Rc<Fetched<State>>),
    Act(usize),
}

/// Something with the time at which it happens; what was said first goes first.
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

/// How much has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Messages that arrived, forces that ended, processes that were woken.
    pub events: u64,
    /// Milliseconds that have passed in the run.
    pub simulated_ms: u64,
    /// Calls that gateways have not taken, as too much waited already.
    pub turned_away: u64,
}

/// The cluster. Made from a plan, it runs to its end in [`World::run`].
pub struct World {
    plan: Plan,
    now: u64,
    processes: Vec<Process>,
    /// The process with each number: every start of a process has another.
    members: BTreeMap<u64, Pid>,
    last_member: u64,
    /// Which brick has each logical node, if they stay where they are.
    serving: BTreeMap<NodeId, Pid>,
    /// What the meta-server has kept, if they do not; and how many roots there were.
    kept: BTreeMap<NodeId, Kept>,
    last_root: u64,
    net: Net,
    queue: BinaryHeap<Scheduled>,
    last_event: u64,
    /// Messages and forces that are under way, and actions that have a time.
    busy: usize,
    planned: usize,
    /// What is held, by its two processes.
    parked: BTreeMap<(Pid, Pid), VecDeque<Event>>,
    /// What the disks that are stalled would have done.
    stalled: BTreeMap<(Pid, Work), Vec<Event>>,
    history: History,
    last_operation: u64,
    oracle: Oracle,
    count: Count,
    /// Actions that wait for others to be done.
    waiting: VecDeque<usize>,
    healing: bool,
    trace: Option<Vec<String>>,
}

impl World {
    /// A cluster in which nothing has happened.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let mut world = Self {
            now: 0,
            processes: Vec::new(),
            members: BTreeMap::new(),
            last_member: 0,
            serving: BTreeMap::new(),
            kept: BTreeMap::new(),
            last_root: 0,
            net: Net::new(plan.seed, plan.noise),
            queue: BinaryHeap::new(),
            last_event: 0,
            busy: 0,
            planned: 0,
            parked: BTreeMap::new(),
            stalled: BTreeMap::new(),
            history: History::default(),
            last_operation: 0,
            oracle: Oracle::default(),
            count: Count::default(),
            waiting: VecDeque::new(),
            healing: false,
            trace: None,
            plan,
        };
        world.oracle.solo = world.plan.demand == Demand::Solo;
        world.build();
        world
    }

    /// Writes down all that happens, to be shown.
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
            let node = NodeId(number as u32);
            let pid = self.add(Place::Brick(number), Vec::new());
            let pages = self.first_pages(node);
            self.oracle.begin(&pages);
            self.processes[pid].disk = Some(Disk::new(pages));
            self.serving.insert(node, pid);
        }
        if self.is_placed() {
            self.add(Place::Meta, Vec::new());
        }
        let mut peer_pids = Vec::new();
        for number in 1..=peers {
            let uplinks = self.brick_uplinks();
            peer_pids.push(self.add(Place::Peer(number), uplinks));
        }
        let mut redirector_pids = Vec::new();
        for number in 1..=redirectors {
            let uplink = Self::uplink(&peer_pids, number);
            redirector_pids.push(self.add(Place::Redirector(number), vec![uplink]));
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
            self.add(Place::Client(number), uplinks);
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
        let object = |slot: u16| State::Number(if is_ring { next(slot) } else { BALANCE });
        let objects = (0..slots).map(|slot| (slot, object(slot))).collect();
        let page = Key { node: node.0, page: 1, slot: 0 }.page();
        BTreeMap::from([(page, Page { objects: Rc::new(objects), ..Page::default() })])
    }

    fn add(&mut self, place: Place, uplinks: Vec<Uplink>) -> Pid {
        let force_ms = self.plan.noise.force_ms;
        let clock = LocalClock::default();
        let process = Process {
            place,
            role: None,
            disk: None,
            logs: BTreeMap::new(),
            map: Map::default(),
            mapped: 0,
            life: 0,
            clock,
            uplinks,
            frozen_until: 0,
            wake: u64::MAX,
            force_ms,
        };
        self.processes.push(process);
        self.processes.len() - 1
    }

    fn brick_uplinks(&self) -> Vec<Uplink> {
        let uplink =
            |(node, pid): (&NodeId, &Pid)| Uplink { node: Some(*node), choices: vec![*pid], chosen: 0, link: None };
        self.serving.iter().map(uplink).collect()
    }

    /// To one of several, beginning with another one for each number.
    fn uplink(choices: &[Pid], number: usize) -> Uplink {
        Uplink { node: None, choices: choices.to_vec(), chosen: number % choices.len().max(1), link: None }
    }

    fn pid(&self, place: Place) -> Option<Pid> {
        self.processes.iter().position(|process| process.place == place)
    }

    /// Starts a process, for the first time or again.
    fn start(&mut self, pid: Pid) {
        self.last_member += 1;
        let member = self.last_member;
        self.members.insert(member, pid);
        let first_holder = HolderId(member << 24);
        let shown = self.shown(pid);
        let Cluster { topology, window, snapshots, .. } = self.plan.cluster;
        let (is_placed, meta) = (self.is_placed(), self.meta(shown));
        let process = &mut self.processes[pid];
        process.life += 1;
        process.wake = u64::MAX;
        process.map = Map::default();
        let role = match process.place {
            Place::Meta => Role::Meta(Box::new(meta)),
            Place::Brick(number) if is_placed => {
                let logs = std::mem::take(&mut process.logs);
                Role::Host(Box::new(HostProcess::new(number, process.life, logs)))
            }
            Place::Brick(number) => {
                let mut disk = process.disk.take().unwrap_or_default();
                let node = NodeId(number as u32);
                let settings = Settings { node, moves: disk.moves, skew_ms: SKEW_MS, window_limit: window };
                let again = process.life > 1;
                let (brick, found) = match again {
                    true => disk.recover(settings, shown),
                    false => (Brick::new(settings), Vec::new()),
                };
                found.into_iter().for_each(|found| self.oracle.found_again(found));
                Role::Brick(Box::new(BrickProcess { brick, disk }))
            }
            Place::Peer(_) => {
                let helpers = if topology == Topology::Site { Helpers::Everybody } else { Helpers::Nobody };
                let peer = CacheNode::peer_server(first_holder, helpers, SKEW_MS).with_limit(WAITING);
                Role::Middle(Box::new(peer))
            }
            Place::Redirector(_) => Role::Middle(Box::new(CacheNode::redirector(first_holder))),
            Place::Client(_) => {
                let is_direct = process.uplinks.iter().any(|uplink| uplink.node.is_some());
                Role::Client(Box::new(ClientProcess::new(member, first_holder, is_direct, snapshots)))
            }
        };
        process.role = Some(role);
        for uplink in 0..self.processes[pid].uplinks.len() {
            let life = self.processes[pid].life;
            self.push(self.now, Event::Connect(pid, life, uplink));
        }
        self.note(|world| format!("{} starts", world.name(pid)));
        self.after(pid);
    }

    /// A gateway has not taken a call. That is as if the call had been lost, and is not told.
    fn turn_away(&mut self, pid: Pid, txn: TxnId, node: NodeId) {
        self.count.turned_away += 1;
        self.note(|world| format!("{} takes no more for {}: {txn:?}", world.name(pid), node.0));
    }

    fn name(&self, pid: Pid) -> String {
        self.processes[pid].place.to_string()
    }

    /// Whether there is a meta-server, and logical nodes may move.
    fn is_placed(&self) -> bool {
        self.plan.replicas() > 0
    }

    /// The root of a node's tree, where it is served now: its process, its machine and its pages.
    fn root(&self, node: NodeId) -> Option<(Pid, &Brick<Pid, State>, &Disk)> {
        self.processes.iter().enumerate().find_map(|(pid, process)| match process.role.as_ref()? {
            Role::Host(host) => {
                let Root { brick, pages, .. } = host.serves(node, process.clock.show(self.now))?;
                Some((pid, brick, pages))
            }
            Role::Brick(process) if self.serving.get(&node) == Some(&pid) => Some((pid, &process.brick, &process.disk)),
            _ => None,
        })
    }

    /// What the clock of a process shows.
    fn shown(&self, pid: Pid) -> u64 {
        self.processes[pid].clock.show(self.now)
    }

    // ------------------------------------------------------------------------------------------ what happens

    fn push(&mut self, at: u64, event: Event) {
        self.last_event += 1;
        self.busy += usize::from(event.is_under_way());
        self.planned += usize::from(matches!(event, Event::Act(_)));
        self.queue.push(Scheduled { at: at.max(self.now), number: self.last_event, event });
    }

    /// Runs all actions, then heals what is broken, runs until nothing is left to do, and judges what has come of it.
    ///
    /// # Errors
    /// What was found wrong first.
    pub fn run(&mut self) -> Result<(), Wrong> {
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
        self.calm()?;
        self.judge()
    }

    fn run_until(&mut self, time: u64) -> Result<(), Wrong> {
        while self.queue.peek().is_some_and(|next| next.at <= time) {
            self.step()?;
        }
        self.now = time;
        Ok(())
    }

    /// The next thing happens.
    fn step(&mut self) -> Result<(), Wrong> {
        let Some(Scheduled { at, event, .. }) = self.queue.pop() else { return Ok(()) };
        self.busy -= usize::from(event.is_under_way());
        self.planned -= usize::from(matches!(event, Event::Act(_)));
        self.now = at;
        if let Some(pid) = self.is_put_off(&event) {
            let later = self.processes[pid].frozen_until;
            self.push(later, event);
            return Ok(());
        }
        if let Some(pair) = self.is_held(&event) {
            self.parked.entry(pair).or_default().push_back(event);
            return Ok(());
        }
        if let Some(stalled) = event.work().and_then(|work| self.stalled.get_mut(&work)) {
            stalled.push(event);
            return Ok(());
        }
        self.happen(event);
        self.oracle.found()
    }

    /// The process that would have to do something and is frozen.
    fn is_put_off(&self, event: &Event) -> Option<Pid> {
        let pid = match event {
            Event::Deliver(link, up) => {
                let link = &self.net.links[*link];
                if *up { link.upper } else { link.lower }
            }
            Event::Single(_, to, _) => *to,
            Event::Wake(pid, _)
            | Event::Broken(pid, ..)
            | Event::Connect(pid, ..)
            | Event::Reconnect(pid, ..)
            | Event::Resume(pid, _)
            | Event::Timer(pid, _)
            | Event::Read(pid, ..)
            | Event::HandOver(pid, ..) => *pid,
            Event::Forced(..) | Event::Act(_) => return None,
        };
        (self.processes[pid].frozen_until > self.now).then_some(pid)
    }

    fn is_held(&self, event: &Event) -> Option<(Pid, Pid)> {
        let pair = match event {
            Event::Deliver(link, up) => {
                let link = &self.net.links[*link];
                if *up { (link.lower, link.upper) } else { (link.upper, link.lower) }
            }
            Event::Single(from, to, _) => (*from, *to),
            _ => return None,
        };
        self.net.held.contains(&pair).then_some(pair)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Deliver(link, up) => {
                self.count.events += 1;
                self.deliver(link, up);
            }
            Event::Single(from, to, message) => {
                self.count.events += 1;
                self.single(from, to, &message);
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
                self.forced(pid, life);
            }
            Event::Broken(pid, life, link) => self.broken(pid, life, link),
            Event::Connect(pid, life, uplink) | Event::Reconnect(pid, life, uplink) => self.connect(pid, life, uplink),
            Event::Read(pid, life, ticket) => {
                self.count.events += 1;
                self.read(pid, life, ticket);
            }
            Event::HandOver(pid, life, ticket, fetched) => self.hand_over(pid, life, ticket, &fetched),
            Event::Resume(pid, life) | Event::Timer(pid, life) => {
                if self.processes[pid].life == life {
                    self.resume(pid);
                }
            }
            Event::Act(index) => {
                let action = self.plan.actions[index].1.clone();
                self.act(&action);
            }
        }
    }

    /// It is time for something that a process waits for.
    fn wake(&mut self, pid: Pid) {
        let now = self.shown(pid);
        match &mut self.processes[pid].role {
            Some(Role::Brick(process)) => {
                let BrickProcess { brick, disk } = &mut **process;
                brick.poll(now, &mut |page| disk.version(page));
            }
            Some(Role::Host(host)) => host.poll(now),
            Some(Role::Meta(meta)) => meta.poll(now),
            Some(Role::Middle(middle)) => middle.poll(now),
            Some(Role::Client(client)) => client.poll(now),
            None => return,
        }
        self.after(pid);
    }

    /// A process has done something: what it wants is done, and it is woken when it says.
    fn after(&mut self, pid: Pid) {
        match &self.processes[pid].role {
            Some(Role::Brick(_)) => self.drain_brick(pid),
            Some(Role::Host(_)) => self.drain_host(pid),
            Some(Role::Meta(_)) => self.drain_meta(pid),
            Some(Role::Middle(_)) => self.drain_middle(pid),
            Some(Role::Client(_)) => self.drain_client(pid),
            None => return,
        }
        let process = &self.processes[pid];
        let deadline = match &process.role {
            Some(Role::Brick(process)) => Some(process.brick.deadline()),
            Some(Role::Host(host)) => Some(host.deadline()),
            Some(Role::Meta(meta)) => meta.deadline(process.clock.show(self.now)),
            Some(Role::Middle(middle)) => middle.deadline(),
            Some(Role::Client(client)) => client.deadline(),
            None => None,
        };
        let Some(deadline) = deadline else { return };
        let at = process.clock.when(deadline).max(self.now + 1);
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

    /// How much has happened.
    #[must_use]
    pub fn count(&self) -> Count {
        Count { simulated_ms: self.now, ..self.count }
    }

    /// All that happened, if it was to be written down.
    #[must_use]
    pub fn transcript(&self) -> &[String] {
        self.trace.as_deref().unwrap_or_default()
    }
}

impl Event {
    /// What a disk does when this happens.
    fn work(&self) -> Option<(Pid, Work)> {
        match self {
            Self::Forced(pid, _) => Some((*pid, Work::Forces)),
            Self::HandOver(pid, ..) => Some((*pid, Work::Reads)),
            _ => None,
        }
    }

    /// Something that goes on until it is done.
    fn is_under_way(&self) -> bool {
        matches!(
            self,
            Self::Deliver(..)
                | Self::Single(..)
                | Self::Forced(..)
                | Self::Broken(..)
                | Self::Connect(..)
                | Self::Resume(..)
                | Self::Read(..)
                | Self::HandOver(..)
        )
    }
}
