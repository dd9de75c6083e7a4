//! Counters of a running store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Totals since the store was opened.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) forces: AtomicU64,
    pub(crate) logged_bytes: AtomicU64,
    pub(crate) force_us: AtomicU64,
    pub(crate) installs: AtomicU64,
    pub(crate) installed_rows: AtomicU64,
    pub(crate) install_us: AtomicU64,
}

impl Counters {
    pub(crate) fn record_force(&self, commits: usize, bytes: usize, took: Duration) {
        self.commits.fetch_add(commits as u64, Ordering::Relaxed);
        self.forces.fetch_add(1, Ordering::Relaxed);
        self.logged_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.force_us.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }

    pub(crate) fn record_install(&self, rows: usize, took: Duration) {
        self.installs.fetch_add(1, Ordering::Relaxed);
        self.installed_rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.install_us.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }
}
