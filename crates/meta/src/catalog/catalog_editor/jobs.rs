//! Jobs. [`Job`] decides what is allowed.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use super::clones::give_clone_up;
use super::spaces::SPACE;
use super::{CatalogEditor, Edited, Result, edit};
use crate::catalog::catalog_draft::CatalogDraft;
use crate::catalog::entry::{self, Path};
use crate::catalog::error::CatalogError;
use crate::catalog::ident::{BrickId, JobId};
use crate::catalog::index::Index;
use crate::catalog::job::{self, Job, JobKind, JobPart, JobProgress, JobState, JobWorker, PartReport};
use crate::catalog::member::ServerId;
use crate::catalog::member::{BrickRecord, Liveness};
use crate::catalog::space::{RemovedSpace, Space};
use crate::limits;

pub(super) const JOB: &str = "job";
/// Jobs that are removed in one step.
const MAX_REMOVED: usize = 8;
/// Parts of such a job that are removed in that step; the others stay, and are removed with the next change.
const MAX_REMOVED_PARTS: usize = 64;

/// The time in milliseconds since 1970, for people: nothing depends on it but how long jobs are kept.
pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

impl CatalogEditor {
    /// Begins a job with these parts.
    ///
    /// # Errors
    /// [`CatalogError::TooMany`]; [`CatalogError::WrongJobState`] if another scrub has not ended; [`CatalogError::Invalid`] for the rate;
    /// [`CatalogError::Missing`] if the space was removed.
    pub async fn begin_job(&self, kind: &JobKind, parts: &BTreeSet<u32>, rate: Option<u64>) -> Result<Edited<Job>> {
        job::check_rate(rate)?;
        edit!(self, |draft| {
            let id = reserve_jobs(&mut draft, 1).await?;
            let known: Vec<Job> = draft.scan(entry::jobs()?).await?.into_iter().map(|(_, job)| job).collect();
            check_room(&known, kind)?;
            if let Some(space) = kind.space() {
                let removed: Option<RemovedSpace> = draft.get(&Path::RemovedSpace(space)).await?;
                if removed.is_some() {
                    return Err(CatalogError::missing(SPACE, space.0));
                }
            }
            let job = Job::begin(id, kind.clone(), (self.caller_name(), now_ms()), rate, parts.clone());
            draft.put(&Path::Job(id), &job)?;
            remove_expired(&mut draft, &known).await?;
            job
        })
    }

    /// A job that builds an index, which the draft creates.
    pub(super) fn index_job(&self, id: JobId, space: &Space, index: &Index) -> Job {
        let kind = JobKind::BuildIndex { space: space.id, index: index.id, name: index.name.clone() };
        Job::begin(id, kind, (self.caller_name(), now_ms()), None, BTreeSet::new())
    }

    /// Pauses a job.
    ///
    /// # Errors
    /// [`CatalogError::Missing`]; [`CatalogError::WrongJobState`] if it has ended.
    pub async fn pause_job(&self, id: JobId) -> Result<Edited<Job>> {
        self.change_job(id, Job::pause).await
    }

    /// Resumes a job.
    ///
    /// # Errors
    /// As [`CatalogEditor::pause_job`].
    pub async fn resume_job(&self, id: JobId) -> Result<Edited<Job>> {
        self.change_job(id, Job::resume).await
    }

    /// Sets the rate of a job; `None`: as fast as possible.
    ///
    /// # Errors
    /// As [`CatalogEditor::pause_job`]; [`CatalogError::Invalid`].
    pub async fn set_job_rate(&self, id: JobId, rate: Option<u64>) -> Result<Edited<Job>> {
        self.change_job(id, |job| job.set_rate(rate)).await
    }

    /// Cancels a job. What it has done stays, except that an index that is being built is removed, and what there is of a clone.
    ///
    /// # Errors
    /// As [`CatalogEditor::pause_job`].
    pub async fn cancel_job(&self, id: JobId) -> Result<Edited<Job>> {
        let cancelled: Result<Edited<Job>> = edit!(self, |draft| {
            let mut job: Job = draft.require(&Path::Job(id), JOB, &id.to_string()).await?;
            job.end(JobState::Cancelled, None, now_ms())?;
            if let JobKind::BuildIndex { space, index, name } = &job.kind {
                let path = Path::Index(*space, name.clone());
                let known: Option<Index> = draft.get(&path).await?;
                if known.is_some_and(|known| known.id == *index) {
                    draft.touch(&Path::Schema(*space)).await?;
                    draft.remove(&path)?;
                }
            }
            give_clone_up(&mut draft, &job).await?;
            draft.put(&Path::Job(id), &job)?;
            job
        });
        let cancelled = cancelled?;
        self.remove_schema_of_clone(&cancelled.value).await;
        Ok(cancelled)
    }

    async fn change_job(&self, id: JobId, change: impl Fn(&mut Job) -> Result<()>) -> Result<Edited<Job>> {
        edit!(self, |draft| {
            let mut job: Job = draft.require(&Path::Job(id), JOB, &id.to_string()).await?;
            change(&mut job)?;
            draft.put(&Path::Job(id), &job)?;
            job
        })
    }

    /// Claims a part of a job for a worker.
    ///
    /// # Errors
    /// [`CatalogError::WrongJobState`] if it cannot be claimed now; [`CatalogError::Missing`].
    pub async fn claim_job_part(&self, id: JobId, part: u32, worker: JobWorker) -> Result<Edited<(Job, JobPart)>> {
        edit!(self, |draft| {
            let job: Job = draft.require(&Path::Job(id), JOB, &id.to_string()).await?;
            let path = Path::JobPart(id, part);
            let mut state: JobPart = draft.get(&path).await?.unwrap_or_default();
            let is_alive = match state.worker.filter(|other| *other != worker) {
                Some(other) => is_alive(&mut draft, other).await?,
                None => false,
            };
            job.claim((part, &mut state), worker, |_| is_alive)?;
            draft.put(&path, &state)?;
            (job, state)
        })
    }

    /// Records what a worker has done, and whether it goes on. Returns the job.
    ///
    /// # Errors
    /// [`CatalogError::WrongJobState`] if the job has ended, or the worker has lost the part; [`CatalogError::Missing`].
    pub async fn report_job_part(
        &self,
        (id, part): (JobId, u32),
        worker: JobWorker,
        state: (Option<String>, JobProgress),
        report: PartReport,
    ) -> Result<Edited<Job>> {
        let reported: Result<Edited<Job>> = edit!(self, |draft| {
            let before: Job = draft.require(&Path::Job(id), JOB, &id.to_string()).await?;
            let path = Path::JobPart(id, part);
            let mut kept: JobPart = draft.get(&path).await?.unwrap_or_default();
            let mut job = before.clone();
            job.report((part, &mut kept), worker, state.clone(), (&report, now_ms()))?;
            draft.put(&path, &kept)?;
            if job != before {
                give_clone_up(&mut draft, &job).await?;
                draft.put(&Path::Job(id), &job)?;
            }
            job
        });
        let reported = reported?;
        self.remove_schema_of_clone(&reported.value).await;
        Ok(reported)
    }

    /// A part of a job is dropped, because its brick was removed.
    ///
    /// # Errors
    /// [`CatalogError::InUse`] if the brick exists; as [`CatalogEditor::pause_job`].
    pub async fn drop_job_part(&self, id: JobId, brick: BrickId) -> Result<Edited<Job>> {
        edit!(self, |draft| {
            if draft.get::<BrickRecord>(&Path::Brick(brick)).await?.is_some() {
                let (name, by) = (brick.to_string(), format!("job {id}"));
                return Err(CatalogError::InUse { what: "brick", name, by, remedy: "wait for it" });
            }
            let mut job: Job = draft.require(&Path::Job(id), JOB, &id.to_string()).await?;
            job.drop_part(brick.0, now_ms())?;
            draft.put(&Path::Job(id), &job)?;
            job
        })
    }

    /// Removes some jobs that have ended long ago, or before many others.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn remove_expired_jobs(&self) -> Result<Edited<()>> {
        edit!(self, |draft| {
            let known: Vec<Job> = draft.scan(entry::jobs()?).await?.into_iter().map(|(_, job)| job).collect();
            remove_expired(&mut draft, &known).await?;
        })
    }

    /// The name of the caller, for people.
    pub(super) fn caller_name(&self) -> String {
        self.caller.as_deref().unwrap_or_default().to_owned()
    }
}

/// Reserves numbers of jobs; returns the first.
pub(super) async fn reserve_jobs(draft: &mut CatalogDraft<'_>, count: u64) -> Result<JobId> {
    Ok(JobId(draft.reserve_numbers("jobs", count, u64::MAX - 1).await?))
}

/// Ends the job of an index.
pub(super) async fn end_index_job(draft: &mut CatalogDraft<'_>, index: &Index, state: JobState) -> Result<()> {
    let Some(id) = index.job else { return Ok(()) };
    let job: Option<Job> = draft.get(&Path::Job(id)).await?;
    if let Some(mut job) = job.filter(|job| !job.state.is_end()) {
        job.end(state, None, now_ms())?;
        draft.put(&Path::Job(id), &job)?;
    }
    Ok(())
}

/// Checks that another job of this kind can begin.
pub(super) fn check_room(known: &[Job], kind: &JobKind) -> Result<()> {
    let mut open = known.iter().filter(|job| !job.state.is_end());
    if *kind == JobKind::Scrub
        && let Some(other) = open.clone().find(|job| job.kind == JobKind::Scrub)
    {
        let state = format!("a scrub, and {}", other.state.word());
        return Err(CatalogError::WrongJobState { job: other.id.0, state, remedy: "wait for it, or cancel it" });
    }
    let counted = open.by_ref().filter(|job| !matches!(job.kind, JobKind::BuildIndex { .. })).count();
    if counted >= limits::JOBS {
        return Err(CatalogError::TooMany { what: "jobs that have not ended", limit: limits::JOBS as u64 });
    }
    Ok(())
}

/// Removes some of the jobs that are kept no longer, with their parts.
pub(super) async fn remove_expired(draft: &mut CatalogDraft<'_>, known: &[Job]) -> Result<()> {
    let mut room = MAX_REMOVED_PARTS;
    for id in job::expired_jobs(known.iter(), now_ms()).into_iter().take(MAX_REMOVED) {
        let parts: Vec<(Path, JobPart)> = draft.scan(entry::job_parts(id)?).await?;
        for (path, _) in parts.iter().take(room) {
            draft.remove(path)?;
        }
        // The rest of its parts, and then it, go with a later write.
        let Some(left) = room.checked_sub(parts.len()) else { break };
        room = left;
        draft.remove(&Path::Job(id))?;
    }
    Ok(())
}

/// Whether the start of a worker is alive, as of the write of the draft.
async fn is_alive(draft: &mut CatalogDraft<'_>, worker: JobWorker) -> Result<bool> {
    let path = match worker.server {
        ServerId::Brick(id) => Path::AliveBrick(id),
        ServerId::Peer(id) => Path::AlivePeer(id),
    };
    let alive: Option<Liveness> = draft.get(&path).await?;
    Ok(alive.is_some_and(|alive| alive.start == worker.start))
}
