//! Remembers what changes while another brick copies a logical node.

use model::Result;
use store::RowChanges;
use tracing::warn;

use super::{NodeDriver, rows};
use crate::brick::changed_contents;
use crate::brick::changed_rows::ChangedRows;
use crate::brick::node_manager::begin_attempt;
use crate::brick::plant::{Bug, planted};

impl<C: Clone> NodeDriver<C> {
    /// These rows are durable.
    pub(super) fn record_changes(&mut self, changes: &RowChanges) {
        let Some(changed) = self.changed_since_copy.as_mut().filter(|_| !planted(Bug::ChangesForgotten)) else {
            return;
        };
        let contents = changes.contents().iter().filter(|_| !planted(Bug::ContentChangesForgotten));
        let is_listed = contents.flat_map(changed_contents::changed_keys).all(|key| changed.add(&key));
        if !is_listed || !changes.keys().all(|key| changed.add(key)) {
            warn!(node = %self.node, "more has changed while it is copied than can be remembered: that begins again");
            self.changed_since_copy = None;
        }
    }

    /// What has changed since an attempt to copy the node began, which it does with its first request.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](model::ErrorKind::NotFound) if that is not known.
    pub(crate) fn changes_for_attempt(&mut self, attempt: u64, got: u64) -> Result<&mut ChangedRows> {
        begin_attempt(&mut self.changed_since_copy, attempt, got)
    }

    /// Nobody copies the node any more.
    pub(crate) fn stop_tracking(&mut self) {
        self.changed_since_copy = None;
    }

    /// What has changed up to its end, all of which is durable.
    pub(crate) fn take_changes(&mut self) -> Option<ChangedRows> {
        let mut changed = self.changed_since_copy.take()?;
        // Reservations do not go through the rows of the machine.
        self.pages.spaces().all(|space| changed.add(&rows::free_key(self.node, space))).then_some(changed)
    }
}
