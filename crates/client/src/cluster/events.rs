//! What happens to the space of a client: bricks that fail and recover, the space that stops and goes on, peer servers lost.
//!
//! Peer servers tell how things *are*, all of it each time ([`SpaceStatus`]); what has *happened* follows from two of them. So
//! a client that goes on with another peer server misses nothing that still matters, and one that begins to watch is told
//! what is not well now.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use model::{Error, ErrorKind, FailurePolicy, NodeId, Result};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use wire::cluster::{BrickStatus, SpaceStatus};

use super::core::Core;

/// Events that are kept for somebody who does not read them.
const EVENT_BUFFER: usize = 256;

/// Something that has happened to the space of a client, as its peer server sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The client is connected to this peer server, and this is how things are. Where that is not what was told before, or not
    /// well, events of it follow.
    Connected {
        /// The peer server's address.
        peer: String,
        /// How things are.
        status: SpaceStatus,
    },
    /// The peer server is lost. The client connects to the next one of its URL.
    Disconnected {
        /// The peer server's address.
        peer: String,
        /// How the connection has ended.
        why: String,
    },
    /// No peer server lets the client in any more: it would have to say who it is, or its user was removed or disabled, has no
    /// permission left, or another password. It goes on trying.
    Refused {
        /// What the last one said, and what to do.
        why: String,
    },
    /// A brick cannot be reached any more: it has ended, hangs, or the network does not lead to it.
    BrickFailed(BrickStatus),
    /// A brick that had failed can be reached again, or has nothing of the space any more.
    BrickRecovered(BrickStatus),
    /// Everything in the space is refused ([`FailurePolicy::FailStop`]): why, since when, and what to do.
    Stopped {
        /// In words.
        why: String,
    },
    /// The space that was stopped goes on.
    Resumed,
    /// Somebody has changed what happens while a brick cannot be reached.
    PolicyChanged(FailurePolicy),
    /// A logical node is served by another brick now.
    NodeMoved {
        /// The logical node.
        node: NodeId,
        /// The brick.
        brick: u32,
        /// Since which epoch of the placement map.
        epoch: u64,
    },
    /// Classes or indexes have changed.
    SchemaChanged,
    /// So many events were not read in time, and are lost. How things are now follows, as for somebody who begins to watch.
    Missed(u64),
}

/// For people: one line.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { peer, status: standing } => {
                let (all, away) = (standing.bricks.len(), standing.unreachable().count());
                write!(f, "connected to peer server {peer}: {} of {all} bricks can be reached", all - away)?;
                write!(f, ", policy {}", standing.policy)
            }
            Self::Refused { why } => write!(f, "no peer server lets this client in: {why}"),
            Self::Disconnected { peer, why } => write!(f, "lost peer server {peer}: {why}"),
            Self::BrickFailed(brick) => {
                write!(f, "brick {} ({}) has failed, with logical nodes", brick.brick, brick.address)?;
                brick.nodes.iter().try_for_each(|(node, _)| write!(f, " {:x}", node.0))
            }
            Self::BrickRecovered(brick) => write!(f, "brick {} ({}) is back", brick.brick, brick.address),
            Self::Stopped { why } => f.write_str(why),
            Self::Resumed => f.write_str("the space goes on"),
            Self::PolicyChanged(policy) => write!(f, "the policy is {policy} now"),
            Self::NodeMoved { node, brick, epoch } => {
                write!(f, "logical node {:x} is at brick {brick} since epoch {epoch}", node.0)
            }
            Self::SchemaChanged => f.write_str("classes or indexes have changed"),
            Self::Missed(count) => write!(f, "{count} events were not read in time"),
        }
    }
}

/// The events of a client's space, as they happen: [`Cluster::events`](super::Cluster::events).
///
/// They come in order. Some hundreds are kept for a reader that is slow; then it is told how many it has
/// [missed](Event::Missed). Nobody waits for it.
#[derive(Debug)]
pub struct Events {
    core: Arc<Core>,
    /// How things were when it began, or began again.
    backlog: VecDeque<Event>,
    receiver: broadcast::Receiver<Event>,
}

impl Events {
    pub(super) fn new(core: Arc<Core>) -> Result<Self> {
        let (first, coming) = core.lock()?.monitor.subscribe();
        Ok(Self { core, backlog: first, receiver: coming })
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
                (self.backlog, self.receiver) = self.core.lock().ok()?.monitor.subscribe();
                Some(Event::Missed(missed))
            }
        }
    }
}

/// What a client knows of how things are in its space, and who is told.
#[derive(Debug)]
pub(super) struct SpaceMonitor {
    /// The peer server that the client is connected to.
    peer: Option<Arc<str>>,
    /// Whether it has told how things are.
    is_status_known: bool,
    /// How often something was asked because nobody had told yet.
    status_requests: u8,
    /// How things were when that was last told, perhaps by another one.
    status: Option<SpaceStatus>,
    /// Why no peer server lets the client in, if that is so.
    refused: Option<String>,
    /// Why everything in the space is refused, if that is so.
    stopped: watch::Sender<Option<Arc<str>>>,
    events: broadcast::Sender<Event>,
}

impl Default for SpaceMonitor {
    fn default() -> Self {
        let (stopped, events) = (watch::Sender::default(), broadcast::Sender::new(EVENT_BUFFER));
        Self { peer: None, is_status_known: false, status_requests: 0, status: None, refused: None, stopped, events }
    }
}

impl SpaceMonitor {
    /// How things are, as far as that was told.
    pub(super) fn status(&self) -> Option<&SpaceStatus> {
        self.status.as_ref()
    }

    /// Why everything in the space is refused, if and when that is so.
    pub(super) fn watch_stopped(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.stopped.subscribe()
    }

    /// Whether anything is done in the space.
    ///
    /// # Errors
    /// [`ErrorKind::Stopped`], with why and what to do.
    pub(super) fn check(&self) -> Result<()> {
        match &*self.stopped.borrow() {
            None => Ok(()),
            Some(why) => Err(Error::new(ErrorKind::Stopped, &**why)),
        }
    }

    /// Whether it is worth asking something because nobody has told how things are. What a peer server tells may come behind the
    /// answer to what was asked at the same time, but not behind what was asked after that; it may have nothing to tell.
    pub(super) fn needs_status(&mut self) -> bool {
        let wants = self.status.is_none() && self.status_requests < 2;
        self.status_requests += u8::from(wants);
        wants
    }

    /// Whether a brick cannot be reached.
    pub(super) fn has_unreachable_bricks(&self) -> bool {
        self.status.iter().flat_map(SpaceStatus::unreachable).next().is_some()
    }

    /// The logical nodes whose bricks cannot be reached.
    pub(super) fn unreachable_nodes(&self) -> BTreeSet<NodeId> {
        let away = self.status.iter().flat_map(SpaceStatus::unreachable);
        away.flat_map(|brick| brick.nodes.iter().map(|(node, _)| *node)).collect()
    }

    /// There is a connection to this peer server, which is going to tell how things are.
    pub(super) fn on_connected(&mut self, peer: Arc<str>) {
        (self.peer, self.is_status_known, self.refused) = (Some(peer), false, None);
    }

    /// No peer server lets the client in, for this reason.
    pub(super) fn on_refused(&mut self, why: &str) {
        if self.refused.as_deref() != Some(why) {
            self.refused = Some(why.to_owned());
            self.emit(Event::Refused { why: why.to_owned() });
        }
    }

    /// The connection is gone. What was so is taken to be so, until the next peer server tells.
    pub(super) fn on_disconnected(&mut self, why: &str) {
        if let Some(peer) = self.peer.take().filter(|_| std::mem::take(&mut self.is_status_known)) {
            self.emit(Event::Disconnected { peer: peer.to_string(), why: why.to_owned() });
        }
    }

    /// This is how things are.
    pub(super) fn update(&mut self, standing: SpaceStatus) {
        if let Some(peer) = self.peer.as_ref().filter(|_| !self.is_status_known) {
            self.emit(Event::Connected { peer: peer.to_string(), status: standing.clone() });
            self.is_status_known = true;
        }
        events_between(self.status.as_ref(), &standing).into_iter().for_each(|event| self.emit(event));
        self.stopped.send_replace(standing.why_stopped().map(Arc::from));
        self.status = Some(standing);
    }

    fn emit(&self, event: Event) {
        // There may be nobody who listens.
        let _ = self.events.send(event);
    }

    /// What somebody is told first who begins to watch, and what then.
    fn subscribe(&self) -> (VecDeque<Event>, broadcast::Receiver<Event>) {
        let mut first = VecDeque::new();
        if let (Some(peer), Some(standing), true) = (&self.peer, &self.status, self.is_status_known) {
            first.push_back(Event::Connected { peer: peer.to_string(), status: standing.clone() });
            first.extend(events_between(None, standing));
        }
        first.extend(self.refused.clone().map(|why| Event::Refused { why }));
        (first, self.events.subscribe())
    }

    /// Nothing more is told.
    pub(super) fn close(&mut self) {
        *self = Self::default();
    }
}

/// What has happened, if this is how things are; without a time before, what is not well.
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
                let (unreachable_since, nodes) = (None, Vec::new());
                events.push(Event::BrickRecovered(BrickStatus { unreachable_since, nodes, ..brick.clone() }));
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
    if was_schema != now.schema {
        events.push(Event::SchemaChanged);
    }
    events
}

/// Which brick serves each logical node, and since which epoch.
fn serving_bricks(standing: &SpaceStatus) -> BTreeMap<NodeId, (u32, u64)> {
    let of = |brick: &BrickStatus| -> Vec<(NodeId, (u32, u64))> {
        brick.nodes.iter().map(|(node, epoch)| (*node, (brick.brick, *epoch))).collect()
    };
    standing.bricks.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests;
