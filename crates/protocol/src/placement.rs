//! Replica groups: which bricks serve a logical node together, and from which epoch on.
//!
//! The [`GroupMap`] assigns each logical node to a group of one or more bricks with the same state. Only the
//! [`decider`] of the meta-server changes the map and begins *epochs*. Nothing drives groups in a process yet; a node
//! that one brick serves is placed, and moves, by the catalogue and the bricks (the run-time re-mapping of ADHOC,
//! section 3). [`spread`] places the elements of ordered collections over several logical nodes.
//!
//! **M1**, in parts:
//!
//! 1. A group changes only by a new epoch, and each epoch of a node is derived from the previous one.
//! 2. A new epoch begins only when the leases of all dropped members have ended by the meta-server's clock, or these
//!    members are known to have restarted: a restarted process takes part in no earlier epoch. So a dropped member has
//!    stopped answering before the others continue.
//! 3. Its first member holds everything that was ever reported durable. These are the members of the last epoch, except
//!    those that joined in an epoch that has not *started*: an epoch has started when all its members hold everything
//!    that its first member had at its beginning.
//! 4. A returning member discards its tail and copies; an epoch names it when it has almost everything. It counts as a
//!    holder when that epoch has started.
//! 5. A lease is valid only for a member that knows everything that the meta-server had decided when it granted the
//!    lease. Otherwise a dropped member that returns would continue in its old epoch.
//! 6. A brick joins only when the last epoch has started: so a node has at most one change under way.
//!
//! A request carries the epoch of the node's group that its sender knows. A refusal contains the reason
//! ([`NotServing`]), which determines the remedy ([`Remedy`]).

use std::collections::BTreeMap;
use std::fmt;

use model::NodeId;

use crate::lease::Ms;

pub mod decider;
pub mod member;
pub mod spread;

/// The number of a change of the map. A group has the epoch of the change that created it.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// A brick with its store: after the loss of its store it has another number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u32);

/// The number of a start of a brick, larger than that of each earlier start.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// A member of a group: a brick from one start to the next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupMember {
    /// The brick.
    pub id: MemberId,
    /// Its only process that belongs to the epoch (M1.2).
    pub incarnation: Incarnation,
}

/// The group that serves a logical node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The epoch in which it began.
    pub epoch: Epoch,
    /// The members. The first of them validates, orders and logs; all of them serve reads.
    pub members: Vec<GroupMember>,
    /// The bricks that will serve the node.
    pub wanted: Vec<MemberId>,
}

impl Group {
    /// The member that validates, orders and logs; `None` before the first epoch.
    #[must_use]
    pub fn first(&self) -> Option<GroupMember> {
        self.members.first().copied()
    }

    /// The membership of a brick, if it is a member.
    #[must_use]
    pub fn member(&self, id: MemberId) -> Option<GroupMember> {
        self.members.iter().find(|seat| seat.id == id).copied()
    }

    /// Wanted bricks that are not members: they copy.
    pub fn joining(&self) -> impl Iterator<Item = MemberId> {
        self.wanted.iter().copied().filter(|id| self.member(*id).is_none())
    }
}

/// The known groups of logical nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMap {
    /// The map contains all changes up to this epoch, and perhaps some later ones.
    epoch: Epoch,
    nodes: BTreeMap<NodeId, Group>,
}

impl GroupMap {
    /// The epoch up to which it is complete.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The group that serves a node.
    #[must_use]
    pub fn lookup(&self, node: NodeId) -> Option<&Group> {
        self.nodes.get(&node)
    }

    /// All nodes with their groups.
    pub fn groups(&self) -> impl Iterator<Item = (NodeId, &Group)> {
        self.nodes.iter().map(|(node, group)| (*node, group))
    }

    /// Learns a group. Returns whether it is new: messages may be late or repeated.
    pub fn learn(&mut self, node: NodeId, group: &Group) -> bool {
        let is_news = self.nodes.get(&node).is_none_or(|known| known.epoch < group.epoch);
        if is_news {
            self.nodes.insert(node, group.clone());
        }
        is_news
    }

    /// Marks the map as complete up to an epoch.
    pub fn set_complete(&mut self, epoch: Epoch) {
        self.epoch = self.epoch.max(epoch);
    }

    /// The changes after an epoch.
    #[must_use]
    pub fn changes_since(&self, epoch: Epoch) -> Vec<(NodeId, Group)> {
        self.groups().filter(|(_, group)| group.epoch > epoch).map(|(node, group)| (node, group.clone())).collect()
    }
}

/// Why a brick does not serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotServing {
    /// The sender has an older map: this epoch has begun meanwhile.
    StaleRequester(Epoch),
    /// The brick has an older map than the sender.
    StaleBrick,
    /// By its map the brick does not serve this request.
    Elsewhere,
    /// The brick's lease has ended: others may serve the node now.
    LeaseExpired,
    /// The epoch has not started yet.
    Starting,
}

/// What to do about a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Fetch the map from the meta-server and ask the brick that it names.
    Fetch,
    /// Repeat the request later; fetch the map if that fails.
    Wait,
}

impl NotServing {
    /// What the sender should do.
    #[must_use]
    pub const fn remedy(self) -> Remedy {
        match self {
            Self::StaleRequester(_) | Self::Elsewhere => Remedy::Fetch,
            Self::StaleBrick | Self::LeaseExpired | Self::Starting => Remedy::Wait,
        }
    }
}

/// A message from a brick to the meta-server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaRequest {
    /// Requests a lease.
    Renew {
        /// The start of the brick.
        incarnation: Incarnation,
        /// When this was sent, by the brick's clock; the lease counts from then.
        asked: Ms,
        /// The epoch up to which its map is complete.
        epoch: Epoch,
    },
    /// A report of a group's first member.
    Report {
        /// The logical node.
        node: NodeId,
        /// The epoch of the report.
        epoch: Epoch,
        /// The report.
        report: GroupReport,
    },
}

/// A report of the first member of a group, which is repeated until it has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupReport {
    /// The epoch has started: all members hold everything that existed at its beginning.
    Started,
    /// A wanted brick has almost everything.
    CaughtUp(GroupMember),
}

/// A message from the meta-server to a brick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaNotice {
    /// A lease.
    Granted {
        /// The start of the brick that gets the lease.
        incarnation: Incarnation,
        /// The time of the request, by the brick's clock.
        asked: Ms,
        /// The length from then, in milliseconds.
        lease_ms: u64,
        /// The epoch up to which `news` is complete: the lease is valid only with it (M1.5).
        epoch: Epoch,
        /// All groups that are newer than what the brick knew.
        news: Vec<(NodeId, Group)>,
    },
    /// A new epoch of a node.
    Changed(NodeId, Group),
    /// The meta-server knows that this epoch has started.
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
