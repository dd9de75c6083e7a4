//! Asks the bricks what spaces take.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::{NodeId, Result};
use tokio::task::JoinSet;
use tokio::time;
use wire::link::Answer;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::proto::usage::{BrickUsage, GetNodeUsages, NodeUsage, NodeUsages, SpaceUsage, SpaceUsages};
use wire::tasks;

use super::shard::PeerShard;
use crate::cluster_view::SpaceView;
use crate::node_placement::BrickId;

/// How long a brick may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// How often bricks are asked about logical nodes that none served, and the pause in between: they may be moving.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(100);

/// What some logical nodes take, each with the brick that serves it. Those of which no brick answers are left out.
type KnownUsages = BTreeMap<NodeId, (BrickId, NodeUsage)>;

/// Answers a request about what spaces take.
pub(super) async fn handle_usage_request(shard: &Arc<PeerShard>, spaces: Vec<Arc<SpaceView>>) -> Result<Response> {
    let known = fetch_usages(shard, spaces.iter().flat_map(|space| space.nodes.iter().copied()).collect()).await;
    let spaces = spaces.iter().map(|space| space_usage(space, &known)).collect();
    Ok(Response::SpaceUsages(SpaceUsages { spaces }))
}

fn space_usage(space: &SpaceView, known: &KnownUsages) -> SpaceUsage {
    let mut bricks: BTreeMap<BrickId, BrickUsage> = BTreeMap::new();
    let mut unknown_nodes = 0;
    for node in &space.nodes {
        let Some((brick, usage)) = known.get(node) else {
            unknown_nodes += 1;
            continue;
        };
        let sum = bricks.entry(*brick).or_insert_with(|| BrickUsage { brick: brick.0, ..BrickUsage::default() });
        sum.objects = sum.objects.saturating_add(usage.objects);
        sum.bytes = sum.bytes.saturating_add(usage.bytes);
        sum.staged_bytes = sum.staged_bytes.saturating_add(usage.staged_bytes);
    }
    let bricks = bricks.into_values().collect();
    SpaceUsage { space: u32::from(space.id.0), name: space.name.clone(), bricks, unknown_nodes }
}

async fn fetch_usages(shard: &Arc<PeerShard>, mut missing: Vec<NodeId>) -> KnownUsages {
    let mut known = KnownUsages::new();
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            time::sleep(PAUSE).await;
        }
        let (found, have_all_answered) = ask_bricks(shard, &missing).await;
        known.extend(found);
        missing.retain(|node| !known.contains_key(node));
        if missing.is_empty() || !have_all_answered {
            break;
        }
    }
    known
}

/// Asks the bricks that serve these logical nodes by the map. Says whether all have answered.
async fn ask_bricks(shard: &Arc<PeerShard>, nodes: &[NodeId]) -> (KnownUsages, bool) {
    let mut asked = JoinSet::new();
    for (brick, nodes) in shard.cluster_view.placement.by_brick(nodes.iter().copied()) {
        let nodes = nodes.into_iter().map(|node| node.0).collect();
        let shard = shard.clone();
        tasks::spawn_in(&mut asked, async move {
            let answer = shard.brick_links.call(brick, Request::GetNodeUsages(GetNodeUsages { nodes }));
            match time::timeout(ANSWER_TIMEOUT, answer).await {
                Ok(Ok(Answer { response: Response::NodeUsages(NodeUsages { nodes }), .. })) => Some((brick, nodes)),
                _ => None,
            }
        });
    }
    let (mut known, mut have_all_answered) = (KnownUsages::new(), true);
    for answer in asked.join_all().await {
        let Some((brick, nodes)) = answer else {
            have_all_answered = false;
            continue;
        };
        known.extend(nodes.into_iter().map(|usage| (NodeId(usage.node), (brick, usage))));
    }
    (known, have_all_answered)
}
