//! Moves logical nodes to another brick: sends their rows, and refuses to serve them again by an old map.
//!
//! ```text
//!   served ──▶ sealed in the catalogue: closed ──▶ no rows in flight, seal durable ──▶ the last rows are sent
//! ```
//!
//! 1. The seal of a node is a row with an epoch. The node is not served here by any map up to that epoch, so a restarted brick
//!    with an old map does not serve a node that it has handed over.
//! 2. An answer marks its rows as the last ones only after the seal is durable: the old brick refuses before the new one accepts.
//! 3. The new brick has to keep sending requests. If it stops, the old brick unseals the node and serves it again. The
//!    catalogue compares epochs, so rows that were sent under the old seal do not count.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use meta::catalog::Epoch;
use model::{Error, ErrorKind, NodeId, Result};
use protocol::lease::Ms;
use store::{RowChanges, Snapshot};
use tracing::{info, warn};
use wire::cluster::{CopiedRows, CopyRows};

use super::changed_rows::ChangedRows;
use super::node_driver::change_tracking;
use super::nodes::Nodes;
use super::page_rows::{self as rows, Key};
use super::plant::{Bug, planted};
use crate::node_placement::Transfer;

/// Most bytes and rows of one answer; the last row may exceed the bytes.
const MAX_BYTES: usize = 1 << 20;
const MAX_ROWS: usize = 4_096;
/// How long the new brick may be silent before a sealed node is unsealed, in milliseconds.
const ABANDONED_AFTER_MS: Ms = 10_000;

/// An epoch that no map has: the copy of the node is incomplete.
pub(crate) const INCOMPLETE_COPY: u64 = u64::MAX;

/// A logical node that is sealed and has no rows in flight.
struct SealedNode {
    epoch: u64,
    changed_rows: Option<ChangedRows>,
    /// When the new brick last requested rows.
    asked_at: Ms,
}

/// The logical nodes that are sealed.
#[derive(Default)]
pub(super) struct MoveOuts(Mutex<BTreeMap<NodeId, SealedNode>>);

impl MoveOuts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, SealedNode>> {
        // The data is consistent between statements, so a poisoned lock is harmless.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a logical node is sealed.
    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.lock().contains_key(&node)
    }
}

impl Nodes {
    /// The epoch of the seal of a logical node: no map up to that epoch makes this brick serve it. 0 if there is no seal.
    pub(super) fn seal_of(&self, node: NodeId) -> Result<u64> {
        rows::read_number(&self.store, &rows::seal_key(node))
    }

    /// Sets the seal of a logical node, durably.
    pub(super) fn set_seal(&self, node: NodeId, epoch: u64) -> Result<()> {
        let mut seal = RowChanges::new();
        seal.put(&rows::seal_key(node), rows::encode_number(epoch));
        // Written even if the store is full, because moving nodes away frees space.
        self.store.commit_rows(seal.needed())?;
        self.leftovers.insert(node, epoch);
        Ok(())
    }

    /// Seals the logical nodes that are sealed in the map, with the changed rows of those in `closed`. Skips nodes that are
    /// still closing.
    ///
    /// # Errors
    /// If a seal cannot be made durable. The caller has to try again.
    pub(super) fn seal_moving(
        &self,
        moving: &BTreeMap<NodeId, Transfer>,
        is_closing: impl Fn(NodeId) -> bool,
        mut closed: BTreeMap<NodeId, Option<ChangedRows>>,
    ) -> Result<()> {
        let wanted = moving.iter().filter(|(_, transfer)| transfer.from == self.id);
        let wanted: BTreeMap<NodeId, u64> = wanted.filter_map(|(node, one)| Some((*node, one.sealed?))).collect();
        let mut sealed = self.move_outs.lock();
        sealed.retain(|node, _| wanted.contains_key(node));
        for (node, epoch) in wanted {
            if is_closing(node) || sealed.get(&node).is_some_and(|one| one.epoch == epoch) {
                continue;
            }
            let changed = closed.remove(&node).unwrap_or_else(|| sealed.remove(&node).and_then(|one| one.changed_rows));
            let before = self.seal_of(node)?;
            if before > epoch {
                warn!(%node, epoch, before, "the map is older than the seal of a logical node and is ignored");
                continue;
            }
            if !planted(Bug::SealNotWritten) {
                self.set_seal(node, epoch)?;
            }
            info!(%node, epoch, "sealed a logical node that moves to another brick");
            sealed.insert(node, SealedNode { epoch, changed_rows: changed, asked_at: self.time.now() });
        }
        Ok(())
    }

    /// Unseals nodes whose new brick is silent. Returns when to check again.
    pub(super) fn unseal_abandoned(self: &Arc<Self>) -> Ms {
        let now = self.time.now();
        let mut sealed = self.move_outs.lock();
        let mut next = Ms::MAX;
        for (node, one) in sealed.iter_mut() {
            if one.asked_at + ABANDONED_AFTER_MS <= now {
                one.asked_at = now;
                let (node, epoch, nodes) = (*node, one.epoch, self.clone());
                tokio::spawn(async move {
                    warn!(%node, "the new brick of a sealed logical node is silent: unsealing the node");
                    let Ok(editor) = nodes.cluster_view.editor() else { return };
                    if let Err(error) = editor.unseal(node, Epoch(epoch)).await {
                        info!(%node, %error, "a logical node was not unsealed");
                    }
                });
            }
            next = next.min(one.asked_at + ABANDONED_AFTER_MS);
        }
        next
    }

    // -------------------------------------------------------------------------------------------- handing over

    /// Rows of a logical node, for the brick that it moves to.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the node does not move to that brick, or the copy has to begin again;
    /// [`ErrorKind::Unavailable`] if the node is being sealed, or cannot be read now.
    pub(crate) fn copy_rows(&self, asked: &CopyRows) -> Result<CopiedRows> {
        let CopyRows { node, to, attempt, number, last_answered: got, .. } = *asked;
        let transfer = self.cluster_view.placement.snapshot().moving.get(&node).copied();
        let transfer = transfer.filter(|one| one.from == self.id && one.to.0 == to).ok_or_else(|| {
            let what = format!("logical node {:x} does not move from here to brick {to}", node.0);
            Error::new(ErrorKind::NotFound, what)
        })?;
        let from = asked.from.as_deref();
        let keys = self.with_changed_rows(asked, transfer.sealed, |changed| {
            changed.begin_answer(attempt, number, got)?;
            Ok(changed.take(from, MAX_ROWS))
        })?;
        // The rows of these keys are durable already, so the snapshot has them.
        let mut reading = CopyReader::new(self.store.snapshot()?);
        let sent = reading.read_changed(&keys)?;
        if let Some(from) = from {
            reading.read_range(node, from)?;
        }
        let mut copied = reading.copied;
        copied.changed = self
            .with_changed_rows(asked, transfer.sealed, |changed| changed.put_back((attempt, number), &keys[sent..]))?;
        let is_all = copied.next.is_none() && (copied.changed == 0 || planted(Bug::LastBeforeAll));
        copied.sealed = transfer.sealed.filter(|_| is_all);
        Ok(copied)
    }

    /// Calls `act` with the changed rows of a logical node that is being copied, whether it is served or sealed.
    fn with_changed_rows<T>(
        &self,
        asked: &CopyRows,
        sealed: Option<u64>,
        act: impl FnOnce(&mut ChangedRows) -> Result<T>,
    ) -> Result<T> {
        let CopyRows { node, attempt, last_answered: got, .. } = *asked;
        let is_served = planted(Bug::ToldUnsealed) && self.is_served(node);
        let Some(epoch) = sealed.filter(|_| !is_served) else {
            return self.with_driver(node, |hosted| act(hosted.changes_for_attempt(attempt, got)?));
        };
        let mut all = self.move_outs.lock();
        let sealed = all.get_mut(&node).filter(|sealed| sealed.epoch == epoch);
        let sealed = sealed.ok_or_else(|| {
            let what = format!("logical node {:x} is being sealed: ask again", node.0);
            Error::new(ErrorKind::Unavailable, what)
        })?;
        sealed.asked_at = self.time.now();
        act(change_tracking::begin_attempt(&mut sealed.changed_rows, attempt, got)?)
    }
}

/// Reads the rows of an answer from one snapshot.
struct CopyReader {
    snapshot: Snapshot,
    copied: CopiedRows,
    bytes: usize,
}

impl CopyReader {
    fn new(state: Snapshot) -> Self {
        Self { snapshot: state, copied: CopiedRows::default(), bytes: 0 }
    }

    fn is_full(&self) -> bool {
        self.bytes >= MAX_BYTES || self.copied.rows.len() >= MAX_ROWS
    }

    fn add(&mut self, key: &[u8], value: Option<Bytes>) {
        self.bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
        self.copied.rows.push((Bytes::copy_from_slice(key), value));
    }

    /// Reads as many of these rows as fit. Returns how many.
    fn read_changed(&mut self, keys: &[Key]) -> Result<usize> {
        for (count, key) in keys.iter().enumerate() {
            if self.is_full() {
                return Ok(count);
            }
            let value = self.snapshot.row(key)?;
            self.add(key, value);
        }
        Ok(keys.len())
    }

    /// Reads as many rows of a logical node from a key on as fit.
    fn read_range(&mut self, node: NodeId, from: &[u8]) -> Result<()> {
        for (start, end) in rows::ranges(node).filter(|(_, end)| from < &end[..]) {
            let start = if from > &start[..] { from } else { &start[..] };
            let mut found = Vec::new();
            let (bytes, count) = (self.bytes, self.copied.rows.len());
            let (mut more, mut next) = (0, None);
            self.snapshot.rows(start, &end, |key, row| {
                if bytes + more >= MAX_BYTES || count + found.len() >= MAX_ROWS {
                    next = Some(Bytes::copy_from_slice(key));
                    return ControlFlow::Break(());
                }
                more += key.len() + row.len();
                found.push((Bytes::copy_from_slice(key), Some(Bytes::copy_from_slice(row))));
                ControlFlow::Continue(())
            })?;
            self.bytes += more;
            self.copied.rows.append(&mut found);
            if next.is_some() {
                self.copied.next = next;
                return Ok(());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
