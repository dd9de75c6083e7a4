//! One-phase commits: all participants of a transaction are logical nodes of one brick, and their records become durable together (C5).
//!
//! No participant is prepared, so there is nothing to decide later. Each commits as if it were the only one, at a time that all have
//! proposed. The outcome is durable at all of them or at none, so none has to tell the others.

use model::Oid;

use super::{DurableAction, Participant};
use crate::clock::ClockSkewError;
use crate::commit::coordinator::CommitReply;
use crate::commit::{Answer, Part};
use crate::ident::{HlcTimestamp, TxnId};
use crate::plant::{Bug, planted};
use crate::validate::{Footprint, PageVersions};

impl<A: Clone, T: Clone> Participant<A, T> {
    /// What a transaction holds here if it commits in one phase. `None` if it is not new, or conflicts: then it is prepared, which tells why.
    /// `versions` must have the [pages to look up](Participant::pages_to_look_up).
    #[must_use]
    pub fn check_one_phase(&self, txn: TxnId, part: &Part<T>, versions: &dyn PageVersions) -> Option<Footprint> {
        if self.knows(txn) || self.too_old_since(txn).is_some() || !self.may_serve() {
            return None;
        }
        let mut footprint = part.footprint();
        let checked = self.validator.check(txn, &part.reads, &footprint, versions);
        if checked.is_err() && planted(Bug::OnePhaseUnchecked) {
            // It would hold what another transaction holds.
            let is_free =
                |oid: &Oid| self.validator.prepared_txns().all(|other| !self.validator.is_written_by(other, *oid));
            footprint.reads.retain(is_free);
            footprint.writes.retain(is_free);
            return Some(footprint);
        }
        checked.is_ok().then_some(footprint)
    }

    /// A time at which a transaction may commit here, later than `at` and all that was promised and proposed here (V4).
    ///
    /// # Errors
    /// If `at` is further ahead than clocks may differ.
    pub fn propose(&mut self, at: HlcTimestamp, now_ms: u64) -> Result<HlcTimestamp, ClockSkewError> {
        if !planted(Bug::ProposalsApart) {
            self.clock.learn(at, now_ms)?;
        }
        Ok(self.clock.tick(now_ms))
    }

    /// Commits a transaction in one phase, at a time that is not before the [proposal](Participant::propose) of any participant and that
    /// this one has [learned](Participant::learn). The driver makes the records of all participants durable together. One of them [concludes](Answer::Concluded).
    pub fn commit_one_phase(
        &mut self,
        (txn, part): (TxnId, Part<T>),
        footprint: &Footprint,
        timestamp: HlcTimestamp,
        conclude: Option<(A, CommitReply)>,
    ) {
        assert!(
            timestamp <= self.clock.last(),
            "V4: {txn:?} commits in one phase at a time that this node has not learned"
        );
        let position = self.commit(txn, part, footprint, timestamp);
        if let Some((to, reply)) = conclude {
            self.run_when_durable(position, DurableAction::Answer(to, Answer::Concluded { txn, reply }));
        }
    }
}
