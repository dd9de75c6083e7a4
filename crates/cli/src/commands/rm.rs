//! `mortar rm`: deletes objects with their attributes, names and memberships.

use std::io::{self, Write};

use clap::Args;
use client::{Client, Transaction};
use model::{Error, ErrorKind, Kind, Oid};
use serde::Serialize;
use tokio::task::JoinSet;
use wire::tasks;

use super::LISTING_PAGE;
use crate::connection::CommandContext;
use crate::failure::{Exit, Failure, Result};
use crate::output::{Report, pluralize};
use crate::target::Target;

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

/// The number of objects that were deleted.
#[derive(Default, Serialize)]
pub(super) struct DeleteReport {
    pub(super) deleted: u64,
}

impl Report for DeleteReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "deleted {}", pluralize(self.deleted, "object", "objects"))
    }
}

pub(crate) async fn run(args: Rm, session: &mut CommandContext) -> Result {
    let cluster = session.cluster().await?;
    // If one of several names is missing, nothing is deleted. A name that exists here and is missing below was deleted meanwhile: with another
    // name of this command, or by another client.
    let all_exist = !args.force && args.targets.len() > 1;
    if all_exist {
        for target in &args.targets {
            target.stat(&cluster).await?;
        }
    }
    let mut report = DeleteReport::default();
    for target in &args.targets {
        match delete(target, args.recursive, &cluster).await {
            Ok(deleted) => report.deleted += deleted,
            Err(failure) if (args.force || all_exist) && failure.exit() == Exit::NotFound => {}
            Err(failure) => return Err(failure),
        }
    }
    session.output.print(&report)
}

async fn delete(target: &Target, recursive: bool, cluster: &Client) -> Result<u64> {
    if matches!(target, Target::Path(path) if path.as_str() == "/") {
        return Err(Failure::usage("the root directory cannot be deleted").hint("Name what is to be deleted below it."));
    }
    let stat = target.stat(cluster).await?;
    let deleted = match (stat.kind(), target) {
        (Kind::Directory, Target::Path(path)) if recursive => {
            delete_below(path.as_str().trim_end_matches('/'), cluster).await?
        }
        (Kind::Directory, Target::Oid(_)) if recursive => {
            return Err(Failure::usage(format!("{target} is a directory: delete it by its name")));
        }
        (Kind::Directory, _) if stat.size > 0 => {
            let names = pluralize(stat.size, "name", "names");
            return Err(Failure::usage(format!("{target} is a directory with {names}"))
                .hint("`mortar rm -r NAME` deletes all that is named below it, too."));
        }
        (Kind::Collection, _) if stat.size > 0 => {
            let members = pluralize(stat.size, "member", "members");
            return Err(Failure::usage(format!("{target} is a collection of {members}"))
                .hint("`mortar collection rm` deletes a collection; the members stay."));
        }
        _ => 0,
    };
    delete_all(cluster, &[stat.oid]).await?;
    Ok(deleted + 1)
}

/// Deletes the objects of the names below a directory.
async fn delete_below(path: &str, cluster: &Client) -> Result<u64> {
    let mut names = cluster.names(&format!("{path}/")).portion_size(LISTING_PAGE).with_directories();
    let (mut deleted, mut directories) = (0, Vec::new());
    while let Some(portion) = names.next().await? {
        let (inner, mut objects): (Vec<_>, Vec<_>) = portion.into_iter().partition(|name| name.is_directory);
        directories.extend(inner.into_iter().map(|name| name.oid));
        // An object may have several names.
        objects.sort_unstable_by_key(|name| name.oid);
        objects.dedup_by_key(|name| name.oid);
        let oids: Vec<Oid> = objects.into_iter().map(|name| name.oid).collect();
        delete_all(cluster, &oids).await?;
        deleted += oids.len() as u64;
    }
    // Those in a directory follow it in the listing, and have to be deleted before it.
    directories.reverse();
    for group in directories.chunks(LISTING_PAGE) {
        delete_all(cluster, group).await?;
        deleted += group.len() as u64;
    }
    Ok(deleted)
}

/// Deletes objects with their names and memberships, in one transaction.
async fn delete_all(cluster: &Client, oids: &[Oid]) -> Result {
    let delete = |t: Transaction| async move {
        let mut deletions: JoinSet<client::Result<()>> = JoinSet::new();
        for &oid in oids {
            let t = t.clone();
            tasks::spawn_in(&mut deletions, async move { t.delete_with_names(oid).await });
        }
        while let Some(deleted) = deletions.join_next().await {
            deleted.map_err(|error| Error::new(ErrorKind::Internal, format!("deleting failed: {error}")))??;
        }
        Ok(())
    };
    Ok(cluster.transact(delete).await?)
}
