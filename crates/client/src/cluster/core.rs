//! What all handles of a client share: the machine, its connection, and who waits for what.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use bytes::Bytes;
use model::{Error, ErrorKind, NodeId, Object, Oid, PageId, Result, SpaceId};
use protocol::commit::Refusal;
use protocol::eviction::EvictionPolicy;
use protocol::ident::TxnId;
use protocol::lease::Ms;
use protocol::page_cache::{Lookup, ObjectState};
use protocol::session::{Output, Session, TxnOutcome};
use protocol::tree::Down;
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::{Notify, Semaphore, oneshot, watch};
use tokio::time;
use wire::cluster::{Message, is_final, object_read_from_proto};
use wire::driving::{DeadlineTimer, MonotonicClock, PeerHandle};
use wire::frame::Raw;
use wire::link::{Answer, Caller};
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;

use super::classes::KnownClasses;
use super::events::SpaceMonitor;
use super::outcome::{CommitOutcome, commit_outcome};
use super::page_allocator::PageAllocator;
use super::{ClusterOptions, outcome};

/// What an object takes in memory beside its data.
const OVERHEAD: usize = 96;
/// Ends of transactions that nobody has waited for, that are kept.
const MAX_OUTCOMES: usize = 4_096;

/// Writes outside of transactions that may be on their way, in units of so many bytes.
const WRITES: u32 = 4_096;
const WRITE_UNIT: usize = 4 << 10;
/// How long what was sent is waited for once the space is stopped, or the client is not let in any more: long enough for what needs no brick that is away.
const SHORT_WAIT: Duration = Duration::from_secs(1);

/// What somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum WaitKey {
    /// News of a page.
    Page(PageId),
    /// News of a transaction.
    Txn(TxnId),
    /// News of how things are in the space.
    SpaceStatus,
}

/// What became of a write outside of transactions.
enum WriteOutcome {
    Durable,
    Unknown,
    /// It was refused for good, for this reason.
    Refused(ErrorKind, String),
}

/// A connection that there is.
#[derive(Clone)]
pub(super) struct PeerConnection {
    pub(super) handle: PeerHandle,
    pub(super) caller: Caller,
    /// The peer server's address.
    pub(super) peer_address: Arc<str>,
}

/// What is locked while the machine is at work.
pub(super) struct ClientState {
    pub(super) session: Session<Object>,
    pub(super) connection: Option<PeerConnection>,
    pub(super) monitor: SpaceMonitor,
    /// Why no peer server lets the client in, if the last one said so.
    access_refused: watch::Sender<Option<Arc<str>>>,
    waiters: HashMap<WaitKey, Vec<oneshot::Sender<()>>>,
    /// Who waits for the end of a transaction; those that ended unasked.
    outcome_waiters: HashMap<TxnId, oneshot::Sender<TxnOutcome>>,
    pub(super) outcomes: BTreeMap<TxnId, TxnOutcome>,
    /// Why transactions are not done, or not answered.
    deferred: HashMap<TxnId, (ErrorKind, String)>,
    /// Who waits for a write outside of transactions.
    write_waiters: HashMap<u64, oneshot::Sender<WriteOutcome>>,
    /// Why what is said now of a write is said: it was refused for good.
    refused_write: Option<(ErrorKind, String)>,
    last_write: u64,
    residents: EvictionPolicy,
    pub(super) closed: bool,
}

/// A client.
pub(super) struct Core {
    state: Mutex<ClientState>,
    pub(super) page_allocator: PageAllocator,
    pub(super) classes: KnownClasses,
    pub(super) timer: Arc<DeadlineTimer>,
    pub(super) clock: MonotonicClock,
    pub(super) space: SpaceId,
    /// The logical nodes of the space.
    pub(super) nodes: Vec<NodeId>,
    pub(super) options: ClusterOptions,
    /// Bounds what is written outside of transactions at a time.
    write_budget: Semaphore,
    /// Tells the task that looks after the client that it is closed.
    closing: Arc<Notify>,
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

/// Somebody who waits for the end of a transaction. Dropped before that has come, it gives a commit up: what is not prepared by then never
/// will be, and nobody keeps it.
struct OutcomeWaiter<'a> {
    core: &'a Core,
    txn: TxnId,
    is_waiting: bool,
}

impl Drop for OutcomeWaiter<'_> {
    fn drop(&mut self) {
        if !self.is_waiting {
            return;
        }
        // A client that is closed asks for nothing.
        let _ = self.core.work(|state, now| {
            if state.outcome_waiters.remove(&self.txn).is_some() {
                state.deferred.remove(&self.txn);
                state.session.resolve(self.txn, now);
            }
        });
    }
}

fn closed_error() -> Error {
    Error::new(ErrorKind::Invalid, "the client was closed")
}

impl Core {
    pub(super) fn new(
        session: Session<Object>,
        (space, nodes): (SpaceId, Vec<NodeId>),
        time: MonotonicClock,
        options: ClusterOptions,
    ) -> Arc<Self> {
        let state = ClientState {
            session,
            connection: None,
            monitor: SpaceMonitor::default(),
            access_refused: watch::Sender::default(),
            waiters: HashMap::new(),
            outcome_waiters: HashMap::new(),
            outcomes: BTreeMap::new(),
            deferred: HashMap::new(),
            write_waiters: HashMap::new(),
            refused_write: None,
            last_write: 0,
            residents: EvictionPolicy::new(options.cache_bytes),
            closed: false,
        };
        let (rooms, classes, alarm, closing) =
            (PageAllocator::default(), KnownClasses::default(), Arc::default(), Arc::default());
        let (state, writes) = (Mutex::new(state), Semaphore::new(WRITES as usize));
        Arc::new(Self {
            state,
            page_allocator: rooms,
            classes,
            timer: alarm,
            clock: time,
            space,
            nodes,
            options,
            write_budget: writes,
            closing,
        })
    }

    pub(super) fn lock(&self) -> Result<MutexGuard<'_, ClientState>> {
        // A machine that has panicked may have done half of something.
        let state = self.state.lock().map_err(|_| Error::new(ErrorKind::Internal, "the client has panicked"))?;
        if state.closed { Err(closed_error()) } else { Ok(state) }
    }

    /// Gives the machine something, and does what it wants.
    pub(super) fn work<T>(&self, act: impl FnOnce(&mut ClientState, Ms) -> T) -> Result<T> {
        let mut state = self.lock()?;
        let done = act(&mut state, self.clock.now());
        self.drain(&mut state);
        Ok(done)
    }

    pub(super) fn drain(&self, state: &mut ClientState) {
        loop {
            let outputs: Vec<Output<Object>> = state.session.outputs().collect();
            if outputs.is_empty() {
                break;
            }
            for output in outputs {
                state.handle_output(output);
            }
        }
        if let Some(deadline) = state.session.deadline() {
            self.timer.set(deadline);
        }
    }

    /// Does what it is time for, until the client is closed or nobody has it any more.
    pub(super) async fn run_timers(core: Weak<Self>) {
        let Some((alarm, closing, time)) = core.upgrade().map(|it| (it.timer.clone(), it.closing.clone(), it.clock))
        else {
            return;
        };
        loop {
            tokio::select! {
                () = alarm.wait(&time) => {}
                () = closing.notified() => return,
            }
            alarm.clear();
            let Some(core) = core.upgrade() else { return };
            if core.work(|state, now| state.session.poll(now)).is_err() {
                return;
            }
        }
    }

    /// Ends the client, in good order: nobody has to wait for what it holds.
    pub(super) fn close(&self) {
        if let Ok(mut state) = self.lock() {
            state.session.close();
            self.drain(&mut state);
            state.closed = true;
            state.waiters.clear();
            state.outcome_waiters.clear();
            state.write_waiters.clear();
            state.monitor.close();
            if let Some(up) = state.connection.take() {
                up.handle.hang_up();
            }
        }
        self.closing.notify_one();
    }

    // -------------------------------------------------------------------------------------------- waiting

    /// Looks until there is something to see of these logical nodes, for as long as the client's patience lasts.
    pub(super) async fn wait_for<T>(
        &self,
        wait: WaitKey,
        nodes: &[NodeId],
        look: impl FnMut(&mut ClientState, Ms) -> Result<Option<T>>,
    ) -> Result<T> {
        self.wait_for_or(wait, || self.timeout_error(nodes), look).await
    }

    /// The same, and says what the error is when it does not come.
    pub(super) async fn wait_for_or<T>(
        &self,
        wait: WaitKey,
        late: impl FnOnce() -> Error,
        mut look: impl FnMut(&mut ClientState, Ms) -> Result<Option<T>>,
    ) -> Result<T> {
        // What is at hand takes no timer, and leaves nothing to be said.
        {
            let mut state = self.lock()?;
            state.monitor.check()?;
            if let Some(found) = look(&mut state, self.clock.now())? {
                return Ok(found);
            }
            self.drain(&mut state);
        }
        let looking = async {
            loop {
                let looked = self.work(|state, now| match state.check_serving().and_then(|()| look(state, now)) {
                    Ok(None) => Err(state.add_waiter(wait)),
                    found => Ok(found),
                })?;
                let come = match looked {
                    Ok(found) => match found? {
                        Some(found) => return Ok(found),
                        None => continue,
                    },
                    Err(come) => come,
                };
                // Dropped, if the client was closed: the next look says so.
                let _ = come.await;
            }
        };
        time::timeout(self.options.timeout, looking).await.unwrap_or_else(|_| Err(late()))
    }

    /// Whether a brick of the space cannot be reached, as far as the peer server has told.
    pub(super) fn has_unreachable_bricks(&self) -> bool {
        self.lock().is_ok_and(|state| state.monitor.has_unreachable_bricks())
    }

    /// Waits until the bricks of these logical nodes can be reached, as far as the peer server has told.
    pub(super) async fn wait_reachable(&self, nodes: impl FnOnce() -> Result<Vec<NodeId>>) -> Result<()> {
        while self.lock()?.monitor.needs_status() {
            self.ask(Request::Ping(proto::Ping {})).await?;
        }
        // Nearly always all can be.
        if !self.has_unreachable_bricks() {
            return Ok(());
        }
        let nodes = &nodes()?;
        self.wait_for(WaitKey::SpaceStatus, nodes, |state, _| {
            let away = state.monitor.unreachable_nodes();
            Ok((!nodes.iter().any(|node| away.contains(node))).then_some(()))
        })
        .await
    }

    /// Whether an identifier can be of an object of this space.
    pub(super) fn check_in_space(&self, oid: Oid) -> Result<()> {
        if oid.is_temporary() || oid.space() != self.space || !self.nodes.contains(&oid.page().node) {
            let what = format!("{oid} is no object of the client's space, which is number {}", self.space.0);
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        Ok(())
    }

    /// An object outside of transactions.
    pub(super) async fn get(&self, oid: Oid) -> Result<Option<Object>> {
        self.check_in_space(oid)?;
        self.wait_for(WaitKey::Page(oid.page()), &[oid.page().node], |state, now| {
            state.residents.record_use(oid.page());
            match found_object(oid, state.session.peek(oid, now)) {
                None => Ok(found_object(oid, state.session.get(oid, now))),
                found => Ok(found),
            }
        })
        .await
    }

    /// Writes an object outside of transactions, and waits until it is durable.
    pub(super) async fn put(&self, oid: Oid, content: ObjectState<Object>) -> Result<()> {
        self.check_in_space(oid)?;
        let len = if let ObjectState::Value(object) = &content { object.data.len() } else { 0 };
        // Writes that wait together go together: so much of them fits.
        let units = u32::try_from(1 + len / WRITE_UNIT).unwrap_or(u32::MAX).min(WRITES);
        let _room = self.write_budget.acquire_many(units).await.map_err(|_| closed_error())?;
        let (sender, written) = oneshot::channel();
        self.work(|state, now| {
            state.check_serving()?;
            state.last_write += 1;
            let number = state.last_write;
            state.write_waiters.insert(number, sender);
            state.session.put(oid, content, number, now);
            Ok::<_, Error>(())
        })??;
        let unknown = |why: &str| {
            let what = format!("it is not known whether {oid} was written: read it{why}");
            Err(Error::new(ErrorKind::Unknown, what))
        };
        match self.wait_with_timeout(written).await? {
            Some(Ok(WriteOutcome::Durable)) => Ok(()),
            Some(Ok(WriteOutcome::Refused(kind, why))) => Err(Error::new(kind, why)),
            Some(Err(_)) => Err(closed_error()),
            Some(Ok(WriteOutcome::Unknown)) => unknown(""),
            None => {
                let why = self.why_stopped().unwrap_or_else(|| self.timeout_error(&[oid.page().node]).message().into());
                unknown(&format!("; {why}"))
            }
        }
    }

    /// Waits for the end of something that was sent, as long as the client's patience lasts; in a space that is stopped, or when
    /// the client is not let in any more, for a moment only.
    async fn wait_with_timeout<T>(&self, coming: oneshot::Receiver<T>) -> Result<Option<Result<T, RecvError>>> {
        let (mut stopped, mut refused) = {
            let state = self.lock()?;
            (state.monitor.watch_stopped(), state.access_refused.subscribe())
        };
        let stop = async {
            // They are there as long as the client is.
            tokio::select! {
                _ = stopped.wait_for(Option::is_some) => {}
                _ = refused.wait_for(Option::is_some) => {}
            }
            time::sleep(SHORT_WAIT).await;
        };
        tokio::select! {
            biased;
            come = coming => Ok(Some(come)),
            () = time::sleep(self.options.timeout) => Ok(None),
            () = stop => Ok(None),
        }
    }

    /// Why everything in the space is refused, or the client is not let in, if that is so.
    fn why_stopped(&self) -> Option<Arc<str>> {
        let state = self.lock().ok()?;
        let refused = state.access_refused.borrow().clone();
        refused.or_else(|| state.monitor.watch_stopped().borrow().clone())
    }

    /// Waits for the end of a transaction, if it comes in time; with why it is not done, if that was said.
    async fn wait_outcome(
        &self,
        txn: TxnId,
    ) -> Result<(Option<Result<TxnOutcome, RecvError>>, Option<(ErrorKind, String)>)> {
        let (sender, ending) = oneshot::channel();
        let at_hand = {
            let mut state = self.lock()?;
            let ended = state.outcomes.remove(&txn);
            if ended.is_none() {
                state.outcome_waiters.insert(txn, sender);
            }
            ended
        };
        let mut waiter = OutcomeWaiter { core: self, txn, is_waiting: at_hand.is_none() };
        let ended = match at_hand {
            Some(ended) => Some(Ok(ended)),
            None => self.wait_with_timeout(ending).await?,
        };
        waiter.is_waiting = ended.is_none();
        let held = self.lock()?.deferred.remove(&txn);
        Ok((ended, held))
    }

    /// Waits for the end of a transaction that was committed.
    pub(super) async fn wait_commit_outcome(&self, txn: TxnId) -> Result<CommitOutcome> {
        match self.wait_outcome(txn).await? {
            (Some(Ok(TxnOutcome::Committed(at))), _) => Ok(CommitOutcome::Committed(at)),
            // Nobody knows any more whether it was done before it was refused.
            (Some(Ok(TxnOutcome::Unknown)), Some(_)) => Ok(CommitOutcome::Unknown(txn)),
            (Some(Ok(_)), Some((kind, why))) if is_final(kind) => Err(Error::new(kind, why)),
            (Some(Ok(ended)), _) => Ok(commit_outcome(txn, ended)),
            (Some(Err(_)), _) => Err(self.unknown_outcome_error(txn)),
            // Most often it is found out at once, as the brick is there.
            (None, Some((kind, why))) => match time::timeout(SHORT_WAIT, self.wait_outcome(txn)).await {
                Ok(Ok((Some(Ok(TxnOutcome::Refused(Refusal::Aborted))), _))) => Err(Error::new(kind, why)),
                Ok(Ok((Some(Ok(ended)), _))) => Ok(commit_outcome(txn, ended)),
                _ => Err(outcome::deferred_error(txn, &why)),
            },
            (None, None) => match self.why_stopped() {
                Some(why) => Err(outcome::deferred_error(txn, &why)),
                None => Ok(CommitOutcome::Unknown(txn)),
            },
        }
    }

    /// Finds out how a transaction has ended.
    pub(super) async fn resolve(&self, txn: TxnId) -> Result<CommitOutcome> {
        self.work(|state, now| state.session.resolve(txn, now))?;
        match self.wait_outcome(txn).await? {
            // Whatever it was refused for when it was committed.
            (Some(Ok(ended)), _) => Ok(commit_outcome(txn, ended)),
            (Some(Err(_)), _) => Err(self.unknown_outcome_error(txn)),
            (None, Some((kind, why))) if !is_final(kind) => Err(outcome::deferred_error(txn, &why)),
            (None, _) => Ok(CommitOutcome::Unknown(txn)),
        }
    }

    // -------------------------------------------------------------------------------------------- beside the rules

    /// Asks the peer server something that it answers once, and may be asked again.
    pub(super) async fn ask(&self, request: Request) -> Result<(Response, Bytes)> {
        self.ask_with_raw(request, Vec::new()).await.map(|(_, answer)| (answer.response, answer.raw))
    }

    /// The same, with bytes, and says by which connection it was answered.
    pub(super) async fn ask_with_raw(&self, request: Request, raw: Vec<Bytes>) -> Result<(Caller, Answer)> {
        let mut last = None;
        let asking = async {
            loop {
                let caller = {
                    let state = self.lock()?;
                    state.check_access()?;
                    state.connection.as_ref().map(|up| up.caller.clone())
                };
                let error = match caller {
                    Some(caller) => match caller.call(request.clone(), raw.clone()).await {
                        Ok(answer) => return Ok((caller, answer)),
                        Err(error) => error,
                    },
                    None => Error::new(ErrorKind::Unavailable, "no peer server is connected"),
                };
                if !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown) {
                    return Err(error);
                }
                last = Some(error);
                time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        let asked = time::timeout(self.options.timeout, asking).await;
        asked.unwrap_or_else(|_| {
            let nodes = self.request_nodes(&request);
            let late = self.timeout_error(&nodes);
            // A brick that is away says nothing more.
            Err(match last.filter(|_| nodes.is_empty() || !self.has_unreachable_bricks()) {
                Some(last) => late.caused_by(last),
                None => late,
            })
        })
    }

    /// An object as the brick has it, or the cache of the peer server.
    pub(super) async fn read_object(&self, oid: Oid, cached: bool) -> Result<Option<Object>> {
        self.check_in_space(oid)?;
        let request = Request::ReadObject(proto::ReadObject { oid: Some(oid.into()), cached });
        let (Response::ObjectRead(looked), raw) = self.ask(request).await? else {
            return Err(Error::new(ErrorKind::Internal, "the peer server has answered something else"));
        };
        object_read_from_proto(oid, looked, Raw::Owned(raw))
    }
}

impl ClientState {
    fn add_waiter(&mut self, wait: WaitKey) -> oneshot::Receiver<()> {
        let (sender, come) = oneshot::channel();
        let waiting = self.waiters.entry(wait).or_default();
        waiting.retain(|sender| !sender.is_closed());
        waiting.push(sender);
        come
    }

    fn wake(&mut self, wait: WaitKey) {
        for waiting in self.waiters.remove(&wait).unwrap_or_default() {
            // Whoever waited may have gone.
            let _ = waiting.send(());
        }
    }

    fn wake_node(&mut self, node: Option<NodeId>) {
        let of_node = |wait: &WaitKey| matches!(wait, WaitKey::Page(page) if node.is_none_or(|node| page.node == node));
        let waits: Vec<WaitKey> = self.waiters.keys().copied().filter(of_node).collect();
        waits.into_iter().for_each(|wait| self.wake(wait));
    }

    fn wake_all(&mut self) {
        let waits: Vec<WaitKey> = self.waiters.keys().copied().collect();
        waits.into_iter().for_each(|wait| self.wake(wait));
    }

    fn handle_output(&mut self, output: Output<Object>) {
        match output {
            Output::Up(node, holder, message) => self.send(&Message::Up { node, epoch: 0, holder, message }),
            Output::Call(txn, call) => self.send(&Message::Call { txn, call }),
            Output::Ended(txn, ended) => {
                self.wake(WaitKey::Txn(txn));
                let ended = match self.outcome_waiters.remove(&txn) {
                    Some(ending) => ending.send(ended).err(),
                    None => Some(ended),
                };
                // Whoever waited may have gone, and come again.
                if let Some(ended) = ended {
                    self.outcomes.insert(txn, ended);
                    if self.outcomes.len() > MAX_OUTCOMES {
                        self.outcomes.pop_first();
                    }
                }
            }
            Output::Written(number) => self.finish_write(number, WriteOutcome::Durable),
            Output::Unknown(number) => {
                let refused = self.refused_write.clone();
                self.finish_write(
                    number,
                    refused.map_or(WriteOutcome::Unknown, |(kind, why)| WriteOutcome::Refused(kind, why)),
                );
            }
        }
    }

    fn finish_write(&mut self, number: u64, written: WriteOutcome) {
        if let Some(writing) = self.write_waiters.remove(&number) {
            let _ = writing.send(written);
        }
    }

    /// Nobody waits for a transaction any more.
    pub(super) fn forget(&mut self, txn: TxnId) {
        self.session.abort(txn);
        self.outcomes.remove(&txn);
        self.deferred.remove(&txn);
    }

    /// Why a transaction never commits, if that was said of it.
    pub(super) fn refusal(&self, txn: TxnId) -> Option<Error> {
        let (kind, why) = self.deferred.get(&txn).filter(|(kind, _)| is_final(*kind))?;
        Some(Error::new(*kind, why.clone()))
    }

    /// Says something to the peer server. What is lost without a connection the machine says again.
    fn send(&self, message: &Message) {
        if let Some(up) = &self.connection {
            up.handle.send(message);
        }
    }

    /// The peer server has said something.
    pub(super) fn handle_message(&mut self, message: Message, now: Ms) -> Result<()> {
        self.refused_write = match &message {
            Message::Down { message: Down::Written { write, .. }, .. } => self.deferred.remove(write),
            _ => None,
        };
        match message {
            Message::Down { node, holder, message } => {
                let news = match &message {
                    Down::Fetched { page, .. } => Some(WaitKey::Page(*page)),
                    _ => None,
                };
                let of_all = matches!(message, Down::Leased { .. } | Down::Closed);
                self.session.handle_down(node, holder, message, now);
                if let Some(WaitKey::Page(page)) = news {
                    self.handle_fetched(page);
                    self.wake(WaitKey::Page(page));
                }
                if of_all {
                    self.wake_node(Some(node));
                }
                Ok(())
            }
            Message::Deferred { txn, kind, why, .. } => {
                let is_final = is_final(kind);
                if self.outcome_waiters.contains_key(&txn) || is_final && self.deferred.len() < MAX_OUTCOMES {
                    self.deferred.insert(txn, (kind, why));
                }
                if is_final {
                    self.wake(WaitKey::Txn(txn));
                }
                Ok(())
            }
            Message::Reply { txn, reply } => {
                self.session.handle_reply(txn, reply);
                self.wake(WaitKey::Txn(txn));
                Ok(())
            }
            Message::SpaceStatus(standing) => {
                self.monitor.update(standing);
                self.wake(WaitKey::SpaceStatus);
                if self.monitor.check().is_err() {
                    self.wake_all();
                }
                Ok(())
            }
            _ => Err(Error::new(ErrorKind::Invalid, "this message is not for a client")),
        }
    }

    /// A page has come: others may have to go.
    fn handle_fetched(&mut self, page: PageId) {
        let objects = self.session.cache().valid_objects(page).map(|(_, object, _)| OVERHEAD + object.data.len());
        let bytes = OVERHEAD + objects.sum::<usize>();
        self.residents.insert(page, bytes);
        while let Some(gone) = self.residents.evict(page) {
            self.session.evict(gone);
        }
    }

    /// Whether it makes sense to wait for a peer server.
    fn check_access(&self) -> Result<()> {
        match &*self.access_refused.borrow() {
            Some(why) => Err(Error::new(ErrorKind::Denied, &**why)),
            None => Ok(()),
        }
    }

    /// Whether it makes sense to wait for something of the space.
    pub(super) fn check_serving(&self) -> Result<()> {
        self.check_access()?;
        self.monitor.check()
    }

    /// A peer server does not let the client in, and waiting does not mend that.
    pub(super) fn set_refused(&mut self, why: &Error) {
        self.access_refused.send_replace(Some(why.message().into()));
        self.monitor.on_refused(why.message());
        self.wake_all();
    }

    /// There is a connection to a peer server.
    pub(super) fn on_connected(&mut self, up: PeerConnection, now: Ms) {
        self.access_refused.send_replace(None);
        // Before all else: so it is known whether the space serves when anything of it is asked for.
        up.handle.send(&Message::Watch);
        self.monitor.on_connected(up.peer_address.clone());
        self.connection = Some(up);
        self.session.connect(None, now);
        self.wake_node(None);
    }

    /// The connection is gone.
    pub(super) fn on_disconnected(&mut self, why: &str, now: Ms) {
        self.connection = None;
        self.monitor.on_disconnected(why);
        self.session.disconnect(None, now);
        self.wake_node(None);
    }

    /// A transaction reads a page.
    pub(super) fn mark_used(&mut self, page: PageId) {
        self.residents.record_use(page);
    }
}

/// What was found, if anything was: an object of another class than that of the identifier is not the one.
pub(super) fn found_object(oid: Oid, found: Lookup<'_, Object>) -> Option<Option<Object>> {
    match found {
        Lookup::Value(object) => Some(Some(object.clone()).filter(|object| object.class == oid.class())),
        Lookup::Absent => Some(None),
        Lookup::Miss => None,
    }
}
