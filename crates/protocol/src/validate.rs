//! Decides whether a finished transaction may commit.
//!
//! A [`Validator`] guards the pages of one logical node. It does no I/O and reads no clock: equal inputs in equal order
//! give equal verdicts. Rules V1 to V3; the *solo commit* of BuddyCache, section 3.3.
//!
//! # The floor and the window
//!
//! Conflicts are detected by object, with one version for the page and a short list:
//!
//! ```text
//!   page   version 9     floor 4     window { slot 2 → 7, slot 5 → 9 }
//!
//!   a read of slot 2 at 7, 8 or 9 is current         7 or more: it includes the last change of the slot
//!   a read of slot 3 at 4 … 9 is current             4 or more: whatever is not in the window changed at or below 4
//! ```
//!
//! - **V1.** A read at version v is current if v ≥ window(slot) where the slot is in the window, else if v ≥ floor.
//!   This is sound because a copy of version v reflects every change up to v, or is invalid (P1), and every slot
//!   outside the window last changed at or below the floor. What the transaction has locked since version v or earlier
//!   is current, wherever the floor is (W1).
//! - **V2.** Objects that are *held* by a transaction conflict: by one that is prepared, or committed and not yet
//!   durable. No other transaction may read what it writes, nor write what it read or writes. Locks of datastore
//!   transactions are in the same table ([`crate::locks`]). A *guard* stands for a set: a query for members reads it,
//!   and a change of the membership *touches* it. A touch conflicts with reads as a write does; touches do not conflict
//!   with each other. So queries see no phantoms, and inserts do not conflict with inserts. Changes of parts of a blob
//!   that was not read, such as appends, follow one another in the log without waiting for durability: only reads and
//!   other writes conflict with them then.
//! - **V3.** When every holder has acknowledged an entry, the entry can be retired in the order of versions, and the floor
//!   rises to it. The directory knows the acknowledgements. A holder that never answers keeps entries in the window and
//!   causes no conflict. Acknowledged entries are retained as long as there is room, the newest ones of all pages, because
//!   queries and other reads at the brick have no copy that an invalidation could advance: if the floor rose at once, they
//!   would conflict with changes of other objects of the page. Touches of guards stay until their window is full. A
//!   window that exceeds its limit raises the floor early: some current reads are then refused, which costs a fetch; no
//!   outdated read passes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::{Oid, PageId};

use crate::ident::{ClientId, HlcTimestamp, TxnId, Version};
use crate::locks::{LockMode, Locks};
use crate::page_map::{PageMap, remove_page};
use crate::plant::{Bug, planted};
use crate::read_list::ReadList;

/// A read of a transaction, as its client reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Read {
    /// The object.
    pub oid: Oid,
    /// Which state of it.
    pub seen: ReadVersion,
}

/// Which state of an object was read. The absence of an object is a state, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadVersion {
    /// The state in a page copy of this version (P3).
    At(Version),
    /// The state that this transaction wrote; the client does not know its position yet (P4).
    Written(TxnId),
}

/// A state that there never is, because no transaction has this identifier: a read of it conflicts (P4), unless the key
/// is [unbound](PageVersions::is_unbound) whose guard was read.
pub const NO_STATE: ReadVersion = ReadVersion::Written(TxnId { start: HlcTimestamp::ZERO, client: ClientId(0) });

/// Why a transaction may not commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidationConflict {
    /// The object.
    pub oid: Oid,
    /// The cause.
    pub cause: Cause,
}

/// Why a transaction conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The transaction read an old state: the object has changed since, at this version or earlier.
    Stale(Version),
    /// A transaction that is committing has read or writes the object.
    Held(TxnId),
}

/// What a transaction read and writes at one logical node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Objects that it read and does not write.
    pub reads: BTreeSet<Oid>,
    /// Objects that it writes, creates or deletes, and guards that it reads and touches.
    pub writes: BTreeSet<Oid>,
    /// Blobs of which it changes a part and that it has not read.
    pub patches: BTreeSet<Oid>,
    /// Guards that it touches and has not read.
    pub touches: BTreeSet<Oid>,
}

/// The newest change of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WindowEntry {
    version: Version,
    writer: TxnId,
    /// It changes a guard: it stays as long as there is room.
    is_guard: bool,
}

/// Changes by slot. That of a page of guards may have thousands.
type Window = BTreeMap<u16, WindowEntry>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct PageWindow {
    version: Version,
    floor: Version,
    /// Every holder has acknowledged the changes up to this version. Those above the floor are retained.
    acknowledged: Version,
    window: Window,
    /// Changes of slots since then, those of guards apart.
    unacknowledged: usize,
}

/// The changes of a page that validation knows.
#[derive(Clone, Copy)]
struct PageState<'a> {
    window: Option<&'a Window>,
    /// Whatever is not in the window changed at or below this version.
    floor: Version,
    /// Whether it has no window, and no transaction holds objects in it.
    is_idle: bool,
}

/// The stored versions of the pages of a logical node, with all changes that its machine has output so far; and the keys
/// that are bound to nothing.
///
/// A driver reads what a call needs before it makes the call, so that looking a version up cannot fail: a machine does
/// no I/O.
pub trait PageVersions {
    /// The version of a page; [`Version::ZERO`] for a page that was never written.
    fn version(&self, page: PageId) -> Version;

    /// Whether this is the guard of a key that is bound to nothing in the durable state. It was looked up for a read of
    /// [no state](NO_STATE), whose transaction takes the key for unbound; changes in flight are held, so they conflict (V2).
    fn is_unbound(&self, _guard: Oid) -> bool {
        false
    }
}

impl PageVersions for BTreeMap<PageId, Version> {
    fn version(&self, page: PageId) -> Version {
        self.get(&page).copied().unwrap_or_default()
    }
}

/// Every page has this version.
impl PageVersions for Version {
    fn version(&self, _: PageId) -> Version {
        *self
    }
}

/// The recently changed pages of a logical node, and the transactions that hold objects in them.
#[derive(Clone, Debug)]
pub struct Validator {
    /// Pages with unacknowledged changes. Every other page has its stored version, which is also its floor.
    pages: PageMap<PageWindow>,
    locks: Locks,
    limits: WindowLimits,
    /// The acknowledged changes that are retained, in the order of their acknowledgement.
    retained: VecDeque<RetainedChange>,
    /// Their entries.
    retained_entries: usize,
}

/// How many changes a [`Validator`] remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLimits {
    /// Entries that the window of a page may have.
    pub page: usize,
    /// Entries of all pages that are retained although every holder has acknowledged them.
    pub retained: usize,
}

/// Entries of a page that every holder has acknowledged.
#[derive(Clone, Copy, Debug)]
struct RetainedChange {
    page: PageId,
    /// The last of the acknowledged changes.
    version: Version,
    /// Entries when they were acknowledged; later changes of the same objects may have replaced some.
    entries: usize,
}

/// The locks of a transaction that is prepared.
fn locks_of(footprint: &Footprint) -> impl Iterator<Item = (Oid, LockMode)> {
    let Footprint { reads, writes, patches, touches } = footprint;
    let reads = reads.iter().map(|oid| (*oid, LockMode::Shared));
    let writes = writes.iter().map(|oid| (*oid, LockMode::Exclusive));
    let touches = touches.iter().map(|oid| (*oid, LockMode::Touch)).filter(|_| !planted(Bug::TouchUnheld));
    let patches = patches.iter().map(|oid| (*oid, LockMode::Patch));
    reads.chain(writes).chain(patches).chain(touches)
}

impl Validator {
    /// A validator after a start or restart. The floor of every page is its stored version.
    #[must_use]
    pub fn new(limits: WindowLimits) -> Self {
        let (pages, locks, retained) = Default::default();
        Self { pages, locks, limits, retained, retained_entries: 0 }
    }

    /// Checks that `txn` may commit at this node: every read is current (V1), and no other transaction holds what it
    /// read or writes (V2). Exceptions are younger transactions, which give way (W1), and logged patches, which its own
    /// patches follow. `versions` must have the page of each read whose page has no [window](Validator::version).
    ///
    /// # Errors
    /// The first conflict, in the order of the reads, then of the writes, the patches and the touches.
    pub fn check(
        &self,
        txn: TxnId,
        reads: &ReadList,
        footprint: &Footprint,
        versions: &dyn PageVersions,
    ) -> Result<(), ValidationConflict> {
        let bars = |oid: Oid, mode| match self.locks.blocker(txn, oid, mode) {
            Some(other) => Err(ValidationConflict { oid, cause: Cause::Held(other) }),
            None => Ok(()),
        };
        let mut last = None;
        for run in reads.runs() {
            let page = run.page;
            if run.seen == NO_STATE {
                for Read { oid, .. } in run.reads() {
                    if !versions.is_unbound(oid) && !planted(Bug::StaleReads) {
                        let newest = self.version(page).unwrap_or_default();
                        return Err(ValidationConflict { oid, cause: Cause::Stale(newest) });
                    }
                    bars(oid, LockMode::Shared)?;
                }
                continue;
            }
            // Reads are in the order of pages, so a page is looked up once.
            let state = match last {
                Some((same, state)) if same == page => state,
                _ => self.page_state(page, versions),
            };
            last = Some((page, state));
            if state.is_idle && matches!(run.seen, ReadVersion::At(version) if version >= state.floor) {
                // All of its reads are current, and nothing holds their objects.
                continue;
            }
            for read in run.reads() {
                self.check_current(txn, &read, state)?;
                if !planted(Bug::HeldWrites) {
                    bars(read.oid, LockMode::Shared)?;
                }
            }
        }
        let mode = if planted(Bug::HeldReads) { LockMode::Shared } else { LockMode::Exclusive };
        footprint.writes.iter().try_for_each(|oid| bars(*oid, mode))?;
        footprint.patches.iter().try_for_each(|oid| bars(*oid, LockMode::Patch))?;
        let mut touches = footprint.touches.iter().filter(|_| !planted(Bug::TouchUnchecked));
        touches.try_for_each(|oid| bars(*oid, LockMode::Touch))
    }

    /// What decides whether reads of a page are current.
    fn page_state(&self, page: PageId, versions: &dyn PageVersions) -> PageState<'_> {
        match self.pages.get(&page) {
            Some(PageWindow { window, floor, .. }) => PageState { window: Some(window), floor: *floor, is_idle: false },
            None => PageState { window: None, floor: versions.version(page), is_idle: !self.locks.may_hold_in(page) },
        }
    }

    /// Checks that a read returned the newest durable state (V1).
    fn check_current(&self, txn: TxnId, read: &Read, page: PageState<'_>) -> Result<(), ValidationConflict> {
        if planted(Bug::StaleReads) {
            return Ok(());
        }
        let change = page.window.and_then(|window| window.get(&read.oid.slot()));
        let newest = match change {
            Some(change) => change.version,
            None if planted(Bug::NoFloor) => Version::ZERO,
            None => page.floor,
        };
        let current = match read.seen {
            ReadVersion::At(_) if planted(Bug::PendingIsStale) && change.is_some() => false,
            ReadVersion::At(version) => version >= newest || self.locks.is_unchanged_since(txn, read.oid, version),
            // After its entry is retired, the last writer is no longer known; the client learns the version meanwhile.
            ReadVersion::Written(writer) => {
                change.is_some_and(|change| change.writer == writer) || planted(Bug::AnyWriterAccepted)
            }
        };
        if current { Ok(()) } else { Err(ValidationConflict { oid: read.oid, cause: Cause::Stale(newest) }) }
    }

    /// A transaction that bars this one from holding its footprint. Durable records of prepared transactions never bar one another (V2).
    #[must_use]
    pub fn barring(&self, txn: TxnId, footprint: &Footprint) -> Option<TxnId> {
        locks_of(footprint).find_map(|(oid, mode)| self.locks.blocker(txn, oid, mode))
    }

    /// Holds what a transaction read and writes until the locks release it: it is prepared, or decided and not yet
    /// durable (V2). Returns the younger datastore transactions that must be aborted before the transaction is recorded
    /// (W1).
    ///
    /// # Panics
    /// If another transaction holds what it writes: [`Validator::check`] was not called.
    #[must_use]
    pub fn hold(&mut self, txn: TxnId, footprint: &Footprint) -> BTreeSet<TxnId> {
        let wound = locks_of(footprint).flat_map(|(oid, mode)| self.locks.take(txn, oid, mode)).collect();
        self.locks.prepare(txn);
        wound
    }

    /// The locks: holders and waiters.
    pub fn locks(&mut self) -> &mut Locks {
        &mut self.locks
    }

    /// Transactions that [hold](Validator::hold) objects.
    pub fn prepared_txns(&self) -> impl Iterator<Item = TxnId> {
        self.locks.prepared_txns()
    }

    /// Whether a transaction holds an object so that no other one can lock it in this mode.
    #[must_use]
    pub fn is_barred_by(&self, holder: TxnId, oid: Oid, mode: LockMode) -> bool {
        self.locks.held_mode(holder, oid).is_some_and(|held| held.conflicts(mode))
    }

    /// Transactions that hold or wait for locks and are not prepared.
    pub fn locking_txns(&self) -> impl Iterator<Item = TxnId> {
        self.locks.unprepared_txns()
    }

    /// Whether a transaction [holds](Validator::hold) an object that it writes.
    #[must_use]
    pub fn is_written_by(&self, txn: TxnId, oid: Oid) -> bool {
        self.locks.held_mode(txn, oid).is_some_and(|held| held.covers(LockMode::Patch))
    }

    /// Applies a durable change of some slots of a page (L1). Returns the previous version of the page, which the
    /// invalidation contains (P2).
    ///
    /// # Panics
    /// If records are applied out of their order (L1).
    pub fn apply(
        &mut self,
        page: PageId,
        slots: impl IntoIterator<Item = u16>,
        version: Version,
        writer: TxnId,
        versions: &dyn PageVersions,
    ) -> Version {
        let entry = self.pages.entry(page).or_insert_with(|| {
            let version = versions.version(page);
            PageWindow { version, floor: version, acknowledged: version, window: Window::default(), unacknowledged: 0 }
        });
        let before = entry.version;
        assert!(before < version, "L1: {page:?} is at {before:?}, but {version:?} is applied later");
        entry.version = version;
        self.locks.note_change(page, before);
        for slot in slots {
            entry.window.insert(slot, WindowEntry { version, writer, is_guard: false });
            entry.unacknowledged += 1;
        }
        while entry.window.len() > self.limits.page {
            let oldest = entry.window.values().map(|change| change.version).min().unwrap_or(version);
            if planted(Bug::WindowDropsEntries) {
                entry.window.retain(|_, change| change.version != oldest);
            }
            entry.raise_floor(oldest, false);
        }
        assert!(entry.floor <= version, "V1: the floor of {page:?} is {:?}, above {version:?}", entry.floor);
        before
    }

    /// Marks the last changes of these slots of a page as touches of guards, which stay in the window as long as there
    /// is room. A query reads a guard at the brick and holds no copy, so there is no holder to wait for (V3). If the
    /// touches were retired at once, the floor would rise, and readers of one guard would conflict with touches of
    /// others.
    pub fn keep_in_window(&mut self, page: PageId, slots: impl IntoIterator<Item = u16>) {
        let Some(entry) = self.pages.get_mut(&page) else { return };
        for slot in slots {
            if let Some(change) = entry.window.get_mut(&slot)
                && !std::mem::replace(&mut change.is_guard, true)
            {
                entry.unacknowledged = entry.unacknowledged.saturating_sub(1);
            }
        }
    }

    /// Every holder has acknowledged the invalidations of the page up to `version`, or has expired: its entries up to there
    /// may be retired (V3). They are retained while there is room, and the oldest ones of the node make room.
    pub fn acknowledge(&mut self, page: PageId, version: Version) {
        let Some(window) = self.pages.get_mut(&page) else { return };
        let entries = window.acknowledge(version);
        if window.window.is_empty() {
            // The floor is the version, which is already stored.
            remove_page(&mut self.pages, page);
        } else if entries > 0 {
            self.retained.push_back(RetainedChange { page, version, entries });
            self.retained_entries += entries;
        }
        while self.retained_entries > self.limits.retained {
            let Some(oldest) = self.retained.pop_front() else { break };
            assert!(
                self.retained_entries >= oldest.entries,
                "V3: {} entries are retained, of one page {}",
                self.retained_entries,
                oldest.entries
            );
            self.retained_entries -= oldest.entries;
            self.retire(oldest.page, oldest.version);
        }
    }

    /// Retires the entries of a page up to `version` and raises the floor to the last of them.
    fn retire(&mut self, page: PageId, version: Version) {
        let Some(window) = self.pages.get_mut(&page) else { return };
        if planted(Bug::RetainedDropsEntries) {
            window.window.retain(|_, change| change.version > version);
        }
        window.raise_floor(version.min(window.version), true);
        if window.window.is_empty() {
            remove_page(&mut self.pages, page);
        }
    }

    /// The version of a page with unacknowledged changes.
    #[must_use]
    pub fn version(&self, page: PageId) -> Option<Version> {
        self.pages.get(&page).map(|page| page.version)
    }

    /// The number of entries in all windows.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.pages.values().map(|page| page.window.len()).sum()
    }

    /// Checks the invariants.
    ///
    /// # Errors
    /// The violated rule, and where.
    pub fn check_invariants(&self) -> Result<(), String> {
        for (id, page) in &self.pages {
            if page.floor > page.version {
                return Err(format!(
                    "V1: the floor of {id:?} is {:?}, above its version {:?}",
                    page.floor, page.version
                ));
            }
            for (slot, change) in &page.window {
                if change.version <= page.floor && !change.is_guard || change.version > page.version {
                    return Err(format!("V3: slot {slot} of {id:?} changed at {:?}: {page:?}", change.version));
                }
            }
            if page.window.len() > self.limits.page {
                return Err(format!("V3: the window of {id:?} has {} entries", page.window.len()));
            }
        }
        let retained: usize = self.retained.iter().map(|change| change.entries).sum();
        if retained != self.retained_entries || retained > self.limits.retained {
            return Err(format!("V3: {retained} entries are retained, {} are counted", self.retained_entries));
        }
        self.locks.check_invariants()
    }
}

impl PageWindow {
    /// Notes that every holder has acknowledged the changes up to `version`. Returns how many entries it is the first to
    /// acknowledge, or a few more: some may have been replaced.
    fn acknowledge(&mut self, version: Version) -> usize {
        let before = self.acknowledged;
        self.acknowledged = before.max(version);
        if version >= self.version {
            return std::mem::take(&mut self.unacknowledged).min(self.window.len());
        }
        let is_new = |change: &&WindowEntry| !change.is_guard && (before < change.version && change.version <= version);
        let acknowledged = self.window.values().filter(is_new).count();
        self.unacknowledged = self.unacknowledged.saturating_sub(acknowledged);
        acknowledged
    }

    /// Retires the entries up to `version`, except guards if `keep` is set; the floor rises to the last of them.
    fn raise_floor(&mut self, version: Version, keep: bool) {
        let stays = |change: &WindowEntry| change.version > version || keep && change.is_guard;
        let retired = self.window.values().filter(|change| !stays(change)).map(|change| change.version).max();
        if let Some(last) = retired {
            self.floor = self.floor.max(last);
            self.window.retain(|_, change| stays(change));
        }
    }
}

#[cfg(test)]
mod tests;
