//! Compares objects with the entries of their values in unique indexes, which may be at other logical nodes.
//!
//! An entry of an object that has other values by now, or does not exist, is no problem: it forbids nothing (`unique`).

use std::sync::Arc;

use model::{Entry, ErrorKind, Object, Oid, Result};

use super::UniqueIndex;
use crate::client::Client;
use crate::client_core::Core;
use crate::concurrent::concurrently;
use crate::transaction::Transaction;

/// An object whose values in a unique index are not those of this object alone, as far as the index knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniqueProblem {
    /// The object.
    pub oid: Oid,
    /// The name of the index.
    pub index: String,
    /// Another object that has the same values. `None`: the values are bound to no object that has them, so another one could get them.
    pub holder: Option<Oid>,
    /// The values have been bound to the object.
    pub is_repaired: bool,
}

impl Core {
    /// Whether values are bound to an object, as far as one look-up tells.
    async fn is_bound(&self, oid: Oid, entry: &Entry) -> Result<bool> {
        match self.look_up(entry.collection, std::slice::from_ref(&entry.key)).await {
            // The index was dropped.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
            found => Ok(found?.targets.first() == Some(&oid)),
        }
    }
}

impl Transaction {
    /// What is wrong with the values of an object in an index. Values that are bound to no object that has them are bound to this one if `binds`.
    async fn check_values(&self, oid: Oid, index: &UniqueIndex, binds: bool) -> Result<Option<UniqueProblem>> {
        let object = self.get(oid).await?;
        let Some(entry) = index.entry(self.core(), object.as_ref())? else { return Ok(None) };
        let holder = match self.look_up_holder(&entry).await? {
            Some(holder) if holder == oid => return Ok(None),
            Some(holder) if index.has_values(self.get(holder).await?.as_ref(), &entry.key)? => Some(holder),
            _ => None,
        };
        let is_repaired = binds && holder.is_none();
        if is_repaired {
            self.changes()?.entries.insert(entry, Some(oid));
        }
        Ok(Some(UniqueProblem { oid, index: index.name.clone(), holder, is_repaired }))
    }
}

impl Client {
    /// Compares records with the values that the unique indexes of their classes have of them, and returns those that differ. Indexes that are
    /// not ready are left out. With `binds`, values that no other object has are bound to their object.
    ///
    /// What seems wrong is looked at again in a transaction, so nothing is reported that a running transaction is about to change.
    ///
    /// # Errors
    /// As [`Client::get`] and [`Client::transact`].
    pub async fn check_unique_values(&self, records: &[(Oid, Object)], binds: bool) -> Result<Vec<UniqueProblem>> {
        let core = &self.core;
        let known = core.unique_indexes(core.knows_all(records.iter().map(|(oid, _)| oid.class()))).await?;
        let mut values: Vec<(Oid, &Arc<UniqueIndex>, Entry)> = Vec::new();
        for (oid, object) in records {
            for index in known.iter().filter(|index| !index.is_building) {
                values.extend(index.entry(core, Some(object))?.map(|entry| (*oid, index, entry)));
            }
        }
        let are_bound = concurrently(&values, |(oid, _, entry)| core.is_bound(*oid, entry)).await?;
        let doubted = values.iter().zip(are_bound).filter(|(_, is_bound)| !is_bound);
        let mut problems = Vec::new();
        for (&(oid, index, _), _) in doubted {
            let checked = self.transact(|transaction| async move { transaction.check_values(oid, index, binds).await });
            problems.extend(checked.await?);
        }
        Ok(problems)
    }
}
