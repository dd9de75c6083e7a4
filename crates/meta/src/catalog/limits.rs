//! How many of each there may be, and how large they may be.

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
