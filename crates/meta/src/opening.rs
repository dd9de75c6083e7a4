//! Openings of a log, and how a log that went back in time is recognized. Rule K3.
//!
//! A log is that of a brick, or the catalogue. Each time a process opens it to serve it, the log has a new [`Opening`]: a number and
//! a random nonce. The log keeps the [`OpeningHistory`]; the catalogue keeps an [`OpeningRecord`] of each brick; other processes
//! keep the highest position that they saw ([`Witnesses`]). All of this is pure: no I/O, no clock, no random numbers.
//!
//! A brick opens in this order, and serves nothing before the last step:
//!
//! ```text
//!   check the record and the witnesses ─▶ claim ─▶ announce ─▶ force the history ─▶ confirm ─▶ serve
//!                                       catalogue   members       own log          catalogue
//! ```
//!
//! 1. A *claim* is a compare-and-set of the record. It names the last opening of the claimant's log as the *base*. Numbers of claims
//!    only rise, and a claim that was not confirmed has served nothing.
//! 2. A claim succeeds only if the last opening of the log is the base, or the claimed opening, of the record. An honest crash leaves
//!    one of the two: the base before the history was forced, the claimed opening after that. Everything else means that the
//!    directory is an older copy, that a copy of it was opened elsewhere, or that the catalogue itself went back.
//! 3. The forced positions of an opening end where the next opening in the history begins. A witness that saw more shows that the log
//!    lost forced changes.
//! 4. A process that knows an opening believes no opening with a lower number, and none with the same number and another nonce.
//! 5. A log of which a repair gave up forced changes is not opened before an operator has accepted that: it went back in time, even if its
//!    positions are above all that were witnessed.

mod codec;
pub mod plant;
mod procedure;
mod witnesses;

use std::fmt;

use model::{Error, ErrorKind, limits};
use serde::{Deserialize, Serialize};

pub use procedure::{LogState, OpeningProcedure, OpeningStep};
pub use witnesses::{MAX_SUBJECTS, MAX_WITNESSED_OPENINGS, Subject, WitnessedPosition, Witnesses};

use plant::{Bug, planted};

/// Openings that a history keeps. Positions of earlier openings are compared with the beginning of the oldest one that is kept.
pub const MAX_STARTS: usize = 64;

/// One opening of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// Its number. A later opening has a larger one. The first is 1.
    pub number: u64,
    /// A random number, by which openings of copies of a log differ.
    pub nonce: u64,
}

impl fmt::Display for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "opening {}", self.number)
    }
}

/// A forced position of a log, and the opening under which it was forced. A process that has seen it is its witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForcedPosition {
    /// The opening.
    pub opening: Opening,
    /// A position of the log up to which it was forced.
    pub position: u64,
}

/// What the catalogue knows of the openings of a brick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpeningRecord {
    /// The last opening that may have served; `None` if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Opening>,
    /// A later opening that has not been confirmed, and has served nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<Opening>,
    /// A position up to which the log was forced under the base, or earlier.
    #[serde(default)]
    pub position: u64,
}

/// The openings of a log, as the log itself has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpeningHistory {
    /// The oldest first; numbers rise.
    starts: Vec<OpeningStart>,
    /// What was forced under openings with lower numbers may be missing: an operator has accepted that.
    #[serde(default, skip_serializing_if = "is_zero")]
    accepted: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OpeningStart {
    #[serde(flatten)]
    opening: Opening,
    /// The position of the log when it was opened. Everything forced before is at or below it.
    from: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A claim of an opening: what to write to the catalogue, and then to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpeningClaim {
    /// The opening.
    pub opening: Opening,
    /// The record of the catalogue that the claim replaces; `None` if there must be none.
    pub expected: Option<OpeningRecord>,
    /// The record while it is claimed.
    pub claimed: OpeningRecord,
    /// The record once it is confirmed.
    pub confirmed: OpeningRecord,
    /// The history with it, for the log.
    pub history: OpeningHistory,
}

/// Why a log must not be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpeningRefusal {
    /// The last opening of the log is older than the last one that the catalogue knows.
    Older {
        /// The last opening of the log.
        last: Option<Opening>,
        /// The last one that may have served.
        latest: Opening,
    },
    /// Another process opened the log, or a copy of it, under the same or a later number.
    Superseded {
        /// The opening of this log.
        last: Opening,
        /// The other one.
        by: Opening,
    },
    /// The log knows an opening that the catalogue does not: the catalogue went back.
    Unknown {
        /// The last opening of the log.
        last: Opening,
        /// The last one of the catalogue.
        latest: Option<Opening>,
    },
    /// A repair gave up forced changes of the log, and no operator has run `mortar brick accept-loss` since.
    Lost,
    /// A witness saw forced positions that the log does not have.
    Behind {
        /// What the witness saw.
        seen: ForcedPosition,
        /// The last position that the log has of that opening.
        position: u64,
    },
}

impl fmt::Display for OpeningRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Older { last: Some(last), latest } => {
                write!(
                    f,
                    "its last opening is number {}, and the catalogue knows number {}",
                    last.number, latest.number
                )
            }
            Self::Older { last: None, latest } => {
                write!(f, "it has no opening, and the catalogue knows number {}", latest.number)
            }
            Self::Superseded { last, by } => {
                let other = if last.number == by.number { "the same number" } else { "a later number" };
                write!(f, "a copy of it was opened elsewhere under {other}: {} after {}", by.number, last.number)
            }
            Self::Unknown { last, latest } => {
                let latest = latest.map_or(0, |latest| latest.number);
                write!(f, "its last opening is number {}, and the catalogue knows only {latest}", last.number)
            }
            Self::Lost => f.write_str("`mortar repair` gave up changes that were forced"),
            Self::Behind { seen, position } => {
                let (number, missing) = (seen.opening.number, seen.position.saturating_sub(*position));
                write!(
                    f,
                    "position {} was forced under opening {number}, and the log ends at {position}: {missing} are missing",
                    seen.position
                )
            }
        }
    }
}

impl OpeningRefusal {
    /// The error for the operator: `whose` names the log, `witness` the process that knows more.
    #[must_use]
    pub fn into_error(&self, whose: &str, witness: &str) -> Error {
        let what = match self {
            Self::Unknown { .. } => format!(
                "the catalogue went back in time, as {whose} shows: {self}. Start the meta-server with its newest directory"
            ),
            Self::Superseded { .. } => format!("{whose} is not served by this process any more ({witness}): {self}"),
            Self::Lost => format!(
                "{whose} has lost changes: {self}. Put its newer directory back; `mortar brick accept-loss --help` says what it costs to \
                 go on without it"
            ),
            // The text names the catalogue, which is the witness.
            Self::Older { .. } => explain_older_directory(whose, &self.to_string()),
            Self::Behind { .. } => explain_older_directory(whose, &format!("{self} ({witness})")),
        };
        Error::new(ErrorKind::Denied, what)
    }
}

/// The message about a log whose directory went back in time, as this shows.
fn explain_older_directory(whose: &str, what: &str) -> String {
    format!(
        "{whose} went back in time: {what}. Put its newer directory back; `mortar brick accept-loss --help` says what it costs to go on \
         without it"
    )
}

impl OpeningRecord {
    /// The last opening of the record, claimed or served.
    #[must_use]
    pub fn latest(&self) -> Option<Opening> {
        self.claimed.or(self.base)
    }

    /// Checks that a process with this opening may still serve.
    ///
    /// # Errors
    /// [`OpeningRefusal::Superseded`] if another opening was claimed or confirmed after it.
    pub fn check_current(&self, opening: Opening) -> Result<(), OpeningRefusal> {
        match self.latest() {
            Some(latest) if !believes(latest, opening) => Err(OpeningRefusal::Superseded { last: opening, by: latest }),
            _ => Ok(()),
        }
    }
}

impl OpeningHistory {
    /// The last opening.
    #[must_use]
    pub fn last(&self) -> Option<Opening> {
        self.starts.last().map(|start| start.opening)
    }

    /// Whether it has this opening.
    #[must_use]
    pub fn has(&self, opening: Opening) -> bool {
        self.starts.iter().any(|start| start.opening == opening)
    }

    /// Claims the next opening for a log that ends at `position`; rules 1 and 2.
    ///
    /// # Errors
    /// A refusal if the log and the record disagree in a way that no honest crash produces.
    pub fn claim(
        &self,
        record: Option<OpeningRecord>,
        position: u64,
        nonce: u64,
    ) -> Result<OpeningClaim, OpeningRefusal> {
        let known = record.unwrap_or_default();
        self.check_record(&known, position)?;
        let numbers = [self.last(), known.base, known.claimed].into_iter().flatten().map(|opening| opening.number);
        let number = numbers.max().unwrap_or(0) + 1;
        let opening = Opening { number, nonce };
        let claimed = OpeningRecord { base: self.last(), claimed: Some(opening), position: known.position };
        let confirmed = OpeningRecord { base: Some(opening), claimed: None, position: position.max(known.position) };
        Ok(OpeningClaim { opening, expected: record, claimed, confirmed, history: self.with(opening, position) })
    }

    fn check_record(&self, known: &OpeningRecord, position: u64) -> Result<(), OpeningRefusal> {
        let last = self.last();
        let same = |one: Option<Opening>, other: Option<Opening>| match planted(Bug::NonceIgnored) {
            true => one.map(|one| one.number) == other.map(|other| other.number),
            false => one == other,
        };
        let is_base = same(last, known.base);
        let is_claimed = last.is_some() && same(last, known.claimed);
        if !is_base && !is_claimed && !planted(Bug::AnyBase) {
            return Err(match (last, known.base) {
                (Some(last), latest) if latest.is_none_or(|latest| latest.number < last.number) => {
                    match known.claimed {
                        Some(by) if by.number == last.number => OpeningRefusal::Superseded { last, by },
                        _ => OpeningRefusal::Unknown { last, latest: known.latest() },
                    }
                }
                (Some(last), Some(by)) if by.number == last.number => OpeningRefusal::Superseded { last, by },
                (last, latest) => {
                    OpeningRefusal::Older { last, latest: latest.unwrap_or(Opening { number: 0, nonce: 0 }) }
                }
            });
        }
        match known.base {
            Some(opening) if position < known.position && !planted(Bug::RecordedPositionIgnored) => {
                Err(OpeningRefusal::Behind { seen: ForcedPosition { opening, position: known.position }, position })
            }
            _ => Ok(()),
        }
    }

    /// The history after another opening at `position`.
    pub(crate) fn with(&self, opening: Opening, position: u64) -> Self {
        let mut starts = self.starts.clone();
        starts.push(OpeningStart { opening, from: position });
        let surplus = starts.len().saturating_sub(MAX_STARTS);
        starts.drain(..surplus);
        Self { starts, accepted: self.accepted }
    }

    /// The next opening of a log that only one process opens at a time, such as the catalogue of a meta-server.
    #[must_use]
    pub fn next(&self, position: u64, nonce: u64) -> Self {
        let number = self.last().map_or(0, |last| last.number) + 1;
        self.with(Opening { number, nonce }, position)
    }

    /// The same history, in which the last opening began at `from`.
    ///
    /// A catalogue learns the revision from which an opening counts only when the history has been written.
    #[must_use]
    pub fn with_last_from(mut self, from: u64) -> Self {
        if let Some(last) = self.starts.last_mut() {
            last.from = from;
        }
        self
    }

    /// The history after an operator has accepted that forced changes are missing: a further opening, numbered after all of `known`.
    /// Witnesses of earlier openings are not compared any more.
    #[must_use]
    pub fn accept_loss(&self, known: &[Opening], position: u64, nonce: u64) -> Self {
        let numbers = known.iter().copied().chain(self.last()).map(|opening| opening.number);
        let number = numbers.max().unwrap_or(0) + 1;
        Self { accepted: number, ..self.with(Opening { number, nonce }, position) }
    }

    /// Whether an operator has accepted that changes are missing.
    #[must_use]
    pub fn has_accepted_loss(&self) -> bool {
        self.accepted > 0
    }

    /// Whether the numbers and positions rise, and there are not too many.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let rises = self
            .starts
            .windows(2)
            .all(|pair| pair[0].opening.number < pair[1].opening.number && pair[0].from <= pair[1].from);
        let is_bounded = self.last().is_none_or(|last| last.number <= limits::COUNT);
        rises && is_bounded && self.starts.len() <= MAX_STARTS
    }

    /// Checks what a witness saw against this log, which ends at `position`; rule 3.
    ///
    /// # Errors
    /// [`OpeningRefusal::Behind`] or [`OpeningRefusal::Superseded`].
    pub fn check(&self, position: u64, seen: ForcedPosition) -> Result<(), OpeningRefusal> {
        let Some(last) = self.last() else { return Ok(()) };
        if seen.opening.number < self.accepted {
            return Ok(());
        }
        if seen.opening.number > last.number {
            return Err(OpeningRefusal::Superseded { last, by: seen.opening });
        }
        let same = self.starts.iter().find(|start| start.opening.number == seen.opening.number);
        if let Some(start) = same.filter(|start| start.opening.nonce != seen.opening.nonce)
            && !planted(Bug::NonceIgnored)
        {
            return Err(OpeningRefusal::Superseded { last: start.opening, by: seen.opening });
        }
        let next = self.starts.iter().find(|start| start.opening.number > seen.opening.number);
        // A number that the history does not have was claimed and has served nothing, or is older than all that is kept.
        let end = next.map_or(position, |next| next.from);
        if seen.position > end && !planted(Bug::PositionIgnored) {
            return Err(OpeningRefusal::Behind { seen, position: end });
        }
        Ok(())
    }
}

/// Whether a process that knows `known` believes what comes from `opening`; rule 4.
#[must_use]
pub fn believes(known: Opening, opening: Opening) -> bool {
    if planted(Bug::OldOpeningBelieved) {
        return true;
    }
    opening.number > known.number
        || opening.number == known.number && (opening.nonce == known.nonce || planted(Bug::NonceIgnored))
}

#[cfg(test)]
pub(crate) mod tests;
