//! A change of the catalogue in preparation: the entries that it depends on, and those that it will write.
//!
//! A draft is written only if every entry that it has read by key is unchanged, so drafts are serializable. Entries read by prefix
//! are not checked. Each kind of such entries has a counter instead, which every change of them *touches*.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{Expect, Key, KeyChange, MetaSessionId, MetaStore, Prefix, Revision, WriteOutcome};

use super::entry::{self, Path, Record};
use super::error::CatalogError;
use super::member::Counter;

type Result<T, E = CatalogError> = std::result::Result<T, E>;

/// A change in preparation.
pub(super) struct CatalogDraft<'a> {
    store: &'a dyn MetaStore,
    expects: BTreeMap<Key, Option<Revision>>,
    changes: BTreeMap<Key, KeyChange>,
}

impl<'a> CatalogDraft<'a> {
    pub(super) fn new(store: &'a dyn MetaStore) -> Self {
        Self { store, expects: BTreeMap::new(), changes: BTreeMap::new() }
    }

    /// Reads an entry, which must be unchanged when the draft is written.
    pub(super) async fn get<T: Record>(&mut self, path: &Path) -> Result<Option<T>> {
        let key = path.key()?;
        let state = self.store.get(vec![key.clone()]).await?;
        let found = state.entry(&key);
        let record = found.map(|found| entry::decode(&key, &found.value)).transpose()?;
        self.expects.insert(key, found.map(|found| found.revision));
        Ok(record)
    }

    /// The revision of an entry that was read; `None` if it does not exist.
    pub(super) fn revision_of(&self, path: &Path) -> Result<Option<Revision>> {
        Ok(self.expects.get(&path.key()?).copied().flatten())
    }

    /// Reads an entry that must exist.
    pub(super) async fn require<T: Record>(&mut self, path: &Path, what: &'static str, name: &str) -> Result<T> {
        self.get(path).await?.ok_or_else(|| CatalogError::missing(what, name))
    }

    /// Reads the entries whose keys have a prefix. They can change before the draft is written.
    pub(super) async fn scan<T: Record>(&self, prefix: Prefix) -> Result<Vec<(Path, T)>> {
        let state = self.store.read(prefix).await?;
        let records = state.entries.iter().filter_map(|(key, found)| {
            let path = Path::parse(key)?;
            Some(entry::decode(key, &found.value).map(|record| (path, record)))
        });
        records.collect()
    }

    /// Writes an entry.
    pub(super) fn put<T: Record>(&mut self, path: &Path, record: &T) -> Result<()> {
        let (key, value) = (path.key()?, entry::encode(record)?);
        self.changes.insert(key.clone(), KeyChange::put(key, value));
        Ok(())
    }

    /// Writes an entry that is removed when a session ends.
    pub(super) fn attach<T: Record>(&mut self, path: &Path, record: &T, session: MetaSessionId) -> Result<()> {
        let (key, value) = (path.key()?, entry::encode(record)?);
        self.changes.insert(key.clone(), KeyChange::attach(key, value, session));
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> Result<()> {
        let key = path.key()?;
        self.changes.insert(key.clone(), KeyChange::remove(key));
        Ok(())
    }

    /// Raises a counter of changes and returns its value. Drafts that touch the same counter are serialized: each one is prepared
    /// after the previous one was written.
    pub(super) async fn touch(&mut self, path: &Path) -> Result<u64> {
        let mut counter: Counter = self.get(path).await?.unwrap_or_default();
        counter.next += 1;
        self.put(path, &counter)?;
        Ok(counter.next)
    }

    /// Reserves `count` numbers of a counter, which starts with 1; returns the first.
    pub(super) async fn reserve_numbers(&mut self, name: &str, count: u64, most: u64) -> Result<u64> {
        let path = Path::Counter(name.to_owned());
        let first = self.get::<Counter>(&path).await?.unwrap_or_default().next.max(1);
        let next = first.checked_add(count).filter(|next| next - 1 <= most);
        let next =
            next.ok_or(CatalogError::TooMany { what: "numbers, including those of removed entries", limit: most })?;
        self.put(&path, &Counter { next })?;
        Ok(first)
    }

    /// Writes the draft; `None` if an entry that it depends on has changed.
    pub(super) async fn commit(self) -> Result<Option<Revision>> {
        let expects = self.expects.into_iter().map(|(key, revision)| Expect { key, revision }).collect();
        match self.store.write(expects, self.changes.into_values().collect()).await? {
            WriteOutcome::Done(revision) => Ok(Some(revision)),
            WriteOutcome::Conflict => Ok(None),
        }
    }
}

/// Counts attempts, and waits longer before each one.
pub(super) struct Attempts(u32);

impl Attempts {
    const MAX_ATTEMPTS: u32 = 200;

    pub(super) const fn new() -> Self {
        Self(0)
    }

    /// Waits for the next attempt.
    pub(super) async fn back_off(&mut self) -> Result<()> {
        self.0 += 1;
        if self.0 >= Self::MAX_ATTEMPTS {
            return Err(CatalogError::Busy { attempts: self.0 });
        }
        // Random, so that drafts that have conflicted do not conflict again.
        let most_ms = 1_u64 << self.0.min(6);
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..=most_ms))).await;
        Ok(())
    }
}
