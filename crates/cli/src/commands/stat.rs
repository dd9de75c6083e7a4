//! `mortar stat`: all properties of objects except their content.

use std::io::{self, Write};

use clap::Args;
use model::{Error, ErrorKind, Kind};
use serde::Serialize;

use super::attr::AttributePair;
use super::class as classes;
use super::ls::ObjectSummary;
use crate::connection::CommandContext;
use crate::etag::Etag;
use crate::failure::Result;
use crate::output::{Printable, Report, pluralize};
use crate::target::Target;

const EXAMPLES: &str = "\
Examples:
  mortar stat /photos/cat.jpg
  mortar stat 1.0.0.2a.3 --json";

/// Show kind, size, etag, names, collections and attributes of objects
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
    /// The class of a record.
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    etag: Etag,
    names: Vec<String>,
    /// The collections it is a member of.
    collections: Vec<String>,
    attributes: Vec<AttributePair>,
}

impl Report for ObjectDetails {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let unit = match self.summary.kind() {
            Kind::Collection => ("member", "members"),
            Kind::Directory => ("name", "names"),
            Kind::Blob | Kind::Record => ("byte", "bytes"),
        };
        writeln!(out, "object      {}", self.oid)?;
        writeln!(out, "kind        {}", self.summary.kind().name())?;
        if let Some(class) = &self.class {
            writeln!(out, "class       {class}")?;
        }
        writeln!(out, "size        {}", pluralize(self.summary.size(), unit.0, unit.1))?;
        writeln!(out, "etag        {}", self.etag)?;
        if let Some(modified) = self.summary.modified() {
            writeln!(out, "modified    {modified}")?;
        }
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
    let cluster = session.cluster().await?;
    let mut damage = Ok(());
    for target in &args.targets {
        let stat = target.stat(&cluster).await?;
        let class = match stat.kind() {
            Kind::Record => classes::schema(&cluster).await?.class(stat.object.class).map(|class| class.name.clone()),
            _ => None,
        };
        session.output.print(&ObjectDetails {
            oid: stat.oid.to_string(),
            class,
            names: readable(cluster.names_of(stat.oid).await, &mut damage)?,
            collections: readable(cluster.collections_of(stat.oid).await, &mut damage)?
                .iter()
                .map(ToString::to_string)
                .collect(),
            etag: Etag(stat.object.etag()),
            attributes: stat.object.attributes().iter().map(|(key, value)| AttributePair::new(key, value)).collect(),
            summary: ObjectSummary::from(&stat),
        })?;
    }
    damage
}

/// What leads to an object; nothing if that cannot be read because of damage, which is the failure of the command in the end.
fn readable<T>(found: client::Result<Vec<T>>, damage: &mut Result) -> Result<Vec<T>> {
    match found {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            let what = format!("not all names and sets of the objects can be found: {error}");
            *damage = Err(Error::new(ErrorKind::Corrupt, what).into());
            Ok(Vec::new())
        }
        found => Ok(found?),
    }
}
