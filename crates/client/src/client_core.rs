//! Drives a client: the lock around the [`ClientDriver`], its connection, its timer, and the futures that wait for calls.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use model::{Entry, Error, ErrorKind, NodeId, Object, Oid, Result, SpaceId, limits};
use protocol::clock::ClusterTime;
use protocol::commit::changes_head_bytes;
use protocol::ident::TxnId;
use protocol::lease::Ms;
use protocol::page_cache::{DerivedValue, ObjectState};
use protocol::session::Session;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit, broadcast, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time;
use wire::cluster::{MAX_OPEN_QUERIES, Message, object_read_from_proto};
use wire::driving::{DeadlineTimer, DeliveryScope, MonotonicClock, PeerHandle};
use wire::frame::Raw;
use wire::link::Caller;
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;

use super::ConnectOptions;
use super::classes::KnownClasses;
use super::driver::{CallId, CallResult, ClientCall, ClientDriver, Output, ReadRequest, closed_error};
use super::events::{EVENT_BUFFER, Event};
use super::link::HANG_UP_TIMEOUT;
use super::loaded::has_bytes_of;
use super::options::MAX_TIMEOUT;
use super::outcome::CommitOutcome;
use super::page_allocator::PageSource;
use super::transaction::temporary_error;
use super::unique::ContestedValues;

/// Most outstanding writes outside of transactions, in units of [`WRITE_UNIT_BYTES`].
const WRITE_UNITS: u32 = 4_096;
const WRITE_UNIT_BYTES: usize = 4 << 10;
/// Bytes of a read in a message, at most.
const MAX_READ_BYTES: usize = 44;
/// Most bytes of large transactions that are being committed, in units: so many are sent at once. Smaller ones do not count.
const COMMIT_UNITS: u32 = (limits::TRANSACTION / COMMIT_UNIT_BYTES) as u32;
const COMMIT_UNIT_BYTES: usize = 64 << 10;

/// The connection to a peer server.
#[derive(Clone)]
pub(super) struct PeerConnection {
    pub(super) handle: PeerHandle,
    pub(super) caller: Caller,
    /// The peer server's address.
    pub(super) peer_address: Arc<str>,
}

/// Where the end of a call is sent.
pub(super) enum CallWaiter {
    Result(oneshot::Sender<Result<CallResult<Object>>>),
    /// Each time that the request is to be sent, and its end.
    Request(mpsc::UnboundedSender<RequestStep>),
}

/// What the sender of a request does next.
pub(super) enum RequestStep {
    /// Send the request over this connection.
    Send(Caller),
    /// The request has failed.
    Failed(Error),
}

/// The state that the lock guards.
pub(super) struct ClientState {
    pub(super) driver: ClientDriver<Object>,
    connection: Option<PeerConnection>,
    pub(super) waiters: HashMap<CallId, CallWaiter>,
    /// Calls that have finished. Their callers are woken after the lock is released, because each of them takes it at once.
    finished: Vec<FinishedCall>,
    events: broadcast::Sender<Event>,
    is_closed: bool,
}

/// The caller of a call, and the result.
type FinishedCall = (oneshot::Sender<Result<CallResult<Object>>>, Result<CallResult<Object>>);

/// A client, which all its handles share.
pub(super) struct Core {
    state: Mutex<ClientState>,
    pub(super) page_source: PageSource,
    /// Unique values that are looked up before a transaction gives them.
    pub(super) contested: ContestedValues,
    pub(super) classes: KnownClasses,
    timer: Arc<DeadlineTimer>,
    clock: MonotonicClock,
    pub(super) space: SpaceId,
    /// The logical nodes of the space, in ascending order.
    pub(super) nodes: Vec<NodeId>,
    pub(super) options: ConnectOptions,
    /// Bounds the writes outside of transactions.
    write_budget: Semaphore,
    commit_budget: Semaphore,
    /// Bounds the open queries, as the peer server does.
    open_queries: Arc<Semaphore>,
    /// Ends the timer's task when the client is closed.
    closing: Arc<Notify>,
    /// The task that keeps the client connected.
    link: Mutex<Option<JoinHandle<()>>>,
    /// The servers in this process, which serve as long as they have clients.
    #[cfg(feature = "embedded")]
    embedded: std::sync::OnceLock<super::embedded::EmbeddedHandle>,
}

impl Drop for Core {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("space", &self.space).field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

/// Closes a client when it is dropped.
struct CloseGuard(Weak<Core>);

impl Drop for CloseGuard {
    fn drop(&mut self) {
        if let Some(core) = self.0.upgrade() {
            core.close();
        }
    }
}

/// A future that waits for a call. Dropped before the call has finished, it cancels the call.
pub(super) struct CallGuard<'a> {
    pub(super) core: &'a Core,
    pub(super) id: CallId,
    pub(super) is_finished: bool,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            // A closed client has no calls.
            let _ = self.core.with_state(|state, now| {
                state.waiters.remove(&self.id);
                state.driver.cancel(self.id, now);
            });
        }
    }
}

impl Core {
    pub(super) fn new(
        session: Session<Object>,
        (space, mut nodes): (SpaceId, Vec<NodeId>),
        clock: MonotonicClock,
        mut options: ConnectOptions,
    ) -> Arc<Self> {
        options.timeout = options.timeout.min(MAX_TIMEOUT);
        nodes.sort_unstable();
        let page_source = PageSource::new(session.client());
        let state = ClientState {
            driver: ClientDriver::new(session, options.timeout, options.cache_bytes),
            connection: None,
            waiters: HashMap::new(),
            finished: Vec::new(),
            events: broadcast::Sender::new(EVENT_BUFFER),
            is_closed: false,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            page_source,
            contested: ContestedValues::default(),
            classes: KnownClasses::default(),
            timer: Arc::default(),
            clock,
            space,
            nodes,
            options,
            write_budget: Semaphore::new(WRITE_UNITS as usize),
            commit_budget: Semaphore::new(COMMIT_UNITS as usize),
            open_queries: Arc::new(Semaphore::new(MAX_OPEN_QUERIES)),
            closing: Arc::default(),
            link: Mutex::default(),
            #[cfg(feature = "embedded")]
            embedded: Default::default(),
        })
    }

    /// The servers in this process.
    #[cfg(feature = "embedded")]
    pub(super) fn embedded_handle(&self) -> &std::sync::OnceLock<super::embedded::EmbeddedHandle> {
        &self.embedded
    }

    fn lock(&self) -> Result<MutexGuard<'_, ClientState>> {
        // A machine that has panicked may be in an inconsistent state.
        let state = self.state.lock().map_err(|_| Error::new(ErrorKind::Internal, "the client has panicked"))?;
        if state.is_closed { Err(closed_error()) } else { Ok(state) }
    }

    pub(super) fn with_state<T>(&self, act: impl FnOnce(&mut ClientState, Ms) -> T) -> Result<T> {
        let _delivery = DeliveryScope::enter();
        let mut state = self.lock()?;
        let done = act(&mut state, self.clock.now());
        self.process_outputs(state);
        Ok(done)
    }

    /// Gives the driver an input, and carries out its outputs.
    pub(super) fn with_driver<T>(&self, act: impl FnOnce(&mut ClientDriver<Object>, Ms) -> T) -> Result<T> {
        self.with_state(|state, now| act(&mut state.driver, now))
    }

    /// Carries out the outputs of the driver, and releases the lock.
    fn process_outputs(&self, mut state: MutexGuard<'_, ClientState>) {
        for output in state.driver.outputs() {
            state.handle_output(output, self.clock);
        }
        if let Some(deadline) = state.driver.deadline() {
            self.timer.set(deadline);
        }
        let finished = std::mem::take(&mut state.finished);
        drop(state);
        // A caller that has gone has cancelled its call.
        finished.into_iter().for_each(|(caller, result)| drop(caller.send(result)));
    }

    /// Polls the driver when it is time, until the client is closed or dropped. The client is closed if the runtime ends that this runs on:
    /// nothing would end its calls, and nothing connects it again.
    pub(super) async fn run_timers(core: Weak<Self>) {
        let _guard = CloseGuard(core.clone());
        let Some((timer, closing, clock)) = core.upgrade().map(|it| (it.timer.clone(), it.closing.clone(), it.clock))
        else {
            return;
        };
        loop {
            tokio::select! {
                () = timer.wait(&clock) => {}
                () = closing.notified() => return,
            }
            timer.clear();
            let Some(core) = core.upgrade() else { return };
            if core.with_driver(|driver, now| driver.poll(now)).is_err() {
                return;
            }
        }
    }

    /// Ends the client: releases its locks, gives its copies back, and fails all calls.
    pub(super) fn close(&self) {
        let _delivery = DeliveryScope::enter();
        if let Ok(mut state) = self.lock() {
            state.driver.close();
            state.is_closed = true;
            self.process_outputs(state);
        }
        // The calls of a machine that has panicked end, too.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiters.clear();
        // Its subscribers see the end of the events.
        state.events = broadcast::Sender::new(1);
        if let Some(connection) = state.connection.take() {
            for pages in self.page_source.take_all(self) {
                connection.caller.send_one_way(Request::ReturnPages(pages));
            }
            connection.handle.hang_up();
        }
        drop(state);
        self.closing.notify_one();
    }

    /// Sets the task that keeps the client connected.
    pub(super) fn set_link(&self, task: JoinHandle<()>) {
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    /// Waits for a short time until the server has got what a client that is closed has sent last.
    pub(super) async fn wait_until_sent(&self) {
        let task = self.link.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            // A server that hangs may take nothing more.
            let _ = time::timeout(HANG_UP_TIMEOUT, task).await;
        }
    }

    /// A subscription to the space's events: those that tell the current status, and those that follow.
    pub(super) fn subscribe(&self) -> Result<(VecDeque<Event>, broadcast::Receiver<Event>)> {
        self.with_state(|state, _| (state.driver.monitor().current_events(), state.events.subscribe()))
    }

    // -------------------------------------------------------------------------------------------- connection

    /// A peer server is connected, and says what time it is.
    pub(super) fn on_connected(&self, connection: PeerConnection, time: ClusterTime) -> Result<()> {
        self.with_state(|state, now| {
            state.driver.set_time(time);
            let peer = connection.peer_address.clone();
            state.connection = Some(connection);
            state.driver.handle_connected(peer, now);
        })
    }

    /// The connection to the peer server has ended.
    pub(super) fn on_disconnected(&self, why: &str) -> Result<()> {
        self.with_state(|state, now| {
            state.connection = None;
            state.driver.handle_disconnected(why, now);
        })
    }

    /// The peer server has sent messages.
    pub(super) fn handle_messages(&self, mut messages: impl Iterator<Item = Message>) -> Result<()> {
        self.with_driver(|driver, now| {
            messages.try_for_each(|message| {
                match message {
                    Message::Down { node, holder, message } => driver.handle_down(node, holder, message, now),
                    Message::Deferred { txn, kind, why, .. } => driver.handle_deferred(txn, kind, why, now),
                    Message::Reply { txn, reply } => driver.handle_reply(txn, reply, now),
                    Message::SpaceStatus(status) => driver.handle_status(status, now),
                    Message::Time(time_ms) => driver.set_time(ClusterTime::from_message(time_ms, now)),
                    _ => {
                        let what = "a peer server does not send this message to a client";
                        return Err(Error::new(ErrorKind::Invalid, what));
                    }
                }
                Ok(())
            })
        })?
    }

    // -------------------------------------------------------------------------------------------- calls

    /// Starts a call and waits for its end.
    async fn call(&self, call: ClientCall<Object>) -> Result<CallResult<Object>> {
        self.finish_call(self.with_state(|state, now| state.start(call, now))?).await
    }

    /// Waits for the end of a call, which is cancelled if the future is dropped, even before it is polled.
    fn finish_call(
        &self,
        (id, result): (CallId, oneshot::Receiver<Result<CallResult<Object>>>),
    ) -> impl Future<Output = Result<CallResult<Object>>> {
        let guard = CallGuard { core: self, id, is_finished: false };
        async move {
            // All of it is moved into the future.
            let mut guard = guard;
            let result = result.await;
            guard.is_finished = true;
            result.unwrap_or_else(|_| Err(closed_error()))
        }
    }

    /// Reads an object in a transaction. An available object takes one lock and nothing else.
    pub(super) async fn read(&self, read: ReadRequest) -> Result<Option<Object>> {
        let started = {
            let _delivery = DeliveryScope::enter();
            let (mut state, now) = (self.lock()?, self.clock.now());
            if let Some(found) = state.driver.read(&read, now)? {
                return Ok(found);
            }
            let started = state.start(ClientCall::Read(read), now);
            self.process_outputs(state);
            started
        };
        object_result(self.finish_call(started).await?)
    }

    /// Reads an object in a transaction if the cache has a value that was derived from it, and returns that value.
    pub(super) fn read_derived(&self, read: &ReadRequest) -> Result<Option<Arc<dyn Any + Send + Sync>>> {
        let mut state = self.lock()?;
        state.driver.read_derived(read, self.clock.now())
    }

    /// Keeps a value that was derived from an object with the copy of the object, if that is still the same.
    pub(super) fn attach(&self, oid: Oid, source: &Object, derived: DerivedValue) -> Result<()> {
        self.with_driver(|driver, now| driver.attach(oid, |object| has_bytes_of(object, source), derived, now))
    }

    /// Reads an object outside of transactions.
    pub(super) async fn get(&self, oid: Oid) -> Result<Option<Object>> {
        self.check_in_space(oid)?;
        let started = {
            let _delivery = DeliveryScope::enter();
            let (mut state, now) = (self.lock()?, self.clock.now());
            if let Some(found) = state.driver.get(oid, now)? {
                return Ok(found);
            }
            let started = state.start(ClientCall::Get(oid), now);
            self.process_outputs(state);
            started
        };
        object_result(self.finish_call(started).await?)
    }

    /// Waits until an object is in another state than `known`. Returns that state.
    pub(super) async fn wait_for_change(&self, oid: Oid, known: Option<Object>) -> Result<Option<Object>> {
        object_result(self.call(ClientCall::Change(oid, known)).await?)
    }

    /// Fetches the missing pages of these objects together.
    pub(super) async fn fetch_all(&self, oids: &[Oid]) -> Result<()> {
        let started = self.with_state(|state, now| {
            let mut started = Vec::new();
            for oid in oids {
                if state.driver.get(*oid, now)?.is_none() {
                    started.push(state.start(ClientCall::Get(*oid), now));
                }
            }
            Ok::<_, Error>(started)
        })??;
        let mut fetches: Vec<_> = started.into_iter().map(|started| Box::pin(self.finish_call(started))).collect();
        for fetch in &mut fetches {
            fetch.await?;
        }
        Ok(())
    }

    /// Writes an object outside of transactions, and waits until it is durable.
    pub(super) async fn put(&self, oid: Oid, content: ObjectState<Object>) -> Result<()> {
        self.check_in_space(oid)?;
        let len = if let ObjectState::Value(object) = &content { object.encoded_len() } else { 0 };
        let units = u32::try_from(1 + len / WRITE_UNIT_BYTES).unwrap_or(u32::MAX).min(WRITE_UNITS);
        let _permit = self.write_budget.acquire_many(units).await.map_err(|_| closed_error())?;
        self.call(ClientCall::Put(oid, content)).await.map(drop)
    }

    /// Waits until a transaction of this many bytes may be sent: not at all if it is small. The permit is dropped when it is answered.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if other large transactions do not end in time.
    pub(super) async fn wait_to_commit(&self, bytes: usize) -> Result<Option<SemaphorePermit<'_>>> {
        let units = ((bytes / COMMIT_UNIT_BYTES) as u32).min(COMMIT_UNITS);
        if units == 0 {
            return Ok(None);
        }
        let late = |_| {
            let what = "other large transactions of this client have not ended in time: nothing of this one was sent";
            Error::new(ErrorKind::Unavailable, what)
        };
        let permit = time::timeout(self.options.timeout, self.commit_budget.acquire_many(units)).await.map_err(late)?;
        permit.map(Some).map_err(|_| closed_error())
    }

    /// Waits until another query may be open. The permit is dropped when the query has ended.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] if none of the open queries ends in time.
    pub(super) async fn wait_to_query(&self) -> Result<OwnedSemaphorePermit> {
        let late = |_| {
            let what = format!("{MAX_OPEN_QUERIES} queries of this client are open: read or drop one of them first");
            Error::new(ErrorKind::TooLarge, what)
        };
        let permit = time::timeout(self.options.timeout, self.open_queries.clone().acquire_owned()).await;
        permit.map_err(late)?.map_err(|_| closed_error())
    }

    /// Writes objects and changes entries of collections in a transaction, commits it, and waits for its outcome.
    pub(super) async fn commit(
        &self,
        txn: TxnId,
        writes: Vec<(Oid, ObjectState<Object>)>,
        entries: BTreeMap<Entry, Option<Oid>>,
    ) -> Result<CommitOutcome> {
        let started = self.with_state(|state, now| {
            // A transaction that is over has an outcome.
            let _ = entries.into_iter().try_for_each(|(entry, target)| state.driver.change_entry(txn, entry, target));
            state.start(ClientCall::Commit(txn, writes), now)
        })?;
        outcome_result(self.finish_call(started).await?)
    }

    /// Finds out the outcome of a transaction.
    pub(super) async fn find_outcome(&self, txn: TxnId) -> Result<CommitOutcome> {
        outcome_result(self.call(ClientCall::Resolve(txn)).await?)
    }

    /// Checks that the space serves this client.
    ///
    /// # Errors
    /// [`ErrorKind::Stopped`]; [`ErrorKind::Denied`] if no peer server admits the client.
    pub(super) fn check_serving(&self) -> Result<()> {
        self.lock()?.driver.check_serving()
    }

    /// How many reads a transaction relies on.
    pub(super) fn read_count(&self, txn: TxnId) -> Result<usize> {
        Ok(self.lock()?.driver.read_count(txn))
    }

    /// Checks that the messages of a transaction with these reads and changes are not too long.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`], with the limit.
    pub(super) fn check_head<'a>(
        &self,
        txn: TxnId,
        reads: usize,
        writes: impl ExactSizeIterator<Item = Oid>,
        entries: impl Iterator<Item = &'a Entry> + Clone,
    ) -> Result<()> {
        // Of most transactions it is plain without a list of their reads.
        if reads * MAX_READ_BYTES + changes_head_bytes(writes.len(), 0, entries.clone()) <= limits::HEAD / 2 {
            return Ok(());
        }
        limits::check_head(self.lock()?.driver.head_bytes(txn, writes, entries))
    }

    /// The logical nodes whose bricks cannot be reached or cannot serve them, according to the status that the peer server has sent.
    pub(super) fn unavailable_nodes(&self) -> Result<BTreeSet<NodeId>> {
        Ok(self.lock()?.driver.monitor().unavailable_nodes())
    }

    /// Waits until the bricks of these logical nodes are reachable, according to the status that the peer server has sent. Returns the
    /// logical nodes that are [unavailable](Self::unavailable_nodes).
    pub(super) async fn wait_reachable(&self, nodes: impl FnOnce() -> Result<Vec<NodeId>>) -> Result<BTreeSet<NodeId>> {
        let unavailable = loop {
            let (needs_status, unavailable) = {
                let mut state = self.lock()?;
                let monitor = state.driver.monitor();
                (monitor.needs_status(), monitor.unavailable_nodes())
            };
            if !needs_status {
                break unavailable;
            }
            self.ask(Request::Ping(proto::Ping {})).await?;
        };
        // Nearly always all bricks are reachable.
        if !unavailable.is_empty() {
            self.call(ClientCall::Reachable(nodes()?)).await?;
        }
        Ok(unavailable)
    }

    /// Checks that an identifier can belong to an object of this space.
    pub(super) fn check_in_space(&self, oid: Oid) -> Result<()> {
        if oid.is_temporary() {
            return Err(temporary_error(oid));
        }
        if oid.space() != self.space {
            let what = format!("{oid} is no object of the client's space, which is number {}", self.space.0);
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        if self.nodes.binary_search(&oid.page().node).is_err() {
            let what = format!("there is no object {oid}: the space has no logical node {:x}", oid.page().node.0);
            return Err(Error::new(ErrorKind::NotFound, what));
        }
        Ok(())
    }

    /// Checks that this object can be written at an identifier, or that what is there can be deleted.
    pub(super) fn check_write(&self, oid: Oid, object: Option<&Object>) -> Result<()> {
        if let Some(object) = object {
            object.check()?;
            if object.class != oid.class() {
                let what = format!("an object of class {} cannot stand at {oid}", object.class.0);
                return Err(Error::new(ErrorKind::Invalid, what));
            }
        }
        if oid.is_temporary() {
            return Ok(());
        }
        self.check_in_space(oid)?;
        match oid == self.root()? {
            true => Err(Error::new(ErrorKind::Invalid, "the root directory cannot be replaced or deleted")),
            false => Ok(()),
        }
    }

    /// The error of a call about these logical nodes that has not finished in time.
    pub(super) fn timeout_error(&self, nodes: &[NodeId]) -> Error {
        self.lock().map_or_else(|closed| closed, |state| state.driver.late_error(nodes))
    }

    /// The error of a transaction whose outcome is unknown.
    pub(super) fn unknown_outcome_error(&self, txn: TxnId) -> Error {
        self.lock().map_or_else(
            |_| super::outcome::unknown_outcome_error(txn, None),
            |state| state.driver.unknown_outcome_error(txn),
        )
    }

    /// An object as the brick has it, or the cache of the peer server.
    pub(super) async fn read_object(&self, oid: Oid, cached: bool) -> Result<Option<Object>> {
        self.check_in_space(oid)?;
        let request = Request::ReadObject(proto::ReadObject { oid: Some(oid.into()), cached });
        let read = match self.ask(request).await {
            Ok((Response::ObjectRead(read), raw)) => object_read_from_proto(oid, read, Raw::Owned(raw)),
            Ok(_) => Err(unexpected_answer_error()),
            Err(error) => Err(error),
        };
        read.map_err(|error| name_damaged(oid, error))
    }
}

/// The error of a read, which names the object if it is damaged.
pub(super) fn name_damaged(oid: Oid, error: Error) -> Error {
    match error.kind() {
        ErrorKind::Corrupt if !error.message().contains(&oid.to_string()) => {
            Error::new(ErrorKind::Corrupt, format!("object {oid}: {}", error.message()))
        }
        _ => error,
    }
}

impl ClientState {
    fn start(&mut self, call: ClientCall<Object>, now: Ms) -> (CallId, oneshot::Receiver<Result<CallResult<Object>>>) {
        let (sender, result) = oneshot::channel();
        let id = self.driver.start(call, now);
        self.waiters.insert(id, CallWaiter::Result(sender));
        (id, result)
    }

    fn handle_output(&mut self, output: Output<Object>, clock: MonotonicClock) {
        match output {
            Output::Up(node, holder, message) => self.send(Message::Up { node, epoch: 0, holder, message }),
            Output::Call(txn, call) => self.send(Message::Call { txn, call }),
            Output::Repeat(txn, call) => {
                let message = Message::Call { txn, call };
                let is_sending = self.connection.as_ref().is_some_and(|connection| connection.handle.is_sending());
                match is_sending && message.memory_size() > COMMIT_UNIT_BYTES {
                    true => self.driver.repeat_soon(txn, clock.now()),
                    false => self.send(message),
                }
            }
            Output::Watch => self.send(Message::Watch),
            Output::Request(id) => {
                if let (Some(CallWaiter::Request(steps)), Some(connection)) = (self.waiters.get(&id), &self.connection)
                {
                    // The caller may have gone, which cancels the call.
                    let _ = steps.send(RequestStep::Send(connection.caller.clone()));
                }
            }
            Output::Finished(id, result) => match (self.waiters.remove(&id), result) {
                (Some(CallWaiter::Result(caller)), result) => self.finished.push((caller, result)),
                (Some(CallWaiter::Request(steps)), Err(error)) => drop(steps.send(RequestStep::Failed(error))),
                (Some(CallWaiter::Request(_)), Ok(_)) | (None, _) => {}
            },
            // There may be no subscriber.
            Output::Event(event) => drop(self.events.send(event)),
        }
    }

    /// Sends a message to the peer server. Without a connection it is lost, and the driver repeats it.
    fn send(&self, message: Message) {
        if let Some(connection) = &self.connection {
            connection.handle.send(message);
        }
    }
}

/// The error of an answer that does not fit its request.
pub(super) fn unexpected_answer_error() -> Error {
    Error::new(ErrorKind::Internal, "the peer server answered a request with another kind of message")
}

fn object_result(result: CallResult<Object>) -> Result<Option<Object>> {
    match result {
        CallResult::Object(object) => Ok(object),
        other => Err(wrong_result_error(&other)),
    }
}

fn outcome_result(result: CallResult<Object>) -> Result<CommitOutcome> {
    match result {
        CallResult::Outcome(outcome) => Ok(outcome),
        other => Err(wrong_result_error(&other)),
    }
}

fn wrong_result_error(result: &CallResult<Object>) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("a call of the client ended with the result of another kind of call: {result:?}"),
    )
}

#[cfg(test)]
mod tests;
