//! `mortar name`: names and the objects that they are bound to.

use std::io::{self, Write};

use clap::{Args, Subcommand, value_parser};
use client::cluster;
use client::{Client, Error, ErrorKind};
use model::{Oid, Op, Transaction};
use serde::Serialize;

use super::{CommitReport, LISTING_PAGE, commit, is_of_cluster};
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

In a cluster, `/` divides a name into directories, which `bind` makes where they are missing.";

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
    let client = session.connect().await?;
    match args.action {
        Action::Bind { name, target, new } if is_of_cluster(&client).await? => {
            bind_in_cluster(session, &name, &target, new).await
        }
        Action::Unbind { names } if is_of_cluster(&client).await? => unbind_in_cluster(session, &names).await,
        Action::Bind { name, target, new } => {
            let oid = target.resolve(&client).await?;
            let name = name.in_space(client.space());
            let mut ops = vec![Op::Bind { name: name.clone(), oid }];
            if new {
                ops.insert(0, Op::ExpectName { name, oid: None });
            }
            let done = commit(&client, Transaction { ops }).await?;
            session.output.print(&CommitReport::from(done))
        }
        Action::Unbind { names } => {
            let mut ops = Vec::with_capacity(names.len());
            for name in &names {
                client.resolve(name.as_str()).await?.ok_or_else(|| no_such_name(name))?;
                ops.push(Op::Unbind { name: name.in_space(client.space()) });
            }
            let done = commit(&client, Transaction { ops }).await?;
            session.output.print(&CommitReport::from(done))
        }
        Action::Resolve { name } if is_of_cluster(&client).await? => {
            let (cluster, path) = (session.cluster().await?, name.as_str());
            let oid = cluster.transact(|t| async move { t.resolve(path).await }).await?;
            let none = || no_such_name(&name).hint("`mortar name ls` shows the names there are.");
            let oid = oid.ok_or_else(none)?;
            session.output.print(&ResolvedName { name: name.as_str().to_owned(), oid: oid.to_string() })
        }
        Action::Resolve { name } => {
            let oid = client.resolve(name.as_str()).await?.ok_or_else(|| no_such_name(&name))?;
            session.output.print(&ResolvedName { name: name.as_str().to_owned(), oid: oid.to_string() })
        }
        Action::Ls { prefix, after, limit } => {
            let limit = limit.unwrap_or(u64::MAX);
            if is_of_cluster(&client).await? {
                return list_of_cluster(session, &prefix, after.as_deref(), limit).await;
            }
            list(session, &client, &prefix, (after, limit)).await
        }
    }
}

/// Binds a name of a cluster.
async fn bind_in_cluster(session: &mut CommandContext, name: &NamePath, target: &Target, new: bool) -> Result {
    let (client, path) = (session.cluster().await?, name.as_str());
    let bind = |t: cluster::Transaction| async move {
        let oid = match target {
            Target::Oid(oid) => Some(*oid),
            Target::Path(path) => t.resolve(path.as_str()).await?,
        };
        let Some(oid) = oid else { return Ok(false) };
        if new && t.resolve(path).await?.is_some() {
            return Err(Error::new(ErrorKind::Exists, format!("the name {path} is taken")));
        }
        t.bind(path, oid).await?;
        Ok(true)
    };
    if client.transact(bind).await? { Ok(()) } else { Err(no_such_object(target)) }
}

/// Unbinds names of a cluster, all or none.
async fn unbind_in_cluster(session: &mut CommandContext, names: &[NamePath]) -> Result {
    let client = session.cluster().await?;
    let unbind = |t: cluster::Transaction| async move {
        for name in names {
            if !t.unbind(name.as_str()).await? {
                // Nothing is unbound then.
                return Err(Error::new(ErrorKind::NotFound, format!("nothing has the name {name}")));
            }
        }
        Ok(())
    };
    Ok(client.transact(unbind).await?)
}

/// Lists names of a store.
async fn list(
    session: &mut CommandContext,
    client: &Client,
    prefix: &str,
    (mut after, mut left): (Option<String>, u64),
) -> Result {
    while left > 0 {
        let wanted = usize::try_from(left).unwrap_or(LISTING_PAGE).min(LISTING_PAGE);
        let page = client.names(prefix, after.as_deref(), wanted).await?;
        left = if page.len() < wanted { 0 } else { left - page.len() as u64 };
        after = page.last().map(|(name, _)| name.clone());
        print(session, page)?;
    }
    Ok(())
}

/// Lists names of a cluster.
async fn list_of_cluster(session: &mut CommandContext, prefix: &str, after: Option<&str>, limit: u64) -> Result {
    let mut names = session.cluster().await?.names(prefix).portion_size(usize::try_from(limit).unwrap_or(usize::MAX));
    if let Some(after) = after {
        names = names.after(after);
    }
    let mut left = limit;
    while left > 0 {
        let Some(mut page) = names.next().await? else { return Ok(()) };
        page.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        left -= page.len() as u64;
        print(session, page.into_iter().map(|name| (name.path, name.oid)).collect())?;
    }
    Ok(())
}

fn print(session: &mut CommandContext, names: Vec<(String, Oid)>) -> Result {
    let line = |(name, oid): (String, Oid)| NameLine(ResolvedName { name, oid: oid.to_string() });
    names.into_iter().try_for_each(|name| session.output.print(&line(name)))
}
