//! `mortar collection`: sets of objects.

use std::io::{self, Write};

use clap::{Args, Subcommand};
use client::{Client, Transaction};
use model::{Error, ErrorKind, Kind, Oid};
use serde::Serialize;
use wire::tasks;

use super::LISTING_PAGE;
use crate::connection::CommandContext;
use crate::failure::{Failure, Result};
use crate::output::{Printable, Report};
use crate::target::{NamePath, Target};

const EXAMPLES: &str = "\
Examples:
  mortar collection create /albums/summer
  mortar collection add /albums/summer /photos/cat.jpg 1.0.0.2a.3
  mortar collection ls /albums/summer
  mortar collection remove /albums/summer 1.0.0.2a.3
  mortar collection rm /albums/summer       the members stay";

/// Make, change and list collections
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Collection {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Make an empty collection and print its identifier
    #[command(after_help = EXAMPLES)]
    Create {
        /// Its name; it must not be taken
        name: Option<NamePath>,
    },
    /// Add members; those that are in it already are fine
    #[command(after_help = EXAMPLES)]
    Add {
        /// The collection: a name or an identifier
        collection: Target,
        /// The objects: names or identifiers
        #[arg(required = true)]
        members: Vec<Target>,
    },
    /// Remove members; the objects stay
    #[command(after_help = EXAMPLES)]
    Remove {
        /// The collection: a name or an identifier
        collection: Target,
        /// The objects: names or identifiers
        #[arg(required = true)]
        members: Vec<Target>,
    },
    /// List the members
    #[command(alias = "list", after_help = EXAMPLES)]
    Ls {
        /// The collection: a name or an identifier
        collection: Target,
    },
    /// Remove a collection; the members stay
    #[command(after_help = EXAMPLES)]
    Rm {
        /// The collection: a name or an identifier
        collection: Target,
    },
}

#[derive(Serialize)]
struct Created {
    oid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

impl Report for Created {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.oid)
    }
}

#[derive(Serialize)]
struct Member {
    oid: String,
    names: Vec<String>,
}

impl Report for Member {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        match self.names.first() {
            Some(name) => writeln!(out, "{}  {}", self.oid, Printable(name)),
            None => writeln!(out, "{}", self.oid),
        }
    }
}

pub(crate) async fn run(args: Collection, session: &mut CommandContext) -> Result {
    let cluster = session.cluster().await?;
    match args.action {
        Action::Create { name } => create(name, &cluster, session).await,
        Action::Add { collection, members } => {
            let (collection, members) = find_all(&collection, &members, &cluster).await?;
            let members = &members;
            let add = |t: Transaction| async move {
                for member in members {
                    if t.get(*member).await?.is_none() {
                        return Err(Error::new(ErrorKind::NotFound, format!("there is no object {member}")));
                    }
                    t.add_member(collection, *member).await?;
                }
                Ok(())
            };
            Ok(cluster.transact(add).await?)
        }
        Action::Remove { collection, members } => {
            let (collection, members) = find_all(&collection, &members, &cluster).await?;
            let members = &members;
            let remove = |t: Transaction| async move {
                for member in members {
                    t.remove_member(collection, *member).await?;
                }
                Ok(())
            };
            Ok(cluster.transact(remove).await?)
        }
        Action::Ls { collection } => list(&collection, &cluster, session).await,
        Action::Rm { collection } => {
            let oid = find(&collection, &cluster).await?;
            remove(oid, &cluster).await
        }
    }
}

async fn create(name: Option<NamePath>, cluster: &Client, session: &mut CommandContext) -> Result {
    let path = name.as_ref();
    let created = cluster.transact(|t| async move {
        let collection = t.create_collection()?;
        if let Some(path) = path {
            if t.resolve(path.as_str()).await?.is_some() {
                return Err(Error::new(ErrorKind::Exists, format!("the name {path} is taken")));
            }
            t.bind(path.as_str(), collection).await?;
        }
        Ok((collection, t))
    });
    let (oid, t) = created.await?;
    let oid = t.real_oid(oid).unwrap_or(oid).to_string();
    session.output.print(&Created { oid, name: name.map(|path| path.as_str().to_owned()) })
}

/// Removes the members of a collection, in portions, and then the collection itself.
async fn remove(collection: Oid, cluster: &Client) -> Result {
    loop {
        let is_removed = cluster.transact(|t| async move {
            let members = t.members(collection, None, LISTING_PAGE).await?;
            for member in &members {
                t.remove_member(collection, *member).await?;
            }
            let is_last = members.len() < LISTING_PAGE;
            if is_last {
                t.delete_with_names(collection).await?;
            }
            Ok(is_last)
        });
        if is_removed.await? {
            return Ok(());
        }
    }
}

async fn list(collection: &Target, cluster: &Client, session: &mut CommandContext) -> Result {
    let oid = find(collection, cluster).await?;
    let mut after = None;
    loop {
        let members = cluster.members(oid, after, LISTING_PAGE).await?;
        let names: Vec<_> = members
            .iter()
            .map(|&member| {
                let cluster = cluster.clone();
                tasks::spawn(async move { cluster.names_of(member).await })
            })
            .collect();
        for (member, names) in members.iter().zip(names) {
            let names = names.await.map_err(|e| Failure::new(format!("listing failed: {e}")))??;
            session.output.print(&Member { oid: member.to_string(), names })?;
        }
        match members.last() {
            Some(&last) if members.len() == LISTING_PAGE => after = Some(last),
            _ => return Ok(()),
        }
    }
}

/// The named collection and objects.
async fn find_all(collection: &Target, members: &[Target], cluster: &Client) -> Result<(Oid, Vec<Oid>)> {
    let collection = find(collection, cluster).await?;
    let mut oids = Vec::with_capacity(members.len());
    for member in members {
        oids.push(member.find(cluster).await?);
    }
    Ok((collection, oids))
}

/// The named collection; other objects are refused.
async fn find(target: &Target, cluster: &Client) -> Result<Oid> {
    let stat = target.stat(cluster).await?;
    if stat.kind() != Kind::Collection {
        return Err(Failure::usage(format!("{target} is a {}, not a collection", stat.kind().name())));
    }
    Ok(stat.oid)
}
