//! Wakes the task of a driver when a deadline of its machine is due.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use protocol::lease::Ms;
use tokio::sync::Notify;
use tokio::time;

use super::MonotonicClock;

/// The next deadline of a machine. One task waits for it; any thread can set an earlier one.
#[derive(Debug)]
pub struct DeadlineTimer {
    at: AtomicU64,
    /// Whether the task waits or is about to. While it works, it needs no wake-up: it reads the deadline afterwards.
    is_waiting: AtomicBool,
    changed: Notify,
}

impl Default for DeadlineTimer {
    fn default() -> Self {
        Self { at: AtomicU64::new(Ms::MAX), is_waiting: AtomicBool::new(false), changed: Notify::new() }
    }
}

impl DeadlineTimer {
    /// Sets a deadline, if it is earlier than the current one.
    pub fn set(&self, at: Ms) {
        if self.at.fetch_min(at, Ordering::SeqCst) > at && self.is_waiting.load(Ordering::SeqCst) {
            self.changed.notify_one();
        }
    }

    /// Wakes the task now.
    pub fn wake(&self) {
        self.changed.notify_one();
    }

    /// Clears the deadline. The task calls this before it processes everything that is due.
    pub fn clear(&self) {
        self.at.store(Ms::MAX, Ordering::SeqCst);
    }

    /// Waits until the deadline or a call of [`wake`](Self::wake).
    pub async fn wait(&self, time: &MonotonicClock) {
        self.is_waiting.store(true, Ordering::SeqCst);
        let at = self.at.load(Ordering::SeqCst);
        let changed = self.changed.notified();
        if at == Ms::MAX {
            changed.await;
        } else {
            // A timeout and a wake-up mean the same: the task processes what is due.
            let _ = time::timeout(time.until(at), changed).await;
        }
        self.is_waiting.store(false, Ordering::SeqCst);
    }
}
