//! Content outside of rows: blob files, and uploads on their way to become content.

pub(crate) mod blob_file;
pub(crate) mod chunk_set;
pub(crate) mod upload;
