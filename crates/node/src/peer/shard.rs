//! A shard of a peer server: one machine ([`PeerDriver`]) and what is around it.
//!
//! A message is handled on the thread of its connection, and the outputs are sent before the lock is released, so that they keep their
//! order. One task connects to the bricks of the placement map and handles timeouts.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use arc_swap::ArcSwap;
use model::{Error, ErrorKind, NodeId, Object, Oid, Result};
use protocol::lease::Ms;
use protocol::redirect::Helpers;
use wire::cluster::Message;
use wire::driving::{DeadlineTimer, DeliveryScope, MonotonicClock, PeerHandle};
use wire::link::Answer;
use wire::proto::request::Request;

use super::cache::CachedObject;
use super::driver::{BrickMessage, Output, PeerDriver, PeerSettings};
use super::query::QueryLimits;
use super::space_statuses::StoppedSpaces;
use crate::brick_links::{BrickLinkHandler, BrickLinks};
use crate::cluster_view::{ClusterView, next_change};
use crate::node_placement::BrickId;
use crate::server::Config;

/// Messages of more bytes are sent to a brick later while much is unsent on its connection: many large transactions at once would end
/// the connection.
const MIN_HELD_BACK: usize = 64 << 10;

/// Bits of a session's number below the number of its client or process.
const SESSION_BITS: u32 = 20;

/// Receives the result of a read of the object cache. It is called with the machine locked, so it must be quick.
type CacheReader = Box<dyn FnOnce(Result<CachedObject>) + Send>;

/// A shard of a peer server: the machine, its lock, its clock, its connections to bricks, and its timer.
pub(crate) struct PeerShard {
    driver: Mutex<PeerDriver<PeerHandle, Object, CacheReader>>,
    pub(crate) cluster_view: Arc<ClusterView>,
    pub(crate) brick_links: Arc<BrickLinks>,
    /// The spaces that are stopped, readable without the lock.
    pub(super) stopped: ArcSwap<StoppedSpaces>,
    pub(super) queries: QueryLimits,
    timer: DeadlineTimer,
    pub(super) time: MonotonicClock,
    /// Whether its background work has panicked, without which its timers stand still.
    pub(super) has_ended: AtomicBool,
}

impl PeerShard {
    /// A shard that reaches no bricks yet. `number` is one that no other shard, process or client ever had; the object cache may have
    /// `cache_bytes`.
    pub(super) fn new(
        cluster_view: Arc<ClusterView>,
        number: u64,
        cache_bytes: usize,
        queries: QueryLimits,
        config: &Config,
    ) -> Arc<Self> {
        let time = MonotonicClock::of_process();
        let settings = PeerSettings {
            process: number,
            session_bits: SESSION_BITS,
            cache_bytes,
            backlog_bytes: None,
            helpers: Helpers::None,
        };
        let brick_links = BrickLinks::new(config.cluster_credentials.clone(), cluster_view.witnesses.clone());
        let shard = Self {
            driver: Mutex::new(PeerDriver::new(settings, time.now())),
            cluster_view,
            brick_links,
            stopped: ArcSwap::default(),
            queries,
            timer: DeadlineTimer::default(),
            time,
            has_ended: AtomicBool::new(false),
        };
        shard.update_statuses();
        Arc::new(shard)
    }

    pub(super) fn lock(&self) -> Result<MutexGuard<'_, PeerDriver<PeerHandle, Object, CacheReader>>> {
        let panicked = || Error::new(ErrorKind::Internal, "the peer server has panicked");
        if self.has_ended.load(Ordering::Acquire) {
            return Err(panicked());
        }
        // A machine that has panicked may be in an inconsistent state.
        self.driver.lock().map_err(|_| panicked())
    }

    /// Whether the machine or the background work has panicked: then nothing is served.
    pub(super) fn has_panicked(&self) -> bool {
        self.driver.is_poisoned() || self.has_ended.load(Ordering::Acquire)
    }

    /// Gives the machine an input, and carries out its outputs.
    pub(super) fn with_driver<T>(
        &self,
        act: impl FnOnce(&mut PeerDriver<PeerHandle, Object, CacheReader>, Ms) -> T,
    ) -> Result<T> {
        let mut driver = self.lock()?;
        if let Some(catalog) = self.cluster_view.load_catalog() {
            driver.set_catalog(&catalog);
        }
        let now = self.time.now();
        driver.set_time(self.cluster_view.clock.cluster_time(), now);
        let done = act(&mut driver, now);
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
                Output::Time { to, time_ms } => to.send(Message::Time(time_ms)),
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
    pub(super) async fn call_node(&self, node: NodeId, request: Request) -> Result<Answer> {
        self.brick_links.call(self.brick_of(node)?, request).await
    }

    pub(super) fn brick_of(&self, node: NodeId) -> Result<BrickId> {
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
    pub(super) fn read_all_when_cached(
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
    pub(super) fn health_problem(&self) -> Option<String> {
        if let Some(why) = self.cluster_view.catalogue_problem() {
            return Some(why);
        }
        let unreachable = match self.lock() {
            Ok(driver) => driver.unreachable_bricks(),
            Err(error) => return Some(error.to_string()),
        };
        let name = |brick: &BrickId| {
            let clock = self.cluster_view.clock.refusal_of(&format!("brick {}", brick.0));
            clock.map_or_else(|| brick.0.to_string(), |why| format!("{} ({why})", brick.0))
        };
        let unreachable: Vec<String> = unreachable.iter().map(name).collect();
        (!unreachable.is_empty()).then(|| format!("these bricks cannot be reached: {}", unreachable.join(", ")))
    }

    // -------------------------------------------------------------------------------------------- background

    /// Connects to bricks and handles timeouts until the process ends.
    pub(super) async fn run(self: &Arc<Self>) {
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
    pub(super) fn check_bricks(&self) {
        let Some(catalog) = self.cluster_view.catalog() else { return };
        let given_up = catalog.bricks().filter(|(_, alive)| alive.is_none()).map(|(brick, _)| BrickId(brick.id.0));
        self.brick_links.check_liveness(&given_up.collect::<BTreeSet<_>>());
        self.brick_links.note_positions();
        self.update_statuses();
    }

    /// Computes the status of all spaces again.
    fn update_statuses(&self) {
        let is_responsive = |brick| self.brick_links.is_responsive(brick);
        let stopped = self.with_driver(|driver, now| {
            driver.update_statuses(is_responsive, now);
            driver.stopped_spaces().clone()
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
        Message::NotServedHere { node, damage, .. } => Ok(BrickMessage::NotServedHere { node, damage }),
        _ => Err(Error::new(ErrorKind::Invalid, "a brick does not send this message to a peer server")),
    }
}

impl BrickLinkHandler for PeerShard {
    fn on_connected(&self, brick: BrickId) {
        let _ = self.with_driver(|driver, now| driver.brick_connected(brick, now));
        self.update_statuses();
    }

    fn handle_messages(&self, brick: BrickId, mut messages: impl Iterator<Item = Message>) -> Result<()> {
        let (handled, has_damage_news) = self.with_driver(|driver, now| {
            let handled = messages.try_for_each(|message| driver.brick_message(brick, brick_message(message)?, now));
            (handled, driver.has_damage_news())
        })?;
        if has_damage_news {
            self.update_statuses();
        }
        handled
    }

    fn on_disconnected(&self, brick: BrickId) {
        let _ = self.with_driver(|driver, now| driver.brick_disconnected(brick, now));
        self.update_statuses();
    }
}
