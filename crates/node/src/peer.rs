//! The peer server: clients connect to any one, and see one store (TODS, section 3).
//!
//! ```text
//!   clients ── Up, Call ──▶ ┌──────────────┐ ── Up, Ask ──▶ bricks
//!           ◀── Down, Reply │  PeerDriver  │ ◀── Down, Answer
//!                           └──────────────┘
//! ```
//!
//! [`driver::PeerDriver`] decides everything about transactions, caches, permissions and the status of spaces; it is a
//! machine without I/O. A peer server has a [`shard`] for each of its I/O threads: a machine with a number, an object cache and
//! connections to bricks of its own, which serves the clients whose connections that thread has. Shards share nothing that changes often, so
//! they work at the same time. To bricks and clients they are peer servers like any other; that they have one address and one entry in the
//! catalogue is all that joins them (docs/decisions/shards.md).
//!
//! | module | content |
//! | --- | --- |
//! | [`shard`] | the machine of an I/O thread, its lock, clock, timer, and connections to bricks |
//! | [`driver`] | the machine |
//! | [`admission`] | who is admitted to a space, and stays connected |
//! | [`peer_client`], [`downstreams`] | the state of a client, and the checks of its requests |
//! | [`requests`] | request → permission, scope, handler |
//! | [`client_connection`] | calls the handlers of that table |
//! | [`cache`], [`space_statuses`], [`outcome_counts`] | parts of the machine |
//! | [`query`] | queries: their machine, and the task that runs it |
//! | [`classes`], [`indexes`], [`moves`], [`jobs`] | work with the catalogue |
//! | [`groups`] | the redirectors that have registered |
//! | [`usage`], [`removal`] | what spaces take; removal of spaces and classes without objects |

mod admission;
pub(crate) mod cache;
pub(crate) mod classes;
mod client_connection;
pub(crate) mod downstreams;
pub(crate) mod driver;
mod groups;
mod indexes;
mod jobs;
mod moves;
mod outcome_counts;
mod page_pool;
pub(crate) mod peer_client;
pub mod plant;
pub(crate) mod query;
mod removal;
mod requests;
mod shard;
mod space_statuses;
mod usage;
mod user_rates;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use meta::Revision;
use meta::catalog::Catalog;
use model::{Error, ErrorKind, Result, SpaceId};
use protocol::ident::ClientId;
use tokio::sync::watch;
use wire::driving::PeerHandle;
use wire::handshake::{self, ClientNumber, Terms};
use wire::link::Mailbox;
use wire::proto;
use wire::proto::cluster::{AskWitness, Witnesses};

use crate::auth::{Principal, permission_to_proto};
use crate::brick::health::{self, LocalBrick};
use crate::brick_links::BrickLinks;
use crate::cluster_view::{ClusterView, SpaceView};
use crate::process_clock::ProcessClock;
use crate::server::{AdmittedConnection, Config, Metric, ServerCounters, ServerRole, Thread, server_handle};
use admission::{admit_to_space, check_still_admitted};
use client_connection::{Admission, ClientConnection};
use groups::{GroupRegistry, Registration};
use outcome_counts::OutcomeCounts;
use page_pool::{PAGES_PER_SECOND, PagePool};
use query::QueryLimits;
use shard::PeerShard;
use user_rates::UserRates;

server_handle! {
    /// A running peer server.
    PeerServer serves PeerRole
}

impl PeerServer {
    /// Serves clients of the cluster that `view` describes. `process` is a number that no other process or client ever had.
    ///
    /// # Errors
    /// As [`Brick::start_in`](crate::Brick::start_in); those of [`ClusterView::take_numbers`] with several threads.
    pub async fn start(view: Arc<ClusterView>, process: u64, config: Config) -> Result<Self> {
        let role = PeerRole::new(view, process, &config).await?;
        Ok(Self { server: Self::start_server(role, config).await? })
    }

    /// Why it does not serve all of the cluster's objects now, such as bricks that it cannot reach; `None` if it does.
    #[must_use]
    pub fn connection_problem(&self) -> Option<String> {
        self.server.role().connection_problem()
    }

    /// The connections to bricks of the first shard.
    pub(crate) fn first_brick_links(&self) -> Arc<BrickLinks> {
        self.server.role().shards[0].brick_links.clone()
    }
}

/// Numbers a second that the clients of one user get, one for each client: as many as a peer server has connections, in half a second.
const NUMBERS_PER_SECOND: u64 = 8_192;

/// State shared by all threads of a peer server.
pub(crate) struct PeerRole {
    cluster_view: Arc<ClusterView>,
    /// One for each I/O thread, in the order of the threads.
    shards: Vec<Arc<PeerShard>>,
    /// The bricks of this process.
    local_bricks: Vec<LocalBrick>,
    groups: Arc<GroupRegistry>,
    page_pool: Arc<PagePool>,
    page_rates: UserRates,
    number_rates: UserRates,
    /// How many connections were served.
    served: AtomicU64,
}

impl PeerRole {
    pub(crate) async fn new(cluster_view: Arc<ClusterView>, process: u64, config: &Config) -> Result<Self> {
        let count = config.thread_count();
        let further = match count {
            1 => 0..0,
            _ => {
                let first = cluster_view.take_numbers(count as u64 - 1).await?;
                first..first + count as u64 - 1
            }
        };
        let (cache_bytes, queries) = (config.cache_bytes / count, QueryLimits::default());
        let shard = |number| PeerShard::new(cluster_view.clone(), number, cache_bytes, queries.clone(), config);
        let shards = std::iter::once(process).chain(further).map(shard).collect();
        let local_bricks = config.local_bricks.clone();
        let (groups, page_pool, served) = (Arc::default(), Arc::default(), AtomicU64::new(0));
        let page_rates = UserRates::new(PAGES_PER_SECOND, "pages");
        let number_rates = UserRates::new(NUMBERS_PER_SECOND, "numbers of clients");
        Ok(Self { cluster_view, shards, local_bricks, groups, page_pool, page_rates, number_rates, served })
    }

    /// The registration of redirectors of a new connection.
    fn registration(&self) -> Registration {
        Registration::new(self.groups.clone(), self.served.fetch_add(1, Ordering::Relaxed))
    }

    /// What is wrong with the clock, the catalogue or the connections to bricks; `None` if nothing is.
    fn connection_problem(&self) -> Option<String> {
        let clock = self.cluster_view.clock.refusal();
        clock.or_else(|| self.shards.iter().find_map(|shard| shard.health_problem()))
    }

    fn shard_of(&self, thread: &Thread<Self>) -> &Arc<PeerShard> {
        &self.shards[thread.number]
    }

    /// The space of a caller; one without logical nodes for what concerns the whole cluster.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`]; [`ErrorKind::NotFound`] for administrators; [`ErrorKind::Unavailable`] if the clock of this process is
    /// wrong.
    fn admitted_space(&self, hello: &proto::Hello, who: &Principal) -> Result<Arc<SpaceView>> {
        if !hello.space.is_empty() {
            // Another peer server may have a right clock.
            self.cluster_view.clock.check()?;
        }
        let catalog = self.cluster_view.load_catalog();
        let catalog = catalog.as_deref().map(|catalog| &**catalog);
        match self.cluster_view.space(&hello.space) {
            // A connection about the whole cluster names no space.
            _ if hello.space.is_empty() => {
                who.check(catalog)?;
                Ok(Arc::new(SpaceView { id: SpaceId(0), name: String::new(), nodes: Vec::new() }))
            }
            // Only administrators learn which spaces there are.
            Err(unknown) => Err(who
                .check_administrator(catalog)
                .err()
                .map_or(unknown, |_| who.space_not_visible_error(&hello.space))),
            Ok(space) => {
                admit_to_space(who, catalog, &space.name)?;
                Ok(space)
            }
        }
    }

    /// The number of a caller, if it has one.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the number was not given to this client, for this space, in this cluster.
    async fn admitted_number(&self, hello: &proto::Hello, space: &SpaceView) -> Result<Option<ClientId>> {
        let Some(ClientNumber { number, token }) = ClientNumber::of_hello(hello) else { return Ok(None) };
        let key = self.cluster_view.client_number_key().await?;
        if key.matches(space.id, number, &token) {
            return Ok(Some(ClientId(number)));
        }
        let what = format!(
            "client number {number} was not given to this client here: the cluster, or the space of this name, is another \
             one than before; connect again with a new client"
        );
        Err(Error::new(ErrorKind::NotFound, what))
    }

    /// What a caller may do in a space.
    fn permission(&self, space: &str, who: &Principal) -> handshake::Permission {
        let catalog = self.cluster_view.load_catalog();
        permission_to_proto(who.permission(catalog.as_deref().map(|catalog| &**catalog), space))
    }

    /// Answers another process that asks what this one saw of a brick's log. When this has returned, no shard believes what an opening
    /// brings that the claim supersedes.
    ///
    /// # Errors
    /// As [`BrickLinks::answer_witness`].
    pub(crate) fn answer_witness(&self, asked: &AskWitness) -> Result<Witnesses> {
        let mut answer = Witnesses::default();
        for links in self.brick_links() {
            answer = links.answer_witness(asked)?;
        }
        Ok(answer)
    }

    /// The connections to bricks of each shard.
    pub(crate) fn brick_links(&self) -> impl Iterator<Item = &Arc<BrickLinks>> {
        self.shards.iter().map(|shard| &shard.brick_links)
    }
}

impl ServerRole for PeerRole {
    type Service = ClientConnection;
    type Admission = Admission;

    const NAME: &'static str = "peer server";

    fn catalog(&self) -> Option<Arc<Catalog>> {
        self.cluster_view.catalog()
    }

    fn catalog_changes(&self) -> Option<watch::Receiver<Revision>> {
        self.cluster_view.catalog_changes()
    }

    fn clock(&self) -> Option<&ProcessClock> {
        Some(&self.cluster_view.clock)
    }

    async fn admit(&self, config: &Config, hello: &proto::Hello, who: &Principal) -> Result<(Terms, Self::Admission)> {
        let space = self.admitted_space(hello, who)?;
        let permission = self.permission(&space.name, who);
        let (max_frame, max_in_flight) = (config.limits.max_frame, config.limits.max_in_flight);
        let patience = Some(hello.catalog_timeout_ms).filter(|given| *given > 0);
        let catalog_timeout = patience.map(|given| Duration::from_millis(given.into()));
        let is_redirector = hello.role() == handshake::Role::Redirector;
        let (id, number) = (space.id, self.admitted_number(hello, &space).await?);
        let pass = Admission { space, principal: who.clone(), is_redirector, number, catalog_timeout };
        let (time_ms, cluster) = (self.cluster_view.clock.time_ms(), self.cluster_view.cluster());
        let terms =
            Terms { space: id, max_frame, max_in_flight, brick: 0, opening: None, permission, time_ms, cluster };
        Ok((terms, pass))
    }

    fn check_admitted(&self, connection: &AdmittedConnection) -> Result<()> {
        let space = self.admitted_space(&connection.hello, &connection.principal)?;
        if space.name.is_empty() {
            return Ok(());
        }
        let catalog = self.cluster_view.load_catalog();
        let catalog = catalog.as_deref().map(|catalog| &**catalog);
        check_still_admitted(&connection.principal, catalog, &space.name, connection.terms.permission)
    }

    fn serve(thread: &Arc<Thread<Self>>, pass: Self::Admission, mailbox: &Arc<Mailbox>) -> ClientConnection {
        let shard = thread.server.role.shard_of(thread).clone();
        ClientConnection::new(shard, pass, PeerHandle::new(mailbox.clone()), thread.clone())
    }

    async fn run_background(thread: &Thread<Self>) {
        let shard = thread.server.role.shard_of(thread);
        match thread.is_first() {
            true => drop(tokio::join!(shard.run(), indexes::complete_indexes(shard))),
            false => shard.run().await,
        }
    }

    fn can_serve(&self, thread: usize) -> bool {
        self.shards.get(thread).is_none_or(|shard| !shard.has_panicked())
    }

    fn handle_background_panic(&self, thread: usize) {
        if let Some(shard) = self.shards.get(thread) {
            shard.has_ended.store(true, Ordering::Release);
        }
    }

    fn tick(&self) {
        self.shards.iter().for_each(|shard| shard.check_bricks());
        // Each brick is told once what all shards saw.
        if let Some(first) = self.brick_links().next() {
            first.share_witnesses();
        }
    }

    fn metrics(&self, _: &ServerCounters) -> Vec<Metric> {
        let (mut outcomes, mut unreachable, mut stopped) = (OutcomeCounts::default(), BTreeSet::new(), BTreeSet::new());
        let (mut hits, mut misses, mut bytes, mut holders) = (0, 0, 0, 0);
        let mut panicked = 0;
        for shard in &self.shards {
            let Ok(driver) = shard.lock() else {
                panicked += 1;
                continue;
            };
            let cached = driver.cache_counts();
            (hits, misses, bytes) = (hits + cached.0, misses + cached.1, bytes + cached.2);
            holders += driver.holder_count();
            outcomes.add(driver.outcome_counts());
            unreachable.extend(driver.unreachable_bricks());
            stopped.extend(driver.stopped_spaces().keys().copied());
        }
        let mut metrics = vec![
            Metric::counter("cache_hits_total", hits, "Reads that found their object in the object cache."),
            Metric::counter("cache_misses_total", misses, "Reads that did not."),
            Metric::gauge("cache_bytes", bytes as u64, "Bytes of objects in the object cache."),
            Metric::gauge("holders", holders as u64, "Sessions of clients."),
            Metric::gauge("threads_panicked", panicked, "Threads that serve nothing because a machine has panicked."),
        ];
        metrics.extend(outcomes.metrics());
        metrics.push(Metric::gauge(
            "bricks_unreachable",
            unreachable.len() as u64,
            "Bricks that serve logical nodes and cannot be reached from this peer server.",
        ));
        let stopped = stopped.len() as u64;
        metrics.push(Metric::gauge("spaces_stopped", stopped, "Spaces that are refused until their bricks are back."));
        if let Some(catalog) = self.cluster_view.catalog() {
            metrics.extend(crate::meta::catalog_metrics(&catalog));
        }
        metrics.extend(health::metrics_of_all(&self.local_bricks));
        metrics
    }

    fn health_problem(&self) -> Option<String> {
        self.connection_problem().or_else(|| health::problem_of_any(&self.local_bricks))
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
