//! Simulates whole Mortar clusters in one thread, from one seed, and checks what their clients observed.
//!
//! | module | is |
//! | --- | --- |
//! | [`bug`] | what can be planted |
//! | [`counters`] | how often things have happened in a run |
//! | [`deceit`] | how a wicked client breaks the rules |
//! | [`plan`] | what is to happen in a run |
//! | [`object`] | what the objects of a run contain |
//! | [`openings`] | one brick that is restarted, goes back in time, and is copied |
//! | [`program`] | the structs that programs of clients know |
//! | [`workload`] | plans from seeds |
//! | [`world`] | the cluster that it happens to |
//! | [`scenario`] | plans as text, and what must come of them |
//! | [`run`] | a run of a plan, and what has come of it |
//! | [`shrink`] | a short plan that fails as a long one does |
//! | [`cost`] | a model of throughput |
//!
//! Histories and their checkers are the crate [`check`].

pub mod bug;
pub mod cost;
pub mod counters;
pub mod deceit;
pub mod object;
pub mod openings;
pub mod plan;
pub mod program;
pub mod run;
pub mod scenario;
pub mod shrink;
pub mod workload;
pub mod world;
