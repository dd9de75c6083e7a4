//! A copy of a page, and how messages change it (P1, P2).

use std::collections::BTreeMap;

use super::slots::Slots;
use super::{DerivedValue, Invalidation, Lookup, ObjectState, PageImage};
use crate::ident::{HlcTimestamp, Version};
use crate::plant::{Bug, planted};
use crate::validate::ReadVersion;

/// The version and commit time of an object that is newer than its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VcacheEntry {
    pub(super) seen: ReadVersion,
    pub(super) timestamp: HlcTimestamp,
}

/// A copy of a page.
#[derive(Clone, Debug)]
pub(super) struct CachedPage<T> {
    /// Which copy of the page it is: each fetch brings another.
    pub(super) number: u64,
    pub(super) version: Version,
    pub(super) timestamp: HlcTimestamp,
    pub(super) slots: Slots<T>,
    pub(super) vcache: BTreeMap<u16, VcacheEntry>,
    /// Messages behind a gap, by the version that they follow.
    pub(super) ahead: BTreeMap<Version, Invalidation>,
}

impl<T: Clone> CachedPage<T> {
    pub(super) fn new(number: u64, fetched: PageImage<T>) -> Self {
        let PageImage { version, timestamp, objects } = fetched;
        let slots = Slots::new(objects);
        Self { number, version, timestamp, slots, vcache: BTreeMap::new(), ahead: BTreeMap::new() }
    }

    pub(super) fn lookup(&self, slot: u16) -> Lookup<'_, T> {
        self.lookup_derived(slot).0
    }

    pub(super) fn lookup_derived(&self, slot: u16) -> (Lookup<'_, T>, Option<&DerivedValue>) {
        let Some(object) = self.slots.get(slot) else { return (Lookup::Absent, None) };
        match &object.value {
            Some(value) => (Lookup::Value(value), object.derived_value()),
            None => (Lookup::Miss, None),
        }
    }

    /// How new an object is.
    pub(super) fn vcache_entry(&self, slot: u16) -> VcacheEntry {
        let copy = VcacheEntry { seen: ReadVersion::At(self.version), timestamp: self.timestamp };
        self.vcache.get(&slot).copied().unwrap_or(copy)
    }

    pub(super) fn put(&mut self, slot: u16, content: ObjectState<T>, newer: VcacheEntry) {
        match content {
            ObjectState::Value(value) => self.slots.set(slot, Some(value)),
            ObjectState::Absent => self.slots.remove(slot),
            ObjectState::Changed(_) => self.slots.set(slot, None),
        };
        self.vcache.insert(slot, newer);
    }

    /// Changes an object that a message names, unless it is as new already.
    pub(super) fn change_slot(&mut self, slot: u16, message: &Invalidation, content: Option<&ObjectState<T>>) {
        let newer = VcacheEntry { seen: ReadVersion::At(message.version), timestamp: message.timestamp };
        match self.vcache.get(&slot).map(|newer| newer.seen) {
            Some(ReadVersion::At(version)) if version >= message.version && !planted(Bug::OldUpdates) => return,
            Some(ReadVersion::Written(txn)) if txn == message.txn => {
                self.vcache.insert(slot, newer);
                return;
            }
            _ => {}
        }
        match content {
            Some(content) => self.put(slot, content.clone(), newer),
            None => {
                self.slots.set(slot, None);
                self.vcache.insert(slot, newer);
            }
        }
    }

    /// Advances the copy by the message that follows it.
    pub(super) fn advance(&mut self, message: &Invalidation) {
        let before = std::mem::replace(&mut self.version, message.version);
        assert!(before < message.version, "P2: a copy at {before:?} follows a message to {:?}", message.version);
        self.timestamp = self.timestamp.max(message.timestamp);
        self.vcache.retain(|_, newer| !matches!(newer.seen, ReadVersion::At(version) if version <= message.version));
    }
}
