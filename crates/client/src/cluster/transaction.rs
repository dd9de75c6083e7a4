//! A transaction of a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use model::{ClassId, Error, ErrorKind, NodeId, Object, Oid, RecordBuilder, RecordRef, Result, Value, limits};
use protocol::ident::TxnId;
use protocol::lease::Ms;
use protocol::locks::LockMode;
use protocol::page_cache::{Lookup, ObjectState};
use protocol::session::{self, WriteError};
use protocol::validate::Read;
use query::Query;

use super::core::{ClientState, Core, WaitKey, found_object};
use super::loaded::AnyStructEntry;
use super::names;
use super::outcome::{CommitOutcome, ConflictReason, commit_outcome};
use super::page_allocator::{PAGE_BYTES, PAGE_SLOTS, PageLease};
use super::rows::{QueryOptions, ReadSet, Rows};
use super::typed::read_only_error;

/// Bytes from which on an object is looked at for the size of its page.
const MIN_CHECKED_OBJECT: usize = 32 << 10;
/// Slots for objects near others: none that whoever fills a page gives out without looking.
const NEAR_SLOTS: Range<u16> = PAGE_SLOTS..2 * PAGE_SLOTS;
/// Bytes of a page at most, so that it can be sent.
pub(super) const MAX_PAGE_BYTES: usize = 16 << 20;

/// How a transaction reads, and what is known of it then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IsolationLevel {
    /// Copies, which are validated at its commit: strictly serializable. The default.
    #[default]
    Optimistic,
    /// Copies, of one time a little ago: serializable, and nothing is sent over a slow link for it. It cannot write. Needs
    /// [`ClusterOptions::snapshots`](super::ClusterOptions::snapshots).
    Snapshot,
    /// The newest state at the bricks, which it locks: strictly serializable, and it waits where others would meet a
    /// conflict.
    Locks,
}

/// Where a new object should live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlacementHint {
    /// With others that this client creates.
    #[default]
    Anywhere,
    /// In the page of this object, if there is room.
    Near(Oid),
    /// At this logical node of the space.
    At(NodeId),
}

/// What a transaction has written, and what it creates under temporary identifiers.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) writes: BTreeMap<Oid, Option<Object>>,
    /// What it has as structs: newer than `writes` until it is flushed.
    pub(super) loaded: BTreeMap<Oid, Arc<dyn AnyStructEntry>>,
    /// Of these structs, new ones that are created only if something refers to them.
    pub(super) drafts: BTreeSet<Oid>,
    /// Where new structs go.
    pub(super) page_lease: PageLease,
    hints: BTreeMap<Oid, PlacementHint>,
    /// The logical nodes whose objects it has read: they have to agree to its commit.
    read_nodes: BTreeSet<NodeId>,
    /// The real identifiers, when it is committed.
    real_oids: BTreeMap<Oid, Oid>,
    is_over: bool,
}

pub(super) struct Inner {
    pub(super) core: Arc<Core>,
    txn: TxnId,
    pub(super) level: IsolationLevel,
    changes: Mutex<Changes>,
    /// Something that it needs has not come in time.
    has_timed_out: AtomicBool,
}

/// A transaction. Clones are the same one. When the last is dropped before its commit, nothing of it happens.
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
            changes.page_lease.release(&self.core.page_allocator, true);
            self.forget();
        }
    }
}

impl Inner {
    fn forget(&self) {
        // A client that is closed has forgotten it.
        let _ = self.core.work(|state, _| state.forget(self.txn));
    }
}

impl Transaction {
    pub(super) fn begin(core: &Arc<Core>, level: IsolationLevel, first: Option<TxnId>) -> Self {
        let wanted = match level {
            IsolationLevel::Optimistic => session::Level::Optimistic,
            IsolationLevel::Snapshot => session::Level::Snapshot,
            IsolationLevel::Locks => session::Level::Locks { first },
        };
        // Of a client that is closed the first read says so.
        let begun = core.work(|state, now| state.session.begin(wanted, now));
        let txn = begun.unwrap_or(TxnId { start: Default::default(), client: protocol::ident::ClientId(0) });
        let (changes, is_late) = (Mutex::default(), AtomicBool::new(false));
        Self { inner: Arc::new(Inner { core: core.clone(), txn, level, changes, has_timed_out: is_late }) }
    }

    /// Its number, by which its outcome can be asked for.
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

    // -------------------------------------------------------------------------------------------- reading

    /// An object; `None` if there is none.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if the transaction has met another one and cannot commit any more.
    pub async fn get(&self, oid: Oid) -> Result<Option<Object>> {
        if let Some(written) = self.own_write(oid)? {
            return Ok(written);
        }
        self.read(oid, LockMode::Shared).await
    }

    /// An object that this transaction is going to write: with locks, it is locked so at once.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn get_for_update(&self, oid: Oid) -> Result<Option<Object>> {
        if let Some(written) = self.own_write(oid)? {
            return Ok(written);
        }
        self.read(oid, LockMode::Exclusive).await
    }

    /// What this transaction has made of an object; if nothing, it is about to be read.
    fn own_write(&self, oid: Oid) -> Result<Option<Option<Object>>> {
        let mut changes = self.changes()?;
        if let Some(draft) = changes.flush_one(oid)? {
            return Ok(Some(Some(draft)));
        }
        let written = changes.writes.get(&oid).cloned();
        if written.is_none() && !oid.is_temporary() {
            changes.read_nodes.insert(oid.page().node);
        }
        Ok(written)
    }

    async fn read(&self, oid: Oid, mode: LockMode) -> Result<Option<Object>> {
        let Inner { core, txn, level, .. } = &*self.inner;
        if oid.is_temporary() {
            return Ok(None);
        }
        core.check_in_space(oid)?;
        let is_locked = *level == IsolationLevel::Locks;
        let wait = if is_locked { WaitKey::Txn(*txn) } else { WaitKey::Page(oid.page()) };
        let late = || if is_locked { core.lock_timeout_error(oid) } else { core.timeout_error(&[oid.page().node]) };
        let read = core.wait_for_or(wait, late, |state, now| try_read(state, (*txn, *level), oid, mode, now));
        self.note_timeout(read.await)
    }

    /// Notes whether something has not come in time.
    pub(super) fn note_timeout<T>(&self, come: Result<T>) -> Result<T> {
        if let Err(error) = &come
            && error.kind() == ErrorKind::Unavailable
        {
            self.inner.has_timed_out.store(true, Ordering::Relaxed);
        }
        come
    }

    /// Whether something that it needs has not come in time.
    pub(super) fn has_timed_out(&self) -> bool {
        self.inner.has_timed_out.load(Ordering::Relaxed)
    }

    /// What a name is bound to.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn resolve(&self, path: &str) -> Result<Option<Oid>> {
        Ok(self.find_name(path).await?.1)
    }

    /// The slot of a name, or the one where it would go, and what it is bound to.
    async fn find_name(&self, path: &str) -> Result<(Oid, Option<Oid>)> {
        let first = names::first_slot(self.inner.core.space, &self.inner.core.nodes, path)?;
        let mut free = None;
        for slot in 0..names::COLLISION_SLOTS {
            let place = Oid::new(names::CLASS, first.page(), slot);
            match self.get(place).await? {
                Some(object) => {
                    let (bound, target) = names::decode(&object.data)?;
                    if bound == path {
                        return Ok((place, Some(target)));
                    }
                }
                // Names behind one that was unbound are still looked for.
                None => drop(free.get_or_insert(place)),
            }
        }
        let full = || Error::new(ErrorKind::Full, format!("too many names have the hash of {path:?}: choose another"));
        Ok((free.ok_or_else(full)?, None))
    }

    /// Asks a query. It sees what this transaction has written, and its answer counts as read: no object that is created,
    /// changed or deleted meanwhile makes another one of it, or this transaction does not commit.
    ///
    /// # Errors
    /// As [`Cluster::query`](super::Cluster::query); [`ErrorKind::Unsupported`] in a group snapshot.
    pub async fn query(&self, query: &Query) -> Result<Rows> {
        if self.inner.level == IsolationLevel::Snapshot {
            let what =
                "a group snapshot cannot be queried, as bricks have only the newest state: begin another transaction";
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        self.flush()?;
        self.run_query(query, None).await
    }

    /// The same by what is written so far; of an index that is unique, to write values of it.
    pub(super) async fn run_query(&self, query: &Query, unique: Option<u32>) -> Result<Rows> {
        let Inner { core, level, .. } = &*self.inner;
        // What has no class is never looked for, nor followed.
        let is_of_class = |(oid, _): &(&Oid, &Option<Object>)| oid.class() != ClassId::NONE;
        let own =
            self.changes()?.writes.iter().filter(is_of_class).map(|(oid, object)| (*oid, object.clone())).collect();
        if *level == IsolationLevel::Locks {
            // Locked before they are read, so that nothing is put where it looks.
            let asking = QueryOptions { report_reads: true, only_guards: true, unique, ..QueryOptions::default() };
            let mut guards = self.note_timeout(Rows::ask(core, query, asking, None).await)?;
            while self.note_timeout(guards.next().await)?.is_some() {}
            for Read { oid, .. } in guards.take_read_set() {
                self.read(oid, LockMode::Shared).await?;
            }
        }
        let asking = QueryOptions { own_writes: own, report_reads: true, unique, ..QueryOptions::default() };
        self.note_timeout(Rows::ask(core, query, asking, Some(self.clone())).await)
    }

    /// What a query of this transaction relies on.
    pub(super) fn rely(&self, relied: ReadSet) -> Result<()> {
        let ReadSet { reads, at } = relied;
        let txn = self.inner.txn;
        self.changes()?.read_nodes.extend(reads.iter().map(|read| read.oid.page().node));
        let relied = self.inner.core.work(|state, _| state.session.rely_on(txn, reads, at))?;
        relied.map_err(|why| Error::new(ErrorKind::Conflict, why.to_string()))
    }

    // -------------------------------------------------------------------------------------------- writing

    fn write(&self, oid: Oid, object: Option<Object>) -> Result<()> {
        if self.inner.level == IsolationLevel::Snapshot {
            return Err(read_only_error());
        }
        if let Some(object) = &object {
            object.check()?;
            if object.class != oid.class() {
                let what = format!("an object of class {} cannot stand at {oid}", object.class.0);
                return Err(Error::new(ErrorKind::Invalid, what));
            }
        }
        if !oid.is_temporary() {
            self.inner.core.check_in_space(oid)?;
        }
        let mut changes = self.changes()?;
        changes.forget_struct(oid)?;
        changes.writes.insert(oid, object);
        Ok(())
    }

    /// Creates an object, under an identifier that is temporary until the commit: [`Transaction::real_oid`] tells the real one
    /// then. References to it in what this transaction writes are replaced.
    pub fn create_object(&self, class: ClassId, object: Object, hint: PlacementHint) -> Result<Oid> {
        let index = self.changes()?.hints.len() as u64;
        let oid = Oid::temporary(self.inner.core.space, class, index);
        self.write(oid, Some(object))?;
        self.changes()?.hints.insert(oid, hint);
        Ok(oid)
    }

    /// Creates a blob.
    pub fn create_blob(&self, data: impl Into<Bytes>) -> Result<Oid> {
        self.create_object(ClassId::NONE, Object::blob(data.into()), PlacementHint::Anywhere)
    }

    /// Whether the page of an object has room for it: pages are fetched whole.
    pub(super) fn check_page_size(&self, oid: Oid, object: &Object) -> Result<()> {
        if object.data.len() <= MIN_CHECKED_OBJECT || oid.is_temporary() {
            return Ok(());
        }
        let others = self.inner.core.work(|state, _| {
            let valid = state.session.cache().valid_objects(oid.page());
            valid.filter(|(slot, ..)| *slot != oid.slot()).map(|(_, object, _)| object.data.len()).sum::<usize>()
        })?;
        if others + object.data.len() <= MAX_PAGE_BYTES {
            return Ok(());
        }
        let what = format!(
            "the page of {oid} would have more than {MAX_PAGE_BYTES} bytes, as other objects in it are large too: create the \
             object anew, and let it take the other's place"
        );
        Err(Error::new(ErrorKind::TooLarge, what))
    }

    /// Replaces an object.
    ///
    /// # Errors
    /// As [`Transaction::get`], with locks; [`ErrorKind::TooLarge`] and [`ErrorKind::Invalid`] for an object that cannot be.
    pub async fn put(&self, oid: Oid, object: Object) -> Result<()> {
        self.check_page_size(oid, &object)?;
        self.lock(oid).await?;
        self.write(oid, Some(object))
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub async fn delete(&self, oid: Oid) -> Result<()> {
        self.lock(oid).await?;
        self.write(oid, None)
    }

    async fn lock(&self, oid: Oid) -> Result<()> {
        if self.inner.level == IsolationLevel::Locks
            && !oid.is_temporary()
            && !self.changes()?.writes.contains_key(&oid)
        {
            self.read(oid, LockMode::Exclusive).await?;
        }
        Ok(())
    }

    /// Binds a name to an object, which this transaction may have created.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub async fn bind(&self, path: &str, target: impl Into<Oid>) -> Result<()> {
        let target = target.into();
        let (place, _) = self.find_name(path).await?;
        self.put(place, names::encode(path, target)?).await
    }

    /// Removes a name. Says whether it was bound.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub async fn unbind(&self, path: &str) -> Result<bool> {
        let (place, target) = self.find_name(path).await?;
        if target.is_some() {
            self.delete(place).await?;
        }
        Ok(target.is_some())
    }

    /// The objects that it writes.
    pub(super) fn written_objects(&self) -> Result<Vec<(Oid, Object)>> {
        let changes = self.changes()?;
        let objects = changes.writes.iter().filter_map(|(oid, object)| Some((*oid, object.clone()?)));
        Ok(objects.filter(|(oid, _)| oid.class() != ClassId::NONE).collect())
    }

    // -------------------------------------------------------------------------------------------- the end

    /// Commits the transaction.
    ///
    /// # Errors
    /// If it is over already, or what it creates has no place, or the space is [stopped](ErrorKind::Stopped), or this client is not
    /// let in any more ([`ErrorKind::Denied`]);
    /// [`ErrorKind::Exists`] if it gives an object values that are to be unique, and another one has them;
    /// [`ErrorKind::Unavailable`] if a brick that it needs was away, and did not come back in time, and [`ErrorKind::Full`] if one had no
    /// room. Nothing of it has happened then. It is not over if it was not sent: it may be committed again, or aborted.
    pub async fn commit(&self) -> Result<CommitOutcome> {
        let Inner { core, txn, .. } = &*self.inner;
        core.lock()?.check_serving()?;
        self.flush_reachable()?;
        match self.check_unique().await {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                self.abort();
                return Ok(CommitOutcome::Conflict(ConflictReason::Aborted));
            }
            checked => checked?,
        }
        // What cannot be done now is not begun: so it is known that nothing of it has happened.
        core.wait_reachable(|| self.commit_nodes()).await?;
        self.assign_oids().await?;
        let (writes, mut lent): (Vec<(Oid, Option<Object>)>, PageLease) = {
            let changes = &mut *self.changes()?;
            let bytes = changes.writes.values().flatten().map(|object| object.data.len()).sum();
            limits::check_writes(changes.writes.len(), bytes)?;
            changes.is_over = true;
            changes.loaded.clear();
            (std::mem::take(&mut changes.writes).into_iter().collect(), std::mem::take(&mut changes.page_lease))
        };
        let written = core.work(|state, now| {
            for (oid, object) in writes {
                let content = object.map_or(ObjectState::Absent, ObjectState::Value);
                state.session.write(*txn, oid, content)?;
            }
            state.session.commit(*txn, now);
            Ok(())
        })?;
        match written {
            // One that is over already has an end.
            Ok(()) | Err(WriteError::NotRunning) => {
                let decided = core.wait_commit_outcome(*txn).await;
                lent.release(&core.page_allocator, matches!(decided, Ok(CommitOutcome::Conflict(_))));
                match decided {
                    // A brick knows of an index that this client does not.
                    Err(error) if error.kind() == ErrorKind::Unsupported => {
                        core.refresh_classes().await?;
                        Ok(CommitOutcome::Conflict(ConflictReason::Aborted))
                    }
                    decided => decided,
                }
            }
            Err(why @ WriteError::ReadOnly) => {
                lent.release(&core.page_allocator, true);
                self.inner.forget();
                Err(Error::new(ErrorKind::Invalid, why.to_string()))
            }
        }
    }

    /// Ends the transaction without what it writes: was all that it read there at one time?
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub async fn check(&self) -> Result<CommitOutcome> {
        {
            let mut changes = self.changes()?;
            changes.writes.clear();
            changes.hints.clear();
            changes.loaded.clear();
            changes.drafts.clear();
            changes.page_lease.release(&self.inner.core.page_allocator, true);
        }
        self.commit().await
    }

    /// Gives the transaction up: nothing of it happens.
    pub fn abort(&self) {
        if let Ok(mut changes) = self.changes() {
            changes.is_over = true;
            changes.page_lease.release(&self.inner.core.page_allocator, true);
            drop(changes);
            self.inner.forget();
        }
    }

    /// The real identifier of an object that the transaction has created, once it is committed.
    #[must_use]
    pub fn real_oid(&self, oid: Oid) -> Option<Oid> {
        self.inner.changes.lock().ok()?.real_oids.get(&oid).copied()
    }

    /// The logical nodes that its commit needs, as far as they are chosen.
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
        let written = changes.writes.keys().filter(|oid| !oid.is_temporary()).map(|oid| oid.page().node);
        let needed: BTreeSet<NodeId> = changes.read_nodes.iter().copied().chain(hinted).chain(written).collect();
        Ok(needed.into_iter().collect())
    }

    /// Gives what is new its place, and replaces temporary identifiers by real ones.
    async fn assign_oids(&self) -> Result<()> {
        let new: Vec<(Oid, usize, PlacementHint)> = {
            let changes = self.changes()?;
            let len = |oid: &Oid| changes.writes.get(oid)?.as_ref().map(|object| object.data.len());
            changes.hints.iter().filter_map(|(oid, hint)| Some((*oid, len(oid)?, *hint))).collect()
        };
        let mut real = BTreeMap::new();
        let mut anywhere: BTreeMap<Option<NodeId>, Vec<(Oid, usize)>> = BTreeMap::new();
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
            anywhere.entry(node).or_default().push((oid, len));
        }
        for (node, objects) in anywhere {
            let wanted: Vec<(ClassId, usize)> = objects.iter().map(|(oid, len)| (oid.class(), *len)).collect();
            let places = self.inner.core.page_allocator.place(&self.inner.core, node, &wanted).await?;
            real.extend(objects.into_iter().map(|(oid, _)| oid).zip(places));
        }
        let mut changes = self.changes()?;
        let mut writes = BTreeMap::new();
        for (oid, object) in &changes.writes {
            // What was created and deleted again never was.
            let Some(oid) = (if oid.is_temporary() { real.get(oid).copied() } else { Some(*oid) }) else { continue };
            let object = object.clone().map(|object| with_real_oids(object, &real)).transpose()?;
            writes.insert(oid, object);
        }
        (changes.writes, changes.real_oids) = (writes, real);
        Ok(())
    }

    /// A free slot in the page of another object. It is read, so that two who choose the same one meet in validation.
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
        // Of one class only: two who choose the same slot must name the same object.
        if self.inner.level == IsolationLevel::Locks || near.class() != class || self.get(near).await?.is_none() {
            return Ok(None);
        }
        let taken: BTreeSet<u16> = {
            let changes = self.changes()?;
            let placed = real.values().chain(changes.loaded.keys()).chain(changes.writes.keys());
            placed.filter(|oid| oid.page() == page).map(|oid| oid.slot()).collect()
        };
        let txn = self.inner.txn;
        self.inner.core.work(|state, now| {
            let valid = state.session.cache().valid_objects(page);
            let bytes = len + valid.map(|(_, object, _)| object.data.len()).sum::<usize>();
            if bytes > PAGE_BYTES {
                return None;
            }
            let places = NEAR_SLOTS.filter(|slot| !taken.contains(slot)).map(|slot| Oid::new(class, page, slot));
            // A slot whose object is not valid here is not free.
            places.into_iter().find(|place| {
                let look = state.session.cache().lookup(*place);
                matches!(look, Lookup::Absent) && matches!(state.session.read(txn, *place, now), Lookup::Absent)
            })
        })
    }
}

/// Looks at an object in a transaction, if that is not over.
fn try_read(
    state: &mut ClientState,
    (txn, level): (TxnId, IsolationLevel),
    oid: Oid,
    mode: LockMode,
    now: Ms,
) -> Result<Option<Option<Object>>> {
    if let Some(refusal) = state.refusal(txn) {
        return Err(refusal);
    }
    if let Some(ended) = state.outcomes.get(&txn) {
        let CommitOutcome::Conflict(clash) = commit_outcome(txn, *ended) else {
            return Err(ConflictReason::Aborted.error());
        };
        return Err(clash.error());
    }
    state.mark_used(oid.page());
    let seen = found_object(oid, state.session.read_for(txn, oid, mode, now));
    // What a snapshot has read may change: its time is before that.
    if let Some(doomed) = state.session.doomed(txn).filter(|_| level != IsolationLevel::Snapshot) {
        return Err(ConflictReason::Object(doomed, None).error());
    }
    Ok(seen)
}

/// An object whose references to what is created are real.
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
    Ok(Object { data: record.build()?, ..object })
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
            let unknown = || {
                let what = format!("a record refers to {oid}, which this transaction does not create");
                Error::new(ErrorKind::Invalid, what)
            };
            Value::Reference(*real.get(&oid).ok_or_else(unknown)?)
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
