//! Writes that are done once, however often they are sent.
//!
//! 1. Whoever sends a write says which of its writes it is. The first time it is done; after that whoever sends it again is
//!    answered as the first time, or waits for that.
//! 2. What was sent again and is not known was never done, unless something was forgotten since: then that is not known.
//! 3. All this is in memory, so it holds for one run of a meta-server, which tells its writers which run it is.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use meta::WriteOutcome;
use model::{Error, ErrorKind, Result};
use tokio::sync::watch;

/// Writes of a writer that are remembered: more than it has on the way at a time.
const MAX_WRITES: usize = 64;
/// Writers that are remembered.
const MAX_WRITERS: usize = 4096;

/// How a write ended, so that it can be told several times.
type RepeatableOutcome = Result<WriteOutcome, (ErrorKind, String)>;

/// The writes that were done lately.
pub(super) struct WriteDeduplicator {
    /// Which run this is.
    pub(super) run: u64,
    writers: Mutex<Writers>,
}

#[derive(Default)]
struct Writers {
    by_id: HashMap<[u8; 16], Writer>,
    /// The longest known first.
    order: VecDeque<[u8; 16]>,
    /// Whether one was forgotten.
    forgot: bool,
}

#[derive(Default)]
struct Writer {
    writes: BTreeMap<u64, watch::Receiver<Option<RepeatableOutcome>>>,
    /// All up to this one may have been forgotten.
    forgotten: u64,
}

/// What is to be done about a write.
pub(super) enum WriteStatus {
    /// Do it, and say how it has ended.
    First(watch::Sender<Option<RepeatableOutcome>>),
    /// It was begun before: wait for its end.
    Known(watch::Receiver<Option<RepeatableOutcome>>),
    /// It may have been done, or not.
    Forgotten,
}

impl WriteDeduplicator {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { run: rand::random(), writers: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Writers> {
        // Tables that are whole between any two statements: a panic elsewhere spoils nothing.
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write has come, for the first time or `again`.
    pub(super) fn begin(&self, writer: [u8; 16], number: u64, again: bool) -> WriteStatus {
        let mut writers = self.lock();
        if !writers.by_id.contains_key(&writer) {
            if again && writers.forgot {
                return WriteStatus::Forgotten;
            }
            writers.order.push_back(writer);
            if writers.order.len() > MAX_WRITERS
                && let Some(oldest) = writers.order.pop_front()
            {
                writers.by_id.remove(&oldest);
                writers.forgot = true;
            }
        }
        let known = writers.by_id.entry(writer).or_default();
        if let Some(ended) = known.writes.get(&number) {
            return WriteStatus::Known(ended.clone());
        }
        if again && number <= known.forgotten {
            return WriteStatus::Forgotten;
        }
        let (sender, ended) = watch::channel(None);
        known.writes.insert(number, ended);
        if known.writes.len() > MAX_WRITES
            && let Some((oldest, _)) = known.writes.pop_first()
        {
            known.forgotten = known.forgotten.max(oldest);
        }
        WriteStatus::First(sender)
    }
}

/// What is told several times.
pub(super) fn write_outcome(result: Result<WriteOutcome>) -> RepeatableOutcome {
    result.map_err(|error| (error.kind(), error.message().to_owned()))
}

/// Waits for the end of a write that was begun.
pub(super) async fn wait_for_outcome(mut known: watch::Receiver<Option<RepeatableOutcome>>) -> Result<WriteOutcome> {
    let seen = known.wait_for(Option::is_some).await;
    // Whoever does it says how it has ended, unless the process ends.
    let ended = seen.ok().and_then(|ended| ended.clone());
    match ended {
        Some(ended) => ended.map_err(|(kind, message)| Error::new(kind, message)),
        None => Err(unknown_outcome_error()),
    }
}

/// The error for a write of which nobody knows whether it was done.
pub(super) fn unknown_outcome_error() -> Error {
    Error::new(ErrorKind::Unknown, "it is not known whether a write to the catalogue was done: read, then try again")
}

#[cfg(test)]
mod tests {
    use meta::Revision;

    use super::*;

    const WRITER: [u8; 16] = [1; 16];

    #[tokio::test]
    async fn what_is_sent_again_ends_as_the_first_time() {
        let once = WriteDeduplicator::new();
        let WriteStatus::First(sender) = once.begin(WRITER, 1, false) else { panic!("it is the first") };
        let WriteStatus::Known(early) = once.begin(WRITER, 1, true) else { panic!("it is known") };
        sender.send_replace(Some(write_outcome(Ok(WriteOutcome::Done(Revision(7))))));
        drop(sender);
        let WriteStatus::Known(late) = once.begin(WRITER, 1, true) else { panic!("it is known") };
        for known in [early, late] {
            assert_eq!(wait_for_outcome(known).await.unwrap(), WriteOutcome::Done(Revision(7)));
        }
        assert!(matches!(once.begin(WRITER, 2, true), WriteStatus::First(_)), "it never came");
    }

    #[test]
    fn what_was_forgotten_is_not_done_again() {
        let once = WriteDeduplicator::new();
        for number in 1..=MAX_WRITES as u64 + 1 {
            assert!(matches!(once.begin(WRITER, number, false), WriteStatus::First(_)));
        }
        assert!(matches!(once.begin(WRITER, 1, true), WriteStatus::Forgotten));
        assert!(matches!(once.begin(WRITER, 2, true), WriteStatus::Known(_)));
        for writer in 0..MAX_WRITERS as u128 {
            assert!(matches!(once.begin((writer << 8).to_be_bytes(), 1, false), WriteStatus::First(_)));
        }
        assert!(matches!(once.begin(WRITER, 2, true), WriteStatus::Forgotten));
        assert!(matches!(once.begin(WRITER, 1000, true), WriteStatus::Forgotten));
    }
}
