//! Works on jobs of a cluster that are done through transactions or a cut, in the process of a peer server.
//!
//! The runner watches the catalogue, claims such jobs as no other living process works on, and works on each as a client of its own peer
//! server, or an administrator, would. What is claimed by whom is decided by [`meta::catalog::Job`].

mod clone;
mod evolve;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use meta::catalog::{
    BrickId, Catalog, CatalogEditor, Edited, Job, JobId, JobKind, JobPart, JobProgress, JobState, JobWorker, PartReport,
};
use model::{Error, ErrorKind, Result};
use node::process::{JobHost, PeerProcess};
use protocol::token_bucket::TokenBucket;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time;
use tracing::{debug, info, warn};
use wire::tasks;

pub use evolve::{count_objects, upgrade_object};

/// How often progress is recorded.
const RECORD_INTERVAL: Duration = Duration::from_secs(1);
/// The longest time until a change of the job is noticed.
const NOTICE_INTERVAL: Duration = Duration::from_millis(100);
/// How often jobs are looked for without a change of the catalogue: a process that has ended is noticed by its entry.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// Most jobs that a process works on at a time.
const AT_A_TIME: usize = 4;
/// How long to wait before an attempt is repeated that failed because something is away.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// The longest random wait before a job is claimed, so that several processes do not all try it at once.
const MAX_CLAIM_DELAY_MS: u64 = 50;
/// How often expired jobs are removed.
const TIDY_INTERVAL: Duration = Duration::from_secs(60);

/// Works on jobs until it is stopped.
#[derive(Debug)]
pub struct JobRunner {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl JobRunner {
    /// Starts to work on jobs in the process of a peer server.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn start(host: JobHost) -> Self {
        let (stop, stopped) = watch::channel(false);
        Self { stop, task: tasks::spawn(run(Arc::new(host), stopped)) }
    }

    /// Starts to work on jobs in the process of each of these peer servers.
    #[must_use]
    pub fn start_all(peers: &[PeerProcess]) -> Vec<Self> {
        peers.iter().map(|peer| Self::start(peer.job_host().clone())).collect()
    }

    /// Stops all of these.
    pub async fn stop_all(runners: Vec<Self>) {
        for runner in runners {
            runner.stop().await;
        }
    }

    /// Stops: records how far its jobs are, and releases them, so that other processes can go on at once.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            warn!(%error, "the work on jobs has ended early");
        }
    }
}

async fn run(host: Arc<JobHost>, mut stopped: watch::Receiver<bool>) {
    let Some(mut changed) = host.view.catalog_changes() else { return };
    let (mut working, mut tasks) = (BTreeSet::new(), JoinSet::new());
    let mut tidied: Option<Instant> = None;
    while !*stopped.borrow() {
        let catalog = host.view.catalog().unwrap_or_default();
        for job in catalog.jobs().filter(|job| is_claimable(&catalog, job, host.worker)) {
            if tasks.len() < AT_A_TIME && working.insert(job.id) {
                let (host, id, stopped) = (host.clone(), job.id, stopped.clone());
                tasks::spawn_in(&mut tasks, async move {
                    if let Err(error) = work_on(&host, id, stopped).await {
                        debug!(job = id.0, %error, "a job is not worked on here");
                    }
                    id
                });
            }
        }
        if tidied.is_none_or(|at| at.elapsed() >= TIDY_INTERVAL) {
            tidied = Some(Instant::now());
            tidy(&host, &catalog).await;
        }
        tokio::select! {
            _ = changed.changed() => {}
            () = time::sleep(LOOK_INTERVAL) => {}
            Some(ended) = tasks.join_next() => {
                // A task that has panicked is reported by the runtime; its job is claimed again by a later start.
                if let Ok(id) = ended {
                    working.remove(&id);
                }
            }
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
    }
    while tasks.join_next().await.is_some() {}
}

/// Whether a job can be claimed by this worker, by its copy of the catalogue.
fn is_claimable(catalog: &Catalog, job: &Job, own: JobWorker) -> bool {
    let part = catalog.job_part(job.id, 0);
    let is_free = part.worker.is_none_or(|worker| worker == own || !catalog.is_alive(worker.server, worker.start));
    matches!(job.kind, JobKind::Evolve { .. } | JobKind::Clone { .. }) && job.state == JobState::Running && is_free
}

/// Removes expired jobs, and ends those that nothing can complete any more. Other processes do the same.
async fn tidy(host: &JobHost, catalog: &Catalog) {
    let Ok(editor) = host.view.editor() else { return };
    for job in catalog.jobs().filter(|job| !job.state.is_end()) {
        if job.kind.space().is_some_and(|space| catalog.space_by_id(space).is_none()) {
            report(job.id, "a job of a removed space", editor.cancel_job(job.id).await);
        }
        let is_scrub = job.kind == JobKind::Scrub;
        for brick in job.open_parts.iter().map(|part| BrickId(*part)).filter(|brick| catalog.brick(*brick).is_none()) {
            if is_scrub {
                report(job.id, "a scrub of a removed brick", editor.drop_job_part(job.id, brick).await);
            }
        }
    }
    if catalog.jobs().any(|job| job.state.is_end()) {
        report(JobId(0), "expired jobs", editor.remove_expired_jobs().await);
    }
}

fn report<T>(job: JobId, what: &str, result: Result<T, meta::catalog::CatalogError>) {
    if let Err(error) = result {
        debug!(job = job.0, %error, "cannot tidy up {what}; it is tried again");
    }
}

/// Claims a job and works on it.
async fn work_on(host: &Arc<JobHost>, id: JobId, stopped: watch::Receiver<bool>) -> Result<()> {
    time::sleep(Duration::from_millis(rand::random_range(0..=MAX_CLAIM_DELAY_MS))).await;
    let editor = host.view.editor()?.clone();
    let claimed = editor.claim_job_part(id, 0, host.worker).await?;
    host.view.wait_for_revision(claimed.revision).await?;
    let (job, part) = claimed.value;
    info!(job = id.0, "working on a job");
    let mut work = PartWork::new(host.clone(), editor, (&job, part), stopped);
    let done = match &job.kind {
        JobKind::Evolve { space, classes } => evolve::run(&mut work, *space, classes).await,
        JobKind::Clone { .. } => clone::run(&mut work, &job).await,
        JobKind::BuildIndex { .. } | JobKind::Scrub => Ok(WorkEnd::Interrupted),
    };
    work.finish(done).await
}

/// How the work on a part has ended.
enum WorkEnd {
    /// All is done.
    Complete,
    /// The end of the job is in the catalogue already.
    Recorded,
    /// The job was paused or cancelled, another process has taken over, or this one ends.
    Interrupted,
}

/// The work on a part of a job: its progress, and whether and how fast to go on.
struct PartWork {
    host: Arc<JobHost>,
    editor: CatalogEditor,
    job: JobId,
    place: Option<String>,
    progress: JobProgress,
    bucket: TokenBucket,
    begun: Instant,
    /// When progress was recorded, and up to when work is counted in it.
    recorded: Instant,
    is_lost: bool,
    stopped: watch::Receiver<bool>,
}

impl PartWork {
    fn new(
        host: Arc<JobHost>,
        editor: CatalogEditor,
        (job, part): (&Job, JobPart),
        stopped: watch::Receiver<bool>,
    ) -> Self {
        let (begun, JobPart { place, progress, .. }) = (Instant::now(), part);
        let bucket = TokenBucket::new(job.rate, 0);
        Self { host, editor, job: job.id, place, progress, bucket, begun, recorded: begun, is_lost: false, stopped }
    }

    fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// Whether to go on, by this process's copy of the catalogue. Takes over the rate.
    fn goes_on(&mut self) -> bool {
        let catalog = self.host.view.catalog().unwrap_or_default();
        let Some(job) = catalog.job(self.job).filter(|job| job.state == JobState::Running) else { return false };
        let now = self.now_ms();
        self.bucket.set_rate(job.rate, now);
        !self.is_lost && !*self.stopped.borrow()
    }

    /// Waits until more may be done. Returns whether to go on.
    async fn pace(&mut self) -> bool {
        loop {
            self.record_if_due().await;
            if !self.goes_on() {
                return false;
            }
            let wait = Duration::from_millis(self.bucket.wait(self.now_ms()));
            if wait.is_zero() {
                return true;
            }
            time::sleep(wait.min(NOTICE_INTERVAL)).await;
        }
    }

    /// Objects that were read and are about to be rewritten count for the rate.
    fn take(&mut self, count: u64) {
        let now = self.now_ms();
        self.bucket.take(count, now);
    }

    /// How many objects to work on at a time.
    fn portion(&self, most: u64) -> u64 {
        self.bucket.portion(most)
    }

    fn count_time(&mut self) {
        let since = self.recorded.elapsed();
        self.recorded = Instant::now();
        self.progress.worked_ms += since.as_millis() as u64;
    }

    async fn record_if_due(&mut self) {
        if self.recorded.elapsed() < RECORD_INTERVAL {
            return;
        }
        self.count_time();
        match self.report(PartReport::Continues).await {
            // While the catalogue is away, the work goes on.
            Err(error) if is_retryable(&error) => debug!(job = self.job.0, %error, "progress cannot be recorded now"),
            Err(error) => {
                info!(job = self.job.0, %error, "the work on a job ends here");
                self.is_lost = true;
            }
            Ok(_) => {}
        }
    }

    async fn report(&self, report: PartReport) -> Result<Edited<Job>> {
        let state = (self.place.clone(), self.progress.clone());
        Ok(self.editor.report_job_part((self.job, 0), self.host.worker, state, report).await?)
    }

    /// Waits before an attempt that something prevents. Returns whether to try again.
    async fn wait_for(&mut self, problem: &Error) -> bool {
        self.progress.problem = Some(problem.to_string().chars().take(500).collect());
        let until = Instant::now() + RETRY_DELAY;
        while Instant::now() < until {
            if !self.goes_on() {
                return false;
            }
            time::sleep(NOTICE_INTERVAL).await;
        }
        self.record_if_due().await;
        true
    }

    /// Records the end of the work on the part.
    async fn finish(mut self, done: Result<WorkEnd>) -> Result<()> {
        if self.is_lost {
            return Ok(());
        }
        self.count_time();
        self.progress.problem = None;
        let report = match done {
            Ok(WorkEnd::Recorded) => return Ok(()),
            Ok(WorkEnd::Complete) => PartReport::Complete,
            Ok(WorkEnd::Interrupted) => PartReport::Released,
            Err(error) if error.kind() == ErrorKind::Corrupt => PartReport::Damaged(error.to_string()),
            Err(error) => PartReport::Failed(error.to_string()),
        };
        loop {
            match self.report(report.clone()).await {
                Ok(recorded) => {
                    self.host.view.wait_for_revision(recorded.revision).await?;
                    info!(job = self.job.0, state = recorded.value.state.word(), "the work on a job has ended");
                    return Ok(());
                }
                Err(error) if is_retryable(&error) && !*self.stopped.borrow() => time::sleep(RETRY_DELAY).await,
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether an attempt may succeed later: something is away, busy or full.
fn is_retryable(error: &Error) -> bool {
    use ErrorKind::{Full, QuotaExceeded, Stopped, Unavailable, Unknown};
    matches!(error.kind(), Unavailable | Unknown | Stopped | Full | QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_succeed_later_is_tried_again() {
        let is_tried_again = |kind| is_retryable(&Error::new(kind, "why"));
        let later = [ErrorKind::Unavailable, ErrorKind::Unknown, ErrorKind::Full, ErrorKind::QuotaExceeded];
        let never = [ErrorKind::Corrupt, ErrorKind::Denied, ErrorKind::Invalid, ErrorKind::NotFound];
        assert_eq!((later.map(is_tried_again), never.map(is_tried_again)), ([true; 4], [false; 4]));
    }
}
