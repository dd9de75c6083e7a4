//! Leases: how long a holder may use its copies without hearing from the node above (rule D4; Gray and Cheriton 1989).
//! BuddyCache (section 3.3) has no leases, and no bound on the age of a copy.
//!
//! ```text
//!   holder     sends the renewal ────────┬──────────── uses its copies ───────────┤ sent + lease
//!                                         ╲                                        
//!   upstream                               answers ─────────── waits for it ──────────────┤ answered + lease × (1 + drift)
//! ```
//!
//! Both use their own clocks, whose rates may differ by at most the *drift*. The holder counts from the time when it
//! sent the renewal, the upstream from its answer, which is later: so the holder stops using its copies before the
//! upstream stops waiting for it.

use crate::plant::{Bug, planted};

/// Milliseconds by the local clock.
pub type Ms = u64;

/// The maximum difference of two clock rates: one part in this number.
const DRIFT: u64 = 20;

/// When the upstream may stop waiting for a holder that it answers now.
#[must_use]
pub fn holder_expiry(answered: Ms, lease_ms: u64) -> Ms {
    if planted(Bug::NoDrift) {
        return answered + lease_ms;
    }
    answered + lease_ms + lease_ms.div_ceil(DRIFT)
}

/// A lease from the view of its holder. Each renewal carries its time, which the answer repeats: so answers may be late
/// or reordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// The time at which the lease ends (exclusive).
    until: Ms,
}

impl Lease {
    /// Handles the answer to a renewal that was sent at `asked`: the lease lasts `lease_ms` from then.
    pub fn extend(&mut self, asked: Ms, lease_ms: u64, now: Ms) {
        let asked = if planted(Bug::LeaseFromAnswer) { now } else { asked.min(now) };
        self.until = self.until.max(asked.saturating_add(lease_ms));
    }

    /// Whether copies may be used now.
    #[must_use]
    pub const fn is_valid(&self, now: Ms) -> bool {
        now < self.until
    }

    /// When the lease ends.
    #[must_use]
    pub const fn until(&self) -> Ms {
        self.until
    }

    /// The longest lease that may be granted to holders below: the rest of this one, in milliseconds.
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
    fn lease_counts_from_the_time_of_the_renewal() {
        let mut lease = Lease::default();
        assert!(!lease.is_valid(0));
        lease.extend(100, 50, 160);
        assert!(lease.is_valid(149) && !lease.is_valid(150));
        assert_eq!((lease.remaining_ms(120), lease.remaining_ms(200)), (30, 0));
    }

    /// Found in a review: the answer to the second request was once taken for an answer to the third.
    #[test]
    fn late_answer_counts_from_its_own_request() {
        let mut lease = Lease::default();
        lease.extend(200, 50, 210);
        lease.extend(100, 50, 240);
        assert_eq!(lease.until(), 250);
        lease.extend(9_000, 50, 300);
        assert_eq!(lease.until(), 350, "a request time in the future is replaced by the current time");
    }

    proptest! {
        /// The rate of the holder's clock differs by up to the drift. The renewal and its answer have any delay.
        #[test]
        fn holder_stops_using_copies_before_the_upstream_stops_waiting(
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
