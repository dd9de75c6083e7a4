//! `mortar ls`: names, one level at a time, as if they were files; or every object.

use std::collections::BTreeSet;
use std::io::{self, Write};

use clap::Args;
use client::{Client, ListedName, ListedObject, ObjectStat};
use model::{ErrorKind, Kind, Object};
use serde::{Serialize, Serializer};
use tokio::task::JoinHandle;
use wire::tasks;

use super::LISTING_PAGE;
use super::tree::check_damage;
use crate::connection::CommandContext;
use crate::failure::{Failure, Result};
use crate::output::{self, Printable, Report};
use crate::target::{NamePath, Target};
use crate::time;
use crate::tree::attributes::{MTIME, Mtime};

const EXAMPLES: &str = "\
Examples:
  mortar ls                     the first level of names
  mortar ls /photos             the names just below /photos
  mortar ls -l /photos          with kind, size and time
  mortar ls -r                  every name, at every level
  mortar ls --objects --json    every object, named or not, one JSON object each";

/// List names, or objects
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Ls {
    /// List the names below this one
    #[arg(default_value = "/", conflicts_with = "objects")]
    below: String,
    /// Show kind, size, and the time of the file or of the last change of a directory
    #[arg(short, long)]
    long: bool,
    /// Show all levels, not just the next one
    #[arg(short, long)]
    recursive: bool,
    /// List every object of the space by identifier, whether it has a name or not
    #[arg(long)]
    objects: bool,
}

/// One line of a listing.
#[derive(Serialize)]
struct ListingLine {
    /// The path; that of a directory ends with a slash.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    oid: String,
    #[serde(flatten)]
    summary: Option<ObjectSummary>,
    /// Why the object cannot be read, if it is damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged: Option<String>,
}

/// Counts damaged objects while the others are listed, and reports each.
#[derive(Default)]
pub(super) struct DamagedObjects {
    reported: BTreeSet<String>,
    /// The directories that were printed on the way to the last name, the deepest last.
    directories: Vec<String>,
}

impl DamagedObjects {
    /// The object with this name is damaged.
    pub(super) fn report(&mut self, json: bool, path: &str, why: &str) {
        self.reported.insert(path.to_owned());
        output::warn(json, "damaged", &format!("{path}: damaged in the store: {why}"));
    }

    /// Whether a directory was listed already: once more it is listed to tell that some of its names cannot be read.
    fn is_listed_again(&mut self, path: &str) -> bool {
        let is_below = |above: &String| {
            path == above || path.strip_prefix(above.as_str()).is_some_and(|rest| rest.starts_with('/'))
        };
        self.directories.truncate(self.directories.iter().rposition(is_below).map_or(0, |at| at + 1));
        if self.directories.last().is_some_and(|last| last == path) {
            return true;
        }
        self.directories.push(path.to_owned());
        false
    }

    /// Fails if there are any.
    pub(super) fn check(&self) -> Result {
        check_damage(self.reported.len() as u64)
    }
}

/// The properties of an object in a listing, besides its identifier.
#[derive(Clone, Serialize)]
pub(crate) struct ObjectSummary {
    #[serde(serialize_with = "kind_name")]
    kind: Kind,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified: Option<String>,
}

fn kind_name<S: Serializer>(kind: &Kind, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.name())
}

/// The time of the file from which an object was imported.
fn file_time(object: &Object) -> Option<String> {
    let mtime = object.attributes().get(MTIME.as_bytes())?;
    let Mtime { seconds, nanoseconds } = std::str::from_utf8(mtime).ok()?.parse().ok()?;
    time::from_seconds(seconds, nanoseconds)
}

impl From<&ObjectStat> for ObjectSummary {
    fn from(stat: &ObjectStat) -> Self {
        let modified = file_time(&stat.object).or_else(|| stat.entry_changed.map(time::from_system_time));
        Self { kind: stat.kind(), size: stat.size, modified }
    }
}

impl ObjectSummary {
    /// The kind of the object.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Bytes of content, or number of entries.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The time of the file that was imported, or of the last change of an entry, RFC 3339.
    pub(crate) fn modified(&self) -> Option<&str> {
        self.modified.as_deref()
    }

    /// Kind, size and time in columns.
    fn columns(&self) -> String {
        let modified = self.modified().map_or_else(|| "-".to_owned(), time::to_seconds);
        format!("{:<10} {:>14}  {modified:<20}", self.kind.name(), self.size)
    }
}

impl Report for ListingLine {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        if let Some(summary) = &self.summary {
            write!(out, "{}  ", summary.columns())?;
        }
        writeln!(out, "{}", self.name.as_deref().map_or_else(|| self.oid.clone(), |name| Printable(name).to_string()))
    }
}

pub(crate) async fn run(args: Ls, session: &mut CommandContext) -> Result {
    let cluster = session.cluster().await?;
    if args.objects {
        return list_objects(session, &cluster).await;
    }
    let below = args.below.trim_end_matches('/');
    if !below.is_empty() {
        check_directory(&cluster, below).await?;
    }
    let names = cluster.names(&format!("{below}/")).portion_size(LISTING_PAGE).with_directories().below_damage();
    let mut names = if args.recursive { names } else { names.one_level() };
    let (long, mut damaged) = (args.long || session.output.json(), DamagedObjects::default());
    while let Some(portion) = names.next().await? {
        print(session, &cluster, portion, long, &mut damaged).await?;
    }
    damaged.check()
}

/// Checks that a path is that of a directory: its listing may be empty.
async fn check_directory(cluster: &Client, path: &str) -> Result {
    let target = Target::Path(path.parse::<NamePath>().map_err(Failure::usage)?);
    match target.stat(cluster).await?.kind() {
        Kind::Directory => Ok(()),
        kind => Err(Failure::usage(format!("{target} is a {}, not a directory", kind.name()))
            .hint(format!("`mortar stat {target}` shows its properties."))),
    }
}

async fn print(
    session: &mut CommandContext,
    cluster: &Client,
    names: Vec<ListedName>,
    long: bool,
    damaged: &mut DamagedObjects,
) -> Result {
    // The properties of a portion are requested together, in one round trip.
    let stats: Vec<Option<JoinHandle<model::Result<Option<ObjectStat>>>>> = names
        .iter()
        .map(|name| {
            let (cluster, oid) = (cluster.clone(), name.oid);
            long.then(|| tasks::spawn(async move { cluster.stat(oid).await }))
        })
        .collect();
    for (ListedName { path, oid, is_directory, mut damage }, stat) in names.into_iter().zip(stats) {
        let stat = match stat {
            Some(stat) => match stat.await.map_err(|e| Failure::new(format!("listing failed: {e}")))? {
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    damage = Some(error.message().to_owned());
                    None
                }
                stat => stat?,
            },
            None => None,
        };
        if let Some(why) = &damage {
            damaged.report(session.output.json(), &path, why);
        }
        if is_directory && damaged.is_listed_again(&path) {
            continue;
        }
        session.output.print(&ListingLine {
            name: Some(if is_directory && path != "/" { path + "/" } else { path }),
            oid: oid.to_string(),
            summary: stat.as_ref().map(ObjectSummary::from),
            damaged: damage,
        })?;
    }
    Ok(())
}

async fn list_objects(session: &mut CommandContext, cluster: &Client) -> Result {
    let (mut objects, mut damaged) = (cluster.objects(), DamagedObjects::default());
    loop {
        let portion = match objects.next().await {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                damaged.report(session.output.json(), "some objects", error.message());
                continue;
            }
            portion => portion?,
        };
        let Some(portion) = portion else { break };
        for ListedObject { oid, kind, size } in portion {
            let summary = ObjectSummary { kind, size, modified: None };
            session.output.print(&ListingLine {
                name: None,
                oid: oid.to_string(),
                summary: Some(summary),
                damaged: None,
            })?;
        }
    }
    damaged.check()
}
