//! One module for each command: its arguments, its help and its implementation.

mod accept_loss;
pub(crate) mod attr;
pub(crate) mod backup;
pub(crate) mod cert;
pub(crate) mod class;
pub(crate) mod cluster;
pub(crate) mod collection;
pub(crate) mod dev;
pub(crate) mod events;
pub(crate) mod evolve;
pub(crate) mod exercise;
pub(crate) mod get;
pub(crate) mod index;
pub(crate) mod ls;
pub(crate) mod member;
pub(crate) mod mv;
pub(crate) mod name;
pub(crate) mod node;
pub(crate) mod object;
pub(crate) mod put;
pub(crate) mod query;
pub(crate) mod remap;
pub(crate) mod repair;
pub(crate) mod rm;
pub(crate) mod scrub;
pub(crate) mod shell;
pub(crate) mod space;
pub(crate) mod stat;
pub(crate) mod status;
pub(crate) mod tree;
pub(crate) mod user;

use std::io::{self, Write};

use client::Client;
use model::{Committed, Outcome, Transaction};
use serde::Serialize;

use crate::failure::Result;
use crate::output::Report;

/// Number of entries in one request of a listing.
pub(crate) const LISTING_PAGE: usize = 1000;

/// Commits a transaction. A conflict is a failure.
pub(crate) async fn commit(client: &Client, tx: Transaction) -> Result<Committed> {
    match client.commit(tx).await? {
        Outcome::Committed(committed) => Ok(committed),
        Outcome::Conflict(conflict) => Err(conflict.into()),
    }
}

/// Whether the server is a peer server of a cluster.
pub(crate) async fn is_of_cluster(client: &Client) -> Result<bool> {
    Ok(client.status().await?.role == "peer server")
}

/// The report of a change without further results.
#[derive(Serialize)]
pub(crate) struct CommitReport {
    /// The version of the change.
    version: u64,
}

impl From<Committed> for CommitReport {
    fn from(committed: Committed) -> Self {
        Self { version: committed.version }
    }
}

impl Report for CommitReport {
    fn write_text(&self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}
