//! The placement of logical nodes in clusters whose nodes move (M1): the catalogue, and the maps that processes have of it.
//!
//! The steps of a move are those of the catalogue that ships. Here they are made by one process, which may be down; its state is durable.
//! Bricks and peer servers hear of changes by messages that may be lost, and fetch the map now and then. A process that starts may get
//! an outdated map first, as from a follower that lags behind.

use std::collections::BTreeMap;
use std::sync::Arc;

use meta::catalog::{self, Epoch};
use model::NodeId;
use node::drivers::brick::{EditResult, JobId, PlacementEdit, RemoteWork};
use node::node_placement::{BrickId, PlacementSnapshot};
use wire::cluster::{CopiedRows, CopyRows};

use super::net::{Datagram, Pid};
use super::process::ProcessMachine;
use super::{RunFailure, World};
use crate::plan::{Cluster, ProcessName};

/// The age at which a map is fetched again, in milliseconds.
const MAP_MAX_AGE_MS: u64 = 500;
/// The chance that a process gets an outdated map when it starts, as 1 in this number.
const OUTDATED_MAP_ODDS: u64 = 3;

/// A placement map, and the number of changes before it.
#[derive(Clone, Debug)]
pub(super) struct VersionedMap {
    version: u64,
    map: Arc<PlacementSnapshot>,
    /// The number of the classes and indexes that there were when it was sent: it is applied after them.
    schema: usize,
}

/// A message about placement.
#[derive(Clone, Debug)]
pub(super) enum PlacementMessage {
    /// Fetches the map, for a job of a brick or without a reason.
    Fetch(Option<JobId>),
    /// The map; with a job if that was to fetch the newest one.
    Map(VersionedMap, Option<JobId>),
    /// Changes the placement of a logical node.
    Edit(JobId, NodeId, PlacementEdit),
    /// The result, and the map after that.
    Edited(JobId, EditResult, VersionedMap),
    /// Asks a brick for the rows of a logical node.
    Copy(JobId, CopyRows),
    /// The rows, or the error.
    Copied(JobId, Result<CopiedRows, (model::ErrorKind, String)>),
}

/// The placement of all logical nodes.
#[derive(Clone)]
pub(super) struct PlacementCatalog {
    epoch: u64,
    nodes: BTreeMap<NodeId, catalog::NodePlacement>,
    /// The maps after each change.
    maps: Vec<Arc<PlacementSnapshot>>,
    /// Moves that have not begun yet.
    wanted: BTreeMap<NodeId, usize>,
}

impl PlacementCatalog {
    /// Each logical node is where the plan begins with it.
    pub(super) fn new(cluster: &Cluster) -> Self {
        let place = |number: u32| catalog::NodePlacement {
            brick: catalog::BrickId(cluster.first_brick(number) as u32),
            epoch: Epoch(1),
            moves: 0,
            moving: None,
        };
        let nodes = (1..=cluster.bricks as u32).map(|number| (NodeId(number), place(number))).collect();
        let mut catalog = Self { epoch: 1, nodes, maps: Vec::new(), wanted: BTreeMap::new() };
        catalog.maps.push(Arc::new(catalog.snapshot()));
        catalog
    }

    /// The number of the brick that serves each logical node.
    pub(super) fn bricks(&self) -> impl Iterator<Item = (NodeId, usize)> {
        self.nodes.iter().map(|(node, placed)| (*node, placed.brick.0 as usize))
    }

    /// The placement of each logical node.
    pub(super) fn nodes(&self) -> &BTreeMap<NodeId, catalog::NodePlacement> {
        &self.nodes
    }

    fn snapshot(&self) -> PlacementSnapshot {
        let mut map = PlacementSnapshot::default();
        self.nodes.iter().for_each(|(node, placed)| map.add(*node, placed));
        map
    }

    /// The newest map.
    fn newest(&self, schema: usize) -> VersionedMap {
        let version = self.maps.len() as u64;
        VersionedMap { version, map: self.maps.last().cloned().unwrap_or_default(), schema }
    }

    /// An earlier map.
    fn earlier_map(&self, choice: u64, schema: usize) -> VersionedMap {
        let index = choice as usize % self.maps.len();
        VersionedMap { version: index as u64 + 1, map: self.maps[index].clone(), schema }
    }

    /// Changes the placement of a logical node.
    fn edit(
        &mut self,
        node: NodeId,
        change: impl FnOnce(&mut catalog::NodePlacement, Epoch) -> Result<(), catalog::MoveStateError>,
    ) -> EditResult {
        let epoch = Epoch(self.epoch + 1);
        match self.nodes.get_mut(&node).map(|placed| change(placed, epoch)) {
            Some(Ok(())) => {
                self.epoch += 1;
                self.maps.push(Arc::new(self.snapshot()));
                EditResult::Done
            }
            Some(Err(_)) | None => EditResult::WrongState,
        }
    }
}

impl World {
    /// Whether logical nodes may move between bricks.
    pub(super) fn has_catalog(&self) -> bool {
        self.is_driven() && self.plan.has_moves()
    }

    /// Requests a move of a logical node.
    pub(super) fn request_move(&mut self, node: u32, brick: usize) {
        if self.has_catalog() && self.placement.nodes.contains_key(&NodeId(node)) && brick <= self.plan.cluster.bricks {
            self.placement.wanted.insert(NodeId(node), brick);
            self.begin_moves();
        }
    }

    /// Cancels the move of a logical node, or the wish.
    pub(super) fn cancel_move(&mut self, node: u32) {
        self.placement.wanted.remove(&NodeId(node));
        self.change_placement(NodeId(node), catalog::NodePlacement::cancel_move);
    }

    /// Begins the wanted moves of nodes that are not moving, if the meta-server is up.
    pub(super) fn begin_moves(&mut self) {
        if self.pid(ProcessName::Meta).is_none_or(|pid| self.processes[pid].machine.is_none()) {
            return;
        }
        for (node, brick) in self.placement.wanted.clone() {
            let Some(placed) = self.placement.nodes.get(&node).filter(|placed| placed.moving.is_none()) else {
                continue;
            };
            self.placement.wanted.remove(&node);
            if placed.brick.0 as usize != brick {
                self.change_placement(node, |placed, _| placed.begin_move(catalog::BrickId(brick as u32)));
            }
        }
    }

    /// Changes the placement of a logical node, and tells all processes.
    fn change_placement(
        &mut self,
        node: NodeId,
        change: impl FnOnce(&mut catalog::NodePlacement, Epoch) -> Result<(), catalog::MoveStateError>,
    ) -> EditResult {
        let before = self.placement.nodes.get(&node).map(|placed| placed.brick);
        let edited = self.placement.edit(node, change);
        if edited == EditResult::WrongState {
            return edited;
        }
        let placed = self.placement.nodes[&node].clone();
        self.note(|_| format!("{node:?}: {placed:?}"));
        if before != Some(placed.brick)
            && let Some(pid) = self.pid(ProcessName::Brick(placed.brick.0 as usize))
        {
            self.serving.insert(node, pid);
        }
        self.note_placement();
        self.tell_placement();
        edited
    }

    /// Sends the map to all processes that have one.
    pub(super) fn tell_placement(&mut self) {
        let Some(meta) = self.pid(ProcessName::Meta).filter(|_| self.has_catalog()) else { return };
        for pid in 0..self.processes.len() {
            if matches!(self.processes[pid].place, ProcessName::Brick(_) | ProcessName::Peer(_)) {
                let message = PlacementMessage::Map(self.newest_map(), None);
                self.send_datagram(meta, pid, Datagram::Placement(Box::new(message)));
            }
        }
    }

    /// Gives a process that starts its first map: that of the run if nodes do not move.
    pub(super) fn begin_placement(&mut self, pid: Pid) {
        self.processes[pid].placement_version = 0;
        match (self.has_catalog(), self.processes[pid].place) {
            (_, ProcessName::Client(_) | ProcessName::Redirector(_)) => {}
            (true, ProcessName::Meta) => self.begin_moves(),
            (true, _) => self.fetch_placement(pid, None),
            (false, _) => self.apply_map(pid, &self.newest_map()),
        }
    }

    fn fetch_placement(&mut self, pid: Pid, job: Option<JobId>) {
        self.processes[pid].map_fetched = self.now;
        self.send_meta(pid, Datagram::Placement(Box::new(PlacementMessage::Fetch(job))));
    }

    /// Fetches the map if it is old.
    pub(super) fn refresh_placement(&mut self, pid: Pid) {
        if self.has_catalog() && self.processes[pid].map_fetched + MAP_MAX_AGE_MS <= self.now {
            self.fetch_placement(pid, None);
        }
    }

    fn newest_map(&self) -> VersionedMap {
        self.placement.newest(self.schema.newest().0)
    }

    /// A process has got a map.
    fn apply_map(&mut self, pid: Pid, VersionedMap { version, map, schema }: &VersionedMap) {
        if self.processes[pid].schema < *schema {
            self.apply_schema(pid, *schema);
        }
        if *version <= self.processes[pid].placement_version {
            return;
        }
        self.processes[pid].placement_version = *version;
        self.processes[pid].placement = map.clone();
        let now = self.local_time(pid);
        match &mut self.processes[pid].machine {
            Some(ProcessMachine::Driven(driven)) => driven.brick.follow_map(map.clone(), now),
            Some(ProcessMachine::Peer(peer)) => peer.driver.map(map.clone(), now),
            _ => {}
        }
        self.drain_process(pid);
    }

    pub(super) fn handle_placement(&mut self, from: Pid, to: Pid, message: &PlacementMessage) {
        match message {
            PlacementMessage::Fetch(None) if self.processes[from].placement_version == 0 => {
                let choice = self.net.chance(to, (0, u64::from(u32::MAX)));
                let map = match choice.is_multiple_of(OUTDATED_MAP_ODDS) && !self.healing {
                    true => self.placement.earlier_map(choice / OUTDATED_MAP_ODDS, self.schema.newest().0),
                    false => self.newest_map(),
                };
                self.send_placement(to, from, PlacementMessage::Map(map, None));
            }
            PlacementMessage::Fetch(job) => {
                self.send_placement(to, from, PlacementMessage::Map(self.newest_map(), *job));
            }
            PlacementMessage::Map(map, job) => {
                self.apply_map(to, map);
                if let Some(job) = job {
                    self.with_driven(to, |driven, now| driven.brick.handle_refreshed(*job, now));
                }
            }
            PlacementMessage::Edit(job, node, edit) => {
                let result = match *edit {
                    PlacementEdit::Seal { to } => {
                        self.change_placement(*node, |placed, epoch| placed.seal(catalog::BrickId(to.0), epoch))
                    }
                    PlacementEdit::Unseal { epoch: sealed } => {
                        self.change_placement(*node, |placed, epoch| placed.unseal(Epoch(sealed), epoch))
                    }
                    PlacementEdit::Finish { epoch: sealed } => {
                        self.change_placement(*node, |placed, epoch| placed.finish_move(Epoch(sealed), epoch))
                    }
                };
                self.begin_moves();
                self.send_placement(to, from, PlacementMessage::Edited(*job, result, self.newest_map()));
            }
            PlacementMessage::Edited(job, result, map) => {
                self.apply_map(to, map);
                self.with_driven(to, |driven, now| driven.brick.handle_edited(*job, *result, now));
            }
            PlacementMessage::Copy(job, asked) => {
                let mut copied = None;
                self.with_driven(to, |driven, now| copied = Some(driven.brick.copy_rows(asked, now)));
                let Some(copied) = copied else { return };
                let copied = copied.map_err(|error| (error.kind(), error.message().to_owned()));
                self.send_placement(to, from, PlacementMessage::Copied(*job, copied));
            }
            PlacementMessage::Copied(job, copied) => {
                let copied = copied.clone().map_err(|(kind, what)| model::Error::new(kind, what));
                self.with_driven(to, |driven, now| driven.brick.handle_copied(*job, copied, now));
            }
        }
    }

    fn send_placement(&mut self, from: Pid, to: Pid, message: PlacementMessage) {
        self.send_datagram(from, to, Datagram::Placement(Box::new(message)));
    }

    /// A brick needs other processes for a job.
    pub(super) fn begin_remote_work(&mut self, pid: Pid, job: JobId, node: NodeId, work: RemoteWork) {
        match work {
            RemoteWork::Copy { from, asked } => {
                if let Some(brick) = self.brick_pid(from) {
                    self.send_placement(pid, brick, PlacementMessage::Copy(job, asked));
                }
            }
            RemoteWork::Edit(edit) => {
                let message = PlacementMessage::Edit(job, node, edit);
                self.send_meta(pid, Datagram::Placement(Box::new(message)));
            }
            RemoteWork::RefreshMap => self.fetch_placement(pid, Some(job)),
        }
    }

    pub(super) fn brick_pid(&self, brick: BrickId) -> Option<Pid> {
        self.pid(ProcessName::Brick(brick.0 as usize))
    }

    // ------------------------------------------------------------------------------------------ checks

    /// At most one brick serves a logical node (M1.1, M1.2).
    pub(super) fn check_one_server(&mut self, pid: Pid) {
        let Some(ProcessMachine::Driven(driven)) = &self.processes[pid].machine else { return };
        let nodes = self.placement.nodes.keys();
        let served: Vec<NodeId> = nodes.copied().filter(|node| driven.brick.served_epoch(*node).is_some()).collect();
        for (other, process) in self.processes.iter().enumerate().filter(|(other, _)| *other != pid) {
            let Some(ProcessMachine::Driven(driven)) = &process.machine else { continue };
            if let Some(node) = served.iter().find(|node| driven.brick.served_epoch(**node).is_some()) {
                let (one, other) = (self.name(pid), self.name(other));
                return self.oracle.report(format!("M1: {node:?} is served by {one} and by {other}"));
            }
        }
    }

    /// The first logical node that moves, or that its brick does not serve.
    pub(super) fn pending_move(&self) -> Option<String> {
        if !self.has_catalog() {
            return None;
        }
        if let Some((node, brick)) = self.placement.wanted.first_key_value() {
            return Some(format!("{node:?} does not begin to move to brick {brick}"));
        }
        let pending = self.placement.nodes.iter().find(|(node, placed)| {
            let epoch = self.driven_brick(**node).and_then(|driven| driven.brick.served_epoch(**node));
            placed.moving.is_some() || epoch != Some(placed.epoch.0)
        });
        pending.map(|(node, placed)| format!("{node:?} is not served as it is placed: {placed:?}"))
    }

    /// Page versions count the moves of their logical node (M1).
    pub(super) fn check_move_counts(&self) -> Result<(), RunFailure> {
        let moves = |node: &NodeId| {
            let mut bricks: Vec<u32> =
                self.placement.maps.iter().filter_map(|map| Some(map.nodes.get(node)?.brick.0)).collect();
            bricks.dedup();
            bricks.len() as u32 - 1
        };
        match self.placement.nodes.iter().find(|(node, placed)| placed.moves != moves(node)) {
            Some((node, placed)) => {
                Err(RunFailure::Rule(format!("M1: {node:?} has moved {} times: {placed:?}", moves(node))))
            }
            None => Ok(()),
        }
    }
}
