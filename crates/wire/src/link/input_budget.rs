//! Bounds the memory that unfinished frames of all connections of a server take together.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::mailbox::{Item, Mailbox};

/// Bytes of an unfinished frame that are not counted: as many as a connection without a buffer of its own may keep.
const UNCOUNTED: usize = 32 << 10;

/// Bytes of unfinished frames that the connections which share it may keep.
///
/// When a frame grows beyond what is left, the connection whose unfinished frame is the oldest is ended: a frame that is being
/// sent is finished soon, so the oldest one is likely to be one that never will be.
#[derive(Debug)]
pub struct InputBudget {
    max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The sum of the bytes of `frames`.
    used: usize,
    last: u64,
    /// Unfinished frames, the oldest first.
    frames: BTreeMap<u64, UnfinishedFrame>,
}

#[derive(Debug)]
struct UnfinishedFrame {
    bytes: usize,
    mailbox: Weak<Mailbox>,
}

impl InputBudget {
    /// A budget of `max` bytes.
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, state: Mutex::default() })
    }

    /// Bytes in use.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.lock().used
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No statement between a change of `used` and that of `frames` can panic: see `State`.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one connection uses of a budget; returned when it is dropped.
#[derive(Debug, Default)]
pub(super) struct InputCharge {
    budget: Option<Arc<InputBudget>>,
    /// The number of the unfinished frame, while it is counted.
    number: Option<u64>,
    bytes: usize,
}

impl InputCharge {
    pub(super) fn new(budget: Arc<InputBudget>) -> Self {
        Self { budget: Some(budget), number: None, bytes: 0 }
    }

    /// Counts an unfinished frame of which `bytes` have arrived; 0 if there is none. `false`: the budget is used up and it is the
    /// oldest one itself, or another thread has evicted it.
    pub(super) fn set(&mut self, bytes: usize, mailbox: &Arc<Mailbox>) -> bool {
        let bytes = if bytes > UNCOUNTED { bytes } else { 0 };
        if bytes == self.bytes {
            return true;
        }
        // Fewer bytes: it is another frame.
        if bytes < self.bytes {
            self.release();
        }
        let Some(budget) = self.budget.as_ref().filter(|_| bytes > 0) else { return true };
        let mut state = budget.lock();
        // An evicted frame must not be counted again: its bytes were returned, and its mailbox may not have been read yet.
        if self.number.is_some_and(|number| !state.frames.contains_key(&number)) {
            (self.number, self.bytes) = (None, 0);
            return false;
        }
        let number = *self.number.get_or_insert_with(|| {
            state.last += 1;
            state.last
        });
        state.used += bytes - self.bytes;
        self.bytes = bytes;
        state.frames.insert(number, UnfinishedFrame { bytes, mailbox: Arc::downgrade(mailbox) });
        while state.used > budget.max {
            let Some((oldest, frame)) = state.frames.pop_first() else { break };
            state.used = state.used.saturating_sub(frame.bytes);
            if oldest == number {
                (self.number, self.bytes) = (None, 0);
                return false;
            }
            if let Some(mailbox) = frame.mailbox.upgrade() {
                let _ = mailbox.push(Item::InputBudgetExceeded);
            }
        }
        true
    }

    fn release(&mut self) {
        let (Some(budget), Some(number)) = (&self.budget, self.number.take()) else { return };
        let mut state = budget.lock();
        // A frame that was evicted is not counted any more.
        if let Some(frame) = state.frames.remove(&number) {
            state.used = state.used.saturating_sub(frame.bytes);
        }
        self.bytes = 0;
    }
}

impl Drop for InputCharge {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn is_evicted(mailbox: &Mailbox) -> bool {
        let mut items = Vec::new();
        mailbox.take(&mut items);
        items.iter().any(|item| matches!(item, Item::InputBudgetExceeded))
    }

    #[test]
    fn oldest_unfinished_frame_is_evicted() {
        let budget = InputBudget::new(10 * MIB);
        let mailboxes: Vec<Arc<Mailbox>> = (0..4).map(|_| Arc::default()).collect();
        let mut charges: Vec<InputCharge> = (0..4).map(|_| InputCharge::new(budget.clone())).collect();
        for (charge, mailbox) in charges.iter_mut().zip(&mailboxes).take(3) {
            assert!(charge.set(MIB, mailbox) && charge.set(3 * MIB, mailbox));
        }
        assert_eq!(budget.used_bytes(), 9 * MIB);
        assert!(charges[3].set(2 * MIB, &mailboxes[3]));
        let all: Vec<bool> = mailboxes.iter().map(|mailbox| is_evicted(mailbox)).collect();
        assert_eq!(all, [true, false, false, false]);
        assert_eq!(budget.used_bytes(), 8 * MIB);
        // The evicted one returns nothing a second time.
        charges.remove(0);
        assert_eq!(budget.used_bytes(), 8 * MIB);
        charges.clear();
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn a_frame_that_grows_after_its_eviction_is_refused_and_counted_once() {
        let budget = InputBudget::new(10 * MIB);
        let mailboxes: [Arc<Mailbox>; 2] = Default::default();
        let mut charges: [InputCharge; 2] = std::array::from_fn(|_| InputCharge::new(budget.clone()));
        assert!(charges[0].set(4 * MIB, &mailboxes[0]));
        assert!(charges[1].set(8 * MIB, &mailboxes[1]), "the other frame is evicted");
        // More of the evicted frame arrives before its driver reads the mailbox.
        assert!(!charges[0].set(5 * MIB, &mailboxes[0]));
        assert_eq!(budget.used_bytes(), 8 * MIB);
        drop(charges);
        assert_eq!(budget.used_bytes(), 0);
        assert!(InputCharge::new(budget).set(9 * MIB, &mailboxes[1]), "the budget is whole again");
    }

    #[test]
    fn a_frame_that_is_finished_returns_its_bytes_and_small_ones_are_not_counted() {
        let budget = InputBudget::new(10 * MIB);
        let (mailbox, mut charge) = (Arc::default(), InputCharge::new(budget.clone()));
        assert!(charge.set(5 * MIB, &mailbox));
        assert!(charge.set(UNCOUNTED, &mailbox));
        assert_eq!(budget.used_bytes(), 0);
        // The next frame begins anew.
        assert!(charge.set(5 * MIB, &mailbox) && charge.set(4 * MIB, &mailbox));
        assert_eq!(budget.used_bytes(), 4 * MIB);
        assert!(!charge.set(11 * MIB, &mailbox), "one frame alone exceeds the budget");
        assert_eq!(budget.used_bytes(), 0);
        assert!(!is_evicted(&mailbox), "the return value reports that");
    }

    #[test]
    fn a_connection_without_a_budget_is_not_bound() {
        let mut charge = InputCharge::default();
        assert!(charge.set(1 << 40, &Arc::default()));
    }
}
