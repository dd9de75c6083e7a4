//! The network: connections, which keep their order and may break, and datagrams, which may be lost, repeated and late.
//!
//! Random choices depend on the seed, the two processes, and the number of messages between them: so removing an action
//! from a plan changes little else.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::{NodeId, Object};
use protocol::gateway::Call;
use protocol::ident::TxnId;
use protocol::placement::{self, Epoch, GroupMap, MemberId, MetaNotice, NotServing};
use protocol::replica::message::Message as GroupMessage;
use protocol::tree::Down;
use wire::cluster::Message;

use super::catalog::PlacementMessage;
use super::cuts::CutMessage;
use super::group_member::Entry;
use super::query::QueryMessage;
use crate::plan::Noise;

/// The index of a process in the world.
pub(super) type Pid = usize;
/// The index of a connection; each connect creates a new one.
pub(super) type LinkId = usize;

/// A datagram: it may be lost, repeated and reordered.
#[derive(Clone, Debug)]
pub(super) enum Datagram {
    /// A message between processes of a cluster: calls, questions and their answers.
    Cluster(Message),
    /// The call of a member, on the connection that its redirector has in its name: that of the member below the redirector.
    MemberCall(LinkId, TxnId, Call<Object>),
    /// A brick does not serve a request.
    Refused(NodeId, NotServing),
    /// A request to the meta-server for the map.
    Fetch,
    Map(GroupMap),
    /// Between bricks and the meta-server.
    MetaRequest(MemberId, placement::MetaRequest),
    Notice(MetaNotice),
    /// About the placement of logical nodes that move.
    Placement(Box<PlacementMessage>),
    /// About a query.
    Query(Box<QueryMessage>),
    /// About a cut.
    Cut(CutMessage),
    /// Between the members of a group.
    Group(NodeId, MemberId, Box<GroupMessage<Entry>>),
}

/// A connection between a process and an upper one.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) lower: Pid,
    pub(super) upper: Pid,
    /// The logical node whose tree it carries; `None`: all.
    pub(super) node: Option<NodeId>,
    /// The epoch of the node that the lower process knew when it connected.
    pub(super) epoch: Epoch,
    pub(super) alive: bool,
    /// Messages of the tree that are under way upward, and downward: they keep their order.
    queues: [VecDeque<Message>; 2],
    /// When the last sent message arrives, in each direction.
    last: [u64; 2],
}

/// A random generator for each pair of processes.
#[derive(Clone, Debug, Default)]
pub(super) struct Dice {
    seed: u64,
    throws: BTreeMap<(Pid, Pid), u64>,
}

impl Dice {
    fn throw(&mut self, from: Pid, to: Pid) -> u64 {
        let count = self.throws.entry((from, to)).or_default();
        *count += 1;
        mix(self.seed ^ (from as u64) << 40 ^ (to as u64) << 48 ^ *count)
    }

    fn percent(&mut self, from: Pid, to: Pid, percent: u32) -> bool {
        percent > 0 && self.throw(from, to) % 100 < u64::from(percent)
    }

    fn range(&mut self, from: Pid, to: Pid, (least, most): (u64, u64)) -> u64 {
        if least >= most { least } else { least + self.throw(from, to) % (most - least + 1) }
    }
}

/// The finalizer of splitmix64: every bit of the input moves every bit of the output.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The network.
#[derive(Clone, Debug)]
pub(super) struct Net {
    pub(super) noise: Noise,
    dice: Dice,
    pub(super) links: Vec<Link>,
    /// The live connections between two processes, the lower one first, for one tree or for all.
    between: BTreeMap<(Pid, Pid, Option<NodeId>), LinkId>,
    /// The end of the block from one process to another.
    blocked: BTreeMap<(Pid, Pid), u64>,
    /// When the last message from one process to another arrives: without noise, messages keep their order.
    last: BTreeMap<(Pid, Pid), u64>,
    pub(super) held: BTreeSet<(Pid, Pid)>,
    /// When the last of all messages arrives.
    pub(super) last_arrival: u64,
}

impl Net {
    pub(super) fn new(seed: u64, noise: Noise) -> Self {
        Self {
            noise,
            dice: Dice { seed, throws: BTreeMap::new() },
            links: Vec::new(),
            between: BTreeMap::new(),
            blocked: BTreeMap::new(),
            last: BTreeMap::new(),
            held: BTreeSet::new(),
            last_arrival: 0,
        }
    }

    /// Whether a connection has so much unsent that it does not carry the page of this fetch.
    pub(super) fn is_behind(&self, fetch: u64) -> bool {
        self.noise.loss > 0 && mix(self.dice.seed ^ fetch).is_multiple_of(16)
    }

    /// The index of the next connection.
    pub(super) fn next_link(&self) -> LinkId {
        self.links.len()
    }

    /// Connects two processes, for the tree of a logical node or for all.
    pub(super) fn connect(&mut self, lower: Pid, upper: Pid, node: Option<NodeId>, epoch: Epoch) -> LinkId {
        let queues = [VecDeque::new(), VecDeque::new()];
        self.links.push(Link { lower, upper, node, epoch, alive: true, queues, last: [0; 2] });
        self.between.insert((lower, upper, node), self.links.len() - 1);
        self.links.len() - 1
    }

    /// Breaks a connection; messages under way are lost. Returns whether it was alive.
    pub(super) fn cut(&mut self, link: LinkId) -> bool {
        let Some(one) = self.links.get_mut(link) else { return false };
        one.queues.iter_mut().for_each(VecDeque::clear);
        let between = (one.lower, one.upper, one.node);
        if self.between.get(&between) == Some(&link) {
            self.between.remove(&between);
        }
        std::mem::replace(&mut one.alive, false)
    }

    /// The connection that carries the tree of a logical node.
    pub(super) fn between(&self, lower: Pid, upper: Pid, node: NodeId) -> Option<LinkId> {
        let link = |node| self.between.get(&(lower, upper, node)).copied();
        link(Some(node)).or_else(|| link(None))
    }

    /// All connections between two processes.
    pub(super) fn all_between(&self, lower: Pid, upper: Pid) -> Vec<LinkId> {
        self.links_of(lower).into_iter().filter(|link| self.links[*link].upper == upper).collect()
    }

    /// All connections of a process.
    pub(super) fn links_of(&self, pid: Pid) -> Vec<LinkId> {
        let mine = |(lower, upper, _): &(Pid, Pid, Option<NodeId>)| *lower == pid || *upper == pid;
        self.between.iter().filter(|(between, _)| mine(between)).map(|(_, link)| *link).collect()
    }

    pub(super) fn block(&mut self, from: Pid, to: Pid, until: u64) {
        let blocked = self.blocked.entry((from, to)).or_default();
        *blocked = until.max(*blocked);
    }

    /// Ends all blocks, losses and reordering.
    pub(super) fn heal(&mut self) {
        self.blocked.clear();
        self.noise = Noise { loss: 0, duplicate: 0, reorder: 0, ..self.noise };
    }

    fn delay(&mut self, from: Pid, to: Pid, now: u64) -> u64 {
        let delay = self.dice.range(from, to, self.noise.delay_ms);
        let blocked = self.blocked.get(&(from, to)).copied().unwrap_or_default();
        let arrival = (now + delay).max(blocked);
        self.last_arrival = self.last_arrival.max(arrival);
        if self.noise.loss + self.noise.duplicate > 0 {
            return arrival;
        }
        let last = self.last.entry((from, to)).or_default();
        *last = arrival.max(*last);
        *last
    }

    /// Puts a message on a connection. Returns when it arrives.
    pub(super) fn put(&mut self, link: LinkId, up: bool, message: Message, now: u64) -> u64 {
        let (lower, upper) = (self.links[link].lower, self.links[link].upper);
        let (from, to) = if up { (lower, upper) } else { (upper, lower) };
        let arrival = self.delay(from, to, now);
        let side = usize::from(!up);
        let one = &mut self.links[link];
        one.queues[side].push_back(message);
        one.last[side] = one.last[side].max(arrival);
        one.last[side]
    }

    /// Removes the next message that arrives on a connection. An invalidation may overtake the previous one.
    pub(super) fn take(&mut self, link: LinkId, up: bool) -> Option<Message> {
        let (lower, upper) = (self.links[link].lower, self.links[link].upper);
        let side = usize::from(!up);
        let is_news =
            |message: Option<&Message>| matches!(message, Some(Message::Down { message: Down::Invalidate { .. }, .. }));
        let queue = &self.links[link].queues[side];
        let can_overtake = !up && is_news(queue.front()) && is_news(queue.get(1));
        let overtakes = can_overtake && self.dice.percent(upper, lower, self.noise.reorder);
        self.links[link].queues[side].remove(usize::from(overtakes))
    }

    /// The arrivals of a datagram: none, one, or two.
    pub(super) fn datagram_arrivals(&mut self, from: Pid, to: Pid, now: u64) -> Vec<u64> {
        let Noise { loss, duplicate, .. } = self.noise;
        let is_blocked = self.blocked.get(&(from, to)).is_some_and(|until| *until > now);
        if is_blocked || self.dice.percent(from, to, loss) {
            return Vec::new();
        }
        let mut arrivals = vec![self.delay(from, to, now)];
        if self.dice.percent(from, to, duplicate) {
            let late = self.dice.range(from, to, (1, 400));
            arrivals.push(self.delay(from, to, now) + late);
        }
        arrivals
    }

    /// A random duration.
    pub(super) fn chance(&mut self, pid: Pid, range: (u64, u64)) -> u64 {
        self.dice.range(pid, pid, range)
    }
}
