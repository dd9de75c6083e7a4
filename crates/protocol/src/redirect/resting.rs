//! Holders that are not asked for help for a while, or not any more (rules R1 and R3).

use std::collections::{BTreeMap, BTreeSet};

use crate::ident::HolderId;
use crate::lease::Ms;
use crate::plant::{Bug, planted};

/// How long a holder rests that has not helped in time, in milliseconds: this doubles each time up to a limit.
const MIN_REST_MS: u64 = 500;
const MAX_REST_MS: u64 = 60_000;

/// A holder's rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rest {
    until: Ms,
    length_ms: u64,
}

/// Holders that are not asked for help now. Others wait for each of them at most once in a growing time.
#[derive(Clone, Debug, Default)]
pub(super) struct RestingHelpers {
    rests: BTreeMap<HolderId, Rest>,
    /// Holders that have given something wrong. Other requests to them may be answered later, rightly or late.
    excluded: BTreeSet<HolderId>,
}

impl RestingHelpers {
    /// A holder has not answered in time.
    pub(super) fn note_late(&mut self, holder: HolderId, now: Ms) {
        if planted(Bug::LateHelperAsked) {
            return;
        }
        let last = self.rests.get(&holder).map_or(0, |rest| rest.length_ms);
        let last = if planted(Bug::RestNotLonger) { 0 } else { last };
        let length_ms = (last * 2).clamp(MIN_REST_MS, MAX_REST_MS);
        self.rests.insert(holder, Rest { until: now.saturating_add(length_ms), length_ms });
    }

    /// A holder has helped in time.
    pub(super) fn note_helped(&mut self, holder: HolderId) {
        if !planted(Bug::RestNotEnded) {
            self.rests.remove(&holder);
        }
        if planted(Bug::ForgerLetInAgain) {
            self.excluded.remove(&holder);
        }
    }

    /// A holder has given something wrong: it is not asked again in its session.
    pub(super) fn exclude(&mut self, holder: HolderId) {
        if !planted(Bug::ForgerAskedAgain) {
            self.excluded.insert(holder);
        }
    }

    /// The session of a holder has ended.
    pub(super) fn remove(&mut self, holder: HolderId) {
        self.rests.remove(&holder);
        self.excluded.remove(&holder);
    }

    /// Whether a holder must not be asked.
    pub(super) fn rests(&self, holder: HolderId, now: Ms) -> bool {
        self.excluded.contains(&holder) || self.rests.get(&holder).is_some_and(|rest| now < rest.until)
    }
}

#[cfg(test)]
mod tests {
    use model::planted_bug::plant;

    use super::*;

    const HOLDER: HolderId = HolderId(1);

    #[test]
    fn rests_double_until_the_holder_helps_in_time() {
        let mut resting = RestingHelpers::default();
        let mut now = 1_000;
        for length in [500, 1_000, 2_000, 4_000] {
            assert!(!resting.rests(HOLDER, now));
            resting.note_late(HOLDER, now);
            assert!(resting.rests(HOLDER, now + length - 1) && !resting.rests(HOLDER, now + length), "{length}");
            now += length;
        }
        (0..20).for_each(|_| resting.note_late(HOLDER, now));
        assert!(!resting.rests(HOLDER, now + MAX_REST_MS));
        resting.note_helped(HOLDER);
        resting.note_late(HOLDER, now);
        assert!(!resting.rests(HOLDER, now + MIN_REST_MS));
    }

    /// A holder is late twice, helps, and is late again. Returns how long it rests each time, in milliseconds.
    fn rests() -> [u64; 3] {
        let mut resting = RestingHelpers::default();
        let rest = |resting: &mut RestingHelpers, now: Ms| {
            resting.note_late(HOLDER, now);
            (0..MAX_REST_MS).find(|ms| !resting.rests(HOLDER, now + ms)).unwrap_or(MAX_REST_MS)
        };
        let (first, second) = (rest(&mut resting, 1_000), rest(&mut resting, 10_000));
        resting.note_helped(HOLDER);
        [first, second, rest(&mut resting, 20_000)]
    }

    #[test]
    fn rest_is_longer_only_for_a_holder_that_has_not_helped_since() {
        assert_eq!(rests(), [500, 1_000, 500]);
        for bug in [Bug::RestNotLonger, Bug::RestNotEnded] {
            let _planted = plant(bug);
            assert_ne!(rests(), [500, 1_000, 500], "{bug:?}");
        }
    }

    #[test]
    fn holder_that_has_forged_a_copy_rests_for_its_session() {
        for bug in [None, Some(Bug::ForgerLetInAgain)] {
            let _planted = bug.map(plant);
            let mut resting = RestingHelpers::default();
            resting.exclude(HOLDER);
            // It had been asked for other pages, too.
            resting.note_late(HOLDER, 0);
            resting.note_helped(HOLDER);
            assert_eq!(resting.rests(HOLDER, 2 * MAX_REST_MS), bug.is_none());
            resting.remove(HOLDER);
            assert!(!resting.rests(HOLDER, 0));
        }
    }
}
