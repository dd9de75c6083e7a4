//! Bricks without a driver, with their disks: scenarios ask for them (`bare`).

use model::{NodeId, Object, PageId};
use protocol::brick::{LockedObject, Output, PendingRead};
use protocol::commit::coordinator::CommitReply;
use protocol::commit::{Answer, Refusal, Request};
use protocol::ident::{HlcTimestamp, HolderId, TxnId};
use protocol::page_cache::PageImage;
use protocol::tree::{Down, Up};
use wire::cluster::Message;

use super::World;
use super::event::Event;
use super::net::{Datagram, Pid};
use super::process::{BrickProcess, ProcessMachine};

impl World {
    /// A coordinator asks.
    pub(super) fn handle_brick_ask(
        &mut self,
        from: Pid,
        pid: Pid,
        node: NodeId,
        request: Request<Object>,
        seen: HlcTimestamp,
    ) {
        if self.serving.get(&node) != Some(&pid) {
            return;
        }
        let now = self.local_time(pid);
        self.oracle.record_request(node, &request);
        let Some(ProcessMachine::Brick(process)) = &mut self.processes[pid].machine else { return };
        let BrickProcess { brick, disk } = &mut **process;
        let handled = brick.handle_request(from, request, seen, now, disk);
        self.oracle.expect_accepted(handled);
    }

    /// A holder says something.
    pub(super) fn handle_brick_up(&mut self, pid: Pid, node: NodeId, holder: HolderId, message: Up<Object>) {
        if self.serving.get(&node) != Some(&pid) {
            return;
        }
        let now = self.local_time(pid);
        let Some(ProcessMachine::Brick(process)) = &mut self.processes[pid].machine else { return };
        let handled = process.brick.handle_up(holder, message, now);
        self.oracle.expect_accepted(handled);
    }

    /// A force has ended.
    pub(super) fn handle_forced(&mut self, pid: Pid, life: u64) {
        if self.processes[pid].incarnation != life {
            return;
        }
        let now = self.local_time(pid);
        if let Some(ProcessMachine::GroupMember(_)) = &self.processes[pid].machine {
            return self.handle_member_forced(pid);
        }
        self.handle_driven_forced(pid);
        let Some(ProcessMachine::Brick(process)) = &mut self.processes[pid].machine else { return };
        let BrickProcess { brick, disk } = &mut **process;
        let position = disk.end_force();
        brick.handle_forced(position, now, disk);
        self.drain_process(pid);
    }

    /// A page is read.
    pub(super) fn read_page(&mut self, pid: Pid, life: u64, ticket: PendingRead) {
        if let Some(ProcessMachine::GroupMember(_)) = &self.processes[pid].machine {
            return self.read_root_page(pid, life, ticket);
        }
        if self.processes[pid].incarnation != life {
            return;
        }
        let Some(ProcessMachine::Brick(process)) = &self.processes[pid].machine else { return };
        let fetched = process.disk.read(ticket.page).into();
        let late = self.net.chance(pid, self.net.noise.delay_ms);
        self.push(self.now + late, Event::PageRead(pid, life, ticket, fetched));
    }

    /// The brick has a page that was read, some time ago.
    pub(super) fn complete_read(&mut self, pid: Pid, life: u64, ticket: PendingRead, fetched: &PageImage<Object>) {
        if let Some(ProcessMachine::GroupMember(_)) = &self.processes[pid].machine {
            return self.complete_root_read(pid, life, ticket, fetched);
        }
        if self.processes[pid].incarnation != life {
            return;
        }
        if let Some(ProcessMachine::Brick(process)) = &mut self.processes[pid].machine {
            process.brick.complete_read(ticket, fetched.clone());
        }
        self.drain_process(pid);
    }

    pub(super) fn drain_brick(&mut self, pid: Pid) {
        let Some(ProcessMachine::Brick(process)) = &mut self.processes[pid].machine else { return };
        let outputs: Vec<Output<Pid, Object>> = process.brick.outputs().collect();
        let invariants = process.brick.check_invariants();
        self.oracle.expect_invariants(invariants);
        let node = *self.serving.iter().find(|(_, at)| **at == pid).map_or(&NodeId(0), |(node, _)| node);
        for output in outputs {
            self.brick_output(pid, node, output);
        }
        let Some(ProcessMachine::Brick(process)) = &mut self.processes[pid].machine else { return };
        if process.disk.begin_force() {
            let (at, life) = (self.now + self.processes[pid].force_ms, self.processes[pid].incarnation);
            self.push(at, Event::Forced(pid, life));
        }
    }

    fn brick_output(&mut self, pid: Pid, node: NodeId, output: Output<Pid, Object>) {
        let Some(ProcessMachine::Brick(process)) = &mut self.processes[pid].machine else { return };
        let BrickProcess { brick, disk } = &mut **process;
        match output {
            Output::Append(position, record) => {
                disk.append(record);
                assert_eq!(position, disk.last(), "L1: a record is appended where the participant says");
            }
            // The log says it too.
            Output::RemoveRows(_) | Output::RemoveMarks(_) => {}
            Output::Store(message, contents) => {
                let page = disk.store(&message, &contents);
                self.oracle.record_change(&message, &contents, &page.objects);
            }
            Output::Read(ticket) => {
                // The page is read at some time after it was asked for.
                let late = self.net.chance(pid, self.net.noise.delay_ms);
                let life = self.processes[pid].incarnation;
                self.push(self.now + late, Event::Read(pid, life, ticket));
            }
            Output::Answer(to, answer) => {
                let locked = match &answer {
                    Answer::Locked { oid, mode, .. } => {
                        let (version, value) = disk.object(*oid);
                        Some(LockedObject { oid: *oid, mode: *mode, version, value })
                    }
                    _ => None,
                };
                let seen = brick.clock();
                self.check_refusal(node, &answer);
                self.send_datagram(pid, to, Datagram::Cluster(Message::Answer { node, seen, answer, locked }));
            }
            Output::Again(from, request) => {
                self.handle_brick_ask(from, pid, node, request, HlcTimestamp::ZERO);
            }
            Output::MixedOutcome(txn, mixed) => {
                self.oracle.report(format!("C1: {txn:?} has a mixed outcome: {mixed:?}"));
            }
            Output::Ask(to, request) => {
                let seen = brick.clock();
                self.send_ask(pid, to, request, seen);
            }
            Output::Down(holder, message) => {
                if let Down::Settled { write } = message {
                    self.check_settled(write);
                }
                self.send_down(pid, node, holder, message);
            }
        }
    }

    /// A participant answers: if it refuses a transaction, that must be right.
    pub(super) fn check_refusal(&mut self, node: NodeId, answer: &Answer) {
        if let Answer::Joint { answers, .. } = answer {
            return answers.iter().for_each(|(node, answer)| self.check_refusal(*node, answer));
        }
        let concluded = match answer {
            Answer::Concluded { txn, reply: CommitReply::Refused(why @ Refusal::Conflict(conflict)) } => {
                Some((conflict.oid.page().node, Answer::Refused { txn: *txn, why: *why }))
            }
            _ => None,
        };
        let (node, answer) = concluded.as_ref().map_or((node, answer), |(node, answer)| (*node, answer));
        if let Answer::Refused { txn, why: Refusal::Conflict(conflict) } = answer {
            let client = self.members.get(&txn.client.0).map(|pid| self.processes[*pid].place);
            self.oracle.check_refusal(node, *txn, client, conflict);
        }
    }

    /// A brick says that everybody has heard of a write: nobody may use any more what it has replaced.
    pub(super) fn check_settled(&mut self, write: TxnId) {
        let pages: Vec<PageId> = self.oracle.changed_pages(write).iter().map(|(page, _)| *page).collect();
        for pid in 0..self.processes.len() {
            let (now, place) = (self.local_time(pid), self.processes[pid].place);
            let Some(ProcessMachine::Client(client)) = &self.processes[pid].machine else { continue };
            for page in pages.iter().filter(|page| client.driver.session().may_use(page.node, now)) {
                self.oracle.check_not_stale(place, write, *page, client.driver.session().cache());
            }
        }
    }
}
