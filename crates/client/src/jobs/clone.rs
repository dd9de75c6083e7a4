//! Makes a clone of a space: a cut through its bricks (K1), from which each brick makes the rows of its logical nodes.
//!
//! A clone is of one moment, so nothing is kept of an attempt that fails: the next one begins with a new cut, and bricks remove what the former one
//! has left.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use meta::catalog::{BrickId, CatalogError, Edited, Job, SpaceSnapshot};
use meta::{MetaSnapshot, Prefix};
use model::{Error, ErrorKind, NodeId, Result, SpaceMap};
use node::process::JobHost;
use tokio::task::JoinSet;
use tokio::time;
use wire::cluster::CloneRows;
use wire::proto::moves::ClonedRows;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::proto::usage::{GetNodeUsages, NodeUsages};
use wire::tasks;

use super::{PartWork, RETRY_DELAY, WorkEnd, is_retryable};
use crate::admin::{CutBrick, cut_bricks};
use crate::client_core::unexpected_answer_error;

/// A brick, as the process of a peer server reaches it.
#[derive(Clone)]
struct HostedBrick {
    host: Arc<JobHost>,
    brick: BrickId,
}

impl CutBrick for HostedBrick {
    fn name(&self) -> String {
        format!("brick {}", self.brick)
    }

    async fn ask(&self, request: Request) -> Result<Response> {
        Ok(self.host.call_brick(self.brick, request).await?.response)
    }
}

/// Requests under way: one for each brick at most.
type Steps = JoinSet<(BrickId, Result<ClonedRows>)>;

/// Objects that a brick copies at a time.
const MOST_OBJECTS: u64 = 4_096;

/// The logical nodes that a brick has still to clone.
struct BrickWork {
    brick: HostedBrick,
    nodes: VecDeque<NodeId>,
    /// Where the first of them continues.
    from: Option<Bytes>,
}

/// Makes the clone of a job.
pub(super) async fn run(work: &mut PartWork, job: &Job) -> Result<WorkEnd> {
    loop {
        work.progress = Default::default();
        match attempt(work, job).await {
            // A full disk is not filled again and again: bricks remove the rows when the job has failed.
            Err(error) if is_retryable(&error) && error.kind() != ErrorKind::Full => {
                if !work.wait_for(&error).await {
                    return Ok(WorkEnd::Interrupted);
                }
            }
            // The job is paused, has ended, or another process works on it.
            Err(error) if error.kind() == ErrorKind::Conflict => return Ok(WorkEnd::Interrupted),
            ended => return ended,
        }
    }
}

async fn attempt(work: &mut PartWork, job: &Job) -> Result<WorkEnd> {
    let (cut, moment, at_ms) = take_cut(work, job).await?;
    work.progress.total = count_objects(work, &moment).await?;
    work.progress.problem = None;
    match clone_rows(work, cut, &moment).await? {
        WorkEnd::Complete => finish(work, &moment, at_ms).await,
        other => Ok(other),
    }
}

/// Takes a cut through the bricks of the space. Returns its number, the space at that moment, and the time, in milliseconds since 1970.
async fn take_cut(work: &PartWork, job: &Job) -> Result<(u64, SpaceSnapshot, u64)> {
    let store = work.editor.store().clone();
    let read = || async {
        let state = store.read(Prefix::all()).await?;
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
        Ok::<_, Error>((state, at_ms))
    };
    let snapshot = |state: &MetaSnapshot| SpaceSnapshot::new(state, job, work.host.worker);
    let bricks: Vec<BrickId> = snapshot(&read().await?.0)?.nodes_by_brick().into_keys().collect();
    let hosted: Vec<HostedBrick> =
        bricks.iter().map(|brick| HostedBrick { host: work.host.clone(), brick: *brick }).collect();
    let (parts, (state, at_ms)) = cut_bricks(&hosted, None, |_| read()).await?;
    // While the bricks hold, the catalogue is only read.
    let moment = snapshot(&state)?;
    if !moment.nodes_by_brick().into_keys().eq(bricks) {
        return Err(Error::new(ErrorKind::Unavailable, "logical nodes of the space have moved since the cut began"));
    }
    let number = parts.first().map(|part| part.number);
    let number = number.ok_or_else(|| Error::new(ErrorKind::Internal, "a cut through no bricks"))?;
    Ok((number, moment, at_ms))
}

/// How many objects the space has, about.
async fn count_objects(work: &PartWork, moment: &SpaceSnapshot) -> Result<u64> {
    let mut objects = 0;
    for (brick, nodes) in moment.nodes_by_brick() {
        let get = GetNodeUsages { nodes: nodes.into_iter().map(|node| node.0).collect() };
        match work.host.call_brick(brick, Request::GetNodeUsages(get)).await?.response {
            Response::NodeUsages(NodeUsages { nodes }) => {
                objects = nodes.iter().fold(objects, |sum: u64, node| sum.saturating_add(node.objects));
            }
            _ => return Err(unexpected_answer_error()),
        }
    }
    Ok(objects)
}

/// Has all bricks make their rows, at the same time.
async fn clone_rows(work: &mut PartWork, cut: u64, moment: &SpaceSnapshot) -> Result<WorkEnd> {
    let mut bricks: BTreeMap<BrickId, BrickWork> = BTreeMap::new();
    for (brick, nodes) in moment.nodes_by_brick() {
        let hosted = HostedBrick { host: work.host.clone(), brick };
        bricks.insert(brick, BrickWork { brick: hosted, nodes: nodes.into(), from: None });
    }
    let mut steps = JoinSet::new();
    let begin = |brick: &BrickWork, most: u64, steps: &mut _| brick.begin_step((cut, most), moment.map, steps);
    bricks.values().for_each(|brick| begin(brick, work.portion(MOST_OBJECTS), &mut steps));
    while let Some(step) = steps.join_next().await {
        let (brick, cloned) = step.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
        let ClonedRows { next, objects } = cloned?;
        (work.progress.done, work.progress.objects) = (work.progress.done + objects, work.progress.objects + objects);
        // The objects of the space may have become more before the cut.
        work.progress.total = work.progress.total.max(work.progress.done);
        work.take(objects);
        if !work.pace().await {
            return Ok(WorkEnd::Interrupted);
        }
        if let Some(brick) = bricks.get_mut(&brick) {
            if next.is_none() {
                brick.nodes.pop_front();
            }
            brick.from = next;
            begin(brick, work.portion(MOST_OBJECTS), &mut steps);
        }
    }
    Ok(WorkEnd::Complete)
}

impl BrickWork {
    /// Has the brick make the next rows, if any are left.
    fn begin_step(&self, (cut, most_objects): (u64, u64), map: SpaceMap, steps: &mut Steps) {
        let Some(node) = self.nodes.front().copied() else { return };
        let (brick, from) = (self.brick.clone(), self.from.clone());
        tasks::spawn_in(steps, async move {
            let asked = Request::CloneRows(CloneRows { cut, node, map, from, most_objects }.into());
            let cloned = match brick.ask(asked).await {
                Ok(Response::ClonedRows(cloned)) => Ok(cloned),
                Ok(_) => Err(unexpected_answer_error()),
                // The brick was started again, or a later attempt has begun.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    Err(Error::new(ErrorKind::Unavailable, error.message().to_owned()))
                }
                Err(error) => Err(error),
            };
            (brick.brick, cloned)
        });
    }
}

/// Makes the clone a space.
async fn finish(work: &mut PartWork, moment: &SpaceSnapshot, at_ms: u64) -> Result<WorkEnd> {
    work.count_time();
    loop {
        let state = (moment, at_ms);
        match work.editor.finish_clone(work.job, work.host.worker, state, work.progress.clone()).await {
            Ok(Edited { revision, .. }) => {
                work.host.view.wait_for_revision(revision).await?;
                return Ok(WorkEnd::Recorded);
            }
            // An earlier try has made the edit and its answer was lost, or the job was cancelled or taken over.
            Err(CatalogError::WrongJobState { .. }) => return Ok(WorkEnd::Recorded),
            Err(CatalogError::Missing { what: "brick", name }) => {
                let what = format!("brick {name} was removed while the clone was made");
                return Err(Error::new(ErrorKind::Unavailable, what));
            }
            Err(error) => {
                let error = Error::from(error);
                if !is_retryable(&error) || !work.goes_on() {
                    return Err(error);
                }
                time::sleep(RETRY_DELAY).await;
            }
        }
    }
}
