//! Which bricks serve a logical node, and from when on.
//!
//! Identifiers name *logical* nodes. The [`GroupMap`] says which group of bricks serves each of them, one or several that hold
//! the same. The meta-server keeps it and changes it: its [`decider`] is the only one that begins an *epoch*. So objects move
//! while their identifiers stay (the run-time re-mapping of ADHOC, section 3). Elements of ordered collections are placed
//! over several logical nodes by [`spread`].
//!
//! **M1** (section 5 of the design), in parts:
//!
//! 1. A group changes only by a new epoch, and epochs of a node follow each other: each is made from the last one.
//! 2. A new epoch begins only when the leases of all whom it drops have run out at the meta-server's count, or they are
//!    known to have restarted: a restarted process takes part in no epoch of its life before. So whoever is dropped has
//!    stopped to answer before others go on without it.
//! 3. Its first member is one that holds all that was ever told durable. Those are the members of the last epoch, without
//!    those that came in with an epoch which has not *started* yet: an epoch has started when all its members hold all that
//!    its first member had at its beginning.
//! 4. Who comes back discards its tail and copies, and is named by an epoch when it has almost all. It counts as a holder
//!    when that epoch has started.
//! 5. A move seals the group first. When the new members hold all of it, the first of the old ones refuses for ever, says
//!    so, and only then an epoch names the new ones, with one more move.
//! 6. A lease counts only for one who knows all that the meta-server had decided when it granted it. Otherwise one that was
//!    dropped and comes back would go on in its old epoch.
//! 7. Changes that could wait (joining, moving) begin only when the last epoch has started: so there is never more than one
//!    under way at a node.
//!
//! ```text
//!               all wanted have copied          all of it is handed over
//!   Serving ──▶ Moving ───────────────▶ Sealed ─────────────────────────▶ Serving, at others, moves + 1
//!      ▲   remap   ▲                       │
//!   create         └───────────────────────┘ somebody was lost meanwhile
//! ```
//!
//! A request carries the epoch of the node's group as its sender knows it. Who refuses one says why ([`NotServing`]), and by that
//! what to do about it ([`Remedy`]).

use std::collections::BTreeMap;
use std::fmt;

use model::NodeId;

use crate::lease::Ms;

pub mod decider;
pub mod member;
pub mod spread;

/// Counts the changes of the map. A group has the epoch of the change that made it.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// A brick, with its store: one that has lost its store comes back under another number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u32);

/// Counts the starts of a brick: the number of each process is larger than that of the one before.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// A member of a group: a brick from one start to the next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupMember {
    /// The brick.
    pub id: MemberId,
    /// The only process of it that belongs to the epoch (M1.2).
    pub incarnation: Incarnation,
}

/// What a group is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It serves; who is wanted and not a member copies, and then joins.
    Serving,
    /// It serves; who is wanted copies, and will then take over.
    Moving,
    /// It takes nothing new, and hands over.
    Sealed,
}

/// Who serves a logical node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// When it began.
    pub epoch: Epoch,
    /// The members. The first of them validates, orders and logs; all of them serve reads.
    pub members: Vec<GroupMember>,
    /// How often the logical node has moved: part of its versions.
    pub moves: u32,
    /// What it is doing.
    pub phase: Phase,
    /// Who shall serve the node in the end.
    pub wanted: Vec<MemberId>,
}

impl Group {
    /// Who validates, orders and logs; nobody before the first epoch.
    #[must_use]
    pub fn first(&self) -> Option<GroupMember> {
        self.members.first().copied()
    }

    /// The seat of a brick, if it has one.
    #[must_use]
    pub fn member(&self, id: MemberId) -> Option<GroupMember> {
        self.members.iter().find(|seat| seat.id == id).copied()
    }

    /// Those who are wanted and have no seat: they copy.
    pub fn joining(&self) -> impl Iterator<Item = MemberId> {
        self.wanted.iter().copied().filter(|id| self.member(*id).is_none())
    }
}

/// Which group serves each logical node, as far as somebody knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMap {
    /// All that was decided up to here is in it; some of what came later may be.
    epoch: Epoch,
    nodes: BTreeMap<NodeId, Group>,
}

impl GroupMap {
    /// Up to where it is complete.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The group that serves a node.
    #[must_use]
    pub fn lookup(&self, node: NodeId) -> Option<&Group> {
        self.nodes.get(&node)
    }

    /// How often a node has moved.
    #[must_use]
    pub fn moves(&self, node: NodeId) -> u32 {
        self.nodes.get(&node).map_or(0, |group| group.moves)
    }

    /// All nodes with their groups.
    pub fn groups(&self) -> impl Iterator<Item = (NodeId, &Group)> {
        self.nodes.iter().map(|(node, group)| (*node, group))
    }

    /// Learns of a group. Says whether that is news: messages may come late and twice.
    pub fn learn(&mut self, node: NodeId, group: &Group) -> bool {
        let is_news = self.nodes.get(&node).is_none_or(|known| known.epoch < group.epoch);
        if is_news {
            self.nodes.insert(node, group.clone());
        }
        is_news
    }

    /// It has all that was decided up to here.
    pub fn set_complete(&mut self, epoch: Epoch) {
        self.epoch = self.epoch.max(epoch);
    }

    /// What was decided after an epoch.
    #[must_use]
    pub fn changes_since(&self, epoch: Epoch) -> Vec<(NodeId, Group)> {
        self.groups().filter(|(_, group)| group.epoch > epoch).map(|(node, group)| (node, group.clone())).collect()
    }
}

/// Why a brick does not serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotServing {
    /// Whoever asks has an older map: this epoch has begun meanwhile.
    StaleRequester(Epoch),
    /// The brick has an older map than whoever asks.
    StaleBrick,
    /// By its map the brick does not do what it is asked for.
    Elsewhere,
    /// The brick's lease has run out: others may serve the node by now.
    LeaseExpired,
    /// The epoch has not started yet.
    Starting,
    /// The node is about to move.
    Sealed,
}

/// What to do about a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Fetch the map from the meta-server, then ask whom it names.
    Fetch,
    /// Ask again in a while; fetch the map if that does not help.
    Wait,
}

impl NotServing {
    /// What whoever asked should do.
    #[must_use]
    pub const fn remedy(self) -> Remedy {
        match self {
            Self::StaleRequester(_) | Self::Elsewhere => Remedy::Fetch,
            Self::StaleBrick | Self::LeaseExpired | Self::Starting | Self::Sealed => Remedy::Wait,
        }
    }
}

/// What bricks say to the meta-server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaRequest {
    /// This process lives, and wants a lease.
    Renew {
        /// Which start of the brick it is.
        incarnation: Incarnation,
        /// When this was sent, by the brick's clock: the lease counts from then.
        asked: Ms,
        /// Up to where its map is complete.
        epoch: Epoch,
    },
    /// Something about a group, from its first member.
    Report {
        /// The logical node.
        node: NodeId,
        /// The epoch in which it is so.
        epoch: Epoch,
        /// What is so.
        report: GroupReport,
    },
}

/// What the first member of a group says to the meta-server, again and again until something comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupReport {
    /// The epoch has started: all members hold all that there was at its beginning.
    Started,
    /// One who is wanted has almost all.
    CaughtUp(GroupMember),
    /// All who are wanted hold all that there is and, as the group is sealed, will ever be; all members know that it is
    /// sealed. Nobody here answers anything any more.
    HandedOver,
}

/// What the meta-server says to bricks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaNotice {
    /// A lease.
    Granted {
        /// To whom.
        incarnation: Incarnation,
        /// When that asked for it, by its own clock.
        asked: Ms,
        /// For how long from then.
        lease_ms: u64,
        /// Up to where the news are complete: the lease counts only with them (M1.6).
        epoch: Epoch,
        /// All groups that are newer than what the brick knew.
        news: Vec<(NodeId, Group)>,
    },
    /// A new epoch of a node.
    Changed(NodeId, Group),
    /// It was heard that this epoch has started.
    StartAcknowledged(NodeId, Epoch),
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}", self.0)
    }
}

impl fmt::Debug for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}", self.0)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Debug for GroupMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{:?}", self.id, self.incarnation)
    }
}
