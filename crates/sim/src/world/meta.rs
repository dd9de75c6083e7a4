//! The meta-server, and the placement maps of other processes.
//!
//! A process uses its own map, which may be outdated. It fetches a newer one after a refusal, after the loss of a
//! connection, and periodically.

use model::NodeId;
use protocol::placement::decider::{Decider, Output};
use protocol::placement::{Epoch, GroupMap, MemberId, MetaRequest, NotServing, Remedy};

use super::World;
use super::net::{Datagram, Pid};
use super::process::ProcessMachine;
use crate::plan::ProcessName;

/// The length of members' leases, in milliseconds.
const LEASE_MS: u64 = 1_500;
/// The age at which a map is refreshed, in milliseconds.
const MAP_MAX_AGE_MS: u64 = 500;
/// The minimum time between two fetches of the map, in milliseconds.
const MAP_MIN_AGE_MS: u64 = 20;

/// The meta-server's process.
pub(super) struct MetaProcess {
    decider: Decider,
}

impl MetaProcess {
    /// Performs the actions that are due.
    pub(super) fn poll(&mut self, now: u64) {
        self.decider.poll(now);
    }

    /// Its next deadline.
    pub(super) fn deadline(&self, now: u64) -> Option<u64> {
        self.decider.deadline(now)
    }

    /// Handles a message from a brick.
    pub(super) fn handle_ask(&mut self, from: MemberId, ask: MetaRequest, now: u64) {
        self.decider.handle(from, ask, now);
    }

    /// The placement map.
    pub(super) fn map(&self) -> &GroupMap {
        self.decider.map()
    }
}

impl World {
    /// Creates the meta-server at a start or restart.
    pub(super) fn meta(&self, now: u64) -> MetaProcess {
        let mut decider = Decider::new(LEASE_MS, self.kept.clone(), now);
        if self.kept.is_empty() {
            for number in 1..=self.plan.cluster.bricks {
                decider.create(NodeId(number as u32), self.group_at(number), now);
            }
        }
        MetaProcess { decider }
    }

    /// The group with this brick as its first member.
    fn group_at(&self, first: usize) -> Vec<MemberId> {
        let bricks = self.plan.cluster.bricks;
        let others = (0..self.plan.replicas().min(bricks)).map(|next| (first - 1 + next) % bricks + 1);
        others.map(|number| MemberId(number as u32)).collect()
    }

    pub(super) fn drain_meta(&mut self, pid: Pid) {
        let Some(ProcessMachine::Meta(meta)) = &mut self.processes[pid].machine else { return };
        let MetaProcess { decider } = &mut **meta;
        let outputs: Vec<Output> = decider.outputs().collect();
        let invariants = decider.check_invariants();
        self.oracle.expect_invariants(invariants);
        for output in outputs {
            match output {
                Output::Persist(node, kept) => {
                    self.note(|_| format!("{node:?}: {:?}", kept.group));
                    self.kept.insert(node, kept);
                }
                Output::Send(to, notice) => {
                    if let Some(to) = self.pid(ProcessName::Brick(to.0 as usize)) {
                        self.send_datagram(pid, to, Datagram::Notice(notice));
                    }
                }
            }
        }
    }

    pub(super) fn send_meta(&mut self, from: Pid, message: Datagram) {
        if let Some(meta) = self.pid(ProcessName::Meta) {
            self.send_datagram(from, meta, message);
        }
    }

    // ------------------------------------------------------------------------------------------ maps

    /// The brick that serves a node by the map of a process, and its epoch.
    pub(super) fn believed_location(&self, pid: Pid, node: NodeId) -> Option<(Pid, Epoch)> {
        if !self.has_groups() {
            let epoch = Epoch(self.processes[pid].placement.nodes.get(&node).map_or(1, |place| place.epoch));
            return self.serving.get(&node).map(|at| (*at, epoch));
        }
        let map = match &self.processes[pid].machine {
            Some(ProcessMachine::GroupMember(host)) => host.member.map(),
            _ => &self.processes[pid].map,
        };
        let group = map.lookup(node)?;
        let first = self.pid(ProcessName::Brick(group.first()?.id.0 as usize))?;
        Some((first, group.epoch))
    }

    /// Fetches the map, unless it was fetched just before.
    pub(super) fn fetch_map(&mut self, pid: Pid) {
        let process = &mut self.processes[pid];
        // Bricks receive changes of the map with their leases.
        let is_asker = matches!(process.machine, Some(ProcessMachine::CacheNode(_) | ProcessMachine::Client(_)));
        if is_asker && process.map_fetched + MAP_MIN_AGE_MS <= self.now && self.has_groups() {
            self.processes[pid].map_fetched = self.now;
            self.send_meta(pid, Datagram::Fetch);
        }
    }

    /// Fetches the map if it is old.
    pub(super) fn refresh_map(&mut self, pid: Pid) {
        if self.processes[pid].map_fetched + MAP_MAX_AGE_MS <= self.now {
            self.fetch_map(pid);
        }
    }

    /// A map has arrived, perhaps an outdated one.
    pub(super) fn handle_map(&mut self, pid: Pid, map: &GroupMap) {
        for (node, group) in map.groups() {
            self.processes[pid].map.learn(node, group);
        }
    }

    /// A brick has refused a request.
    pub(super) fn handle_refused(&mut self, pid: Pid, why: NotServing) {
        if why.remedy() == Remedy::Fetch {
            self.fetch_map(pid);
        }
    }

    /// The first node that its wanted bricks do not all serve.
    pub(super) fn pending_group(&self) -> Option<String> {
        if !self.has_groups() {
            return None;
        }
        let steady = |(node, kept): (&NodeId, &protocol::placement::decider::PersistedNode)| {
            let group = &kept.group;
            let is_whole = group.joining().next().is_none() && group.members.len() == group.wanted.len();
            is_whole && self.root(*node).is_some()
        };
        let moving = self.kept.iter().find(|one| !steady(*one));
        moving.map(|(node, kept)| format!("{node:?} does not become whole: {kept:?}"))
    }
}
