//! What the objects of the logical nodes of a brick take.

use std::collections::BTreeSet;

use model::{NodeId, Result};
use wire::proto::usage::{NodeUsage, NodeUsages};

use super::Nodes;
use crate::brick::scrub::Miscount;
use crate::server::Metric;

impl Nodes {
    /// The logical nodes that are served now, with their epochs.
    pub(crate) fn served_epochs(&self) -> BTreeSet<(NodeId, u64)> {
        self.served.load().iter().map(|(node, served)| (*node, served.epoch)).collect()
    }

    /// Corrects the count of the objects of a logical node, if it is still served here.
    ///
    /// # Errors
    /// If it is not served here any more, or has failed.
    pub(crate) fn correct_usage(&self, miscount: &Miscount) -> Result<()> {
        self.with_driver(miscount.node, |driver| {
            driver.correct_usage(miscount.counted, miscount.found, self.time.now());
            Ok(())
        })
    }

    /// What all logical nodes that are served take.
    pub(super) fn usage_metrics(&self) -> [Metric; 3] {
        let nodes: Vec<NodeId> = self.served.load().keys().copied().collect();
        let (mut objects, mut bytes, mut staged) = (0, 0, 0);
        for usage in self.usage(nodes.into_iter()).nodes {
            objects += usage.objects;
            bytes += usage.bytes;
            staged += usage.staged_bytes;
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
            let (usage, staged) = (driver.usage(), driver.staged_bytes());
            Some(NodeUsage { node: node.0, objects: usage.objects, bytes: usage.bytes, staged_bytes: staged })
        };
        NodeUsages { nodes: nodes.filter_map(usage_of).collect() }
    }
}
