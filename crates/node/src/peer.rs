//! The peer server: clients connect to any one, and see one store (TODS, section 3).
//!
//! ```text
//!   clients ── Up, Call ──▶ ┌──────────────┐ ── Up, Ask ──▶ bricks
//!           ◀── Down, Reply │  PeerDriver  │ ◀── Down, Answer
//!                           └──────────────┘
//! ```
//!
//! [`driver::PeerDriver`] decides everything about transactions, caches, permissions and the status of spaces; it is a
//! machine without I/O. [`PeerProcess`] is the shell around it: it holds the lock, the clock, the connections and the
//! timer. A message is handled on the thread of its connection, and the outputs are sent before the lock is released,
//! so that they keep their order. One task connects to the bricks of the placement map and handles timeouts.
//!
//! | module | content |
//! | --- | --- |
//! | [`driver`] | the machine |
//! | [`peer_client`] | the state of a client, and the checks of its requests |
//! | [`requests`] | request → permission, scope, handler |
//! | [`client_connection`] | calls the handlers of that table |
//! | [`cache`], [`space_statuses`], [`outcome_counts`] | parts of the machine |
//! | [`query`] | queries: their machine, and the task that runs it |
//! | [`classes`], [`indexes`], [`moves`] | work with the catalogue |
//! | [`usage`], [`removal`] | what spaces take; removal of spaces and classes without objects |

pub(crate) mod cache;
mod classes;
mod client_connection;
pub(crate) mod driver;
mod indexes;
mod moves;
mod outcome_counts;
pub(crate) mod peer_client;
pub mod plant;
pub(crate) mod query;
mod removal;
mod requests;
mod space_statuses;
mod usage;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use arc_swap::ArcSwap;
use meta::Revision;
use meta::catalog::{Catalog, Permission};
use model::{Error, ErrorKind, NodeId, Object, Oid, Result, SpaceId};
use protocol::lease::Ms;
use protocol::redirect::Helpers;
use tokio::sync::watch;
use wire::cluster::Message;
use wire::driving::{DeadlineTimer, DeliveryScope, MonotonicClock, PeerHandle};
use wire::handshake::Terms;
use wire::link::{Answer, Mailbox};
use wire::proto;
use wire::proto::request::Request;
use wire::transport::Address;

use crate::auth::Principal;
use crate::brick_links::{BrickLinkHandler, BrickLinks};
use crate::cluster_view::{ClusterView, SpaceView, next_change};
use crate::node_placement::BrickId;
use crate::server::{self, Config, Metric, Server, ServerCounters, StartingServer, Thread};
use cache::CachedObject;
use client_connection::{Admission, ClientConnection};
use driver::{BrickMessage, Output, PeerDriver, PeerSettings};
use space_statuses::StoppedSpaces;

/// Messages of more bytes are sent to a brick later while much is unsent on its connection: many large transactions at once would end
/// the connection.
const MIN_HELD_BACK: usize = 64 << 10;

/// Bits of a session's number below the number of its client or process.
pub(crate) const SESSION_BITS: u32 = 20;

/// A running peer server.
///
/// Dropping it does not stop the server: it serves until the process ends or [`PeerServer::shutdown`] is called.
pub struct PeerServer {
    peer: Arc<PeerProcess>,
    server: Server<PeerRole>,
}

impl std::fmt::Debug for PeerServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerServer").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

impl PeerServer {
    /// Serves clients of the cluster that `view` describes. `process` is a number that no other process or client ever had.
    ///
    /// # Errors
    /// As [`Brick::start_in`](crate::Brick::start_in).
    pub async fn start(view: Arc<ClusterView>, process: u64, config: Config) -> Result<Self> {
        let peer = PeerProcess::new(view, process, &config);
        Ok(Self { server: start_server(PeerRole { peer: peer.clone() }, config).await?, peer })
    }

    /// The addresses on which it listens, in the order of the configuration, with the ports that the system chose.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.server.addresses
    }

    /// The address of `/metrics` and `/health`; `None` if HTTP is off.
    #[must_use]
    pub fn http(&self) -> Option<SocketAddr> {
        self.server.http
    }

    /// What `/health` reports; `None` if there is no problem.
    #[must_use]
    pub fn health_problem(&self) -> Option<String> {
        self.peer.health_problem()
    }

    /// Stops accepting connections and answers pending requests.
    pub async fn shutdown(self) -> Result<()> {
        self.server.shutdown().await
    }
}

/// As [`Server::start`], compiled in this crate: see [`StartingServer`].
#[inline(never)]
fn start_server(role: PeerRole, config: Config) -> StartingServer<PeerRole> {
    Box::pin(Server::start(role, config))
}

/// State shared by all threads of a peer server.
pub(crate) struct PeerRole {
    peer: Arc<PeerProcess>,
}

impl server::ServerRole for PeerRole {
    type Service = ClientConnection;
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
            // A connection about the whole cluster names no space.
            _ if hello.space.is_empty() => {
                who.check(catalog)?;
                Arc::new(SpaceView { id: SpaceId(0), name: String::new(), nodes: Vec::new() })
            }
            // Only administrators learn which spaces there are.
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
        Ok((Terms { space: id, max_frame, max_in_flight, brick: 0, opening: None }, pass))
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

    fn tick(&self) {
        self.peer.check_bricks();
    }

    fn metrics(&self, _: &ServerCounters) -> Vec<Metric> {
        let Ok(driver) = self.peer.lock() else { return Vec::new() };
        let (hits, misses, bytes) = driver.cache_counts();
        let mut metrics = vec![
            Metric::counter("cache_hits_total", hits, "Reads that found their object in the object cache."),
            Metric::counter("cache_misses_total", misses, "Reads that did not."),
            Metric::gauge("cache_bytes", bytes as u64, "Bytes of objects in the object cache."),
            Metric::gauge("holders", driver.holder_count() as u64, "Sessions of clients."),
        ];
        metrics.extend(driver.outcome_counts().metrics());
        let (unreachable, stopped) = (driver.unreachable_bricks().len() as u64, driver.stopped().len() as u64);
        drop(driver);
        metrics.push(Metric::gauge(
            "bricks_unreachable",
            unreachable,
            "Bricks that serve logical nodes and cannot be reached from this peer server.",
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

/// Receives the result of a read of the object cache. It is called with the machine locked, so it must be quick.
type CacheReader = Box<dyn FnOnce(Result<CachedObject>) + Send>;

/// The shell around the machine of a peer server: its lock, its clock, its connections to bricks, and its timer.
pub(crate) struct PeerProcess {
    driver: Mutex<PeerDriver<PeerHandle, Object, CacheReader>>,
    pub(crate) cluster_view: Arc<ClusterView>,
    pub(crate) brick_links: Arc<BrickLinks>,
    /// The spaces that are stopped, readable without the lock.
    stopped: ArcSwap<StoppedSpaces>,
    queries: query::QueryLimits,
    timer: DeadlineTimer,
    time: MonotonicClock,
}

impl PeerProcess {
    fn new(cluster_view: Arc<ClusterView>, process: u64, config: &Config) -> Arc<Self> {
        let time = MonotonicClock::begin();
        let settings = PeerSettings {
            process,
            session_bits: SESSION_BITS,
            cache_bytes: config.cache_bytes,
            backlog_bytes: None,
            helpers: Helpers::None,
        };
        let brick_links = BrickLinks::new(config.cluster_credentials.clone(), cluster_view.witnesses.clone());
        let peer = Self {
            driver: Mutex::new(PeerDriver::new(settings, time.now())),
            cluster_view,
            brick_links,
            stopped: ArcSwap::default(),
            queries: query::QueryLimits::default(),
            timer: DeadlineTimer::default(),
            time,
        };
        peer.update_statuses();
        Arc::new(peer)
    }

    fn lock(&self) -> Result<MutexGuard<'_, PeerDriver<PeerHandle, Object, CacheReader>>> {
        // A machine that has panicked may be in an inconsistent state.
        self.driver.lock().map_err(|_| Error::new(ErrorKind::Internal, "the peer server has panicked"))
    }

    /// Gives the machine an input, and carries out its outputs.
    fn with_driver<T>(&self, act: impl FnOnce(&mut PeerDriver<PeerHandle, Object, CacheReader>, Ms) -> T) -> Result<T> {
        let mut driver = self.lock()?;
        if let Some(catalog) = self.cluster_view.load_catalog() {
            driver.set_catalog(&catalog);
        }
        let done = act(&mut driver, self.time.now());
        self.carry_out(&mut driver);
        Ok(done)
    }

    fn carry_out(&self, driver: &mut PeerDriver<PeerHandle, Object, CacheReader>) {
        let mut held_back = Vec::new();
        for output in driver.outputs() {
            match output {
                Output::Up { to, node, holder, message } => {
                    self.send_to_brick(to.brick, || Message::Up { node, epoch: to.epoch, holder, message });
                }
                Output::Ask { to, node, seen, request } => {
                    let Some(brick) = self.brick_links.handle_to(to.brick) else { continue };
                    let (txn, message) = (request.txn(), Message::Ask { node, epoch: to.epoch, seen, request });
                    match brick.is_behind() && message.memory_size() > MIN_HELD_BACK {
                        true => held_back.push((txn, node)),
                        false => brick.send(message),
                    }
                }
                Output::Down { to, node, holder, message } => to.send(Message::Down { node, holder, message }),
                Output::Reply { to, txn, reply } => to.send(Message::Reply { txn, reply }),
                Output::Deferred { to, node, txn, kind, why } => to.send(Message::Deferred { node, txn, kind, why }),
                Output::Status { to, status } => to.send(Message::SpaceStatus(status)),
                Output::ReadEnded { reader, result } => reader(result),
                Output::Disconnect(client) => client.hang_up(),
            }
        }
        for (txn, node) in held_back {
            driver.ask_again_soon(txn, node, self.time.now());
        }
        self.timer.set(driver.deadline().unwrap_or(Ms::MAX));
    }

    /// Sends a message to a brick, if it is connected. The machine repeats what is lost.
    fn send_to_brick(&self, brick: BrickId, message: impl FnOnce() -> Message) {
        if let Some(handle) = self.brick_links.handle_to(brick) {
            handle.send(message());
        }
    }

    /// Asks the brick of a logical node, and waits for its answer: see [`BrickLinks::call`].
    async fn call_node(&self, node: NodeId, request: Request) -> Result<Answer> {
        self.brick_links.call(self.brick_of(node)?, request).await
    }

    fn brick_of(&self, node: NodeId) -> Result<BrickId> {
        let unplaced = || {
            let what = format!("logical node {:x} is served by no brick now: try again", node.0);
            Error::new(ErrorKind::Unavailable, what)
        };
        self.cluster_view.placement.of(node).map(|place| place.brick).ok_or_else(unplaced)
    }

    /// An object, if the cache has it.
    pub(crate) fn read_cached(&self, oid: Oid) -> Result<Option<CachedObject>> {
        Ok(self.lock()?.read_cached(oid, self.time.now()))
    }

    /// Reads an object when its page has arrived. `then` is called with the machine locked, so it must be quick.
    pub(crate) fn read_when_cached(&self, oid: Oid, then: impl FnOnce(Result<CachedObject>) + Send + 'static) {
        // After a panic of the machine `then` is dropped, which tells its owner that there is no result.
        let _ = self.with_driver(|driver, now| driver.read(oid, Box::new(then), now));
    }

    /// Reads objects, and calls `then` with those that the cache has and with each other one once its page has come. `then` is
    /// called with the machine locked, so it must be quick.
    fn read_all_when_cached(
        &self,
        oids: &[Oid],
        then: impl Fn(Vec<(Oid, Result<CachedObject>)>) + Clone + Send + 'static,
    ) {
        // After a panic of the machine no result comes, as for one object.
        let _ = self.with_driver(|driver, now| {
            let mut found = Vec::new();
            for oid in oids.iter().copied() {
                match driver.read_cached(oid, now) {
                    Some(object) => found.push((oid, Ok(object))),
                    None => {
                        let then = then.clone();
                        driver.read(oid, Box::new(move |object| then(vec![(oid, object)])), now);
                    }
                }
            }
            if !found.is_empty() {
                then(found);
            }
        });
    }

    /// A problem to report in `/health`; `None` if there is none.
    fn health_problem(&self) -> Option<String> {
        if let Some(why) = self.cluster_view.catalogue_problem() {
            return Some(why);
        }
        let unreachable = self.lock().ok()?.unreachable_bricks();
        let unreachable: Vec<String> = unreachable.iter().map(|brick| brick.0.to_string()).collect();
        (!unreachable.is_empty()).then(|| format!("these bricks cannot be reached: {}", unreachable.join(", ")))
    }

    // -------------------------------------------------------------------------------------------- background

    /// Connects to bricks and handles timeouts until the process ends.
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
                () = next_change(&mut catalogue) => {
                    self.follow_openings();
                    self.update_statuses();
                }
                () = self.timer.wait(&self.time) => {}
            }
            self.timer.clear();
            let polled = {
                let _delivery = DeliveryScope::enter();
                self.with_driver(PeerDriver::poll)
            };
            if polled.is_err() {
                return;
            }
        }
    }

    /// Connects to the bricks of the placement map, and gives the map to the machine.
    fn follow_map(self: &Arc<Self>) {
        let map = self.cluster_view.placement.snapshot();
        self.brick_links.set_bricks(&map.bricks, self);
        // After a panic of the machine nothing is served.
        let _ = self.with_driver(|driver, now| driver.map(map, now));
    }

    /// Ends what connects this process to openings of bricks that the catalogue calls superseded.
    fn follow_openings(&self) {
        if let Some(catalog) = self.cluster_view.catalog() {
            self.cluster_view.witnesses.note_catalog(&catalog);
            self.brick_links.close_superseded();
        }
    }

    /// Checks which bricks respond. Bricks whose entry in the catalogue has expired are pinged at once.
    fn check_bricks(&self) {
        let Some(catalog) = self.cluster_view.catalog() else { return };
        let given_up = catalog.bricks().filter(|(_, alive)| alive.is_none()).map(|(brick, _)| BrickId(brick.id.0));
        self.brick_links.check_liveness(&given_up.collect::<BTreeSet<_>>());
        self.brick_links.share_witnesses();
        self.update_statuses();
    }

    /// Computes the status of all spaces again.
    fn update_statuses(&self) {
        let is_responsive = |brick| self.brick_links.is_responsive(brick);
        let stopped = self.with_driver(|driver, now| {
            driver.update_statuses(is_responsive, now);
            driver.stopped().clone()
        });
        if let Ok(stopped) = stopped
            && !Arc::ptr_eq(&stopped, &self.stopped.load())
        {
            self.stopped.store(stopped);
        }
    }
}

/// A message that a brick may send.
fn brick_message(message: Message) -> Result<BrickMessage> {
    match message {
        Message::Down { node, holder, message } => Ok(BrickMessage::Down { node, holder, message }),
        Message::Answer { node, seen, answer, locked } => Ok(BrickMessage::Answer { node, seen, answer, locked }),
        Message::Deferred { node, txn, kind, why } => Ok(BrickMessage::Deferred { node, txn, kind, why }),
        Message::NotServedHere { node, .. } => Ok(BrickMessage::NotServedHere { node }),
        _ => Err(Error::new(ErrorKind::Invalid, "a brick does not send this message to a peer server")),
    }
}

impl BrickLinkHandler for PeerProcess {
    fn on_connected(&self, brick: BrickId) {
        let _ = self.with_driver(|driver, now| driver.brick_connected(brick, now));
        self.update_statuses();
    }

    fn handle_messages(&self, brick: BrickId, mut messages: impl Iterator<Item = Message>) -> Result<()> {
        self.with_driver(|driver, now| {
            messages.try_for_each(|message| driver.brick_message(brick, brick_message(message)?, now))
        })?
    }

    fn on_disconnected(&self, brick: BrickId) {
        let _ = self.with_driver(|driver, now| driver.brick_disconnected(brick, now));
        self.update_statuses();
    }
}
