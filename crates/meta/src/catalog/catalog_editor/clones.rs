//! Clones of spaces. [`SpaceSnapshot`] says what a clone has.

use std::collections::BTreeSet;

use bytes::Bytes;
use model::{NodeId, SpaceId};
use tracing::warn;

use super::jobs::{JOB, check_room, now_ms, remove_expired, reserve_jobs};
use super::spaces::{SPACE, put_placements, read_bricks};
use super::{CatalogEditor, Edited, Result, edit};
use crate::catalog::catalog_draft::CatalogDraft;
use crate::catalog::entry::{self, Path};
use crate::catalog::error::CatalogError;
use crate::catalog::ident::{Epoch, JobId};
use crate::catalog::job::{self, Job, JobKind, JobPart, JobProgress, JobState, JobWorker, PartReport};
use crate::catalog::names;
use crate::catalog::placement::NodePlacement;
use crate::catalog::space::{CloneSource, Removals, RemovedSpace, Space};
use crate::catalog::space_clone::SpaceSnapshot;
use crate::plant::{Bug, planted};
use crate::{Expect, Key, KeyChange, WriteOutcome, limits};

/// Bytes of classes and indexes that are written in one step.
const SCHEMA_WRITE: usize = limits::WRITE / 2;

impl CatalogEditor {
    /// Begins a job that makes a read-only clone of a space. The numbers of the clone and of its logical nodes are never given again, whatever becomes
    /// of the job.
    ///
    /// # Errors
    /// [`CatalogError::Missing`]; [`CatalogError::Exists`] if there is a space with the name of the clone, or another job makes one;
    /// [`CatalogError::Invalid`] for the name or the rate; [`CatalogError::TooMany`].
    pub async fn begin_clone(&self, source: &str, name: &str, rate: Option<u64>) -> Result<Edited<Job>> {
        names::check_space(name)?;
        job::check_rate(rate)?;
        edit!(self, |draft| {
            let id = reserve_jobs(&mut draft, 1).await?;
            let space: Space = draft.require(&Path::Space(source.to_owned()), SPACE, source).await?;
            let known: Vec<Job> = draft.scan(entry::jobs()?).await?.into_iter().map(|(_, job)| job).collect();
            let is_same = |job: &&Job| matches!(&job.kind, JobKind::Clone { name: other, .. } if other == name);
            let is_being_made = known.iter().filter(|job| !job.state.is_end()).any(|job| is_same(&job));
            if is_being_made || draft.get::<Space>(&Path::Space(name.to_owned())).await?.is_some() {
                return Err(CatalogError::Exists { what: SPACE, name: name.to_owned() });
            }
            let clone = draft.reserve_numbers("spaces", 1, SpaceId::MAX.0.into()).await?;
            let first = draft.reserve_numbers("nodes", space.nodes.into(), u64::from(NodeId::MAX.0) - 1).await?;
            // The limits of the reservations are those of the types.
            let (clone, first_node) = (SpaceId(clone as u16), NodeId(first as u32));
            let kind = JobKind::Clone { space: space.id, name: name.to_owned(), clone, first_node, nodes: space.nodes };
            check_room(&known, &kind)?;
            let job = Job::begin(id, kind, (self.caller_name(), now_ms()), rate, [0].into());
            draft.put(&Path::Job(id), &job)?;
            remove_expired(&mut draft, &known).await?;
            job
        })
    }

    /// Ends the job of a clone: its rows are complete, and from now on it is a space, at the bricks that have made them.
    ///
    /// # Errors
    /// [`CatalogError::WrongJobState`] if the job has ended, or the worker has lost it; [`CatalogError::Exists`] if there is a space of its name
    /// now; [`CatalogError::Missing`] if the space or a brick was removed.
    pub async fn finish_clone(
        &self,
        id: JobId,
        worker: JobWorker,
        (moment, at_ms): (&SpaceSnapshot, u64),
        progress: JobProgress,
    ) -> Result<Edited<Job>> {
        self.write_schema(id, worker, moment).await?;
        let SpaceSnapshot { map, space: source, placements, .. } = moment;
        let (id_of_clone, first_node) = (map.target().space, map.target().first_node);
        edit!(self, |draft| {
            let mut job: Job = draft.require(&Path::Job(id), JOB, &id.to_string()).await?;
            let part_path = Path::JobPart(id, 0);
            let mut part: JobPart = draft.get(&part_path).await?.unwrap_or_default();
            job.report((0, &mut part), worker, (None, progress.clone()), (&PartReport::Complete, now_ms()))?;
            let JobKind::Clone { name, .. } = job.kind.clone() else {
                return Err(CatalogError::invalid("a job", id, "it makes no clone"));
            };
            if draft.get::<Space>(&Path::Space(name.clone())).await?.is_some() {
                return Err(CatalogError::Exists { what: SPACE, name });
            }
            // Brings the removal of a brick, which changes the map, before or behind this.
            let epoch = Epoch(draft.touch(&Path::PlacementMap).await?);
            let bricks = read_bricks(&draft).await?;
            if let Some(gone) = placements.iter().find(|place| !bricks.contains(&place.brick)) {
                return Err(CatalogError::missing("brick", gone.brick));
            }
            let placed = placements.iter().map(|place| NodePlacement { epoch, moving: None, ..place.clone() });
            put_placements(&mut draft, id_of_clone, first_node, &placed.collect::<Vec<_>>())?;
            draft.touch(&Path::Schema(id_of_clone)).await?;
            // Who may read it is decided now: permissions may have been revoked, and users removed, since the cut.
            draft.touch(&Path::Accounts).await?;
            let now: Option<Space> = draft.get(&Path::Space(source.name.clone())).await?;
            let now =
                now.filter(|space| space.id == source.id).ok_or_else(|| CatalogError::missing(SPACE, &source.name))?;
            let space = Space {
                id: id_of_clone,
                name: name.clone(),
                first_node,
                removals: Removals::default(),
                read_only: true,
                clone_of: Some(CloneSource { space: source.name.clone(), at_ms }),
                ..now
            };
            draft.put(&Path::Space(name), &space)?;
            draft.put(&part_path, &part)?;
            draft.put(&Path::Job(id), &job)?;
            job
        })
    }

    /// Writes the classes and indexes of a clone, as long as the worker has the job. They are not read before there is a space with its number.
    async fn write_schema(&self, id: JobId, worker: JobWorker, snapshot: &SpaceSnapshot) -> Result<()> {
        let mut draft = self.draft();
        let mut job: Job = draft.require(&Path::Job(id), JOB, &id.to_string()).await?;
        let mut part: JobPart = draft.get(&Path::JobPart(id, 0)).await?.unwrap_or_default();
        let progress = part.progress.clone();
        job.report((0, &mut part), worker, (None, progress), (&PartReport::Continues, now_ms()))?;
        let mut expects = Vec::new();
        for path in [Path::Job(id), Path::JobPart(id, 0)] {
            expects.push(Expect { revision: draft.revision_of(&path)?, key: path.key()? });
        }
        let (mut changes, mut bytes) = (self.outdated_schema(snapshot).await?, 0);
        for (key, value) in &snapshot.schema {
            if !changes.is_empty() && bytes + size(key, value) > SCHEMA_WRITE {
                self.write_guarded(&expects, std::mem::take(&mut changes)).await?;
                bytes = 0;
            }
            bytes += size(key, value);
            changes.push(KeyChange::put(key.clone(), value.clone()));
        }
        self.write_guarded(&expects, changes).await
    }

    /// Removes what an earlier attempt has written of classes and indexes that were removed meanwhile.
    async fn outdated_schema(&self, snapshot: &SpaceSnapshot) -> Result<Vec<KeyChange>> {
        let space = snapshot.map.target().space;
        let kept: BTreeSet<&Key> = snapshot.schema.iter().map(|(key, _)| key).collect();
        let mut outdated = Vec::new();
        for prefix in [entry::indexes(space)?, entry::classes(space)?, entry::all_versions(space)?] {
            let written = self.store().read(prefix).await?.entries;
            let keys = written.into_iter().map(|(key, _)| key);
            outdated.extend(keys.filter(|key| !kept.contains(key)).map(KeyChange::remove));
        }
        Ok(outdated)
    }

    /// Writes changes in as many steps as they need, each if the expectations hold.
    async fn write_guarded(&self, expects: &[Expect], changes: Vec<KeyChange>) -> Result<()> {
        for changes in changes.chunks(limits::CHANGES) {
            match self.store().write(expects.to_vec(), changes.to_vec()).await? {
                WriteOutcome::Done(_) => {}
                WriteOutcome::Conflict => return Err(CatalogError::Busy { attempts: 1 }),
            }
        }
        Ok(())
    }

    /// Removes the classes and indexes of a clone that was not completed.
    pub(super) async fn remove_schema_of_clone(&self, job: &Job) {
        if let JobKind::Clone { clone, .. } = job.kind
            && is_given_up(job)
            && let Err(error) = self.remove_schema(clone).await
        {
            warn!(%error, job = job.id.0, "the classes of a clone that was given up are still in the catalogue");
        }
    }
}

fn size(key: &Key, value: &Bytes) -> usize {
    key.as_str().len() + value.len()
}

fn is_given_up(job: &Job) -> bool {
    job.state.is_end() && job.state != JobState::Done
}

/// If the job of a clone has ended before the clone is complete, its logical nodes are those of a removed space: bricks remove what they have of
/// them, and one that is down does so when it is back.
pub(super) async fn give_clone_up(draft: &mut CatalogDraft<'_>, job: &Job) -> Result<()> {
    let JobKind::Clone { name, clone, first_node, nodes, .. } = &job.kind else { return Ok(()) };
    if is_given_up(job) && !planted(Bug::GivenUpCloneKept) {
        draft.touch(&Path::PlacementMap).await?;
        let removed = RemovedSpace { name: name.clone(), first_node: *first_node, nodes: *nodes };
        draft.put(&Path::RemovedSpace(*clone), &removed)?;
    }
    Ok(())
}
