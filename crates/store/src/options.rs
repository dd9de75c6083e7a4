//! The options of a store. The defaults suit a server.

/// The options of a [`Store`](crate::Store).
#[derive(Clone, Debug)]
pub struct Options {
    /// Maximum bytes of logged changes in memory that are not in the B-tree yet. Writers wait when it is reached.
    ///
    /// The process uses about 2.5 times as much: half of the changes are installed at a time, and the pages of such a
    /// batch are in memory until they are written.
    pub mob_bytes: usize,
    /// Bytes in a log segment.
    pub segment_bytes: u64,
    /// Maximum bytes in a store in memory. A change that needs more is refused.
    pub memory_bytes: usize,
    /// Maximum number of unfinished uploads.
    pub uploads: usize,
    /// Whether the store has its own threads for forcing and installing. Without them nothing becomes durable until
    /// [`Store::force`](crate::Store::force) is called: for simulations.
    pub threads: bool,
    /// Whether a directory that group or others can enter may be opened. New files and directories of the store are
    /// accessible by the owner only in any case.
    pub allow_loose_permissions: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mob_bytes: 12 << 20,
            segment_bytes: 16 << 20,
            memory_bytes: 8 << 30,
            uploads: 1024,
            threads: true,
            allow_loose_permissions: false,
        }
    }
}

impl Options {
    /// Bytes of log after which a buffer is installed even if it is not full: overwriting the same rows fills the log
    /// but not the buffer.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.segment_bytes * 4
    }
}
