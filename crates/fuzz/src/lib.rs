//! Fuzzing of everything that reads bytes from outside.
//!
//! A [`Target`] takes any bytes and panics if the code under test is wrong. Two drivers call the same targets:
//!
//! - libFuzzer, guided by coverage and without a time limit: `script/fuzz`, which needs nightly Rust;
//! - [`smoke`], with blind mutations and a short run, in `cargo test` on stable Rust: `tests/smoke.rs`.
//!
//! Both begin with the inputs in `fuzz/corpus/TARGET`. An input that found a bug is added there and kept. A new target
//! is a function here, a line in [`Target::ALL`], a file in `fuzz/fuzz_targets` and some inputs.

mod archive;
mod cluster;
mod filter;
mod log_frames;
mod query;
mod record;
mod smoke;
mod wire_frames;

pub use smoke::smoke;

/// Code that reads bytes from outside.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its corpus and of its program in `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// Takes any input; panics if the code under test is wrong.
    pub run: fn(&[u8]),
}

impl Target {
    /// Record encoding: any bytes can be read safely, and a valid record is its only encoding.
    pub const RECORD: Self = Self { name: "record", run: record::run };
    /// Filter encoding, and evaluation on any record. The first two bytes of the input are the length of the filter;
    /// the record follows it.
    pub const FILTER: Self = Self { name: "filter", run: filter::run };
    /// Frames and messages of the wire. The first two bytes of the input are the position at which the rest is divided.
    pub const WIRE_FRAMES: Self = Self { name: "wire_frames", run: wire_frames::run };
    /// Frames of the log and their entries: as the bytes of a segment, and as the payload of a frame.
    pub const LOG_FRAMES: Self = Self { name: "log_frames", run: log_frames::run };
    /// Queries: their encoding, and the same bytes as text.
    pub const QUERY: Self = Self { name: "query", run: query::run };
    /// Archives: as a whole, and as the items of a part with a valid checksum.
    pub const ARCHIVE: Self = Self { name: "archive", run: archive::run };
    /// Messages between the processes of a cluster, and stored records of transactions. The first two bytes of the
    /// input are the length of the message.
    pub const CLUSTER: Self = Self { name: "cluster", run: cluster::run };
    /// Every target.
    pub const ALL: [Self; 7] =
        [Self::RECORD, Self::FILTER, Self::WIRE_FRAMES, Self::LOG_FRAMES, Self::ARCHIVE, Self::CLUSTER, Self::QUERY];
}
