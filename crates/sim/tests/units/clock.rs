//! Clocks that are wrong.

use sim::world::clock::{DRIFT_LIMIT_MS, LocalClock, START_MS};

#[test]
fn a_clock_shows_what_was_waited_for_when_it_says_so_and_not_before() {
    for (ahead_ms, fast_ppm) in [(0, 0), (300, 24_000), (-300, -24_000), (7, 1), (4_000, 20), (-1_000, 24_000)] {
        let clock = LocalClock { ahead_ms, fast_ppm };
        for shown in (clock.show(1)..clock.show(120_000)).step_by(377) {
            let when = clock.time_at(shown);
            assert!(clock.show(when) >= shown && (when == 0 || clock.show(when - 1) < shown));
        }
    }
}

#[test]
fn a_clock_never_goes_back_and_stays_within_its_limit() {
    for (ahead_ms, fast_ppm) in [(-300, 24_000), (300, -24_000), (300, 24_000), (-300, -24_000)] {
        let clock = LocalClock { ahead_ms, fast_ppm };
        for now in 0..200_000 {
            assert!(clock.show(now) <= clock.show(now + 1));
            let wrong = clock.show(now).abs_diff(START_MS + now);
            assert!(wrong <= DRIFT_LIMIT_MS as u64, "{wrong} ms wrong after {now} ms");
        }
    }
}
