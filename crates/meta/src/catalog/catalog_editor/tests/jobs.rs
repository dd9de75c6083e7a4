use crate::catalog::{
    ClassDefinition, IndexState, Job, JobId, JobKind, JobProgress, JobState, JobWorker, PartReport, PeerId, ServerId,
    StartNumber,
};
use crate::limits;

use super::*;

const EVOLVE: JobKind = JobKind::Evolve { space: SpaceId(1), classes: Vec::new() };

/// A peer server that is alive, with its session.
pub(super) async fn peer(editor: &CatalogEditor, port: u16) -> (JobWorker, MetaSession) {
    let id: PeerId = editor.add_peer(&[format!("127.0.0.1:{port}")]).await.unwrap().value.id;
    let (start, session) = (editor.start_number().await.unwrap(), session(editor).await);
    editor.announce_peer(id, start, session.id).await.unwrap();
    (JobWorker { server: ServerId::Peer(id), start }, session)
}

fn done_progress(count: u64) -> JobProgress {
    JobProgress { done: count, ..JobProgress::default() }
}

async fn end_part(editor: &CatalogEditor, part: (JobId, u32), worker: JobWorker, count: u64) -> Job {
    editor.report_job_part(part, worker, (None, done_progress(count)), PartReport::Complete).await.unwrap().value
}

#[tokio::test]
async fn another_peer_server_goes_on_where_one_that_has_ended_was() {
    let editor = with_space().await.with_caller(Some("ann".into()));
    let ((first, lives), (second, _)) = (peer(&editor, 1).await, peer(&editor, 2).await);
    let job = editor.begin_job(&EVOLVE, &[0].into(), None).await.unwrap().value;
    assert_eq!((job.begun_by.as_str(), job.state), ("ann", JobState::Running));
    let part = (job.id, 0);
    editor.claim_job_part(job.id, 0, first).await.unwrap();
    let refused = editor.claim_job_part(job.id, 0, second).await;
    assert!(matches!(refused, Err(CatalogError::WrongJobState { .. })), "{refused:?}");
    editor.report_job_part(part, first, (Some("7".to_owned()), done_progress(7)), PartReport::Continues).await.unwrap();
    editor.store().end_session(lives.id).await.unwrap();
    let (_, taken) = editor.claim_job_part(job.id, 0, second).await.unwrap().value;
    assert_eq!((taken.place.as_deref(), taken.progress.done), (Some("7"), 7));
    let late = editor.report_job_part(part, first, (None, done_progress(9)), PartReport::Continues).await;
    assert_eq!(kind(late), ErrorKind::Conflict);
    let ended = end_part(&editor, part, second, 12).await;
    assert_eq!((ended.state, ended.open_parts.len()), (JobState::Done, 0));
    assert_eq!(kind(editor.cancel_job(job.id).await), ErrorKind::Conflict);
    let catalog = catalog(&editor).await;
    assert_eq!(catalog.job_part(job.id, 0).progress.done, 12);
    assert_eq!(**catalog.job(job.id).unwrap(), ended);
}

#[tokio::test]
async fn a_later_start_of_the_same_server_takes_over_at_once() {
    let editor = with_space().await;
    let (first, lives) = peer(&editor, 1).await;
    let job = editor.begin_job(&EVOLVE, &[0].into(), None).await.unwrap().value;
    editor.claim_job_part(job.id, 0, first).await.unwrap();
    let ServerId::Peer(id) = first.server else { unreachable!() };
    let again = JobWorker { start: editor.start_number().await.unwrap(), ..first };
    assert!(editor.claim_job_part(job.id, 0, again).await.is_err());
    editor.announce_peer(id, again.start, lives.id).await.unwrap();
    editor.claim_job_part(job.id, 0, again).await.unwrap();
}

#[tokio::test]
async fn the_job_of_an_index_ends_with_its_building() {
    let editor = with_space().await;
    let fields = vec![crate::catalog::FieldDefinition::required("name", crate::catalog::FieldType::String)];
    let class = ClassDefinition { name: "Person".to_owned(), parent: None, fields };
    editor.define("main", &[class]).await.unwrap();
    let create = async |name: &str| editor.create_index("main", name, "Person", &["name"], false).await.unwrap().value;
    let state = async |id: Option<JobId>| catalog(&editor).await.job(id.unwrap()).unwrap().state;
    let (ready, removed, cancelled) = (create("ready").await, create("removed").await, create("cancelled").await);
    editor.record_index_build("main", "ready", ready.id, Some("two are equal".to_owned())).await.unwrap();
    assert_eq!(state(ready.job).await, JobState::Running);
    editor.record_index_build("main", "ready", ready.id, None).await.unwrap();
    assert_eq!(state(ready.job).await, JobState::Done);
    editor.remove_index("main", "removed").await.unwrap();
    assert_eq!(state(removed.job).await, JobState::Cancelled);
    editor.cancel_job(cancelled.job.unwrap()).await.unwrap();
    let schema = catalog(&editor).await.schema(SpaceId(1));
    assert!(schema.index("cancelled").is_none() && schema.index("removed").is_none());
    assert_eq!(schema.index("ready").unwrap().state, IndexState::Ready);
    assert_eq!(kind(editor.cancel_job(ready.job.unwrap()).await), ErrorKind::Conflict);
}

#[tokio::test]
async fn one_scrub_runs_at_a_time_and_ends_without_bricks_that_were_removed() {
    let editor = editor();
    let one = brick(&editor, Storage::Durable).await;
    let other = editor.add_brick(&["b:1".to_owned()], Storage::Durable).await.unwrap().value;
    let job = editor.begin_job(&JobKind::Scrub, &[one.id.0, other.id.0].into(), Some(9)).await.unwrap().value;
    assert_eq!(kind(editor.begin_job(&JobKind::Scrub, &[1].into(), None).await), ErrorKind::Conflict);
    assert_eq!(kind(editor.drop_job_part(job.id, other.id).await), ErrorKind::Invalid);
    editor.remove_brick(other.id).await.unwrap();
    editor.drop_job_part(job.id, other.id).await.unwrap();
    let start = editor.start_number().await.unwrap();
    let worker = JobWorker { server: ServerId::Brick(one.id), start };
    editor.claim_job_part(job.id, one.id.0, worker).await.unwrap();
    let ended = end_part(&editor, (job.id, one.id.0), worker, 3).await;
    assert_eq!(ended.state, JobState::Done);
    editor.begin_job(&JobKind::Scrub, &[1].into(), None).await.unwrap();
}

#[tokio::test]
async fn jobs_that_have_ended_are_removed_with_their_parts() {
    let editor = with_space().await;
    let worker = JobWorker { server: ServerId::Peer(PeerId(1)), start: StartNumber(1) };
    let mut first: Option<Job> = None;
    for _ in 0..limits::ENDED_JOBS + 3 {
        let job = editor.begin_job(&EVOLVE, &[0].into(), None).await.unwrap().value;
        editor.claim_job_part(job.id, 0, worker).await.unwrap();
        end_part(&editor, (job.id, 0), worker, 1).await;
        first.get_or_insert(job);
    }
    editor.remove_expired_jobs().await.unwrap();
    let catalog = catalog(&editor).await;
    let first = first.unwrap().id;
    assert_eq!((catalog.jobs().count(), catalog.job(first)), (limits::ENDED_JOBS, None));
    assert_eq!(catalog.job_parts(first).count(), 0);
}

#[tokio::test]
async fn jobs_with_many_parts_that_expire_together_are_removed_in_several_writes() {
    let editor = with_space().await;
    let begin = async |parts: u32| editor.begin_job(&EVOLVE, &(0..parts).collect(), None).await.unwrap().value.id;
    let large = [begin(64).await, begin(64).await];
    for id in large {
        editor.cancel_job(id).await.unwrap();
    }
    for _ in 2..limits::ENDED_JOBS {
        editor.cancel_job(begin(1).await).await.unwrap();
    }
    // Two more end, and none begins in between.
    let last = [begin(1).await, begin(1).await];
    for id in last {
        editor.cancel_job(id).await.unwrap();
    }
    for _ in 0..2 {
        editor.remove_expired_jobs().await.unwrap();
    }
    let catalog = catalog(&editor).await;
    assert_eq!((catalog.jobs().count(), large.map(|id| catalog.job_parts(id).count())), (limits::ENDED_JOBS, [0, 0]));
}

#[tokio::test]
async fn wrong_requests_are_refused() {
    let editor = with_space().await;
    assert_eq!(kind(editor.begin_job(&EVOLVE, &[0].into(), Some(0)).await), ErrorKind::Invalid);
    assert_eq!(kind(editor.pause_job(JobId(7)).await), ErrorKind::NotFound);
    let job = editor.begin_job(&EVOLVE, &[0].into(), Some(5)).await.unwrap().value;
    assert_eq!(kind(editor.set_job_rate(job.id, Some(u64::MAX)).await), ErrorKind::Invalid);
    assert_eq!(editor.set_job_rate(job.id, None).await.unwrap().value.rate, None);
    editor.pause_job(job.id).await.unwrap();
    let worker = JobWorker { server: ServerId::Peer(PeerId(1)), start: StartNumber(1) };
    assert_eq!(kind(editor.claim_job_part(job.id, 0, worker).await), ErrorKind::Conflict);
    assert_eq!(editor.resume_job(job.id).await.unwrap().value.state, JobState::Running);
}
