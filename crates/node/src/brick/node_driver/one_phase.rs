//! The part of a logical node in a one-phase commit: see [`protocol::commit::participant`] (C5).
//!
//! ```text
//!   begin_one_phase ──▶ propose, learn ──▶ commit_one_phase     at all logical nodes of a joint request
//!                  └──▶ cancel_one_phase                        then the request is handled as it is
//! ```

use model::{Error, ErrorKind, Object};
use protocol::clock::ClockSkewError;
use protocol::commit::coordinator::CommitReply;
use protocol::commit::{Part, Request};
use protocol::ident::{HlcTimestamp, TxnId};
use protocol::lease::Ms;
use protocol::validate::Footprint;
use tracing::warn;

use super::change_size::ChangeSize;
use super::output::DriverOutput;
use super::{NodeDriver, Requester};

/// Rows, and their bytes, that one part of a one-phase commit has at most. All parts are one change of the store.
const MAX_ROWS: usize = 4_096;
const MAX_BYTES: usize = 4 << 20;

impl<C: Clone> NodeDriver<C> {
    /// Takes in a part that is to be prepared, to commit it in one phase. Returns what it holds here; `None` if it cannot be committed so.
    pub(crate) fn begin_one_phase(&mut self, request: &mut Request<Object>) -> Option<Footprint> {
        let Request::Prepare { txn, part, .. } = request else { return None };
        if self.failed.is_some() || self.writer.full_error().is_some() || self.machine.knows(*txn) {
            return None;
        }
        self.distrust_dropped_indexes(&mut part.reads);
        if let Err(deferred) = self.admit_transaction(*txn, part) {
            self.admission.set_deferred(*txn, deferred);
            return None;
        }
        let ChangeSize { rows, bytes } = self.admission.current_size();
        if rows > MAX_ROWS || bytes > MAX_BYTES {
            return None;
        }
        match self.look_up(request) {
            Ok(looked_up) => self.machine.check_one_phase(request, &looked_up.with(&self.recent)),
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    /// A part that was taken in is not committed in one phase. The request is then handled as it is.
    pub(crate) fn cancel_one_phase(&mut self) {
        self.end_admission();
        self.update_quota();
    }

    /// A time at which the transaction may commit here, later than `at`.
    ///
    /// # Errors
    /// If `at` is further ahead than clocks may differ.
    pub(crate) fn propose(&mut self, at: HlcTimestamp, now: Ms) -> Result<HlcTimestamp, ClockSkewError> {
        self.machine.propose(at, now)
    }

    /// Learns the time of the commit, which is the last proposal.
    ///
    /// # Errors
    /// If it is further ahead than clocks may differ.
    pub(crate) fn learn(&mut self, at: HlcTimestamp, now: Ms) -> Result<(), ClockSkewError> {
        self.machine.learn(at, now)
    }

    /// Commits a part that was taken in. Its rows are the next output of rows, and become durable together with those of the other parts. The
    /// sender of the joint request hears from one of the nodes how the transaction has ended.
    pub(crate) fn commit_one_phase(
        &mut self,
        part: (TxnId, Part<Object>),
        footprint: &Footprint,
        timestamp: HlcTimestamp,
        conclude: Option<(C, CommitReply)>,
        now: Ms,
    ) {
        let conclude = conclude.map(|(to, reply)| (Requester::Remote(to), reply));
        self.machine.commit_one_phase(part, footprint, timestamp, conclude, now);
        self.writer.begin_one_phase();
        self.process_outputs(true, now);
        self.end_admission();
    }

    /// The store has refused rows of a one-phase commit: it is opened again with what is stored.
    pub(super) fn lose_rows(&mut self) {
        warn!(node = %self.node, "a commit over several logical nodes was not stored: this one is opened again");
        let why = "what was committed was not stored, for lack of room or because another logical node has failed: this one is opened again";
        self.failed.get_or_insert_with(|| Error::new(ErrorKind::Unavailable, why));
        self.out.push_back(DriverOutput::Reopen);
    }
}
