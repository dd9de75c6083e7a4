//! The brick: serves a store.
//!
//! ```text
//!   connection
//!     ├─ quick requests: answered from the store on the I/O thread
//!     ├─ durable commits: submitted to the store; its thread reports when they are durable
//!     └─ requests that may block: answered on blocking threads
//! ```

mod answer_counts;
mod background_scrub;
mod backup_base;
mod changed_contents;
mod changed_rows;
mod cold_reads;
mod consistency;
mod content_reads;
mod content_rows;
mod cuts;
mod entries;
mod entry_rows;
mod filter_cost;
pub(crate) mod guards;
pub(crate) mod health;
mod index_rows;
mod indexes;
mod long_job;
mod node_driver;
mod node_inbox;
pub(crate) mod node_manager;
mod node_usage;
mod nodes;
pub(crate) mod page_rows;
mod passed_damage;
pub mod plant;
mod quota;
mod recent_pages;
mod resident;
mod routing;
mod row_reader;
mod scan;
mod scrub;
mod scrub_job;
mod service;
#[cfg(any(test, feature = "sim"))]
pub(crate) mod simulated;
mod space_clone;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use meta::Revision;
use meta::catalog::{Catalog, JobWorker};
use model::{Result, SpaceId};
use store::{Status as StoreStatus, Store};
use tokio::sync::{Semaphore, watch};
use wire::driving::{PeerHandle, PositionSource};
use wire::handshake::{self, Terms};
use wire::link::Mailbox;
use wire::proto;

use crate::auth::Principal;
use crate::cluster_view::ClusterView;
use crate::node_placement::BrickId;
use crate::openings::LocalOpening;
use crate::process_clock::ProcessClock;
use crate::server::{self, AdmittedConnection, Config, Metric, ServerCounters, Thread, server_handle};
use background_scrub::BackgroundScrub;
pub use background_scrub::ScrubSettings;
use cuts::Cuts;
pub use health::LocalBrick;
pub use node_driver::PageRead;
pub(crate) use node_driver::{RESERVABLE, STAGING_LEASE_MS, recover_records, recover_transactions};
use nodes::Nodes;
pub(crate) use nodes::SKEW_MS;
use service::BrickConnection;

server_handle! {
    /// A store that is being served.
    Brick serves BrickRole
}

impl Brick {
    /// Serves the logical nodes that the placement map assigns to brick `id` of a cluster. The brick listens when this returns.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`](model::ErrorKind::Denied) if an address is reachable from other machines and `config` is not
    /// [`insecure`](Config::insecure); [`ErrorKind::Io`](model::ErrorKind::Io) if the brick cannot listen.
    pub async fn start_in(realm: Arc<ClusterView>, id: BrickId, store: Store, config: Config) -> Result<Self> {
        let nodes = Nodes::new(store, realm, id, &config, None)?;
        Ok(Self { server: Self::start_server(BrickRole::new(nodes, &config), config).await? })
    }

    /// The same for a brick that was [opened](crate::openings::open_brick): it serves as long as that opening lasts.
    ///
    /// # Errors
    /// As [`Brick::start_in`].
    pub async fn start_opened(
        view: Arc<ClusterView>,
        opening: Arc<LocalOpening>,
        store: Store,
        config: Config,
    ) -> Result<Self> {
        let id = BrickId(opening.brick().0);
        let nodes = Nodes::new(store, view, id, &config, Some(opening))?;
        Ok(Self { server: Self::start_server(BrickRole::new(nodes, &config), config).await? })
    }
}

impl Brick {
    /// It, as the peer servers of its process see it.
    pub(crate) fn local_brick(&self) -> LocalBrick {
        self.server.role().local_brick()
    }

    /// Works on the parts of this brick in jobs, until it is dropped.
    pub(crate) fn work_on_jobs(&self, worker: JobWorker) -> impl Future<Output = ()> + Send + 'static {
        scrub_job::run(self.server.role().nodes.clone(), self.server.role().scrub.clone(), worker)
    }
}

/// State shared by all threads of a brick.
pub(crate) struct BrickRole {
    /// Permits for jobs that may take hours.
    long_jobs: Arc<Semaphore>,
    /// Permits for what has changed since the last cut of a backup that follows.
    followed: Arc<Semaphore>,
    cuts: Arc<Cuts>,
    nodes: Arc<Nodes>,
    scrub: Arc<BackgroundScrub>,
    /// The forced position of the store, for the answers of all connections.
    position: PositionSource,
}

impl BrickRole {
    fn new(nodes: Arc<Nodes>, config: &Config) -> Self {
        let long_jobs = Arc::new(Semaphore::new(long_job::AT_A_TIME));
        let followed = Arc::new(Semaphore::new(long_job::AT_A_TIME));
        let source = nodes.store.clone();
        let position: PositionSource = Arc::new(move || source.position());
        let cuts = Arc::new(Cuts::new(nodes.store.clone()));
        let scrub = BackgroundScrub::open(&nodes.store, config.scrub);
        Self { long_jobs, followed, cuts, nodes, scrub, position }
    }
}

impl BrickRole {
    fn local_brick(&self) -> LocalBrick {
        LocalBrick::new(self.nodes.clone(), self.scrub.clone())
    }

    fn check_caller(&self, hello: &proto::Hello, who: &Principal) -> Result<()> {
        // Permission of administrators: a direct connection to a brick bypasses all other permissions.
        who.check_administrator(server::ServerRole::catalog(self).as_deref())?;
        if let Some(own) = &self.nodes.opening {
            let seen = &hello.witnessed;
            seen.iter().try_for_each(|seen| own.check_witnessed(seen, "a process that connects saw it"))?;
        }
        if matches!(hello.role(), handshake::Role::Brick | handshake::Role::Peer) {
            self.nodes.cluster_view.clock.check()?;
        }
        self.nodes.check_opening()
    }
}

impl server::ServerRole for BrickRole {
    type Service = BrickConnection;
    type Admission = ();

    const NAME: &'static str = "brick";

    fn catalog(&self) -> Option<Arc<Catalog>> {
        self.nodes.cluster_view.catalog()
    }

    fn catalog_changes(&self) -> Option<watch::Receiver<Revision>> {
        self.nodes.cluster_view.catalog_changes()
    }

    fn clock(&self) -> Option<&ProcessClock> {
        Some(&self.nodes.cluster_view.clock)
    }

    async fn admit(&self, config: &Config, hello: &proto::Hello, who: &Principal) -> Result<(Terms, ())> {
        self.check_caller(hello, who)?;
        let opening = self.nodes.opening.as_ref().map(|own| own.own_position());
        let (max_frame, max_in_flight) = (config.limits.max_frame, config.limits.max_in_flight);
        // Requests to a brick name their space: other processes of the cluster work with all of them.
        let (space, brick, permission) = (SpaceId(0), self.nodes.id.0, handshake::Permission::None);
        Ok((
            Terms {
                space,
                max_frame,
                max_in_flight,
                brick,
                opening,
                permission,
                time_ms: self.nodes.cluster_view.clock.time_ms(),
                cluster: self.nodes.cluster_view.cluster(),
            },
            (),
        ))
    }

    fn check_admitted(&self, connection: &AdmittedConnection) -> Result<()> {
        self.check_caller(&connection.hello, &connection.principal)
    }

    fn serve(thread: &Arc<Thread<Self>>, (): (), mailbox: &Arc<Mailbox>) -> BrickConnection {
        let role = &thread.server.role;
        let post = PeerHandle::of_brick(mailbox.clone(), role.position.clone());
        BrickConnection { thread: thread.clone(), post, base: None, told_damage: None }
    }

    async fn run_background(thread: &Thread<Self>) {
        if thread.is_first() {
            let nodes = &thread.server.role.nodes;
            let _closing = nodes.cold_reads.closing_guard();
            let _scrub = thread.server.role.scrub.start(nodes);
            tokio::select! {
                () = nodes.run() => {}
                () = nodes.exchange_usages() => {}
            }
        }
    }

    fn handle_background_panic(&self, _: usize) {
        self.nodes.has_panicked.store(true, Ordering::Release);
    }

    fn tick(&self) {}

    fn metrics(&self, _: &ServerCounters) -> Vec<Metric> {
        let status = self.nodes.store.status();
        let mut metrics = vec![
            Metric::counter("store_version", status.version, "The newest durable position of the log."),
            Metric::counter("store_incarnation", status.incarnation, "How often the store was opened."),
        ];
        metrics.extend(store_metrics(&status));
        metrics.extend(self.nodes.metrics());
        metrics.extend(self.scrub.metrics());
        metrics
    }

    fn health_problem(&self) -> Option<String> {
        self.local_brick().problem()
    }

    fn close(&self) -> Result<()> {
        self.nodes.store.clone().close()
    }
}

/// The metrics of a store of which a sum over bricks has a meaning.
fn store_metrics(status: &StoreStatus) -> Vec<Metric> {
    vec![
        Metric::counter("store_commits_total", status.commits, "Transactions committed."),
        Metric::counter("store_forces_total", status.forces, "Forces of the log."),
        Metric::counter("store_logged_bytes_total", status.logged_bytes, "Bytes written to the log."),
        Metric::counter(
            "store_force_microseconds_total",
            status.force_us,
            "Time spent in writing and forcing the log.",
        ),
        Metric::counter("store_waits_total", status.waits, "Transactions that waited for room in the buffer."),
        Metric::counter("store_installs_total", status.installs, "Batches installed in the B-tree."),
        Metric::counter("store_installed_rows_total", status.installed_rows, "Rows installed in the B-tree."),
        Metric::counter("store_install_microseconds_total", status.install_us, "Time spent in installing."),
        Metric::gauge("store_buffer_bytes", status.mob_bytes, "Bytes of logged changes in memory."),
        Metric::gauge("store_buffer_limit_bytes", status.mob_limit, "Bytes of changes that may be in memory."),
        Metric::gauge("store_log_bytes", status.log_bytes, "Bytes of log segments."),
        Metric::gauge("store_tree_bytes", status.tree_bytes, "Bytes of the B-tree."),
        Metric::gauge("store_blob_bytes", status.blob_bytes, "Bytes of blob files, holes included."),
        Metric::gauge("store_snapshots", status.snapshots, "Snapshots and reads under way."),
        Metric::gauge("store_uploads", status.uploads, "Unfinished uploads."),
        Metric::gauge("store_disk_full", u64::from(status.disk_full), "Whether the disk was found full."),
        Metric::gauge("store_in_memory", u64::from(status.in_memory), "Whether the store is in memory only."),
    ]
}
