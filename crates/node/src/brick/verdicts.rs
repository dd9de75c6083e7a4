//! What the participants of a brick answer, counted.

use protocol::commit::{Answer, Outcome, Refusal};

use crate::server::Figure;

/// How often was answered what: by one participant, or by several together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Verdicts {
    prepared: u64,
    committed: u64,
    aborted: u64,
    conflicts: u64,
    checked: u64,
    locks: u64,
}

impl Verdicts {
    /// Somebody is answered.
    pub(crate) fn count(&mut self, answer: &Answer) {
        let counter = match answer {
            Answer::Prepared { .. } => &mut self.prepared,
            Answer::Ended { outcome: Outcome::Committed(_), .. } => &mut self.committed,
            Answer::Refused { why: Refusal::Conflict(_), .. } | Answer::Checked { verdict: Err(_), .. } => {
                &mut self.conflicts
            }
            Answer::Ended { .. } | Answer::Refused { .. } => &mut self.aborted,
            Answer::Checked { .. } => &mut self.checked,
            Answer::Locked { .. } => &mut self.locks,
        };
        *counter += 1;
    }

    /// Adds what another participant has answered.
    pub(crate) fn add(&mut self, other: &Self) {
        self.prepared += other.prepared;
        self.committed += other.committed;
        self.aborted += other.aborted;
        self.conflicts += other.conflicts;
        self.checked += other.checked;
        self.locks += other.locks;
    }

    pub(crate) fn figures(&self) -> [Figure; 6] {
        [
            Figure::counter("parts_prepared_total", self.prepared, "Parts of transactions that were prepared here."),
            Figure::counter("parts_committed_total", self.committed, "Parts of transactions that were committed here."),
            Figure::counter("parts_aborted_total", self.aborted, "Parts of transactions that were aborted here."),
            Figure::counter("parts_conflicts_total", self.conflicts, "Parts of transactions that met another one."),
            Figure::counter("parts_checked_total", self.checked, "Reads of transactions that were found current."),
            Figure::counter("parts_locks_total", self.locks, "Locks granted."),
        ]
    }
}
