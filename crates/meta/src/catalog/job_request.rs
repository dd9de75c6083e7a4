//! Requests about jobs, and their state as users see it.

use serde::Serialize;

use super::Catalog;
use super::error::CatalogError;
use super::ident::{BrickId, JobId};
use super::job::{Job, JobKind, JobPart, JobState};
use super::member::ServerId;

/// A request about jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobRequest {
    /// List the jobs that the caller may see.
    List,
    /// Show a job with its parts and findings.
    Show {
        /// The job.
        job: JobId,
    },
    /// Begin to rewrite old records.
    Evolve {
        /// The space.
        space: String,
        /// The classes, with those that extend them; all if the list is empty.
        classes: Vec<String>,
        /// The rate.
        rate: Option<JobRate>,
    },
    /// Begin to read and check everything.
    Scrub {
        /// The bricks; all if the list is empty.
        bricks: Vec<BrickId>,
        /// The rate of each brick.
        rate: Option<JobRate>,
    },
    /// Begin to make a clone of a space.
    Clone {
        /// The space.
        space: String,
        /// The name of the clone.
        name: String,
        /// The rate.
        rate: Option<JobRate>,
    },
    /// Pause a job.
    Pause {
        /// The job.
        job: JobId,
    },
    /// Resume a job.
    Resume {
        /// The job.
        job: JobId,
    },
    /// Cancel a job.
    Cancel {
        /// The job.
        job: JobId,
    },
    /// Set the rate of a job; `None`: as fast as possible.
    SetRate {
        /// The job.
        job: JobId,
        /// The rate.
        rate: Option<JobRate>,
    },
}

/// How much a job may do in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobRate {
    /// Objects.
    Objects(u64),
    /// Bytes.
    Bytes(u64),
}

impl JobRate {
    /// The number of what jobs of a kind count.
    ///
    /// # Errors
    /// As [`JobRate::objects`], and [`CatalogError::Invalid`] if they count bytes and the rate is of objects.
    pub fn of(rate: Option<Self>, kind: &JobKind) -> Result<Option<u64>, CatalogError> {
        match rate {
            Some(Self::Bytes(rate)) if kind.counts_bytes() => Ok(Some(rate)),
            Some(Self::Objects(rate)) if kind.counts_bytes() => {
                let given = format!("{rate} objects a second");
                Err(CatalogError::invalid("the rate of a scrub", given, "it is bytes a second, such as 50MiB/s"))
            }
            rate => Self::objects(rate),
        }
    }

    /// The number of objects.
    ///
    /// # Errors
    /// [`CatalogError::Invalid`] if the rate is of bytes.
    pub fn objects(rate: Option<Self>) -> Result<Option<u64>, CatalogError> {
        match rate {
            None => Ok(None),
            Some(Self::Objects(rate)) => Ok(Some(rate)),
            Some(Self::Bytes(rate)) => {
                let given = format!("{rate} bytes a second");
                Err(CatalogError::invalid("the rate of this job", given, "it is objects a second, such as 500/s"))
            }
        }
    }
}

/// The answer to a [`JobRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobAnswer {
    /// The jobs that were asked for, or the one that was begun or changed.
    pub jobs: Vec<JobView>,
}

/// A job as users see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobView {
    /// Its number.
    pub job: JobId,
    /// What it does: "evolve", "index", "scrub" or "clone".
    pub kind: String,
    /// The space, unless it is about the whole cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space: Option<String>,
    /// The classes, the index or the clone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<String>,
    /// Its state.
    pub state: JobState,
    /// The user who has begun it; empty for an anonymous caller.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub begun_by: String,
    /// When it was begun, in milliseconds since 1970.
    pub begun_ms: u64,
    /// When it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Most objects or bytes a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// What `done` and `total` count: "objects" or "bytes", or "pages" of an index. The rate of an index is of objects.
    pub unit: String,
    /// What was done.
    pub done: u64,
    /// How much there is, as far as it is known.
    pub total: u64,
    /// How long processes have worked on it, in milliseconds: the longest of its parts.
    pub worked_ms: u64,
    /// Objects that were read.
    pub objects: u64,
    /// Objects that were changed.
    pub changed: u64,
    /// What is wrong with the data: how many findings.
    pub found: u64,
    /// Why it has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether it has failed because stored data is damaged.
    pub damaged: bool,
    /// Why it does not proceed now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Its parts, if it was asked for alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<JobPartView>,
    /// What is wrong with the data, if it was asked for alone: the first findings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// What was wrong with the data and was put right, if it was asked for alone: the first ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub corrected: Vec<String>,
}

/// A part of a job as users see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JobPartView {
    /// The class, the brick or the logical node.
    pub part: String,
    /// The process that works on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// What was done.
    pub done: u64,
    /// How much there is, as far as it is known.
    pub total: u64,
    /// Objects that were changed.
    pub changed: u64,
    /// Whether nothing is left to do.
    pub ended: bool,
}

impl Catalog {
    /// A job as users see it, without its parts.
    #[must_use]
    pub fn job_view(&self, job: &Job) -> JobView {
        let (kind, subjects) = match &job.kind {
            JobKind::Evolve { classes, .. } => ("evolve", classes.clone()),
            JobKind::BuildIndex { name, .. } => ("index", vec![name.clone()]),
            JobKind::Clone { name, .. } => ("clone", vec![name.clone()]),
            JobKind::Scrub => ("scrub", Vec::new()),
        };
        let space = job.kind.space();
        let space_name = |space| self.space_by_id(space).map_or_else(|| format!("{}", space.0), |one| one.name.clone());
        let mut view = JobView {
            job: job.id,
            kind: kind.to_owned(),
            space: space.map(space_name),
            subjects,
            state: job.state,
            begun_by: job.begun_by.clone(),
            begun_ms: job.begun_ms,
            ended_ms: job.ended_ms,
            rate: job.rate,
            unit: job.kind.unit().to_owned(),
            done: 0,
            total: 0,
            worked_ms: 0,
            objects: 0,
            changed: 0,
            found: 0,
            error: job.error.clone(),
            damaged: job.damaged,
            problems: Vec::new(),
            parts: Vec::new(),
            findings: Vec::new(),
            corrected: Vec::new(),
        };
        for (_, part) in self.job_parts(job.id) {
            let progress = &part.progress;
            view.done = view.done.saturating_add(progress.done);
            view.worked_ms = view.worked_ms.max(progress.worked_ms);
            view.objects = view.objects.saturating_add(progress.objects);
            view.changed = view.changed.saturating_add(progress.changed);
            view.found = view.found.saturating_add(progress.found);
            view.problems.extend(progress.problem.clone().filter(|_| job.state == JobState::Running));
        }
        view.total = known_total(self.job_parts(job.id).map(|(_, part)| &**part));
        view
    }

    /// A job as users see it, with its parts and findings.
    #[must_use]
    pub fn detailed_job_view(&self, job: &Job) -> JobView {
        let mut view = self.job_view(job);
        let is_of_several = job.kind == JobKind::Scrub && self.job_parts(job.id).count() > 1;
        for (number, part) in self.job_parts(job.id) {
            let progress = &part.progress;
            let worker = part.worker.map(|worker| worker.server.to_string());
            let whole = |name: String| JobPartView {
                part: name,
                worker: worker.clone(),
                done: progress.done,
                total: progress.total,
                changed: progress.changed,
                ended: part.ended,
            };
            match &job.kind {
                JobKind::Evolve { .. } => {
                    view.parts.extend(progress.classes.iter().map(|(class, counts)| JobPartView {
                        part: class.clone(),
                        worker: worker.clone(),
                        done: counts.objects,
                        total: counts.objects,
                        changed: counts.changed,
                        ended: part.ended,
                    }))
                }
                JobKind::BuildIndex { .. } | JobKind::Scrub => {
                    view.parts.push(whole(ServerId::Brick(BrickId(number)).to_string()));
                }
                JobKind::Clone { name, .. } => view.parts.push(whole(name.clone())),
            }
            let place = if is_of_several { format!("brick {number}: ") } else { String::new() };
            view.findings.extend(progress.findings.iter().map(|finding| format!("{place}{finding}")));
            view.corrected.extend(progress.corrected.iter().map(|corrected| format!("{place}{corrected}")));
        }
        view
    }
}

/// How much there is to do in all parts of a job; 0 as long as that is not known of a part.
fn known_total<'a>(parts: impl Iterator<Item = &'a JobPart>) -> u64 {
    let totals = parts.map(|part| (part.ended || part.progress.total > 0).then_some(part.progress.total));
    totals.sum::<Option<u64>>().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::job::JobProgress;
    use super::*;

    #[test]
    fn the_total_of_a_job_is_unknown_until_each_part_has_one_or_has_ended() {
        let part = |total, ended| {
            let progress = JobProgress { total, ..JobProgress::default() };
            JobPart { progress, ended, ..JobPart::default() }
        };
        let total = |parts: &[JobPart]| known_total(parts.iter());
        assert_eq!(total(&[part(5, false), part(0, false)]), 0, "the second one has not begun");
        assert_eq!(total(&[part(5, false), part(7, false)]), 12);
        assert_eq!(total(&[part(5, true), part(0, true)]), 5, "an empty part has ended");
        assert_eq!(total(&[]), 0);
    }
}
