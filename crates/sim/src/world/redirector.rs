//! A redirector: the driver that ships, between simulated connections.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{NodeId, Object, PageId, SpaceId};
use node::cluster_view::SpaceView;
use node::drivers::peer::PeerClient;
use node::drivers::redirector::{Member, Output, RedirectorDriver};
use protocol::clock::ClusterTime;
use protocol::commit::Writes;
use protocol::gateway::{Call, Reply};
use protocol::ident::{ClientId, HolderId, TxnId};
use protocol::page_cache::FetchId;
use protocol::redirect::RedirectorCounts;
use protocol::tree::{Down, Up};
use wire::cluster::Message;

use super::World;
use super::help_journal::HelpJournal;
use super::net::{Datagram, LinkId, Pid};
use super::peer::SESSION_BITS;
use super::process::ProcessMachine;

/// A connection from below: the process, and the link.
type Address = (Pid, LinkId);

/// A redirector and its members.
pub(super) struct RedirectorProcess {
    pub(super) driver: RedirectorDriver<Address, Object>,
    space: Arc<SpaceView>,
    members: BTreeMap<Address, Member<Address>>,
    journal: HelpJournal,
    /// What it has done, as far as that is in the counters of the run.
    counted: RedirectorCounts,
    /// What a wicked member has sent elsewhere under these numbers: the server above gets it in place of what the redirector got.
    calls_elsewhere: BTreeMap<TxnId, Call<Object>>,
    writes_elsewhere: BTreeMap<TxnId, Writes<Object>>,
}

impl RedirectorProcess {
    pub(super) fn new(number: u64, nodes: impl Iterator<Item = NodeId>) -> Self {
        let space = Arc::new(SpaceView { id: SpaceId(1), name: "main".to_owned(), nodes: nodes.collect() });
        Self {
            driver: RedirectorDriver::new(number, SESSION_BITS),
            space,
            members: BTreeMap::new(),
            journal: HelpJournal::default(),
            counted: RedirectorCounts::default(),
            calls_elsewhere: BTreeMap::new(),
            writes_elsewhere: BTreeMap::new(),
        }
    }

    /// The driver, and the member of a connection.
    fn member(
        &mut self,
        from: Address,
        (number, is_redirector): (ClientId, bool),
    ) -> (&mut RedirectorDriver<Address, Object>, &mut Member<Address>) {
        let space = &self.space;
        let new = || {
            let client = PeerClient::with_all_permissions(from, space.clone(), number);
            Member::new(if is_redirector { client.as_redirector() } else { client }, true)
        };
        (&mut self.driver, self.members.entry(from).or_insert_with(new))
    }

    /// A call of a member of a redirector below, on the connection in its name. One that has to be admitted, and is not, is not connected.
    pub(super) fn member_call(
        &mut self,
        from: Address,
        (number, is_checked): (ClientId, bool),
        (txn, call): (TxnId, Call<Object>),
        now: u64,
    ) -> model::Result<()> {
        if is_checked && !self.members.contains_key(&from) {
            return Ok(());
        }
        let (driver, member) = self.member(from, (number, false));
        driver.member_call(member, txn, call, now)
    }

    /// The server above has admitted a member.
    pub(super) fn add_member(&mut self, from: Address, number: ClientId, may_write: bool) {
        let client = PeerClient::with_all_permissions(from, self.space.clone(), number);
        self.members.insert(from, Member::new(client, may_write));
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
        (node, holder): (NodeId, HolderId),
        mut message: Up<Object>,
    ) {
        let (now, number) = (self.local_time(pid), (self.number_of(from.0), self.is_redirector(from.0)));
        let is_to_be_rejected = self.is_to_be_rejected(from.0, holder, &message);
        let elsewhere = match &mut message {
            Up::Write { write, writes } => {
                let other = self.write_with_other_contents(from.0, writes);
                other.map(|other| (*write, std::mem::replace(writes, other)))
            }
            _ => None,
        };
        self.count.chained_fetches += u64::from(number.1 && matches!(message, Up::Fetch { .. }));
        let Some(ProcessMachine::Redirector(redirector)) = &mut self.processes[pid].machine else { return };
        redirector.writes_elsewhere.extend(elsewhere);
        let is_copy = matches!(message, Up::Helped { copy: Some(_), .. });
        if let Up::Helped { page, help, .. } = message {
            redirector.journal.note_answer(page, holder, help);
        }
        let (driver, member) = redirector.member(from, number);
        let before = driver.counts();
        let handled = driver.member_up(member, (node, holder), message, now);
        let after = driver.counts();
        if is_copy && after.forged > before.forged {
            redirector.journal.note_forged(node, holder);
        }
        if is_copy && after.helped > before.helped {
            redirector.journal.note_helped(node, holder);
        }
        let is_wicked = self.is_wicked(from.0);
        self.count_redirector(pid, is_wicked);
        self.expect_handled((from, pid), is_to_be_rejected, handled);
    }

    /// A message of a member has been handled: the member is disconnected if it breaks the rules, and no other member does.
    pub(super) fn expect_handled(
        &mut self,
        (from, pid): (Address, Pid),
        is_to_be_rejected: bool,
        handled: model::Result<()>,
    ) {
        match handled {
            Ok(()) if is_to_be_rejected => {
                let (upper, lower) = (self.name(pid), self.name(from.0));
                self.oracle.report(format!("N1: {upper} accepts a message of {lower} that uses what is not its own"));
            }
            Err(_) if self.is_wicked(from.0) => {
                self.count.rejected += 1;
                self.cut(from.1);
            }
            handled => self.oracle.expect_accepted(handled),
        }
    }

    /// Adds what a redirector, or a peer server that is one, has done to the counters of the run. Only what a wicked member has done may be
    /// forged.
    pub(super) fn count_redirector(&mut self, pid: Pid, may_be_forged: bool) {
        let (now, counted) = match &mut self.processes[pid].machine {
            Some(ProcessMachine::Redirector(redirector)) => (redirector.driver.counts(), &mut redirector.counted),
            Some(ProcessMachine::Peer(peer)) => (peer.driver.cache_node().counts(), &mut peer.counted),
            _ => return,
        };
        let before = std::mem::replace(counted, now);
        self.count.peer_fetches += now.helped - before.helped;
        self.count.peer_updates += now.updates - before.updates;
        self.count.forgeries += now.forged - before.forged;
        if !may_be_forged {
            self.oracle.expect_no_forgery(now.forged - before.forged);
            self.oracle.expect_no_other_version(now.other_versions - before.other_versions);
        }
    }

    /// The server above sends a message in the tree of a logical node.
    pub(super) fn handle_redirector_down(
        &mut self,
        pid: Pid,
        (node, session): (NodeId, HolderId),
        message: Down<Object>,
    ) {
        let (now, may_be_forged) = (self.local_time(pid), self.may_show_forgery(&message));
        let Some(ProcessMachine::Redirector(redirector)) = &mut self.processes[pid].machine else { return };
        redirector.driver.upstream_down(node, session, message, now);
        self.count_redirector(pid, may_be_forged);
    }

    /// A call has come on a connection: one of a connection that has ended is lost.
    pub(super) fn handle_redirector_call(&mut self, (from, pid): (Pid, Pid), txn: TxnId, mut call: Call<Object>) {
        // A link to a redirector carries all trees.
        let Some(link) = self.net.between(from, pid, NodeId(0)) else { return };
        let number = self.number_of(from);
        let is_foreign = number != txn.client;
        if is_foreign && !self.is_wicked(from) {
            return;
        }
        let now = self.local_time(pid);
        let other = self.call_with_other_contents(from, &call);
        let elsewhere = other.map(|other| (txn, std::mem::replace(&mut call, other)));
        let Some(ProcessMachine::Redirector(redirector)) = &mut self.processes[pid].machine else { return };
        redirector.calls_elsewhere.extend(elsewhere);
        let (driver, member) = redirector.member((from, link), (number, false));
        let handled = driver.member_call(member, txn, call, now);
        // The number may be that of an earlier start of the same client.
        let is_to_be_rejected = is_foreign && self.members.get(&txn.client.0) != Some(&from);
        self.expect_handled(((from, link), pid), is_to_be_rejected, handled);
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
        // A member of a redirector below is told by that redirector.
        let mut members: Vec<Pid> = redirector.members.keys().map(|(member, _)| *member).collect();
        members.dedup();
        for member in members {
            self.send_datagram(pid, member, Datagram::Cluster(Message::Time(time_ms)));
        }
    }

    pub(super) fn drain_redirector(&mut self, pid: Pid) {
        let Some(ProcessMachine::Redirector(redirector)) = &mut self.processes[pid].machine else { return };
        let outputs: Vec<_> = redirector.driver.outputs().collect();
        let invariants = redirector.driver.check_invariants();
        self.oracle.expect_invariants(invariants);
        self.count_redirector(pid, false);
        for output in outputs {
            match output {
                Output::Up { node, holder, message } => {
                    let message = self.redirector_up(pid, message);
                    self.send_up(pid, node, holder, message);
                }
                Output::Call { from: (_, link), txn, call, .. } => {
                    let call = self.redirector_call(pid, txn, call);
                    let uplink = self.processes[pid].uplinks.first().and_then(|uplink| uplink.link);
                    if let Some(uplink) = uplink {
                        let upper = self.net.links[uplink].upper;
                        self.send_datagram(pid, upper, Datagram::MemberCall(link, txn, call));
                    }
                }
                Output::Down { node, holder, message, .. } => {
                    self.check_told(pid, holder, &message);
                    let is_update = matches!(message, Down::Invalidate { contents: Some(_), .. });
                    let below = self.members.get(&(holder.0 >> SESSION_BITS)).copied();
                    let is_chained = is_update && below.is_some_and(|below| self.is_redirector(below));
                    self.count.chained_updates += u64::from(is_chained);
                    if let Down::Help { page, help } = message {
                        self.note_help_asked(pid, (holder, page), help);
                    }
                    self.send_down(pid, node, holder, message);
                }
                Output::Reply { to, txn, reply } => {
                    self.check_may_get_reply(self.net.links[to.1].lower, &reply);
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

    /// Holders are sent messages about pages that they have, or fetch (R2).
    fn check_told(&mut self, pid: Pid, holder: HolderId, message: &Down<Object>) {
        let Some(ProcessMachine::Redirector(redirector)) = &self.processes[pid].machine else { return };
        if let Down::Invalidate { message, .. } = message
            && let Some(tree) = redirector.driver.cache_node().tree(message.page.node)
            && !tree.directory().holders(message.page).any(|one| one == holder)
        {
            self.oracle.report(format!(
                "R2: {holder:?} is sent a message about {:?}, for which it is not listed",
                message.page
            ));
        }
    }

    /// A redirector asks a holder for a copy.
    fn note_help_asked(&mut self, pid: Pid, (holder, page): (HolderId, PageId), help: FetchId) {
        let now = self.local_time(pid);
        let Some(ProcessMachine::Redirector(redirector)) = &mut self.processes[pid].machine else { return };
        let asked = redirector.journal.note_asked(page, holder, help, now);
        self.oracle.expect_invariants(asked);
        if let Some(helper) = self.members.get(&(holder.0 >> SESSION_BITS)).copied() {
            self.deny_copy(helper, (page.node, page), help);
        }
    }

    /// A message of a redirector to the server above; a write of a wicked member is what it has sent elsewhere.
    fn redirector_up(&mut self, pid: Pid, message: Up<Object>) -> Up<Object> {
        let now = self.local_time(pid);
        let Some(ProcessMachine::Redirector(redirector)) = &mut self.processes[pid].machine else { return message };
        match message {
            Up::Write { write, writes } => {
                let writes = redirector.writes_elsewhere.remove(&write).unwrap_or(writes);
                Up::Write { write, writes }
            }
            Up::Fetch { page, .. } => {
                redirector.journal.note_asked_above(page, now);
                message
            }
            message => message,
        }
    }

    /// A call that a redirector forwards; a commit of a wicked member is what it has sent elsewhere.
    fn redirector_call(&mut self, pid: Pid, txn: TxnId, call: Call<Object>) -> Call<Object> {
        let Some(ProcessMachine::Redirector(redirector)) = &mut self.processes[pid].machine else { return call };
        let elsewhere = redirector.calls_elsewhere.remove(&txn);
        elsewhere.filter(|_| matches!(call, Call::Commit { .. })).unwrap_or(call)
    }
}
