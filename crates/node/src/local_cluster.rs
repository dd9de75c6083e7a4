//! A whole cluster in one process: catalogue, bricks and peer servers.
//!
//! The catalogue and the first brick share one store, which is the data directory. So they have one log and one backup, and a
//! directory that was copied or restored is of one moment. Further bricks have directories below it. See
//! docs/decisions/one-process.md.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use meta::MetaStore;
use meta::catalog::SpaceOptions;
use model::{ErrorKind, Result};
use store::Store;

use crate::cluster_view::ClusterView;
use crate::meta::MetaServer;
use crate::openings::WitnessTable;
use crate::process::{BrickProcess, PeerProcess};
use crate::purpose::Purpose;
use crate::{Config, IoRuntimes, IoThreads};

/// The file in the data directory that authenticates processes that join.
pub const SECRET_FILE: &str = "cluster.secret";
/// The space of a new cluster.
pub const MAIN_SPACE: &str = "main";

/// The name of the directory of a brick, within the data directory: from 2 on, as the data directory is that of the first one.
pub(crate) fn brick_directory_name(number: u16) -> String {
    format!("brick-{number}")
}

fn brick_directory(data: &Path, number: u16) -> PathBuf {
    data.join(brick_directory_name(number))
}

/// The directory and the purpose of each of the first `bricks` stores of a data directory.
pub fn brick_places(data: &Path, bricks: u16) -> impl Iterator<Item = (PathBuf, Purpose)> + use<'_> {
    (1..=bricks).map(move |number| match number {
        1 => (data.to_owned(), Purpose::Whole),
        _ => (brick_directory(data, number), Purpose::Brick),
    })
}

/// The number of bricks of a data directory.
#[must_use]
pub fn brick_count(data: &Path) -> u16 {
    (2..=u16::MAX).take_while(|number| brick_directory(data, *number).exists()).last().unwrap_or(1)
}

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

    /// Starts a brick for each store, of which the first has the catalogue, and peer servers, and creates the space [`MAIN_SPACE`].
    /// `brick` gives the configuration of each brick, counted from 1; `meta` serves the `catalogue`. What was started before an error
    /// is ended by [`LocalCluster::end`].
    ///
    /// # Errors
    /// Those of the servers.
    pub async fn start(
        &mut self,
        catalogue: Arc<dyn MetaStore>,
        meta: MetaServer,
        stores: Vec<Store>,
        brick: impl Fn(usize) -> Config,
        peers: Vec<Config>,
    ) -> Result<()> {
        let clock = meta.clock().clone();
        self.meta = Some(meta);
        let view = ClusterView::follow_with(catalogue, WitnessTable::new(), clock).await?;
        for (number, store) in (1..).zip(stores) {
            self.bricks.push(BrickProcess::start(view.clone(), store, brick(number), &[]).await?);
        }
        match view.create_space(MAIN_SPACE, SpaceOptions::default()).await {
            // The space exists already.
            Err(error) if error.kind() == ErrorKind::Exists => {}
            created => drop(created?),
        }
        for config in peers {
            self.peers.push(PeerProcess::start(view.clone(), config, &[]).await?);
        }
        for peer in &self.peers {
            peer.wait_healthy().await;
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
