//! The oracle records every state of every page, which no process knows, and checks what processes use against it.
//!
//! - **P1.** An object in a copy equals the object at the version that a read of it would have.
//! - **N1, D2, D4.** When a write is settled, no client may use what it replaced.
//! - **T2.** Who writes an object keeps the fields of it that its program does not know, unless its class has lost them.
//! - **R3, V3.** No transaction is refused for a stale read of an object that has not changed since (solo commit).
//! - The invariants of the machines ([`protocol`]'s `check_invariants`).

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;

use model::{FieldNumber, Kind, NodeId, Object, PageId, RecordRef};
use protocol::commit::{Change, Request};
use protocol::ident::{TxnId, Version};
use protocol::page_cache::{Invalidation, ObjectState, PageCache, SlotStates};
use protocol::read_list::ReadList;
use protocol::validate::{Cause, ReadVersion, ValidationConflict};

use super::disk::{Objects, Page, RecoveredChange};
use crate::object::Content;
use crate::plan::{Key, ProcessName};
use check::Violation;
use check::history::Operation;

/// The maximum duration of an operation if the only fault is a slow or dead member, in milliseconds.
const SOLO_MS: u64 = 3_000;

/// A failure of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunFailure {
    /// The oracle or a machine has found a violated rule.
    Rule(String),
    /// A checker has rejected the history.
    History(Box<Violation>),
    /// An operation does not end.
    Stuck(String),
}

impl fmt::Display for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(what) => f.write_str(what),
            Self::History(violation) => violation.fmt(f),
            Self::Stuck(what) => write!(f, "stuck: {what}"),
        }
    }
}

impl Error for RunFailure {}

/// The oracle.
#[derive(Default)]
pub(super) struct Oracle {
    /// All states of each page, by version.
    history: BTreeMap<PageId, BTreeMap<Version, Objects>>,
    /// All numbers that each object contained, in order.
    pub(super) orders: BTreeMap<Key, Vec<i64>>,
    /// The pages that each transaction changed, with their new versions.
    changed: BTreeMap<TxnId, Vec<(PageId, Version)>>,
    /// The reads that transactions reported.
    reads: BTreeMap<(NodeId, TxnId), ReadList>,
    /// Whether a slow member must not cause refusals or waits.
    pub(super) solo: bool,
    /// Processes that are slow or dead.
    pub(super) slow: BTreeSet<ProcessName>,
    /// The versions of pages when their brick was restarted.
    pub(super) restarted: BTreeMap<NodeId, BTreeMap<PageId, Version>>,
    /// Fields that were removed from the classes of the sets of a page.
    pub(super) removed_fields: BTreeSet<(u64, FieldNumber)>,
    failure: Option<RunFailure>,
}

impl Oracle {
    /// Records the initial state.
    pub(super) fn begin(&mut self, pages: &BTreeMap<PageId, Page>) {
        for (page, state) in pages {
            self.history.entry(*page).or_default().insert(Version::ZERO, state.objects.clone());
        }
    }

    /// Records the state of a page of a restored cluster.
    pub(super) fn begin_at(&mut self, page: PageId, version: Version, objects: Objects) {
        self.history.entry(page).or_default().insert(version, objects);
    }

    /// All pages that have ever had objects or changes.
    pub(super) fn pages(&self) -> impl Iterator<Item = PageId> {
        self.history.keys().copied()
    }

    /// Reports a violated rule; the first report counts.
    pub(super) fn report(&mut self, wrong: String) {
        self.failure.get_or_insert(RunFailure::Rule(wrong));
    }

    /// The failure, if any.
    pub(super) fn result(&mut self) -> Result<(), RunFailure> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Reports a violated invariant of a machine.
    pub(super) fn expect_invariants(&mut self, invariants: Result<(), String>) {
        if let Err(what) = invariants {
            self.report(what);
        }
    }

    /// Reports copies and updates that were not what had passed, if only processes that follow the rules can have sent them.
    pub(super) fn expect_no_forgery(&mut self, forged: u64) {
        if forged > 0 {
            self.report(format!("R1: {forged} honest copies or updates were taken for forged ones"));
        }
    }

    /// Reports copies of other versions than what had passed, if only processes that follow the rules can have sent them.
    pub(super) fn expect_no_other_version(&mut self, other_versions: u64) {
        if other_versions > 0 {
            self.report(format!("R1: {other_versions} honest copies were of another version than what had passed"));
        }
    }

    /// Reports a rejected message: all processes follow the rules.
    pub(super) fn expect_accepted<E: Error>(&mut self, result: Result<(), E>) {
        if let Err(error) = result {
            self.report(format!("rejected by one that follows the rules: {error}"));
        }
    }

    /// The pages of a logical node that have ever had objects or changes.
    pub(super) fn pages_of(&self, node: NodeId) -> impl Iterator<Item = PageId> {
        self.history.keys().copied().filter(move |page| page.node == node)
    }

    /// The objects of a page after its last durable change.
    pub(super) fn newest(&self, page: PageId) -> Option<&Objects> {
        self.history.get(&page)?.last_key_value().map(|(_, objects)| objects)
    }

    /// A change is durable at a brick with a driver.
    pub(super) fn record_stored(&mut self, version: Version, change: Change<Object>) {
        let txn = change.txn;
        for (page, (_, contents)) in change.pages() {
            let past =
                self.history.entry(page).or_insert_with(|| BTreeMap::from([(Version::ZERO, Objects::default())]));
            let Some((newest, objects)) = past.last_key_value() else { continue };
            if *newest >= version {
                let newest = *newest;
                return self.report(format!("L1: {page:?} is changed at {version:?}, and was at {newest:?}"));
            }
            let mut objects = (**objects).clone();
            for (slot, content) in &contents {
                if let (Some(before), ObjectState::Value(after)) = (objects.get(slot), content)
                    && let Some(field) = self.lost_field(page, before, after)
                {
                    let what = format!("T2: {txn:?} writes slot {slot} of {page:?} without its field {}", field.0);
                    self.failure.get_or_insert(RunFailure::Rule(what));
                }
                match content {
                    ObjectState::Value(state) => objects.insert(*slot, state.clone()),
                    ObjectState::Absent => objects.remove(slot),
                    ObjectState::Changed(_) => panic!("a driver tells the new states of the objects that it stores"),
                };
            }
            self.changed.entry(txn).or_default().push((page, version));
            self.record_state(page, version, &contents, &objects.into());
        }
    }

    /// A field of a record that the record lacks that replaces it, and that its class has. A member that is written over another one is a new
    /// object.
    fn lost_field(&self, page: PageId, before: &Object, after: &Object) -> Option<FieldNumber> {
        if before.kind != Kind::Record
            || after.kind != Kind::Record
            || Content::number(before) != Content::number(after)
        {
            return None;
        }
        let set = Key::set_page(page.number);
        let (before, after) = (RecordRef::new(&before.data).ok()?, RecordRef::new(&after.data).ok()?);
        let numbers = before.fields().filter_map(|field| Some(field.ok()?.0));
        let lost = numbers.into_iter().filter(|number| !matches!(after.field(*number), Ok(Some(_))));
        lost.into_iter().find(|number| !self.removed_fields.contains(&(set, *number)))
    }

    /// The last state of every member that a set has had, by its place and the operation that has inserted it.
    pub(super) fn last_members(&self) -> BTreeMap<(Key, i64), &Object> {
        let mut members = BTreeMap::new();
        for (page, states) in &self.history {
            for (slot, object) in states.values().flat_map(|objects| objects.iter()) {
                let key = Key { node: page.node.0, page: page.number, slot: *slot };
                if object.kind == Kind::Record
                    && let Some(number) = Content::number(object).filter(|_| key.set().is_some())
                {
                    members.insert((key, number), object);
                }
            }
        }
        members
    }

    /// A brick with a driver tells a holder of a change: it must be durable (L1), and follow the one before (P2).
    pub(super) fn check_invalidation(&mut self, message: &Invalidation) {
        let Invalidation { page, version, previous, .. } = *message;
        let past = self.history.get(&page);
        if past.is_none_or(|past| !past.contains_key(&version)) {
            return self.report(format!("L1: holders are told of {page:?} at {version:?}, which is not durable"));
        }
        let before = past.and_then(|past| past.range(..version).next_back()).map(|(before, _)| *before);
        if before != Some(previous) {
            self.report(format!("P2: {page:?} goes from {previous:?} to {version:?}, and was at {before:?}"));
        }
    }

    /// A page has changed.
    pub(super) fn record_change(&mut self, message: &Invalidation, contents: &SlotStates<Object>, objects: &Objects) {
        let past = self.history.entry(message.page).or_default();
        if past.is_empty() {
            past.insert(Version::ZERO, Objects::default());
        }
        let newest = past.last_key_value().map(|(version, _)| *version).unwrap_or_default();
        if newest != message.previous {
            let (page, previous, version) = (message.page, message.previous, message.version);
            return self.report(format!("P2: {page:?} goes from {previous:?} to {version:?}, and was at {newest:?}"));
        }
        self.changed.entry(message.txn).or_default().push((message.page, message.version));
        self.record_state(message.page, message.version, contents, objects);
    }

    /// The pages that a transaction has changed, with their new versions.
    pub(super) fn changed_pages(&self, txn: TxnId) -> &[(PageId, Version)] {
        self.changed.get(&txn).map_or(&[], Vec::as_slice)
    }

    /// Checks that a client cannot use an object as it was before a settled write (N1).
    pub(super) fn check_not_stale(
        &mut self,
        place: ProcessName,
        write: TxnId,
        page: PageId,
        cache: &PageCache<Object>,
    ) {
        let mut wrong = None;
        for (slot, state, seen) in cache.valid_objects(page) {
            let Some((_, version)) = self.changed_pages(write).iter().find(|(changed, _)| *changed == page) else {
                continue;
            };
            let older = matches!(seen, ReadVersion::At(at) if at < *version);
            let before = self.history.get(&page).and_then(|past| past.range(..*version).next_back());
            let was = before.and_then(|(_, objects)| objects.get(&slot));
            if older && was == Some(state) && self.state_at(page, slot, *version) != Some(state) {
                wrong = Some(format!(
                    "N1: {write:?} is settled, and {place} may use slot {slot} of {page:?} as it was before"
                ));
            }
        }
        if let Some(wrong) = wrong {
            self.report(wrong);
        }
    }

    fn record_state(&mut self, page: PageId, version: Version, contents: &SlotStates<Object>, objects: &Objects) {
        self.history.entry(page).or_default().insert(version, objects.clone());
        for (slot, content) in contents {
            if let ObjectState::Value(object) = content
                && let Some(number) = Content::number(object)
            {
                let key = Key { node: page.node.0, page: page.number, slot: *slot };
                self.orders.entry(key).or_default().push(number);
            }
        }
    }

    /// A change was found in the log after a restart: perhaps one that was written and never reported durable.
    pub(super) fn record_recovered(&mut self, found: RecoveredChange) {
        let RecoveredChange { page, version, contents, objects } = found;
        let past = self.history.entry(page).or_insert_with(|| BTreeMap::from([(Version::ZERO, Objects::default())]));
        if past.last_key_value().is_none_or(|(newest, _)| *newest < version) {
            self.record_state(page, version, &contents, &objects);
        }
    }

    /// The state of an object at a version of its page.
    fn state_at(&self, page: PageId, slot: u16, version: Version) -> Option<&Object> {
        self.history.get(&page)?.range(..=version).next_back()?.1.get(&slot)
    }

    /// Checks a copy of a page that a client may use (P1).
    pub(super) fn check_copy(&mut self, place: ProcessName, page: PageId, cache: &PageCache<Object>) {
        let mut wrong = None;
        for (slot, state, seen) in cache.valid_objects(page) {
            let ReadVersion::At(version) = seen else { continue };
            if self.state_at(page, slot, version) != Some(state) {
                let was = self.state_at(page, slot, version).map(Content::decode);
                let state = Content::decode(state);
                wrong = Some(format!(
                    "P1: {place} has {state:?} in slot {slot} of {page:?} at {version:?}; it was {was:?}"
                ));
            }
        }
        if let Some(wrong) = wrong {
            self.report(wrong);
        }
    }

    /// Records a request to a participant.
    pub(super) fn record_request(&mut self, node: NodeId, request: &Request<Object>) {
        if !self.solo {
            return;
        }
        let reads = match request {
            Request::Prepare { part, .. } | Request::Commit { part, .. } => &part.reads,
            Request::Check { reads, .. } => reads,
            Request::Joint { requests, .. } => {
                return requests.iter().for_each(|(node, request)| self.record_request(*node, request));
            }
            _ => return,
        };
        self.reads.insert((node, request.txn()), reads.clone());
    }

    /// A participant has refused a transaction.
    pub(super) fn check_refusal(
        &mut self,
        node: NodeId,
        txn: TxnId,
        client: Option<ProcessName>,
        conflict: &ValidationConflict,
    ) {
        let Cause::Stale(_) = conflict.cause else { return };
        // A slow client that has to reconnect may be refused.
        if client.is_some_and(|client| self.slow.contains(&client)) {
            return;
        }
        let Some(reads) = self.reads.get(&(node, txn)) else { return };
        let Some(ReadVersion::At(version)) = reads.iter().find(|read| read.oid == conflict.oid).map(|read| read.seen)
        else {
            return;
        };
        let (page, slot) = (conflict.oid.page(), conflict.oid.slot());
        let (then, now) = (
            self.state_at(page, slot, version),
            self.state_at(page, slot, Version { moves: u32::MAX, position: u64::MAX }),
        );
        // After a restart the floor is the page's version, which costs a fetch at most.
        let floor = self.restarted.get(&node).and_then(|pages| pages.get(&page));
        if then == now && floor.is_none_or(|floor| version >= *floor) {
            self.report(format!(
                "R3: {txn:?} was refused for a read of {} at {version:?}, which is current",
                conflict.oid
            ));
        }
    }

    /// Checks the duration of an operation that has ended.
    pub(super) fn check_duration(&mut self, place: ProcessName, operation: &Operation, took_ms: u64) {
        if self.solo && took_ms > SOLO_MS && !self.slow.contains(&place) {
            let number = operation.number;
            self.report(format!(
                "R3: {place} waited {took_ms} ms in operation {number} for a member that is slow or dead"
            ));
        }
    }
}
