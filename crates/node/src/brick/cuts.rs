//! The brick's part in cuts through the cluster (K1): [`CutParticipant`] decides, and this module holds the store.
//!
//! A backup that follows the cluster takes one cut after the other. It names itself, so the brick [tracks](store::ChangeTracker) changes from its first
//! cut on, and each later cut has the changes since an earlier one.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use model::{Error, ErrorKind, Result};
use protocol::cut::{CutNumber, CutParticipant, CutRefusal, HoldReport, Run};
use protocol::lease::Ms;
use store::{ChangeSet, ChangeTracker, Snapshot, Store};
use wire::driving::MonotonicClock;

/// How long the part of a cut is kept for a backup to begin, or for the next step of a clone, in milliseconds.
const KEEP_MS: Ms = 60_000;

/// The most parts that are kept: those of backups that begin at the same time, and of clones.
const MAX_PARTS: usize = 4;

/// How long changes are tracked for a backup that neither takes a cut nor reads the part of one, in milliseconds.
const FOLLOWER_KEEP_MS: Ms = 600_000;

/// The most backups that follow a brick.
const MAX_FOLLOWERS: usize = 4;

/// The most cuts of a follower whose positions are kept: the one on whose changes it has asked for, the last one whose part it has taken, and those that failed
/// since.
const MAX_FOLLOWED_CUTS: usize = 64;

/// How often trackers that no backup uses any more are looked for.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(10);

/// A backup that follows the cluster, by a random number that it has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FollowerId(pub(crate) u64);

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
    /// The parts of the last cuts that no backup has taken. Clones use them step by step.
    parts: Vec<Part>,
    followers: Vec<Follower>,
    /// A thread looks for followers that have ended. It ends when there is none.
    is_expiring: bool,
}

struct Follower {
    id: FollowerId,
    tracker: Arc<ChangeTracker>,
    /// Its last cuts, with their positions in the log: from the one on whose changes it has asked for.
    cuts: Vec<(CutNumber, u64)>,
    /// The last cut whose part it has taken.
    taken: Option<CutNumber>,
    /// It is forgotten at this time, unless it is reading.
    until: Ms,
    reading: Arc<()>,
}

impl Follower {
    /// Notes a cut of it. If there are too many, the oldest one is forgotten that it cannot need: it asks for what has changed since the cut for which it has
    /// asked before, or since the last one whose part it has taken, if it has read that to its end.
    fn add_cut(&mut self, number: CutNumber, version: u64) {
        if self.cuts.len() >= MAX_FOLLOWED_CUTS
            && let Some(at) = (1..self.cuts.len()).find(|at| Some(self.cuts[*at].0) != self.taken)
        {
            self.cuts.remove(at);
        }
        self.cuts.push((number, version));
    }
}

/// The part of a cut. The changes after it are kept while it is read, which may take hours.
pub(crate) struct TakenPart {
    pub(crate) snapshot: Arc<Snapshot>,
    _reading: Option<Arc<()>>,
}

struct Part {
    number: CutNumber,
    snapshot: Arc<Snapshot>,
    /// It is dropped at this time, unless it is used.
    until: Ms,
}

impl Part {
    /// Whether a step of a clone reads it now.
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.snapshot) > 1
    }
}

impl From<Snapshot> for TakenPart {
    fn from(snapshot: Snapshot) -> Self {
        Self { snapshot: Arc::new(snapshot), _reading: None }
    }
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
        let state = CutState {
            participant: CutParticipant::new(Run(rand::random())),
            parts: Vec::new(),
            followers: Vec::new(),
            is_expiring: false,
        };
        Self { store, time: MonotonicClock::of_process(), state: Mutex::new(state), ended: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, CutState> {
        // The data is consistent between statements, so a poisoned lock is harmless.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the part of a cut, calls `report`, and holds the store until its release or for at most `hold_ms`. Then keeps the part for a
    /// while. It blocks all that time, so it is for a thread of its own. From the first cut of a follower on, changes are tracked for it.
    pub(crate) fn take(
        self: &Arc<Self>,
        number: CutNumber,
        hold_ms: Ms,
        follower: Option<FollowerId>,
        report: impl FnOnce(std::result::Result<Run, NotHeld>),
    ) {
        if let Some(id) = follower
            && let Err(error) = self.follow(id)
        {
            return report(Err(NotHeld::Failed(error)));
        }
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
        if state.parts.len() >= MAX_PARTS
            && let Some(oldest) =
                (0..state.parts.len()).min_by_key(|at| (state.parts[*at].is_used(), state.parts[*at].until))
        {
            state.parts.remove(oldest);
        }
        if let Some(follower) = state.followers.iter_mut().find(|known| Some(known.id) == follower) {
            follower.add_cut(number, snapshot.version());
        }
        state.parts.push(Part { number, snapshot: Arc::new(snapshot), until });
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
            let now = self.time.now();
            if state.parts[at].is_used() {
                state.parts[at].until = now + KEEP_MS;
            }
            let until = state.parts[at].until;
            if until <= now {
                state.parts.remove(at);
                return;
            }
            // A clone that uses it moves this time on.
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

    /// Tracks changes for a follower, if they are not tracked yet.
    fn follow(self: &Arc<Self>, id: FollowerId) -> Result<()> {
        let until = self.time.now() + FOLLOWER_KEEP_MS;
        let check = |state: &mut CutState| {
            if let Some(known) = state.followers.iter_mut().find(|known| known.id == id) {
                known.until = until;
                return Ok(true);
            }
            if state.followers.len() < MAX_FOLLOWERS {
                return Ok(false);
            }
            let what = format!(
                "{MAX_FOLLOWERS} backups follow this brick already, or did within the last ten minutes: end one of them"
            );
            Err(Error::new(ErrorKind::Unavailable, what))
        };
        if check(&mut self.lock())? {
            return Ok(());
        }
        // Waits for a force, so the state is not locked.
        let tracker = Arc::new(self.store.track_changes()?);
        let mut state = self.lock();
        if check(&mut state)? {
            return Ok(());
        }
        state.followers.push(Follower { id, tracker, cuts: Vec::new(), taken: None, until, reading: Arc::default() });
        if !state.is_expiring {
            let cuts = Arc::downgrade(self);
            let expire = move || {
                loop {
                    thread::sleep(EXPIRY_INTERVAL);
                    let Some(cuts) = cuts.upgrade() else { return };
                    if cuts.expire_followers() {
                        return;
                    }
                }
            };
            let spawned = thread::Builder::new().name("mortar-follow".to_owned()).spawn(expire);
            if let Err(error) = spawned {
                state.followers.clear();
                return Err(Error::new(ErrorKind::Io, "a thread cannot be started").with_source(error));
            }
            state.is_expiring = true;
        }
        Ok(())
    }

    /// Forgets followers that have ended. Returns whether there is none: then the thread that calls this ends.
    fn expire_followers(&self) -> bool {
        let (mut state, now) = (self.lock(), self.time.now());
        for follower in state.followers.iter_mut().filter(|follower| Arc::strong_count(&follower.reading) > 1) {
            follower.until = now + FOLLOWER_KEEP_MS;
        }
        state.followers.retain(|follower| follower.until > now);
        state.is_expiring = !state.followers.is_empty();
        !state.is_expiring
    }

    /// What has changed since a cut of a follower, which has read everything up to there.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if that is not known here: the brick was restarted, or too much has changed.
    pub(crate) fn changes_since(&self, number: CutNumber) -> Result<ChangeSet> {
        let mut state = self.lock();
        let until = self.time.now() + FOLLOWER_KEEP_MS;
        let find = |follower: &mut Follower| {
            let at = follower.cuts.iter().position(|(cut, _)| *cut == number)?;
            follower.cuts.drain(..at);
            follower.until = until;
            let (_, version) = *follower.cuts.first()?;
            Some((follower.id, follower.tracker.clone(), version))
        };
        let found = state.followers.iter_mut().find_map(find);
        // Collecting them takes time.
        drop(state);
        if let Some((id, tracker, version)) = found {
            if let Some(changes) = tracker.changes_since(version) {
                return Ok(changes);
            }
            // Too much has changed. Its next cut begins anew.
            self.lock().followers.retain(|follower| follower.id != id);
        }
        let what = format!(
            "the changes since cut {} are not known here: too much has changed, or the brick was restarted",
            number.0
        );
        Err(Error::new(ErrorKind::NotFound, what))
    }

    /// The part of a cut, for one step of a clone. It is kept for the next one.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none.
    pub(crate) fn use_part(&self, number: CutNumber) -> Result<Arc<Snapshot>> {
        let (mut state, until) = (self.lock(), self.time.now() + KEEP_MS);
        let part = state.parts.iter_mut().find(|part| part.number == number).ok_or_else(|| no_part_error(number))?;
        part.until = until;
        Ok(part.snapshot.clone())
    }

    /// Takes the part of a cut, for a backup.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none.
    pub(crate) fn take_part(&self, number: CutNumber) -> Result<TakenPart> {
        let mut state = self.lock();
        let found = state.parts.iter().position(|part| part.number == number).map(|at| state.parts.remove(at));
        let is_of = |follower: &&mut Follower| follower.cuts.iter().any(|(cut, _)| *cut == number);
        let reading = state.followers.iter_mut().find(is_of).map(|follower| {
            follower.taken = Some(number);
            follower.reading.clone()
        });
        drop(state);
        self.ended.notify_all();
        let part = found.ok_or_else(|| no_part_error(number))?;
        Ok(TakenPart { snapshot: part.snapshot, _reading: reading })
    }
}

fn no_part_error(number: CutNumber) -> Error {
    let what = format!("the part of cut {} is not kept here any more: begin again with a new cut", number.0);
    Error::new(ErrorKind::NotFound, what)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

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
        thread::spawn(move || cuts.take(CutNumber(number), hold_ms, None, |part| drop(held.send(part))));
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
        let snapshot = cuts.take_part(CutNumber(5)).unwrap().snapshot;
        assert_eq!((snapshot.row(b"before").unwrap().is_some(), snapshot.row(b"later").unwrap()), (true, None));
        assert_eq!(cuts.take_part(CutNumber(5)).err().unwrap().kind(), ErrorKind::NotFound);
        assert!(cuts.take_part(CutNumber(7)).unwrap().snapshot.row(b"later").unwrap().is_some());
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
    fn later_cuts_do_not_evict_a_part_that_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s"), Options::default()).unwrap();
        let cuts = Arc::new(Cuts::new(store));
        let cut = |number: u64| {
            begin(&cuts, number, 10_000).unwrap();
            cuts.release(CutNumber(number));
        };
        cut(1);
        cut(2);
        let used = cuts.use_part(CutNumber(1)).unwrap();
        (3..=10).for_each(cut);
        assert!(cuts.use_part(CutNumber(1)).is_ok());
        let kept = || (1..=30).filter(|number| cuts.use_part(CutNumber(*number)).is_ok()).collect::<Vec<_>>();
        assert_eq!(kept(), [1, 8, 9, 10]);
        drop(used);
        (11..=20).for_each(cut);
        assert_eq!(kept(), [17, 18, 19, 20]);
    }

    #[test]
    fn a_store_in_memory_takes_no_cut() {
        let cuts = Arc::new(Cuts::new(Store::in_memory(Options::default()).unwrap()));
        // A cut that cannot be taken holds nothing, so the next one fails in the same way.
        for number in [5, 6] {
            let Err(NotHeld::Failed(error)) = begin(&cuts, number, 10_000) else { panic!("it has no log") };
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
    }

    fn follow(cuts: &Arc<Cuts>, id: u64, number: u64) -> TakenPart {
        let (held, answer) = mpsc::channel();
        let taken = cuts.clone();
        let take = move || taken.take(CutNumber(number), 10_000, Some(FollowerId(id)), |part| drop(held.send(part)));
        thread::spawn(take);
        answer.recv().unwrap().unwrap();
        assert!(cuts.release(CutNumber(number)).lasted);
        cuts.take_part(CutNumber(number)).unwrap()
    }

    fn archive(part: &TakenPart, changes: &ChangeSet) -> u64 {
        part.snapshot.backup_changes(changes, &mut Vec::new(), &()).unwrap().rows
    }

    #[test]
    fn followers_get_what_has_changed_since_the_last_cut_that_they_have_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s"), Options::default()).unwrap();
        let cuts = Arc::new(Cuts::new(store.clone()));
        put(&store, "before").recv().unwrap().unwrap();
        follow(&cuts, 1, 5);
        put(&store, "a").recv().unwrap().unwrap();
        follow(&cuts, 2, 6);
        put(&store, "b").recv().unwrap().unwrap();
        // Another follower has a beginning of its own. A cut that was not read does not matter.
        assert_eq!(archive(&follow(&cuts, 1, 7), &cuts.changes_since(CutNumber(5)).unwrap()), 2);
        assert_eq!(archive(&follow(&cuts, 1, 8), &cuts.changes_since(CutNumber(5)).unwrap()), 2);
        assert_eq!(archive(&follow(&cuts, 2, 9), &cuts.changes_since(CutNumber(6)).unwrap()), 1);
        put(&store, "c").recv().unwrap().unwrap();
        assert_eq!(archive(&follow(&cuts, 1, 10), &cuts.changes_since(CutNumber(8)).unwrap()), 1);
        // What was read is not kept, nor what no follower has begun with.
        for number in [5, 7, 4, 11] {
            assert_eq!(cuts.changes_since(CutNumber(number)).unwrap_err().kind(), ErrorKind::NotFound, "{number}");
        }
        for id in 3..5 {
            follow(&cuts, id, 10 + id);
        }
        let refused = cuts.follow(FollowerId(9)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn cuts_that_fail_do_not_displace_the_one_that_was_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s"), Options::default()).unwrap();
        let cuts = Arc::new(Cuts::new(store));
        follow(&cuts, 1, 5);
        // The first archive fails elsewhere, the second one is complete.
        for number in [6, 7] {
            cuts.changes_since(CutNumber(5)).unwrap();
            follow(&cuts, 1, number);
        }
        let mut state = cuts.lock();
        let failed = 8..8 + 2 * MAX_FOLLOWED_CUTS as u64;
        failed.clone().for_each(|number| state.followers[0].add_cut(CutNumber(number), number));
        let kept: Vec<u64> = state.followers[0].cuts.iter().map(|(cut, _)| cut.0).collect();
        assert_eq!((kept.len(), &kept[..2], kept.last()), (MAX_FOLLOWED_CUTS, &[5, 7][..], failed.last().as_ref()));
        drop(state);
        assert!(cuts.changes_since(CutNumber(5)).is_ok(), "the second one may have failed elsewhere, too");
        assert!(cuts.changes_since(CutNumber(7)).is_ok());
    }

    #[test]
    fn one_thread_looks_for_followers_that_have_ended() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s"), Options::default()).unwrap();
        let cuts = Arc::new(Cuts::new(store));
        // Each thread has a weak reference.
        let threads = || Arc::weak_count(&cuts);
        for number in 1..4 {
            cuts.follow(FollowerId(number)).unwrap();
            assert_eq!(threads(), 1);
            // Too much has changed.
            cuts.lock().followers.clear();
        }
        assert!(cuts.expire_followers() && !cuts.lock().is_expiring);
        cuts.follow(FollowerId(4)).unwrap();
        assert!(cuts.lock().is_expiring, "the next follower needs another one");
    }

    #[test]
    fn followers_are_forgotten_unless_they_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s"), Options::default()).unwrap();
        let cuts = Arc::new(Cuts::new(store));
        let part = follow(&cuts, 1, 5);
        let expire = || {
            cuts.lock().followers.iter_mut().for_each(|follower| follower.until = 0);
            cuts.expire_followers()
        };
        assert!(!expire() && !cuts.expire_followers());
        drop(part);
        assert!(expire());
        assert_eq!(cuts.changes_since(CutNumber(5)).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_follower_that_has_asked_for_changes_is_kept_for_its_next_cut() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s"), Options::default()).unwrap();
        let cuts = Arc::new(Cuts::new(store));
        drop(follow(&cuts, 1, 5));
        cuts.lock().followers.iter_mut().for_each(|follower| follower.until = 0);
        cuts.changes_since(CutNumber(5)).unwrap();
        assert!(!cuts.expire_followers());
        assert!(cuts.changes_since(CutNumber(5)).is_ok());
    }

    #[test]
    fn a_follower_begins_anew_after_too_many_changes() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s"), Options::default()).unwrap();
        let cuts = Arc::new(Cuts::new(store.clone()));
        follow(&cuts, 1, 5);
        // Long keys, more than a tracker has room for.
        for number in 0..150_000_u32 {
            let mut changes = RowChanges::new();
            changes.put(&[&number.to_be_bytes()[..], &[7; 390]].concat(), "x".into());
            store.submit_rows(changes, |_| ());
        }
        put(&store, "last").recv().unwrap().unwrap();
        assert_eq!(cuts.changes_since(CutNumber(5)).unwrap_err().kind(), ErrorKind::NotFound);
        follow(&cuts, 1, 6);
        put(&store, "later").recv().unwrap().unwrap();
        let part = follow(&cuts, 1, 7);
        assert_eq!(archive(&part, &cuts.changes_since(CutNumber(6)).unwrap()), 1);
    }
}
