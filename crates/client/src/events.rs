//! Events of a client's space: bricks fail and recover, the space stops and resumes, peer servers are lost.
//!
//! A peer server sends the whole status of the space whenever it changes ([`SpaceStatus`]). The client derives events from two
//! successive statuses. So a client that connects to another peer server misses no change that still matters, and a new
//! subscriber learns first what is wrong now.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use model::{Error, ErrorKind, FailurePolicy, NodeId, Result};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use wire::cluster::{BrickStatus, SpaceStatus};

use super::client_core::Core;
use crate::plant::{Bug, planted};

/// Maximum events buffered for a subscriber.
pub(super) const EVENT_BUFFER: usize = 256;

/// A change of the space of a client, as its peer server sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The client is connected to this peer server, which has sent the status of the space. Events for what is wrong, or has
    /// changed since the last status, follow.
    Connected {
        /// The peer server's address.
        peer: String,
        /// The status of the space.
        status: SpaceStatus,
    },
    /// The connection to the peer server has ended. The client connects to another peer server of its URL.
    Disconnected {
        /// The peer server's address.
        peer: String,
        /// Why the connection has ended.
        why: String,
    },
    /// No peer server admits the client any more: it has to log in, or its user was removed or disabled, has no permission left,
    /// or has another password. The client keeps trying.
    Refused {
        /// The refusal, and what to do.
        why: String,
    },
    /// A brick cannot be reached any more: it has stopped, hangs, or is cut off by the network.
    BrickFailed(BrickStatus),
    /// A brick that had failed can be reached again, or no longer serves any part of the space.
    BrickRecovered(BrickStatus),
    /// Everything in the space is refused ([`FailurePolicy::FailStop`]).
    Stopped {
        /// Why, since when, and what to do.
        why: String,
    },
    /// The space is no longer stopped.
    Resumed,
    /// The failure policy of the space was changed.
    PolicyChanged(FailurePolicy),
    /// A logical node has moved to another brick.
    NodeMoved {
        /// The logical node.
        node: NodeId,
        /// The brick.
        brick: u32,
        /// The epoch of the placement map since when the brick serves it.
        epoch: u64,
    },
    /// A brick cannot serve a logical node because its rows are damaged: what needs it fails.
    NodeDamaged {
        /// The logical node.
        node: NodeId,
        /// The brick.
        brick: u32,
        /// What is damaged.
        damage: String,
    },
    /// A logical node that was damaged is served again.
    NodeRecovered {
        /// The logical node.
        node: NodeId,
        /// The brick.
        brick: u32,
    },
    /// Classes or indexes have changed.
    SchemaChanged,
    /// This many events were not read in time and are lost. The current status follows, as for a new subscriber.
    Missed(u64),
}

/// One line, for people.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { peer, status } => {
                let (all, away) = (status.bricks.len(), status.unreachable().count());
                write!(f, "connected to peer server {peer}: {} of {all} bricks can be reached", all - away)?;
                write!(f, ", policy {}", status.policy)
            }
            Self::Refused { why } => write!(f, "no peer server admits this client: {why}"),
            Self::Disconnected { peer, why } => write!(f, "lost peer server {peer}: {why}"),
            Self::BrickFailed(brick) => {
                write!(f, "brick {} ({}) has failed, with logical nodes", brick.brick, brick.address)?;
                brick.nodes.iter().try_for_each(|(node, _)| write!(f, " {:x}", node.0))
            }
            Self::BrickRecovered(brick) => write!(f, "brick {} ({}) is back", brick.brick, brick.address),
            Self::Stopped { why } => f.write_str(why),
            Self::Resumed => f.write_str("the space serves again"),
            Self::PolicyChanged(policy) => write!(f, "the policy is {policy} now"),
            Self::NodeMoved { node, brick, epoch } => {
                write!(f, "logical node {:x} is at brick {brick} since epoch {epoch}", node.0)
            }
            Self::NodeDamaged { node, brick, damage } => {
                write!(f, "logical node {:x} cannot be served by brick {brick}: {damage}", node.0)
            }
            Self::NodeRecovered { node, brick } => {
                write!(f, "logical node {:x} is served by brick {brick} again", node.0)
            }
            Self::SchemaChanged => f.write_str("classes or indexes have changed"),
            Self::Missed(count) => write!(f, "{count} events were not read in time"),
        }
    }
}

/// The events of a client's space, as they happen: [`Client::events`](super::Client::events).
///
/// Events arrive in order. The client buffers the last 256 events; a reader that falls further behind gets
/// [`Event::Missed`], and then the current status of the space.
#[derive(Debug)]
pub struct Events {
    core: Arc<Core>,
    /// The status when the reader subscribed, as events.
    backlog: VecDeque<Event>,
    receiver: broadcast::Receiver<Event>,
}

impl Events {
    pub(super) fn new(core: Arc<Core>) -> Result<Self> {
        let (backlog, receiver) = core.subscribe()?;
        Ok(Self { core, backlog, receiver })
    }

    /// The next event; `None` when the client was closed.
    pub async fn next(&mut self) -> Option<Event> {
        if let Some(first) = self.backlog.pop_front() {
            return Some(first);
        }
        match self.receiver.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Closed) => None,
            Err(RecvError::Lagged(missed)) => {
                let missed = missed + self.receiver.len() as u64;
                (self.backlog, self.receiver) = self.core.subscribe().ok()?;
                Some(Event::Missed(missed))
            }
        }
    }
}

/// What a client knows about the status of its space. It derives events from the differences.
#[derive(Debug, Default)]
pub(super) struct SpaceMonitor {
    /// The peer server that the client is connected to.
    peer: Option<Arc<str>>,
    /// Whether this peer server has sent the status.
    is_status_known: bool,
    /// Number of requests that were sent because no peer server had sent the status yet.
    status_requests: u8,
    /// The last status, perhaps of an earlier peer server.
    status: Option<SpaceStatus>,
    /// Why no peer server admits the client, if that is so.
    refused: Option<String>,
    /// Why everything in the space is refused, if that is so.
    stopped: Option<Arc<str>>,
    /// Events that nothing has taken yet.
    events: Vec<Event>,
}

impl SpaceMonitor {
    /// The last status that a peer server has sent.
    pub(super) fn status(&self) -> Option<&SpaceStatus> {
        self.status.as_ref()
    }

    /// The status that the peer server has sent to which the client is connected.
    pub(super) fn current_status(&self) -> Option<&SpaceStatus> {
        self.status.as_ref().filter(|_| self.is_status_known)
    }

    /// Takes the events that have happened.
    pub(super) fn events(&mut self) -> impl Iterator<Item = Event> {
        self.events.drain(..)
    }

    /// Why everything in the space is refused, if that is so.
    pub(super) fn why_stopped(&self) -> Option<Arc<str>> {
        self.stopped.clone()
    }

    /// Checks that the space is not stopped.
    ///
    /// # Errors
    /// [`ErrorKind::Stopped`], with the reason and what to do.
    pub(super) fn check(&self) -> Result<()> {
        match &self.stopped {
            Some(why) if !planted(Bug::StoppedSpaceServes) => Err(Error::new(ErrorKind::Stopped, &**why)),
            _ => Ok(()),
        }
    }

    /// Whether a request should be sent only to learn the status. The status that a peer server sends may follow the answer to a
    /// request of the same time, but not the answer to a request sent after that; a peer server may have no status to send.
    pub(super) fn needs_status(&mut self) -> bool {
        let wants = self.status.is_none() && self.status_requests < 2;
        self.status_requests += u8::from(wants);
        wants
    }

    /// Whether a brick of the space cannot be reached.
    pub(super) fn has_unreachable_bricks(&self) -> bool {
        self.status.iter().flat_map(SpaceStatus::unreachable).next().is_some()
    }

    /// The logical nodes whose bricks cannot be reached, or cannot serve them because their rows are damaged.
    pub(super) fn unavailable_nodes(&self) -> BTreeSet<NodeId> {
        let unreachable = self.status.iter().flat_map(SpaceStatus::unreachable);
        let unreachable = unreachable.flat_map(|brick| brick.nodes.iter().map(|(node, _)| *node));
        let damaged = self.status.iter().flat_map(SpaceStatus::damaged).map(|(_, node, _)| node);
        unreachable.chain(damaged).collect()
    }

    /// Handles a new connection to a peer server, which is going to send the status.
    pub(super) fn on_connected(&mut self, peer: Arc<str>) {
        (self.peer, self.is_status_known, self.refused) = (Some(peer), false, None);
    }

    /// Handles that no peer server admits the client.
    pub(super) fn on_refused(&mut self, why: &str) {
        if self.refused.as_deref() != Some(why) {
            self.refused = Some(why.to_owned());
            self.events.push(Event::Refused { why: why.to_owned() });
        }
    }

    /// Handles the end of the connection. The status stays as it was until the next peer server sends it.
    pub(super) fn on_disconnected(&mut self, why: &str) {
        if let Some(peer) = self.peer.take().filter(|_| std::mem::take(&mut self.is_status_known)) {
            self.events.push(Event::Disconnected { peer: peer.to_string(), why: why.to_owned() });
        }
        if planted(Bug::EventsLostOverReconnect) {
            self.status = None;
        }
    }

    /// Handles the status that the peer server has sent.
    pub(super) fn update(&mut self, status: SpaceStatus) {
        if let Some(peer) = self.peer.as_ref().filter(|_| !self.is_status_known) {
            self.events.push(Event::Connected { peer: peer.to_string(), status: status.clone() });
            self.is_status_known = true;
        }
        self.events.extend(events_between(self.status.as_ref(), &status));
        self.stopped = status.why_stopped().map(Arc::from);
        self.status = Some(status);
    }

    /// The events that tell a new subscriber the current status.
    pub(super) fn current_events(&self) -> VecDeque<Event> {
        let mut first = VecDeque::new();
        if let (Some(peer), Some(status), true) = (&self.peer, &self.status, self.is_status_known) {
            first.push_back(Event::Connected { peer: peer.to_string(), status: status.clone() });
            first.extend(events_between(None, status));
        }
        first.extend(self.refused.clone().map(|why| Event::Refused { why }));
        first
    }
}

/// The events between two statuses; without an earlier status, those for what is wrong now.
fn events_between(before: Option<&SpaceStatus>, now: &SpaceStatus) -> Vec<Event> {
    let mut events = Vec::new();
    let (was_policy, was_schema) = before.map_or((now.policy, now.schema), |before| (before.policy, before.schema));
    let was_away: BTreeMap<u32, &BrickStatus> =
        before.into_iter().flat_map(SpaceStatus::unreachable).map(|brick| (brick.brick, brick)).collect();
    if was_policy != now.policy {
        events.push(Event::PolicyChanged(now.policy));
    }
    let failed = now.unreachable().filter(|brick| !was_away.contains_key(&brick.brick));
    events.extend(failed.cloned().map(Event::BrickFailed));
    for (number, brick) in was_away {
        match now.bricks.iter().find(|brick| brick.brick == number) {
            Some(brick) if brick.unreachable_since.is_some() => {}
            Some(brick) => events.push(Event::BrickRecovered(brick.clone())),
            None => {
                let (unreachable_since, nodes, damaged) = (None, Vec::new(), Vec::new());
                let brick = BrickStatus { unreachable_since, nodes, damaged, ..brick.clone() };
                events.push(Event::BrickRecovered(brick));
            }
        }
    }
    match (before.and_then(SpaceStatus::why_stopped), now.why_stopped()) {
        (before, Some(why)) if before.as_ref() != Some(&why) => events.push(Event::Stopped { why }),
        (Some(_), None) => events.push(Event::Resumed),
        _ => {}
    }
    if let Some(before) = before {
        let was_at = serving_bricks(before);
        let moved = serving_bricks(now)
            .into_iter()
            .filter(|(node, (brick, _))| was_at.get(node).is_some_and(|(was_at, _)| was_at != brick));
        events.extend(moved.map(|(node, (brick, epoch))| Event::NodeMoved { node, brick, epoch }));
    }
    let was_damaged = |node| before.is_some_and(|before| before.damage_of(node).is_some());
    events.extend(
        now.damaged().filter(|(_, node, _)| !was_damaged(*node)).map(|(brick, node, damage)| Event::NodeDamaged {
            node,
            brick: brick.brick,
            damage: damage.to_owned(),
        }),
    );
    if let Some(before) = before {
        let unreachable: BTreeSet<u32> = now.unreachable().map(|brick| brick.brick).collect();
        let serving = serving_bricks(now);
        let is_served = |node| {
            let brick = serving.get(&node).copied()?;
            Some(brick).filter(|(brick, _)| now.damage_of(node).is_none() && !unreachable.contains(brick))
        };
        let recovered = before.damaged().filter_map(|(_, node, _)| Some((node, is_served(node)?)));
        events.extend(recovered.map(|(node, (brick, _))| Event::NodeRecovered { node, brick }));
    }
    if was_schema != now.schema {
        events.push(Event::SchemaChanged);
    }
    events
}

/// Which brick serves each logical node, and since which epoch.
fn serving_bricks(status: &SpaceStatus) -> BTreeMap<NodeId, (u32, u64)> {
    let of = |brick: &BrickStatus| -> Vec<(NodeId, (u32, u64))> {
        brick.nodes.iter().map(|(node, epoch)| (*node, (brick.brick, *epoch))).collect()
    };
    status.bricks.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests;
