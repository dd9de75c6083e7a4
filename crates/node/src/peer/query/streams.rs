//! Candidates from all logical nodes of a space: which nodes to ask, in which order, and what to do when one does not answer.
//!
//! A stream has the remaining candidates of one logical node. At most [`ScanLimits::in_flight`] streams have a request in flight, each for
//! its next page. A request to a brick that is unreachable or silent is repeated for [`RETRY_TIMEOUT_MS`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use model::{ClassId, Error, ErrorKind, NodeId, Result, SpaceId};
use protocol::lease::Ms;
use query::key::KeyRange;
use query::{CandidateSource, Plan};
use wire::cluster::{IndexRange, Scan, ScanPosition, Scanned};

use super::machine::{Bricks, Work};
use crate::cluster_view::SpaceView;
use crate::peer::plant::{Bug, planted};

/// How much of a query is under way at bricks.
#[derive(Clone, Copy, Debug)]
pub struct ScanLimits {
    /// Most requests in flight. It bounds the candidates that have arrived and were not examined.
    pub in_flight: usize,
    /// Candidates in one answer.
    pub page: u64,
}

impl ScanLimits {
    /// The limits of a peer server that serves.
    pub const SERVING: Self = Self { in_flight: 8, page: 1_000 };
    /// Small limits, so that a simulated query takes many steps.
    pub const SMALL: Self = Self { in_flight: 2, page: 3 };
}

/// How long requests to an unreachable logical node are repeated, in milliseconds.
const RETRY_TIMEOUT_MS: Ms = 10_000;
const RETRY_DELAY_MS: Ms = 50;
/// After how long without an answer a logical node of a silent brick counts as unreachable, in milliseconds.
const STALL_MS: Ms = 1_000;

/// The remaining candidates of a logical node.
struct Stream {
    node: NodeId,
    /// Ranges of the index that follow the current one.
    ranges: VecDeque<KeyRange>,
    range: Option<KeyRange>,
    after: Option<ScanPosition>,
    /// Since when its logical node is unreachable.
    unreachable_since: Option<Ms>,
}

/// The next result of the streams.
pub(super) enum Next {
    /// Candidates, perhaps none, of the stream with this number.
    Page(u32, Scanned),
    /// Nothing yet: wait for an answer or for time to pass.
    Pending,
    /// All streams have ended.
    Finished,
}

/// The settings of streams.
pub(super) struct StreamSettings<'a> {
    pub(super) space: &'a SpaceView,
    pub(super) plan: Arc<Plan>,
    /// The class of the query, if subclasses are included.
    pub(super) family: Option<ClassId>,
    /// Only guards are wanted, no candidates.
    pub(super) only_guards: bool,
    /// Number of objects that the transaction has written: this many of a brick's candidates may not count.
    pub(super) own_writes: usize,
    /// Number of restarts of the query. Answers for another generation are dropped.
    pub(super) generation: u32,
    pub(super) limits: ScanLimits,
}

/// Candidates from all logical nodes.
pub(super) struct Streams {
    space: SpaceId,
    plan: Arc<Plan>,
    family: Option<ClassId>,
    only_guards: bool,
    counts: bool,
    limits: ScanLimits,
    limit: u32,
    generation: u32,
    /// The streams that have not ended.
    streams: BTreeMap<u32, Stream>,
    /// The streams to ask next, and those to ask again at a given time.
    waiting: VecDeque<u32>,
    retrying: VecDeque<(Ms, u32)>,
    /// The streams with a request in flight, and when it was sent.
    in_flight: BTreeMap<u32, Ms>,
    arrived: VecDeque<(u32, Result<Scanned>)>,
    examined: u64,
    /// The epochs of the first requests, for the planted bug that keeps them.
    first_epochs: BTreeMap<u32, u64>,
}

impl Streams {
    pub(super) fn new(settings: StreamSettings<'_>) -> Self {
        let StreamSettings { space, plan, family, only_guards, own_writes, generation, limits } = settings;
        let ranges: Option<VecDeque<KeyRange>> = match plan.source() {
            CandidateSource::Nothing => Some(VecDeque::new()),
            CandidateSource::Extent => None,
            CandidateSource::Index(index) => Some(match index.reverse {
                true => index.ranges.iter().rev().cloned().collect(),
                false => index.ranges.iter().cloned().collect(),
            }),
        };
        let mut streams = BTreeMap::new();
        let nodes = if planted(Bug::QuerySkipsNode) { &space.nodes[..space.nodes.len() - 1] } else { &space.nodes };
        for (number, node) in (0..).zip(nodes) {
            let mut ranges = ranges.clone();
            let range = match &mut ranges {
                Some(ranges) => match ranges.pop_front() {
                    Some(range) => Some(range),
                    None => continue,
                },
                None => None,
            };
            let ranges = ranges.unwrap_or_default();
            streams.insert(number, Stream { node: *node, ranges, range, after: None, unreachable_since: None });
        }
        let page = plan.batch_size().map(|page| page.saturating_add(own_writes as u64));
        let limit = if only_guards { 1 } else { page.unwrap_or(limits.page).clamp(1, limits.page) };
        Self {
            space: space.id,
            only_guards,
            counts: plan.counts_only() && own_writes == 0,
            plan,
            family,
            limits,
            limit: limit as u32,
            generation,
            waiting: streams.keys().copied().collect(),
            streams,
            retrying: VecDeque::new(),
            in_flight: BTreeMap::new(),
            arrived: VecDeque::new(),
            examined: 0,
            first_epochs: BTreeMap::new(),
        }
    }

    /// Whether bricks only count.
    pub(super) fn counts(&self) -> bool {
        self.counts
    }

    /// Whether all streams have ended.
    pub(super) fn is_finished(&self) -> bool {
        self.streams.is_empty()
    }

    /// The numbers of the streams that have not ended.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.streams.keys().copied()
    }

    /// Drops a stream.
    pub(super) fn drop_stream(&mut self, stream: u32) {
        self.streams.remove(&stream);
    }

    /// Number of objects or index entries that the bricks have examined.
    pub(super) fn examined_count(&self) -> u64 {
        self.examined
    }

    /// The logical nodes whose last request could not be sent, and those whose brick is silent while an answer is overdue.
    pub(super) fn unreachable_nodes(&self, bricks: &impl Bricks, now: Ms) -> Vec<NodeId> {
        let is_stalled = |number: &u32, stream: &Stream| {
            let is_overdue = self.in_flight.get(number).is_some_and(|asked| asked + STALL_MS <= now);
            is_overdue && is_silent(bricks, stream.node) && !planted(Bug::QueryHangUnnamed)
        };
        let unreachable = self
            .streams
            .iter()
            .filter(|(number, stream)| stream.unreachable_since.is_some() || is_stalled(number, stream));
        unreachable.map(|(_, stream)| stream.node).collect()
    }

    /// Handles the answer to a request.
    pub(super) fn handle_answer(&mut self, (generation, stream): (u32, u32), answer: Result<Scanned>) {
        if generation == self.generation || planted(Bug::QueryOldAnswer) {
            self.arrived.push_back((stream, answer));
        }
    }

    /// The next page, or what to wait for. Adds requests to bricks to `out`. If a page
    /// [has stale classes](Scanned::has_stale_classes), the query has to restart.
    ///
    /// # Errors
    /// If a logical node is unreachable for [`RETRY_TIMEOUT_MS`], or its brick cannot read its rows.
    pub(super) fn next(&mut self, bricks: &impl Bricks, now: Ms, out: &mut Vec<Work>) -> Result<Next> {
        loop {
            while self.retrying.front().is_some_and(|(at, _)| *at <= now) {
                self.waiting.extend(self.retrying.pop_front().map(|(_, stream)| stream));
            }
            while self.in_flight.len() < self.limits.in_flight {
                let Some(stream) = self.waiting.pop_front() else { break };
                self.ask(stream, bricks, now, out);
            }
            match self.arrived.pop_front() {
                Some((stream, answer)) => {
                    self.in_flight.remove(&stream);
                    if let Some(scanned) = self.take_answer(stream, answer, now)? {
                        return Ok(Next::Page(stream, scanned));
                    }
                }
                None if self.streams.is_empty() => return Ok(Next::Finished),
                None => {
                    self.check_hangs(bricks, now)?;
                    return Ok(Next::Pending);
                }
            }
        }
    }

    /// Fails if a brick hangs: it is connected, but silent, and an answer is overdue.
    fn check_hangs(&self, bricks: &impl Bricks, now: Ms) -> Result<()> {
        if planted(Bug::QueryHangs) {
            return Ok(());
        }
        for (number, asked) in &self.in_flight {
            let Some(stream) = self.streams.get(number).filter(|_| asked + RETRY_TIMEOUT_MS <= now) else { continue };
            if let Some(place) = bricks.place(stream.node).filter(|_| is_silent(bricks, stream.node)) {
                let what = format!("brick {} has not answered for {RETRY_TIMEOUT_MS} ms: try again", place.brick.0);
                return Err(Error::new(ErrorKind::Unavailable, what));
            }
        }
        Ok(())
    }

    /// When a stream is asked again.
    pub(super) fn deadline(&self) -> Option<Ms> {
        self.retrying.front().map(|(at, _)| *at)
    }

    fn ask(&mut self, number: u32, bricks: &impl Bricks, now: Ms, out: &mut Vec<Work>) {
        let Some(stream) = self.streams.get(&number) else { return };
        let Some(place) = bricks.place(stream.node) else {
            let what = format!("logical node {:x} is served by no brick now: try again", stream.node.0);
            self.arrived.push_back((number, Err(Error::new(ErrorKind::Unavailable, what))));
            return;
        };
        let index = if let CandidateSource::Index(index) = self.plan.source() { Some(index) } else { None };
        let range = stream.range.as_ref().zip(index).map(|(range, index)| IndexRange {
            index: index.index,
            from: range.from.clone().into(),
            to: range.to.clone().into(),
            reverse: index.reverse,
        });
        let all = model::Filter::And(Vec::new());
        let epoch = if planted(Bug::QueryStaleEpoch) {
            *self.first_epochs.entry(number).or_insert(place.epoch)
        } else {
            place.epoch
        };
        let scan = Scan {
            space: self.space,
            node: stream.node,
            epoch,
            classes: self.plan.classes().clone(),
            range,
            after: stream.after.clone(),
            limit: self.limit,
            filter: Some(self.plan.filter()).filter(|filter| **filter != all && !self.only_guards).cloned(),
            count: self.counts && !self.only_guards,
            family: self.family,
        };
        self.in_flight.insert(number, now);
        out.push(Work::Scan { ticket: (self.generation, number), brick: place.brick, scan });
    }

    /// Handles the answer of a logical node; returns it unless it has to be repeated.
    fn take_answer(&mut self, number: u32, answer: Result<Scanned>, now: Ms) -> Result<Option<Scanned>> {
        let Some(stream) = self.streams.get_mut(&number) else { return Ok(None) };
        let mut scanned = match answer {
            Ok(scanned) => scanned,
            // A brick that has just begun to serve the node may not know an index yet.
            Err(error) if is_transient(&error, stream.range.is_some()) => {
                if *stream.unreachable_since.get_or_insert(now) + RETRY_TIMEOUT_MS <= now {
                    return Err(error);
                }
                self.retrying.push_back((now + RETRY_DELAY_MS, number));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        stream.unreachable_since = None;
        self.examined = self.examined.saturating_add(scanned.examined);
        let next = scanned.next.take().filter(|_| !self.only_guards);
        let is_last = next.is_none();
        if !planted(Bug::QueryPageRepeated) || is_last || stream.after.is_some() {
            stream.after = next;
        }
        if is_last {
            stream.range = stream.ranges.pop_front();
            if stream.range.is_none() {
                self.streams.remove(&number);
                return Ok(Some(scanned));
            }
        }
        self.waiting.push_back(number);
        Ok(Some(scanned))
    }
}

fn is_silent(bricks: &impl Bricks, node: NodeId) -> bool {
    bricks.place(node).is_some_and(|place| bricks.is_silent(place.brick))
}

fn is_transient(error: &Error, of_index: bool) -> bool {
    let kind = error.kind();
    matches!(kind, ErrorKind::Unavailable | ErrorKind::Unknown) || (of_index && kind == ErrorKind::NotFound)
}
