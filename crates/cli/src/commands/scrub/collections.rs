//! Restores sets and directories: their objects of which only the entries are left, and entries that only their targets know. A brick on its own
//! makes no transactions.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use client::{Client, ProblemRepair, Transaction};
use model::{Oid, SpaceId};

use super::FoundProblem;
use crate::connection::CommandContext;
use crate::failure::Result;

/// The kinds of problems that are restored here.
const COLLECTION_MISSING: &str = "collection_missing";
const ENTRY_MISSING: &str = "entry_missing";

/// Whether a transaction can restore what a problem is about.
pub(super) fn is_restorable(problem: &FoundProblem) -> bool {
    matches!(problem.kind.as_str(), COLLECTION_MISSING | ENTRY_MISSING)
}

/// Creates what is missing, and notes that with each problem.
///
/// # Errors
/// The first one. What can be created in spite of it is created.
pub(super) async fn restore(session: &CommandContext, problems: &mut [FoundProblem]) -> Result {
    let mut missing = problems.iter_mut().filter(|problem| is_restorable(problem)).peekable();
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
        let Some(collection) = problem.object else { continue };
        let restored = match (problem.kind.as_str(), problem.entry.clone()) {
            (COLLECTION_MISSING, _) => spaces.restore_collection(collection).await,
            (_, Some((key, target))) => spaces.restore_entry(&model::Entry { collection, key }, target).await,
            // Its key is none: it stays a problem.
            (_, None) => continue,
        };
        match restored {
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
    /// A client of the space of an object; `None` if the space was removed meanwhile, which takes its rows with it.
    async fn client(&mut self, oid: Oid) -> Result<Option<Client>> {
        let Some(name) = self.names.get(&oid.space()) else { return Ok(None) };
        Ok(Some(match self.clients.entry(oid.space()) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(unknown) => unknown.insert(self.session.cluster_of(Some(name)).await?).clone(),
        }))
    }

    async fn restore_entry(&mut self, entry: &model::Entry, target: Oid) -> Result<ProblemRepair> {
        let Some(cluster) = self.client(entry.collection).await? else { return Ok(ProblemRepair::NotNeeded) };
        let restored =
            cluster.transact(|transaction| async move { transaction.restore_entry(entry.clone(), target).await });
        let exists = match restored.await? {
            None => return Ok(ProblemRepair::NotNeeded),
            Some(exists) => exists,
        };
        if !exists {
            // The target was deleted. With the entry, what says that it is its target is removed.
            let remove = |transaction: Transaction| async move {
                match entry.key.to_name() {
                    Some(name) => transaction.remove_entry(entry.collection, name).await,
                    None => transaction.remove_member(entry.collection, target).await,
                }
            };
            cluster.transact(remove).await?;
        }
        Ok(ProblemRepair::Done)
    }

    async fn restore_collection(&mut self, oid: Oid) -> Result<ProblemRepair> {
        let Some(cluster) = self.client(oid).await? else { return Ok(ProblemRepair::NotNeeded) };
        let restored = cluster.transact(|transaction| async move { transaction.restore_collection(oid).await });
        Ok(match restored.await? {
            Some(_) => ProblemRepair::Done,
            // Another object has its place, or its entries are gone.
            None if cluster.get(oid).await?.is_some_and(|object| !object.is_collection()) => ProblemRepair::Impossible,
            None => ProblemRepair::NotNeeded,
        })
    }
}
