//! The processes of a plan, with their connections and their first pages.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use model::{NodeId, PageId};
use node::node_placement::BrickId;
use protocol::placement::GroupMap;

use super::World;
use super::clock::LocalClock;
use super::disk::{Disk, Page};
use super::driven_brick::DrivenBrick;
use super::event::Event;
use super::net::Pid;
use super::process::{Process, Uplink};
use super::wall_clocks::WallClock;
use crate::object::Content;
use crate::plan::{Action, BALANCE, Cluster, Demand, Key, ProcessName, RING_SLOTS, Topology};

impl World {
    pub(super) fn build(&mut self) {
        self.begin_users();
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
        let uppers = self.plan.cluster.upper_redirectors();
        let mut redirector_pids = Vec::new();
        for number in 1..=redirectors {
            let is_upper = number <= uppers;
            let uplink = Self::uplink(if is_upper { &peer_pids } else { &redirector_pids[..uppers] }, number);
            redirector_pids.push(self.add(ProcessName::Redirector(number), vec![uplink]));
        }
        for number in 1..=clients {
            let way = match topology {
                Topology::Mixed => number % 3,
                Topology::Direct => 0,
                Topology::Peer | Topology::Site | Topology::Replicated => 1,
                Topology::Group | Topology::Chain => 2,
            };
            let is_below_uppers = number % 3 == 0 || redirectors == uppers;
            let entries = match topology {
                Topology::Chain if is_below_uppers => &redirector_pids[..uppers],
                Topology::Chain => &redirector_pids[uppers..],
                _ => &redirector_pids[..],
            };
            let uplinks = match way {
                0 => self.brick_uplinks(),
                1 => vec![Self::uplink(&peer_pids, number)],
                _ => vec![Self::uplink(entries, number)],
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

    pub(super) fn first_pages(&self, node: NodeId) -> BTreeMap<PageId, Page> {
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

    pub(super) fn add(&mut self, place: ProcessName, uplinks: Vec<Uplink>) -> Pid {
        let force_ms = self.plan.noise.force_ms;
        let clock = LocalClock::default();
        let process = Process {
            place,
            machine: None,
            disk: None,
            driven_disk: None,
            is_refused: false,
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
            frozen_from: 0,
            wake: u64::MAX,
            force_ms,
        };
        self.processes.push(process);
        self.processes.len() - 1
    }

    pub(super) fn brick_uplinks(&self) -> Vec<Uplink> {
        let uplink = |(node, pid): (&NodeId, &Pid)| Uplink { node: Some(*node), ..Self::uplink(&[*pid], 0) };
        self.serving.iter().map(uplink).collect()
    }

    /// The uplinks of a peer server: one to each brick, or one for each logical node if groups serve them.
    pub(super) fn peer_uplinks(&self) -> Vec<Uplink> {
        if self.has_groups() {
            return self.brick_uplinks();
        }
        let brick = |place| if let ProcessName::Brick(number) = place { Some(BrickId(number as u32)) } else { None };
        let bricks = self.processes.iter().enumerate();
        let bricks = bricks.filter_map(|(pid, process)| Some((pid, brick(process.place)?)));
        bricks.map(|(pid, brick)| Uplink { brick: Some(brick), ..Self::uplink(&[pid], 0) }).collect()
    }

    /// An uplink to one of several processes; the number selects the first choice.
    pub(super) fn uplink(choices: &[Pid], number: usize) -> Uplink {
        let chosen = number % choices.len().max(1);
        Uplink { node: None, brick: None, choices: choices.to_vec(), chosen, link: None }
    }

    pub(super) fn pid(&self, place: ProcessName) -> Option<Pid> {
        self.processes.iter().position(|process| process.place == place)
    }
}
