//! The steps by which a brick opens, as a machine: the driver carries out each step and says when it is done.

use super::plant::{Bug, planted};
use super::{ForcedPosition, Opening, OpeningClaim, OpeningHistory, OpeningRecord, OpeningRefusal};

/// What the driver of a brick that opens has to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpeningStep {
    /// Ask all processes that live what they saw of the log. Nothing has been changed yet.
    Ask,
    /// Replace the record of the catalogue, if it is `from`. If it is not, another process claims: give up.
    Claim {
        /// The expected record; `None` if there must be none.
        from: Option<OpeningRecord>,
        /// The new record.
        to: OpeningRecord,
    },
    /// Tell all processes that live of the claimed opening, and ask again what they saw.
    Announce(Opening),
    /// Force the history to the log.
    Force(OpeningHistory),
    /// Replace the record of the catalogue again, if it is still `from`. If it is not, another process has claimed: give up.
    Confirm {
        /// The expected record.
        from: OpeningRecord,
        /// The new record.
        to: OpeningRecord,
    },
    /// Serve under this opening.
    Serve {
        /// The opening.
        opening: Opening,
        /// The history of the log, with which later witnesses are compared.
        history: OpeningHistory,
    },
}

/// A log that is to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogState {
    /// The position at which it ends.
    pub position: u64,
    /// Whether a repair gave up forced changes of the log, and no operator has run `mortar brick accept-loss` since.
    pub has_lost: bool,
}

/// A brick that opens. After a crash, or when it has given up, it begins anew.
#[derive(Clone, Debug)]
pub struct OpeningProcedure {
    claim: OpeningClaim,
    position: u64,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Asking,
    Claiming,
    Announcing,
    Forcing,
    Confirming,
    Open,
}

impl OpeningProcedure {
    /// Begins to open a log with this history. `record` is what the catalogue has now, and `nonce` a random number.
    ///
    /// # Errors
    /// As [`OpeningHistory::claim`]; [`OpeningRefusal::Lost`] (rule 5).
    pub fn begin(
        history: &OpeningHistory,
        record: Option<OpeningRecord>,
        log: LogState,
        nonce: u64,
    ) -> Result<Self, OpeningRefusal> {
        let LogState { position, has_lost } = log;
        if has_lost && !planted(Bug::LossNotAccepted) {
            return Err(OpeningRefusal::Lost);
        }
        let claim = history.claim(record, position, nonce)?;
        Ok(Self { claim, position, phase: Phase::Asking }.skip_planted())
    }

    /// The same with a catalogue that lost changes, which an operator has accepted: it may not know the last openings of the log.
    ///
    /// # Errors
    /// As [`OpeningHistory::claim`], except for that.
    pub fn begin_after_loss(
        history: &OpeningHistory,
        record: Option<OpeningRecord>,
        log: LogState,
        nonce: u64,
    ) -> Result<Self, OpeningRefusal> {
        match Self::begin(history, record, log, nonce) {
            Err(OpeningRefusal::Unknown { last, .. }) => {
                let known = record.unwrap_or_default();
                let mut begun = Self::begin(history, Some(OpeningRecord { base: Some(last), ..known }), log, nonce)?;
                begun.claim.expected = record;
                Ok(begun)
            }
            begun => begun,
        }
    }

    /// What to do next.
    #[must_use]
    pub fn step(&self) -> OpeningStep {
        let OpeningClaim { opening, expected, claimed, confirmed, history } = &self.claim;
        match self.phase {
            Phase::Asking => OpeningStep::Ask,
            Phase::Claiming => OpeningStep::Claim { from: *expected, to: *claimed },
            Phase::Announcing => OpeningStep::Announce(*opening),
            Phase::Forcing => OpeningStep::Force(history.clone()),
            Phase::Confirming => OpeningStep::Confirm { from: *claimed, to: *confirmed },
            Phase::Open => OpeningStep::Serve { opening: *opening, history: history.clone() },
        }
    }

    /// Compares what a process answered to [`OpeningStep::Ask`] or [`OpeningStep::Announce`].
    ///
    /// # Errors
    /// As [`OpeningHistory::check`]: the log must not be served.
    pub fn handle_seen(&self, seen: ForcedPosition) -> Result<(), OpeningRefusal> {
        self.claim.history.check(self.position, seen)
    }

    /// The step is done; of a step with conditions, `is_replaced` says whether they held. Returns whether to go on: if not, another
    /// process opens the brick.
    #[must_use]
    pub fn handle_done(&mut self, is_replaced: bool) -> bool {
        let is_lost = match self.phase {
            Phase::Claiming => !is_replaced,
            Phase::Confirming => !is_replaced && !planted(Bug::ServesUnconfirmed),
            _ => false,
        };
        self.phase = match self.phase {
            Phase::Asking => Phase::Claiming,
            Phase::Claiming => Phase::Announcing,
            Phase::Announcing => Phase::Forcing,
            Phase::Forcing => Phase::Confirming,
            Phase::Confirming | Phase::Open => Phase::Open,
        };
        *self = self.clone().skip_planted();
        !is_lost
    }

    /// Skips the steps that a planted bug omits.
    fn skip_planted(mut self) -> Self {
        self.phase = match self.phase {
            Phase::Asking if planted(Bug::WitnessesNotAsked) => Phase::Claiming,
            Phase::Announcing if planted(Bug::NotAnnounced) => Phase::Forcing,
            Phase::Forcing if planted(Bug::HistoryNotForced) => Phase::Confirming,
            phase => phase,
        };
        self
    }
}
