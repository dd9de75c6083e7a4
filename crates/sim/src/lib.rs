//! Whole Mortar clusters in one thread, from one seed, and the checkers that judge what their clients saw.
//!
//! | module | is |
//! | --- | --- |
//! | [`history`] | what clients did and saw, as JSON lines |
//! | [`check`] | what must hold of a history, one file for each demand |

pub mod check;
pub mod history;
