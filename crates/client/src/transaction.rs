//! Transactions of a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use foldhash::fast::RandomState;
use indexmap::IndexMap;
use model::{
    ClassId, ContentPatch, Entry, Error, ErrorKind, NodeId, Object, Oid, RecordBuilder, RecordRef, Result, Value,
    limits,
};
use protocol::entries::index_of_question;
use protocol::ident::TxnId;
use protocol::locks::LockMode;
use protocol::memory_size::ENTRY_BYTES;
use protocol::page_cache::ObjectState;
use protocol::session;
use wire::cluster::PAGE_SLOTS;

use super::client_core::Core;
use super::loaded::AnyStructEntry;
use super::outcome::{CommitOutcome, CommitReceipt, ConflictReason};
use super::page_allocator::{PAGE_BYTES, PageLease};
use super::shared_structs::SharedStructs;
use super::typed::read_only_error;

/// Objects of at least this many bytes are checked against the size of their page.
const MIN_CHECKED_OBJECT: usize = 32 << 10;
/// Slots for objects that are placed near others. A client that fills a page does not use them.
const NEAR_SLOTS: Range<u16> = PAGE_SLOTS..2 * PAGE_SLOTS;
/// Maximum bytes of a page, so that it can be sent.
pub(super) const MAX_PAGE_BYTES: usize = 16 << 20;

/// The next temporary identifier. No two transactions of a process have the same one, so that none takes an object of another for its own.
static NEXT_TEMPORARY: AtomicU64 = AtomicU64::new(1);

/// How a transaction reads, and what that guarantees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IsolationLevel {
    /// It reads copies, which are validated at the commit: strictly serializable. The default.
    #[default]
    Optimistic,
    /// It reads copies as of one time in the recent past, and cannot write: serializable, and its end sends nothing. Requires
    /// [`ConnectOptions::snapshots`](super::ConnectOptions::snapshots).
    Snapshot,
    /// It locks objects at the bricks and reads their newest states: strictly serializable, and it waits where another
    /// transaction would conflict.
    Locks,
}

/// Where a new object is placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlacementHint {
    /// With all that its transaction creates without a hint: at one logical node.
    #[default]
    Anywhere,
    /// In the page of this object, if it has room.
    Near(Oid),
    /// At this logical node of the space.
    At(NodeId),
}

/// The writes of a transaction, and the objects that it creates under temporary identifiers.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) writes: BTreeMap<Oid, Option<Object>>,
    /// Changes of a part of blobs that it does not replace.
    pub(super) patches: BTreeMap<Oid, Arc<ContentPatch>>,
    /// Objects that it has only read as structs, which it shares with the cache; none of them is in `loaded` or `writes`.
    pub(super) shared: SharedStructs,
    /// Objects that it has loaded as structs of its own: newer than `writes` until they are flushed.
    pub(super) loaded: IndexMap<Oid, Arc<dyn AnyStructEntry>, RandomState>,
    /// New structs among them that are created only if a persistent object refers to them.
    pub(super) drafts: BTreeSet<Oid>,
    /// Identifiers of new records, which it may create.
    pub(super) allocated: BTreeSet<Oid>,
    /// The pages for new structs.
    pub(super) page_lease: PageLease,
    /// The entries of collections that it changes.
    pub(super) entries: BTreeMap<Entry, Option<Oid>>,
    /// Those that bind and unbind unique values of what it writes, as of its last try to commit.
    pub(super) unique_entries: BTreeSet<Entry>,
    /// How many of these entries each new object is the target of.
    pub(super) named: BTreeMap<Oid, u32>,
    pub(super) hints: BTreeMap<Oid, PlacementHint>,
    /// The logical nodes of objects that it has read, which take part in its commit.
    pub(super) read_nodes: BTreeSet<NodeId>,
    /// The real identifiers for temporary ones, once they are assigned.
    real_oids: BTreeMap<Oid, Oid>,
    /// The offsets of its appends to each blob, in order: those to blobs that it writes itself, and after the commit those to others.
    pub(super) append_offsets: BTreeMap<Oid, Vec<u64>>,
    is_over: bool,
    is_committed: bool,
}

impl Changes {
    /// Checks that this transaction has created the object with a temporary identifier.
    pub(super) fn check_own(&self, oid: Oid) -> Result<()> {
        if !oid.is_temporary() || self.writes.contains_key(&oid) {
            return Ok(());
        }
        Err(temporary_error(oid))
    }

    /// Checks that all new objects have real identifiers: other tasks may have created some since they were assigned.
    fn check_assigned(&self) -> Result<()> {
        let keys = self.entries.iter().flat_map(|(entry, target)| [Some(entry.collection), *target]).flatten();
        match self.writes.keys().copied().chain(keys).find(|oid| oid.is_temporary()) {
            Some(new) => Err(late_object_error(new)),
            None => Ok(()),
        }
    }

    /// The bytes of the message with which they are committed, about.
    fn message_size(&self) -> usize {
        let objects: usize = self.writes.values().flatten().map(Object::encoded_len).sum();
        let patches: usize = self.patches.values().map(|patch| patch.data_len()).sum();
        let keys: usize = self.entries.keys().map(|entry| entry.key.as_bytes().len()).sum();
        objects + patches + keys + ENTRY_BYTES * (self.writes.len() + self.patches.len() + self.entries.len())
    }
}

/// What a transaction has made of an object so far.
pub(super) enum OwnChange {
    None,
    /// It creates, replaces or removes the object.
    Written(Option<Object>),
    /// It changes a part of the blob.
    Patched(Arc<ContentPatch>),
}

pub(super) struct Inner {
    pub(super) core: Arc<Core>,
    pub(super) txn: TxnId,
    pub(super) level: IsolationLevel,
    changes: Mutex<Changes>,
    /// Whether something that it needs has not arrived in time.
    pub(super) has_timed_out: AtomicBool,
}

/// A transaction. Clones share it. If the last clone is dropped before the commit, the transaction changes nothing.
#[derive(Clone)]
pub struct Transaction {
    pub(super) inner: Arc<Inner>,
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Transaction({:?}, {:?})", self.inner.txn, self.inner.level)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Ok(changes) = self.changes.get_mut() else { return };
        if !changes.is_over {
            changes.page_lease.release(&self.core.page_source, true);
            self.forget();
        }
    }
}

impl Inner {
    fn forget(&self) {
        // A closed client has no transactions.
        let _ = self.core.with_driver(|driver, _| driver.abort(self.txn));
    }
}

impl Transaction {
    pub(super) fn begin(core: &Arc<Core>, level: IsolationLevel, first: Option<TxnId>) -> Self {
        let wanted = match level {
            IsolationLevel::Optimistic => session::Level::Optimistic,
            IsolationLevel::Snapshot => session::Level::Snapshot,
            IsolationLevel::Locks => session::Level::Locks { first },
        };
        // With a closed client, the first call returns the error.
        let begun = core.with_driver(|driver, now| driver.begin(wanted, now));
        let txn = begun.unwrap_or(TxnId { start: Default::default(), client: protocol::ident::ClientId(0) });
        let (changes, has_timed_out) = (Mutex::default(), AtomicBool::new(false));
        Self { inner: Arc::new(Inner { core: core.clone(), txn, level, changes, has_timed_out }) }
    }

    /// The identifier of the transaction, for [`Client::outcome`](super::Client::outcome).
    #[must_use]
    pub fn id(&self) -> TxnId {
        self.inner.txn
    }

    pub(super) fn changes(&self) -> Result<MutexGuard<'_, Changes>> {
        let changes = self.inner.changes.lock();
        let changes = changes.map_err(|_| Error::new(ErrorKind::Internal, "the transaction has panicked"))?;
        match changes.is_over {
            true => Err(Error::new(ErrorKind::Invalid, "the transaction is over: begin another")),
            false => Ok(changes),
        }
    }

    // -------------------------------------------------------------------------------------------- writing

    pub(super) fn write(&self, oid: Oid, object: Option<Object>) -> Result<()> {
        self.write_if(oid, object, |_| true).map(drop)
    }

    /// Writes an object if `is_wanted` says so of the changes so far, under the lock of the changes. Returns whether it does.
    pub(super) fn write_if(
        &self,
        oid: Oid,
        object: Option<Object>,
        is_wanted: impl FnOnce(&Changes) -> bool,
    ) -> Result<bool> {
        if self.inner.level == IsolationLevel::Snapshot {
            return Err(read_only_error());
        }
        self.inner.core.check_write(oid, object.as_ref())?;
        let mut changes = self.changes()?;
        if !is_wanted(&changes) {
            return Ok(false);
        }
        changes.forget_struct(oid)?;
        changes.patches.remove(&oid);
        changes.append_offsets.remove(&oid);
        changes.writes.insert(oid, object);
        Ok(true)
    }

    /// Creates an object under a temporary identifier. The commit assigns the real one, which [`Transaction::real_oid`] returns,
    /// and replaces references to the object in the records that this transaction writes.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] and [`ErrorKind::TooLarge`] for an object that cannot be stored, and for a number that no class can have.
    pub fn create_object(&self, class: ClassId, object: Object, hint: PlacementHint) -> Result<Oid> {
        if class > ClassId::MAX {
            let what = format!("{} is not the number of a class; the largest is {}", class.0, ClassId::MAX.0);
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let oid = Oid::temporary(self.inner.core.space, class, NEXT_TEMPORARY.fetch_add(1, Ordering::Relaxed));
        self.write(oid, Some(object))?;
        self.changes()?.hints.insert(oid, hint);
        Ok(oid)
    }

    /// Creates a blob; see [`Transaction::create_object`].
    ///
    /// # Errors
    /// As there.
    pub fn create_blob(&self, data: impl Into<Bytes>) -> Result<Oid> {
        self.create_object(ClassId::NONE, Object::blob(data.into()), PlacementHint::Anywhere)
    }

    /// Checks that the page of an object has room for it, because pages are fetched whole.
    pub(super) fn check_page_size(&self, oid: Oid, object: &Object) -> Result<()> {
        if object.encoded_len() <= MIN_CHECKED_OBJECT || oid.is_temporary() {
            return Ok(());
        }
        let others = self.inner.core.with_driver(|driver, _| driver.page_bytes(oid.page(), Some(oid.slot())))?;
        if others + object.encoded_len() <= MAX_PAGE_BYTES {
            return Ok(());
        }
        let what = format!(
            "the page of {oid} would exceed {MAX_PAGE_BYTES} bytes, because it has other large objects: create a new object and \
             replace this one by it"
        );
        Err(Error::new(ErrorKind::TooLarge, what))
    }

    /// Replaces an object.
    ///
    /// # Errors
    /// As [`Transaction::get`] at the level [`IsolationLevel::Locks`]; [`ErrorKind::TooLarge`] and [`ErrorKind::Invalid`] for an
    /// object that cannot be stored.
    pub async fn put(&self, oid: Oid, object: Object) -> Result<()> {
        self.changes()?.check_own(oid)?;
        self.check_page_size(oid, &object)?;
        self.lock(oid).await?;
        self.write(oid, Some(object))
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub async fn delete(&self, oid: Oid) -> Result<()> {
        self.changes()?.check_own(oid)?;
        self.lock(oid).await?;
        self.write(oid, None)
    }

    pub(super) async fn lock(&self, oid: Oid) -> Result<()> {
        if self.inner.level == IsolationLevel::Locks
            && !oid.is_temporary()
            && !self.changes()?.writes.contains_key(&oid)
        {
            self.read(oid, LockMode::Exclusive).await?;
        }
        Ok(())
    }

    /// The objects with a class that it writes, and whether it creates them.
    pub(super) fn written_records(&self) -> Result<Vec<(Oid, Option<Object>, bool)>> {
        let changes = self.changes()?;
        let assigned: BTreeSet<Oid> = changes.real_oids.values().copied().collect();
        let is_new = |oid: &Oid| {
            oid.is_temporary()
                || assigned.contains(oid)
                || changes.allocated.contains(oid)
                || changes.loaded.get(oid).is_some_and(|one| one.is_new())
        };
        let records = changes.writes.iter().filter(|(oid, _)| oid.class() != ClassId::NONE);
        Ok(records.map(|(oid, object)| (*oid, object.clone(), is_new(oid))).collect())
    }

    // -------------------------------------------------------------------------------------------- the end

    /// Commits the transaction.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the transaction is over; [`ErrorKind::Stopped`] if the space is stopped; [`ErrorKind::Denied`] if
    /// no peer server admits this client; [`ErrorKind::Exists`] if the transaction gives an object values of a unique index that
    /// another object has; [`ErrorKind::Unavailable`] if a brick that it needs cannot be reached in time; [`ErrorKind::Full`] if
    /// a brick has no room; [`ErrorKind::TooLarge`] beyond the limits of [`model::limits`]. The transaction has changed nothing then. If
    /// it was not sent, it is not over: it may be committed again or aborted. [`ErrorKind::Unknown`] if a brick has deferred it and does
    /// not answer in time.
    pub async fn commit(&self) -> Result<CommitOutcome> {
        let Inner { core, txn, .. } = &*self.inner;
        core.check_serving()?;
        self.flush_reachable()?;
        let mut bound = match self.bind_unique_values().await {
            Ok(bound) => bound,
            Err(error) => return self.fail_commit(error),
        };
        // A commit that cannot finish now is not sent, so that its outcome is known.
        let unavailable = core.wait_reachable(|| self.commit_nodes()).await?;
        let unassigned = self.assign_oids(&unavailable).await?;
        let claims = mem::take(&mut bound.claims);
        if let Err(error) = self.rely_on_unique_values(bound).await {
            return self.fail_commit(error);
        }
        let reads = core.read_count(*txn)?;
        limits::check_reads(reads)?;
        // Until it is sent it is not over, and may be aborted.
        let bytes = self.changes()?.message_size() + ENTRY_BYTES * reads;
        let _permit = core.wait_to_commit(bytes).await?;
        let (writes, entries, mut leased, patches): (Vec<(Oid, ObjectState<Object>)>, _, PageLease, _) = {
            let changes = &mut *self.changes()?;
            let encoded = changes.patches.values().map(|patch| patch.encode()).collect::<Vec<_>>();
            let objects = changes.writes.values().flatten().chain(&encoded);
            let bytes: usize = objects.map(Object::encoded_len).sum();
            let keys: usize = changes.entries.keys().map(|entry| entry.key.as_bytes().len()).sum();
            limits::check_writes(changes.writes.len() + encoded.len(), bytes + keys)?;
            limits::check_entries(changes.entries.len(), keys)?;
            changes.check_assigned()?;
            let written: Vec<Oid> = changes.writes.keys().chain(changes.patches.keys()).copied().collect();
            core.check_head(*txn, reads, written.into_iter(), changes.entries.keys())?;
            changes.is_over = true;
            changes.loaded.clear();
            changes.shared.clear();
            // Encoded, because their bytes are in memory only once then: with the message, which is kept until it is answered.
            let patches: Vec<(Oid, Object)> = mem::take(&mut changes.patches).into_keys().zip(encoded).collect();
            let patched = patches.iter().cloned().map(|(oid, patch)| (oid, ObjectState::Changed(patch)));
            let content = |object: Option<Object>| object.map_or(ObjectState::Absent, ObjectState::Value);
            let written = mem::take(&mut changes.writes).into_iter();
            let writes = written.map(|(oid, object)| (oid, content(object))).chain(patched).collect();
            (writes, mem::take(&mut changes.entries), mem::take(&mut changes.page_lease), patches)
        };
        drop(unassigned);
        let outcome = core.commit(*txn, writes, entries).await;
        if let Ok(CommitOutcome::Committed(receipt)) = &outcome {
            self.note_append_offsets(&patches, receipt);
        }
        leased.release(&core.page_source, matches!(outcome, Ok(CommitOutcome::Conflict(_))));
        let has_old_indexes = match &outcome {
            // A brick knows of an index that this client does not.
            Err(error) => error.kind() == ErrorKind::Unsupported,
            // An index was dropped.
            Ok(CommitOutcome::Conflict(ConflictReason::Object(oid, _))) => index_of_question(*oid).is_some(),
            Ok(_) => false,
        };
        if has_old_indexes {
            core.refresh_classes().await?;
            return Ok(CommitOutcome::Conflict(ConflictReason::Aborted));
        }
        self.explain_refusal(&claims, outcome?).await
    }

    /// Whether it is over: committed, aborted, or refused.
    pub(super) fn is_over(&self) -> bool {
        self.changes().is_err()
    }

    /// Ends a commit that failed before it was sent: after a conflict the transaction is over.
    fn fail_commit(&self, error: Error) -> Result<CommitOutcome> {
        if error.kind() != ErrorKind::Conflict {
            return Err(error);
        }
        self.abort();
        let reason = error.object().map_or(ConflictReason::Aborted, |oid| ConflictReason::Object(oid, None));
        Ok(CommitOutcome::Conflict(reason))
    }

    /// Ends the transaction without its writes, and checks whether what it read was consistent.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub async fn check(&self) -> Result<CommitOutcome> {
        {
            let mut changes = self.changes()?;
            changes.writes.clear();
            changes.patches.clear();
            changes.append_offsets.clear();
            changes.entries.clear();
            changes.named.clear();
            changes.hints.clear();
            changes.loaded.clear();
            changes.shared.clear();
            changes.drafts.clear();
            changes.page_lease.release(&self.inner.core.page_source, true);
        }
        self.commit().await
    }

    /// Aborts the transaction: it changes nothing.
    pub fn abort(&self) {
        if let Ok(mut changes) = self.changes() {
            changes.is_over = true;
            changes.page_lease.release(&self.inner.core.page_source, true);
            drop(changes);
            self.inner.forget();
        }
    }

    /// The real identifier of an object that the transaction has created, after the commit.
    #[must_use]
    pub fn real_oid(&self, oid: Oid) -> Option<Oid> {
        self.inner.changes.lock().ok()?.real_oids.get(&oid).copied()
    }

    /// The offsets at which the appends of the transaction to a blob have put their bytes, in the order of the appends. They are known
    /// after the commit; before, and if nothing was appended to the blob, there are none. A blob that the transaction has created is named
    /// by the identifier with which it was appended to.
    ///
    /// ```no_run
    /// # async fn example(cluster: client::Client, log: client::Oid) -> client::Result<()> {
    /// let transaction = cluster
    ///     .transact(|t| async move {
    ///         t.append(log, "first\n").await?;
    ///         t.append(log, "second\n").await?;
    ///         Ok(t)
    ///     })
    ///     .await?;
    /// let offsets = transaction.append_offsets(log);
    /// assert_eq!(offsets[1], offsets[0] + 6);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn append_offsets(&self, oid: Oid) -> Vec<u64> {
        let Ok(changes) = self.inner.changes.lock() else { return Vec::new() };
        let is_committed = changes.is_committed;
        changes.append_offsets.get(&oid).filter(|_| is_committed).cloned().unwrap_or_default()
    }

    /// Keeps where the transaction has appended. `patches` are its changes of parts of blobs, encoded.
    fn note_append_offsets(&self, patches: &[(Oid, Object)], receipt: &CommitReceipt) {
        let Ok(mut changes) = self.inner.changes.lock() else { return };
        changes.is_committed = true;
        for (oid, patch) in patches {
            // The brick that has committed the patch has decoded it.
            if let (Some(first), Ok(patch)) = (receipt.offset(*oid), ContentPatch::decode(patch)) {
                changes.append_offsets.insert(*oid, patch.append_offsets(first));
            }
        }
    }

    /// The logical nodes that take part in its commit, as far as they are chosen.
    fn commit_nodes(&self) -> Result<Vec<NodeId>> {
        if self.inner.level == IsolationLevel::Snapshot {
            return Ok(Vec::new());
        }
        let changes = self.changes()?;
        let hinted = changes.hints.values().filter_map(|hint| match hint {
            PlacementHint::Near(oid) => Some(*oid).filter(|oid| !oid.is_temporary()).map(|oid| oid.page().node),
            PlacementHint::At(node) => Some(*node),
            PlacementHint::Anywhere => None,
        });
        let written = changes.writes.keys().chain(changes.patches.keys());
        let written = written.filter(|oid| !oid.is_temporary()).map(|oid| oid.page().node);
        let collections = changes.entries.keys().map(|entry| entry.collection).filter(|oid| !oid.is_temporary());
        let written = written.chain(collections.map(|oid| oid.page().node));
        let needed: BTreeSet<NodeId> = changes.read_nodes.iter().copied().chain(hinted).chain(written).collect();
        Ok(needed.into_iter().collect())
    }

    /// The logical node of what this transaction creates without a hint.
    pub(super) fn home(&self) -> Result<NodeId> {
        // A transaction that creates many objects asks the client once.
        if let Some(home) = self.changes()?.page_lease.home {
            return Ok(home);
        }
        self.home_outside(&self.inner.core.unavailable_nodes()?)
    }

    /// The same. If it is not chosen yet, it is none of `unavailable`, unless there are no others.
    fn home_outside(&self, unavailable: &BTreeSet<NodeId>) -> Result<NodeId> {
        let (core, mut changes) = (&self.inner.core, self.changes()?);
        match changes.page_lease.home {
            Some(home) => Ok(home),
            None => Ok(*changes.page_lease.home.insert(core.page_source.home(core, unavailable)?)),
        }
    }

    /// Places new objects, and replaces temporary identifiers by real ones, until what is returned is dropped before the commit is sent.
    async fn assign_oids(&self, unavailable: &BTreeSet<NodeId>) -> Result<Unassigned<'_>> {
        let new: Vec<(Oid, usize, PlacementHint)> = {
            let changes = self.changes()?;
            let len = |oid: &Oid| changes.writes.get(oid)?.as_ref().map(Object::encoded_len);
            changes.hints.iter().filter_map(|(oid, hint)| Some((*oid, len(oid)?, *hint))).collect()
        };
        let mut real = BTreeMap::new();
        // Those that may be at any logical node are under `None`.
        let mut by_node: BTreeMap<Option<NodeId>, Vec<(Oid, usize)>> = BTreeMap::new();
        for (oid, len, hint) in new {
            let node = match hint {
                PlacementHint::Near(other) => match self.place_near(oid.class(), other, len, &real).await? {
                    Some(place) => {
                        real.insert(oid, place);
                        continue;
                    }
                    None => Some(other.page().node).filter(|_| !other.is_temporary()),
                },
                PlacementHint::At(node) => Some(node),
                PlacementHint::Anywhere => None,
            };
            by_node.entry(node).or_default().push((oid, len));
        }
        for (node, objects) in by_node {
            let wanted: Vec<(ClassId, usize)> = objects.iter().map(|(oid, len)| (oid.class(), *len)).collect();
            let places = match node {
                Some(node) => self.inner.core.page_source.place(&self.inner.core, node, &wanted).await?,
                None => self.place_at_home(&wanted, unavailable).await?,
            };
            real.extend(objects.into_iter().map(|(oid, _)| oid).zip(places));
        }
        let changes = &mut *self.changes()?;
        let mut writes = BTreeMap::new();
        for (oid, object) in &changes.writes {
            let oid = match real.get(oid) {
                Some(real) => *real,
                None if !oid.is_temporary() => *oid,
                None if object.is_some() => return Err(late_object_error(*oid)),
                // An object that was created and deleted again is not written.
                None => continue,
            };
            let object = object.clone().map(|object| with_real_oids(object, &real)).transpose()?;
            writes.insert(oid, object);
        }
        let entries = changes.entries_with(&real)?;
        changes.real_oids = real;
        let (writes, entries) =
            (mem::replace(&mut changes.writes, writes), mem::replace(&mut changes.entries, entries));
        Ok(Unassigned { transaction: self, writes, entries })
    }

    /// Places new objects at the home of the transaction.
    async fn place_at_home(&self, wanted: &[(ClassId, usize)], unavailable: &BTreeSet<NodeId>) -> Result<Vec<Oid>> {
        let core = &self.inner.core;
        let mut home = self.home_outside(unavailable)?;
        loop {
            match core.page_source.place(core, home, wanted).await {
                Err(error) => home = self.leave_home(home, unavailable, error)?,
                Ok(placed) => return Ok(placed),
            }
        }
    }

    /// Chooses another home, if `error` says that the rows of this one are damaged.
    ///
    /// # Errors
    /// `error`, if it says something else or there is no other home.
    pub(super) fn leave_home(&self, home: NodeId, unavailable: &BTreeSet<NodeId>, error: Error) -> Result<NodeId> {
        let core = &self.inner.core;
        let other = core.page_source.home_instead(core, home, unavailable, error)?;
        self.changes()?.page_lease.home = Some(other);
        Ok(other)
    }

    /// A free slot in the page of another object, if there is one. The transaction reads it, so that another one that takes the same
    /// slot conflicts with it.
    pub(super) async fn place_near(
        &self,
        class: ClassId,
        near: Oid,
        len: usize,
        real: &BTreeMap<Oid, Oid>,
    ) -> Result<Option<Oid>> {
        let Some(near) = (if near.is_temporary() { real.get(&near).copied() } else { Some(near) }) else {
            return Ok(None);
        };
        let page = near.page();
        // Of one class only: two transactions that take the same slot must read the same identifier.
        if self.inner.level == IsolationLevel::Locks || near.class() != class || self.get(near).await?.is_none() {
            return Ok(None);
        }
        let taken: BTreeSet<u16> = {
            let changes = self.changes()?;
            let placed = real.values().chain(changes.loaded.keys()).chain(changes.writes.keys());
            placed.filter(|oid| oid.page() == page).map(|oid| oid.slot()).collect()
        };
        let txn = self.inner.txn;
        self.inner.core.with_driver(|driver, now| {
            if len + driver.page_bytes(page, None) > PAGE_BYTES {
                return None;
            }
            let places = NEAR_SLOTS.filter(|slot| !taken.contains(slot)).map(|slot| Oid::new(class, page, slot));
            driver.claim_slot(txn, places, now)
        })
    }
}

/// What a transaction has changed, with the temporary identifiers that a commit has replaced. They are put back if the commit is not sent: the
/// transaction may go on, and knows its new objects by them.
struct Unassigned<'a> {
    transaction: &'a Transaction,
    writes: BTreeMap<Oid, Option<Object>>,
    entries: BTreeMap<Entry, Option<Oid>>,
}

impl Drop for Unassigned<'_> {
    fn drop(&mut self) {
        // A transaction that was sent, or refused, is over.
        let Ok(mut changes) = self.transaction.changes() else { return };
        let assigned: BTreeSet<Oid> = mem::take(&mut changes.real_oids).into_values().collect();
        changes.writes.retain(|oid, _| !assigned.contains(oid));
        changes.writes.append(&mut self.writes);
        changes.entries.retain(|entry, _| !assigned.contains(&entry.collection));
        changes.entries.append(&mut self.entries);
    }
}

/// The error of a commit during which another task creates an object.
fn late_object_error(oid: Oid) -> Error {
    let what =
        format!("{oid} was created while its transaction began to commit: commit when all of its tasks have ended");
    Error::new(ErrorKind::Invalid, what)
}

/// The object with its temporary references replaced.
fn with_real_oids(object: Object, real: &BTreeMap<Oid, Oid>) -> Result<Object> {
    if object.kind != model::Kind::Record {
        return Ok(object);
    }
    let fields = RecordRef::new(&object.data)?.to_fields()?;
    if !fields.values().any(has_temporary) {
        return Ok(object);
    }
    let mut record = RecordBuilder::new();
    for (number, value) in fields {
        record.set_value(number, &replace_temporary(value, real)?)?;
    }
    Ok(object.with_data(record.build()?))
}

/// The error for a temporary identifier where only a permanent one, or one of the same transaction, has a meaning.
pub(super) fn temporary_error(oid: Oid) -> Error {
    let what = format!(
        "{oid} is a temporary identifier, which means an object only in the transaction that creates it: after the commit, `real_oid` of that \
         transaction returns the permanent one"
    );
    Error::new(ErrorKind::Invalid, what)
}

fn has_temporary(value: &Value) -> bool {
    match value {
        Value::Reference(oid) => oid.is_temporary(),
        Value::List(list) => list.iter().any(has_temporary),
        Value::Set(set) => set.iter().any(has_temporary),
        Value::Map(map) => map.iter().any(|(key, value)| has_temporary(key) || has_temporary(value)),
        _ => false,
    }
}

fn replace_temporary(value: Value, real: &BTreeMap<Oid, Oid>) -> Result<Value> {
    Ok(match value {
        Value::Reference(oid) if oid.is_temporary() => {
            Value::Reference(*real.get(&oid).ok_or_else(|| temporary_error(oid))?)
        }
        Value::List(list) => {
            Value::List(list.into_iter().map(|value| replace_temporary(value, real)).collect::<Result<_>>()?)
        }
        Value::Set(set) => {
            Value::Set(set.into_iter().map(|value| replace_temporary(value, real)).collect::<Result<_>>()?)
        }
        Value::Map(map) => {
            let entries = map
                .into_iter()
                .map(|(key, value)| Ok((replace_temporary(key, real)?, replace_temporary(value, real)?)));
            Value::Map(entries.collect::<Result<_>>()?)
        }
        other => other,
    })
}
