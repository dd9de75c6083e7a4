//! The plan of a run: a cluster, the operations of its clients, and the faults, with their times.
//!
//! A run depends only on its [`Plan`]. A plan is created from a seed ([`crate::workload`]) or read from a scenario
//! ([`crate::scenario`]). Shrinking a failure removes actions from its plan.

use std::fmt;

use model::{ClassId, Entry, EntryKey, FailurePolicy, NodeId, Oid, PageId, SpaceId, ValueRef};
use protocol::entries::unique_entry;
use query::key::IndexEntry;

use crate::deceit::Deceit;
use protocol::validate::WindowLimits;

/// How the cluster is put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topology {
    /// Clients directly below bricks, each with a gateway of its own.
    Direct,
    /// Clients below peer servers.
    Peer,
    /// Clients below redirectors, which are below peer servers.
    Group,
    /// Clients below peer servers that are also their redirectors.
    Site,
    /// A third of the clients each way.
    Mixed,
    /// Clients below peer servers; a group of two or three bricks serves each logical node.
    Replicated,
    /// Redirectors in a chain of two levels: the first half of them is below peer servers, the others are below those. A third of the clients is
    /// below the upper ones, the others below the lower ones.
    Chain,
}

impl Topology {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Direct, Self::Peer, Self::Group, Self::Site, Self::Mixed, Self::Replicated, Self::Chain];

    /// Those that seeds choose from. A part of the seeds that choose [`Topology::Group`] have [`Topology::Chain`].
    pub const DRAWN: [Self; 6] = [Self::Direct, Self::Peer, Self::Group, Self::Site, Self::Mixed, Self::Replicated];

    /// Whether logical nodes may move between bricks: all clients are below peer servers, which have placement maps.
    #[must_use]
    pub const fn allows_moves(self) -> bool {
        matches!(self, Self::Peer | Self::Group | Self::Site | Self::Chain)
    }

    /// Whether peer servers check what clients may do.
    #[must_use]
    pub const fn has_users(self) -> bool {
        matches!(self, Self::Peer | Self::Group | Self::Site | Self::Mixed | Self::Chain)
    }

    /// Its name in the command line and in scenarios.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Peer => "peer",
            Self::Group => "group",
            Self::Site => "site",
            Self::Mixed => "mixed",
            Self::Replicated => "replicated",
            Self::Chain => "chain",
        }
    }
}

/// The numbers of processes, and how they are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The topology.
    pub topology: Topology,
    /// Bricks, and as many logical nodes.
    pub bricks: usize,
    /// How many logical nodes a brick serves at first, if nodes may move: the first bricks serve them.
    pub nodes_per_brick: usize,
    /// Peer servers.
    pub peers: usize,
    /// Redirectors, of both levels if they are in a chain.
    pub redirectors: usize,
    /// Clients.
    pub clients: usize,
    /// How many changes validation remembers (V3).
    pub windows: WindowLimits,
    /// Whether clients subscribe to closed timestamps.
    pub snapshots: bool,
    /// Whether bricks are machines of the protocol without a driver and a store.
    pub bare: bool,
    /// Whether the stores of bricks apply rows at once, as those of bricks in memory do.
    pub rows_at_once: bool,
    /// Whether half of the pages that holders fetch are not in memory at their brick, and are read later.
    pub cold_reads: bool,
}

impl Cluster {
    /// How many of the redirectors, the first ones, are below peer servers. The others are below these.
    #[must_use]
    pub const fn upper_redirectors(&self) -> usize {
        match self.topology {
            Topology::Chain => self.redirectors.div_ceil(2),
            _ => self.redirectors,
        }
    }

    /// The number of the brick that serves a logical node at first.
    #[must_use]
    pub const fn first_brick(&self, node: u32) -> usize {
        let index = (node - 1) as usize;
        if self.topology.allows_moves() { index / self.nodes_per_brick + 1 } else { index + 1 }
    }
}

/// The random faults of messages in percent, and the delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noise {
    /// Calls, questions and answers that are lost, in percent.
    pub loss: u32,
    /// Calls, questions and answers that arrive twice, in percent.
    pub duplicate: u32,
    /// Invalidations that overtake the previous one on their connection, in percent.
    pub reorder: u32,
    /// The minimum and maximum delay, in milliseconds.
    pub delay_ms: (u64, u64),
    /// The duration of a force, in milliseconds.
    pub force_ms: u64,
}

impl Noise {
    /// A network without faults.
    pub const NONE: Self = Self { loss: 0, duplicate: 0, reorder: 0, delay_ms: (1, 1), force_ms: 1 };
}

/// A process of the cluster; numbers begin with 1.
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
    /// The process that takes cuts, if the plan has any.
    Admin,
}

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Brick(number) => write!(f, "b{number}"),
            Self::Peer(number) => write!(f, "p{number}"),
            Self::Redirector(number) => write!(f, "r{number}"),
            Self::Client(number) => write!(f, "c{number}"),
            Self::Meta => f.write_str("meta"),
            Self::Admin => f.write_str("admin"),
        }
    }
}

/// The space of all objects.
pub const SPACE: SpaceId = SpaceId(1);
/// The first numbers of the indexes of sets, of unique values, and of indexes that come and go.
const SET_INDEXES: u32 = 1 << 10;
const CLAIM_INDEXES: u32 = 1 << 16;
pub(crate) const EXTRA_INDEXES: u32 = 1 << 20;
/// The first class of objects with unique values, and the first class that extends that of a set.
const CLAIM_CLASSES: u32 = 1 << 20;
const SUBCLASSES: u32 = 1 << 22;
/// The most classes that extend that of a set.
const MAX_SUBCLASSES: u32 = 8;
/// The most fields that are added to the class of a set, and the last page whose sets' members have programs.
pub const MAX_ADDED_FIELDS: usize = 3;
pub(crate) const LAST_PROGRAM_PAGE: u64 = 2;

/// The slot of a guard, and the first slot of members. Other objects have smaller slots.
pub const GUARD: u16 = 1_000;
const MEMBERS: u16 = 2_000;
const MEMBER_LIMIT: u64 = 60_000;
/// The distance in pages of the second page of a set's members.
const FAR_PAGES: u64 = 1_000_000;

/// The place of an object: logical node, page and slot.
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
        PageId { space: SPACE, node: NodeId(self.node), number: self.page }
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

    /// The guard of a set. Its members are on this page and on another one.
    #[must_use]
    pub const fn guard(node: u32, page: u64) -> Self {
        Self { node, page, slot: GUARD }
    }

    /// The member that an operation inserts into the set of this guard.
    #[must_use]
    pub const fn member(self, number: u64) -> Self {
        let page = if number.is_multiple_of(2) { self.page } else { self.page + FAR_PAGES };
        Self { page, slot: MEMBERS + (number % MEMBER_LIMIT) as u16, ..self }
    }

    /// The class of the members of this guard's set.
    #[must_use]
    pub const fn set_class(self) -> ClassId {
        ClassId(self.page as u32)
    }

    /// A class that extends that of this guard's set, by its number from 0.
    #[must_use]
    pub const fn subclass(self, number: u32) -> ClassId {
        ClassId(SUBCLASSES + self.page as u32 * MAX_SUBCLASSES + number)
    }

    /// The index of the members of this guard's set.
    #[must_use]
    pub const fn set_index(self) -> u32 {
        SET_INDEXES + self.page as u32
    }

    /// The class of the objects with unique values beside the sets of this page number.
    #[must_use]
    pub const fn claim_class(self) -> ClassId {
        ClassId(CLAIM_CLASSES + self.page as u32)
    }

    /// The unique index of these objects.
    #[must_use]
    pub const fn claim_index(self) -> u32 {
        CLAIM_INDEXES + self.page as u32
    }

    /// The object by which an operation claims a unique value.
    #[must_use]
    pub const fn claim(self, number: u64) -> Self {
        Self { page: self.page + 2 * FAR_PAGES, slot: MEMBERS + (number % MEMBER_LIMIT) as u16, ..self }
    }

    /// The name, in histories, of the set of those who have a unique value: one at most, at whatever logical node.
    #[must_use]
    pub fn claim_name(self, value: i64) -> String {
        format!("0.{}v{value}.{GUARD}", self.page)
    }

    /// The entry for a unique value, in a space with these logical nodes.
    #[must_use]
    pub fn claim_entry(self, nodes: &[NodeId], value: i64) -> Entry {
        let key = IndexEntry::new(&[ValueRef::Int64(value)]).key;
        unique_entry(SPACE, nodes, self.claim_index(), &key)
            .unwrap_or_else(|error| panic!("a value has a place: {error}"))
    }

    /// The directory beside this guard's set.
    #[must_use]
    pub fn directory(self) -> Oid {
        Self { page: self.page + 3 * FAR_PAGES, slot: 0, ..self }.oid()
    }

    /// The name, in histories, of a text of the member that an operation has inserted and that is, or was, here. It is that of the place
    /// unless another member had the place before.
    #[must_use]
    pub fn text_name(self, member: i64, text: usize) -> String {
        format!("{}.{}t{text}.{}", self.node, self.page, i64::from(MEMBERS) + member)
    }

    /// The operation that inserts a member into a slot, if it is the first one there.
    #[must_use]
    pub const fn inserter(slot: u16) -> i64 {
        (slot - MEMBERS) as i64
    }

    /// The page number of the sets, and the text, that a name of a text in histories is about, or one of [`Key::touched_name`].
    #[must_use]
    pub fn text_of(name: &str) -> Option<(u64, usize)> {
        let (page, text) = name.split('.').nth(1)?.split_once('t')?;
        Some((Self::set_page(page.parse().ok()?), text.parse().ok()?))
    }

    /// The page of the guard of the set whose members are on a page.
    #[must_use]
    pub const fn set_page(page: u64) -> u64 {
        (page - 1) % FAR_PAGES + 1
    }

    /// The name, in histories, of the set of those who were first to append to a text of a member of this guard's set.
    #[must_use]
    pub fn touched_name(self, text: usize) -> String {
        format!("{}.{}t{text}.{GUARD}", self.node, self.page)
    }

    /// The name of this directory, in histories, as the set of the operations that have bound names in it.
    #[must_use]
    pub fn directory_name(self) -> String {
        format!("{}.{}d.{GUARD}", self.node, self.page)
    }

    /// The name, in histories, of the set of operations that have bound a name in this directory: one at most.
    #[must_use]
    pub fn bound_name(self, name: i64) -> String {
        format!("{}.{}d{name}.{GUARD}", self.node, self.page)
    }

    /// A name as a key of a directory.
    #[must_use]
    pub fn name(name: i64) -> EntryKey {
        EntryKey::name(&name.to_string()).unwrap_or_else(|error| panic!("a number is a name: {error}"))
    }

    /// The object to which an operation binds names.
    #[must_use]
    pub fn target(operation: i64) -> Oid {
        Oid::new(ClassId::NONE, PageId { space: SPACE, node: NodeId(1), number: operation as u64 }, 1)
    }

    /// The operation that has bound a name to this object.
    #[must_use]
    pub const fn operation(target: Oid) -> i64 {
        target.page().number as i64
    }

    /// The guard of the set, if the key is that of a member.
    #[must_use]
    pub const fn set(self) -> Option<Self> {
        if self.slot < MEMBERS { None } else { Some(Self::guard(self.node, Self::set_page(self.page))) }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.node, self.page, self.slot)
    }
}

/// A step of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reads an object.
    Read(Key),
    /// Appends the number of the operation to a list.
    Append(Key),
    /// Writes a number.
    Write(Key, i64),
    /// Transfers an amount from one account to another.
    Move(Key, Key, i64),
    /// Moves the next object of a ring one place further; each object of the ring contains the number of the next one.
    Rotate(Key),
    /// Reads the guard of a set, and then queries its members at the brick.
    Count(Key),
    /// Inserts a member into a set and touches its guard.
    Insert(Key),
    /// Appends the number of the operation to a text of a member, by the program of the client.
    Note(Key),
    /// Queries the members to which a text was appended.
    Sift(Key),
    /// Rewrites a member in the newest version of its class that the client knows.
    Renew(Key),
    /// Removes a member and inserts another one, or writes another one over it.
    Replace(Key),
    /// Inserts a member where a removed one was.
    Reuse(Key),
    /// Looks up who has a unique value, and takes the value if it is free.
    Claim(Key, i64),
    /// Looks a name up in a directory, and binds it if it is free.
    Bind(Key, i64),
    /// Lists a directory.
    List(Key),
    /// Waits, in milliseconds.
    Think(u64),
    /// Waits until [`Action::Go`].
    Pause,
}

impl Step {
    /// Whether it reads or writes the object that an append changes.
    #[must_use]
    pub fn uses_list_of(&self, append: &Self) -> bool {
        match (self, append) {
            (Self::Read(key) | Self::Append(key), Self::Append(list)) => key == list,
            _ => false,
        }
    }
}

/// An operation of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An optimistic transaction.
    Transact(Vec<Step>),
    /// A datastore transaction.
    Lock(Vec<Step>),
    /// A transaction that is retried after a conflict: optimistic for three attempts, then with locks.
    Insist(Vec<Step>),
    /// A group snapshot, which only reads.
    Snapshot(Vec<Step>),
    /// A write of the operation's number outside of transactions.
    Put(Key),
    /// A read outside of transactions.
    Get(Key),
}

impl Operation {
    /// The steps of a transaction; none outside of transactions.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        match self {
            Self::Transact(steps) | Self::Lock(steps) | Self::Insist(steps) | Self::Snapshot(steps) => steps,
            Self::Put(_) | Self::Get(_) => &[],
        }
    }
}

/// A kind of disk operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskWork {
    /// Forces.
    Forces,
    /// Returns pages as of the time when they were read.
    Reads,
}

/// What the user of a client may do in the space. Each one includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UserRight {
    /// There is no such user any more.
    Removed,
    /// Nothing.
    None,
    /// Read.
    Read,
    /// Read and write.
    Write,
}

impl UserRight {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Removed, Self::None, Self::Read, Self::Write];

    /// Its name in scenarios.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::None => "none",
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// An action of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A client begins an operation after its earlier ones.
    Do(usize, Operation),
    /// A paused client continues.
    Go(usize),
    /// A process crashes: it loses its memory, and all but this number of its unforced records.
    Crash(ProcessName, usize),
    /// It comes back.
    Restart(ProcessName),
    /// The connection between two processes breaks.
    Cut(ProcessName, ProcessName),
    /// Nothing passes from one process to another for this time, in milliseconds.
    Block(ProcessName, ProcessName, u64),
    /// Messages from one process to another wait from now on.
    Hold(ProcessName, ProcessName),
    /// Releases this number of waiting messages; `None` releases all and ends the hold.
    Release(ProcessName, ProcessName, Option<usize>),
    /// Discards the waiting datagrams. A connection loses nothing unless it breaks.
    Drop(ProcessName, ProcessName),
    /// A process does nothing for this time, in milliseconds.
    Freeze(ProcessName, u64),
    /// Each force of a disk takes this time from now on, in milliseconds.
    Disk(usize, u64),
    /// A disk completes no operation of this kind until [`Action::Unstall`].
    Stall(usize, DiskWork),
    /// The disk continues.
    Unstall(usize, DiskWork),
    /// A brick's disk takes only this number of bytes more from now on; `None`: as many as come.
    Room(usize, Option<u64>),
    /// A page of a brick's B-tree cannot be read from now on; this number determines which one. `None`: all can.
    Damage(usize, Option<u64>),
    /// A clock is ahead by this number of milliseconds, and fast by this number of parts in a million.
    Clock(ProcessName, i64, i64),
    /// A wall clock is set: it is ahead of the right time by this number of milliseconds. At time 0, the process starts with it.
    SetClock(ProcessName, i64),
    /// A client stops acknowledging invalidations.
    Mute(usize),
    /// A client breaks the rules in this way from now on.
    Deceive(usize, Deceit),
    /// The user of a client may do this from now on, by the catalogue.
    Permit(usize, UserRight),
    /// From now on the space stops when a brick is away, or goes on.
    SetPolicy(FailurePolicy),
    /// A client evicts a page.
    Evict(usize, u32, u64),
    /// A brick installs its changes into its B-tree and frees its log.
    Install(usize),
    /// The sets of a page get one more index, or lose it.
    Reindex(u64),
    /// The class of the sets of a page gets a class that extends it.
    Evolve(u64),
    /// The class of the sets of a page gets a field.
    AddField(u64),
    /// The class of the sets of a page is changed: it gets, loses, renames or widens a field.
    ChangeClass(u64),
    /// The program of a client is replaced by one that knows the fields that classes have now.
    Upgrade(usize),
    /// Moves a logical node to a brick, after its current move.
    Move(u32, usize),
    /// Cancels the move of a logical node.
    CancelMove(u32),
    /// Takes a cut through the stores of all bricks, which hold for at most this time, in milliseconds. A cluster is restored from it.
    Backup(u64),
    /// Waits, in milliseconds.
    Wait(u64),
}

/// The plan of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed of random choices.
    pub seed: u64,
    /// The cluster.
    pub cluster: Cluster,
    /// The network.
    pub noise: Noise,
    /// The actions with their times in milliseconds; without a time, an action waits until earlier ones have completed.
    pub actions: Vec<(Option<u64>, Action)>,
    /// The initial objects and their invariant.
    pub demand: Demand,
}

/// Objects of each node in a ring.
pub const RING_SLOTS: u16 = 3;
/// The initial balance of an account.
pub const BALANCE: i64 = 100;

/// An additional invariant of the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Nothing.
    None,
    /// The first so many slots of the first page of every node are accounts, with [`BALANCE`] each at first (bank).
    Bank(u16),
    /// The first [`RING_SLOTS`] slots of the first page of every node are a ring (cycle).
    Ring,
    /// A slow or dead member causes no waits and no refusals (solo commit).
    Solo,
}

impl Plan {
    /// The number of bricks in the group of a logical node; 0 if nodes are served by single bricks.
    #[must_use]
    pub fn replicas(&self) -> usize {
        match self.cluster.topology {
            Topology::Replicated => 2 + usize::from(self.seed % 4 == 3),
            _ => 0,
        }
    }

    /// Whether logical nodes move.
    #[must_use]
    pub fn has_moves(&self) -> bool {
        let is_move = |action: &Action| matches!(action, Action::Move(..));
        self.cluster.topology.allows_moves() && self.actions.iter().any(|(_, action)| is_move(action))
    }

    /// Whether cuts are taken: of clusters with disks whose logs can be held.
    #[must_use]
    pub fn has_cuts(&self) -> bool {
        let Cluster { bare, rows_at_once, .. } = self.cluster;
        let is_cut = |action: &Action| matches!(action, Action::Backup(_));
        self.replicas() == 0
            && !bare
            && !rows_at_once
            && !self.replaces_members()
            && self.actions.iter().any(|(_, action)| is_cut(action))
    }

    /// Whether pages of B-trees are damaged.
    #[must_use]
    pub fn has_damage(&self) -> bool {
        self.actions.iter().any(|(_, action)| matches!(action, Action::Damage(..)))
    }

    /// Whether fields are removed from classes, or members from sets: what was read of them cannot be told from what is left.
    #[must_use]
    pub fn replaces_members(&self) -> bool {
        self.actions.iter().any(|(_, action)| match action {
            Action::ChangeClass(_) => true,
            Action::Do(_, operation) => {
                operation.steps().iter().any(|step| matches!(step, Step::Replace(_) | Step::Reuse(_)))
            }
            _ => false,
        })
    }

    /// Whether clients below peer servers have users, by a catalogue that changes.
    #[must_use]
    pub fn has_users(&self) -> bool {
        let is_change = |action: &Action| matches!(action, Action::Permit(..) | Action::SetPolicy(_));
        self.cluster.topology.has_users()
            && !self.cluster.bare
            && self.actions.iter().any(|(_, action)| is_change(action))
    }

    /// Whether fields are added to classes or changed, so that clients read and write members by their programs.
    #[must_use]
    pub fn has_added_fields(&self) -> bool {
        !self.cluster.bare
            && self.replicas() == 0
            && self.actions.iter().any(|(_, action)| matches!(action, Action::AddField(_) | Action::ChangeClass(_)))
    }

    /// Whether the plan contains faults.
    #[must_use]
    pub fn has_faults(&self) -> bool {
        let is_fault = |action: &Action| {
            !matches!(
                action,
                Action::Do(..)
                    | Action::Go(_)
                    | Action::Evict(..)
                    | Action::Install(_)
                    | Action::Reindex(_)
                    | Action::Evolve(_)
                    | Action::AddField(_)
                    | Action::ChangeClass(_)
                    | Action::Upgrade(_)
                    | Action::Backup(_)
                    | Action::Wait(_)
            )
        };
        self.actions.iter().any(|(_, action)| is_fault(action))
    }
}
