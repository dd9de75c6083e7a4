//! Candidates from all logical nodes of a space, some of them at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use model::{ClassId, Error, ErrorKind, NodeId, Result, SpaceId};
use query::key::KeyRange;
use query::{CandidateSource, Plan};
use tokio::sync::mpsc;
use tokio::time::{self, Instant};
use wire::cluster::{IndexRange, Scan, ScanPosition, Scanned};
use wire::frame::Raw;
use wire::link;
use wire::proto::request::Request;
use wire::proto::response::Response;

use super::OwnWrites;
use crate::cluster_view::SpaceView;
use crate::peer::PeerDriver;

/// Logical nodes that are asked at a time: what has come and was not judged is bounded by their answers.
const MAX_IN_FLIGHT: usize = 8;
/// Candidates of one answer.
const PORTION: u64 = 1_000;
/// How long a logical node that cannot be asked now is asked again.
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// What is still to come of a logical node.
struct Stream {
    node: NodeId,
    /// Ranges of the index that follow the one at hand.
    ranges: VecDeque<KeyRange>,
    range: Option<KeyRange>,
    after: Option<ScanPosition>,
    /// Since when it cannot be asked.
    unreachable_since: Option<Instant>,
}

type StreamAnswer = (u32, Result<link::Answer>);

/// Candidates from all logical nodes.
pub(super) struct Streams {
    peer: Arc<PeerDriver>,
    space: SpaceId,
    plan: Arc<Plan>,
    /// The class asked for, if those below it are too.
    family: Option<ClassId>,
    only_guards: bool,
    counts: bool,
    limit: u32,
    /// All that are not at their end.
    streams: BTreeMap<u32, Stream>,
    /// Whom to ask next; when to ask those again who could not be asked.
    waiting: VecDeque<u32>,
    retrying: VecDeque<(Instant, u32)>,
    in_flight: usize,
    sender: mpsc::UnboundedSender<StreamAnswer>,
    answers: mpsc::UnboundedReceiver<StreamAnswer>,
    examined: u64,
}

impl Streams {
    pub(super) fn new(
        peer: Arc<PeerDriver>,
        space: &SpaceView,
        (plan, family): (Arc<Plan>, Option<ClassId>),
        own: &OwnWrites,
        only_guards: bool,
    ) -> Self {
        let ranges: Option<VecDeque<KeyRange>> = match plan.source() {
            CandidateSource::Nothing => Some(VecDeque::new()),
            CandidateSource::Extent => None,
            CandidateSource::Index(index) => Some(match index.reverse {
                true => index.ranges.iter().rev().cloned().collect(),
                false => index.ranges.iter().cloned().collect(),
            }),
        };
        let mut streams = BTreeMap::new();
        for (number, node) in (0..).zip(&space.nodes) {
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
        // Of what a brick sends, what the transaction has written does not count.
        let portion = plan.batch_size().map(|portion| portion.saturating_add(own.len() as u64));
        let limit = if only_guards { 1 } else { portion.unwrap_or(PORTION).clamp(1, PORTION) };
        let (sender, came) = mpsc::unbounded_channel();
        Self {
            peer,
            space: space.id,
            only_guards,
            counts: plan.counts_only() && own.len() == 0,
            plan,
            family,
            limit: limit as u32,
            waiting: streams.keys().copied().collect(),
            streams,
            retrying: VecDeque::new(),
            in_flight: 0,
            sender,
            answers: came,
            examined: 0,
        }
    }

    /// Whether only guards are looked for.
    pub(super) fn only_guards(&self) -> bool {
        self.only_guards
    }

    /// Whether bricks only count.
    pub(super) fn counts(&self) -> bool {
        self.counts
    }

    /// Whether nothing more is to come.
    pub(super) fn is_finished(&self) -> bool {
        self.streams.is_empty()
    }

    /// The numbers of those that are not at their end.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.streams.keys().copied()
    }

    /// Nothing more is wanted of this one.
    pub(super) fn drop_stream(&mut self, stream: u32) {
        self.streams.remove(&stream);
    }

    /// How many objects or entries the bricks have looked at.
    pub(super) fn examined(&self) -> u64 {
        self.examined
    }

    /// Logical nodes that could not be asked when they were asked last.
    pub(super) fn unreachable_nodes(&self) -> impl Iterator<Item = NodeId> {
        self.streams.values().filter(|stream| stream.unreachable_since.is_some()).map(|stream| stream.node)
    }

    /// The next candidates, perhaps none, with the number of the logical node that they are of; `None` when all have come. If the brick
    /// knows of classes that it was not asked for, all is to be asked anew ([`Scanned::behind`]). May be dropped while it waits, and called again.
    ///
    /// # Errors
    /// If a brick cannot be asked for some time, or cannot read what it has.
    pub(super) async fn next(&mut self) -> Result<Option<(u32, Scanned)>> {
        loop {
            while self.retrying.front().is_some_and(|(at, _)| *at <= Instant::now()) {
                self.waiting.extend(self.retrying.pop_front().map(|(_, stream)| stream));
            }
            while self.in_flight < MAX_IN_FLIGHT {
                let Some(stream) = self.waiting.pop_front() else { break };
                self.ask(stream)?;
            }
            let next = match (self.in_flight, self.retrying.front()) {
                (0, None) => return Ok(None),
                (0, Some((at, _))) => {
                    time::sleep_until(*at).await;
                    continue;
                }
                (_, Some((at, _))) => match time::timeout_at(*at, self.answers.recv()).await {
                    Ok(came) => came,
                    Err(_) => continue,
                },
                (_, None) => self.answers.recv().await,
            };
            let Some((stream, answer)) = next else { return Ok(None) };
            self.in_flight -= 1;
            if let Some(scanned) = self.handle_answer(stream, answer)? {
                return Ok(Some((stream, scanned)));
            }
        }
    }

    fn ask(&mut self, number: u32) -> Result<()> {
        let Some(stream) = self.streams.get(&number) else { return Ok(()) };
        let index = if let CandidateSource::Index(index) = self.plan.source() { Some(index) } else { None };
        let range = stream.range.as_ref().zip(index).map(|(range, index)| IndexRange {
            index: index.index,
            from: range.from.clone().into(),
            to: range.to.clone().into(),
            reverse: index.reverse,
        });
        let all = model::Filter::And(Vec::new());
        let place = self.peer.cluster_view.placement.of(stream.node);
        let scan = Scan {
            space: self.space,
            node: stream.node,
            epoch: place.map_or(0, |place| place.epoch),
            classes: self.plan.classes().clone(),
            range,
            after: stream.after.clone(),
            limit: self.limit,
            filter: Some(self.plan.filter()).filter(|filter| **filter != all && !self.only_guards).cloned(),
            count: self.counts && !self.only_guards,
            family: self.family,
        };
        let request = Request::Scan(scan.into_proto()?);
        let sender = self.sender.clone();
        self.in_flight += 1;
        match place {
            // Whoever asked may have gone.
            Some(place) => {
                self.peer.brick_links.ask(place.brick, request, move |answer| drop(sender.send((number, answer))))
            }
            None => {
                let what = format!("nobody serves logical node {:x} now: try again", stream.node.0);
                drop(sender.send((number, Err(Error::new(ErrorKind::Unavailable, what)))));
            }
        }
        Ok(())
    }

    /// What has come of a logical node, if it counts.
    fn handle_answer(&mut self, number: u32, answer: Result<link::Answer>) -> Result<Option<Scanned>> {
        let Some(stream) = self.streams.get_mut(&number) else { return Ok(None) };
        let answer = match answer {
            Ok(answer) => answer,
            // A brick that has just begun to serve may not know an index yet.
            Err(error) if is_transient(&error, stream.range.is_some()) => {
                let now = Instant::now();
                if *stream.unreachable_since.get_or_insert(now) + RETRY_TIMEOUT <= now {
                    return Err(error);
                }
                self.retrying.push_back((now + RETRY_DELAY, number));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        stream.unreachable_since = None;
        let Response::Scanned(scanned) = answer.response else {
            return Err(Error::new(ErrorKind::Internal, "a brick has answered something else than it was asked"));
        };
        let mut scanned = Scanned::from_proto(scanned, Raw::Owned(answer.raw))?;
        self.examined += scanned.examined;
        stream.after = scanned.next.take().filter(|_| !self.only_guards);
        if stream.after.is_none() {
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

fn is_transient(error: &Error, of_index: bool) -> bool {
    let kind = error.kind();
    matches!(kind, ErrorKind::Unavailable | ErrorKind::Unknown) || (of_index && kind == ErrorKind::NotFound)
}
