//! A tree of files in a store: how directories, files and links become objects, and objects files again.
//!
//! A file becomes a blob, a symbolic link a small blob that holds where it points, a directory a collection of what it
//! contains. Each is bound to the name `prefix/relative/path` ([`file_name`]) and carries its mode, time and type as
//! attributes ([`attributes`]). What a tree has beside these (sockets, pipes, devices) is counted and left out.

pub(crate) mod attributes;
pub(crate) mod content_type;
pub(crate) mod export;
pub(crate) mod file_name;
pub(crate) mod import;
pub(crate) mod plan;
pub(crate) mod source;
pub(crate) mod verify;
pub(crate) mod walk;

/// Files up to this size travel many in one transaction; larger ones each as an upload of their own.
pub(crate) const SMALL_FILE_BYTES: u64 = 1 << 20;
/// Objects up to this size are read many at a time; larger ones piece by piece.
pub(crate) const SMALL_READ_BYTES: usize = 64 << 10;
/// Bytes of content that travel together: more saves nothing, and a server holds what is under way.
pub(crate) const BATCH_BYTES: u64 = 1 << 20;
/// Files that travel together.
pub(crate) const BATCH_FILES: usize = 256;
/// Batches under way at a time: enough to keep the disk, the connection and the log busy together.
pub(crate) const MAX_BATCHES: usize = 4;
