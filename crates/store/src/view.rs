//! What readers look at: the buffer, the part of it being installed, and the B-tree, at one position of the log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::mob::{Mob, Seq};

/// The buffers that lie over the B-tree.
pub(crate) struct View {
    /// Takes new changes.
    pub(crate) active: Arc<Mob>,
    /// Takes none any more; it is being installed.
    pub(crate) frozen: Option<Arc<Mob>>,
}

impl View {
    pub(crate) fn new() -> Self {
        Self { active: Arc::new(Mob::new()), frozen: None }
    }
}

/// The positions that readers have pinned.
pub(crate) struct Snapshots {
    pinned: Mutex<BTreeMap<Seq, usize>>,
    /// The smallest of them, or the largest number if there is none.
    oldest: AtomicU64,
}

/// A pinned position.
pub(crate) struct Pin<S: std::ops::Deref<Target = Snapshots>> {
    snapshots: S,
    pub(crate) seq: Seq,
}

impl Snapshots {
    pub(crate) fn new() -> Self {
        Self { pinned: Mutex::new(BTreeMap::new()), oldest: AtomicU64::new(Seq::MAX) }
    }

    /// Pins the newest durable position.
    pub(crate) fn pin<S: std::ops::Deref<Target = Self>>(this: S, visible: &AtomicU64) -> Pin<S> {
        let mut pinned = this.pinned.lock();
        // First hold the horizon back, then choose the position. Who asked for the horizon before it was held back got
        // what was visible earlier still, so at most the position that is chosen now.
        this.oldest.fetch_min(visible.load(Ordering::SeqCst), Ordering::SeqCst);
        let seq = visible.load(Ordering::SeqCst);
        *pinned.entry(seq).or_insert(0) += 1;
        drop(pinned);
        Pin { snapshots: this, seq }
    }

    /// The position at or below which all versions but the newest are of no use.
    ///
    /// A reader that pins meanwhile pins this position or a later one.
    pub(crate) fn horizon(&self, visible: &AtomicU64) -> Seq {
        let visible = visible.load(Ordering::SeqCst);
        self.oldest.load(Ordering::SeqCst).min(visible)
    }

    /// The oldest pinned position.
    pub(crate) fn oldest(&self) -> Option<Seq> {
        self.pinned.lock().keys().next().copied()
    }

    pub(crate) fn count(&self) -> usize {
        self.pinned.lock().values().sum()
    }
}

impl<S: std::ops::Deref<Target = Snapshots>> Drop for Pin<S> {
    fn drop(&mut self) {
        let mut pinned = self.snapshots.pinned.lock();
        if let Some(count) = pinned.get_mut(&self.seq) {
            *count -= 1;
            if *count == 0 {
                pinned.remove(&self.seq);
            }
        }
        let oldest = pinned.keys().next().copied().unwrap_or(Seq::MAX);
        self.snapshots.oldest.store(oldest, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn no_horizon_ever_passes_a_pinned_position() {
        let (snapshots, visible, horizon) = (Snapshots::new(), AtomicU64::new(0), AtomicU64::new(0));
        let stop = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    visible.fetch_add(1, Ordering::SeqCst);
                }
            });
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    horizon.store(snapshots.horizon(&visible), Ordering::SeqCst);
                }
            });
            for _ in 0..100_000 {
                let pin = Snapshots::pin(&snapshots, &visible);
                for _ in 0..10 {
                    let horizon = horizon.load(Ordering::SeqCst);
                    assert!(horizon <= pin.seq, "{horizon} was of no use any more, and {} is pinned", pin.seq);
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
