//! Requests about jobs, for callers that may.

use std::collections::BTreeSet;
use std::time::Duration;

use meta::catalog::{
    BrickId, Catalog, CatalogEditor, Edited, Follower, Job, JobAccess, JobAnswer, JobId, JobKind, JobRate, JobRequest,
    JobState, JobView, check_clonable,
};
use model::{Error, ErrorKind, Result, SpaceId};
use tokio::time;
use wire::proto::jobs;

use super::{CatalogSource, ClusterView};
use crate::auth::{Principal, check_writable};
use crate::catalog_messages::job_request_from_proto;

/// Time limit of reading the revision of the catalogue. After it, the local copy is shown.
const SHOW_TIMEOUT: Duration = Duration::from_millis(500);

/// Carries out a request for a caller, and waits until `follower` has seen the change.
///
/// # Errors
/// [`ErrorKind::Invalid`] if the request cannot be read; [`ErrorKind::Denied`]; the errors of the operation.
pub(crate) async fn handle_job_request(
    editor: &CatalogEditor,
    follower: &Follower,
    who: &Principal,
    asked: &jobs::JobRequest,
) -> Result<JobAnswer> {
    let request = job_request_from_proto(asked)?;
    // The copy may be older than a job of which the caller knows.
    if let Ok(Ok(revision)) = time::timeout(SHOW_TIMEOUT, editor.revision()).await {
        follower.wait_for_revision(revision).await?;
    }
    let catalog = follower.catalog();
    let editor = editor.with_caller(who.user_name());
    let changed = match request {
        JobRequest::List => return Ok(visible_jobs(&catalog, who)),
        JobRequest::Show { job } => {
            let job = permitted_job(&catalog, who, job)?;
            let mut view = catalog.detailed_job_view(job);
            view.problems.extend(waiting_problems(&catalog, job));
            return Ok(JobAnswer { jobs: vec![view] });
        }
        JobRequest::Evolve { space, classes, rate } => {
            let kind = evolve_kind(&catalog, who, &space, classes)?;
            editor.begin_job(&kind, &[0].into(), JobRate::of(rate, &kind)?).await?
        }
        JobRequest::Scrub { bricks, rate } => {
            check_access(&catalog, who, &JobKind::Scrub)?;
            let parts = bricks_to_scrub(&catalog, &bricks)?;
            editor.begin_job(&JobKind::Scrub, &parts, JobRate::of(rate, &JobKind::Scrub)?).await?
        }
        JobRequest::Clone { space, name, rate } => {
            who.check_administrator(Some(&catalog))?;
            if let Some(source) = catalog.space(&space) {
                check_clonable(&catalog.schema(source.id))?;
            }
            editor.begin_clone(&space, &name, JobRate::objects(rate)?).await?
        }
        JobRequest::Pause { job } => editor.pause_job(permitted_job(&catalog, who, job)?.id).await?,
        JobRequest::Resume { job } => editor.resume_job(permitted_job(&catalog, who, job)?.id).await?,
        JobRequest::Cancel { job } => editor.cancel_job(permitted_job(&catalog, who, job)?.id).await?,
        JobRequest::SetRate { job, rate } => {
            let job = permitted_job(&catalog, who, job)?;
            editor.set_job_rate(job.id, JobRate::of(rate, &job.kind)?).await?
        }
    };
    let Edited { value: job, revision } = changed;
    let catalog = follower.wait_for_revision(revision).await?;
    Ok(JobAnswer { jobs: vec![catalog.job_view(&job)] })
}

/// Checks that a caller may begin, see and change jobs of a kind.
///
/// # Errors
/// [`ErrorKind::Denied`].
fn check_access(catalog: &Catalog, who: &Principal, kind: &JobKind) -> Result<()> {
    match kind.access() {
        JobAccess::Administrators => who.check_administrator(Some(catalog)),
        JobAccess::Space(space, needed) => match catalog.space_by_id(space) {
            Some(space) => who.check_permission(needed, Some(catalog), &space.name),
            // The space was removed, with its permissions.
            None => who.check_administrator(Some(catalog)),
        },
    }
}

fn visible_jobs(catalog: &Catalog, who: &Principal) -> JobAnswer {
    let visible = catalog.jobs().filter(|job| check_access(catalog, who, &job.kind).is_ok());
    let view = |job| {
        let mut view: JobView = catalog.job_view(job);
        view.problems.extend(waiting_problems(catalog, job));
        view
    };
    JobAnswer { jobs: visible.map(|job| view(job)).collect() }
}

/// The job, if the caller may see it. Others do not learn whether it exists.
fn permitted_job<'a>(catalog: &'a Catalog, who: &Principal, id: JobId) -> Result<&'a Job> {
    who.check(Some(catalog))?;
    let job = catalog.job(id).filter(|job| check_access(catalog, who, &job.kind).is_ok());
    let missing = || {
        let what = format!("there is no job {id}, or you may not see it; `mortar job ls` lists those that you may see");
        Error::new(ErrorKind::NotFound, what)
    };
    job.map(|job| &**job).ok_or_else(missing)
}

/// What a request to rewrite records asks for, if the caller may ask for it. Only administrators learn which spaces there are.
fn evolve_kind(catalog: &Catalog, who: &Principal, space: &str, classes: Vec<String>) -> Result<JobKind> {
    let Some(found) = catalog.space(space).filter(|_| who.permission(Some(catalog), space).is_some()) else {
        who.check_administrator(Some(catalog)).map_err(|_| who.space_not_visible_error(space))?;
        return Err(Error::new(ErrorKind::NotFound, format!("there is no space {space:?}")));
    };
    check_writable(found)?;
    let kind = JobKind::Evolve { space: found.id, classes };
    check_access(catalog, who, &kind)?;
    let schema = catalog.schema(found.id);
    if let JobKind::Evolve { classes, .. } = &kind
        && let Some(class) = classes.iter().find(|class| schema.class_named(class).is_none())
    {
        return Err(Error::new(ErrorKind::NotFound, format!("there is no class {class:?} in space {space:?}")));
    }
    Ok(kind)
}

/// The numbers of the bricks that a scrub reads.
fn bricks_to_scrub(catalog: &Catalog, wanted: &[BrickId]) -> Result<BTreeSet<u32>> {
    if let Some(brick) = wanted.iter().find(|brick| catalog.brick(**brick).is_none()) {
        return Err(Error::new(
            ErrorKind::NotFound,
            format!("there is no brick {brick}: `mortar brick ls` lists them"),
        ));
    }
    let all = catalog.bricks().map(|(brick, _)| brick.id).filter(|brick| wanted.is_empty() || wanted.contains(brick));
    let all: BTreeSet<u32> = all.map(|brick| brick.0).collect();
    match all.is_empty() {
        true => Err(Error::new(ErrorKind::NotFound, "the cluster has no bricks")),
        false => Ok(all),
    }
}

/// What a job waits for: processes, or objects of which one must change.
fn waiting_problems(catalog: &Catalog, job: &Job) -> Vec<String> {
    if job.state != JobState::Running {
        return Vec::new();
    }
    let problems: Vec<String> = match &job.kind {
        JobKind::Scrub => away_bricks(catalog, job.open_parts.iter().map(|part| BrickId(*part))),
        JobKind::Evolve { .. } | JobKind::Clone { .. } if !catalog.peers().any(|(_, alive)| alive.is_some()) => {
            vec!["no peer server is alive: start one, and it goes on".to_owned()]
        }
        JobKind::BuildIndex { space, index, .. } => {
            let schema = catalog.schema(*space);
            let flaw = schema.indexes().find(|one| one.id == *index).and_then(|index| index.flaw.as_ref());
            flaw.map(|flaw| format!("{flaw}: change or remove one of them, and it goes on")).into_iter().collect()
        }
        JobKind::Evolve { .. } | JobKind::Clone { .. } => Vec::new(),
    };
    let has_recorded = catalog.job_parts(job.id).any(|(_, part)| part.progress.problem.is_some());
    match job.kind.space().filter(|_| problems.is_empty() && !has_recorded) {
        // Its worker notices that when a request has not been answered for its time limit.
        Some(space) => away_bricks(catalog, bricks_of(catalog, space)),
        None => problems,
    }
}

/// The bricks that serve a space.
fn bricks_of(catalog: &Catalog, space: SpaceId) -> BTreeSet<BrickId> {
    let nodes = catalog.space_by_id(space).into_iter().flat_map(|space| space.node_ids());
    nodes.filter_map(|node| Some(catalog.node_placement(node)?.brick)).collect()
}

/// A problem for each of these bricks that is not alive.
fn away_bricks(catalog: &Catalog, bricks: impl IntoIterator<Item = BrickId>) -> Vec<String> {
    let is_away = |id: &BrickId| catalog.brick(*id).is_none_or(|brick| brick.alive.is_none());
    let away = bricks.into_iter().filter(is_away);
    away.map(|brick| format!("brick {brick} is not alive: start it, and it goes on")).collect()
}

impl ClusterView {
    /// Carries out a request for a caller, and updates this view.
    ///
    /// # Errors
    /// As [`handle_job_request`].
    pub(crate) async fn handle_job_request(&self, who: &Principal, asked: &jobs::JobRequest) -> Result<JobAnswer> {
        let CatalogSource { editor, follower, .. } = self.source()?;
        let answer = handle_job_request(editor, follower, who, asked).await?;
        self.update_from_catalog();
        Ok(answer)
    }
}
