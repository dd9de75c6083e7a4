//! What a transaction reads: objects, one by one or many together, and queries.

use std::sync::atomic::Ordering;

use model::{ClassId, Error, ErrorKind, Object, Oid, Result};
use protocol::locks::LockMode;
use query::Query;

use super::concurrent::concurrently;
use super::contents::with_patch;
use super::driver::ReadRequest;
use super::rows::{QueryOptions, ReadSet, Rows};
use super::transaction::{Inner, IsolationLevel, OwnChange, Transaction};

impl Transaction {
    /// Reads an object; `None` if there is no such object.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if the transaction cannot be committed any more; [`ErrorKind::Unavailable`] if the object, or its
    /// lock, does not arrive in time; [`ErrorKind::Invalid`] if the object is of another space.
    pub async fn get(&self, oid: Oid) -> Result<Option<Object>> {
        self.get_locked(oid, LockMode::Shared).await
    }

    /// Reads an object that this transaction is going to write. At the level [`IsolationLevel::Locks`] it is locked exclusively.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn get_for_update(&self, oid: Oid) -> Result<Option<Object>> {
        self.get_locked(oid, LockMode::Exclusive).await
    }

    /// Reads many objects, in this order. Those that are not cached are fetched together; at the level [`IsolationLevel::Locks`]
    /// they are locked, up to 64 at a time.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn get_all(&self, oids: &[Oid]) -> Result<Vec<Option<Object>>> {
        self.get_all_locked(oids, LockMode::Shared).await
    }

    /// Reads many objects that this transaction is going to write: [`Transaction::get_for_update`].
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn get_all_for_update(&self, oids: &[Oid]) -> Result<Vec<Option<Object>>> {
        self.get_all_locked(oids, LockMode::Exclusive).await
    }

    async fn get_all_locked(&self, oids: &[Oid], mode: LockMode) -> Result<Vec<Option<Object>>> {
        self.read_ahead(oids, mode).await?;
        let mut objects = Vec::with_capacity(oids.len());
        for oid in oids {
            objects.push(self.get_locked(*oid, mode).await?);
        }
        Ok(objects)
    }

    /// Sends the requests for objects that are read next together: fetches their pages, or locks them in this mode.
    pub(super) async fn read_ahead(&self, oids: &[Oid], mode: LockMode) -> Result<()> {
        if self.inner.level != IsolationLevel::Locks {
            return if oids.len() > 1 { self.prefetch(oids.iter().copied()).await } else { Ok(()) };
        }
        let others: Vec<Oid> = {
            let changes = self.changes()?;
            let is_own =
                |oid: &Oid| changes.writes.contains_key(oid) || changes.loaded.get(oid).is_some_and(|one| one.is_new());
            oids.iter().copied().filter(|oid| !is_own(oid)).collect()
        };
        concurrently(&others, |oid| async { self.read(*oid, mode).await.map(drop) }).await.map(drop)
    }

    async fn get_locked(&self, oid: Oid, mode: LockMode) -> Result<Option<Object>> {
        match self.own_change(oid)? {
            OwnChange::None => self.read(oid, mode).await,
            OwnChange::Written(object) => Ok(object),
            OwnChange::Patched(patch) => {
                self.read(oid, mode).await?.map(|object| with_patch(oid, &object, &patch)).transpose()
            }
        }
    }

    /// What this transaction has made of an object. If it has not written the object whole, its logical node is noted as read.
    pub(super) fn own_change(&self, oid: Oid) -> Result<OwnChange> {
        let changes = &mut *self.changes()?;
        if let Some(draft) = changes.flush_one(oid)? {
            return Ok(OwnChange::Written(Some(draft)));
        }
        if let Some(written) = changes.writes.get(&oid) {
            return Ok(OwnChange::Written(written.clone()));
        }
        changes.check_own(oid)?;
        if !oid.is_temporary() {
            changes.read_nodes.insert(oid.page().node);
        }
        Ok(changes.patches.get(&oid).map_or(OwnChange::None, |patch| OwnChange::Patched(patch.clone())))
    }

    pub(super) async fn read(&self, oid: Oid, mode: LockMode) -> Result<Option<Object>> {
        let Inner { core, txn, level, .. } = &*self.inner;
        if oid.is_temporary() {
            return Ok(None);
        }
        core.check_in_space(oid)?;
        let read = ReadRequest { txn: *txn, level: *level, oid, mode };
        self.note_timeout(core.read(read).await)
    }

    /// Records whether a call has timed out.
    pub(super) fn note_timeout<T>(&self, come: Result<T>) -> Result<T> {
        if let Err(error) = &come
            && error.kind() == ErrorKind::Unavailable
        {
            self.inner.has_timed_out.store(true, Ordering::Relaxed);
        }
        come
    }

    /// Whether something that the transaction needs has not arrived in time.
    pub(super) fn has_timed_out(&self) -> bool {
        self.inner.has_timed_out.load(Ordering::Relaxed)
    }

    /// Runs a query, which sees the writes of this transaction. The answer counts as read: if an object that is created, changed
    /// or deleted by another transaction would change it, this transaction conflicts.
    ///
    /// # Errors
    /// As [`Client::query`](super::Client::query); [`ErrorKind::Unsupported`] in a group snapshot.
    pub async fn query(&self, query: &Query) -> Result<Rows> {
        if self.inner.level == IsolationLevel::Snapshot {
            let what =
                "a group snapshot cannot be queried, as bricks have only the newest state: begin another transaction";
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        self.flush()?;
        if let Some(rows) = self.look_up_unique(query).await? {
            return Ok(rows);
        }
        let Inner { core, level, .. } = &*self.inner;
        // A query never finds or follows an object without a class.
        let is_seen = |(oid, _): &(&Oid, &Option<Object>)| oid.class() != ClassId::NONE;
        let own = self.changes()?.writes.iter().filter(is_seen).map(|(oid, object)| (*oid, object.clone())).collect();
        if *level == IsolationLevel::Locks {
            // The guards are locked before the objects are read, so that none is added meanwhile.
            let asking = QueryOptions { report_reads: true, only_guards: true, ..QueryOptions::default() };
            let mut guards = self.note_timeout(Rows::ask(core, query, asking, None).await)?;
            while self.note_timeout(guards.next().await)?.is_some() {}
            let guards: Vec<Oid> = guards.take_read_set().iter().map(|guard| guard.oid).collect();
            self.read_ahead(&guards, LockMode::Shared).await?;
        }
        let asking = QueryOptions { own_writes: own, report_reads: true, ..QueryOptions::default() };
        self.note_timeout(Rows::ask(core, query, asking, Some(self.clone())).await)
    }

    /// Adds the read set of a query to that of this transaction.
    pub(super) fn rely(&self, relied: ReadSet) -> Result<()> {
        let ReadSet { reads, at } = relied;
        let txn = self.inner.txn;
        self.changes()?.read_nodes.extend(reads.iter().map(|read| read.oid.page().node));
        self.inner.core.with_driver(|driver, _| driver.rely_on(txn, reads, at))?
    }
}
