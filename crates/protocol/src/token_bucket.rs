//! A token bucket: holds work to a rate.
//!
//! Work takes tokens, which come back at the rate. A piece of work may take more than there are: the next one then waits for the debt. So
//! over any time the work done is at most the rate times that time, plus the burst and one piece.

use crate::lease::Ms;

/// How much may be done at once after a pause, as a part of a second.
const BURST_MS: u64 = 100;

/// A token bucket. Times are those of one steady clock.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    /// Tokens a second; `None`: as many as are wanted.
    rate: Option<u64>,
    /// Thousandths of tokens; negative for a debt.
    tokens: i128,
    at: Ms,
}

impl TokenBucket {
    /// A bucket with this rate.
    #[must_use]
    pub fn new(rate: Option<u64>, now: Ms) -> Self {
        Self { rate, tokens: 0, at: now }
    }

    /// Sets the rate. A debt at the former rate is forgotten, so that a change takes effect at once.
    pub fn set_rate(&mut self, rate: Option<u64>, now: Ms) {
        if self.rate != rate {
            *self = Self::new(rate, now);
        }
    }

    /// Takes tokens for work that is about to be done.
    pub fn take(&mut self, count: u64, now: Ms) {
        self.refill(now);
        if self.rate.is_some() {
            self.tokens -= i128::from(count) * 1000;
        }
    }

    /// How long to wait until more work may be done, in milliseconds.
    #[must_use]
    pub fn wait(&mut self, now: Ms) -> Ms {
        self.refill(now);
        let Some(rate) = self.rate.filter(|_| self.tokens < 0) else { return 0 };
        let debt = self.tokens.unsigned_abs();
        Ms::try_from(debt.div_ceil(u128::from(rate.max(1)))).unwrap_or(Ms::MAX)
    }

    /// How much work to do at a time: what takes a fifth of a second at most, at least 1, at most `most`.
    #[must_use]
    pub fn portion(&self, most: u64) -> u64 {
        self.rate.map_or(most, |rate| (rate / 5).clamp(1, most))
    }

    fn refill(&mut self, now: Ms) {
        let Some(rate) = self.rate else { return };
        let elapsed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        let most = i128::from(rate) * i128::from(BURST_MS);
        self.tokens = (self.tokens + i128::from(rate) * i128::from(elapsed)).min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How much is done in `ms` milliseconds by work in pieces, each of which takes a time.
    fn work_done(bucket: &mut TokenBucket, piece: u64, (from, ms): (Ms, u64), takes: Ms) -> u64 {
        let (mut now, mut done) = (from, 0);
        while now < from + ms {
            match bucket.wait(now) {
                0 => {
                    bucket.take(piece, now);
                    done += piece;
                    now += takes;
                }
                wait => now += wait,
            }
        }
        done
    }

    #[test]
    fn work_is_done_at_the_rate_whatever_its_pieces() {
        for (rate, piece) in [(1, 1), (7, 1), (500, 64), (1000, 3), (50 << 20, 65_536), (1 << 40, 1 << 20)] {
            let mut bucket = TokenBucket::new(Some(rate), 5);
            let done = work_done(&mut bucket, piece, (5, 20_000), 1);
            let wanted = rate * 20;
            let fastest = piece * 20_000;
            assert!(done <= wanted + piece + rate / 10, "{done} of {wanted} at {rate}/s");
            assert!(
                done + piece + rate / 100 >= wanted.min(fastest),
                "{done} of {wanted} at {rate}/s in pieces of {piece}"
            );
        }
    }

    #[test]
    fn a_pause_gives_no_more_than_the_burst() {
        let mut bucket = TokenBucket::new(Some(1000), 0);
        assert_eq!(bucket.wait(1_000_000), 0);
        let done = work_done(&mut bucket, 1, (1_000_000, 1000), 0);
        assert!((1000..=1101).contains(&done), "{done}");
    }

    #[test]
    fn a_changed_rate_takes_effect_at_once() {
        let mut bucket = TokenBucket::new(Some(1), 0);
        bucket.take(1000, 0);
        assert_eq!(bucket.wait(0), 1_000_000);
        bucket.set_rate(Some(1), 10);
        assert_eq!(bucket.wait(10), 999_990, "the same rate changes nothing");
        bucket.set_rate(Some(100), 20);
        assert_eq!(bucket.wait(20), 0);
        bucket.set_rate(None, 30);
        bucket.take(u64::MAX, 30);
        assert_eq!((bucket.wait(30), bucket.portion(64)), (0, 64));
        assert_eq!(TokenBucket::new(Some(20), 0).portion(64), 4);
        assert_eq!(TokenBucket::new(Some(1), 0).portion(64), 1);
    }
}
