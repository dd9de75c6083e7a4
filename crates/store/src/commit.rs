//! Committing: transactions are applied one after the other under one lock, and forced many at a time by one thread.
//!
//! ```text
//!   submit ── stage chunks ── lock ── apply ── frame ── unlock          (any thread)
//!                                                 │
//!   committer: take all frames ── one write, one force ── show them ── tell the writers
//! ```
//!
//! A transaction sees those before it although they are not durable yet; readers do not. If a force fails, all that
//! were waiting for it fail with it, and their changes are taken back. Conflicts and errors, too, are told only when the
//! state they speak of is durable.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use model::{Committed, Error, ErrorKind, Op, Outcome, Result, Transaction};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::apply::{Applied, Apply, Done};
use crate::core::Core;
use crate::disk;
use crate::entry::{self, Content, Entry, Step};
use crate::error::{self, StoreError};
use crate::layers::{At, Layers};
use crate::log::{Batch, LogError, frame};
use crate::mob::{Mob, Seq};
use crate::row::Extent;
use crate::stage::stage;
use crate::view::View;

/// What is called with a transaction's outcome.
pub(crate) type Tell = Box<dyn FnOnce(Result<Outcome>) + Send>;

/// How long the log rests before a mark says that its last frames were forced.
const REST: Duration = Duration::from_millis(20);
/// How often an append is staged again because its blob's end had moved.
const MOVES: usize = 3;

/// The state that the lock of the writers guards.
#[derive(Default)]
pub(crate) struct Writer {
    /// The position of the next transaction.
    pub(crate) next: Seq,
    /// The checksum of the last frame.
    pub(crate) crc: u32,
    batch: Batch,
    /// The checksum of the frame before the batch.
    batch_prev: u32,
    waiters: Vec<Waiter>,
    queue: VecDeque<Job>,
    /// Bytes logged since the buffer was last frozen.
    pub(crate) logged: u64,
    /// Why nothing can be committed any more.
    failed: Option<Arc<str>>,
    closing: bool,
    /// Whether the last frame is one that only says what was forced before it.
    marked: bool,
}

impl Writer {
    /// Goes on at position `next`, behind a frame with checksum `crc`.
    pub(crate) fn at(next: Seq, crc: u32) -> Self {
        Self { next, crc, ..Self::default() }
    }
}

/// A transaction that waits for room in the buffer.
struct Job {
    steps: Vec<Step>,
    staged: Vec<Extent>,
    tell: Tell,
}

/// A transaction that waits for its position to become durable.
struct Waiter {
    result: Result<Outcome>,
    staged: Vec<Extent>,
    tell: Tell,
}

/// Where a thread waits for its transaction's outcome.
#[derive(Default)]
struct Told {
    result: Mutex<Option<Result<Outcome>>>,
    told: Condvar,
}

/// Tells the waiting thread something in any case.
struct Teller(Arc<Told>);

impl Told {
    fn tell(&self, result: Result<Outcome>) {
        self.result.lock().get_or_insert(result);
        self.told.notify_one();
    }

    fn wait(&self) -> Result<Outcome> {
        let mut result = self.result.lock();
        loop {
            if let Some(result) = result.take() {
                return result;
            }
            self.told.wait(&mut result);
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        if Arc::strong_count(&self.0) > 1 {
            self.0.tell(Err(error::closed()));
        }
    }
}

/// What came of a transaction under the lock.
enum Decision {
    /// It waits for the committer, or for room.
    Later,
    /// It is decided.
    Now(Tell, Result<Outcome>),
    /// Its chunks must be staged again, as the end of a blob has moved.
    Moved(Job),
}

impl Core {
    /// Commits a transaction; `tell` learns the outcome once it is durable.
    pub(crate) fn submit(&self, transaction: Transaction, tell: Tell) {
        let mut tell = tell;
        // An upload can be taken only once, so its transaction must not have to be staged again.
        let once = transaction.ops.iter().any(|op| matches!(op, Op::PutUpload { .. }));
        for attempt in 0..=MOVES {
            let mut staged = match stage(self, &transaction, attempt < MOVES && !once) {
                Ok(staged) => staged,
                Err(error) => return tell(Err(error)),
            };
            let (steps, extents) = staged.take();
            self.look_ahead(&steps);
            let decision = self.decide(Job { steps, staged: extents, tell });
            drop(staged);
            match decision {
                Decision::Later => return,
                Decision::Now(tell, result) => return tell(result),
                Decision::Moved(job) => {
                    self.discard(&job.staged);
                    tell = job.tell;
                }
            }
        }
        tell(Err(Error::new(ErrorKind::Internal, "an append was never placed")));
    }

    /// Looks at the objects that a transaction will replace, so that what must come from memory or disk is at hand when
    /// the writers' lock is held.
    fn look_ahead(&self, steps: &[Step]) {
        for step in steps {
            if let Some(oid) = step.existing().filter(|oid| !oid.is_temporary()) {
                // Only the look matters; what is wrong is found under the lock.
                let _ = self.read_row(|layers| layers.held(oid).map(drop));
            }
        }
    }

    /// Commits steps of the store's own and waits.
    pub(crate) fn commit_steps(&self, steps: Vec<Step>, staged: Vec<Extent>) -> Result<()> {
        self.wait(|tell| match self.decide(Job { steps, staged, tell }) {
            Decision::Later => {}
            Decision::Now(tell, result) => tell(result),
            Decision::Moved(job) => (job.tell)(Err(Error::new(ErrorKind::Internal, "own steps append nothing"))),
        })
        .map(drop)
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
        if let Decision::Now(tell, result) = self.decide(Job { steps, staged: Vec::new(), tell }) {
            tell(result);
        }
    }

    /// Starts something that tells its outcome, and waits for that.
    pub(crate) fn wait(&self, start: impl FnOnce(Tell)) -> Result<Outcome> {
        let told = Arc::new(Told::default());
        let teller = Teller(Arc::clone(&told));
        start(Box::new(move |result| teller.0.tell(result)));
        if !self.options.threads {
            self.force()?;
        }
        told.wait()
    }

    fn decide(&self, job: Job) -> Decision {
        let mut writer = self.writer.lock();
        if let Some(refusal) = self.refusal(&writer) {
            drop(writer);
            self.discard(&job.staged);
            return Decision::Now(job.tell, Err(refusal));
        }
        if !writer.queue.is_empty() || self.is_full(&self.view.load()) {
            if self.durable.is_none() {
                let message = "the store in memory has no room; delete something, or start it with more";
                return Decision::Now(job.tell, Err(Error::new(ErrorKind::Full, message)));
            }
            self.counters.waits.fetch_add(1, Ordering::Relaxed);
            writer.queue.push_back(job);
            drop(writer);
            self.chores.notify_one();
            return Decision::Later;
        }
        self.apply(&mut writer, job)
    }

    fn refusal(&self, writer: &Writer) -> Option<Error> {
        if let Some(why) = &writer.failed {
            let message =
                format!("the store takes no more changes, as its log failed: {why}; mend that and restart it");
            return Some(Error::new(ErrorKind::Io, message));
        }
        if writer.closing {
            return Some(error::closed());
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

    /// Whether the buffer can take no more before something is installed.
    fn is_full(&self, view: &View) -> bool {
        match self.durable {
            Some(_) => view.frozen.is_some() && view.active.bytes() >= self.options.mob_bytes / 2,
            None => view.active.bytes() >= self.options.memory_bytes,
        }
    }

    /// Applies a transaction and puts its frame into the batch.
    fn apply(&self, writer: &mut Writer, job: Job) -> Decision {
        let Job { steps, staged, tell } = job;
        let (view, seq) = (self.view.load(), writer.next);
        let time_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_micros() as i64);
        let applied = self.apply_on(&view, seq, time_us, None, &steps);
        let result = match applied {
            Ok(Applied::Moved) => return Decision::Moved(Job { steps, staged, tell }),
            Ok(Applied::Done(Done { changes, created })) => {
                let entry = Entry { time_us, created, steps };
                if let Err(error) = self.frame(writer, &entry) {
                    self.discard(&staged);
                    return self.later(writer, seq - 1, tell, Err(error));
                }
                let committed = Committed { version: seq, created: entry.created };
                self.insert(&view.active, seq, changes);
                writer.next = seq + 1;
                writer.marked = false;
                let result = Ok(Outcome::Committed(committed));
                if self.durable.is_none() {
                    return Decision::Now(tell, result);
                }
                writer.waiters.push(Waiter { result, staged, tell });
                self.maybe_freeze(writer, &view);
                self.work.notify_one();
                return Decision::Later;
            }
            Ok(Applied::Conflict(conflict)) => Ok(Outcome::Conflict(conflict)),
            Err(error) => Err(error),
        };
        self.discard(&staged);
        self.later(writer, seq - 1, tell, result)
    }

    /// Tells a result that changed nothing, once what it speaks of is durable.
    fn later(&self, writer: &mut Writer, seq: Seq, tell: Tell, result: Result<Outcome>) -> Decision {
        if seq <= self.visible() {
            return Decision::Now(tell, result);
        }
        writer.waiters.push(Waiter { result, staged: Vec::new(), tell });
        self.work.notify_one();
        Decision::Later
    }

    /// Applies steps on the newest state, durable or not.
    pub(crate) fn apply_on(
        &self,
        view: &View,
        seq: Seq,
        time_us: i64,
        given: Option<Vec<model::Oid>>,
        steps: &[Step],
    ) -> Result<Applied> {
        let mut given = Some(given);
        let mut applied = None;
        let read = self.engine.read(&mut |engine| {
            let below = Layers {
                changes: None,
                active: &view.active,
                frozen: view.frozen.as_deref(),
                at: At::Seq(Seq::MAX),
                engine,
                files: self.files(),
            };
            applied = given.take().map(|given| Apply::run(below, seq, time_us, given, steps));
        });
        read.map_err(|e| StoreError::from(e).0)?;
        applied.unwrap_or_else(|| Err(Error::new(ErrorKind::Internal, "the B-tree was not read")))
    }

    /// Appends an entry's frame to the batch.
    fn frame(&self, writer: &mut Writer, entry: &Entry) -> Result<()> {
        if self.durable.is_none() {
            return Ok(());
        }
        if writer.batch.frames.is_empty() {
            writer.batch_prev = writer.crc;
        }
        let before = writer.batch.bytes.len();
        let (seq, crc, forced) = (writer.next, writer.crc, self.visible());
        let write = |out: &mut Vec<u8>| entry::encode(out, entry);
        let framed = frame::encode(&mut writer.batch.bytes, &self.id, seq, forced, crc, write);
        let limit = frame::MAX_PAYLOAD as u64;
        writer.crc = framed.map_err(|len| error::too_large("a transaction's log record", len as u64, limit))?;
        let end = writer.batch.bytes.len();
        writer.batch.frames.push((end, seq, writer.crc));
        writer.logged += (end - before) as u64;
        Ok(())
    }

    /// Puts changed rows into the buffer.
    pub(crate) fn insert(&self, active: &Mob, seq: Seq, changes: crate::layers::Changes) {
        let horizon = self.snapshots.horizon(&self.visible);
        if self.durable.is_some() {
            for (key, row) in changes {
                active.insert(key, seq, row, horizon);
            }
            return;
        }
        let keys: Vec<_> = changes.keys().cloned().collect();
        for (key, row) in changes {
            active.insert(key, seq, row, horizon);
        }
        self.visible.store(seq, Ordering::SeqCst);
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        let horizon = self.snapshots.horizon(&self.visible);
        for key in keys {
            active.settle(&key, horizon);
        }
    }

    /// Freezes the buffer for installing when it is half full, or the log is long.
    fn maybe_freeze(&self, writer: &mut Writer, view: &View) {
        let due = view.active.bytes() >= self.options.mob_bytes / 2 || writer.logged >= self.options.log_bytes();
        if due && view.frozen.is_none() {
            self.freeze(writer, view);
        }
    }

    /// Hands the buffer to the installer. Nothing may be frozen already.
    pub(crate) fn freeze(&self, writer: &mut Writer, view: &View) {
        assert!(view.frozen.is_none(), "one buffer is being installed at a time");
        let frozen = Some(Arc::clone(&view.active));
        // A buffer takes about as many rows as the last one did; one that was small does not say much.
        let active = Arc::new(Mob::with_room(view.active.rows() / 2));
        self.view.store(Arc::new(View { active, frozen }));
        writer.logged = 0;
        let _chores = self.housekeeping.lock();
        self.chores.notify_one();
    }

    /// Lets transactions go on that waited for room.
    pub(crate) fn resume_queue(&self) {
        loop {
            let mut writer = self.writer.lock();
            if writer.queue.is_empty() || (self.is_full(&self.view.load()) && self.refusal(&writer).is_none()) {
                return;
            }
            let Some(job) = writer.queue.pop_front() else { return };
            let decision = match self.refusal(&writer) {
                Some(refusal) => {
                    self.discard(&job.staged);
                    Decision::Now(job.tell, Err(refusal))
                }
                None => match self.apply(&mut writer, job) {
                    Decision::Moved(job) => match self.unstaged(job) {
                        Ok(job) => self.apply(&mut writer, job),
                        Err((tell, error)) => Decision::Now(tell, Err(error)),
                    },
                    decision => decision,
                },
            };
            drop(writer);
            match decision {
                Decision::Later => {}
                Decision::Now(tell, result) => tell(result),
                Decision::Moved(job) => {
                    self.discard(&job.staged);
                    (job.tell)(Err(Error::new(ErrorKind::Internal, "an append was never placed")));
                }
            }
        }
    }

    /// A transaction whose chunks were staged for an end that a blob had before: its appends as bytes for the log.
    fn unstaged(&self, job: Job) -> std::result::Result<Job, (Tell, Error)> {
        let Job { mut steps, mut staged, tell } = job;
        for step in &mut steps {
            let Step::Append { at, content, .. } = step else { continue };
            match content.unstaged(self.files()) {
                Ok(bytes) => {
                    self.discard(&content.extents);
                    staged.retain(|extent| !content.extents.contains(extent));
                    (*at, *content) = (None, Content { extents: Vec::new(), bytes });
                }
                Err(error) => {
                    self.discard(&staged);
                    return Err((tell, error));
                }
            }
        }
        Ok(Job { steps, staged, tell })
    }

    /// Forces what is in the batch, shows it and tells its writers.
    pub(crate) fn force(&self) -> Result<()> {
        let Some(durable) = &self.durable else { return Ok(()) };
        let forcing = self.forcing.lock();
        let mut writer = self.writer.lock();
        let (mut batch, prev) = (std::mem::take(&mut writer.batch), writer.batch_prev);
        let waiters = std::mem::take(&mut writer.waiters);
        drop(writer);
        if let Some((_, last, _)) = batch.frames.last() {
            let began = Instant::now();
            // A chunk must be durable before the log names it.
            let chunks = durable.files.force(waiters.iter().flat_map(|waiter| &waiter.staged));
            if let Err(error) = chunks.map_err(LogError::Chunks).and_then(|()| durable.log.append(&batch, prev)) {
                return Err(self.fail(forcing, &error, prev, waiters));
            }
            self.visible.store(*last, Ordering::SeqCst);
            let commits = waiters.iter().filter(|waiter| matches!(waiter.result, Ok(Outcome::Committed(_)))).count();
            self.counters.forced(commits, batch.bytes.len(), began.elapsed());
        }
        drop(forcing);
        for waiter in waiters {
            (waiter.tell)(waiter.result);
        }
        // The buffers go back, unless one large transaction has blown them up.
        batch.frames.clear();
        batch.bytes.clear();
        if batch.bytes.capacity() <= 1 << 20 {
            let mut writer = self.writer.lock();
            if writer.batch.frames.is_empty() {
                writer.batch = batch;
            }
        }
        Ok(())
    }

    /// Takes back everything that is not durable.
    fn fail(&self, forcing: MutexGuard<'_, ()>, error: &LogError, prev: u32, mut waiters: Vec<Waiter>) -> Error {
        let mut writer = self.writer.lock();
        let durable = self.visible();
        let view = self.view.load();
        for mob in [Some(&view.active), view.frozen.as_ref()].into_iter().flatten() {
            mob.roll_back(durable);
        }
        waiters.append(&mut writer.waiters);
        writer.batch = Batch::default();
        (writer.next, writer.crc) = (durable + 1, prev);
        let unlogged = matches!(error, LogError::Full(_) | LogError::Chunks(_));
        if !unlogged {
            writer.failed = Some(error.to_string().into());
        }
        drop(writer);
        drop(forcing);
        tracing::error!(%error, transactions = waiters.len(), "cannot force the log");
        let told = || match error {
            LogError::Full(_) => {
                let message = "the disk is full: the log cannot grow; nothing was changed; make room and try again";
                Error::new(ErrorKind::Full, message)
            }
            LogError::Chunks(cause) if disk::is_full(cause) => {
                let message = "the disk is full: a blob file cannot grow; nothing was changed; make room and try again";
                Error::new(ErrorKind::Full, message)
            }
            LogError::Chunks(cause) => {
                Error::new(ErrorKind::Io, format!("a blob file could not be forced: {cause}; nothing was changed"))
            }
            other => {
                let message = format!("the log failed while the transaction was forced: {other}; restart to find out");
                Error::new(ErrorKind::Unknown, message)
            }
        };
        for waiter in waiters {
            if unlogged {
                self.discard(&waiter.staged);
            }
            (waiter.tell)(Err(told()));
        }
        told()
    }

    fn discard(&self, extents: &[Extent]) {
        if let Some(files) = self.files() {
            files.discard(extents);
        }
    }

    /// The committer's life.
    pub(crate) fn run_committer(&self) {
        loop {
            let mut writer = self.writer.lock();
            while writer.waiters.is_empty() && writer.batch.frames.is_empty() && !writer.closing {
                if writer.marked {
                    self.work.wait(&mut writer);
                } else if self.work.wait_for(&mut writer, REST).timed_out() && writer.batch.frames.is_empty() {
                    self.mark(&mut writer);
                }
            }
            let closing = writer.closing && writer.batch.frames.is_empty() && writer.waiters.is_empty();
            if closing {
                return;
            }
            drop(writer);
            // What failed was told to those who waited for it.
            let _ = self.force();
        }
    }

    /// Logs a frame that only says what was forced before it, so that damage to the last ones would be noticed.
    pub(crate) fn mark(&self, writer: &mut Writer) {
        if writer.failed.is_none() && self.visible() + 1 == writer.next {
            let entry = Entry::default();
            if self.frame(writer, &entry).is_ok() {
                writer.next += 1;
            }
        }
        writer.marked = true;
    }

    /// Refuses new transactions and lets the committer end.
    pub(crate) fn close_writer(&self) {
        let mut writer = self.writer.lock();
        if self.durable.is_some() && !writer.marked && writer.batch.frames.is_empty() {
            self.mark(&mut writer);
        }
        writer.closing = true;
        drop(writer);
        self.work.notify_all();
    }
}
