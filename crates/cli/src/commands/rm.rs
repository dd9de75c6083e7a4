//! `mortar rm`: deletes objects with their attributes, names and memberships.

use std::io::{self, Write};

use clap::Args;
use client::Client;
use model::{Kind, Oid, Op, Transaction};
use serde::Serialize;

use super::{LISTING_PAGE, commit};
use crate::connection::CommandContext;
use crate::failure::{Exit, Failure, Result};
use crate::output::{Report, pluralize};
use crate::target::{Target, no_such_object};

const EXAMPLES: &str = "\
Examples:
  mortar rm /photos/cat.jpg
  mortar rm 1.0.0.2a.3 1.0.0.2a.4
  mortar rm -r /photos          /photos and every name below it";

/// Delete objects: content, attributes, names and their places in collections
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Rm {
    /// The objects: names or identifiers
    #[arg(required = true)]
    targets: Vec<Target>,
    /// Delete the objects of all names below, too
    #[arg(short, long)]
    recursive: bool,
    /// Ignore missing objects
    #[arg(short, long)]
    force: bool,
}

#[derive(Default, Serialize)]
struct DeleteReport {
    deleted: u64,
}

impl Report for DeleteReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "deleted {}", pluralize(self.deleted, "object", "objects"))
    }
}

pub(crate) async fn run(args: Rm, session: &mut CommandContext) -> Result {
    let client = session.connect().await?;
    let mut report = DeleteReport::default();
    for target in &args.targets {
        match delete(target, args.recursive, &client).await {
            Ok(deleted) => report.deleted += deleted,
            Err(failure) if args.force && failure.exit() == Exit::NotFound => {}
            Err(failure) => return Err(failure),
        }
    }
    session.output.print(&report)
}

async fn delete(target: &Target, recursive: bool, client: &Client) -> Result<u64> {
    let below = match target {
        Target::Path(path) => Some(format!("{}/", path.as_str().trim_end_matches('/'))),
        Target::Oid(_) => None,
    };
    let mut deleted = 0;
    if recursive && let Some(prefix) = &below {
        deleted += delete_below(prefix, client).await?;
    }
    let oid = match target.resolve(client).await {
        // A level of names need not be bound itself.
        Err(failure) if deleted > 0 && failure.exit() == Exit::NotFound => return Ok(deleted),
        oid => oid?,
    };
    let stat = client.stat(oid).await?.ok_or_else(|| no_such_object(target))?;
    if !recursive && stat.kind == Kind::Collection && stat.size > 0 {
        let members = pluralize(stat.size, "member", "members");
        return Err(Failure::usage(format!("{target} is a collection of {members}")).hint(
            "`mortar rm -r NAME` deletes all that is named below it too; `mortar collection rm` only the collection.",
        ));
    }
    commit(client, Transaction { ops: vec![Op::Delete { oid }] }).await?;
    Ok(deleted + 1)
}

/// Deletes the objects of the names below a level, a page of names in each transaction.
async fn delete_below(prefix: &str, client: &Client) -> Result<u64> {
    let mut deleted = 0;
    loop {
        let names = client.names(prefix, None, LISTING_PAGE).await?;
        if names.is_empty() {
            return Ok(deleted);
        }
        // An object may have several names.
        let mut oids: Vec<Oid> = names.into_iter().map(|(_, oid)| oid).collect();
        oids.sort_unstable();
        oids.dedup();
        deleted += oids.len() as u64;
        commit(client, Transaction { ops: oids.into_iter().map(|oid| Op::Delete { oid }).collect() }).await?;
    }
}
