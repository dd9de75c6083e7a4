//! What all handles of a client share: the machine, its connection, and who waits for what.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use bytes::Bytes;
use model::{Error, ErrorKind, NodeId, Object, Oid, PageId, Result, SpaceId};
use protocol::commit::Refusal;
use protocol::ident::TxnId;
use protocol::lease::Ms;
use protocol::page_cache::{Content, Found};
use protocol::residents::Residents;
use protocol::session::{Ended, Output, Session};
use protocol::tree::Down;
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::{Notify, Semaphore, oneshot, watch};
use tokio::time;
use wire::cluster::{Message, is_final, looked_from_proto};
use wire::driving::{Alarm, Post, Time};
use wire::frame::Raw;
use wire::link::{Answer, Caller};
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;

use super::classes::KnownClasses;
use super::events::Watched;
use super::outcome::{Decided, decided};
use super::rooms::Rooms;
use super::{ClusterOptions, outcome};

/// What an object takes in memory beside its data.
const OVERHEAD: usize = 96;
/// Ends of transactions that nobody has waited for, that are kept.
const REMEMBERED: usize = 4_096;

/// Writes outside of transactions that may be on their way, in units of so many bytes.
const WRITES: u32 = 4_096;
const WRITE_UNIT: usize = 4 << 10;
/// How long what was sent is waited for once the space is stopped, or the client is not let in any more: long enough for what needs no brick that is away.
const MOMENT: Duration = Duration::from_secs(1);

/// What somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wait {
    /// News of a page.
    Page(PageId),
    /// News of a transaction.
    Txn(TxnId),
    /// News of how things are in the space.
    Standing,
}

/// What became of a write outside of transactions.
enum Written {
    Durable,
    Unknown,
    /// It was refused for good, for this reason.
    Refused(ErrorKind, String),
}

/// A connection that there is.
#[derive(Clone)]
pub(super) struct Up {
    pub(super) post: Post,
    pub(super) caller: Caller,
    /// The peer server's address.
    pub(super) peer: Arc<str>,
}

/// What is locked while the machine is at work.
pub(super) struct State {
    pub(super) session: Session<Object>,
    pub(super) up: Option<Up>,
    pub(super) watched: Watched,
    /// Why no peer server lets the client in, if the last one said so.
    refused: watch::Sender<Option<Arc<str>>>,
    waiting: HashMap<Wait, Vec<oneshot::Sender<()>>>,
    /// Who waits for the end of a transaction; those that ended unasked.
    ending: HashMap<TxnId, oneshot::Sender<Ended>>,
    pub(super) ended: BTreeMap<TxnId, Ended>,
    /// Why transactions are not done, or not answered.
    held: HashMap<TxnId, (ErrorKind, String)>,
    /// Who waits for a write outside of transactions.
    writing: HashMap<u64, oneshot::Sender<Written>>,
    /// Why what is said now of a write is said: it was refused for good.
    refused_write: Option<(ErrorKind, String)>,
    last_write: u64,
    residents: Residents,
    pub(super) closed: bool,
}

/// A client.
pub(super) struct Core {
    state: Mutex<State>,
    pub(super) rooms: Rooms,
    pub(super) classes: KnownClasses,
    pub(super) alarm: Arc<Alarm>,
    pub(super) time: Time,
    pub(super) space: SpaceId,
    /// The logical nodes of the space.
    pub(super) nodes: Vec<NodeId>,
    pub(super) options: ClusterOptions,
    /// Bounds what is written outside of transactions at a time.
    writes: Semaphore,
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
struct Waiter<'a> {
    core: &'a Core,
    txn: TxnId,
    waits: bool,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if !self.waits {
            return;
        }
        // A client that is closed asks for nothing.
        let _ = self.core.work(|state, now| {
            if state.ending.remove(&self.txn).is_some() {
                state.held.remove(&self.txn);
                state.session.resolve(self.txn, now);
            }
        });
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Invalid, "the client was closed")
}

impl Core {
    pub(super) fn new(
        session: Session<Object>,
        (space, nodes): (SpaceId, Vec<NodeId>),
        time: Time,
        options: ClusterOptions,
    ) -> Arc<Self> {
        let state = State {
            session,
            up: None,
            watched: Watched::default(),
            refused: watch::Sender::default(),
            waiting: HashMap::new(),
            ending: HashMap::new(),
            ended: BTreeMap::new(),
            held: HashMap::new(),
            writing: HashMap::new(),
            refused_write: None,
            last_write: 0,
            residents: Residents::new(options.cache_bytes),
            closed: false,
        };
        let (rooms, classes, alarm, closing) =
            (Rooms::default(), KnownClasses::default(), Arc::default(), Arc::default());
        let (state, writes) = (Mutex::new(state), Semaphore::new(WRITES as usize));
        Arc::new(Self { state, rooms, classes, alarm, time, space, nodes, options, writes, closing })
    }

    pub(super) fn lock(&self) -> Result<MutexGuard<'_, State>> {
        // A machine that has panicked may have done half of something.
        let state = self.state.lock().map_err(|_| Error::new(ErrorKind::Internal, "the client has panicked"))?;
        if state.closed { Err(closed()) } else { Ok(state) }
    }

    /// Gives the machine something, and does what it wants.
    pub(super) fn work<T>(&self, act: impl FnOnce(&mut State, Ms) -> T) -> Result<T> {
        let mut state = self.lock()?;
        let done = act(&mut state, self.time.now());
        self.drain(&mut state);
        Ok(done)
    }

    pub(super) fn drain(&self, state: &mut State) {
        loop {
            let outputs: Vec<Output<Object>> = state.session.outputs().collect();
            if outputs.is_empty() {
                break;
            }
            for output in outputs {
                state.output(output);
            }
        }
        if let Some(deadline) = state.session.deadline() {
            self.alarm.set(deadline);
        }
    }

    /// Does what it is time for, until the client is closed or nobody has it any more.
    pub(super) async fn look_after(core: Weak<Self>) {
        let Some((alarm, closing, time)) = core.upgrade().map(|it| (it.alarm.clone(), it.closing.clone(), it.time))
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
            state.session.leave();
            self.drain(&mut state);
            state.closed = true;
            state.waiting.clear();
            state.ending.clear();
            state.writing.clear();
            state.watched.close();
            if let Some(up) = state.up.take() {
                up.post.hang_up();
            }
        }
        self.closing.notify_one();
    }

    // -------------------------------------------------------------------------------------------- waiting

    /// Looks until there is something to see of these logical nodes, for as long as the client's patience lasts.
    pub(super) async fn until<T>(
        &self,
        wait: Wait,
        nodes: &[NodeId],
        look: impl FnMut(&mut State, Ms) -> Result<Option<T>>,
    ) -> Result<T> {
        self.until_or(wait, || self.late(nodes), look).await
    }

    /// The same, and says what the error is when it does not come.
    pub(super) async fn until_or<T>(
        &self,
        wait: Wait,
        late: impl FnOnce() -> Error,
        mut look: impl FnMut(&mut State, Ms) -> Result<Option<T>>,
    ) -> Result<T> {
        // What is at hand takes no timer, and leaves nothing to be said.
        {
            let mut state = self.lock()?;
            state.watched.check()?;
            if let Some(found) = look(&mut state, self.time.now())? {
                return Ok(found);
            }
            self.drain(&mut state);
        }
        let looking = async {
            loop {
                let looked = self.work(|state, now| match state.may_work().and_then(|()| look(state, now)) {
                    Ok(None) => Err(state.wait(wait)),
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
    pub(super) fn is_partial(&self) -> bool {
        self.lock().is_ok_and(|state| state.watched.is_partial())
    }

    /// Waits until the bricks of these logical nodes can be reached, as far as the peer server has told.
    pub(super) async fn reachable(&self, nodes: impl FnOnce() -> Result<Vec<NodeId>>) -> Result<()> {
        while self.lock()?.watched.wants_to_be_told() {
            self.ask(Request::Ping(proto::Ping {})).await?;
        }
        // Nearly always all can be.
        if !self.is_partial() {
            return Ok(());
        }
        let nodes = &nodes()?;
        self.until(Wait::Standing, nodes, |state, _| {
            let away = state.watched.away();
            Ok((!nodes.iter().any(|node| away.contains(node))).then_some(()))
        })
        .await
    }

    /// Whether an identifier can be of an object of this space.
    pub(super) fn is_here(&self, oid: Oid) -> Result<()> {
        if oid.is_temporary() || oid.space() != self.space || !self.nodes.contains(&oid.page().node) {
            let what = format!("{oid} is no object of the client's space, which is number {}", self.space.0);
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        Ok(())
    }

    /// An object outside of transactions.
    pub(super) async fn get(&self, oid: Oid) -> Result<Option<Object>> {
        self.is_here(oid)?;
        self.until(Wait::Page(oid.page()), &[oid.page().node], |state, now| {
            state.residents.used(oid.page());
            match found(oid, state.session.peek(oid, now)) {
                None => Ok(found(oid, state.session.get(oid, now))),
                found => Ok(found),
            }
        })
        .await
    }

    /// Writes an object outside of transactions, and waits until it is durable.
    pub(super) async fn put(&self, oid: Oid, content: Content<Object>) -> Result<()> {
        self.is_here(oid)?;
        let len = if let Content::Value(object) = &content { object.data.len() } else { 0 };
        // Writes that wait together go together: so much of them fits.
        let units = u32::try_from(1 + len / WRITE_UNIT).unwrap_or(u32::MAX).min(WRITES);
        let _room = self.writes.acquire_many(units).await.map_err(|_| closed())?;
        let (sender, written) = oneshot::channel();
        self.work(|state, now| {
            state.may_work()?;
            state.last_write += 1;
            let number = state.last_write;
            state.writing.insert(number, sender);
            state.session.put(oid, content, number, now);
            Ok::<_, Error>(())
        })??;
        let unknown = |why: &str| {
            let what = format!("it is not known whether {oid} was written: read it{why}");
            Err(Error::new(ErrorKind::Unknown, what))
        };
        match self.patiently(written).await? {
            Some(Ok(Written::Durable)) => Ok(()),
            Some(Ok(Written::Refused(kind, why))) => Err(Error::new(kind, why)),
            Some(Err(_)) => Err(closed()),
            Some(Ok(Written::Unknown)) => unknown(""),
            None => {
                let why = self.why_stopped().unwrap_or_else(|| self.late(&[oid.page().node]).message().into());
                unknown(&format!("; {why}"))
            }
        }
    }

    /// Waits for the end of something that was sent, as long as the client's patience lasts; in a space that is stopped, or when
    /// the client is not let in any more, for a moment only.
    async fn patiently<T>(&self, coming: oneshot::Receiver<T>) -> Result<Option<Result<T, RecvError>>> {
        let (mut stopped, mut refused) = {
            let state = self.lock()?;
            (state.watched.stopped(), state.refused.subscribe())
        };
        let stop = async {
            // They are there as long as the client is.
            tokio::select! {
                _ = stopped.wait_for(Option::is_some) => {}
                _ = refused.wait_for(Option::is_some) => {}
            }
            time::sleep(MOMENT).await;
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
        let refused = state.refused.borrow().clone();
        refused.or_else(|| state.watched.stopped().borrow().clone())
    }

    /// Waits for the end of a transaction, if it comes in time; with why it is not done, if that was said.
    async fn end(&self, txn: TxnId) -> Result<(Option<Result<Ended, RecvError>>, Option<(ErrorKind, String)>)> {
        let (sender, ending) = oneshot::channel();
        let at_hand = {
            let mut state = self.lock()?;
            let ended = state.ended.remove(&txn);
            if ended.is_none() {
                state.ending.insert(txn, sender);
            }
            ended
        };
        let mut waiter = Waiter { core: self, txn, waits: at_hand.is_none() };
        let ended = match at_hand {
            Some(ended) => Some(Ok(ended)),
            None => self.patiently(ending).await?,
        };
        waiter.waits = ended.is_none();
        let held = self.lock()?.held.remove(&txn);
        Ok((ended, held))
    }

    /// Waits for the end of a transaction that was committed.
    pub(super) async fn ended(&self, txn: TxnId) -> Result<Decided> {
        match self.end(txn).await? {
            (Some(Ok(Ended::Committed(at))), _) => Ok(Decided::Committed(at)),
            // Nobody knows any more whether it was done before it was refused.
            (Some(Ok(Ended::Unknown)), Some(_)) => Ok(Decided::Unknown(txn)),
            (Some(Ok(_)), Some((kind, why))) if is_final(kind) => Err(Error::new(kind, why)),
            (Some(Ok(ended)), _) => Ok(decided(txn, ended)),
            (Some(Err(_)), _) => Err(self.unknown(txn)),
            // Most often it is found out at once, as the brick is there.
            (None, Some((kind, why))) => match time::timeout(MOMENT, self.end(txn)).await {
                Ok(Ok((Some(Ok(Ended::Refused(Refusal::Aborted))), _))) => Err(Error::new(kind, why)),
                Ok(Ok((Some(Ok(ended)), _))) => Ok(decided(txn, ended)),
                _ => Err(outcome::held(txn, &why)),
            },
            (None, None) => match self.why_stopped() {
                Some(why) => Err(outcome::held(txn, &why)),
                None => Ok(Decided::Unknown(txn)),
            },
        }
    }

    /// Finds out how a transaction has ended.
    pub(super) async fn resolve(&self, txn: TxnId) -> Result<Decided> {
        self.work(|state, now| state.session.resolve(txn, now))?;
        match self.end(txn).await? {
            // Whatever it was refused for when it was committed.
            (Some(Ok(ended)), _) => Ok(decided(txn, ended)),
            (Some(Err(_)), _) => Err(self.unknown(txn)),
            (None, Some((kind, why))) if !is_final(kind) => Err(outcome::held(txn, &why)),
            (None, _) => Ok(Decided::Unknown(txn)),
        }
    }

    // -------------------------------------------------------------------------------------------- beside the rules

    /// Asks the peer server something that it answers once, and may be asked again.
    pub(super) async fn ask(&self, request: Request) -> Result<(Response, Bytes)> {
        self.ask_one(request, Vec::new()).await.map(|(_, answer)| (answer.response, answer.raw))
    }

    /// The same, with bytes, and says by which connection it was answered.
    pub(super) async fn ask_one(&self, request: Request, raw: Vec<Bytes>) -> Result<(Caller, Answer)> {
        let mut last = None;
        let asking = async {
            loop {
                let caller = {
                    let state = self.lock()?;
                    state.may_connect()?;
                    state.up.as_ref().map(|up| up.caller.clone())
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
            let nodes = self.nodes_of(&request);
            let late = self.late(&nodes);
            // A brick that is away says nothing more.
            Err(match last.filter(|_| nodes.is_empty() || !self.is_partial()) {
                Some(last) => late.caused_by(last),
                None => late,
            })
        })
    }

    /// An object as the brick has it, or the cache of the peer server.
    pub(super) async fn look(&self, oid: Oid, cached: bool) -> Result<Option<Object>> {
        self.is_here(oid)?;
        let request = Request::Look(proto::Look { oid: Some(oid.into()), cached });
        let (Response::Looked(looked), raw) = self.ask(request).await? else {
            return Err(Error::new(ErrorKind::Internal, "the peer server has answered something else"));
        };
        looked_from_proto(oid, looked, Raw::Owned(raw))
    }
}

impl State {
    fn wait(&mut self, wait: Wait) -> oneshot::Receiver<()> {
        let (sender, come) = oneshot::channel();
        let waiting = self.waiting.entry(wait).or_default();
        waiting.retain(|sender| !sender.is_closed());
        waiting.push(sender);
        come
    }

    fn wake(&mut self, wait: Wait) {
        for waiting in self.waiting.remove(&wait).unwrap_or_default() {
            // Whoever waited may have gone.
            let _ = waiting.send(());
        }
    }

    fn wake_node(&mut self, node: Option<NodeId>) {
        let of_node = |wait: &Wait| matches!(wait, Wait::Page(page) if node.is_none_or(|node| page.node == node));
        let waits: Vec<Wait> = self.waiting.keys().copied().filter(of_node).collect();
        waits.into_iter().for_each(|wait| self.wake(wait));
    }

    fn wake_all(&mut self) {
        let waits: Vec<Wait> = self.waiting.keys().copied().collect();
        waits.into_iter().for_each(|wait| self.wake(wait));
    }

    fn output(&mut self, output: Output<Object>) {
        match output {
            Output::Up(node, holder, message) => self.send(&Message::Up { node, epoch: 0, holder, message }),
            Output::Call(txn, call) => self.send(&Message::Call { txn, call }),
            Output::Ended(txn, ended) => {
                self.wake(Wait::Txn(txn));
                let ended = match self.ending.remove(&txn) {
                    Some(ending) => ending.send(ended).err(),
                    None => Some(ended),
                };
                // Whoever waited may have gone, and come again.
                if let Some(ended) = ended {
                    self.ended.insert(txn, ended);
                    if self.ended.len() > REMEMBERED {
                        self.ended.pop_first();
                    }
                }
            }
            Output::Written(number) => self.written(number, Written::Durable),
            Output::Unknown(number) => {
                let refused = self.refused_write.clone();
                self.written(number, refused.map_or(Written::Unknown, |(kind, why)| Written::Refused(kind, why)));
            }
        }
    }

    fn written(&mut self, number: u64, written: Written) {
        if let Some(writing) = self.writing.remove(&number) {
            let _ = writing.send(written);
        }
    }

    /// Nobody waits for a transaction any more.
    pub(super) fn forget(&mut self, txn: TxnId) {
        self.session.abort(txn);
        self.ended.remove(&txn);
        self.held.remove(&txn);
    }

    /// Why a transaction never commits, if that was said of it.
    pub(super) fn refusal(&self, txn: TxnId) -> Option<Error> {
        let (kind, why) = self.held.get(&txn).filter(|(kind, _)| is_final(*kind))?;
        Some(Error::new(*kind, why.clone()))
    }

    /// Says something to the peer server. What is lost without a connection the machine says again.
    fn send(&self, message: &Message) {
        if let Some(up) = &self.up {
            up.post.send(message);
        }
    }

    /// The peer server has said something.
    pub(super) fn message(&mut self, message: Message, now: Ms) -> Result<()> {
        self.refused_write = match &message {
            Message::Down { message: Down::Written { write, .. }, .. } => self.held.remove(write),
            _ => None,
        };
        match message {
            Message::Down { node, holder, message } => {
                let news = match &message {
                    Down::Fetched { page, .. } => Some(Wait::Page(*page)),
                    _ => None,
                };
                let of_all = matches!(message, Down::Leased { .. } | Down::Closed);
                self.session.handle_down(node, holder, message, now);
                if let Some(Wait::Page(page)) = news {
                    self.came(page);
                    self.wake(Wait::Page(page));
                }
                if of_all {
                    self.wake_node(Some(node));
                }
                Ok(())
            }
            Message::Held { txn, kind, why, .. } => {
                let is_final = is_final(kind);
                if self.ending.contains_key(&txn) || is_final && self.held.len() < REMEMBERED {
                    self.held.insert(txn, (kind, why));
                }
                if is_final {
                    self.wake(Wait::Txn(txn));
                }
                Ok(())
            }
            Message::Reply { txn, reply } => {
                self.session.reply(txn, reply);
                self.wake(Wait::Txn(txn));
                Ok(())
            }
            Message::Standing(standing) => {
                self.watched.told(standing);
                self.wake(Wait::Standing);
                if self.watched.check().is_err() {
                    self.wake_all();
                }
                Ok(())
            }
            _ => Err(Error::new(ErrorKind::Invalid, "this message is not for a client")),
        }
    }

    /// A page has come: others may have to go.
    fn came(&mut self, page: PageId) {
        let objects = self.session.cache().valid(page).map(|(_, object, _)| OVERHEAD + object.data.len());
        let bytes = OVERHEAD + objects.sum::<usize>();
        self.residents.came(page, bytes);
        while let Some(gone) = self.residents.evict(page) {
            self.session.evict(gone);
        }
    }

    /// Whether it makes sense to wait for a peer server.
    fn may_connect(&self) -> Result<()> {
        match &*self.refused.borrow() {
            Some(why) => Err(Error::new(ErrorKind::Denied, &**why)),
            None => Ok(()),
        }
    }

    /// Whether it makes sense to wait for something of the space.
    pub(super) fn may_work(&self) -> Result<()> {
        self.may_connect()?;
        self.watched.check()
    }

    /// A peer server does not let the client in, and waiting does not mend that.
    pub(super) fn set_refused(&mut self, why: &Error) {
        self.refused.send_replace(Some(why.message().into()));
        self.watched.refused(why.message());
        self.wake_all();
    }

    /// There is a connection to a peer server.
    pub(super) fn connected(&mut self, up: Up, now: Ms) {
        self.refused.send_replace(None);
        // Before all else: so it is known whether the space serves when anything of it is asked for.
        up.post.send(&Message::Watch);
        self.watched.connected(up.peer.clone());
        self.up = Some(up);
        self.session.connect(None, now);
        self.wake_node(None);
    }

    /// The connection is gone.
    pub(super) fn disconnected(&mut self, why: &str, now: Ms) {
        self.up = None;
        self.watched.disconnected(why);
        self.session.disconnect(None, now);
        self.wake_node(None);
    }

    /// A transaction reads a page.
    pub(super) fn used(&mut self, page: PageId) {
        self.residents.used(page);
    }
}

/// What was found, if anything was: an object of another class than that of the identifier is not the one.
pub(super) fn found(oid: Oid, found: Found<'_, Object>) -> Option<Option<Object>> {
    match found {
        Found::Value(object) => Some(Some(object.clone()).filter(|object| object.class == oid.class())),
        Found::Absent => Some(None),
        Found::Miss => None,
    }
}
