//! The last writes, for those who watch.

use std::collections::VecDeque;

use crate::{Batch, Changed, Prefix, Revision, Watched};

/// Writes that are kept.
const BATCHES: usize = 16_384;
/// Bytes of keys and values that are kept.
const BYTES: usize = 16 << 20;

/// The last writes, oldest first.
#[derive(Debug)]
pub(super) struct History {
    batches: VecDeque<Batch>,
    bytes: usize,
    /// All that came after this revision is here.
    floor: Revision,
}

impl History {
    /// One that begins after a revision.
    pub(super) fn after(floor: Revision) -> Self {
        Self { batches: VecDeque::new(), bytes: 0, floor }
    }

    pub(super) fn push(&mut self, batch: Batch) {
        self.bytes += bytes(&batch);
        self.batches.push_back(batch);
        while self.batches.len() > BATCHES || self.bytes > BYTES {
            self.drop_first();
        }
    }

    /// Forgets what came up to a revision.
    #[cfg(any(test, feature = "conformance"))]
    pub(super) fn forget(&mut self, up_to: Revision) {
        while self.batches.front().is_some_and(|batch| batch.revision <= up_to) {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        if let Some(batch) = self.batches.pop_front() {
            self.bytes -= bytes(&batch);
            self.floor = batch.revision;
        }
    }

    /// The first write after a revision that touched such keys; `None` if there is none yet. Moves `after` to what was
    /// looked at.
    pub(super) fn next(&self, prefix: &Prefix, after: &mut Revision) -> Option<Watched> {
        if *after < self.floor {
            return Some(Watched::Compacted);
        }
        let start = self.batches.partition_point(|batch| batch.revision <= *after);
        for batch in self.batches.range(start..) {
            *after = batch.revision;
            let changes: Vec<Changed> = batch.changes.iter().filter(|one| prefix.covers(&one.key)).cloned().collect();
            if !changes.is_empty() {
                return Some(Watched::Changed(Batch { revision: batch.revision, changes }));
            }
        }
        None
    }
}

fn bytes(batch: &Batch) -> usize {
    let entry = |one: &Changed| one.entry.as_ref().map_or(0, |entry| entry.value.len());
    batch.changes.iter().map(|one| one.key.as_str().len() + entry(one)).sum()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{Entry, Key};

    fn batch(revision: u64, bytes: usize) -> Batch {
        let revision = Revision(revision);
        let entry = Entry { value: Bytes::from(vec![0; bytes]), revision, session: None };
        Batch { revision, changes: vec![Changed { key: Key::new("k").unwrap(), entry: Some(entry) }] }
    }

    fn first(history: &History, after: u64) -> Option<Watched> {
        history.next(&Prefix::all(), &mut Revision(after))
    }

    #[test]
    fn it_forgets_the_oldest_over_its_bounds_and_says_so() {
        let mut history = History::after(Revision(10));
        for revision in 11..=30 {
            history.push(batch(revision, 1 << 20));
        }
        assert_eq!(first(&history, 10), Some(Watched::Compacted));
        assert_eq!(first(&history, 15), Some(Watched::Changed(batch(16, 1 << 20))));
        let mut history = History::after(Revision(0));
        for revision in 1..=BATCHES as u64 + 5 {
            history.push(batch(revision, 0));
        }
        assert_eq!(first(&history, 4), Some(Watched::Compacted));
        assert_eq!(first(&history, 5), Some(Watched::Changed(batch(6, 0))));
    }
}
