//! Answers requests about jobs, with the progress of indexes that bricks report.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use meta::catalog::{Catalog, JobKind, JobPartView, JobView};
use model::{NodeId, Result};
use tokio::task::JoinSet;
use tokio::time;
use wire::link::Answer;
use wire::proto;
use wire::proto::jobs::JobRequest;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::tasks;

use super::shard::PeerShard;
use crate::auth::Principal;
use crate::catalog_messages::job_answer_to_proto;

/// How long a brick may take to report the progress of an index: it waits a moment whether the index becomes complete.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Answers requests about jobs.
pub(super) async fn handle_job_request(
    shard: &Arc<PeerShard>,
    who: &Principal,
    asked: &JobRequest,
) -> Result<Response> {
    let mut answer = shard.cluster_view.handle_job_request(who, asked).await?;
    if let Some(catalog) = shard.cluster_view.catalog() {
        add_index_progress(shard, &catalog, &mut answer.jobs).await;
    }
    Ok(Response::JobAnswer(job_answer_to_proto(answer)))
}

/// Adds the progress of the logical nodes that build indexes. All are asked at the same time.
async fn add_index_progress(shard: &Arc<PeerShard>, catalog: &Catalog, jobs: &mut [JobView]) {
    let mut asked = JoinSet::new();
    for (at, view) in jobs.iter().enumerate() {
        let Some(job) = catalog.job(view.job).filter(|job| !job.state.is_end()) else { continue };
        let JobKind::BuildIndex { space, index, .. } = job.kind else { continue };
        let Some(nodes) = view.space.as_ref().and_then(|name| shard.cluster_view.space(name).ok()) else { continue };
        for node in nodes.nodes.iter().copied() {
            let shard = shard.clone();
            let build = proto::BuildIndex { space: space.0.into(), node: node.0, index: index.0, only_report: true };
            tasks::spawn_in(&mut asked, async move { (at, node, fetch_progress(&shard, node, build).await) });
        }
    }
    let mut parts = asked.join_all().await;
    parts.sort_unstable_by_key(|(at, node, _)| (*at, *node));
    let mut silent = BTreeSet::new();
    for (at, node, progress) in parts {
        let (view, part) = (&mut jobs[at], format!("node {:x}", node.0));
        let Some((done, total)) = progress else {
            let what = "does not say how far it is: its brick is away, or does not know the index yet";
            view.problems.push(format!("{part} {what}"));
            silent.insert(at);
            continue;
        };
        view.done = view.done.saturating_add(done);
        view.total = view.total.saturating_add(total);
        let ended = done == total;
        view.parts.push(JobPartView { part, done, total, ended, ..JobPartView::default() });
    }
    // How much there is altogether is not known then.
    silent.into_iter().for_each(|at| jobs[at].total = 0);
}

async fn fetch_progress(shard: &PeerShard, node: NodeId, build: proto::BuildIndex) -> Option<(u64, u64)> {
    match time::timeout(ANSWER_TIMEOUT, shard.call_node(node, Request::BuildIndex(build))).await {
        Ok(Ok(Answer { response: Response::Progress(proto::Progress { done, total }), .. })) => Some((done, total)),
        _ => None,
    }
}
