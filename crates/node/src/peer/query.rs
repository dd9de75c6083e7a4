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
//! 4. An answer has the objects of all existing classes. When a brick or an object names a class that this peer server does not
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
    Turn(Place),
}

/// A query that is about to begin.
struct QueryStart {
    shard: Arc<PeerShard>,
    space: Arc<SpaceView>,
    schema: Arc<QuerySchema>,
    asked: cluster::QueryRequest,
    share: UserShare,
    open: Place,
}

impl QueryStart {
    fn new(
        shard: &Arc<PeerShard>,
        space: &Arc<SpaceView>,
        user: Option<Arc<str>>,
        asked: cluster::QueryRequest,
    ) -> Result<Self> {
        let share = shard.queries.share_of(user);
        let open = share.open()?;
        let schema = shard.cluster_view.schema(space.id)?;
        Ok(Self { shard: shard.clone(), space: space.clone(), schema, asked, share, open })
    }

    /// Answers requests for rows until the query ends.
    async fn run(self, cursor: u64, mut requested: mpsc::Receiver<DeferredResponder>) {
        let Self { shard, space, schema, asked, share, open } = self;
        match begin_machine(space.clone(), schema, asked).await {
            Ok(machine) => {
                let (sender, arrivals) = mpsc::unbounded_channel();
                let task = QueryTask { shard, machine, space, arrivals, sender, share, turn: None, _open: open };
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
) -> Result<QueryMachine> {
    let work = own_writes_work(&asked);
    if work > MAX_OWN_WRITES_WORK {
        let what =
            "the transaction has written too much for a query as long as this one: ask it before, or ask a shorter one";
        return Err(Error::new(ErrorKind::TooLarge, what));
    }
    let begin = move || QueryMachine::new(&space, schema, asked, ScanLimits::SERVING);
    if work <= query::limits::BRIEF_WORK {
        return begin();
    }
    let lost = |_| Error::new(ErrorKind::Internal, "the query was lost because the thread that began it panicked");
    tasks::spawn_blocking(begin).await.map_err(lost)?
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
    turn: Option<Place>,
    _open: Place,
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
                    let stepping = tasks::spawn_blocking(move || {
                        let progress = run.step();
                        (run, progress)
                    });
                    tasks::spawn(async move {
                        let _ = sender.send(Arrival::Event(Event::Stepped(stepping.await.ok())));
                    });
                }
                Work::AcquireTurn => {
                    let share = self.share.clone();
                    tasks::spawn(async move {
                        tokio::select! {
                            Ok(place) = share.collect() => drop(sender.send(Arrival::Turn(place))),
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

    #[tokio::test]
    async fn queries_over_much_that_was_written_are_begun_elsewhere_or_refused() {
        let class = ClassId(1);
        let mut record = RecordBuilder::new();
        record.set_value(FieldNumber(1), &Value::String("x".repeat(4 << 20))).unwrap();
        let object = Object::record(class, record.build().unwrap());
        let asked = |objects: u16, tests: usize| {
            let tests: Vec<String> = (0..tests).map(|n| format!("name.contains('a{n}')")).collect();
            let query = Query::parse_of("Person", &tests.join(" || ")).unwrap().encode().unwrap().into();
            let page = PageId { space: SpaceId(1), node: NodeId(1), number: 1 };
            let own_writes = (0..objects).map(|slot| (Oid::new(class, page, slot), Some(object.clone()))).collect();
            cluster::QueryRequest { query, own_writes, ..cluster::QueryRequest::default() }
        };
        let begin = |asked| {
            let space = SpaceView { id: SpaceId(1), name: "main".to_owned(), nodes: vec![NodeId(1)] };
            let class = Class::new(class, "Person").field(1, "name", Type::String);
            let classes = Schema::new([class]).unwrap();
            begin_machine(Arc::new(space), Arc::new(QuerySchema { classes, indexes: Vec::new() }), asked)
        };
        assert!(begin(asked(1, 1)).await.is_ok());
        assert!(own_writes_work(&asked(2, 3)) > query::limits::BRIEF_WORK);
        assert!(begin(asked(2, 3)).await.is_ok());
        // 60 objects of 4 MiB and 1000 tests take minutes.
        assert_eq!(begin(asked(60, 1000)).await.err().unwrap().kind(), ErrorKind::TooLarge);
    }
}
