//! Committing: transactions are taken in from all threads, applied one after the other by one, and forced many at a time.
//!
//! ```text
//!   submit ── stage chunks ── intake ──┐                                          (any thread)
//!   committer: take the intake ── apply ── frame ── one write, one force ── show ── answer
//! ```
//!
//! So nobody waits for a lock while others apply, and what gathers while one batch is forced is the next; threads that come
//! meanwhile apply it instead of the committer. A transaction sees those before it although they are not durable yet;
//! readers do not. Conflicts and errors, too, are told only when the state they speak of is durable. Without a log (the
//! store in memory) there is no committer: each thread applies its own transaction under the lock of the writer. The
//! committer's life is in `committer.rs`.

pub(crate) mod apply;
pub(crate) mod committer;
pub(crate) mod install;
pub(crate) mod queue;
pub(crate) mod round;
pub(crate) mod row_changes;
pub(crate) mod stage;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use model::{Committed, Error, ErrorKind, Outcome, Result, Transaction};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::commit::apply::{AppliedChanges, Applier, ApplyOutcome};
use crate::commit::committer::Pending;
use crate::commit::row_changes::RowSequence;
use crate::commit::stage::stage;
use crate::core::Core;
use crate::error::{self, StoreError};
use crate::log::entry::{self, LogEntry, StagedContent, Step};
use crate::log::{FrameBatch, frame};
use crate::plant::{Bug, planted};
use crate::read::layers::{Layers, ReadPosition};
use crate::read::view::View;
use crate::rows::key::{DataId, Key};
use crate::rows::mob::{Mob, Row, Seq};
use crate::rows::row::Extent;

/// What a store in memory says when it is full.
fn no_room() -> Error {
    Error::new(ErrorKind::Full, "the store in memory has no room; delete something, or start it with more")
}

/// The bytes that a row takes; `None` if it takes one away.
fn row_size(row: &Row) -> Option<usize> {
    (!matches!(row, Row::Tombstone)).then(|| row.size())
}

/// The system's clock, in microseconds since 1970.
fn now_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_micros() as i64)
}

/// What is called with a transaction's outcome.
pub(crate) type OutcomeCallback = Box<dyn FnOnce(Result<Outcome>) + Send>;

/// A transaction on its way to be applied.
pub(crate) struct Job {
    pub(crate) steps: Vec<Step>,
    /// Chunks that are given back unless the transaction is logged.
    pub(crate) staged: Vec<Extent>,
    /// Uploads that are not garbage until the transaction is applied.
    pub(crate) taken_uploads: Vec<DataId>,
    /// Why it is refused, if that is known already.
    pub(crate) rejection: Option<Box<Error>>,
    /// What it is behind in, if it must not be made without those before.
    pub(crate) sequence: Option<RowSequence>,
    /// Whether a store in memory takes it though it is full.
    pub(crate) is_needed: bool,
    pub(crate) reply_to: ReplyTo,
}

impl Job {
    /// Why it is refused, whatever the store could do.
    fn refusal(&mut self) -> Option<Error> {
        let is_behind = !planted(Bug::SequenceIgnored) && self.sequence.as_ref().is_some_and(RowSequence::is_broken);
        self.rejection.take().map(|wrong| *wrong).or_else(|| is_behind.then(RowSequence::broken_error))
    }

    /// One that does nothing.
    pub(crate) fn new(answer: ReplyTo) -> Self {
        let (steps, staged, taken) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            steps,
            staged,
            taken_uploads: taken,
            rejection: None,
            sequence: None,
            is_needed: false,
            reply_to: answer,
        }
    }
}

/// How a transaction's outcome gets to who asked for it.
pub(crate) enum ReplyTo {
    /// This is called.
    Callback(OutcomeCallback),
    /// It is laid here, for who waits until the round has ended.
    Slot(Arc<Mutex<Option<Result<Outcome>>>>),
}

impl ReplyTo {
    pub(crate) fn send(self, result: Result<Outcome>) {
        match self {
            Self::Callback(tell) => tell(result),
            Self::Slot(place) => *place.lock() = Some(result),
        }
    }
}

/// A transaction that is decided and waits for its position to become durable.
pub(crate) struct DecidedTransaction {
    pub(crate) result: Result<Outcome>,
    pub(crate) staged: Vec<Extent>,
    pub(crate) sequence: Option<RowSequence>,
    pub(crate) reply_to: ReplyTo,
}

/// The state of who applies transactions.
#[derive(Default)]
pub(crate) struct WriterState {
    /// The position of the next transaction.
    pub(crate) next_seq: Seq,
    /// The checksum of the last frame.
    pub(crate) crc: u32,
    /// Frames to be forced.
    pub(crate) batch: FrameBatch,
    /// The checksum of the frame before the batch.
    pub(crate) batch_prev_crc: u32,
    pub(crate) pending: Pending,
    /// Bytes logged since the buffer was last frozen.
    pub(crate) logged_bytes: u64,
    /// Why nothing can be committed any more.
    pub(crate) log_failure: Option<Arc<str>>,
    /// Whether the last frame is one that only says what was forced before it.
    pub(crate) has_marker: bool,
}

impl WriterState {
    /// Goes on at position `next`, behind a frame with checksum `crc`.
    pub(crate) fn resume_at(next: Seq, crc: u32) -> Self {
        Self { next_seq: next, crc, ..Self::default() }
    }
}

impl Core {
    /// Commits a transaction; `tell` learns the outcome once it is durable.
    pub(crate) fn submit(&self, transaction: Transaction, tell: OutcomeCallback) {
        match self.prepare_job(transaction, ReplyTo::Callback(tell)) {
            Ok(job) => self.submit_job(job),
            Err((answer, error)) => answer.send(Err(error)),
        }
    }

    /// Commits a transaction and waits until its outcome is durable.
    pub(crate) fn commit(&self, transaction: Transaction) -> Result<Outcome> {
        let place = Arc::default();
        match self.prepare_job(transaction, ReplyTo::Slot(Arc::clone(&place))) {
            Ok(job) => self.submit_job_and_wait(job, &place),
            Err((_, error)) => Err(error),
        }
    }

    /// Commits steps of the store's own and waits.
    pub(crate) fn commit_steps(&self, steps: Vec<Step>, staged: Vec<Extent>) -> Result<()> {
        let place = Arc::default();
        let job = Job { steps, staged, ..Job::new(ReplyTo::Slot(Arc::clone(&place))) };
        self.submit_job_and_wait(job, &place).map(drop)
    }

    /// Commits steps of the store's own, whenever there is room; `busy` is set until they are through.
    pub(crate) fn submit_steps(&self, steps: Vec<Step>, busy: &Arc<AtomicBool>) {
        busy.store(true, Ordering::Release);
        let busy = Arc::clone(busy);
        let tell = Box::new(move |result: Result<Outcome>| {
            if let Err(error) = result {
                tracing::warn!(%error, "a background change was not made; it will be tried again");
            }
            busy.store(false, Ordering::Release);
        });
        self.submit_job(Job { steps, ..Job::new(ReplyTo::Callback(tell)) });
    }

    /// Checks a transaction and stages its chunks.
    fn prepare_job(&self, transaction: Transaction, answer: ReplyTo) -> std::result::Result<Job, (ReplyTo, Error)> {
        match stage(self, transaction) {
            Ok(mut staged) => {
                let (steps, extents, taken) = staged.take_parts();
                if self.durable.is_some() {
                    self.prefetch_rows(&steps);
                }
                Ok(Job { steps, staged: extents, taken_uploads: taken, ..Job::new(answer) })
            }
            Err(error) => Err((answer, error)),
        }
    }

    /// Looks at the objects that a transaction will replace, so that what must come from memory or disk is at hand when
    /// the writers' lock is held.
    fn prefetch_rows(&self, steps: &[Step]) {
        for step in steps {
            if let Some(oid) = step.existing_object().filter(|oid| !oid.is_temporary()) {
                // Only the look matters; what is wrong is found under the lock.
                let _ = self.read_row(|layers| layers.head_and_extent(oid).map(drop));
            }
        }
    }

    /// Hands a transaction to the committer; where there is none, applies it.
    pub(crate) fn submit_job(&self, job: Job) {
        if self.durable.is_none() {
            return self.apply_now(job);
        }
        match self.commit_queue.push(job) {
            Ok(()) => self.wake_committer(),
            Err(job) => self.refuse(job, error::closed()),
        }
    }

    /// Wakes the committer. While it is busy with the disk, this thread applies what was taken in for the next batch.
    fn wake_committer(&self) {
        if self.force_lock.is_locked()
            && let Some(mut writer) = self.writer.try_lock()
        {
            self.apply_queued(&mut writer);
        }
        self.commit_queue.wake();
    }

    /// Hands a transaction over and waits for its outcome, which is laid at `place`.
    pub(crate) fn submit_job_and_wait(&self, job: Job, place: &Mutex<Option<Result<Outcome>>>) -> Result<Outcome> {
        if self.durable.is_none() {
            self.apply_now(job);
        } else {
            match self.commit_queue.push_and_join(job) {
                Ok(end) => {
                    self.wake_committer();
                    if !self.options.threads {
                        self.force()?;
                    }
                    end.wait();
                }
                Err(job) => self.refuse(job, error::closed()),
            }
        }
        place.lock().take().unwrap_or_else(|| Err(error::closed()))
    }

    pub(crate) fn refuse(&self, job: Job, why: Error) {
        self.discard(&job.staged);
        self.release_uploads(&job.taken_uploads);
        job.sequence.iter().for_each(RowSequence::mark_broken);
        job.reply_to.send(Err(why));
    }

    /// Applies a transaction to a store that has no committer.
    fn apply_now(&self, mut job: Job) {
        let mut writer = self.writer.lock();
        if self.is_full(&self.view.load()) {
            self.sweep_memory();
        }
        let result = if let Some(wrong) = job.refusal() {
            Err(wrong)
        } else {
            let is_bounded = self.is_full(&self.view.load()) && !job.is_needed && !job.steps.iter().all(Step::frees);
            self.apply(&mut writer, job.steps, &mut Vec::new(), is_bounded)
        };
        if result.is_err() {
            job.sequence.iter().for_each(RowSequence::mark_broken);
        }
        drop(writer);
        self.release_uploads(&job.taken_uploads);
        job.reply_to.send(result);
    }

    /// Applies a transaction, or says why not; its frame goes into the batch. What it staged is given back unless it is
    /// logged.
    pub(crate) fn apply_or_refuse(&self, writer: &mut WriterState, mut job: Job) -> DecidedTransaction {
        let refusal = job.refusal().or_else(|| self.refusal(writer));
        let Job { steps, mut staged, taken_uploads: taken, sequence, reply_to: answer, .. } = job;
        let result = match refusal {
            Some(refusal) => Err(refusal),
            None => self.apply(writer, steps, &mut staged, false),
        };
        if result.is_err() {
            sequence.iter().for_each(RowSequence::mark_broken);
        }
        self.release_uploads(&taken);
        if !matches!(result, Ok(Outcome::Committed(_))) {
            self.discard(&std::mem::take(&mut staged));
        }
        DecidedTransaction { result, staged, sequence, reply_to: answer }
    }

    /// Why nothing can be applied now, room or not.
    pub(crate) fn refusal(&self, writer: &WriterState) -> Option<Error> {
        if let Some(why) = &writer.log_failure {
            let message =
                format!("the store takes no more changes, as its log failed: {why}; mend that and restart it");
            return Some(Error::new(ErrorKind::Io, message));
        }
        if self.disk_full.load(Ordering::Relaxed) && self.is_full(&self.view.load()) {
            let message = "the disk is full: changes cannot be moved to the B-tree; make room and try again";
            return Some(Error::new(ErrorKind::Full, message));
        }
        if self.is_full(&self.view.load())
            && let Some(why) = &*self.install_failed.lock()
        {
            return Some(Error::new(ErrorKind::Io, format!("changes cannot be moved to the B-tree: {why}")));
        }
        None
    }

    /// Whether a store in memory takes only what makes room, or is [needed](RowChanges::needed).
    pub(crate) fn is_memory_full(&self) -> bool {
        let is_full = || self.durable.is_none() && self.is_full(&self.view.load());
        is_full() && {
            self.sweep_memory();
            is_full()
        }
    }

    /// Whether the buffer can take no more before something is installed.
    pub(crate) fn is_full(&self, view: &View) -> bool {
        match self.durable {
            Some(_) => view.frozen.is_some() && view.active.bytes() >= self.options.mob_bytes / 2,
            None => view.active.bytes() >= self.options.memory_bytes,
        }
    }

    /// Applies a transaction and puts its frame into the batch. One that `is_bounded` may not take more than it lets go of.
    fn apply(
        &self,
        writer: &mut WriterState,
        steps: Vec<Step>,
        staged: &mut Vec<Extent>,
        is_bounded: bool,
    ) -> Result<Outcome> {
        let (view, seq) = (self.view.load(), writer.next_seq);
        let time_us = self.options.fixed_time_us.unwrap_or_else(now_us);
        if let [Step::Rows(rows)] = &steps[..] {
            if is_bounded && !view.active.has_room_for(rows.iter().map(|row| (&row.key, row.size()))) {
                return Err(no_room());
            }
            return self.apply_rows(writer, &view, LogEntry { time_us, created: Vec::new(), steps });
        }
        let mut steps = steps;
        let mut applied = self.apply_on(&view, seq, time_us, None, &steps)?;
        if matches!(applied, ApplyOutcome::EndMoved) {
            self.unstage(&mut steps, staged)?;
            applied = self.apply_on(&view, seq, time_us, None, &steps)?;
        }
        let AppliedChanges { changes, created } = match applied {
            ApplyOutcome::Applied(done) => done,
            ApplyOutcome::Conflict(conflict) => return Ok(Outcome::Conflict(conflict)),
            ApplyOutcome::EndMoved => return Err(Error::new(ErrorKind::Internal, "an append was never placed")),
        };
        if is_bounded && !view.active.has_room_for(changes.iter().map(|(key, row)| (key, row_size(row)))) {
            return Err(no_room());
        }
        let entry = LogEntry { time_us, created, steps };
        self.append_frame(writer, &entry)?;
        self.insert(&view.active, seq, changes);
        self.finish_apply(writer, &view);
        Ok(Outcome::Committed(Committed { version: seq, created: entry.created }))
    }

    /// The same for rows, which need nothing but to be put where they belong.
    fn apply_rows(&self, writer: &mut WriterState, view: &View, entry: LogEntry) -> Result<Outcome> {
        self.append_frame(writer, &entry)?;
        let seq = writer.next_seq;
        let mut slabs = view.active.slabs.lock();
        let changes =
            entry.steps.into_iter().flat_map(|step| if let Step::Rows(rows) = step { rows } else { Vec::new() });
        self.insert(&view.active, seq, changes.map(|change| change.into_row(&mut slabs)));
        drop(slabs);
        self.finish_apply(writer, view);
        Ok(Outcome::Committed(Committed { version: seq, created: Vec::new() }))
    }

    /// Goes on behind a transaction that was applied.
    fn finish_apply(&self, writer: &mut WriterState, view: &View) {
        writer.next_seq += 1;
        writer.has_marker = false;
        if self.durable.is_some() {
            self.maybe_freeze(writer, view);
        }
    }

    /// Makes appends whose chunks were staged for an end that their blob no longer has bytes for the log.
    fn unstage(&self, steps: &mut [Step], staged: &mut Vec<Extent>) -> Result<()> {
        for step in steps {
            let Step::Append { at, content, .. } = step else { continue };
            let bytes = content.read_back(self.files())?;
            staged.retain(|extent| !content.extents.contains(extent));
            self.discard(&content.extents);
            (*at, *content) = (None, StagedContent { extents: Vec::new(), bytes });
        }
        Ok(())
    }

    /// Applies steps on the newest state, durable or not.
    pub(crate) fn apply_on(
        &self,
        view: &View,
        seq: Seq,
        time_us: i64,
        given: Option<Vec<model::Oid>>,
        steps: &[Step],
    ) -> Result<ApplyOutcome> {
        let mut given = Some(given);
        let mut applied = None;
        let read = self.engine.read(&mut |engine| {
            let below = Layers {
                changes: None,
                active: &view.active,
                frozen: view.frozen.as_deref(),
                at: ReadPosition::Seq(Seq::MAX),
                engine,
                files: self.files(),
            };
            applied = given.take().map(|given| Applier::run(below, seq, time_us, given, steps));
        });
        read.map_err(|e| StoreError::from(e).0)?;
        applied.unwrap_or_else(|| Err(Error::new(ErrorKind::Internal, "the B-tree was not read")))
    }

    /// Appends an entry's frame to the batch.
    pub(crate) fn append_frame(&self, writer: &mut WriterState, entry: &LogEntry) -> Result<()> {
        if self.durable.is_none() {
            return Ok(());
        }
        if writer.batch.frames.is_empty() {
            writer.batch_prev_crc = writer.crc;
        }
        let before = writer.batch.bytes.len();
        let (seq, crc, mut forced) = (writer.next_seq, writer.crc, self.visible_seq());
        if planted(Bug::ForcedTooHigh) {
            forced = seq;
        }
        let write = |out: &mut Vec<u8>| entry::encode(out, entry);
        let framed = frame::encode(&mut writer.batch.bytes, &self.id, seq, forced, crc, write);
        let limit = frame::MAX_PAYLOAD as u64;
        writer.crc = framed.map_err(|len| error::too_large("a transaction's log record", len as u64, limit))?;
        let end = writer.batch.bytes.len();
        writer.batch.frames.push((end, seq, writer.crc));
        writer.logged_bytes += (end - before) as u64;
        Ok(())
    }

    /// Puts changed rows into the buffer.
    pub(crate) fn insert(&self, active: &Mob, seq: Seq, changes: impl IntoIterator<Item = (Key, Row)>) {
        if self.durable.is_none() {
            return self.insert_and_show(active, seq, changes);
        }
        active.insert_all(changes, seq, self.pins.horizon(&self.visible_seq));
    }

    /// Puts changed rows into the buffer of a store in memory, and shows them.
    fn insert_and_show(&self, active: &Mob, seq: Seq, changes: impl IntoIterator<Item = (Key, Row)>) {
        let mut changes = changes.into_iter();
        let (first, second) = (changes.next(), changes.next());
        // The quick way of a small put: nothing needs to be looked up again when it is visible.
        if let (Some((key, row)), None) = (&first, &second) {
            return active.insert_and_show(key.clone(), seq, row.clone(), || self.make_visible(seq));
        }
        let horizon = self.pins.horizon(&self.visible_seq);
        let mut keys: SmallVec<[Key; 8]> = SmallVec::new();
        let changes = first.into_iter().chain(second).chain(changes).inspect(|(key, _)| keys.push(key.clone()));
        active.insert_all(changes, seq, horizon);
        let horizon = self.make_visible(seq);
        for key in keys {
            active.prune_key(key, seq, horizon);
        }
    }

    /// Lets a store in memory go of what snapshots have kept.
    pub(crate) fn sweep_memory(&self) {
        self.view.load().active.sweep(self.pins.horizon(&self.visible_seq));
    }

    /// Makes a transaction visible that needs no log; returns the horizon after that.
    fn make_visible(&self, seq: Seq) -> Seq {
        self.visible_seq.store(seq, Ordering::SeqCst);
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        self.pins.horizon(&self.visible_seq)
    }

    /// Freezes the buffer for installing when it is half full, or the log is long.
    fn maybe_freeze(&self, writer: &mut WriterState, view: &View) {
        let due = view.active.bytes() >= self.options.mob_bytes / 2 || writer.logged_bytes >= self.options.log_bytes();
        if due && view.frozen.is_none() && !view.active.is_empty() {
            self.freeze(writer, view);
        }
    }

    /// Hands the buffer to the installer. Nothing may be frozen already.
    pub(crate) fn freeze(&self, writer: &mut WriterState, view: &View) {
        assert!(view.frozen.is_none(), "one buffer is being installed at a time");
        let frozen = Some(Arc::clone(&view.active));
        let active = Arc::new(self.spare_mob.lock().take().unwrap_or_else(Mob::new));
        self.view.store(Arc::new(View { active, frozen }));
        writer.logged_bytes = 0;
        let _chores = self.housekeeping.lock();
        self.installer_wakeup.notify_one();
    }

    pub(crate) fn discard(&self, extents: &[Extent]) {
        if let Some(files) = self.files() {
            files.discard(extents);
        }
    }

    /// Lets go of uploads that a transaction took.
    pub(crate) fn release_uploads(&self, taken: &[DataId]) {
        if !taken.is_empty() {
            self.finishing_uploads.lock().retain(|data| !taken.contains(data));
        }
    }
}
