//! Connections, and the processes in the middle.

use model::NodeId;
use protocol::cache_node::Output;
use protocol::commit::Request;
use protocol::ident::{HolderId, Timestamp};
use protocol::placement::Epoch;

use super::net::{LinkId, Pid, Single, Tree};
use super::{Event, NOTICE_MS, RECONNECT_MS, Role, State, World};

impl World {
    // ------------------------------------------------------------------------------------------ connections

    /// A process connects to one above it: the next of its choices if the last was of no use.
    pub(super) fn connect(&mut self, pid: Pid, life: u64, uplink: usize) {
        if self.processes[pid].life != life || self.processes[pid].role.is_none() {
            return;
        }
        let one = &self.processes[pid].uplinks[uplink];
        if one.link.is_some() {
            return;
        }
        let node = one.node;
        // A logical node may have moved.
        let upper = match node {
            Some(node) => self.believed(pid, node),
            None => Some((one.choices[one.chosen % one.choices.len()], Epoch::default())),
        };
        let Some((upper, epoch)) = upper.filter(|(upper, _)| self.processes[*upper].role.is_some()) else {
            self.fetch_map(pid);
            self.processes[pid].uplinks[uplink].chosen += 1;
            let later = self.now + 1 + self.net.chance(pid, (1, RECONNECT_MS));
            return self.push(later, Event::Reconnect(pid, life, uplink));
        };
        let link = self.net.connect(pid, upper, node, epoch);
        self.processes[pid].uplinks[uplink].link = Some(link);
        let now = self.shown(pid);
        self.note(|world| format!("{} connects to {}", world.name(pid), world.name(upper)));
        match &mut self.processes[pid].role {
            Some(Role::Middle(middle)) => middle.connect(node, now),
            Some(Role::Client(client)) => client.session.connect(node, now),
            Some(Role::Brick(_) | Role::Host(_) | Role::Meta(_)) | None => {}
        }
        self.after(pid);
    }

    /// A process notices that a connection is gone.
    pub(super) fn broken(&mut self, pid: Pid, life: u64, link: LinkId) {
        if self.processes[pid].life != life || self.processes[pid].role.is_none() {
            return;
        }
        let now = self.shown(pid);
        let (lower, members) = (self.net.links[link].lower, self.members.clone());
        if lower != pid {
            if let Some(Role::Middle(middle)) = &mut self.processes[pid].role {
                let below = |holder: HolderId| members.get(&(holder.0 >> 24)) == Some(&lower);
                middle.disconnected(&lower, |_, holder| below(holder), now);
            }
            return self.after(pid);
        }
        let Some(uplink) = self.processes[pid].uplinks.iter().position(|uplink| uplink.link == Some(link)) else {
            return;
        };
        let one = &mut self.processes[pid].uplinks[uplink];
        (one.link, one.chosen) = (None, one.chosen + 1);
        let node = one.node;
        match &mut self.processes[pid].role {
            Some(Role::Middle(middle)) => middle.disconnect(node, now),
            Some(Role::Client(client)) => client.session.disconnect(node, now),
            Some(Role::Brick(_) | Role::Host(_) | Role::Meta(_)) | None => {}
        }
        self.fetch_map(pid);
        let later = self.now + 1 + self.net.chance(pid, (1, RECONNECT_MS));
        self.push(later, Event::Connect(pid, life, uplink));
        self.after(pid);
    }

    /// A connection breaks; both notice, one after the other.
    pub(super) fn cut(&mut self, link: LinkId) {
        if !self.net.cut(link) {
            return;
        }
        let (lower, upper) = (self.net.links[link].lower, self.net.links[link].upper);
        for pid in [lower, upper] {
            let at = self.now + 1 + self.net.chance(pid, (0, NOTICE_MS));
            let life = self.processes[pid].life;
            self.push(at, Event::Broken(pid, life, link));
        }
    }

    // ------------------------------------------------------------------------------------------ messages

    /// Sends a message up, from `pid`, in the tree of a logical node.
    pub(super) fn send_up(&mut self, pid: Pid, message: Tree) {
        let Tree::Up(node, ..) = &message else { return };
        let uplinks = &self.processes[pid].uplinks;
        let uplink = uplinks.iter().find(|uplink| uplink.node.is_none_or(|at| at == *node));
        let Some(link) = uplink.and_then(|uplink| uplink.link).filter(|link| self.net.links[*link].alive) else {
            return;
        };
        let at = self.net.put(link, true, message, self.now);
        self.push(at, Event::Deliver(link, true));
    }

    /// Sends a message down to a holder.
    pub(super) fn send_down(&mut self, pid: Pid, message: Tree) {
        let Tree::Down(node, holder, _) = &message else { return };
        let Some(lower) = self.members.get(&(holder.0 >> 24)) else { return };
        let Some(link) = self.net.between(*lower, pid, *node) else { return };
        let at = self.net.put(link, false, message, self.now);
        self.push(at, Event::Deliver(link, false));
    }

    /// Asks the participant of a logical node.
    pub(super) fn send_ask(&mut self, from: Pid, node: NodeId, request: Request<State>, seen: Timestamp) {
        self.refresh_map(from);
        if let Some((to, epoch)) = self.believed(from, node) {
            self.send_single(from, to, Single::Ask(node, epoch, request, seen));
        }
    }

    /// Sends a message that may be lost, or come twice.
    pub(super) fn send_single(&mut self, from: Pid, to: Pid, message: Single) {
        if from == to {
            // Within one process.
            return self.push(self.now, Event::Single(from, to, message.into()));
        }
        let message = std::rc::Rc::new(message);
        for at in self.net.single(from, to, self.now) {
            self.push(at, Event::Single(from, to, message.clone()));
        }
    }

    pub(super) fn deliver(&mut self, link: LinkId, up: bool) {
        let Some(message) = self.net.take(link, up) else { return };
        let (lower, upper) = (self.net.links[link].lower, self.net.links[link].upper);
        let (from, pid) = if up { (lower, upper) } else { (upper, lower) };
        self.note(|world| format!("{} → {}: {}", world.name(from), world.name(pid), describe(&message)));
        let now = self.shown(pid);
        match (message, &mut self.processes[pid].role) {
            (Tree::Up(node, holder, message), Some(Role::Middle(middle))) => {
                let handled = middle.handle_up(node, holder, message, now);
                self.oracle.allowed(handled);
            }
            (Tree::Down(node, session, message), Some(Role::Middle(middle))) => {
                middle.handle_down(node, session, message, now);
            }
            (Tree::Up(node, holder, message), Some(Role::Brick(_))) => self.brick_up(pid, node, holder, message),
            (Tree::Up(node, holder, message), Some(Role::Host(_))) => self.host_up(pid, link, node, holder, message),
            (Tree::Down(node, session, message), Some(Role::Client(_))) => {
                self.client_down(pid, node, session, message)
            }
            _ => return,
        }
        self.after(pid);
    }

    pub(super) fn single(&mut self, from: Pid, to: Pid, message: &Single) {
        self.note(|world| format!("{} → {}: {}", world.name(from), world.name(to), describe_single(message)));
        let now = self.shown(to);
        match (message, &mut self.processes[to].role) {
            (Single::Ask(node, _, request, seen), Some(Role::Brick(_))) => {
                self.brick_ask(from, to, *node, request.clone(), *seen);
            }
            (Single::Ask(node, epoch, request, seen), Some(Role::Host(_))) => {
                self.host_ask(from, to, (*node, *epoch), request.clone(), *seen);
            }
            (Single::Answer(node, answer, _, _), Some(Role::Host(host))) => host.answered(*node, answer, now),
            (Single::Group(node, member, message), Some(Role::Host(host))) => {
                host.group(*node, *member, (**message).clone(), now);
            }
            (Single::Notice(notice), Some(Role::Host(host))) => host.notice(notice.clone()),
            (Single::Say(member, ask), Some(Role::Meta(meta))) => meta.said(*member, ask.clone(), now),
            (Single::Fetch, Some(Role::Meta(meta))) => {
                let map = meta.map().clone();
                self.send_single(to, from, Single::Map(map));
            }
            (Single::Map(map), Some(_)) => self.mapped(to, map),
            (Single::Refused(_, why), Some(_)) => self.refused(to, *why),
            (Single::Answer(_, answer, _, _), Some(Role::Brick(process))) => {
                let Single::Answer(node, ..) = message else { return };
                process.brick.answered(*node, answer.clone(), now);
            }
            (Single::Answer(node, answer, locked, seen), Some(Role::Middle(middle))) => {
                let answered = middle.answered(*node, answer.clone(), locked.clone(), *seen, now);
                self.oracle.allowed(answered);
            }
            (Single::Call(txn, call), Some(Role::Middle(middle))) => match middle.call(from, *txn, call.clone(), now) {
                Ok(output) => self.middle_output(to, output),
                Err(rejected) => self.oracle.allowed(Err::<(), _>(rejected)),
            },
            (Single::Reply(txn, reply), Some(Role::Middle(middle))) => {
                let output = middle.reply(*txn, reply.clone());
                self.middle_output(to, output);
            }
            (message, Some(Role::Client(_))) => self.client_single(to, message),
            _ => return,
        }
        self.after(to);
    }

    // ------------------------------------------------------------------------------------------ the middle

    pub(super) fn drain_middle(&mut self, pid: Pid) {
        let Some(Role::Middle(middle)) = &mut self.processes[pid].role else { return };
        let outputs = middle.outputs();
        let invariants = middle.invariants();
        self.oracle.demand(invariants);
        outputs.into_iter().for_each(|output| self.middle_output(pid, Some(output)));
    }

    fn middle_output(&mut self, pid: Pid, output: Option<Output<Pid, State>>) {
        match output {
            Some(Output::Up(node, session, message)) => self.send_up(pid, Tree::Up(node, session, message)),
            Some(Output::Down(node, holder, message)) => self.send_down(pid, Tree::Down(node, holder, message)),
            Some(Output::Ask(node, request)) => {
                let Some(Role::Middle(middle)) = &self.processes[pid].role else { return };
                let seen = middle.clock();
                self.send_ask(pid, node, request, seen);
            }
            Some(Output::Call(txn, call)) => {
                let uplink = self.processes[pid].uplinks.first().and_then(|uplink| uplink.link);
                if let Some(link) = uplink {
                    let upper = self.net.links[link].upper;
                    self.send_single(pid, upper, Single::Call(txn, call));
                }
            }
            Some(Output::Reply(to, txn, reply)) => self.send_single(pid, to, Single::Reply(txn, reply)),
            Some(Output::Busy(_, txn, node)) => self.turn_away(pid, txn, node),
            None => {}
        }
    }
}

/// A message of a tree, shortly.
fn describe(message: &Tree) -> String {
    match message {
        Tree::Up(node, holder, message) => format!("[{}/{holder:?}] {message:?}", node.0),
        Tree::Down(node, holder, message) => format!("[{}/{holder:?}] {message:?}", node.0),
    }
}

fn describe_single(message: &Single) -> String {
    match message {
        Single::Call(txn, call) => format!("{txn:?} {call:?}"),
        Single::Reply(txn, reply) => format!("{txn:?} {reply:?}"),
        Single::Ask(node, epoch, request, seen) => format!("[{} {epoch:?}] {request:?} at {seen:?}", node.0),
        Single::Refused(node, why) => format!("[{}] refused: {why:?}", node.0),
        Single::Fetch => "the map?".to_owned(),
        Single::Map(map) => format!("{map:?}"),
        Single::Say(_, ask) => format!("{ask:?}"),
        Single::Notice(notice) => format!("{notice:?}"),
        Single::Group(node, _, message) => format!("[{}] {message:?}", node.0),
        Single::Answer(node, answer, locked, seen) => format!("[{}] {answer:?} {locked:?} at {seen:?}", node.0),
    }
}
