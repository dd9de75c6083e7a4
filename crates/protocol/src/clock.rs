//! Hybrid logical clocks (rule L1; Kulkarni and others 2014): close to physical time, and never behind a learned
//! timestamp.

use std::error::Error;
use std::fmt;

use crate::ident::HlcTimestamp;
use crate::plant::{Bug, planted};

/// How far a brick's clock may be ahead of its physical clock after a restart, in milliseconds: it starts above
/// everything that it may have promised, and promises are at most this far ahead (V4).
pub const LEAD_MS: u64 = 1_000;

/// The clock of one node. Each call passes the physical time in milliseconds since 1970, which may go back.
#[derive(Clone, Debug)]
pub struct Clock {
    last: HlcTimestamp,
    skew_ms: u64,
}

/// A timestamp is further ahead than any correct clock can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSkewError {
    /// The timestamp.
    pub seen: HlcTimestamp,
    /// The latest timestamp that would have been accepted.
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
    /// A clock that returns only timestamps above `above`, and accepts timestamps that are ahead by at most `skew_ms`
    /// (the maximum difference of physical clocks) plus [`LEAD_MS`].
    #[must_use]
    pub fn new(above: HlcTimestamp, skew_ms: u64) -> Self {
        Self { last: above, skew_ms }
    }

    /// Returns a timestamp above all that were returned or learned, and not before `physical_ms`.
    pub fn tick(&mut self, physical_ms: u64) -> HlcTimestamp {
        let before = self.last;
        self.last = before.next().max(HlcTimestamp::at(physical_ms));
        assert!(self.last > before, "L1: the clock returns {:?} after {before:?}", self.last);
        self.last
    }

    /// Learns a timestamp: later ones of this clock are larger.
    ///
    /// # Errors
    /// If it exceeds the physical time by more than the allowed skew; the clock is unchanged. Accepting it would push
    /// all clocks ahead.
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

    /// Continues above a timestamp of this node's own past, however far ahead it is.
    pub fn advance_past(&mut self, own: HlcTimestamp) {
        self.last = self.last.max(own);
    }

    /// The largest timestamp that was returned or learned.
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
    fn timestamps_increase_when_the_physical_clock_goes_back() {
        let mut clock = Clock::new(HlcTimestamp::ZERO, 10);
        let first = clock.tick(1000);
        assert_eq!(first, HlcTimestamp::at(1000));
        assert!(clock.tick(500) > first);
        assert_eq!(clock.tick(2000), HlcTimestamp::at(2000));
    }

    #[test]
    fn timestamp_too_far_ahead_is_refused_and_changes_nothing() {
        let mut clock = Clock::new(HlcTimestamp::ZERO, 10);
        clock.tick(1000);
        let latest = HlcTimestamp::at(1010 + LEAD_MS);
        assert_eq!(clock.learn(latest, 1000), Ok(()));
        let refused = clock.learn(latest.next(), 1000).unwrap_err();
        assert_eq!(refused.latest, latest);
        assert_eq!(clock.last(), latest);
        // It accepts a timestamp that it has learned before, whatever its physical clock shows.
        assert_eq!(clock.learn(latest, 3), Ok(()));
    }

    proptest! {
        #[test]
        fn timestamps_are_larger_than_all_returned_or_learned_ones(
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
