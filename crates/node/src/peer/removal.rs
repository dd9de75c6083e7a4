//! Removes spaces and classes that have no objects.
//!
//! The mark in the catalogue makes bricks refuse new work ([`Removal`]). Then each brick says whether there are objects, and the
//! removal is finished, or taken back. It is carried out to its end even if the client that asks for it goes away. If this process ends
//! meanwhile, the mark stays until the removal is begun again or cancelled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use meta::Revision;
use meta::catalog::{CatalogEditor, Edited, Removal};
use model::{Error, ErrorKind, NodeId, Result};
use tokio::task::JoinSet;
use tokio::time::{self, Instant};
use tracing::warn;
use wire::link::Answer;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::proto::usage::{CheckEmpty, Emptiness};
use wire::tasks;

use super::shard::PeerShard;

/// How long bricks may take to answer for all logical nodes, those included that are moving.
const TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

/// Removes a space if it has no objects. Returns the revision from which on it is gone.
///
/// # Errors
/// [`ErrorKind::Conflict`] if it has objects; [`ErrorKind::Unavailable`] if a brick does not answer; those of the catalogue.
pub(super) async fn remove_empty_space(shard: &Arc<PeerShard>, space: String) -> Result<Revision> {
    let editor = shard.cluster_view.editor()?.clone();
    let shard = shard.clone();
    to_its_end(async move {
        let begun = editor.begin_space_removal(&space).await?;
        let finish = async |removal: &Removal| Ok(editor.finish_space_removal(removal).await?.revision);
        remove_if_empty(&shard, &editor, begun, &format!("space {space}"), finish).await
    })
    .await
}

/// Removes a class if it has no objects. Returns the revision from which on it is gone.
///
/// # Errors
/// As [`remove_empty_space`]; [`ErrorKind::Invalid`] with what else needs the class.
pub(super) async fn remove_empty_class(shard: &Arc<PeerShard>, space: String, class: String) -> Result<Revision> {
    let editor = shard.cluster_view.editor()?.clone();
    let shard = shard.clone();
    to_its_end(async move {
        let begun = editor.begin_class_removal(&space, &class).await?;
        let finish = async |removal: &Removal| Ok(editor.finish_class_removal(removal, &class).await?.revision);
        remove_if_empty(&shard, &editor, begun, &format!("class {class}"), finish).await
    })
    .await
}

/// Does work that goes on if the caller goes away.
async fn to_its_end<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    let ended =
        |_| Error::new(ErrorKind::Unavailable, "the peer server ends: look whether it has removed what was asked");
    tasks::spawn(work).await.map_err(ended)?
}

async fn remove_if_empty(
    shard: &Arc<PeerShard>,
    editor: &CatalogEditor,
    begun: Edited<Removal>,
    what: &str,
    finish: impl AsyncFnOnce(&Removal) -> Result<Revision>,
) -> Result<Revision> {
    let removal = begun.value;
    let refused = match has_objects(shard, &removal, begun.revision).await {
        Ok(false) => match finish(&removal).await {
            Ok(revision) => return Ok(revision),
            Err(error) => error,
        },
        Ok(true) => Error::new(ErrorKind::Conflict, format!("{what} is not empty: nothing was removed")),
        Err(error) => error,
    };
    if let Err(error) = editor.take_back_removal(&removal).await {
        // If it was removed, there is nothing to be taken back.
        if error.kind() != ErrorKind::NotFound {
            warn!(%error, what, "a removal cannot be taken back: begin it again, or cancel it");
        }
    }
    Err(refused)
}

/// Whether any logical node has objects of what is being removed.
async fn has_objects(shard: &Arc<PeerShard>, removal: &Removal, revision: Revision) -> Result<bool> {
    // The map must be at least as new as the mark.
    shard.cluster_view.wait_for_revision(revision).await?;
    let until = Instant::now() + TIMEOUT;
    let mut missing: BTreeSet<NodeId> = removal.space.node_ids().collect();
    loop {
        let (answers, problem) = ask_bricks(shard, &missing, removal, revision, until).await;
        for Emptiness { empty, occupied } in answers {
            if !occupied.is_empty() {
                return Ok(true);
            }
            missing.retain(|node| !empty.contains(&node.0));
        }
        if missing.is_empty() {
            return Ok(false);
        }
        if Instant::now() >= until {
            let unserved = || {
                let what = format!("{} logical nodes are served by no brick now: try again", missing.len());
                Error::new(ErrorKind::Unavailable, what)
            };
            return Err(problem.unwrap_or_else(unserved));
        }
        time::sleep(PAUSE).await;
    }
}

/// Asks the bricks that serve these logical nodes by the map. Returns their answers, and why one has not answered.
async fn ask_bricks(
    shard: &Arc<PeerShard>,
    nodes: &BTreeSet<NodeId>,
    removal: &Removal,
    revision: Revision,
    until: Instant,
) -> (Vec<Emptiness>, Option<Error>) {
    let mut asked = JoinSet::new();
    for (brick, nodes) in shard.cluster_view.placement.by_brick(nodes.iter().copied()) {
        let nodes = nodes.into_iter().map(|node| node.0).collect();
        let check = CheckEmpty { nodes, revision: revision.0, class: removal.class.map(|class| class.0) };
        let shard = shard.clone();
        tasks::spawn_in(&mut asked, async move {
            let answer = time::timeout_at(until, shard.brick_links.call(brick, Request::CheckEmpty(check))).await;
            match answer {
                Ok(Ok(Answer { response: Response::Emptiness(found), .. })) => Ok(found),
                Ok(Ok(_)) => {
                    Err(Error::new(ErrorKind::Unsupported, format!("brick {} is of another version", brick.0)))
                }
                Ok(Err(error)) => Err(error),
                Err(_) => Err(Error::new(ErrorKind::Unavailable, format!("brick {} has not answered", brick.0))),
            }
        });
    }
    let (mut answers, mut problem) = (Vec::new(), None);
    for answer in asked.join_all().await {
        match answer {
            Ok(found) => answers.push(found),
            Err(error) => problem = Some(error),
        }
    }
    (answers, problem)
}
