//! One attempt to take a logical node over, as a machine: inputs are results of actions, outputs are the next actions.
//!
//! ```text
//!   unseal ─▶ mark incomplete ─▶ remove rows ─▶ ask ─▶ write ─┬─▶ rest ─▶ ask …            many rows are left
//!                                                ▲            ├─▶ seal ─▶ ask …            few rows are left
//!                                                └────────────┴─▶ end                      all rows are durable here
//! ```
//!
//! The mark is durable before the first row is written (M1.3), and the last rows are durable before the move ends in the catalogue
//! (M1.4).

use bytes::Bytes;
use model::{Error, ErrorKind, NodeId, Result};
use protocol::lease::Ms;
use store::RowChanges;
use wire::cluster::{CopiedRows, CopyRows};

use super::{INCOMPLETE_COPY, MoveLimits};
use crate::brick::content_rows;
use crate::brick::page_rows as rows;
use crate::brick::plant::{Bug, planted};
use crate::node_placement::BrickId;

/// The node is sealed after so many answers behind which the rows that are left to be sent have not become fewer, however many they are: it changes faster
/// than it is copied.
const MAX_ROUNDS: u32 = 20;
/// How long a request that fails for now is repeated, and the pause between tries, in milliseconds.
const RETRY_TIMEOUT_MS: Ms = 10_000;
const POLL_INTERVAL_MS: Ms = 2;
/// Longest pause between two portions, in milliseconds.
const MAX_REST_MS: Ms = 100;

/// The next action. Each is followed by one [`Event`].
#[derive(Debug)]
pub(super) enum Action {
    /// Unseal the node, which is sealed under this epoch, in the catalogue, and apply the map with that change.
    Unseal(u64),
    /// Mark the copy as incomplete, durably: see [`INCOMPLETE_COPY`].
    MarkIncomplete,
    /// Remove some rows of the node, durably.
    RemoveRows,
    /// Send the request to the brick that has the node.
    Ask(CopyRows),
    /// Write rows durably.
    Write(RowChanges),
    /// Seal the node in the catalogue.
    Seal,
    /// Wait for this many milliseconds.
    Rest(Ms),
    /// All rows are durable here under the epoch of the seal: end the move in the catalogue. The node was last served at about
    /// `since`.
    End { epoch: u64, since: Ms },
}

/// The result of an [`Action`]. Any other failure ends the attempt.
#[derive(Debug)]
pub(super) enum Event {
    Done,
    /// This many rows were removed.
    Removed(usize),
    /// The brick has sent rows.
    Answered(CopiedRows),
    /// The request failed.
    AnswerFailed {
        error: Error,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Unsealing,
    Marking,
    Clearing,
    Asking,
    Retrying,
    Writing(Portion),
    Sealing,
    Resting,
    Ended,
}

/// Facts about an answer while its rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Portion {
    count: usize,
    is_few: bool,
    /// Whether no row is left, or not fewer than after the answer before.
    is_round: bool,
    sealed: Option<u64>,
}

/// An attempt to take a logical node over.
#[derive(Debug)]
pub(super) struct Attempt {
    node: NodeId,
    limits: MoveLimits,
    stage: Stage,
    asked: CopyRows,
    /// When the last portion was first requested.
    asked_at: Ms,
    /// When the seal was requested from the catalogue.
    sealed_at: Option<Ms>,
    rounds: u32,
    /// The changed rows that were left after the last answer.
    changed: u64,
    rows: u64,
    bytes: u64,
}

impl Attempt {
    /// Begins an attempt to take a node over to brick `to`. No earlier attempt had the same `number`. `sealed` is the epoch of the
    /// seal in the catalogue, `own_seal` that of the seal in this store.
    pub(super) fn begin(
        (node, to): (NodeId, BrickId),
        number: u64,
        (sealed, own_seal): (Option<u64>, u64),
        limits: MoveLimits,
        now: Ms,
    ) -> (Self, Action) {
        let from = Some(Bytes::new());
        let asked = CopyRows { node, to: to.0, attempt: number, number: 0, last_answered: 0, from };
        let mut attempt = Self {
            node,
            limits,
            stage: Stage::Marking,
            asked,
            asked_at: now,
            sealed_at: None,
            rounds: 0,
            changed: 0,
            rows: 0,
            bytes: 0,
        };
        let action = match sealed {
            // All rows were copied before this process restarted.
            Some(epoch) if epoch == own_seal => {
                attempt.stage = Stage::Ended;
                Action::End { epoch, since: now }
            }
            Some(epoch) => {
                attempt.stage = Stage::Unsealing;
                Action::Unseal(epoch)
            }
            None => Action::MarkIncomplete,
        };
        (attempt, action)
    }

    /// Whether the last action was a request to the old brick.
    pub(super) fn is_asking(&self) -> bool {
        self.stage == Stage::Asking
    }

    /// Whether the last action was to seal the node.
    pub(super) fn is_sealing(&self) -> bool {
        self.stage == Stage::Sealing
    }

    /// The seal that the last action wrote, if it wrote one.
    pub(super) fn written_seal(&self) -> Option<u64> {
        match self.stage {
            Stage::Marking => Some(INCOMPLETE_COPY),
            Stage::Writing(portion) => portion.sealed,
            _ => None,
        }
    }

    /// Number of rows copied, and their bytes.
    pub(super) fn progress(&self) -> (u64, u64) {
        (self.rows, self.bytes)
    }

    /// Handles the result of the last action and returns the next action.
    ///
    /// # Errors
    /// If the attempt has failed. A new one may begin.
    ///
    /// # Panics
    /// If the event does not follow from the action.
    pub(super) fn handle(&mut self, event: Event, now: Ms) -> Result<Action> {
        match (self.stage, event) {
            (Stage::Unsealing, Event::Done) => {
                self.stage = Stage::Marking;
                Ok(Action::MarkIncomplete)
            }
            (Stage::Marking, Event::Done) if planted(Bug::OldCopyKept) => Ok(self.ask(now)),
            (Stage::Marking, Event::Done) => {
                self.stage = Stage::Clearing;
                Ok(Action::RemoveRows)
            }
            (Stage::Clearing, Event::Removed(0)) => Ok(self.ask(now)),
            (Stage::Clearing, Event::Removed(_)) => Ok(Action::RemoveRows),
            (Stage::Asking, Event::Answered(copied)) => self.handle_answer(copied),
            (Stage::Asking, Event::AnswerFailed { error }) => {
                let may_pass = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown);
                if !may_pass || now > self.asked_at + RETRY_TIMEOUT_MS {
                    return Err(error);
                }
                self.stage = Stage::Retrying;
                Ok(Action::Rest(POLL_INTERVAL_MS))
            }
            (Stage::Retrying, Event::Done) => Ok(self.ask_again()),
            (Stage::Writing(portion), Event::Done) => Ok(self.handle_written(portion, now)),
            (Stage::Sealing | Stage::Resting, Event::Done) => Ok(self.ask(now)),
            (stage, event) => panic!("M1: {event:?} does not follow in {stage:?} of logical node {:x}", self.node.0),
        }
    }

    fn ask(&mut self, now: Ms) -> Action {
        self.asked_at = now;
        self.ask_again()
    }

    /// Sends the request with a new number, because earlier tries may still be in flight.
    fn ask_again(&mut self) -> Action {
        self.asked.number += 1;
        self.stage = Stage::Asking;
        Action::Ask(self.asked.clone())
    }

    fn handle_answer(&mut self, copied: CopiedRows) -> Result<Action> {
        self.asked.last_answered = self.asked.number;
        self.asked.from.clone_from(&copied.next);
        let (count, is_all, sealed) = (copied.rows.len(), copied.next.is_none(), copied.sealed);
        let is_few = is_all && copied.changed == 0 && count <= self.limits.seal_below_rows;
        let before = std::mem::replace(&mut self.changed, copied.changed);
        let is_round = is_all && (copied.changed == 0 || copied.changed >= before);
        let (rows, bytes) = changes_of(self.node, copied)?;
        self.rows += count as u64;
        self.bytes += bytes;
        self.stage = Stage::Writing(Portion { count, is_few, is_round, sealed });
        if sealed.is_some() && planted(Bug::EndsBeforeDurable) {
            // Written as if it were lost.
            return Ok(self.handle_written(Portion { count, is_few, is_round, sealed }, self.asked_at));
        }
        Ok(Action::Write(rows))
    }

    fn handle_written(&mut self, portion: Portion, now: Ms) -> Action {
        if let Some(epoch) = portion.sealed {
            self.stage = Stage::Ended;
            return Action::End { epoch, since: self.sealed_at.unwrap_or(self.asked_at) };
        }
        self.rounds += u32::from(portion.is_round);
        match self.sealed_at {
            Some(_) if portion.count == 0 => self.rest(POLL_INTERVAL_MS),
            Some(_) => self.ask(now),
            None if portion.is_few || self.rounds > MAX_ROUNDS => {
                self.sealed_at = Some(now);
                self.stage = Stage::Sealing;
                Action::Seal
            }
            // Pauses for as long as the last portion took, so that other work can proceed.
            None => self.rest((now - self.asked_at).min(MAX_REST_MS)),
        }
    }

    fn rest(&mut self, ms: Ms) -> Action {
        self.stage = Stage::Resting;
        Action::Rest(ms)
    }
}

/// The changes that write copied rows, and the bytes of the rows. The last rows include the seal.
///
/// # Errors
/// [`ErrorKind::Invalid`] if a row does not belong to the node.
fn changes_of(node: NodeId, copied: CopiedRows) -> Result<(RowChanges, u64)> {
    let (mut changes, mut bytes) = (RowChanges::new(), 0);
    for (key, value) in copied.rows {
        let content = content_rows::parse(&key)?;
        let belongs = content.map_or_else(|| rows::belongs_to(node, &key), |(id, _)| id.node() == node);
        if !belongs {
            let what = format!("a row that does not belong to logical node {:x} was copied with it", node.0);
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        bytes += (key.len() + value.as_ref().map_or(0, Bytes::len)) as u64;
        match (content, value) {
            (Some(part), value) => content_rows::apply(&mut changes, part, value)?,
            (None, Some(value)) => changes.put(&key, value),
            (None, None) => changes.remove(&key),
        }
    }
    if let Some(epoch) = copied.sealed {
        assert!(epoch != INCOMPLETE_COPY, "M1: no epoch marks a copy as incomplete");
        changes.put(&rows::seal_key(node), rows::encode_number(epoch));
    }
    Ok((changes, bytes))
}
