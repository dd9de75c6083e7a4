//! The brick's part in cuts through the cluster (K1): [`CutParticipant`] decides, and this module holds the store.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::{Error, ErrorKind, Result};
use protocol::cut::{CutNumber, CutParticipant, CutRefusal, HoldReport, Run};
use protocol::lease::Ms;
use store::{Snapshot, Store};
use wire::driving::MonotonicClock;

/// How long the part of a cut is kept for a backup to begin, in milliseconds.
const KEEP_MS: Ms = 60_000;

/// The most parts that are kept: those of backups that begin at the same time.
const MAX_PARTS: usize = 4;

/// Cuts through the store of a brick.
pub(crate) struct Cuts {
    store: Store,
    time: MonotonicClock,
    state: Mutex<CutState>,
    /// Notifies of the end of a hold.
    ended: Condvar,
}

struct CutState {
    participant: CutParticipant,
    /// The parts of the last cuts that no backup has taken.
    parts: Vec<Part>,
}

struct Part {
    number: CutNumber,
    snapshot: Snapshot,
    /// It is dropped at this time.
    until: Ms,
}

/// Why a store does not hold.
#[derive(Debug)]
pub(crate) enum NotHeld {
    /// It does not take the number.
    Refused(CutRefusal),
    Failed(Error),
}

impl Cuts {
    pub(crate) fn new(store: Store) -> Self {
        let state = CutState { participant: CutParticipant::new(Run(rand::random())), parts: Vec::new() };
        Self { store, time: MonotonicClock::of_process(), state: Mutex::new(state), ended: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, CutState> {
        // The data is consistent between statements, so a poisoned lock is harmless.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the part of a cut, calls `report`, and holds the store until its release or for at most `hold_ms`. Then keeps the part for a
    /// while. It blocks all that time, so it is for a thread of its own.
    pub(crate) fn take(&self, number: CutNumber, hold_ms: Ms, report: impl FnOnce(std::result::Result<Run, NotHeld>)) {
        let mut state = self.lock();
        if let Err(why) = state.participant.begin(number, hold_ms, self.time.now()) {
            return report(Err(NotHeld::Refused(why)));
        }
        let run = state.participant.run();
        drop(state);
        let (hold, snapshot) = match self.store.hold() {
            Ok(held) => held,
            Err(error) => {
                self.lock().participant.release(number, self.time.now());
                return report(Err(NotHeld::Failed(error)));
            }
        };
        let mut state = self.lock();
        state.participant.poll(self.time.now());
        if !state.participant.holds(number) {
            drop(hold);
            let what = "the cut ended before the force under way: the disk is slow, or another cut begins";
            return report(Err(NotHeld::Failed(Error::new(ErrorKind::Unavailable, what))));
        }
        let until = self.time.now() + KEEP_MS;
        if state.parts.len() >= MAX_PARTS {
            state.parts.remove(0);
        }
        state.parts.push(Part { number, snapshot, until });
        drop(state);
        report(Ok(run));
        let mut state = self.lock();
        while state.participant.holds(number) {
            let now = self.time.now();
            if state.participant.poll(now) {
                tracing::warn!(
                    cut = number.0,
                    "the coordinator of a cut did not release the log in time; the cut does not count"
                );
                break;
            }
            let left = Duration::from_millis(state.participant.deadline().saturating_sub(now).max(1));
            state = self.ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        drop(hold);
        self.drop_part_later(number);
    }

    /// Drops the part of a cut when nothing can need it any more.
    fn drop_part_later(&self, number: CutNumber) {
        let mut state = self.lock();
        while let Some(at) = state.parts.iter().position(|part| part.number == number) {
            let (now, until) = (self.time.now(), state.parts[at].until);
            if until <= now {
                state.parts.remove(at);
                return;
            }
            let left = Duration::from_millis(until - now);
            state = self.ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends the hold of a cut.
    pub(crate) fn release(&self, number: CutNumber) -> HoldReport {
        let ended = self.lock().participant.release(number, self.time.now());
        self.ended.notify_all();
        ended
    }

    /// Takes the part of a cut, for a backup.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none.
    pub(crate) fn take_part(&self, number: CutNumber) -> Result<Snapshot> {
        let mut state = self.lock();
        let found = state.parts.iter().position(|part| part.number == number).map(|at| state.parts.remove(at));
        drop(state);
        self.ended.notify_all();
        found.map(|part| part.snapshot).ok_or_else(|| {
            let what = format!("the part of cut {} is not kept here any more: begin the backup again", number.0);
            Error::new(ErrorKind::NotFound, what)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;

    use store::{Options, RowChanges};

    use super::*;

    fn put(store: &Store, key: &str) -> mpsc::Receiver<Result<u64>> {
        let (done, wait) = mpsc::channel();
        let mut changes = RowChanges::new();
        changes.put(key.as_bytes(), "x".into());
        store.submit_rows(changes, move |result| drop(done.send(result)));
        wait
    }

    fn begin(cuts: &Arc<Cuts>, number: u64, hold_ms: Ms) -> std::result::Result<Run, NotHeld> {
        let (held, answer) = mpsc::channel();
        let cuts = cuts.clone();
        thread::spawn(move || cuts.take(CutNumber(number), hold_ms, |part| drop(held.send(part))));
        answer.recv().unwrap()
    }

    #[test]
    fn a_held_store_makes_nothing_durable_until_its_release() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s"), Options::default()).unwrap();
        let cuts = Arc::new(Cuts::new(store.clone()));
        put(&store, "before").recv().unwrap().unwrap();
        let run = begin(&cuts, 5, 10_000).unwrap();
        let later = put(&store, "later");
        later.recv_timeout(Duration::from_millis(100)).unwrap_err();
        assert_eq!(store.row(b"later").unwrap(), None);
        assert!(matches!(begin(&cuts, 6, 1), Err(NotHeld::Refused(CutRefusal::Busy(CutNumber(5))))));
        assert_eq!(cuts.release(CutNumber(5)), HoldReport { run, lasted: true });
        later.recv().unwrap().unwrap();
        // The parts of two backups that begin one after the other.
        begin(&cuts, 7, 10_000).unwrap();
        cuts.release(CutNumber(7));
        let snapshot = cuts.take_part(CutNumber(5)).unwrap();
        assert_eq!((snapshot.row(b"before").unwrap().is_some(), snapshot.row(b"later").unwrap()), (true, None));
        assert_eq!(cuts.take_part(CutNumber(5)).err().unwrap().kind(), ErrorKind::NotFound);
        assert!(cuts.take_part(CutNumber(7)).unwrap().row(b"later").unwrap().is_some());
        assert!(matches!(begin(&cuts, 5, 1), Err(NotHeld::Refused(CutRefusal::Taken(CutNumber(7))))));
    }

    #[test]
    fn a_store_whose_coordinator_is_gone_releases_itself() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s"), Options::default()).unwrap();
        let cuts = Arc::new(Cuts::new(store.clone()));
        begin(&cuts, 5, 50).unwrap();
        put(&store, "later").recv().unwrap().unwrap();
        assert!(!cuts.release(CutNumber(5)).lasted);
    }

    #[test]
    fn a_store_in_memory_takes_no_cut() {
        let cuts = Arc::new(Cuts::new(Store::in_memory(Options::default()).unwrap()));
        let Err(NotHeld::Failed(error)) = begin(&cuts, 5, 50) else { panic!("it has no log") };
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}
