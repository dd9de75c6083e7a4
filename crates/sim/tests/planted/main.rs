//! Every planted bug is noticed: by random schedules, within a bounded number of seeds, or by the schedule of a scenario that
//! was written for it. A checker that misses one is not finished.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

mod drivers;
mod rules;
mod search;
