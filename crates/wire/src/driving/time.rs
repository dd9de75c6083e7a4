//! The time that machines are given.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use protocol::lease::Ms;

/// Milliseconds since 1970 that never go back and never jump: the wall clock when the process began, and what a steady clock
/// says since. Leases are counted by it.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    began: Instant,
    began_ms: Ms,
}

impl Time {
    /// A time that begins now. A process has one.
    #[must_use]
    pub fn begin() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self { began: Instant::now(), began_ms: wall.as_millis() as Ms }
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Ms {
        self.began_ms + self.began.elapsed().as_millis() as Ms
    }

    /// How long it is until `at`.
    #[must_use]
    pub fn until(&self, at: Ms) -> Duration {
        Duration::from_millis(at.saturating_sub(self.now()))
    }
}
