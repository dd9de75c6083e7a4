//! A large file: an upload in pieces, then one transaction that makes it visible.

use std::io;

use client::StagedContent;
use model::{NodeId, Oid};
use wire::tasks;

use super::batch::place;
use super::existing::{self, FileAction};
use super::transaction::{self, NewContent, ObjectWrite};
use super::{Attempts, Job, Tally, no_directory};
use crate::failure::Result;
use crate::stream::{self, StageError};
use crate::tree::content_type;
use crate::tree::lookup;
use crate::tree::source::{self, Source};
use crate::tree::walk::Entry;

/// Imports one large file.
pub(super) async fn import(job: &Job, mut entry: Entry) -> Result<Tally> {
    let mut tally = Tally::default();
    let size = entry.size;
    let Some(directory) = job.parent(&entry) else {
        job.report_failure(&mut tally, &no_directory(&entry));
        return Ok(tally);
    };
    let mut attempts = Attempts::default();
    loop {
        // After a failure, another import may have been first, or the transaction may have been committed.
        let error = match try_import(job, directory, &mut entry).await {
            Ok(result) => {
                result.count(job, &mut tally, size);
                return Ok(tally);
            }
            Err(UploadError::File(message)) => {
                job.report_failure(&mut tally, &message);
                return Ok(tally);
            }
            Err(UploadError::Server(error)) => error,
        };
        attempts.pause(error).await?;
    }
}

/// What was done with a file.
enum ImportResult {
    /// A new object was created.
    Imported(u64),
    /// These bytes replace the content of an object.
    Replaced(u64),
    /// Only the attributes of an object were changed.
    Updated,
    /// The object equals the file.
    Unchanged,
    /// Another kind of object has its name.
    Blocked(String),
}

impl ImportResult {
    /// Counts the file, which had `size` bytes when it was found.
    fn count(self, job: &Job, tally: &mut Tally, size: u64) {
        match self {
            Self::Imported(bytes) => {
                tally.imported += 1;
                tally.bytes += bytes;
                return job.progress.advance(0, 1);
            }
            Self::Replaced(bytes) => {
                tally.replaced += 1;
                tally.bytes += bytes;
                return job.progress.advance(0, 1);
            }
            Self::Updated => tally.updated += 1,
            Self::Unchanged => tally.unchanged += 1,
            Self::Blocked(message) => job.report_failure(tally, &message),
        }
        job.progress.advance(size, 1);
    }
}

/// Why a file could not be stored.
enum UploadError {
    /// A problem of the file: other files are imported.
    File(String),
    /// A problem of the server.
    Server(model::Error),
}

impl From<model::Error> for UploadError {
    fn from(error: model::Error) -> Self {
        Self::Server(error)
    }
}

async fn try_import(job: &Job, directory: Oid, entry: &mut Entry) -> std::result::Result<ImportResult, UploadError> {
    let found = lookup::find(&job.cluster, &job.directories, entry).await?;
    let (node, target) = place(entry, directory, found.as_ref());
    match existing::choose_action(entry, found.as_ref()) {
        FileAction::Unchanged => return Ok(ImportResult::Unchanged),
        FileAction::Blocked(message) => return Ok(ImportResult::Blocked(message)),
        FileAction::Update => {
            let media = found.as_ref().and_then(|found| found.attributes().content_type);
            let attributes = existing::expected_attributes(entry, media);
            let write = ObjectWrite { target, content: NewContent::Unchanged, attributes };
            transaction::commit(&job.cluster, vec![write]).await?;
            return Ok(ImportResult::Updated);
        }
        FileAction::Create | FileAction::Replace => {}
    }
    let (staged, media) = upload(job, node, entry).await?;
    let attributes = existing::expected_attributes(entry, Some(media));
    let write = ObjectWrite { target, content: NewContent::Staged(staged), attributes };
    if let Err(error) = transaction::commit(&job.cluster, vec![write]).await {
        job.progress.retreat(staged.size());
        return Err(error.into());
    }
    Ok(if found.is_some() { ImportResult::Replaced(staged.size()) } else { ImportResult::Imported(staged.size()) })
}

/// Uploads the content of the file to a logical node. Updates `entry` to the state in which the content was read.
async fn upload(
    job: &Job,
    node: NodeId,
    entry: &mut Entry,
) -> std::result::Result<(StagedContent, String), UploadError> {
    let path = entry.path.display().to_string();
    let broken = |error: io::Error| UploadError::File(format!("{path}: {error}"));
    for _ in 0..source::ATTEMPTS {
        let path = entry.path.clone();
        let open = move || Source::open(&path).and_then(|source| Ok((source.head(content_type::SNIFF_BYTES)?, source)));
        let opened = tasks::spawn_blocking(open).await;
        let (head, source) = opened.map_err(io::Error::other).and_then(|opened| opened).map_err(broken)?;
        let mut sent = 0;
        match stage(job, node, source, &mut sent).await {
            Ok(Some((staged, source))) => {
                (entry.size, entry.mtime) = (source.size, source.mtime);
                return Ok((staged, content_type::guess(&entry.path, &head)));
            }
            // It has changed while it was read.
            Ok(None) => job.progress.retreat(sent),
            Err(error) => {
                job.progress.retreat(sent);
                return Err(match error {
                    StageError::Source(error) => broken(error),
                    StageError::Server(error) => UploadError::Server(error),
                });
            }
        }
    }
    Err(broken(source::file_changed_error()))
}

/// Uploads a source, and counts the bytes that were sent. Returns `None` if the source has changed meanwhile.
async fn stage(
    job: &Job,
    node: NodeId,
    source: Source,
    sent: &mut u64,
) -> std::result::Result<Option<(StagedContent, Source)>, StageError> {
    let mut writer = job.cluster.content_writer(Some(node));
    let count = |bytes| {
        *sent += bytes;
        job.progress.advance(bytes, 0);
    };
    let source = stream::send(&mut writer, source, count).await?;
    match source.is_unchanged(*sent) {
        Ok(true) => Ok(Some((writer.finish().await?, source))),
        Ok(false) => Ok(None),
        Err(error) => Err(StageError::Source(error)),
    }
}
