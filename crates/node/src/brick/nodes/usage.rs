//! What the objects of the logical nodes of a brick take, and the quotas of spaces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use meta::catalog::Space;
use model::{NodeId, Result, SpaceId};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time;
use wire::link::Answer;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::proto::usage::{GetNodeUsages, NodeUsage as NodeUsageMessage, NodeUsages};
use wire::tasks;

use super::Nodes;
use crate::brick::node_usage::{DurableCounts, NodeUsage};
use crate::brick::quota::{SharedQuota, SpaceQuota, with_quota};
use crate::brick::scrub::Miscount;
use crate::server::Metric;

/// How often other bricks are asked what the logical nodes of spaces with quotas take; and while that is not known of some.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
const ASK_AGAIN_INTERVAL: Duration = Duration::from_millis(100);
/// How long a brick may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// The quotas of the spaces of which this brick serves logical nodes.
#[derive(Default)]
pub(super) struct SpaceQuotas {
    spaces: Mutex<BTreeMap<SpaceId, SharedQuota>>,
    /// A space has a quota that had none.
    added: Notify,
}

impl SpaceQuotas {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<SpaceId, SharedQuota>> {
        // The data is consistent between statements, so a poisoned lock is harmless.
        self.spaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> Vec<SharedQuota> {
        self.lock().values().cloned().collect()
    }
}

impl Nodes {
    /// The quota of a space, which the drivers of its logical nodes share; `None` if it has none.
    pub(super) fn quota_of(&self, space: &Space) -> Option<SharedQuota> {
        if space.quota.is_none() {
            return None;
        }
        let mut quotas = self.quotas.lock();
        let quota = quotas.entry(space.id).or_insert_with(|| {
            self.quotas.added.notify_one();
            Arc::new(Mutex::new(SpaceQuota::new(&space.name, space.quota, space.node_ids())))
        });
        with_quota(quota, |quota| quota.set_quota(space.quota));
        Some(quota.clone())
    }

    /// Forgets the quotas of spaces that have none any more.
    pub(super) fn forget_quotas(&self) {
        let Some(catalog) = self.cluster_view.catalog() else { return };
        let has_quota = |space: &SpaceId| catalog.space_by_id(*space).is_some_and(|space| !space.quota.is_none());
        self.quotas.lock().retain(|space, _| has_quota(space));
    }

    /// Asks other bricks what logical nodes of spaces with quotas take, as long as there are quotas.
    pub(crate) async fn exchange_usages(self: &Arc<Self>) {
        loop {
            if self.quotas.lock().is_empty() {
                self.quotas.added.notified().await;
            }
            self.ask_usages().await;
            let has_unknown = self.quotas.all().iter().any(|quota| with_quota(quota, |quota| quota.has_unknown()));
            let pause = if has_unknown { ASK_AGAIN_INTERVAL } else { ASK_INTERVAL };
            tokio::select! {
                () = time::sleep(pause) => {}
                () = self.quotas.added.notified() => {}
            }
        }
    }

    async fn ask_usages(self: &Arc<Self>) {
        let quotas = self.quotas.all();
        let elsewhere = quotas
            .iter()
            .flat_map(|quota| -> Vec<NodeId> { with_quota(quota, |quota| quota.nodes_elsewhere().collect()) });
        let by_brick = self.cluster_view.placement.by_brick(elsewhere);
        let mut asked = JoinSet::new();
        for (brick, nodes) in by_brick.into_iter().filter(|(brick, _)| *brick != self.id) {
            let nodes = nodes.into_iter().map(|node| node.0).collect();
            let this = self.clone();
            tasks::spawn_in(&mut asked, async move {
                let answer = this.brick_links.call(brick, Request::GetNodeUsages(GetNodeUsages { nodes }));
                match time::timeout(ANSWER_TIMEOUT, answer).await {
                    Ok(Ok(Answer { response: Response::NodeUsages(usages), .. })) => usages.nodes,
                    // What was known of it still counts.
                    _ => Vec::new(),
                }
            });
        }
        while let Some(answer) = asked.join_next().await {
            for usage in answer.unwrap_or_default() {
                quotas
                    .iter()
                    .for_each(|quota| with_quota(quota, |quota| quota.report(NodeId(usage.node), quota_usage(&usage))));
            }
        }
    }

    /// The logical nodes that are served now, with their epochs.
    pub(crate) fn served_epochs(&self) -> BTreeSet<(NodeId, u64)> {
        self.served.load().iter().map(|(node, served)| (*node, served.epoch)).collect()
    }

    /// Corrects the count of the objects of a logical node, if it is still served here.
    ///
    /// # Errors
    /// If it is not served here any more, or has failed; [`ErrorKind::Unavailable`](model::ErrorKind::Unavailable) if it was corrected meanwhile.
    pub(crate) fn correct_usage(&self, miscount: &Miscount) -> Result<()> {
        self.with_driver(miscount.node, |driver| {
            driver.correct_usage(miscount.before, (miscount.counted, miscount.found), self.time.now())
        })
    }

    /// What is durable now of the logical nodes that are served.
    pub(crate) fn durable_counts(&self) -> BTreeMap<NodeId, DurableCounts> {
        let served = self.served.load();
        served.iter().filter_map(|(node, served)| Some((*node, served.lock().ok()?.durable_counts()))).collect()
    }

    /// What all logical nodes that are served take.
    pub(super) fn usage_metrics(&self) -> [Metric; 3] {
        let nodes: Vec<NodeId> = self.served.load().keys().copied().collect();
        // Sparse blobs of some logical nodes may have more than 2^64 bytes.
        let (mut objects, mut bytes, mut staged) = (0_u64, 0_u64, 0_u64);
        for usage in self.usage(nodes.into_iter()).nodes {
            objects = objects.saturating_add(usage.objects);
            bytes = bytes.saturating_add(usage.bytes);
            staged = staged.saturating_add(usage.staged_bytes);
        }
        [
            Metric::gauge(
                "objects",
                objects,
                "Objects of the logical nodes that are served here, collections included.",
            ),
            Metric::gauge("object_bytes", bytes, "Bytes of these objects and of their attributes."),
            Metric::gauge("staged_bytes", staged, "Bytes of uploads that no object has yet."),
        ]
    }

    /// What some logical nodes take. Those that are not served here are left out.
    pub(crate) fn usage(&self, nodes: impl Iterator<Item = NodeId>) -> NodeUsages {
        let served = self.served.load();
        let usage_of = |node: NodeId| {
            let driver = served.get(&node)?.lock().ok()?;
            let (usage, pending) = (driver.usage(), driver.pending_usage());
            Some(NodeUsageMessage {
                node: node.0,
                objects: usage.objects,
                bytes: usage.bytes,
                staged_bytes: driver.staged_bytes(),
                pending_objects: pending.objects,
                pending_bytes: pending.bytes,
            })
        };
        NodeUsages { nodes: nodes.filter_map(usage_of).collect() }
    }
}

/// What counts of a logical node for a quota.
fn quota_usage(usage: &NodeUsageMessage) -> NodeUsage {
    let bytes = usage.bytes.saturating_add(usage.staged_bytes).saturating_add(usage.pending_bytes);
    NodeUsage { objects: usage.objects.saturating_add(usage.pending_objects), bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_staged_and_prepared_at_another_brick_counts_for_a_quota() {
        let reported =
            NodeUsageMessage { node: 3, objects: 2, bytes: 30, staged_bytes: 4, pending_objects: 1, pending_bytes: 5 };
        assert_eq!(quota_usage(&reported), NodeUsage { objects: 3, bytes: 39 });
    }
}
