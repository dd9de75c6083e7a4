//! The meta-server: the catalogue of a cluster, for processes that ask over the wire.
//!
//! ```text
//!   bricks, peer servers, tools ── Remote ──▶ desk ──▶ MetaStore: embedded, or etcd
//! ```
//!
//! [`MetaServer`] serves whatever keeps the catalogue; [`Remote`] is what keeps it as seen from other processes, so that all
//! that is built on [`MetaStore`] works the same in the process of the meta-server and elsewhere.
//!
//! A write is done once, however often it is sent (`once`): whoever has lost the answer asks again, and learns how it has
//! ended, as long as the meta-server is the same run.

mod codec;
mod desk;
mod once;
pub(crate) mod patience;
mod remote;

use std::net::SocketAddr;
use std::sync::Arc;

use meta::catalog::{Catalog, Editor, Follower, Parameters};
use meta::{MetaStore, Revision};
use model::{Result, SpaceId};
use tokio::sync::watch;
use wire::handshake::Terms;
use wire::link::Mailbox;
use wire::proto;
use wire::transport::Address;

use crate::doors::Who;
use crate::server::{self, Config, Figure, Metrics, Server, Thread};
use desk::Desk;
use once::Once;
pub use remote::Remote;

/// A meta-server that serves.
///
/// Dropped, it goes on serving until the process ends; [`MetaServer::shutdown`] ends it in good order.
pub struct MetaServer {
    server: Server<Role>,
}

impl std::fmt::Debug for MetaServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetaServer").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

impl MetaServer {
    /// Serves the catalogue that is kept by `store`, and sets it up if it is empty.
    ///
    /// # Errors
    /// As [`Brick::start`](crate::Brick::start); and if the catalogue cannot be read, or a newer program has written it.
    pub async fn start(store: Arc<dyn MetaStore>, config: Config) -> Result<Self> {
        let editor = Editor::new(store.clone());
        editor.set_up(&Parameters::generate()).await?;
        let follower = Follower::start(store.clone()).await?;
        let role = Role { store, editor, follower, once: Once::new() };
        Ok(Self { server: Server::start(role, config).await? })
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

    /// Ends it: takes no more connections, and answers what was asked. What keeps the catalogue goes on.
    pub async fn shutdown(self) -> Result<()> {
        self.server.shutdown().await
    }
}

/// What all threads of a meta-server share.
pub(crate) struct Role {
    store: Arc<dyn MetaStore>,
    editor: Editor,
    follower: Follower,
    once: Arc<Once>,
}

impl server::Role for Role {
    type Service = Desk;
    type Local = ();
    type Pass = Who;

    const NAME: &'static str = "meta-server";

    fn catalog(&self) -> Option<Arc<Catalog>> {
        Some(self.follower.catalog())
    }

    fn changed(&self) -> Option<watch::Receiver<Revision>> {
        Some(self.follower.changed())
    }

    fn admit(&self, config: &Config, _: &proto::Hello, who: &Who) -> Result<(Terms, Who)> {
        // The catalogue says all of everybody.
        who.is_administrator(Some(&self.follower.load()))?;
        let (max_frame, max_in_flight) = (config.limits.max_frame, config.limits.max_in_flight);
        Ok((Terms { space: SpaceId(0), max_frame, max_read: 0, max_in_flight, brick: 0 }, who.clone()))
    }

    fn serve(thread: &Arc<Thread<Self>>, who: Who, _: &Arc<Mailbox>) -> Desk {
        Desk::new(thread.clone(), who)
    }

    async fn beside(_: &Thread<Self>) {}

    fn tick(&self, _: &Config) {}

    fn figures(&self, _: &Metrics) -> Vec<Figure> {
        figures(&self.follower.load())
    }

    fn ailment(&self) -> Option<String> {
        let catalog = self.follower.load();
        let flawed: Vec<String> = catalog.flawed().take(3).map(|(key, why)| format!("{key}: {why}")).collect();
        (!flawed.is_empty()).then(|| format!("entries of the catalogue cannot be read: {}", flawed.join("; ")))
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// What a catalogue says in numbers.
pub(crate) fn figures(catalog: &Catalog) -> Vec<Figure> {
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
    let (spaces, nodes) = (catalog.spaces().count() as u64, catalog.map().nodes().count() as u64);
    vec![
        Figure::gauge(
            "catalogue_revision",
            catalog.revision().0,
            "The last write to the catalogue that is known here.",
        ),
        Figure::gauge("placement_epoch", catalog.map().epoch().0, "The last change of the placement map known here."),
        Figure::gauge("cluster_bricks", bricks, "Bricks of the cluster."),
        Figure::gauge("cluster_bricks_alive", bricks_alive, "Bricks of the cluster that live."),
        Figure::gauge("cluster_peers", peers, "Peer servers of the cluster."),
        Figure::gauge("cluster_peers_alive", peers_alive, "Peer servers of the cluster that live."),
        Figure::gauge("cluster_spaces", spaces, "Object spaces of the cluster."),
        Figure::gauge("cluster_nodes", nodes, "Logical nodes of the cluster."),
    ]
}

#[cfg(test)]
mod tests;
