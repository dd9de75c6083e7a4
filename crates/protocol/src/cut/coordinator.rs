//! The coordinator of a cut.

use std::collections::{BTreeMap, VecDeque};

use super::participant::HoldReport;
use super::{CutNumber, Run};
use crate::lease::Ms;
use crate::plant::{Bug, planted};

/// Makes one cut through the stores `S`.
#[derive(Debug)]
pub struct CutCoordinator<S> {
    number: CutNumber,
    stores: BTreeMap<S, StoreState>,
    /// When it fails.
    until: Ms,
    outcome: Option<CutOutcome<S>>,
    /// Whether the stores were told to go on.
    is_released: bool,
    out: VecDeque<CutOutput<S>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreState {
    Asked,
    Holds(Run),
    Confirmed,
}

/// What the coordinator wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutOutput<S> {
    /// Ask a store to hold.
    Hold(S),
    /// All hold: do what has to be done at the moment of the cut, and call [`CutCoordinator::release`].
    AllHold,
    /// Tell a store to go on.
    Release(S),
}

/// How a cut ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CutOutcome<S> {
    /// It counts: the parts are of one consistent moment.
    Counts,
    /// It does not count.
    Failed(CutFailure<S>),
}

/// Why a cut does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CutFailure<S> {
    /// A store refuses, or cannot be reached.
    Refused(S),
    /// A store released itself before the message came.
    ReleasedItself(S),
    /// A store was restarted.
    Restarted(S),
    /// These have not answered in time.
    TimedOut(Vec<S>),
    /// What had to be done at the moment of the cut failed.
    Abandoned,
}

impl<S: Copy + Ord> CutCoordinator<S> {
    /// Begins a cut that is to end within `patience_ms`.
    #[must_use]
    pub fn begin(number: CutNumber, stores: impl IntoIterator<Item = S>, patience_ms: Ms, now: Ms) -> Self {
        let stores: BTreeMap<S, StoreState> = stores.into_iter().map(|store| (store, StoreState::Asked)).collect();
        let out = stores.keys().map(|store| CutOutput::Hold(*store)).collect();
        Self { number, stores, until: now + patience_ms, outcome: None, is_released: false, out }
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> CutNumber {
        self.number
    }

    /// A store holds.
    pub fn handle_held(&mut self, store: S, run: Run) {
        if self.outcome.is_some() {
            // It is not needed any more.
            self.out.push_back(CutOutput::Release(store));
            return;
        }
        match self.stores.get_mut(&store) {
            Some(state) if *state == StoreState::Asked => *state = StoreState::Holds(run),
            Some(StoreState::Holds(known)) if *known != run => return self.fail(CutFailure::Restarted(store)),
            // It is repeated.
            Some(_) | None => return,
        }
        if planted(Bug::ReleasedBeforeAllHold) {
            self.out.extend([CutOutput::AllHold, CutOutput::Release(store)]);
            self.is_released = true;
        } else if self.stores.values().all(|state| matches!(state, StoreState::Holds(_))) {
            self.out.push_back(CutOutput::AllHold);
        }
    }

    /// A store refuses, or it cannot be reached any more.
    pub fn handle_refused(&mut self, store: S) {
        if self.outcome.is_none() && self.stores.get(&store).is_some_and(|state| *state != StoreState::Confirmed) {
            self.fail(CutFailure::Refused(store));
        }
    }

    /// What had to be done at the moment of the cut is done: the stores go on.
    pub fn release(&mut self) {
        if self.outcome.is_none() && !self.is_released {
            let all_hold = self.stores.values().all(|state| matches!(state, StoreState::Holds(_)));
            assert!(all_hold, "K1: cut {} is released before all stores hold", self.number.0);
            self.is_released = true;
            self.out.extend(self.stores.keys().map(|store| CutOutput::Release(*store)));
        }
    }

    /// What had to be done at the moment of the cut cannot be done: the stores go on, and the cut fails.
    pub fn abandon(&mut self) {
        if self.outcome.is_none() {
            self.fail(CutFailure::Abandoned);
        }
    }

    /// A store has answered the release.
    pub fn handle_released(&mut self, store: S, HoldReport { run, lasted }: HoldReport) {
        let Some(state) = self.stores.get_mut(&store).filter(|_| self.outcome.is_none() && self.is_released) else {
            return;
        };
        match *state {
            StoreState::Holds(known) if known != run && !planted(Bug::RestartNotNoticed) => {
                return self.fail(CutFailure::Restarted(store));
            }
            StoreState::Holds(_) if lasted => *state = StoreState::Confirmed,
            StoreState::Holds(_) => return self.fail(CutFailure::ReleasedItself(store)),
            // A repeated release finds no hold.
            StoreState::Confirmed | StoreState::Asked => return,
        }
        let confirmed = |state: &StoreState| *state == StoreState::Confirmed;
        if self.stores.values().all(confirmed) || planted(Bug::FirstConfirmationCounts) {
            self.outcome = Some(CutOutcome::Counts);
        }
    }

    /// Fails when it is time for that.
    pub fn poll(&mut self, now: Ms) {
        if self.outcome.is_none() && self.until <= now {
            let has_answered = |state: &StoreState| match self.is_released {
                true => *state == StoreState::Confirmed,
                false => *state != StoreState::Asked,
            };
            let silent = self.stores.iter().filter(|(_, state)| !has_answered(state)).map(|(store, _)| *store);
            self.fail(CutFailure::TimedOut(silent.collect()));
        }
    }

    /// When [`CutCoordinator::poll`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Ms {
        if self.outcome.is_none() { self.until } else { Ms::MAX }
    }

    /// How it ended, when it has.
    #[must_use]
    pub fn outcome(&self) -> Option<&CutOutcome<S>> {
        self.outcome.as_ref()
    }

    /// What is to be done, in this order.
    pub fn next_output(&mut self) -> Option<CutOutput<S>> {
        self.out.pop_front()
    }

    fn fail(&mut self, why: CutFailure<S>) {
        let before = self.outcome.replace(CutOutcome::Failed(why));
        assert!(before.is_none(), "K1: cut {} has ended, and fails", self.number.0);
        // The stores go on at once.
        self.out.retain(|output| matches!(output, CutOutput::Release(_)));
        if !self.is_released {
            self.out.extend(self.stores.keys().map(|store| CutOutput::Release(*store)));
        }
    }
}

#[cfg(test)]
mod tests {
    use model::planted_bug::assert_noticed;

    use super::*;

    const RUN: Run = Run(7);
    const LASTED: HoldReport = HoldReport { run: RUN, lasted: true };

    fn begin_cut() -> CutCoordinator<u32> {
        let mut cut = CutCoordinator::begin(CutNumber(1), [1, 2], 1_000, 0);
        assert_eq!(outputs(&mut cut), [CutOutput::Hold(1), CutOutput::Hold(2)]);
        cut
    }

    fn outputs(cut: &mut CutCoordinator<u32>) -> Vec<CutOutput<u32>> {
        std::iter::from_fn(|| cut.next_output()).collect()
    }

    fn all_hold() -> CutCoordinator<u32> {
        let mut cut = begin_cut();
        cut.handle_held(1, RUN);
        assert!(outputs(&mut cut).is_empty());
        cut.handle_held(2, RUN);
        assert_eq!(outputs(&mut cut), [CutOutput::AllHold]);
        cut
    }

    #[test]
    fn a_cut_counts_when_all_held_until_their_release() {
        let mut cut = all_hold();
        cut.release();
        assert_eq!(outputs(&mut cut), [CutOutput::Release(1), CutOutput::Release(2)]);
        cut.handle_released(2, LASTED);
        // Repeated answers change nothing.
        cut.handle_released(2, HoldReport { lasted: false, ..LASTED });
        cut.handle_held(2, RUN);
        assert_eq!(cut.outcome(), None);
        cut.handle_released(1, LASTED);
        assert_eq!(cut.outcome(), Some(&CutOutcome::Counts));
        assert_eq!(cut.deadline(), Ms::MAX);
    }

    #[test]
    fn a_cut_does_not_count_if_a_store_released_itself_or_was_restarted() {
        let failures = [
            (HoldReport { lasted: false, ..LASTED }, CutFailure::ReleasedItself(1)),
            (HoldReport { run: Run(8), ..LASTED }, CutFailure::Restarted(1)),
        ];
        assert_noticed(&[Bug::RestartNotNoticed, Bug::FirstConfirmationCounts, Bug::ReleasedBeforeAllHold], || {
            for (answer, why) in failures.clone() {
                let mut cut = all_hold();
                cut.release();
                outputs(&mut cut);
                cut.handle_released(2, LASTED);
                cut.handle_released(1, answer);
                assert_eq!(cut.outcome(), Some(&CutOutcome::Failed(why)));
            }
        });
    }

    #[test]
    fn a_cut_that_fails_releases_all() {
        let mut cut = begin_cut();
        cut.handle_held(1, RUN);
        cut.handle_refused(2);
        assert_eq!(cut.outcome(), Some(&CutOutcome::Failed(CutFailure::Refused(2))));
        assert_eq!(outputs(&mut cut), [CutOutput::Release(1), CutOutput::Release(2)]);
        // A store that holds later is released, too.
        cut.handle_held(2, RUN);
        assert_eq!(outputs(&mut cut), [CutOutput::Release(2)]);
        let mut cut = all_hold();
        cut.abandon();
        assert_eq!(cut.outcome(), Some(&CutOutcome::Failed(CutFailure::Abandoned)));
        assert_eq!(outputs(&mut cut), [CutOutput::Release(1), CutOutput::Release(2)]);
        let mut cut = begin_cut();
        cut.handle_held(2, RUN);
        cut.poll(999);
        assert_eq!(cut.outcome(), None);
        cut.poll(1_000);
        assert_eq!(cut.outcome(), Some(&CutOutcome::Failed(CutFailure::TimedOut(vec![1]))));
        let mut cut = all_hold();
        cut.release();
        cut.handle_released(1, LASTED);
        cut.poll(1_000);
        assert_eq!(cut.outcome(), Some(&CutOutcome::Failed(CutFailure::TimedOut(vec![2]))));
    }
}
