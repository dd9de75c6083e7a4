//! Four bricks, two logical nodes and a meta-server. Messages are lost, repeated and reordered, links are cut in one
//! direction or both, clocks drift, all processes crash, and nodes move.

use std::collections::{BTreeMap, BTreeSet};

use model::NodeId;
use protocol::lease::Ms;
use protocol::placement::decider::{self, Decider, PersistedNode};
use protocol::placement::{Group, MemberId, MetaNotice, MetaRequest, member};
use protocol::replica::log::LogPoint;
use protocol::replica::message::Message;
use protocol::replica::{Output, Serving};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::brick::{Disk, DriftingClock, TestBrick, Write};
use crate::check::NodeHistory;

const BRICKS: u32 = 4;
const NODES: u32 = 2;
const LEASE_MS: u64 = 300;
/// The address of the meta-server. The address of brick n is n.
const META: u32 = 0;

#[derive(Clone, Debug)]
enum Payload {
    Ask(MetaRequest),
    Notice(MetaNotice),
    Group(NodeId, Message<u64>),
}

struct World {
    rng: StdRng,
    now: Ms,
    bricks: Vec<TestBrick>,
    decider: Option<Decider>,
    kept: BTreeMap<NodeId, PersistedNode>,
    meta_clock: DriftingClock,
    messages: Vec<(u32, u32, Payload)>,
    /// Links that lose all messages, by sender and receiver.
    cut: BTreeSet<(u32, u32)>,
    histories: BTreeMap<NodeId, NodeHistory>,
    last_record: u64,
    healthy: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let bricks = (1..=BRICKS).map(|id| TestBrick::new(id, &mut rng)).collect();
        let meta_clock = DriftingClock::any(&mut rng);
        let mut decider = Decider::new(LEASE_MS, [], meta_clock.at(0));
        for node in 1..=NODES {
            let wanted = (0..rng.random_range(1..=3)).map(|at| MemberId((node + at) % BRICKS + 1)).collect();
            assert!(decider.create(NodeId(node), wanted, meta_clock.at(0)));
        }
        let mut world = Self {
            rng,
            now: 0,
            bricks,
            decider: Some(decider),
            kept: BTreeMap::new(),
            meta_clock,
            messages: Vec::new(),
            cut: BTreeSet::new(),
            histories: (1..=NODES).map(|node| (NodeId(node), NodeHistory::default())).collect(),
            last_record: 0,
            healthy: false,
        };
        world.drain_meta();
        world
    }

    fn brick(&mut self, id: MemberId) -> &mut TestBrick {
        &mut self.bricks[id.0 as usize - 1]
    }

    fn any_brick(&mut self) -> usize {
        self.rng.random_range(0..BRICKS) as usize
    }

    fn any_node(&mut self) -> NodeId {
        NodeId(self.rng.random_range(1..=NODES))
    }

    // -------------------------------------------------------------------------------------------- outputs

    fn drain_meta(&mut self) {
        let Some(decider) = &mut self.decider else { return };
        for output in decider.outputs() {
            match output {
                decider::Output::Persist(node, kept) => {
                    self.kept.insert(node, kept);
                }
                decider::Output::Send(to, notice) => self.messages.push((META, to.0, Payload::Notice(notice))),
            }
        }
        decider.check_invariants().unwrap();
    }

    fn drain(&mut self, at: usize) {
        let outputs: Vec<member::Output> = self.bricks[at].member.outputs().collect();
        let now = self.bricks[at].clock.at(self.now);
        for output in outputs {
            let brick = &mut self.bricks[at];
            match output {
                member::Output::Send(ask) => self.messages.push((brick.id.0, META, Payload::Ask(ask))),
                member::Output::Configure(node, group) => {
                    let leased = brick.leased;
                    let replica = brick.replica(node);
                    replica.extend_lease(leased, now);
                    replica.configure(&group, now);
                }
                member::Output::Leased(until) => {
                    brick.leased = until;
                    brick.replicas.values_mut().for_each(|replica| replica.extend_lease(until, now));
                }
                member::Output::StartAcknowledged(node, epoch) => brick.replica(node).handle_start_acknowledged(epoch),
            }
        }
        for node in (1..=NODES).map(NodeId) {
            self.drain_replica(at, node);
        }
    }

    fn drain_replica(&mut self, at: usize, node: NodeId) {
        let brick = &mut self.bricks[at];
        let (id, history) = (brick.id, self.histories.get_mut(&node).unwrap());
        let epoch = brick.member.map().lookup(node).map(|group| group.epoch).unwrap_or_default();
        let Some(replica) = brick.replicas.get_mut(&node) else { return };
        let disk = brick.disks.entry(node).or_default();
        let outputs: Vec<Output<u64>> = replica.outputs().collect();
        if outputs.is_empty() {
            return;
        }
        let mut has_reported = false;
        for output in outputs {
            let log = || -> Vec<u64> { disk.all.iter().map(|(_, record)| *record).collect() };
            match output {
                Output::Append(point, record) => disk.begin(Write::Append(point, record)),
                Output::Truncate(position) => disk.begin(Write::Truncate(position)),
                Output::Send(to, message) => self.messages.push((id.0, to.0, Payload::Group(node, message))),
                Output::Report(node, epoch, report) => {
                    self.messages.push((id.0, META, Payload::Ask(MetaRequest::Report { node, epoch, report })));
                }
                Output::Durable(position) => {
                    history.record_durable(id, epoch, position, &log()).unwrap();
                    has_reported = true;
                }
                Output::Lead => {
                    history.check_leader(id, &log()).unwrap();
                    brick.leads.insert(node, log());
                }
                Output::Resign => drop(brick.leads.remove(&node).unwrap()),
                Output::Serving(_) => {}
                Output::CopyFrom(from) => brick.copying.push((node, from)),
            }
        }
        replica.check_invariants().unwrap();
        assert_eq!(disk.all.len() as u64, replica.log().end(), "the disk has the records of the replica");
        if has_reported && brick.leads.contains_key(&node) {
            self.check_acknowledged(at, node);
        }
    }

    // -------------------------------------------------------------------------------------------- checks

    /// Checks a report of the first member that records are durable: all members have them on their disks, and no other
    /// brick leads.
    fn check_acknowledged(&self, at: usize, node: NodeId) {
        let brick = &self.bricks[at];
        let group = brick.member.map().lookup(node).unwrap();
        let durable = &self.histories[&node].durable;
        for seat in &group.members {
            let held = &self.bricks[seat.id.0 as usize - 1].disks[&node].durable;
            let has = held.iter().take(durable.len()).map(|(_, record)| record).eq(durable);
            let what = format!("{:?} reports {durable:?} durable, but {:?} holds {held:?}", brick.id, seat.id);
            assert!(has, "M1.9: {what}");
        }
        for other in self.bricks.iter().filter(|other| other.is_up && other.id != brick.id) {
            let serving = other.replicas.get(&node).map(|replica| replica.serving(other.clock.at(self.now)));
            assert!(serving != Some(Serving::All), "M1.2: {:?} acknowledges while {:?} leads", brick.id, other.id);
        }
    }

    /// Checks the bricks that serve at this instant.
    fn check_instant(&mut self) {
        for (node, history) in &mut self.histories {
            let mut leads = Vec::new();
            for brick in self.bricks.iter().filter(|brick| brick.is_up) {
                let Some(replica) = brick.replicas.get(node) else { continue };
                let serving = replica.serving(brick.clock.at(self.now));
                if serving == Serving::All {
                    leads.push(brick.id);
                }
                if serving != Serving::Nothing {
                    let epoch = brick.member.map().lookup(*node).unwrap().epoch;
                    history.check_served(brick.id, epoch, replica.announced_position()).unwrap();
                }
            }
            assert!(leads.len() < 2, "M1.2: all of {leads:?} lead {node:?} at {}", self.now);
        }
    }

    // -------------------------------------------------------------------------------------------- events
    fn step(&mut self) {
        self.now += self.rng.random_range(0..3);
        if self.rng.random_bool(0.5) {
            self.poll_meta();
        }
        match self.rng.random_range(0..1000) {
            0..600 if !self.messages.is_empty() => self.deliver_message(),
            600..740 => self.force(),
            740..860 => self.poll(),
            // A leader appends a record of its own.
            860..900 => self.append_record(),
            // Fewer requests without faults, so that members catch up.
            900..970 if !self.healthy || self.rng.random_bool(0.3) => self.request(),
            970..978 => self.copy(),
            978..988 => self.trim(),
            988..1000 if !self.healthy => self.fault(),
            _ => {}
        }
        self.check_instant();
    }

    fn deliver_message(&mut self) {
        // Half of the messages are fast, and overtake many others.
        let (last, is_fast) = (self.messages.len() - 1, self.rng.random_bool(0.5));
        let next = if is_fast { last } else { self.rng.random_range(0..=last) };
        let (from, to, payload) = self.messages.swap_remove(next);
        if self.cut.contains(&(from, to)) || (!self.healthy && self.rng.random_bool(0.05)) {
            return;
        }
        if !self.healthy && self.rng.random_bool(0.1) {
            self.messages.push((from, to, payload.clone()));
        }
        if let Payload::Ask(ask) = payload {
            let now = self.meta_clock.at(self.now);
            if let Some(decider) = &mut self.decider {
                decider.handle(MemberId(from), ask, now);
            }
            return self.drain_meta();
        }
        let (at, real) = (to as usize - 1, self.now);
        let brick = &mut self.bricks[at];
        if !brick.is_up {
            return;
        }
        match payload {
            Payload::Notice(notice) => brick.member.handle(notice),
            Payload::Group(node, message) => {
                let now = brick.clock.at(real);
                brick.replica(node).handle(MemberId(from), message, now);
            }
            Payload::Ask(_) => {}
        }
        self.drain(at);
    }

    fn force(&mut self) {
        let (at, node) = (self.any_brick(), self.any_node());
        let brick = &mut self.bricks[at];
        let now = brick.clock.at(self.now);
        if let (true, Some(disk)) = (brick.is_up, brick.disks.get_mut(&node)) {
            let count = self.rng.random_range(0..=disk.pending.len());
            if let Some(point) = disk.force(count) {
                brick.replica(node).handle_forced(point, now);
            }
            self.drain(at);
        }
    }

    fn poll_meta(&mut self) {
        let now = self.meta_clock.at(self.now);
        if let Some(decider) = &mut self.decider {
            decider.poll(now);
        }
        self.drain_meta();
    }

    fn append_record(&mut self) {
        let (node, record) = (self.any_node(), self.last_record + 1);
        let Some(at) = self.bricks.iter().position(|brick| brick.leads.contains_key(&node)) else { return };
        let brick = &mut self.bricks[at];
        let now = brick.clock.at(self.now);
        if !self.healthy && brick.replica(node).append(record, now).is_ok() {
            self.last_record = record;
        }
        self.drain(at);
    }

    fn poll(&mut self) {
        let at = self.any_brick();
        let brick = &mut self.bricks[at];
        if brick.is_up {
            let now = brick.clock.at(self.now);
            brick.member.poll(now);
            brick.replicas.values_mut().for_each(|replica| replica.poll(now));
            self.drain(at);
        }
    }

    /// Sends a request to the brick that is the first member by the map of another brick, which may be old.
    fn request(&mut self) {
        let (node, asker) = (self.any_node(), self.any_brick());
        let Some(group) = self.bricks[asker].member.map().lookup(node).cloned() else { return };
        let Some(first) = group.first() else { return };
        let (real, record) = (self.now, self.last_record + 1);
        let brick = self.brick(first.id);
        let now = brick.clock.at(real);
        let admitted = brick.is_up && brick.replica(node).admit(group.epoch, Serving::All, now).is_ok();
        if admitted {
            assert!(brick.leads.contains_key(&node), "{:?} admits a request without a participant", first);
            assert_eq!(brick.member.map().lookup(node).map(|group| group.epoch), Some(group.epoch));
            brick.replica(node).append(record, now).unwrap();
            self.last_record = record;
        }
        self.drain(first.id.0 as usize - 1);
    }

    /// Completes a copy of a logical node.
    fn copy(&mut self) {
        let at = self.any_brick();
        let brick = &mut self.bricks[at];
        let now = brick.clock.at(self.now);
        let Some((node, from)) = brick.copying.pop() else { return };
        let source = self.brick(from);
        let Some(announced) = source.replicas.get(&node).map(|replica| replica.announced_position()) else { return };
        let durable: Vec<_> = source.disks[&node].durable[..announced as usize].to_vec();
        let Some((epoch, _)) = durable.last().copied() else { return };
        let brick = &mut self.bricks[at];
        if brick.replica(node).handle_copied(LogPoint { epoch, position: announced }, now) {
            brick.disks.insert(node, Disk::with_records(durable));
        }
        self.drain(at);
    }

    /// Installs records at a brick and trims its log.
    fn trim(&mut self) {
        let (at, node) = (self.any_brick(), self.any_node());
        let brick = &mut self.bricks[at];
        if let Some(replica) = brick.replicas.get_mut(&node) {
            let position = self.rng.random_range(0..=replica.announced_position());
            replica.trim(position);
            let base = replica.log().base().position;
            brick.disks.entry(node).or_default().base = base;
        }
    }

    fn fault(&mut self) {
        let at = self.any_brick();
        match self.rng.random_range(0..100) {
            0..20 if self.bricks[at].is_up => self.bricks[at].crash(&mut self.rng),
            20..50 if !self.bricks[at].is_up => self.bricks[at].restart(&mut self.rng),
            50..55 => self.decider = None,
            55..65 => self.restart_meta(),
            65..84 => {
                let (from, to) = (self.rng.random_range(0..=BRICKS), self.rng.random_range(0..=BRICKS));
                self.cut.insert((from, to));
                if self.rng.random_bool(0.7) {
                    self.cut.insert((to, from));
                }
            }
            84..91 => {
                // The brick is cut off from the meta-server only.
                let id = self.bricks[at].id.0;
                self.cut.insert((id, META));
                if self.rng.random_bool(0.5) {
                    self.cut.insert((META, id));
                }
            }
            _ => self.cut.clear(),
        }
    }

    fn restart_meta(&mut self) {
        if self.decider.is_none() {
            self.meta_clock = DriftingClock::any(&mut self.rng);
            self.decider = Some(Decider::new(LEASE_MS, self.kept.clone(), self.meta_clock.at(self.now)));
        }
    }

    // -------------------------------------------------------------------------------------------- the end

    /// Ends all faults and runs until all wanted bricks serve and hold everything.
    fn heal(&mut self) {
        self.healthy = true;
        self.cut.clear();
        self.restart_meta();
        for at in 0..self.bricks.len() {
            if !self.bricks[at].is_up {
                self.bricks[at].restart(&mut self.rng);
            }
        }
        let before = self.last_record;
        for _ in 0..40_000 {
            self.step();
            if self.last_record > before + 4 && self.is_whole() {
                return;
            }
        }
        panic!(
            "the wanted bricks do not all serve, with {} messages under way: {}",
            self.messages.len(),
            self.summary()
        );
    }

    /// A summary of the state of all bricks.
    fn summary(&self) -> String {
        let mut lines: Vec<String> = self.kept.iter().map(|(node, kept)| format!("{node:?} {kept:?}")).collect();
        for (node, brick) in self.histories.keys().flat_map(|node| self.bricks.iter().map(move |brick| (node, brick))) {
            let Some(replica) = brick.replicas.get(node) else { continue };
            let (log, now) = (replica.log(), brick.clock.at(self.now));
            let (serving, epoch) = (replica.serving(now), brick.member.map().lookup(*node).map(|group| group.epoch));
            let (base, end, forced, runs) = (log.base(), log.end(), log.forced_position(), log.last_points());
            let at = format!(
                "{:?}{:?} {node:?} {epoch:?} {serving:?} announced {}",
                brick.id,
                brick.incarnation,
                replica.announced_position()
            );
            lines.push(format!("{at} base {base:?} end {end} forced {forced} {runs:?}"));
        }
        lines.join("\n")
    }

    fn is_whole(&self) -> bool {
        self.histories.iter().all(|(node, history)| {
            let PersistedNode { group, holders } = &self.kept[node];
            let serves = |group: &Group, id: &MemberId| {
                let brick = &self.bricks[id.0 as usize - 1];
                let Some(replica) = brick.replicas.get(node) else { return false };
                let all = replica.announced_position() == history.durable.len() as u64;
                let needs = if group.first().map(|seat| seat.id) == Some(*id) { Serving::All } else { Serving::Reads };
                all && replica.serving(brick.clock.at(self.now)) == needs
            };
            let wanted: BTreeSet<MemberId> = group.wanted.iter().copied().collect();
            let is_steady = *holders == wanted && group.members.len() == wanted.len();
            is_steady && group.wanted.iter().all(|id| serves(group, id))
        })
    }
}

/// Runs the history of a seed. Returns how many records became durable.
pub(crate) fn run(seed: u64) -> usize {
    let mut world = World::new(seed);
    for _ in 0..6000 {
        world.step();
    }
    world.heal();
    world.histories.values().map(|history| history.durable.len()).sum()
}

#[test]
fn durable_records_survive_and_one_brick_leads_at_a_time() {
    crate::run_all(run);
}
