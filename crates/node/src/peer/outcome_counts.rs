//! Counts how the transactions of a peer server's clients end.

use protocol::commit::Refusal;
use protocol::commit::coordinator;
use protocol::gateway::Reply;

use crate::server::Metric;

/// How many transactions have ended in each way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OutcomeCounts {
    committed: u64,
    read_only: u64,
    conflicts: u64,
    aborted: u64,
    unknown: u64,
    locks: u64,
}

impl OutcomeCounts {
    /// Counts a reply to a client.
    pub(super) fn count<T>(&mut self, reply: &Reply<T>) {
        let (counter, refusal) = match reply {
            Reply::Ended(coordinator::CommitReply::Committed(_)) => (&mut self.committed, None),
            Reply::Checked(Ok(_)) => (&mut self.read_only, None),
            Reply::Locked(_) => (&mut self.locks, None),
            Reply::Ended(coordinator::CommitReply::Refused(why)) | Reply::Checked(Err(why)) => {
                (&mut self.aborted, Some(why))
            }
        };
        match refusal {
            None | Some(Refusal::Aborted) => *counter += 1,
            Some(Refusal::Conflict(_)) => self.conflicts += 1,
            Some(Refusal::TooOld) => self.unknown += 1,
        }
    }

    /// Adds the counts of another shard.
    pub(super) fn add(&mut self, other: &Self) {
        let Self { committed, read_only, conflicts, aborted, unknown, locks } = other;
        self.committed += committed;
        self.read_only += read_only;
        self.conflicts += conflicts;
        self.aborted += aborted;
        self.unknown += unknown;
        self.locks += locks;
    }

    pub(super) fn metrics(&self) -> [Metric; 6] {
        [
            Metric::counter("transactions_committed_total", self.committed, "Transactions of clients that committed."),
            Metric::counter(
                "transactions_read_only_total",
                self.read_only,
                "Transactions that have only read and were confirmed.",
            ),
            Metric::counter(
                "transactions_conflicts_total",
                self.conflicts,
                "Transactions that conflicted with another one.",
            ),
            Metric::counter(
                "transactions_aborted_total",
                self.aborted,
                "Transactions that were aborted: given up, wounded, or finished by others.",
            ),
            Metric::counter(
                "transactions_too_old_total",
                self.unknown,
                "Transactions whose outcome no brick remembers any more.",
            ),
            Metric::counter("locks_granted_total", self.locks, "Locks granted to datastore transactions."),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_shards_are_added() {
        let shard = OutcomeCounts { committed: 1, read_only: 2, conflicts: 3, aborted: 4, unknown: 5, locks: 6 };
        let mut all = OutcomeCounts::default();
        all.add(&shard);
        all.add(&shard);
        assert_eq!(all.metrics().map(|metric| metric.value), [2, 4, 6, 8, 10, 12]);
    }
}
