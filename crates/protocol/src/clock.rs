//! Hybrid logical clocks (rule L1; Kulkarni and others 2014): near to physical time, and behind nothing that was ever learned.

use std::error::Error;
use std::fmt;

use crate::ident::HlcTimestamp;
use crate::plant::{Bug, planted};

/// How far a brick's clock may be ahead of its physical one after a restart, in milliseconds: it starts above all that it
/// may have promised, and promises are made so far ahead at most (V4).
pub const LEAD_MS: u64 = 1_000;

/// The clock of one node. It does not tick by itself: each call says what the physical clock shows, in milliseconds since
/// 1970, which may go back.
#[derive(Clone, Debug)]
pub struct Clock {
    last: HlcTimestamp,
    skew_ms: u64,
}

/// A timestamp that is further ahead than any right clock can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSkewError {
    /// The timestamp.
    pub seen: HlcTimestamp,
    /// The latest that would have been believed.
    pub latest: HlcTimestamp,
}

impl fmt::Display for ClockSkewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.seen.ms().saturating_sub(self.latest.ms());
        write!(f, "a timestamp is {ms} ms further ahead than clocks may differ: set the clocks of the machines")
    }
}

impl Error for ClockSkewError {}

impl Clock {
    /// A clock that gives nothing at or below `above`, and believes others that are ahead by at most `skew_ms`, by which
    /// physical clocks may differ, and [`LEAD_MS`].
    #[must_use]
    pub fn new(above: HlcTimestamp, skew_ms: u64) -> Self {
        Self { last: above, skew_ms }
    }

    /// A timestamp above all that were given or learned, and not before `physical_ms`.
    pub fn tick(&mut self, physical_ms: u64) -> HlcTimestamp {
        let before = self.last;
        self.last = before.next().max(HlcTimestamp::at(physical_ms));
        assert!(self.last > before, "L1: the clock gives {:?} after {before:?}", self.last);
        self.last
    }

    /// Learns of a timestamp: what is given from now on is larger.
    ///
    /// # Errors
    /// If it is beyond the physical clock by more than the allowed skew; the clock stays as it was. Whoever sent it must
    /// not be believed, or time would run away.
    pub fn learn(&mut self, seen: HlcTimestamp, physical_ms: u64) -> Result<(), ClockSkewError> {
        let latest = HlcTimestamp::at(physical_ms.saturating_add(self.skew_ms).saturating_add(LEAD_MS)).max(self.last);
        if seen > latest {
            return Err(ClockSkewError { seen, latest });
        }
        if !planted(Bug::NoLearning) {
            self.last = self.last.max(seen);
        }
        Ok(())
    }

    /// Goes on above a timestamp of this node's own past, however far ahead it is.
    pub fn advance_past(&mut self, own: HlcTimestamp) {
        self.last = self.last.max(own);
    }

    /// The largest timestamp that was given or learned.
    #[must_use]
    pub fn last(&self) -> HlcTimestamp {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_clock_that_went_back_still_gives_larger_timestamps() {
        let mut clock = Clock::new(HlcTimestamp::ZERO, 10);
        let first = clock.tick(1000);
        assert_eq!(first, HlcTimestamp::at(1000));
        assert!(clock.tick(500) > first);
        assert_eq!(clock.tick(2000), HlcTimestamp::at(2000));
    }

    #[test]
    fn a_timestamp_from_too_far_ahead_is_refused_and_changes_nothing() {
        let mut clock = Clock::new(HlcTimestamp::ZERO, 10);
        clock.tick(1000);
        let latest = HlcTimestamp::at(1010 + LEAD_MS);
        assert_eq!(clock.learn(latest, 1000), Ok(()));
        let refused = clock.learn(latest.next(), 1000).unwrap_err();
        assert_eq!(refused.latest, latest);
        assert_eq!(clock.last(), latest);
        // What it has learned already it believes from others too, wherever its physical clock has gone.
        assert_eq!(clock.learn(latest, 3), Ok(()));
    }

    proptest! {
        #[test]
        fn what_is_given_is_larger_than_all_that_was_given_or_learned(
            steps in proptest::collection::vec((any::<bool>(), 0..5000_u64), 1..50),
        ) {
            let mut clock = Clock::new(HlcTimestamp::at(7), 100);
            let mut largest = HlcTimestamp::at(7);
            for (learn, ms) in steps {
                if learn {
                    let seen = HlcTimestamp(HlcTimestamp::at(ms + 50).0 + 3);
                    clock.learn(seen, ms).unwrap();
                    largest = largest.max(seen);
                } else {
                    let given = clock.tick(ms);
                    prop_assert!(given > largest && given >= HlcTimestamp::at(ms));
                    largest = given;
                }
            }
        }
    }
}
