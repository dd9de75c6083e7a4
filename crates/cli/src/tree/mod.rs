//! A tree of files in a store: how directories, files and links become objects, and objects files again.
//!
//! A file becomes a blob, a symbolic link a small blob with its target, and a directory a directory. Each object is
//! bound to the name `prefix/relative/path` ([`file_name`]) and has its mode, time and type as attributes ([`attributes`]). Other
//! entries (sockets, pipes, devices) are counted and skipped.

pub(crate) mod attributes;
pub(crate) mod content_type;
pub(crate) mod export;
pub(crate) mod file_name;
pub(crate) mod import;
mod lookup;
pub(crate) mod plan;
pub(crate) mod source;
pub(crate) mod verify;
pub(crate) mod walk;

use std::future::Future;

use model::{Error, ErrorKind};
use tokio::task::JoinSet;
use wire::tasks;

/// Files up to this size share a transaction; larger ones are uploaded individually.
pub(crate) const SMALL_FILE_BYTES: u64 = 1 << 20;
/// Bytes of a blob that are stored in its page; more are uploaded, because pages are fetched whole.
pub(crate) const INLINE_BYTES: usize = 32 << 10;
/// Bytes of content in one batch: more saves nothing, and a server holds batches in flight in memory.
pub(crate) const BATCH_BYTES: u64 = 1 << 20;
/// Files in one batch.
pub(crate) const BATCH_FILES: usize = 256;
/// Directories in one batch.
pub(crate) const BATCH_DIRECTORIES: usize = 1000;
/// Batches in flight: enough to keep the disk, the connection and the log busy at the same time.
pub(crate) const MAX_BATCHES: usize = 4;

/// Small files of a batch whose contents are compared or written at the same time.
const FILES_AT_A_TIME: usize = 16;

/// Runs futures at the same time and returns their results in order, or the first error. Dropped before that, it stops them.
async fn join_all<T, E, F>(futures: Vec<F>) -> Result<Vec<T>, E>
where
    T: Send + 'static,
    E: From<Error> + Send + 'static,
    F: Future<Output = Result<T, E>> + Send + 'static,
{
    join_all_limited(usize::MAX, futures).await
}

/// The same, with at most `limit` futures at a time.
async fn join_all_limited<T, E, F>(limit: usize, futures: Vec<F>) -> Result<Vec<T>, E>
where
    T: Send + 'static,
    E: From<Error> + Send + 'static,
    F: Future<Output = Result<T, E>> + Send + 'static,
{
    let (mut running, mut results) = (JoinSet::<Result<(usize, T), E>>::new(), Vec::new());
    for (index, future) in futures.into_iter().enumerate() {
        if running.len() >= limit {
            join_next(&mut running, &mut results).await?;
        }
        tasks::spawn_in(&mut running, async move { future.await.map(|result| (index, result)) });
    }
    while !running.is_empty() {
        join_next(&mut running, &mut results).await?;
    }
    results.sort_unstable_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

async fn join_next<R: 'static, E: From<Error> + 'static>(
    running: &mut JoinSet<Result<R, E>>,
    results: &mut Vec<R>,
) -> Result<(), E> {
    if let Some(done) = running.join_next().await {
        let panicked = |error| Error::new(ErrorKind::Internal, "a part of the work has panicked").with_source(error);
        results.push(done.map_err(panicked)??);
    }
    Ok(())
}
