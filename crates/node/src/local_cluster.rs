//! A whole cluster in one process: catalogue, bricks and peer servers.
//!
//! The catalogue and the first brick share one store, which is the data directory. So they have one log and one backup, and a
//! directory that was copied or restored is of one moment. Further bricks have directories below it. See
//! docs/decisions/one-process.md.

mod directories;

use std::collections::BTreeMap;
use std::sync::Arc;

use meta::MetaStore;
use meta::catalog::{BrickId, SpaceOptions};
use model::{Error, ErrorKind, Result};
use store::Store;

use crate::blocking;
use crate::cluster_view::ClusterView;
use crate::meta::MetaServer;
use crate::openings::WitnessTable;
use crate::process::{BrickProcess, PeerProcess};
use crate::{Config, IoRuntimes, IoThreads, LocalBrick};

pub(crate) use directories::{BRICKS_ROW, brick_directory_name, record_bricks};
pub use directories::{BrickDirectories, brick_directories, data_directory_of};

/// The file in the data directory that authenticates processes that join.
pub const SECRET_FILE: &str = "cluster.secret";
/// The space of a new cluster.
pub const MAIN_SPACE: &str = "main";

/// The servers of a cluster in this process. It must be [ended](LocalCluster::end): dropping it ends nothing.
#[derive(Default)]
pub struct LocalCluster {
    /// The threads that its servers share, unless each has its own.
    threads: Option<IoThreads>,
    bricks: Vec<BrickProcess>,
    meta: Option<MetaServer>,
    peers: Vec<PeerProcess>,
}

impl LocalCluster {
    /// A cluster whose servers are to share `threads` threads, at least one: fewer hand-overs for each message, and less that is done
    /// at the same time.
    ///
    /// # Errors
    /// As [`IoThreads::start`].
    pub fn with_shared_threads(threads: usize) -> Result<(Self, IoRuntimes)> {
        let threads = IoThreads::start(threads.max(1))?;
        let runtimes = threads.runtimes();
        Ok((Self { threads: Some(threads), ..Self::default() }, runtimes))
    }

    /// Starts a brick for each store, of which the first has the catalogue, and peer servers, and creates the space [`MAIN_SPACE`] with
    /// this number of logical nodes, or the default one. Stores have the numbers of their directories, counted from 1. `brick` gives the
    /// configuration of each; `meta` serves the `catalogue`. What was started before an error is ended by [`LocalCluster::end`].
    ///
    /// # Errors
    /// Those of the servers; [`ErrorKind::Exists`] if the space has another number of logical nodes.
    pub async fn start(
        &mut self,
        catalogue: Arc<dyn MetaStore>,
        meta: MetaServer,
        stores: BTreeMap<u16, Store>,
        brick: impl Fn(u16) -> Config,
        peers: Vec<Config>,
        nodes: Option<u32>,
    ) -> Result<()> {
        let clock = meta.clock().clone();
        self.meta = Some(meta);
        let view = ClusterView::follow_with(catalogue, WitnessTable::new(), clock).await?;
        let first = stores.get(&1).cloned();
        let mut started = BTreeMap::new();
        for (number, store) in stores {
            let process = BrickProcess::start(view.clone(), store, brick(number), &[]).await?;
            started.insert(number, BrickId(process.number()));
            self.bricks.push(process);
        }
        if let Some(first) = first {
            blocking::wait(move || record_bricks(&first, started)).await?;
        }
        create_main_space(&view, nodes).await?;
        let local_bricks: Vec<LocalBrick> = self.bricks.iter().map(|brick| brick.server().local_brick()).collect();
        for config in peers {
            let config = Config { local_bricks: local_bricks.clone(), ..config };
            self.peers.push(PeerProcess::start(view.clone(), config, &[]).await?);
        }
        for peer in &self.peers {
            peer.wait_connected().await;
        }
        Ok(())
    }

    /// The bricks.
    #[must_use]
    pub fn bricks(&self) -> &[BrickProcess] {
        &self.bricks
    }

    /// The peer servers.
    #[must_use]
    pub fn peers(&self) -> &[PeerProcess] {
        &self.peers
    }

    /// Ends all servers in good order, whatever happens to one of them.
    ///
    /// # Errors
    /// The first error: a store cannot be closed, or a server ends in disorder.
    pub async fn end(self) -> Result<()> {
        let Self { threads, bricks, meta, peers } = self;
        // In reverse order, because later servers depend on earlier ones. The first brick closes the store that the catalogue uses.
        let mut ended = Ok(());
        for peer in peers.into_iter().rev() {
            ended = ended.and(peer.end().await);
        }
        let mut bricks = bricks.into_iter();
        let first = bricks.next();
        for brick in bricks.rev() {
            ended = ended.and(brick.end().await);
        }
        if let Some(meta) = meta {
            ended = ended.and(meta.shutdown().await);
        }
        if let Some(first) = first {
            ended = ended.and(first.end().await);
        }
        match threads {
            Some(threads) => ended.and(threads.end().await),
            None => ended,
        }
    }
}

/// Creates the space of a new cluster.
///
/// # Errors
/// [`ErrorKind::Exists`] if it exists with another number of logical nodes than the wanted one.
async fn create_main_space(view: &ClusterView, nodes: Option<u32>) -> Result<()> {
    match view.create_space(MAIN_SPACE, SpaceOptions { nodes, ..SpaceOptions::default() }).await {
        Err(error) if error.kind() == ErrorKind::Exists => {}
        created => return created.map(drop),
    }
    let Some(wanted) = nodes else { return Ok(()) };
    match view.space(MAIN_SPACE)?.nodes.len() {
        count if count == wanted as usize => Ok(()),
        count => {
            let what = format!("the space {MAIN_SPACE} has {count} logical nodes and cannot get {wanted}");
            Err(Error::new(ErrorKind::Exists, what))
        }
    }
}

#[cfg(test)]
mod tests {
    use meta::Embedded;
    use meta::catalog::{CatalogEditor, Parameters};
    use store::Options;

    use super::*;

    #[tokio::test]
    async fn bricks_have_numbers_and_the_space_its_logical_nodes() {
        let catalogue: Arc<dyn MetaStore> = Arc::new(Embedded::in_memory().unwrap());
        CatalogEditor::new(catalogue.clone()).set_up(&Parameters::generate()).await.unwrap();
        let config = || Config { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, ..Config::default() };
        let meta = MetaServer::start(catalogue.clone(), config()).await.unwrap();
        let stores = (1..=2).map(|number| (number, Store::in_memory(Options::default()).unwrap())).collect();
        let mut cluster = LocalCluster::default();
        cluster.start(catalogue.clone(), meta, stores, |_| config(), Vec::new(), Some(100)).await.unwrap();
        assert!(cluster.bricks().iter().map(BrickProcess::number).eq([1, 2]));
        let view = ClusterView::follow(catalogue).await.unwrap();
        assert_eq!(view.space(MAIN_SPACE).unwrap().nodes.len(), 100);
        create_main_space(&view, None).await.unwrap();
        create_main_space(&view, Some(100)).await.unwrap();
        let refused = create_main_space(&view, Some(8)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Exists);
        assert_eq!(refused.message(), "the space main has 100 logical nodes and cannot get 8");
        cluster.end().await.unwrap();
    }
}
