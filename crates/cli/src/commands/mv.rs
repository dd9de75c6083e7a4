//! `mortar mv`: gives an object another name.

use clap::Args;
use client::{ErrorKind, Transaction};

use crate::connection::CommandContext;
use crate::failure::{Failure, Result};
use crate::target::NamePath;

const EXAMPLES: &str = "\
Examples:
  mortar mv /inbox/letter /archive/letter
  mortar mv /photos/2025 /photos/old/2025    a directory with everything below it, at once

The new name must be free, and its directory must exist.";

/// Move an object, or a directory with everything below it, to another name
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Mv {
    /// The name that it has
    from: NamePath,
    /// The name that it gets
    to: NamePath,
}

pub(crate) async fn run(args: Mv, session: &mut CommandContext) -> Result {
    let (from, to) = (args.from.as_str(), args.to.as_str());
    let rename = |t: Transaction| async move { t.rename(from, to).await };
    let resolve = |t: Transaction| async move { t.resolve(from).await };
    let cluster = session.cluster().await?;
    let Err(error) = cluster.transact(rename).await else { return Ok(()) };
    // If the object has its name, the directory of the new one is missing.
    let has_name = error.kind() == ErrorKind::NotFound && matches!(cluster.transact(resolve).await, Ok(Some(_)));
    let failure = Failure::from(error);
    Err(match has_name {
        true => failure.hint("`mortar put` and `mortar name bind` make the directories of a name."),
        false => failure,
    })
}
