//! `mortar name`: names and what they are bound to.

use std::io::{self, Write};

use clap::{Args, Subcommand};
use model::{Op, Transaction};
use serde::Serialize;

use super::{Done, PAGE, commit};
use crate::connection::Session;
use crate::failure::Result;
use crate::output::{Printable, Report};
use crate::target::{Path, Target, no_such_name};

const EXAMPLES: &str = "\
Examples:
  mortar name bind /photos/best.jpg 1.0.0.2a.3
  mortar name resolve /photos/best.jpg
  mortar name unbind /photos/best.jpg       the object stays
  mortar name ls /photos/";

/// Bind names to objects, and look them up
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Name {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Bind a name to an object, in place of what it is bound to
    #[command(after_help = EXAMPLES)]
    Bind {
        /// The name
        name: Path,
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
        names: Vec<Path>,
    },
    /// Print the identifier that a name is bound to
    #[command(after_help = EXAMPLES)]
    Resolve {
        /// The name
        name: Path,
    },
    /// List names and what they are bound to
    #[command(after_help = EXAMPLES)]
    Ls {
        /// Only names that begin with this text
        #[arg(default_value = "")]
        prefix: String,
    },
}

#[derive(Serialize)]
struct Resolved {
    name: String,
    oid: String,
}

impl Report for Resolved {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.oid)
    }
}

/// A name in a listing; like [`Resolved`] in JSON, but with the name in text too.
#[derive(Serialize)]
#[serde(transparent)]
struct Listed(Resolved);

impl Report for Listed {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}  {}", self.0.oid, Printable(&self.0.name))
    }
}

pub(crate) async fn run(args: Name, session: &mut Session) -> Result {
    let client = session.connect().await?;
    match args.action {
        Action::Bind { name, target, new } => {
            let oid = target.resolve(&client).await?;
            let name = name.in_space(client.space());
            let mut ops = vec![Op::Bind { name: name.clone(), oid }];
            if new {
                ops.insert(0, Op::ExpectName { name, oid: None });
            }
            let done = commit(&client, Transaction { ops }).await?;
            session.output.print(&Done::from(done))
        }
        Action::Unbind { names } => {
            let mut ops = Vec::with_capacity(names.len());
            for name in &names {
                client.resolve(name.as_str()).await?.ok_or_else(|| no_such_name(name))?;
                ops.push(Op::Unbind { name: name.in_space(client.space()) });
            }
            let done = commit(&client, Transaction { ops }).await?;
            session.output.print(&Done::from(done))
        }
        Action::Resolve { name } => {
            let oid = client.resolve(name.as_str()).await?.ok_or_else(|| no_such_name(&name))?;
            session.output.print(&Resolved { name: name.as_str().to_owned(), oid: oid.to_string() })
        }
        Action::Ls { prefix } => {
            let mut after: Option<String> = None;
            loop {
                let page = client.names(&prefix, after.as_deref(), PAGE).await?;
                let full = page.len() == PAGE;
                after = page.last().map(|(name, _)| name.clone());
                for (name, oid) in page {
                    session.output.print(&Listed(Resolved { name, oid: oid.to_string() }))?;
                }
                if !full {
                    return Ok(());
                }
            }
        }
    }
}
