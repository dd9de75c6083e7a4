//! Mortar's own workloads: commits, gets, a key-value server, large objects, memory, opening after a crash,
//! ten minutes at full rate, a large directory, backups.

pub(crate) mod backup;
pub(crate) mod blob;
pub(crate) mod commit;
pub(crate) mod endurance;
pub(crate) mod get;
pub(crate) mod kv;
pub(crate) mod memory;
pub(crate) mod names;
pub(crate) mod open;
