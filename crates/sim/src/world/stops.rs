//! Stopped spaces: with the policy *fail-stop* a space stops when a brick is away, in the eyes of each peer server.
//!
//! Peer servers compute the status of the space from the catalogue and from which bricks they are connected to, when either changes and once
//! a second. Clients ask for the status when they connect, and are told of each change. Two checks go by what this module notes of
//! connections and policies:
//!
//! 1. A transaction is not acknowledged if the space was stopped for all peer servers from before it began until it ended. What was begun before
//!    the stop is finished, and so is a write outside of transactions: clients that know of the stop begin none.
//! 2. A client that knows that the space is stopped acknowledges nothing that it has begun since, reads included.

use check::history::{self, Kind, Outcome};
use node::node_placement::BrickId;
use wire::cluster::{Message, SpaceStatus};

use super::event::Event;
use super::net::{LinkId, Pid};
use super::process::ProcessMachine;
use super::rejections::Condition;
use super::{RunFailure, World};
use crate::plan::ProcessName;

/// How often a peer server computes the status of the space without a reason, in milliseconds.
const TICK_MS: u64 = 1_000;
/// How long a peer server may take until it stops a space, in milliseconds: it waits for the first connection to a brick for three seconds.
const STOP_MS: u64 = 3_000 + 2 * TICK_MS;

impl World {
    /// A peer server computes the status of the space again, if there is a catalogue.
    pub(super) fn update_status(&mut self, pid: Pid) {
        if self.users.is_none() || !matches!(self.processes[pid].place, ProcessName::Peer(_)) {
            return;
        }
        self.note_stopped(pid);
        let now = self.local_time(pid);
        let process = &mut self.processes[pid];
        let connected: Vec<BrickId> =
            process.uplinks.iter().filter(|up| up.link.is_some()).filter_map(|up| up.brick).collect();
        if let Some(ProcessMachine::Peer(peer)) = &mut process.machine {
            peer.driver.update_statuses(|brick| connected.contains(&brick), now);
            self.drain_process(pid);
        }
    }

    /// Begins to compute the status once a second.
    pub(super) fn begin_status_ticks(&mut self, pid: Pid) {
        if self.users.is_some() && matches!(self.processes[pid].place, ProcessName::Peer(_)) {
            self.push(self.now + TICK_MS, Event::Status(pid, self.processes[pid].incarnation));
        }
    }

    pub(super) fn handle_status_due(&mut self, pid: Pid, life: u64) {
        if self.processes[pid].incarnation == life && self.processes[pid].machine.is_some() {
            self.update_status(pid);
            self.begin_status_ticks(pid);
        }
    }

    /// Notes since when a peer server should stop the space: it knows the policy, and is not connected to a brick.
    fn note_stopped(&mut self, pid: Pid) {
        let needed = self.needed_bricks(pid);
        let is_needed = |brick: Option<BrickId>| brick.is_some_and(|brick| needed.contains(&brick));
        let uplinks = &self.processes[pid].uplinks;
        let is_away = uplinks.iter().any(|uplink| is_needed(uplink.brick) && uplink.link.is_none());
        self.rejections.set(Condition::StoppedSpace(pid), is_away, self.now);
        let Some(users) = &mut self.users else { return };
        match is_away {
            true => drop(users.stopped_since.entry(pid).or_insert(self.now)),
            false => drop(users.stopped_since.remove(&pid)),
        }
    }

    // ------------------------------------------------------------------------------------------ messages

    /// A client that has connected asks for the status of the space.
    pub(super) fn begin_watch(&mut self, pid: Pid) {
        if self.user_of(pid).is_none() {
            return;
        }
        if let Some((at, address)) = self.address_above(pid) {
            self.push(self.now + 1, Event::Watch(at, self.processes[at].incarnation, address));
        }
    }

    pub(super) fn handle_watch(&mut self, pid: Pid, life: u64, address: (Pid, LinkId)) {
        let now = self.local_time(pid);
        if self.processes[pid].incarnation == life
            && let Some(ProcessMachine::Peer(peer)) = &mut self.processes[pid].machine
        {
            let client = self.net.links[address.1].lower;
            let handled = peer.watch(&address, now);
            self.expect_served((client, pid), handled);
            self.drain_process(pid);
        }
    }

    /// A client is sent the status of the space, by its redirector if it has one.
    pub(super) fn send_status(&mut self, link: LinkId, status: SpaceStatus) {
        if self.net.links[link].alive {
            self.count.stops += u64::from(status.is_stopped());
            let at = self.net.put(link, false, Message::SpaceStatus(status), self.now);
            self.push(at, Event::Deliver(link, false));
        }
    }

    // ------------------------------------------------------------------------------------------ checks

    /// Whether the space was stopped for all peer servers since this time.
    fn is_stopped_since(&self, since: u64) -> bool {
        let Some(users) = &self.users else { return false };
        let is_peer = |pid: &Pid| matches!(self.processes[*pid].place, ProcessName::Peer(_));
        let stops = |pid: Pid| users.stopped_since.get(&pid).is_some_and(|began| began + STOP_MS <= since);
        (0..self.processes.len()).filter(is_peer).all(stops)
    }

    /// An operation of a client has ended; the client may have known all the time that the space was stopped.
    pub(super) fn check_not_stopped(&mut self, pid: Pid, operation: &history::Operation, was_known: bool) {
        if operation.outcome != Outcome::Ok || operation.steps.is_empty() || self.user_of(pid).is_none() {
            return;
        }
        let needs_server = !matches!(operation.kind, Kind::Read | Kind::Snapshot | Kind::Write);
        let (name, number) = (self.name(pid), operation.number);
        if needs_server && self.is_stopped_since(operation.invoked) {
            self.oracle.report(format!(
                "B1: operation {number} of {name} is acknowledged, and the space was stopped since it began"
            ));
        } else if was_known {
            self.oracle.report(format!(
                "B2: operation {number} of {name} is acknowledged, which knew that the space is stopped"
            ));
        }
    }

    /// When all bricks are back, no client that is connected believes that the space is stopped.
    pub(super) fn check_resumed(&self) -> Result<(), RunFailure> {
        for (pid, process) in self.processes.iter().enumerate() {
            if let Some(ProcessMachine::Client(client)) = &process.machine
                && self.user_of(pid).and_then(|_| self.address_above(pid)).is_some()
                && client.knows_stopped()
            {
                let what = format!("B3: {} believes for ever that the space is stopped", process.place);
                return Err(RunFailure::Rule(what));
            }
        }
        Ok(())
    }
}
