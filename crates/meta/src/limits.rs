//! Limits of the catalogue. They are checked before anything is stored or sent, whichever implementation stores it.

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

/// Bytes in the name of a class, index, user or group.
pub const NAME: usize = 255;
/// Bytes in the name of a field.
pub const FIELD_NAME: usize = 255;
/// Bytes in an address.
pub const ADDRESS: usize = 255;
/// Addresses of a brick or peer server.
pub const ADDRESSES: usize = 16;
/// Bricks, and peer servers, of a cluster.
pub const MEMBERS: usize = 4096;
/// Logical nodes of a space.
pub const NODES: u32 = 4096;
/// Fields of a class, with those of its parents.
pub const FIELDS: usize = 2000;
/// Classes of a space.
pub const CLASSES: usize = 20_000;
/// Parents above a class.
pub const PARENTS: usize = 64;
/// Indexes of a space.
pub const INDEXES: usize = 4096;
/// Fields of an index: as many as its keys have.
pub const INDEX_FIELDS: usize = 8;
/// Groups of a user.
pub const GROUPS: usize = 256;
/// Users and groups that a space names in its permissions.
pub const PERMISSIONS: usize = 4096;
/// Characters that a password has at least.
pub const PASSWORD_CHARACTERS: usize = 8;
/// Bytes in a password.
pub const PASSWORD: usize = 1024;
/// Numbers that are handed out at once.
pub const NUMBERS: u64 = 1 << 32;
/// Bytes of a default value's text.
pub const DEFAULT: usize = 64 << 10;
