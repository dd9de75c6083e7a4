//! Bricks with their disks.

use model::{NodeId, PageId};
use protocol::brick::{Locked, Output, Ticket};
use protocol::commit::{Answer, Refusal, Request};
use protocol::ident::{HolderId, Timestamp, TxnId};
use protocol::page_cache::Fetched;
use protocol::tree::{Down, Up};

use super::net::{Pid, Single, Tree};
use super::{BrickProcess, Event, Role, State, World};

impl World {
    /// A coordinator asks.
    pub(super) fn brick_ask(&mut self, from: Pid, pid: Pid, node: NodeId, request: Request<State>, seen: Timestamp) {
        if self.serving.get(&node) != Some(&pid) {
            return;
        }
        let now = self.shown(pid);
        self.oracle.asked(node, &request);
        let Some(Role::Brick(process)) = &mut self.processes[pid].role else { return };
        let BrickProcess { brick, disk } = &mut **process;
        let handled = brick.request(from, request, seen, now, &mut |page| disk.version(page));
        self.oracle.allowed(handled);
    }

    /// A holder says something.
    pub(super) fn brick_up(&mut self, pid: Pid, node: NodeId, holder: HolderId, message: Up<State>) {
        if self.serving.get(&node) != Some(&pid) {
            return;
        }
        let now = self.shown(pid);
        let Some(Role::Brick(process)) = &mut self.processes[pid].role else { return };
        let BrickProcess { brick, disk } = &mut **process;
        let handled = brick.handle_up(holder, message, now, &mut |page| disk.version(page));
        self.oracle.allowed(handled);
    }

    /// A force has ended.
    pub(super) fn forced(&mut self, pid: Pid, life: u64) {
        if self.processes[pid].life != life {
            return;
        }
        let now = self.shown(pid);
        if let Some(Role::Host(_)) = &self.processes[pid].role {
            return self.host_forced(pid);
        }
        let Some(Role::Brick(process)) = &mut self.processes[pid].role else { return };
        let BrickProcess { brick, disk } = &mut **process;
        let position = disk.end_force();
        brick.forced(position, now, &mut |page| disk.version(page));
        self.after(pid);
    }

    /// A page is read.
    pub(super) fn read(&mut self, pid: Pid, life: u64, ticket: Ticket) {
        if let Some(Role::Host(_)) = &self.processes[pid].role {
            return self.host_read(pid, life, ticket);
        }
        if self.processes[pid].life != life {
            return;
        }
        let Some(Role::Brick(process)) = &self.processes[pid].role else { return };
        let fetched = process.disk.read(ticket.page).into();
        let late = self.net.chance(pid, self.net.noise.delay_ms);
        self.push(self.now + late, Event::HandOver(pid, life, ticket, fetched));
    }

    /// The brick has a page that was read, some time ago.
    pub(super) fn hand_over(&mut self, pid: Pid, life: u64, ticket: Ticket, fetched: &Fetched<State>) {
        if let Some(Role::Host(_)) = &self.processes[pid].role {
            return self.host_hand_over(pid, life, ticket, fetched);
        }
        if self.processes[pid].life != life {
            return;
        }
        if let Some(Role::Brick(process)) = &mut self.processes[pid].role {
            process.brick.read(ticket, fetched.clone());
        }
        self.after(pid);
    }

    pub(super) fn drain_brick(&mut self, pid: Pid) {
        let Some(Role::Brick(process)) = &mut self.processes[pid].role else { return };
        let outputs: Vec<Output<Pid, State>> = process.brick.outputs().collect();
        let invariants = process.brick.invariants();
        self.oracle.demand(invariants);
        let node = *self.serving.iter().find(|(_, at)| **at == pid).map_or(&NodeId(0), |(node, _)| node);
        for output in outputs {
            self.brick_output(pid, node, output);
        }
        let Some(Role::Brick(process)) = &mut self.processes[pid].role else { return };
        if process.disk.begin_force() {
            let (at, life) = (self.now + self.processes[pid].force_ms, self.processes[pid].life);
            self.push(at, Event::Forced(pid, life));
        }
    }

    fn brick_output(&mut self, pid: Pid, node: NodeId, output: Output<Pid, State>) {
        let Some(Role::Brick(process)) = &mut self.processes[pid].role else { return };
        let BrickProcess { brick, disk } = &mut **process;
        match output {
            Output::Append(position, record) => {
                disk.append(record);
                assert_eq!(position, disk.last(), "L1: a record is appended where the participant says");
            }
            // The log says it too.
            Output::Dropped(_) => {}
            Output::Store(message, contents) => {
                let page = disk.store(&message, &contents);
                self.oracle.stored(&message, &contents, &page.objects);
            }
            Output::Read(ticket) => {
                // The page is read at some time after it was asked for.
                let late = self.net.chance(pid, self.net.noise.delay_ms);
                let life = self.processes[pid].life;
                self.push(self.now + late, Event::Read(pid, life, ticket));
            }
            Output::Answer(to, answer) => {
                let locked = match &answer {
                    Answer::Locked { oid, mode, .. } => {
                        let (version, value) = disk.object(*oid);
                        Some(Locked { oid: *oid, mode: *mode, version, value })
                    }
                    _ => None,
                };
                if let Answer::Refused { txn, why: Refusal::Conflict(conflict) } = &answer {
                    let (txn, conflict, seen) = (*txn, *conflict, brick.clock());
                    let client = self.members.get(&txn.client.0).map(|pid| self.processes[*pid].place);
                    self.oracle.refused(node, txn, client, &conflict);
                    return self.send_single(pid, to, Single::Answer(node, answer, None, seen));
                }
                let seen = brick.clock();
                self.send_single(pid, to, Single::Answer(node, answer, locked, seen));
            }
            Output::Ask(to, request) => {
                let seen = brick.clock();
                self.send_ask(pid, to, request, seen);
            }
            Output::Down(holder, message) => {
                if let Down::Settled { write } = message {
                    self.check_settled(write);
                }
                self.send_down(pid, Tree::Down(node, holder, message));
            }
        }
    }

    /// A brick says that everybody has heard of a write: nobody may use any more what it has replaced.
    fn check_settled(&mut self, write: TxnId) {
        let pages: Vec<PageId> = self.oracle.changed(write).iter().map(|(page, _)| *page).collect();
        for pid in 0..self.processes.len() {
            let (now, place) = (self.shown(pid), self.processes[pid].place);
            let Some(Role::Client(client)) = &self.processes[pid].role else { continue };
            for page in pages.iter().filter(|page| client.session.may_use(page.node, now)) {
                self.oracle.behind(place, write, *page, client.session.cache());
            }
        }
    }
}
