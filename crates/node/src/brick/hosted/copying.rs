//! Remembers what changes while another brick copies a logical node.

use model::Result;
use store::RowChanges;
use tracing::warn;

use super::{Hosted, rows};
use crate::brick::changed::{Changed, forgotten};
use crate::brick::plant::{Bug, planted};

impl Hosted {
    /// These rows are durable.
    pub(super) fn changed(&mut self, changes: &RowChanges) {
        let Some(changed) = self.copied.as_mut().filter(|_| !planted(Bug::ChangesForgotten)) else { return };
        if !changes.keys().all(|key| changed.add(key)) {
            warn!(node = %self.node, "more has changed while it is copied than can be remembered: that begins again");
            self.copied = None;
        }
    }

    /// What has changed since an attempt to copy the node was begun, which it is with its first question.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](model::ErrorKind::NotFound) if that is not known.
    pub(crate) fn copied_by(&mut self, attempt: u64, got: u64) -> Result<&mut Changed> {
        begin(&mut self.copied, attempt, got)
    }

    /// Nobody copies the node any more.
    pub(crate) fn is_not_copied(&mut self) {
        self.copied = None;
    }

    /// What has changed up to its end, all of which is durable.
    pub(crate) fn left(&mut self) -> Option<Changed> {
        let mut changed = self.copied.take()?;
        // Reservations do not go through the rows of the machine.
        self.free.keys().all(|space| changed.add(&rows::free_key(self.node, *space))).then_some(changed)
    }
}

/// What is remembered for an attempt: from its first question on, whose answers nobody has got.
///
/// # Errors
/// [`ErrorKind::NotFound`](model::ErrorKind::NotFound) if it is not known.
pub(crate) fn begin(copied: &mut Option<Changed>, attempt: u64, got: u64) -> Result<&mut Changed> {
    if got == 0 && copied.as_ref().is_none_or(|changed| !changed.is_of(attempt)) {
        *copied = Some(Changed::new(attempt));
    }
    copied.as_mut().ok_or_else(forgotten)
}
