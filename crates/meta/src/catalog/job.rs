//! Jobs: work that a cluster does in the background. They survive the end of every process.
//!
//! ```text
//!             claim, report (workers)
//!                  ┌───┐
//!   begin ──▶ running ─┴──── pause ──▶ paused
//!              │  ▲ └──────── resume ────┘│
//!              │  └───────────────────────┤
//!              ├─ last part ends ──▶ done  │
//!              ├─ a part fails ───▶ failed │
//!              └─ cancel ─────────▶ cancelled ◀─ cancel
//! ```
//!
//! A job has parts, which different processes work on. A part of a scrub belongs to a brick; that of an evolution or a clone to any peer server. A
//! job that builds an index has no parts: bricks build it ([`super::Index`]), and it ends with the index.
//!
//! 1. One worker at a time works on a part: it claims the part. Another one can claim it when the start of the worker is not alive any more.
//! 2. Only the worker that has claimed a part changes it. A worker that was taken for dead learns of its loss when it records its progress.
//! 3. A part is worked on in order. Its *place* is behind all that is done, and a worker begins there. So after the end of a worker only
//!    what it had not recorded is repeated, and repeating it changes nothing.
//! 4. No part of a paused job is claimed. Its worker records what it has done, and releases the part.
//! 5. A job that has ended never changes again. It is done when all of its parts have ended.
//!
//! The functions here decide; [`CatalogEditor`](super::CatalogEditor) reads and writes the entries in one step.

use std::collections::{BTreeMap, BTreeSet};

use model::{NodeId, SpaceId};
use serde::{Deserialize, Serialize};

use super::entry::Record;
use super::error::CatalogError;
use super::ident::{self, IndexId, JobId, StartNumber};
use super::member::ServerId;
use super::names;
use super::space::Permission;
use crate::limits;
use crate::plant::{Bug, planted};

type Result<T, E = CatalogError> = std::result::Result<T, E>;

/// What a job does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum JobKind {
    /// Rewrites old records in the newest version of their class.
    Evolve {
        /// The space.
        #[serde(with = "ident::space")]
        space: SpaceId,
        /// The classes, with those that extend them; all classes if the list is empty.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        classes: Vec<String>,
    },
    /// Builds an index.
    BuildIndex {
        /// The space.
        #[serde(with = "ident::space")]
        space: SpaceId,
        /// The number of the index.
        index: IndexId,
        /// Its name.
        name: String,
    },
    /// Makes a clone of a space.
    Clone {
        /// The space.
        #[serde(with = "ident::space")]
        space: SpaceId,
        /// The name of the clone.
        name: String,
        /// The number of the clone.
        #[serde(with = "ident::space")]
        clone: SpaceId,
        /// The first logical node of the clone.
        #[serde(with = "ident::node")]
        first_node: NodeId,
        /// The number of its logical nodes, which are consecutive.
        nodes: u32,
    },
    /// Reads everything that bricks keep, and checks it.
    Scrub,
}

/// Who may begin, see and change a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobAccess {
    /// Users with this permission in a space.
    Space(SpaceId, Permission),
    /// Administrators.
    Administrators,
}

impl JobKind {
    /// Who may begin, see and change such a job.
    #[must_use]
    pub fn access(&self) -> JobAccess {
        match self {
            Self::Evolve { space, .. } => JobAccess::Space(*space, Permission::Write),
            Self::BuildIndex { space, .. } => JobAccess::Space(*space, Permission::Admin),
            Self::Clone { .. } | Self::Scrub => JobAccess::Administrators,
        }
    }

    /// The space.
    #[must_use]
    pub fn space(&self) -> Option<SpaceId> {
        match self {
            Self::Evolve { space, .. } | Self::BuildIndex { space, .. } | Self::Clone { space, .. } => Some(*space),
            Self::Scrub => None,
        }
    }

    /// Whether its rate is of bytes; otherwise it is of objects.
    #[must_use]
    pub fn counts_bytes(&self) -> bool {
        *self == Self::Scrub
    }

    /// What its progress counts.
    #[must_use]
    pub(super) fn unit(&self) -> &'static str {
        match self {
            Self::Evolve { .. } | Self::Clone { .. } => "objects",
            Self::BuildIndex { .. } => "pages",
            Self::Scrub => "bytes",
        }
    }
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It is worked on, or waits for a process that can do so.
    Running,
    /// It waits until it is resumed.
    Paused,
    /// It is complete.
    Done,
    /// It cannot be completed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl JobState {
    /// Whether the job has ended.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }

    /// The state as a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// What it does.
    #[serde(flatten)]
    pub kind: JobKind,
    /// The name of the user who has begun it; empty for an anonymous caller.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub begun_by: String,
    /// When it was begun, in milliseconds since 1970.
    pub begun_ms: u64,
    /// Its state.
    pub state: JobState,
    /// Most objects, or bytes, a second: of a scrub at each brick, otherwise altogether.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// The parts that have not ended: the numbers of bricks, or 0.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub open_parts: BTreeSet<u32>,
    /// When it has ended, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Why it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether it has failed because stored data is damaged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub damaged: bool,
}

/// A process that works on a part of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobWorker {
    /// The server.
    pub server: ServerId,
    /// The start of its process.
    pub start: StartNumber,
}

/// How far a part of a job is, and which process works on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPart {
    /// The process that has claimed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<JobWorker>,
    /// Where to go on, in a form that workers of the kind understand; `None` at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// What was done.
    #[serde(flatten)]
    pub progress: JobProgress,
    /// Whether nothing is left to do.
    #[serde(default)]
    pub ended: bool,
}

/// What a worker says when it records its progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartReport {
    /// It goes on.
    Continues,
    /// It does not go on, and any process may.
    Released,
    /// Nothing is left to do. The last part ends the job.
    Complete,
    /// It cannot be completed, for this reason: the job fails.
    Failed(String),
    /// It cannot be completed because stored data is damaged: the job fails.
    Damaged(String),
}

/// What was done of a part of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobProgress {
    /// Objects, or bytes, that were worked on.
    pub done: u64,
    /// How many there are, as far as it is known.
    pub total: u64,
    /// How long it was worked on, in milliseconds.
    pub worked_ms: u64,
    /// Objects that were read.
    pub objects: u64,
    /// Objects that were changed.
    pub changed: u64,
    /// The same by class.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<String, ClassCounts>,
    /// What is wrong with the data, as texts: the first ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// How many there are, in the list or not.
    pub found: u64,
    /// What was wrong with the data and was put right, as texts: the first ones. These are no findings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub corrected: Vec<String>,
    /// Why it does not proceed now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Objects of a class that a job has worked on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassCounts {
    /// Those that were read.
    pub objects: u64,
    /// Those that were changed.
    pub changed: u64,
}

impl JobProgress {
    /// Adds a finding. Only the first ones are kept.
    pub fn add_finding(&mut self, finding: &str) {
        self.found += 1;
        if self.findings.len() < limits::JOB_FINDINGS {
            self.findings.push(shorten(finding));
        }
    }

    /// Adds something that was wrong and was put right. Only the first ones are kept.
    pub fn add_correction(&mut self, corrected: &str) {
        if self.corrected.len() < limits::JOB_FINDINGS {
            self.corrected.push(shorten(corrected));
        }
    }

    /// Counts objects of a class.
    pub fn count(&mut self, class: &str, objects: u64, changed: u64) {
        self.done += objects;
        self.objects += objects;
        self.changed += changed;
        if self.classes.len() < limits::JOB_CLASSES || self.classes.contains_key(class) {
            let counts = self.classes.entry(class.to_owned()).or_default();
            counts.objects += objects;
            counts.changed += changed;
        }
    }
}

/// The beginning of a text, as much as a job keeps.
fn shorten(text: &str) -> String {
    let end = (0..=limits::JOB_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].to_owned()
}

impl Job {
    /// A new job.
    pub(super) fn begin(
        id: JobId,
        kind: JobKind,
        begun: (String, u64),
        rate: Option<u64>,
        parts: BTreeSet<u32>,
    ) -> Self {
        let (begun_by, begun_ms) = begun;
        let (state, ended_ms, error, damaged) = (JobState::Running, None, None, false);
        Self { id, kind, begun_by, begun_ms, state, rate, open_parts: parts, ended_ms, error, damaged }
    }

    fn wrong_state(&self, remedy: &'static str) -> CatalogError {
        CatalogError::WrongJobState { job: self.id.0, state: self.state.word().to_owned(), remedy }
    }

    fn check_open(&self) -> Result<()> {
        match self.state.is_end() && !planted(Bug::EndedJobChanged) {
            true => Err(self.wrong_state("it has ended; begin another one")),
            false => Ok(()),
        }
    }

    /// Pauses the job. A paused one stays so.
    ///
    /// # Errors
    /// [`CatalogError::WrongJobState`] if it has ended.
    pub(super) fn pause(&mut self) -> Result<()> {
        self.check_open()?;
        self.state = JobState::Paused;
        Ok(())
    }

    /// Resumes the job. A running one stays so.
    ///
    /// # Errors
    /// [`CatalogError::WrongJobState`] if it has ended.
    pub(super) fn resume(&mut self) -> Result<()> {
        self.check_open()?;
        self.state = JobState::Running;
        Ok(())
    }

    /// Sets its rate; `None`: as fast as possible.
    ///
    /// # Errors
    /// [`CatalogError::WrongJobState`] if it has ended; [`CatalogError::Invalid`].
    pub(super) fn set_rate(&mut self, rate: Option<u64>) -> Result<()> {
        self.check_open()?;
        check_rate(rate)?;
        self.rate = rate;
        Ok(())
    }

    /// Ends the job.
    ///
    /// # Errors
    /// [`CatalogError::WrongJobState`] if it has ended before.
    pub(super) fn end(&mut self, state: JobState, error: Option<&str>, now_ms: u64) -> Result<()> {
        self.check_open()?;
        (self.state, self.ended_ms, self.error) = (state, Some(now_ms), error.map(shorten));
        Ok(())
    }

    /// Claims a part for a worker.
    ///
    /// # Errors
    /// [`CatalogError::WrongJobState`] if the job is not running, the part has ended, or another worker that lives has it.
    pub(super) fn claim(
        &self,
        (number, part): (u32, &mut JobPart),
        worker: JobWorker,
        is_alive: impl Fn(JobWorker) -> bool,
    ) -> Result<()> {
        let is_claimable = self.state == JobState::Running || planted(Bug::PausedJobClaimed);
        if !is_claimable || !self.open_parts.contains(&number) {
            return Err(self.wrong_state("this part cannot be worked on now"));
        }
        if part.worker.is_some_and(|other| other != worker && (is_alive(other) && !planted(Bug::ClaimedFromLiving))) {
            return Err(self.wrong_state("another process works on this part"));
        }
        part.worker = Some(worker);
        if planted(Bug::ClaimForgetsPlace) {
            part.place = None;
        }
        Ok(())
    }

    /// A worker says how far it is with its part, and whether it goes on.
    ///
    /// # Errors
    /// [`CatalogError::WrongJobState`] if the job has ended, or the worker has lost the part.
    pub(super) fn report(
        &mut self,
        (number, part): (u32, &mut JobPart),
        worker: JobWorker,
        (place, progress): (Option<String>, JobProgress),
        (report, now_ms): (&PartReport, u64),
    ) -> Result<()> {
        self.check_open()?;
        if part.worker != Some(worker) && !planted(Bug::LostPartRecorded) {
            return Err(self.wrong_state("another process has taken over this part"));
        }
        (part.place, part.progress) = (place, progress);
        if *report != PartReport::Continues {
            part.worker = None;
        }
        match report {
            PartReport::Continues | PartReport::Released => Ok(()),
            PartReport::Complete => {
                (part.place, part.ended) = (None, true);
                self.drop_part(number, now_ms)
            }
            PartReport::Failed(why) => self.end(JobState::Failed, Some(why), now_ms),
            PartReport::Damaged(why) => {
                self.damaged = true;
                self.end(JobState::Failed, Some(why), now_ms)
            }
        }
    }

    /// A part needs no more work. The last one ends the job.
    ///
    /// # Errors
    /// [`CatalogError::WrongJobState`] if the job has ended.
    pub(super) fn drop_part(&mut self, number: u32, now_ms: u64) -> Result<()> {
        self.check_open()?;
        self.open_parts.remove(&number);
        match self.open_parts.is_empty() || planted(Bug::PartEndsJob) {
            true => self.end(JobState::Done, None, now_ms),
            false => Ok(()),
        }
    }

    /// Whether it is kept no longer, if so many have ended after it.
    pub(super) fn is_expired(&self, later: usize, now_ms: u64) -> bool {
        let Some(ended) = self.ended_ms.filter(|_| self.state.is_end()) else { return false };
        later >= limits::ENDED_JOBS || ended.saturating_add(limits::ENDED_JOB_MS) < now_ms
    }
}

/// The jobs that are kept no longer.
pub(super) fn expired_jobs<'a>(jobs: impl Iterator<Item = &'a Job>, now_ms: u64) -> Vec<JobId> {
    let mut ended: Vec<&Job> = jobs.filter(|job| job.state.is_end()).collect();
    ended.sort_by_key(|job| std::cmp::Reverse((job.ended_ms, job.id)));
    ended.iter().enumerate().filter(|(later, job)| job.is_expired(*later, now_ms)).map(|(_, job)| job.id).collect()
}

/// Checks the rate of a job.
pub(super) fn check_rate(rate: Option<u64>) -> Result<()> {
    let (least, most) = (*limits::JOB_RATE.start(), *limits::JOB_RATE.end());
    match rate {
        Some(rate) if !limits::JOB_RATE.contains(&rate) => {
            Err(CatalogError::invalid("the rate of a job", rate, format!("it is {least} to {most} a second")))
        }
        _ => Ok(()),
    }
}

fn check_text(what: &'static str, text: Option<&String>) -> Result<()> {
    match text {
        Some(text) if text.len() > limits::JOB_TEXT => {
            Err(CatalogError::invalid(what, text, format!("it has at most {} bytes", limits::JOB_TEXT)))
        }
        _ => Ok(()),
    }
}

impl Record for Job {
    fn check(&self) -> Result<()> {
        check_rate(self.rate)?;
        check_text("the error of a job", self.error.as_ref())?;
        if self.open_parts.len() > limits::JOB_PARTS {
            let why = format!("a job has at most {}", limits::JOB_PARTS);
            return Err(CatalogError::invalid("the number of parts", self.open_parts.len(), why));
        }
        if self.state.is_end() != self.ended_ms.is_some() {
            return Err(CatalogError::invalid("the end of a job", self.id, "one that has ended says when"));
        }
        match &self.kind {
            JobKind::Evolve { classes, .. } if classes.len() > limits::JOB_CLASSES => {
                let why = format!("name at most {}, or none for all", limits::JOB_CLASSES);
                Err(CatalogError::invalid("the number of classes", classes.len(), why))
            }
            JobKind::Evolve { classes, .. } => classes.iter().try_for_each(|class| names::check_class(class)),
            JobKind::BuildIndex { name, .. } => names::check_index(name),
            JobKind::Clone { name, .. } => names::check_space(name),
            JobKind::Scrub => Ok(()),
        }
    }
}

impl Record for JobPart {
    fn check(&self) -> Result<()> {
        let JobProgress { findings, corrected, problem, classes, .. } = &self.progress;
        check_text("the place of a job", self.place.as_ref())?;
        check_text("the problem of a job", problem.as_ref())?;
        findings.iter().chain(corrected).try_for_each(|finding| check_text("a finding of a job", Some(finding)))?;
        if findings.len().max(corrected.len()) > limits::JOB_FINDINGS || classes.len() > limits::JOB_CLASSES {
            return Err(CatalogError::invalid("the progress of a job", "a list", "it is too long"));
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
