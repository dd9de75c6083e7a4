//! Executes each write once, however often it is sent.
//!
//! 1. A writer numbers its writes. A write is executed when it arrives first; when it is sent again, it gets the first outcome, or
//!    waits for it.
//! 2. A repeated write that is not known was never executed, unless writes were forgotten since; then its outcome is unknown.
//! 3. This state is in memory, so it is valid for one run of a meta-server. Each run has a number, which writers can ask for.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use meta::WriteOutcome;
use model::{Error, ErrorKind, Result};
use tokio::sync::watch;

/// Writes of a writer that are remembered: more than it has in flight at a time.
const MAX_WRITES: usize = 64;
/// Writers that are remembered.
const MAX_WRITERS: usize = 4096;

/// The outcome of a write, which can be cloned.
type RepeatableOutcome = Result<WriteOutcome, (ErrorKind, String)>;

/// The most recent writes.
pub(super) struct WriteDeduplicator {
    /// The number of this run.
    pub(super) run: u64,
    writers: Mutex<Writers>,
}

#[derive(Default)]
struct Writers {
    by_id: HashMap<[u8; 16], Writer>,
    /// The writers that are known longest first.
    order: VecDeque<[u8; 16]>,
    /// Whether a writer was forgotten.
    forgot: bool,
}

#[derive(Default)]
struct Writer {
    writes: BTreeMap<u64, watch::Receiver<Option<RepeatableOutcome>>>,
    /// Writes up to this number may have been forgotten.
    forgotten: u64,
}

/// What to do with a write.
pub(super) enum WriteStatus {
    /// Execute it and send the outcome.
    First(watch::Sender<Option<RepeatableOutcome>>),
    /// It was begun before: wait for the outcome.
    Known(watch::Receiver<Option<RepeatableOutcome>>),
    /// It may or may not have been executed.
    Forgotten,
}

impl WriteDeduplicator {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { run: rand::random(), writers: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Writers> {
        // The tables are consistent between any two statements, so a panic elsewhere does no harm.
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles the arrival of a write; `again` if its sender has sent it before.
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

/// Converts a result into one that can be cloned.
pub(super) fn write_outcome(result: Result<WriteOutcome>) -> RepeatableOutcome {
    result.map_err(|error| (error.kind(), error.message().to_owned()))
}

/// Waits for the outcome of a write that was begun.
pub(super) async fn wait_for_outcome(mut known: watch::Receiver<Option<RepeatableOutcome>>) -> Result<WriteOutcome> {
    let seen = known.wait_for(Option::is_some).await;
    // The task that executes it sends the outcome, unless the process ends.
    let ended = seen.ok().and_then(|ended| ended.clone());
    match ended {
        Some(ended) => ended.map_err(|(kind, message)| Error::new(kind, message)),
        None => Err(unknown_outcome_error()),
    }
}

/// The error for a write with an unknown outcome.
pub(super) fn unknown_outcome_error() -> Error {
    Error::new(
        ErrorKind::Unknown,
        "it is unknown whether a write to the catalogue was executed: read the state, then try again",
    )
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
