//! Limits of the catalogue. They are checked before anything is stored or sent, whichever implementation stores it.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Bytes in a key or a prefix.
pub const KEY: usize = 1024;
/// Bytes in a value.
pub const VALUE: usize = 1 << 20;
/// Keys in the expectations of one write. etcd allows 128 by default, of which some are reserved for markers.
pub const EXPECTS: usize = 100;
/// Keys that one write may change, or one read by key may name.
pub const CHANGES: usize = 100;
/// Bytes of keys and values in one write. etcd allows 1.5 MiB by default.
pub const WRITE: usize = VALUE + (256 << 10);
/// Bytes of keys and values that one read may return.
pub const READ: usize = 256 << 20;
/// Time to live of a session without renewal.
pub const TTL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 3600);
/// Open sessions.
pub const SESSIONS: usize = 65_536;
/// Keys of one session, which are removed in one step.
pub const SESSION_KEYS: usize = 16_384;
/// Bytes of all keys and values; an embedded catalogue holds them in memory.
pub const TOTAL: usize = 256 << 20;

/// Bytes in the name of a class, index, user or group.
pub const NAME: usize = 255;
/// Bytes in the name of a field.
pub const FIELD_NAME: usize = 255;
/// Bytes in an address.
pub const ADDRESS: usize = 255;
/// Addresses of a brick or peer server.
pub const ADDRESSES: usize = 16;
/// Bricks, and also peer servers, of a cluster.
pub const MEMBERS: usize = 4096;
/// Logical nodes of a space.
pub const NODES: u32 = 4096;
/// Fields of a class, inherited ones included.
pub const FIELDS: usize = 2000;
/// Classes of a space.
pub const CLASSES: usize = 20_000;
/// Ancestors of a class.
pub const PARENTS: usize = 64;
/// Indexes of a space.
pub const INDEXES: usize = 4096;
/// Fields of an index: the most that an index key has.
pub const INDEX_FIELDS: usize = 8;
/// Jobs that have not ended, apart from those that build indexes.
pub const JOBS: usize = 256;
/// Jobs that have ended and are kept.
pub const ENDED_JOBS: usize = 100;
/// How long a job that has ended is kept, in milliseconds.
pub const ENDED_JOB_MS: u64 = 14 * 24 * 3600 * 1000;
/// Parts of a job.
pub const JOB_PARTS: usize = MEMBERS;
/// Bytes of the place of a part of a job, of its problem, and of a finding.
pub const JOB_TEXT: usize = 2000;
/// Findings of a part of a job that are kept; further ones are counted.
pub const JOB_FINDINGS: usize = 100;
/// Classes of a part of a job that are counted one by one.
pub const JOB_CLASSES: usize = 1000;
/// Objects or bytes a second of a job.
pub const JOB_RATE: RangeInclusive<u64> = 1..=1 << 40;
/// Groups of a user.
pub const GROUPS: usize = 256;
/// Users and groups in the permissions of a space.
pub const PERMISSIONS: usize = 4096;
/// Fewest characters of a password.
pub const PASSWORD_CHARACTERS: usize = 8;
/// Bytes in a password.
pub const PASSWORD: usize = 1024;
/// Numbers that can be reserved at once.
pub const NUMBERS: u64 = 1 << 32;
/// Bytes of a default value as JSON.
pub const DEFAULT: usize = 64 << 10;
