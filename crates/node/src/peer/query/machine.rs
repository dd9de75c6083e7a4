//! One query as a machine. Inputs: answers of bricks, the object cache and the catalogue, and the time. Outputs: requests to them.
//!
//! ```text
//!  request, handle(event) ──▶ ┌──────────────┐ ──▶ Work: Scan, Read, RefreshSchema, Step, …
//!                             │ QueryMachine │
//!               advance(now) ─▶└──────────────┘ ──▶ take_portion: rows for the client
//! ```
//!
//! It works only while its client waits for rows ([`QueryMachine::request`]). Each call of [`QueryMachine::advance`] is one small
//! step, so that the calling thread can serve others in between.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use model::{Error, ErrorKind, FieldNumber, Kind, NodeId, Oid, RecordBuilder, Result};
use protocol::lease::Ms;
use protocol::validate::Read;
use query::{Plan, Progress, QueryRun, Row};
use wire::cluster::{self, MAX_WAITS_FOR, QueryRows, Scan, Scanned};

use super::own_writes::OwnWrites;
use super::read_set::ReadSet;
use super::streams::{Next, ScanLimits, StreamSettings, Streams};
use crate::cluster_view::{QuerySchema, SpaceView, needs_definition};
use crate::node_placement::{BrickId, NodePlacement};
use crate::peer::cache::CachedObject;
use crate::peer::plant::{Bug, planted};

/// How long a query waits for classes that bricks know already, in milliseconds, and how often it refreshes them.
const SCHEMA_TIMEOUT_MS: Ms = 10_000;
const SCHEMA_RETRY_MS: Ms = 50;
/// How often a client receives an answer without rows while its query works, in milliseconds.
pub(crate) const PROGRESS_INTERVAL_MS: Ms = 2_000;
/// Most rows of one answer, and bytes after which no row is added.
const PORTION: usize = 1_000;
const PORTION_BYTES: usize = 512 << 10;
/// Most candidates and objects that are examined on the calling thread, and only briefly. More are examined on a blocking thread.
const MAX_INLINE: usize = 64;

/// Facts about bricks that a query needs.
pub trait Bricks {
    /// The brick that serves a logical node, and its epoch.
    fn place(&self, node: NodeId) -> Option<NodePlacement>;
    /// Whether nothing was received from a brick recently, or there is no connection to it.
    fn is_silent(&self, brick: BrickId) -> bool;
}

/// Work for the driver of a query.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most work is a scan, and a box would be one allocation more for each")]
pub enum Work {
    /// Ask a brick. Answered by [`Event::Scanned`] with the same ticket.
    Scan {
        /// A generation and a stream.
        ticket: (u32, u32),
        /// The brick.
        brick: BrickId,
        /// The request.
        scan: Scan,
    },
    /// Read objects in the object cache. Answered by one or more [`Event::Read`] with the same generation.
    Read {
        /// The generation.
        generation: u32,
        /// The objects.
        oids: Vec<Oid>,
    },
    /// Fetch the classes from the catalogue. Answered by [`Event::Schema`].
    RefreshSchema,
    /// Call [`QueryRun::step`] on a blocking thread. Answered by [`Event::Stepped`].
    Step(Box<QueryRun>),
    /// Wait for a permit to sort or group. Answered by [`Event::Turn`].
    AcquireTurn,
    /// Release the permit.
    ReleaseTurn,
}

/// Results of work.
#[derive(Debug)]
pub enum Event {
    /// A brick has answered a scan.
    Scanned {
        /// The ticket of the scan.
        ticket: (u32, u32),
        /// The answer.
        answer: Result<Scanned>,
    },
    /// Objects were read.
    Read {
        /// The generation of the request.
        generation: u32,
        /// The objects.
        found: Vec<(Oid, Result<CachedObject>)>,
    },
    /// The classes that the catalogue has now.
    Schema(Result<Arc<QuerySchema>>),
    /// The run with its progress; `None` if the step has panicked.
    Stepped(Option<(Box<QueryRun>, Result<Progress>)>),
    /// The query has the permit to sort or group.
    Turn,
}

/// The result of a call of [`QueryMachine::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// A step was made: call it again.
    Worked,
    /// Nothing can be done before an event arrives or the [deadline](QueryMachine::deadline) passes.
    Waits,
}

/// The state of a query.
#[derive(Debug)]
enum Stage {
    /// Its run is here and works.
    Running,
    /// Its run works on another thread.
    Stepping,
    /// It waits for a permit to sort or group.
    Queued,
    /// It will refresh the classes at this time.
    AwaitsSchemaRetry(Ms),
    /// It waits for classes from the catalogue.
    AwaitsSchema,
}

/// A query.
pub struct QueryMachine {
    asked: Arc<cluster::QueryRequest>,
    space: Arc<SpaceView>,
    plan: Arc<Plan>,
    /// The classes with which the plan was made.
    schema: Arc<QuerySchema>,
    /// Number of restarts.
    generation: u32,
    limits: ScanLimits,
    stage: Stage,
    /// `None` while it works on another thread.
    run: Option<Box<QueryRun>>,
    /// The last result of the run, until it has been acted on.
    progress: Option<Progress>,
    streams: Streams,
    own_writes: OwnWrites,
    /// Number of candidates and objects that the run has received and not examined.
    unexamined: usize,
    /// Objects that were asked for, and those that have come.
    missing: BTreeSet<Oid>,
    fetched: VecDeque<(Oid, Result<CachedObject>)>,
    read_set: ReadSet,
    ready: VecDeque<Row>,
    is_done: bool,
    has_turn: bool,
    has_sent_columns: bool,
    has_sent_rows: bool,
    /// There are classes that the query does not know; until when they are waited for, since that was noticed.
    is_schema_stale: bool,
    schema_deadline: Option<Ms>,
    /// The catalogue has no other classes: one that is not known does not exist.
    is_schema_current: bool,
    /// By when the client gets an answer, with or without rows.
    answer_by: Ms,
    work: Vec<Work>,
}

impl QueryMachine {
    /// A query of a client. It does nothing before [`QueryMachine::request`].
    ///
    /// # Errors
    /// If the query cannot be read, or does not fit the classes.
    pub fn new(
        space: &Arc<SpaceView>,
        schema: Arc<QuerySchema>,
        asked: cluster::QueryRequest,
        limits: ScanLimits,
    ) -> Result<Self> {
        Self::new_while(&|| true, space, schema, asked, limits)
    }

    /// The same, given up when the query is not wanted any more: looking at much that its transaction has written takes many seconds.
    ///
    /// # Errors
    /// As [`QueryMachine::new`]; [`ErrorKind::Unavailable`] if it is not wanted any more.
    pub(super) fn new_while(
        is_wanted: &dyn Fn() -> bool,
        space: &Arc<SpaceView>,
        schema: Arc<QuerySchema>,
        asked: cluster::QueryRequest,
        limits: ScanLimits,
    ) -> Result<Self> {
        Self::begin(space.clone(), schema, Arc::new(asked), (0, limits), is_wanted)
    }

    fn begin(
        space: Arc<SpaceView>,
        schema: Arc<QuerySchema>,
        asked: Arc<cluster::QueryRequest>,
        (generation, limits): (u32, ScanLimits),
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Self> {
        let query = query::Query::decode(&asked.query)?;
        let checked = query.check(&schema.classes)?;
        let family = (!query.only).then_some(checked.class());
        let read_set = ReadSet::new(asked.report_reads);
        let plan = Arc::new(checked.plan(&schema.classes, &schema.indexes));
        let own_writes = OwnWrites::new(asked.own_writes.clone(), &plan, is_wanted)?;
        let streams = Streams::new(StreamSettings {
            space: &space,
            plan: plan.clone(),
            family,
            only_guards: asked.only_guards,
            own_writes: own_writes.len(),
            generation,
            limits,
        });
        let is_schema_stale = asked.own_writes.keys().any(|oid| is_unknown_class(&schema, *oid));
        Ok(Self {
            run: Some(Box::new(QueryRun::new(plan.clone()))),
            asked,
            space,
            plan,
            schema,
            generation,
            limits,
            stage: Stage::Running,
            progress: None,
            streams,
            own_writes,
            unexamined: 0,
            missing: BTreeSet::new(),
            fetched: VecDeque::new(),
            read_set,
            ready: VecDeque::new(),
            is_done: false,
            has_turn: false,
            has_sent_columns: false,
            has_sent_rows: false,
            is_schema_stale,
            schema_deadline: None,
            is_schema_current: false,
            answer_by: 0,
            work: Vec::new(),
        })
    }

    /// The classes and indexes that it uses.
    #[must_use]
    pub fn schema(&self) -> &Arc<QuerySchema> {
        &self.schema
    }

    // -------------------------------------------------------------------------------------------- inputs

    /// Handles a request for rows.
    pub fn request(&mut self, now: Ms) {
        self.answer_by = now + PROGRESS_INTERVAL_MS;
    }

    /// Handles the result of work.
    ///
    /// # Errors
    /// The error with which the query fails.
    pub fn handle(&mut self, event: Event, now: Ms) -> Result<()> {
        match event {
            Event::Scanned { ticket, answer } => self.streams.handle_answer(ticket, answer),
            Event::Read { generation, found } => {
                if generation == self.generation {
                    self.fetched.extend(found);
                }
            }
            Event::Schema(schema) => {
                if matches!(self.stage, Stage::AwaitsSchema) {
                    self.restart(schema?, now)?;
                }
            }
            Event::Stepped(Some((run, progress))) => {
                (self.run, self.stage) = (Some(run), Stage::Running);
                self.progress = Some(progress?);
            }
            Event::Stepped(None) => return Err(lost_run_error()),
            Event::Turn => {
                self.has_turn = true;
                if matches!(self.stage, Stage::Queued) {
                    self.stage = Stage::Running;
                }
            }
        }
        Ok(())
    }

    /// Makes the next step.
    ///
    /// # Errors
    /// The error with which the query fails.
    pub fn advance(&mut self, bricks: &impl Bricks, now: Ms) -> Result<Activity> {
        if self.is_done || !self.ready.is_empty() {
            return Ok(Activity::Waits);
        }
        match self.stage {
            Stage::Running => {}
            Stage::Stepping | Stage::Queued => return Ok(Activity::Waits),
            Stage::AwaitsSchema | Stage::AwaitsSchemaRetry(_) => return self.advance_schema(now),
        }
        if self.plan.collects() && !self.has_turn {
            self.stage = Stage::Queued;
            self.work.push(Work::AcquireTurn);
            return Ok(Activity::Waits);
        }
        if self.is_schema_stale {
            return self.await_schema(now);
        }
        if self.asked.only_guards {
            return self.advance_guards(bricks, now);
        }
        if self.own_writes.offer(self.run.as_deref_mut()) {
            self.unexamined += self.own_writes.len();
        }
        if !self.missing.is_empty() {
            return self.take_fetched();
        }
        let Some(progress) = self.step()? else { return Ok(Activity::Waits) };
        match progress {
            Progress::Need(oids) => {
                self.fetch_objects(oids)?;
                return Ok(Activity::Worked);
            }
            Progress::More => match self.streams.next(bricks, now, &mut self.work)? {
                Next::Page(_, scanned) if is_stale(&scanned) => {
                    self.is_schema_stale = true;
                    return Ok(Activity::Worked);
                }
                Next::Page(stream, scanned) => self.offer(stream, scanned)?,
                Next::Finished => self.run()?.end(),
                Next::Pending => {
                    self.progress = Some(Progress::More);
                    return Ok(Activity::Waits);
                }
            },
            // The next step is not brief.
            Progress::Again => self.unexamined = self.unexamined.max(MAX_INLINE + 1),
            Progress::Enough => self.is_done = true,
        }
        let rows = self.run()?.take();
        self.ready.extend(rows);
        Ok(Activity::Worked)
    }

    fn advance_guards(&mut self, bricks: &impl Bricks, now: Ms) -> Result<Activity> {
        match self.streams.next(bricks, now, &mut self.work)? {
            Next::Page(_, scanned) if is_stale(&scanned) => self.is_schema_stale = true,
            Next::Page(_, scanned) => self.read_set.add(scanned.guards, scanned.seen)?,
            Next::Finished => self.is_done = true,
            Next::Pending => return Ok(Activity::Waits),
        }
        Ok(Activity::Worked)
    }

    /// Takes the work to be done, in order.
    pub fn work(&mut self) -> impl Iterator<Item = Work> {
        self.work.drain(..)
    }

    /// By when [`QueryMachine::advance`] or [`QueryMachine::take_portion`] has something to do.
    pub fn deadline(&self) -> Ms {
        let next = match self.stage {
            Stage::AwaitsSchemaRetry(at) => Some(at),
            Stage::AwaitsSchema => self.schema_deadline,
            Stage::Running if self.missing.is_empty() => self.streams.deadline(),
            Stage::Running | Stage::Stepping | Stage::Queued => None,
        };
        next.map_or(self.answer_by, |next| next.min(self.answer_by))
    }

    // -------------------------------------------------------------------------------------------- classes

    /// Waits for classes that bricks or objects have, and restarts the query with them.
    fn await_schema(&mut self, now: Ms) -> Result<Activity> {
        if self.has_sent_rows {
            let what = "classes were added below that of the query while its rows were sent: ask it again";
            let kind = if self.read_set.is_wanted() { ErrorKind::Conflict } else { ErrorKind::Unavailable };
            return Err(Error::new(kind, what));
        }
        self.schema_deadline.get_or_insert(now + SCHEMA_TIMEOUT_MS);
        self.stage = Stage::AwaitsSchemaRetry(if self.is_schema_current { now + SCHEMA_RETRY_MS } else { now });
        Ok(Activity::Worked)
    }

    fn advance_schema(&mut self, now: Ms) -> Result<Activity> {
        if self.schema_deadline.is_some_and(|until| until <= now) {
            let what = "bricks know classes that the peer server has not heard of yet: try again";
            return Err(Error::new(ErrorKind::Unavailable, what));
        }
        match self.stage {
            Stage::AwaitsSchemaRetry(at) if at <= now => {
                self.stage = Stage::AwaitsSchema;
                self.work.push(Work::RefreshSchema);
                Ok(Activity::Worked)
            }
            _ => Ok(Activity::Waits),
        }
    }

    /// Restarts the query with these classes.
    fn restart(&mut self, schema: Arc<QuerySchema>, now: Ms) -> Result<()> {
        if self.schema_deadline.is_some_and(|until| until <= now) {
            // The next call of `advance` fails with the reason.
            return Ok(());
        }
        let anew =
            Self::begin(self.space.clone(), schema, self.asked.clone(), (self.generation + 1, self.limits), &|| true)?;
        let is_schema_current = Arc::ptr_eq(&anew.schema, &self.schema);
        *self = Self {
            has_sent_columns: self.has_sent_columns,
            // Newer classes have a time limit of their own.
            schema_deadline: self.schema_deadline.filter(|_| is_schema_current),
            is_schema_stale: anew.is_schema_stale && !is_schema_current,
            is_schema_current,
            has_turn: self.has_turn,
            answer_by: self.answer_by,
            work: std::mem::take(&mut self.work),
            ..anew
        };
        Ok(())
    }

    // -------------------------------------------------------------------------------------------- the run

    fn run(&mut self) -> Result<&mut QueryRun> {
        self.run.as_deref_mut().ok_or_else(lost_run_error)
    }

    /// Lets the run make a step; returns `None` while it works on another thread.
    fn step(&mut self) -> Result<Option<Progress>> {
        if let Some(progress) = self.progress.take() {
            return Ok(Some(progress));
        }
        let given = std::mem::take(&mut self.unexamined);
        if given <= MAX_INLINE && !(self.plan.collects() && self.streams.is_finished()) {
            return self.run()?.step_briefly().map(Some);
        }
        let run = self.run.take().ok_or_else(lost_run_error)?;
        self.stage = Stage::Stepping;
        self.work.push(Work::Step(run));
        Ok(None)
    }

    fn offer(&mut self, stream: u32, scanned: Scanned) -> Result<()> {
        let Scanned { found, guards, count, seen, .. } = scanned;
        self.read_set.add(guards, seen)?;
        let is_counted = found.is_empty();
        let run = self.run.as_deref_mut().ok_or_else(lost_run_error)?;
        for (oid, _, object) in found {
            let is_shadowed = self.own_writes.has(oid) && !planted(Bug::QueryOwnWritesShadowed);
            if !is_shadowed && object.kind == Kind::Record {
                run.offer(stream, oid, object.data);
                self.unexamined += 1;
            }
        }
        if is_counted && self.streams.counts() {
            run.offer_count(count);
        }
        let done: Vec<u32> = self.streams.numbers().filter(|stream| run.is_done(*stream)).collect();
        done.into_iter().for_each(|stream| self.streams.drop_stream(stream));
        Ok(())
    }

    /// Requests objects of followed references, each once. The object cache limits how long that takes.
    fn fetch_objects(&mut self, oids: Vec<Oid>) -> Result<()> {
        let mut uncached = Vec::new();
        for oid in oids {
            let is_of_space = oid.space() == self.space.id || planted(Bug::QueryFollowsForeign);
            let is_here = !oid.is_temporary() && is_of_space && self.space.nodes.contains(&oid.page().node);
            if let Some(own) = self.own_writes.get(oid) {
                self.run()?.supply(oid, own);
            } else if !is_here {
                self.run()?.supply(oid, None);
            } else {
                self.missing.insert(oid);
                uncached.push(oid);
            }
        }
        if !uncached.is_empty() {
            self.work.push(Work::Read { generation: self.generation, oids: uncached });
        }
        Ok(())
    }

    /// Takes the objects of followed references that have arrived.
    fn take_fetched(&mut self) -> Result<Activity> {
        while let Some((oid, found)) = self.fetched.pop_front() {
            if !self.missing.remove(&oid) {
                continue;
            }
            let found = found?;
            let is_unknown = found.object.is_some() && is_unknown_class(&self.schema, oid);
            self.is_schema_stale |= !self.is_schema_current && is_unknown;
            self.read_set.add([Read { oid, seen: found.seen }], found.timestamp)?;
            let record = found.object.filter(|object| object.kind == Kind::Record).map(|object| object.data);
            self.run()?.supply(oid, record);
            self.unexamined += 1;
        }
        Ok(if self.missing.is_empty() { Activity::Worked } else { Activity::Waits })
    }

    // -------------------------------------------------------------------------------------------- rows

    /// The next rows and whether they are the last, if there are any or the client has waited long enough.
    ///
    /// # Errors
    /// If a row cannot be encoded.
    pub fn take_portion(&mut self, bricks: &impl Bricks, now: Ms) -> Result<Option<(QueryRows, bool)>> {
        if self.ready.is_empty() && !self.is_done && now < self.answer_by {
            return Ok(None);
        }
        let mut rows = QueryRows::default();
        if !std::mem::replace(&mut self.has_sent_columns, true) {
            rows.columns = self.plan.columns().iter().map(|column| column.name.clone()).collect();
        }
        let mut bytes = 0;
        while rows.rows.len() < PORTION && bytes < PORTION_BYTES {
            let Some(row) = self.ready.pop_front() else { break };
            let data = match row {
                Row::Object(oid, record) => {
                    rows.oids.push(oid);
                    record
                }
                Row::Values(values) => {
                    let mut record = RecordBuilder::new();
                    for (number, value) in (1..).map(FieldNumber).zip(&values) {
                        record.set_value(number, value)?;
                    }
                    record.build()?
                }
            };
            bytes += data.len();
            rows.rows.push(data);
        }
        if rows.rows.is_empty() && !self.is_done {
            rows.waits_for = self.waits_for(bricks, now);
        }
        (rows.reads, rows.seen) = self.read_set.take_unsent();
        self.has_sent_rows |= !rows.rows.is_empty() || !rows.reads.is_empty();
        // Sorted rows that wait to be sent still take memory, unless they are few.
        if self.is_done && self.ready.len() <= PORTION && std::mem::take(&mut self.has_turn) {
            self.work.push(Work::ReleaseTurn);
        }
        let is_last = self.is_done && self.ready.is_empty();
        if is_last && self.asked.explain {
            let counts = self.run()?.counts();
            // Objects that are only counted, all of an extent, are not examined.
            let scanned = Some(self.streams.examined_count().max(counts.sent.unwrap_or_default()));
            let counts = query::Counts { scanned, ..counts };
            let step = self.plan.explain(&counts);
            rows.plan = (step.to_string(), Bytes::from(step.to_json().to_string()));
        }
        Ok(Some((rows, is_last)))
    }

    /// The logical nodes that the query waits for and that cannot be asked now, [`MAX_WAITS_FOR`] at most.
    fn waits_for(&self, bricks: &impl Bricks, now: Ms) -> Vec<NodeId> {
        let mut nodes = match self.missing.is_empty() {
            true => self.streams.unreachable_nodes(bricks, now),
            false => {
                let nodes: BTreeSet<NodeId> = self.missing.iter().map(|oid| oid.page().node).collect();
                let is_away = |place: NodePlacement| bricks.is_silent(place.brick);
                nodes.into_iter().filter(|node| bricks.place(*node).is_none_or(is_away)).collect()
            }
        };
        nodes.truncate(MAX_WAITS_FOR);
        nodes
    }
}

/// Whether a brick has objects of classes that the query does not know.
fn is_stale(scanned: &Scanned) -> bool {
    scanned.has_stale_classes && !planted(Bug::QueryStaleClasses)
}

/// Whether the class of an object is unknown.
fn is_unknown_class(schema: &QuerySchema, oid: Oid) -> bool {
    needs_definition(oid.class()) && schema.classes.class(oid.class()).is_none()
}

fn lost_run_error() -> Error {
    Error::new(ErrorKind::Internal, "the query was lost because the thread that evaluated it panicked")
}

#[cfg(test)]
mod tests;
