//! Connections, and the processes of cache nodes.

use model::{NodeId, Object};
use node::drivers::peer::BrickMessage;
use node::node_placement::BrickId;
use protocol::cache_node::Output;
use protocol::commit::Request;
use protocol::ident::{HlcTimestamp, HolderId};
use protocol::page_cache::FetchReply;
use protocol::placement::Epoch;
use protocol::tree::{Down, Up};
use wire::cluster::Message;

use super::event::Event;
use super::net::{Datagram, LinkId, Pid};
use super::process::ProcessMachine;
use super::users::Admission;
use super::{NOTICE_MS, RECONNECT_MS, World};

impl World {
    // ------------------------------------------------------------------------------------------ connections

    /// A process connects to an upper one: to its next choice if the last one failed.
    pub(super) fn connect(&mut self, pid: Pid, life: u64, uplink: usize) {
        if self.processes[pid].incarnation != life || self.processes[pid].machine.is_none() {
            return;
        }
        let one = &self.processes[pid].uplinks[uplink];
        if one.link.is_some() {
            return;
        }
        let (node, brick) = (one.node, one.brick);
        // A logical node may have moved.
        let upper = match node {
            Some(node) => self.believed_location(pid, node),
            None => Some((one.choices[one.chosen % one.choices.len()], Epoch::default())),
        };
        let admits = |upper: Pid| self.processes[upper].machine.is_some() && !self.is_refused(upper);
        let Some((upper, epoch)) = upper.filter(|(upper, _)| admits(*upper)) else {
            self.fetch_map(pid);
            self.processes[pid].uplinks[uplink].chosen += 1;
            let later = self.now + 1 + self.net.chance(pid, (1, RECONNECT_MS));
            return self.push(later, Event::Reconnect(pid, life, uplink));
        };
        let admission = self.admission(pid, upper, self.net.next_link());
        if let Admission::Refused(_) | Admission::Unavailable = &admission {
            if let Admission::Refused(error) = &admission {
                self.refuse(pid, error);
            }
            self.processes[pid].uplinks[uplink].chosen += 1;
            let later = self.now + 1 + self.net.chance(pid, (1, RECONNECT_MS));
            self.push(later, Event::Reconnect(pid, life, uplink));
            return self.drain_process(pid);
        }
        let link = self.net.connect(pid, upper, node, epoch);
        self.processes[pid].uplinks[uplink].link = Some(link);
        let (now, number, is_redirector) = (self.local_time(pid), self.number_of(pid), self.is_redirector(pid));
        self.note(|world| format!("{} connects to {}", world.name(pid), world.name(upper)));
        match (admission, &mut self.processes[upper].machine) {
            (Admission::Admitted(at, admitted), _) => self.join((pid, upper, link), at, *admitted),
            (_, Some(ProcessMachine::Peer(peer))) => peer.handle_connected((pid, link), number, is_redirector),
            _ => {}
        }
        self.tell_time(pid, upper);
        self.report_uplink(pid, (node, brick), true, now);
        self.update_status(pid);
        self.drain_process(pid);
    }

    /// Tells a process that its connection upstream is there, or is lost.
    fn report_uplink(&mut self, pid: Pid, (node, brick): (Option<NodeId>, Option<BrickId>), is_up: bool, now: u64) {
        match (&mut self.processes[pid].machine, brick) {
            (Some(ProcessMachine::CacheNode(middle)), _) if is_up => middle.connect(node, now),
            (Some(ProcessMachine::CacheNode(middle)), _) => middle.disconnect(node, now),
            (Some(ProcessMachine::Redirector(redirector)), _) if is_up => redirector.driver.upstream_connected(now),
            (Some(ProcessMachine::Redirector(redirector)), _) => redirector.driver.upstream_disconnected(now),
            (Some(ProcessMachine::Peer(peer)), Some(brick)) if is_up => peer.driver.brick_connected(brick, now),
            (Some(ProcessMachine::Peer(peer)), Some(brick)) => peer.driver.brick_disconnected(brick, now),
            (Some(ProcessMachine::Client(client)), _) => client.handle_uplink(node, is_up, now),
            (
                Some(
                    ProcessMachine::Peer(_)
                    | ProcessMachine::Driven(_)
                    | ProcessMachine::Brick(_)
                    | ProcessMachine::GroupMember(_)
                    | ProcessMachine::Meta(_)
                    | ProcessMachine::Admin(_)
                    | ProcessMachine::Catalog,
                )
                | None,
                _,
            ) => {}
        }
    }

    /// A process notices a lost connection.
    pub(super) fn handle_broken(&mut self, pid: Pid, life: u64, link: LinkId) {
        if self.processes[pid].incarnation != life || self.processes[pid].machine.is_none() {
            return;
        }
        let now = self.local_time(pid);
        let (lower, members) = (self.net.links[link].lower, self.members.clone());
        if lower != pid {
            if let Some(ProcessMachine::CacheNode(middle)) = &mut self.processes[pid].machine {
                let below = |holder: HolderId| members.get(&(holder.0 >> 24)) == Some(&lower);
                middle.handle_disconnected(&lower, |_, holder| below(holder), now);
            }
            if let Some(ProcessMachine::Peer(peer)) = &mut self.processes[pid].machine {
                peer.handle_disconnected((lower, link), now);
            }
            if let Some(ProcessMachine::Redirector(redirector)) = &mut self.processes[pid].machine {
                redirector.handle_disconnected((lower, link), now);
            }
            return self.drain_process(pid);
        }
        let Some(uplink) = self.processes[pid].uplinks.iter().position(|uplink| uplink.link == Some(link)) else {
            return;
        };
        let one = &mut self.processes[pid].uplinks[uplink];
        (one.link, one.chosen) = (None, one.chosen + 1);
        let (node, brick) = (one.node, one.brick);
        self.report_uplink(pid, (node, brick), false, now);
        self.update_status(pid);
        self.end_members(pid);
        self.fetch_map(pid);
        let later = self.now + 1 + self.net.chance(pid, (1, RECONNECT_MS));
        self.push(later, Event::Connect(pid, life, uplink));
        self.drain_process(pid);
    }

    /// Breaks a connection; both sides notice, at different times.
    pub(super) fn cut(&mut self, link: LinkId) {
        if !self.net.cut(link) {
            return;
        }
        let (lower, upper) = (self.net.links[link].lower, self.net.links[link].upper);
        self.end_member(upper, link);
        for pid in [lower, upper] {
            let at = self.now + 1 + self.net.chance(pid, (0, NOTICE_MS));
            let life = self.processes[pid].incarnation;
            self.push(at, Event::Broken(pid, life, link));
        }
    }

    // ------------------------------------------------------------------------------------------ messages

    /// Sends a message up, from `pid`, in the tree of a logical node, with the epoch of the connection.
    pub(super) fn send_up(&mut self, pid: Pid, node: NodeId, holder: HolderId, message: Up<Object>) {
        let uplinks = &self.processes[pid].uplinks;
        let uplink = uplinks.iter().find(|uplink| uplink.node.is_none_or(|at| at == node));
        let link = uplink.and_then(|uplink| uplink.link);
        let epoch = link.map_or(0, |link| self.net.links[link].epoch.0);
        self.send_on_uplink(link, Message::Up { node, epoch, holder, message });
    }

    /// Sends a message to an upper process, if there is a connection.
    pub(super) fn send_on_uplink(&mut self, link: Option<LinkId>, message: Message) {
        let Some(link) = link.filter(|link| self.net.links[*link].alive) else { return };
        let at = self.net.put(link, true, message, self.now);
        self.push(at, Event::Deliver(link, true));
    }

    /// Sends a message down to a holder.
    pub(super) fn send_down(&mut self, pid: Pid, node: NodeId, holder: HolderId, message: Down<Object>) {
        let Some(lower) = self.members.get(&(holder.0 >> 24)) else { return };
        let (lower, Some(link)) = (*lower, self.net.between(*lower, pid, node)) else { return };
        self.check_may_get_down(lower, &message);
        let message = match message {
            // As a connection that has much unsent does.
            Down::Fetched { page, fetch, reply: FetchReply::Page(_) } if self.net.is_behind(fetch.0) => {
                Down::Fetched { page, fetch, reply: FetchReply::Stale }
            }
            message => message,
        };
        let message = Message::Down { node, holder, message };
        let at = self.net.put(link, false, message, self.now);
        self.push(at, Event::Deliver(link, false));
    }

    /// Sends a question to the participant of a logical node.
    pub(super) fn send_ask(&mut self, from: Pid, node: NodeId, request: Request<Object>, seen: HlcTimestamp) {
        self.refresh_map(from);
        if let Some((to, epoch)) = self.believed_location(from, node) {
            let question = Message::Ask { node, epoch: epoch.0, seen, request };
            self.send_datagram(from, to, Datagram::Cluster(question));
        }
    }

    /// Sends a datagram, which may be lost or repeated.
    pub(super) fn send_datagram(&mut self, from: Pid, to: Pid, message: Datagram) {
        if from == to {
            // Within one process.
            return self.push(self.now, Event::Datagram(from, to, message.into()));
        }
        let message = std::rc::Rc::new(message);
        for at in self.net.datagram_arrivals(from, to, self.now) {
            self.push(at, Event::Datagram(from, to, message.clone()));
        }
    }

    pub(super) fn deliver(&mut self, link: LinkId, up: bool) {
        let Some(message) = self.net.take(link, up) else { return };
        let (lower, upper) = (self.net.links[link].lower, self.net.links[link].upper);
        let (from, pid) = if up { (lower, upper) } else { (upper, lower) };
        self.note(|world| format!("{} → {}: {}", world.name(from), world.name(pid), describe(&message)));
        let now = self.local_time(pid);
        match (message, &mut self.processes[pid].machine) {
            (Message::Up { node, holder, message, .. }, Some(ProcessMachine::CacheNode(middle))) => {
                let handled = middle.handle_up(node, holder, message, now);
                self.oracle.expect_accepted(handled);
            }
            (Message::Down { node, holder: session, message }, Some(ProcessMachine::CacheNode(middle))) => {
                middle.handle_down(node, session, message, now);
            }
            (Message::Up { node, holder, message, .. }, Some(ProcessMachine::Redirector(_))) => {
                self.handle_redirector_up(((from, link), pid), (node, holder), message);
            }
            (Message::Down { node, holder, message }, Some(ProcessMachine::Redirector(_))) => {
                self.handle_redirector_down(pid, (node, holder), message);
            }
            (Message::Up { node, holder, message, .. }, Some(ProcessMachine::Peer(_))) => {
                self.handle_peer_up(((from, link), pid), (node, holder), message);
            }
            (Message::Down { node, holder, message }, Some(ProcessMachine::Peer(_))) => {
                self.handle_brick_message((from, pid), BrickMessage::Down { node, holder, message });
            }
            (message @ Message::Up { .. }, Some(ProcessMachine::Driven(_))) => {
                self.handle_driven_up((from, link, pid), message);
            }
            (Message::Up { node, holder, message, .. }, Some(ProcessMachine::Brick(_))) => {
                self.handle_brick_up(pid, node, holder, message)
            }
            (Message::Up { node, epoch, holder, message }, Some(ProcessMachine::GroupMember(_))) => {
                self.handle_member_up(pid, link, (node, Epoch(epoch)), holder, message)
            }
            (Message::Down { node, holder: session, message }, Some(ProcessMachine::Client(_))) => {
                self.handle_client_down(pid, node, session, message)
            }
            (message @ Message::SpaceStatus(_), Some(ProcessMachine::Client(_))) => {
                self.handle_client_message(pid, &message);
            }
            _ => return,
        }
        self.drain_process(pid);
    }

    pub(super) fn handle_datagram(&mut self, from: Pid, to: Pid, message: &Datagram) {
        self.note(|world| format!("{} → {}: {}", world.name(from), world.name(to), describe_datagram(message)));
        let now = self.local_time(to);
        match (message, &mut self.processes[to].machine) {
            (_, None) => return,
            (Datagram::Cluster(message), Some(_)) => self.handle_message(from, to, message),
            (Datagram::Group(node, member, message), Some(ProcessMachine::GroupMember(host))) => {
                host.handle_group_message(*node, *member, (**message).clone(), now);
            }
            (Datagram::Notice(notice), Some(ProcessMachine::GroupMember(host))) => host.handle_notice(notice.clone()),
            (Datagram::MetaRequest(member, ask), Some(ProcessMachine::Meta(meta))) => {
                meta.handle_ask(*member, ask.clone(), now)
            }
            (Datagram::MemberCall(link, txn, call), Some(ProcessMachine::Peer(_) | ProcessMachine::Redirector(_))) => {
                self.handle_member_call((from, to), *link, *txn, call.clone());
            }
            (Datagram::Query(message), Some(_)) => self.handle_query(from, to, message),
            (Datagram::Placement(message), Some(_)) => self.handle_placement(from, to, message),
            (Datagram::Cut(message), Some(_)) => self.handle_cut_message(from, to, *message),
            (Datagram::Fetch, Some(ProcessMachine::Meta(meta))) => {
                let map = meta.map().clone();
                self.send_datagram(to, from, Datagram::Map(map));
            }
            (Datagram::Map(map), Some(_)) => self.handle_map(to, map),
            (Datagram::Refused(_, why), Some(_)) => self.handle_refused(to, *why),
            (
                Datagram::Group(..)
                | Datagram::Notice(_)
                | Datagram::MetaRequest(..)
                | Datagram::MemberCall(..)
                | Datagram::Fetch,
                Some(_),
            ) => return,
        }
        self.drain_process(to);
    }

    /// Handles a datagram with a message that is on the wire.
    fn handle_message(&mut self, from: Pid, to: Pid, message: &Message) {
        let now = self.local_time(to);
        match (message, &mut self.processes[to].machine) {
            (Message::Ask { .. }, Some(ProcessMachine::Driven(_))) => {
                self.handle_driven_ask((from, to), message.clone())
            }
            (Message::Answer { .. } | Message::Deferred { .. }, Some(ProcessMachine::Driven(driven))) => {
                let handled = driven.brick.handle_brick_message(message, now);
                self.oracle.expect_accepted(handled);
            }
            (Message::Ask { node, request, seen, .. }, Some(ProcessMachine::Brick(_))) => {
                self.handle_brick_ask(from, to, *node, request.clone(), *seen);
            }
            (Message::Ask { node, epoch, request, seen }, Some(ProcessMachine::GroupMember(_))) => {
                self.handle_member_ask(from, to, (*node, Epoch(*epoch)), request.clone(), *seen);
            }
            (Message::Answer { node, answer, .. }, Some(ProcessMachine::Brick(process))) => {
                process.brick.handle_answer(*node, answer.clone(), now);
            }
            (Message::Answer { node, answer, .. }, Some(ProcessMachine::GroupMember(host))) => {
                host.handle_answer(*node, answer, now)
            }
            (Message::Answer { node, answer, locked, seen }, Some(ProcessMachine::CacheNode(middle))) => {
                let answered = middle.handle_answer(*node, answer.clone(), locked.clone(), *seen, now);
                self.oracle.expect_accepted(answered);
            }
            (Message::Answer { node, answer, locked, seen }, Some(ProcessMachine::Peer(_))) => {
                let (node, seen, answer, locked) = (*node, *seen, answer.clone(), locked.clone());
                self.handle_brick_message((from, to), BrickMessage::Answer { node, seen, answer, locked });
            }
            (Message::Deferred { node, txn, kind, why }, Some(ProcessMachine::Peer(_))) => {
                let (node, txn, kind, why) = (*node, *txn, *kind, why.clone());
                self.handle_brick_message((from, to), BrickMessage::Deferred { node, txn, kind, why });
            }
            (Message::NotServedHere { node, damage, .. }, Some(ProcessMachine::Peer(_))) => {
                self.handle_brick_message(
                    (from, to),
                    BrickMessage::NotServedHere { node: *node, damage: damage.clone() },
                );
            }
            (Message::Call { txn, call }, Some(ProcessMachine::Peer(_))) => {
                self.handle_peer_call((from, to), *txn, call.clone());
            }
            (Message::Call { txn, call }, Some(ProcessMachine::Redirector(_))) => {
                self.handle_redirector_call((from, to), *txn, call.clone());
            }
            (Message::Reply { txn, reply }, Some(ProcessMachine::Redirector(_))) => {
                self.handle_redirector_reply(to, *txn, reply.clone());
            }
            (Message::Deferred { node, txn, kind, why }, Some(ProcessMachine::Redirector(redirector))) => {
                redirector.driver.upstream_deferred(*node, *txn, *kind, why.clone());
            }
            (Message::Time(time_ms), Some(ProcessMachine::Redirector(_))) => self.handle_redirector_time(to, *time_ms),
            (Message::Call { txn, call }, Some(ProcessMachine::CacheNode(middle))) => {
                match middle.handle_call(from, *txn, call.clone(), now) {
                    Ok(output) => self.cache_node_output(to, output),
                    Err(rejected) => self.oracle.expect_accepted(Err::<(), _>(rejected)),
                }
            }
            (Message::Reply { txn, reply }, Some(ProcessMachine::CacheNode(middle))) => {
                let output = middle.handle_reply(*txn, reply.clone());
                self.cache_node_output(to, output);
            }
            (message, Some(ProcessMachine::Client(_))) => self.handle_client_message(to, message),
            _ => {}
        }
    }

    // ------------------------------------------------------------------------------------------ the middle

    pub(super) fn drain_cache_node(&mut self, pid: Pid) {
        let Some(ProcessMachine::CacheNode(middle)) = &mut self.processes[pid].machine else { return };
        let outputs = middle.outputs();
        let invariants = middle.check_invariants();
        self.oracle.expect_invariants(invariants);
        outputs.into_iter().for_each(|output| self.cache_node_output(pid, Some(output)));
    }

    fn cache_node_output(&mut self, pid: Pid, output: Option<Output<Pid, Object>>) {
        match output {
            Some(Output::Up(node, session, message)) => self.send_up(pid, node, session, message),
            Some(Output::Down(node, holder, message)) => self.send_down(pid, node, holder, message),
            Some(Output::Ask(node, request)) => {
                let Some(ProcessMachine::CacheNode(middle)) = &self.processes[pid].machine else { return };
                let seen = middle.clock();
                self.send_ask(pid, node, request, seen);
            }
            Some(Output::Call(txn, call)) => {
                let uplink = self.processes[pid].uplinks.first().and_then(|uplink| uplink.link);
                if let Some(link) = uplink {
                    let upper = self.net.links[link].upper;
                    self.send_datagram(pid, upper, Datagram::Cluster(Message::Call { txn, call }));
                }
            }
            Some(Output::Reply(to, txn, reply)) => {
                self.send_datagram(pid, to, Datagram::Cluster(Message::Reply { txn, reply }))
            }
            Some(Output::MixedOutcome(txn, mixed)) => {
                self.oracle.report(format!("C1: {txn:?} has a mixed outcome: {mixed:?}"));
            }
            Some(Output::Busy(_, txn, limit)) => self.turn_away(pid, txn, limit.node()),
            None => {}
        }
    }
}

/// A message as transcripts show it.
fn describe(message: &Message) -> String {
    match message {
        Message::Up { node, holder, message, .. } => format!("[{}/{holder:?}] {message:?}", node.0),
        Message::Down { node, holder, message } => format!("[{}/{holder:?}] {message:?}", node.0),
        Message::Call { txn, call } => format!("{txn:?} {call:?}"),
        Message::Reply { txn, reply } => format!("{txn:?} {reply:?}"),
        Message::Ask { node, epoch, request, seen } => format!("[{} {epoch}] {request:?} at {seen:?}", node.0),
        Message::Answer { node, answer, locked, seen } => format!("[{}] {answer:?} {locked:?} at {seen:?}", node.0),
        other => format!("{other:?}"),
    }
}

fn describe_datagram(message: &Datagram) -> String {
    match message {
        Datagram::Cluster(message) => describe(message),
        Datagram::MemberCall(_, txn, call) => format!("{txn:?} {call:?}"),
        Datagram::Refused(node, why) => format!("[{}] refused: {why:?}", node.0),
        Datagram::Fetch => "the map?".to_owned(),
        Datagram::Map(map) => format!("{map:?}"),
        Datagram::MetaRequest(_, ask) => format!("{ask:?}"),
        Datagram::Notice(notice) => format!("{notice:?}"),
        Datagram::Group(node, _, message) => format!("[{}] {message:?}", node.0),
        Datagram::Placement(message) => format!("{message:?}"),
        Datagram::Query(message) => format!("{message:?}"),
        Datagram::Cut(message) => format!("{message:?}"),
    }
}
