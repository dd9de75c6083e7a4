//! Directories become collections, parents before their entries.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use model::{ClassId, Kind, Name, Oid, Op, Outcome, Transaction};
use tokio::time;

use super::existing::{self, ExistingObject, FileAction};
use super::{ATTEMPTS, Job, Tally, attempts_exhausted, is_transient};
use crate::failure::Result;
use crate::tree::attributes::Attributes;
use crate::tree::walk::Entry;

/// Directories in one transaction.
const BATCH_DIRECTORIES: usize = 1000;

/// Creates the collections of `directories` and records their identifiers.
pub(super) async fn import(job: &mut Job, directories: &[Entry]) -> Result<Tally> {
    let mut tally = Tally::default();
    for group in directories.chunks(BATCH_DIRECTORIES) {
        tally.add(&import_group(job, group).await?);
        job.progress.advance(0, group.len() as u64);
    }
    Ok(tally)
}

async fn import_group(job: &mut Job, group: &[Entry]) -> Result<Tally> {
    let mut look = !job.is_prefix_empty;
    for attempt in 0..ATTEMPTS {
        let there =
            if look { existing::look_up(&job.client, group).await? } else { group.iter().map(|_| None).collect() };
        let plan = DirectoryPlan::new(job, group, &there);
        let outcome = match plan.ops.is_empty() {
            true => None,
            false => Some(job.client.commit(Transaction { ops: plan.ops }).await),
        };
        let created = match outcome {
            None => Vec::new(),
            Some(Ok(Outcome::Committed(committed))) => committed.created,
            // Another import was first, or the outcome is unknown: read the current state.
            Some(Ok(Outcome::Conflict(_))) => {
                look = true;
                continue;
            }
            Some(Err(error)) if is_transient(&error) => {
                look = true;
                time::sleep(Duration::from_millis(100 << attempt)).await;
                continue;
            }
            Some(Err(error)) => return Err(error.into()),
        };
        let mut tally = plan.tally;
        job.directories.extend(plan.known);
        job.directories.extend(plan.created.into_iter().zip(created));
        for message in plan.impossible {
            job.report_failure(&mut tally, &message);
        }
        return Ok(tally);
    }
    Err(attempts_exhausted())
}

/// The transaction that creates a group of directories.
struct DirectoryPlan {
    ops: Vec<Op>,
    /// The names of the directories that are created, in the order of the operations.
    created: Vec<String>,
    /// Directories that exist already.
    known: Vec<(String, Oid)>,
    impossible: Vec<String>,
    tally: Tally,
}

impl DirectoryPlan {
    fn new(job: &Job, group: &[Entry], there: &[Option<ExistingObject>]) -> Self {
        let mut plan = Self {
            ops: Vec::new(),
            created: Vec::new(),
            known: Vec::new(),
            impossible: Vec::new(),
            tally: Tally::default(),
        };
        // The collections of this group, with temporary identifiers for new ones.
        let mut here: HashMap<&str, Oid> = HashMap::new();
        for (entry, found) in group.iter().zip(there) {
            let change = existing::choose_action(entry, found.as_ref());
            match (change, found) {
                (FileAction::Blocked(message), _) => plan.impossible.push(message),
                (FileAction::Create, _) | (_, None) => {
                    let parent = entry.parent.as_deref();
                    let parent_oid =
                        parent.and_then(|name| here.get(name).or_else(|| job.directories.get(name)).copied());
                    if parent.is_some() && parent_oid.is_none() {
                        plan.impossible.push(format!("{}: its directory is not in the store", entry.path.display()));
                        continue;
                    }
                    let oid = plan.create(job, entry, parent_oid);
                    here.insert(&entry.name, oid);
                }
                (change, Some(found)) => {
                    here.insert(&entry.name, found.oid);
                    plan.known.push((entry.name.clone(), found.oid));
                    let wanted = existing::expected_attributes(entry, None);
                    match change {
                        FileAction::Unchanged => plan.tally.unchanged += 1,
                        _ => plan.tally.updated += 1,
                    }
                    plan.ops.extend(wanted.changes(found.oid, &found.attributes));
                }
            }
        }
        plan
    }

    fn create(&mut self, job: &Job, entry: &Entry, parent: Option<Oid>) -> Oid {
        let space = job.client.space();
        let oid = Oid::temporary(space, ClassId::NONE, self.created.len() as u64);
        let name = Name { space, path: entry.name.clone() };
        self.ops.push(Op::ExpectName { name: name.clone(), oid: None });
        self.ops.push(Op::Create { oid, kind: Kind::Collection, data: Bytes::new(), near: None });
        self.ops.push(Op::Bind { name, oid });
        self.ops.extend(existing::expected_attributes(entry, None).changes(oid, &Attributes::default()));
        if let Some(collection) = parent {
            self.ops.push(Op::Add { collection, member: oid });
        }
        self.created.push(entry.name.clone());
        self.tally.imported += 1;
        oid
    }
}
