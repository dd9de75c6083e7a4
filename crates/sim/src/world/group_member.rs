//! Bricks that serve logical nodes as members of replica groups (M1).
//!
//! Such a brick is a [`Member`] with a lease from the meta-server. It has a [`Replica`] and a log for each logical node
//! whose group names it, or named it. A replica that leads has a root: the [`Brick`] of the node and its pages, both
//! built from the log. The root and its connections are dropped when the replica resigns.
//!
//! In addition to the invariants of the machines, this module checks that at most one brick serves a node, and that
//! everything reported durable is on the disks of all members.

use std::collections::{BTreeMap, VecDeque};

use model::{NodeId, Object};
use protocol::brick::{self, Brick, LockedObject, PendingRead};
use protocol::commit::participant::ParticipantSettings;
use protocol::commit::{Answer, Record, Refusal, Request};
use protocol::ident::{HlcTimestamp, HolderId, Version};
use protocol::page_cache::PageImage;
use protocol::placement::member::{self, Member};
use protocol::placement::{Epoch, GroupMember, Incarnation, MemberId, MetaNotice, NotServing};
use protocol::replica::log::{LogPoint, ReplicaLog};
use protocol::replica::message::Message as GroupMessage;
use protocol::replica::{self, Replica, Serving};
use protocol::tree::Up;
use wire::cluster::Message;

use super::disk::Disk;
use super::event::Event;
use super::net::{Datagram, LinkId, Pid};
use super::process::ProcessMachine;
use super::{SKEW_MS, World};
use crate::plan::ProcessName;

/// How often a member renews its lease, in milliseconds.
const RENEW_MS: u64 = 250;
/// How long members wait for each other's answers, in milliseconds.
const RETRY_MS: u64 = 100;
/// Records in one message, and on their way to one member.
const BATCH: usize = 8;
const WINDOW: u64 = 16;

/// An entry of the log of a group.
pub(super) type Entry = Record<Object>;

#[derive(Clone, Debug)]
enum Write {
    Append(Epoch, Entry),
    Truncate(u64),
}

/// The log of one logical node on the disk of one brick.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupLog {
    durable: Vec<(Epoch, Entry)>,
    /// What is written and not durable, in order, and how much of it the force that is under way reaches.
    pending: VecDeque<Write>,
    forcing: usize,
}

impl GroupLog {
    /// Makes some of what is pending durable.
    fn force(&mut self, count: usize) {
        for write in self.pending.drain(..count) {
            match write {
                Write::Append(epoch, entry) => self.durable.push((epoch, entry)),
                Write::Truncate(position) => self.durable.truncate(position as usize),
            }
        }
        self.forcing = 0;
    }

    fn last(&self) -> Option<LogPoint> {
        self.durable.last().map(|(epoch, _)| LogPoint { epoch: *epoch, position: self.durable.len() as u64 })
    }
}

/// The root of a node's tree, where its group is led.
pub(super) struct Root {
    /// Another one each time.
    number: u64,
    pub(super) brick: Brick<Pid, Object>,
    pub(super) pages: Disk,
}

/// One logical node at one brick.
struct NodeReplica {
    replica: Replica<Entry>,
    log: GroupLog,
    root: Option<Root>,
}

/// A brick's process.
pub(super) struct GroupMemberProcess {
    me: GroupMember,
    pub(super) member: Member,
    leased: u64,
    nodes: BTreeMap<NodeId, NodeReplica>,
    forcing: bool,
}

impl GroupMemberProcess {
    /// One that starts, with what is left of its logs.
    pub(super) fn new(number: usize, life: u64, logs: BTreeMap<NodeId, GroupLog>) -> Self {
        let seat = GroupMember { id: MemberId(number as u32), incarnation: Incarnation(life) };
        let member = Member::new(seat.incarnation, RENEW_MS);
        let mut host = Self { me: seat, member, leased: 0, nodes: BTreeMap::new(), forcing: false };
        for (node, log) in logs {
            host.nodes.insert(node, Self::new_replica(seat, node, log));
        }
        host
    }

    fn new_replica(me: GroupMember, node: NodeId, log: GroupLog) -> NodeReplica {
        let settings = replica::ReplicaSettings { node, me, retry_ms: RETRY_MS, batch: BATCH, window: WINDOW };
        let replica = Replica::new(settings, ReplicaLog::new(LogPoint::default(), log.durable.iter().cloned()));
        NodeReplica { replica, log, root: None }
    }

    /// The part of it that has to do with a node; made when it is first needed.
    fn node(&mut self, node: NodeId) -> &mut NodeReplica {
        let seat = self.me;
        self.nodes.entry(node).or_insert_with(|| Self::new_replica(seat, node, GroupLog::default()))
    }

    fn epoch(&self, node: NodeId) -> Epoch {
        self.member.map().lookup(node).map(|group| group.epoch).unwrap_or_default()
    }

    /// Does what it is time for.
    pub(super) fn poll(&mut self, now: u64) {
        self.member.poll(now);
        for hosted in self.nodes.values_mut() {
            hosted.replica.poll(now);
            if let Some(Root { brick, .. }) = &mut hosted.root {
                brick.poll(now);
            }
        }
    }

    /// When it has something to do.
    pub(super) fn deadline(&self) -> u64 {
        let replicas = self.nodes.values().filter_map(|hosted| hosted.replica.deadline());
        let roots = self.nodes.values().filter_map(|hosted| hosted.root.as_ref().map(|root| root.brick.deadline()));
        replicas.chain(roots).min().unwrap_or(u64::MAX).min(self.member.deadline())
    }

    /// The root of a node, if this brick may serve all of it now.
    pub(super) fn serving_root(&self, node: NodeId, now: u64) -> Option<&Root> {
        let hosted = self.nodes.get(&node)?;
        hosted.root.as_ref().filter(|_| hosted.replica.serving(now) == Serving::All)
    }

    /// All its roots.
    pub(super) fn roots(&self) -> impl Iterator<Item = &Root> {
        self.nodes.values().filter_map(|hosted| hosted.root.as_ref())
    }

    /// Handles the answer to a question of one of its roots.
    pub(super) fn handle_answer(&mut self, node: NodeId, answer: &Answer, now: u64) {
        for root in self.nodes.values_mut().filter_map(|hosted| hosted.root.as_mut()) {
            root.brick.handle_answer(node, answer.clone(), now);
        }
    }

    /// The meta-server has said something.
    pub(super) fn handle_notice(&mut self, notice: MetaNotice) {
        self.member.handle(notice);
    }

    /// Another member of a group has said something.
    pub(super) fn handle_group_message(
        &mut self,
        node: NodeId,
        from: MemberId,
        message: GroupMessage<Entry>,
        now: u64,
    ) {
        self.node(node).replica.handle(from, message, now);
    }

    /// Dies. Of what was not forced of each log, so much is left.
    pub(super) fn crash(self, kept: usize) -> BTreeMap<NodeId, GroupLog> {
        let left = |(node, hosted): (NodeId, NodeReplica)| {
            let mut log = hosted.log;
            log.force(kept.min(log.pending.len()));
            log.pending.clear();
            (node, log)
        };
        self.nodes.into_iter().map(left).collect()
    }
}

impl World {
    fn group_member(&mut self, pid: Pid) -> Option<&mut GroupMemberProcess> {
        match &mut self.processes[pid].machine {
            Some(ProcessMachine::GroupMember(host)) => Some(host),
            _ => None,
        }
    }

    fn node_replica(&mut self, pid: Pid, node: NodeId) -> Option<&mut NodeReplica> {
        self.group_member(pid)?.nodes.get_mut(&node)
    }

    // ------------------------------------------------------------------------------------------ requests

    /// A coordinator asks a brick that it believes to lead, by the map that it has.
    pub(super) fn handle_member_ask(
        &mut self,
        from: Pid,
        pid: Pid,
        (node, epoch): (NodeId, Epoch),
        request: Request<Object>,
        seen: HlcTimestamp,
    ) {
        let now = self.local_time(pid);
        if let Err(stale) = self.admit(pid, node, epoch) {
            return self.send_datagram(pid, from, Datagram::Refused(node, stale));
        }
        self.oracle.record_request(node, &request);
        let Some(Root { brick, pages, .. }) = self.node_replica(pid, node).and_then(|hosted| hosted.root.as_mut())
        else {
            return;
        };
        let handled = brick.handle_request(from, request, seen, now, pages);
        self.oracle.expect_accepted(handled);
    }

    /// A holder says something. Who cannot be served is disconnected, and looks for another brick.
    pub(super) fn handle_member_up(
        &mut self,
        pid: Pid,
        link: LinkId,
        (node, epoch): (NodeId, Epoch),
        holder: HolderId,
        message: Up<Object>,
    ) {
        let now = self.local_time(pid);
        // A session goes on over epochs, if it is with the same root.
        let own = self.group_member(pid).map(|host| host.epoch(node)).unwrap_or_default();
        let epoch = epoch.max(own);
        if self.admit(pid, node, epoch).is_err() {
            return self.cut(link);
        }
        let Some(Root { brick, .. }) = self.node_replica(pid, node).and_then(|hosted| hosted.root.as_mut()) else {
            return;
        };
        let handled = brick.handle_up(holder, message, now);
        self.oracle.expect_accepted(handled);
    }

    /// Checks whether a request may be served, and that no other brick could serve it.
    fn admit(&mut self, pid: Pid, node: NodeId, epoch: Epoch) -> Result<(), NotServing> {
        let now = self.local_time(pid);
        let hosted = self.node_replica(pid, node).ok_or(NotServing::Elsewhere)?;
        hosted.replica.admit(epoch, Serving::All, now)?;
        if hosted.root.is_none() {
            self.oracle.report(format!("M1.10: {} admits a request without a participant", self.name(pid)));
            return Err(NotServing::Starting);
        }
        let two = (0..self.processes.len()).find(|other| {
            let shown = self.local_time(*other);
            let role = self.processes[*other].machine.as_ref();
            *other != pid
                && matches!(role, Some(ProcessMachine::GroupMember(host)) if host.serving_root(node, shown).is_some())
        });
        if let Some(other) = two {
            let (one, other) = (self.name(pid), self.name(other));
            self.oracle.report(format!("M1.2: {one} serves {node:?}, and so does {other}"));
        }
        Ok(())
    }

    // ------------------------------------------------------------------------------------------ the disk

    /// A force has ended.
    pub(super) fn handle_member_forced(&mut self, pid: Pid) {
        let now = self.local_time(pid);
        let Some(host) = self.group_member(pid) else { return };
        host.forcing = false;
        for hosted in host.nodes.values_mut().filter(|hosted| hosted.log.forcing > 0) {
            hosted.log.force(hosted.log.forcing);
            if let Some(point) = hosted.log.last() {
                hosted.replica.handle_forced(point, now);
            }
        }
        self.drain_process(pid);
    }

    /// A page is read, for a root that may be gone.
    pub(super) fn read_root_page(&mut self, pid: Pid, number: u64, ticket: PendingRead) {
        let Some(root) = self.root_of(pid, ticket.page.node, number) else { return };
        let fetched = root.pages.read(ticket.page).into();
        let late = self.net.chance(pid, self.net.noise.delay_ms);
        self.push(self.now + late, Event::PageRead(pid, number, ticket, fetched));
    }

    /// The root has a page that was read, some time ago.
    pub(super) fn complete_root_read(
        &mut self,
        pid: Pid,
        number: u64,
        ticket: PendingRead,
        fetched: &PageImage<Object>,
    ) {
        let Some(root) = self.root_of(pid, ticket.page.node, number) else { return };
        root.brick.complete_read(ticket, fetched.clone());
        self.drain_process(pid);
    }

    fn root_of(&mut self, pid: Pid, node: NodeId, number: u64) -> Option<&mut Root> {
        self.node_replica(pid, node)?.root.as_mut().filter(|root| root.number == number)
    }

    // ------------------------------------------------------------------------------------------ what they want

    pub(super) fn drain_group_member(&mut self, pid: Pid) {
        loop {
            let Some(host) = self.group_member(pid) else { return };
            let outputs: Vec<member::Output> = host.member.outputs().collect();
            let mut is_done = outputs.is_empty();
            outputs.into_iter().for_each(|output| self.member_output(pid, output));
            let nodes: Vec<NodeId> =
                self.group_member(pid).iter().flat_map(|host| host.nodes.keys().copied()).collect();
            for node in nodes {
                is_done &= self.drain_replica(pid, node) && self.drain_root(pid, node);
            }
            if is_done {
                break;
            }
        }
        let Some(host) = self.group_member(pid) else { return };
        let is_any = host.nodes.values().any(|hosted| !hosted.log.pending.is_empty());
        if is_any && !std::mem::replace(&mut host.forcing, true) {
            host.nodes.values_mut().for_each(|hosted| hosted.log.forcing = hosted.log.pending.len());
            let (at, life) = (self.now + self.processes[pid].force_ms, self.processes[pid].incarnation);
            self.push(at, Event::Forced(pid, life));
        } else if !is_any {
            host.forcing = false;
        }
    }

    fn member_output(&mut self, pid: Pid, output: member::Output) {
        let now = self.local_time(pid);
        let Some(host) = self.group_member(pid) else { return };
        match output {
            member::Output::Send(ask) => {
                let id = host.me.id;
                self.send_meta(pid, Datagram::MetaRequest(id, ask));
            }
            member::Output::Configure(node, group) => {
                let leased = host.leased;
                let replica = &mut host.node(node).replica;
                replica.extend_lease(leased, now);
                replica.configure(&group, now);
            }
            member::Output::Leased(until) => {
                host.leased = until;
                host.nodes.values_mut().for_each(|hosted| hosted.replica.extend_lease(until, now));
            }
            member::Output::StartAcknowledged(node, epoch) => host.node(node).replica.handle_start_acknowledged(epoch),
        }
    }

    /// Says whether there was nothing to do.
    fn drain_replica(&mut self, pid: Pid, node: NodeId) -> bool {
        let Some(hosted) = self.node_replica(pid, node) else { return true };
        let outputs: Vec<replica::Output<Entry>> = hosted.replica.outputs().collect();
        let invariants = hosted.replica.check_invariants();
        let is_done = outputs.is_empty();
        self.oracle.expect_invariants(invariants);
        outputs.into_iter().for_each(|output| self.replica_output(pid, node, output));
        is_done
    }

    fn replica_output(&mut self, pid: Pid, node: NodeId, output: replica::Output<Entry>) {
        let now = self.local_time(pid);
        let Some(host) = self.group_member(pid) else { return };
        let me = host.me.id;
        let hosted = host.node(node);
        match output {
            replica::Output::Append(point, entry) => hosted.log.pending.push_back(Write::Append(point.epoch, entry)),
            replica::Output::Truncate(position) => hosted.log.pending.push_back(Write::Truncate(position)),
            replica::Output::Send(to, message) => {
                if let Some(to) = self.pid(ProcessName::Brick(to.0 as usize)) {
                    self.send_datagram(pid, to, Datagram::Group(node, me, Box::new(message)));
                }
            }
            replica::Output::Report(node, epoch, report) => {
                let ask = protocol::placement::MetaRequest::Report { node, epoch, report };
                self.send_meta(pid, Datagram::MetaRequest(me, ask));
            }
            replica::Output::Durable(position) => {
                if let Some(Root { brick, pages, .. }) = &mut hosted.root {
                    brick.handle_forced(position, now, pages);
                    self.check_held(pid, node, position);
                }
            }
            replica::Output::Lead => self.lead(pid, node),
            replica::Output::Resign => self.resign(pid, node),
            // It is asked at each request.
            replica::Output::Serving(_) => {}
            // No log is ever shortened here, so nothing is copied.
            replica::Output::CopyFrom(_) => {}
        }
    }

    /// From now on the root is here.
    fn lead(&mut self, pid: Pid, node: NodeId) {
        self.note(|world| format!("{} leads {node:?}", world.name(pid)));
        self.last_root += 1;
        let (number, now, windows) = (self.last_root, self.local_time(pid), self.plan.cluster.windows);
        let first_pages = self.first_pages(node);
        let Some(hosted) = self.node_replica(pid, node) else { return };
        let end = hosted.replica.log().end();
        let settings = ParticipantSettings { node, moves: 0, skew_ms: SKEW_MS, windows };
        let (mut brick, mut pages, mut found) = (Brick::new(settings), Disk::new(first_pages), Vec::new());
        for (position, (_, entry)) in (1..).zip(hosted.replica.log().after(0)) {
            let version = Version { moves: 0, position };
            let Some(change) = brick.recover(version, entry.clone()) else { continue };
            found.extend(pages.redo(version, change));
        }
        brick.finish_recovery(end, now);
        let versions = pages.pages.iter().map(|(page, state)| (*page, state.version)).collect();
        hosted.root = Some(Root { number, brick, pages });
        found.into_iter().for_each(|found| self.oracle.record_recovered(found));
        self.oracle.restarted.insert(node, versions);
        self.check_held(pid, node, end);
    }

    /// The root is not here any more.
    fn resign(&mut self, pid: Pid, node: NodeId) {
        self.note(|world| format!("{} leads {node:?} no more", world.name(pid)));
        if let Some(hosted) = self.node_replica(pid, node) {
            hosted.root = None;
        }
        for link in self.net.links_of(pid) {
            if self.net.links[link].upper == pid && self.net.links[link].node == Some(node) {
                self.cut(link);
            }
        }
    }

    /// Checks that everything reported durable is on the disks of all members, including those that are down (M1.9); so
    /// is what a root is built from (M1.10).
    fn check_held(&mut self, pid: Pid, node: NodeId, position: u64) {
        let Some(ProcessMachine::GroupMember(host)) = &self.processes[pid].machine else { return };
        let Some(group) = host.member.map().lookup(node) else { return };
        let at = |log: &GroupLog| position.checked_sub(1).and_then(|last| log.durable.get(last as usize)).cloned();
        let mine = host.nodes.get(&node).and_then(|hosted| at(&hosted.log));
        let holds = |seat: &&GroupMember| {
            let Some(other) = self.pid(ProcessName::Brick(seat.id.0 as usize)) else { return false };
            let log = match &self.processes[other].machine {
                Some(ProcessMachine::GroupMember(host)) => host.nodes.get(&node).map(|hosted| &hosted.log),
                _ => self.processes[other].logs.get(&node),
            };
            position == 0 || mine.is_some() && log.and_then(at) == mine
        };
        if let Some(lacks) = group.members.iter().find(|seat| !holds(seat)) {
            let name = self.name(pid);
            self.oracle.report(format!("M1.9: {name} tells {position} of {node:?} durable, and {lacks:?} lacks it"));
        }
    }

    /// Says whether there was nothing to do.
    fn drain_root(&mut self, pid: Pid, node: NodeId) -> bool {
        let Some(root) = self.node_replica(pid, node).and_then(|hosted| hosted.root.as_mut()) else { return true };
        let outputs: Vec<brick::Output<Pid, Object>> = root.brick.outputs().collect();
        let (number, invariants) = (root.number, root.brick.check_invariants());
        let is_done = outputs.is_empty();
        self.oracle.expect_invariants(invariants);
        for output in outputs {
            // It may be dropped on the way: then nothing that follows happens.
            if self.root_of(pid, node, number).is_some() {
                self.root_output(pid, node, output);
            }
        }
        is_done
    }

    fn root_output(&mut self, pid: Pid, node: NodeId, output: brick::Output<Pid, Object>) {
        let now = self.local_time(pid);
        let Some(NodeReplica { replica, root: Some(root), .. }) = self.node_replica(pid, node) else { return };
        let Root { number, brick, pages } = root;
        match output {
            brick::Output::Append(_, record) => {
                if replica.append(record, now).is_err() {
                    self.resign(pid, node);
                }
            }
            brick::Output::RemoveRows(_) | brick::Output::RemoveMarks(_) => {}
            brick::Output::Store(message, contents) => {
                let objects = pages.store(&message, &contents).objects.clone();
                self.oracle.record_change(&message, &contents, &objects);
            }
            brick::Output::Read(ticket) => {
                let number = *number;
                let late = self.net.chance(pid, self.net.noise.delay_ms);
                self.push(self.now + late, Event::Read(pid, number, ticket));
            }
            brick::Output::Answer(to, answer) => {
                let locked = match &answer {
                    Answer::Locked { oid, mode, .. } => {
                        let (version, value) = pages.object(*oid);
                        Some(LockedObject { oid: *oid, mode: *mode, version, value })
                    }
                    _ => None,
                };
                let seen = brick.clock();
                if let Answer::Refused { txn, why: Refusal::Conflict(conflict) } = &answer {
                    let client = self.members.get(&txn.client.0).map(|pid| self.processes[*pid].place);
                    self.oracle.check_refusal(node, *txn, client, conflict);
                }
                self.send_datagram(pid, to, Datagram::Cluster(Message::Answer { node, seen, answer, locked }));
            }
            brick::Output::Again(from, request) => {
                let handled = brick.handle_request(from, request, HlcTimestamp::ZERO, now, pages);
                self.oracle.expect_accepted(handled);
            }
            brick::Output::MixedOutcome(txn, mixed) => {
                self.oracle.report(format!("C1: {txn:?} has a mixed outcome: {mixed:?}"));
            }
            brick::Output::Ask(to, request) => {
                let seen = brick.clock();
                self.send_ask(pid, to, request, seen);
            }
            brick::Output::Down(holder, message) => self.send_down(pid, node, holder, message),
        }
    }
}
