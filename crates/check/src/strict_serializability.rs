//! Transactions happen one after the other, and in the order of real time: what returned before another was invoked
//! happened before it.
//!
//! Judged are optimistic, datastore and read-only transactions, by the lists that they append to and read
//! (`check/lists.rs` says how). Reads and writes of single values are not judged here, and snapshots and
//! non-transactional operations have checkers of their own. What is unknown is judged if its effect was seen.
//!
//! Noticed is every cycle of dependencies, so every anomaly that has a name: dirty write, dirty read, fractured read,
//! read skew, lost update, write skew, long fork, a read that goes back in time.

use super::lists::Lists;
use super::time::{self, Moments};
use super::verdict::{Summary, Violation};
use crate::history::{History, Operation};

/// Checks that a history is strictly serializable. The summary counts the transactions that committed.
///
/// # Errors
/// What shows that it is not.
pub fn check(history: &History) -> Result<Summary, Violation> {
    let lists = Lists::new(history, Operation::is_strict)?;
    lists.check_lost()?;
    let mut graph = lists.graph();
    time::add_sessions(&mut graph);
    Moments::new(&mut graph).add_real_time(&mut graph);
    graph.check()?;
    Ok(Summary { operations: graph.operations().len(), relations: graph.relations() })
}

#[cfg(test)]
mod tests;
