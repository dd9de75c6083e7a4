//! The clock of the machines.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::lease::Ms;

/// Milliseconds since 1970 that never go back and never jump: the wall clock when the process first asked for it, plus the time of a
/// steady clock since then. That clock also counts while the machine sleeps. Leases and time-outs are measured by it; what is the time, and
/// whether the wall clock is right, is another question (rule L2).
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    /// What is added to the steady clock, in milliseconds.
    offset: Ms,
}

impl MonotonicClock {
    /// The clock of the process, which all of its parts share.
    #[must_use]
    pub fn of_process() -> Self {
        static OFFSET: OnceLock<Ms> = OnceLock::new();
        Self { offset: *OFFSET.get_or_init(|| wall_ms().saturating_sub(steady())) }
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Ms {
        self.offset + steady()
    }

    /// How far the wall clock is ahead of this one, in milliseconds: 0 until it is set, or runs at another rate.
    #[must_use]
    pub fn wall_offset_ms(&self) -> i64 {
        wall_ms().wrapping_sub(self.now()) as i64
    }

    /// The time left until `at`.
    #[must_use]
    pub fn until(&self, at: Ms) -> Duration {
        Duration::from_millis(at.saturating_sub(self.now()))
    }
}

/// What the wall clock shows, in milliseconds since 1970; 0 before that.
fn wall_ms() -> Ms {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_millis() as Ms
}

/// Milliseconds since the machine was started, including those in which it slept.
fn steady() -> Ms {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as Ms * 1_000 + now.tv_nsec as Ms / 1_000_000
}
