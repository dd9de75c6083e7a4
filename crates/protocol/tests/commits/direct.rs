//! Clients that read at the bricks, while messages are lost, repeated and reordered, participants crash and lose
//! records that were not forced, and coordinators die.

use std::collections::{BTreeMap, BTreeSet};

use model::NodeId;
use protocol::commit::coordinator::{self, CommitReply, Coordinator};
use protocol::commit::{Answer, Part, Request};
use protocol::ident::{ClientId, HlcTimestamp, TxnId};
use protocol::page_cache::ObjectState;
use protocol::validate::{Read, ReadVersion};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::brick::{Address, List, NODES, SLOTS, TestBrick, oid};
use crate::check::{History, TxnRecord};

const CLIENTS: u64 = 5;

enum Message {
    Ask(Address, Request<List>),
    Answer(Answer),
}

struct World {
    rng: StdRng,
    now: u64,
    bricks: Vec<TestBrick>,
    /// Each coordinator with the number of its transaction; `None` if it has died.
    coordinators: Vec<Option<(u64, Coordinator<List>)>>,
    records: Vec<TxnRecord>,
    messages: Vec<(Address, u32, Message)>,
    healthy: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            now: 1,
            bricks: (0..NODES).map(TestBrick::new).collect(),
            coordinators: Vec::new(),
            records: Vec::new(),
            messages: Vec::new(),
            healthy: false,
        }
    }

    fn id(number: u64) -> TxnId {
        TxnId { start: HlcTimestamp::at(number + 1), client: ClientId(number % CLIENTS) }
    }

    /// Reads some objects, one after another, writes some of them, and commits.
    fn begin(&mut self) {
        let number = self.records.len() as u64;
        let mut record = TxnRecord { reads: BTreeMap::new(), writes: BTreeSet::new(), began: self.now, reply: None };
        let mut parts: BTreeMap<NodeId, Part<List>> = BTreeMap::new();
        for _ in 0..self.rng.random_range(1..4) {
            let (node, slot) = (self.rng.random_range(0..NODES), self.rng.random_range(0..SLOTS));
            let (brick, oid) = (&self.bricks[node as usize], oid(node, slot));
            if record.reads.contains_key(&oid) {
                continue;
            }
            let list = brick.lists.get(&oid).cloned().unwrap_or_default();
            let part = parts.entry(NodeId(node)).or_default();
            part.reads.push(Read { oid, seen: ReadVersion::At(brick.version) });
            if self.rng.random_bool(0.6) {
                let mut longer = list.clone();
                longer.push(number);
                part.writes.insert(oid, ObjectState::Value(longer));
                record.writes.insert(oid);
            }
            record.reads.insert(oid, list);
            // Other events happen between two reads.
            self.step();
        }
        self.records.push(record);
        let (address, mut out) = (self.coordinators.len(), Vec::new());
        let coordinator = Coordinator::commit(Self::id(number), parts, self.now, &mut out);
        self.coordinators.push(Some((number, coordinator)));
        self.send(address, out);
    }

    /// Starts another coordinator for a prepared transaction.
    fn finish(&mut self, txn: TxnId, participants: Vec<NodeId>) {
        let number = txn.start.ms() - 1;
        let (address, mut out) = (self.coordinators.len(), Vec::new());
        let coordinator = Coordinator::finish(txn, participants, self.now, &mut out);
        self.coordinators.push(Some((number, coordinator)));
        self.send(address, out);
    }

    fn send(&mut self, address: Address, out: Vec<coordinator::Output<List>>) {
        for output in out {
            match output {
                coordinator::Output::Send(node, request) | coordinator::Output::Repeat(node, request) => {
                    self.messages.push((address, node.0, Message::Ask(address, request)));
                }
                coordinator::Output::Reply(reply) => {
                    let Some((number, _)) = &self.coordinators[address] else { continue };
                    let record = &mut self.records[*number as usize];
                    match &record.reply {
                        None => record.reply = Some((reply, self.now)),
                        Some((before, _)) => {
                            let committed = |reply: &CommitReply| matches!(reply, CommitReply::Committed(_));
                            assert_eq!(
                                committed(before),
                                committed(&reply),
                                "C1: the first reply to {number} was {before:?}"
                            );
                        }
                    }
                }
            }
        }
    }

    fn post(&mut self, node: u32, answers: Vec<(Address, Answer)>) {
        self.messages.extend(answers.into_iter().map(|(to, answer)| (to, node, Message::Answer(answer))));
    }

    /// Performs one random event.
    fn step(&mut self) {
        self.now += self.rng.random_range(0..4);
        let dice = self.rng.random_range(0..100);
        if !self.messages.is_empty() && dice < 60 {
            let at = self.rng.random_range(0..self.messages.len());
            let (address, node, message) = self.messages.swap_remove(at);
            if !self.healthy && self.rng.random_bool(0.1) {
                return;
            }
            if !self.healthy && self.rng.random_bool(0.1) {
                let again = match &message {
                    Message::Ask(from, request) => Message::Ask(*from, request.clone()),
                    Message::Answer(answer) => Message::Answer(answer.clone()),
                };
                self.messages.push((address, node, again));
            }
            self.deliver(address, node, message);
        } else if dice < 85 {
            let node = self.rng.random_range(0..NODES);
            let answers = self.bricks[node as usize].force();
            self.post(node, answers);
        } else if dice < 95 {
            for address in 0..self.coordinators.len() {
                let mut out = Vec::new();
                if let Some((_, coordinator)) = &mut self.coordinators[address] {
                    coordinator.poll(self.now, &mut out);
                }
                self.send(address, out);
            }
        } else if !self.healthy && dice < 97 {
            let node = self.rng.random_range(0..NODES) as usize;
            self.bricks[node].crash(&mut self.rng);
        } else if !self.healthy && dice < 98 && !self.coordinators.is_empty() {
            let address = self.rng.random_range(0..self.coordinators.len());
            self.coordinators[address] = None;
        } else {
            let node = self.rng.random_range(0..NODES) as usize;
            let prepared: Vec<(TxnId, Vec<NodeId>)> =
                self.bricks[node].participant.prepared_txns().map(|(txn, nodes)| (txn, nodes.to_vec())).collect();
            // A coordinator may be suspected wrongly, so some transactions are finished while theirs is alive.
            let suspicious = self.rng.random_bool(0.1);
            let is_abandoned = |txn: &TxnId| {
                let mut alive = self.coordinators.iter().flatten();
                suspicious || !alive.any(|(number, coordinator)| Self::id(*number) == *txn && !coordinator.is_done())
            };
            if let Some((txn, nodes)) = prepared.into_iter().find(|(txn, _)| is_abandoned(txn)) {
                self.finish(txn, nodes);
            }
        }
    }

    fn deliver(&mut self, address: Address, node: u32, message: Message) {
        match message {
            Message::Ask(from, request) => {
                let brick = &mut self.bricks[node as usize];
                let version = brick.version;
                let handled = brick.participant.handle(from, request, HlcTimestamp::ZERO, self.now, &version);
                handled.unwrap();
                let answers = brick.drain();
                self.post(node, answers);
            }
            Message::Answer(answer) => {
                let mut out = Vec::new();
                if let Some((_, coordinator)) = &mut self.coordinators[address] {
                    coordinator.handle_answer(NodeId(node), answer, self.now, &mut out);
                }
                self.send(address, out);
            }
        }
    }

    /// Runs without faults until all transactions have ended.
    fn heal(&mut self) {
        self.healthy = true;
        for _ in 0..20_000 {
            self.step();
            let open = self.bricks.iter().any(|brick| brick.participant.prepared_txns().next().is_some());
            let asking = self.coordinators.iter().flatten().any(|(_, coordinator)| !coordinator.is_done());
            if !open && !asking && self.messages.is_empty() {
                self.bricks.iter_mut().for_each(|brick| drop(brick.force()));
                return;
            }
        }
        let open: Vec<_> = self.bricks.iter().flat_map(|brick| brick.participant.prepared_txns()).collect();
        let asking: Vec<_> = self.coordinators.iter().flatten().filter(|(_, one)| !one.is_done()).collect();
        panic!("the transactions do not end: {} messages, prepared {open:?}, asking {asking:#?}", self.messages.len());
    }
}

fn run(seed: u64) -> usize {
    let mut world = World::new(seed);
    for _ in 0..40 {
        world.begin();
        for _ in 0..world.rng.random_range(0..30) {
            world.step();
        }
    }
    world.heal();
    let history = History { records: &world.records, bricks: &world.bricks };
    history.check().unwrap_or_else(|broken| panic!("seed {seed}: {broken}"))
}

#[test]
fn histories_without_caches_are_strictly_serializable() {
    crate::run_all(run);
}
