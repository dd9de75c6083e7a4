//! Writes objects back as a tree of files.
//!
//! Names in the store are untrusted: a name that would lead out of the directory is refused, symbolic links are never followed, and
//! links are created last. Directories get their modes and times when all of their entries are written.

mod export_directory;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use client::Client;
use model::{Kind, Oid, Stat};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::{self, JoinSet};

use self::export_directory::ExportDirectory;
use super::attributes::Attributes;
use super::walk::Prefix;
use super::{BATCH_FILES, MAX_BATCHES, SMALL_READ_BYTES, file_name};
use crate::failure::{Failure, Result};
use crate::output;
use crate::progress::Progress;

/// Number of names in one request.
const NAMES_PER_REQUEST: usize = 10_000;
/// Most attributes of an object that are read.
const MAX_ATTRIBUTES: usize = 100;
/// Pieces of a large object that are read ahead.
const READ_AHEAD_PIECES: usize = 2;

/// The parameters of an export.
pub(crate) struct ExportPlan {
    /// The prefix of the names.
    pub(crate) prefix: Prefix,
    /// The directory of the exported tree.
    pub(crate) root: PathBuf,
    /// Whether existing files are replaced.
    pub(crate) overwrite: bool,
}

/// The result of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    /// Regular files written.
    pub(crate) files: u64,
    /// Symbolic links created.
    pub(crate) links: u64,
    /// Directories created or found.
    pub(crate) directories: u64,
    /// Objects that could not be written, each reported on the error stream.
    pub(crate) failed: u64,
    /// Bytes of content written.
    pub(crate) bytes: u64,
}

/// The state shared by all parts of an export.
struct Job {
    client: Client,
    progress: Progress,
    json: bool,
    prefix: Prefix,
    directory: ExportDirectory,
    shared: Mutex<PendingWork>,
}

/// Work that is done when all files are written.
#[derive(Default)]
struct PendingWork {
    tally: Tally,
    links: Vec<(PathBuf, Bytes, Attributes)>,
    directories: Vec<(PathBuf, Attributes)>,
}

/// An object to write.
struct Item {
    /// Its name below the prefix.
    relative: String,
    oid: Oid,
}

/// Exports all names below the prefix.
pub(crate) async fn export(client: &Client, plan: ExportPlan, progress: &Progress, json: bool) -> Result<Tally> {
    progress.set_total(0, count_names(client, &plan.prefix).await?);
    let place = ExportDirectory::open(plan.root, plan.overwrite)?;
    let job = Arc::new(Job {
        client: client.clone(),
        progress: progress.clone(),
        json,
        prefix: plan.prefix,
        directory: place,
        shared: Mutex::default(),
    });
    if let Some(root) = client.resolve(job.prefix.root()).await? {
        let pairs = client.attributes(root, None, MAX_ATTRIBUTES).await?;
        job.with_pending(|later| later.directories.push((job.directory.root().to_owned(), Attributes::read(&pairs))));
    }
    let mut running: JoinSet<Result> = JoinSet::new();
    let below = job.prefix.below();
    let mut after: Option<String> = None;
    loop {
        let names = client.names(&below, after.as_deref(), BATCH_FILES).await?;
        let Some((last, _)) = names.last() else { break };
        after = Some(last.clone());
        let items = names.into_iter().filter_map(|(name, oid)| {
            job.prefix.relative(&name).map(|relative| Item { relative: relative.to_owned(), oid })
        });
        running.spawn(Arc::clone(&job).write_all(items.collect()));
        while running.len() >= MAX_BATCHES {
            join_one(&mut running).await?;
        }
    }
    while !running.is_empty() {
        join_one(&mut running).await?;
    }
    let job = Arc::into_inner(job).ok_or_else(|| Failure::new("an export ended while parts of it were running"))?;
    task::spawn_blocking(move || job.finish()).await.map_err(|e| Failure::new(format!("exporting failed: {e}")))
}

async fn join_one(running: &mut JoinSet<Result>) -> Result {
    match running.join_next().await {
        Some(done) => done.map_err(|e| Failure::new(format!("exporting failed: {e}")))?,
        None => Ok(()),
    }
}

async fn count_names(client: &Client, prefix: &Prefix) -> Result<u64> {
    let below = prefix.below();
    let (mut count, mut after) = (0, None::<String>);
    loop {
        let page = client.names(&below, after.as_deref(), NAMES_PER_REQUEST).await?;
        count += page.len() as u64;
        match page.into_iter().next_back() {
            Some((last, _)) => after = Some(last),
            None if count == 0 => {
                return Err(Failure::not_found(format!("no name begins with {below}"))
                    .hint("`mortar ls` shows the names there are; --prefix says which to export."));
            }
            None => return Ok(count),
        }
    }
}

impl Job {
    fn with_pending<T>(&self, change: impl FnOnce(&mut PendingWork) -> T) -> T {
        // A thread that has panicked has left at worst a count that is too low.
        change(&mut self.shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn report_failure(&self, message: &str) {
        self.with_pending(|later| later.tally.failed += 1);
        self.progress.suspend(|| output::warn(self.json, "not_exported", message));
    }

    async fn write_all(self: Arc<Self>, items: Vec<Item>) -> Result {
        let fetches: Vec<_> = items
            .iter()
            .map(|item| {
                let (client, oid) = (self.client.clone(), item.oid);
                tokio::spawn(async move {
                    let (object, pairs) =
                        tokio::join!(client.get(oid, SMALL_READ_BYTES), client.attributes(oid, None, MAX_ATTRIBUTES));
                    Ok::<_, model::Error>((object?, pairs))
                })
            })
            .collect();
        for (item, fetched) in items.into_iter().zip(fetches) {
            let (object, pairs) = fetched.await.map_err(|e| Failure::new(format!("exporting failed: {e}")))??;
            // An object that was deleted meanwhile is not part of the tree any more.
            if let Some((stat, content)) = object {
                self.write(&item, stat, content, Attributes::read(&pairs?)).await?;
            }
            self.progress.advance(0, 1);
        }
        Ok(())
    }

    async fn write(
        self: &Arc<Self>,
        item: &Item,
        stat: Stat,
        content: Option<Bytes>,
        attributes: Attributes,
    ) -> Result {
        let path = match file_name::to_path(&item.relative) {
            Ok(relative) => self.directory.root().join(relative),
            Err(why) => {
                self.report_failure(&format!("{}{}: {why}", self.prefix.below(), item.relative));
                return Ok(());
            }
        };
        if stat.kind == Kind::Collection {
            let (job, directory) = (Arc::clone(self), path.clone());
            let made = task::spawn_blocking(move || job.directory.create_directory(&directory)).await;
            return self.record_result(made, &path, |later| later.directories.push((path.clone(), attributes)));
        }
        if attributes.symlink {
            match content {
                Some(target) => self.with_pending(|later| later.links.push((path, target, attributes))),
                None => self.report_failure(&format!("{}: too long for the target of a link", path.display())),
            }
            return Ok(());
        }
        let (pieces, read) = mpsc::channel(READ_AHEAD_PIECES);
        let (job, file) = (Arc::clone(self), path.clone());
        let writing = task::spawn_blocking(move || job.directory.write_file(&file, &attributes, read));
        let sent = self.send_content(stat.oid, content, &pieces).await;
        if sent.is_ok() {
            // The empty piece marks the content as complete; without it the file is removed.
            let _ = pieces.send(Bytes::new()).await;
        }
        drop(pieces);
        let written = writing.await;
        let bytes = sent?;
        self.record_result(written, &path, |later| {
            later.tally.files += 1;
            later.tally.bytes += bytes;
        })
    }

    /// Sends the content to the thread that writes it. Returns its size.
    async fn send_content(&self, oid: Oid, content: Option<Bytes>, pieces: &mpsc::Sender<Bytes>) -> Result<u64> {
        // If the receiver is gone, writing has failed, and that error is reported.
        if let Some(content) = content {
            let bytes = content.len() as u64;
            if bytes > 0 {
                let _ = pieces.send(content).await;
            }
            self.progress.advance(bytes, 0);
            return Ok(bytes);
        }
        let mut bytes = 0;
        let mut reader = self.client.reader(oid, ..);
        while let Some(piece) = reader.next().await? {
            bytes += piece.len() as u64;
            self.progress.advance(piece.len() as u64, 0);
            if pieces.send(piece).await.is_err() {
                break;
            }
        }
        Ok(bytes)
    }

    /// Counts a written file, or reports why it was not written.
    fn record_result(
        &self,
        written: std::result::Result<io::Result<()>, task::JoinError>,
        path: &Path,
        count: impl FnOnce(&mut PendingWork),
    ) -> Result {
        match written.map_err(io::Error::other).and_then(|written| written) {
            Ok(()) => self.with_pending(count),
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                return Err(Failure::file(format!("cannot write {}", path.display()), &error));
            }
            Err(error) => self.report_failure(&format!("{}: {error}", path.display())),
        }
        Ok(())
    }

    /// Creates the links, and then sets modes and times of directories, the deepest first.
    fn finish(self) -> Tally {
        let (links, mut directories) =
            self.with_pending(|later| (std::mem::take(&mut later.links), std::mem::take(&mut later.directories)));
        for (path, target, attributes) in &links {
            match self.directory.create_link(path, target, attributes) {
                Ok(()) => self.with_pending(|later| later.tally.links += 1),
                Err(error) => self.report_failure(&format!("{}: {error}", path.display())),
            }
        }
        directories.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
        for (path, attributes) in &directories {
            match self.directory.finish_directory(path, attributes) {
                Ok(()) => self.with_pending(|later| later.tally.directories += 1),
                Err(error) => self.report_failure(&format!("{}: {error}", path.display())),
            }
        }
        self.with_pending(|later| later.tally.clone())
    }
}
