//! What the clocks of processes show.

/// The time that clocks show when a run begins, in milliseconds, if they are right. It is so late that no wrong clock shows less than 0.
pub const START_MS: u64 = 1_000_000_000;

/// How far a clock may drift from the right time, in milliseconds. Two clocks are then always within half of the allowed skew, which is
/// how far a client's clock may be ahead (L2).
pub const DRIFT_LIMIT_MS: i64 = 1_200;

/// A clock that is wrong and runs fast or slow, and never jumps.
///
/// It gains or loses time until it is [`DRIFT_LIMIT_MS`] wrong. Then it runs at the right rate, as a clock that is kept near others
/// does. A clock that is more wrong than that at first stays as wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalClock {
    /// How far it is ahead at first, in milliseconds.
    pub ahead_ms: i64,
    /// How much faster it runs, in parts of a million.
    pub fast_ppm: i64,
}

impl LocalClock {
    /// What it shows at a time of the run.
    pub fn show(self, now: u64) -> u64 {
        let gained = i128::from(now) * i128::from(self.fast_ppm) / 1_000_000;
        let limit = i128::from(self.drift_limit_ms());
        let ahead = (i128::from(self.ahead_ms) + gained).clamp(-limit, limit);
        (i128::from(START_MS) + i128::from(now) + ahead) as u64
    }

    /// When it shows at least this; never, for the largest number.
    pub fn time_at(self, shown: u64) -> u64 {
        if shown == u64::MAX {
            return u64::MAX;
        }
        let run = i128::from(shown) - i128::from(START_MS);
        let (ahead, limit) = (i128::from(self.ahead_ms), i128::from(self.drift_limit_ms()));
        let drifting = (run - ahead) * 1_000_000 / i128::from(1_000_000 + self.fast_ppm);
        let at = match self.fast_ppm {
            0 => drifting,
            1.. => drifting.max(run - limit),
            _ => drifting.min(run + limit),
        };
        // Gained time is rounded towards zero, so the quotient may be one too early or too late.
        let mut now = u64::try_from((at - 1).max(0)).unwrap_or(u64::MAX);
        while self.show(now) < shown {
            now += 1;
        }
        now
    }

    fn drift_limit_ms(self) -> i64 {
        DRIFT_LIMIT_MS.max(self.ahead_ms.abs())
    }
}
