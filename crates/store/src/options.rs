//! How a store behaves; the defaults suit a server.

/// How a [`Store`](crate::Store) behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes that logged changes may take in memory before they are in the B-tree. Writers wait when it is full.
    ///
    /// The process takes about two and a half times as much: half of it is a batch for the B-tree at a time, whose
    /// pages are in memory until they are written.
    pub mob_bytes: usize,
    /// Bytes in a log segment.
    pub segment_bytes: u64,
    /// Bytes that a store in memory may hold; a transaction that needs more is refused.
    pub memory_bytes: usize,
    /// Unfinished uploads at one time.
    pub uploads: usize,
    /// Whether the store runs its own threads for forcing and installing. Without them nothing becomes durable until
    /// [`Store::force`](crate::Store::force) is called: for simulations.
    pub threads: bool,
    /// The time, in microseconds since 1970, that changes are recorded with; `None` for the system's clock. For
    /// simulations, which must not depend on a clock.
    pub fixed_time_us: Option<i64>,
    /// Whether a directory that group or others can enter is opened. What the store itself makes is for its owner alone
    /// in any case.
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
            fixed_time_us: None,
            allow_loose_permissions: false,
        }
    }
}

impl Options {
    /// Bytes of log after which the buffer is installed although it is not full: overwriting the same rows fills the
    /// log and not the buffer.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.segment_bytes * 4
    }
}
