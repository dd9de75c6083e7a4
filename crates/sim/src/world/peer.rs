//! A peer server: the driver that ships, between simulated connections.

use std::collections::BTreeMap;
use std::sync::Arc;

use meta::catalog::Catalog;
use model::{ErrorKind, NodeId, Object, SpaceId};
use node::cluster_view::SpaceView;
use node::drivers::peer::{BrickMessage, ClientMessage, Output, PeerClient, PeerDriver, PeerSettings};
use node::node_placement::{BrickId, NodePlacement};
use protocol::gateway::Call;
use protocol::ident::{ClientId, HolderId, TxnId};
use protocol::redirect::{Helpers, RedirectorCounts};
use protocol::tree::Up;
use wire::cluster::Message;
use wire::handshake::Permission;
use wire::proto::request::Request;

use super::net::{Datagram, LinkId, Pid};
use super::process::ProcessMachine;
use super::query::PeerQuery;
use super::users::AdmittedClient;
use super::{GATEWAY_LIMIT_BYTES, World};
use crate::plan::ProcessName;

/// Bits of a session's number below the number of its process.
pub(super) const SESSION_BITS: u32 = 24;
/// Bytes of the object cache, which nothing reads here.
const CACHE_BYTES: usize = 1 << 20;

/// A connection from below: the process, and the link.
type Address = (Pid, LinkId);

/// A peer server and the clients that are connected to it.
pub(super) struct PeerProcess {
    pub(super) driver: PeerDriver<Address, Object, ()>,
    pub(super) space: Arc<SpaceView>,
    pub(super) queries: BTreeMap<u64, PeerQuery>,
    clients: BTreeMap<Address, AdmittedClient>,
    /// What it has done as a redirector, as far as that is in the counters of the run.
    pub(super) counted: RedirectorCounts,
}

impl PeerProcess {
    pub(super) fn new(member: u64, nodes: impl Iterator<Item = NodeId>, helpers: Helpers, now: u64) -> Self {
        let settings = PeerSettings {
            process: member,
            session_bits: SESSION_BITS,
            cache_bytes: CACHE_BYTES,
            backlog_bytes: Some(GATEWAY_LIMIT_BYTES),
            helpers,
        };
        let space = Arc::new(SpaceView { id: SpaceId(1), name: "main".to_owned(), nodes: nodes.collect() });
        let (driver, counted) = (PeerDriver::new(settings, now), RedirectorCounts::default());
        Self { driver, space, queries: BTreeMap::new(), clients: BTreeMap::new(), counted }
    }

    /// A client or a redirector is connected.
    pub(super) fn handle_connected(&mut self, from: Address, number: ClientId, is_redirector: bool) {
        let client = PeerClient::with_all_permissions(from, self.space.clone(), number);
        let client = if is_redirector { client.as_redirector() } else { client };
        self.add_client(AdmittedClient { client, permission: Permission::Admin });
    }

    /// A client is admitted.
    pub(super) fn add_client(&mut self, admitted: AdmittedClient) {
        self.driver.client_connected(&admitted.client);
        self.clients.insert(*admitted.client.address(), admitted);
    }

    /// A client, or a member of a group, asks for the status of the space.
    pub(super) fn watch(&mut self, address: &Address, now: u64) -> model::Result<()> {
        let Some(one) = self.clients.get_mut(address) else { return Ok(()) };
        self.driver.client_message(&mut one.client, ClientMessage::Watch, now)
    }

    /// The addresses of clients that this catalogue does not admit any more.
    pub(super) fn revoked(&self, catalog: &Catalog) -> impl Iterator<Item = Address> {
        let is_revoked = |one: &AdmittedClient| one.client.check_still_admitted(catalog, one.permission).is_err();
        self.clients.iter().filter(move |(_, one)| is_revoked(one)).map(|(address, _)| *address)
    }

    /// Whether a client that is admitted may ask this; `None` if it is not connected.
    pub(super) fn check_request(&self, from: &Address, request: Request) -> Option<model::Result<()>> {
        Some(self.driver.check_request(&self.clients.get(from)?.client, request))
    }

    /// The connections by which clients and redirectors are connected, and those below which it has members.
    pub(super) fn links(&self) -> impl Iterator<Item = LinkId> {
        self.clients.keys().map(|(_, link)| *link)
    }

    /// A message of a client. One that has to be admitted, and is not, is not connected.
    fn client_message(
        &mut self,
        from: Address,
        (number, is_redirector, is_checked): (ClientId, bool, bool),
        message: ClientMessage,
        now: u64,
    ) -> model::Result<()> {
        if !self.clients.contains_key(&from) && !is_checked {
            self.handle_connected(from, number, is_redirector);
        }
        match self.clients.get_mut(&from) {
            Some(one) => self.driver.client_message(&mut one.client, message, now),
            None => Ok(()),
        }
    }

    /// A call of a member of a group, on the connection in its name.
    pub(super) fn member_call(
        &mut self,
        from: Address,
        (number, is_checked): (ClientId, bool),
        (txn, call): (TxnId, Call<Object>),
        now: u64,
    ) -> model::Result<()> {
        self.client_message(from, (number, false, is_checked), ClientMessage::Call { txn, call }, now)
    }

    /// The connection of a client has ended. Says whether it was connected.
    pub(super) fn remove_client(&mut self, address: &Address, now: u64) -> bool {
        let removed = self.clients.remove(address);
        if removed.is_some() {
            self.queries.retain(|_, query| query.client() != address.0);
        }
        removed.iter().for_each(|one| self.driver.client_disconnected(&one.client, now));
        removed.is_some()
    }

    /// A connection from below has ended.
    pub(super) fn handle_disconnected(&mut self, address: Address, now: u64) {
        if !self.remove_client(&address, now) {
            self.driver.handle_disconnected(&address, now);
        }
    }
}

impl World {
    /// The number that a process has since its last start.
    pub(super) fn number_of(&self, pid: Pid) -> ClientId {
        let latest = self.members.iter().rev().find(|(_, at)| **at == pid);
        ClientId(*latest.expect("a process has a number since its first start").0)
    }

    /// Whether a process speaks for the clients below it.
    pub(super) fn is_redirector(&self, pid: Pid) -> bool {
        matches!(self.processes[pid].place, ProcessName::Redirector(_))
    }

    pub(super) fn handle_peer_up(
        &mut self,
        (from, pid): (Address, Pid),
        (node, holder): (NodeId, HolderId),
        message: Up<Object>,
    ) {
        let (now, number, is_redirector) = (self.local_time(pid), self.number_of(from.0), self.is_redirector(from.0));
        let is_to_be_rejected = self.is_to_be_rejected(from.0, holder, &message);
        let is_wicked = self.is_wicked(from.0);
        let is_checked = self.user_of(from.0).is_some();
        let Some(ProcessMachine::Peer(peer)) = &mut self.processes[pid].machine else { return };
        let handled = peer.client_message(
            from,
            (number, is_redirector, is_checked),
            ClientMessage::Up { node, holder, message },
            now,
        );
        self.count_redirector(pid, is_wicked);
        match is_wicked {
            true => self.expect_handled((from, pid), is_to_be_rejected, handled),
            false => self.expect_served((from.0, pid), handled),
        }
    }

    /// The number of a brick's process.
    fn brick_of(&self, pid: Pid) -> BrickId {
        match self.processes[pid].place {
            ProcessName::Brick(number) => BrickId(number as u32),
            place => panic!("{place} is no brick"),
        }
    }

    /// A brick sends a message to a peer server.
    pub(super) fn handle_brick_message(&mut self, (from, pid): (Pid, Pid), message: BrickMessage) {
        let (now, brick) = (self.local_time(pid), self.brick_of(from));
        let may_be_forged = matches!(&message, BrickMessage::Down { message, .. } if self.may_show_forgery(message));
        let Some(ProcessMachine::Peer(peer)) = &mut self.processes[pid].machine else { return };
        let handled = peer.driver.brick_message(brick, message, now);
        self.count_redirector(pid, may_be_forged);
        self.oracle.expect_accepted(handled);
    }

    /// A call has come. In a cluster it comes on a connection: one of a connection that has ended is lost.
    pub(super) fn handle_peer_call(&mut self, (from, pid): (Pid, Pid), txn: TxnId, call: Call<Object>) {
        // A link to a peer server carries all trees.
        let Some(link) = self.net.between(from, pid, NodeId(0)) else { return };
        let (now, number, is_checked) = (self.local_time(pid), self.number_of(from), self.user_of(from).is_some());
        let Some(ProcessMachine::Peer(peer)) = &mut self.processes[pid].machine else { return };
        if number != txn.client {
            return;
        }
        let handled = peer.member_call((from, link), (number, is_checked), (txn, call), now);
        self.expect_served((from, pid), handled);
    }

    pub(super) fn drain_peer(&mut self, pid: Pid) {
        self.refresh_placement(pid);
        let Some(ProcessMachine::Peer(peer)) = &mut self.processes[pid].machine else { return };
        let outputs: Vec<_> = peer.driver.outputs().collect();
        let invariants = peer.driver.check_invariants();
        self.oracle.expect_invariants(invariants);
        self.count_redirector(pid, false);
        for output in outputs {
            match output {
                Output::Up { to: NodePlacement { brick, epoch, .. }, node, holder, message } => {
                    let uplink = self.processes[pid].uplinks.iter().find(|uplink| uplink.brick == Some(brick));
                    let message = Message::Up { node, epoch, holder, message };
                    self.send_on_uplink(uplink.and_then(|uplink| uplink.link), message);
                }
                Output::Ask { to: NodePlacement { brick, epoch, .. }, node, seen, request } => {
                    if let Some(to) = self.brick_pid(brick) {
                        let message = Message::Ask { node, epoch, seen, request };
                        self.send_datagram(pid, to, Datagram::Cluster(message));
                    }
                }
                Output::Down { node, holder, message, .. } => self.send_down(pid, node, holder, message),
                Output::Reply { to, txn, reply } => {
                    self.check_may_get_reply(self.net.links[to.1].lower, &reply);
                    self.send_datagram(pid, to.0, Datagram::Cluster(Message::Reply { txn, reply }));
                }
                Output::Deferred { to, node, txn, kind, why } => {
                    if kind == ErrorKind::Unavailable {
                        self.turn_away(pid, txn, node);
                    }
                    let message = Message::Deferred { node, txn, kind, why };
                    self.send_datagram(pid, to.0, Datagram::Cluster(message));
                }
                Output::Disconnect((_, link)) => self.cut(link),
                Output::Time { to, time_ms } => {
                    self.send_datagram(pid, self.net.links[to.1].lower, Datagram::Cluster(Message::Time(time_ms)));
                }
                Output::Status { to: (_, link), status } => self.send_status(link, status),
                // Nothing reads the object cache.
                Output::ReadEnded { .. } => {}
            }
        }
    }
}
