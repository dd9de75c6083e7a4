//! `mortar ls`: names, one level at a time, as if they were files; or every object.

use std::io::{self, Write};

use clap::Args;
use client::Client;
use model::{Oid, Stat};
use serde::Serialize;
use tokio::task::JoinHandle;

use super::LISTING_PAGE;
use crate::connection::CommandContext;
use crate::failure::{Failure, Result};
use crate::output::{Printable, Report};
use crate::time;

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
    /// Show kind, size and time of change
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
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Absent for a level of names that is not bound itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    oid: Option<String>,
    #[serde(flatten)]
    stat: Option<ObjectSummary>,
}

/// The properties of an object in a listing, besides its identifier.
#[derive(Clone, Serialize)]
pub(crate) struct ObjectSummary {
    kind: &'static str,
    size: u64,
    version: u64,
    modified: String,
}

impl From<&Stat> for ObjectSummary {
    fn from(stat: &Stat) -> Self {
        Self {
            kind: stat.kind.name(),
            size: stat.size,
            version: stat.version,
            modified: time::from_microseconds(stat.modified_us),
        }
    }
}

impl ObjectSummary {
    /// The kind of the object.
    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    /// Bytes of content, or number of members.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The version of its last change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The time of its last change, RFC 3339.
    pub(crate) fn modified(&self) -> &str {
        &self.modified
    }

    /// Kind, size and time in columns.
    fn columns(&self) -> String {
        format!("{:<10} {:>14}  {:<20}", self.kind, self.size, time::to_seconds(&self.modified))
    }
}

impl Report for ListingLine {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        if let Some(facts) = &self.stat {
            write!(out, "{}  ", facts.columns())?;
        }
        match (&self.name, &self.oid) {
            (Some(name), _) => writeln!(out, "{}", Printable(name)),
            (None, oid) => writeln!(out, "{}", oid.as_deref().unwrap_or_default()),
        }
    }
}

pub(crate) async fn run(args: Ls, session: &mut CommandContext) -> Result {
    let client = session.connect().await?;
    if args.objects {
        return list_objects(session, &client).await;
    }
    // `name:` is also allowed before a level.
    let below = args.below.strip_prefix("name:").unwrap_or(&args.below);
    let prefix = if below.is_empty() || below.ends_with('/') { below.to_owned() } else { format!("{below}/") };
    let mut listing = Listing { client, prefix, recursive: args.recursive, after: None, level: None, ended: false };
    let long = args.long || session.output.json();
    let mut lines = 0;
    while let Some(entries) = listing.page().await? {
        lines += entries.len();
        print(session, &listing.client, entries, long).await?;
    }
    if lines == 0 {
        return check_prefix_exists(&listing.client, below).await;
    }
    Ok(())
}

/// Checks that a level exists: an empty listing is valid below an existing name, or of the whole space.
async fn check_prefix_exists(client: &Client, below: &str) -> Result {
    if below.trim_end_matches('/').is_empty() || client.resolve(below.trim_end_matches('/')).await?.is_some() {
        return Ok(());
    }
    let message = format!("no name is equal to, or begins with, {}", Printable(below));
    Err(Failure::not_found(message).hint("`mortar ls` shows the first level of names, `mortar ls -r` all."))
}

/// A listing of names in progress.
struct Listing {
    client: Client,
    prefix: String,
    recursive: bool,
    after: Option<String>,
    /// The level shown last, with its slash: names below it are skipped.
    level: Option<String>,
    ended: bool,
}

impl Listing {
    /// The next names with their objects; `None` at the end.
    async fn page(&mut self) -> Result<Option<Vec<(String, Option<Oid>)>>> {
        if self.ended {
            return Ok(None);
        }
        let names = self.client.names(&self.prefix, self.after.as_deref(), LISTING_PAGE).await?;
        self.ended = names.len() < LISTING_PAGE;
        let mut entries = Vec::with_capacity(names.len());
        if let Some((last, _)) = names.last() {
            self.after = Some(last.clone());
        }
        for (name, oid) in names {
            if self.recursive {
                entries.push((name, Some(oid)));
                continue;
            }
            if self.level.as_ref().is_some_and(|level| name.starts_with(level)) {
                continue;
            }
            match name[self.prefix.len()..].split_once('/') {
                None => entries.push((name, Some(oid))),
                Some((component, _)) => {
                    let bound = format!("{}{component}", self.prefix);
                    let level = format!("{bound}/");
                    // A level that is bound itself, usually to a collection, is shown by that name.
                    if self.client.resolve(&bound).await?.is_none() {
                        entries.push((level.clone(), None));
                    }
                    self.level = Some(level);
                }
            }
        }
        // A deep level can have millions of names: the next page begins after all of them.
        if let (Some(level), Some(after)) = (&self.level, &self.after)
            && after.starts_with(level)
        {
            self.after = Some(format!("{level}{}", char::MAX));
        }
        Ok(Some(entries))
    }
}

async fn print(
    session: &mut CommandContext,
    client: &Client,
    entries: Vec<(String, Option<Oid>)>,
    long: bool,
) -> Result {
    // The properties of a page are requested together, in one round trip.
    let stats: Vec<Option<JoinHandle<model::Result<Option<Stat>>>>> = entries
        .iter()
        .map(|(_, oid)| {
            let (client, oid) = (client.clone(), (*oid).filter(|_| long)?);
            Some(tokio::spawn(async move { client.stat(oid).await }))
        })
        .collect();
    for ((name, oid), stat) in entries.into_iter().zip(stats) {
        let stat = match stat {
            Some(stat) => stat.await.map_err(|e| Failure::new(format!("listing failed: {e}")))??,
            None => None,
        };
        let line = ListingLine {
            name: Some(name),
            oid: oid.map(|oid| oid.to_string()),
            stat: stat.as_ref().map(ObjectSummary::from),
        };
        session.output.print(&line)?;
    }
    Ok(())
}

async fn list_objects(session: &mut CommandContext, client: &Client) -> Result {
    let mut after = None;
    loop {
        let page = client.objects(after, LISTING_PAGE).await?;
        for stat in &page {
            let line =
                ListingLine { name: None, oid: Some(stat.oid.to_string()), stat: Some(ObjectSummary::from(stat)) };
            session.output.print(&line)?;
        }
        match page.last() {
            Some(last) if page.len() == LISTING_PAGE => after = Some(last.oid),
            _ => return Ok(()),
        }
    }
}
