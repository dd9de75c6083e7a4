//! Moves logical nodes to this brick: copies their rows while the old brick serves, and takes over.
//!
//! ```text
//!            newest map       all rows durable here          the catalogue says so
//!  Refreshing ───────▶ Working ───────────────────▶ Finishing ───────────────────▶ served
//!       ▲                 │ any failure
//!       └──── Paused ◀────┘
//! ```

use std::ops::ControlFlow;

use model::{ContentId, Error, ErrorKind, NodeId, Result};
use protocol::lease::Ms;
use store::{ContentChange, RowChanges};
use tracing::{info, warn};

use super::attempt::{Action, Attempt, Event};
use super::{
    EditResult, Finished, INCOMPLETE_COPY, JobId, MAX_CONCURRENT, MAX_REMEMBERED, NodeManager, PlacementEdit, Purpose,
    Task, Work,
};
use crate::brick::content_rows::Contents;
use crate::brick::page_rows::{self as rows, Rows};
use crate::brick::plant::{Bug, planted};

/// Pause before a step that failed is tried again, in milliseconds. Each attempt of a move that fails doubles the pause before the next one.
const RETRY_DELAY_MS: Ms = 100;
/// How often the pause doubles at most, if another brick or the catalogue does not answer.
const MAX_DOUBLINGS_OF_SILENCE: u32 = 4;
/// The same for other errors, such as a damaged row or a full disk: each attempt removes and copies all rows.
const MAX_DOUBLINGS: u32 = 9;
/// Pause before rows that cannot be removed are tried again, in milliseconds. No work waits for their removal.
const REMOVAL_RETRY_DELAY_MS: Ms = 10_000;
/// Longest pause between two steps of a removal, in milliseconds.
const MAX_REST_MS: Ms = 100;

/// Progress or result of the move of a logical node to this brick.
#[derive(Clone, Debug, Default)]
pub(crate) struct MoveProgress {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// When the node was last served by the old brick, once that is over.
    since: Option<Ms>,
    /// How long the node was not served by any brick, in milliseconds; `None` until the move has ended.
    pub(crate) pause_ms: Option<Ms>,
    /// Why the last attempt failed.
    pub(crate) last_error: Option<String>,
    /// Attempts that have failed, one after the other.
    failures: u32,
}

/// A move of a logical node to this brick.
#[derive(Debug)]
pub(super) enum MoveIn {
    /// The newest map is fetched.
    Refreshing,
    /// An action of the attempt is carried out.
    Working(Attempt),
    /// The attempt continues at this time.
    Resting(Attempt, Ms),
    /// The catalogue is asked to end the move under the epoch of this seal.
    Finishing(u64),
    /// It is asked again at this time.
    FinishingAgain(u64, Ms),
    /// The next attempt begins at this time.
    Paused(Ms),
}

impl MoveIn {
    /// When it continues by itself.
    pub(super) fn deadline(&self) -> Option<Ms> {
        match self {
            Self::Resting(_, at) | Self::FinishingAgain(_, at) | Self::Paused(at) => Some(*at),
            Self::Refreshing | Self::Working(_) | Self::Finishing(_) => None,
        }
    }
}

/// The next step for a logical node that is not served here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WantedTask {
    /// It moves here.
    MoveIn,
    /// Another brick serves it, or its space was removed.
    Removal,
}

impl NodeManager {
    fn wanted_task(&self, node: NodeId) -> Option<WantedTask> {
        if self.transfer(node).is_some_and(|one| one.to == self.settings.brick) {
            return Some(WantedTask::MoveIn);
        }
        let seal = *self.leftovers.get(&node)?;
        if self.map.is_removed(node) {
            return Some(WantedTask::Removal);
        }
        let place = self.map.nodes.get(&node)?;
        let is_later = seal == INCOMPLETE_COPY || place.epoch > seal || planted(Bug::OldMapRemovesRows);
        (place.brick != self.settings.brick && is_later).then_some(WantedTask::Removal)
    }

    /// Drops the tasks that the map does not require any more. A task whose rows are being written ends after that.
    pub(super) fn drop_cancelled_tasks(&mut self) {
        let is_wanted = |manager: &Self, node: NodeId, task: &Task| {
            let wanted = manager.wanted_task(node);
            match task {
                Task::MoveIn(_) => wanted == Some(WantedTask::MoveIn),
                Task::Removal { .. } => wanted == Some(WantedTask::Removal),
            }
        };
        let cancelled: Vec<NodeId> =
            self.tasks.iter().filter(|(node, task)| !is_wanted(self, **node, task)).map(|(node, _)| *node).collect();
        for node in cancelled {
            if self.is_being_written(node) {
                continue;
            }
            if matches!(self.tasks.get(&node), Some(Task::MoveIn(_))) && self.place_here(node).is_none() {
                info!(%node, "the move of a logical node was cancelled");
            }
            self.drop_task(node);
        }
    }

    fn drop_task(&mut self, node: NodeId) {
        self.jobs.retain(|_, job| job.node != node || job.purpose != Purpose::Task);
        self.tasks.remove(&node);
        if let Some(progress) = self.progress.get_mut(&node) {
            // The next move does not report the error of this one, and does not wait for it.
            (progress.last_error, progress.failures) = (None, 0);
        }
    }

    /// Begins tasks for the nodes that are not here.
    pub(super) fn begin_tasks(&mut self, now: Ms) {
        let map = self.map.clone();
        let nodes: Vec<NodeId> = map.moving.keys().chain(self.leftovers.keys()).copied().collect();
        for node in nodes {
            if self.tasks.contains_key(&node) || self.residents.contains_key(&node) || self.is_being_written(node) {
                continue;
            }
            let (mut moving, mut removing) = (0, 0);
            for task in self.tasks.values() {
                *(if matches!(task, Task::MoveIn(_)) { &mut moving } else { &mut removing }) += 1;
            }
            match self.wanted_task(node) {
                Some(WantedTask::MoveIn) if moving < MAX_CONCURRENT => {
                    self.tasks.insert(node, Task::MoveIn(MoveIn::Refreshing));
                    self.run(node, Purpose::Task, Work::RefreshMap, now);
                }
                Some(WantedTask::Removal) if removing < MAX_CONCURRENT => {
                    self.tasks.insert(node, Task::Removal { next_at: None, removed: 0 });
                    self.run(node, Purpose::Task, Work::Remove, now);
                }
                _ => {}
            }
        }
    }

    /// Continues the tasks whose pause has ended.
    pub(super) fn poll_tasks(&mut self, now: Ms) {
        let due: Vec<NodeId> = self
            .tasks
            .iter()
            .filter(|(_, task)| match task {
                Task::MoveIn(move_in) => move_in.deadline().is_some_and(|at| at <= now),
                Task::Removal { next_at, .. } => next_at.is_some_and(|at| at <= now),
            })
            .map(|(node, _)| *node)
            .collect();
        for node in due {
            match self.tasks.remove(&node) {
                Some(Task::MoveIn(MoveIn::Resting(mut attempt, _))) => {
                    let handled = attempt.handle(Event::Done, now);
                    self.continue_attempt(node, attempt, handled, now);
                }
                Some(Task::MoveIn(MoveIn::FinishingAgain(epoch, _))) => self.finish_move_in(node, epoch, now),
                Some(Task::MoveIn(_)) => {
                    self.tasks.insert(node, Task::MoveIn(MoveIn::Refreshing));
                    self.run(node, Purpose::Task, Work::RefreshMap, now);
                }
                Some(Task::Removal { removed, .. }) => {
                    self.tasks.insert(node, Task::Removal { next_at: None, removed });
                    self.run(node, Purpose::Task, Work::Remove, now);
                }
                None => {}
            }
        }
    }

    /// A job of a task has ended.
    pub(super) fn continue_task(&mut self, node: NodeId, id: JobId, finished: Finished, (began, now): (Ms, Ms)) {
        let is_wanted = self.wanted_task(node);
        match self.tasks.remove(&node) {
            Some(Task::MoveIn(_)) if is_wanted != Some(WantedTask::MoveIn) => {
                info!(%node, "the move of a logical node was cancelled");
                self.drop_task(node);
                self.update(now);
            }
            Some(Task::Removal { .. }) if is_wanted != Some(WantedTask::Removal) => self.update(now),
            Some(Task::Removal { removed, .. }) => self.continue_removal(node, removed, finished, (began, now)),
            Some(Task::MoveIn(MoveIn::Refreshing)) => self.begin_attempt(node, id, finished, now),
            Some(Task::MoveIn(MoveIn::Working(mut attempt))) => {
                let handled = self.event_of(node, &mut attempt, finished).and_then(|event| attempt.handle(event, now));
                self.continue_attempt(node, attempt, handled, now);
            }
            Some(Task::MoveIn(MoveIn::Finishing(epoch))) => self.handle_finished(node, epoch, finished, now),
            task => panic!("M1: no job of logical node {node} is under way in {task:?}"),
        }
    }

    // -------------------------------------------------------------------------------------------- moves to here

    /// The map is the newest one: an attempt begins.
    fn begin_attempt(&mut self, node: NodeId, id: JobId, refreshed: Finished, now: Ms) {
        let failure = match refreshed {
            Finished::Refreshed(Ok(())) => None,
            Finished::Refreshed(Err(error)) => Some(error),
            _ => Some(Error::new(ErrorKind::Unavailable, "the catalogue does not answer")),
        };
        let begun = failure.map_or_else(|| self.seal_of(node), Err);
        let (own_seal, Some(transfer)) = (
            match begun {
                Ok(own_seal) => own_seal,
                Err(error) => return self.fail_move_in(node, &error, now),
            },
            self.transfer(node),
        ) else {
            return self.update(now);
        };
        let MoveProgress { last_error, failures, .. } = self.progress.remove(&node).unwrap_or_default();
        self.note_progress(node, |progress| {
            *progress = MoveProgress { last_error, failures, ..MoveProgress::default() }
        });
        info!(%node, from = transfer.from.0, "copying a logical node to this brick");
        let seals = (transfer.sealed, own_seal);
        let (attempt, action) = Attempt::begin((node, self.settings.brick), id.0, seals, self.settings.limits, now);
        self.act(node, attempt, action, now);
    }

    /// The event by which an attempt learns how its action has ended.
    ///
    /// # Errors
    /// If the attempt has failed.
    fn event_of(&mut self, node: NodeId, attempt: &mut Attempt, finished: Finished) -> Result<Event> {
        let late = |who: &str| Error::new(ErrorKind::Unavailable, format!("{who} does not answer"));
        match finished {
            Finished::Written(written) => {
                written?;
                if let Some(seal) = attempt.written_seal() {
                    self.leftovers.insert(node, seal);
                }
                Ok(Event::Done)
            }
            Finished::Removed(removed) => Ok(Event::Removed(removed?)),
            Finished::Copied(Ok(copied)) => Ok(Event::Answered(copied)),
            Finished::Copied(Err(error)) => Ok(Event::AnswerFailed { error }),
            Finished::TimedOut if attempt.is_asking() => Ok(Event::AnswerFailed { error: late("the old brick") }),
            Finished::TimedOut => Err(late("the catalogue")),
            Finished::Edited(edited) => match edited? {
                EditResult::WrongState if !attempt.is_sealing() => {
                    Err(Error::new(ErrorKind::Unavailable, "the move has changed in the catalogue"))
                }
                // Or an earlier try has sealed the node and its answer was lost.
                EditResult::Done | EditResult::WrongState => Ok(Event::Done),
            },
            Finished::Refreshed(_) => panic!("M1: an attempt does not refresh the map"),
        }
    }

    fn continue_attempt(&mut self, node: NodeId, attempt: Attempt, handled: Result<Action>, now: Ms) {
        let (rows, bytes) = attempt.progress();
        self.note_progress(node, |progress| (progress.rows, progress.bytes) = (rows, bytes));
        match handled {
            Ok(action) => self.act(node, attempt, action, now),
            Err(error) => self.fail_move_in(node, &error, now),
        }
    }

    /// Carries out an action of an attempt.
    fn act(&mut self, node: NodeId, attempt: Attempt, action: Action, now: Ms) {
        let work = match action {
            Action::Unseal(epoch) => Work::Edit(PlacementEdit::Unseal { epoch }),
            Action::MarkIncomplete if planted(Bug::CopyNotMarked) => Work::Write(RowChanges::new()),
            Action::MarkIncomplete => Work::Write(Self::seal_rows(node, INCOMPLETE_COPY)),
            Action::RemoveRows => Work::Remove,
            Action::Ask(asked) => match self.transfer(node) {
                Some(transfer) => Work::Copy { from: transfer.from, asked },
                None => return self.update(now),
            },
            Action::Write(rows) => Work::Write(rows),
            Action::Seal => Work::Edit(PlacementEdit::Seal { to: self.settings.brick }),
            Action::Rest(ms) => {
                self.tasks.insert(node, Task::MoveIn(MoveIn::Resting(attempt, now + ms)));
                return;
            }
            Action::End { epoch, since } => {
                self.note_progress(node, |progress| progress.since = Some(since));
                return self.finish_move_in(node, epoch, now);
            }
        };
        self.tasks.insert(node, Task::MoveIn(MoveIn::Working(attempt)));
        self.run(node, Purpose::Task, work, now);
    }

    fn fail_move_in(&mut self, node: NodeId, error: &Error, now: Ms) {
        self.note_error(node, error);
        let mut failures = 0;
        self.note_progress(node, |progress| {
            failures = progress.failures;
            progress.failures = failures.saturating_add(1);
        });
        let is_sealed = self.transfer(node).is_some_and(|transfer| transfer.sealed.is_some());
        let most = match error.kind() {
            // No brick serves it: the next attempt begins by changing that.
            _ if is_sealed => 0,
            ErrorKind::Unavailable | ErrorKind::Unknown => MAX_DOUBLINGS_OF_SILENCE,
            _ if planted(Bug::FailedMoveHurries) => 0,
            _ => MAX_DOUBLINGS,
        };
        let pause_ms = RETRY_DELAY_MS << failures.min(most);
        warn!(%node, %error, pause_ms, "the move of a logical node failed and is tried again");
        self.tasks.insert(node, Task::MoveIn(MoveIn::Paused(now + pause_ms)));
    }

    /// Asks the catalogue to end a move, under the epoch of its seal.
    fn finish_move_in(&mut self, node: NodeId, epoch: u64, now: Ms) {
        self.tasks.insert(node, Task::MoveIn(MoveIn::Finishing(epoch)));
        self.run(node, Purpose::Task, Work::Edit(PlacementEdit::Finish { epoch }), now);
    }

    /// The catalogue has answered. If the node is still moving by the newest map, a new attempt begins.
    fn handle_finished(&mut self, node: NodeId, epoch: u64, finished: Finished, now: Ms) {
        match finished {
            Finished::Edited(Ok(EditResult::Done | EditResult::WrongState)) => self.update(now),
            finished => {
                warn!(%node, ?finished, "the end of a move cannot be recorded in the catalogue and is tried again");
                self.tasks.insert(node, Task::MoveIn(MoveIn::FinishingAgain(epoch, now + RETRY_DELAY_MS)));
            }
        }
    }

    /// A node is served here: if it has moved here, the move has ended.
    pub(super) fn end_move_in(&mut self, node: NodeId, now: Ms) {
        let Some(progress) = self.progress.get_mut(&node) else { return };
        if let (Some(since), None) = (progress.since, progress.pause_ms) {
            let pause_ms = now.saturating_sub(since);
            (progress.pause_ms, progress.last_error, progress.failures) = (Some(pause_ms), None, 0);
            info!(%node, ms = pause_ms, "a logical node has moved here and is served");
        }
    }

    // -------------------------------------------------------------------------------------------- progress

    /// The progress of a move to here, if it is known.
    pub(crate) fn progress(&self, node: NodeId) -> Option<&MoveProgress> {
        self.progress.get(&node)
    }

    pub(super) fn note_error(&mut self, node: NodeId, error: &Error) {
        if let Some(progress) = self.progress.get_mut(&node) {
            progress.last_error = Some(error.to_string());
        }
    }

    fn note_progress(&mut self, node: NodeId, note: impl FnOnce(&mut MoveProgress)) {
        if self.progress.len() >= MAX_REMEMBERED && !self.progress.contains_key(&node) {
            self.progress.retain(|_, progress| progress.pause_ms.is_none());
        }
        note(self.progress.entry(node).or_default());
    }

    // -------------------------------------------------------------------------------------------- removals

    fn continue_removal(&mut self, node: NodeId, before: usize, finished: Finished, (began, now): (Ms, Ms)) {
        let next_at = match finished {
            Finished::Removed(Ok(0)) => {
                if before > 0 {
                    info!(%node, rows = before, "removed the rows of a logical node that is not here any more");
                }
                self.leftovers.remove(&node);
                if self.map.is_removed(node) {
                    self.emptied.insert(node);
                }
                return self.update(now);
            }
            // Rests for as long as the last step took, so that other work can proceed.
            Finished::Removed(Ok(count)) => {
                let next_at = Some(now + (now - began).min(MAX_REST_MS));
                self.tasks.insert(node, Task::Removal { next_at, removed: before + count });
                return;
            }
            Finished::Removed(Err(error)) => {
                warn!(%node, %error, "the rows of a logical node that is not here any more cannot be removed");
                Some(now + REMOVAL_RETRY_DELAY_MS)
            }
            other => panic!("M1: {other:?} does not end a removal"),
        };
        self.tasks.insert(node, Task::Removal { next_at, removed: before });
    }
}

/// The changes that remove some rows and contents of a logical node: at most `most`.
///
/// # Errors
/// If the rows cannot be read.
pub(crate) fn rows_to_remove(store: &(impl Rows + Contents), node: NodeId, most: usize) -> Result<RowChanges> {
    let mut removed = RowChanges::new();
    for (from, to) in rows::ranges(node) {
        store.each(&from, &to, |key, _| {
            removed.remove(key);
            if removed.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if removed.len() >= most {
            return Ok(removed);
        }
    }
    let (from, to) = ContentId::range_of(node);
    for id in store.contents(from, to, most - removed.len())? {
        removed.content(ContentChange::Delete { id });
    }
    Ok(removed)
}
