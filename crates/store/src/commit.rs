//! Committing: any thread submits transactions; one thread applies them in order and forces many at a time. A transaction
//! is the changes of rows and contents that are submitted together.
//!
//! ```text
//!   submit ── stage chunks ── queue ───┐                                          (any thread)
//!   committer: drain the queue ── apply ── frame ── one write, one force ── show ── reply
//! ```
//!
//! Transactions that arrive while one batch is forced form the next batch. Threads that submit during a force apply the
//! queued transactions themselves, so the committer finds them applied. A transaction sees the changes of earlier
//! transactions that are not durable yet; readers do not. Errors are reported only when the state on which they depend is
//! durable. A store in memory has no log and no committer: each thread applies its own transaction
//! under the writer's lock. `committer` has the committer's loop. A thread that waits for its change may force the log itself
//! (`force_scope`).

pub(crate) mod apply;
mod committer;
pub(crate) mod contents;
pub(crate) mod force_scope;
pub(crate) mod housekeeping;
pub(crate) mod install;
mod queue;
mod round;
pub(crate) mod row_changes;
mod stage;
mod upload;
pub(crate) mod writer;

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use model::{Error, Result};
use parking_lot::Mutex;

use crate::content::blob_file::BlobFiles;
use crate::content::upload::Uploads;
use crate::error;
use crate::log::entry::Step;
use crate::log::frame::StoreId;
use crate::log::{FrameBatch, Log};
use crate::options::Options;
use crate::plant::{Bug, planted};
use crate::read::state::ReadState;
use crate::rows::key::DataId;
use crate::rows::mob::Seq;
use crate::rows::row::Extent;
use install::Installer;
use queue::CommitQueue;
use row_changes::{RowSequence, RowSequences};
use writer::WriterState;

/// An open store, shared by its handles and its threads.
pub(crate) struct Core {
    pub(crate) options: Options,
    pub(crate) id: StoreId,
    /// How often the store was opened and changed.
    pub(crate) incarnation: AtomicU32,
    /// Whether the log says so. It does from the first change on: an opening without changes leaves the log as it is.
    opening: Arc<OpeningStep>,
    /// What readers see.
    pub(crate) state: ReadState,
    /// `None` for a store in memory.
    pub(crate) log: Option<Log>,
    pub(crate) pipeline: Pipeline,
    pub(crate) installer: Installer,
    pub(crate) uploads: Uploads,
    pub(crate) counters: Counters,
    /// Called after the replies to the changes of a force.
    pub(crate) reply_hook: ArcSwapOption<ReplyHook>,
    /// Keeps other processes out of the directory. The last field, so that all files are closed before the lock is released.
    pub(crate) directory_lock: Option<File>,
}

/// How far the step has come that says that the store was opened.
#[derive(Default)]
struct OpeningStep {
    is_queued: AtomicBool,
    is_forced: AtomicBool,
    /// Locked while it is queued and while its end is recorded, so that an end is not recorded before it is marked as queued.
    queueing: Mutex<()>,
}

impl OpeningStep {
    /// The step is forced, or failed and precedes the next change.
    fn end(&self, is_forced: bool) {
        let _queueing = self.queueing.lock();
        self.is_forced.store(is_forced, Ordering::Release);
        self.is_queued.store(is_forced, Ordering::Release);
    }
}

/// The queue of transactions, the state in which they are applied, and the lock under which they are forced.
///
/// `force_lock` is locked before `writer`, and before `reply_lock`.
#[derive(Default)]
pub(crate) struct Pipeline {
    pub(crate) queue: CommitQueue,
    /// Locked while transactions are applied.
    pub(crate) writer: Mutex<WriterState>,
    /// Locked while a batch is forced, so that batches follow each other in the log. Contains the buffers of an earlier
    /// batch for reuse.
    pub(crate) force_lock: Mutex<FrameBatch>,
    /// Locked while the replies of a batch are sent, so that they precede those of the next one.
    pub(crate) reply_lock: Mutex<()>,
    /// How many transactions the last batch had.
    pub(crate) last_batch: AtomicUsize,
}

/// The files of a durable store.
#[derive(Clone, Copy)]
pub(crate) struct DurableFiles<'a> {
    pub(crate) log: &'a Log,
    pub(crate) files: &'a BlobFiles,
}

/// Totals since the store was opened.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) forces: AtomicU64,
    pub(crate) logged_bytes: AtomicU64,
    pub(crate) force_us: AtomicU64,
    pub(crate) installs: AtomicU64,
    pub(crate) installed_rows: AtomicU64,
    pub(crate) install_us: AtomicU64,
}

impl Counters {
    pub(crate) fn record_force(&self, commits: usize, bytes: usize, took: Duration) {
        self.commits.fetch_add(commits as u64, Ordering::Relaxed);
        self.forces.fetch_add(1, Ordering::Relaxed);
        self.logged_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.force_us.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }

    pub(crate) fn record_install(&self, rows: usize, took: Duration) {
        self.installs.fetch_add(1, Ordering::Relaxed);
        self.installed_rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.install_us.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }
}

/// Called with the position of a transaction, once it is durable.
type ResultCallback = Box<dyn FnOnce(Result<Seq>) + Send>;

/// Called with the number of replies to the changes of a force.
pub(crate) type ReplyHook = Box<dyn Fn(usize) + Send + Sync>;

/// A transaction that is not applied yet.
pub(crate) struct Job {
    pub(crate) steps: Vec<Step>,
    /// Chunks that are freed unless the transaction is logged.
    pub(crate) staged: Vec<Extent>,
    /// Uploads whose chunks are not garbage until the transaction is applied.
    pub(crate) taken_uploads: Vec<DataId>,
    /// The reason for a refusal that is known already.
    pub(crate) rejection: Option<Box<Error>>,
    /// The sequences of the changes: they may not be applied after an earlier change of one of them has failed.
    pub(crate) sequences: RowSequences,
    /// Whether a full store in memory accepts it.
    pub(crate) is_needed: bool,
    pub(crate) reply_to: ReplyTo,
}

impl Job {
    /// The reason to refuse the transaction whatever the state of the store.
    fn refusal(&mut self) -> Option<Error> {
        let is_behind = !planted(Bug::SequenceIgnored) && self.sequences.iter().any(RowSequence::is_broken);
        self.rejection.take().map(|wrong| *wrong).or_else(|| is_behind.then(RowSequence::broken_error))
    }

    /// A transaction without steps.
    pub(crate) fn new(reply_to: ReplyTo) -> Self {
        let (steps, staged, taken) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            steps,
            staged,
            taken_uploads: taken,
            rejection: None,
            sequences: RowSequences::new(),
            is_needed: false,
            reply_to,
        }
    }
}

/// How the result of a transaction reaches its submitter.
pub(crate) enum ReplyTo {
    /// Call this.
    Callback(ResultCallback),
    /// Store it here for a thread that waits until the round has ended.
    Slot(Arc<Mutex<Option<Result<Seq>>>>),
}

impl ReplyTo {
    pub(crate) fn send(self, result: Result<Seq>) {
        match self {
            Self::Callback(done) => done(result),
            Self::Slot(slot) => *slot.lock() = Some(result),
        }
    }
}

impl Core {
    pub(crate) fn new(options: Options, id: StoreId, state: ReadState, log: Option<Log>, writer: WriterState) -> Self {
        Self {
            options,
            id,
            incarnation: AtomicU32::new(0),
            opening: Arc::default(),
            state,
            log,
            pipeline: Pipeline { writer: Mutex::new(writer), ..Pipeline::default() },
            installer: Installer::new(),
            uploads: Uploads::new(),
            counters: Counters::default(),
            reply_hook: ArcSwapOption::empty(),
            directory_lock: None,
        }
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.log.is_some()
    }

    pub(crate) fn durable(&self) -> Option<DurableFiles<'_>> {
        let (log, files) = (self.log.as_ref()?, self.state.files()?);
        Some(DurableFiles { log, files })
    }

    /// Commits steps of the store itself and waits.
    pub(crate) fn commit_steps(&self, steps: Vec<Step>, staged: Vec<Extent>) -> Result<()> {
        let slot = Arc::default();
        let job = Job { steps, staged, ..Job::new(ReplyTo::Slot(Arc::clone(&slot))) };
        self.submit_job_and_wait(job, &slot).map(drop)
    }

    /// Commits steps of the store itself when there is room. `busy` is set until they are applied.
    pub(crate) fn submit_steps(&self, steps: Vec<Step>, busy: &Arc<AtomicBool>) {
        busy.store(true, Ordering::Release);
        let busy = Arc::clone(busy);
        let done = Box::new(move |result: Result<Seq>| {
            if let Err(error) = result {
                tracing::warn!(%error, "a background change failed and will be retried");
            }
            busy.store(false, Ordering::Release);
        });
        self.submit_job(Job { steps, ..Job::new(ReplyTo::Callback(done)) });
    }

    /// Whether this opening of the store has changed something, or is about to.
    pub(crate) fn has_changes(&self) -> bool {
        self.opening.is_queued.load(Ordering::Acquire)
    }

    /// Forces the step that says that the store was opened, unless that was done before.
    pub(crate) fn log_opening(&self) -> Result<()> {
        // The step precedes the first change, even one without steps. It is queued again if it was forced in a batch that failed.
        while !self.opening.is_forced.load(Ordering::Acquire) {
            self.commit_steps(Vec::new(), Vec::new())?;
        }
        Ok(())
    }

    /// Commits the first steps of a new store, one of which says that it was opened. Its threads do not run yet.
    pub(crate) fn initialize(&self, steps: Vec<Step>) -> Result<()> {
        self.opening.is_queued.store(true, Ordering::Release);
        self.submit_steps(steps, &Arc::default());
        let forced = self.force();
        self.opening.end(forced.is_ok());
        forced
    }

    /// Queues the step that says that the store was opened, which precedes the first change.
    fn queue_opening(&self) {
        if self.has_changes() {
            return;
        }
        let _queueing = self.opening.queueing.lock();
        if self.has_changes() {
            return;
        }
        let opening = Arc::clone(&self.opening);
        let done = Box::new(move |result: Result<Seq>| opening.end(result.is_ok()));
        let steps = vec![Step::Open { incarnation: self.incarnation.load(Ordering::Relaxed) }];
        // A closing store refuses the change, too.
        let _ = self.pipeline.queue.push(Job { steps, ..Job::new(ReplyTo::Callback(done)) });
        self.opening.is_queued.store(true, Ordering::Release);
    }

    /// Queues a transaction for the committer. A store without a committer applies it.
    pub(crate) fn submit_job(&self, job: Job) {
        if !self.is_durable() {
            return self.apply_now(job);
        }
        self.queue_opening();
        match self.pipeline.queue.push(job) {
            Ok(()) => self.announce(),
            Err(job) => self.refuse(*job, error::closed_error()),
        }
    }

    /// Queues transactions, of which the committer takes all or none at a time. A store without a committer applies them.
    pub(crate) fn submit_jobs(&self, jobs: Vec<Job>) {
        if !self.is_durable() {
            return jobs.into_iter().for_each(|job| self.apply_now(job));
        }
        self.queue_opening();
        match self.pipeline.queue.push_all(jobs) {
            Ok(()) => self.announce(),
            Err(jobs) => jobs.into_iter().for_each(|job| self.refuse(job, error::closed_error())),
        }
    }

    /// Has what is queued forced: by the committer, unless this thread [does it](force_scope).
    fn announce(&self) {
        if !force_scope::is_forced_by_this_thread(self) {
            self.wake_committer();
        }
    }

    /// Wakes the committer. While a batch is forced, this thread applies what is queued for the next one.
    fn wake_committer(&self) {
        if self.pipeline.force_lock.is_locked()
            && let Some(mut writer) = self.pipeline.writer.try_lock()
        {
            self.apply_queued(&mut writer);
        }
        self.pipeline.queue.wake();
    }

    /// Submits a transaction and waits for its result, which is stored at `slot`.
    pub(crate) fn submit_job_and_wait(&self, job: Job, slot: &Mutex<Option<Result<Seq>>>) -> Result<Seq> {
        if !self.is_durable() {
            self.apply_now(job);
        } else {
            self.queue_opening();
            match self.pipeline.queue.push_and_join(job) {
                Ok(end) => {
                    self.wake_committer();
                    if !self.options.threads {
                        self.force()?;
                    }
                    end.wait();
                }
                Err(job) => self.refuse(*job, error::closed_error()),
            }
        }
        slot.lock().take().unwrap_or_else(|| Err(error::closed_error()))
    }

    pub(crate) fn refuse(&self, job: Job, why: Error) {
        self.discard(&job.staged);
        self.uploads.release(&job.taken_uploads);
        job.sequences.iter().for_each(RowSequence::mark_broken);
        job.reply_to.send(Err(why));
    }
}
