//! Outcomes of transactions.

use std::fmt;

use model::{Error, ErrorKind, Oid};
use protocol::commit::Refusal;
pub use protocol::commit::coordinator::CommitReceipt;
use protocol::ident::TxnId;
use protocol::session::TxnOutcome;
use protocol::validate::Cause;

use crate::plant::{Bug, planted};

/// The outcome of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a transaction that conflicts with another one has changed nothing"]
pub enum CommitOutcome {
    /// The transaction is committed. The receipt has its timestamp, and the offset of its first append to each blob.
    Committed(CommitReceipt),
    /// The transaction conflicts with another one and has changed nothing: run it again.
    Conflict(ConflictReason),
    /// The outcome did not arrive in time: [`Client::outcome`](super::Client::outcome) finds it out.
    Unknown(TxnId),
}

/// Why a transaction cannot be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictReason {
    /// This object has changed since it was read, or another transaction uses it. Without a cause, the client itself has
    /// found that its copy changed.
    Object(Oid, Option<Cause>),
    /// An older transaction has taken its locks, or the transaction was given up.
    Aborted,
}

impl fmt::Display for ConflictReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(oid, Some(Cause::Held(_))) => {
                write!(f, "{oid} is in use by another transaction that is being committed")
            }
            Self::Object(oid, _) => write!(f, "{oid} has changed since it was read"),
            Self::Aborted => write!(f, "the transaction was aborted in favor of another one"),
        }
    }
}

impl ConflictReason {
    /// The error of a call in a transaction that cannot be committed any more.
    pub(super) fn error(self) -> Error {
        let error = Error::new(ErrorKind::Conflict, self.to_string());
        match self {
            Self::Object(oid, _) => error.about(oid),
            Self::Aborted => error,
        }
    }
}

/// The outcome for the user of a transaction.
pub(super) fn commit_outcome(txn: TxnId, ended: TxnOutcome) -> CommitOutcome {
    match ended {
        TxnOutcome::Committed(receipt) => CommitOutcome::Committed(receipt),
        TxnOutcome::Doomed(oid) => CommitOutcome::Conflict(ConflictReason::Object(oid, None)),
        TxnOutcome::Refused(Refusal::Conflict(conflict)) => {
            CommitOutcome::Conflict(ConflictReason::Object(conflict.oid, Some(conflict.cause)))
        }
        TxnOutcome::Refused(_) => CommitOutcome::Conflict(ConflictReason::Aborted),
        TxnOutcome::Unknown if planted(Bug::UnknownIsConflict) => CommitOutcome::Conflict(ConflictReason::Aborted),
        TxnOutcome::Unknown => CommitOutcome::Unknown(txn),
    }
}

/// The error of a transaction that a brick has not accepted in time and may accept later.
pub(super) fn deferred_error(txn: TxnId, why: &str) -> Error {
    let what = format!("transaction {txn:?} is not committed yet, and it is not known whether it will be: {why}");
    Error::new(ErrorKind::Unknown, what)
}

/// The error of a transaction whose outcome did not arrive, with the bricks that cannot be reached.
pub(super) fn unknown_outcome_error(txn: TxnId, unreachable: Option<&str>) -> Error {
    let unreachable = unreachable.map(|bricks| format!("; {bricks}")).unwrap_or_default();
    let what = format!(
        "it is not known whether transaction {txn:?} was committed: resolve it, or read what it has written{unreachable}"
    );
    Error::new(ErrorKind::Unknown, what)
}

#[cfg(test)]
mod tests {
    use model::{ClassId, NodeId, PageId, SpaceId};
    use protocol::ident::{ClientId, HlcTimestamp, Version};
    use protocol::validate::ValidationConflict;

    use super::*;

    #[test]
    fn conflict_tells_whether_its_object_has_changed_or_is_in_use() {
        let page = PageId { space: SpaceId(1), node: NodeId(1), number: 1 };
        let (oid, txn) = (Oid::new(ClassId::NONE, page, 1), TxnId { start: HlcTimestamp::at(1), client: ClientId(1) });
        for (cause, words) in [(Cause::Held(txn), "is in use by"), (Cause::Stale(Version::ZERO), "has changed since")] {
            let refusal = Refusal::Conflict(ValidationConflict { oid, cause });
            let CommitOutcome::Conflict(reason) = commit_outcome(txn, TxnOutcome::Refused(refusal)) else {
                panic!("{cause:?} is no conflict");
            };
            assert_eq!(reason, ConflictReason::Object(oid, Some(cause)));
            assert!(reason.to_string().contains(words), "{reason}");
        }
    }
}
