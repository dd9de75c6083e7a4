//! The status of a store.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::commit::Core;
use crate::log::Log;

/// The state of a store, and counters since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The newest durable position of the log.
    pub version: u64,
    /// Transactions committed.
    pub commits: u64,
    /// Forces of the log.
    pub forces: u64,
    /// Bytes written to the log.
    pub logged_bytes: u64,
    /// Microseconds spent writing and forcing the log.
    pub force_us: u64,
    /// Transactions that waited for room in the buffer.
    pub waits: u64,
    /// Batches installed in the B-tree.
    pub installs: u64,
    /// Rows installed in the B-tree.
    pub installed_rows: u64,
    /// Microseconds spent installing.
    pub install_us: u64,
    /// Bytes of logged changes in memory.
    pub mob_bytes: u64,
    /// Maximum bytes of changes in memory.
    pub mob_limit: u64,
    /// Bytes of log segments.
    pub log_bytes: u64,
    /// Bytes of the B-tree.
    pub tree_bytes: u64,
    /// Bytes of blob files, including holes.
    pub blob_bytes: u64,
    /// Pinned positions: snapshots and active reads.
    pub snapshots: u64,
    /// Unfinished uploads.
    pub uploads: u64,
    /// How often the store was opened.
    pub incarnation: u64,
    /// Whether the last installation found the disk full.
    pub disk_full: bool,
    /// Whether the store is in memory only.
    pub in_memory: bool,
}

impl Core {
    /// This waits neither for a disk nor for a force.
    pub(crate) fn status(&self) -> Status {
        let view = self.state.view.load();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        Status {
            version: self.state.visible_seq(),
            commits: count(&counters.commits),
            forces: count(&counters.forces),
            logged_bytes: count(&counters.logged_bytes),
            force_us: count(&counters.force_us),
            waits: count(&counters.waits),
            installs: count(&counters.installs),
            installed_rows: count(&counters.installed_rows),
            install_us: count(&counters.install_us),
            mob_bytes: (view.active.bytes() + view.frozen.as_ref().map_or(0, |frozen| frozen.bytes())) as u64,
            mob_limit: if self.is_durable() { self.options.mob_bytes } else { self.options.memory_bytes } as u64,
            log_bytes: self.log.as_ref().map_or(0, Log::size),
            tree_bytes: self.state.engine.size(),
            blob_bytes: self.state.files().map_or(0, |files| files.size()),
            snapshots: self.state.pins.count() as u64,
            uploads: self.uploads.unfinished_count() as u64,
            incarnation: u64::from(self.incarnation.load(Ordering::Relaxed)),
            disk_full: self.installer.is_disk_full(),
            in_memory: !self.is_durable(),
        }
    }
}
