//! Hybrid logical clocks (rule L1; Kulkarni and others 2014): close to physical time, and never behind a learned
//! timestamp.
//!
//! A machine is given the time of a steady clock, by which leases and time-outs go. The physical time of its timestamps is the
//! [time of the cluster](ClusterTime), which its driver tells it ([`crate::clock_agreement`], rule L2).

use std::error::Error;
use std::fmt;

use crate::ident::HlcTimestamp;
use crate::lease::Ms;
use crate::plant::{Bug, planted};

/// How far a brick's clock may be ahead of its physical clock after a restart, in milliseconds: it starts above
/// everything that it may have promised, and promises are at most this far ahead (V4).
pub const LEAD_MS: u64 = 1_000;

/// The latest time that is believed, in milliseconds since 1970: a later one is an error of the sender.
pub const MAX_TIME_MS: u64 = 1 << 46;

/// What a process knows of the time of its cluster (L2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterTime {
    /// How far it is ahead of the steady clock of the process, in milliseconds.
    pub offset_ms: i64,
    /// Whether the process may make, log and promise timestamps: its own clock agrees with those of others.
    pub is_trusted: bool,
}

impl ClusterTime {
    /// What a process says that is not refused: that it was `time_ms`, when the steady clock here showed `now`. The message has taken some
    /// time, so this is a little behind.
    #[must_use]
    pub const fn from_message(time_ms: u64, now: Ms) -> Self {
        Self { offset_ms: time_ms.wrapping_sub(now) as i64, is_trusted: true }
    }

    /// The time of the cluster in milliseconds since 1970, when the steady clock shows `now`.
    #[must_use]
    pub const fn at(self, now: Ms) -> u64 {
        now.saturating_add_signed(self.offset_ms)
    }
}

impl Default for ClusterTime {
    /// That of a process whose steady clock shows the time, and which compares it with no other.
    fn default() -> Self {
        Self { offset_ms: 0, is_trusted: true }
    }
}

/// The clock of one node. Each call passes the time of the steady clock; the time of the cluster may go back.
#[derive(Clone, Debug)]
pub struct Clock {
    last: HlcTimestamp,
    skew_ms: u64,
    time: ClusterTime,
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
        Self { last: above, skew_ms, time: ClusterTime::default() }
    }

    /// From now on, this is the time of the cluster.
    pub fn set_time(&mut self, time: ClusterTime) {
        self.time = time;
    }

    /// Whether timestamps may be made, logged and promised (L2).
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.time.is_trusted || planted(Bug::ServesOutsideSkew)
    }

    /// The time of the cluster, in milliseconds since 1970.
    #[must_use]
    pub fn physical_ms(&self, now: Ms) -> u64 {
        self.time.at(now)
    }

    /// Returns a timestamp above all that were returned or learned, and not before the time of the cluster.
    pub fn tick(&mut self, now: Ms) -> HlcTimestamp {
        let before = self.last;
        self.last = before.next().max(HlcTimestamp::at(self.physical_ms(now)));
        assert!(self.last > before, "L1: the clock returns {:?} after {before:?}", self.last);
        self.last
    }

    /// Learns a timestamp: later ones of this clock are larger.
    ///
    /// # Errors
    /// If it exceeds the time of the cluster by more than the allowed skew; the clock is unchanged. Accepting it would push
    /// all clocks ahead.
    pub fn learn(&mut self, seen: HlcTimestamp, now: Ms) -> Result<(), ClockSkewError> {
        let physical_ms = self.physical_ms(now);
        let latest = HlcTimestamp::at(physical_ms.saturating_add(self.skew_ms).saturating_add(LEAD_MS)).max(self.last);
        if seen > latest {
            return Err(ClockSkewError { seen, latest });
        }
        self.learn_checked(seen);
        Ok(())
    }

    /// Learns a timestamp that another node has checked.
    pub fn learn_checked(&mut self, seen: HlcTimestamp) {
        if !planted(Bug::NoLearning) {
            self.last = self.last.max(seen);
        }
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

    #[test]
    fn timestamps_go_by_the_time_of_the_cluster() {
        let mut clock = Clock::new(HlcTimestamp::ZERO, 10);
        clock.set_time(ClusterTime { offset_ms: -600, is_trusted: true });
        assert_eq!(clock.tick(1000), HlcTimestamp::at(400));
        assert!(clock.learn(HlcTimestamp::at(411 + LEAD_MS), 1000).is_err());
        // When that goes back, timestamps still rise.
        clock.set_time(ClusterTime { offset_ms: -900, is_trusted: true });
        assert!(clock.tick(1000) > HlcTimestamp::at(400));
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
