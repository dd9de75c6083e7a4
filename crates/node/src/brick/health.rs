//! What is wrong with a brick, and its metrics: the brick reports them, and so do the peer servers of its process (`mortar dev`), which have the
//! only address that an operator watches there.

use std::fmt;
use std::sync::Arc;

use super::background_scrub::BackgroundScrub;
use super::nodes::Nodes;
use crate::server::Metric;

/// A brick of this process.
#[derive(Clone)]
pub struct LocalBrick {
    nodes: Arc<Nodes>,
    scrub: Arc<BackgroundScrub>,
}

impl fmt::Debug for LocalBrick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalBrick").field("brick", &self.nodes.id).finish_non_exhaustive()
    }
}

impl LocalBrick {
    pub(super) fn new(nodes: Arc<Nodes>, scrub: Arc<BackgroundScrub>) -> Self {
        Self { nodes, scrub }
    }

    /// The metrics of which a sum over bricks has a meaning.
    fn additive_metrics(&self) -> Vec<Metric> {
        let mut metrics = super::store_metrics(&self.nodes.store.status());
        metrics.extend(self.nodes.additive_metrics());
        metrics.extend(self.scrub.found_metrics());
        metrics
    }

    /// What is wrong, in words; `None` if nothing is.
    pub(crate) fn problem(&self) -> Option<String> {
        if self.nodes.store.is_disk_full() {
            return Some("the disk is full: reads are served, writes fail".to_owned());
        }
        self.nodes.health_problem().or_else(|| self.scrub.health_problem())
    }
}

/// The problems of several bricks, each with its brick; `None` if there are none.
pub(crate) fn problem_of_any(bricks: &[LocalBrick]) -> Option<String> {
    let problems = bricks.iter().filter_map(|brick| Some(format!("brick {}: {}", brick.nodes.id.0, brick.problem()?)));
    Some(problems.collect::<Vec<_>>().join("; ")).filter(|problems| !problems.is_empty())
}

/// The sums of the metrics of several bricks; nothing without bricks.
pub(crate) fn metrics_of_all(bricks: &[LocalBrick]) -> impl Iterator<Item = Metric> {
    let sums = bricks.iter().map(LocalBrick::additive_metrics).reduce(|mut sums, more| {
        sums.iter_mut().zip(more).for_each(|(sum, more)| sum.value += more.value);
        sums
    });
    sums.into_iter().flatten()
}
