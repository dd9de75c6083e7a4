//! What must come before what because of when it was done.

use std::collections::BTreeMap;

use super::graph::{Graph, Reason};
use crate::history::{Kind, Outcome};

/// What one client did stays in its order. An operation that is unknown may happen after all that follows it.
pub(super) fn add_sessions(graph: &mut Graph<'_>) {
    let mut clients: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (at, operation) in graph.operations().iter().enumerate() {
        clients.entry(operation.client).or_default().push(at);
    }
    for (_, mut of_client) in clients {
        of_client.sort_by_key(|at| graph.operations()[*at].number);
        let mut last = None;
        for at in of_client {
            if let Some(last) = last {
                graph.add(last, at, Reason::Session);
            }
            if graph.operations()[at].outcome == Outcome::Ok {
                last = Some(at);
            }
        }
    }
}

/// Moments at which strict operations returned: a chain of points in the graph.
pub(super) struct Moments {
    /// Time in milliseconds → the point.
    points: BTreeMap<u64, usize>,
}

impl Moments {
    pub(super) fn new(graph: &mut Graph<'_>) -> Self {
        let strict = graph.operations().iter().enumerate().filter(|(_, operation)| operation.is_strict());
        let returned: Vec<(usize, u64)> =
            strict.filter_map(|(at, operation)| Some((at, operation.completion_ms()?))).collect();
        let mut points: BTreeMap<u64, usize> = returned.iter().map(|(_, time)| (*time, 0)).collect();
        let mut last = None;
        for point in points.values_mut() {
            *point = graph.point();
            if let Some(last) = last.replace(*point) {
                graph.add(last, *point, Reason::Later);
            }
        }
        for (at, time) in returned {
            graph.add(at, points[&time], Reason::Returned);
        }
        Self { points }
    }

    /// The last moment before a time.
    fn before(&self, time: u64) -> Option<usize> {
        self.points.range(..time).next_back().map(|(_, point)| *point)
    }

    /// Whatever strict had returned before a strict operation was invoked comes before it.
    pub(super) fn add_real_time(&self, graph: &mut Graph<'_>) {
        for at in 0..graph.operations().len() {
            let operation = graph.operations()[at];
            if let Some(point) = self.before(operation.invoked).filter(|_| operation.is_strict()) {
                graph.add(point, at, Reason::Invoked);
            }
        }
    }

    /// Whatever strict had returned for longer than the bound when a snapshot was invoked comes before it. A snapshot
    /// that has a bound of its own is held to the smaller one.
    pub(super) fn add_staleness(&self, graph: &mut Graph<'_>, bound_ms: Option<u64>) {
        for at in 0..graph.operations().len() {
            let operation = graph.operations()[at];
            let bounds = bound_ms.into_iter().chain(operation.as_of);
            let Some(bound) = bounds.min().filter(|_| operation.kind == Kind::Snapshot) else { continue };
            if let Some(point) = self.before(operation.invoked.saturating_sub(bound)) {
                graph.add(point, at, Reason::Overdue(bound));
            }
        }
    }
}
