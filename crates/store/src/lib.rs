//! The durable object store of one brick: log, modified object buffer and B-tree.

mod checksum;
mod disk;
mod engine;
mod key;
pub mod log;
mod mob;
mod patch;
mod row;
