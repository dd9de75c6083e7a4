//! What is to happen in a run: a cluster, and when who does what to whom.
//!
//! A [`Plan`] is all that a run depends on. It is made from a seed ([`crate::workload`]), or read from a scenario
//! ([`crate::scenario`]); leaving some of its actions out gives another plan, which is how failures are made short.

use std::fmt;

use model::{ClassId, NodeId, Oid, PageId, SpaceId};

/// How the cluster is put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topology {
    /// Clients directly below bricks, each with a gateway of its own.
    Direct,
    /// Clients below peer servers.
    Peer,
    /// Clients below redirectors, which are below peer servers.
    Group,
    /// Clients below peer servers that are their redirectors too.
    Site,
    /// A third of the clients each way.
    Mixed,
    /// Clients below peer servers, which are below logical nodes that are served by groups of two bricks each, or three.
    Replicated,
}

impl Topology {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Direct, Self::Peer, Self::Group, Self::Site, Self::Mixed, Self::Replicated];

    /// Its name, as the command line and scenarios have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Peer => "peer",
            Self::Group => "group",
            Self::Site => "site",
            Self::Mixed => "mixed",
            Self::Replicated => "replicated",
        }
    }
}

/// How many there are of each kind, and how they are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// How it is put together.
    pub topology: Topology,
    /// Bricks, and as many logical nodes.
    pub bricks: usize,
    /// Peer servers.
    pub peers: usize,
    /// Redirectors.
    pub redirectors: usize,
    /// Clients.
    pub clients: usize,
    /// Entries that the window of a page may have (V3).
    pub window: usize,
    /// Clients want closed timestamps.
    pub snapshots: bool,
}

/// What happens to messages by chance, in percent, and how long they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noise {
    /// Calls, questions and answers that are lost.
    pub loss: u32,
    /// Those that arrive twice.
    pub duplicate: u32,
    /// News that overtake the news before them on their connection.
    pub reorder: u32,
    /// The shortest and the longest way, in milliseconds.
    pub delay_ms: (u64, u64),
    /// How long a disk takes to force, in milliseconds.
    pub force_ms: u64,
}

impl Noise {
    /// A network in which nothing goes wrong.
    pub const NONE: Self = Self { loss: 0, duplicate: 0, reorder: 0, delay_ms: (1, 1), force_ms: 1 };
}

/// A process of the cluster, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProcessName {
    /// A brick.
    Brick(usize),
    /// A peer server.
    Peer(usize),
    /// A redirector.
    Redirector(usize),
    /// A client.
    Client(usize),
    /// The meta-server, if there is one.
    Meta,
}

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Brick(number) => write!(f, "b{number}"),
            Self::Peer(number) => write!(f, "p{number}"),
            Self::Redirector(number) => write!(f, "r{number}"),
            Self::Client(number) => write!(f, "c{number}"),
            Self::Meta => f.write_str("meta"),
        }
    }
}

/// The slot of a guard, and the first one of members. Other objects have smaller ones.
pub const GUARD: u16 = 1_000;
const MEMBERS: u16 = 2_000;
const MEMBER_LIMIT: u64 = 60_000;
/// How many pages further the other members of a set are.
const FAR_PAGES: u64 = 1_000_000;

/// An object: of a logical node, a page and a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The logical node, from 1.
    pub node: u32,
    /// The page, from 1.
    pub page: u64,
    /// The slot.
    pub slot: u16,
}

impl Key {
    /// Its page.
    #[must_use]
    pub fn page(self) -> PageId {
        PageId { space: SpaceId(1), node: NodeId(self.node), number: self.page }
    }

    /// The object.
    #[must_use]
    pub fn oid(self) -> Oid {
        Oid::new(ClassId::NONE, self.page(), self.slot)
    }

    /// The object with a number in the ring of [`Demand::Ring`].
    #[must_use]
    pub fn in_ring(number: i64) -> Self {
        let slots = i64::from(RING_SLOTS);
        Self { node: (number / slots) as u32 + 1, page: 1, slot: (number % slots) as u16 }
    }

    /// The guard of a set. Its members are on this page, and on another one.
    #[must_use]
    pub const fn guard(node: u32, page: u64) -> Self {
        Self { node, page, slot: GUARD }
    }

    /// The member that an operation puts into the set of this guard.
    #[must_use]
    pub const fn member(self, number: u64) -> Self {
        let page = if number.is_multiple_of(2) { self.page } else { self.page + FAR_PAGES };
        Self { page, slot: MEMBERS + (number % MEMBER_LIMIT) as u16, ..self }
    }

    /// The guard of the set that this is a member of, if it is one.
    #[must_use]
    pub const fn set(self) -> Option<Self> {
        if self.slot < MEMBERS { None } else { Some(Self::guard(self.node, (self.page - 1) % FAR_PAGES + 1)) }
    }

    /// The key of an object.
    #[must_use]
    pub fn from_oid(oid: Oid) -> Self {
        Self { node: oid.page().node.0, page: oid.page().number, slot: oid.slot() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.node, self.page, self.slot)
    }
}

/// What a transaction does, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reads an object.
    Read(Key),
    /// Appends the number of the operation to a list.
    Append(Key),
    /// Writes a number.
    Write(Key, i64),
    /// Moves an amount from one account to another.
    Move(Key, Key, i64),
    /// Takes the next one out of a ring of objects, each of which says where the next is, and puts it one further.
    Rotate(Key),
    /// Reads the guard of a set, and then asks the brick for all its members.
    Count(Key),
    /// Puts another member into a set, and touches its guard.
    Insert(Key),
    /// Waits so long, in milliseconds.
    Think(u64),
    /// Waits until it is told to go on.
    Pause,
}

/// What a client does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An optimistic transaction.
    Transact(Vec<Step>),
    /// A datastore transaction.
    Lock(Vec<Step>),
    /// A transaction that is tried again after a conflict: optimistic for three times, then with locks.
    Insist(Vec<Step>),
    /// A group snapshot, which only reads.
    Snapshot(Vec<Step>),
    /// A write outside of transactions; what is written is the number of the operation.
    Put(Key),
    /// A read outside of transactions.
    Get(Key),
}

/// What a disk does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskWork {
    /// Forces.
    Forces,
    /// Hands over pages, as they were when they were read.
    Reads,
}

/// Something that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A client does something, when it has done what came before.
    Do(usize, Operation),
    /// A client that pauses goes on.
    Go(usize),
    /// A process dies, with all that it has in memory, and what was not forced of its log, but so many records.
    Crash(ProcessName, usize),
    /// It comes back.
    Restart(ProcessName),
    /// The connection between two processes breaks.
    Cut(ProcessName, ProcessName),
    /// Nothing passes from one process to another for so long, in milliseconds.
    Block(ProcessName, ProcessName, u64),
    /// From now on what one process says to another waits.
    Hold(ProcessName, ProcessName),
    /// It waits no longer: the first so many messages of it, or all.
    Release(ProcessName, ProcessName, Option<usize>),
    /// Of what waits, the single messages are lost. A connection loses nothing unless it breaks.
    Drop(ProcessName, ProcessName),
    /// A process does nothing for so long, in milliseconds.
    Freeze(ProcessName, u64),
    /// A disk takes so long to force from now on, in milliseconds.
    Disk(usize, u64),
    /// A disk does no more of this, until it is told to go on.
    Stall(usize, DiskWork),
    /// It goes on.
    Unstall(usize, DiskWork),
    /// A clock is set so many milliseconds forward or back, and runs faster or slower by so many parts in a million.
    Clock(ProcessName, i64, i64),
    /// A client acknowledges nothing any more.
    Mute(usize),
    /// A client evicts a page.
    Evict(usize, u32, u64),
    /// A brick brings what it has into its B-tree, and frees its log up to there.
    Install(usize),
    /// A logical node moves to a brick; in groups, to that brick and those that follow it. Later, if it cannot yet.
    Move(u32, usize),
    /// So long nothing is done, in milliseconds.
    Wait(u64),
}

/// All that a run depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Of what is left to chance.
    pub seed: u64,
    /// The cluster.
    pub cluster: Cluster,
    /// The network.
    pub noise: Noise,
    /// What happens when, in milliseconds; without a time: when everything before is done.
    pub actions: Vec<(Option<u64>, Action)>,
    /// What the objects have at first, and what must always hold of them.
    pub demand: Demand,
}

/// Objects of each node in a ring.
pub const RING_SLOTS: u16 = 3;
/// What an account has at first.
pub const BALANCE: i64 = 100;

/// What must hold of the objects beyond what must hold of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Nothing.
    None,
    /// The first so many slots of the first page of every node are accounts, with [`BALANCE`] each at first (bank).
    Bank(u16),
    /// The first [`RING_SLOTS`] slots of the first page of every node are a ring (cycle).
    Ring,
    /// Nobody waits, and nobody is refused, for the sake of a member that is slow or dead (solo commit).
    Solo,
}

impl Plan {
    /// How many bricks serve each logical node together; 0 if each brick has one logical node for ever, and there is no
    /// meta-server.
    #[must_use]
    pub fn replicas(&self) -> usize {
        let moves = || self.actions.iter().any(|(_, action)| matches!(action, Action::Move(..)));
        match self.cluster.topology {
            Topology::Replicated => 2 + usize::from(self.seed % 4 == 3),
            _ => usize::from(moves()),
        }
    }

    /// Whether anything is done to the cluster, and not only by its clients.
    #[must_use]
    pub fn has_faults(&self) -> bool {
        let is_fault = |action: &Action| {
            !matches!(action, Action::Do(..) | Action::Go(_) | Action::Evict(..) | Action::Install(_) | Action::Wait(_))
        };
        self.actions.iter().any(|(_, action)| is_fault(action))
    }
}
