//! Bounds the memory that all connections of a server take together for unfinished frames, and for what is not sent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::mailbox::{Item, Mailbox};

/// Bytes of an unfinished frame that are not counted: as many as a connection without a buffer of its own may keep.
const UNCOUNTED: usize = 32 << 10;
/// Unsent bytes that are not counted.
const UNCOUNTED_UNSENT: usize = 64 << 10;
/// Unsent bytes from which on a connection is not read if half of the budget is used.
const PRESSED_UNSENT: usize = 256 << 10;
/// A connection that has sent this many bytes of what is unsent is taken for one that has just begun to be behind.
const RENEWAL: u64 = 1 << 20;

/// Bytes that the connections which share it may keep.
///
/// When one would keep more than what is left, the connection is ended whose bytes are the oldest. A frame that is being sent is finished
/// soon, so the oldest unfinished one is likely to be one that never will be; and a connection that takes what is sent is not behind
/// for long.
#[derive(Debug)]
pub struct MemoryBudget {
    max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The sum of the bytes of `entries`.
    used: usize,
    last: u64,
    /// The oldest first.
    entries: BTreeMap<u64, Entry>,
}

/// What a connection keeps.
#[derive(Debug)]
struct Entry {
    bytes: usize,
    mailbox: Weak<Mailbox>,
}

impl MemoryBudget {
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
        // No statement between a change of `used` and that of `entries` can panic: see `State`.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one connection uses of a budget; returned when it is dropped.
#[derive(Debug, Default)]
struct Charge {
    budget: Option<Arc<MemoryBudget>>,
    /// The number of the entry, while it is counted.
    number: Option<u64>,
    bytes: usize,
}

impl Charge {
    fn new(budget: Arc<MemoryBudget>) -> Self {
        Self { budget: Some(budget), number: None, bytes: 0 }
    }

    /// Counts these bytes instead of those before, as old as those. `false`: the budget is used up and they are the oldest ones
    /// themselves, or another thread has evicted them.
    fn set(&mut self, bytes: usize, mailbox: &Arc<Mailbox>, evict: impl Fn() -> Item) -> bool {
        if bytes == self.bytes {
            return true;
        }
        if bytes == 0 {
            self.release();
        }
        let Some(budget) = self.budget.as_ref().filter(|_| bytes > 0) else { return true };
        let mut state = budget.lock();
        // An evicted entry must not be counted again: its bytes were returned, and its mailbox may not have been read yet.
        if self.number.is_some_and(|number| !state.entries.contains_key(&number)) {
            (self.number, self.bytes) = (None, 0);
            return false;
        }
        let number = *self.number.get_or_insert_with(|| {
            state.last += 1;
            state.last
        });
        state.used = (state.used + bytes).saturating_sub(self.bytes);
        self.bytes = bytes;
        state.entries.insert(number, Entry { bytes, mailbox: Arc::downgrade(mailbox) });
        while state.used > budget.max {
            let Some((oldest, entry)) = state.entries.pop_first() else { break };
            state.used = state.used.saturating_sub(entry.bytes);
            if oldest == number {
                (self.number, self.bytes) = (None, 0);
                return false;
            }
            if let Some(mailbox) = entry.mailbox.upgrade() {
                let _ = mailbox.push(evict());
            }
        }
        true
    }

    fn release(&mut self) {
        let (Some(budget), Some(number)) = (&self.budget, self.number.take()) else { return };
        let mut state = budget.lock();
        // An entry that was evicted is not counted any more.
        if let Some(entry) = state.entries.remove(&number) {
            state.used = state.used.saturating_sub(entry.bytes);
        }
        self.bytes = 0;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.release();
    }
}

/// What the unfinished frame of a connection uses of a budget.
#[derive(Debug, Default)]
pub(super) struct InputCharge(Charge);

impl InputCharge {
    pub(super) fn new(budget: Arc<MemoryBudget>) -> Self {
        Self(Charge::new(budget))
    }

    /// Counts an unfinished frame of which `bytes` have arrived; 0 if there is none. `false`: the connection is to end.
    pub(super) fn set(&mut self, bytes: usize, mailbox: &Arc<Mailbox>) -> bool {
        let bytes = if bytes > UNCOUNTED { bytes } else { 0 };
        // Fewer bytes: it is another frame.
        if bytes < self.0.bytes {
            self.0.release();
        }
        self.0.set(bytes, mailbox, || Item::InputBudgetExceeded)
    }
}

/// What the unsent bytes of a connection use of a budget.
#[derive(Debug, Default)]
pub(super) struct OutputCharge {
    charge: Charge,
    /// What the connection had sent when it began to be behind.
    sent_before: u64,
}

impl OutputCharge {
    pub(super) fn new(budget: Arc<MemoryBudget>) -> Self {
        Self { charge: Charge::new(budget), sent_before: 0 }
    }

    /// Counts what is unsent on a connection that has sent `sent` bytes. `false`: the connection is to end.
    pub(super) fn set(&mut self, unsent: usize, sent: u64, mailbox: &Arc<Mailbox>) -> bool {
        let unsent = if unsent > UNCOUNTED_UNSENT { unsent } else { 0 };
        if self.charge.number.is_none() {
            self.sent_before = sent;
        } else if sent - self.sent_before >= RENEWAL {
            // An evicted one stays evicted: its mailbox says so.
            self.charge.release();
            self.sent_before = sent;
        }
        self.charge.set(unsent, mailbox, || Item::OutputBudgetExceeded)
    }

    /// Whether a connection with these unsent bytes is not to be read, so that they become no more, because half of the budget is used.
    pub(super) fn is_pressed(&self, unsent: usize) -> bool {
        unsent >= PRESSED_UNSENT
            && self.charge.budget.as_ref().is_some_and(|budget| budget.used_bytes() > budget.max / 2)
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
        let budget = MemoryBudget::new(10 * MIB);
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
        let budget = MemoryBudget::new(10 * MIB);
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
        let budget = MemoryBudget::new(10 * MIB);
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

    fn is_ended_for_output(mailbox: &Mailbox) -> bool {
        let mut items = Vec::new();
        mailbox.take(&mut items);
        items.iter().any(|item| matches!(item, Item::OutputBudgetExceeded))
    }

    #[test]
    fn connections_that_are_behind_are_not_read_when_half_of_the_budget_is_used() {
        let budget = MemoryBudget::new(10 * MIB);
        let mailbox = Arc::default();
        let mut charge = OutputCharge::new(budget.clone());
        assert!(charge.set(4 * MIB, 0, &mailbox) && !charge.is_pressed(4 * MIB));
        assert!(charge.set(6 * MIB, 0, &mailbox));
        let other = OutputCharge::new(budget);
        assert!(other.is_pressed(MIB) && !other.is_pressed(1000));
        assert!(!OutputCharge::default().is_pressed(MIB), "it has no budget");
    }

    #[test]
    fn connection_that_has_taken_little_for_longest_is_evicted() {
        let budget = MemoryBudget::new(10 * MIB);
        let mailboxes: [Arc<Mailbox>; 4] = Default::default();
        let mut charges: [OutputCharge; 4] = std::array::from_fn(|_| OutputCharge::new(budget.clone()));
        for (charge, mailbox) in charges.iter_mut().zip(&mailboxes).take(3) {
            assert!(charge.set(3 * MIB, 0, mailbox));
        }
        // The first takes much, the second a trickle.
        assert!(charges[0].set(3 * MIB + 1, MIB as u64, &mailboxes[0]));
        assert!(charges[1].set(3 * MIB - 100, 100, &mailboxes[1]));
        assert!(charges[3].set(2 * MIB, 0, &mailboxes[3]));
        let all: Vec<bool> = mailboxes.iter().map(|mailbox| is_ended_for_output(mailbox)).collect();
        assert_eq!(all, [false, true, false, false]);
        assert_eq!(budget.used_bytes(), 8 * MIB + 1);
        // What is sent is returned, and few bytes are not counted.
        assert!(charges[0].set(UNCOUNTED_UNSENT, 4 * MIB as u64, &mailboxes[0]));
        assert_eq!(budget.used_bytes(), 5 * MIB);
        assert!(!charges[1].set(3 * MIB, 100, &mailboxes[1]), "it was evicted");
        drop(charges);
        assert_eq!(budget.used_bytes(), 0);
    }
}
