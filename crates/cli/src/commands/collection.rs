//! `mortar collection`: sets of objects.

use std::io::{self, Write};

use bytes::Bytes;
use clap::{Args, Subcommand};
use client::Client;
use model::{ClassId, Kind, Oid, Op, Transaction};
use serde::Serialize;

use super::{CommitReport, LISTING_PAGE, commit};
use crate::connection::CommandContext;
use crate::failure::{Failure, Result};
use crate::output::{Printable, Report};
use crate::target::{NamePath, Target, no_such_object};

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
    version: u64,
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
    let client = session.connect().await?;
    match args.action {
        Action::Create { name } => create(name, &client, session).await,
        Action::Add { collection, members } => {
            let change = |collection, member| Op::Add { collection, member };
            change_members(&collection, &members, &client, session, change).await
        }
        Action::Remove { collection, members } => {
            let change = |collection, member| Op::Remove { collection, member };
            change_members(&collection, &members, &client, session, change).await
        }
        Action::Ls { collection } => list(&collection, &client, session).await,
        Action::Rm { collection } => {
            let oid = resolve(&collection, &client).await?;
            let done = commit(&client, Transaction { ops: vec![Op::Delete { oid }] }).await?;
            session.output.print(&CommitReport::from(done))
        }
    }
}

async fn create(name: Option<NamePath>, client: &Client, session: &mut CommandContext) -> Result {
    let oid = Oid::temporary(client.space(), ClassId::NONE, 0);
    let mut ops = vec![Op::Create { oid, kind: Kind::Collection, data: Bytes::new(), near: None }];
    if let Some(path) = &name {
        ops.push(Op::ExpectName { name: path.in_space(client.space()), oid: None });
        ops.push(Op::Bind { name: path.in_space(client.space()), oid });
    }
    let committed = commit(client, Transaction { ops }).await?;
    let oid = committed
        .created
        .first()
        .ok_or_else(|| Failure::new("the server did not return the identifier of the new object"))?;
    session.output.print(&Created {
        oid: oid.to_string(),
        name: name.map(|path| path.as_str().to_owned()),
        version: committed.version,
    })
}

async fn change_members(
    collection: &Target,
    members: &[Target],
    client: &Client,
    session: &mut CommandContext,
    change: fn(Oid, Oid) -> Op,
) -> Result {
    let collection = resolve(collection, client).await?;
    let mut ops = Vec::with_capacity(members.len());
    for member in members {
        ops.push(change(collection, member.resolve(client).await?));
    }
    let done = commit(client, Transaction { ops }).await?;
    session.output.print(&CommitReport::from(done))
}

async fn list(collection: &Target, client: &Client, session: &mut CommandContext) -> Result {
    let oid = resolve(collection, client).await?;
    let mut after = None;
    loop {
        let members = client.members(oid, after, LISTING_PAGE).await?;
        let names: Vec<_> = members
            .iter()
            .map(|&member| {
                let client = client.clone();
                tokio::spawn(async move { client.names_of(member).await })
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

/// The named collection; other objects are refused.
async fn resolve(target: &Target, client: &Client) -> Result<Oid> {
    let oid = target.resolve(client).await?;
    let stat = client.stat(oid).await?.ok_or_else(|| no_such_object(target))?;
    if stat.kind != Kind::Collection {
        return Err(Failure::usage(format!("{target} is a {}, not a collection", stat.kind.name())));
    }
    Ok(oid)
}
