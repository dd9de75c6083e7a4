//! Records in the catalogue which indexes are ready.
//!
//! Bricks enter all objects into a new index. A peer server that sees an index being built asks all logical nodes, and
//! records that the index is ready when each has answered that its objects are in it. Several peer servers may do so at once: the
//! second record changes nothing.
//!
//! A unique index is searched first. Older objects may have equal values: then the catalogue records which, and the index is
//! searched again later. And their values must be bound ([`protocol::entries::unique_entry`]): clients do that.

mod unique_values;

use std::sync::Arc;
use std::time::{Duration, Instant};

use meta::catalog::{Index, IndexState, Space};
use model::{NodeId, Result};
use tokio::time;
use tracing::{debug, info};
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;

use self::unique_values::UniqueValues;
use super::shard::PeerShard;

/// How soon bricks are asked again about an index, and how soon one with duplicates is searched again.
const RETRY_DELAY: Duration = Duration::from_millis(250);
const DUPLICATE_RETRY_DELAY: Duration = Duration::from_secs(3);
/// The longest pause of one whose values are not all bound, unless a search takes long.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Completes indexes until the process ends.
pub(super) async fn complete_indexes(shard: &Arc<PeerShard>) {
    let Some(mut changed) = shard.cluster_view.catalog_changes() else { return };
    // Searches in a row that have found values which are not bound.
    let mut unbound = 0;
    loop {
        let (mut is_waiting, mut pause, mut is_bound) = (false, RETRY_DELAY, true);
        for (space, index) in building(shard) {
            if index.flaw.is_some() {
                pause = DUPLICATE_RETRY_DELAY;
            }
            let begun = Instant::now();
            match make_ready(shard, &space, &index).await {
                Ok(BuildState::Ready) => info!(space = space.name, index = index.name, "an index is ready"),
                Ok(BuildState::Entering) => is_waiting = true,
                Ok(BuildState::Unbound) => {
                    (is_waiting, is_bound) = (true, false);
                    // The next search begins later each time, and after a time in proportion to that of this one.
                    let later = (RETRY_DELAY * 2_u32.pow(unbound.min(8))).min(MAX_RETRY_DELAY);
                    pause = pause.max(later).max(2 * begun.elapsed());
                }
                // An unreachable brick or meta-server returns.
                Err(error) => {
                    debug!(space = space.name, index = index.name, %error, "the progress of an index is not known");
                    is_waiting = true;
                }
            }
        }
        unbound = if is_bound { 0 } else { unbound + 1 };
        if is_waiting {
            // Another index may be made meanwhile.
            let _ = time::timeout(pause, changed.changed()).await;
        } else if changed.changed().await.is_err() {
            return;
        }
    }
}

/// The indexes that are being built.
fn building(shard: &PeerShard) -> Vec<(Arc<Space>, Arc<Index>)> {
    let Some(catalog) = shard.cluster_view.catalog() else { return Vec::new() };
    let of_space = |space: &Arc<Space>| {
        let schema = catalog.schema(space.id);
        let building = schema.indexes().filter(|index| index.state == IndexState::Building);
        building.map(|index| (space.clone(), index.clone())).collect::<Vec<_>>()
    };
    catalog.spaces().flat_map(of_space).collect()
}

/// How far an index is.
enum BuildState {
    Ready,
    /// Objects are being entered, or two of them have the same values.
    Entering,
    /// All objects are entered, and the values of some are not bound.
    Unbound,
}

/// Records that an index is ready, if it is, or else its duplicates.
async fn make_ready(shard: &Arc<PeerShard>, space: &Space, index: &Index) -> Result<BuildState> {
    for node in shard.cluster_view.space(&space.name)?.nodes.iter().copied() {
        if !is_complete_at(shard, node, space, index).await? {
            return Ok(BuildState::Entering);
        }
    }
    let searched =
        if index.unique { unique_values::search(shard, space, index).await? } else { UniqueValues::Complete };
    let flaw = match searched {
        UniqueValues::Complete => None,
        UniqueValues::Unbound => return Ok(BuildState::Unbound),
        UniqueValues::Alike(one, other) => Some(format!("{one} and {other} have the same values")),
    };
    if flaw.is_some() && flaw == index.flaw {
        return Ok(BuildState::Entering);
    }
    let is_ready = flaw.is_none();
    let recorded = shard.cluster_view.editor()?.record_index_build(&space.name, &index.name, index.id, flaw).await?;
    // Until this process has the revision, it would record the index again.
    shard.cluster_view.wait_for_revision(recorded.revision).await?;
    Ok(if is_ready { BuildState::Ready } else { BuildState::Entering })
}

/// Whether an index has all objects of a logical node. The brick waits a moment for that.
async fn is_complete_at(shard: &PeerShard, node: NodeId, space: &Space, index: &Index) -> Result<bool> {
    let (space, index) = (u32::from(space.id.0), index.id.0);
    let build = proto::BuildIndex { space, node: node.0, index, only_report: false };
    let answer = shard.call_node(node, Request::BuildIndex(build)).await?;
    Ok(matches!(answer.response, Response::Done(_)))
}
