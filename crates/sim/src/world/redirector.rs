//! A redirector: the driver that ships, between simulated connections.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{NodeId, Object, SpaceId};
use node::cluster_view::SpaceView;
use node::drivers::peer::PeerClient;
use node::drivers::redirector::{Member, Output, RedirectorDriver};
use protocol::clock::ClusterTime;
use protocol::gateway::{Call, Reply};
use protocol::ident::{ClientId, HolderId, TxnId};
use protocol::tree::Up;
use wire::cluster::Message;

use super::World;
use super::net::{Datagram, LinkId, Pid};
use super::process::ProcessMachine;

/// Bits of a session's number below the number of its process.
const SESSION_BITS: u32 = 24;

/// A connection from below: the process, and the link.
type Address = (Pid, LinkId);

/// A redirector and its members.
pub(super) struct RedirectorProcess {
    pub(super) driver: RedirectorDriver<Address, Object>,
    space: Arc<SpaceView>,
    members: BTreeMap<Address, Member<Address>>,
}

impl RedirectorProcess {
    pub(super) fn new(number: u64, nodes: impl Iterator<Item = NodeId>) -> Self {
        let space = Arc::new(SpaceView { id: SpaceId(1), name: "main".to_owned(), nodes: nodes.collect() });
        Self { driver: RedirectorDriver::new(number, SESSION_BITS), space, members: BTreeMap::new() }
    }

    /// The driver, and the member of a connection.
    fn member(
        &mut self,
        from: Address,
        number: ClientId,
    ) -> (&mut RedirectorDriver<Address, Object>, &mut Member<Address>) {
        let space = &self.space;
        let new = || Member::new(PeerClient::with_all_permissions(from, space.clone(), number), true);
        (&mut self.driver, self.members.entry(from).or_insert_with(new))
    }

    /// A connection from below has ended.
    pub(super) fn handle_disconnected(&mut self, address: Address, now: u64) {
        if let Some(member) = self.members.remove(&address) {
            self.driver.member_disconnected(&member, now);
        }
    }
}

impl World {
    pub(super) fn handle_redirector_up(
        &mut self,
        (from, pid): (Address, Pid),
        at: (NodeId, HolderId),
        message: Up<Object>,
    ) {
        let (now, number) = (self.local_time(pid), self.number_of(from.0));
        let Some(ProcessMachine::Redirector(redirector)) = &mut self.processes[pid].machine else { return };
        let (driver, member) = redirector.member(from, number);
        let handled = driver.member_up(member, at, message, now);
        self.oracle.expect_accepted(handled);
    }

    /// A call has come on a connection: one of a connection that has ended is lost.
    pub(super) fn handle_redirector_call(&mut self, (from, pid): (Pid, Pid), txn: TxnId, call: Call<Object>) {
        // A link to a redirector carries all trees.
        let Some(link) = self.net.between(from, pid, NodeId(0)) else { return };
        let number = self.number_of(from);
        if number != txn.client {
            return;
        }
        let now = self.local_time(pid);
        let Some(ProcessMachine::Redirector(redirector)) = &mut self.processes[pid].machine else { return };
        let (driver, member) = redirector.member((from, link), number);
        let handled = driver.member_call(member, txn, call, now);
        self.oracle.expect_accepted(handled);
    }

    pub(super) fn handle_redirector_reply(&mut self, pid: Pid, txn: TxnId, reply: Reply<Object>) {
        if let Some(ProcessMachine::Redirector(redirector)) = &mut self.processes[pid].machine {
            redirector.driver.member_reply(txn, reply);
        }
    }

    /// The server above says what time it is. It says so to each member, on the member's own connection.
    pub(super) fn handle_redirector_time(&mut self, pid: Pid, time_ms: u64) {
        let now = self.local_time(pid);
        let Some(ProcessMachine::Redirector(redirector)) = &mut self.processes[pid].machine else { return };
        redirector.driver.set_time(ClusterTime::from_message(time_ms, now));
        let members: Vec<Pid> = redirector.members.keys().map(|(member, _)| *member).collect();
        for member in members {
            self.send_datagram(pid, member, Datagram::Cluster(Message::Time(time_ms)));
        }
    }

    pub(super) fn drain_redirector(&mut self, pid: Pid) {
        let Some(ProcessMachine::Redirector(redirector)) = &mut self.processes[pid].machine else { return };
        let outputs: Vec<_> = redirector.driver.outputs().collect();
        let invariants = redirector.driver.check_invariants();
        let forged = redirector.driver.counts().forged;
        self.oracle.expect_invariants(invariants);
        self.oracle.expect_no_forgery(forged);
        for output in outputs {
            match output {
                Output::Up { node, holder, message } => self.send_up(pid, node, holder, message),
                Output::Call { txn, call, .. } => {
                    let uplink = self.processes[pid].uplinks.first().and_then(|uplink| uplink.link);
                    if let Some(link) = uplink {
                        let upper = self.net.links[link].upper;
                        self.send_datagram(pid, upper, Datagram::Cluster(Message::Call { txn, call }));
                    }
                }
                Output::Down { node, holder, message, .. } => self.send_down(pid, node, holder, message),
                Output::Reply { to, txn, reply } => {
                    self.send_datagram(pid, to.0, Datagram::Cluster(Message::Reply { txn, reply }));
                }
                Output::Deferred { to, node, txn, kind, why } => {
                    let message = Message::Deferred { node, txn, kind, why };
                    self.send_datagram(pid, to.0, Datagram::Cluster(message));
                }
                Output::Disconnect((_, link)) => self.cut(link),
            }
        }
    }
}
