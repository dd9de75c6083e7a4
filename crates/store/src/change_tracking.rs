//! Change tracking: which rows and chunks have changed since a position of the log, for a backup that follows a store.
//!
//! 1. A tracker notes each change under the writer's lock, before the change is durable. So it knows each row and each chunk in which two states
//!    differ, if both are at or after the position at which it began.
//! 2. It notes an item, the key of a row or a chunk of a content, with the position of the last change. It forgets an item when only later changes are
//!    asked for.
//! 3. It notes no values: the changes of an item between two states count once, and the later state has its value.
//! 4. Memory is bounded: a tracker that has noted too much gives up.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use model::ContentId;
use parking_lot::Mutex;

use crate::log::entry::Step;
use crate::plant::{TrackingBug, planted};
use crate::rows::key::Key;
use crate::rows::mob::Seq;
use crate::rows::row::CHUNK;

/// Most bytes of what a tracker has noted.
const MAX_BYTES: usize = 64 << 20;
/// Estimated bytes of an item, without its key.
const ITEM_BYTES: usize = 96;
/// Chunks of one change that are noted one by one. A larger change counts as one of all chunks from its first one on.
const MAX_CHUNKS: u64 = 4_096;

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ChangedItem {
    Row(Key),
    /// The existence or the size of a content.
    Content(ContentId),
    Chunk(ContentId, u64),
    /// A chunk, and all chunks after it.
    Chunks(ContentId, u64),
}

/// Notes what changes, while it exists: see [`Store::track_changes`](crate::Store::track_changes).
pub struct ChangeTracker(Arc<Mutex<NotedChanges>>);

type Items = HashMap<ChangedItem, Seq>;

/// What a tracker has noted: each item with the position of its last change.
struct NotedChanges {
    /// The position of the log after which all changes were noted.
    begun: Seq,
    newest: Items,
    newest_bytes: usize,
    /// What was noted before each of the last calls of [`ChangeTracker::changes_since`]. A call takes the newest items as they are, so that it need not
    /// hold up the writer.
    older: Vec<OlderItems>,
    /// The position of the last change.
    last: Seq,
    has_given_up: bool,
    max_bytes: usize,
}

struct OlderItems {
    items: Arc<Items>,
    /// The position of their last change.
    last: Seq,
    bytes: usize,
}

/// The items that have changed since a position.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ChangeSet {
    pub(crate) contents: BTreeMap<ContentId, ChangedChunks>,
    /// Keys of the store's user.
    pub(crate) rows: BTreeSet<Key>,
}

/// Which chunks of a content have changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangedChunks {
    single: BTreeSet<u64>,
    /// This chunk, and all after it.
    from: Option<u64>,
}

impl ChangedChunks {
    /// The ranges of changed chunks, in order, of a content that has `count` chunks.
    pub(crate) fn ranges(&self, count: u64) -> Vec<Range<u64>> {
        let from = self.from.unwrap_or(u64::MAX).min(count);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for index in self.single.range(..from).copied() {
            match ranges.last_mut().filter(|last| last.end == index) {
                Some(last) => last.end += 1,
                None => ranges.push(index..index + 1),
            }
        }
        if from < count {
            ranges.push(from..count);
        }
        ranges
    }
}

impl ChangeTracker {
    /// The items that have changed after the position `version`, and perhaps some before it. Changes up to there are forgotten, so the next call must ask
    /// for the same or a later position. `None` if they are not known: too much has changed, or the tracker began later.
    #[must_use]
    pub fn changes_since(&self, version: u64) -> Option<ChangeSet> {
        let noted = self.0.lock().take_since(version)?;
        let mut changes = ChangeSet::default();
        let later = noted.iter().flat_map(|items| items.iter()).filter(|(_, seq)| **seq > version);
        for (item, _) in later {
            match item {
                ChangedItem::Row(key) => drop(changes.rows.insert(key.clone())),
                ChangedItem::Content(id) => drop(changes.contents.entry(*id).or_default()),
                ChangedItem::Chunk(id, index) => drop(changes.contents.entry(*id).or_default().single.insert(*index)),
                ChangedItem::Chunks(id, index) => {
                    let from = &mut changes.contents.entry(*id).or_default().from;
                    *from = Some(from.unwrap_or(u64::MAX).min(*index));
                }
            }
        }
        Some(changes)
    }

    /// Gives up when it has noted this many bytes.
    #[cfg(test)]
    pub(crate) fn set_max_bytes(&self, bytes: usize) {
        self.0.lock().max_bytes = bytes;
    }
}

impl NotedChanges {
    /// Notes the changes of a transaction.
    fn note_all(&mut self, steps: &[Step], seq: Seq) {
        if self.has_given_up {
            return;
        }
        // After a failed force positions are given again.
        self.last = self.last.max(seq);
        steps.iter().for_each(|step| self.note_step(step, seq));
        if self.newest_bytes + self.older.iter().map(|older| older.bytes).sum::<usize>() > self.max_bytes {
            (self.newest, self.newest_bytes, self.older) = (Items::new(), 0, Vec::new());
            self.has_given_up = !planted(TrackingBug::ForgetsWhenFull);
        }
    }

    fn note(&mut self, item: ChangedItem, seq: Seq) {
        let bytes = item_bytes(&item);
        if self.newest.insert(item, seq).is_none() {
            self.newest_bytes += bytes;
        }
    }

    /// Everything that was noted and may have changed after a position; the rest is forgotten.
    fn take_since(&mut self, version: Seq) -> Option<Vec<Arc<Items>>> {
        if self.has_given_up || version < self.begun {
            return None;
        }
        if !self.newest.is_empty() {
            let (items, bytes) = (std::mem::take(&mut self.newest), std::mem::take(&mut self.newest_bytes));
            self.older.push(OlderItems { items: Arc::new(items), last: self.last, bytes });
        }
        self.older.retain(|older| older.last > version && !planted(TrackingBug::LaterChangesForgotten));
        Some(self.older.iter().map(|older| older.items.clone()).collect())
    }

    fn note_chunks(&mut self, id: ContentId, chunks: Range<u64>, seq: Seq) {
        if chunks.end - chunks.start > MAX_CHUNKS {
            return self.note(ChangedItem::Chunks(id, chunks.start), seq);
        }
        for index in chunks {
            self.note(ChangedItem::Chunk(id, index), seq);
        }
    }

    fn note_step(&mut self, step: &Step, seq: Seq) {
        let chunk = CHUNK as u64;
        if let Some(id) = content_of(step) {
            self.note(ChangedItem::Content(id), seq);
        }
        match step {
            Step::Rows(rows) => {
                for row in rows.iter().filter(|row| !(row.is_removal() && planted(TrackingBug::RemovalsNotNoted))) {
                    self.note(ChangedItem::Row(row.key.clone()), seq);
                }
            }
            // A content that was deleted may be made again.
            Step::Delete { .. } if planted(TrackingBug::DeletedChunksNotNoted) => {}
            Step::CreateContent { id, .. } | Step::TakeUpload { id, .. } | Step::Delete { id } => {
                self.note(ChangedItem::Chunks(*id, 0), seq);
            }
            Step::Write { id, offset, bytes } => {
                let end = offset.saturating_add(bytes.len() as u64);
                self.note_chunks(*id, offset / chunk..end.div_ceil(chunk), seq);
            }
            Step::WriteChunks { id, index, extents } => {
                self.note_chunks(*id, *index..index.saturating_add(extents.len() as u64), seq);
            }
            // The size may fall and rise again before the next backup: what was cut off is zeros then.
            Step::Truncate { id, size } | Step::Resize { id, size } => {
                if !planted(TrackingBug::TruncatedTailNotNoted) {
                    self.note(ChangedItem::Chunks(*id, size / chunk), seq);
                }
            }
            Step::Zero { id, offset, len } => {
                let end = offset.saturating_add(*len);
                self.note_chunks(*id, offset / chunk..end.div_ceil(chunk), seq);
            }
            Step::Stage { .. } | Step::Reclaim { .. } | Step::Open { .. } => {}
        }
    }
}

fn content_of(step: &Step) -> Option<ContentId> {
    match step {
        Step::CreateContent { id, .. }
        | Step::TakeUpload { id, .. }
        | Step::Write { id, .. }
        | Step::WriteChunks { id, .. }
        | Step::Truncate { id, .. }
        | Step::Resize { id, .. }
        | Step::Zero { id, .. }
        | Step::Delete { id } => Some(*id),
        Step::Rows(_) | Step::Stage { .. } | Step::Reclaim { .. } | Step::Open { .. } => None,
    }
}

fn item_bytes(item: &ChangedItem) -> usize {
    match item {
        ChangedItem::Row(key) => ITEM_BYTES + key.len(),
        _ => ITEM_BYTES,
    }
}

/// The trackers of a store, which the writer's lock guards.
#[derive(Default)]
pub(crate) struct ChangeTrackers(Vec<Weak<Mutex<NotedChanges>>>);

impl ChangeTrackers {
    /// Begins a tracker of the changes after the position `last`, which is that of the last change so far.
    pub(crate) fn begin(&mut self, last: Seq) -> ChangeTracker {
        let noted = Arc::new(Mutex::new(NotedChanges {
            begun: last,
            newest: Items::new(),
            newest_bytes: 0,
            older: Vec::new(),
            last,
            has_given_up: false,
            max_bytes: MAX_BYTES,
        }));
        self.0.push(Arc::downgrade(&noted));
        ChangeTracker(noted)
    }

    /// Notes the changes of a transaction, before it is durable.
    pub(crate) fn note(&mut self, seq: Seq, steps: &[Step]) {
        if self.0.is_empty() {
            return;
        }
        self.0.retain(|tracker| match tracker.upgrade() {
            Some(noted) => {
                noted.lock().note_all(steps, seq);
                true
            }
            None => false,
        });
    }
}
