//! Cuts: the states of several stores at one consistent moment (rule K1; Chandy and Lamport 1985 for the condition).
//!
//! ```text
//!   coordinator   cut ──┬───────────────┬── all hold ── release ──┬──────────────┬── counts
//!                        ╲               ╱                         ╲              ╱
//!   each store            force, hold ──▶ held                      go on ──────▶ released
//! ```
//!
//! 1. A store *holds* between two forces of its log: what is durable then is its part of the cut, and nothing becomes durable, so that
//!    nothing later is shown (L1), before the hold ends.
//! 2. The coordinator releases the stores when all hold. So there is a moment at which all hold. What one store made durable after its
//!    part was shown only after that moment, and no part of another store can depend on it: the parts together are a state in which all
//!    processes could have been found after a crash.
//! 3. A store that gets no release before its time-out releases itself, so that writers do not wait for a coordinator that has failed. The cut
//!    counts only if each store confirms that it held until the release came, under the same run of its process.
//! 4. A store takes each number once, and one cut at a time: a request that is repeated, or late, begins no second hold.
//!
//! [`CutCoordinator`] and [`CutParticipant`] are the two machines. What is prepared in a part is decided as after a crash: a transaction that
//! is prepared at all its participants is committed (C1), any other is aborted (C2).

mod coordinator;
mod participant;

pub use coordinator::{CutCoordinator, CutFailure, CutOutcome, CutOutput};
pub use participant::{CutParticipant, CutRefusal, HoldReport};

use crate::lease::Ms;

/// The number of a cut. A store takes only a number above all that it took before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CutNumber(pub u64);

/// The run of a process: a random number that it draws when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run(pub u64);

/// The longest time for which a store may be asked to hold, in milliseconds.
pub const LONGEST_HOLD_MS: Ms = 10_000;
