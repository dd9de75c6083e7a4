//! Counts of the answers of a brick's participants.

use std::sync::atomic::{AtomicU64, Ordering};

use protocol::commit::{Answer, Outcome, Refusal};

use crate::server::Metric;

/// Counts of the answers of all logical nodes that a brick serves or has served since its start, so the metrics never
/// decrease.
#[derive(Debug, Default)]
pub(crate) struct AnswerCounts {
    prepared: Counter,
    committed: Counter,
    aborted: Counter,
    conflicts: Counter,
    checked: Counter,
    locks: Counter,
}

/// A counter. Any thread may increment it.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Counter {
    fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn metric(&self, name: &'static str, help: &'static str) -> Metric {
        Metric::counter(name, self.0.load(Ordering::Relaxed), help)
    }
}

impl AnswerCounts {
    /// Counts an answer.
    pub(crate) fn count(&self, answer: &Answer) {
        let counter = match answer {
            // These are answers that others have counted.
            Answer::Joint { .. } | Answer::Concluded { .. } => return,
            Answer::Prepared { .. } => &self.prepared,
            Answer::Ended { outcome: Outcome::Committed(_), .. } => &self.committed,
            Answer::Refused { why: Refusal::Conflict(_), .. } | Answer::Checked { verdict: Err(_), .. } => {
                &self.conflicts
            }
            Answer::Ended { .. } | Answer::Refused { .. } => &self.aborted,
            Answer::Checked { .. } => &self.checked,
            Answer::Locked { .. } => &self.locks,
        };
        counter.increment();
    }

    pub(crate) fn metrics(&self) -> [Metric; 6] {
        [
            self.prepared.metric("parts_prepared_total", "Parts of transactions that were prepared here."),
            self.committed.metric("parts_committed_total", "Parts of transactions that were committed here."),
            self.aborted.metric("parts_aborted_total", "Parts of transactions that were aborted here."),
            self.conflicts
                .metric("parts_conflicts_total", "Parts of transactions that were refused because of a conflict."),
            self.checked.metric("parts_checked_total", "Reads of transactions that were found current."),
            self.locks.metric("parts_locks_total", "Locks granted."),
        ]
    }
}
