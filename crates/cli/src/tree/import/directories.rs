//! Directories, parents before their entries.

use std::collections::HashMap;

use client::Client;
use model::Oid;

use super::existing::{self, FileAction};
use super::transaction::{self, Directory, NewContent, ObjectWrite, WriteTarget};
use super::{Attempts, Job, Tally, no_directory};
use crate::failure::Result;
use crate::tree::BATCH_DIRECTORIES;
use crate::tree::lookup::{self, BoundObject};
use crate::tree::walk::Entry;

/// Creates the directories, and records their identifiers.
pub(super) async fn import(job: &mut Job, directories: &[Entry]) -> Result<Tally> {
    let mut tally = Tally::default();
    let Some(root) = directories.first() else { return Ok(tally) };
    // Below a path that does not exist, there is nothing to look up.
    let exists = job.cluster.resolve(&root.name).await?.is_some();
    for group in directories.chunks(BATCH_DIRECTORIES) {
        tally.add(&import_group(job, group, exists).await?);
        job.progress.advance(0, group.len() as u64);
    }
    Ok(tally)
}

async fn import_group(job: &mut Job, group: &[Entry], look: bool) -> Result<Tally> {
    let mut attempts = Attempts::default();
    loop {
        // After a failure, another import may have been first, or the transaction may have been committed.
        match try_import(job, group, look || !attempts.is_first()).await {
            Ok(tally) => return Ok(tally),
            Err(error) => attempts.pause(error).await?,
        }
    }
}

async fn try_import(job: &mut Job, group: &[Entry], look: bool) -> model::Result<Tally> {
    let found = match look {
        true => look_up(&job.cluster, &job.directories, group).await?,
        false => vec![None; group.len()],
    };
    let DirectoryPlan { writes, places, failures, mut tally } = DirectoryPlan::new(job, group, &found);
    let written = transaction::commit(&job.cluster, writes).await?;
    for (path, place) in places {
        let oid = match place {
            Directory::Existing(oid) => oid,
            Directory::New(position) => {
                job.new_directories.insert(written[position]);
                written[position]
            }
        };
        job.directories.insert(path, oid);
    }
    failures.iter().for_each(|message| job.report_failure(&mut tally, message));
    Ok(tally)
}

async fn look_up(
    cluster: &Client,
    directories: &HashMap<String, Oid>,
    group: &[Entry],
) -> model::Result<Vec<Option<BoundObject>>> {
    lookup::find_all(cluster, directories, group).await
}

/// The transaction that creates a group of directories.
#[derive(Default)]
struct DirectoryPlan {
    writes: Vec<ObjectWrite>,
    /// The directories that are in the store after the transaction, by path.
    places: HashMap<String, Directory>,
    failures: Vec<String>,
    tally: Tally,
}

impl DirectoryPlan {
    fn new(job: &Job, group: &[Entry], found: &[Option<BoundObject>]) -> Self {
        let mut plan = Self::default();
        for (entry, found) in group.iter().zip(found) {
            match (existing::choose_action(entry, found.as_ref()), found) {
                (FileAction::Blocked(message), _) => plan.failures.push(message),
                (FileAction::Create, _) | (_, None) => match plan.target(job, entry) {
                    Some(target) => plan.create(entry, target),
                    None => plan.failures.push(no_directory(entry)),
                },
                (action, Some(found)) => plan.keep(entry, found.oid, &action),
            }
        }
        plan
    }

    /// Where a new directory gets its name, if there is such a place.
    fn target(&self, job: &Job, entry: &Entry) -> Option<WriteTarget> {
        let Some(parent) = &entry.parent else { return Some(WriteTarget::NewPath(entry.name.clone())) };
        let known = || job.directories.get(parent).map(|oid| Directory::Existing(*oid));
        let parent = self.places.get(parent).cloned().or_else(known)?;
        Some(WriteTarget::New(parent, entry.component().to_owned()))
    }

    fn create(&mut self, entry: &Entry, target: WriteTarget) {
        self.places.insert(entry.name.clone(), Directory::New(self.writes.len()));
        let attributes = existing::expected_attributes(entry, None);
        self.writes.push(ObjectWrite { target, content: NewContent::Directory, attributes });
        self.tally.imported += 1;
    }

    /// Keeps an existing directory, perhaps with other attributes.
    fn keep(&mut self, entry: &Entry, oid: Oid, action: &FileAction) {
        self.places.insert(entry.name.clone(), Directory::Existing(oid));
        if matches!(action, FileAction::Unchanged) {
            self.tally.unchanged += 1;
            return;
        }
        let (target, attributes) = (WriteTarget::Existing(oid), existing::expected_attributes(entry, None));
        self.writes.push(ObjectWrite { target, content: NewContent::Unchanged, attributes });
        self.tally.updated += 1;
    }
}
