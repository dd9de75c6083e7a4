//! Moves logical nodes to this brick: copies their rows while the old brick serves, and takes over.
//!
//! ```text
//!            newest map       all rows durable here          the catalogue says so
//!  Refreshing ───────▶ Working ───────────────────▶ Finishing ───────────────────▶ served
//!       ▲                 │ any failure
//!       └─ Waiting ◀─ Paused
//! ```
//!
//! Few nodes are copied at a time, and rows of few are removed. A task that has failed gives its place up, and waits for one again after a pause: a
//! brick that is away, or rows that cannot be read, hold up no other nodes.

use std::collections::BTreeSet;
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
    /// An attempt has failed. It has no place until this time.
    Paused(Ms),
    /// The next attempt begins when there is a place for it.
    Waiting,
}

impl MoveIn {
    /// When it continues by itself.
    pub(super) fn deadline(&self) -> Option<Ms> {
        match self {
            Self::Resting(_, at) | Self::FinishingAgain(_, at) | Self::Paused(at) => Some(*at),
            Self::Refreshing | Self::Working(_) | Self::Finishing(_) | Self::Waiting => None,
        }
    }

    fn has_place(&self) -> bool {
        !matches!(self, Self::Paused(_) | Self::Waiting)
    }
}

/// A removal of rows that do not belong here any more.
#[derive(Debug, Default)]
pub(super) struct Removal {
    step: RemovalStep,
    removed: usize,
    /// Steps that have failed, one after the other.
    failures: u32,
}

#[derive(Debug, Default)]
enum RemovalStep {
    /// Some rows are being removed.
    #[default]
    Removing,
    /// The next ones are removed from this time on.
    Resting(Ms),
    /// Rows could not be removed. It has no place until this time.
    Paused(Ms),
    /// It continues when there is a place for it.
    Waiting,
}

impl Removal {
    /// When it continues by itself.
    pub(super) fn deadline(&self) -> Option<Ms> {
        match self.step {
            RemovalStep::Resting(at) | RemovalStep::Paused(at) => Some(at),
            RemovalStep::Removing | RemovalStep::Waiting => None,
        }
    }

    fn has_place(&self) -> bool {
        !matches!(self.step, RemovalStep::Paused(_) | RemovalStep::Waiting)
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
                Task::Removal(_) => wanted == Some(WantedTask::Removal),
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

    /// Begins tasks for the nodes that are not here, and continues those that wait, as far as there are places: those with the fewest failures first.
    /// A sealed node waits for no place, because no brick serves it.
    pub(super) fn begin_tasks(&mut self, now: Ms) {
        let map = self.map.clone();
        let nodes: BTreeSet<NodeId> = map.moving.keys().chain(self.leftovers.keys()).copied().collect();
        let waiting = |node: NodeId| self.waiting_task(node).map(|(wanted, failures)| (failures, node, wanted));
        let mut waiting: Vec<(u32, NodeId, WantedTask)> = nodes.into_iter().filter_map(waiting).collect();
        waiting.sort_unstable_by_key(|(failures, node, _)| (*failures, *node));
        let places = |has_place: fn(&Task) -> bool| {
            MAX_CONCURRENT.saturating_sub(self.tasks.values().filter(|task| has_place(task)).count())
        };
        let mut moving = places(|task| matches!(task, Task::MoveIn(move_in) if move_in.has_place()));
        let mut removing = places(|task| matches!(task, Task::Removal(removal) if removal.has_place()));
        for (_, node, wanted) in waiting {
            match wanted {
                WantedTask::MoveIn if moving > 0 || self.is_sealed(node) => {
                    moving = moving.saturating_sub(1);
                    self.tasks.insert(node, Task::MoveIn(MoveIn::Refreshing));
                    self.run(node, Purpose::Task, Work::RefreshMap, now);
                }
                WantedTask::Removal if removing > 0 => {
                    removing -= 1;
                    let before = match self.tasks.remove(&node) {
                        Some(Task::Removal(removal)) => removal,
                        _ => Removal::default(),
                    };
                    self.remove_some(node, before, now);
                }
                _ => {}
            }
        }
    }

    /// What is to be done about a node that waits for a place, and how often that has failed.
    fn waiting_task(&self, node: NodeId) -> Option<(WantedTask, u32)> {
        if self.residents.contains_key(&node) || self.is_being_written(node) {
            return None;
        }
        let wanted = self.wanted_task(node)?;
        let failures = match (self.tasks.get(&node), wanted) {
            (None | Some(Task::MoveIn(MoveIn::Waiting)), WantedTask::MoveIn) => {
                self.progress.get(&node).map_or(0, |progress| progress.failures)
            }
            (None, WantedTask::Removal) => 0,
            (Some(Task::Removal(Removal { step: RemovalStep::Waiting, failures, .. })), WantedTask::Removal) => {
                *failures
            }
            _ => return None,
        };
        Some((wanted, failures))
    }

    fn is_sealed(&self, node: NodeId) -> bool {
        self.transfer(node).is_some_and(|transfer| transfer.sealed.is_some())
    }

    /// Continues the tasks whose pause has ended, or has them wait for a place.
    pub(super) fn poll_tasks(&mut self, now: Ms) {
        let is_due = |task: &Task| task.deadline().is_some_and(|at| at <= now);
        let due: Vec<NodeId> = self.tasks.iter().filter(|(_, task)| is_due(task)).map(|(node, _)| *node).collect();
        for node in &due {
            match self.tasks.remove(node) {
                Some(Task::MoveIn(MoveIn::Resting(mut attempt, _))) => {
                    let handled = attempt.handle(Event::Done, now);
                    self.continue_attempt(*node, attempt, handled, now);
                }
                Some(Task::MoveIn(MoveIn::FinishingAgain(epoch, _))) => self.finish_move_in(*node, epoch, now),
                Some(Task::MoveIn(_)) => drop(self.tasks.insert(*node, Task::MoveIn(MoveIn::Waiting))),
                Some(Task::Removal(removal)) if removal.has_place() => self.remove_some(*node, removal, now),
                Some(Task::Removal(removal)) => {
                    let waiting = Removal { step: RemovalStep::Waiting, ..removal };
                    self.tasks.insert(*node, Task::Removal(waiting));
                }
                None => {}
            }
        }
        if !due.is_empty() {
            self.begin_tasks(now);
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
            Some(Task::Removal(_)) if is_wanted != Some(WantedTask::Removal) => self.update(now),
            Some(Task::Removal(removal)) => self.continue_removal(node, removal, finished, (began, now)),
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
        let most = match error.kind() {
            // No brick serves it: the next attempt begins by changing that.
            _ if self.is_sealed(node) => 0,
            ErrorKind::Unavailable | ErrorKind::Unknown => MAX_DOUBLINGS_OF_SILENCE,
            _ if planted(Bug::FailedMoveHurries) => 0,
            _ => MAX_DOUBLINGS,
        };
        let pause_ms = RETRY_DELAY_MS << failures.min(most);
        warn!(%node, %error, pause_ms, "the move of a logical node failed and is tried again");
        self.tasks.insert(node, Task::MoveIn(MoveIn::Paused(now + pause_ms)));
        // Another node gets its place.
        self.begin_tasks(now);
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

    /// Removes some rows of a node that has a place.
    fn remove_some(&mut self, node: NodeId, removal: Removal, now: Ms) {
        self.tasks.insert(node, Task::Removal(Removal { step: RemovalStep::Removing, ..removal }));
        self.run(node, Purpose::Task, Work::Remove, now);
    }

    fn continue_removal(&mut self, node: NodeId, before: Removal, finished: Finished, (began, now): (Ms, Ms)) {
        let Removal { removed, failures, .. } = before;
        match finished {
            Finished::Removed(Ok(0)) => {
                if removed > 0 {
                    info!(%node, rows = removed, "removed the rows of a logical node that is not here any more");
                }
                self.leftovers.remove(&node);
                if self.map.is_removed(node) {
                    self.emptied.insert(node);
                }
                self.update(now);
            }
            // Rests for as long as the last step took, so that other work can proceed.
            Finished::Removed(Ok(count)) => {
                let step = RemovalStep::Resting(now + (now - began).min(MAX_REST_MS));
                let removal = Removal { step, removed: removed + count, failures: 0 };
                self.tasks.insert(node, Task::Removal(removal));
            }
            Finished::Removed(Err(error)) => {
                warn!(%node, %error, "the rows of a logical node that is not here any more cannot be removed");
                let step = RemovalStep::Paused(now + REMOVAL_RETRY_DELAY_MS);
                let removal = Removal { step, removed, failures: failures.saturating_add(1) };
                self.tasks.insert(node, Task::Removal(removal));
                // Another node gets its place.
                self.begin_tasks(now);
            }
            other => panic!("M1: {other:?} does not end a removal"),
        }
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
