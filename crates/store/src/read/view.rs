//! The buffers over the B-tree, and the positions of the log that readers pin.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::plant::{Bug, planted};
use crate::rows::mob::{Mob, Seq};

/// The buffers over the B-tree.
pub(crate) struct View {
    /// Receives new changes.
    pub(crate) active: Arc<Mob>,
    /// Receives no changes; it is being installed.
    pub(crate) frozen: Option<Arc<Mob>>,
}

impl View {
    pub(crate) fn new(active: Mob) -> Self {
        Self { active: Arc::new(active), frozen: None }
    }
}

/// Positions in order, with the number of pins of each. Nearly every read pins a position briefly, so a few are stored
/// without allocating.
#[derive(Default)]
struct PinCounts(SmallVec<[(Seq, usize); 8]>);

impl PinCounts {
    fn add(&mut self, seq: Seq) {
        match self.0.binary_search_by_key(&seq, |(seq, _)| *seq) {
            Ok(at) => self.0[at].1 += 1,
            Err(at) => self.0.insert(at, (seq, 1)),
        }
    }

    fn remove(&mut self, seq: Seq) {
        if let Ok(at) = self.0.binary_search_by_key(&seq, |(seq, _)| *seq) {
            self.0[at].1 -= 1;
            if self.0[at].1 == 0 {
                self.0.remove(at);
            }
        }
    }

    fn oldest(&self) -> Option<Seq> {
        self.0.first().map(|(seq, _)| *seq)
    }
}

/// The positions that readers have pinned.
pub(crate) struct PinTable {
    pinned: Mutex<PinCounts>,
    /// The smallest pinned position, or `u64::MAX` if there is none.
    oldest: AtomicU64,
}

/// A pinned position.
pub(crate) struct Pin<S: std::ops::Deref<Target = PinTable>> {
    snapshots: S,
    pub(crate) seq: Seq,
}

impl PinTable {
    pub(crate) fn new() -> Self {
        Self { pinned: Mutex::default(), oldest: AtomicU64::new(Seq::MAX) }
    }

    /// Pins the newest durable position, which `visible` returns.
    pub(crate) fn pin<S: std::ops::Deref<Target = Self>>(this: S, visible: impl Fn() -> Seq) -> Pin<S> {
        let mut pinned = this.pinned.lock();
        // First lower the horizon, then choose the position. A thread that read the horizon before got a position that
        // was visible earlier, which is at most the position chosen now.
        this.oldest.fetch_min(visible(), Ordering::SeqCst);
        let seq = visible();
        pinned.add(seq);
        drop(pinned);
        Pin { snapshots: this, seq }
    }

    /// Adds a pin to a position that is already pinned.
    pub(crate) fn pin_again<S: std::ops::Deref<Target = Self>>(this: S, seq: Seq) -> Pin<S> {
        let mut pinned = this.pinned.lock();
        pinned.add(seq);
        this.oldest.fetch_min(seq, Ordering::SeqCst);
        drop(pinned);
        Pin { snapshots: this, seq }
    }

    /// The position at or below which readers need only the newest versions.
    ///
    /// A reader that pins concurrently pins this position or a later one.
    pub(crate) fn horizon(&self, visible: &AtomicU64) -> Seq {
        let visible = visible.load(Ordering::SeqCst);
        if planted(Bug::SnapshotPruned) {
            return visible;
        }
        self.oldest.load(Ordering::SeqCst).min(visible)
    }

    /// The oldest pinned position.
    pub(crate) fn oldest(&self) -> Option<Seq> {
        self.pinned.lock().oldest()
    }

    pub(crate) fn count(&self) -> usize {
        self.pinned.lock().0.iter().map(|(_, count)| count).sum()
    }
}

impl<S: std::ops::Deref<Target = PinTable>> Drop for Pin<S> {
    fn drop(&mut self) {
        let mut pinned = self.snapshots.pinned.lock();
        pinned.remove(self.seq);
        let oldest = pinned.oldest().unwrap_or(Seq::MAX);
        self.snapshots.oldest.store(oldest, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn no_horizon_passes_a_position_that_is_being_pinned() {
        let (snapshots, visible, horizon) = (PinTable::new(), AtomicU64::new(10), Cell::new(0));
        // After each read of the visible position, a writer makes more visible and asks for the horizon.
        let look = || {
            let seen = visible.fetch_add(2, Ordering::SeqCst);
            horizon.set(snapshots.horizon(&visible).max(horizon.get()));
            seen
        };
        let pin = PinTable::pin(&snapshots, look);
        assert!(horizon.get() <= pin.seq, "the horizon {} is above the pinned position {}", horizon.get(), pin.seq);
        assert!(snapshots.horizon(&visible) <= pin.seq);
        drop(pin);
        assert_eq!(snapshots.horizon(&visible), visible.load(Ordering::SeqCst));
    }
}
