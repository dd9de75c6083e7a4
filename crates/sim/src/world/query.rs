//! Queries of clients below peer servers: the query machine that ships, and its messages to bricks.
//!
//! A client that is connected to a peer server sends it a query and waits for all rows. The peer server asks the bricks; a request whose
//! answer is lost fails after a while, as when a connection breaks. Clients elsewhere scan the brick's store at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use model::{Error, ErrorKind, NodeId, Object, Oid, RecordRef, Result, ValueRef};
use node::cluster_view::{QuerySchema, SpaceView};
use node::drivers::peer::{Activity, Bricks, QueryEvent, QueryMachine, QueryWork, ScanLimits};
use node::node_placement::{BrickId, NodePlacement, PlacementSnapshot};
use protocol::ident::HlcTimestamp;
use protocol::validate::Read;
use query::Query;
use wire::cluster::{QueryRequest, Scan, Scanned};
use wire::proto;
use wire::proto::request::Request;

use super::World;
use super::net::{Datagram, Pid};
use super::process::ProcessMachine;
use super::schema::class_name;
use crate::object::NUMBER_FIELD;
use crate::plan::{Key, ProcessName, Topology};

/// The time after which a scan that was not answered fails, in milliseconds.
const SCAN_TIMEOUT_MS: u64 = 1_000;

/// A message of a query.
#[derive(Clone, Debug)]
pub(super) enum QueryMessage {
    /// A client asks a peer server.
    Begin { query: u64, nodes: Vec<NodeId>, request: QueryRequest },
    /// The peer server has all rows, or the error with which the query has failed.
    Ended { query: u64, result: std::result::Result<QueryAnswer, (ErrorKind, String)> },
    /// The peer server asks a brick. No two requests have the same number.
    Scan { query: u64, number: u64, scan: Scan },
    /// The brick answers.
    Scanned { query: u64, number: u64, result: std::result::Result<Scanned, (ErrorKind, String)> },
}

/// The rows of a query, and what a transaction relies on that has read them.
#[derive(Clone, Debug, Default)]
pub(super) struct QueryAnswer {
    pub(super) found: Vec<(Oid, Bytes)>,
    pub(super) reads: Vec<Read>,
    pub(super) seen: HlcTimestamp,
    /// Whether an object was found again in another state: it has changed between two answers of bricks, and the transaction cannot commit.
    pub(super) found_changed: bool,
    /// The classes that the peer server used.
    pub(super) schema: Option<Arc<QuerySchema>>,
}

impl QueryAnswer {
    /// The numbers of the objects at a logical node.
    pub(super) fn numbers(&self, node: NodeId) -> Vec<i64> {
        let number = |record: &Bytes| match RecordRef::new(record).ok()?.field(NUMBER_FIELD).ok()? {
            Some(ValueRef::Int64(number)) => Some(number),
            _ => None,
        };
        let found = self.found.iter().filter(|(oid, _)| oid.page().node == node);
        found.filter_map(|(_, record)| number(record)).collect()
    }
}

/// A query for the members of the sets of a page.
pub(super) struct SetQuery {
    pub(super) guard: Key,
    /// Only members are wanted whose text fulfils this, if it is not `None`.
    pub(super) condition: Option<String>,
    /// Only the guards are wanted that it reads.
    pub(super) only_guards: bool,
    /// What the transaction has written.
    pub(super) own_writes: BTreeMap<Oid, Option<Object>>,
}

/// A query at a peer server.
pub(super) struct PeerQuery {
    client: Pid,
    machine: QueryMachine,
    /// The scans that were not answered, by their numbers: the ticket of each, and when it fails, by the run's time.
    asked: BTreeMap<u64, ((u32, u32), u64)>,
    last_scan: u64,
    answer: QueryAnswer,
}

impl PeerQuery {
    /// The client that waits for it.
    pub(super) fn client(&self) -> Pid {
        self.client
    }

    /// When it continues by itself, by the clock of its peer server and by the run's time.
    pub(super) fn deadlines(&self) -> (u64, Option<u64>) {
        (self.machine.deadline(), self.asked.values().map(|(_, until)| *until).min())
    }
}

/// What a peer server knows of bricks.
struct KnownBricks {
    placement: Arc<PlacementSnapshot>,
    connected: BTreeSet<BrickId>,
}

impl Bricks for KnownBricks {
    fn place(&self, node: NodeId) -> Option<NodePlacement> {
        self.placement.nodes.get(&node).copied()
    }

    fn is_silent(&self, brick: BrickId) -> bool {
        !self.connected.contains(&brick)
    }
}

impl World {
    /// The peer server that a client is connected to, if it sends queries there.
    pub(super) fn query_server(&self, client: Pid) -> Option<Pid> {
        let is_below = matches!(self.plan.cluster.topology, Topology::Peer | Topology::Site) && self.is_driven();
        let link = self.processes[client].uplinks.first()?.link.filter(|_| is_below)?;
        Some(self.net.links[link].upper)
    }

    /// Whether queries of a client go to a peer server, connected or not.
    pub(super) fn sends_queries(&self) -> bool {
        matches!(self.plan.cluster.topology, Topology::Peer | Topology::Site) && self.is_driven()
    }

    /// A client sends a query for these logical nodes. Returns the number of the query; `None` if there is no connection.
    pub(super) fn begin_query(&mut self, client: Pid, asked: SetQuery, nodes: Vec<NodeId>) -> Option<u64> {
        let SetQuery { guard, condition, only_guards, own_writes } = asked;
        let peer = self.query_server(client)?;
        let query = Query::parse_of(&class_name(guard.set_class()), condition.as_deref().unwrap_or_default());
        let query = query.unwrap_or_else(|error| panic!("a name and a text are a condition: {error}"));
        let request = QueryRequest {
            query: query.encode().ok()?.into(),
            own_writes,
            report_reads: true,
            only_guards,
            ..QueryRequest::default()
        };
        self.last_query += 1;
        let query = self.last_query;
        self.send_query(client, peer, QueryMessage::Begin { query, nodes, request });
        Some(query)
    }

    fn send_query(&mut self, from: Pid, to: Pid, message: QueryMessage) {
        self.send_datagram(from, to, Datagram::Query(Box::new(message)));
    }

    pub(super) fn handle_query(&mut self, from: Pid, to: Pid, message: &QueryMessage) {
        match message.clone() {
            QueryMessage::Begin { query, nodes, request } => {
                match self.check_request(from, Request::Query(proto::query::Query::default())) {
                    Some(Ok(())) => self.begin_peer_query((from, to), query, nodes, request),
                    Some(Err(error)) => {
                        let result = Err((error.kind(), error.to_string()));
                        self.send_query(to, from, QueryMessage::Ended { query, result });
                    }
                    None => {}
                }
            }
            QueryMessage::Ended { query, result } => self.end_client_query(to, query, result),
            QueryMessage::Scan { query, number, scan } => {
                let Some(ProcessMachine::Driven(driven)) = &self.processes[to].machine else { return };
                let scanned = driven.brick.scan(&scan);
                let result = scanned.map_err(|error| (error.kind(), error.message().to_owned()));
                self.send_query(to, from, QueryMessage::Scanned { query, number, result });
            }
            QueryMessage::Scanned { query, number, result } => {
                let answer = result.map_err(|(kind, what)| Error::new(kind, what));
                self.end_scan(to, query, number, answer);
            }
        }
    }

    fn begin_peer_query(&mut self, (client, pid): (Pid, Pid), query: u64, nodes: Vec<NodeId>, request: QueryRequest) {
        let (now, schema) = (self.local_time(pid), self.schema.version(self.processes[pid].schema).query.clone());
        let Some(ProcessMachine::Peer(peer)) = &mut self.processes[pid].machine else { return };
        if peer.queries.contains_key(&query) {
            return;
        }
        let space = Arc::new(SpaceView { id: peer.space.id, name: peer.space.name.clone(), nodes });
        match QueryMachine::new(&space, schema, request, ScanLimits::SMALL) {
            Ok(mut machine) => {
                machine.request(now);
                let one =
                    PeerQuery { client, machine, asked: BTreeMap::new(), last_scan: 0, answer: QueryAnswer::default() };
                peer.queries.insert(query, one);
                self.advance_query(pid, query);
            }
            Err(error) => {
                let result = Err((error.kind(), error.to_string()));
                self.send_query(pid, client, QueryMessage::Ended { query, result });
            }
        }
    }

    fn end_scan(&mut self, pid: Pid, query: u64, number: u64, answer: Result<Scanned>) {
        let Some(one) = self.peer_query(pid, query) else { return };
        if let Some((ticket, _)) = one.asked.remove(&number) {
            self.handle_query_event(pid, query, QueryEvent::Scanned { ticket, answer });
        }
    }

    fn peer_query(&mut self, pid: Pid, query: u64) -> Option<&mut PeerQuery> {
        match &mut self.processes[pid].machine {
            Some(ProcessMachine::Peer(peer)) => peer.queries.get_mut(&query),
            _ => None,
        }
    }

    /// The newest classes are there: queries that wait for them go on.
    pub(super) fn handle_query_schema(&mut self, pid: Pid) {
        let schema = self.schema.version(self.processes[pid].schema).query.clone();
        for query in self.peer_queries(pid) {
            self.handle_query_event(pid, query, QueryEvent::Schema(Ok(schema.clone())));
        }
    }

    fn peer_queries(&self, pid: Pid) -> Vec<u64> {
        match &self.processes[pid].machine {
            Some(ProcessMachine::Peer(peer)) => peer.queries.keys().copied().collect(),
            _ => Vec::new(),
        }
    }

    fn handle_query_event(&mut self, pid: Pid, query: u64, event: QueryEvent) {
        let now = self.local_time(pid);
        let Some(one) = self.peer_query(pid, query) else { return };
        match one.machine.handle(event, now) {
            Ok(()) => self.advance_query(pid, query),
            Err(error) => self.end_peer_query(pid, query, Err(error)),
        }
    }

    /// Does what it is time for.
    pub(super) fn poll_queries(&mut self, pid: Pid) {
        for query in self.peer_queries(pid) {
            let now = self.now;
            let Some(one) = self.peer_query(pid, query) else { continue };
            let late: Vec<(u32, u32)> =
                one.asked.extract_if(.., |_, (_, until)| *until <= now).map(|(_, (ticket, _))| ticket).collect();
            for ticket in late {
                let answer = Err(Error::new(ErrorKind::Unavailable, "the connection has ended"));
                self.handle_query_event(pid, query, QueryEvent::Scanned { ticket, answer });
            }
            self.advance_query(pid, query);
        }
    }

    fn end_peer_query(&mut self, pid: Pid, query: u64, failed: Result<()>) {
        let Some(ProcessMachine::Peer(peer)) = &mut self.processes[pid].machine else { return };
        let Some(PeerQuery { client, machine, mut answer, .. }) = peer.queries.remove(&query) else { return };
        answer.schema = Some(machine.schema().clone());
        let result = failed.map(|()| answer).map_err(|error| (error.kind(), error.to_string()));
        if result.as_ref().is_ok_and(|answer| !answer.found.is_empty()) {
            self.check_may_get(client, "the rows of a query");
        }
        self.send_query(pid, client, QueryMessage::Ended { query, result });
    }

    /// Lets a query work until it waits or has ended.
    fn advance_query(&mut self, pid: Pid, query: u64) {
        loop {
            let (now, bricks) = (self.local_time(pid), self.known_bricks(pid));
            let Some(one) = self.peer_query(pid, query) else { return };
            let stepped = one.advance(&bricks, now);
            let work: Vec<QueryWork> = one.machine.work().collect();
            match stepped {
                Err(error) => return self.end_peer_query(pid, query, Err(error)),
                Ok(None) => return self.end_peer_query(pid, query, Ok(())),
                Ok(Some(Activity::Waits)) if work.is_empty() => return,
                Ok(Some(_)) => {}
            }
            for work in work {
                self.begin_query_work(pid, query, work);
            }
        }
    }

    fn known_bricks(&self, pid: Pid) -> KnownBricks {
        let process = &self.processes[pid];
        let connected = process.uplinks.iter().filter(|uplink| uplink.link.is_some());
        KnownBricks {
            placement: process.placement.clone(),
            connected: connected.filter_map(|uplink| uplink.brick).collect(),
        }
    }

    fn begin_query_work(&mut self, pid: Pid, query: u64, work: QueryWork) {
        let now = self.local_time(pid);
        let event = match work {
            QueryWork::Scan { ticket, brick, scan } => {
                let until = self.now + SCAN_TIMEOUT_MS;
                let Some(one) = self.peer_query(pid, query) else { return };
                one.last_scan += 1;
                let number = one.last_scan;
                one.asked.insert(number, (ticket, until));
                if let Some(to) = self.pid(ProcessName::Brick(brick.0 as usize)) {
                    self.send_query(pid, to, QueryMessage::Scan { query, number, scan });
                }
                return;
            }
            QueryWork::RefreshSchema => return self.refresh_schema(pid),
            QueryWork::Step(mut run) => {
                let progress = run.step();
                QueryEvent::Stepped(Some((run, progress)))
            }
            QueryWork::AcquireTurn => QueryEvent::Turn,
            QueryWork::ReleaseTurn => return,
            // Objects of a run have no references.
            QueryWork::Read { oids, .. } => panic!("a query follows references to {oids:?}"),
        };
        let handled = self.peer_query(pid, query).map(|one| one.machine.handle(event, now));
        if let Some(Err(error)) = handled {
            self.end_peer_query(pid, query, Err(error));
        }
    }
}

impl PeerQuery {
    /// Makes one step; `None` if the rows taken were the last.
    fn advance(&mut self, bricks: &KnownBricks, now: u64) -> Result<Option<Activity>> {
        let Some((rows, is_last)) = self.machine.take_portion(bricks, now)? else {
            return self.machine.advance(bricks, now).map(Some);
        };
        for (oid, record) in rows.oids.into_iter().zip(rows.rows) {
            let is_other_state = |one: &(Oid, Bytes)| one.0 == oid && one.1 != record;
            match self.answer.found.iter().any(is_other_state) {
                true => self.answer.found_changed = true,
                false => self.answer.found.push((oid, record)),
            }
        }
        self.answer.reads.extend(rows.reads);
        self.answer.seen = self.answer.seen.max(rows.seen);
        self.machine.request(now);
        Ok((!is_last).then_some(Activity::Worked))
    }
}
