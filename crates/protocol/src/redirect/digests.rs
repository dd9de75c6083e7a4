//! What has passed of each page, so that the copy of a helper can be compared with it (rule R1).
//!
//! Everything that the holders below have of a page has passed this node: the page, and the messages about it. A holder that gives another
//! one something else is not asked again.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use model::PageId;

use crate::ident::{HlcTimestamp, Version};
use crate::page_cache::{Invalidation, ObjectState, PageImage, SlotStates};
use crate::plant::{Bug, planted};

/// A message about a page, and the new states that it had.
pub(super) type Passed<T> = (Invalidation, Option<SlotStates<T>>);

/// How a copy compares with what has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// It is that.
    Equal,
    /// Not all of the page has passed.
    Unknown,
    /// It is of another version than what has passed: all that the holder was sent before it was asked makes it that version.
    OtherVersion,
    /// It is something else.
    Forged,
}

/// The objects of a page by slot, as digests.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PageDigest {
    version: Version,
    timestamp: HlcTimestamp,
    slots: BTreeMap<u16, u64>,
}

impl PageDigest {
    fn is_same(&self, other: &Self) -> bool {
        let is_of_version = self.version == other.version || planted(Bug::CopyVersionNotCompared);
        let is_of_time = self.timestamp == other.timestamp || planted(Bug::CopyTimestampNotCompared);
        self.slots == other.slots && is_of_version && is_of_time
    }
}

/// What has passed of the pages that holders have.
#[derive(Clone, Debug, Default)]
pub(super) struct PageDigests {
    /// Begins each digest: holders, who do not know it, cannot look for objects with equal digests.
    secret: u128,
    pages: BTreeMap<PageId, PageDigest>,
}

impl PageDigests {
    pub(super) fn set_secret(&mut self, secret: u128) {
        self.secret = secret;
    }

    fn digest<T: Hash>(&self, object: &T) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.secret.hash(&mut hasher);
        object.hash(&mut hasher);
        hasher.finish()
    }

    fn page<T: Hash>(&self, image: &PageImage<T>) -> PageDigest {
        let slots = image.objects.iter().map(|(slot, object)| (*slot, self.digest(object))).collect();
        PageDigest { version: image.version, timestamp: image.timestamp, slots }
    }

    /// Applies a message to a page. Without new states nothing is known of the page any more.
    fn apply<T: Hash>(
        &self,
        page: PageDigest,
        (message, states): (&Invalidation, Option<&SlotStates<T>>),
    ) -> Option<PageDigest> {
        let states = states.filter(|_| message.previous == page.version)?;
        let PageDigest { timestamp, mut slots, .. } = page;
        for (slot, state) in states.iter().filter(|_| !planted(Bug::StatesNotNoted)) {
            match state {
                ObjectState::Value(object) => drop(slots.insert(*slot, self.digest(object))),
                ObjectState::Absent => drop(slots.remove(slot)),
                ObjectState::Changed(_) if planted(Bug::ChangedPartIgnored) => {}
                // A part of an object has changed: what it is now is not known here.
                ObjectState::Changed(_) => return None,
            }
        }
        Some(PageDigest { version: message.version, timestamp: timestamp.max(message.timestamp), slots })
    }

    /// A page has passed.
    pub(super) fn note_page<T: Hash>(&mut self, page: PageId, image: &PageImage<T>) {
        let digest = self.page(image);
        self.pages.insert(page, digest);
    }

    /// A message about a page has passed.
    pub(super) fn note_message<T: Hash>(&mut self, message: &Invalidation, states: Option<&SlotStates<T>>) {
        if let Some(known) = self.pages.remove(&message.page)
            && let Some(now) = self.apply(known, (message, states))
        {
            self.pages.insert(message.page, now);
        }
    }

    /// No holder has the page any more.
    pub(super) fn forget(&mut self, page: PageId) {
        self.pages.remove(&page);
    }

    pub(super) fn clear(&mut self) {
        self.pages.clear();
    }

    /// Compares the copy of a helper with what has passed. Of the messages that passed meanwhile, those above the copy's version are
    /// applied to it.
    pub(super) fn compare<T: Hash>(&self, page: PageId, copy: &PageImage<T>, meanwhile: &[Passed<T>]) -> Comparison {
        let Some(known) = self.pages.get(&page) else { return Comparison::Unknown };
        let is_newer = |message: &Invalidation| message.version > copy.version && !planted(Bug::MeanwhileNotApplied);
        let mut newer = meanwhile.iter().filter(|(message, _)| is_newer(message));
        let applied =
            newer.try_fold(self.page(copy), |page, (message, states)| self.apply(page, (message, states.as_ref())));
        match applied {
            Some(applied) if applied.is_same(known) || planted(Bug::ForgedCopyTaken) => Comparison::Equal,
            // A late copy is to be dropped before it is compared.
            _ if planted(Bug::AnyReply) => Comparison::Equal,
            Some(applied) if applied.version == known.version => Comparison::Forged,
            _ => Comparison::OtherVersion,
        }
    }
}

#[cfg(test)]
mod tests {
    use model::planted_bug::plant;
    use model::{NodeId, SpaceId};

    use super::*;
    use crate::ident::{ClientId, TxnId};

    const PAGE: PageId = PageId { space: SpaceId(1), node: NodeId(1), number: 1 };

    fn at(position: u64) -> Version {
        Version { moves: 0, position }
    }

    fn image(version: u64, objects: &[(u16, u64)]) -> PageImage<u64> {
        let objects = objects.iter().copied().collect();
        PageImage { version: at(version), timestamp: HlcTimestamp::at(version), objects }
    }

    fn message(previous: u64, version: u64, states: &[(u16, ObjectState<u64>)]) -> Passed<u64> {
        let txn = TxnId { start: HlcTimestamp::at(version), client: ClientId(1) };
        let (previous, version, timestamp) = (at(previous), at(version), HlcTimestamp::at(version));
        let slots = states.iter().map(|(slot, _)| *slot).collect();
        let message = Invalidation { page: PAGE, slots, previous, version, timestamp, txn, digest: None };
        (message, Some(states.iter().cloned().collect()))
    }

    #[test]
    fn copy_equals_what_has_passed_or_is_forged() {
        let mut digests = PageDigests::default();
        digests.set_secret(7);
        assert_eq!(digests.compare(PAGE, &image(1, &[(1, 5)]), &[]), Comparison::Unknown);
        digests.note_page(PAGE, &image(1, &[(1, 5), (2, 6)]));
        assert_eq!(digests.compare(PAGE, &image(1, &[(1, 5), (2, 6)]), &[]), Comparison::Equal);
        for forged in [&[(1, 5)][..], &[(1, 5), (2, 7)], &[(1, 5), (2, 6), (3, 1)], &[(1, 6), (2, 5)]] {
            assert_eq!(digests.compare(PAGE, &image(1, forged), &[]), Comparison::Forged, "{forged:?}");
        }
        // A wrong timestamp would move the intervals of reads (G2).
        let late = PageImage { timestamp: HlcTimestamp::at(9), ..image(1, &[(1, 5), (2, 6)]) };
        assert_eq!(digests.compare(PAGE, &late, &[]), Comparison::Forged);
        // No holder that follows the rules has another version.
        assert_eq!(digests.compare(PAGE, &image(2, &[(1, 5)]), &[]), Comparison::OtherVersion);
        digests.forget(PAGE);
        assert_eq!(digests.compare(PAGE, &image(1, &[(1, 5), (2, 6)]), &[]), Comparison::Unknown);
    }

    #[test]
    fn version_and_timestamp_are_compared() {
        let mut digests = PageDigests::default();
        digests.note_page(PAGE, &image(1, &[(1, 5)]));
        let others = [
            (Bug::CopyVersionNotCompared, PageImage { version: at(2), ..image(1, &[(1, 5)]) }),
            (Bug::CopyTimestampNotCompared, PageImage { timestamp: HlcTimestamp::at(9), ..image(1, &[(1, 5)]) }),
        ];
        for (bug, copy) in others {
            assert_ne!(digests.compare(PAGE, &copy, &[]), Comparison::Equal);
            let _planted = plant(bug);
            assert_eq!(digests.compare(PAGE, &copy, &[]), Comparison::Equal, "{bug:?}");
        }
    }

    #[test]
    fn object_of_which_a_part_has_changed_is_unknown() {
        for bug in [None, Some(Bug::ChangedPartIgnored)] {
            let _planted = bug.map(plant);
            let mut digests = PageDigests::default();
            digests.note_page(PAGE, &image(1, &[(1, 5)]));
            let (changed, states) = message(1, 2, &[(1, ObjectState::Changed(6))]);
            digests.note_message(&changed, states.as_ref());
            let is_unknown = digests.compare(PAGE, &image(2, &[(1, 6)]), &[]) == Comparison::Unknown;
            assert_eq!(is_unknown, bug.is_none());
        }
    }

    #[test]
    fn messages_of_the_meantime_make_a_copy_current() {
        for (bug, expected) in [(None, Comparison::Equal), (Some(Bug::MeanwhileNotApplied), Comparison::OtherVersion)] {
            let _planted = bug.map(plant);
            let mut digests = PageDigests::default();
            digests.note_page(PAGE, &image(1, &[(1, 5)]));
            let passed = message(1, 2, &[(1, ObjectState::Value(50))]);
            digests.note_message(&passed.0, passed.1.as_ref());
            assert_eq!(digests.compare(PAGE, &image(1, &[(1, 5)]), &[passed]), expected);
        }
    }

    #[test]
    fn messages_that_pass_are_applied_to_both() {
        let mut digests = PageDigests::default();
        digests.note_page(PAGE, &image(1, &[(1, 5), (2, 6)]));
        let passed = [
            message(1, 2, &[(1, ObjectState::Value(50))]),
            message(2, 3, &[(2, ObjectState::Absent), (3, ObjectState::Value(7))]),
        ];
        passed.iter().for_each(|(message, states)| digests.note_message(message, states.as_ref()));
        for (copy, expected) in [
            (image(1, &[(1, 5), (2, 6)]), Comparison::Equal),
            (image(2, &[(1, 50), (2, 6)]), Comparison::Equal),
            (image(3, &[(1, 50), (3, 7)]), Comparison::Equal),
            (image(1, &[(1, 6), (2, 6), (4, 4)]), Comparison::Forged),
            (image(2, &[(1, 5), (2, 6)]), Comparison::Forged),
            (image(3, &[(1, 50), (2, 6), (3, 7)]), Comparison::Forged),
        ] {
            assert_eq!(digests.compare(PAGE, &copy, &passed), expected, "{copy:?}");
        }
        // After a message without new states, or behind a gap, nothing is known.
        let (hole, gap) = (message(3, 4, &[]).0, message(8, 9, &[(1, ObjectState::Value(1))]));
        let mut behind = digests.clone();
        digests.note_message::<u64>(&hole, None);
        assert_eq!(digests.compare(PAGE, &image(4, &[(1, 50), (3, 7)]), &[]), Comparison::Unknown);
        behind.note_message(&gap.0, gap.1.as_ref());
        assert_eq!(behind.compare(PAGE, &image(9, &[(1, 1), (3, 7)]), &[]), Comparison::Unknown);
    }
}
