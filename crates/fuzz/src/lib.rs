//! Fuzzing of everything that reads bytes from outside.
//!
//! A [`Target`] takes any bytes and panics if the code under it is wrong. Two drivers call the same targets:
//!
//! - libFuzzer, guided by coverage, for as long as one likes: `script/fuzz`, which needs nightly Rust;
//! - [`smoke`], blind but quick, within `cargo test` on stable Rust: `tests/smoke.rs`.
//!
//! Both begin with the inputs in `fuzz/corpus/TARGET`. An input that once found a mistake is added there and stays.
//! A new target is a function here, a line in [`Target::ALL`], a file in `fuzz/fuzz_targets` and some inputs.

mod archive;
mod cluster;
mod filter;
mod log_frames;
mod query;
mod record;
mod smoke;
mod wire_frames;

pub use smoke::smoke;

/// Something that takes bytes from outside.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its corpus, and of its program under `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// Takes any input; panics if the code under test is wrong.
    pub run: fn(&[u8]),
}

impl Target {
    /// Record encoding: whatever the bytes, looking at them does no harm, and a valid record is its own encoding.
    pub const RECORD: Self = Self { name: "record", run: record::run };
    /// Filter encoding and evaluation: the same, over any record. The input's first two bytes say how long the filter is;
    /// the record follows it.
    pub const FILTER: Self = Self { name: "filter", run: filter::run };
    /// Frames and messages of the wire. The input's first two bytes say where the rest is cut.
    pub const WIRE_FRAMES: Self = Self { name: "wire_frames", run: wire_frames::run };
    /// Frames of the log and the entries in them: as a segment's bytes, and as a frame's payload.
    pub const LOG_FRAMES: Self = Self { name: "log_frames", run: log_frames::run };
    /// Queries: their encoding, and the same bytes as text.
    pub const QUERY: Self = Self { name: "query", run: query::run };
    /// Archives: as a whole, and as the items of a part whose checksum is right.
    pub const ARCHIVE: Self = Self { name: "archive", run: archive::run };
    /// What the processes of a cluster say to each other and keep of transactions. The input's first two bytes say how long
    /// the message is.
    pub const CLUSTER: Self = Self { name: "cluster", run: cluster::run };
    /// Every target.
    pub const ALL: [Self; 7] =
        [Self::RECORD, Self::FILTER, Self::WIRE_FRAMES, Self::LOG_FRAMES, Self::ARCHIVE, Self::CLUSTER, Self::QUERY];
}
