//! The options of a store. The defaults suit a server.

use std::fs;

/// Where the limit of a container is, for processes within it.
const CONTAINER_LIMIT: &str = "/sys/fs/cgroup/memory.max";
/// The buffer takes a thousandth (2^-10) of the memory, within these bounds.
const MOB_SHIFT: u32 = 10;
const MIN_MOB_BYTES: usize = 12 << 20;
const MAX_MOB_BYTES: usize = 256 << 20;

/// The options of a [`Store`](crate::Store).
#[derive(Clone, Debug)]
pub struct Options {
    /// Maximum bytes of logged changes in memory that are not in the B-tree yet. Writers wait when it is reached. A row that is removed
    /// or replaced before it is installed never reaches the B-tree.
    ///
    /// The process uses about 2.5 times as much: half of the changes are installed at a time, and the pages of such a
    /// batch are in memory until they are written.
    pub mob_bytes: usize,
    /// Bytes in a log segment, at most 384 MiB.
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
            mob_bytes: MIN_MOB_BYTES,
            segment_bytes: 16 << 20,
            memory_bytes: 8 << 30,
            uploads: 1024,
            threads: true,
            allow_loose_permissions: false,
        }
    }
}

impl Options {
    /// The options for a server on this machine: the buffer follows its memory.
    #[must_use]
    pub fn for_machine() -> Self {
        let mob_bytes = share_of_memory(machine_memory(), MOB_SHIFT, (MIN_MOB_BYTES, MAX_MOB_BYTES));
        Self { mob_bytes, ..Self::default() }
    }

    /// Bytes of log after which a buffer is installed even if it is not full: overwriting the same rows fills the log
    /// but not the buffer.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.segment_bytes * 4
    }
}

/// The memory of this machine, or of the container if that has less, in bytes.
#[must_use]
pub fn machine_memory() -> u64 {
    let info = rustix::system::sysinfo();
    let total = info.totalram as u64 * u64::from(info.mem_unit.max(1));
    let limit = fs::read_to_string(CONTAINER_LIMIT).ok().and_then(|text| text.trim().parse().ok());
    limit.map_or(total, |limit: u64| limit.min(total))
}

/// A part of the memory: one in 2^`shift` bytes, within bounds in bytes.
#[must_use]
pub fn share_of_memory(memory: u64, shift: u32, (least, most): (usize, usize)) -> usize {
    usize::try_from(memory >> shift).unwrap_or(most).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_memory_within_bounds() {
        let share = |gib: u64| share_of_memory(gib << 30, 10, (12 << 20, 256 << 20)) >> 20;
        assert_eq!([1, 12, 24, 64, 256, 2_048].map(share), [12, 12, 24, 64, 256, 256]);
    }

    #[test]
    fn this_machine_has_memory() {
        let memory = machine_memory();
        assert!(memory > 64 << 20, "{memory}");
    }
}
