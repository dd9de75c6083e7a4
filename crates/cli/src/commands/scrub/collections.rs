//! Creates the objects of sets and directories again of which only the entries are left. A brick on its own makes no transactions.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use client::{Client, ProblemRepair};
use model::{Oid, SpaceId};

use super::FoundProblem;
use crate::connection::CommandContext;
use crate::failure::Result;

/// Whether only the entries of a set or a directory are left.
pub(super) fn is_missing(problem: &FoundProblem) -> bool {
    problem.kind == "collection_missing"
}

/// Creates what is missing, and notes that with each problem.
///
/// # Errors
/// The first one. What can be created in spite of it is created.
pub(super) async fn restore(session: &CommandContext, problems: &mut [FoundProblem]) -> Result {
    let mut missing = problems.iter_mut().filter(|problem| is_missing(problem)).peekable();
    if missing.peek().is_none() {
        return Ok(());
    }
    let client = session.connect_to_cluster().await?;
    if client.status().await?.role == "brick" {
        return Ok(());
    }
    let names = client.spaces().await?.into_iter().map(|space| (space.id, space.name)).collect();
    let (mut spaces, mut first_error) = (Spaces { session, names, clients: BTreeMap::new() }, Ok(()));
    for problem in missing {
        let Some(oid) = problem.object else { continue };
        match spaces.restore(oid).await {
            Ok(repair) => problem.repair = repair,
            Err(error) => first_error = first_error.and(Err(error)),
        }
    }
    first_error
}

/// The spaces of the cluster, with their clients as far as they are needed.
struct Spaces<'a> {
    session: &'a CommandContext,
    names: BTreeMap<SpaceId, String>,
    clients: BTreeMap<SpaceId, Client>,
}

impl Spaces<'_> {
    async fn restore(&mut self, oid: Oid) -> Result<ProblemRepair> {
        // A space that was removed meanwhile takes its rows with it.
        let Some(name) = self.names.get(&oid.space()) else { return Ok(ProblemRepair::NotNeeded) };
        let cluster = match self.clients.entry(oid.space()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(self.session.cluster_of(Some(name)).await?),
        };
        let restored = cluster.transact(|transaction| async move { transaction.restore_collection(oid).await });
        Ok(match restored.await? {
            Some(_) => ProblemRepair::Done,
            // Another object has its place, or its entries are gone.
            None if cluster.get(oid).await?.is_some_and(|object| !object.is_collection()) => ProblemRepair::Impossible,
            None => ProblemRepair::NotNeeded,
        })
    }
}
