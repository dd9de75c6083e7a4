//! Many small files in one transaction.

use std::time::Duration;

use bytes::Bytes;
use model::{ClassId, Kind, Name, Oid, Op, Outcome, Transaction};
use tokio::{task, time};

use super::existing::{self, ExistingObject, FileAction};
use super::{ATTEMPTS, Job, Tally, attempts_exhausted, is_transient};
use crate::failure::{Failure, Result};
use crate::tree::attributes::Attributes;
use crate::tree::content_type;
use crate::tree::source;
use crate::tree::walk::{Entry, EntryKind};

/// How much a file may grow between the walk and reading; more would make the transaction too large.
const MAX_GROWTH_BYTES: u64 = 64 << 10;

/// A file that is being imported.
struct FileChange {
    entry: Entry,
    /// The existing object.
    existing: Option<ExistingObject>,
    /// Its content; `None` if only attributes change.
    content: Option<Bytes>,
}

/// Imports one batch of small files and links.
pub(super) async fn import(job: &Job, entries: Vec<Entry>) -> Result<Tally> {
    let mut look = !job.is_prefix_empty;
    for attempt in 0..ATTEMPTS {
        let mut tally = Tally::default();
        // Reported when the batch is done, not in every attempt.
        let mut failures = Vec::new();
        let arrivals = choose(job, &entries, look, &mut tally, &mut failures).await?;
        let arrivals = read(arrivals, &mut failures).await?;
        let ops = operations(job, &arrivals, &mut tally);
        let outcome = match ops.is_empty() {
            true => None,
            false => Some(job.client.commit(Transaction { ops }).await),
        };
        match outcome {
            None | Some(Ok(Outcome::Committed(_))) => {
                failures.iter().for_each(|message| job.report_failure(&mut tally, message));
                let bytes = entries.iter().map(|entry| entry.size).sum();
                job.progress.advance(bytes, entries.len() as u64);
                return Ok(tally);
            }
            // Another import was first, or the outcome is unknown: read the current state.
            Some(Ok(Outcome::Conflict(_))) => look = true,
            Some(Err(error)) if is_transient(&error) => {
                look = true;
                time::sleep(Duration::from_millis(100 << attempt)).await;
            }
            Some(Err(error)) => return Err(error.into()),
        }
    }
    Err(attempts_exhausted())
}

/// Drops entries that need not, or cannot, be imported.
async fn choose(
    job: &Job,
    entries: &[Entry],
    look: bool,
    tally: &mut Tally,
    failures: &mut Vec<String>,
) -> Result<Vec<FileChange>> {
    let there =
        if look { existing::look_up(&job.client, entries).await? } else { entries.iter().map(|_| None).collect() };
    let mut arrivals = Vec::with_capacity(entries.len());
    for (entry, found) in entries.iter().zip(there) {
        let content = match existing::choose_action(entry, found.as_ref()) {
            FileAction::Unchanged => {
                tally.unchanged += 1;
                continue;
            }
            FileAction::Blocked(message) => {
                failures.push(message);
                continue;
            }
            FileAction::Create if job.parent(entry).is_none() => {
                failures.push(format!("{}: its directory is not in the store", entry.path.display()));
                continue;
            }
            FileAction::Create | FileAction::Replace => Some(Bytes::new()),
            FileAction::Update => None,
        };
        arrivals.push(FileChange { entry: entry.clone(), existing: found, content });
    }
    Ok(arrivals)
}

/// Reads the files; unreadable ones are dropped.
async fn read(mut arrivals: Vec<FileChange>, failures: &mut Vec<String>) -> Result<Vec<FileChange>> {
    let read = move || {
        let mut unread = Vec::new();
        arrivals.retain_mut(|arrival| {
            let Some(content) = &mut arrival.content else { return true };
            let limit = arrival.entry.size + MAX_GROWTH_BYTES;
            match source::read_small(&mut arrival.entry, limit) {
                Ok(read) => {
                    *content = read;
                    true
                }
                Err(error) => {
                    unread.push(format!("{}: {error}", arrival.entry.path.display()));
                    false
                }
            }
        });
        (arrivals, unread)
    };
    let (arrivals, unread) =
        task::spawn_blocking(read).await.map_err(|e| Failure::new(format!("reading files failed: {e}")))?;
    failures.extend(unread);
    Ok(arrivals)
}

fn operations(job: &Job, arrivals: &[FileChange], tally: &mut Tally) -> Vec<Op> {
    let mut ops = Vec::with_capacity(arrivals.len() * 8);
    for (index, arrival) in arrivals.iter().enumerate() {
        let FileChange { entry, existing: found, content } = arrival;
        let media = match (content, entry.kind) {
            (Some(content), EntryKind::File) => Some(content_type::guess(&entry.path, content)),
            _ => found.as_ref().and_then(|found| found.attributes.content_type.clone()),
        };
        let wanted = existing::expected_attributes(entry, media);
        let Some(found) = found else {
            let content = content.clone().unwrap_or_default();
            tally.imported += 1;
            tally.bytes += content.len() as u64;
            create(job, entry, index as u64, content, &wanted, &mut ops);
            continue;
        };
        match content {
            Some(content) => {
                tally.replaced += 1;
                tally.bytes += content.len() as u64;
                ops.push(Op::Put { oid: found.oid, data: content.clone() });
            }
            None => tally.updated += 1,
        }
        ops.extend(wanted.changes(found.oid, &found.attributes));
    }
    ops
}

fn create(job: &Job, entry: &Entry, index: u64, data: Bytes, attributes: &Attributes, ops: &mut Vec<Op>) {
    let oid = Oid::temporary(job.client.space(), ClassId::NONE, index);
    ops.extend(job.create_and_bind(entry, oid, Op::Create { oid, kind: Kind::Blob, data, near: None }));
    ops.extend(attributes.changes(oid, &Attributes::default()));
}

impl Job {
    /// The collection of the directory that a file is in.
    pub(super) fn parent(&self, entry: &Entry) -> Option<Oid> {
        entry.parent.as_ref().and_then(|name| self.directories.get(name)).copied()
    }

    /// The operations that create an object, bind its name and add it to its directory.
    pub(super) fn create_and_bind(&self, entry: &Entry, oid: Oid, create: Op) -> impl Iterator<Item = Op> {
        let name = Name { space: self.client.space(), path: entry.name.clone() };
        let expect = Op::ExpectName { name: name.clone(), oid: None };
        let add = self.parent(entry).map(|collection| Op::Add { collection, member: oid });
        [expect, create, Op::Bind { name, oid }].into_iter().chain(add)
    }
}
