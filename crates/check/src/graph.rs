//! Operations and what must come before what: the search for cycles.
//!
//! Some relations hold between all of one set and all of another: those that returned by a moment, and those that began
//! after it. Such a set meets at a *point*, a node that is no operation, so a relation costs an edge for each member
//! and not for each pair. Points among themselves never make a cycle.
//!
//! Whether there is a cycle at all is found by Tarjan's algorithm in linear time. Only then is the worst kind looked
//! for, with ever more kinds of edges, and of this kind a shortest one.

use std::collections::VecDeque;

use super::verdict::{Rule, Violation};
use crate::history::Operation;

/// Why one comes before another.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason<'h> {
    /// It appended `before`, and the other `after` behind it.
    Wrote { key: &'h str, before: i64, after: i64 },
    /// The other read what it appended.
    Seen { key: &'h str, element: i64 },
    /// It read without what the other appended.
    Missed { key: &'h str, element: i64 },
    /// To a point: it appended the last element that any transaction read.
    WroteLast { key: &'h str, element: i64 },
    /// To a point: it read all elements that any transaction read.
    SawAll,
    /// From a point: it appended an element that no transaction read.
    Unseen { key: &'h str, element: i64 },
    /// The same client did one, and then the other.
    Session,
    /// To a point: it had returned at this moment.
    Returned,
    /// From a point to the next: a later moment.
    Later,
    /// From a point: it was invoked after this moment.
    Invoked,
    /// From a point: it is a snapshot that was invoked this many milliseconds after this moment, or later.
    Overdue(u64),
}

/// Kinds of edges, as bits.
type Kinds = u8;
const WRITES: Kinds = 1;
const SEEN: Kinds = 2;
const MISSED: Kinds = 4;
const SESSION: Kinds = 8;
const REAL_TIME: Kinds = 16;
const OVERDUE: Kinds = 32;

/// Operations from which a shortest cycle is looked for: enough to find a short one in any tangle.
const STARTS: usize = 500;

impl Reason<'_> {
    /// Edges of kind 0 are used with any others: they are one half of a way through points.
    fn kind(self) -> Kinds {
        match self {
            Self::Wrote { .. } | Self::WroteLast { .. } => WRITES,
            Self::Seen { .. } => SEEN,
            Self::Missed { .. } | Self::SawAll => MISSED,
            Self::Session => SESSION,
            Self::Invoked => REAL_TIME,
            Self::Overdue(_) => OVERDUE,
            Self::Unseen { .. } | Self::Returned | Self::Later => 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Edge<'h> {
    to: usize,
    reason: Reason<'h>,
}

/// What must come before what. The first nodes are the operations, all others are points.
#[derive(Debug)]
pub(super) struct Graph<'h> {
    operations: Vec<&'h Operation>,
    edges: Vec<Vec<Edge<'h>>>,
    relations: usize,
}

impl<'h> Graph<'h> {
    pub(super) fn new(operations: Vec<&'h Operation>) -> Self {
        let edges = vec![Vec::new(); operations.len()];
        Self { operations, edges, relations: 0 }
    }

    pub(super) fn operations(&self) -> &[&'h Operation] {
        &self.operations
    }

    /// How many edges begin at operations.
    pub(super) fn relations(&self) -> usize {
        self.relations
    }

    pub(super) fn point(&mut self) -> usize {
        self.edges.push(Vec::new());
        self.edges.len() - 1
    }

    /// One comes before the other. That something comes before itself says nothing.
    pub(super) fn add(&mut self, from: usize, to: usize, why: Reason<'h>) {
        if from != to {
            self.edges[from].push(Edge { to, reason: why });
            self.relations += usize::from(from < self.operations.len());
        }
    }

    /// Whether everything can come after all that must come before it.
    ///
    /// # Errors
    /// The worst kind of cycle that there is, and of that kind a short one.
    pub(super) fn check(&self) -> Result<(), Violation> {
        if self.strongly_connected_components(Kinds::MAX).is_empty() {
            return Ok(());
        }
        let data = WRITES | SEEN | MISSED;
        let stages = [
            (Rule::G0, WRITES, usize::MAX),
            (Rule::G1c, WRITES | SEEN, usize::MAX),
            (Rule::GSingle, data, 1),
            (Rule::G2, data, usize::MAX),
            (Rule::Session, data | SESSION, usize::MAX),
            (Rule::RealTime, data | SESSION | REAL_TIME, usize::MAX),
            (Rule::Stale, Kinds::MAX, usize::MAX),
        ];
        let found = stages.iter().find_map(|(rule, kinds, missed)| Some((*rule, self.shortest(*kinds, *missed)?)));
        found.map_or(Ok(()), |(rule, cycle)| Err(self.violation(rule, &cycle)))
    }

    /// The sets of nodes of which each is reached from each other, as a number for each node of such a set.
    fn strongly_connected_components(&self, kinds: Kinds) -> Vec<Vec<usize>> {
        const UNSEEN: usize = usize::MAX;
        let count = self.edges.len();
        let (mut order, mut low) = (vec![UNSEEN; count], vec![0; count]);
        let (mut on_stack, mut stack, mut found) = (vec![false; count], Vec::new(), Vec::new());
        let mut next = 0;
        for root in 0..count {
            if order[root] != UNSEEN {
                continue;
            }
            let mut path = vec![(root, 0)];
            while let Some((node, at)) = path.pop() {
                if at == 0 {
                    (order[node], low[node]) = (next, next);
                    next += 1;
                    stack.push(node);
                    on_stack[node] = true;
                }
                if let Some(edge) = self.edges[node].get(at) {
                    path.push((node, at + 1));
                    if !is_allowed(edge, kinds) {
                    } else if order[edge.to] == UNSEEN {
                        path.push((edge.to, 0));
                    } else if on_stack[edge.to] {
                        low[node] = low[node].min(order[edge.to]);
                    }
                    continue;
                }
                if let Some((parent, _)) = path.last() {
                    low[*parent] = low[*parent].min(low[node]);
                }
                if low[node] == order[node] {
                    let from = stack.iter().rposition(|other| *other == node).unwrap_or(0);
                    let tangle = stack.split_off(from);
                    tangle.iter().for_each(|node| on_stack[*node] = false);
                    if tangle.len() > 1 {
                        found.push(tangle);
                    }
                }
            }
        }
        found
    }

    /// A shortest cycle of such edges, of which at most so many say that something was missed.
    fn shortest(&self, kinds: Kinds, missed: usize) -> Option<Vec<(usize, Edge<'h>)>> {
        let mut best: Option<(usize, Vec<(usize, Edge<'h>)>)> = None;
        let mut inside = vec![false; self.edges.len()];
        for tangle in self.strongly_connected_components(kinds) {
            tangle.iter().for_each(|node| inside[*node] = true);
            let starts = tangle.iter().filter(|node| **node < self.operations.len());
            for start in starts.take(STARTS) {
                let limit = best.as_ref().map_or(usize::MAX, |(length, _)| *length);
                best = self.shortest_cycle_through(*start, &inside, kinds, missed, limit).or(best);
            }
            tangle.iter().for_each(|node| inside[*node] = false);
        }
        best.map(|(_, cycle)| cycle)
    }

    /// A shortest way from a node back to it, shorter than `limit` operations. The search goes over pairs: a node, and
    /// how many edges of the way there say that something was missed, as far as these are limited.
    fn shortest_cycle_through(
        &self,
        start: usize,
        inside: &[bool],
        kinds: Kinds,
        missed: usize,
        limit: usize,
    ) -> Option<(usize, Vec<(usize, Edge<'h>)>)> {
        let limited = missed != usize::MAX;
        let layers = if limited { missed + 1 } else { 1 };
        let mut came: Vec<Option<(usize, Edge<'h>)>> = vec![None; self.edges.len() * layers];
        let mut closest = vec![usize::MAX; came.len()];
        let mut queue = VecDeque::from([(start * layers, 0)]);
        while let Some((state, length)) = queue.pop_front() {
            let (node, layer) = (state / layers, state % layers);
            if node == start && length > 0 {
                return Some((length, self.path_back(state, layers, start, &came)));
            }
            if length > closest[state] {
                continue;
            }
            for edge in self.edges[node].iter().filter(|edge| inside[edge.to] && is_allowed(edge, kinds)) {
                let layer = layer + usize::from(limited && edge.reason.kind() == MISSED);
                let is_operation = edge.to < self.operations.len();
                let (next, length) = (edge.to * layers + layer, length + usize::from(is_operation));
                if layer >= layers || length >= limit || length >= closest[next] {
                    continue;
                }
                closest[next] = length;
                came[next] = Some((state, *edge));
                if is_operation { queue.push_back((next, length)) } else { queue.push_front((next, length)) }
            }
        }
        None
    }

    fn path_back(
        &self,
        end: usize,
        layers: usize,
        start: usize,
        came: &[Option<(usize, Edge<'h>)>],
    ) -> Vec<(usize, Edge<'h>)> {
        let mut cycle = Vec::new();
        let mut at = end;
        while let Some((before, edge)) = came[at] {
            cycle.push((before / layers, edge));
            at = before;
            if at / layers == start {
                break;
            }
        }
        cycle.reverse();
        cycle
    }

    fn violation(&self, rule: Rule, cycle: &[(usize, Edge<'h>)]) -> Violation {
        let mut operations: Vec<Operation> = Vec::new();
        let mut why = Vec::new();
        let mut begun = None;
        for (node, edge) in cycle {
            if let Some(operation) = self.operations.get(*node) {
                operations.push((*operation).clone());
                begun = Some((*operation, edge.reason));
            }
            if let (Some((from, first)), Some(to)) = (begun, self.operations.get(edge.to)) {
                why.push(explain(from, first, to, edge.reason));
            }
        }
        Violation { rule, operations, why }
    }
}

fn is_allowed(edge: &Edge<'_>, kinds: Kinds) -> bool {
    let kind = edge.reason.kind();
    kind == 0 || kind & kinds != 0
}

/// What leads from one operation to another: by one edge, or by points, of which the first and the last edge tell all.
fn explain(from: &Operation, first: Reason<'_>, to: &Operation, last: Reason<'_>) -> String {
    let (one, other) = (from.number, to.number);
    match (first, last) {
        (Reason::Wrote { key, before, after }, _) => {
            format!("T{one} appended {before} to {key}, behind which T{other} appended {after}")
        }
        (Reason::WroteLast { key, element: before }, Reason::Unseen { element: after, .. }) => {
            format!("T{one} appended {before} to {key}, which was read without {after}, which T{other} appended")
        }
        (Reason::Seen { key, element }, _) => format!("T{one} appended {element} to {key}, which T{other} read"),
        (Reason::Missed { key, element }, _) | (Reason::SawAll, Reason::Unseen { key, element }) => {
            format!("T{one} read {key} without {element}, which T{other} appended")
        }
        (Reason::Session, _) => format!("T{one} comes before T{other}: client {} did both", from.client),
        (_, Reason::Invoked) => {
            let returned = from.returned.unwrap_or_default();
            format!("T{one} returned at {returned}, before T{other} was invoked at {}", to.invoked)
        }
        (_, Reason::Overdue(bound_ms)) => {
            let age = to.invoked - from.returned.unwrap_or_default();
            format!("T{one} returned {age} ms before snapshot T{other} was invoked: more than {bound_ms} ms")
        }
        (first, last) => format!("T{one} comes before T{other}: {first:?}, {last:?}"),
    }
}
