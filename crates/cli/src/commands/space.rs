//! `mortar space`: object spaces.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use client::{
    AdminClient, BrickStatus, Client, ErrorKind, Event, FailurePolicy, QuotaLimit, SpaceChange, SpaceInfo,
    SpaceOptions, SpaceStatus, SpaceUsage, Usage,
};
use serde::Serialize;
use serde_json::Value as Json;
use tokio::time;

use super::events;
use super::user::{self, Grantee, Permission};
use crate::connection::CommandContext;
use crate::failure::{Exit, Failure, Result};
use crate::output::{HumanBytes, HumanCount, Printable, RemovalEnd, Report};
use crate::quota_limit;

const EXAMPLES: &str = "\
Examples:
  mortar space create photos
  mortar space ls
  mortar --server mortar://127.0.0.1:6690 space create music --nodes 16   of a cluster, by its meta-server
  mortar space create accounts --policy fail_stop       refuses everything while a brick is unreachable
  mortar space show accounts                            its bricks, and whether it serves
  mortar space set accounts --policy continue           counts at once
  mortar space set photos --max-bytes 10GiB --max-objects 1000000     a quota; `none` removes it
  mortar space rm photos                                if nothing is in it
  mortar space rm photos --cancel                       takes that back, if its server has ended meanwhile
  mortar space rm photos --yes                          with everything in it
  mortar space grant photos read --to-group guests
  mortar space revoke photos --to-user bob
  mortar --server mortar://127.0.0.1:6678/photos ls     work in that space";

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
        name: String,
        /// In a cluster: the number of logical nodes [default: enough for many more bricks]
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=4096))]
        nodes: Option<u32>,
        /// In a cluster: what happens while a brick of the space is unreachable [default: continue]
        #[arg(long)]
        policy: Option<Policy>,
    },
    /// List the spaces with what their objects take; a meta-server does not know that
    #[command(alias = "list", after_help = EXAMPLES)]
    Ls,
    /// Show a space of a cluster: its policy, whether it serves now, what its objects take, and its bricks, through a peer server
    #[command(after_help = EXAMPLES)]
    Show {
        /// The space; without it that of the URL
        #[arg(value_name = "SPACE")]
        name: Option<String>,
    },
    /// Change the policy or the quota of a space, while it serves
    #[command(after_help = EXAMPLES)]
    Set {
        /// The space
        #[arg(value_name = "SPACE")]
        name: String,
        /// What happens while a brick of the space is unreachable
        #[arg(long, required_unless_present_any = ["max_bytes", "max_objects"])]
        policy: Option<Policy>,
        /// The most bytes that its objects and uploads may take: `10GiB`, `500MB`, `none`. Requires an administrator
        #[arg(long, value_name = "SIZE", value_parser = quota_limit::parse_bytes)]
        max_bytes: Option<QuotaLimit>,
        /// The most objects that it may have: `1000000`, `none`. Requires an administrator
        #[arg(long, value_name = "COUNT", value_parser = quota_limit::parse_count)]
        max_objects: Option<QuotaLimit>,
    },
    /// Remove a space that has no objects, with its classes and indexes; with --yes also one that has. New work waits meanwhile
    #[command(alias = "remove", after_help = EXAMPLES)]
    Rm {
        /// The space
        #[arg(value_name = "SPACE")]
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
        #[arg(value_name = "SPACE")]
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
        #[arg(value_name = "SPACE")]
        name: String,
        #[command(flatten)]
        to: Grantee,
    },
    /// Show the permissions of a space
    #[command(after_help = EXAMPLES)]
    Grants {
        /// The space
        #[arg(value_name = "SPACE")]
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
    fn of(info: &SpaceInfo) -> Self {
        Self { max_bytes: info.max_bytes, max_objects: info.max_objects }
    }

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
            1 => f.write_str(" without 1 logical node whose brick does not answer"),
            nodes => write!(f, " without {nodes} logical nodes whose bricks do not answer"),
        }
    }
}

#[derive(Serialize)]
struct SpaceLine {
    id: u16,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'static str>,
    #[serde(flatten)]
    quota: Quota,
    /// It is being removed, and refuses new work.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    removing: bool,
    /// What its objects take, if the server knows that.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    usage: Option<UsageLine>,
}

impl From<SpaceInfo> for SpaceLine {
    fn from(info: SpaceInfo) -> Self {
        let (policy, quota) = (info.policy.map(FailurePolicy::name), Quota::of(&info));
        Self { id: info.id.0, name: info.name, policy, quota, removing: info.removing, usage: None }
    }
}

impl Report for SpaceLine {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let (name, policy) = (Printable(&self.name).to_string(), self.policy.unwrap_or_default());
        let usage = self.usage.map(|usage| usage.to_string());
        let quota = (!self.quota.is_none()).then(|| self.quota.to_string());
        let removing = self.removing.then(|| "being removed".to_owned());
        let known = [usage, quota, removing].into_iter().flatten().collect::<Vec<_>>().join("; ");
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
    quota: Quota,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    removing: bool,
    bricks: Vec<Json>,
    #[serde(skip)]
    status: SpaceStatus,
    #[serde(skip)]
    brick_usage: BTreeMap<u32, UsageLine>,
}

impl SpaceDetails {
    fn new(id: u16, peer: String, standing: SpaceStatus, usage: &SpaceUsage, info: Option<&SpaceInfo>) -> Self {
        let (quota, removing) = info.map(|info| (Quota::of(info), info.removing)).unwrap_or_default();
        let why = standing.why_stopped();
        let state = match standing.unreachable().next() {
            None => "serving",
            Some(_) if why.is_some() => "stopped",
            Some(_) => "partial",
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
        Self { id, name, policy, state, why, peer, usage, quota, removing, bricks, status: standing, brick_usage }
    }
}

impl Report for SpaceDetails {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "space    {} ({})", Printable(&self.name), self.id)?;
        writeln!(out, "policy   {}", self.policy)?;
        writeln!(out, "state    {}{}", self.state, if self.removing { ", being removed" } else { "" })?;
        writeln!(out, "holds    {}", self.usage)?;
        writeln!(out, "quota    {}", self.quota)?;
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
            let unlisted = SpaceInfo { id, name, policy, max_bytes: None, max_objects: None, removing: false };
            session.output.print(&SpaceLine::from(made.unwrap_or(unlisted)))
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
        Action::Set { name, policy, max_bytes, max_objects } => {
            let client = session.connect_to_cluster().await?;
            let change = SpaceChange { policy: policy.map(FailurePolicy::from), max_bytes, max_objects };
            client.change_space(&name, change).await?;
            let spaces = client.spaces().await?;
            let changed = spaces.into_iter().find(|space| space.name == name);
            changed.map_or(Ok(()), |space| session.output.print(&SpaceLine::from(space)))
        }
        Action::Rm { name, cancel: true, .. } => cancel_removal(name, session).await,
        Action::Rm { name, yes, .. } => remove(&name, yes, session).await,
        Action::Grant { name, permission, to } => user::grant(name, Some(permission), to, session).await,
        Action::Revoke { name, to } => user::grant(name, None, to, session).await,
        Action::Grants { name } => user::grants(name, session).await,
    }
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
    session.output.print(&SpaceDetails::new(cluster.space().0, peer, status, &usage, info.as_ref()))
}
