//! A tree of files in a store: how directories, files and links become objects, and objects files again.
//!
//! A file becomes a blob, a symbolic link a small blob with its target, and a directory a collection of its entries. Each object is
//! bound to the name `prefix/relative/path` ([`file_name`]) and has its mode, time and type as attributes ([`attributes`]). Other
//! entries (sockets, pipes, devices) are counted and skipped.

pub(crate) mod attributes;
pub(crate) mod content_type;
pub(crate) mod export;
pub(crate) mod file_name;
pub(crate) mod import;
pub(crate) mod plan;
pub(crate) mod source;
pub(crate) mod verify;
pub(crate) mod walk;

/// Files up to this size share a transaction; larger ones are uploaded individually.
pub(crate) const SMALL_FILE_BYTES: u64 = 1 << 20;
/// Objects up to this size are read in batches; larger ones in pieces.
pub(crate) const SMALL_READ_BYTES: usize = 64 << 10;
/// Bytes of content in one batch: more saves nothing, and a server holds batches in flight in memory.
pub(crate) const BATCH_BYTES: u64 = 1 << 20;
/// Files in one batch.
pub(crate) const BATCH_FILES: usize = 256;
/// Batches in flight: enough to keep the disk, the connection and the log busy at the same time.
pub(crate) const MAX_BATCHES: usize = 4;
