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
mod guest;
mod indexes;
mod moves;
mod outcomes;
mod query;
mod standings;

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
use wire::driving::{Alarm, Post, Time};
use wire::handshake::Terms;
use wire::link::{Answer, Mailbox};
use wire::proto;
use wire::proto::request::Request;
use wire::transport::Address;

use crate::brick::SKEW_MS;
use crate::doors::{Membership, Who};
use crate::placement::{BrickId, Place};
use crate::realm::{Realm, Space, next_change};
use crate::server::{self, Config, Figure, Metrics, Server, Thread};
use crate::uplink::{Below, Uplinks};
use cache::{Looked, ObjectCache};
use guest::{Guest, Pass};
use outcomes::Outcomes;
use standings::Standings;

/// Session numbers that a start of a process has.
pub(crate) const SESSIONS: u32 = 20;
/// Bytes of objects that are cached.
const CACHE_BYTES: usize = 256 << 20;
/// How soon a tree that its brick did not serve is tried again, in milliseconds: at first, for its logical node may just have
/// moved, and at the latest.
const SOON_MS: Ms = 20;
const AGAIN_MS: Ms = 200;

/// A peer server that serves.
///
/// Dropped, it goes on serving until the process ends; [`PeerServer::shutdown`] ends it in good order.
pub struct PeerServer {
    server: Server<Role>,
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
    pub async fn start(realm: Arc<Realm>, start: u64, config: Config) -> Result<Self> {
        let peer = Peer::new(realm, start, config.membership.clone());
        Ok(Self { server: Server::start(Role { peer }, config).await? })
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
pub(crate) struct Role {
    peer: Arc<Peer>,
}

impl server::Role for Role {
    type Service = Guest;
    type Local = ();
    type Pass = Pass;

    const NAME: &'static str = "peer server";

    fn catalog(&self) -> Option<Arc<Catalog>> {
        self.peer.realm.catalog()
    }

    fn changed(&self) -> Option<watch::Receiver<Revision>> {
        self.peer.realm.changed()
    }

    fn admit(&self, config: &Config, hello: &proto::Hello, who: &Who) -> Result<(Terms, Self::Pass)> {
        let catalog = self.peer.realm.load_catalog();
        let catalog = catalog.as_deref().map(|catalog| &**catalog);
        let space = match self.peer.realm.space(&hello.space) {
            // What concerns the whole cluster is asked for in no space.
            _ if hello.space.is_empty() => {
                who.check(catalog)?;
                Arc::new(Space { id: SpaceId(0), name: String::new(), nodes: Vec::new() })
            }
            // Which spaces there are is not everybody's business.
            Err(unknown) => {
                return Err(who.is_administrator(catalog).err().map_or(unknown, |_| who.finds_none(&hello.space)));
            }
            Ok(space) => {
                who.may(Permission::Read, catalog, &space.name)?;
                space
            }
        };
        let (max_frame, max_in_flight) = (config.limits.max_frame, config.limits.max_in_flight);
        let patience = Some(hello.patience_ms).filter(|given| *given > 0);
        let patience = patience.map(|given| Duration::from_millis(given.into()));
        let (id, pass) = (space.id, Pass { space, who: who.clone(), patience });
        Ok((Terms { space: id, max_frame, max_read: 0, max_in_flight, brick: 0 }, pass))
    }

    fn serve(thread: &Arc<Thread<Self>>, pass: Self::Pass, mailbox: &Arc<Mailbox>) -> Guest {
        Guest::new(thread.server.role.peer.clone(), pass, Post::new(mailbox.clone()), thread.clone())
    }

    async fn beside(thread: &Thread<Self>) {
        if thread.is_first {
            let peer = &thread.server.role.peer;
            tokio::join!(peer.look_after(), indexes::follow(peer));
        }
    }

    fn tick(&self, _: &Config) {
        self.peer.look_for_bricks();
    }

    fn figures(&self, _: &Metrics) -> Vec<Figure> {
        let Ok(state) = self.peer.lock() else { return Vec::new() };
        let cache = &state.cache;
        let mut figures = vec![
            Figure::counter("cache_hits_total", cache.hits, "Reads that found their object in the object cache."),
            Figure::counter("cache_misses_total", cache.misses, "Reads that did not."),
            Figure::gauge("cache_bytes", cache.bytes() as u64, "Bytes of objects in the object cache."),
            Figure::gauge("holders", state.holders.len() as u64, "Sessions of clients."),
        ];
        figures.extend(state.outcomes.figures());
        drop(state);
        let (unreached, stopped) = (self.peer.standings.unreached().len() as u64, self.peer.standings.stopped() as u64);
        figures.push(Figure::gauge(
            "bricks_unreached",
            unreached,
            "Bricks that serve something and cannot be reached from here.",
        ));
        figures.push(Figure::gauge("spaces_stopped", stopped, "Spaces that are refused until their bricks are back."));
        if let Some(catalog) = self.peer.realm.catalog() {
            figures.extend(crate::meta::figures(&catalog));
        }
        figures
    }

    fn ailment(&self) -> Option<String> {
        self.peer.ailment()
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// What is locked while a message is handled.
struct State {
    node: CacheNode<Post, Object>,
    cache: ObjectCache,
    outcomes: Outcomes,
    /// Where each holder below is.
    holders: HashMap<HolderId, Post>,
    /// Where each client is that has called.
    clients: HashMap<ClientId, (Post, SpaceId)>,
    /// Trees whose brick did not serve them: when to try again, and how long that is after the last time.
    again: HashMap<NodeId, (Ms, Ms)>,
    /// Who serves each logical node, as far as the machine has heard.
    places: BTreeMap<NodeId, Place>,
}

/// A peer server.
pub(crate) struct Peer {
    /// The number of the process.
    start: u64,
    state: Mutex<State>,
    pub(crate) realm: Arc<Realm>,
    pub(crate) uplinks: Arc<Uplinks>,
    standings: Standings,
    queries: query::Admission,
    alarm: Alarm,
    time: Time,
}

impl Peer {
    fn new(realm: Arc<Realm>, start: u64, membership: Membership) -> Arc<Self> {
        let node = CacheNode::peer_server(HolderId(start << SESSIONS), Helpers::Nobody, SKEW_MS);
        let (uplinks, alarm, time) = (Uplinks::new(membership), Alarm::default(), Time::begin());
        let cache = ObjectCache::new(start, CACHE_BYTES, time.now());
        let state = State {
            node,
            cache,
            outcomes: Outcomes::default(),
            holders: HashMap::new(),
            clients: HashMap::new(),
            again: HashMap::new(),
            places: BTreeMap::new(),
        };
        let queries = query::Admission::default();
        let (state, standings) = (Mutex::new(state), Standings::default());
        let peer = Self { start, state, realm, uplinks, standings, queries, alarm, time };
        peer.review();
        Arc::new(peer)
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>> {
        // A machine that has panicked may have done half of something.
        self.state.lock().map_err(|_| Error::new(ErrorKind::Internal, "the peer server has panicked"))
    }

    /// Gives the machine something, and does what it wants.
    fn work<T>(&self, act: impl FnOnce(&mut State, Ms) -> T) -> Result<T> {
        let mut state = self.lock()?;
        let done = act(&mut state, self.time.now());
        self.drain(&mut state);
        Ok(done)
    }

    fn drain(&self, state: &mut State) {
        loop {
            let (outputs, own) = (state.node.outputs(), state.cache.outputs());
            if outputs.is_empty() && own.is_empty() {
                break;
            }
            for output in outputs {
                self.output(state, output);
            }
            for (node, holder, message) in own {
                // The cache of this process says nothing of pages that are elsewhere.
                let handled = state.node.handle_up(node, holder, message, self.time.now());
                debug_assert!(handled.is_ok(), "{handled:?}");
            }
        }
        self.alarm.set(state.node.deadline().unwrap_or(Ms::MAX).min(state.cache.deadline()));
    }

    fn output(&self, state: &mut State, output: Output<Post, Object>) {
        match output {
            Output::Up(node, holder, message) => {
                self.send_up(node, |epoch| Message::Up { node, epoch, holder, message });
            }
            Output::Ask(node, request) => {
                let seen = state.node.clock();
                self.send_up(node, |epoch| Message::Ask { node, epoch, seen, request });
            }
            Output::Down(node, holder, message) if holder.0 >> SESSIONS == self.start => {
                state.cache.down(node, holder, message, self.time.now());
            }
            Output::Down(node, holder, message) => {
                if let Some(post) = state.holders.get(&holder) {
                    post.send(&Message::Down { node, holder, message });
                }
            }
            Output::Reply(post, txn, reply) => {
                state.outcomes.count(&reply);
                post.send(&Message::Reply { txn, reply });
            }
            Output::Busy(post, txn, node) => {
                let brick = self
                    .realm
                    .placement
                    .of(node)
                    .map_or_else(String::new, |place| format!(" at brick {}", place.brick.0));
                let why = format!(
                    "logical node {:x}{brick} does not answer, and as much as can be kept waits for it already: nothing of this was \
                     sent there; try later",
                    node.0
                );
                post.send(&Message::Held { node, txn, kind: ErrorKind::Unavailable, why });
            }
            Output::Call(..) => debug!("a peer server passes no calls on"),
        }
    }

    /// Says something to the brick of a logical node. What cannot be said now is said again by the machine.
    fn send_up(&self, node: NodeId, message: impl FnOnce(u64) -> Message) {
        let Some(place) = self.realm.placement.of(node) else { return };
        if let Some(post) = self.uplinks.post(place.brick) {
            post.send(&message(place.epoch));
        }
    }

    /// Asks the brick of a logical node, and waits for its answer: see [`Uplinks::answer`].
    async fn answer(&self, node: NodeId, request: Request) -> Result<Answer> {
        self.uplinks.answer(self.brick_of(node)?, request).await
    }

    fn brick_of(&self, node: NodeId) -> Result<BrickId> {
        let nobody = || {
            let what = format!("nobody serves logical node {:x} now: try again", node.0);
            Error::new(ErrorKind::Unavailable, what)
        };
        self.realm.placement.of(node).map(|place| place.brick).ok_or_else(nobody)
    }

    /// Whether the brick of a logical node is there.
    fn reaches(&self, node: NodeId) -> bool {
        self.brick_of(node).is_ok_and(|brick| self.uplinks.hears(brick))
    }

    /// An object as the cache has it, if it is at hand.
    pub(crate) fn look(&self, oid: Oid) -> Result<Option<Looked>> {
        let mut state = self.lock()?;
        let found = state.cache.get(oid, self.time.now());
        if found.is_none() {
            self.drain(&mut state);
        }
        Ok(found)
    }

    /// The same when it has come.
    pub(crate) fn look_later(&self, oid: Oid, then: impl FnOnce(Result<Looked>) + Send + 'static) {
        let place = self.realm.placement.of(oid.page().node);
        let then = move |found: Result<Looked>| then(found.map_err(|late| waited_for(late, place)));
        // Whoever panicked has said so, and who waits is told when this is dropped.
        let _ = self.work(|state, now| match state.cache.get(oid, now) {
            Some(found) => then(Ok(found)),
            None => state.cache.wait(oid, now, Box::new(then)),
        });
    }

    /// Why not all can be done here, if it cannot.
    fn ailment(&self) -> Option<String> {
        let away: Vec<String> = self.standings.unreached().iter().map(|brick| brick.0.to_string()).collect();
        (!away.is_empty()).then(|| format!("these bricks cannot be reached: {}", away.join(", ")))
    }

    // -------------------------------------------------------------------------------------------- looking after

    /// Connects to bricks, and does what it is time for, for ever.
    async fn look_after(self: &Arc<Self>) {
        let (mut map, mut catalogue) = (self.realm.placement.watch(), self.realm.changed());
        self.follow_map();
        loop {
            tokio::select! {
                changed = map.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.follow_map();
                }
                () = next_change(&mut catalogue) => self.review(),
                () = self.alarm.wait(&self.time) => {}
            }
            self.alarm.clear();
            let polled = self.work(|state, now| {
                let due: Vec<NodeId> =
                    state.again.iter().filter(|(_, (at, _))| *at <= now).map(|(node, _)| *node).collect();
                for node in due {
                    state.again.entry(node).and_modify(|(at, _)| *at = Ms::MAX);
                    self.connect(state, node, now);
                }
                if let Some(at) = state.again.values().map(|(at, _)| *at).min() {
                    self.alarm.set(at);
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
        let map = self.realm.placement.map();
        self.uplinks.keep(&map.bricks, self);
        // Whoever panicked has said so.
        let _ = self.work(|state, now| {
            let before = std::mem::replace(&mut state.places, map.nodes.clone());
            for node in map.nodes.iter().filter(|(node, place)| before.get(node) != Some(place)).map(|(node, _)| *node)
            {
                state.again.remove(&node);
                state.node.disconnect(Some(node), now);
                self.connect(state, node, now);
            }
        });
    }

    /// Looks which bricks are there; those that the catalogue has given up are doubted.
    fn look_for_bricks(&self) {
        let Some(catalog) = self.realm.catalog() else { return };
        let given_up = catalog.bricks().filter(|(_, alive)| alive.is_none()).map(|(brick, _)| BrickId(brick.id.0));
        self.uplinks.look(&given_up.collect::<BTreeSet<_>>());
        self.standings.review(&catalog, &self.uplinks);
    }

    /// Something may have changed for spaces.
    fn review(&self) {
        if let Some(catalog) = self.realm.catalog() {
            self.standings.review(&catalog, &self.uplinks);
        }
    }

    fn connect(&self, state: &mut State, node: NodeId, now: Ms) {
        let place = self.realm.placement.of(node);
        if place.is_some_and(|place| self.uplinks.post(place.brick).is_some()) {
            state.node.connect(Some(node), now);
            state.node.hurry(node);
        }
    }

    fn nodes_of(&self, brick: BrickId) -> Vec<NodeId> {
        let map = self.realm.placement.map();
        map.nodes.iter().filter(|(_, place)| place.brick == brick).map(|(node, _)| *node).collect()
    }
}

/// An error of who has waited in vain, with the brick.
fn waited_for(late: Error, place: Option<Place>) -> Error {
    match place.filter(|_| late.kind() == ErrorKind::Unavailable) {
        Some(place) => Error::new(late.kind(), format!("{late}; it is at brick {}", place.brick.0)),
        None => late,
    }
}

impl Below for Peer {
    fn connected(&self, brick: BrickId) {
        let _ = self.work(|state, now| {
            for node in self.nodes_of(brick) {
                state.node.connect(Some(node), now);
                state.node.hurry(node);
            }
        });
        self.review();
    }

    fn message(&self, _: BrickId, message: Message) -> Result<()> {
        self.work(|state, now| match message {
            Message::Down { node, holder, message } => {
                state.node.handle_down(node, holder, message, now);
                Ok(())
            }
            Message::Answer { node, seen, answer, locked } => {
                let learned = state.node.answered(node, answer, locked, seen, now);
                learned.map_err(|ahead| Error::new(ErrorKind::Invalid, ahead.to_string()))
            }
            Message::Held { txn, .. } => {
                if let Some((post, _)) = state.clients.get(&txn.client) {
                    post.send(&message);
                }
                Ok(())
            }
            Message::Elsewhere { node, .. } => {
                state.node.disconnect(Some(node), now);
                let (at, pause) = state.again.entry(node).or_insert((Ms::MAX, SOON_MS / 2));
                if *at == Ms::MAX {
                    *pause = (*pause * 2).min(AGAIN_MS);
                    *at = now + *pause;
                    self.alarm.set(*at);
                }
                Ok(())
            }
            _ => Err(Error::new(ErrorKind::Invalid, "this message is not for a peer server")),
        })?
    }

    fn disconnected(&self, brick: BrickId) {
        let _ = self.work(|state, now| {
            for node in self.nodes_of(brick) {
                state.node.disconnect(Some(node), now);
            }
        });
        self.review();
    }
}
