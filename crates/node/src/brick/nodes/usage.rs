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
use crate::brick::consistency::is_damage;
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
        let report = |usage: &NodeUsageMessage| {
            let (node, usage) = (NodeId(usage.node), quota_usage(usage));
            quotas.iter().for_each(|quota| with_quota(quota, |quota| quota.report(node, usage)));
        };
        let mut asked = JoinSet::new();
        for (brick, nodes) in by_brick {
            // Damaged ones, and those that are not opened yet, of which nothing is known.
            if brick == self.id {
                self.usage(nodes.into_iter()).nodes.iter().for_each(report);
                continue;
            }
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
            answer.unwrap_or_default().iter().for_each(report);
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

    /// What some logical nodes take. Those that are not served here are left out, unless they are placed here and damaged.
    pub(crate) fn usage(&self, nodes: impl Iterator<Item = NodeId>) -> NodeUsages {
        let served = self.served.load();
        let usage_of = |node: NodeId| {
            let Some(driver) = served.get(&node).and_then(|served| served.lock().ok()) else {
                return self.usage_of_damaged(node);
            };
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

    /// What a damaged logical node takes: the row of its count tells. If that is damaged, too, it counts as nothing, which
    /// [`Nodes::health_problem`] says. Otherwise a space with a quota could not grow at all while one of its logical nodes is damaged.
    fn usage_of_damaged(&self, node: NodeId) -> Option<NodeUsageMessage> {
        self.damage_of(node)?;
        let NodeUsage { objects, bytes } = match NodeUsage::read(&self.store, node) {
            Err(error) if is_damage(&error) => NodeUsage::default(),
            read => read.ok()?,
        };
        Some(NodeUsageMessage { node: node.0, objects, bytes, ..NodeUsageMessage::default() })
    }

    /// Which damaged logical nodes count as nothing, because the rows of their counts cannot be read, behind what else is wrong with them.
    pub(super) fn uncounted_problem(&self) -> String {
        let damaged = self.damaged.load();
        let uncounted = damaged.keys().filter(|node| NodeUsage::read(&self.store, **node).is_err());
        let uncounted: Vec<String> = uncounted.map(|node| format!("{:x}", node.0)).collect();
        if uncounted.is_empty() {
            return String::new();
        }
        let nodes = uncounted.join(", ");
        format!(
            "; how much the objects of logical node {nodes} take cannot be read, and counts as nothing for the quota of the space"
        )
    }
}

/// What counts of a logical node for a quota.
fn quota_usage(usage: &NodeUsageMessage) -> NodeUsage {
    let bytes = usage.bytes.saturating_add(usage.staged_bytes).saturating_add(usage.pending_bytes);
    NodeUsage { objects: usage.objects.saturating_add(usage.pending_objects), bytes }
}

#[cfg(test)]
mod tests {
    use meta::catalog::Quota;
    use store::{Options, RowChanges, Store};

    use super::super::tests::{NODE, OTHER, nodes_on};
    use super::*;
    use crate::brick::page_rows::usage_key;

    /// A brick whose second logical node cannot be opened, because these rows of it are damaged.
    fn nodes_with_damage(rows: &[(Vec<u8>, &'static [u8])]) -> Arc<Nodes> {
        let store = Store::in_memory(Options::default()).unwrap();
        let mut changes = RowChanges::new();
        rows.iter().for_each(|(key, row)| changes.put(key, (*row).into()));
        store.commit_rows(changes).unwrap();
        let nodes = nodes_on(store);
        assert!(nodes.require_served(NODE).is_ok() && nodes.require_served(OTHER).is_err());
        nodes
    }

    /// A row that is no mark of an index.
    fn damaged_mark() -> (Vec<u8>, &'static [u8]) {
        let mut key = vec![b'D'];
        key.extend_from_slice(&OTHER.0.to_be_bytes());
        (key, b"x")
    }

    #[tokio::test]
    async fn logical_node_that_cannot_be_opened_stops_no_growth_of_its_space() {
        let counted = NodeUsage { objects: 2, bytes: 30 };
        let row = counted.encode();
        let count = (usage_key(OTHER).to_vec(), &*Vec::leak(row.to_vec()));
        let damaged_count = (usage_key(OTHER).to_vec(), &b"x"[..]);
        for (rows, expected) in [(vec![damaged_mark(), count], counted), (vec![damaged_count], NodeUsage::default())] {
            let nodes = nodes_with_damage(&rows);
            let limits = Quota { max_bytes: Some(100), max_objects: None };
            let quota = Arc::new(Mutex::new(SpaceQuota::new("main", limits, [NODE, OTHER].into_iter())));
            nodes.quotas.lock().insert(SpaceId(1), quota.clone());
            nodes.act(&nodes.require_served(NODE).unwrap(), |driver| driver.set_quota(Some(quota.clone())));
            assert!(with_quota(&quota, |quota| quota.has_unknown()));
            nodes.ask_usages().await;
            assert!(!with_quota(&quota, |quota| quota.has_unknown()));
            let usages = nodes.usage([OTHER, NodeId(77)].into_iter()).nodes;
            assert_eq!(
                usages.iter().map(|usage| (NodeId(usage.node), quota_usage(usage))).collect::<Vec<_>>(),
                [(OTHER, expected)]
            );
            let problem = nodes.health_problem().unwrap();
            assert_eq!(problem.contains("counts as nothing"), expected == NodeUsage::default(), "{problem}");
        }
    }

    #[test]
    fn what_is_staged_and_prepared_at_another_brick_counts_for_a_quota() {
        let reported =
            NodeUsageMessage { node: 3, objects: 2, bytes: 30, staged_bytes: 4, pending_objects: 1, pending_bytes: 5 };
        assert_eq!(quota_usage(&reported), NodeUsage { objects: 3, bytes: 39 });
    }
}
