//! The client of administrators: users, spaces, classes, members, backups of any server.

mod cuts;
mod link;
pub(crate) mod reports;

use std::sync::Arc;
use std::time::Duration;

use model::{Error, ErrorKind, FailurePolicy, NodeId, Result, SpaceId};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use wire::cluster::{policy_from_proto, policy_to_proto};
use wire::convert;
use wire::handshake::{Credentials, Terms};
use wire::proto;
use wire::proto::account::Accounts;
use wire::proto::account::administer::Action;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::transport::tls;

pub use self::cuts::{ArchivePiece, ArchiveStream, BaseUpload, CutPart, take_cut};
#[cfg(feature = "jobs")]
pub(crate) use self::cuts::{CutBrick, cut_bricks};
use self::link::Link;
use crate::client_core::unexpected_answer_error;
use crate::url::split_group;
use crate::{BackupSummary, ClockStatus, Progress, ScrubOptions, ScrubReport, SpaceUsage, Status, Url, Usage};

/// How to connect.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AdminOptions {
    /// How long one attempt to connect may take, the handshake included.
    pub timeout: Duration,
    /// How long a read goes on reconnecting and trying again before it fails, a year at most; zero: it fails at once.
    pub retry: Duration,
    /// How this client names itself in the server's logs.
    pub agent: String,
    /// For `mortars://`: the trusted certificates, and the certificate of this client.
    pub tls: Option<tls::Client>,
    /// Who this client is, by name and password. Without a name, it is the user of the address.
    pub credentials: Option<Credentials>,
    /// The password may be sent where others can listen.
    pub insecure: bool,
    /// Time limit of requests about the whole cluster, such as its spaces, classes and users. A peer server answers before that, with
    /// the server that it has waited for. A year at most. By default the peer server decides.
    pub patience: Option<Duration>,
    /// Connect to no space: for what concerns the whole cluster, such as its users.
    pub spaceless: bool,
}

impl Default for AdminOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            retry: Duration::from_secs(30),
            agent: concat!("mortar-client ", env!("CARGO_PKG_VERSION")).to_owned(),
            tls: None,
            credentials: None,
            insecure: false,
            patience: None,
            spaceless: false,
        }
    }
}

/// How a space of a cluster is to be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceOptions {
    /// How many logical nodes it gets; by default enough to spread it over many more bricks than there are.
    pub nodes: Option<u32>,
    /// What happens while a brick of it cannot be reached; by default [`FailurePolicy::Continue`].
    pub policy: Option<FailurePolicy>,
}

/// A space that there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceInfo {
    /// Its number.
    pub id: SpaceId,
    /// Its name.
    pub name: String,
    /// What happens while a brick of it cannot be reached; `None` if the server does not say.
    pub policy: Option<FailurePolicy>,
    /// Bytes that its objects, their attributes and uploads may take; `None`: no limit.
    pub max_bytes: Option<u64>,
    /// The number of objects that it may have; `None`: no limit.
    pub max_objects: Option<u64>,
    /// It is being removed if it has no objects, so it refuses new work.
    pub removing: bool,
    /// It accepts no changes.
    pub read_only: bool,
    /// What it is a clone of, if it is one.
    pub clone_of: Option<CloneSource>,
}

/// What a clone is a clone of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneSource {
    /// The name that the space had then.
    pub space: String,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}

/// A limit of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaLimit {
    /// There is none.
    Unlimited,
    /// This many bytes, or objects.
    AtMost(u64),
}

/// A change of a space. What is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceChange {
    /// What happens while a brick of it cannot be reached.
    pub policy: Option<FailurePolicy>,
    /// Bytes that its objects, their attributes and uploads may take.
    pub max_bytes: Option<QuotaLimit>,
    /// The number of objects that it may have.
    pub max_objects: Option<QuotaLimit>,
    /// Whether it accepts no changes.
    pub read_only: Option<bool>,
}

/// Which server answers at an address: another one may have it later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerIdentity {
    /// The number of its cluster; empty if it does not know it.
    pub cluster: String,
    /// Its number in the catalogue, if it is a brick; 0 otherwise.
    pub brick: u32,
}

impl ServerIdentity {
    fn of(terms: &Terms) -> Self {
        Self { cluster: terms.cluster.clone(), brick: terms.brick }
    }

    /// Checks that `found` is this server. A server that does not know its cluster is not compared with others.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](model::ErrorKind::Unavailable) if not, with what it is: this server may come back.
    pub fn check(&self, found: &Self) -> Result<()> {
        let is_other_cluster = !self.cluster.is_empty() && !found.cluster.is_empty() && self.cluster != found.cluster;
        let listens = match (is_other_cluster, found.brick) {
            (true, 0) => format!("a server of cluster {}", found.cluster),
            (true, brick) => format!("brick {brick} of cluster {}", found.cluster),
            (false, brick) if brick == self.brick => return Ok(()),
            (false, 0) => "a server that is not a brick".to_owned(),
            (false, brick) => format!("brick {brick}"),
        };
        let expected = match self.brick {
            0 => "a server".to_owned(),
            brick => format!("brick {brick}"),
        };
        let of = if is_other_cluster { format!(" of cluster {}", self.cluster) } else { String::new() };
        Err(Error::new(ErrorKind::Unavailable, format!("{listens} answers where {expected}{of} was expected")))
    }
}

/// A connection to one server, of any role, for administration. Clones share it.
///
/// Calls are pipelined. One that changes nothing reconnects and is repeated until it is answered or [`AdminOptions::retry`] has
/// passed. Any other is sent once: if the connection breaks before the answer, the error is
/// [`ErrorKind::Unknown`](model::ErrorKind::Unknown). All go to the server that answered at first: see [`ServerIdentity`].
#[derive(Clone, Debug)]
pub struct AdminClient {
    link: Arc<Link>,
}

/// A redirector: see [`AdminClient::redirectors`].
#[derive(Clone, Debug)]
pub struct RedirectorInfo {
    /// The group that it serves.
    pub group: String,
    /// Where its members connect to.
    pub addresses: Vec<String>,
    /// Its software and version.
    pub agent: String,
    /// What it has done since it started, as of a second ago.
    pub counts: proto::groups::Counts,
}

impl From<proto::groups::Redirector> for RedirectorInfo {
    fn from(redirector: proto::groups::Redirector) -> Self {
        let proto::groups::Redirector { group, addresses, agent, counts } = redirector;
        Self { group, addresses, agent, counts: counts.unwrap_or_default() }
    }
}

impl AdminClient {
    /// Connects to `mortar://HOST:PORT/SPACE` or `mortar+unix:///PATH/SPACE`; see [`Url`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, AdminOptions::default()).await
    }

    /// Connects as `options` say.
    pub async fn connect_with(url: &str, options: AdminOptions) -> Result<Self> {
        // An administrator works with the server itself, not with a group.
        let url: Url = split_group(url)?.0.parse()?;
        let link = Link::connect(url, options).await?;
        Ok(Self { link })
    }

    /// What the client is connected to.
    #[must_use]
    pub fn url(&self) -> &Url {
        self.link.url()
    }

    /// The server that answered at first. If another one answers at its address later, requests fail as if none did.
    #[must_use]
    pub fn identity(&self) -> &ServerIdentity {
        self.link.identity()
    }

    /// The space of this client.
    #[must_use]
    pub fn space(&self) -> SpaceId {
        self.link.space()
    }

    /// Creates a space.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`](model::ErrorKind::Exists) if there is one of this name.
    pub async fn create_space(&self, name: &str) -> Result<SpaceId> {
        self.create_space_with(name, SpaceOptions::default()).await
    }

    /// Creates a space with `options`.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`](model::ErrorKind::Exists) if there is one of this name.
    pub async fn create_space_with(&self, name: &str, options: SpaceOptions) -> Result<SpaceId> {
        let SpaceOptions { nodes, policy } = options;
        let policy = policy.map(|policy| policy_to_proto(policy) as i32);
        let request = Request::CreateSpace(proto::CreateSpace { name: name.to_owned(), nodes, policy });
        match self.link.ask_cluster(request).await?.response {
            Response::SpaceCreated(created) => convert::space(created.space),
            _ => Err(unexpected_answer_error()),
        }
    }

    /// Says what happens to a space of a cluster while a brick of it cannot be reached: it counts at once, without a restart.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](model::ErrorKind::NotFound) if there is no such space,
    /// [`ErrorKind::Denied`](model::ErrorKind::Denied) if this client may not administer it.
    pub async fn set_failure_policy(&self, space: &str, policy: FailurePolicy) -> Result<()> {
        self.change_space(space, SpaceChange { policy: Some(policy), ..SpaceChange::default() }).await
    }

    /// Changes the failure policy and the quota of a space, and whether it is read-only, at once and without a restart. Bricks refuse what grows
    /// beyond a quota as [`ErrorKind::QuotaExceeded`](model::ErrorKind::QuotaExceeded); what is there already stays.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](model::ErrorKind::NotFound) if there is no such space,
    /// [`ErrorKind::Denied`](model::ErrorKind::Denied) if this client may not administer it, or, for a quota, is no administrator of
    /// the cluster.
    pub async fn change_space(&self, space: &str, change: SpaceChange) -> Result<()> {
        let limit = |limit: QuotaLimit| match limit {
            QuotaLimit::Unlimited => proto::usage::Limit { value: None },
            QuotaLimit::AtMost(value) => proto::usage::Limit { value: Some(value) },
        };
        let set = proto::SetSpace {
            name: space.to_owned(),
            policy: change.policy.map(|policy| policy_to_proto(policy) as i32),
            max_bytes: change.max_bytes.map(limit),
            max_objects: change.max_objects.map(limit),
            read_only: change.read_only,
        };
        match self.link.ask_cluster(Request::SetSpace(set)).await?.response {
            Response::Done(_) => Ok(()),
            _ => Err(unexpected_answer_error()),
        }
    }

    /// Removes a space with its objects, names, classes and indexes. Bricks free its storage soon after that, or when they are back.
    /// [`remove_empty_space`](Self::remove_empty_space) removes it only if it has no objects.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](model::ErrorKind::NotFound) if there is no such space,
    /// [`ErrorKind::Denied`](model::ErrorKind::Denied) if this client may not administer it.
    pub async fn remove_space(&self, name: &str) -> Result<()> {
        self.ask_to_remove_space(proto::RemoveSpace { name: name.to_owned(), ..Default::default() }).await
    }

    /// Removes a space with its names, classes and indexes if it has no objects. Meanwhile its bricks refuse new work, which waits: nothing
    /// that is written before the removal or during it is lost.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](model::ErrorKind::Conflict) if it has objects: nothing was removed;
    /// [`ErrorKind::Unavailable`](model::ErrorKind::Unavailable) if a brick of it does not answer;
    /// [`ErrorKind::Unsupported`](model::ErrorKind::Unsupported) if the server is no peer server; those of
    /// [`remove_space`](Self::remove_space).
    pub async fn remove_empty_space(&self, name: &str) -> Result<()> {
        let remove = proto::RemoveSpace { name: name.to_owned(), only_if_empty: true, cancel: false };
        self.ask_to_remove_space(remove).await
    }

    /// Takes back a removal of a space that was begun and not ended because its peer server has ended. Until then the space refuses new
    /// work. Removing it again does the same.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](model::ErrorKind::Conflict) if it is not being removed; those of [`remove_space`](Self::remove_space).
    pub async fn cancel_space_removal(&self, name: &str) -> Result<()> {
        let cancel = proto::RemoveSpace { name: name.to_owned(), only_if_empty: true, cancel: true };
        self.ask_to_remove_space(cancel).await
    }

    async fn ask_to_remove_space(&self, remove: proto::RemoveSpace) -> Result<()> {
        match self.link.ask_cluster(Request::RemoveSpace(remove)).await?.response {
            Response::Done(_) => Ok(()),
            _ => Err(unexpected_answer_error()),
        }
    }

    /// Asks who may do what in a cluster, or changes it.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`](model::ErrorKind::Denied) if this client may not.
    pub async fn administer(&self, action: Action) -> Result<Accounts> {
        let request = Request::Administer(proto::account::Administer { action: Some(action) });
        match self.link.ask_cluster(request).await?.response {
            Response::Accounts(accounts) => Ok(accounts),
            _ => Err(unexpected_answer_error()),
        }
    }

    /// The spaces of the cluster that this client may see.
    pub async fn spaces(&self) -> Result<Vec<SpaceInfo>> {
        match self.link.read(Request::ListSpaces(proto::ListSpaces {})).await?.response {
            Response::Spaces(spaces) => spaces.entries.into_iter().map(space_info).collect(),
            _ => Err(unexpected_answer_error()),
        }
    }

    /// What the objects of a space take, or of all spaces that this client may see.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](model::ErrorKind::NotFound) if there is no such space,
    /// [`ErrorKind::Denied`](model::ErrorKind::Denied) if this client may not read it,
    /// [`ErrorKind::Unsupported`](model::ErrorKind::Unsupported) if the server is no peer server.
    pub async fn space_usages(&self, space: Option<&str>) -> Result<Vec<SpaceUsage>> {
        let get = proto::usage::GetSpaceUsages { space: space.unwrap_or_default().to_owned() };
        match self.link.read(Request::GetSpaceUsages(get)).await?.response {
            Response::SpaceUsages(usages) => Ok(usages.spaces.into_iter().map(usage_of_space).collect()),
            _ => Err(unexpected_answer_error()),
        }
    }

    /// Reads or changes the classes and indexes of a space. Peer servers and meta-servers answer this.
    ///
    /// # Errors
    /// Those of the operation.
    pub async fn describe(&self, request: proto::schema::Describe) -> Result<proto::schema::Described> {
        match self.link.ask_cluster(Request::Describe(Box::new(request))).await?.response {
            Response::Described(described) => Ok(described),
            _ => Err(unexpected_answer_error()),
        }
    }

    /// Has logical nodes of a cluster moved to other bricks, or asks where they are. Peer servers and meta-servers
    /// answer this; the latter do not know the progress of moves.
    ///
    /// # Errors
    /// Those of the operation, with words for people.
    pub async fn move_nodes(&self, request: proto::moves::Move) -> Result<proto::moves::Moved> {
        let request = Request::Move(request);
        match self.link.ask_cluster(request).await?.response {
            Response::Moved(moved) => Ok(moved),
            _ => Err(unexpected_answer_error()),
        }
    }

    /// Lists, begins or changes jobs of a cluster. Peer servers and meta-servers answer this.
    ///
    /// # Errors
    /// Those of the operation.
    pub async fn jobs(&self, request: proto::jobs::JobRequest) -> Result<proto::jobs::JobAnswer> {
        match self.link.ask_cluster(Request::JobRequest(request)).await?.response {
            Response::JobAnswer(answered) => Ok(answered),
            _ => Err(unexpected_answer_error()),
        }
    }

    /// Lists the bricks and peer servers of a cluster, or removes one that has ended for good. Peer servers and meta-servers answer
    /// this.
    ///
    /// # Errors
    /// Those of the operation, with words for people.
    pub async fn cluster_members(
        &self,
        request: proto::members::MemberRequest,
    ) -> Result<proto::members::MemberAnswer> {
        let request = Request::MemberRequest(request);
        match self.link.ask_cluster(request).await?.response {
            Response::MemberAnswer(answered) => Ok(answered),
            _ => Err(unexpected_answer_error()),
        }
    }

    /// The logical nodes of this client's space, of a cluster.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](model::ErrorKind::Unsupported) if the server is no peer server.
    pub async fn nodes(&self) -> Result<Vec<NodeId>> {
        match self.link.read(Request::GetSpace(proto::GetSpace {})).await?.response {
            Response::ConnectionSpace(of) => of.nodes.into_iter().map(wire::cluster::node).collect(),
            _ => Err(unexpected_answer_error()),
        }
    }

    /// Has a logical node of this client's space enter all its objects into an index. Says whether it has; otherwise it goes on,
    /// and is to be asked again.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](model::ErrorKind::NotFound) if its brick does not know the index yet.
    pub async fn build_index(&self, node: NodeId, index: u32) -> Result<bool> {
        let build = proto::BuildIndex { space: u32::from(self.space().0), node: node.0, index, only_report: false };
        match self.link.read(Request::BuildIndex(build)).await?.response {
            Response::Done(_) => Ok(true),
            Response::Progress(_) => Ok(false),
            _ => Err(unexpected_answer_error()),
        }
    }

    /// The redirectors of a group that have registered with this peer server, or those of all groups if the name is empty.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](model::ErrorKind::Unsupported) if the server is no peer server.
    pub async fn redirectors(&self, group: &str) -> Result<Vec<RedirectorInfo>> {
        let request = Request::GetGroups(proto::groups::GetGroups { group: group.to_owned() });
        match self.link.read(request).await?.response {
            Response::Groups(found) => Ok(found.redirectors.into_iter().map(RedirectorInfo::from).collect()),
            _ => Err(unexpected_answer_error()),
        }
    }

    /// What the server says of itself.
    pub async fn status(&self) -> Result<Status> {
        match self.link.read(Request::GetStatus(proto::GetStatus {})).await?.response {
            Response::Status(status) => {
                let metrics = status.metrics.into_iter().map(|metric| (metric.name, metric.value)).collect();
                let health_problem = Some(status.health_problem).filter(|health_problem| !health_problem.is_empty());
                let clock = |clock: proto::ClockStatus| {
                    let proto::ClockStatus { process, offset_ms, refused } = clock;
                    ClockStatus { process, offset_ms, refused }
                };
                let clocks = status.clocks.into_iter().map(clock).collect();
                let (agent, role, process) = (status.agent, status.role, status.process);
                Ok(Status { agent, metrics, role, health_problem, process, clocks })
            }
            _ => Err(unexpected_answer_error()),
        }
    }

    /// Asks for an answer, and nothing else.
    pub async fn ping(&self) -> Result<()> {
        match self.link.read(Request::Ping(proto::Ping {})).await?.response {
            Response::Done(_) => Ok(()),
            _ => Err(unexpected_answer_error()),
        }
    }

    /// Writes a backup of the whole store to `out`, while it serves. It uses a separate connection, so that a slow `out` delays no
    /// other call. Dropping the future ends it.
    pub async fn backup(&self, out: impl AsyncWrite + Unpin) -> Result<BackupSummary> {
        self.backup_with(out, |_| ()).await
    }

    /// The same, and tells how many bytes have come after each piece.
    pub async fn backup_with(
        &self,
        mut out: impl AsyncWrite + Unpin,
        mut progress: impl FnMut(Progress),
    ) -> Result<BackupSummary> {
        let mut archive = self.read_archive(proto::Backup::default()).await?;
        let mut done = 0;
        while let Some(piece) = archive.next().await? {
            out.write_all(&piece.bytes).await.map_err(write_failed)?;
            done += piece.bytes.len() as u64;
            progress(Progress { done, total: 0 });
        }
        out.flush().await.map_err(write_failed)?;
        Ok(BackupSummary { bytes: done })
    }

    /// Has the server read and check all that it stores. Dropping the future ends it.
    pub async fn scrub(&self, progress: impl FnMut(Progress)) -> Result<ScrubReport> {
        self.scrub_with(ScrubOptions::default(), progress).await
    }

    /// The same; the server puts problems right as the options say.
    pub async fn scrub_with(
        &self,
        ScrubOptions { repair, discard }: ScrubOptions,
        mut progress: impl FnMut(Progress),
    ) -> Result<ScrubReport> {
        let mut answers = self.link.stream(Request::Scrub(proto::Scrub { repair, discard })).await?;
        loop {
            match answers.next().await?.response {
                Response::Progress(now) => progress(Progress { done: now.done, total: now.total }),
                Response::ScrubDone(done) => {
                    let proto::ScrubDone { objects, bytes, damaged, problems, unlisted, unlisted_dangling, corrected } =
                        done;
                    let problems = problems.into_iter().map(Into::into).collect();
                    return Ok(ScrubReport {
                        objects,
                        bytes,
                        damaged,
                        corrected,
                        problems,
                        unlisted,
                        unlisted_dangling,
                    });
                }
                _ => return Err(unexpected_answer_error()),
            }
        }
    }

    /// Ends the connection; calls on the way fail. Without it the connection ends with the last clone.
    pub fn close(&self) {
        self.link.close();
    }
}

fn space_info(space: proto::Space) -> Result<SpaceInfo> {
    let proto::Space { space, name, policy, max_bytes, max_objects, removing, read_only, clone_of, cloned_ms } = space;
    Ok(SpaceInfo {
        id: convert::space(space)?,
        name,
        policy: policy.map(policy_from_proto).transpose()?,
        max_bytes,
        max_objects,
        removing,
        read_only,
        clone_of: clone_of.map(|space| CloneSource { space, at_ms: cloned_ms }),
    })
}

fn usage_of_space(usage: proto::usage::SpaceUsage) -> SpaceUsage {
    let brick = |proto::usage::BrickUsage { brick, objects, bytes, staged_bytes }| {
        (brick, Usage { objects, bytes, staged_bytes })
    };
    let bricks = usage.bricks.into_iter().map(brick).collect();
    SpaceUsage { name: usage.name, bricks, unknown_nodes: usage.unknown_nodes }
}

fn write_failed(error: std::io::Error) -> model::Error {
    model::Error::new(model::ErrorKind::Io, "the backup cannot be written").with_source(error)
}
