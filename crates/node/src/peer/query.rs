//! Queries of clients: a peer server asks all logical nodes of the space for candidates, and does what a plan leaves to do.
//!
//! ```text
//!  bricks ── Scanned ──▶ streams ──▶ ┌───────────┐ ── Need ──▶ object cache
//!                 own ─────────────▶ │ query::Run │ ◀─ objects ─
//!                                    └───────────┘ ── rows ──▶ FetchRows, portion by portion
//! ```
//!
//! 1. Rows are fetched: a query goes on only when its client asks, so what waits for a slow client is bounded. It ends with the
//!    connection, when the client says so, or when it was not asked for a while.
//! 2. What a transaction relies on is the guards of what was looked through, as they were *before* its first member was
//!    looked at, and the objects that were followed. Candidates need no more: who changes one touches a guard. It comes with
//!    the rows that rest on it, so a client may stop reading.
//! 3. What the transaction has written takes the place of what the bricks have.
//! 4. An answer has the objects of all classes that there are. Whoever meets a class that this peer server has not heard of (a brick
//!    says so, or an object is of one) has the query begun anew, with what the catalogue says by then.

mod own_writes;
mod streams;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use model::{Error, ErrorKind, FieldNumber, Kind, NodeId, Oid, RecordBuilder, Result};
use protocol::ident::{HlcTimestamp, Version};
use protocol::validate::{Read, ReadVersion};
use query::{Plan, Progress, QueryRun, Row};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{self, Instant};
use wire::cluster::{self, MAX_MESSAGE_READS, MAX_WAITS_FOR, QueryRows};
use wire::link::DeferredResponder;
use wire::proto::response::Response;

use super::PeerDriver;
use super::cache::CachedObject;
use crate::brick::guards;
use crate::cluster_view::{QuerySchema, SpaceView, needs_definition};
use own_writes::OwnWrites;
use streams::Streams;

/// Queries of one connection that may be open.
const MAX_OPEN: usize = 64;
/// Queries that may be open at a time, of all clients.
const MAX_OPEN_TOTAL: usize = 1024;
/// Queries that may sort or group at a time; the others wait.
const MAX_COLLECTING: usize = 8;
/// How long a query waits until more of it is wanted.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// How long news of classes that bricks know already are waited for.
const SCHEMA_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// How often a client hears of a query that it is being worked on.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// Rows of one answer, and bytes after which no other row follows.
const PORTION: usize = 1_000;
const PORTION_BYTES: usize = 512 << 10;
/// Candidates and objects that are judged on the thread of a connection, rather than where that holds nobody up.
const MAX_INLINE: usize = 64;
/// Objects that the answer of one query may rest on.
const MAX_READS: usize = MAX_MESSAGE_READS / 2;

/// What bounds the queries of all clients.
pub(super) struct QueryLimits {
    open: Arc<Semaphore>,
    collecting: Arc<Semaphore>,
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self { open: Arc::new(Semaphore::new(MAX_OPEN_TOTAL)), collecting: Arc::new(Semaphore::new(MAX_COLLECTING)) }
    }
}

/// The queries of one connection. Dropped, they end.
#[derive(Default)]
pub(super) struct Queries {
    open: HashMap<u64, OpenQuery>,
    last: u64,
}

/// A query that goes on.
struct OpenQuery {
    requests: mpsc::Sender<DeferredResponder>,
    task: AbortHandle,
}

impl Drop for OpenQuery {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Queries {
    /// Begins a query, and answers with its first rows.
    pub(super) fn begin(
        &mut self,
        peer: &Arc<PeerDriver>,
        space: &Arc<SpaceView>,
        asked: cluster::QueryRequest,
        deferred: DeferredResponder,
    ) {
        self.open.retain(|_, open| !open.requests.is_closed());
        let begun = self.check_open_limit().and_then(|()| RunningQuery::new(peer, space, asked));
        let answer = match begun {
            Ok(answer) => answer,
            Err(error) => return deferred.fail(&error),
        };
        self.last += 1;
        let (wants, wanted) = mpsc::channel(1);
        // It has room for one.
        let _ = wants.try_send(deferred);
        let task = tokio::spawn(run_query(answer, self.last, wanted)).abort_handle();
        self.open.insert(self.last, OpenQuery { requests: wants, task });
    }

    fn check_open_limit(&self) -> Result<()> {
        if self.open.len() < MAX_OPEN {
            return Ok(());
        }
        let what = format!("{MAX_OPEN} queries of this connection are open: read or drop one of them first");
        Err(Error::new(ErrorKind::TooLarge, what))
    }

    /// Answers with the next rows of a query.
    pub(super) fn fetch(&mut self, cursor: u64, deferred: DeferredResponder) {
        let unsent = match self.open.get(&cursor) {
            Some(open) => match open.requests.try_send(deferred) {
                Ok(()) => return,
                Err(mpsc::error::TrySendError::Full(deferred) | mpsc::error::TrySendError::Closed(deferred)) => {
                    deferred
                }
            },
            None => deferred,
        };
        let what = "the query has ended, or its next rows were asked for already: ask it again";
        unsent.fail(&Error::new(ErrorKind::NotFound, what));
    }

    /// Ends a query.
    pub(super) fn end(&mut self, cursor: u64) {
        self.open.remove(&cursor);
    }
}

/// Answers for as long as somebody asks.
async fn run_query(mut answer: RunningQuery, cursor: u64, mut wanted: mpsc::Receiver<DeferredResponder>) {
    while let Ok(Some(deferred)) = time::timeout(IDLE_TIMEOUT, wanted.recv()).await {
        match answer.next_portion().await {
            Ok((mut rows, is_last)) => {
                rows.cursor = (!is_last).then_some(cursor);
                let (rows, raw) = rows.into_proto();
                deferred.send(Response::Rows(rows), raw);
                if is_last {
                    return;
                }
            }
            Err(error) => return deferred.fail(&error),
        }
    }
}

/// An answer in the making.
struct RunningQuery {
    peer: Arc<PeerDriver>,
    space: Arc<SpaceView>,
    plan: Arc<Plan>,
    /// By which it is made.
    schema: Arc<QuerySchema>,
    /// Away while it is at work elsewhere.
    run: Option<QueryRun>,
    working: Option<JoinHandle<(QueryRun, Result<Progress>)>>,
    streams: Streams,
    own_writes: OwnWrites,
    /// Candidates and objects that it was given and has not judged.
    unexamined: usize,
    pending_fetches: PendingFetches,
    read_set: ReadSet,
    explain: bool,
    /// The names of columns were told.
    has_sent_columns: bool,
    ready: VecDeque<Row>,
    done: bool,
    /// Something of the answer was told.
    has_sent_rows: bool,
    /// There are classes that it does not know of; since that was noticed, until when they are waited for.
    is_schema_stale: bool,
    schema_deadline: Option<Instant>,
    /// The catalogue has no others: a class that is not known does not exist.
    is_current: bool,
    collecting: Option<OwnedSemaphorePermit>,
    asked: Arc<cluster::QueryRequest>,
    open: Arc<OwnedSemaphorePermit>,
}

impl RunningQuery {
    fn new(peer: &Arc<PeerDriver>, space: &Arc<SpaceView>, asked: cluster::QueryRequest) -> Result<Self> {
        let full = |_| {
            let what = format!("{MAX_OPEN_TOTAL} queries are open at this peer server: try again, or ask another one");
            Error::new(ErrorKind::Unavailable, what)
        };
        let open = peer.queries.open.clone().try_acquire_owned().map_err(full)?;
        Self::begin(peer, space, Arc::new(asked), Arc::new(open))
    }

    fn begin(
        peer: &Arc<PeerDriver>,
        space: &Arc<SpaceView>,
        asked: Arc<cluster::QueryRequest>,
        open: Arc<OwnedSemaphorePermit>,
    ) -> Result<Self> {
        let schema = peer.cluster_view.schema(space.id)?;
        let query = query::Query::decode(&asked.query)?;
        let checked = query.check(&schema.classes)?;
        let family = (!query.only).then_some(checked.class());
        let mut relied = ReadSet { wanted: asked.report_reads, ..ReadSet::default() };
        let plan = Arc::new(match asked.unique {
            None => checked.plan(&schema.classes, &schema.indexes),
            Some(unique) => {
                let asked = |node: &NodeId| Read {
                    oid: guards::of_question(space.id, *node, unique),
                    seen: ReadVersion::At(Version::ZERO),
                };
                relied.add_reads(space.nodes.iter().map(asked), HlcTimestamp::ZERO)?;
                let mut indexes = schema.indexes.clone();
                indexes.retain(|index| index.id == unique);
                checked.plan(&schema.classes, &indexes)
            }
        });
        let own = OwnWrites::new(asked.own_writes.clone(), &plan)?;
        let streams = Streams::new(peer.clone(), space, (plan.clone(), family), &own, asked.only_guards);
        let behind = asked.own_writes.keys().any(|oid| is_unknown_class(&schema, *oid));
        Ok(Self {
            peer: peer.clone(),
            space: space.clone(),
            run: Some(QueryRun::new(plan.clone())),
            working: None,
            plan,
            schema,
            streams,
            own_writes: own,
            unexamined: 0,
            pending_fetches: PendingFetches::default(),
            read_set: relied,
            explain: asked.explain,
            has_sent_columns: false,
            ready: VecDeque::new(),
            done: false,
            has_sent_rows: false,
            is_schema_stale: behind,
            schema_deadline: None,
            is_current: false,
            collecting: None,
            asked,
            open,
        })
    }

    /// Begins anew, with what the catalogue says now.
    async fn restart(&mut self) -> Result<()> {
        if self.has_sent_rows {
            let what = "classes have come below that of the query while its rows were told: ask it again";
            let kind = if self.read_set.wanted { ErrorKind::Conflict } else { ErrorKind::Unavailable };
            return Err(Error::new(kind, what));
        }
        let late = || {
            let what = "bricks know classes that the peer server has not heard of yet: try again";
            Error::new(ErrorKind::Unavailable, what)
        };
        let until = *self.schema_deadline.get_or_insert_with(|| Instant::now() + SCHEMA_TIMEOUT);
        if self.is_current {
            time::sleep(RETRY_DELAY).await;
        }
        let news = time::timeout_at(until, self.peer.cluster_view.refresh_schema(self.space.id)).await;
        news.map_err(|_| late())??;
        if Instant::now() >= until {
            return Err(late());
        }
        let anew = Self::begin(&self.peer, &self.space, self.asked.clone(), self.open.clone())?;
        let is_current = Arc::ptr_eq(&anew.schema, &self.schema);
        // What is found out with news is found out anew.
        let until = self.schema_deadline.filter(|_| is_current);
        let (introduced, behind) = (self.has_sent_columns, anew.is_schema_stale && !is_current);
        let collecting = self.collecting.take();
        *self = Self {
            has_sent_columns: introduced,
            schema_deadline: until,
            is_schema_stale: behind,
            is_current,
            collecting,
            ..anew
        };
        Ok(())
    }

    fn run(&mut self) -> Result<&mut QueryRun> {
        let lost = || Error::new(ErrorKind::Internal, "the query was given up while it was at work");
        self.run.as_mut().ok_or_else(lost)
    }

    /// The next rows, perhaps none yet; and whether they are the last.
    async fn next_portion(&mut self) -> Result<(QueryRows, bool)> {
        let until = Instant::now() + PROGRESS_INTERVAL;
        if self.plan.collects() && self.collecting.is_none() && !self.done {
            let waiting = time::timeout_at(until, self.peer.queries.collecting.clone().acquire_owned());
            match waiting.await {
                Ok(permit) => self.collecting = permit.ok(),
                Err(_) => return Ok((QueryRows::default(), false)),
            }
        }
        while self.ready.is_empty() && !self.done && Instant::now() < until {
            if time::timeout_at(until, self.advance()).await.map_or(Ok(false), |advanced| advanced.map(|()| true))? {
                // Whoever else is on this thread has a turn.
                tokio::task::yield_now().await;
            }
        }
        self.take_portion()
    }

    /// Does the next thing that there is to do. May be dropped while it waits, and called again.
    async fn advance(&mut self) -> Result<()> {
        if self.is_schema_stale {
            return self.restart().await;
        }
        if self.streams.only_guards() {
            match self.streams.next().await? {
                Some((_, scanned)) if scanned.has_stale_classes => self.is_schema_stale = true,
                Some((_, scanned)) => self.read_set.add_reads(scanned.guards, scanned.seen)?,
                None => self.done = true,
            }
            return Ok(());
        }
        if self.own_writes.offer(self.run.as_mut()) {
            self.unexamined += self.own_writes.len();
        }
        if !self.pending_fetches.missing.is_empty() {
            return self.take_fetched().await;
        }
        match self.step().await? {
            Progress::Need(oids) => return self.fetch_objects(oids),
            Progress::More => match self.streams.next().await? {
                Some((_, scanned)) if scanned.has_stale_classes => self.is_schema_stale = true,
                Some((stream, scanned)) => self.offer(stream, scanned)?,
                None => self.run()?.end(),
            },
            Progress::Enough => self.done = true,
        }
        if self.is_schema_stale {
            return Ok(());
        }
        let rows = self.run()?.take();
        self.ready.extend(rows);
        Ok(())
    }

    /// Has the run do what it can.
    async fn step(&mut self) -> Result<Progress> {
        let lost = || Error::new(ErrorKind::Internal, "the query was given up while it was at work");
        let working = match &mut self.working {
            Some(working) => working,
            None => {
                let given = std::mem::take(&mut self.unexamined);
                if given <= MAX_INLINE && !(self.plan.collects() && self.streams.is_finished()) {
                    return self.run()?.step();
                }
                let mut run = self.run.take().ok_or_else(lost)?;
                self.working.insert(tokio::task::spawn_blocking(move || {
                    let progress = run.step();
                    (run, progress)
                }))
            }
        };
        let worked = working.await;
        self.working = None;
        let (run, progress) = worked.map_err(|_| lost())?;
        self.run = Some(run);
        progress
    }

    fn offer(&mut self, stream: u32, scanned: cluster::Scanned) -> Result<()> {
        let cluster::Scanned { found, guards, count, seen, .. } = scanned;
        self.read_set.add_reads(guards, seen)?;
        let is_counted = found.is_empty();
        let run = self.run.as_mut().ok_or_else(|| Error::new(ErrorKind::Internal, "the query is at work"))?;
        for (oid, _, object) in found {
            if !self.own_writes.has(oid) && object.kind == Kind::Record {
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

    /// Asks for objects that others refer to.
    fn fetch_objects(&mut self, oids: Vec<Oid>) -> Result<()> {
        let (sender, came) = mpsc::unbounded_channel();
        let mut missing = BTreeSet::new();
        for oid in oids {
            let is_here = !oid.is_temporary() && oid.space() == self.space.id;
            if let Some(own) = self.own_writes.get(oid) {
                self.run()?.supply(oid, own);
            } else if !is_here || !self.space.nodes.contains(&oid.page().node) {
                self.run()?.supply(oid, None);
            } else {
                let sender = sender.clone();
                missing.insert(oid);
                // Whoever asked may have gone.
                self.peer.read_when_cached(oid, move |found| drop(sender.send((oid, found))));
            }
        }
        self.pending_fetches = PendingFetches { missing, fetched: came };
        Ok(())
    }

    /// Takes the objects that others refer to, as they come. May be dropped while it waits, and called again.
    async fn take_fetched(&mut self) -> Result<()> {
        while !self.pending_fetches.missing.is_empty() {
            let lost = || Error::new(ErrorKind::Internal, "the object cache has lost a question");
            let (oid, found) = self.pending_fetches.fetched.recv().await.ok_or_else(lost)?;
            self.pending_fetches.missing.remove(&oid);
            let found = found?;
            self.is_schema_stale |= !self.is_current && found.object.is_some() && is_unknown_class(&self.schema, oid);
            self.read_set.add_reads([Read { oid, seen: found.seen }], found.timestamp)?;
            let record = found.object.filter(|object| object.kind == Kind::Record).map(|object| object.data);
            self.run()?.supply(oid, record);
            self.unexamined += 1;
        }
        Ok(())
    }

    /// The logical nodes that it waits for and that cannot be asked now; not too many to be told.
    fn waits_for(&self) -> Vec<NodeId> {
        if self.pending_fetches.missing.is_empty() {
            return self.streams.unreachable_nodes().take(MAX_WAITS_FOR).collect();
        }
        let nodes: BTreeSet<NodeId> = self.pending_fetches.missing.iter().map(|oid| oid.page().node).collect();
        nodes.into_iter().filter(|node| !self.peer.is_reachable(*node)).take(MAX_WAITS_FOR).collect()
    }

    /// Rows that are ready, as one answer; and whether it is the last.
    fn take_portion(&mut self) -> Result<(QueryRows, bool)> {
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
        if rows.rows.is_empty() && !self.done {
            rows.waits_for = self.waits_for();
        }
        (rows.reads, rows.seen) = (std::mem::take(&mut self.read_set.unsent), self.read_set.at);
        self.has_sent_rows |= !rows.rows.is_empty() || !rows.reads.is_empty();
        // What is sorted and waits to be sent takes memory still, unless it is little.
        if self.done && self.ready.len() <= PORTION {
            self.collecting = None;
        }
        let is_last = self.done && self.ready.is_empty();
        if is_last && self.explain {
            let scanned = Some(self.streams.examined());
            let counts = query::Counts { scanned, ..self.run()?.counts() };
            let step = self.plan.explain(&counts);
            rows.plan = (step.to_string(), Bytes::from(step.to_json().to_string()));
        }
        Ok((rows, is_last))
    }
}

/// Objects that others refer to, on their way from the object cache, which says by itself of what does not come. They are
/// asked for once: who asked again with each portion would wait for as long as portions are asked for.
struct PendingFetches {
    missing: BTreeSet<Oid>,
    fetched: mpsc::UnboundedReceiver<(Oid, Result<CachedObject>)>,
}

impl Default for PendingFetches {
    fn default() -> Self {
        Self { missing: BTreeSet::new(), fetched: mpsc::unbounded_channel().1 }
    }
}

/// Whether an object is of a class that is not known.
fn is_unknown_class(schema: &QuerySchema, oid: Oid) -> bool {
    needs_definition(oid.class()) && schema.classes.class(oid.class()).is_none()
}

/// What a transaction relies on that takes the rows for true.
#[derive(Default)]
struct ReadSet {
    wanted: bool,
    oids: BTreeSet<Oid>,
    /// What the client has not been told.
    unsent: Vec<Read>,
    /// A time at or after all of it.
    at: HlcTimestamp,
}

impl ReadSet {
    /// These too, as they were when they were first read.
    fn add_reads(&mut self, reads: impl IntoIterator<Item = Read>, at: HlcTimestamp) -> Result<()> {
        self.at = self.at.max(at);
        if self.wanted {
            self.unsent.extend(reads.into_iter().filter(|read| self.oids.insert(read.oid)));
        }
        if self.oids.len() <= MAX_READS {
            return Ok(());
        }
        let what = format!(
            "the answer rests on more than {MAX_READS} objects that were followed, too many for one transaction: ask for \
             less, or outside of a transaction"
        );
        Err(Error::new(ErrorKind::TooLarge, what))
    }
}
