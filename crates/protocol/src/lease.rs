//! How long a holder may use what it has without hearing from above (rule D4).
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
pub fn waited_out(answered: Ms, lease_ms: u64) -> Ms {
    if planted(Bug::NoDrift) {
        return answered + lease_ms;
    }
    answered + lease_ms + lease_ms.div_ceil(DRIFT)
}

/// A lease as its holder sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Until when what is held may be used, not beyond.
    until: Ms,
    /// When the renewal that is under way was sent.
    asked: Option<Ms>,
}

impl Lease {
    /// A renewal is sent now. Only the first of those that are unanswered counts: an answer may be to any of them.
    pub fn ask(&mut self, now: Ms) {
        self.asked.get_or_insert(now);
    }

    /// The answer to a renewal: so long from when it was sent.
    pub fn granted(&mut self, lease_ms: u64, now: Ms) {
        if let Some(asked) = self.asked.take() {
            let asked = if planted(Bug::LeaseFromAnswer) { now } else { asked };
            self.until = self.until.max(asked + lease_ms);
        }
    }

    /// What was asked on a connection that is gone will not be answered.
    pub fn disconnected(&mut self) {
        self.asked = None;
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
    pub fn left(&self, now: Ms) -> u64 {
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
        lease.ask(100);
        lease.granted(50, 160);
        assert!(lease.is_valid(149) && !lease.is_valid(150));
        assert_eq!((lease.left(120), lease.left(200)), (30, 0));
        // An answer that nobody waits for gives nothing.
        lease.granted(5000, 160);
        assert!(!lease.is_valid(150));
    }

    #[test]
    fn an_answer_counts_as_one_to_the_first_renewal_that_is_unanswered() {
        let mut lease = Lease::default();
        lease.ask(100);
        lease.ask(140);
        lease.granted(50, 160);
        assert!(!lease.is_valid(150));
        lease.ask(200);
        lease.disconnected();
        lease.granted(50, 160);
        assert!(!lease.is_valid(201));
    }

    proptest! {
        /// The holder's clock runs faster or slower by up to the drift; the renewal and its answer take any time.
        #[test]
        fn the_holder_stops_before_nobody_waits_for_it(
            lease_ms in 1..100_000_u64, way in 0..1000_u64, back in 0..100_000_u64, per_mille in 955..1045_u64, after in 0..200_000_u64,
        ) {
            let holder_clock = |real: u64| real * per_mille / 1000;
            let mut lease = Lease::default();
            lease.ask(holder_clock(5000));
            let answered = 5000 + way;
            lease.granted(lease_ms, holder_clock(answered + back));
            let now = answered + back + after;
            if now >= waited_out(answered, lease_ms) {
                prop_assert!(!lease.is_valid(holder_clock(now)));
            }
        }
    }
}
