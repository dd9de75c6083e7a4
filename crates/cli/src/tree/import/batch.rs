//! Many small files in one transaction.

use bytes::Bytes;
use client::Client;
use model::{Error, ErrorKind, NodeId, Oid};
use wire::tasks;

use super::existing::{self, FileAction};
use super::transaction::{self, Directory, NewContent, ObjectWrite, WriteTarget};
use super::{Attempts, Job, Tally, no_directory};
use crate::failure::Result;
use crate::tree::content_type;
use crate::tree::lookup::{self, BoundObject};
use crate::tree::source;
use crate::tree::walk::{Entry, EntryKind};
use crate::tree::{INLINE_BYTES, join_all};

/// How much a file may grow between the walk and reading; more would make the transaction too large.
const MAX_GROWTH_BYTES: u64 = 64 << 10;

/// A file that is being imported.
struct FileChange {
    entry: Entry,
    /// Its directory.
    directory: Oid,
    /// The existing object.
    existing: Option<BoundObject>,
    /// Its content; `None` if only attributes change.
    content: Option<Bytes>,
}

/// The result of an attempt. Failures are reported when the batch is done, not in every attempt.
#[derive(Default)]
struct BatchReport {
    tally: Tally,
    failures: Vec<String>,
}

/// Imports one batch of small files and links.
pub(super) async fn import(job: &Job, entries: Vec<Entry>) -> Result<Tally> {
    let mut attempts = Attempts::default();
    loop {
        // After a failure, another import may have been first, or the transaction may have been committed.
        match try_import(job, &entries, !attempts.is_first()).await {
            Ok(BatchReport { mut tally, failures }) => {
                failures.iter().for_each(|message| job.report_failure(&mut tally, message));
                let bytes = entries.iter().map(|entry| entry.size).sum();
                job.progress.advance(bytes, entries.len() as u64);
                return Ok(tally);
            }
            Err(error) => attempts.pause(error).await?,
        }
    }
}

async fn try_import(job: &Job, entries: &[Entry], look: bool) -> model::Result<BatchReport> {
    let mut report = BatchReport::default();
    let changes = choose(job, entries, look, &mut report).await?;
    let changes = read(changes, &mut report).await?;
    changes.iter().for_each(|change| change.count(&mut report.tally));
    let writes = changes.into_iter().map(|change| change.upload(job.cluster.clone()));
    let writes = join_all(writes.collect()).await?;
    transaction::commit(&job.cluster, writes).await?;
    Ok(report)
}

/// Looks up the objects of entries. If all are in new directories, they have none, unless `look` requests to be sure.
async fn look_up(job: &Job, entries: &[Entry], look: bool) -> model::Result<Vec<Option<BoundObject>>> {
    let is_new = |entry: &Entry| job.parent(entry).is_none_or(|directory| job.new_directories.contains(&directory));
    if !look && entries.iter().all(is_new) {
        return Ok(vec![None; entries.len()]);
    }
    lookup::find_all(&job.cluster, &job.directories, entries).await
}

/// Drops entries that need not, or cannot, be imported.
async fn choose(job: &Job, entries: &[Entry], look: bool, report: &mut BatchReport) -> model::Result<Vec<FileChange>> {
    let found = look_up(job, entries, look).await?;
    let mut changes = Vec::with_capacity(entries.len());
    for (entry, existing) in entries.iter().zip(found) {
        let Some(directory) = job.parent(entry) else {
            report.failures.push(no_directory(entry));
            continue;
        };
        let content = match existing::choose_action(entry, existing.as_ref()) {
            FileAction::Unchanged => {
                report.tally.unchanged += 1;
                continue;
            }
            FileAction::Blocked(message) => {
                report.failures.push(message);
                continue;
            }
            FileAction::Create | FileAction::Replace => Some(Bytes::new()),
            FileAction::Update => None,
        };
        changes.push(FileChange { entry: entry.clone(), directory, existing, content });
    }
    Ok(changes)
}

/// Reads the files; unreadable ones are dropped.
async fn read(mut changes: Vec<FileChange>, report: &mut BatchReport) -> model::Result<Vec<FileChange>> {
    let read = move || {
        let mut unread = Vec::new();
        changes.retain_mut(|change| {
            let Some(content) = &mut change.content else { return true };
            let limit = change.entry.size + MAX_GROWTH_BYTES;
            match source::read_small(&mut change.entry, limit) {
                Ok(read) => {
                    *content = read;
                    true
                }
                Err(error) => {
                    unread.push(format!("{}: {error}", change.entry.path.display()));
                    false
                }
            }
        });
        (changes, unread)
    };
    let failed = |error| Error::new(ErrorKind::Internal, "reading files failed").with_source(error);
    let (changes, unread) = tasks::spawn_blocking(read).await.map_err(failed)?;
    report.failures.extend(unread);
    Ok(changes)
}

impl FileChange {
    fn count(&self, tally: &mut Tally) {
        match (&self.existing, &self.content) {
            (None, _) => tally.imported += 1,
            (Some(_), Some(_)) => tally.replaced += 1,
            (Some(_), None) => tally.updated += 1,
        }
        tally.bytes += self.content.as_ref().map_or(0, |content| content.len() as u64);
    }

    /// Uploads the content if it is too large for a page.
    async fn upload(self, cluster: Client) -> model::Result<ObjectWrite> {
        let Self { entry, directory, existing, content } = self;
        let media = match (&content, entry.kind) {
            (Some(content), EntryKind::File) => Some(content_type::guess(&entry.path, content)),
            _ => existing.as_ref().and_then(|existing| existing.attributes().content_type),
        };
        let attributes = existing::expected_attributes(&entry, media);
        let (node, target) = place(&entry, directory, existing.as_ref());
        let content = match content {
            None => NewContent::Unchanged,
            Some(bytes) if bytes.len() <= INLINE_BYTES => NewContent::Inline(bytes),
            Some(bytes) => NewContent::Staged(transaction::upload(&cluster, node, bytes).await?),
        };
        Ok(ObjectWrite { target, content, attributes })
    }
}

/// The target of a write, and its logical node.
pub(super) fn place(entry: &Entry, directory: Oid, existing: Option<&BoundObject>) -> (NodeId, WriteTarget) {
    match existing {
        Some(BoundObject { oid, .. }) => (oid.page().node, WriteTarget::Existing(*oid)),
        None => {
            let name = entry.component().to_owned();
            (directory.page().node, WriteTarget::New(Directory::Existing(directory), name))
        }
    }
}
