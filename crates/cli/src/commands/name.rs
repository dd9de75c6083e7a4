//! `mortar name`: names and the objects that they are bound to.

use std::io::{self, Write};

use clap::{Args, Subcommand, value_parser};
use client::{Client, Error, ErrorKind, ListedName, Transaction};
use serde::Serialize;

use super::ls::DamagedObjects;
use crate::connection::CommandContext;
use crate::failure::Result;
use crate::output::{Printable, Report};
use crate::target::{NamePath, Target, no_such_name, no_such_object};

const EXAMPLES: &str = "\
Examples:
  mortar name bind /photos/best.jpg 1.0.0.2a.3
  mortar name resolve /photos/best.jpg
  mortar name unbind /photos/best.jpg       the object stays
  mortar name ls /photos/
  mortar name ls --limit 10 --after /photos/cat.jpg

`/` divides a name into directories, which `bind` makes where they are missing.";

/// Bind names to objects, and look them up
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Name {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Bind a name to an object, replacing its binding
    #[command(after_help = EXAMPLES)]
    Bind {
        /// The name
        name: NamePath,
        /// The object: a name or an identifier
        target: Target,
        /// Fail if the name is taken
        #[arg(long)]
        new: bool,
    },
    /// Unbind names; the objects stay
    #[command(after_help = EXAMPLES)]
    Unbind {
        /// The names
        #[arg(required = true)]
        names: Vec<NamePath>,
    },
    /// Print the identifier that a name is bound to
    #[command(after_help = EXAMPLES)]
    Resolve {
        /// The name
        name: NamePath,
    },
    /// List names with their objects
    #[command(alias = "list", after_help = EXAMPLES)]
    Ls {
        /// Only names that begin with this text
        #[arg(default_value = "")]
        prefix: String,
        /// Only names behind this one, in the order of their bytes
        #[arg(long, value_name = "NAME")]
        after: Option<String>,
        /// So many at most
        #[arg(long, value_name = "COUNT", value_parser = value_parser!(u64).range(1..))]
        limit: Option<u64>,
    },
}

#[derive(Serialize)]
struct ResolvedName {
    name: String,
    oid: String,
}

impl Report for ResolvedName {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.oid)
    }
}

/// A name in a listing; like [`ResolvedName`] in JSON, but with the name in its text form.
#[derive(Serialize)]
#[serde(transparent)]
struct NameLine(ResolvedName);

impl Report for NameLine {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}  {}", self.0.oid, Printable(&self.0.name))
    }
}

pub(crate) async fn run(args: Name, session: &mut CommandContext) -> Result {
    let cluster = session.cluster().await?;
    match args.action {
        Action::Bind { name, target, new } => bind(&cluster, &name, &target, new).await,
        Action::Unbind { names } => unbind(&cluster, &names).await,
        Action::Resolve { name } => {
            let oid = cluster.resolve(name.as_str()).await?.ok_or_else(|| no_such_name(&name))?;
            session.output.print(&ResolvedName { name: name.as_str().to_owned(), oid: oid.to_string() })
        }
        Action::Ls { prefix, after, limit } => {
            list(session, &cluster, &prefix, (after.as_deref(), limit.unwrap_or(u64::MAX))).await
        }
    }
}

async fn bind(cluster: &Client, name: &NamePath, target: &Target, new: bool) -> Result {
    let path = name.as_str();
    let bind = |t: Transaction| async move {
        let oid = match target {
            Target::Oid(oid) => t.get(*oid).await?.map(|_| *oid),
            Target::Path(path) => t.resolve(path.as_str()).await?,
        };
        let Some(oid) = oid else { return Ok(false) };
        if new && t.resolve(path).await?.is_some() {
            return Err(Error::new(ErrorKind::Exists, format!("the name {path} is taken")));
        }
        t.bind(path, oid).await?;
        Ok(true)
    };
    if cluster.transact(bind).await? { Ok(()) } else { Err(no_such_object(target)) }
}

/// Unbinds names, all or none.
async fn unbind(cluster: &Client, names: &[NamePath]) -> Result {
    let unbind = |t: Transaction| async move {
        for name in names {
            if !t.unbind(name.as_str()).await? {
                // Nothing is unbound then.
                return Err(Error::new(ErrorKind::NotFound, format!("nothing has the name {name}")));
            }
        }
        Ok(())
    };
    Ok(cluster.transact(unbind).await?)
}

async fn list(
    session: &mut CommandContext,
    cluster: &Client,
    prefix: &str,
    (after, limit): (Option<&str>, u64),
) -> Result {
    let mut names = cluster.names(prefix).portion_size(usize::try_from(limit).unwrap_or(usize::MAX));
    if let Some(after) = after {
        names = names.after(after);
    }
    let (mut left, mut damaged) = (limit, DamagedObjects::default());
    while left > 0 {
        let Some(mut portion) = names.next().await? else { break };
        portion.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        left -= portion.len() as u64;
        for ListedName { path, oid, damage, .. } in portion {
            if let Some(why) = damage {
                damaged.report(session.output.json(), &path, &why);
            }
            session.output.print(&NameLine(ResolvedName { name: path, oid: oid.to_string() }))?;
        }
    }
    damaged.check()
}
