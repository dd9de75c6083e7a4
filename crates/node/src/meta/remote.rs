//! The catalogue as a process sees it that asks a meta-server for it.
//!
//! 1. There is one connection for calls, made when it is needed and again when it breaks, to the next address of the list; and
//!    one for each watch.
//! 2. Reads, and what does no harm twice, are asked again until there is an answer or patience ends.
//! 3. A write whose answer was lost is sent again under its number: the same run of the meta-server does it once. To another
//!    run it is sent only if it cannot happen twice, because it changes a key that it expects at a revision; if that
//!    conflicts, or is not so, the outcome is unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use meta::{
    Batch, Change, Expect, Key, MetaStore, Pending, Prefix, Revision, Session, SessionId, State, Watch, Watched,
    Written, limits, meta_store,
};
use model::{Error, ErrorKind, Result};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{self, Instant};
use tracing::{debug, info};
use wire::handshake::Role;
use wire::link::{self, Answer, Answers, Caller, Limits, Link, Mailbox, NoService};
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::transport::Address;

use super::desk::SIGN;
use super::{codec, once, patience};
use crate::doors::Membership;

/// How long a call is tried altogether.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one try may take, and one attempt to connect.
const ONE_TRY: Duration = Duration::from_secs(4);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Bytes of unanswered calls on one connection; further calls wait.
const BUDGET: usize = 16 << 20;
/// Writes on the way at a time: fewer than a meta-server remembers.
const WRITES: usize = 16;
/// Writes that a watch has received and nobody has asked for yet.
const WATCHED_AHEAD: usize = 16;
/// Changes that one write may have: those of a session that ends.
const MOST_CHANGES: usize = limits::SESSION_KEYS + limits::CHANGES;

/// The catalogue of a meta-server elsewhere. Clones share their connection.
#[derive(Clone)]
pub struct Remote {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("addresses", &self.inner.addresses).finish_non_exhaustive()
    }
}

struct Inner {
    addresses: Vec<Address>,
    membership: Membership,
    role: Role,
    /// The one that is tried next.
    next: AtomicUsize,
    connection: Mutex<Option<Connection>>,
    /// By this the meta-server knows whose write it is.
    writer: [u8; 16],
    writes: AtomicU64,
    writing: Semaphore,
    /// Drives the connections.
    runtime: Handle,
}

/// A connection that there is.
#[derive(Clone)]
struct Connection {
    caller: Caller,
    /// Which run of which meta-server it leads to.
    run: u64,
}

/// How a try to ask something has ended without an answer.
enum Miss {
    /// It was not sent.
    Unsent(Error),
    /// It was sent to this run of a meta-server; the answer was lost.
    Lost(u64, Error),
    /// The meta-server has answered so.
    Refused(Error),
}

impl Remote {
    /// The catalogue that the meta-servers at these addresses serve: all the same one.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] without an address.
    ///
    /// # Panics
    /// Outside of a tokio runtime, which drives the connections from then on.
    pub fn new(addresses: Vec<Address>) -> Result<Self> {
        Self::new_as(addresses, Membership::default(), Role::Client)
    }

    /// The same for a process of the cluster, which says that it is one.
    ///
    /// # Errors
    /// As [`Remote::new`].
    ///
    /// # Panics
    /// As [`Remote::new`].
    pub fn new_as(addresses: Vec<Address>, membership: Membership, role: Role) -> Result<Self> {
        if addresses.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "the address of a meta-server is needed"));
        }
        let inner = Inner {
            addresses,
            membership,
            role,
            next: AtomicUsize::new(0),
            connection: Mutex::default(),
            writer: rand::random(),
            writes: AtomicU64::new(0),
            writing: Semaphore::new(WRITES),
            runtime: Handle::current(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Asks what may be asked again, until there is an answer.
    async fn ask<T>(&self, request: Request, understand: impl AsyncFn(&Caller, Request) -> Result<T>) -> Result<T> {
        let (deadline, mut pause) = (patience::until(PATIENCE), FIRST_PAUSE);
        loop {
            let error = match self.inner.once(async |caller| understand(caller, request.clone()).await).await {
                Ok(answer) => return Ok(answer),
                Err(Miss::Refused(error)) => return Err(error),
                Err(Miss::Unsent(error) | Miss::Lost(_, error)) => error,
            };
            if Instant::now() + pause > deadline {
                return Err(unanswered(&error));
            }
            time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn state(&self, request: Request) -> Result<State> {
        self.ask(request, async |caller, request| {
            let mut answers = caller.stream(request)?;
            let (mut state, mut bytes, mut more) = (State::default(), 0, true);
            while more {
                let Answer { response, raw, .. } = answers.next().await?;
                let Response::MetaState(piece) = response else { return Err(stray(&response)) };
                bytes += raw.len();
                if bytes > limits::READ {
                    return Err(Error::new(ErrorKind::TooLarge, "the meta-server tells more than may be read at once"));
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

    async fn write(&self, expects: Vec<Expect>, changes: Vec<Change>) -> Result<Written> {
        meta_store::check_write(&expects, &changes)?;
        // It is never closed.
        let _place = self.inner.writing.acquire().await.map_err(|_| once::unknown())?;
        let number = self.inner.writes.fetch_add(1, Ordering::Relaxed) + 1;
        let happens_once = happens_once(&expects, &changes);
        let (mut write, raw) = codec::write_to_proto(&self.inner.writer, number, &expects, &changes);
        // The run that has got it; whether one has that is no more.
        let (mut sent_to, mut is_doubtful) = (None, false);
        let (deadline, mut pause) = (patience::until(PATIENCE), FIRST_PAUSE);
        loop {
            let tried = self.inner.once_at(async |connection| {
                let is_other = sent_to.is_some_and(|run| run != connection.run);
                if is_other && !happens_once {
                    return Err(Miss::Refused(once::unknown()));
                }
                is_doubtful |= is_other;
                write.again = sent_to == Some(connection.run);
                let called = connection.caller.call(Request::MetaWrite(write.clone()), raw.clone()).await;
                called.map_err(|error| connection.miss(error))
            });
            let before = Instant::now();
            let error = match tried.await {
                Ok(Answer { response: Response::MetaWritten(written), .. }) => match codec::written(&written)? {
                    Written::Conflict if is_doubtful => return Err(once::unknown()),
                    written => return Ok(written),
                },
                Ok(Answer { response, .. }) => return Err(stray(&response)),
                // The last run may have refused what an earlier one has done.
                Err(Miss::Refused(_)) if is_doubtful => return Err(once::unknown()),
                Err(Miss::Refused(error)) => return Err(error),
                Err(Miss::Unsent(error)) => error,
                Err(Miss::Lost(run, error)) => {
                    sent_to = Some(run);
                    error
                }
            };
            debug!(%error, took = ?before.elapsed(), "a write to the catalogue is tried again");
            if Instant::now() + pause > deadline {
                return match sent_to {
                    Some(_) => Err(once::unknown()),
                    None => Err(unanswered(&error)),
                };
            }
            time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Whether a write cannot happen a second time: it changes a key that it expects at a revision, which never comes back.
pub(super) fn happens_once(expects: &[Expect], changes: &[Change]) -> bool {
    let expected = |key: &Key| expects.iter().any(|expect| expect.key == *key && expect.revision.is_some());
    changes.iter().any(|change| expected(change.key()))
}

fn stray(response: &Response) -> Error {
    debug!(?response, "a meta-server has answered something else");
    Error::new(ErrorKind::Unsupported, "what answers there is no meta-server, or speaks another version")
}

/// Nobody has answered in time; the last try has ended so.
fn unanswered(error: &Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("no meta-server has answered: {}", error.message()))
}

/// What it means that there is no connection: nobody is there now, or whoever is does not let this process in.
fn unreached(error: Error) -> Miss {
    match error.kind() {
        ErrorKind::Unavailable | ErrorKind::Unknown => Miss::Unsent(error),
        _ => Miss::Refused(error),
    }
}

impl Connection {
    /// What it means that a call has failed so.
    fn miss(&self, error: Error) -> Miss {
        match error.kind() {
            ErrorKind::Unavailable if self.caller.is_closed() => Miss::Unsent(error),
            ErrorKind::Unknown if self.caller.is_closed() => Miss::Lost(self.run, error),
            _ => Miss::Refused(error),
        }
    }
}

impl Inner {
    /// Asks something of whoever is connected.
    async fn once<T>(&self, ask: impl AsyncFnOnce(&Caller) -> Result<T>) -> Result<T, Miss> {
        let asking =
            async |connection: &Connection| ask(&connection.caller).await.map_err(|error| connection.miss(error));
        self.once_at(asking).await
    }

    async fn once_at<T>(&self, ask: impl AsyncFnOnce(&Connection) -> Result<T, Miss>) -> Result<T, Miss> {
        // Others may be connecting already, one after the other.
        let connecting = time::timeout_at(patience::until(2 * ONE_TRY), self.connect()).await;
        let busy = |_| Err(Error::new(ErrorKind::Unavailable, "no meta-server can be reached"));
        let connection = connecting.unwrap_or_else(busy).map_err(unreached)?;
        let begun = Instant::now();
        match time::timeout_at(patience::until(ONE_TRY), ask(&connection)).await {
            Ok(answered) => answered,
            Err(_) => {
                let took = begun.elapsed();
                if took >= ONE_TRY {
                    // Whoever it is does nothing: perhaps another one does.
                    connection.caller.hang_up();
                }
                let what = format!("it has been silent for {:.1} s", took.as_secs_f64());
                Err(Miss::Lost(connection.run, Error::new(ErrorKind::Unavailable, what)))
            }
        }
    }

    async fn connect(&self) -> Result<Connection> {
        let mut current = self.connection.lock().await;
        if let Some(connection) = current.as_ref().filter(|connection| !connection.caller.is_closed()) {
            return Ok(connection.clone());
        }
        let mut first_error = None;
        for _ in 0..self.addresses.len() {
            match self.dial().await {
                Ok(connection) => return Ok(current.insert(connection).clone()),
                Err(error) => drop(first_error.get_or_insert(error)),
            }
        }
        Err(first_error.unwrap_or_else(|| Error::new(ErrorKind::Unavailable, "there is no meta-server")))
    }

    /// Connects to the next meta-server of the list.
    async fn dial(&self) -> Result<Connection> {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.addresses.len();
        let address = &self.addresses[at];
        let dialling = async {
            let (stream, terms) = self.membership.dial(address, self.role).await?;
            let mailbox = Arc::new(Mailbox::default());
            let caller = Caller::new(mailbox.clone(), BUDGET);
            let link = Link::new(stream, NoService, Limits::default(), terms.max_frame, mailbox);
            let address = address.clone();
            self.runtime.spawn(async move {
                let end = link::drive(link).await;
                debug!(%address, %end, "a connection to a meta-server ended");
            });
            // Given up, it must not stay open.
            let ungreeted = HangUp(Some(caller.clone()));
            let greeted = caller.call(Request::MetaGreet(proto::meta::Greet {}), Vec::new()).await?.response;
            let Response::MetaGreeted(greeted) = greeted else { return Err(stray(&greeted)) };
            ungreeted.forget();
            Ok(Connection { caller, run: greeted.run })
        };
        let dialled = time::timeout(ONE_TRY, dialling).await.unwrap_or_else(|_| {
            let what = format!("the meta-server {address} does not answer within {ONE_TRY:?}");
            Err(Error::new(ErrorKind::Unavailable, what))
        });
        if dialled.is_ok() {
            // A connection that breaks is made anew to where it was.
            self.next.store(at, Ordering::Relaxed);
            info!(%address, "connected to a meta-server");
        }
        dialled
    }
}

/// Ends a connection that nobody has got.
struct HangUp(Option<Caller>);

impl HangUp {
    fn forget(mut self) {
        self.0 = None;
    }
}

impl Drop for HangUp {
    fn drop(&mut self) {
        if let Some(caller) = &self.0 {
            caller.hang_up();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.get_mut() {
            connection.caller.hang_up();
        }
    }
}

impl MetaStore for Remote {
    fn read(&self, prefix: Prefix) -> Pending<'_, State> {
        let request = Request::MetaRead(proto::meta::Read { prefix: prefix.as_str().to_owned() });
        Box::pin(self.state(request))
    }

    fn get(&self, keys: Vec<Key>) -> Pending<'_, State> {
        Box::pin(async move {
            meta_store::check_get(&keys)?;
            let keys = keys.iter().map(Key::to_string).collect();
            self.state(Request::MetaGet(proto::meta::Get { keys })).await
        })
    }

    fn write(&self, expects: Vec<Expect>, changes: Vec<Change>) -> Pending<'_, Written> {
        Box::pin(self.write(expects, changes))
    }

    fn watch(&self, prefix: Prefix, after: Revision) -> Pending<'_, Box<dyn Watch>> {
        let (sender, seen) = mpsc::channel(WATCHED_AHEAD);
        // A connection of its own: one that is behind keeps nobody else waiting.
        let inner = Inner {
            addresses: self.inner.addresses.clone(),
            membership: self.inner.membership.clone(),
            role: self.inner.role,
            next: AtomicUsize::new(self.inner.next.load(Ordering::Relaxed)),
            connection: Mutex::default(),
            writer: self.inner.writer,
            writes: AtomicU64::new(0),
            writing: Semaphore::new(0),
            runtime: self.inner.runtime.clone(),
        };
        let task = self.inner.runtime.spawn(watch(inner, prefix, after, sender)).abort_handle();
        Box::pin(async move { Ok(Box::new(RemoteWatch { seen, task, last: None }) as Box<dyn Watch>) })
    }

    fn open_session(&self, ttl: Duration) -> Pending<'_, Session> {
        Box::pin(async move {
            meta_store::check_ttl(ttl)?;
            let ttl_ms = codec::milliseconds(ttl);
            // One whose answer was lost ends by itself.
            match self.call(Request::MetaOpenSession(proto::meta::OpenSession { ttl_ms })).await? {
                Response::MetaSession(session) => Ok(codec::session(&session)),
                other => Err(stray(&other)),
            }
        })
    }

    fn keep(&self, session: SessionId) -> Pending<'_, ()> {
        Box::pin(async move { done(&self.call(Request::MetaKeep(proto::meta::Keep { session: session.0 })).await?) })
    }

    fn end_session(&self, session: SessionId) -> Pending<'_, ()> {
        Box::pin(async move {
            let end = proto::meta::EndSession { session: session.0 };
            done(&self.call(Request::MetaEndSession(end)).await?)
        })
    }
}

fn done(response: &Response) -> Result<()> {
    match response {
        Response::Done(_) => Ok(()),
        other => Err(stray(other)),
    }
}

/// A watch: a task that asks, and what it has seen.
struct RemoteWatch {
    seen: mpsc::Receiver<Result<Watched>>,
    task: AbortHandle,
    /// What it says from now on: there is nothing behind it.
    last: Option<Watched>,
}

impl Drop for RemoteWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch for RemoteWatch {
    fn next(&mut self) -> Pending<'_, Watched> {
        Box::pin(async {
            if let Some(last) = &self.last {
                return Ok(last.clone());
            }
            let ended = || Err(Error::new(ErrorKind::Unavailable, "the process ends, and so does what it watches"));
            let watched = self.seen.recv().await.unwrap_or_else(ended)?;
            if watched == Watched::Compacted {
                self.last = Some(Watched::Compacted);
            }
            Ok(watched)
        })
    }
}

/// Hands on what a meta-server sees, whichever can be reached, until nobody waits for more.
async fn watch(inner: Inner, prefix: Prefix, mut after: Revision, seen: mpsc::Sender<Result<Watched>>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let watched = async {
            let connection = inner.connect().await.map_err(unreached)?;
            let request = proto::meta::Watch { prefix: prefix.as_str().to_owned(), after: after.0 };
            let answers = connection.caller.stream(Request::MetaWatch(request)).map_err(|e| connection.miss(e))?;
            let before = after;
            let watched = follow(answers, &mut after, &seen).await.map_err(|error| connection.miss(error));
            if after != before {
                pause = FIRST_PAUSE;
            }
            if watched.is_err() {
                connection.caller.hang_up();
            }
            watched
        };
        match watched.await {
            Ok(()) => return,
            Err(Miss::Refused(error)) if !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown) => {
                // Waiting does not mend this; whoever asks next learns it too.
                if seen.send(Err(error)).await.is_err() {
                    return;
                }
            }
            Err(Miss::Unsent(error) | Miss::Lost(_, error) | Miss::Refused(error)) => {
                debug!(%error, "the catalogue cannot be watched; trying again");
            }
        }
        time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Hands on what one connection brings. Ends well when there is nothing more to hand on, or nobody to hand it to.
async fn follow(mut answers: Answers, after: &mut Revision, seen: &mpsc::Sender<Result<Watched>>) -> Result<()> {
    let silent = |_| Error::new(ErrorKind::Unavailable, "the meta-server does not say any more that it is there");
    loop {
        let mut batch = Batch { revision: Revision(0), changes: Vec::new() };
        loop {
            let Answer { response, raw, .. } = time::timeout(3 * SIGN, answers.next()).await.map_err(silent)??;
            let piece = match response {
                Response::MetaBatch(piece) => piece,
                Response::MetaCompacted(_) => {
                    // Whoever watched may have gone.
                    let _ = seen.send(Ok(Watched::Compacted)).await;
                    return Ok(());
                }
                other => return Err(stray(&other)),
            };
            let more = codec::extend_batch(&mut batch, piece, raw)?;
            if batch.changes.len() > MOST_CHANGES {
                return Err(Error::new(ErrorKind::TooLarge, "a write of the meta-server has more changes than it may"));
            }
            if !more {
                break;
            }
        }
        // One without changes only says that somebody is there.
        if batch.changes.is_empty() {
            continue;
        }
        let revision = batch.revision;
        if seen.send(Ok(Watched::Changed(batch))).await.is_err() {
            return Ok(());
        }
        *after = revision;
    }
}
