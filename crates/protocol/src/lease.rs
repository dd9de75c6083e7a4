//! How long a holder may use what it has without hearing from above (rule D4; Gray and Cheriton 1989). BuddyCache (section
//! 3.3) does without leases for its invalidations, and does not bound how long a copy may be old.
//!
//! ```text
//!   holder     sends the renewal ────────┬──────────── uses its copies ───────────┤ sent + lease
//!                                         ╲                                        
//!   upstream                               answers ─────────── waits for it ──────────────┤ answered + lease × (1 + drift)
//! ```
//!
//! Both count by their own clocks, which may run differently fast, but not by more than the *drift*. The holder counts
//! from when it sent the renewal, the upstream from its answer, which is later: so the holder has stopped before the
//! upstream stops to wait for it.

use crate::plant::{Bug, planted};

/// Milliseconds by the clock of the node that counts them.
pub type Ms = u64;

/// How fast two clocks may differ: one part in so many.
const DRIFT: u64 = 20;

/// When the upstream may stop to wait for a holder that it has answered now.
#[must_use]
pub fn holder_expiry(answered: Ms, lease_ms: u64) -> Ms {
    if planted(Bug::NoDrift) {
        return answered + lease_ms;
    }
    answered + lease_ms + lease_ms.div_ceil(DRIFT)
}

/// A lease as its holder sees it. Each renewal says when it was sent, and its answer says it again: so answers may be late,
/// or come in another order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Until when what is held may be used, not beyond.
    until: Ms,
}

impl Lease {
    /// The answer to a renewal that was sent at `asked`: so long from then.
    pub fn extend(&mut self, asked: Ms, lease_ms: u64, now: Ms) {
        let asked = if planted(Bug::LeaseFromAnswer) { now } else { asked.min(now) };
        self.until = self.until.max(asked.saturating_add(lease_ms));
    }

    /// Whether what is held may be used now.
    #[must_use]
    pub const fn is_valid(&self, now: Ms) -> bool {
        now < self.until
    }

    /// When it runs out.
    #[must_use]
    pub const fn until(&self) -> Ms {
        self.until
    }

    /// How much of a lease may be granted to others below: no more than is left of this one.
    #[must_use]
    pub fn remaining_ms(&self, now: Ms) -> u64 {
        self.until.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_lease_counts_from_when_the_renewal_was_sent() {
        let mut lease = Lease::default();
        assert!(!lease.is_valid(0));
        lease.extend(100, 50, 160);
        assert!(lease.is_valid(149) && !lease.is_valid(150));
        assert_eq!((lease.remaining_ms(120), lease.remaining_ms(200)), (30, 0));
    }

    /// Found by reading: the second answer was once taken for one to the third question.
    #[test]
    fn late_answers_count_from_their_own_questions() {
        let mut lease = Lease::default();
        lease.extend(200, 50, 210);
        lease.extend(100, 50, 240);
        assert_eq!(lease.until(), 250);
        lease.extend(9_000, 50, 300);
        assert_eq!(lease.until(), 350, "what was not asked yet was asked now at the latest");
    }

    proptest! {
        /// The holder's clock runs faster or slower by up to the drift; the renewal and its answer take any time.
        #[test]
        fn the_holder_stops_before_nobody_waits_for_it(
            lease_ms in 1..100_000_u64, way in 0..1000_u64, back in 0..100_000_u64, per_mille in 955..1045_u64, after in 0..200_000_u64,
        ) {
            let holder_clock = |real: u64| real * per_mille / 1000;
            let mut lease = Lease::default();
            let answered = 5000 + way;
            lease.extend(holder_clock(5000), lease_ms, holder_clock(answered + back));
            let now = answered + back + after;
            if now >= holder_expiry(answered, lease_ms) {
                prop_assert!(!lease.is_valid(holder_clock(now)));
            }
        }
    }
}
