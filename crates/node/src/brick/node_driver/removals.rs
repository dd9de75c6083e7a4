//! What is being removed, and so is refused: a space, or classes of it.
//!
//! The catalogue marks what is to be removed if it has no objects. From then on a logical node accepts no writes of it. Once all that it
//! had accepted before is decided and durable, what the store has is what there is, and stays so as long as the mark does.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use meta::catalog::Removals;
use model::{ClassId, Error, ErrorKind, Object, Result, SpaceId};
use protocol::commit::Part;
use protocol::ident::TxnId;
use protocol::page_cache::ObjectState;

use super::admission::DeferredTransaction;
use super::{NodeDriver, rows};
use crate::brick::page_rows::Rows;
use crate::brick::plant::{Bug, planted};
use crate::brick::row_reader::RowReader;

/// What a logical node had accepted at some time.
#[derive(Clone, Debug, Default)]
pub(crate) struct AcceptedWork {
    position: u64,
    prepared: BTreeSet<TxnId>,
}

impl<C: Clone> NodeDriver<C> {
    /// This is being removed now.
    pub(crate) fn set_removals(&mut self, removals: &Removals) {
        if self.removals != *removals {
            self.removals = removals.clone();
        }
    }

    /// Checks that nothing is written that is being removed. A removal ends soon, so the transaction is deferred.
    ///
    /// # Errors
    /// Why the transaction is deferred.
    pub(super) fn check_removals(&self, part: &Part<Object>) -> std::result::Result<(), DeferredTransaction> {
        if self.removals.is_none() {
            return Ok(());
        }
        let deferred = |why| Err(DeferredTransaction { kind: ErrorKind::Unavailable, why });
        let has_writes = !part.writes.is_empty() || !part.entries.is_empty();
        if has_writes && self.removals.space.is_some() && !planted(Bug::RemovedSpaceWritten) {
            return deferred(SPACE_REMOVED.to_owned());
        }
        let classes = part.writes.iter().filter(|(_, written)| **written != ObjectState::Absent);
        let mut removed =
            classes.map(|(oid, _)| oid.class()).filter(|class| self.removals.classes.contains_key(&class.0));
        match removed.next().filter(|_| !planted(Bug::RemovedClassWritten)) {
            None => Ok(()),
            Some(class) => deferred(format!(
                "class {} is being removed if it has no objects: try again; if no command removes it any more, \
                 `mortar class rm NAME --cancel` takes that back",
                self.class_name(class)
            )),
        }
    }

    fn class_name(&self, class: ClassId) -> String {
        let known = self.index.schema().and_then(|schema| schema.class(class));
        known.map_or_else(|| class.0.to_string(), |known| known.class().name.clone())
    }

    /// Checks that the space is not being removed, for an upload.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if it is.
    pub(crate) fn check_space_stays(&self) -> Result<()> {
        match self.removals.space {
            Some(_) => Err(Error::new(ErrorKind::Unavailable, SPACE_REMOVED)),
            None => Ok(()),
        }
    }

    /// What is accepted now and not ended.
    pub(crate) fn accepted_work(&self) -> AcceptedWork {
        AcceptedWork { position: self.writer.last_position(), prepared: self.prepared_txns() }
    }

    /// Whether all this is decided and durable.
    pub(crate) fn has_ended(&self, work: &AcceptedWork) -> bool {
        let is_durable = self.writer.durable_position() >= work.position || planted(Bug::EmptyBeforeDurable);
        let is_decided = self.prepared_txns().is_disjoint(&work.prepared) || planted(Bug::EmptyBeforeDecided);
        is_durable && is_decided
    }

    /// What looks for objects here: all that are durable, or those of a class. The driver need not be locked meanwhile.
    pub(crate) fn object_search(&self, space: SpaceId, class: Option<ClassId>) -> ObjectSearch {
        let range = match class {
            None => rows::table_range(b'P', self.node),
            Some(class) => rows::extent_range(self.node, space, class, None),
        };
        ObjectSearch { reader: self.reader.clone(), range }
    }
}

/// Looks for objects of a logical node. The row that counts them does not tell: a space must not be removed because a number is wrong.
pub(crate) struct ObjectSearch {
    reader: RowReader,
    range: (rows::Key, rows::Key),
}

impl ObjectSearch {
    /// Whether there are any. It may read the heads of all pages.
    ///
    /// # Errors
    /// If rows cannot be read.
    pub(crate) fn has_any(&self) -> Result<bool> {
        let (from, to) = &self.range;
        let mut has_any = false;
        self.reader.each(from, to, |key, _| {
            // A page keeps its head when its last object is deleted.
            has_any = !matches!(rows::parse_key(key), Some((_, None)));
            if has_any { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(has_any)
    }
}

const SPACE_REMOVED: &str = "the space is being removed if it has no objects: try again; if no command removes it any more, \
                             `mortar space rm NAME --cancel` takes that back";
