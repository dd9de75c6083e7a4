//! How much the catalogue may hold. Checked before anything is kept or sent on, whoever keeps it.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Bytes in a key or a prefix.
pub const KEY: usize = 1024;
/// Bytes in a value.
pub const VALUE: usize = 1 << 20;
/// Keys that one write may expect something of. etcd takes 128 as it is installed, and some are kept for our own use.
pub const EXPECTS: usize = 100;
/// Keys that one write may change, or one call may get.
pub const CHANGES: usize = 100;
/// Bytes of keys and values in one write. etcd takes 1.5 MiB as it is installed.
pub const WRITE: usize = VALUE + (256 << 10);
/// Keys and values that one read may give, in bytes.
pub const READ: usize = 256 << 20;
/// How long a session may live without being kept.
pub const TTL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 3600);
/// Sessions at a time.
pub const SESSIONS: usize = 65_536;
/// Keys of one session: they vanish together, in one step.
pub const SESSION_KEYS: usize = 16_384;
/// Bytes of keys and values that are kept in all; all of it is held in memory.
pub const TOTAL: usize = 256 << 20;
