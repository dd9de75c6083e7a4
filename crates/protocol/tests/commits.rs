//! Commits of many clients at several participants, while messages are lost, repeated and reordered, participants crash
//! and lose what they had not forced, and coordinators die: what is committed is committed everywhere, once, and in an
//! order that explains all that was read.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

use std::collections::{BTreeMap, BTreeSet};

use model::{ClassId, NodeId, Oid, PageId, SpaceId};
use protocol::commit::coordinator::{self, Coordinator, Reply};
use protocol::commit::participant::{self, Participant, Settings};
use protocol::commit::{Answer, Part, Record, Request};
use protocol::ident::{ClientId, Timestamp, TxnId, Version};
use protocol::page_cache::Content;
use protocol::validate::{Read, Seen};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const NODES: u32 = 3;
const SLOTS: u16 = 3;
const CLIENTS: u64 = 5;

/// An object is the list of those who have written it: number by number, so that it tells its own history.
type List = Vec<u64>;
/// The number of a coordinator: where answers go.
type Address = usize;

fn oid(node: u32, slot: u16) -> Oid {
    Oid::new(ClassId::NONE, page(node), slot)
}

fn page(node: u32) -> PageId {
    PageId { space: SpaceId(1), node: NodeId(node), number: 1 }
}

/// A brick: a participant, its log, and what is stored of it.
struct Brick {
    node: u32,
    participant: Participant<Address, List>,
    log: Vec<Record<List>>,
    forced: usize,
    version: Version,
    lists: BTreeMap<Oid, List>,
}

impl Brick {
    fn new(node: u32) -> Self {
        let settings = Settings { node: NodeId(node), moves: 0, skew_ms: 1_000_000, window_limit: 2 };
        let participant = Participant::new(settings);
        Self { node, participant, log: Vec::new(), forced: 0, version: Version::ZERO, lists: BTreeMap::new() }
    }

    /// Does what the participant wants; returns the answers.
    fn drain(&mut self) -> Vec<(Address, Answer)> {
        let mut answers = Vec::new();
        for output in self.participant.outputs() {
            match output {
                participant::Output::Append(record) => self.log.push(record),
                participant::Output::Answer(to, answer) => answers.push((to, answer)),
                participant::Output::Changed(invalidation, contents) => {
                    assert_eq!(invalidation.previous, self.version, "P2: a message names the version before");
                    self.version = invalidation.version;
                    for (slot, content) in contents {
                        let Content::Value(list) = content else { panic!("nothing is deleted here") };
                        self.lists.insert(oid(self.node, slot), list);
                    }
                }
            }
        }
        self.participant.invariants().unwrap();
        answers
    }

    fn force(&mut self) -> Vec<(Address, Answer)> {
        self.forced = self.log.len();
        let version = self.version;
        self.participant.forced(self.forced as u64, &mut |_| version);
        self.drain()
    }

    /// Loses what is in memory, and any part of what was not forced.
    fn crash(&mut self, rng: &mut StdRng) {
        let kept = rng.random_range(self.forced..=self.log.len());
        let mut again = Self::new(self.node);
        for (position, record) in (1..).zip(self.log.drain(..kept)) {
            again.log.push(record.clone());
            for (oid, content) in again.participant.recover(record).map(|(_, _, writes)| writes).unwrap_or_default() {
                let Content::Value(list) = content else { panic!("nothing is deleted here") };
                again.version = Version { moves: 0, position };
                again.lists.insert(oid, list);
            }
        }
        again.forced = again.log.len();
        again.participant.recovered();
        *self = again;
        self.participant.invariants().unwrap();
    }
}

/// What a client knows of its transaction.
#[derive(Clone, Debug)]
struct Story {
    reads: BTreeMap<Oid, List>,
    writes: BTreeSet<Oid>,
    began: u64,
    /// What it was told, and when.
    told: Option<(Reply, u64)>,
}

enum Message {
    Ask(Address, Request<List>),
    Answer(Answer),
}

struct World {
    rng: StdRng,
    now: u64,
    bricks: Vec<Brick>,
    /// Each coordinator with the number of its transaction; `None` if it has died.
    coordinators: Vec<Option<(u64, Coordinator<List>)>>,
    stories: Vec<Story>,
    mail: Vec<(Address, u32, Message)>,
    healthy: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            now: 1,
            bricks: (0..NODES).map(Brick::new).collect(),
            coordinators: Vec::new(),
            stories: Vec::new(),
            mail: Vec::new(),
            healthy: false,
        }
    }

    fn id(number: u64) -> TxnId {
        TxnId { start: Timestamp::at(number + 1), client: ClientId(number % CLIENTS) }
    }

    /// Reads some objects, one after the other, and commits what comes of them.
    fn begin(&mut self) {
        let number = self.stories.len() as u64;
        let mut story = Story { reads: BTreeMap::new(), writes: BTreeSet::new(), began: self.now, told: None };
        let mut parts: BTreeMap<NodeId, Part<List>> = BTreeMap::new();
        for _ in 0..self.rng.random_range(1..4) {
            let (node, slot) = (self.rng.random_range(0..NODES), self.rng.random_range(0..SLOTS));
            let (brick, oid) = (&self.bricks[node as usize], oid(node, slot));
            if story.reads.contains_key(&oid) {
                continue;
            }
            let list = brick.lists.get(&oid).cloned().unwrap_or_default();
            let part = parts.entry(NodeId(node)).or_insert(Part { reads: Vec::new(), writes: BTreeMap::new() });
            part.reads.push(Read { oid, seen: Seen::At(brick.version) });
            if self.rng.random_bool(0.6) {
                let mut longer = list.clone();
                longer.push(number);
                part.writes.insert(oid, Content::Value(longer));
                story.writes.insert(oid);
            }
            story.reads.insert(oid, list);
            // Others go on between two reads.
            self.step();
        }
        self.stories.push(story);
        let (address, mut out) = (self.coordinators.len(), Vec::new());
        let coordinator = Coordinator::commit(Self::id(number), parts, self.now, &mut out);
        self.coordinators.push(Some((number, coordinator)));
        self.send(address, out);
    }

    /// Somebody finishes a transaction that is prepared somewhere.
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
                coordinator::Output::Send(node, request) => {
                    self.mail.push((address, node.0, Message::Ask(address, request)));
                }
                coordinator::Output::Reply(reply) => {
                    let Some((number, _)) = &self.coordinators[address] else { continue };
                    let story = &mut self.stories[*number as usize];
                    match &story.told {
                        None => story.told = Some((reply, self.now)),
                        Some((before, _)) => {
                            let committed = |reply: &Reply| matches!(reply, Reply::Committed(_));
                            assert_eq!(committed(before), committed(&reply), "C1: {number} was told {before:?}");
                        }
                    }
                }
            }
        }
    }

    fn post(&mut self, node: u32, answers: Vec<(Address, Answer)>) {
        self.mail.extend(answers.into_iter().map(|(to, answer)| (to, node, Message::Answer(answer))));
    }

    /// One thing happens.
    fn step(&mut self) {
        self.now += self.rng.random_range(0..4);
        let dice = self.rng.random_range(0..100);
        if !self.mail.is_empty() && dice < 60 {
            let at = self.rng.random_range(0..self.mail.len());
            let (address, node, message) = self.mail.swap_remove(at);
            if !self.healthy && self.rng.random_bool(0.1) {
                return;
            }
            if !self.healthy && self.rng.random_bool(0.1) {
                let again = match &message {
                    Message::Ask(from, request) => Message::Ask(*from, request.clone()),
                    Message::Answer(answer) => Message::Answer(answer.clone()),
                };
                self.mail.push((address, node, again));
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
                self.bricks[node].participant.prepared().map(|(txn, nodes)| (txn, nodes.to_vec())).collect();
            // Whether its coordinator is gone nobody knows for sure; here, some finish what is not left.
            let suspicious = self.rng.random_bool(0.1);
            let is_left = |txn: &TxnId| {
                let mut alive = self.coordinators.iter().flatten();
                suspicious || !alive.any(|(number, coordinator)| Self::id(*number) == *txn && !coordinator.is_done())
            };
            if let Some((txn, nodes)) = prepared.into_iter().find(|(txn, _)| is_left(txn)) {
                self.finish(txn, nodes);
            }
        }
    }

    fn deliver(&mut self, address: Address, node: u32, message: Message) {
        match message {
            Message::Ask(from, request) => {
                let brick = &mut self.bricks[node as usize];
                let version = brick.version;
                let handled = brick.participant.handle(from, request, Timestamp::ZERO, self.now, &mut |_| version);
                handled.unwrap();
                let answers = brick.drain();
                self.post(node, answers);
            }
            Message::Answer(answer) => {
                let mut out = Vec::new();
                if let Some((_, coordinator)) = &mut self.coordinators[address] {
                    coordinator.answered(NodeId(node), answer, self.now, &mut out);
                }
                self.send(address, out);
            }
        }
    }

    /// Runs until nothing is left to do.
    fn heal(&mut self) {
        self.healthy = true;
        for _ in 0..20_000 {
            self.step();
            let open = self.bricks.iter().any(|brick| brick.participant.prepared().next().is_some());
            let asking = self.coordinators.iter().flatten().any(|(_, coordinator)| !coordinator.is_done());
            if !open && !asking && self.mail.is_empty() {
                self.bricks.iter_mut().for_each(|brick| drop(brick.force()));
                return;
            }
        }
        let open: Vec<_> = self.bricks.iter().flat_map(|brick| brick.participant.prepared()).collect();
        let asking: Vec<_> = self.coordinators.iter().flatten().filter(|(_, one)| !one.is_done()).collect();
        panic!("something is stuck: {} messages, prepared {open:?}, asking {asking:#?}", self.mail.len());
    }

    /// Checks what has come of it all.
    fn check(&self) -> Result<usize, String> {
        let lists: BTreeMap<Oid, List> = self.bricks.iter().flat_map(|brick| brick.lists.clone()).collect();
        let list = |oid: &Oid| lists.get(oid).map_or(&[][..], |list| list);
        let mut committed = BTreeSet::new();
        for (number, story) in (0..).zip(&self.stories) {
            let done: Vec<bool> = story.writes.iter().map(|oid| list(oid).contains(&number)).collect();
            if done.iter().any(|one| *one != done[0]) {
                return Err(format!("C1: transaction {number} happened in part"));
            }
            let told = story.told.as_ref().map(|(reply, _)| matches!(reply, Reply::Committed(_)));
            if let (Some(told), Some(done)) = (told, done.first())
                && told != *done
            {
                return Err(format!("transaction {number} was told {told}, and {done} is what happened"));
            }
            if done.first().copied().or(told) == Some(true) {
                committed.insert(number);
            }
        }
        for (oid, list) in &lists {
            let once: BTreeSet<&u64> = list.iter().collect();
            if once.len() != list.len() {
                return Err(format!("C3: {oid} was written twice by one transaction: {list:?}"));
            }
        }
        self.check_order(&committed, &list).map(|()| committed.len())
    }

    /// Strict serializability: what depends on what, and what was over before something began, has no cycle.
    fn check_order<'a>(&self, committed: &BTreeSet<u64>, list: &dyn Fn(&Oid) -> &'a [u64]) -> Result<(), String> {
        let mut after: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for number in committed {
            let story = &self.stories[*number as usize];
            for (oid, read) in &story.reads {
                let all = list(oid);
                if !all.starts_with(read) {
                    return Err(format!("transaction {number} read {read:?} of {oid}, which became {all:?}"));
                }
                // Whoever wrote what it read comes before it; whoever wrote next comes after it.
                if let Some(writer) = read.last() {
                    after.entry(*writer).or_default().insert(*number);
                }
                if let Some(next) = all[read.len()..].iter().find(|next| *next != number) {
                    after.entry(*number).or_default().insert(*next);
                }
                if story.writes.contains(oid) && all.get(read.len()) != Some(number) {
                    return Err(format!("V1: transaction {number} wrote {oid} after {read:?}; it became {all:?}"));
                }
            }
            for other in committed {
                let over = self.stories[*other as usize].told.as_ref().is_some_and(|(_, when)| *when < story.began);
                if over {
                    after.entry(*other).or_default().insert(*number);
                }
            }
        }
        let mut left = committed.clone();
        while !left.is_empty() {
            let behind: BTreeSet<u64> =
                after.iter().filter(|(from, _)| left.contains(from)).flat_map(|(_, to)| to.iter().copied()).collect();
            let free: Vec<u64> = left.difference(&behind).copied().collect();
            if free.is_empty() {
                return Err(format!("strict serializability: a cycle among {left:?}"));
            }
            left.retain(|number| !free.contains(number));
        }
        Ok(())
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
    world.check().unwrap_or_else(|broken| panic!("seed {seed}: {broken}"))
}

#[test]
fn what_is_committed_is_committed_everywhere_once_and_in_an_order() {
    let seeds = std::env::var("MORTAR_SEEDS").map_or(300, |seeds| seeds.parse().expect("a number of seeds"));
    let committed: usize = (0..seeds).map(run).sum();
    eprintln!("{seeds} seeds: {committed} transactions committed");
    assert!(committed as u64 > seeds * 10, "{committed} committed: too few to mean anything");
}
