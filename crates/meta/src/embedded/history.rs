//! The most recent writes, for watches.

use std::collections::VecDeque;

use crate::{ChangedKey, Prefix, Revision, WatchBatch, WatchEvent};

/// Most writes that are kept.
const MAX_BATCHES: usize = 16_384;
/// Most bytes of keys and values that are kept.
const MAX_BYTES: usize = 16 << 20;

/// The last writes, the oldest first.
#[derive(Debug)]
pub(super) struct History {
    batches: VecDeque<WatchBatch>,
    bytes: usize,
    /// All writes after this revision are kept.
    floor: Revision,
}

impl History {
    /// An empty history after a revision.
    pub(super) fn after(floor: Revision) -> Self {
        Self { batches: VecDeque::new(), bytes: 0, floor }
    }

    pub(super) fn push(&mut self, batch: WatchBatch) {
        self.bytes += byte_len(&batch);
        self.batches.push_back(batch);
        while self.batches.len() > MAX_BATCHES || self.bytes > MAX_BYTES {
            self.drop_first();
        }
    }

    /// Discards the writes up to a revision.
    #[cfg(any(test, feature = "conformance"))]
    pub(super) fn forget(&mut self, up_to: Revision) {
        while self.batches.front().is_some_and(|batch| batch.revision <= up_to) {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        if let Some(batch) = self.batches.pop_front() {
            self.bytes -= byte_len(&batch);
            self.floor = batch.revision;
        }
    }

    /// The first write after revision `after` that touched a key with the prefix; `None` if there is none yet. Advances `after` to
    /// the last revision that was searched.
    pub(super) fn next(&self, prefix: &Prefix, after: &mut Revision) -> Option<WatchEvent> {
        if *after < self.floor {
            return Some(WatchEvent::Compacted);
        }
        let start = self.batches.partition_point(|batch| batch.revision <= *after);
        for batch in self.batches.range(start..) {
            *after = batch.revision;
            let changes: Vec<ChangedKey> =
                batch.changes.iter().filter(|one| prefix.covers(&one.key)).cloned().collect();
            if !changes.is_empty() {
                return Some(WatchEvent::Changed(WatchBatch { revision: batch.revision, changes }));
            }
        }
        None
    }
}

fn byte_len(batch: &WatchBatch) -> usize {
    let entry = |one: &ChangedKey| one.entry.as_ref().map_or(0, |entry| entry.value.len());
    batch.changes.iter().map(|one| one.key.as_str().len() + entry(one)).sum()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{Key, MetaEntry};

    fn batch(revision: u64, bytes: usize) -> WatchBatch {
        let revision = Revision(revision);
        let entry = MetaEntry { value: Bytes::from(vec![0; bytes]), revision, session: None };
        WatchBatch { revision, changes: vec![ChangedKey { key: Key::new("k").unwrap(), entry: Some(entry) }] }
    }

    fn first(history: &History, after: u64) -> Option<WatchEvent> {
        history.next(&Prefix::all(), &mut Revision(after))
    }

    #[test]
    fn oldest_writes_are_discarded_over_the_bounds_and_watches_learn_it() {
        let mut history = History::after(Revision(10));
        for revision in 11..=30 {
            history.push(batch(revision, 1 << 20));
        }
        assert_eq!(first(&history, 10), Some(WatchEvent::Compacted));
        assert_eq!(first(&history, 15), Some(WatchEvent::Changed(batch(16, 1 << 20))));
        let mut history = History::after(Revision(0));
        for revision in 1..=MAX_BATCHES as u64 + 5 {
            history.push(batch(revision, 0));
        }
        assert_eq!(first(&history, 4), Some(WatchEvent::Compacted));
        assert_eq!(first(&history, 5), Some(WatchEvent::Changed(batch(6, 0))));
    }
}
