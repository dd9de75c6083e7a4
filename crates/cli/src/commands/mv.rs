//! `mortar mv`: gives an object another name.

use clap::Args;
use client::cluster::Transaction as ClusterTransaction;
use model::{Op, Transaction};

use super::{CommitReport, commit, is_of_cluster};
use crate::connection::CommandContext;
use crate::failure::Result;
use crate::target::{NamePath, no_such_name};

const EXAMPLES: &str = "\
Examples:
  mortar mv /inbox/letter /archive/letter
  mortar mv /photos/2025 /photos/old/2025    in a cluster: a directory with everything below it, at once

The new name must be free. In a cluster its directory must exist.";

/// Move an object, or a directory of a cluster, to another name
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Mv {
    /// The name that it has
    from: NamePath,
    /// The name that it gets
    to: NamePath,
}

pub(crate) async fn run(args: Mv, session: &mut CommandContext) -> Result {
    let (client, Mv { from, to }) = (session.connect().await?, args);
    if is_of_cluster(&client).await? {
        let rename = |t: ClusterTransaction| {
            let (from, to) = (&from, &to);
            async move { t.rename(from.as_str(), to.as_str()).await }
        };
        return Ok(session.cluster().await?.transact(rename).await?);
    }
    let oid = client.resolve(from.as_str()).await?.ok_or_else(|| no_such_name(&from))?;
    let (from, to) = (from.in_space(client.space()), to.in_space(client.space()));
    let ops = vec![
        Op::ExpectName { name: from.clone(), oid: Some(oid) },
        Op::ExpectName { name: to.clone(), oid: None },
        Op::Unbind { name: from },
        Op::Bind { name: to, oid },
    ];
    session.output.print(&CommitReport::from(commit(&client, Transaction { ops }).await?))
}
