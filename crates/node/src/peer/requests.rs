//! What a client of a peer server may ask: for each request its form, the permission that it needs, and its handler.
//!
//! [`row`] is the only place that looks at the kind of a request. Its match is exhaustive, so a new request of the schema does not
//! compile without a row.

use meta::catalog::{Catalog, Permission};
use model::{Error, ErrorKind, NodeId, Oid, Result};
use wire::proto;
use wire::proto::request::Request;
use wire::{cluster, convert};

use super::peer_client::PeerClient;
use super::space_statuses::StoppedSpaces;

/// Pages that a client may reserve at a time.
const MAX_RESERVED: u32 = 1 << 16;
/// Numbers that a client may take at a time.
const MAX_NUMBERS: u32 = 16;

/// Whether a request wants an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// It wants one.
    Answered,
    /// It wants none: what answers it is another message.
    OneWay,
    /// The client may choose.
    Either,
}

/// The permission that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// None: every client that was admitted may ask.
    Admitted,
    /// This one in the client's space.
    Space(Permission),
    /// This one in the client's space, which must not be stopped.
    Work(Permission),
    /// That of an administrator of the cluster.
    Administrator,
    /// What answers the request checks the permission, which depends on more than the kind.
    CheckedByHandler,
}

impl Access {
    /// Checks that a client has the permission, by this catalogue, while these spaces are stopped.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`]; [`ErrorKind::Stopped`].
    pub(super) fn check<A>(
        self,
        client: &PeerClient<A>,
        catalog: Option<&Catalog>,
        stopped: &StoppedSpaces,
    ) -> Result<()> {
        match self {
            Self::Admitted | Self::CheckedByHandler => Ok(()),
            Self::Space(needed) => client.check_permission(catalog, needed),
            Self::Work(needed) => client.check_work(catalog, stopped, needed),
            Self::Administrator => client.principal().check_administrator(catalog),
        }
    }
}

/// What a request is about: a logical node or an object, which must be of the client's space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A logical node of a space.
    Node {
        /// The number of the space.
        space: u32,
        /// The number of the node.
        node: u32,
    },
    /// An object.
    Object(Option<proto::Oid>),
    /// A content of a space.
    Content {
        /// The number of the space.
        space: u32,
        /// The content.
        content: Option<proto::contents::ContentId>,
    },
}

/// What answers a request.
#[derive(Clone, Debug)]
pub(super) enum Handler {
    /// Nothing needs to be done.
    Done,
    /// The brick of the target's logical node.
    Forward(Target, Request),
    /// Reserve pages of a logical node.
    Reserve(proto::Reserve),
    /// Take pages back that were reserved on this connection.
    ReturnPages(proto::ReturnPages),
    /// The object cache.
    ReadCached(Option<proto::Oid>),
    BeginQuery(proto::query::Query),
    FetchRows(u64),
    EndQuery(u64),
    GetNumbers(u32),
    GetSpace,
    GetSchema(proto::schema::GetSchema),
    Define(proto::schema::Define),
    Describe(Box<proto::schema::Describe>),
    CreateSpace(proto::CreateSpace),
    SetSpace(proto::SetSpace),
    RemoveSpace(proto::RemoveSpace),
    ListSpaces,
    /// The space; empty: all that the client may see.
    GetSpaceUsages(String),
    Administer(proto::account::Administer),
    Move(proto::moves::Move),
    Member(proto::members::MemberRequest),
    Job(proto::jobs::JobRequest),
    Witness(proto::cluster::AskWitness),
    RegisterRedirector(proto::groups::Register),
    /// The group; empty: all groups.
    GetGroups(String),
    GetStatus,
    /// A request for another kind of server: it fails, and the connection goes on.
    WrongServer(&'static str),
    /// A message that no client sends: it ends the connection.
    Violation,
}

/// A row of the table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) form: Form,
    pub(super) access: Access,
    pub(super) handler: Handler,
}

const BRICK: &str =
    "this is a peer server, which keeps nothing: ask each brick for that, by the addresses that `mortar remap` lists";
const META_SERVER: &str = "this is a peer server, and this is for a meta-server: use the address of `mortar node --role meta`, or that of \
                           `mortar dev --meta-listen`, which `mortar dev --json` prints as `meta`";

/// The row of a request.
pub(super) fn row(request: Request) -> Row {
    use Access::{Administrator, Admitted, CheckedByHandler, Space, Work};
    use Permission::{Admin, Read, Write};

    let answered = |access, handler| Row { form: Form::Answered, access, handler };
    let wrong_server = |what| answered(Admitted, Handler::WrongServer(what));
    let node = |space, node| Target::Node { space, node };
    match request {
        // Messages between machines are no requests, and only processes of the cluster send what they saw of others.
        Request::Up(_)
        | Request::Call(_)
        | Request::Watch(_)
        | Request::Down(_)
        | Request::Reply(_)
        | Request::Ask(_)
        | Request::Answer(_)
        | Request::NotServedHere(_)
        | Request::Deferred(_)
        | Request::SpaceStatus(_)
        | Request::Time(_)
        | Request::Witnesses(_) => Row { form: Form::OneWay, access: Admitted, handler: Handler::Violation },
        Request::Ping(_) => answered(Admitted, Handler::Done),
        Request::GetStatus(_) => answered(Admitted, Handler::GetStatus),
        // Objects.
        Request::ReadObject(read) if read.cached => answered(Work(Read), Handler::ReadCached(read.oid)),
        Request::ReadObject(read) => {
            answered(Work(Read), Handler::Forward(Target::Object(read.oid), Request::ReadObject(read)))
        }
        Request::Scan(scan) => answered(Work(Read), Handler::Forward(node(scan.space, scan.node), Request::Scan(scan))),
        Request::LookUp(look_up) => {
            let target = node(look_up.space, look_up.node);
            answered(Work(Read), Handler::Forward(target, Request::LookUp(look_up)))
        }
        Request::ListEntries(list) => {
            answered(Work(Read), Handler::Forward(node(list.space, list.node), Request::ListEntries(list)))
        }
        Request::ListNodeObjects(list) => {
            answered(Work(Read), Handler::Forward(node(list.space, list.node), Request::ListNodeObjects(list)))
        }
        Request::ListEntriesOf(list) => {
            answered(Work(Read), Handler::Forward(node(list.space, list.node), Request::ListEntriesOf(list)))
        }
        Request::Reserve(reserve) => answered(Work(Write), Handler::Reserve(reserve)),
        Request::ReturnPages(returned) => {
            Row { form: Form::OneWay, access: Space(Write), handler: Handler::ReturnPages(returned) }
        }
        Request::ReadContent(read) => {
            answered(Work(Read), Handler::Forward(Target::Object(read.oid), Request::ReadContent(read)))
        }
        Request::BeginContent(begin) => {
            answered(Work(Write), Handler::Forward(node(begin.space, begin.node), Request::BeginContent(begin)))
        }
        Request::WriteContent(write) => {
            let target = Target::Content { space: write.space, content: write.content };
            answered(Work(Write), Handler::Forward(target, Request::WriteContent(write)))
        }
        Request::AbortContent(abort) => {
            let target = Target::Content { space: abort.space, content: abort.content };
            answered(Work(Write), Handler::Forward(target, Request::AbortContent(abort)))
        }
        Request::BuildIndex(build) => {
            answered(Work(Admin), Handler::Forward(node(build.space, build.node), Request::BuildIndex(build)))
        }
        // Queries.
        Request::Query(query) => answered(Work(Read), Handler::BeginQuery(query)),
        Request::FetchRows(fetch) => answered(Work(Read), Handler::FetchRows(fetch.cursor)),
        Request::EndQuery(end) => {
            let handler = Handler::EndQuery(end.cursor);
            Row { form: Form::Either, access: Space(Read), handler }
        }
        // The space of the connection.
        Request::GetNumbers(numbers) => answered(Space(Read), Handler::GetNumbers(numbers.count)),
        Request::GetSpace(_) => answered(Space(Read), Handler::GetSpace),
        Request::GetSchema(get) => answered(Space(Read), Handler::GetSchema(get)),
        Request::Define(define) => answered(Space(Read), Handler::Define(define)),
        Request::Describe(describe) => answered(Space(Read), Handler::Describe(describe)),
        // The cluster.
        Request::ListSpaces(_) => answered(Admitted, Handler::ListSpaces),
        Request::GetSpaceUsages(get) => answered(Admitted, Handler::GetSpaceUsages(get.space)),
        Request::CreateSpace(create) => answered(Administrator, Handler::CreateSpace(create)),
        Request::SetSpace(set) => answered(CheckedByHandler, Handler::SetSpace(set)),
        Request::RemoveSpace(remove) => answered(CheckedByHandler, Handler::RemoveSpace(remove)),
        Request::Administer(wanted) => answered(CheckedByHandler, Handler::Administer(wanted)),
        Request::Move(wanted) => answered(Administrator, Handler::Move(wanted)),
        Request::MemberRequest(asked) => answered(Administrator, Handler::Member(asked)),
        Request::JobRequest(asked) => answered(CheckedByHandler, Handler::Job(asked)),
        Request::AskWitness(asked) => answered(Administrator, Handler::Witness(asked)),
        Request::RegisterRedirector(register) => answered(Administrator, Handler::RegisterRedirector(register)),
        Request::GetGroups(get) => answered(Admitted, Handler::GetGroups(get.group)),
        // Other servers.
        Request::Scrub(_)
        | Request::Backup(_)
        | Request::Cut(_)
        | Request::ReleaseCut(_)
        | Request::BackupBase(_)
        | Request::CopyRows(_)
        | Request::CloneRows(_)
        | Request::GetMoveIns(_)
        | Request::GetNodeUsages(_)
        | Request::CheckEmpty(_) => wrong_server(BRICK),
        Request::MetaGetRun(_)
        | Request::MetaRead(_)
        | Request::MetaGet(_)
        | Request::MetaWrite(_)
        | Request::MetaWatch(_)
        | Request::MetaOpenSession(_)
        | Request::MetaKeepSession(_)
        | Request::MetaCompareClocks(_)
        | Request::MetaEndSession(_) => wrong_server(META_SERVER),
    }
}

impl Target {
    /// The logical node, which is of the client's space.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it cannot be read; [`ErrorKind::Denied`] for another space, [`ErrorKind::NotFound`] for a logical
    /// node that the space does not have.
    pub(super) fn node<A>(self, client: &PeerClient<A>) -> Result<NodeId> {
        match self {
            Self::Node { space, node } => {
                let node = cluster::node(node)?;
                if space != u32::from(client.space().id.0) {
                    let what = format!("space {space} is not {:?}, the space of the connection", client.space().name);
                    return Err(Error::new(ErrorKind::Denied, what));
                }
                client.check_pages(node, [])?;
                Ok(node)
            }
            Self::Object(oid) => Ok(check_object(oid, client)?.page().node),
            Self::Content { space, content } => {
                let content = cluster::content_id(content)?;
                let node = Self::Node { space, node: content.node().0 }.node(client)?;
                if content.space() != client.space().id {
                    let what =
                        format!("content {content} is not of {:?}, the space of the connection", client.space().name);
                    return Err(Error::new(ErrorKind::Denied, what));
                }
                Ok(node)
            }
        }
    }
}

/// An object's identifier, which is of the client's space.
///
/// # Errors
/// As for [`Target::node`].
pub(super) fn check_object<A>(oid: Option<proto::Oid>, client: &PeerClient<A>) -> Result<Oid> {
    let oid = convert::oid(oid, "object")?;
    client.check_pages(oid.page().node, [oid.page()])?;
    Ok(oid)
}

impl Handler {
    /// Checks the sizes that a request asks for.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`].
    pub(super) fn check_limits(&self) -> Result<()> {
        let (what, count, most) = match self {
            Self::Reserve(reserve) => ("pages can be reserved", reserve.pages, MAX_RESERVED),
            Self::GetNumbers(count) => ("numbers can be taken", *count, MAX_NUMBERS),
            _ => return Ok(()),
        };
        match (1..=most).contains(&count) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Invalid, format!("1 to {most} {what} at a time, not {count}"))),
        }
    }
}

#[cfg(test)]
mod tests;
