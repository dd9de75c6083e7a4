//! Wakes the task that does what it is time for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use protocol::lease::Ms;
use tokio::sync::Notify;
use tokio::time;

use super::MonotonicClock;

/// When the next thing is due, for one task that waits and any thread that has something earlier.
#[derive(Debug)]
pub struct DeadlineTimer {
    at: AtomicU64,
    /// Whether the task waits, or is about to: what is set while it works it will see.
    is_waiting: AtomicBool,
    changed: Notify,
}

impl Default for DeadlineTimer {
    fn default() -> Self {
        Self { at: AtomicU64::new(Ms::MAX), is_waiting: AtomicBool::new(false), changed: Notify::new() }
    }
}

impl DeadlineTimer {
    /// Something is due at `at`.
    pub fn set(&self, at: Ms) {
        if self.at.fetch_min(at, Ordering::SeqCst) > at && self.is_waiting.load(Ordering::SeqCst) {
            self.changed.notify_one();
        }
    }

    /// There is something to do now.
    pub fn wake(&self) {
        self.changed.notify_one();
    }

    /// Forgets what was set: whoever waits is about to look at everything.
    pub fn clear(&self) {
        self.at.store(Ms::MAX, Ordering::SeqCst);
    }

    /// Waits until something is due, or there is something to do.
    pub async fn wait(&self, time: &MonotonicClock) {
        self.is_waiting.store(true, Ordering::SeqCst);
        let at = self.at.load(Ordering::SeqCst);
        let changed = self.changed.notified();
        if at == Ms::MAX {
            changed.await;
        } else {
            // Either way there is something to do.
            let _ = time::timeout(time.until(at), changed).await;
        }
        self.is_waiting.store(false, Ordering::SeqCst);
    }
}
