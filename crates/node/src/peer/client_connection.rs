//! A client's connection to a peer server: dispatches what comes by the table of [`requests`](super::requests).

use std::sync::Arc;
use std::time::Duration;

use meta::Revision;
use meta::catalog::Permission;
use model::{Error, ErrorKind, Result};
use protocol::ident::ClientId;
use tokio::time;
use wire::cluster::{self, Message, ReservedPages};
use wire::driving::PeerHandle;
use wire::frame::Raw;
use wire::link::{Incoming, Responder, Service};
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::proto::schema::{RemoveClass, describe};
use wire::tasks;

use super::cache::CachedObject;
use super::driver::ClientMessage;
use super::groups::Registration;
use super::page_pool::{MAX_RETURNED, Reservations};
use super::peer_client::PeerClient;
use super::query::Queries;
use super::requests::{self, Access, Form, Handler, Row, Target, check_object};
use super::shard::PeerShard;
use super::{PeerRole, classes, jobs, moves, removal, usage};
use crate::auth::{Principal, administer, check_space_admin, remove_space, set_space, space_options, space_to_proto};
use crate::cluster_view::SpaceView;
use crate::meta::call_timeout;
use crate::server::{Kind, Thread, spawn_reply};

/// The requests of one client.
pub(crate) struct ClientConnection {
    shard: Arc<PeerShard>,
    state: PeerClient<PeerHandle>,
    thread: Arc<Thread<PeerRole>>,
    queries: Queries,
    registration: Registration,
    reservations: Arc<Reservations>,
    /// How long the client waits for answers that need the catalogue, if it has said so.
    catalog_timeout: Option<Duration>,
}

/// What a client is admitted with.
pub(crate) struct Admission {
    /// Its space; one with number 0 and no logical nodes for what concerns the whole cluster.
    pub(super) space: Arc<SpaceView>,
    pub(super) principal: Principal,
    /// Whether it is a redirector.
    pub(super) is_redirector: bool,
    /// Its number, if it has one.
    pub(super) number: Option<ClientId>,
    pub(super) catalog_timeout: Option<Duration>,
}

impl ClientConnection {
    pub(super) fn new(
        shard: Arc<PeerShard>,
        admission: Admission,
        handle: PeerHandle,
        thread: Arc<Thread<PeerRole>>,
    ) -> Self {
        let Admission { space, principal, is_redirector, number, catalog_timeout } = admission;
        let state = PeerClient::new(handle, space, principal, number);
        let state = if is_redirector { state.as_redirector() } else { state };
        let registration = thread.server.role.registration();
        // A machine that has panicked serves no client, and each request says so.
        let _ = shard.with_driver(|driver, _| driver.client_connected(&state));
        let (queries, reservations) = (Queries::default(), Arc::default());
        Self { shard, state, thread, queries, registration, reservations, catalog_timeout }
    }

    /// Answers when `work` is done, or when the client's patience ends.
    fn spawn_reply(&self, reply: Responder<'_>, work: impl Future<Output = Result<Response>> + Send + 'static) {
        match self.catalog_timeout {
            Some(patience) => spawn_reply(reply, call_timeout::with_timeout(patience, work)),
            None => spawn_reply(reply, work),
        }
    }

    fn check_permission(&self, needed: Permission) -> Result<()> {
        let catalog = self.shard.cluster_view.load_catalog();
        self.state.check_permission(catalog.as_deref().map(|catalog| &**catalog), needed)
    }

    fn check_access(&self, access: Access) -> Result<()> {
        let catalog = self.shard.cluster_view.load_catalog();
        access.check(&self.state, catalog.as_deref().map(|catalog| &**catalog), &self.shard.stopped.load())
    }

    /// Names the user in a request whose number is limited for each user.
    fn with_user(&self, request: Request) -> Request {
        match request {
            Request::BeginContent(begin) => {
                let user = self.state.principal().user_name().as_deref().unwrap_or_default().to_owned();
                Request::BeginContent(proto::contents::Begin { user, ..begin })
            }
            request => request,
        }
    }

    /// Forwards a request to the brick of its target, and its answer back.
    fn forward(&self, target: Target, request: Request, raw: Raw<'_>, reply: Responder<'_>) {
        let raw = if raw.is_empty() { Vec::new() } else { vec![raw.to_bytes()] };
        let request = self.with_user(request);
        match target.node(&self.state).and_then(|node| self.shard.brick_of(node)) {
            Ok(brick) if is_scan(&request) => {
                let (shard, deferred) = (self.shard.clone(), reply.defer());
                let share = shard.queries.share_of(self.state.principal().user_name());
                share.when_free(brick, move |place| {
                    // The connection of a scan that has waited may have ended. Then the brick is not asked for it.
                    if deferred.is_closed() {
                        return;
                    }
                    shard.brick_links.ask(brick, request, move |answer| {
                        drop(place);
                        deferred.forward_answer(answer);
                    });
                });
            }
            Ok(brick) => self.shard.brick_links.forward(brick, request, raw, reply.defer()),
            Err(error) => reply.fail(&error),
        }
    }

    /// Gives the client pages for new objects: those that another client has returned, or else new ones.
    fn reserve(&self, reserve: proto::Reserve, reply: Responder<'_>) {
        let target = Target::Node { space: reserve.space, node: reserve.node };
        let found = target.node(&self.state).and_then(|node| Ok((node, self.shard.brick_of(node)?)));
        let (node, brick) = match found {
            Ok(found) => found,
            Err(error) => return reply.fail(&error),
        };
        let reservations = self.reservations.clone();
        let pool = &self.thread.server.role.page_pool;
        if let Some(pages) = pool.take(self.state.space().id, node, reserve.pages, reserve.room) {
            reservations.add(node, pages);
            return reply.send(Response::Reserved(pages.into()));
        }
        let (user, now) = (self.state.principal().user_name(), self.shard.time.now());
        let wait = match self.thread.server.role.page_rates.take(user, reserve.pages, now) {
            Ok(wait) => wait,
            Err(error) => return reply.fail(&error),
        };
        let (shard, deferred) = (self.shard.clone(), reply.defer());
        let ask = move || {
            shard.brick_links.ask(brick, Request::Reserve(reserve), move |answer| {
                deferred.answer(answer.and_then(|answer| match answer.response {
                    Response::Reserved(reserved) => {
                        reservations.add(node, reserved.try_into()?);
                        Ok(Response::Reserved(reserved))
                    }
                    _ => Err(Error::new(ErrorKind::Internal, format!("brick {} has answered something else", brick.0))),
                }));
            });
        };
        if wait == 0 {
            return ask();
        }
        tasks::spawn(async move {
            time::sleep(Duration::from_millis(wait)).await;
            ask();
        });
    }

    /// Keeps pages that the client returns for others, if they were reserved on this connection.
    fn return_pages(&self, returned: proto::ReturnPages, reply: Responder<'_>) {
        let node = Target::Node { space: returned.space, node: returned.node }.node(&self.state);
        if returned.ranges.len() > MAX_RETURNED {
            return reply.refuse(&violation_error());
        }
        let ranges = returned.ranges.into_iter().map(ReservedPages::try_from).collect::<Result<Vec<_>>>();
        let (Ok(node), Ok(ranges)) = (node, ranges) else { return reply.refuse(&violation_error()) };
        let (pool, space) = (&self.thread.server.role.page_pool, self.state.space().id);
        let reserved = ranges.into_iter().filter(|range| self.reservations.remove(node, *range));
        reserved.for_each(|range| pool.add(space, node, range));
        if let Some(catalog) = self.shard.cluster_view.catalog() {
            pool.retain_spaces(|space| catalog.space_by_id(space).is_some());
        }
    }

    /// Reads an object in the object cache of this peer server.
    fn read_cached(&self, oid: Option<proto::Oid>, reply: Responder<'_>) {
        let oid = match check_object(oid, &self.state) {
            Ok(oid) => oid,
            Err(error) => return reply.fail(&error),
        };
        match self.shard.read_cached(oid) {
            Ok(Some(found)) => match found.encoded_extension() {
                None => reply.send_slice(object_response(&found), found.data()),
                Some(extension) => reply.defer().send(object_response(&found), vec![extension, found.data().clone()]),
            },
            Ok(None) => {
                let deferred = reply.defer();
                self.shard.read_when_cached(oid, move |found| match found {
                    Ok(found) => {
                        let raw = found.encoded_extension().into_iter().chain([found.data().clone()]).collect();
                        deferred.send(object_response(&found), raw);
                    }
                    Err(error) => deferred.fail(&error),
                });
            }
            Err(error) => reply.fail(&error),
        }
    }

    fn administer(&self, wanted: proto::account::Administer, reply: Responder<'_>) {
        let (view, principal) = (self.shard.cluster_view.clone(), self.state.principal().clone());
        self.spawn_reply(reply, async move {
            let (editor, catalog) = (view.editor()?, view.catalog().unwrap_or_default());
            let (accounts, revision) = administer(editor, &catalog, &principal, wanted).await?;
            view.wait_for_revision(revision).await?;
            Ok(Response::Accounts(accounts))
        });
    }

    fn set_space(&self, set: proto::SetSpace, reply: Responder<'_>) {
        let (view, principal) = (self.shard.cluster_view.clone(), self.state.principal().clone());
        self.spawn_reply(reply, async move {
            let (editor, catalog) = (view.editor()?, view.catalog().unwrap_or_default());
            view.wait_for_revision(set_space(editor, &catalog, &principal, set).await?).await?;
            Ok(Response::Done(proto::Done {}))
        });
    }

    fn remove_space(&self, remove: proto::RemoveSpace, reply: Responder<'_>) {
        let (view, principal) = (self.shard.cluster_view.clone(), self.state.principal().clone());
        let shard = self.shard.clone();
        self.spawn_reply(reply, async move {
            let (editor, catalog) = (view.editor()?, view.catalog().unwrap_or_default());
            let revision = if remove.only_if_empty && !remove.cancel {
                check_space_admin(&principal, &catalog, &remove.name)?;
                removal::remove_empty_space(&shard, remove.name).await?
            } else {
                remove_space(editor, &catalog, &principal, remove).await?
            };
            view.wait_for_revision(revision).await?;
            Ok(Response::Done(proto::Done {}))
        });
    }

    fn create_space(&self, create: proto::CreateSpace, reply: Responder<'_>) {
        let view = self.shard.cluster_view.clone();
        self.spawn_reply(reply, async move {
            let (name, options) = space_options(create)?;
            let space = view.create_space(&name, options).await?;
            Ok(Response::SpaceCreated(proto::SpaceCreated { space: u32::from(space.id.0) }))
        });
    }

    /// The spaces that the client has a permission in.
    fn visible_spaces(&self) -> Vec<Arc<SpaceView>> {
        let catalog = self.shard.cluster_view.catalog();
        let principal = self.state.principal();
        let is_visible = |space: &Arc<SpaceView>| principal.permission(catalog.as_deref(), &space.name).is_some();
        self.shard.cluster_view.spaces().into_iter().filter(is_visible).collect()
    }

    /// The space of this name, or all that the client may see if it is empty.
    fn usage_spaces(&self, name: &str) -> Result<Vec<Arc<SpaceView>>> {
        if name.is_empty() {
            return Ok(self.visible_spaces());
        }
        let catalog = self.shard.cluster_view.catalog();
        let principal = self.state.principal();
        match self.shard.cluster_view.space(name) {
            Ok(space) if principal.permission(catalog.as_deref(), name).is_some() => Ok(vec![space]),
            // Only administrators learn which spaces there are.
            Err(unknown) if principal.check_administrator(catalog.as_deref()).is_ok() => Err(unknown),
            _ => Err(principal.space_not_visible_error(name)),
        }
    }

    fn get_space_usages(&self, name: &str, reply: Responder<'_>) {
        let spaces = match self.usage_spaces(name) {
            Ok(spaces) => spaces,
            Err(error) => return reply.fail(&error),
        };
        let shard = self.shard.clone();
        self.spawn_reply(reply, async move { usage::handle_usage_request(&shard, spaces).await });
    }

    fn list_spaces(&self) -> Response {
        let catalog = self.shard.cluster_view.catalog();
        let entries = self.visible_spaces().into_iter().map(|space| {
            let known = catalog.as_ref().and_then(|catalog| catalog.space_by_id(space.id));
            let unknown = || proto::Space { space: space.id.0.into(), name: space.name.clone(), ..Default::default() };
            known.map_or_else(unknown, |known| space_to_proto(known))
        });
        Response::Spaces(proto::Spaces { entries: entries.collect() })
    }

    fn describe(&self, describe: proto::schema::Describe, reply: Responder<'_>) {
        let (view, space) = (self.shard.cluster_view.clone(), self.state.space().name.clone());
        if ![&*space, ""].contains(&&*describe.space) {
            let what = format!("only classes of the connection's space, {space:?}, can be described");
            return reply.fail(&Error::new(ErrorKind::Denied, what));
        }
        let may_change = self.check_permission(Permission::Admin);
        if let Some(describe::Request::RemoveClass(RemoveClass { name, cancel: false })) = describe.request {
            let shard = self.shard.clone();
            return self.spawn_reply(reply, async move {
                may_change?;
                view.wait_for_revision(removal::remove_empty_class(&shard, space, name).await?).await?;
                Ok(Response::Described(proto::schema::Described::default()))
            });
        }
        let caller = self.state.principal().user_name();
        self.spawn_reply(reply, async move {
            view.handle_schema_request(&space, describe.request, may_change, caller).await.map(Response::Described)
        });
    }

    fn define(&self, define: proto::schema::Define, reply: Responder<'_>) {
        let (view, space) = (self.shard.cluster_view.clone(), self.state.space().clone());
        let (may_change, caller) = (self.check_permission(Permission::Admin), self.state.principal().user_name());
        self.spawn_reply(reply, async move { classes::handle_define(&view, &space, define, may_change, caller).await });
    }

    fn get_schema(&self, revision: Revision, reply: Responder<'_>) {
        let (view, space) = (self.shard.cluster_view.clone(), self.state.space().clone());
        self.spawn_reply(reply, async move { classes::schema_at_revision(&view, &space, revision).await });
    }

    fn begin_query(&mut self, query: proto::query::Query, raw: Raw<'_>, reply: Responder<'_>) {
        match cluster::QueryRequest::from_proto(query, raw) {
            Ok(query) => {
                let asker = (self.state.space(), self.state.principal().user_name());
                self.queries.begin(&self.shard, asker, query, reply.defer());
            }
            Err(error) => reply.fail(&error),
        }
    }

    /// Answers a request whose permission was checked.
    fn handle(&mut self, handler: Handler, raw: Raw<'_>, reply: Responder<'_>) {
        match handler {
            Handler::Forward(target, request) => self.forward(target, request, raw, reply),
            Handler::Reserve(reserve) => self.reserve(reserve, reply),
            Handler::ReturnPages(returned) => self.return_pages(returned, reply),
            Handler::ReadCached(oid) => self.read_cached(oid, reply),
            Handler::BeginQuery(query) => self.begin_query(query, raw, reply),
            Handler::FetchRows(cursor) => self.queries.fetch(cursor, reply.defer()),
            Handler::EndQuery(cursor) => {
                self.queries.end(cursor);
                reply.send(Response::Done(proto::Done {}));
            }
            Handler::GetNumbers(count) => {
                let (view, space) = (self.shard.cluster_view.clone(), self.state.space().id);
                let (user, now) = (self.state.principal().user_name(), self.shard.time.now());
                // Each thousand of them is a change of the catalogue.
                let turn = self.thread.server.role.number_rates.take(user, count, now);
                self.spawn_reply(reply, async move {
                    match turn? {
                        0 => {}
                        wait => time::sleep(Duration::from_millis(wait)).await,
                    }
                    let key = view.client_number_key().await?;
                    let first = view.take_numbers(u64::from(count)).await?;
                    let tokens = (first..).take(count as usize).map(|number| key.token(space, number)).collect();
                    Ok(Response::Numbers(proto::Numbers { first, tokens }))
                });
            }
            Handler::GetSpace => {
                let space = self.state.space();
                let nodes = space.nodes.iter().map(|node| node.0).collect();
                reply.send(Response::ConnectionSpace(proto::ConnectionSpace { space: u32::from(space.id.0), nodes }));
            }
            Handler::GetSchema(get) => self.get_schema(Revision(get.revision), reply),
            Handler::Define(define) => self.define(define, reply),
            Handler::Describe(describe) => self.describe(*describe, reply),
            Handler::CreateSpace(create) => self.create_space(create, reply),
            Handler::SetSpace(set) => self.set_space(set, reply),
            Handler::RemoveSpace(remove) => self.remove_space(remove, reply),
            Handler::GetSpaceUsages(name) => self.get_space_usages(&name, reply),
            Handler::ListSpaces => reply.send(self.list_spaces()),
            Handler::Administer(wanted) => self.administer(wanted, reply),
            Handler::Move(wanted) => {
                let shard = self.shard.clone();
                self.spawn_reply(reply, async move { moves::handle_move_request(&shard, wanted).await });
            }
            Handler::Member(asked) => {
                let view = self.shard.cluster_view.clone();
                self.spawn_reply(
                    reply,
                    async move { view.handle_member_request(&asked).await.map(Response::MemberAnswer) },
                );
            }
            Handler::Job(asked) => {
                let (shard, who) = (self.shard.clone(), self.state.principal().clone());
                self.spawn_reply(reply, async move { jobs::handle_job_request(&shard, &who, &asked).await });
            }
            Handler::Witness(asked) => match self.thread.server.role.answer_witness(&asked) {
                Ok(seen) => reply.send(Response::Witnesses(seen)),
                Err(error) => reply.fail(&error),
            },
            Handler::RegisterRedirector(register) => match self.registration.register(register) {
                Ok(()) => reply.send(Response::Done(proto::Done {})),
                Err(error) => reply.fail(&error),
            },
            Handler::GetGroups(group) => {
                reply.send(Response::Groups(self.thread.server.role.groups.find(&group)));
            }
            Handler::GetStatus => reply.send(Response::Status(self.thread.server.status())),
            Handler::Done => reply.send(Response::Done(proto::Done {})),
            Handler::WrongServer(what) => reply.fail(&Error::new(ErrorKind::Unsupported, what)),
            Handler::Violation => reply.refuse(&violation_error()),
        }
    }
}

/// A message that a client may send.
fn client_message(message: Message) -> Result<ClientMessage> {
    match message {
        Message::Up { node, holder, message, .. } => Ok(ClientMessage::Up { node, holder, message }),
        Message::Call { txn, call } => Ok(ClientMessage::Call { txn, call }),
        Message::Watch => Ok(ClientMessage::Watch),
        _ => Err(violation_error()),
    }
}

impl Service for ClientConnection {
    /// Handles messages of the transaction and cache rules. The machine checks permissions and places, which depend on the content.
    fn on_messages(&mut self, mut messages: impl Iterator<Item = Message>) -> Result<()> {
        let (client, counters) = (&mut self.state, &self.thread.counters);
        self.shard.with_driver(|driver, now| {
            messages.try_for_each(|message| {
                counters.count(Kind::of_message(&message));
                driver.client_message(client, client_message(message)?, now)
            })
        })?
    }

    fn on_received(&mut self, bytes: u64) {
        self.thread.counters.received.add(bytes);
    }

    fn on_request(&mut self, incoming: Incoming<'_>, reply: Responder<'_>) {
        let Incoming { request, raw } = incoming;
        self.thread.counters.count(Kind::of_request(&request));
        self.thread.counters.received.add(raw.len() as u64);
        let Row { form, access, handler } = requests::row(request);
        let is_form_right = match form {
            Form::Answered => !reply.is_one_way(),
            Form::OneWay => reply.is_one_way(),
            Form::Either => true,
        };
        if !is_form_right {
            return reply.refuse(&violation_error());
        }
        match self.check_access(access).and_then(|()| handler.check_limits()) {
            Ok(()) => self.handle(handler, raw, reply),
            Err(error) => reply.fail(&error),
        }
    }

    fn on_sent(&mut self, bytes: u64) {
        self.thread.counters.sent.add(bytes);
    }

    fn holds_state(&self) -> bool {
        self.state.uses_number() || !self.queries.is_empty()
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        let client = &self.state;
        // After a panic of the machine nothing is served, and there is nothing to forget.
        let _ = self.shard.with_driver(|driver, now| driver.client_disconnected(client, now));
    }
}

/// Whether a request may take long at its brick. Such requests of one user wait for each other.
fn is_scan(request: &Request) -> bool {
    matches!(request, Request::Scan(_) | Request::ListNodeObjects(_) | Request::ListEntriesOf(_))
}

fn violation_error() -> Error {
    Error::new(ErrorKind::Invalid, "a client does not send this message, or not in this form")
}

/// The answer to a read of an object; its encoding follows.
fn object_response(found: &CachedObject) -> Response {
    let object = found.object.as_ref().map(|object| (object.code(), object.encoded_len()));
    Response::ObjectRead(cluster::object_read_to_proto(object))
}
