//! Answers requests about moves of logical nodes, with the progress that the new bricks report.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use meta::catalog::MoveAnswer;
use model::Result;
use tokio::task::JoinSet;
use tokio::time;
use wire::link::Answer;
use wire::proto::moves::{GetMoveIns, Move, MoveIn, MoveIns};
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::tasks;

use super::shard::PeerShard;
use crate::catalog_messages::{move_answer_to_proto, move_in_from_proto};
use crate::node_placement::BrickId;

/// How long a brick may take to report its progress.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Answers a request about moves.
pub(super) async fn handle_move_request(shard: &Arc<PeerShard>, request: Move) -> Result<Response> {
    let mut answer = shard.cluster_view.handle_move_request(&request).await?;
    add_move_ins(shard, &mut answer).await;
    Ok(Response::Moved(move_answer_to_proto(&answer)))
}

/// Adds the progress that destination bricks report. Bricks that do not answer are left out.
async fn add_move_ins(shard: &Arc<PeerShard>, answer: &mut MoveAnswer) {
    let mut at: BTreeMap<BrickId, Vec<u32>> = BTreeMap::new();
    for state in &answer.nodes {
        at.entry(BrickId(state.to.unwrap_or(state.brick).0)).or_default().push(state.node);
    }
    let mut asked = JoinSet::new();
    for (brick, nodes) in at {
        let shard = shard.clone();
        tasks::spawn_in(&mut asked, async move { fetch_move_ins(&shard, brick, nodes).await });
    }
    let mut known: HashMap<u32, MoveIn> =
        asked.join_all().await.into_iter().flatten().map(|arrival| (arrival.node, arrival)).collect();
    for state in &mut answer.nodes {
        state.arrival = known.remove(&state.node).map(move_in_from_proto);
    }
}

async fn fetch_move_ins(shard: &PeerShard, brick: BrickId, nodes: Vec<u32>) -> Vec<MoveIn> {
    let answer = shard.brick_links.call(brick, Request::GetMoveIns(GetMoveIns { nodes }));
    match time::timeout(ANSWER_TIMEOUT, answer).await {
        Ok(Ok(Answer { response: Response::MoveIns(MoveIns { move_ins: arrivals }), .. })) => arrivals,
        _ => Vec::new(),
    }
}
