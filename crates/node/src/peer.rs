//! The peer server: clients connect to any, and see one store (TODS, section 3).
//!
//! ```text
//!   clients ── Up, Call ──▶ ┌──────────────┐ ── Up, Ask ──▶ bricks
//!           ◀── Down, Reply │  cache node  │ ◀── Down, Answer
//!                           └──────────────┘
//! ```
//!
//! It drives one [`CacheNode`], which is coordinator and the middle of every cache tree. Messages are handled on the thread of
//! the connection that they came by; one task connects to the bricks of the map, and does what it is time for.

mod cache;
mod classes;
mod client_connection;
mod indexes;
mod moves;
mod outcome_counts;
mod query;
mod space_statuses;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use meta::Revision;
use meta::catalog::{Catalog, Permission};
use model::{Error, ErrorKind, NodeId, Object, Oid, Result, SpaceId};
use protocol::cache_node::{CacheNode, Output};
use protocol::ident::{ClientId, HolderId};
use protocol::lease::Ms;
use protocol::redirect::Helpers;
use tokio::sync::watch;
use tracing::debug;
use wire::cluster::Message;
use wire::driving::{DeadlineTimer, MonotonicClock, PeerHandle};
use wire::handshake::Terms;
use wire::link::{Answer, Mailbox};
use wire::proto;
use wire::proto::request::Request;
use wire::transport::Address;

use crate::auth::{ClusterCredentials, Principal};
use crate::brick::SKEW_MS;
use crate::brick_links::{BrickLinkHandler, BrickLinks};
use crate::cluster_view::{ClusterView, SpaceView, next_change};
use crate::node_placement::{BrickId, NodePlacement};
use crate::server::{self, Config, Metric, Server, ServerCounters, Thread};
use cache::{CachedObject, ObjectCache};
use client_connection::{Admission, ClientConnection};
use outcome_counts::OutcomeCounts;
use space_statuses::SpaceStatuses;

/// Session numbers that a start of a process has.
pub(crate) const SESSION_BITS: u32 = 20;
/// Bytes of objects that are cached.
const CACHE_BYTES: usize = 256 << 20;
/// How soon a tree that its brick did not serve is tried again, in milliseconds: at first, for its logical node may just have
/// moved, and at the latest.
const MIN_RETRY_MS: Ms = 20;
const MAX_RETRY_MS: Ms = 200;

/// A peer server that serves.
///
/// Dropped, it goes on serving until the process ends; [`PeerServer::shutdown`] ends it in good order.
pub struct PeerServer {
    server: Server<PeerRole>,
}

impl std::fmt::Debug for PeerServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerServer").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

impl PeerServer {
    /// Serves clients of the cluster that `realm` tells of. `start` is a number that no other process ever had.
    ///
    /// # Errors
    /// As [`Brick::start`](crate::Brick::start).
    pub async fn start(realm: Arc<ClusterView>, start: u64, config: Config) -> Result<Self> {
        let peer = PeerDriver::new(realm, start, config.cluster_credentials.clone());
        Ok(Self { server: Server::start(PeerRole { peer }, config).await? })
    }

    /// Where it listens, in the order asked for, with the ports that the system chose.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.server.addresses
    }

    /// Where `/metrics` and `/health` are, if anywhere.
    #[must_use]
    pub fn http(&self) -> Option<SocketAddr> {
        self.server.http
    }

    /// Ends it: takes no more connections, and answers what was asked.
    pub async fn shutdown(self) -> Result<()> {
        self.server.shutdown().await
    }
}

/// What all threads of a peer server share.
pub(crate) struct PeerRole {
    peer: Arc<PeerDriver>,
}

impl server::ServerRole for PeerRole {
    type Service = ClientConnection;
    type Local = ();
    type Admission = Admission;

    const NAME: &'static str = "peer server";

    fn catalog(&self) -> Option<Arc<Catalog>> {
        self.peer.cluster_view.catalog()
    }

    fn catalog_changes(&self) -> Option<watch::Receiver<Revision>> {
        self.peer.cluster_view.catalog_changes()
    }

    fn admit(&self, config: &Config, hello: &proto::Hello, who: &Principal) -> Result<(Terms, Self::Admission)> {
        let catalog = self.peer.cluster_view.load_catalog();
        let catalog = catalog.as_deref().map(|catalog| &**catalog);
        let space = match self.peer.cluster_view.space(&hello.space) {
            // What concerns the whole cluster is asked for in no space.
            _ if hello.space.is_empty() => {
                who.check(catalog)?;
                Arc::new(SpaceView { id: SpaceId(0), name: String::new(), nodes: Vec::new() })
            }
            // Which spaces there are is not everybody's business.
            Err(unknown) => {
                return Err(who
                    .check_administrator(catalog)
                    .err()
                    .map_or(unknown, |_| who.space_not_visible_error(&hello.space)));
            }
            Ok(space) => {
                who.check_permission(Permission::Read, catalog, &space.name)?;
                space
            }
        };
        let (max_frame, max_in_flight) = (config.limits.max_frame, config.limits.max_in_flight);
        let patience = Some(hello.catalog_timeout_ms).filter(|given| *given > 0);
        let patience = patience.map(|given| Duration::from_millis(given.into()));
        let (id, pass) = (space.id, Admission { space, principal: who.clone(), catalog_timeout: patience });
        Ok((Terms { space: id, max_frame, max_read: 0, max_in_flight, brick: 0 }, pass))
    }

    fn serve(thread: &Arc<Thread<Self>>, pass: Self::Admission, mailbox: &Arc<Mailbox>) -> ClientConnection {
        ClientConnection::new(thread.server.role.peer.clone(), pass, PeerHandle::new(mailbox.clone()), thread.clone())
    }

    async fn run_background(thread: &Thread<Self>) {
        if thread.is_first {
            let peer = &thread.server.role.peer;
            tokio::join!(peer.run(), indexes::complete_indexes(peer));
        }
    }

    fn tick(&self, _: &Config) {
        self.peer.check_bricks();
    }

    fn metrics(&self, _: &ServerCounters) -> Vec<Metric> {
        let Ok(state) = self.peer.lock() else { return Vec::new() };
        let cache = &state.cache;
        let mut metrics = vec![
            Metric::counter("cache_hits_total", cache.hits, "Reads that found their object in the object cache."),
            Metric::counter("cache_misses_total", cache.misses, "Reads that did not."),
            Metric::gauge("cache_bytes", cache.bytes() as u64, "Bytes of objects in the object cache."),
            Metric::gauge("holders", state.holders.len() as u64, "Sessions of clients."),
        ];
        metrics.extend(state.outcome_counts.metrics());
        drop(state);
        let (unreached, stopped) = (
            self.peer.space_statuses.unreachable_bricks().len() as u64,
            self.peer.space_statuses.stopped_count() as u64,
        );
        metrics.push(Metric::gauge(
            "bricks_unreachable",
            unreached,
            "Bricks that serve something and cannot be reached from here.",
        ));
        metrics.push(Metric::gauge("spaces_stopped", stopped, "Spaces that are refused until their bricks are back."));
        if let Some(catalog) = self.peer.cluster_view.catalog() {
            metrics.extend(crate::meta::catalog_metrics(&catalog));
        }
        metrics
    }

    fn health_problem(&self) -> Option<String> {
        self.peer.health_problem()
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// What is locked while a message is handled.
struct PeerState {
    node: CacheNode<PeerHandle, Object>,
    cache: ObjectCache,
    outcome_counts: OutcomeCounts,
    /// Where each holder below is.
    holders: HashMap<HolderId, PeerHandle>,
    /// Where each client is that has called.
    clients: HashMap<ClientId, (PeerHandle, SpaceId)>,
    /// Trees whose brick did not serve them: when to try again, and how long that is after the last time.
    retries: HashMap<NodeId, (Ms, Ms)>,
    /// Who serves each logical node, as far as the machine has heard.
    placements: BTreeMap<NodeId, NodePlacement>,
}

/// A peer server.
pub(crate) struct PeerDriver {
    /// The number of the process.
    start: u64,
    state: Mutex<PeerState>,
    pub(crate) cluster_view: Arc<ClusterView>,
    pub(crate) brick_links: Arc<BrickLinks>,
    space_statuses: SpaceStatuses,
    queries: query::QueryLimits,
    timer: DeadlineTimer,
    time: MonotonicClock,
}

impl PeerDriver {
    fn new(realm: Arc<ClusterView>, start: u64, membership: ClusterCredentials) -> Arc<Self> {
        let node = CacheNode::peer_server(HolderId(start << SESSION_BITS), Helpers::None, SKEW_MS);
        let (uplinks, alarm, time) = (BrickLinks::new(membership), DeadlineTimer::default(), MonotonicClock::begin());
        let cache = ObjectCache::new(start, CACHE_BYTES, time.now());
        let state = PeerState {
            node,
            cache,
            outcome_counts: OutcomeCounts::default(),
            holders: HashMap::new(),
            clients: HashMap::new(),
            retries: HashMap::new(),
            placements: BTreeMap::new(),
        };
        let queries = query::QueryLimits::default();
        let (state, standings) = (Mutex::new(state), SpaceStatuses::default());
        let peer = Self {
            start,
            state,
            cluster_view: realm,
            brick_links: uplinks,
            space_statuses: standings,
            queries,
            timer: alarm,
            time,
        };
        peer.update_space_statuses();
        Arc::new(peer)
    }

    fn lock(&self) -> Result<MutexGuard<'_, PeerState>> {
        // A machine that has panicked may have done half of something.
        self.state.lock().map_err(|_| Error::new(ErrorKind::Internal, "the peer server has panicked"))
    }

    /// Gives the machine something, and does what it wants.
    fn with_state<T>(&self, act: impl FnOnce(&mut PeerState, Ms) -> T) -> Result<T> {
        let mut state = self.lock()?;
        let done = act(&mut state, self.time.now());
        self.process_outputs(&mut state);
        Ok(done)
    }

    fn process_outputs(&self, state: &mut PeerState) {
        loop {
            let (outputs, own) = (state.node.outputs(), state.cache.outputs());
            if outputs.is_empty() && own.is_empty() {
                break;
            }
            for output in outputs {
                self.handle_output(state, output);
            }
            for (node, holder, message) in own {
                // The cache of this process says nothing of pages that are elsewhere.
                let handled = state.node.handle_up(node, holder, message, self.time.now());
                debug_assert!(handled.is_ok(), "{handled:?}");
            }
        }
        self.timer.set(state.node.deadline().unwrap_or(Ms::MAX).min(state.cache.deadline()));
    }

    fn handle_output(&self, state: &mut PeerState, output: Output<PeerHandle, Object>) {
        match output {
            Output::Up(node, holder, message) => {
                self.send_up(node, |epoch| Message::Up { node, epoch, holder, message });
            }
            Output::Ask(node, request) => {
                let seen = state.node.clock();
                self.send_up(node, |epoch| Message::Ask { node, epoch, seen, request });
            }
            Output::Down(node, holder, message) if holder.0 >> SESSION_BITS == self.start => {
                state.cache.handle_down(node, holder, message, self.time.now());
            }
            Output::Down(node, holder, message) => {
                if let Some(post) = state.holders.get(&holder) {
                    post.send(&Message::Down { node, holder, message });
                }
            }
            Output::Reply(post, txn, reply) => {
                state.outcome_counts.count(&reply);
                post.send(&Message::Reply { txn, reply });
            }
            Output::Busy(post, txn, node) => {
                let brick = self
                    .cluster_view
                    .placement
                    .of(node)
                    .map_or_else(String::new, |place| format!(" at brick {}", place.brick.0));
                let why = format!(
                    "logical node {:x}{brick} does not answer, and as much as can be kept waits for it already: nothing of this was \
                     sent there; try later",
                    node.0
                );
                post.send(&Message::Deferred { node, txn, kind: ErrorKind::Unavailable, why });
            }
            Output::Call(..) => debug!("a peer server passes no calls on"),
        }
    }

    /// Says something to the brick of a logical node. What cannot be said now is said again by the machine.
    fn send_up(&self, node: NodeId, message: impl FnOnce(u64) -> Message) {
        let Some(place) = self.cluster_view.placement.of(node) else { return };
        if let Some(post) = self.brick_links.handle_to(place.brick) {
            post.send(&message(place.epoch));
        }
    }

    /// Asks the brick of a logical node, and waits for its answer: see [`BrickLinks::answer`].
    async fn call_node(&self, node: NodeId, request: Request) -> Result<Answer> {
        self.brick_links.call(self.brick_of(node)?, request).await
    }

    fn brick_of(&self, node: NodeId) -> Result<BrickId> {
        let nobody = || {
            let what = format!("nobody serves logical node {:x} now: try again", node.0);
            Error::new(ErrorKind::Unavailable, what)
        };
        self.cluster_view.placement.of(node).map(|place| place.brick).ok_or_else(nobody)
    }

    /// Whether the brick of a logical node is there.
    fn is_reachable(&self, node: NodeId) -> bool {
        self.brick_of(node).is_ok_and(|brick| self.brick_links.is_responsive(brick))
    }

    /// An object as the cache has it, if it is at hand.
    pub(crate) fn read_cached(&self, oid: Oid) -> Result<Option<CachedObject>> {
        let mut state = self.lock()?;
        let found = state.cache.get(oid, self.time.now());
        if found.is_none() {
            self.process_outputs(&mut state);
        }
        Ok(found)
    }

    /// The same when it has come.
    pub(crate) fn read_when_cached(&self, oid: Oid, then: impl FnOnce(Result<CachedObject>) + Send + 'static) {
        let place = self.cluster_view.placement.of(oid.page().node);
        let then = move |found: Result<CachedObject>| then(found.map_err(|late| add_brick_to_error(late, place)));
        // Whoever panicked has said so, and who waits is told when this is dropped.
        let _ = self.with_state(|state, now| match state.cache.get(oid, now) {
            Some(found) => then(Ok(found)),
            None => state.cache.wait(oid, now, Box::new(then)),
        });
    }

    /// Why not all can be done here, if it cannot.
    fn health_problem(&self) -> Option<String> {
        let away: Vec<String> =
            self.space_statuses.unreachable_bricks().iter().map(|brick| brick.0.to_string()).collect();
        (!away.is_empty()).then(|| format!("these bricks cannot be reached: {}", away.join(", ")))
    }

    // -------------------------------------------------------------------------------------------- looking after

    /// Connects to bricks, and does what it is time for, for ever.
    async fn run(self: &Arc<Self>) {
        let (mut map, mut catalogue) = (self.cluster_view.placement.watch(), self.cluster_view.catalog_changes());
        self.follow_map();
        loop {
            tokio::select! {
                changed = map.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.follow_map();
                }
                () = next_change(&mut catalogue) => self.update_space_statuses(),
                () = self.timer.wait(&self.time) => {}
            }
            self.timer.clear();
            let polled = self.with_state(|state, now| {
                let due: Vec<NodeId> =
                    state.retries.iter().filter(|(_, (at, _))| *at <= now).map(|(node, _)| *node).collect();
                for node in due {
                    state.retries.entry(node).and_modify(|(at, _)| *at = Ms::MAX);
                    self.connect(state, node, now);
                }
                if let Some(at) = state.retries.values().map(|(at, _)| *at).min() {
                    self.timer.set(at);
                }
                state.node.poll(now);
                state.cache.poll(now);
            });
            if polled.is_err() {
                return;
            }
        }
    }

    /// There is a map, perhaps another one: trees of nodes that are elsewhere now begin anew there.
    fn follow_map(self: &Arc<Self>) {
        let map = self.cluster_view.placement.snapshot();
        self.brick_links.set_bricks(&map.bricks, self);
        // Whoever panicked has said so.
        let _ = self.with_state(|state, now| {
            let before = std::mem::replace(&mut state.placements, map.nodes.clone());
            for node in map.nodes.iter().filter(|(node, place)| before.get(node) != Some(place)).map(|(node, _)| *node)
            {
                state.retries.remove(&node);
                state.node.disconnect(Some(node), now);
                self.connect(state, node, now);
            }
        });
    }

    /// Looks which bricks are there; those that the catalogue has given up are doubted.
    fn check_bricks(&self) {
        let Some(catalog) = self.cluster_view.catalog() else { return };
        let given_up = catalog.bricks().filter(|(_, alive)| alive.is_none()).map(|(brick, _)| BrickId(brick.id.0));
        self.brick_links.check_liveness(&given_up.collect::<BTreeSet<_>>());
        self.space_statuses.update(&catalog, &self.brick_links);
    }

    /// Something may have changed for spaces.
    fn update_space_statuses(&self) {
        if let Some(catalog) = self.cluster_view.catalog() {
            self.space_statuses.update(&catalog, &self.brick_links);
        }
    }

    fn connect(&self, state: &mut PeerState, node: NodeId, now: Ms) {
        let place = self.cluster_view.placement.of(node);
        if place.is_some_and(|place| self.brick_links.handle_to(place.brick).is_some()) {
            state.node.connect(Some(node), now);
            state.node.retry_now(node);
        }
    }

    fn nodes_of(&self, brick: BrickId) -> Vec<NodeId> {
        let map = self.cluster_view.placement.snapshot();
        map.nodes.iter().filter(|(_, place)| place.brick == brick).map(|(node, _)| *node).collect()
    }
}

/// An error of who has waited in vain, with the brick.
fn add_brick_to_error(late: Error, place: Option<NodePlacement>) -> Error {
    match place.filter(|_| late.kind() == ErrorKind::Unavailable) {
        Some(place) => Error::new(late.kind(), format!("{late}; it is at brick {}", place.brick.0)),
        None => late,
    }
}

impl BrickLinkHandler for PeerDriver {
    fn on_connected(&self, brick: BrickId) {
        let _ = self.with_state(|state, now| {
            for node in self.nodes_of(brick) {
                state.node.connect(Some(node), now);
                state.node.retry_now(node);
            }
        });
        self.update_space_statuses();
    }

    fn handle_message(&self, _: BrickId, message: Message) -> Result<()> {
        self.with_state(|state, now| match message {
            Message::Down { node, holder, message } => {
                state.node.handle_down(node, holder, message, now);
                Ok(())
            }
            Message::Answer { node, seen, answer, locked } => {
                let learned = state.node.handle_answer(node, answer, locked, seen, now);
                learned.map_err(|ahead| Error::new(ErrorKind::Invalid, ahead.to_string()))
            }
            Message::Deferred { txn, .. } => {
                if let Some((post, _)) = state.clients.get(&txn.client) {
                    post.send(&message);
                }
                Ok(())
            }
            Message::NotServedHere { node, .. } => {
                state.node.disconnect(Some(node), now);
                let (at, pause) = state.retries.entry(node).or_insert((Ms::MAX, MIN_RETRY_MS / 2));
                if *at == Ms::MAX {
                    *pause = (*pause * 2).min(MAX_RETRY_MS);
                    *at = now + *pause;
                    self.timer.set(*at);
                }
                Ok(())
            }
            _ => Err(Error::new(ErrorKind::Invalid, "this message is not for a peer server")),
        })?
    }

    fn on_disconnected(&self, brick: BrickId) {
        let _ = self.with_state(|state, now| {
            for node in self.nodes_of(brick) {
                state.node.disconnect(Some(node), now);
            }
        });
        self.update_space_statuses();
    }
}
