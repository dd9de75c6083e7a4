//! The meta-server: serves the catalogue of a cluster over the wire.
//!
//! ```text
//!   bricks, peer servers, tools ── RemoteMetaStore ──▶ MetaConnection ──▶ MetaStore: embedded, or etcd
//! ```
//!
//! [`MetaServer`] serves any [`MetaStore`]. [`RemoteMetaStore`] is a `MetaStore` that asks a meta-server, so code that uses a
//! `MetaStore` works the same in the process of the meta-server and elsewhere.
//!
//! A write is executed once, however often it is sent (`write_deduplicator`). A writer that has lost the answer sends the write
//! again and gets the first outcome, as long as the meta-server has not restarted.

pub(crate) mod call_timeout;
mod codec;
mod meta_connection;
mod remote_meta_store;
mod store_probe;
mod write_deduplicator;

use std::sync::Arc;

use meta::catalog::{Catalog, CatalogEditor, Follower, Parameters};
use meta::{MetaStore, Revision};
use model::{Error, ErrorKind, Result, SpaceId};
use tokio::sync::watch;
use tracing::error;
use wire::handshake::{self, Terms, Witnessed};
use wire::link::Mailbox;
use wire::proto;
use wire::tasks;

use crate::auth::Principal;
use crate::openings;
use crate::process_clock::ProcessClock;
use crate::server::{self, AdmittedConnection, Config, Metric, ServerCounters, Thread, server_handle};
use meta_connection::MetaConnection;
pub use remote_meta_store::RemoteMetaStore;
use store_probe::StoreProbe;
use write_deduplicator::WriteDeduplicator;

server_handle! {
    /// A running meta-server.
    MetaServer serves MetaRole
}

impl MetaServer {
    /// Serves the catalogue in `store`, and initializes it if it is empty.
    ///
    /// # Errors
    /// As [`Brick::start_in`](crate::Brick::start_in); and if the catalogue cannot be read, or a newer version has written it.
    pub async fn start(store: Arc<dyn MetaStore>, config: Config) -> Result<Self> {
        let editor = CatalogEditor::new(store.clone());
        editor.set_up(&Parameters::generate()).await?;
        let follower = Follower::start(store.clone()).await?;
        openings::check_catalogue(&editor, &follower.catalog(), &config.cluster_credentials).await?;
        let opened = editor.add_own_opening(rand::random()).await?;
        follower.wait_for_revision(opened.revision).await?;
        let ended = watch::Sender::new(None);
        let clock = ProcessClock::of_catalogue();
        let probe = StoreProbe::start(store.clone())?;
        let role = MetaRole { store, editor, follower, ended, deduplicator: WriteDeduplicator::new(), clock, probe };
        Ok(Self { server: Self::start_server(role, config).await? })
    }

    /// The clock of its process, which other roles in the process share.
    #[must_use]
    pub fn clock(&self) -> &Arc<ProcessClock> {
        &self.server.role().clock
    }

    /// Waits until it must not serve any more, because its catalogue went back in time or was moved, and returns why.
    pub async fn wait_until_ended(&self) -> String {
        let mut ended = self.server.role().ended.subscribe();
        let why = ended.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        match why {
            Some(why) => why,
            // The sender is a part of this value.
            None => std::future::pending().await,
        }
    }
}

/// What all threads of a meta-server share.
pub(crate) struct MetaRole {
    store: Arc<dyn MetaStore>,
    editor: CatalogEditor,
    follower: Follower,
    /// Why the catalogue must not be served any more.
    ended: watch::Sender<Option<String>>,
    deduplicator: Arc<WriteDeduplicator>,
    clock: Arc<ProcessClock>,
    probe: StoreProbe,
}

impl MetaRole {
    fn check_caller(&self, hello: &proto::Hello, who: &Principal) -> Result<()> {
        // The catalogue has data of all users.
        who.check_administrator(Some(&self.follower.load()))?;
        self.check_witnessed(&hello.witnessed)
    }

    /// Compares the catalogue with what a process saw of it.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] if the catalogue is known to have gone back in time.
    fn check_witnessed(&self, seen: &[Witnessed]) -> Result<()> {
        if let Some(why) = &*self.ended.borrow() {
            return Err(Error::new(ErrorKind::Denied, why.clone()));
        }
        let catalog = self.follower.load();
        let forced =
            seen.iter().filter(|seen| seen.brick == 0).map(|seen| Ok(openings::witnessed_from_proto(seen)?.1.forced));
        let mut later = forced.collect::<Result<Vec<_>>>()?;
        later.retain(|forced| catalog.own_openings().check(catalog.revision().0, *forced).is_err());
        if later.is_empty() {
            return Ok(());
        }
        // The copy of this process may be behind, so the store of the catalogue decides.
        let (editor, ended) = (self.editor.clone(), self.ended.clone());
        tasks::spawn(async move {
            for forced in later {
                let checked = openings::check_own_position(&editor, forced, "a process that connects saw it").await;
                if let Err(why) = checked
                    && why.kind() == ErrorKind::Denied
                {
                    error!(%why, "this meta-server stops serving");
                    ended.send_replace(Some(why.to_string()));
                    return;
                }
            }
        });
        Ok(())
    }
}

impl server::ServerRole for MetaRole {
    type Service = MetaConnection;
    type Admission = Principal;

    const NAME: &'static str = "meta-server";

    fn catalog(&self) -> Option<Arc<Catalog>> {
        Some(self.follower.catalog())
    }

    fn catalog_changes(&self) -> Option<watch::Receiver<Revision>> {
        Some(self.follower.subscribe())
    }

    fn clock(&self) -> Option<&ProcessClock> {
        Some(&self.clock)
    }

    async fn admit(&self, config: &Config, hello: &proto::Hello, who: &Principal) -> Result<(Terms, Principal)> {
        self.check_caller(hello, who)?;
        let (max_frame, max_in_flight) = (config.limits.max_frame, config.limits.max_in_flight);
        let (space, permission) = (SpaceId(0), handshake::Permission::None);
        let (time_ms, cluster) = (0, self.follower.load().cluster().to_owned());
        let terms = Terms { space, max_frame, max_in_flight, brick: 0, opening: None, permission, time_ms, cluster };
        Ok((terms, who.clone()))
    }

    fn check_admitted(&self, connection: &AdmittedConnection) -> Result<()> {
        self.check_caller(&connection.hello, &connection.principal)
    }

    fn serve(thread: &Arc<Thread<Self>>, who: Principal, _: &Arc<Mailbox>) -> MetaConnection {
        MetaConnection::new(thread.clone(), who)
    }

    async fn run_background(_: &Thread<Self>) {}

    fn tick(&self) {
        let catalog = self.follower.load();
        let Some(moved) = catalog.catalogue_move().filter(|_| self.ended.borrow().is_none()) else { return };
        let why = moved.explain();
        error!(%why, "this meta-server stops serving");
        self.ended.send_replace(Some(why));
    }

    fn metrics(&self, _: &ServerCounters) -> Vec<Metric> {
        catalog_metrics(&self.follower.load())
    }

    fn health_problem(&self) -> Option<String> {
        if let Some(why) = &*self.ended.borrow() {
            return Some(why.clone());
        }
        if let Some(why) = self.clock.refusal().or_else(|| self.probe.problem()) {
            return Some(why);
        }
        let catalog = self.follower.load();
        let flawed: Vec<String> = catalog.invalid_entries().take(3).map(|(key, why)| format!("{key}: {why}")).collect();
        if !flawed.is_empty() {
            return Some(format!("entries of the catalogue cannot be read: {}", flawed.join("; ")));
        }
        // The first one says what to do; the others are in `mortar brick list`.
        catalog.bricks().find_map(|(brick, _)| catalog.opening(brick.id)?.refused.clone())
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// The metrics of a catalogue.
pub(crate) fn catalog_metrics(catalog: &Catalog) -> Vec<Metric> {
    let alive = |alive: &Option<_>| u64::from(alive.is_some());
    let (mut bricks, mut bricks_alive, mut peers, mut peers_alive) = (0, 0, 0, 0);
    for (_, brick) in catalog.bricks() {
        bricks += 1;
        bricks_alive += alive(&brick);
    }
    for (_, peer) in catalog.peers() {
        peers += 1;
        peers_alive += alive(&peer);
    }
    let (spaces, nodes) = (catalog.spaces().count() as u64, catalog.placement_map().nodes().count() as u64);
    vec![
        Metric::gauge(
            "catalogue_revision",
            catalog.revision().0,
            "Revision of the last write to the catalogue that is known here.",
        ),
        Metric::gauge(
            "placement_epoch",
            catalog.placement_map().epoch().0,
            "Epoch of the placement map that is known here.",
        ),
        Metric::gauge("cluster_bricks", bricks, "Bricks of the cluster."),
        Metric::gauge("cluster_bricks_alive", bricks_alive, "Bricks of the cluster that are alive."),
        Metric::gauge("cluster_peers", peers, "Peer servers of the cluster."),
        Metric::gauge("cluster_peers_alive", peers_alive, "Peer servers of the cluster that are alive."),
        Metric::gauge("cluster_spaces", spaces, "Object spaces of the cluster."),
        Metric::gauge("cluster_nodes", nodes, "Logical nodes of the cluster."),
    ]
}

#[cfg(test)]
mod tests;
