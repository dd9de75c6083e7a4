//! A [`MetaStore`] that asks a meta-server.
//!
//! 1. There is one connection for calls, opened when it is needed and reopened when it breaks, to the next address of the list;
//!    and one for each watch.
//! 2. Reads and idempotent calls are repeated until there is an answer or the time limit is reached.
//! 3. A write whose answer was lost is sent again with its number, and the same run of the meta-server executes it
//!    once. It is sent to another run only if it cannot happen twice, because it changes a key that it expects at a
//!    revision. If that conflicts, or if the write has no such key, the outcome is unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use meta::opening::Subject;
use meta::{
    Expect, Key, KeyChange, MetaSession, MetaSessionId, MetaSnapshot, MetaStore, Pending, Prefix, Revision, Watch,
    WatchBatch, WatchEvent, WriteOutcome, limits, meta_store,
};
use model::{Error, ErrorKind, Result};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{self, Instant};
use tracing::{debug, info};
use wire::connector::{Backoff, ConnectPolicy, Connector};
use wire::handshake::Role;
use wire::link::{self, Answer, AnswerStream, Caller, Limits, Link, Mailbox, NoService};
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::tasks;
use wire::transport::Address;

use super::meta_connection::KEEPALIVE_INTERVAL;
use super::{call_timeout, codec, write_deduplicator};
use crate::auth::ClusterCredentials;
use crate::openings::WitnessTable;

/// Time limit of a call with all its repetitions.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit of one attempt of a call, and of one attempt to connect.
const ATTEMPT_TIMEOUT: Duration = CONNECT_POLICY.attempt_timeout;
const CONNECT_POLICY: ConnectPolicy = ConnectPolicy {
    attempt_timeout: Duration::from_secs(4),
    min_backoff: Duration::from_millis(20),
    max_backoff: Duration::from_secs(1),
};
/// Bytes of unanswered calls on one connection; further calls wait.
const BUDGET: usize = 16 << 20;
/// Writes in flight at a time: fewer than a meta-server remembers.
const MAX_WRITES_IN_FLIGHT: usize = 16;
/// Writes that a watch has received and its user has not read.
const WATCH_BUFFER: usize = 16;
/// Changes in one write: a session that ends changes this many.
const MAX_CHANGES: usize = limits::SESSION_KEYS + limits::CHANGES;

/// The catalogue of a remote meta-server. Clones share their connection.
#[derive(Clone)]
pub struct RemoteMetaStore {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for RemoteMetaStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("addresses", &self.inner.addresses).finish_non_exhaustive()
    }
}

struct Inner {
    addresses: Vec<Address>,
    membership: ClusterCredentials,
    role: Role,
    /// What this process saw of the catalogue; told to each meta-server.
    witnesses: Arc<WitnessTable>,
    connection: Mutex<ConnectionSlot>,
    /// Index of the address that worked last. Watches begin with it.
    place: AtomicUsize,
    /// The number by which the meta-server identifies this writer.
    writer: [u8; 16],
    last_write: AtomicU64,
    write_permits: Semaphore,
    /// Drives the connections.
    runtime: Handle,
}

/// The connection, if there is one, and what makes the next one.
struct ConnectionSlot {
    current: Option<Connection>,
    connector: Connector,
}

/// An open connection.
#[derive(Clone)]
struct Connection {
    caller: Caller,
    /// The run of the meta-server at its other end.
    run: u64,
}

impl ConnectionSlot {
    fn new(addresses: Vec<Address>, place: usize) -> Mutex<Self> {
        Mutex::new(Self { current: None, connector: Connector::new(addresses, CONNECT_POLICY).starting_at(place) })
    }
}

/// Why an attempt of a call has failed.
enum AttemptError {
    /// It was not sent.
    Unsent(Error),
    /// It was sent to this run of a meta-server; the answer was lost.
    Lost(u64, Error),
    /// The meta-server answered with this error.
    Refused(Error),
}

impl RemoteMetaStore {
    /// The catalogue of the meta-servers at these addresses, which all serve the same one.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] without an address.
    ///
    /// # Panics
    /// Outside of a tokio runtime, which drives the connections.
    pub fn new(addresses: Vec<Address>) -> Result<Self> {
        Self::new_as(addresses, ClusterCredentials::default(), Role::Client)
    }

    /// The same for a process of the cluster, in this role.
    ///
    /// # Errors
    /// As [`RemoteMetaStore::new`].
    ///
    /// # Panics
    /// As [`RemoteMetaStore::new`].
    pub fn new_as(addresses: Vec<Address>, membership: ClusterCredentials, role: Role) -> Result<Self> {
        Self::new_as_witness(addresses, membership, role, WitnessTable::new())
    }

    /// The same for a process that tells the meta-server what it saw of the catalogue.
    ///
    /// # Errors
    /// As [`RemoteMetaStore::new`].
    ///
    /// # Panics
    /// As [`RemoteMetaStore::new`].
    pub fn new_as_witness(
        addresses: Vec<Address>,
        membership: ClusterCredentials,
        role: Role,
        witnesses: Arc<WitnessTable>,
    ) -> Result<Self> {
        if addresses.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "the address of a meta-server is needed"));
        }
        let inner = Inner {
            connection: ConnectionSlot::new(addresses.clone(), 0),
            place: AtomicUsize::new(0),
            addresses,
            membership,
            role,
            witnesses,
            writer: rand::random(),
            last_write: AtomicU64::new(0),
            write_permits: Semaphore::new(MAX_WRITES_IN_FLIGHT),
            runtime: Handle::current(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Calls with an idempotent request, and repeats it until there is an answer.
    async fn ask<T>(&self, request: Request, understand: impl AsyncFn(&Caller, Request) -> Result<T>) -> Result<T> {
        let (deadline, mut backoff) = (call_timeout::deadline(CALL_TIMEOUT), new_backoff());
        loop {
            let error = match self.inner.attempt(async |caller| understand(caller, request.clone()).await).await {
                Ok(answer) => return Ok(answer),
                Err(AttemptError::Refused(error)) => return Err(error),
                Err(AttemptError::Unsent(error) | AttemptError::Lost(_, error)) => error,
            };
            let pause = backoff.next_pause();
            if Instant::now() + pause > deadline {
                return Err(no_answer_error(&error));
            }
            time::sleep(pause).await;
        }
    }

    async fn read_state(&self, request: Request) -> Result<MetaSnapshot> {
        self.ask(request, async |caller, request| {
            let mut answers = caller.stream(request)?;
            let (mut state, mut bytes, mut more) = (MetaSnapshot::default(), 0, true);
            while more {
                let Answer { response, raw, .. } = answers.next().await?;
                let Response::MetaState(piece) = response else { return Err(unexpected_response_error(&response)) };
                bytes += raw.len();
                if bytes > limits::READ {
                    return Err(Error::new(
                        ErrorKind::TooLarge,
                        "the meta-server's answer is larger than the limit of a read",
                    ));
                }
                more = codec::extend_state(&mut state, piece, raw)?;
            }
            Ok(state)
        })
        .await
    }

    async fn call(&self, request: Request) -> Result<Response> {
        self.ask(request, async |caller, request| Ok(caller.call(request, Vec::new()).await?.response)).await
    }

    /// Has the clock of this process compared with others. `report` is called when there is a connection; it returns the time and the
    /// report that is sent then.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the meta-server compares no clocks, [`ErrorKind::Unavailable`] if none answers.
    pub(crate) async fn compare_clocks(
        &self,
        report: impl FnOnce() -> (u64, proto::meta::CompareClocks),
    ) -> Result<(u64, proto::meta::Clocks)> {
        let asked = self.inner.attempt(async |caller| {
            let (sent, report) = report();
            match caller.call(Request::MetaCompareClocks(report), Vec::new()).await?.response {
                Response::MetaClocks(clocks) => Ok((sent, clocks)),
                response => Err(unexpected_response_error(&response)),
            }
        });
        asked.await.map_err(|error| match error {
            AttemptError::Refused(error) => error,
            AttemptError::Unsent(error) | AttemptError::Lost(_, error) => no_answer_error(&error),
        })
    }

    async fn write(&self, expects: Vec<Expect>, changes: Vec<KeyChange>) -> Result<WriteOutcome> {
        meta_store::check_write(&expects, &changes)?;
        // The semaphore is never closed.
        let _place =
            self.inner.write_permits.acquire().await.map_err(|_| write_deduplicator::unknown_outcome_error())?;
        let number = self.inner.last_write.fetch_add(1, Ordering::Relaxed) + 1;
        let happens_once = happens_once(&expects, &changes);
        let (mut write, raw) = codec::write_to_proto(&self.inner.writer, number, &expects, &changes);
        // The run that has received the write; and whether another run, which has ended, has.
        let (mut sent_to, mut is_doubtful) = (None, false);
        let (deadline, mut backoff) = (call_timeout::deadline(CALL_TIMEOUT), new_backoff());
        loop {
            let tried = self.inner.attempt_on_connection(async |connection| {
                let is_other = sent_to.is_some_and(|run| run != connection.run);
                if is_other && !happens_once {
                    return Err(AttemptError::Refused(write_deduplicator::unknown_outcome_error()));
                }
                is_doubtful |= is_other;
                write.again = sent_to == Some(connection.run);
                let called = connection.caller.call(Request::MetaWrite(write.clone()), raw.clone()).await;
                called.map_err(|error| connection.classify_error(error))
            });
            let before = Instant::now();
            let error = match tried.await {
                Ok(Answer { response: Response::MetaWritten(written), .. }) => {
                    match codec::write_outcome_from_proto(&written)? {
                        WriteOutcome::Conflict if is_doubtful => {
                            return Err(write_deduplicator::unknown_outcome_error());
                        }
                        written => return Ok(written),
                    }
                }
                Ok(Answer { response, .. }) => return Err(unexpected_response_error(&response)),
                // The last run may have refused a write that an earlier run has executed.
                Err(AttemptError::Refused(_)) if is_doubtful => return Err(write_deduplicator::unknown_outcome_error()),
                Err(AttemptError::Refused(error)) => return Err(error),
                Err(AttemptError::Unsent(error)) => error,
                Err(AttemptError::Lost(run, error)) => {
                    sent_to = Some(run);
                    error
                }
            };
            debug!(%error, took = ?before.elapsed(), "a write to the catalogue is tried again");
            let pause = backoff.next_pause();
            if Instant::now() + pause > deadline {
                return match sent_to {
                    Some(_) => Err(write_deduplicator::unknown_outcome_error()),
                    None => Err(no_answer_error(&error)),
                };
            }
            time::sleep(pause).await;
        }
    }
}

/// The pauses between attempts of one call.
fn new_backoff() -> Backoff {
    Backoff::new(CONNECT_POLICY.min_backoff, CONNECT_POLICY.max_backoff)
}

/// Whether a write cannot happen a second time: it changes a key that it expects at a revision, which never comes back.
pub(super) fn happens_once(expects: &[Expect], changes: &[KeyChange]) -> bool {
    let expected = |key: &Key| expects.iter().any(|expect| expect.key == *key && expect.revision.is_some());
    changes.iter().any(|change| expected(change.key()))
}

fn unexpected_response_error(response: &Response) -> Error {
    debug!(?response, "a meta-server sent an answer of another kind");
    Error::new(ErrorKind::Unsupported, "the server is not a meta-server, or has another version")
}

/// The error when no attempt succeeded in time; `error` is that of the last attempt.
fn no_answer_error(error: &Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("no meta-server has answered: {}", error.message()))
}

/// The failure of an attempt to connect: no server is reachable, or the server refuses this process.
fn connect_error(error: Error) -> AttemptError {
    match error.kind() {
        ErrorKind::Unavailable | ErrorKind::Unknown => AttemptError::Unsent(error),
        _ => AttemptError::Refused(error),
    }
}

impl Connection {
    /// The failure of a call with this error.
    fn classify_error(&self, error: Error) -> AttemptError {
        match error.kind() {
            ErrorKind::Unavailable if self.caller.is_closed() => AttemptError::Unsent(error),
            ErrorKind::Unknown if self.caller.is_closed() => AttemptError::Lost(self.run, error),
            _ => AttemptError::Refused(error),
        }
    }
}

impl Inner {
    /// Calls on the current connection.
    async fn attempt<T>(&self, ask: impl AsyncFnOnce(&Caller) -> Result<T>) -> Result<T, AttemptError> {
        let asking = async |connection: &Connection| {
            ask(&connection.caller).await.map_err(|error| connection.classify_error(error))
        };
        self.attempt_on_connection(asking).await
    }

    async fn attempt_on_connection<T>(
        &self,
        ask: impl AsyncFnOnce(&Connection) -> Result<T, AttemptError>,
    ) -> Result<T, AttemptError> {
        // Another task may be connecting already; only one does at a time.
        let connecting = time::timeout_at(call_timeout::deadline(2 * ATTEMPT_TIMEOUT), self.connect()).await;
        let busy = |_| {
            let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
            let what = format!("no meta-server can be reached at {}", addresses.join(", "));
            Err(Error::new(ErrorKind::Unavailable, what))
        };
        let connection = connecting.unwrap_or_else(busy).map_err(connect_error)?;
        let begun = Instant::now();
        match time::timeout_at(call_timeout::deadline(ATTEMPT_TIMEOUT), ask(&connection)).await {
            Ok(answered) => answered,
            Err(_) => {
                let took = begun.elapsed();
                if took >= ATTEMPT_TIMEOUT {
                    // This meta-server does not respond; another one may.
                    connection.caller.hang_up();
                }
                let what = format!(
                    "the one that is connected has not answered this request within {:.1} s: its catalogue's store may hang, as `mortar -s META status` says",
                    took.as_secs_f64()
                );
                Err(AttemptError::Lost(connection.run, Error::new(ErrorKind::Unavailable, what)))
            }
        }
    }

    /// The open connection, or a new one to the next meta-server of the list that answers.
    async fn connect(&self) -> Result<Connection> {
        let mut slot = self.connection.lock().await;
        if let Some(connection) = slot.current.as_ref().filter(|connection| !connection.caller.is_closed()) {
            return Ok(connection.clone());
        }
        let connection = slot.connector.attempt_round(|address| self.dial(address)).await?;
        self.place.store(slot.connector.next_place(), Ordering::Relaxed);
        Ok(slot.current.insert(connection).clone())
    }

    /// Connects to a meta-server, and asks which run of it that is.
    async fn dial(&self, address: Address) -> Result<Connection> {
        let witnessed = self.witnesses.witnessed_positions(Subject::Catalogue);
        let cluster = self.witnesses.cluster();
        let (stream, terms) = self.membership.dial(&address, self.role, cluster, witnessed).await?;
        let mailbox = Arc::new(Mailbox::default());
        let caller = Caller::new(mailbox.clone(), BUDGET);
        let link = Link::new(stream, NoService, Limits::default(), terms.max_frame, mailbox);
        let peer = address.clone();
        tasks::spawn_on(&self.runtime, async move {
            let end = link::drive(link).await;
            debug!(address = %peer, %end, "a connection to a meta-server ended");
        });
        // Closed if this future is dropped.
        let ungreeted = HangUpGuard(Some(caller.clone()));
        let greeted = caller.call(Request::MetaGetRun(proto::meta::GetRun {}), Vec::new()).await?.response;
        let Response::MetaRun(greeted) = greeted else { return Err(unexpected_response_error(&greeted)) };
        ungreeted.disarm();
        info!(%address, "connected to a meta-server");
        Ok(Connection { caller, run: greeted.run })
    }
}

/// Closes a connection if it is dropped before it is used.
struct HangUpGuard(Option<Caller>);

impl HangUpGuard {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for HangUpGuard {
    fn drop(&mut self) {
        if let Some(caller) = &self.0 {
            caller.hang_up();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection.get_mut().current {
            connection.caller.hang_up();
        }
    }
}

impl MetaStore for RemoteMetaStore {
    fn read(&self, prefix: Prefix) -> Pending<'_, MetaSnapshot> {
        let request = Request::MetaRead(proto::meta::Read { prefix: prefix.as_str().to_owned() });
        Box::pin(self.read_state(request))
    }

    fn get(&self, keys: Vec<Key>) -> Pending<'_, MetaSnapshot> {
        Box::pin(async move {
            meta_store::check_get(&keys)?;
            let keys = keys.iter().map(Key::to_string).collect();
            self.read_state(Request::MetaGet(proto::meta::Get { keys })).await
        })
    }

    fn write(&self, expects: Vec<Expect>, changes: Vec<KeyChange>) -> Pending<'_, WriteOutcome> {
        Box::pin(self.write(expects, changes))
    }

    fn watch(&self, prefix: Prefix, after: Revision) -> Pending<'_, Box<dyn Watch>> {
        let (sender, seen) = mpsc::channel(WATCH_BUFFER);
        // A connection of its own, so a watch that is behind delays no other call.
        let inner = Inner {
            addresses: self.inner.addresses.clone(),
            membership: self.inner.membership.clone(),
            role: self.inner.role,
            witnesses: self.inner.witnesses.clone(),
            connection: ConnectionSlot::new(self.inner.addresses.clone(), self.inner.place.load(Ordering::Relaxed)),
            place: AtomicUsize::new(0),
            writer: self.inner.writer,
            last_write: AtomicU64::new(0),
            write_permits: Semaphore::new(0),
            runtime: self.inner.runtime.clone(),
        };
        let task = tasks::spawn_on(&self.inner.runtime, watch(inner, prefix, after, sender)).abort_handle();
        Box::pin(async move { Ok(Box::new(RemoteWatch { changes: seen, task, last: None }) as Box<dyn Watch>) })
    }

    fn open_session(&self, ttl: Duration) -> Pending<'_, MetaSession> {
        Box::pin(async move {
            meta_store::check_ttl(ttl)?;
            let ttl_ms = codec::milliseconds(ttl);
            // If the answer is lost, the session expires.
            match self.call(Request::MetaOpenSession(proto::meta::OpenSession { ttl_ms })).await? {
                Response::MetaSession(session) => Ok(codec::session(&session)),
                other => Err(unexpected_response_error(&other)),
            }
        })
    }

    fn renew_session(&self, session: MetaSessionId) -> Pending<'_, ()> {
        Box::pin(async move {
            check_done(&self.call(Request::MetaKeepSession(proto::meta::KeepSession { session: session.0 })).await?)
        })
    }

    fn end_session(&self, session: MetaSessionId) -> Pending<'_, ()> {
        Box::pin(async move {
            let end = proto::meta::EndSession { session: session.0 };
            check_done(&self.call(Request::MetaEndSession(end)).await?)
        })
    }
}

fn check_done(response: &Response) -> Result<()> {
    match response {
        Response::Done(_) => Ok(()),
        other => Err(unexpected_response_error(other)),
    }
}

/// A watch: the task that receives changes, and its queue.
struct RemoteWatch {
    changes: mpsc::Receiver<Result<WatchEvent>>,
    task: AbortHandle,
    /// The last event, which is returned from now on.
    last: Option<WatchEvent>,
}

impl Drop for RemoteWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch for RemoteWatch {
    fn next(&mut self) -> Pending<'_, WatchEvent> {
        Box::pin(async {
            if let Some(last) = &self.last {
                return Ok(last.clone());
            }
            let ended = || Err(Error::new(ErrorKind::Unavailable, "the process is ending"));
            let watched = self.changes.recv().await.unwrap_or_else(ended)?;
            if watched == WatchEvent::Compacted {
                self.last = Some(WatchEvent::Compacted);
            }
            Ok(watched)
        })
    }
}

/// Forwards the changes from any reachable meta-server until the watch is dropped.
async fn watch(inner: Inner, prefix: Prefix, mut after: Revision, seen: mpsc::Sender<Result<WatchEvent>>) {
    let mut backoff = new_backoff();
    loop {
        let watched = async {
            let connection = inner.connect().await.map_err(connect_error)?;
            let request = proto::meta::Watch { prefix: prefix.as_str().to_owned(), after: after.0 };
            let answers =
                connection.caller.stream(Request::MetaWatch(request)).map_err(|e| connection.classify_error(e))?;
            let before = after;
            let watched = follow(answers, &mut after, &seen).await.map_err(|error| connection.classify_error(error));
            if after != before {
                backoff.reset();
            }
            if watched.is_err() {
                connection.caller.hang_up();
            }
            watched
        };
        match watched.await {
            Ok(()) => return,
            Err(AttemptError::Refused(error))
                if !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown) =>
            {
                // Waiting does not help: report the error to the user of the watch.
                if seen.send(Err(error)).await.is_err() {
                    return;
                }
            }
            Err(AttemptError::Unsent(error) | AttemptError::Lost(_, error) | AttemptError::Refused(error)) => {
                debug!(%error, "the catalogue cannot be watched; trying again");
            }
        }
        backoff.pause().await;
    }
}

/// Forwards the changes of one connection. Returns `Ok` at the end of the watch, or if it was dropped.
async fn follow(
    mut answers: AnswerStream,
    after: &mut Revision,
    seen: &mpsc::Sender<Result<WatchEvent>>,
) -> Result<()> {
    let silent = |_| Error::new(ErrorKind::Unavailable, "the meta-server has stopped sending keep-alives");
    loop {
        let mut batch = WatchBatch { revision: Revision(0), changes: Vec::new() };
        loop {
            let Answer { response, raw, .. } =
                time::timeout(3 * KEEPALIVE_INTERVAL, answers.next()).await.map_err(silent)??;
            let piece = match response {
                Response::MetaBatch(piece) => piece,
                Response::MetaCompacted(_) => {
                    // The watch may have been dropped.
                    let _ = seen.send(Ok(WatchEvent::Compacted)).await;
                    return Ok(());
                }
                other => return Err(unexpected_response_error(&other)),
            };
            let more = codec::extend_batch(&mut batch, piece, raw)?;
            if batch.changes.len() > MAX_CHANGES {
                return Err(Error::new(
                    ErrorKind::TooLarge,
                    "a write of the meta-server has more changes than the limit",
                ));
            }
            if !more {
                break;
            }
        }
        // A batch without changes is a keep-alive.
        if batch.changes.is_empty() {
            continue;
        }
        let revision = batch.revision;
        if seen.send(Ok(WatchEvent::Changed(batch))).await.is_err() {
            return Ok(());
        }
        *after = revision;
    }
}
