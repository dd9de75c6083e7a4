//! A large file: an upload in pieces, then one transaction that makes it visible.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use model::{ClassId, Kind, Oid, Op, Outcome, Transaction, UploadId};
use tokio::{task, time};

use super::existing::{self, ExistingObject, FileAction};
use super::{ATTEMPTS, Job, Tally, attempts_exhausted, is_transient};
use crate::failure::Result;
use crate::stream::{self, StageError};
use crate::tree::attributes::Attributes;
use crate::tree::content_type;
use crate::tree::source::{self, Source};
use crate::tree::walk::Entry;

/// Imports one large file.
pub(super) async fn import(job: &Job, mut entry: Entry) -> Result<Tally> {
    let mut tally = Tally::default();
    let size = entry.size;
    for attempt in 0..ATTEMPTS {
        let found = existing::look_up(&job.client, std::slice::from_ref(&entry)).await?.pop().flatten();
        match existing::choose_action(&entry, found.as_ref()) {
            FileAction::Unchanged => {
                tally.unchanged += 1;
                job.progress.advance(size, 1);
                return Ok(tally);
            }
            FileAction::Blocked(message) => {
                job.report_failure(&mut tally, &message);
                job.progress.advance(size, 1);
                return Ok(tally);
            }
            FileAction::Create if job.parent(&entry).is_none() => {
                job.report_failure(&mut tally, &format!("{}: its directory is not in the store", entry.path.display()));
                return Ok(tally);
            }
            FileAction::Create | FileAction::Replace | FileAction::Update => {}
        }
        match try_import(job, &mut entry, found.as_ref(), &mut tally).await? {
            ImportAttempt::Done => return Ok(tally),
            ImportAttempt::Retry => time::sleep(Duration::from_millis(100 << attempt)).await,
        }
    }
    Err(attempts_exhausted())
}

enum ImportAttempt {
    /// It is stored, or cannot be stored and was reported.
    Done,
    /// Another import was first, or the outcome is unknown: read the current state.
    Retry,
}

async fn try_import(
    job: &Job,
    entry: &mut Entry,
    found: Option<&ExistingObject>,
    tally: &mut Tally,
) -> Result<ImportAttempt> {
    let only_attributes =
        found.is_some_and(|found| matches!(existing::choose_action(entry, Some(found)), FileAction::Update));
    let (ops, bytes) = if let Some(found) = found.filter(|_| only_attributes) {
        let wanted = existing::expected_attributes(entry, found.attributes.content_type.clone());
        (wanted.changes(found.oid, &found.attributes), 0)
    } else {
        match upload(job, entry).await {
            Ok((upload, media)) => (operations(job, entry, found, upload, media), entry.size),
            Err(UploadError::File(message)) => {
                job.report_failure(tally, &message);
                return Ok(ImportAttempt::Done);
            }
            Err(UploadError::Server(error)) if is_transient(&error) => return Ok(ImportAttempt::Retry),
            Err(UploadError::Server(error)) => return Err(error.into()),
        }
    };
    match job.client.commit(Transaction { ops }).await {
        Ok(Outcome::Committed(_)) => {}
        Ok(Outcome::Conflict(_)) => {
            job.progress.retreat(bytes);
            return Ok(ImportAttempt::Retry);
        }
        Err(error) if is_transient(&error) => {
            job.progress.retreat(bytes);
            return Ok(ImportAttempt::Retry);
        }
        Err(error) => return Err(error.into()),
    }
    tally.bytes += bytes;
    match (found, only_attributes) {
        (None, _) => tally.imported += 1,
        (Some(_), false) => tally.replaced += 1,
        (Some(_), true) => {
            tally.updated += 1;
            job.progress.advance(entry.size, 0);
        }
    }
    job.progress.advance(0, 1);
    Ok(ImportAttempt::Done)
}

/// Why a file could not be staged.
enum UploadError {
    /// A problem of the file: other files are imported.
    File(String),
    /// A problem of the server.
    Server(model::Error),
}

/// Uploads the content of the file. Updates `entry` to the state in which the content was read.
async fn upload(job: &Job, entry: &mut Entry) -> std::result::Result<(UploadId, String), UploadError> {
    let path = entry.path.display().to_string();
    let broken = |error: io::Error| UploadError::File(format!("{path}: {error}"));
    for _ in 0..source::ATTEMPTS {
        let path = entry.path.clone();
        let open = move || Source::open(&path).and_then(|source| Ok((source.head(content_type::SNIFF_BYTES)?, source)));
        let opened = task::spawn_blocking(open).await;
        let (head, source) = opened.map_err(io::Error::other).and_then(|opened| opened).map_err(broken)?;
        let sent = AtomicU64::new(0);
        let count = |bytes| {
            sent.fetch_add(bytes, Ordering::Relaxed);
            job.progress.advance(bytes, 0);
        };
        let staged = match stream::stage(&job.client, source, count).await {
            Ok(staged) => staged,
            Err(error) => {
                job.progress.retreat(sent.into_inner());
                return Err(match error {
                    StageError::Source(error) => broken(error),
                    StageError::Server(error) => UploadError::Server(error),
                });
            }
        };
        if staged.source.is_unchanged(staged.bytes).map_err(broken)? {
            entry.size = staged.source.size;
            entry.mtime = staged.source.mtime;
            let media = content_type::guess(&entry.path, &head);
            let upload = staged.writer.finish().await.map_err(UploadError::Server)?;
            return Ok((upload, media));
        }
        job.progress.retreat(staged.bytes);
    }
    Err(broken(source::file_changed_error()))
}

fn operations(job: &Job, entry: &Entry, found: Option<&ExistingObject>, upload: UploadId, media: String) -> Vec<Op> {
    let wanted = existing::expected_attributes(entry, Some(media));
    let none = Attributes::default();
    let (oid, old, mut ops) = match found {
        Some(found) => (found.oid, &found.attributes, Vec::new()),
        None => {
            let oid = Oid::temporary(job.client.space(), ClassId::NONE, 0);
            let create = Op::Create { oid, kind: Kind::Blob, data: Bytes::new(), near: None };
            (oid, &none, job.create_and_bind(entry, oid, create).collect())
        }
    };
    ops.push(Op::PutUpload { oid, upload });
    ops.extend(wanted.changes(oid, old));
    ops
}
