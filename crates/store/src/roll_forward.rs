//! Rolling forward: applies archives of changes (`backup::changes`) to a restored store, one after the other.
//!
//! The changes are committed as those of any user of the store are. Nothing but the restore uses the store meanwhile, so what an archive changes need
//! not be one commit.

use std::collections::VecDeque;
use std::io::Read;
use std::ops::Range;
use std::sync::mpsc::{self, Receiver};

use bytes::Bytes;
use model::{ContentId, Error, ErrorKind, Result, limits};

use crate::backup::archive::{ArchiveHeader, ArchiveKind, ArchiveReader, damage_error};
use crate::backup::item::Item;
use crate::commit::contents::ContentChange;
use crate::commit::row_changes::{RowChanges, RowSequence};
use crate::plant::{TrackingBug, planted};
use crate::rows::row::CHUNK;
use crate::store::Store;

/// Changes that are committed together.
const BATCH_BYTES: usize = 4 << 20;
const BATCH_OPERATIONS: usize = 10_000;
/// Commits that are under way at a time.
const MAX_PENDING: usize = 8;

/// A store that is rolled forward.
pub struct RollForward<'a> {
    store: &'a Store,
    sequence: RowSequence,
    changes: RowChanges,
    pending: VecDeque<Receiver<Result<u64>>>,
}

/// What is known of the content whose chunks follow.
struct OpenContent {
    id: ContentId,
    size: u64,
    cleared: Range<u64>,
    next: u64,
}

/// Verifies a whole archive of changes. Returns its position in the log of the store that was backed up.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if it is damaged or incomplete; [`ErrorKind::Invalid`] if it is another archive; those of reading.
pub fn check_changes(from: &mut dyn Read) -> Result<u64> {
    let mut archive = ArchiveReader::begin(Box::new(from))?;
    let version = changes_header(&archive.header)?.version;
    while archive.next_item()?.is_some() {}
    Ok(version)
}

fn changes_header(header: &ArchiveHeader) -> Result<&ArchiveHeader> {
    match header.kind {
        ArchiveKind::Changes => Ok(header),
        ArchiveKind::Full | ArchiveKind::Increment => {
            Err(Error::new(ErrorKind::Invalid, "this is an archive of a state, where one of changes is expected"))
        }
    }
}

impl<'a> RollForward<'a> {
    /// Begins with a store that has the state before the first archive.
    #[must_use]
    pub fn begin(store: &'a Store) -> Self {
        let sequence = RowSequence::new();
        let changes = sequence.changes();
        Self { store, sequence, changes, pending: VecDeque::new() }
    }

    /// Applies the next archive of changes.
    ///
    /// # Errors
    /// Those of [`check_changes`], and those of the store.
    pub fn apply(&mut self, from: &mut dyn Read) -> Result<()> {
        let mut archive = ArchiveReader::begin(Box::new(from))?;
        changes_header(&archive.header)?;
        let mut content = None;
        while let Some((item, _)) = archive.next_item()? {
            self.item(&item, &mut content)?;
            if self.changes.bytes() >= BATCH_BYTES || self.changes.len() >= BATCH_OPERATIONS {
                self.commit()?;
            }
        }
        Ok(())
    }

    /// Waits until all changes are durable.
    ///
    /// # Errors
    /// Those of the store.
    pub fn finish(mut self) -> Result<()> {
        if !self.changes.is_empty() {
            self.commit()?;
        }
        while !self.pending.is_empty() {
            self.wait()?;
        }
        Ok(())
    }

    fn item(&mut self, item: &Item<'_>, open: &mut Option<OpenContent>) -> Result<()> {
        match item {
            Item::Row { key, value } => {
                *open = None;
                self.changes.put(key, Bytes::copy_from_slice(value));
            }
            Item::RemovedRow { key } => {
                *open = None;
                if !planted(TrackingBug::RemovalsNotApplied) {
                    self.changes.remove(key);
                }
            }
            Item::RemovedContent { id } => {
                *open = None;
                self.changes.content(ContentChange::Delete { id: *id });
            }
            Item::Content { id, size } => {
                if *size > limits::BLOB {
                    return Err(damage_error(format!("content {id} has {size} bytes")));
                }
                *open = Some(OpenContent { id: *id, size: *size, cleared: 0..0, next: 0 });
                self.changes.content(ContentChange::Resize { id: *id, size: *size });
            }
            Item::Cleared { from, to } => {
                let content = open.as_mut().ok_or_else(|| damage_error("chunks come before their content"))?;
                if *from < content.cleared.end || from >= to || *to > content.size.div_ceil(CHUNK as u64) {
                    return Err(damage_error(format!(
                        "the chunks {from}..{to} of content {} are out of order",
                        content.id
                    )));
                }
                content.cleared = *from..*to;
                content.next = *from;
                let offset = from * CHUNK as u64;
                let len = (to * CHUNK as u64).min(content.size) - offset;
                self.changes.content(ContentChange::Zero { id: content.id, offset, len });
            }
            Item::Bytes { index, bytes } => {
                let content = open.as_mut().ok_or_else(|| damage_error("a chunk comes before its content"))?;
                let offset = index.saturating_mul(CHUNK as u64);
                let is_next =
                    (content.next..content.cleared.end).contains(index) || planted(TrackingBug::ChunksNotCleared);
                if !is_next || offset + bytes.len() as u64 > content.size {
                    return Err(damage_error(format!("chunk {index} of content {} is out of order", content.id)));
                }
                content.next = index + 1;
                let data = Bytes::copy_from_slice(bytes);
                self.changes.content(ContentChange::Write { id: content.id, offset, data });
            }
            Item::Incarnation { .. }
            | Item::Extent { .. }
            | Item::RangeEnd { .. }
            | Item::Same { .. }
            | Item::Replaced { .. } => return Err(damage_error("an item that is not one of changes")),
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        while self.pending.len() >= MAX_PENDING {
            self.wait()?;
        }
        let changes = std::mem::replace(&mut self.changes, self.sequence.changes());
        let (done, committed) = mpsc::channel();
        self.store.submit_rows(changes, move |result| drop(done.send(result)));
        self.pending.push_back(committed);
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        let Some(committed) = self.pending.pop_front() else { return Ok(()) };
        if !self.store.core().options.threads {
            self.store.force()?;
        }
        let closed = |_| Err(Error::new(ErrorKind::Internal, "the store has closed during a restore"));
        committed.recv().unwrap_or_else(closed).map(drop)
    }
}
