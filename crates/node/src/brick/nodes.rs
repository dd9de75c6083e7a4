//! The logical nodes of a brick, and the task that drives them.
//!
//! The thread of a connection handles its messages with the logical node locked, and the committer of the store the results of a force
//! with few changes. One task ([`Nodes::run`]) handles the results of others, messages between logical nodes, the placement map, and
//! deadlines. [`NodeDriver`] and [`NodeManager`] make the decisions; [`super::routing`] and this module carry out their outputs.

mod cloning;
mod cold;
mod contents;
mod emptiness;
mod events;
mod managing;
mod reads;
mod repairs;
mod routing;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use model::{ContentId, Error, ErrorKind, NodeId, Oid, Result, SpaceId, UploadId};
use protocol::lease::Ms;
use store::Store;
use tokio::time;
use tracing::{debug, warn};
use wire::cluster::{damaged_node_error, describe_damage};
use wire::proto::cluster::{AskWitness, Witnesses};

use super::answer_counts::AnswerCounts;
use super::changed_rows::ChangedRows;
use super::cold_reads::ColdReads;
use super::node_driver::{BuildPace, NodeDriver, OpenSettings, PortionLimits, Reservation, WINDOWS};
use super::node_inbox::{NodeInbox, NodeTask, UploadAnswer};
use super::node_manager::{DamagedNodes, ManagerSettings, MoveLimits, NodeManager};
use super::row_reader::RowReader;
use crate::brick_links::BrickLinks;
use crate::cluster_view::{ClusterView, next_change};
use crate::node_placement::{BrickId, NodePlacement};
use crate::openings::{LocalOpening, answer_transactions, opening_of};
use crate::server::{Config, LogLimiter, Metric};
use usage::SpaceQuotas;
use wire::driving::{DeliveryScope, MonotonicClock, PeerHandle};
use wire::tasks;

/// Largest allowed difference between the clocks of machines, in milliseconds.
pub(crate) const SKEW_MS: u64 = 5_000;

/// Time limit of a schema refresh from the catalogue.
const SCHEMA_TIMEOUT: Duration = Duration::from_secs(5);

/// The driver of a logical node, with requests from connections.
pub(super) type Driver = NodeDriver<PeerHandle>;

/// A logical node, and the epoch of the placement map under which it is served.
struct ServedNode {
    epoch: u64,
    driver: Mutex<Driver>,
    /// Whether any transaction is prepared, so that reads need not lock the driver if none is.
    has_prepared: Arc<AtomicBool>,
    /// What is damaged, once the driver has failed for that reason.
    damage: OnceLock<Arc<str>>,
}

/// The logical nodes of a brick.
pub(crate) struct Nodes {
    this: Weak<Self>,
    pub(super) store: Store,
    /// Reads that would wait for the disk.
    pub(super) cold_reads: Arc<ColdReads>,
    /// How long uploads and staged contents without a transaction last.
    upload_lease_ms: Ms,
    pub(crate) time: MonotonicClock,
    served: ArcSwap<BTreeMap<NodeId, Arc<ServedNode>>>,
    is_in_memory: bool,
    inbox: Arc<NodeInbox>,
    /// Locked while events are handled.
    handling: Mutex<()>,
    /// Number of logical nodes that were opened since the process started.
    openings: AtomicU64,
    /// Connections to other bricks, for transactions with participants there.
    pub(super) brick_links: Arc<BrickLinks>,
    pub(super) cluster_view: Arc<ClusterView>,
    pub(super) id: BrickId,
    /// The opening of the brick; `None` without a catalogue.
    pub(super) opening: Option<Arc<LocalOpening>>,
    /// Decides which logical nodes are served. It is locked before the driver of a node, if both are.
    manager: Mutex<NodeManager>,
    /// Logical nodes that are no longer served and still have rows in flight.
    closing: Mutex<BTreeMap<NodeId, Arc<ServedNode>>>,
    /// Answers to clients that have asked once more for the end of an upload whose rows are with the store. It is locked after the driver of a node, if
    /// both are.
    finishing: Mutex<BTreeMap<ContentId, Vec<UploadAnswer>>>,
    /// Spaces whose schema is being refreshed.
    refreshing: Mutex<BTreeSet<SpaceId>>,
    /// Counts of the answers of all logical nodes that were served here.
    answer_counts: Arc<AnswerCounts>,
    quotas: SpaceQuotas,
    /// Until when no transaction is committed in one phase, because the store had no room.
    two_phases_until: AtomicU64,
    /// Logical nodes that cannot be opened because their rows are damaged.
    damaged: ArcSwap<DamagedNodes>,
    /// For lines about logical nodes that cannot be served.
    unserved_log: LogLimiter,
    /// Whether the background work has panicked, without which nothing here goes on.
    pub(super) has_panicked: AtomicBool,
}

impl ServedNode {
    /// Closes the driver: it serves no more requests. Returns the uploads that the store has to abort.
    fn close(&self) -> Vec<UploadId> {
        self.driver.lock().map(|mut driver| driver.close()).unwrap_or_default()
    }

    /// Whether the driver is closed and none of its rows are in flight.
    fn is_closed(&self) -> bool {
        self.driver.lock().map_or(true, |driver| driver.is_closed())
    }

    /// The rows that have changed since another brick began to copy the logical node.
    fn take_changes(&self) -> Option<ChangedRows> {
        self.driver.lock().ok()?.take_changes()
    }

    /// Whether an object is written by a transaction over several logical nodes whose outcome is not known or not durable here. A failed
    /// driver is reported by what follows.
    fn is_unsettled(&self, oid: Oid) -> bool {
        self.has_prepared.load(Ordering::Acquire) && self.lock().is_ok_and(|driver| driver.is_unsettled(oid))
    }

    /// What is damaged, if the driver has failed for that reason. Until that is noted, it does not wait for the driver: others may be locked
    /// meanwhile.
    fn damage(&self) -> Option<Arc<str>> {
        if self.damage.get().is_none()
            && let Ok(driver) = self.driver.try_lock()
            && let Some(why) = driver.failure().filter(|why| why.kind() == ErrorKind::Corrupt)
        {
            let _ = self.damage.set(describe_damage(why));
        }
        self.damage.get().cloned()
    }

    fn lock(&self) -> Result<MutexGuard<'_, Driver>> {
        let driver = self.driver.lock();
        // A driver that has panicked may be in an inconsistent state.
        let driver = driver.map_err(|_| Error::new(ErrorKind::Internal, "the logical node has panicked"))?;
        match driver.failure() {
            Some(why) => Err(Error::new(why.kind(), format!("the logical node cannot be served: {}", why.message()))),
            None => Ok(driver),
        }
    }
}

impl Nodes {
    /// The logical nodes of a brick, which serves none yet.
    ///
    /// # Errors
    /// If the rows of earlier moves cannot be read.
    pub(crate) fn new(
        store: Store,
        cluster_view: Arc<ClusterView>,
        id: BrickId,
        config: &Config,
        opening: Option<Arc<LocalOpening>>,
    ) -> Result<Arc<Self>> {
        let settings = ManagerSettings { brick: id, first_job: rand::random(), limits: MoveLimits::SERVING };
        let manager = NodeManager::new(settings, RowReader::new(store.clone()))?;
        let nodes = Arc::new_cyclic(|this| Self {
            this: this.clone(),
            cold_reads: ColdReads::new(),
            is_in_memory: store.is_in_memory(),
            store,
            upload_lease_ms: config.upload_lease.as_millis() as Ms,
            time: MonotonicClock::of_process(),
            served: ArcSwap::default(),
            inbox: Arc::default(),
            handling: Mutex::default(),
            openings: AtomicU64::new(0),
            brick_links: BrickLinks::new(config.cluster_credentials.clone(), cluster_view.witnesses.clone()),
            cluster_view,
            id,
            opening,
            manager: Mutex::new(manager),
            closing: Mutex::default(),
            finishing: Mutex::default(),
            refreshing: Mutex::default(),
            answer_counts: Arc::default(),
            quotas: SpaceQuotas::default(),
            two_phases_until: AtomicU64::new(0),
            damaged: ArcSwap::default(),
            unserved_log: LogLimiter::default(),
            has_panicked: AtomicBool::new(false),
        });
        let weak = nodes.this.clone();
        nodes.store.set_reply_hook(move |replies| {
            weak.upgrade().inspect(|nodes| nodes.on_replies(replies));
        });
        Ok(nodes)
    }

    /// Whether this process may still serve the brick.
    pub(super) fn is_current(&self) -> bool {
        self.opening.as_ref().is_none_or(|opening| opening.is_current())
    }

    /// Checks that this process may still serve the brick, and that its clock is right (L2).
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] with the reason if it may not.
    pub(super) fn check_current(&self) -> Result<()> {
        self.check_opening()?;
        self.cluster_view.clock.check()
    }

    /// Checks that this process may still serve the brick.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] with the reason if it may not.
    pub(super) fn check_opening(&self) -> Result<()> {
        if self.has_panicked.load(Ordering::Acquire) {
            let what = "the background work of the brick has panicked: restart its process; its log says what happened";
            return Err(Error::new(ErrorKind::Unavailable, what));
        }
        match self.opening.as_ref().and_then(|opening| opening.end_reason()) {
            Some(why) => Err(Error::new(ErrorKind::Unavailable, why)),
            None => Ok(()),
        }
    }

    /// Compares the openings of this and other bricks with the catalogue.
    fn follow_openings(&self) {
        let Some(catalog) = self.cluster_view.catalog() else { return };
        self.cluster_view.witnesses.note_catalog(&catalog);
        self.brick_links.close_superseded();
        if let Some(opening) = &self.opening {
            opening.check_catalog(&catalog);
        }
    }

    /// Answers another process that asks what this one saw of a brick's log.
    ///
    /// # Errors
    /// As [`BrickLinks::answer_witness`].
    pub(super) fn answer_witness(&self, asked: &AskWitness) -> Result<Witnesses> {
        let mut answer = self.brick_links.answer_witness(asked)?;
        if let Some(wanted) = &asked.transactions {
            let nodes = self.served_epochs().into_iter().map(|(node, _)| node);
            match answer_transactions(wanted.clone(), nodes, &self.store) {
                Ok(known) => answer.transactions = Some(known),
                // What was seen of the log counts all the same, and the brick is named as one that has not told.
                Err(error) => warn!(%error, "what this brick knows of transactions cannot be told"),
            }
        }
        match (&self.opening, &asked.claimed) {
            (Some(own), claimed) if asked.brick == self.id.0 => {
                claimed.iter().try_for_each(|claimed| opening_of(claimed).map(|claimed| own.check_claim(claimed)))?;
                Ok(Witnesses { seen: vec![own.own_position()], ..answer })
            }
            _ => Ok(answer),
        }
    }

    /// Notes what a peer server saw of this and other logs.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if an entry names no opening.
    pub(super) fn note_witnesses(&self, seen: &Witnesses) -> Result<()> {
        match &self.opening {
            Some(own) => own.note_all(seen, &self.cluster_view.witnesses, "a peer server saw it"),
            None => Ok(()),
        }
    }

    fn lock_manager(&self) -> Result<MutexGuard<'_, NodeManager>> {
        self.manager.lock().map_err(|_| Error::new(ErrorKind::Internal, "the manager of logical nodes has panicked"))
    }

    fn lock_closing(&self) -> MutexGuard<'_, BTreeMap<NodeId, Arc<ServedNode>>> {
        // The data is consistent between statements, so a poisoned lock is harmless.
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves the logical nodes of the placement map, and connects to the other bricks.
    pub(super) fn follow_map(self: &Arc<Self>) {
        let map = self.cluster_view.placement.snapshot();
        let others = map.bricks.iter().filter(|(brick, _)| **brick != self.id);
        self.brick_links.set_bricks(&others.map(|(brick, address)| (*brick, address.clone())).collect(), self);
        self.manage(|manager, now| manager.follow_map(map, now));
    }

    /// A problem to report in `/health`; `None` if there is none.
    pub(crate) fn health_problem(&self) -> Option<String> {
        let full = |served: &Arc<ServedNode>| {
            served.lock().map_or_else(|error| Some(error.to_string()), |one| one.health_problem())
        };
        if let Err(error) = self.check_current() {
            return Some(error.to_string());
        }
        if let Some(why) = self.cluster_view.catalogue_problem() {
            return Some(why);
        }
        let unserved = match self.lock_manager() {
            Ok(manager) => manager.problem().map(ToString::to_string),
            Err(error) => Some(error.to_string()),
        };
        // It may read the disk, so the manager is not locked.
        let unserved = unserved.map(|problem| format!("{problem}{}", self.uncounted_problem()));
        unserved.or_else(|| self.served.load().values().find_map(full))
    }

    /// The metrics of the brick.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let mut metrics =
            vec![Metric::gauge("brick_number", self.id.0.into(), "The number of the brick in the catalogue.")];
        metrics.extend(self.additive_metrics());
        if let Some(catalog) = self.cluster_view.catalog() {
            metrics.extend(crate::meta::catalog_metrics(&catalog));
        }
        metrics
    }

    /// Those of which a sum over bricks has a meaning.
    pub(crate) fn additive_metrics(&self) -> Vec<Metric> {
        let served = self.served.load().len() as u64;
        let moving = &self.cluster_view.placement.snapshot().moving;
        let coming = moving.values().filter(|one| one.to == self.id).count() as u64;
        let sealed = moving.values().filter(|one| one.from == self.id && one.sealed.is_some()).count() as u64;
        let mut metrics = vec![
            Metric::gauge("nodes_served", served, "Logical nodes that are served here."),
            Metric::gauge("nodes_moving_in", coming, "Logical nodes that move to here."),
            Metric::gauge("nodes_sealed", sealed, "Logical nodes that are about to be served elsewhere."),
        ];
        metrics.extend(self.usage_metrics());
        metrics.extend(self.answer_counts.metrics());
        metrics.extend(self.cold_reads.metrics());
        metrics
    }

    /// Opens a logical node from its rows. What its driver wants done is carried out when it is served: the result of rows finds the driver
    /// only then.
    fn open(&self, node: NodeId, NodePlacement { epoch, moves, .. }: NodePlacement) -> Result<ServedNode> {
        let reader = RowReader::with_cold_reads(self.store.clone(), self.cold_reads.clone());
        let opening_rows = Driver::opening_rows(node, &reader)?;
        let is_new = opening_rows.is_some();
        if let Some(rows) = opening_rows {
            self.store.commit_rows(rows)?;
        }
        let opening = self.openings.fetch_add(1, Ordering::Relaxed);
        let settings = OpenSettings {
            node,
            moves,
            skew_ms: SKEW_MS,
            windows: WINDOWS,
            portion: PortionLimits::SERVING,
            upload_lease_ms: self.upload_lease_ms,
            opening,
            is_new,
        };
        let mut driver = Driver::open(settings, reader, self.answer_counts.clone(), self.time.now())?;
        self.cluster_view.clock.note_log(driver.clock());
        driver.set_time(self.cluster_view.clock.cluster_time());
        self.follow_schema(&mut driver);
        if let Some(why) = driver.failure() {
            return Err(Error::new(why.kind(), why.message().to_owned()));
        }
        let has_prepared = driver.has_prepared();
        let served = ServedNode { epoch, driver: Mutex::new(driver), has_prepared, damage: OnceLock::new() };
        debug!(%node, epoch, "serving a logical node");
        Ok(served)
    }

    /// Calls `act` with the driver of a logical node and carries out its outputs.
    ///
    /// # Errors
    /// If the logical node is not served here or has failed.
    pub(super) fn with_driver<T>(&self, node: NodeId, act: impl FnOnce(&mut Driver) -> Result<T>) -> Result<T> {
        let served = self.require_served(node)?;
        let mut driver = served.lock()?;
        let acted = act(&mut driver);
        self.carry_out(&served, &mut driver);
        acted
    }

    /// Calls `act` with a driver and carries out its outputs; does nothing if the logical node has failed.
    fn act(&self, served: &ServedNode, act: impl FnOnce(&mut Driver)) {
        if let Ok(mut driver) = served.lock() {
            act(&mut driver);
            self.carry_out(served, &mut driver);
        }
    }

    /// Gives a driver what the catalogue says of its space now: classes and indexes, the quota, and what is being removed.
    fn follow_schema(&self, driver: &mut Driver) {
        if let Some(catalog) = self.cluster_view.catalog()
            && let Some(space) = catalog.space_of(driver.node())
        {
            driver.set_index_paces(&BuildPace::of_space(&catalog, space.id), self.time.now());
            driver.set_schema(space.id, &catalog.schema(space.id), self.time.now());
            driver.set_quota(self.quota_of(space));
            driver.set_removals(&space.removals);
        }
    }

    fn follow_schemas(&self) {
        self.forget_quotas();
        for served in self.served.load().values() {
            self.act(served, |driver| self.follow_schema(driver));
        }
    }

    fn served_node(&self, node: NodeId) -> Option<Arc<ServedNode>> {
        self.served.load().get(&node).cloned()
    }

    /// The logical node, or the error for the requester if it is not served here.
    fn require_served(&self, node: NodeId) -> Result<Arc<ServedNode>> {
        self.served_node(node).ok_or_else(|| self.not_served(node))
    }

    /// The logical nodes that cannot be opened because their rows are damaged.
    pub(crate) fn damaged(&self) -> arc_swap::Guard<Arc<DamagedNodes>> {
        self.damaged.load()
    }

    /// What is damaged at a logical node that cannot be served for that reason.
    fn damage_of(&self, node: NodeId) -> Option<Arc<str>> {
        if let Some(damage) = self.damaged.load().get(&node) {
            return Some(damage.clone());
        }
        let damage = self.served_node(node)?.damage()?;
        self.inbox.add(NodeTask::Damaged { node, damage: damage.clone() });
        Some(damage)
    }

    /// The error for the requester of a logical node that is not served here.
    fn not_served(&self, node: NodeId) -> Error {
        match self.damage_of(node) {
            Some(damage) => damaged_node_error(node, &damage),
            None => {
                let what = format!("logical node {:x} is not served here: ask again with a newer map", node.0);
                Error::new(ErrorKind::Unavailable, what)
            }
        }
    }

    /// Reserves page numbers: see [`NodeDriver::reserve`]. `done` receives the first number when the reservation is durable.
    pub(crate) fn reserve(
        &self,
        node: NodeId,
        space: SpaceId,
        pages: u64,
        done: impl FnOnce(Result<u64>) + Send + 'static,
    ) {
        let Some(served) = self.served_node(node) else { return done(Err(self.not_served(node))) };
        // The node stays locked until the rows are submitted, so reservations are submitted in order.
        let reserved = served.lock().and_then(|mut driver| Ok((driver.reserve(space, pages)?, driver)));
        match reserved {
            Ok((Reservation { first, rows }, _driver)) => {
                let (inbox, opening) = (self.inbox.clone(), self.opening.clone());
                self.store.submit_rows(rows, move |result| {
                    let ended = opening.and_then(|opening| opening.end_reason());
                    let ended = ended.map(|why| Error::new(ErrorKind::Unavailable, why));
                    done(ended.map_or_else(|| result.map(|_| first), Err));
                    inbox.add(NodeTask::Reserved { node });
                });
            }
            Err(error) => done(Err(error)),
        }
    }

    // -------------------------------------------------------------------------------------------- background task

    /// Handles tasks, deadlines and changes of the map and the catalogue. Never returns while the map is watched.
    pub(crate) async fn run(self: &Arc<Self>) {
        let (mut map, mut tasks) = (self.cluster_view.placement.watch(), Vec::new());
        let mut catalogue = self.cluster_view.catalog_changes();
        let mut clock = self.cluster_view.clock.changes();
        self.follow_openings();
        self.follow_map();
        loop {
            self.inbox.timer.clear();
            self.inbox.take(&mut tasks);
            let next = self.handle_tasks(&mut tasks);
            self.inbox.timer.set(next);
            tokio::select! {
                () = self.inbox.timer.wait(&self.time) => {}
                changed = map.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.follow_map();
                }
                () = next_change(&mut catalogue) => {
                    self.follow_openings();
                    self.follow_schemas();
                }
                // The view has the clock as long as it exists.
                Ok(()) = clock.changed() => self.follow_time(),
            }
        }
    }

    /// Gives all drivers the time of the cluster.
    fn follow_time(&self) {
        let time = self.cluster_view.clock.cluster_time();
        self.served.load().values().filter_map(|served| served.lock().ok()).for_each(|mut one| one.set_time(time));
    }

    /// Handles tasks, and what it is time for. Returns when that is next.
    fn handle_tasks(self: &Arc<Self>, tasks: &mut Vec<NodeTask>) -> Ms {
        let _delivery = DeliveryScope::enter();
        self.handle_events(&self.lock_handling());
        self.check_closing();
        for task in tasks.drain(..) {
            self.handle_task(task);
        }
        let now = self.time.now();
        let next = self.served.load().values().map(|served| self.poll_node(served, now)).min();
        next.unwrap_or(Ms::MAX).min(self.poll_manager(now))
    }

    /// Does what it is time for about placement. Returns when that is next.
    fn poll_manager(self: &Arc<Self>, now: Ms) -> Ms {
        let deadline = || self.lock_manager().map_or(Ms::MAX, |manager| manager.deadline());
        if deadline() <= now {
            self.manage(NodeManager::poll);
        }
        deadline()
    }

    fn poll_node(&self, served: &ServedNode, now: Ms) -> Ms {
        let Ok(mut driver) = served.lock() else { return Ms::MAX };
        if driver.deadline() <= now {
            driver.poll(now);
            self.carry_out(served, &mut driver);
        }
        driver.deadline()
    }

    fn lock_refreshing(&self) -> MutexGuard<'_, BTreeSet<SpaceId>> {
        // The data is consistent between statements, so a poisoned lock is harmless.
        self.refreshing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refreshes the schema of a space from the catalogue, unless that is being done.
    fn refresh_schema(self: &Arc<Self>, space: SpaceId) {
        if !self.lock_refreshing().insert(space) {
            return;
        }
        let nodes = self.clone();
        tasks::spawn(async move {
            let learned = time::timeout(SCHEMA_TIMEOUT, nodes.cluster_view.refresh_schema(space)).await;
            match learned {
                Ok(Ok(_)) => nodes.on_schema_refreshed(space),
                Ok(Err(error)) => {
                    warn!(space = space.0, %error, "the schema cannot be refreshed from the catalogue")
                }
                Err(_) => {}
            }
            nodes.lock_refreshing().remove(&space);
        });
    }

    /// Gives the refreshed schema of a space to all drivers. It tells nothing of the classes of other spaces.
    fn on_schema_refreshed(&self, space: SpaceId) {
        self.follow_schemas();
        for served in self.served.load().values() {
            self.act(served, |driver| driver.on_schema_refreshed(space));
        }
    }

    fn handle_task(self: &Arc<Self>, task: NodeTask) {
        match task {
            NodeTask::Reserved { node } => {
                self.act_at_writing(node, Driver::finish_reservation);
                self.check_closing();
            }
            NodeTask::Staged { id, size, answer } => self.end_upload(id, size, answer),
            NodeTask::ManagerChanged => self.manage(|_, _| ()),
            NodeTask::JobEnded { job, finished } => self.end_job(job, finished),
            NodeTask::Damaged { node, damage } => self.manage(|manager, _| manager.note_damage(node, damage)),
            NodeTask::Reopen { node } => self.manage(|manager, _| manager.reopen(node)),
            NodeTask::RefreshSchema { space } => self.refresh_schema(space),
        }
    }
}

#[cfg(test)]
mod tests;
