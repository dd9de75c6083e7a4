//! The meta-server, and the maps that others have of what it has decided.
//!
//! Whoever asks for something goes by its own map, which may be old. It fetches a newer one when it was refused, when a
//! connection is gone, and now and then.

use std::collections::BTreeMap;

use model::NodeId;
use protocol::placement::decider::{Decider, Output};
use protocol::placement::{Ask, Epoch, Map, MemberId, Phase, Remedy, Stale};

use super::net::{Pid, Single};
use super::{Role, World};
use crate::plan::Place;

/// How long leases of members are, in milliseconds.
const LEASE_MS: u64 = 1_500;
/// How long a map is gone by that nobody has said to be old, in milliseconds.
const MAP_MS: u64 = 500;
/// How soon a map may be fetched again, in milliseconds.
const FETCH_MS: u64 = 20;
/// How often a wish is tried that could not be fulfilled yet, in milliseconds.
const WISH_MS: u64 = 100;

/// The meta-server's process.
pub(super) struct MetaProcess {
    decider: Decider,
    /// Where nodes are to move when they can.
    wishes: BTreeMap<NodeId, Vec<MemberId>>,
}

impl MetaProcess {
    /// Does what it is time for.
    pub(super) fn poll(&mut self, now: u64) {
        self.decider.poll(now);
    }

    /// When it has something to do.
    pub(super) fn deadline(&self, now: u64) -> Option<u64> {
        let wish = self.wishes.first_key_value().map(|_| now + WISH_MS);
        self.decider.deadline(now).into_iter().chain(wish).min()
    }

    /// A brick has said something.
    pub(super) fn said(&mut self, from: MemberId, ask: Ask, now: u64) {
        self.decider.handle(from, ask, now);
    }

    /// What was decided.
    pub(super) fn map(&self) -> &Map {
        self.decider.map()
    }
}

impl World {
    /// The meta-server starts, for the first time or again.
    pub(super) fn meta(&self, now: u64) -> MetaProcess {
        let mut decider = Decider::new(LEASE_MS, self.kept.clone(), now);
        if self.kept.is_empty() {
            for number in 1..=self.plan.cluster.bricks {
                decider.create(NodeId(number as u32), self.group_at(number), now);
            }
        }
        MetaProcess { decider, wishes: BTreeMap::new() }
    }

    /// The group of which a brick is to be the first member.
    fn group_at(&self, first: usize) -> Vec<MemberId> {
        let bricks = self.plan.cluster.bricks;
        let others = (0..self.plan.replicas().min(bricks)).map(|next| (first - 1 + next) % bricks + 1);
        others.map(|number| MemberId(number as u32)).collect()
    }

    /// A logical node is to move.
    pub(super) fn wish(&mut self, node: u32, brick: usize) {
        let bricks = self.plan.cluster.bricks;
        if node as usize > bricks || brick > bricks {
            return;
        }
        let to = self.group_at(brick);
        let Some(pid) = self.pid(Place::Meta) else { return };
        if let Some(Role::Meta(meta)) = &mut self.processes[pid].role {
            meta.wishes.insert(NodeId(node), to);
            self.after(pid);
        }
    }

    pub(super) fn drain_meta(&mut self, pid: Pid) {
        let now = self.shown(pid);
        let Some(Role::Meta(meta)) = &mut self.processes[pid].role else { return };
        let MetaProcess { decider, wishes } = &mut **meta;
        wishes.retain(|node, to| !decider.remap(*node, to.clone(), now));
        let outputs: Vec<Output> = decider.outputs().collect();
        let invariants = decider.invariants();
        self.oracle.demand(invariants);
        for output in outputs {
            match output {
                Output::Keep(node, kept) => {
                    self.note(|_| format!("{node:?}: {:?}", kept.group));
                    let (group, before) = (kept.group.clone(), self.kept.insert(node, kept));
                    let before = before.map(|kept| kept.group);
                    let has_moved = group.phase == Phase::Serving
                        && before.as_ref().is_some_and(|before| before.phase == Phase::Sealed);
                    let moves = before.map_or(0, |before| before.moves) + u32::from(has_moved);
                    if group.moves != moves {
                        self.oracle.report(format!("M1.5: {node:?} has moved {moves} times, and says {}", group.moves));
                    }
                }
                Output::Send(to, notice) => {
                    if let Some(to) = self.pid(Place::Brick(to.0 as usize)) {
                        self.send_single(pid, to, Single::Notice(notice));
                    }
                }
            }
        }
    }

    pub(super) fn send_meta(&mut self, from: Pid, message: Single) {
        if let Some(meta) = self.pid(Place::Meta) {
            self.send_single(from, meta, message);
        }
    }

    // ------------------------------------------------------------------------------------------ maps

    /// Where somebody believes that a node is served, and since when.
    pub(super) fn believed(&self, pid: Pid, node: NodeId) -> Option<(Pid, Epoch)> {
        if !self.is_placed() {
            return self.serving.get(&node).map(|at| (*at, Epoch::default()));
        }
        let map = match &self.processes[pid].role {
            Some(Role::Host(host)) => host.member.map(),
            _ => &self.processes[pid].map,
        };
        let group = map.lookup(node)?;
        let first = self.pid(Place::Brick(group.first()?.id.0 as usize))?;
        Some((first, group.epoch))
    }

    /// Fetches the map, unless that was done just now.
    pub(super) fn fetch_map(&mut self, pid: Pid) {
        let process = &mut self.processes[pid];
        // Bricks hear of everything with their leases.
        let is_asker = matches!(process.role, Some(Role::Middle(_) | Role::Client(_)));
        if is_asker && process.mapped + FETCH_MS <= self.now && self.is_placed() {
            self.processes[pid].mapped = self.now;
            self.send_meta(pid, Single::Fetch);
        }
    }

    /// Fetches the map if it is old.
    pub(super) fn refresh_map(&mut self, pid: Pid) {
        if self.processes[pid].mapped + MAP_MS <= self.now {
            self.fetch_map(pid);
        }
    }

    /// A map has come, perhaps an old one.
    pub(super) fn mapped(&mut self, pid: Pid, map: &Map) {
        for (node, group) in map.groups() {
            self.processes[pid].map.learn(node, group);
        }
    }

    /// A brick has refused something.
    pub(super) fn refused(&mut self, pid: Pid, why: Stale) {
        if why.remedy() == Remedy::Fetch {
            self.fetch_map(pid);
        }
    }

    /// What is not as it is to be in the end: every node is served by all who are wanted.
    pub(super) fn is_moving(&self) -> Option<String> {
        if !self.is_placed() {
            return None;
        }
        let steady = |(node, kept): (&NodeId, &protocol::placement::decider::Kept)| {
            let group = &kept.group;
            let is_whole = group.joining().next().is_none() && group.members.len() == group.wanted.len();
            is_whole && group.phase == Phase::Serving && self.root(*node).is_some()
        };
        let moving = self.kept.iter().find(|one| !steady(*one));
        moving.map(|(node, kept)| format!("{node:?} does not become whole: {kept:?}"))
    }
}
