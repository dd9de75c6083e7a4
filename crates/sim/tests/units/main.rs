//! Tests of the parts of the simulator.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod bug;
mod clock;
mod cost;
mod object;
mod openings;
mod program;
mod scenario;
mod shrink;
