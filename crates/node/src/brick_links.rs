//! Connections to bricks, which are made again when they break.
//!
//! A brick that is killed closes its connection. One that hangs does not, so liveness is checked once a second
//! ([`BrickLinks::check_liveness`]): a brick that has been silent for a while is pinged, and counts as unresponsive if
//! nothing is received from it in time. It may soon work again, so its connection is kept for some more seconds. Then
//! it is closed, which fails the calls that wait for answers, and made again.
//!
//! A connection is one with an opening of the brick (rule K3). When a later opening becomes known, nothing that arrives on the
//! connection is believed any more, and it is closed. Answers say how far the log of the brick is forced; this process notes that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use meta::opening::{ForcedPosition, Opening, Subject, Witnesses};
use model::{Error, ErrorKind, Result};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tracing::{debug, info, warn};
use wire::cluster::Message;
use wire::connector::{ConnectPolicy, Connector};
use wire::handshake::Role;
use wire::link::{self, Answer, Caller, DeferredResponder, Incoming, Limits, Link, Mailbox, Responder, Service};
use wire::proto;
use wire::proto::cluster;
use wire::proto::request::Request;
use wire::transport::{Address, Stream};

use crate::auth::ClusterCredentials;
use crate::node_placement::BrickId;
use crate::openings::{WitnessTable, opening_of, witnessed_from_proto, witnessed_to_proto};
use wire::driving::PeerHandle;
use wire::tasks;

/// Bytes of unanswered calls on one connection; further calls wait.
const BUDGET: usize = 64 << 20;
/// How a brick is connected to again.
const CONNECT_POLICY: ConnectPolicy = ConnectPolicy {
    attempt_timeout: Duration::from_secs(5),
    min_backoff: Duration::from_millis(10),
    max_backoff: Duration::from_secs(1),
};
/// Checks in which nothing was received from a brick before it is pinged. Renewals of leases are usually more frequent.
const PING_AFTER_TICKS: u32 = 4;
/// Checks after a ping without an answer before a brick counts as unresponsive.
const UNRESPONSIVE_AFTER_TICKS: u32 = 3;
/// Checks after a ping without an answer before the connection is closed.
const DISCONNECT_AFTER_TICKS: u32 = 15;

/// Handles what happens on connections to bricks.
pub(crate) trait BrickLinkHandler: Send + Sync + 'static {
    /// There is a connection to a brick.
    fn on_connected(&self, brick: BrickId);

    /// Handles messages of a brick, in order.
    ///
    /// # Errors
    /// If a brick does not send such a message: those behind it are not handled, and the connection is closed.
    fn handle_messages(&self, brick: BrickId, messages: impl Iterator<Item = Message>) -> Result<()>;

    /// The connection to a brick has ended.
    fn on_disconnected(&self, brick: BrickId);
}

/// An open connection.
struct Connection {
    handle: PeerHandle,
    caller: Caller,
    mailbox: Arc<Mailbox>,
    /// Checks since something was received.
    ticks_since_message: u32,
    /// Checks since the last ping, if nothing was received since.
    ticks_since_ping: Option<u32>,
    belief: Arc<LinkBelief>,
}

/// Whether what arrives on a connection is believed, and what it says of the log of the brick.
#[derive(Default)]
struct LinkBelief {
    /// The opening of the brick; `None` without a catalogue.
    opening: Option<Opening>,
    /// The highest forced position.
    forced: AtomicU64,
    /// Whether a later opening is known. Held while a message is handled: no message takes effect after this was set.
    is_superseded: Mutex<bool>,
}

impl LinkBelief {
    fn new(opening: Option<ForcedPosition>) -> Arc<Self> {
        let forced = AtomicU64::new(opening.map_or(0, |forced| forced.position));
        Arc::new(Self { opening: opening.map(|forced| forced.opening), forced, is_superseded: Mutex::default() })
    }

    /// Held while a message is handled; `None` if the message must not be believed.
    fn believe(&self) -> Option<MutexGuard<'_, bool>> {
        // A flag is consistent between any two statements.
        let guard = self.is_superseded.lock().unwrap_or_else(PoisonError::into_inner);
        (!*guard).then_some(guard)
    }

    fn supersede(&self) {
        *self.is_superseded.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    fn forced_position(&self) -> Option<ForcedPosition> {
        let position = self.forced.load(Ordering::Relaxed);
        self.opening.map(|opening| ForcedPosition { opening, position })
    }
}

impl Connection {
    /// Counts one check.
    fn count_tick(&mut self) {
        if self.mailbox.take_activity() {
            (self.ticks_since_message, self.ticks_since_ping) = (0, None);
        } else {
            (self.ticks_since_message, self.ticks_since_ping) = (
                self.ticks_since_message.saturating_add(1),
                self.ticks_since_ping.map(|looks| looks.saturating_add(1)),
            );
        }
    }

    /// Pings the brick.
    fn send_ping(&mut self) {
        self.ticks_since_ping = Some(0);
        // Any answer will do.
        self.caller.ask(Request::Ping(proto::Ping {}), drop);
    }

    fn has_timed_out(&self) -> bool {
        self.ticks_since_ping.is_some_and(|looks| looks >= DISCONNECT_AFTER_TICKS)
    }

    fn is_responsive(&self) -> bool {
        self.mailbox.has_activity() || self.ticks_since_ping.is_none_or(|looks| looks < UNRESPONSIVE_AFTER_TICKS)
    }
}

struct BrickLink {
    address: Address,
    task: AbortHandle,
    connection: Option<Connection>,
}

/// The connections to bricks.
pub(crate) struct BrickLinks {
    membership: ClusterCredentials,
    witnesses: Arc<WitnessTable>,
    links: Mutex<BTreeMap<BrickId, BrickLink>>,
    /// What all connected bricks were told of other logs.
    shared: Mutex<Witnesses>,
}

impl BrickLinks {
    /// No connections yet. This process introduces itself to bricks with `membership`, and notes in `witnesses` what it sees of their logs.
    pub(crate) fn new(membership: ClusterCredentials, witnesses: Arc<WitnessTable>) -> Arc<Self> {
        Arc::new(Self { membership, witnesses, links: Mutex::default(), shared: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<BrickId, BrickLink>> {
        // The map is consistent between any two statements, so a panic elsewhere does no harm.
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps connections to these bricks, and to no others. Call it on the runtime that is to drive them.
    pub(crate) fn set_bricks(
        self: &Arc<Self>,
        bricks: &BTreeMap<BrickId, Address>,
        below: &Arc<impl BrickLinkHandler>,
    ) {
        let mut gone = Vec::new();
        self.lock().retain(|brick, link| {
            let same = bricks.get(brick) == Some(&link.address);
            if !same {
                link.task.abort();
                if let Some(up) = link.connection.take() {
                    up.handle.hang_up();
                }
                gone.push(*brick);
            }
            same
        });
        gone.into_iter().for_each(|brick| below.on_disconnected(brick));
        let mut links = self.lock();
        for (brick, address) in bricks {
            links.entry(*brick).or_insert_with(|| {
                let (uplinks, below) = (self.clone(), Arc::downgrade(below));
                let task = tasks::spawn(maintain_connection(uplinks, *brick, address.clone(), below)).abort_handle();
                BrickLink { address: address.clone(), task, connection: None }
            });
        }
    }

    /// A handle of the connection to a brick, if it is open.
    pub(crate) fn handle_to(&self, brick: BrickId) -> Option<PeerHandle> {
        self.lock().get(&brick)?.connection.as_ref().map(|up| up.handle.clone())
    }

    /// Checks which bricks have sent something; to be called once a second. The brick that has been silent the longest
    /// is pinged, and so are `doubted` ones that are silent.
    pub(crate) fn check_liveness(&self, doubted: &BTreeSet<BrickId>) {
        let mut links = self.lock();
        let mut quiet: Vec<(BrickId, &mut Connection)> =
            links.iter_mut().filter_map(|(brick, link)| Some((*brick, link.connection.as_mut()?))).collect();
        quiet.iter_mut().for_each(|(_, up)| up.count_tick());
        quiet.iter().filter(|(_, up)| up.has_timed_out()).for_each(|(_, up)| up.handle.hang_up());
        quiet.retain(|(_, up)| up.ticks_since_message > 0 && up.ticks_since_ping.is_none());
        let quietest = quiet
            .iter()
            .filter(|(_, up)| up.ticks_since_message >= PING_AFTER_TICKS)
            .max_by_key(|(_, up)| up.ticks_since_message)
            .map(|(brick, _)| *brick);
        for (brick, up) in quiet {
            if Some(brick) == quietest || doubted.contains(&brick) {
                up.send_ping();
            }
        }
    }

    /// Whether there is a connection to a brick, and the brick answers pings.
    pub(crate) fn is_responsive(&self, brick: BrickId) -> bool {
        self.lock().get(&brick).and_then(|link| link.connection.as_ref()).is_some_and(Connection::is_responsive)
    }

    /// Whether nothing was received from a brick in the last second, or there is no connection to it.
    pub(crate) fn is_silent(&self, brick: BrickId) -> bool {
        let is_silent = |up: &Connection| up.ticks_since_message > 0 && !up.mailbox.has_activity();
        self.lock().get(&brick).and_then(|link| link.connection.as_ref()).is_none_or(is_silent)
    }

    /// Sends a request to a brick. `then` is called with the answer on the thread of the connection.
    pub(crate) fn ask(&self, brick: BrickId, request: Request, then: impl FnOnce(Result<Answer>) + Send + 'static) {
        let belief = self.lock().get(&brick).and_then(|link| Some(link.connection.as_ref()?.belief.clone()));
        match (self.caller(brick), belief) {
            (Ok(caller), Some(belief)) => caller.ask(request, move |answer| match belief.believe() {
                Some(_believed) => then(answer.and_then(Answer::check)),
                None => then(Err(superseded_error(brick))),
            }),
            (Ok(_), None) => then(Err(superseded_error(brick))),
            (Err(error), _) => then(Err(error)),
        }
    }

    /// Forwards a request to a brick, and its answer back. The receiver checks the bytes.
    pub(crate) fn forward(&self, brick: BrickId, request: Request, raw: Vec<Bytes>, deferred: DeferredResponder) {
        match self.caller(brick) {
            Ok(caller) => caller.forward(request, raw, deferred),
            Err(error) => deferred.fail(&error),
        }
    }

    fn caller(&self, brick: BrickId) -> Result<Caller> {
        let links = self.lock();
        let link = links.get(&brick);
        if let Some(up) = link.and_then(|link| link.connection.as_ref()) {
            return Ok(up.caller.clone());
        }
        let at = link.map(|link| format!(" ({})", link.address)).unwrap_or_default();
        let what = format!("brick {}{at} cannot be reached now: try again", brick.0);
        Err(Error::new(ErrorKind::Unavailable, what))
    }

    /// Sends a request to a brick, and waits for its answer.
    ///
    /// # Errors
    /// The error that the brick answers; [`ErrorKind::Unavailable`] if the request was not sent; [`ErrorKind::Unknown`] if the
    /// connection ends before the answer.
    pub(crate) async fn call(&self, brick: BrickId, request: Request) -> Result<Answer> {
        let (tell, answer) = oneshot::channel();
        // The caller may have given up.
        self.ask(brick, request, |answer| drop(tell.send(answer)));
        let lost = |_| Error::new(ErrorKind::Unknown, format!("brick {} has not answered", brick.0));
        answer.await.map_err(lost)?
    }

    fn set_connection(&self, brick: BrickId, up: Option<Connection>) {
        if let Some(link) = self.lock().get_mut(&brick) {
            let before = std::mem::replace(&mut link.connection, up);
            if let Some(forced) = before.and_then(|before| before.belief.forced_position()) {
                self.witnesses.note(Subject::Brick(brick.0), forced);
            }
        }
    }

    /// Notes how far the logs of the connected bricks are forced.
    pub(crate) fn note_positions(&self) {
        for (brick, link) in &*self.lock() {
            if let Some(forced) = link.connection.as_ref().and_then(|up| up.belief.forced_position()) {
                self.witnesses.note(Subject::Brick(brick.0), forced);
            }
        }
    }

    /// Closes the connections with openings of bricks that are superseded by ones that are known now. Nothing that they bring is
    /// believed when this has returned.
    pub(crate) fn close_superseded(&self) {
        let connections: Vec<_> = self
            .lock()
            .iter()
            .filter_map(|(brick, link)| {
                let up = link.connection.as_ref()?;
                Some((*brick, up.belief.clone(), up.handle.clone()))
            })
            .collect();
        for (brick, belief, handle) in connections {
            if belief.opening.is_some_and(|opening| !self.witnesses.believes(brick.0, opening)) {
                warn!(
                    brick = brick.0,
                    "a later opening of this brick is known; the connection to the earlier one is closed"
                );
                belief.supersede();
                handle.hang_up();
            }
        }
    }

    /// Answers another process that asks what this one saw of a brick's log, and notes the opening that the brick has claimed.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if a claim names no opening.
    pub(crate) fn answer_witness(&self, asked: &cluster::AskWitness) -> Result<cluster::Witnesses> {
        let subject = if asked.brick == 0 { Subject::Catalogue } else { Subject::Brick(asked.brick) };
        if let Some(claimed) = asked.claimed.as_ref().filter(|_| asked.brick != 0) {
            self.witnesses.note_claim(subject, opening_of(claimed)?);
            self.close_superseded();
        }
        self.note_positions();
        Ok(cluster::Witnesses { seen: self.witnesses.witnessed_positions(subject), transactions: None })
    }

    /// Tells the connected bricks what this process saw and has not told yet.
    pub(crate) fn share_witnesses(&self) {
        self.note_positions();
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let news = self.witnesses.news_since(&shared);
        if news.seen.is_empty() {
            return;
        }
        *shared = self.witnesses.snapshot();
        for link in self.lock().values() {
            if let Some(up) = &link.connection {
                up.handle.send_request(Request::Witnesses(news.clone()));
            }
        }
    }
}

/// Keeps one connection.
async fn maintain_connection<B: BrickLinkHandler>(
    uplinks: Arc<BrickLinks>,
    brick: BrickId,
    address: Address,
    below: Weak<B>,
) {
    let mut connector = Connector::new(vec![address.clone()], CONNECT_POLICY);
    let mut last_warning = None;
    while let Some(user) = below.upgrade() {
        match connector.attempt(|address| open(&uplinks, brick, address)).await {
            Ok((stream, max_frame, opening)) => {
                last_warning = None;
                let mailbox = Arc::new(Mailbox::for_transactions());
                let post = PeerHandle::new(mailbox.clone());
                let belief = LinkBelief::new(opening);
                let service =
                    BrickMessageService { brick, handler: below.clone(), handle: post.clone(), belief: belief.clone() };
                let link = Link::new(stream, service, Limits::default(), max_frame, mailbox.clone());
                let caller = Caller::new(mailbox.clone(), BUDGET);
                uplinks.set_connection(
                    brick,
                    Some(Connection {
                        handle: post.clone(),
                        caller,
                        mailbox,
                        ticks_since_message: 0,
                        ticks_since_ping: None,
                        belief,
                    }),
                );
                // A later opening may have become known since the handshake.
                uplinks.close_superseded();
                post.send_request(Request::Witnesses(uplinks.witnesses.news_since(&Witnesses::default())));
                info!(brick = brick.0, %address, "connected to a brick");
                user.on_connected(brick);
                drop(user);
                let end = link::drive(link).await;
                info!(brick = brick.0, %address, %end, "the connection to a brick ended");
                connector.on_disconnected();
                uplinks.set_connection(brick, None);
                if let Some(user) = below.upgrade() {
                    user.on_disconnected(brick);
                }
            }
            // Only an operator can resolve these; an unavailable brick may return.
            Err(error) if error.kind() != ErrorKind::Unavailable => {
                let message = error.to_string();
                if last_warning.as_ref() != Some(&message) {
                    warn!(brick = brick.0, %address, %error, "a brick cannot be connected to; check the addresses and the configuration of both");
                    last_warning = Some(message);
                }
            }
            Err(error) => debug!(brick = brick.0, %address, %error, "a brick cannot be reached"),
        }
        connector.pause().await;
    }
}

/// Connects to a brick, and checks that it is this one: another one may have been started at its address.
async fn open(uplinks: &BrickLinks, brick: BrickId, address: Address) -> Result<(Stream, u32, Option<ForcedPosition>)> {
    let subject = Subject::Brick(brick.0);
    // Other shards may see more during the handshake.
    let compared = uplinks.witnesses.of(subject);
    let witnessed = compared.iter().map(|seen| witnessed_to_proto(subject, *seen)).collect();
    let cluster = uplinks.witnesses.cluster();
    let (stream, terms) = uplinks.membership.dial(&address, Role::Peer, cluster, witnessed).await?;
    match terms.brick {
        found if found == brick.0 => {
            let Some(seen) = &terms.opening else { return Ok((stream, terms.max_frame, None)) };
            let forced = witnessed_from_proto(seen)?.1.forced;
            if !uplinks.witnesses.believes(brick.0, forced.opening) {
                return Err(superseded_error(brick));
            }
            uplinks.witnesses.note(subject, forced);
            // It has compared its log with all of that, and serves.
            uplinks.witnesses.drop_compared(subject, forced.opening, &compared);
            Ok((stream, terms.max_frame, Some(forced)))
        }
        0 => Err(Error::new(ErrorKind::Invalid, format!("the server at {address} is not a brick of a cluster"))),
        other => {
            let what =
                format!("brick {other} answers at {address}, where brick {} was: start that with its data", brick.0);
            Err(Error::new(ErrorKind::Invalid, what))
        }
    }
}

/// The error for what comes from an opening of a brick that is not believed.
fn superseded_error(brick: BrickId) -> Error {
    let what = format!("brick {} was opened again: what its earlier process answers does not count", brick.0);
    Error::new(ErrorKind::Unavailable, what)
}

/// Handles the messages of a brick.
struct BrickMessageService<B> {
    brick: BrickId,
    handler: Weak<B>,
    handle: PeerHandle,
    belief: Arc<LinkBelief>,
}

impl<B: BrickLinkHandler> Service for BrickMessageService<B> {
    fn on_request(&mut self, _: Incoming<'_>, reply: Responder<'_>) {
        reply.refuse(&Error::new(ErrorKind::Unsupported, "a brick sends no requests to those that connect to it"));
    }

    fn on_messages(&mut self, messages: impl Iterator<Item = Message>) -> Result<()> {
        let (Some(below), Some(_believed)) = (self.handler.upgrade(), self.belief.believe()) else {
            self.handle.hang_up();
            return Ok(());
        };
        let handled = below.handle_messages(self.brick, messages);
        handled.inspect_err(|error| warn!(brick = self.brick.0, %error, "a brick violates the protocol"))
    }

    fn on_forced(&mut self, position: u64) {
        if self.belief.believe().is_some() {
            self.belief.forced.fetch_max(position, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
