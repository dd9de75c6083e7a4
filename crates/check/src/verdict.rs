//! What a checker says in the end.

use std::error::Error;
use std::fmt;

use crate::history::Operation;

/// How much was judged: a run in which nothing happened is right, and means nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Operations that were judged.
    pub operations: usize,
    /// Relations among them that had to fit together, or values that were compared with what they had to be.
    pub relations: usize,
}

/// What does not hold. The names of cycles and of reads are those of Adya's thesis and of Elle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// The history is not one that can be judged: the fault is its writer's.
    Malformed,
    /// A transaction does not see its own writes, sees those that it has still to make, or reads something twice and
    /// differently.
    Internal,
    /// Two reads of a list of which neither begins with the other.
    Incompatible,
    /// Something was done twice.
    Duplicate,
    /// A value that no operation wrote.
    Phantom,
    /// Something was acknowledged, and is not there.
    Lost,
    /// A part of a transaction is there, and another is not.
    Torn,
    /// Something is seen of an operation that failed.
    G1a,
    /// A state is seen that a transaction only passed through.
    G1b,
    /// A cycle of writes.
    G0,
    /// A cycle of writes and of reads of what was written.
    G1c,
    /// A cycle in which one transaction read what another replaced later: read skew, lost update.
    GSingle,
    /// A cycle in which several did so: write skew, long fork.
    G2,
    /// A cycle that is one only by the order in which a client did its operations.
    Session,
    /// A cycle that is one only by the order of real time.
    RealTime,
    /// A snapshot does not have what it is too long ago not to have.
    Stale,
    /// Writes are seen in another order than they were made in.
    Backwards,
    /// The accounts do not add up.
    Total,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "malformed history",
            Self::Internal => "internal: a transaction contradicts itself",
            Self::Incompatible => "incompatible orders: two reads of a list, neither of which begins with the other",
            Self::Duplicate => "duplicate: done twice",
            Self::Phantom => "phantom: read and never written",
            Self::Lost => "lost: acknowledged and not there",
            Self::Torn => "torn: one part of a transaction is there, another is not",
            Self::G1a => "G1a: seen of an operation that failed",
            Self::G1b => "G1b: intermediate state seen",
            Self::G0 => "G0: cycle of writes",
            Self::G1c => "G1c: cycle of writes and reads of them",
            Self::GSingle => "G-single: cycle with one read of what was replaced later (read skew, lost update)",
            Self::G2 => "G2: cycle with several reads of what was replaced later (write skew, long fork)",
            Self::Session => "session: cycle with the order of one client's operations",
            Self::RealTime => "real-time: cycle with the order of real time",
            Self::Stale => "stale: a snapshot is too old",
            Self::Backwards => "backwards: writes seen in another order than they were made in",
            Self::Total => "total: the accounts do not add up",
        })
    }
}

/// A demand that a history does not meet, with all that is needed to see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What does not hold.
    pub rule: Rule,
    /// The operations that show it, whole. Of a cycle: in its order.
    pub operations: Vec<Operation>,
    /// Why. Of a cycle: as many as operations; each says what leads from one operation to the next, the last to the
    /// first.
    pub why: Vec<String>,
}

impl Violation {
    /// What one sentence can say of some operations.
    pub(super) fn new(rule: Rule, operations: &[&Operation], why: String) -> Self {
        Self { rule, operations: operations.iter().map(|operation| (*operation).clone()).collect(), why: vec![why] }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.rule)?;
        self.why.iter().try_for_each(|why| write!(f, "\n  {why}"))?;
        for operation in &self.operations {
            let line = serde_json::to_string(operation).map_err(|_| fmt::Error)?;
            write!(f, "\n  T{}: {line}", operation.number)?;
        }
        Ok(())
    }
}

impl Error for Violation {}
