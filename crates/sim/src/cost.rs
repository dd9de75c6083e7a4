//! How throughput grows with the number of bricks and peer servers, in a model: the machines of `protocol` do what they do in a
//! real cluster, and what they do takes time on a processor or a disk that does one thing at a time.
//!
//! ```text
//!  clients, each with one request      peer servers              bricks
//!  under way, on machines of their   one processor each    a processor and a disk each
//!  own
//!     Call, Read ────────────────────────▶ ─── Ask, Read ────────▶ ─▶ log, forced together
//!     ◀──────────────── Reply, Found ───── ◀────── Answer, Found ──
//! ```
//!
//! The network has a delay and no limit. What is modelled is whether anything in the rules or in the way that messages take
//! is shared by all: a model of machines that have their cores for themselves, which one machine cannot be.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use model::{ClassId, NodeId, Oid, PageId, SpaceId};
use protocol::brick::{self, Brick};
use protocol::cache_node::{self, CacheNode};
use protocol::commit::participant::ParticipantSettings;
use protocol::commit::{Answer, Part, Request};
use protocol::gateway::{Call, Reply};
use protocol::ident::{ClientId, HlcTimestamp, HolderId, TxnId, Version};
use protocol::page_cache::ObjectState;
use protocol::redirect::Helpers;
use protocol::validate::WindowLimits;

/// When the model begins, in milliseconds: times before that are refused as too old.
const EPOCH_MS: u64 = 1_000_000;
/// How far clocks may differ, in milliseconds.
const SKEW_MS: u64 = 5_000;
/// How often bricks and peer servers look at their clocks, in microseconds.
const TICK_US: u64 = 10_000;
/// Transactions that fill a page.
const TXNS_PER_PAGE: u64 = 4;

/// What things take, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// A message of a client at a peer server, with the answer that is sent later.
    pub peer_us: f64,
    /// A message between a peer server and a brick, at the peer server.
    pub between_us: f64,
    /// A read at a brick.
    pub read_us: f64,
    /// A message of a coordinator at a brick, without what it writes.
    pub ask_us: f64,
    /// A record of a brick's log, and what it writes.
    pub record_us: f64,
    /// A force of a brick's disk, shared by all that waits for it.
    pub force_us: f64,
    /// The way from one machine to another.
    pub hop_us: f64,
}

impl Default for Costs {
    /// What profiles of real processes said: see docs/simulator.md.
    fn default() -> Self {
        Self {
            peer_us: 8.0,
            between_us: 2.0,
            read_us: 3.0,
            ask_us: 4.0,
            record_us: 12.0,
            force_us: 100.0,
            hop_us: 50.0,
        }
    }
}

/// What clients do, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Reads of objects at their bricks, through peer servers.
    Reads,
    /// Transactions that write at one brick.
    Local,
    /// Transactions that write at two bricks.
    Distributed,
}

impl Load {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Reads, Self::Local, Self::Distributed];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Local => "local",
            Self::Distributed => "distributed",
        }
    }
}

/// What is modelled.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Bricks, and as many peer servers.
    pub bricks: usize,
    /// Clients for each brick.
    pub clients: usize,
    /// What they do.
    pub load: Load,
    /// How long, in milliseconds of the model; a tenth of it before is not counted.
    pub length_ms: u64,
    /// What things take.
    pub costs: Costs,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measurement {
    /// Requests that were answered a second.
    pub rate: f64,
    /// The part of the time in which the busiest processor of a brick, and of a peer server, was busy.
    pub bricks_busy: f64,
    /// The same of peer servers.
    pub peers_busy: f64,
}

/// Who a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Destination {
    Brick(usize),
    Peer(usize),
    Client(usize),
}

#[derive(Debug)]
enum Event {
    Call(TxnId, Call<u64>),
    Ask(usize, Request<u64>, HlcTimestamp),
    Answer(NodeId, Answer, HlcTimestamp),
    Ended(Reply<u64>),
    /// A read of a client, on its way there and back.
    Read(usize, NodeId),
    Found(usize),
    Forced,
    Tick,
}

/// Something that happens, in the order of times and then of when it was said.
struct Scheduled(Reverse<(u64, u64)>, Destination, Event);

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

/// A processor: what it does begins when it is done with what came before.
#[derive(Clone, Copy, Debug, Default)]
struct Processor {
    free_us: f64,
    busy_us: f64,
}

impl Processor {
    /// Takes so long for something that came at `now`. Returns when it is done.
    fn occupy(&mut self, now: u64, us: f64) -> f64 {
        self.free_us = self.free_us.max(now as f64) + us;
        self.busy_us += us;
        self.free_us
    }
}

struct BrickProcess {
    brick: Brick<usize, u64>,
    processor: Processor,
    versions: BTreeMap<PageId, Version>,
    appended: u64,
    forced: u64,
    forcing: Option<u64>,
}

struct PeerProcess {
    node: CacheNode<usize, u64>,
    processor: Processor,
}

/// The model.
struct World {
    setting: Setting,
    bricks: Vec<BrickProcess>,
    peers: Vec<PeerProcess>,
    /// How many requests each client has made.
    requests_made: Vec<u64>,
    queue: BinaryHeap<Scheduled>,
    number: u64,
    now: u64,
    done: u64,
}

/// Runs the model.
///
/// # Errors
/// If a machine refuses what the model does, which would be a mistake of the model.
pub fn measure(setting: Setting) -> Result<Measurement, String> {
    let mut world = World::new(setting);
    let warm = setting.length_ms * 100;
    world.run(warm)?;
    world.done = 0;
    let busy = |world: &World| {
        let bricks: Vec<f64> = world.bricks.iter().map(|brick| brick.processor.busy_us).collect();
        let peers: Vec<f64> = world.peers.iter().map(|peer| peer.processor.busy_us).collect();
        (bricks, peers)
    };
    let before = busy(&world);
    world.run(warm + setting.length_ms * 1_000)?;
    let after = busy(&world);
    let length_us = (setting.length_ms * 1_000) as f64;
    let busiest = |before: &[f64], after: &[f64]| {
        after.iter().zip(before).map(|(after, before)| (after - before) / length_us).fold(0.0, f64::max)
    };
    Ok(Measurement {
        rate: world.done as f64 * 1e6 / length_us,
        bricks_busy: busiest(&before.0, &after.0),
        peers_busy: busiest(&before.1, &after.1),
    })
}

fn node(brick: usize) -> NodeId {
    NodeId(brick as u32 + 1)
}

/// The finalizer of splitmix64: every bit of the input moves every bit of the output.
const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn brick_of(node: NodeId) -> usize {
    node.0 as usize - 1
}

impl World {
    fn new(setting: Setting) -> Self {
        let settings = |brick| ParticipantSettings {
            node: node(brick),
            moves: 0,
            skew_ms: SKEW_MS,
            windows: WindowLimits { page: 256, retained: 0 },
        };
        let brick = |number| BrickProcess {
            brick: Brick::new(settings(number)),
            processor: Processor::default(),
            versions: BTreeMap::new(),
            appended: 0,
            forced: 0,
            forcing: None,
        };
        let peer = |number: u64| PeerProcess {
            node: CacheNode::peer_server(HolderId((1 << 40) | (number << 24)), Helpers::None, SKEW_MS),
            processor: Processor::default(),
        };
        let clients = setting.bricks * setting.clients;
        let mut world = Self {
            setting,
            bricks: (0..setting.bricks).map(brick).collect(),
            peers: (0..setting.bricks as u64).map(peer).collect(),
            requests_made: vec![0; clients],
            queue: BinaryHeap::new(),
            number: 0,
            now: 0,
            done: 0,
        };
        for one in 0..setting.bricks {
            world.push(TICK_US as f64, Destination::Brick(one), Event::Tick);
            world.push(TICK_US as f64, Destination::Peer(one), Event::Tick);
        }
        (0..clients).for_each(|client| world.begin(client));
        world
    }

    fn push(&mut self, at: f64, to: Destination, event: Event) {
        self.number += 1;
        self.queue.push(Scheduled(Reverse((at.ceil() as u64, self.number)), to, event));
    }

    fn ms(&self) -> u64 {
        EPOCH_MS + self.now / 1_000
    }

    /// A client makes its next request.
    fn begin(&mut self, client: usize) {
        let Setting { bricks, load, costs, .. } = self.setting;
        let made = self.requests_made[client];
        self.requests_made[client] += 1;
        let peer = Destination::Peer(client % bricks);
        let arrives = self.now as f64 + costs.hop_us;
        // By chance: by turns, all that one force has answered would go on to the next brick together.
        let first = (mix(((client as u64) << 32) | made) % bricks as u64) as usize;
        if load == Load::Reads {
            return self.push(arrives, peer, Event::Read(client, node(first)));
        }
        let nodes = if load == Load::Local { vec![first] } else { vec![first, (first + 1) % bricks] };
        let mut parts: BTreeMap<NodeId, Part<u64>> = BTreeMap::new();
        for brick in nodes {
            let page = PageId {
                space: SpaceId(1),
                node: node(brick),
                number: ((client as u64) << 32) | (made / TXNS_PER_PAGE),
            };
            let oid = Oid::new(ClassId::NONE, page, (made % TXNS_PER_PAGE) as u16);
            parts.entry(node(brick)).or_default().writes.insert(oid, ObjectState::Value(made));
        }
        let start = HlcTimestamp(HlcTimestamp::at(self.ms()).0 + made % 1_000);
        let txn = TxnId { start, client: ClientId(client as u64 + 1) };
        self.push(arrives, peer, Event::Call(txn, Call::Commit { parts, creates: false }));
    }

    /// Runs until this time.
    fn run(&mut self, until: u64) -> Result<(), String> {
        while let Some(Scheduled(Reverse((at, _)), to, event)) = self.queue.pop() {
            if at > until {
                self.push(at as f64, to, event);
                break;
            }
            self.now = at;
            match to {
                Destination::Client(client) => {
                    if let Event::Ended(Reply::Ended(protocol::commit::coordinator::CommitReply::Refused(why))) = event
                    {
                        return Err(format!("a transaction without conflicts was refused: {why:?}"));
                    }
                    self.done += 1;
                    self.begin(client);
                }
                Destination::Peer(peer) => self.handle_at_peer(peer, event)?,
                Destination::Brick(brick) => self.handle_at_brick(brick, event)?,
            }
        }
        Ok(())
    }

    fn handle_at_peer(&mut self, number: usize, event: Event) -> Result<(), String> {
        let (Costs { peer_us, between_us, hop_us, .. }, now, ms) = (self.setting.costs, self.now, self.ms());
        let PeerProcess { node, processor } = &mut self.peers[number];
        let takes = match &event {
            Event::Call(..) | Event::Read(..) => peer_us,
            Event::Tick => 0.0,
            _ => between_us,
        };
        let done = processor.occupy(now, takes);
        match event {
            Event::Call(txn, call) => {
                let from = txn.client.0 as usize - 1;
                node.handle_call(from, txn, call, ms).map_err(|rejected| format!("{rejected}"))?;
            }
            Event::Answer(of, answer, seen) => {
                node.handle_answer(of, answer, None, seen, ms).map_err(|ahead| format!("{ahead:?}"))?;
            }
            Event::Read(client, of) => {
                let read = Event::Read(client, of);
                self.push(done + hop_us, Destination::Brick(brick_of(of)), read);
                return Ok(());
            }
            Event::Found(client) => {
                self.push(done + hop_us, Destination::Client(client), Event::Found(client));
                return Ok(());
            }
            Event::Tick => {
                node.poll(ms);
                self.number += 1;
                let next = Scheduled(Reverse((now + TICK_US, self.number)), Destination::Peer(number), Event::Tick);
                self.queue.push(next);
            }
            Event::Ask(..) | Event::Ended(_) | Event::Forced => {}
        }
        let node = &mut self.peers[number].node;
        let (outputs, seen) = (node.outputs(), node.clock());
        for output in outputs {
            match output {
                cache_node::Output::Ask(of, request) => {
                    self.push(done + hop_us, Destination::Brick(brick_of(of)), Event::Ask(number, request, seen));
                }
                cache_node::Output::Reply(to, _, reply) => {
                    self.push(done + hop_us, Destination::Client(to), Event::Ended(reply));
                }
                // No process holds copies here.
                cache_node::Output::Up(..)
                | cache_node::Output::Down(..)
                | cache_node::Output::Call(..)
                | cache_node::Output::MixedOutcome(..)
                | cache_node::Output::Busy(..) => {}
            }
        }
        Ok(())
    }

    fn handle_at_brick(&mut self, number: usize, event: Event) -> Result<(), String> {
        let (costs, now, ms) = (self.setting.costs, self.now, self.ms());
        let BrickProcess { brick, processor, versions, forced, forcing, .. } = &mut self.bricks[number];
        let takes = match &event {
            Event::Ask(..) => costs.ask_us,
            Event::Read(..) => costs.read_us,
            _ => 0.0,
        };
        let mut done = processor.occupy(now, takes);
        match event {
            Event::Ask(from, request, seen) => {
                brick.handle_request(from, request, seen, ms, versions).map_err(|rejected| format!("{rejected}"))?;
            }
            Event::Read(client, _) => {
                let peer = Destination::Peer(client % self.setting.bricks);
                self.push(done + costs.hop_us, peer, Event::Found(client));
                return Ok(());
            }
            Event::Forced => {
                *forced = forcing.take().unwrap_or(*forced);
                brick.handle_forced(*forced, ms, versions);
            }
            Event::Tick => {
                brick.poll(ms);
                self.number += 1;
                let next = Scheduled(Reverse((now + TICK_US, self.number)), Destination::Brick(number), Event::Tick);
                self.queue.push(next);
            }
            _ => {}
        }
        let outputs: Vec<brick::Output<usize, u64>> = self.bricks[number].brick.outputs().collect();
        for output in outputs {
            let one = &mut self.bricks[number];
            match output {
                brick::Output::Append(position, record) => {
                    one.appended = position;
                    // What only says that all is known takes no page.
                    let writes =
                        record.change().is_some() || matches!(record, protocol::commit::Record::Prepared { .. });
                    done = one.processor.occupy(now, if writes { costs.record_us } else { costs.record_us / 4.0 });
                }
                brick::Output::Store(message, _) => drop(one.versions.insert(message.page, message.version)),
                brick::Output::Answer(to, answer) => {
                    let seen = one.brick.clock();
                    self.push(done + costs.hop_us, Destination::Peer(to), Event::Answer(node(number), answer, seen));
                }
                brick::Output::Again(from, request) => {
                    let event = Event::Ask(from, request, HlcTimestamp::ZERO);
                    self.push(done, Destination::Brick(number), event);
                }
                brick::Output::Ask(..)
                | brick::Output::MixedOutcome(..)
                | brick::Output::Down(..)
                | brick::Output::Read(_)
                | brick::Output::RemoveRows(_)
                | brick::Output::RemoveMarks(_) => {}
            }
        }
        let one = &mut self.bricks[number];
        if one.forcing.is_none() && one.appended > one.forced {
            one.forcing = Some(one.appended);
            self.push(done + costs.force_us, Destination::Brick(number), Event::Forced);
        }
        Ok(())
    }
}
