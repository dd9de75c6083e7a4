//! Queries of clients: a peer server asks all logical nodes of the space for candidates, and carries out the rest of the plan.
//!
//! ```text
//!  bricks ── Scanned ──▶ ┌──────────────┐ ── Read ──▶ object cache
//!                        │ QueryMachine │ ◀─ objects ─
//!                        └──────────────┘ ── rows ──▶ FetchRows, portion by portion
//! ```
//!
//! [`machine::QueryMachine`] decides which logical nodes are asked, in which order, when a request is repeated, what is missing,
//! and when the query restarts. This module carries out its work, with one task for each open query.
//!
//! 1. A query works only while its client waits for rows, so the rows that wait for a slow client are bounded. It ends with the
//!    connection, when the client ends it, or when no rows were requested for [`IDLE_TIMEOUT`].
//! 2. A transaction relies on the guards of the scanned sets, as they were *before* the first member was examined, and on the
//!    objects of followed references. Candidates need not be in the read set, because a change of one touches a guard. Each
//!    answer has the part of the read set that its rows depend on, so a client may stop early.
//! 3. Objects that the transaction has written replace those of the bricks.
//! 4. What a query does on a thread that may block goes on for a moment when the query has ended. Until then it keeps its place, so that a
//!    client that asks and disconnects has no more work done than others.
//! 5. An answer has the objects of all existing classes. When a brick or an object names a class that this peer server does not
//!    know, the query restarts with the classes that the catalogue has then.

mod limits;
pub(crate) mod machine;
mod own_writes;
mod read_set;
pub(crate) mod streams;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use model::{Error, ErrorKind, NodeId, Result};
use tokio::sync::mpsc;
use tokio::task::{self, AbortHandle};
use tokio::time;
use wire::cluster::{self, MAX_OPEN_QUERIES, QueryRows, Scanned};
use wire::frame::Raw;
use wire::link::{self, DeferredResponder};
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::tasks;

use super::shard::PeerShard;
use crate::cluster_view::{QuerySchema, SpaceView};
use crate::node_placement::{BrickId, NodePlacement};
pub(super) use limits::QueryLimits;
use limits::{Place, ScanPlace, UserShare};
use machine::{Activity, Bricks, Event, QueryMachine, Work};
use streams::ScanLimits;

/// Most work of the filter of a query for what its transaction has written: about 20 seconds.
const MAX_OWN_WRITES_WORK: u64 = 1 << 32;
/// How long an open query may be unused.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// The queries of one connection. Dropping it ends them.
#[derive(Default)]
pub(super) struct Queries {
    open: HashMap<u64, OpenQuery>,
    last: u64,
}

/// An open query.
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
        shard: &Arc<PeerShard>,
        (space, user): (&Arc<SpaceView>, Option<Arc<str>>),
        asked: cluster::QueryRequest,
        deferred: DeferredResponder,
    ) {
        self.open.retain(|_, open| !open.requests.is_closed());
        let start = match self.check_open_limit().and_then(|()| QueryStart::new(shard, space, user, asked)) {
            Ok(start) => start,
            Err(error) => return deferred.fail(&error),
        };
        self.last += 1;
        let (requests, requested) = mpsc::channel(1);
        // It has room for one.
        let _ = requests.try_send(deferred);
        let task = tasks::spawn(start.run(self.last, requested)).abort_handle();
        self.open.insert(self.last, OpenQuery { requests, task });
    }

    fn check_open_limit(&self) -> Result<()> {
        if self.open.len() < MAX_OPEN_QUERIES {
            return Ok(());
        }
        let what = format!("{MAX_OPEN_QUERIES} queries of this connection are open: read or drop one of them first");
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
        let what = "the query has ended, or another request for its next rows is pending: run it again";
        unsent.fail(&Error::new(ErrorKind::NotFound, what));
    }

    /// Ends a query.
    pub(super) fn end(&mut self, cursor: u64) {
        self.open.remove(&cursor);
    }

    /// Whether no query is open.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

/// An event for a query.
enum Arrival {
    Event(Event),
    /// Its turn to sort or group has come.
    Turn(Arc<Place>),
}

/// A query that is about to begin.
struct QueryStart {
    shard: Arc<PeerShard>,
    space: Arc<SpaceView>,
    schema: Arc<QuerySchema>,
    asked: cluster::QueryRequest,
    share: UserShare,
    open: Arc<Place>,
}

impl QueryStart {
    fn new(
        shard: &Arc<PeerShard>,
        space: &Arc<SpaceView>,
        user: Option<Arc<str>>,
        asked: cluster::QueryRequest,
    ) -> Result<Self> {
        let own_writes = own_writes_bytes(&asked);
        if own_writes > model::limits::TRANSACTION {
            let most = model::limits::TRANSACTION;
            let what = format!("the transaction has written {own_writes} bytes; it may write {most}: part it");
            return Err(Error::new(ErrorKind::TooLarge, what));
        }
        let share = shard.queries.share_of(user);
        let open = Arc::new(share.open(own_writes)?);
        let schema = shard.cluster_view.schema(space.id)?;
        Ok(Self { shard: shard.clone(), space: space.clone(), schema, asked, share, open })
    }

    /// Answers requests for rows until the query ends.
    async fn run(self, cursor: u64, mut requested: mpsc::Receiver<DeferredResponder>) {
        let Self { shard, space, schema, asked, share, open } = self;
        match begin_machine(space.clone(), schema, asked, open.clone()).await {
            Ok(machine) => {
                let (sender, arrivals) = mpsc::unbounded_channel();
                let task = QueryTask { shard, machine, space, arrivals, sender, share, turn: None, open };
                task.run(cursor, requested).await;
            }
            Err(error) => {
                if let Ok(deferred) = requested.try_recv() {
                    deferred.fail(&error);
                }
            }
        }
    }
}

/// Begins a query, on another thread if the transaction has written much that its filter has to look at.
async fn begin_machine(
    space: Arc<SpaceView>,
    schema: Arc<QuerySchema>,
    asked: cluster::QueryRequest,
    open: Arc<Place>,
) -> Result<QueryMachine> {
    let work = own_writes_work(&asked);
    if work > MAX_OWN_WRITES_WORK {
        let what =
            "the transaction has written too much for a query as long as this one: ask it before, or ask a shorter one";
        return Err(Error::new(ErrorKind::TooLarge, what));
    }
    if work <= query::limits::BRIEF_WORK {
        return QueryMachine::new(&space, schema, asked, ScanLimits::SERVING);
    }
    // It is dropped with this future when the query ends.
    let wanted = Arc::new(());
    let still_wanted = Arc::downgrade(&wanted);
    let begin = move || {
        let is_wanted = || still_wanted.strong_count() > 0;
        let begun = QueryMachine::new_while(&is_wanted, &space, schema, asked, ScanLimits::SERVING);
        drop(open);
        begun
    };
    let lost = |_| Error::new(ErrorKind::Internal, "the query was lost because the thread that began it panicked");
    let begun = tasks::spawn_blocking(begin).await;
    drop(wanted);
    begun.map_err(lost)?
}

/// The bytes of what the transaction has written.
fn own_writes_bytes(asked: &cluster::QueryRequest) -> usize {
    asked.own_writes.values().flatten().map(|object| object.data.len()).sum()
}

/// The work of the filter for what the transaction has written, at most: each node of the query, which has about 8 bytes, looks at each
/// object, as in [`query::limits::WORK`].
fn own_writes_work(asked: &cluster::QueryRequest) -> u64 {
    let bytes = asked.own_writes.values().flatten().map(|object| 64 + object.data.len() as u64).sum::<u64>();
    bytes / 16 * asked.query.len().div_ceil(8) as u64
}

/// The task that runs one query.
struct QueryTask {
    shard: Arc<PeerShard>,
    machine: QueryMachine,
    space: Arc<SpaceView>,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
    sender: mpsc::UnboundedSender<Arrival>,
    share: UserShare,
    turn: Option<Arc<Place>>,
    open: Arc<Place>,
}

impl Bricks for PeerShard {
    fn place(&self, node: NodeId) -> Option<NodePlacement> {
        self.cluster_view.placement.of(node)
    }

    fn is_silent(&self, brick: BrickId) -> bool {
        self.brick_links.is_silent(brick)
    }
}

impl QueryTask {
    /// Answers requests for rows until the query ends.
    async fn run(mut self, cursor: u64, mut requested: mpsc::Receiver<DeferredResponder>) {
        while let Ok(Some(deferred)) = time::timeout(IDLE_TIMEOUT, requested.recv()).await {
            match self.next_portion().await {
                Ok((mut rows, is_last)) => {
                    rows.cursor = (!is_last).then_some(cursor);
                    if is_last {
                        // When the client has the last rows, the query does not count as open.
                        requested.close();
                    }
                    let (rows, raw) = rows.into_proto();
                    deferred.send(Response::Rows(Box::new(rows)), raw);
                    if is_last {
                        return;
                    }
                }
                Err(error) => return deferred.fail(&error),
            }
        }
    }

    /// The next rows, perhaps none; and whether they are the last.
    async fn next_portion(&mut self) -> Result<(QueryRows, bool)> {
        self.machine.request(self.shard.time.now());
        loop {
            let now = self.shard.time.now();
            while let Ok(arrival) = self.arrivals.try_recv() {
                self.take(arrival)?;
            }
            let portion = self.machine.take_portion(&*self.shard, now)?;
            let activity = match portion {
                Some(_) => Activity::Waits,
                None => self.machine.advance(&*self.shard, now)?,
            };
            self.carry_out();
            if let Some(portion) = portion {
                return Ok(portion);
            }
            if activity == Activity::Worked {
                // Lets other connections of this thread proceed.
                task::yield_now().await;
                continue;
            }
            let until = self.shard.time.until(self.machine.deadline());
            if let Ok(Some(arrival)) = time::timeout(until, self.arrivals.recv()).await {
                self.take(arrival)?;
            }
        }
    }

    fn take(&mut self, arrival: Arrival) -> Result<()> {
        let event = match arrival {
            Arrival::Event(event) => event,
            Arrival::Turn(permit) => {
                self.turn = Some(permit);
                Event::Turn
            }
        };
        self.machine.handle(event, self.shard.time.now())
    }

    /// Carries out the work that the machine requests. Sending fails if the query has ended, which is ignored.
    fn carry_out(&mut self) {
        for work in self.machine.work() {
            let sender = self.sender.clone();
            match work {
                Work::Scan { ticket, brick, scan } => {
                    let shard = self.shard.clone();
                    let ask = move |place| {
                        // A query that has ended needs no answer.
                        if !sender.is_closed() {
                            ask_brick(&shard, (ticket, brick), scan, (sender, place));
                        }
                    };
                    self.share.clone().when_free(brick, ask);
                }
                Work::Read { generation, oids } => self.shard.read_all_when_cached(&oids, move |found| {
                    let _ = sender.send(Arrival::Event(Event::Read { generation, found }));
                }),
                Work::RefreshSchema => {
                    let (view, space) = (self.shard.cluster_view.clone(), self.space.id);
                    tasks::spawn(async move {
                        let refreshed = view.refresh_schema(space).await.and_then(|()| view.schema(space));
                        let _ = sender.send(Arrival::Event(Event::Schema(refreshed)));
                    });
                }
                Work::Step(mut run) => {
                    let places = (self.open.clone(), self.turn.clone());
                    let stepping = tasks::spawn_blocking(move || {
                        let progress = run.step();
                        (run, progress)
                    });
                    tasks::spawn(async move {
                        let _ = sender.send(Arrival::Event(Event::Stepped(stepping.await.ok())));
                        drop(places);
                    });
                }
                Work::AcquireTurn => {
                    let share = self.share.clone();
                    tasks::spawn(async move {
                        tokio::select! {
                            Ok(place) = share.collect() => drop(sender.send(Arrival::Turn(Arc::new(place)))),
                            () = sender.closed() => {}
                        }
                    });
                }
                Work::ReleaseTurn => self.turn = None,
            }
        }
    }
}

/// Requests candidates from a brick.
fn ask_brick(
    shard: &PeerShard,
    (ticket, brick): ((u32, u32), BrickId),
    scan: cluster::Scan,
    (sender, place): (mpsc::UnboundedSender<Arrival>, ScanPlace),
) {
    let answered = move |answer: Result<link::Answer>| {
        drop(place);
        let answer = answer.and_then(decode_scanned);
        let _ = sender.send(Arrival::Event(Event::Scanned { ticket, answer }));
    };
    match scan.into_proto() {
        Ok(scan) => shard.brick_links.ask(brick, Request::Scan(scan), answered),
        Err(error) => answered(Err(error)),
    }
}

fn decode_scanned(answer: link::Answer) -> Result<Scanned> {
    let Response::Scanned(scanned) = answer.response else {
        return Err(Error::new(ErrorKind::Internal, "a brick answered a request with another kind of message"));
    };
    Scanned::from_proto(*scanned, Raw::Owned(answer.raw))
}

#[cfg(test)]
mod tests {
    use model::{ClassId, FieldNumber, Object, Oid, PageId, RecordBuilder, SpaceId, Value};
    use query::{Class, Query, Schema, Type};

    use super::*;

    /// A query of a transaction that has written objects of 4 MiB, with this many tests.
    fn asked(objects: u16, tests: usize) -> cluster::QueryRequest {
        let class = ClassId(1);
        let mut record = RecordBuilder::new();
        record.set_value(FieldNumber(1), &Value::String("x".repeat(4 << 20))).unwrap();
        let object = Object::record(class, record.build().unwrap());
        let tests: Vec<String> = (0..tests).map(|n| format!("name.contains('a{n}')")).collect();
        let query = Query::parse_of("Person", &tests.join(" || ")).unwrap().encode().unwrap().into();
        let page = PageId { space: SpaceId(1), node: NodeId(1), number: 1 };
        let own_writes = (0..objects).map(|slot| (Oid::new(class, page, slot), Some(object.clone()))).collect();
        cluster::QueryRequest { query, own_writes, ..cluster::QueryRequest::default() }
    }

    async fn begin(asked: cluster::QueryRequest, open: Place) -> Result<QueryMachine> {
        let space = SpaceView { id: SpaceId(1), name: "main".to_owned(), nodes: vec![NodeId(1)] };
        let class = Class::new(ClassId(1), "Person").field(1, "name", Type::String);
        let classes = Schema::new([class]).unwrap();
        let schema = Arc::new(QuerySchema { classes, indexes: Vec::new() });
        begin_machine(Arc::new(space), schema, asked, Arc::new(open)).await
    }

    fn place() -> Place {
        QueryLimits::default().share_of(None).open(0).unwrap()
    }

    #[tokio::test]
    async fn queries_over_much_that_was_written_are_begun_elsewhere_or_refused() {
        assert!(begin(asked(1, 1), place()).await.is_ok());
        assert!(own_writes_work(&asked(2, 3)) > query::limits::BRIEF_WORK);
        assert!(begin(asked(2, 3), place()).await.is_ok());
        // 60 objects of 4 MiB and 1000 tests take minutes.
        assert_eq!(begin(asked(60, 1000), place()).await.err().unwrap().kind(), ErrorKind::TooLarge);
    }

    #[test]
    fn query_that_has_ended_keeps_its_place_until_its_work_has_ended() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let eve = QueryLimits::default().share_of(Some("eve".into()));
            let most = || eve.open(model::limits::TRANSACTION);
            // The only thread that may block is busy, so the query waits for it.
            let (release, busy) = std::sync::mpsc::channel::<()>();
            let blocker = tasks::spawn_blocking(move || busy.recv());
            let query = tasks::spawn(begin(asked(2, 3), most().unwrap()));
            task::yield_now().await;
            query.abort();
            assert!(query.await.err().unwrap().is_cancelled());
            assert!(most().is_err(), "its work is not done");
            drop(release);
            let _ = blocker.await.unwrap();
            // The thread is free again when it has given the query up.
            tasks::spawn_blocking(|| ()).await.unwrap();
            assert!(most().is_ok());
        });
    }

    #[test]
    fn own_writes_of_a_query_that_has_ended_are_not_looked_at() {
        let space = Arc::new(SpaceView { id: SpaceId(1), name: "main".to_owned(), nodes: vec![NodeId(1)] });
        let class = Class::new(ClassId(1), "Person").field(1, "name", Type::String);
        let schema = QuerySchema { classes: Schema::new([class]).unwrap(), indexes: Vec::new() };
        let looked_at = std::cell::Cell::new(0);
        let is_wanted = || {
            looked_at.set(looked_at.get() + 1);
            looked_at.get() < 3
        };
        let limits = ScanLimits::SERVING;
        let begun = QueryMachine::new_while(&is_wanted, &space, Arc::new(schema), asked(9, 1), limits);
        assert_eq!((begun.err().unwrap().kind(), looked_at.get()), (ErrorKind::Unavailable, 3));
    }
}
