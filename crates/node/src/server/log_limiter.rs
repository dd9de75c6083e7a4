//! Bounds how often something that strangers can cause is logged.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Lines in one period.
const LINES: u32 = 10;
const PERIOD: Duration = Duration::from_secs(10);

/// Allows 10 lines in 10 seconds, and counts those that it suppresses.
#[derive(Debug, Default)]
pub(crate) struct LogLimiter {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When the current period began.
    since: Option<Instant>,
    /// Lines that were logged in it.
    logged: u32,
    /// Lines that were suppressed since the last one that was logged.
    suppressed: u64,
}

impl LogLimiter {
    /// Returns how many lines were suppressed since the last one, if one may be logged now.
    pub(crate) fn admit(&self) -> Option<u64> {
        let (now, mut state) = (Instant::now(), self.state.lock());
        state.begin_period(now);
        if state.logged >= LINES {
            state.suppressed += 1;
            return None;
        }
        state.logged += 1;
        Some(std::mem::take(&mut state.suppressed))
    }

    /// Returns how many lines were suppressed, once the period in which they were is over. The caller logs that number.
    pub(crate) fn take_suppressed(&self) -> Option<u64> {
        let (now, mut state) = (Instant::now(), self.state.lock());
        state.begin_period(now);
        let is_over = state.logged < LINES;
        (is_over && state.suppressed > 0).then(|| std::mem::take(&mut state.suppressed))
    }
}

impl State {
    fn begin_period(&mut self, now: Instant) {
        if self.since.is_none_or(|since| now >= since + PERIOD) {
            (self.since, self.logged) = (Some(now), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_beyond_the_limit_are_counted_and_the_count_is_told_later() {
        let limiter = LogLimiter::default();
        for _ in 0..LINES {
            assert_eq!(limiter.admit(), Some(0));
        }
        for _ in 0..1_000 {
            assert_eq!(limiter.admit(), None);
        }
        assert_eq!(limiter.take_suppressed(), None, "the period is not over");
        tokio::time::advance(PERIOD).await;
        assert_eq!(limiter.admit(), Some(1_000));
        assert_eq!(limiter.admit(), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_suppressed_is_told_also_if_nothing_follows() {
        let limiter = LogLimiter::default();
        for _ in 0..LINES + 7 {
            limiter.admit();
        }
        tokio::time::advance(PERIOD).await;
        assert_eq!(limiter.take_suppressed(), Some(7));
        assert_eq!(limiter.take_suppressed(), None);
    }
}
