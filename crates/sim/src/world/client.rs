//! Clients: the shipped [`ClientDriver`], the operations that it runs one after the other, and what they see.

mod contents;
mod members;
mod names;
mod replacements;
mod sets;
mod steps;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use client::driver::{CallId, CallResult, ClientCall, ClientDriver, KnownClasses, Output};
use client::{CommitOutcome, IsolationLevel};
use model::{ContentId, Entry, Error, ErrorKind, NodeId, Object, Oid, PageId};
use protocol::clock::ClusterTime;
use protocol::gateway::{self, Gateway};
use protocol::ident::{ClientId, HolderId, TxnId};
use protocol::locks::LockMode;
use protocol::page_cache::{FetchReply, ObjectState};
use protocol::session::{FetchLimits, Level, Session};
use protocol::tree::{Down, Up};
use wire::cluster::{Message, SpaceStatus};
use wire::proto;
use wire::proto::request::Request;

use super::event::Event;
use super::net::{Datagram, Pid};
use super::process::ProcessMachine;
use super::rejections::Rejection;
use super::users::Asked;
use super::{GATEWAY_LIMIT_BYTES, SKEW_MS, World};
use crate::object::Content;
use crate::plan::{Key, Operation, Step};
use check::history::{self, Kind, Outcome};
use sets::{ClientQuery, RESCAN_MS};
use steps::{Reader, StepProgress, take};

/// How long a transaction may run before its client gives it up, in milliseconds.
const RUN_MS: u64 = 20_000;
/// How long a client waits for an outcome before it wants to know at last, in milliseconds.
const COMMIT_MS: u64 = 6_000;
/// Tries before a transaction that is to be tried again takes locks.
const OPTIMISTIC_TRIES: usize = 3;
/// Tries in all.
const TRIES: usize = 12;
/// How long is waited before another try, at most, in milliseconds.
const JITTER_MS: u64 = 40;
/// How long the outcome of a transaction is known at least to a client that has not heard it.
pub(super) const KEPT_MS: u64 = 100_000;
/// The time limit of the driver's calls: longer than a run. The client gives up by itself, as its user.
const TIMEOUT: Duration = Duration::from_secs(86_400);
/// One of so many clients has so few fetches under way that some wait.
const FEW_FETCHES_PERIOD: u64 = 4;
const FEW_FETCHES: FetchLimits = FetchLimits { node: 2, total: 2, least: 1 };
/// Bytes of copies that a client keeps: all. Scenarios evict pages by themselves.
const CACHE_BYTES: usize = 1 << 30;

/// Where an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OperationStage {
    Running,
    Thinking(u64),
    Pausing,
    Committing,
    Resolving,
}

/// What a client is doing.
struct Current {
    operation: Operation,
    steps: Vec<Step>,
    /// The next step.
    at: usize,
    txn: Option<TxnId>,
    isolation: IsolationLevel,
    /// Calls of the driver that have to finish before it goes on.
    calls: BTreeSet<CallId>,
    stage: OperationStage,
    /// When it began, or began to commit, by the run's time.
    since: u64,
    tries: usize,
    first: Option<TxnId>,
    record: history::Operation,
    /// The objects of classes that it has written, for its queries.
    own_writes: BTreeMap<Oid, Option<Object>>,
    /// The entries of directories that it has bound.
    own_entries: BTreeMap<Entry, i64>,
    query: Option<ClientQuery>,
    /// The guards that the next query reads, which are locked before it.
    guards: Option<Vec<(Oid, LockMode)>>,
    /// Contents that it has read, by their states.
    contents: BTreeMap<(ContentId, u64), Bytes>,
    /// The elements that it appends to lists which it does not read.
    blind_appends: Vec<(Key, i64)>,
    /// The version of the class of the sets of each page that its program knows.
    programs: BTreeMap<u64, usize>,
    /// Whether a query has found an object in two states, so that it cannot commit.
    must_conflict: bool,
    /// The place of a removed member that it takes.
    reused: Option<Oid>,
    /// Whether the client knew all the time that the space was stopped.
    is_stopped: bool,
}

/// A client's process.
pub(super) struct ClientProcess {
    member: u64,
    pub(super) driver: ClientDriver<Object>,
    /// Its own gateway, if it is directly below bricks.
    gateway: Option<Gateway<Pid, Object>>,
    pub(super) queue: VecDeque<Operation>,
    current: Option<Current>,
    /// Lists that are blobs: an element can be appended to them without a read.
    known_lists: BTreeSet<Key>,
    /// The classes that it knows, and until when it waits for those that it has asked for.
    pub(super) classes: KnownClasses,
    classes_asked_until: u64,
    /// It acknowledges nothing.
    pub(super) muted: bool,
    /// Until when it was refused, or knew that the space was stopped: what it began before that it gives up soon.
    pub(super) refused_until: Option<u64>,
}

impl ClientProcess {
    pub(super) fn new(member: u64, first_holder: HolderId, is_direct: bool, snapshots: bool) -> Self {
        // Small batches, so that participants forget soon.
        let batch = 1 + (member % 3) as u32;
        let mut session = Session::new(ClientId(member), first_holder, SKEW_MS).with_heard_batch(batch);
        if snapshots {
            session.subscribe();
        }
        if member.is_multiple_of(FEW_FETCHES_PERIOD) {
            session = session.with_fetch_limits(FEW_FETCHES);
        }
        if member.is_multiple_of(2) {
            session = session.fetching_written();
        }
        let gateway = is_direct.then(|| Gateway::new(SKEW_MS).with_limit(GATEWAY_LIMIT_BYTES));
        let driver = ClientDriver::new(session, TIMEOUT, CACHE_BYTES);
        let known_lists = BTreeSet::new();
        Self {
            member,
            driver,
            gateway,
            queue: VecDeque::new(),
            current: None,
            known_lists,
            classes: KnownClasses::default(),
            classes_asked_until: 0,
            muted: false,
            refused_until: None,
        }
    }

    /// Its connection upstream is there, or is lost: that of a logical node, or that to a peer server or a redirector. A query under way
    /// ends with it.
    pub(super) fn handle_uplink(&mut self, node: Option<NodeId>, is_up: bool, now: u64) {
        if let Some(current) = self.current.as_mut().filter(|_| !is_up) {
            current.query.take_if(|query| matches!(query, ClientQuery::Asked { .. }));
        }
        match (node, is_up) {
            (None, true) => self.driver.handle_connected("a peer server".into(), now),
            (None, false) => self.driver.handle_disconnected("the connection is lost", now),
            (node, true) => self.driver.link_up(node, now),
            (node, false) => self.driver.link_down(node, now),
        }
    }

    /// Whether it knows that the space is stopped.
    pub(super) fn knows_stopped(&self) -> bool {
        self.driver.status().is_some_and(SpaceStatus::is_stopped)
    }

    /// It is told the status of the space.
    pub(super) fn handle_status(&mut self, status: SpaceStatus, shown: u64, now: u64) {
        let is_stopped = status.is_stopped();
        if self.knows_stopped() && !is_stopped {
            self.refused_until = Some(now);
        }
        self.driver.handle_status(status, shown);
        if let Some(current) = &mut self.current {
            current.is_stopped &= is_stopped;
        }
    }

    pub(super) fn poll(&mut self, now: u64) {
        self.driver.poll(now);
        if let Some(gateway) = &mut self.gateway {
            gateway.poll(now);
        }
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        let gateway = self.gateway.as_ref().and_then(Gateway::deadline);
        self.driver.deadline().into_iter().chain(gateway).min()
    }

    /// Whether it has nothing to do. What a client has not settled that no peer server admits stays so.
    pub(super) fn is_idle(&self) -> bool {
        let is_settled = self.driver.session().is_settled() || self.driver.check_serving().is_err();
        self.current.is_none() && self.queue.is_empty() && is_settled
    }

    /// What it does, if it does something.
    pub(super) fn current_record(&self) -> Option<&history::Operation> {
        self.current.as_ref().map(|current| &current.record)
    }

    /// The number of its operation, and its transaction, if it has one.
    pub(super) fn current_txn(&self) -> Option<(u64, TxnId)> {
        let current = self.current.as_ref()?;
        Some((current.record.number, current.txn?))
    }

    /// The elements that it appends to lists without reading them.
    pub(super) fn blind_appends(&self) -> &[(Key, i64)] {
        self.current.as_ref().map_or(&[], |current| &current.blind_appends)
    }

    /// What it was doing when it died.
    pub(super) fn take_unfinished(&mut self) -> Option<history::Operation> {
        self.current.take().map(|current| current.record)
    }

    /// It goes on from where it paused.
    pub(super) fn resume(&mut self) {
        if let Some(current) = self.current.as_mut().filter(|current| current.stage == OperationStage::Pausing) {
            current.stage = OperationStage::Running;
        }
    }
}

impl World {
    /// The node above a client says something.
    pub(super) fn handle_client_down(&mut self, pid: Pid, node: NodeId, session: HolderId, message: Down<Object>) {
        let page = match &message {
            Down::Fetched { page, .. } => Some(*page),
            Down::Invalidate { message, .. } => Some(message.page),
            _ => None,
        };
        if let Down::Fetched { page, reply: FetchReply::Page(image), .. } = &message {
            self.keep_image(pid, *page, image);
        }
        let now = self.local_time(pid);
        let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine else { return };
        client.driver.handle_down(node, session, message, now);
        let invariants = client.driver.session().check_invariants();
        self.oracle.expect_invariants(invariants);
        if let Some(page) = page {
            self.check_copy(pid, page);
        }
    }

    fn check_copy(&mut self, pid: Pid, page: PageId) {
        let now = self.local_time(pid);
        if let Some(ProcessMachine::Client(client)) = &self.processes[pid].machine
            && client.driver.session().may_use(page.node, now)
        {
            let name = self.processes[pid].place;
            self.oracle.check_copy(name, page, client.driver.session().cache());
        }
    }

    pub(super) fn handle_client_message(&mut self, pid: Pid, message: &Message) {
        let (now, run_time) = (self.local_time(pid), self.now);
        let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine else { return };
        match message {
            Message::Reply { txn, reply } => client.driver.handle_reply(*txn, reply.clone(), now),
            Message::Deferred { txn, kind, why, .. } => {
                client.driver.handle_deferred(*txn, *kind, why.clone(), now);
                self.check_deferral(pid, *txn, *kind);
            }
            Message::SpaceStatus(status) => client.handle_status(status.clone(), now, run_time),
            Message::Time(time_ms) => client.driver.set_time(ClusterTime::from_message(*time_ms, now)),
            Message::Answer { node, answer, locked, seen } => {
                let Some(gateway) = &mut client.gateway else { return };
                let learned = gateway.learn(*seen, now);
                gateway.handle_answer(*node, answer.clone(), locked.clone(), now);
                self.oracle.expect_accepted(learned);
            }
            _ => {}
        }
    }

    /// Does what a client wants, and lets it go on.
    pub(super) fn drain_client(&mut self, pid: Pid) {
        loop {
            self.resume_step(pid);
            let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine else { return };
            let outputs = client.driver.outputs();
            let asked: Vec<gateway::Output<Pid, Object>> = match &mut client.gateway {
                Some(gateway) => gateway.outputs().collect(),
                None => Vec::new(),
            };
            if outputs.is_empty() && asked.is_empty() {
                return;
            }
            outputs.into_iter().for_each(|output| self.client_output(pid, output));
            asked.into_iter().for_each(|output| self.client_gateway(pid, output));
        }
    }

    fn client_output(&mut self, pid: Pid, output: Output<Object>) {
        let now = self.local_time(pid);
        let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine else { return };
        match output {
            Output::Up(_, _, Up::Acknowledge { .. }) if client.muted => {}
            Output::Up(node, session, message) => self.send_client_up(pid, node, session, message),
            Output::Call(txn, call) | Output::Repeat(txn, call) => match &mut client.gateway {
                Some(gateway) => {
                    let called = gateway.handle_call(pid, txn, call, now);
                    self.oracle.expect_accepted(called);
                }
                None => {
                    let link = self.processes[pid].uplinks.first().and_then(|uplink| uplink.link);
                    if let Some(link) = link {
                        let upper = self.net.links[link].upper;
                        self.send_datagram(pid, upper, Datagram::Cluster(Message::Call { txn, call }));
                    }
                }
            },
            Output::Finished(call, result) => self.finish_call(pid, call, result),
            // Clients of the simulator send no requests, and report no events.
            Output::Watch => self.begin_watch(pid),
            Output::Request(_) | Output::Event(_) => {}
        }
    }

    /// A call of a client's driver has finished.
    fn finish_call(&mut self, pid: Pid, call: CallId, result: Result<CallResult<Object>, Error>) {
        let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine else { return };
        let Some(current) = client.current.as_mut().filter(|current| current.calls.contains(&call)) else { return };
        current.calls.remove(&call);
        match result {
            Ok(CallResult::Object(object)) => {
                if let Operation::Get(key) = current.operation {
                    self.finish_get(pid, key, object);
                }
            }
            Ok(CallResult::Written) => self.finish(pid, Outcome::Ok, None),
            Ok(CallResult::Outcome(CommitOutcome::Committed(receipt))) => self.finish_committed(pid, &receipt),
            Ok(CallResult::Outcome(CommitOutcome::Unknown(txn))) => {
                // A client that is refused, or in a stopped space, waits for an outcome for a moment only.
                let is_awaited = client.refused_until.is_none_or(|at| at < current.record.invoked)
                    && client.driver.check_serving().is_ok();
                let age = self.local_time(pid).saturating_sub(txn.start.ms());
                if age < KEPT_MS && is_awaited {
                    self.oracle.report(format!("C3: the outcome of {txn:?} is lost after {age} ms"));
                }
                self.finish_unknown(pid);
            }
            Ok(CallResult::Outcome(CommitOutcome::Conflict(_))) => {
                self.check_rejection(pid, Rejection::Conflict);
                self.finish(pid, Outcome::Failed, None);
            }
            Err(error) if error.kind() == ErrorKind::Unknown => self.finish_unknown(pid),
            Err(error) => self.give_up(pid, error.kind()),
            Ok(CallResult::Reachable) => {}
        }
    }

    fn finish_unknown(&mut self, pid: Pid) {
        self.check_rejection(pid, Rejection::Unavailable);
        self.finish(pid, Outcome::Unknown, None);
    }

    /// A client ends what it does, which was rejected with an error of this kind.
    pub(super) fn give_up(&mut self, pid: Pid, kind: ErrorKind) {
        self.check_rejection(pid, Rejection::of(kind));
        match kind {
            // It is not tried again.
            ErrorKind::Denied => {
                self.count.denied += 1;
                if let Some(current) = self.current_mut(pid) {
                    current.tries = TRIES;
                }
            }
            ErrorKind::Stopped => self.count.stopped += 1,
            ErrorKind::Corrupt => self.count.stopped_by_damage += 1,
            _ => {}
        }
        self.end_transaction(pid);
    }

    /// A client ends its transaction without a commit.
    fn end_transaction(&mut self, pid: Pid) {
        let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine else { return };
        if let Some(txn) = client.current.as_ref().and_then(|current| current.txn) {
            client.driver.abort(txn);
        }
        self.finish(pid, Outcome::Failed, None);
    }

    fn client_gateway(&mut self, pid: Pid, output: gateway::Output<Pid, Object>) {
        let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine else { return };
        match output {
            gateway::Output::Ask(node, request) => {
                let seen = client.gateway.as_ref().map(Gateway::clock).unwrap_or_default();
                self.send_ask(pid, node, request, seen);
            }
            gateway::Output::Reply(_, txn, reply) => {
                let now = self.local_time(pid);
                let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine else { return };
                client.driver.handle_reply(txn, reply, now);
            }
            gateway::Output::MixedOutcome(txn, mixed) => {
                self.oracle.report(format!("C1: {txn:?} has a mixed outcome: {mixed:?}"));
            }
            // It was as good as lost.
            gateway::Output::Busy(_, txn, limit) => self.turn_away(pid, txn, limit.node()),
        }
    }

    // ------------------------------------------------------------------------------------------ operations

    /// A client may have something to do: it is time to go on, or to give up.
    pub(super) fn resume(&mut self, pid: Pid) {
        let (now, shown) = (self.now, self.local_time(pid));
        let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine else { return };
        if let Some(current) = &mut client.current {
            match (current.stage, current.txn) {
                (OperationStage::Thinking(until), _) if until <= now => current.stage = OperationStage::Running,
                (OperationStage::Running, Some(_)) if current.since + RUN_MS <= now => {
                    self.check_rejection(pid, Rejection::Late);
                    self.end_transaction(pid);
                }
                (OperationStage::Running, None) if current.since + RUN_MS <= now && !self.healing => {
                    // Nothing was done: a read outside of transactions that found nothing.
                    if matches!(current.operation, Operation::Get(_)) {
                        self.check_rejection(pid, Rejection::Late);
                        self.finish(pid, Outcome::Failed, None);
                    }
                }
                (OperationStage::Committing, Some(txn)) if current.since + COMMIT_MS <= now => {
                    current.stage = OperationStage::Resolving;
                    for call in std::mem::take(&mut current.calls) {
                        client.driver.cancel(call, shown);
                    }
                    current.calls.insert(client.driver.start(ClientCall::Resolve(txn), shown));
                }
                _ => {}
            }
        }
        self.drain_process(pid);
    }

    /// Takes the steps that can be taken now.
    fn resume_step(&mut self, pid: Pid) {
        while self.take_step(pid) {}
    }

    /// What the next step of a client that has a user asks the peer server for, beside reads of pages.
    fn next_request(&self, pid: Pid) -> Option<Request> {
        self.user_of(pid)?;
        let Some(ProcessMachine::Client(client)) = &self.processes[pid].machine else { return None };
        let current = client.current.as_ref()?;
        let is_next = current.stage == OperationStage::Running && current.calls.is_empty() && current.txn.is_some();
        current.steps.get(current.at).filter(|_| is_next).and_then(request_of)
    }

    /// Takes one step of a client. Says whether there may be another.
    fn take_step(&mut self, pid: Pid) -> bool {
        if let Some(request) = self.next_request(pid) {
            match self.may_request(pid, request, RESCAN_MS) {
                Asked::Allowed => {}
                Asked::Denied => return true,
                Asked::Unconnected => return false,
            }
        }
        let (now, shown, is_driven) = (self.now, self.local_time(pid), self.is_driven());
        let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine else { return false };
        let Some(current) = &mut client.current else {
            let Some(operation) = client.queue.pop_front() else { return false };
            self.begin(pid, operation, 0, None);
            return true;
        };
        if current.stage != OperationStage::Running || !current.calls.is_empty() {
            return false;
        }
        match (&current.operation, current.txn) {
            (Operation::Get(key), _) => {
                let Ok(Some(state)) = client.driver.get(key.oid(), shown) else {
                    current.calls.insert(client.driver.start(ClientCall::Get(key.oid()), shown));
                    return false;
                };
                let key = *key;
                self.finish_get(pid, key, state);
                true
            }
            (Operation::Put(_), _) => false,
            (_, None) => false,
            (_, Some(txn)) => {
                let Some(step) = current.steps.get(current.at).copied() else {
                    (current.stage, current.since) = (OperationStage::Committing, now);
                    current.calls.insert(client.driver.start(ClientCall::Commit(txn, Vec::new()), shown));
                    let life = self.processes[pid].incarnation;
                    self.push_timer(now + COMMIT_MS, pid, life);
                    return true;
                };
                match step {
                    Step::Count(guard) if is_driven => return self.scan_members(pid, txn, guard, None),
                    Step::Sift(guard) if is_driven => return self.sift_members(pid, txn, guard),
                    Step::Note(guard) if is_driven => return self.note_member(pid, txn, guard),
                    Step::Renew(guard) if is_driven => return self.renew_member(pid, txn, guard),
                    Step::Replace(guard) if is_driven => return self.replace_member(pid, txn, guard),
                    Step::Reuse(guard) if is_driven => return self.reuse_place(pid, txn, guard),
                    Step::Claim(guard, value) if is_driven => return self.claim_value(pid, txn, guard, value),
                    Step::List(directory) if is_driven => return self.take_entry_step(pid, txn, directory, None),
                    Step::Bind(directory, name) if is_driven => {
                        return self.take_entry_step(pid, txn, directory, Some(name));
                    }
                    _ => {}
                }
                if let Step::Count(guard) = step {
                    return self.count_members(pid, txn, guard);
                }
                let member = match step {
                    Step::Insert(guard) if is_driven => {
                        let Some(member) = self.new_member(pid, guard) else { return false };
                        Some(member)
                    }
                    _ => None,
                };
                let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine else { return false };
                let Some(current) = &mut client.current else { return false };
                let isolation = current.isolation;
                let (calls, own_writes) = (&mut current.calls, &mut current.own_writes);
                let driver = &mut client.driver;
                // A transaction does not read what it has changed in part.
                let is_patching = is_driven
                    && current.record.number % 2 == 0
                    && current.steps.iter().filter(|other| other.uses_list_of(&step)).count() == 1;
                // Nor does a transaction with locks change what it has not locked.
                let is_blind = is_patching && current.record.number % 4 == 0 && isolation == IsolationLevel::Optimistic;
                let writes_unread = current.record.number % 4 == 1 && isolation == IsolationLevel::Optimistic;
                let (contents, known_lists) = (&current.contents, &mut client.known_lists);
                let blind_appends = &mut current.blind_appends;
                let mut reader = Reader {
                    driver,
                    txn,
                    isolation,
                    calls,
                    own_writes,
                    member,
                    shown,
                    contents,
                    is_patching,
                    is_blind,
                    writes_unread,
                    known_lists,
                    blind_appends,
                };
                match take(&mut reader, step, &mut current.record, now) {
                    StepProgress::Done => current.at += 1,
                    StepProgress::Fails(kind) => {
                        self.give_up(pid, kind);
                        return true;
                    }
                    StepProgress::Waits => return false,
                    StepProgress::Reads(read) => return self.read_content(pid, read),
                    StepProgress::Until(stage) => {
                        (current.at, current.stage) = (current.at + 1, stage);
                        if let OperationStage::Thinking(until) = stage {
                            let life = self.processes[pid].incarnation;
                            self.push(until, Event::Resume(pid, life));
                        }
                        return false;
                    }
                }
                true
            }
        }
    }

    /// A client begins something.
    fn begin(&mut self, pid: Pid, operation: Operation, tries: usize, first: Option<TxnId>) {
        self.last_operation += 1;
        let (number, now, shown) = (self.last_operation, self.now, self.local_time(pid));
        let life = self.processes[pid].incarnation;
        let programs = self.programs.get(&pid).cloned().unwrap_or_default();
        let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine else { return };
        let (steps, level) = plan(&operation, tries, first);
        let only_reads = |step: &Step| {
            matches!(
                step,
                Step::Read(_) | Step::Count(_) | Step::Sift(_) | Step::List(_) | Step::Think(_) | Step::Pause
            )
        };
        let writes = !steps.iter().all(only_reads);
        let kind = match (&operation, level) {
            (Operation::Put(_), _) => Kind::Write,
            (Operation::Get(_), _) => Kind::Read,
            (Operation::Snapshot(_), _) => Kind::Snapshot,
            (_, Some(Level::Locks { .. })) => Kind::Locks,
            _ if writes => Kind::Transaction,
            _ => Kind::ReadOnly,
        };
        let mut record = history::Operation::begin(number, client.member, kind, now);
        let txn = level.map(|level| client.driver.begin(level, shown));
        let mut calls = BTreeSet::new();
        if let Operation::Put(key) = &operation {
            record.steps.push(history::Step::write(key.to_string(), number as i64));
            let content = ObjectState::Value(Content::Number(number as i64).encode());
            calls.insert(client.driver.start(ClientCall::Put(key.oid(), content), shown));
        }
        let first = first.or(txn);
        let (at, stage, since) = (0, OperationStage::Running, now);
        let is_stopped = client.knows_stopped();
        self.rejections.note_begun(&record, &operation, &steps);
        let isolation = match level {
            Some(Level::Snapshot) => IsolationLevel::Snapshot,
            Some(Level::Locks { .. }) => IsolationLevel::Locks,
            Some(Level::Optimistic) | None => IsolationLevel::Optimistic,
        };
        client.current = Some(Current {
            operation,
            steps,
            at,
            txn,
            isolation,
            calls,
            stage,
            since,
            tries,
            first,
            record,
            own_writes: BTreeMap::new(),
            own_entries: BTreeMap::new(),
            query: None,
            guards: None,
            contents: BTreeMap::new(),
            blind_appends: Vec::new(),
            programs,
            must_conflict: false,
            reused: None,
            is_stopped,
        });
        self.push_timer(now + RUN_MS, pid, life);
        self.note(|world| format!("{} begins {number}", world.name(pid)));
    }

    pub(super) fn push_timer(&mut self, at: u64, pid: Pid, life: u64) {
        self.push(at, Event::Timer(pid, life));
    }

    /// What a client was doing is over.
    pub(super) fn finish(&mut self, pid: Pid, outcome: Outcome, at: Option<u64>) {
        let (now, life, shown) = (self.now, self.processes[pid].incarnation, self.local_time(pid));
        let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine else { return };
        let Some(mut current) = client.current.take() else { return };
        for call in std::mem::take(&mut current.calls) {
            client.driver.cancel(call, shown);
        }
        current.record.at = at;
        current.record.finish(outcome, now);
        let number = current.record.number;
        self.rejections.note_ended_operation(number, now);
        let took = now - current.record.invoked;
        self.oracle.check_duration(self.processes[pid].place, &current.record, took);
        self.check_permitted_operation(pid, &current.record);
        if outcome == Outcome::Ok {
            self.know_members(&current.own_writes);
            if current.must_conflict {
                self.oracle.report(format!("T4: T{number} has found an object in two states, and committed"));
            }
        }
        self.check_not_stopped(pid, &current.record, current.is_stopped);
        self.history.operations.push(current.record);
        self.note(|world| format!("{} ends {number}: {outcome:?}", world.name(pid)));
        let again = matches!(current.operation, Operation::Insist(_)) && outcome == Outcome::Failed;
        if again && current.tries + 1 < TRIES {
            let later = now + 1 + self.net.chance(pid, (0, JITTER_MS << current.tries.min(3)));
            self.begin(pid, current.operation, current.tries + 1, current.first);
            if let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine
                && let Some(current) = &mut client.current
            {
                current.stage = OperationStage::Thinking(later);
            }
            self.push(later, Event::Resume(pid, life));
        }
    }
}

/// The steps of an operation, and what it wants.
fn plan(operation: &Operation, tries: usize, first: Option<TxnId>) -> (Vec<Step>, Option<Level>) {
    match operation {
        Operation::Transact(steps) => (steps.clone(), Some(Level::Optimistic)),
        Operation::Lock(steps) => (steps.clone(), Some(Level::Locks { first })),
        Operation::Insist(steps) if tries < OPTIMISTIC_TRIES => (steps.clone(), Some(Level::Optimistic)),
        Operation::Insist(steps) => (steps.clone(), Some(Level::Locks { first })),
        Operation::Snapshot(steps) => (steps.clone(), Some(Level::Snapshot)),
        Operation::Put(_) | Operation::Get(_) => (Vec::new(), None),
    }
}

/// What a step asks the peer server for.
fn request_of(step: &Step) -> Option<Request> {
    match step {
        Step::Count(_) | Step::Sift(_) => Some(Request::Query(proto::query::Query::default())),
        Step::Claim(..) | Step::Bind(..) => Some(Request::LookUp(Box::default())),
        Step::List(_) => Some(Request::ListEntries(Box::default())),
        _ => None,
    }
}
