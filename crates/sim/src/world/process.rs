//! A process of a simulated cluster: its machine, and what it keeps over a restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{ErrorKind, NodeId, Object};
use node::drivers::brick::{BrickSettings, SimulatedDisk};
use node::node_placement::{BrickId, PlacementSnapshot};
use protocol::brick::Brick;
use protocol::cache_node::CacheNode;
use protocol::commit::participant::ParticipantSettings;
use protocol::ident::HolderId;
use protocol::placement::GroupMap;
use protocol::redirect::Helpers;

use super::client::ClientProcess;
use super::clock::LocalClock;
use super::cuts::AdminProcess;
use super::disk::Disk;
use super::driven_brick::DrivenBrick;
use super::event::Event;
use super::group_member::{GroupLog, GroupMemberProcess};
use super::meta::MetaProcess;
use super::net::{LinkId, Pid};
use super::peer::PeerProcess;
use super::redirector::RedirectorProcess;
use super::wall_clocks::WallClock;
use super::{GATEWAY_LIMIT_BYTES, SKEW_MS, World};
use crate::plan::{Cluster, ProcessName, Topology};

/// The machine of a process.
pub(super) enum ProcessMachine {
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
pub(super) struct BrickProcess {
    pub(super) brick: Brick<Pid, Object>,
    pub(super) disk: Disk,
}

/// A connection to an upper process.
pub(super) struct Uplink {
    /// The logical node whose tree it carries; `None`: all.
    pub(super) node: Option<NodeId>,
    /// The brick, if it is that of a peer server.
    pub(super) brick: Option<BrickId>,
    /// The possible upper processes, and the chosen one.
    pub(super) choices: Vec<Pid>,
    pub(super) chosen: usize,
    pub(super) link: Option<LinkId>,
}

pub(super) struct Process {
    pub(super) place: ProcessName,
    pub(super) machine: Option<ProcessMachine>,
    /// The disk of a brick that is down.
    pub(super) disk: Option<Disk>,
    pub(super) driven_disk: Option<SimulatedDisk>,
    /// Whether the brick could not be started because its disk is damaged.
    pub(super) is_refused: bool,
    pub(super) logs: BTreeMap<NodeId, GroupLog>,
    /// Its map of replica groups or its placement map, and when it last fetched it.
    pub(super) map: GroupMap,
    pub(super) map_fetched: u64,
    pub(super) placement: Arc<PlacementSnapshot>,
    pub(super) placement_version: u64,
    /// The number of the classes and indexes that it knows.
    pub(super) schema: usize,
    /// The number of its starts.
    pub(super) incarnation: u64,
    pub(super) clock: LocalClock,
    pub(super) wall: WallClock,
    pub(super) uplinks: Vec<Uplink>,
    pub(super) frozen_until: u64,
    /// When it was frozen last.
    pub(super) frozen_from: u64,
    /// Its next wake-up.
    pub(super) wake: u64,
    pub(super) force_ms: u64,
}

impl World {
    /// Starts or restarts a process.
    pub(super) fn start(&mut self, pid: Pid) {
        self.last_member += 1;
        let member = self.last_member;
        self.members.insert(member, pid);
        let first_holder = HolderId(member << 24);
        let shown = self.local_time(pid);
        let Cluster { topology, windows, snapshots, rows_at_once: applies_at_once, cold_reads, .. } = self.plan.cluster;
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
                // In each second plan, so that bugs in prepared transactions are noticed, too.
                let commits_in_one_phase = self.plan.seed.is_multiple_of(2);
                let settings = BrickSettings {
                    brick,
                    first_job,
                    skew_ms: SKEW_MS,
                    windows,
                    applies_at_once,
                    cold_reads,
                    commits_in_one_phase,
                };
                let kept = self.rejections.is_damaged(number).then(|| disk.clone());
                match DrivenBrick::open(disk, settings) {
                    Ok(driven) => ProcessMachine::Driven(Box::new(driven)),
                    Err(error) if error.kind() == ErrorKind::Corrupt && kept.is_some() => {
                        // It is started again when the page is whole.
                        (process.driven_disk, process.is_refused) = (kept, true);
                        self.count.refused_starts += 1;
                        return;
                    }
                    Err(error) => {
                        return self.oracle.report(format!("L1: brick {number} cannot be started: {error}"));
                    }
                }
            }
            ProcessName::Brick(number) => {
                let mut disk = process.disk.take().unwrap_or_default();
                let node = NodeId(number as u32);
                let settings = ParticipantSettings { node, moves: disk.moves, skew_ms: SKEW_MS, windows };
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
        self.read_users(pid);
        self.begin_status_ticks(pid);
        if is_driven {
            self.apply_newest_schema(pid);
            self.begin_placement(pid);
        }
    }

    /// A deadline of a process has passed.
    pub(super) fn wake(&mut self, pid: Pid) {
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
    pub(super) fn drain_process(&mut self, pid: Pid) {
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
}
