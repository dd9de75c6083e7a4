//! `mortar space`: object spaces.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use client::{
    AdminClient, BrickStatus, Client, CloneSource, ErrorKind, Event, FailurePolicy, QuotaLimit, SpaceChange, SpaceInfo,
    SpaceOptions, SpaceStatus, SpaceUsage, Usage,
};
use meta::catalog::JobRequest;
use serde::Serialize;
use serde_json::Value as Json;
use tokio::time;

use super::events;
use super::job::{self, JobLine, Rate, parse_rate};
use super::user::{self, Grantee, Permission};
use crate::args::space_name;
use crate::connection::CommandContext;
use crate::failure::{Exit, Failure, Result};
use crate::output::{HumanBytes, HumanCount, Printable, RemovalEnd, Report};
use crate::quota_limit;
use crate::time::{from_microseconds, to_seconds};

const EXAMPLES: &str = "\
Examples:
  mortar space create photos
  mortar space ls
  mortar --server mortar://127.0.0.1:6690 space create music --nodes 16   of a cluster, by its meta-server
  mortar space create accounts --policy fail_stop       refuses everything while a brick is unreachable
  mortar space show accounts                            its bricks, and whether it serves
  mortar space set accounts --policy continue           counts at once
  mortar space clone photos photos-friday               a read-only copy of one moment, while photos is used
  mortar space set photos-friday --read-only false      which accepts changes from now on
  mortar space set photos --max-bytes 10GiB --max-objects 1000000     a quota; `none` removes it
  mortar space rm photos                                if nothing is in it
  mortar space rm photos --cancel                       takes that back, if its server has ended meanwhile
  mortar space rm photos --yes                          with everything in it
  mortar space grant photos read --to-group guests
  mortar space revoke photos --to-user bob
  mortar --server mortar://127.0.0.1:6678/photos ls     work in that space";

const CLONE_HELP: &str = "\
Examples:
  mortar space clone photos photos-friday        all objects, names, classes and indexes, as they are at one moment
  mortar space clone photos copy --detach        without waiting; `mortar job ls` shows it
  mortar --space photos-friday ls                what it has
  mortar space rm photos-friday --yes            when nothing needs it any more

The clone takes as much room as the space. It has the permissions and the quota of the space, and accepts no changes until
`mortar space set CLONE --read-only false`. Objects refer to objects of the clone. A peer server does the work; Ctrl-C ends the
waiting only: `mortar job cancel JOB` stops it and removes what there is.";

/// How long a peer server may take to send the status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// Make, list, show, change and remove object spaces
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Space {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Make a space
    #[command(after_help = EXAMPLES)]
    Create {
        /// Its name
        #[arg(value_parser = space_name)]
        name: String,
        /// In a cluster: the number of logical nodes [default: enough for many more bricks]
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=4096))]
        nodes: Option<u32>,
        /// In a cluster: what happens while a brick of the space is unreachable [default: continue]
        #[arg(long)]
        policy: Option<Policy>,
    },
    /// Make a read-only copy of a space as it is at one moment, while it is used. Requires an administrator
    #[command(after_help = CLONE_HELP)]
    Clone {
        /// The space
        #[arg(value_name = "SPACE", value_parser = space_name)]
        name: String,
        /// The name of the copy
        #[arg(value_name = "CLONE", value_parser = space_name)]
        clone: String,
        /// Do not wait for the end
        #[arg(long)]
        detach: bool,
        /// Most objects a second, such as 500/s [default: as fast as possible]
        #[arg(long, value_parser = parse_rate)]
        rate: Option<Rate>,
    },
    /// List the spaces with what their objects take; a meta-server does not know that
    #[command(alias = "list", after_help = EXAMPLES)]
    Ls,
    /// Show a space of a cluster: its policy, whether it serves now, what its objects take, and its bricks, through a peer server
    #[command(after_help = EXAMPLES)]
    Show {
        /// The space; without it that of the URL
        #[arg(value_name = "SPACE", value_parser = space_name)]
        name: Option<String>,
    },
    /// Change the policy or the quota of a space, or whether it accepts changes, while it serves
    #[command(after_help = EXAMPLES, group = ArgGroup::new("change").required(true).multiple(true))]
    Set {
        /// The space
        #[arg(value_name = "SPACE", value_parser = space_name)]
        name: String,
        /// What happens while a brick of the space is unreachable
        #[arg(long, group = "change")]
        policy: Option<Policy>,
        /// Whether it accepts no changes
        #[arg(long, value_name = "true|false", group = "change")]
        read_only: Option<bool>,
        /// The most bytes that its objects and uploads may take: `10GiB`, `500MB`, `none`. Requires an administrator
        #[arg(long, value_name = "SIZE", group = "change", value_parser = quota_limit::parse_bytes)]
        max_bytes: Option<QuotaLimit>,
        /// The most objects that it may have: `1000000`, `none`. Requires an administrator
        #[arg(long, value_name = "COUNT", group = "change", value_parser = quota_limit::parse_count)]
        max_objects: Option<QuotaLimit>,
    },
    /// Remove a space that has no objects, with its classes and indexes; with --yes also one that has. New work waits meanwhile
    #[command(alias = "remove", after_help = EXAMPLES)]
    Rm {
        /// The space
        #[arg(value_name = "SPACE", value_parser = space_name)]
        name: String,
        /// Remove what is in it, too
        #[arg(long)]
        yes: bool,
        /// Take back a removal whose peer server has ended before it did: until then the space refuses new work
        #[arg(long, conflicts_with = "yes")]
        cancel: bool,
    },
    /// Let a user, or the members of a group, read, write or administer a space
    #[command(after_help = EXAMPLES)]
    Grant {
        /// The space
        #[arg(value_name = "SPACE", value_parser = space_name)]
        name: String,
        /// The permission; each includes the ones before it
        permission: Permission,
        #[command(flatten)]
        to: Grantee,
    },
    /// Take a permission away
    #[command(after_help = EXAMPLES)]
    Revoke {
        /// The space
        #[arg(value_name = "SPACE", value_parser = space_name)]
        name: String,
        #[command(flatten)]
        to: Grantee,
    },
    /// Show the permissions of a space
    #[command(after_help = EXAMPLES)]
    Grants {
        /// The space
        #[arg(value_name = "SPACE", value_parser = space_name)]
        name: String,
    },
}

/// What happens while a brick is unreachable
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Policy {
    /// Everything in the space is refused until the brick is back
    #[value(name = "fail_stop", alias = "fail-stop")]
    FailStop,
    /// The objects of other bricks are served
    Continue,
}

impl From<Policy> for FailurePolicy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::FailStop => Self::FailStop,
            Policy::Continue => Self::Continue,
        }
    }
}

/// The quota of a space.
#[derive(Clone, Copy, Default, Serialize)]
struct Quota {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_objects: Option<u64>,
}

impl Quota {
    fn is_none(&self) -> bool {
        (self.max_bytes, self.max_objects) == (None, None)
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.max_objects, self.max_bytes) {
            (None, None) => f.write_str("none"),
            (Some(objects), None) => write!(f, "at most {} objects", HumanCount(objects)),
            (None, Some(bytes)) => write!(f, "at most {}", HumanBytes(bytes)),
            (Some(objects), Some(bytes)) => {
                write!(f, "at most {} objects, {}", HumanCount(objects), HumanBytes(bytes))
            }
        }
    }
}

/// What the objects of a space take.
#[derive(Clone, Copy, Serialize)]
struct UsageLine {
    objects: u64,
    bytes: u64,
    staged_bytes: u64,
    /// Logical nodes that are missing in the sums.
    #[serde(skip_serializing_if = "is_zero")]
    unknown_nodes: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl UsageLine {
    fn new(Usage { objects, bytes, staged_bytes }: Usage, unknown_nodes: u32) -> Self {
        Self { objects, bytes, staged_bytes, unknown_nodes }
    }
}

impl fmt::Display for UsageLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objects = if self.objects == 1 { "object" } else { "objects" };
        write!(f, "{} {objects}, {}", HumanCount(self.objects), HumanBytes(self.bytes))?;
        if self.staged_bytes > 0 {
            write!(f, ", {} staged", HumanBytes(self.staged_bytes))?;
        }
        match self.unknown_nodes {
            0 => Ok(()),
            1 => f.write_str(" without 1 logical node that does not answer or is damaged"),
            nodes => write!(f, " without {nodes} logical nodes that do not answer or are damaged"),
        }
    }
}

/// What a clone is a clone of.
#[derive(Serialize)]
struct Origin {
    space: String,
    /// When: `2026-11-24T10:00:00Z`.
    at: String,
}

impl From<CloneSource> for Origin {
    fn from(CloneSource { space, at_ms }: CloneSource) -> Self {
        let micros = i64::try_from(at_ms.saturating_mul(1000)).unwrap_or(i64::MAX);
        Self { space, at: to_seconds(&from_microseconds(micros)) }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "clone of {} at {}", Printable(&self.space), self.at)
    }
}

/// Properties of a space that the catalogue has.
#[derive(Default, Serialize)]
struct Properties {
    #[serde(flatten)]
    quota: Quota,
    /// It is being removed, and refuses new work.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    removing: bool,
    /// It accepts no changes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    read_only: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    clone_of: Option<Origin>,
}

impl From<SpaceInfo> for Properties {
    fn from(info: SpaceInfo) -> Self {
        let SpaceInfo { max_bytes, max_objects, removing, read_only, clone_of, .. } = info;
        let quota = Quota { max_bytes, max_objects };
        Self { quota, removing, read_only, clone_of: clone_of.map(Origin::from) }
    }
}

#[derive(Serialize)]
struct SpaceLine {
    id: u16,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'static str>,
    #[serde(flatten)]
    properties: Properties,
    /// What its objects take, if the server knows that.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    usage: Option<UsageLine>,
}

impl From<SpaceInfo> for SpaceLine {
    fn from(info: SpaceInfo) -> Self {
        let policy = info.policy.map(FailurePolicy::name);
        Self { id: info.id.0, name: info.name.clone(), policy, properties: info.into(), usage: None }
    }
}

impl SpaceLine {
    /// A new space that the server does not list.
    fn new_unlisted(id: u16, name: String, policy: Option<FailurePolicy>) -> Self {
        Self { id, name, policy: policy.map(FailurePolicy::name), properties: Properties::default(), usage: None }
    }
}

impl Report for SpaceLine {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let (name, policy) = (Printable(&self.name).to_string(), self.policy.unwrap_or_default());
        let usage = self.usage.map(|usage| usage.to_string());
        let Properties { quota, removing, read_only, clone_of } = &self.properties;
        let quota = (!quota.is_none()).then(|| quota.to_string());
        let removing = removing.then(|| "being removed".to_owned());
        let read_only = read_only.then(|| "read-only".to_owned());
        let origin = clone_of.as_ref().map(ToString::to_string);
        let known = [usage, quota, read_only, origin, removing].into_iter().flatten().collect::<Vec<_>>().join("; ");
        writeln!(out, "{}", format!("{:<6} {name:<20} {policy:<10} {known}", self.id).trim_end())
    }
}

/// A space of a cluster, as a peer server sees it.
#[derive(Serialize)]
struct SpaceDetails {
    id: u16,
    name: String,
    policy: &'static str,
    /// `serving`, `partial` or `stopped`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    peer: String,
    #[serde(flatten)]
    usage: UsageLine,
    #[serde(flatten)]
    properties: Properties,
    bricks: Vec<Json>,
    #[serde(skip)]
    status: SpaceStatus,
    #[serde(skip)]
    brick_usage: BTreeMap<u32, UsageLine>,
}

impl SpaceDetails {
    fn new(id: u16, peer: String, standing: SpaceStatus, usage: &SpaceUsage, info: Option<SpaceInfo>) -> Self {
        let properties = info.map(Properties::from).unwrap_or_default();
        let why = standing.why_stopped();
        let state = match standing.unreachable().next() {
            Some(_) if why.is_some() => "stopped",
            Some(_) => "partial",
            None if standing.damaged().next().is_some() => "partial",
            None => "serving",
        };
        let (name, policy) = (standing.space.clone(), standing.policy.name());
        let brick_usage: BTreeMap<u32, UsageLine> =
            usage.bricks.iter().map(|(brick, usage)| (*brick, UsageLine::new(*usage, 0))).collect();
        let brick = |brick: &BrickStatus| {
            let mut shown = events::brick_to_json(brick);
            if let (Some(shown), Some(usage)) = (shown.as_object_mut(), brick_usage.get(&brick.brick)) {
                shown.insert("objects".to_owned(), usage.objects.into());
                shown.insert("bytes".to_owned(), usage.bytes.into());
                shown.insert("staged_bytes".to_owned(), usage.staged_bytes.into());
            }
            shown
        };
        let bricks = standing.bricks.iter().map(brick).collect();
        let usage = UsageLine::new(usage.total(), usage.unknown_nodes);
        Self { id, name, policy, state, why, peer, usage, properties, bricks, status: standing, brick_usage }
    }
}

impl Report for SpaceDetails {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "space    {} ({})", Printable(&self.name), self.id)?;
        writeln!(out, "policy   {}", self.policy)?;
        let Properties { quota, removing, read_only, clone_of } = &self.properties;
        let read_only = if *read_only { ", read-only" } else { "" };
        writeln!(out, "state    {}{read_only}{}", self.state, if *removing { ", being removed" } else { "" })?;
        if let Some(origin) = clone_of {
            writeln!(out, "origin   {origin}")?;
        }
        writeln!(out, "holds    {}", self.usage)?;
        writeln!(out, "quota    {quota}")?;
        for brick in &self.status.bricks {
            write!(out, "brick {:<2} {}  ", brick.brick, Printable(&brick.address))?;
            if let Some(usage) = self.brick_usage.get(&brick.brick) {
                write!(out, "{usage}; ")?;
            }
            match brick.unreachable_since {
                Some(since) => write!(out, "unreachable since {since}; logical nodes")?,
                None => write!(out, "logical nodes")?,
            }
            brick.nodes.iter().try_for_each(|(node, _)| write!(out, " {:x}", node.0))?;
            writeln!(out)?;
        }
        for (brick, node, damage) in self.status.damaged() {
            writeln!(out, "damaged  logical node {:x} of brick {}: {}", node.0, brick.brick, Printable(damage))?;
        }
        match &self.why {
            Some(why) => writeln!(out, "{}", Printable(why)),
            None => Ok(()),
        }
    }
}

pub(crate) async fn run(args: Space, session: &mut CommandContext) -> Result {
    match args.action {
        Action::Create { name, nodes, policy } => {
            let policy = policy.map(FailurePolicy::from);
            let client = session.connect_to_cluster().await?;
            let id = client.create_space_with(&name, SpaceOptions { nodes, policy }).await?;
            // The server may have chosen the policy.
            let made = client.spaces().await?.into_iter().find(|space| space.id == id);
            session.output.print(&made.map_or_else(|| SpaceLine::new_unlisted(id.0, name, policy), SpaceLine::from))
        }
        Action::Clone { name, clone, detach, rate } => {
            let (client, rate) = (session.connect_to_cluster().await?, rate.and_then(|rate| rate.0));
            let wanted = JobRequest::Clone { space: name, name: clone.clone(), rate };
            let begun = job::ask_one(&client, &wanted).await?;
            if detach {
                return session.output.print(&JobLine::of(begun, false));
            }
            job::check_end(&job::follow(&client, session, begun.job, "cloning").await?)?;
            print_space(&client, &clone, session).await
        }
        Action::Ls => {
            let client = session.connect_to_cluster().await?;
            let spaces = client.spaces().await?;
            let mut usages = usages_if_known(&client).await?;
            spaces.into_iter().try_for_each(|space| {
                let usage = usages.remove(&space.name);
                session.output.print(&SpaceLine { usage, ..SpaceLine::from(space) })
            })
        }
        Action::Show { name } => show(&session.cluster_of(name.as_deref()).await?, session).await,
        Action::Set { name, policy, read_only, max_bytes, max_objects } => {
            let client = session.connect_to_cluster().await?;
            let change = SpaceChange { policy: policy.map(FailurePolicy::from), max_bytes, max_objects, read_only };
            client.change_space(&name, change).await?;
            print_space(&client, &name, session).await
        }
        Action::Rm { name, cancel: true, .. } => cancel_removal(name, session).await,
        Action::Rm { name, yes, .. } => remove(&name, yes, session).await,
        Action::Grant { name, permission, to } => user::grant(name, Some(permission), to, session).await,
        Action::Revoke { name, to } => user::grant(name, None, to, session).await,
        Action::Grants { name } => user::grants(name, session).await,
    }
}

/// Prints what the server has of a space, without what its objects take.
async fn print_space(client: &AdminClient, name: &str, session: &mut CommandContext) -> Result {
    let found = client.spaces().await?.into_iter().find(|space| space.name == name);
    found.map_or(Ok(()), |space| session.output.print(&SpaceLine::from(space)))
}

async fn cancel_removal(name: String, session: &mut CommandContext) -> Result {
    session.connect_to_cluster().await?.cancel_space_removal(&name).await?;
    session.output.print(&RemovalEnd::RemovalCancelled(name))
}

async fn remove(name: &str, with_objects: bool, session: &mut CommandContext) -> Result {
    let client = session.connect_to_cluster().await?;
    let removed = if with_objects { client.remove_space(name).await } else { client.remove_empty_space(name).await };
    match removed {
        Err(error) if error.kind() == ErrorKind::Conflict => {
            let hint = format!(
                "`mortar space rm {name} --yes` removes it with everything in it. Nothing brings that back but a backup."
            );
            return Err(Failure::conflict(error.message()).hint(hint));
        }
        removed => removed?,
    }
    session.output.print(&RemovalEnd::Removed(name.to_owned()))
}

/// What the spaces take, by name; nothing if the server is a meta-server, which does not know.
async fn usages_if_known(client: &AdminClient) -> Result<BTreeMap<String, UsageLine>> {
    match client.space_usages(None).await {
        Ok(usages) => {
            let line = |usage: SpaceUsage| (usage.name.clone(), UsageLine::new(usage.total(), usage.unknown_nodes));
            Ok(usages.into_iter().map(line).collect())
        }
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(BTreeMap::new()),
        Err(error) => Err(error.into()),
    }
}

async fn show(cluster: &Client, session: &mut CommandContext) -> Result {
    let first = async {
        let mut events = cluster.events()?;
        loop {
            match events.next().await {
                Some(Event::Connected { peer, status: standing }) => {
                    return Ok((peer, standing));
                }
                Some(_) => {}
                None => return Err(Failure::new("the client has ended")),
            }
        }
    };
    let silent = |_| {
        let what = format!(
            "the peer server did not send the status of the space within {STATUS_TIMEOUT:?}: it may be an older version"
        );
        Failure::with(Exit::Unavailable, "unavailable", what)
    };
    let (peer, status) = time::timeout(STATUS_TIMEOUT, first).await.map_err(silent)??;
    let client = session.connect_to_cluster().await?;
    let usage = client.space_usages(Some(&status.space)).await?.into_iter().next().unwrap_or_default();
    let info = client.spaces().await?.into_iter().find(|info| info.id == cluster.space());
    session.output.print(&SpaceDetails::new(cluster.space().0, peer, status, &usage, info))
}
