//! Finds out whether logical nodes have objects of a space, or of a class, that is being removed.

use std::sync::Arc;
use std::time::Duration;

use meta::Revision;
use model::{ClassId, Error, ErrorKind, NodeId, Result};
use tokio::time::{self, Instant};
use wire::proto::usage::{CheckEmpty, Emptiness};
use wire::tasks;

use super::{Nodes, ServedNode};

/// How long accepted work may take to end.
const TIMEOUT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);

impl Nodes {
    /// Tells which logical nodes have objects. By the revision of the catalogue the space or the class is marked as being removed; every
    /// logical node that is served here knows that before its objects are looked for.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the revision does not come, or transactions are not decided in time; if rows cannot be read.
    pub(crate) async fn check_empty(self: Arc<Self>, asked: CheckEmpty) -> Result<Emptiness> {
        let until = Instant::now() + TIMEOUT;
        let revision = Revision(asked.revision);
        let late = |_| Error::new(ErrorKind::Unavailable, "the brick does not hear of the catalogue: try again");
        time::timeout_at(until, self.cluster_view.wait_for_revision(revision)).await.map_err(late)??;
        let mut found = Emptiness::default();
        for node in asked.nodes {
            let node = wire::cluster::node(node)?;
            let Some(served) = self.served_node(node) else { continue };
            match self.has_objects(&served, node, asked.class.map(ClassId), until).await? {
                true => found.occupied.push(node.0),
                false => found.empty.push(node.0),
            }
        }
        Ok(found)
    }

    async fn has_objects(
        &self,
        served: &ServedNode,
        node: NodeId,
        class: Option<ClassId>,
        until: Instant,
    ) -> Result<bool> {
        // The task that follows the catalogue may not have come to the logical node yet.
        self.act(served, |driver| self.follow_schema(driver));
        let accepted = served.lock()?.accepted_work();
        loop {
            // The lock is not held while it waits.
            let has_ended = served.lock()?.has_ended(&accepted);
            if has_ended {
                break;
            }
            if Instant::now() >= until {
                let what = format!(
                    "transactions at logical node {:x} are not decided: a brick or peer server is away",
                    node.0
                );
                return Err(Error::new(ErrorKind::Unavailable, what));
            }
            time::sleep(PAUSE).await;
        }
        let space = self.cluster_view.catalog().and_then(|catalog| catalog.space_of(node).map(|space| space.id));
        let gone = || Error::new(ErrorKind::NotFound, "the space was removed meanwhile");
        let search = served.lock()?.object_search(space.ok_or_else(gone)?, class);
        let failed = |error| Error::new(ErrorKind::Internal, "the search for objects has panicked").with_source(error);
        tasks::spawn_blocking(move || search.has_any()).await.map_err(failed)?
    }
}
