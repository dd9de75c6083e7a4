//! Group snapshots are serializable together with all transactions, in the order of their client, and not too old.
//!
//! A snapshot may be of a state that real time has left behind, so what returned before it was invoked need not be in
//! it. But it is *one* state, that all transactions fit around; it is not before what its own client has done or seen
//! (a snapshot comes at or after the last timestamp of the session, G2); and it has all that was acknowledged longer
//! ago than the bound.

use super::lists::Lists;
use super::time::{self, Moments};
use super::verdict::{Summary, Violation};
use crate::history::{History, Kind};

/// What is demanded besides serializability and the order of each client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demands {
    /// A snapshot has all that had returned for longer than this when it was invoked, in milliseconds. Without a bound,
    /// only those snapshots are held to one that say `as_of`.
    pub bound_ms: Option<u64>,
    /// One order has both the snapshots and the real time of all other transactions. Without it, that of real time may
    /// be another one ([`super::strict_serializability`] demands that there is one): two transactions without a common
    /// brick or client may have timestamps against the order of real time, as far as clocks differ, and snapshots
    /// follow the timestamps.
    pub real_time: bool,
}

/// Checks the snapshots of a history. The summary counts the snapshots.
///
/// # Errors
/// What shows that they do not fit.
pub fn check(history: &History, demands: Demands) -> Result<Summary, Violation> {
    let lists = Lists::new(history, |operation| operation.is_strict() || operation.kind == Kind::Snapshot)?;
    let mut graph = lists.graph();
    time::add_sessions(&mut graph);
    let moments = Moments::new(&mut graph);
    if demands.real_time {
        moments.add_real_time(&mut graph);
    }
    moments.add_staleness(&mut graph, demands.bound_ms);
    graph.check()?;
    let snapshots = graph.operations().iter().filter(|operation| operation.kind == Kind::Snapshot).count();
    Ok(Summary { operations: snapshots, relations: graph.relations() })
}

#[cfg(test)]
mod tests;
