//! Moves logical nodes to this brick: copies their rows while the old brick serves, and takes over.
//!
//! ```text
//!   ┌──▶ marked incomplete ──▶ copying ──▶ few rows left: sealed ──▶ all rows durable here ──▶ served
//!   └──────────── any failure ◀────────────┴─────────┘
//! ```
//!
//! 1. While rows are copied, the seal of the node marks the copy as incomplete. The mark is durable before the first row is
//!    written. The last rows replace it by the epoch of the old brick's seal, so a brick that serves by a later map has all
//!    rows.
//! 2. The catalogue ends a move only under the epoch of the seal that came with the last rows.
//! 3. After any failure, a new attempt begins from the start; a sealed node is unsealed and served by the old brick in the
//!    meantime.
//! 4. Rows of nodes that another brick serves are removed once the map says so.

mod attempt;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use meta::catalog::{BrickId, CatalogError, Epoch};
use model::{Error, ErrorKind, NodeId, Result};
use protocol::lease::Ms;
use store::RowChanges;
use tokio::sync::Semaphore;
use tokio::time::{self, Instant};
use tracing::{info, warn};
use wire::cluster::{CopiedRows, CopyRows};
use wire::frame::Raw;
use wire::link::Answer;
use wire::proto::moves;
use wire::proto::request::Request;
use wire::proto::response::Response;

use self::attempt::{Action, Attempt, Event};
use super::move_out::INCOMPLETE_COPY;
use super::nodes::Nodes;
use super::page_rows as rows;
use crate::node_placement::Transfer;

/// Logical nodes that are copied at the same time; others wait.
const MAX_CONCURRENT: usize = 2;
/// Rows that are removed in one step.
const REMOVE_BATCH: usize = 4_096;
/// Time limit of one request; time limit for the node to be served after a move, and how often that is checked.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const SERVED_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Pause between a failed attempt and the next one.
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// Longest pause between two portions.
const MAX_REST: Duration = Duration::from_millis(100);
/// Most completed moves whose results are remembered.
const MAX_REMEMBERED: usize = 4_096;

/// Progress or result of the move of a logical node to this brick.
#[derive(Clone, Debug, Default)]
pub(crate) struct MoveIn {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// How long the node was not served by any brick; `None` until the move has ended.
    pub(crate) pause: Option<Duration>,
    /// Why the last attempt failed.
    pub(crate) last_error: Option<String>,
}

/// The moves to this brick.
pub(super) struct MoveIns {
    move_ins: Mutex<BTreeMap<NodeId, MoveIn>>,
    /// Nodes for which [`Nodes::run_move_tasks`] is running.
    busy: Mutex<BTreeSet<NodeId>>,
    places: Semaphore,
}

impl Default for MoveIns {
    fn default() -> Self {
        let (arrivals, busy) = (Mutex::default(), Mutex::default());
        Self { move_ins: arrivals, busy, places: Semaphore::new(MAX_CONCURRENT) }
    }
}

impl MoveIns {
    fn lock_move_ins(&self) -> MutexGuard<'_, BTreeMap<NodeId, MoveIn>> {
        // The data is consistent between statements, so a poisoned lock is harmless.
        self.move_ins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_busy(&self) -> MutexGuard<'_, BTreeSet<NodeId>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The progress of a move, if it is known.
    pub(crate) fn get(&self, node: NodeId) -> Option<MoveIn> {
        self.lock_move_ins().get(&node).cloned()
    }

    fn update(&self, node: NodeId, note: impl FnOnce(&mut MoveIn)) {
        let mut arrivals = self.lock_move_ins();
        if arrivals.len() >= MAX_REMEMBERED && !arrivals.contains_key(&node) {
            arrivals.retain(|_, arrival| arrival.pause.is_none());
        }
        note(arrivals.entry(node).or_default());
    }

    /// Clears the error of a move that has ended, so the next move does not report it.
    fn clear_error(&self, node: NodeId) {
        if let Some(arrival) = self.lock_move_ins().get_mut(&node) {
            arrival.last_error = None;
        }
    }
}

/// The seals of logical nodes that are not served here and may have rows here.
#[derive(Default)]
pub(super) struct Leftovers(Mutex<BTreeMap<NodeId, u64>>);

impl Leftovers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, u64>> {
        // The data is consistent between statements, so a poisoned lock is harmless.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn insert(&self, node: NodeId, epoch: u64) {
        self.lock().insert(node, epoch);
    }
}

/// The next step for a logical node that is not served here.
enum MoveTask {
    /// It moves here.
    TakeOver(Transfer),
    /// Another brick serves it.
    RemoveLeftovers,
}

impl Nodes {
    /// Finds rows that earlier moves left here before this start.
    pub(super) fn find_leftovers(&self) -> Result<()> {
        rows::read_seals(&self.store)?.into_iter().for_each(|(node, epoch)| self.leftovers.insert(node, epoch));
        Ok(())
    }

    /// The progress of the moves of these logical nodes, where it is known.
    pub(crate) fn move_ins(&self, nodes: &[NodeId]) -> moves::MoveIns {
        let known = nodes.iter().filter_map(|node| Some((node.0, self.move_ins.get(*node)?)));
        let arrivals = known.map(|(node, MoveIn { rows, bytes, pause, last_error: trouble })| moves::MoveIn {
            node,
            rows,
            bytes,
            pause_us: pause.map(|pause| pause.as_micros() as u64),
            problem: trouble.unwrap_or_default(),
        });
        moves::MoveIns { move_ins: arrivals.collect() }
    }

    /// Starts the moves of the placement map in the background.
    pub(super) fn follow_moves(self: &Arc<Self>) {
        let map = self.cluster_view.placement.snapshot();
        let coming = map.moving.iter().filter(|(_, one)| one.to == self.id).map(|(node, _)| *node);
        let left: Vec<NodeId> = self.leftovers.lock().keys().copied().collect();
        for node in coming.chain(left) {
            if self.move_task(node).is_some() && self.move_ins.lock_busy().insert(node) {
                tokio::spawn(self.clone().run_move_tasks(node));
            }
        }
    }

    fn move_task(&self, node: NodeId) -> Option<MoveTask> {
        let map = self.cluster_view.placement.snapshot();
        let transfer = map.moving.get(&node).copied();
        if let Some(transfer) = transfer.filter(|one| one.to == self.id) {
            return Some(MoveTask::TakeOver(transfer));
        }
        let (seal, place) = (*self.leftovers.lock().get(&node)?, map.nodes.get(&node)?);
        let is_over = place.brick != self.id && (seal == INCOMPLETE_COPY || place.epoch > seal);
        is_over.then_some(MoveTask::RemoveLeftovers)
    }

    /// Whether a logical node still moves here.
    fn is_moving_in(&self, node: NodeId) -> bool {
        matches!(self.move_task(node), Some(MoveTask::TakeOver(_)))
    }

    /// Carries out tasks for a logical node until there are none.
    async fn run_move_tasks(self: Arc<Self>, node: NodeId) {
        loop {
            let task = self.move_task(node);
            let is_taken_over = matches!(task, Some(MoveTask::TakeOver(_)));
            if !is_taken_over {
                self.move_ins.clear_error(node);
            }
            let done = match task {
                Some(MoveTask::TakeOver(_)) => self.take_over(node).await,
                Some(MoveTask::RemoveLeftovers) => self.remove_leftovers(node).await,
                None => {
                    let mut busy = self.move_ins.lock_busy();
                    // A task that was added since the last check has no other runner.
                    if self.move_task(node).is_none() {
                        busy.remove(&node);
                        return;
                    }
                    Ok(())
                }
            };
            if let Err(error) = done {
                if is_taken_over && !self.is_moving_in(node) {
                    info!(%node, %error, "the move of a logical node was cancelled");
                    continue;
                }
                warn!(%node, %error, "the move of a logical node failed and is tried again");
                self.move_ins.update(node, |arrival| arrival.last_error = Some(error.to_string()));
                time::sleep(RETRY_DELAY).await;
            }
        }
    }

    /// Runs work that may block on a blocking thread.
    async fn run_blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let nodes = self.clone();
        let ended = |_| Error::new(ErrorKind::Internal, "work on the store panicked or was cancelled");
        tokio::task::spawn_blocking(move || work(&nodes)).await.map_err(ended)?
    }

    /// Removes the rows of a logical node that another brick serves.
    async fn remove_leftovers(self: &Arc<Self>, node: NodeId) -> Result<()> {
        let seal = self.leftovers.lock().get(&node).copied();
        let is_over = |nodes: &Self| matches!(nodes.move_task(node), Some(MoveTask::RemoveLeftovers));
        let mut removed = 0;
        while is_over(self) {
            let began = Instant::now();
            let count = self.run_blocking(move |nodes| nodes.remove_rows(node)).await?;
            removed += count;
            if count == 0 {
                let mut left = self.leftovers.lock();
                if left.get(&node).copied() == seal {
                    left.remove(&node);
                }
                if removed > 0 {
                    info!(%node, rows = removed, "removed the rows of a logical node that has moved");
                }
                return Ok(());
            }
            pause_after_portion(began).await;
        }
        Ok(())
    }

    /// Removes some rows of a logical node. Returns their number.
    fn remove_rows(&self, node: NodeId) -> Result<usize> {
        let mut removed = RowChanges::new();
        for (from, to) in rows::ranges(node) {
            self.store.rows(&from, &to, |key, _| {
                removed.remove(key);
                if removed.len() < REMOVE_BATCH { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            if removed.len() >= REMOVE_BATCH {
                break;
            }
        }
        let count = removed.len();
        if count > 0 {
            self.store.commit_rows(removed)?;
        }
        Ok(count)
    }

    // -------------------------------------------------------------------------------------------- taking over

    /// One attempt to take a logical node over.
    async fn take_over(self: &Arc<Self>, node: NodeId) -> Result<()> {
        let Ok(_place) = self.move_ins.places.acquire().await else { return Ok(()) };
        self.cluster_view.refresh_placement().await?;
        let Some(MoveTask::TakeOver(transfer)) = self.move_task(node) else { return Ok(()) };
        if self.is_in_use(node) {
            return Err(Error::new(ErrorKind::Unavailable, "the logical node is still closing here: try again"));
        }
        let own_seal = self.run_blocking(move |nodes| nodes.seal_of(node)).await?;
        self.move_ins
            .update(node, |arrival| *arrival = MoveIn { last_error: arrival.last_error.take(), ..MoveIn::default() });
        info!(%node, from = transfer.from.0, "copying a logical node to this brick");
        let seals = (transfer.sealed, own_seal);
        let (mut attempt, mut action) = Attempt::begin((node, self.id), rand::random(), seals, self.time.now());
        loop {
            let event = match action {
                Action::End { epoch, since } => return self.finish_move_in(node, since, epoch).await,
                action => self.run_action(node, transfer, action).await?,
            };
            action = attempt.handle(event, self.time.now())?;
            let (rows, bytes) = attempt.progress();
            self.move_ins.update(node, |arrival| (arrival.rows, arrival.bytes) = (rows, bytes));
        }
    }

    /// Carries out an action of an attempt and returns its result.
    async fn run_action(self: &Arc<Self>, node: NodeId, transfer: Transfer, action: Action) -> Result<Event> {
        match action {
            Action::Unseal(epoch) => {
                let unsealed = self.cluster_view.editor()?.unseal(node, Epoch(epoch)).await?;
                self.cluster_view.wait_for_revision(unsealed.revision).await?;
            }
            Action::MarkIncomplete => {
                self.run_blocking(move |nodes| nodes.set_seal(node, INCOMPLETE_COPY)).await?;
            }
            Action::RemoveRows => {
                return Ok(Event::Removed(self.run_blocking(move |nodes| nodes.remove_rows(node)).await?));
            }
            Action::Ask(asked) => return Ok(self.request_rows(transfer, asked).await),
            Action::Write { rows, sealed } => {
                self.run_blocking(move |nodes| nodes.write_rows(node, rows, sealed)).await?;
            }
            Action::Seal => match self.cluster_view.editor()?.seal(node, BrickId(self.id.0)).await {
                // An earlier try has sealed it and its answer was lost.
                Ok(_) | Err(CatalogError::WrongMoveState { .. }) => {}
                Err(error) => return Err(error.into()),
            },
            Action::Rest(ms) => time::sleep(Duration::from_millis(ms)).await,
            Action::End { .. } => {
                return Err(Error::new(ErrorKind::Internal, "the end of an attempt is not an action of the store"));
            }
        }
        Ok(Event::Done)
    }

    /// Sends one request for rows to the old brick.
    async fn request_rows(self: &Arc<Self>, transfer: Transfer, asked: CopyRows) -> Event {
        let node = asked.node;
        let answer = self.brick_links.call(transfer.from, Request::CopyRows(asked.into()));
        let late = |_| Error::new(ErrorKind::Unavailable, format!("brick {} does not answer", transfer.from.0));
        let copied = match time::timeout(ANSWER_TIMEOUT, answer).await.map_err(late).flatten() {
            Ok(Answer { response: Response::CopiedRows(copied), raw, .. }) => {
                CopiedRows::from_proto(copied, Raw::Owned(raw))
            }
            Ok(_) => Err(Error::new(ErrorKind::Internal, "brick answered a request for rows with another message")),
            Err(error) => Err(error),
        };
        match copied {
            Ok(copied) => Event::Answered(copied),
            Err(error) => Event::AnswerFailed { error, is_moving: self.is_moving_in(node) },
        }
    }

    /// Writes copied rows durably. The last rows include the seal.
    fn write_rows(&self, node: NodeId, rows: RowChanges, sealed: Option<u64>) -> Result<()> {
        if let Some(epoch) = sealed {
            self.leftovers.insert(node, epoch);
        }
        if !rows.is_empty() {
            self.store.commit_rows(rows)?;
        }
        Ok(())
    }

    /// Ends the move in the catalogue and waits until the node is served here.
    async fn finish_move_in(self: &Arc<Self>, node: NodeId, since: Ms, epoch: u64) -> Result<()> {
        self.end_move(node, epoch).await?;
        let until = Instant::now() + SERVED_TIMEOUT;
        while !self.is_served(node) {
            if self.is_served_elsewhere(node) {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    "all rows were copied, but the logical node cannot be served; see the log",
                ));
            }
            time::sleep(POLL_INTERVAL).await;
        }
        let pause = Duration::from_millis(self.time.now() - since);
        self.move_ins.update(node, |arrival| (arrival.pause, arrival.last_error) = (Some(pause), None));
        info!(%node, ms = pause.as_millis() as u64, "a logical node has moved here and is served");
        Ok(())
    }

    /// Ends a move in the catalogue, under the epoch of its seal.
    async fn end_move(self: &Arc<Self>, node: NodeId, epoch: u64) -> Result<()> {
        loop {
            match self.cluster_view.editor()?.finish_move(node, Epoch(epoch)).await {
                Ok(finished) => return self.cluster_view.wait_for_revision(finished.revision).await,
                // An earlier try has ended it and its answer was lost, or the move was cancelled.
                Err(CatalogError::WrongMoveState { .. }) => {
                    self.cluster_view.refresh_placement().await?;
                    let place = self.cluster_view.placement.of(node).filter(|place| place.brick == self.id);
                    let lost = || Error::new(ErrorKind::Unavailable, "the move was cancelled before it ended");
                    return place.map(drop).ok_or_else(lost);
                }
                Err(error) => {
                    warn!(%node, %error, "the end of a move cannot be recorded in the catalogue and is tried again");
                    time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    fn is_served_elsewhere(&self, node: NodeId) -> bool {
        self.cluster_view.placement.of(node).is_none_or(|place| place.brick != self.id)
    }
}

/// Pauses for as long as the last portion took, so that other work can proceed.
async fn pause_after_portion(began: Instant) {
    time::sleep(began.elapsed().min(MAX_REST)).await;
}

#[cfg(test)]
mod tests;
