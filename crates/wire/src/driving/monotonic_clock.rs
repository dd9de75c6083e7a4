//! The clock of the machines.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::lease::Ms;

/// Milliseconds since 1970 that never go back and never jump: the wall clock at the start of the process, plus the time of a steady
/// clock since then. That clock also counts while the machine sleeps. Leases are measured by it.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    /// What is added to the steady clock, in milliseconds.
    offset: Ms,
}

impl MonotonicClock {
    /// A clock that starts now. A process has one.
    #[must_use]
    pub fn begin() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self { offset: (wall.as_millis() as Ms).saturating_sub(steady()) }
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Ms {
        self.offset + steady()
    }

    /// The time left until `at`.
    #[must_use]
    pub fn until(&self, at: Ms) -> Duration {
        Duration::from_millis(at.saturating_sub(self.now()))
    }
}

/// Milliseconds since the machine was started, including those in which it slept.
fn steady() -> Ms {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as Ms * 1_000 + now.tv_nsec as Ms / 1_000_000
}
