//! A driver, and the peer server that the tests play.

use super::*;

/// A driver with a peer server that grants leases and serves one page image for all pages.
pub(super) struct Harness {
    pub(super) driver: ClientDriver<Object>,
    pub(super) now: Ms,
    pub(super) objects: BTreeMap<u16, Object>,
    /// Whether fetches are answered.
    pub(super) serves: bool,
    /// Why the next page that is fetched cannot be read.
    pub(super) damage: Option<String>,
    pub(super) finished: BTreeMap<CallId, Result<CallResult<Object>>>,
    pub(super) calls: Vec<(TxnId, Call<Object>)>,
    pub(super) writes: Vec<(HolderId, TxnId)>,
    /// The objects of each of these.
    pub(super) written: Vec<Vec<Oid>>,
    pub(super) requests: Vec<CallId>,
    pub(super) events: Vec<Event>,
    pub(super) watches: usize,
    pub(super) fetches: usize,
    /// The last fetch.
    pub(super) fetched: Option<(HolderId, PageId, FetchId)>,
}

impl Harness {
    pub(super) fn with_cache(cache_bytes: usize) -> Self {
        Self::with_limits(cache_bytes, FetchLimits::default())
    }

    pub(super) fn with_limits(cache_bytes: usize, limits: FetchLimits) -> Self {
        let session = Session::new(ClientId(1), HolderId(100), 50).with_fetch_limits(limits);
        let driver = ClientDriver::new(session, Duration::from_millis(TIMEOUT_MS), cache_bytes);
        let objects = [(1, blob("one")), (2, blob("two"))].into();
        let mut harness = Self {
            driver,
            now: 1_000,
            objects,
            serves: true,
            damage: None,
            finished: BTreeMap::new(),
            calls: Vec::new(),
            writes: Vec::new(),
            written: Vec::new(),
            requests: Vec::new(),
            events: Vec::new(),
            watches: 0,
            fetches: 0,
            fetched: None,
        };
        harness.connect();
        harness
    }

    pub(super) fn new() -> Self {
        Self::with_cache(1 << 20)
    }

    pub(super) fn connect(&mut self) {
        self.driver.handle_connected("peer:1".into(), self.now);
        self.pump();
    }

    pub(super) fn disconnect(&mut self) {
        self.driver.handle_disconnected("it has ended", self.now);
        self.pump();
    }

    /// Carries out what the driver wants, as a peer server that answers at once.
    pub(super) fn pump(&mut self) {
        loop {
            let outputs = self.driver.outputs();
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                match output {
                    Output::Up(node, holder, Up::Renew { asked, sync, .. }) => {
                        self.down(node, holder, Down::Leased { asked, lease_ms: 1_000_000, sync });
                    }
                    Output::Up(node, holder, Up::Fetch { page, fetch, .. }) => {
                        self.fetches += 1;
                        self.fetched = Some((holder, page, fetch));
                        if let Some(why) = self.damage.take() {
                            self.down(node, holder, Down::Fetched { page, fetch, reply: FetchReply::Damaged(why) });
                        } else if self.serves {
                            let (version, timestamp) = (version(4), HlcTimestamp::at(4));
                            let image = PageImage { version, timestamp, objects: self.objects.clone() };
                            self.down(node, holder, Down::Fetched { page, fetch, reply: FetchReply::Page(image) });
                        }
                    }
                    Output::Up(_, holder, Up::Write { write, writes }) => {
                        self.writes.push((holder, write));
                        self.written.push(writes.into_keys().collect());
                    }
                    Output::Up(..) => {}
                    Output::Call(txn, call) | Output::Repeat(txn, call) => self.calls.push((txn, call)),
                    Output::Watch => self.watches += 1,
                    Output::Request(id) => self.requests.push(id),
                    Output::Finished(id, result) => {
                        assert!(self.finished.insert(id, result).is_none(), "{id:?} has finished twice");
                    }
                    Output::Event(event) => self.events.push(event),
                }
            }
        }
    }

    pub(super) fn down(&mut self, node: NodeId, holder: HolderId, message: Down<Object>) {
        self.driver.handle_down(node, holder, message, self.now);
    }

    pub(super) fn start(&mut self, call: ClientCall<Object>) -> CallId {
        let id = self.driver.start(call, self.now);
        self.pump();
        id
    }

    pub(super) fn reply(&mut self, txn: TxnId, reply: Reply<Object>) {
        self.driver.handle_reply(txn, reply, self.now);
        self.pump();
    }

    pub(super) fn defer(&mut self, txn: TxnId, kind: ErrorKind) {
        self.driver.handle_deferred(txn, kind, "reason".to_owned(), self.now);
        self.pump();
    }

    pub(super) fn advance(&mut self, ms: Ms) {
        self.now += ms;
        self.driver.poll(self.now);
        self.pump();
    }

    pub(super) fn status(&mut self, is_reachable: bool) {
        let unreachable_since = (!is_reachable).then(|| Timestamp::from_millis(1_000));
        self.send_status(unreachable_since, None);
    }

    pub(super) fn damaged_status(&mut self, damage: Option<&str>) {
        self.send_status(None, damage);
    }

    fn send_status(&mut self, unreachable_since: Option<Timestamp>, damage: Option<&str>) {
        let damaged = damage.map(|damage| (NODE, damage.into())).into_iter().collect();
        let (address, nodes) = ("db2:6680".to_owned(), vec![(NODE, 1)]);
        let brick = BrickStatus { brick: 2, address, unreachable_since, nodes, damaged };
        let policy = FailurePolicy::FailStop;
        let status = SpaceStatus { space: "main".to_owned(), policy, bricks: vec![brick], schema: 1 };
        self.driver.handle_status(status, self.now);
        self.pump();
    }

    /// The brick answers the last write that was sent: it is durable, or is refused for good for a reason of this kind.
    pub(super) fn answer_write(&mut self, refused: Option<ErrorKind>) {
        let (holder, write) = *self.writes.last().unwrap();
        let result = match refused {
            Some(kind) => {
                self.defer(write, kind);
                Err(Refusal::TooOld)
            }
            None => Ok(HlcTimestamp::at(9)),
        };
        self.down(NODE, holder, Down::Written { write, result });
        self.pump();
    }

    pub(super) fn put(&mut self, oid: Oid) -> CallId {
        self.start(ClientCall::Put(oid, ObjectState::Value(blob("new"))))
    }

    pub(super) fn kind(&self, id: CallId) -> Option<ErrorKind> {
        self.finished[&id].as_ref().err().map(Error::kind)
    }

    pub(super) fn object(&self, id: CallId) -> Option<Object> {
        match self.finished.get(&id) {
            Some(Ok(CallResult::Object(object))) => object.clone(),
            other => panic!("{id:?} has ended with {other:?}"),
        }
    }

    pub(super) fn outcome(&self, id: CallId) -> CommitOutcome {
        match self.finished.get(&id) {
            Some(Ok(CallResult::Outcome(outcome))) => outcome.clone(),
            other => panic!("{id:?} has ended with {other:?}"),
        }
    }

    /// A transaction that writes an object and is being committed.
    pub(super) fn commit(&mut self, slot: u16) -> (TxnId, CallId) {
        let txn = self.driver.begin(Level::Optimistic, self.now);
        let call = self.start(ClientCall::Commit(txn, vec![(oid(slot), ObjectState::Value(blob("new")))]));
        (txn, call)
    }

    pub(super) fn read(&mut self, txn: TxnId, slot: u16) -> Result<Option<Option<Object>>> {
        let (level, mode) = (IsolationLevel::Optimistic, LockMode::Shared);
        self.driver.read(&ReadRequest { txn, level, oid: oid(slot), mode }, self.now)
    }
}

pub(super) fn committed_reply(at: u64) -> Reply<Object> {
    Reply::Ended(CommitReply::Committed(HlcTimestamp::at(at).into()))
}

pub(super) fn refused_reply(why: Refusal) -> Reply<Object> {
    Reply::Ended(CommitReply::Refused(why))
}
