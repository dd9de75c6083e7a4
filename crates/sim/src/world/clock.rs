//! What the clocks of processes show.

/// The time that clocks show when a run begins, in milliseconds, if they are right.
const START_MS: u64 = 1_000_000;

/// A clock that is wrong and runs fast or slow, and never jumps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LocalClock {
    /// How far it is ahead at first, in milliseconds.
    pub(super) ahead_ms: i64,
    /// How much faster it runs, in parts of a million.
    pub(super) fast_ppm: i64,
}

impl LocalClock {
    /// What it shows at a time of the run.
    pub(super) fn show(self, now: u64) -> u64 {
        let run = i128::from(now) * i128::from(1_000_000 + self.fast_ppm) / 1_000_000;
        (i128::from(START_MS) + run + i128::from(self.ahead_ms)) as u64
    }

    /// When it shows at least this.
    pub(super) fn time_at(self, shown: u64) -> u64 {
        let run = (i128::from(shown) - i128::from(START_MS) - i128::from(self.ahead_ms)).max(0);
        let mut now = (run * 1_000_000 / i128::from(1_000_000 + self.fast_ppm)) as u64;
        while self.show(now) < shown {
            now += 1;
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_shows_what_was_waited_for_when_it_says_so_and_not_before() {
        for (ahead_ms, fast_ppm) in [(0, 0), (300, 24_000), (-300, -24_000), (7, 1)] {
            let clock = LocalClock { ahead_ms, fast_ppm };
            for shown in (clock.show(1)..clock.show(20_000)).step_by(377) {
                let when = clock.time_at(shown);
                assert!(clock.show(when) >= shown && (when == 0 || clock.show(when - 1) < shown));
            }
        }
    }
}
