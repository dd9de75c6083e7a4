//! A client of a peer server: what it may say, and what it asks beside the rules.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use meta::Revision;
use meta::catalog::Permission;
use model::{Error, ErrorKind, NodeId, Object, Oid, PageId, Result, limits};
use protocol::commit::Refusal;
use protocol::gateway::Call;
use protocol::ident::{ClientId, HlcTimestamp, HolderId, TxnId};
use protocol::locks::LockMode;
use protocol::page_cache::ObjectState;
use protocol::tree::{Down, Up};
use tracing::info;
use wire::cluster::{self, Message, policy_to_proto};
use wire::convert;
use wire::driving::PeerHandle;
use wire::frame::Raw;
use wire::link::{Incoming, Responder, Service};
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;

use super::cache::CachedObject;
use super::query::Queries;
use super::{PeerDriver, PeerRole, SESSION_BITS, classes, moves};
use crate::auth::{Principal, administer, set_space, space_options};
use crate::brick::SKEW_MS;
use crate::cluster_view::SpaceView;
use crate::meta::call_timeout;
use crate::server::{Thread, kind_index, spawn_reply};

/// Pages that a client may reserve at a time.
const MAX_RESERVED: u32 = 1 << 16;
/// Numbers that a client may take at a time.
const MAX_NUMBERS: u32 = 16;

/// The requests of one client.
pub(crate) struct ClientConnection {
    peer: Arc<PeerDriver>,
    space: Arc<SpaceView>,
    handle: PeerHandle,
    thread: Arc<Thread<PeerRole>>,
    /// The number of the client, once it has said one: that of its session numbers and transactions.
    client_number: Option<u64>,
    queries: Queries,
    principal: Principal,
    /// How long it waits for what takes the catalogue, if it has said so.
    catalog_timeout: Option<Duration>,
    /// What it may do in the space, as of a revision of the catalogue.
    permission: Cell<Option<(Revision, Option<Permission>)>>,
}

/// What a client has when it is let in.
pub(crate) struct Admission {
    /// The space that it is about; none, with number 0, for what concerns the whole cluster.
    pub(super) space: Arc<SpaceView>,
    pub(super) principal: Principal,
    pub(super) catalog_timeout: Option<Duration>,
}

impl ClientConnection {
    pub(super) fn new(peer: Arc<PeerDriver>, pass: Admission, post: PeerHandle, thread: Arc<Thread<PeerRole>>) -> Self {
        let Admission { space, principal: who, catalog_timeout: patience } = pass;
        let (queries, permission) = (Queries::default(), Cell::new(None));
        Self {
            peer,
            space,
            handle: post,
            thread,
            client_number: None,
            queries,
            principal: who,
            catalog_timeout: patience,
            permission,
        }
    }

    /// Answers once the catalogue has been asked, or changed, or the client's patience ends.
    fn spawn_reply(&self, reply: Responder<'_>, work: impl Future<Output = Result<Response>> + Send + 'static) {
        match self.catalog_timeout {
            Some(patience) => spawn_reply(reply, call_timeout::with_timeout(patience, work)),
            None => spawn_reply(reply, work),
        }
    }

    /// Whether the client may do something in its space, as the catalogue says now.
    fn check_permission(&self, needed: Permission) -> Result<()> {
        let Some(catalog) = self.peer.cluster_view.load_catalog() else { return Ok(()) };
        let permission = match self.permission.get() {
            Some((at, permission)) if at == catalog.revision() => permission,
            _ => {
                let permission = self.principal.permission(Some(&catalog), &self.space.name);
                self.permission.set(Some((catalog.revision(), permission)));
                permission
            }
        };
        if permission >= Some(needed) {
            return Ok(());
        }
        self.principal.check_permission(needed, Some(&catalog), &self.space.name)
    }

    /// Whether the client may do something with objects of its space now, and anybody may.
    fn check_work_permission(&self, needed: Permission) -> Result<()> {
        self.check_permission(needed)?;
        self.peer.space_statuses.check(self.space.id)
    }

    /// Whether the client may do everything, as the catalogue says now.
    fn check_administrator(&self) -> Result<()> {
        self.principal.check_administrator(self.peer.cluster_view.load_catalog().as_deref().map(|catalog| &**catalog))
    }

    /// Tells a client that it may not write what it writes outside of transactions, and that this is over.
    fn deny_write(&self, (node, holder, write): (NodeId, HolderId, TxnId), why: &Error) {
        self.handle.send(&refusal(node, write, why));
        let over = Down::Written { write, result: Err(Refusal::TooOld) };
        self.handle.send(&Message::Down { node, holder, message: over });
    }

    /// Tells a client that what it calls for is refused, and finds out how the transaction has ended: it may have been
    /// committed before, when that was not so. If not, it never will be.
    fn refuse_call(&self, txn: TxnId, participants: Vec<NodeId>, why: &Error) -> Result<()> {
        let node = participants.first().copied().unwrap_or(NodeId(0));
        self.handle.send(&refusal(node, txn, why));
        let post = self.handle.clone();
        let resolve = Call::Resolve { participants };
        let called = self.peer.with_state(|state, now| state.node.handle_call(post, txn, resolve, now))?;
        called.map(drop).map_err(invalid_message_error)
    }

    /// A message of the rules.
    fn handle_message(&mut self, message: Message) -> Result<()> {
        match message {
            Message::Up { node, holder, message, .. } => {
                self.check_own_number(holder.0 >> SESSION_BITS)?;
                self.check_pages(node, pages_of(&message))?;
                self.check_sender(&message)?;
                // In a space that is stopped too: a write may be said again, and what was begun is finished in its order (N1).
                // Clients begin no others then.
                if let Up::Write { write, .. } = &message
                    && let Err(denied) = self.check_permission(Permission::Write)
                {
                    self.deny_write((node, holder, *write), &denied);
                    return Ok(());
                }
                self.check_permission(Permission::Read)?;
                let post = &self.handle;
                self.peer.with_state(|state, now| {
                    if matches!(message, Up::Renew { .. }) {
                        state.holders.insert(holder, post.clone());
                    }
                    state.node.handle_up(node, holder, message, now).map_err(invalid_message_error)
                })?
            }
            Message::Call { txn, call } => {
                self.check_own_number(txn.client.0)?;
                self.check_call_pages(&call)?;
                self.check_clock(txn.start)?;
                if let Some((needed, participants)) = required_permission(&call)
                    && let Err(refused) = self.check_work_permission(needed)
                {
                    return self.refuse_call(txn, participants, &refused);
                }
                match &call {
                    Call::Commit { parts, .. } => {
                        let contents = parts.values().flat_map(|part| part.writes.values());
                        let objects = parts.values().map(|part| part.writes.len() + part.touches.len()).sum();
                        limits::check_writes(objects, bytes_of(contents))?;
                    }
                    Call::Check { seen, .. } => self.check_clock(*seen)?,
                    _ => {}
                }
                let post = self.handle.clone();
                let called = self.peer.with_state(|state, now| state.node.handle_call(post, txn, call, now))?;
                called.map(drop).map_err(invalid_message_error)
            }
            Message::Watch => {
                if self.space.nodes.is_empty() {
                    return Err(Error::new(ErrorKind::Invalid, "a connection that names no space watches none"));
                }
                self.check_permission(Permission::Read)?;
                self.peer.space_statuses.watch(self.space.id, &self.handle);
                Ok(())
            }
            _ => Err(Error::new(ErrorKind::Invalid, "this message is not for a peer server")),
        }
    }

    /// Whether this is the number of this client. The first that it says is, if no client of another space has it; one that
    /// comes again takes the place of its connection of before.
    fn check_own_number(&mut self, number: u64) -> Result<()> {
        let foreign =
            || Error::new(ErrorKind::Denied, "a client speaks of the sessions or transactions of another one");
        if let Some(own) = self.client_number {
            return if own == number { Ok(()) } else { Err(foreign()) };
        }
        let (post, space) = (self.handle.clone(), self.space.id);
        self.peer.with_state(|state, _| match state.clients.get(&ClientId(number)) {
            _ if number == self.peer.start => Err(foreign()),
            Some((_, other)) if *other != space => Err(foreign()),
            before => {
                if let Some((before, _)) = before {
                    before.hang_up();
                }
                state.clients.insert(ClientId(number), (post, space));
                Ok(())
            }
        })??;
        self.client_number = Some(number);
        Ok(())
    }

    /// Whether a message names no one else's sessions or writes.
    fn check_sender(&mut self, message: &Up<Object>) -> Result<()> {
        match message {
            Up::Renew { replaces: Some(before), .. } => self.check_own_number(before.0 >> SESSION_BITS),
            Up::Write { write, writes } => {
                self.check_own_number(write.client.0)?;
                self.check_clock(write.start)?;
                limits::check_writes(writes.len(), bytes_of(writes.values()))
            }
            _ => Ok(()),
        }
    }

    /// Whether a time is not further ahead than clients' clocks may be: less than those of processes, which would else not
    /// believe each other.
    fn check_clock(&self, at: HlcTimestamp) -> Result<()> {
        let (now, ahead) = (self.peer.time.now(), at.ms());
        if ahead <= now + SKEW_MS / 2 {
            return Ok(());
        }
        let what =
            format!("the client's clock is {} ms ahead of the peer server's: set one of them right", ahead - now);
        Err(Error::new(ErrorKind::Invalid, what))
    }

    /// Whether pages are of this client's space, and of a logical node of it.
    fn check_pages(&self, node: NodeId, pages: impl IntoIterator<Item = PageId>) -> Result<()> {
        let elsewhere = pages.into_iter().find(|page| page.space != self.space.id || page.node != node);
        if let Some(page) = elsewhere {
            let what = format!("page {page:?} is not of space {} and logical node {:x}", self.space.name, node.0);
            return Err(Error::new(ErrorKind::Denied, what));
        }
        if !self.space.nodes.contains(&node) {
            let what = format!("space {} has no logical node {:x}", self.space.name, node.0);
            return Err(Error::new(ErrorKind::NotFound, what));
        }
        Ok(())
    }

    fn check_call_pages(&self, call: &Call<model::Object>) -> Result<()> {
        match call {
            Call::Commit { parts, .. } => parts.iter().try_for_each(|(node, part)| {
                let reads = part.reads.iter().map(|read| read.oid.page());
                let changes = part.writes.keys().chain(&part.touches);
                self.check_pages(*node, reads.chain(changes.map(|oid| oid.page())))
            }),
            Call::Check { reads, .. } => reads
                .iter()
                .try_for_each(|(node, reads)| self.check_pages(*node, reads.iter().map(|read| read.oid.page()))),
            Call::Lock { oid, .. } => self.check_pages(oid.page().node, [oid.page()]),
            Call::Resolve { participants } | Call::Release { participants } => {
                participants.iter().try_for_each(|node| self.check_pages(*node, []))
            }
        }
    }

    // -------------------------------------------------------------------------------------------- beside the rules

    /// Passes a request on to the brick of a logical node, and its answer back.
    fn forward(&self, node: NodeId, request: Request, reply: Responder<'_>) {
        match self.peer.brick_of(node) {
            Ok(brick) => self.peer.brick_links.forward(brick, request, reply.defer()),
            Err(error) => reply.fail(&error),
        }
    }

    /// Reads an object in the cache of this peer server.
    fn read_cached(&self, oid: Oid, reply: Responder<'_>) {
        match self.peer.read_cached(oid) {
            Ok(Some(found)) => reply.send_slice(object_response(&found), found.data()),
            Ok(None) => {
                let deferred = reply.defer();
                self.peer.read_when_cached(oid, move |found| match found {
                    Ok(found) => deferred.send(object_response(&found), vec![found.data().clone()]),
                    Err(error) => deferred.fail(&error),
                });
            }
            Err(error) => reply.fail(&error),
        }
    }

    /// Says or changes who may do what.
    fn administer(&self, wanted: proto::account::Administer, reply: Responder<'_>) {
        let (realm, who) = (self.peer.cluster_view.clone(), self.principal.clone());
        self.spawn_reply(reply, async move {
            let (editor, catalog) = (realm.editor()?, realm.catalog().unwrap_or_default());
            let (accounts, revision) = administer(editor, &catalog, &who, wanted).await?;
            realm.wait_for_revision(revision).await?;
            Ok(Response::Accounts(accounts))
        });
    }

    /// Changes a space.
    fn set_space(&self, set: proto::SetSpace, reply: Responder<'_>) {
        let (realm, who) = (self.peer.cluster_view.clone(), self.principal.clone());
        self.spawn_reply(reply, async move {
            let (editor, catalog) = (realm.editor()?, realm.catalog().unwrap_or_default());
            realm.wait_for_revision(set_space(editor, &catalog, &who, set).await?).await?;
            Ok(Response::Done(proto::Done {}))
        });
    }

    /// Begins, continues or ends a query.
    fn handle_query(&mut self, request: Request, raw: Raw<'_>, reply: Responder<'_>) {
        match request {
            Request::Query(query) => match cluster::QueryRequest::from_proto(query, raw) {
                Ok(query) => self.queries.begin(&self.peer, &self.space, query, reply.defer()),
                Err(error) => reply.fail(&error),
            },
            Request::FetchRows(fetch) => self.queries.fetch(fetch.cursor, reply.defer()),
            Request::EndQuery(end) => {
                self.queries.end(end.cursor);
                reply.send(Response::Done(proto::Done {}));
            }
            _ => {}
        }
    }

    /// Whether the client may ask for something, and it can be answered here.
    fn check(&self, request: &Request) -> Result<()> {
        match request {
            Request::ReadObject(_) | Request::Scan(_) => self.check_work_permission(Permission::Read)?,
            Request::GetNumbers(_) | Request::GetSpace(_) => self.check_permission(Permission::Read)?,
            Request::Describe(_) | Request::Define(_) | Request::GetSchema(_) => {
                self.check_permission(Permission::Read)?;
            }
            Request::Reserve(_) => self.check_work_permission(Permission::Write)?,
            Request::BuildIndex(_) => self.check_work_permission(Permission::Admin)?,
            Request::CreateSpace(_) | Request::Move(_) | Request::MemberRequest(_) => self.check_administrator()?,
            // Each looks itself at what it takes.
            Request::Ping(_) | Request::GetStatus(_) | Request::ListSpaces(_) => {}
            Request::Administer(_) | Request::SetSpace(_) => {}
            _ => self.check_permission(Permission::Admin)?,
        }
        match request {
            Request::Reserve(reserve) => {
                self.check_pages(cluster::node(reserve.node)?, [])?;
                if reserve.space != u32::from(self.space.id.0) || reserve.pages == 0 || reserve.pages > MAX_RESERVED {
                    let what = format!("1 to {MAX_RESERVED} pages of the connection's space can be reserved at a time");
                    return Err(Error::new(ErrorKind::Invalid, what));
                }
                Ok(())
            }
            Request::ReadObject(look) => {
                let page = convert::oid(look.oid, "object")?.page();
                self.check_pages(page.node, [page])
            }
            Request::Scan(scan) => {
                self.check_pages(cluster::node(scan.node)?, [])?;
                if scan.space != u32::from(self.space.id.0) {
                    return Err(Error::new(
                        ErrorKind::Denied,
                        "only the space of the connection can be looked through",
                    ));
                }
                Ok(())
            }
            Request::BuildIndex(build) => {
                self.check_pages(cluster::node(build.node)?, [])?;
                if build.space != u32::from(self.space.id.0) {
                    return Err(Error::new(ErrorKind::Denied, "only indexes of the connection's space can be built"));
                }
                Ok(())
            }
            Request::GetNumbers(numbers) if numbers.count == 0 || numbers.count > MAX_NUMBERS => {
                let what = format!("1 to {MAX_NUMBERS} numbers can be taken at a time");
                Err(Error::new(ErrorKind::Invalid, what))
            }
            Request::Ping(_) | Request::GetStatus(_) | Request::GetNumbers(_) | Request::GetSpace(_) => Ok(()),
            Request::CreateSpace(_) | Request::SetSpace(_) | Request::ListSpaces(_) => Ok(()),
            Request::Administer(_) | Request::Move(_) | Request::MemberRequest(_) => Ok(()),
            Request::Describe(describe) if ![&*self.space.name, ""].contains(&&*describe.space) => {
                let what = format!("only classes of the connection's space, {:?}, can be described", self.space.name);
                Err(Error::new(ErrorKind::Denied, what))
            }
            Request::Describe(_) => Ok(()),
            Request::GetSchema(_) | Request::Define(_) => Ok(()),
            _ => Err(wrong_server_error(request)),
        }
    }

    /// Answers a request that was checked.
    fn handle_request(&self, request: Request, reply: Responder<'_>) {
        match request {
            Request::Reserve(reserve) => self.forward(NodeId(reserve.node), Request::Reserve(reserve), reply),
            Request::Scan(scan) => self.forward(NodeId(scan.node), Request::Scan(scan), reply),
            Request::BuildIndex(build) => {
                self.forward(NodeId(build.node), Request::BuildIndex(build), reply);
            }
            Request::ReadObject(look) => match convert::oid(look.oid, "object") {
                Ok(oid) if look.cached => self.read_cached(oid, reply),
                Ok(oid) => self.forward(oid.page().node, Request::ReadObject(look), reply),
                Err(error) => reply.fail(&error),
            },
            Request::GetNumbers(numbers) => {
                let realm = self.peer.cluster_view.clone();
                self.spawn_reply(reply, async move {
                    let first = realm.take_numbers(u64::from(numbers.count)).await?;
                    Ok(Response::Numbers(proto::Numbers { first }))
                });
            }
            Request::GetSpace(_) => {
                let nodes = self.space.nodes.iter().map(|node| node.0).collect();
                reply.send(Response::ConnectionSpace(proto::ConnectionSpace {
                    space: u32::from(self.space.id.0),
                    nodes,
                }));
            }
            Request::GetSchema(get) => {
                let (realm, space) = (self.peer.cluster_view.clone(), self.space.clone());
                self.spawn_reply(reply, async move {
                    classes::schema_at_revision(&realm, &space, Revision(get.revision)).await
                });
            }
            Request::Define(define) => {
                let (realm, space) = (self.peer.cluster_view.clone(), self.space.clone());
                let may_change = self.check_permission(Permission::Admin);
                self.spawn_reply(
                    reply,
                    async move { classes::handle_define(&realm, &space, define, may_change).await },
                );
            }
            Request::CreateSpace(create) => {
                let realm = self.peer.cluster_view.clone();
                self.spawn_reply(reply, async move {
                    let (name, options) = space_options(create)?;
                    let space = realm.create_space(&name, options).await?;
                    Ok(Response::SpaceCreated(proto::SpaceCreated { space: u32::from(space.id.0) }))
                });
            }
            Request::SetSpace(set) => self.set_space(set, reply),
            Request::Describe(describe) => {
                let realm = self.peer.cluster_view.clone();
                let (space, may_change) = (self.space.name.clone(), self.check_permission(Permission::Admin));
                self.spawn_reply(reply, async move {
                    realm.handle_schema_request(&space, &describe.request, may_change).await.map(Response::Described)
                });
            }
            Request::ListSpaces(_) => {
                let catalog = self.peer.cluster_view.catalog();
                let may = |space: &Arc<SpaceView>| self.principal.permission(catalog.as_deref(), &space.name).is_some();
                let spaces = self.peer.cluster_view.spaces().into_iter().filter(may);
                let entries = spaces.map(|space| {
                    let known = catalog.as_ref().and_then(|catalog| catalog.space_by_id(space.id));
                    let policy = known.map(|known| policy_to_proto(known.policy) as i32);
                    proto::Space { space: u32::from(space.id.0), name: space.name.clone(), policy }
                });
                reply.send(Response::Spaces(proto::Spaces { entries: entries.collect() }));
            }
            Request::Administer(wanted) => self.administer(wanted, reply),
            Request::Move(wanted) => {
                let peer = self.peer.clone();
                self.spawn_reply(reply, async move { moves::handle_move_request(&peer, wanted).await });
            }
            Request::MemberRequest(asked) => {
                let realm = self.peer.cluster_view.clone();
                self.spawn_reply(reply, async move {
                    realm.handle_member_request(&asked).await.map(Response::MemberAnswer)
                });
            }
            Request::GetStatus(_) => reply.send(Response::Status(self.thread.server.status())),
            _ => reply.send(Response::Done(proto::Done {})),
        }
    }
}

impl Service for ClientConnection {
    fn on_request(&mut self, incoming: Incoming<'_>, reply: Responder<'_>) {
        let Incoming { request, raw } = incoming;
        self.thread.counters.requests.0[kind_index(&request)].add(1);
        self.thread.counters.received.add(raw.len() as u64);
        if matches!(request, Request::Up(_) | Request::Call(_) | Request::Watch(_)) {
            let handled = Message::decode(request, raw).and_then(|message| self.handle_message(message));
            if let Err(error) = handled {
                info!(%error, "a client breaks the protocol, and is disconnected");
                reply.refuse(&error);
            }
            return;
        }
        if matches!(request, Request::Query(_) | Request::FetchRows(_) | Request::EndQuery(_)) {
            let ends = matches!(request, Request::EndQuery(_));
            let may = if ends {
                self.check_permission(Permission::Read)
            } else {
                self.check_work_permission(Permission::Read)
            };
            return match may {
                Ok(()) => self.handle_query(request, raw, reply),
                Err(error) => reply.fail(&error),
            };
        }
        match self.check(&request) {
            Ok(()) => self.handle_request(request, reply),
            Err(error) => reply.fail(&error),
        }
    }

    fn on_sent(&mut self, bytes: u64) {
        self.thread.counters.sent.add(bytes);
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        let post = &self.handle;
        self.peer.space_statuses.unwatch(self.space.id, post);
        // Whoever panicked has said so.
        let _ = self.peer.with_state(|state, now| {
            let gone: Vec<HolderId> =
                state.holders.iter().filter(|(_, at)| *at == post).map(|(holder, _)| *holder).collect();
            state.node.handle_disconnected(post, |_, holder| gone.contains(&holder), now);
            state.clients.retain(|_, (at, _)| at != post);
            gone.iter().for_each(|holder| drop(state.holders.remove(holder)));
        });
    }
}

/// What was asked is for another kind of server.
fn wrong_server_error(request: &Request) -> Error {
    let what = match request {
        Request::Scrub(_) | Request::Backup(_) => {
            "this is a peer server, which keeps nothing: ask each brick for that, by the addresses that `mortar remap` lists"
        }
        _ => {
            "this is a peer server of a cluster, and this is for a store of its own; objects of a cluster are put, got and \
             removed by `mortar object`, found by `mortar query`, and listed with their names by `mortar name ls`"
        }
    };
    Error::new(ErrorKind::Unsupported, what)
}

/// What a call takes, and where it is to be done; `None`: whoever has begun something may end it.
fn required_permission(call: &Call<Object>) -> Option<(Permission, Vec<NodeId>)> {
    match call {
        Call::Commit { parts, .. } => {
            let writes = parts.values().any(|part| !part.writes.is_empty() || !part.touches.is_empty());
            let needed = if writes { Permission::Write } else { Permission::Read };
            Some((needed, parts.keys().copied().collect()))
        }
        Call::Check { reads, .. } => Some((Permission::Read, reads.keys().copied().collect())),
        Call::Lock { oid, mode, .. } => {
            let needed = if *mode == LockMode::Shared { Permission::Read } else { Permission::Write };
            Some((needed, vec![oid.page().node]))
        }
        Call::Resolve { .. } | Call::Release { .. } => None,
    }
}

/// The answer to who looks at an object; its data follows.
fn object_response(found: &CachedObject) -> Response {
    let object = found.object.as_ref().map(|object| (object.kind, object.data.len()));
    Response::ObjectRead(cluster::object_read_to_proto(object))
}

/// That a transaction, or a write, is refused.
fn refusal(node: NodeId, txn: TxnId, why: &Error) -> Message {
    Message::Deferred { node, txn, kind: why.kind(), why: why.message().to_owned() }
}

/// Bytes of what is written.
fn bytes_of<'a>(contents: impl Iterator<Item = &'a ObjectState<Object>>) -> usize {
    contents.map(|content| if let ObjectState::Value(object) = content { object.data.len() } else { 0 }).sum()
}

/// The pages that a message is about.
fn pages_of<T>(message: &Up<T>) -> Vec<PageId> {
    match message {
        Up::Renew { .. } => Vec::new(),
        Up::Fetch { page, .. } | Up::Acknowledge { page, .. } | Up::Evict { page, .. } | Up::Helped { page, .. } => {
            vec![*page]
        }
        Up::Write { writes, .. } => writes.keys().map(|oid| oid.page()).collect(),
    }
}

fn invalid_message_error(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, why.to_string())
}
