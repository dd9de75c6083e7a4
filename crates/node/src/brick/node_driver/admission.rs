//! Decides whether a transaction, or a write outside of transactions, is taken in, and remembers what it replaces.
//!
//! A transaction that cannot be taken in now is *deferred*: its coordinator is told why, and may bring it again. One that never can be is
//! refused: it is asked for as if it had never come, so that it never commits (C2).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use model::{ContentId, Entry, Error, ErrorKind, NodeId, Object, Oid, PageId, Result, SpaceId, limits};
use protocol::commit::{AppendOffsets, EntryChanges, Part};
use protocol::entries::{collection_guard, entry_guard};
use protocol::ident::{TxnId, Version};
use protocol::page_cache::ObjectState;
use protocol::validate::{NO_STATE, Read, ReadVersion};
use store::ContentChange;
use wire::cluster::Message;

use super::change_size::ChangeSize;
use super::contents::{ContentRejection, plan_write};
use super::output::DriverOutput;
use super::{NodeDriver, rows};
use crate::brick::consistency::is_damage;
use crate::brick::entry_rows;
use crate::brick::indexes::{Replaced, ReplacedObjects, WriteRejection};
use crate::brick::node_usage::NodeUsage;
use crate::brick::plant::{Bug, planted};
use crate::brick::quota::{Growth, QuotaRefusal, with_quota};
use crate::brick::recent_pages::ObjectReader;

/// What an object takes beside its data, about, and what the head of a page takes, in bytes.
const OBJECT_OVERHEAD: usize = 256;
const HEAD_SIZE: usize = 256;
/// Why a brick in memory that is full takes nothing that makes it fuller.
pub(super) const STORE_FULL: &str = "the brick's store in memory has no room: delete something, or start it with more";
/// Contents that one transaction may make of blobs in pages: a change of the store creates 65,535, and may be that of several transactions.
const MAX_CREATED: usize = if cfg!(test) { 100 } else { 60_000 };
/// Transactions that are remembered because they bring objects of classes that are not known.
const MAX_UNKNOWN: usize = if cfg!(test) { 8 } else { 4_096 };
/// What an entry takes in the two rows beside its key, about, in bytes.
const ENTRY_OVERHEAD: usize = 256;

/// Why a transaction is not taken in.
#[derive(Debug)]
pub(super) struct DeferredTransaction {
    pub(super) kind: ErrorKind,
    pub(super) why: String,
}

impl DeferredTransaction {
    /// Stored rows that the transaction needs are damaged: it can never be taken in.
    pub(super) fn for_damage(error: &Error) -> Self {
        Self { kind: ErrorKind::Corrupt, why: format!("stored data that it needs is damaged: {}", error.message()) }
    }

    /// The message that says so.
    pub(super) fn message(&self, node: NodeId, txn: TxnId) -> Message {
        Message::Deferred { node, txn, kind: self.kind, why: self.why.clone() }
    }
}

/// What is known of the blobs that a transaction writes before it is taken in.
#[derive(Debug)]
pub(super) struct CheckedContents {
    /// By how much they grow, staged contents apart that they take.
    pub(super) growth: Growth,
    /// Where the transaction appends to them.
    pub(super) offsets: AppendOffsets,
    /// What its changes of them do in the store.
    pub(super) work: ContentWork,
    /// Bytes of all objects that it writes, as they are in their pages afterwards. A change of a part of a blob has fewer.
    pub(super) object_bytes: usize,
    /// Why one of them cannot be changed: it is lost or damaged.
    pub(super) unreadable: Option<Error>,
}

/// What a transaction does to contents in the store, which takes a bounded number of changes together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ContentWork {
    /// Contents that it creates from bytes in pages.
    created: usize,
    /// Bytes that move from pages to contents.
    moved_bytes: usize,
    /// All bytes that are written to contents.
    pub(super) written_bytes: usize,
    /// Changes of contents.
    pub(super) changes: usize,
}

impl ContentWork {
    fn add(&mut self, changes: &[ContentChange]) {
        self.changes += changes.len();
        for change in changes {
            match change {
                ContentChange::Create { data, .. } => {
                    self.created += 1;
                    self.moved_bytes += data.len();
                    self.written_bytes += data.len();
                }
                ContentChange::Write { data, .. } => self.written_bytes += data.len(),
                _ => {}
            }
        }
    }
}

/// What a driver remembers of transactions that it takes in, or has not taken in.
#[derive(Debug, Default)]
pub(super) struct Admission {
    /// How often the catalogue was asked for classes of each space.
    schema_refreshes: BTreeMap<SpaceId, u64>,
    /// How often it had been asked when a transaction first came with a class that is not known.
    unknown_class_txns: HashMap<TxnId, u64>,
    /// What the transaction replaces that is being taken in.
    current: Option<(TxnId, ReplacedObjects)>,
    /// The guards of keys that it changes and takes for [unbound](protocol::entries::unbound_key), if they are.
    current_unbound: BTreeSet<Oid>,
    /// The same of those that are prepared.
    prepared: HashMap<TxnId, ReplacedObjects>,
    /// By how much the transaction that is being taken in grows, and those that are prepared.
    current_growth: Option<(TxnId, Growth)>,
    prepared_growth: HashMap<TxnId, Growth>,
    /// What the change takes in the store of the transaction that is being taken in.
    current_size: ChangeSize,
    /// Why a transaction was not taken in that comes once more, because it is not committed in one phase.
    deferred: Option<(TxnId, DeferredTransaction)>,
}

impl Admission {
    /// The catalogue was asked for classes of a space, and those that it has are known here.
    pub(super) fn count_schema_refresh(&mut self, space: SpaceId) {
        *self.schema_refreshes.entry(space).or_default() += 1;
    }

    /// Why a transaction with an object of a class that is not known is not taken in: the class may be new. If the catalogue was asked
    /// since the transaction came first, there is no such class.
    fn defer_unknown_class(&mut self, txn: TxnId, oid: Oid) -> DeferredTransaction {
        let class = oid.class().0;
        if self.unknown_class_txns.len() >= MAX_UNKNOWN {
            self.unknown_class_txns.clear();
        }
        let refreshes = self.schema_refreshes.get(&oid.space()).copied().unwrap_or(0);
        let first = *self.unknown_class_txns.entry(txn).or_insert(refreshes);
        // The first answer may be to a question from before.
        if refreshes >= first + 2 {
            self.unknown_class_txns.remove(&txn);
            let why = format!("there is no class {class}, of which {oid} is to be: define it first");
            return DeferredTransaction { kind: ErrorKind::Invalid, why };
        }
        let why = format!("the brick does not know class {class} of {oid} yet: try again");
        DeferredTransaction { kind: ErrorKind::Unavailable, why }
    }

    /// A transaction that is being taken in replaces these objects, and grows by this.
    fn begin(&mut self, txn: TxnId, replaced: ReplacedObjects, growth: Growth) {
        self.current = Some((txn, replaced));
        self.current_growth = Some((txn, growth));
        self.current_unbound.clear();
    }

    /// The guards of keys that a transaction changes and takes for [unbound](protocol::entries::unbound_key), if they are and the transaction
    /// is being taken in. Others are known to the machine already.
    pub(super) fn unbound_keys(&self, txn: TxnId) -> BTreeSet<Oid> {
        let is_current = self.current.as_ref().is_some_and(|(of, _)| *of == txn);
        if is_current { self.current_unbound.clone() } else { BTreeSet::new() }
    }

    /// Whether it is known what a prepared transaction replaces, and `is_current` says that this still holds.
    pub(super) fn knows_replaced(&self, txn: TxnId, is_current: impl Fn(&ReplacedObjects) -> bool) -> bool {
        self.prepared.get(&txn).is_some_and(is_current)
    }

    /// A prepared transaction replaces these objects, as was read once more.
    pub(super) fn set_replaced(&mut self, txn: TxnId, replaced: ReplacedObjects) {
        self.prepared.insert(txn, replaced);
    }

    /// A transaction was prepared before the logical node was opened.
    pub(super) fn recover_prepared(&mut self, txn: TxnId, growth: Growth) {
        self.prepared_growth.insert(txn, growth);
    }

    /// What transactions that are prepared add if they are committed.
    pub(super) fn pending(&self) -> NodeUsage {
        let increases = self.prepared_growth.values().map(|growth| growth.increase());
        increases.fold(NodeUsage::default(), |sum, increase| sum + increase)
    }

    /// What the change takes in the store, at most, of the transaction that is being taken in.
    pub(super) fn current_size(&self) -> ChangeSize {
        self.current_size
    }

    /// Remembers why a transaction was not taken in until it comes once more.
    pub(super) fn set_deferred(&mut self, txn: TxnId, deferred: DeferredTransaction) {
        self.deferred = Some((txn, deferred));
    }

    /// The transaction was taken in, or refused.
    pub(super) fn end(&mut self) {
        self.current = None;
        self.current_growth = None;
    }

    /// A transaction has a record now. If it is prepared, its growth counts until its outcome.
    fn follow_growth(&mut self, txn: TxnId, is_prepared: bool) {
        let growth = self.current_growth.take_if(|(of, _)| *of == txn).map(|(_, growth)| growth);
        if !is_prepared {
            self.prepared_growth.remove(&txn);
        } else if let Some(growth) = growth.filter(|_| !planted(Bug::PreparedGrowthForgotten)) {
            self.prepared_growth.insert(txn, growth);
        }
    }

    /// Takes what a transaction replaces that has a record now, if it is known. What a prepared one replaces is kept for its outcome.
    pub(super) fn take_replaced(&mut self, txn: TxnId, is_prepared: bool) -> ReplacedObjects {
        self.follow_growth(txn, is_prepared);
        let replaced = self.current.take_if(|(of, _)| *of == txn).map(|(_, replaced)| replaced);
        if is_prepared {
            if let Some(replaced) = replaced {
                self.prepared.insert(txn, replaced);
            }
            return ReplacedObjects::default();
        }
        replaced.or_else(|| self.prepared.remove(&txn)).unwrap_or_default()
    }
}

impl<C: Clone> NodeDriver<C> {
    /// Takes in a transaction that is new here, unless it is known why it is not taken in.
    ///
    /// # Errors
    /// Why it is deferred or refused.
    pub(super) fn admit_first(
        &mut self,
        txn: TxnId,
        part: &mut Part<Object>,
    ) -> std::result::Result<(), DeferredTransaction> {
        match self.admission.deferred.take() {
            Some((of, deferred)) if of == txn => Err(deferred),
            _ => self.admit_transaction(txn, part),
        }
    }

    /// Takes in a transaction that is new here.
    ///
    /// # Errors
    /// Why it is deferred or refused.
    pub(super) fn admit_transaction(
        &mut self,
        txn: TxnId,
        part: &mut Part<Object>,
    ) -> std::result::Result<(), DeferredTransaction> {
        if self.reader.is_memory_full() {
            self.turn_empty_deletes_into_reads(part);
        }
        self.admit(txn, part)
    }

    /// Deleting objects in pages that were never written needs no room: that they are absent is validated as a read.
    fn turn_empty_deletes_into_reads(&self, part: &mut Part<Object>) {
        let is_nothing =
            |oid: &Oid, content: &mut ObjectState<Object>| *content == ObjectState::Absent && self.is_new(oid.page());
        let nothing: Vec<Oid> = part.writes.extract_if(.., is_nothing).map(|(oid, _)| oid).collect();
        part.reads.extend(nothing.into_iter().map(|oid| Read { oid, seen: ReadVersion::At(Version::ZERO) }));
    }

    /// Whether a page has no head, and none is about to be written.
    fn is_new(&self, page: PageId) -> bool {
        let head = self.recent.newest_head(page).map_or_else(|| rows::read_head(&self.reader, page), Ok);
        head.is_ok_and(|head| head.version == Version::ZERO)
    }

    /// Takes in a transaction or a write that is new here, and adds to its part what it touches and where it appends.
    ///
    /// # Errors
    /// Why it is deferred or refused.
    pub(super) fn admit(
        &mut self,
        txn: TxnId,
        part: &mut Part<Object>,
    ) -> std::result::Result<(), DeferredTransaction> {
        match self.writer.full_error() {
            Some(full) if !planted(Bug::TakenWithoutRoom) => {
                let kind = if planted(Bug::FullIsDenied) { ErrorKind::Denied } else { full.kind() };
                Err(DeferredTransaction { kind, why: full.message().to_owned() })
            }
            // What was taken in before is written, room or not.
            _ if self.reader.is_memory_full() && self.grows(part) => {
                Err(DeferredTransaction { kind: ErrorKind::Full, why: STORE_FULL.to_owned() })
            }
            _ => self.check_removals(part).and_then(|()| self.compute_touches(txn, part)),
        }
    }

    /// Whether a transaction writes more bytes than it takes away. Objects that cannot be read count as absent here: reading them fails
    /// later, where it is reported.
    fn grows(&self, part: &Part<Object>) -> bool {
        let (mut before, mut after) = (0, 0);
        for (oid, content) in &part.writes {
            after += match content {
                ObjectState::Value(object) => OBJECT_OVERHEAD + object.encoded_len(),
                ObjectState::Changed(change) => OBJECT_OVERHEAD + change.encoded_len(),
                ObjectState::Absent => 0,
            };
            after += if self.is_new(oid.page()) { HEAD_SIZE } else { 0 };
            if let Ok(Some(object)) = rows::read_object(&self.reader, oid.page(), oid.slot()) {
                before += OBJECT_OVERHEAD + object.encoded_len();
            }
        }
        for (Entry { collection, key }, target) in &part.entries {
            let size = ENTRY_OVERHEAD + 2 * key.as_bytes().len();
            after += if target.is_some() { size } else { 0 };
            if let Ok(Some(_)) = entry_rows::read_target(&self.reader, *collection, key) {
                before += size;
            }
        }
        after > before
    }

    /// Adds to a part the guards that it touches, and the offsets of its appends: its coordinator does not know them.
    ///
    /// # Errors
    /// Why the transaction is deferred or refused.
    fn compute_touches(&mut self, txn: TxnId, part: &mut Part<Object>) -> std::result::Result<(), DeferredTransaction> {
        let (replaced, touches) = self.read_replaced(part).map_err(|error| self.handle_unread(error))?;
        if let Some(rejection) = replaced.rejection() {
            return Err(self.reject(txn, rejection));
        }
        let checked = self.check_contents(txn, part, |oid| replaced.replaced_object(oid));
        let checked = checked.map_err(|rejection| reject_content(part, rejection))?;
        let size = ChangeSize::of(part, &touches, &replaced, &checked);
        let CheckedContents { growth, offsets, work, object_bytes, unreadable } = checked;
        if let Some(error) = unreadable {
            return Err(self.handle_unread(error));
        }
        self.check_removed_collections(&replaced, part)?;
        if (size.is_too_large() || work.created > MAX_CREATED) && !planted(Bug::ContentWorkUnbounded) {
            let (objects, entries) = (part.writes.len(), part.entries.len());
            let (of_indexes, key_bytes) = replaced.entries();
            let ContentWork { created, moved_bytes, changes, .. } = work;
            let why = format!(
                "the transaction writes {objects} objects ({object_bytes} bytes), {of_indexes} entries of indexes ({key_bytes} bytes) \
                 and {entries} entries of collections, changes parts of blobs {changes} times, and moves {created} blobs ({moved_bytes} \
                 bytes) out of their pages, {} bytes together: part it",
                size.bytes
            );
            return Err(DeferredTransaction { kind: ErrorKind::TooLarge, why });
        }
        let unbound = self.read_guards_and_entries(part, &touches).map_err(|error| self.handle_unread(error))?;
        self.check_quota(growth).map_err(|QuotaRefusal { kind, why }| DeferredTransaction { kind, why })?;
        (part.touches, part.offsets) = (touches, offsets);
        self.admission.begin(txn, replaced, growth);
        self.admission.current_unbound = unbound;
        self.admission.current_size = size;
        Ok(())
    }

    /// Reads what the writes of a transaction replace, and tells which guards they touch.
    ///
    /// # Errors
    /// If something of that cannot be read.
    fn read_replaced(&mut self, part: &Part<Object>) -> Result<(ReplacedObjects, BTreeSet<Oid>)> {
        // If a page has no head, none of its objects is looked up.
        self.read_heads(part.writes.keys().map(|oid| oid.page()))?;
        self.index.compute_touches(ObjectReader { reader: &self.reader, recent: &self.recent }, part)
    }

    /// Reads what else the record of a transaction replaces: the heads of pages of guards, and entries of collections with their totals. A
    /// record that was accepted cannot be refused, so damage must be noticed before. Returns the guards of keys that the transaction takes for
    /// [unbound](protocol::entries::unbound_key), if they are.
    ///
    /// # Errors
    /// If something of that cannot be read.
    fn read_guards_and_entries(&mut self, part: &Part<Object>, touches: &BTreeSet<Oid>) -> Result<BTreeSet<Oid>> {
        // Half of a one-phase commit can be written only if the other half fails after it was accepted.
        let is_late = planted(Bug::GuardsReadLate) || planted(Bug::OnePhaseHalfCommitted);
        if !is_late {
            self.read_heads(touches.iter().chain(&guards_of_entries(&part.entries)).map(|guard| guard.page()))?;
        }
        let takes_for_unbound = part.reads.contains_state(NO_STATE);
        match self.entries.read_replaced(&part.entries, takes_for_unbound, &self.reader) {
            Err(_) if is_late => Ok(BTreeSet::new()),
            unbound => unbound,
        }
    }

    /// Reads the heads of pages that change. They are kept until the change is made.
    ///
    /// # Errors
    /// If a head cannot be read.
    fn read_heads(&mut self, pages: impl Iterator<Item = PageId>) -> Result<()> {
        let (newest, mut last) = (self.newest_version(), None);
        for page in pages {
            if last.replace(page) != Some(page) {
                self.recent.enter(page, &self.reader, newest)?;
            }
        }
        Ok(())
    }

    /// The version of the last record. A page with a later one is damaged: its next change would not be later (L1).
    pub(super) fn newest_version(&self) -> Version {
        Version { moves: self.moves, position: self.writer.last_position() }
    }

    /// A transaction was taken in, or refused: nothing of what was read for it has to be kept.
    pub(super) fn end_admission(&mut self) {
        self.admission.end();
        self.recent.shrink();
    }

    /// What becomes of a transaction for which stored rows cannot be read. Damage costs only what needs the damaged rows, so the transaction is
    /// refused. After another error the logical node is not served any more.
    fn handle_unread(&mut self, error: Error) -> DeferredTransaction {
        if is_damage(&error) && !planted(Bug::DamageEndsNode) {
            return DeferredTransaction::for_damage(&error);
        }
        let deferred = DeferredTransaction { kind: error.kind(), why: error.message().to_owned() };
        self.fail(error);
        deferred
    }

    /// Takes in growth if the quota of the space allows it.
    ///
    /// # Errors
    /// Why it is refused.
    pub(super) fn check_quota(&self, growth: Growth) -> std::result::Result<(), QuotaRefusal> {
        match &self.quota {
            Some(quota) => with_quota(quota, |quota| quota.grow(self.node, growth)),
            None => Ok(()),
        }
    }

    /// Checks that the contents that a transaction names or changes are there. `replaced` tells what a write replaces.
    pub(super) fn check_contents<'a>(
        &self,
        txn: TxnId,
        part: &Part<Object>,
        replaced: impl Fn(Oid) -> Option<&'a Replaced>,
    ) -> std::result::Result<CheckedContents, ContentRejection> {
        let (mut taken, mut growth, mut offsets) = (BTreeSet::new(), Growth::default(), AppendOffsets::new());
        let (mut work, mut object_bytes, mut unreadable) = (ContentWork::default(), 0, None);
        let sizes = |object: &Object| (object.total_size(), object.encoded_len());
        for (oid, written) in &part.writes {
            let concerns_content = match written {
                ObjectState::Value(object) => object.content().is_some(),
                ObjectState::Changed(_) => true,
                ObjectState::Absent => false,
            };
            let replaced = replaced(*oid);
            let size_before = replaced.and_then(|replaced| replaced.before.map(|_| replaced.size_before));
            let after = if concerns_content {
                let durable = self.durable_blob(*oid);
                let before = durable.as_ref().or_else(|| replaced.and_then(|replaced| replaced.blob.as_ref()));
                let size = |id| self.staging.size(id, txn);
                let plan = plan_write((*oid, self.moves), before, written.clone(), size, || ContentId(0))?;
                if let Some(id) = plan.staged.filter(|id| !taken.insert(*id)) {
                    return Err(ContentRejection::NotStaged(*oid, id));
                }
                // No other transaction changes the blob before this one, once it is prepared or committed (V2).
                offsets.extend(plan.append_offset.map(|offset| (*oid, offset)));
                growth.take_staged(plan.staged.and_then(size).unwrap_or(0));
                work.add(&plan.changes);
                unreadable = unreadable.or_else(|| self.check_changeable(*oid, &plan.changes).err());
                plan.object.as_ref().map(sizes)
            } else {
                // Whatever takes the place of a content, or nothing: the content is deleted.
                let content = replaced.and_then(|replaced| replaced.blob.as_ref()).and_then(Object::content);
                let delete = content.map(|content| ContentChange::Delete { id: content.id });
                unreadable = unreadable.or_else(|| self.check_changeable(*oid, delete.as_slice()).err());
                if let ObjectState::Value(object) = written { Some(sizes(object)) } else { None }
            };
            object_bytes += after.map_or(0, |(_, encoded)| encoded);
            growth.replace(size_before, after.map(|(size, _)| size));
        }
        Ok(CheckedContents { growth, offsets, work, object_bytes, unreadable })
    }

    /// Checks that the content of a blob can be changed so. What changes in flight have made of a blob is not in the store yet, and they
    /// have been checked.
    ///
    /// # Errors
    /// If the content is lost or damaged: what is taken in has to be stored.
    fn check_changeable(&self, oid: Oid, changes: &[ContentChange]) -> Result<()> {
        let is_new = matches!(changes.first(), None | Some(ContentChange::Create { .. }));
        if is_new || self.recent.is_changing(oid.page(), oid.slot()) || planted(Bug::LostContentChanged) {
            return Ok(());
        }
        self.reader.check_changeable(oid, changes)
    }

    /// The durable state of a blob, which is no ground to plan a change on: for a [planted bug](Bug::DurableAppendOffset).
    fn durable_blob(&self, oid: Oid) -> Option<Object> {
        let is_planted = planted(Bug::DurableAppendOffset);
        is_planted.then(|| rows::read_object(&self.reader, oid.page(), oid.slot()).ok()).flatten().flatten()
    }

    /// Checks that collections which are deleted have no entries afterwards. A transaction that adds an entry meanwhile has read the
    /// collection, so one of the two conflicts.
    fn check_removed_collections(
        &mut self,
        replaced: &ReplacedObjects,
        part: &Part<Object>,
    ) -> std::result::Result<(), DeferredTransaction> {
        for collection in replaced.removed_collections() {
            let left = self.entries.count_after(collection, &part.entries, &self.reader);
            let left = left.map_err(|error| self.handle_unread(error))?;
            if left > 0 && !planted(Bug::FullCollectionDeleted) {
                // A transaction that has listed it conflicts: another one has added them since.
                let has_listed = part.reads.contains(collection_guard(collection));
                let kind = if has_listed { ErrorKind::Conflict } else { ErrorKind::Invalid };
                let why = format!("{collection} has {left} entries: remove them before the collection is deleted");
                return Err(DeferredTransaction { kind, why });
            }
        }
        Ok(())
    }

    fn reject(&mut self, txn: TxnId, rejection: WriteRejection) -> DeferredTransaction {
        match rejection {
            WriteRejection::WrongClass(oid) => {
                let why = "names another class than that of the object in its place: nothing was written";
                DeferredTransaction { kind: ErrorKind::Invalid, why: format!("{oid} {why}") }
            }
            WriteRejection::WrongKind(oid) => {
                let why = "is a set or a directory, and would become something else, or the reverse: delete it first";
                DeferredTransaction { kind: ErrorKind::Invalid, why: format!("{oid} {why}") }
            }
            WriteRejection::UnknownClass(oid) => {
                let deferred = self.admission.defer_unknown_class(txn, oid);
                if deferred.kind == ErrorKind::Unavailable {
                    self.out.push_back(DriverOutput::RefreshSchema { space: oid.space() });
                }
                deferred
            }
            WriteRejection::UniquenessUnchecked(oid, index) => {
                let why = "are to be unique, and the transaction does not bind them";
                DeferredTransaction { kind: ErrorKind::Unsupported, why: format!("values of {oid} in {index} {why}") }
            }
        }
    }
}

/// The guards that changes of entries touch.
pub(super) fn guards_of_entries(entries: &EntryChanges) -> Vec<Oid> {
    entries.keys().flat_map(|entry| [entry_guard(entry), collection_guard(entry.collection)]).collect()
}

/// A transaction that has read the object conflicts: another one has changed it since.
fn reject_content(part: &Part<Object>, rejection: ContentRejection) -> DeferredTransaction {
    let unread = |oid: Oid| match part.reads.contains(oid) {
        true => ErrorKind::Conflict,
        false => ErrorKind::NotFound,
    };
    let (kind, why) = match rejection {
        ContentRejection::NotABlob(oid) => {
            let why = "is no blob, or does not exist: a part of it cannot be changed";
            (unread(oid), format!("{oid} {why}"))
        }
        ContentRejection::NotStaged(oid, id) => {
            let why = "is not staged for it: its lease has ended, or another object has it; upload it again";
            (unread(oid), format!("the content {id} of {oid} {why}"))
        }
        ContentRejection::BadChange(oid) => {
            let why = format!("{oid} would be larger than a blob can be: {} bytes", limits::BLOB);
            (ErrorKind::TooLarge, why)
        }
    };
    DeferredTransaction { kind, why }
}

#[cfg(test)]
mod tests {
    use model::{ClassId, ContentOrigin};
    use protocol::ident::{ClientId, HlcTimestamp};

    use super::*;

    fn txn(number: u64) -> TxnId {
        TxnId { start: HlcTimestamp(number), client: ClientId(1) }
    }

    #[test]
    fn class_is_unknown_for_good_when_the_catalogue_was_asked_twice_since() {
        let mut admission = Admission::default();
        let oid = Oid::new(ClassId(9), PageId { space: SpaceId(1), node: NodeId(3), number: 1 }, 0);
        let kind = |admission: &mut Admission| admission.defer_unknown_class(txn(1), oid).kind;
        assert_eq!(kind(&mut admission), ErrorKind::Unavailable);
        (0..3).for_each(|_| admission.count_schema_refresh(SpaceId(2)));
        assert_eq!(kind(&mut admission), ErrorKind::Unavailable, "the classes of another space");
        admission.count_schema_refresh(SpaceId(1));
        assert_eq!(kind(&mut admission), ErrorKind::Unavailable, "the answer may be to an earlier question");
        admission.count_schema_refresh(SpaceId(1));
        assert_eq!(kind(&mut admission), ErrorKind::Invalid);
        (0..MAX_UNKNOWN as u64).for_each(|number| drop(admission.defer_unknown_class(txn(2 + number), oid)));
        drop(admission.defer_unknown_class(txn(1_000), oid));
        assert!(admission.unknown_class_txns.len() <= MAX_UNKNOWN, "memory is bounded");
    }

    #[test]
    fn change_of_a_content_that_is_gone_conflicts_if_its_object_was_read() {
        let page = PageId { space: SpaceId(1), node: NodeId(3), number: 1 };
        let [known, unknown] = [1, 2].map(|slot| Oid::new(ClassId::NONE, page, slot));
        let reads = [Read { oid: known, seen: ReadVersion::Written(txn(1)) }].into();
        let part = Part { reads, ..Part::default() };
        let content = ContentId::new(page.space, page.node, 0, ContentOrigin::Upload, 7);
        for (oid, expected) in [(known, ErrorKind::Conflict), (unknown, ErrorKind::NotFound)] {
            for rejection in [ContentRejection::NotABlob(oid), ContentRejection::NotStaged(oid, content)] {
                assert_eq!(reject_content(&part, rejection).kind, expected);
            }
        }
        assert_eq!(reject_content(&part, ContentRejection::BadChange(known)).kind, ErrorKind::TooLarge);
    }

    #[test]
    fn what_a_prepared_transaction_replaces_is_kept_for_its_outcome_only() {
        let mut admission = Admission::default();
        admission.begin(txn(1), ReplacedObjects::default(), Growth::default());
        admission.take_replaced(txn(2), true);
        assert!(admission.prepared.is_empty(), "another transaction");
        admission.take_replaced(txn(1), true);
        assert_eq!(admission.prepared.len(), 1);
        admission.take_replaced(txn(1), false);
        assert!(admission.prepared.is_empty() && admission.current.is_none());
    }
}
