//! The part of a brick in a scrub of the cluster, which is a job ([`meta::catalog::Job`]).
//!
//! A thread reads and checks; a task watches the catalogue, tells the thread how fast to read and when to stop, and records its progress. The
//! steps are those of [`super::scrub`]. After each step the part has another place, and a process that goes on begins with the next step, unless the
//! first one has found damage.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use meta::catalog::{
    CatalogEditor, Edited, Job, JobId, JobKind, JobPart, JobProgress, JobState, JobWorker, PartReport,
};
use model::{Error, ErrorKind, Result};
use protocol::token_bucket::TokenBucket;
use store::{Amount, Progress, Store};
use tokio::sync::oneshot;
use tokio::time;
use tracing::{debug, info, warn};
use wire::tasks;

use super::background_scrub::BackgroundScrub;
use super::nodes::Nodes;
use super::scrub::{self, Miscount, ScrubReport, Serving};

/// The place of a part whose store was read.
const OBJECTS: &str = "objects";
/// How often progress is recorded, if this is the only brick.
const RECORD_INTERVAL: Duration = Duration::from_secs(1);
/// The longest time until a change of the job is noticed.
const NOTICE_INTERVAL: Duration = Duration::from_millis(100);
/// How often jobs are looked for without a change of the catalogue.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// Bytes that are read at a time at a rate, and rows between two looks at the flag that stops it.
const PIECE: u64 = 64 << 10;
const ROWS_BETWEEN_LOOKS: u32 = 256;
/// The longest sleep of the thread.
const MAX_SLEEP: Duration = Duration::from_millis(50);

/// Works on the parts of a brick, until it is dropped.
pub(super) async fn run(nodes: Arc<Nodes>, background: Arc<BackgroundScrub>, worker: JobWorker) {
    let Some(mut changed) = nodes.cluster_view.catalog_changes() else { return };
    loop {
        if let Some(job) = next_scrub(&nodes, worker)
            && let Err(error) = work_on(&nodes, &background, job, worker).await
        {
            debug!(job = job.0, %error, "a scrub is not worked on now");
        }
        tokio::select! {
            ended = changed.changed() => {
                if ended.is_err() {
                    return;
                }
            }
            () = time::sleep(LOOK_INTERVAL) => {}
        }
    }
}

/// A scrub that waits for this brick.
fn next_scrub(nodes: &Nodes, worker: JobWorker) -> Option<JobId> {
    let catalog = nodes.cluster_view.catalog()?;
    // An earlier process of this brick may be alive by the catalogue until this one is announced.
    if !catalog.is_alive(worker.server, worker.start) {
        return None;
    }
    let waits = |job: &&Arc<Job>| {
        job.kind == JobKind::Scrub && job.state == JobState::Running && job.open_parts.contains(&nodes.id.0)
    };
    catalog.jobs().find(waits).map(|job| job.id)
}

/// What the thread and the task share.
#[derive(Debug, Default)]
struct Shared {
    is_stopped: AtomicBool,
    /// Bytes a second; 0: as fast as possible.
    rate: AtomicU64,
    bytes: AtomicU64,
    total_bytes: AtomicU64,
    objects: AtomicU64,
    /// What was found when the store was read.
    below: Mutex<Option<Vec<String>>>,
}

impl Shared {
    fn lock_below(&self) -> std::sync::MutexGuard<'_, Option<Vec<String>>> {
        // The list is consistent between any two statements.
        self.below.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stops the thread when the task ends.
struct StopGuard(Arc<Shared>);

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.0.is_stopped.store(true, Ordering::Relaxed);
    }
}

/// Holds the thread to the rate.
struct Pacer {
    shared: Arc<Shared>,
    begun: Instant,
    bucket: RefCell<TokenBucket>,
    /// Bytes that were taken from the bucket.
    taken: Cell<u64>,
    rows: Cell<u32>,
}

impl Pacer {
    fn new(shared: Arc<Shared>) -> Self {
        let bucket = RefCell::new(TokenBucket::new(None, 0));
        Self { shared, begun: Instant::now(), bucket, taken: Cell::new(0), rows: Cell::new(0) }
    }

    /// Notes what was read, and waits as the rate demands.
    fn advance(&self, bytes: u64) -> ControlFlow<()> {
        let (unpaid, rows) = (bytes.saturating_sub(self.taken.get()), self.rows.get() + 1);
        self.rows.set(rows);
        if unpaid < PIECE && rows < ROWS_BETWEEN_LOOKS {
            return ControlFlow::Continue(());
        }
        self.rows.set(0);
        self.taken.set(bytes.max(self.taken.get()));
        let mut bucket = self.bucket.borrow_mut();
        let now = || self.begun.elapsed().as_millis() as u64;
        bucket.take(unpaid, now());
        loop {
            if self.shared.is_stopped.load(Ordering::Relaxed) {
                return ControlFlow::Break(());
            }
            let rate = Some(self.shared.rate.load(Ordering::Relaxed)).filter(|rate| *rate > 0);
            bucket.set_rate(rate, now());
            let wait = Duration::from_millis(bucket.wait(now()));
            if wait.is_zero() {
                return ControlFlow::Continue(());
            }
            thread::sleep(wait.min(MAX_SLEEP));
        }
    }
}

impl Progress for Pacer {
    fn report(&self, amount: Amount) -> ControlFlow<()> {
        self.shared.bytes.store(amount.bytes, Ordering::Relaxed);
        self.shared.total_bytes.store(amount.total_bytes.max(amount.bytes), Ordering::Relaxed);
        self.advance(amount.bytes)
    }
}

/// Reads and checks what is left of a part, on the thread of this function.
fn check(store: &Store, serving: &Serving<'_>, is_store_checked: bool, shared: &Arc<Shared>) -> Result<ScrubReport> {
    let pacer = Pacer::new(shared.clone());
    // The rows are read once more, to be compared with each other.
    let rows_bytes = store.status().tree_bytes;
    let mut below = store::ScrubReport::default();
    if !is_store_checked {
        let progress = |amount: Amount| pacer.report(Amount { total_bytes: amount.total_bytes + rows_bytes, ..amount });
        below = store.scrub(&progress)?;
        let found = below.damage.iter().map(ToString::to_string).collect();
        *shared.lock_below() = Some(found);
    }
    // Objects are read once more, too; that is not part of the progress.
    let paid = pacer.taken.get();
    let mut report = scrub::check_objects(store, serving, below, &mut |objects, bytes| {
        shared.objects.store(objects, Ordering::Relaxed);
        pacer.advance(paid + bytes)
    })?;
    let (paid, bytes) = (pacer.taken.get(), shared.bytes.load(Ordering::Relaxed));
    let compared = |read: u64| {
        shared.bytes.store(bytes + read, Ordering::Relaxed);
        pacer.advance(paid + read)
    };
    scrub::compare_rows(store, serving, &compared, &mut report)?;
    Ok(report)
}

/// The progress of a part, with what an earlier process has recorded of it.
struct Work {
    before: JobPart,
    shared: Arc<Shared>,
    begun: Instant,
}

impl Work {
    /// Whether the store was read and is whole. One with damage is read again, because the second step names the objects of damaged contents and does
    /// not report rows again that are on damaged pages.
    fn is_store_checked(&self) -> bool {
        self.before.place.as_deref() == Some(OBJECTS) && self.before.progress.found == 0
    }

    /// The place and the progress now.
    fn state(&self) -> (Option<String>, JobProgress) {
        let before = &self.before.progress;
        let worked_ms = before.worked_ms.saturating_add(self.begun.elapsed().as_millis() as u64);
        if self.is_store_checked() {
            let objects = self.shared.objects.load(Ordering::Relaxed);
            return (self.before.place.clone(), JobProgress { worked_ms, objects, ..before.clone() });
        }
        let mut progress = JobProgress {
            worked_ms,
            done: self.shared.bytes.load(Ordering::Relaxed),
            total: self.shared.total_bytes.load(Ordering::Relaxed),
            objects: self.shared.objects.load(Ordering::Relaxed),
            ..JobProgress::default()
        };
        let below = self.shared.lock_below();
        let place = below.as_ref().map(|_| OBJECTS.to_owned());
        below.iter().flatten().for_each(|finding| progress.add_finding(finding));
        (place, progress)
    }

    /// The progress at the end of the part, of which these wrong counts were corrected.
    fn end(&self, report: &ScrubReport, corrected: &[Miscount]) -> JobProgress {
        let (_, mut progress) = self.state();
        progress.objects = report.objects;
        progress.total = progress.done;
        progress.findings = Vec::new();
        // These name objects, too.
        let damage = report.damage.iter().map(ToString::to_string);
        let contradictions = report.listed_contradictions().map(ToString::to_string);
        damage.chain(contradictions).for_each(|text| progress.add_finding(&text));
        // Some may not be listed.
        progress.found = report.damaged + report.contradictions;
        corrected.iter().for_each(|miscount| progress.add_correction(&miscount.to_string()));
        progress
    }
}

/// Claims the part of this brick, and works on it.
async fn work_on(nodes: &Arc<Nodes>, background: &Arc<BackgroundScrub>, id: JobId, worker: JobWorker) -> Result<()> {
    let (view, part) = (&nodes.cluster_view, (id, nodes.id.0));
    let editor = view.editor()?;
    let claimed = editor.claim_job_part(id, part.1, worker).await?;
    view.wait_for_revision(claimed.revision).await?;
    info!(job = id.0, "scrubbing");
    let shared = Arc::new(Shared::default());
    shared.rate.store(claimed.value.0.rate.unwrap_or(0), Ordering::Relaxed);
    let work = Work { before: claimed.value.1, shared: shared.clone(), begun: Instant::now() };
    let _stop = StopGuard(shared.clone());
    let (tell, mut told) = oneshot::channel();
    let (served, is_store_checked) = (nodes.clone(), work.is_store_checked());
    let checking = move || {
        let _ = tell.send(served.with_serving(|serving| check(&served.store, serving, is_store_checked, &shared)));
    };
    let spawned = thread::Builder::new().name("mortar-scrub".to_owned()).spawn(checking);
    let checked = match spawned {
        Ok(_) => watch(nodes, part, worker, (&work, &mut told)).await,
        Err(error) => Err(Error::new(ErrorKind::Unavailable, "the system grants no thread").with_source(error)),
    };
    let is_stopped = work.shared.is_stopped.load(Ordering::Relaxed);
    let (state, report) = match checked {
        Ok(report) => {
            report.log();
            let ended = work.end(&report, &correct(nodes, &report.miscounts));
            let damage = ended.found;
            let first = ended.findings.first().filter(|_| damage > 0).cloned();
            let (reporting, background) = (nodes.clone(), background.clone());
            let report = move || background.report_whole(&reporting.store, damage, report.dangling, first);
            if let Err(error) = tasks::spawn_blocking(report).await {
                warn!(%error, "what the scrub found is not in the status of the brick");
            }
            ((None, ended), PartReport::Complete)
        }
        Err(error) if is_stopped || error.kind() == ErrorKind::Unavailable => {
            debug!(%error, "a scrub is released");
            if !is_stopped {
                time::sleep(LOOK_INTERVAL).await;
            }
            (work.state(), PartReport::Released)
        }
        Err(error) => {
            let is_damage = error.kind() == ErrorKind::Corrupt;
            let report = if is_damage { PartReport::Damaged } else { PartReport::Failed };
            (work.state(), report(format!("brick {}: {error}", nodes.id.0)))
        }
    };
    let recorded = record_end(editor, part, worker, state, report).await?;
    view.wait_for_revision(recorded.revision).await.map(drop)
}

/// Records the end of the work on a part, when the catalogue can be reached.
async fn record_end(
    editor: &CatalogEditor,
    part: (JobId, u32),
    worker: JobWorker,
    state: (Option<String>, JobProgress),
    report: PartReport,
) -> Result<Edited<Job>> {
    loop {
        match editor.report_job_part(part, worker, state.clone(), report.clone()).await.map_err(Error::from) {
            Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown) => {
                debug!(%error, "the end of the work on a scrub is not recorded now");
                time::sleep(RECORD_INTERVAL).await;
            }
            ended => return ended,
        }
    }
}

/// Corrects wrong counts of objects. Returns those that were corrected; others are of logical nodes that are not served here any more.
pub(super) fn correct(nodes: &Nodes, miscounts: &[Miscount]) -> Vec<Miscount> {
    let is_corrected = |miscount: &&Miscount| match nodes.correct_usage(miscount) {
        Ok(()) => true,
        Err(error) => {
            debug!(%error, "a wrong count is not corrected now");
            false
        }
    };
    miscounts.iter().filter(is_corrected).copied().collect()
}

/// Waits for the end of the thread. Meanwhile it passes on the state of the job, and records the progress.
async fn watch(
    nodes: &Nodes,
    part: (JobId, u32),
    worker: JobWorker,
    (work, told): (&Work, &mut oneshot::Receiver<Result<ScrubReport>>),
) -> Result<ScrubReport> {
    let mut recorded = Instant::now();
    loop {
        if let Ok(ended) = time::timeout(NOTICE_INTERVAL, &mut *told).await {
            let panicked = |_| Error::new(ErrorKind::Internal, "the scrub has panicked");
            return ended.map_err(panicked).flatten();
        }
        let catalog = nodes.cluster_view.catalog().unwrap_or_default();
        let Some(job) = catalog.job(part.0).filter(|job| job.state == JobState::Running) else {
            work.shared.is_stopped.store(true, Ordering::Relaxed);
            continue;
        };
        work.shared.rate.store(job.rate.unwrap_or(0), Ordering::Relaxed);
        // All bricks together record about once a second.
        if recorded.elapsed() >= RECORD_INTERVAL * u32::try_from(job.open_parts.len()).unwrap_or(u32::MAX).max(1) {
            recorded = Instant::now();
            record(nodes.cluster_view.editor()?, part, worker, work).await;
        }
    }
}

/// Records the progress. While the catalogue is away, the work goes on.
async fn record(editor: &CatalogEditor, part: (JobId, u32), worker: JobWorker, work: &Work) {
    if let Err(error) = editor.report_job_part(part, worker, work.state(), PartReport::Continues).await {
        match error.kind() {
            ErrorKind::Unavailable | ErrorKind::Unknown => {
                debug!(%error, "the progress of a scrub is not recorded now")
            }
            // Another process of this brick has taken over, or the job has ended.
            _ => work.shared.is_stopped.store(true, Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests;
