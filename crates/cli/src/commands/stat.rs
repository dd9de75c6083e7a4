//! `mortar stat`: all properties of objects except their content.

use std::io::{self, Write};

use clap::Args;
use serde::Serialize;

use super::LISTING_PAGE;
use super::attr::{self, AttributePair};
use super::ls::ObjectSummary;
use crate::connection::CommandContext;
use crate::failure::Result;
use crate::output::{Printable, Report, pluralize};
use crate::target::{Target, no_such_object};

const EXAMPLES: &str = "\
Examples:
  mortar stat /photos/cat.jpg
  mortar stat 1.0.0.2a.3 --json";

/// Show kind, size, version, names, collections and attributes of objects
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Stat {
    /// The objects: names or identifiers
    #[arg(required = true)]
    targets: Vec<Target>,
}

#[derive(Serialize)]
struct ObjectDetails {
    oid: String,
    #[serde(flatten)]
    summary: ObjectSummary,
    names: Vec<String>,
    /// The collections it is a member of; the first [`LISTING_PAGE`] of them.
    collections: Vec<String>,
    attributes: Vec<AttributePair>,
}

impl Report for ObjectDetails {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let unit = if self.summary.kind() == "collection" { ("member", "members") } else { ("byte", "bytes") };
        writeln!(out, "object      {}", self.oid)?;
        writeln!(out, "kind        {}", self.summary.kind())?;
        writeln!(out, "size        {}", pluralize(self.summary.size(), unit.0, unit.1))?;
        writeln!(out, "version     {}", self.summary.version())?;
        writeln!(out, "modified    {}", self.summary.modified())?;
        for name in &self.names {
            writeln!(out, "name        {}", Printable(name))?;
        }
        for collection in &self.collections {
            writeln!(out, "member of   {collection}")?;
        }
        for pair in &self.attributes {
            writeln!(out, "attribute   {pair}")?;
        }
        Ok(())
    }
}

pub(crate) async fn run(args: Stat, session: &mut CommandContext) -> Result {
    let client = session.connect().await?;
    for target in &args.targets {
        let oid = target.resolve(&client).await?;
        let stat = client.stat(oid).await?.ok_or_else(|| no_such_object(target))?;
        let collections = client.collections_of(oid, None, LISTING_PAGE).await?;
        session.output.print(&ObjectDetails {
            oid: oid.to_string(),
            summary: ObjectSummary::from(&stat),
            names: client.names_of(oid).await?,
            collections: collections.iter().map(ToString::to_string).collect(),
            attributes: attr::all_attributes(&client, oid).await?,
        })?;
    }
    Ok(())
}
