//! The users of clients, and what they may do: by the catalogue that ships, of which peer servers hear late.
//!
//! In runs whose plan changes permissions, each client below a peer server or a redirector has a user of its own, who may write at first.
//! A client that connects is admitted by the peer server; one below a redirector by the peer server of the redirector, where it has a
//! connection of its own. When a peer server hears of a newer catalogue, it checks its connections again and closes those of users who may do
//! less, within a moment.
//!
//! What users could do is recorded here once more, beside the catalogue. The checks go by this record:
//!
//! 1. A change that is stored, and an operation that is acknowledged, had the permission at some moment since the operation began.
//! 2. A page, an update, a locked object and a query's answer go to a client whose user may read, or could a moment ago.
//! 3. When a user may not read for longer than a lease, no server and no brick lists its sessions, it holds no locks, and its client may use
//!    no copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use check::history::{self, Kind, Outcome};
use meta::catalog::{
    self, ADMINISTRATORS, BrickRecord, Catalog, Permission, Permissions, PlacementRange, Quota, Space, Storage, User,
};
use meta::{Key, MetaEntry, MetaSnapshot, Revision};
use model::{Error, ErrorKind, FailurePolicy, NodeId, Object};
use node::drivers::peer::PeerClient;
use node::node_placement::BrickId;
use protocol::commit::Change;
use protocol::gateway::{Call, Reply};
use protocol::ident::TxnId;
use protocol::page_cache::FetchReply;
use protocol::tree::Down;
use serde::Serialize;
use serde_json::json;
use wire::handshake;
use wire::proto::request::Request;

use super::clock::START_MS;
use super::event::Event;
use super::net::{LinkId, Pid};
use super::process::ProcessMachine;
use super::rejections::Condition;
use super::{NOTICE_MS, RunFailure, World};
use crate::plan::{ProcessName, SPACE, UserRight};

/// The longest time until a peer server hears of a change, in milliseconds.
const NEWS_MS: u64 = 300;
/// How long a connection that is not admitted any more receives answers to its requests at most, as the server that ships lets it.
const DRAIN_MS: u64 = 500;
/// How long what a user could do may have an effect: until its connection has ended, and the end was noticed.
const GRACE_MS: u64 = DRAIN_MS + 2 * NOTICE_MS + 300;
/// The same for reads of copies: as long as leases last, by the slowest clock.
const LEASE_GRACE_MS: u64 = 12_000;
/// How much later than its beginning the time of a transaction may be, in milliseconds.
const TXN_AHEAD_MS: u64 = 8_000;
/// The name of the space, in which all objects are.
const SPACE_NAME: &str = "main";

/// The address of a client at a server: the process that has the connection, and the connection; of a member of a group, the redirector and
/// the connection of the member below it.
type Address = (Pid, LinkId);

/// The catalogue after a change, and what each user may do then.
struct UsersVersion {
    rights: BTreeMap<usize, UserRight>,
    policy: FailurePolicy,
    /// The bricks that serve logical nodes.
    bricks: Vec<BrickId>,
    catalog: Arc<Catalog>,
}

/// The users of a run.
pub(super) struct Users {
    versions: Vec<UsersVersion>,
    /// The versions that each peer server has known, and since when.
    known: BTreeMap<Pid, Vec<(u64, usize)>>,
    /// Since when each peer server that stops the space must do so; none of one that serves it.
    pub(super) stopped_since: BTreeMap<Pid, u64>,
}

/// A client that a peer server has admitted.
pub(super) struct AdmittedClient {
    pub(super) client: PeerClient<Address>,
    /// What it could do then.
    pub(super) permission: handshake::Permission,
}

/// What becomes of a client that connects.
pub(super) enum Admission {
    /// Nothing checks it.
    Unchecked,
    /// This peer server has admitted it.
    Admitted(Pid, Box<AdmittedClient>),
    Refused(Error),
    /// There is no connection to a peer server.
    Unavailable,
}

/// What becomes of a request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Allowed,
    /// It is not answered: the client has given its transaction up.
    Denied,
    /// The client tries again.
    Unconnected,
}

/// The name of the user of a client.
fn user_name(client: usize) -> String {
    format!("u{client}")
}

fn entry(key: &str, value: impl Serialize) -> (Key, MetaEntry) {
    let key = Key::new(key).unwrap_or_else(|error| panic!("{error}"));
    let value = serde_json::to_vec(&value).unwrap_or_else(|error| panic!("an entry of the catalogue: {error}"));
    (key, MetaEntry { value: Bytes::from(value), revision: Revision(1), session: None })
}

impl Users {
    fn rights(&self, version: usize, client: usize) -> UserRight {
        self.versions[version].rights.get(&client).copied().unwrap_or(UserRight::Removed)
    }

    /// Whether a peer server knew a catalogue, at some moment of this time, by which the user of a client had this permission.
    fn could(&self, client: usize, needed: UserRight, time: (u64, u64)) -> bool {
        self.was_known(time, |version| self.rights(version, client) >= needed)
    }

    /// Whether a peer server knew one, at some moment of this time, by which the user could not write.
    fn could_not_write(&self, client: usize, time: (u64, u64)) -> bool {
        self.was_known(time, |version| self.rights(version, client) < UserRight::Write)
    }

    /// Whether a peer server knew such a version at some moment of this time.
    fn was_known(&self, (from, to): (u64, u64), is_wanted: impl Fn(usize) -> bool) -> bool {
        self.known.values().any(|known| {
            known.iter().enumerate().any(|(at, (since, version))| {
                let until = known.get(at + 1).map_or(u64::MAX, |(next, _)| *next);
                *since <= to && until >= from && is_wanted(*version)
            })
        })
    }

    /// The catalogue with these permissions.
    fn catalog(
        revision: u64,
        (rights, policy): (&BTreeMap<usize, UserRight>, FailurePolicy),
        placement: &BTreeMap<NodeId, catalog::NodePlacement>,
        bricks: usize,
    ) -> Catalog {
        let user = |name: String, groups: &[&str]| User {
            name,
            password: None,
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            disabled: false,
        };
        let permission = |right: &UserRight| match right {
            UserRight::Removed | UserRight::None => None,
            UserRight::Read => Some(Permission::Read),
            UserRight::Write => Some(Permission::Write),
        };
        let permitted = rights.iter().filter_map(|(client, right)| Some((user_name(*client), permission(right)?)));
        let space = Space {
            id: SPACE,
            name: SPACE_NAME.to_owned(),
            first_node: NodeId(1),
            nodes: placement.len() as u32,
            storage: Storage::Durable,
            policy,
            quota: Quota::default(),
            removals: catalog::Removals::default(),
            read_only: false,
            clone_of: None,
            permissions: Permissions { users: permitted.collect(), groups: BTreeMap::new() },
        };
        let mut entries = vec![
            entry("users/root", user("root".to_owned(), &[ADMINISTRATORS])),
            entry("spaces/main", space),
            entry("map", json!({ "next": revision })),
        ];
        let range = PlacementRange { first: NodeId(1), nodes: placement.values().cloned().collect() };
        entries.push(entry(&format!("placement/{}/0", SPACE.0), range));
        for number in 1..=bricks {
            let (id, addresses) = (catalog::BrickId(number as u32), vec![format!("127.0.0.1:{}", 7_000 + number)]);
            let record = BrickRecord { id, addresses, storage: Storage::Durable, leaving: false };
            entries.push(entry(&format!("bricks/{number}"), record));
        }
        for (client, _) in rights.iter().filter(|(_, right)| **right != UserRight::Removed) {
            let name = user_name(*client);
            entries.push(entry(&format!("users/{name}"), user(name.clone(), &[])));
        }
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        let catalog = Catalog::load(&MetaSnapshot { revision: Revision(revision), entries });
        let invalid: Vec<_> = catalog.invalid_entries().collect();
        assert!(invalid.is_empty(), "the catalogue of a run is valid: {invalid:?}");
        catalog
    }
}

impl World {
    // ------------------------------------------------------------------------------------------ the catalogue

    /// The users of the clients of a plan that changes their permissions: all may write.
    pub(super) fn begin_users(&mut self) {
        if self.plan.has_users() {
            self.users = Some(Users { versions: Vec::new(), known: BTreeMap::new(), stopped_since: BTreeMap::new() });
            let rights = (1..=self.plan.cluster.clients).map(|client| (client, UserRight::Write)).collect();
            self.add_users_version(rights, FailurePolicy::Continue);
        }
    }

    fn add_users_version(&mut self, rights: BTreeMap<usize, UserRight>, policy: FailurePolicy) {
        let (bricks, placement) = (self.plan.cluster.bricks, self.placement.nodes());
        let Some(users) = &mut self.users else { return };
        let revision = users.versions.len() as u64 + 1;
        let catalog = Arc::new(Users::catalog(revision, (&rights, policy), placement, bricks));
        let bricks = placement.values().map(|placed| BrickId(placed.brick.0)).collect();
        users.versions.push(UsersVersion { rights, policy, bricks, catalog });
    }

    /// The user of a client may do this from now on.
    pub(super) fn permit(&mut self, client: usize, right: UserRight) {
        let Some(users) = &self.users else { return };
        let Some(UsersVersion { rights, policy, .. }) = users.versions.last() else { return };
        let (mut rights, policy) = (rights.clone(), *policy);
        rights.insert(client, right);
        self.add_users_version(rights, policy);
        self.tell_users();
    }

    /// From now on this happens when a brick is away.
    pub(super) fn set_policy(&mut self, policy: FailurePolicy) {
        let newest = self.users.as_ref().and_then(|users| users.versions.last());
        if let Some(rights) = newest.map(|newest| newest.rights.clone()) {
            self.add_users_version(rights, policy);
            self.tell_users();
        }
    }

    /// Peer servers hear of the newest catalogue at different times.
    fn tell_users(&mut self) {
        for pid in 0..self.processes.len() {
            if matches!(self.processes[pid].machine, Some(ProcessMachine::Peer(_))) {
                let (at, life) = (self.now + self.net.chance(pid, (1, NEWS_MS)), self.processes[pid].incarnation);
                self.push(at, Event::Users(pid, life, self.newest_users()));
            }
        }
    }

    fn newest_users(&self) -> usize {
        self.users.as_ref().map_or(0, |users| users.versions.len() - 1)
    }

    /// A peer server that starts has read the catalogue. It waits for its first connections to bricks before it stops a space.
    pub(super) fn read_users(&mut self, pid: Pid) {
        if let Some(users) = &mut self.users {
            users.stopped_since.remove(&pid);
            self.apply_users(pid, self.newest_users());
        }
    }

    /// A peer server hears of a catalogue, perhaps after a newer one.
    pub(super) fn handle_users(&mut self, pid: Pid, life: u64, version: usize) {
        if self.processes[pid].incarnation == life && self.known_users(pid).is_none_or(|known| known < version) {
            self.apply_users(pid, version);
        }
    }

    /// The bricks, as a peer server knows, without which the space stops.
    pub(super) fn needed_bricks(&self, pid: Pid) -> Vec<BrickId> {
        let known = self.users.as_ref().zip(self.known_users(pid)).map(|(users, version)| &users.versions[version]);
        let stops = known.filter(|version| version.policy == FailurePolicy::FailStop);
        stops.map_or_else(Vec::new, |version| version.bricks.clone())
    }

    /// Logical nodes are placed elsewhere: the catalogue says so, too.
    pub(super) fn note_placement(&mut self) {
        let newest = self.users.as_ref().and_then(|users| users.versions.last());
        if let Some((rights, policy)) = newest.map(|newest| (newest.rights.clone(), newest.policy)) {
            self.add_users_version(rights, policy);
            self.tell_users();
        }
    }

    /// The version that a peer server knows.
    fn known_users(&self, pid: Pid) -> Option<usize> {
        Some(self.users.as_ref()?.known.get(&pid)?.last()?.1)
    }

    /// A peer server checks its connections by a newer catalogue.
    fn apply_users(&mut self, pid: Pid, version: usize) {
        let Some(users) = &mut self.users else { return };
        let Some(ProcessMachine::Peer(peer)) = &mut self.processes[pid].machine else { return };
        users.known.entry(pid).or_default().push((self.now, version));
        let catalog = &users.versions[version].catalog;
        peer.driver.set_catalog(catalog);
        let catalog = catalog.clone();
        let revoked: Vec<LinkId> = peer.revoked(&catalog).map(|(_, link)| link).collect();
        let life = self.processes[pid].incarnation;
        self.note(|world| format!("{} knows version {version} of the users", world.name(pid)));
        self.update_status(pid);
        for link in revoked {
            self.count.closed_for_users += 1;
            let late = self.net.chance(pid, (0, DRAIN_MS));
            self.push(self.now + late, Event::HangUp(pid, life, link));
        }
    }

    /// A peer server closes a connection, or the one that a redirector has in the name of a member; the redirector closes the member's then.
    pub(super) fn hang_up(&mut self, pid: Pid, life: u64, link: LinkId) {
        if self.processes[pid].incarnation == life {
            self.cut(link);
        }
    }

    // ------------------------------------------------------------------------------------------ connections

    /// The number of a client that has a user.
    pub(super) fn user_of(&self, pid: Pid) -> Option<usize> {
        let process = &self.processes[pid];
        let is_below = self.users.is_some() && process.uplinks.iter().all(|uplink| uplink.node.is_none());
        match process.place {
            ProcessName::Client(number) if is_below => Some(number),
            _ => None,
        }
    }

    /// The servers from this one upward: redirectors that are connected to each other, and the peer server at their end.
    fn servers_above(&self, first: Pid) -> Option<Vec<Pid>> {
        let mut servers = vec![first];
        let mut last = first;
        while matches!(self.processes[last].place, ProcessName::Redirector(_)) {
            last = self.net.links[self.processes[last].uplinks.first()?.link?].upper;
            servers.push(last);
        }
        matches!(self.processes[last].machine, Some(ProcessMachine::Peer(_))).then_some(servers)
    }

    /// The peer server to which a client that is connected to this server by a link has a connection, or a connection in its name, and its address
    /// there.
    fn peer_address(&self, upper: Pid, (client, link): Address) -> Option<(Pid, Address)> {
        match self.servers_above(upper)?[..] {
            [peer] => Some((peer, (client, link))),
            [.., redirector, peer] => Some((peer, (redirector, link))),
            [] => None,
        }
    }

    /// Whether a client that connects to a process now, by this link, is admitted.
    pub(super) fn admission(&self, pid: Pid, upper: Pid, link: LinkId) -> Admission {
        let (Some(user), Some(users)) = (self.user_of(pid), &self.users) else { return Admission::Unchecked };
        let peer = self.peer_address(upper, (pid, link)).filter(|(at, _)| !self.is_refused(*at));
        let Some((at, address)) = peer else { return Admission::Unavailable };
        let (Some(ProcessMachine::Peer(peer)), Some(version)) = (&self.processes[at].machine, self.known_users(at))
        else {
            return Admission::Unavailable;
        };
        let catalog = &users.versions[version].catalog;
        match PeerClient::admit(address, peer.space.clone(), &user_name(user), self.number_of(pid), catalog) {
            Ok((client, permission)) => Admission::Admitted(at, Box::new(AdmittedClient { client, permission })),
            Err(error) => Admission::Refused(error),
        }
    }

    /// A client is admitted: the peer server knows it, and so do the redirectors between them.
    pub(super) fn join(&mut self, (pid, upper, link): (Pid, Pid, LinkId), at: Pid, admitted: AdmittedClient) {
        self.note_admitted(pid);
        let (number, may_write) = (self.number_of(pid), admitted.permission >= handshake::Permission::Write);
        let mut below = pid;
        for server in self.servers_above(upper).unwrap_or_default() {
            if let Some(ProcessMachine::Redirector(redirector)) = &mut self.processes[server].machine {
                redirector.add_member((below, link), number, may_write);
            }
            below = server;
        }
        if let Some(ProcessMachine::Peer(peer)) = &mut self.processes[at].machine {
            peer.add_client(admitted);
        }
    }

    /// A client is admitted that was refused before. What it has begun meanwhile it gives up soon.
    fn note_admitted(&mut self, pid: Pid) {
        let now = self.now;
        self.rejections.set(Condition::Refused(pid), false, now);
        if let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine
            && client.driver.check_serving().is_err()
        {
            client.refused_until = Some(now);
        }
    }

    /// A client is refused: it knows that, and tries again.
    pub(super) fn refuse(&mut self, pid: Pid, error: &Error) {
        self.count.refused_clients += 1;
        self.rejections.set(Condition::Refused(pid), true, self.now);
        let now = self.local_time(pid);
        if let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine {
            client.driver.handle_refused(error, now);
        }
    }

    /// A connection to a redirector has ended: those in the member's name end, too, at all servers above. If the member is a redirector, these are
    /// the connections in the names of its members.
    pub(super) fn end_member(&mut self, redirector: Pid, link: LinkId) {
        if !matches!(self.processes[redirector].place, ProcessName::Redirector(_)) {
            return;
        }
        let links: Vec<LinkId> = [link].into_iter().chain(self.links_below(self.net.links[link].lower)).collect();
        let uppers: Vec<Pid> = self.processes[redirector].uplinks.iter().flat_map(|up| up.choices.clone()).collect();
        for pid in 0..self.processes.len() {
            let addressed: Vec<Pid> = match self.processes[pid].machine {
                Some(ProcessMachine::Peer(_)) if uppers.contains(&pid) => vec![redirector],
                Some(ProcessMachine::Peer(_)) => uppers.clone(),
                Some(ProcessMachine::Redirector(_)) if uppers.contains(&pid) => vec![redirector],
                _ => continue,
            };
            let (at, life) = (self.now + self.net.chance(pid, (1, NOTICE_MS)), self.processes[pid].incarnation);
            for below in addressed {
                links.iter().for_each(|link| self.push(at, Event::MemberGone(pid, life, (below, *link))));
            }
        }
    }

    /// The connections from below to a redirector.
    fn links_below(&self, pid: Pid) -> Vec<LinkId> {
        match self.processes[pid].place {
            ProcessName::Redirector(_) => {
                self.net.links_of(pid).into_iter().filter(|link| self.net.links[*link].upper == pid).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The connection in a member's name has ended.
    pub(super) fn handle_member_gone(&mut self, pid: Pid, life: u64, address: Address) {
        let now = self.local_time(pid);
        if self.processes[pid].incarnation != life {
            return;
        }
        match &mut self.processes[pid].machine {
            Some(ProcessMachine::Peer(peer)) => {
                if !peer.remove_client(&address, now) {
                    return;
                }
            }
            Some(ProcessMachine::Redirector(redirector)) => redirector.handle_disconnected(address, now),
            _ => return,
        }
        self.drain_process(pid);
    }

    /// A redirector has lost the server above it, and with that the connections in the names of its members.
    pub(super) fn end_members(&mut self, redirector: Pid) {
        if self.users.is_none() || !matches!(self.processes[redirector].place, ProcessName::Redirector(_)) {
            return;
        }
        self.links_below(redirector).into_iter().for_each(|link| self.cut(link));
    }

    /// A redirector passes the call of a member on, by the member's own connection.
    pub(super) fn handle_member_call(&mut self, (from, pid): (Pid, Pid), link: LinkId, txn: TxnId, call: Call<Object>) {
        // What the redirector is connected by is lost with the connections in the names of members.
        if self.net.between(from, pid, NodeId(0)).is_none() || !self.net.links[link].alive {
            return;
        }
        let (now, member) = (self.local_time(pid), self.net.links[link].lower);
        let (number, is_checked) = (self.number_of(member), self.user_of(member).is_some());
        if let Some(ProcessMachine::Redirector(redirector)) = &mut self.processes[pid].machine {
            let handled = redirector.member_call((from, link), (number, is_checked), (txn, call), now);
            return self.expect_handled(((member, link), pid), false, handled);
        }
        let Some(ProcessMachine::Peer(peer)) = &mut self.processes[pid].machine else { return };
        let handled = peer.member_call((from, link), (number, is_checked), (txn, call), now);
        self.expect_served((from, pid), handled);
    }

    /// The peer server that a client is connected to, or its redirector, and its address there.
    pub(super) fn address_above(&self, pid: Pid) -> Option<(Pid, Address)> {
        let link = self.processes[pid].uplinks.first()?.link.filter(|link| self.net.links[*link].alive)?;
        self.peer_address(self.net.links[link].upper, (pid, link))
    }

    /// Checks that a client may ask this now, by the table of the peer server. `None` if it is not connected to one.
    pub(super) fn check_request(&self, pid: Pid, request: Request) -> Option<model::Result<()>> {
        if self.user_of(pid).is_none() {
            return Some(Ok(()));
        }
        let (at, address) = self.address_above(pid)?;
        match &self.processes[at].machine {
            Some(ProcessMachine::Peer(peer)) => peer.check_request(&address, request),
            _ => None,
        }
    }

    /// Whether a client may ask this now. It gives its transaction up if it may not, and tries again later if it is not connected.
    pub(super) fn may_request(&mut self, pid: Pid, request: Request, retry_ms: u64) -> Asked {
        match self.check_request(pid, request) {
            Some(Ok(())) => Asked::Allowed,
            Some(Err(error)) if error.kind() == ErrorKind::Stopped => {
                self.give_up(pid, ErrorKind::Stopped);
                Asked::Denied
            }
            Some(Err(_)) => {
                self.give_up(pid, ErrorKind::Denied);
                Asked::Denied
            }
            None => match self.why_not_served(pid) {
                // A client that no peer server admits, or whose space is stopped as far as it knows, waits for none.
                Some(kind) => {
                    self.give_up(pid, kind);
                    Asked::Denied
                }
                None => {
                    self.push_timer(self.now + retry_ms, pid, self.processes[pid].incarnation);
                    Asked::Unconnected
                }
            },
        }
    }

    /// Why a client knows that it is not served, if it is not.
    fn why_not_served(&self, pid: Pid) -> Option<ErrorKind> {
        let Some(ProcessMachine::Client(client)) = &self.processes[pid].machine else { return None };
        client.driver.check_serving().err().map(|error| error.kind())
    }

    /// A peer server refuses a message of a client: it closes the connection, if it knows that the user may not read.
    pub(super) fn is_rightly_denied(&self, (from, pid): (Pid, Pid), error: &Error) -> bool {
        let (Some(user), Some(users)) = (self.user_of(from), &self.users) else { return false };
        let known = self.known_users(pid).map(|version| users.rights(version, user));
        error.kind() == ErrorKind::Denied && known.is_some_and(|right| right < UserRight::Read)
    }

    // ------------------------------------------------------------------------------------------ checks

    fn user_could(&self, pid: Pid, needed: UserRight, since: u64) -> bool {
        let (Some(user), Some(users)) = (self.user_of(pid), &self.users) else { return true };
        users.could(user, needed, (since, self.now))
    }

    /// Whether a peer server knew, at some moment since then, that the user of a client could not write.
    pub(super) fn user_could_not(&self, pid: Pid, since: u64) -> bool {
        let (Some(user), Some(users)) = (self.user_of(pid), &self.users) else { return false };
        users.could_not_write(user, (since, self.now))
    }

    /// A brick has stored a change.
    pub(super) fn check_permitted_change(&mut self, change: &Change<Object>) {
        if self.users.is_none() {
            return;
        }
        let Some(pid) = self.members.get(&change.txn.client.0).copied() else { return };
        let began = (change.txn.start.ms().saturating_sub(START_MS)).saturating_sub(TXN_AHEAD_MS);
        let since = match &self.processes[pid].machine {
            Some(ProcessMachine::Client(client)) if client.current_txn().is_some_and(|(_, txn)| txn == change.txn) => {
                client.current_record().map_or(began, |record| record.invoked)
            }
            _ => began,
        };
        if !self.user_could(pid, UserRight::Write, since.saturating_sub(GRACE_MS)) {
            let (name, txn) = (self.name(pid), change.txn);
            self.oracle.report(format!("A1: {txn:?} of {name} is stored, and its user could not write since it began"));
        }
    }

    /// An operation of a client has ended.
    pub(super) fn check_permitted_operation(&mut self, pid: Pid, operation: &history::Operation) {
        // A transaction that has read and written nothing sends no message, so no server checks its permission.
        if operation.outcome != Outcome::Ok || operation.steps.is_empty() || self.users.is_none() {
            return;
        }
        if operation.kind == Kind::Read && self.reads_own_write(operation) {
            return;
        }
        let writes = operation.steps.iter().any(|step| !matches!(step, history::Step::Read(..)));
        let (needed, grace_ms) = match operation.kind {
            // What a client has copied it may read until its lease ends.
            Kind::Read | Kind::Snapshot => (UserRight::Read, LEASE_GRACE_MS),
            _ if writes => (UserRight::Write, GRACE_MS),
            _ => (UserRight::Read, GRACE_MS),
        };
        if !self.user_could(pid, needed, operation.invoked.saturating_sub(grace_ms)) {
            let (name, number) = (self.name(pid), operation.number);
            self.oracle.report(format!(
                "A1: operation {number} of {name} is acknowledged, and its user had no permission to {} since it began",
                needed.name()
            ));
        }
    }

    /// Whether an operation reads what its client has written itself, perhaps not stored yet.
    fn reads_own_write(&self, operation: &history::Operation) -> bool {
        let is_own = |number: i64| {
            let written = self.history.operations.iter().rev().find(|one| one.number as i64 == number);
            written.is_some_and(|one| one.client == operation.client)
        };
        let numbers = operation.steps.iter().filter_map(|step| match step {
            history::Step::Read(_, history::Value::Integer(number)) => Some(*number),
            _ => None,
        });
        numbers.into_iter().any(is_own)
    }

    /// Since when what is sent now may have waited: in a process that was frozen until a moment ago, as long as it was frozen.
    fn earliest_waiting(&self) -> u64 {
        let thawed = self.processes.iter().filter(|process| process.frozen_until + GRACE_MS > self.now);
        thawed.map(|process| process.frozen_from).fold(self.now, u64::min)
    }

    /// A server sends objects to a client.
    pub(super) fn check_may_get(&mut self, pid: Pid, what: &str) {
        if self.users.is_some()
            && !self.user_could(pid, UserRight::Read, self.earliest_waiting().saturating_sub(GRACE_MS))
        {
            let name = self.name(pid);
            self.oracle.report(format!("A2: {name} is sent {what}, and its user may not read"));
        }
    }

    /// A message of a cache tree goes to a process below.
    pub(super) fn check_may_get_down(&mut self, pid: Pid, message: &Down<Object>) {
        match message {
            Down::Fetched { reply: FetchReply::Page(_), .. } => self.check_may_get(pid, "a page"),
            Down::Invalidate { contents: Some(_), .. } => self.check_may_get(pid, "an update"),
            _ => {}
        }
    }

    /// The reply to a call goes to a client.
    pub(super) fn check_may_get_reply(&mut self, pid: Pid, reply: &Reply<Object>) {
        if matches!(reply, Reply::Locked(_)) {
            self.check_may_get(pid, "a locked object");
        }
    }

    /// Removes reads of a client's own writes outside of transactions whose outcome the client does not know: it sees its writes while they are
    /// under way. Those of one that is not admitted any more, or whose space is stopped, may be stored long after it has read them, or never.
    pub(super) fn drop_reads_of_lost_writes(&mut self) {
        if self.users.is_none() {
            return;
        }
        let is_lost = |one: &&history::Operation| one.kind == Kind::Write && one.outcome == Outcome::Unknown;
        let lost: BTreeMap<i64, u64> =
            self.history.operations.iter().filter(is_lost).map(|one| (one.number as i64, one.client)).collect();
        self.history.operations.retain(|one| {
            let is_own = |step: &history::Step| {
                matches!(step, history::Step::Read(_, history::Value::Integer(number)) if lost.get(number) == Some(&one.client))
            };
            one.kind != Kind::Read || !one.steps.iter().any(is_own)
        });
    }

    /// Users who may not read for longer than a lease have nothing left.
    pub(super) fn check_revoked_users(&self) -> Result<(), RunFailure> {
        for (pid, process) in self.processes.iter().enumerate() {
            let since = self.now.saturating_sub(2 * LEASE_GRACE_MS);
            if self.user_could(pid, UserRight::Read, since) {
                continue;
            }
            let Some(ProcessMachine::Client(client)) = &process.machine else { continue };
            let shown = process.clock.show(self.now);
            let mut copies = client.driver.session().cache().copies();
            if let Some((page, _)) = copies.find(|(page, _)| client.driver.session().may_use(page.node, shown)) {
                return Err(RunFailure::Rule(format!(
                    "A3: {} may use {page:?}, and its user may not read",
                    process.place
                )));
            }
            self.check_nothing_left(pid)?;
        }
        Ok(())
    }

    /// No server lists a session of a client, and no brick a lock.
    fn check_nothing_left(&self, client: Pid) -> Result<(), RunFailure> {
        let name = self.name(client);
        for process in &self.processes {
            match &process.machine {
                Some(ProcessMachine::Peer(peer)) if peer.links().any(|link| self.net.links[link].lower == client) => {
                    let what = format!("A3: {name} is connected to {}, and its user may not read", process.place);
                    return Err(RunFailure::Rule(what));
                }
                Some(ProcessMachine::Driven(driven)) => {
                    let mut locking = driven.brick.locking_txns();
                    if let Some(txn) = locking.find(|txn| self.members.get(&txn.client.0) == Some(&client)) {
                        let what =
                            format!("A3: {txn:?} of {name} has locks at {}, and its user may not read", process.place);
                        return Err(RunFailure::Rule(what));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}
