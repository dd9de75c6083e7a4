//! How transactions of a cluster end.

use std::fmt;

use model::{Error, ErrorKind, Oid};
use protocol::commit::Refusal;
use protocol::ident::{HlcTimestamp, TxnId};
use protocol::session::TxnOutcome;
use protocol::validate::Cause;

/// How a transaction has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a transaction that met another one has changed nothing"]
pub enum CommitOutcome {
    /// It happened, at this time.
    Committed(HlcTimestamp),
    /// It did not, since it met another one: begin it again.
    Conflict(ConflictReason),
    /// It could not be found out in time: [`Cluster::resolve`](super::Cluster::resolve) does.
    Unknown(TxnId),
}

/// What stands against a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictReason {
    /// This object has changed since it was read; `None` of the cause: a copy here already said so.
    Object(Oid, Option<Cause>),
    /// An older transaction wanted what it had locked, or somebody has given it up.
    Aborted,
}

impl fmt::Display for ConflictReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(oid, Some(Cause::Held(_))) => write!(f, "{oid} is in use by another transaction that commits"),
            Self::Object(oid, _) => write!(f, "{oid} has changed since it was read"),
            Self::Aborted => write!(f, "the transaction gave way to another one"),
        }
    }
}

impl ConflictReason {
    /// The error that ends a transaction's body.
    pub(super) fn error(self) -> Error {
        Error::new(ErrorKind::Conflict, self.to_string())
    }
}

/// What an end means for whoever waits for it.
pub(super) fn commit_outcome(txn: TxnId, ended: TxnOutcome) -> CommitOutcome {
    match ended {
        TxnOutcome::Committed(at) => CommitOutcome::Committed(at),
        TxnOutcome::Doomed(oid) => CommitOutcome::Conflict(ConflictReason::Object(oid, None)),
        TxnOutcome::Refused(Refusal::Conflict(conflict)) => {
            CommitOutcome::Conflict(ConflictReason::Object(conflict.oid, Some(conflict.cause)))
        }
        TxnOutcome::Refused(_) => CommitOutcome::Conflict(ConflictReason::Aborted),
        TxnOutcome::Unknown => CommitOutcome::Unknown(txn),
    }
}

/// The error of a transaction that a brick could not take in time. It may take it later.
pub(super) fn deferred_error(txn: TxnId, why: &str) -> Error {
    let what = format!("transaction {txn:?} has not happened yet, and it is not known whether it will: {why}");
    Error::new(ErrorKind::Unknown, what)
}
