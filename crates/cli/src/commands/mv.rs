//! `mortar mv`: gives an object another name.

use clap::Args;
use client::Transaction;

use crate::connection::CommandContext;
use crate::failure::Result;
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
    Ok(session.cluster().await?.transact(rename).await?)
}
