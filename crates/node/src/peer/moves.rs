//! Has logical nodes moved, and tells how far their new bricks are.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use meta::catalog::{ArrivalState, MoveAnswer};
use model::Result;
use tokio::task::JoinSet;
use tokio::time;
use wire::link::Answer;
use wire::proto::moves::{Arrival, Arrivals, GetArrivals, Move};
use wire::proto::request::Request;
use wire::proto::response::Response;

use super::Peer;
use crate::placement::BrickId;
use crate::realm::moves;

/// How long a brick may take to tell how far it is.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a client is answered.
pub(super) async fn answer(peer: &Arc<Peer>, request: Move) -> Result<Response> {
    let mut answer = peer.realm.move_nodes(&request).await?;
    tell_arrivals(peer, &mut answer).await;
    Ok(Response::Moved(moves::encode(&answer)?))
}

/// Asks the bricks that nodes come to, or have come to. Of those that do not answer nothing is told.
async fn tell_arrivals(peer: &Arc<Peer>, answer: &mut MoveAnswer) {
    let mut at: BTreeMap<BrickId, Vec<u32>> = BTreeMap::new();
    for state in &answer.nodes {
        at.entry(BrickId(state.to.unwrap_or(state.brick).0)).or_default().push(state.node);
    }
    let mut asked = JoinSet::new();
    for (brick, nodes) in at {
        let peer = peer.clone();
        asked.spawn(async move { ask(&peer, brick, nodes).await });
    }
    let mut known: HashMap<u32, Arrival> =
        asked.join_all().await.into_iter().flatten().map(|arrival| (arrival.node, arrival)).collect();
    for state in &mut answer.nodes {
        state.arrival = known.remove(&state.node).map(|Arrival { rows, bytes, pause_us, trouble, .. }| ArrivalState {
            rows,
            bytes,
            pause_us,
            trouble: Some(trouble).filter(|trouble| !trouble.is_empty()),
        });
    }
}

async fn ask(peer: &Peer, brick: BrickId, nodes: Vec<u32>) -> Vec<Arrival> {
    let answer = peer.uplinks.answer(brick, Request::GetArrivals(GetArrivals { nodes }));
    match time::timeout(PATIENCE, answer).await {
        Ok(Ok(Answer { response: Response::Arrivals(Arrivals { arrivals }), .. })) => arrivals,
        _ => Vec::new(),
    }
}
