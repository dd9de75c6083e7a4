//! A store as part of cuts.

use std::error::Error;
use std::fmt;

use super::{CutNumber, LONGEST_HOLD_MS, Run};
use crate::lease::Ms;
use crate::plant::{Bug, planted};

/// Decides when a store holds its log. After [`CutParticipant::begin`] the store finishes the force under way, reports that it holds, and forces
/// nothing until [`CutParticipant::holds`] says no.
#[derive(Debug)]
pub struct CutParticipant {
    run: Run,
    /// The last number that was taken.
    last: CutNumber,
    hold: Option<Hold>,
}

#[derive(Debug)]
struct Hold {
    number: CutNumber,
    /// The store releases itself at this time.
    until: Ms,
}

/// Why a store does not take a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutRefusal {
    /// It holds for this cut.
    Busy(CutNumber),
    /// It has taken this number, which is not smaller than the requested one.
    Taken(CutNumber),
    /// The hold would last longer than [`LONGEST_HOLD_MS`].
    TooLong,
}

/// What a store answers to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldReport {
    /// The run of the process.
    pub run: Run,
    /// Whether it held for this cut until the message came.
    pub lasted: bool,
}

impl fmt::Display for CutRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(number) => write!(f, "another backup is beginning (cut {}): try again", number.0),
            Self::Taken(last) => write!(f, "cut {} was the last one: a later one has a larger number", last.0),
            Self::TooLong => write!(f, "a cut holds the log for at most {LONGEST_HOLD_MS} ms"),
        }
    }
}

impl Error for CutRefusal {}

impl CutRefusal {
    /// The last number that the store has taken, if the next one must be larger.
    #[must_use]
    pub fn last(&self) -> Option<CutNumber> {
        match self {
            Self::Busy(last) | Self::Taken(last) => Some(*last),
            Self::TooLong => None,
        }
    }
}

impl CutParticipant {
    /// A store that holds nothing, in this run of its process.
    #[must_use]
    pub fn new(run: Run) -> Self {
        Self { run, last: CutNumber::default(), hold: None }
    }

    /// The run of the process.
    #[must_use]
    pub fn run(&self) -> Run {
        self.run
    }

    /// Takes a cut: the store is to hold for at most `hold_ms`.
    ///
    /// # Errors
    /// If it does not take this one; nothing has changed then.
    pub fn begin(&mut self, number: CutNumber, hold_ms: Ms, now: Ms) -> Result<(), CutRefusal> {
        self.poll(now);
        if hold_ms > LONGEST_HOLD_MS {
            return Err(CutRefusal::TooLong);
        }
        if let Some(hold) = &self.hold {
            return Err(CutRefusal::Busy(hold.number));
        }
        if number <= self.last && !planted(Bug::CutTakenTwice) {
            return Err(CutRefusal::Taken(self.last));
        }
        self.last = number;
        self.hold = Some(Hold { number, until: now + hold_ms });
        Ok(())
    }

    /// Whether the store is to hold for this cut.
    #[must_use]
    pub fn holds(&self, number: CutNumber) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.number == number)
    }

    /// Whether the store is to hold, for any cut.
    #[must_use]
    pub fn is_holding(&self) -> bool {
        self.hold.is_some()
    }

    /// The coordinator releases the store. A cut that is released before it began does not begin any more.
    pub fn release(&mut self, number: CutNumber, now: Ms) -> HoldReport {
        self.poll(now);
        let lasted = self.holds(number);
        if lasted {
            self.hold = None;
        } else {
            self.last = self.last.max(number);
        }
        HoldReport { run: self.run, lasted: lasted || planted(Bug::TimeOutCounted) }
    }

    /// Releases the store when it is time for that. Says whether it was.
    pub fn poll(&mut self, now: Ms) -> bool {
        let is_over = self.hold.as_ref().is_some_and(|hold| hold.until <= now);
        if is_over && !planted(Bug::HoldWithoutEnd) {
            self.hold = None;
        }
        is_over
    }

    /// When [`CutParticipant::poll`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Ms {
        self.hold.as_ref().map_or(Ms::MAX, |hold| hold.until)
    }
}

#[cfg(test)]
mod tests {
    use model::planted_bug::assert_noticed;

    use super::*;

    const RUN: Run = Run(7);

    fn participant() -> CutParticipant {
        CutParticipant::new(RUN)
    }

    #[test]
    fn a_hold_lasts_until_its_release() {
        let mut store = participant();
        store.begin(CutNumber(3), 100, 1_000).unwrap();
        assert!(store.holds(CutNumber(3)) && !store.holds(CutNumber(2)));
        assert_eq!(store.deadline(), 1_100);
        assert_eq!(store.release(CutNumber(3), 1_099), HoldReport { run: RUN, lasted: true });
        assert!(!store.holds(CutNumber(3)));
        // A repeated release finds no hold.
        assert_eq!(store.release(CutNumber(3), 1_099), HoldReport { run: RUN, lasted: false });
    }

    #[test]
    fn a_hold_ends_by_itself_and_does_not_count_then() {
        let mut store = participant();
        assert_noticed(&[Bug::TimeOutCounted, Bug::HoldWithoutEnd], || {
            let mut store = participant();
            store.begin(CutNumber(3), 100, 1_000).unwrap();
            assert!(!store.poll(1_099) && store.poll(1_100) && !store.holds(CutNumber(3)));
            assert!(!store.release(CutNumber(3), 1_100).lasted);
        });
        store.begin(CutNumber(3), 100, 1_000).unwrap();
        store.poll(1_100);
        store.begin(CutNumber(4), 100, 2_000).unwrap();
        // A release that comes too late finds none, although nothing has polled.
        assert!(!store.release(CutNumber(4), 2_100).lasted);
    }

    #[test]
    fn each_number_is_taken_once_and_one_at_a_time() {
        assert_noticed(&[Bug::CutTakenTwice], || {
            let mut store = participant();
            store.begin(CutNumber(3), 100, 0).unwrap();
            store.release(CutNumber(3), 0);
            assert_eq!(store.begin(CutNumber(3), 100, 0), Err(CutRefusal::Taken(CutNumber(3))));
        });
        let mut store = participant();
        store.begin(CutNumber(3), 100, 0).unwrap();
        assert_eq!(store.begin(CutNumber(4), 100, 0), Err(CutRefusal::Busy(CutNumber(3))));
        // A release that overtakes the request for its hold.
        assert!(!store.release(CutNumber(4), 0).lasted && store.holds(CutNumber(3)));
        assert!(store.release(CutNumber(3), 0).lasted);
        for number in [0, 2, 3, 4] {
            assert_eq!(store.begin(CutNumber(number), 100, 0), Err(CutRefusal::Taken(CutNumber(4))));
        }
        assert_eq!(store.begin(CutNumber(5), LONGEST_HOLD_MS + 1, 0), Err(CutRefusal::TooLong));
        store.begin(CutNumber(5), LONGEST_HOLD_MS, 0).unwrap();
    }
}
