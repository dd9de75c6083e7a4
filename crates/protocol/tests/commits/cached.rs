//! Clients that read from page caches. Links that are slow, break and are established again carry the invalidations and
//! updates. Commits are validated with the versions that the caches report for reads, and each cache is compared with
//! the whole history of the pages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::{NodeId, Oid};
use protocol::commit::coordinator::{self, CommitReply, Coordinator};
use protocol::commit::{Answer, Part, Refusal, Request};
use protocol::directory::Directory;
use protocol::ident::{ClientId, HlcTimestamp, HolderId, TxnId, Version};
use protocol::page_cache::{self, FetchId, Invalidation, Lookup, ObjectState, PageCache, PageImage, SlotStates};
use protocol::validate::ReadVersion;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::brick::{Address, List, NODES, SLOTS, TestBrick, oid, page};
use crate::check::{History, TxnRecord};

const CLIENTS: usize = 4;
const LEASE_MS: u64 = 1 << 40;

/// A message from a brick to a client.
enum ToClient {
    Page(FetchId, PageImage<List>),
    Changed(Invalidation, Option<SlotStates<List>>),
}

/// A message from a client to a brick.
enum ToBrick {
    Fetch(FetchId),
    Acknowledge(Version),
    Evict(FetchId),
}

/// A client's connection to one brick.
struct Link {
    holder: HolderId,
    down: VecDeque<ToClient>,
    up: VecDeque<ToBrick>,
    /// Pages that were read and are not sent yet.
    reading: Vec<(FetchId, PageImage<List>)>,
    /// The fetch that returned the copy.
    fetch: FetchId,
}

/// An object to read, and whether the transaction also writes it.
type PlannedRead = (Oid, bool);

struct Client {
    cache: PageCache<List>,
    links: Vec<Link>,
    /// The number of its transaction, the objects that it has still to read, and whether it is committing.
    current: Option<(u64, Vec<PlannedRead>, bool)>,
}

struct World {
    rng: StdRng,
    now: u64,
    bricks: Vec<TestBrick>,
    directories: Vec<Directory>,
    clients: Vec<Client>,
    last_holder: u64,
    coordinators: Vec<Option<(u64, Coordinator<List>)>>,
    records: Vec<TxnRecord>,
    questions: Vec<(Address, u32, Request<List>)>,
    answers: Vec<(Address, u32, Answer)>,
    healthy: bool,
    limit: usize,
}

impl World {
    fn new(seed: u64, limit: usize) -> Self {
        let mut world = Self {
            rng: StdRng::seed_from_u64(seed),
            now: 1,
            bricks: (0..NODES).map(TestBrick::new).collect(),
            directories: (0..NODES).map(|_| Directory::default()).collect(),
            clients: Vec::new(),
            last_holder: 0,
            coordinators: Vec::new(),
            records: Vec::new(),
            questions: Vec::new(),
            answers: Vec::new(),
            healthy: false,
            limit,
        };
        for _ in 0..CLIENTS {
            let links = (0..NODES).map(|node| world.connect(node)).collect();
            world.clients.push(Client { cache: PageCache::default(), links, current: None });
        }
        world
    }

    fn connect(&mut self, node: u32) -> Link {
        self.last_holder += 1;
        let holder = HolderId(self.last_holder);
        self.directories[node as usize].grant(holder, 0, self.now, LEASE_MS, u64::MAX);
        let (down, up) = (VecDeque::new(), VecDeque::new());
        Link { holder, down, up, reading: Vec::new(), fetch: FetchId(0) }
    }

    fn id(number: u64, client: usize) -> TxnId {
        TxnId { start: HlcTimestamp::at(number + 1), client: ClientId(client as u64) }
    }

    // -------------------------------------------------------------------------------------------- clients

    fn client_step(&mut self, at: usize) {
        let Some((number, left, committing)) = self.clients[at].current.take() else {
            return self.begin(at);
        };
        if committing {
            self.clients[at].current = Some((number, left, true));
            return;
        }
        let (client, txn) = (&mut self.clients[at], Self::id(number, at));
        let Some((oid, write)) = left.last().copied() else { return self.commit(at, number) };
        let list = match client.cache.read(txn, oid) {
            Lookup::Value(list) => list.clone(),
            Lookup::Absent => List::new(),
            Lookup::Miss => {
                let node = oid.page().node.0 as usize;
                if let Some((fetch, _)) = client.cache.fetch(oid.page()) {
                    client.links[node].up.push_back(ToBrick::Fetch(fetch));
                }
                client.current = Some((number, left, false));
                return;
            }
        };
        let record = &mut self.records[number as usize];
        if write {
            let mut longer = list.clone();
            longer.push(number);
            client.cache.write(txn, oid, ObjectState::Value(longer));
            record.writes.insert(oid);
        }
        record.reads.insert(oid, list);
        client.current = Some((number, left[..left.len() - 1].to_vec(), false));
    }

    fn begin(&mut self, at: usize) {
        if self.healthy || self.records.len() >= self.limit {
            return;
        }
        let number = self.records.len() as u64;
        let mut objects = BTreeMap::new();
        for _ in 0..self.rng.random_range(1..6) {
            let object = oid(self.rng.random_range(0..NODES), self.rng.random_range(0..SLOTS));
            objects.insert(object, self.rng.random_bool(0.5));
        }
        let (reads, writes) = (BTreeMap::new(), BTreeSet::new());
        self.records.push(TxnRecord { reads, writes, began: self.now, reply: None });
        self.clients[at].cache.begin(Self::id(number, at));
        self.clients[at].current = Some((number, objects.into_iter().collect(), false));
    }

    fn commit(&mut self, at: usize, number: u64) {
        let txn = Self::id(number, at);
        let Ok(finished) = self.clients[at].cache.finish(txn) else {
            self.records[number as usize].reply = Some((CommitReply::Refused(Refusal::Aborted), self.now));
            return;
        };
        let mut parts: BTreeMap<NodeId, Part<List>> = BTreeMap::new();

        for read in finished.reads.iter() {
            parts.entry(read.oid.page().node).or_default().reads.push(read);
        }
        for (oid, content) in finished.writes {
            parts.entry(oid.page().node).or_default().writes.insert(oid, content);
        }
        self.clients[at].current = Some((number, Vec::new(), true));
        let (address, mut out) = (self.coordinators.len(), Vec::new());
        let coordinator = Coordinator::commit(txn, parts, self.now, &mut out);
        self.coordinators.push(Some((number, coordinator)));
        self.send(address, out);
    }

    fn send(&mut self, address: Address, out: Vec<coordinator::Output<List>>) {
        for output in out {
            match output {
                coordinator::Output::Send(node, request) | coordinator::Output::Repeat(node, request) => {
                    self.questions.push((address, node.0, request))
                }
                coordinator::Output::Reply(reply) => {
                    let Some((number, _)) = &self.coordinators[address] else { continue };
                    let number = *number;
                    let record = &mut self.records[number as usize];
                    let committed = match &reply {
                        CommitReply::Committed(receipt) => Some(receipt.timestamp),
                        CommitReply::Refused(_) => None,
                    };
                    record.reply.get_or_insert((reply, self.now));
                    for (at, client) in self.clients.iter_mut().enumerate() {
                        client.cache.handle_outcome(Self::id(number, at), committed);
                        if client.current.as_ref().is_some_and(|(current, ..)| *current == number) {
                            client.current = None;
                        }
                    }
                }
            }
        }
    }

    /// Breaks a connection and establishes another one. Messages under way are lost.
    fn reconnect(&mut self, at: usize, node: u32) {
        let link = self.connect(node);
        let client = &mut self.clients[at];
        let old = std::mem::replace(&mut client.links[node as usize], link);
        self.directories[node as usize].remove(old.holder);
        client.cache.evict(page(node));
        client.cache.suspend(NodeId(node));
        self.settle(node);
    }

    // -------------------------------------------------------------------------------------------- links

    fn deliver_down(&mut self, at: usize, node: u32) {
        let client = &mut self.clients[at];
        let link = &mut client.links[node as usize];
        // Invalidations may overtake each other, because a redirector sends some of them as updates. No page overtakes
        // an earlier message.
        let news = link.down.iter().take_while(|down| matches!(down, ToClient::Changed(..))).count();
        let next = if news > 1 && self.rng.random_bool(0.3) { self.rng.random_range(0..news) } else { 0 };
        match link.down.remove(next) {
            Some(ToClient::Page(fetch, fetched)) => {
                assert!(
                    client.cache.handle_fetched(page(node), fetch, page_cache::FetchReply::Page(fetched)),
                    "D3: the reply to a fetch of this link was dropped"
                );
                link.fetch = fetch;
            }
            Some(ToClient::Changed(invalidation, contents)) => {
                let version = client.cache.invalidate(invalidation, contents);
                link.up.push_back(ToBrick::Acknowledge(version));
            }
            None => {}
        }
        client.cache.check_invariants().unwrap();
        self.check_cache(at);
    }

    fn deliver_up(&mut self, at: usize, node: u32) {
        let link = &mut self.clients[at].links[node as usize];
        let (brick, directory) = (&self.bricks[node as usize], &mut self.directories[node as usize]);
        match link.up.pop_front() {
            Some(ToBrick::Fetch(fetch)) => {
                // D1: the holder is listed before the page is read.
                assert!(directory.list(page(node), link.holder, fetch));
                let objects = brick.lists.iter().map(|(oid, list)| (oid.slot(), list.clone())).collect();
                link.reading
                    .push((fetch, PageImage { version: brick.version, timestamp: HlcTimestamp::ZERO, objects }));
            }
            Some(ToBrick::Acknowledge(version)) => directory.acknowledge(link.holder, page(node), version),
            Some(ToBrick::Evict(fetch)) => directory.evict(page(node), link.holder, fetch),
            None => {}
        }
        directory.check_invariants().unwrap();
        self.settle(node);
    }

    /// Retires the changes that every holder has acknowledged (V3).
    fn settle(&mut self, node: u32) {
        let brick = &mut self.bricks[node as usize];
        let settled = self.directories[node as usize].settled_version(page(node)).unwrap_or(brick.version);
        brick.participant.acknowledge(page(node), settled);
    }

    /// Sends the changes to the holders.
    fn send_changes(&mut self, node: u32) {
        for (invalidation, contents) in std::mem::take(&mut self.bricks[node as usize].changed) {
            let holders = self.directories[node as usize].mark_changed(page(node), invalidation.version, self.now);
            for link in self.clients.iter_mut().map(|client| &mut client.links[node as usize]) {
                if holders.contains(&link.holder) {
                    let update = self.rng.random_bool(0.5).then(|| contents.clone());
                    link.down.push_back(ToClient::Changed(invalidation.clone(), update));
                }
            }
        }
        self.settle(node);
    }

    /// Checks that every valid object has its state at the version that is reported for it (P1).
    fn check_cache(&self, at: usize) {
        for node in 0..NODES {
            for (slot, list, seen) in self.clients[at].cache.valid_objects(page(node)) {
                let ReadVersion::At(version) = seen else { continue };
                let (_, state) = self.bricks[node as usize].history.range(..=version).next_back().unwrap();
                assert_eq!(
                    state.get(&oid(node, slot)),
                    Some(list),
                    "P1: slot {slot} of {node} at {version:?} in client {at}"
                );
            }
        }
    }

    // -------------------------------------------------------------------------------------------- steps

    fn step(&mut self) {
        self.now += self.rng.random_range(0..4);
        let (at, node) = (self.rng.random_range(0..CLIENTS), self.rng.random_range(0..NODES));
        match self.rng.random_range(0..100) {
            0..20 => self.client_step(at),
            20..35 => self.deliver_down(at, node),
            35..45 => self.deliver_up(at, node),
            45..52 => {
                let link = &mut self.clients[at].links[node as usize];
                if let Some((fetch, fetched)) = link.reading.pop() {
                    link.down.push_back(ToClient::Page(fetch, fetched));
                }
            }
            52..65 if !self.questions.is_empty() => {
                let next = self.rng.random_range(0..self.questions.len());
                let (address, node, request) = self.questions.swap_remove(next);
                if self.healthy || self.rng.random_bool(0.95) {
                    let brick = &mut self.bricks[node as usize];
                    let version = brick.version;
                    brick.participant.handle(address, request, HlcTimestamp::ZERO, self.now, &version).unwrap();
                    let answers = brick.drain();
                    self.post(node, answers);
                }
            }
            65..78 if !self.answers.is_empty() => {
                let next = self.rng.random_range(0..self.answers.len());
                let (address, node, answer) = self.answers.swap_remove(next);
                let mut out = Vec::new();
                if let Some((_, coordinator)) = &mut self.coordinators[address] {
                    coordinator.handle_answer(NodeId(node), answer, self.now, &mut out);
                }
                self.send(address, out);
            }
            78..88 => {
                let answers = self.bricks[node as usize].force();
                self.post(node, answers);
            }
            88..94 => {
                for address in 0..self.coordinators.len() {
                    let mut out = Vec::new();
                    if let Some((_, coordinator)) = &mut self.coordinators[address] {
                        coordinator.poll(self.now, &mut out);
                    }
                    self.send(address, out);
                }
            }
            96 if !self.healthy => self.reconnect(at, node),
            94..96 => {
                let client = &mut self.clients[at];
                if client.cache.evict(page(node)) {
                    let link = &mut client.links[node as usize];
                    let fetch = link.fetch;
                    link.up.push_back(ToBrick::Evict(fetch));
                }
            }
            98 if !self.healthy && self.rng.random_bool(0.3) => {
                self.bricks[node as usize].crash(&mut self.rng);
                // A restarted brick knows no holders; all clients connect again.
                (0..CLIENTS).for_each(|at| self.reconnect(at, node));
            }
            _ => {}
        }
    }

    fn post(&mut self, node: u32, answers: Vec<(Address, Answer)>) {
        self.send_changes(node);
        self.answers.extend(answers.into_iter().map(|(to, answer)| (to, node, answer)));
    }

    fn heal(&mut self) {
        self.healthy = true;
        for _ in 0..100_000 {
            self.step();
            let busy = self.clients.iter().any(|client| client.current.is_some());
            let asking = self.coordinators.iter().flatten().any(|(_, one)| !one.is_done());
            if !busy && !asking && self.questions.is_empty() && self.answers.is_empty() {
                return;
            }
        }
        panic!("the transactions do not end");
    }

    /// Delivers all messages to the clients. Then every copy must be listed (D1) and have the version of its page.
    fn check_directories(&mut self) {
        for (at, node) in (0..CLIENTS).flat_map(|at| (0..NODES).map(move |node| (at, node))) {
            let link = &mut self.clients[at].links[node as usize];
            while let Some((fetch, fetched)) = link.reading.pop() {
                link.down.push_back(ToClient::Page(fetch, fetched));
            }
            while !self.clients[at].links[node as usize].down.is_empty() {
                self.deliver_down(at, node);
            }
            let (client, brick) = (&self.clients[at], &self.bricks[node as usize]);
            let is_listed = self.directories[node as usize]
                .holders(page(node))
                .any(|one| one == client.links[node as usize].holder);
            if let Some(version) = client.cache.version(page(node)) {
                assert!(is_listed, "D1: client {at} has a copy of {node} but is not listed");
                assert_eq!(
                    version, brick.version,
                    "D3: client {at} has an outdated copy of {node}, and no message is under way"
                );
            }
        }
    }
}

fn run(seed: u64) -> usize {
    let mut world = World::new(seed, 60);
    for _ in 0..6000 {
        world.step();
    }
    world.heal();
    world.check_directories();
    let history = History { records: &world.records, bricks: &world.bricks };
    history.check().unwrap_or_else(|broken| panic!("seed {seed}: {broken}"))
}

#[test]
fn histories_over_caches_are_strictly_serializable() {
    crate::run_all(run);
}
